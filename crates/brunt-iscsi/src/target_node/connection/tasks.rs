//! The table of a connection's commands, and of how many bytes of their data it holds. Used by the other files of
//! `connection`. The one rule: a slot is taken, entered under its tag, and freed once; the byte totals always match
//! the tasks that they count.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::ops::{Index, IndexMut};

use brunt_block::Buf;
use brunt_wire::iscsi::ahs::Ahs;
use brunt_wire::iscsi::pdu::{Bhs, DataOut as DataOutPdu, ScsiCommand, code, lun_number};
use brunt_wire::scsi::sense::Sense;

use super::io::IsDone;
use crate::scsi::{CommandOutcome, TaskAttribute};
use crate::tag::TagHasher;

/// A connection that buffers this many bytes of Data-Out stops requesting more.
pub(super) const BUFFERED_BYTES_MAX: usize = 64 << 20;

/// Number of aborted tasks to remember; their late data is dropped silently.
pub(super) const RECENT_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskPhase {
    Free,
    /// The command arrived before its turn.
    Held,
    /// Receiving Data-Out.
    Collecting,
    /// The command is with the logical unit.
    Running,
    /// The command was aborted, but is still with the logical unit.
    Aborting,
    /// The command was answered, but unsolicited data is still expected.
    Answered,
}

/// A command, from its PDU to its response.
pub(super) struct IscsiTask {
    generation: u32,
    pub phase: TaskPhase,
    pub itt: u32,
    pub lun: Option<u16>,
    pub lun_field: [u8; 8],
    pub read_len: u32,
    pub write_len: u32,
    pub bidirectional: bool,
    /// Number of Data-Out bytes that the command takes; excess data is dropped.
    pub want: u32,
    /// Bytes received in order, including dropped bytes.
    pub got: u32,
    pub inline: Option<u64>,
    pub buf: Option<Buf>,
    /// Included in [`TaskTable::buffered_bytes`], even while the buffer is lent out to be filled.
    pub buf_bytes: usize,
    pub unsolicited: Option<DataOutBurst>,
    pub bursts: VecDeque<DataOutBurst>,
    pub next_r2t: u32,
    pub r2t_sn: u32,
    pub failed: Option<Sense>,
    pub outcome: Option<CommandOutcome>,
    pub cdb: Vec<u8>,
    pub attribute: TaskAttribute,
    pub is_waiting: bool,
    /// Whether its data is included in [`TaskTable::reading_bytes`].
    is_reading: bool,
}

/// A sequence of Data-Out PDUs that is allowed to arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataOutBurst {
    pub ttt: u32,
    pub at: u32,
    pub end: u32,
    pub data_sn: u32,
}

/// A task management function that waits until its tasks are gone.
pub(super) struct PendingFunction {
    pub function: u8,
    pub itt: u32,
    /// Our tag for the task, for ABORT TASK.
    pub tag: Option<u64>,
    /// Completion checks, for functions that affect several tasks.
    pub pending: Vec<IsDone>,
}

/// All tasks of a connection. A task is identified within the connection by its slot, for logical units by its tag
/// (the slot and a generation), and for the peer by its initiator task tag.
#[derive(Default)]
pub(super) struct TaskTable {
    tasks: Vec<IscsiTask>,
    free: Vec<u32>,
    by_itt: HashMap<u32, u32, BuildHasherDefault<TagHasher>>,
    buffered: usize,
    reading: usize,
}

impl Index<usize> for TaskTable {
    type Output = IscsiTask;

    #[inline]
    fn index(&self, slot: usize) -> &IscsiTask {
        &self.tasks[slot]
    }
}

impl IndexMut<usize> for TaskTable {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut IscsiTask {
        &mut self.tasks[slot]
    }
}

impl TaskTable {
    /// Number of slots, including free ones.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Number of tasks in use.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Bytes in Data-Out buffers.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered
    }

    /// Bytes of data that running commands will send.
    #[inline]
    pub fn reading_bytes(&self) -> usize {
        self.reading
    }

    /// Takes a slot for a command. The task is in use, but can't be found by its initiator task tag yet.
    #[inline]
    pub fn take(&mut self, pdu: &ScsiCommand, ahs: &Ahs<'_>) -> usize {
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None => {
                self.tasks.push(IscsiTask::new());
                self.tasks.len() - 1
            }
        };
        let expected = pdu.expected_data_transfer_length.get();
        let reads = pdu.flags & code::command::READ != 0;
        let writes = pdu.flags & code::command::WRITE != 0;
        let task = &mut self.tasks[slot];
        assert!(task.phase == TaskPhase::Free, "only free slots are taken");
        task.phase = TaskPhase::Running;
        task.itt = pdu.initiator_task_tag.get();
        task.lun = lun_number(pdu.lun);
        task.lun_field = pdu.lun;
        task.write_len = if writes { expected } else { 0 };
        task.bidirectional = reads && writes;
        task.read_len = match (reads, writes) {
            (true, true) => ahs.bidirectional_read_length.unwrap_or(0),
            (true, false) => expected,
            _ => 0,
        };
        task.attribute = match pdu.flags & code::command::ATTR_MASK {
            code::command::ATTR_ORDERED => TaskAttribute::Ordered,
            code::command::ATTR_HEAD_OF_QUEUE => TaskAttribute::HeadOfQueue,
            code::command::ATTR_ACA => TaskAttribute::Aca,
            _ => TaskAttribute::Simple,
        };
        slot
    }

    /// Enters a task under its initiator task tag, which must be unused.
    pub fn enter(&mut self, slot: usize) {
        let before = self.by_itt.insert(self.tasks[slot].itt, slot as u32);
        assert!(before.is_none(), "initiator task tags are unique");
    }

    /// Makes a task's initiator task tag available to other tasks.
    pub fn forget_itt(&mut self, slot: usize) {
        let itt = self.tasks[slot].itt;
        if self.by_itt.get(&itt) == Some(&(slot as u32)) {
            self.by_itt.remove(&itt);
        }
    }

    /// Finds the task with an initiator task tag.
    #[inline]
    pub fn find(&self, itt: u32) -> Option<usize> {
        if self.by_itt.is_empty() {
            return None;
        }
        self.by_itt.get(&itt).map(|&slot| slot as usize)
    }

    /// The tag that identifies the task for logical units.
    #[inline]
    pub fn tag(&self, slot: usize) -> u64 {
        u64::from(self.tasks[slot].generation) << 32 | slot as u64
    }

    /// The slot of the task with this tag, unless the task is gone.
    #[inline]
    pub fn slot(&self, tag: u64) -> Option<usize> {
        let slot = tag as u32 as usize;
        let task = self.tasks.get(slot)?;
        (task.generation == (tag >> 32) as u32 && task.phase != TaskPhase::Free).then_some(slot)
    }

    /// Stores the CDB of a command that arrived before its turn.
    pub fn keep_cdb(&mut self, slot: usize, pdu: &ScsiCommand, ahs: &Ahs<'_>) {
        let cdb = &mut self.tasks[slot].cdb;
        cdb.clear();
        cdb.extend_from_slice(&pdu.cdb);
        cdb.extend_from_slice(ahs.extended_cdb.unwrap_or(&[]));
    }

    /// A header that identifies the task, for a Reject when its PDU is gone.
    pub fn bhs_of(&self, slot: usize) -> Bhs {
        let task = &self.tasks[slot];
        DataOutPdu {
            lun: task.lun_field,
            initiator_task_tag: task.itt.into(),
            ..DataOutPdu::default()
        }
        .into()
    }

    /// Counts the data that the task's command will send.
    pub fn count_reading(&mut self, slot: usize) {
        let task = &mut self.tasks[slot];
        assert!(!task.is_reading, "a command begins once");
        task.is_reading = true;
        self.reading += task.read_len as usize;
    }

    /// Whether the task may have a buffer of `len` bytes: the buffer fits in the budget, or no other task has one.
    pub fn has_room_for(&self, slot: usize, len: usize) -> bool {
        let others = self.buffered - self.tasks[slot].buf_bytes;
        others == 0 || others + len <= BUFFERED_BYTES_MAX
    }

    /// Gives the task a longer buffer, and copies the contents of the old one.
    pub fn replace_buf(&mut self, slot: usize, mut buf: Buf) {
        let task = &mut self.tasks[slot];
        let len = buf.len();
        if let Some(old) = task.buf.take() {
            let keep = old.len().min(len);
            buf[..keep].copy_from_slice(&old[..keep]);
        }
        self.buffered = self.buffered - task.buf_bytes + len;
        task.buf_bytes = len;
        task.buf = Some(buf);
    }

    /// Frees a task.
    #[inline]
    pub fn clear(&mut self, slot: usize) {
        let task = &mut self.tasks[slot];
        assert!(task.phase != TaskPhase::Free, "a task is freed once");
        self.buffered -= task.buf_bytes;
        if std::mem::take(&mut task.is_reading) {
            self.reading -= task.read_len as usize;
        }
        task.generation = task.generation.wrapping_add(1);
        task.phase = TaskPhase::Free;
        task.want = 0;
        task.got = 0;
        task.inline = None;
        task.buf = None;
        task.buf_bytes = 0;
        task.unsolicited = None;
        task.bursts.clear();
        task.next_r2t = 0;
        task.r2t_sn = 0;
        task.failed = None;
        task.outcome = None;
        task.is_waiting = false;
        self.free.push(slot as u32);
    }
}

impl IscsiTask {
    fn new() -> IscsiTask {
        IscsiTask {
            generation: 0,
            phase: TaskPhase::Free,
            itt: 0,
            lun: None,
            lun_field: [0; 8],
            read_len: 0,
            write_len: 0,
            bidirectional: false,
            want: 0,
            got: 0,
            inline: None,
            buf: None,
            buf_bytes: 0,
            unsolicited: None,
            bursts: VecDeque::new(),
            next_r2t: 0,
            r2t_sn: 0,
            failed: None,
            outcome: None,
            cdb: Vec::new(),
            attribute: TaskAttribute::Simple,
            is_waiting: false,
            is_reading: false,
        }
    }
}
