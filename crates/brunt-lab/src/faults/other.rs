//! Freezes or kills processes that Brunt didn't start, on a host where faults are injected. They are found by name or
//! PID.
//!
//! The rule: a process is referenced by a pidfd that is opened before the process is checked, so a signal never
//! reaches another process that has since reused the PID. Processes that keep the machine or this program running are
//! rejected.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use brunt_core::{Clock, ProcessStat};
use brunt_protocol::HostProcess;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::freeze::wait_for_threads;
use crate::guard::{Guard, Undo};
use crate::process::{all, comm, is_dead, parent, started_ticks};
use crate::{Fault, FaultError, Proof};

/// How long the kernel may take to end a process, and its supervisor to restart it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The kernel keeps at most this many bytes of a program's name.
const COMM_BYTES: usize = 15;

/// Why a process could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No process has this name.
    #[error("no process is called '{0}' (/proc/PID/comm)")]
    None(String),
    /// Several processes have this name.
    #[error("{count} processes are called '{name}' ({pids}); give the PID of one", count = .pids.split(' ').count())]
    Several {
        /// The name.
        name: String,
        /// Their PIDs.
        pids: String,
    },
    /// No process has this PID.
    #[error("no process {0}")]
    Gone(u32),
    /// The machine or this program depends on the process.
    #[error("process {0} ({1}) is {2}, which faults never affect")]
    Protected(u32, String, &'static str),
    /// A system call failed.
    #[error("cannot open process {0}: {1}")]
    System(u32, io::Error),
}

/// A process that Brunt didn't start.
#[derive(Debug)]
pub struct OtherProcess {
    pid: u32,
    name: String,
    started_ticks: u64,
    handle: OwnedFd,
}

impl OtherProcess {
    /// Finds the process.
    ///
    /// # Errors
    /// No such process exists, several do, or it is protected.
    pub fn find(wanted: &HostProcess) -> Result<OtherProcess, ProcessError> {
        let pid = match wanted {
            HostProcess::Numbered(pid) => *pid,
            HostProcess::Named(name) => match called(name)[..] {
                [] => return Err(ProcessError::None(name.clone())),
                [pid] => pid,
                ref several => {
                    let pids: Vec<String> = several.iter().map(u32::to_string).collect();
                    return Err(ProcessError::Several {
                        name: name.clone(),
                        pids: pids.join(" "),
                    });
                }
            },
        };
        let raw = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(ProcessError::Gone(pid))?;
        let handle = pidfd_open(raw, PidfdFlags::empty());
        let handle = handle.map_err(|error| ProcessError::System(pid, error.into()))?;
        // Checked after the pidfd is opened, so this data belongs to the process that it refers to; if that has
        // ended, sending the signal fails.
        let gone = || ProcessError::Gone(pid);
        let (name, started_ticks) = (
            comm(pid).ok_or_else(gone)?,
            started_ticks(pid).ok_or_else(gone)?,
        );
        if let HostProcess::Named(wanted) = wanted
            && !is_called(&name, wanted)
        {
            return Err(ProcessError::None(wanted.clone()));
        }
        if let Some(why) = protected(pid) {
            return Err(ProcessError::Protected(pid, name, why));
        }
        Ok(OtherProcess {
            pid,
            name,
            started_ticks,
            handle,
        })
    }

    /// The name of the process's program.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn signal(&self, fault: &dyn Fault, signal: Signal) -> Result<(), FaultError> {
        let sent = pidfd_send_signal(&self.handle, signal);
        sent.map_err(|error| {
            FaultError::refused(fault.describe(), "cannot signal the process", error.into())
        })
    }

    fn describe(&self) -> String {
        format!("process {} ({})", self.pid, self.name)
    }
}

/// Why a process must not be touched.
fn protected(pid: u32) -> Option<&'static str> {
    if pid == 1 {
        return Some("init");
    }
    if ProcessStat::read(pid).is_some_and(|stat| stat.is_kernel_thread) {
        return Some("a kernel thread");
    }
    // This process and its ancestors, such as a shell or sshd.
    let mut ancestor = std::process::id();
    for _ in 0..1000 {
        if ancestor == pid {
            return Some("this program or one of its parents");
        }
        ancestor = parent(ancestor).filter(|parent| *parent > 1)?;
    }
    None
}

/// Processes with this name.
fn called(name: &str) -> Vec<u32> {
    all()
        .filter(|pid| !is_dead(*pid) && comm(*pid).is_some_and(|comm| is_called(&comm, name)))
        .collect()
}

fn is_called(comm: &str, name: &str) -> bool {
    name.as_bytes()[..name.len().min(COMM_BYTES)] == *comm.as_bytes()
}

/// Stops a process that Brunt didn't start. It is resumed even if this program dies.
#[derive(Debug)]
pub struct FreezeOther {
    process: OtherProcess,
    guard: Option<Guard>,
}

impl FreezeOther {
    /// Freezes this process.
    pub fn new(process: OtherProcess) -> FreezeOther {
        FreezeOther {
            process,
            guard: None,
        }
    }
}

impl Fault for FreezeOther {
    fn describe(&self) -> String {
        format!("freeze of {}", self.process.describe())
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.guard.is_some() {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            });
        }
        let OtherProcess {
            pid, started_ticks, ..
        } = self.process;
        let guard = Guard::start(Undo::Thaw { pid, started_ticks });
        let guard = guard.map_err(|error| {
            FaultError::refused(self.describe(), "cannot start its guard process", error)
        })?;
        let at = clock.now();
        self.guard = Some(guard);
        self.process.signal(self, Signal::STOP)?;
        let proof = wait_for_threads(&self.describe(), pid, clock, true)?;
        Ok(Proof { at, ..proof })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let Some(guard) = self.guard.take() else {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        };
        let at = clock.now();
        self.process.signal(self, Signal::CONT)?;
        let proof = wait_for_threads(&self.describe(), self.process.pid, clock, false)?;
        guard.dismiss();
        Ok(Proof { at, ..proof })
    }
}

/// Kills a process that Brunt didn't start; a supervisor may restart it.
#[derive(Debug)]
pub struct KillOther {
    process: OtherProcess,
    comes_back: bool,
    killed: bool,
}

impl KillOther {
    /// Kills this process. With `comes_back`, the fault ends when another process with its name runs.
    pub fn new(process: OtherProcess, comes_back: bool) -> KillOther {
        KillOther {
            process,
            comes_back,
            killed: false,
        }
    }
}

impl Fault for KillOther {
    fn describe(&self) -> String {
        format!("kill of {}", self.process.describe())
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        self.process.signal(self, Signal::KILL)?;
        self.killed = true;
        let OtherProcess {
            pid,
            started_ticks: started,
            ..
        } = self.process;
        loop {
            let now = clock.now();
            if is_dead(pid) || started_ticks(pid) != Some(started) {
                let what = format!("{} is dead", self.process.describe());
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
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.killed) {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        }
        let (at, name) = (clock.now(), self.process.name());
        if !self.comes_back {
            let what = format!("{} stays dead", self.process.describe());
            return Ok(Proof {
                at,
                seen: at,
                what,
                value: None,
            });
        }
        loop {
            let now = clock.now();
            if let Some(pid) = called(name).first() {
                let what = format!("process {pid} ({name}) has replaced it");
                return Ok(Proof {
                    at,
                    seen: now,
                    what,
                    value: None,
                });
            }
            if now.since(at) > PATIENCE {
                let seen = format!(
                    "no process called '{name}' was started within {PATIENCE:?}; have a service \
                     manager restart it (Restart=always), or omit 'for' if it should stay dead"
                );
                return Err(FaultError::NotGone {
                    fault: self.describe(),
                    seen,
                });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::sleeper::Sleeper;
    use super::*;

    /// A program with a unique name that only sleeps.
    fn program(folder: &std::path::Path) -> (std::path::PathBuf, String) {
        let name = format!("other-{}-sleeper", std::process::id());
        // The program is linked, not copied: if another test forked during the copy, executing the file would fail
        // with ETXTBSY.
        std::os::unix::fs::symlink("/bin/sleep", folder.join(&name)).unwrap();
        (folder.join(&name), name)
    }

    fn start(program: &std::path::Path, name: &str) -> Sleeper {
        let child = Sleeper(Command::new(program).arg("60").spawn().unwrap());
        while !comm(child.0.id()).is_some_and(|comm| is_called(&comm, name)) {
            std::thread::yield_now();
        }
        child
    }

    /// A process is found if no other has its name, and is killed; its replacement ends the fault.
    #[test]
    fn a_process_is_found_by_its_unique_name_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        let (program, name) = program(folder.path());
        let named = HostProcess::Named(name.clone());
        assert!(matches!(
            OtherProcess::find(&named),
            Err(ProcessError::None(_))
        ));
        let first = start(&program, &name);
        let found = OtherProcess::find(&named).unwrap();
        assert_eq!(found.pid, first.0.id());
        let second = start(&program, &name);
        let several = OtherProcess::find(&named).unwrap_err().to_string();
        assert!(
            several.starts_with("2 processes") && several.contains("give the PID"),
            "{several}"
        );
        let one = OtherProcess::find(&HostProcess::Numbered(first.0.id())).unwrap();
        drop(second);
        let clock = Clock::default();
        let mut kill = KillOther::new(one, true);
        let proof = kill.inject(&clock).unwrap();
        assert!(proof.what.ends_with("is dead"), "{proof:?}");
        let third = start(&program, &name);
        let proof = kill.remove(&clock).unwrap();
        assert!(proof.what.contains(&third.0.id().to_string()), "{proof:?}");
        let mut stays = KillOther::new(OtherProcess::find(&named).unwrap(), false);
        stays.inject(&clock).unwrap();
        assert!(stays.remove(&clock).unwrap().what.ends_with("stays dead"));
        assert!(matches!(
            stays.remove(&clock),
            Err(FaultError::Misuse { .. })
        ));
    }

    /// Processes that the machine or this program depends on are rejected.
    #[test]
    fn essential_processes_are_refused() {
        let check = |pid: u32| {
            let error = OtherProcess::find(&HostProcess::Numbered(pid)).unwrap_err();
            assert!(
                matches!(error, ProcessError::Protected(..)),
                "{pid}: {error}"
            );
        };
        check(1);
        check(std::process::id());
        check(parent(std::process::id()).unwrap());
        assert!(matches!(
            OtherProcess::find(&HostProcess::Numbered(u32::MAX)),
            Err(ProcessError::Gone(_))
        ));
    }
}
