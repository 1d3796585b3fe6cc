//! Runs over time: throughput, percentiles, the map of latencies, and what hosts did meanwhile,
//! all on one axis, with faults as bands.
//!
//! The rule: a stretch that is drawn shorter than it was measured shows its lowest and its highest
//! value, so that thinning out hides no dip and no peak.

use std::collections::BTreeMap;

use brunt_study::summary::{RunSummary, Summary};

use super::details::{Details, IntervalDetails, Probe, RunDetails};
use super::points::Points;
use crate::chart::{Axis, Chart, Heat, Role, Scale, Series};
use crate::format::Unit;
use crate::page::{Block, Choice, Section};

/// Runs on the page at the most; beyond, each point shows the run of median throughput only.
const RUNS_MAX: usize = 60;
/// Points with a time line at the most.
const POINTS_MAX: usize = 300;
/// Places on all time lines of the page together, which keeps the file to a few megabytes.
const PLACES_MAX: usize = 40_000;
/// Places of one time line: fewer than a screen is wide are too few, more are too many.
const PLACES: std::ops::RangeInclusive<usize> = 80..=600;
/// Columns of a map.
const COLUMNS_MAX: usize = 160;
/// Rows of a map for each factor of ten.
const ROWS_PER_DECADE: f64 = 12.0;
/// Lines of one chart of probes.
const PROBES_MAX: usize = 8;

pub(super) fn section(summary: &Summary, details: &Details) -> Section {
    let mut section = Section::new("Over time");
    let points = Points::of(summary);
    let mut shown: Vec<(String, &RunSummary, &RunDetails)> = Vec::new();
    let all: usize = summary.points.iter().map(|point| point.runs.len()).sum();
    for point in summary.points.iter().take(POINTS_MAX) {
        let known = |run: &&RunSummary| details.runs.get(&run.order).is_some_and(|d| d.intervals.len() > 1);
        let mut runs: Vec<&RunSummary> = point.runs.iter().filter(known).collect();
        // The run of median throughput stands for its point, and comes first.
        runs.sort_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
        if !runs.is_empty() {
            let median = runs.remove((runs.len() - 1) / 2);
            runs.sort_by_key(|run| run.repetition);
            runs.insert(0, median);
        }
        let take = if all > RUNS_MAX { 1 } else { runs.len() };
        for (index, run) in runs.iter().take(take).enumerate() {
            let word = if index == 0 && runs.len() > 1 { ", of median throughput" } else { "" };
            let name = format!(
                "{}: run {} of {}{word}",
                points.full_name(point),
                run.repetition + 1,
                point.runs.len()
            );
            shown.push((name, run, &details.runs[&run.order]));
        }
    }
    if shown.is_empty() {
        let why = details.missing.as_deref().unwrap_or("No run has more than one interval on record.");
        section.blocks.push(Block::Missing(why.to_string()));
        return section;
    }
    let places = (PLACES_MAX / shown.len()).clamp(*PLACES.start(), *PLACES.end());
    section.prose("Time runs from the start of measuring. Charts of one run share their cursor; drag over one to look closer.");
    if all > RUNS_MAX {
        section.prose(
            "Of each point the run of median throughput is shown; the tables beside this page have all.",
        );
    }
    let options =
        shown.into_iter().map(|(name, run, details)| (name, blocks(run, details, places))).collect();
    section.blocks.push(Block::Choice(Choice { label: "Run".into(), options }));
    section
}

/// A time line's places, thinned out.
struct Line {
    xs: Vec<f64>,
    /// Intervals behind each pair of places.
    each: usize,
    thinned: bool,
}

impl Line {
    fn of(intervals: &[IntervalDetails], places: usize) -> Line {
        let middle = |interval: &IntervalDetails| (interval.start_s + interval.end_s) / 2.0;
        if intervals.len() <= places {
            return Line { xs: intervals.iter().map(middle).collect(), each: 1, thinned: false };
        }
        let each = intervals.len().div_ceil(places / 2);
        let xs = intervals.chunks(each).flat_map(|chunk| {
            let (from, to) = (chunk[0].start_s, chunk[chunk.len() - 1].end_s);
            [from + (to - from) * 0.25, from + (to - from) * 0.75]
        });
        Line { xs: xs.collect(), each, thinned: true }
    }

    /// A figure at the places.
    fn values(
        &self,
        intervals: &[IntervalDetails],
        get: impl Fn(&IntervalDetails) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        if !self.thinned {
            return intervals.iter().map(get).collect();
        }
        intervals.chunks(self.each).flat_map(|chunk| ends(chunk.iter().filter_map(&get))).collect()
    }
}

/// Lowest and highest of some values, in the order in which they came.
fn ends(values: impl Iterator<Item = f64>) -> [Option<f64>; 2] {
    type Place = Option<(usize, f64)>;
    let (mut low, mut high): (Place, Place) = (None, None);
    for (index, value) in values.enumerate() {
        if low.is_none_or(|(_, known)| value < known) {
            low = Some((index, value));
        }
        if high.is_none_or(|(_, known)| value > known) {
            high = Some((index, value));
        }
    }
    match (low, high) {
        (Some((at, low)), Some((before, high))) if before < at => [Some(high), Some(low)],
        (low, high) => [low.map(|(_, value)| value), high.map(|(_, value)| value)],
    }
}

fn blocks(run: &RunSummary, details: &RunDetails, places: usize) -> Vec<Block> {
    let intervals = &details.intervals[..];
    let faults = super::faults::spans(run, intervals[intervals.len() - 1].end_s);
    let sync = format!("run-{}", run.order);
    let line = Line::of(intervals, places);
    let stretch = (0f64.min(intervals[0].start_s), intervals[intervals.len() - 1].end_s);
    let time = || Axis::new("time", Unit::Seconds, Scale::Linear);
    let finish =
        |chart: Chart, height: u32| Chart { height, stretch: Some(stretch), ..chart.on(&sync, &faults) };
    let lasts = |i: &IntervalDetails| (i.end_s - i.start_s).max(1e-9);
    let length = intervals.iter().map(lasts).fold(0.0, f64::max);
    let told = if line.thinned {
        format!(
            "{} intervals of {}, drawn as the lowest and highest of every {} together.",
            intervals.len(),
            Unit::Seconds.show(length),
            line.each
        )
    } else {
        format!("{} intervals of {}.", intervals.len(), Unit::Seconds.show(length))
    };
    let mut blocks = Vec::new();
    let rate = line.values(intervals, |i| Some(i.completed as f64 / lasts(i)));
    let y = Axis::new("requests a second", Unit::PerSecond, Scale::FromZero);
    let series = vec![Series::new("requests", Role::Nominal(0), rate)];
    blocks.push(Block::of(finish(
        Chart::curves("Throughput", time(), y, line.xs.clone(), series).caption(told),
        200,
    )));

    let names = ["p50", "p99", "p99.9", "slowest"];
    let levels = names.iter().enumerate().map(|(index, name)| {
        let values = line.values(intervals, |i| i.percentiles_us.map(|percentiles| percentiles[index]));
        Series::new(*name, Role::Level(if index == 3 { 4 } else { index }), values)
    });
    let y = Axis::new("response time", Unit::Micros, Scale::Log);
    let chart = Chart::curves("Response time", time(), y, line.xs.clone(), levels.collect());
    let chart = Chart { fills: vec![(0, 1), (1, 2)], ..chart };
    blocks.push(Block::of(finish(chart, 250)));

    match heat(intervals) {
        Some(heat) => {
            let y = Axis::new("response time", Unit::Micros, Scale::Log);
            blocks.push(Block::of(finish(Chart::heat("Map of response times", time(), y, heat), 250)));
        }
        None => blocks
            .push(Block::Missing("Map of response times: intervals have no histograms on record.".into())),
    }
    type Get = fn(&IntervalDetails) -> u64;
    let troubles: [(&str, Get); 2] = [("lost", |i| i.lost), ("retried", |i| i.retries)];
    let seen = troubles.iter().filter(|(_, get)| intervals.iter().any(|i| get(i) > 0));
    let series: Vec<Series> = seen
        .enumerate()
        .map(|(index, (name, get))| {
            Series::new(
                *name,
                Role::Nominal(4 - 3 * index),
                line.values(intervals, |i| Some(get(i) as f64 / lasts(i))),
            )
        })
        .collect();
    if !series.is_empty() {
        let y = Axis::new("requests a second", Unit::PerSecond, Scale::FromZero);
        blocks.push(Block::of(finish(
            Chart::curves("Lost and retried requests", time(), y, line.xs.clone(), series),
            160,
        )));
    }
    let charts = probes(&details.probes, places);
    if charts.is_empty() {
        blocks.push(Block::Missing("No probes were recorded beside this run.".into()));
    } else {
        blocks.push(Block::Heading("Hosts meanwhile".into()));
        blocks.extend(charts.into_iter().map(|chart| Block::of(finish(chart, 140))));
    }
    blocks
}

/// Counts by time and latency. `None` without histograms.
fn heat(intervals: &[IntervalDetails]) -> Option<Heat> {
    let row = |us: f64| (us.max(1e-3).log10() * ROWS_PER_DECADE).floor() as i64;
    let each = intervals.len().div_ceil(COLUMNS_MAX);
    let mut cells: BTreeMap<(usize, i64), u64> = BTreeMap::new();
    for (index, interval) in intervals.iter().enumerate() {
        for (us, count) in &interval.buckets {
            *cells.entry((index / each, row(*us))).or_default() += count;
        }
    }
    let first = cells.keys().map(|(_, row)| *row).min()?;
    let last = cells.keys().map(|(_, row)| *row).max()?;
    let mut columns: Vec<f64> = intervals.iter().step_by(each).map(|interval| interval.start_s).collect();
    columns.push(intervals[intervals.len() - 1].end_s);
    let rows = (first..=last + 1).map(|row| 10f64.powf(row as f64 / ROWS_PER_DECADE)).collect();
    let cells =
        cells.into_iter().flat_map(|((column, row), count)| [column as u64, (row - first) as u64, count]);
    Some(Heat { columns, rows, cells: cells.collect() })
}

/// The unit that a metric's name ends in, and what is left of the name.
fn unit_of(metric: &str) -> (&str, Unit, Scale) {
    let endings = [
        ("_bytes_per_s", Unit::BytesPerSecond),
        ("_per_s", Unit::PerSecond),
        ("_share", Unit::Share),
        ("_bytes", Unit::Bytes),
        ("_us", Unit::Micros),
        ("_s", Unit::Seconds),
    ];
    for (ending, unit) in endings {
        if let Some(name) = metric.strip_suffix(ending) {
            return (name, unit, Scale::FromZero);
        }
    }
    (metric, Unit::Count, Scale::FromZero)
}

/// Charts of what hosts did: one for each probe, unit and host.
fn probes(probes: &[Probe], places: usize) -> Vec<Chart> {
    type Key<'k> = (&'k str, &'k str, Unit);
    let mut groups: Vec<(Key<'_>, Vec<&Probe>)> = Vec::new();
    for probe in probes.iter().filter(|probe| probe.values.len() > 1) {
        let key = (probe.host.as_str(), probe.probe.as_str(), unit_of(&probe.metric).1);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(probe),
            None => groups.push((key, vec![probe])),
        }
    }
    let several = groups.iter().any(|((host, ..), _)| *host != groups[0].0.0);
    groups
        .into_iter()
        .map(|((host, name, unit), mut members)| {
            let busiest =
                |probe: &Probe| probe.values.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
            let left_out = members.len().saturating_sub(PROBES_MAX);
            if left_out > 0 {
                members.sort_by(|a, b| busiest(b).total_cmp(&busiest(a)));
                members.truncate(PROBES_MAX);
            }
            let mut xs: Vec<f64> =
                members.iter().flat_map(|probe| probe.values.iter().map(|(at, _)| *at)).collect();
            xs.sort_by(f64::total_cmp);
            xs.dedup_by(|a, b| (*a - *b).abs() < 1e-6);
            // As many places as a time line has, by the same rule.
            let each = xs.len().div_ceil(places.max(2) / 2).max(1);
            let thinned = xs.len() > places;
            let series: Vec<Series> = members
                .iter()
                .enumerate()
                .map(|(index, probe)| {
                    let (metric, ..) = unit_of(&probe.metric);
                    let name = match probe.instance.as_str() {
                        "" => metric.replace('_', " "),
                        instance => format!("{instance} {}", metric.replace('_', " ")),
                    };
                    let mut known = probe.values.iter().peekable();
                    let at: Vec<Option<f64>> = xs
                        .iter()
                        .map(|x| known.next_if(|(at, _)| *at < x + 1e-6).map(|(_, value)| *value))
                        .collect();
                    let values = if thinned {
                        at.chunks(each).flat_map(|chunk| ends(chunk.iter().flatten().copied())).collect()
                    } else {
                        at
                    };
                    Series::new(name, Role::Nominal(index), values)
                })
                .collect();
            let xs = if thinned {
                xs.chunks(each)
                    .flat_map(|chunk| {
                        let (from, to) = (chunk[0], chunk[chunk.len() - 1]);
                        [from + (to - from) * 0.25, from + (to - from) * 0.75]
                    })
                    .collect()
            } else {
                xs
            };
            let of = if several { format!(" of {host}") } else { String::new() };
            let word = match unit {
                Unit::Share => "share",
                Unit::BytesPerSecond => "bytes a second",
                Unit::PerSecond => "events a second",
                Unit::Bytes => "bytes",
                Unit::Micros => "time",
                _ => "how many",
            };
            // A line alone has no legend: its name stands at the axis.
            let what = match &series[..] {
                [only] => format!("{}, {word}", only.name),
                _ => word.to_string(),
            };
            let mut title =
                if matches!(name, "cpu" | "tcp") { name.to_uppercase() } else { name.to_string() };
            title[..1].make_ascii_uppercase();
            let chart = Chart::curves(
                format!("{title}{of}"),
                Axis::new("time", Unit::Seconds, Scale::Linear),
                Axis::new(what, unit, Scale::FromZero),
                xs,
                series,
            );
            if left_out > 0 {
                chart.caption(format!(
                    "The {PROBES_MAX} with the highest values of {}.",
                    PROBES_MAX + left_out
                ))
            } else {
                chart
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: no dip and no peak is lost by thinning out, and the order is kept.
    #[test]
    fn thinning_keeps_extremes() {
        let mut intervals: Vec<IntervalDetails> = (0..10_000)
            .map(|i| IntervalDetails {
                start_s: i as f64,
                end_s: i as f64 + 1.0,
                completed: 1000,
                ..Default::default()
            })
            .collect();
        intervals[4321].completed = 3;
        intervals[9876].completed = 5000;
        let line = Line::of(&intervals, 400);
        let values = line.values(&intervals, |i| Some(i.completed as f64));
        assert!(line.thinned && line.xs.len() == values.len() && values.len() <= 400);
        let of = |wanted: f64| values.iter().filter(|value| **value == Some(wanted)).count();
        assert_eq!((of(3.0), of(5000.0)), (1, 1));
        assert_eq!(ends([2.0, 9.0, 1.0].into_iter()), [Some(9.0), Some(1.0)]);
        assert_eq!(ends([1.0, 9.0].into_iter()), [Some(1.0), Some(9.0)]);
        assert_eq!(ends(std::iter::empty()), [None, None]);
    }

    /// The goal: every request of the intervals is in the map, at its latency.
    #[test]
    fn maps_keep_all() {
        let intervals: Vec<IntervalDetails> = (0..500)
            .map(|i| IntervalDetails {
                start_s: i as f64,
                end_s: i as f64 + 1.0,
                buckets: vec![(100.0, 10), (100_000.0, 1)],
                ..Default::default()
            })
            .collect();
        let heat = heat(&intervals).unwrap();
        assert!(heat.columns.len() <= COLUMNS_MAX + 1);
        assert_eq!(heat.cells.iter().skip(2).step_by(3).sum::<u64>(), 5500);
        assert!((heat.rows[0] - 100.0).abs() < 1e-6 && heat.rows[heat.rows.len() - 1] > 100_000.0);
        assert!(super::heat(&[IntervalDetails::default()]).is_none());
    }
}
