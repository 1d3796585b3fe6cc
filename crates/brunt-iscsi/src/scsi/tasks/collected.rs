//! Executes commands whose Data-Out is complete. Called by the transport once it has collected the data that
//! [`Begin::Wants`](crate::scsi::Begin::Wants) requested. The one rule: a list from an initiator is checked completely
//! before any of it is executed.

use brunt_block::{Buf, Inline};
use brunt_wire::scsi::cdb::{Cdb, Transfer, op};
use brunt_wire::scsi::unmap;

use super::TaskSet;
use super::task::{CollectedPlan, CommandPlan, LockMode, TaskStage, TaskWork};
use crate::scsi::command::Refused;
use crate::scsi::jobs::{
    Against, ByteRange, How, Job, ReadModifyWrite, Verify, WriteAndVerify, WriteOnce,
};
use crate::scsi::lun::{self, gate};
use crate::scsi::{CommandOutcome, DataIn, TaskAttribute, sanitize};

impl TaskSet {
    /// Runs a command with the data that it wanted, `data[..got]`. Returns the outcome if it is already available.
    ///
    /// If the command was aborted in the meantime, this does nothing; the outcome comes from [`TaskSet::poll`].
    ///
    /// # Panics
    /// The command isn't waiting for data, or `got` exceeds what it wanted or the length of `data`.
    pub fn start(&mut self, tag: u64, mut data: Buf, got: u32) -> Option<CommandOutcome> {
        let slot = *self.by_tag.get(&tag)?;
        let task = self.tasks[slot].as_mut().expect("the tag has a task");
        assert!(
            task.stage == TaskStage::Collecting && got <= task.wants,
            "the task waits for this data"
        );
        if !data.is_empty() || got > 0 {
            data.set_len(got as usize);
        }
        let block_bytes = self.unit.block_bytes();
        match task.work {
            TaskWork::Write { .. } => {
                // Fewer bytes than the CDB describes: whole blocks are written (and a residual is reported); a partial
                // block is an error.
                if !got.is_multiple_of(block_bytes) {
                    return Some(self.finish_now(slot, Err(Refused::DATA_LENGTH)));
                }
                task.range.len = u64::from(got);
                let range = task.range;
                let runs_now = self.ordered == 0 && task.attribute != TaskAttribute::Ordered;
                if got == 0 {
                    return Some(self.finish_now(slot, Ok(DataIn::None)));
                }
                if runs_now && !matches!(self.unit.inline(), Inline::No) {
                    let free = task.has_lock || self.unit.locks.is_free(range.offset, range.len);
                    if free && (task.has_lock || self.lock(slot)) {
                        if let Inline::Memory(memory) = self.unit.inline() {
                            memory.write(range.offset, &data);
                        }
                        return Some(self.finish_now(slot, Ok(DataIn::None)));
                    }
                }
                self.tasks[slot].as_mut().expect("the task exists").data = data;
            }
            TaskWork::Collect(cdb) => match self.job_for(&cdb, slot, data) {
                Ok(CollectedPlan::Answer(answer)) => {
                    return Some(self.finish_now(slot, Ok(answer)));
                }
                Err(refused) => return Some(self.finish_now(slot, Err(refused))),
                Ok(CollectedPlan::Job { job, range, lock }) => {
                    let task = self.tasks[slot].as_mut().expect("the task exists");
                    task.work = TaskWork::Job(job);
                    task.range = range;
                    task.lock = lock;
                }
            },
            TaskWork::Read | TaskWork::Job(_) => unreachable!("these commands collect no data"),
        }
        self.tasks[slot].as_mut().expect("the task exists").stage = TaskStage::Parked;
        self.run(slot);
        None
    }

    /// Runs a [`Begin::Wants`](crate::scsi::Begin::Wants) command with `direct` set whose data is already in the
    /// medium.
    ///
    /// # Panics
    /// The command isn't waiting for data that was placed directly, or `got` exceeds what it wanted.
    pub fn start_direct(&mut self, tag: u64, got: u32) -> Option<CommandOutcome> {
        let slot = *self.by_tag.get(&tag)?;
        let task = self.tasks[slot].as_ref().expect("the tag has a task");
        assert!(
            task.has_lock && got <= task.wants,
            "the task's data was placed directly"
        );
        if let Inline::Memory(memory) = self.unit.inline() {
            memory.mark(task.range.offset, u64::from(got));
        }
        Some(self.finish_now(slot, Ok(DataIn::None)))
    }

    /// Decides what to do with the data that a command collected: a parameter list, or data to compare or write.
    fn job_for(&mut self, cdb: &Cdb, slot: usize, data: Buf) -> Result<CollectedPlan, Refused> {
        match cdb[0] {
            op::MODE_SELECT_6 | op::MODE_SELECT_10 => {
                let flush = self.unit.mode_select(&self.nexus.nexus, cdb, &data)?;
                Ok(self.answer_after_flush(flush))
            }
            op::PERSISTENT_RESERVE_OUT => {
                self.unit
                    .persistent_reserve_out(&self.nexus.nexus, cdb, &data)?;
                Ok(CollectedPlan::Answer(DataIn::None))
            }
            op::MAINTENANCE_OUT => {
                self.unit.set_groups(&self.nexus.nexus, &data)?;
                Ok(CollectedPlan::Answer(DataIn::None))
            }
            op::UNMAP => self.unmap(&data),
            op::EXTENDED_COPY => self.copy(&data),
            op::SANITIZE => {
                let method = sanitize::parse_overwrite(&data, self.unit.block_bytes())?;
                match self.sanitize(cdb, method)? {
                    CommandPlan::Answer(data) => Ok(CollectedPlan::Answer(data)),
                    CommandPlan::Job { job, range, lock } => {
                        Ok(CollectedPlan::Job { job, range, lock })
                    }
                    CommandPlan::Collect { .. } => unreachable!("the data was collected"),
                }
            }
            _ => self.media_job(cdb, slot, data),
        }
    }

    /// The job of a command that compares or writes the blocks of its range.
    fn media_job(&mut self, cdb: &Cdb, slot: usize, data: Buf) -> Result<CollectedPlan, Refused> {
        let task = self.tasks[slot].as_ref().expect("the task exists");
        let (range, lock) = (task.range, task.lock);
        let force = self.unit.gate() & gate::FORCE != 0 || cdb[1] & 0x08 != 0;
        let whole = data.len() as u64 >= range.len;
        let ready = |job: Box<dyn Job>| Ok(CollectedPlan::Job { job, range, lock });
        match cdb[0] {
            op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => {
                ready(Box::new(self.verify(cdb, range, data)?))
            }
            op::WRITE_AND_VERIFY_10 | op::WRITE_AND_VERIFY_12 | op::WRITE_AND_VERIFY_16 => {
                let range = self.cut(range, &data)?;
                if range.len == 0 {
                    return Ok(CollectedPlan::Answer(DataIn::None));
                }
                let compare = Transfer::decode(cdb).byte_check == 1;
                let job = Box::new(WriteAndVerify {
                    range,
                    data: Some(data),
                    compare,
                    verify: None,
                });
                Ok(CollectedPlan::Job { job, range, lock })
            }
            op::ORWRITE_16 => {
                if !whole {
                    return Err(Refused::DATA_MISMATCH);
                }
                ready(Box::new(ReadModifyWrite {
                    range,
                    data,
                    compare: false,
                    force,
                    at: 0,
                    writing: false,
                }))
            }
            op::COMPARE_AND_WRITE => {
                if data.len() as u64 != 2 * range.len {
                    return Err(Refused::DATA_MISMATCH);
                }
                ready(Box::new(ReadModifyWrite {
                    range,
                    data,
                    compare: true,
                    force,
                    at: 0,
                    writing: false,
                }))
            }
            op::WRITE_ATOMIC_16 if whole => ready(Box::new(WriteOnce {
                range,
                data: Some(data),
                force,
            })),
            op::WRITE_SAME_10 | op::WRITE_SAME_16
                if data.len() == self.unit.block_bytes() as usize =>
            {
                let zeros = data.iter().all(|byte| *byte == 0);
                let how = match (zeros, cdb[1] & 0x08 != 0) {
                    // Unmapped blocks read as zeros, so unmapping can replace only the writing of zeros.
                    (true, true) => How::Unmap,
                    (true, false) => How::Zeroes,
                    (false, _) => How::Write,
                };
                ready(self.fill(vec![range], how, data))
            }
            _ => Err(Refused::DATA_MISMATCH),
        }
    }

    /// The job of VERIFY, whose data is one block to compare with every block, or data for the whole range.
    fn verify(&self, cdb: &Cdb, range: ByteRange, data: Buf) -> Result<Verify, Refused> {
        let block = Transfer::decode(cdb).byte_check == 3;
        let against = if block && data.len() == self.unit.block_bytes() as usize {
            Against::Block(data)
        } else if block || (data.len() as u64) < range.len {
            return Err(Refused::DATA_MISMATCH);
        } else {
            Against::Data(data)
        };
        Ok(Verify {
            range,
            against,
            at: 0,
        })
    }

    /// The part of a range that is covered by the data; a partial block is an error.
    fn cut(&self, range: ByteRange, data: &[u8]) -> Result<ByteRange, Refused> {
        if !data.len().is_multiple_of(self.unit.block_bytes() as usize) {
            return Err(Refused::DATA_LENGTH);
        }
        Ok(ByteRange {
            len: range.len.min(data.len() as u64),
            ..range
        })
    }

    fn answer_after_flush(&self, flush: bool) -> CollectedPlan {
        match self.flush_all() {
            CommandPlan::Job { job, range, lock } if flush => {
                CollectedPlan::Job { job, range, lock }
            }
            _ => CollectedPlan::Answer(DataIn::None),
        }
    }

    fn unmap(&self, list: &[u8]) -> Result<CollectedPlan, Refused> {
        let extents = unmap::parse(list).map_err(|_| Refused::LIST_LENGTH)?;
        let mut ranges = Vec::new();
        for (index, extent) in extents.enumerate() {
            if index as u32 >= lun::UNMAP_DESCRIPTORS_MAX {
                return Err(Refused::parameter(2));
            }
            let range = self.checked(extent.lba, u64::from(extent.blocks))?;
            if range.len > 0 {
                ranges.push(range);
            }
        }
        let (Some(first), Some(last)) = (
            ranges.iter().map(|range| range.offset).min(),
            ranges.iter().map(|range| range.offset + range.len).max(),
        ) else {
            return Ok(CollectedPlan::Answer(DataIn::None));
        };
        let range = ByteRange {
            offset: first,
            len: last - first,
        };
        let job = self.fill(ranges, How::Unmap, Buf::empty());
        Ok(CollectedPlan::Job {
            job,
            range,
            lock: LockMode::Exclude,
        })
    }
}
