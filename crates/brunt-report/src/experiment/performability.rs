//! Expected figures over years of failures and repairs: a table of the states of each point's system, and the figures
//! computed from them.
//!
//! The rule: states that were not measured are shown as such, and never as zero.

use brunt_core::units::counted;
use brunt_result::performability::{
    FailingComponent, Performability, SystemState, part_of_year, share_in_words,
};
use brunt_result::require::RequirementVerdict;
use brunt_result::statistics::Estimate;
use brunt_result::summary::Summary;

use super::points::{Points, with_uncertainty};
use crate::format::{Unit, three};
use crate::page::{Block, Cell, PageTable, Section, Tone};

/// Maximum number of points; `summary.json` has all, and the page says so.
const POINTS_MAX: usize = 24;
/// Maximum number of states in a table.
const STATES_MAX: usize = 64;

const COLUMNS: [&str; 7] = [
    "state",
    "share of time",
    "in a year",
    "rate",
    "mean response",
    "p99",
    "service",
];

/// `None` without expectations.
pub(super) fn section(summary: &Summary, points: &Points<'_>) -> Option<Section> {
    let found = summary
        .points
        .iter()
        .filter_map(|point| Some((points.full_name(point), point.performability.as_ref()?)));
    let found: Vec<(String, &Performability)> = found.collect();
    if found.is_empty() {
        return None;
    }
    let mut section = Section::new("Over years of failures and repairs");
    section.prose(
        "What is expected of the system if its components fail and are repaired as the experiment \
         specifies: each state's measured figures, weighted by the share of time that the system spends in it \
         (performability: J. F. Meyer, IEEE Transactions on Computers 29(8), 1980). Components fail \
         independently, after exponentially distributed times. The normal state was measured before all faults, \
         the others during exactly their faults. Rates and times are means over runs with 95 % intervals; times \
         to failure and to repair are taken as exact. The service is available in states whose whole interval is \
         on the right side of the threshold (A. Brown and D. Patterson, USENIX ATC 2000).",
    );
    for (name, one) in found.iter().take(POINTS_MAX) {
        section.blocks.push(Block::Heading(name.clone()));
        section.blocks.push(Block::Facts(facts(one)));
        section.table(table(one));
        if one.states.len() > STATES_MAX {
            section.prose(format!(
                "The {STATES_MAX} most likely states of {}; summary.json has all (points[].performability).",
                one.states.len()
            ));
        }
    }
    if found.len() > POINTS_MAX {
        section.prose(format!(
            "The first {POINTS_MAX} of {} points; summary.json has all (points[].performability).",
            found.len()
        ));
    }
    Some(section)
}

/// The expected figures, and what they were computed from.
fn facts(found: &Performability) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut add = |label: &str, text: String| facts.push((label.to_string(), text));
    let shown = |estimate: &Estimate, unit| {
        let (value, uncertainty) = with_uncertainty(estimate, unit);
        format!("{value} {uncertainty}").trim_end().to_string()
    };
    add(
        "Expected rate",
        found.requests_per_second.as_ref().map_or_else(
            || "unknown: no run has all measured states".into(),
            |rate| shown(rate, Unit::PerSecond),
        ),
    );
    if let Some(mean) = &found.response_mean_us {
        add("Expected mean response", shown(mean, Unit::Micros));
    }
    if let (Some(level), Some(share)) = (&found.system.threshold, found.available) {
        let year = part_of_year(1.0 - share.at_least);
        let text = format!(
            "{} of the time; missed for at most {year} a year",
            share.describe()
        );
        add(&format!("Time with {level}"), text);
    }
    if found.not_measured > 0.0 {
        let share = share_in_words(found.not_measured);
        let least = found.requests_per_second_least.as_ref();
        let least = least.map_or(String::new(), |least| {
            format!(
                "; expected rates and times cover the rest. If nothing is served in unmeasured states, {} remain",
                shown(least, Unit::PerSecond)
            )
        });
        add("Not measured", format!("{share} of the time{least}"));
    }
    if found.runs_left_out > 0 {
        let runs = counted(found.runs_left_out, "run");
        add(
            "Left out",
            format!("{runs} without one of the measured states"),
        );
    }
    for component in &found.system.components {
        add(&format!("Component {}", component.name), rates(component));
    }
    facts
}

/// Returns, for example, `8 units; fails after 137 years on average, repaired in 12.0 h, at most 2 at once`.
fn rates(component: &FailingComponent) -> String {
    let mut text = format!(
        "{}; fails after {} on average, repaired in {}",
        counted(component.units as usize, "unit"),
        long(component.mttf_s),
        long(component.mttr_s)
    );
    if component.repairs_at_once < component.units {
        text += &format!(", at most {} at once", component.repairs_at_once);
    }
    text + &format!("; faults: {}", component.faults.join(", "))
}

/// A duration that may be years.
fn long(seconds: f64) -> String {
    let units = [
        (365.25 * 86_400.0, "years"),
        (86_400.0, "days"),
        (3600.0, "h"),
    ];
    let fits = units.iter().find(|(length, _)| seconds >= 2.0 * length);
    match fits {
        Some((length, unit)) => format!("{} {unit}", three(seconds / length)),
        None => Unit::Seconds.show(seconds),
    }
}

fn table(found: &Performability) -> PageTable {
    let estimate = |estimate: Option<Estimate>, unit: Unit| match estimate {
        Some(known) => {
            let (value, uncertainty) = with_uncertainty(&known, unit);
            Cell::Estimate(value, uncertainty)
        }
        None => Cell::Empty,
    };
    let row = |state: &SystemState| {
        let measured = state.measured.as_ref();
        vec![
            Cell::text(state.name()),
            Cell::number(share_in_words(state.probability)),
            Cell::number(part_of_year(state.probability)),
            match measured {
                Some(figures) => estimate(Some(figures.requests_per_second), Unit::PerSecond),
                None => Cell::text("not measured"),
            },
            estimate(
                measured.and_then(|figures| figures.response_mean_us),
                Unit::Micros,
            ),
            estimate(
                measured.and_then(|figures| figures.response_p99_us),
                Unit::Micros,
            ),
            match state.service {
                Some(RequirementVerdict::Met) => Cell::Verdict(Tone::Good, "available".into()),
                Some(RequirementVerdict::Missed) => Cell::Verdict(Tone::Bad, "unavailable".into()),
                Some(RequirementVerdict::Undecided) => {
                    Cell::Verdict(Tone::Note, "undecided".into())
                }
                None => Cell::Empty,
            },
        ]
    };
    let rows = found.states.iter().take(STATES_MAX).map(row);
    PageTable::new("States, most likely first", &COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::degradation::{PhaseFigures, PhaseKind};
    use brunt_result::performability::FailingSystem;
    use brunt_result::summary::PointSummary;

    /// A state that was not measured has a row with its share of the time, which says so.
    #[test]
    fn expectations_have_a_table_and_their_assumptions() {
        let text = r#"{ "format": 2, "brunt": "", "complete": true, "points": [],
            "experiment": { "name": "", "repetitions": 4, "seed": 1, "targets": {}, "workloads": {}, "toml": "" } }"#;
        let mut summary: Summary = serde_json::from_str(text).expect("a summary");
        assert!(section(&summary, &Points::of(&summary)).is_none());
        let disks = FailingComponent {
            name: "disks".into(),
            faults: vec!["dead disk".into()],
            units: 4,
            mttf_s: 4.32e9,
            mttr_s: 43_200.0,
            repairs_at_once: 1,
        };
        let system = FailingSystem {
            components: vec![disks],
            threshold: Some("iops above 500".parse().expect("a threshold")),
        };
        let phase = |faults: &[&str], rate: f64| PhaseFigures {
            kind: match faults.is_empty() {
                true => PhaseKind::Before,
                false => PhaseKind::During,
            },
            faults: faults.iter().map(|fault| fault.to_string()).collect(),
            intervals: 9,
            requests_per_second: rate,
            ..PhaseFigures::default()
        };
        let run = |rate: f64| [phase(&[], rate), phase(&["dead disk"], rate / 4.0)];
        let (first, second) = (run(1000.0), run(1010.0));
        summary.points = vec![PointSummary {
            label: "array reads".into(),
            target: "array".into(),
            workload: "reads".into(),
            performability: Some(Performability::of(&system, &[&first, &second])),
            ..PointSummary::default()
        }];
        let section = section(&summary, &Points::of(&summary)).expect("a section");
        let page = format!("{:?}", section.blocks);
        for part in [
            "4 units; fails after 137 years on average, repaired in 12 h, at most 1 at once; faults: dead disk",
            "more failures of disks",
            "not measured",
            "Time with iops above 500",
            "unavailable",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
