//! Converts bytes to messages and back. Used by all protocol implementations of Brunt; depends on none. The
//! one rule: nothing here waits, reads a clock, allocates by an unchecked length, or is unsafe.
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

pub use cursor::{Cursor, FileData, ParseError};

/// A peer sent bytes that its protocol does not allow. Count it, answer as the protocol says,
/// carry on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed at byte {offset}: {what}")]
pub struct Malformed {
    /// Where in the message, in bytes from its start.
    pub offset: usize,
    /// What the protocol wanted there.
    pub what: &'static str,
}

impl Malformed {
    /// A complaint about the byte at `offset`.
    pub const fn new(offset: usize, what: &'static str) -> Malformed {
        Malformed { offset, what }
    }
}
