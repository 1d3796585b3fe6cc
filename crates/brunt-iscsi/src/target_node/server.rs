//! The whole target: portals, one thread for all logins, one thread for each logged-in connection, and an orderly
//! shutdown. Used by `brunt target`, by tests and by benchmarks. The one rule: a peer that has not logged in costs a
//! bounded amount of memory and no thread, and does not delay those that have.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brunt_block::socket::SocketOptions;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{ConnectionCounters, KeepAlive};
use super::directory::{Directory, ServedTarget};
use super::driver::{self, ConnectionError, LiveCounters, SharedTarget};
use super::listeners::{CurrentListeners, Listeners, OpenPortal, OpenPortals, Portal, PortalError};
use super::login::{LOGIN_SEGMENT_BYTES_MAX, LoggedInConnection, TargetLogin, TargetLoginStep};
use super::session::{SessionTable, TargetSession};
use crate::chap::{Challenge, ChapUser};
use crate::params::Wishes;
use crate::scsi::DiskEvent;

/// Settings of a target server, independent of its targets.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The portals to listen on.
    pub portals: Vec<Portal>,
    /// Users who may run discovery; `None`: everyone, or the users of all targets if any target has users.
    pub discovery: Option<Vec<ChapUser>>,
    /// Parameters to negotiate for.
    pub wishes: Wishes,
    /// Maximum number of sessions.
    pub sessions_max: usize,
    /// Maximum number of connections that have not logged in; beyond it, the oldest one is dropped.
    pub half_open_max: usize,
    /// Maximum duration of a login, even if data keeps arriving.
    pub login_timeout: Duration,
    /// How to check that idle initiators are alive.
    pub keep_alive: KeepAlive,
    /// Socket options of connections that have logged in.
    pub sockets: SocketOptions,
    /// Receives events.
    pub listener: Listener,
}

/// An event that an operator should see at once; [`TargetStats`] counts it as well.
#[derive(Debug)]
pub enum TargetEvent<'a> {
    /// A login was answered with a status other than success.
    LoginRefused {
        /// The initiator's name; empty if it hasn't sent one.
        initiator: &'a str,
        /// Class and detail (RFC 7143, 11.13.5).
        status: u16,
    },
    /// A connection ended because its initiator violated the protocol or because of an internal error.
    ConnectionBroken {
        /// Number of the connection since the target's start.
        connection: u64,
        /// The reason.
        error: &'a ConnectionError,
    },
    /// A medium has changed or is failing.
    Disk {
        /// The LUN's target, if there are several targets.
        target: Option<&'a str>,
        /// The LUN.
        lun: u16,
        /// What happened.
        event: &'a DiskEvent,
    },
}

impl fmt::Display for TargetEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetEvent::LoginRefused { initiator, status } => {
                write!(
                    f,
                    "login of {initiator:?} refused with status {status:#06x}"
                )
            }
            TargetEvent::ConnectionBroken { connection, error } => {
                write!(f, "connection {connection}: {error}")
            }
            TargetEvent::Disk {
                target: Some(target),
                lun,
                event,
            } => {
                write!(f, "{target}, LUN {lun}: {event}")
            }
            TargetEvent::Disk {
                target: None,
                lun,
                event,
            } => write!(f, "LUN {lun}: {event}"),
        }
    }
}

/// Called for each [`TargetEvent`], on the thread where it happens, so it must not block for long. The default ignores
/// all events.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Hear>>);

type Hear = dyn Fn(&TargetEvent<'_>) + Send + Sync;

impl Listener {
    /// A listener that calls `hear`.
    pub fn new(hear: impl Fn(&TargetEvent<'_>) + Send + Sync + 'static) -> Listener {
        Listener(Some(Arc::new(hear)))
    }

    fn tell(&self, event: &TargetEvent<'_>) {
        if let Some(hear) = &self.0 {
            hear(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Listener"
        } else {
            "the server has no listener"
        })
    }
}

/// Default limit on connections that have not logged in.
const HALF_OPEN_MAX: usize = 256;
/// Default time limit for a login: as long as open-iscsi waits for its response (`node.conn[0].timeo.login_timeout`).
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

impl Default for TargetConfig {
    fn default() -> TargetConfig {
        let mut wishes = Wishes::default();
        wishes.values.max_connections = 8;
        TargetConfig {
            portals: vec![SocketAddr::from(([127, 0, 0, 1], 3260)).into()],
            discovery: None,
            wishes,
            sessions_max: 128,
            half_open_max: HALF_OPEN_MAX,
            login_timeout: LOGIN_TIMEOUT,
            // Initiators without a separate thread for the connection (libiscsi's tools) respond only when their
            // program calls them: a program that pauses for a minute is not a dead peer.
            keep_alive: KeepAlive {
                idle: Duration::from_secs(30),
                patience: Duration::from_secs(90),
            },
            sockets: SocketOptions::default(),
            listener: Listener::default(),
        }
    }
}

impl TargetConfig {
    fn listeners(&self, open: OpenPortals) -> Listeners {
        Listeners {
            open,
            wishes: Arc::new(self.wishes.clone()),
            sockets: self.sockets,
        }
    }
}

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

/// A target's counters so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Sessions opened, including discovery sessions.
    pub sessions: u64,
    /// Sessions currently open.
    pub sessions_open: u64,
    /// Connections that logged in.
    pub connections: u64,
    /// Sum over all connections.
    pub counters: ConnectionCounters,
    /// System calls of all connections' rings.
    pub system_calls: u64,
    /// Logins refused with a status.
    pub logins_refused: u64,
    /// Logins that were not completed: dropped because of age or number, or closed by the peer.
    pub logins_dropped: u64,
    /// Connections that ended because the initiator violated the protocol or because of an internal error.
    pub connections_broken: u64,
}

/// A running target. Dropping it shuts it down.
pub struct TargetServer {
    state: Arc<State>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    disks: Mutex<Option<JoinHandle<()>>>,
    wake: UnixStream,
}

struct State {
    shared: SharedTarget,
    config: TargetConfig,
    stop: AtomicBool,
    totals: Mutex<Totals>,
    /// Signalled when a connection's thread ends.
    ended: Condvar,
    logins_refused: AtomicU64,
    logins_dropped: AtomicU64,
}

#[derive(Default)]
struct Totals {
    /// Counters of running connections, with their target's name, which is empty for discovery.
    live: Vec<(String, Arc<LiveCounters>)>,
    past: TargetStats,
    /// Counters of ended connections, by target name.
    past_of: BTreeMap<String, ConnectionCounters>,
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
        };
        let state = Arc::new(State {
            shared,
            config,
            stop: AtomicBool::new(false),
            totals: Mutex::default(),
            ended: Condvar::new(),
            logins_refused: AtomicU64::new(0),
            logins_dropped: AtomicU64::new(0),
        });
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let mut acceptor = Acceptor {
            state: Arc::clone(&state),
            logins: VecDeque::new(),
            woken,
        };
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

    /// The addresses that it listens on, in configuration order.
    pub fn portals(&self) -> Vec<SocketAddr> {
        self.open_portals()
            .portals()
            .iter()
            .map(|portal| portal.listen)
            .collect()
    }

    /// The portals that it listens on.
    pub fn open_portals(&self) -> OpenPortals {
        self.state.shared.listeners.get().open.clone()
    }

    /// Accepts new connections through these portals, with the settings in `config`; the rest of `config` is ignored.
    /// Sessions stay, except those of removed portal groups: their initiators are asked to log out and are disconnected
    /// after `grace`.
    pub fn renew_listeners(&self, open: OpenPortals, config: &TargetConfig, grace: Duration) {
        let groups: Vec<u16> = open.portals().iter().map(|portal| portal.group).collect();
        let SharedTarget {
            table, listeners, ..
        } = &self.state.shared;
        table.set_sessions_max(config.sessions_max);
        // Before looking for sessions of removed groups, so that no new ones are admitted to them.
        table.set_groups(&groups);
        listeners.replace(config.listeners(open), || self.wake());
        self.dismiss(grace, |session| {
            !groups.contains(&session.nexus().target_port)
        });
    }

    /// Replaces the targets. Targets that stay keep their sessions, whatever else about them changes; initiators of
    /// removed targets are asked to log out and are disconnected after `grace`. Returns once they are gone.
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

    /// The targets that it serves.
    pub fn targets(&self) -> Vec<Arc<ServedTarget>> {
        self.state.shared.table.directory().targets()
    }

    /// Counters so far.
    pub fn stats(&self) -> TargetStats {
        let totals = lock(&self.state.totals);
        let mut stats = totals.past;
        for (_, live) in &totals.live {
            add(&mut stats, live);
        }
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
            let mut counters = totals.past_of.get(name).copied().unwrap_or_default();
            for (_, live) in totals.live.iter().filter(|(target, _)| target == name) {
                sum(&mut counters, live.get().0);
            }
            (
                name.to_string(),
                counters,
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
            // A closing connection takes at most the time for its last response.
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

/// How often the media of the LUNs are checked: a resized or deleted file is noticed within this time.
const DISK_LOOK: Duration = Duration::from_millis(250);

/// Checks the media. Runs in a separate thread, because file systems may block it.
fn watch_disks(state: &State) {
    while !state.stop.load(Ordering::Acquire) {
        let targets = state.shared.table.directory().targets();
        for served in &targets {
            let target = (targets.len() > 1).then_some(served.name.as_str());
            for (lun, unit) in served.luns.units() {
                for event in &unit.look() {
                    state
                        .config
                        .listener
                        .tell(&TargetEvent::Disk { target, lun, event });
                }
            }
        }
        std::thread::park_timeout(DISK_LOOK);
    }
}

/// The login thread.
struct Acceptor {
    state: Arc<State>,
    /// Oldest first.
    logins: VecDeque<HalfOpen>,
    woken: UnixStream,
}

/// A connection that has not logged in.
struct HalfOpen {
    socket: TcpStream,
    login: TargetLogin,
    /// At most one login PDU and some data after it.
    received: Vec<u8>,
    to_send: Vec<u8>,
    deadline: Instant,
    /// Logged in once `to_send` is sent.
    done: Option<Box<LoggedInConnection>>,
    /// Refused: close once `to_send` is sent and the peer has closed, or after a timeout.
    refused: bool,
}

/// One login PDU and a bit more: an initiator sends nothing longer in this phase.
const RECEIVED_BYTES_MAX: usize = BHS_BYTES + LOGIN_SEGMENT_BYTES_MAX + 4;

/// The state of a half-open connection after it was processed.
enum Fate {
    Stays,
    Gone,
    In,
}

impl Acceptor {
    fn run(&mut self) {
        while !self.state.stop.load(Ordering::Acquire) {
            let listeners = self.state.shared.listeners.get();
            let (ready, accepting) = self.wait(&listeners);
            // Process the logins first, while the indexes in `ready` are valid: accepting changes them.
            self.look(&ready);
            self.expire();
            if accepting {
                // Use the current listeners, which may have been replaced during the wait.
                drop(listeners);
                self.accept(&self.state.shared.listeners.get());
            }
        }
        for login in self.logins.drain(..) {
            login.abandon(&self.state);
        }
    }

    /// Waits for any event. Returns which logins are ready and whether there are new connections.
    fn wait(&mut self, listeners: &Listeners) -> (Vec<bool>, bool) {
        let doors = listeners.open.doors();
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.logins.len() + doors.len() + 1);
        for login in &self.logins {
            let flags = if login.to_send.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::OUT
            };
            polled.push(PollFd::new(&login.socket, flags));
        }
        for door in doors {
            polled.push(PollFd::new(&door.listener, PollFlags::IN));
        }
        polled.push(PollFd::new(&self.woken, PollFlags::IN));
        let timeout = self
            .logins
            .iter()
            .map(|login| login.deadline)
            .min()
            .map(|deadline| {
                let left =
                    deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                }
            });
        if poll(&mut polled, timeout.as_ref()).is_err() {
            // EINTR, or a temporary ENOMEM: retry, after a pause.
            std::thread::sleep(Duration::from_millis(10));
        }
        let count = self.logins.len();
        let ready = polled[..count]
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect();
        let accepting = polled[count..count + doors.len()]
            .iter()
            .any(|fd| !fd.revents().is_empty());
        // Drain the socket: a wake-up has no content.
        while matches!((&self.woken).read(&mut [0; 64]), Ok(count) if count > 0) {}
        (ready, accepting)
    }

    fn accept(&mut self, listeners: &Listeners) {
        for OpenPortal {
            listener, portal, ..
        } in listeners.open.doors()
        {
            // A limited number at a time, so that a flood doesn't starve the logins in progress.
            for _ in 0..64 {
                let socket = match listener.accept() {
                    Ok((socket, _)) => socket,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // Closed before it was accepted.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                        ) =>
                    {
                        continue;
                    }
                    Err(_) => {
                        // Out of file descriptors: dropping the oldest half-open login frees one.
                        if let Some(oldest) = self.logins.pop_front() {
                            oldest.abandon(&self.state);
                        } else {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        break;
                    }
                };
                if socket.set_nonblocking(true).is_err() || socket.set_nodelay(true).is_err() {
                    continue;
                }
                if self.logins.len() >= self.state.config.half_open_max
                    && let Some(oldest) = self.logins.pop_front()
                {
                    oldest.abandon(&self.state);
                }
                self.logins.push_back(HalfOpen {
                    socket,
                    login: TargetLogin::new(
                        Arc::clone(&listeners.wishes),
                        portal.group,
                        Challenge::random(),
                    ),
                    received: Vec::new(),
                    to_send: Vec::new(),
                    deadline: Instant::now() + self.state.config.login_timeout,
                    done: None,
                    refused: false,
                });
            }
        }
    }

    /// Only ready logins take time: a flood of silent ones must not slow down the others.
    fn look(&mut self, ready: &[bool]) {
        // From the back, so that removals only shift logins that have already been processed.
        for index in (0..ready.len()).rev().filter(|index| ready[*index]) {
            let fate = self.logins[index].go_on(&self.state);
            if matches!(fate, Fate::Stays) {
                continue;
            }
            let login = self.logins.remove(index).expect("the entry exists");
            match fate {
                Fate::In => self.let_in(login),
                _ => login.abandon(&self.state),
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        // Deadlines aren't in order of arrival: a refused login has less time.
        for index in (0..self.logins.len()).rev() {
            if self.logins[index].deadline <= now {
                let login = self.logins.remove(index).expect("the entry exists");
                login.abandon(&self.state);
            }
        }
    }

    /// Starts a connection's thread.
    fn let_in(&self, login: HalfOpen) {
        let Some(logged_in) = login.done else { return };
        let (socket, early) = (login.socket, login.received);
        let live = Arc::new(LiveCounters::default());
        let target = logged_in.session.target_name().to_string();
        {
            let mut totals = lock(&self.state.totals);
            totals.past.connections += 1;
            totals.live.push((target.clone(), Arc::clone(&live)));
        }
        let state = Arc::clone(&self.state);
        let id = logged_in.connection_id;
        let (session, handle) = (Arc::clone(&logged_in.session), logged_in.handle.clone());
        let thread = std::thread::Builder::new().name(format!("connection {id}"));
        let thread_live = Arc::clone(&live);
        let spawned = thread.spawn(move || {
            // Moves the counters even if the connection's thread panics.
            let _settle = Settle {
                state: Arc::clone(&state),
                target,
                live: Arc::clone(&thread_live),
            };
            let result = driver::run(*logged_in, socket, &early, &state.shared, &thread_live);
            if let Err(error) = result {
                lock(&state.totals).past.connections_broken += 1;
                state.config.listener.tell(&TargetEvent::ConnectionBroken {
                    connection: id,
                    error: &error,
                });
            }
        });
        if spawned.is_err() {
            // Without a thread, close the connection: the initiator will try again later.
            self.state.shared.table.leave(session.tsih(), id);
            handle.close();
            session.leave();
            let target = session.target_name().to_string();
            drop(Settle {
                state: Arc::clone(&self.state),
                target,
                live,
            });
        }
    }
}

impl HalfOpen {
    /// Sends and receives as much as possible without blocking.
    fn go_on(&mut self, state: &State) -> Fate {
        loop {
            while !self.to_send.is_empty() {
                match self.socket.write(&self.to_send) {
                    Ok(0) => return Fate::Gone,
                    Ok(count) => drop(self.to_send.drain(..count)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Stays,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Fate::Gone,
                }
            }
            if self.done.is_some() {
                return Fate::In;
            }
            if self.refused {
                let _ = self.socket.shutdown(Shutdown::Write);
            }
            match self.step(state) {
                Some(()) => continue,
                None => match self.receive() {
                    Fate::Stays => return Fate::Stays,
                    Fate::Gone => return Fate::Gone,
                    Fate::In => {}
                },
            }
        }
    }

    /// Reads available data. `In` means that there was some.
    fn receive(&mut self) -> Fate {
        let mut chunk = [0; 4096];
        let room = RECEIVED_BYTES_MAX
            .saturating_sub(self.received.len())
            .min(chunk.len());
        if room == 0 {
            return Fate::Gone;
        }
        match self.socket.read(&mut chunk[..room]) {
            Ok(0) => Fate::Gone,
            Ok(_) if self.refused => Fate::In,
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                Fate::In
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Fate::Stays,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Fate::In,
            Err(_) => Fate::Gone,
        }
    }

    /// Processes one PDU if it is complete.
    fn step(&mut self, state: &State) -> Option<()> {
        if self.refused {
            return None;
        }
        let bhs = *Bhs::peek(&self.received)?;
        let (len, data) = match TargetLogin::pdu_len(&bhs) {
            Some(len) if self.received.len() < len => return None,
            Some(len) => (len, BHS_BYTES..BHS_BYTES + bhs.data_len()),
            None => (BHS_BYTES, 0..0),
        };
        let step = self
            .login
            .on_pdu(&bhs, &self.received[data], &mut &state.shared.table);
        self.received.drain(..len);
        match step {
            TargetLoginStep::Reply(bytes) => self.to_send = bytes,
            TargetLoginStep::Done(bytes, logged_in) => {
                self.to_send = bytes;
                self.done = Some(logged_in);
            }
            TargetLoginStep::Refuse(bytes, status) => {
                state.logins_refused.fetch_add(1, Ordering::Relaxed);
                let initiator = self.login.initiator_name();
                state
                    .config
                    .listener
                    .tell(&TargetEvent::LoginRefused { initiator, status });
                self.to_send = bytes;
                self.refuse();
            }
            TargetLoginStep::Close => {
                state.logins_refused.fetch_add(1, Ordering::Relaxed);
                self.refuse();
            }
        }
        Some(())
    }

    /// Closes a connection that did not complete its login.
    fn abandon(self, state: &State) {
        if let Some(logged_in) = self.done {
            // It had already been admitted to a session.
            state
                .shared
                .table
                .leave(logged_in.session.tsih(), logged_in.connection_id);
            logged_in.handle.close();
            logged_in.session.leave();
        }
        if !self.refused {
            state.logins_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn refuse(&mut self) {
        self.refused = true;
        self.received.clear();
        // Give the peer time to read the reason and close; after that, close the connection here.
        self.deadline = self.deadline.min(Instant::now() + Duration::from_secs(1));
    }
}

/// Moves a connection's counters from running to ended connections.
struct Settle {
    state: Arc<State>,
    target: String,
    live: Arc<LiveCounters>,
}

impl Drop for Settle {
    fn drop(&mut self) {
        let mut totals = lock(&self.state.totals);
        totals
            .live
            .retain(|(_, live)| !Arc::ptr_eq(live, &self.live));
        add(&mut totals.past, &self.live);
        sum(
            totals
                .past_of
                .entry(std::mem::take(&mut self.target))
                .or_default(),
            self.live.get().0,
        );
        self.state.ended.notify_all();
    }
}

fn add(stats: &mut TargetStats, live: &LiveCounters) {
    let (counters, enters) = live.get();
    sum(&mut stats.counters, counters);
    stats.system_calls += enters;
}

fn sum(all: &mut ConnectionCounters, one: ConnectionCounters) {
    all.commands += one.commands;
    all.data_out_bytes += one.data_out_bytes;
    all.data_in_bytes += one.data_in_bytes;
    all.rejects += one.rejects;
    all.digest_errors += one.digest_errors;
    all.ignored += one.ignored;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
