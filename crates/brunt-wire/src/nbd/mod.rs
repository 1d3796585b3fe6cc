//! The NBD protocol (github.com/NetworkBlockDevice/nbd, doc/proto.md, and the EXTENDED_HEADERS extension on its
//! branch extension-ext-header). Covers only the bytes; client and server logic is in `brunt-store`.
//!
//! A connection begins with a greeting and option negotiation ([`negotiation`]); then requests and replies are
//! exchanged ([`transmission`]), with one of three header styles. All numbers are big-endian.
//!
//! The one rule: a length is checked against a limit of this module before it is used as a size.

pub mod negotiation;
pub mod transmission;

pub use negotiation::{NbdBlockSizes, NbdGreeting, NbdInfo, NbdOptionReply};
pub use transmission::{NbdChunk, NbdCommand, NbdReply, NbdRequest};

/// The port assigned by IANA.
pub const PORT: u16 = 10809;
/// Maximum length of a string: export names, descriptions, messages.
pub const STRING_BYTES_MAX: usize = 4096;
/// Maximum payload of a message unless another size is negotiated ("Size constraints").
pub const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;
/// Maximum value of the minimum block size.
pub const BLOCK_BYTES_MAX: u32 = 1 << 16;

/// Header styles of the transmission phase. Each style supports everything that the previous ones do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NbdHeaders {
    /// Simple replies only: the original protocol of 1997.
    Simple,
    /// Structured replies: holes, reads in parts, error messages.
    Structured,
    /// 32-byte headers with 64-bit lengths.
    Extended,
}

/// Transmission flags: the properties of an export.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are rejected.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The command flag FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The disk is rotational.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES and NO_HOLE are supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The command flag DF is supported.
    pub const SEND_DF: u16 = 1 << 7;
    /// Multiple connections see consistent data, including after a flush on one of them.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The command flag FAST_ZERO is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// The flags' names, in bit order.
    pub const NAMES: [(u16, &str); 10] = [
        (READ_ONLY, "READ_ONLY"),
        (SEND_FLUSH, "FLUSH"),
        (SEND_FUA, "FUA"),
        (ROTATIONAL, "ROTATIONAL"),
        (SEND_TRIM, "TRIM"),
        (SEND_WRITE_ZEROES, "WRITE_ZEROES"),
        (SEND_DF, "DF"),
        (CAN_MULTI_CONN, "CAN_MULTI_CONN"),
        (SEND_CACHE, "CACHE"),
        (SEND_FAST_ZERO, "FAST_ZERO"),
    ];
}

/// The bits of `base:allocation`.
pub mod allocation {
    /// Name of the metadata context.
    pub const CONTEXT: &str = "base:allocation";
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// Error numbers in replies.
pub mod errno {
    /// Operation not permitted: the export is read-only.
    pub const PERM: u32 = 1;
    /// Input/output error.
    pub const IO: u32 = 5;
    /// Cannot allocate memory.
    pub const NOMEM: u32 = 12;
    /// Invalid argument.
    pub const INVAL: u32 = 22;
    /// No space left on device.
    pub const NOSPC: u32 = 28;
    /// Value too large.
    pub const OVERFLOW: u32 = 75;
    /// Operation not supported.
    pub const NOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const SHUTDOWN: u32 = 108;

    /// The name of the error in the NBD specification.
    pub fn name(error: u32) -> Option<&'static str> {
        Some(match error {
            PERM => "NBD_EPERM",
            IO => "NBD_EIO",
            NOMEM => "NBD_ENOMEM",
            INVAL => "NBD_EINVAL",
            NOSPC => "NBD_ENOSPC",
            OVERFLOW => "NBD_EOVERFLOW",
            NOTSUP => "NBD_ENOTSUP",
            SHUTDOWN => "NBD_ESHUTDOWN",
            _ => return None,
        })
    }
}
