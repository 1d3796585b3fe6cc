//! The lines about intermittent faults: their times in the plan and their cost in the table, first for all
//! occurrences together, then for each.

use brunt_core::units::counted;
use brunt_result::degradation::OverRuns;
use brunt_result::recurring::RecurringOverRuns;
use brunt_result::statistics::Estimate;
use brunt_result::summary::PointSummary;

use crate::fault::FaultEntry;

/// Maximum number of occurrences shown one by one; summary.json and the report have all.
const SHOWN: usize = 8;

/// The times of an intermittent fault; `faults` begins with its occurrences.
pub(in crate::study) fn planned(faults: &[FaultEntry]) -> String {
    let count = faults.first().and_then(|first| first.common.occurrence);
    let count = count.map_or(0, |one| one.count as usize);
    let all = &faults[..count.min(faults.len())];
    let durations = all.iter().map(|one| one.common.lasts);
    let has_one_duration = durations.clone().all(|lasts| lasts == all[0].common.lasts);
    let time = |one: &FaultEntry| {
        let at = one.common.at.unwrap_or_default();
        match one.common.lasts.filter(|_| !has_one_duration) {
            Some(lasts) => format!("{at} for {lasts}"),
            None => at.to_string(),
        }
    };
    let mut times: Vec<String> = all.iter().take(SHOWN).map(time).collect();
    if count > SHOWN {
        times.push(format!("{} more", count - SHOWN));
    }
    let lasts = durations.flatten().next().filter(|_| has_one_duration);
    let lasts = lasts.map_or(String::new(), |lasts| format!(", each for {lasts}"));
    format!(
        "{} in a run: at {}{lasts}",
        counted(count, "time"),
        times.join(", ")
    )
}

/// The cost of an intermittent fault.
pub(super) fn lines(point: &PointSummary, total: &RecurringOverRuns) -> Vec<String> {
    let time = total.time_share.map_or(String::new(), |share| {
        format!(", {:.1}% of the time", share.mean * 100.0)
    });
    let times = counted(total.occurrences as usize, "time");
    let mut lines = vec![format!("  fault {}, {times} in a run{time}:", total.fault)];
    match total.drop {
        Some(drop) => lines.push(format!("    {}", sum(total, &drop))),
        None => lines.push("    no run has a baseline before the fault".to_string()),
    }
    lines.push(format!("    {}", answers(total)));
    let is_of_it = |fault: &&OverRuns| {
        let occurrence = point.occurrence(&fault.fault);
        occurrence.is_some_and(|one| one.fault == total.fault)
    };
    let all: Vec<&OverRuns> = point.degradation.iter().filter(is_of_it).collect();
    lines.extend(all.iter().take(SHOWN).map(|one| each(point, one)));
    if all.len() > SHOWN {
        lines.push(format!("    {} more are in the report", all.len() - SHOWN));
    }
    lines
}

/// The combined cost of all occurrences in a run.
fn sum(total: &RecurringOverRuns, drop: &Estimate) -> String {
    let half = super::cells::half_width(drop)
        .map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
    let mut text = format!("together: {:.1}%{half} of the rate lost", drop.mean * 100.0);
    if let Some(lost) = total.lost_requests {
        text += &format!(", {:.0} requests in a run", lost.mean);
    }
    if let Some(wait) = total.excess_wait_s {
        text += &format!(", {:.3} s of excess wait", wait.mean);
    }
    if total.lost_unknown > 0 {
        let runs = counted(total.lost_unknown, "run");
        text += &format!("; requests lost unknown in {runs}, where a recovery is undetermined");
    }
    text
}

/// The number of occurrences in which the effect was detected, and whether and how fast the rate recovered.
fn answers(total: &RecurringOverRuns) -> String {
    let all = total.runs * total.occurrences as usize;
    let mut text = format!("seen in {} of {all} occurrences", total.detected);
    if total.detection_inconclusive > 0 {
        text += &format!(", inconclusive in {}", total.detection_inconclusive);
    }
    if let Some(back) = total.recovered_s {
        text += &format!("; back after {:.2} s", back.mean);
    }
    if total.not_recovered > 0 {
        text += &format!("; not back after {}", total.not_recovered);
    }
    if total.recovery_inconclusive > 0 {
        text += &format!("; recovery inconclusive in {}", total.recovery_inconclusive);
    }
    text
}

fn each(point: &PointSummary, fault: &OverRuns) -> String {
    let number = point.occurrence(&fault.fault).map_or(0, |one| one.number);
    let Some(drop) = fault.drop else {
        return format!("    occurrence {number}: no baseline");
    };
    let mut text = format!(
        "    occurrence {number}: {:.1}% of the rate lost",
        drop.mean * 100.0
    );
    if let Some(lost) = fault.lost_requests {
        text += &format!(", {:.0} requests", lost.mean);
    }
    match fault.detected_s {
        Some(seen) => text += &format!("; seen after {:.2} s", seen.mean),
        None if fault.detection_inconclusive > 0 => text += "; seen: inconclusive",
        None => text += "; not seen",
    }
    match fault.recovered_s {
        Some(back) => text += &format!(", back after {:.2} s", back.mean),
        None if fault.recovery_inconclusive > 0 => text += ", back: inconclusive",
        None => text += ", not back",
    }
    text
}
