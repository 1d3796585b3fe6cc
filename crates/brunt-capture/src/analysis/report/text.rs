//! Formats a report for people, at most 80 columns wide. Printed by `brunt analyze` and `brunt capture`. The
//! one rule: it uses only the rows of a report and the names of its counters.

use std::fmt::Write;

use brunt_core::units::format_size;

use brunt_result::capture::{LatencyRow, Ranking, Report};
use brunt_wire::net::TUNNELS_MAX;

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

/// Formats a time with three digits and a unit.
pub(in crate::analysis) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.decimals$} {unit}")
}

/// Shortens a name in the middle to at most `width` characters.
fn shorten(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_string();
    }
    let tail = (width - 1) * 2 / 3;
    let head = width - 1 - tail;
    let start: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// Wraps text into lines of at most 78 characters, indented by two.
fn wrap(out: &mut String, bullet: &str, text: &str) {
    let mut line = bullet.to_string();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 78 && line.len() > 4 {
            let _ = writeln!(out, "{line}");
            line = "   ".into();
        }
        line.push(' ');
        line.push_str(&shorten(word, 74));
    }
    let _ = writeln!(out, "{line}");
}

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
        ("pairs of client and file", &report.pairs),
    ] {
        write_ranking(o, title, ranking, report.is_answered());
    }
    write_ledger(report, o);
    out
}

fn write_operations(report: &Report, o: &mut String) {
    // NFSv4 has names of up to 20 letters.
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
    let p = &report.profile;
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
            "; {} calls in flight, {} at most",
            known(p.outstanding_mean, |mean| format!("{mean:.1}")),
            p.outstanding_max
        ),
        false => writeln!(o),
    };
    let d = &report.duplicates;
    if d.blocks_read + d.blocks_written > 0 {
        let error = d.duplicate_share_error.map_or(String::new(), |error| {
            format!(" (standard error {:.1})", 100.0 * error)
        });
        let blocks = format!(
            "512-byte blocks: {} read, {} written; {} % duplicates{error}, {} % zeros",
            d.blocks_read,
            d.blocks_written,
            known(d.duplicate_share, |share| format!("{:.1}", 100.0 * share)),
            known(d.zero_share, |share| format!("{:.1}", 100.0 * share))
        );
        wrap(o, " ", &blocks);
    }
    for row in report.misaligned.iter().take(PRINTED) {
        let _ = writeln!(
            o,
            "  {:<39} {:>3.0} % of {} transfers misaligned",
            row.client,
            100.0 * row.misaligned as f64 / row.transfers.max(1) as f64,
            row.transfers
        );
    }
}

fn write_ledger(report: &Report, o: &mut String) {
    let l = &report.ledger;
    let _ = writeln!(o, "\nLoss ledger");
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
            "  of these, {} holes of {} for lack of memory, not of packets",
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
    for (dissector, counter) in OWN_COUNTERS {
        if l.of(counter.name) > 0 {
            let _ = writeln!(
                o,
                "  {dissector:<7} {} {}",
                l.of(counter.name),
                counter.label
            );
        }
    }
    write_tunnels(report, o);
    write_not_understood(report, o);
}

fn write_not_understood(report: &Report, o: &mut String) {
    let l = &report.ledger;
    for row in report.not_understood.iter().take(PRINTED) {
        let _ = writeln!(
            o,
            "  unsupported: {} packet{} of {}",
            row.packets,
            if row.packets == 1 { "" } else { "s" },
            row.name
        );
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end_and_fit() {
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("/export/a/very/long/path.c", 10), "/ex…path.c");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_234_567), "1.23 ms");
        assert_eq!(time(68_000_000_000), "68.0 s");
    }
}
