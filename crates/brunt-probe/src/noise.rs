//! The machine's own noise, as a thread beside the load feels it: how late it is woken, how long a fixed piece of work
//! takes, and what the hypervisor stole meanwhile. A study measures it during each run, `brunt doctor` for a second.
//!
//! The rule: it must not become the noise. Twenty times a second some fifty microseconds of work: a thousandth of a
//! processor.

use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::Clock;
use brunt_result::noise::MachineNoise;

/// From one look to the next.
const PERIOD: Duration = Duration::from_millis(50);
/// Rounds of the fixed work, some twenty microseconds.
const WORK_ROUNDS: u32 = 10_000;

/// Measures until it is stopped.
pub struct NoiseMeter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Seen>>,
    stat: PathBuf,
    stolen_before: Option<[u64; 2]>,
}

/// What the thread saw.
#[derive(Default)]
struct Seen {
    samples: u64,
    wakeups_us: f64,
    wakeup_max_us: f64,
    work_us: f64,
    work_min_us: f64,
}

impl Seen {
    fn add(&mut self, late: Duration, work: Duration) {
        let (late, work) = (late.as_secs_f64() * 1e6, work.as_secs_f64() * 1e6);
        self.wakeups_us += late;
        self.wakeup_max_us = self.wakeup_max_us.max(late);
        self.work_us += work;
        self.work_min_us = if self.samples == 0 {
            work
        } else {
            self.work_min_us.min(work)
        };
        self.samples += 1;
    }
}

impl NoiseMeter {
    /// Starts now, on a machine whose `/proc` is this.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(proc: &Path) -> io::Result<NoiseMeter> {
        let (stop, stopped) = channel::<()>();
        let measure = move || {
            let (clock, mut seen) = (Clock::Monotonic, Seen::default());
            let mut due = clock.now().after(PERIOD);
            loop {
                let pause = due.since(clock.now());
                match stopped.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return seen,
                }
                let woken = clock.now();
                // The first time warms up what sleep has cooled down.
                work();
                let begin = clock.now();
                work();
                let end = clock.now();
                seen.add(woken.since(due), end.since(begin));
                due = due.after(PERIOD).max(end);
            }
        };
        let stat = proc.join("stat");
        let stolen_before = stolen(&stat);
        let thread = std::thread::Builder::new()
            .name("noise".into())
            .spawn(measure)?;
        Ok(NoiseMeter {
            stop: Some(stop),
            thread: Some(thread),
            stat,
            stolen_before,
        })
    }

    /// What it was; `None` of a stretch too short for one look.
    pub fn stop(mut self) -> Option<MachineNoise> {
        self.stop = None;
        let seen = self.thread.take()?.join().ok()?;
        let stolen_share = self
            .stolen_before
            .zip(stolen(&self.stat))
            .and_then(|(before, now)| {
                let [stolen, all] =
                    [0, 1].map(|index: usize| now[index].saturating_sub(before[index]) as f64);
                (all > 0.0).then(|| stolen / all)
            });
        let count = seen.samples as f64;
        (seen.samples > 0).then(|| MachineNoise {
            stolen_share,
            wakeup_mean_us: seen.wakeups_us / count,
            wakeup_max_us: seen.wakeup_max_us,
            work_mean_us: seen.work_us / count,
            work_min_us: seen.work_min_us,
            samples: seen.samples,
        })
    }
}

impl Drop for NoiseMeter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The same instructions every time, in no memory but registers.
fn work() {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..WORK_ROUNDS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Ticks stolen and ticks in all, of all processors since the machine started (proc_stat(5)).
pub fn stolen(stat: &Path) -> Option<[u64; 2]> {
    let text = std::fs::read_to_string(stat).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user and nice already.
    Some([*ticks.get(7)?, ticks.iter().take(8).sum()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_read() {
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

    /// However noisy the machine is: the mean is between the least and more, and time stolen meanwhile is a share.
    #[test]
    fn a_stretch_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("stat");
        // A machine that is busy with other things may not let the thread run for a while.
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
