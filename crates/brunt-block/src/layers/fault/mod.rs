//! `fault=…`: injects faults requested by a URL, a fault schedule or a control channel ([`spec`] defines the syntax,
//! [`switch`] the controls). Works anywhere in a stack: below `delay`, an error takes as long as a request; above it,
//! an error is immediate; below `retry`, the controller tries to recover from it.
//!
//! The rule: while no fault is armed, requests pass at the cost of reading one number per batch; a batch that no fault
//! affects is scanned and passed on unchanged. Affected requests are identified by their tags, so the tags of
//! outstanding requests must be unique.

pub mod blocks;
mod errno;
pub mod kind;
pub mod spec;
pub mod switch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brunt_core::random::Random;
use brunt_core::{Clock, Nanos};

pub use kind::FaultEffect;
use spec::touched;
pub use spec::{DeviceFault, Ops};
pub use switch::{Armed, FaultSwitch};

use crate::backends::in_range;
use crate::control::{Controllable, Handles};
use crate::open::{LayerEntry, OpenError, bad_value};
use crate::sparse::Allocation;
use crate::{
    Backend, Completion, Device, DeviceError, DeviceInfo, Health, MediumState, Op, RefusalKind,
    Request, Ring,
};

/// Maximum delay until a hanging request is released after its fault has been removed.
const HANG_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The table entry.
pub const ENTRY: LayerEntry = LayerEntry {
    name: "fault",
    help: "injects errors and delays: off, or faults separated by ; of these kinds: medium-error hardware-error recovered-error aborted-command busy \
           reservation-conflict not-ready unit-attention task-set-full sense:KEY/ASC/ASCQ errno:NAME slow:TIME \
           slow:xN hang drop torn:BLOCKS corrupt misdirect:BLOCKS bad-blocks:SHARE% flaky:UP/DOWN \
           flaky:UP/DOWN/drop, each with ,p=0.1 ,op=read+write ,lba=0-99+200 ,every=N ,times=N ,seed=N; and name=NAME",
    example: "aborted-command,p=0.1,op=read,seed=7;name=disk",
    wrap: |inner, value| Ok(Arc::new(parse(inner, value)?)),
    preview: None,
    file: None,
};

fn parse(inner: Arc<dyn Backend>, text: &str) -> Result<FaultBackend, OpenError> {
    let (mut name, mut faults, mut off) = ("fault", Vec::new(), false);
    for part in text.split(';') {
        match part.trim() {
            "off" => off = true,
            part => match part.strip_prefix("name=") {
                Some(word) if !word.is_empty() && !word.contains(['/', ',']) => name = word,
                Some(_) => return Err(bad_value("fault", text, "a name must not contain / or ,")),
                None => faults.push(DeviceFault::parse(part)?),
            },
        }
    }
    if off != faults.is_empty() || faults.len() > switch::ARMED_MAX {
        return Err(bad_value(
            "fault",
            text,
            "write off, or 1 to 64 faults separated by ;",
        ));
    }
    let switch = FaultSwitch::new(name);
    for fault in faults {
        switch.arm(fault);
    }
    Ok(FaultBackend::new(inner, switch, Clock::Monotonic))
}

/// A backend with faults applied to its requests.
pub struct FaultBackend {
    inner: Arc<dyn Backend>,
    info: DeviceInfo,
    switch: Arc<FaultSwitch>,
    clock: Clock,
    opened: AtomicU64,
}

impl FaultBackend {
    /// Applies the faults of `switch` to `inner`.
    pub fn new(inner: Arc<dyn Backend>, switch: Arc<FaultSwitch>, clock: Clock) -> FaultBackend {
        let mut info = inner.info().clone();
        for armed in switch.armed() {
            info.notes.push(format!("injected fault: {}", armed.fault));
        }
        FaultBackend {
            inner,
            info,
            switch,
            clock,
            opened: AtomicU64::new(0),
        }
    }
}

impl Backend for FaultBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let capacity = depth as usize;
        Ok(Box::new(FaultDevice {
            inner: self.inner.open(ring, depth)?,
            info: self.info.clone(),
            switch: Arc::clone(&self.switch),
            part: self.opened.fetch_add(1, Ordering::Relaxed),
            clock: self.clock.clone(),
            depth: capacity,
            // A value that the switch's generation never has, so the first check fetches the armed faults.
            generation: u64::MAX,
            active: Vec::new(),
            below: VecDeque::with_capacity(capacity),
            held: Vec::new(),
            marked: Vec::new(),
            ready: Vec::new(),
            late: Vec::new(),
            above: Vec::new(),
        }))
    }

    fn may_wait(&self) -> bool {
        self.inner.may_wait()
    }

    fn allocation(&self, offset: u64) -> Option<(Allocation, u64)> {
        self.inner.allocation(offset)
    }

    fn medium_state(&self) -> MediumState {
        self.inner.medium_state()
    }

    fn resize(&self, size_bytes: u64) -> std::io::Result<()> {
        self.inner.resize(size_bytes)
    }

    fn unmap_reads_zeros(&self) -> bool {
        self.inner.unmap_reads_zeros()
    }

    fn storage(&self) -> Vec<crate::StorageId> {
        self.inner.storage()
    }

    fn handles(&self) -> Handles {
        let own: Arc<dyn Controllable> = Arc::<FaultSwitch>::clone(&self.switch);
        let own = (self.switch.name().to_string(), own);
        std::iter::once(own).chain(self.inner.handles()).collect()
    }
}

/// An armed fault and its per-device state.
struct Active {
    armed: Arc<Armed>,
    random: Random,
    /// Whether this device has already reported its unit attention.
    reported: bool,
}

impl Active {
    /// Whether the fault hits a request; if so, the request is counted.
    fn hits(&mut self, request: &Request, info: &DeviceInfo, clock: &Clock) -> bool {
        let fault = &self.armed.fault;
        // Invalid requests get their usual error.
        if !fault.is_about(request, info.block_bytes) || in_range(info, request).is_err() {
            return false;
        }
        match fault.kind {
            FaultEffect::UnitAttention if self.reported => return false,
            FaultEffect::Flaky { .. } => {
                let now = clock.now();
                if !fault.is_down(self.armed.since(now), now) {
                    return false;
                }
            }
            FaultEffect::Misdirect { blocks }
                if places(request, info)
                    .is_none_or(|all| blocks.is_some_and(|by| by % all == 0)) =>
            {
                return false;
            }
            FaultEffect::BadBlocks { .. } => match self.armed.first_bad(request, info) {
                None => return false,
                // A write that cures bad blocks; the cure is counted separately.
                Some(_) if request.op != Op::Read => return true,
                Some(_) => {}
            },
            _ => {}
        }
        let hits = self.armed.counts_in()
            && (fault.probability >= 1.0 || self.random.chance(fault.probability))
            && self.armed.take();
        self.reported |= hits;
        hits
    }
}

/// The position of a misdirected request: `blocks` further, or a random other position.
fn misdirected(
    request: &Request,
    info: &DeviceInfo,
    blocks: Option<u64>,
    random: &mut Random,
) -> u64 {
    let block_bytes = u64::from(info.block_bytes);
    let all = places(request, info).expect("a device has another block");
    let by = blocks.unwrap_or_else(|| 1 + random.below(all - 1));
    let offset = (request.offset / block_bytes + by % all) % all * block_bytes;
    debug_assert_ne!(
        offset, request.offset,
        "a misdirected write has another position"
    );
    offset
}

/// Number of locations on the device where a request of this length fits; `None` if its own is the only one.
fn places(request: &Request, info: &DeviceInfo) -> Option<u64> {
    let all = info.size_bytes.checked_sub(request.len)? / u64::from(info.block_bytes) + 1;
    (all > 1).then_some(all)
}

/// A request held back before it is passed on.
struct Held {
    request: Request,
    until: Until,
}

enum Until {
    Time(Nanos),
    /// Held until this fault is removed.
    Gone(u64),
}

/// What to do with a request when the lower device completes it.
struct Mark {
    tag: u64,
    effect: Effect,
}

enum Effect {
    /// Report this error if the request succeeded.
    Report(DeviceError),
    /// Delay the completion until the request has taken `factor` times as long.
    Stretch { start: Nanos, factor: f64 },
    /// If the request succeeded, mark bad blocks from `first` to `last` as good.
    Cure {
        armed: Arc<Armed>,
        first: u64,
        last: u64,
    },
    /// Flip this bit. For a read, this is the corruption; for a write, it restores the caller's buffer.
    Flip { bit: u64 },
}

struct FaultDevice {
    inner: Box<dyn Device>,
    info: DeviceInfo,
    switch: Arc<FaultSwitch>,
    /// This device's number among the devices of its backend.
    part: u64,
    clock: Clock,
    depth: usize,
    generation: u64,
    active: Vec<Active>,
    below: VecDeque<Request>,
    held: Vec<Held>,
    marked: Vec<Mark>,
    ready: Vec<Completion>,
    /// Completions with their due times.
    late: Vec<(Nanos, Completion)>,
    above: Vec<Completion>,
}

impl Device for FaultDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        self.update();
        if self.active.is_empty() && self.kept() == 0 {
            return self.inner.submit(batch);
        }
        // A batch without hits is passed on unchanged; otherwise, the requests before the hit go first.
        let room = self.depth.saturating_sub(self.outstanding() as usize);
        let few = batch.len() <= room;
        let mut missed = 0;
        for _ in 0..batch.len().min(room) {
            if let Some(index) = self.hit(&batch[missed]) {
                self.below.extend(batch.drain(..missed));
                let request = batch.pop_front().expect("only faults that hit are counted");
                self.inject(index, request);
                missed = 0;
            } else {
                missed += 1;
            }
        }
        if few && self.below.is_empty() && self.held.is_empty() {
            return self.inner.submit(batch);
        }
        self.below.extend(batch.drain(..missed));
        self.pass_down();
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.update();
        if self.kept() == 0 && self.marked.is_empty() {
            return self.inner.poll(done);
        }
        self.poll_slowly(done);
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding() + self.kept() as u32
    }

    fn deadline(&self) -> Nanos {
        if self.kept() == 0 {
            return self.inner.deadline();
        }
        if !self.ready.is_empty() {
            return Nanos(0);
        }
        let held = self.held.iter().map(|held| match held.until {
            Until::Time(time) => time,
            Until::Gone(_) => self.clock.now().after(HANG_CHECK_INTERVAL),
        });
        let late = self.late.iter().map(|(due, _)| *due);
        held.chain(late)
            .min()
            .unwrap_or(Nanos::MAX)
            .min(self.inner.deadline())
    }

    fn cancel(&mut self, tag: u64) {
        let Some(index) = self.held.iter().position(|held| held.request.tag == tag) else {
            return self.inner.cancel(tag);
        };
        let buf = self.held.swap_remove(index).request.buf;
        let aborted = DeviceError::refused(RefusalKind::Cancelled);
        self.ready.push(Completion {
            tag,
            buf,
            result: Err(aborted),
        });
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}

impl FaultDevice {
    /// Number of requests held in this layer.
    #[inline]
    fn kept(&self) -> usize {
        self.held.len() + self.ready.len() + self.late.len()
    }

    /// Picks up faults that were armed or removed since the last call.
    #[inline]
    fn update(&mut self) {
        if self.switch.generation() != self.generation {
            self.fetch();
        }
    }

    #[cold]
    fn fetch(&mut self) {
        self.generation = self.switch.generation();
        let mut before = std::mem::take(&mut self.active);
        for armed in self.switch.armed() {
            let known = before.iter().position(|active| active.armed.id == armed.id);
            self.active.push(match known {
                Some(index) => before.swap_remove(index),
                // Faults with the same seed must draw different random numbers.
                None => {
                    let seed = armed.fault.seed ^ armed.id.rotate_left(32);
                    Active {
                        random: Random::for_part(seed, self.part),
                        armed,
                        reported: false,
                    }
                }
            });
        }
    }

    /// Index of the fault that hits a request, if any.
    fn hit(&mut self, request: &Request) -> Option<usize> {
        self.active
            .iter_mut()
            .position(|active| active.hits(request, &self.info, &self.clock))
    }

    #[cold]
    fn inject(&mut self, index: usize, mut request: Request) {
        let block_bytes = u64::from(self.info.block_bytes);
        let Active { armed, random, .. } = &mut self.active[index];
        let tag = request.tag;
        debug_assert!(
            self.marked.iter().all(|mark| mark.tag != tag),
            "tags of outstanding requests are unique"
        );
        let answer = |request: Request, result| Completion {
            tag: request.tag,
            buf: request.buf,
            result,
        };
        if let Some(error) = armed.error(&request, &self.info) {
            if !error.is_recovered() {
                return self.ready.push(answer(request, Err(error)));
            }
            self.marked.push(Mark {
                tag,
                effect: Effect::Report(error),
            });
            return self.below.push_back(request);
        }
        match armed.fault.kind {
            FaultEffect::Drop | FaultEffect::Flaky { .. } => {
                return self.ready.push(answer(request, Ok(())));
            }
            FaultEffect::Hang => {
                return self.held.push(Held {
                    until: Until::Gone(armed.id),
                    request,
                });
            }
            FaultEffect::Slow(by) => {
                let until = Until::Time(self.clock.now().after(by));
                return self.held.push(Held { until, request });
            }
            FaultEffect::SlowBy(factor) => {
                let start = self.clock.now();
                self.marked.push(Mark {
                    tag,
                    effect: Effect::Stretch { start, factor },
                });
            }
            FaultEffect::Torn { blocks } => request.len = u64::from(blocks) * block_bytes,
            FaultEffect::Corrupt => {
                let bit = random.below(request.len * 8);
                if request.op == Op::Write {
                    flip(&mut request.buf, bit);
                }
                self.marked.push(Mark {
                    tag,
                    effect: Effect::Flip { bit },
                });
            }
            FaultEffect::Misdirect { blocks } => {
                request.offset = misdirected(&request, &self.info, blocks, random);
            }
            FaultEffect::BadBlocks { .. } => {
                let (first, last) = touched(&request, self.info.block_bytes);
                let armed = Arc::clone(armed);
                self.marked.push(Mark {
                    tag,
                    effect: Effect::Cure { armed, first, last },
                });
            }
            kind => unreachable!("{kind} completes with an error before this point"),
        }
        self.below.push_back(request);
    }

    /// Releases requests that are due, then submits them.
    fn pass_down(&mut self) {
        if !self.held.is_empty() {
            let now = self.clock.now();
            let mut index = 0;
            while index < self.held.len() {
                let over = match self.held[index].until {
                    Until::Time(time) => time <= now,
                    Until::Gone(id) => self.active.iter().all(|active| active.armed.id != id),
                };
                if over {
                    let held = self.held.remove(index);
                    self.below.push_back(held.request);
                } else {
                    index += 1;
                }
            }
        }
        if !self.below.is_empty() {
            self.inner.submit(&mut self.below);
            assert!(
                self.below.is_empty(),
                "the device below has room for what was admitted"
            );
        }
    }

    #[cold]
    fn poll_slowly(&mut self, done: &mut Vec<Completion>) {
        self.pass_down();
        done.append(&mut self.ready);
        let mut above = std::mem::take(&mut self.above);
        self.inner.poll(&mut above);
        for mut one in above.drain(..) {
            let Some(index) = self.marked.iter().position(|mark| mark.tag == one.tag) else {
                done.push(one);
                continue;
            };
            match self.marked.swap_remove(index).effect {
                Effect::Report(error) => one.result = one.result.and(Err(error)),
                Effect::Flip { bit } => flip(&mut one.buf, bit),
                Effect::Cure { armed, first, last } if one.result.is_ok() => {
                    armed.cure(first, last, &self.info);
                }
                Effect::Cure { .. } => {}
                Effect::Stretch { start, factor } => {
                    let took = self.clock.now().since(start);
                    // Casting an excessive float saturates at the maximum time.
                    let due = start
                        .0
                        .saturating_add((took.as_nanos() as f64 * factor) as u64);
                    self.late.push((Nanos(due), one));
                    continue;
                }
            }
            done.push(one);
        }
        self.above = above;
        if !self.late.is_empty() {
            let now = self.clock.now();
            let mut index = 0;
            while index < self.late.len() {
                if self.late[index].0 <= now {
                    done.push(self.late.remove(index).1);
                } else {
                    index += 1;
                }
            }
        }
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
}

#[cfg(test)]
mod tests;
