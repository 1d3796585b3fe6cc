//! Charts that each show several results: rate and p99 of each point, distributions of response times, and runs over
//! time.
//!
//! The rule: each chart includes every result that has its point; the page says how many charts beyond the maximum
//! were left out.

use brunt_core::Histogram;
use brunt_result::statistics::Estimate;
use brunt_result::summary::PointSummary;

use super::comparison::ComparedResult;
use super::details::{REQUESTS, RESPONSES, RunDetails};
use super::points::{Line, Points, with_uncertainty};
use super::{distribution, timeline};
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::Unit;
use crate::page::{Bar, Bars, Block, Choice, Section};

/// Maximum number of charts over swept values; the table has every point.
const CHARTS_MAX: usize = 24;
/// Maximum number of points with distributions, and of points with charts over time.
const POINTS_MAX: usize = 60;

type Get = fn(&PointSummary) -> Option<Estimate>;

/// A figure of a point, and how it is shown.
struct Figure {
    title: &'static str,
    label: &'static str,
    unit: Unit,
    scale: Scale,
    get: Get,
}

const FIGURES: [Figure; 2] = [
    Figure {
        title: "Requests",
        label: "requests per second",
        unit: Unit::PerSecond,
        scale: Scale::FromZero,
        get: |point| point.requests_per_second,
    },
    Figure {
        title: "p99",
        label: "p99 of the response time",
        unit: Unit::Micros,
        scale: Scale::Log,
        get: |point| point.response_p99_us,
    },
];

/// Throughput and p99 of each point, with all results in one chart.
pub(super) fn side_by_side(results: &[ComparedResult<'_>]) -> Section {
    let mut section = Section::new("Side by side");
    let each: Vec<Points<'_>> = results.iter().map(|one| Points::of(one.summary)).collect();
    let axes: Vec<_> = each
        .iter()
        .map(|points| points.across.as_ref().map(|axis| (&axis.key, &axis.values)))
        .collect();
    if axes.iter().any(|axis| *axis != axes[0]) {
        section.blocks.push(Block::Missing(
            "The results sweep different values; see the table.".into(),
        ));
        return section;
    }
    section.prose("Means over runs with 95 % confidence intervals (Student's t).");
    let mut blocks = match each[0].across {
        Some(_) => vec![Block::Charts(swept(results, &each))],
        None => bars(results),
    };
    let left_out = match &mut blocks[..] {
        [Block::Charts(charts)] => {
            let left_out = charts.len().saturating_sub(CHARTS_MAX);
            charts.truncate(CHARTS_MAX);
            left_out
        }
        _ => 0,
    };
    if matches!(&blocks[..], [Block::Charts(charts)] if charts.is_empty()) || blocks.is_empty() {
        return Section::new("Side by side");
    }
    section.blocks.extend(blocks);
    if left_out > 0 {
        section.prose(format!(
            "{left_out} more charts are omitted; the table has every point."
        ));
    }
    section
}

/// Charts over the swept values: two charts for each line that at least two results share.
fn swept(results: &[ComparedResult<'_>], each: &[Points<'_>]) -> Vec<Chart> {
    let Some(across) = &each[0].across else {
        return Vec::new();
    };
    let lines: Vec<Vec<Line<'_>>> = each.iter().map(Points::lines).collect();
    let mut charts = Vec::new();
    for first in &lines[0] {
        let twins: Vec<(usize, &Line<'_>)> = lines
            .iter()
            .enumerate()
            .filter_map(|(nth, of)| Some((nth, of.iter().find(|twin| twin.name == first.name)?)))
            .collect();
        if twins.len() < 2 {
            continue;
        }
        for figure in &FIGURES {
            let series = twins.iter().map(|(nth, line)| Series {
                name: results[*nth].name.to_string(),
                ..line.series(SeriesRole::Nominal(*nth), figure.get, 1.0)
            });
            let of = match first.name.as_str() {
                "" => String::new(),
                name => format!(": {name}"),
            };
            charts.push(Chart::lines(
                format!("{}{of}", figure.title),
                across.axis(),
                Axis::new(figure.label, figure.unit, figure.scale),
                across.values.clone(),
                series.collect(),
            ));
        }
    }
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// Without an axis: a bar for each point and result.
fn bars(results: &[ComparedResult<'_>]) -> Vec<Block> {
    let of_figure = |figure: &Figure| {
        let mut bars = Vec::new();
        for (label, points) in common(results) {
            for one in points {
                let Some(estimate) = (figure.get)(one.point) else {
                    continue;
                };
                let (shown, uncertainty) = with_uncertainty(&estimate, figure.unit);
                bars.push(Bar {
                    name: format!("{label} · {}", results[one.result].name),
                    parts: vec![estimate.mean],
                    interval: estimate.low.zip(estimate.high),
                    shown,
                    uncertainty,
                });
            }
        }
        let bars = Bars {
            title: format!("{}: {}", figure.title, figure.label),
            bars,
            ..Bars::default()
        };
        (!bars.bars.is_empty()).then_some(Block::Bars(bars))
    };
    FIGURES.iter().filter_map(of_figure).collect()
}

/// A point in one of the results that have it.
struct CommonPoint<'a> {
    /// Index of the result.
    result: usize,
    /// Index of the point in its result.
    index: usize,
    point: &'a PointSummary,
}

/// The first result's points that other results have too, by label.
fn common<'a>(results: &[ComparedResult<'a>]) -> Vec<(String, Vec<CommonPoint<'a>>)> {
    let Some(first) = results.first() else {
        return Vec::new();
    };
    let of = |label: &str| {
        let found = results.iter().enumerate().filter_map(|(result, one)| {
            let mut points = one.summary.points.iter().enumerate();
            let (index, point) = points.find(|(_, point)| point.label == label)?;
            Some(CommonPoint {
                result,
                index,
                point,
            })
        });
        found.collect::<Vec<_>>()
    };
    let labels = first.summary.points.iter().map(|point| &point.label);
    labels
        .map(|label| (label.clone(), of(label)))
        .filter(|(_, points)| points.len() > 1)
        .collect()
}

/// A section with one alternative per point, for the points for which `blocks` finds something.
fn by_point(
    title: &str,
    results: &[ComparedResult<'_>],
    blocks: impl Fn(&[CommonPoint<'_>]) -> Vec<Block>,
) -> Section {
    let mut section = Section::new(title);
    let mut options: Vec<(String, Vec<Block>)> = common(results)
        .into_iter()
        .map(|(label, points)| (label, blocks(&points)))
        .filter(|(_, blocks)| !blocks.is_empty())
        .collect();
    let left_out = options.len().saturating_sub(POINTS_MAX);
    options.truncate(POINTS_MAX);
    if options.is_empty() {
        section.blocks.push(Block::Missing(
            "The results have no data for this section, or it was removed.".into(),
        ));
        return section;
    }
    section.blocks.push(Block::Choice(Choice {
        label: "Point".into(),
        options,
    }));
    if left_out > 0 {
        section.prose(format!(
            "{left_out} more points are omitted; the reports of the results have them."
        ));
    }
    section
}

/// The cumulative distributions of each point, with all results in one chart.
pub(super) fn distributions(results: &[ComparedResult<'_>]) -> Section {
    by_point("Distribution of response times", results, |points| {
        let curves: Vec<(String, &Histogram)> = points
            .iter()
            .filter_map(|one| {
                let result = &results[one.result];
                let histogram = result.details.response.get(&one.index)?;
                (!histogram.is_empty()).then(|| (result.name.to_string(), histogram))
            })
            .collect();
        if curves.is_empty() {
            return Vec::new();
        }
        let chart = distribution::curves("Cumulative distribution", &curves);
        vec![Block::of(chart.caption(distribution::CAPTION))]
    })
}

/// Throughput and p99 over time of each point's run with median throughput, with all results in one chart.
pub(super) fn over_time(results: &[ComparedResult<'_>]) -> Section {
    let mut section = by_point("Over time", results, |points| {
        let runs: Vec<(usize, &RunDetails)> = points
            .iter()
            .filter_map(|one| {
                let run = timeline::representative(one.point)?;
                let details = results[one.result].details.runs.get(&run.order)?;
                (details.line.pushed() > 1).then_some((one.result, details))
            })
            .collect();
        if runs.is_empty() {
            return Vec::new();
        }
        let first = points.first().map(|one| one.point.label.as_str());
        of_runs(results, &runs, first.unwrap_or_default())
    });
    if matches!(section.blocks.first(), Some(Block::Choice(_))) {
        let text = "Each result's run with median throughput at a point. Time counts from the start of measuring.";
        section.blocks.insert(0, Block::Prose(text.into()));
    }
    section
}

fn of_runs(
    results: &[ComparedResult<'_>],
    runs: &[(usize, &RunDetails)],
    label: &str,
) -> Vec<Block> {
    // Use the positions of the finest run, extended to the end of the longest.
    let lines = || runs.iter().map(|(_, details)| &details.line);
    let mut places = lines()
        .map(|line| line.places())
        .max_by_key(Vec::len)
        .unwrap_or_default();
    let last = places.last().copied().unwrap_or(0.0);
    let longest = lines().max_by(|a, b| {
        let end = |span: Option<(f64, f64)>| span.map_or(0.0, |(_, end)| end);
        end(a.span()).total_cmp(&end(b.span()))
    });
    let more = longest.map(|line| line.places()).unwrap_or_default();
    places.extend(more.into_iter().filter(|place| *place > last));
    let chart = |title: &str, y: Axis, figure: usize| {
        let series = runs.iter().map(|(nth, details)| {
            let values = details.line.at(figure, &places);
            Series::new(results[*nth].name, SeriesRole::Nominal(*nth), values)
        });
        let x = Axis::new("time", Unit::Seconds, Scale::Linear);
        let chart = Chart::curves(title, x, y, places.clone(), series.collect());
        Block::of(Chart {
            height: 220,
            ..chart.on(&format!("time-{label}"), &[])
        })
    };
    let latency = Axis::new("response time", Unit::Micros, Scale::Log);
    vec![
        chart("Throughput", timeline::rate(), REQUESTS),
        chart("p99 of the response time", latency, RESPONSES + 1),
    ]
}
