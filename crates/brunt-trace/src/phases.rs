//! Analyses a trace over time and by address: arrivals in windows of several lengths, the working
//! set of each interval, runs of sequential requests, hot extents, depth. Used by [`crate::info`].
//!
//! The rule: memory does not grow with the trace; intervals become longer, not more numerous.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use brunt_core::HyperLogLog;
use serde::Serialize;

/// Window lengths for burstiness, in nanoseconds.
const BURST_WINDOWS_NS: [u64; 4] = [10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
/// Minimum number of windows for a figure.
const WINDOWS_MIN: f64 = 10.0;
/// Maximum number of intervals; above it, their length doubles.
const STRETCHES_MAX: usize = 64;
/// Size of an extent.
pub const EXTENT_BYTES: u64 = 1 << 20;
/// Maximum number of extents counted at a time.
const EXTENTS_MAX: usize = 4096;
/// Number of hot extents in the result.
const HOT_SHOWN: usize = 10;
/// Maximum number of requests in flight that are tracked.
const DEPTH_MAX: usize = 1 << 16;

/// Burstiness for one window length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burstiness {
    /// The length of the windows.
    pub window_s: f64,
    /// Variance over mean of the requests per window: 1 for Poisson arrivals.
    pub dispersion: f64,
}

/// Counts arrivals; times must not run backwards.
#[derive(Default)]
pub struct Arrivals {
    windows: [Window; BURST_WINDOWS_NS.len()],
    requests: u64,
    last_ns: u64,
    /// Sums over the times between arrivals, in seconds.
    sum: f64,
    squares: f64,
}

#[derive(Clone, Copy, Default)]
struct Window {
    number: u64,
    requests: u64,
    squares: f64,
}

impl Arrivals {
    /// Adds a request by its time since the first one.
    pub fn add(&mut self, since_ns: u64) {
        if self.requests > 0 {
            let between = since_ns.saturating_sub(self.last_ns) as f64 / 1e9;
            self.sum += between;
            self.squares += between * between;
        }
        self.requests += 1;
        self.last_ns = since_ns;
        for (window, length) in self.windows.iter_mut().zip(BURST_WINDOWS_NS) {
            let number = since_ns / length;
            if number != window.number {
                window.squares += (window.requests as f64).powi(2);
                (window.number, window.requests) = (number, 0);
            }
            window.requests += 1;
        }
    }

    /// Variance over mean for each length with enough windows.
    pub fn burstiness(&self) -> Vec<Burstiness> {
        let mut all = Vec::new();
        for (window, length) in self.windows.iter().zip(BURST_WINDOWS_NS) {
            let windows = (self.last_ns / length + 1) as f64;
            if windows >= WINDOWS_MIN {
                let squares = window.squares + (window.requests as f64).powi(2);
                let mean = self.requests as f64 / windows;
                let dispersion = (squares / windows - mean * mean) / mean;
                all.push(Burstiness {
                    window_s: length as f64 / 1e9,
                    dispersion,
                });
            }
        }
        all
    }

    /// Standard deviation over mean of interarrival times: 1 for Poisson arrivals.
    pub fn variation(&self) -> Option<f64> {
        let count = self.requests.checked_sub(1).filter(|count| *count > 0)? as f64;
        let mean = self.sum / count;
        (mean > 0.0).then(|| (self.squares / count - mean * mean).max(0.0).sqrt() / mean)
    }
}

/// The blocks used in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Start of the interval, in seconds after the first request.
    pub from_s: f64,
    /// Length of the interval.
    pub for_s: f64,
    /// Requests in the interval.
    pub requests: u64,
    /// Bytes in distinct 4 KiB blocks.
    pub bytes: u64,
}

/// Working sets over time.
pub struct WorkingSets {
    length_ns: u64,
    stretches: Vec<(u64, HyperLogLog)>,
}

impl Default for WorkingSets {
    fn default() -> WorkingSets {
        WorkingSets {
            length_ns: 1_000_000_000,
            stretches: Vec::new(),
        }
    }
}

impl WorkingSets {
    /// Adds a request by its time since the first one; the caller inserts its blocks into the returned sketch.
    pub fn request(&mut self, since_ns: u64) -> &mut HyperLogLog {
        while since_ns / self.length_ns >= STRETCHES_MAX as u64 {
            self.lengthen();
        }
        let index = (since_ns / self.length_ns) as usize;
        if self.stretches.len() <= index {
            self.stretches
                .resize_with(index + 1, || (0, HyperLogLog::default()));
        }
        let (requests, blocks) = &mut self.stretches[index];
        *requests += 1;
        blocks
    }

    fn lengthen(&mut self) {
        self.length_ns = self.length_ns.saturating_mul(2);
        let mut pairs = std::mem::take(&mut self.stretches).into_iter();
        while let Some((mut requests, mut blocks)) = pairs.next() {
            if let Some((more, others)) = pairs.next() {
                requests += more;
                blocks.merge(&others);
            }
            self.stretches.push((requests, blocks));
        }
    }

    /// All working sets, in order.
    pub fn finish(&self, block_bytes: u64) -> Vec<WorkingSet> {
        let for_s = self.length_ns as f64 / 1e9;
        let made = |(index, (requests, blocks)): (usize, &(u64, HyperLogLog))| WorkingSet {
            from_s: index as f64 * for_s,
            for_s,
            requests: *requests,
            bytes: (blocks.estimate() * block_bytes as f64) as u64,
        };
        self.stretches.iter().enumerate().map(made).collect()
    }
}

/// Runs of requests that each start where the previous one on the same device ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Runs {
    /// Number of runs, including those of a single request.
    pub runs: u64,
    /// Mean requests per run; `None` without runs.
    pub mean_requests: Option<f64>,
    /// Requests of the longest run.
    pub longest_requests: u64,
}

/// Counts runs.
#[derive(Default)]
pub struct RunCounter {
    /// By device: where the last request ended, and the number of requests in the current run.
    devices: Vec<(Option<u64>, u64)>,
    requests: u64,
    runs: u64,
    longest: u64,
}

impl RunCounter {
    /// Adds a read or write; returns whether it starts where the previous one ended.
    pub fn add(&mut self, device: usize, offset: u64, end: u64) -> bool {
        if self.devices.len() <= device {
            self.devices.resize(device + 1, (None, 0));
        }
        let (before, run) = &mut self.devices[device];
        let continues = before.replace(end) == Some(offset);
        *run = if continues { *run + 1 } else { 1 };
        self.requests += 1;
        self.runs += u64::from(!continues);
        self.longest = self.longest.max(*run);
        continues
    }

    /// The result.
    pub fn finish(&self) -> Runs {
        Runs {
            runs: self.runs,
            mean_requests: (self.runs > 0).then(|| self.requests as f64 / self.runs as f64),
            longest_requests: self.longest,
        }
    }
}

/// An extent that many requests access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotExtent {
    /// The index of its device, in order of appearance, from 0.
    pub device: u32,
    /// Its device's name.
    pub device_name: String,
    /// Its offset; it is 1 MiB long.
    pub offset_bytes: u64,
    /// Requests that start in it: at least this many, and at most `error` more.
    pub requests: u64,
    /// See `requests`.
    pub error: u64,
}

/// Finds hot extents (Misra and Gries, 1982).
#[derive(Default)]
pub struct HotExtents {
    counts: HashMap<(u32, u64), u64>,
    /// The amount subtracted from every count.
    taken: u64,
}

impl HotExtents {
    /// Counts a request that starts at this offset.
    pub fn add(&mut self, device: u32, offset: u64) {
        let extent = (device, offset / EXTENT_BYTES);
        let room = self.counts.len() < EXTENTS_MAX;
        match self.counts.get_mut(&extent) {
            Some(count) => *count += 1,
            None if room => drop(self.counts.insert(extent, 1)),
            None => {
                self.taken += 1;
                self.counts.retain(|_, count| {
                    *count -= 1;
                    *count > 0
                });
            }
        }
    }

    /// The busiest extents, busiest first; `devices` are the devices' names.
    pub fn finish(&self, devices: &[String]) -> Vec<HotExtent> {
        let made = |((device, extent), requests): (&(u32, u64), &u64)| HotExtent {
            device: *device,
            device_name: devices.get(*device as usize).cloned().unwrap_or_default(),
            offset_bytes: extent * EXTENT_BYTES,
            requests: *requests,
            error: self.taken,
        };
        let mut all: Vec<HotExtent> = self.counts.iter().map(made).collect();
        all.sort_unstable_by_key(|hot| (Reverse(hot.requests), hot.device, hot.offset_bytes));
        all.truncate(HOT_SHOWN);
        all
    }
}

/// Number of requests in flight when a request was issued, including itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Depth {
    /// Mean over requests.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

/// Tracks requests in flight; times must not run backwards.
#[derive(Default)]
pub struct DepthCounter {
    ends: BinaryHeap<Reverse<u64>>,
    counts: BTreeMap<u64, u64>,
}

impl DepthCounter {
    /// Adds a request with its response time.
    pub fn add(&mut self, time_ns: u64, response_ns: u64) {
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= time_ns) {
            self.ends.pop();
        }
        if self.ends.len() < DEPTH_MAX {
            self.ends.push(Reverse(time_ns.saturating_add(response_ns)));
        }
        *self.counts.entry(self.ends.len() as u64).or_default() += 1;
    }

    /// The result; none without requests.
    pub fn finish(&self) -> Option<Depth> {
        let requests: u64 = self.counts.values().sum();
        let sum: f64 = self
            .counts
            .iter()
            .map(|(depth, count)| *depth as f64 * *count as f64)
            .sum();
        let at = |share: f64| {
            let mut left = (requests as f64 * share).ceil() as u64;
            let found = self.counts.iter().find(|(_, count)| {
                let reached = left <= **count;
                left = left.saturating_sub(**count);
                reached
            });
            found.map(|(depth, _)| *depth)
        };
        let (max, _) = self.counts.last_key_value()?;
        Some(Depth {
            mean: sum / requests as f64,
            p50: at(0.5)?,
            p99: at(0.99)?,
            max: *max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_are_not_bursty_and_clumps_are() {
        let (mut even, mut clumps) = (Arrivals::default(), Arrivals::default());
        for index in 0..10_000u64 {
            even.add(index * 1_000_000);
            clumps.add(index / 100 * 100_000_000);
        }
        assert!(
            even.burstiness()
                .iter()
                .all(|burst| burst.dispersion < 0.01)
        );
        assert!(even.variation().unwrap() < 1e-6 && clumps.variation().unwrap() > 5.0);
        let at = |arrivals: &Arrivals, window| {
            arrivals
                .burstiness()
                .iter()
                .find(|burst| burst.window_s == window)
                .map(|burst| burst.dispersion)
        };
        assert!(at(&clumps, 0.01).unwrap() > 80.0 && at(&clumps, 1.0).unwrap() < 0.2);
        assert_eq!(at(&even, 10.0), None);
    }

    #[test]
    fn working_sets_of_long_traces_have_longer_intervals() {
        let mut sets = WorkingSets::default();
        for second in 0..1000u64 {
            sets.request(second * 1_000_000_000)
                .insert(crate::locality::mixed(second % 100));
        }
        let all = sets.finish(4096);
        assert!(
            all.len() <= STRETCHES_MAX && all.iter().map(|set| set.requests).sum::<u64>() == 1000
        );
        assert_eq!(
            (all[0].for_s, all[0].requests, all[1].from_s),
            (16.0, 16, 16.0)
        );
        assert!((all[0].bytes / 4096).abs_diff(16) <= 1);
    }

    #[test]
    fn runs_hot_extents_and_depth_are_measured() {
        let mut runs = RunCounter::default();
        let continues = [(0, 0, 8), (0, 8, 16), (1, 16, 24), (0, 16, 24), (0, 0, 8)]
            .map(|(device, offset, end)| runs.add(device, offset, end));
        assert_eq!(continues, [false, true, false, true, false]);
        assert_eq!(
            runs.finish(),
            Runs {
                runs: 3,
                mean_requests: Some(5.0 / 3.0),
                longest_requests: 3
            }
        );
        let mut hot = HotExtents::default();
        for index in 0..20_000u64 {
            hot.add(0, if index % 4 == 0 { 5 << 20 } else { index << 20 });
        }
        let first = &hot.finish(&["sda".into()])[0];
        assert_eq!(
            (first.device, first.device_name.as_str(), first.offset_bytes),
            (0, "sda", 5 << 20)
        );
        assert!(
            first.requests <= 5001 && first.requests + first.error >= 5000,
            "{first:?}"
        );
        let mut depth = DepthCounter::default();
        for (time, took) in [(0, 10), (1, 10), (2, 10), (20, 1), (30, 1)] {
            depth.add(time, took);
        }
        assert_eq!(
            depth.finish(),
            Some(Depth {
                mean: 8.0 / 5.0,
                p50: 1,
                p99: 3,
                max: 3
            })
        );
        assert_eq!(DepthCounter::default().finish(), None);
    }
}
