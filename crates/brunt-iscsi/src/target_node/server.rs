//! The whole target: portals, the one thread that runs all logins, a thread for each logged-in connection,
//! and an orderly shutdown. Used by `brunt target`, by tests and by benchmarks. The one rule: a peer that has
//! not logged in costs a bounded amount of memory, no thread, and does not delay those that have.

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
use super::entrance::{CurrentEntrance, Entrance, OpenPortal, OpenPortals, Portal, PortalError};
use super::login::{LOGIN_SEGMENT_BYTES_MAX, LoggedInConnection, TargetLogin, TargetLoginStep};
use super::session::{SessionTable, TargetSession};
use crate::chap::{Challenge, ChapUser};
use crate::params::Wishes;
use crate::scsi::DiskEvent;

/// How a target server is made, whichever targets it serves.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Where it listens.
    pub portals: Vec<Portal>,
    /// Who may ask for the targets' names; `None`: everyone, or where a target has users, those of all targets.
    pub discovery: Option<Vec<ChapUser>>,
    /// Parameters to negotiate for.
    pub wishes: Wishes,
    /// Sessions at once.
    pub sessions_max: usize,
    /// Connections that have not logged in; when there are more, the oldest goes.
    pub half_open_max: usize,
    /// A login takes no longer, however many bytes of it come.
    pub login_timeout: Duration,
    /// How silent initiators are looked after.
    pub keep_alive: KeepAlive,
    /// Of connections that have logged in.
    pub sockets: SocketOptions,
    /// Who is told what happens.
    pub listener: Listener,
}

/// What an operator wants to know at once; [`TargetStats`] counts it as well.
#[derive(Debug)]
pub enum TargetEvent<'a> {
    /// A login was answered with a status other than success.
    LoginRefused {
        /// Who asked; empty when it did not get so far as to say.
        initiator: &'a str,
        /// Class and detail, RFC 7143, 11.13.5.
        status: u16,
    },
    /// A connection ended because its initiator broke the protocol, or for trouble of our own.
    ConnectionBroken {
        /// Counted from the target's start.
        connection: u64,
        /// Why.
        error: &'a ConnectionError,
    },
    /// A medium changed, or fails.
    Disk {
        /// Whose LUN it is, where there are several targets.
        target: Option<&'a str>,
        /// Which LUN.
        lun: u16,
        /// What happened to it.
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

/// Called for each [`TargetEvent`], in the thread where it happens: it must not block for long. The
/// default hears nothing.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Hear>>);

type Hear = dyn Fn(&TargetEvent<'_>) + Send + Sync;

impl Listener {
    /// Calls `hear`.
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
            "no Listener"
        })
    }
}

/// Connections that have not logged in, unless it is set otherwise.
const HALF_OPEN_MAX: usize = 256;
/// How long a login may take, unless it is set otherwise: as long as open-iscsi waits for its answer
/// (`node.conn[0].timeo.login_timeout`).
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
            // An initiator without its own thread for the connection (libiscsi's tools) answers when
            // its program calls it again: a minute's pause of the program is no dead peer.
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
    fn entrance(&self, open: OpenPortals) -> Entrance {
        Entrance {
            open,
            wishes: Arc::new(self.wishes.clone()),
            sockets: self.sockets,
        }
    }
}

/// Why a target did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A portal, or that there is none.
    #[error(transparent)]
    Portal(#[from] PortalError),
    /// A thread or its wake-up line.
    #[error("cannot start the thread for logins: {0}")]
    Thread(#[from] io::Error),
}

/// What a target did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStats {
    /// Sessions opened, discovery included.
    pub sessions: u64,
    /// Sessions open now.
    pub sessions_open: u64,
    /// Connections that logged in.
    pub connections: u64,
    /// Of all connections together.
    pub counters: ConnectionCounters,
    /// System calls of all connections' rings.
    pub system_calls: u64,
    /// Logins refused with a status.
    pub logins_refused: u64,
    /// Logins that were not completed: dropped for age or number, or closed by the peer.
    pub logins_dropped: u64,
    /// Connections that ended because the initiator broke the protocol, or for trouble of our own.
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
    /// Each with its target's name; discovery has none.
    live: Vec<(String, Arc<LiveCounters>)>,
    past: TargetStats,
    /// By the target's name.
    past_of: BTreeMap<String, ConnectionCounters>,
}

impl TargetServer {
    /// Starts a server of these targets.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        config: TargetConfig,
        targets: Vec<ServedTarget>,
    ) -> Result<TargetServer, StartError> {
        let entrance = config.entrance(OpenPortals::open(&config.portals, &OpenPortals::none())?);
        let directory = Directory::new(targets, config.discovery.clone());
        let table = SessionTable::new(directory, config.sessions_max);
        let entrance = CurrentEntrance::new(entrance);
        let shared = SharedTarget {
            table,
            entrance,
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

    /// Where it listens, in the order of the configuration.
    pub fn portals(&self) -> Vec<SocketAddr> {
        self.open_portals()
            .portals()
            .iter()
            .map(|portal| portal.listen)
            .collect()
    }

    /// The portals that it listens on.
    pub fn open_portals(&self) -> OpenPortals {
        self.state.shared.entrance.get().open.clone()
    }

    /// Takes connections from now on as `config` says, through these portals; of the rest of `config` nothing changes.
    /// Sessions stay, but for those of portal groups that are no more: their initiators are asked to log out, and cut
    /// off after `grace`.
    pub fn renew_entrance(&self, open: OpenPortals, config: &TargetConfig, grace: Duration) {
        let groups: Vec<u16> = open.portals().iter().map(|portal| portal.group).collect();
        let SharedTarget {
            table, entrance, ..
        } = &self.state.shared;
        table.set_sessions_max(config.sessions_max);
        // Before the sessions of groups that are no more are looked for: nobody joins them after that.
        table.set_groups(&groups);
        entrance.replace(config.entrance(open), || self.wake());
        self.dismiss(grace, |session| {
            !groups.contains(&session.nexus().target_port)
        });
    }

    /// Serves these targets from now on. Those that stay keep their sessions, whatever else about them changes; the
    /// initiators of those that do not are asked to log out, and cut off after `grace`. Returns when they are gone.
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

    /// What it did so far.
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

    /// What it did for each target that it serves, by connections past and present; and sessions that are open.
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

    /// Takes no more logins, asks the initiators to log out, closes what is left after `grace`.
    /// Returns what the target did.
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
            // Closing takes a connection as long as its farewell at most.
            self.wait_idle(Duration::from_secs(5));
        }
    }

    /// Has the thread of logins look up. A full line wakes as well.
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

/// How often the media behind the LUNs are looked at: a file that was resized or deleted is noticed within this.
const DISK_LOOK: Duration = Duration::from_millis(250);

/// Looks after the media. A thread of its own: a file system may let it wait.
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

/// The thread of logins.
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
    /// Never longer than one login PDU and what fits behind it.
    received: Vec<u8>,
    to_send: Vec<u8>,
    deadline: Instant,
    /// Logged in, when `to_send` is out.
    done: Option<Box<LoggedInConnection>>,
    /// Refused: close when `to_send` is out and the peer has closed or time is up.
    refused: bool,
}

/// One login PDU with some room: nothing an initiator sends in this phase is longer.
const RECEIVED_BYTES_MAX: usize = BHS_BYTES + LOGIN_SEGMENT_BYTES_MAX + 4;

/// What became of a half-open connection when it was looked at.
enum Fate {
    Stays,
    Gone,
    In,
}

impl Acceptor {
    fn run(&mut self) {
        while !self.state.stop.load(Ordering::Acquire) {
            let entrance = self.state.shared.entrance.get();
            let (ready, accepting) = self.wait(&entrance);
            // First those under way, whose places `ready` knows: accepting moves them.
            self.look(&ready);
            self.expire();
            if accepting {
                // Not the one that was waited at: it may have been renewed meanwhile.
                drop(entrance);
                self.accept(&self.state.shared.entrance.get());
            }
        }
        for login in self.logins.drain(..) {
            login.abandon(&self.state);
        }
    }

    /// Waits for anything. Which logins are ready, and whether somebody knocks.
    fn wait(&mut self, entrance: &Entrance) -> (Vec<bool>, bool) {
        let doors = entrance.open.doors();
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
            // EINTR, or ENOMEM in passing: look again, not at once.
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
        // Read empty: it says that something is new, not what.
        while matches!((&self.woken).read(&mut [0; 64]), Ok(count) if count > 0) {}
        (ready, accepting)
    }

    fn accept(&mut self, entrance: &Entrance) {
        for OpenPortal {
            listener, portal, ..
        } in entrance.open.doors()
        {
            // Some at a time, so that a flood does not starve the logins under way.
            for _ in 0..64 {
                let socket = match listener.accept() {
                    Ok((socket, _)) => socket,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // Gone again before it was accepted.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                        ) =>
                    {
                        continue;
                    }
                    Err(_) => {
                        // Out of descriptors: the oldest half-open login has one to give.
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
                        Arc::clone(&entrance.wishes),
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

    /// Only those that are ready cost something: a flood of silent ones must not slow the others down.
    fn look(&mut self, ready: &[bool]) {
        // From the back, so that who leaves moves only those that were looked at.
        for index in (0..ready.len()).rev().filter(|index| ready[*index]) {
            let fate = self.logins[index].go_on(&self.state);
            if matches!(fate, Fate::Stays) {
                continue;
            }
            let login = self.logins.remove(index).expect("it was just looked at");
            match fate {
                Fate::In => self.let_in(login),
                _ => login.abandon(&self.state),
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        // Not in the order of their coming: a refused one has less time.
        for index in (0..self.logins.len()).rev() {
            if self.logins[index].deadline <= now {
                let login = self.logins.remove(index).expect("it was just looked at");
                login.abandon(&self.state);
            }
        }
    }

    /// Gives a connection its thread.
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
            // The counters are settled also when the connection's thread panics.
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
            // No thread to be had: the initiator sees the connection close, and tries again later.
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
    /// Sends and receives what can be without waiting.
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

    /// Reads some. `In` means that there is something new.
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

    /// Takes one PDU if it is there whole.
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

    /// Closes a connection that did not get in.
    fn abandon(self, state: &State) {
        if let Some(logged_in) = self.done {
            // It had a place in a session already.
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
        // Time for the peer to read why and close its end; then it is closed for it.
        self.deadline = self.deadline.min(Instant::now() + Duration::from_secs(1));
    }
}

/// Moves a connection's counters from the live to the past.
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
