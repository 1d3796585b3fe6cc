//! A session with one LUN, after login: sends commands, receives data and responses (RFC 7143, 4 and 11).
//!
//! Its driver moves the bytes: it passes requests to [`InitiatorSession::submit`], sends the PDUs from
//! [`InitiatorSession::pull`], asks [`InitiatorSession::on_header`] where a PDU's data goes, puts it there, reports the
//! PDU with [`InitiatorSession::on_pdu`], and retires answered tasks. A blocking driver probes the LUN (`connect`); a
//! driver on a ring serves requests (`device`). The session outlives its connections: after a loss, its tasks wait for
//! new ones ([`InitiatorSession::detach`], [`InitiatorSession::attach`]).
//!
//! After a loss, all unanswered requests are sent again. This is safe because every request to a block device may be
//! repeated. Each request is sent at most [`SessionConfig::tries`] times.
//!
//! The one rule: a PDU that doesn't match what we requested (tag, sequence number, offset, length) is a [`Violation`],
//! and the connection is dropped; nothing is written outside a task's buffer.

mod connection;
mod receive;
mod requests;
mod send;
mod task;
mod timeouts;

use std::collections::VecDeque;
use std::time::Duration;

use brunt_block::{BufPool, DeviceError};
use brunt_core::Nanos;
use brunt_wire::scsi::sense::{ScsiStatus, Sense};

pub use connection::{DataRange, Outgoing};
pub use receive::{DataDestination, SHORT_DATA_BYTES_MAX, Violation};
pub use requests::Retired;

use self::connection::SessionConnection;
use self::task::{InitiatorTask, TaskManagement, TaskOutcome, TaskState};
use super::command::Facts;
use crate::params::Params;

/// Maximum number of tasks in a session: ITTs carry the index in 16 bits, and some of the values are reserved. It
/// equals the maximum queue depth of a load, so that no queue is silently shorter.
pub const DEPTH_MAX: u32 = 4096;

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The LUN field for PDU headers.
    pub lun: [u8; 8],
    /// Maximum number of tasks.
    pub depth: u32,
    /// Time limit for one attempt of a command, after which it is aborted.
    pub timeout: Duration,
    /// A connection that has been silent for this long is pinged; after twice this time, it is considered dead.
    pub keepalive: Duration,
    /// Maximum attempts per request (after losses and unit attentions).
    pub tries: u32,
    /// Task attribute of the commands.
    pub attribute: TagKind,
}

/// The task attribute of commands (SAM-5, 8.6): the order in which a LUN may execute them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagKind {
    /// In any order.
    #[default]
    Simple,
    /// After all earlier commands, before all later ones.
    Ordered,
    /// Before all commands that haven't started.
    HeadOfQueue,
}

impl TagKind {
    /// The attribute's flags in a command's header.
    pub fn flags(self) -> u8 {
        use brunt_wire::iscsi::pdu::code::command;
        match self {
            TagKind::Simple => command::ATTR_SIMPLE,
            TagKind::Ordered => command::ATTR_ORDERED,
            TagKind::HeadOfQueue => command::ATTR_HEAD_OF_QUEUE,
        }
    }
}

/// Counts of events other than normal responses. Printed with the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Requests sent again after their connection was lost or their LUN was reset.
    pub replays: u64,
    /// Requests sent again after a unit attention.
    pub unit_attentions: u64,
    /// Requests sent again after BUSY or TASK SET FULL.
    pub busy: u64,
    /// Requests that exceeded the timeout.
    pub timeouts: u64,
    /// LUN resets sent because an abort was not answered.
    pub resets: u64,
    /// Requests that completed with a recovered error.
    pub recovered: u64,
    /// Status and sense of the last response that caused a retry or reported a recovered error.
    pub last: Option<(ScsiStatus, Option<Sense>)>,
}

/// Why a session ended, other than by a violation, and how long the target asks to wait before the next login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLoss {
    /// The reason, for messages.
    pub why: &'static str,
    /// Minimum time until a new login.
    pub wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    /// No connections.
    Detached,
    Running,
    /// The target requested a logout: send no new commands, and log out once the outstanding ones are done.
    Draining {
        until: Nanos,
    },
    /// The logout was sent.
    LoggingOut {
        until: Nanos,
    },
    Lost(SessionLoss),
}

/// A new set of connections.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The session's next CmdSN.
    pub cmd_sn: u32,
    /// The last MaxCmdSN.
    pub max_cmd_sn: u32,
    /// Connection id, parameters and next StatSN of each connection, in the driver's order.
    pub connections: Vec<(u16, Params, u32)>,
}

/// The session; see the module's documentation.
#[derive(Debug)]
pub struct InitiatorSession {
    config: SessionConfig,
    facts: Facts,
    pool: Pool,
    tasks: Vec<InitiatorTask>,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
    answered: VecDeque<u16>,
    connections: Vec<SessionConnection>,
    cmd_sn: u32,
    max_cmd_sn: u32,
    sequence: u64,
    side_sequence: u16,
    hold_until: Nanos,
    next_check: Nanos,
    task_management: Option<TaskManagement>,
    phase: SessionPhase,
    counts: SessionCounts,
}

/// A buffer pool that isn't printed.
struct Pool(BufPool);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

impl InitiatorSession {
    /// Creates a session without connections. Memory for parameter lists comes from `pool`.
    ///
    /// # Panics
    /// The depth is 0 or exceeds [`DEPTH_MAX`].
    pub fn new(config: SessionConfig, facts: Facts, pool: BufPool) -> InitiatorSession {
        assert!(
            (1..=DEPTH_MAX).contains(&config.depth),
            "the depth must not be {}",
            config.depth
        );
        let depth = config.depth as u16;
        InitiatorSession {
            facts,
            pool: Pool(pool),
            tasks: (0..depth).map(|_| InitiatorTask::new()).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth.into()),
            answered: VecDeque::with_capacity(depth.into()),
            connections: Vec::new(),
            cmd_sn: 0,
            max_cmd_sn: 0,
            sequence: 0,
            side_sequence: 0,
            hold_until: Nanos(0),
            next_check: Nanos::MAX,
            task_management: None,
            phase: SessionPhase::Detached,
            counts: SessionCounts::default(),
            config,
        }
    }

    /// Number of free tasks.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Number of tasks submitted but not retired.
    pub fn outstanding(&self) -> u32 {
        (self.tasks.len() - self.free.len()) as u32
    }

    /// Event counters so far.
    pub fn counts(&self) -> SessionCounts {
        self.counts
    }

    /// Why the session ended, if it ended without a violation.
    pub fn lost(&self) -> Option<SessionLoss> {
        match self.phase {
            SessionPhase::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// The session's CmdSN, for the login of another connection.
    pub fn cmd_sn(&self) -> u32 {
        self.cmd_sn
    }

    /// The highest CmdSN that the target accepts.
    pub fn max_cmd_sn(&self) -> u32 {
        self.max_cmd_sn
    }

    /// The StatSN that a connection expects next.
    pub fn exp_stat_sn(&self, connection: usize) -> u32 {
        self.connections[connection].exp_stat_sn
    }

    /// Resumes work on new connections.
    pub fn attach(&mut self, attachment: Attachment, facts: Facts, now: Nanos) {
        assert!(
            self.phase == SessionPhase::Detached && !attachment.connections.is_empty(),
            "only an empty session gets connections"
        );
        self.facts = facts;
        self.cmd_sn = attachment.cmd_sn;
        self.max_cmd_sn = attachment.max_cmd_sn;
        self.connections = attachment
            .connections
            .into_iter()
            .map(|(cid, params, exp_stat_sn)| SessionConnection {
                params,
                cid,
                exp_stat_sn,
                out: VecDeque::with_capacity(2 * self.tasks.len()),
                outstanding: 0,
                last_heard: now,
                pinged: None,
            })
            .collect();
        self.phase = SessionPhase::Running;
        self.hold_until = Nanos(0);
        let tasks = &mut self.tasks;
        self.waiting
            .make_contiguous()
            .sort_by_key(|index| tasks[usize::from(*index)].sequence);
        for index in &self.waiting {
            tasks[usize::from(*index)].deadline = now.after(self.config.timeout);
        }
        self.next_check = now
            .after(self.config.timeout)
            .min(now.after(self.config.keepalive));
    }

    /// Handles the loss of the connections: issued tasks will be sent again, in the order of submission. The driver
    /// must have returned all data.
    pub fn detach(&mut self) {
        self.connections.clear();
        self.task_management = None;
        self.phase = SessionPhase::Detached;
        self.next_check = Nanos::MAX;
        for index in 0..self.tasks.len() as u16 {
            let task = &self.tasks[usize::from(index)];
            match (task.state, task.abort_reason) {
                (TaskState::Issued { .. } | TaskState::Waiting, Some(abort_reason)) => {
                    self.waiting.retain(|waiting| *waiting != index);
                    self.answer(index, TaskOutcome::Failed(abort_reason.error()));
                }
                (TaskState::Issued { .. }, None) => self.answer(index, TaskOutcome::Again),
                _ => {}
            }
        }
        let tasks = &self.tasks;
        self.answered
            .make_contiguous()
            .sort_by_key(|index| tasks[usize::from(*index)].sequence);
    }

    /// Fails all tasks with this error because there will be no new connections.
    pub fn fail_all(&mut self, error: DeviceError) {
        assert!(
            self.phase == SessionPhase::Detached,
            "tasks are failed only without connections"
        );
        while let Some(index) = self.waiting.pop_front() {
            self.answer(index, TaskOutcome::Failed(error));
        }
        for index in 0..self.tasks.len() as u16 {
            if let TaskState::Answered(outcome @ TaskOutcome::Again) =
                &mut self.tasks[usize::from(index)].state
            {
                *outcome = TaskOutcome::Failed(error);
            }
        }
    }
}

#[cfg(test)]
mod tests;
