//! Roles that an agent starts for its controller: targets, sinks and services ([`crate::keeping`]), each a process of this
//! program with a thread here that looks after it.
//!
//! The rule: a role serves only what is allowed here, at an address that is allowed here, and ends when its controller says
//! so or the conversation ends, whichever comes first; with this program the kernel ends it, or its keeper does.

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
use crate::breaking::failure;
use crate::clock::moved;
use crate::keeping::{KeepError, KeptService, ServiceFolders};
use crate::role_process::{RoleFailure, RoleManner, RoleProcess};

/// How often a role's thread looks for lines that the role says, and whether it lives, soon after an order.
const LOOK: Duration = Duration::from_millis(10);
/// And otherwise: its host has a target to serve.
const QUIET_LOOK: Duration = Duration::from_millis(50);
/// So soon: what is answered at all is answered by then, or heard a little later.
const BUSY_TIME: Duration = Duration::from_secs(1);
/// News that the conversation has not sent yet; then the role's thread waits.
const NEWS_MAX: usize = 64;
/// Parts of a log that the conversation has not sent yet; then they wait in its file.
const LOG_PARTS_MAX: usize = 2;
/// What a role gets its login in: a command line can be read by everybody on its host.
const LOGIN_VARIABLE: &str = "BRUNT_ROLE_LOGIN";

/// How this program serves what a controller wishes for: its arguments, and whether there is a login. Where to listen, what
/// is allowed and whose child it is are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleProgram {
    /// What follows the program's name.
    pub arguments: Vec<String>,
    /// The option that takes who may log in, if there is one.
    pub login_option: Option<&'static str>,
}

/// That this program does not serve what a controller wishes for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot serve it: {0}")]
pub struct NotServed(pub String);

/// Knows what this program serves.
pub type Serving = fn(&HostRole) -> Result<RoleProgram, NotServed>;

/// Why a role is not started.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    NotAllowed(#[from] FaultNotAllowed),
    #[error(transparent)]
    NotServed(#[from] NotServed),
    #[error("{0}")]
    Failure(#[from] RoleFailure),
}

/// What a controller wishes for.
#[derive(Debug)]
pub(crate) enum RoleWish {
    /// A target or sink, which is started at once.
    Serve(Box<HostRole>),
    /// A service, which is admitted now and started later.
    Keep(Box<HostService>),
}

/// What all roles of a conversation have in common.
#[derive(Clone)]
pub(crate) struct RoleGround {
    pub allow: Arc<AllowList>,
    pub serving: Serving,
    pub folders: Arc<ServiceFolders>,
    /// Added to the times of this host's clock.
    pub shift_ns: i64,
}

/// A role, from the wish for it until it is gone. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct AgentRole {
    /// What the controller calls it.
    pub name: String,
    /// Its process, once it has one.
    pub pid: Option<u32>,
    /// That process only keeps others, who play the role.
    pub keeps: bool,
    /// When something was asked of it last.
    asked: Instant,
    orders: Sender<RoleOrder>,
    news: Receiver<RoleNews>,
    log: HeldLog,
    /// Held back until all of the log was taken.
    last: Option<RoleNews>,
    unwanted: Unwanted,
    thread: AgentThread,
}

/// Says that a role is not wanted any more, also when it is dropped.
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

/// Parts of a role's log that came from its thread.
#[derive(Debug)]
struct HeldLog {
    parts: Receiver<Vec<u8>>,
    next: Option<Vec<u8>>,
}

impl HeldLog {
    fn take(&mut self) -> Option<Vec<u8>> {
        self.next.take().or_else(|| self.parts.try_recv().ok())
    }

    /// Whether there will be no more.
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
    /// Begins to start it, or to admit it.
    ///
    /// # Errors
    /// There is no thread.
    pub fn begin(wish: RoleWish, ground: &RoleGround) -> io::Result<AgentRole> {
        let (orders, told) = channel();
        let (sender, news) = sync_channel(NEWS_MAX);
        let (log, parts) = sync_channel(LOG_PARTS_MAX);
        let (name, keeps) = match &wish {
            RoleWish::Serve(wish) => (wish.name.clone(), false),
            RoleWish::Keep(service) => (service.name.clone(), true),
        };
        let unwanted = Unwanted::default();
        let (ground, flag) = (ground.clone(), Arc::clone(&unwanted.0));
        let work = move || {
            let shifted = move |at: Nanos| moved(at, ground.shift_ns);
            let tell = |news: RoleNews| sender.send(news.dated(shifted)).map_err(|_| Unheard);
            // Whoever would hear of it may have gone.
            let _ = match wish {
                RoleWish::Serve(wish) => {
                    drop(log);
                    serve(*wish, &ground, flag, &told, &tell)
                }
                RoleWish::Keep(service) => keep(*service, &ground, flag, log, &told, &tell),
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

    /// Whether there will be news of it soon.
    pub fn is_busy(&self) -> bool {
        self.pid.is_none() || self.asked.elapsed() < BUSY_TIME
    }

    /// Its thread, which was told to end it.
    pub fn into_thread(self) -> AgentThread {
        self.thread
    }

    /// Tells its thread. One that has ended hears nothing.
    pub fn tell(&mut self, order: RoleOrder) {
        self.asked = Instant::now();
        if order == RoleOrder::Stop {
            // It may not have started yet.
            self.unwanted.say();
        }
        let _ = self.orders.send(order);
    }

    /// The next part of its log, if there is one.
    pub fn log_part(&mut self) -> Option<Vec<u8>> {
        self.log.take()
    }

    /// What there is to know since the last look, and whether that was the last, which is held back until all of its log was
    /// taken. A thread that ends without a word has panicked, which is said in its place.
    pub fn news(&mut self) -> (Vec<RoleNews>, bool) {
        // Looked at first: what it said last is taken below.
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

/// What is said of a role whose thread panicked, before or after it listened. Its process has ended with that thread.
fn panicked(listened: bool) -> RoleNews {
    let when = if listened {
        "while it served, and ended it"
    } else {
        "before it listened"
    };
    let what = format!("the role's thread panicked {when}; the agent's standard error says where");
    RoleNews::Refused {
        kind: FailureKind::Broken,
        what,
    }
}

/// What is said of one for which there is no thread.
pub(crate) fn role_without_thread(error: &io::Error) -> RoleNews {
    let what = format!(
        "no thread for a role: {error}; end other processes there, or raise the limit (ulimit -u)"
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
    told: &Receiver<RoleOrder>,
    tell: Tell<'_>,
) -> Result<(), Unheard> {
    match start(wish, &ground.allow, ground.serving, unwanted) {
        Ok(process) => {
            RolePlay::new(process, false).play(told, tell)?;
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

/// Keeps a service from its admission until it is stopped.
fn keep(
    service: HostService,
    ground: &RoleGround,
    unwanted: Arc<AtomicBool>,
    log: SyncSender<Vec<u8>>,
    told: &Receiver<RoleOrder>,
    tell: Tell<'_>,
) -> Result<(), Unheard> {
    let refused = |error: KeepError| {
        let kind = match error {
            KeepError::NotAllowed(_) => FailureKind::NotAllowed,
            _ => FailureKind::Refused,
        };
        RoleNews::Refused {
            kind,
            what: error.to_string(),
        }
    };
    let kept = match KeptService::new(service, &ground.allow, &ground.folders, log) {
        Ok(kept) => kept,
        Err(error) => return tell(refused(error)),
    };
    tell(RoleNews::Admitted {
        folder: kept.folder().display().to_string(),
    })?;
    let played = loop {
        match told.recv() {
            Ok(RoleOrder::Run(more)) => match kept.start(more, unwanted) {
                Ok(process) => {
                    break RolePlay::new(process, true)
                        .play(told, tell)
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

/// Starts what a controller wishes for, if it is allowed here.
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

/// This program, also where its file is gone: a copy that came by ssh removes itself.
pub(crate) fn own_program() -> PathBuf {
    let there = std::env::current_exe().ok().filter(|own| own.exists());
    there.unwrap_or_else(|| "/proc/self/exe".into())
}

/// A role that plays, in its thread.
struct RolePlay {
    /// It was put out of service, and how. Before the process: a frozen one goes on, and then ends.
    outage: Option<(RoleOutage, Box<dyn Fault>)>,
    process: Arc<RoleProcess>,
    /// It only keeps others, who play the role.
    keeps: bool,
    /// That was told.
    died: bool,
}

/// That nobody hears of the role any more.
struct Unheard;
/// Passes news on.
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

    /// Until it was stopped.
    ///
    /// # Errors
    /// Nobody can tell it anything or hear of it any more. Then a service is killed: its time to end by itself is for an
    /// experiment that waits for it.
    fn play(mut self, told: &Receiver<RoleOrder>, tell: Tell<'_>) -> Result<(), Unheard> {
        let played = self.play_heard(told, tell);
        self.outage = None;
        match &played {
            Ok(()) => self.process.stop(),
            Err(Unheard) if self.keeps => self.process.kill(),
            Err(Unheard) => {}
        }
        played
    }

    fn play_heard(&mut self, told: &Receiver<RoleOrder>, tell: Tell<'_>) -> Result<(), Unheard> {
        tell(RoleNews::Listens {
            address: self.process.address(),
            pid: self.process.pid(),
        })?;
        let mut asked = Instant::now();
        loop {
            let look = if asked.elapsed() < BUSY_TIME {
                LOOK
            } else {
                QUIET_LOOK
            };
            match told.recv_timeout(look) {
                Ok(RoleOrder::Stop) => return Ok(()),
                Ok(order) => {
                    self.obey(order, tell)?;
                    asked = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Unheard),
            }
            self.look(tell)?;
        }
    }

    fn obey(&mut self, order: RoleOrder, tell: Tell<'_>) -> Result<(), Unheard> {
        match order {
            // One that is gone gives no answer, and whoever asked hears why.
            RoleOrder::Say(line) => drop(self.process.line().say(line.as_bytes())),
            RoleOrder::Look => {
                self.look(tell)?;
                return if self.died {
                    Ok(())
                } else {
                    tell(RoleNews::Lives)
                };
            }
            RoleOrder::Break(outage) => return tell(self.break_it(outage)),
            RoleOrder::Mend => return tell(self.mend()),
            // The session lets each role start once, and stops it elsewhere.
            RoleOrder::Start(_) | RoleOrder::Admit(_) | RoleOrder::Run(_) | RoleOrder::Stop => {}
        }
        Ok(())
    }

    /// Passes on what it says, and that it died.
    fn look(&mut self, tell: Tell<'_>) -> Result<(), Unheard> {
        loop {
            // Not kept: whoever restarts it waits for the line.
            let said = self.process.line().hear(Duration::ZERO);
            let Ok(line) = said else { break };
            tell(RoleNews::Said(line))?;
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
        // One that was not mended ends first.
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
            let (kind, what) = (
                HostFaultFailure::Refused,
                "it is not out of service".to_string(),
            );
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
    use crate::agent_thread::END_LOOK;

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
            assert!(!over, "it says why it ends");
            std::thread::sleep(END_LOOK);
        }
    }

    /// A role whose thread is gone without a word is one that is refused, and its host goes on.
    #[test]
    fn a_role_without_a_thread_is_refused() {
        let role = |news: Vec<RoleNews>| {
            let (sender, receiver) = sync_channel(NEWS_MAX);
            news.into_iter().for_each(|one| sender.send(one).unwrap());
            let thread = AgentThread::spawn("over", || {}).unwrap();
            while !thread.is_over() {
                std::thread::sleep(END_LOOK);
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
        let check = |said: Vec<RoleNews>, count: usize, words: &str| {
            let (news, over) = role(said).news();
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
        check(Vec::new(), 1, "panicked before it listened");
        check(
            vec![listens, RoleNews::Lives],
            3,
            "panicked while it served",
        );
        let (news, over) = role(vec![RoleNews::Stopped]).news();
        assert!(over && news == [RoleNews::Stopped], "{news:?}");
        let RoleNews::Refused { kind, what } =
            role_without_thread(&io::ErrorKind::WouldBlock.into())
        else {
            panic!("it is refused")
        };
        assert!(
            kind == FailureKind::Broken && what.contains("no thread for a role"),
            "{what}"
        );
    }

    /// What may not be served, or cannot be, is refused before anything is started.
    #[test]
    fn what_is_not_allowed_is_not_served() {
        let check = |allow: AllowList, address: &str, expected: FailureKind, words: &str| {
            let folders = Arc::default();
            let ground = RoleGround {
                allow: Arc::new(allow),
                serving: none,
                folders,
                shift_ns: 0,
            };
            let wish = RoleWish::Serve(Box::new(wish(address)));
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
