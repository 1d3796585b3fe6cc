//! The effect of intermittent faults, over all of their occurrences.

use brunt_core::units::counted;
use brunt_result::recurring::RecurringOverRuns;
use brunt_result::summary::Summary;

use super::faults::{answer, estimate, share};
use super::points::Points;
use crate::format::{Unit, count};
use crate::page::{Cell, PageTable, Section};

/// Adds the table, if there are intermittent faults.
pub(super) fn add(summary: &Summary, points: &Points<'_>, section: &mut Section) {
    let mut rows = Vec::new();
    for point in &summary.points {
        let name = points.full_name(point);
        rows.extend(point.recurring.iter().map(|total| row(name.clone(), total)));
    }
    if rows.is_empty() {
        return;
    }
    let columns = [
        "point",
        "fault",
        "times in a run",
        "share of time",
        "drop",
        "requests lost",
        "excess wait",
        "seen",
        "recovered after",
    ];
    let caption = "Effect of intermittent faults, all occurrences together";
    section.table(PageTable::new(caption, &columns, rows));
    section.prose(
        "Drop: mean over the occurrences, weighted by their durations. Requests lost and excess wait: \
         totals of a run; empty if it is unknown for an occurrence whether the run recovered. Seen: occurrences \
         with a detected effect, in all runs. Recovered after: mean over the occurrences that recovered. Means \
         over runs with 95 % confidence intervals.",
    );
}

fn row(point: String, total: &RecurringOverRuns) -> Vec<Cell> {
    let all = total.runs * total.occurrences as usize;
    let mut seen = format!("{} of {all}", total.detected);
    if total.detection_inconclusive > 0 {
        seen += &format!(", inconclusive in {}", total.detection_inconclusive);
    }
    let unknown = || {
        let runs = counted(total.lost_unknown, "run");
        Cell::text(format!("not known in {runs}"))
    };
    let lost = match total.lost_requests {
        None if total.lost_unknown > 0 => unknown(),
        lost => estimate(&lost, Unit::Count),
    };
    vec![
        Cell::text(point),
        Cell::text(&total.fault),
        Cell::number(count(f64::from(total.occurrences))),
        share(&total.time_share),
        share(&total.drop),
        lost,
        estimate(&total.excess_wait_s, Unit::Seconds),
        Cell::text(seen),
        answer(
            &total.recovered_s,
            total.not_recovered,
            total.recovery_inconclusive,
        ),
    ]
}
