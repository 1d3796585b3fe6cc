//! The keeper process of a service: starts the service, waits until it is ready, and ends it along with everything it
//! started.
//!
//! Besides the threads that read the service's output, the keeper has three: this one, one that waits for signals, and
//! one that waits for the end of standard input. The rule: the keeper ends only when it has no descendants left.

use std::env;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getrlimit, set_child_subreaper,
    setrlimit, wait,
};

use super::error::ServiceError;
use super::log::Log;
use super::private::mount_all;
use super::ready::Lacking;
use super::{ADDRESS_VARIABLE, KEEPER_VARIABLE, KeeperOrder, PORT_VARIABLE};
use crate::faults::kill_below;
use crate::process::{below, comm, resident_bytes, signal};
use crate::sys::{Signals, die_with_parent};

/// How often a service is checked until it is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often a ready service is checked: the keeper should not affect measurements.
const CALM_POLL: Duration = Duration::from_millis(250);
/// How often a service's memory use is measured.
const MEMORY_POLL: Duration = Duration::from_secs(1);

/// Events from the keeper's other threads.
pub(super) enum Event {
    /// A signal asked the keeper to end.
    Asked,
    /// The program that started the keeper is gone.
    Alone,
    /// The awaited line appeared in the log.
    Line,
    /// The log is full or cannot be written.
    Trouble(ServiceError),
}

/// Why a service failed, and the last lines of its log.
type Failed = (ServiceError, Vec<String>);

/// Runs as a keeper if this process was started as one, and returns the exit status.
pub(crate) fn serve_if_asked() -> Option<u8> {
    let text = env::var(KEEPER_VARIABLE).ok()?;
    let order = serde_json::from_str(&text).map_err(ServiceError::from);
    let kept = order.map_err(|error| (error, Vec::new())).and_then(keep);
    let Err((error, last)) = kept else {
        return Some(0);
    };
    // The reader may be gone.
    let _ = writeln!(io::stderr(), "{error}");
    last.iter()
        .for_each(|line| drop(writeln!(io::stderr(), "log: {line}")));
    Some(1)
}

/// Runs a service until asked to end.
fn keep(order: KeeperOrder) -> Result<(), Failed> {
    let mut keeper = Keeper::new(order).map_err(|error| (error, Vec::new()))?;
    let played = keeper.play();
    let ended = keeper.end();
    if ended.is_ok() {
        // No process holds the other ends of the pipes any more.
        keeper
            .readers
            .drain(..)
            .for_each(|reader| drop(reader.join()));
    }
    played
        .and(ended)
        .map_err(|error| (error, keeper.log.last()))
}

fn os(what: &str, source: io::Error) -> ServiceError {
    ServiceError::Os {
        what: what.to_string(),
        source,
    }
}

/// Reports signals that ask this process to end, and the end of its standard input.
fn listen(sender: &Sender<Event>) -> io::Result<()> {
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT])?;
    let (asked, alone) = (sender.clone(), sender.clone());
    let wait_for_signals = move || {
        while signals.wait().is_ok() {
            let _ = asked.send(Event::Asked);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait_for_signals)?;
    let wait_for_end = move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = alone.send(Event::Alone);
    };
    std::thread::Builder::new()
        .name("parent".into())
        .spawn(wait_for_end)
        .map(drop)
}

/// Sets this process's limit of open files, which child processes inherit.
fn allow_files(files: u64) -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile)
        .maximum
        .map_or(files, |maximum| maximum.max(files));
    Ok(setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(files),
            maximum: Some(maximum),
        },
    )?)
}

/// The service's address: `--portal` gives the IP address and, after a restart, also the port.
fn free_address(order: &KeeperOrder) -> Result<SocketAddr, ServiceError> {
    let mut arguments = env::args()
        .skip_while(|argument| argument != "--portal")
        .skip(1);
    let portal = arguments
        .next()
        .and_then(|text| text.parse::<SocketAddr>().ok());
    let mut address =
        portal.ok_or_else(|| os("determine its address", io::ErrorKind::InvalidInput.into()))?;
    match order.program.ready.port {
        None => {
            address.set_port(0);
            return Ok(address);
        }
        Some(0) => {}
        Some(port) => address.set_port(port),
    }
    // An existing listener would be mistaken for the service.
    match TcpListener::bind(address).and_then(|listener| listener.local_addr()) {
        Ok(free) => Ok(free),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(ServiceError::PortTaken { address })
        }
        Err(source) => Err(os(&format!("use {address}"), source)),
    }
}

struct Keeper {
    order: KeeperOrder,
    address: SocketAddr,
    log: Arc<Log>,
    /// The threads that read the output of the service's programs.
    readers: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    lacking: Lacking,
    /// How long its processes may take to end on their own, once the service has been asked to end.
    ends: Option<Duration>,
    command: Option<Pid>,
    command_ended: Option<WaitStatus>,
    /// A running attempt of the ready command.
    attempt: Option<Pid>,
    /// Whether this process has no children.
    childless: bool,
    memory_seen: Instant,
}

impl Keeper {
    /// A keeper that has not started anything yet.
    fn new(order: KeeperOrder) -> Result<Keeper, ServiceError> {
        set_child_subreaper(Some(getpid())).map_err(|error| os("adopt processes", error.into()))?;
        let (sender, events) = channel();
        listen(&sender).map_err(|error| os("handle signals", error))?;
        if let Some(files) = order.program.limits.files {
            allow_files(files)
                .map_err(|error| os(&format!("set limits.files to {files}"), error))?;
        }
        let address = free_address(&order)?;
        let log = Log::open(&order.log, order.program.limits.log_bytes, sender)?;
        let lacking = Lacking::new(&order.program.ready, address, order.program.daemon);
        Ok(Keeper {
            order,
            address,
            log,
            readers: Vec::new(),
            events,
            lacking,
            ends: None,
            command: None,
            command_ended: None,
            attempt: None,
            childless: true,
            memory_seen: Instant::now(),
        })
    }

    /// Runs the service, from preparation until it is asked to end.
    fn play(&mut self) -> Result<(), ServiceError> {
        let begin = Instant::now();
        mount_all(&self.order)?;
        if let Some(prepare) = self
            .order
            .program
            .prepare
            .clone()
            .filter(|_| !self.order.prepared.exists())
        {
            self.command = Some(self.start(&prepare, true)?);
            while self.command_ended.is_none() {
                if self.step(POLL_INTERVAL)? {
                    return Ok(());
                }
                self.in_time(begin, "its prepare command does not exit")?;
            }
            match self.command_ended.take() {
                Some(status) if status.exit_status() != Some(0) => {
                    return Err(ServiceError::Unprepared { status });
                }
                _ => {}
            }
            let done = std::fs::write(&self.order.prepared, "");
            done.map_err(|error| os("record that it is prepared", error))?;
        }
        if let Some(words) = &self.order.program.ready.line {
            self.log.wait_for(words);
        }
        let command = self.order.program.command.clone();
        self.command = Some(self.start(&command, true)?);
        loop {
            if self.step(POLL_INTERVAL)? {
                return Ok(());
            }
            self.is_alive()?;
            if self.lacking.is_nothing() {
                break;
            }
            if self.lacking.attempt_is_due() {
                let command = self.order.program.ready.command.clone().unwrap_or_default();
                self.attempt = Some(self.start(&command, false)?);
            }
            let lacking = self.lacking.describe();
            self.in_time(begin, &lacking)?;
        }
        let said = writeln!(io::stdout(), "{}", self.address).and_then(|()| io::stdout().flush());
        said.map_err(|error| os("report that it is ready", error))?;
        while !self.step(CALM_POLL)? {
            self.is_alive()?;
        }
        Ok(())
    }

    fn in_time(&self, begin: Instant, lacking: &str) -> Result<(), ServiceError> {
        let within = self.order.program.ready.within;
        match begin.elapsed() > within {
            true => Err(ServiceError::NotReady {
                within,
                lacking: lacking.to_string(),
            }),
            false => Ok(()),
        }
    }

    /// Starts a program of the service; its output goes to the log if `heard` is set.
    fn start(&mut self, command: &[String], heard: bool) -> Result<Pid, ServiceError> {
        let (program, arguments) = command.split_first().ok_or_else(|| {
            let source = io::ErrorKind::InvalidInput.into();
            ServiceError::Start {
                program: String::new(),
                source,
            }
        })?;
        let mut starting = Command::new(program);
        starting
            .args(arguments)
            .envs(&self.order.program.environment)
            .env(ADDRESS_VARIABLE, self.address.ip().to_string())
            .env_remove(KEEPER_VARIABLE)
            .current_dir(&self.order.folder)
            .stdin(Stdio::null())
            // Terminal signals are meant for the experiment.
            .process_group(0);
        if self.address.port() != 0 {
            starting.env(PORT_VARIABLE, self.address.port().to_string());
        }
        match heard {
            false => {
                starting.stdout(Stdio::null()).stderr(Stdio::null());
            }
            true => {
                let (reader, writer) = io::pipe().map_err(|error| os("create a pipe", error))?;
                let again = writer
                    .try_clone()
                    .map_err(|error| os("create a pipe", error))?;
                starting.stdout(again).stderr(writer);
                let reading = self
                    .log
                    .read(reader)
                    .map_err(|error| os("read its output", error))?;
                self.readers.push(reading);
            }
        }
        die_with_parent(&mut starting);
        let child = starting.spawn();
        let child = child.map_err(|source| ServiceError::Start {
            program: program.clone(),
            source,
        })?;
        Ok(Pid::from_child(&child))
    }

    /// Waits up to `time` for an event; returns whether the service should end.
    fn step(&mut self, time: Duration) -> Result<bool, ServiceError> {
        match self.events.recv_timeout(time) {
            Ok(Event::Asked) => self.ends = Some(self.order.program.stop_within),
            // Nothing needs the service any more.
            Ok(Event::Alone) | Err(RecvTimeoutError::Disconnected) => {
                self.ends = Some(Duration::ZERO)
            }
            Ok(Event::Line) => self.lacking.line_seen(),
            Ok(Event::Trouble(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {}
        }
        self.reap()?;
        if let Some(max) = self.order.program.limits.memory_bytes
            && self.memory_seen.elapsed() >= MEMORY_POLL
        {
            self.memory_seen = Instant::now();
            let used = below(std::process::id())
                .into_iter()
                .map(resident_bytes)
                .sum();
            if used > max {
                return Err(ServiceError::MemoryFull { used, max });
            }
        }
        Ok(self.ends.is_some())
    }

    /// Reaps processes that have ended, including adopted ones.
    fn reap(&mut self) -> Result<(), ServiceError> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if self.command == Some(pid) => {
                    self.command_ended = Some(status)
                }
                Ok(Some((pid, status))) if self.attempt == Some(pid) => {
                    self.attempt = None;
                    self.lacking.attempt_ended(status);
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => {
                    self.childless = false;
                    return Ok(());
                }
                Err(rustix::io::Errno::CHILD) => {
                    self.childless = true;
                    return Ok(());
                }
                Err(error) => return Err(os("wait for its processes", error.into())),
            }
        }
    }

    /// Checks that the service runs as it should.
    fn is_alive(&mut self) -> Result<(), ServiceError> {
        let Some(status) = self.command_ended else {
            return Ok(());
        };
        let went_well = status.exit_status() == Some(0);
        if went_well && self.order.program.daemon {
            self.lacking.returned();
            return if self.childless {
                Err(ServiceError::AllEnded)
            } else {
                Ok(())
            };
        }
        let left = self.left();
        match left.is_empty() || !went_well {
            true => Err(ServiceError::Ended { status }),
            false => Err(ServiceError::ForkedAway { left: named(&left) }),
        }
    }

    /// The service's living processes, except the ready command.
    fn left(&self) -> Vec<u32> {
        let attempt = self
            .attempt
            .and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        below(std::process::id())
            .into_iter()
            .filter(|pid| Some(*pid) != attempt)
            .collect()
    }

    /// Ends all descendants: asks them to terminate, and kills those that take too long.
    fn end(&mut self) -> Result<(), ServiceError> {
        let (begin, patience) = (Instant::now(), self.ends.unwrap_or_default());
        if !patience.is_zero() {
            for pid in below(std::process::id()) {
                let _ = signal(pid, Signal::TERM);
                // A stopped process handles no signals except this one and SIGKILL.
                let _ = signal(pid, Signal::CONT);
            }
            while begin.elapsed() < patience {
                self.reap()?;
                if self.childless {
                    return Ok(());
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        kill_below(std::process::id());
        self.reap()?;
        match self.childless {
            true => Ok(()),
            false => Err(stuck(&below(std::process::id()), self.attempt)),
        }
    }
}

/// The error for descendants of a keeper that don't end; one of them may be an attempt of the ready command.
fn stuck(pids: &[u32], attempt: Option<Pid>) -> ServiceError {
    let attempt = attempt.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    let (ready, service): (Vec<u32>, Vec<u32>) =
        pids.iter().partition(|pid| Some(**pid) == attempt);
    let mut left = named(&service);
    if !ready.is_empty() {
        left = format!(
            "{left}{}{}, the ready command",
            if left.is_empty() { "" } else { "; " },
            named(&ready)
        );
    }
    ServiceError::Stuck { left }
}

/// Lists processes by name and number.
fn named(pids: &[u32]) -> String {
    let name = |pid: &u32| format!("{} ({pid})", comm(*pid).unwrap_or_default());
    pids.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::sleeper::Sleeper;

    /// All processes that don't end are named, including the ready command.
    #[test]
    fn processes_that_do_not_end_are_named() {
        let sleeper = || {
            Sleeper(
                Command::new("sleep")
                    .arg("60")
                    .stdin(Stdio::null())
                    .spawn()
                    .unwrap(),
            )
        };
        let (one, other) = (sleeper(), sleeper());
        let [pid, ready] = [&one, &other].map(|one| one.0.id());
        let attempt = Some(Pid::from_child(&other.0));
        let check = |pids: &[u32], attempt: Option<Pid>, said: &str| {
            let error = stuck(pids, attempt).to_string();
            assert_eq!(error, format!("some of its processes do not exit: {said}"));
        };
        // Between fork and exec a process has its parent's name, so this waits for exec.
        let name = |pid: u32| format!("{} ({pid})", comm(pid).unwrap());
        let is_sleep = |pid: u32| comm(pid).is_some_and(|name| name == "sleep");
        while !is_sleep(pid) || !is_sleep(ready) {
            std::thread::yield_now();
        }
        check(&[pid], None, &name(pid));
        check(&[pid], attempt, &name(pid));
        check(
            &[ready],
            attempt,
            &format!("{}, the ready command", name(ready)),
        );
        check(
            &[pid, ready],
            attempt,
            &format!("{}; {}, the ready command", name(pid), name(ready)),
        );
    }
}
