//! Freezes a process with SIGSTOP, and resumes it with SIGCONT. From outside it looks like a controller with
//! hung software: connections stay open and nothing is answered.
//!
//! The rule: proven by the process state that the kernel reports, not by having sent the signal.

use std::fs;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Fault, FaultError, Proof};

/// How long the kernel gets to stop all threads of a process; one in the middle of a disk access
/// stops when that is done.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stops a process and lets it go on.
#[derive(Debug)]
pub struct Freeze {
    pid: u32,
    stopped: bool,
}

impl Freeze {
    /// For a process that the caller started and has not waited for: so the number is not another's.
    pub fn new(pid: u32) -> Freeze {
        Freeze { pid, stopped: false }
    }

    fn signal(&self, signal: Signal) -> Result<(), FaultError> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let sent = pid.ok_or(rustix::io::Errno::SRCH).and_then(|pid| kill_process(pid, signal));
        sent.map_err(|error| FaultError::refused(self.describe(), "cannot signal the process", error.into()))
    }

    /// Waits until the process is stopped, or is not.
    fn wait(&self, clock: &Clock, stopped: bool) -> Result<Proof, FaultError> {
        let at = clock.now();
        loop {
            let state = states(self.pid);
            let now = clock.now();
            let seen = format!("threads of process {} are in states {state}", self.pid);
            let all = !state.is_empty() && state.chars().all(|state| (state == 'T') == stopped);
            if all {
                return Ok(Proof { at, seen: now, what: seen, value: None });
            }
            if now.since(at) > PATIENCE || state.is_empty() {
                let fault = self.describe();
                return Err(match stopped {
                    true => FaultError::NotShown { fault, seen },
                    false => FaultError::NotGone { fault, seen },
                });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Fault for Freeze {
    fn describe(&self) -> String {
        format!("freeze of process {}", self.pid)
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        self.signal(Signal::STOP)?;
        self.stopped = true;
        self.wait(clock, true).map(|proof| Proof { at, ..proof })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !self.stopped {
            return Err(FaultError::Misuse { fault: self.describe(), what: "it was not injected" });
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

/// One letter for each thread of a process (proc_pid_stat(5)); none when there is no such process.
fn states(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return String::new() };
    let state = |path: std::path::PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        // The name in parentheses may hold anything, also parentheses.
        stat.rsplit_once(") ")?.1.chars().next()
    };
    tasks.flatten().filter_map(|task| state(task.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> Sleeper {
        Sleeper(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep is everywhere"))
    }

    /// A stopped process is seen stopped, and seen going on; twice, as a time line may.
    #[test]
    fn stops_and_goes_on() {
        let child = sleeper();
        let clock = Clock::default();
        for _ in 0..2 {
            let mut freeze = Freeze::new(child.0.id());
            let proof = freeze.inject(&clock).unwrap();
            assert!(proof.what.ends_with('T') && proof.seen >= proof.at, "{proof:?}");
            assert_eq!(states(child.0.id()), "T");
            freeze.remove(&clock).unwrap();
            assert_ne!(states(child.0.id()), "T");
        }
    }

    /// A fault that is dropped, not removed, leaves the process running.
    #[test]
    fn dropped_is_removed() {
        let child = sleeper();
        let mut freeze = Freeze::new(child.0.id());
        freeze.inject(&Clock::default()).unwrap();
        drop(freeze);
        assert_ne!(states(child.0.id()), "T");
    }

    /// What is not there cannot be frozen, and what is not frozen not be thawed.
    #[test]
    fn refuses_what_it_cannot_do() {
        let mut child = sleeper();
        let mut freeze = Freeze::new(child.0.id());
        assert!(matches!(freeze.remove(&Clock::default()), Err(FaultError::Misuse { .. })));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert!(matches!(freeze.inject(&Clock::default()), Err(FaultError::Refused { .. })));
    }
}
