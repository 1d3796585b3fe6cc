//! Roles that an agent starts for its controller: targets and sinks, each a process of this program with a thread here that
//! looks after it.
//!
//! The rule: a role serves only what is allowed here, at an address that is allowed here, and ends when its controller says
//! so or the conversation ends, whichever comes first; the kernel ends it with this program.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use brunt_core::{Clock, Nanos};
use brunt_lab::faults::{Freeze, Kill};
use brunt_lab::{Fault, FaultError};
use brunt_result::message::{
    FailureKind, HostFaultFailure, HostRole, RoleEnd, RoleNews, RoleOrder, RoleOutage,
};

use crate::agent_thread::AgentThread;
use crate::allow::{AllowList, FaultNotAllowed};
use crate::breaking::failure;
use crate::clock::moved;
use crate::role_process::{RoleFailure, RoleProcess};

/// How often a role's thread looks for lines that the role says, and whether it lives, soon after an order.
const LOOK: Duration = Duration::from_millis(10);
/// And otherwise: its host has a target to serve.
const QUIET_LOOK: Duration = Duration::from_millis(50);
/// So soon: what is answered at all is answered by then, or heard a little later.
const BUSY_TIME: Duration = Duration::from_secs(1);
/// News that the conversation has not sent yet; then the role's thread waits.
const NEWS_MAX: usize = 64;
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

/// A role, from the wish for it until it is gone. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct AgentRole {
    /// What the controller calls it.
    pub name: String,
    /// Its process, once it has one.
    pub pid: Option<u32>,
    /// When something was asked of it last.
    asked: Instant,
    orders: Sender<RoleOrder>,
    news: Receiver<RoleNews>,
    thread: AgentThread,
}

impl AgentRole {
    /// Begins to start it; `shift_ns` is added to the times of this host's clock.
    ///
    /// # Errors
    /// There is no thread.
    pub fn begin(
        wish: HostRole,
        allow: &Arc<AllowList>,
        serving: Serving,
        shift_ns: i64,
    ) -> io::Result<AgentRole> {
        let (orders, told) = channel();
        let (sender, news) = sync_channel(NEWS_MAX);
        let (allow, name) = (Arc::clone(allow), wish.name.clone());
        let shifted = move |at: Nanos| moved(at, shift_ns);
        let work = move || match start(wish, &allow, serving) {
            Ok(process) => {
                let process = Arc::new(process);
                let play = RolePlay { outage: None, process, died: false };
                // Whoever would hear of it may have gone.
                let _ = play.play(&told, &|news: RoleNews| sender.send(news.dated(shifted)));
            }
            Err(error) => {
                let kind = match error {
                    ServeError::NotAllowed(_) => FailureKind::NotAllowed,
                    _ => FailureKind::Refused,
                };
                let _ = sender.send(RoleNews::Refused { kind, what: error.to_string() });
            }
        };
        let thread = AgentThread::spawn("role", work)?;
        Ok(AgentRole { name, pid: None, asked: Instant::now(), orders, news, thread })
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
        let _ = self.orders.send(order);
    }

    /// What there is to know since the last look, and whether that was the last. A thread that ends without a word has
    /// panicked, which is said in its place.
    pub fn news(&mut self) -> (Vec<RoleNews>, bool) {
        // Looked at first: what it said last is taken below.
        let is_over = self.thread.is_over();
        let mut news: Vec<RoleNews> = self.news.try_iter().collect();
        for one in &news {
            if let RoleNews::Listens { pid, .. } | RoleNews::Back { pid, .. } = one {
                self.pid = Some(*pid);
            }
        }
        let last = news.iter().any(RoleNews::is_last);
        if is_over && !last {
            news.push(panicked(self.pid.is_some()));
        }
        (news, is_over || last)
    }
}

/// What is said of a role whose thread panicked, before or after it listened. Its process has ended with that thread.
fn panicked(listened: bool) -> RoleNews {
    let when = if listened { "while it served, and ended it" } else { "before it listened" };
    let what = format!("the role's thread panicked {when}; the agent's standard error says where");
    RoleNews::Refused { kind: FailureKind::Broken, what }
}

/// What is said of one for which there is no thread.
pub(crate) fn role_without_thread(error: &io::Error) -> RoleNews {
    let what =
        format!("no thread for a role: {error}; end other processes there, or raise the limit (ulimit -u)");
    RoleNews::Refused { kind: FailureKind::Broken, what }
}

/// Starts what a controller wishes for, if it is allowed here.
fn start(wish: HostRole, allow: &AllowList, serving: Serving) -> Result<RoleProcess, ServeError> {
    allow.check_serve(wish.address)?;
    let RoleProgram { mut arguments, login_option } = serving(&wish)?;
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
        command.args(&arguments).args(["--portal", &SocketAddr::new(address, port).to_string()]);
        if let Some((_, login)) = &login {
            command.env(LOGIN_VARIABLE, &login.0);
        }
        Ok(command)
    };
    Ok(RoleProcess::start(Box::new(make))?)
}

/// This program, also where its file is gone: a copy that came by ssh removes itself.
fn own_program() -> PathBuf {
    let there = std::env::current_exe().ok().filter(|own| own.exists());
    there.unwrap_or_else(|| "/proc/self/exe".into())
}

/// A role that plays, in its thread.
struct RolePlay {
    /// It was put out of service, and how. Before the process: a frozen one goes on, and then ends.
    outage: Option<(RoleOutage, Box<dyn Fault>)>,
    process: Arc<RoleProcess>,
    /// That was told.
    died: bool,
}

/// That nobody hears of the role any more.
type Unheard = std::sync::mpsc::SendError<RoleNews>;
/// Passes news on.
type Tell<'a> = &'a dyn Fn(RoleNews) -> Result<(), Unheard>;

impl RolePlay {
    /// Until it was stopped, or nobody can tell it anything or hear of it any more.
    fn play(mut self, told: &Receiver<RoleOrder>, tell: Tell<'_>) -> Result<(), Unheard> {
        tell(RoleNews::Listens { address: self.process.address(), pid: self.process.pid() })?;
        let mut asked = Instant::now();
        loop {
            let look = if asked.elapsed() < BUSY_TIME { LOOK } else { QUIET_LOOK };
            match told.recv_timeout(look) {
                Ok(RoleOrder::Stop) => {
                    self.outage = None;
                    self.process.stop();
                    return tell(RoleNews::Stopped);
                }
                Ok(order) => {
                    self.obey(order, tell)?;
                    asked = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
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
                return if self.died { Ok(()) } else { tell(RoleNews::Lives) };
            }
            RoleOrder::Break(outage) => return tell(self.break_it(outage)),
            RoleOrder::Mend => return tell(self.mend()),
            // The session lets each role start once, and stops it elsewhere.
            RoleOrder::Start(_) | RoleOrder::Stop => {}
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
        let Ok(Some(death)) = self.process.death() else { return Ok(()) };
        self.died = true;
        let (status, lines) = (death.status.into_raw(), self.process.log());
        tell(RoleNews::Died(RoleEnd { status, at: death.at, starved: death.starved, lines }))
    }

    fn break_it(&mut self, outage: RoleOutage) -> RoleNews {
        // One that was not mended ends first.
        self.outage = None;
        let pid = self.process.pid();
        let mut fault: Box<dyn Fault> = match outage {
            RoleOutage::Freeze => Box::new(Freeze::new(pid)),
            RoleOutage::Kill => {
                let process = Arc::clone(&self.process);
                let restart = move || match process.restart() {
                    Ok(()) => Ok(process.pid()),
                    Err(failure) => Err(io::Error::other(failure)),
                };
                Box::new(Kill::new(pid, Box::new(restart)))
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
            let (kind, what) = (HostFaultFailure::Refused, "it is not out of service".to_string());
            return RoleNews::NotDone { kind, what };
        };
        match fault.remove(&Clock::Monotonic) {
            Ok(proof) => RoleNews::Back { proof, pid: self.process.pid() },
            Err(error) => not_done(&error),
        }
    }
}

fn not_done(error: &FaultError) -> RoleNews {
    RoleNews::NotDone { kind: failure(error), what: error.to_string() }
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
            AgentRole { name, pid: None, asked: Instant::now(), orders, news: receiver, thread }
        };
        let check = |said: Vec<RoleNews>, count: usize, words: &str| {
            let (news, over) = role(said).news();
            assert!(over && news.len() == count, "{words}: {news:?}");
            let Some(RoleNews::Refused { kind: FailureKind::Broken, what }) = news.last() else {
                panic!("{words}: {news:?}")
            };
            assert!(what.contains(words), "{what}");
        };
        let listens = RoleNews::Listens { address: "127.0.0.1:1".parse().unwrap(), pid: 7 };
        check(Vec::new(), 1, "panicked before it listened");
        check(vec![listens, RoleNews::Lives], 3, "panicked while it served");
        let (news, over) = role(vec![RoleNews::Stopped]).news();
        assert!(over && news == [RoleNews::Stopped], "{news:?}");
        let RoleNews::Refused { kind, what } = role_without_thread(&io::ErrorKind::WouldBlock.into()) else {
            panic!("it is refused")
        };
        assert!(kind == FailureKind::Broken && what.contains("no thread for a role"), "{what}");
    }

    /// What may not be served, or cannot be, is refused before anything is started.
    #[test]
    fn what_is_not_allowed_is_not_served() {
        let check = |allow: AllowList, address: &str, expected: FailureKind, words: &str| {
            let mut role = AgentRole::begin(wish(address), &Arc::new(allow), none, 0).unwrap();
            let RoleNews::Refused { kind, what } = last(&mut role) else { panic!("{words}") };
            assert!(kind == expected && what.contains(words), "{words}: {kind:?} {what}");
        };
        let only = |words: &[&str]| AllowList::only(words.iter().copied(), &[]).unwrap();
        check(only(&["memory:"]), "10.0.0.9", FailureKind::NotAllowed, "--allow serve:10.0.0.9");
        check(only(&["serve:10.0.0.8"]), "10.0.0.9", FailureKind::NotAllowed, "serve:10.0.0.8");
        check(only(&["serve:10.0.0.9"]), "10.0.0.9", FailureKind::Refused, "serves nothing");
        check(only(&["serve:"]), "10.0.0.9", FailureKind::Refused, "serves nothing");
        check(AllowList::everything(), "::1", FailureKind::Refused, "serves nothing");
    }
}
