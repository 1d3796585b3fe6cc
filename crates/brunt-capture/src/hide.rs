//! What reports and tables show in place of names, addresses and ids. Implemented by the trace's pseudonyms, used by analyses.
//! The one rule: the same thing is always shown as the same.

use std::fmt::Debug;

use brunt_wire::net::IpAddress;

use crate::key::FileKey;

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
