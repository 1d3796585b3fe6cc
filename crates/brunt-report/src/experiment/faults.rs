//! What went wrong on purpose, and what it cost: depth, work lost, time to be seen and to recover.

use brunt_study::degradation::{BAND_SHARE, HOLD, OverRuns};
use brunt_study::statistics::Estimate;
use brunt_study::summary::{FaultSummary, RunSummary, Summary};

use super::points::{Points, told};
use crate::chart::Span;
use crate::format::{Unit, count, three};
use crate::page::{Block, Cell, Section, Table, Tone};

/// `None` where nothing was broken.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let mut section = Section::new("Faults");
    let mut rows = Vec::new();
    for point in &summary.points {
        rows.extend(point.degradation.iter().map(|fault| cost(points.full_name(point), fault)));
    }
    if !rows.is_empty() {
        let columns =
            ["point", "fault", "rate before", "depth", "requests lost", "seen after", "recovered after"];
        let columns = columns.map(String::from).to_vec();
        section.blocks.push(Block::Table(Table {
            caption: "What each fault cost".into(),
            columns,
            rows,
            folded: false,
        }));
        section.prose(format!(
            "Depth is the share of the rate before that was missing while the fault was there. Lost requests are summed \
             until recovery. Recovered means back in the band of the rate before (its median ± {} or more, if it was \
             noisier) for {} s. Means over runs with 95 % intervals.",
            Unit::Share.show(BAND_SHARE),
            HOLD.as_secs()
        ));
    }
    let rows: Vec<Vec<Cell>> = summary
        .points
        .iter()
        .flat_map(|point| point.runs.iter().map(move |run| (point, run)))
        .flat_map(|(point, run)| run.faults.iter().map(move |fault| (point, run, fault)))
        .map(|(point, run, fault)| proof(points.full_name(point), run, fault))
        .collect();
    if rows.is_empty() && section.blocks.is_empty() {
        return None;
    }
    let columns =
        ["point", "run", "fault", "what", "begin", "shown by", "end", "gone by"].map(String::from).to_vec();
    let caption = format!("Each of {} injections, and how it was proven", rows.len());
    section.blocks.push(Block::Table(Table { caption, columns, rows, folded: true }));
    Some(section)
}

fn cost(point: String, fault: &OverRuns) -> Vec<Cell> {
    let estimate = |estimate: &Option<Estimate>, unit: Unit| match estimate {
        Some(known) => {
            let (value, uncertainty) = told(known, unit);
            Cell::Estimate(value, uncertainty)
        }
        None => Cell::Empty,
    };
    // A share near zero has no useful half width as a share of itself.
    let depth = fault.depth.map_or(Cell::Empty, |depth| {
        let half =
            depth.high.map_or(String::new(), |high| format!("± {}", three((high - depth.mean) * 100.0)));
        Cell::Estimate(Unit::Share.show(depth.mean), half)
    });
    let answer = |seconds: &Option<Estimate>, never: usize| match (seconds, never) {
        (None, 0) => Cell::Empty,
        (None, _) => Cell::Verdict(Tone::Warning, "never".into()),
        (Some(seconds), 0) => {
            let (value, uncertainty) = told(seconds, Unit::Seconds);
            Cell::Estimate(value, uncertainty)
        }
        (Some(seconds), never) => {
            Cell::Estimate(Unit::Seconds.show(seconds.mean), format!("not in {never} runs"))
        }
    };
    vec![
        Cell::text(point),
        Cell::text(&fault.fault),
        estimate(&fault.baseline, Unit::PerSecond),
        depth,
        estimate(&fault.lost_requests, Unit::Count),
        answer(&fault.detected_s, fault.not_detected),
        answer(&fault.recovered_s, fault.not_recovered),
    ]
}

fn proof(point: String, run: &RunSummary, fault: &FaultSummary) -> Vec<Cell> {
    let at = |at: Option<f64>| at.map_or(Cell::Empty, |at| Cell::number(Unit::Seconds.show(at)));
    let mut shown = fault.shown_by.clone();
    for gap in &fault.gaps {
        let [from, until] = [gap.from_s, gap.until_s].map(|at| Unit::Seconds.show(at));
        shown +=
            &format!("; lost at {from} with its target, put in place again at {until}: {}", gap.shown_by);
    }
    vec![
        Cell::text(point),
        Cell::number(count(f64::from(run.repetition) + 1.0)),
        Cell::text(&fault.name),
        Cell::text(format!("{} on {}", fault.what, fault.place)),
        at(Some(fault.start_s)),
        Cell::text(shown),
        at(fault.end_s),
        Cell::text(&fault.gone_by),
    ]
}

/// The bands of a run's time lines, which end at `end_s`; a fault that was lost in between has several.
pub(super) fn spans(run: &RunSummary, end_s: f64) -> Vec<Span> {
    let mut spans = Vec::new();
    for fault in &run.faults {
        let mut from = fault.start_s.max(0.0);
        let ends = fault.gaps.iter().map(|gap| (gap.from_s, gap.until_s));
        for (to, next) in ends.chain([(fault.end_s.unwrap_or(end_s), end_s)]) {
            spans.push(Span { from, to: to.min(end_s), label: format!("{}: {}", fault.name, fault.what) });
            from = next.max(0.0);
        }
    }
    spans.retain(|span| span.from < span.to);
    spans
}
