//! Commands and task management functions that wait for their responses. [`super::Iscsi`] feeds it the PDUs of
//! each connection; it emits an operation for each task. The one rule: a response belongs to a task only on the
//! same connection with the same tag (connection allegiance, RFC 7143, 4.2.2), and every task is emitted once.

use brunt_wire::iscsi::pdu::code;
use brunt_wire::scsi::unmap::UnmapDescriptor;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::id::SCSI;
use super::task::{Scsi, ScsiSession, ScsiTask, TaskAnswer, name_of};
use super::{commands, kinds};
use crate::dissect::{Detail, Out, OwnPart};
use crate::operation::{FileKey, Operation, OperationSummary, Sink};

/// Interval between checks for tasks that have waited too long.
const EXPIRE_EVERY_NS: u64 = 1_000_000_000;
/// Maximum extents of all waiting UNMAPs: 4 MiB. Beyond that, the extents of further UNMAPs are unknown.
const EXTENTS_MAX: usize = 1 << 18;

/// The tasks that a task management function aborts (RFC 7143, 11.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbortScope {
    /// The task with this tag on the same connection.
    Task(u32),
    /// All tasks of a logical unit.
    Unit([u8; 8]),
    /// All tasks of the target.
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

/// All waiting tasks of all connections.
#[derive(Debug)]
pub struct ScsiTasks {
    waiting: HashMap<u64, ScsiTask, FixedState>,
    max: usize,
    /// Total extents of the waiting tasks.
    extents: usize,
    timeout_ns: u64,
    expired_ns: u64,
    /// Number of tasks that resets may still examine.
    looks_left: u64,
}

/// Number of tasks that resets may examine for each new task: a reset examines all waiting tasks, so without a limit,
/// a flood of resets would be expensive.
const LOOKS_EACH: u64 = 64;

fn key(connection: u32, tag: u32) -> u64 {
    u64::from(connection) << 32 | u64::from(tag)
}

impl ScsiTasks {
    /// At most `max` tasks wait, each for at most `timeout_ns`.
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

    /// The task with this tag.
    pub fn of(&mut self, connection: u32, tag: u32) -> Option<&mut ScsiTask> {
        self.waiting.get_mut(&key(connection, tag))
    }

    /// Sets the extents of the UNMAP with this tag.
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

    /// Releases the extents of a task that is no longer waiting.
    fn left(&mut self, task: &ScsiTask) {
        self.extents -= task.extents.as_ref().map_or(0, Vec::len);
    }

    /// Whether a task with this tag is waiting.
    pub fn waits(&self, connection: u32, tag: u32) -> bool {
        self.waiting.contains_key(&key(connection, tag))
    }

    /// Number of waiting tasks.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Starts a task. If a task with the same tag is still waiting, its response must have been lost.
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
            // Evicts an arbitrary task: finding the oldest would cost more than it is worth.
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

    /// Completes a task with its response.
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
        forward(&task, Some(answer), session, out);
        let is_complete = answer.response == code::task_management::FUNCTION_COMPLETE;
        let scope = task
            .function
            .and_then(|(function, tag)| AbortScope::of(function, tag, task.lun));
        if let Some(scope) = scope.filter(|_| is_complete) {
            self.abort(connection, &task, scope, session, out);
        }
    }

    /// Applies a completed task management function: the tasks that it aborted get no response, and their tags can be
    /// reused. Whether it also aborted tasks of other sessions is unknown: with TAS, those get a response (SAM-5,
    /// 5.3.1); otherwise they time out.
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
                // The scan skips empty buckets 16 at a time.
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

    /// Abandons tasks that have waited too long.
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

    /// Ends the capture: abandons all waiting tasks.
    pub fn finish<S: Sink>(&mut self, out: &mut Out<'_, S>) {
        let mut left: Vec<ScsiTask> = self.waiting.drain().map(|(_, task)| task).collect();
        left.sort_unstable_by_key(|task| task.record_id);
        self.extents = 0;
        out.ledger.calls_open_at_end += left.len() as u64;
        left.iter()
            .for_each(|task| give_up(task, &ScsiSession::default(), out));
    }
}

impl OwnPart for Scsi<'_> {
    fn each_name(
        &self,
        operation: &Operation<'_>,
        tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
    ) {
        if let (true, Some(file)) = (self.task.has_new_name, operation.summary.file) {
            tell(
                file,
                None,
                name_of(self.task.lun, self.session.target).as_bytes(),
            );
        }
    }
}

fn give_up<S: Sink>(task: &ScsiTask, session: &ScsiSession<'_>, out: &mut Out<'_, S>) {
    out.ledger.calls_open -= 1;
    forward(task, None, session, out);
}

fn forward<S: Sink>(
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
        kind: kinds::kind(cdb),
        protocol: SCSI,
        // A response code other than "completed" is a failure, regardless of the status.
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
