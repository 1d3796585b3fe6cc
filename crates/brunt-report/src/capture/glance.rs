//! The summary box: how much was captured, the headline figures, and what limits them.

use brunt_core::units::counted;
use brunt_result::capture::{Counters, Finding, IntervalRow, Report};

use super::Source;
use crate::format::{Unit, count, date_time};
use crate::page::{Card, Glance, Notice, Tone};

pub(super) fn glance(report: &Report, source: &Source) -> Glance {
    Glance {
        facts: facts(report),
        cards: vec![
            operations_card(report),
            wire_card(report),
            missing_card(&report.ledger),
        ],
        notices: notices(report, source),
    }
}

fn notices(report: &Report, source: &Source) -> Vec<Notice> {
    let mut notices: Vec<Notice> = source
        .trouble
        .iter()
        .map(|what| Notice::new(Tone::Bad, what.clone()))
        .collect();
    if !report.valid {
        let text = "The ledger does not add up. This is a bug in Brunt; do not trust this report.";
        notices.push(Notice::new(Tone::Bad, text));
    }
    let finding = |finding: &Finding| {
        Notice::new(
            Tone::Warning,
            format!("{} {}", finding.text, finding.advice),
        )
    };
    notices.extend(report.findings.iter().map(finding));
    if notices.is_empty() {
        notices.push(Notice::new(Tone::Good, "No problems found."));
    }
    notices
}

fn wire_card(report: &Report) -> Card {
    let per_second = |amount: u64| amount as f64 / report.duration_s.max(1e-9);
    let data = |get: fn(&IntervalRow) -> u64, what: &str| {
        let bytes = report.intervals.iter().map(get).sum::<u64>();
        let rate = Unit::BytesPerSecond.show(per_second(bytes));
        (what.to_string(), rate)
    };
    Card {
        name: "On the wire".into(),
        value: report.wire_gbit_per_s.map_or_else(
            || "–".into(),
            |rate| format!("{} Gb/s", crate::format::three(rate)),
        ),
        details: vec![
            data(|i| i.read_bytes, "data read"),
            data(|i| i.write_bytes, "data written"),
            ("packets".into(), count(report.ledger.of("packets") as f64)),
        ],
        ..Card::default()
    }
}

fn missing_card(l: &Counters) -> Card {
    let counted = |name: &str| count(l.of(name) as f64);
    let calls = l.of("calls") + l.of("replies_unmatched");
    let share = l.of("replies_unmatched") as f64 / calls.max(1) as f64;
    let holes = format!(
        "{} ({})",
        counted("holes"),
        Unit::Bytes.show(l.of("hole_bytes") as f64)
    );
    Card {
        name: "Missing from this report".into(),
        value: format!("{} of calls", Unit::Share.show(share)),
        details: vec![
            ("packets dropped".into(), counted("packets_dropped")),
            ("holes in streams".into(), holes),
            ("replies without call".into(), counted("replies_unmatched")),
        ],
        ..Card::default()
    }
}

fn operations_card(report: &Report) -> Card {
    let errors: u64 = report.by_operation.iter().map(|row| row.errors).sum();
    let share = Unit::Share.show(errors as f64 / report.operations.max(1) as f64);
    let known = |text: String| {
        if report.is_answered() {
            text
        } else {
            "unknown".to_string()
        }
    };
    Card {
        name: "Operations".into(),
        value: report.operations_per_s.map_or_else(
            || "–".into(),
            |rate| format!("{} per second", count(rate.round())),
        ),
        uncertainty: String::new(),
        details: vec![
            ("all".into(), count(report.operations as f64)),
            (
                "answered with an error".into(),
                known(format!("{} ({})", count(errors as f64), share)),
            ),
            (
                "outstanding, mean · most".into(),
                known(report.profile.as_ref().map_or_else(
                    || "unknown".into(),
                    |profile| {
                        let mean = profile.outstanding_mean;
                        let mean = mean.map_or_else(|| "–".into(), |mean| format!("{mean:.1}"));
                        format!("{mean} · {}", profile.outstanding_max)
                    },
                )),
            ),
        ],
        parts: Vec::new(),
    }
}

/// Facts about the capture and its contents.
fn facts(report: &Report) -> Vec<(String, String)> {
    let connections = report.ledger.of("connections") as usize;
    let mut seen = Vec::new();
    if let (Some(clients), Some(files)) = (&report.clients, &report.files) {
        let clients_count = counted(clients.count as usize, "client");
        seen.push(clients.count_kind.show(clients_count));
        seen.push(files.count_kind.show(counted(files.count as usize, "file")));
    }
    seen.push(counted(connections, "connection"));
    let mut facts = vec![
        (
            "Captured".into(),
            format!(
                "{}, from {}",
                Unit::Seconds.show(report.duration_s),
                date_time((report.start_ns / 1_000_000_000) as i64)
            ),
        ),
        ("Seen".into(), seen.join(", ")),
    ];
    if !report.left_out.is_empty() {
        facts.push(("Analyses left out".into(), report.left_out.join(", ")));
    }
    facts
}
