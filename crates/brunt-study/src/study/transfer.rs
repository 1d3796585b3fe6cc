//! Data-transfer efficiency as shown on a terminal, below the table of points: the bytes that links
//! and interfaces carried per useful byte.
//!
//! The rule: a figure that was not measured is replaced by the reason.

use brunt_result::statistics::Estimate;
use brunt_result::summary::Summary;
use brunt_result::transfer::CarriedBytes;

use super::table::width;

/// Width of a row's label, in characters.
const LABEL: usize = 35;
/// Maximum number of points listed; the summary has all.
const POINTS_MAX: usize = 16;

/// The lines to print; empty without a lab or interfaces, and for a lab with a single link, which carries just the
/// load and its headers.
pub(super) fn lines(summary: &Summary) -> Vec<String> {
    let found = summary
        .points
        .iter()
        .filter_map(|point| Some((point, point.transfer.as_ref()?)));
    let found: Vec<_> = found
        .filter(|(_, transfer)| {
            transfer.links.len() > 1 || transfer.all.per_useful_byte_error.is_some()
        })
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "bytes on links, both ways, for each byte read or written".into(),
        row("", ["all links", "w/o idle", "delayed"].map(str::to_string)),
    ];
    for (point, transfer) in found.iter().take(POINTS_MAX) {
        lines.extend(rows(&point.label, &transfer.all, transfer.delayed.as_ref()));
        for phase in &transfer.phases {
            let name = format!("  {}", phase.kind.named(&phase.faults));
            lines.extend(rows(&name, &phase.all, phase.delayed.as_ref()));
        }
    }
    if found.len() > POINTS_MAX {
        lines.push(format!(
            "and {} more points (points[].transfer in summary.json)",
            found.len() - POINTS_MAX
        ));
    }
    if found
        .iter()
        .any(|(_, transfer)| transfer.all.without_idle.is_none())
    {
        lines.push(
            "w/o idle: needs idle traffic; write idle = \"2s\" in [lab], host_idle for interfaces"
                .into(),
        );
    }
    if found.iter().any(|(_, transfer)| transfer.delayed.is_some()) {
        lines.push(
            "delayed: on links that have a delay at any point, such as those between sites".into(),
        );
    }
    lines
}

fn rows(label: &str, all: &CarriedBytes, delayed: Option<&CarriedBytes>) -> Vec<String> {
    let cells = [
        describe(all.per_useful_byte),
        describe(all.without_idle),
        delayed.map_or(String::new(), |delayed| describe(delayed.per_useful_byte)),
    ];
    let mut rows = match label.chars().count() <= LABEL {
        true => vec![row(label, cells)],
        false => vec![label.into(), row("", cells)],
    };
    let [error, idle_error] = [all.per_useful_byte_error, all.without_idle_error]
        .map(|error| error.map_or(String::new(), |error| format!("within {error:.3}")));
    if !error.is_empty() {
        rows.push(row(
            "  each run, by its counters",
            [error, idle_error, String::new()],
        ));
    }
    rows
}

fn row(label: &str, [all, idle, delayed]: [String; 3]) -> String {
    format!("{label:<LABEL$}{all:>15}{idle:>15}{delayed:>15}")
        .trim_end()
        .to_string()
}

fn describe(estimate: Option<Estimate>) -> String {
    estimate.map_or("-".into(), |found| {
        format!("{:.3} {:>5}", found.mean, width(Some(found)))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use brunt_result::degradation::PhaseKind;
    use brunt_result::summary::PointSummary;
    use brunt_result::transfer::{PhaseEfficiency, TransferEfficiency};

    #[test]
    fn link_traffic_is_reported_for_points_and_parts() {
        let mut summary: Summary = serde_json::from_value(serde_json::json!({
            "format": 2, "brunt": "", "complete": true, "points": [],
            "experiment": { "name": "", "repetitions": 4, "seed": 1, "targets": {}, "workloads": {}, "toml": "" },
        }))
        .unwrap();
        let carried = |mean: f64, idle: Option<f64>| CarriedBytes {
            bytes_per_second: Estimate::of(&[1e6, 1.1e6]),
            per_useful_byte: Estimate::of(&[mean, mean * 1.01]),
            without_idle: idle.and_then(|idle| Estimate::of(&[idle, idle])),
            per_useful_byte_error: idle.map(|_| 0.0123),
            without_idle_error: None,
        };
        let names = ["near", "far"].map(String::from);
        let links: BTreeMap<String, CarriedBytes> =
            names.map(|name| (name, carried(1.0, None))).into();
        let phase = PhaseEfficiency {
            kind: PhaseKind::During,
            faults: vec!["killed".into()],
            runs: 2,
            all: CarriedBytes::default(),
            delayed: None,
        };
        let transfer = TransferEfficiency {
            all: carried(2.5, Some(2.25)),
            delayed: Some(carried(1.25, None)),
            links,
            phases: vec![phase],
            runs_left_out: 0,
        };
        let point = |transfer| PointSummary {
            label: "store write".into(),
            transfer,
            ..PointSummary::default()
        };
        summary.points = vec![point(None)];
        assert!(lines(&summary).is_empty());
        summary.points.push(point(Some(transfer)));
        let lines = lines(&summary);
        let has = |parts: &[&str]| {
            lines
                .iter()
                .any(|line| parts.iter().all(|part| line.contains(part)))
        };
        assert!(
            has(&["store write", "2.513", "2.250", "1.256"]) && has(&["during killed", "-"]),
            "{lines:#?}"
        );
        assert!(has(&["each run", "within 0.012"]), "{lines:#?}");
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= super::super::table::WIDTH),
            "{lines:#?}"
        );
    }
}
