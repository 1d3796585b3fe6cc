//! Computes what a fault cost each of several runs that are judged together.

use std::sync::Arc;

use super::answer::Answer;
use super::answers::{Answers, answers};
use super::evidence::{Alone, RunSeries};
use super::interval::{IntervalFigures, in_time, is_whole, median, touched};
use super::limits::{BAND_SHARE, BAND_SPREADS, BASELINE_MIN};
use super::response::of_figure;
use super::times::TimeFigure;
use super::{Baseline, Basis, Degradation, FaultSpan, TooShort, failed_share};

/// The intervals of a run that provide information about one of its faults.
pub(super) struct Input {
    /// Intervals until the next fault.
    pub series: Vec<IntervalFigures>,
    pub fault: FaultSpan,
    /// Start and end of the baseline.
    pub before: (f64, f64),
    /// When the next fault begins.
    pub horizon_s: f64,
    /// The evidence of this run alone, for the rate and both response-time figures. Computed once, although the run is
    /// judged alone and again together with others.
    pub alone: [Arc<Alone>; 3],
}

/// Index of the rate in [`Input::alone`].
const RATE: usize = 0;
/// Minimum share that the fault must cover of the interval in which it began, for the interval to count in the drop.
const BEGUN_MIN: f64 = 0.5;

impl Input {
    /// The input for fault `index`; `None` without a baseline, or if no interval saw the fault.
    pub fn of(series: &[IntervalFigures], faults: &[FaultSpan], index: usize) -> Option<Input> {
        let fault = faults[index];
        let begin_s = series.first()?.start_s;
        // A fault present from the start is part of the run's usual state. Once it ends, that state is no longer usual.
        let later = faults.iter().filter(|other| other.start_s > begin_s);
        let first_s = later
            .map(|other| other.start_s)
            .fold(f64::INFINITY, f64::min);
        if fault.start_s <= begin_s {
            return None;
        }
        let usual_from_s = faults
            .iter()
            .filter(|other| other.start_s <= begin_s)
            .filter_map(|other| other.end_s)
            .filter(|end_s| *end_s <= first_s)
            .fold(f64::NEG_INFINITY, f64::max);
        let end_s = fault.end_s.unwrap_or(f64::INFINITY);
        // The horizon is the next fault that begins after this one has ended.
        let horizon_s = faults
            .iter()
            .map(|other| other.start_s)
            .filter(|start_s| *start_s >= end_s)
            .fold(f64::INFINITY, f64::min);
        let series: Vec<IntervalFigures> = series
            .iter()
            .filter(|one| one.end_s > one.start_s)
            .filter(|one| one.start_s >= usual_from_s && one.start_s < horizon_s)
            .cloned()
            .collect();
        let input = Input {
            series,
            fault,
            before: (usual_from_s, first_s),
            horizon_s,
            alone: Default::default(),
        };
        let covered = input.series.iter().any(|one| input.covered_s(one) > 0.0);
        (input.usual().count() >= BASELINE_MIN && covered).then_some(input)
    }

    /// The intervals of the baseline.
    pub fn usual(&self) -> impl Iterator<Item = &IntervalFigures> {
        let (_, until_s) = self.before;
        self.series.iter().filter(move |one| one.end_s <= until_s)
    }

    /// How long the fault was present in an interval.
    fn covered_s(&self, one: &IntervalFigures) -> f64 {
        let end_s = self.fault.end_s.unwrap_or(f64::INFINITY);
        (one.end_s.min(end_s) - one.start_s.max(self.fault.start_s)).max(0.0)
    }

    /// The rate of an interval. After the fault, requests that had been waiting since the fault can't raise the rate
    /// above the usual one: answering a backlog at once says nothing about the usual rate, and would make recovery
    /// look uncertain.
    fn rate(&self, at: usize, usual: f64) -> f64 {
        let one = &self.series[at];
        let rate = one.rate();
        let is_under = self.fault.end_s.is_none_or(|end_s| one.end_s <= end_s);
        if is_under || rate <= usual || at == 0 {
            return rate;
        }
        let waiting =
            [at - 1, at].map(|at| self.series[at].waiting.map(|waiting| waiting.requests));
        let [Some(before), Some(now)] = waiting else {
            return rate;
        };
        let own = one.requests.saturating_sub(before.saturating_sub(now));
        (own as f64 / (one.end_s - one.start_s)).clamp(usual, rate)
    }

    /// Number of consecutive intervals from `after` on (the first after the fault) in which requests waited and none
    /// was answered, if this stall began during the fault. 0 if there were such intervals before the fault.
    fn unanswered(&self, after: usize) -> usize {
        let is_silent = |one: &IntervalFigures| {
            let long_us = (one.end_s - one.start_s) * 1e6;
            let oldest_us = one.waiting.and_then(|waiting| waiting.oldest_us);
            one.requests + one.failed == 0 && oldest_us.is_some_and(|us| us >= long_us)
        };
        let began = after.checked_sub(1).map(|last| &self.series[last]);
        if self.usual().any(is_silent) || !began.is_some_and(is_silent) {
            return 0;
        }
        let later = self.series[after..].iter();
        later.take_while(|one| is_silent(one)).count()
    }

    /// The series of one figure, as the share by which each interval is worse. `worse` returns `None` for an interval
    /// without information. `figure` is the index in [`Input::alone`].
    pub fn relative(
        &self,
        figure: usize,
        worse: impl Fn(usize, &IntervalFigures) -> Option<f64>,
    ) -> Option<RunSeries> {
        let mut run = RunSeries {
            worse: Vec::new(),
            proportional: figure == RATE,
            known: Vec::new(),
            cover: Vec::new(),
            start_s: Vec::new(),
            end_s: Vec::new(),
            begin: 0,
            after: 0,
            unanswered: 0,
            fault_end_s: self.fault.end_s,
            fault_start_s: self.fault.start_s,
            alone: Arc::clone(&self.alone[figure]),
        };
        for (at, one) in self.series.iter().enumerate() {
            let cover = self.covered_s(one) / (one.end_s - one.start_s);
            let is_before = one.start_s < self.fault.start_s && cover <= 0.0;
            let other = is_before && one.end_s > self.before.1;
            // An interval that overlaps the next fault tells nothing about this one.
            let cut = one.end_s > self.horizon_s + 1e-9;
            let value = worse(at, one).filter(|value| value.is_finite());
            run.worse.push(value.unwrap_or(0.0));
            run.known.push(value.is_some() && !other && !cut);
            run.cover.push(cover);
            run.start_s.push(one.start_s);
            run.end_s.push(one.end_s);
            run.begin += usize::from(is_before);
            run.after += usize::from(is_before || cover > 0.0);
        }
        run.unanswered = self.unanswered(run.after);
        let usual = run.known[..run.begin]
            .iter()
            .filter(|known| **known)
            .count();
        (usual >= BASELINE_MIN && run.after > run.begin).then_some(run)
    }
}

/// A band around the median of a baseline, for display only: median ± the larger of [`BAND_SHARE`] of it and
/// [`BAND_SPREADS`] spreads, where a spread is 1.4826 times the median absolute deviation. Verdicts don't use it.
pub(super) fn band(before: &[f64]) -> Option<(f64, f64)> {
    if before.len() < BASELINE_MIN {
        return None;
    }
    let middle = median(before.to_vec());
    let distances = before.iter().map(|figure| (figure - middle).abs());
    let spread = 1.4826 * median(distances.collect());
    let half = (BAND_SPREADS * spread).max(middle * BAND_SHARE);
    (middle > 0.0).then_some((middle - half, middle + half))
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The rate before a fault.
pub(super) fn baseline<'a>(before: impl Iterator<Item = &'a IntervalFigures>) -> Option<Baseline> {
    let before: Vec<&IntervalFigures> = before.collect();
    let rates: Vec<f64> = before.iter().map(|one| one.rate()).collect();
    let (low, high) = band(&rates)?;
    let bytes: Vec<f64> = before
        .iter()
        .map(|one| one.bytes as f64 / (one.end_s - one.start_s))
        .collect();
    Some(Baseline {
        requests_per_second: mean(&rates),
        low,
        high,
        bytes_per_second: mean(&bytes),
        intervals: before.len(),
    })
}

/// What the same fault cost each of these runs, at this probability of a false alarm over all of them.
pub(super) fn of_runs(runs: &[Arc<Input>], chance: f64) -> Vec<Degradation> {
    let known: Vec<(Arc<Input>, Baseline, RunSeries)> = runs
        .iter()
        .filter_map(|run| {
            let baseline = baseline(run.usual())?;
            let rate = baseline.requests_per_second;
            let series = run.relative(RATE, |at, _| Some(1.0 - run.rate(at, rate) / rate))?;
            Some((Arc::clone(run), baseline, series))
        })
        .collect();
    let series: Vec<&RunSeries> = known.iter().map(|(.., series)| series).collect();
    let Some(answers) = answers(&series, chance) else {
        return Vec::new();
    };
    let inputs: Vec<&Input> = known.iter().map(|(run, ..)| &**run).collect();
    let means = of_figure(&inputs, chance, TimeFigure::Mean);
    let p99s = of_figure(&inputs, chance, TimeFigure::P99);
    let each = known.iter().zip(answers).zip(means.into_iter().zip(p99s));
    each.map(|(((input, baseline, series), answers), (mean, p99))| {
        let mut found = of_rate(input, *baseline, series, &answers);
        found.excess_wait_s = mean.as_ref().and_then(|mean| mean.excess_wait_s(input));
        found.response_mean = mean.map(|mean| mean.cost);
        found.response_p99 = p99.map(|p99| p99.cost);
        found.basis = Basis(Some(Arc::clone(input)));
        found
    })
    .collect()
}

/// The share that is missing of the rate expected in these intervals of a fault. The interval in which the fault
/// began counts if whole intervals follow and the fault covers most of it: a smaller part would add more noise than
/// information.
fn dropped(
    all: &[IntervalFigures],
    start_s: f64,
    during: &[(usize, f64)],
    expected: impl Fn(usize) -> f64,
) -> f64 {
    let (mut missing, mut wanted) = (0.0, 0.0);
    for (at, part) in during {
        let time = (all[*at].end_s - all[*at].start_s) * part;
        missing += (expected(*at) - all[*at].rate()) * time;
        wanted += expected(*at) * time;
    }
    let first = during
        .first()
        .filter(|(at, part)| *at > 0 && is_whole(*part));
    if let Some((next, _)) = first {
        let (at, begun) = (next - 1, &all[next - 1]);
        let time = begun.end_s - begun.start_s;
        let covered = begun.end_s - start_s;
        if covered >= BEGUN_MIN * time {
            // The rest of the interval was usual, so the fault caused everything that is missing in it.
            missing += (expected(at) - begun.rate()) * time;
            wanted += expected(at) * covered;
        }
    }
    // If nothing had been expected without the fault either, nothing was lost.
    match wanted > 0.0 {
        true => (missing / wanted).min(1.0),
        false => 0.0,
    }
}

/// The effect on the rate and on failures.
fn of_rate(
    input: &Input,
    baseline: Baseline,
    series: &RunSeries,
    answers: &Answers,
) -> Degradation {
    let (fault, horizon_s) = (input.fault, input.horizon_s);
    let end_s = fault.end_s.unwrap_or(f64::INFINITY);
    // The shortfall that the model predicts for each interval without the fault.
    let usual = answers.usual(series);
    let expected = |at: usize| (1.0 - usual[at]).max(0.0) * baseline.requests_per_second;
    let all = &input.series;
    let during = in_time(all, fault.start_s, end_s);
    let drop = dropped(all, fault.start_s, &during, expected);
    let worst = during
        .iter()
        .filter(|(_, part)| is_whole(*part))
        .map(|(at, _)| 1.0 - all[*at].rate() / baseline.requests_per_second)
        .fold(f64::NEG_INFINITY, f64::max);
    let lost = answers.until_s.map(|until_s| {
        let (mut requests, mut bytes) = (0.0, 0.0);
        for at in touched(all, fault.start_s, until_s.min(horizon_s)) {
            // The next fault may begin within the last interval.
            let time = all[at].end_s.min(horizon_s) - all[at].start_s;
            let part = time / (all[at].end_s - all[at].start_s);
            let share = expected(at) / baseline.requests_per_second;
            requests += expected(at) * time - all[at].requests as f64 * part;
            bytes += share * baseline.bytes_per_second * time - all[at].bytes as f64 * part;
        }
        (requests, bytes)
    });
    let before = input.usual().map(|one| (one, 1.0));
    let during = during.iter().map(|(at, part)| (&all[*at], *part));
    Degradation {
        baseline,
        drop,
        drop_max: if worst.is_finite() { worst } else { drop },
        lost_requests: lost.map(|(requests, _)| requests),
        lost_bytes: lost.map(|(_, bytes)| bytes),
        detected: answers.detected,
        recovered: match answers.detected {
            // A fault that never ended and never showed an effect has no recovery.
            Answer::Never if fault.end_s.is_none() => Answer::Never,
            _ => answers.recovered,
        },
        noticeable_drop: Some(answers.noticeable).filter(|share| *share <= 1.0),
        too_short: answers.too_short_until_s.map(|until_s| TooShort {
            until_s,
            next_fault: horizon_s.is_finite(),
        }),
        response_mean: None,
        response_p99: None,
        excess_wait_s: None,
        failed_share_before: failed_share(before),
        failed_share: failed_share(during),
        verdict: Some(answers.verdict),
        basis: Basis::default(),
    }
}
