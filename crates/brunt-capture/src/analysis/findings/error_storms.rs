//! Finds operations that keep failing in the same way. Every path search looks up names that don't exist, so such
//! errors are reported only in large numbers.

use std::borrow::Cow;

use brunt_core::units::counted;
use brunt_result::capture::Finding;
use brunt_wire::scsi::sense::ScsiStatus;

use super::rule::{Rule, percent};
use crate::analysis::Analysis;
use crate::dissect::iscsi::SCSI;
use crate::ledger::Ledger;

/// The rule.
pub(super) const RULE: Rule = Rule {
    find,
    needs_operations: true,
};

fn find(analysis: &Analysis, _: &Ledger, findings: &mut Vec<Finding>) {
    let calls = analysis.all.mix.calls();
    for storm in analysis.all.errors.storms() {
        let of_all = percent(storm.count, calls);
        let of_these = percent(storm.count, analysis.all.mix.of(storm.operation).calls);
        let name = storm.operation.name();
        // Programs search their paths by looking up names that don't exist.
        let ordinary = matches!(
            (name, storm.status.status),
            ("LOOKUP" | "ACCESS" | "OPEN", 2)
        );
        let threshold = if ordinary { 20.0 } else { 1.0 };
        if of_all < threshold || storm.count < 50 {
            continue;
        }
        let status = storm.status.name();
        findings.push(Finding {
            kind: "error-storm".into(),
            text: format!(
                "{} issued {} {name}s that failed with {status}: {of_these:.0} % of all {name}s \
                 and {of_all:.1} % of all operations; {} alone had {}.",
                counted(storm.clients, "client"),
                storm.count,
                storm.first.0,
                storm.first.1
            ),
            advice: Cow::Borrowed(match storm.status.status {
                status if storm.status.protocol == SCSI => scsi_advice(status),
                70 => "A stale handle never becomes valid again: remount on those clients, or \
                    restart the programs that hold the file open.",
                13 | 1 => "Programs retry after permission errors: check permissions and the export's options.",
                28 | 69 => "Writes fail because the file system or quota is full: free space or raise the quota.",
                _ => "An operation that keeps failing the same way costs the server as much as a \
                    successful one.",
            }),
        });
    }
}

/// Advice for a SCSI status (SAM-5, 5.3.1).
fn scsi_advice(status: u32) -> &'static str {
    let status = u8::try_from(status).map(ScsiStatus::from_byte);
    match status {
        Ok(ScsiStatus::CheckCondition) => {
            "The sense data contains the reason: see `sense_key`, `asc` and `ascq` in table scsi_commands of a trace."
        }
        Ok(ScsiStatus::Busy | ScsiStatus::TaskSetFull) => {
            "The logical unit's queue is full: lower the initiators' queue depth, or spread the load over more units."
        }
        Ok(ScsiStatus::ReservationConflict) => {
            "Another initiator holds a reservation: find its key, and preempt or clear it if that initiator is gone."
        }
        Ok(ScsiStatus::TaskAborted) => {
            "Another initiator's reset or a timeout ended these commands: look for task \
             management in the capture."
        }
        _ => {
            "An operation that keeps failing the same way costs the target as much as a \
             successful one."
        }
    }
}
