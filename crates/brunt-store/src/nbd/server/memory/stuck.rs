//! Chooses the stuck connection that gives way to one waiting for memory, without locks, clocks or I/O.
//!
//! The one rule: a connection is closed only if it holds memory that another connection needs and that isn't being
//! freed already, and only if its client has made no progress for the entire time allowed.

use std::time::Duration;

use brunt_core::Nanos;

/// A closed connection has this long to free its memory before others are closed in its place.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// A connection's memory and state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    /// Bytes of shared memory that it holds.
    pub bytes: usize,
    /// The time since which it has been waiting for its client without any progress; `None` if it isn't waiting.
    pub stuck_since: Option<Nanos>,
    /// When it was closed, if it was.
    pub closed_at: Option<Nanos>,
}

/// The index of the connection to close so that `missing_bytes` become free: of those stuck for at least `stuck_after`,
/// the one that holds the most memory, so that few are closed; among equals, the one stuck for the longest time.
pub(super) fn to_close(
    holdings: impl Iterator<Item = Holding> + Clone,
    missing_bytes: usize,
    stuck_after: Duration,
    now: Nanos,
) -> Option<usize> {
    let is_closing = |holding: &Holding| {
        holding
            .closed_at
            .is_some_and(|at| now.since(at) < CLOSING_TIME)
    };
    let closing = holdings.clone().filter(is_closing);
    let coming_bytes: usize = closing.map(|holding| holding.bytes).sum();
    if missing_bytes <= coming_bytes {
        return None;
    }
    let stuck = holdings.enumerate().filter_map(|(index, holding)| {
        let since = holding.stuck_since?;
        let gives_way =
            holding.bytes > 0 && holding.closed_at.is_none() && now.since(since) >= stuck_after;
        gives_way.then_some((index, holding.bytes, since))
    });
    stuck
        .max_by_key(|(_, bytes, since)| (*bytes, std::cmp::Reverse(*since)))
        .map(|(index, _, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(100_000_000_000);

    /// Checks which connection is chosen; each entry has its bytes, milliseconds since it got stuck, and milliseconds
    /// since it was closed.
    fn check(
        holdings: &[(usize, Option<u64>, Option<u64>)],
        missing_bytes: usize,
        expected: Option<usize>,
    ) {
        let ago = |ms: u64| Nanos(NOW.0 - ms * 1_000_000);
        let all = holdings.iter().map(|(bytes, stuck, closed)| Holding {
            bytes: *bytes,
            stuck_since: stuck.map(ago),
            closed_at: closed.map(ago),
        });
        let found = to_close(all, missing_bytes, Duration::from_secs(2), NOW);
        assert_eq!(found, expected, "{holdings:?}, {missing_bytes} missing");
    }

    #[test]
    fn the_one_that_holds_most_gives_way() {
        check(&[], 1, None);
        let all = [(10, Some(9000), None), (30, Some(2500), None)];
        check(&all, 1, Some(1));
        let equals = [(30, Some(2500), None), (30, Some(9000), None)];
        check(&equals, 1, Some(1));
    }

    #[test]
    fn only_stuck_connections_that_hold_memory_give_way() {
        check(&[(10, Some(1999), None), (30, None, None)], 1, None);
        check(&[(10, Some(2000), None), (30, None, None)], 1, Some(0));
        check(&[(0, Some(9000), None)], 1, None);
        check(&[(10, Some(9000), None)], 0, None);
    }

    #[test]
    fn memory_that_is_being_freed_is_not_taken_twice() {
        let closing = |ms| [(10, Some(9000), Some(ms)), (5, Some(9000), None)];
        check(&closing(10), 10, None);
        check(&closing(10), 11, Some(1));
        // The closing connection has had enough time to free its memory, so another one is closed.
        check(&closing(1000), 10, Some(1));
        check(&[(10, Some(9000), Some(1000))], 10, None);
    }
}
