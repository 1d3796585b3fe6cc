//! Tracks which unstable writes a COMMIT still has to cover, and whether a restart of the server lost any (RFC 1813,
//! 3.3.7 and 3.3.21). Shared by all connections to a file, since a flush covers the writes of every thread.
//!
//! A server's write verifier changes when it may have lost unstable writes. A client that keeps its data would write it
//! again; a block device doesn't keep it, so it reports the loss: the next flush of each connection fails.
//!
//! The one rule: a flush succeeds only if every unstable write that was acknowledged before it began has been committed
//! under the verifier of its own reply.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tracks the unstable writes to a file; see the module's docs.
#[derive(Debug, Default)]
pub struct NfsStability {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The verifier of the last reply.
    verifier: Option<u64>,
    /// Unstable writes acknowledged so far.
    written: u64,
    /// Unstable writes committed so far.
    committed: u64,
    /// Number of times that uncommitted writes were lost.
    losses: u64,
}

impl State {
    /// Handles the verifier of a reply.
    fn see(&mut self, verifier: u64) {
        if self.verifier.is_some_and(|known| known != verifier) && self.written > self.committed {
            self.losses += 1;
            // The loss is reported; later flushes must not wait for these writes.
            self.committed = self.written;
        }
        self.verifier = Some(verifier);
    }
}

impl NfsStability {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a WRITE was acknowledged with this verifier, `unstable` or on stable storage.
    #[inline]
    pub fn on_write(&self, verifier: u64, unstable: bool) {
        let mut state = self.lock();
        state.see(verifier);
        state.written += u64::from(unstable);
    }

    /// Call it before sending a COMMIT, and pass the returned mark to [`NfsStability::on_commit`].
    pub fn before_commit(&self) -> u64 {
        self.lock().written
    }

    /// Records that a COMMIT was acknowledged with this verifier. `mark` was taken before its first attempt.
    pub fn on_commit(&self, verifier: u64, mark: u64) {
        let mut state = self.lock();
        state.see(verifier);
        state.committed = state.committed.max(mark);
    }

    /// Number of times that writes were lost so far.
    pub fn losses(&self) -> u64 {
        self.lock().losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new verifier is a loss if and only if unstable writes were not committed.
    #[test]
    fn only_uncommitted_writes_can_be_lost() {
        let stability = NfsStability::default();
        stability.on_write(1, true);
        let mark = stability.before_commit();
        stability.on_commit(1, mark);
        stability.on_write(2, true);
        assert_eq!(
            stability.losses(),
            0,
            "everything was committed before the restart"
        );
        stability.on_write(2, false);
        let mark = stability.before_commit();
        stability.on_write(2, true);
        stability.on_commit(2, mark);
        stability.on_write(3, false);
        assert_eq!(
            stability.losses(),
            1,
            "a write after the COMMIT was sent isn't covered by it"
        );
        stability.on_commit(4, stability.before_commit());
        assert_eq!(stability.losses(), 1, "stable writes are not lost");
        stability.on_write(4, true);
        stability.on_commit(5, stability.before_commit());
        assert_eq!(
            stability.losses(),
            2,
            "the COMMIT's own verifier shows the loss"
        );
    }
}
