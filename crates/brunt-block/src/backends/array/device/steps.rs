//! What a part does at each RAID level: which members it reads and writes, and how data and parity are combined.

use std::sync::atomic::Ordering;

use super::super::layout::Level;
use super::super::xor::xor;
use super::ArrayDevice;
use super::part::{ArrayPart, PartStep};
use crate::{Buf, Op};

impl ArrayDevice {
    /// Starts a part, or restarts it.
    pub(super) fn start(&mut self, number: u32) {
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
        self.read_all(number, &others, PartStep::Reconstruct);
    }

    fn read_one(&mut self, number: u32, slot: usize, device: usize) {
        let part = &mut self.parts[number as usize];
        part.step = PartStep::Read;
        let task = &mut self.tasks[part.task as usize];
        let buf = match part.direct {
            true => std::mem::take(&mut task.buf),
            false => self.ring.pool().take(part.len as usize),
        };
        self.send(number, slot, device, Op::Read, buf);
    }

    /// Reads a part's range from these slots, all of which must be readable.
    fn read_all(&mut self, number: u32, slots: &[usize], step: PartStep) {
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
        self.parts[number as usize].step = PartStep::Write;
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
    fn chunk_of(&self, part: &ArrayPart, index: u64) -> Buf {
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
            self.parts[number as usize].step = PartStep::Write;
            return self.send(number, slot, device, Op::Write, data);
        }
        let both = self.readable(number, slot).is_some() && self.readable(number, parity).is_some();
        if both {
            return self.read_all(number, &[slot, parity], PartStep::Modify);
        }
        self.control
            .degraded_requests
            .fetch_add(1, Ordering::Relaxed);
        let others: Vec<usize> = (0..self.layout.slots)
            .filter(|other| *other != slot && *other != parity)
            .collect();
        self.read_all(number, &others, PartStep::Replace);
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
        self.parts[number as usize].step = PartStep::Write;
        for (slot, device, buf) in writes {
            self.send(number, slot, device, Op::Write, buf);
        }
    }

    /// Computes the new parity from what was read; writes parity and data.
    pub(super) fn combine(&mut self, number: u32) {
        let data = self.data_of(number);
        let part = &mut self.parts[number as usize];
        let (stripe, slot) = (part.stripe, part.slot);
        let mut bufs = std::mem::take(&mut part.bufs);
        // `bufs` holds either the old data and the old parity (modify), or all other data of the stripe (replace).
        // The XOR with the new data is the new parity.
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
        self.parts[number as usize].step = PartStep::Write;
        if let Some(device) = to_data {
            self.send(number, slot, device, Op::Write, data);
        }
        if let Some(device) = to_parity {
            self.send(number, parity, device, Op::Write, sum);
        }
    }
}
