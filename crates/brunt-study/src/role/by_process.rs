//! A role that is a process of this program, on a host that its launcher reaches: this machine or a lab host.
//!
//! The rule: the role ends with the experiment, however that ends, and an unexpected exit is detected.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use brunt_core::Clock;
use brunt_host::{RoleFailure, RoleManner, RoleProcess};
use brunt_lab::Fault;
use brunt_lab::faults::{Freeze, Kill};
use brunt_lab::service::{KEEPER_VARIABLE, KeeperOrder};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::answer::answer;
use super::{Role, RoleError};
use crate::control::{self, Absence, Controls, ProcessState, Reply};
use crate::host::{HostName, Launcher};

/// A process that runs a role. Dropping it ends the process. The experiment and its faults share it.
pub(super) struct ProcessRole {
    takes_commands: bool,
    /// Whether the process is only a keeper, whose child processes run the service ([`brunt_lab::service`]).
    keeps: bool,
    name: String,
    /// The folder of a service.
    folder: Option<PathBuf>,
    launcher: Arc<dyn Launcher>,
    process: RoleProcess,
    /// Never locked while another mutex of the role is needed.
    state: Mutex<ProcessState>,
    /// The cores to which the process is pinned, even after a restart.
    pinned: Mutex<Vec<usize>>,
}

impl ProcessRole {
    /// Starts this program with `arguments`, lets it choose a port, and waits until it listens. The first line of the
    /// program's output is its address.
    ///
    /// # Errors
    /// The program does not start; the text includes its output.
    pub fn start(
        name: &str,
        arguments: Vec<String>,
        takes_commands: bool,
        launcher: Arc<dyn Launcher>,
    ) -> Result<ProcessRole, RoleError> {
        let manner = RoleManner::default();
        ProcessRole::start_with(
            name,
            arguments,
            None,
            manner,
            takes_commands,
            launcher,
            Arc::default(),
        )
    }

    /// Starts this program as the keeper of a service, and waits until the service is ready or `interrupted` is set.
    ///
    /// # Errors
    /// The service does not start, or the start was interrupted; the text includes its output.
    pub fn keep(
        name: &str,
        order: &KeeperOrder,
        launcher: Arc<dyn Launcher>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<ProcessRole, RoleError> {
        let manner = RoleManner::of_service(&order.program);
        let kept = Some(order.to_text());
        let unwanted = Arc::clone(interrupted);
        let mut kept =
            ProcessRole::start_with(name, Vec::new(), kept, manner, false, launcher, unwanted)?;
        // After an interruption, a fault that ends still restarts the process, so `interrupted` must not stop a
        // restart.
        kept.process.set_wanted();
        Ok(ProcessRole {
            folder: Some(order.folder.clone()),
            ..kept
        })
    }

    fn start_with(
        name: &str,
        arguments: Vec<String>,
        kept: Option<String>,
        manner: RoleManner,
        takes_commands: bool,
        launcher: Arc<dyn Launcher>,
        unwanted: Arc<AtomicBool>,
    ) -> Result<ProcessRole, RoleError> {
        let starter = Arc::clone(&launcher);
        let make = move |port| {
            let mut command = Command::new(starter.program()?);
            let portal = SocketAddr::new(starter.address(), port);
            command
                .args(&arguments)
                .args(["--portal", &portal.to_string()]);
            command.envs(brunt_block::ring::engine::for_children());
            command.envs(kept.iter().map(|order| (KEEPER_VARIABLE, order)));
            starter.place(&mut command)?;
            Ok(command)
        };
        let process = RoleProcess::start_in(Box::new(make), manner, unwanted);
        let process = process.map_err(|failure| RoleError::of(name, failure))?;
        let (name, keeps) = (name.to_string(), manner.keeps);
        let (state, pinned) = Default::default();
        Ok(ProcessRole {
            takes_commands,
            keeps,
            name,
            folder: None,
            launcher,
            process,
            state,
            pinned,
        })
    }

    fn os(&self, what: &'static str, source: io::Error) -> RoleError {
        RoleError::of(&self.name, RoleFailure::Os { what, source })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Role for ProcessRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &HostName {
        self.launcher.host()
    }

    fn address(&self) -> SocketAddr {
        self.process.address()
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn processes(&self) -> Vec<u32> {
        let pid = self.pid();
        if self.keeps {
            brunt_lab::below(pid)
        } else {
            vec![pid]
        }
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn log(&self) -> Vec<String> {
        self.process.log()
    }

    fn outage(self: Arc<Self>, by: Absence) -> Box<dyn Fault> {
        let pid = self.pid();
        match by {
            Absence::Frozen if self.keeps => Box::new(Freeze::all_below(pid)),
            Absence::Frozen => Box::new(Freeze::new(pid)),
            Absence::Dead => {
                let kill = if self.keeps {
                    Kill::with_all_below
                } else {
                    Kill::new
                };
                let restart = move || {
                    self.restart()
                        .map(|()| self.pid())
                        .map_err(io::Error::other)
                };
                Box::new(kill(pid, Box::new(restart)))
            }
        }
    }

    fn mark_away(&self, away: Absence) -> bool {
        lock(&self.state).mark_away(away, Clock::Monotonic.now())
    }

    fn comes_back(&self) {
        lock(&self.state).mark_running();
    }

    fn pin(&self, cores: &[usize]) -> io::Result<()> {
        *lock(&self.pinned) = cores.to_vec();
        let mut set = CpuSet::new();
        cores
            .iter()
            .filter(|core| **core < CpuSet::MAX_CPU)
            .for_each(|core| set.set(*core));
        for pid in self.processes() {
            for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
                let thread = entry?
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok())
                    .and_then(Pid::from_raw);
                match sched_setaffinity(thread, &set) {
                    // A thread may have ended in the meantime.
                    Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn cores(&self) -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(i32::try_from(self.pid()).ok().and_then(Pid::from_raw))?;
        Ok((0..CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect())
    }

    fn check(&self) -> Result<(), RoleError> {
        let death = self
            .process
            .death()
            .map_err(|source| self.os("be supervised", source))?;
        let Some(death) = death else { return Ok(()) };
        Err(RoleError::Died {
            name: self.name.clone(),
            death,
            lines: self.log(),
        })
    }

    fn freeze(&self) -> Result<(), RoleError> {
        self.check()?;
        self.process
            .freeze(true)
            .map_err(|error| self.os("be frozen", error))
    }

    fn thaw(&self) -> Result<(), RoleError> {
        self.check()?;
        self.process
            .freeze(false)
            .map_err(|error| self.os("be thawed", error))
    }

    fn is_frozen(&self) -> bool {
        self.process.is_frozen()
    }

    fn kill(&self) {
        self.process.kill();
    }

    fn restart(&self) -> Result<(), RoleError> {
        self.process
            .restart()
            .map_err(|failure| RoleError::of(&self.name, failure))?;
        let pinned = lock(&self.pinned).clone();
        if !pinned.is_empty() {
            self.pin(&pinned)
                .map_err(|error| self.os("be kept on its cores", error))?;
        }
        lock(&self.state).begin_new_life(Clock::Monotonic.now());
        Ok(())
    }

    fn stop(&self) -> Result<(), RoleError> {
        let died = self.check();
        self.process.stop();
        died
    }
}

impl Controls for ProcessRole {
    fn state(&self) -> ProcessState {
        *lock(&self.state)
    }

    fn ask(&self, order: &control::Command) -> io::Result<Reply> {
        let mut line = self.process.line();
        answer(self, self.takes_commands, order, &mut line)
    }
}
