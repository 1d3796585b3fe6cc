//! Summarizes a trace: number of requests by operation and size, rates, and footprint on the
//! devices. Fed by the trace reader, shown by `brunt trace info`.
//!
//! The rule: memory does not grow with the trace; estimates state their precision.

use std::collections::BTreeMap;

use brunt_core::{Histogram, HyperLogLog, Nanos};
use serde::Serialize;

use crate::digest::{DigestBuilder, StreamDigest};
use crate::format::Format;
use crate::locality::{BLOCK_BYTES, Reuse, ReuseSampler, mixed};
use crate::phases::{
    Arrivals, Burstiness, Depth, DepthCounter, HotExtent, HotExtents, RunCounter, Runs, WorkingSet,
    WorkingSets,
};
use crate::reader::{RowLedger, TraceReader};
use crate::record::{BlockRequest, TraceOp};
use crate::spread::{SizeClass, SizeClasses, Stretch, Stretches};

/// Maximum number of different sizes that are counted individually.
const SIZES_MAX: usize = 4096;
/// The footprint counts at most this much of a request, so a damaged length can't cost hours.
const FOOTPRINT_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of devices that are named.
const DEVICE_NAMES: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// The summary of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    /// Its format.
    pub format: &'static str,
    /// What the format leaves ambiguous, and how it was interpreted.
    pub format_note: &'static str,
    /// Requests, unreadable rows, times that run backwards.
    #[serde(flatten)]
    pub ledger: RowLedger,
    /// Whether requests are in time order instead of file order.
    pub sorted: bool,
    /// The digests of the request stream.
    pub digest: StreamDigest,
    /// From the earliest request to the latest, in seconds.
    pub span_s: f64,
    /// Devices.
    pub devices: u64,
    /// Names of the first devices, in order of appearance.
    pub device_names: Vec<String>,
    /// Requests and bytes by operation.
    pub ops: BTreeMap<TraceOp, Counted>,
    /// The most frequent sizes of reads and writes, at most ten, most frequent first.
    pub sizes: Vec<SizeCount>,
    /// The sizes of all reads and writes, by powers of two.
    pub size_classes: Vec<SizeClass>,
    /// The arrival rate.
    pub rate: Rate,
    /// Requests and bytes over time, in up to 512 intervals of equal length.
    pub over_time: Vec<Stretch>,
    /// The bytes that reads and writes touched.
    pub footprint: Footprint,
    /// Share of reads and writes that start where the previous one on their device ended; `None` if there are none.
    pub sequential_share: Option<f64>,
    /// Runs of requests that each start where the previous one on their device ended.
    pub runs: Runs,
    /// The 1 MiB extents in which most requests start, at most ten, busiest first.
    pub hot_extents: Vec<HotExtent>,
    /// The bytes that reads and writes touched in each interval; empty if times run backwards.
    pub working_sets: Vec<WorkingSet>,
    /// Reuse of 4 KiB blocks.
    pub reuse: Option<Reuse>,
    /// Response times, if the trace contains them.
    pub response: Option<Response>,
    /// Requests in flight, if the trace contains response times and times do not run backwards.
    pub depth: Option<Depth>,
}

/// Requests of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The number of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A request size and its frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// The size.
    pub bytes: u64,
    /// The number of requests of this size.
    pub requests: u64,
}

/// The arrival rate; seconds count from the first request.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Requests per second over the whole span; none if the span is zero.
    pub mean_per_s: Option<f64>,
    /// Highest number of requests in one second.
    pub peak_per_s: u64,
    /// Variance over mean of the requests per second: 1 for Poisson arrivals, more for bursts. None
    /// if the trace is shorter than ten seconds or its times run backwards.
    pub dispersion: Option<f64>,
    /// Variance over mean in windows of 10 ms to 10 s, for lengths with at least ten windows; empty if times run
    /// backwards.
    pub burstiness: Vec<Burstiness>,
    /// Standard deviation over mean of interarrival times: 1 for Poisson arrivals.
    pub interarrival_variation: Option<f64>,
}

/// The distinct blocks that a trace touches.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Footprint {
    /// Bytes in distinct 4 KiB blocks.
    pub bytes: u64,
    /// Its standard error, as a fraction.
    pub standard_error: f64,
    /// The highest end of a request: its offset plus its length.
    pub end_bytes: u64,
}

/// Response times in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Response {
    /// Number of requests with a response time.
    pub requests: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Median; percentiles are at most 0.1 % too high.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// Collects the statistics of a trace.
pub struct Summarizer {
    ops: BTreeMap<TraceOp, Counted>,
    sizes: BTreeMap<u32, u64>,
    first_ns: Option<u64>,
    least_ns: u64,
    most_ns: u64,
    /// The current second, and its requests so far.
    second: u64,
    in_second: u64,
    peak: u64,
    /// Sum of squares over finished seconds; empty seconds add nothing.
    squares: f64,
    blocks: HyperLogLog,
    end_bytes: u64,
    sequential: u64,
    runs: RunCounter,
    hot: HotExtents,
    reuse: ReuseSampler,
    working_sets: WorkingSets,
    arrivals: Arrivals,
    depth: DepthCounter,
    stretches: Stretches,
    size_classes: SizeClasses,
    responses: Histogram,
    digest: DigestBuilder,
}

impl Default for Summarizer {
    fn default() -> Summarizer {
        Summarizer {
            ops: BTreeMap::new(),
            sizes: BTreeMap::new(),
            first_ns: None,
            least_ns: u64::MAX,
            most_ns: 0,
            second: 0,
            in_second: 0,
            peak: 0,
            squares: 0.0,
            blocks: HyperLogLog::default(),
            end_bytes: 0,
            sequential: 0,
            runs: RunCounter::default(),
            hot: HotExtents::default(),
            reuse: ReuseSampler::default(),
            working_sets: WorkingSets::default(),
            arrivals: Arrivals::default(),
            depth: DepthCounter::default(),
            stretches: Stretches::default(),
            size_classes: SizeClasses::default(),
            responses: Histogram::new(),
            digest: DigestBuilder::default(),
        }
    }
}

impl Summarizer {
    /// Adds requests, in trace order.
    pub fn add(&mut self, requests: &[BlockRequest]) {
        self.digest.add(requests);
        for request in requests {
            let since_ns = self.time(request.time_ns);
            self.stretches.add(since_ns, request);
            let counted = self.ops.entry(request.op).or_default();
            counted.requests += 1;
            counted.bytes += u64::from(request.len_bytes);
            if let Some(response) = request.response_ns {
                self.responses.record(Nanos(response));
                self.depth.add(request.time_ns, response);
            }
            if matches!(request.op, TraceOp::Read | TraceOp::Write) {
                self.place(request);
            }
        }
    }

    /// Counts a request by its time, and returns its time since the first request.
    fn time(&mut self, time_ns: u64) -> u64 {
        let first = *self.first_ns.get_or_insert(time_ns);
        (self.least_ns, self.most_ns) = (self.least_ns.min(time_ns), self.most_ns.max(time_ns));
        let since_ns = time_ns.saturating_sub(first);
        self.arrivals.add(since_ns);
        let second = since_ns / SECOND_NS;
        if second != self.second {
            self.end_second();
            self.second = second;
        }
        self.in_second += 1;
        since_ns
    }

    fn end_second(&mut self) {
        self.peak = self.peak.max(self.in_second);
        self.squares += (self.in_second as f64).powi(2);
        self.in_second = 0;
    }

    fn place(&mut self, request: &BlockRequest) {
        self.size_classes.add(request);
        let room = self.sizes.len() < SIZES_MAX;
        match self.sizes.get_mut(&request.len_bytes) {
            Some(count) => *count += 1,
            None if room => drop(self.sizes.insert(request.len_bytes, 1)),
            None => {}
        }
        let len = u64::from(request.len_bytes);
        let end = request.offset_bytes.saturating_add(len);
        self.end_bytes = self.end_bytes.max(end);
        let continues = self
            .runs
            .add(request.device as usize, request.offset_bytes, end);
        self.sequential += u64::from(continues);
        self.hot.add(request.device, request.offset_bytes);
        let since_ns = request.time_ns.saturating_sub(self.first_ns.unwrap_or(0));
        let working_set = self.working_sets.request(since_ns);
        if len == 0 {
            return;
        }
        let touched = request
            .offset_bytes
            .saturating_add(len.min(FOOTPRINT_BYTES_MAX) - 1);
        for block in request.offset_bytes / BLOCK_BYTES..=touched / BLOCK_BYTES {
            // Keep devices apart: a block number has 52 bits, and the device is spread over all 64.
            let block = block ^ u64::from(request.device).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let hash = mixed(block);
            self.blocks.insert(hash);
            working_set.insert(hash);
            self.reuse.add(block, hash);
        }
    }

    /// The summary, once the whole trace has been added.
    pub fn finish(self, reader: &TraceReader) -> TraceInfo {
        let devices = reader.devices().names();
        self.finished(
            reader.format(),
            reader.ledger(),
            reader.is_sorted(),
            devices,
        )
    }

    /// The ten most frequent request sizes.
    fn frequent_sizes(&self) -> Vec<SizeCount> {
        let mut sizes: Vec<SizeCount> = self
            .sizes
            .iter()
            .map(|(bytes, requests)| SizeCount {
                bytes: u64::from(*bytes),
                requests: *requests,
            })
            .collect();
        sizes.sort_by_key(|size| (std::cmp::Reverse(size.requests), size.bytes));
        sizes.truncate(10);
        sizes
    }

    fn finished(
        mut self,
        format: &Format,
        ledger: RowLedger,
        sorted: bool,
        devices: &[String],
    ) -> TraceInfo {
        self.end_second();
        let span_ns = self.most_ns.saturating_sub(self.least_ns);
        let span_s = if ledger.requests == 0 {
            0.0
        } else {
            span_ns as f64 / 1e9
        };
        let moved: u64 = [TraceOp::Read, TraceOp::Write]
            .iter()
            .filter_map(|op| self.ops.get(op))
            .map(|counted| counted.requests)
            .sum();
        let sizes = self.frequent_sizes();
        // The last second is rarely complete; over ten seconds that does not matter.
        let seconds = (span_ns / SECOND_NS + 1) as f64;
        let mean = ledger.requests as f64 / seconds;
        let dispersion = (self.squares / seconds - mean * mean) / mean;
        let in_order = ledger.out_of_order == 0;
        let steady = in_order && seconds >= 10.0;
        TraceInfo {
            format: format.name,
            format_note: format.note,
            ledger,
            sorted,
            digest: self.digest.finish(),
            span_s,
            devices: devices.len() as u64,
            device_names: devices.iter().take(DEVICE_NAMES).cloned().collect(),
            ops: self.ops,
            sizes,
            size_classes: self.size_classes.finish(),
            over_time: self.stretches.finish(),
            rate: Rate {
                mean_per_s: (span_s > 0.0).then(|| ledger.requests as f64 / span_s),
                peak_per_s: self.peak,
                dispersion: steady.then_some(dispersion),
                burstiness: if in_order {
                    self.arrivals.burstiness()
                } else {
                    Vec::new()
                },
                interarrival_variation: self.arrivals.variation().filter(|_| in_order),
            },
            footprint: Footprint {
                bytes: (self.blocks.estimate() * BLOCK_BYTES as f64) as u64,
                standard_error: self.blocks.standard_error(),
                end_bytes: self.end_bytes,
            },
            sequential_share: (moved > 0).then(|| self.sequential as f64 / moved as f64),
            runs: self.runs.finish(),
            hot_extents: self.hot.finish(devices),
            working_sets: if in_order {
                self.working_sets.finish(BLOCK_BYTES)
            } else {
                Vec::new()
            },
            reuse: self.reuse.finish(),
            response: response(&self.responses),
            depth: self.depth.finish().filter(|_| in_order),
        }
    }
}

fn response(responses: &Histogram) -> Option<Response> {
    let us = |nanos: Nanos| nanos.0 as f64 / 1e3;
    Some(Response {
        requests: responses.count(),
        mean_us: responses.mean()? / 1e3,
        p50_us: us(responses.percentile(50.0)?),
        p99_us: us(responses.percentile(99.0)?),
        max_us: us(responses.max()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FORMATS;

    fn info(requests: &[BlockRequest], backwards: u64) -> TraceInfo {
        let mut summarizer = Summarizer::default();
        // In two pieces, as from a reader.
        let (first, second) = requests.split_at(requests.len() / 3);
        summarizer.add(first);
        summarizer.add(second);
        let requests = requests.len() as u64;
        let ledger = RowLedger {
            requests,
            backwards,
            out_of_order: backwards,
            ..RowLedger::default()
        };
        summarizer.finished(&FORMATS[0], ledger, false, &["0".into()])
    }

    fn request(time_ns: u64, op: TraceOp, offset_bytes: u64, len_bytes: u32) -> BlockRequest {
        let response_ns = Some(len_bytes.into());
        BlockRequest {
            response_ns,
            ..BlockRequest::new(time_ns, 0, op, offset_bytes, len_bytes)
        }
    }

    #[test]
    fn a_known_trace_gives_the_expected_figures() {
        // Twenty seconds: four sequential reads in every other second, and a write that spans them all.
        let mut requests = Vec::new();
        for second in (0..20).step_by(2) {
            for index in 0..4 {
                requests.push(request(
                    second * SECOND_NS,
                    TraceOp::Read,
                    (second * 2 + index) * 4096,
                    4096,
                ));
            }
        }
        requests.push(request(19 * SECOND_NS + 1, TraceOp::Write, 0, 160 << 10));
        requests.push(request(19 * SECOND_NS + 1, TraceOp::Flush, 0, 0));
        let info = info(&requests, 0);
        assert_eq!(
            info.ops[&TraceOp::Read],
            Counted {
                requests: 40,
                bytes: 160 << 10
            }
        );
        assert_eq!(info.ops[&TraceOp::Flush].requests, 1);
        assert_eq!(
            info.sizes[0],
            SizeCount {
                bytes: 4096,
                requests: 40
            }
        );
        assert_eq!(
            (info.rate.peak_per_s, info.footprint.end_bytes),
            (4, 160 << 10)
        );
        let blocks = info.footprint.bytes as f64 / 4096.0;
        assert!((blocks - 40.0).abs() < 1.5, "{blocks}");
        assert!(
            (info.sequential_share.unwrap() - 39.0 / 41.0).abs() < 1e-9,
            "{:?}",
            info.sequential_share
        );
        // 42 requests in 20 seconds: four in ten of them, none in nine, two in one.
        let variance = (10.0 * 16.0 + 4.0) / 20.0 - 2.1 * 2.1;
        assert!((info.rate.dispersion.unwrap() - variance / 2.1).abs() < 1e-9);
        assert_eq!(info.response.unwrap().requests, 42);
        assert!((info.span_s - 19.000_000_001).abs() < 1e-9);
    }

    #[test]
    fn tiny_traces_give_no_undefined_figures() {
        let empty = info(&[], 0);
        assert!(
            empty.rate.mean_per_s.is_none()
                && empty.rate.dispersion.is_none()
                && empty.response.is_none()
        );
        assert_eq!(
            (empty.span_s, empty.sequential_share, empty.footprint.bytes),
            (0.0, None, 0)
        );
        assert_eq!((empty.runs.runs, empty.runs.mean_requests), (0, None));
        let flush = info(&[request(0, TraceOp::Flush, 0, 0)], 0);
        assert_eq!(flush.sequential_share, None);
        let huge = info(&[request(u64::MAX, TraceOp::Write, u64::MAX, u32::MAX)], 0);
        assert_eq!(huge.footprint.end_bytes, u64::MAX);
        let back = [
            request(50 * SECOND_NS, TraceOp::Read, 0, 512),
            request(0, TraceOp::Read, 0, 512),
        ];
        let back = info(&back, 1);
        assert!(back.rate.dispersion.is_none() && back.span_s == 50.0);
    }
}
