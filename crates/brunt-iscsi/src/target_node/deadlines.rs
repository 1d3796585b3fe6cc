//! When each connection of a worker has to be called even if nothing arrives for it: for keep-alives, delayed devices,
//! and releasing memory.
//!
//! Most deadlines move further into the future with each request and never pass. Therefore, setting one only updates
//! a lower bound of the earliest deadline, which costs the same with one connection as with a thousand. Once the
//! bound has passed, all deadlines are compared, eight bytes per connection.

use brunt_core::Nanos;

/// The deadlines of connections, by slot.
#[derive(Debug)]
pub(super) struct Deadlines {
    each: Vec<Nanos>,
    /// No deadline is earlier than this.
    earliest: Nanos,
}

impl Deadlines {
    pub fn new() -> Deadlines {
        Deadlines {
            each: Vec::new(),
            earliest: Nanos::MAX,
        }
    }

    /// Sets a slot's deadline; `Nanos::MAX` removes it.
    #[inline]
    pub fn set(&mut self, slot: u32, deadline: Nanos) {
        let slot = slot as usize;
        if self.each.len() <= slot {
            self.each.resize(slot + 1, Nanos::MAX);
        }
        self.each[slot] = deadline;
        self.earliest = self.earliest.min(deadline);
    }

    /// A time not later than the earliest deadline.
    #[inline]
    pub fn earliest(&self) -> Nanos {
        self.earliest
    }

    /// Calls `due` for each slot whose deadline has been reached, and removes these deadlines.
    #[inline]
    pub fn take_due(&mut self, now: Nanos, due: impl FnMut(u32)) {
        if now >= self.earliest {
            self.compare(now, due);
        }
    }

    #[cold]
    fn compare(&mut self, now: Nanos, mut due: impl FnMut(u32)) {
        self.earliest = Nanos::MAX;
        for (slot, deadline) in self.each.iter_mut().enumerate() {
            if *deadline <= now {
                *deadline = Nanos::MAX;
                due(slot as u32);
            }
            self.earliest = self.earliest.min(*deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deadline_is_due_once_and_a_later_one_replaces_it() {
        let mut deadlines = Deadlines::new();
        let due = |deadlines: &mut Deadlines, now| {
            let mut slots = Vec::new();
            deadlines.take_due(Nanos(now), |slot| slots.push(slot));
            slots
        };
        for (slot, deadline) in [(2, 30), (0, 10), (1, 20)] {
            deadlines.set(slot, Nanos(deadline));
        }
        assert_eq!(deadlines.earliest(), Nanos(10));
        deadlines.set(0, Nanos(40));
        assert!(deadlines.earliest() <= Nanos(20));
        assert_eq!(due(&mut deadlines, 19), [0; 0]);
        assert_eq!(deadlines.earliest(), Nanos(20));
        assert_eq!(due(&mut deadlines, 30), [1, 2]);
        assert_eq!(due(&mut deadlines, 30), [0; 0]);
        deadlines.set(0, Nanos::MAX);
        assert_eq!(due(&mut deadlines, 50), [0; 0]);
        assert_eq!(deadlines.earliest(), Nanos::MAX);
        deadlines.set(1, Nanos(0));
        assert_eq!(
            (deadlines.earliest(), due(&mut deadlines, 50)),
            (Nanos(0), vec![1])
        );
    }
}
