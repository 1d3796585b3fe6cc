//! Combines response times of several intervals: those of requests answered in them, and the ages of requests that were
//! due by their end but not answered. Phases and costs use these figures.
//!
//! The rule: a request counts once. A request outstanding at the end of an interval is answered in a later interval
//! or still outstanding at its end, so only those outstanding at the end of the last interval count.
//!
//! An outstanding request will take longer than its age. That biases the mean down, by less than the share of
//! outstanding requests. The bias is small unless requests wait because something is stalled, and then leaving them
//! out would be the larger error.

use super::interval::{IntervalFigures, WaitingFigures, is_whole, median, p99_us, parts};

/// A figure of response times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TimeFigure {
    Mean,
    P99,
}

impl TimeFigure {
    /// The figure of one interval; `None` if no request was answered in it and none is known to be
    /// outstanding at its end.
    pub fn of(self, one: &IntervalFigures) -> Option<f64> {
        match self {
            TimeFigure::Mean => TimesTogether::of_one(one).mean_us(),
            TimeFigure::P99 => match &one.times {
                Some(times) => times.p99_us(),
                None => one.response_p99_us,
            },
        }
    }

    /// The figure over several intervals.
    pub fn over(self, of: &TimesTogether<'_>) -> Option<f64> {
        match self {
            TimeFigure::Mean => of.mean_us(),
            TimeFigure::P99 => of.p99_us(),
        }
    }
}

/// Several intervals combined.
pub(super) struct TimesTogether<'a> {
    /// Each interval, with the share of it that counts.
    parts: Vec<(&'a IntervalFigures, f64)>,
    /// The last interval that counts as a whole.
    last: Option<&'a IntervalFigures>,
    /// Time between the end of the last whole interval and the end of the last interval: requests that waited
    /// throughout the last whole interval are taken to have waited this much longer.
    more_us: f64,
}

impl<'a> TimesTogether<'a> {
    /// The whole intervals between `from_s` and `to_s`. An interval at the edge mixes two states, so partial
    /// intervals count, by their share, only if no whole interval has times.
    pub fn in_time(series: &'a [IntervalFigures], from_s: f64, to_s: f64) -> TimesTogether<'a> {
        let all: Vec<(&IntervalFigures, f64)> = parts(series, from_s, to_s)
            .map(|(at, part)| (&series[at], part))
            .collect();
        let whole = all.iter().filter(|(_, part)| is_whole(*part)).copied();
        let whole: Vec<(&IntervalFigures, f64)> = whole.collect();
        let last = whole.last().map(|(one, _)| *one);
        let end_s = series.last().map_or(to_s, |one| one.end_s.min(to_s));
        TimesTogether {
            parts: match whole.iter().any(|(one, _)| has_times(one)) {
                true => whole,
                false => all,
            },
            last,
            more_us: last.map_or(0.0, |last| (end_s - last.end_s).max(0.0) * 1e6),
        }
    }

    /// All of these intervals.
    pub fn of_all(intervals: impl Iterator<Item = &'a IntervalFigures>) -> TimesTogether<'a> {
        let parts: Vec<(&IntervalFigures, f64)> = intervals.map(|one| (one, 1.0)).collect();
        TimesTogether {
            last: parts.last().map(|(one, _)| *one),
            parts,
            more_us: 0.0,
        }
    }

    fn of_one(one: &'a IntervalFigures) -> TimesTogether<'a> {
        TimesTogether::of_all(std::iter::once(one))
    }

    /// Requests outstanding at the end; `None` if unknown.
    pub fn waiting(&self) -> Option<WaitingFigures> {
        let last = self.last?;
        let waiting = last.waiting?;
        if self.more_us <= 0.0 {
            return Some(waiting);
        }
        let length_us = (last.end_s - last.start_s) * 1e6;
        let older: u64 = self.ages(last).filter(|age| age.2).map(|age| age.1).sum();
        let mean_more = self.more_us * older as f64 / waiting.requests.max(1) as f64;
        Some(WaitingFigures {
            requests: waiting.requests,
            mean_us: waiting.mean_us.map(|mean| mean + mean_more),
            oldest_us: waiting.oldest_us.map(|age| match age >= length_us * 0.999 {
                true => age + self.more_us,
                false => age,
            }),
        })
    }

    /// Ages of requests outstanding at the end of the last interval, in nanoseconds, with their counts, and whether
    /// these requests waited throughout the last whole interval. If they waited throughout, they are stalled and
    /// assumed to wait until the end.
    fn ages(&self, last: &IntervalFigures) -> impl Iterator<Item = (u64, u64, bool)> {
        let length = ((last.end_s - last.start_s) * 0.999e9) as u64;
        let more = (self.more_us * 1e3) as u64;
        let ages = last.times.iter().flat_map(|times| times.waiting());
        ages.map(move |(age, count)| match age >= length {
            true => (age + more, count, true),
            false => (age, count, false),
        })
    }

    /// The mean over all requests. Exact, except for the ages of requests outstanding at an edge.
    pub fn mean_us(&self) -> Option<f64> {
        let (mut sum, mut requests) = (0.0, 0.0);
        for (one, part) in &self.parts {
            if let Some(mean) = one.response_mean_us {
                sum += mean * one.requests as f64 * part;
                requests += one.requests as f64 * part;
            }
        }
        if let Some((waiting, mean)) = self.waiting().and_then(|of| Some((of, of.mean_us?))) {
            sum += mean * waiting.requests as f64;
            requests += waiting.requests as f64;
        }
        (requests > 0.0).then(|| sum / requests)
    }

    /// The 99th percentile over all requests. Without the intervals' distributions, as in results of older versions,
    /// the median of the intervals' own percentiles.
    pub fn p99_us(&self) -> Option<f64> {
        let answered = self.parts.iter().filter(|(one, _)| one.requests > 0);
        if answered.clone().any(|(one, _)| one.times.is_none()) {
            let known: Vec<f64> = answered
                .filter_map(|(one, _)| one.response_p99_us)
                .collect();
            return (!known.is_empty()).then(|| median(known));
        }
        let each = self.parts.iter().filter_map(|(one, _)| one.times.as_ref());
        let mut counted: Vec<(u64, u64)> = each.flat_map(|times| times.answered()).collect();
        if let Some(last) = self.last {
            counted.extend(self.ages(last).map(|(age, count, _)| (age, count)));
        }
        p99_us(counted)
    }

    /// The longest time; `None` if unknown.
    pub fn max_us(&self) -> Option<f64> {
        let answered = self.parts.iter().filter_map(|(one, _)| one.response_max_us);
        let oldest = self.waiting().and_then(|waiting| waiting.oldest_us);
        answered.chain(oldest).reduce(f64::max)
    }

    /// The figure of each interval that has it.
    pub fn each(&self, figure: TimeFigure) -> impl Iterator<Item = f64> {
        self.parts.iter().filter_map(move |(one, _)| figure.of(one))
    }

    /// Number of intervals with times.
    pub fn known(&self) -> usize {
        self.parts.iter().filter(|(one, _)| has_times(one)).count()
    }
}

/// Whether a request was answered in an interval or is outstanding at its end.
fn has_times(one: &IntervalFigures) -> bool {
    let waits = one.waiting.is_some_and(|waiting| waiting.requests > 0);
    one.response_mean_us.is_some() || one.response_p99_us.is_some() || waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::degradation::IntervalTimes;
    use brunt_core::random::Random;
    use brunt_core::{Histogram, Nanos};

    /// The percentile over intervals is that of all their requests, within 0.9 %, however different the intervals are.
    #[test]
    fn percentiles_over_intervals_are_those_of_all_requests() {
        let mut random = Random::for_part(7, 0);
        for scale in [3.0, 2_000.0, 1e6, 1e9] {
            let mut all = Histogram::new();
            let interval = |index: usize| {
                let mut response = Histogram::new();
                for _ in 0..500 {
                    let nanos = random.exponential(scale * (1.0 + index as f64)) as u64;
                    response.record(Nanos(nanos));
                    all.record(Nanos(nanos));
                }
                IntervalFigures {
                    end_s: 1.0,
                    requests: 500,
                    times: Some(IntervalTimes::of(&response, &Histogram::new())),
                    ..IntervalFigures::default()
                }
            };
            let series: Vec<IntervalFigures> = (0..9).map(interval).collect();
            let found = TimesTogether::of_all(series.iter()).p99_us().unwrap();
            let exact = all.percentile(99.0).unwrap().0 as f64 / 1e3;
            let off = (found / exact - 1.0).abs();
            assert!(off < 0.009, "{found} is not {exact}");
        }
    }
}
