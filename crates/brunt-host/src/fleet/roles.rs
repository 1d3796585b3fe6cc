//! Roles on other hosts, as the side that runs the experiment has them: started, driven and ended by whoever holds a
//! [`FarRole`], with times put on our clock by the thread that holds the host.
//!
//! The rule: whoever asked hears how it went, whatever becomes of the host. A host that is lost ends its roles itself: its
//! agent's lease ends.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brunt_core::Nanos;
use brunt_result::message::{
    FailureKind, HostFaultFailure, HostRole, Proof, RoleEnd, RoleNews, RoleOrder, RoleOutage,
};

use super::keeper::KeeperOrder;
use super::{Fleet, Lane};
use crate::clock::ClockEstimate;
use crate::remote::{HostError, RemoteHost};
use crate::role_process::{END_TIME, START_TIME};
use crate::session::HostNews;

/// Longer than a host takes for anything that has to be heard of a role: it gives up itself before.
const ANSWER_MAX: Duration = Duration::from_secs(60).saturating_add(START_TIME);
/// Longer than a role takes to end.
const STOP_MAX: Duration = Duration::from_secs(15).saturating_add(END_TIME);

/// Lines of a role that nobody has asked for yet.
const LINES_MAX: usize = 256;

/// Why a role on another host is not there, or does not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FarRoleError {
    /// It was not started.
    #[error("host {host}: {what}")]
    Refused {
        /// Its name in the experiment.
        host: String,
        /// For a decision.
        kind: FailureKind,
        /// In the agent's words.
        what: String,
    },
    /// It is not away, or not back.
    #[error("host {host}: {what}")]
    NotDone {
        /// Its name in the experiment.
        host: String,
        /// For a decision.
        kind: HostFaultFailure,
        /// In the agent's words.
        what: String,
    },
    /// It ended, and nobody had ended it.
    #[error("host {host}: it ended")]
    Died {
        /// Its name in the experiment.
        host: String,
        /// How.
        end: Box<RoleEnd>,
    },
    /// The host was lost.
    #[error("{0}; its agent ends the target when its lease runs out")]
    Lost(String),
    /// There is no answer.
    #[error("host {host}: no answer about the target within {at_most:?}")]
    Slow {
        /// Its name in the experiment.
        host: String,
        /// The limit.
        at_most: Duration,
    },
}

/// What was heard of a role, and not taken yet.
#[derive(Debug, Default)]
struct HeardNews {
    said: VecDeque<String>,
    /// The answer to what was asked last.
    answer: Option<RoleNews>,
    died: Option<RoleEnd>,
    /// Nothing more comes of it, also of what is asked from now on.
    refused: Option<RoleNews>,
    /// The host was lost: why.
    lost: Option<String>,
}

/// What is heard of a role: filled by the host's thread.
#[derive(Debug, Default)]
pub(super) struct HeardRole {
    news: Mutex<HeardNews>,
    changed: Condvar,
}

impl HeardRole {
    fn lock(&self) -> MutexGuard<'_, HeardNews> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, one: RoleNews) {
        let mut news = self.lock();
        match one {
            RoleNews::Said(line) => {
                if news.said.len() == LINES_MAX {
                    news.said.pop_front();
                }
                news.said.push_back(line);
            }
            RoleNews::Died(end) => news.died = Some(end),
            refused @ RoleNews::Refused { .. } => news.refused = Some(refused),
            answer => news.answer = Some(answer),
        }
        self.changed.notify_all();
    }

    pub(super) fn lose(&self, why: &str) {
        self.lock().lost = Some(why.to_string());
        self.changed.notify_all();
    }

    /// Waits until `find` finds something, at most so long.
    fn wait<T>(&self, at_most: Duration, mut find: impl FnMut(&mut HeardNews) -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        let mut news = self.lock();
        loop {
            if let Some(found) = find(&mut news) {
                return Some(found);
            }
            let left = at_most.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            news = self.changed.wait_timeout(news, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A role on another host. Dropping it has it ended there.
#[derive(Debug)]
pub struct FarRole {
    fleet: Arc<Fleet>,
    host: String,
    number: u32,
    address: SocketAddr,
    pid: Mutex<u32>,
    heard: Arc<HeardRole>,
    /// One question at a time.
    asking: Mutex<()>,
    /// One conversation at a time.
    talking: Mutex<()>,
}

impl Fleet {
    /// Has a host serve this, and waits until it listens. The host was reached.
    ///
    /// # Errors
    /// It does not serve it, or is lost.
    pub fn start_role(self: &Arc<Fleet>, host: &str, wish: HostRole) -> Result<FarRole, FarRoleError> {
        let (number, heard) = (self.next_fault(), Arc::<HeardRole>::default());
        let order = KeeperOrder::StartRole(number, Box::new(wish), Arc::clone(&heard));
        let told = self.tell(host, Lane::default(), order);
        told.map_err(|error| FarRoleError::Lost(error.to_string()))?;
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let (fleet, host) = (Arc::clone(self), host.to_string());
        let (pid, asking, talking) = Default::default();
        let mut role = FarRole { fleet, host, number, address: nowhere, pid, heard, asking, talking };
        match role.answer(ANSWER_MAX)? {
            RoleNews::Listens { address, pid } => {
                (role.address, role.pid) = (address, Mutex::new(pid));
                Ok(role)
            }
            other => Err(role.refused(other)),
        }
    }
}

impl FarRole {
    /// Where it listens; the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process on its host.
    pub fn pid(&self) -> u32 {
        *self.pid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it lives, or is away because that was asked for.
    ///
    /// # Errors
    /// It died, or nobody knows because its host is lost.
    pub fn check(&self) -> Result<(), FarRoleError> {
        match self.ask(RoleOrder::Look, ANSWER_MAX)? {
            RoleNews::Lives => Ok(()),
            other => Err(self.refused(other)),
        }
    }

    /// Puts it out of service, and waits until that shows.
    ///
    /// # Errors
    /// It does not show, or the host is lost.
    pub fn put_away(&self, outage: RoleOutage) -> Result<Proof, FarRoleError> {
        match self.ask(RoleOrder::Break(outage), ANSWER_MAX)? {
            RoleNews::Away(proof) => Ok(proof),
            other => Err(self.refused(other)),
        }
    }

    /// Puts it back, and waits until that shows.
    ///
    /// # Errors
    /// It was not away, is not back, or the host is lost.
    pub fn put_back(&self) -> Result<Proof, FarRoleError> {
        match self.ask(RoleOrder::Mend, ANSWER_MAX)? {
            RoleNews::Back { proof, pid } => {
                *self.pid.lock().unwrap_or_else(PoisonError::into_inner) = pid;
                Ok(proof)
            }
            other => Err(self.refused(other)),
        }
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// The host is lost.
    pub fn stop(&self) -> Result<(), FarRoleError> {
        match self.ask(RoleOrder::Stop, STOP_MAX) {
            Ok(_) => Ok(()),
            // It was dead already, and its host forgets it.
            Err(FarRoleError::Died { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Others wait for the role until this is dropped.
    pub fn talk(&self) -> MutexGuard<'_, ()> {
        self.talking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it a line. What came before for others is forgotten.
    ///
    /// # Errors
    /// The host is lost.
    pub fn say(&self, line: String) -> Result<(), FarRoleError> {
        self.heard.lock().said.clear();
        self.tell(RoleOrder::Say(line))
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// There is none in this time, or there will be none any more.
    pub fn hear(&self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        let found = self.heard.wait(at_most, |news| match news.said.pop_front() {
            Some(line) => Some(Ok(line)),
            None => {
                let is_over = news.lost.is_some() || news.died.is_some() || news.refused.is_some();
                is_over.then_some(Err(RecvTimeoutError::Disconnected))
            }
        });
        found.unwrap_or(Err(RecvTimeoutError::Timeout))
    }

    fn tell(&self, order: RoleOrder) -> Result<(), FarRoleError> {
        let order = KeeperOrder::Role(self.number, order);
        let told = self.fleet.tell(&self.host, Lane::default(), order);
        told.map_err(|error| FarRoleError::Lost(error.to_string()))
    }

    fn ask(&self, order: RoleOrder, at_most: Duration) -> Result<RoleNews, FarRoleError> {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a question that was given up.
        self.heard.lock().answer = None;
        self.tell(order)?;
        self.answer(at_most)
    }

    fn answer(&self, at_most: Duration) -> Result<RoleNews, FarRoleError> {
        let host = || self.host.clone();
        let found = self.heard.wait(at_most, |news| {
            let failed = match (&news.died, &news.lost) {
                (Some(end), _) => Some(FarRoleError::Died { host: host(), end: Box::new(end.clone()) }),
                (None, Some(why)) => Some(FarRoleError::Lost(why.clone())),
                (None, None) => None,
            };
            news.answer.take().or_else(|| news.refused.clone()).map(Ok).or(failed.map(Err))
        });
        found.unwrap_or_else(|| Err(FarRoleError::Slow { host: host(), at_most }))
    }

    /// What an answer means that is not the one that was asked for.
    fn refused(&self, answer: RoleNews) -> FarRoleError {
        let host = self.host.clone();
        match answer {
            RoleNews::Refused { kind, what } => FarRoleError::Refused { host, kind, what },
            RoleNews::NotDone { kind, what } => FarRoleError::NotDone { host, kind, what },
            other => {
                let what = format!("an answer to something else: {other:?}");
                FarRoleError::NotDone { host, kind: HostFaultFailure::Refused, what }
            }
        }
    }
}

impl Drop for FarRole {
    fn drop(&mut self) {
        // One that has ended hears nothing.
        let _ = self.tell(RoleOrder::Stop);
    }
}

/// The roles of a host, in its thread.
#[derive(Debug, Default)]
pub(super) struct HeldRoles {
    heard: BTreeMap<u32, Arc<HeardRole>>,
}

impl HeldRoles {
    /// Has the host start one.
    pub fn start(
        &mut self,
        role: u32,
        wish: Box<HostRole>,
        heard: Arc<HeardRole>,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        self.heard.insert(role, heard);
        host.role(role, RoleOrder::Start(wish))
    }

    /// Asks something of one that has not ended.
    pub fn ask(&mut self, role: u32, order: RoleOrder, host: &mut RemoteHost) -> Result<(), HostError> {
        if self.heard.contains_key(&role) { host.role(role, order) } else { Ok(()) }
    }

    /// Takes what the host says, if it is about roles; `estimate` is of its clock. What is not is handed back.
    pub fn take(&mut self, news: HostNews, estimate: Option<ClockEstimate>) -> Option<HostNews> {
        let HostNews::Role(role, news) = news else { return Some(news) };
        let heard = self.heard.get(&role)?;
        let ours = |at: Nanos| estimate.map_or(at, |estimate| estimate.to_ours(at));
        let is_last = news.is_last();
        heard.take(news.dated(ours));
        if is_last {
            self.heard.remove(&role);
        }
        None
    }

    /// The host was lost.
    pub fn lose(&mut self, why: &str) {
        std::mem::take(&mut self.heard).into_values().for_each(|heard| heard.lose(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent may refuse a role that has served for a while; whoever asks of it from then on hears so at once.
    #[test]
    fn a_role_that_was_refused_stays_refused() {
        let fleet = Arc::new(Fleet::new("brunt test".into(), BTreeMap::new(), false, Duration::from_secs(1)));
        let (host, heard) = ("far".to_string(), Arc::<HeardRole>::default());
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let (pid, asking, talking) = Default::default();
        let role = FarRole { fleet, host, number: 1, address, pid, heard, asking, talking };
        role.heard.take(RoleNews::Listens { address, pid: 7 });
        assert!(matches!(role.answer(ANSWER_MAX), Ok(RoleNews::Listens { .. })));
        let (kind, what) = (FailureKind::Broken, "its thread panicked".to_string());
        role.heard.take(RoleNews::Refused { kind, what });
        for _ in 0..2 {
            // Asking clears what answered an earlier question.
            role.heard.lock().answer = None;
            let said = role.answer(ANSWER_MAX).map(|answer| role.refused(answer).to_string());
            assert_eq!(said.unwrap(), "host far: its thread panicked");
            assert_eq!(role.hear(ANSWER_MAX), Err(RecvTimeoutError::Disconnected));
        }
    }
}
