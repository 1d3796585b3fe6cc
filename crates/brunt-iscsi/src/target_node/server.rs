//! The whole target: portals, one thread for all logins, workers for the connections that have logged in, and an
//! orderly shutdown. Used by `brunt target`, by tests and by benchmarks. The one rule: a peer that has not logged in
//! costs a bounded amount of memory and no thread, and does not delay peers that have.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::acceptor::Acceptor;
use super::config::TargetConfig;
use super::connection::ConnectionCounters;
use super::directory::{Directory, ServedTarget};
use super::driver::SharedTarget;
use super::event::TargetEvent;
use super::listeners::{CurrentListeners, OpenPortals, PortalError};
use super::server_state::{ServerState, TargetStats, lock};
use super::session::{SessionTable, TargetSession};
use super::workers::Workers;
use crate::chap::ChapUser;

/// Why a target did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A portal can't be opened, or there are no portals.
    #[error(transparent)]
    Portal(#[from] PortalError),
    /// A thread or its wake-up socket can't be created.
    #[error("cannot start the login thread: {0}")]
    Thread(#[from] io::Error),
}

/// A running target. Dropping it shuts it down.
pub struct TargetServer {
    state: Arc<ServerState>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    disks: Mutex<Option<JoinHandle<()>>>,
    wake: UnixStream,
}

impl TargetServer {
    /// Starts a server for these targets.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        config: TargetConfig,
        targets: Vec<ServedTarget>,
    ) -> Result<TargetServer, StartError> {
        let listeners = config.listeners(OpenPortals::open(&config.portals, &OpenPortals::none())?);
        let directory = Directory::new(targets, config.discovery.clone());
        let table = SessionTable::new(directory, config.sessions_max);
        let listeners = CurrentListeners::new(listeners);
        let shared = SharedTarget {
            table,
            listeners,
            keep_alive: config.keep_alive,
            poll: config.poll,
        };
        let state = Arc::new(ServerState {
            shared,
            workers: Workers::new(config.poll),
            config,
            stop: AtomicBool::new(false),
            totals: Mutex::default(),
            ended: Condvar::new(),
            logins_refused: AtomicU64::new(0),
            logins_dropped: AtomicU64::new(0),
        });
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let mut acceptor = Acceptor::new(Arc::clone(&state), woken);
        let acceptor = std::thread::Builder::new()
            .name("logins".into())
            .spawn(move || acceptor.run())?;
        let watched = Arc::clone(&state);
        let disks = std::thread::Builder::new()
            .name("disks".into())
            .spawn(move || watch_disks(&watched))?;
        Ok(TargetServer {
            state,
            acceptor: Mutex::new(Some(acceptor)),
            disks: Mutex::new(Some(disks)),
            wake,
        })
    }

    /// The addresses that the server listens on, in configuration order.
    pub fn portals(&self) -> Vec<SocketAddr> {
        self.open_portals()
            .portals()
            .iter()
            .map(|portal| portal.listen)
            .collect()
    }

    /// The portals that the server listens on.
    pub fn open_portals(&self) -> OpenPortals {
        self.state.shared.listeners.get().open.clone()
    }

    /// Accepts new connections through these portals, with the settings in `config`; the rest of `config` is ignored.
    /// Sessions stay, except those in removed portal groups: their initiators are asked to log out and are
    /// disconnected after `grace`.
    pub fn renew_listeners(&self, open: OpenPortals, config: &TargetConfig, grace: Duration) {
        let groups: Vec<u16> = open.portals().iter().map(|portal| portal.group).collect();
        let SharedTarget {
            table, listeners, ..
        } = &self.state.shared;
        table.set_sessions_max(config.sessions_max);
        // Done before looking for sessions of removed groups, so that no new ones are admitted to those groups.
        table.set_groups(&groups);
        listeners.replace(config.listeners(open), || self.wake());
        self.dismiss(grace, |session| {
            !groups.contains(&session.nexus().target_port)
        });
    }

    /// Replaces the targets. Targets that stay keep their sessions, regardless of other changes; initiators of
    /// removed targets are asked to log out and are disconnected after `grace`. Returns once these sessions are gone.
    pub fn replace(
        &self,
        targets: Vec<ServedTarget>,
        discovery: Option<Vec<ChapUser>>,
        grace: Duration,
    ) {
        let table = &self.state.shared.table;
        let gone = table.directory().replace(targets, discovery);
        self.dismiss(grace, |session| {
            gone.iter()
                .any(|target| target.name == session.target_name())
        });
    }

    fn dismiss(&self, grace: Duration, is_gone: impl Fn(&TargetSession) -> bool) {
        let table = &self.state.shared.table;
        let is_gone = &is_gone;
        if table.count(is_gone) == 0 {
            return;
        }
        table.ask_logout(grace.as_secs().clamp(1, 60) as u16, is_gone);
        let deadline = Instant::now() + grace;
        while table.count(is_gone) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        table.close(0, is_gone);
    }

    /// The targets that the server serves.
    pub fn targets(&self) -> Vec<Arc<ServedTarget>> {
        self.state.shared.table.directory().targets()
    }

    /// Counters so far.
    pub fn stats(&self) -> TargetStats {
        let mut stats = lock(&self.state.totals).sum();
        stats.sessions_open = self.state.shared.table.len() as u64;
        stats.sessions = self.state.shared.table.opened();
        stats.logins_refused = self.state.logins_refused.load(Ordering::Relaxed);
        stats.logins_dropped = self.state.logins_dropped.load(Ordering::Relaxed);
        stats
    }

    /// Counters for each target, over past and present connections, and the number of open sessions.
    pub fn stats_by_target(&self) -> Vec<(String, ConnectionCounters, usize)> {
        let totals = lock(&self.state.totals);
        let table = &self.state.shared.table;
        let of = |name: &str| {
            (
                name.to_string(),
                totals.sum_of(name),
                table.count(|session| session.target_name() == name),
            )
        };
        table
            .directory()
            .targets()
            .iter()
            .map(|target| of(&target.name))
            .collect()
    }

    /// Stops accepting logins, asks the initiators to log out, and closes remaining connections after `grace`. Returns
    /// the final counters.
    pub fn shutdown(&self, grace: Duration) -> TargetStats {
        self.stop(grace);
        self.stats()
    }

    fn stop(&self, grace: Duration) {
        let Some(acceptor) = lock(&self.acceptor).take() else {
            return;
        };
        self.state.stop.store(true, Ordering::Release);
        self.wake();
        let _ = acceptor.join();
        if let Some(disks) = lock(&self.disks).take() {
            disks.thread().unpark();
            let _ = disks.join();
        }
        let table = &self.state.shared.table;
        table.ask_logout(grace.as_secs().clamp(1, 60) as u16, |_| true);
        if !self.wait_idle(grace) {
            table.close(0, |_| true);
            // By then, closing connections have given up on sending their last responses.
            self.wait_idle(Duration::from_secs(5));
        }
    }

    /// Wakes the login thread. A write that fails because the buffer is full needs no retry: the data in the buffer
    /// wakes the thread.
    fn wake(&self) {
        let _ = (&self.wake).write(&[1]);
    }

    fn wait_idle(&self, at_most: Duration) -> bool {
        let totals = lock(&self.state.totals);
        let waited = self
            .state
            .ended
            .wait_timeout_while(totals, at_most, |totals| !totals.live.is_empty());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        self.stop(Duration::from_millis(200));
    }
}

/// Interval between checks of the LUNs' media, and thus the longest time until a resized or deleted file is noticed.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Checks the media. Runs in a separate thread, because file systems may block it.
fn watch_disks(state: &ServerState) {
    while !state.stop.load(Ordering::Acquire) {
        let targets = state.shared.table.directory().targets();
        for served in &targets {
            let target = (targets.len() > 1).then_some(served.name.as_str());
            for (lun, unit) in served.luns.units() {
                for event in &unit.poll_medium() {
                    state
                        .config
                        .listener
                        .notify(&TargetEvent::Disk { target, lun, event });
                }
            }
        }
        std::thread::park_timeout(DISK_CHECK_INTERVAL);
    }
}
