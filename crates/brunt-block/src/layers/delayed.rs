//! `delay=…`: adds a service time to completions, like SPEK's emulated arrays of 100 µs and 10 µs (2005). A request
//! reaches the lower device at once; its completion is held until its service time has passed since `submit`, or until
//! the lower device completes it, whichever is later. A layer with a known delay therefore also shows the measurement
//! error.
//!
//! All requests are served in parallel, unless `servers=N`: then N requests are in service at a time and the others
//! queue for the first free server. Servers belong to an open device, and therefore to one thread. With `shared`, all
//! threads queue for the same servers, as for a single disk, which costs a lock per batch. A disk (`disk:`,
//! [`super::disk`]) has one server, its arm, for all threads.
//!
//! Time comes from the [`Clock`], never from the OS. On the monotonic clock, [`Ring::enter`] meets deadlines to within
//! a few microseconds; on a manual clock, a test simulates an hour of delays in a millisecond by entering the ring with
//! `Nanos(0)`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brunt_core::random::Random;
use brunt_core::units::parse_duration;
use brunt_core::{Clock, Nanos};

use super::disk::{Arm, DiskMistake, DiskModel};
use crate::open::{LayerEntry, OpenError, bad_value};
use crate::sparse::Allocation;
use crate::{
    Backend, Buf, Completion, Device, DeviceError, DeviceInfo, MediumState, Request, Ring,
};

const FORMS: &str = "write const:100us, uniform:50us-150us, exp:100us or \
    lognormal:100us,sigma=0.5, optionally followed by ,servers=4 ,shared or ,seed=7; or \
    disk:55MB/s-39MB/s, optionally followed by ,seek=600us-12ms ,rpm=10000 ,zones=16 or ,seed=7";
const SERVERS_MAX: u32 = 65_536;

/// The table entry.
pub const ENTRY: LayerEntry = LayerEntry {
    name: "delay",
    help: "adds a service time: const:TIME, uniform:TIME-TIME, exp:MEAN or lognormal:MEAN,sigma=S, \
     optionally followed by ,servers=N ,shared ,seed=N; or a disk's, by position: disk:RATE-RATE, optionally \
     followed by ,seek=TIME-TIME ,rpm=N ,zones=N ,seed=N",
    example: "const:100us",
    wrap: |inner, value| {
        Ok(Arc::new(DelayedBackend::new(
            inner,
            parse(value)?,
            Clock::Monotonic,
        )))
    },
    preview: None,
    file: None,
};

/// Distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceTime {
    /// Constant.
    Constant(Duration),
    /// Uniformly distributed between these two.
    Uniform(Duration, Duration),
    /// Exponential with this mean.
    Exponential(Duration),
    /// Log-normal: the mean of the time itself, and the standard deviation of its logarithm.
    LogNormal(Duration, f64),
    /// Depends on the request's position.
    Disk(DiskModel),
}

/// The configuration of the layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// Service time of each request.
    pub service: ServiceTime,
    /// Maximum number of requests in service at once; `None`: unlimited.
    pub servers: Option<u32>,
    /// Whether all open devices share the same servers.
    pub shared: bool,
    /// Seed of the service times, from which each open device draws its own sequence.
    pub seed: u64,
}

/// Parses the value of `delay=`.
fn parse(text: &str) -> Result<Delay, OpenError> {
    let wrong = || bad_value("delay", text, FORMS);
    let mut parts = text.split(',');
    let (kind, times) = parts
        .next()
        .and_then(|first| first.split_once(':'))
        .ok_or_else(wrong)?;
    let of_disk = |mistake: DiskMistake| match mistake {
        DiskMistake::Unit(error) => OpenError::from(error),
        DiskMistake::Form(right) => bad_value("delay", text, right),
    };
    let mut disk = (kind == "disk")
        .then(|| DiskModel::of_rates(times))
        .transpose()
        .map_err(of_disk)?;
    let mut options = DelayOptions::default();
    for part in parts {
        if part == "shared" {
            options.shared = true;
            continue;
        }
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        if let Some(disk) = &mut disk
            && disk.set(key, value).map_err(of_disk)?
        {
            continue;
        }
        options.set(key, value).ok_or_else(wrong)?;
    }
    options.check(kind, text)?;
    if let Some(disk) = disk {
        if options.servers.is_some() || options.shared {
            return Err(bad_value(
                "delay",
                text,
                "a disk has one arm for all threads: omit servers and shared",
            ));
        }
        return Ok(Delay {
            service: ServiceTime::Disk(disk),
            servers: Some(1),
            shared: true,
            seed: options.seed,
        });
    }
    let service = parse_service(text, kind, times, options.sigma)?;
    if options.shared && options.servers.is_none() {
        return Err(bad_value(
            "delay",
            text,
            "shared needs a number of servers, such as servers=1",
        ));
    }
    Ok(Delay {
        service,
        servers: options.servers,
        shared: options.shared,
        seed: options.seed,
    })
}

/// The options after the distribution.
#[derive(Default)]
struct DelayOptions {
    sigma: Option<f64>,
    servers: Option<u32>,
    shared: bool,
    seed: u64,
}

impl DelayOptions {
    /// Sets one option; `None` if it doesn't exist or has an invalid value.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "sigma" => self.sigma = Some(value.parse().ok()?),
            "servers" => self.servers = Some(value.parse().ok()?),
            "seed" => self.seed = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// Checks the options of a distribution of this kind; `text` is the whole value.
    fn check(&self, kind: &str, text: &str) -> Result<(), OpenError> {
        let wrong = |right| Err(bad_value("delay", text, right));
        if self.sigma.is_some() != (kind == "lognormal")
            || self
                .sigma
                .is_some_and(|sigma| !(0.0..=10.0).contains(&sigma))
        {
            return wrong("lognormal needs a sigma from 0 to 10; no other distribution has one");
        }
        if self
            .servers
            .is_some_and(|servers| servers == 0 || servers > SERVERS_MAX)
        {
            return wrong("write 1 to 65536 servers, or omit servers for no limit");
        }
        Ok(())
    }
}

/// Parses a distribution that doesn't depend on positions.
fn parse_service(
    text: &str,
    kind: &str,
    times: &str,
    sigma: Option<f64>,
) -> Result<ServiceTime, OpenError> {
    let wrong = || bad_value("delay", text, FORMS);
    Ok(match (kind, sigma) {
        ("const", _) => ServiceTime::Constant(parse_duration(times)?),
        ("exp", _) => ServiceTime::Exponential(parse_duration(times)?),
        ("lognormal", Some(sigma)) => ServiceTime::LogNormal(parse_duration(times)?, sigma),
        ("uniform", _) => {
            let (least, most) = times.split_once('-').ok_or_else(wrong)?;
            let (least, most) = (parse_duration(least)?, parse_duration(most)?);
            if least > most {
                return Err(bad_value("delay", text, "write the shorter time first"));
            }
            ServiceTime::Uniform(least, most)
        }
        _ => return Err(wrong()),
    })
}

impl ServiceTime {
    /// Draws the service time of a request to a device of `size` bytes; `arm` is a disk's arm.
    fn draw(&self, request: &Request, size: u64, arm: &mut Arm, random: &mut Random) -> u64 {
        let nanos = |time: Duration| time.as_nanos() as f64;
        // Casting an excessive float saturates at the maximum time.
        match *self {
            ServiceTime::Constant(time) => time.as_nanos() as u64,
            ServiceTime::Uniform(least, most) => {
                least.as_nanos() as u64 + random.below((most - least).as_nanos() as u64 + 1)
            }
            ServiceTime::Exponential(mean) => random.exponential(nanos(mean)).round() as u64,
            // The mean of exp(N(m, s)) is exp(m + s²/2).
            ServiceTime::LogNormal(mean, sigma) => {
                (nanos(mean) * (sigma * random.normal() - sigma * sigma / 2.0).exp()).round() as u64
            }
            ServiceTime::Disk(disk) => disk.service(arm, request.offset, request.len, size, random),
        }
    }
}

/// A backend that adds a service time to completions.
pub struct DelayedBackend {
    inner: Arc<dyn Backend>,
    info: DeviceInfo,
    delay: Delay,
    clock: Clock,
    opened: AtomicU64,
    shared: Option<Servers>,
}

/// The servers, and the arm of a disk.
struct Crew {
    /// When each server becomes free.
    free: BinaryHeap<Reverse<u64>>,
    /// Used only by a disk.
    arm: Arm,
}

type Servers = Arc<Mutex<Crew>>;

fn idle(count: u32) -> Servers {
    Arc::new(Mutex::new(Crew {
        free: (0..count).map(|_| Reverse(0)).collect(),
        arm: Arm::default(),
    }))
}

impl DelayedBackend {
    /// Stacks `delay` on `inner`.
    pub fn new(inner: Arc<dyn Backend>, delay: Delay, clock: Clock) -> DelayedBackend {
        let mut info = inner.info().clone();
        let servers = match delay.servers {
            Some(count) if delay.shared => format!("{count} requests at a time across all threads"),
            Some(count) => format!("{count} requests at a time per thread"),
            None => "no queueing".to_string(),
        };
        info.notes.push(format!(
            "emulated service time {:?}, {servers}",
            delay.service
        ));
        let shared = delay.servers.filter(|_| delay.shared).map(idle);
        DelayedBackend {
            inner,
            info,
            delay,
            clock,
            opened: AtomicU64::new(0),
            shared,
        }
    }
}

impl Backend for DelayedBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let part = self.opened.fetch_add(1, Ordering::Relaxed);
        let capacity = depth as usize;
        Ok(Box::new(DelayedDevice {
            inner: self.inner.open(ring, depth)?,
            info: self.info.clone(),
            service: self.delay.service,
            servers: self.shared.clone().or_else(|| self.delay.servers.map(idle)),
            random: Random::for_part(self.delay.seed, part),
            clock: self.clock.clone(),
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            below: VecDeque::with_capacity(capacity),
            above: Vec::with_capacity(capacity),
            held: BinaryHeap::with_capacity(capacity),
            sequence: 0,
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

    fn handles(&self) -> crate::Handles {
        self.inner.handles()
    }
}

struct Slot {
    tag: u64,
    due: Nanos,
    /// Position in order of arrival; requests due at the same time complete in this order.
    sequence: u64,
    buf: Buf,
    result: Result<(), DeviceError>,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            tag: 0,
            due: Nanos(0),
            sequence: 0,
            buf: Buf::empty(),
            result: Ok(()),
        }
    }
}

struct DelayedDevice {
    inner: Box<dyn Device>,
    info: DeviceInfo,
    service: ServiceTime,
    servers: Option<Servers>,
    random: Random,
    clock: Clock,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Requests for the lower device, tagged with their slot index.
    below: VecDeque<Request>,
    above: Vec<Completion>,
    /// Completed by the lower device; ordered by due time, then by arrival.
    held: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    sequence: u64,
}

impl Device for DelayedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        let now = self.clock.now();
        let mut servers = self
            .servers
            .as_ref()
            .map(|servers| servers.lock().unwrap_or_else(PoisonError::into_inner));
        while !batch.is_empty() {
            let Some(index) = self.free.pop() else { break };
            let mut request = batch.pop_front().expect("the batch is not empty");
            let (size, random) = (self.info.size_bytes, &mut self.random);
            let (start, service) = match &mut servers {
                Some(crew) => {
                    let service = self.service.draw(&request, size, &mut crew.arm, random);
                    let mut server = crew
                        .free
                        .peek_mut()
                        .expect("a queue has at least one server");
                    let start = now.0.max(server.0);
                    server.0 = start.saturating_add(service);
                    (start, service)
                }
                None => (
                    now.0,
                    self.service
                        .draw(&request, size, &mut Arm::default(), random),
                ),
            };
            self.sequence += 1;
            let slot = &mut self.slots[index as usize];
            slot.tag = request.tag;
            slot.due = Nanos(start.saturating_add(service));
            slot.sequence = self.sequence;
            request.tag = u64::from(index);
            self.below.push_back(request);
        }
        drop(servers);
        self.exchange();
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.exchange();
        if self.held.is_empty() {
            return;
        }
        let now = self.clock.now();
        while let Some(&Reverse((due, _, index))) = self.held.peek()
            && due <= now
        {
            self.held.pop();
            let slot = &mut self.slots[index as usize];
            done.push(Completion {
                tag: slot.tag,
                buf: std::mem::take(&mut slot.buf),
                result: slot.result,
            });
            self.free.push(index);
        }
    }

    fn outstanding(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    fn deadline(&self) -> Nanos {
        let held = self
            .held
            .peek()
            .map_or(Nanos::MAX, |Reverse((due, _, _))| *due);
        held.min(self.inner.deadline())
    }

    fn health(&self) -> crate::Health {
        self.inner.health()
    }

    fn cancel(&mut self, tag: u64) {
        // Cancelling is rare, so a linear search is good enough. A request whose completion is held back has already
        // been executed and stays.
        let taken =
            |index: &usize| !self.free.contains(&(*index as u32)) && self.slots[*index].tag == tag;
        if let Some(index) = (0..self.slots.len()).find(taken) {
            self.inner.cancel(index as u64);
        }
    }
}

impl DelayedDevice {
    /// Submits requests to the lower device and stores its completions in the slots.
    fn exchange(&mut self) {
        if !self.below.is_empty() {
            self.inner.submit(&mut self.below);
        }
        self.inner.poll(&mut self.above);
        for one in self.above.drain(..) {
            let slot = &mut self.slots[one.tag as usize];
            slot.buf = one.buf;
            slot.result = one.result;
            self.held
                .push(Reverse((slot.due, slot.sequence, one.tag as u32)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::null::NullBackend;
    use crate::{Op, RingConfig};

    /// A delayed null device on a manual clock.
    struct Bench {
        clock: Clock,
        ring: Ring,
        device: Box<dyn Device>,
    }

    impl Bench {
        fn new(spec: &str, depth: u32) -> Bench {
            let clock = Clock::manual();
            let ring = Ring::new(RingConfig::default()).unwrap();
            let inner = Arc::new(NullBackend::new(1 << 30, 512));
            let backend = DelayedBackend::new(inner, parse(spec).unwrap(), clock.clone());
            let device = backend.open(&ring, depth).unwrap();
            Bench {
                clock,
                ring,
                device,
            }
        }

        fn submit(&mut self, tags: std::ops::Range<u64>) {
            let request = |tag| Request {
                tag,
                op: Op::Read,
                offset: 0,
                len: 512,
                buf: self.ring.pool().take(512),
                force_unit_access: false,
            };
            let mut batch: VecDeque<_> = tags.map(request).collect();
            self.device.submit(&mut batch);
            assert!(batch.is_empty());
        }

        /// Advances the clock from deadline to deadline; returns each tag with its completion time.
        fn finish(&mut self) -> Vec<(u64, u64)> {
            let (mut log, mut done) = (Vec::new(), Vec::new());
            while self.device.outstanding() > 0 {
                let wait = self.device.deadline().since(self.clock.now());
                self.clock.advance(wait);
                self.ring.enter(Nanos(0)).unwrap();
                self.device.poll(&mut done);
                log.extend(done.drain(..).map(|one| (one.tag, self.clock.now().0)));
            }
            log
        }
    }

    /// Requests complete in parallel, each exactly at its due time.
    #[test]
    fn requests_complete_in_parallel_at_their_due_times() {
        let mut bench = Bench::new("const:100us", 8);
        bench.submit(0..3);
        bench.clock.advance(Duration::from_nanos(99_999));
        let mut done = Vec::new();
        bench.device.poll(&mut done);
        assert!(done.is_empty());
        bench.submit(3..4);
        assert_eq!(
            bench.finish(),
            [(0, 100_000), (1, 100_000), (2, 100_000), (3, 199_999)]
        );
    }

    #[test]
    fn requests_queue_for_the_first_free_server() {
        let mut bench = Bench::new("const:1ms,servers=2", 8);
        bench.submit(0..5);
        let times: Vec<_> = bench
            .finish()
            .iter()
            .map(|(tag, at)| (*tag, at / 1_000_000))
            .collect();
        assert_eq!(times, [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3)]);
    }

    /// All devices of a backend use the same shared servers.
    #[test]
    fn devices_share_the_backends_servers() {
        let mut bench = Bench::new("const:1ms,servers=1,shared", 8);
        let clock = bench.clock.clone();
        let inner = Arc::new(NullBackend::new(1 << 30, 512));
        let backend =
            DelayedBackend::new(inner, parse("const:1ms,servers=1,shared").unwrap(), clock);
        let mut other = backend.open(&bench.ring, 8).unwrap();
        bench.device = backend.open(&bench.ring, 8).unwrap();
        let buf = bench.ring.pool().take(512);
        let request = Request {
            tag: 9,
            op: Op::Read,
            offset: 0,
            len: 512,
            buf,
            force_unit_access: false,
        };
        other.submit(&mut VecDeque::from([request]));
        bench.submit(0..2);
        assert_eq!(bench.finish(), [(0, 2_000_000), (1, 3_000_000)]);
    }

    /// A disk serves one request at a time in order of arrival, at the transfer rate of each request's position.
    #[test]
    fn a_disk_has_one_arm() {
        let mut bench = Bench::new("disk:512MB/s-256MB/s,zones=2,seek=1ms-1ms", 8);
        bench.submit(0..3);
        let times = bench.finish();
        // The first request starts at the arm's position; the second one returns there, which takes a seek and up to
        // a revolution.
        assert_eq!(times[0], (0, 1_000));
        for (before, after) in times.iter().zip(&times[1..]) {
            let took = after.1 - before.1;
            assert!((1_001_000..7_001_000).contains(&took), "{took}");
        }
    }

    /// The distributions have the specified means and deviations, over hours of delays.
    #[test]
    fn distributions_have_their_means_and_deviations() {
        let check = |spec: &str, mean_us: f64, deviation_us: f64| {
            let mut bench = Bench::new(spec, 1);
            let n = 40_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for tag in 0..n {
                let start = bench.clock.now().0;
                bench.submit(tag..tag + 1);
                let took = (bench.finish()[0].1 - start) as f64 / 1000.0;
                sum += took;
                squares += took * took;
            }
            let mean = sum / n as f64;
            let deviation = (squares / n as f64 - mean * mean).max(0.0).sqrt();
            assert!(
                (mean / mean_us - 1.0).abs() < 0.02,
                "{spec}: mean {mean} µs, not {mean_us}"
            );
            assert!(
                (deviation - deviation_us).abs() <= 0.05 * mean_us,
                "{spec}: deviation {deviation} µs"
            );
        };
        check("const:10ms", 10_000.0, 0.0);
        check("uniform:50us-150us,seed=1", 100.0, 100.0 / 12f64.sqrt());
        check("exp:100ms,seed=2", 100_000.0, 100_000.0);
        // The deviation of a log-normal is mean · sqrt(exp(s²) - 1).
        check(
            "lognormal:100us,sigma=0.5,seed=3",
            100.0,
            100.0 * (0.25f64.exp() - 1.0).sqrt(),
        );
    }

    /// The same seed gives the same times; another device of the same backend gets different ones.
    #[test]
    fn a_seed_determines_the_delays_of_each_device() {
        let times = |spec: &str| {
            let mut bench = Bench::new(spec, 16);
            bench.submit(0..16);
            bench.finish()
        };
        assert_eq!(times("exp:1ms,seed=5"), times("exp:1ms,seed=5"));
        assert_ne!(times("exp:1ms,seed=5"), times("exp:1ms,seed=6"));
    }

    #[test]
    fn invalid_values_are_rejected_with_the_valid_forms() {
        for text in [
            "",
            "100us",
            "const",
            "const:100",
            "const:1us,sigma=1",
            "lognormal:1us",
            "lognormal:1us,sigma=-1",
            "uniform:1us",
            "uniform:2us-1us",
            "const:1us,servers=0",
            "const:1us,shared",
            "const:1us,speed=9",
            "gamma:1us",
            "lognormal:1us,sigma=NaN",
            "disk:55MB",
            "disk:55MB/s,servers=2",
            "disk:55MB/s,shared",
            "disk:55MB/s,sigma=1",
            "disk:55MB/s,rpm=0",
            "const:1us,rpm=7200",
        ] {
            assert!(parse(text).is_err(), "'{text}' was taken");
        }
        let delay = parse("lognormal:100us,sigma=0.5,servers=4,seed=7").unwrap();
        assert_eq!(
            delay.service,
            ServiceTime::LogNormal(Duration::from_micros(100), 0.5)
        );
        assert_eq!((delay.servers, delay.seed), (Some(4), 7));
    }
}
