//! Converts bytes to messages and back. All protocol implementations in Brunt use it; it depends on none of them. The
//! one rule: nothing here waits, reads a clock, allocates based on an unchecked length, or is unsafe.
#![forbid(unsafe_code)]

pub mod cursor;
pub mod iscsi;
pub mod nbd;
pub mod net;
pub mod nfs;
pub mod pcap;
pub mod rpc;
pub mod scsi;
pub mod sheepdog;
pub mod xdr;

pub use cursor::{Cursor, FileData, ParseError};
pub use xdr::XdrWriter;

/// A peer violated a protocol. Count the error, respond as the protocol requires, and carry on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed at byte {offset}: {what}")]
pub struct Malformed {
    /// Offset in bytes from the start of the message.
    pub offset: usize,
    /// The requirement of the protocol that was violated.
    pub what: &'static str,
}

impl Malformed {
    /// An error at the byte at `offset`.
    pub const fn new(offset: usize, what: &'static str) -> Malformed {
        Malformed { offset, what }
    }
}
