//! Finds operations with a tail latency far above the typical one.

use brunt_result::capture::Finding;

use super::rule::Rule;
use crate::analysis::report::time;
use crate::analysis::{Analysis, Quantiles};
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    for (name, operations) in analysis.all.mix.iter() {
        let latency = &operations.latency;
        let (median, tail) = (latency.quantile_ns(0.5), latency.quantile_ns(0.99));
        if latency.count() >= 1000 && tail >= 20 * median && tail >= 10_000_000 {
            findings.push(Finding {
                kind: "slow-tail".into(),
                text: format!(
                    "One {name} in a hundred takes {} or longer, {} times the median of {}; the slowest took {}.",
                    time(tail),
                    tail / median.max(1),
                    time(median),
                    time(latency.max_ns())
                ),
                advice: "A tail this long comes from queueing or retries, not from the storage's \
                    usual service time.".into(),
            });
        }
    }
}
