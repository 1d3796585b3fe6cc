//! CPU hog: takes a given share of given cores with threads that compete for CPU time.
//!
//! On each core, threads compute until together they have used their share of the elapsed time, then sleep. On an idle
//! core a single thread is enough. Against other load, the hog uses the strongest method that the system permits:
//! - real time (SCHED_FIFO; root, or `ulimit -r 1`): a single thread, which preempts normal ones, for most of the
//!   share. The kernel reserves part of every core from real-time threads, so other threads take the rest;
//! - a raised priority (-19; root, or `ulimit -e 39`): a few threads with seventy times the normal weight;
//! - otherwise as many normal threads as make up the share, and more if that is not enough.
//!
//! If the kernel first divides a core between sessions (`kernel.sched_autogroup_enabled`) or cgroups, threads that are
//! not real-time only take precedence over threads in their own session or cgroup.
//!
//! The rule: what counts is the CPU time that the threads got, as measured by the kernel. It is reported next to the
//! requested share, both at injection and over the whole fault; falling short is an error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos, ResourceUsage};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sys;
use crate::{Fault, FaultError, Proof};

/// Assumed number of competing threads of other programs per core.
const COMPETITORS: f64 = 2.0;
/// One step below the highest priority, which links use, so that a busy host doesn't slow down its link.
const PRIORITY: i32 = -19;
/// At this priority a thread's weight is 71755, compared with the normal 1024, so one thread takes 98.6% of a core from
/// a normal one.
const RAISED_THREADS: u64 = 2;
/// Maximum threads per core: enough for 99% against one competitor at normal priority.
const THREADS_MAX: u64 = 200;
/// The lowest real-time priority: ahead of all normal threads, behind those with deadlines.
const REAL_TIME_PRIORITY: i32 = 1;
/// Maximum share of a core for real-time threads. Above this, the kernel would throttle them (sched_rt_runtime_us,
/// 95% by default); without throttling, they could not be stopped.
const REAL_TIME_SHARE_MAX: f64 = 0.9;
/// Iterations that a thread computes before it checks the clock.
const CHUNK: u32 = 2000;
/// The interval over which the share is maintained; no sleep is longer than this.
const PERIOD: Duration = Duration::from_millis(10);
/// Limit on the missed time that a thread makes up for.
const DEBT_MAX: Duration = Duration::from_millis(100);
/// How long the proof measures the share.
const PROOF_TIME: Duration = Duration::from_millis(300);
/// Maximum measurements for the proof: threads take a while to spread over the cores. After every second failed
/// measurement, threads are added.
const PROOF_TRIES: u32 = 8;
/// Tolerated shortfall of the share.
const SHARE_SLACK: f64 = 0.03;

/// Takes a share of the CPU time of some cores.
pub struct CpuHog {
    share: f64,
    cores: Vec<usize>,
    running: Option<Running>,
}

struct Running {
    team: Team,
    stop: Arc<AtomicBool>,
    /// CPU time used by each thread, in nanoseconds; the threads of a core are adjacent.
    used: Arc<[AtomicU64]>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// When the share was proven, and the total CPU time at that point.
    shown: (Nanos, u64),
}

/// The kinds of threads on each core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Team {
    /// Whether one thread is real-time.
    real_time: bool,
    /// Whether the other threads have a raised priority.
    raised: bool,
    /// Number of threads besides the real-time one.
    others: u64,
}

impl Team {
    /// Describes the shortfall and how to avoid it.
    fn fell_short(&self, taken: f64, time: Duration) -> String {
        let advice = if self.real_time {
            ""
        } else {
            "; allow real-time priority (ulimit -r 1, or root)"
        };
        // Round down, so that the suggested share is one that was reached.
        let share = (taken * 100.0).floor() / 100.0;
        let less = if share > 0.0 {
            format!(", or write cpu = {share}")
        } else {
            String::new()
        };
        format!(
            "{self} received only {:.1}% over {:.2} s because other processes compete for CPU \
             time{advice}{} leave the core to the experiment{less}",
            taken * 100.0,
            time.as_secs_f64(),
            if less.is_empty() { ", or" } else { "," },
        )
    }

    /// The strongest team that the machine allows.
    fn new(share: f64) -> Team {
        let may = |what: fn() -> io::Result<()>| {
            std::thread::spawn(move || what().is_ok())
                .join()
                .unwrap_or(false)
        };
        let real_time = may(|| sys::real_time(REAL_TIME_PRIORITY));
        let raised = may(|| sys::raise_priority(PRIORITY));
        // The part of the time left by the real-time thread that the other threads need.
        let ahead = if real_time {
            share.min(REAL_TIME_SHARE_MAX)
        } else {
            0.0
        };
        let rest = (share - ahead) / (1.0 - ahead);
        let others = match () {
            () if rest <= 0.0 => 0,
            () if raised => RAISED_THREADS,
            () => {
                ((COMPETITORS * rest / (1.0 - rest).max(0.001)).ceil() as u64 + 1).min(THREADS_MAX)
            }
        };
        Team {
            real_time,
            raised,
            others,
        }
    }

    /// The team with more threads; `None` at the maximum.
    fn larger(self) -> Option<Team> {
        let others = (self.others * 2).max(1);
        (others <= THREADS_MAX).then_some(Team { others, ..self })
    }

    fn threads(self) -> u64 {
        self.others + u64::from(self.real_time)
    }
}

impl std::fmt::Display for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.raised {
            "with priority -19"
        } else {
            "with normal priority"
        };
        match (self.real_time, self.others) {
            (true, 0) => write!(f, "a real-time thread per core"),
            (true, others) => write!(f, "a real-time thread and {others} {how} per core"),
            (false, others) => write!(f, "{others} threads {how} per core"),
        }
    }
}

impl CpuHog {
    /// Hogs a share (0 to 1) of each of these cores, which are identified by their kernel numbers.
    pub fn new(share: f64, cores: &[usize]) -> CpuHog {
        CpuHog {
            share: share.clamp(0.0, 1.0),
            cores: cores.to_vec(),
            running: None,
        }
    }

    /// Measures the share of the cores that the hog gets, over `time` from now.
    fn measure(&self, clock: &Clock, time: Duration) -> f64 {
        let Some(running) = &self.running else {
            return 0.0;
        };
        let (start, before) = (clock.now(), running.total());
        std::thread::sleep(time);
        let (end, after) = (clock.now(), running.total());
        (after - before) as f64 / (end.0 - start.0).max(1) as f64 / self.cores.len() as f64
    }

    /// Measures the share that the hog takes over `time`; 0 when not injected.
    pub fn taken(&self, clock: &Clock, time: Duration) -> f64 {
        self.measure(clock, time)
    }

    /// Why a thread ended early, if one did; the others are stopped then.
    fn early_end(&mut self) -> Option<io::Error> {
        let running = self.running.as_mut()?;
        let ended = running.threads.iter().position(JoinHandle::is_finished)?;
        let thread = running.threads.swap_remove(ended);
        self.running = None;
        let end = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
        Some(end.err().unwrap_or_else(|| io::Error::other("early")))
    }

    fn start(&self, team: Team) -> io::Result<Running> {
        let each = team.threads() as usize;
        let count = each * self.cores.len();
        let mut running = Running {
            team,
            stop: Arc::default(),
            used: (0..count).map(|_| AtomicU64::new(0)).collect(),
            threads: Vec::new(),
            shown: (Nanos(0), 0),
        };
        for number in 0..count {
            let hand = HogThread {
                core: self.cores[number / each],
                share: self.share,
                real_time: team.real_time && number % each == 0,
                raised: team.raised,
                mine: number % each,
                from: number - number % each,
                each,
                stop: Arc::clone(&running.stop),
                used: Arc::clone(&running.used),
            };
            let thread = std::thread::Builder::new()
                .name("cpu hog".into())
                .stack_size(64 << 10);
            // If a thread fails to start, dropping `running` stops the others.
            running.threads.push(thread.spawn(move || hand.burn())?);
        }
        Ok(running)
    }
}

impl Running {
    fn total(&self) -> u64 {
        self.used
            .iter()
            .map(|used| used.load(Ordering::Relaxed))
            .sum()
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
        format!(
            "cpu hog, {:.0}% of core {}",
            self.share * 100.0,
            cores.join(", ")
        )
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        if self.running.is_some() {
            return Err(FaultError::Misuse {
                fault,
                what: "it is already injected",
            });
        }
        if self.cores.is_empty() {
            return Err(FaultError::Misuse {
                fault,
                what: "no cores given",
            });
        }
        let refused = |what: &str, source| FaultError::Refused {
            fault: fault.clone(),
            what: what.into(),
            source,
            advice: format!(
                "write cores = {:?}, or a subset: this process may not use other cores",
                usable_cores()
            ),
        };
        let at = clock.now();
        let mut team = Team::new(self.share);
        let mut taken = 0.0;
        for number in 0..PROOF_TRIES {
            if self.running.is_none() {
                let running = self.start(team);
                self.running =
                    Some(running.map_err(|error| refused("cannot start its threads", error))?);
            }
            taken = self.measure(clock, PROOF_TIME);
            if let Some(error) = self.early_end() {
                return Err(refused("a thread ended early", error));
            }
            if taken >= self.share - SHARE_SLACK {
                let seen = clock.now();
                if let Some(running) = &mut self.running {
                    running.shown = (seen, running.total());
                }
                let what = format!("{team}: {:.1}% of the CPU", taken * 100.0);
                return Ok(Proof {
                    at,
                    seen,
                    what,
                    value: Some(taken),
                });
            }
            if number % 2 == 1
                && let Some(larger) = team.larger()
            {
                team = larger;
                self.running = None;
            }
        }
        self.running = None;
        Err(FaultError::NotShown {
            fault,
            seen: team.fell_short(taken, PROOF_TIME),
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        let Some(running) = self.running.take() else {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        };
        let (since, before) = running.shown;
        let had = (running.total() - before) as f64;
        let taken = had / at.since(since).as_nanos().max(1) as f64 / self.cores.len() as f64;
        let used = running.used.clone();
        let (team, threads) = (running.team, running.threads.len());
        drop(running);
        let total = || {
            used.iter()
                .map(|used| used.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let before = total();
        std::thread::sleep(PERIOD);
        let after = total();
        // Each running thread holds a reference to the counters.
        let alive = Arc::strong_count(&used) - 1;
        if alive > 0 || after != before {
            let seen = format!("{alive} threads are still running");
            return Err(FaultError::NotGone {
                fault: self.describe(),
                seen,
            });
        }
        let seconds = at.since(since).as_secs_f64();
        let what = format!(
            "received {:.1}% of the CPU over {seconds:.2} s; {threads} threads ended",
            taken * 100.0
        );
        // The share was reached at injection but not sustained. A fault shorter than the proof is not judged.
        if taken < self.share - SHARE_SLACK && at.since(since) >= PROOF_TIME {
            let seen = team.fell_short(taken, at.since(since));
            return Err(FaultError::NotShown {
                fault: self.describe(),
                seen,
            });
        }
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: Some(0.0),
        })
    }
}

/// The cores on which this process may run.
pub fn usable_cores() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
}

/// The state of one thread.
struct HogThread {
    core: usize,
    /// The share of the core for all of its threads together.
    share: f64,
    real_time: bool,
    raised: bool,
    /// This thread's index among those of its core.
    mine: usize,
    /// Index of the core's first counter, and the number of its counters.
    from: usize,
    each: usize,
    stop: Arc<AtomicBool>,
    used: Arc<[AtomicU64]>,
}

impl HogThread {
    /// Computes for its share of the elapsed time until stopped.
    fn burn(&self) -> io::Result<()> {
        if self.core >= CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut only = CpuSet::new();
        only.set(self.core);
        sched_setaffinity(None, &only)?;
        if self.real_time {
            sys::real_time(REAL_TIME_PRIORITY)?;
        } else if self.raised {
            sys::raise_priority(PRIORITY)?;
        }
        let team = &self.used[self.from..self.from + self.each];
        let own_max = if self.real_time {
            REAL_TIME_SHARE_MAX
        } else {
            1.0
        };
        let clock = Clock::Monotonic;
        let (start, cost) = (clock.now(), ResourceUsage::of_thread());
        // Missed time beyond `DEBT_MAX`, which is not made up for.
        let mut forgiven = 0u64;
        let debt_max = DEBT_MAX.as_nanos() as u64;
        let mut number = 1u64;
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..CHUNK {
                number = std::hint::black_box(
                    number
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1),
                );
            }
            let own = ResourceUsage::of_thread().since(cost).cpu().as_nanos() as u64;
            team[self.mine].store(own, Ordering::Relaxed);
            let had: u64 = team.iter().map(|used| used.load(Ordering::Relaxed)).sum();
            let passed = (clock.now().0 - start.0) as f64;
            let owed = ((passed * self.share) as u64).saturating_sub(forgiven + had);
            if owed > debt_max {
                forgiven += owed - debt_max;
            }
            if owed == 0 || own as f64 >= passed * own_max {
                std::thread::sleep(
                    PERIOD.mul_f64((1.0 - self.share.min(own_max)).clamp(0.01, 1.0)),
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_core() -> usize {
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU)
            .rev()
            .find(|core| set.is_set(*core))
            .unwrap()
    }

    /// A process pinned to one core hogs that core, whatever its number.
    #[test]
    fn usable_cores_are_those_the_process_is_pinned_to() {
        let core = a_core();
        let kept = std::thread::spawn(move || {
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(None, &set).unwrap();
            usable_cores()
        });
        assert_eq!(kept.join().unwrap(), [core]);
    }

    /// The share is taken from a competing thread and given back, according to the kernel's accounting.
    #[test]
    fn a_hog_takes_its_share_and_gives_it_back() {
        let clock = Clock::default();
        let mut hog = CpuHog::new(0.25, &[a_core()]);
        // On a core kept busy by other real-time threads, the hog reports that it took too little, either at once or at
        // its end, so this tries again.
        let mut tries = (0..20).map(|_| {
            let proof = hog.inject(&clock)?;
            hog.remove(&clock)?;
            Ok::<_, FaultError>(proof)
        });
        let shown = tries
            .find(|result| !matches!(result, Err(FaultError::NotShown { .. })))
            .expect("a quarter of a core becomes available within 20 attempts");
        let proof = shown.unwrap();
        assert!(proof.value.unwrap() >= 0.22, "{proof:?}");
        assert_eq!(hog.taken(&clock, Duration::from_millis(1)), 0.0);
        assert!(matches!(hog.remove(&clock), Err(FaultError::Misuse { .. })));
    }

    /// A hog takes 98% of a core from several competitors that want all of it, and keeps it. If that isn't possible,
    /// the error says so and suggests a remedy. Real-time threads always succeed.
    #[test]
    fn a_hog_takes_98_percent_from_competitors_or_says_why_not() {
        let core = a_core();
        let stop = Arc::new(AtomicBool::new(false));
        let compete = || {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(core);
                sched_setaffinity(None, &only).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let others = [compete(), compete(), compete()];
        let clock = Clock::default();
        let mut hog = CpuHog::new(0.98, &[core]);
        let shown = hog.inject(&clock);
        let kept = shown.as_ref().ok().map(|_| {
            std::thread::sleep(PROOF_TIME);
            hog.remove(&clock)
        });
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        match (shown, kept) {
            (Ok(shown), Some(Ok(gone))) => {
                assert!(shown.value.unwrap() >= 0.95, "{shown:?}");
                let took = gone
                    .what
                    .strip_prefix("received ")
                    .and_then(|rest| rest.split_once('%'));
                assert!(
                    took.is_some_and(|(taken, _)| taken.parse::<f64>().unwrap() > 90.0),
                    "{gone:?}"
                );
            }
            // A hog in a concurrent test may want the same core, so an error that says so is accepted.
            (Err(error), _) | (_, Some(Err(error))) => {
                let text = error.to_string();
                assert!(
                    text.contains(" received only ") && text.contains("other processes compete"),
                    "{text}"
                );
            }
            (Ok(_), None) => unreachable!("a hog with a proven effect can be removed"),
        }
    }

    /// The team fits the share and the machine's limits, and grows only up to a maximum.
    #[test]
    fn a_team_grows_only_up_to_a_maximum() {
        let plain = Team {
            real_time: false,
            raised: false,
            others: 99,
        };
        let message = plain.fell_short(0.354, Duration::from_millis(390));
        assert!(
            message.contains("received only 35.4% over 0.39 s") && message.contains("ulimit -r 1"),
            "{message}"
        );
        assert!(
            message.ends_with("leave the core to the experiment, or write cpu = 0.35"),
            "{message}"
        );
        assert!(
            brunt_result::void::VoidReason::FaultWeak.is_named_in(&message),
            "{message}"
        );
        let none = plain.fell_short(0.002, Duration::from_millis(390));
        assert!(
            none.ends_with(", or leave the core to the experiment"),
            "{none}"
        );
        assert_eq!(
            plain.larger(),
            Some(Team {
                others: 198,
                ..plain
            })
        );
        assert_eq!(
            Team {
                others: 198,
                ..plain
            }
            .larger(),
            None
        );
        assert_eq!(
            Team {
                real_time: true,
                raised: true,
                others: 0
            }
            .larger()
            .unwrap()
            .threads(),
            2
        );
        let small = Team::new(0.5);
        // Half of a core needs just a real-time thread.
        assert_eq!(small.real_time, small.others == 0);
        let large = Team::new(0.98);
        assert!(
            large.others >= RAISED_THREADS && large.threads() <= THREADS_MAX + 1,
            "{large:?}"
        );
    }

    /// A nonexistent core is rejected, and no thread is left running.
    #[test]
    fn a_nonexistent_core_is_refused() {
        for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU + 5] {
            let error = CpuHog::new(0.5, &[core])
                .inject(&Clock::default())
                .unwrap_err();
            assert!(matches!(error, FaultError::Refused { .. }), "{error}");
            let message = error.to_string();
            assert!(
                brunt_result::void::VoidReason::FaultRefused.is_named_in(&message),
                "{message}"
            );
        }
    }
}
