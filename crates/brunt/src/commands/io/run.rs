//! The requests of `brunt io`: their order, the loop that makes them, and what is done with the data of each.
//!
//! The rule: one thread, one ring; the loop in [`Run::drive`] does nothing that a request does not need.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Backend, Buf, Completion, Device, DeviceError, Op, Request, Ring, turn};
use brunt_core::random::Random;
use brunt_core::{Clock, Cost, Histogram, Nanos};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::content::{Wrong, compare, fill, open_input, open_sink, read_full};
use super::report::{Came, report};
use super::{Checksum, Pattern, Range};
use crate::cli::{Done, Failure, Output};
use crate::devices;

/// How often progress is drawn and Ctrl-C looked at.
const TICK: Duration = Duration::from_millis(100);

/// What is done.
pub enum Job {
    Read { file: Option<String> },
    Write { file: Option<String>, fua: bool, overwrite: bool },
    Verify,
}

impl Job {
    /// What the user typed.
    pub fn name(&self) -> &'static str {
        match self {
            Job::Read { .. } => "read",
            Job::Write { .. } => "write",
            Job::Verify => "verify",
        }
    }
}

/// One run over one device.
pub struct Run<'a> {
    pub range: Range,
    pattern: Pattern,
    pub job: Job,
    pub output: &'a Output,
    pub backend: Arc<dyn Backend>,
    /// In bytes; whole blocks.
    pub length: u64,
    /// Requests to make; input that ends early makes it fewer.
    pub count: u64,
    input: Option<Box<dyn Read>>,
    sink: Option<Box<dyn Write>>,
    pub hash: Option<Sha256>,
    random: Random,
    /// In-order consumption (hash, sink): completions that wait for their turn.
    early: VecDeque<Option<(Buf, usize)>>,
    early_first: u64,
    pub seen: Seen,
}

/// What came of it.
#[derive(Default)]
pub struct Seen {
    pub latency: Histogram,
    pub requests: u64,
    pub bytes: u64,
    pub errors: u64,
    pub first_error: Option<(u64, DeviceError)>,
    pub wrong_blocks: u64,
    pub first_wrong: Option<Wrong>,
    pub padded_bytes: u64,
    /// The input goes on behind the end of the device.
    pub input_left: bool,
}

/// What a request under way is.
#[derive(Clone, Copy, Default)]
struct Slot {
    index: u64,
    offset: u64,
    len: usize,
    sent: Nanos,
}

impl<'a> Run<'a> {
    /// Opens the device and the files, and holds the range against the device.
    pub fn new(
        range: Range,
        pattern: Pattern,
        checksum: Checksum,
        job: Job,
        output: &'a Output,
    ) -> Result<Run<'a>, Failure> {
        let backend = devices::open(&range.url, !matches!(job, Job::Write { .. }))?;
        let length = range.length_on(&*backend)?;
        if let Job::Write { overwrite, .. } = &job {
            let info = backend.info();
            if info.read_only {
                return Err(Failure::usage(format!("{} is read-only", info.name)));
            }
            devices::guard(&*backend, *overwrite)?;
        }
        let input = match &job {
            Job::Write { file: Some(path), .. } => Some(open_input(path)?),
            _ => None,
        };
        let sink = match &job {
            Job::Read { file: Some(path) } => Some(open_sink(path)?),
            _ => None,
        };
        let once = if range.random { length / range.bs } else { length.div_ceil(range.bs) };
        let count = range.count.unwrap_or(once);
        if range.count.is_some_and(|count| count > once) && (input.is_some() || sink.is_some()) {
            return Err(Failure::usage(format!("--count {count}: the range has only {once} requests")));
        }
        // Data that comes around a second time has no place in a checksum of the range.
        let hashes = !range.random && count <= once && checksum == Checksum::Sha256;
        let random = Random::for_part(range.seed, u64::MAX);
        let (hash, early, seen) = (hashes.then(Sha256::new), VecDeque::new(), Seen::default());
        Ok(Run {
            job,
            output,
            length,
            count,
            input,
            sink,
            hash,
            random,
            early,
            early_first: 0,
            seen,
            backend,
            range,
            pattern,
        })
    }

    /// Makes the requests and says what came of them.
    pub fn go(mut self) -> Done {
        let ring = Ring::new(self.range.poll.ring()).map_err(Failure::failed)?;
        let depth = self.range.depth;
        let mut device = self.backend.open(&ring, depth).map_err(|error| {
            Failure::failed(format!("{}: cannot open: {error}", self.backend.info().name))
        })?;
        let (clock, start_cost, start_stats) = (Clock::Monotonic, Cost::now(), ring.stats());
        let start = clock.now();
        let made = self.drive(&mut *device, &ring)?;
        if matches!(self.job, Job::Write { .. }) {
            self.flush(&mut *device, &ring)?;
        }
        let elapsed = clock.now().since(start);
        let cost = Cost::now().since(start_cost);
        let system_calls = ring.stats().system_calls - start_stats.system_calls;
        if let (Some(input), None, None) = (&mut self.input, self.range.length, self.range.count)
            && made == self.count
        {
            // Nobody asked for a part of the input: what does not fit is missing.
            let left = read_full(input, &mut [0]);
            self.seen.input_left =
                left.map_err(|error| Failure::failed(format!("cannot read the input: {error}")))? > 0;
        }
        if let Some(sink) = &mut self.sink {
            sink.flush().map_err(|error| Failure::failed(format!("cannot write the output: {error}")))?;
        }
        let health = device.health();
        let complete = self.seen.requests == self.count && made == self.count && !self.seen.input_left;
        report(self, Came { elapsed, cost, system_calls, health, complete })
    }

    /// Makes the requests; how many were made.
    fn drive(&mut self, device: &mut dyn Device, ring: &Ring) -> Result<u64, Failure> {
        let (clock, depth, progress) = (Clock::Monotonic, self.range.depth, self.progress());
        let mut tick = clock.now().after(TICK);
        let mut slots = vec![Slot::default(); depth as usize];
        let mut free: Vec<usize> = (0..slots.len()).rev().collect();
        // Buffers and queues come from here on out of what is there: nothing is allocated for a request.
        let mut batch = VecDeque::with_capacity(slots.len());
        let mut done: Vec<Completion> = Vec::with_capacity(slots.len());
        let mut next = 0;
        let mut stop = false;
        loop {
            while next < self.count && !stop && !self.is_far_ahead(next, depth) {
                let Some(slot) = free.pop() else { break };
                let Some(request) = self.request(next, slot, &mut slots, ring)? else {
                    free.push(slot);
                    self.count = next;
                    break;
                };
                batch.push_back(request);
                next += 1;
            }
            // After the content was made: that takes its time and is none of the device's.
            let sent = clock.now();
            for request in &batch {
                slots[request.tag as usize].sent = sent;
            }
            device.submit(&mut batch);
            if free.len() == slots.len() {
                break;
            }
            // A quarter of the queue at once is worth a system call; a device with less in flight says so.
            ring.enter_for((device.outstanding() / 4).max(1), device.deadline().min(tick))
                .map_err(Failure::failed)?;
            device.poll(&mut done);
            let now = clock.now();
            for completion in done.drain(..) {
                let index = completion.tag as usize;
                let slot = slots[index];
                free.push(index);
                stop |= matches!(completion.result, Err(DeviceError::Gone));
                self.complete(slot, completion, now)?;
            }
            if now >= tick {
                tick = now.after(TICK);
                progress.set_position(self.seen.requests);
                stop |= self.output.is_interrupted();
            }
        }
        progress.finish_and_clear();
        Ok(next)
    }

    fn progress(&self) -> ProgressBar {
        // Hidden by itself when standard error is no terminal.
        let bar = if self.output.is_json() { ProgressBar::hidden() } else { ProgressBar::new(self.count) };
        bar.with_style(
            ProgressStyle::with_template("{bar:40} {percent}% {human_pos}/{human_len} {per_sec} eta {eta}")
                .expect("the template is right"),
        )
    }

    /// Completions are consumed in order for a hash or a file: a request that is late must not let
    /// the others run away with all the memory.
    fn is_far_ahead(&self, next: u64, depth: u32) -> bool {
        self.consumes_in_order() && next - self.early_first >= 4 * u64::from(depth)
    }

    fn consumes_in_order(&self) -> bool {
        matches!(self.job, Job::Read { .. }) && (self.hash.is_some() || self.sink.is_some())
    }

    /// Request `index`; `None` when the input is at its end.
    fn request(
        &mut self,
        index: u64,
        slot: usize,
        slots: &mut [Slot],
        ring: &Ring,
    ) -> Result<Option<Request>, Failure> {
        let bs = self.range.bs;
        let once = self.length.div_ceil(bs);
        let at = if self.range.random { self.random.below(self.length / bs) } else { index % once } * bs;
        let mut len = bs.min(self.length - at) as usize;
        let offset = self.range.offset + at;
        let mut buf = ring.pool().take(len);
        let mut force_unit_access = false;
        let op = match &self.job {
            Job::Read { .. } | Job::Verify => Op::Read,
            Job::Write { fua, .. } => {
                force_unit_access = *fua;
                if let Some(input) = &mut self.input {
                    let got = read_full(input, &mut buf)
                        .map_err(|error| Failure::failed(format!("cannot read the input: {error}")))?;
                    if got == 0 {
                        return Ok(None);
                    }
                    let block = self.backend.info().block_bytes as usize;
                    len = got.next_multiple_of(block);
                    buf[got..len].fill(0);
                    self.seen.padded_bytes += (len - got) as u64;
                    // The checksum is the input's, so that `sha256sum` agrees.
                    if let Some(hash) = &mut self.hash {
                        hash.update(&buf[..got]);
                    }
                } else {
                    fill(self.pattern, self.range.seed, offset, &mut buf);
                    if let Some(hash) = &mut self.hash {
                        hash.update(&buf[..len]);
                    }
                }
                Op::Write
            }
        };
        slots[slot] = Slot { index, offset, len, ..Slot::default() };
        Ok(Some(Request { tag: slot as u64, op, offset, len: len as u64, buf, force_unit_access }))
    }

    fn complete(&mut self, slot: Slot, completion: Completion, now: Nanos) -> Done {
        let Completion { buf, result, .. } = completion;
        self.seen.requests += 1;
        self.seen.latency.record(Nanos(now.0.saturating_sub(slot.sent.0)));
        match result {
            Ok(()) => self.seen.bytes += slot.len as u64,
            Err(error) => {
                self.seen.errors += 1;
                self.seen.first_error.get_or_insert((slot.offset, error));
                // What was not read has no checksum and leaves a hole in no file.
                self.hash = None;
                if self.sink.is_some() {
                    return Err(Failure::failed(format!("read at {}: {error}", slot.offset)));
                }
                return Ok(());
            }
        }
        match &self.job {
            Job::Verify => {
                let (block, seen) = (self.backend.info().block_bytes as usize, &mut self.seen);
                compare(self.pattern, self.range.seed, block, slot.offset, &buf[..slot.len], |wrong| {
                    seen.wrong_blocks += 1;
                    // The first by address, not by time.
                    if seen.first_wrong.as_ref().is_none_or(|first| wrong.offset < first.offset) {
                        seen.first_wrong = Some(wrong);
                    }
                });
            }
            Job::Read { .. } if self.consumes_in_order() => self.consume(slot, buf)?,
            _ => {}
        }
        Ok(())
    }

    /// Hands data on in the order of its addresses.
    fn consume(&mut self, slot: Slot, buf: Buf) -> Done {
        let place = (slot.index - self.early_first) as usize;
        if self.early.len() <= place {
            self.early.resize_with(place + 1, || None);
        }
        self.early[place] = Some((buf, slot.len));
        while let Some(Some((buf, len))) = self.early.front() {
            if let Some(hash) = &mut self.hash {
                hash.update(&buf[..*len]);
            }
            if let Some(sink) = &mut self.sink {
                let written = sink.write_all(&buf[..*len]);
                written.map_err(|error| Failure::failed(format!("cannot write the output: {error}")))?;
            }
            self.early.pop_front();
            self.early_first += 1;
        }
        Ok(())
    }

    /// What was written is stable when the command ends.
    fn flush(&mut self, device: &mut dyn Device, ring: &Ring) -> Done {
        let request =
            Request { tag: 0, op: Op::Flush, offset: 0, len: 0, buf: Buf::empty(), force_unit_access: false };
        match turn::one(ring, device, request).map_err(Failure::failed)?.result {
            Ok(()) | Err(DeviceError::Unsupported) => {}
            Err(error) => {
                self.seen.errors += 1;
                self.seen.first_error.get_or_insert((0, error));
            }
        }
        Ok(())
    }
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
