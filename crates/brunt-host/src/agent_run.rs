//! A handle to an agent's run, for [`crate::connection`]. The run has its own thread ([`crate::run_thread`]), because
//! opening a device may take longer than a controller waits for a clock reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use brunt_protocol::{Assignment, FromHost};

use crate::agent_state::AgentState;
use crate::agent_thread::AgentThread;
use crate::run_thread::{AgentOrder, RunThread};

/// Capacity of the channel to the connection's thread, which drains it many times a second.
const NEWS_MAX: usize = 64;
/// A run, from its assignment to its release. Dropping it ends the run.
#[derive(Debug)]
pub(crate) struct AgentRun {
    orders: Sender<AgentOrder>,
    /// Dropped with the run, so that its thread doesn't block on a channel that is no longer read.
    news: Receiver<FromHost>,
    stop: Arc<AtomicBool>,
    thread: AgentThread,
}

impl AgentRun {
    /// Starts preparing the run.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(
        assignment: Assignment,
        agent_state: &Arc<AgentState>,
    ) -> std::io::Result<AgentRun> {
        let (orders, pending) = channel();
        let (sender, news) = sync_channel(NEWS_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let (agent_state, stopped) = (Arc::clone(agent_state), Arc::clone(&stop));
        let work = move || {
            let run_thread = RunThread {
                agent_state: &agent_state,
                orders: &pending,
                news: &sender,
                stop: &stopped,
            };
            let released = run_thread.work(&assignment).unwrap_or_else(|error| {
                let _ = sender.send(FromHost::Failed {
                    kind: error.kind(),
                    what: error.to_string(),
                });
                false
            });
            if released || run_thread.is_released() {
                let _ = sender.send(FromHost::Released);
            }
        };
        let thread = AgentThread::spawn("run", work)?;
        Ok(AgentRun {
            orders,
            news,
            stop,
            thread,
        })
    }

    /// Sends an order. An order has no effect if the run has ended.
    pub fn tell(&self, order: AgentOrder) {
        if let AgentOrder::Release = order {
            self.stop.store(true, Ordering::Relaxed);
        }
        let _ = self.orders.send(order);
    }

    /// Whether the thread has ended. If [`FromHost::Released`] is not among the thread's last messages, the thread
    /// panicked.
    pub fn is_over(&self) -> bool {
        self.thread.is_over()
    }

    /// The messages since the last call.
    pub fn news(&self) -> impl Iterator<Item = FromHost> {
        self.news.try_iter()
    }
}

impl Drop for AgentRun {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
