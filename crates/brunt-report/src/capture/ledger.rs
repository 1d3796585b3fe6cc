//! The loss ledger.

use brunt_result::capture::Report;

use crate::format::{Unit, count};
use crate::page::{Cell, PageTable, Section};

/// A row: its name, the counters that it adds up, whether they count bytes, and an explanation.
type Row = (&'static str, &'static [&'static str], Unit, &'static str);

/// All rows, in processing order: from packets to replies.
const ROWS: &[Row] = &[
    ("packets", &["packets"], Unit::Count, "passed to the parser"),
    (
        "dropped",
        &["packets_dropped"],
        Unit::Count,
        "lost before parsing: in the ring or the interface",
    ),
    (
        "cut",
        &["packets_cut"],
        Unit::Count,
        "truncated by the snap length",
    ),
    (
        "unreadable",
        &["packets_unreadable"],
        Unit::Count,
        "with invalid headers",
    ),
    (
        "fragments lost",
        &["fragmented_packets_lost"],
        Unit::Count,
        "packets dropped because a fragment was missing",
    ),
    (
        "holes",
        &["holes"],
        Unit::Count,
        "gaps in a stream that were never filled",
    ),
    (
        "bytes in holes",
        &["hole_bytes"],
        Unit::Bytes,
        "packets lost, or cut",
    ),
    (
        "reordered",
        &["segments_reordered"],
        Unit::Count,
        "segments put back in order",
    ),
    (
        "retransmitted",
        &["bytes_retransmitted"],
        Unit::Bytes,
        "bytes received more than once",
    ),
    (
        "records damaged",
        &["records_damaged"],
        Unit::Count,
        "incomplete; kept if the header was captured",
    ),
    (
        "records lost",
        &["records_lost"],
        Unit::Count,
        "without further information",
    ),
    (
        "searches",
        &["slow_mode_entries"],
        Unit::Count,
        "searches for the next record after a lost record start",
    ),
    ("calls", &["calls"], Unit::Count, "seen"),
    (
        "answered",
        &["calls_answered"],
        Unit::Count,
        "with a captured reply",
    ),
    (
        "repeated",
        &["calls_repeated"],
        Unit::Count,
        "retransmitted while the first was outstanding",
    ),
    ("timed out", &["calls_timed_out"], Unit::Count, "timed out"),
    (
        "evicted",
        &["calls_evicted"],
        Unit::Count,
        "evicted to make room for others",
    ),
    (
        "aborted",
        &["calls_aborted"],
        Unit::Count,
        "ended without a reply by iSCSI's task management",
    ),
    (
        "open",
        &["calls_open", "calls_open_at_end"],
        Unit::Count,
        "outstanding at the end",
    ),
    ("replies", &["replies"], Unit::Count, "seen"),
    (
        "without call",
        &["replies_unmatched"],
        Unit::Count,
        "without a captured call (calls lost)",
    ),
    (
        "malformed",
        &["bodies_malformed"],
        Unit::Count,
        "message bodies that could not be fully parsed",
    ),
    (
        "other protocols",
        &["bytes_unclaimed"],
        Unit::Bytes,
        "bytes of unknown protocols",
    ),
];

pub(super) fn ledger(report: &Report) -> Section {
    let l = &report.ledger;
    let mut section = Section::new("Loss ledger");
    section.prose("What was captured and what was lost. Calls captured and calls lost add up.");
    let row = |what: &str, shown: String, meaning: &str| {
        vec![Cell::text(what), Cell::number(shown), Cell::text(meaning)]
    };
    let mut rows: Vec<_> = ROWS
        .iter()
        .map(|(what, counters, unit, meaning)| {
            let number: u64 = counters.iter().map(|counter| l.of(counter)).sum();
            row(what, unit.show(number as f64), meaning)
        })
        .collect();
    let tunnels = l
        .iter()
        .filter(|(name, count)| name.starts_with("tunnels_") && *count > 0);
    rows.extend(tunnels.map(|(name, number)| {
        row(
            &name.replace('_', " "),
            count(number as f64),
            "headers removed",
        )
    }));
    let too_deep = l.of("packets_tunneled_too_deep");
    if too_deep > 0 {
        let meaning = "packets nested too deep to be dissected";
        rows.push(row("tunnels", count(too_deep as f64), meaning));
    }
    let columns = ["what", "count", "meaning"];
    section.table(PageTable::new("From packets to replies", &columns, rows));
    section
}
