//! The report: one structure for programs (JSON), also printed for people in 80 columns. Built from the states
//! of the analyses. The one rule: all figures are computed here; the rows (`brunt_result::capture`) only carry
//! them.

mod line;
mod sections;
mod text;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

pub(super) use line::time;

pub use brunt_result::capture::*;
pub use text::text;

use super::hot::{Hot, HotLoad};
use super::mix::{Mix, OperationFigures};
use super::profile::{ProfileFigures, Transfers};
use super::rates::{RateInterval, Rates};
use super::{Analysis, Latency, Quantiles, findings};
use crate::dissect::rpc::OTHER;
use crate::ledger::Ledger;
use crate::operation::FileKey;

/// Entries per ranking.
const RANKED: usize = 25;

/// The row of a latency distribution; `None` without latencies, that is, if no reply was seen.
fn latency_row<L: Quantiles>(latency: &L) -> Option<LatencyRow> {
    (latency.count() > 0).then(|| LatencyRow {
        mean_ns: latency.sum_ns() / latency.count(),
        p50_ns: latency.quantile_ns(0.5),
        p90_ns: latency.quantile_ns(0.9),
        p99_ns: latency.quantile_ns(0.99),
        p999_ns: latency.quantile_ns(0.999),
        max_ns: latency.max_ns(),
        error_percent: L::ERROR_PERCENT,
    })
}

/// Ranks `all` by operations, bytes and time; calls `name` only for the top entries.
fn rank<T: Copy + Ord>(
    all: Vec<(T, HotLoad, Option<&Latency>)>,
    (count, count_kind): (u64, CountKind),
    total: &HotLoad,
    (forgotten, undercount_max): (u64, u64),
    name: impl Fn(T) -> String,
) -> Ranking {
    let mut top: Vec<usize> = Vec::new();
    let mut shares = [None; 2];
    let keys: [fn(&HotLoad) -> u64; 3] = [|l| l.operations, |l| l.bytes, |l| l.time_ns];
    for (which, key) in keys.into_iter().enumerate() {
        let first = first_by(&all, key);
        if let Some(share) = shares.get_mut(which) {
            let sum: u64 = first.iter().map(|&i| key(&all[i].1)).sum();
            *share = (key(total) > 0).then(|| sum as f64 / key(total) as f64);
        }
        for index in first {
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
            latency: latency.and_then(latency_row),
        }
    };
    Ranking {
        count,
        count_kind,
        forgotten,
        undercount_max,
        top25_operations_share: shares[0],
        top25_bytes_share: shares[1],
        top: top.iter().map(row).collect(),
    }
}

/// Indexes of the `RANKED` entries with the largest `key`, largest first. Ties are broken by the entry's identity, so
/// the result doesn't depend on which entry was seen first. Takes a single pass, which is fast because most entries
/// are smaller than the last one selected so far.
fn first_by<T: Copy + Ord>(
    all: &[(T, HotLoad, Option<&Latency>)],
    key: impl Fn(&HotLoad) -> u64,
) -> Vec<usize> {
    let mut first: Vec<(Reverse<u64>, T, usize)> = Vec::with_capacity(RANKED + 1);
    for (index, (what, load, _)) in all.iter().enumerate() {
        let entry = (Reverse(key(load)), *what, index);
        if first.len() == RANKED && first.last().is_some_and(|last| *last <= entry) {
            continue;
        }
        first.insert(first.partition_point(|other| *other < entry), entry);
        first.truncate(RANKED);
    }
    first.into_iter().map(|(.., index)| index).collect()
}

/// Whether a report contains operations of a dissected protocol.
pub fn is_understood(report: &Report) -> bool {
    let is_other = |row: &OperationRow| row.name == OTHER.name();
    report.by_operation.iter().any(|row| !is_other(row))
}

impl Analysis {
    /// Builds the report, with the counters of the pipeline that fed this analysis.
    pub fn report(&self, ledger: &Ledger) -> Report {
        let all = &self.all;
        let duration_s = all.rates.duration_s();
        let operations = all.mix.calls();
        let sections = all.sections().into_iter();
        let (sections, rows) = sections
            .map(|section| {
                let name = section.layout.name.to_string();
                (section.layout, (name, section.rows))
            })
            .unzip();
        let per_second = |amount| per_second(amount, duration_s);
        let [files, directories, clients, pairs] = match all.selected.has("hot") {
            true => self.rankings().map(Some),
            false => [const { None }; 4],
        };
        let has_profile = all.selected.has("profile");
        let left_out = all.selected.left_out().into_iter();
        Report {
            start_ns: all.rates.start_ns(),
            duration_s,
            valid: ledger.check().is_ok(),
            findings: findings::find(self, ledger),
            operations,
            operations_per_s: per_second(operations as f64),
            wire_gbit_per_s: per_second(ledger.wire_bytes as f64 * 8e-9),
            by_operation: operation_rows(&all.mix, &all.rates),
            left_out: left_out.map(Cow::Borrowed).collect(),
            profile: has_profile.then(|| profile_row(&all.profile.figures(), duration_s)),
            files,
            directories,
            clients,
            pairs,
            intervals: interval_rows(&all.rates),
            ledger: ledger.named().collect(),
            sections,
            rows,
        }
    }

    /// The hottest files, directories, clients and pairs.
    fn rankings(&self) -> [Ranking; 4] {
        let (all, hot) = (&self.all, &self.all.hot);
        let used = hot.files.iter().filter(|(_, f)| f.load.operations > 0);
        let files = used
            .map(|(key, f)| (FileKey(key), f.load, known(f.latency.as_ref(), &all.rates)))
            .collect();
        let clients = hot.clients.iter();
        let clients = clients
            .map(|(_, c)| (c.address, c.load, known(Some(&c.latency), &all.rates)))
            .collect();
        let pairs = hot.pairs.iter();
        let pairs = pairs
            .map(|(_, p)| ((p.client(), p.file), p.load, None))
            .collect();
        [
            rank(
                files,
                hot.file_count(),
                &hot.total,
                hot.files.forgotten(),
                |key| hot.path(key),
            ),
            rank(
                directories(hot),
                directory_count(hot),
                &hot.total,
                (0, 0),
                |key| hot.path(key),
            ),
            rank(
                clients,
                hot.client_count(),
                &hot.total,
                hot.clients.forgotten(),
                |address| address.to_string(),
            ),
            rank(
                pairs,
                hot.pair_count(),
                &hot.total,
                hot.pairs.forgotten(),
                |(client, file)| format!("{client} {}", hot.path(file)),
            ),
        ]
    }
}

/// A rate; `None` if the duration is zero.
fn per_second(amount: f64, duration_s: f64) -> Option<f64> {
    (duration_s > 0.0).then(|| amount / duration_s)
}

/// Number of directories; if files were evicted, a lower bound, because they may have been in other directories.
fn directory_count(hot: &Hot) -> (u64, CountKind) {
    let kind = match hot.files.evicted().0 {
        0 => CountKind::Exact,
        _ => CountKind::AtLeast,
    };
    (directories(hot).len() as u64, kind)
}

/// Directories with the load of the files directly in them.
fn directories(hot: &Hot) -> Vec<(FileKey, HotLoad, Option<&Latency>)> {
    let mut directories: HashMap<FileKey, HotLoad> = HashMap::new();
    for (file, name) in hot.named_files() {
        if let Some(parent) = name.and_then(|name| name.parent) {
            directories.entry(parent).or_default().merge(&file.load);
        }
    }
    directories.retain(|_, load| load.operations > 0);
    let mut directories: Vec<_> = directories
        .into_iter()
        .map(|(key, load)| (key, load, None))
        .collect();
    directories.sort_by_key(|(key, ..)| *key);
    directories
}

/// The latency, or `None` if the capture has no timestamps.
fn known<'a, L>(latency: Option<&'a L>, rates: &Rates) -> Option<&'a L> {
    latency.filter(|_| rates.is_timed())
}

fn operation_rows(mix: &Mix, rates: &Rates) -> Vec<OperationRow> {
    let row = |(name, o): (&'static str, &OperationFigures)| OperationRow {
        name: name.into(),
        calls: o.calls,
        replies: o.replies,
        errors: o.errors,
        bytes: o.bytes,
        latency: known(Some(&o.latency), rates).and_then(latency_row),
    };
    mix.iter().filter(|(_, o)| o.calls > 0).map(row).collect()
}

fn profile_row(profile: &ProfileFigures, duration_s: f64) -> ProfileRow {
    let (outstanding_mean, outstanding_max) = profile.outstanding(duration_s);
    let total = profile.total();
    let [read, write] = &total.transfers;
    let transfer = |t: &Transfers| TransferRow {
        operations: t.operations,
        bytes: t.bytes,
        sequential_share: t.sequential_share(),
        size_p50_bytes: t.size_quantile(0.5),
        size_p95_bytes: t.size_quantile(0.95),
    };
    ProfileRow {
        read: transfer(read),
        write: transfer(write),
        metadata_operations: total.metadata,
        left_out: total.left_out,
        random_read_working_set_bytes: total.random_read_working_set_bytes(),
        working_set_bytes: profile.working_set_bytes(),
        working_set_error_percent: Some(profile.working_set_error_percent()),
        outstanding_mean,
        outstanding_max,
    }
}

fn interval_rows(rates: &Rates) -> Vec<IntervalRow> {
    let start_ns = rates.start_ns();
    let row = |(from_ns, until_ns, i): (u64, u64, RateInterval)| IntervalRow {
        from_s: (from_ns - start_ns) as f64 / 1e9,
        width_s: (until_ns - from_ns) as f64 / 1e9,
        operations: i.operations,
        wire_bytes: i.wire_bytes,
        read_bytes: i.read_bytes,
        write_bytes: i.write_bytes,
        errors: i.errors,
    };
    rates.intervals().map(row).collect()
}
