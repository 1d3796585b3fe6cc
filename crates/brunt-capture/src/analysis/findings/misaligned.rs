//! Finds clients that read and write at offsets that are not a multiple of 4,096 bytes.

use brunt_core::units::counted;
use brunt_result::capture::Finding;

use super::rule::{Rule, percent};
use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let mut clients: Vec<_> = analysis
        .all
        .hot
        .clients
        .iter()
        .map(|(_, client)| client)
        .filter(|c| c.transfers >= 50 && percent(c.misaligned, c.transfers) >= 20.0)
        .collect();
    clients.sort_by_key(|c| (std::cmp::Reverse(c.misaligned), c.address));
    let Some(first) = clients.first() else { return };
    findings.push(Finding {
        kind: "misaligned".into(),
        text: format!(
            "Reads and writes by {} are misaligned (offsets are not multiples of 4,096 bytes); for \
             {}, {:.0} % of {} READs and WRITEs.",
            counted(clients.len(), "client"),
            first.address,
            percent(first.misaligned, first.transfers),
            first.transfers
        ),
        advice:
            "On block-based storage, a misaligned write requires a read first: look for direct I/O or \
             misaligned virtual disks."
                .into(),
    });
}
