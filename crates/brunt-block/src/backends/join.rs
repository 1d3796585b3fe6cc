//! `join:…`: several devices concatenated into one. A replay uses it to drive several targets from one worker, which
//! keeps the order of their requests.
//!
//! ```text
//! join:[disk0.img],[disk1.img?delay=const:100us]
//! ```
//!
//! The rule: requests reach the devices in submission order. If a device accepts no more, all later requests wait,
//! whichever device they are for. A flush without a range goes to all devices.

use std::collections::VecDeque;
use std::sync::Arc;

use brunt_core::{Nanos, Size};

use super::array::{in_brackets, split};
use super::in_range;
use crate::open::{BackendEntry, OpenError, Opened, UrlOptions, bad_value};
use crate::{
    Backend, Buf, Completion, Device, DeviceError, DeviceInfo, Handles, Health, Op, Request, Ring,
};

/// The table entry.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "join",
    help: "several devices concatenated into one: [URL],[URL]",
    example: "join:[memory:1MiB],[memory:1MiB]",
    options: &[],
    open,
    // The properties are not known without opening the members.
    preview: |_, _| Ok(None),
};

fn open(text: &str, options: &mut UrlOptions) -> Opened {
    let wrong = || {
        bad_value(
            "join",
            text,
            "write join:[MEMBER],[MEMBER] with device URLs in the brackets",
        )
    };
    let words: Option<Vec<&str>> = split(text)
        .ok_or_else(wrong)?
        .into_iter()
        .map(in_brackets)
        .collect();
    let mut members = Vec::new();
    for member in words.ok_or_else(wrong)? {
        members.push(options.open(member)?);
    }
    let joined =
        JoinedBackend::new(members).map_err(|error| OpenError::Refused(error.to_string()))?;
    Ok(Arc::new(joined))
}

/// Why devices cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No devices were given.
    #[error("no device given; a join needs at least one, such as join:[disk0.img],[disk1.img]")]
    Empty,
    /// The largest block size is not a multiple of another device's.
    #[error(
        "{device} has blocks of {bytes} bytes, which is not a multiple of the {other_bytes}-byte \
         blocks of {other}; use devices with the same block size"
    )]
    Blocks {
        /// The device with the largest blocks.
        device: String,
        /// Block size of `device` in bytes.
        bytes: u32,
        /// The device whose block size doesn't divide that of `device`.
        other: String,
        /// Block size of `other` in bytes.
        other_bytes: u32,
    },
    /// A device is smaller than one block of another device.
    #[error(
        "{device} has {size}, less than one block of {other} ({bytes} bytes); use a larger device"
    )]
    TooSmall {
        /// The small device.
        device: String,
        /// Size of `device`.
        size: Size,
        /// The device with the largest blocks.
        other: String,
        /// Block size of `other` in bytes.
        bytes: u32,
    },
    /// The total size exceeds 64 bits.
    #[error("with {device}, the total size exceeds 2^64 bytes; use fewer or smaller devices")]
    TooLarge {
        /// The first device that exceeds the limit.
        device: String,
    },
}

/// Several devices concatenated into one.
pub struct JoinedBackend {
    members: Vec<Arc<dyn Backend>>,
    /// Each member's end offset.
    ends: Vec<u64>,
    info: DeviceInfo,
}

impl JoinedBackend {
    /// Joins devices in this order, with the largest of their block sizes. A partial block at a device's end is
    /// omitted. The result is read-only if any device is.
    ///
    /// # Errors
    /// See [`JoinedBackend::check`].
    pub fn new(members: Vec<Arc<dyn Backend>>) -> Result<JoinedBackend, JoinError> {
        JoinedBackend::written_at(members, |_| true)
    }

    /// Like [`JoinedBackend::new`], for callers that write only to certain members, given by index: the others may be
    /// read-only.
    ///
    /// # Errors
    /// See [`JoinedBackend::check`].
    pub fn written_at(
        members: Vec<Arc<dyn Backend>>,
        is_written: impl Fn(usize) -> bool,
    ) -> Result<JoinedBackend, JoinError> {
        let infos: Vec<&DeviceInfo> = members.iter().map(|member| member.info()).collect();
        let (block_bytes, ends) = JoinedBackend::check(&infos)?;
        let end = *ends.last().expect("a join has a device");
        let most =
            |get: fn(&DeviceInfo) -> u32| infos.iter().map(|info| get(info)).max().unwrap_or(0);
        let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
        let remarks = |of: fn(&DeviceInfo) -> &Vec<String>| -> Vec<String> {
            let all = infos
                .iter()
                .map(|info| of(info).iter().map(|what| format!("{}: {what}", info.name)));
            all.flatten().collect()
        };
        let transfer = infos
            .iter()
            .map(|info| info.transfer_bytes_max)
            .min()
            .unwrap_or(0);
        let info = DeviceInfo {
            name: format!("join of {}", names.join(", ")),
            block_bytes,
            size_bytes: end,
            physical_block_bytes: most(|info| info.physical_block_bytes),
            buffer_align: infos
                .iter()
                .map(|info| info.buffer_align)
                .max()
                .unwrap_or(1),
            transfer_bytes_max: transfer / block_bytes * block_bytes,
            read_only: infos
                .iter()
                .enumerate()
                .any(|(number, info)| info.read_only && is_written(number)),
            volatile_cache: infos.iter().any(|info| info.volatile_cache),
            unmap: infos.iter().all(|info| info.unmap),
            facts: remarks(|info| &info.facts),
            notes: remarks(|info| &info.notes),
        };
        Ok(JoinedBackend {
            members,
            ends,
            info,
        })
    }

    /// Checks whether these devices can be joined; returns the common block size in bytes and each device's end offset.
    ///
    /// # Errors
    /// There are no devices, or they are incompatible.
    pub fn check(infos: &[&DeviceInfo]) -> Result<(u32, Vec<u64>), JoinError> {
        let largest = infos
            .iter()
            .max_by_key(|info| info.block_bytes)
            .ok_or(JoinError::Empty)?;
        let (bytes, block) = (largest.block_bytes, u64::from(largest.block_bytes));
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(infos.len());
        for info in infos {
            let (device, other) = (info.name.clone(), largest.name.clone());
            if !bytes.is_multiple_of(info.block_bytes) {
                let (other, other_bytes) = (device, info.block_bytes);
                return Err(JoinError::Blocks {
                    device: largest.name.clone(),
                    bytes,
                    other,
                    other_bytes,
                });
            }
            if info.size_bytes < block {
                return Err(JoinError::TooSmall {
                    device,
                    size: Size(info.size_bytes),
                    other,
                    bytes,
                });
            }
            let whole = info.size_bytes / block * block;
            end = end
                .checked_add(whole)
                .ok_or(JoinError::TooLarge { device })?;
            ends.push(end);
        }
        Ok((bytes, ends))
    }

    /// The range of each member.
    pub fn ranges(&self) -> Vec<std::ops::Range<u64>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| start..*end)
            .collect()
    }
}

impl Backend for JoinedBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let mut members = Vec::with_capacity(self.members.len());
        for (member, range) in self.members.iter().zip(self.ranges()) {
            members.push(Member {
                device: member.open(ring, depth)?,
                start: range.start,
                end: range.end,
            });
        }
        Ok(Box::new(JoinedDevice {
            info: self.info.clone(),
            members,
            depth,
            outstanding: 0,
            next: VecDeque::with_capacity(depth as usize),
            owed: VecDeque::new(),
            flushes: Vec::new(),
            failed: Vec::new(),
            done: Vec::with_capacity(depth as usize),
        }))
    }

    fn may_wait(&self) -> bool {
        self.members.iter().any(|member| member.may_wait())
    }

    fn storage(&self) -> Vec<crate::StorageId> {
        self.members
            .iter()
            .flat_map(|member| member.storage())
            .collect()
    }

    fn handles(&self) -> Handles {
        let of = |(index, member): (usize, &Arc<dyn Backend>)| {
            member
                .handles()
                .into_iter()
                .map(move |(name, handle)| (format!("{index}/{name}"), handle))
        };
        self.members.iter().enumerate().flat_map(of).collect()
    }
}

struct Member {
    device: Box<dyn Device>,
    start: u64,
    end: u64,
}

/// A flush sent to several members.
struct JointFlush {
    tag: u64,
    /// Number of members that have not completed the flush.
    left: usize,
    /// The first failure.
    result: Result<(), DeviceError>,
}

struct JoinedDevice {
    info: DeviceInfo,
    members: Vec<Member>,
    depth: u32,
    outstanding: u32,
    /// Consecutive requests for the same member, submitted together.
    next: VecDeque<Request>,
    /// Flushes that some of their members have not accepted yet.
    owed: VecDeque<(usize, Request)>,
    flushes: Vec<JointFlush>,
    failed: Vec<Completion>,
    done: Vec<Completion>,
}

impl JoinedDevice {
    /// The member that a request is for; `None` for a flush of several members.
    fn member_of(&self, request: &Request) -> Result<Option<usize>, DeviceError> {
        if request.op == Op::Flush && request.len == 0 {
            return Ok(None);
        }
        in_range(&self.info, request)?;
        let first = self
            .members
            .partition_point(|member| member.end <= request.offset);
        match self.members.get(first) {
            Some(member) if request.offset + request.len <= member.end => Ok(Some(first)),
            Some(_) if request.op == Op::Flush => Ok(None),
            _ => Err(DeviceError::OutOfRange),
        }
    }

    /// Submits flushes that members didn't accept earlier; `false` if a member still doesn't.
    fn settle(&mut self) -> bool {
        while let Some((index, request)) = self.owed.pop_front() {
            self.next.push_back(request);
            self.members[index].device.submit(&mut self.next);
            if let Some(request) = self.next.pop_front() {
                self.owed.push_front((index, request));
                return false;
            }
        }
        true
    }

    /// Sends a flush to each member that it covers.
    fn flush(&mut self, request: &Request) {
        let end = if request.len == 0 {
            u64::MAX
        } else {
            request.offset.saturating_add(request.len)
        };
        let touched =
            |member: &Member| request.len == 0 || request.offset < member.end && member.start < end;
        let all: Vec<usize> = (0..self.members.len())
            .filter(|at| touched(&self.members[*at]))
            .collect();
        self.flushes.push(JointFlush {
            tag: request.tag,
            left: all.len(),
            result: Ok(()),
        });
        self.owed.extend(all.into_iter().map(|index| {
            let part = Request {
                buf: Buf::empty(),
                offset: 0,
                len: 0,
                ..*request
            };
            (index, part)
        }));
    }
}

impl Device for JoinedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while self.settle() && self.outstanding < self.depth {
            let Some(front) = batch.front() else { return };
            let index = match self.member_of(front) {
                Ok(Some(index)) => index,
                Ok(None) => {
                    let request = batch.pop_front().expect("a completed part is the oldest");
                    self.outstanding += 1;
                    self.flush(&request);
                    continue;
                }
                Err(error) => {
                    let Request { tag, buf, .. } =
                        batch.pop_front().expect("a completed part is the oldest");
                    self.outstanding += 1;
                    self.failed.push(Completion {
                        tag,
                        buf,
                        result: Err(error),
                    });
                    continue;
                }
            };
            // Consecutive requests for the same member are submitted together.
            let start = self.members[index].start;
            let room = self.depth - self.outstanding;
            while (self.next.len() as u32) < room
                && batch
                    .front()
                    .is_some_and(|request| self.member_of(request) == Ok(Some(index)))
            {
                let mut request = batch.pop_front().expect("a completed part is the oldest");
                request.offset -= start;
                self.next.push_back(request);
            }
            let offered = self.next.len() as u32;
            self.members[index].device.submit(&mut self.next);
            self.outstanding += offered - self.next.len() as u32;
            if !self.next.is_empty() {
                while let Some(mut request) = self.next.pop_back() {
                    request.offset += start;
                    batch.push_front(request);
                }
                return;
            }
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.settle();
        let before = done.len();
        done.append(&mut self.failed);
        for member in &mut self.members {
            member.device.poll(&mut self.done);
            for completion in self.done.drain(..) {
                let Some(at) = self
                    .flushes
                    .iter()
                    .position(|flush| flush.tag == completion.tag)
                else {
                    done.push(completion);
                    continue;
                };
                let flush = &mut self.flushes[at];
                flush.left -= 1;
                flush.result = flush.result.and(completion.result);
                if flush.left == 0 {
                    let JointFlush { tag, result, .. } = self.flushes.swap_remove(at);
                    done.push(Completion {
                        tag,
                        buf: completion.buf,
                        result,
                    });
                }
            }
        }
        self.outstanding -= (done.len() - before) as u32;
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn deadline(&self) -> Nanos {
        if !self.failed.is_empty() {
            return Nanos(0);
        }
        let deadlines = self.members.iter().map(|member| member.device.deadline());
        deadlines.min().unwrap_or(Nanos::MAX)
    }

    fn cancel(&mut self, tag: u64) {
        self.members
            .iter_mut()
            .for_each(|member| member.device.cancel(tag));
    }

    fn health(&self) -> Health {
        let mut all = Health::default();
        for member in &self.members {
            let mut health = member.device.health();
            let name = &member.device.info().name;
            health.trouble = health.trouble.map(|what| format!("{name}: {what}"));
            all.add(health);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RingConfig, open_url};

    fn request(tag: u64, op: Op, offset: u64, len: u64, buf: Buf) -> Request {
        Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access: false,
        }
    }

    fn finish(device: &mut dyn Device, ring: &Ring) -> Vec<Completion> {
        let mut done = Vec::new();
        while device.outstanding() > 0 {
            ring.enter(device.deadline()).unwrap();
            device.poll(&mut done);
        }
        done.sort_by_key(|completion| completion.tag);
        done
    }

    #[test]
    fn each_member_has_its_range_and_no_request_crosses_it() {
        let joined =
            open_url("join:[memory:64KiB],[memory:1MiB?block=4096],[memory:64KiB]").unwrap();
        assert_eq!(
            (joined.info().size_bytes, joined.info().block_bytes),
            (128 * 1024 + (1 << 20), 4096)
        );
        let ring = Ring::new(RingConfig::default()).unwrap();
        let mut device = joined.open(&ring, 8).unwrap();
        let buf = |byte: u8| {
            let mut buf = ring.pool().take(4096);
            buf.fill(byte);
            buf
        };
        let places = [
            0,
            60 << 10,
            64 << 10,
            (64 << 10) + (1 << 20),
            (124 << 10) + (1 << 20),
        ];
        let mut batch = VecDeque::new();
        for (tag, offset) in places.into_iter().enumerate() {
            batch.push_back(request(
                tag as u64,
                Op::Write,
                offset,
                4096,
                buf(tag as u8 + 1),
            ));
        }
        batch.push_back(request(5, Op::Read, 60 << 10, 8192, ring.pool().take(8192)));
        batch.push_back(request(6, Op::Flush, 0, 0, Buf::empty()));
        batch.push_back(request(7, Op::Read, 128 << 20, 4096, buf(0)));
        device.submit(&mut batch);
        assert_eq!((batch.len(), device.outstanding()), (0, 8));
        let results: Vec<bool> = finish(device.as_mut(), &ring)
            .iter()
            .map(|done| done.result.is_ok())
            .collect();
        assert_eq!(results, [true, true, true, true, true, false, true, false]);
        for (tag, offset) in places.into_iter().enumerate() {
            batch.push_back(request(tag as u64, Op::Read, offset, 4096, buf(0)));
        }
        device.submit(&mut batch);
        for (tag, done) in finish(device.as_mut(), &ring).iter().enumerate() {
            assert!(
                done.buf[..4096].iter().all(|byte| *byte == tag as u8 + 1),
                "{tag}"
            );
        }
    }

    /// A request that its member doesn't accept holds up requests to other members, so that order is preserved.
    #[test]
    fn requests_stay_in_order() {
        let joined = open_url("join:[memory:64KiB],[memory:64KiB]").unwrap();
        let ring = Ring::new(RingConfig::default()).unwrap();
        let mut device = joined.open(&ring, 3).unwrap();
        let reads =
            (0..6).map(|tag| request(tag, Op::Read, (tag % 2) << 16, 512, ring.pool().take(512)));
        let mut batch: VecDeque<Request> = reads.collect();
        device.submit(&mut batch);
        let left: Vec<u64> = batch.iter().map(|request| request.tag).collect();
        assert_eq!((left, device.outstanding()), (vec![3, 4, 5], 3));
        assert_eq!(batch[0].offset, 1 << 16);
        finish(device.as_mut(), &ring);
    }

    #[test]
    fn incompatible_devices_are_rejected() {
        for (url, said) in [
            ("join:", "names no device"),
            ("join:[memory:1MiB", "write join:[MEMBER]"),
            ("join:memory:1MiB", "write join:[MEMBER]"),
            (
                "join:[memory:512B],[memory:1MiB?block=4096]",
                "less than one block of memory",
            ),
        ] {
            let error = open_url(url).err().expect(url).to_string();
            assert!(error.contains(said), "{url}: {error}");
        }
        let info = |name: &str, block_bytes, size_bytes| {
            let plain = open_url("memory:1MiB").unwrap().info().clone();
            DeviceInfo {
                name: name.into(),
                block_bytes,
                size_bytes,
                ..plain
            }
        };
        let check = |infos: [&DeviceInfo; 2], said: &str| {
            let error = JoinedBackend::check(&infos).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        let (odd, even) = (info("odd", 520, 1 << 20), info("even", 4096, 1 << 20));
        check(
            [&odd, &even],
            "even has blocks of 4096 bytes, which is not a multiple of the 520-byte blocks of odd",
        );
        let large = info("large", 512, u64::MAX / 512 * 512);
        check(
            [&large, &info("more", 512, 1 << 20)],
            "with more, the total size",
        );
        assert!(matches!(JoinedBackend::check(&[]), Err(JoinError::Empty)));
    }
}
