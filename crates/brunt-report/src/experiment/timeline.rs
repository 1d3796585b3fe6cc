//! Runs over time: throughput, percentiles, the response time map and host counters on one time axis, with
//! faults as bands.
//!
//! The rule: a thinned series says that it is thinned.

use brunt_core::units::counted;
use brunt_result::summary::{PointSummary, RunSummary, Summary};

use super::details::{Details, LOST, REQUESTS, RESPONSES, RETRIED, RunDetails};
use super::hosts;
use super::points::Points;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole, ShadedSpan};
use crate::format::{Unit, count};
use crate::page::{Block, Choice, Section};

/// Maximum number of runs with all charts; if there are more, each point has them only for its run with median
/// throughput.
const RUNS_MAX: usize = 60;
/// Maximum number of runs with lines; if there are more, the points share this number.
const LINES_MAX: usize = 240;
/// Maximum number of points with a timeline.
const POINTS_MAX: usize = 240;
/// Minimum number of columns of a response time map.
const COLUMNS_MIN: usize = 4;
/// Maximum number of points on all timelines of the page, which limits the file to a few megabytes.
const PLACES_MAX: usize = 9_000;
/// Limits for the number of points on one timeline: fewer would show too little, and no screen shows more.
const PLACES: std::ops::RangeInclusive<usize> = 40..=400;

/// A run whose timeline is shown on the page.
pub(super) struct Chosen<'a> {
    /// Index of its point.
    pub point: usize,
    /// The run.
    pub run: &'a RunSummary,
    /// Whether the map and the hosts are shown, not only the lines.
    pub whole: bool,
}

/// The runs whose timelines are shown on the page. For each point, the run with median throughput comes first and
/// represents the point.
pub(super) fn chosen(summary: &Summary) -> Vec<Chosen<'_>> {
    let all: usize = summary.points.iter().map(|point| point.runs.len()).sum();
    let lines = if all > LINES_MAX {
        (LINES_MAX / summary.points.len().max(1)).max(1)
    } else {
        LINES_MAX
    };
    let mut chosen = Vec::new();
    for (index, point) in summary.points.iter().enumerate().take(POINTS_MAX) {
        let mut runs: Vec<&RunSummary> = point.runs.iter().collect();
        if let Some(median) = representative(point) {
            runs.retain(|run| !std::ptr::eq(*run, median));
            runs.sort_by_key(|run| run.repetition);
            runs.insert(0, median);
        }
        let runs = runs.into_iter().take(lines).enumerate();
        chosen.extend(runs.map(|(nth, run)| Chosen {
            point: index,
            run,
            whole: all <= RUNS_MAX || nth == 0,
        }));
    }
    chosen
}

/// A point's run with median throughput.
pub(super) fn representative(point: &PointSummary) -> Option<&RunSummary> {
    let mut runs: Vec<&RunSummary> = point.runs.iter().collect();
    runs.sort_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
    runs.get(runs.len().saturating_sub(1) / 2).copied()
}

/// Number of points on each timeline, if there are this many timelines.
pub(super) fn places(lines: usize) -> usize {
    (PLACES_MAX / lines.max(1)).clamp(*PLACES.start(), *PLACES.end())
}

/// A run with its details.
type Shown<'a> = (&'a Chosen<'a>, &'a RunDetails);

pub(super) fn section(summary: &Summary, details: &Details) -> Section {
    let mut section = Section::new("Over time");
    let points = Points::of(summary);
    let chosen = chosen(summary);
    let shown = chosen.iter().filter_map(|one| {
        let known = details.runs.get(&one.run.order)?;
        (known.line.pushed() > 1).then_some((one, known))
    });
    let shown: Vec<Shown<'_>> = shown.collect();
    if shown.is_empty() {
        let why = details
            .missing
            .as_deref()
            .unwrap_or("All runs have only one recorded interval.");
        section.blocks.push(Block::Missing(why.to_string()));
        return section;
    }
    section.prose(
        "Time counts from the start of measuring. The charts of a point share a cursor; drag to zoom.",
    );
    let all: usize = summary.points.iter().map(|point| point.runs.len()).sum();
    if all > RUNS_MAX {
        section.prose(
            "Response times in detail and host counters are shown for each point's run with median \
             throughput; the tables in the results folder have all runs.",
        );
    }
    let of_point = |runs: &[Shown<'_>]| {
        let point = &summary.points[runs[0].0.point];
        (points.full_name(point), point_blocks(point, runs))
    };
    let options = shown
        .chunk_by(|a, b| a.0.point == b.0.point)
        .map(of_point)
        .collect();
    section.blocks.push(Block::Choice(Choice {
        label: "Point".into(),
        options,
    }));
    section
}

/// The blocks of a point: all its runs in one chart, then one run in detail.
fn point_blocks(point: &PointSummary, runs: &[Shown<'_>]) -> Vec<Block> {
    let sync = format!("point-{}", runs[0].0.point);
    let overlaid = runs.len() > 1;
    let mut blocks = if overlaid {
        overlay(point, runs, &sync)
    } else {
        Vec::new()
    };
    let option = |(nth, (one, details)): (usize, &Shown<'_>)| {
        let word = if nth == 0 && point.runs.len() > 1 {
            ", of median throughput"
        } else {
            ""
        };
        let name = format!("{} of {}{word}", one.run.repetition + 1, point.runs.len());
        (name, run_blocks(one.run, details, &sync, overlaid))
    };
    let whole = runs.iter().enumerate().filter(|(_, (one, _))| one.whole);
    let options: Vec<(String, Vec<Block>)> = whole.map(option).collect();
    if overlaid {
        blocks.push(Block::Heading("One run in detail".into()));
    }
    blocks.push(Block::Choice(Choice {
        label: "Run".into(),
        options,
    }));
    blocks
}

/// Throughput and p99 of every run on one time axis.
fn overlay(point: &PointSummary, runs: &[Shown<'_>], sync: &str) -> Vec<Block> {
    let mut runs: Vec<&Shown<'_>> = runs.iter().collect();
    runs.sort_by_key(|(one, _)| one.run.repetition);
    let lines = || runs.iter().map(|(_, details)| &details.line);
    // Use the positions of the finest run: values of coarser runs repeat at several positions, and none is lost.
    let places = lines()
        .map(|line| line.places())
        .max_by_key(Vec::len)
        .unwrap_or_default();
    let spans = lines().filter_map(|line| line.span());
    let (begin, end) = spans.fold((0.0, 0.0), |(begin, end), span| {
        (span.0.min(begin), span.1.max(end))
    });
    let summaries: Vec<&RunSummary> = runs.iter().map(|(one, _)| one.run).collect();
    let faults = super::faults::spans_of_runs(&summaries, end);
    let series = |figure: usize| -> Vec<Series> {
        let of = |(index, (one, details)): (usize, &&Shown<'_>)| {
            let name = format!("run {}", one.run.repetition + 1);
            Series::new(
                name,
                SeriesRole::Run(index),
                details.line.at(figure, &places),
            )
        };
        runs.iter().enumerate().map(of).collect()
    };
    let finish = |title: &str, y: Axis, series: Vec<Series>, caption: String| {
        let chart = Chart::curves(title, time(), y, places.clone(), series)
            .caption(caption)
            .on(sync, &faults);
        Block::of(Chart {
            height: 220,
            stretch: Some((begin, end)),
            ..chart
        })
    };
    let mut requests = series(REQUESTS);
    // The reference level for the cost of the first fault; later faults may have another level.
    if let Some(before) = point.degradation.first().and_then(|fault| fault.baseline) {
        let values = places.iter().map(|_| Some(before.mean)).collect();
        requests.push(Series::new(
            "rate before the fault",
            SeriesRole::Reference(0),
            values,
        ));
    }
    let mut told = match (runs.len(), point.runs.len()) {
        (shown, all) if shown == all => format!("All {all} runs. "),
        (shown, all) => format!("{shown} of {all} runs. "),
    };
    told += &intervals(runs[0].1);
    vec![
        finish("Throughput", rate(), requests, told),
        finish(
            "99th percentile of the response time",
            Axis::new("p99 of each interval", Unit::Micros, Scale::Log),
            series(RESPONSES + 1),
            String::new(),
        ),
    ]
}

/// Describes the intervals behind a run's line.
fn intervals(details: &RunDetails) -> String {
    let (line, length) = (&details.line, Unit::Micros.show(details.interval_s * 1e6));
    let mut told = format!("{} intervals of {length}.", count(line.pushed() as f64));
    if line.each() > 1 {
        told += &format!(
            " Drawn as the minimum and maximum of every {} intervals.",
            line.each()
        );
    }
    told
}

pub(super) fn rate() -> Axis {
    Axis::new("requests per second", Unit::PerSecond, Scale::FromZero)
}

/// The charts of a run; without throughput if one chart shows the throughput of all runs.
fn run_blocks(run: &RunSummary, details: &RunDetails, sync: &str, overlaid: bool) -> Vec<Block> {
    let charts = RunCharts::of(run, details, sync);
    let mut blocks = Vec::new();
    if !overlaid {
        blocks.push(charts.throughput(run));
    }
    blocks.push(charts.responses());
    blocks.push(charts.response_map());
    blocks.extend(charts.troubles());
    blocks.extend(charts.hosts());
    blocks
}

/// What the charts of a run share: its details, the time axis, the cursor and the faults.
struct RunCharts<'a> {
    details: &'a RunDetails,
    sync: &'a str,
    faults: Vec<ShadedSpan>,
    stretch: (f64, f64),
}

impl<'a> RunCharts<'a> {
    fn of(run: &RunSummary, details: &'a RunDetails, sync: &'a str) -> RunCharts<'a> {
        let (begin, end) = details.line.span().unwrap_or_default();
        RunCharts {
            details,
            sync,
            faults: super::faults::spans(run, end),
            stretch: (begin.min(0.0), end),
        }
    }

    /// A chart of figures from the run's line.
    fn curves(&self, title: &str, y: Axis, series: Vec<Series>) -> Chart {
        Chart::curves(title, time(), y, self.details.line.places(), series)
    }

    /// The block of a chart, with the common cursor and the faults.
    fn block(&self, chart: Chart, height: u32) -> Block {
        Block::of(Chart {
            height,
            stretch: Some(self.stretch),
            ..chart.on(self.sync, &self.faults)
        })
    }

    fn throughput(&self, run: &RunSummary) -> Block {
        let line = &self.details.line;
        let mut requests = vec![Series::new(
            "requests",
            SeriesRole::Nominal(0),
            line.values(REQUESTS),
        )];
        if let Some(cost) = run.faults.iter().find_map(|fault| fault.cost.as_ref()) {
            let before = cost.baseline.requests_per_second;
            let values = line.places().iter().map(|_| Some(before)).collect();
            requests.push(Series::new(
                "rate before the fault",
                SeriesRole::Reference(0),
                values,
            ));
        }
        let chart = self.curves("Throughput", rate(), requests);
        self.block(chart.caption(intervals(self.details)), 200)
    }

    /// Percentiles of the response time, with shaded areas between the first three.
    fn responses(&self) -> Block {
        let levels = ["p50", "p99", "p99.9", "slowest"]
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let level = if index == 3 { 4 } else { index };
                Series::new(
                    *name,
                    SeriesRole::Level(level),
                    self.details.line.values(RESPONSES + index),
                )
            });
        let chart = Chart {
            fills: vec![(0, 1), (1, 2)],
            ..self.curves("Response time", latency(), levels.collect())
        };
        self.block(chart, 250)
    }

    /// The response time map, or why there is none.
    fn response_map(&self) -> Block {
        let map = &self.details.map;
        match map.heat() {
            Some(heat) if map.columns() >= COLUMNS_MIN => {
                let chart = Chart::heat("Response time map", time(), latency(), heat);
                self.block(chart, 250)
            }
            Some(_) => Block::Missing(format!(
                "Response time map: {} of histograms recorded, too few for a map; a shorter interval \
                 for the workload gives more.",
                counted(map.columns(), "extent"),
            )),
            None => Block::Missing("Response time map: this run has no histograms.".into()),
        }
    }

    /// Lost and retried requests, if there are any.
    fn troubles(&self) -> Option<Block> {
        let line = &self.details.line;
        let troubles: Vec<Series> = [(LOST, "lost", 4), (RETRIED, "retried", 1)]
            .into_iter()
            .filter(|(figure, ..)| !line.is_zero(*figure))
            .map(|(figure, name, role)| {
                Series::new(name, SeriesRole::Nominal(role), line.values(figure))
            })
            .collect();
        (!troubles.is_empty()).then(|| {
            let chart = self.curves("Lost and retried requests", rate(), troubles);
            self.block(chart, 160)
        })
    }

    /// The hosts' probes during the run, or why there are none.
    fn hosts(&self) -> Vec<Block> {
        let hosts::Panels { charts, idle, few } = hosts::panels(&self.details.probes);
        if charts.is_empty() && idle.is_empty() {
            return vec![Block::Missing(match few {
                0 => "Hosts: no probes were recorded during this run.".into(),
                few => format!(
                    "Hosts: {} from the probes in this run, too few for a chart; their means are in \
                     summary.json, and a shorter interval under [probes] gives more.",
                    counted(few, "sample"),
                ),
            })];
        }
        let mut blocks = vec![Block::Heading("Hosts during this run".into())];
        blocks.extend(charts.into_iter().map(|chart| self.block(chart, 120)));
        if !idle.is_empty() {
            blocks.push(Block::Prose(format!(
                "Zero throughout: {}.",
                idle.join(", ")
            )));
        }
        blocks
    }
}

fn time() -> Axis {
    Axis::new("time", Unit::Seconds, Scale::Linear)
}

fn latency() -> Axis {
    Axis::new("response time", Unit::Micros, Scale::Log)
}
