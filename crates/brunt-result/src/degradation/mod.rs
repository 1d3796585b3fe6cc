//! The effect of a fault on rate, response times and errors: pure functions over the intervals of one run, or of all
//! runs of a point together. A study calls [`of_run`] for each run and fault, and [`over_runs`] for each point, which
//! judges the runs again by their combined evidence.
//!
//! The rules for the rate:
//! - *Baseline*: the intervals that end before any fault begins, at least [`BASELINE_MIN`] of them. The *level* is
//!   their mean. The *band*, for display only, is the median ± [`BAND_SHARE`] of the median or ± [`BAND_SPREADS`]
//!   spreads, whichever is wider. Verdicts don't use it.
//! - *Drop*: the missing share of the rate expected during the fault (`paths`), over the intervals that lie
//!   completely within the fault, if there are any, and the interval in which the fault began, if the fault covers
//!   most of it.
//! - *Lost*: the expected rate minus the rate, summed over whole intervals from the fault's start until recovery, the
//!   end of the data, or the start of the next fault. Unknown if recovery is unknown. Rates above the expected one
//!   are credited.
//! - *Detected*: if `evidence` shows an effect beyond noise, the end of the first interval with that effect
//!   (`paths`). Otherwise *never* if a change by [`NOTICEABLE`] would have been seen, and *inconclusive* if not.
//! - *Recovered*: counted from the fault's end, the start of the first interval that is usual again, within [`BACK`],
//!   and stays so for at least [`HOLD`] (`paths`). *Inconclusive* if recovery is not likely enough, or if the series
//!   ends or the next fault starts before [`HOLD`] has passed: then it was *too short* to tell. As long as no request
//!   is answered, nothing has recovered, however noisy the baseline is.
//!
//! `brunt-bench verdicts` measures how often these answers are right and wrong; `docs/verdicts.md` has the figures.
//!
//! The rules for the mean and the p99 of response times. They cover requests answered in an interval, and the ages of
//! requests that were due by its end but not answered (`times`). For several intervals together, the ages at the end
//! of the last interval count:
//! - *Baseline*, *band* and *level* as for the rate. The band's upper edge is shown; the levels are the mean and the
//!   p99 of all baseline requests. Verdicts use logarithms, because response times grow by factors.
//! - *Factor*: mean and p99 of all requests during the fault, as a multiple of the level.
//! - *Excess wait*, the area: response time beyond the mean expected without the fault (`paths`), summed over all requests
//!   answered from the fault's start until the mean has recovered, and over those outstanding then, with their age.
//! - *Detected* and *recovered* as for the rate, except that higher is worse. In an interval without known times,
//!   outstanding requests are taken to have waited since the last interval with known times.
//!
//! Errors: the share of requests that failed, before and during the fault. A request that succeeds after a retry counts
//! as slow, not as an error.
//!
//! *Never* and *inconclusive* are answers, never zeros.

mod answer;
mod answers;
#[cfg(test)]
mod changing;
mod cost;
mod evidence;
mod interval;
mod limits;
mod noise_model;
mod over_runs;
mod paths;
mod phases;
mod response;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;
mod times;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use answer::Answer;
use cost::Input;
pub use evidence::{ALPHA, MARGIN, VerdictBasis};
pub use interval::{IntervalFigures, IntervalTimes, WaitingFigures};
pub use limits::{BAND_SHARE, BAND_SPREADS, BASELINE_MIN, HOLD, METHODS, NOTICEABLE};
pub use over_runs::{OverRuns, ResponseOverRuns, RunVerdict, over_runs, runs_without, together};
pub use paths::BACK;
pub use phases::{PhaseFigures, PhaseKind, PhaseOverRuns, phases, phases_over_runs};
pub use response::ResponseCost;

/// The rate before the fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// Level in requests per second.
    pub requests_per_second: f64,
    /// Lower edge of the baseline's band, in requests per second.
    pub low: f64,
    /// Upper edge of the band.
    pub high: f64,
    /// Level in bytes per second.
    pub bytes_per_second: f64,
    /// Number of intervals that the baseline is computed from.
    pub intervals: usize,
}

/// The time after a fault was too short to tell whether the rate recovered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TooShort {
    /// Time until which the series would have had to last, in seconds from the start of measuring.
    pub until_s: f64,
    /// Whether the next fault cut the series short, rather than the end of the run.
    pub next_fault: bool,
}

impl TooShort {
    /// The setting that would have made the time long enough, for display.
    pub fn advice(self) -> String {
        let seconds = self.until_s.ceil();
        match self.next_fault {
            true => format!("begin the next fault later, at = \"{seconds}s\""),
            false => format!("use a longer run, stop = {{ time = \"{seconds}s\" }}"),
        }
    }
}

/// Effect of a fault on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Degradation {
    /// The rate before the fault.
    pub baseline: Baseline,
    /// Share of the baseline rate lost during the fault; negative if the rate rose.
    pub drop: f64,
    /// Share of the baseline rate lost in the worst interval.
    pub drop_max: f64,
    /// Requests lost until recovery, compared with the baseline rate; `null` if that time is not known.
    pub lost_requests: Option<f64>,
    /// Bytes lost until recovery.
    pub lost_bytes: Option<f64>,
    /// Time from the start of the fault until its effect was detectable.
    pub detected: Answer,
    /// Time from the end of the fault until the rate recovered.
    pub recovered: Answer,
    /// Smallest drop during the fault that would have been detected, as a share; `null` if not even a drop to zero
    /// would.
    #[serde(default)]
    pub noticeable_drop: Option<f64>,
    /// The run, or the time to the next fault, was too short after the fault to tell whether the rate recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_short: Option<TooShort>,
    /// Effect on the mean response time; `null` without a baseline.
    #[serde(default)]
    pub response_mean: Option<ResponseCost>,
    /// Effect on the 99th percentile of the response time; `null` without a baseline.
    #[serde(default)]
    pub response_p99: Option<ResponseCost>,
    /// Total seconds that requests waited beyond the mean expected without the fault until recovery; negative if they
    /// waited less.
    #[serde(default)]
    pub excess_wait_s: Option<f64>,
    /// Share of requests that failed before any fault.
    #[serde(default)]
    pub failed_share_before: f64,
    /// Share of requests that failed during the fault.
    #[serde(default)]
    pub failed_share: f64,
    /// How the verdict about the rate came about, from this run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictBasis>,
    /// The intervals that the effect was computed from.
    #[serde(skip)]
    pub basis: Basis,
}

/// Times of a fault, in seconds from the start of measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultSpan {
    /// Start of the fault.
    pub start_s: f64,
    /// End of the fault; `None` if it lasted until the end of the run.
    pub end_s: Option<f64>,
}

/// The input of a cost, so that the runs of a point can be judged together. It is not serialized: a cost that was
/// read from a file lacks it, and [`of_run`] computes it again from the intervals.
#[derive(Clone, Default)]
pub struct Basis(Option<Arc<Input>>);

impl std::fmt::Debug for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Basis")
    }
}

/// All inputs count as equal, so that a cost read from a file equals the one that was written.
impl PartialEq for Basis {
    fn eq(&self, _: &Basis) -> bool {
        true
    }
}

/// What fault `index` of `faults` cost the run; `None` without a baseline (a sticky fault, or too few intervals before
/// the first fault).
pub fn of_run(
    series: &[IntervalFigures],
    faults: &[FaultSpan],
    index: usize,
) -> Option<Degradation> {
    let input = Arc::new(Input::of(series, faults, index)?);
    cost::of_runs(&[input], evidence::ALPHA_RUN).pop()
}

/// The share of failed requests; intervals are weighted by the share of each that counts.
fn failed_share<'a>(parts: impl Iterator<Item = (&'a IntervalFigures, f64)>) -> f64 {
    let (mut failed, mut all) = (0.0, 0.0);
    for (one, part) in parts {
        failed += one.failed as f64 * part;
        all += (one.failed + one.requests) as f64 * part;
    }
    if all > 0.0 { failed / all } else { 0.0 }
}
