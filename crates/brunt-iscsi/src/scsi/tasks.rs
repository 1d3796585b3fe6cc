//! One connection's commands on one logical unit, from CDB to outcome, and the management of
//! tasks (SAM-5, 7 and 8). Lives on the connection's thread, drives the connection's device.
//!
//! READ and WRITE take a short way: a few atomic loads decide that nothing is the matter, and
//! media that can be reached inline are, without a request. Everything else is looked up in the
//! table of commands and becomes an answer or a [`Job`]. The one rule: a command that was begun
//! comes back as exactly one outcome.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brunt_block::{Buf, Completion, Device, DeviceError, Inline, Op, Request, Ring, Waker};
use brunt_core::Nanos;
use brunt_wire::scsi::cdb::{self, Cdb, Transfer, op};
use brunt_wire::scsi::copy::{self, CopyAmount};
use brunt_wire::scsi::opcodes::{self, Lookup};
use brunt_wire::scsi::sense::{Sense, Status, key};
use brunt_wire::scsi::unmap;

use crate::tag::TagHasher;

use super::attention::Attention;
use super::command::Refused;
use super::jobs::{
    self, Against, AwaitSanitize, Fill, Flush, How, Io, IoDone, Job, Range, ReadModifyWrite, Step, Stretch,
    Verify, WriteAndVerify, WriteOnce,
};
use super::locks::Hold;
use super::lun::{self, NexusShared, flag, gate};
use super::reservation::PortPair;
use super::sanitize::{self, Method};
use super::{Begin, Command, DataIn, LogicalUnit, Nexus, Outcome, TaskAttribute};

/// How soon a command that waits for another connection's looks again.
const PARKED_LOOK: Duration = Duration::from_micros(100);

/// The two resets that a target passes on (SAM-5, 7.6 and 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// LOGICAL UNIT RESET.
    LogicalUnit,
    /// TARGET WARM RESET and COLD RESET: once for each unit.
    Target,
}

/// Whether a task management function is carried out on every connection.
#[derive(Clone, Debug)]
pub struct Ticket {
    shared: Arc<TicketShared>,
}

#[derive(Debug)]
struct TicketShared {
    /// Connections that still have tasks to abort.
    remaining: AtomicUsize,
    waker: Waker,
}

impl Ticket {
    fn new(waker: Waker) -> Ticket {
        Ticket { shared: Arc::new(TicketShared { remaining: AtomicUsize::new(0), waker }) }
    }

    /// The function may be answered.
    pub fn is_done(&self) -> bool {
        self.shared.remaining.load(Ordering::Acquire) == 0
    }

    fn add(&self) {
        self.shared.remaining.fetch_add(1, Ordering::AcqRel);
    }

    fn finish(&self) {
        if self.shared.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.waker.wake();
        }
    }
}

/// Whose tasks an order means.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Everybody,
    Nexus(u64),
    Ports(PortPair),
}

/// "Abort these": sent to other connections.
#[derive(Clone, Debug)]
pub(super) struct Order {
    target: Target,
    ticket: Option<Ticket>,
    /// CLEAR TASK SET by this nexus: others are told.
    cleared_by: Option<u64>,
}

impl Order {
    pub fn abort(target: Target) -> Order {
        Order { target, ticket: None, cleared_by: None }
    }
}

/// Where other connections' orders arrive.
#[derive(Debug)]
pub(super) struct Mailbox {
    pending: AtomicBool,
    orders: Mutex<Vec<Order>>,
    waker: Waker,
}

impl Mailbox {
    pub fn put(&self, order: &Order) {
        if let Some(ticket) = &order.ticket {
            ticket.add();
        }
        self.orders.lock().expect("nobody panics with a mailbox").push(order.clone());
        self.pending.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Order> {
        self.pending.store(false, Ordering::Release);
        std::mem::take(&mut *self.orders.lock().expect("nobody panics with a mailbox"))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // A connection that is gone has nothing left to abort.
        for order in self.orders.get_mut().expect("nobody panics with a mailbox") {
            if let Some(ticket) = &order.ticket {
                ticket.finish();
            }
        }
    }
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its data-out has not come yet.
    Collecting,
    /// Waits for older tasks or for other connections' range locks.
    Parked,
    /// Waits for a time of its job's.
    Sleeping(Nanos),
    /// The device has a request of it.
    Running,
}

enum Work {
    Read,
    Write {
        force: bool,
    },
    /// Data-out comes first; then the CDB decides.
    Collect(Cdb),
    Job(Box<dyn Job>),
}

/// Which side of its range a task needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    None,
    Share,
    Exclude,
}

struct Task {
    tag: u64,
    sequence: u64,
    attribute: TaskAttribute,
    stage: Stage,
    aborted: bool,
    work: Work,
    range: Range,
    lock: Lock,
    hold: Hold,
    has_lock: bool,
    /// Data-out bytes that the CDB describes.
    wants: u32,
    data: Buf,
}

/// A connection's tasks on a unit. See the module.
pub struct TaskSet {
    unit: Arc<LogicalUnit>,
    ring: Ring,
    device: Box<dyn Device>,
    /// Devices of other units that copies reach: the unit's address for a name.
    others: Vec<(Arc<LogicalUnit>, Box<dyn Device>)>,
    depth: u32,
    nexus: Arc<NexusShared>,
    mailbox: Arc<Mailbox>,
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    by_tag: HashMap<u64, usize, BuildHasherDefault<TagHasher>>,
    sequence: u64,
    /// ORDERED tasks that are not finished.
    ordered: usize,
    parked: Vec<usize>,
    sleeping: usize,
    batch: VecDeque<Request>,
    other_batches: Vec<VecDeque<Request>>,
    completions: Vec<Completion>,
    finished: Vec<Outcome>,
    /// Tickets, each with the sequence up to which tasks have to be gone.
    tickets: Vec<(Ticket, Vec<u64>)>,
}

impl TaskSet {
    /// Opens the unit for a connection of `nexus` on its thread's ring, for `depth` commands at once.
    ///
    /// # Errors
    /// The backend's.
    pub fn open(
        unit: &Arc<LogicalUnit>,
        ring: &Ring,
        nexus: &Nexus,
        depth: u32,
    ) -> Result<TaskSet, DeviceError> {
        let device = unit.backend().open(ring, depth)?;
        let mailbox = Arc::new(Mailbox {
            pending: AtomicBool::new(false),
            orders: Mutex::default(),
            waker: ring.waker(),
        });
        let capacity = depth as usize;
        Ok(TaskSet {
            nexus: unit.attach(nexus, &mailbox),
            unit: Arc::clone(unit),
            ring: ring.clone(),
            device,
            others: Vec::new(),
            depth,
            mailbox,
            tasks: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            by_tag: HashMap::with_capacity_and_hasher(capacity * 2, BuildHasherDefault::default()),
            sequence: 0,
            ordered: 0,
            parked: Vec::with_capacity(capacity),
            sleeping: 0,
            batch: VecDeque::with_capacity(capacity),
            other_batches: Vec::new(),
            completions: Vec::with_capacity(capacity),
            finished: Vec::with_capacity(capacity),
            tickets: Vec::new(),
        })
    }

    /// The unit behind it.
    pub fn unit(&self) -> &Arc<LogicalUnit> {
        &self.unit
    }

    /// Commands begun and not yet answered.
    pub fn outstanding(&self) -> u32 {
        self.by_tag.len() as u32
    }

    /// Takes a command. See [`Begin`].
    pub fn begin(&mut self, command: &Command<'_>) -> Begin {
        let cdb = cdb::pad(command.cdb);
        match cdb[0] {
            op::READ_10 | op::READ_16 | op::READ_12 | op::READ_6 => self.begin_transfer(command, &cdb, false),
            op::WRITE_10 | op::WRITE_16 | op::WRITE_12 | op::WRITE_6 => {
                self.begin_transfer(command, &cdb, true)
            }
            _ => self.begin_other(command, &cdb),
        }
    }

    /// READ and WRITE: nothing here allocates or locks while nothing is the matter.
    fn begin_transfer(&mut self, command: &Command<'_>, cdb: &Cdb, write: bool) -> Begin {
        let gate = self.unit.gate();
        let flags = self.nexus.flags.load(Ordering::Acquire);
        let (refusing_flags, refusing_gate) = if write {
            (flag::ATTENTION | flag::DENY_WRITE, gate::CLOSED | gate::PROTECTED)
        } else {
            (flag::ATTENTION | flag::DENY_READ, gate::CLOSED)
        };
        if (flags & refusing_flags != 0 || gate & refusing_gate != 0)
            && let Err(refused) = self.admit(cdb)
        {
            return Begin::Done(Outcome::new(command.tag, Err(refused), 0));
        }
        let transfer = Transfer::decode(cdb);
        let range = match self.range_of(cdb, &transfer) {
            Ok(range) => range,
            Err(refused) => return Begin::Done(Outcome::new(command.tag, Err(refused), 0)),
        };
        let len = range.len as u32;
        let runs_now = self.ordered == 0 && command.attribute != TaskAttribute::Ordered;
        if !write {
            if len == 0 {
                return Begin::Done(Outcome::new(command.tag, Ok(DataIn::None), 0));
            }
            let inline = !matches!(self.unit.inline(), Inline::No);
            if inline && runs_now && self.unit.locks.is_free(range.offset, range.len) {
                let data = DataIn::Inline { offset: range.offset, len };
                return Begin::Done(Outcome::new(command.tag, Ok(data), 0));
            }
            let Some(slot) = self.add(command, Work::Read, Stage::Parked, range, Lock::Share, 0) else {
                return Begin::Done(task_set_full(command.tag));
            };
            self.run(slot);
            return Begin::Pending;
        }
        if len == 0 {
            return Begin::Done(Outcome::new(command.tag, Ok(DataIn::None), 0));
        }
        let force = transfer.fua || gate & gate::FORCE != 0;
        let work = Work::Write { force };
        let Some(slot) = self.add(command, work, Stage::Collecting, range, Lock::Share, len) else {
            return Begin::Done(task_set_full(command.tag));
        };
        let whole = command.data_out_len >= len;
        let mut direct = None;
        if whole
            && runs_now
            && !matches!(self.unit.inline(), Inline::No)
            && let Some(hold) = self.unit.locks.share(range.offset, range.len)
        {
            let task = self.tasks[slot].as_mut().expect("just added");
            task.hold = hold;
            task.has_lock = true;
            direct = Some(range.offset);
        }
        Begin::Wants { len, direct }
    }

    fn begin_other(&mut self, command: &Command<'_>, cdb: &Cdb) -> Begin {
        let refuse = |refused| Begin::Done(Outcome::new(command.tag, Err(refused), 0));
        let unit = Arc::clone(&self.unit);
        let row = match opcodes::lookup(cdb, |which| unit.has(which)) {
            Lookup::Found(row) => row,
            Lookup::NoSuchAction => return refuse(Refused::field(1)),
            Lookup::NoSuchCode => return refuse(Refused::illegal(0x20, 0x00)),
        };
        if naca(cdb) {
            return refuse(Refused::field(row.usage.len() as u16 - 1));
        }
        if let Err(refused) = unit.admit(&self.nexus, row, cdb) {
            return refuse(refused);
        }
        let plan = match self.plan(cdb, command.data_out_len) {
            Ok(plan) => plan,
            Err(refused) => return refuse(refused),
        };
        match plan {
            Plan::Answer(data) => Begin::Done(Outcome::new(command.tag, Ok(data), 0)),
            Plan::Collect { len, range, lock } => {
                match self.add(command, Work::Collect(*cdb), Stage::Collecting, range, lock, len) {
                    Some(_) => Begin::Wants { len, direct: None },
                    None => Begin::Done(task_set_full(command.tag)),
                }
            }
            Plan::Job { job, range, lock } => {
                match self.add(command, Work::Job(job), Stage::Parked, range, lock, 0) {
                    Some(slot) => {
                        self.run(slot);
                        Begin::Pending
                    }
                    None => Begin::Done(task_set_full(command.tag)),
                }
            }
        }
    }

    fn admit(&self, cdb: &Cdb) -> Result<(), Refused> {
        match opcodes::lookup(cdb, |which| self.unit.has(which)) {
            Lookup::Found(row) => self.unit.admit(&self.nexus, row, cdb),
            _ => Err(Refused::illegal(0x20, 0x00)),
        }
    }

    /// Checks a transfer against the medium (SBC-3, 4.1 and 5.x).
    #[inline]
    fn range_of(&self, cdb: &Cdb, transfer: &Transfer) -> Result<Range, Refused> {
        if transfer.protect != 0 {
            return Err(Refused::field(1));
        }
        if naca(cdb) {
            return Err(Refused::field(u16::from(cdb::length(cdb[0]).unwrap_or(16)) - 1));
        }
        let range = self.checked(transfer.lba, u64::from(transfer.blocks))?;
        if transfer.blocks > self.unit.shape().transfer_blocks_max {
            return Err(Refused::field(if cdb[0] >> 5 == 4 { 10 } else { 6 }));
        }
        Ok(range)
    }

    /// A range of blocks in bytes.
    #[inline]
    fn checked(&self, lba: u64, blocks: u64) -> Result<Range, Refused> {
        let end = lba.checked_add(blocks).ok_or(Refused::OUT_OF_RANGE)?;
        if end > self.unit.blocks() {
            return Err(Refused::OUT_OF_RANGE);
        }
        let block_bytes = u64::from(self.unit.block_bytes());
        Ok(Range { offset: lba * block_bytes, len: blocks * block_bytes })
    }

    /// What a command needs before it can be answered.
    fn plan(&mut self, cdb: &Cdb, data_out_len: u32) -> Result<Plan, Refused> {
        let nowhere = Range { offset: 0, len: 0 };
        let parameters = |len: u32| {
            if len > lun::parameter_bytes_max(cdb[0]) {
                return Err(Refused::LIST_LENGTH);
            }
            Ok(Plan::Collect { len, range: nowhere, lock: Lock::None })
        };
        match cdb[0] {
            op::MODE_SELECT_6 | op::MODE_SELECT_10 => {
                // PF has to be one, saving is not possible.
                if cdb[1] & 0x10 == 0 || cdb[1] & 0x01 != 0 {
                    return Err(Refused::field(1));
                }
                parameters(cdb::list_length(cdb))
            }
            op::PERSISTENT_RESERVE_OUT => parameters(cdb::be32(cdb, 5)),
            op::UNMAP => {
                // Without anchored blocks there is nothing to anchor.
                if cdb[1] & 0x01 != 0 {
                    return Err(Refused::field(1));
                }
                let len = cdb::list_length(cdb);
                if len == 0 {
                    return Ok(Plan::Answer(DataIn::None));
                }
                parameters(len)
            }
            op::EXTENDED_COPY => {
                let len = cdb::list_length(cdb);
                if len == 0 {
                    return Ok(Plan::Answer(DataIn::None));
                }
                parameters(len)
            }
            op::SANITIZE => self.plan_sanitize(cdb),
            op::START_STOP_UNIT => {
                let flush = self.unit.start_stop(&self.nexus.nexus, cdb)?;
                Ok(if flush { self.flush_all() } else { Plan::Answer(DataIn::None) })
            }
            op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => {
                let transfer = Transfer::decode(cdb);
                let mut range = self.checked(transfer.lba, u64::from(transfer.blocks))?;
                if transfer.blocks == 0 {
                    // To the end of the medium; for the device, nothing given means all.
                    range.offset = 0;
                }
                Ok(Plan::Job { job: Box::new(Flush { range }), range, lock: Lock::None })
            }
            op::PRE_FETCH_10 | op::PRE_FETCH_16 => {
                // We keep no cache of our own to fetch into; GOOD says that not all of it is in one.
                let transfer = Transfer::decode(cdb);
                self.checked(transfer.lba, u64::from(transfer.blocks))?;
                Ok(Plan::Answer(DataIn::None))
            }
            op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => {
                let transfer = Transfer::decode(cdb);
                if transfer.byte_check == 2 {
                    return Err(Refused::field(1));
                }
                let range = self.range_of(cdb, &transfer)?;
                let len = match transfer.byte_check {
                    0 if range.len == 0 => return Ok(Plan::Answer(DataIn::None)),
                    0 => {
                        let job = Box::new(Verify { range, against: Against::Nothing, at: 0 });
                        return Ok(Plan::Job { job, range, lock: Lock::Share });
                    }
                    1 => range.len as u32,
                    _ => self.unit.block_bytes(),
                };
                exactly(len, data_out_len)?;
                self.collect_or_nothing(len, range, Lock::Share)
            }
            op::WRITE_AND_VERIFY_10 | op::WRITE_AND_VERIFY_12 | op::WRITE_AND_VERIFY_16 => {
                let transfer = Transfer::decode(cdb);
                if transfer.byte_check > 1 {
                    return Err(Refused::field(1));
                }
                let range = self.range_of(cdb, &transfer)?;
                self.collect_or_nothing(range.len as u32, range, Lock::Share)
            }
            op::ORWRITE_16 => {
                let range = self.range_of(cdb, &Transfer::decode(cdb))?;
                exactly(range.len as u32, data_out_len)?;
                self.collect_or_nothing(range.len as u32, range, Lock::Exclude)
            }
            op::COMPARE_AND_WRITE => {
                let mut transfer = Transfer::decode(cdb);
                transfer.blocks = u32::from(cdb[13]);
                let range = self.range_of(cdb, &transfer)?;
                let len = 2 * range.len as u32;
                exactly(len, data_out_len)?;
                self.collect_or_nothing(len, range, Lock::Exclude)
            }
            op::WRITE_ATOMIC_16 => {
                let mut transfer = Transfer::decode(cdb);
                transfer.blocks = u32::from(cdb::be16(cdb, 12));
                let range = self.range_of(cdb, &transfer)?;
                if cdb::be16(cdb, 10) != 0 {
                    return Err(Refused::field(10));
                }
                let shape = self.unit.shape();
                let physical = shape.physical_blocks();
                if transfer.blocks > shape.atomic_blocks_max() || !transfer.blocks.is_multiple_of(physical) {
                    return Err(Refused::field(12));
                }
                if !transfer.lba.is_multiple_of(u64::from(physical)) {
                    return Err(Refused::field(2));
                }
                exactly(range.len as u32, data_out_len)?;
                self.collect_or_nothing(range.len as u32, range, Lock::Exclude)
            }
            op::WRITE_SAME_10 | op::WRITE_SAME_16 => self.plan_write_same(cdb, data_out_len),
            _ => Ok(Plan::Answer(self.unit.answer(&self.nexus.nexus, cdb)?)),
        }
    }

    fn collect_or_nothing(&self, len: u32, range: Range, lock: Lock) -> Result<Plan, Refused> {
        if range.len == 0 {
            return Ok(Plan::Answer(DataIn::None));
        }
        Ok(Plan::Collect { len, range, lock })
    }

    fn plan_write_same(&self, cdb: &Cdb, data_out_len: u32) -> Result<Plan, Refused> {
        let transfer = Transfer::decode(cdb);
        let unmap = cdb[1] & 0x08 != 0;
        let no_data = cdb[1] & 0x01 != 0;
        if transfer.protect != 0 || cdb[1] & 0x10 != 0 || unmap && !self.unit.options().thin {
            return Err(Refused::field(1));
        }
        // NDOB exists in the 16-byte form; what stands there in the others is obsolete or reserved.
        if no_data && cdb[0] != op::WRITE_SAME_16 || cdb[1] & 0x06 != 0 {
            return Err(Refused::field(1));
        }
        let mut range = self.checked(transfer.lba, u64::from(transfer.blocks))?;
        if transfer.blocks == 0 {
            range = self.checked(transfer.lba, self.unit.blocks() - transfer.lba)?;
        }
        let block_bytes = self.unit.block_bytes();
        if range.len / u64::from(block_bytes) > self.unit.shape().write_same_blocks_max() {
            return Err(Refused::field(if cdb[0] == op::WRITE_SAME_16 { 10 } else { 7 }));
        }
        if no_data {
            let how = if unmap { How::Unmap } else { How::Zeroes };
            let job = self.fill(vec![range], how, Buf::empty());
            return Ok(Plan::Job { job, range, lock: Lock::Exclude });
        }
        exactly(block_bytes, data_out_len)?;
        Ok(Plan::Collect { len: block_bytes, range, lock: Lock::Exclude })
    }

    fn fill(&self, ranges: Vec<Range>, how: How, block: Buf) -> Box<Fill> {
        let block_bytes = self.unit.block_bytes() as usize;
        let force = self.unit.gate() & gate::FORCE != 0;
        Box::new(Fill { ranges, how, block, block_bytes, force, index: 0, at: 0, pattern: Buf::empty() })
    }

    fn flush_all(&self) -> Plan {
        let range = Range { offset: 0, len: 0 };
        Plan::Job { job: Box::new(Flush { range }), range, lock: Lock::None }
    }

    fn plan_sanitize(&self, cdb: &Cdb) -> Result<Plan, Refused> {
        let len = cdb::list_length(cdb);
        if cdb[1] & 0x40 != 0 {
            return Err(Refused::field(1));
        }
        if let Some(byte) = (2..7).find(|&byte| cdb[byte] != 0) {
            return Err(Refused::field(byte as u16));
        }
        let action = cdb[1] & 0x1f;
        if action == op::SA_SANITIZE_OVERWRITE {
            // A pattern of a byte to a block, after a header of four.
            if len < 5 || len > self.unit.block_bytes() + 4 {
                return Err(Refused::field(7));
            }
            return Ok(Plan::Collect { len, range: Range { offset: 0, len: 0 }, lock: Lock::None });
        }
        if len != 0 {
            return Err(Refused::field(7));
        }
        match action {
            op::SA_SANITIZE_EXIT_FAILURE_MODE => {
                self.unit.exit_failure_mode()?;
                Ok(Plan::Answer(DataIn::None))
            }
            _ => self.sanitize(cdb, Method::Erase),
        }
    }

    fn sanitize(&self, cdb: &Cdb, method: Method) -> Result<Plan, Refused> {
        if !self.unit.sanitize_begins(cdb[1] & 0x20 != 0) {
            return Err(Refused::Check(self.unit.sanitize.sense()));
        }
        sanitize::spawn(&self.unit, method);
        if cdb[1] & 0x80 != 0 {
            return Ok(Plan::Answer(DataIn::None));
        }
        let clock = self.unit.options().clock.clone();
        let job = Box::new(AwaitSanitize { unit: Arc::clone(&self.unit), clock });
        Ok(Plan::Job { job, range: Range { offset: 0, len: 0 }, lock: Lock::None })
    }

    /// Runs a command with the data it wanted: `data[..got]`. The outcome, when it is there already.
    ///
    /// A command that was aborted meanwhile has its outcome from [`TaskSet::poll`]; nothing is done.
    ///
    /// # Panics
    /// The command waits for no data, or `got` is more than it wanted or than `data` has.
    pub fn start(&mut self, tag: u64, mut data: Buf, got: u32) -> Option<Outcome> {
        let slot = *self.by_tag.get(&tag)?;
        let task = self.tasks[slot].as_mut().expect("tags name living tasks");
        assert!(task.stage == Stage::Collecting && got <= task.wants, "not a task that waits for this data");
        if !data.is_empty() || got > 0 {
            data.set_len(got as usize);
        }
        let block_bytes = self.unit.block_bytes();
        match task.work {
            Work::Write { .. } => {
                // Fewer bytes than the CDB wants: whole blocks are written (the residual tells), a
                // part of one is an error.
                if !got.is_multiple_of(block_bytes) {
                    return Some(self.finish_now(slot, Err(Refused::DATA_LENGTH)));
                }
                task.range.len = u64::from(got);
                let range = task.range;
                let runs_now = self.ordered == 0 && task.attribute != TaskAttribute::Ordered;
                if got == 0 {
                    return Some(self.finish_now(slot, Ok(DataIn::None)));
                }
                if runs_now && !matches!(self.unit.inline(), Inline::No) {
                    let free = task.has_lock || self.unit.locks.is_free(range.offset, range.len);
                    if free && (task.has_lock || self.lock(slot)) {
                        if let Inline::Memory(memory) = self.unit.inline() {
                            memory.write(range.offset, &data);
                        }
                        return Some(self.finish_now(slot, Ok(DataIn::None)));
                    }
                }
                self.tasks[slot].as_mut().expect("still there").data = data;
            }
            Work::Collect(cdb) => match self.job_for(&cdb, slot, data) {
                Ok(Ready::Answer(answer)) => return Some(self.finish_now(slot, Ok(answer))),
                Err(refused) => return Some(self.finish_now(slot, Err(refused))),
                Ok(Ready::Job { job, range, lock }) => {
                    let task = self.tasks[slot].as_mut().expect("still there");
                    task.work = Work::Job(job);
                    task.range = range;
                    task.lock = lock;
                }
            },
            Work::Read | Work::Job(_) => unreachable!("they collect nothing"),
        }
        self.tasks[slot].as_mut().expect("still there").stage = Stage::Parked;
        self.run(slot);
        None
    }

    /// The data of a [`Begin::Wants`] with `direct` is in the medium.
    ///
    /// # Panics
    /// As [`TaskSet::start`].
    pub fn start_direct(&mut self, tag: u64, got: u32) -> Option<Outcome> {
        let slot = *self.by_tag.get(&tag)?;
        let task = self.tasks[slot].as_ref().expect("tags name living tasks");
        assert!(task.has_lock && got <= task.wants, "not a task that was placed directly");
        if let Inline::Memory(memory) = self.unit.inline() {
            memory.mark(task.range.offset, u64::from(got));
        }
        Some(self.finish_now(slot, Ok(DataIn::None)))
    }

    /// What to do with the data that a command collected.
    fn job_for(&mut self, cdb: &Cdb, slot: usize, data: Buf) -> Result<Ready, Refused> {
        let task = self.tasks[slot].as_ref().expect("still there");
        let (range, lock) = (task.range, task.lock);
        let force = self.unit.gate() & gate::FORCE != 0 || cdb[1] & 0x08 != 0;
        let whole = data.len() as u64 >= range.len;
        let ready = |job: Box<dyn Job>| Ok(Ready::Job { job, range, lock });
        match cdb[0] {
            op::MODE_SELECT_6 | op::MODE_SELECT_10 => {
                let flush = self.unit.mode_select(&self.nexus.nexus, cdb, &data)?;
                Ok(self.answer_after_flush(flush))
            }
            op::PERSISTENT_RESERVE_OUT => {
                self.unit.persistent_reserve_out(&self.nexus.nexus, cdb, &data)?;
                Ok(Ready::Answer(DataIn::None))
            }
            op::UNMAP => self.unmap(&data),
            op::EXTENDED_COPY => self.copy(&data),
            op::SANITIZE => {
                let method = sanitize::parse_overwrite(&data, self.unit.block_bytes())?;
                match self.sanitize(cdb, method)? {
                    Plan::Answer(data) => Ok(Ready::Answer(data)),
                    Plan::Job { job, range, lock } => Ok(Ready::Job { job, range, lock }),
                    Plan::Collect { .. } => unreachable!("it was collected"),
                }
            }
            op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => {
                let block = Transfer::decode(cdb).byte_check == 3;
                if block && data.len() == self.unit.block_bytes() as usize {
                    return ready(Box::new(Verify { range, against: Against::Block(data), at: 0 }));
                }
                if block || !whole {
                    return Err(Refused::DATA_MISMATCH);
                }
                ready(Box::new(Verify { range, against: Against::Data(data), at: 0 }))
            }
            op::WRITE_AND_VERIFY_10 | op::WRITE_AND_VERIFY_12 | op::WRITE_AND_VERIFY_16 => {
                let range = self.cut(range, &data)?;
                if range.len == 0 {
                    return Ok(Ready::Answer(DataIn::None));
                }
                let compare = Transfer::decode(cdb).byte_check == 1;
                let job = Box::new(WriteAndVerify { range, data: Some(data), compare, verify: None });
                Ok(Ready::Job { job, range, lock })
            }
            op::ORWRITE_16 => {
                if !whole {
                    return Err(Refused::DATA_MISMATCH);
                }
                ready(Box::new(ReadModifyWrite { range, data, compare: false, force, at: 0, writing: false }))
            }
            op::COMPARE_AND_WRITE => {
                if data.len() as u64 != 2 * range.len {
                    return Err(Refused::DATA_MISMATCH);
                }
                ready(Box::new(ReadModifyWrite { range, data, compare: true, force, at: 0, writing: false }))
            }
            op::WRITE_ATOMIC_16 if whole => ready(Box::new(WriteOnce { range, data: Some(data), force })),
            op::WRITE_SAME_10 | op::WRITE_SAME_16 if data.len() == self.unit.block_bytes() as usize => {
                let zeros = data.iter().all(|byte| *byte == 0);
                let how = match (zeros, cdb[1] & 0x08 != 0) {
                    // Unmapped blocks read as zeros, so only zeros can be unmapped.
                    (true, true) => How::Unmap,
                    (true, false) => How::Zeroes,
                    (false, _) => How::Write,
                };
                ready(self.fill(vec![range], how, data))
            }
            _ => Err(Refused::DATA_MISMATCH),
        }
    }

    /// The part of a range that the data covers; part of a block is an error.
    fn cut(&self, range: Range, data: &[u8]) -> Result<Range, Refused> {
        if !data.len().is_multiple_of(self.unit.block_bytes() as usize) {
            return Err(Refused::DATA_LENGTH);
        }
        Ok(Range { len: range.len.min(data.len() as u64), ..range })
    }

    fn answer_after_flush(&self, flush: bool) -> Ready {
        match self.flush_all() {
            Plan::Job { job, range, lock } if flush => Ready::Job { job, range, lock },
            _ => Ready::Answer(DataIn::None),
        }
    }

    fn unmap(&self, list: &[u8]) -> Result<Ready, Refused> {
        let extents = unmap::parse(list).map_err(|_| Refused::LIST_LENGTH)?;
        let mut ranges = Vec::new();
        for (index, extent) in extents.enumerate() {
            if index as u32 >= lun::UNMAP_DESCRIPTORS_MAX {
                return Err(Refused::parameter(2));
            }
            let range = self.checked(extent.lba, u64::from(extent.blocks))?;
            if range.len > 0 {
                ranges.push(range);
            }
        }
        let (Some(first), Some(last)) = (
            ranges.iter().map(|range| range.offset).min(),
            ranges.iter().map(|range| range.offset + range.len).max(),
        ) else {
            return Ok(Ready::Answer(DataIn::None));
        };
        let range = Range { offset: first, len: last - first };
        let job = self.fill(ranges, How::Unmap, Buf::empty());
        Ok(Ready::Job { job, range, lock: Lock::Exclude })
    }

    /// Resolves the targets of an EXTENDED COPY and checks its segments.
    fn copy(&mut self, list: &[u8]) -> Result<Ready, Refused> {
        let parsed = copy::parse(list).map_err(Refused::Check)?;
        let aborted = |asc, ascq| Refused::Check(Sense::new(key::COPY_ABORTED, asc, ascq));
        // COPY TARGET DEVICE NOT REACHABLE
        let unreachable = aborted(0x0d, 0x02);
        let mut units = Vec::new();
        for target in &parsed.targets {
            let unit = self.find_unit(&target.designator).ok_or(unreachable)?;
            if target.block_bytes != 0 && target.block_bytes != unit.block_bytes() {
                // INCORRECT COPY TARGET DEVICE TYPE is for types; a wrong block length is a bad field.
                return Err(Refused::parameter(16));
            }
            units.push(unit);
        }
        let mut stretches = Vec::new();
        let (mut low, mut high) = (u64::MAX, 0);
        for segment in &parsed.segments {
            let source = units.get(usize::from(segment.source)).ok_or(unreachable)?.clone();
            let destination = units.get(usize::from(segment.destination)).ok_or(unreachable)?.clone();
            let (from, to) = (u64::from(source.block_bytes()), u64::from(destination.block_bytes()));
            let (len, source_extra, destination_extra) = match segment.amount {
                CopyAmount::SourceBlocks(blocks) => (u64::from(blocks) * from, 0, 0),
                CopyAmount::DestinationBlocks(blocks) => (u64::from(blocks) * to, 0, 0),
                CopyAmount::Bytes { bytes, source_offset, destination_offset } => {
                    (u64::from(bytes), u64::from(source_offset), u64::from(destination_offset))
                }
            };
            if len > u64::from(copy::SEGMENT_BYTES_MAX) {
                return Err(Refused::parameter(16));
            }
            let place = |lba: u64, block: u64, extra: u64, unit: &LogicalUnit| {
                let offset = lba.checked_mul(block)?.checked_add(extra)?;
                let end = offset.checked_add(len)?;
                (end <= unit.blocks() * block).then_some(offset)
            };
            // COPY TARGET DEVICE DATA OVERRUN would be for streams; the blocks are not there.
            let source_offset = place(segment.source_lba, from, source_extra, &source).ok_or(unreachable)?;
            let destination_offset =
                place(segment.destination_lba, to, destination_extra, &destination).ok_or(unreachable)?;
            let whole = source_offset.is_multiple_of(from)
                && destination_offset.is_multiple_of(to)
                && len.is_multiple_of(from)
                && len.is_multiple_of(to);
            if !whole {
                return Err(Refused::parameter(16));
            }
            let nexus = &self.nexus.nexus;
            if !source.allowed(nexus).read || !destination.allowed(nexus).write {
                return Err(unreachable);
            }
            if Arc::ptr_eq(&destination, &self.unit) && len > 0 {
                low = low.min(destination_offset);
                high = high.max(destination_offset + len);
            }
            stretches.push(Stretch {
                source: self.device_of(&source).map_err(|_| unreachable)?,
                source_offset,
                destination: self.device_of(&destination).map_err(|_| unreachable)?,
                destination_offset,
                len,
            });
        }
        let force = self.unit.gate() & gate::FORCE != 0;
        let job = Box::new(jobs::Copy {
            unit: Arc::clone(&self.unit),
            nexus: self.nexus.nexus.id,
            list: parsed.id,
            stretches,
            index: 0,
            at: 0,
            copied: 0,
            writing: false,
            force,
            chunk: jobs::CHUNK_BYTES,
        });
        let (range, lock) = if low < high {
            (Range { offset: low, len: high - low }, Lock::Share)
        } else {
            (Range { offset: 0, len: 0 }, Lock::None)
        };
        Ok(Ready::Job { job, range, lock })
    }

    /// The unit of this target that a designator of page 83h names.
    fn find_unit(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        let names = |unit: &LogicalUnit| unit.is_named(designator);
        if names(&self.unit) {
            return Some(Arc::clone(&self.unit));
        }
        let map = self.unit.map()?;
        map.iter().map(|(_, unit)| unit).find(|unit| names(unit)).cloned()
    }

    /// As in [`Io::device`]; opened when first needed.
    fn device_of(&mut self, unit: &Arc<LogicalUnit>) -> Result<usize, DeviceError> {
        if Arc::ptr_eq(unit, &self.unit) {
            return Ok(0);
        }
        if let Some(index) = self.others.iter().position(|(other, _)| Arc::ptr_eq(other, unit)) {
            return Ok(index + 1);
        }
        let device = unit.backend().open(&self.ring, self.depth)?;
        self.others.push((Arc::clone(unit), device));
        self.other_batches.push(VecDeque::new());
        Ok(self.others.len())
    }

    fn add(
        &mut self,
        command: &Command<'_>,
        work: Work,
        stage: Stage,
        range: Range,
        lock: Lock,
        wants: u32,
    ) -> Option<usize> {
        if self.by_tag.len() >= self.depth as usize {
            return None;
        }
        self.sequence += 1;
        let task = Task {
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

    fn remove(&mut self, slot: usize) -> Task {
        let task = self.tasks[slot].take().expect("removed once");
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

    fn finish_now(&mut self, slot: usize, result: Result<DataIn, Refused>) -> Outcome {
        let task = self.remove(slot);
        if task.aborted { aborted(task.tag) } else { Outcome::new(task.tag, result, task.wants) }
    }

    fn finish(&mut self, slot: usize, result: Result<DataIn, Refused>) {
        let outcome = self.finish_now(slot, result);
        self.finished.push(outcome);
    }

    /// Whether older tasks let this one go (SAM-5, 8.6): an ORDERED one waits for all of them, all
    /// wait for an older ORDERED one, HEAD OF QUEUE waits for nobody.
    fn may_run(&self, slot: usize) -> bool {
        if self.ordered == 0 {
            return true;
        }
        let task = self.tasks[slot].as_ref().expect("asked for a living task");
        match task.attribute {
            TaskAttribute::HeadOfQueue => true,
            attribute => !self.tasks.iter().flatten().any(|other| {
                other.sequence < task.sequence
                    && (attribute == TaskAttribute::Ordered || other.attribute == TaskAttribute::Ordered)
            }),
        }
    }

    /// Gets the task's lock, or part of it.
    fn lock(&mut self, slot: usize) -> bool {
        let task = self.tasks[slot].as_mut().expect("asked for a living task");
        if task.has_lock {
            return true;
        }
        let Range { offset, len } = task.range;
        task.has_lock = match task.lock {
            Lock::None => true,
            Lock::Share => self.unit.locks.share(offset, len).map(|hold| task.hold = hold).is_some(),
            Lock::Exclude => match self.unit.locks.exclude(offset, len, task.hold) {
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

    /// Lets a task go as far as it can. It is parked when it cannot.
    fn run(&mut self, slot: usize) {
        if !self.may_run(slot) || !self.lock(slot) {
            self.parked.push(slot);
            return;
        }
        let pool = self.ring.pool().clone();
        let task = self.tasks[slot].as_mut().expect("run is for a living task");
        task.stage = Stage::Running;
        let Range { offset, len } = task.range;
        let (op, buf, force) = match &mut task.work {
            Work::Read => (Op::Read, pool.take(len as usize), false),
            Work::Write { force } => (Op::Write, std::mem::take(&mut task.data), *force),
            Work::Job(job) => {
                let step = job.step(None, &pool);
                self.follow(slot, step);
                return;
            }
            Work::Collect(_) => unreachable!("its data was collected"),
        };
        self.batch.push_back(Request { tag: slot as u64, op, offset, len, buf, force_unit_access: force });
    }

    fn follow(&mut self, slot: usize, step: Step) {
        match step {
            Step::Submit(Io { device, op, offset, len, buf, force }) => {
                let request = Request { tag: slot as u64, op, offset, len, buf, force_unit_access: force };
                match device {
                    0 => self.batch.push_back(request),
                    other => self.other_batches[other - 1].push_back(request),
                }
            }
            Step::Wait(until) => {
                self.tasks[slot].as_mut().expect("it stepped").stage = Stage::Sleeping(until);
                self.sleeping += 1;
            }
            Step::Done(result) => self.finish(slot, result),
        }
    }

    fn completed(&mut self, completion: Completion) {
        let slot = completion.tag as usize;
        let Completion { buf, result, .. } = completion;
        let task = self.tasks[slot].as_mut().expect("a completion is for a living task");
        if task.aborted {
            self.finish(slot, Ok(DataIn::None));
            return;
        }
        match &mut task.work {
            Work::Read => {
                let len = task.range.len as u32;
                // A recovered error is told, and the data with it.
                if let Err(error) = result
                    && error.is_recovered()
                    && let Refused::Check(sense) = Refused::device(error, false)
                {
                    let mut outcome = self.finish_now(slot, Ok(DataIn::Buf(buf, len)));
                    (outcome.status, outcome.sense) = (Status::CheckCondition, Some(sense));
                    return self.finished.push(outcome);
                }
                let result = result.map_err(|error| Refused::device(error, false));
                self.finish(slot, result.map(|()| DataIn::Buf(buf, len)));
            }
            Work::Write { .. } => {
                let result = result.map_err(|error| Refused::device(error, true));
                self.finish(slot, result.map(|()| DataIn::None));
            }
            Work::Job(job) => {
                // Of several steps, one that was recovered ends none of them.
                let result = result.or_else(|error| if error.is_recovered() { Ok(()) } else { Err(error) });
                let step = job.step(Some(IoDone { buf, result }), self.ring.pool());
                self.follow(slot, step);
            }
            Work::Collect(_) => unreachable!("nothing was submitted for it"),
        }
    }

    /// Hands queued requests to the device: once before [`Ring::enter`].
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

    /// Appends finished commands to `done`: after [`Ring::enter`].
    pub fn poll(&mut self, done: &mut Vec<Outcome>) {
        if self.mailbox.pending.load(Ordering::Acquire) {
            for order in self.mailbox.take() {
                self.obey(&order);
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

    fn wake_sleepers(&mut self) {
        let now = self.unit.options().clock.now();
        for slot in 0..self.tasks.len() {
            let Some(task) = &mut self.tasks[slot] else { continue };
            let Stage::Sleeping(until) = task.stage else { continue };
            if until > now {
                continue;
            }
            self.sleeping -= 1;
            task.stage = Stage::Running;
            if let Work::Job(job) = &mut task.work {
                let step = job.step(None, self.ring.pool());
                self.follow(slot, step);
            }
        }
    }

    /// When [`TaskSet::poll`] has to be called again even if the ring reports nothing: as
    /// [`Device::deadline`].
    pub fn deadline(&self) -> Nanos {
        if !self.finished.is_empty() || !self.batch.is_empty() {
            return Nanos(0);
        }
        let mut deadline = self.device.deadline();
        for (_, device) in &self.others {
            deadline = deadline.min(device.deadline());
        }
        if !self.parked.is_empty() {
            deadline = deadline.min(self.unit.options().clock.now().after(PARKED_LOOK));
        }
        if self.sleeping > 0 {
            for task in self.tasks.iter().flatten() {
                if let Stage::Sleeping(until) = task.stage {
                    deadline = deadline.min(until);
                }
            }
        }
        deadline
    }

    /// ABORT TASK: false when there is no such task. It ends with an outcome from
    /// [`TaskSet::poll`], after which the function may be answered.
    pub fn abort_task(&mut self, tag: u64) -> bool {
        let Some(&slot) = self.by_tag.get(&tag) else { return false };
        self.abort(slot);
        true
    }

    /// ABORT TASK SET: this nexus's tasks, on every connection.
    pub fn abort_task_set(&mut self) -> Ticket {
        self.manage(Target::Nexus(self.nexus.nexus.id), None)
    }

    /// CLEAR TASK SET: everybody's tasks; others that lose some are told.
    pub fn clear_task_set(&mut self) -> Ticket {
        self.manage(Target::Everybody, Some(self.nexus.nexus.id))
    }

    /// LOGICAL UNIT RESET, or this unit's part of a target reset: everybody's tasks, RESERVE,
    /// PREVENT; everybody is told.
    pub fn reset(&mut self, reset: Reset) -> Ticket {
        let attention = match reset {
            Reset::LogicalUnit => Attention::LogicalUnitReset,
            Reset::Target => Attention::ScsiBusReset,
        };
        let ticket = self.manage(Target::Everybody, None);
        self.unit.reset(attention);
        ticket
    }

    fn manage(&mut self, target: Target, cleared_by: Option<u64>) -> Ticket {
        let ticket = Ticket::new(self.ring.waker());
        let order = Order { target, ticket: Some(ticket.clone()), cleared_by };
        self.unit.broadcast(&order, &self.mailbox);
        ticket.add();
        self.obey(&order);
        ticket
    }

    fn obey(&mut self, order: &Order) {
        let own = &self.nexus.nexus;
        let meant = match &order.target {
            Target::Everybody => true,
            Target::Nexus(id) => *id == own.id,
            Target::Ports(pair) => {
                pair.initiator_port == own.initiator_port && pair.target_port == own.target_port
            }
        };
        let mut waits = Vec::new();
        if meant {
            for slot in 0..self.tasks.len() {
                if let Some(task) = &self.tasks[slot] {
                    waits.push(task.sequence);
                    self.abort(slot);
                }
            }
        }
        waits.retain(|sequence| self.tasks.iter().flatten().any(|task| task.sequence == *sequence));
        if let (Some(by), false) = (order.cleared_by, waits.is_empty()) {
            self.unit.commands_cleared(by, self.nexus.nexus.id);
        }
        if let Some(ticket) = &order.ticket {
            if waits.is_empty() {
                ticket.finish();
            } else {
                self.tickets.push((ticket.clone(), waits));
            }
        }
    }

    /// Marks a task aborted and lets go of it as soon as nobody else has it.
    fn abort(&mut self, slot: usize) {
        let task = self.tasks[slot].as_mut().expect("asked for a living task");
        task.aborted = true;
        match task.stage {
            // The transport still collects: it learns at once, and calls start no more.
            Stage::Collecting | Stage::Parked => {
                self.parked.retain(|parked| *parked != slot);
                self.finish(slot, Ok(DataIn::None));
            }
            Stage::Sleeping(_) => {
                self.sleeping -= 1;
                self.finish(slot, Ok(DataIn::None));
            }
            Stage::Running => self.device.cancel(slot as u64),
        }
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

/// What [`TaskSet::plan`] found.
enum Plan {
    Answer(DataIn),
    Collect { len: u32, range: Range, lock: Lock },
    Job { job: Box<dyn Job>, range: Range, lock: Lock },
}

/// And what a command is once it has its data.
enum Ready {
    Answer(DataIn),
    Job { job: Box<dyn Job>, range: Range, lock: Lock },
}

/// Whether the initiator sends exactly what the CDB describes. READ and WRITE move what both ends
/// have room for and tell the residual; but where data is compared, combined, repeated or written
/// as one, a length that differs means that initiator and target disagree about what is compared
/// (or combined, …) with what. Any part of it that was done would be a guess: nothing is.
fn exactly(described: u32, data_out_len: u32) -> Result<(), Refused> {
    if described == data_out_len { Ok(()) } else { Err(Refused::DATA_MISMATCH) }
}

/// NACA in the control byte: ACA is none of ours (NORMACA is zero).
#[inline]
fn naca(cdb: &Cdb) -> bool {
    let at = cdb::length(cdb[0]).map_or(15, |length| usize::from(length) - 1);
    cdb[at] & 0x04 != 0
}

fn aborted(tag: u64) -> Outcome {
    Outcome::new(tag, Err(Refused::Status(Status::TaskAborted)), 0)
}

fn task_set_full(tag: u64) -> Outcome {
    Outcome::new(tag, Err(Refused::Status(Status::TaskSetFull)), 0)
}
