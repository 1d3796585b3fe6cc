//! Commands and task management functions that wait for their answers. Fed by [`super::Iscsi`] with the PDUs of each
//! connection; hands on an operation for each task. The one rule: an answer belongs to a task only on the same
//! connection with the same tag (connection allegiance, RFC 7143, 4.2.2), and every task is handed on once.

use brunt_wire::iscsi::pdu::{ScsiCommand, code, lun_number};
use brunt_wire::nfs::FileHandle;
use brunt_wire::scsi::sense::Sense;
use brunt_wire::scsi::unmap::UnmapDescriptor;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{SCSI, Scsi, commands};
use crate::dissect::{Detail, Out};
use crate::operation::{FileKey, Message, Operation, OperationSummary, Peers, Sink};

/// Tasks that have waited too long are looked for this often.
const EXPIRE_EVERY_NS: u64 = 1_000_000_000;
/// Extents of all UNMAPs that wait, at the most: 4 MiB of them. Those of one beyond are not known.
const EXTENTS_MAX: usize = 1 << 18;

/// Data of a task, in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskData {
    /// When the first and the last PDU with data were seen, or bytes of them.
    pub first_ns: Option<u64>,
    /// As above.
    pub last_ns: Option<u64>,
    /// Bytes that were seen.
    pub bytes: u32,
    /// Bytes that lay in gaps.
    pub missing: u32,
}

impl TaskData {
    /// Some more bytes.
    pub fn add(&mut self, bytes: usize, time_ns: u64) {
        // Packets out of order come here in their place, with later times than what follows.
        self.first_ns = Some(self.first_ns.map_or(time_ns, |first| first.min(time_ns)));
        self.last_ns = self.last_ns.max(Some(time_ns));
        self.bytes = self.bytes.saturating_add(bytes as u32);
    }
}

/// A command or a task management function.
#[derive(Clone, Debug)]
pub struct ScsiTask {
    /// Its number among all operations.
    pub record_id: u64,
    /// Who asked whom.
    pub peers: Peers,
    /// The initiator's tag.
    pub tag: u32,
    /// The request's PDU.
    pub request: Message,
    /// The logical unit's field.
    pub lun: [u8; 8],
    /// Flags and CDB; `None` is task management.
    pub command: Option<ScsiCommand>,
    /// The function of task management, and the tag it is about.
    pub function: Option<(u8, u32)>,
    /// What stands for the logical unit.
    pub file: FileKey,
    /// Whether the target's name is told with it.
    pub tells_name: bool,
    /// From the initiator.
    pub out: TaskData,
    /// To the initiator.
    pub into: TaskData,
    /// R2Ts, and when the first was seen.
    pub r2ts: u32,
    /// As above.
    pub first_r2t_ns: Option<u64>,
    /// Bytes of a block of the logical unit, where commands before or its capacity have shown it.
    pub unit_block_bytes: Option<u32>,
    /// What UNMAP gives back; `None` while its list was not seen as a whole, and of other commands.
    pub extents: Option<Vec<UnmapDescriptor>>,
    /// Tasks that waited when it came, itself included.
    pub outstanding: u32,
    /// Its session, as [`ScsiSession::number`] has it.
    pub session: Option<u64>,
    /// The record of the task management function that ended it.
    pub aborted_by: Option<u64>,
}

/// Which tasks a task management function ends (RFC 7143, 11.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbortScope {
    /// The one with this tag, on the same connection.
    Task(u32),
    /// All of a logical unit.
    Unit([u8; 8]),
    /// All of the target.
    Target,
}

impl AbortScope {
    fn of(function: u8, referenced_tag: u32, lun: [u8; 8]) -> Option<AbortScope> {
        use code::task_management as function_code;
        match function {
            function_code::ABORT_TASK => Some(AbortScope::Task(referenced_tag)),
            function_code::ABORT_TASK_SET
            | function_code::CLEAR_TASK_SET
            | function_code::LOGICAL_UNIT_RESET => Some(AbortScope::Unit(lun)),
            function_code::TARGET_WARM_RESET | function_code::TARGET_COLD_RESET => {
                Some(AbortScope::Target)
            }
            _ => None,
        }
    }
}

impl ScsiTask {
    /// Bytes of a block: what was asked for in bytes by what was asked for in blocks. WRITE SAME sends one block, and
    /// of UNMAP the logical unit says it.
    pub fn block_bytes(&self) -> Option<u32> {
        let command = self.command.as_ref()?;
        let bytes = command.expected_data_transfer_length.get();
        if commands::is_unmap(&command.cdb) {
            return self.unit_block_bytes;
        }
        if commands::is_write_same(&command.cdb) {
            return self
                .unit_block_bytes
                .or(Some(bytes).filter(|bytes| *bytes >= 512));
        }
        commands::direction(&command.cdb)?;
        let (_, blocks) = commands::blocks(&command.cdb)?;
        (blocks > 0 && bytes % blocks == 0)
            .then(|| bytes / blocks)
            .filter(|bytes| *bytes >= 512)
    }

    /// Where its data begins on the logical unit, in bytes.
    pub fn offset(&self) -> Option<u64> {
        let command = self.command.as_ref()?;
        commands::direction(&command.cdb)?;
        let (lba, _) = commands::blocks(&command.cdb)?;
        lba.checked_mul(self.block_bytes()?.into())
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskAnswer {
    /// The PDU with the status.
    pub message: Message,
    /// SCSI's status; `None` of task management and of commands that did not get there.
    pub status: Option<u8>,
    /// iSCSI's response code.
    pub response: u8,
    /// What went wrong.
    pub sense: Option<Sense>,
    /// Bytes that did not move of those that were expected; negative: more than expected would have.
    pub residual: Option<i64>,
}

/// All that wait, of all connections.
#[derive(Debug)]
pub struct ScsiTasks {
    waiting: HashMap<u64, ScsiTask, FixedState>,
    max: usize,
    /// Extents that they have together.
    extents: usize,
    timeout_ns: u64,
    expired_ns: u64,
    /// How many tasks may still be looked at to find those that a reset ends.
    looks_left: u64,
}

/// Each task that begins allows so many looks: a reset looks at all that wait, and a flood of resets must not.
const LOOKS_EACH: u64 = 64;

fn key(connection: u32, tag: u32) -> u64 {
    u64::from(connection) << 32 | u64::from(tag)
}

impl ScsiTasks {
    /// At most `max`, for at most `timeout_ns`.
    pub fn new(max: usize, timeout_ns: u64) -> ScsiTasks {
        ScsiTasks {
            waiting: HashMap::with_hasher(FixedState::default()),
            max,
            extents: 0,
            timeout_ns,
            expired_ns: 0,
            looks_left: 0,
        }
    }

    /// The task with that tag.
    pub fn of(&mut self, connection: u32, tag: u32) -> Option<&mut ScsiTask> {
        self.waiting.get_mut(&key(connection, tag))
    }

    /// What the UNMAP with that tag gives back.
    pub fn unmaps(
        &mut self,
        connection: u32,
        tag: u32,
        extents: impl Iterator<Item = UnmapDescriptor>,
    ) {
        let room = EXTENTS_MAX.saturating_sub(self.extents);
        let Some(task) = self.waiting.get_mut(&key(connection, tag)) else {
            return;
        };
        if !task
            .command
            .is_some_and(|command| commands::is_unmap(&command.cdb))
            || task.extents.is_some()
        {
            return;
        }
        let extents: Vec<UnmapDescriptor> = extents.take(room + 1).collect();
        if extents.len() <= room {
            self.extents += extents.len();
            task.extents = Some(extents);
        }
    }

    /// A task waits no longer.
    fn left(&mut self, task: &ScsiTask) {
        self.extents -= task.extents.as_ref().map_or(0, Vec::len);
    }

    /// Whether there is one.
    pub fn waits(&self, connection: u32, tag: u32) -> bool {
        self.waiting.contains_key(&key(connection, tag))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// A task begins. What waits with the same tag has lost its answer.
    pub fn begin<S: Sink>(
        &mut self,
        connection: u32,
        task: ScsiTask,
        session: &ScsiSession<'_>,
        out: &mut Out<'_, S>,
    ) {
        out.ledger.calls += 1;
        out.ledger.calls_open += 1;
        self.looks_left = self.looks_left.saturating_add(LOOKS_EACH);
        if self.waiting.len() >= self.max {
            // Whichever comes first: finding the oldest would cost more than it is worth.
            let any = self.waiting.keys().next().copied();
            if let Some(task) = any.and_then(|key| self.waiting.remove(&key)) {
                out.ledger.calls_evicted += 1;
                self.left(&task);
                give_up(&task, session, out);
            }
        }
        if let Some(old) = self.waiting.insert(key(connection, task.tag), task) {
            self.left(&old);
            out.ledger.calls_evicted += 1;
            give_up(&old, session, out);
        }
    }

    /// A task is answered.
    pub fn answer<S: Sink>(
        &mut self,
        connection: u32,
        tag: u32,
        answer: &TaskAnswer,
        session: &ScsiSession<'_>,
        out: &mut Out<'_, S>,
    ) {
        out.ledger.replies += 1;
        let Some(task) = self.waiting.remove(&key(connection, tag)) else {
            out.ledger.replies_unmatched += 1;
            return;
        };
        self.left(&task);
        out.ledger.calls_open -= 1;
        out.ledger.calls_answered += 1;
        hand_on(&task, Some(answer), session, out);
        let is_complete = answer.response == code::task_management::FUNCTION_COMPLETE;
        let scope = task
            .function
            .and_then(|(function, tag)| AbortScope::of(function, tag, task.lun));
        if let Some(scope) = scope.filter(|_| is_complete) {
            self.abort(connection, &task, scope, session, out);
        }
    }

    /// A task management function was carried out: the tasks that it ended get no answer, and their tags are free. Of
    /// other sessions nothing is known: with TAS their tasks are answered (SAM-5, 5.3.1), and else they time out.
    #[cold]
    fn abort<S: Sink>(
        &mut self,
        connection: u32,
        by: &ScsiTask,
        scope: AbortScope,
        session: &ScsiSession<'_>,
        out: &mut Out<'_, S>,
    ) {
        let is_ended = |key: u64, task: &ScsiTask| {
            let is_same = key >> 32 == u64::from(connection)
                || by.session.is_some() && task.session == by.session;
            let is_in_scope = match scope {
                AbortScope::Task(_) => true,
                AbortScope::Unit(lun) => task.lun == lun,
                AbortScope::Target => true,
            };
            is_same && is_in_scope && task.command.is_some() && task.record_id < by.record_id
        };
        let mut ended: Vec<ScsiTask> = match scope {
            AbortScope::Task(tag) => {
                let key = key(connection, tag);
                let ends = self
                    .waiting
                    .get(&key)
                    .is_some_and(|task| is_ended(key, task));
                ends.then(|| self.waiting.remove(&key))
                    .flatten()
                    .into_iter()
                    .collect()
            }
            AbortScope::Unit(_) | AbortScope::Target => {
                // Empty places are passed over 16 at a time.
                let looks = (self.waiting.len() + self.waiting.capacity() / 16) as u64;
                if looks > self.looks_left {
                    return;
                }
                self.looks_left -= looks;
                self.waiting
                    .extract_if(|key, task| is_ended(*key, task))
                    .map(|(_, task)| task)
                    .collect()
            }
        };
        ended.sort_unstable_by_key(|task| task.record_id);
        for task in &mut ended {
            self.left(task);
            task.aborted_by = Some(by.record_id);
            out.ledger.calls_aborted += 1;
            give_up(task, session, out);
        }
    }

    /// Gives up what has waited for too long.
    pub fn expire<S: Sink>(&mut self, now_ns: u64, out: &mut Out<'_, S>) {
        if now_ns.saturating_sub(self.expired_ns) < EXPIRE_EVERY_NS {
            return;
        }
        self.expired_ns = now_ns;
        let due = now_ns.saturating_sub(self.timeout_ns);
        let mut late: Vec<ScsiTask> = self
            .waiting
            .extract_if(|_, task| task.request.first_ns < due)
            .map(|(_, task)| task)
            .collect();
        late.sort_unstable_by_key(|task| task.record_id);
        out.ledger.calls_timed_out += late.len() as u64;
        late.iter().for_each(|task| self.left(task));
        late.iter()
            .for_each(|task| give_up(task, &ScsiSession::default(), out));
    }

    /// The capture is over.
    pub fn finish<S: Sink>(&mut self, out: &mut Out<'_, S>) {
        let mut left: Vec<ScsiTask> = self.waiting.drain().map(|(_, task)| task).collect();
        left.sort_unstable_by_key(|task| task.record_id);
        self.extents = 0;
        out.ledger.calls_open_at_end += left.len() as u64;
        left.iter()
            .for_each(|task| give_up(task, &ScsiSession::default(), out));
    }
}

/// What is known of a connection's session.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScsiSession<'a> {
    /// A hash of the initiator's name, its part of the session's number, and the target's name.
    pub number: Option<u64>,
    /// The target's name.
    pub target: Option<&'a str>,
}

/// What stands for a logical unit of a server.
pub fn handle_of(lun: [u8; 8], target: Option<&str>) -> Vec<u8> {
    let mut handle = target.unwrap_or_default().as_bytes().to_vec();
    handle.extend(lun);
    handle
}

/// Its key.
pub fn file_of(peers: &Peers, lun: [u8; 8], target: Option<&str>) -> FileKey {
    FileKey::new(peers.server.address, FileHandle(&handle_of(lun, target)))
}

/// What a logical unit is called.
pub fn name_of(lun: [u8; 8], target: Option<&str>) -> String {
    let target = target.unwrap_or("unknown target");
    match lun_number(lun) {
        Some(number) => format!("{target}/{number}"),
        None => format!("{target}/{:016x}", u64::from_be_bytes(lun)),
    }
}

fn give_up<S: Sink>(task: &ScsiTask, session: &ScsiSession<'_>, out: &mut Out<'_, S>) {
    out.ledger.calls_open -= 1;
    hand_on(task, None, session, out);
}

fn hand_on<S: Sink>(
    task: &ScsiTask,
    answer: Option<&TaskAnswer>,
    session: &ScsiSession<'_>,
    out: &mut Out<'_, S>,
) {
    let cdb = task.command.as_ref().map(|command| &command.cdb);
    let moved = match &task.command {
        Some(command) if command.flags & code::command::WRITE != 0 => &task.out,
        _ => &task.into,
    };
    let summary = OperationSummary {
        kind: commands::kind(cdb),
        protocol: SCSI,
        // A response code that is not "completed" is a failure, whatever the status would say.
        status: answer.and_then(|answer| match (answer.response, answer.status) {
            (0, status) => status.map(u32::from),
            (response, _) => Some(0x100 | u32::from(response)),
        }),
        file: Some(task.file),
        direction: cdb.and_then(commands::direction),
        offset: task.offset(),
        asked_bytes: task
            .command
            .as_ref()
            .map(|command| command.expected_data_transfer_length.get()),
        moved_bytes: moved.bytes + moved.missing,
    };
    let clock_was_set = out.on_complete(
        task.record_id,
        task.request.first_ns,
        answer.map(|answer| answer.message.first_ns),
    );
    out.sink.on_operation(&Operation {
        record_id: task.record_id,
        summary,
        peers: task.peers,
        tag: task.tag,
        request: task.request,
        reply: answer.map(|answer| answer.message),
        outstanding: task.outstanding,
        data_missing: moved.missing,
        clock_was_set,
        detail: &Detail::Iscsi(Scsi {
            task,
            answer,
            session: *session,
        }),
    });
}
