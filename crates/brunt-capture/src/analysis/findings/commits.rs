//! Data that is flushed after every write or two.

use super::Rule;
use crate::analysis::Analysis;
use crate::analysis::report::Finding;
use crate::dissect::rpc::{COMMIT, WRITE};
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule { find, needs_operations: true };

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
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
