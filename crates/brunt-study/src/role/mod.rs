//! Roles: parts of the one program that an experiment starts as processes, a target or a sink, on this host
//! or another one ([`Launcher`] says how). Started by `brunt run` for `serve = …`; frozen, killed and started
//! again by faults.
//!
//! The rule: a role ends with the experiment, however that ends, and one that ends before is noticed. A run in
//! which a role died unasked is void, and says what the role said last.

mod hook;
mod process;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use brunt_core::Clock;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::control::{self, Absence, Controls, ProcessState, Reply};
use crate::experiment::{Serve, TARGET_NAME};
use crate::host::{HostName, Launcher};
pub use hook::Roles;
use process::{ControlLine, Process, launch, lock, pid_of};

/// A role has so long to end when it is asked to; then it is killed.
const END_TIME: Duration = Duration::from_secs(5);
/// An order has to be answered in this time, also by a role whose machine has much else to do.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// How often somebody who waits for an answer looks whether the role stands still.
const FROZEN_LOOK: Duration = Duration::from_millis(10);

/// Why a role does not play.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// It could not be started, signalled or waited for.
    #[error("{name}: cannot {what}: {source}")]
    Os {
        /// The role.
        name: String,
        /// "be started", for example.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended before it listened, or did not listen in time.
    #[error("{name}: {what}{}", said(.lines))]
    Start {
        /// The role.
        name: String,
        /// What it did instead.
        what: String,
        /// What it said last on its standard error.
        lines: Vec<String>,
    },
    /// It ended, and nobody had asked it to.
    #[error("{name} ended unexpectedly ({status}){}", said(.lines))]
    Died {
        /// The role.
        name: String,
        /// How.
        status: String,
        /// What it said last on its standard error.
        lines: Vec<String>,
    },
}

fn said(lines: &[String]) -> String {
    if lines.is_empty() { ", without a word".to_string() } else { format!(": {}", lines.join("; ")) }
}

/// A process that plays a role. Dropping it ends it. Shared between the experiment and its faults.
pub struct Role {
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

impl Role {
    /// Starts this program with `arguments`, on a port of its own choice, and waits until it listens.
    /// The role says its address on its first line.
    ///
    /// # Errors
    /// It does not start; the text has what it said.
    pub fn start(name: &str, arguments: &[String], launcher: Arc<dyn Launcher>) -> Result<Role, RoleError> {
        let lines = Arc::default();
        let (process, control, address) = launch(name, arguments, launcher.as_ref(), 0, &lines)?;
        let (arguments, name) = (arguments.to_vec(), name.to_string());
        let (process, control) = (Mutex::new(process), Mutex::new(control));
        let (state, pinned) = Default::default();
        Ok(Role { name, launcher, arguments, address, process, control, lines, state, pinned })
    }

    /// The role that serves what an experiment's target asks for.
    ///
    /// # Errors
    /// As [`Role::start`].
    pub fn serve(name: &str, serve: &Serve, launcher: Arc<dyn Launcher>) -> Result<Role, RoleError> {
        Role::start(name, &arguments_of(serve), launcher)
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it plays.
    pub fn host(&self) -> &HostName {
        self.launcher.host()
    }

    /// Where it listens; the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process, which a restart changes.
    pub fn pid(&self) -> u32 {
        self.process().child.id()
    }

    /// Whether it is there, and which of its lives this is.
    pub fn state(&self) -> ProcessState {
        *lock(&self.state)
    }

    /// To be said before it is stopped or killed; false, and nothing said, when it is away already.
    pub(crate) fn goes_away(&self, away: Absence) -> bool {
        let mut state = lock(&self.state);
        let is_there = state.away.is_none();
        if is_there {
            state.away = Some((away, Clock::Monotonic.now()));
        }
        is_there
    }

    /// To be said when it goes on.
    pub(crate) fn comes_back(&self) {
        lock(&self.state).away = None;
    }

    /// Has a target carry out an order. The answer of one that a fault has stopped is waited for until it
    /// goes on.
    ///
    /// # Errors
    /// It is gone, or does not answer in time.
    pub fn ask(&self, order: &control::Command) -> io::Result<Reply> {
        let mut control = lock(&self.control);
        let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
        line.push(b'\n');
        // What came too late for an earlier order answers nobody.
        while control.answers.try_recv().is_ok() {}
        let orders = control.orders.as_mut().ok_or_else(|| io::Error::other("it takes no orders"))?;
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
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} does not answer its orders", self.name)))
    }

    /// Keeps all its threads, and those that they start, on these cores, also after a restart.
    ///
    /// # Errors
    /// It is gone, or there are no such cores.
    pub fn pin(&self, cores: &[usize]) -> io::Result<()> {
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

    /// The cores that it may use.
    ///
    /// # Errors
    /// It is gone.
    pub fn cores(&self) -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(pid_of(&self.process().child))?;
        Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
    }

    /// Whether it plays as it should.
    ///
    /// # Errors
    /// It died, and nobody had asked it to.
    pub fn check(&self) -> Result<(), RoleError> {
        let mut process = self.process();
        if process.ended {
            return Ok(());
        }
        match process.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                process.readers.drain(..).for_each(|reader| drop(reader.join()));
                let (name, status) = (self.name.clone(), status.to_string());
                Err(RoleError::Died { name, status, lines: self.lines() })
            }
            Err(source) => Err(self.os("be looked after", source)),
        }
    }

    /// Stops it where it is: it answers nobody, and its connections stay open.
    ///
    /// # Errors
    /// It is gone.
    pub fn freeze(&self) -> Result<(), RoleError> {
        self.signal(Signal::STOP, "be frozen")?;
        self.process().frozen = true;
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn thaw(&self) -> Result<(), RoleError> {
        self.signal(Signal::CONT, "be thawed")?;
        self.process().frozen = false;
        Ok(())
    }

    /// Whether it is frozen.
    pub fn is_frozen(&self) -> bool {
        self.process().frozen
    }

    /// Kills it, as a power failure would; its connections break. Nothing is wrong when it is gone already.
    pub fn kill(&self) {
        self.process().end();
    }

    /// Starts it again where it listened before, after a [`Role::kill`] or a death.
    ///
    /// # Errors
    /// As [`Role::start`].
    pub fn restart(&self) -> Result<(), RoleError> {
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

    /// Asks it to end, and waits; kills it when it takes too long.
    ///
    /// # Errors
    /// It had died before.
    pub fn shutdown(&self) -> Result<(), RoleError> {
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

    fn signal(&self, signal: Signal, what: &'static str) -> Result<(), RoleError> {
        self.check()?;
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it was ended");
        let process = self.process();
        let pid = pid_of(&process.child).filter(|_| !process.ended).ok_or_else(|| self.os(what, gone()))?;
        kill_process(pid, signal).map_err(|error| self.os(what, error.into()))
    }

    fn os(&self, what: &'static str, source: io::Error) -> RoleError {
        RoleError::Os { name: self.name.clone(), what, source }
    }

    fn lines(&self) -> Vec<String> {
        lock(&self.lines).iter().cloned().collect()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        lock(&self.process)
    }
}

impl Controls for Role {
    fn state(&self) -> ProcessState {
        Role::state(self)
    }

    fn ask(&self, order: &control::Command) -> io::Result<Reply> {
        Role::ask(self, order)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.shutdown();
    }
}

/// The command line of the role that serves this.
fn arguments_of(serve: &Serve) -> Vec<String> {
    if serve.is_sink() {
        return vec!["sink".into()];
    }
    let mut arguments = vec!["target".to_string(), "--control".into(), "--name".into(), TARGET_NAME.into()];
    for lun in serve.luns() {
        arguments.extend(["--lun".to_string(), lun.clone()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a target asks for becomes the command line that a person would write.
    #[test]
    fn command_lines() {
        let check = |serve: Serve, words: &str| assert_eq!(arguments_of(&serve).join(" "), words);
        check(Serve::One("tcp".into()), "sink");
        check(Serve::One("null:1T".into()), &format!("target --control --name {TARGET_NAME} --lun null:1T"));
        check(
            Serve::Luns(vec!["a,ro".into(), "tcp".into()]),
            &format!("target --control --name {TARGET_NAME} --lun a,ro --lun tcp"),
        );
    }
}
