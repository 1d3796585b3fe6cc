//! Injected faults and their effects on the rate and on response times: drop, lost requests, time to detection and
//! recovery; and failed requests.

use brunt_core::units::counted;
use brunt_result::degradation::{ALPHA, BACK, HOLD, NOTICEABLE, OverRuns, TooShort, runs_without};
use brunt_result::statistics::Estimate;
use brunt_result::summary::{FaultSummary, RunSummary, Summary};

use super::points::{Points, with_uncertainty};
use super::{phases, recurring};
use crate::chart::ShadedSpan;
use crate::format::{Unit, count, three};
use crate::page::{Block, Cell, Notice, PageTable, Section, Tone};

/// `None` without faults.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let mut section = Section::new("Faults");
    if let Some(note) = summary.judged_note() {
        section
            .blocks
            .push(Block::Notices(vec![Notice::new(Tone::Note, note)]));
    }
    by_phase(summary, points, &mut section);
    costs(summary, points, &mut section);
    recurring::add(summary, points, &mut section);
    left_open(summary, points, &mut section);
    responses(summary, points, &mut section);
    let proofs = proofs(summary, points);
    if proofs.is_empty() && section.blocks.is_empty() {
        return None;
    }
    let columns = [
        "point",
        "run",
        "fault",
        "effect",
        "start",
        "proven by",
        "end",
        "gone by",
    ];
    let caption = format!("All {} injections and their proofs", proofs.len());
    section.table(PageTable::new(caption, &columns, proofs).folded());
    Some(section)
}

/// Adds the table of the figures before, during and after faults, if there are any.
fn by_phase(summary: &Summary, points: &Points<'_>, section: &mut Section) {
    if !phases::any(summary) {
        return;
    }
    let (table, left_out) = phases::table(summary, points);
    section.table(table);
    let more = match left_out {
        0 => String::new(),
        more => format!(" Only the first lines are shown; {more} more are in summary.json."),
    };
    section.prose(format!(
        "Means over runs with 95 % confidence intervals. Before: the level that the cost of a fault \
         is measured against. After: from the end of the last fault to the end of the run, including recovery. \
         Response times cover requests that completed in a phase, and requests that were due by its end and not \
         answered, with their age at that time. Slowest, waiting (requests without an answer at the phase's end) \
         and oldest (how long the oldest of them had waited) are the highest values of all runs.{more}"
    ));
}

/// Adds the table of the faults' effects on the rate of requests, if there are any.
fn costs(summary: &Summary, points: &Points<'_>, section: &mut Section) {
    let mut rows = Vec::new();
    for point in &summary.points {
        rows.extend(
            point
                .degradation
                .iter()
                .map(|fault| cost(points.full_name(point), fault)),
        );
    }
    if rows.is_empty() {
        return;
    }
    let columns = [
        "point",
        "fault",
        "rate before",
        "drop",
        "requests lost",
        "seen after",
        "recovered after",
    ];
    section.table(PageTable::new("Effect of each fault", &columns, rows));
    section.prose(format!(
        "Drop: lost share of the rate that would have been usual during the fault. Requests lost: \
         until recovery. Seen after: time until the end of the first interval that the fault affected. Recovered \
         after: time from the end of the fault until less than {} was missing for at least {} s. Whether there \
         was an effect is decided for all runs together, using models of the noise of their intervals ({} false \
         alarms). Never: a drop of {} would have been detected. Values are means over runs with 95 % confidence \
         intervals; runs without an answer are counted separately.",
        Unit::Share.show(BACK),
        HOLD.as_secs(),
        Unit::Share.show(ALPHA),
        Unit::Share.show(NOTICEABLE),
    ));
}

/// Adds a paragraph for each fault whose effect or recovery some runs leave open.
fn left_open(summary: &Summary, points: &Points<'_>, section: &mut Section) {
    for point in &summary.points {
        let wanted = point
            .degradation
            .iter()
            .filter_map(|fault| Some((fault, fault.intervals_wanted()?)));
        for (fault, times) in wanted {
            section.prose(inconclusive(&points.full_name(point), fault, times));
        }
        let short = point
            .degradation
            .iter()
            .filter_map(|fault| Some((fault, fault.too_short?)));
        for (fault, short) in short {
            section.prose(too_short(&points.full_name(point), fault, short));
        }
    }
}

/// A row for each injection in each run.
fn proofs(summary: &Summary, points: &Points<'_>) -> Vec<Vec<Cell>> {
    summary
        .points
        .iter()
        .flat_map(|point| point.runs.iter().map(move |run| (point, run)))
        .flat_map(|(point, run)| run.faults.iter().map(move |fault| (point, run, fault)))
        .map(|(point, run, fault)| proof(points.full_name(point), run, fault))
        .collect()
}

/// Adds the table of the faults' effects on response times and requests, as far as they are known.
fn responses(summary: &Summary, points: &Points<'_>, section: &mut Section) {
    let mut rows = Vec::new();
    for point in &summary.points {
        let known = point
            .degradation
            .iter()
            .filter(|fault| fault.response_mean.baseline_us.is_some());
        rows.extend(known.map(|fault| response(points.full_name(point), fault)));
    }
    if rows.is_empty() {
        return;
    }
    let columns = [
        "point",
        "fault",
        "mean before",
        "mean during",
        "p99 before",
        "p99 during",
        "excess wait",
        "seen after",
        "recovered after",
        "failed",
    ];
    section.table(PageTable::new(
        "Effect of each fault on response times",
        &columns,
        rows,
    ));
    section.prose(
        "During: ratio to the time before the fault, for the mean and the p99 of all requests that \
         completed during the fault or were due by its end; unanswered ones count with their age at its end. \
         Excess wait: total time that requests waited beyond the mean before the fault, until recovery; requests \
         that never completed are not included. Seen and recovered refer to the mean of each interval, which \
         includes requests that are waiting at its end. Failed: share of requests that failed during the fault.",
    );
}

pub(super) fn estimate(estimate: &Option<Estimate>, unit: Unit) -> Cell {
    let Some(known) = estimate else {
        return Cell::Empty;
    };
    let (value, uncertainty) = with_uncertainty(known, unit);
    Cell::Estimate(value, uncertainty)
}

/// Formats a share with its absolute half-width; a relative one would mean nothing near zero.
pub(super) fn share(share: &Option<Estimate>) -> Cell {
    share.map_or(Cell::Empty, |share| {
        let half = share.high.map_or(String::new(), |high| {
            format!("± {}", three((high - share.mean) * 100.0))
        });
        Cell::Estimate(Unit::Share.show(share.mean), half)
    })
}

/// Explains what the noise hid, and what would reveal it.
fn inconclusive(point: &str, fault: &OverRuns, times: f64) -> String {
    let hidden = fault
        .noticeable_drop
        .map_or("any drop".to_string(), |drop| {
            format!("a drop of less than {}", Unit::Share.show(drop))
        });
    format!(
        "{point}, {}: inconclusive in {} (seen) and {} (recovered). The rate before the fault was so noisy that {hidden} cannot be detected. About {} times as many intervals before, during and after the fault would be needed: use a longer run with a later and longer fault, or a quieter machine.",
        fault.fault,
        counted(fault.detection_inconclusive, "run"),
        counted(fault.recovery_inconclusive, "run"),
        count(times),
    )
}

/// Reports runs that ended, or reached the next fault, too soon to show whether they recovered.
fn too_short(point: &str, fault: &OverRuns, short: TooShort) -> String {
    format!(
        "{point}, {}: {} went on for less than a second after the fault, or after the rate recovered, \
         which is too short to judge recovery. To judge it, {}.",
        fault.fault,
        counted(fault.recovery_too_short, "run"),
        short.advice()
    )
}

/// Formats a time in seconds, and the number of runs in which the event never happened or was hidden by noise.
pub(super) fn answer(seconds: &Option<Estimate>, never: usize, open: usize) -> Cell {
    match (seconds, never, open) {
        (None, 0, 0) => Cell::Empty,
        (None, 0, _) => Cell::Verdict(Tone::Note, "inconclusive".into()),
        (None, _, 0) => Cell::Verdict(Tone::Warning, "never".into()),
        (None, never, open) => Cell::Verdict(
            Tone::Warning,
            format!("never in {never}, inconclusive in {open}"),
        ),
        (Some(_), 0, 0) => estimate(seconds, Unit::Seconds),
        (Some(seconds), ..) => {
            Cell::Estimate(Unit::Seconds.show(seconds.mean), runs_without(never, open))
        }
    }
}

fn response(point: String, fault: &OverRuns) -> Vec<Cell> {
    let during = |factor: &Option<Estimate>| match factor {
        Some(known) => {
            let (value, uncertainty) = with_uncertainty(known, Unit::Count);
            Cell::Estimate(format!("× {value}"), uncertainty)
        }
        None => Cell::Verdict(Tone::Warning, "no answer".into()),
    };
    let (mean, p99) = (&fault.response_mean, &fault.response_p99);
    vec![
        Cell::text(point),
        Cell::text(&fault.fault),
        estimate(&mean.baseline_us, Unit::Micros),
        during(&mean.factor),
        estimate(&p99.baseline_us, Unit::Micros),
        during(&p99.factor),
        estimate(&fault.excess_wait_s, Unit::Seconds),
        answer(
            &mean.detected_s,
            mean.not_detected,
            mean.detection_inconclusive,
        ),
        answer(
            &mean.recovered_s,
            mean.not_recovered,
            mean.recovery_inconclusive,
        ),
        share(&fault.failed_share),
    ]
}

fn cost(point: String, fault: &OverRuns) -> Vec<Cell> {
    vec![
        Cell::text(point),
        Cell::text(&fault.fault),
        estimate(&fault.baseline, Unit::PerSecond),
        share(&fault.drop),
        estimate(&fault.lost_requests, Unit::Count),
        answer(
            &fault.detected_s,
            fault.not_detected,
            fault.detection_inconclusive,
        ),
        answer(
            &fault.recovered_s,
            fault.not_recovered,
            fault.recovery_inconclusive,
        ),
    ]
}

fn proof(point: String, run: &RunSummary, fault: &FaultSummary) -> Vec<Cell> {
    let at = |at: Option<f64>| at.map_or(Cell::Empty, |at| Cell::number(Unit::Seconds.show(at)));
    let mut shown = fault.shown_by.clone();
    for gap in &fault.gaps {
        let [from, until] = [gap.from_s, gap.until_s].map(|at| Unit::Seconds.show(at));
        shown += &format!(
            "; lost at {from} with its target, injected again at {until}: {}",
            gap.shown_by
        );
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

/// The shaded spans of a run's faults on timelines that end at `end_s`; a fault that was lost in between has several
/// spans.
pub(super) fn spans(run: &RunSummary, end_s: f64) -> Vec<ShadedSpan> {
    spans_of_runs(&[run], end_s)
}

/// The shaded spans for several runs of a point in one chart, each fault from its earliest start in any run to its
/// latest end.
pub(super) fn spans_of_runs(runs: &[&RunSummary], end_s: f64) -> Vec<ShadedSpan> {
    let mut found: Vec<(usize, f64, f64)> = Vec::new();
    for run in runs {
        let theirs = bands(run, end_s);
        let same_faults = theirs
            .iter()
            .map(|band| band.0)
            .eq(found.iter().map(|band| band.0));
        if same_faults {
            let both = found.iter_mut().zip(theirs);
            both.for_each(|(band, other)| {
                *band = (band.0, band.1.min(other.1), band.2.max(other.2))
            });
        } else {
            // This is the first run, or it has more spans because it temporarily lost a fault: add all of its spans.
            found.extend(theirs);
        }
    }
    let label = |index: usize| {
        let mut faults = runs.iter().filter_map(|run| run.faults.get(index));
        let first = faults.next()?;
        // Runs may differ in details such as a process ID or a port.
        let alike = faults.all(|fault| fault.what == first.what);
        Some(if alike {
            format!("{}: {}", first.name, first.what)
        } else {
            first.name.clone()
        })
    };
    let span = |(index, from, to)| {
        Some(ShadedSpan {
            from,
            to,
            label: label(index)?,
        })
    };
    found.into_iter().filter_map(span).collect()
}

/// The times at which a run's faults were present, each with the fault's index.
fn bands(run: &RunSummary, end_s: f64) -> Vec<(usize, f64, f64)> {
    let mut bands = Vec::new();
    for (index, fault) in run.faults.iter().enumerate() {
        let mut from = fault.start_s.max(0.0);
        let ends = fault.gaps.iter().map(|gap| (gap.from_s, gap.until_s));
        for (to, next) in ends.chain([(fault.end_s.unwrap_or(end_s), end_s)]) {
            bands.push((index, from, to.min(end_s)));
            from = next.max(0.0);
        }
    }
    bands.retain(|(_, from, to)| from < to);
    bands
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::degradation::ResponseOverRuns;

    /// If noise hides an answer, its cell says so instead of zero or never, and a notice says what would help.
    #[test]
    fn noise_is_reported() {
        let fault = OverRuns {
            fault: "burst".into(),
            drop: Estimate::of(&[0.2, 0.2]),
            detection_inconclusive: 2,
            not_recovered: 1,
            recovery_inconclusive: 1,
            noticeable_drop: Some(0.6),
            ..OverRuns::default()
        };
        let row: Vec<String> = cost("point".into(), &fault)
            .iter()
            .map(|cell| format!("{cell:?}"))
            .collect();
        assert!(row[5].contains("\"inconclusive\""), "{row:?}");
        assert!(row[6].contains("never in 1, inconclusive in 1"), "{row:?}");
        let said = inconclusive("point", &fault, fault.intervals_wanted().unwrap());
        assert!(
            said.contains("less than 60 %") && said.contains("About 10 times"),
            "{said}"
        );
        assert_eq!(OverRuns::default().intervals_wanted(), None);
    }

    /// Every column of the response time table has its cell. A fault during which no request was answered, and a run
    /// that did not recover, are described in words.
    #[test]
    fn response_times_in_a_row() {
        let known = |mean: f64| Estimate::of(&[mean, mean]);
        let slow = ResponseOverRuns {
            baseline_us: known(100.0),
            factor: known(2.5),
            detected_s: known(0.5),
            not_recovered: 2,
            ..ResponseOverRuns::default()
        };
        let fault = OverRuns {
            fault: "burst".into(),
            response_mean: slow,
            excess_wait_s: known(1.25),
            failed_share: known(0.5),
            ..OverRuns::default()
        };
        let row: Vec<String> = response("point".into(), &fault)
            .iter()
            .map(|cell| format!("{cell:?}"))
            .collect();
        let expected = [
            "point",
            "burst",
            "100 µs",
            "× 2.5",
            "Empty",
            "no answer",
            "1.25",
            "0.5",
            "never",
            "50 %",
        ];
        assert_eq!(row.len(), expected.len());
        for (cell, said) in row.iter().zip(expected) {
            assert!(cell.contains(said), "{said} in {cell}");
        }
    }
}
