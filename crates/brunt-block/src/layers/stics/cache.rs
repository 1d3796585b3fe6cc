//! The cache's contents: which blocks the log holds and where, which of them are in memory, and which have reached the
//! device. A state machine without I/O; the surrounding threads write the log ([`super::writer`]) and destage
//! ([`super::destage`]).
//!
//! Positions in the log only grow. Modulo the log's capacity, a position is an offset in the file; modulo the memory's
//! size, it is an offset in memory. Memory therefore holds the newest part of the log, and nothing has to be evicted:
//!
//! ```text
//!   oldest      tail             batch        written      head
//!     |  clean   |   dirty ……     |    dirty     | not yet in the file |
//!                              |———— in memory ————————————————————————|
//! ```
//!
//! The rule: log space is reused only after its record has reached the device and the log's superblock
//! says so ([`Cache::release`]).

use std::collections::VecDeque;
use std::time::Duration;

use brunt_core::Nanos;

use super::format::{BLOCK, ENTRIES_MAX, EntryKind, LogEntry, LogPlace, RecordHeader};
use super::index::Index;

/// A record with data accepts no more entries once it reaches this size.
const RECORD_BYTES: u64 = 1 << 20;

/// When to destage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// As soon as there is a backlog.
    pub always: bool,
    /// After this time without a write.
    pub idle: Duration,
    /// At this many bytes of log or more, even if not idle …
    pub high_bytes: u64,
    /// … until at most this many are left.
    pub low_bytes: u64,
}

/// When the next action is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(Nanos),
    Never,
}

/// The cache is full: a write must wait until more is destaged or written to the log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// Where a range of the device is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// On the device.
    Far,
    /// The range is zeros.
    Zeroes,
    /// In memory, starting at this position.
    Memory(u64),
    /// In the log file, starting at this position.
    Log(u64),
}

/// A part of an entry that has yet to reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub offset: u64,
    pub len: u64,
    pub kind: EntryKind,
    /// Position of the piece's data in the log.
    pub at: u64,
}

#[derive(Clone, Copy)]
struct Placed {
    entry: LogEntry,
    /// Position of the entry's data in the log.
    at: u64,
}

struct Record {
    place: LogPlace,
    end: u64,
    first_entry: u64,
    entries: usize,
    /// Whether the record accepts more entries.
    open: bool,
    since: Nanos,
}

/// A record to be written to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The record's header, without the data checksum.
    pub header: RecordHeader,
    /// Position of the record's end.
    pub end: u64,
}

/// The cache's state, without I/O.
pub(super) struct Cache {
    memory: Box<[u8]>,
    /// Positions before this one were never in memory.
    memory_begin: u64,
    capacity: u64,
    index: Index,
    entries: VecDeque<Placed>,
    first_entry: u64,
    /// Records whose space has not been reused, in order.
    records: VecDeque<Record>,
    head: LogPlace,
    written: LogPlace,
    tail: LogPlace,
    epoch: u64,
    policy: Policy,
    draining: bool,
    /// Whether a write found the log full, so that it is destaged regardless of thresholds and idleness.
    room_wanted: bool,
    last_write: Nanos,
    dirty_bytes: u64,
    absorbed_bytes: u64,
}

impl Cache {
    /// Creates an empty cache whose next record is at `head`.
    pub(super) fn new(
        memory_bytes: u64,
        capacity: u64,
        head: LogPlace,
        epoch: u64,
        policy: Policy,
        now: Nanos,
    ) -> Cache {
        assert!(memory_bytes.is_multiple_of(BLOCK) && capacity.is_multiple_of(BLOCK));
        Cache {
            memory: vec![0; memory_bytes as usize].into_boxed_slice(),
            memory_begin: head.at,
            capacity,
            index: Index::default(),
            entries: VecDeque::new(),
            first_entry: 0,
            records: VecDeque::new(),
            head,
            written: head,
            tail: head,
            epoch,
            policy,
            draining: false,
            room_wanted: false,
            last_write: now,
            dirty_bytes: 0,
            absorbed_bytes: 0,
        }
    }

    /// Adds a record found in the log on opening. Must be called in record order, before any write.
    pub(super) fn replay(&mut self, header: &RecordHeader, now: Nanos) {
        assert!(
            header.place == self.head && self.written == self.head,
            "records are contiguous"
        );
        let end = header.place.at + header.record_bytes();
        self.begin_record(now);
        let mut at = header.place.at + BLOCK;
        for entry in &header.entries {
            self.add(*entry, at);
            at += entry.data_bytes();
        }
        self.seal();
        assert_eq!(self.head.at, end, "a record has the length in its header");
        self.memory_begin = end;
        self.written = self.head;
    }

    /// Adds a write and returns its record's number. `data`, if the entry has data, must have the length that `entry`
    /// specifies.
    pub(super) fn append(
        &mut self,
        entry: LogEntry,
        data: &[u8],
        now: Nanos,
    ) -> Result<u64, NoRoom> {
        let bytes = entry.data_bytes();
        assert!(
            entry.len > 0 && data.len() as u64 == bytes,
            "writes have data"
        );
        let joins = self.records.back().is_some_and(|last| {
            let data = self.head.at - (last.place.at + BLOCK);
            last.open && last.entries < ENTRIES_MAX && (data == 0 || data + bytes <= RECORD_BYTES)
        });
        let begin = if joins {
            self.head.at
        } else {
            self.head.at.next_multiple_of(BLOCK) + BLOCK
        };
        let end = (begin + bytes).next_multiple_of(BLOCK);
        if end - self.tail.at > self.capacity {
            self.room_wanted = true;
            return Err(NoRoom);
        }
        if end - self.written.at > self.memory.len() as u64 {
            return Err(NoRoom);
        }
        self.room_wanted = false;
        if !joins {
            self.seal();
            self.begin_record(now);
        }
        self.drop_overwritten(end);
        let at = self.head.at;
        self.put(at, data);
        self.head.at += bytes;
        self.add(entry, at);
        self.last_write = now;
        Ok(self
            .records
            .back()
            .expect("a record is open")
            .place
            .sequence)
    }

    fn begin_record(&mut self, now: Nanos) {
        let place = self.head;
        assert!(
            place.at.is_multiple_of(BLOCK),
            "records begin at block boundaries"
        );
        let first_entry = self.first_entry + self.entries.len() as u64;
        let end = place.at + BLOCK;
        self.records.push_back(Record {
            place,
            end,
            first_entry,
            entries: 0,
            open: true,
            since: now,
        });
        self.head = LogPlace {
            at: end,
            sequence: place.sequence + 1,
        };
    }

    fn add(&mut self, entry: LogEntry, at: u64) {
        let id = self.first_entry + self.entries.len() as u64;
        let Cache {
            index,
            entries,
            first_entry,
            dirty_bytes,
            absorbed_bytes,
            ..
        } = self;
        index.insert(entry.offset, entry.offset + entry.len, id, |len, extent| {
            let data =
                entries[(extent.entry - *first_entry) as usize].entry.kind == EntryKind::Data;
            if extent.dirty && data {
                *dirty_bytes -= len;
                *absorbed_bytes += len;
            }
        });
        *dirty_bytes += entry.data_bytes();
        entries.push_back(Placed { entry, at });
        let record = self
            .records
            .back_mut()
            .expect("each entry belongs to a record");
        record.entries += 1;
        // During replay, the head follows the data here.
        self.head.at = self.head.at.max(at + entry.data_bytes());
        record.end = self.head.at.next_multiple_of(BLOCK);
    }

    /// Closes the last record to further entries.
    fn seal(&mut self) {
        if let Some(last) = self.records.back_mut()
            && last.open
        {
            last.open = false;
            self.head.at = last.end;
        }
    }

    /// Drops the records whose space is needed for writing up to `end`.
    fn drop_overwritten(&mut self, end: u64) {
        let oldest = end.saturating_sub(self.capacity);
        while let Some(record) = self.records.front()
            && record.place.at < oldest
        {
            assert!(
                record.end <= self.tail.at,
                "only destaged records are overwritten"
            );
            for id in record.first_entry..record.first_entry + record.entries as u64 {
                let Placed { entry, .. } = self
                    .entries
                    .pop_front()
                    .expect("a record's entries are indexed");
                self.index
                    .forget(entry.offset, entry.offset + entry.len, id);
                self.first_entry += 1;
            }
            self.records.pop_front();
        }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let from = (at % self.memory.len() as u64) as usize;
        let first = data.len().min(self.memory.len() - from);
        self.memory[from..from + first].copy_from_slice(&data[..first]);
        self.memory[..data.len() - first].copy_from_slice(&data[first..]);
    }

    /// Copies from memory.
    pub(super) fn get(&self, at: u64, out: &mut [u8]) {
        assert!(self.is_in_memory(at));
        let from = (at % self.memory.len() as u64) as usize;
        let first = out.len().min(self.memory.len() - from);
        out[..first].copy_from_slice(&self.memory[from..from + first]);
        let left = out.len() - first;
        out[first..].copy_from_slice(&self.memory[..left]);
    }

    /// Whether a position, and everything after it in the same record, is in memory.
    pub(super) fn is_in_memory(&self, at: u64) -> bool {
        at >= self.memory_begin
            && at + self.memory.len() as u64 >= self.head.at.next_multiple_of(BLOCK)
    }

    /// Whether the file still holds the data at this position.
    pub(super) fn is_in_log(&self, at: u64) -> bool {
        at + self.capacity >= self.head.at.next_multiple_of(BLOCK)
    }

    /// Reports where each part of a range is stored, in order.
    pub(super) fn look_up(&self, offset: u64, len: u64, mut f: impl FnMut(u64, u64, Source)) {
        self.index
            .visit(offset, offset + len, |start, end, extent| {
                let source = match extent.map(|extent| self.placed(extent.entry)) {
                    None => Source::Far,
                    Some(placed) if placed.entry.kind != EntryKind::Data => Source::Zeroes,
                    Some(placed) => match placed.at + (start - placed.entry.offset) {
                        at if self.is_in_memory(at) => Source::Memory(at),
                        at => Source::Log(at),
                    },
                };
                f(start, end - start, source);
            });
    }

    fn placed(&self, entry: u64) -> &Placed {
        &self.entries[(entry - self.first_entry) as usize]
    }

    fn record(&self, sequence: u64) -> Option<usize> {
        let first = self.records.front()?.place.sequence;
        sequence
            .checked_sub(first)
            .map(|index| index as usize)
            .filter(|index| *index < self.records.len())
    }

    /// The next record to write to the file; it is closed to further entries.
    pub(super) fn next_job(&mut self) -> Option<Job> {
        let index = self.record(self.written.sequence)?;
        if index + 1 == self.records.len() {
            self.seal();
        }
        let record = &self.records[index];
        let first = (record.first_entry - self.first_entry) as usize;
        let entries = self
            .entries
            .range(first..first + record.entries)
            .map(|placed| placed.entry)
            .collect();
        let header = RecordHeader {
            place: record.place,
            epoch: self.epoch,
            data_crc: 0,
            entries,
        };
        Some(Job {
            header,
            end: record.end,
        })
    }

    /// Copies a job's data, which stays in memory until it has been written to the file.
    pub(super) fn copy_data(&self, job: &Job, out: &mut [u8]) {
        self.get(job.header.place.at + BLOCK, out);
    }

    /// Marks a job's record as written to the file.
    pub(super) fn wrote(&mut self, job: &Job) {
        assert_eq!(
            job.header.place, self.written,
            "records are written in order"
        );
        self.written = LogPlace {
            at: job.end,
            sequence: self.written.sequence + 1,
        };
    }

    /// When to destage next; with `forced`, any backlog is due now.
    pub(super) fn due(&mut self, forced: bool, now: Nanos) -> Due {
        if self.backlog_bytes() == 0 {
            self.draining = false;
            return Due::Never;
        }
        if self.backlog_bytes() >= self.policy.high_bytes {
            self.draining = true;
        } else if self.backlog_bytes() <= self.policy.low_bytes {
            self.draining = false;
        }
        let idle_at = self.last_write.after(self.policy.idle);
        match forced || self.room_wanted || self.policy.always || self.draining || now >= idle_at {
            true => Due::Now,
            false => Due::At(idle_at),
        }
    }

    /// Collects the next batch to destage: the parts of the oldest records that are still valid, about `bytes` in
    /// total. Returns the batch's end, or `None` if no record is ready. With `unwritten`, includes records that are not
    /// in the file.
    pub(super) fn batch(
        &mut self,
        bytes: u64,
        unwritten: bool,
        pieces: &mut Vec<Piece>,
    ) -> Option<LogPlace> {
        pieces.clear();
        if unwritten {
            self.seal();
        }
        let limit = if unwritten {
            self.head.sequence
        } else {
            self.written.sequence
        };
        let first = self.record(self.tail.sequence)?;
        let mut end = None;
        for record in self.records.range(first..) {
            let taken = record.end - self.tail.at;
            if record.place.sequence >= limit || (end.is_some() && taken > bytes) {
                break;
            }
            for id in record.first_entry..record.first_entry + record.entries as u64 {
                let Placed { entry, at } = *self.placed(id);
                self.index.visit(
                    entry.offset,
                    entry.offset + entry.len,
                    |start, stop, extent| {
                        if extent.is_some_and(|extent| extent.entry == id && extent.dirty) {
                            let at = at + (start - entry.offset);
                            pieces.push(Piece {
                                offset: start,
                                len: stop - start,
                                kind: entry.kind,
                                at,
                            });
                        }
                    },
                );
            }
            end = Some(LogPlace {
                at: record.end,
                sequence: record.place.sequence + 1,
            });
        }
        end
    }

    /// Marks a batch as having reached the device. The batch's log space is still in use.
    pub(super) fn destaged(&mut self, end: LogPlace) {
        let Some(first) = self.record(self.tail.sequence) else {
            return;
        };
        for record in self.records.range(first..) {
            if record.place.sequence >= end.sequence {
                break;
            }
            for id in record.first_entry..record.first_entry + record.entries as u64 {
                let Placed { entry, .. } = self.entries[(id - self.first_entry) as usize];
                let bytes = self.index.clean(entry.offset, entry.offset + entry.len, id);
                if entry.kind == EntryKind::Data {
                    self.dirty_bytes -= bytes;
                }
            }
        }
    }

    /// Frees the log space before `end`, after the superblock records that everything there has reached the device.
    pub(super) fn release(&mut self, end: LogPlace) {
        assert!(
            self.tail.at <= end.at && end.at <= self.head.at,
            "the tail only moves forward"
        );
        self.tail = end;
    }

    /// Empties the cache after the log was retired and all of its content has reached the device.
    pub(super) fn clear(&mut self) {
        assert_eq!(self.dirty_bytes, 0, "dirty entries stay indexed");
        self.seal();
        self.index.clear();
        self.entries.clear();
        self.first_entry = 0;
        self.records.clear();
        (self.tail, self.written) = (self.head, self.head);
    }

    /// Records before this number are in the file.
    pub(super) fn written_before(&self) -> u64 {
        self.written.sequence
    }

    /// Records before this number have reached the device.
    pub(super) fn released_before(&self) -> u64 {
        self.tail.sequence
    }

    /// Where the next record starts.
    pub(super) fn head(&self) -> LogPlace {
        LogPlace {
            at: self.head.at.next_multiple_of(BLOCK),
            sequence: self.head.sequence,
        }
    }

    /// Bytes of the log that have not reached the device, including headers.
    pub(super) fn backlog_bytes(&self) -> u64 {
        self.head.at.next_multiple_of(BLOCK) - self.tail.at
    }

    /// Bytes that differ from the device's content. Zeroed and unmapped blocks don't count.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Bytes overwritten before they were destaged.
    pub(super) fn absorbed_bytes(&self) -> u64 {
        self.absorbed_bytes
    }

    /// Age of the oldest record that has not reached the device.
    pub(super) fn lag(&self, now: Nanos) -> Duration {
        let oldest = self
            .record(self.tail.sequence)
            .map(|index| &self.records[index]);
        oldest.map_or(Duration::ZERO, |record| now.since(record.since))
    }

    /// Number of extents in the index.
    pub(super) fn extents(&self) -> usize {
        self.index.len()
    }
}

#[cfg(test)]
mod tests;
