//! Replaces identifying data in operations and checksums with pseudonyms, for reports that hide names, addresses and
//! ids.

use super::OperationEvent;
use crate::hide::Hide;
use crate::operation::ChecksumRun;

impl OperationEvent {
    /// The event with identifying fields replaced.
    pub(super) fn hidden(self, hide: &dyn Hide) -> OperationEvent {
        OperationEvent {
            client: hide.address(self.client),
            server: hide.address(self.server),
            file: self.file.map(|file| hide.file(file)),
            ..self
        }
    }
}

/// Passes on a run of checksums with its identifying fields replaced.
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
