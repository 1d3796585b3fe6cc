//! What reports show in place of names, addresses and ids. Implemented by the trace's pseudonyms.

use std::fmt::Debug;

use brunt_wire::net::IpAddress;

use super::OperationEvent;
use crate::operation::{ChecksumRun, FileKey};

/// Stands other things in for what identifies people and machines.
pub trait Hide: Debug + Send {
    /// In place of an address.
    fn address(&self, address: IpAddress) -> IpAddress;
    /// In place of a file's key.
    fn file(&self, file: FileKey) -> FileKey;
    /// In place of a name.
    fn name(&self, name: &[u8]) -> Vec<u8>;
    /// In place of a block's sum.
    fn sum(&self, sum: u64) -> u64;
}

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
