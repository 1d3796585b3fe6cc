//! Finds duplicate data and zeros.

use brunt_result::capture::Finding;

use super::rule::Rule;
use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let [read, written] = analysis.all.duplicates.blocks();
    let duplicates = &analysis.all.duplicates;
    let (Some(share), Some(zeros)) = (duplicates.duplicate_share(), duplicates.zero_share()) else {
        return;
    };
    if read + written >= 2048 && share >= 0.2 {
        findings.push(Finding {
            kind: "duplicates".into(),
            text: format!(
                "{:.0} % of the distinct blocks transferred have content that also occurs \
                 elsewhere; {:.0} % of all blocks are zeros.",
                100.0 * share,
                100.0 * zeros
            ),
            advice: "Deduplication or zero detection would save roughly this share of the space."
                .into(),
        });
    }
}
