//! A request in a session: its state and its current command. Used by the other files of `session`.
//!
//! The rule: only [`plan`] decides which commands make up a request; the server's flags decide what is possible.

use brunt_block::{Buf, DeviceError, Op};
use brunt_core::Nanos;
use brunt_wire::nbd::transmission::command_flag;
use brunt_wire::nbd::{NbdCommand, NbdHeaders, export_flag};

use super::coverage::Coverage;
use crate::nbd::export::NbdExport;

/// Maximum bytes covered by a command without payload if headers aren't extended: a round number below 2^32.
const EFFECT_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NbdTaskState {
    Free,
    Waiting,
    Sent,
    Answered(Result<(), DeviceError>),
}

/// The caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerRequest {
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    pub force_unit_access: bool,
}

/// One command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub command: NbdCommand,
    pub flags: u16,
    pub offset: u64,
    pub len: u64,
    /// Whether it writes zeros as data, for servers without WRITE_ZEROES.
    pub from_zeros: bool,
}

impl Piece {
    const NONE: Piece = Piece {
        command: NbdCommand::Flush,
        flags: 0,
        offset: 0,
        len: 0,
        from_zeros: false,
    };
}

/// The completed part of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub bytes: u64,
    pub flushed: bool,
}

#[derive(Debug)]
pub(super) struct NbdTask {
    pub state: NbdTaskState,
    pub tag: u64,
    pub ask: CallerRequest,
    pub done: Done,
    pub piece: Piece,
    pub buf: Buf,
    /// The cookie of the last command sent.
    pub cookie: u64,
    /// The received parts of a read.
    pub coverage: Coverage,
    /// The first error in a reply of several chunks.
    pub error: Option<u32>,
    /// Number of times that the current command was sent.
    pub tries: u32,
    /// Order of submission.
    pub sequence: u64,
    pub deadline: Nanos,
    /// Whether it timed out, so that the connection is dropped.
    pub late: bool,
}

impl NbdTask {
    pub fn new() -> NbdTask {
        NbdTask {
            state: NbdTaskState::Free,
            tag: 0,
            ask: CallerRequest {
                op: Op::Flush,
                offset: 0,
                len: 0,
                force_unit_access: false,
            },
            done: Done::default(),
            piece: Piece::NONE,
            buf: Buf::empty(),
            cookie: 0,
            coverage: Coverage::default(),
            error: None,
            tries: 0,
            sequence: 0,
            deadline: Nanos::MAX,
            late: false,
        }
    }
}

/// The next command of a request; `None` when it is complete.
///
/// # Errors
/// The server doesn't support the request.
pub(super) fn plan(
    export: &NbdExport,
    block_bytes: u32,
    ask: CallerRequest,
    done: Done,
) -> Result<Option<Piece>, DeviceError> {
    let offset = ask.offset + done.bytes;
    let left = ask.len - done.bytes;
    let can_flush = export.has(export_flag::SEND_FLUSH);
    let has_fua = export.has(export_flag::SEND_FUA);
    if left == 0 || ask.op == Op::Flush {
        // A flush also stands in for a missing FUA. Without FLUSH there is nothing to send.
        let wanted =
            ask.op == Op::Flush || (ask.force_unit_access && !has_fua && ask.op != Op::Read);
        let flush = wanted && can_flush && !done.flushed;
        return Ok(flush.then_some(Piece::NONE));
    }
    let fua = if ask.force_unit_access && has_fua {
        command_flag::FUA
    } else {
        0
    };
    let payload_max = u64::from(export.payload_max(block_bytes));
    if payload_max == 0 && matches!(ask.op, Op::Read | Op::Write | Op::WriteZeroes) {
        return Err(DeviceError::OutOfRange);
    }
    let effect_max = match export.headers {
        NbdHeaders::Extended => u64::MAX,
        _ => EFFECT_BYTES_MAX,
    };
    let zeroes = export.has(export_flag::SEND_WRITE_ZEROES);
    let (command, flags, most, from_zeros) = match ask.op {
        Op::Read => (NbdCommand::Read, 0, payload_max, false),
        Op::Write => (NbdCommand::Write, fua, payload_max, false),
        Op::Unmap if export.has(export_flag::SEND_TRIM) => {
            (NbdCommand::Trim, fua, effect_max, false)
        }
        // Without NO_HOLE, so the server may leave holes.
        Op::Unmap if zeroes => (NbdCommand::WriteZeroes, fua, effect_max, false),
        Op::Unmap => return Err(DeviceError::Unsupported),
        Op::WriteZeroes if zeroes => (
            NbdCommand::WriteZeroes,
            fua | command_flag::NO_HOLE,
            effect_max,
            false,
        ),
        Op::WriteZeroes => (NbdCommand::Write, fua, payload_max, true),
        Op::Flush => unreachable!("flushes were handled above"),
    };
    Ok(Some(Piece {
        command,
        flags,
        offset,
        len: left.min(most),
        from_zeros,
    }))
}
