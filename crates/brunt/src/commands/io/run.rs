//! A run of `brunt io`: opens device and files, has a worker of `brunt-load` make the requests, and gathers what came of
//! them.
//!
//! The rule: one thread and one ring for the device, and no loop of its own.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Backend, Buf, Device, DeviceError, Health, Op, Request, Ring, turn};
use brunt_core::random::Random;
use brunt_core::{Clock, Cost, Size, Span};
use brunt_load::block::synthetic::WorkerId;
use brunt_load::block::transfer::Transfer;
use brunt_load::block::worker::{RingTime, Worker};
use brunt_load::block::workload::{BlockSize, Workload};
use brunt_load::{Command, Commands, Recorder};
use brunt_result::{Interval, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::data::{Data, Way, open_sink};
use super::input::{self, Consumed, Input, Order, Wanted};
use super::report::report;
use super::{Checksum, Pattern, Range};
use crate::cli::{Done, Failure, Output};
use crate::devices;

/// How often progress is drawn and Ctrl-C looked at.
const TICK: Duration = Duration::from_millis(100);
/// How many queues requests may be ahead of the first whose data is missing, when it is wanted in order.
const WINDOW_QUEUES: usize = 4;

/// What is done.
pub enum Job {
    Read { file: Option<String> },
    Write { file: Option<String>, pattern: Pattern, fua: bool, overwrite: bool },
    Verify { pattern: Pattern },
}

impl Job {
    /// What the user typed.
    pub fn name(&self) -> &'static str {
        match self {
            Job::Read { .. } => "read",
            Job::Write { .. } => "write",
            Job::Verify { .. } => "verify",
        }
    }

    fn writes(&self) -> bool {
        matches!(self, Job::Write { .. })
    }
}

/// One run over one device.
pub struct Run<'a> {
    pub range: Range,
    pub job: Job,
    pub output: &'a Output,
    pub backend: Arc<dyn Backend>,
    /// In bytes; whole blocks.
    pub length: u64,
    /// Requests to make.
    pub count: u64,
    sums: bool,
}

/// What came of it.
pub struct Came {
    pub outcome: Outcome,
    /// The flush after writes went wrong.
    pub flush_error: Option<DeviceError>,
    /// Requests that were to be made; input that ends early makes it fewer.
    pub count: u64,
    pub data: Data,
    pub consumed: Consumed,
    /// For the input.
    pub waited: Duration,
    pub padded_bytes: u64,
    /// From the first request to the last completion, or that of the flush.
    pub elapsed: Duration,
    /// Of this process.
    pub cost: Cost,
    /// Of the ring.
    pub system_calls: u64,
    /// Of the device.
    pub health: Health,
}

impl<'a> Run<'a> {
    /// Opens the device, and holds the range against it.
    pub fn new(range: Range, checksum: Checksum, job: Job, output: &'a Output) -> Result<Run<'a>, Failure> {
        let backend = devices::open(&range.url, !job.writes())?;
        let length = range.length_on(&*backend)?;
        if let Job::Write { overwrite, .. } = &job {
            let info = backend.info();
            if info.read_only {
                return Err(Failure::usage(format!("{} is read-only", info.name)));
            }
            devices::guard(&*backend, *overwrite)?;
        }
        let once = if range.random { length / range.bs } else { length.div_ceil(range.bs) };
        let count = range.count.unwrap_or(once);
        // Data that comes around a second time has no place in a checksum of the range.
        let sums = !range.random && count <= once && checksum == Checksum::Sha256;
        let run = Run { job, output, length, count, sums, backend, range };
        let has_file = matches!(&run.job, Job::Read { file: Some(_) } | Job::Write { file: Some(_), .. });
        if count > once && has_file && run.range.count.is_some() {
            return Err(Failure::usage(format!("--count {count}: the range has only {once} requests")));
        }
        Ok(run)
    }

    /// Makes the requests and says what came of them.
    pub fn go(self) -> Done {
        let ring = Ring::new(self.range.poll.ring()).map_err(Failure::failed)?;
        let (mut order, mut data) = self.requests(&ring)?;
        let depth = self.range.depth;
        let mut device = self.backend.open(&ring, depth).map_err(|error| {
            Failure::failed(format!("{}: cannot open: {error}", self.backend.info().name))
        })?;
        let rules = self.rules();
        let (id, commands) = (WorkerId { worker: 0, workers: 1, seed: self.range.seed }, Commands::new());
        let worker = Worker::with(&mut order, &mut data, &rules, id, ring.pool());
        let mut watch = Watch { bar: self.progress(), output: self.output, commands: &commands };
        let (clock, start_cost, start_stats) = (Clock::Monotonic, Cost::now(), ring.stats());
        let start = clock.now();
        let outcome = worker.run(&mut *device, &mut RingTime(&ring), start, &commands, &mut watch);
        watch.bar.finish_and_clear();
        let outcome = outcome.map_err(Failure::failed)?;
        let flush_error = match self.job.writes() {
            true => flush(&mut *device, &ring)?,
            false => None,
        };
        let elapsed = clock.now().since(start);
        let cost = Cost::now().since(start_cost);
        let system_calls = ring.stats().system_calls - start_stats.system_calls;
        data.finish().map_err(Failure::failed)?;
        let count = order.transfer.count;
        let (mut consumed, mut waited, mut padded_bytes) = (Consumed::default(), Duration::ZERO, 0);
        if let Some(input) = order.input.take() {
            data.way = Way::Nowhere;
            let input = Rc::into_inner(input).expect("nobody else has the input").into_inner();
            (waited, padded_bytes) = (input.waited, input.padded_bytes);
            consumed = input
                .finish(self.output)
                .map_err(|error| Failure::failed(format!("cannot read the input: {error}")))?;
        }
        let health = device.health();
        let came = Came {
            outcome,
            flush_error,
            count,
            data,
            consumed,
            waited,
            padded_bytes,
            elapsed,
            cost,
            system_calls,
            health,
        };
        report(&self, came)
    }

    /// The requests and what they carry.
    fn requests(&self, ring: &Ring) -> Result<(Order, Data), Failure> {
        let Range { offset, bs, seed, random, .. } = self.range;
        let op = if self.job.writes() { Op::Write } else { Op::Read };
        let mut transfer = Transfer::new(op, offset, self.length, bs);
        transfer.count = self.count;
        transfer.random = random.then(|| Random::for_part(seed, u64::MAX));
        let hash = self.sums.then(Sha256::new);
        let data = match &self.job {
            Job::Read { file } => {
                let sink = file.as_deref().map(open_sink).transpose()?;
                // What was not read leaves a hole in no file.
                transfer.ends_with_an_error = sink.is_some();
                if sink.is_some() || hash.is_some() {
                    transfer.keep_together(WINDOW_QUEUES * self.range.depth as usize);
                }
                Data::of_reads(sink, hash, ring.pool())
            }
            Job::Write { file: Some(path), .. } => {
                let wanted = Wanted {
                    length: self.length,
                    block: bs,
                    count: self.count,
                    block_bytes: self.backend.info().block_bytes.into(),
                    sums: self.sums,
                    // Nobody asked for a part of the input: what does not fit is missing.
                    looks_behind: self.range.length.is_none() && self.range.count.is_none(),
                };
                let input = Input::new(input::open(path)?, wanted).map_err(Failure::failed)?;
                let input = Rc::new(RefCell::new(input));
                let data = Data::new(Way::Input(Rc::clone(&input)), None);
                return Ok((Order { transfer, input: Some(input) }, data));
            }
            Job::Write { file: None, pattern, .. } => Data::new(Way::Made(pattern.with(seed)), hash),
            Job::Verify { pattern } => {
                let block = self.backend.info().block_bytes as usize;
                Data::new(Way::Compared(pattern.with(seed), block), None)
            }
        };
        Ok((Order { transfer, input: None }, data))
    }

    /// How the requests are sent: as deep as can be, for as long as it takes.
    fn rules(&self) -> Workload {
        let depth = u64::from(self.range.depth).min(self.count).max(1) as u32;
        Workload {
            blocks: vec![BlockSize { size: Size(self.range.bs), weight: 1.0 }],
            read: if self.job.writes() { 0.0 } else { 1.0 },
            queue_depth: depth,
            // A quarter of the queue at once is worth a system call.
            reap_batch: (depth / 4).max(1),
            drain: Span(Duration::MAX),
            timeout: Span(Duration::ZERO),
            interval: Span(TICK),
            force_unit_access: matches!(self.job, Job::Write { fua: true, .. }),
            ..Workload::default()
        }
    }

    fn progress(&self) -> ProgressBar {
        // Hidden by itself when standard error is no terminal.
        let bar = if self.output.is_json() { ProgressBar::hidden() } else { ProgressBar::new(self.count) };
        bar.with_style(
            ProgressStyle::with_template("{bar:40} {percent}% {human_pos}/{human_len} {per_sec} eta {eta}")
                .expect("the template is right"),
        )
    }
}

/// Looks at the run every [`TICK`].
struct Watch<'a> {
    bar: ProgressBar,
    output: &'a Output,
    commands: &'a Commands,
}

impl Recorder for Watch<'_> {
    fn interval(&mut self, interval: &Interval) {
        let counts = &interval.figures.counts;
        self.bar.inc(interval.figures.completed() + counts.errors());
        if self.output.is_interrupted() {
            self.commands.give(Command::Stop);
        }
    }
}

/// What was written is stable when the command ends. Why it may not be.
fn flush(device: &mut dyn Device, ring: &Ring) -> Result<Option<DeviceError>, Failure> {
    if device.outstanding() > 0 {
        return Ok(None); // it does not answer
    }
    let request =
        Request { tag: 0, op: Op::Flush, offset: 0, len: 0, buf: Buf::empty(), force_unit_access: false };
    let result = turn::one(ring, device, request).map_err(Failure::failed)?.result;
    Ok(result.err().filter(|error| *error != DeviceError::Unsupported))
}

impl Range {
    /// How many bytes of the device the range has, from the offset on.
    fn length_on(&self, backend: &dyn Backend) -> Result<u64, Failure> {
        let info = backend.info();
        let block = u64::from(info.block_bytes);
        let whole = |what: &str, bytes: u64| match bytes % block {
            0 => Ok(()),
            _ => Err(Failure::usage(format!("--{what} {bytes} is not in whole blocks of {block} bytes"))
                .advise(format!("write --{what} {}", bytes.next_multiple_of(block)))),
        };
        whole("offset", self.offset)?;
        whole("bs", self.bs)?;
        let room = info.size_bytes.checked_sub(self.offset).filter(|room| *room > 0).ok_or_else(|| {
            Failure::usage(format!("--offset {} is not inside the {} bytes", self.offset, info.size_bytes))
        })?;
        let length = self.length.unwrap_or(room);
        whole("length", length)?;
        if length == 0 || length > room {
            return Err(Failure::usage(format!(
                "--length {length}: there are {room} bytes from the offset on"
            )));
        }
        if self.bs == 0 || self.bs > u64::from(info.transfer_bytes_max) {
            return Err(Failure::usage(format!(
                "--bs {}: one request moves {} to {} bytes here",
                self.bs, block, info.transfer_bytes_max
            )));
        }
        if self.random && self.bs > length {
            return Err(Failure::usage("--bs is longer than the range"));
        }
        Ok(length)
    }
}
