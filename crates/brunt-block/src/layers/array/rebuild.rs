//! The thread that brings a spare into step while requests go on: a stripe at a time, under the stripe's
//! lock, at a stated rate. One for each array, asleep while nothing is to be done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::layout::{Layout, Level};
use super::state::{ArrayControl, Work};
use super::xor;
use crate::{Backend, Buf, Device, DeviceError, Op, Request, Ring, RingConfig};

/// How often it looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);
/// Between tries for a stripe's lock.
const LOCK_LOOK: Duration = Duration::from_micros(50);

pub(super) fn run(control: &Arc<ArrayControl>, layout: Layout, members: &[Arc<dyn Backend>]) {
    while let Some(work) = control.wait_for_work() {
        if let Err(why) = rebuild(control, layout, members, work) {
            control.rebuild_stopped(work, &why);
        }
    }
}

struct Rebuild<'a> {
    control: &'a ArrayControl,
    layout: Layout,
    work: Work,
    devices: Vec<Box<dyn Device>>,
    ring: Ring,
}

/// `Err` when the rebuild cannot go on; a rebuild that was overtaken or whose spare failed is over without.
fn rebuild(
    control: &ArrayControl,
    layout: Layout,
    members: &[Arc<dyn Backend>],
    work: Work,
) -> Result<(), String> {
    let arena_bytes = layout.chunk_bytes as usize * layout.slots;
    let ring = Ring::new(RingConfig { arena_bytes, ..RingConfig::default() }).map_err(|e| e.to_string())?;
    let devices: Result<Vec<_>, _> = members.iter().map(|member| member.open(&ring, 1)).collect();
    let devices = devices.map_err(|error| error.to_string())?;
    // Devices before their ring, when it is over.
    let mut rebuild = Rebuild { control, layout, work, devices, ring };
    let mut due = Clock::Monotonic.now();
    for stripe in 0..layout.stripes {
        while !control.try_lock(stripe, true) {
            if !control.is_current(work) {
                return Ok(());
            }
            std::thread::sleep(LOCK_LOOK);
        }
        let result = rebuild.stripe(stripe);
        if let Ok(true) = result {
            control.rebuilt(work, stripe);
        }
        control.unlock(stripe, true);
        if !result? {
            return Ok(());
        }
        let rate = control.rate();
        if let Some(nanos) = (layout.chunk_bytes * 1_000_000_000).checked_div(rate) {
            let now = Clock::Monotonic.now();
            // What was missed is not made up for in a burst.
            due = Nanos(due.0.max(now.0.saturating_sub(LOOK.as_nanos() as u64)))
                .after(Duration::from_nanos(nanos));
            while Clock::Monotonic.now() < due && control.is_current(work) {
                std::thread::sleep(due.since(Clock::Monotonic.now()).min(LOOK));
            }
        }
        if !control.is_current(work) {
            return Ok(());
        }
    }
    control.rebuild_done(work);
    Ok(())
}

impl Rebuild<'_> {
    /// One stripe; false when the rebuild is over before its time.
    fn stripe(&mut self, stripe: u64) -> Result<bool, String> {
        let view = self.control.view();
        let len = self.layout.chunk_bytes;
        let offset = stripe * len;
        let others = (0..self.layout.slots).filter(|slot| *slot != self.work.slot);
        let mut sources: Vec<usize> =
            others.filter_map(|slot| self.control.holder(&view, slot, stripe)).collect();
        let needed = match self.layout.level {
            Level::Raid1 => 1,
            _ => self.layout.slots - 1,
        };
        if sources.len() < needed {
            return Err("too few members are left to rebuild from".to_string());
        }
        sources.truncate(needed);
        for device in &sources {
            let buf = self.ring.pool().take(len as usize);
            self.submit(*device, Op::Read, offset, buf);
        }
        let mut sum: Option<Buf> = None;
        for device in sources {
            let Some((buf, result)) = self.wait(device) else { return Ok(false) };
            if let Err(error) = result {
                return Err(format!("{} cannot be read: {error}", self.devices[device].info().name));
            }
            match &mut sum {
                None => sum = Some(buf),
                Some(sum) => xor(sum, &buf),
            }
        }
        let Some(sum) = sum else { return Ok(false) };
        let spare = self.work.device;
        self.submit(spare, Op::Write, offset, sum);
        match self.wait(spare) {
            Some((_, Ok(()))) => Ok(true),
            Some((_, Err(error))) => {
                self.control.blame(spare, error, true);
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn submit(&mut self, device: usize, op: Op, offset: u64, buf: Buf) {
        let request = Request { tag: 0, op, offset, len: buf.len() as u64, buf, force_unit_access: false };
        self.devices[device].submit(&mut VecDeque::from([request]));
    }

    /// The answer of a device; `None` when the rebuild is no longer wanted before there is one.
    fn wait(&mut self, device: usize) -> Option<(Buf, Result<(), DeviceError>)> {
        let mut done = Vec::new();
        loop {
            self.devices[device].poll(&mut done);
            if let Some(one) = done.pop() {
                let recovered = |error: DeviceError| if error.is_recovered() { Ok(()) } else { Err(error) };
                return Some((one.buf, one.result.or_else(recovered)));
            }
            if !self.control.is_current(self.work) {
                return None;
            }
            let until = self.devices[device].deadline().min(Clock::Monotonic.now().after(LOOK));
            self.ring.enter(until).ok()?;
        }
    }
}
