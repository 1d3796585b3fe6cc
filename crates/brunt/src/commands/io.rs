//! `brunt io`: the smallest client of a device: read, write, verify a range, ask what it is. For a
//! person who pokes at a target, and for tests that need data whose content is known.
//!
//! The content that `write` makes follows from the seed and the offset alone, so `verify` with any
//! block size and order knows what has to be there. The one rule: one thread, one ring; the loop
//! in [`Run::go`] does nothing that a request does not need.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use brunt_block::{Backend, Buf, Completion, Device, DeviceError, Health, Op, Request, Ring, RingConfig};
use brunt_core::random::Random;
use brunt_core::units::{format_size, parse_size};
use brunt_core::{Clock, Cost, Histogram, Nanos};
use brunt_iscsi::initiator::{connect, url::Config};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cli::{Done, Failure, Output};
use crate::devices;

/// Content is made in units of so many bytes: the smallest logical block.
const SECTOR_BYTES: u64 = 512;
/// How often progress is drawn and Ctrl-C looked at.
const TICK: Duration = Duration::from_millis(100);

/// Read, write or verify a range of a device, or ask what it is.
#[derive(Args)]
pub struct Io {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Read a range, and print what it cost and its checksum.
    #[command(
        after_help = "Examples:\n  # the first GiB into a file, with its checksum\n  brunt io read iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --length 1GiB --bs 1M --output disk.img"
    )]
    Read {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        sum: Sum,
        /// Put the data into this file (`-`: standard output).
        #[arg(long, value_name = "FILE", conflicts_with = "random")]
        output: Option<String>,
    },
    /// Write a range with content that follows from a seed, or from a file.
    #[command(
        after_help = "Examples:\n  # fill a new file, 1 MiB at a time\n  brunt io write 'disk.img?size=1GiB&create=yes' --bs 1M\n  # put an image on a LUN\n  brunt io write iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --input disk.img --bs 1M"
    )]
    Write {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        content: Content,
        #[command(flatten)]
        sum: Sum,
        /// Write what is in this file (`-`: standard input); the last block is filled with zeros.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["random", "pattern"])]
        input: Option<String>,
        /// Each write is on stable storage when it completes.
        #[arg(long)]
        fua: bool,
        /// Write even when the device holds a partition table or a file system.
        #[arg(long)]
        overwrite: bool,
    },
    /// Read a range and compare it with what `write` made of the same seed and pattern.
    #[command(
        after_help = "Examples:\n  # whether all is there that `brunt io write` wrote with seed 7\n  brunt io verify iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --seed 7"
    )]
    Verify {
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        content: Content,
    },
    /// Print size, blocks, provisioning, cache, and who made it.
    #[command(
        after_help = "Examples:\n  # what a LUN is\n  brunt io capacity iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0"
    )]
    Capacity {
        /// What to look at.
        url: String,
    },
    /// List the targets behind an iSCSI portal (SendTargets).
    #[command(
        after_help = "Examples:\n  # which targets there are, and where\n  brunt io targets iscsi://127.0.0.1:3260"
    )]
    Targets {
        /// `iscsi://[user%secret@]host[:port]`.
        url: String,
    },
}

/// Which requests.
#[derive(Args)]
struct Range {
    /// A path, null:SIZE, memory:SIZE, or `iscsi://[user%secret@]host[:port]/target-name/lun`.
    url: String,
    /// Where the range begins.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// How long it is [default: to the end of the device].
    #[arg(long, value_parser = parse_size)]
    length: Option<u64>,
    /// Bytes of one request.
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    bs: u64,
    /// Requests under way at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=16384))]
    depth: u32,
    /// How many requests [default: the range once].
    #[arg(long)]
    count: Option<u64>,
    /// In random order, blocks drawn with replacement.
    #[arg(long)]
    random: bool,
    /// What the content and the random order follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Who looks for completions.
    #[arg(long, value_enum, default_value_t = Poll::No)]
    poll: Poll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Poll {
    /// Interrupts wake the thread.
    No,
    /// A kernel thread takes submissions (SQPOLL): no system calls, and a core gone.
    Thread,
    /// The device's completion queue is polled (IOPOLL): block devices with poll queues, and no iSCSI.
    Device,
}

impl Poll {
    fn ring(self) -> RingConfig {
        // So long without a request before the kernel's thread sleeps, in milliseconds.
        const IDLE_MS: u32 = 100;
        RingConfig {
            sqpoll_idle_ms: (self == Poll::Thread).then_some(IDLE_MS),
            iopoll: self == Poll::Device,
            ..RingConfig::default()
        }
    }
}

/// What data is made or expected.
#[derive(Args)]
struct Content {
    /// What is written, and expected by verify.
    #[arg(long, value_enum, default_value_t = Pattern::Seeded)]
    pattern: Pattern,
}

/// What is made of the data that goes by.
#[derive(Args)]
struct Sum {
    /// Checksum of the data in address order; not for random order. It costs processor time.
    #[arg(long, value_enum, default_value_t = Checksum::Sha256)]
    checksum: Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Random numbers from the seed and the offset.
    Seeded,
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Checksum {
    /// What `sha256sum` prints for the same bytes.
    Sha256,
    None,
}

impl super::Subcommand for Io {
    const NAME: &'static str = "io";
    const NAMES_DEVICES: bool = true;
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt io capacity iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0", "what is behind an iSCSI URL"),
        ("brunt io write memory:1GiB --bs 1M --depth 8", "how fast memory takes data"),
        (
            "brunt io read iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --random --count 100000",
            "100,000 random reads of 4 KiB, 32 at a time",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        match self.action {
            Action::Read { range, sum, output: file } => {
                Run::new(range, Pattern::Seeded, sum.checksum, Job::Read { file }, output)?.go()
            }
            Action::Write { range, content, sum, input, fua, overwrite } => {
                let job = Job::Write { file: input, fua, overwrite };
                Run::new(range, content.pattern, sum.checksum, job, output)?.go()
            }
            Action::Verify { range, content } => {
                Run::new(range, content.pattern, Checksum::None, Job::Verify, output)?.go()
            }
            Action::Capacity { url } => capacity(&url, output),
            Action::Targets { url } => targets(&url, output),
        }
    }
}

fn capacity(url: &str, output: &Output) -> Done {
    let backend = devices::open_to_look(url)?;
    let info = backend.info();
    let yes = |value| if value { "yes" } else { "no" };
    output.line(&info.name);
    output.line(format_args!(
        "  size             {} ({} bytes)",
        format_size(info.size_bytes),
        info.size_bytes
    ));
    output.line(format_args!("  logical block    {}", format_size(info.block_bytes.into())));
    output.line(format_args!("  physical block   {}", format_size(info.physical_block_bytes.into())));
    output.line(format_args!("  longest request  {}", format_size(info.transfer_bytes_max.into())));
    output.line(format_args!("  unmap            {}", yes(info.unmap)));
    output.line(format_args!("  volatile cache   {}", yes(info.volatile_cache)));
    output.line(format_args!("  read-only        {}", yes(info.read_only)));
    for note in &info.notes {
        output.line(format_args!("  note             {note}"));
    }
    output.object(&json!({
        "device": info.name,
        "size_bytes": info.size_bytes,
        "block_bytes": info.block_bytes,
        "physical_block_bytes": info.physical_block_bytes,
        "transfer_bytes_max": info.transfer_bytes_max,
        "unmap": info.unmap,
        "volatile_cache": info.volatile_cache,
        "read_only": info.read_only,
        "notes": info.notes,
    }));
    Ok(())
}

fn targets(url: &str, output: &Output) -> Done {
    let place = url.strip_prefix("iscsi:").ok_or_else(|| {
        Failure::usage(format!("'{url}' is no iSCSI URL")).advise("write iscsi://host:port")
    })?;
    let config = Config::parse(place, &mut Default::default(), &|key| std::env::var(key).ok())
        .map_err(Failure::usage)?;
    let found = connect::discover(&config).map_err(Failure::failed)?;
    for target in &found {
        output.line(format_args!("{}\t{}", target.name, target.addresses.join(" ")));
    }
    let list: Vec<Value> =
        found.iter().map(|t| json!({ "name": t.name, "addresses": t.addresses })).collect();
    output.object(&json!({ "portal": config.name(), "targets": list }));
    Ok(())
}

enum Job {
    Read { file: Option<String> },
    Write { file: Option<String>, fua: bool, overwrite: bool },
    Verify,
}

impl Job {
    fn name(&self) -> &'static str {
        match self {
            Job::Read { .. } => "read",
            Job::Write { .. } => "write",
            Job::Verify => "verify",
        }
    }
}

/// One run over one device.
struct Run<'a> {
    range: Range,
    pattern: Pattern,
    job: Job,
    output: &'a Output,
    backend: std::sync::Arc<dyn Backend>,
    /// In bytes; whole blocks.
    length: u64,
    /// Requests to make; input that ends early makes it fewer.
    count: u64,
    input: Option<Box<dyn Read>>,
    sink: Option<Box<dyn Write>>,
    hash: Option<Sha256>,
    random: Random,
    /// In-order consumption (hash, sink): completions that wait for their turn.
    early: VecDeque<Option<(Buf, usize)>>,
    early_first: u64,
    seen: Seen,
}

/// What came of it.
struct Seen {
    latency: Histogram,
    requests: u64,
    bytes: u64,
    errors: u64,
    first_error: Option<(u64, DeviceError)>,
    wrong_blocks: u64,
    first_wrong: Option<Wrong>,
    padded_bytes: u64,
    /// The input goes on behind the end of the device.
    input_left: bool,
}

/// A block that is not what it should be.
struct Wrong {
    offset: u64,
    expected: [u8; 8],
    found: [u8; 8],
    zeros: bool,
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
    fn new(
        range: Range,
        pattern: Pattern,
        checksum: Checksum,
        job: Job,
        output: &'a Output,
    ) -> Result<Run<'a>, Failure> {
        let backend = devices::open(&range.url, !matches!(job, Job::Write { .. }))?;
        let info = backend.info();
        let block = u64::from(info.block_bytes);
        let whole = |what: &str, bytes: u64| match bytes % block {
            0 => Ok(()),
            _ => Err(Failure::usage(format!("--{what} {bytes} is not in whole blocks of {block} bytes"))
                .advise(format!("write --{what} {}", bytes.next_multiple_of(block)))),
        };
        whole("offset", range.offset)?;
        whole("bs", range.bs)?;
        let room = info.size_bytes.checked_sub(range.offset).filter(|room| *room > 0).ok_or_else(|| {
            Failure::usage(format!("--offset {} is not inside the {} bytes", range.offset, info.size_bytes))
        })?;
        let length = range.length.unwrap_or(room);
        whole("length", length)?;
        if length == 0 || length > room {
            return Err(Failure::usage(format!(
                "--length {length}: there are {room} bytes from the offset on"
            )));
        }
        if range.bs == 0 || range.bs > u64::from(info.transfer_bytes_max) {
            return Err(Failure::usage(format!(
                "--bs {}: one request moves {} to {} bytes here",
                range.bs, block, info.transfer_bytes_max
            )));
        }
        if range.random && range.bs > length {
            return Err(Failure::usage("--bs is longer than the range"));
        }
        if let Job::Write { overwrite, .. } = &job {
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
        Ok(Run {
            job,
            output,
            length,
            count,
            input,
            sink,
            hash: hashes.then(Sha256::new),
            random,
            early: VecDeque::new(),
            early_first: 0,
            seen: Seen {
                latency: Histogram::new(),
                requests: 0,
                bytes: 0,
                errors: 0,
                first_error: None,
                wrong_blocks: 0,
                first_wrong: None,
                padded_bytes: 0,
                input_left: false,
            },
            backend,
            range,
            pattern,
        })
    }

    fn go(mut self) -> Done {
        let ring = Ring::new(self.range.poll.ring()).map_err(Failure::failed)?;
        let depth = self.range.depth;
        let mut device = self.backend.open(&ring, depth).map_err(|error| {
            Failure::failed(format!("{}: cannot open: {error}", self.backend.info().name))
        })?;
        let progress = self.progress();
        let (clock, start_cost, start_stats) = (Clock::Monotonic, Cost::now(), ring.stats());
        let start = clock.now();
        let mut tick = start.after(TICK);
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
                let Some(request) = self.request(next, slot, &mut slots, &ring)? else {
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
        if matches!(self.job, Job::Write { .. }) {
            self.flush(&mut *device, &ring)?;
        }
        let elapsed = clock.now().since(start);
        let cost = Cost::now().since(start_cost);
        let stats = ring.stats();
        progress.finish_and_clear();
        if let (Some(input), None, None) = (&mut self.input, self.range.length, self.range.count)
            && next == self.count
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
        let complete = self.seen.requests == self.count && next == self.count && !self.seen.input_left;
        let system_calls = stats.system_calls - start_stats.system_calls;
        self.report(elapsed, cost, system_calls, &health, complete)
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
            Job::Verify => self.compare(slot.offset, &buf[..slot.len]),
            Job::Read { .. } if self.consumes_in_order() => {
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
                        written
                            .map_err(|error| Failure::failed(format!("cannot write the output: {error}")))?;
                    }
                    self.early.pop_front();
                    self.early_first += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn compare(&mut self, offset: u64, found: &[u8]) {
        let block = self.backend.info().block_bytes as usize;
        let mut expected = [0; SECTOR_BYTES as usize];
        for (number, found) in found.chunks(block).enumerate() {
            let block_offset = offset + (number * block) as u64;
            let mut difference = None;
            for (sector, found) in found.chunks(SECTOR_BYTES as usize).enumerate() {
                let sector_offset = block_offset + sector as u64 * SECTOR_BYTES;
                fill(self.pattern, self.range.seed, sector_offset, &mut expected);
                if expected[..found.len()] != *found {
                    let byte = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0) & !7;
                    let eight = |bytes: &[u8]| bytes[byte..byte + 8].try_into().expect("eight bytes");
                    difference = Some((eight(&expected), eight(found)));
                    break;
                }
            }
            let Some((expected, eight)) = difference else { continue };
            self.seen.wrong_blocks += 1;
            // The first by address, not by time.
            if self.seen.first_wrong.as_ref().is_none_or(|wrong| block_offset < wrong.offset) {
                let zeros = found.iter().all(|byte| *byte == 0);
                self.seen.first_wrong = Some(Wrong { offset: block_offset, expected, found: eight, zeros });
            }
        }
    }

    /// What was written is stable when the command ends.
    fn flush(&mut self, device: &mut dyn Device, ring: &Ring) -> Done {
        let request =
            Request { tag: 0, op: Op::Flush, offset: 0, len: 0, buf: Buf::empty(), force_unit_access: false };
        let mut batch = VecDeque::from([request]);
        let mut done = Vec::new();
        device.submit(&mut batch);
        while done.is_empty() {
            ring.enter(device.deadline()).map_err(Failure::failed)?;
            device.poll(&mut done);
        }
        match done[0].result {
            Ok(()) | Err(DeviceError::Unsupported) => {}
            Err(error) => {
                self.seen.errors += 1;
                self.seen.first_error.get_or_insert((0, error));
            }
        }
        Ok(())
    }

    fn report(
        self,
        elapsed: Duration,
        cost: Cost,
        system_calls: u64,
        health: &Health,
        complete: bool,
    ) -> Done {
        let seen = &self.seen;
        let info = self.backend.info();
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let requests = seen.requests.max(1) as f64;
        let us = |time: Option<Nanos>| time.unwrap_or_default().0 as f64 / 1000.0;
        let latency = &seen.latency;
        let (min, max) = (us(latency.min()), us(latency.max()));
        let (p50, p99) = (us(latency.percentile(50.0)), us(latency.percentile(99.0)));
        let mean = latency.mean().unwrap_or(0.0) / 1000.0;
        let (iops, mb_per_s) = (seen.requests as f64 / seconds, seen.bytes as f64 / seconds / 1e6);
        let cpu_us = cost.cpu().as_secs_f64() * 1e6 / requests;
        let checksum = self.hash.filter(|_| complete).map(|hash| hex(&hash.finalize()));
        // With data on standard output, what is for people goes to standard error.
        let data_on_stdout = matches!(&self.job, Job::Read { file: Some(path) } if path == "-");
        let say = |text: std::fmt::Arguments<'_>| match data_on_stdout {
            true => self.output.note(text),
            false => self.output.line(text),
        };
        let order = if self.range.random { "random" } else { "sequential" };
        let what = self.job.name();
        say(format_args!(
            "{what} {}: {} {order}, depth {}{}",
            info.name,
            format_size(self.range.bs),
            self.range.depth,
            if complete { "" } else { " (incomplete)" }
        ));
        say(format_args!(
            "  requests   {} of {}, {} in {seconds:.3} s",
            seen.requests,
            self.count,
            format_size(seen.bytes)
        ));
        say(format_args!("  rate       {iops:.0} IOPS, {mb_per_s:.1} MB/s"));
        say(format_args!(
            "  latency    min {min:.1}, mean {mean:.1}, p50 {p50:.1}, p99 {p99:.1}, max {max:.1} µs"
        ));
        say(format_args!(
            "  errors     {}, retries {}, time-outs {}, reconnects {}",
            seen.errors, health.retries, health.timeouts, health.reconnects
        ));
        say(format_args!(
            "  cost       {cpu_us:.2} µs CPU ({:.2} user), {:.3} system calls, {:.3} context switches a request",
            cost.user.as_secs_f64() * 1e6 / requests,
            system_calls as f64 / requests,
            cost.switches() as f64 / requests
        ));
        if let Some(checksum) = &checksum {
            say(format_args!("  sha256     {checksum}"));
        }
        if seen.padded_bytes > 0 {
            say(format_args!("  padding    {} zeros behind the input's end", seen.padded_bytes));
        }
        if matches!(self.job, Job::Verify) {
            say(format_args!("  wrong      {} blocks", seen.wrong_blocks));
        }
        for note in &info.notes {
            say(format_args!("  note       {note}"));
        }
        if let Some(trouble) = &health.trouble {
            say(format_args!("  trouble    {trouble}"));
        }
        let wrong = seen.first_wrong.as_ref().map(|wrong| {
            json!({
                "offset": wrong.offset, "expected": hex(&wrong.expected), "found": hex(&wrong.found),
                "zeros": wrong.zeros,
            })
        });
        let first_error = seen.first_error.map(|(offset, error)| format!("at {offset}: {error}"));
        self.output.object(&json!({
            "action": what,
            "device": info.name,
            "order": order,
            "offset": self.range.offset,
            "length": self.length,
            "block_size": self.range.bs,
            "depth": self.range.depth,
            "seed": self.range.seed,
            "complete": complete,
            "requests": seen.requests,
            "bytes": seen.bytes,
            "seconds": seconds,
            "iops": iops,
            "mb_per_s": mb_per_s,
            "latency_us": {
                "min": min, "mean": mean, "p50": p50, "p99": p99, "max": max,
            },
            "errors": seen.errors,
            "first_error": first_error,
            "retries": health.retries,
            "timeouts": health.timeouts,
            "reconnects": health.reconnects,
            "trouble": health.trouble,
            "cpu_us_per_request": cpu_us,
            "system_calls_per_request": system_calls as f64 / requests,
            "context_switches_per_request": cost.switches() as f64 / requests,
            "sha256": checksum,
            "wrong_blocks": matches!(self.job, Job::Verify).then_some(seen.wrong_blocks),
            "first_wrong": wrong,
            "notes": info.notes,
        }));
        if let Some(wrong) = &seen.first_wrong {
            return Err(Failure::failed(format!(
                "{} blocks are wrong, the first at offset {}: expected {}…, found {}…{}",
                seen.wrong_blocks,
                wrong.offset,
                hex(&wrong.expected),
                hex(&wrong.found),
                if wrong.zeros { " (the whole block is zeros)" } else { "" }
            )));
        }
        if let Some(error) = first_error {
            let failure = Failure::failed(format!("{} requests failed, the first {error}", seen.errors));
            return Err(match &health.trouble {
                Some(trouble) => {
                    failure.advise(format!("look at the target; the last trouble was: {trouble}"))
                }
                None => failure,
            });
        }
        if seen.input_left {
            return Err(Failure::failed(format!(
                "the input is longer than the {} bytes of the device from the offset on; the rest is not written",
                self.length
            ))
            .advise("give --length to write a part of it on purpose"));
        }
        if !complete {
            return Err(Failure::failed("interrupted; what is printed is of the requests made so far"));
        }
        Ok(())
    }
}

/// The content of `bytes` at `offset`, which is a multiple of the sector.
fn fill(pattern: Pattern, seed: u64, offset: u64, bytes: &mut [u8]) {
    match pattern {
        Pattern::Zeros => bytes.fill(0),
        Pattern::Ones => bytes.fill(0xff),
        Pattern::Seeded => {
            for (number, sector) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
                Random::for_part(seed, offset / SECTOR_BYTES + number as u64).fill(sector);
            }
        }
    }
}

fn open_input(path: &str) -> Result<Box<dyn Read>, Failure> {
    if path == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(file))
}

fn open_sink(path: &str) -> Result<Box<dyn Write>, Failure> {
    if path == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(file))
}

/// As much as there is, up to the buffer's length.
fn read_full(input: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buf.len() {
        match input.read(&mut buf[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: content follows from seed and offset alone, however it is cut.
    #[test]
    fn content_does_not_depend_on_the_block_size() {
        let mut whole = vec![0; 8192];
        fill(Pattern::Seeded, 7, 4096, &mut whole);
        for size in [512, 1024, 4096] {
            for start in (0..8192).step_by(size) {
                let mut part = vec![0; size];
                fill(Pattern::Seeded, 7, 4096 + start as u64, &mut part);
                assert!(part == whole[start..start + size]);
            }
        }
        let mut other = vec![0; 8192];
        fill(Pattern::Seeded, 8, 4096, &mut other);
        assert!(other[..512] != whole[..512] && whole[..512] != whole[512..1024]);
    }
}
