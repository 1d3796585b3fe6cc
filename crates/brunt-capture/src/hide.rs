//! Replaces names, addresses and ids in reports and tables. Implemented by the trace's pseudonyms, used by
//! analyses. The one rule: the same input always gets the same replacement.

use std::fmt::Debug;

use brunt_wire::net::IpAddress;

use crate::key::FileKey;

/// Replaces anything that identifies people or machines.
pub trait Hide: Debug + Send + Sync {
    /// Replaces an address.
    fn address(&self, address: IpAddress) -> IpAddress;
    /// Replaces a file's key.
    fn file(&self, file: FileKey) -> FileKey;
    /// Replaces a name.
    fn name(&self, name: &[u8]) -> Vec<u8>;
    /// Replaces a block's checksum.
    fn sum(&self, sum: u64) -> u64;
}
