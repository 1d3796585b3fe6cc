//! The cost of faults: the lines below a point's rows.

use brunt_core::units::counted;
use brunt_result::degradation::{OverRuns, ResponseOverRuns, runs_without};
use brunt_result::noise::NoiseShare;
use brunt_result::statistics::Estimate;
use brunt_result::sticky::StickyCost;
use brunt_result::summary::PointSummary;

use super::cells::half_width;
use super::{WIDTH, recurring};

/// The machine's noise, if it matters, and the cost of each fault.
pub(super) fn costs(point: &PointSummary) -> Vec<String> {
    let noise = NoiseShare::of(point);
    // A job's runs are parts of the group's runs, whose point reports the noise.
    let said = noise
        .filter(|_| point.part_of.is_none())
        .and_then(|noise| noise.describe());
    let mut lines: Vec<String> = said
        .map(|said| format!("  machine: {said}"))
        .into_iter()
        .collect();
    lines.extend(
        point
            .recurring
            .iter()
            .flat_map(|total| recurring::lines(point, total)),
    );
    let sticky = point.sticky.as_ref();
    let is_compared =
        |fault: &&OverRuns| sticky.is_some_and(|cost| cost.faults.contains(&fault.fault));
    for fault in point.degradation.iter().filter(|one| !is_compared(one)) {
        if point.occurrence(&fault.fault).is_none() {
            lines.extend(cost(fault));
        }
    }
    lines.extend(sticky.into_iter().flat_map(sticky_cost));
    lines
}

/// The cost of sticky faults compared with the normal point.
fn sticky_cost(cost: &StickyCost) -> Vec<String> {
    let mut lines = vec![format!("  fault {}, {}:", cost.name(), cost.reference())];
    match &cost.drop {
        Some(drop) => {
            let width =
                half_width(drop).map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
            lines.push(format!(
                "    {:.1}%{width} of the rate lost",
                drop.mean * 100.0
            ));
        }
        None => lines.push("    no round in which both points have a complete run".into()),
    }
    let factor = |factor: &Estimate| Factor(factor.mean, half_width(factor)).to_string();
    if let (Some(mean), Some(p99)) = (&cost.response_mean_factor, &cost.response_p99_factor) {
        lines.push(format!(
            "    response: mean {}, p99 {}",
            factor(mean),
            factor(p99)
        ));
    }
    if let (Some(share), Some(before)) = (cost.failed_share, cost.failed_share_before)
        && share.mean > 0.0
    {
        let (share, before) = (share.mean * 100.0, before.mean * 100.0);
        lines.push(format!(
            "    {share:.2}% of requests failed, {before:.2}% without the fault"
        ));
    }
    lines
}

/// A fault's cost: one line for the rate, one for response times, and one for errors if there were any; long lines
/// are split in two.
pub(super) fn cost(fault: &OverRuns) -> Vec<String> {
    let name: String = fault.fault.chars().take(70).collect();
    let Some(drop) = &fault.drop else {
        return vec![
            format!("  fault {name}:"),
            "    no baseline before the fault".to_string(),
        ];
    };
    let mut lines = vec![format!("  fault {name}:")];
    lines.extend(of_rate(fault, drop));
    if fault.response_mean.baseline_us.is_some() {
        lines.extend(of_response(fault));
    }
    if let (Some(share), Some(before)) = (fault.failed_share, fault.failed_share_before)
        && share.mean > 0.0
    {
        let (share, before) = (share.mean * 100.0, before.mean * 100.0);
        lines.push(format!(
            "    {share:.2}% of requests failed, {before:.2}% before the fault"
        ));
    }
    lines.extend(inconclusive(fault));
    lines
}

/// A cost and when it showed, on one line if both fit.
fn wrapped(what: &str, when: &str) -> Vec<String> {
    let line = format!("    {what}; {when}");
    if line.chars().count() <= WIDTH {
        vec![line]
    } else {
        vec![format!("    {what}"), format!("      {when}")]
    }
}

/// A fault's cost in requests.
fn of_rate(fault: &OverRuns, drop: &Estimate) -> Vec<String> {
    let width = half_width(drop).map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
    let share = format!("{:.1}%{width} of the rate lost", drop.mean * 100.0);
    let when = times(
        (
            &fault.detected_s,
            fault.not_detected,
            fault.detection_inconclusive,
        ),
        (
            &fault.recovered_s,
            fault.not_recovered,
            fault.recovery_inconclusive,
        ),
    );
    // If it is unclear in every run when the rate recovered, the sum until then is unknown too.
    let lost = fault
        .lost_requests
        .map_or(String::new(), |lost| format!(", {:.0} requests", lost.mean));
    wrapped(&format!("{share}{lost}"), &when)
}

/// A fault's cost in response times.
fn of_response(fault: &OverRuns) -> Vec<String> {
    let factor = |of: &ResponseOverRuns| {
        of.factor
            .map(|factor| format!("{}", Factor(factor.mean, half_width(&factor))))
    };
    let (mean, p99) = (&fault.response_mean, &fault.response_p99);
    let when = times(
        (
            &mean.detected_s,
            mean.not_detected,
            mean.detection_inconclusive,
        ),
        (
            &mean.recovered_s,
            mean.not_recovered,
            mean.recovery_inconclusive,
        ),
    );
    let wait = fault.excess_wait_s.map_or(String::new(), |wait| {
        let digits = if wait.mean.abs() < 1000.0 { 3 } else { 0 };
        format!(", {:.digits$} s of excess wait", wait.mean)
    });
    let what = match (factor(mean), factor(p99)) {
        (Some(mean), Some(p99)) => format!("response: mean {mean}, p99 {p99}{wait}"),
        _ => "response: no request was due during the fault".to_string(),
    };
    wrapped(&what, &when)
}

/// Why some of a fault's figures are missing, and what would help.
fn inconclusive(fault: &OverRuns) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(short) = fault.too_short {
        let runs = counted(fault.recovery_too_short, "run");
        lines.push(format!(
            "    inconclusive: {runs} too short after the fault to judge recovery;"
        ));
        lines.push(format!("      {}", short.advice()));
    }
    if let Some(times) = fault.intervals_wanted() {
        let hidden = fault.noticeable_drop.map_or("any drop".into(), |drop| {
            format!("drops under {:.0}%", drop * 100.0)
        });
        lines.push(format!(
            "    inconclusive: noise hides {hidden}; it would take longer phases,"
        ));
        lines.push(format!(
            "      about {times:.0} times as many intervals before, during and after"
        ));
    }
    lines
}

/// The factor by which a time grew, and the half-width of its interval.
struct Factor(f64, Option<f64>);

impl std::fmt::Display for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Factor(factor, half) = *self;
        let digits = if factor < 100.0 { 2 } else { 0 };
        write!(f, "x {factor:.digits$}")?;
        half.map_or(Ok(()), |half| write!(f, " ± {half:.digits$}"))
    }
}

/// The time in seconds, the number of runs in which the event never happened, and the number in which noise hid it.
type Seen<'a> = (&'a Option<Estimate>, usize, usize);

/// When a figure showed a fault, and when it recovered.
fn times(seen: Seen<'_>, back: Seen<'_>) -> String {
    let answer = |what: &str, (seconds, never, open): Seen<'_>| match (seconds, never, open) {
        (Some(seconds), 0, 0) => format!("{what} after {:.2} s", seconds.mean),
        (Some(seconds), never, open) => {
            format!(
                "{what} after {:.2} s ({})",
                seconds.mean,
                runs_without(never, open)
            )
        }
        (None, 0, 1..) => format!("{what}: inconclusive"),
        (None, _, 0) => format!("not {what}"),
        (None, _, open) => format!("not {what} (inconclusive in {open})"),
    };
    format!("{}, {}", answer("seen", seen), answer("back", back))
}
