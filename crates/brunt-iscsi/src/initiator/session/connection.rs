//! A connection of an initiator's session: its negotiated parameters, send queue and expected StatSN. Owned by the
//! session, filled by `requests` and `receive`, emptied by `send`. The one rule: a PDU gets its ExpStatSN when it
//! leaves the queue, not before.

use std::collections::VecDeque;

use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::Bhs;

use crate::params::Params;

/// A PDU to send: its header, and the part of a task's data that it carries.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Complete except for digests.
    pub bhs: Bhs,
    /// The data segment.
    pub data: Option<DataRange>,
}

/// Part of a task's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Index of the task.
    pub task: u16,
    /// Start offset in bytes.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
}

#[derive(Debug)]
pub(super) struct SessionConnection {
    pub params: Params,
    pub cid: u16,
    pub exp_stat_sn: u32,
    pub out: VecDeque<Queued>,
    pub outstanding: u32,
    pub last_heard: Nanos,
    pub pinged: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Queued {
    Command(u16),
    DataOut(QueuedDataOut),
    Bhs(Bhs),
}

/// The rest of a Data-Out sequence: bytes `at..end` of the task's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedDataOut {
    pub task: u16,
    pub itt: u32,
    pub ttt: u32,
    pub at: u32,
    pub end: u32,
    pub data_sn: u32,
}
