//! Moves a range of a device once: from a pattern or a file to the device, from the device to a file and a checksum, or
//! compares it with a pattern. Used by `brunt io`. It combines the worker of all loads with a request order and data
//! from an input.
//!
//! The rule: one thread and one ring for the device. Data moved before an error or interrupt is reported, and the time
//! that this program spends on the data is reported separately from the device's.

mod data;
mod input;
mod order;

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use brunt_block::{
    Backend, Buf, Device, DeviceError, Health, Op, OpenError, Request, Ring, RingConfig, turn,
};
use brunt_core::random::Random;
use brunt_core::{Clock, Histogram, ResourceUsage, Size, Span};
use brunt_result::{FirstError, Interval, OpKind, Outcome};
use sha2::{Digest, Sha256};

use crate::block::seeded::{Pattern, Wrong};
use crate::block::sizes::BlockSizes;
use crate::block::synthetic::WorkerId;
use crate::block::worker::{RingTime, Worker};
use crate::block::workload::{SyncWrites, Workload};
use crate::record::status_of;
use crate::{Commands, LoadCommand, Recorder};
use data::{Data, DataEnd};
use input::{Input, Wanted};
use order::{InOrder, Range, RangeRequests};

/// How often the watcher is called.
pub const TICK: Duration = Duration::from_millis(100);
/// For in-order delivery, how many queue depths requests may be ahead of the first one with missing data.
const WINDOW_QUEUES: usize = 4;

/// The operation on a range.
pub enum Work {
    /// Read it and, if there is a file, write it there.
    Read(Option<Box<dyn Write>>),
    /// Write it with data generated from a pattern.
    Write(Pattern),
    /// Write it with data from this input, until the input ends.
    Copy {
        /// The input, read in a separate thread.
        input: Box<dyn Read + Send>,
        /// Whether input beyond the range makes the transfer incomplete.
        whole: bool,
    },
    /// Read it and compare it with a pattern.
    Compare(Pattern),
}

/// A range, and the operation on it.
pub struct RangeTransfer {
    /// The operation.
    pub work: Work,
    /// Start of the range in bytes; a multiple of the device's block size.
    pub start: u64,
    /// Length of the range in bytes; also a multiple of the block size.
    pub length: u64,
    /// Size of a request in bytes; also a multiple of the block size, and no more than the device accepts.
    pub block: u64,
    /// Number of requests; those beyond the end of the range wrap around to its start.
    pub count: u64,
    /// The seed for blocks in random order, drawn with replacement; `None` means in sequence.
    pub random: Option<u64>,
    /// Maximum outstanding requests.
    pub depth: u32,
    /// Whether each write is on stable storage when it completes.
    pub force_unit_access: bool,
    /// Whether to compute a checksum of the data, in address order.
    pub sums: bool,
}

/// How long requests had to wait for this program to process their data.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataCost {
    /// Computing SHA-256.
    pub checksum: Duration,
    /// Generating written data.
    pub pattern: Duration,
    /// Comparing read data with the expected data.
    pub comparison: Duration,
    /// Reading the file, excluding its checksum.
    pub input: Duration,
    /// Writing the file.
    pub output: Duration,
}

/// The work that was slower than the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// See [`DataCost`].
    Checksum,
    /// See [`DataCost`].
    Pattern,
    /// See [`DataCost`].
    Comparison,
    /// See [`DataCost`].
    Input,
    /// See [`DataCost`].
    Output,
}

impl DataCost {
    fn each(&self) -> [(Limit, Duration); 5] {
        [
            (Limit::Checksum, self.checksum),
            (Limit::Pattern, self.pattern),
            (Limit::Comparison, self.comparison),
            (Limit::Input, self.input),
            (Limit::Output, self.output),
        ]
    }

    /// Returns the total.
    pub fn total(&self) -> Duration {
        self.each().into_iter().map(|(_, time)| time).sum()
    }

    /// Returns the most expensive part, if the total took more than half of the elapsed time.
    pub fn limit(&self, elapsed: Duration) -> Option<Limit> {
        let (limit, _) = self.each().into_iter().max_by_key(|(_, time)| *time)?;
        (self.total() > elapsed / 2).then_some(limit)
    }
}

/// The results of a transfer.
pub struct Moved {
    /// Requests that were answered, successfully or not.
    pub requests: u64,
    /// Requests that should have been answered, which are fewer if the input ended early.
    pub count: u64,
    /// Bytes of successful requests.
    pub bytes: u64,
    /// Failed requests, including the flush after writes.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<FirstError>,
    /// Time from sending to completion of successful requests.
    pub latency: Histogram,
    /// Blocks of the device with wrong data.
    pub wrong_blocks: u64,
    /// The first wrong block by address.
    pub first_wrong: Option<Wrong>,
    /// Number of zeros that pad the input's last block.
    pub padded_bytes: u64,
    /// Whether the input continues after the range.
    pub input_left: bool,
    /// SHA-256 of the data, if requested and if all of it was moved; for an input, excluding the padding.
    pub checksum: Option<[u8; 32]>,
    /// Time spent on the data by this program rather than the device.
    pub spent: DataCost,
    /// Time from the first request to the last completion, or to the completion of the flush.
    pub elapsed: Duration,
    /// Resource usage of this process in that time.
    pub cost: ResourceUsage,
    /// System calls of the ring.
    pub system_calls: u64,
    /// Health of the device.
    pub health: Health,
}

impl Moved {
    /// Returns true if every request was answered and no input is left.
    pub fn is_complete(&self) -> bool {
        self.requests == self.count && !self.input_left
    }
}

/// Why a transfer has no results.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The ring could not be created, or failed.
    #[error("{0}")]
    Ring(io::Error),
    /// The device can't be opened.
    #[error("{device}: cannot open: {source}")]
    Open {
        /// Name of the device.
        device: String,
        /// The cause.
        source: OpenError,
    },
    /// The input can't be read.
    #[error("cannot read the input: {0}")]
    Input(io::Error),
    /// The output can't be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
}

impl RangeTransfer {
    /// Performs the transfer. `watch` is called every [`TICK`] with the number of requests that have ended, and returns
    /// whether to continue.
    ///
    /// # Errors
    /// See [`TransferError`]. Failed requests are not errors here; they are reported in [`Moved`].
    pub fn run(
        self,
        backend: &dyn Backend,
        ring: RingConfig,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Moved, TransferError> {
        let info = backend.info();
        let ring = Ring::new(ring).map_err(TransferError::Ring)?;
        let open = |source| TransferError::Open {
            device: info.name.clone(),
            source,
        };
        let mut device = backend.open(&ring, self.depth).map_err(open)?;
        let rules = self.rules();
        let (mut order, mut data) = self.requests(&ring, info.block_bytes as usize)?;
        let driven = drive(&mut order, &mut data, &rules, &mut *device, &ring, watch)?;
        data.finish().map_err(TransferError::Output)?;
        let consumed = order.consumed(&mut || watch(driven.done))?;
        // The input's thread may have computed the checksum at no cost while the device was busy.
        let summed = consumed.checksum.min(consumed.waited);
        let figures = &driven.outcome.figures;
        let failed = figures.counts.errors();
        let mut moved = Moved {
            requests: figures.completed() + failed,
            count: order.range.count,
            bytes: figures.bytes(),
            errors: failed + u64::from(driven.flush_error.is_some()),
            first_error: driven.outcome.first_error.or(driven.flush_error),
            latency: figures.service(),
            wrong_blocks: data.wrong_blocks,
            first_wrong: data.first_wrong,
            padded_bytes: consumed.padded_bytes,
            input_left: consumed.left,
            checksum: None,
            spent: DataCost {
                checksum: data.spent.checksum + summed,
                input: consumed.waited - summed,
                ..data.spent
            },
            elapsed: driven.elapsed,
            cost: driven.cost,
            system_calls: driven.system_calls,
            health: device.health(),
        };
        if moved.is_complete() && moved.errors == 0 {
            moved.checksum = data
                .hash
                .or(consumed.hash)
                .map(|hash| hash.finalize().into());
        }
        Ok(moved)
    }

    /// Returns how to send the requests: with the full depth and without time limits.
    fn rules(&self) -> Workload {
        let depth = u64::from(self.depth).min(self.count).max(1) as u32;
        let reads = matches!(self.work, Work::Read(_) | Work::Compare(_));
        Workload {
            blocks: BlockSizes::only(Size(self.block)),
            read: if reads { 1.0 } else { 0.0 },
            queue_depth: depth,
            // Wait for up to a quarter of the queue per system call.
            reap_batch: (depth / 4).max(1),
            drain: Span(Duration::MAX),
            timeout: Span(Duration::ZERO),
            interval: Span(TICK),
            sync: if self.force_unit_access {
                Some(SyncWrites::Dsync)
            } else {
                None
            },
            ..Workload::default()
        }
    }

    /// Creates the requests and their data.
    fn requests(
        self,
        ring: &Ring,
        block_bytes: usize,
    ) -> Result<(RangeRequests, Data), TransferError> {
        let op = match self.work {
            Work::Read(_) | Work::Compare(_) => Op::Read,
            Work::Write(_) | Work::Copy { .. } => Op::Write,
        };
        let mut range = Range::new(op, self.start, self.length, self.block);
        range.count = self.count;
        range.random = self.random.map(|seed| Random::for_part(seed, u64::MAX));
        let hash = self.sums.then(Sha256::new);
        let data = match self.work {
            Work::Read(None) if hash.is_none() => Data::new(DataEnd::Nowhere, None),
            Work::Read(sink) => {
                // Stop at the first error, so that the file has no gap.
                range.ends_with_an_error = sink.is_some();
                range.keep_together(WINDOW_QUEUES * self.depth as usize);
                Data::new(DataEnd::Out(InOrder::new(ring.pool().clone()), sink), hash)
            }
            Work::Write(pattern) => Data::new(DataEnd::Made(pattern), hash),
            Work::Compare(pattern) => Data::new(DataEnd::Compared(pattern, block_bytes), None),
            Work::Copy { input, whole } => {
                let wanted = Wanted {
                    length: self.length,
                    block: self.block,
                    count: self.count,
                    block_bytes,
                    sums: self.sums,
                    checks_end: whole,
                };
                let input = Input::new(input, wanted).map_err(TransferError::Input)?;
                let input = Rc::new(RefCell::new(input));
                let data = Data::new(DataEnd::Input(Rc::clone(&input)), None);
                return Ok((
                    RangeRequests {
                        range,
                        input: Some(input),
                    },
                    data,
                ));
            }
        };
        Ok((RangeRequests { range, input: None }, data))
    }
}

/// Calls the watcher, and stops the transfer when it says to.
struct Watcher<'a> {
    watch: &'a mut dyn FnMut(u64) -> bool,
    done: u64,
    commands: &'a Commands,
}

impl Recorder for Watcher<'_> {
    fn interval(&mut self, interval: &Interval) {
        self.done += interval.figures.completed() + interval.figures.counts.errors();
        if !(self.watch)(self.done) {
            self.commands.give(LoadCommand::Stop);
        }
    }
}

/// The state and results of a transfer's requests.
struct Driven {
    outcome: Outcome,
    flush_error: Option<FirstError>,
    /// Number of requests that ended.
    done: u64,
    elapsed: Duration,
    cost: ResourceUsage,
    system_calls: u64,
}

/// Makes the requests, and flushes the device at the end if they change data.
fn drive(
    order: &mut RangeRequests,
    data: &mut Data,
    rules: &Workload,
    device: &mut dyn Device,
    ring: &Ring,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Result<Driven, TransferError> {
    let (id, commands) = (WorkerId::alone(0), Commands::new());
    let worker = Worker::with(order, &mut *data, rules, id, ring.pool());
    let mut watcher = Watcher {
        watch,
        done: 0,
        commands: &commands,
    };
    let (clock, cost) = (Clock::Monotonic, ResourceUsage::now());
    let (calls, start) = (ring.stats().system_calls, clock.now());
    let outcome = worker.run(device, &mut RingTime(ring), start, &commands, &mut watcher);
    let outcome = outcome.map_err(|error| match data.failure.take() {
        Some(failure) => TransferError::Output(failure),
        None => TransferError::Ring(error),
    })?;
    let flush_error = match rules.changes_data() {
        true => flush(device, ring).map_err(TransferError::Ring)?,
        false => None,
    };
    Ok(Driven {
        outcome,
        flush_error,
        done: watcher.done,
        elapsed: clock.now().since(start),
        cost: ResourceUsage::now().since(cost),
        system_calls: ring.stats().system_calls - calls,
    })
}

/// Makes written data stable at the end of the transfer; returns the error if that failed.
fn flush(device: &mut dyn Device, ring: &Ring) -> io::Result<Option<FirstError>> {
    if device.outstanding() > 0 {
        return Ok(None); // a device that still has requests outstanding does not answer
    }
    let request = Request {
        tag: 0,
        op: Op::Flush,
        offset: 0,
        len: 0,
        buf: Buf::empty(),
        force_unit_access: false,
    };
    let error = match turn::one(ring, device, request)?.result {
        Ok(()) | Err(DeviceError::Unsupported) => return Ok(None),
        Err(error) => error,
    };
    let (status, op, text) = (status_of(&error), OpKind::Flush, error.to_string());
    Ok(Some(FirstError {
        status,
        op,
        offset: 0,
        len: 0,
        text,
    }))
}

#[cfg(test)]
mod tests;
