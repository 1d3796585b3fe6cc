//! The protocol-specific part of an operation, one variant per dissector. A file by itself: operations contain it, the
//! dissectors make operations, and the table names the dissectors.

#[cfg(test)]
use super::lines::Asked;
use crate::dissect::iscsi::Scsi;
use crate::dissect::rpc::Exchange;

/// The protocol-specific part of an operation.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // on the stack, one per operation
pub enum Detail<'a> {
    /// That of RPC.
    Rpc(Exchange<'a>),
    /// That of iSCSI.
    Iscsi(Scsi<'a>),
    /// That of the toy protocol.
    #[cfg(test)]
    Lines(Asked<'a>),
}
