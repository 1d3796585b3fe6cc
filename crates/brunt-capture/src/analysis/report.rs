//! The report: one structure for programs (JSON), printed for people in 80 columns.

use std::collections::HashMap;
use std::fmt::Write;

use brunt_core::units::format_size;
use serde::Serialize;

use super::hot::Load;
use super::{Analysis, Finding, Latency, findings};
use crate::ledger::Ledger;
use crate::operation::FileKey;

/// Lines of each ranking in the printed report, and entries in the other one.
const PRINTED: usize = 5;
const RANKED: usize = 25;

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// When the first packet was seen: nanoseconds since 1970.
    pub start_ns: u64,
    /// From the first packet to the last, in seconds.
    pub duration_s: f64,
    /// Whether the ledger adds up; if not, nothing here is to be trusted.
    pub valid: bool,
    /// What an administrator should know.
    pub findings: Vec<Finding>,
    /// Calls seen.
    pub operations: u64,
    /// Calls a second.
    pub operations_per_s: f64,
    /// Gigabits a second on the wire.
    pub wire_gbit_per_s: f64,
    /// By operation.
    pub by_operation: Vec<OperationRow>,
    /// The workload, as a sizing wants it.
    pub profile: ProfileRow,
    /// Data that is the same.
    pub duplicates: DuplicateRow,
    /// The hottest files.
    pub files: Ranking,
    /// The hottest directories, with what lies directly in them.
    pub directories: Ranking,
    /// The hottest clients.
    pub clients: Ranking,
    /// The hottest pairs of client and file.
    pub pairs: Ranking,
    /// Clients and their offsets.
    pub misaligned: Vec<MisalignedRow>,
    /// Over time.
    pub intervals: Vec<IntervalRow>,
    /// What was seen and what was lost.
    pub ledger: Ledger,
}

/// One operation.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // named by their units
pub struct OperationRow {
    pub name: &'static str,
    pub calls: u64,
    pub replies: u64,
    pub errors: u64,
    pub bytes: u64,
    pub latency: LatencyRow,
}

/// A distribution in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct LatencyRow {
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// Reads and writes.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct TransferRow {
    pub operations: u64,
    pub bytes: u64,
    pub sequential_share: f64,
    pub size_p50_bytes: u64,
    pub size_p95_bytes: u64,
}

/// The profile.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct ProfileRow {
    pub read: TransferRow,
    pub write: TransferRow,
    pub metadata_operations: u64,
    pub random_read_working_set_bytes: u64,
    pub working_set_bytes: u64,
    /// Calls that waited at a time, over all of the time.
    pub outstanding_mean: f64,
    /// The most that a call found waiting.
    pub outstanding_max: u32,
}

/// Data that is the same.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct DuplicateRow {
    pub blocks_read: u64,
    pub blocks_written: u64,
    pub duplicate_share: f64,
    pub zero_share: f64,
}

/// The heaviest of many.
#[derive(Clone, Debug, Serialize)]
pub struct Ranking {
    /// How many there are.
    pub count: usize,
    /// Entries forgotten for want of room, all of them light.
    pub forgotten: u64,
    /// The share of the 25 with the most operations, and of the 25 with the most bytes.
    pub top25_operations_share: f64,
    /// The same of bytes.
    pub top25_bytes_share: f64,
    /// The 25 with the most operations, bytes or time: all that are in one of the three.
    pub top: Vec<HotRow>,
}

/// Something hot.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct HotRow {
    pub name: String,
    pub operations: u64,
    pub bytes: u64,
    pub time_ns: u64,
    pub latency: Option<LatencyRow>,
}

/// A client's offsets.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct MisalignedRow {
    pub client: String,
    pub transfers: u64,
    pub misaligned: u64,
}

/// What happened in an interval. All are equally long, but for the first and the last, which begin and end
/// with the capture.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct IntervalRow {
    pub from_s: f64,
    pub width_s: f64,
    pub operations: u64,
    pub wire_bytes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub errors: u64,
}

fn latency_row(latency: &Latency) -> LatencyRow {
    if latency.count() == 0 {
        return LatencyRow::default();
    }
    LatencyRow {
        mean_ns: latency.sum_ns() / latency.count(),
        p50_ns: latency.quantile_ns(0.5),
        p90_ns: latency.quantile_ns(0.9),
        p99_ns: latency.quantile_ns(0.99),
        p999_ns: latency.quantile_ns(0.999),
        max_ns: latency.max_ns(),
    }
}

/// Ranks `all` by operations, bytes and time; `name` is asked for the top only.
fn rank<T: Copy + Ord>(
    all: Vec<(T, Load, Option<&Latency>)>,
    total: &Load,
    forgotten: u64,
    name: impl Fn(T) -> String,
) -> Ranking {
    let mut order: Vec<usize> = (0..all.len()).collect();
    let mut top: Vec<usize> = Vec::new();
    let mut shares = [0.0; 2];
    let keys: [fn(&Load) -> u64; 3] = [|l| l.operations, |l| l.bytes, |l| l.time_ns];
    for (which, key) in keys.into_iter().enumerate() {
        // Equal ones in an order that does not depend on who was seen first.
        let place = |&i: &usize| (std::cmp::Reverse(key(&all[i].1)), all[i].0);
        if order.len() > RANKED {
            order.select_nth_unstable_by_key(RANKED, place);
        }
        let count = order.len().min(RANKED);
        let first = &mut order[..count];
        first.sort_unstable_by_key(place);
        let first = &*first;
        if let Some(share) = shares.get_mut(which) {
            let sum: u64 = first.iter().map(|&i| key(&all[i].1)).sum();
            *share = sum as f64 / key(total).max(1) as f64;
        }
        for &index in first {
            if key(&all[index].1) > 0 && !top.contains(&index) {
                top.push(index);
            }
        }
    }
    let row = |&index: &usize| {
        let (what, load, latency) = &all[index];
        HotRow {
            name: name(*what),
            operations: load.operations,
            bytes: load.bytes,
            time_ns: load.time_ns,
            latency: latency.map(latency_row),
        }
    };
    Ranking {
        count: all.len(),
        forgotten,
        top25_operations_share: shares[0],
        top25_bytes_share: shares[1],
        top: top.iter().map(row).collect(),
    }
}

impl Analysis {
    /// What was found, with the counters of the pipeline that fed this.
    pub fn report(&self, ledger: &Ledger) -> Report {
        let hot = &self.hot;
        let used = hot.files.iter().filter(|(_, f)| f.load.operations > 0);
        let files = used.map(|(key, f)| (FileKey(key), f.load, f.latency.as_ref()));
        let mut directories: HashMap<FileKey, Load> = HashMap::new();
        for (file, name) in hot.named_files() {
            if let Some(parent) = name.and_then(|name| name.parent) {
                directories.entry(parent).or_default().merge(&file.load);
            }
        }
        directories.retain(|_, load| load.operations > 0);
        let mut directories: Vec<_> = directories.into_iter().map(|(key, load)| (key, load, None)).collect();
        directories.sort_by_key(|(key, ..)| *key);
        let clients: Vec<_> =
            hot.clients.iter().map(|(_, c)| (c.address, c.load, Some(&c.latency))).collect();
        let pairs = hot.pairs.iter().map(|(_, p)| ((p.client(), p.file), p.load, None)).collect();
        let mut misaligned: Vec<_> =
            hot.clients.iter().map(|(_, c)| c).filter(|c| c.misaligned > 0).collect();
        misaligned.sort_by_key(|c| (std::cmp::Reverse(c.misaligned), c.address));
        let duration_s = self.rates.duration_s();
        let operations = self.mix.calls();
        let per_second = |amount: f64| if duration_s > 0.0 { amount / duration_s } else { 0.0 };
        let since_start_s = |ns: u64| (ns - self.rates.start_ns()) as f64 / 1e9;
        let (outstanding_mean, outstanding_max) = self.profile.outstanding(duration_s);
        let [blocks_read, blocks_written] = self.duplicates.blocks();
        let transfer = |index: usize| {
            let t = &self.profile.transfers[index];
            TransferRow {
                operations: t.operations,
                bytes: t.bytes,
                sequential_share: t.sequential_share(),
                size_p50_bytes: t.size_quantile(0.5),
                size_p95_bytes: t.size_quantile(0.95),
            }
        };
        Report {
            start_ns: self.rates.start_ns(),
            duration_s,
            valid: ledger.check().is_ok(),
            findings: findings::find(self, ledger),
            operations,
            operations_per_s: per_second(operations as f64),
            wire_gbit_per_s: per_second(ledger.wire_bytes as f64 * 8e-9),
            by_operation: self
                .mix
                .iter()
                .filter(|(_, o)| o.calls > 0)
                .map(|(name, o)| OperationRow {
                    name,
                    calls: o.calls,
                    replies: o.replies,
                    errors: o.errors,
                    bytes: o.bytes,
                    latency: latency_row(&o.latency),
                })
                .collect(),
            profile: ProfileRow {
                read: transfer(0),
                write: transfer(1),
                metadata_operations: self.profile.metadata,
                random_read_working_set_bytes: self.profile.random_read_working_set_bytes(),
                working_set_bytes: self.profile.working_set_bytes(),
                outstanding_mean,
                outstanding_max,
            },
            duplicates: DuplicateRow {
                blocks_read,
                blocks_written,
                duplicate_share: self.duplicates.duplicate_share(),
                zero_share: self.duplicates.zero_share(),
            },
            files: rank(files.collect(), &hot.total, hot.files.evicted().0, |key| hot.path(key)),
            directories: rank(directories, &hot.total, 0, |key| hot.path(key)),
            clients: rank(clients, &hot.total, hot.clients.evicted().0, |address| address.to_string()),
            pairs: rank(pairs, &hot.total, hot.pairs.evicted().0, |(client, file)| {
                format!("{client} {}", hot.path(file))
            }),
            misaligned: misaligned
                .iter()
                .take(RANKED)
                .map(|c| MisalignedRow {
                    client: c.address.to_string(),
                    transfers: c.transfers,
                    misaligned: c.misaligned,
                })
                .collect(),
            intervals: self
                .rates
                .intervals()
                .map(|(from_ns, until_ns, i)| IntervalRow {
                    from_s: since_start_s(from_ns),
                    width_s: (until_ns - from_ns) as f64 / 1e9,
                    operations: i.operations,
                    wire_bytes: i.wire_bytes,
                    read_bytes: i.read_bytes,
                    write_bytes: i.write_bytes,
                    errors: i.errors,
                })
                .collect(),
            ledger: ledger.clone(),
        }
    }
}

/// A time for people: three figures and a unit.
pub(super) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// Cuts a name in its middle so that it has at most `width` characters.
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

/// Breaks text into lines of at most 78 characters, indented by two.
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

impl Report {
    /// The report for people, at most 80 columns wide.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let o = &mut out;
        if !self.valid {
            let _ = writeln!(o, "INVALID: the ledger does not add up; this is a defect of brunt.\n");
        }
        let _ = writeln!(
            o,
            "{} operations in {:.3} s: {:.0} a second, {:.3} Gb/s on the wire",
            self.operations, self.duration_s, self.operations_per_s, self.wire_gbit_per_s
        );
        let _ = writeln!(o, "\nFindings");
        if self.findings.is_empty() {
            let _ = writeln!(o, "  none");
        }
        for finding in &self.findings {
            wrap(o, "  *", &finding.text);
            wrap(o, "   ", finding.advice);
        }
        self.write_operations(o);
        self.write_profile(o);
        for (title, ranking) in [
            ("files", &self.files),
            ("directories (with the files directly in them)", &self.directories),
            ("clients", &self.clients),
            ("pairs of client and file", &self.pairs),
        ] {
            write_ranking(o, title, ranking);
        }
        self.write_ledger(o);
        out
    }

    fn write_operations(&self, o: &mut String) {
        // NFSv4 has names of up to 20 letters.
        let width = self.by_operation.iter().map(|row| row.name.len()).max().unwrap_or(0).max(12);
        let _ = writeln!(
            o,
            "\n{:<width$}{:>10}{:>7}{:>9}{:>10}{:>10}{:>10}{:>10}",
            "Operation", "calls", "share", "errors", "median", "p90", "p99", "max"
        );
        let mut rows: Vec<_> = self.by_operation.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
        for row in rows {
            let _ = writeln!(
                o,
                "{:<width$}{:>10}{:>6.1}%{:>9}{:>10}{:>10}{:>10}{:>10}",
                row.name,
                row.calls,
                100.0 * row.calls as f64 / self.operations.max(1) as f64,
                row.errors,
                time(row.latency.p50_ns),
                time(row.latency.p90_ns),
                time(row.latency.p99_ns),
                time(row.latency.max_ns)
            );
        }
    }

    fn write_profile(&self, o: &mut String) {
        let p = &self.profile;
        let _ = writeln!(o, "\nWorkload profile");
        for (name, t) in [("read", &p.read), ("write", &p.write)] {
            let _ = writeln!(
                o,
                "  {name:<6}{:>10} ops {:>10}  {:>3.0} % sequential  half <= {}, 95 % <= {}",
                t.operations,
                format_size(t.bytes),
                100.0 * t.sequential_share,
                format_size(t.size_p50_bytes),
                format_size(t.size_p95_bytes)
            );
        }
        let _ = writeln!(o, "  other {:>10} ops", p.metadata_operations);
        let _ = writeln!(
            o,
            "  working set {} (random reads {}); {:.1} calls at a time, {} at most",
            format_size(p.working_set_bytes),
            format_size(p.random_read_working_set_bytes),
            p.outstanding_mean,
            p.outstanding_max
        );
        let d = &self.duplicates;
        if d.blocks_read + d.blocks_written > 0 {
            let _ = writeln!(
                o,
                "  512-byte blocks: {} read, {} written; {:.1} % duplicates, {:.1} % zeros",
                d.blocks_read,
                d.blocks_written,
                100.0 * d.duplicate_share,
                100.0 * d.zero_share
            );
        }
        for row in self.misaligned.iter().take(PRINTED) {
            let _ = writeln!(
                o,
                "  {:<39} {:>3.0} % of {} transfers misaligned",
                row.client,
                100.0 * row.misaligned as f64 / row.transfers.max(1) as f64,
                row.transfers
            );
        }
    }

    fn write_ledger(&self, o: &mut String) {
        let l = &self.ledger;
        let _ = writeln!(o, "\nLoss ledger");
        let _ = writeln!(
            o,
            "  packets {} ({} dropped, {} cut, {} unreadable)",
            l.packets, l.packets_dropped, l.packets_cut, l.packets_unreadable
        );
        let _ = writeln!(
            o,
            "  streams {} holes of {}; {} segments reordered, {} came again",
            l.holes,
            format_size(l.hole_bytes),
            l.segments_reordered,
            format_size(l.bytes_retransmitted)
        );
        let _ = writeln!(
            o,
            "  records {} damaged, {} lost; {} searches through {}",
            l.records_damaged,
            l.records_lost,
            l.slow_mode_entries,
            format_size(l.slow_mode_bytes)
        );
        let _ = writeln!(
            o,
            "  calls   {} seen: {} answered, {} open, {} timed out, {} evicted, {} again",
            l.calls,
            l.calls_answered,
            l.calls_open_at_end + l.calls_open,
            l.calls_timed_out,
            l.calls_evicted,
            l.calls_repeated
        );
        let _ = writeln!(o, "  replies {} seen, {} without their call", l.replies, l.replies_unmatched);
        if l.compounds_unparsed + l.attributes_unparsed > 0 {
            let _ = writeln!(
                o,
                "  NFSv4   {} compounds with unknown operations, {} attribute lists with unknown attributes",
                l.compounds_unparsed, l.attributes_unparsed
            );
        }
        if l.bodies_malformed + l.not_rpc_bytes > 0 {
            let _ = writeln!(
                o,
                "  not understood: {} bodies, {} of other protocols",
                l.bodies_malformed,
                format_size(l.not_rpc_bytes)
            );
        }
    }
}

fn write_ranking(o: &mut String, title: &str, ranking: &Ranking) {
    if ranking.top.is_empty() {
        return;
    }
    let _ = writeln!(
        o,
        "\nHottest of {} {title}\n  the top 25 take {:.0} % of operations, {:.0} % of bytes",
        ranking.count,
        100.0 * ranking.top25_operations_share,
        100.0 * ranking.top25_bytes_share
    );
    for row in ranking.top.iter().take(PRINTED) {
        let _ = writeln!(
            o,
            "  {:<46}{:>9} ops{:>9}{:>10}",
            shorten(&row.name, 45),
            row.operations,
            format_size(row.bytes),
            time(row.time_ns)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: long names keep their end, which tells files apart, and fit.
    #[test]
    fn names_fit() {
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("/export/a/very/long/path.c", 10), "/ex…path.c");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_234_567), "1.23 ms");
        assert_eq!(time(68_000_000_000), "68.0 s");
    }
}
