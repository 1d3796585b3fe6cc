//! Whether a process that carries out commands is running, and whether it has restarted in the meantime.
//!
//! The rule: a process that was killed and restarted begins another life; commands carried out in an earlier life no
//! longer have an effect.

use brunt_core::Nanos;

/// Why a process is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Frozen: it keeps its state and answers commands once it resumes.
    Frozen,
    /// Killed: its state (armed faults, failed members) is lost.
    Dead,
}

/// Whether a process is running, and in which of its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// Number of restarts.
    pub life: u32,
    /// Why the process is away, and since when; `None` while it is running.
    pub away: Option<(Absence, Nanos)>,
    /// When the previous life ended.
    pub last_end: Option<Nanos>,
}

impl ProcessState {
    /// Marks the process as away at `now`. Changes nothing and returns false if it is already away.
    pub(crate) fn mark_away(&mut self, by: Absence, now: Nanos) -> bool {
        let are_there = self.away.is_none();
        if are_there {
            self.away = Some((by, now));
        }
        are_there
    }

    /// Marks the process as running again, in the same life.
    pub(crate) fn mark_running(&mut self) {
        self.away = None;
    }

    /// Marks the process as restarted at `now`.
    pub(crate) fn begin_new_life(&mut self, now: Nanos) {
        let ended = self.away.take().map_or(now, |(_, since)| since);
        (self.life, self.last_end) = (self.life + 1, Some(ended));
    }
}
