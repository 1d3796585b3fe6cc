//! Figures before, during and after faults. They come first on the page of an experiment with faults, because an
//! average over whole runs would mix healthy and broken time.

use brunt_result::degradation::{OverRuns, PhaseKind, PhaseOverRuns};
use brunt_result::statistics::Estimate;
use brunt_result::summary::{PointSummary, Summary};

use super::faults::{answer, share};
use super::points::{Points, with_uncertainty};
use crate::format::{Unit, count};
use crate::page::{CardPart, Cell, PageTable};

/// Maximum number of lines in the table; the page says if more are left out.
const LINES_MAX: usize = 400;

/// Whether any point has phases.
pub(super) fn any(summary: &Summary) -> bool {
    summary.points.iter().any(|point| !point.phases.is_empty())
}

/// Start and end of a phase, in seconds of a run.
fn when(phase: &PhaseOverRuns) -> String {
    // Faults start milliseconds late; a tenth of a second is precise enough to compare with the experiment file.
    let at = |seconds: f64| Unit::Seconds.show((seconds * 100.0).round() / 100.0);
    format!("{} to {}", at(phase.start_s), at(phase.end_s))
}

/// A phase's name; if no whole interval lies in the phase, with a note that its figures are mixed.
fn name_with_doubt(phase: &PhaseOverRuns) -> String {
    let doubt = if phase.intervals == 0 {
        ", shorter than an interval: mixed with its neighbours"
    } else {
        ""
    };
    format!("{}{doubt}", phase.name())
}

/// The effect of a phase's fault; `None` if the phase has several faults or none.
fn cost<'a>(point: &'a PointSummary, phase: &PhaseOverRuns) -> Option<&'a OverRuns> {
    let [fault] = &phase.faults[..] else {
        return None;
    };
    point.degradation.iter().find(|cost| cost.fault == *fault)
}

/// A card's parts, one for each phase. If the load has a given rate, response times come first.
pub(super) fn parts(point: &PointSummary, open: bool) -> Vec<CardPart> {
    let part = |phase: &PhaseOverRuns| {
        let shown = |estimate: Option<Estimate>, unit| match estimate {
            Some(known) => with_uncertainty(&known, unit),
            None => ("none answered".to_string(), String::new()),
        };
        let rate = shown(phase.requests_per_second, Unit::PerSecond);
        let rate = (rate.0.replace("/s", " requests/s"), rate.1);
        let p99 = shown(phase.response_p99_us, Unit::Micros);
        let (lead, second) = match open {
            true => ((format!("p99 {}", p99.0), p99.1), ("throughput", rate)),
            false => (rate, ("p99", p99)),
        };
        let mut details = Vec::new();
        let mut row = |word: &str, (value, pm): (String, String)| {
            details.push((
                word.to_string(),
                format!("{value} {pm}").trim_end().to_string(),
            ));
        };
        if let Some(cost) = cost(point, phase)
            && let Some(drop) = cost.drop
        {
            row("rate lost", (Unit::Share.show(drop.mean), String::new()));
        }
        row("mean response", shown(phase.response_mean_us, Unit::Micros));
        row(second.0, second.1);
        if let Some(max_us) = phase.response_max_us {
            row("slowest", (Unit::Micros.show(max_us), String::new()));
        }
        if let Some((requests, oldest_us)) = phase.stall() {
            let oldest = Unit::Micros.show(oldest_us);
            row(
                "not answered at its end",
                (
                    format!("{}, oldest {oldest}", count(requests as f64)),
                    String::new(),
                ),
            );
        }
        if let Some(failed) = phase.failed_share.filter(|failed| failed.mean > 0.0) {
            row("failed", (Unit::Share.show(failed.mean), String::new()));
        }
        CardPart {
            name: name_with_doubt(phase),
            when: when(phase),
            broken: phase.kind == PhaseKind::During,
            value: lead.0,
            uncertainty: lead.1,
            details,
        }
    };
    point.phases.iter().map(part).collect()
}

/// How fast a point's faults were detected and overcome, for the card.
pub(super) fn answers(point: &PointSummary) -> Vec<(String, String)> {
    let several = point.degradation.len() > 1;
    let words = |cell: Cell| match cell {
        Cell::Text(text) | Cell::Number(text) | Cell::Verdict(_, text) => text,
        Cell::Estimate(value, uncertainty) => format!("{value} {uncertainty}"),
        Cell::Empty => "–".into(),
    };
    let of = |cost: &OverRuns| {
        let of = if several {
            format!("{}, ", cost.fault)
        } else {
            String::new()
        };
        let seen = answer(
            &cost.detected_s,
            cost.not_detected,
            cost.detection_inconclusive,
        );
        let back = answer(
            &cost.recovered_s,
            cost.not_recovered,
            cost.recovery_inconclusive,
        );
        [
            (format!("{of}seen in the rate after"), words(seen)),
            (format!("{of}rate recovered after"), words(back)),
        ]
    };
    point.degradation.iter().flat_map(of).collect()
}

/// Every phase of every point, and the number of rows left out.
pub(super) fn table(summary: &Summary, points: &Points<'_>) -> (PageTable, usize) {
    let estimate = |estimate: Option<Estimate>, unit: Unit| match estimate {
        Some(known) => {
            let (value, uncertainty) = with_uncertainty(&known, unit);
            Cell::Estimate(value, uncertainty)
        }
        None => Cell::Empty,
    };
    let number = |figure: Option<f64>, unit: Unit| {
        figure.map_or(Cell::Empty, |figure| Cell::number(unit.show(figure)))
    };
    let row = |point: &PointSummary, phase: &PhaseOverRuns| {
        vec![
            Cell::text(points.full_name(point)),
            Cell::text(name_with_doubt(phase)),
            Cell::text(when(phase)),
            estimate(phase.requests_per_second, Unit::PerSecond),
            estimate(phase.bytes_per_second, Unit::BytesPerSecond),
            estimate(phase.response_mean_us, Unit::Micros),
            estimate(phase.response_p99_us, Unit::Micros),
            number(phase.response_max_us, Unit::Micros),
            number(
                phase.waiting_requests.map(|requests| requests as f64),
                Unit::Count,
            ),
            number(phase.waiting_oldest_us, Unit::Micros),
            share(&phase.failed_share),
        ]
    };
    let mut rows: Vec<Vec<Cell>> = summary
        .points
        .iter()
        .flat_map(|point| point.phases.iter().map(move |phase| row(point, phase)))
        .collect();
    let left_out = rows.len().saturating_sub(LINES_MAX);
    rows.truncate(LINES_MAX);
    let columns = [
        "point",
        "phase",
        "when",
        "requests",
        "transfer",
        "mean response",
        "p99",
        "slowest",
        "waiting",
        "oldest",
        "failed",
    ];
    (
        PageTable::new("Before, during and after", &columns, rows),
        left_out,
    )
}
