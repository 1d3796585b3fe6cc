//! Whether those who carry out orders are there, and the same as before.
//!
//! The rule: who was killed and started again has begun another life, in which nothing that was ordered before counts.

use brunt_core::Nanos;

/// How somebody is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It stands still: what it knows is there when it goes on, and orders are answered then.
    Frozen,
    /// It was killed: what it knew (armed faults, failed members) went with it.
    Dead,
}

/// Whether those are there who carry orders out, and whether they are the same as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// How often they were started anew.
    pub life: u32,
    /// How they are away, and since when.
    pub away: Option<(Absence, Nanos)>,
    /// When the life before this one ended.
    pub last_end: Option<Nanos>,
}

impl ProcessState {
    /// They go away by this at `now`; false, and nothing changed, when they are away already.
    pub(crate) fn go_away(&mut self, by: Absence, now: Nanos) -> bool {
        let are_there = self.away.is_none();
        if are_there {
            self.away = Some((by, now));
        }
        are_there
    }

    /// They are there again, the same as before.
    pub(crate) fn come_back(&mut self) {
        self.away = None;
    }

    /// They were started again at `now`.
    pub(crate) fn begin_anew(&mut self, now: Nanos) {
        let ended = self.away.take().map_or(now, |(_, since)| since);
        (self.life, self.last_end) = (self.life + 1, Some(ended));
    }
}
