//! The report page of a capture, written by `brunt analyze --html`: findings first, then activity over time,
//! operations, clients and files, and losses.

use brunt_core::units::counted;
use brunt_result::capture::{
    Finding, HotRow, IntervalRow, LatencyRow, NotUnderstoodRow, OperationRow, Ranking, Report,
    TransferRow,
};

use crate::chart::{Axis, Chart, Scale, Series, SeriesRole};
use crate::format::{Unit, count};
use crate::page::{Bar, Bars, Block, Card, Cell, Glance, Notice, Page, PageTable, Section, Tone};
use crate::thin::Thin;

/// Maximum number of points on a timeline.
const PLACES: usize = 400;
/// Maximum number of bars per figure.
const BARS_MAX: usize = 16;

/// Information about a capture besides its figures.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Name of the source: a file or an interface.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Problems while reading it, such as a truncated file.
    pub trouble: Vec<String>,
}

/// The report page.
pub fn page(report: &Report, source: &Source) -> Page {
    let sections = [
        over_time(report),
        operations(report),
        workload(report),
        ranking("Files", &report.files),
        ranking("Directories", &report.directories),
        ranking("Clients", &report.clients),
        ranking("Clients and files", &report.pairs),
        misaligned(report),
        ledger(report),
    ];
    Page {
        kind: "Capture".into(),
        title: source.name.clone(),
        description: String::new(),
        made_by: format!("Brunt {}", source.version),
        glance: glance(report, source),
        sections: sections.into_iter().flatten().collect(),
    }
}

fn glance(report: &Report, source: &Source) -> Glance {
    let mut notices: Vec<Notice> = source
        .trouble
        .iter()
        .map(|what| Notice::new(Tone::Bad, what.clone()))
        .collect();
    if !report.valid {
        let text = "The ledger does not add up. This is a bug in Brunt; do not trust this report.";
        notices.push(Notice::new(Tone::Bad, text));
    }
    let told = |finding: &Finding| {
        Notice::new(
            Tone::Warning,
            format!("{} {}", finding.text, finding.advice),
        )
    };
    notices.extend(report.findings.iter().map(told));
    if notices.is_empty() {
        notices.push(Notice::new(Tone::Good, "No problems found."));
    }
    let l = &report.ledger;
    let per_second = |amount: u64| amount as f64 / report.duration_s.max(1e-9);
    let bytes = |get: fn(&IntervalRow) -> u64| report.intervals.iter().map(get).sum::<u64>();
    let data = |read: u64, word: &str| {
        (
            word.to_string(),
            Unit::BytesPerSecond.show(per_second(read)),
        )
    };
    let share = |part: u64, all: u64| Unit::Share.show(part as f64 / all.max(1) as f64);
    let cards = vec![
        operations_card(report),
        Card {
            name: "On the wire".into(),
            value: report.wire_gbit_per_s.map_or_else(
                || "–".into(),
                |rate| format!("{} Gb/s", crate::format::three(rate)),
            ),
            uncertainty: String::new(),
            details: vec![
                data(bytes(|i| i.read_bytes), "data read"),
                data(bytes(|i| i.write_bytes), "data written"),
                ("packets".into(), count(l.of("packets") as f64)),
            ],
            parts: Vec::new(),
        },
        Card {
            name: "Missing from this report".into(),
            value: share(
                l.of("replies_unmatched"),
                l.of("calls") + l.of("replies_unmatched"),
            ) + " of calls",
            uncertainty: String::new(),
            details: vec![
                (
                    "packets dropped".into(),
                    count(l.of("packets_dropped") as f64),
                ),
                (
                    "holes in streams".into(),
                    format!(
                        "{} ({})",
                        count(l.of("holes") as f64),
                        Unit::Bytes.show(l.of("hole_bytes") as f64)
                    ),
                ),
                (
                    "replies without call".into(),
                    count(l.of("replies_unmatched") as f64),
                ),
            ],
            parts: Vec::new(),
        },
    ];
    Glance {
        facts: facts(report),
        cards,
        notices,
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
                known(format!(
                    "{} · {}",
                    (report.profile.outstanding_mean)
                        .map_or_else(|| "–".into(), |mean| format!("{mean:.1}")),
                    report.profile.outstanding_max
                )),
            ),
        ],
        parts: Vec::new(),
    }
}

/// Facts about the capture and its contents.
fn facts(report: &Report) -> Vec<(String, String)> {
    let connections = report.ledger.of("connections") as usize;
    vec![
        (
            "Captured".into(),
            format!(
                "{}, from {}",
                Unit::Seconds.show(report.duration_s),
                moment(report.start_ns)
            ),
        ),
        (
            "Seen".into(),
            format!(
                "{}, {}, {}",
                report
                    .clients
                    .count_kind
                    .show(counted(report.clients.count as usize, "client")),
                report
                    .files
                    .count_kind
                    .show(counted(report.files.count as usize, "file")),
                counted(connections, "connection")
            ),
        ),
    ]
}

/// Formats nanoseconds since 1970 as date and time (UTC) in the civil calendar.
fn moment(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days from 0000-03-01, so that a leap day is the last of its year; 146,097 days are 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let (date, month) = (
        of_year - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02} UTC")
}

fn over_time(report: &Report) -> Option<Section> {
    let mut section = Section::new("Over time");
    let mut line: Thin<5> = Thin::new(PLACES);
    let full_s = report
        .intervals
        .iter()
        .map(|i| i.width_s)
        .fold(0.0, f64::max);
    for i in &report.intervals {
        let rate = |amount: u64| Some(amount as f64 / i.width_s.max(1e-9));
        let figures = [
            rate(i.operations),
            rate(i.read_bytes),
            rate(i.write_bytes),
            rate(i.wire_bytes),
            rate(i.errors),
        ];
        // The rate over a very short last interval means nothing.
        if i.width_s > full_s * 0.1 {
            line.push(i.from_s, i.from_s + i.width_s, figures);
        }
    }
    if line.pushed() < 2 {
        section.blocks.push(Block::Missing(
            "The capture is too short for a timeline.".into(),
        ));
        return Some(section);
    }
    let mut told = format!(
        "{} intervals of {}.",
        count(line.pushed() as f64),
        Unit::Micros.show(full_s * 1e6)
    );
    if line.each() > 1 {
        told += &format!(
            " Drawn as the minimum and maximum of every {}.",
            line.each()
        );
    }
    let curves =
        |title: &str, label: &str, unit: Unit, series: &[(usize, &str, usize)], height: u32| {
            let series = series.iter().map(|(figure, name, role)| {
                Series::new(*name, SeriesRole::Nominal(*role), line.values(*figure))
            });
            let x = Axis::new("time", Unit::Seconds, Scale::Linear);
            let chart = Chart::curves(
                title,
                x,
                Axis::new(label, unit, Scale::FromZero),
                line.places(),
                series.collect(),
            );
            Chart {
                height,
                stretch: line.span(),
                ..chart.on("capture", &[])
            }
        };
    let operations = curves(
        "Operations",
        "operations per second",
        Unit::PerSecond,
        &[(0, "operations", 0)],
        200,
    );
    section.chart(operations.caption(told));
    let data = [
        (3, "on the wire", 5),
        (1, "data read", 0),
        (2, "data written", 1),
    ];
    section.chart(curves(
        "Bytes",
        "bytes per second",
        Unit::BytesPerSecond,
        &data,
        220,
    ));
    if !line.is_zero(4) {
        section.chart(curves(
            "Errors",
            "error replies per second",
            Unit::PerSecond,
            &[(4, "errors", 4)],
            160,
        ));
    }
    Some(section)
}

fn operations(report: &Report) -> Option<Section> {
    let mut section = Section::new("Operations");
    let mut rows: Vec<&OperationRow> = report.by_operation.iter().collect();
    if rows.is_empty() {
        section
            .blocks
            .push(Block::Missing("No operations were captured.".into()));
        return Some(section);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
    let bar = |name: &str, value: f64, shown: String, all: f64| Bar {
        name: name.into(),
        parts: vec![value],
        interval: None,
        shown,
        uncertainty: Unit::Share.show(value / all.max(f64::MIN_POSITIVE)),
    };
    let calls = rows.iter().take(BARS_MAX);
    let calls = calls.map(|row| {
        bar(
            &row.name,
            row.calls as f64,
            count(row.calls as f64),
            report.operations as f64,
        )
    });
    let waited = |row: &OperationRow| {
        let mean_ns = row.latency.map_or(0, |latency| latency.mean_ns);
        mean_ns as f64 * row.replies as f64 / 1e3
    };
    let all: f64 = rows.iter().map(|row| waited(row)).sum();
    let mut by_time = rows.clone();
    by_time.sort_by(|a, b| waited(b).total_cmp(&waited(a)));
    let times = by_time
        .iter()
        .take(BARS_MAX)
        .filter(|row| waited(row) > 0.0);
    let times = times.map(|row| bar(&row.name, waited(row), Unit::Micros.show(waited(row)), all));
    let caption = String::new();
    section.blocks.push(Block::Bars(Bars {
        title: "Calls".into(),
        caption,
        bars: calls.collect(),
        parts: Vec::new(),
    }));
    section.blocks.push(Block::Bars(Bars {
        title: "Where clients waited".into(),
        caption: "Calls times mean latency: the operation to optimize first.".into(),
        bars: times.collect(),
        parts: Vec::new(),
    }));
    let columns = [
        "operation",
        "calls",
        "share",
        "errors",
        "data",
        "mean",
        "median",
        "p90",
        "p99",
        "p99.9",
        "slowest",
    ];
    let cells = rows.iter().map(|row| {
        let mut cells = vec![
            Cell::text(&*row.name),
            Cell::number(count(row.calls as f64)),
            Cell::number(Unit::Share.show(row.calls as f64 / report.operations.max(1) as f64)),
            if row.replies > 0 {
                Cell::number(count(row.errors as f64))
            } else {
                Cell::Empty
            },
            if row.bytes > 0 {
                Cell::number(Unit::Bytes.show(row.bytes as f64))
            } else {
                Cell::Empty
            },
        ];
        cells.extend(latencies(row.latency.as_ref()));
        cells
    });
    section.table(PageTable::new("Latency by operation", &columns, cells));
    section.prose(
        "Latency: from the call's first packet to the reply's first packet, as seen at the capture point.",
    );
    if let Some(text) = error_of(rows.iter().filter_map(|row| row.latency.as_ref())) {
        section.prose(text);
    }
    Some(section)
}

/// Describes the error of these percentiles; `None` if there are none.
fn error_of<'a>(latencies: impl Iterator<Item = &'a LatencyRow>) -> Option<String> {
    let percent = latencies
        .map(|latency| latency.error_percent)
        .fold(0.0, f64::max);
    (percent > 0.0).then(|| {
        format!("Percentiles are at most {percent} % off; means and the slowest are exact.")
    })
}

fn latencies(latency: Option<&LatencyRow>) -> [Cell; 6] {
    let figures: [fn(&LatencyRow) -> u64; 6] = [
        |row| row.mean_ns,
        |row| row.p50_ns,
        |row| row.p90_ns,
        |row| row.p99_ns,
        |row| row.p999_ns,
        |row| row.max_ns,
    ];
    figures.map(|get| match latency {
        Some(latency) => Cell::number(Unit::Micros.show(get(latency) as f64 / 1e3)),
        None => Cell::Empty,
    })
}

fn workload(report: &Report) -> Option<Section> {
    let (p, d) = (&report.profile, &report.duplicates);
    let mut section = Section::new("Workload");
    let transfer = |name: &str, t: &TransferRow| {
        let cell = |unit: Unit, figure: Option<f64>| match figure {
            Some(figure) => Cell::number(unit.show(figure)),
            None => Cell::Empty,
        };
        let size = |bytes: Option<u64>| cell(Unit::Bytes, bytes.map(|bytes| bytes as f64));
        vec![
            Cell::text(name),
            Cell::number(count(t.operations as f64)),
            size(Some(t.bytes)),
            cell(Unit::Share, t.sequential_share),
            size(t.size_p50_bytes),
            size(t.size_p95_bytes),
        ]
    };
    let columns = [
        "transfers",
        "count",
        "data",
        "sequential",
        "half are at most",
        "95 % are at most",
    ];
    let rows = vec![transfer("read", &p.read), transfer("write", &p.write)];
    section.table(PageTable::new("Reads and writes", &columns, rows));
    let mut facts = Vec::new();
    if p.left_out.total() > 0 {
        facts.push((
            "Not counted as reads or writes".into(),
            p.left_out.to_string(),
        ));
    }
    facts.extend([
        (
            "Other operations".into(),
            count(p.metadata_operations as f64),
        ),
        (
            "Working set".into(),
            Unit::Bytes.show(p.working_set_bytes as f64),
        ),
        (
            "Of random reads".into(),
            Unit::Bytes.show(p.random_read_working_set_bytes as f64),
        ),
    ]);
    if d.blocks_read + d.blocks_written > 0 {
        facts.push((
            "Data".into(),
            format!(
                "{} blocks of 512 bytes read and {} written; {} were duplicates, {} zeros",
                count(d.blocks_read as f64),
                count(d.blocks_written as f64),
                Unit::Share.show_known(d.duplicate_share),
                Unit::Share.show_known(d.zero_share)
            ),
        ));
    }
    section.blocks.push(Block::Facts(facts));
    Some(section)
}

fn ranking(title: &str, ranking: &Ranking) -> Option<Section> {
    if ranking.top.is_empty() {
        return None;
    }
    let mut section = Section::new(title);
    section.prose(format!(
        "{} in total. The 25 busiest account for {} of the operations, the 25 with the most data for {} of the bytes.{}",
        ranking.count_kind.show(count(ranking.count as f64)),
        Unit::Share.show_known(ranking.top25_operations_share),
        Unit::Share.show_known(ranking.top25_bytes_share),
        if ranking.forgotten > 0 {
            format!(" {} inactive ones were dropped to save memory.", count(ranking.forgotten as f64))
        } else {
            String::new()
        }
    ));
    let bars = |title: &str, get: fn(&HotRow) -> u64, show: &dyn Fn(u64) -> String| {
        let mut rows: Vec<&HotRow> = ranking.top.iter().filter(|row| get(row) > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(get(row)));
        let bars = rows.iter().take(BARS_MAX / 2).map(|row| Bar {
            name: row.name.clone(),
            parts: vec![get(row) as f64],
            shown: show(get(row)),
            ..Bar::default()
        });
        Bars {
            title: title.into(),
            bars: bars.collect(),
            ..Bars::default()
        }
    };
    let by_operations = bars("By operations", |row| row.operations, &|number| {
        count(number as f64)
    });
    let by_bytes = bars("By data", |row| row.bytes, &|bytes| {
        Unit::Bytes.show(bytes as f64)
    });
    section.blocks.push(Block::Bars(by_operations));
    if !by_bytes.bars.is_empty() {
        section.blocks.push(Block::Bars(by_bytes));
    }
    let columns = [
        "name",
        "operations",
        "data",
        "time waited",
        "median",
        "p99",
        "slowest",
    ];
    let rows = ranking.top.iter().map(|row| {
        let latency = |get: fn(&LatencyRow) -> u64| match &row.latency {
            Some(latency) => Cell::number(Unit::Micros.show(get(latency) as f64 / 1e3)),
            None => Cell::Empty,
        };
        vec![
            Cell::text(&row.name),
            Cell::number(count(row.operations as f64)),
            Cell::number(Unit::Bytes.show(row.bytes as f64)),
            Cell::number(Unit::Micros.show(row.time_ns as f64 / 1e3)),
            latency(|l| l.p50_ns),
            latency(|l| l.p99_ns),
            latency(|l| l.max_ns),
        ]
    });
    let caption = format!("The heaviest {}", ranking.top.len());
    section.table(PageTable::new(caption, &columns, rows).folded());
    if let Some(text) = error_of(ranking.top.iter().filter_map(|row| row.latency.as_ref())) {
        section.prose(text);
    }
    Some(section)
}

fn misaligned(report: &Report) -> Option<Section> {
    if report.misaligned.is_empty() {
        return None;
    }
    let mut section = Section::new("Misaligned transfers");
    let rows = report.misaligned.iter().map(|row| {
        let share = row.misaligned as f64 / row.transfers.max(1) as f64;
        vec![
            Cell::text(&row.client),
            Cell::number(count(row.transfers as f64)),
            Cell::number(count(row.misaligned as f64)),
            Cell::number(Unit::Share.show(share)),
        ]
    });
    let columns = ["client", "transfers", "misaligned", "share"];
    section.table(PageTable::new("By client", &columns, rows));
    Some(section)
}

fn ledger(report: &Report) -> Option<Section> {
    let l = &report.ledger;
    let mut section = Section::new("Loss ledger");
    section.prose("What was captured and what was lost. Calls captured and calls lost add up.");
    let row = |what: &str, number: u64, means: &str| {
        vec![
            Cell::text(what),
            Cell::number(count(number as f64)),
            Cell::text(means),
        ]
    };
    let bytes = |what: &str, number: u64, means: &str| {
        vec![
            Cell::text(what),
            Cell::number(Unit::Bytes.show(number as f64)),
            Cell::text(means),
        ]
    };
    let rows = vec![
        row("packets", l.of("packets"), "passed to the parser"),
        row(
            "dropped",
            l.of("packets_dropped"),
            "before parsing: in the ring or the interface",
        ),
        row("cut", l.of("packets_cut"), "truncated by the snap length"),
        row(
            "unreadable",
            l.of("packets_unreadable"),
            "with invalid headers",
        ),
        row(
            "fragments lost",
            l.of("fragmented_packets_lost"),
            "packets dropped because a fragment was missing",
        ),
        row(
            "holes",
            l.of("holes"),
            "gaps in a stream that were never filled",
        ),
        bytes("bytes in holes", l.of("hole_bytes"), "packets lost, or cut"),
        row(
            "reordered",
            l.of("segments_reordered"),
            "segments put back in order",
        ),
        bytes(
            "retransmitted",
            l.of("bytes_retransmitted"),
            "bytes received more than once",
        ),
        row(
            "records damaged",
            l.of("records_damaged"),
            "incomplete; kept if the header was captured",
        ),
        row(
            "records lost",
            l.of("records_lost"),
            "without further information",
        ),
        row(
            "searches",
            l.of("slow_mode_entries"),
            "searches for the next record after a lost record start",
        ),
        row("calls", l.of("calls"), "seen"),
        row("answered", l.of("calls_answered"), "with a captured reply"),
        row(
            "repeated",
            l.of("calls_repeated"),
            "retransmitted while the first was outstanding",
        ),
        row("timed out", l.of("calls_timed_out"), "timed out"),
        row(
            "evicted",
            l.of("calls_evicted"),
            "evicted to make room for others",
        ),
        row(
            "aborted",
            l.of("calls_aborted"),
            "ended without a reply by iSCSI's task management",
        ),
        row(
            "open",
            l.of("calls_open") + l.of("calls_open_at_end"),
            "outstanding at the end",
        ),
        row("replies", l.of("replies"), "seen"),
        row(
            "without call",
            l.of("replies_unmatched"),
            "without a captured call (calls lost)",
        ),
        row(
            "malformed",
            l.of("bodies_malformed"),
            "message bodies that could not be fully parsed",
        ),
        bytes(
            "other protocols",
            l.of("bytes_unclaimed"),
            "bytes of unknown protocols",
        ),
    ];
    let tunnels = l
        .iter()
        .filter(|(name, count)| name.starts_with("tunnels_") && *count > 0);
    let tunnel =
        |(name, number): (&str, u64)| row(&name.replace('_', " "), number, "headers removed");
    let too_deep = l.of("packets_tunneled_too_deep");
    let not_understood =
        |what: &NotUnderstoodRow| row(&what.name, what.packets, "packets not understood");
    let rows: Vec<_> = (rows.into_iter())
        .chain(tunnels.map(tunnel))
        .chain((too_deep > 0).then(|| {
            row(
                "tunnels",
                too_deep,
                "packets nested too deep to be dissected",
            )
        }))
        .chain(
            report
                .not_understood
                .iter()
                .take(BARS_MAX)
                .map(not_understood),
        )
        .collect();
    let columns = ["what", "count", "meaning"];
    section.table(PageTable::new("From packets to replies", &columns, rows));
    Some(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times around leap days and centuries are dated correctly.
    #[test]
    fn moments() {
        let check = |seconds: u64, shown: &str| assert_eq!(moment(seconds * 1_000_000_000), shown);
        check(0, "1970-01-01 00:00:00 UTC");
        check(951_782_399, "2000-02-28 23:59:59 UTC");
        check(951_782_400, "2000-02-29 00:00:00 UTC");
        check(1_709_164_800, "2024-02-29 00:00:00 UTC");
        check(1_767_225_599, "2025-12-31 23:59:59 UTC");
        check(4_107_542_400, "2100-03-01 00:00:00 UTC");
    }
}
