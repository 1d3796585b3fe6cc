//! What a fault cost: pure functions over the intervals of one run. A study calls them for each run and
//! each fault, and makes estimates over the runs.
//!
//! The rules, in full:
//! - *Baseline*: the median rate of the intervals that end before any fault begins, at least
//!   [`BASELINE_MIN`] of them. Its *band* is the median ± the larger of [`BAND_SHARE`] of it and
//!   [`BAND_SPREADS`] spreads, where a spread is 1.4826 times the median distance from the median (what
//!   a standard deviation is for normal noise, untouched by outliers).
//! - *Depth*: the share of the baseline that is missing in the mean rate while the fault is there.
//! - *Lost*: baseline minus rate, summed from the fault's begin until recovery (or until the data or the
//!   next fault's begin end it). What comes back above the baseline counts against it.
//! - *Detected*: the end of the first interval, of two in a row, below the band after the fault's begin. A
//!   fault that no interval shows is not detectable in these figures.
//! - *Recovered*: the begin of the first interval after the fault's end from which on the series stays at
//!   or above the band's lower edge for [`HOLD`]. A series that ends, or meets the next fault, before that
//!   has not recovered.
//!
//! Not detectable and not recovered are answers, never zeros.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::statistics::Estimate;

/// Fewest intervals of a baseline.
pub const BASELINE_MIN: usize = 3;
/// Half the band, as a share of the median, at least.
pub const BAND_SHARE: f64 = 0.05;
/// Half the band, in spreads, at least.
pub const BAND_SPREADS: f64 = 3.0;
/// How long a series has to stay in the band to have recovered.
pub const HOLD: Duration = Duration::from_secs(1);

/// One interval of a run. Times in seconds from the start of measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Its begin.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Requests completed in it.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
}

impl Stretch {
    fn rate(&self) -> f64 {
        self.requests as f64 / (self.end_s - self.start_s)
    }
}

/// What the rate was before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Median, in requests a second.
    pub requests_per_second: f64,
    /// Lower edge of the band.
    pub low: f64,
    /// Upper edge.
    pub high: f64,
    /// Median, in bytes a second.
    pub bytes_per_second: f64,
    /// Intervals it is made of.
    pub intervals: usize,
}

/// Whether and when.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// After so many seconds.
    AfterS(f64),
    /// It did not come about, in the time there was.
    Never,
}

impl Answer {
    /// The seconds.
    pub fn seconds(self) -> Option<f64> {
        match self {
            Answer::AfterS(seconds) => Some(seconds),
            Answer::Never => None,
        }
    }
}

/// What one fault cost one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Degradation {
    /// What it is measured against.
    pub baseline: Baseline,
    /// Share of the baseline lost while the fault was there; negative when there was more.
    pub depth: f64,
    /// The same of the worst interval.
    pub depth_max: f64,
    /// Requests that were not done until recovery.
    pub lost_requests: f64,
    /// And their bytes.
    pub lost_bytes: f64,
    /// From the fault's begin until the figures show it.
    pub detected: Answer,
    /// From the fault's end until the series is back.
    pub recovered: Answer,
}

/// A fault's times, in seconds from the start of measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its begin.
    pub start_s: f64,
    /// Its end; `None` when it lasted as long as the run.
    pub end_s: Option<f64>,
}

/// What fault `index` of `faults` cost the run; `None` without a baseline (a sticky fault, or too few
/// intervals before the first one).
pub fn of_run(series: &[Stretch], faults: &[Span], index: usize) -> Option<Degradation> {
    let fault = faults[index];
    let first = faults.iter().map(|fault| fault.start_s).fold(f64::INFINITY, f64::min);
    let series: Vec<Stretch> = series.iter().filter(|one| one.end_s > one.start_s).copied().collect();
    let baseline = baseline(&series, first)?;
    let end_s = fault.end_s.unwrap_or(f64::INFINITY);
    // Another fault that begins after this one has ended ends what can be told of this one.
    let next = faults.iter().map(|other| other.start_s).filter(|start| *start >= end_s);
    let horizon = next.fold(f64::INFINITY, f64::min);

    // Intervals that the fault covers only in part count with their part.
    let covered = |one: &Stretch| (one.end_s.min(end_s) - one.start_s.max(fault.start_s)).max(0.0);
    let under: Vec<(&Stretch, f64)> =
        series.iter().map(|one| (one, covered(one))).filter(|(_, time)| *time > 0.0).collect();
    let time: f64 = under.iter().map(|(_, time)| time).sum();
    if time == 0.0 {
        return None;
    }
    let mean = under.iter().map(|(one, time)| one.rate() * time).sum::<f64>() / time;
    let share_lost = |rate: f64| 1.0 - rate / baseline.requests_per_second;
    // Whole intervals, if there are any: of one at the edge the rest was another time's.
    let whole = under.iter().filter(|(one, time)| *time >= (one.end_s - one.start_s) * 0.999);
    let worst = whole.map(|(one, _)| one.rate()).fold(f64::INFINITY, f64::min);
    let depth = share_lost(mean);

    let detected = detect(&series, &baseline, fault.start_s, horizon, fault.start_s);
    let recovered = match fault.end_s {
        Some(end_s) => recover(&series, &baseline, end_s, horizon),
        None => Answer::Never,
    };
    let until = match (recovered, fault.end_s) {
        (Answer::AfterS(seconds), Some(end_s)) => end_s + seconds,
        _ => horizon,
    };
    let (mut lost_requests, mut lost_bytes) = (0.0, 0.0);
    for one in &series {
        let whole = one.end_s - one.start_s;
        let time = (one.end_s.min(until) - one.start_s.max(fault.start_s)).max(0.0);
        lost_requests += baseline.requests_per_second * time - one.requests as f64 * time / whole;
        lost_bytes += baseline.bytes_per_second * time - one.bytes as f64 * time / whole;
    }
    let depth_max = if worst.is_finite() { share_lost(worst) } else { depth };
    Some(Degradation { baseline, depth, depth_max, lost_requests, lost_bytes, detected, recovered })
}

fn baseline(series: &[Stretch], until_s: f64) -> Option<Baseline> {
    let before: Vec<&Stretch> = series.iter().filter(|one| one.end_s <= until_s).collect();
    if before.len() < BASELINE_MIN {
        return None;
    }
    let rates: Vec<f64> = before.iter().map(|one| one.rate()).collect();
    let middle = median(rates.clone());
    let spread = 1.4826 * median(rates.iter().map(|rate| (rate - middle).abs()).collect());
    let half = (BAND_SHARE * middle).max(BAND_SPREADS * spread);
    let bytes = median(before.iter().map(|one| one.bytes as f64 / (one.end_s - one.start_s)).collect());
    (middle > 0.0).then_some(Baseline {
        requests_per_second: middle,
        low: middle - half,
        high: middle + half,
        bytes_per_second: bytes,
        intervals: before.len(),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}

fn detect(series: &[Stretch], baseline: &Baseline, from_s: f64, to_s: f64, zero_s: f64) -> Answer {
    let after: Vec<&Stretch> = series.iter().filter(|one| one.end_s > from_s && one.start_s < to_s).collect();
    let low = |one: &Stretch| one.rate() < baseline.low;
    for (at, one) in after.iter().enumerate() {
        // The last interval has none after it to agree with it.
        if low(one) && after.get(at + 1).is_some_and(|next| low(next)) {
            return Answer::AfterS(one.end_s - zero_s);
        }
    }
    Answer::Never
}

fn recover(series: &[Stretch], baseline: &Baseline, from_s: f64, to_s: f64) -> Answer {
    let mut since: Option<f64> = None;
    for one in series.iter().filter(|one| one.end_s > from_s && one.end_s <= to_s) {
        if one.rate() < baseline.low {
            since = None;
            continue;
        }
        let begin = *since.get_or_insert(one.start_s.max(from_s));
        if one.end_s - begin >= HOLD.as_secs_f64() * 0.999 {
            return Answer::AfterS(begin - from_s);
        }
    }
    Answer::Never
}

/// What a fault cost a point: one figure for each run, then over runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverRuns {
    /// What the fault is called.
    pub fault: String,
    /// Runs with a baseline.
    pub runs: usize,
    /// Requests a second before.
    pub baseline: Option<Estimate>,
    /// Share of the baseline lost while it was there.
    pub depth: Option<Estimate>,
    /// Requests not done until recovery.
    pub lost_requests: Option<Estimate>,
    /// And their bytes.
    pub lost_bytes: Option<Estimate>,
    /// Seconds until the figures showed it, over the runs in which they did.
    pub detected_s: Option<Estimate>,
    /// Runs whose figures did not show it.
    pub not_detected: usize,
    /// Seconds from its end until the series was back, over the runs in which it came back.
    pub recovered_s: Option<Estimate>,
    /// Runs that did not recover.
    pub not_recovered: usize,
}

/// Over the runs of a point.
pub fn over_runs(fault: &str, runs: &[Degradation]) -> OverRuns {
    let over = |get: &dyn Fn(&Degradation) -> Option<f64>| {
        Estimate::of(&runs.iter().filter_map(get).collect::<Vec<f64>>())
    };
    let never =
        |get: &dyn Fn(&Degradation) -> Answer| runs.iter().filter(|run| get(run) == Answer::Never).count();
    OverRuns {
        fault: fault.to_string(),
        runs: runs.len(),
        baseline: over(&|run| Some(run.baseline.requests_per_second)),
        depth: over(&|run| Some(run.depth)),
        lost_requests: over(&|run| Some(run.lost_requests)),
        lost_bytes: over(&|run| Some(run.lost_bytes)),
        detected_s: over(&|run| run.detected.seconds()),
        not_detected: never(&|run| run.detected),
        recovered_s: over(&|run| run.recovered.seconds()),
        not_recovered: never(&|run| run.recovered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tenths of a second with these rates.
    fn series(rates: &[(usize, f64)]) -> Vec<Stretch> {
        let rates = rates.iter().flat_map(|(count, rate)| std::iter::repeat_n(*rate, *count));
        rates
            .enumerate()
            .map(|(index, rate)| Stretch {
                start_s: index as f64 / 10.0,
                end_s: (index + 1) as f64 / 10.0,
                requests: (rate / 10.0).round() as u64,
                bytes: (rate / 10.0).round() as u64 * 4096,
            })
            .collect()
    }

    fn span(start_s: f64, end_s: f64) -> Span {
        Span { start_s, end_s: Some(end_s) }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} is not {b}");
    }

    /// The goal: half of the rate for two seconds, and half a second until it is back, are just that.
    #[test]
    fn a_dip() {
        let series = series(&[(20, 1000.0), (20, 500.0), (5, 800.0), (20, 1000.0)]);
        let found = of_run(&series, &[span(2.0, 4.0)], 0).unwrap();
        near(found.baseline.requests_per_second, 1000.0);
        assert_eq!(found.baseline.intervals, 20);
        near(found.depth, 0.5);
        near(found.depth_max, 0.5);
        near(found.lost_requests, 1000.0 + 100.0);
        near(found.lost_bytes, 1100.0 * 4096.0);
        near(found.detected.seconds().unwrap(), 0.1);
        near(found.recovered.seconds().unwrap(), 0.5);
    }

    /// The goal: what does not show, does not come back, or has no baseline is said, not put at zero.
    #[test]
    fn no_answers() {
        let flat = series(&[(60, 1000.0)]);
        let found = of_run(&flat, &[span(2.0, 4.0)], 0).unwrap();
        assert_eq!((found.detected, found.recovered), (Answer::Never, Answer::AfterS(0.0)));
        near(found.depth, 0.0);
        let dead = series(&[(20, 1000.0), (40, 0.0)]);
        let found = of_run(&dead, &[span(2.0, 4.0)], 0).unwrap();
        assert_eq!(found.recovered, Answer::Never);
        near(found.depth, 1.0);
        near(found.lost_requests, 4000.0);
        let short = series(&[(20, 1000.0), (20, 0.0), (9, 1000.0)]);
        assert_eq!(
            of_run(&short, &[span(2.0, 4.0)], 0).unwrap().recovered,
            Answer::Never,
            "held for 0.9 s only"
        );
        let sticky = [Span { start_s: -1.0, end_s: None }];
        assert_eq!(of_run(&flat, &sticky, 0), None);
        let late = [Span { start_s: 2.0, end_s: None }];
        let found = of_run(&dead, &late, 0).unwrap();
        assert_eq!((found.recovered, found.detected.seconds().is_some()), (Answer::Never, true));
        assert_eq!(of_run(&[], &late, 0), None);
    }

    /// The goal: a single low interval is noise, an outlier does not widen the band, and noise does.
    #[test]
    fn noise() {
        let blip = series(&[(20, 1000.0), (5, 1000.0), (1, 0.0), (30, 1000.0)]);
        assert_eq!(of_run(&blip, &[span(2.0, 4.0)], 0).unwrap().detected, Answer::Never);
        let outlier = series(&[(19, 1000.0), (1, 9000.0), (20, 900.0), (20, 1000.0)]);
        let found = of_run(&outlier, &[span(2.0, 4.0)], 0).unwrap();
        near(found.baseline.low, 950.0);
        assert!(found.detected.seconds().is_some());
        let rates: Vec<(usize, f64)> =
            (0..40).map(|i| (1, if i % 2 == 0 { 900.0 } else { 1100.0 })).collect();
        let found = of_run(&series(&rates), &[span(2.0, 3.0)], 0).unwrap();
        assert!(found.baseline.low < 700.0);
    }

    /// The goal: of two faults each has its own depth, both against what was before the first; the second
    /// ends what can be told of the first.
    #[test]
    fn two_faults() {
        let series = series(&[(20, 1000.0), (10, 500.0), (10, 100.0), (20, 500.0), (20, 1000.0)]);
        // The long one from 2 to 6, within it the short one from 3 to 4.
        let faults = [span(2.0, 6.0), span(3.0, 4.0)];
        let long = of_run(&series, &faults, 0).unwrap();
        near(long.depth, 1.0 - (500.0 + 100.0 + 1000.0) / 4000.0);
        assert_eq!(long.recovered, Answer::AfterS(0.0));
        let short = of_run(&series, &faults, 1).unwrap();
        near(short.depth, 0.9);
        near(short.recovered.seconds().unwrap(), 2.0);
        let apart = [span(2.0, 3.0), span(3.0, 6.0)];
        assert_eq!(of_run(&series, &apart, 0).unwrap().recovered, Answer::Never);
    }

    /// The goal: over runs, those without an answer are counted beside the estimate.
    #[test]
    fn over_several_runs() {
        let run = |low: f64, back: usize| {
            let series = series(&[(20, 1000.0), (20, low), (back, 1000.0)]);
            of_run(&series, &[span(2.0, 4.0)], 0).unwrap()
        };
        let all = over_runs("x", &[run(500.0, 20), run(400.0, 20), run(600.0, 20), run(1000.0, 5)]);
        assert_eq!((all.runs, all.not_detected, all.not_recovered), (4, 1, 1));
        near(all.depth.unwrap().mean, (0.5 + 0.6 + 0.4) / 4.0);
        assert_eq!(all.recovered_s.unwrap().runs, 3);
    }
}
