//! Captures of one direction only: said however few operations there are, since of replies alone there are none.

use super::Rule;
use crate::analysis::Analysis;
use crate::analysis::report::Finding;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule { find, needs_operations: false };

/// Fewer are what a capture's start leaves of a connection.
const MESSAGES_MIN: u64 = 10;

fn find(_: &Analysis, ledger: &Ledger, findings: &mut Vec<Finding>) {
    let alone = ledger.named().find(|(name, _)| *name == "replies_alone").map_or(0, |(_, count)| count);
    let (text, advice) = if ledger.calls == 0 && alone >= MESSAGES_MIN {
        (
            format!(
                "Only what servers send was captured: at least {alone} replies, and no call. A reply does not say \
                 what was asked."
            ),
            "Capture both directions: a tap has a port for each, and a mirror port can mirror what is sent and \
             what is received.",
        )
    } else if ledger.calls >= MESSAGES_MIN && ledger.replies == 0 {
        (
            format!("Only what clients send was captured: {} calls, and no reply.", ledger.calls),
            "Without replies there are no latencies, errors or attributes: capture the other direction, too.",
        )
    } else {
        return;
    };
    findings.push(Finding { kind: "one-sided".into(), text, advice: advice.into() });
}
