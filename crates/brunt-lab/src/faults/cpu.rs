//! Processor time taken away: a stated share of stated cores, by threads that really compete for it.
//!
//! On each core, threads compute until together they have had their share of the time that went by,
//! and then sleep. On an idle core one would do; against others the scheduler has to give them as much.
//! Where the machine allows a raised priority (root, or `ulimit -e`), a few with priority -19 get it;
//! elsewhere there are so many of them that their part is at least the share.
//!
//! Where the kernel first shares a core among sessions (`kernel.sched_autogroup_enabled`) or control
//! groups, threads win only against those of their own: programs started elsewhere keep their part.
//!
//! The rule: what counts is the processor time that the threads really got, measured by the kernel; it
//! is reported beside the share that was asked for, and too little of it is an error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Cost, Nanos};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::sys;
use crate::{Fault, FaultError, Proof};

/// Competing threads of other programs for each core that the hog has to win against. With more of them
/// it takes less than stated, and says so.
const COMPETITORS: f64 = 2.0;
/// One before the highest, which links have: a busy host does not make its wire slow.
const PRIORITY: i32 = -19;
/// With it a thread weighs 71755 to 1024, so one takes 98.6% of a core from a usual one.
const RAISED_THREADS: u64 = 2;
/// Most threads for each core without it: enough for 99% against one competitor.
const THREADS_MAX: u64 = 200;
/// How long a thread computes before it looks at the clock.
const CHUNK: u32 = 2000;
/// In which the share is kept; a thread sleeps no longer.
const PERIOD: Duration = Duration::from_millis(10);
/// Time that was missed is made up for, up to so much.
const DEBT_MAX: Duration = Duration::from_millis(100);
/// How long the share is measured for the proof.
const PROOF_TIME: Duration = Duration::from_millis(300);
/// How often that is tried until it shows: threads take a while to spread.
const PROOF_TRIES: u32 = 5;
/// The share may be so much smaller than stated.
const SHARE_SLACK: f64 = 0.03;

/// Takes a share of some cores.
pub struct CpuHog {
    share: f64,
    cores: Vec<usize>,
    running: Option<Running>,
}

struct Running {
    stop: Arc<AtomicBool>,
    /// Processor time that each thread had, in nanoseconds.
    used: Arc<[AtomicU64]>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    raised: bool,
}

impl CpuHog {
    /// Of a share (0 to 1) of each of these cores, numbered as the kernel does.
    pub fn new(share: f64, cores: &[usize]) -> CpuHog {
        CpuHog { share: share.clamp(0.0, 1.0), cores: cores.to_vec(), running: None }
    }

    /// Share of the cores that the hog had since it began to run, or over `time`.
    fn measure(&self, clock: &Clock, time: Duration) -> f64 {
        let Some(running) = &self.running else { return 0.0 };
        let total = || running.used.iter().map(|used| used.load(Ordering::Relaxed)).sum::<u64>();
        let (start, before) = (clock.now(), total());
        std::thread::sleep(time);
        let (end, after) = (clock.now(), total());
        (after - before) as f64 / (end.0 - start.0).max(1) as f64 / self.cores.len() as f64
    }

    /// What the hog really takes, measured over so long; nothing when it is not injected.
    pub fn taken(&self, clock: &Clock, time: Duration) -> f64 {
        self.measure(clock, time)
    }

    fn start(&self) -> io::Result<Running> {
        let raised = may_raise();
        let threads_each = match raised {
            true => RAISED_THREADS,
            false => ((COMPETITORS * self.share / (1.0 - self.share).max(0.001)).ceil() as u64 + 1)
                .min(THREADS_MAX),
        };
        let count = threads_each as usize * self.cores.len();
        let mut running = Running {
            stop: Arc::default(),
            used: (0..count).map(|_| AtomicU64::new(0)).collect(),
            threads: Vec::new(),
            raised,
        };
        let share_each = self.share / threads_each as f64;
        for number in 0..count {
            let core = self.cores[number / threads_each as usize];
            let (stop, used) = (running.stop.clone(), running.used.clone());
            let body = move || burn(core, share_each, raised, &stop, &used[number]);
            let started = std::thread::Builder::new().name("cpu hog".into()).stack_size(64 << 10).spawn(body);
            // When one cannot be started, dropping `running` ends the others.
            running.threads.push(started?);
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Fault for CpuHog {
    fn describe(&self) -> String {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        format!("cpu hog, {:.0}% of core {}", self.share * 100.0, cores.join(", "))
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        if self.running.is_some() {
            return Err(FaultError::Misuse { fault, what: "it is injected already" });
        }
        if self.cores.is_empty() {
            return Err(FaultError::Misuse { fault, what: "it is for no core at all" });
        }
        let refused = |what: &str, source| FaultError::Refused {
            fault: fault.clone(),
            what: what.into(),
            source,
            advice: Some("a core has to be one that this process may use; see taskset -p $$".into()),
        };
        let at = clock.now();
        let running = self.start().map_err(|error| refused("cannot start its threads", error))?;
        let threads = running.threads.len();
        let how = if running.raised { "with priority -19" } else { "with usual priority" };
        self.running = Some(running);
        let mut taken = 0.0;
        for _ in 0..PROOF_TRIES {
            taken = self.measure(clock, PROOF_TIME);
            let ended = self.running.as_mut().and_then(|running| {
                let ended = running.threads.iter().position(JoinHandle::is_finished)?;
                Some(running.threads.swap_remove(ended))
            });
            if let Some(thread) = ended {
                self.running = None;
                let error = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
                return Err(refused(
                    "a thread ended",
                    error.err().unwrap_or_else(|| io::Error::other("early")),
                ));
            }
            if taken >= self.share - SHARE_SLACK {
                let what = format!("{threads} threads {how} take {:.1}%", taken * 100.0);
                return Ok(Proof { at, seen: clock.now(), what, value: Some(taken) });
            }
        }
        self.running = None;
        let seen = format!("{threads} threads {how} took {:.1}% only; others compete harder", taken * 100.0);
        Err(FaultError::NotShown { fault, seen })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        let Some(running) = self.running.take() else {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it was not injected" });
        };
        let used = running.used.clone();
        let threads = running.threads.len();
        drop(running);
        let total = || used.iter().map(|used| used.load(Ordering::Relaxed)).sum::<u64>();
        let before = total();
        std::thread::sleep(PERIOD);
        let after = total();
        // Each thread holds its count; one that lives has another hand on it.
        let (alive, what) =
            (Arc::strong_count(&used) - 1, format!("{threads} threads ended and take nothing"));
        if alive > 0 || after != before {
            let seen = format!("{alive} threads still run");
            return Err(FaultError::NotGone { fault: self.describe(), seen });
        }
        Ok(Proof { at, seen: clock.now(), what, value: Some(0.0) })
    }
}

/// Whether threads of this process may have priority -20; tried on a thread of its own.
fn may_raise() -> bool {
    std::thread::spawn(|| sys::raise_priority(PRIORITY).is_ok()).join().unwrap_or(false)
}

/// Computes for `share` of the time that goes by, until it is told to stop.
fn burn(core: usize, share: f64, raised: bool, stop: &AtomicBool, used: &AtomicU64) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)?;
    if raised {
        sys::raise_priority(PRIORITY)?;
    }
    let clock = Clock::Monotonic;
    let (start, cost) = (clock.now(), Cost::of_thread());
    // Time that is given up because it could not be had.
    let mut forgiven = 0u64;
    let debt_max = DEBT_MAX.as_nanos() as u64;
    let mut number = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..CHUNK {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        let had = Cost::of_thread().since(cost).cpu().as_nanos() as u64;
        used.store(had, Ordering::Relaxed);
        let now: Nanos = clock.now();
        let due = ((now.0 - start.0) as f64 * share) as u64;
        let owed = due.saturating_sub(forgiven + had);
        if owed > debt_max {
            forgiven += owed - debt_max;
        }
        if owed == 0 {
            std::thread::sleep(PERIOD.mul_f64((1.0 - share).clamp(0.01, 1.0)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_core() -> usize {
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).rev().find(|core| set.is_set(*core)).unwrap()
    }

    /// The goal: the share is taken from a competing thread, as the kernel counts, and given back.
    #[test]
    fn takes_its_share_and_gives_it_back() {
        let clock = Clock::default();
        let mut hog = CpuHog::new(0.25, &[a_core()]);
        // On a core that others keep busy with real-time priority it says that it took too little.
        let mut tries = (0..20).map(|_| hog.inject(&clock));
        let injected = tries.find(|result| !matches!(result, Err(FaultError::NotShown { .. })));
        let proof = injected.expect("a quarter of a core is to be had within half a minute").unwrap();
        assert!(proof.value.unwrap() >= 0.22, "{proof:?}");
        hog.remove(&clock).unwrap();
        assert_eq!(hog.taken(&clock, Duration::from_millis(1)), 0.0);
        assert!(matches!(hog.remove(&clock), Err(FaultError::Misuse { .. })));
    }

    /// The goal: a core that is not there is refused, with no thread left behind.
    #[test]
    fn refuses_a_core_that_is_not_there() {
        for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU + 5] {
            let error = CpuHog::new(0.5, &[core]).inject(&Clock::default()).unwrap_err();
            assert!(matches!(error, FaultError::Refused { .. }), "{error}");
        }
    }
}
