//! Fits a model to a trace: an experiment that approximates it, and the profile that an array vendor's sizing tool
//! needs (Chronicle, 5.1.2). A model can often be shared when the trace can't. Called by `brunt trace fit`.
//!
//! The rule: each part of the model comes with its distance from the trace, computed in the same pass.

use std::collections::BTreeMap;
use std::fmt::Write;

use brunt_core::random::Random;
use brunt_core::{HyperLogLog, SizerCounts, SizerProfile, SizerTimes, SizerTransfers};
use serde::Serialize;

use crate::info::TraceInfo;
use crate::locality::{BLOCK_BYTES, ReuseSampler, mixed};
use crate::record::{BlockRequest, TraceOp};

/// Maximum number of sizes in a model.
const SIZES_MAX: usize = 16;
/// Number of zones in a model.
const ZONES: usize = 64;
/// Finer parts of the address range, used to compare the model with the trace.
const PIECES: usize = 4096;
/// Classes of interarrival times: sixteen per power of two of nanoseconds.
const GAP_CLASSES: usize = 64 * 16;
/// Longest run of sequential requests whose length counts.
const RUN_REQUESTS_MAX: usize = 4096;
/// Maximum requests simulated from the model to measure its reuse of blocks.
const SIMULATED_MAX: u64 = 200_000;

/// A model of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceModel {
    /// Share of reads.
    pub read: f64,
    /// Share of unmaps.
    pub trim: f64,
    /// Sizes in bytes, with the share of each.
    pub sizes: Vec<(u64, f64)>,
    /// Probability that a request starts where the previous one ended.
    pub sequential: f64,
    /// Requests per second.
    pub rate: f64,
    /// Requests per burst and the seconds between bursts, if arrivals are burstier than Poisson.
    pub burst: Option<(u64, f64)>,
    /// Size of the address range in bytes; `zones` has the share of requests in each of its equal parts.
    pub region_bytes: u64,
    /// See `region_bytes`.
    pub zones: Vec<f64>,
    /// How far each part of the model is from the trace.
    pub distances: Vec<ModelDistance>,
    /// Input for a sizing tool. For a captured trace, it is computed from the operations instead, which record the
    /// clients and the bytes moved.
    pub sizer: SizerProfile,
}

/// The distance of a part of the model from the trace: 0 means identical.
#[derive(Clone, Debug, Serialize)]
pub struct ModelDistance {
    /// The part of the model.
    pub part: &'static str,
    /// The distance, 0 to 1.
    pub distance: f64,
    /// What the number measures.
    pub measure: &'static str,
}

/// Collects what a model needs in addition to [`TraceInfo`].
pub struct ModelFitter {
    sizes: BTreeMap<u32, u64>,
    other_sizes: u64,
    gaps: Vec<u64>,
    last_ns: Option<u64>,
    /// Requests per part of the address range; the parts double in size as addresses grow.
    pieces: Vec<u64>,
    piece_bytes: u64,
    /// By device: where the last request ended, and the number of requests in its run.
    ends: Vec<(Option<u64>, usize)>,
    /// Number of sequential runs that have at least 1, 2, … requests.
    runs_of_at_least: Vec<u64>,
    /// Random and sequential counts, for reads, then for writes.
    kinds: [[u64; 2]; 2],
    random_reads: HyperLogLog,
    transfers: SizerTimes,
}

impl Default for ModelFitter {
    fn default() -> ModelFitter {
        ModelFitter {
            sizes: BTreeMap::new(),
            other_sizes: 0,
            gaps: vec![0; GAP_CLASSES],
            last_ns: None,
            pieces: vec![0; PIECES],
            piece_bytes: BLOCK_BYTES,
            ends: Vec::new(),
            runs_of_at_least: vec![0; RUN_REQUESTS_MAX],
            kinds: [[0; 2]; 2],
            random_reads: HyperLogLog::default(),
            transfers: SizerTimes::default(),
        }
    }
}

fn gap_class(gap_ns: f64) -> usize {
    ((gap_ns.max(1.0).log2() * 16.0) as usize).min(GAP_CLASSES - 1)
}

impl ModelFitter {
    /// Adds requests, in trace order.
    pub fn add(&mut self, requests: &[BlockRequest]) {
        for request in requests {
            if let Some(last) = self.last_ns.replace(request.time_ns) {
                self.gaps[gap_class(request.time_ns.saturating_sub(last) as f64)] += 1;
            }
            let write = match request.op {
                TraceOp::Read => false,
                TraceOp::Write => true,
                TraceOp::Flush | TraceOp::Unmap | TraceOp::Other => continue,
            };
            if self.sizes.len() < 4096 || self.sizes.contains_key(&request.len_bytes) {
                *self.sizes.entry(request.len_bytes).or_default() += 1;
            } else {
                self.other_sizes += 1;
            }
            self.transfers.add(request.time_ns);
            self.place(request, write);
        }
    }

    fn place(&mut self, request: &BlockRequest, write: bool) {
        while request.offset_bytes / self.piece_bytes >= PIECES as u64 {
            for index in 0..PIECES / 2 {
                self.pieces[index] = self.pieces[2 * index] + self.pieces[2 * index + 1];
            }
            self.pieces[PIECES / 2..].fill(0);
            self.piece_bytes *= 2;
        }
        self.pieces[(request.offset_bytes / self.piece_bytes) as usize] += 1;
        let device = request.device as usize;
        if self.ends.len() <= device {
            self.ends.resize(device + 1, (None, 0));
        }
        let end = request
            .offset_bytes
            .saturating_add(request.len_bytes.into());
        let (before, run) = &mut self.ends[device];
        let sequential = before.replace(end) == Some(request.offset_bytes);
        *run = if sequential { *run + 1 } else { 1 };
        if let Some(runs) = self.runs_of_at_least.get_mut(*run - 1) {
            *runs += 1;
        }
        self.kinds[usize::from(write)][usize::from(sequential)] += 1;
        if !write && !sequential && request.len_bytes > 0 {
            // Count only the first 1024 blocks of a request, which bounds the work: random reads are short anyway.
            for block in request.offset_bytes / BLOCK_BYTES
                ..=((end - 1) / BLOCK_BYTES).min(request.offset_bytes / BLOCK_BYTES + 1023)
            {
                self.random_reads
                    .insert(mixed(block ^ u64::from(request.device) << 52));
            }
        }
    }

    /// The model, once the whole trace has been added; `None` without reads or writes, or if the trace spans no time.
    pub fn finish(&self, info: &TraceInfo) -> Option<TraceModel> {
        let moved: u64 = self.kinds.iter().flatten().sum();
        let (rate, sequential) = (info.rate.mean_per_s?, info.sequential_share?);
        let of = |op: TraceOp| info.ops.get(&op).copied().unwrap_or_default();
        let unmaps = of(TraceOp::Unmap).requests;
        let made = (moved + unmaps) as f64;
        let (sizes, left_out) = self.model_sizes(moved);
        let burst = burst(info, rate);
        let region_bytes = info
            .footprint
            .end_bytes
            .checked_next_multiple_of(BLOCK_BYTES)?
            .max(1 << 20);
        let zones = self.zones(region_bytes, moved);
        let mut model = TraceModel {
            read: of(TraceOp::Read).requests as f64 / made,
            trim: unmaps as f64 / made,
            sizes,
            sequential,
            rate,
            burst,
            region_bytes,
            zones,
            distances: Vec::new(),
            sizer: self.sizer(info),
        };
        let requests = info.ledger.requests.max(1) as f64;
        let mut far = |part, distance: f64, measure| {
            model.distances.push(ModelDistance {
                part,
                distance,
                measure,
            })
        };
        far(
            "mix",
            1.0 - made / requests,
            "share of requests that the model omits: flushes and other commands",
        );
        far(
            "sizes",
            left_out,
            "share of requests with sizes that the model omits",
        );
        far(
            "runs",
            self.run_distance(sequential),
            "Kolmogorov-Smirnov distance of the lengths of sequential runs, which are geometric in the model",
        );
        let arrivals = self.arrival_distance(rate, burst);
        far(
            "arrivals",
            arrivals,
            "Kolmogorov-Smirnov distance of the times between requests",
        );
        let locality = self.locality_distance(&model.zones, model.region_bytes, moved);
        model.distances.push(ModelDistance {
            part: "locality",
            distance: locality,
            measure: "Kolmogorov-Smirnov distance of addresses",
        });
        let reuse = reuse_distance(&model, info);
        model.distances.extend(reuse.map(|distance| ModelDistance {
            part: "reuse",
            distance,
            measure: "largest difference in the hit ratios of LRU caches of any size, by \
                simulation",
        }));
        Some(model)
    }

    /// The distance between the lengths of sequential runs and those of a model that continues each run with this
    /// probability.
    fn run_distance(&self, sequential: f64) -> f64 {
        let runs = self.runs_of_at_least[0].max(1) as f64;
        let mut expected = 1.0;
        let mut distance: f64 = 0.0;
        for count in &self.runs_of_at_least {
            distance = distance.max((*count as f64 / runs - expected).abs());
            expected *= sequential;
        }
        distance
    }

    fn model_sizes(&self, moved: u64) -> (Vec<(u64, f64)>, f64) {
        // Requests without bytes, or with partial sectors, cannot be generated.
        let possible = self
            .sizes
            .iter()
            .filter(|(bytes, _)| **bytes > 0 && bytes.is_multiple_of(512));
        let mut sizes: Vec<(u64, u64)> = possible
            .map(|(bytes, count)| (u64::from(*bytes), *count))
            .collect();
        sizes.sort_by_key(|(bytes, count)| (std::cmp::Reverse(*count), *bytes));
        sizes.truncate(SIZES_MAX);
        let kept: u64 = sizes.iter().map(|(_, count)| count).sum();
        let share = |count: u64| count as f64 / kept.max(1) as f64;
        (
            sizes
                .iter()
                .map(|(bytes, count)| (*bytes, share(*count)))
                .collect(),
            1.0 - kept as f64 / moved as f64,
        )
    }

    /// The share of requests in each of [`ZONES`] equal parts of the region.
    fn zones(&self, region_bytes: u64, moved: u64) -> Vec<f64> {
        let mut zones = vec![0.0; ZONES];
        for (index, count) in self.pieces.iter().enumerate() {
            let middle = (index as f64 + 0.5) * self.piece_bytes as f64 / region_bytes as f64;
            zones[((middle * ZONES as f64) as usize).min(ZONES - 1)] +=
                *count as f64 / moved as f64;
        }
        zones
    }

    fn locality_distance(&self, zones: &[f64], region_bytes: u64, moved: u64) -> f64 {
        let (mut trace, mut most) = (0.0, 0.0f64);
        for (index, count) in self.pieces.iter().enumerate() {
            trace += *count as f64 / moved as f64;
            let end = ((index + 1) as f64 * self.piece_bytes as f64 / region_bytes as f64
                * ZONES as f64)
                .min(ZONES as f64);
            let whole = end as usize;
            let part = zones
                .get(whole)
                .map_or(0.0, |zone| zone * (end - whole as f64));
            let model = zones[..whole].iter().sum::<f64>() + part;
            most = most.max((trace - model).abs());
        }
        most
    }

    fn arrival_distance(&self, rate: f64, burst: Option<(u64, f64)>) -> f64 {
        let all = self.gaps.iter().sum::<u64>().max(1) as f64;
        let model = |gap_s: f64| match burst {
            None => 1.0 - (-rate * gap_s).exp(),
            Some((requests, interval_s)) => {
                let (within, last) = (rate * BURST_RATE, 1.0 / requests as f64);
                let later = (gap_s - interval_s).max(0.0);
                (1.0 - last) * (1.0 - (-within * gap_s).exp())
                    + last * (1.0 - (-within * later).exp())
            }
        };
        let (mut trace, mut most) = (0.0, 0.0f64);
        for (class, count) in self.gaps.iter().enumerate() {
            trace += *count as f64 / all;
            // The end of the class, in seconds.
            let end_s = 2f64.powf((class + 1) as f64 / 16.0) / 1e9;
            most = most.max((trace - model(end_s)).abs());
        }
        most
    }

    fn sizer(&self, info: &TraceInfo) -> SizerProfile {
        let transfers = |op: TraceOp| {
            let [random, sequential] = self.kinds[usize::from(op == TraceOp::Write)];
            SizerTransfers {
                count: random + sequential,
                sequential,
                bytes: info.ops.get(&op).map_or(0, |counted| counted.bytes),
            }
        };
        let counts = SizerCounts {
            reads: transfers(TraceOp::Read),
            writes: transfers(TraceOp::Write),
            span_ns: self.transfers.span_ns(),
            peak_per_s: self.transfers.peak_per_s(),
            random_read_working_set_bytes: self.random_reads.count() * BLOCK_BYTES,
        };
        counts.profile()
    }
}

/// How much faster requests arrive within a burst than on average.
const BURST_RATE: f64 = 10.0;

/// Bursts as large as the dispersion (variance over mean) of one-second windows, with pauses that keep the mean rate.
fn burst(info: &TraceInfo, rate: f64) -> Option<(u64, f64)> {
    let window = info
        .rate
        .burstiness
        .iter()
        .find(|burst| burst.window_s == 1.0)?;
    let requests = window.dispersion.round();
    let interval_s = requests / rate * (1.0 - 1.0 / BURST_RATE);
    (requests >= 2.0 && interval_s >= 1e-6).then_some((requests as u64, interval_s))
}

/// The largest difference in cache hit ratio between the trace and requests generated from the model. `None` if either
/// has no blocks.
fn reuse_distance(model: &TraceModel, info: &TraceInfo) -> Option<f64> {
    let trace = info.reuse.as_ref()?;
    let (mut random, mut sampler) = (Random::new(1), ReuseSampler::default());
    let zone_bytes = (model.region_bytes / ZONES as u64).max(1);
    let mut next = 0u64;
    for _ in 0..info.ledger.requests.min(SIMULATED_MAX) {
        let size = pick(&model.sizes, |(_, share)| *share, random.unit())
            .map_or(BLOCK_BYTES, |(bytes, _)| *bytes);
        if !random.chance(model.sequential) {
            let mut left = random.unit();
            let zone = model.zones.iter().position(|share| {
                left -= share;
                left < 0.0
            });
            next = zone.unwrap_or(0) as u64 * zone_bytes + random.below(zone_bytes) / 512 * 512;
        }
        for block in next / BLOCK_BYTES..=next.saturating_add(size - 1) / BLOCK_BYTES {
            sampler.add(block, mixed(block));
        }
        next = next.saturating_add(size);
    }
    let made = sampler.finish()?;
    let longest = trace.caches.len().max(made.caches.len());
    let at = |caches: &[crate::CacheShare], class: usize| {
        caches
            .get(class)
            .or(caches.last())
            .map_or(0.0, |cache| cache.share)
    };
    let differences =
        (0..longest).map(|class| (at(&trace.caches, class) - at(&made.caches, class)).abs());
    Some(differences.fold(0.0, f64::max))
}

fn pick<T>(items: &[T], share: impl Fn(&T) -> f64, mut left: f64) -> Option<&T> {
    items.iter().find(|item| {
        left -= share(item);
        left < 0.0
    })
}

impl TraceModel {
    /// The experiment file, for `brunt run`.
    pub fn experiment(&self, name: &str) -> String {
        let name: String = name
            .chars()
            .filter(|c| !c.is_control() && !matches!(c, '"' | '\\'))
            .collect();
        let mut text = String::from(
            "# Written by brunt trace fit. Distance of each part from the trace, 0 to 1:\n",
        );
        for ModelDistance {
            part,
            distance,
            measure,
        } in &self.distances
        {
            writeln!(text, "#   {part:<9} {distance:.4}  {measure}")
                .expect("writing to a string succeeds");
        }
        let blocks = self
            .sizes
            .iter()
            .map(|(bytes, share)| format!("    {{ size = \"{bytes}B\", weight = {share:.6} }},\n"));
        let blocks: String = blocks.collect();
        // Rounded shares must add up to 1.
        let mut left = 1_000_000i64;
        let mut zones: Vec<(usize, i64)> = self
            .zones
            .iter()
            .enumerate()
            .map(|(index, share)| (index, (share * 1e6).floor() as i64))
            .collect();
        left -= zones.iter().map(|(_, share)| share).sum::<i64>();
        if let Some(largest) = zones.iter_mut().max_by_key(|(_, share)| *share) {
            largest.1 += left;
        }
        let size = 1.0 / ZONES as f64;
        let zones = zones.iter().map(|(_, share)| {
            format!(
                "    {{ size = {size}, access = {:.6} }},\n",
                *share as f64 / 1e6
            )
        });
        let zones: String = zones.collect();
        let rate = if self.burst.is_some() {
            self.rate * BURST_RATE
        } else {
            self.rate
        };
        let burst = self
            .burst
            .map_or_else(String::new, |(requests, interval_s)| {
                format!(
                    "burst = {{ requests = {requests}, interval = \"{}us\" }}\n",
                    (interval_s * 1e6).round().max(1.0) as u64
                )
            });
        writeln!(
            text,
            "name = \"model of {name}\"\nrepetitions = 4\n\n[targets.device]\n\
             url = \"null:{}B\" # put the storage under test here\n\n[workloads.model]\n\
             read = {:.6}\ntrim = {:.6}\nsequential = {:.6}\nqueue_depth = 256\n\
             arrival = {{ kind = \"open\", process = \"poisson\", rate = {rate:.3} }}\n{burst}\
             stop = {{ time = \"60s\" }}\nblocks = [\n{blocks}]\n\n[workloads.model.distribution]\n\
             kind = \"hot-zones\"\nzones = [\n{zones}]",
            self.region_bytes, self.read, self.trim, self.sequential
        )
        .expect("writing to a string succeeds");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Summarizer, TraceReader, format_named};

    /// Fits a model to a trace in text.
    fn fitted(text: String) -> (TraceModel, TraceInfo) {
        let input = Box::new(std::io::Cursor::new(text.into_bytes()));
        let mut reader =
            TraceReader::from_reader("x".into(), input, format_named("spc"), true).unwrap();
        let (mut summarizer, mut fitter) = (Summarizer::default(), ModelFitter::default());
        while reader.next_requests().unwrap().is_some() {
            summarizer.add(reader.requests());
            fitter.add(reader.requests());
        }
        let info = summarizer.finish(&reader);
        (fitter.finish(&info).unwrap(), info)
    }

    #[test]
    fn a_trace_generated_like_the_model_is_close_to_its_model() {
        let mut random = Random::new(5);
        let (mut text, mut time) = (String::new(), 0.0);
        for _ in 0..20_000 {
            time += random.exponential(0.01);
            let zone = if random.chance(0.8) {
                3
            } else {
                random.below(8)
            };
            let block = zone * 4096 + random.below(4096) / 8 * 8;
            let op = if random.chance(0.7) { "R" } else { "W" };
            let size = if random.chance(0.25) { 65_536 } else { 4096 };
            text += &format!("0,{block},{size},{op},{time:.9}\n");
        }
        let (model, _) = fitted(text);
        assert!((model.read - 0.7).abs() < 0.02 && model.sizes.len() == 2 && model.trim == 0.0);
        assert!(
            (model.rate - 100.0).abs() < 5.0 && model.burst.is_none(),
            "{model:?}"
        );
        for distance in &model.distances {
            assert!(distance.distance < 0.1, "{distance:?}");
        }
        assert!(
            (model.sizer.random_read.unwrap() - 0.7).abs() < 0.03
                && model.sizer.random_read_working_set_bytes > 10 << 20
        );
    }

    /// Flushes and unmaps affect neither the rates of the sizer profile nor the time span that the rates refer to.
    #[test]
    fn the_sizer_profile_counts_reads_and_writes() {
        let at = |tenths: u64, op| BlockRequest::new(tenths * 100_000_000, 0, op, 0, 4096);
        let mut fitter = ModelFitter::default();
        fitter.add(&[
            at(0, TraceOp::Flush),
            at(5, TraceOp::Read),
            at(9, TraceOp::Write),
        ]);
        assert_eq!(fitter.transfers.span_ns(), 400_000_000);
        fitter.add(&[at(14, TraceOp::Read), at(14, TraceOp::Unmap)]);
        fitter.add(&[at(25, TraceOp::Read), at(80, TraceOp::Flush)]);
        assert_eq!(fitter.transfers.span_ns(), 2_000_000_000);
        assert_eq!(fitter.transfers.peak_per_s(), 2);
        let mut one = ModelFitter::default();
        one.add(&[at(0, TraceOp::Flush), at(5, TraceOp::Read)]);
        assert_eq!(
            (one.transfers.span_ns(), one.transfers.peak_per_s()),
            (0, 1)
        );
    }

    /// The model's run lengths are geometric; runs of equal length differ from them as much as theory predicts.
    #[test]
    fn distances_of_run_lengths_are_as_theory_predicts() {
        let distance = |mut next: Box<dyn FnMut() -> u64>| {
            let (mut text, mut block, mut left) = (String::new(), 0, 0);
            for index in 0..20_000u64 {
                if left == 0 {
                    (block, left) = (index * 7919 % 9973 * 80_000, next());
                }
                text += &format!("0,{block},4096,R,{}.{:03}\n", index / 1000, index % 1000);
                (block, left) = (block + 8, left - 1);
            }
            let (model, _) = fitted(text);
            let runs = model.distances.iter().find(|one| one.part == "runs");
            runs.expect("always stated").distance
        };
        let mut random = Random::new(7);
        let geometric = distance(Box::new(move || {
            let mut run = 1;
            while random.chance(0.8) {
                run += 1;
            }
            run
        }));
        assert!(geometric < 0.03, "{geometric}");
        // All runs have at least ten requests; in the model, with mean ten, 0.9^9 = 38.7 % do.
        let equal = distance(Box::new(|| 10));
        assert!((equal - (1.0 - 0.9_f64.powi(9))).abs() < 0.01, "{equal}");
    }

    #[test]
    fn bursts_are_detected_and_quotes_removed_from_names() {
        let mut text = String::new();
        for index in 0..2000u64 {
            // Bursts of fifty, every two and a half seconds.
            text += &format!(
                "0,{},4096,R,{}.{:09}\n",
                index * 977 % 4096 * 8,
                index / 50 * 5 / 2,
                index % 50 * 1000 + index / 50 % 2 * 500_000_000
            );
        }
        let (model, _) = fitted(text);
        assert!(
            model.burst.is_some_and(|(requests, _)| requests > 20),
            "{:?}",
            model.burst
        );
        let experiment = model.experiment("a \"b\"");
        assert!(
            experiment.contains("burst = {") && experiment.contains("name = \"model of a b\""),
            "{experiment}"
        );
    }
}
