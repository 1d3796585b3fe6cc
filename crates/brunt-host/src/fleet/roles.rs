//! Roles on other hosts, as seen by the controller: the owner of a [`FarRole`] starts, drives and ends it, and the
//! host's thread converts times to our clock.
//!
//! The rule: every caller gets a result, even if the host is lost. A lost host ends its roles itself when its agent's
//! lease expires. The part of a service's log that has arrived is kept, and the log says where it was cut off.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brunt_core::Nanos;
use brunt_protocol::{
    FailureKind, HostFaultFailure, HostRole, HostService, Proof, RoleEnd, RoleNews, RoleOrder,
    RoleOutage,
};

use super::host_thread::HostThreadOrder;
use super::{Fleet, Lane};
use crate::clock::ClockEstimate;
use crate::host_error::HostError;
use crate::host_news::HostNews;
use crate::remote::RemoteHost;
use crate::role_process::{RoleManner, START_POLL};

/// Longer than a host takes to respond to an order to a role, not counting the role's start time: the host times out
/// first.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Longer than a host takes to end a role, not counting the role's stop time.
const STOP_TIME: Duration = Duration::from_secs(15);
/// Longer than a host takes to end a service, whose log is read to the end and whose folder is removed, not counting
/// its stop time.
const STOP_SERVICE_TIME: Duration = Duration::from_secs(90);

/// Maximum number of unread lines from a role.
const LINES_MAX: usize = 256;

/// Why a role on another host is unavailable, or failed to carry out an order.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FarRoleError {
    /// The role was not started.
    #[error("host {host}: {what}")]
    Refused {
        /// The host's name in the experiment.
        host: String,
        /// The kind of failure, for decisions in code.
        kind: FailureKind,
        /// The agent's message.
        what: String,
    },
    /// The role couldn't be taken out of service, or put back.
    #[error("host {host}: {what}")]
    NotDone {
        /// The host's name in the experiment.
        host: String,
        /// The kind of failure, for decisions in code.
        kind: HostFaultFailure,
        /// The agent's message.
        what: String,
    },
    /// The role ended on its own.
    #[error("host {host}: it ended")]
    Died {
        /// The host's name in the experiment.
        host: String,
        /// How it ended.
        end: Box<RoleEnd>,
    },
    /// The host was lost.
    #[error("{0}; its agent ends the role when its lease expires")]
    Lost(String),
    /// The role's output cannot be written on this machine.
    #[error("cannot write its log {}: {source}", .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// There was no reply in time.
    #[error("host {host}: no reply about the role within {at_most:?}")]
    Slow {
        /// The host's name in the experiment.
        host: String,
        /// The limit.
        at_most: Duration,
    },
    /// The caller canceled the role.
    #[error("host {host}: the role was canceled before it was listening")]
    Unwanted {
        /// The host's name in the experiment.
        host: String,
    },
}

/// The file that a service's output is appended to.
#[derive(Debug)]
struct RoleLog {
    path: PathBuf,
    file: File,
    /// Set once a write has failed.
    failed: Option<Arc<io::Error>>,
}

impl RoleLog {
    fn open(path: &Path) -> Result<RoleLog, FarRoleError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let failed = |source| FarRoleError::Log {
            path: path.to_path_buf(),
            source: Arc::new(source),
        };
        Ok(RoleLog {
            path: path.to_path_buf(),
            file: file.map_err(failed)?,
            failed: None,
        })
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(bytes).err().map(Arc::new);
        }
    }

    fn check(&self) -> Result<(), FarRoleError> {
        match &self.failed {
            Some(source) => Err(FarRoleError::Log {
                path: self.path.clone(),
                source: Arc::clone(source),
            }),
            None => Ok(()),
        }
    }
}

/// Unread news of a role.
#[derive(Debug, Default)]
struct UnreadNews {
    /// The log, for services only.
    log: Option<RoleLog>,
    output: VecDeque<String>,
    /// The reply to the last order.
    answer: Option<RoleNews>,
    died: Option<RoleEnd>,
    /// Whether the role ended because it was asked to.
    stopped: bool,
    /// Set if no more news follows; later orders get this reply, too.
    refused: Option<RoleNews>,
    /// Why the host was lost.
    lost: Option<String>,
}

/// The news of a role, filled in by the host's thread.
#[derive(Debug, Default)]
pub(super) struct RoleInbox {
    news: Mutex<UnreadNews>,
    changed: Condvar,
}

impl RoleInbox {
    fn lock(&self) -> MutexGuard<'_, UnreadNews> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, one: RoleNews) {
        let mut news = self.lock();
        match one {
            RoleNews::Output(line) => {
                if news.output.len() == LINES_MAX {
                    news.output.pop_front();
                }
                news.output.push_back(line);
            }
            RoleNews::Log(part) => news.log.iter_mut().for_each(|log| log.add(&part)),
            RoleNews::Died(end) => news.died = Some(end),
            RoleNews::Stopped => news.stopped = true,
            refused @ RoleNews::Refused { .. } => news.refused = Some(refused),
            answer => news.answer = Some(answer),
        }
        self.changed.notify_all();
    }

    pub(super) fn lose(&self, why: &str) {
        let mut news = self.lock();
        news.lost = Some(why.to_string());
        let note = format!("\nbrunt: {why}; the service's output after this point is missing\n");
        news.log.iter_mut().for_each(|log| log.add(note.as_bytes()));
        self.changed.notify_all();
    }

    /// Waits until `find` returns something, for up to `at_most`.
    fn wait<T>(
        &self,
        at_most: Duration,
        mut find: impl FnMut(&mut UnreadNews) -> Option<T>,
    ) -> Option<T> {
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
            news = self
                .changed
                .wait_timeout(news, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// A role on another host. Dropping the value ends the role on its host.
#[derive(Debug)]
pub struct FarRole {
    fleet: Arc<Fleet>,
    host: String,
    number: u32,
    address: SocketAddr,
    /// The folder on the host, for a service.
    folder: Option<PathBuf>,
    pid: Mutex<u32>,
    /// Maximum wait for an answer; `stop_max` is the maximum wait for the role's end.
    answer_max: Duration,
    stop_max: Duration,
    heard: Arc<RoleInbox>,
    /// Held during an order, so that there is only one at a time.
    asking: Mutex<()>,
    /// Held during a conversation, so that there is only one at a time.
    talking: Mutex<()>,
}

impl Fleet {
    /// Makes a host serve this role, and waits until it listens. The host must be connected.
    ///
    /// # Errors
    /// The host refuses or fails to serve the role, or is lost.
    pub fn start_role(
        self: &Arc<Fleet>,
        host: &str,
        wish: HostRole,
    ) -> Result<FarRole, FarRoleError> {
        let manner = RoleManner::default();
        let order = RoleOrder::Start(Box::new(wish));
        let mut role = self.begin_role(host, order, manner, STOP_TIME, UnreadNews::default())?;
        role.listens(&AtomicBool::new(false))?;
        Ok(role)
    }

    /// Makes a host prepare to start a service, if the host allows it; [`FarRole::run`] starts the service. The
    /// service's output is appended to `log`. The host must be connected.
    ///
    /// # Errors
    /// The host doesn't allow the service, has no space for it, or is lost; or the log cannot be created.
    pub fn admit_service(
        self: &Arc<Fleet>,
        host: &str,
        service: HostService,
        log: &Path,
    ) -> Result<FarRole, FarRoleError> {
        let manner = RoleManner::of_service(&service.program);
        let news = UnreadNews {
            log: Some(RoleLog::open(log)?),
            ..UnreadNews::default()
        };
        let order = RoleOrder::Admit(Box::new(service));
        let mut role = self.begin_role(host, order, manner, STOP_SERVICE_TIME, news)?;
        match role.answer(ANSWER_TIME)? {
            RoleNews::Admitted { folder } => {
                role.folder = Some(folder.into());
                Ok(role)
            }
            other => Err(role.refused(other)),
        }
    }

    fn begin_role(
        self: &Arc<Fleet>,
        host: &str,
        order: RoleOrder,
        manner: RoleManner,
        stop_time: Duration,
        news: UnreadNews,
    ) -> Result<FarRole, FarRoleError> {
        let heard = Arc::new(RoleInbox {
            news: Mutex::new(news),
            changed: Condvar::default(),
        });
        let number = self.next_fault();
        let order = HostThreadOrder::BeginRole(number, order, Arc::clone(&heard));
        let sent = self.tell(host, Lane::default(), order);
        sent.map_err(|error| FarRoleError::Lost(error.to_string()))?;
        let (pid, asking, talking) = Default::default();
        Ok(FarRole {
            fleet: Arc::clone(self),
            host: host.to_string(),
            number,
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            folder: None,
            pid,
            answer_max: ANSWER_TIME.saturating_add(manner.start_time),
            stop_max: stop_time.saturating_add(manner.end_time),
            heard,
            asking,
            talking,
        })
    }
}

impl FarRole {
    /// Starts an admitted service with these additional variables, and waits until it is ready or `unwanted` is set.
    ///
    /// # Errors
    /// The service doesn't start, was canceled, or the host is lost.
    pub fn run(
        &mut self,
        more: BTreeMap<String, String>,
        unwanted: &AtomicBool,
    ) -> Result<(), FarRoleError> {
        self.tell(RoleOrder::Run(more))?;
        self.listens(unwanted)
    }

    /// Waits until the role listens or is canceled.
    fn listens(&mut self, unwanted: &AtomicBool) -> Result<(), FarRoleError> {
        let begin = Instant::now();
        let answer = loop {
            let left = self.answer_max.saturating_sub(begin.elapsed());
            match self.answer(left.min(START_POLL)) {
                Err(FarRoleError::Slow { host, .. }) if unwanted.load(Ordering::Relaxed) => {
                    return Err(FarRoleError::Unwanted { host });
                }
                Err(FarRoleError::Slow { .. }) if left > START_POLL => {}
                Err(FarRoleError::Slow { host, .. }) => {
                    return Err(FarRoleError::Slow {
                        host,
                        at_most: self.answer_max,
                    });
                }
                answer => break answer?,
            }
        };
        match answer {
            RoleNews::Listens { address, pid } => {
                (self.address, self.pid) = (address, Mutex::new(pid));
                Ok(())
            }
            other => Err(self.refused(other)),
        }
    }

    /// The folder on the host, for a service.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Why the host was lost, if it was.
    pub fn lost(&self) -> Option<String> {
        self.heard.lock().lost.clone()
    }

    /// The role's address, which doesn't change when it restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The role's PID on its host.
    pub fn pid(&self) -> u32 {
        *self.pid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the role is running, or is out of service or has ended as requested.
    ///
    /// # Errors
    /// The role died, its state is unknown because its host is lost, or its log cannot be written on this machine.
    pub fn check(&self) -> Result<(), FarRoleError> {
        if self.heard.lock().stopped {
            return Ok(());
        }
        match self.ask(RoleOrder::Look)? {
            RoleNews::Lives => self
                .heard
                .lock()
                .log
                .as_ref()
                .map_or(Ok(()), RoleLog::check),
            other => Err(self.refused(other)),
        }
    }

    /// Takes the role out of service, and waits until that is verified.
    ///
    /// # Errors
    /// The outage can't be verified, or the host is lost.
    pub fn interrupt(&self, outage: RoleOutage) -> Result<Proof, FarRoleError> {
        match self.ask(RoleOrder::Break(outage))? {
            RoleNews::Away(proof) => Ok(proof),
            other => Err(self.refused(other)),
        }
    }

    /// Puts the role back into service, and waits until that is verified.
    ///
    /// # Errors
    /// The role was not out of service, is not back in service, or the host is lost.
    pub fn put_back(&self) -> Result<Proof, FarRoleError> {
        match self.ask(RoleOrder::Mend)? {
            RoleNews::Back { proof, pid } => {
                *self.pid.lock().unwrap_or_else(PoisonError::into_inner) = pid;
                Ok(proof)
            }
            other => Err(self.refused(other)),
        }
    }

    /// Ends the role, and waits until it has ended.
    ///
    /// # Errors
    /// The host is lost.
    pub fn stop(&self) -> Result<(), FarRoleError> {
        let _one = self.asking();
        if self.heard.lock().stopped {
            return Ok(());
        }
        self.tell(RoleOrder::Stop)?;
        // If the role had already died, its end is complete only once all of its output has arrived.
        let found = self.heard.wait(self.stop_max, |news| match &news.lost {
            _ if news.stopped || news.refused.is_some() => Some(Ok(())),
            Some(why) => Some(Err(FarRoleError::Lost(why.clone()))),
            None => None,
        });
        found.unwrap_or_else(|| {
            Err(FarRoleError::Slow {
                host: self.host.clone(),
                at_most: self.stop_max,
            })
        })
    }

    /// Locks the conversation with the role until the guard is dropped.
    pub fn talk(&self) -> MutexGuard<'_, ()> {
        self.talking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the role a line. Discards earlier lines that have not been read.
    ///
    /// # Errors
    /// The host is lost.
    pub fn say(&self, line: String) -> Result<(), FarRoleError> {
        self.heard.lock().output.clear();
        self.tell(RoleOrder::Say(line))
    }

    /// Waits for the next line that the role prints.
    ///
    /// # Errors
    /// No line arrives in this time, or none will follow.
    pub fn next_line(&self, at_most: Duration) -> Result<String, RecvTimeoutError> {
        let found = self
            .heard
            .wait(at_most, |news| match news.output.pop_front() {
                Some(line) => Some(Ok(line)),
                None => {
                    let is_over =
                        news.lost.is_some() || news.died.is_some() || news.refused.is_some();
                    is_over.then_some(Err(RecvTimeoutError::Disconnected))
                }
            });
        found.unwrap_or(Err(RecvTimeoutError::Timeout))
    }

    fn tell(&self, order: RoleOrder) -> Result<(), FarRoleError> {
        let order = HostThreadOrder::Role(self.number, order);
        let sent = self.fleet.tell(&self.host, Lane::default(), order);
        sent.map_err(|error| FarRoleError::Lost(error.to_string()))
    }

    fn asking(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, order: RoleOrder) -> Result<RoleNews, FarRoleError> {
        let _one = self.asking();
        if self.heard.lock().stopped {
            let (kind, what) = (HostFaultFailure::Refused, "it was stopped".to_string());
            return Err(FarRoleError::NotDone {
                host: self.host.clone(),
                kind,
                what,
            });
        }
        // This discards the reply to an earlier order that timed out.
        self.heard.lock().answer = None;
        self.tell(order)?;
        self.answer(self.answer_max)
    }

    fn answer(&self, at_most: Duration) -> Result<RoleNews, FarRoleError> {
        let host = || self.host.clone();
        let found = self.heard.wait(at_most, |news| {
            let failed = match (&news.died, &news.lost) {
                (Some(end), _) => Some(FarRoleError::Died {
                    host: host(),
                    end: Box::new(end.clone()),
                }),
                (None, Some(why)) => Some(FarRoleError::Lost(why.clone())),
                (None, None) => None,
            };
            news.answer
                .take()
                .or_else(|| news.refused.clone())
                .map(Ok)
                .or(failed.map(Err))
        });
        found.unwrap_or_else(|| {
            Err(FarRoleError::Slow {
                host: host(),
                at_most,
            })
        })
    }

    /// Turns an unexpected reply into an error.
    fn refused(&self, answer: RoleNews) -> FarRoleError {
        let host = self.host.clone();
        match answer {
            RoleNews::Refused { kind, what } => FarRoleError::Refused { host, kind, what },
            RoleNews::NotDone { kind, what } => FarRoleError::NotDone { host, kind, what },
            other => {
                let what = format!("unexpected reply: {other:?}");
                FarRoleError::NotDone {
                    host,
                    kind: HostFaultFailure::Refused,
                    what,
                }
            }
        }
    }
}

impl Drop for FarRole {
    fn drop(&mut self) {
        // If the role has ended, the order has no effect.
        let _ = self.tell(RoleOrder::Stop);
    }
}

/// A host's roles, kept by the host's thread.
#[derive(Debug, Default)]
pub(super) struct HeldRoles {
    heard: BTreeMap<u32, Arc<RoleInbox>>,
}

impl HeldRoles {
    /// Makes the host start or admit a role.
    pub fn begin(
        &mut self,
        role: u32,
        order: RoleOrder,
        heard: Arc<RoleInbox>,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        self.heard.insert(role, heard);
        host.role(role, order)
    }

    /// Passes an order to a role that has not ended.
    pub fn ask(
        &mut self,
        role: u32,
        order: RoleOrder,
        host: &mut RemoteHost,
    ) -> Result<(), HostError> {
        if self.heard.contains_key(&role) {
            host.role(role, order)
        } else {
            Ok(())
        }
    }

    /// Handles a message about roles; `estimate` is for the host's clock. Returns other messages unchanged.
    pub fn take(&mut self, news: HostNews, estimate: Option<ClockEstimate>) -> Option<HostNews> {
        let HostNews::Role(role, news) = news else {
            return Some(news);
        };
        let heard = self.heard.get(&role)?;
        let ours = |at: Nanos| estimate.map_or(at, |estimate| estimate.to_ours(at));
        let is_last = news.is_last();
        heard.take(news.dated(ours));
        if is_last {
            self.heard.remove(&role);
        }
        None
    }

    /// Handles the loss of the host.
    pub fn lose(&mut self, why: &str) {
        std::mem::take(&mut self.heard)
            .into_values()
            .for_each(|heard| heard.lose(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log keeps its order, and says where it was cut off if the host was lost.
    #[test]
    fn a_log_is_kept_until_its_host_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.log");
        let log = Some(RoleLog::open(&path).unwrap());
        let heard = RoleInbox {
            news: Mutex::new(UnreadNews {
                log,
                ..UnreadNews::default()
            }),
            ..RoleInbox::default()
        };
        heard.take(RoleNews::Log(b"one\ntw".to_vec()));
        heard.take(RoleNews::Log(b"o\n".to_vec()));
        heard.lose("host far: gone");
        let expected =
            "one\ntwo\n\nbrunt: host far: gone; the service's output after this point is missing\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert!(heard.lock().log.as_ref().unwrap().check().is_ok());
    }

    /// An agent may report that a role is refused after it has served for a while; later orders then fail
    /// immediately.
    #[test]
    fn a_role_that_was_refused_stays_refused() {
        let fleet = Arc::new(Fleet::new(
            "brunt test".into(),
            BTreeMap::new(),
            false,
            Duration::from_secs(1),
        ));
        let (host, heard) = ("far".to_string(), Arc::<RoleInbox>::default());
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let (pid, asking, talking, folder) = Default::default();
        let (number, answer_max, stop_max) = (1, ANSWER_TIME, STOP_TIME);
        let role = FarRole {
            fleet,
            host,
            number,
            address,
            folder,
            pid,
            answer_max,
            stop_max,
            heard,
            asking,
            talking,
        };
        role.heard.take(RoleNews::Listens { address, pid: 7 });
        assert!(matches!(
            role.answer(answer_max),
            Ok(RoleNews::Listens { .. })
        ));
        let (kind, what) = (FailureKind::Broken, "its thread panicked".to_string());
        role.heard.take(RoleNews::Refused { kind, what });
        for _ in 0..2 {
            // An order discards the reply to an earlier one.
            role.heard.lock().answer = None;
            let message = role
                .answer(answer_max)
                .map(|answer| role.refused(answer).to_string());
            assert_eq!(message.unwrap(), "host far: its thread panicked");
            assert_eq!(
                role.next_line(answer_max),
                Err(RecvTimeoutError::Disconnected)
            );
        }
        // A stopped role is sent no orders, because its host would not reply.
        role.heard.take(RoleNews::Stopped);
        assert!(role.stop().is_ok() && role.check().is_ok());
        let message = role.interrupt(RoleOutage::Kill).unwrap_err().to_string();
        assert_eq!(message, "host far: it was stopped");
    }
}
