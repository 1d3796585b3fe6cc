//! Detects captures of unsupported traffic. Reported regardless of the number of operations: it may explain why there
//! are none.

use brunt_result::capture::Finding;

use super::rule::{Rule, percent};
use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: false,
};

/// ARP, ICMP and the like never reach this share of a storage capture.
const SHARE_MIN_PERCENT: f64 = 20.0;
const PACKETS_MIN: u64 = 10;

fn find(analysis: &Analysis, ledger: &Ledger, findings: &mut Vec<Finding>) {
    let amounts = analysis.all.not_understood.amounts();
    let too_deep = ledger.packets_tunneled_too_deep;
    let packets: u64 = too_deep
        + amounts
            .iter()
            .map(|(_, amount)| amount.packets)
            .sum::<u64>();
    if packets < PACKETS_MIN || percent(packets, ledger.packets) < SHARE_MIN_PERCENT {
        return;
    }
    let most = match amounts.first() {
        Some((name, amount)) if amount.packets >= too_deep => {
            format!("{} of {name}", amount.packets)
        }
        _ => format!("{too_deep} in too many nested tunnels"),
    };
    findings.push(Finding {
        kind: "not-understood".into(),
        text: format!(
            "{packets} of {} packets ({:.0} %) use unsupported protocols, most of them {most}.",
            ledger.packets,
            percent(packets, ledger.packets)
        ),
        advice:
            "Operations in them were not seen. Capture where the traffic has no such header, or \
             mirror it differently: VXLAN, GENEVE, GRE, ERSPAN, IP in IP, MPLS and PPPoE are \
             decoded."
                .into(),
    });
}
