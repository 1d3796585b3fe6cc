//! Counters of connections. Each connection has its own counters and adds them to the server's once per turn of its
//! loop, so that no request touches memory that other connections write to.
//!
//! The one rule: no counts are lost when a connection ends: dropping the tally adds the remaining ones.

use std::sync::atomic::{AtomicU64, Ordering};

use super::NbdServerStats;

/// The sums over all connections.
#[derive(Debug, Default)]
pub(super) struct Totals {
    requests: AtomicU64,
    errors: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Totals {
    /// The current sums; connections are counted elsewhere.
    pub fn sum(&self) -> NbdServerStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NbdServerStats {
            requests: get(&self.requests),
            errors: get(&self.errors),
            sent_bytes: get(&self.sent_bytes),
            received_bytes: get(&self.received_bytes),
            ..NbdServerStats::default()
        }
    }
}

/// A connection's counts since they were last added.
pub(super) struct Tally<'a> {
    totals: &'a Totals,
    pub requests: u64,
    pub errors: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl Tally<'_> {
    pub fn new(totals: &Totals) -> Tally<'_> {
        Tally {
            totals,
            requests: 0,
            errors: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Adds the counts to the sums.
    pub fn add(&mut self) {
        // Without requests, there are no errors or bytes to add.
        if self.requests == 0 {
            return;
        }
        let Totals {
            requests,
            errors,
            sent_bytes,
            received_bytes,
        } = self.totals;
        for (sum, figure) in [
            (requests, &mut self.requests),
            (errors, &mut self.errors),
            (sent_bytes, &mut self.sent_bytes),
            (received_bytes, &mut self.received_bytes),
        ] {
            let figure = std::mem::take(figure);
            if figure > 0 {
                sum.fetch_add(figure, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.add();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums change once per turn rather than with each request, and a connection's last counts are not lost.
    #[test]
    fn counts_are_added_once_per_turn_and_none_are_lost() {
        let totals = Totals::default();
        let mut tally = Tally::new(&totals);
        (tally.requests, tally.sent_bytes) = (3, 4096);
        assert_eq!(totals.sum(), NbdServerStats::default());
        tally.add();
        let expected = NbdServerStats {
            requests: 3,
            sent_bytes: 4096,
            ..NbdServerStats::default()
        };
        assert_eq!(totals.sum(), expected);
        tally.add();
        (tally.requests, tally.errors) = (1, 1);
        drop(tally);
        assert_eq!(
            totals.sum(),
            NbdServerStats {
                requests: 4,
                errors: 1,
                ..expected
            }
        );
    }
}
