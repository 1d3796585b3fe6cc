//! Reports that the capture's clock was set during the capture.

use brunt_core::units::counted;
use brunt_result::capture::Finding;

use super::rule::Rule;
use crate::analysis::Analysis;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: false,
};

fn find(analysis: &Analysis, ledger: &Ledger, findings: &mut Vec<Finding>) {
    if ledger.clock_steps == 0 {
        return;
    }
    let measured: u64 = analysis.all.mix.iter().map(|(_, o)| o.replies).sum();
    let across = ledger.calls_answered.saturating_sub(measured);
    findings.push(Finding {
        kind: "clock-step".into(),
        text: format!(
            "The capture's clock was set {}, so packet times jump. {} unknown, because the request \
             was outstanding at that time.",
            counted(ledger.clock_steps as usize, "time"),
            match across {
                1 => "1 latency is".to_string(),
                across => format!("{across} latencies are"),
            },
        ),
        advice: "Duration and rates include the jumps. Don't let ntpd or PTP step the clock of a capturing host."
            .into(),
    });
}
