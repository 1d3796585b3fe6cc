//! Roles that an agent starts for its controller: targets, sinks and services ([`crate::services`]). Each is a process
//! of this program, supervised by a thread here.
//!
//! The rule: a role serves only devices that are allowed here, on an address that is allowed here. The role ends when
//! its controller stops it or the connection ends, whichever comes first; if this program dies, the kernel ends the
//! role, or its keeper does.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::time::{Duration, Instant};

use brunt_core::{Clock, Nanos};
use brunt_lab::faults::{Freeze, Kill};
use brunt_lab::{Fault, FaultError};
use brunt_protocol::{
    FailureKind, HostFaultFailure, HostRole, HostService, RoleEnd, RoleNews, RoleOrder, RoleOutage,
};

use crate::agent_thread::AgentThread;
use crate::allow::{AllowList, FaultNotAllowed};
use crate::clock::moved;
use crate::faults::failure;
use crate::role_process::{RoleFailure, RoleManner, RoleProcess};
use crate::services::{AgentService, AgentServiceError, ServiceFolders};

/// Interval between a role thread's checks for output and for the role's death, shortly after an order.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between these checks at other times, when the host is busy serving a target.
const QUIET_POLL: Duration = Duration::from_millis(50);
/// How long checks stay frequent after an order: answers arrive within this time, or are noticed slightly late.
const BUSY_TIME: Duration = Duration::from_secs(1);
/// Capacity for unsent news; when it is full, the role's thread blocks.
const NEWS_MAX: usize = 64;
/// Capacity for unsent parts of a log; the rest stays in the log's file.
const LOG_PARTS_MAX: usize = 2;
/// The environment variable that passes a role's login: command lines are readable by every user on the host.
const LOGIN_VARIABLE: &str = "BRUNT_ROLE_LOGIN";

/// How this program serves a requested role: its arguments, and how a login is passed. The address, the permissions
/// and the parent process are added to the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleProgram {
    /// The arguments after the program's name.
    pub arguments: Vec<String>,
    /// The option that takes the login, if there is one.
    pub login_option: Option<&'static str>,
}

/// This program cannot serve the requested role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot serve it: {0}")]
pub struct NotServed(pub String);

/// Maps a requested role to this program's arguments.
pub type Serving = fn(&HostRole) -> Result<RoleProgram, NotServed>;

/// Why a role was not started.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    NotAllowed(#[from] FaultNotAllowed),
    #[error(transparent)]
    NotServed(#[from] NotServed),
    #[error("{0}")]
    Failure(#[from] RoleFailure),
}

/// A role that a controller requests.
#[derive(Debug)]
pub(crate) enum RoleRequest {
    /// A target or sink, which is started immediately.
    Serve(Box<HostRole>),
    /// A service, which is admitted now and started later.
    Keep(Box<HostService>),
}

/// State shared by all roles of a connection.
#[derive(Clone)]
pub(crate) struct RoleGround {
    pub allow: Arc<AllowList>,
    pub serving: Serving,
    pub folders: Arc<ServiceFolders>,
    /// Added to times on this host's clock.
    pub shift_ns: i64,
}

/// A role, from its request until it has ended. Dropping this ends the role.
#[derive(Debug)]
pub(crate) struct AgentRole {
    /// The controller's name for the role.
    pub name: String,
    /// The PID of the role's process, once there is one.
    pub pid: Option<u32>,
    /// Whether that process is only a keeper of other processes, which play the role.
    pub keeps: bool,
    /// The time of the last order.
    asked: Instant,
    orders: Sender<RoleOrder>,
    news: Receiver<RoleNews>,
    log: HeldLog,
    /// The last message, held back until the whole log has been taken.
    last: Option<RoleNews>,
    unwanted: Unwanted,
    thread: AgentThread,
}

/// Cancels a role, including on drop.
#[derive(Debug, Default)]
struct Unwanted(Arc<AtomicBool>);

impl Unwanted {
    fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.say();
    }
}

/// Parts of a role's log received from its thread.
#[derive(Debug)]
struct HeldLog {
    parts: Receiver<Vec<u8>>,
    next: Option<Vec<u8>>,
}

impl HeldLog {
    fn take(&mut self) -> Option<Vec<u8>> {
        self.next.take().or_else(|| self.parts.try_recv().ok())
    }

    /// Whether no more parts follow.
    fn is_over(&mut self) -> bool {
        if self.next.is_some() {
            return false;
        }
        match self.parts.try_recv() {
            Ok(part) => {
                self.next = Some(part);
                false
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => true,
        }
    }
}

impl AgentRole {
    /// Starts or admits the role, without waiting for it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(wish: RoleRequest, ground: &RoleGround) -> io::Result<AgentRole> {
        let (orders, pending) = channel();
        let (sender, news) = sync_channel(NEWS_MAX);
        let (log, parts) = sync_channel(LOG_PARTS_MAX);
        let (name, keeps) = match &wish {
            RoleRequest::Serve(wish) => (wish.name.clone(), false),
            RoleRequest::Keep(service) => (service.name.clone(), true),
        };
        let unwanted = Unwanted::default();
        let (ground, flag) = (ground.clone(), Arc::clone(&unwanted.0));
        let work = move || {
            let shifted = move |at: Nanos| moved(at, ground.shift_ns);
            let tell = |news: RoleNews| sender.send(news.dated(shifted)).map_err(|_| Unheard);
            // The receiver of the news may be gone.
            let _ = match wish {
                RoleRequest::Serve(wish) => {
                    drop(log);
                    serve(*wish, &ground, flag, &pending, &tell)
                }
                RoleRequest::Keep(service) => keep(*service, &ground, flag, log, &pending, &tell),
            };
        };
        let thread = AgentThread::spawn("role", work)?;
        let (pid, asked, last) = (None, Instant::now(), None);
        let log = HeldLog { parts, next: None };
        Ok(AgentRole {
            name,
            pid,
            keeps,
            asked,
            orders,
            news,
            log,
            last,
            unwanted,
            thread,
        })
    }

    /// Whether news is expected soon.
    pub fn is_busy(&self) -> bool {
        self.pid.is_none() || self.asked.elapsed() < BUSY_TIME
    }

    /// Returns the role's thread, which thereby ends the role.
    pub fn into_thread(self) -> AgentThread {
        self.thread
    }

    /// Sends an order to the role's thread; has no effect if the thread has ended.
    pub fn tell(&mut self, order: RoleOrder) {
        self.asked = Instant::now();
        if order == RoleOrder::Stop {
            // The role may not have started yet.
            self.unwanted.say();
        }
        let _ = self.orders.send(order);
    }

    /// The next part of the role's log, if there is one.
    pub fn log_part(&mut self) -> Option<Vec<u8>> {
        self.log.take()
    }

    /// The news since the last call, and whether it includes the last message, which is held back until the whole log
    /// has been taken. If the thread ended without a last message, it panicked, and an error takes the message's place.
    pub fn news(&mut self) -> (Vec<RoleNews>, bool) {
        // Checked before receiving, so that the thread's last message is received below.
        let is_over = self.thread.is_over();
        let mut news: Vec<RoleNews> = self.news.try_iter().collect();
        for one in &news {
            if let RoleNews::Listens { pid, .. } | RoleNews::Back { pid, .. } = one {
                self.pid = Some(*pid);
            }
        }
        self.last = news.pop_if(|one| one.is_last()).or(self.last.take());
        if is_over && self.last.is_none() {
            self.last = Some(panicked(self.pid.is_some()));
        }
        let ends = self.last.is_some() && self.log.is_over();
        if ends {
            news.extend(self.last.take());
        }
        (news, ends)
    }
}

/// The message for a role whose thread panicked, before or after it listened. The role's process ended with that
/// thread.
fn panicked(listened: bool) -> RoleNews {
    let when = if listened {
        "while serving"
    } else {
        "before listening"
    };
    let what = format!("the role's thread panicked {when}; see the agent's standard error");
    RoleNews::Refused {
        kind: FailureKind::Broken,
        what,
    }
}

/// The message for a role whose thread could not be started.
pub(crate) fn role_without_thread(error: &io::Error) -> RoleNews {
    let what = format!(
        "cannot start a thread for a role: {error}; end other processes there, or raise the limit (ulimit -u)"
    );
    RoleNews::Refused {
        kind: FailureKind::Broken,
        what,
    }
}

/// Serves a target or sink until it is stopped.
fn serve(
    wish: HostRole,
    ground: &RoleGround,
    unwanted: Arc<AtomicBool>,
    pending: &Receiver<RoleOrder>,
    tell: Tell<'_>,
) -> Result<(), Unheard> {
    match start(wish, &ground.allow, ground.serving, unwanted) {
        Ok(process) => {
            RolePlay::new(process, false).play(pending, tell)?;
            tell(RoleNews::Stopped)
        }
        Err(error) => {
            let kind = match error {
                ServeError::NotAllowed(_) => FailureKind::NotAllowed,
                _ => FailureKind::Refused,
            };
            tell(RoleNews::Refused {
                kind,
                what: error.to_string(),
            })
        }
    }
}

/// Keeps a service, from its admission until it is stopped.
fn keep(
    service: HostService,
    ground: &RoleGround,
    unwanted: Arc<AtomicBool>,
    log: SyncSender<Vec<u8>>,
    pending: &Receiver<RoleOrder>,
    tell: Tell<'_>,
) -> Result<(), Unheard> {
    let refused = |error: AgentServiceError| {
        let kind = match error {
            AgentServiceError::NotAllowed(_) => FailureKind::NotAllowed,
            _ => FailureKind::Refused,
        };
        RoleNews::Refused {
            kind,
            what: error.to_string(),
        }
    };
    let kept = match AgentService::new(service, &ground.allow, &ground.folders, log) {
        Ok(kept) => kept,
        Err(error) => return tell(refused(error)),
    };
    tell(RoleNews::Admitted {
        folder: kept.folder().display().to_string(),
    })?;
    let played = loop {
        match pending.recv() {
            Ok(RoleOrder::Run(more)) => match kept.start(more, unwanted) {
                Ok(process) => {
                    break RolePlay::new(process, true)
                        .play(pending, tell)
                        .map(|()| RoleNews::Stopped);
                }
                Err(error) => break Ok(refused(error)),
            },
            Ok(RoleOrder::Stop) => break Ok(RoleNews::Stopped),
            Ok(_) => {}
            Err(_) => break Err(Unheard),
        }
    };
    kept.end();
    tell(played?)
}

/// Starts a requested role, if it is allowed here.
fn start(
    wish: HostRole,
    allow: &AllowList,
    serving: Serving,
    unwanted: Arc<AtomicBool>,
) -> Result<RoleProcess, ServeError> {
    allow.check_serve(wish.address)?;
    let RoleProgram {
        mut arguments,
        login_option,
    } = serving(&wish)?;
    for allowed in allow.words() {
        arguments.extend(["--permit".to_string(), allowed]);
    }
    let login = login_option.zip(wish.login);
    if let Some((option, _)) = &login {
        arguments.extend([(*option).to_string(), format!("env:{LOGIN_VARIABLE}")]);
    }
    let address = wish.address;
    let make = move |port| {
        let mut command = Command::new(own_program());
        command
            .args(&arguments)
            .args(["--portal", &SocketAddr::new(address, port).to_string()]);
        if let Some((_, login)) = &login {
            command.env(LOGIN_VARIABLE, &login.0);
        }
        Ok(command)
    };
    Ok(RoleProcess::start_in(
        Box::new(make),
        RoleManner::default(),
        unwanted,
    )?)
}

/// The path of this program, which works even if its file is gone: a copy sent through ssh deletes itself.
pub(crate) fn own_program() -> PathBuf {
    let there = std::env::current_exe().ok().filter(|own| own.exists());
    there.unwrap_or_else(|| "/proc/self/exe".into())
}

/// A running role, as held by its thread.
struct RolePlay {
    /// The outage, if the role is out of service. Dropped before the process: a frozen process must resume in order
    /// to end.
    outage: Option<(RoleOutage, Box<dyn Fault>)>,
    process: Arc<RoleProcess>,
    /// Whether the process is only a keeper of other processes, which play the role.
    keeps: bool,
    /// Whether the role's death was reported.
    died: bool,
}

/// The receiver of the role's news is gone.
struct Unheard;
/// Forwards news.
type Tell<'a> = &'a dyn Fn(RoleNews) -> Result<(), Unheard>;

impl RolePlay {
    fn new(process: RoleProcess, keeps: bool) -> RolePlay {
        RolePlay {
            outage: None,
            process: Arc::new(process),
            keeps,
            died: false,
        }
    }

    /// Runs until the role is stopped.
    ///
    /// # Errors
    /// The connection is gone. A service is then killed: only an experiment that waits for the service gives it time to
    /// shut down.
    fn play(mut self, pending: &Receiver<RoleOrder>, tell: Tell<'_>) -> Result<(), Unheard> {
        let played = self.play_heard(pending, tell);
        self.outage = None;
        match &played {
            Ok(()) => self.process.stop(),
            Err(Unheard) if self.keeps => self.process.kill(),
            Err(Unheard) => {}
        }
        played
    }

    fn play_heard(&mut self, pending: &Receiver<RoleOrder>, tell: Tell<'_>) -> Result<(), Unheard> {
        tell(RoleNews::Listens {
            address: self.process.address(),
            pid: self.process.pid(),
        })?;
        let mut asked = Instant::now();
        loop {
            let look = if asked.elapsed() < BUSY_TIME {
                POLL_INTERVAL
            } else {
                QUIET_POLL
            };
            match pending.recv_timeout(look) {
                Ok(RoleOrder::Stop) => return Ok(()),
                Ok(order) => {
                    self.obey(order, tell)?;
                    asked = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Unheard),
            }
            self.poll(tell)?;
        }
    }

    fn obey(&mut self, order: RoleOrder, tell: Tell<'_>) -> Result<(), Unheard> {
        match order {
            // If the role is gone, no answer follows, and the caller learns why.
            RoleOrder::Say(line) => drop(self.process.line().say(line.as_bytes())),
            RoleOrder::Look => {
                self.poll(tell)?;
                return if self.died {
                    Ok(())
                } else {
                    tell(RoleNews::Lives)
                };
            }
            RoleOrder::Break(outage) => return tell(self.break_it(outage)),
            RoleOrder::Mend => return tell(self.mend()),
            // The session lets each role start only once, and stops are handled elsewhere.
            RoleOrder::Start(_) | RoleOrder::Admit(_) | RoleOrder::Run(_) | RoleOrder::Stop => {}
        }
        Ok(())
    }

    /// Forwards the role's output, and its death.
    fn poll(&mut self, tell: Tell<'_>) -> Result<(), Unheard> {
        loop {
            // The lock is released after each item, because a restart waits for it.
            let Ok(line) = self.process.line().next_line(Duration::ZERO) else {
                break;
            };
            tell(RoleNews::Output(line))?;
        }
        let is_killed = matches!(self.outage, Some((RoleOutage::Kill, _)));
        if self.died || is_killed {
            return Ok(());
        }
        let Ok(Some(death)) = self.process.death() else {
            return Ok(());
        };
        self.died = true;
        let (status, lines) = (death.status.into_raw(), self.process.log());
        tell(RoleNews::Died(RoleEnd {
            status,
            at: death.at,
            starved: death.starved,
            lines,
        }))
    }

    fn break_it(&mut self, outage: RoleOutage) -> RoleNews {
        // An earlier outage ends first.
        self.outage = None;
        let pid = self.process.pid();
        let mut fault: Box<dyn Fault> = match outage {
            RoleOutage::Freeze if self.keeps => Box::new(Freeze::all_below(pid)),
            RoleOutage::Freeze => Box::new(Freeze::new(pid)),
            RoleOutage::Kill => {
                let process = Arc::clone(&self.process);
                let restart = move || match process.restart() {
                    Ok(()) => Ok(process.pid()),
                    Err(failure) => Err(io::Error::other(failure)),
                };
                let kill = if self.keeps {
                    Kill::with_all_below
                } else {
                    Kill::new
                };
                Box::new(kill(pid, Box::new(restart)))
            }
        };
        match fault.inject(&Clock::Monotonic) {
            Ok(proof) => {
                self.outage = Some((outage, fault));
                RoleNews::Away(proof)
            }
            Err(error) => not_done(&error),
        }
    }

    fn mend(&mut self) -> RoleNews {
        let Some((_, mut fault)) = self.outage.take() else {
            let (kind, what) = (HostFaultFailure::Refused, "it is in service".to_string());
            return RoleNews::NotDone { kind, what };
        };
        match fault.remove(&Clock::Monotonic) {
            Ok(proof) => RoleNews::Back {
                proof,
                pid: self.process.pid(),
            },
            Err(error) => not_done(&error),
        }
    }
}

fn not_done(error: &FaultError) -> RoleNews {
    RoleNews::NotDone {
        kind: failure(error),
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_thread::END_POLL;

    fn wish(address: &str) -> HostRole {
        HostRole {
            name: "disk".into(),
            serve: serde_json::json!("memory:1MiB"),
            address: address.parse().unwrap(),
            congestion: None,
            login: None,
        }
    }

    fn none(_: &HostRole) -> Result<RoleProgram, NotServed> {
        Err(NotServed("this program serves nothing".into()))
    }

    fn last(role: &mut AgentRole) -> RoleNews {
        loop {
            let (mut news, over) = role.news();
            if let Some(news) = news.pop() {
                return news;
            }
            assert!(!over, "the role says why it ends");
            std::thread::sleep(END_POLL);
        }
    }

    /// A role whose thread ended without a message is reported as refused; its host continues.
    #[test]
    fn a_role_without_a_thread_is_refused() {
        let role = |news: Vec<RoleNews>| {
            let (sender, receiver) = sync_channel(NEWS_MAX);
            news.into_iter().for_each(|one| sender.send(one).unwrap());
            let thread = AgentThread::spawn("over", || {}).unwrap();
            while !thread.is_over() {
                std::thread::sleep(END_POLL);
            }
            let (orders, name) = (channel().0, "disk".to_string());
            let log = HeldLog {
                parts: sync_channel(1).1,
                next: None,
            };
            let (pid, keeps, asked, last) = (None, false, Instant::now(), None);
            let unwanted = Unwanted::default();
            AgentRole {
                name,
                pid,
                keeps,
                asked,
                orders,
                news: receiver,
                log,
                last,
                unwanted,
                thread,
            }
        };
        let check = |news: Vec<RoleNews>, count: usize, words: &str| {
            let (news, over) = role(news).news();
            assert!(over && news.len() == count, "{words}: {news:?}");
            let Some(RoleNews::Refused {
                kind: FailureKind::Broken,
                what,
            }) = news.last()
            else {
                panic!("{words}: {news:?}")
            };
            assert!(what.contains(words), "{what}");
        };
        let listens = RoleNews::Listens {
            address: "127.0.0.1:1".parse().unwrap(),
            pid: 7,
        };
        check(Vec::new(), 1, "panicked before listening");
        check(vec![listens, RoleNews::Lives], 3, "panicked while serving");
        let (news, over) = role(vec![RoleNews::Stopped]).news();
        assert!(over && news == [RoleNews::Stopped], "{news:?}");
        let RoleNews::Refused { kind, what } =
            role_without_thread(&io::ErrorKind::WouldBlock.into())
        else {
            panic!("it is refused")
        };
        assert!(
            kind == FailureKind::Broken && what.contains("a thread for a role"),
            "{what}"
        );
    }

    /// Roles that are not allowed or not possible are refused before anything is started.
    #[test]
    fn disallowed_roles_are_refused_before_they_start() {
        let check = |allow: AllowList, address: &str, expected: FailureKind, words: &str| {
            let folders = Arc::default();
            let ground = RoleGround {
                allow: Arc::new(allow),
                serving: none,
                folders,
                shift_ns: 0,
            };
            let wish = RoleRequest::Serve(Box::new(wish(address)));
            let mut role = AgentRole::begin(wish, &ground).unwrap();
            let RoleNews::Refused { kind, what } = last(&mut role) else {
                panic!("{words}")
            };
            assert!(
                kind == expected && what.contains(words),
                "{words}: {kind:?} {what}"
            );
        };
        let only = |words: &[&str]| AllowList::only(words.iter().copied(), &[]).unwrap();
        check(
            only(&["memory:"]),
            "10.0.0.9",
            FailureKind::NotAllowed,
            "--allow serve:10.0.0.9",
        );
        check(
            only(&["serve:10.0.0.8"]),
            "10.0.0.9",
            FailureKind::NotAllowed,
            "serve:10.0.0.8",
        );
        check(
            only(&["serve:10.0.0.9"]),
            "10.0.0.9",
            FailureKind::Refused,
            "serves nothing",
        );
        check(
            only(&["serve:"]),
            "10.0.0.9",
            FailureKind::Refused,
            "serves nothing",
        );
        check(
            AllowList::everything(),
            "::1",
            FailureKind::Refused,
            "serves nothing",
        );
    }
}
