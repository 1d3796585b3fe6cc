//! Comments for packets that have not been written yet: what happened between one packet and the next.
//!
//! The rule: without comments, each packet costs one atomic read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum comments waiting for their packets; beyond it, the oldest is dropped.
const WAITING_MAX: usize = 1000;

/// Comments for a file's packets. Clones share the comments.
#[derive(Clone, Debug, Default)]
pub struct PacketComments(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of waiting comments.
    count: AtomicUsize,
    /// Waiting comments and their times, in nanoseconds since 1970.
    waiting: Mutex<VecDeque<(u64, String)>>,
}

impl PacketComments {
    /// Adds a comment for the first packet captured at this time (since 1970) or later.
    pub fn add(&self, since_1970: Duration, text: String) {
        let mut waiting = self.waiting();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((since_1970.as_nanos() as u64, text));
        self.0.count.store(waiting.len(), Ordering::Release);
    }

    /// Removes the comments that are due at a packet's time and joins them, one per line.
    pub(super) fn take(&self, time_ns: u64) -> Option<String> {
        if self.0.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut waiting = self.waiting();
        let due = waiting.iter().take_while(|(at, _)| *at <= time_ns).count();
        let lines: Vec<String> = waiting.drain(..due).map(|(_, text)| text).collect();
        self.0.count.store(waiting.len(), Ordering::Release);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(u64, String)>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_belongs_to_the_first_packet_after_it() {
        let comments = PacketComments::default();
        assert_eq!(comments.take(u64::MAX), None);
        for (at, text) in [(5, "a"), (7, "b"), (9, "c")] {
            comments.clone().add(Duration::from_nanos(at), text.into());
        }
        assert_eq!(comments.take(4), None);
        assert_eq!(comments.take(8).as_deref(), Some("a\nb"));
        assert_eq!(comments.take(8), None);
        assert_eq!(comments.take(9).as_deref(), Some("c"));
        (0..2 * WAITING_MAX as u64)
            .for_each(|at| comments.add(Duration::from_nanos(at), String::new()));
        assert_eq!(comments.waiting().len(), WAITING_MAX);
    }
}
