//! A role that is a process of this program, on whatever host its launcher starts it.
//!
//! The rule: it ends with the experiment, however that ends, and one that ends before is noticed.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use brunt_core::Clock;
use brunt_lab::Fault;
use brunt_lab::faults::{Freeze, Kill};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::death::{Death, starved_processes};
use super::process::{ControlLine, Process, launch, lock, pid_of};
use super::{Role, RoleError};
use crate::control::{self, Absence, Controls, ProcessState, Reply};
use crate::host::{HostName, Launcher};

/// A role has so long to end when it is asked to; then it is killed.
const END_TIME: Duration = Duration::from_secs(5);
/// An order has to be answered in this time, also by a role whose machine has much else to do.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// How often somebody who waits for an answer looks whether the role stands still.
const FROZEN_LOOK: Duration = Duration::from_millis(10);

/// A process that plays a role. Dropping it ends it. Shared between the experiment and its faults.
pub(super) struct ProcessRole {
    takes_commands: bool,
    name: String,
    launcher: Arc<dyn Launcher>,
    arguments: Vec<String>,
    address: SocketAddr,
    process: Mutex<Process>,
    control: Mutex<ControlLine>,
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Never locked while another of these is wanted.
    state: Mutex<ProcessState>,
    /// The cores that it is kept on, also after a restart.
    pinned: Mutex<Vec<usize>>,
}

impl ProcessRole {
    /// Starts this program with `arguments`, on its own port choice, and waits until it listens.
    /// The role says its address on its first line.
    ///
    /// # Errors
    /// It does not start; the text has what it said.
    pub fn start(
        name: &str,
        arguments: Vec<String>,
        takes_commands: bool,
        launcher: Arc<dyn Launcher>,
    ) -> Result<ProcessRole, RoleError> {
        let lines = Arc::default();
        let (process, control, address) = launch(name, &arguments, launcher.as_ref(), 0, &lines)?;
        let name = name.to_string();
        let (process, control) = (Mutex::new(process), Mutex::new(control));
        let (state, pinned) = Default::default();
        Ok(ProcessRole {
            takes_commands,
            name,
            launcher,
            arguments,
            address,
            process,
            control,
            lines,
            state,
            pinned,
        })
    }

    fn signal(&self, signal: Signal, what: &'static str) -> Result<(), RoleError> {
        self.check()?;
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it was stopped");
        let process = self.process();
        let pid = pid_of(&process.child).filter(|_| !process.ended).ok_or_else(|| self.os(what, gone()))?;
        kill_process(pid, signal).map_err(|error| self.os(what, error.into()))
    }

    fn os(&self, what: &'static str, source: io::Error) -> RoleError {
        RoleError::Os { name: self.name.clone(), what, source }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        lock(&self.process)
    }
}

impl Role for ProcessRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &HostName {
        self.launcher.host()
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn pid(&self) -> u32 {
        self.process().child.id()
    }

    fn log(&self) -> Vec<String> {
        lock(&self.lines).iter().cloned().collect()
    }

    fn outage(self: Arc<Self>, by: Absence) -> Box<dyn Fault> {
        let pid = self.pid();
        match by {
            Absence::Frozen => Box::new(Freeze::new(pid)),
            Absence::Dead => {
                let restart = move || self.restart().map(|()| self.pid()).map_err(io::Error::other);
                Box::new(Kill::new(pid, Box::new(restart)))
            }
        }
    }

    fn goes_away(&self, away: Absence) -> bool {
        let mut state = lock(&self.state);
        let is_there = state.away.is_none();
        if is_there {
            state.away = Some((away, Clock::Monotonic.now()));
        }
        is_there
    }

    fn comes_back(&self) {
        lock(&self.state).away = None;
    }

    fn pin(&self, cores: &[usize]) -> io::Result<()> {
        *lock(&self.pinned) = cores.to_vec();
        let mut set = CpuSet::new();
        cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let thread =
                entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            match sched_setaffinity(thread, &set) {
                // A thread may end meanwhile.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn cores(&self) -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(pid_of(&self.process().child))?;
        Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
    }

    fn check(&self) -> Result<(), RoleError> {
        let mut process = self.process();
        if process.ended {
            return Ok(());
        }
        match process.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                process.readers.drain(..).for_each(|reader| drop(reader.join()));
                let starved = (starved_processes() > process.starved_before)
                    .then(brunt_lab::available_memory)
                    .flatten();
                let death = Death { status, at: process.silent_since.get().copied(), starved };
                Err(RoleError::Died { name: self.name.clone(), death, lines: self.log() })
            }
            Err(source) => Err(self.os("be looked after", source)),
        }
    }

    fn freeze(&self) -> Result<(), RoleError> {
        self.signal(Signal::STOP, "be frozen")?;
        self.process().frozen = true;
        Ok(())
    }

    fn thaw(&self) -> Result<(), RoleError> {
        self.signal(Signal::CONT, "be thawed")?;
        self.process().frozen = false;
        Ok(())
    }

    fn is_frozen(&self) -> bool {
        self.process().frozen
    }

    fn kill(&self) {
        self.process().end();
    }

    fn restart(&self) -> Result<(), RoleError> {
        let mut process = self.process();
        process.end();
        let port = self.address.port();
        let (next, control, _) =
            launch(&self.name, &self.arguments, self.launcher.as_ref(), port, &self.lines)?;
        *process = next;
        *lock(&self.control) = control;
        drop(process);
        let pinned = lock(&self.pinned).clone();
        if !pinned.is_empty() {
            self.pin(&pinned).map_err(|error| self.os("be kept on its cores", error))?;
        }
        let mut state = lock(&self.state);
        let ended = state.away.take().map_or(Clock::Monotonic.now(), |(_, since)| since);
        (state.life, state.last_end) = (state.life + 1, Some(ended));
        Ok(())
    }

    fn stop(&self) -> Result<(), RoleError> {
        let died = self.check();
        let mut process = self.process();
        if died.is_ok() && !process.ended {
            if let Some(pid) = pid_of(&process.child) {
                let _ = kill_process(pid, Signal::TERM);
                // A frozen process takes no signal but this one and SIGKILL.
                let _ = kill_process(pid, Signal::CONT);
            }
            let begin = Instant::now();
            while begin.elapsed() < END_TIME && matches!(process.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        process.end();
        died
    }
}

impl Controls for ProcessRole {
    fn state(&self) -> ProcessState {
        *lock(&self.state)
    }

    fn ask(&self, order: &control::Command) -> io::Result<Reply> {
        if !self.takes_commands {
            let what = format!("{} takes no commands", self.name);
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let mut control = lock(&self.control);
        let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
        line.push(b'\n');
        // What came too late for an earlier order answers nobody.
        while control.answers.try_recv().is_ok() {}
        let orders = control.orders.as_mut().ok_or_else(|| io::Error::other("it accepts no commands"))?;
        orders.write_all(&line)?;
        let mut begin = Instant::now();
        while begin.elapsed() < ANSWER_TIME {
            match control.answers.recv_timeout(FROZEN_LOOK) {
                // Further portals are said on lines of their own.
                Ok(line) => {
                    if let Ok(answer) = serde_json::from_str(&line) {
                        return Ok(answer);
                    }
                }
                // Given up now, its late answer would be taken for that to the next order.
                Err(RecvTimeoutError::Timeout) => {
                    if matches!(self.state().away, Some((Absence::Frozen, _))) {
                        begin = Instant::now();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} does not answer commands", self.name)))
    }
}

impl Drop for ProcessRole {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
