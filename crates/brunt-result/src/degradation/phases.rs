//! Divides a run into the phases between its faults' starts and ends: before them, under each set of them, between
//! and after. An average over the whole run would mix healthy and broken time. Called once per run; estimates over
//! runs combine the phases.
//!
//! The rules:
//! - A phase lasts from one start or end of a fault to the next. Times shorter than half an interval (two faults that
//!   start almost together) don't count as a phase.
//! - *Before* is the baseline that costs are compared with, so that the same figure never has two values.
//! - Other phases use whole intervals, as costs do; `intervals` is their number. If a phase has no whole interval,
//!   the intervals that it partly covers count by their share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cost::baseline;
use super::interval::{IntervalFigures, in_time, is_whole, median};
use super::response::level;
use super::times::{TimeFigure, TimesTogether};
use super::{FaultSpan, failed_share};
use crate::statistics::Estimate;

/// The position of a phase relative to the faults of its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// No fault has begun.
    #[default]
    Before,
    /// At least one fault is in effect.
    During,
    /// No fault is in effect, but one was and another will be.
    Between,
    /// All faults have ended.
    After,
}

impl PhaseKind {
    /// One word for the kind of phase.
    pub fn name(self) -> &'static str {
        match self {
            PhaseKind::Before => "before",
            PhaseKind::During => "during",
            PhaseKind::Between => "between",
            PhaseKind::After => "after",
        }
    }

    /// Name including the active faults.
    pub fn named(self, faults: &[String]) -> String {
        match self {
            PhaseKind::During => format!("during {}", faults.join(" and ")),
            other => other.name().into(),
        }
    }
}

/// A part of a run in which the same faults were in effect. Times are in seconds from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseFigures {
    /// Position of the phase relative to the faults.
    pub kind: PhaseKind,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Start of the phase.
    pub start_s: f64,
    /// End of the phase.
    pub end_s: f64,
    /// Whole intervals in the phase, from which its figures come; if 0, they include parts of adjacent phases.
    pub intervals: usize,
    /// Requests per second; in the phase before all faults, the baseline's level.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean response time of the requests that were completed in the phase, and of those that were due but unanswered
    /// at its end, with their age then; `null` if there was neither.
    pub response_mean_us: Option<f64>,
    /// 99th percentile of the response time, with unanswered requests as in the mean, at most 0.8 % too long; without
    /// `waiting_requests`, the median of the intervals' percentiles.
    pub response_p99_us: Option<f64>,
    /// Longest response time, with unanswered requests as in the mean; `null` in results of versions that did not
    /// record it.
    #[serde(default)]
    pub response_max_us: Option<f64>,
    /// Requests that were due by the end of the phase, or of its last whole interval, and were still unanswered;
    /// `null` if that was not recorded.
    #[serde(default)]
    pub waiting_requests: Option<u64>,
    /// Age of the oldest of the unanswered requests; `null` if there was none.
    #[serde(default)]
    pub waiting_oldest_us: Option<f64>,
    /// Share of the phase's requests that failed.
    pub failed_share: f64,
}

/// A phase over the complete runs of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseOverRuns {
    /// Position of the phase relative to the faults.
    pub kind: PhaseKind,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Number of runs that have the phase.
    pub runs: usize,
    /// Start of the phase, in seconds from the start of measuring; mean over runs.
    pub start_s: f64,
    /// End of the phase, in seconds from the start of measuring; mean over runs.
    pub end_s: f64,
    /// Fewest whole intervals in the phase, over runs.
    pub intervals: usize,
    /// Requests per second.
    pub requests_per_second: Option<Estimate>,
    /// Bytes per second.
    pub bytes_per_second: Option<Estimate>,
    /// Mean response time of the requests that were completed in the phase, and of those that were due but unanswered
    /// at its end, with their age then.
    pub response_mean_us: Option<Estimate>,
    /// 99th percentile of the response time, with unanswered requests as in the mean.
    pub response_p99_us: Option<Estimate>,
    /// Longest response time in any run, with unanswered requests as in the mean.
    #[serde(default)]
    pub response_max_us: Option<f64>,
    /// Requests that were due by the end of the phase but not answered by then; maximum over runs.
    #[serde(default)]
    pub waiting_requests: Option<u64>,
    /// Age of the oldest unanswered request at the end of the phase, in any run.
    #[serde(default)]
    pub waiting_oldest_us: Option<f64>,
    /// Share of requests that failed.
    pub failed_share: Option<Estimate>,
}

impl PhaseOverRuns {
    /// Number of requests unanswered at the end of the phase, and the age of the oldest in microseconds, if that is
    /// longer than any answered request took.
    pub fn stall(&self) -> Option<(u64, f64)> {
        let oldest_us = self.waiting_oldest_us?;
        let is_longest = self
            .response_max_us
            .is_none_or(|max_us| max_us <= oldest_us);
        is_longest.then_some((self.waiting_requests?, oldest_us))
    }

    /// Name for display.
    pub fn name(&self) -> String {
        self.kind.named(&self.faults)
    }
}

/// The phases of one run with these intervals and faults; empty without faults.
pub fn phases(series: &[IntervalFigures], faults: &[(&str, FaultSpan)]) -> Vec<PhaseFigures> {
    let series: Vec<IntervalFigures> = series
        .iter()
        .filter(|one| one.end_s > one.start_s)
        .cloned()
        .collect();
    let (Some(first), Some(last), false) = (series.first(), series.last(), faults.is_empty())
    else {
        return Vec::new();
    };
    let (begin_s, end_s) = (first.start_s, last.end_s);
    let usual_s = median(series.iter().map(|one| one.end_s - one.start_s).collect());
    let ends = faults
        .iter()
        .flat_map(|(_, span)| [span.start_s, span.end_s.unwrap_or(end_s)]);
    let mut cuts: Vec<f64> = ends
        .map(|at| at.clamp(begin_s, end_s))
        .chain([begin_s, end_s])
        .collect();
    cuts.sort_by(f64::total_cmp);
    let mut stretches: Vec<(Vec<usize>, f64, f64)> = Vec::new();
    for pair in cuts.windows(2) {
        let (from_s, to_s) = (pair[0], pair[1]);
        if to_s - from_s < usual_s / 2.0 {
            continue;
        }
        let middle = f64::midpoint(from_s, to_s);
        let there = |(_, span): &(&str, FaultSpan)| {
            span.start_s <= middle && span.end_s.is_none_or(|end| end >= middle)
        };
        let active = (0..faults.len())
            .filter(|index| there(&faults[*index]))
            .collect();
        match stretches.last_mut() {
            Some((known, _, end)) if *known == active => *end = to_s,
            _ => stretches.push((active, from_s, to_s)),
        }
    }
    let first_s = faults
        .iter()
        .map(|(_, span)| span.start_s)
        .fold(f64::INFINITY, f64::min);
    let last_s = faults
        .iter()
        .map(|(_, span)| span.start_s)
        .fold(f64::NEG_INFINITY, f64::max);
    let phase = |(active, start_s, end_s): &(Vec<usize>, f64, f64)| {
        let kind = match (active.is_empty(), *end_s <= first_s, *start_s >= last_s) {
            (false, ..) => PhaseKind::During,
            (true, true, _) => PhaseKind::Before,
            (true, false, true) => PhaseKind::After,
            (true, false, false) => PhaseKind::Between,
        };
        let names = active
            .iter()
            .map(|index| faults[*index].0.to_string())
            .collect();
        figures(&series, kind, names, (*start_s, *end_s))
    };
    stretches.iter().map(phase).collect()
}

fn figures(
    series: &[IntervalFigures],
    kind: PhaseKind,
    faults: Vec<String>,
    (start_s, end_s): (f64, f64),
) -> PhaseFigures {
    let mut time = 0.0;
    let (mut requests, mut bytes, mut intervals) = (0.0, 0.0, 0);
    let there = in_time(series, start_s, end_s);
    for (at, part) in &there {
        let one = &series[*at];
        time += (one.end_s - one.start_s) * part;
        requests += one.requests as f64 * part;
        bytes += one.bytes as f64 * part;
        intervals += usize::from(is_whole(*part));
    }
    let (mut requests_per_second, mut bytes_per_second) = (requests / time, bytes / time);
    let before = || series.iter().filter(|one| one.end_s <= end_s);
    let times = TimesTogether::in_time(series, start_s, end_s);
    let figure = |figure: TimeFigure| match kind {
        PhaseKind::Before => level(before(), figure).or_else(|| figure.over(&times)),
        _ => figure.over(&times),
    };
    let waiting = times.waiting();
    if kind == PhaseKind::Before
        && let Some(baseline) = baseline(before())
    {
        requests_per_second = baseline.requests_per_second;
        bytes_per_second = baseline.bytes_per_second;
    }
    PhaseFigures {
        kind,
        faults,
        start_s,
        end_s,
        intervals,
        requests_per_second,
        bytes_per_second,
        response_mean_us: figure(TimeFigure::Mean),
        response_p99_us: figure(TimeFigure::P99),
        response_max_us: times.max_us(),
        waiting_requests: waiting.map(|waiting| waiting.requests),
        waiting_oldest_us: waiting.and_then(|waiting| waiting.oldest_us),
        failed_share: failed_share(there.iter().map(|(at, part)| (&series[*at], *part))),
    }
}

/// Combines the phases of several runs: phases of the same kind and faults count as one, matched in order.
pub fn phases_over_runs<'a>(runs: impl Iterator<Item = &'a [PhaseFigures]>) -> Vec<PhaseOverRuns> {
    type Key<'k> = (PhaseKind, &'k [String], usize);
    let mut found: Vec<(Key<'a>, Vec<&'a PhaseFigures>)> = Vec::new();
    for run in runs {
        for (index, phase) in run.iter().enumerate() {
            let alike =
                |other: &&PhaseFigures| (other.kind, &other.faults) == (phase.kind, &phase.faults);
            let nth = run[..index].iter().filter(alike).count();
            let key = (phase.kind, &phase.faults[..], nth);
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, phases)) => phases.push(phase),
                None => found.push((key, vec![phase])),
            }
        }
    }
    let over = |((kind, faults, _), phases): (Key<'a>, Vec<&PhaseFigures>)| {
        let mean = |get: fn(&PhaseFigures) -> f64| {
            phases.iter().map(|phase| get(phase)).sum::<f64>() / phases.len() as f64
        };
        let most = |get: fn(&PhaseFigures) -> Option<f64>| {
            let known = phases.iter().filter_map(|phase| get(phase));
            known.reduce(f64::max)
        };
        let estimate = |get: fn(&PhaseFigures) -> Option<f64>| {
            Estimate::of(
                &phases
                    .iter()
                    .filter_map(|phase| get(phase))
                    .collect::<Vec<f64>>(),
            )
        };
        PhaseOverRuns {
            kind,
            faults: faults.to_vec(),
            runs: phases.len(),
            start_s: mean(|phase| phase.start_s),
            end_s: mean(|phase| phase.end_s),
            intervals: phases
                .iter()
                .map(|phase| phase.intervals)
                .min()
                .unwrap_or(0),
            requests_per_second: estimate(|phase| Some(phase.requests_per_second)),
            bytes_per_second: estimate(|phase| Some(phase.bytes_per_second)),
            response_mean_us: estimate(|phase| phase.response_mean_us),
            response_p99_us: estimate(|phase| phase.response_p99_us),
            response_max_us: most(|phase| phase.response_max_us),
            waiting_requests: phases
                .iter()
                .filter_map(|phase| phase.waiting_requests)
                .max(),
            waiting_oldest_us: most(|phase| phase.waiting_oldest_us),
            failed_share: estimate(|phase| Some(phase.failed_share)),
        }
    };
    let mut phases: Vec<PhaseOverRuns> = found.into_iter().map(over).collect();
    phases.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::degradation::of_run;

    /// Intervals of a tenth of a second, from (count, requests, response time in microseconds, failures).
    fn series(parts: &[(usize, u64, f64, u64)]) -> Vec<IntervalFigures> {
        let each = parts
            .iter()
            .flat_map(|part| std::iter::repeat_n(part, part.0));
        each.enumerate()
            .map(|(index, &(_, requests, us, failed))| IntervalFigures {
                start_s: index as f64 / 10.0,
                end_s: (index + 1) as f64 / 10.0,
                requests,
                bytes: requests * 4096,
                failed,
                response_mean_us: (requests > 0).then_some(us),
                response_p99_us: (requests > 0).then_some(us * 2.0),
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

    /// Kind, faults, start and end in tenths of a second, and requests per second.
    fn short(phases: &[PhaseFigures]) -> Vec<(PhaseKind, String, i64, i64, i64)> {
        let tenths = |at: f64| (at * 10.0).round() as i64;
        let of = |phase: &PhaseFigures| {
            let rate = phase.requests_per_second.round() as i64;
            (
                phase.kind,
                phase.faults.join("+"),
                tenths(phase.start_s),
                tenths(phase.end_s),
                rate,
            )
        };
        phases.iter().map(of).collect()
    }

    use PhaseKind::{After, Before, Between, During};

    /// One fault makes three phases, with the figures of its cost.
    #[test]
    fn before_during_and_after() {
        let series = series(&[(20, 100, 50.0, 0), (10, 20, 400.0, 5), (15, 90, 60.0, 0)]);
        let phases = phases(&series, &[("slow", span(2.0, 3.0))]);
        let expected = [
            (Before, String::new(), 0, 20, 1000),
            (During, "slow".into(), 20, 30, 200),
            (After, String::new(), 30, 45, 900),
        ];
        assert_eq!(short(&phases), expected);
        assert_eq!(
            phases
                .iter()
                .map(|phase| phase.intervals)
                .collect::<Vec<_>>(),
            [20, 10, 15]
        );
        let times: Vec<_> = phases
            .iter()
            .map(|phase| (phase.response_mean_us, phase.response_p99_us))
            .collect();
        let us = |mean| (Some(mean), Some(2.0 * mean));
        assert_eq!(times, [us(50.0), us(400.0), us(60.0)]);
        assert_eq!(phases[1].failed_share, 0.2);
        let cost = of_run(&series, &[span(2.0, 3.0)], 0).unwrap();
        assert_eq!(
            cost.baseline.requests_per_second,
            phases[0].requests_per_second
        );
        assert!((cost.baseline.requests_per_second * (1.0 - cost.drop) - 200.0).abs() < 1e-6);
    }

    /// The phase before a fault has exactly the values of the baseline, outliers included.
    #[test]
    fn before_is_the_baseline() {
        let series = series(&[
            (9, 100, 50.0, 0),
            (1, 900, 5000.0, 0),
            (10, 100, 50.0, 0),
            (10, 0, 0.0, 0),
        ]);
        let spans = [("freeze", span(2.0, 3.0))];
        let (phases, cost) = (
            phases(&series, &spans),
            of_run(&series, &[spans[0].1], 0).unwrap(),
        );
        assert_eq!(
            phases[0].requests_per_second,
            cost.baseline.requests_per_second
        );
        assert_eq!(
            phases[0].response_mean_us,
            Some(cost.response_mean.unwrap().baseline_us)
        );
        assert_eq!(
            phases[0].response_p99_us,
            Some(cost.response_p99.unwrap().baseline_us)
        );
        // No request was answered during the freeze, so the time is unknown, not zero.
        assert_eq!(
            (phases[1].requests_per_second, phases[1].response_mean_us),
            (0.0, None)
        );
    }

    /// Faults that overlap, follow each other, start almost together, or last for the whole run.
    #[test]
    fn several_faults_divide_a_run_into_phases() {
        let series = series(&[(60, 100, 50.0, 0)]);
        let check = |faults: &[(&str, FaultSpan)], expected: &[(PhaseKind, &str, i64, i64)]| {
            let expected: Vec<_> = expected
                .iter()
                .map(|&(kind, faults, from, to)| (kind, faults.to_string(), from, to, 1000))
                .collect();
            assert_eq!(short(&phases(&series, faults)), expected);
        };
        let overlap = [("hog", span(1.0, 4.0)), ("slow", span(2.0, 3.0))];
        let expected = [
            (Before, "", 0, 10),
            (During, "hog", 10, 20),
            (During, "hog+slow", 20, 30),
            (During, "hog", 30, 40),
            (After, "", 40, 60),
        ];
        check(&overlap, &expected);
        let apart = [("a", span(1.0, 2.0)), ("b", span(3.0, 4.0))];
        let expected = [
            (Before, "", 0, 10),
            (During, "a", 10, 20),
            (Between, "", 20, 30),
            (During, "b", 30, 40),
            (After, "", 40, 60),
        ];
        check(&apart, &expected);
        let together = [("a", span(1.0, 4.0)), ("b", span(1.004, 4.003))];
        check(
            &together,
            &[
                (Before, "", 0, 10),
                (During, "a+b", 10, 40),
                (After, "", 40, 60),
            ],
        );
        let sticky = [(
            "a",
            FaultSpan {
                start_s: -0.1,
                end_s: None,
            },
        )];
        check(&sticky, &[(During, "a", 0, 60)]);
        check(&[], &[]);
        assert_eq!(phases(&[], &sticky), Vec::new());
    }

    /// A phase that occurs again counts as another phase; runs without a phase don't enter its figures.
    #[test]
    fn over_several_runs() {
        let run = |rates: &[u64]| -> Vec<PhaseFigures> {
            let kinds = [(During, "a"), (During, "b"), (During, "a")];
            let each = rates.iter().zip(kinds).enumerate();
            each.map(|(index, (rate, (kind, fault)))| PhaseFigures {
                kind,
                faults: vec![fault.into()],
                start_s: index as f64,
                end_s: index as f64 + 1.0,
                requests_per_second: *rate as f64,
                intervals: *rate as usize,
                ..PhaseFigures::default()
            })
            .collect()
        };
        let runs = [run(&[10, 20, 30]), run(&[12, 22])];
        let over = phases_over_runs(runs.iter().map(Vec::as_slice));
        let told: Vec<_> = over
            .iter()
            .map(|phase| {
                (
                    phase.faults[0].as_str(),
                    phase.runs,
                    phase.requests_per_second.unwrap().mean,
                    phase.intervals,
                )
            })
            .collect();
        assert_eq!(
            told,
            [("a", 2, 11.0, 10), ("b", 2, 21.0, 20), ("a", 1, 30.0, 30)]
        );
    }
}
