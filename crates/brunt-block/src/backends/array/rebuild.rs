//! The thread that rebuilds a spare while the array serves requests: several stripes at a time, each under its stripe's
//! lock, at a limited rate. Each array has one such thread; it sleeps while idle.
//!
//! The thread has its own loop instead of [`crate::turn`]'s, because one wait covers all members, which share a ring.
//!
//! The rule: stripes count as rebuilt in order. A stripe that finishes before an earlier one keeps its lock until the
//! earlier one finishes too; otherwise a write to it would miss the spare.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::layout::{Layout, Level};
use super::state::{ArrayControl, Work};
use super::xor::xor;
use crate::{
    Backend, Buf, Completion, Device, DeviceError, Op, OpenError, Request, Ring, RingConfig,
};

/// How often to check whether the rebuild is still wanted. Also limits how much time a rebuild that falls behind its
/// configured rate can make up for.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Retry interval for a stripe's lock.
const LOCK_RETRY: Duration = Duration::from_micros(50);
/// Attempts per stripe and possible source before the rebuild gives up.
const READ_TRIES: u32 = 3;
/// Time for outstanding requests to complete at the end; after that they are cancelled and get the same time again.
const DRAIN: Duration = Duration::from_secs(1);

/// Why a rebuild stopped.
#[derive(Debug, thiserror::Error)]
enum RebuildError {
    #[error("cannot set up its ring: {0}")]
    Ring(#[from] io::Error),
    #[error("cannot open a member: {0}")]
    Open(OpenError),
    #[error("too many members have failed; cannot rebuild")]
    TooFewMembers,
    #[error("cannot read {member}: {error}")]
    Unreadable { member: String, error: DeviceError },
}

pub(super) fn run(control: &Arc<ArrayControl>, layout: Layout, members: &[Arc<dyn Backend>]) {
    while let Some(work) = control.wait_for_work() {
        if let Err(why) = rebuild(control, layout, members, work) {
            control.rebuild_stopped(work, &why.to_string());
        }
    }
}

/// Returns `Err` if the rebuild can't start, and `Ok` once it is over: it finished, was superseded, failed because of
/// its spare, or stopped. Only a stop is reported to `control`.
fn rebuild(
    control: &ArrayControl,
    layout: Layout,
    members: &[Arc<dyn Backend>],
    work: Work,
) -> Result<(), RebuildError> {
    // More lanes than stripes would be useless.
    let depth = control.rebuild_depth().min(layout.stripes as u32).max(1);
    // The chunks of all sources stay in memory until they are combined.
    let arena_bytes = layout.chunk_bytes as usize * layout.slots * depth as usize;
    let config = RingConfig {
        arena_bytes: arena_bytes.min(ARENA_BYTES_MAX),
        ..RingConfig::default()
    };
    let ring = Ring::new(config)?;
    let devices: Result<Vec<_>, _> = members
        .iter()
        .map(|member| member.open(&ring, depth))
        .collect();
    let devices = devices.map_err(RebuildError::Open)?;
    let mut rebuild = Rebuild {
        control,
        layout,
        work,
        queues: devices.iter().map(|_| VecDeque::new()).collect(),
        // Devices are dropped before their ring.
        devices,
        ring,
        lanes: (0..depth).map(|_| Lane::default()).collect(),
        first: 0,
        next: 0,
        due: Clock::Monotonic.now(),
        above: Vec::new(),
    };
    let result = rebuild.all();
    if let Err(why) = &result {
        // Must precede the release of the locks, so that the stripes rebuilt so far aren't mistaken for all stripes.
        control.rebuild_stopped(work, &why.to_string());
    }
    rebuild.end();
    Ok(())
}

/// Maximum memory registered with the ring; buffers beyond it come from the heap.
const ARENA_BYTES_MAX: usize = 64 << 20;

struct Rebuild<'a> {
    control: &'a ArrayControl,
    layout: Layout,
    work: Work,
    devices: Vec<Box<dyn Device>>,
    queues: Vec<VecDeque<Request>>,
    ring: Ring,
    /// Stripes in progress, each at its number modulo the number of lanes.
    lanes: Vec<Lane>,
    /// The first stripe that has not been rebuilt.
    first: u64,
    /// The first stripe that has not been started. Stripes from `first` up to this one are locked.
    next: u64,
    /// When the next stripe may start.
    due: Nanos,
    above: Vec<Completion>,
}

/// A stripe in progress.
#[derive(Default)]
struct Lane {
    /// Outstanding requests.
    waits: u32,
    /// The XOR of the data read so far.
    sum: Option<Buf>,
    /// Whether the stripe's chunk has been written to the spare.
    done: bool,
    /// Members whose reads failed, as a bit mask.
    avoid: u32,
    tries: u32,
    error: Option<(usize, DeviceError)>,
}

impl Rebuild<'_> {
    fn all(&mut self) -> Result<(), RebuildError> {
        while self.first < self.layout.stripes {
            if !self.control.is_current(self.work) {
                return Ok(());
            }
            let look = self.begin()?;
            for (device, queue) in self.devices.iter_mut().zip(&mut self.queues) {
                if !queue.is_empty() {
                    device.submit(queue);
                }
            }
            let devices = self.devices.iter().map(|device| device.deadline());
            let until = devices.min().unwrap_or(Nanos::MAX).min(look);
            self.ring.enter(until)?;
            self.take_answers()?;
        }
        self.control.rebuild_done(self.work);
        Ok(())
    }

    /// Starts all stripes that may start now; returns when to check again.
    fn begin(&mut self) -> Result<Nanos, RebuildError> {
        let now = Clock::Monotonic.now();
        while self.next < self.layout.stripes && self.next - self.first < self.lanes.len() as u64 {
            if self.due > now {
                return Ok(self.due.min(now.after(CHECK_INTERVAL)));
            }
            if !self.control.try_lock(self.next, true) {
                return Ok(now.after(LOCK_RETRY));
            }
            let stripe = self.next;
            self.next += 1;
            *self.lane(stripe) = Lane::default();
            self.read(stripe)?;
            if let Some(nanos) =
                (self.layout.chunk_bytes * 1_000_000_000).checked_div(self.control.rate())
            {
                // Limits the catch-up burst.
                let due = self
                    .due
                    .0
                    .max(now.0.saturating_sub(CHECK_INTERVAL.as_nanos() as u64));
                self.due = Nanos(due).after(Duration::from_nanos(nanos));
            }
        }
        Ok(now.after(CHECK_INTERVAL))
    }

    fn lane(&mut self, stripe: u64) -> &mut Lane {
        let count = self.lanes.len() as u64;
        &mut self.lanes[(stripe % count) as usize]
    }

    /// Reads the sources of a locked stripe.
    fn read(&mut self, stripe: u64) -> Result<(), RebuildError> {
        let view = self.control.view();
        let others = (0..self.layout.slots).filter(|slot| *slot != self.work.slot);
        let mut sources: Vec<usize> = others
            .filter_map(|slot| self.control.holder(&view, slot, stripe))
            .collect();
        let needed = match self.layout.level {
            Level::Raid1 => 1,
            _ => self.layout.slots - 1,
        };
        if sources.len() < needed {
            return Err(RebuildError::TooFewMembers);
        }
        let avoid = self.lane(stripe).avoid;
        // Among mirrors, prefer one without read errors on this stripe.
        sources.sort_by_key(|device| avoid >> device & 1);
        sources.truncate(needed);
        self.lane(stripe).waits = needed as u32;
        for device in sources {
            self.send(device, Op::Read, stripe, None);
        }
        Ok(())
    }

    fn send(&mut self, device: usize, op: Op, stripe: u64, buf: Option<Buf>) {
        let len = self.layout.chunk_bytes;
        let buf = buf.unwrap_or_else(|| self.ring.pool().take(len as usize));
        let request = Request {
            tag: stripe,
            op,
            offset: stripe * len,
            len,
            buf,
            force_unit_access: false,
        };
        self.queues[device].push_back(request);
    }

    fn take_answers(&mut self) -> Result<(), RebuildError> {
        for device in 0..self.devices.len() {
            if self.devices[device].outstanding() == 0 {
                continue;
            }
            let mut above = std::mem::take(&mut self.above);
            self.devices[device].poll(&mut above);
            let answered = above
                .drain(..)
                .try_for_each(|one| self.on_completion(device, one));
            self.above = above;
            answered?;
        }
        while self.first < self.next && self.lane(self.first).done {
            let stripe = self.first;
            self.control.rebuilt(self.work, stripe);
            self.control.unlock(stripe, true);
            self.first += 1;
        }
        Ok(())
    }

    fn on_completion(&mut self, device: usize, one: Completion) -> Result<(), RebuildError> {
        let stripe = one.tag;
        let spare = self.work.device;
        let result = one.result.or_else(|error| {
            if error.is_recovered() {
                Ok(())
            } else {
                Err(error)
            }
        });
        if device == spare {
            match result {
                Ok(()) => self.lane(stripe).done = true,
                // Fails the spare, so this rebuild is superseded.
                Err(error) => self.control.blame(spare, error, true),
            }
            return Ok(());
        }
        let lane = self.lane(stripe);
        lane.waits -= 1;
        match (result, &mut lane.sum) {
            (Err(error), _) => lane.error = Some((device, error)),
            (Ok(()), Some(sum)) => xor(sum, &one.buf),
            (Ok(()), empty) => *empty = Some(one.buf),
        }
        if lane.waits > 0 {
            return Ok(());
        }
        let sum = lane.sum.take();
        match (lane.error.take(), sum) {
            (None, Some(sum)) => {
                self.send(spare, Op::Write, stripe, Some(sum));
                Ok(())
            }
            (Some((device, error)), _) => self.try_again(stripe, device, error),
            (None, None) => unreachable!("successful copies have been counted"),
        }
    }

    /// Handles a failed read from a source: tries another source if this is a mirror, otherwise the same one again.
    fn try_again(
        &mut self,
        stripe: u64,
        device: usize,
        error: DeviceError,
    ) -> Result<(), RebuildError> {
        let view = self.control.view();
        let holds = |slot: usize| self.control.holder(&view, slot, stripe);
        let there = (0..self.layout.slots)
            .filter(|slot| *slot != self.work.slot)
            .filter_map(holds)
            .count();
        let lane = self.lane(stripe);
        lane.avoid |= 1 << device;
        lane.tries += 1;
        let others = self.layout.level == Level::Raid1 && there > 1;
        let tries_max = if others {
            READ_TRIES * there as u32
        } else {
            READ_TRIES
        };
        if self.lane(stripe).tries >= tries_max {
            let member = self.devices[device].info().name.clone();
            return Err(RebuildError::Unreadable { member, error });
        }
        // Errors must not fail the last member that has the data.
        if others {
            self.control.blame(device, error, false);
        }
        self.read(stripe)
    }

    /// Releases the locks, then waits for outstanding requests: a late write to the spare could corrupt
    /// the next rebuild onto it.
    fn end(&mut self) {
        (self.first..self.next).for_each(|stripe| self.control.unlock(stripe, true));
        self.queues.iter_mut().for_each(VecDeque::clear);
        for cancels in [false, true] {
            let until = Clock::Monotonic.now().after(DRAIN);
            let busy =
                |devices: &[Box<dyn Device>]| devices.iter().any(|device| device.outstanding() > 0);
            if cancels {
                let tags = self.first..self.next;
                self.devices
                    .iter_mut()
                    .for_each(|device| tags.clone().for_each(|tag| device.cancel(tag)));
            }
            while busy(&self.devices) && Clock::Monotonic.now() < until {
                let devices = self.devices.iter().map(|device| device.deadline());
                let look = devices
                    .min()
                    .unwrap_or(Nanos::MAX)
                    .min(Clock::Monotonic.now().after(CHECK_INTERVAL));
                if self.ring.enter(look.min(until)).is_err() {
                    return;
                }
                self.devices
                    .iter_mut()
                    .for_each(|device| device.poll(&mut self.above));
                self.above.clear();
            }
        }
    }
}
