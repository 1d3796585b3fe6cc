//! The report: one structure for programs (JSON), printed for people in 80 columns. Made from what the
//! analyses kept. The one rule: the figures are worked out here, the rows (`brunt_result::capture`) only carry them.

mod text;

use std::collections::HashMap;

pub(super) use text::time;

pub use brunt_result::capture::*;
pub use text::text;

use super::hot::Load;
use super::{Analysis, Latency, findings};
use crate::ledger::Ledger;
use crate::operation::FileKey;

/// Entries of each ranking.
const RANKED: usize = 25;

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
                    name: name.into(),
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
            ledger: ledger.named().collect(),
        }
    }
}
