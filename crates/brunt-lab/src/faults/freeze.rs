//! Freezes a process with SIGSTOP and resumes it with SIGCONT. From outside it looks like a controller whose software
//! hangs: connections stay open and nothing is answered.
//!
//! The rule: the proof is the process state that the kernel reports, not the fact that the signal was sent.

use std::fs;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use rustix::process::Signal;

use crate::process::{self, below};
use crate::{Fault, FaultError, Proof};

/// How long the kernel may take to stop all threads of a process; a thread waiting for a disk only stops afterwards.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a keeper may appear to have no process: a process that forks and exits while processes are listed is
/// missed briefly.
const NONE_MAX: Duration = Duration::from_secs(1);

/// Stops a process and resumes it.
#[derive(Debug)]
pub struct Freeze {
    pid: u32,
    /// Whether to freeze all descendants of the process instead of the process itself.
    all_below: bool,
    stopped: bool,
}

impl Freeze {
    /// Freezes a process that the caller started and has not waited for, so that its PID cannot be reused.
    pub fn new(pid: u32) -> Freeze {
        Freeze {
            pid,
            all_below: false,
            stopped: false,
        }
    }

    /// Freezes all descendants of a keeper ([`crate::service`]). The keeper itself keeps running, so that it can end
    /// them when the experiment ends.
    pub fn all_below(pid: u32) -> Freeze {
        Freeze {
            all_below: true,
            ..Freeze::new(pid)
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), FaultError> {
        if self.all_below {
            // The process may have ended in the meantime.
            for pid in below(self.pid) {
                let _ = process::signal(pid, signal);
            }
            return Ok(());
        }
        let sent = process::signal(self.pid, signal);
        sent.map_err(|error| {
            FaultError::refused(self.describe(), "cannot signal the process", error.into())
        })
    }

    fn wait(&self, clock: &Clock, stopped: bool) -> Result<Proof, FaultError> {
        match self.all_below {
            true => self.wait_for_all(clock, stopped),
            false => wait_for_threads(&self.describe(), self.pid, clock, stopped),
        }
    }

    /// Waits until the same processes are found twice in a row and all of them (or none, when resuming) are stopped. A
    /// process started while others are being stopped is signalled as well. If there are no processes, waits for a new
    /// one, unless the keeper is gone.
    fn wait_for_all(&self, clock: &Clock, stopped: bool) -> Result<Proof, FaultError> {
        let (at, mut before) = (clock.now(), Vec::new());
        let mut last_found = at;
        loop {
            let pids = below(self.pid);
            let states: Vec<String> = pids.iter().map(|pid| states(*pid)).collect();
            let now = clock.now();
            let of_each = pids
                .iter()
                .zip(&states)
                .map(|(pid, states)| format!("{pid} {states}"));
            let seen = match pids.is_empty() {
                true => format!("process {} has no child processes", self.pid),
                false => {
                    format!(
                        "threads of processes are in states {}",
                        of_each.collect::<Vec<_>>().join(", ")
                    )
                }
            };
            if !pids.is_empty() {
                last_found = now;
            }
            let none_comes = now.since(last_found) > NONE_MAX || process::is_dead(self.pid);
            let all = states
                .iter()
                .flat_map(|states| states.chars())
                .all(|state| (state == 'T') == stopped);
            if all && !pids.is_empty() && pids == before {
                return Ok(Proof {
                    at,
                    seen: now,
                    what: seen,
                    value: None,
                });
            }
            if now.since(at) > PATIENCE || (pids.is_empty() && none_comes) {
                let fault = self.describe();
                return Err(match stopped {
                    true => FaultError::NotShown { fault, seen },
                    false => FaultError::NotGone { fault, seen },
                });
            }
            self.signal(if stopped { Signal::STOP } else { Signal::CONT })?;
            before = pids;
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Waits until all threads of a process (or none, when resuming) are stopped.
pub(super) fn wait_for_threads(
    fault: &str,
    pid: u32,
    clock: &Clock,
    stopped: bool,
) -> Result<Proof, FaultError> {
    let at = clock.now();
    loop {
        let state = states(pid);
        let now = clock.now();
        let seen = format!("threads of process {pid} are in states {state}");
        let all = !state.is_empty() && state.chars().all(|state| (state == 'T') == stopped);
        if all {
            return Ok(Proof {
                at,
                seen: now,
                what: seen,
                value: None,
            });
        }
        if now.since(at) > PATIENCE || state.is_empty() {
            let fault = fault.to_string();
            return Err(match stopped {
                true => FaultError::NotShown { fault, seen },
                false => FaultError::NotGone { fault, seen },
            });
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Fault for Freeze {
    fn describe(&self) -> String {
        match self.all_below {
            true => format!("freeze of all descendants of process {}", self.pid),
            false => format!("freeze of process {}", self.pid),
        }
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        self.signal(Signal::STOP)?;
        self.stopped = true;
        self.wait(clock, true).map(|proof| Proof { at, ..proof })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !self.stopped {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        }
        let at: Nanos = clock.now();
        self.signal(Signal::CONT)?;
        self.stopped = false;
        self.wait(clock, false).map(|proof| Proof { at, ..proof })
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        if self.stopped {
            let _ = self.signal(Signal::CONT);
        }
    }
}

/// One letter per thread of a process (proc_pid_stat(5)); empty if there is no such process.
fn states(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return String::new();
    };
    let state = |path: std::path::PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        // The name in parentheses may contain anything, including parentheses.
        stat.rsplit_once(") ")?.1.chars().next()
    };
    tasks
        .flatten()
        .filter_map(|task| state(task.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::super::sleeper::Sleeper;
    use super::*;

    fn sleeper() -> Sleeper {
        Sleeper(
            Command::new("sleep")
                .arg("60")
                .stdin(Stdio::null())
                .spawn()
                .expect("sleep is everywhere"),
        )
    }

    /// A process is observed stopped, then running; twice, as in a timeline.
    #[test]
    fn a_process_is_stopped_and_resumed() {
        let child = sleeper();
        let clock = Clock::default();
        for _ in 0..2 {
            let mut freeze = Freeze::new(child.0.id());
            let proof = freeze.inject(&clock).unwrap();
            assert!(
                proof.what.ends_with('T') && proof.seen >= proof.at,
                "{proof:?}"
            );
            assert_eq!(states(child.0.id()), "T");
            freeze.remove(&clock).unwrap();
            assert_ne!(states(child.0.id()), "T");
        }
    }

    /// Dropping a fault without removing it resumes the process.
    #[test]
    fn dropping_a_fault_resumes_the_process() {
        let child = sleeper();
        let mut freeze = Freeze::new(child.0.id());
        freeze.inject(&Clock::default()).unwrap();
        drop(freeze);
        assert_ne!(states(child.0.id()), "T");
    }

    /// All descendants of a process are stopped and resumed; the process itself is not.
    #[test]
    fn all_descendants_are_stopped_and_resumed() {
        let shell = Sleeper(
            Command::new("sh")
                .args(["-c", "sleep 60 & sleep 60 & wait"])
                .spawn()
                .unwrap(),
        );
        let (pid, clock) = (shell.0.id(), Clock::default());
        while below(pid).len() < 2 {
            std::thread::yield_now();
        }
        let mut freeze = Freeze::all_below(pid);
        freeze.inject(&clock).unwrap();
        assert!(below(pid).iter().all(|pid| states(*pid) == "T") && states(pid) != "T");
        freeze.remove(&clock).unwrap();
        assert!(below(pid).iter().all(|pid| states(*pid) != "T"));
        assert_eq!(super::super::kill_below(pid), 2);
        assert!(matches!(
            freeze.inject(&clock),
            Err(FaultError::NotShown { .. })
        ));
    }

    /// If a service currently has no process, the fault waits for one and freezes it.
    #[test]
    fn a_freeze_waits_for_a_service_to_have_a_process() {
        let script = ["-c", "read word; sleep 60 & wait"];
        let mut shell = Command::new("sh")
            .args(script)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut orders = shell.stdin.take().unwrap();
        let (shell, clock) = (Sleeper(shell), Clock::manual());
        let mut freeze = Freeze::all_below(shell.0.id());
        std::thread::scope(|scope| {
            // The clock does not advance, so the fault never gives up, however long the shell takes.
            let frozen = scope.spawn(|| freeze.inject(&clock).map(|proof| proof.what));
            let begin = std::time::Instant::now();
            while !frozen.is_finished() && begin.elapsed() < Duration::from_millis(50) {
                std::thread::yield_now();
            }
            assert!(!frozen.is_finished(), "it waits");
            orders.write_all(b"go\n").unwrap();
            let seen = frozen.join().unwrap().unwrap();
            assert!(seen.ends_with('T'), "{seen}");
        });
        freeze.remove(&clock).unwrap();
        super::super::kill_below(shell.0.id());
    }

    /// If the keeper is gone, the fault doesn't wait for a process.
    #[test]
    fn a_freeze_does_not_wait_for_a_dead_keeper() {
        let mut keeper = sleeper();
        keeper.0.kill().unwrap();
        keeper.0.wait().unwrap();
        let error = Freeze::all_below(keeper.0.id())
            .inject(&Clock::manual())
            .unwrap_err();
        assert!(
            error.to_string().contains("has no child processes"),
            "{error}"
        );
    }

    /// A missing process cannot be frozen, and one that isn't frozen cannot be thawed.
    #[test]
    fn a_missing_process_cannot_be_frozen_nor_a_running_one_thawed() {
        let mut child = sleeper();
        let mut freeze = Freeze::new(child.0.id());
        assert!(matches!(
            freeze.remove(&Clock::default()),
            Err(FaultError::Misuse { .. })
        ));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert!(matches!(
            freeze.inject(&Clock::default()),
            Err(FaultError::Refused { .. })
        ));
    }
}
