//! Detects captures of one direction only. Reported regardless of the number of operations, since replies alone yield
//! none.

use brunt_result::capture::Finding;

use super::rule::Rule;
use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: false,
};

/// Fewer messages than this may be the end of a connection that began before the capture.
const MESSAGES_MIN: u64 = 10;

fn find(_: &Analysis, ledger: &Ledger, findings: &mut Vec<Finding>) {
    // RPC counts replies on connections without captured calls separately; for iSCSI, these are responses without
    // commands.
    let alone = ledger
        .named()
        .find(|(name, _)| *name == "replies_alone")
        .map_or(0, |(_, count)| count);
    let alone = alone.max(ledger.replies_unmatched);
    let calls = ledger.calls.saturating_sub(ledger.calls_carried);
    let (text, advice) = if ledger.calls == 0 && alone >= MESSAGES_MIN {
        (
            format!(
                "Only packets from servers were captured: at least {alone} replies and no calls. A reply alone does not identify the operation."
            ),
            "Capture both directions: a tap has one port per direction, and a mirror port can mirror sent and received packets.",
        )
    } else if calls >= MESSAGES_MIN && ledger.replies == 0 {
        (
            format!("Only packets from clients were captured: {calls} calls and no replies."),
            "Without replies, latencies, errors and attributes are missing: capture the other direction, too.",
        )
    } else {
        return;
    };
    findings.push(Finding {
        kind: "one-sided".into(),
        text,
        advice: advice.into(),
    });
}
