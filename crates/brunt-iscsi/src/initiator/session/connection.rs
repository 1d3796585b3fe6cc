//! One connection of an initiator's session: what was negotiated, what is queued on it, which StatSN it
//! expects. Owned by the session, filled by `requests` and `receive`, emptied by `send`. The one rule: a
//! PDU gets its ExpStatSN when it leaves the queue, not before.

use std::collections::VecDeque;

use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::Bhs;

use crate::params::Params;

/// One PDU to send: its header, and which part of which task's data.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Complete but for digests.
    pub bhs: Bhs,
    /// The data segment: this many bytes of the task's data from an offset on.
    pub data: Option<DataRange>,
}

/// Part of a task's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Whose.
    pub task: u16,
    /// From here on, in bytes.
    pub start: usize,
    /// In bytes.
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
    DataOut {
        task: u16,
        itt: u32,
        ttt: u32,
        at: u32,
        end: u32,
        data_sn: u32,
    },
    Bhs(Bhs),
}
