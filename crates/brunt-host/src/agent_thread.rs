//! An agent's thread that does a single job for its controller: a run, a fault or a role.
//!
//! The rule: a struct's [`AgentThread`] is its last field. The channels for the thread's orders and news are dropped
//! first, which makes the thread end.

use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a canceled thread may take to end before it is abandoned.
const END_TIME: Duration = Duration::from_secs(3);
/// Polling interval while waiting for a thread to end.
pub(crate) const END_POLL: Duration = Duration::from_millis(2);

/// A thread. Dropping it waits briefly for the thread to end; [`end_all`] waits for several threads.
#[derive(Debug)]
pub(crate) struct AgentThread {
    thread: JoinHandle<()>,
    /// Whether the thread has been abandoned, so that nothing waits for its end.
    left: bool,
}

impl AgentThread {
    /// Starts a thread that does this work.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<AgentThread> {
        let thread = Builder::new().name(name.into()).spawn(work)?;
        Ok(AgentThread {
            thread,
            left: false,
        })
    }

    /// Whether the thread has ended, including by a panic.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Waits for several threads at once, no longer than for a single one. Each must have been asked to end.
pub(crate) fn end_all(threads: impl IntoIterator<Item = AgentThread>) {
    // Collecting the iterator asks all threads to end before the first is waited for.
    let mut threads: Vec<AgentThread> = threads.into_iter().collect();
    wait_until(|| threads.iter().all(AgentThread::is_over));
    threads.iter_mut().for_each(|thread| thread.left = true);
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        wait_until(|| self.left || self.is_over());
    }
}

/// Waits for a condition, for a limited time.
fn wait_until(is_over: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_over() && begin.elapsed() < END_TIME {
        std::thread::sleep(END_POLL);
    }
}
