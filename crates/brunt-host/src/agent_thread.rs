//! A thread of an agent that does one thing for its controller: a run, a fault or a role.
//!
//! The rule: it is the last field of the struct that holds it. The channels of its orders and its news are dropped first, and
//! that ends it.

use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// One that is not wanted any more has so long to end before nobody waits for it.
const END_TIME: Duration = Duration::from_secs(3);
/// How often that is looked at.
pub(crate) const END_LOOK: Duration = Duration::from_millis(2);

/// A thread. Dropping it waits for its end, but not for long; several are ended by [`end_all`].
#[derive(Debug)]
pub(crate) struct AgentThread {
    thread: JoinHandle<()>,
    /// Nobody waits for its end.
    left: bool,
}

impl AgentThread {
    /// Begins this work.
    ///
    /// # Errors
    /// There is no thread.
    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<AgentThread> {
        let thread = Builder::new().name(name.into()).spawn(work)?;
        Ok(AgentThread {
            thread,
            left: false,
        })
    }

    /// Whether it has ended, also by a panic.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Waits for the end of several threads side by side, as long as for one: each was told to end.
pub(crate) fn end_all(threads: impl IntoIterator<Item = AgentThread>) {
    // All are told before one is waited for.
    let mut threads: Vec<AgentThread> = threads.into_iter().collect();
    wait_until(|| threads.iter().all(AgentThread::is_over));
    threads.iter_mut().for_each(|thread| thread.left = true);
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        wait_until(|| self.left || self.is_over());
    }
}

/// Waits for this, but not for long.
fn wait_until(is_over: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_over() && begin.elapsed() < END_TIME {
        std::thread::sleep(END_LOOK);
    }
}
