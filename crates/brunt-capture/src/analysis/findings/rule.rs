//! The type of a rule for findings, and what rules share.

use brunt_result::capture::Finding;

use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// A rule that may report findings.
pub(super) struct Rule {
    pub find: fn(&Analysis, &Ledger, &mut Vec<Finding>),
    /// Whether the rule applies only if there are at least `OPERATIONS_MIN` operations.
    pub needs_operations: bool,
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
