//! EXTENDED COPY: finds the units of this target and the blocks that the parameter list names. Called when the list
//! is complete. The one rule: a unit that the initiator may not read or write is not reachable.

use std::collections::VecDeque;
use std::sync::Arc;

use brunt_block::OpenError;
use brunt_wire::scsi::copy::{self, CopyAmount, CopySegment};
use brunt_wire::scsi::sense::{Sense, key};

use super::TaskSet;
use super::task::{CollectedPlan, LockMode};
use crate::scsi::LogicalUnit;
use crate::scsi::command::Refused;
use crate::scsi::jobs::{self, ByteRange, CopyExtent};
use crate::scsi::lun::gate;

/// COPY TARGET DEVICE NOT REACHABLE.
const UNREACHABLE: Refused = Refused::Check(Sense::new(key::COPY_ABORTED, 0x0d, 0x02));

impl TaskSet {
    /// Resolves the targets of an EXTENDED COPY and checks its segments.
    pub(super) fn copy(&mut self, list: &[u8]) -> Result<CollectedPlan, Refused> {
        let parsed = copy::parse(list).map_err(Refused::Check)?;
        let mut units = Vec::new();
        for target in &parsed.targets {
            let unit = self.find_unit(&target.designator).ok_or(UNREACHABLE)?;
            if target.block_bytes != 0 && target.block_bytes != unit.block_bytes() {
                // INCORRECT COPY TARGET DEVICE TYPE is about device types; a wrong block length is an invalid field.
                return Err(Refused::parameter(16));
            }
            units.push(unit);
        }
        let mut extents = Vec::new();
        let (mut low, mut high) = (u64::MAX, 0);
        for segment in &parsed.segments {
            let extent = self.extent(segment, &units)?;
            if extent.destination == 0 && extent.len > 0 {
                low = low.min(extent.destination_offset);
                high = high.max(extent.destination_offset + extent.len);
            }
            extents.push(extent);
        }
        let force = self.unit.gate() & gate::FORCE != 0;
        let job = Box::new(jobs::Copy {
            unit: Arc::clone(&self.unit),
            nexus: self.nexus.nexus.id,
            list: parsed.id,
            extents,
            index: 0,
            at: 0,
            copied: 0,
            writing: false,
            force,
            chunk: jobs::CHUNK_BYTES,
        });
        let (range, lock) = if low < high {
            (
                ByteRange {
                    offset: low,
                    len: high - low,
                },
                LockMode::Share,
            )
        } else {
            (ByteRange { offset: 0, len: 0 }, LockMode::None)
        };
        Ok(CollectedPlan::Job { job, range, lock })
    }

    /// The source and destination of a segment.
    fn extent(
        &mut self,
        segment: &CopySegment,
        units: &[Arc<LogicalUnit>],
    ) -> Result<CopyExtent, Refused> {
        let source = units
            .get(usize::from(segment.source))
            .ok_or(UNREACHABLE)?
            .clone();
        let destination = units
            .get(usize::from(segment.destination))
            .ok_or(UNREACHABLE)?
            .clone();
        let (from, to) = (
            u64::from(source.block_bytes()),
            u64::from(destination.block_bytes()),
        );
        let (len, source_extra, destination_extra) = match segment.amount {
            CopyAmount::SourceBlocks(blocks) => (u64::from(blocks) * from, 0, 0),
            CopyAmount::DestinationBlocks(blocks) => (u64::from(blocks) * to, 0, 0),
            CopyAmount::Bytes {
                bytes,
                source_offset,
                destination_offset,
            } => (
                u64::from(bytes),
                u64::from(source_offset),
                u64::from(destination_offset),
            ),
        };
        if len > u64::from(copy::SEGMENT_BYTES_MAX) {
            return Err(Refused::parameter(16));
        }
        let place = |lba: u64, block: u64, extra: u64, unit: &LogicalUnit| {
            let offset = lba.checked_mul(block)?.checked_add(extra)?;
            let end = offset.checked_add(len)?;
            (end <= unit.blocks() * block).then_some(offset)
        };
        // COPY TARGET DEVICE DATA OVERRUN is for streams; these blocks don't exist.
        let source_offset =
            place(segment.source_lba, from, source_extra, &source).ok_or(UNREACHABLE)?;
        let destination_offset =
            place(segment.destination_lba, to, destination_extra, &destination)
                .ok_or(UNREACHABLE)?;
        let whole = source_offset.is_multiple_of(from)
            && destination_offset.is_multiple_of(to)
            && len.is_multiple_of(from)
            && len.is_multiple_of(to);
        if !whole {
            return Err(Refused::parameter(16));
        }
        let nexus = &self.nexus.nexus;
        if !source.allowed(nexus).read || !destination.allowed(nexus).write {
            return Err(UNREACHABLE);
        }
        Ok(CopyExtent {
            source: self.device_of(&source).map_err(|_| UNREACHABLE)?,
            source_offset,
            destination: self.device_of(&destination).map_err(|_| UNREACHABLE)?,
            destination_offset,
            len,
        })
    }

    /// Finds the unit of this target that a page 83h designator identifies.
    fn find_unit(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        let names = |unit: &LogicalUnit| unit.is_named(designator);
        if names(&self.unit) {
            return Some(Arc::clone(&self.unit));
        }
        let map = self.unit.map()?;
        map.units()
            .into_iter()
            .map(|(_, unit)| unit)
            .find(|unit| names(unit))
    }

    /// The unit's index for `DeviceIo::device`; its device is opened when it is first needed.
    fn device_of(&mut self, unit: &Arc<LogicalUnit>) -> Result<usize, OpenError> {
        if Arc::ptr_eq(unit, &self.unit) {
            return Ok(0);
        }
        if let Some(index) = self
            .others
            .iter()
            .position(|(other, _)| Arc::ptr_eq(other, unit))
        {
            return Ok(index + 1);
        }
        let device = unit.backend().open(&self.ring, self.depth)?;
        self.others.push((Arc::clone(unit), device));
        self.other_batches.push(VecDeque::new());
        Ok(self.others.len())
    }
}
