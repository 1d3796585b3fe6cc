//! The null server's calls and replies: what has arrived, and the reply to each call. Without I/O.
//!
//! The rule: an RPC record gets one reply with its xid; anything else ends the connection.

use std::sync::{Mutex, MutexGuard, PoisonError};

use brunt_wire::cursor::padding;
use brunt_wire::nfs::v3::{self, Args, NfsTime, Procedure, ResultBody, Results};
use brunt_wire::nfs::{FileHandle, mount};
use brunt_wire::rpc::portmap::{PORTMAP_GETPORT, PORTMAP_TCP, PORTMAP_VERSION, PortMapping};
use brunt_wire::rpc::{
    MARK_BYTES, PROGRAM_MOUNT, PROGRAM_NFS, PROGRAM_PORTMAP, RecordMark, ReplyStatus, RpcCall,
    RpcMessage, Xid, parse,
};
use brunt_wire::{Cursor, ParseError, XdrWriter};

use super::procedures::Procedures;
use super::{EXPORT, TRANSFER_BYTES_MAX};
use crate::rpc::{NfsViolation, begin_reply, finish_record};

/// Maximum length of a call without its data: the RPC header has at most 848 bytes, and the longest arguments, those
/// of SYMLINK, 5284.
const HEAD_BYTES_MAX: u32 = 8 << 10;
/// Maximum length of a call.
pub const CALL_BYTES_MAX: u32 = TRANSFER_BYTES_MAX + HEAD_BYTES_MAX;
/// The user and group for calls without AUTH_SYS.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NfsCallError {
    /// A record that is longer than any call.
    #[error("the client sent a record of {bytes} bytes, which exceeds the maximum of {limit}")]
    Long {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// A record in too many fragments.
    #[error("the client sent a record in too many fragments")]
    Fragments,
    /// A record that is not RPC.
    #[error("the client sent an invalid RPC message: {0}")]
    NotRpc(ParseError),
    /// A reply, which only clients get.
    #[error("the client sent a reply")]
    Reply,
}

impl NfsCallError {
    /// The error of a record in several fragments.
    pub fn of_record(violation: NfsViolation) -> NfsCallError {
        match violation {
            NfsViolation::Long { bytes, limit } => NfsCallError::Long { bytes, limit },
            _ => NfsCallError::Fragments,
        }
    }
}

/// What the received bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsArrived {
    /// Too few bytes to decide.
    More,
    /// A complete call: a record mark, then `len` bytes.
    Call {
        /// Length of the record, without its mark.
        len: usize,
    },
    /// A WRITE that is complete except for its data.
    Write {
        /// Length of the record's first part, without its mark.
        head_len: usize,
        /// Length of the data with its padding, which ends the record.
        data_len: usize,
    },
    /// A record in several fragments.
    Fragments,
}

/// How much data a call moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfsServed {
    /// Zeros to send after the reply, without their padding.
    pub read_bytes: usize,
    /// Data that was received.
    pub written_bytes: usize,
}

/// The service, for all connections.
#[derive(Debug)]
pub struct NfsService {
    procedures: Mutex<Procedures>,
}

impl NfsService {
    /// Creates a service; its handles and write verifier differ from those of services with another `instance`.
    pub fn new(instance: u64) -> NfsService {
        NfsService {
            procedures: Mutex::new(Procedures::new(instance)),
        }
    }

    /// What the received bytes begin with.
    ///
    /// # Errors
    /// No valid call begins like this.
    #[inline]
    pub fn examine(bytes: &[u8]) -> Result<NfsArrived, NfsCallError> {
        let Some(mark) = bytes.first_chunk::<MARK_BYTES>() else {
            return Ok(NfsArrived::More);
        };
        let RecordMark { len, last } = RecordMark::from_bytes(*mark);
        let long = |limit| NfsCallError::Long {
            bytes: len.into(),
            limit,
        };
        if len > CALL_BYTES_MAX {
            return Err(long(CALL_BYTES_MAX));
        }
        if !last {
            return Ok(NfsArrived::Fragments);
        }
        let arrived = &bytes[MARK_BYTES..];
        if arrived.len() >= len as usize {
            return Ok(NfsArrived::Call { len: len as usize });
        }
        if len <= HEAD_BYTES_MAX {
            return Ok(NfsArrived::More);
        }
        match write_data_at(arrived) {
            Some(head_len) if head_len < len as usize => Ok(NfsArrived::Write {
                head_len,
                data_len: len as usize - head_len,
            }),
            // Only calls with data are long.
            _ if arrived.len() >= HEAD_BYTES_MAX as usize => Err(long(HEAD_BYTES_MAX)),
            _ => Ok(NfsArrived::More),
        }
    }

    /// Executes the call in a record, whose data may be missing from the end, and writes the reply with its record
    /// mark to `reply`. `record_len` is the length of the whole record; `port` is this server's port.
    ///
    /// # Errors
    /// The record is not a call.
    pub fn answer(
        &self,
        record: &[u8],
        record_len: usize,
        (port, now): (u16, NfsTime),
        reply: &mut Vec<u8>,
    ) -> Result<NfsServed, NfsCallError> {
        let call = match parse(record) {
            Ok(RpcMessage::Call(call)) => call,
            Ok(RpcMessage::Reply(_)) => return Err(NfsCallError::Reply),
            Err(error) => {
                let xid = of_other_version(record).ok_or(NfsCallError::NotRpc(error))?;
                begin_reply(reply, xid, ReplyStatus::RpcMismatch);
                for version in [2, 2] {
                    XdrWriter::new(reply).u32(version);
                }
                finish_record(reply, 0);
                return Ok(NfsServed::default());
            }
        };
        let body = Cursor::new(&record[call.body_at..]);
        let body_len = record_len - call.body_at;
        match (call.program, call.version) {
            (PROGRAM_NFS, 3) => return Ok(self.nfs(&call, body, body_len, now, reply)),
            (PROGRAM_MOUNT, 3) => self.mount(&call, body, reply),
            (PROGRAM_PORTMAP, PORTMAP_VERSION) => getport(&call, body, port, reply),
            (PROGRAM_NFS | PROGRAM_MOUNT | PROGRAM_PORTMAP, _) => {
                begin_reply(reply, call.xid, ReplyStatus::ProgMismatch);
                let version = match call.program {
                    PROGRAM_PORTMAP => PORTMAP_VERSION,
                    _ => 3,
                };
                XdrWriter::new(reply).u32(version);
                XdrWriter::new(reply).u32(version);
            }
            _ => begin_reply(reply, call.xid, ReplyStatus::ProgUnavail),
        }
        finish_record(reply, 0);
        Ok(NfsServed::default())
    }

    fn nfs(
        &self,
        call: &RpcCall<'_>,
        mut body: Cursor<'_>,
        body_len: usize,
        now: NfsTime,
        reply: &mut Vec<u8>,
    ) -> NfsServed {
        let mut served = NfsServed::default();
        let Some(procedure) = Procedure::from_number(call.procedure) else {
            begin_reply(reply, call.xid, ReplyStatus::ProcUnavail);
            finish_record(reply, 0);
            return served;
        };
        let args = v3::parse_args(procedure, &mut body).ok();
        let Some(args) = args.filter(|args| is_whole(args, body_len)) else {
            begin_reply(reply, call.xid, ReplyStatus::GarbageArgs);
            finish_record(reply, 0);
            return served;
        };
        if let Args::Write { data, .. } = &args {
            served.written_bytes = data.len as usize;
        }
        let caller = || match call.credentials.sys() {
            Some(sys) => (sys.uid, sys.gid),
            None => NOBODY,
        };
        begin_reply(reply, call.xid, ReplyStatus::Success);
        let mut procedures = self.lock();
        let results = procedures.perform(&args, caller, now);
        results.encode(procedure, reply);
        if let Results {
            body: ResultBody::Read { count, .. },
            ..
        } = results
        {
            served.read_bytes = count as usize;
        }
        finish_record(reply, served.read_bytes);
        served
    }

    fn lock(&self) -> MutexGuard<'_, Procedures> {
        self.procedures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn mount(&self, call: &RpcCall<'_>, mut body: Cursor<'_>, reply: &mut Vec<u8>) {
        if mount::PROCEDURE_NAMES.len() <= call.procedure as usize {
            return begin_reply(reply, call.xid, ReplyStatus::ProcUnavail);
        }
        let Ok(args) = mount::parse_args(call.procedure, &mut body) else {
            return begin_reply(reply, call.xid, ReplyStatus::GarbageArgs);
        };
        begin_reply(reply, call.xid, ReplyStatus::Success);
        match (call.procedure, args) {
            (1, mount::Args::Mount(path)) => {
                let procedures = self.lock();
                let nodes = &procedures.nodes;
                let found = nodes.walk(path).map(|id| nodes.node(id));
                let found = found.and_then(|node| node.directory().map(|_| &node.handle));
                match found {
                    Ok(handle) => mount::Results::Mounted(FileHandle(handle)).encode(reply),
                    Err(status) => mount::Results::Failed(status.0).encode(reply),
                }
            }
            // DUMP: no client is remembered.
            (2, _) => XdrWriter::new(reply).boolean(false),
            // EXPORT: one directory, for all clients.
            (5, _) => {
                let mut out = XdrWriter::new(reply);
                out.boolean(true);
                out.opaque(EXPORT.as_bytes());
                out.boolean(false);
                out.boolean(false);
            }
            _ => {}
        }
    }
}

/// The xid of a call in a version of RPC other than 2 (RFC 5531, 9).
fn of_other_version(record: &[u8]) -> Option<Xid> {
    let mut cur = Cursor::new(record);
    let mut word = || cur.u32().ok();
    let (xid, kind, version) = (word()?, word()?, word()?);
    (kind == 0 && version != 2).then_some(Xid(xid))
}

/// Where the data of a WRITE begins, if these bytes are the beginning of one.
fn write_data_at(record: &[u8]) -> Option<usize> {
    let Ok(RpcMessage::Call(call)) = parse(record) else {
        return None;
    };
    if (call.program, call.version, call.procedure) != (PROGRAM_NFS, 3, Procedure::Write as u32) {
        return None;
    }
    let mut body = Cursor::new(&record[call.body_at..]);
    match v3::parse_args(Procedure::Write, &mut body) {
        Ok(Args::Write { data, .. }) => Some(call.body_at + data.at),
        _ => None,
    }
}

/// Whether the data of a WRITE has the announced length, in arguments of `len` bytes.
fn is_whole(args: &Args<'_>, len: usize) -> bool {
    match args {
        Args::Write { data, .. } => {
            let data_len = data.len as usize;
            data.at + data_len + padding(data_len) == len
        }
        _ => true,
    }
}

/// Executes a port mapper call: NFS and MOUNT are at the port on which the call arrived.
fn getport(call: &RpcCall<'_>, mut body: Cursor<'_>, port: u16, reply: &mut Vec<u8>) {
    let status = match call.procedure {
        0 => return begin_reply(reply, call.xid, ReplyStatus::Success),
        PORTMAP_GETPORT => PortMapping::parse(&mut body).map_err(|_| ReplyStatus::GarbageArgs),
        _ => Err(ReplyStatus::ProcUnavail),
    };
    match status {
        Err(status) => begin_reply(reply, call.xid, status),
        Ok(mapping) => {
            let is_ours = matches!(mapping.program, PROGRAM_NFS | PROGRAM_MOUNT)
                && mapping.version == 3
                && mapping.protocol == PORTMAP_TCP;
            begin_reply(reply, call.xid, ReplyStatus::Success);
            XdrWriter::new(reply).u32(if is_ours { port.into() } else { 0 });
        }
    }
}
