//! Kills one of our processes without warning (SIGKILL) and starts it again: a controller that crashes and reboots.
//!
//! The rule: the caller knows how to start the process and when it is ready to serve; the kernel confirms that it is
//! dead.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use brunt_core::Clock;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::process::{self, below, is_dead, signal};
use crate::{Fault, FaultError, Proof};

/// How long the kernel may take to end a process; one waiting for a disk only ends afterwards.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts the process again, waits until it serves, and returns its PID.
pub type Restart = Box<dyn FnMut() -> io::Result<u32> + Send>;

/// Kills a process, and starts it again on removal.
pub struct Kill {
    pid: u32,
    /// Whether the process's descendants are killed first.
    with_all_below: bool,
    restart: Restart,
    killed: bool,
}

impl Kill {
    /// Kills a process that the caller started and has not waited for, so that its PID cannot be reused.
    pub fn new(pid: u32, restart: Restart) -> Kill {
        Kill {
            pid,
            with_all_below: false,
            restart,
            killed: false,
        }
    }

    /// Like [`Kill::new`], for a keeper of other processes ([`crate::service`]): its descendants are killed first, so
    /// that none escapes it.
    pub fn with_all_below(pid: u32, restart: Restart) -> Kill {
        Kill {
            with_all_below: true,
            ..Kill::new(pid, restart)
        }
    }

    /// The current process; it changes with each restart.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Fault for Kill {
    fn describe(&self) -> String {
        format!("kill of process {}", self.pid)
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        let below = if self.with_all_below {
            kill_all_below(self.pid)
        } else {
            BTreeSet::new()
        };
        signal(self.pid, Signal::KILL).map_err(|error| {
            FaultError::refused(self.describe(), "cannot signal the process", error.into())
        })?;
        self.killed = true;
        loop {
            let now = clock.now();
            if is_dead(self.pid) {
                reap(&below, self.pid);
                let what = match below.len() {
                    0 => format!("process {} is dead", self.pid),
                    count => format!("process {} and its {count} descendants are dead", self.pid),
                };
                return Ok(Proof {
                    at,
                    seen: now,
                    what,
                    value: None,
                });
            }
            if now.since(at) > PATIENCE {
                return Err(FaultError::NotShown {
                    fault: self.describe(),
                    seen: "it is still running".into(),
                });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        if !std::mem::take(&mut self.killed) {
            return Err(FaultError::Misuse {
                fault,
                what: "it is not injected",
            });
        }
        let at = clock.now();
        self.pid = (self.restart)().map_err(|source| FaultError::Refused {
            fault: fault.clone(),
            what: "cannot restart the process".into(),
            source,
            advice: "check its output, and that its port and files are free: it must be able to \
                start again"
                .into(),
        })?;
        if is_dead(self.pid) {
            let seen = format!("its replacement, process {}, is dead too", self.pid);
            return Err(FaultError::NotGone { fault, seen });
        }
        let what = format!("process {} has replaced it", self.pid);
        Ok(Proof {
            at,
            seen: clock.now(),
            what,
            value: None,
        })
    }
}

/// Kills all descendants of `keeper`, including those started in the meantime, waits until they are dead, and returns
/// their number.
pub fn kill_below(keeper: u32) -> usize {
    kill_all_below(keeper).len()
}

/// Reaps orphans that this process inherits, as it does when it is the init process of a lab. Otherwise other programs
/// would consider them alive: a zombie can still be signalled.
fn reap(orphans: &BTreeSet<u32>, parent: u32) {
    let begin = Instant::now();
    for orphan in orphans {
        let Some(pid) = i32::try_from(*orphan).ok().and_then(Pid::from_raw) else {
            continue;
        };
        while begin.elapsed() < PATIENCE {
            if let Ok(Some(_)) = waitpid(Some(pid), WaitOptions::NOHANG) {
                break;
            }
            // Tries again while the orphan's parent is still the dead process, whose last thread may be about to end.
            // If another process adopts the orphan, nothing is left to do here.
            match process::parent(*orphan) {
                Some(of) if of == parent || of == std::process::id() => {}
                _ => break,
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn kill_all_below(keeper: u32) -> BTreeSet<u32> {
    let (begin, mut seen, mut nothing) = (Instant::now(), BTreeSet::new(), false);
    while begin.elapsed() < PATIENCE {
        let living = below(keeper);
        // If a process's parent ended during the listing, the next listing finds the process.
        let nothing_before = std::mem::replace(&mut nothing, living.is_empty());
        if nothing && nothing_before {
            break;
        }
        for pid in living {
            seen.insert(pid);
            // The process may have ended in the meantime.
            let _ = signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Children(Arc<Mutex<Vec<Child>>>);

    impl Drop for Children {
        fn drop(&mut self) {
            for mut child in self.0.lock().unwrap().drain(..) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// The process is observed dead, and another one runs afterwards.
    #[test]
    fn a_killed_process_is_replaced_by_another() {
        let children = Children(Arc::default());
        let kept = children.0.clone();
        let start = move |program: &str| {
            let child = Command::new(program)
                .arg("60")
                .stdin(Stdio::null())
                .spawn()?;
            let pid = child.id();
            kept.lock().unwrap().push(child);
            io::Result::Ok(pid)
        };
        let first = start("sleep").unwrap();
        let mut kill = Kill::new(first, Box::new(move || start("sleep")));
        let clock = Clock::default();
        kill.inject(&clock).unwrap();
        assert!(is_dead(first));
        kill.remove(&clock).unwrap();
        assert!(kill.pid() != first && !is_dead(kill.pid()));
        assert!(matches!(
            kill.remove(&clock),
            Err(FaultError::Misuse { .. })
        ));
    }

    /// Descendants of a killed process leave nothing behind that could be signalled.
    #[test]
    fn no_descendant_of_a_killed_process_can_be_signalled() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        let children = Children(Arc::default());
        let keeper = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60 & wait"])
            .spawn()
            .unwrap();
        let pid = keeper.id();
        children.0.lock().unwrap().push(keeper);
        while below(pid).len() < 2 {
            std::thread::yield_now();
        }
        let orphans = below(pid);
        Kill::with_all_below(pid, Box::new(|| Ok(0)))
            .inject(&Clock::default())
            .unwrap();
        for orphan in orphans {
            assert!(
                !std::path::Path::new(&format!("/proc/{orphan}")).exists(),
                "{orphan}"
            );
        }
    }

    /// A failed restart is an error with its cause.
    #[test]
    fn a_failed_restart_is_an_error() {
        let children = Children(Arc::default());
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        children.0.lock().unwrap().push(child);
        let mut kill = Kill::new(pid, Box::new(|| Err(io::Error::other("the port is taken"))));
        kill.inject(&Clock::default()).unwrap();
        let error = kill.remove(&Clock::default()).unwrap_err().to_string();
        assert!(error.contains("the port is taken"), "{error}");
    }
}
