//! One connection's commands on one logical unit, from CDB to outcome, and task management (SAM-5, 7 and 8). Runs on
//! the connection's worker and drives the connection's device.
//!
//! READ and WRITE have a fast path: a few atomic loads show that no condition is pending, and inline media are accessed
//! without a request. Every other command is looked up in the command table and becomes an answer or a [`Job`]. The one
//! rule: a command that was begun has exactly one outcome.
//!
//! The files: [`begin`] begins commands; [`plan`] determines what commands other than READ and WRITE need;
//! [`collected`] and [`copy`] process their Data-Out; [`abort`] implements task management. This file runs the tasks.

mod abort;
mod begin;
mod collected;
mod copy;
mod plan;
mod task;

use std::collections::HashMap;
use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Buf, Completion, Device, Op, OpenError, Request, Ring};
use brunt_core::Nanos;
use brunt_wire::scsi::sense::ScsiStatus;

use self::task::{LockMode, ScsiTask, TaskStage, TaskWork};
use crate::scsi::command::Refused;
use crate::scsi::jobs::{ByteRange, DeviceIo, IoDone, JobStep};
use crate::scsi::locks::Hold;
use crate::scsi::lun::NexusShared;
use crate::scsi::management::{Mailbox, Ticket};
use crate::scsi::{CommandOutcome, DataIn, LogicalUnit, Nexus, TaskAttribute, TransportCommand};
use crate::tag::TagHasher;

/// Retry interval of a command that waits for another connection's command.
const PARKED_RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// A connection's tasks on a unit; see the module's documentation.
pub struct TaskSet {
    unit: Arc<LogicalUnit>,
    ring: Ring,
    device: Box<dyn Device>,
    /// Open devices of other units, used for copies.
    others: Vec<(Arc<LogicalUnit>, Box<dyn Device>)>,
    depth: u32,
    nexus: Arc<NexusShared>,
    mailbox: Arc<Mailbox>,
    tasks: Vec<Option<ScsiTask>>,
    free: Vec<usize>,
    by_tag: HashMap<u64, usize, BuildHasherDefault<TagHasher>>,
    sequence: u64,
    /// Number of unfinished ORDERED tasks.
    ordered: usize,
    parked: Vec<usize>,
    sleeping: usize,
    batch: VecDeque<Request>,
    other_batches: Vec<VecDeque<Request>>,
    completions: Vec<Completion>,
    finished: Vec<CommandOutcome>,
    /// Tickets, each with the sequence numbers of the tasks that it waits for.
    tickets: Vec<(Ticket, Vec<u64>)>,
}

impl TaskSet {
    /// Opens the unit for a connection of `nexus` on its thread's ring, for up to `depth` commands.
    ///
    /// # Errors
    /// The backend can't be opened.
    pub fn open(
        unit: &Arc<LogicalUnit>,
        ring: &Ring,
        nexus: &Nexus,
        depth: u32,
    ) -> Result<TaskSet, OpenError> {
        let device = unit.backend().open(ring, depth)?;
        let mailbox = Arc::new(Mailbox::new(ring.waker()));
        Ok(TaskSet {
            nexus: unit.attach(nexus, &mailbox),
            unit: Arc::clone(unit),
            ring: ring.clone(),
            device,
            others: Vec::new(),
            depth,
            mailbox,
            // All of these grow only with use, so an idle connection takes little memory.
            tasks: Vec::new(),
            free: Vec::new(),
            by_tag: HashMap::with_hasher(BuildHasherDefault::default()),
            sequence: 0,
            ordered: 0,
            parked: Vec::new(),
            sleeping: 0,
            batch: VecDeque::new(),
            other_batches: Vec::new(),
            completions: Vec::new(),
            finished: Vec::new(),
            tickets: Vec::new(),
        })
    }

    /// The task set's unit.
    pub fn unit(&self) -> &Arc<LogicalUnit> {
        &self.unit
    }

    /// Number of commands begun but not answered yet.
    pub fn outstanding(&self) -> u32 {
        self.by_tag.len() as u32
    }

    /// Whether the command with this tag is outstanding.
    pub fn has(&self, tag: u64) -> bool {
        self.by_tag.contains_key(&tag)
    }

    /// If no commands are outstanding, closes the devices of other units that were opened for copies, because those
    /// units may have left the target.
    pub fn forget_others(&mut self) {
        if self.by_tag.is_empty() {
            self.others.clear();
            self.other_batches.clear();
        }
    }

    /// Submits queued requests to the device. Call once before [`Ring::enter`].
    pub fn submit(&mut self) {
        if !self.batch.is_empty() {
            self.device.submit(&mut self.batch);
        }
        for ((_, device), batch) in self.others.iter_mut().zip(&mut self.other_batches) {
            if !batch.is_empty() {
                device.submit(batch);
            }
        }
    }

    /// Appends finished commands to `done`. Call after [`Ring::enter`].
    pub fn poll(&mut self, done: &mut Vec<CommandOutcome>) {
        if self.mailbox.has_requests() {
            for request in self.mailbox.take() {
                self.obey(&request);
            }
        }
        self.submit();
        let mut completions = std::mem::take(&mut self.completions);
        self.device.poll(&mut completions);
        for (_, device) in &mut self.others {
            device.poll(&mut completions);
        }
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.completions = completions;
        if !self.parked.is_empty() {
            let parked = std::mem::take(&mut self.parked);
            for slot in parked {
                self.run(slot);
            }
        }
        if self.sleeping > 0 {
            self.wake_sleepers();
        }
        self.submit();
        done.append(&mut self.finished);
    }

    /// When [`TaskSet::poll`] must be called again even if the ring reports nothing, like [`Device::deadline`].
    pub fn deadline(&self) -> Nanos {
        if !self.finished.is_empty() || !self.batch.is_empty() {
            return Nanos(0);
        }
        let mut deadline = self.device.deadline();
        for (_, device) in &self.others {
            deadline = deadline.min(device.deadline());
        }
        if !self.parked.is_empty() {
            deadline = deadline.min(self.unit.options().clock.now().after(PARKED_RETRY_INTERVAL));
        }
        if self.sleeping > 0 {
            for task in self.tasks.iter().flatten() {
                if let TaskStage::Sleeping(until) = task.stage {
                    deadline = deadline.min(until);
                }
            }
        }
        deadline
    }

    fn wake_sleepers(&mut self) {
        let now = self.unit.options().clock.now();
        for slot in 0..self.tasks.len() {
            let Some(task) = &mut self.tasks[slot] else {
                continue;
            };
            let TaskStage::Sleeping(until) = task.stage else {
                continue;
            };
            if until > now {
                continue;
            }
            self.sleeping -= 1;
            task.stage = TaskStage::Running;
            if let TaskWork::Job(job) = &mut task.work {
                let step = job.step(None, self.ring.pool());
                self.follow(slot, step);
            }
        }
    }

    fn add(
        &mut self,
        command: &TransportCommand<'_>,
        work: TaskWork,
        stage: TaskStage,
        range: ByteRange,
        lock: LockMode,
        wants: u32,
    ) -> Option<usize> {
        if self.by_tag.len() >= self.depth as usize {
            return None;
        }
        self.sequence += 1;
        let task = ScsiTask {
            tag: command.tag,
            sequence: self.sequence,
            attribute: command.attribute,
            stage,
            aborted: false,
            work,
            range,
            lock,
            hold: Hold::NONE,
            has_lock: false,
            wants,
            data: Buf::empty(),
        };
        if command.attribute == TaskAttribute::Ordered {
            self.ordered += 1;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.tasks[slot] = Some(task);
                slot
            }
            None => {
                self.tasks.push(Some(task));
                self.tasks.len() - 1
            }
        };
        let before = self.by_tag.insert(command.tag, slot);
        assert!(before.is_none(), "tag {} is in use", command.tag);
        Some(slot)
    }

    fn remove(&mut self, slot: usize) -> ScsiTask {
        let task = self.tasks[slot].take().expect("a task is removed once");
        self.free.push(slot);
        self.by_tag.remove(&task.tag);
        if task.attribute == TaskAttribute::Ordered {
            self.ordered -= 1;
        }
        self.unit.locks.release(task.hold);
        if !self.tickets.is_empty() {
            for (_, waits) in &mut self.tickets {
                waits.retain(|sequence| *sequence != task.sequence);
            }
            self.tickets.retain(|(ticket, waits)| {
                if waits.is_empty() {
                    ticket.finish();
                }
                !waits.is_empty()
            });
        }
        task
    }

    fn finish_now(&mut self, slot: usize, result: Result<DataIn, Refused>) -> CommandOutcome {
        let task = self.remove(slot);
        if task.aborted {
            aborted(task.tag)
        } else {
            CommandOutcome::new(task.tag, result, task.wants)
        }
    }

    fn finish(&mut self, slot: usize, result: Result<DataIn, Refused>) {
        let outcome = self.finish_now(slot, result);
        self.finished.push(outcome);
    }

    /// Whether older tasks allow this one to run (SAM-5, 8.6): an ORDERED task waits for all older tasks, all tasks
    /// wait for older ORDERED tasks, and a HEAD OF QUEUE task doesn't wait.
    fn may_run(&self, slot: usize) -> bool {
        if self.ordered == 0 {
            return true;
        }
        let task = self.tasks[slot].as_ref().expect("the task exists");
        match task.attribute {
            TaskAttribute::HeadOfQueue => true,
            attribute => !self.tasks.iter().flatten().any(|other| {
                other.sequence < task.sequence
                    && (attribute == TaskAttribute::Ordered
                        || other.attribute == TaskAttribute::Ordered)
            }),
        }
    }

    /// Acquires the task's lock, or part of it. Returns whether the lock is complete.
    fn lock(&mut self, slot: usize) -> bool {
        let task = self.tasks[slot].as_mut().expect("the task exists");
        if task.has_lock {
            return true;
        }
        let ByteRange { offset, len } = task.range;
        task.has_lock = match task.lock {
            LockMode::None => true,
            LockMode::Share => self
                .unit
                .locks
                .share(offset, len)
                .map(|hold| task.hold = hold)
                .is_some(),
            LockMode::Exclude => match self.unit.locks.exclude(offset, len, task.hold) {
                Ok(hold) => {
                    task.hold = hold;
                    true
                }
                Err(part) => {
                    task.hold = part;
                    false
                }
            },
        };
        task.has_lock
    }

    /// Runs a task as far as possible, and parks it if it can't run.
    fn run(&mut self, slot: usize) {
        if !self.may_run(slot) || !self.lock(slot) {
            self.parked.push(slot);
            return;
        }
        let pool = self.ring.pool().clone();
        let task = self.tasks[slot].as_mut().expect("only existing tasks run");
        assert!(
            task.stage == TaskStage::Parked,
            "a task runs once it has its data and its lock"
        );
        task.stage = TaskStage::Running;
        let ByteRange { offset, len } = task.range;
        let (op, buf, force) = match &mut task.work {
            TaskWork::Read => (Op::Read, pool.take(len as usize), false),
            TaskWork::Write { force } => (Op::Write, std::mem::take(&mut task.data), *force),
            TaskWork::Job(job) => {
                let step = job.step(None, &pool);
                self.follow(slot, step);
                return;
            }
            TaskWork::Collect(_) => unreachable!("the data was collected"),
        };
        self.batch.push_back(Request {
            tag: slot as u64,
            op,
            offset,
            len,
            buf,
            force_unit_access: force,
        });
    }

    fn follow(&mut self, slot: usize, step: JobStep) {
        match step {
            JobStep::Submit(DeviceIo {
                device,
                op,
                offset,
                len,
                buf,
                force,
            }) => {
                let request = Request {
                    tag: slot as u64,
                    op,
                    offset,
                    len,
                    buf,
                    force_unit_access: force,
                };
                match device {
                    0 => self.batch.push_back(request),
                    other => self.other_batches[other - 1].push_back(request),
                }
            }
            JobStep::Wait(until) => {
                self.tasks[slot]
                    .as_mut()
                    .expect("the task has stepped")
                    .stage = TaskStage::Sleeping(until);
                self.sleeping += 1;
            }
            JobStep::Done(result) => self.finish(slot, result),
        }
    }

    fn completed(&mut self, completion: Completion) {
        let slot = completion.tag as usize;
        let Completion { buf, result, .. } = completion;
        let task = self.tasks[slot]
            .as_mut()
            .expect("only existing tasks complete");
        assert!(
            task.stage == TaskStage::Running,
            "only submitted tasks complete"
        );
        if task.aborted {
            self.finish(slot, Ok(DataIn::None));
            return;
        }
        if let Err(error) = &result {
            let op = match &task.work {
                TaskWork::Read => Some(Op::Read),
                TaskWork::Write { .. } => Some(Op::Write),
                TaskWork::Job(_) | TaskWork::Collect(_) => None,
            };
            self.unit.disk_failed(op, task.range.offset, error);
        }
        match &mut task.work {
            TaskWork::Read => {
                let len = task.range.len as u32;
                // A recovered error is reported together with the data.
                if let Err(error) = result
                    && error.is_recovered()
                    && let Refused::Check(sense) = Refused::device(error, false)
                {
                    let mut outcome = self.finish_now(slot, Ok(DataIn::Buf(buf, len)));
                    (outcome.status, outcome.sense) = (ScsiStatus::CheckCondition, Some(sense));
                    return self.finished.push(outcome);
                }
                let result = result.map_err(|error| Refused::device(error, false));
                self.finish(slot, result.map(|()| DataIn::Buf(buf, len)));
            }
            TaskWork::Write { .. } => {
                let result = result.map_err(|error| Refused::device(error, true));
                self.finish(slot, result.map(|()| DataIn::None));
            }
            TaskWork::Job(job) => {
                // A recovered error in one of several steps doesn't end the job.
                let result = result.or_else(|error| {
                    if error.is_recovered() {
                        Ok(())
                    } else {
                        Err(error)
                    }
                });
                let step = job.step(Some(IoDone { buf, result }), self.ring.pool());
                self.follow(slot, step);
            }
            TaskWork::Collect(_) => unreachable!("nothing is submitted for the task"),
        }
    }
}

impl TaskSet {
    /// Releases what this nexus has reserved if this is its last task set or the whole session ends.
    pub fn log_out(&self, whole_session: bool) {
        self.unit.log_out(self.nexus.nexus.id, whole_session);
    }
}

impl Drop for TaskSet {
    fn drop(&mut self) {
        for slot in 0..self.tasks.len() {
            if self.tasks[slot].is_some() {
                self.remove(slot);
            }
        }
        self.unit.detach(self.nexus.nexus.id);
    }
}

fn aborted(tag: u64) -> CommandOutcome {
    CommandOutcome::new(tag, Err(Refused::Status(ScsiStatus::TaskAborted)), 0)
}
