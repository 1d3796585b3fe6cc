//! The effect of a fault on rate, response times and errors: pure functions over the intervals of one run, or of all
//! runs of a point together. A study calls [`of_run`] for each run and fault, and [`over_runs`] for each point, which
//! judges its runs again, by the evidence of all of them.
//!
//! The rules, in full, for the rate:
//! - *Baseline*: the intervals that end before any fault begins, at least [`BASELINE_MIN`] of them. The *level* is their
//!   mean. Their *band*, for people, is the median ± the larger of [`BAND_SHARE`] of it and [`BAND_SPREADS`] spreads; no
//!   verdict goes by it.
//! - *Drop*: the share that is missing, while the fault is there, of what would have been usual then (`paths`); in the
//!   intervals that lie whole in that time, if there are any.
//! - *Lost*: the usual rate minus the rate, summed from the fault's begin until recovery (or until the data or the next
//!   fault's begin end it) over whole intervals; unknown where recovery is. What comes back above the usual counts against
//!   it.
//! - *Detected*: whether an effect is likelier than noise could make it (`evidence`); then the end of the first interval
//!   of it (`paths`). Not so, it is *never* if a change by [`NOTICEABLE`] would have been seen, and otherwise
//!   *inconclusive*.
//! - *Recovered*: from the fault's end on, the begin of the first interval that is usual again, within [`BACK`], and stays
//!   so for [`HOLD`] at least (`paths`). A return that is not likely enough is *inconclusive*; so is one of a series
//!   that ends, or meets the next fault, before [`HOLD`] has passed, which is *too short* to tell.
//!
//! How often these are right, and how often they are wrong, is measured by `brunt-bench verdicts`; the figures are in
//! `docs/verdicts.md`.
//!
//! For response times, of their mean and of their p99. They are those of requests that were answered in an interval, and the
//! ages at its end of those that were due by then and not answered (`times`); several intervals have the ages at the end
//! of all of them:
//! - *Baseline*, *band* and *level* as above; it is the band's upper edge that is shown, and the levels are the mean and the
//!   p99 of all its requests. Verdicts are about logarithms, as response times grow by factors.
//! - *Factor*: how many times the level the mean and the p99 of all requests were while the fault was there.
//! - *Excess wait*, the area: response time beyond the mean's level, summed over all requests answered from the fault's
//!   begin until the mean is back. Requests that are never answered are not in it.
//! - *Detected* and *recovered* as above, with longer for lower. In an interval of which no time is known, what is
//!   outstanding has waited since the last one of which one was.
//!
//! For errors: the share of requests that ended otherwise than well, before and during the fault. A request
//! that is sent again and then done is a slow one, no error.
//!
//! Never and inconclusive are answers, never zeros.

mod answers;
mod cost;
mod evidence;
mod interval;
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
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cost::Input;
pub use evidence::{ALPHA, MARGIN, VerdictBasis};
pub use interval::{IntervalFigures, IntervalTimes, WaitingFigures};
pub use over_runs::{OverRuns, ResponseOverRuns, RunVerdict, over_runs, runs_without, together};
pub use paths::BACK;
pub use phases::{PhaseFigures, PhaseKind, PhaseOverRuns, phases, phases_over_runs};
pub use response::ResponseCost;

/// Fewest intervals of a baseline.
pub const BASELINE_MIN: usize = 3;
/// Half the band, as a share of the median, at least.
pub const BAND_SHARE: f64 = 0.05;
/// Half the band, in spreads, at least.
pub const BAND_SPREADS: f64 = 3.0;
/// How long a series has to stay in the band to have recovered.
pub const HOLD: Duration = Duration::from_secs(1);

/// Version of the methods by which effects of faults are judged. Raised when the same intervals may get another verdict;
/// results of another version are judged again when they are reported or compared.
pub const METHODS: u32 = 3;

/// A change by this share of the baseline has to be one that would have been seen, before "never seen" is said.
pub const NOTICEABLE: f64 = 0.15;

/// The rate before the fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// Level in requests per second.
    pub requests_per_second: f64,
    /// Lower edge of the baseline's band, in requests per second.
    pub low: f64,
    /// Upper edge of the band.
    pub high: f64,
    /// The same in bytes per second.
    pub bytes_per_second: f64,
    /// Number of intervals that it is computed from.
    pub intervals: usize,
}

/// Seconds, or `never` or `inconclusive`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Seconds.
    AfterS(f64),
    /// It did not come about, in the time there was.
    Never,
    /// Noise is larger than what would have to be seen.
    Inconclusive,
}

impl Answer {
    /// In a word, as tables have it: `yes`, `never` or `inconclusive`.
    pub fn word(self) -> &'static str {
        match self {
            Answer::AfterS(_) => "yes",
            Answer::Never => "never",
            Answer::Inconclusive => "inconclusive",
        }
    }

    /// The seconds.
    pub fn seconds(self) -> Option<f64> {
        match self {
            Answer::AfterS(seconds) => Some(seconds),
            Answer::Never | Answer::Inconclusive => None,
        }
    }
}

/// What came after a fault was too short to tell whether the rate recovered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TooShort {
    /// Up to when it would have had to last, in seconds from the start of measuring.
    pub until_s: f64,
    /// Whether the next fault ended it, and not the run.
    pub next_fault: bool,
}

impl TooShort {
    /// The setting that would have held, for people.
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
    /// The same for the worst interval.
    pub drop_max: f64,
    /// Requests lost until recovery, compared with the baseline rate; `null` if it is open when that was.
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
    /// The 99th percentile of the response time.
    #[serde(default)]
    pub response_p99: Option<ResponseCost>,
    /// Total seconds that requests waited beyond the baseline's mean until recovery; negative if they waited less.
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
    /// What it was computed from.
    #[serde(skip)]
    pub basis: Basis,
}

/// A fault's times, in seconds from the start of measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultSpan {
    /// Its begin.
    pub start_s: f64,
    /// Its end; `None` when it lasted as long as the run.
    pub end_s: Option<f64>,
}

/// What a cost was computed from, so that the runs of a point can be judged together. It isn't written: a cost that was
/// read has none, and [`of_run`] makes it again from the intervals.
#[derive(Clone, Default)]
pub struct Basis(Option<Arc<Input>>);

impl std::fmt::Debug for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Basis")
    }
}

/// A cost that was read is the one that was written.
impl PartialEq for Basis {
    fn eq(&self, _: &Basis) -> bool {
        true
    }
}

/// What fault `index` of `faults` cost the run; `None` without a baseline (a sticky fault, or too few
/// intervals before the first one).
pub fn of_run(
    series: &[IntervalFigures],
    faults: &[FaultSpan],
    index: usize,
) -> Option<Degradation> {
    let input = Arc::new(Input::of(series, faults, index)?);
    cost::of_runs(&[input], evidence::ALPHA_RUN).pop()
}

/// The share of requests that failed, of intervals that count with a part.
fn failed_share<'a>(parts: impl Iterator<Item = (&'a IntervalFigures, f64)>) -> f64 {
    let (mut failed, mut all) = (0.0, 0.0);
    for (one, part) in parts {
        failed += one.failed as f64 * part;
        all += (one.failed + one.requests) as f64 * part;
    }
    if all > 0.0 { failed / all } else { 0.0 }
}
