//! Reports capture losses and their cause, even if few operations remain. Operations cut off at the start and end of
//! the capture do not count as losses.

use std::borrow::Cow;

use brunt_core::units::format_size;
use brunt_result::capture::Finding;

use super::rule::{Rule, percent};
use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: false,
};

fn find(_: &Analysis, ledger: &Ledger, findings: &mut Vec<Finding>) {
    // The call, the reply, or the part that identifies the record is missing.
    let lost = ledger.replies_unmatched + ledger.records_lost + ledger.replies_lost;
    let operations = ledger.calls + ledger.replies_unmatched + ledger.records_lost;
    let holes = format_size(ledger.hole_bytes);
    // A snap length truncates most packets that carry data; a tap loses some packets entirely.
    let cut = percent(ledger.packets_cut, ledger.packets) >= 1.0;
    // In a small capture, one or two operations may merely be cut off at the start or end.
    let counts = lost >= 10 || operations >= 100;
    // Complete messages without any call mean that one direction is missing; `one_sided` reports that.
    let counts = counts && (ledger.calls > 0 || ledger.records_lost >= 10);
    if counts && percent(lost, operations) >= 0.1 || ledger.packets_dropped > 0 {
        findings.push(Finding {
            kind: "capture-loss".into(),
            text: format!(
                "At least {lost} of {operations} operations were not fully captured ({:.1} \
                 %); {} of {} packets ({:.1} %) were dropped before processing, {} were \
                 truncated, and {holes} are missing from the streams in {} holes.",
                percent(lost, operations),
                ledger.packets_dropped,
                ledger.packets + ledger.packets_dropped,
                percent(ledger.packets_dropped, ledger.packets + ledger.packets_dropped),
                ledger.packets_cut,
                ledger.holes
            ),
            advice: Cow::Borrowed(if ledger.packets_dropped > 0 {
                "This host could not keep up: use a larger --ring, more --rings or more \
                 --workers. Rates and counts below are low by the larger of these shares."
            } else if cut {
                "The snap length cut off headers: raise it (512 bytes are enough for names and \
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
                "{} of {} calls and replies were not fully captured: {holes} are missing, {} of \
                 them file data ({:.0} % of it).",
                ledger.records_damaged,
                ledger.calls + ledger.replies,
                format_size(ledger.data_bytes_missing),
                percent(
                    ledger.data_bytes_missing,
                    ledger.data_bytes + ledger.data_bytes_missing
                )
            ),
            advice: Cow::Borrowed(if cut {
                "The capture's snap length truncated them. Counts, sizes and latencies are \
                 correct; checksums and duplicates cover only captured data."
            } else {
                "The tap or mirror port drops packets. Counts, sizes and latencies are correct; \
                 checksums and duplicates cover only captured data."
            }),
        });
    }
}
