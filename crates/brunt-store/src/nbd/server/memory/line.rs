//! The line of connections that wait for memory, without locks, clocks or I/O.
//!
//! - Clients that have shown that they take and send data go before others, and of equals, those that hold none of the
//!   shared memory before those that hold some.
//! - A connection may be passed [`PASSED_MAX`] times; after that, newcomers stay behind it.
//! - Of equals, the one that has waited longest and the newcomer take turns. With the oldest only, a newcomer would wait
//!   for each of a hundred stuck clients to get memory and to be closed.
//!
//! The one rule: the first of the line always gets every second grant at least, so that each connection gets its turn.

use std::collections::VecDeque;

/// How often a connection in line may be passed.
const PASSED_MAX: u32 = 64;

/// A connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub id: u64,
    /// The bytes it needs.
    pub bytes: usize,
    /// Its client has taken and sent data.
    pub is_proven: bool,
    /// It has some of the shared memory.
    pub is_holder: bool,
}

impl Waiting {
    /// Lower ranks go first.
    fn rank(&self) -> (bool, bool) {
        (!self.is_proven, self.is_holder)
    }
}

#[derive(Debug)]
struct Place {
    waiting: Waiting,
    /// How often it was passed.
    passed: u32,
}

/// The line; see the module.
#[derive(Debug, Default)]
pub(super) struct Line {
    places: VecDeque<Place>,
    /// Whether the next grant is the newcomer's.
    newest_next: bool,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds a connection, or changes what a waiting one needs; returns whether it is new in line.
    pub fn enter(&mut self, new: Waiting) -> bool {
        if let Some(place) = self.find(new.id) {
            self.places[place].waiting.bytes = new.bytes;
            return false;
        }
        let mut index = self.places.len();
        while let Some(before) = index.checked_sub(1)
            && new.rank() < self.places[before].waiting.rank()
            && self.places[before].passed < PASSED_MAX
        {
            self.places[before].passed += 1;
            index = before;
        }
        let place = Place {
            waiting: new,
            passed: 0,
        };
        self.places.insert(index, place);
        true
    }

    /// The connection that gets memory next.
    pub fn next(&self) -> Option<&Waiting> {
        let first = &self.places.front()?.waiting;
        if !self.newest_next {
            return Some(first);
        }
        let equals = self.places.iter().map(|place| &place.waiting);
        equals
            .take_while(|waiting| waiting.rank() == first.rank())
            .last()
    }

    /// The next connection got its memory.
    pub fn grant(&mut self) {
        if let Some(id) = self.next().map(|next| next.id) {
            self.leave(id);
            self.newest_next = !self.newest_next;
        }
    }

    /// A connection no longer waits.
    pub fn leave(&mut self, id: u64) {
        if let Some(index) = self.find(id) {
            self.places.remove(index);
        }
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.places.iter().position(|place| place.waiting.id == id)
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

    /// The order in which these get memory if no one else comes.
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
        for grants in 0..2 {
            let mut line = Line::default();
            (0..100).for_each(|id| assert!(line.enter(waiting(id, false, false))));
            (0..grants).for_each(|_| line.grant());
            line.enter(waiting(1000, false, false));
            assert!(order(line)[..2].contains(&1000));
        }
    }

    /// However many come later, each connection gets its turn.
    #[test]
    fn no_connection_is_passed_forever() {
        for (is_proven, is_holder) in [(false, true), (false, false), (true, true)] {
            let mut line = Line::default();
            line.enter(waiting(0, is_proven, is_holder));
            let mut grants = 0;
            for id in 1.. {
                line.enter(waiting(id, true, false));
                line.enter(waiting(id + 1_000_000, true, false));
                if line.next().unwrap().id == 0 {
                    break;
                }
                line.grant();
                grants += 1;
            }
            assert!(grants <= 2 * PASSED_MAX, "{grants}");
        }
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
