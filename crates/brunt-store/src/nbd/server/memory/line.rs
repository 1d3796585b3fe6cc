//! The line of connections waiting for memory, without locks, clocks or I/O.
//!
//! - Clients that have shown that they take and send data go before others; among equals, those that hold none of the
//!   shared memory go before those that hold some.
//! - Among these equals, the one that has waited longest and the newest one take turns. If only the oldest were served,
//!   a newcomer would wait for each of a hundred stuck clients to get memory and to be closed.
//!
//! The one rule: every [`OLDEST_EVERY`]th grant goes to the connection that has waited longest, whatever its rank, so
//! that each connection gets its turn.

/// One in this many grants goes to the connection that has waited longest.
const OLDEST_EVERY: u64 = 8;

/// A waiting connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub id: u64,
    /// The bytes that it needs.
    pub bytes: usize,
    /// Whether its client has shown that it takes and sends data.
    pub is_proven: bool,
    /// Whether it holds some of the shared memory.
    pub is_holder: bool,
}

impl Waiting {
    /// The rank of a waiting connection; lower ranks go first.
    fn rank(&self) -> (bool, bool) {
        (!self.is_proven, self.is_holder)
    }
}

/// The line of waiting connections; see the module's docs.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Oldest first.
    all: Vec<Waiting>,
    grants: u64,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a connection or updates a waiting one's needs; returns whether it is new in line.
    pub fn enter(&mut self, new: Waiting) -> bool {
        let known = self.all.iter_mut().find(|waiting| waiting.id == new.id);
        if let Some(known) = known {
            known.bytes = new.bytes;
            return false;
        }
        self.all.push(new);
        true
    }

    /// The connection that gets memory next.
    pub fn next(&self) -> Option<&Waiting> {
        // This replaces a turn that would go to the oldest connection of the best rank.
        if self.grants % OLDEST_EVERY == OLDEST_EVERY - 2 {
            return self.all.first();
        }
        let best = self.all.iter().map(Waiting::rank).min()?;
        let mut equals = self.all.iter().filter(|waiting| waiting.rank() == best);
        match self.grants.is_multiple_of(2) {
            true => equals.next(),
            false => equals.next_back(),
        }
    }

    /// Records that the next connection got its memory.
    pub fn grant(&mut self) {
        if let Some(id) = self.next().map(|next| next.id) {
            self.leave(id);
            self.grants += 1;
        }
    }

    /// Removes a connection that no longer waits.
    pub fn leave(&mut self, id: u64) {
        self.all.retain(|waiting| waiting.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u64, is_proven: bool, is_holder: bool) -> Waiting {
        Waiting {
            id,
            bytes: 1,
            is_proven,
            is_holder,
        }
    }

    /// The order in which these get memory if no others arrive.
    fn order(mut line: Line) -> Vec<u64> {
        let next = |line: &mut Line| {
            let id = line.next()?.id;
            line.grant();
            Some(id)
        };
        std::iter::from_fn(|| next(&mut line)).collect()
    }

    fn check(entries: &[(u64, bool, bool)], expected: &[u64]) {
        let mut line = Line::default();
        for (id, is_proven, is_holder) in entries {
            assert!(line.enter(waiting(*id, *is_proven, *is_holder)));
        }
        assert_eq!(order(line), expected, "{entries:?}");
    }

    #[test]
    fn the_oldest_and_the_newest_of_equals_take_turns() {
        check(&[], &[]);
        let equals = [1, 2, 3, 4, 5].map(|id| (id, false, false));
        check(&equals, &[1, 5, 2, 4, 3]);
    }

    #[test]
    fn proven_clients_and_those_without_memory_go_first() {
        let all = [
            (1, false, true),
            (2, false, false),
            (3, true, true),
            (4, true, false),
        ];
        check(&all, &[4, 3, 2, 1]);
    }

    /// A newcomer behind a hundred others is second at the latest.
    #[test]
    fn a_newcomer_does_not_wait_for_everyone() {
        for grants in 0..2 * OLDEST_EVERY {
            for is_proven in [false, true] {
                let mut line = Line::default();
                // Connections without memory go before those that hold some.
                (0..20).for_each(|id| assert!(line.enter(waiting(id, false, true))));
                (20..120).for_each(|id| assert!(line.enter(waiting(id, false, false))));
                (0..grants).for_each(|_| line.grant());
                line.enter(waiting(1000, is_proven, false));
                assert!(order(line)[..2].contains(&1000), "{grants} {is_proven}");
            }
        }
    }

    /// However many arrive later, each connection gets its turn.
    #[test]
    fn no_connection_is_passed_forever() {
        let mut line = Line::default();
        line.enter(waiting(0, false, true));
        for id in 1..=OLDEST_EVERY {
            line.enter(waiting(2 * id, true, false));
            line.enter(waiting(2 * id + 1, true, false));
            line.grant();
        }
        assert!(!order(line).contains(&0));
    }

    #[test]
    fn a_waiting_connection_keeps_its_place() {
        let mut line = Line::default();
        line.enter(waiting(1, false, false));
        line.enter(waiting(2, false, false));
        let more = Waiting {
            bytes: 7,
            ..waiting(1, true, true)
        };
        assert!(!line.enter(more));
        assert_eq!((line.len(), line.next().unwrap().bytes), (2, 7));
        line.leave(1);
        line.leave(1);
        assert_eq!(line.next().unwrap().id, 2);
        line.leave(2);
        assert!(line.is_empty() && line.next().is_none());
    }
}
