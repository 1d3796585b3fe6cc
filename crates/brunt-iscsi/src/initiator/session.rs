//! One session to one LUN, after login: commands out, data and answers in (RFC 7143, 4 and 11).
//!
//! Its driver moves bytes: it hands over requests ([`Session::submit`]), sends what
//! [`Session::pull`] gives, asks [`Session::on_header`] where a PDU's data belongs, puts it there,
//! reports the PDU with [`Session::on_pdu`], and retires what was answered. A blocking one probes
//! the LUN (`connect`), one on a ring serves requests (`device`). The session outlives its
//! connections: after a loss its tasks wait for new ones ([`Session::detach`], [`Session::attach`]).
//!
//! What is sent again after a loss: everything that was not answered. All requests of a block
//! device may be done twice, and each is sent at most [`SessionConfig::tries`] times.
//!
//! The one rule: a PDU that does not fit what we asked for (tag, sequence number, offset, length)
//! is a [`Violation`], and the connection is dropped; nothing is written outside a task's buffer.

use std::collections::VecDeque;
use std::time::Duration;

use brunt_block::{Buf, BufPool, DeviceError, Op, Refusal, Request};
use brunt_core::Nanos;
use brunt_wire::iscsi::pdu::{
    self, AsyncMessage, Bhs, DataIn, DataOut, LogoutRequest, LogoutResponse, NopIn, NopOut, Opcode, R2t,
    RESERVED_TAG, Reject, ScsiCommand, ScsiResponse, TaskManagementRequest, TaskManagementResponse, U24,
    code, serial_before,
};
use brunt_wire::scsi::sense::{Sense, Status, key};

use super::command::{self, Command, Data, Direction, Facts, Progress};
use crate::params::Params;
use crate::said;

/// Tasks of one session at most: ITTs carry the index in 16 bits and keep some values for others.
pub const DEPTH_MAX: u32 = 1024;
/// Data of anything but Data-In: sense data has at most 2 + 65,535 bytes, pings and messages less.
pub const SHORT_DATA_BYTES_MAX: usize = 128 << 10;
/// Indexes from here on are no tasks.
const INDEX_PING: u32 = 0xf000;
const INDEX_TASK_MANAGEMENT: u32 = 0xf100;
const INDEX_LOGOUT: u32 = 0xf200;
/// How long a task management function may take, at the most.
const TASK_MANAGEMENT_WAIT: Duration = Duration::from_secs(5);
/// How long to hold back after BUSY or TASK SET FULL.
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// How a session behaves.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The LUN's field in headers.
    pub lun: [u8; 8],
    /// Tasks at once.
    pub depth: u32,
    /// How long one try of one command may take before it is aborted.
    pub timeout: Duration,
    /// A connection that was silent for so long is pinged; twice, and it is dead.
    pub keepalive: Duration,
    /// How often a request is sent at the most (losses and unit attentions).
    pub tries: u32,
}

/// What happened beside plain answers. Printed with results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent again after their connection was lost or their LUN was reset.
    pub replays: u64,
    /// Requests sent again after a unit attention.
    pub unit_attentions: u64,
    /// Requests sent again after BUSY or TASK SET FULL.
    pub busy: u64,
    /// Requests that took longer than the time-out.
    pub timeouts: u64,
    /// LUN resets sent because an abort was not answered.
    pub resets: u64,
    /// Requests that were done, and told a recovered error.
    pub recovered: u64,
    /// The status and sense that last made a request be sent again, or were recovered from.
    pub last: Option<(Status, Option<Sense>)>,
}

/// The target broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target broke the protocol: {0}")]
pub struct Violation(pub &'static str);

/// Why a session ended without a violation, and how long the target asks to wait before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// In words.
    pub why: &'static str,
    /// The least time until a new login.
    pub wait: Duration,
}

/// One PDU to send: its header, and which part of which task's data.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Complete but for digests.
    pub bhs: Bhs,
    /// The data segment: this many bytes of the task's data from an offset on.
    pub data: Option<Piece>,
}

/// Part of a task's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose.
    pub task: u16,
    /// From here on, in bytes.
    pub start: usize,
    /// In bytes.
    pub len: usize,
}

/// Where a PDU's data belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Into the task's data.
    Task(Piece),
    /// With the PDU to [`Session::on_pdu`]: at most [`SHORT_DATA_BYTES_MAX`].
    Short,
}

/// A request that is done with.
#[derive(Debug)]
pub struct Retired {
    /// The request's.
    pub tag: u64,
    /// The request's buffer.
    pub buf: Buf,
    /// Its outcome.
    pub result: Result<(), DeviceError>,
    /// Bytes of data-in that came.
    pub received: u32,
}

#[derive(Debug)]
enum Work {
    Request {
        op: Op,
        offset: u64,
        len: u64,
        force_unit_access: bool,
        progress: Progress,
    },
    /// A command of the prober: answered as it is, never sent again.
    Control,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Issued { connection: usize },
    Answered(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Scsi {
        status: Status,
        sense: Option<Sense>,
    },
    Failed(DeviceError),
    /// Nobody knows whether it was done: send it again.
    Again,
}

/// Why a task is being aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doom {
    TimedOut,
    Cancelled,
}

impl Doom {
    fn error(self) -> DeviceError {
        match self {
            Doom::TimedOut => DeviceError::TimedOut,
            Doom::Cancelled => DeviceError::refused(Refusal::Cancelled),
        }
    }
}

#[derive(Debug)]
struct Task {
    state: State,
    generation: u16,
    tag: u64,
    work: Work,
    command: Command,
    /// The caller's buffer.
    buf: Buf,
    /// The parameter list or zero block of the command under way.
    parameter: Buf,
    tries: u32,
    /// Order of submission.
    sequence: u64,
    deadline: Nanos,
    doom: Option<Doom>,
    cmd_sn: u32,
    /// Data-In bytes that came; the next offset.
    received: u32,
    exp_data_sn: u32,
    /// Data-Out bytes that were sent or asked for; the next offset of an R2T.
    solicited: u32,
    exp_r2t_sn: u32,
}

#[derive(Debug)]
struct Connection {
    params: Params,
    cid: u16,
    exp_stat_sn: u32,
    out: VecDeque<Queued>,
    outstanding: u32,
    last_heard: Nanos,
    pinged: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
enum Queued {
    Command(u16),
    DataOut { task: u16, itt: u32, ttt: u32, at: u32, end: u32, data_sn: u32 },
    Bhs(Bhs),
}

#[derive(Clone, Copy, Debug)]
struct TaskManagement {
    function: u8,
    /// The task to abort.
    task: u16,
    itt: u32,
    deadline: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connections.
    Detached,
    Running,
    /// The target asked us to leave: no new commands, a logout when the old ones are done.
    Draining {
        until: Nanos,
    },
    /// The logout is out.
    LoggingOut {
        until: Nanos,
    },
    Lost(Loss),
}

/// What a new set of connections brings.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The session's next CmdSN.
    pub cmd_sn: u32,
    /// The last MaxCmdSN.
    pub max_cmd_sn: u32,
    /// Connection id, values, next StatSN; in the order the driver numbers them.
    pub connections: Vec<(u16, Params, u32)>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    facts: Facts,
    pool: Pool,
    tasks: Vec<Task>,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
    answered: VecDeque<u16>,
    connections: Vec<Connection>,
    cmd_sn: u32,
    max_cmd_sn: u32,
    sequence: u64,
    side_sequence: u16,
    hold_until: Nanos,
    next_check: Nanos,
    task_management: Option<TaskManagement>,
    phase: Phase,
    counts: Counts,
}

/// A pool that does not print itself.
struct Pool(BufPool);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

impl Session {
    /// A session without connections. Parameter lists come from `pool`.
    ///
    /// # Panics
    /// When the depth is 0 or over [`DEPTH_MAX`].
    pub fn new(config: SessionConfig, facts: Facts, pool: BufPool) -> Session {
        assert!((1..=DEPTH_MAX).contains(&config.depth), "a depth of {} is not possible", config.depth);
        let depth = config.depth as u16;
        let task = || Task {
            state: State::Free,
            generation: 0,
            tag: 0,
            work: Work::Control,
            command: Command {
                cdb: [0; 16],
                direction: Direction::None,
                data_len: 0,
                data: Data::Caller,
                covers: 0,
            },
            buf: Buf::empty(),
            parameter: Buf::empty(),
            tries: 0,
            sequence: 0,
            deadline: Nanos::MAX,
            doom: None,
            cmd_sn: 0,
            received: 0,
            exp_data_sn: 0,
            solicited: 0,
            exp_r2t_sn: 0,
        };
        Session {
            facts,
            pool: Pool(pool),
            tasks: (0..depth).map(|_| task()).collect(),
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
            phase: Phase::Detached,
            counts: Counts::default(),
            config,
        }
    }

    /// Tasks that can be taken.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Tasks taken and not retired.
    pub fn outstanding(&self) -> u32 {
        (self.tasks.len() - self.free.len()) as u32
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Why the session ended, when it has without a violation.
    pub fn lost(&self) -> Option<Loss> {
        match self.phase {
            Phase::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// The session's CmdSN, for the login of a further connection.
    pub fn cmd_sn(&self) -> u32 {
        self.cmd_sn
    }

    /// The highest CmdSN the target takes.
    pub fn max_cmd_sn(&self) -> u32 {
        self.max_cmd_sn
    }

    /// The StatSN that a connection expects next.
    pub fn exp_stat_sn(&self, connection: usize) -> u32 {
        self.connections[connection].exp_stat_sn
    }

    // ---- requests

    /// Takes a request.
    ///
    /// # Errors
    /// The request itself when there is no room.
    pub fn submit(&mut self, request: Request, now: Nanos) -> Result<(), Request> {
        let Request { tag, op, offset, len, buf, force_unit_access } = request;
        let Some(index) = self.free.pop() else {
            return Err(Request { tag, op, offset, len, buf, force_unit_access });
        };
        let valid = self.check(op, offset, len, buf.len());
        let work = Work::Request { op, offset, len, force_unit_access, progress: Progress::default() };
        self.begin(index, tag, work, buf, now);
        match valid {
            Err(error) => self.answer(index, Outcome::Failed(error)),
            Ok(()) => self.plan(index, now),
        }
        Ok(())
    }

    /// Takes a command of the prober. Its data-in goes to `buf`, as much as fits.
    ///
    /// # Panics
    /// When there is no room.
    pub fn submit_control(&mut self, cdb: [u8; 16], buf: Buf, now: Nanos) {
        let index = self.free.pop().expect("the prober sends one command at a time");
        let data_len = buf.len() as u32;
        let direction = if data_len > 0 { Direction::In } else { Direction::None };
        self.begin(index, 0, Work::Control, buf, now);
        self.tasks[usize::from(index)].command =
            Command { cdb, direction, data_len, data: Data::Caller, covers: 0 };
        self.waiting.push_back(index);
    }

    fn check(&self, op: Op, offset: u64, len: u64, buf_len: usize) -> Result<(), DeviceError> {
        let facts = &self.facts;
        let block = u64::from(facts.block_bytes);
        let inside = offset.checked_add(len).is_some_and(|end| end <= facts.size_bytes);
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let moves_data = matches!(op, Op::Read | Op::Write);
        if !inside || !whole || (len == 0 && op != Op::Flush) {
            return Err(DeviceError::OutOfRange);
        }
        if moves_data && (len > buf_len as u64 || len > u64::from(facts.transfer_bytes_max)) {
            return Err(DeviceError::OutOfRange);
        }
        if op == Op::Unmap && facts.unmap_by == command::UnmapBy::Nothing {
            return Err(DeviceError::Unsupported);
        }
        Ok(())
    }

    fn begin(&mut self, index: u16, tag: u64, work: Work, buf: Buf, now: Nanos) {
        self.sequence += 1;
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Waiting;
        task.tag = tag;
        task.work = work;
        task.buf = buf;
        task.tries = 0;
        task.sequence = self.sequence;
        task.doom = None;
        task.deadline = now.after(self.config.timeout);
        self.next_check = self.next_check.min(task.deadline);
    }

    /// Queues the next command of a request, or ends it.
    fn plan(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        let Work::Request { op, offset, len, force_unit_access, progress } = task.work else {
            self.answer(index, Outcome::Scsi { status: Status::Good, sense: None });
            return;
        };
        let Some(next) = command::next(&self.facts, op, offset, len, force_unit_access, progress) else {
            self.answer(index, Outcome::Scsi { status: Status::Good, sense: None });
            return;
        };
        task.command = next;
        match next.data {
            Data::Caller => {}
            Data::ZeroBlock => {
                task.parameter = self.pool.0.take(next.data_len as usize);
                task.parameter.fill(0);
            }
            Data::UnmapList { lba, count } => {
                task.parameter = self.pool.0.take(next.data_len as usize);
                task.parameter.copy_from_slice(&command::unmap_list(lba, count));
            }
        }
        task.state = State::Waiting;
        task.deadline = now.after(self.config.timeout);
        self.next_check = self.next_check.min(task.deadline);
        self.waiting.push_back(index);
    }

    /// The data of a task's command, for the driver to send from or receive into.
    pub fn data(&mut self, task: u16) -> &mut Buf {
        let task = &mut self.tasks[usize::from(task)];
        if task.command.data == Data::Caller { &mut task.buf } else { &mut task.parameter }
    }

    /// The next task that was answered; retire it once its data is back.
    pub fn next_answered(&mut self) -> Option<u16> {
        self.answered.pop_front()
    }

    /// Whether tasks wait to be retired.
    pub fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Ends a task that was answered, or takes it one step further (then `None`).
    pub fn retire(&mut self, index: u16, now: Nanos) -> Option<Retired> {
        let task = &mut self.tasks[usize::from(index)];
        let State::Answered(outcome) = task.state else {
            panic!("only answered tasks are retired");
        };
        let is_control = matches!(task.work, Work::Control);
        let may_try_again = !is_control && task.doom.is_none() && task.tries < self.config.tries;
        let result = match outcome {
            Outcome::Failed(error) => Err(error),
            Outcome::Scsi { status: Status::Good, .. } if is_control => Ok(()),
            Outcome::Scsi { status: Status::Good, .. } => {
                let Work::Request { op, offset, len, force_unit_access, progress } = &mut task.work else {
                    unreachable!("control commands were told apart above")
                };
                if task.tries > 0 {
                    // What was answered by a command, as opposed to refused at once.
                    progress.done += task.command.covers;
                    progress.flushed |= task.command.covers == 0;
                    if command::next(&self.facts, *op, *offset, *len, *force_unit_access, *progress).is_some()
                    {
                        task.tries = 0;
                        self.plan(index, now);
                        return None;
                    }
                }
                Ok(())
            }
            Outcome::Again if may_try_again => {
                self.counts.replays += 1;
                self.try_again(index, now);
                return None;
            }
            Outcome::Again => Err(task.doom.map_or(DeviceError::Gone, Doom::error)),
            Outcome::Scsi { status: Status::CheckCondition, sense: Some(sense) }
                if sense.key == key::UNIT_ATTENTION && may_try_again =>
            {
                self.counts.unit_attentions += 1;
                self.counts.last = Some((Status::CheckCondition, Some(sense)));
                self.try_again(index, now);
                return None;
            }
            // Held back and sent again as long as one time-out, however often.
            Outcome::Scsi { status: status @ (Status::Busy | Status::TaskSetFull), .. }
                if !is_control && task.doom.is_none() && now < task.deadline =>
            {
                self.counts.busy += 1;
                self.counts.last = Some((status, None));
                self.hold_until = now.after(BUSY_WAIT);
                task.state = State::Waiting;
                self.waiting.push_back(index);
                return None;
            }
            Outcome::Scsi { status: Status::CheckCondition, sense: Some(sense) }
                if (sense.key, sense.asc, sense.ascq) == (key::ILLEGAL_REQUEST, 0x20, 0)
                    && matches!(task.work, Work::Request { op: Op::Unmap | Op::WriteZeroes, .. }) =>
            {
                Err(DeviceError::Unsupported) // INVALID COMMAND OPERATION CODE
            }
            Outcome::Scsi { status, sense } => Err(said::refused(status, sense)),
        };
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Free;
        task.parameter = Buf::empty();
        let retired =
            Retired { tag: task.tag, buf: std::mem::take(&mut task.buf), result, received: task.received };
        self.free.push(index);
        Some(retired)
    }

    fn try_again(&mut self, index: u16, now: Nanos) {
        let task = &mut self.tasks[usize::from(index)];
        task.state = State::Waiting;
        task.deadline = now.after(self.config.timeout);
        self.waiting.push_back(index);
        self.next_check = self.next_check.min(self.tasks[usize::from(index)].deadline);
    }

    fn answer(&mut self, index: u16, outcome: Outcome) {
        let task = &mut self.tasks[usize::from(index)];
        if let State::Issued { connection } = task.state
            && let Some(connection) = self.connections.get_mut(connection)
        {
            connection.outstanding -= 1;
        }
        task.state = State::Answered(outcome);
        self.answered.push_back(index);
    }

    /// Asks for a task to be given up; it completes with TASK ABORTED unless it is too late.
    pub fn cancel(&mut self, tag: u64, now: Nanos) {
        let found = self
            .tasks
            .iter()
            .position(|task| task.tag == tag && !matches!(task.state, State::Free | State::Answered(_)));
        let Some(index) = found else { return };
        let doom = *self.tasks[index].doom.get_or_insert(Doom::Cancelled);
        if self.tasks[index].state == State::Waiting {
            // Never sent, or not since the loss: nobody has to be asked.
            self.waiting.retain(|waiting| usize::from(*waiting) != index);
            self.answer(index as u16, Outcome::Failed(doom.error()));
        } else {
            self.next_check = now;
        }
    }

    // ---- connections

    /// Goes to work on new connections.
    pub fn attach(&mut self, attachment: Attachment, facts: Facts, now: Nanos) {
        self.facts = facts;
        self.cmd_sn = attachment.cmd_sn;
        self.max_cmd_sn = attachment.max_cmd_sn;
        self.connections = attachment
            .connections
            .into_iter()
            .map(|(cid, params, exp_stat_sn)| Connection {
                params,
                cid,
                exp_stat_sn,
                out: VecDeque::with_capacity(2 * self.tasks.len()),
                outstanding: 0,
                last_heard: now,
                pinged: None,
            })
            .collect();
        self.phase = Phase::Running;
        self.hold_until = Nanos(0);
        let tasks = &mut self.tasks;
        self.waiting.make_contiguous().sort_by_key(|index| tasks[usize::from(*index)].sequence);
        for index in &self.waiting {
            tasks[usize::from(*index)].deadline = now.after(self.config.timeout);
        }
        self.next_check = now.after(self.config.timeout).min(now.after(self.config.keepalive));
    }

    /// The connections are gone: what was on its way waits again, in the order it was submitted. The
    /// driver has put all data back.
    pub fn detach(&mut self) {
        self.connections.clear();
        self.task_management = None;
        self.phase = Phase::Detached;
        self.next_check = Nanos::MAX;
        for index in 0..self.tasks.len() as u16 {
            let task = &self.tasks[usize::from(index)];
            match (task.state, task.doom) {
                (State::Issued { .. } | State::Waiting, Some(doom)) => {
                    self.waiting.retain(|waiting| *waiting != index);
                    self.answer(index, Outcome::Failed(doom.error()));
                }
                (State::Issued { .. }, None) => self.answer(index, Outcome::Again),
                _ => {}
            }
        }
        let tasks = &self.tasks;
        self.answered.make_contiguous().sort_by_key(|index| tasks[usize::from(*index)].sequence);
    }

    /// There will be no new connections: everything ends with this error.
    pub fn fail_all(&mut self, error: DeviceError) {
        while let Some(index) = self.waiting.pop_front() {
            self.answer(index, Outcome::Failed(error));
        }
        for index in 0..self.tasks.len() as u16 {
            if let State::Answered(outcome @ Outcome::Again) = &mut self.tasks[usize::from(index)].state {
                *outcome = Outcome::Failed(error);
            }
        }
    }

    fn window_is_open(&self) -> bool {
        !serial_before(self.max_cmd_sn, self.cmd_sn)
    }

    /// Gives waiting tasks to the connections as far as the command window goes. Call before
    /// [`Session::pull`].
    pub fn schedule(&mut self, now: Nanos) {
        if self.phase != Phase::Running || now < self.hold_until {
            return;
        }
        while self.window_is_open() {
            let Some(index) = self.waiting.pop_front() else { break };
            let (number, connection) = self
                .connections
                .iter_mut()
                .enumerate()
                .min_by_key(|(_, connection)| connection.outstanding)
                .expect("a running session has a connection");
            let task = &mut self.tasks[usize::from(index)];
            task.state = State::Issued { connection: number };
            task.generation = task.generation.wrapping_add(1);
            task.tries += 1;
            task.cmd_sn = self.cmd_sn;
            task.received = 0;
            task.exp_data_sn = 0;
            task.solicited = 0;
            task.exp_r2t_sn = 0;
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
            connection.outstanding += 1;
            connection.out.push_back(Queued::Command(index));
        }
    }

    /// The next PDU to send on a connection.
    pub fn pull(&mut self, number: usize) -> Option<Outgoing> {
        let connection = &mut self.connections[number];
        loop {
            match connection.out.pop_front()? {
                Queued::Bhs(mut bhs) => {
                    set_exp_stat_sn(&mut bhs, connection.exp_stat_sn);
                    return Some(Outgoing { bhs, data: None });
                }
                Queued::Command(index) => {
                    let task = &mut self.tasks[usize::from(index)];
                    return Some(command_pdu(&self.config.lun, connection, index, task));
                }
                Queued::DataOut { task: index, itt, ttt, at, end, data_sn } => {
                    let task = &self.tasks[usize::from(index)];
                    // The target may have answered before it had all data: the rest is not sent.
                    let wanted =
                        matches!(task.state, State::Issued { .. }) && itt_of(index, task.generation) == itt;
                    if !wanted {
                        continue;
                    }
                    let len = (end - at).min(connection.params.peer_max_recv_data_segment_length);
                    let last = at + len == end;
                    let bhs = DataOut {
                        flags: if last { pdu::FLAG_FINAL } else { 0 },
                        data_segment_length: U24::new(len),
                        lun: if ttt == RESERVED_TAG { [0; 8] } else { self.config.lun },
                        initiator_task_tag: itt.into(),
                        target_transfer_tag: ttt.into(),
                        exp_stat_sn: connection.exp_stat_sn.into(),
                        data_sn: data_sn.into(),
                        buffer_offset: at.into(),
                        ..DataOut::default()
                    };
                    if !last {
                        let (at, data_sn) = (at + len, data_sn + 1);
                        connection.out.push_front(Queued::DataOut {
                            task: index,
                            itt,
                            ttt,
                            at,
                            end,
                            data_sn,
                        });
                    }
                    let data = Piece { task: index, start: at as usize, len: len as usize };
                    return Some(Outgoing { bhs: bhs.into(), data: Some(data) });
                }
            }
        }
    }

    // ---- what the target says

    /// Where the data of a PDU belongs. Changes nothing.
    pub fn on_header(&self, number: usize, bhs: &Bhs) -> Result<Payload, Violation> {
        let connection = &self.connections[number];
        let len = bhs.data_len();
        if bhs.kind() != Opcode::DataIn {
            let limit = SHORT_DATA_BYTES_MAX;
            return if len > limit {
                Err(Violation("a data segment is too long"))
            } else {
                Ok(Payload::Short)
            };
        }
        if len > connection.params.max_recv_data_segment_length as usize {
            return Err(Violation("a Data-In longer than our MaxRecvDataSegmentLength"));
        }
        let pdu = DataIn::view(bhs);
        let index = self.task_of(number, pdu.initiator_task_tag.get())?;
        let task = &self.tasks[usize::from(index)];
        let offset = pdu.buffer_offset.get();
        if task.command.direction != Direction::In {
            return Err(Violation("Data-In for a command that does not read"));
        }
        if len as u64 + u64::from(offset) > u64::from(task.command.data_len) {
            return Err(Violation("Data-In past the end of the command's buffer"));
        }
        if offset != task.received {
            return Err(Violation("Data-In out of order"));
        }
        if pdu.data_sn.get() != task.exp_data_sn {
            return Err(Violation("a DataSN out of sequence"));
        }
        Ok(Payload::Task(Piece { task: index, start: offset as usize, len }))
    }

    /// Takes a PDU whose digests are right and whose data is where it belongs; `data` is that of
    /// [`Payload::Short`].
    ///
    /// # Errors
    /// The connection has to be dropped.
    pub fn on_pdu(&mut self, number: usize, bhs: &Bhs, data: &[u8], now: Nanos) -> Result<(), Violation> {
        let connection = &mut self.connections[number];
        connection.last_heard = now;
        connection.pinged = None;
        match bhs.kind() {
            Opcode::DataIn => self.on_data_in(number, DataIn::view(bhs)),
            Opcode::ScsiResponse => self.on_response(number, ScsiResponse::view(bhs), data),
            Opcode::R2t => self.on_r2t(number, R2t::view(bhs)),
            Opcode::NopIn => self.on_nop_in(number, NopIn::view(bhs)),
            Opcode::TaskManagementResponse => {
                self.on_task_management(number, TaskManagementResponse::view(bhs), now)
            }
            Opcode::AsyncMessage => self.on_async(number, AsyncMessage::view(bhs), now),
            Opcode::Reject => self.on_reject(number, Reject::view(bhs), data),
            Opcode::LogoutResponse => self.on_logout(number, LogoutResponse::view(bhs)),
            _ => Err(Violation("a PDU of a kind that a target does not send now")),
        }
    }

    fn on_data_in(&mut self, number: usize, pdu: &DataIn) -> Result<(), Violation> {
        let index = self.task_of(number, pdu.initiator_task_tag.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let task = &mut self.tasks[usize::from(index)];
        task.exp_data_sn = task.exp_data_sn.wrapping_add(1);
        task.received += pdu.data_segment_length.get();
        if pdu.flags & code::response::STATUS == 0 {
            return Ok(());
        }
        if pdu.flags & pdu::FLAG_FINAL == 0 {
            return Err(Violation("a Data-In with status that is not the last"));
        }
        self.status_sn(number, pdu.stat_sn.get())?;
        self.finish(index, pdu.status, pdu.flags, pdu.residual_count.get(), &[])
    }

    fn on_response(&mut self, number: usize, pdu: &ScsiResponse, data: &[u8]) -> Result<(), Violation> {
        let index = self.task_of(number, pdu.initiator_task_tag.get())?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        if pdu.response != code::response::COMPLETED_AT_TARGET {
            // "Target failure": no status, and nothing known of the data.
            self.answer(index, Outcome::Failed(DeviceError::Os(EIO)));
            return Ok(());
        }
        let sense = match *data {
            [] => &data[..0],
            [high, low, ref rest @ ..] => {
                let len = usize::from(u16::from_be_bytes([high, low]));
                rest.get(..len).ok_or(Violation("a SenseLength past the data segment"))?
            }
            _ => return Err(Violation("a data segment too short for a SenseLength")),
        };
        self.finish(index, pdu.status, pdu.flags, pdu.residual_count.get(), sense)
    }

    /// A command has its status.
    fn finish(
        &mut self,
        index: u16,
        status: u8,
        flags: u8,
        residual: u32,
        sense: &[u8],
    ) -> Result<(), Violation> {
        let status = Status::from_byte(status);
        let task = &self.tasks[usize::from(index)];
        let (expected, received) = (task.command.data_len, task.received);
        let underflow = if flags & code::response::UNDERFLOW != 0 { residual } else { 0 };
        if underflow > expected {
            return Err(Violation("a residual larger than the transfer"));
        }
        let all_data = task.command.direction != Direction::In || received == expected - underflow;
        let sense = Sense::parse(sense);
        // A recovered error is a success that left a note; its data follows all the same (SPC-4, 4.5.6).
        let recovered = said::is_recovered(status, sense.as_ref()) && all_data;
        if recovered {
            self.counts.recovered += 1;
            self.counts.last = Some((status, sense));
        }
        let status = if recovered { Status::Good } else { status };
        let task = &self.tasks[usize::from(index)];
        let is_good = status == Status::Good;
        if is_good && !all_data {
            return Err(Violation("good status before all data"));
        }
        let short = underflow > 0 || flags & code::response::OVERFLOW != 0;
        let is_request = matches!(task.work, Work::Request { .. });
        let outcome = if is_good && short && is_request && task.command.data == Data::Caller {
            // GOOD, and yet not all blocks were moved: nothing a caller could use. (Targets count the
            // residual of a parameter list or of WRITE SAME in various ways; tgt is one.)
            Outcome::Failed(DeviceError::Os(EIO))
        } else {
            Outcome::Scsi { status, sense }
        };
        self.answer(index, outcome);
        Ok(())
    }

    fn on_r2t(&mut self, number: usize, pdu: &R2t) -> Result<(), Violation> {
        let itt = pdu.initiator_task_tag.get();
        let index = self.task_of(number, itt)?;
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        let connection = &mut self.connections[number];
        let task = &mut self.tasks[usize::from(index)];
        let offset = pdu.buffer_offset.get();
        let len = pdu.desired_data_transfer_length.get();
        if task.command.direction != Direction::Out {
            return Err(Violation("an R2T for a command that does not write"));
        }
        if pdu.r2t_sn.get() != task.exp_r2t_sn {
            return Err(Violation("an R2TSN out of sequence"));
        }
        if len == 0 || len > connection.params.max_burst_length {
            return Err(Violation("an R2T for nothing, or for more than MaxBurstLength"));
        }
        if u64::from(offset) + u64::from(len) > u64::from(task.command.data_len) {
            return Err(Violation("an R2T past the end of the command's data"));
        }
        if offset != task.solicited {
            return Err(Violation("an R2T out of order"));
        }
        if pdu.target_transfer_tag.get() == RESERVED_TAG {
            return Err(Violation("an R2T without a target transfer tag"));
        }
        task.exp_r2t_sn = task.exp_r2t_sn.wrapping_add(1);
        task.solicited = offset + len;
        let ttt = pdu.target_transfer_tag.get();
        connection.out.push_back(Queued::DataOut {
            task: index,
            itt,
            ttt,
            at: offset,
            end: offset + len,
            data_sn: 0,
        });
        Ok(())
    }

    fn on_nop_in(&mut self, number: usize, pdu: &NopIn) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        if pdu.initiator_task_tag.get() != RESERVED_TAG {
            // The answer to our ping; that it came is all there is to know.
            if pdu.initiator_task_tag.get() & 0xffff != INDEX_PING {
                return Err(Violation("an answer to a ping that was not sent"));
            }
            return self.status_sn(number, pdu.stat_sn.get());
        }
        if pdu.target_transfer_tag.get() != RESERVED_TAG {
            let mut answer = NopOut {
                flags: pdu::FLAG_FINAL,
                lun: pdu.lun,
                initiator_task_tag: RESERVED_TAG.into(),
                target_transfer_tag: pdu.target_transfer_tag,
                cmd_sn: self.cmd_sn.into(),
                ..NopOut::default()
            };
            answer.opcode |= pdu::OPCODE_IMMEDIATE;
            let out = &mut self.connections[number].out;
            if out.len() > 4 * DEPTH_MAX as usize {
                return Err(Violation("pings faster than they can be answered"));
            }
            out.push_back(Queued::Bhs(answer.into()));
        }
        Ok(())
    }

    fn on_async(&mut self, number: usize, pdu: &AsyncMessage, now: Nanos) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        let wait = Duration::from_secs(u64::from(pdu.parameter2.get()));
        match pdu.async_event {
            code::async_event::LOGOUT_REQUEST | code::async_event::NEGOTIATION_REQUEST => {
                // Half of what the target allows is for the commands under way.
                let half = Duration::from_millis(u64::from(pdu.parameter3.get()) * 500);
                let until = now.after(half);
                if self.phase == Phase::Running {
                    self.phase = Phase::Draining { until };
                    self.next_check = now;
                }
            }
            code::async_event::CONNECTION_DROP => {
                self.phase = Phase::Lost(Loss { why: "the target dropped the connection", wait });
            }
            code::async_event::SESSION_DROP => {
                self.phase = Phase::Lost(Loss { why: "the target dropped the session", wait });
            }
            // A SCSI event comes again as a unit attention; the rest does not concern us.
            _ => {}
        }
        Ok(())
    }

    fn on_reject(&mut self, number: usize, pdu: &Reject, data: &[u8]) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        let Some(rejected) = Bhs::peek(data) else {
            return Err(Violation("a reject without the header of what it rejects"));
        };
        let itt = rejected.initiator_task_tag.get();
        match rejected.kind() {
            Opcode::ScsiCommand => {
                let index = self.task_of(number, itt)?;
                self.answer(index, Outcome::Failed(DeviceError::Os(EIO)));
                Ok(())
            }
            Opcode::TaskManagementRequest => {
                self.escalate();
                Ok(())
            }
            Opcode::NopOut => Ok(()),
            _ => Err(Violation("it rejected a PDU of ours that has no answer otherwise")),
        }
    }

    fn on_logout(&mut self, number: usize, pdu: &LogoutResponse) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        if !matches!(self.phase, Phase::LoggingOut { .. }) {
            return Err(Violation("an answer to a logout that was not sent"));
        }
        let wait = Duration::from_secs(u64::from(pdu.time2wait.get()));
        self.phase = Phase::Lost(Loss { why: "the target asked for a logout", wait });
        Ok(())
    }

    /// The task of a tag, when it is one of ours, on this connection, and not answered.
    fn task_of(&self, number: usize, itt: u32) -> Result<u16, Violation> {
        let index = (itt & 0xffff) as u16;
        match self.tasks.get(usize::from(index)) {
            Some(task)
                if task.state == State::Issued { connection: number }
                    && itt_of(index, task.generation) == itt =>
            {
                Ok(index)
            }
            _ => Err(Violation("a tag that names no task of this connection")),
        }
    }

    /// RFC 7143, 4.2.2.1.
    fn window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        let sane = !serial_before(max_cmd_sn, exp_cmd_sn.wrapping_sub(1));
        if sane && serial_before(self.max_cmd_sn, max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    fn status_sn(&mut self, number: usize, stat_sn: u32) -> Result<(), Violation> {
        let connection = &mut self.connections[number];
        if stat_sn != connection.exp_stat_sn {
            return Err(Violation("a StatSN out of sequence"));
        }
        connection.exp_stat_sn = stat_sn.wrapping_add(1);
        Ok(())
    }

    // ---- time

    /// When [`Session::on_time`] has something to do.
    pub fn deadline(&self) -> Nanos {
        if self.has_answered() {
            return Nanos(0);
        }
        if matches!(self.phase, Phase::Detached | Phase::Lost(_)) {
            return Nanos::MAX;
        }
        let held = self.hold_until > Nanos(0) && !self.waiting.is_empty() && self.phase == Phase::Running;
        // A wait that is over, with a closed window, has nothing to wait for but the target.
        if held && self.window_is_open() { self.next_check.min(self.hold_until) } else { self.next_check }
    }

    /// Looks at what is overdue: commands, task management, silent connections, logouts. Cheap when
    /// it is not yet time.
    pub fn on_time(&mut self, now: Nanos) {
        if now < self.next_check || matches!(self.phase, Phase::Detached | Phase::Lost(_)) {
            return;
        }
        let mut next = Nanos::MAX;
        let mut doomed = None;
        for index in 0..self.tasks.len() {
            let task = &mut self.tasks[index];
            match task.state {
                State::Free | State::Answered(_) => continue,
                State::Waiting | State::Issued { .. } => {}
            }
            if now >= task.deadline && task.doom.is_none() {
                task.doom = Some(Doom::TimedOut);
                self.counts.timeouts += 1;
            }
            match (task.doom, task.state) {
                (None, _) => next = next.min(task.deadline),
                (Some(doom), State::Waiting) => {
                    // Never sent: nobody has to be asked.
                    self.waiting.retain(|waiting| usize::from(*waiting) != index);
                    self.answer(index as u16, Outcome::Failed(doom.error()));
                }
                (Some(_), _) => doomed = doomed.or(Some(index as u16)),
            }
        }
        match (self.task_management, doomed) {
            (Some(function), _) if now >= function.deadline => self.escalate(),
            (None, Some(index)) => self.send_task_management(code::task_management::ABORT_TASK, index, now),
            _ => {}
        }
        if let Some(function) = self.task_management {
            next = next.min(function.deadline);
        }
        self.keep_alive(now, &mut next);
        self.drain(now, &mut next);
        self.next_check = next;
    }

    fn keep_alive(&mut self, now: Nanos, next: &mut Nanos) {
        let keepalive = self.config.keepalive;
        for connection in &mut self.connections {
            match connection.pinged {
                Some(pinged) if now >= pinged.after(keepalive) => {
                    let why = "the target does not answer pings";
                    self.phase = Phase::Lost(Loss { why, wait: Duration::ZERO });
                }
                Some(pinged) => *next = (*next).min(pinged.after(keepalive)),
                None if now >= connection.last_heard.after(keepalive) => {
                    self.side_sequence = self.side_sequence.wrapping_add(1);
                    let mut ping = NopOut {
                        flags: pdu::FLAG_FINAL,
                        lun: self.config.lun,
                        initiator_task_tag: (u32::from(self.side_sequence) << 16 | INDEX_PING).into(),
                        target_transfer_tag: RESERVED_TAG.into(),
                        cmd_sn: self.cmd_sn.into(),
                        ..NopOut::default()
                    };
                    ping.opcode |= pdu::OPCODE_IMMEDIATE;
                    connection.out.push_back(Queued::Bhs(ping.into()));
                    connection.pinged = Some(now);
                    *next = (*next).min(now.after(keepalive));
                }
                None => *next = (*next).min(connection.last_heard.after(keepalive)),
            }
        }
    }

    fn drain(&mut self, now: Nanos, next: &mut Nanos) {
        match self.phase {
            Phase::Draining { until } => {
                let idle = self.connections.iter().all(|connection| connection.outstanding == 0);
                if idle || now >= until {
                    let logout = self.logout_pdu();
                    self.connections[0].out.push_back(Queued::Bhs(logout));
                    let until = now.after(TASK_MANAGEMENT_WAIT);
                    self.phase = Phase::LoggingOut { until };
                    *next = (*next).min(until);
                } else {
                    // Looked at again soon; a drain is rare.
                    *next = (*next).min(now.after(Duration::from_millis(10)));
                }
            }
            Phase::LoggingOut { until } if now >= until => {
                let why = "the target asked for a logout and did not answer it";
                self.phase = Phase::Lost(Loss { why, wait: Duration::ZERO });
            }
            Phase::LoggingOut { until } => *next = (*next).min(until),
            _ => {}
        }
    }

    /// A request to end the session, for the driver that goes away.
    pub fn logout_pdu(&self) -> Bhs {
        let mut logout = LogoutRequest {
            reason: pdu::FLAG_FINAL | code::logout::CLOSE_SESSION,
            initiator_task_tag: INDEX_LOGOUT.into(),
            cid: self.connections.first().map_or(0, |connection| connection.cid).into(),
            cmd_sn: self.cmd_sn.into(),
            ..LogoutRequest::default()
        };
        logout.opcode |= pdu::OPCODE_IMMEDIATE;
        let mut bhs = logout.into();
        set_exp_stat_sn(&mut bhs, self.connections.first().map_or(0, |connection| connection.exp_stat_sn));
        bhs
    }

    // ---- task management

    fn send_task_management(&mut self, function: u8, index: u16, now: Nanos) {
        let task = &self.tasks[usize::from(index)];
        let State::Issued { connection } = task.state else { return };
        self.side_sequence = self.side_sequence.wrapping_add(1);
        let itt = u32::from(self.side_sequence) << 16 | INDEX_TASK_MANAGEMENT;
        let aborts_one = function == code::task_management::ABORT_TASK;
        let mut request = TaskManagementRequest {
            function: pdu::FLAG_FINAL | function,
            lun: self.config.lun,
            initiator_task_tag: itt.into(),
            referenced_task_tag: if aborts_one { itt_of(index, task.generation) } else { RESERVED_TAG }
                .into(),
            cmd_sn: self.cmd_sn.into(),
            ref_cmd_sn: if aborts_one { task.cmd_sn } else { 0 }.into(),
            ..TaskManagementRequest::default()
        };
        request.opcode |= pdu::OPCODE_IMMEDIATE;
        // A reset that is answered faster than the connection it came on carries is no use; an
        // abort has to go where its task went (RFC 7143, 4.2.5.2).
        self.connections[connection].out.push_back(Queued::Bhs(request.into()));
        let deadline = now.after(self.config.timeout.min(TASK_MANAGEMENT_WAIT));
        self.task_management = Some(TaskManagement { function, task: index, itt, deadline });
    }

    /// The function was not answered in time, or not done: the next harder one.
    fn escalate(&mut self) {
        let Some(TaskManagement { function, task, deadline, .. }) = self.task_management.take() else {
            return;
        };
        let still_there = matches!(self.tasks[usize::from(task)].state, State::Issued { .. });
        if function == code::task_management::ABORT_TASK && still_there {
            self.counts.resets += 1;
            self.send_task_management(code::task_management::LOGICAL_UNIT_RESET, task, deadline);
        } else if still_there {
            let why = "the target neither aborts a command nor resets the LUN";
            self.phase = Phase::Lost(Loss { why, wait: Duration::ZERO });
        }
        self.next_check = Nanos(0);
    }

    fn on_task_management(
        &mut self,
        number: usize,
        pdu: &TaskManagementResponse,
        now: Nanos,
    ) -> Result<(), Violation> {
        self.window(pdu.exp_cmd_sn.get(), pdu.max_cmd_sn.get());
        self.status_sn(number, pdu.stat_sn.get())?;
        let Some(function) = self.task_management else {
            return Err(Violation("an answer to task management that was not sent"));
        };
        if function.itt != pdu.initiator_task_tag.get() {
            // The late answer to an abort that a reset overtook.
            return Ok(());
        }
        let is_abort = function.function == code::task_management::ABORT_TASK;
        match pdu.response {
            code::task_management::FUNCTION_COMPLETE | code::task_management::TASK_DOES_NOT_EXIST
                if is_abort =>
            {
                let task = &self.tasks[usize::from(function.task)];
                if let (State::Issued { .. }, Some(doom)) = (task.state, task.doom) {
                    self.answer(function.task, Outcome::Failed(doom.error()));
                }
                self.task_management = None;
            }
            code::task_management::FUNCTION_COMPLETE => {
                for index in 0..self.tasks.len() as u16 {
                    let task = &self.tasks[usize::from(index)];
                    match (task.state, task.doom) {
                        (State::Issued { .. }, Some(doom)) => {
                            self.answer(index, Outcome::Failed(doom.error()));
                        }
                        (State::Issued { .. }, None) => self.answer(index, Outcome::Again),
                        _ => {}
                    }
                }
                self.task_management = None;
            }
            _ => self.escalate(),
        }
        self.next_check = now;
        Ok(())
    }
}

/// Input/output error, for what has no status of its own.
const EIO: i32 = 5;

/// A tag: the slot's generation above its index, so that the answer to an old task fits no new one.
fn itt_of(index: u16, generation: u16) -> u32 {
    u32::from(generation) << 16 | u32::from(index)
}

fn set_exp_stat_sn(bhs: &mut Bhs, exp_stat_sn: u32) {
    // Bytes 28 to 31 in every request (RFC 7143, 11).
    bhs.rest[8..12].copy_from_slice(&exp_stat_sn.to_be_bytes());
}

/// The PDU of a command with as much of its data as may come unasked.
fn command_pdu(lun: &[u8; 8], connection: &mut Connection, index: u16, task: &mut Task) -> Outgoing {
    let itt = itt_of(index, task.generation);
    let params = &connection.params;
    let mut pdu = ScsiCommand {
        flags: pdu::FLAG_FINAL | code::command::ATTR_SIMPLE,
        lun: *lun,
        initiator_task_tag: itt.into(),
        expected_data_transfer_length: task.command.data_len.into(),
        cmd_sn: task.cmd_sn.into(),
        exp_stat_sn: connection.exp_stat_sn.into(),
        cdb: task.command.cdb,
        ..ScsiCommand::default()
    };
    let mut data = None;
    match task.command.direction {
        Direction::None => {}
        Direction::In => pdu.flags |= code::command::READ,
        Direction::Out => {
            pdu.flags |= code::command::WRITE;
            let first_burst = params.first_burst_length.min(task.command.data_len);
            let immediate = match params.immediate_data {
                true => first_burst.min(params.peer_max_recv_data_segment_length),
                false => 0,
            };
            if immediate > 0 {
                pdu.data_segment_length = U24::new(immediate);
                data = Some(Piece { task: index, start: 0, len: immediate as usize });
            }
            task.solicited = immediate;
            if !params.initial_r2t && immediate < first_burst {
                pdu.flags &= !pdu::FLAG_FINAL;
                task.solicited = first_burst;
                connection.out.push_front(Queued::DataOut {
                    task: index,
                    itt,
                    ttt: RESERVED_TAG,
                    at: immediate,
                    end: first_burst,
                    data_sn: 0,
                });
            }
        }
    }
    Outgoing { bhs: pdu.into(), data }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(1_000_000_000);

    fn facts() -> Facts {
        Facts {
            block_bytes: 512,
            size_bytes: 1 << 30,
            transfer_bytes_max: 1 << 20,
            unmap_blocks_max: 8,
            write_same_blocks_max: 8,
            unmap_by: command::UnmapBy::Unmap,
            ..Facts::default()
        }
    }

    fn params() -> Params {
        Params {
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: 8192,
            peer_max_recv_data_segment_length: 4096,
            first_burst_length: 8192,
            max_burst_length: 16384,
            ..Params::default()
        }
    }

    /// A session on one connection with a window of 4 commands.
    fn session() -> Session {
        let config = SessionConfig {
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            depth: 8,
            timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(3600),
            tries: 3,
        };
        let mut session = Session::new(config, facts(), BufPool::new(0));
        attach(&mut session);
        session
    }

    fn attach(session: &mut Session) {
        let attachment = Attachment { cmd_sn: 10, max_cmd_sn: 13, connections: vec![(0, params(), 100)] };
        session.attach(attachment, facts(), NOW);
    }

    fn request(tag: u64, op: Op, len: u64) -> Request {
        let buf = if matches!(op, Op::Read | Op::Write) { Buf::zeroed(len as usize) } else { Buf::empty() };
        Request { tag, op, offset: 4096, len, buf, force_unit_access: false }
    }

    /// Submits and gives what goes out.
    fn issue(session: &mut Session, op: Op, len: u64) -> Vec<Outgoing> {
        session.submit(request(7, op, len), NOW).unwrap();
        outgoing(session)
    }

    fn outgoing(session: &mut Session) -> Vec<Outgoing> {
        session.schedule(NOW);
        std::iter::from_fn(|| session.pull(0)).collect()
    }

    fn tag_of(outgoing: &Outgoing) -> u32 {
        outgoing.bhs.initiator_task_tag.get()
    }

    /// Lets the session see a PDU as its driver would.
    fn hear(session: &mut Session, bhs: impl Into<Bhs>, data: &[u8]) -> Result<(), Violation> {
        hear_at(session, bhs, data, NOW)
    }

    fn hear_at(session: &mut Session, bhs: impl Into<Bhs>, data: &[u8], now: Nanos) -> Result<(), Violation> {
        let mut bhs: Bhs = bhs.into();
        bhs.data_segment_length = U24::new(data.len() as u32);
        match session.on_header(0, &bhs)? {
            Payload::Task(piece) => {
                session.data(piece.task)[piece.start..piece.start + piece.len].copy_from_slice(data);
                session.on_pdu(0, &bhs, &[], now)
            }
            Payload::Short => session.on_pdu(0, &bhs, data, now),
        }
    }

    fn data_in(itt: u32) -> DataIn {
        DataIn {
            initiator_task_tag: itt.into(),
            exp_cmd_sn: 11.into(),
            max_cmd_sn: 14.into(),
            ..DataIn::default()
        }
    }

    fn last_data_in(itt: u32) -> DataIn {
        let flags = pdu::FLAG_FINAL | code::response::STATUS;
        DataIn { flags, stat_sn: 100.into(), ..data_in(itt) }
    }

    fn response(itt: u32, status: Status) -> ScsiResponse {
        ScsiResponse {
            flags: pdu::FLAG_FINAL,
            status: status.to_byte(),
            initiator_task_tag: itt.into(),
            stat_sn: 100.into(),
            exp_cmd_sn: 11.into(),
            max_cmd_sn: 14.into(),
            ..ScsiResponse::default()
        }
    }

    fn r2t(itt: u32) -> R2t {
        R2t {
            flags: pdu::FLAG_FINAL,
            initiator_task_tag: itt.into(),
            target_transfer_tag: 0x77.into(),
            exp_cmd_sn: 11.into(),
            max_cmd_sn: 14.into(),
            buffer_offset: 8192.into(),
            desired_data_transfer_length: 8192.into(),
            ..R2t::default()
        }
    }

    fn retire(session: &mut Session, now: Nanos) -> Option<Retired> {
        let task = session.next_answered().expect("something was answered");
        session.retire(task, now)
    }

    fn sense(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
        let sense = Sense::new(key, asc, ascq).to_fixed();
        let mut data = (sense.len() as u16).to_be_bytes().to_vec();
        data.extend_from_slice(&sense);
        data
    }

    /// The goal: a read's data lands where it belongs, over several PDUs, and status comes with the last.
    #[test]
    fn read() {
        let mut session = session();
        let sent = issue(&mut session, Op::Read, 1536);
        assert_eq!(sent.len(), 1);
        let command = ScsiCommand::view(&sent[0].bhs);
        assert_eq!(command.flags, 0x80 | code::command::READ | code::command::ATTR_SIMPLE);
        assert_eq!((command.cmd_sn.get(), command.exp_stat_sn.get()), (10, 100));
        assert_eq!(command.expected_data_transfer_length.get(), 1536);
        let itt = tag_of(&sent[0]);
        hear(&mut session, data_in(itt), &[1; 1024]).unwrap();
        let second = DataIn { data_sn: 1.into(), buffer_offset: 1024.into(), ..last_data_in(itt) };
        hear(&mut session, second, &[2; 512]).unwrap();
        let retired = retire(&mut session, NOW).unwrap();
        assert_eq!((retired.tag, retired.result), (7, Ok(())));
        assert!(retired.buf[..1024] == [1; 1024] && retired.buf[1024..] == [2; 512]);
        assert_eq!((session.outstanding(), session.exp_stat_sn(0)), (0, 101));
    }

    /// The goal: a write goes out as immediate, unsolicited and solicited data, each within its limits.
    #[test]
    fn write() {
        let mut session = session();
        let sent = issue(&mut session, Op::Write, 20_480);
        let pieces = |sent: &[Outgoing]| -> Vec<(usize, usize, u8)> {
            sent.iter().map(|o| (o.data.unwrap().start, o.data.unwrap().len, o.bhs.flags & 0x80)).collect()
        };
        // FirstBurstLength 8192 in segments of 4096: half with the command, half behind it.
        assert_eq!(pieces(&sent), [(0, 4096, 0), (4096, 4096, 0x80)]);
        assert_eq!(DataOut::view(&sent[1].bhs).target_transfer_tag.get(), RESERVED_TAG);
        let itt = tag_of(&sent[0]);
        hear(&mut session, r2t(itt), &[]).unwrap();
        let rest = R2t {
            r2t_sn: 1.into(),
            buffer_offset: 16_384.into(),
            desired_data_transfer_length: 4096.into(),
            ..r2t(itt)
        };
        hear(&mut session, rest, &[]).unwrap();
        let sent = outgoing(&mut session);
        assert_eq!(pieces(&sent), [(8192, 4096, 0), (12_288, 4096, 0x80), (16_384, 4096, 0x80)]);
        let data_sns: Vec<u32> = sent.iter().map(|o| DataOut::view(&o.bhs).data_sn.get()).collect();
        assert_eq!(data_sns, [0, 1, 0]);
        hear(&mut session, response(itt, Status::Good), &[]).unwrap();
        assert_eq!(retire(&mut session, NOW).unwrap().result, Ok(()));
    }

    /// The goal: an early answer stops the data that was still to be sent.
    #[test]
    fn early_answer_stops_the_data() {
        let mut session = session();
        let itt = tag_of(&issue(&mut session, Op::Write, 20_480)[0]);
        hear(&mut session, r2t(itt), &[]).unwrap();
        let full = sense(key::DATA_PROTECT, 0x27, 0);
        hear(&mut session, response(itt, Status::CheckCondition), &full).unwrap();
        assert!(outgoing(&mut session).is_empty());
        let expected = said::refused(Status::CheckCondition, Some(Sense::new(key::DATA_PROTECT, 0x27, 0)));
        assert_eq!(retire(&mut session, NOW).unwrap().result, Err(expected));
    }

    /// The goal: no more commands than the window allows; it opens by what the target says, and
    /// nonsense does not move it.
    #[test]
    fn command_window() {
        let mut session = session();
        for tag in 0..8 {
            session.submit(request(tag, Op::Read, 512), NOW).unwrap();
        }
        assert!(session.submit(request(9, Op::Read, 512), NOW).is_err());
        let sent = outgoing(&mut session);
        assert_eq!(sent.len(), 4);
        let nonsense = DataIn { max_cmd_sn: 5.into(), exp_cmd_sn: 14.into(), ..data_in(tag_of(&sent[0])) };
        hear(&mut session, nonsense, &[]).unwrap();
        assert_eq!(outgoing(&mut session).len(), 0);
        let wider = DataIn { max_cmd_sn: 15.into(), data_sn: 1.into(), ..data_in(tag_of(&sent[0])) };
        hear(&mut session, wider, &[]).unwrap();
        assert_eq!(outgoing(&mut session).len(), 2);
    }

    /// The goal: what a hostile or broken target may say drops the connection, and never panics
    /// or writes outside the task's buffer.
    #[test]
    fn hostile_replies() {
        fn check(op: Op, what: &str, reply: impl Fn(u32) -> Bhs, data: &[u8]) {
            let mut session = session();
            let itt = tag_of(&issue(&mut session, op, 20_480)[0]);
            let violation = hear(&mut session, reply(itt), data).expect_err(what);
            assert!(violation.0.contains(what), "'{violation}' does not say '{what}'");
            session.detach();
            assert_eq!(session.outstanding(), 1, "the request is not lost");
        }
        let block = [0; 512];
        let read = |what: &str, reply: &dyn Fn(u32) -> DataIn, data: &[u8]| {
            check(Op::Read, what, |itt| reply(itt).into(), data);
        };
        read("no task", &|itt| data_in(itt ^ 1), &block);
        read("no task", &|itt| data_in(itt ^ 0x10000), &block);
        read("no task", &|_| data_in(RESERVED_TAG), &block);
        read("longer than our", &|itt| data_in(itt), &[0; 8196]);
        read("past the end", &|itt| DataIn { buffer_offset: 20_000.into(), ..data_in(itt) }, &block);
        read("past the end", &|itt| DataIn { buffer_offset: u32::MAX.into(), ..data_in(itt) }, &block);
        read("out of order", &|itt| DataIn { buffer_offset: 512.into(), ..data_in(itt) }, &block);
        read("DataSN", &|itt| DataIn { data_sn: 1.into(), ..data_in(itt) }, &block);
        read("StatSN", &|itt| DataIn { stat_sn: 99.into(), ..last_data_in(itt) }, &block);
        read("before all data", &last_data_in, &block);
        read("not the last", &|itt| DataIn { flags: code::response::STATUS, ..last_data_in(itt) }, &block);
        check(Op::Write, "does not read", |itt| data_in(itt).into(), &block);
        let write =
            |what: &str, reply: &dyn Fn(u32) -> R2t| check(Op::Write, what, |itt| reply(itt).into(), &[]);
        write("no task", &|itt| r2t(itt + 1));
        write("R2TSN", &|itt| R2t { r2t_sn: 1.into(), ..r2t(itt) });
        write("for nothing", &|itt| R2t { desired_data_transfer_length: 0.into(), ..r2t(itt) });
        write("MaxBurstLength", &|itt| R2t { desired_data_transfer_length: 16_385.into(), ..r2t(itt) });
        write("past the end", &|itt| R2t { buffer_offset: 16_384.into(), ..r2t(itt) });
        write("past the end", &|itt| R2t { buffer_offset: u32::MAX.into(), ..r2t(itt) });
        write("out of order", &|itt| R2t { buffer_offset: 0.into(), ..r2t(itt) });
        write("transfer tag", &|itt| R2t { target_transfer_tag: RESERVED_TAG.into(), ..r2t(itt) });
        check(Op::Read, "does not write", |itt| r2t(itt).into(), &[]);
        let good = |itt| response(itt, Status::Good);
        check(Op::Read, "before all data", |itt| good(itt).into(), &[]);
        check(Op::Write, "too short", |itt| good(itt).into(), &[0]);
        check(Op::Write, "SenseLength", |itt| good(itt).into(), &[0, 9, 0x70]);
        check(
            Op::Write,
            "residual",
            |itt| {
                let flags = pdu::FLAG_FINAL | code::response::UNDERFLOW;
                ScsiResponse { flags, residual_count: 20_481.into(), ..good(itt) }.into()
            },
            &[],
        );
        check(Op::Read, "too long", |itt| good(itt).into(), &vec![0; SHORT_DATA_BYTES_MAX + 1]);
        check(
            Op::Read,
            "not sent",
            |_| LogoutResponse { stat_sn: 100.into(), ..LogoutResponse::default() }.into(),
            &[],
        );
        check(
            Op::Read,
            "not sent",
            |_| TaskManagementResponse { stat_sn: 100.into(), ..TaskManagementResponse::default() }.into(),
            &[],
        );
        check(
            Op::Read,
            "not sent",
            |itt| NopIn { initiator_task_tag: itt.into(), ..NopIn::default() }.into(),
            &[],
        );
        check(
            Op::Read,
            "without the header",
            |_| Reject { stat_sn: 100.into(), ..Reject::default() }.into(),
            &[1],
        );
        for byte in [0x00, 0x01, 0x05, 0x23, 0x24, 0x1c, 0x33, 0x3e] {
            let mut bhs = Bhs::from(NopIn::default());
            bhs.opcode = byte;
            check(Op::Read, "of a kind", move |_| bhs, &[]);
        }
    }

    /// The goal: a unit attention is consumed and the request sent again, a bounded number of times;
    /// BUSY waits.
    #[test]
    fn unit_attention_and_busy() {
        let mut session = session();
        let attention = sense(key::UNIT_ATTENTION, 0x29, 0);
        let mut sent = issue(&mut session, Op::Write, 512);
        for number in 0..3u32 {
            let answer = ScsiResponse {
                stat_sn: (100 + number).into(),
                max_cmd_sn: 99.into(),
                ..response(tag_of(&sent[0]), Status::CheckCondition)
            };
            hear(&mut session, answer, &attention).unwrap();
            match retire(&mut session, NOW) {
                None => sent = outgoing(&mut session),
                Some(retired) => assert!(number == 2 && retired.result.is_err()),
            }
        }
        assert_eq!((session.outstanding(), session.counts().unit_attentions), (0, 2));

        let sent = issue(&mut session, Op::Write, 512);
        let busy = ScsiResponse { stat_sn: 103.into(), ..response(tag_of(&sent[0]), Status::TaskSetFull) };
        hear(&mut session, busy, &[]).unwrap();
        assert!(retire(&mut session, NOW).is_none());
        assert!(outgoing(&mut session).is_empty());
        assert_eq!(session.deadline(), NOW.after(BUSY_WAIT));
        session.schedule(NOW.after(BUSY_WAIT));
        assert!(session.pull(0).is_some());
    }

    /// The goal: a command that takes too long is aborted; an abort that is not answered becomes a
    /// reset; a reset that is not answered loses the session. Every request ends once.
    #[test]
    fn timeouts_escalate() {
        let mut session = session();
        let sent = issue(&mut session, Op::Read, 512);
        session.submit(request(8, Op::Read, 512), NOW.after(Duration::from_secs(10))).unwrap();
        outgoing(&mut session);
        let late = NOW.after(Duration::from_secs(30));
        assert_eq!(session.deadline(), late);
        session.on_time(late);
        let abort = outgoing(&mut session);
        let pdu = TaskManagementRequest::view(&abort[0].bhs);
        assert_eq!(pdu.function, 0x80 | code::task_management::ABORT_TASK);
        assert_eq!(pdu.referenced_task_tag.get(), tag_of(&sent[0]));
        assert_eq!((pdu.ref_cmd_sn.get(), abort[0].bhs.is_immediate()), (10, true));
        let answer = |itt: u32, response, stat_sn: u32| TaskManagementResponse {
            response,
            initiator_task_tag: itt.into(),
            stat_sn: stat_sn.into(),
            ..TaskManagementResponse::default()
        };
        hear_at(&mut session, answer(tag_of(&abort[0]), 0, 100), &[], late).unwrap();
        assert_eq!(retire(&mut session, late).unwrap().result, Err(DeviceError::TimedOut));

        // The second request: the abort is refused, the reset not answered.
        let later = NOW.after(Duration::from_secs(40));
        session.on_time(later);
        let abort = outgoing(&mut session);
        hear_at(&mut session, answer(tag_of(&abort[0]), 5, 101), &[], later).unwrap();
        let reset = outgoing(&mut session);
        let function = TaskManagementRequest::view(&reset[0].bhs).function;
        assert_eq!(function, 0x80 | code::task_management::LOGICAL_UNIT_RESET);
        assert!(session.lost().is_none());
        session.on_time(NOW.after(Duration::from_secs(60)));
        assert!(session.lost().is_some());
        session.detach();
        assert_eq!(retire(&mut session, later).unwrap().result, Err(DeviceError::TimedOut));
        assert_eq!((session.outstanding(), session.counts().timeouts, session.counts().resets), (0, 2, 1));
    }

    /// The goal: after a loss what was not answered is sent again in order, a bounded number of times, with
    /// tags that answers to the old ones do not fit.
    #[test]
    fn loss_and_return() {
        let mut session = session();
        for tag in 0..6 {
            session.submit(request(tag, Op::Write, 512 * (tag + 1)), NOW).unwrap();
        }
        let before = outgoing(&mut session);
        assert_eq!(before.len(), 4);
        for round in 1..=3 {
            session.detach();
            while session.has_answered() {
                let retired = retire(&mut session, NOW);
                assert_eq!(retired.is_some(), round == 3, "round {round}");
                if let Some(retired) = retired {
                    assert_eq!(retired.result, Err(DeviceError::Gone));
                }
            }
            attach(&mut session);
            let again = outgoing(&mut session);
            assert!(again.iter().all(|o| before.iter().all(|old| tag_of(old) != tag_of(o))));
            let old = tag_of(&before[0]);
            assert!(hear(&mut session, response(old, Status::Good), &[]).is_err());
            assert!(ScsiCommand::view(&again[0].bhs).cmd_sn.get() == 10);
            if round == 3 {
                break;
            }
        }
        session.detach();
        session.fail_all(DeviceError::Gone);
        while session.has_answered() {
            assert_eq!(retire(&mut session, NOW).unwrap().result, Err(DeviceError::Gone));
        }
        assert_eq!(session.outstanding(), 0);
    }

    /// The goal: pings are answered, silence is pinged, and silence after that loses the session.
    #[test]
    fn pings() {
        let mut session = session();
        let ping = NopIn {
            initiator_task_tag: RESERVED_TAG.into(),
            target_transfer_tag: 0x55.into(),
            stat_sn: 100.into(),
            ..NopIn::default()
        };
        hear(&mut session, ping, &[]).unwrap();
        let pong = outgoing(&mut session);
        let pdu = NopOut::view(&pong[0].bhs);
        assert_eq!((pdu.target_transfer_tag.get(), pdu.initiator_task_tag.get()), (0x55, RESERVED_TAG));
        assert_eq!(session.exp_stat_sn(0), 100);

        let silent = NOW.after(Duration::from_secs(3600));
        session.on_time(silent);
        let ours = outgoing(&mut session);
        let itt = tag_of(&ours[0]);
        assert_ne!(itt, RESERVED_TAG);
        let answer = NopIn {
            initiator_task_tag: itt.into(),
            target_transfer_tag: RESERVED_TAG.into(),
            stat_sn: 100.into(),
            ..NopIn::default()
        };
        hear_at(&mut session, answer, &[], silent).unwrap();
        session.on_time(silent.after(Duration::from_secs(3600)));
        assert_eq!(outgoing(&mut session).len(), 1);
        assert!(session.lost().is_none());
        session.on_time(silent.after(Duration::from_secs(7200)));
        assert!(session.lost().is_some());
    }

    /// The goal: a target that asks for a logout gets one when the commands under way are done, and
    /// no new ones; a dropped session is a loss at once.
    #[test]
    fn asynchronous_messages() {
        let mut session = session();
        let itt = tag_of(&issue(&mut session, Op::Write, 512)[0]);
        let message = |event, stat_sn: u32| AsyncMessage {
            async_event: event,
            stat_sn: stat_sn.into(),
            parameter2: 2.into(),
            parameter3: 10.into(),
            ..AsyncMessage::default()
        };
        hear(&mut session, message(code::async_event::LOGOUT_REQUEST, 100), &[]).unwrap();
        assert!(issue(&mut session, Op::Write, 512).is_empty());
        session.on_time(NOW);
        let answer = ScsiResponse { stat_sn: 101.into(), ..response(itt, Status::Good) };
        hear(&mut session, answer, &[]).unwrap();
        session.on_time(NOW.after(Duration::from_millis(10)));
        let logout = outgoing(&mut session);
        assert_eq!(logout[0].bhs.kind(), Opcode::LogoutRequest);
        let answer = LogoutResponse { stat_sn: 102.into(), time2wait: 3.into(), ..LogoutResponse::default() };
        hear(&mut session, answer, &[]).unwrap();
        assert_eq!(session.lost().unwrap().wait, Duration::from_secs(3));

        let mut dropped = self::session();
        hear(&mut dropped, message(code::async_event::SESSION_DROP, 100), &[]).unwrap();
        assert_eq!(dropped.lost().unwrap().wait, Duration::from_secs(2));
    }

    /// The goal: requests that cannot be are refused without the target, and an unmap longer than the LUN takes
    /// is one request of several commands.
    #[test]
    fn refused_and_pieced_requests() {
        let mut session = session();
        let mut check = |op, offset, len, error| {
            let request = Request { offset, ..request(1, op, len) };
            session.submit(request, NOW).unwrap();
            assert_eq!(retire(&mut session, NOW).unwrap().result, Err(error));
        };
        check(Op::Read, 100, 512, DeviceError::OutOfRange);
        check(Op::Read, 0, 100, DeviceError::OutOfRange);
        check(Op::Read, 1 << 30, 512, DeviceError::OutOfRange);
        check(Op::Read, u64::MAX - 511, 512, DeviceError::OutOfRange);
        check(Op::Read, 0, 2 << 20, DeviceError::OutOfRange);
        check(Op::Write, 0, 0, DeviceError::OutOfRange);

        let mut sent = issue(&mut session, Op::Unmap, 20 * 512);
        for number in 0..3u32 {
            assert_eq!(sent.len(), 1);
            let task = sent[0].data.unwrap().task;
            let count = u32::from_be_bytes(session.data(task)[16..20].try_into().unwrap());
            assert_eq!(count, if number < 2 { 8 } else { 4 });
            let answer = ScsiResponse {
                stat_sn: (100 + number).into(),
                max_cmd_sn: 99.into(),
                ..response(tag_of(&sent[0]), Status::Good)
            };
            hear(&mut session, answer, &[]).unwrap();
            let retired = retire(&mut session, NOW);
            assert_eq!(retired.is_some(), number == 2);
            sent = outgoing(&mut session);
        }
        assert_eq!(session.outstanding(), 0);
    }

    /// The goal: a request is cancelled whether it waits or is under way.
    #[test]
    fn cancel() {
        let mut session = session();
        for tag in 0..5 {
            session.submit(request(tag, Op::Read, 512), NOW).unwrap();
        }
        let sent = outgoing(&mut session);
        session.cancel(4, NOW);
        let cancelled = Err(DeviceError::refused(Refusal::Cancelled));
        assert_eq!(retire(&mut session, NOW).unwrap().result, cancelled);
        session.cancel(0, NOW);
        session.on_time(NOW);
        let abort = outgoing(&mut session);
        assert_eq!(TaskManagementRequest::view(&abort[0].bhs).referenced_task_tag.get(), tag_of(&sent[0]));
        // The answer was faster than the abort.
        hear(&mut session, last_data_in(tag_of(&sent[0])), &[0; 512]).unwrap();
        assert_eq!(retire(&mut session, NOW).unwrap().result, Ok(()));
        let too_late = TaskManagementResponse {
            response: code::task_management::TASK_DOES_NOT_EXIST,
            initiator_task_tag: tag_of(&abort[0]).into(),
            stat_sn: 101.into(),
            ..TaskManagementResponse::default()
        };
        hear(&mut session, too_late, &[]).unwrap();
        assert!(!session.has_answered());
    }
}
