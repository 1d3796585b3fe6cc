//! The robustness indexes as shown on a terminal, below the table of points.
//!
//! The rule: a ratio appears with its interval, or is replaced by the reason for its absence.

use brunt_core::units::counted;
use brunt_result::impact::{ImpactIndex, ImpactKind, RobustnessIndexes};
use brunt_result::summary::Summary;

/// Maximum number of listed runs that were left out; the summary has all.
const LEFT_OUT_MAX: usize = 3;
/// Width of a row's label, in characters.
const LABEL: usize = 26;

/// The lines to print; empty if neither clients nor delays are swept.
pub(super) fn lines(summary: &Summary) -> Vec<String> {
    let Some(indexes) = &summary.indexes else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for kind in [ImpactKind::Parallelism, ImpactKind::Latency] {
        lines.extend(of_kind(kind, indexes));
    }
    if !lines.is_empty() {
        lines.push("ratios of mean throughput, [95% interval over clients and rounds]".into());
    }
    if !indexes.evenness.is_empty() {
        lines.push(
            "evenness of clients at once, 1 if all have the same, [95% interval over rounds]"
                .into(),
        );
        for one in &indexes.evenness {
            lines.push(format!("  {}", one.label()));
            lines.push(format!("{:<LABEL$}{}", "", one.describe()));
        }
    }
    lines.extend(indexes.notes.iter().flat_map(|note| folded(note)));
    if !indexes.left_out.is_empty() {
        let runs = counted(indexes.left_out.len(), "run");
        lines.push(format!(
            "{runs} left out of the ratios, with the rest of the round:"
        ));
        lines.extend(
            indexes
                .left_out
                .iter()
                .take(LEFT_OUT_MAX)
                .map(|run| format!("  {}", run.describe())),
        );
    }
    lines
}

fn of_kind(kind: ImpactKind, indexes: &RobustnessIndexes) -> Vec<String> {
    let what = match kind {
        ImpactKind::Parallelism => "X clients at once / one at a time",
        ImpactKind::Latency => "with the delay / without",
    };
    let mut lines = vec![format!("{}: {what}", kind.name())];
    lines.push(format!(
        "{:<LABEL$}{:<27}{}",
        "", "each client", "all together"
    ));
    let (mut last, empty) = (String::new(), lines.len());
    for impact in indexes.impacts.iter().filter(|impact| impact.kind == kind) {
        let of = format!("  {} {}{}", impact.target, impact.workload, axes(impact));
        if of != last {
            lines.push(of.clone());
            last = of;
        }
        lines.push(format!(
            "{:<LABEL$}{:<27}{}",
            label(impact),
            impact.per_client.describe(),
            impact.aggregate.describe()
        ));
    }
    if lines.len() == empty {
        Vec::new()
    } else {
        lines
    }
}

fn axes(impact: &ImpactIndex) -> String {
    let at_once = |axis: &str| axis == brunt_result::impact::CLIENTS_AXIS;
    let others = impact.axes.iter().filter(|(axis, _)| !at_once(axis));
    others
        .map(|(axis, value)| format!(" {axis}={value}"))
        .collect()
}

fn label(impact: &ImpactIndex) -> String {
    let delay = impact
        .link_delay
        .as_ref()
        .map_or(String::new(), |delay| format!(" {delay}"));
    let op = impact.op.map_or(String::new(), |op| format!(" {op}"));
    format!("    X={}{delay}{op}", impact.at_once)
}

/// Wraps a note to the line width.
fn folded(note: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split(' ') {
        let last = lines.last_mut().expect("one from the start");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + word.chars().count() < super::table::WIDTH {
            *last += &format!(" {word}");
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::impact::{ClientEvenness, ImpactRatio, NoInterval, RunLeftOut};
    use brunt_result::statistics::{Estimate, Ratio};
    use std::collections::BTreeMap;

    #[test]
    fn a_ratio_has_its_interval_or_a_reason() {
        let interval = Some(Ratio {
            ratio: 0.5,
            low: 0.45,
            high: 0.56,
        });
        let impact = |kind, at_once, interval, missing| ImpactIndex {
            kind,
            target: "store".into(),
            workload: "write".into(),
            axes: BTreeMap::from([("block_size".into(), "4KiB".into())]),
            op: None,
            at_once,
            link_delay: (kind == ImpactKind::Latency).then(|| "10ms".into()),
            per_client: ImpactRatio {
                interval,
                clients: 4,
                missing,
                by_round: Vec::new(),
            },
            aggregate: ImpactRatio {
                interval,
                clients: 1,
                missing,
                by_round: Vec::new(),
            },
            rounds: 4,
            rounds_left_out: 0,
        };
        let indexes = RobustnessIndexes {
            impacts: vec![
                impact(ImpactKind::Parallelism, 4, interval, None),
                impact(ImpactKind::Latency, 1, None, Some(NoInterval::OneRound)),
            ],
            left_out: vec![RunLeftOut {
                point: "store write".into(),
                repetition: 2,
                absent: vec!["c".into()],
            }],
            notes: vec!["word ".repeat(30).trim_end().into()],
            evenness: vec![ClientEvenness {
                target: "store".into(),
                workload: "write".into(),
                axes: BTreeMap::from([("clients".into(), "4".into())]),
                op: None,
                at_once: 4,
                index: Estimate::of(&[0.75, 0.85]),
            }],
            ..RobustnessIndexes::default()
        };
        let mut summary: Summary = serde_json::from_value(serde_json::json!({
            "format": 2, "brunt": "", "complete": true, "points": [],
            "experiment": { "name": "", "repetitions": 4, "seed": 1, "targets": {}, "workloads": {}, "toml": "" },
        }))
        .unwrap();
        assert!(lines(&summary).is_empty());
        summary.indexes = Some(indexes);
        let lines = lines(&summary);
        let has = |parts: &[&str]| {
            lines
                .iter()
                .any(|line| parts.iter().all(|part| line.contains(part)))
        };
        assert!(
            has(&["X=4", "0.500 [0.450, 0.560]"]) && has(&["store write block_size=4KiB"]),
            "{lines:#?}"
        );
        assert!(has(&["X=1 10ms", "no interval: one round"]), "{lines:#?}");
        assert!(
            has(&["store write, 4 clients"]) && has(&["0.800 [0.165, 1.435]"]),
            "{lines:#?}"
        );
        assert!(
            has(&["1 run left out"]) && has(&["store write, repetition 2: without c"]),
            "{lines:#?}"
        );
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= super::super::table::WIDTH),
            "{lines:#?}"
        );
    }
}
