//! Finds a small number of files that receive much of the load.

use brunt_result::capture::Finding;

use super::rule::{Rule, percent};
use crate::analysis::Analysis;
use crate::ledger::Ledger;
use crate::operation::FileKey;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let mut files: Vec<_> = analysis
        .all
        .hot
        .files
        .iter()
        .filter(|(_, f)| f.load.operations > 0)
        .collect();
    if files.len() < 250 {
        return;
    }
    let (count, kind) = analysis.all.hot.file_count();
    let count = kind.show(count.to_string());
    // Only the 25 hottest files are needed, and among them the hottest one, so not all files are sorted.
    let order = |(key, f): &(u64, &crate::analysis::hot::FileEntry)| {
        (std::cmp::Reverse(f.load.operations), *key)
    };
    files.select_nth_unstable_by_key(25, order);
    files.truncate(25);
    files.sort_unstable_by_key(order);
    let top: u64 = files.iter().map(|(_, f)| f.load.operations).sum();
    let share = percent(top, analysis.all.hot.total.operations);
    if share >= 25.0 {
        findings.push(Finding {
            kind: "hot-files".into(),
            text: format!(
                "25 of {count} files and directories receive {share:.0} % of the operations; {} \
                 is the hottest.",
                analysis.all.hot.path(FileKey(files[0].0))
            ),
            advice: "A small cache or a faster tier for these would serve much of the load.".into(),
        });
    }
}
