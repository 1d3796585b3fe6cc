//! Combines the effect of a fault over the runs of a point.

use std::sync::Arc;

use brunt_core::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cost::{Input, of_runs};
use super::evidence::{ALPHA, MARGIN, VerdictBasis};
use super::{Answer, Degradation, METHODS, NOTICEABLE, ResponseCost, TooShort};
use crate::statistics::Estimate;

/// Effect of a fault on a point: computed per run, then averaged over runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverRuns {
    /// Name of the fault.
    pub fault: String,
    /// Runs with a baseline.
    pub runs: usize,
    /// Requests per second before the fault.
    pub baseline: Option<Estimate>,
    /// Share of the baseline rate lost during the fault.
    pub drop: Option<Estimate>,
    /// Requests lost until recovery, compared with the baseline rate.
    pub lost_requests: Option<Estimate>,
    /// Bytes lost until recovery.
    pub lost_bytes: Option<Estimate>,
    /// Seconds until the effect was detectable, over the runs in which it was.
    pub detected_s: Option<Estimate>,
    /// Runs in which the fault had no detectable effect.
    pub not_detected: usize,
    /// Runs too noisy to tell whether the fault had an effect.
    #[serde(default)]
    pub detection_inconclusive: usize,
    /// Seconds from the fault's end until the rate recovered, over the runs in which it did.
    pub recovered_s: Option<Estimate>,
    /// Runs in which the rate did not recover.
    pub not_recovered: usize,
    /// Runs too noisy to tell whether the rate recovered.
    #[serde(default)]
    pub recovery_inconclusive: usize,
    /// Runs that were too short after the fault to tell whether the rate recovered; included in
    /// `recovery_inconclusive`.
    #[serde(default)]
    pub recovery_too_short: usize,
    /// Duration that would have been long enough for all runs that were too short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_short: Option<TooShort>,
    /// Smallest drop that would have been detected, as a share; mean over runs; `null` if none would.
    #[serde(default)]
    pub noticeable_drop: Option<f64>,
    /// Effect on the mean response time.
    #[serde(default)]
    pub response_mean: ResponseOverRuns,
    /// Effect on the 99th percentile of the response time.
    #[serde(default)]
    pub response_p99: ResponseOverRuns,
    /// Total seconds that requests waited beyond the mean expected without the fault.
    #[serde(default)]
    pub excess_wait_s: Option<Estimate>,
    /// Share of requests that failed before any fault.
    #[serde(default)]
    pub failed_share_before: Option<Estimate>,
    /// Share of requests that failed during the fault.
    #[serde(default)]
    pub failed_share: Option<Estimate>,
    /// How the verdict about the rate came about, from all runs together; `null` in results of a version that judged
    /// each run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictBasis>,
    /// Verdict about the rate of each run, based on the evidence of all runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<RunVerdict>,
    /// Version of the methods that judged; 0 in results of versions that did not record it.
    #[serde(default)]
    pub methods: u32,
    /// Whether the result had been judged by other methods, so these verdicts were computed from its intervals when
    /// it was read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub judged_again: bool,
}

/// What was concluded about the rate of one run, so that readers can check it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunVerdict {
    /// Share of the usual rate that was missing during the fault.
    pub drop: f64,
    /// Time from the start of the fault until its effect was detectable.
    pub detected: Answer,
    /// Time from the end of the fault until the rate recovered.
    pub recovered: Answer,
    /// What this run alone shows: the size of the effect, its standard error, and the probability of such a result
    /// without an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<VerdictBasis>,
}

/// Effect on a statistic of the response time: computed per run, then averaged over runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseOverRuns {
    /// Level before the fault, in microseconds.
    pub baseline_us: Option<Estimate>,
    /// Ratio to the baseline during the fault, over the runs in which requests were due or outstanding then.
    pub factor: Option<Estimate>,
    /// Ratio to the baseline in each run's worst interval.
    pub factor_max: Option<Estimate>,
    /// Seconds from the start of the fault until its effect was detectable, over the runs in which it was.
    pub detected_s: Option<Estimate>,
    /// Runs without a detectable effect.
    pub not_detected: usize,
    /// Runs too noisy to tell whether the fault had an effect.
    #[serde(default)]
    pub detection_inconclusive: usize,
    /// Seconds from the fault's end until the response time recovered, over the runs in which it did.
    pub recovered_s: Option<Estimate>,
    /// Runs in which the response time did not recover.
    pub not_recovered: usize,
    /// Runs too noisy to tell whether the response time recovered.
    #[serde(default)]
    pub recovery_inconclusive: usize,
    /// How the verdict about the response time came about, from all runs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictBasis>,
}

impl OverRuns {
    /// Factor by which the number of intervals would have to grow to give every run a verdict, if noise rather than
    /// the run's length left one open: enough to detect the observed drop or [`NOTICEABLE`], whichever is larger.
    /// `None` if every run has its answers.
    pub fn intervals_wanted(&self) -> Option<f64> {
        if self.detection_inconclusive + self.recovery_inconclusive <= self.recovery_too_short {
            return None;
        }
        // The part of the noticeable drop beyond the margin is inversely proportional to the square root of the
        // number of intervals.
        let drop = self.drop.map_or(0.0, |drop| drop.mean).max(NOTICEABLE);
        let times = ((self.noticeable_drop.unwrap_or(1.0) - MARGIN) / (drop - MARGIN)).powi(2);
        Some(times.clamp(2.0, 1000.0).ceil())
    }
}

impl ResponseOverRuns {
    fn of(
        runs: &[Degradation],
        figure: fn(&Degradation) -> Option<ResponseCost>,
    ) -> ResponseOverRuns {
        let costs: Vec<ResponseCost> = runs.iter().filter_map(figure).collect();
        let over = |get: &dyn Fn(&ResponseCost) -> Option<f64>| {
            Estimate::of(&costs.iter().filter_map(get).collect::<Vec<f64>>())
        };
        let count = |get: &dyn Fn(&ResponseCost) -> Answer, answer| {
            costs.iter().filter(|cost| get(cost) == answer).count()
        };
        ResponseOverRuns {
            baseline_us: over(&|cost| Some(cost.baseline_us)),
            factor: over(&|cost| cost.factor),
            factor_max: over(&|cost| cost.factor_max),
            detected_s: over(&|cost| cost.detected.seconds()),
            not_detected: count(&|cost| cost.detected, Answer::Never),
            detection_inconclusive: count(&|cost| cost.detected, Answer::Inconclusive),
            recovered_s: over(&|cost| cost.recovered.seconds()),
            not_recovered: count(&|cost| cost.recovered, Answer::Never),
            recovery_inconclusive: count(&|cost| cost.recovered, Answer::Inconclusive),
            verdict: VerdictBasis::clearest(costs.iter().filter_map(|cost| cost.verdict)),
        }
    }
}

/// The number of runs in which something never happened, and the number in which noise hides whether it did: `not in
/// 1 run, inconclusive in 2`; empty if it happened in all.
pub fn runs_without(never: usize, open: usize) -> String {
    let never = (never > 0).then(|| format!("not in {}", counted(never, "run")));
    let open = (open > 0).then(|| format!("inconclusive in {open}"));
    never.into_iter().chain(open).collect::<Vec<_>>().join(", ")
}

/// Combines the runs of a point.
pub fn over_runs(fault: &str, runs: &[Degradation]) -> OverRuns {
    let judged = together(runs);
    let alone = runs.iter().map(|run| run.verdict);
    let each = judged.iter().zip(alone).map(|(run, alone)| RunVerdict {
        drop: run.drop,
        detected: run.detected,
        recovered: run.recovered,
        alone,
    });
    let each = each.collect();
    let runs = &judged[..];
    let over = |get: &dyn Fn(&Degradation) -> Option<f64>| {
        Estimate::of(&runs.iter().filter_map(get).collect::<Vec<f64>>())
    };
    let count = |get: &dyn Fn(&Degradation) -> Answer, answer| {
        runs.iter().filter(|run| get(run) == answer).count()
    };
    OverRuns {
        fault: fault.to_string(),
        runs: runs.len(),
        baseline: over(&|run| Some(run.baseline.requests_per_second)),
        drop: over(&|run| Some(run.drop)),
        lost_requests: over(&|run| run.lost_requests),
        lost_bytes: over(&|run| run.lost_bytes),
        detected_s: over(&|run| run.detected.seconds()),
        not_detected: count(&|run| run.detected, Answer::Never),
        detection_inconclusive: count(&|run| run.detected, Answer::Inconclusive),
        recovered_s: over(&|run| run.recovered.seconds()),
        not_recovered: count(&|run| run.recovered, Answer::Never),
        recovery_inconclusive: count(&|run| run.recovered, Answer::Inconclusive),
        recovery_too_short: runs.iter().filter(|run| run.too_short.is_some()).count(),
        too_short: runs
            .iter()
            .filter_map(|run| run.too_short)
            .max_by(|one, other| one.until_s.total_cmp(&other.until_s)),
        noticeable_drop: over(&|run| run.noticeable_drop).map(|noticeable| noticeable.mean),
        response_mean: ResponseOverRuns::of(runs, |run| run.response_mean),
        response_p99: ResponseOverRuns::of(runs, |run| run.response_p99),
        excess_wait_s: over(&|run| run.excess_wait_s),
        failed_share_before: over(&|run| Some(run.failed_share_before)),
        failed_share: over(&|run| Some(run.failed_share)),
        verdict: VerdictBasis::clearest(runs.iter().filter_map(|run| run.verdict)),
        each,
        methods: METHODS,
        judged_again: false,
    }
}

/// Judges the runs again, each by the evidence of all: four runs that each fall by a third show an effect together
/// even if none does alone. Costs that were read from a file stay unchanged, because their intervals are unknown.
pub fn together(runs: &[Degradation]) -> Vec<Degradation> {
    let inputs: Option<Vec<Arc<Input>>> = runs.iter().map(|run| run.basis.0.clone()).collect();
    match inputs {
        Some(inputs) if inputs.len() > 1 => of_runs(&inputs, ALPHA),
        _ => runs.to_vec(),
    }
}
