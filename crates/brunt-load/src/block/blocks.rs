//! The data of a described workload's requests: generated with its compression and deduplication ratios, and sealed
//! and checked if the workload verifies. Each worker has its own instance.
//!
//! The rule: the data depends on the seed and the order of the writes, never on the device.

use std::io;

use brunt_block::{DeviceInfo, Op};
use brunt_core::Size;
use brunt_result::RequestStatus;
use brunt_result::wrong::Verified;

use crate::block::data::DataSource;
use crate::block::generator::{Area, Planned};
use crate::block::journal_store::RunMark;
use crate::block::synthetic::WorkerId;
use crate::block::verify::{
    Difference, GRAINS_MAX, HEADER_BYTES, Journal, JournalHead, Ledger, StableWhen,
};
use crate::block::workload::Workload;
use crate::content::{Carried, Content};
use crate::load::WorkloadError;

/// The data of a described workload's requests.
pub struct Blocks {
    source: DataSource,
    ledger: Option<Ledger>,
    writes: bool,
    /// Whether buffers may hold data generated from a content number.
    by_content: bool,
    /// How the most recent read with wrong data differed.
    difference: Option<Difference>,
}

impl Blocks {
    /// Creates the data source of one worker. `run` distinguishes this run's blocks from those of other runs during
    /// verification.
    ///
    /// # Errors
    /// The workload does not fit the device, or the journal can't be created.
    pub fn new(
        workload: &Workload,
        info: &DeviceInfo,
        id: WorkerId,
        run: &RunMark,
    ) -> Result<Blocks, WorkloadError> {
        Blocks::over(workload, info, id.area(workload, info)?, id, run)
    }

    /// Like [`Blocks::new`], for a worker whose requests are in `area`.
    ///
    /// # Errors
    /// There is more to verify than a worker can track, or the journal can't be created.
    pub fn over(
        workload: &Workload,
        info: &DeviceInfo,
        area: Area,
        id: WorkerId,
        run: &RunMark,
    ) -> Result<Blocks, WorkloadError> {
        Ok(Blocks {
            source: DataSource::new(
                workload.data,
                workload.block_bytes_max(),
                id.seed,
                id.worker,
            ),
            ledger: ledger(workload, info, area, id, run)?,
            writes: workload.writes(),
            by_content: false,
            difference: None,
        })
    }
}

impl Content for Blocks {
    type Request = Planned;

    #[inline]
    fn is_exclusive(&self) -> bool {
        self.ledger.is_some()
    }

    #[cold]
    fn prepare(&mut self, carried: &mut Carried) {
        if self.writes {
            self.source.fill(&mut carried.buf, true);
        }
    }

    #[inline(always)] // once per request: the call would cost more than the function's work
    fn fill(&mut self, write: &Planned, carried: &mut Carried) {
        let block = &mut carried.buf[..write.len as usize];
        match write.content {
            // A worker that verifies data identifies blocks by their own headers instead.
            Some(content) if self.ledger.is_none() => {
                self.source.fill_by(block, content);
                self.by_content = true;
            }
            _ => self.source.fill(block, carried.stale || self.by_content),
        }
        if let Some(ledger) = &mut self.ledger {
            carried.ticket = ledger.begin_write(write.offset, block);
        }
    }

    fn flushes(&mut self, carried: &mut Carried) {
        if let Some(ledger) = &mut self.ledger {
            carried.ticket = ledger.begin_flush();
        }
    }

    #[inline(always)] // like `fill`: a load that does not verify pays for one comparison
    fn completed(
        &mut self,
        request: &Planned,
        carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus {
        match &mut self.ledger {
            None => status,
            Some(ledger) => {
                let (status, difference) = verified(ledger, request, carried, status);
                self.difference = difference;
                status
            }
        }
    }

    #[cold]
    fn difference(&self) -> String {
        self.difference
            .expect("called for a read whose check failed")
            .to_string()
    }

    fn verified(&self) -> Option<Verified> {
        self.ledger.as_ref().map(|ledger| ledger.verified().clone())
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        self.ledger.as_mut().map_or(Ok(()), Ledger::flush)
    }
}

/// Returns a request's status after checking its data against the ledger and, if the data differs, in which way.
fn verified(
    ledger: &mut Ledger,
    request: &Planned,
    carried: &Carried,
    status: RequestStatus,
) -> (RequestStatus, Option<Difference>) {
    let good = status == RequestStatus::Good;
    match request.op {
        Op::Flush if good => ledger.end_flush(carried.ticket),
        Op::Write => ledger.end_write(request.offset, request.len, carried.ticket, good),
        Op::WriteZeroes => ledger.end_zeroes(request.offset, request.len, good),
        Op::Unmap => ledger.end_trim(request.offset, request.len),
        Op::Read if good => {
            let difference =
                ledger.check_read(request.offset, &carried.buf[..request.len as usize]);
            return (
                if difference.is_some() {
                    RequestStatus::Miscompare
                } else {
                    status
                },
                difference,
            );
        }
        _ => {}
    }
    (status, None)
}

/// Creates the ledger if the workload verifies.
fn ledger(
    workload: &Workload,
    info: &DeviceInfo,
    area: Area,
    id: WorkerId,
    mark: &RunMark,
) -> Result<Option<Ledger>, WorkloadError> {
    let Some(verify) = &workload.verify else {
        return Ok(None);
    };
    let error = |what: String| WorkloadError {
        key: "verify",
        what,
    };
    let grain = grain_bytes(workload, area.align);
    assert!(grain as usize >= HEADER_BYTES, "sizes are multiples of 512");
    let len = area.len / grain * grain;
    if len / grain > GRAINS_MAX {
        let most = Size(GRAINS_MAX * grain);
        return Err(error(format!(
            "{} in grains of {grain} bytes is more than a worker can track; use a larger align, more workers, or a region of at most {most} per worker",
            Size(len)
        )));
    }
    let at_once = !info.volatile_cache || workload.writes_are_stable();
    let stable = if at_once {
        StableWhen::Acknowledged
    } else {
        StableWhen::Flushed
    };
    let run = mark.run;
    let head = JournalHead {
        run,
        start: area.start,
        len,
        grain,
        worker: id.worker,
        stable,
    };
    let journal = match (&mark.journal_store, &verify.journal) {
        (Some(journal_store), _) => Some(journal_store.journal(head)),
        (None, Some(folder)) => Some(Journal::create(folder, head)),
        (None, None) => None,
    };
    let journal = journal
        .transpose()
        .map_err(|failure| error(failure.to_string()))?;
    Ok(Some(Ledger::new(area.start, len, grain, run, journal)))
}

/// Returns the largest grain that divides every block size and the alignment.
pub(super) fn grain_bytes(workload: &Workload, align: u64) -> u64 {
    let sizes = workload.blocks.corners().into_iter();
    sizes.fold(align, |grain, size| gcd(grain, size.0))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
