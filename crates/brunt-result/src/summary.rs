//! `summary.json`: the small result file for people and scripts. It is written without runs before the first run, and
//! with all runs at the end; in between, [`crate::run_log`] keeps them.
//!
//! Keys end with their unit. Percentiles of a point come from the merged histograms of its runs; confidence intervals
//! come from one value per run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use brunt_core::units::counted;
use brunt_core::{IoEngine, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::{DepthChoice, EngineChoice, PageCache, RingChoice};
use crate::degradation::{
    self, Degradation, FaultSpan, IntervalFigures, METHODS, OverRuns, PhaseFigures, PhaseOverRuns,
};
use crate::experiment::{ExperimentSummary, InterleavedWith};
use crate::fault_record::{FaultGap, FaultRecord};
use crate::hosts::{CommonTime, HostFigures};
use crate::impact::RobustnessIndexes;
pub use crate::latencies::Latencies;
use crate::percentile::PercentilesUs;
use crate::performability::Performability;
use crate::phase_wait::PhaseWait;
use crate::record::part;
use crate::recurring::{FaultOccurrence, RecurringOverRuns};
use crate::require::RequirementOutcome;
use crate::statistics::{Estimate, PointPrecision};
use crate::steady::SteadyRounds;
use crate::sticky::StickyCost;
use crate::transfer::{RunTransfer, TransferEfficiency};
use crate::wrong::{ErrorCause, Verified};
use crate::{Cost, OpFigures, OpKind, Outcome, RequestStatus, Stopped};

/// Name of the file in a result's folder.
pub const FILE_NAME: &str = "summary.json";
/// Increased when a field changes its meaning. Format 2 is a draft: it may still change until it is released.
pub const FORMAT: u32 = 2;

/// `summary.json`: the figures of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Version of this file's format; increases when a key changes its meaning.
    pub format: u32,
    /// Version of Brunt that wrote the file.
    pub brunt: String,
    /// Whether all runs were completed.
    pub complete: bool,
    /// Why the experiment ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<String>,
    /// Label given with `brunt run --label`, such as a commit. `brunt history` names results by their labels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
    /// If the experiment's runs took turns with those of other experiments: which experiments, and its place among
    /// them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interleaved: Option<InterleavedWith>,
    /// The experiment as run; the same `seed` reproduces the same requests in the same order.
    pub experiment: ExperimentSummary,
    /// All points (combinations of target, workload and swept values), in the order of the plan.
    pub points: Vec<PointSummary>,
    /// Waits for the conditions of phases, in chronological order. Written when the experiment ends; absent in results
    /// written before they were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waits: Vec<PhaseWait>,
    /// Indexes of robustness against many clients and long distances; `null` if neither `clients` nor `link_delay` is
    /// swept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub indexes: Option<RobustnessIndexes>,
    /// Whether each point meets the experiment's requirements.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub requirements: Vec<RequirementOutcome>,
}

/// A point of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointSummary {
    /// Target, workload and the value on each axis.
    pub label: String,
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// For one of several jobs that run at once: the label of the point with the combined figures of all of them. Each
    /// run of this point is a part of that point's run with the same `repetition`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part_of: Option<String>,
    /// Value on each swept axis.
    pub axes: BTreeMap<String, String>,
    /// Caveats about the figures, such as "through the page cache".
    pub notes: Vec<String>,
    /// Engine that issued the requests, and why it was chosen; `null` if no load used one, if hosts used different
    /// ones, and in results written before it was recorded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<EngineChoice>,
    /// Ring mode of the workers, and why it was chosen.
    #[serde(default)]
    pub ring: RingChoice,
    /// Result of the workload's `depth_search`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub depth: Option<DepthChoice>,
    /// Completed requests per second; `null` without a complete run.
    pub requests_per_second: Option<Estimate>,
    /// Throughput in bytes per second.
    pub bytes_per_second: Option<Estimate>,
    /// Mean response time, over runs.
    pub response_mean_us: Option<Estimate>,
    /// 99th percentile of the response time, over runs.
    pub response_p99_us: Option<Estimate>,
    /// Response times of all complete runs, merged; measured from when each request was due, including retries.
    pub response: Option<Latencies>,
    /// Response time percentiles that the experiment's `percentiles` and `require` name; those with too few requests
    /// are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_percentiles_us: PercentilesUs,
    /// Service times of all complete runs, merged; measured from each request's last submission.
    pub service: Option<Latencies>,
    /// Rate in bits per second of the slower direction of each lab link that has a rate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub line_bits_per_second: BTreeMap<String, f64>,
    /// Whether the experiment's `precision` was reached; `null` if it sets none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub precision: Option<PointPrecision>,
    /// Effect of each fault, over all complete runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degradation: Vec<OverRuns>,
    /// Effect of each intermittent fault, all of its occurrences together, over all complete runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recurring: Vec<RecurringOverRuns>,
    /// For a point with faults: label of the point without faults that has the same load on a target that is defined
    /// in the same way; `null` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normal: Option<String>,
    /// Cost of faults that last for whole runs, compared with the point that `normal` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<StickyCost>,
    /// Figures before, during and after the faults, over all complete runs; empty without faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseOverRuns>,
    /// Expected figures over a long time of failures and repairs; `null` without `performability` in the experiment, or if no
    /// component fails in the point's runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performability: Option<Performability>,
    /// Bytes on the lab's links for each byte that the load moved; `null` without a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferEfficiency>,
    /// Runs of the point, in chronological order.
    pub runs: Vec<RunSummary>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// Repetition of the point, from 0.
    pub repetition: u32,
    /// Position among all runs of the experiment, from 0.
    pub order: u32,
    /// Seed of the run's requests.
    pub seed: u64,
    /// Why the run ended.
    pub stopped: Stopped,
    /// Measured time in seconds.
    pub measured_s: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// For a workload with `stop.steady`: the rounds that the criteria were applied to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steady: Option<SteadyRounds>,
    /// Rate search: the highest rate within the limit; all other figures are from that trial.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_found: Option<f64>,
    /// Rate search: index of the trial that the figures are from, from 0; otherwise 0.
    #[serde(default)]
    pub trial: u32,
    /// Response times of all kinds of operations together.
    pub response: Option<Latencies>,
    /// Response time percentiles that the experiment's `percentiles` and `require` name; those with too few requests
    /// are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_percentiles_us: PercentilesUs,
    /// Service times of all kinds of operations together.
    pub service: Option<Latencies>,
    /// Figures for each kind of operation of the load.
    pub ops: Vec<OpSummary>,
    /// Number of requests that did not succeed, by outcome: errors, unanswered at the end, skipped.
    pub losses: BTreeMap<String, u64>,
    /// First error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_error: Option<String>,
    /// Failed requests by their cause: errno, or SCSI status and sense.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub causes: Vec<ErrorCause>,
    /// For a workload with `verify`: what verification found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified: Option<Verified>,
    /// Engine that issued the run's requests; `null` for the same reasons as in the point. If hosts used different
    /// engines, each host's is in `hosts`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<IoEngine>,
    /// Influence of the page cache, for phases on a file system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page_cache: Option<PageCache>,
    /// For the replay of a trace: how faithful it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replay: Option<Box<crate::replay::ReplayFidelity>>,
    /// The load generator's cost per completed request.
    pub cost_per_request: CostPerRequest,
    /// Host counters; `null` if the experiment has no probes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probes: Option<crate::probe::ProbeRecord>,
    /// How quiet the machine was during the run; `null` for a run too short to tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub noise: Option<crate::noise::MachineNoise>,
    /// Where the CPU went; `null` without `[profile]` in the experiment.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub profile: Option<Box<crate::profile::RunProfile>>,
    /// Packet counters of the lab's links.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, crate::link::LinkReport>,
    /// What probe packets measured on each link between other machines before the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link_proofs: BTreeMap<String, crate::link::LinkProof>,
    /// How long the run waited for each service with `healthy` before it began, in seconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub health_waits_s: BTreeMap<String, f64>,
    /// Bytes that the lab's links carried during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<RunTransfer>,
    /// Total seconds that workers waited because requests were recorded faster than they could be written.
    #[serde(default)]
    pub recording_wait_s: f64,
    /// Reasons to doubt the figures, such as a saturated link emulator or workers that waited for the recorder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Problems of the run's devices that requests do not show, such as repeated connection attempts; by worker.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub troubles: Vec<String>,
    /// The run's hosts, for a workload that ran on other hosts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<HostFigures>,
    /// For a run on several hosts that ended at different times: the time that its rates cover. If absent, the rates
    /// are the sums of the workers' own rates.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub common: Option<CommonTime>,
    /// Injected faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultSummary>,
    /// Figures before, during and after the run's faults; empty without faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseFigures>,
}

/// A fault in a run. Times are in seconds from the start of measuring; negative before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultSummary {
    /// Index in the experiment's `fault` list, from 0.
    pub index: u32,
    /// Name of the fault.
    pub name: String,
    /// Kind of the fault, such as `storage` or `link`.
    pub kind: String,
    /// Name of the target, link or host that the fault affects.
    pub place: String,
    /// Effect of the fault, in words.
    pub what: String,
    /// When the fault was injected.
    pub start_s: f64,
    /// When the fault was proven to be in effect.
    pub shown_s: f64,
    /// Evidence that the fault was in effect.
    pub shown_by: String,
    /// When the fault was removed.
    pub end_s: Option<f64>,
    /// When the fault was proven to be gone.
    pub gone_s: Option<f64>,
    /// Evidence that the fault was gone.
    pub gone_by: String,
    /// Times at which the fault was absent, because its target was killed and restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GapSummary>,
    /// Effect of the fault; `null` without a baseline before it. A sticky fault's effect is in `points[].sticky`.
    pub cost: Option<Degradation>,
    /// For a fault that is one occurrence of an intermittent fault: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<FaultOccurrence>,
}

/// A time during which a fault was absent. Times are in seconds from the start of measuring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapSummary {
    /// When the fault was lost.
    pub from_s: f64,
    /// When the fault was injected again.
    pub until_s: f64,
    /// When the fault was proven to be in effect again.
    pub shown_s: f64,
    /// Evidence that the fault was in effect again.
    pub shown_by: String,
}

impl FaultSummary {
    /// The faults of a run measured from `start` to `end`, judged by its intervals.
    pub fn of(
        records: &[FaultRecord],
        start: Nanos,
        end: Nanos,
        series: &[IntervalFigures],
    ) -> Vec<FaultSummary> {
        let seconds = |at: Nanos| (at.0 as f64 - start.0 as f64) / 1e9;
        let span = |record: &FaultRecord| FaultSpan {
            start_s: seconds(record.start),
            // A fault that is removed after the run's end counts as lasting until the end.
            end_s: record.end.filter(|at| *at < end).map(seconds),
        };
        let gap = |gap: &FaultGap| GapSummary {
            from_s: seconds(gap.from),
            until_s: seconds(gap.until),
            shown_s: seconds(gap.shown),
            shown_by: gap.shown_by.clone(),
        };
        let spans: Vec<FaultSpan> = records.iter().map(span).collect();
        let summary = |(at, record): (usize, &FaultRecord)| FaultSummary {
            index: record.index,
            name: record.name.clone(),
            kind: record.kind.to_string(),
            place: record.place.clone(),
            what: record.what.clone(),
            start_s: seconds(record.start),
            shown_s: seconds(record.shown),
            shown_by: record.shown_by.clone(),
            end_s: record.end.map(seconds),
            gone_s: record.gone.map(seconds),
            gone_by: record.gone_by.clone(),
            gaps: record.gaps.iter().map(gap).collect(),
            cost: degradation::of_run(series, &spans, at),
            occurrence: None,
        };
        records.iter().enumerate().map(summary).collect()
    }

    /// The phases of a run between its faults' starts and ends, from its intervals.
    pub fn phases(faults: &[FaultSummary], series: &[IntervalFigures]) -> Vec<PhaseFigures> {
        let span = |fault: &FaultSummary| FaultSpan {
            start_s: fault.start_s,
            end_s: fault.end_s,
        };
        let spans: Vec<(&str, FaultSpan)> = faults
            .iter()
            .map(|fault| (fault.name.as_str(), span(fault)))
            .collect();
        degradation::phases(series, &spans)
    }
}

/// Effect of each fault over these runs of a point.
pub fn effects_over_runs<'a>(runs: impl Iterator<Item = &'a RunSummary>) -> Vec<OverRuns> {
    let mut costs: BTreeMap<u32, (&str, Vec<Degradation>)> = BTreeMap::new();
    for fault in runs.flat_map(|run| &run.faults) {
        let (_, seen) = costs
            .entry(fault.index)
            .or_insert_with(|| (fault.name.as_str(), Vec::new()));
        seen.extend(fault.cost.clone());
    }
    let costs = costs.into_values();
    costs
        .map(|(name, costs)| degradation::over_runs(name, &costs))
        .collect()
}

impl RunSummary {
    /// Judges the run's faults again, from its intervals.
    pub fn judge(&mut self, series: &[IntervalFigures]) {
        let measured_s = self.measured_s;
        let span = |fault: &FaultSummary| FaultSpan {
            start_s: fault.start_s,
            end_s: fault.end_s.filter(|at| *at < measured_s),
        };
        let spans: Vec<FaultSpan> = self.faults.iter().map(span).collect();
        for (at, fault) in self.faults.iter_mut().enumerate() {
            fault.cost = degradation::of_run(series, &spans, at);
        }
    }

    /// Computes the rates of the phases again, from the run's intervals. Response times stay unchanged, because they
    /// need more data than is stored.
    pub fn rate_phases(&mut self, series: &[IntervalFigures]) {
        let found = FaultSummary::phases(&self.faults, series);
        for phase in &mut self.phases {
            let is_this = |other: &&PhaseFigures| {
                (other.kind, &other.faults) == (phase.kind, &phase.faults)
                    && (other.start_s - phase.start_s).abs() < 1e-3
            };
            if let Some(again) = found.iter().find(is_this) {
                phase.intervals = again.intervals;
                phase.requests_per_second = again.requests_per_second;
                phase.bytes_per_second = again.bytes_per_second;
                phase.failed_share = again.failed_share;
            }
        }
    }
}

/// A kind of operation in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpSummary {
    /// Which.
    pub op: OpKind,
    /// Completed requests.
    pub completed: u64,
    /// Bytes covered by these requests: transferred by reads and writes, deallocated by unmaps.
    pub bytes: u64,
    /// Requests of `completed` that completed after the end of measuring: they count for latency, but not for
    /// throughput.
    #[serde(default)]
    pub late: u64,
    /// Bytes of `late`.
    #[serde(default)]
    pub late_bytes: u64,
    /// Retries.
    pub retries: u64,
    /// Attempts that timed out.
    pub timeouts: u64,
    /// Response time: from when the request was due to its completion, including retries.
    pub response: Option<Latencies>,
    /// Response time percentiles that the experiment's `percentiles` and `require` name; those with too few requests
    /// are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_percentiles_us: PercentilesUs,
    /// Service time: from the last submission to the completion.
    #[serde(default)]
    pub service: Option<Latencies>,
}

/// Averages over completed requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostPerRequest {
    /// CPU time of the workers and of threads that work for them (kernel threads: io-wq, SQPOLL), in nanoseconds;
    /// `null` if the kernel threads could not be found.
    pub cpu_ns: Option<f64>,
    /// The part of the CPU time that was spent polling for completions instead of sleeping (polling of sockets, and
    /// SQPOLL), in nanoseconds; `null` in results written before it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling_ns: Option<f64>,
    /// System calls of the workers' rings.
    pub system_calls: f64,
    /// Context switches of the workers.
    pub context_switches: f64,
}

impl OpSummary {
    fn of(op: OpKind, figures: &OpFigures) -> OpSummary {
        let OpFigures {
            completed,
            bytes,
            late,
            late_bytes,
            retries,
            timeouts,
            ..
        } = *figures;
        let (response, service) = (
            Latencies::of(&figures.response),
            Latencies::of(&figures.service),
        );
        OpSummary {
            op,
            completed,
            bytes,
            late,
            late_bytes,
            retries,
            timeouts,
            response,
            response_percentiles_us: PercentilesUs::new(),
            service,
        }
    }
}

impl CostPerRequest {
    fn of(cost: &Cost, completed: u64) -> CostPerRequest {
        let each = |count: u64| count as f64 / completed.max(1) as f64;
        CostPerRequest {
            cpu_ns: (!cost.is_partial).then(|| each(cost.cpu_nanos())),
            polling_ns: Some(each(cost.polling_nanos)),
            system_calls: each(cost.system_calls),
            context_switches: each(cost.switches()),
        }
    }
}

impl RunSummary {
    /// Summarizes the outcome of a run.
    pub fn of(
        outcome: &Outcome,
        repetition: u32,
        order: u32,
        seed: u64,
        rate_found: Option<f64>,
    ) -> RunSummary {
        let figures = &outcome.figures;
        let losses = RequestStatus::ALL
            .into_iter()
            .filter(|status| *status != RequestStatus::Good && figures.counts.of(*status) > 0)
            .map(|status| (status.name().to_string(), figures.counts.of(status)));
        RunSummary {
            repetition,
            order,
            seed,
            stopped: outcome.stopped,
            measured_s: outcome.end.since(outcome.start).as_secs_f64(),
            requests_per_second: outcome.requests_per_second,
            bytes_per_second: outcome.bytes_per_second,
            steady: None,
            rate_found,
            trial: 0,
            response: Latencies::of(&figures.response()),
            response_percentiles_us: PercentilesUs::new(),
            service: Latencies::of(&figures.service()),
            ops: figures
                .ops()
                .map(|(op, figures)| OpSummary::of(op, figures))
                .collect(),
            losses: losses.collect(),
            first_error: outcome.first_error.as_ref().map(|error| error.to_string()),
            causes: outcome.causes.clone(),
            verified: outcome.verified.clone(),
            engine: None,
            page_cache: None,
            replay: None,
            cost_per_request: CostPerRequest::of(&figures.cost, figures.completed()),
            probes: None,
            noise: None,
            profile: None,
            links: BTreeMap::new(),
            link_proofs: BTreeMap::new(),
            health_waits_s: BTreeMap::new(),
            transfer: None,
            recording_wait_s: outcome.recording_wait.as_secs_f64(),
            doubts: Vec::new(),
            troubles: Vec::new(),
            hosts: Vec::new(),
            common: None,
            faults: Vec::new(),
            phases: Vec::new(),
        }
    }

    /// Whether the run took place as planned.
    pub fn is_complete(&self) -> bool {
        self.stopped.is_complete()
    }

    /// Figures for one kind of operation; `None` if the load does not make it.
    pub fn op(&self, kind: OpKind) -> Option<&OpSummary> {
        self.ops.iter().find(|op| op.op == kind)
    }

    fn sum(&self, get: fn(&OpSummary) -> u64) -> u64 {
        self.ops.iter().map(get).sum()
    }

    /// Completed requests.
    pub fn completed(&self) -> u64 {
        self.sum(|op| op.completed)
    }

    /// Requests per second for one kind: its part of the total rate, so that the kinds add up to the total. Flushes
    /// are not part of the total, unless the load makes only flushes.
    pub fn requests_per_second_of(&self, op: &OpSummary) -> f64 {
        let in_time = |op: &OpSummary| op.completed.saturating_sub(op.late);
        let flush = |op: &&OpSummary| op.op == OpKind::Flush;
        let flushes: u64 = self.ops.iter().filter(flush).map(in_time).sum();
        let all = self.sum(in_time);
        let headline = match self.ops.iter().all(|op| flush(&op)) {
            true => all,
            false => all - flushes,
        };
        part(self.requests_per_second, in_time(op), headline)
    }

    /// Bytes per second for one kind: its part of the total; zero for a kind that transfers none.
    pub fn bytes_per_second_of(&self, op: &OpSummary) -> f64 {
        let in_time = |op: &OpSummary| match op.op.moves_bytes() {
            true => op.bytes.saturating_sub(op.late_bytes),
            false => 0,
        };
        part(self.bytes_per_second, in_time(op), self.sum(in_time))
    }

    /// Retries.
    pub fn retries(&self) -> u64 {
        self.sum(|op| op.retries)
    }

    /// Attempts that timed out.
    pub fn timeouts(&self) -> u64 {
        self.sum(|op| op.timeouts)
    }
}

impl Summary {
    /// JSON Schema of `summary.json`, for programs that read it.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Summary)
    }

    /// The effects of faults, over all points.
    pub fn effects(&self) -> impl Iterator<Item = &OverRuns> {
        self.points.iter().flat_map(|point| &point.degradation)
    }

    /// A note for display if verdicts about faults were computed again or come from other methods; `None` if they
    /// were made by this version's methods.
    pub fn judged_note(&self) -> Option<String> {
        let (by, version) = (&self.brunt, env!("CARGO_PKG_VERSION"));
        let others = self.effects().filter(|effect| effect.methods != METHODS);
        let others = others.count();
        if others > 0 {
            let effects = counted(others, "effect");
            return Some(format!(
                "The verdicts about {effects} of faults are those of Brunt {by}, which judged by other methods: the intervals \
                 cannot be read."
            ));
        }
        let is_again = self.effects().any(|effect| effect.judged_again);
        is_again.then(|| {
            format!(
                "Brunt {by} wrote this result and judged the effects of faults by other methods; they were judged again by \
                 those of Brunt {version}, from the intervals on disk."
            )
        })
    }

    /// Writes the file to `folder` atomically. It is on stable storage when this returns.
    ///
    /// # Errors
    /// The folder's file system is full or reports an error; an earlier file stays untouched.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let (path, new) = (folder.join(FILE_NAME), folder.join("summary.json.new"));
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        let mut file = std::fs::File::create(&new)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        // Puts the names of this file and of a run log created before it on stable storage, because the log is
        // removed after this.
        std::fs::File::open(folder)?.sync_all()
    }

    /// Reads the file alone. While an experiment is running, its runs are stored in another file: use
    /// [`Summary::read`].
    pub(crate) fn read_file(folder: &Path) -> Result<Summary, SummaryError> {
        let path = folder.join(FILE_NAME);
        let text = std::fs::read_to_string(&path).map_err(|source| SummaryError {
            path: path.clone(),
            kind: SummaryMistake::Io(source),
        })?;
        Summary::parse(&text).map_err(|kind| SummaryError { path, kind })
    }

    fn parse(text: &str) -> Result<Summary, SummaryMistake> {
        /// The fields that all versions of the format share.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            brunt: String,
        }
        // Parse from bytes, as for other files of results: for each kind of reader, the compiler would make another
        // copy of all deserializers.
        let text = text.as_bytes();
        let Head { format, brunt } = serde_json::from_slice(text).map_err(SummaryMistake::Json)?;
        if format != FORMAT {
            return Err(SummaryMistake::Format {
                found: format,
                brunt,
            });
        }
        serde_json::from_slice(text).map_err(SummaryMistake::Json)
    }
}

/// A summary that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct SummaryError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub kind: SummaryMistake,
}

/// Why a summary cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SummaryMistake {
    /// The operating system reported an error.
    #[error("{0}")]
    Io(io::Error),
    /// Another version of Brunt wrote it in another format.
    #[error(
        "written by Brunt {brunt} in format {found} of summary.json; this one reads format {FORMAT}"
    )]
    Format {
        /// Format of the file.
        found: u32,
        /// Version of Brunt that wrote the file.
        brunt: String,
    },
    /// The file is not a summary.
    #[error("not a summary: {0}")]
    Json(serde_json::Error),
    /// A line in the file of finished runs is damaged.
    #[error("line {line}: not a run: {source}")]
    LoggedRun {
        /// Number of the line, from 1.
        line: usize,
        /// The JSON error.
        source: serde_json::Error,
    },
    /// A finished run belongs to a point that the summary doesn't have.
    #[error("line {line}: a run of point {index}, which {FILE_NAME} does not have")]
    LoggedPoint {
        /// Number of the line, from 1.
        line: usize,
        /// Index of the run's point, from 0.
        index: usize,
    },
}

impl SummaryError {
    /// Advice for the user.
    pub fn advice(&self) -> String {
        match &self.kind {
            SummaryMistake::Io(_) | SummaryMistake::Json(_) => {
                "name a folder that `brunt run` has written results to".into()
            }
            SummaryMistake::Format { brunt, .. } => format!(
                "read it with Brunt {brunt}, or run the experiment again: its text is in the result's table \
                 environment, under experiment"
            ),
            SummaryMistake::LoggedRun { line, .. } | SummaryMistake::LoggedPoint { line, .. } => {
                format!(
                    "delete line {line} to read the other runs; the Parquet tables in the folder have all runs"
                )
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
