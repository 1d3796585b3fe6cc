//! Runs over time: throughput, percentiles, the response time map and host counters on one time axis, with
//! faults as bands.
//!
//! The rule: a thinned-out series says so.

use brunt_result::summary::{RunSummary, Summary};

use super::details::{Details, RunDetails};
use super::hosts;
use super::points::Points;
use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::{Unit, count};
use crate::page::{Block, Choice, Section};

/// Runs on the page at most; beyond, each point shows the run of median throughput only.
const RUNS_MAX: usize = 60;
/// Points with a time line at most.
const POINTS_MAX: usize = 300;
/// Stretches on all time lines of the page together, which keeps the file to a few megabytes.
const PLACES_MAX: usize = 9_000;
/// Stretches of one time line: under the first it says too little, over the last no screen shows it.
const PLACES: std::ops::RangeInclusive<usize> = 40..=400;
/// The runs whose time lines the page shows, with their points' indexes; of each point the run of median
/// throughput first, which stands for it.
pub(super) fn chosen(summary: &Summary) -> Vec<(usize, &RunSummary)> {
    let all: usize = summary.points.iter().map(|point| point.runs.len()).sum();
    let mut chosen = Vec::new();
    for (index, point) in summary.points.iter().enumerate().take(POINTS_MAX) {
        let mut runs: Vec<&RunSummary> = point.runs.iter().collect();
        runs.sort_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
        if !runs.is_empty() {
            let median = runs.remove((runs.len() - 1) / 2);
            runs.sort_by_key(|run| run.repetition);
            runs.insert(0, median);
        }
        runs.truncate(if all > RUNS_MAX { 1 } else { RUNS_MAX });
        chosen.extend(runs.into_iter().map(|run| (index, run)));
    }
    chosen
}

/// Stretches that each of so many time lines may have.
pub(super) fn places(lines: usize) -> usize {
    (PLACES_MAX / lines.max(1)).clamp(*PLACES.start(), *PLACES.end())
}

pub(super) fn section(summary: &Summary, details: &Details) -> Section {
    let mut section = Section::new("Over time");
    let points = Points::of(summary);
    let all: usize = summary.points.iter().map(|point| point.runs.len()).sum();
    let mut shown: Vec<(String, &RunSummary, &RunDetails)> = Vec::new();
    let mut last = None;
    for (index, run) in chosen(summary) {
        let first = last.replace(index) != Some(index);
        let Some(known) = details.runs.get(&run.order).filter(|known| known.line.pushed() > 1) else {
            continue;
        };
        let point = &summary.points[index];
        let word = if first && point.runs.len() > 1 { ", of median throughput" } else { "" };
        let (number, count) = (run.repetition + 1, point.runs.len());
        shown.push((format!("{}: run {number} of {count}{word}", points.full_name(point)), run, known));
    }
    if shown.is_empty() {
        let why = details.missing.as_deref().unwrap_or("All runs have only one interval on record.");
        section.blocks.push(Block::Missing(why.to_string()));
        return section;
    }
    section
        .prose("Time counts from the start of measuring. The charts of a run share a cursor; drag to zoom.");
    if all > RUNS_MAX {
        section.prose(
            "For each point, the run with the median throughput is shown; the tables in the results folder have all runs.",
        );
    }
    let options = shown.into_iter().map(|(name, run, details)| (name, blocks(run, details))).collect();
    section.blocks.push(Block::Choice(Choice { label: "Run".into(), options }));
    section
}

fn blocks(run: &RunSummary, details: &RunDetails) -> Vec<Block> {
    let line = &details.line;
    let (begin, end) = line.span().unwrap_or_default();
    let (faults, sync) = (super::faults::spans(run, end), format!("run-{}", run.order));
    let stretch = Some((begin.min(0.0), end));
    let time = || Axis::new("time", Unit::Seconds, Scale::Linear);
    let finish = |chart: Chart, height: u32| Block::of(Chart { height, stretch, ..chart.on(&sync, &faults) });
    let length = Unit::Micros.show(details.interval_s * 1e6);
    let mut told = format!("{} intervals of {length}.", count(line.pushed() as f64));
    if line.each() > 1 {
        told += &format!(" Drawn as the minimum and maximum of every {}.", line.each());
    }
    let curves =
        |title: &str, y: Axis, series: Vec<Series>| Chart::curves(title, time(), y, line.places(), series);
    let rate = || Axis::new("requests per second", Unit::PerSecond, Scale::FromZero);
    let latency = || Axis::new("response time", Unit::Micros, Scale::Log);

    let mut requests = vec![Series::new("requests", SeriesRole::Nominal(0), line.values(0))];
    // What the cost of the first fault is measured against; later ones may have another.
    if let Some(cost) = run.faults.iter().find_map(|fault| fault.cost.as_ref()) {
        let before = cost.baseline.requests_per_second;
        let values = line.places().iter().map(|_| Some(before)).collect();
        requests.push(Series::new("rate before the fault", SeriesRole::Level(0), values));
    }
    let mut blocks = vec![finish(curves("Throughput", rate(), requests).caption(told), 200)];
    let levels = ["p50", "p99", "p99.9", "slowest"].iter().enumerate().map(|(index, name)| {
        let level = if index == 3 { 4 } else { index };
        Series::new(*name, SeriesRole::Level(level), line.values(3 + index))
    });
    let chart = curves("Response time", latency(), levels.collect());
    blocks.push(finish(Chart { fills: vec![(0, 1), (1, 2)], ..chart }, 250));
    match details.map.heat() {
        Some(heat) if details.map.columns() > 1 => {
            blocks.push(finish(Chart::heat("Response time map", time(), latency(), heat), 250));
        }
        Some(_) => blocks.push(Block::Missing(
            "Response time map: histograms are stored per second, and the run was shorter than two.".into(),
        )),
        None => blocks.push(Block::Missing("Response time map: this run has no histograms.".into())),
    }
    let troubles =
        [(1, "lost", 4), (2, "retried", 1)].into_iter().filter(|(figure, ..)| !line.is_zero(*figure));
    let troubles: Vec<Series> = troubles
        .map(|(figure, name, role)| Series::new(name, SeriesRole::Nominal(role), line.values(figure)))
        .collect();
    if !troubles.is_empty() {
        blocks.push(finish(curves("Lost and retried requests", rate(), troubles), 160));
    }
    let (panels, idle) = hosts::charts(&details.probes);
    if panels.is_empty() && idle.is_empty() {
        blocks.push(Block::Missing("Hosts: no probes were recorded during this run.".into()));
    } else {
        blocks.push(Block::Heading("Hosts meanwhile".into()));
        blocks.extend(panels.into_iter().map(|chart| finish(chart, 120)));
        if !idle.is_empty() {
            blocks.push(Block::Prose(format!("Zero throughout: {}.", idle.join(", "))));
        }
    }
    blocks
}
