//! The fields of an operation that analyses use. Created by the sink, and when a trace is read.

use brunt_core::TransferOutcome;
use brunt_wire::net::IpAddress;

use crate::operation::{FileKey, Operation, OperationKind, Protocol, TransferDirection};

/// The fields of an operation that analyses use.
#[derive(Clone, Copy, Debug)]
pub struct OperationEvent {
    /// The operation's number, in the order in which requests were seen.
    pub record_id: u64,
    /// When the call was sent: nanoseconds since 1970.
    pub time_ns: u64,
    /// Time from call to reply, in nanoseconds; `None` without a reply.
    pub latency_ns: Option<u64>,
    /// The client.
    pub client: IpAddress,
    /// The server.
    pub server: IpAddress,
    /// The kind of operation.
    pub kind: OperationKind,
    /// The protocol, which defines the meaning of `error`.
    pub protocol: Protocol,
    /// Direction of the requested data, if any.
    pub direction: Option<TransferDirection>,
    /// Whether the operation moved the data.
    pub outcome: TransferOutcome,
    /// The file or directory.
    pub file: Option<FileKey>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes of file data moved; zero unless the operation succeeded.
    pub bytes: u32,
    /// The status of a failed operation.
    pub error: Option<u32>,
    /// Calls outstanding when this one was sent, including this one.
    pub outstanding: u32,
}

impl OperationEvent {
    /// Reduces an operation.
    #[inline]
    pub fn of(operation: &Operation<'_>) -> OperationEvent {
        let outcome = operation.outcome();
        OperationEvent {
            record_id: operation.record_id,
            time_ns: operation.request.first_ns,
            latency_ns: operation.latency_ns(),
            client: operation.peers.client.address,
            server: operation.peers.server.address,
            kind: operation.summary.kind,
            protocol: operation.summary.protocol,
            direction: operation.summary.direction,
            outcome,
            file: operation.summary.file,
            offset: operation.summary.offset.unwrap_or(0),
            bytes: if outcome.is_transfer() {
                operation.summary.moved_bytes
            } else {
                0
            },
            error: operation.summary.status.filter(|status| *status != 0),
            outstanding: operation.outstanding,
        }
    }

    /// Direction of the data, if this is a transfer.
    #[inline]
    pub fn transfer(&self) -> Option<TransferDirection> {
        self.direction.filter(|_| self.outcome.is_transfer())
    }
}
