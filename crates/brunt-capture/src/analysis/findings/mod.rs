//! Findings for an administrator: a statement with its evidence. Each rule is one file here and one line in
//! [`RULES`]. The one rule: a finding is reported only above its threshold, with the figures it is based on.

mod clock_step;
mod commits;
mod duplicates;
mod error_storms;
mod getattr_storm;
mod hot_files;
mod loss;
mod misaligned;
mod not_understood;
mod one_sided;
mod rule;
mod slow_tail;

use brunt_result::capture::Finding;

use super::Analysis;
use crate::ledger::Ledger;
use rule::Rule;

/// All rules, in the order in which their findings are listed. Losses come early: if most data is missing, the few
/// remaining operations prove nothing else.
const RULES: &[Rule] = &[
    clock_step::RULE,
    loss::RULE,
    not_understood::RULE,
    one_sided::RULE,
    error_storms::RULE,
    getattr_storm::RULE,
    misaligned::RULE,
    hot_files::RULE,
    slow_tail::RULE,
    duplicates::RULE,
    commits::RULE,
];

/// With fewer operations, most rules report nothing.
const OPERATIONS_MIN: u64 = 100;

/// All findings.
pub(super) fn find(analysis: &Analysis, ledger: &Ledger) -> Vec<Finding> {
    let mut findings = Vec::new();
    let enough = analysis.all.mix.calls() >= OPERATIONS_MIN;
    for rule in RULES.iter().filter(|rule| enough || !rule.needs_operations) {
        (rule.find)(analysis, ledger, &mut findings);
    }
    findings
}

/// Capture losses are found from the counters alone, without an analysis.
pub fn ledger_findings(ledger: &Ledger) -> Vec<Finding> {
    let mut findings = Vec::new();
    (loss::RULE.find)(&Analysis::new(), ledger, &mut findings);
    findings
}

#[cfg(test)]
mod tests {
    use brunt_wire::net::NextHeader;

    use super::*;
    use crate::operation::Sink;

    /// A capture of unsupported traffic is distinguished from an idle one; a little ARP is not reported.
    #[test]
    fn a_capture_of_other_traffic_is_reported() {
        let mut analysis = Analysis::new();
        (0..12).for_each(|_| analysis.on_not_understood(NextHeader::EtherType(0x88b5), 64));
        let found = |packets| {
            find(
                &analysis,
                &Ledger {
                    packets,
                    ..Ledger::default()
                },
            )
        };
        let finding = &found(20)[0];
        assert_eq!(finding.kind, "not-understood");
        assert!(
            finding.text.contains("12 of 20 packets (60 %)"),
            "{}",
            finding.text
        );
        assert!(
            finding.text.contains("12 of EtherType 0x88b5"),
            "{}",
            finding.text
        );
        assert!(found(1000).is_empty());
    }

    /// Missing data is reported with its cause even if few operations remain; operations cut off by the start or end
    /// of the capture are not.
    #[test]
    fn missing_data_is_reported_with_its_cause() {
        let check = |ledger: Ledger, expected: Option<(&str, &str)>| {
            let found = find(&Analysis::new(), &ledger);
            let found = found
                .first()
                .map(|finding| (&*finding.kind, &*finding.advice));
            assert_eq!(
                found.map(|(kind, _)| kind),
                expected.map(|(kind, _)| kind),
                "{ledger:?}"
            );
            if let (Some((_, advice)), Some((_, cause))) = (found, expected) {
                assert!(advice.contains(cause), "{advice}");
            }
        };
        let seen = Ledger {
            packets: 1000,
            calls: 50,
            replies: 50,
            ..Ledger::default()
        };
        check(seen.clone(), None);
        check(
            Ledger {
                replies_unmatched: 2,
                records_damaged: 2,
                ..seen.clone()
            },
            None,
        );
        // Most calls lost: too few are left for any other finding.
        let lost = Ledger {
            calls: 8,
            replies: 419,
            replies_unmatched: 411,
            ..seen.clone()
        };
        check(lost.clone(), Some(("capture-loss", "drops packets")));
        check(
            Ledger {
                packets_cut: 600,
                ..lost
            },
            Some(("capture-loss", "snap length")),
        );
        // Truncated so that no message is complete.
        let cut = Ledger {
            packets: 600,
            packets_cut: 600,
            records_lost: 200,
            ..Ledger::default()
        };
        check(cut, Some(("capture-loss", "snap length")));
        check(
            Ledger {
                packets_dropped: 1,
                ..seen.clone()
            },
            Some(("capture-loss", "--ring")),
        );
        // Every header was seen, but two thirds of the data was not.
        let damaged = Ledger {
            records_damaged: 49,
            data_bytes: 1 << 20,
            data_bytes_missing: 2 << 20,
            ..seen
        };
        check(
            damaged.clone(),
            Some(("capture-incomplete", "drops packets")),
        );
        check(
            Ledger {
                packets_cut: 600,
                ..damaged
            },
            Some(("capture-incomplete", "snap length")),
        );
    }
}
