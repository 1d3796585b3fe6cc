//! What an administrator should be told, in words, each with its evidence. A finding is made
//! only when its threshold is passed, and says the figures it rests on.

use std::borrow::Cow;

use brunt_core::units::format_size;

use super::Analysis;
use super::report::Finding;
use crate::dissect::rpc::{COMMIT, GETATTR, WRITE};
use crate::ledger::Ledger;

/// Rules, each in its own function: one line each.
const RULES: &[fn(&Analysis, &Ledger, &mut Vec<Finding>)] =
    &[error_storms, getattr_storm, misaligned, hot_files, slow_tail, duplicates, commits];

/// All that is found.
pub(super) fn find(analysis: &Analysis, ledger: &Ledger) -> Vec<Finding> {
    let mut findings = Vec::new();
    // First and always: where most is missing, the few operations that are left say nothing else.
    loss(ledger, &mut findings);
    // A handful of operations proves nothing.
    if analysis.all.mix.calls() >= 100 {
        RULES.iter().for_each(|rule| rule(analysis, ledger, &mut findings));
    }
    findings
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn loss(ledger: &Ledger, findings: &mut Vec<Finding>) {
    let lost = ledger.replies_unmatched + ledger.records_lost;
    let operations = ledger.calls + lost;
    let holes = format_size(ledger.hole_bytes);
    // A snap length takes from most packets that carry data, a tap from some packets all.
    let cut = percent(ledger.packets_cut, ledger.packets) >= 1.0;
    // One or two of a handful are those that the capture's start and end cut in two.
    let counts = lost >= 10 || operations >= 100;
    if counts && percent(lost, operations) >= 0.1 || ledger.packets_dropped > 0 {
        findings.push(Finding {
            kind: "capture-loss".into(),
            text: format!(
                "At least {lost} of {operations} operations were not captured as a whole ({:.1} %); {} of {} \
                 packets ({:.1} %) were dropped before they were looked at, {} were cut, and {holes} are \
                 missing from the streams, with {} holes.",
                percent(lost, operations),
                ledger.packets_dropped,
                ledger.packets + ledger.packets_dropped,
                percent(ledger.packets_dropped, ledger.packets + ledger.packets_dropped),
                ledger.packets_cut,
                ledger.holes
            ),
            advice: Cow::Borrowed(if ledger.packets_dropped > 0 {
                "This host did not keep up: a larger --ring, more --rings and --workers help. Rates and counts \
                 below are low by the larger of these shares."
            } else if cut {
                "Headers lay beyond the capture's snap length: raise it (512 bytes are enough for names and \
                 handles). Rates and counts below are low by about this share."
            } else {
                "Rates and counts below are low by about this share; the tap or mirror port drops packets."
            }),
        });
    } else if ledger.records_damaged >= 10
        && percent(ledger.records_damaged, ledger.calls + ledger.replies) >= 1.0
    {
        findings.push(Finding {
            kind: "capture-incomplete".into(),
            text: format!(
                "{} of {} calls and replies were not captured to their end: {holes} are missing, {} of them \
                 file data ({:.0} % of it).",
                ledger.records_damaged,
                ledger.calls + ledger.replies,
                format_size(ledger.data_bytes_missing),
                percent(ledger.data_bytes_missing, ledger.data_bytes + ledger.data_bytes_missing)
            ),
            advice: Cow::Borrowed(if cut {
                "The capture's snap length cut them. Counts, sizes and latencies hold; checksums and \
                 duplicates know only what was captured."
            } else {
                "The tap or mirror port drops packets. Counts, sizes and latencies hold; checksums and \
                 duplicates know only what was captured."
            }),
        });
    }
}

fn error_storms(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let calls = analysis.all.mix.calls();
    for storm in analysis.all.errors.storms() {
        let of_all = percent(storm.count, calls);
        let of_these = percent(storm.count, analysis.all.mix.of(storm.operation).calls);
        let name = storm.operation.name();
        // Looking for names that are not there is how programs search their paths.
        let ordinary = matches!((name, storm.status.status), ("LOOKUP" | "ACCESS" | "OPEN", 2));
        let threshold = if ordinary { 20.0 } else { 1.0 };
        if of_all < threshold || storm.count < 50 {
            continue;
        }
        let status = storm.status.name();
        findings.push(Finding {
            kind: "error-storm".into(),
            text: format!(
                "{} client{} issued {} {name}s that failed with {status}: {of_these:.0} % of all {name}s \
                 and {of_all:.1} % of all operations; {} alone had {}.",
                storm.clients,
                plural(storm.clients),
                storm.count,
                storm.first.0,
                storm.first.1
            ),
            advice: Cow::Borrowed(match storm.status.status {
                70 => "A stale handle never becomes valid again: remount on those clients or restart what holds the file open.",
                13 | 1 => "Programs that are refused and try again: check permissions and the export's options.",
                28 | 69 => "Writes fail for want of room: free space or raise the quota.",
                _ => "An operation that keeps failing the same way costs the server as much as one that works.",
            }),
        });
    }
}

fn getattr_storm(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let (calls, getattrs) = (analysis.all.mix.calls(), analysis.all.mix.of(GETATTR).calls);
    let seconds = analysis.all.rates.duration_s().max(1e-9);
    let Some((_, top)) = analysis.all.hot.pairs.iter().max_by_key(|(_, pair)| pair.getattrs) else { return };
    let top_rate = f64::from(top.getattrs) / seconds;
    // Attribute caches hold for three seconds at least: more than one GETATTR a second for
    // one file by one client means that the cache is off.
    if percent(getattrs, calls) >= 20.0 && top_rate >= 1.0 && top.getattrs >= 20 {
        findings.push(Finding {
            kind: "getattr-storm".into(),
            text: format!(
                "GETATTR makes {:.0} % of all operations, {:.0} a second; {} asks for {} {:.0} times a second.",
                percent(getattrs, calls),
                getattrs as f64 / seconds,
                top.client(),
                analysis.all.hot.path(top.file),
                top_rate
            ),
            advice: "Check actimeo/noac on the clients: files that rarely change can be cached longer.".into(),
        });
    }
}

fn misaligned(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let mut clients: Vec<_> = analysis
        .all
        .hot
        .clients
        .iter()
        .map(|(_, client)| client)
        .filter(|c| c.transfers >= 50 && percent(c.misaligned, c.transfers) >= 20.0)
        .collect();
    clients.sort_by_key(|c| (std::cmp::Reverse(c.misaligned), c.address));
    let Some(first) = clients.first() else { return };
    findings.push(Finding {
        kind: "misaligned".into(),
        text: format!(
            "{} client{} read and write at offsets that are no multiple of 4,096 bytes; {} does in {:.0} % \
             of its {} READs and WRITEs.",
            clients.len(),
            plural(clients.len()),
            first.address,
            percent(first.misaligned, first.transfers),
            first.transfers
        ),
        advice:
            "Such writes cost a block store a read first: look for direct I/O or misaligned virtual disks."
                .into(),
    });
}

fn hot_files(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let mut files: Vec<_> = analysis.all.hot.files.iter().filter(|(_, f)| f.load.operations > 0).collect();
    if files.len() < 250 {
        return;
    }
    let count = files.len();
    // The first 25 are enough, and the first of all.
    let order = |(key, f): &(u64, &super::hot::FileEntry)| (std::cmp::Reverse(f.load.operations), *key);
    files.select_nth_unstable_by_key(25, order);
    files.truncate(25);
    files.sort_unstable_by_key(order);
    let top: u64 = files.iter().map(|(_, f)| f.load.operations).sum();
    let share = percent(top, analysis.all.hot.total.operations);
    if share >= 25.0 {
        findings.push(Finding {
            kind: "hot-files".into(),
            text: format!(
                "25 of {count} files and directories take {share:.0} % of the operations; {} is the hottest.",
                analysis.all.hot.path(crate::operation::FileKey(files[0].0))
            ),
            advice: "A small cache or a faster tier for these serves much of the load.".into(),
        });
    }
}

fn slow_tail(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    for (name, operations) in analysis.all.mix.iter() {
        let latency = &operations.latency;
        let (median, tail) = (latency.quantile_ns(0.5), latency.quantile_ns(0.99));
        if latency.count() >= 1000 && tail >= 20 * median && tail >= 10_000_000 {
            findings.push(Finding {
                kind: "slow-tail".into(),
                text: format!(
                    "One {name} in a hundred takes {} or longer, {} times the median of {}; the slowest took {}.",
                    super::report::time(tail),
                    tail / median.max(1),
                    super::report::time(median),
                    super::report::time(latency.max_ns())
                ),
                advice: "A tail this long is a queue or a retry, not the storage's usual service.".into(),
            });
        }
    }
}

fn duplicates(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let [read, written] = analysis.all.duplicates.blocks();
    let (share, zeros) = (analysis.all.duplicates.duplicate_share(), analysis.all.duplicates.zero_share());
    if read + written >= 2048 && share >= 0.2 {
        findings.push(Finding {
            kind: "duplicates".into(),
            text: format!(
                "{:.0} % of the different blocks that went by have content that lies elsewhere too; {:.0} % \
                 of all blocks are zeros.",
                100.0 * share,
                100.0 * zeros
            ),
            advice: "Deduplication or zero detection would save about this share of space.".into(),
        });
    }
}

fn commits(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let (writes, commits) = (analysis.all.mix.of(WRITE).calls, analysis.all.mix.of(COMMIT).calls);
    if writes >= 100 && commits * 2 >= writes {
        findings.push(Finding {
            kind: "commits".into(),
            text: format!(
                "{commits} COMMITs follow {writes} WRITEs: data is flushed after every write or two."
            ),
            advice: "Synchronous writing (fsync, sync mounts) makes latency of stable storage the limit."
                .into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a capture lacks is said however few operations are left of it, with its cause; what
    /// its start and end cut is not.
    #[test]
    fn what_is_missing_is_said() {
        let check = |ledger: Ledger, expected: Option<(&str, &str)>| {
            let found = find(&Analysis::new(), &ledger);
            let found = found.first().map(|finding| (&*finding.kind, &*finding.advice));
            assert_eq!(found.map(|(kind, _)| kind), expected.map(|(kind, _)| kind), "{ledger:?}");
            if let (Some((_, advice)), Some((_, cause))) = (found, expected) {
                assert!(advice.contains(cause), "{advice}");
            }
        };
        let seen = Ledger { packets: 1000, calls: 50, replies: 50, ..Ledger::default() };
        check(seen.clone(), None);
        check(Ledger { replies_unmatched: 2, records_damaged: 2, ..seen.clone() }, None);
        // Most calls lost: too few are left for any other finding.
        let lost = Ledger { calls: 8, replies: 419, replies_unmatched: 411, ..seen.clone() };
        check(lost.clone(), Some(("capture-loss", "drops packets")));
        check(Ledger { packets_cut: 600, ..lost }, Some(("capture-loss", "snap length")));
        check(Ledger { packets_dropped: 1, ..seen.clone() }, Some(("capture-loss", "--ring")));
        // Every header seen, and two thirds of the data not.
        let damaged =
            Ledger { records_damaged: 49, data_bytes: 1 << 20, data_bytes_missing: 2 << 20, ..seen };
        check(damaged.clone(), Some(("capture-incomplete", "drops packets")));
        check(Ledger { packets_cut: 600, ..damaged }, Some(("capture-incomplete", "snap length")));
    }
}
