//! Throughput and response time against the axis that was swept (Figures 4 to 7 of the iSCSI
//! paper), and every point as a table.

use brunt_result::statistics::Estimate;
use brunt_result::summary::PointSummary;

use super::points::{Line, Points, told};
use crate::chart::{Axis, Chart, Scale, SeriesRole};
use crate::format::Unit;
use crate::page::{Bar, Bars, Block, Cell, PageTable, Section};

/// Lines of one chart; more are spread over several.
const LINES_MAX: usize = 8;
/// Charts of one figure; what is beyond is in the table.
const CHARTS_MAX: usize = 8;
/// Bars of one figure.
const BARS_MAX: usize = 40;

/// Requests this long and longer are counted in bytes a second where one figure stands for both.
const LONG_BYTES: f64 = 65536.0;

const INTERVALS: &str = "Markers: means over runs; whiskers: 95 % confidence intervals (Student's t).";

/// A figure of a point: what it is called, its unit and scale, and how to get it.
struct Figure {
    title: &'static str,
    label: &'static str,
    unit: Unit,
    scale: Scale,
    get: fn(&PointSummary) -> Option<Estimate>,
}

#[rustfmt::skip]
const TRANSFER: Figure = Figure { title: "Throughput", label: "bytes per second", unit: Unit::BytesPerSecond, scale: Scale::FromZero, get: |p| p.bytes_per_second };
#[rustfmt::skip]
const REQUESTS: Figure = Figure { title: "Requests", label: "requests per second", unit: Unit::PerSecond, scale: Scale::FromZero, get: |p| p.requests_per_second };
#[rustfmt::skip]
const MEAN: Figure = Figure { title: "Mean response time", label: "mean response time", unit: Unit::Micros, scale: Scale::Log, get: |p| p.response_mean_us };
#[rustfmt::skip]
const P99: Figure = Figure { title: "99th percentile of the response time", label: "p99 of the response time", unit: Unit::Micros, scale: Scale::Log, get: |p| p.response_p99_us };

/// What is drawn, with a sentence for below: of two figures that are one, since every request is as long, only one.
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
                "Every request is of {}: {} are {}.",
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
    if points.all.iter().all(|point| point.requests_per_second.is_none()) {
        section.blocks.push(Block::Missing("No run completed; there are no results.".into()));
        return section;
    }
    let lines = points.lines();
    if lines.is_empty() {
        // A bar alone compares with nothing; the figures are in the opening box.
        if points.all.len() > 1 {
            bars(&mut section, points);
        }
        return section;
    }
    section.prose(INTERVALS);
    let parts: Vec<&[Line<'_>]> = lines.chunks(LINES_MAX).collect();
    for (index, part) in parts.iter().enumerate().take(CHARTS_MAX) {
        let of = if parts.len() > 1 { format!(" ({} of {})", index + 1, parts.len()) } else { String::new() };
        let charts = figures(points);
        let charts = charts.iter().map(|(figure, same)| chart(points, part, figure, &of).caption(same));
        section.blocks.push(Block::Charts(charts.filter(|chart| !chart.is_empty()).collect()));
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
    let series = lines
        .iter()
        .enumerate()
        .map(|(index, line)| line.series(SeriesRole::Nominal(index), figure.get, 1.0));
    let title = format!("{} against {}{of}", figure.title, across.label);
    let y = Axis::new(figure.label, figure.unit, figure.scale);
    Chart::lines(title, across.axis(), y, across.values.clone(), series.collect())
}

/// Response time against throughput: where load stops to buy throughput. Only where the axis is one
/// of load, and for one line, since each has its own places across.
fn against(points: &Points<'_>, lines: &[Line<'_>]) -> Option<Chart> {
    let across = points.across.as_ref()?;
    if !matches!(across.key.as_str(), "queue_depth" | "rate" | "workers") || lines.len() != 1 {
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
        crate::chart::Series::new(
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
        "Percentiles cover all runs of a point. Each position is one value of {}; where the lines turn upwards, more load only adds waiting.",
        across.label
    );
    Some(Chart::lines("Response time against throughput", x, y, xs, all).caption(caption))
}

fn bars(section: &mut Section, points: &Points<'_>) {
    let many = points.all.len() > BARS_MAX;
    for (figure, mut caption) in figures(points) {
        let bars = points.all.iter().take(BARS_MAX).filter_map(|point| {
            let estimate = (figure.get)(point)?;
            let (shown, uncertainty) = told(&estimate, figure.unit);
            let interval = estimate.low.zip(estimate.high);
            Some(Bar {
                name: points.full_name(point),
                parts: vec![estimate.mean],
                interval,
                shown,
                uncertainty,
            })
        });
        if many {
            caption += &format!(" The first {BARS_MAX} of {} points.", points.all.len());
        }
        let (bars, caption) = (bars.collect(), caption.trim_start().to_string());
        section.blocks.push(Block::Bars(Bars {
            title: figure.title.into(),
            caption,
            bars,
            parts: Vec::new(),
        }));
    }
    section.prose("Bars: means over runs; whiskers: 95 % confidence intervals (Student's t).");
}

/// Every figure of every point.
pub(super) fn table(points: &Points<'_>) -> Section {
    let mut section = Section::new("All points");
    let estimate = |estimate: Option<Estimate>, unit: Unit| match estimate {
        Some(known) => {
            let (value, uncertainty) = told(&known, unit);
            Cell::Estimate(value, uncertainty)
        }
        None => Cell::Empty,
    };
    let rows = points.all.iter().map(|point| {
        let mut row = vec![
            Cell::text(points.full_name(point)),
            Cell::number(point.runs.iter().filter(|run| run.is_complete()).count().to_string()),
            estimate(point.requests_per_second, Unit::PerSecond),
            estimate(point.bytes_per_second, Unit::BytesPerSecond),
            estimate(point.response_mean_us, Unit::Micros),
            estimate(point.response_p99_us, Unit::Micros),
        ];
        let latency =
            |value: Option<f64>| value.map_or(Cell::Empty, |us| Cell::number(Unit::Micros.show(us)));
        let response = point.response;
        row.extend([
            latency(response.map(|l| l.min_us)),
            latency(response.map(|l| l.p50_us)),
            latency(response.map(|l| l.p99_9_us)),
            latency(response.map(|l| l.p99_99_us)),
            latency(response.map(|l| l.max_us)),
            latency(point.service.map(|l| l.mean_us)),
        ]);
        row
    });
    let columns = [
        "point",
        "runs",
        "requests",
        "transfer",
        "mean response",
        "p99",
        "fastest",
        "p50",
        "p99.9",
        "p99.99",
        "slowest",
        "mean service",
    ];
    section.table(PageTable::new("Every point", &columns, rows));
    section.prose(
        "Requests, transfer, mean and p99: means over runs with 95 % confidence intervals. Other percentiles: over the requests of all complete runs. Response time counts from when a request was due until its completion, including retries; service time counts from its last submission.",
    );
    section
}
