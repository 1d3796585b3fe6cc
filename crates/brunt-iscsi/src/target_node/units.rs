//! One connection's hand on all logical units of the target: which task set a LUN is, and what
//! iSCSI's task management functions are in SAM-5's words. The one rule: a tag goes back to the
//! task set it came from.

use std::sync::Arc;

use brunt_block::{DeviceError, Inline, Ring};
use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::code::task_management as tm;

use super::connection::{CommandBegun, DataOut, IsDone};
use crate::scsi::{Begin, CommandOutcome, LunMap, Nexus, Reset, TaskSet, TransportCommand};

/// The task sets of a connection.
pub struct Units {
    luns: Arc<LunMap>,
    /// By number, with the way into the medium itself.
    sets: Vec<Option<(TaskSet, Inline)>>,
}

impl Units {
    /// Opens every unit for `depth` commands at once.
    ///
    /// # Errors
    /// The number of the unit that does not open, and why.
    pub fn open(
        luns: &Arc<LunMap>,
        ring: &Ring,
        nexus: &Nexus,
        depth: u32,
    ) -> Result<Units, (u16, DeviceError)> {
        let mut sets = Vec::new();
        for (lun, unit) in luns.iter() {
            let set = TaskSet::open(unit, ring, nexus, depth).map_err(|source| (lun, source))?;
            sets.resize_with(usize::from(lun) + 1, || None);
            sets[usize::from(lun)] = Some((set, unit.backend().inline()));
        }
        Ok(Units { luns: Arc::clone(luns), sets })
    }

    /// Whether there is such a unit.
    pub fn has(&self, lun: u16) -> bool {
        self.luns.get(lun).is_some()
    }

    /// Whether a unit's sense data goes out in descriptor format.
    pub fn wants_descriptor_sense(&self, lun: u16) -> bool {
        self.luns.get(lun).is_some_and(|unit| unit.wants_descriptor_sense())
    }

    #[inline]
    fn set(&mut self, lun: Option<u16>) -> Option<&mut TaskSet> {
        self.sets.get_mut(usize::from(lun?))?.as_mut().map(|(set, _)| set)
    }

    /// See [`TaskSet::begin`].
    #[inline]
    pub fn begin(&mut self, lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun {
        let Some(set) = self.set(lun) else {
            return CommandBegun::Done(self.luns.answer_unknown(&command));
        };
        match set.begin(&command) {
            Begin::Done(outcome) => CommandBegun::Done(outcome),
            Begin::Pending => CommandBegun::Pending,
            Begin::Wants { len, direct } => CommandBegun::Wants { len, inline: direct },
        }
    }

    /// See [`TaskSet::start`].
    pub fn start(&mut self, lun: Option<u16>, tag: u64, data: DataOut) -> Option<CommandOutcome> {
        let set = self.set(lun).expect("what was begun has a unit");
        match data {
            DataOut::Buf(buf, got) => set.start(tag, buf, got),
            DataOut::Inline(got) => set.start_direct(tag, got),
        }
    }

    /// Gives up one task.
    pub fn abort(&mut self, lun: Option<u16>, tag: u64) {
        if let Some(set) = self.set(lun) {
            set.abort_task(tag);
        }
    }

    /// Carries out a function on one unit, or on all.
    pub fn manage(&mut self, function: u8, lun: Option<u16>) -> Vec<IsDone> {
        let meant = |index: usize| lun.is_none_or(|lun| usize::from(lun) == index);
        let mut pending: Vec<IsDone> = Vec::new();
        for (_, slot) in self.sets.iter_mut().enumerate().filter(|(index, _)| meant(*index)) {
            let Some((set, _)) = slot else { continue };
            let ticket = match function {
                tm::ABORT_TASK_SET => set.abort_task_set(),
                tm::CLEAR_TASK_SET => set.clear_task_set(),
                tm::LOGICAL_UNIT_RESET => set.reset(Reset::LogicalUnit),
                _ => set.reset(Reset::Target),
            };
            pending.push(Box::new(move || ticket.is_done()));
        }
        pending
    }

    /// The way into a unit's medium.
    pub fn inline(&self, lun: u16) -> &Inline {
        match self.sets.get(usize::from(lun)) {
            Some(Some((_, inline))) => inline,
            _ => &Inline::No,
        }
    }

    /// See [`TaskSet::submit`].
    pub fn submit(&mut self) {
        for (set, _) in self.sets.iter_mut().flatten() {
            set.submit();
        }
    }

    /// See [`TaskSet::poll`].
    pub fn poll(&mut self, done: &mut Vec<CommandOutcome>) {
        for (set, _) in self.sets.iter_mut().flatten() {
            set.poll(done);
        }
    }

    /// See [`TaskSet::deadline`].
    pub fn deadline(&self) -> Nanos {
        self.sets.iter().flatten().map(|(set, _)| set.deadline()).min().unwrap_or(Nanos::MAX)
    }
}
