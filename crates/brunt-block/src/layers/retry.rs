//! `retry=N`: a controller that retries a failed request up to N times before reporting the error to the initiator.
//! SPEK, 2005, section 3.3.2, notes that its iSCSI target lacks this: without it, every transient disk error costs a
//! network round trip. Also turns recovered errors into plain successes.
//!
//! Retries errors that may not recur: medium and hardware errors, aborted commands, BUSY, TASK SET FULL, NOT READY,
//! unit attentions, unreachable storage, timeouts, and EIO, EAGAIN, EINTR and EBUSY. Reservation conflicts, invalid
//! requests and a device that is gone are reported at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brunt_core::units::{format_duration, parse_duration};
use brunt_core::{Clock, Nanos};

use crate::control::{
    Arguments, CommandEntry, CommandError, Controllable, Fields, Handles, PartFigure, PartFigures,
    Value,
};
use crate::open::{LayerEntry, OpenError, bad_value};
use crate::sparse::Allocation;
use crate::{
    Backend, Buf, Completion, Device, DeviceError, DeviceInfo, Health, MediumState, Op,
    RefusalKind, Request, Ring,
};

const FORMS: &str = "write the number of retries, 1 to 1000, as in retry=5, optionally with ,delay=1ms ,off ,name=NAME";
const TRIES_MAX: u32 = 1000;

/// The table entry.
pub const ENTRY: LayerEntry = LayerEntry {
    name: "retry",
    help: "retries a failed request up to N times before reporting the error: N, optionally \
        followed by ,delay=TIME between tries, ,off (until turned on), ,name=NAME",
    example: "5,delay=100us",
    wrap: |inner, value| Ok(Arc::new(parse(inner, value)?)),
    preview: None,
    file: None,
};

fn parse(inner: Arc<dyn Backend>, text: &str) -> Result<RetryBackend, OpenError> {
    let wrong = || bad_value("retry", text, FORMS);
    let mut words = text.split(',');
    let tries = words
        .next()
        .and_then(|first| first.parse().ok())
        .ok_or_else(wrong)?;
    if !(1..=TRIES_MAX).contains(&tries) {
        return Err(wrong());
    }
    let (mut delay, mut on, mut name) = (Duration::ZERO, true, "retry");
    for word in words {
        match word.split_once('=') {
            None if word == "off" => on = false,
            Some(("delay", time)) => delay = parse_duration(time)?,
            Some(("name", word)) if !word.is_empty() && !word.contains('/') => name = word,
            _ => return Err(wrong()),
        }
    }
    let switch = RetrySwitch::new(name, on);
    Ok(RetryBackend::new(
        inner,
        tries,
        delay,
        switch,
        Clock::Monotonic,
    ))
}

/// Switches a layer's retries on and off while requests run, and counts them.
#[derive(Debug)]
pub struct RetrySwitch {
    name: String,
    on: AtomicBool,
    retries: AtomicU64,
    overcome: AtomicU64,
    recovered: AtomicU64,
    failures: AtomicU64,
}

impl RetrySwitch {
    /// Creates a switch; its name distinguishes it from others on the same device.
    pub fn new(name: &str, on: bool) -> Arc<RetrySwitch> {
        Arc::new(RetrySwitch {
            name: name.to_string(),
            on: AtomicBool::new(on),
            retries: AtomicU64::new(0),
            overcome: AtomicU64::new(0),
            recovered: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Switches retries on or off, starting with the next failure.
    pub fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Whether failures are retried.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Number of retries so far; a request may be retried several times.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Number of requests that succeeded after at least one retry.
    pub fn overcome(&self) -> u64 {
        self.overcome.load(Ordering::Relaxed)
    }

    /// Number of recovered errors reported as plain successes.
    pub fn recovered(&self) -> u64 {
        self.recovered.load(Ordering::Relaxed)
    }

    /// Number of failures reported to the caller.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Controllable for RetrySwitch {
    fn kind(&self) -> &'static str {
        "retry"
    }

    fn commands(&self) -> &'static [CommandEntry] {
        &[CommandEntry {
            name: "retry",
            help: "turns retries on or off, starting with the next failure",
            arguments: &[("on", "true or false")],
        }]
    }

    fn command(&self, _name: &str, arguments: &Arguments) -> Result<Fields, CommandError> {
        self.set(arguments.flag("on")?);
        Ok(Vec::new())
    }

    fn status(&self) -> Fields {
        vec![
            ("on", Value::Flag(self.is_on())),
            ("retries", Value::Count(self.retries())),
            ("overcome", Value::Count(self.overcome())),
            ("recovered", Value::Count(self.recovered())),
            ("told", Value::Count(self.failures())),
        ]
    }

    fn figures(&self) -> PartFigures {
        vec![
            ("retries_per_s", PartFigure::Counter(self.retries())),
            ("failures_per_s", PartFigure::Counter(self.failures())),
        ]
    }
}

/// A backend that retries failed requests.
pub struct RetryBackend {
    inner: Arc<dyn Backend>,
    info: DeviceInfo,
    tries: u32,
    delay: Duration,
    switch: Arc<RetrySwitch>,
    clock: Clock,
}

impl RetryBackend {
    /// Adds up to `tries` retries, `delay` apart, to `inner`.
    pub fn new(
        inner: Arc<dyn Backend>,
        tries: u32,
        delay: Duration,
        switch: Arc<RetrySwitch>,
        clock: Clock,
    ) -> RetryBackend {
        let mut info = inner.info().clone();
        let state = if switch.is_on() { "" } else { ", off" };
        info.notes.push(format!(
            "up to {tries} retries in the device below, {} apart{state}",
            format_duration(delay)
        ));
        RetryBackend {
            inner,
            info,
            tries,
            delay,
            switch,
            clock,
        }
    }
}

impl Backend for RetryBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let capacity = depth as usize;
        Ok(Box::new(RetryDevice {
            inner: self.inner.open(ring, depth)?,
            info: self.info.clone(),
            tries: self.tries,
            delay: self.delay,
            switch: Arc::clone(&self.switch),
            clock: self.clock.clone(),
            slots: vec![Slot::IDLE; capacity],
            free: (0..depth).rev().collect(),
            below: VecDeque::with_capacity(capacity),
            above: Vec::with_capacity(capacity),
            waiting: Vec::new(),
            retries: 0,
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
        let own: Arc<dyn Controllable> = Arc::<RetrySwitch>::clone(&self.switch);
        let own = (self.switch.name().to_string(), own);
        std::iter::once(own).chain(self.inner.handles()).collect()
    }
}

/// The fields needed to resend a request; its buffer is returned with the failure.
#[derive(Clone, Copy)]
struct Slot {
    tag: u64,
    op: Op,
    offset: u64,
    len: u64,
    force_unit_access: bool,
    tries: u32,
    taken: bool,
    cancelled: bool,
}

impl Slot {
    const IDLE: Slot = Slot {
        tag: 0,
        op: Op::Read,
        offset: 0,
        len: 0,
        force_unit_access: false,
        tries: 0,
        taken: false,
        cancelled: false,
    };
}

struct RetryDevice {
    inner: Box<dyn Device>,
    info: DeviceInfo,
    tries: u32,
    delay: Duration,
    switch: Arc<RetrySwitch>,
    clock: Clock,
    slots: Vec<Slot>,
    free: Vec<u32>,
    below: VecDeque<Request>,
    above: Vec<Completion>,
    /// Failed requests with the time of their next attempt.
    waiting: Vec<(Nanos, u32, Buf)>,
    retries: u64,
}

impl Device for RetryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        while !batch.is_empty() {
            let Some(index) = self.free.pop() else { break };
            let mut request = batch.pop_front().expect("the batch is not empty");
            let Request {
                tag,
                op,
                offset,
                len,
                force_unit_access,
                ..
            } = request;
            let (tries, taken, cancelled) = (0, true, false);
            self.slots[index as usize] = Slot {
                tag,
                op,
                offset,
                len,
                force_unit_access,
                tries,
                taken,
                cancelled,
            };
            request.tag = u64::from(index);
            self.below.push_back(request);
        }
        self.inner.submit(&mut self.below);
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        if !self.waiting.is_empty() {
            self.try_again();
        }
        let mut above = std::mem::take(&mut self.above);
        self.inner.poll(&mut above);
        for one in above.drain(..) {
            let index = one.tag as u32;
            let slot = self.slots[index as usize];
            debug_assert!(slot.taken, "each completion has a request");
            match one.result {
                Ok(()) if slot.tries == 0 => self.answer(index, one.buf, Ok(()), done),
                Ok(()) => {
                    self.switch.overcome.fetch_add(1, Ordering::Relaxed);
                    self.answer(index, one.buf, Ok(()), done);
                }
                Err(error) => self.failed(index, error, one.buf, done),
            }
        }
        self.above = above;
    }

    fn outstanding(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    fn deadline(&self) -> Nanos {
        let waiting = self
            .waiting
            .iter()
            .map(|(at, ..)| *at)
            .min()
            .unwrap_or(Nanos::MAX);
        waiting.min(self.inner.deadline())
    }

    fn cancel(&mut self, tag: u64) {
        let taken = |slot: &Slot| slot.taken && slot.tag == tag;
        if let Some(index) = self.slots.iter().position(taken) {
            self.slots[index].cancelled = true;
            self.inner.cancel(index as u64);
        }
    }

    fn health(&self) -> Health {
        let mut health = self.inner.health();
        health.retries += self.retries;
        health
    }
}

impl RetryDevice {
    fn answer(
        &mut self,
        index: u32,
        buf: Buf,
        result: Result<(), DeviceError>,
        done: &mut Vec<Completion>,
    ) {
        let slot = &mut self.slots[index as usize];
        slot.taken = false;
        done.push(Completion {
            tag: slot.tag,
            buf,
            result,
        });
        self.free.push(index);
    }

    #[cold]
    fn failed(&mut self, index: u32, error: DeviceError, buf: Buf, done: &mut Vec<Completion>) {
        let slot = &mut self.slots[index as usize];
        if self.switch.is_on() {
            if error.is_recovered() {
                self.switch.recovered.fetch_add(1, Ordering::Relaxed);
                return self.answer(index, buf, Ok(()), done);
            }
            if slot.tries < self.tries && !slot.cancelled && may_go_well(&error) {
                slot.tries += 1;
                self.retries += 1;
                self.switch.retries.fetch_add(1, Ordering::Relaxed);
                // Even without a delay, the next iteration of the loop resends it, so this code never spins.
                let at = if self.delay.is_zero() {
                    Nanos(0)
                } else {
                    self.clock.now().after(self.delay)
                };
                return self.waiting.push((at, index, buf));
            }
        }
        self.switch.failures.fetch_add(1, Ordering::Relaxed);
        self.answer(index, buf, Err(error), done);
    }

    #[cold]
    fn try_again(&mut self) {
        let now = self.clock.now();
        let mut place = 0;
        while place < self.waiting.len() {
            if self.waiting[place].0 > now {
                place += 1;
                continue;
            }
            let (_, index, buf) = self.waiting.swap_remove(place);
            let Slot {
                op,
                offset,
                len,
                force_unit_access,
                ..
            } = self.slots[index as usize];
            let tag = u64::from(index);
            self.below.push_back(Request {
                tag,
                op,
                offset,
                len,
                buf,
                force_unit_access,
            });
        }
        self.inner.submit(&mut self.below);
    }
}

/// Whether another attempt may succeed.
fn may_go_well(error: &DeviceError) -> bool {
    match error {
        DeviceError::Refused { kind, .. } => matches!(
            kind,
            RefusalKind::Busy
                | RefusalKind::QueueFull
                | RefusalKind::MediumError
                | RefusalKind::HardwareError
                | RefusalKind::Unreachable
                | RefusalKind::Aborted
                | RefusalKind::Attention
                | RefusalKind::NotReady
        ),
        DeviceError::Os(errno) => {
            matches!(*errno, libc::EIO | libc::EAGAIN | libc::EINTR | libc::EBUSY)
        }
        DeviceError::TimedOut => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::memory::MemoryBackend;
    use crate::layers::fault::{DeviceFault, FaultBackend, FaultSwitch};
    use crate::{RingConfig, open_url};

    struct Bench {
        device: Box<dyn Device>,
        ring: Ring,
        retry: Arc<RetrySwitch>,
        clock: Clock,
    }

    fn bench(fault: &str, tries: u32, delay: Duration) -> Bench {
        let clock = Clock::manual();
        let faults = FaultSwitch::new("fault");
        faults.arm(DeviceFault::parse(fault).unwrap()).unwrap();
        let memory = Arc::new(MemoryBackend::new(1 << 20, 512).unwrap());
        let broken = Arc::new(FaultBackend::new(memory, faults, clock.clone()));
        let retry = RetrySwitch::new("retry", true);
        let backend = RetryBackend::new(broken, tries, delay, Arc::clone(&retry), clock.clone());
        let ring = Ring::new(RingConfig::default()).unwrap();
        Bench {
            device: backend.open(&ring, 8).unwrap(),
            ring,
            retry,
            clock,
        }
    }

    impl Bench {
        fn write(&mut self, fill: u8) -> Result<(), DeviceError> {
            let mut buf = self.ring.pool().take(4096);
            buf.fill(fill);
            let request = Request {
                tag: 77,
                op: Op::Write,
                offset: 4096,
                len: 4096,
                buf,
                force_unit_access: true,
            };
            self.device.submit(&mut VecDeque::from([request]));
            let mut done = Vec::new();
            while done.is_empty() {
                let wait = self.device.deadline().since(self.clock.now());
                self.clock.advance(wait);
                self.ring.enter(Nanos(0)).unwrap();
                self.device.poll(&mut done);
            }
            assert_eq!(
                (done[0].tag, done[0].buf.iter().all(|byte| *byte == fill)),
                (77, true)
            );
            done[0].result
        }
    }

    /// A request that fails up to N times succeeds, with its own data; after one more failure, the error is reported.
    /// Each step is counted.
    #[test]
    fn a_request_is_retried_up_to_the_maximum() {
        let mut three = bench("aborted-command,times=3", 3, Duration::ZERO);
        assert_eq!(three.write(1), Ok(()));
        assert_eq!(
            (
                three.retry.retries(),
                three.retry.overcome(),
                three.retry.failures()
            ),
            (3, 1, 0)
        );
        assert_eq!(three.device.health().retries, 3);
        let mut two = bench("aborted-command,times=3", 2, Duration::ZERO);
        assert!(matches!(
            two.write(1),
            Err(DeviceError::Refused {
                kind: RefusalKind::Aborted,
                ..
            })
        ));
        assert_eq!((two.retry.retries(), two.retry.failures()), (2, 1));
    }

    /// The delay separates attempts, and switching retries off works.
    #[test]
    fn retries_are_delayed_and_can_be_switched_off() {
        let mut late = bench("busy,times=2", 5, Duration::from_millis(3));
        assert_eq!(late.write(1), Ok(()));
        assert_eq!(late.clock.now(), Nanos(6_000_000));
        let mut off = bench("busy,times=1", 5, Duration::ZERO);
        off.retry.set(false);
        assert!(off.write(1).is_err());
    }

    /// A recovered error is a success; a reservation conflict is not retried.
    #[test]
    fn reservation_conflicts_are_not_retried() {
        let mut recovered = bench("recovered-error", 5, Duration::ZERO);
        assert_eq!(recovered.write(1), Ok(()));
        assert_eq!(
            (recovered.retry.recovered(), recovered.retry.retries()),
            (1, 0)
        );
        let mut conflict = bench("reservation-conflict", 5, Duration::ZERO);
        assert!(conflict.write(1).is_err());
        assert_eq!(conflict.retry.retries(), 0);
    }

    #[test]
    fn invalid_values_are_rejected() {
        for text in [
            "",
            "0",
            "1001",
            "x",
            "5,delay",
            "5,delay=1",
            "5,on",
            "5,name=",
        ] {
            assert!(
                open_url(&format!("null:1MiB?retry={text}")).is_err(),
                "'{text}' was taken"
            );
        }
    }
}
