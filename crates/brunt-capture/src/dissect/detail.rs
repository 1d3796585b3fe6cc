//! The protocol-specific part of an operation, one variant per dissector. It has its own file to avoid an import
//! cycle: operations contain it, the dissectors create operations, and the table names the dissectors.

#[cfg(test)]
use super::lines::Asked;
use crate::dissect::iscsi::Scsi;
use crate::dissect::rpc::Exchange;

/// The protocol-specific part of an operation.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // on the stack, one per operation
pub enum Detail<'a> {
    /// RPC.
    Rpc(Exchange<'a>),
    /// iSCSI.
    Iscsi(Scsi<'a>),
    /// The toy protocol.
    #[cfg(test)]
    Lines(Asked<'a>),
}
