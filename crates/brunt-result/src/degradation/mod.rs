//! The effect of a fault on rate, response times and errors: pure functions over the intervals of one run. A
//! study calls them for each run and fault, and computes estimates over the runs.
//!
//! The rules, in full, for the rate:
//! - *Baseline*: the intervals that end before any fault begins, at least [`BASELINE_MIN`] of them. Their *band* is the
//!   median ± the larger of [`BAND_SHARE`] of it and [`BAND_SPREADS`] spreads, where a spread is 1.4826 times the
//!   median distance from the median (what a standard deviation is for normal noise, untouched by outliers). The
//!   *level* is the mean of them, each held within the band: the mean under a fault is held against a mean.
//! - *Drop*: the share of the level that is missing in the mean rate while the fault is there.
//! - *Lost*: level minus rate, summed from the fault's begin until recovery (or until the data or the next fault's begin
//!   end it; until the fault's end where recovery is inconclusive). What comes back above the level counts against it.
//! - *Detected*: whether the intervals under the fault are worse than the baseline by more than [`BAND_SHARE`], beyond
//!   what their own noise could do (`shift.rs` says by which tests); then the end of the first interval of the part that
//!   is. Not so, it is *never* if a change by [`NOTICEABLE`] would have been seen, and otherwise *inconclusive*.
//! - *Recovered*: from the fault's end on, what is shown to be worse than the baseline is passed over; from what is left
//!   the begin of the first interval of the part that is shown to be better than the fault was. That has to last
//!   [`HOLD`]. A series that is worse until it ends, or meets the next fault, has *never* recovered. One that ends before
//!   [`HOLD`] has passed is *too short* to tell, which counts as *inconclusive*, as does one of which neither is shown.
//!
//! How often these are right, and how often they are wrong, is measured by tests on series whose truth is known; the
//! figures are in `docs/results.md`.
//!
//! For response times (those of requests that were answered in an interval), of their mean and of their p99:
//! - *Baseline*, *band* and *level* as above; it is the band's upper edge that counts, and the level of a p99 is its
//!   median.
//! - *Factor*: how many times the level they were while the fault was there: the mean over all its requests, and the
//!   median of its intervals' p99.
//! - *Excess wait*, the area: response time beyond the mean's level, summed over all requests answered from the fault's
//!   begin until the mean is back. Requests that are never answered are not in it.
//! - *Detected* and *recovered* as above, with longer for lower. An interval in which nothing was answered is worse than
//!   any band.
//!
//! For errors: the share of requests that ended otherwise than well, before and during the fault. A request
//! that is sent again and then done is a slow one, no error.
//!
//! Never and inconclusive are answers, never zeros.

mod answers;
mod phases;
mod response;
mod shift;
#[cfg(test)]
mod synthetic;

use std::time::Duration;

use brunt_core::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::Estimate;
use answers::{Answers, answers};
pub use phases::{PhaseFigures, PhaseKind, PhaseOverRuns, phases, phases_over_runs};
pub use response::ResponseCost;
use response::{of_figure, usual, weighted_mean};
pub use shift::ALPHA;
use shift::Scale;

/// Fewest intervals of a baseline.
pub const BASELINE_MIN: usize = 3;
/// Half the band, as a share of the median, at least.
pub const BAND_SHARE: f64 = 0.05;
/// Half the band, in spreads, at least.
pub const BAND_SPREADS: f64 = 3.0;
/// How long a series has to stay in the band to have recovered.
pub const HOLD: Duration = Duration::from_secs(1);

/// A change by this share of the baseline has to be one that would have been seen, before "never seen" is said.
pub const NOTICEABLE: f64 = 0.15;

/// One interval of a run. Times in seconds from the start of measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IntervalFigures {
    /// Its begin.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Requests completed in it.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Requests that ended otherwise than well in it.
    pub failed: u64,
    /// Mean response time of those completed, in microseconds; `None` if none was.
    pub response_mean_us: Option<f64>,
    /// Its 99th percentile.
    pub response_p99_us: Option<f64>,
}

impl IntervalFigures {
    fn rate(&self) -> f64 {
        self.requests as f64 / (self.end_s - self.start_s)
    }
}

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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Degradation {
    /// The rate before the fault.
    pub baseline: Baseline,
    /// Share of the baseline rate lost during the fault; negative if the rate rose.
    pub drop: f64,
    /// The same for the worst interval.
    pub drop_max: f64,
    /// Requests lost until recovery, compared with the baseline rate.
    pub lost_requests: f64,
    /// Bytes lost until recovery.
    pub lost_bytes: f64,
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
}

/// A fault's times, in seconds from the start of measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultSpan {
    /// Its begin.
    pub start_s: f64,
    /// Its end; `None` when it lasted as long as the run.
    pub end_s: Option<f64>,
}

/// What fault `index` of `faults` cost the run; `None` without a baseline (a sticky fault, or too few
/// intervals before the first one).
pub fn of_run(
    series: &[IntervalFigures],
    faults: &[FaultSpan],
    index: usize,
) -> Option<Degradation> {
    let fault = faults[index];
    let first = faults
        .iter()
        .map(|fault| fault.start_s)
        .fold(f64::INFINITY, f64::min);
    let series: Vec<IntervalFigures> = series
        .iter()
        .filter(|one| one.end_s > one.start_s)
        .copied()
        .collect();
    let (baseline, scale) = baseline(&series, first)?;
    let end_s = fault.end_s.unwrap_or(f64::INFINITY);
    // Another fault that begins after this one has ended ends what can be told of this one.
    let next = faults
        .iter()
        .map(|other| other.start_s)
        .filter(|start| *start >= end_s);
    let horizon = next.fold(f64::INFINITY, f64::min);

    // Intervals that the fault covers only in part count with their part.
    let under: Vec<(&IntervalFigures, f64)> = series
        .iter()
        .map(|one| (one, covered(one, fault)))
        .filter(|(_, time)| *time > 0.0)
        .collect();
    let time: f64 = under.iter().map(|(_, time)| time).sum();
    if time == 0.0 {
        return None;
    }
    let mean = under
        .iter()
        .map(|(one, time)| one.rate() * time)
        .sum::<f64>()
        / time;
    let share_lost = |rate: f64| 1.0 - rate / baseline.requests_per_second;
    // Whole intervals, if there are any: of one at the edge the rest was another time's.
    let whole = under
        .iter()
        .filter(|(one, time)| *time >= (one.end_s - one.start_s) * 0.999);
    let worst = whole
        .map(|(one, _)| one.rate())
        .fold(f64::INFINITY, f64::min);
    let drop = share_lost(mean);

    let Answers {
        detected,
        recovered,
        noticeable,
        too_short_until_s,
    } = answers(
        &series,
        &scale,
        |one| Some(one.rate()),
        fault,
        first,
        horizon,
    );
    let until = |recovered: Answer| match (recovered, fault.end_s) {
        (Answer::AfterS(seconds), Some(end_s)) => end_s + seconds,
        (Answer::Inconclusive, Some(end_s)) => end_s.min(horizon),
        _ => horizon,
    };
    let (mut lost_requests, mut lost_bytes) = (0.0, 0.0);
    for (one, time) in parts(&series, fault.start_s, until(recovered)) {
        let part = time / (one.end_s - one.start_s);
        lost_requests += baseline.requests_per_second * time - one.requests as f64 * part;
        lost_bytes += baseline.bytes_per_second * time - one.bytes as f64 * part;
    }
    let figure = |get, together| of_figure(&series, fault, first, horizon, get, together);
    let response_mean = figure(|one| one.response_mean_us, weighted_mean);
    let response_p99 = figure(|one| one.response_p99_us, usual);
    let excess_wait_s = response_mean.map(|mean| {
        let waited =
            parts(&series, fault.start_s, until(mean.recovered)).filter_map(|(one, time)| {
                let requests = one.requests as f64 * time / (one.end_s - one.start_s);
                Some(requests * (one.response_mean_us? - mean.baseline_us) / 1e6)
            });
        waited.sum()
    });
    let before = series
        .iter()
        .filter(|one| one.end_s <= first)
        .map(|one| (one, 1.0));
    let during = under
        .iter()
        .map(|(one, time)| (*one, time / (one.end_s - one.start_s)));
    Some(Degradation {
        baseline,
        drop,
        drop_max: if worst.is_finite() {
            share_lost(worst)
        } else {
            drop
        },
        lost_requests,
        lost_bytes,
        detected,
        recovered,
        noticeable_drop: Some(noticeable).filter(|share| *share <= 1.0),
        too_short: too_short_until_s.map(|until_s| TooShort {
            until_s,
            next_fault: horizon.is_finite(),
        }),
        response_mean,
        response_p99,
        excess_wait_s,
        failed_share_before: failed_share(before),
        failed_share: failed_share(during),
    })
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

/// How long a fault was there in an interval, in seconds.
fn covered(one: &IntervalFigures, fault: FaultSpan) -> f64 {
    (one.end_s.min(fault.end_s.unwrap_or(f64::INFINITY)) - one.start_s.max(fault.start_s)).max(0.0)
}

/// The intervals with some time between `from_s` and `to_s`, and how much of it.
fn parts(
    series: &[IntervalFigures],
    from_s: f64,
    to_s: f64,
) -> impl Iterator<Item = (&IntervalFigures, f64)> {
    let time = move |one: &IntervalFigures| one.end_s.min(to_s) - one.start_s.max(from_s);
    series
        .iter()
        .map(move |one| (one, time(one)))
        .filter(|(_, time)| *time > 0.0)
}

fn baseline(series: &[IntervalFigures], until_s: f64) -> Option<(Baseline, Scale)> {
    let before: Vec<&IntervalFigures> = series.iter().filter(|one| one.end_s <= until_s).collect();
    let rates: Vec<f64> = before.iter().map(|one| one.rate()).collect();
    let scale = Scale::of(&rates, -1.0)?;
    let bytes: Vec<f64> = before
        .iter()
        .map(|one| one.bytes as f64 / (one.end_s - one.start_s))
        .collect();
    let baseline = Baseline {
        requests_per_second: level(&rates),
        low: scale.middle - scale.half_band(),
        high: scale.middle + scale.half_band(),
        bytes_per_second: level(&bytes),
        intervals: before.len(),
    };
    Some((baseline, scale))
}

/// The mean of a baseline's figures, each held within the band.
fn level(before: &[f64]) -> f64 {
    let Some(scale) = Scale::of(before, 1.0) else {
        return 0.0;
    };
    let (low, high) = (
        scale.middle - scale.half_band(),
        scale.middle + scale.half_band(),
    );
    before
        .iter()
        .map(|figure| figure.clamp(low, high))
        .sum::<f64>()
        / before.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    }
}

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
    /// Of those, runs that were too short after the fault.
    #[serde(default)]
    pub recovery_too_short: usize,
    /// What would have been long enough for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_short: Option<TooShort>,
    /// Smallest drop that would have been detected, as a share; mean over runs; `null` if none would.
    #[serde(default)]
    pub noticeable_drop: Option<f64>,
    /// The mean response time.
    #[serde(default)]
    pub response_mean: ResponseOverRuns,
    /// The 99th percentile of the response time.
    #[serde(default)]
    pub response_p99: ResponseOverRuns,
    /// Total seconds that requests waited beyond the baseline's mean.
    #[serde(default)]
    pub excess_wait_s: Option<Estimate>,
    /// Share of requests that failed before any fault.
    #[serde(default)]
    pub failed_share_before: Option<Estimate>,
    /// Share of requests that failed during the fault.
    #[serde(default)]
    pub failed_share: Option<Estimate>,
}

/// Effect on a statistic of the response time: computed per run, then averaged over runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseOverRuns {
    /// Level before the fault, in microseconds.
    pub baseline_us: Option<Estimate>,
    /// Ratio to the baseline during the fault, over the runs in which requests completed.
    pub factor: Option<Estimate>,
    /// The same ratio for each run's worst interval.
    pub factor_max: Option<Estimate>,
    /// Seconds until the effect was detectable, over the runs in which it was.
    pub detected_s: Option<Estimate>,
    /// Runs without a detectable effect.
    pub not_detected: usize,
    /// Runs too noisy to tell whether there was an effect.
    #[serde(default)]
    pub detection_inconclusive: usize,
    /// Seconds from the fault's end until recovery, over the runs that recovered.
    pub recovered_s: Option<Estimate>,
    /// Runs that did not recover.
    pub not_recovered: usize,
    /// Runs too noisy to tell whether they recovered.
    #[serde(default)]
    pub recovery_inconclusive: usize,
}

impl OverRuns {
    /// How many times as many intervals would have answered, where noise, not its length, left some run without an answer: enough to
    /// show the drop that there was, or else [`NOTICEABLE`]. `None` where every run has its answers.
    pub fn intervals_wanted(&self) -> Option<f64> {
        if self.detection_inconclusive + self.recovery_inconclusive <= self.recovery_too_short {
            return None;
        }
        // What can be noticed beyond the margin shrinks with the root of the number of intervals.
        let drop = self.drop.map_or(0.0, |drop| drop.mean).max(NOTICEABLE);
        let times =
            ((self.noticeable_drop.unwrap_or(1.0) - BAND_SHARE) / (drop - BAND_SHARE)).powi(2);
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
        }
    }
}

/// In how many runs something never came about, and in how many noise left it open: `not in 1 run, inconclusive in 2`;
/// empty where it came about in all.
pub fn runs_without(never: usize, open: usize) -> String {
    let never = (never > 0).then(|| format!("not in {}", counted(never, "run")));
    let open = (open > 0).then(|| format!("inconclusive in {open}"));
    never.into_iter().chain(open).collect::<Vec<_>>().join(", ")
}

/// Over the runs of a point.
pub fn over_runs(fault: &str, runs: &[Degradation]) -> OverRuns {
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
        lost_requests: over(&|run| Some(run.lost_requests)),
        lost_bytes: over(&|run| Some(run.lost_bytes)),
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tenths of a second with these rates.
    fn series(rates: &[(usize, f64)]) -> Vec<IntervalFigures> {
        let rates = rates
            .iter()
            .flat_map(|(count, rate)| std::iter::repeat_n(*rate, *count));
        rates
            .enumerate()
            .map(|(index, rate)| IntervalFigures {
                start_s: index as f64 / 10.0,
                end_s: (index + 1) as f64 / 10.0,
                requests: (rate / 10.0).round() as u64,
                bytes: (rate / 10.0).round() as u64 * 4096,
                ..IntervalFigures::default()
            })
            .collect()
    }

    fn span(start_s: f64, end_s: f64) -> FaultSpan {
        FaultSpan {
            start_s,
            end_s: Some(end_s),
        }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} is not {b}");
    }

    /// Half of the rate for two seconds, and half a second until it is back, are just that.
    #[test]
    fn a_dip() {
        let series = series(&[(20, 1000.0), (20, 500.0), (5, 800.0), (20, 1000.0)]);
        let found = of_run(&series, &[span(2.0, 4.0)], 0).unwrap();
        near(found.baseline.requests_per_second, 1000.0);
        assert_eq!(found.baseline.intervals, 20);
        near(found.drop, 0.5);
        near(found.drop_max, 0.5);
        near(found.lost_requests, 1000.0 + 100.0);
        near(found.lost_bytes, 1100.0 * 4096.0);
        near(found.detected.seconds().unwrap(), 0.1);
        near(found.recovered.seconds().unwrap(), 0.5);
    }

    /// What does not show, does not come back, or has no baseline is said, not put at zero.
    #[test]
    fn no_answers() {
        let flat = series(&[(60, 1000.0)]);
        let found = of_run(&flat, &[span(2.0, 4.0)], 0).unwrap();
        assert_eq!(
            (found.detected, found.recovered),
            (Answer::Never, Answer::AfterS(0.0))
        );
        near(found.drop, 0.0);
        let dead = series(&[(20, 1000.0), (40, 0.0)]);
        let found = of_run(&dead, &[span(2.0, 4.0)], 0).unwrap();
        assert_eq!(found.recovered, Answer::Never);
        near(found.drop, 1.0);
        near(found.lost_requests, 4000.0);
        let sticky = [FaultSpan {
            start_s: -1.0,
            end_s: None,
        }];
        assert_eq!(of_run(&flat, &sticky, 0), None);
        let late = [FaultSpan {
            start_s: 2.0,
            end_s: None,
        }];
        let found = of_run(&dead, &late, 0).unwrap();
        assert_eq!(
            (found.recovered, found.detected.seconds().is_some()),
            (Answer::Never, true)
        );
        assert_eq!(of_run(&[], &late, 0), None);
    }

    /// A single low interval is noise, an outlier does not widen the band, and noise does.
    #[test]
    fn noise() {
        let blip = series(&[(20, 1000.0), (5, 1000.0), (1, 0.0), (30, 1000.0)]);
        assert_eq!(
            of_run(&blip, &[span(2.0, 4.0)], 0).unwrap().detected,
            Answer::Never
        );
        let outlier = series(&[(19, 1000.0), (1, 9000.0), (20, 900.0), (20, 1000.0)]);
        let found = of_run(&outlier, &[span(2.0, 4.0)], 0).unwrap();
        near(found.baseline.low, 950.0);
        assert!(found.detected.seconds().is_some());
        let rates: Vec<(usize, f64)> = (0..40)
            .map(|i| (1, if i % 2 == 0 { 900.0 } else { 1100.0 }))
            .collect();
        let found = of_run(&series(&rates), &[span(2.0, 3.0)], 0).unwrap();
        assert!(found.baseline.low < 700.0);
    }

    /// Of two faults each has its own drop, both against what was before the first; the second
    /// ends what can be told of the first.
    #[test]
    fn two_faults() {
        let series = series(&[
            (20, 1000.0),
            (10, 500.0),
            (10, 100.0),
            (20, 500.0),
            (20, 1000.0),
        ]);
        // The long one from 2 to 6, within it the short one from 3 to 4.
        let faults = [span(2.0, 6.0), span(3.0, 4.0)];
        let long = of_run(&series, &faults, 0).unwrap();
        near(long.drop, 1.0 - (500.0 + 100.0 + 1000.0) / 4000.0);
        assert_eq!(long.recovered, Answer::AfterS(0.0));
        let short = of_run(&series, &faults, 1).unwrap();
        near(short.drop, 0.9);
        near(short.recovered.seconds().unwrap(), 2.0);
        let apart = [span(2.0, 3.0), span(3.0, 6.0)];
        let first = of_run(&series, &apart, 0).unwrap();
        assert_eq!(first.recovered, Answer::Inconclusive);
        let short = first.too_short.unwrap();
        assert_eq!(
            (short.next_fault, short.advice().contains("at = \"5s\"")),
            (true, true),
            "{short:?}"
        );
    }

    /// A run, or the time to the next fault, that is too short after a fault leaves recovery open, whatever was seen
    /// of it, and says up to when it would have had to go on.
    #[test]
    fn a_run_that_ends_too_soon_after_its_fault_cannot_tell_recovery() {
        let check = |after: &[(usize, f64)], until_s: Option<f64>, recovered: Answer| {
            let rates = [&[(20, 1000.0), (20, 0.0)], after].concat();
            let found = of_run(&series(&rates), &[span(2.0, 4.0)], 0).unwrap();
            assert_eq!(found.recovered, recovered, "{after:?}");
            assert_eq!(
                found.too_short.map(|short| short.next_fault),
                until_s.map(|_| false),
                "{after:?}"
            );
            if let (Some(short), Some(until_s)) = (found.too_short, until_s) {
                near(short.until_s, until_s);
                assert!(
                    short
                        .advice()
                        .contains(&format!("stop = {{ time = \"{}s\" }}", until_s.ceil()))
                );
            }
            found
        };
        check(&[], Some(5.1), Answer::Inconclusive);
        check(&[(9, 1000.0)], Some(5.1), Answer::Inconclusive);
        check(&[(9, 0.0)], Some(5.1), Answer::Inconclusive);
        // Back, for 0.9 s only.
        let open = check(&[(20, 0.0), (9, 1000.0)], Some(7.1), Answer::Inconclusive);
        check(&[(20, 0.0)], None, Answer::Never);
        let back = check(&[(20, 1000.0)], None, Answer::AfterS(0.0));
        let all = over_runs("x", &[open, back, back]);
        assert_eq!(
            (
                all.not_recovered,
                all.recovery_inconclusive,
                all.recovery_too_short
            ),
            (0, 1, 1)
        );
        assert_eq!(
            (all.recovered_s.unwrap().runs, all.too_short),
            (2, open.too_short)
        );
        assert_eq!(
            all.intervals_wanted(),
            None,
            "more intervals of this length would not help"
        );
    }

    /// Over runs, those without an answer are counted beside the estimate.
    #[test]
    fn runs_that_have_no_answer_are_counted() {
        assert_eq!(runs_without(0, 0), "");
        assert_eq!(runs_without(1, 0), "not in 1 run");
        assert_eq!(runs_without(2, 1), "not in 2 runs, inconclusive in 1");
        assert_eq!(runs_without(0, 3), "inconclusive in 3");
    }

    #[test]
    fn over_several_runs() {
        let run = |low: f64, back: usize| {
            let series = series(&[(20, 1000.0), (20, low), (back, 1000.0)]);
            of_run(&series, &[span(2.0, 4.0)], 0).unwrap()
        };
        let all = over_runs(
            "x",
            &[
                run(500.0, 20),
                run(400.0, 20),
                run(600.0, 20),
                run(1000.0, 5),
            ],
        );
        assert_eq!(
            (all.runs, all.not_detected, all.recovery_too_short),
            (4, 1, 1)
        );
        near(all.drop.unwrap().mean, (0.5 + 0.6 + 0.4) / 4.0);
        assert_eq!(all.recovered_s.unwrap().runs, 3);
    }

    /// So many tenths of a second with this mean and p99, and so many failures.
    type Part = (usize, Option<(f64, f64)>, u64);

    /// A fault from 2 s to 4 s whose tenths have these response times (mean and p99 in us) and failures,
    /// 10 requests each; without a mean, none.
    fn answers(parts: &[Part]) -> Degradation {
        let tenths = parts
            .iter()
            .flat_map(|(count, us, failed)| std::iter::repeat_n((us, failed), *count));
        let series: Vec<IntervalFigures> = tenths
            .enumerate()
            .map(|(index, (us, failed))| IntervalFigures {
                start_s: index as f64 / 10.0,
                end_s: (index + 1) as f64 / 10.0,
                requests: if us.is_some() { 10 } else { 0 },
                failed: *failed,
                response_mean_us: us.map(|(mean, _)| mean),
                response_p99_us: us.map(|(_, p99)| p99),
                ..IntervalFigures::default()
            })
            .collect();
        of_run(&series, &[span(2.0, 4.0)], 0).unwrap()
    }

    const USUAL: Option<(f64, f64)> = Some((100.0, 200.0));

    /// Response times that treble, and come down in two steps, are just that: the factor, the wait
    /// of every request beyond the usual, when it shows and when it is over; the p99 has its own answers.
    #[test]
    fn longer_answers() {
        let found = answers(&[
            (20, USUAL, 0),
            (20, Some((300.0, 1000.0)), 0),
            (5, Some((200.0, 200.0)), 0),
            (20, USUAL, 0),
        ]);
        let (mean, p99) = (found.response_mean.unwrap(), found.response_p99.unwrap());
        near(mean.baseline_us, 100.0);
        near(mean.high_us, 105.0);
        near(mean.factor.unwrap(), 3.0);
        near(mean.factor_max.unwrap(), 3.0);
        near(mean.detected.seconds().unwrap(), 0.1);
        near(mean.recovered.seconds().unwrap(), 0.5);
        // 200 requests 200 us too long, 50 requests 100 us.
        near(found.excess_wait_s.unwrap(), 0.040 + 0.005);
        near(p99.factor.unwrap(), 5.0);
        near(p99.recovered.seconds().unwrap(), 0.0);
        // The rate stood where it was.
        near(found.drop, 0.0);
        assert_eq!(found.detected, Answer::Never);
    }

    /// A fault in which nobody is answered has no factor, but is seen; the requests that it held
    /// up wait in the interval in which they are answered. An outlier is not the usual p99.
    #[test]
    fn no_answers_at_all() {
        let found = answers(&[
            (20, USUAL, 0),
            (20, None, 0),
            (1, Some((1.5e6, 2e6)), 0),
            (20, USUAL, 0),
        ]);
        let mean = found.response_mean.unwrap();
        assert_eq!((mean.factor, mean.factor_max), (None, None));
        near(mean.detected.seconds().unwrap(), 0.1);
        near(mean.recovered.seconds().unwrap(), 0.1);
        near(found.excess_wait_s.unwrap(), 10.0 * (1.5e6 - 100.0) / 1e6);
        let outlier = [
            (20, USUAL, 0),
            (19, Some((100.0, 400.0)), 0),
            (1, Some((5000.0, 9e9)), 0),
            (20, USUAL, 0),
        ];
        let found = answers(&outlier);
        near(found.response_p99.unwrap().factor.unwrap(), 2.0);
        near(
            found.response_mean.unwrap().factor.unwrap(),
            (19.0 + 50.0) / 20.0,
        );
        near(found.response_mean.unwrap().factor_max.unwrap(), 50.0);
        assert_eq!(
            found.response_mean.unwrap().detected,
            Answer::Never,
            "one interval is noise"
        );
    }

    /// Errors are a share of all requests, before and during; an interval that the fault covers by
    /// half counts by half.
    #[test]
    fn failures() {
        let found = answers(&[(20, USUAL, 0), (20, USUAL, 30), (20, USUAL, 0)]);
        near(found.failed_share_before, 0.0);
        near(found.failed_share, 0.75);
        let series = [
            IntervalFigures {
                end_s: 1.0,
                requests: 99,
                failed: 1,
                ..IntervalFigures::default()
            },
            IntervalFigures {
                start_s: 1.0,
                end_s: 2.0,
                requests: 99,
                failed: 1,
                ..IntervalFigures::default()
            },
            IntervalFigures {
                start_s: 2.0,
                end_s: 3.0,
                requests: 99,
                failed: 1,
                ..IntervalFigures::default()
            },
            IntervalFigures {
                start_s: 3.0,
                end_s: 4.0,
                requests: 80,
                failed: 20,
                ..IntervalFigures::default()
            },
            IntervalFigures {
                start_s: 4.0,
                end_s: 5.0,
                requests: 40,
                failed: 60,
                ..IntervalFigures::default()
            },
        ];
        let found = of_run(&series, &[span(3.5, 5.0)], 0).unwrap();
        near(found.failed_share_before, 0.01);
        near(found.failed_share, (10.0 + 60.0) / 150.0);
        assert_eq!(
            found.response_mean, None,
            "nothing is known of response times"
        );
    }

    /// Over runs, response times have their estimates and their counts of what was not seen.
    #[test]
    fn responses_over_runs() {
        let run = |us: f64, back: usize| {
            answers(&[(20, USUAL, 0), (20, Some((us, us)), 1), (back, USUAL, 0)])
        };
        let all = over_runs(
            "x",
            &[
                run(200.0, 20),
                run(300.0, 20),
                run(400.0, 20),
                run(100.0, 5),
            ],
        );
        let mean = &all.response_mean;
        near(mean.factor.unwrap().mean, (2.0 + 3.0 + 4.0 + 1.0) / 4.0);
        let open = mean.recovery_inconclusive;
        assert_eq!(
            (mean.not_detected, open, mean.recovered_s.unwrap().runs),
            (1, 1, 3)
        );
        near(
            all.excess_wait_s.unwrap().mean,
            200.0 * (100.0 + 200.0 + 300.0) / 1e6 / 4.0,
        );
        near(all.failed_share.unwrap().mean, 1.0 / 11.0);
        assert!(all.excess_wait_s.unwrap().low.is_some());
    }
}
