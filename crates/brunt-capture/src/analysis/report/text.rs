//! Formats a report for people, at most 80 columns wide. Printed by `brunt analyze` and `brunt capture`. The
//! one rule: it uses only the rows of a report and the names of its counters.

use std::fmt::Write;

use brunt_core::units::format_size;

use brunt_result::capture::{Counters, LatencyRow, Ranking, Report};
use brunt_wire::net::TUNNELS_MAX;

use super::line::{shorten, time, wrap};
use super::sections;
use crate::dissect::OWN_COUNTERS;

/// Tunnel counters and their display names.
const TUNNELS: [(&str, &str); 9] = [
    ("tunnels_vxlan", "VXLAN"),
    ("tunnels_geneve", "GENEVE"),
    ("tunnels_gre", "GRE"),
    ("tunnels_erspan_1", "ERSPAN I"),
    ("tunnels_erspan_2", "ERSPAN II"),
    ("tunnels_erspan_3", "ERSPAN III"),
    ("tunnels_ip_in_ip", "IP in IP"),
    ("tunnels_mpls", "MPLS"),
    ("tunnels_pppoe", "PPPoE"),
];
/// Lines per ranking.
const PRINTED: usize = 5;

/// Formats a report, at most 80 columns wide.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let o = &mut out;
    if !report.valid {
        let _ = writeln!(
            o,
            "INVALID: the ledger does not add up; please report this bug in brunt.\n"
        );
    }
    let (rate, wire) = (
        known(report.operations_per_s, |rate| format!("{rate:.0}")),
        known(report.wire_gbit_per_s, |rate| format!("{rate:.3}")),
    );
    let _ = writeln!(
        o,
        "{} operations in {:.3} s: {rate} per second, {wire} Gb/s on the wire",
        report.operations, report.duration_s
    );
    if !report.left_out.is_empty() {
        let names = report.left_out.join(", ");
        let note = format!("left out: {names}, and findings that need them");
        wrap(o, "", &note);
    }
    let _ = writeln!(o, "\nFindings");
    if report.findings.is_empty() {
        let _ = writeln!(o, "  none");
    }
    for finding in &report.findings {
        wrap(o, "  *", &finding.text);
        wrap(o, "   ", &finding.advice);
    }
    write_operations(report, o);
    write_profile(report, o);
    for (title, ranking) in [
        ("files", &report.files),
        (
            "directories (with the files directly in them)",
            &report.directories,
        ),
        ("clients", &report.clients),
        ("client-file pairs", &report.pairs),
    ] {
        if let Some(ranking) = ranking {
            write_ranking(o, title, ranking, report.is_answered());
        }
    }
    sections::write(report, o);
    write_ledger(report, o);
    out
}

fn write_operations(report: &Report, o: &mut String) {
    // NFSv4 operations have names of up to 20 letters.
    let width = report
        .by_operation
        .iter()
        .map(|row| row.name.len())
        .max()
        .unwrap_or(0)
        .max(12);
    let _ = writeln!(
        o,
        "\n{:<width$}{:>10}{:>7}{:>9}{:>10}{:>10}{:>10}{:>10}",
        "Operation", "calls", "share", "errors", "median", "p90", "p99", "max"
    );
    let mut rows: Vec<_> = report.by_operation.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
    for row in rows {
        // Without replies, errors and latencies are unknown, not zero.
        let known = |text: String| {
            if row.replies > 0 {
                text
            } else {
                "-".to_string()
            }
        };
        let latency = |get: fn(&LatencyRow) -> u64| match &row.latency {
            Some(latency) => time(get(latency)),
            None => "-".to_string(),
        };
        let _ = writeln!(
            o,
            "{:<width$}{:>10}{:>6.1}%{:>9}{:>10}{:>10}{:>10}{:>10}",
            row.name,
            row.calls,
            100.0 * row.calls as f64 / report.operations.max(1) as f64,
            known(row.errors.to_string()),
            latency(|row| row.p50_ns),
            latency(|row| row.p90_ns),
            latency(|row| row.p99_ns),
            latency(|row| row.max_ns)
        );
    }
    let errors = report
        .by_operation
        .iter()
        .filter_map(|row| row.latency.as_ref());
    let error_percent = errors.map(|row| row.error_percent).fold(0.0, f64::max);
    if error_percent > 0.0 {
        let _ = writeln!(
            o,
            "Percentiles are at most {error_percent} % off; maxima are exact."
        );
    }
}

fn write_profile(report: &Report, o: &mut String) {
    let Some(p) = &report.profile else { return };
    let _ = writeln!(o, "\nWorkload profile");
    for (name, t) in [("read", &p.read), ("write", &p.write)] {
        let size = |bytes: Option<u64>| bytes.map_or("-".into(), format_size);
        let sequential = t
            .sequential_share
            .map_or("    -".into(), |share| format!("{:>3.0} %", 100.0 * share));
        let _ = writeln!(
            o,
            "  {name:<6}{:>10} ops {:>10}  {sequential} sequential  half <= {}, 95 % <= {}",
            t.operations,
            format_size(t.bytes),
            size(t.size_p50_bytes),
            size(t.size_p95_bytes)
        );
    }
    let _ = writeln!(o, "  other {:>10} ops", p.metadata_operations);
    if p.left_out.total() > 0 {
        let left_out = format!("not counted as reads or writes: {}", p.left_out);
        wrap(o, " ", &left_out);
    }
    let _ = write!(
        o,
        "  working set {} (random reads {})",
        format_size(p.working_set_bytes),
        format_size(p.random_read_working_set_bytes)
    );
    let _ = match report.is_answered() {
        true => writeln!(
            o,
            "; {} calls in flight, peak {}",
            known(p.outstanding_mean, |mean| format!("{mean:.1}")),
            p.outstanding_max
        ),
        false => writeln!(o),
    };
}

fn write_ledger(report: &Report, o: &mut String) {
    let _ = writeln!(o, "\nLoss ledger");
    write_packets(&report.ledger, o);
    write_calls(&report.ledger, o);
    for (dissector, counter) in OWN_COUNTERS {
        if report.ledger.of(counter.name) > 0 {
            let _ = writeln!(
                o,
                "  {dissector:<7} {} {}",
                report.ledger.of(counter.name),
                counter.label
            );
        }
    }
    write_tunnels(report, o);
    write_unclaimed(&report.ledger, o);
}

/// The path from packets to records.
fn write_packets(l: &Counters, o: &mut String) {
    let _ = writeln!(
        o,
        "  packets {} ({} dropped, {} cut, {} unreadable)",
        l.of("packets"),
        l.of("packets_dropped"),
        l.of("packets_cut"),
        l.of("packets_unreadable")
    );
    let _ = writeln!(
        o,
        "  streams {} holes of {}; {} segments reordered, {} resent",
        l.of("holes"),
        format_size(l.of("hole_bytes")),
        l.of("segments_reordered"),
        format_size(l.of("bytes_retransmitted"))
    );
    if l.of("gaps_no_room") > 0 {
        let _ = writeln!(
            o,
            "  of these, {} holes of {} due to lack of memory, not packet loss",
            l.of("gaps_no_room"),
            format_size(l.of("gap_bytes_no_room"))
        );
    }
    let _ = writeln!(
        o,
        "  records {} damaged, {} lost; {} searches through {}",
        l.of("records_damaged"),
        l.of("records_lost"),
        l.of("slow_mode_entries"),
        format_size(l.of("slow_mode_bytes"))
    );
}

/// Prints the counts of calls and replies.
fn write_calls(l: &Counters, o: &mut String) {
    let _ = writeln!(
        o,
        "  calls   {} seen: {} answered, {} open, {} timed out, {} evicted, {} resent",
        l.of("calls"),
        l.of("calls_answered"),
        l.of("calls_open_at_end") + l.of("calls_open"),
        l.of("calls_timed_out"),
        l.of("calls_evicted"),
        l.of("calls_repeated")
    );
    if l.of("calls_aborted") > 0 {
        let _ = writeln!(
            o,
            "  aborted {} calls, by task management",
            l.of("calls_aborted")
        );
    }
    let _ = writeln!(
        o,
        "  replies {} seen, {} without a call",
        l.of("replies"),
        l.of("replies_unmatched")
    );
}

fn write_unclaimed(l: &Counters, o: &mut String) {
    if l.of("bodies_malformed") + l.of("bytes_unclaimed") > 0 {
        let _ = writeln!(
            o,
            "  unsupported: {} bodies, {} of other protocols",
            l.of("bodies_malformed"),
            format_size(l.of("bytes_unclaimed"))
        );
    }
}

fn write_tunnels(report: &Report, o: &mut String) {
    let l = &report.ledger;
    let kinds = TUNNELS
        .iter()
        .map(|(counter, name)| (l.of(counter), name))
        .filter(|(count, _)| *count > 0);
    let mut kinds: Vec<String> = kinds
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    match l.of("packets_tunneled_too_deep") {
        0 => {}
        count => kinds.push(format!(
            "{count} packets nested more than {TUNNELS_MAX} deep"
        )),
    }
    if !kinds.is_empty() {
        wrap(o, "  tunnels", &kinds.join(", "));
    }
}

/// A figure as text, or a dash if there is none.
fn known(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".into(), show)
}

fn write_ranking(o: &mut String, title: &str, ranking: &Ranking, is_answered: bool) {
    if ranking.top.is_empty() {
        return;
    }
    let percent = |share| known(share, |share| format!("{:.0}", 100.0 * share));
    let _ = writeln!(
        o,
        "\nHottest {title}, of {}\n  the top 25 take {} % of operations, {} % of bytes",
        ranking.count_kind.show(ranking.count.to_string()),
        percent(ranking.top25_operations_share),
        percent(ranking.top25_bytes_share)
    );
    for row in ranking.top.iter().take(PRINTED) {
        let _ = writeln!(
            o,
            "  {:<46}{:>9} ops{:>9}{:>10}",
            shorten(&row.name, 45),
            row.operations,
            format_size(row.bytes),
            if is_answered {
                time(row.time_ns)
            } else {
                "-".to_string()
            }
        );
    }
}
