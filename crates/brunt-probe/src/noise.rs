//! Measures the machine's noise from a thread that runs next to the load: how late it wakes up, how long a fixed piece
//! of work takes, how long the load's threads waited for a CPU, and how much time other programs, the hypervisor and
//! cgroups took. A study measures it during each run, `brunt doctor` for a second.
//!
//! The rule: the measurement must not become noise itself. Forty times a second, it does some thirty microseconds of
//! work and reads each thread of the load, which takes a few thousandths of a CPU. Scans of all processes happen
//! before and after.

use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, Nanos, rank};
use brunt_result::noise::{MachineNoise, STALL};

use super::figures::advance;
use super::limits::{CgroupLimits, Cgroups};
use super::neighbours::{Processes, tcp_peers};
use super::waits::ThreadWaits;

/// The interval between measurements.
const PERIOD: Duration = Duration::from_millis(25);
/// Iterations of the fixed work, which take some twenty microseconds.
const WORK_ROUNDS: u32 = 10_000;
/// Index of the measurement at which to search for local servers; connections are open by that time.
const PEERS_AT: usize = 4;
/// Number of measurements from one reading of the CPUs' frequency to the next.
const FREQUENCY_EVERY: usize = 20;
/// Maximum number of samples of the fixed work that are kept: an hour's worth. When it is exceeded, every second
/// sample is dropped, repeatedly if necessary.
const WORK_SAMPLES_MAX: usize = 1 << 17;

/// Measures noise until it is stopped.
pub struct NoiseMeter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Seen>>,
    proc: PathBuf,
    cgroups: Cgroups,
    begin: Counters,
    /// Threads of child processes: targets that this process serves.
    served: Vec<(PathBuf, ThreadWaits)>,
}

/// The kernel's counters at one moment.
struct Counters {
    at: Nanos,
    stolen: Option<[u64; 2]>,
    pressure_micros: Option<u64>,
    limits: CgroupLimits,
    processes: Processes,
}

impl Counters {
    fn now(proc: &Path, cgroups: &Cgroups) -> Counters {
        Counters {
            at: Clock::Monotonic.now(),
            stolen: stolen(&proc.join("stat")),
            pressure_micros: pressure(&proc.join("pressure/cpu")),
            limits: cgroups.limits(),
            processes: Processes::of(proc),
        }
    }
}

/// The thread's measurements.
#[derive(Default)]
struct Seen {
    samples: u64,
    wakeups_us: f64,
    wakeup_max_us: f64,
    stalled: Duration,
    work_us: f64,
    works_us: Vec<f64>,
    /// Only every n-th sample is kept; n is a power of two.
    keeps_every: u64,
    frequencies_mhz: Vec<f64>,
    waits: ThreadWaits,
    servers: std::collections::BTreeSet<u32>,
}

impl Seen {
    fn add(&mut self, late: Duration, work: Duration) {
        if late >= STALL {
            self.stalled += late;
        }
        let (late, work) = (late.as_secs_f64() * 1e6, work.as_secs_f64() * 1e6);
        self.wakeups_us += late;
        self.wakeup_max_us = self.wakeup_max_us.max(late);
        self.work_us += work;
        self.keeps_every = self.keeps_every.max(1);
        if self.samples.is_multiple_of(self.keeps_every) {
            self.works_us.push(work);
        }
        if self.works_us.len() >= WORK_SAMPLES_MAX {
            let mut place = 0;
            self.works_us.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.keeps_every *= 2;
        }
        self.samples += 1;
    }

    /// Returns the median duration of the work: a preempted sample, however long, doesn't shift it.
    fn work_median_us(&mut self) -> Option<f64> {
        self.works_us.sort_unstable_by(f64::total_cmp);
        let count = self.works_us.len();
        (count > 0).then(|| self.works_us[rank(50.0, count as u64) as usize - 1])
    }
}

impl NoiseMeter {
    /// Starts measuring, with the machine's `/proc` at this path.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(proc: &Path) -> io::Result<NoiseMeter> {
        let cgroups = Cgroups::own();
        let begin = Counters::now(proc, &cgroups);
        let children = begin.processes.descendants(std::process::id());
        let mut served: Vec<(PathBuf, ThreadWaits)> = children
            .into_iter()
            .map(|pid| {
                (
                    proc.join(pid.to_string()).join("task"),
                    ThreadWaits::default(),
                )
            })
            .collect();
        sample_all(&mut served);
        let (stop, stopped) = channel::<()>();
        let path = proc.to_path_buf();
        let measure = move || watch(&path, |pause| stopped.recv_timeout(pause));
        let thread = std::thread::Builder::new()
            .name("noise".into())
            .spawn(measure)?;
        Ok(NoiseMeter {
            stop: Some(stop),
            thread: Some(thread),
            proc: proc.into(),
            cgroups,
            begin,
            served,
        })
    }

    /// Stops and returns the noise; `None` if the time was too short for a measurement.
    pub fn stop(mut self) -> Option<MachineNoise> {
        self.stop = None;
        let mut seen = self.thread.take()?.join().ok()?;
        sample_all(&mut self.served);
        let now = Counters::now(&self.proc, &self.cgroups);
        let seconds = now.at.since(self.begin.at).as_secs_f64();
        let begin = &self.begin;
        let stolen_share = begin.stolen.zip(now.stolen).and_then(|(before, now)| {
            let [stolen, all] =
                [0, 1].map(|index: usize| now[index].saturating_sub(before[index]) as f64);
            (all > 0.0).then(|| stolen / all)
        });
        let share = |counters: (Option<u64>, Option<u64>), unit: f64| {
            let counted = advance(counters.0?, counters.1?)? as f64;
            Some((counted * unit / seconds).min(1.0))
        };
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let others = now.processes.used_since(
            &begin.processes,
            std::process::id(),
            &seen.servers,
            (seconds, ticks),
        );
        let elapsed_ticks = begin.stolen.zip(now.stolen);
        let processors = elapsed_ticks.map_or(f64::INFINITY, |(before, now)| {
            now[1].saturating_sub(before[1]) as f64 / ticks / seconds
        });
        // A request passes through a worker and, if this program also serves the target, through a thread of the
        // server.
        let served = self.served.iter().filter_map(|(_, waits)| waits.share());
        let waited = seen.waits.share();
        let waited_share = waited.map(|waited| (waited + served.fold(0.0, f64::max)).min(1.0));
        let killed = begin.limits.oom_kills.zip(now.limits.oom_kills);
        let count = seen.samples as f64;
        let frequencies = seen.frequencies_mhz.len() as f64;
        let median = seen.work_median_us();
        (seen.samples > 0).then(|| MachineNoise {
            stolen_share,
            wakeup_mean_us: seen.wakeups_us / count,
            wakeup_max_us: seen.wakeup_max_us,
            stalled_s: Some(seen.stalled.as_secs_f64()),
            waited_share,
            others_cpus: Some(others.cpus.min(processors)),
            others_most: others.most.map(|(name, cpus)| format!("{name} {cpus:.2}")),
            throttled_share: share(
                (begin.limits.throttled_nanos, now.limits.throttled_nanos),
                1e-9,
            ),
            quota_cpus: now.limits.cpus,
            oom_kills: killed.map(|(before, now)| now.saturating_sub(before)),
            pressure_share: share((begin.pressure_micros, now.pressure_micros), 1e-6),
            frequency_mhz: (frequencies > 0.0)
                .then(|| seen.frequencies_mhz.iter().sum::<f64>() / frequencies),
            work_mean_us: seen.work_us / count,
            work_median_us: median,
            work_min_us: seen.works_us.first().copied().unwrap_or_default(),
            samples: seen.samples,
        })
    }
}

/// Measures repeatedly until `paused` reports the end.
fn watch(proc: &Path, mut paused: impl FnMut(Duration) -> Result<(), RecvTimeoutError>) -> Seen {
    let (clock, mut seen, task) = (Clock::Monotonic, Seen::default(), proc.join("self/task"));
    let mut due = clock.now().after(PERIOD);
    for look in 1.. {
        match paused(due.since(clock.now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
        let woken = clock.now();
        let each = [(); 2].map(|()| {
            let begin = clock.now();
            work();
            clock.now().since(begin)
        });
        // The first repetition warms up the caches after the sleep, and either of the two may be preempted, so the
        // shorter one counts.
        seen.add(woken.since(due), each[0].min(each[1]));
        seen.waits.sample(&task, clock.now());
        if look == PEERS_AT {
            seen.servers = tcp_peers(proc);
        }
        if look % FREQUENCY_EVERY == 1 {
            seen.frequencies_mhz.extend(frequency_mhz());
        }
        due = due.after(PERIOD).max(clock.now());
    }
    seen
}

fn sample_all(served: &mut [(PathBuf, ThreadWaits)]) {
    for (task, waits) in served {
        waits.sample(task, Clock::Monotonic.now());
    }
}

/// Returns the current mean of all CPUs' frequencies, if the kernel provides them
/// (Documentation/admin-guide/pm/cpufreq.rst).
fn frequency_mhz() -> Option<f64> {
    let policies = std::fs::read_dir("/sys/devices/system/cpu/cpufreq").ok()?;
    let each: Vec<f64> = policies
        .filter_map(|policy| {
            let file = policy.ok()?.path().join("scaling_cur_freq");
            let khz: f64 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
            Some(khz / 1e3)
        })
        .collect();
    (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
}

/// Returns the microseconds for which any task waited for a CPU (Documentation/accounting/psi.rst).
fn pressure(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_once("total=")?.1.parse().ok()
}

impl Drop for NoiseMeter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Always executes the same instructions, and uses only registers.
fn work() {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..WORK_ROUNDS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Returns the stolen ticks and the total ticks of all CPUs since boot (proc_stat(5)).
pub fn stolen(stat: &Path) -> Option<[u64; 2]> {
    let text = std::fs::read_to_string(stat).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is already included in user and nice.
    Some([*ticks.get(7)?, ticks.iter().take(8).sum()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_parsed() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("stat");
        std::fs::write(
            &stat,
            "cpu  10 0 20 60 0 0 0 10 5 5\ncpu0 1 1 1 1 1 1 1 1\n",
        )
        .unwrap();
        assert_eq!(stolen(&stat), Some([10, 100]));
        std::fs::write(&stat, "cpu  10 0 20\n").unwrap();
        assert_eq!(stolen(&stat), None);
        assert_eq!(stolen(&folder.path().join("none")), None);
    }

    /// On any machine, the work's mean is at least its minimum, and stolen time is a share.
    #[test]
    fn noise_is_measured_on_any_machine() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("stat");
        // A busy machine may not let the thread run for a while.
        let measure = |millis: u64| {
            std::fs::write(&stat, "cpu  10 0 20 60 0 0 0 10 0 0\n").unwrap();
            let meter = NoiseMeter::start(folder.path()).unwrap();
            std::thread::sleep(Duration::from_millis(millis));
            std::fs::write(&stat, "cpu  20 0 30 100 0 0 0 50 0 0\n").unwrap();
            meter.stop()
        };
        let noise = [200, 2_000, 20_000, 60_000]
            .into_iter()
            .find_map(measure)
            .unwrap();
        assert!(
            noise.samples > 0 && noise.work_min_us > 0.0 && noise.work_mean_us >= noise.work_min_us,
            "{noise:?}"
        );
        assert!(noise.wakeup_max_us >= noise.wakeup_mean_us, "{noise:?}");
        assert_eq!(noise.stolen_share, Some(0.4));
    }
}
