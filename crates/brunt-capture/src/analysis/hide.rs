//! Operations and sums as a report that hides names, addresses and ids sees them.

use super::OperationEvent;
use crate::hide::Hide;
use crate::operation::ChecksumRun;

impl OperationEvent {
    /// The same without what identifies anybody.
    pub(super) fn hidden(self, hide: &dyn Hide) -> OperationEvent {
        OperationEvent {
            client: hide.address(self.client),
            file: self.file.map(|file| hide.file(file)),
            ..self
        }
    }
}

/// Hands on a run of sums without what identifies their data.
pub(super) fn hidden_sums(
    run: &ChecksumRun<'_>,
    hide: &dyn Hide,
    mut with: impl FnMut(&ChecksumRun<'_>),
) {
    let sums: Vec<u64> = run.sums.iter().map(|sum| hide.sum(*sum)).collect();
    with(&ChecksumRun {
        file: hide.file(run.file),
        sums: &sums,
        ..*run
    });
}
