//! One connection's access to all logical units of the target: maps LUNs to task sets, and iSCSI's task management
//! functions to SAM-5's. The one rule: a tag goes back to the task set that it came from, even if its unit has left the
//! target.

use std::sync::Arc;

use brunt_block::{Inline, OpenError, Ring};
use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::code::task_management as tm;

use super::connection::{CommandBegun, DataOut, IsDone};
use crate::scsi::{Begin, CommandOutcome, LunMap, Nexus, Reset, TaskSet, TransportCommand};

/// The task sets of a connection.
pub struct Units {
    luns: Arc<LunMap>,
    ring: Ring,
    nexus: Nexus,
    depth: u32,
    /// Generation of the map when it was last read.
    generation: u64,
    /// Indexed by LUN.
    sets: Vec<Option<OpenUnit>>,
    /// Removed units: their commands run to completion, and new ones are not accepted.
    leaving: Vec<(u16, OpenUnit)>,
}

/// A task set, with direct access to its medium.
struct OpenUnit {
    tasks: TaskSet,
    inline: Inline,
}

impl Units {
    /// Opens every unit, for up to `depth` commands each.
    ///
    /// # Errors
    /// A unit can't be opened; contains the unit's LUN and the error.
    pub fn open(
        luns: &Arc<LunMap>,
        ring: &Ring,
        nexus: &Nexus,
        depth: u32,
    ) -> Result<Units, (u16, OpenError)> {
        let mut units = Units {
            luns: Arc::clone(luns),
            ring: ring.clone(),
            nexus: nexus.clone(),
            depth,
            generation: 0,
            sets: Vec::new(),
            leaving: Vec::new(),
        };
        units.follow()?;
        Ok(units)
    }

    /// Releases what the nexus has reserved, before its task sets close; see [`TaskSet::log_out`].
    pub fn log_out(&self, whole_session: bool) {
        let open = self.sets.iter().flatten();
        open.for_each(|unit| unit.tasks.log_out(whole_session));
    }

    /// Updates the units if any were added or removed. Call before each batch of commands.
    ///
    /// # Errors
    /// A unit can't be opened; contains the unit's LUN and the error.
    #[inline]
    pub fn follow(&mut self) -> Result<(), (u16, OpenError)> {
        if self.generation == self.luns.generation() {
            Ok(())
        } else {
            self.catch_up()
        }
    }

    #[cold]
    fn catch_up(&mut self) -> Result<(), (u16, OpenError)> {
        // Read the generation before the list: a change between the two is noticed next time.
        self.generation = self.luns.generation();
        let units = self.luns.units();
        for (number, slot) in self.sets.iter_mut().enumerate() {
            let Some(open) = slot else { continue };
            open.tasks.forget_others();
            let stays = units.iter().any(|(lun, unit)| {
                usize::from(*lun) == number && Arc::ptr_eq(unit, open.tasks.unit())
            });
            if !stays {
                self.leaving
                    .extend(slot.take().map(|open| (number as u16, open)));
            }
        }
        self.leaving
            .retain(|(_, open)| open.tasks.outstanding() > 0);
        for (lun, unit) in &units {
            let index = usize::from(*lun);
            if self.sets.len() <= index {
                self.sets.resize_with(index + 1, || None);
            }
            if self.sets[index].is_none() {
                let opened = TaskSet::open(unit, &self.ring, &self.nexus, self.depth);
                let tasks = opened.map_err(|source| (*lun, source))?;
                self.sets[index] = Some(OpenUnit {
                    tasks,
                    inline: unit.backend().inline(),
                });
            }
        }
        Ok(())
    }

    /// Whether this LUN exists.
    pub fn has(&self, lun: u16) -> bool {
        matches!(self.sets.get(usize::from(lun)), Some(Some(_)))
    }

    /// Whether a unit returns sense data in descriptor format.
    pub fn wants_descriptor_sense(&self, lun: u16) -> bool {
        let open = self.sets.get(usize::from(lun)).and_then(Option::as_ref);
        open.is_some_and(|open| open.tasks.unit().wants_descriptor_sense())
    }

    /// The task set that has a command.
    #[inline]
    fn set_of(&mut self, lun: Option<u16>, tag: u64) -> Option<&mut TaskSet> {
        if !self.leaving.is_empty()
            && let Some(index) = self
                .leaving
                .iter()
                .position(|(_, open)| open.tasks.has(tag))
        {
            return Some(&mut self.leaving[index].1.tasks);
        }
        self.set(lun)
    }

    #[inline]
    fn set(&mut self, lun: Option<u16>) -> Option<&mut TaskSet> {
        self.sets
            .get_mut(usize::from(lun?))?
            .as_mut()
            .map(|open| &mut open.tasks)
    }

    /// See [`TaskSet::begin`].
    #[inline]
    pub fn begin(&mut self, lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun {
        let Some(set) = self.set(lun) else {
            return CommandBegun::Done(self.luns.answer_unknown(self.nexus.id, &command));
        };
        match set.begin(&command) {
            Begin::Done(outcome) => CommandBegun::Done(outcome),
            Begin::Pending => CommandBegun::Pending,
            Begin::Wants { len, direct } => CommandBegun::Wants {
                len,
                inline: direct,
            },
        }
    }

    /// See [`TaskSet::start`].
    pub fn start(&mut self, lun: Option<u16>, tag: u64, data: DataOut) -> Option<CommandOutcome> {
        let set = self.set_of(lun, tag).expect("tasks have a unit");
        match data {
            DataOut::Buf(buf, got) => set.start(tag, buf, got),
            DataOut::Inline(got) => set.start_direct(tag, got),
        }
    }

    /// Aborts one task.
    pub fn abort(&mut self, lun: Option<u16>, tag: u64) {
        if let Some(set) = self.set_of(lun, tag) {
            set.abort_task(tag);
        }
    }

    /// Performs a function on one unit or on all units; a removed unit counts under its former number.
    pub fn manage(&mut self, function: u8, lun: Option<u16>) -> Vec<IsDone> {
        let numbers = self.sets.iter_mut().enumerate();
        let open = numbers.filter_map(|(number, slot)| Some((number as u16, slot.as_mut()?)));
        let leaving = self
            .leaving
            .iter_mut()
            .map(|(number, open)| (*number, open));
        let mut pending: Vec<IsDone> = Vec::new();
        for (_, open) in open
            .chain(leaving)
            .filter(|(number, _)| lun.is_none_or(|lun| lun == *number))
        {
            let set = &mut open.tasks;
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

    /// Direct access to the medium of the unit that has the command with this tag.
    pub fn inline(&self, lun: u16, tag: u64) -> &Inline {
        if let Some((_, open)) = self.leaving.iter().find(|(_, open)| open.tasks.has(tag)) {
            return &open.inline;
        }
        match self.sets.get(usize::from(lun)) {
            Some(Some(open)) => &open.inline,
            _ => &Inline::No,
        }
    }

    /// Number of commands begun but not answered yet, on all units.
    pub fn outstanding(&self) -> usize {
        let leaving = self.leaving.iter().map(|(_, open)| open);
        let all = self.sets.iter().flatten().chain(leaving);
        all.map(|open| open.tasks.outstanding() as usize).sum()
    }

    /// See [`TaskSet::submit`].
    pub fn submit(&mut self) {
        self.all_mut().for_each(TaskSet::submit);
    }

    /// See [`TaskSet::poll`].
    pub fn poll(&mut self, done: &mut Vec<CommandOutcome>) {
        self.all_mut().for_each(|set| set.poll(done));
        self.leaving
            .retain(|(_, open)| open.tasks.outstanding() > 0);
    }

    /// See [`TaskSet::deadline`].
    pub fn deadline(&self) -> Nanos {
        let leaving = self.leaving.iter().map(|(_, open)| open);
        let all = self.sets.iter().flatten().chain(leaving);
        all.map(|open| open.tasks.deadline())
            .min()
            .unwrap_or(Nanos::MAX)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut TaskSet> {
        let leaving = self.leaving.iter_mut().map(|(_, open)| open);
        self.sets
            .iter_mut()
            .flatten()
            .chain(leaving)
            .map(|open| &mut open.tasks)
    }
}
