//! Merges a run's intervals into the segments that the page draws: short intervals are combined until they cover a
//! quarter of a second.
//!
//! The rule: figures are merged, never averaged. There is one exception: in the thinned history for a late viewer,
//! which has no histograms, a percentile is the highest of the merged ones ([`LiveStretch::of`] is then above 1).

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_result::summary::Latencies;
use brunt_result::{Figures, Interval};

use super::frame::{LiveKind, LiveSample, LiveStretch, LiveValue, losses, seconds};
use super::thinned::Joins;

/// Minimum length of a segment: four per second are enough for a viewer, and computing percentiles takes a tenth of a
/// millisecond.
const STRETCH_MIN: Duration = Duration::from_millis(250);
/// Rows of the heat map: four per octave, from 1.024 us up to 17 s.
const ROWS_OCTAVE: u32 = 4;
const OCTAVES: u32 = 24;

/// Upper bounds of the heat map's rows in nanoseconds, except for the last row, which has none.
pub(super) fn heat_bounds() -> impl Iterator<Item = u64> + Clone {
    (0..=OCTAVES * ROWS_OCTAVE).map(|row| {
        let (octave, quarter) = (row / ROWS_OCTAVE, row % ROWS_OCTAVE);
        // 2^(1/4) and its powers.
        let factor = [
            1.0,
            1.189_207_115_002_721,
            std::f64::consts::SQRT_2,
            1.681_792_830_507_429,
        ];
        ((1024_u64 << octave) as f64 * factor[quarter as usize]) as u64
    })
}

/// A segment that is being built.
#[derive(Default)]
pub struct OpenStretch {
    figures: Figures,
    start: Option<Nanos>,
    length: Duration,
}

impl OpenStretch {
    /// Adds an interval; returns a segment once it is long enough. Times are relative to `zero`.
    pub fn interval(&mut self, interval: &Interval, zero: Nanos) -> Option<LiveStretch> {
        let length = interval.end.since(interval.start);
        if self.start.is_none() && length >= STRETCH_MIN {
            return Some(stretch(
                &interval.figures,
                interval.start,
                interval.end,
                length,
                zero,
            ));
        }
        self.figures.merge(&interval.figures);
        self.length += length;
        self.start = self.start.or(Some(interval.start));
        if self.length < STRETCH_MIN {
            None
        } else {
            self.close(interval.end, zero)
        }
    }

    /// The remaining intervals as a segment, when the run ends at `end`.
    pub fn close(&mut self, end: Nanos, zero: Nanos) -> Option<LiveStretch> {
        let start = self.start.take()?;
        let length = std::mem::take(&mut self.length);
        let made = stretch(&self.figures, start, end, length, zero);
        self.figures.clear();
        (length > Duration::ZERO).then_some(made)
    }

    /// Discards the remaining intervals: a trial has ended, and another one begins.
    pub fn clear(&mut self) {
        *self = OpenStretch::default();
    }
}

fn stretch(
    figures: &Figures,
    start: Nanos,
    end: Nanos,
    length: Duration,
    zero: Nanos,
) -> LiveStretch {
    let each = |count: f64| count / length.as_secs_f64().max(1e-9);
    let response = figures.response();
    let kind = |(op, figures): (_, &brunt_result::OpFigures)| LiveKind {
        op,
        completed: figures.completed,
        requests_per_second: each((figures.completed - figures.late) as f64),
        mean_us: figures.response.mean().map(|nanos| nanos / 1e3),
    };
    LiveStretch {
        start_s: seconds(start, zero),
        end_s: seconds(end, zero),
        of: 1,
        completed: figures.completed(),
        requests_per_second: each(figures.completed_in_time() as f64),
        bytes_per_second: each(figures.bytes_in_time() as f64),
        depth: each(figures.in_flight_nanos as f64 / 1e9),
        response: Latencies::of(&response),
        kinds: figures.ops().map(kind).collect(),
        losses: losses(&figures.counts),
        retries: figures.retries(),
        late: figures.late(),
        heat: heat(&response),
    }
}

/// The count in each row, without empty rows.
fn heat(response: &brunt_core::Histogram) -> Vec<(u16, u64)> {
    let below: Vec<u64> = response
        .counts_up_to(heat_bounds())
        .chain([response.count()])
        .collect();
    let before = std::iter::once(0).chain(below.iter().copied());
    let rows = below
        .iter()
        .zip(before)
        .map(|(below, before)| below - before);
    rows.enumerate()
        .filter(|(_, count)| *count > 0)
        .map(|(row, count)| (row as u16, count))
        .collect()
}

impl Joins for LiveStretch {
    fn join(&mut self, next: &LiveStretch) {
        let length = |stretch: &LiveStretch| (stretch.end_s - stretch.start_s).max(0.0);
        let (own, more) = (length(self), length(next));
        let rate = |a: f64, b: f64| mean(a, own, b, more);
        self.requests_per_second = rate(self.requests_per_second, next.requests_per_second);
        self.bytes_per_second = rate(self.bytes_per_second, next.bytes_per_second);
        self.depth = rate(self.depth, next.depth);
        self.response = match (self.response, next.response) {
            (Some(a), Some(b)) => Some(Latencies {
                min_us: a.min_us.min(b.min_us),
                mean_us: mean(
                    a.mean_us,
                    self.completed as f64,
                    b.mean_us,
                    next.completed as f64,
                ),
                p50_us: a.p50_us.max(b.p50_us),
                p90_us: a.p90_us.max(b.p90_us),
                p99_us: a.p99_us.max(b.p99_us),
                p99_9_us: a.p99_9_us.max(b.p99_9_us),
                p99_99_us: a.p99_99_us.max(b.p99_99_us),
                max_us: a.max_us.max(b.max_us),
            }),
            (a, b) => a.or(b),
        };
        for kind in &next.kinds {
            match self.kinds.iter_mut().find(|known| known.op == kind.op) {
                Some(known) => {
                    let (a, b) = (known.completed as f64, kind.completed as f64);
                    known.mean_us = match (known.mean_us, kind.mean_us) {
                        (Some(one), Some(other)) => Some(mean(one, a, other, b)),
                        (one, other) => one.or(other),
                    };
                    known.requests_per_second =
                        rate(known.requests_per_second, kind.requests_per_second);
                    known.completed += kind.completed;
                }
                None => self.kinds.push(LiveKind {
                    requests_per_second: rate(0.0, kind.requests_per_second),
                    ..*kind
                }),
            }
        }
        next.losses
            .iter()
            .for_each(|(what, count)| *self.losses.entry(what.clone()).or_default() += count);
        let mut heat: BTreeMap<u16, u64> = self.heat.iter().copied().collect();
        next.heat
            .iter()
            .for_each(|(row, count)| *heat.entry(*row).or_default() += count);
        self.heat = heat.into_iter().collect();
        self.completed += next.completed;
        self.retries += next.retries;
        self.late += next.late;
        self.of += next.of;
        self.end_s = next.end_s;
    }

    fn of(&self) -> u32 {
        self.of
    }
}

impl Joins for LiveSample {
    fn join(&mut self, next: &LiveSample) {
        let (own, more) = (self.end_s - self.start_s, next.end_s - next.start_s);
        for value in &next.values {
            let is_same = |known: &&mut LiveValue| {
                (&known.0, &known.1, &known.2) == (&value.0, &value.1, &value.2)
            };
            match self.values.iter_mut().find(is_same) {
                Some(known) => known.3 = mean(known.3, own, value.3, more),
                None => self.values.push(value.clone()),
            }
        }
        self.left_out = self.left_out.max(next.left_out);
        self.of += next.of;
        self.end_s = next.end_s;
    }

    fn of(&self) -> u32 {
        self.of
    }
}

/// The weighted mean of two values; the first if both weights are zero.
fn mean(a: f64, weight_a: f64, b: f64, weight_b: f64) -> f64 {
    let all = weight_a + weight_b;
    if all > 0.0 {
        (a * weight_a + b * weight_b) / all
    } else {
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::{OpKind, RequestStatus};

    /// An interval of `millis` milliseconds with one read for each of these response times in microseconds.
    fn interval(start_ms: u64, millis: u64, us: &[u64]) -> Interval {
        let mut figures = Figures::of_kinds(&[OpKind::Read]);
        let op = figures.at(0);
        (op.completed, op.bytes) = (us.len() as u64, 4096 * us.len() as u64);
        for us in us {
            op.response.record(Nanos(us * 1000));
            op.service.record(Nanos(us * 1000));
        }
        figures.counts.by_status[RequestStatus::Good as usize] = us.len() as u64;
        figures.counts.by_status[RequestStatus::TimedOut as usize] = 1;
        // It also has one request that never completes.
        figures.in_flight_nanos = millis * 1_000_000;
        let at = |ms: u64| Nanos(ms * 1_000_000);
        Interval {
            index: 0,
            start: at(start_ms),
            end: at(start_ms + millis),
            figures,
            waiting: brunt_core::Histogram::default(),
        }
    }

    #[test]
    fn bounds_ascend_and_hit_powers_of_two() {
        let bounds: Vec<u64> = heat_bounds().collect();
        assert!(bounds.windows(2).all(|two| two[0] < two[1]));
        assert_eq!((bounds[0], bounds[4], bounds.len()), (1024, 2048, 97));
        assert_eq!(*bounds.last().expect("some"), 1024 << 24);
    }

    /// A long interval is a segment by itself; short ones are merged, with percentiles over all their requests.
    #[test]
    fn short_intervals_are_merged_into_a_stretch() {
        let mut open = OpenStretch::default();
        let zero = Nanos(1_000_000_000);
        let long = open
            .interval(&interval(1000, 1000, &[100, 300]), zero)
            .expect("long enough");
        assert_eq!(
            (long.start_s, long.end_s, long.requests_per_second),
            (0.0, 1.0, 2.0)
        );
        assert_eq!((long.bytes_per_second, long.completed), (8192.0, 2));
        assert_eq!(long.depth, 1.0);
        assert_eq!(long.response.expect("some").max_us, 300.0);
        assert_eq!(long.losses, BTreeMap::from([("timed-out".to_string(), 1)]));
        assert_eq!(long.heat.iter().map(|(_, count)| count).sum::<u64>(), 2);
        let rows: Vec<u16> = long.heat.iter().map(|(row, _)| *row).collect();
        let row_of = |us: u64| heat_bounds().filter(|bound| *bound < us * 1000).count() as u16;
        assert_eq!(rows, [row_of(100), row_of(300)]);
        for start in [2000, 2100] {
            assert_eq!(open.interval(&interval(start, 100, &[10]), zero), None);
        }
        let made = open
            .interval(&interval(2200, 100, &[1000]), zero)
            .expect("long enough");
        assert_eq!(
            (made.start_s, made.end_s, made.completed, made.depth),
            (1.0, 1.3, 3, 1.0)
        );
        assert_eq!(
            (
                made.response.expect("some").max_us,
                made.losses["timed-out"]
            ),
            (1000.0, 3)
        );
        // The intervals that remain at the end are reported, too.
        assert_eq!(open.interval(&interval(2300, 100, &[10]), zero), None);
        assert_eq!(
            open.close(Nanos(2_400_000_000), zero)
                .expect("a rest")
                .completed,
            1
        );
        assert_eq!(open.close(Nanos(2_400_000_000), zero), None);
    }

    /// A merged segment has the exact rates, counts and heat map of its parts.
    #[test]
    fn merged_stretches_are_exact_except_for_percentiles() {
        let zero = Nanos(0);
        let (first, second) = (
            interval(0, 1000, &[100, 100, 900]),
            interval(1000, 3000, &[200]),
        );
        let make = |interval: &Interval| {
            OpenStretch::default()
                .interval(interval, zero)
                .expect("long enough")
        };
        let mut joined = make(&first);
        joined.join(&make(&second));
        let mut both = first.clone();
        both.figures.merge(&second.figures);
        both.end = second.end;
        let whole = make(&both);
        assert_eq!((joined.of, joined.completed, joined.end_s), (2, 4, 4.0));
        assert_eq!((&joined.heat, &joined.losses), (&whole.heat, &whole.losses));
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} {b}");
        near(joined.requests_per_second, whole.requests_per_second);
        near(joined.bytes_per_second, whole.bytes_per_second);
        assert_eq!((joined.depth, whole.depth), (1.0, 1.0));
        let (a, b) = (
            joined.response.expect("some"),
            whole.response.expect("some"),
        );
        near(a.mean_us, b.mean_us);
        assert_eq!((a.min_us, a.max_us), (b.min_us, b.max_us));
        assert!(a.p50_us >= b.p50_us);
        near(
            joined.kinds[0].mean_us.expect("some"),
            whole.kinds[0].mean_us.expect("some"),
        );
    }
}
