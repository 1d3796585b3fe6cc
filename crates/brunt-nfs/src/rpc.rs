//! Calls and replies of ONC RPC as a client sees them: how a call begins, and how every reply is checked before its
//! results are read.
//!
//! The one rule: a reply that violates the protocol is an [`NfsViolation`] that names the operation, and ends the
//! connection; a reply that refuses a call ends only this call.

use brunt_wire::cursor::padding;
use brunt_wire::rpc::{
    AuthFlavor, MARK_BYTES, OpaqueAuth, RecordMark, ReplyStatus, RpcCall, RpcMessage, RpcReply,
    SysCredentials, Xid, parse,
};
use brunt_wire::{Malformed, ParseError};
use rustix::system::uname;

/// Maximum length of a reply without its data: an RPC header with the longest verifier has 424 bytes, the results of
/// LOOKUP, the longest without data or entries, 248.
pub const REPLY_HEAD_BYTES_MAX: u32 = 1024;

/// Where xid and procedure are in a call after its record mark: words 0 and 5 (RFC 5531, 9).
const XID_AT: usize = MARK_BYTES;
const PROCEDURE_AT: usize = MARK_BYTES + 5 * 4;

/// How a server violated a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NfsViolation {
    /// A record mark, or the sum of a record's fragments, beyond the limit.
    #[error("the server sent a record of {bytes} bytes, which exceeds the maximum of {limit}")]
    Long {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// A record in too many fragments.
    #[error("the server sent a record in more than {0} fragments")]
    Fragments(u32),
    /// A record that is not RPC.
    #[error("the server sent an invalid RPC message: {0}")]
    NotRpc(ParseError),
    /// A call, which only servers get.
    #[error("the server sent a call")]
    Call,
    /// An unknown xid.
    #[error("the server replied to an unknown call, or twice (xid {0:#010x})")]
    Xid(u32),
    /// A verifier that is invalid for AUTH_SYS.
    #[error(
        "{operation}: the reply's verifier has flavor {flavor} instead of AUTH_NONE (0) or \
         AUTH_SHORT (2)"
    )]
    Verifier {
        /// The procedure.
        operation: &'static str,
        /// The verifier's flavor.
        flavor: u32,
    },
    /// A record that ends inside its results.
    #[error("{operation}: the reply is truncated: {needed} bytes are needed")]
    Short {
        /// The procedure.
        operation: &'static str,
        /// Minimum length of the results, in bytes.
        needed: usize,
    },
    /// Results that violate RFC 1813.
    #[error("{operation}: the reply is {source}")]
    Malformed {
        /// The procedure.
        operation: &'static str,
        /// What is wrong.
        source: Malformed,
    },
    /// A record that is longer than its results.
    #[error("{operation}: the reply has {bytes} excess bytes")]
    Excess {
        /// The procedure.
        operation: &'static str,
        /// Number of excess bytes.
        bytes: usize,
    },
    /// More or less data than the reply announces or the call allows.
    #[error("{operation}: the reply covers {answered} bytes of the {asked} requested")]
    Count {
        /// The procedure.
        operation: &'static str,
        /// The count in the reply, or the length of its data if that differs.
        answered: u32,
        /// The count in the call.
        asked: u32,
    },
    /// Data that is less stable than the call demanded.
    #[error("WRITE: the server committed less than requested")]
    Stability,
}

/// Begins a call in `out`, which is cleared: room for the record mark, and the header. The arguments follow, then
/// [`finish_record`].
pub fn begin_call(
    out: &mut Vec<u8>,
    xid: Xid,
    [program, version, procedure]: [u32; 3],
    sys: &[u8],
) {
    out.clear();
    out.extend_from_slice(&[0; MARK_BYTES]);
    let call = RpcCall {
        xid,
        program,
        version,
        procedure,
        credentials: OpaqueAuth {
            flavor: AuthFlavor::Sys,
            body: sys,
        },
        verifier: OpaqueAuth {
            flavor: AuthFlavor::None,
            body: &[],
        },
        body_at: 0,
    };
    call.encode(out);
}

/// Begins a call like [`begin_call`], by copying one of the same program and caller: cheaper than encoding it again.
#[inline]
pub fn begin_call_like(out: &mut Vec<u8>, other: &[u8], xid: Xid, procedure: u32) {
    out.clear();
    out.extend_from_slice(other);
    out[XID_AT..][..4].copy_from_slice(&xid.0.to_be_bytes());
    out[PROCEDURE_AT..][..4].copy_from_slice(&procedure.to_be_bytes());
}

/// Gives an already encoded call another xid.
pub(crate) fn set_xid(head: &mut [u8], xid: Xid) {
    head[XID_AT..][..4].copy_from_slice(&xid.0.to_be_bytes());
}

/// Begins the reply to an accepted call in `out`, which is cleared, like [`begin_call`].
pub fn begin_reply(out: &mut Vec<u8>, xid: Xid, status: ReplyStatus) {
    out.clear();
    out.extend_from_slice(&[0; MARK_BYTES]);
    let verifier = OpaqueAuth {
        flavor: AuthFlavor::None,
        body: &[],
    };
    let reply = RpcReply {
        xid,
        status,
        verifier: Some(verifier),
        body_at: 0,
    };
    reply.encode(out);
}

/// Writes the record mark of a message in `out`, which is followed by `data_len` bytes of data with their padding.
pub fn finish_record(out: &mut [u8], data_len: usize) {
    let len = (out.len() - MARK_BYTES + data_len + padding(data_len)) as u32;
    out[..MARK_BYTES].copy_from_slice(&RecordMark { len, last: true }.to_bytes());
}

/// The body of an AUTH_SYS credential of this host.
pub fn sys_credentials(uid: u32, gid: u32) -> Vec<u8> {
    let name = uname();
    let machine_name = name.nodename().to_bytes();
    let machine_name = &machine_name[..machine_name.len().min(255)];
    let mut body = Vec::new();
    SysCredentials {
        machine_name,
        uid,
        gid,
        groups: &[],
    }
    .encode(std::process::id(), &mut body);
    body
}

/// Parses the header of a reply to `operation`.
///
/// # Errors
/// The record is not a reply, or its verifier is wrong.
#[inline]
pub fn parse_reply<'a>(
    record: &'a [u8],
    operation: &'static str,
) -> Result<RpcReply<'a>, NfsViolation> {
    let reply = match parse(record) {
        Ok(RpcMessage::Reply(reply)) => reply,
        Ok(RpcMessage::Call(_)) => return Err(NfsViolation::Call),
        Err(error) => return Err(NfsViolation::NotRpc(error)),
    };
    match reply.verifier.map(|verifier| verifier.flavor) {
        None | Some(AuthFlavor::None | AuthFlavor::Short) => Ok(reply),
        Some(flavor) => Err(NfsViolation::Verifier {
            operation,
            flavor: flavor.number(),
        }),
    }
}

/// An error in the results of `operation`.
pub fn bad_results(operation: &'static str, error: ParseError) -> NfsViolation {
    match error {
        ParseError::Incomplete(needed) => NfsViolation::Short { operation, needed },
        ParseError::Malformed(source) => NfsViolation::Malformed { operation, source },
    }
}

/// The RFC's name of a status that refuses a call.
pub fn reply_status_name(status: ReplyStatus) -> &'static str {
    match status {
        ReplyStatus::Success => "SUCCESS",
        ReplyStatus::ProgUnavail => "PROG_UNAVAIL",
        ReplyStatus::ProgMismatch => "PROG_MISMATCH",
        ReplyStatus::ProcUnavail => "PROC_UNAVAIL",
        ReplyStatus::GarbageArgs => "GARBAGE_ARGS",
        ReplyStatus::SystemErr => "SYSTEM_ERR",
        ReplyStatus::RpcMismatch => "RPC_MISMATCH",
        ReplyStatus::AuthError(1) => "AUTH_BADCRED",
        ReplyStatus::AuthError(2) => "AUTH_REJECTEDCRED",
        ReplyStatus::AuthError(5) => "AUTH_TOOWEAK",
        ReplyStatus::AuthError(_) => "AUTH_ERROR",
    }
}
