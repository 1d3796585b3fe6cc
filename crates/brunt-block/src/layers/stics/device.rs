//! A per-thread handle to a cached device: adds writes to the cache, serves reads from memory, the log or the lower
//! device, in parts if necessary, and completes writes once the log writer has made them as durable as required.
//!
//! The rule: a write is acknowledged only when it is in the log or on the device. A part read from the log is valid
//! only if its log space was not reused in the meantime.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Nanos;
use brunt_core::units::format_duration;

use super::cache::Source;
use super::format::{EntryKind, LogEntry};
use super::shared::{Mode, Shared, State};
use crate::backends::in_range;
use crate::{
    Bell, Buf, Completion, Device, DeviceError, DeviceInfo, Health, Op, RefusalKind, Request, Ring,
};

/// What a write or flush has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Written,
    Synced,
    Far,
}

/// A request taken from the caller.
struct Slot {
    tag: u64,
    op: Op,
    offset: u64,
    len: u64,
    force_unit_access: bool,
    buf: Buf,
    /// Outstanding parts.
    parts: u32,
    error: Option<DeviceError>,
    since: Nanos,
}

/// A request to a lower device: a part of a caller's request, or all of it.
#[derive(Clone, Copy)]
struct Part {
    slot: u32,
    /// Offset of the part on the device.
    offset: u64,
    len: u64,
    /// The part's position in the log, if it is read from the log.
    log_at: Option<u64>,
    /// Whether the part uses the request's own buffer.
    whole: bool,
}

/// A thread's handle to the cached device.
pub(super) struct CachedDevice {
    // Devices must be dropped before their ring.
    inner: Box<dyn Device>,
    log: Box<dyn Device>,
    bell: Bell,
    ring: Ring,
    info: DeviceInfo,
    shared: Arc<Shared>,
    client: usize,
    flush_far: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    to_inner: VecDeque<Request>,
    to_log: VecDeque<Request>,
    /// Writes and flushes waiting for the log: slot, the record number that must be passed, and the required
    /// durability.
    pending: Vec<(u32, u64, Need)>,
    /// Writes that are waiting for space, in order.
    stalled: VecDeque<u32>,
    ready: Vec<Completion>,
    below: Vec<Completion>,
    progress: u64,
}

/// The lower devices and the bell of a cached device.
pub(super) struct Below {
    pub inner: Box<dyn Device>,
    pub log: Box<dyn Device>,
    pub bell: Bell,
}

impl CachedDevice {
    pub(super) fn new(
        below: Below,
        ring: &Ring,
        info: DeviceInfo,
        shared: Arc<Shared>,
        depth: u32,
        flush_far: bool,
    ) -> CachedDevice {
        let Below { inner, log, bell } = below;
        let client = shared.join(bell.waker());
        let capacity = depth as usize;
        let slot = || Slot {
            tag: 0,
            op: Op::Flush,
            offset: 0,
            len: 0,
            force_unit_access: false,
            buf: Buf::empty(),
            parts: 0,
            error: None,
            since: Nanos(0),
        };
        CachedDevice {
            inner,
            log,
            bell,
            ring: ring.clone(),
            info,
            client,
            flush_far,
            slots: (0..depth).map(|_| slot()).collect(),
            free: (0..depth).rev().collect(),
            parts: Vec::with_capacity(capacity),
            free_parts: Vec::with_capacity(capacity),
            to_inner: VecDeque::with_capacity(capacity),
            to_log: VecDeque::with_capacity(capacity),
            pending: Vec::with_capacity(capacity),
            stalled: VecDeque::with_capacity(capacity),
            ready: Vec::with_capacity(capacity),
            below: Vec::with_capacity(capacity),
            progress: shared.progress(),
            shared,
        }
    }

    fn check(&self, request: &Request) -> Result<(), DeviceError> {
        in_range(&self.info, request)?;
        let moves_data = matches!(request.op, Op::Read | Op::Write);
        if moves_data && request.len > u64::from(self.info.transfer_bytes_max) {
            return Err(DeviceError::Os(libc::EINVAL));
        }
        Ok(())
    }

    fn complete(&mut self, slot: u32, result: Result<(), DeviceError>) {
        let Slot { tag, buf, .. } = &mut self.slots[slot as usize];
        self.ready.push(Completion {
            tag: *tag,
            buf: std::mem::take(buf),
            result,
        });
        self.free.push(slot);
    }

    fn start(&mut self, slot: u32, state: &mut State) {
        match self.slots[slot as usize].op {
            Op::Read => {
                let Slot { offset, len, .. } = self.slots[slot as usize];
                self.read(slot, offset, len, state);
                if self.slots[slot as usize].parts == 0 {
                    self.complete(slot, Ok(()));
                }
            }
            Op::Flush => match state.mode {
                Mode::Bypass => self.send_whole(slot),
                Mode::Logging | Mode::Failing | Mode::Stuck => {
                    let before = state.cache.head().sequence;
                    if self.flush_far {
                        state.far_wanted = state.far_wanted.max(before);
                        self.shared.destage_work.notify_all();
                    } else {
                        state.sync_wanted = state.sync_wanted.max(before);
                        self.shared.write_work.notify_one();
                    }
                    let need = if self.flush_far {
                        Need::Far
                    } else {
                        Need::Synced
                    };
                    self.await_log(slot, before, need, state);
                }
            },
            Op::Write | Op::Unmap | Op::WriteZeroes => {
                let before = self.stalled.is_empty();
                if !(before && self.write(slot, state)) {
                    state.counts.waits += 1;
                    state.counts.waiting += 1;
                    self.slots[slot as usize].since = self.shared.clock.now();
                    self.stalled.push_back(slot);
                    state.wait(self.client);
                }
            }
        }
    }

    /// Sends a write to the log or to the device, depending on the mode; returns whether there was room.
    fn write(&mut self, slot: u32, state: &mut State) -> bool {
        let Slot {
            op,
            offset,
            len,
            force_unit_access,
            ref buf,
            ..
        } = self.slots[slot as usize];
        match state.mode {
            Mode::Logging => {}
            Mode::Failing => return false,
            Mode::Bypass => {
                state.counts.bypassed += 1;
                self.send_whole(slot);
                return true;
            }
            Mode::Stuck => {
                self.complete(slot, Err(DeviceError::refused(RefusalKind::HardwareError)));
                return true;
            }
        }
        let kind = match op {
            Op::Write => EntryKind::Data,
            Op::Unmap => EntryKind::Unmap,
            Op::WriteZeroes | Op::Read | Op::Flush => EntryKind::Zeroes,
        };
        let entry = LogEntry { offset, len, kind };
        let data = &buf[..entry.data_bytes() as usize];
        let Ok(sequence) = state.cache.append(entry, data, self.shared.clock.now()) else {
            // The log is full; data that exists only in memory is first written to the file, then destaged.
            self.shared.destage_work.notify_one();
            return false;
        };
        state.counts.logged_bytes += entry.data_bytes();
        let mut need = Need::Written;
        if force_unit_access && self.info.volatile_cache {
            need = Need::Synced;
            state.sync_wanted = state.sync_wanted.max(sequence + 1);
        }
        self.shared.write_work.notify_one();
        self.await_log(slot, sequence + 1, need, state);
        true
    }

    fn await_log(&mut self, slot: u32, before: u64, need: Need, state: &mut State) {
        if is_satisfied(state, before, need) {
            return self.complete(slot, Ok(()));
        }
        self.pending.push((slot, before, need));
        state.wait(self.client);
    }

    /// Fills a range of a read, or sends a request for it.
    fn read(&mut self, slot: u32, offset: u64, len: u64, state: &mut State) {
        let CachedDevice {
            slots,
            parts,
            free_parts,
            to_inner,
            to_log,
            ring,
            shared,
            ..
        } = self;
        let own = &mut slots[slot as usize];
        let (begin, all) = (own.offset, (own.offset, own.len));
        let capacity = shared.log.capacity();
        let State { cache, counts, .. } = state;
        cache.look_up(offset, len, |start, bytes, source| {
            let mut send = |start: u64, bytes: u64, log_at: Option<u64>| {
                let whole = log_at.is_none() && (start, bytes) == all;
                let buf = if whole {
                    std::mem::take(&mut own.buf)
                } else {
                    ring.pool().take(bytes as usize)
                };
                let part = Part {
                    slot,
                    offset: start,
                    len: bytes,
                    log_at,
                    whole,
                };
                let tag = add_part(parts, free_parts, part);
                own.parts += 1;
                let offset = log_at.map_or(start, |at| shared.log.file_offset(at, capacity));
                let request = Request {
                    tag,
                    op: Op::Read,
                    offset,
                    len: bytes,
                    buf,
                    force_unit_access: false,
                };
                if log_at.is_some() {
                    to_log.push_back(request)
                } else {
                    to_inner.push_back(request)
                }
            };
            let within = (start - begin) as usize..(start - begin + bytes) as usize;
            match source {
                Source::Far => {
                    counts.miss_bytes += bytes;
                    send(start, bytes, None);
                    return;
                }
                Source::Log(at) => {
                    // Split where the log wraps around.
                    let first = bytes.min(capacity - at % capacity);
                    send(start, first, Some(at));
                    if first < bytes {
                        send(start + first, bytes - first, Some(at + first));
                    }
                }
                Source::Zeroes => own.buf[within].fill(0),
                Source::Memory(at) => cache.get(at, &mut own.buf[within]),
            }
            counts.hit_bytes += bytes;
        });
    }

    /// Passes a request on unchanged.
    fn send_whole(&mut self, slot: u32) {
        let own = &mut self.slots[slot as usize];
        let Slot {
            op,
            offset,
            len,
            force_unit_access,
            ..
        } = *own;
        own.parts += 1;
        let part = Part {
            slot,
            offset,
            len,
            log_at: None,
            whole: true,
        };
        let tag = add_part(&mut self.parts, &mut self.free_parts, part);
        let buf = std::mem::take(&mut own.buf);
        self.to_inner.push_back(Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access,
        });
    }

    /// Handles the completion of a part.
    fn arrived(&mut self, mut one: Completion) {
        let part = self.parts[one.tag as usize];
        self.free_parts.push(one.tag as u32);
        if one.result.is_ok()
            && let Some(at) = part.log_at
        {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.lock();
            if !state.cache.is_in_log(at) {
                // The part's log space was reused: the data has reached the device or has been overwritten since.
                self.read(part.slot, part.offset, part.len, &mut state);
                one.buf = Buf::empty();
            }
        }
        let own = &mut self.slots[part.slot as usize];
        own.parts -= 1;
        match one.result {
            Err(error) => own.error = own.error.or(Some(error)),
            Ok(()) if part.whole || one.buf.is_empty() => {}
            Ok(()) => {
                let from = (part.offset - own.offset) as usize;
                own.buf[from..from + part.len as usize]
                    .copy_from_slice(&one.buf[..part.len as usize]);
            }
        }
        if part.whole {
            own.buf = one.buf;
        }
        if own.parts == 0 {
            let result = own.error.take().map_or(Ok(()), Err);
            self.complete(part.slot, result);
        }
    }

    /// Completes writes that are sufficiently durable, and retries those that wait for room.
    fn resume(&mut self) {
        self.progress = self.shared.progress();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let mut index = 0;
        while let Some(&(slot, before, need)) = self.pending.get(index) {
            if is_satisfied(&state, before, need) {
                self.pending.swap_remove(index);
                self.complete(slot, Ok(()));
            } else {
                index += 1;
            }
        }
        while let Some(&slot) = self.stalled.front() {
            if !self.write(slot, &mut state) {
                break;
            }
            self.stalled.pop_front();
            let now = shared.clock.now();
            state.counts.waiting -= 1;
            state.counts.waited += now.since(self.slots[slot as usize].since);
        }
        if !self.pending.is_empty() || !self.stalled.is_empty() {
            state.wait(self.client);
        }
    }

    fn send(&mut self) {
        if !self.to_inner.is_empty() {
            self.inner.submit(&mut self.to_inner);
        }
        if !self.to_log.is_empty() {
            self.log.submit(&mut self.to_log);
        }
    }
}

fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis() as u64)
}

fn is_satisfied(state: &State, before: u64, need: Need) -> bool {
    match need {
        Need::Written => state.is_written(before),
        Need::Synced => state.is_synced(before),
        Need::Far => state.is_far(before),
    }
}

fn add_part(parts: &mut Vec<Part>, free: &mut Vec<u32>, part: Part) -> u64 {
    match free.pop() {
        Some(index) => {
            parts[index as usize] = part;
            u64::from(index)
        }
        // Only reads of data written in many pieces need more parts than the number of requests.
        None => {
            parts.push(part);
            parts.len() as u64 - 1
        }
    }
}

impl Device for CachedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        if !batch.is_empty() && self.free.len() > self.ready.len() {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.lock();
            while self.free.len() > self.ready.len() {
                let Some(request) = batch.pop_front() else {
                    break;
                };
                let checked = self.check(&request);
                let Request {
                    tag,
                    op,
                    offset,
                    len,
                    buf,
                    force_unit_access,
                } = request;
                if checked.is_err() || (len == 0 && op != Op::Flush) {
                    self.ready.push(Completion {
                        tag,
                        buf,
                        result: checked,
                    });
                    continue;
                }
                let slot = self
                    .free
                    .pop()
                    .expect("more slots are free than completions are ready");
                let (parts, error, since) = (0, None, Nanos(0));
                self.slots[slot as usize] = Slot {
                    tag,
                    op,
                    offset,
                    len,
                    force_unit_access,
                    buf,
                    parts,
                    error,
                    since,
                };
                self.start(slot, &mut state);
            }
        }
        self.send();
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        let mut below = std::mem::take(&mut self.below);
        self.inner.poll(&mut below);
        self.log.poll(&mut below);
        for one in below.drain(..) {
            self.arrived(one);
        }
        self.below = below;
        let waits = !self.pending.is_empty() || !self.stalled.is_empty();
        if waits && self.progress != self.shared.progress() {
            self.resume();
        }
        self.send();
        // Re-arm the bell; `progress` shows what rang it.
        self.bell.take();
        done.append(&mut self.ready);
    }

    fn outstanding(&self) -> u32 {
        (self.slots.len() - self.free.len() + self.ready.len()) as u32
    }

    fn deadline(&self) -> Nanos {
        let waits = !self.pending.is_empty() || !self.stalled.is_empty();
        // Progress between a submit and the wait: either the bell has rung, or this check catches the change.
        if !self.ready.is_empty() || (waits && self.progress != self.shared.progress()) {
            return Nanos(0);
        }
        self.inner.deadline().min(self.log.deadline())
    }

    fn cancel(&mut self, tag: u64) {
        let is_it = |slot: &u32| self.slots[*slot as usize].tag == tag;
        if let Some(place) = self.stalled.iter().position(is_it) {
            let slot = self
                .stalled
                .remove(place)
                .expect("the request is outstanding");
            let mut state = self.shared.lock();
            state.counts.waiting -= 1;
            drop(state);
            return self.complete(slot, Err(DeviceError::refused(RefusalKind::Cancelled)));
        }
        for (index, part) in self.parts.iter().enumerate() {
            let taken = !self.free_parts.contains(&(index as u32));
            if taken && self.slots[part.slot as usize].tag == tag && part.log_at.is_none() {
                self.inner.cancel(index as u64);
            }
        }
    }

    fn health(&self) -> Health {
        let mut health = self.inner.health();
        let state = self.shared.lock();
        health.retries += state.counts.destage_retries;
        let (waits, waited) = (state.counts.waits, state.counts.waited);
        let overflow = (waits > 0).then(|| {
            format!(
                "{waits} writes waited for space in the cache, {} in total",
                format_duration(whole_ms(waited))
            )
        });
        health.trouble = state.trouble.clone().or(overflow).or(health.trouble);
        health
    }
}

impl Drop for CachedDevice {
    fn drop(&mut self) {
        self.shared.lock().counts.waiting -= self.stalled.len() as u64;
        self.shared.leave(self.client);
    }
}
