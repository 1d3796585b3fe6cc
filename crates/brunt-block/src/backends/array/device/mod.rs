//! One thread's access to an array: splits requests into parts that each lie within one stripe, and takes each part
//! through its steps: read from members, combine, write to members.
//!
//! The rule: a part that writes, or reads more than was requested, holds its stripe's lock from its first check of the
//! array's state to its last write. No thread waits for a lock: a part that cannot get it tries again at the next poll.

mod part;
mod steps;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use self::part::{ArrayPart, ArrayTask, PartStep};
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
const LOCK_RETRY: Duration = Duration::from_micros(50);
/// Maximum outstanding parts per request.
const WINDOW: u32 = 16;
/// How long a dropped device waits for its writes to complete.
const DROP_MAX: Duration = Duration::from_secs(1);
/// A tag consists of a part number and a slot.
const SLOT_BITS: u32 = 6;

pub(super) struct ArrayDevice {
    control: Arc<ArrayControl>,
    layout: Layout,
    info: DeviceInfo,
    ring: Ring,
    members: Vec<Box<dyn Device>>,
    queues: Vec<VecDeque<Request>>,
    view: ArrayView,
    generation: u64,
    tasks: Vec<ArrayTask>,
    free_tasks: Vec<u32>,
    parts: Vec<ArrayPart>,
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
            tasks: (0..depth).map(|_| ArrayTask::default()).collect(),
            free_tasks: (0..depth).rev().collect(),
            parts: (0..parts).map(|_| ArrayPart::default()).collect(),
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
            let request = batch.pop_front().expect("the batch is not empty");
            let wrong = in_range(&self.info, &request).err();
            let Request {
                tag,
                op,
                offset,
                len,
                buf,
                force_unit_access,
            } = request;
            let task = ArrayTask {
                tag,
                op: Some(op),
                offset,
                len,
                buf,
                force_unit_access,
                ..ArrayTask::default()
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
            deadline = deadline.min(Clock::Monotonic.now().after(LOCK_RETRY));
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
            if part.task != index as u32 || part.step == PartStep::Idle {
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
        self.split_tasks();
        if !self.blocked.is_empty() {
            let blocked = std::mem::take(&mut self.blocked);
            for part in blocked {
                self.start(part);
            }
        }
        self.submit_members();
        for device in 0..self.members.len() {
            if self.members[device].outstanding() == 0 {
                continue;
            }
            let mut above = std::mem::take(&mut self.above);
            self.members[device].poll(&mut above);
            for one in above.drain(..) {
                self.on_completion(device, one);
            }
            self.above = above;
        }
        self.split_tasks();
        self.submit_members();
    }

    fn submit_members(&mut self) {
        for (member, queue) in self.members.iter_mut().zip(&mut self.queues) {
            if !queue.is_empty() {
                member.submit(queue);
            }
        }
    }

    /// Splits tasks into parts while there is room for more.
    fn split_tasks(&mut self) {
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
                self.next_part(index, part);
                self.start(part);
            }
        }
    }

    /// Creates the next part of a task.
    fn next_part(&mut self, index: u32, number: u32) {
        let task = &mut self.tasks[index as usize];
        let part = &mut self.parts[number as usize];
        let bufs = std::mem::take(&mut part.bufs);
        *part = ArrayPart {
            task: index,
            op: task.op,
            at: task.cursor,
            bufs,
            ..ArrayPart::default()
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
        part.step = PartStep::Blocked;
        self.blocked.push(number);
        false
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
    fn on_completion(&mut self, device: usize, one: Completion) {
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
        let writing = part.step == PartStep::Write;
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
        if part.direct && matches!(part.step, PartStep::Read | PartStep::Write) {
            self.tasks[part.task as usize].buf = one.buf;
        } else {
            part.bufs.push((slot, one.buf));
        }
        if self.parts[number as usize].waits == 0 {
            self.advance(number);
        }
    }

    /// Continues a part after all its outstanding requests have completed.
    fn advance(&mut self, number: u32) {
        let part = &mut self.parts[number as usize];
        let task = &mut self.tasks[part.task as usize];
        if task.error.is_some() && part.step != PartStep::Write {
            return self.end(number);
        }
        if part.step == PartStep::Write {
            return self.finish_write(number);
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
            PartStep::Read if part.direct => self.end(number),
            PartStep::Read | PartStep::Reconstruct => {
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
            PartStep::Modify | PartStep::Replace => self.combine(number),
            PartStep::Idle | PartStep::Blocked | PartStep::Write => {
                unreachable!("a wait has begun")
            }
        }
    }

    /// All writes of a part have completed, with or without errors.
    fn finish_write(&mut self, number: u32) {
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
        // Used only if no member reported an error, which would be more specific.
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
        part.step = PartStep::Idle;
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
    /// Waits for outstanding writes, so that data and parity stay consistent. A member that doesn't complete its
    /// writes is no longer consistent, so it is marked as failed.
    fn drop(&mut self) {
        for task in &mut self.tasks {
            task.cursor = task.len;
            task.flushed = true;
        }
        self.pending.clear();
        for number in std::mem::take(&mut self.blocked) {
            self.parts[number as usize].step = PartStep::Idle;
        }
        let until = Clock::Monotonic.now().after(DROP_MAX);
        let busy = |device: &ArrayDevice| device.parts.iter().any(|part| part.waits > 0);
        while busy(self) && Clock::Monotonic.now() < until {
            self.exchange();
            if busy(self) && self.ring.enter(self.deadline().min(until)).is_err() {
                break;
            }
        }
        let stuck = |part: &&ArrayPart| part.waits > 0 && part.step == PartStep::Write;
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
