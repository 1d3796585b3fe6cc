//! How long the threads that generate the load, and threads of the processes that serve it, were ready but waiting
//! for a CPU: the second number of `schedstat` (Documentation/scheduler/sched-stats.rst). Used by the noise meter.
//!
//! The rule: threads may end before the run does, so they are read during the run; each is counted from the first to
//! the last reading that found it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use brunt_core::Nanos;

/// Prefix of the load's thread names.
const WORKER: &str = "worker-";
/// Prefixes of the names of threads that send no requests, so that their waiting delays none.
const HELPER_PREFIXES: [&str; 4] = ["noise", "results", "prober", "tokio"];
/// Maximum number of threads read at a time: each costs some microseconds.
const LOOKS_MAX: usize = 32;
const THREADS_MAX: usize = 4096;

/// A thread.
#[derive(Clone, Debug)]
struct Thread {
    is_worker: bool,
    stat: PathBuf,
    first: (Nanos, u64),
    last: (Nanos, u64),
}

impl Thread {
    fn share(&self) -> Option<f64> {
        let nanos = self
            .last
            .0
            .0
            .checked_sub(self.first.0.0)
            .filter(|nanos| *nanos > 0)?;
        Some((self.last.1.saturating_sub(self.first.1) as f64 / nanos as f64).min(1.0))
    }
}

/// The threads of a process during a run.
#[derive(Default)]
pub(super) struct ThreadWaits {
    threads: BTreeMap<u32, Thread>,
    /// IDs of the threads that are skipped because they send no requests.
    helpers: Vec<u32>,
    looks: usize,
}

impl ThreadWaits {
    /// Reads the threads in the folder `task`.
    pub fn sample(&mut self, task: &Path, now: Nanos) {
        // With many threads, only every n-th call reads them.
        let every = self.threads.len() / LOOKS_MAX + 1;
        self.looks += 1;
        if !(self.looks - 1).is_multiple_of(every) {
            return;
        }
        let Ok(entries) = fs::read_dir(task) else {
            return;
        };
        for entry in entries.take(THREADS_MAX).flatten() {
            let name = entry.file_name();
            let Some(tid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if self.helpers.contains(&tid) {
                continue;
            }
            if !self.threads.contains_key(&tid) {
                let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                if HELPER_PREFIXES.iter().any(|name| comm.starts_with(name)) {
                    self.helpers.push(tid);
                    continue;
                }
                let stat = entry.path().join("schedstat");
                let Some(waited) = waited(&stat) else {
                    continue;
                };
                let is_worker = comm.starts_with(WORKER);
                let (first, last) = ((now, waited), (now, waited));
                self.threads.insert(
                    tid,
                    Thread {
                        is_worker,
                        stat,
                        first,
                        last,
                    },
                );
            } else if let Some(thread) = self.threads.get_mut(&tid)
                && let Some(waited) = waited(&thread.stat)
            {
                thread.last = (now, waited);
            }
        }
    }

    /// Returns the share of time that the threads waited: the mean over the load's workers or, if no thread has such
    /// a name, the share of the thread that waited most. `None` if the kernel doesn't provide this time.
    pub fn share(&self) -> Option<f64> {
        let shares = |workers: bool| {
            let threads = self
                .threads
                .values()
                .filter(move |thread| thread.is_worker == workers);
            threads.filter_map(Thread::share)
        };
        let workers = shares(true).count();
        match workers {
            0 => shares(false).reduce(f64::max),
            count => Some(shares(true).sum::<f64>() / count as f64),
        }
    }
}

/// Nanoseconds for which a thread was ready but waiting.
fn waited(stat: &Path) -> Option<u64> {
    fs::read_to_string(stat)
        .ok()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(task: &Path, tid: u32, comm: &str, waited: u64) {
        let folder = task.join(tid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(folder.join("schedstat"), format!("77 {waited} 3\n")).unwrap();
    }

    /// The mean over the workers counts, up to the last reading that found them; without workers, the thread that
    /// waited most.
    #[test]
    fn the_share_is_the_mean_over_the_workers() {
        let folder = tempfile::tempdir().unwrap();
        let task = folder.path();
        let mut waits = ThreadWaits::default();
        assert_eq!(waits.share(), None);
        for (tid, comm) in [(1, "brunt"), (2, "noise"), (3, "worker-0"), (4, "worker-1")] {
            write(task, tid, comm, 1000);
        }
        waits.sample(task, Nanos(10_000));
        for (tid, comm, waited) in [
            (1, "brunt", 9000),
            (2, "noise", 90_000),
            (3, "worker-0", 2000),
            (4, "worker-1", 4000),
        ] {
            write(task, tid, comm, waited);
        }
        waits.sample(task, Nanos(20_000));
        fs::remove_dir_all(task.join("3")).unwrap();
        waits.sample(task, Nanos(30_000));
        assert_eq!(waits.share(), Some((0.1 + 0.15) / 2.0));
        let mut others = ThreadWaits::default();
        fs::remove_dir_all(task.join("4")).unwrap();
        others.sample(task, Nanos(10_000));
        write(task, 1, "brunt", 14_000);
        others.sample(task, Nanos(20_000));
        assert_eq!(others.share(), Some(0.5));
    }
}
