//! One thread's access to an array: splits requests into parts that each lie within one stripe, and takes each part
//! through its steps: read from members, combine, write to members.
//!
//! The rule: a part that writes, or reads more than was requested, holds its stripe's lock from its first check of the
//! array's state to its last write. No thread waits for a lock: a part that cannot get it tries again at the next poll.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::layout::{ChunkExtent, Layout, Level};
use super::state::{ArrayControl, ArrayView};
use super::xor::xor;
use crate::backends::in_range;
use crate::open::OpenError;
use crate::{
    Backend, Buf, Completion, Device, DeviceError, DeviceInfo, Health, Op, RefusalKind, Request,
    Ring,
};

/// Retry interval for locks held by another thread.
const LOCK_LOOK: Duration = Duration::from_micros(50);
/// Maximum outstanding parts per request.
const WINDOW: u32 = 16;
/// How long a dropped device waits for its writes to complete.
const DROP_MAX: Duration = Duration::from_secs(1);
/// A tag consists of a part number and a slot.
const SLOT_BITS: u32 = 6;

/// A caller's request.
#[derive(Default)]
struct Task {
    tag: u64,
    op: Option<Op>,
    offset: u64,
    len: u64,
    buf: Buf,
    force_unit_access: bool,
    /// Bytes (from `offset`) already split into parts.
    cursor: u64,
    /// A flush has a single part without data; set once that part has been created.
    flushed: bool,
    active: u32,
    queued: bool,
    cancelled: bool,
    error: Option<DeviceError>,
}

impl Task {
    fn is_cut_up(&self) -> bool {
        if self.op == Some(Op::Flush) {
            self.flushed
        } else {
            self.cursor >= self.len
        }
    }
}

/// What a part does next, once everything it waits for has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    /// Waits for its lock.
    Blocked,
    /// Returns the data read from a single slot.
    Read,
    /// Combines reads from all other slots by XOR.
    Reconstruct,
    /// Reads old data and old parity, then writes the new ones.
    Modify,
    /// Reads the other data of the stripe, then writes parity, and the data if its slot has a member.
    Replace,
    /// Waits for its writes.
    Write,
}

/// A part of a task.
#[derive(Default)]
struct Part {
    task: u32,
    op: Option<Op>,
    step: Step,
    stripe: u64,
    /// The slot of its data; unused for full stripes.
    slot: usize,
    member_offset: u64,
    /// Bytes within one chunk.
    len: u64,
    /// Offset in the task's buffer.
    at: u64,
    /// Covers all data of a stripe (RAID 5).
    full: bool,
    /// The caller's buffer is passed to the member directly.
    direct: bool,
    /// Whether the held lock is exclusive; `None` if none is held.
    lock: Option<bool>,
    /// Slots that failed a read of this part, as a bit mask.
    avoid: u64,
    waits: u32,
    written: u32,
    bufs: Vec<(usize, Buf)>,
    /// The first error in the current step.
    error: Option<DeviceError>,
    /// An error of an earlier step that was worked around.
    overcome: Option<DeviceError>,
}

pub(super) struct ArrayDevice {
    control: Arc<ArrayControl>,
    layout: Layout,
    info: DeviceInfo,
    ring: Ring,
    members: Vec<Box<dyn Device>>,
    queues: Vec<VecDeque<Request>>,
    view: ArrayView,
    generation: u64,
    tasks: Vec<Task>,
    free_tasks: Vec<u32>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    /// Tasks with parts that have not been created yet.
    pending: VecDeque<u32>,
    blocked: Vec<u32>,
    done: Vec<Completion>,
    above: Vec<Completion>,
    /// The member to read from next (RAID 1).
    turn: usize,
}

impl ArrayDevice {
    pub(super) fn open(
        backends: &[Arc<dyn Backend>],
        control: &Arc<ArrayControl>,
        layout: Layout,
        info: &DeviceInfo,
        ring: &Ring,
        depth: u32,
    ) -> Result<ArrayDevice, OpenError> {
        let parts = depth.max(WINDOW) + 8;
        // Each part has at most one outstanding request per member.
        let members = backends
            .iter()
            .map(|backend| backend.open(ring, parts))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(ArrayDevice {
            control: Arc::clone(control),
            layout,
            info: info.clone(),
            ring: ring.clone(),
            queues: members
                .iter()
                .map(|_| VecDeque::with_capacity(parts as usize))
                .collect(),
            members,
            generation: control.generation(),
            view: control.view(),
            tasks: (0..depth).map(|_| Task::default()).collect(),
            free_tasks: (0..depth).rev().collect(),
            parts: (0..parts).map(|_| Part::default()).collect(),
            free_parts: (0..parts).rev().collect(),
            pending: VecDeque::with_capacity(depth as usize),
            blocked: Vec::with_capacity(parts as usize),
            done: Vec::with_capacity(depth as usize),
            above: Vec::with_capacity(parts as usize),
            turn: 0,
        })
    }
}

impl Device for ArrayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while !batch.is_empty() && (self.outstanding() as usize) < self.tasks.len() {
            let Some(index) = self.free_tasks.pop() else {
                break;
            };
            let Request {
                tag,
                op,
                offset,
                len,
                buf,
                force_unit_access,
            } = batch.pop_front().expect("the batch is not empty");
            let request = Request {
                tag,
                op,
                offset,
                len,
                buf,
                force_unit_access,
            };
            let wrong = in_range(&self.info, &request).err();
            let task = Task {
                tag,
                op: Some(op),
                offset,
                len,
                buf: request.buf,
                force_unit_access,
                ..Task::default()
            };
            self.tasks[index as usize] = task;
            if wrong.is_some() || (len == 0 && op != Op::Flush) {
                self.tasks[index as usize].error = wrong;
                self.complete(index);
                continue;
            }
            self.tasks[index as usize].queued = true;
            self.pending.push_back(index);
        }
        self.exchange();
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.exchange();
        done.append(&mut self.done);
    }

    fn outstanding(&self) -> u32 {
        (self.tasks.len() - self.free_tasks.len() + self.done.len()) as u32
    }

    fn deadline(&self) -> Nanos {
        if !self.done.is_empty() || self.queues.iter().any(|queue| !queue.is_empty()) {
            return Nanos(0);
        }
        let mut deadline = self
            .members
            .iter()
            .map(|member| member.deadline())
            .min()
            .unwrap_or(Nanos::MAX);
        if !self.blocked.is_empty() {
            deadline = deadline.min(Clock::Monotonic.now().after(LOCK_LOOK));
        }
        deadline
    }

    fn cancel(&mut self, tag: u64) {
        let Some(index) = self
            .tasks
            .iter()
            .position(|task| task.op.is_some() && task.tag == tag)
        else {
            return;
        };
        self.tasks[index].cancelled = true;
        for (number, part) in self.parts.iter().enumerate() {
            if part.task != index as u32 || part.step == Step::Idle {
                continue;
            }
            for slot in 0..self.layout.slots {
                for member in &mut self.members {
                    member.cancel((number as u64) << SLOT_BITS | slot as u64);
                }
            }
        }
    }

    fn health(&self) -> Health {
        let mut health = Health::default();
        for member in &self.members {
            let of = member.health();
            health.retries += of.retries;
            health.timeouts += of.timeouts;
            health.reconnects += of.reconnects;
            health.trouble = health.trouble.or(of.trouble);
        }
        let status = self.control.status();
        let array = status
            .trouble
            .map(|trouble| format!("array {}: {trouble}", status.state));
        health.trouble = array.or(health.trouble);
        health
    }
}

impl ArrayDevice {
    /// Creates parts, submits their requests, and handles completions.
    fn exchange(&mut self) {
        self.pump();
        if !self.blocked.is_empty() {
            let blocked = std::mem::take(&mut self.blocked);
            for part in blocked {
                self.start(part);
            }
        }
        self.hand_down();
        for device in 0..self.members.len() {
            if self.members[device].outstanding() == 0 {
                continue;
            }
            let mut above = std::mem::take(&mut self.above);
            self.members[device].poll(&mut above);
            for one in above.drain(..) {
                self.came_up(device, one);
            }
            self.above = above;
        }
        self.pump();
        self.hand_down();
    }

    fn hand_down(&mut self) {
        for (member, queue) in self.members.iter_mut().zip(&mut self.queues) {
            if !queue.is_empty() {
                member.submit(queue);
            }
        }
    }

    /// Splits tasks into parts while there is room for more.
    fn pump(&mut self) {
        while !self.free_parts.is_empty() {
            let Some(index) = self.pending.pop_front() else {
                return;
            };
            self.tasks[index as usize].queued = false;
            while self.tasks[index as usize].active < WINDOW
                && !self.tasks[index as usize].is_cut_up()
            {
                let Some(part) = self.free_parts.pop() else {
                    self.tasks[index as usize].queued = true;
                    self.pending.push_front(index);
                    return;
                };
                self.cut(index, part);
                self.start(part);
            }
        }
    }

    /// Creates the next part of a task.
    fn cut(&mut self, index: u32, number: u32) {
        let task = &mut self.tasks[index as usize];
        let part = &mut self.parts[number as usize];
        let bufs = std::mem::take(&mut part.bufs);
        *part = Part {
            task: index,
            op: task.op,
            at: task.cursor,
            bufs,
            ..Part::default()
        };
        task.active += 1;
        if task.op == Some(Op::Flush) {
            task.flushed = true;
            return;
        }
        let (offset, left) = (task.offset + task.cursor, task.len - task.cursor);
        let ChunkExtent {
            stripe,
            slot,
            member_offset,
            len,
        } = self.layout.place(offset, left);
        let whole = self.layout.stripe_bytes();
        let writes = task.op != Some(Op::Read);
        part.full = self.layout.level == Level::Raid5
            && writes
            && offset.is_multiple_of(whole)
            && left >= whole;
        (part.stripe, part.slot, part.member_offset) = (stripe, slot, member_offset);
        part.len = if part.full {
            self.layout.chunk_bytes
        } else {
            len
        };
        let taken = if part.full { whole } else { len };
        part.direct = taken == task.len && (!writes || self.layout.level != Level::Raid5);
        task.cursor += taken;
    }

    /// The member that holds a slot's chunk of a stripe, according to the current state.
    fn holder(&mut self, slot: usize, stripe: u64) -> Option<usize> {
        loop {
            let generation = self.control.generation();
            if generation != self.generation {
                self.view = self.control.view();
                self.generation = generation;
            }
            let holder = self.control.holder(&self.view, slot, stripe);
            if self.control.generation() == generation {
                return holder;
            }
        }
    }

    /// The member from which a part can read a slot's data, if any.
    fn readable(&mut self, number: u32, slot: usize) -> Option<usize> {
        let part = &self.parts[number as usize];
        let (stripe, avoided) = (part.stripe, part.avoid >> slot & 1 != 0);
        if avoided {
            None
        } else {
            self.holder(slot, stripe)
        }
    }

    /// Takes the stripe's lock for a part, or queues the part to try again.
    fn lock(&mut self, number: u32, exclusive: bool) -> bool {
        let part = &mut self.parts[number as usize];
        if part.lock.is_some() {
            return true;
        }
        if self.control.try_lock(part.stripe, exclusive) {
            part.lock = Some(exclusive);
            return true;
        }
        part.step = Step::Blocked;
        self.blocked.push(number);
        false
    }

    /// Starts a part, or restarts it.
    fn start(&mut self, number: u32) {
        match (
            self.parts[number as usize]
                .op
                .expect("a part belongs to a task"),
            self.layout.level,
        ) {
            (Op::Read, _) => self.start_read(number),
            (Op::Flush, _) => self.start_flush(number),
            (op, Level::Raid0) => {
                let slot = self.parts[number as usize].slot;
                match self.holder(slot, self.parts[number as usize].stripe) {
                    Some(device) => self.write_through(number, op, &[(slot, device)]),
                    None => self.fail_part(number),
                }
            }
            (op, Level::Raid1) => {
                if !self.lock(number, false) {
                    return;
                }
                let stripe = self.parts[number as usize].stripe;
                let slots = self.layout.slots;
                let holders: Vec<_> = (0..slots)
                    .filter_map(|slot| Some((slot, self.holder(slot, stripe)?)))
                    .collect();
                if holders.is_empty() {
                    return self.fail_part(number);
                }
                if holders.len() < slots {
                    self.control
                        .degraded_requests
                        .fetch_add(1, Ordering::Relaxed);
                }
                self.write_through(number, op, &holders);
            }
            (_, Level::Raid5) => {
                if self.lock(number, true) {
                    self.start_parity_write(number);
                }
            }
        }
    }

    fn start_read(&mut self, number: u32) {
        if self.layout.level == Level::Raid1 {
            self.turn = self.turn.wrapping_add(1);
            let (slots, turn) = (self.layout.slots, self.turn);
            let found = (0..slots)
                .map(|step| (turn + step) % slots)
                .find_map(|slot| Some((slot, self.readable(number, slot)?)));
            return match found {
                Some((slot, device)) => self.read_one(number, slot, device),
                None => self.fail_part(number),
            };
        }
        let slot = self.parts[number as usize].slot;
        if let Some(device) = self.readable(number, slot) {
            return self.read_one(number, slot, device);
        }
        if self.layout.level == Level::Raid0 {
            return self.fail_part(number);
        }
        if !self.lock(number, false) {
            return;
        }
        // The state may have changed before the lock was acquired.
        if let Some(device) = self.readable(number, slot) {
            return self.read_one(number, slot, device);
        }
        self.control
            .degraded_requests
            .fetch_add(1, Ordering::Relaxed);
        let others: Vec<usize> = (0..self.layout.slots)
            .filter(|other| *other != slot)
            .collect();
        self.read_all(number, &others, Step::Reconstruct);
    }

    fn read_one(&mut self, number: u32, slot: usize, device: usize) {
        let part = &mut self.parts[number as usize];
        part.step = Step::Read;
        let task = &mut self.tasks[part.task as usize];
        let buf = match part.direct {
            true => std::mem::take(&mut task.buf),
            false => self.ring.pool().take(part.len as usize),
        };
        self.send(number, slot, device, Op::Read, buf);
    }

    /// Reads a part's range from these slots, all of which must be readable.
    fn read_all(&mut self, number: u32, slots: &[usize], step: Step) {
        let mut devices = Vec::with_capacity(slots.len());
        for slot in slots {
            match self.readable(number, *slot) {
                Some(device) => devices.push((*slot, device)),
                None => return self.fail_part(number),
            }
        }
        self.parts[number as usize].step = step;
        for (slot, device) in devices {
            let buf = self
                .ring
                .pool()
                .take(self.parts[number as usize].len as usize);
            self.send(number, slot, device, Op::Read, buf);
        }
    }

    fn start_flush(&mut self, number: u32) {
        let slots = self.layout.slots;
        // The device being rebuilt is flushed too: the data written to it so far must be stable.
        let holders: Vec<_> = (0..slots)
            .filter_map(|slot| Some((slot, self.holder(slot, 0)?)))
            .collect();
        if slots - holders.len() > self.control.tolerated() {
            return self.fail_part(number);
        }
        self.write_through(number, Op::Flush, &holders);
    }

    /// Sends the same operation to each of these members, with the part's data for a write.
    fn write_through(&mut self, number: u32, op: Op, holders: &[(usize, usize)]) {
        self.parts[number as usize].step = Step::Write;
        let single = holders.len() == 1;
        for (slot, device) in holders {
            let part = &self.parts[number as usize];
            let task = &mut self.tasks[part.task as usize];
            let buf = match (op, single && part.direct) {
                (Op::Write, true) => std::mem::take(&mut task.buf),
                (Op::Write, false) => self.data_of(number),
                _ => Buf::empty(),
            };
            let part = &mut self.parts[number as usize];
            part.direct &= single;
            self.send(number, *slot, *device, op, buf);
        }
    }

    /// A copy of the data that a part writes within one chunk.
    fn data_of(&self, number: u32) -> Buf {
        let part = &self.parts[number as usize];
        self.chunk_of(part, 0)
    }

    /// Data chunk `index` of a full stripe, or the data of a part.
    fn chunk_of(&self, part: &Part, index: u64) -> Buf {
        let mut buf = self.ring.pool().take(part.len as usize);
        if part.op == Some(Op::Write) {
            let from = (part.at + index * self.layout.chunk_bytes) as usize;
            buf.copy_from_slice(
                &self.tasks[part.task as usize].buf[from..from + part.len as usize],
            );
        } else {
            buf.fill(0);
        }
        buf
    }

    /// Starts a RAID 5 write, under the stripe's lock.
    fn start_parity_write(&mut self, number: u32) {
        let (stripe, slot, full) = {
            let part = &self.parts[number as usize];
            (part.stripe, part.slot, part.full)
        };
        let parity = self.layout.parity_slot(stripe);
        if full {
            return self.write_stripe(number, parity);
        }
        let holds_parity = self.holder(parity, stripe);
        let holds_data = self.holder(slot, stripe);
        if holds_parity.is_none() {
            // No member holds the parity, so only the data is written.
            let Some(device) = holds_data else {
                return self.fail_part(number);
            };
            self.control
                .degraded_requests
                .fetch_add(1, Ordering::Relaxed);
            let data = self.data_of(number);
            self.parts[number as usize].step = Step::Write;
            return self.send(number, slot, device, Op::Write, data);
        }
        let both = self.readable(number, slot).is_some() && self.readable(number, parity).is_some();
        if both {
            return self.read_all(number, &[slot, parity], Step::Modify);
        }
        self.control
            .degraded_requests
            .fetch_add(1, Ordering::Relaxed);
        let others: Vec<usize> = (0..self.layout.slots)
            .filter(|other| *other != slot && *other != parity)
            .collect();
        self.read_all(number, &others, Step::Replace);
    }

    fn write_stripe(&mut self, number: u32, parity: usize) {
        let stripe = self.parts[number as usize].stripe;
        let mut sum = self.ring.pool().take(self.layout.chunk_bytes as usize);
        sum.fill(0);
        let mut writes = Vec::with_capacity(self.layout.slots);
        let mut missing = 0;
        for index in 0..self.layout.data_slots() {
            let chunk = self.chunk_of(&self.parts[number as usize], index as u64);
            xor(&mut sum, &chunk);
            let slot = self.layout.data_slot(stripe, index);
            match self.holder(slot, stripe) {
                Some(device) => writes.push((slot, device, chunk)),
                None => missing += 1,
            }
        }
        match self.holder(parity, stripe) {
            Some(device) => writes.push((parity, device, sum)),
            None => missing += 1,
        }
        if missing > self.control.tolerated() {
            return self.fail_part(number);
        }
        if missing > 0 {
            self.control
                .degraded_requests
                .fetch_add(1, Ordering::Relaxed);
        }
        self.parts[number as usize].step = Step::Write;
        for (slot, device, buf) in writes {
            self.send(number, slot, device, Op::Write, buf);
        }
    }

    fn send(&mut self, number: u32, slot: usize, device: usize, op: Op, buf: Buf) {
        let part = &mut self.parts[number as usize];
        let task = &self.tasks[part.task as usize];
        part.waits += 1;
        let (offset, len) = if op == Op::Flush {
            (0, 0)
        } else {
            (part.member_offset, part.len)
        };
        self.queues[device].push_back(Request {
            tag: u64::from(number) << SLOT_BITS | slot as u64,
            op,
            offset,
            len,
            buf,
            force_unit_access: task.force_unit_access && !matches!(op, Op::Read | Op::Flush),
        });
    }

    /// Handles a member's completion.
    fn came_up(&mut self, device: usize, one: Completion) {
        let (number, slot) = (
            (one.tag >> SLOT_BITS) as u32,
            (one.tag & ((1 << SLOT_BITS) - 1)) as usize,
        );
        let result = one.result.or_else(|error| {
            if error.is_recovered() {
                Ok(())
            } else {
                Err(error)
            }
        });
        let redundant = self.layout.level != Level::Raid0;
        let part = &mut self.parts[number as usize];
        let task = &mut self.tasks[part.task as usize];
        part.waits -= 1;
        let writing = part.step == Step::Write;
        match result {
            Ok(()) if writing => part.written += 1,
            Ok(()) => {}
            // An unsupported or invalid request is not the member's failure.
            Err(error @ (DeviceError::Unsupported | DeviceError::OutOfRange)) => {
                task.error = Some(error)
            }
            Err(error) => {
                part.error = Some(error);
                if !writing {
                    part.avoid |= 1 << slot;
                }
                if redundant && (writing || !task.cancelled) && part.op != Some(Op::Flush) {
                    self.control.blame(device, error, writing);
                } else if redundant && part.op == Some(Op::Flush) {
                    self.control.blame(device, error, true);
                }
            }
        }
        let part = &mut self.parts[number as usize];
        if part.direct && matches!(part.step, Step::Read | Step::Write) {
            self.tasks[part.task as usize].buf = one.buf;
        } else {
            part.bufs.push((slot, one.buf));
        }
        if self.parts[number as usize].waits == 0 {
            self.went(number);
        }
    }

    /// Continues a part after all its outstanding requests have completed.
    fn went(&mut self, number: u32) {
        let part = &mut self.parts[number as usize];
        let task = &mut self.tasks[part.task as usize];
        if task.error.is_some() && part.step != Step::Write {
            return self.end(number);
        }
        if part.step == Step::Write {
            return self.wrote(number);
        }
        if let Some(error) = part.error.take() {
            // A read failed: try another source, unless the request was cancelled or none is left.
            part.bufs.clear();
            if task.cancelled || self.layout.level == Level::Raid0 {
                task.error = Some(error);
                return self.end(number);
            }
            part.overcome = Some(error);
            return self.start(number);
        }
        match part.step {
            Step::Read if part.direct => self.end(number),
            Step::Read | Step::Reconstruct => {
                let mut bufs = std::mem::take(&mut part.bufs);
                let (_, mut sum) = bufs.pop().expect("a read part has its data");
                for (_, other) in bufs.drain(..) {
                    xor(&mut sum, &other);
                }
                let at = part.at as usize;
                if task.buf.is_empty() {
                    unreachable!("only direct parts take the caller's buffer");
                }
                task.buf[at..at + part.len as usize].copy_from_slice(&sum);
                part.bufs = bufs;
                self.end(number);
            }
            Step::Modify | Step::Replace => self.combine(number),
            Step::Idle | Step::Blocked | Step::Write => unreachable!("a wait has begun"),
        }
    }

    /// Computes the new parity from what was read; writes parity and data.
    fn combine(&mut self, number: u32) {
        let data = self.data_of(number);
        let part = &mut self.parts[number as usize];
        let (stripe, slot) = (part.stripe, part.slot);
        let mut bufs = std::mem::take(&mut part.bufs);
        // Modify: old data, old parity, new data. Replace: all other data, new data.
        let mut sum = match bufs.pop() {
            Some((_, first)) => first,
            None => {
                let mut zeros = self.ring.pool().take(data.len());
                zeros.fill(0);
                zeros
            }
        };
        for (_, other) in bufs.drain(..) {
            xor(&mut sum, &other);
        }
        xor(&mut sum, &data);
        self.parts[number as usize].bufs = bufs;
        let parity = self.layout.parity_slot(stripe);
        let (to_data, to_parity) = (self.holder(slot, stripe), self.holder(parity, stripe));
        if to_data.is_none() && to_parity.is_none() {
            return self.fail_part(number);
        }
        // A member may have failed since the reads, so there may be no member for the data or the parity.
        self.parts[number as usize].step = Step::Write;
        if let Some(device) = to_data {
            self.send(number, slot, device, Op::Write, data);
        }
        if let Some(device) = to_parity {
            self.send(number, parity, device, Op::Write, sum);
        }
    }

    /// All writes of a part have completed, with or without errors.
    fn wrote(&mut self, number: u32) {
        let (stripe, written, error, level) = {
            let part = &self.parts[number as usize];
            (part.stripe, part.written, part.error, self.layout.level)
        };
        if let Some(error) = error {
            let missing = (0..self.layout.slots)
                .filter(|slot| self.holder(*slot, stripe).is_none())
                .count();
            let kept = match level {
                Level::Raid0 => false,
                Level::Raid1 => written > 0,
                Level::Raid5 => missing <= self.control.tolerated(),
            };
            if !kept {
                let part = &self.parts[number as usize];
                self.tasks[part.task as usize].error.get_or_insert(error);
            }
        }
        self.end(number);
    }

    /// Fails a part that cannot be completed because too many members are missing.
    fn fail_part(&mut self, number: u32) {
        let part = &mut self.parts[number as usize];
        // A member's own error is more specific.
        let gone = DeviceError::refused(RefusalKind::Unreachable);
        let error = part.error.take().or(part.overcome.take()).unwrap_or(gone);
        self.tasks[part.task as usize].error.get_or_insert(error);
        self.end(number);
    }

    fn end(&mut self, number: u32) {
        let part = &mut self.parts[number as usize];
        debug_assert_eq!(part.waits, 0);
        if let Some(exclusive) = part.lock.take() {
            self.control.unlock(part.stripe, exclusive);
        }
        part.bufs.clear();
        part.step = Step::Idle;
        let index = part.task;
        self.free_parts.push(number);
        let task = &mut self.tasks[index as usize];
        task.active -= 1;
        if task.error.is_some() && task.op != Some(Op::Flush) {
            // The request fails anyway: skip its remaining parts.
            task.cursor = task.len;
        }
        if task.is_cut_up() {
            // A failed task may still be queued for its next part, so it is removed from the queue.
            if task.active == 0 && !task.queued {
                self.complete(index);
            } else if task.active == 0 {
                self.pending.retain(|other| *other != index);
                self.complete(index);
            }
        } else if !task.queued {
            task.queued = true;
            self.pending.push_back(index);
        }
    }

    fn complete(&mut self, index: u32) {
        let task = std::mem::take(&mut self.tasks[index as usize]);
        let result = task.error.map_or(Ok(()), Err);
        self.done.push(Completion {
            tag: task.tag,
            buf: task.buf,
            result,
        });
        self.free_tasks.push(index);
    }
}

impl Drop for ArrayDevice {
    /// Waits for outstanding writes, so that data and parity stay consistent. A member that doesn't complete its writes
    /// is no longer consistent and is failed.
    fn drop(&mut self) {
        for task in &mut self.tasks {
            task.cursor = task.len;
            task.flushed = true;
        }
        self.pending.clear();
        for number in std::mem::take(&mut self.blocked) {
            self.parts[number as usize].step = Step::Idle;
        }
        let until = Clock::Monotonic.now().after(DROP_MAX);
        let busy = |device: &ArrayDevice| device.parts.iter().any(|part| part.waits > 0);
        while busy(self) && Clock::Monotonic.now() < until {
            self.exchange();
            if busy(self) && self.ring.enter(self.deadline().min(until)).is_err() {
                break;
            }
        }
        let stuck = |part: &&Part| part.waits > 0 && part.step == Step::Write;
        if self.layout.level != Level::Raid0 && self.parts.iter().any(|part| stuck(&part)) {
            for (device, member) in self.members.iter().enumerate() {
                if member.outstanding() > 0 {
                    self.control.blame(device, DeviceError::TimedOut, true);
                }
            }
        }
        for part in &mut self.parts {
            if let Some(exclusive) = part.lock.take() {
                self.control.unlock(part.stripe, exclusive);
            }
        }
    }
}
