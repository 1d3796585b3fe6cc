//! Determines what commands other than READ and WRITE need before they can be answered: nothing, Data-Out, or a job.
//! Called once for each admitted command. The one rule: a plan changes nothing that a refusal would have to undo.

use std::sync::Arc;

use brunt_block::Buf;
use brunt_wire::scsi::cdb::{self, Cdb, Transfer, op};

use super::TaskSet;
use super::task::{CommandPlan, LockMode};
use crate::scsi::DataIn;
use crate::scsi::command::Refused;
use crate::scsi::jobs::{Against, AwaitSanitize, ByteRange, Fill, Flush, How, Verify};
use crate::scsi::lun::{self, gate};
use crate::scsi::sanitize::{self, Method};

impl TaskSet {
    /// Determines what a command needs before it can be answered. (Long because it is a table: a few lines for each
    /// command; more complex commands have their own functions.)
    pub(super) fn plan(&mut self, cdb: &Cdb, data_out_len: u32) -> Result<CommandPlan, Refused> {
        let nowhere = ByteRange { offset: 0, len: 0 };
        let parameters = |len: u32| {
            if len > lun::parameter_bytes_max(cdb[0]) {
                return Err(Refused::LIST_LENGTH);
            }
            Ok(CommandPlan::Collect {
                len,
                range: nowhere,
                lock: LockMode::None,
            })
        };
        match cdb[0] {
            op::MODE_SELECT_6 | op::MODE_SELECT_10 => {
                // PF must be set; saving is not supported.
                if cdb[1] & 0x10 == 0 || cdb[1] & 0x01 != 0 {
                    return Err(Refused::field(1));
                }
                parameters(cdb::list_length(cdb))
            }
            op::PERSISTENT_RESERVE_OUT => parameters(cdb::be32(cdb, 5)),
            op::MAINTENANCE_OUT => parameters(cdb::be32(cdb, 6)),
            op::UNMAP => {
                // Anchored blocks are not supported.
                if cdb[1] & 0x01 != 0 {
                    return Err(Refused::field(1));
                }
                let len = cdb::list_length(cdb);
                if len == 0 {
                    return Ok(CommandPlan::Answer(DataIn::None));
                }
                parameters(len)
            }
            op::EXTENDED_COPY => {
                let len = cdb::list_length(cdb);
                if len == 0 {
                    return Ok(CommandPlan::Answer(DataIn::None));
                }
                parameters(len)
            }
            op::SANITIZE => self.plan_sanitize(cdb),
            op::START_STOP_UNIT => {
                let flush = self.unit.start_stop(&self.nexus.nexus, cdb)?;
                Ok(if flush {
                    self.flush_all()
                } else {
                    CommandPlan::Answer(DataIn::None)
                })
            }
            op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => {
                let transfer = Transfer::decode(cdb);
                let mut range = self.checked(transfer.lba, u64::from(transfer.blocks))?;
                if transfer.blocks == 0 {
                    // Zero blocks means "to the end of the medium"; with an empty range at 0, the device flushes
                    // everything.
                    range.offset = 0;
                }
                Ok(CommandPlan::Job {
                    job: Box::new(Flush { range }),
                    range,
                    lock: LockMode::None,
                })
            }
            op::PRE_FETCH_10 | op::PRE_FETCH_16 => {
                // There is no cache to prefetch into; GOOD reports that not all blocks are cached.
                let transfer = Transfer::decode(cdb);
                self.checked(transfer.lba, u64::from(transfer.blocks))?;
                Ok(CommandPlan::Answer(DataIn::None))
            }
            op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => self.plan_verify(cdb, data_out_len),
            op::WRITE_AND_VERIFY_10 | op::WRITE_AND_VERIFY_12 | op::WRITE_AND_VERIFY_16 => {
                let transfer = Transfer::decode(cdb);
                if transfer.byte_check > 1 {
                    return Err(Refused::field(1));
                }
                let range = self.range_of(cdb, &transfer)?;
                self.collect_or_nothing(range.len as u32, range, LockMode::Share)
            }
            op::ORWRITE_16 => {
                let range = self.range_of(cdb, &Transfer::decode(cdb))?;
                exactly(range.len as u32, data_out_len)?;
                self.collect_or_nothing(range.len as u32, range, LockMode::Exclude)
            }
            op::COMPARE_AND_WRITE => {
                let mut transfer = Transfer::decode(cdb);
                transfer.blocks = u32::from(cdb[13]);
                let range = self.range_of(cdb, &transfer)?;
                let len = 2 * range.len as u32;
                exactly(len, data_out_len)?;
                self.collect_or_nothing(len, range, LockMode::Exclude)
            }
            op::WRITE_ATOMIC_16 => self.plan_write_atomic(cdb, data_out_len),
            op::WRITE_SAME_10 | op::WRITE_SAME_16 => self.plan_write_same(cdb, data_out_len),
            _ => Ok(CommandPlan::Answer(
                self.unit.answer(&self.nexus.nexus, cdb)?,
            )),
        }
    }

    fn collect_or_nothing(
        &self,
        len: u32,
        range: ByteRange,
        lock: LockMode,
    ) -> Result<CommandPlan, Refused> {
        if range.len == 0 {
            return Ok(CommandPlan::Answer(DataIn::None));
        }
        Ok(CommandPlan::Collect { len, range, lock })
    }

    fn plan_verify(&self, cdb: &Cdb, data_out_len: u32) -> Result<CommandPlan, Refused> {
        let transfer = Transfer::decode(cdb);
        if transfer.byte_check == 2 {
            return Err(Refused::field(1));
        }
        let range = self.range_of(cdb, &transfer)?;
        let len = match transfer.byte_check {
            0 if range.len == 0 => return Ok(CommandPlan::Answer(DataIn::None)),
            0 => {
                let job = Box::new(Verify {
                    range,
                    against: Against::Nothing,
                    at: 0,
                });
                return Ok(CommandPlan::Job {
                    job,
                    range,
                    lock: LockMode::Share,
                });
            }
            1 => range.len as u32,
            _ => self.unit.block_bytes(),
        };
        exactly(len, data_out_len)?;
        self.collect_or_nothing(len, range, LockMode::Share)
    }

    fn plan_write_atomic(&self, cdb: &Cdb, data_out_len: u32) -> Result<CommandPlan, Refused> {
        let mut transfer = Transfer::decode(cdb);
        transfer.blocks = u32::from(cdb::be16(cdb, 12));
        let range = self.range_of(cdb, &transfer)?;
        if cdb::be16(cdb, 10) != 0 {
            return Err(Refused::field(10));
        }
        let shape = self.unit.shape();
        let physical = shape.physical_blocks();
        if transfer.blocks > shape.atomic_blocks_max() || !transfer.blocks.is_multiple_of(physical)
        {
            return Err(Refused::field(12));
        }
        if !transfer.lba.is_multiple_of(u64::from(physical)) {
            return Err(Refused::field(2));
        }
        exactly(range.len as u32, data_out_len)?;
        self.collect_or_nothing(range.len as u32, range, LockMode::Exclude)
    }

    fn plan_write_same(&self, cdb: &Cdb, data_out_len: u32) -> Result<CommandPlan, Refused> {
        let transfer = Transfer::decode(cdb);
        let unmap = cdb[1] & 0x08 != 0;
        let no_data = cdb[1] & 0x01 != 0;
        if transfer.protect != 0 || cdb[1] & 0x10 != 0 || unmap && !self.unit.options().thin {
            return Err(Refused::field(1));
        }
        // NDOB exists only in the 16-byte form; in the other forms, these bits are obsolete or reserved.
        if no_data && cdb[0] != op::WRITE_SAME_16 || cdb[1] & 0x06 != 0 {
            return Err(Refused::field(1));
        }
        let mut range = self.checked(transfer.lba, u64::from(transfer.blocks))?;
        if transfer.blocks == 0 {
            range = self.checked(
                transfer.lba,
                self.unit.blocks().saturating_sub(transfer.lba),
            )?;
        }
        let block_bytes = self.unit.block_bytes();
        if range.len / u64::from(block_bytes) > self.unit.shape().write_same_blocks_max() {
            return Err(Refused::field(if cdb[0] == op::WRITE_SAME_16 {
                10
            } else {
                7
            }));
        }
        if no_data {
            let how = if unmap { How::Unmap } else { How::Zeroes };
            let job = self.fill(vec![range], how, Buf::empty());
            return Ok(CommandPlan::Job {
                job,
                range,
                lock: LockMode::Exclude,
            });
        }
        exactly(block_bytes, data_out_len)?;
        Ok(CommandPlan::Collect {
            len: block_bytes,
            range,
            lock: LockMode::Exclude,
        })
    }

    pub(super) fn fill(&self, ranges: Vec<ByteRange>, how: How, block: Buf) -> Box<Fill> {
        let block_bytes = self.unit.block_bytes() as usize;
        let force = self.unit.gate() & gate::FORCE != 0;
        Box::new(Fill {
            ranges,
            how,
            block,
            block_bytes,
            force,
            index: 0,
            at: 0,
            pattern: Buf::empty(),
        })
    }

    pub(super) fn flush_all(&self) -> CommandPlan {
        let range = ByteRange { offset: 0, len: 0 };
        CommandPlan::Job {
            job: Box::new(Flush { range }),
            range,
            lock: LockMode::None,
        }
    }

    fn plan_sanitize(&self, cdb: &Cdb) -> Result<CommandPlan, Refused> {
        let len = cdb::list_length(cdb);
        if cdb[1] & 0x40 != 0 {
            return Err(Refused::field(1));
        }
        if let Some(byte) = (2..7).find(|&byte| cdb[byte] != 0) {
            return Err(Refused::field(byte as u16));
        }
        let action = cdb[1] & 0x1f;
        if action == op::SA_SANITIZE_OVERWRITE {
            // A pattern of one byte to one block, after a 4-byte header.
            if len < 5 || len > self.unit.block_bytes() + 4 {
                return Err(Refused::field(7));
            }
            return Ok(CommandPlan::Collect {
                len,
                range: ByteRange { offset: 0, len: 0 },
                lock: LockMode::None,
            });
        }
        if len != 0 {
            return Err(Refused::field(7));
        }
        match action {
            op::SA_SANITIZE_EXIT_FAILURE_MODE => {
                self.unit.exit_failure_mode()?;
                Ok(CommandPlan::Answer(DataIn::None))
            }
            _ => self.sanitize(cdb, Method::Erase),
        }
    }

    pub(super) fn sanitize(&self, cdb: &Cdb, method: Method) -> Result<CommandPlan, Refused> {
        if !self.unit.sanitize_begins(cdb[1] & 0x20 != 0) {
            return Err(Refused::Check(self.unit.sanitize.sense()));
        }
        sanitize::spawn(&self.unit, method);
        if cdb[1] & 0x80 != 0 {
            return Ok(CommandPlan::Answer(DataIn::None));
        }
        let clock = self.unit.options().clock.clone();
        let job = Box::new(AwaitSanitize {
            unit: Arc::clone(&self.unit),
            clock,
        });
        Ok(CommandPlan::Job {
            job,
            range: ByteRange { offset: 0, len: 0 },
            lock: LockMode::None,
        })
    }
}

/// Requires that the initiator send exactly the data that the CDB describes. READ and WRITE transfer as much as both
/// sides have room for and report a residual. But if data is compared, combined, repeated or written atomically, a
/// different length means that initiator and target disagree about the operation; executing part of it would be a
/// guess, so nothing is done.
fn exactly(described: u32, data_out_len: u32) -> Result<(), Refused> {
    if described == data_out_len {
        Ok(())
    } else {
        Err(Refused::DATA_MISMATCH)
    }
}
