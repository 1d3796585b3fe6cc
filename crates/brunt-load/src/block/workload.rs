//! The user's description of a load: the parameters of SPEK, 2005, section 2.1, and those that have become common since.
//! Experiment files contain these; the command line builds them from flags.
//!
//! The rule: a description is checked once, by [`Workload::check`] and against its device; later code relies on that.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_block::{DeviceInfo, RingConfig};
use brunt_core::{Size, Span};
use brunt_result::OpKind;
use brunt_result::choice::{EngineSetting, RingMode};
use brunt_trace::TraceReading;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::patterns::OffsetDistribution;
use crate::block::processes::ArrivalProcess;
use crate::block::sizes::BlockSizes;
use crate::block::stride::Stride;
use crate::nfs::settings::NfsSettings;
use crate::nfs_replay::settings::NfsReplaySettings;
use crate::replay::settings::{AddressMap, Conflicts, ReplayContents, ReplayTiming};

mod check;
mod depth;
mod hosts;
mod steady;
mod sync;

pub use depth::DepthSearch;
pub(crate) use hosts::check_hosts;
pub use steady::Steady;
pub use sync::SyncWrites;

/// Maximum queue depth of one worker.
pub const QUEUE_DEPTH_MAX: u32 = 4096;
/// Maximum number of workers per run.
pub const WORKERS_MAX: u32 = 256;
/// Idle time, in milliseconds, after which the kernel's polling thread sleeps.
const SQPOLL_IDLE_MS: u32 = 100;

/// A workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Block sizes: a list with weights, or a distribution.
    pub blocks: BlockSizes,
    /// Share of reads among the requests, 0 to 1. Requests that are neither reads nor `trim` nor `write_zeroes` are
    /// writes.
    pub read: f64,
    /// Share of requests that unmap (trim, discard) blocks, 0 to 1.
    pub trim: f64,
    /// Share of requests that zero blocks without sending data (WRITE ZEROES), 0 to 1.
    pub write_zeroes: f64,
    /// Each worker flushes the device's cache after this many data-changing requests, like fio's
    /// `fsync`; 0: never. Flushes have their own row in results. (`flush_every` before Brunt 0.2.)
    #[serde(rename = "fsync", alias = "flush_every")]
    pub flush_every: u64,
    /// Each worker flushes the device's cache after its last request, like fio's `end_fsync`; the time of this flush is
    /// part of the run, so the rate includes it. A run that is cut short has no such flush.
    #[serde(skip_serializing_if = "is_default")]
    pub end_fsync: bool,
    /// Probability that a request starts where the previous one ended, 0 to 1.
    pub sequential: f64,
    /// Reads, writes and other kinds each continue where the previous request of their kind ended,
    /// like sequential requests of fio; otherwise each request continues where the previous one of
    /// any kind ended.
    #[serde(skip_serializing_if = "is_default")]
    pub sequential_per_kind: bool,
    /// With `sequential = 1`: a step between requests, forwards or backwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<Stride>,
    /// Distribution of random offsets.
    pub distribution: OffsetDistribution,
    /// Alignment: every random offset is a multiple of this, relative to the region's start. Default: the smallest size
    /// in `blocks`, as with fio's `blockalign` (512 B before Brunt 0.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub align: Option<Size>,
    /// Part of the device to use; default: all of it.
    pub region: Region,
    /// Maximum outstanding requests per worker.
    pub queue_depth: u32,
    /// Searches for the queue depth that saturates the target, or the largest one within a limit, before a point's
    /// first run, starting at `queue_depth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_search: Option<DepthSearch>,
    /// Completions to wait for at once, for at most 50 µs: saves system calls and context switches, but reported
    /// latencies can be up to 50 µs too long. 1: each completion is handled immediately.
    pub reap_batch: u32,
    /// Worker threads, each with its own queue.
    pub workers: u32,
    /// Hosts that run the workload, all at the same time: names of `[hosts.NAME]` with `ssh` or `agent`, or lab
    /// hosts. Each opens the target itself and issues its share of the requests with `workers` threads. Default: the
    /// machine that runs the experiment, or the lab's worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Which system calls are used for requests; `auto` measures which engine is faster. Default: the engine set with
    /// `--engine` or BRUNT_ENGINE on the host that issues the requests, otherwise `io_uring` where the kernel allows
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineSetting>,
    /// How requests are submitted to the kernel and completions detected; `auto` measures which mode is fastest.
    #[serde(skip_serializing_if = "is_default")]
    pub ring: RingMode,
    /// When requests are issued.
    pub arrival: Arrival,
    /// Issues requests in bursts with pauses between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Warm-up before measuring; its requests are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_up: Option<RampUp>,
    /// When a run ends: at the first of these conditions.
    pub stop: StopCondition,
    /// How long to wait for outstanding requests at the end of a run; requests still outstanding then are counted as
    /// hanging.
    pub drain: Span,
    /// Time limit of a request; 0: none.
    pub timeout: Span,
    /// Retries of failed requests.
    pub retry: Retry,
    /// Reporting interval of the time series: 10 ms to 1 h, or 0 for the whole run. Default: a
    /// twentieth of `stop.time`, 50 ms to 1 s, or shorter so that faults start and end at its
    /// multiples.
    pub interval: Span,
    /// Content of written data.
    pub data: DataSettings,
    /// When a write completes, like fio's `sync`: `none`, when it is in the device's cache; `dsync`, when its data is on
    /// stable storage (RWF_DSYNC or FUA). Default: `none`. (`force_unit_access = true` before Brunt 0.2.)
    #[serde(alias = "force_unit_access", skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncWrites>,
    /// Data verification: every written block carries its address, a generation and a checksum, which reads check. Blocks that
    /// `write_zeroes` zeroed are expected to be zeros; trimmed ones may hold anything until they are written again. A run with
    /// wrong data exits with 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySettings>,
    /// Also records every single request (docs/results.md).
    pub record_requests: bool,
    /// Makes calls to an NFS server instead of requests to a device. The target is a folder of the
    /// server: `nfs://server/export/folder/`. `blocks` are the sizes of READ and WRITE,
    /// `distribution` selects the files. Omit keys that describe block requests (`read`,
    /// `sequential` and others).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsSettings>,
    /// Replays the requests of this block trace with their original timing. Omit keys that describe
    /// requests (`blocks`, `read`, `arrival` and others).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<std::path::PathBuf>,
    /// With a trace of `brunt capture`: replays its NFS calls instead of block requests. The target is a folder of a
    /// server: `nfs://server/export/folder/`. Each run creates the files that the trace needs in its own directory,
    /// and removes it afterwards. Of the other keys for traces, only `speed`, `timing` and `spin` apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs_replay: Option<NfsReplaySettings>,
    /// With a trace: the name of its format, if it cannot be detected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// With a trace: details that its format leaves open, and how its rows are read; like the
    /// options of `brunt trace` with the same names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<TraceReading>,
    /// With a trace: speed relative to the trace's timing, such as 2 for twice as fast; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// With a trace: when requests are due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<ReplayTiming>,
    /// With a trace: where its requests go on the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<AddressMap>,
    /// With a trace: time at which to begin, from its first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Span>,
    /// With a trace: duration of the part to replay, in the trace's time.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub length: Option<Span>,
    /// With a trace: how many times to replay it, one after another.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
    /// With a trace: which of its devices go to which target, such as `{ "hm-0" = "disk", "hm-1" = "log" }`. Several
    /// targets are driven by one replay, which keeps the order of requests. Without this key, each target gets all
    /// devices, one after the other.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, String>,
    /// With a trace: how to handle a request that overlaps one in flight, if either of them changes data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<Conflicts>,
    /// With a trace: the data of writes; `trace` (default): equal data where the trace's hashes of
    /// contents are equal, different data elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<ReplayContents>,
    /// With a trace: how long before a request is due its worker stops sleeping and watches the clock; 0 for never;
    /// default 200us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin: Option<Span>,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            blocks: BlockSizes::only(Size(4096)),
            read: 1.0,
            trim: 0.0,
            write_zeroes: 0.0,
            flush_every: 0,
            end_fsync: false,
            sequential: 0.0,
            sequential_per_kind: false,
            stride: None,
            distribution: OffsetDistribution::default(),
            align: None,
            region: Region::default(),
            queue_depth: 1,
            depth_search: None,
            reap_batch: 1,
            workers: 1,
            hosts: Vec::new(),
            engine: None,
            ring: RingMode::default(),
            arrival: Arrival::Closed {},
            burst: None,
            ramp_up: None,
            stop: StopCondition::default(),
            drain: Span(Duration::from_secs(10)),
            timeout: Span(Duration::from_secs(30)),
            retry: Retry::default(),
            interval: Span(Duration::from_secs(1)),
            data: DataSettings::default(),
            sync: None,
            verify: None,
            record_requests: false,
            nfs: None,
            trace: None,
            nfs_replay: None,
            format: None,
            reading: None,
            speed: None,
            timing: None,
            map: None,
            from: None,
            length: None,
            repeat: None,
            devices: BTreeMap::new(),
            conflicts: None,
            contents: None,
            spin: None,
        }
    }
}

/// A part of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Region {
    /// Offset from the start of the device.
    pub start: Size,
    /// Length; default: to the end of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Size>,
}

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum Arrival {
    /// Closed loop: a new request is issued when one completes. While the target stalls no requests are issued, so
    /// latencies hide the stall.
    Closed {},
    /// Open loop: requests are due at scheduled times regardless of the target, and latency counts
    /// from the due time.
    Open {
        /// Requests per second, all workers together.
        rate: f64,
        /// Distribution of the times between requests.
        #[serde(default)]
        process: ArrivalProcess,
        /// A request that is this late is skipped and counted.
        #[serde(default = "ten_seconds")]
        skip_after: Span,
    },
    /// Searches for the highest open-loop rate at which a latency percentile stays below a limit.
    Search {
        /// Percentile of the response time, such as 99.
        percentile: f64,
        /// Limit of the percentile.
        limit: Span,
        /// Starting rate in requests per second.
        #[serde(default = "thousand")]
        rate: f64,
        /// Stops when the relative error of the rate is at most this.
        #[serde(default = "two_percent")]
        tolerance: f64,
        /// Distribution of the times between requests.
        #[serde(default)]
        process: ArrivalProcess,
    },
}

/// Bursts of requests with pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Requests per worker in a burst.
    pub requests: u64,
    /// Pause. Closed loop: from the last completion of a burst to the first request of the next. Open loop: added to
    /// the time between these two requests.
    pub interval: Span,
}

/// Warm-up before measuring, until both conditions hold. Requests during the warm-up are not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RampUp {
    /// Minimum requests per worker.
    pub requests: u64,
    /// Minimum time.
    pub time: Span,
}

/// When a run ends. Ramp-up does not count towards these limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopCondition {
    /// Ends a run after this many requests of all workers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Ends a run after requests for this many bytes, of all workers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
    /// Ends a run after this many passes over the region, of all workers together; with `stride`, a pass consists of
    /// the bytes that it touches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<u32>,
    /// Ends a run after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Ends a run when throughput is in steady state as defined by SNIA (Solid State Storage Performance Test
    /// Specification): over five rounds its range is within 20 % of the mean and the slope of a linear fit accounts
    /// for at most 10 % of the mean. The keys of `steady` set a different rule, such as fio's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
}

/// Retries of failed requests (SPEK, 2005, section 3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Maximum retries per request. The response time includes all attempts.
    pub count: u32,
    /// Pause before each retry.
    pub delay: Span,
    /// Which failures to retry.
    pub on: RetryOn,
}

/// Which failures to retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetryOn {
    /// All failures, as in the paper.
    #[default]
    Any,
    /// Temporary conditions only: BUSY, TASK SET FULL, UNIT ATTENTION, ABORTED COMMAND, NOT READY, timeouts, EAGAIN,
    /// EINTR, EBUSY.
    Transient,
}

/// Content of written data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataSettings {
    /// Share of each 4 KiB chunk that compression can save, 0 to 1.
    pub compressible: f64,
    /// Share of 4 KiB chunks that duplicate others, 0 to 1.
    pub dedupable: f64,
}

/// Verification of written data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerifySettings {
    /// Folder for journals of acknowledged writes, one per worker, including workers on other hosts. With these
    /// journals, `brunt verify` can later distinguish lost writes from writes that were never acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<std::path::PathBuf>,
}

impl Workload {
    /// Returns the kinds of the workload's requests, in the order of their figures.
    pub fn kinds(&self) -> Vec<OpKind> {
        if let Some(nfs) = &self.nfs {
            return nfs.kinds();
        }
        let more = [
            (OpKind::Unmap, self.trim > 0.0),
            (OpKind::WriteZeroes, self.write_zeroes > 0.0),
            (OpKind::Flush, self.flush_every > 0 || self.end_fsync),
        ];
        let more = more
            .into_iter()
            .filter(|(_, made)| *made)
            .map(|(kind, _)| kind);
        [OpKind::Read, OpKind::Write]
            .into_iter()
            .chain(more)
            .collect()
    }

    /// Returns true if the workload consists of requests to a block device, rather than a replay or NFS calls.
    pub fn describes_blocks(&self) -> bool {
        self.trace.is_none() && self.nfs.is_none()
    }

    /// Returns true if the workload writes data.
    pub(super) fn writes(&self) -> bool {
        self.read + self.trim + self.write_zeroes < 1.0
    }

    /// Returns true if the workload changes data on the device.
    pub fn changes_data(&self) -> bool {
        self.read < 1.0
    }

    /// Makes the workload read-only.
    pub(super) fn only_reads(&mut self) {
        (self.read, self.trim, self.write_zeroes) = (1.0, 0.0, 0.0);
        (self.flush_every, self.end_fsync) = (0, false);
    }

    /// Returns the duration of a run as far as it is known, and whether it is exact.
    pub fn time(&self) -> (Duration, bool) {
        let ramp = self.ramp_up.map_or(Duration::ZERO, |ramp| ramp.time.0);
        let stop = &self.stop;
        let mut ends: Vec<Duration> = stop.time.iter().map(|time| time.0).collect();
        ends.extend(stop.steady.map(|steady| steady.longest()));
        if let (Arrival::Open { rate, .. }, Some(requests)) = (self.arrival, stop.requests) {
            ends.extend(Duration::try_from_secs_f64(requests as f64 / rate).ok());
        }
        match ends.into_iter().min() {
            Some(end) => (
                ramp + end.min(stop.steady.map_or(end, |steady| steady.shortest())),
                true,
            ),
            None => (ramp, false),
        }
    }

    /// Returns the size of the largest block.
    pub fn block_bytes_max(&self) -> u64 {
        let sizes = self.blocks.corners().into_iter();
        sizes.map(|size| size.0).max().unwrap_or(0)
    }

    /// Returns the size of the smallest block, in bytes.
    fn block_bytes_min(&self) -> u64 {
        let sizes = self.blocks.corners().into_iter();
        sizes.map(|size| size.0).min().unwrap_or(512)
    }

    /// Returns true if each write has to be on stable storage before it completes.
    pub fn writes_are_stable(&self) -> bool {
        self.sync.is_some_and(SyncWrites::is_stable)
    }

    /// Returns the alignment of random offsets, in bytes: `align`, or the smallest block.
    pub fn align_bytes(&self) -> u64 {
        self.align.map_or(self.block_bytes_min(), |align| align.0)
    }

    /// Returns the alignment of offsets on this device: [`Workload::align_bytes`], rounded up to whole blocks.
    pub fn alignment(&self, info: &DeviceInfo) -> u64 {
        let (align, block) = (self.align_bytes(), u64::from(info.block_bytes));
        if align.is_multiple_of(block) {
            align
        } else {
            align.next_multiple_of(block)
        }
    }
}

/// Returns `base` in this mode. If `Auto` has not been resolved, it means interrupts.
pub(super) fn ring_config(mode: RingMode, base: RingConfig) -> RingConfig {
    match mode {
        RingMode::Interrupt | RingMode::Auto => base,
        RingMode::Sqpoll => RingConfig {
            sqpoll_idle_ms: Some(SQPOLL_IDLE_MS),
            ..base
        },
        RingMode::Poll => RingConfig {
            iopoll: true,
            ..base
        },
    }
}

fn thousand() -> f64 {
    1000.0
}
fn two_percent() -> f64 {
    0.02
}
fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
