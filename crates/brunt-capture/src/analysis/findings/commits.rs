//! Finds data that is flushed after every write or two.

use brunt_result::capture::Finding;

use super::rule::Rule;
use crate::analysis::Analysis;
use crate::dissect::iscsi::kinds::{SCSI_SYNCHRONIZE_CACHE, SCSI_WRITE};
use crate::dissect::rpc::{COMMIT, WRITE};
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    for (write, commit) in [(WRITE, COMMIT), (SCSI_WRITE, SCSI_SYNCHRONIZE_CACHE)] {
        let (writes, commits) = (
            analysis.all.mix.of(write).calls,
            analysis.all.mix.of(commit).calls,
        );
        if writes >= 100 && commits * 2 >= writes {
            findings.push(Finding {
                kind: "commits".into(),
                text: format!(
                    "{commits} {}s follow {writes} {}s: data is flushed after every write or two.",
                    commit.name(),
                    write.name()
                ),
                advice: "Synchronous writes (fsync, sync mounts) are limited by the latency of \
                    stable storage."
                    .into(),
            });
        }
    }
}
