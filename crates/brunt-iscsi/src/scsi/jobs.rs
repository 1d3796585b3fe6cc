//! Commands that need several device requests in sequence: VERIFY, COMPARE AND WRITE, ORWRITE, WRITE SAME, UNMAP,
//! EXTENDED COPY. Each is a small state machine that receives the result of its last request and returns the next
//! step. A job never accesses the device.

use std::sync::Arc;
use std::time::Duration;

use brunt_block::{Buf, BufPool, DeviceError, Op};
use brunt_core::{Clock, Nanos};
use brunt_wire::scsi::sense::{Sense, key};

use super::command::Refused;
use super::{DataIn, LogicalUnit};

/// Size of a job's requests that transfer data, in bytes.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// Size of a job's requests that transfer no data, in bytes.
const UNMAP_BYTES: u64 = 256 << 20;

/// One device request.
#[derive(Debug)]
pub(super) struct DeviceIo {
    /// 0 is the unit itself; a copy's other units are numbered from 1.
    pub device: usize,
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    pub buf: Buf,
    pub force: bool,
}

/// A completed request.
#[derive(Debug)]
pub(super) struct IoDone {
    pub buf: Buf,
    pub result: Result<(), DeviceError>,
}

/// A job's next step.
#[derive(Debug)]
pub(super) enum JobStep {
    Submit(DeviceIo),
    /// Call the job again at this time.
    Wait(Nanos),
    Done(Result<DataIn, Refused>),
}

/// A command in progress.
pub(super) trait Job {
    /// Returns the next step; `done` is `None` for the first step and after a wait.
    fn step(&mut self, done: Option<IoDone>, pool: &BufPool) -> JobStep;
}

/// The range a job works on, in bytes from the start of the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteRange {
    pub offset: u64,
    pub len: u64,
}

fn read(range: ByteRange, at: u64, pool: &BufPool) -> DeviceIo {
    let len = CHUNK_BYTES.min(range.len - at);
    DeviceIo {
        device: 0,
        op: Op::Read,
        offset: range.offset + at,
        len,
        buf: pool.take(len as usize),
        force: false,
    }
}

fn write(range: ByteRange, at: u64, buf: Buf, force: bool) -> DeviceIo {
    let len = buf.len() as u64;
    DeviceIo {
        device: 0,
        op: Op::Write,
        offset: range.offset + at,
        len,
        buf,
        force,
    }
}

fn miscompare(offset: u64) -> Refused {
    Refused::Check(Sense::new(key::MISCOMPARE, 0x1d, 0x00).with_information(offset))
}

/// Offset of the first difference.
fn differs(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// The data to compare with in VERIFY.
pub(super) enum Against {
    /// Nothing: the blocks only have to be readable.
    Nothing,
    /// Data of the same length.
    Data(Buf),
    /// One block, repeated.
    Block(Buf),
}

/// VERIFY, and the second half of WRITE AND VERIFY.
pub(super) struct Verify {
    pub range: ByteRange,
    pub against: Against,
    pub at: u64,
}

impl Job for Verify {
    fn step(&mut self, done: Option<IoDone>, pool: &BufPool) -> JobStep {
        if let Some(IoDone { buf, result }) = done {
            if let Err(error) = result {
                return JobStep::Done(Err(Refused::device(error, false)));
            }
            let at = self.at as usize;
            let difference = match &self.against {
                Against::Nothing => None,
                Against::Data(data) => differs(&buf, &data[at..at + buf.len()]),
                Against::Block(block) => {
                    let chunks = buf.chunks(block.len()).enumerate();
                    chunks
                        .filter_map(|(i, c)| Some(i * block.len() + differs(c, block)?))
                        .next()
                }
            };
            if let Some(offset) = difference {
                return JobStep::Done(Err(miscompare(self.at + offset as u64)));
            }
            self.at += buf.len() as u64;
        }
        if self.at >= self.range.len {
            return JobStep::Done(Ok(DataIn::None));
        }
        JobStep::Submit(read(self.range, self.at, pool))
    }
}

/// WRITE AND VERIFY: writes, then compares the data if required.
pub(super) struct WriteAndVerify {
    pub range: ByteRange,
    pub data: Option<Buf>,
    pub compare: bool,
    pub verify: Option<Verify>,
}

impl Job for WriteAndVerify {
    fn step(&mut self, done: Option<IoDone>, pool: &BufPool) -> JobStep {
        if let Some(verify) = &mut self.verify {
            return verify.step(done, pool);
        }
        match done {
            // Forced to the medium, so that the medium itself is verified.
            None => JobStep::Submit(write(
                self.range,
                0,
                self.data.take().expect("the first step"),
                true,
            )),
            Some(IoDone {
                result: Err(error), ..
            }) => JobStep::Done(Err(Refused::device(error, true))),
            Some(IoDone { buf, .. }) => {
                let against = if self.compare {
                    Against::Data(buf)
                } else {
                    Against::Nothing
                };
                let verify = self.verify.insert(Verify {
                    range: self.range,
                    against,
                    at: 0,
                });
                verify.step(None, pool)
            }
        }
    }
}

/// COMPARE AND WRITE, ORWRITE: read, compare or combine, write.
pub(super) struct ReadModifyWrite {
    pub range: ByteRange,
    /// COMPARE AND WRITE: the verify data, then the write data. ORWRITE: the data to combine.
    pub data: Buf,
    pub compare: bool,
    pub force: bool,
    pub at: u64,
    pub writing: bool,
}

impl Job for ReadModifyWrite {
    fn step(&mut self, done: Option<IoDone>, pool: &BufPool) -> JobStep {
        let Some(IoDone { mut buf, result }) = done else {
            return JobStep::Submit(read(self.range, 0, pool));
        };
        if let Err(error) = result {
            return JobStep::Done(Err(Refused::device(error, self.writing)));
        }
        let len = self.range.len as usize;
        let at = self.at as usize;
        if self.writing {
            self.at += buf.len() as u64;
            if self.at >= self.range.len {
                return JobStep::Done(Ok(DataIn::None));
            }
            if !self.compare {
                self.writing = false;
                return JobStep::Submit(read(self.range, self.at, pool));
            }
            return JobStep::Submit(self.next_write(pool));
        }
        if self.compare {
            if let Some(offset) = differs(&buf, &self.data[at..at + buf.len()]) {
                return JobStep::Done(Err(miscompare(self.at + offset as u64)));
            }
            self.at += buf.len() as u64;
            if self.at < self.range.len {
                return JobStep::Submit(read(self.range, self.at, pool));
            }
            // All data compared equal, so write the new data.
            self.at = 0;
            self.writing = true;
            debug_assert_eq!(self.data.len(), 2 * len);
            return JobStep::Submit(self.next_write(pool));
        }
        for (byte, or) in buf.iter_mut().zip(&self.data[at..]) {
            *byte |= or;
        }
        self.writing = true;
        JobStep::Submit(write(self.range, self.at, buf, self.force))
    }
}

impl ReadModifyWrite {
    fn next_write(&self, pool: &BufPool) -> DeviceIo {
        let chunk = CHUNK_BYTES.min(self.range.len - self.at) as usize;
        let from = self.range.len as usize + self.at as usize;
        let mut buf = pool.take(chunk);
        buf.copy_from_slice(&self.data[from..from + chunk]);
        write(self.range, self.at, buf, self.force)
    }
}

/// WRITE SAME and UNMAP: ranges that are unmapped, zeroed or filled with a block. Ranges that the device can't unmap
/// are zeroed; ranges that it can't zero are written.
pub(super) struct Fill {
    pub ranges: Vec<ByteRange>,
    pub how: How,
    /// The block to write; empty for zeros.
    pub block: Buf,
    pub block_bytes: usize,
    pub force: bool,
    pub index: usize,
    pub at: u64,
    pub pattern: Buf,
}

/// How to fill the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Unmap,
    Zeroes,
    Write,
}

impl Job for Fill {
    fn step(&mut self, done: Option<IoDone>, pool: &BufPool) -> JobStep {
        let mut last = 0;
        if let Some(IoDone { buf, result }) = done {
            match (result, self.how) {
                (Ok(()), _) => last = self.chunk_len(),
                (Err(DeviceError::Unsupported | DeviceError::Os(libc::EOPNOTSUPP)), How::Unmap) => {
                    self.how = How::Zeroes;
                }
                (
                    Err(DeviceError::Unsupported | DeviceError::Os(libc::EOPNOTSUPP)),
                    How::Zeroes,
                ) => {
                    self.how = How::Write;
                }
                (Err(error), _) => return JobStep::Done(Err(Refused::device(error, true))),
            }
            if buf.len() >= self.pattern.len() {
                self.pattern = buf;
            }
        }
        self.at += last;
        while self.index < self.ranges.len() && self.at >= self.ranges[self.index].len {
            self.index += 1;
            self.at = 0;
        }
        let Some(range) = self.ranges.get(self.index).copied() else {
            return JobStep::Done(Ok(DataIn::None));
        };
        let len = self.chunk_len();
        let (op, buf) = match self.how {
            How::Unmap => (Op::Unmap, Buf::empty()),
            How::Zeroes => (Op::WriteZeroes, Buf::empty()),
            How::Write => (Op::Write, self.take_pattern(pool)),
        };
        JobStep::Submit(DeviceIo {
            device: 0,
            op,
            offset: range.offset + self.at,
            len,
            buf,
            force: self.force,
        })
    }
}

impl Fill {
    fn chunk_len(&self) -> u64 {
        let longest = if self.how == How::Write {
            CHUNK_BYTES
        } else {
            UNMAP_BYTES
        };
        longest.min(self.ranges[self.index].len - self.at)
    }

    /// Returns a buffer filled with the block; it is created once and reused.
    fn take_pattern(&mut self, pool: &BufPool) -> Buf {
        let longest = self
            .ranges
            .iter()
            .map(|range| range.len)
            .max()
            .unwrap_or(0)
            .min(CHUNK_BYTES);
        if self.pattern.len() < longest as usize {
            let mut buf = pool.take(longest as usize);
            if self.block.is_empty() {
                buf.fill(0);
            } else {
                for chunk in buf.chunks_mut(self.block_bytes) {
                    chunk.copy_from_slice(&self.block[..chunk.len()]);
                }
            }
            self.pattern = buf;
        }
        std::mem::take(&mut self.pattern)
    }
}

/// A single request that transfers no data: SYNCHRONIZE CACHE, and flushes for other commands.
pub(super) struct Flush {
    pub range: ByteRange,
}

impl Job for Flush {
    fn step(&mut self, done: Option<IoDone>, _pool: &BufPool) -> JobStep {
        match done {
            None => JobStep::Submit(DeviceIo {
                device: 0,
                op: Op::Flush,
                offset: self.range.offset,
                len: self.range.len,
                buf: Buf::empty(),
                force: false,
            }),
            Some(IoDone { result: Ok(()), .. }) => JobStep::Done(Ok(DataIn::None)),
            Some(IoDone {
                result: Err(error), ..
            }) => JobStep::Done(Err(Refused::device(error, true))),
        }
    }
}

/// WRITE ATOMIC: an ordinary write while the range is locked exclusively.
pub(super) struct WriteOnce {
    pub range: ByteRange,
    pub data: Option<Buf>,
    pub force: bool,
}

impl Job for WriteOnce {
    fn step(&mut self, done: Option<IoDone>, _pool: &BufPool) -> JobStep {
        match done {
            None => JobStep::Submit(write(
                self.range,
                0,
                self.data.take().expect("one step"),
                self.force,
            )),
            Some(IoDone { result: Ok(()), .. }) => JobStep::Done(Ok(DataIn::None)),
            Some(IoDone {
                result: Err(error), ..
            }) => JobStep::Done(Err(Refused::device(error, true))),
        }
    }
}

/// Waits for the SANITIZE that this command started.
pub(super) struct AwaitSanitize {
    pub unit: Arc<LogicalUnit>,
    pub clock: Clock,
}

/// Polling interval.
const SANITIZE_POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Job for AwaitSanitize {
    fn step(&mut self, _done: Option<IoDone>, _pool: &BufPool) -> JobStep {
        if self.unit.sanitize.is_running() {
            return JobStep::Wait(self.clock.now().after(SANITIZE_POLL_INTERVAL));
        }
        if self.unit.gate() & super::lun::gate::SANITIZE_FAILED != 0 {
            return JobStep::Done(Err(Refused::Check(Sense::new(
                key::MEDIUM_ERROR,
                0x31,
                0x03,
            ))));
        }
        JobStep::Done(Ok(DataIn::None))
    }
}

/// One segment of a copy, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyExtent {
    /// Numbered as in [`DeviceIo::device`].
    pub source: usize,
    pub source_offset: u64,
    pub destination: usize,
    pub destination_offset: u64,
    pub len: u64,
}

/// EXTENDED COPY.
pub(super) struct Copy {
    pub unit: Arc<LogicalUnit>,
    pub nexus: u64,
    pub list: Option<u8>,
    pub extents: Vec<CopyExtent>,
    pub index: usize,
    pub at: u64,
    pub copied: u64,
    pub writing: bool,
    pub force: bool,
    pub chunk: u64,
}

impl Job for Copy {
    fn step(&mut self, done: Option<IoDone>, pool: &BufPool) -> JobStep {
        if let Some(IoDone { buf, result }) = done {
            if result.is_err() {
                self.record(true);
                // THIRD PARTY DEVICE FAILURE
                return JobStep::Done(Err(Refused::Check(Sense::new(
                    key::COPY_ABORTED,
                    0x0d,
                    0x01,
                ))));
            }
            let extent = self.extents[self.index];
            if !self.writing {
                self.writing = true;
                let len = buf.len() as u64;
                return JobStep::Submit(DeviceIo {
                    device: extent.destination,
                    op: Op::Write,
                    offset: extent.destination_offset + self.at,
                    len,
                    buf,
                    force: self.force,
                });
            }
            self.writing = false;
            self.at += buf.len() as u64;
            self.copied += buf.len() as u64;
        }
        while self.index < self.extents.len() && self.at >= self.extents[self.index].len {
            self.index += 1;
            self.at = 0;
        }
        let Some(extent) = self.extents.get(self.index) else {
            self.record(false);
            return JobStep::Done(Ok(DataIn::None));
        };
        let len = self.chunk.min(extent.len - self.at);
        JobStep::Submit(DeviceIo {
            device: extent.source,
            op: Op::Read,
            offset: extent.source_offset + self.at,
            len,
            buf: pool.take(len as usize),
            force: false,
        })
    }
}

impl Copy {
    fn record(&self, failed: bool) {
        if let Some(list) = self.list {
            self.unit
                .record_copy(self.nexus, list, failed, self.index as u16, self.copied);
        }
    }
}
