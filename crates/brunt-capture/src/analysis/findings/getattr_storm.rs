//! Finds clients that request the attributes of the same file over and over.

use brunt_result::capture::Finding;

use super::rule::{Rule, percent};
use crate::analysis::Analysis;
use crate::dissect::rpc::GETATTR;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let (calls, getattrs) = (analysis.all.mix.calls(), analysis.all.mix.of(GETATTR).calls);
    let seconds = analysis.all.rates.duration_s().max(1e-9);
    let Some((_, top)) = analysis
        .all
        .hot
        .pairs
        .iter()
        .max_by_key(|(_, pair)| pair.getattrs)
    else {
        return;
    };
    let top_rate = f64::from(top.getattrs) / seconds;
    // Attribute caches keep entries for at least three seconds, so more than one GETATTR per second for the same file
    // by the same client means that the cache is off.
    if percent(getattrs, calls) >= 20.0 && top_rate >= 1.0 && top.getattrs >= 20 {
        findings.push(Finding {
            kind: "getattr-storm".into(),
            text: format!(
                "GETATTR is {:.0} % of all operations, {:.0} per second; {} requests {} {:.0} times per second.",
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
