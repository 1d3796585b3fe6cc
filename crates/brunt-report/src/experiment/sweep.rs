//! Throughput and response time against the swept axis (Figures 4 to 7 of the iSCSI paper), and a table of all points.

use brunt_result::degradation::{PhaseKind, PhaseOverRuns};
use brunt_result::percentile::Percentile;
use brunt_result::statistics::Estimate;
use brunt_result::summary::PointSummary;

use super::knee;
use super::points::{Line, Points, with_uncertainty};
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Bar, Bars, Block, Cell, PageTable, Section};

/// Maximum number of lines per chart; more are spread over several charts.
const LINES_MAX: usize = 8;
/// Maximum number of charts per figure; the table has the rest.
const CHARTS_MAX: usize = 8;
/// Maximum number of bars per figure.
const BARS_MAX: usize = 40;

/// If one figure covers both requests and bytes, it is shown in bytes per second for requests of at least this size.
const LONG_BYTES: f64 = 65536.0;

const INTERVALS: &str =
    "Markers: means over runs; whiskers: 95 % confidence intervals (Student's t).";

const IN_PHASES: &str = "Each phase has its own figures, because an average over the whole run would mix healthy and \
                         faulty time.";

/// A figure of a point: its name, its unit, its scale, and how to get it.
struct Figure {
    title: &'static str,
    label: &'static str,
    unit: Unit,
    scale: Scale,
    get: fn(&PointSummary) -> Option<Estimate>,
    /// Gets the figure for a phase, for points with faults.
    in_phase: fn(&PhaseOverRuns) -> Option<Estimate>,
}

#[rustfmt::skip]
const TRANSFER: Figure = Figure { title: "Throughput", label: "bytes per second", unit: Unit::BytesPerSecond, scale: Scale::FromZero, get: |p| p.bytes_per_second, in_phase: |p| p.bytes_per_second };
#[rustfmt::skip]
const REQUESTS: Figure = Figure { title: "Requests", label: "requests per second", unit: Unit::PerSecond, scale: Scale::FromZero, get: |p| p.requests_per_second, in_phase: |p| p.requests_per_second };
#[rustfmt::skip]
const MEAN: Figure = Figure { title: "Mean response time", label: "mean response time", unit: Unit::Micros, scale: Scale::Log, get: |p| p.response_mean_us, in_phase: |p| p.response_mean_us };
#[rustfmt::skip]
const P99: Figure = Figure { title: "99th percentile of the response time", label: "p99 of the response time", unit: Unit::Micros, scale: Scale::Log, get: |p| p.response_p99_us, in_phase: |p| p.response_p99_us };

/// The figures to draw, each with the sentence to show below it. If all requests have the same size, one figure
/// covers both requests and bytes.
fn figures(points: &Points<'_>) -> Vec<(&'static Figure, String)> {
    let mut figures = match points.bytes_per_request() {
        Some(bytes) => {
            let (figure, unit, one) = match bytes >= LONG_BYTES {
                true => (&TRANSFER, Unit::BytesPerSecond, 1e6),
                false => (&REQUESTS, Unit::PerSecond, 1e3),
            };
            let (other, as_much) = match bytes >= LONG_BYTES {
                true => (Unit::PerSecond, one / bytes),
                false => (Unit::BytesPerSecond, one * bytes),
            };
            let same = format!(
                "Every request is {}: {} are {}.",
                Unit::Bytes.show(bytes),
                unit.show(one),
                other.show(as_much)
            );
            vec![(figure, same)]
        }
        None => vec![(&TRANSFER, String::new()), (&REQUESTS, String::new())],
    };
    figures.extend([(&MEAN, String::new()), (&P99, String::new())]);
    figures
}

pub(super) fn section(points: &Points<'_>) -> Section {
    let mut section = Section::new("Throughput and response time");
    if points
        .all
        .iter()
        .all(|point| point.requests_per_second.is_none())
    {
        section.blocks.push(Block::Missing(
            "No run completed; there are no results.".into(),
        ));
        return section;
    }
    let lines = points.lines();
    if lines.is_empty() {
        // A single bar has nothing to be compared with; the summary box has its figures.
        if points.all.len() > 1 {
            bars(&mut section, points);
        }
        return section;
    }
    section.prose(INTERVALS);
    if !all_phases(points).is_empty() {
        section.prose(IN_PHASES);
    }
    let parts: Vec<&[Line<'_>]> = lines
        .chunks((LINES_MAX / all_phases(points).len().max(1)).max(1))
        .collect();
    for (index, part) in parts.iter().enumerate().take(CHARTS_MAX) {
        let of = if parts.len() > 1 {
            format!(" ({} of {})", index + 1, parts.len())
        } else {
            String::new()
        };
        let (marks, knees) = knee::knees(points, part);
        let charts = figures(points);
        let charts = charts.iter().map(|(figure, same)| {
            let chart = chart(points, part, figure, &of).caption(same);
            Chart {
                marks: marks.clone(),
                ..chart
            }
        });
        section.blocks.push(Block::Charts(
            charts.filter(|chart| !chart.is_empty()).collect(),
        ));
        if !knees.is_empty() {
            section.prose(knees);
        }
    }
    if parts.len() > CHARTS_MAX {
        section.prose(format!(
            "The table of all points has {} more lines.",
            lines.len() - CHARTS_MAX * LINES_MAX
        ));
    }
    if let Some(chart) = against(points, parts[0]) {
        section.blocks.push(Block::Chart(Box::new(chart)));
    }
    section
}

fn chart(points: &Points<'_>, lines: &[Line<'_>], figure: &Figure, of: &str) -> Chart {
    let across = points.across.as_ref().expect("lines lie across an axis");
    let phases = all_phases(points);
    let mut series: Vec<Series> = lines
        .iter()
        .flat_map(|line| {
            // With faults, there is one series per phase; otherwise, one for the whole run.
            let of_phase = |phase: &Phase<'_>| {
                let part = line.series(
                    SeriesRole::Nominal(0),
                    |point| (figure.in_phase)(phase.of(point)?),
                    1.0,
                );
                let of = if line.name.is_empty() {
                    String::new()
                } else {
                    format!("{}, ", line.name)
                };
                Series {
                    name: format!("{of}{}", phase.name),
                    ..part
                }
            };
            match phases.is_empty() {
                true => vec![line.series(SeriesRole::Nominal(0), figure.get, 1.0)],
                false => phases.iter().map(of_phase).collect(),
            }
        })
        .collect();
    series
        .iter_mut()
        .enumerate()
        .for_each(|(index, series)| series.role = SeriesRole::Nominal(index));
    let title = format!("{} against {}{of}", figure.title, across.label);
    let y = Axis::new(figure.label, figure.unit, figure.scale);
    Chart::lines(title, across.axis(), y, across.values.clone(), series)
}

/// Response time against throughput, which shows where more load no longer raises throughput. Drawn only for an axis
/// of load, and only for a single line, because each line has its own positions on x.
fn against(points: &Points<'_>, lines: &[Line<'_>]) -> Option<Chart> {
    let across = points.across.as_ref()?;
    let of_load = matches!(across.key.as_str(), "queue_depth" | "rate" | "workers");
    // With faults, part of each run was broken, so percentiles of whole runs say nothing about load.
    if !of_load || lines.len() != 1 || !all_phases(points).is_empty() {
        return None;
    }
    let mut places: Vec<(f64, &PointSummary)> = lines[0]
        .points
        .iter()
        .flatten()
        .filter_map(|point| Some((point.requests_per_second?.mean, *point)))
        .collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series = |name: &str, level: usize, get: &dyn Fn(&PointSummary) -> Option<f64>| {
        Series::new(
            name,
            SeriesRole::Level(level),
            places.iter().map(|(_, point)| get(point)).collect(),
        )
    };
    let all = vec![
        series("p50", 0, &|point| Some(point.response?.p50_us)),
        series("p99", 1, &|point| Some(point.response?.p99_us)),
        series("p99.9", 2, &|point| Some(point.response?.p99_9_us)),
        series("slowest", 3, &|point| Some(point.response?.max_us)),
    ];
    let x = Axis::new("requests per second", Unit::PerSecond, Scale::FromZero);
    let y = Axis::new("response time", Unit::Micros, Scale::Log);
    let xs = places.iter().map(|(rate, _)| *rate).collect();
    let caption = format!(
        "Percentiles cover all runs of a point. Each position is one value of {}; where the lines turn upwards, more \
         load only adds waiting time.",
        across.label
    );
    Some(Chart::lines("Response time against throughput", x, y, xs, all).caption(caption))
}

/// A phase that several points have in common, identified by what is the same at each of them.
struct Phase<'a> {
    kind: PhaseKind,
    faults: &'a [String],
    /// Index among the phases with the same faults.
    nth: usize,
    name: String,
}

impl Phase<'_> {
    fn of<'p>(&self, point: &'p PointSummary) -> Option<&'p PhaseOverRuns> {
        let same =
            |phase: &&PhaseOverRuns| (phase.kind, &phase.faults[..]) == (self.kind, self.faults);
        point.phases.iter().filter(same).nth(self.nth)
    }
}

/// The phases of the point with the most phases; empty without faults.
fn all_phases<'a>(points: &Points<'a>) -> Vec<Phase<'a>> {
    let Some(most) = points.all.iter().max_by_key(|point| point.phases.len()) else {
        return Vec::new();
    };
    let phase = |(index, phase): (usize, &'a PhaseOverRuns)| {
        let same =
            |other: &&PhaseOverRuns| (other.kind, &other.faults) == (phase.kind, &phase.faults);
        let nth = most.phases[..index].iter().filter(same).count();
        Phase {
            kind: phase.kind,
            faults: &phase.faults,
            nth,
            name: phase.name(),
        }
    };
    most.phases.iter().enumerate().map(phase).collect()
}

/// Name and value of a figure for each point, or for each of its phases if it has faults.
fn rows(points: &Points<'_>, figure: &Figure) -> Vec<(String, Estimate)> {
    let rows = points.all.iter().flat_map(|point| {
        let name = points.full_name(point);
        match point.phases.is_empty() {
            true => vec![(name, (figure.get)(point))],
            false => {
                let of = |phase: &PhaseOverRuns| {
                    (
                        format!("{name}, {}", phase.name()),
                        (figure.in_phase)(phase),
                    )
                };
                point.phases.iter().map(of).collect()
            }
        }
    });
    rows.filter_map(|(name, estimate)| Some((name, estimate?)))
        .collect()
}

fn bars(section: &mut Section, points: &Points<'_>) {
    for (figure, mut caption) in figures(points) {
        let rows = rows(points, figure);
        if rows.len() > BARS_MAX {
            caption += &format!(" The first {BARS_MAX} of {}.", rows.len());
        }
        let bar = |(name, estimate): (String, Estimate)| {
            let (shown, uncertainty) = with_uncertainty(&estimate, figure.unit);
            let interval = estimate.low.zip(estimate.high);
            Bar {
                name,
                parts: vec![estimate.mean],
                interval,
                shown,
                uncertainty,
            }
        };
        let bars = rows.into_iter().take(BARS_MAX).map(bar).collect();
        let (title, caption) = (figure.title.into(), caption.trim_start().to_string());
        section.blocks.push(Block::Bars(Bars {
            title,
            caption,
            bars,
            parts: Vec::new(),
        }));
    }
    if !all_phases(points).is_empty() {
        section.prose(IN_PHASES);
    }
    section.prose("Bars: means over runs; whiskers: 95 % confidence intervals (Student's t).");
}

/// Every figure of every point.
pub(super) fn table(points: &Points<'_>) -> Section {
    let mut section = Section::new("All points");
    let estimate = |estimate: Option<Estimate>, unit: Unit| match estimate {
        Some(known) => {
            let (value, uncertainty) = with_uncertainty(&known, unit);
            Cell::Estimate(value, uncertainty)
        }
        None => Cell::Empty,
    };
    let chosen = points.percentiles;
    let has_p99 = chosen.is_empty() || chosen.contains(&Percentile::P99);
    let others: Vec<Percentile> = match chosen {
        [] => vec![Percentile::P50, Percentile::P99_9, Percentile::P99_99],
        chosen => chosen
            .iter()
            .copied()
            .filter(|one| *one != Percentile::P99)
            .collect(),
    };
    let rows = points.all.iter().map(|point| {
        let mut row = vec![
            Cell::text(points.full_name(point)),
            Cell::number(
                point
                    .runs
                    .iter()
                    .filter(|run| run.is_complete())
                    .count()
                    .to_string(),
            ),
            estimate(point.requests_per_second, Unit::PerSecond),
            estimate(point.bytes_per_second, Unit::BytesPerSecond),
            estimate(point.response_mean_us, Unit::Micros),
        ];
        row.extend(has_p99.then(|| estimate(point.response_p99_us, Unit::Micros)));
        let latency = |value: Option<f64>| {
            value.map_or(Cell::Empty, |us| Cell::number(Unit::Micros.show(us)))
        };
        let response = point.response;
        row.push(latency(response.map(|l| l.min_us)));
        row.extend(others.iter().map(|one| latency(point.percentile_us(*one))));
        row.extend([
            latency(response.map(|l| l.max_us)),
            latency(point.service.map(|l| l.mean_us)),
        ]);
        row
    });
    let names: Vec<String> = others.iter().map(Percentile::to_string).collect();
    let mut columns = vec!["point", "runs", "requests", "transfer", "mean response"];
    columns.extend(has_p99.then_some("p99"));
    columns.push("fastest");
    columns.extend(names.iter().map(String::as_str));
    columns.extend(["slowest", "mean service"]);
    let caption = match all_phases(points).is_empty() {
        true => "Every point",
        false => "Every point, over the whole run, faults included",
    };
    section.table(PageTable::new(caption, &columns, rows));
    section.prose(
        "Requests, transfer, mean and p99: means over runs with 95 % confidence intervals. Other percentiles: over the requests of all complete runs. Response time counts from when a request was due until its completion, including retries; service time counts from its last submission.",
    );
    section
}
