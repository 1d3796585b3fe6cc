//! The login thread: accepts connections on all portals, drives their logins without blocking, and hands each
//! connection that has logged in to one of the `workers`. The one rule: silent and hostile peers cost a bounded
//! amount of memory and don't delay other peers.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::event::TargetEvent;
use super::listeners::{Listeners, OpenPortal};
use super::login::{LOGIN_SEGMENT_BYTES_MAX, LoggedInConnection, TargetLogin, TargetLoginStep};
use super::server_state::{Seat, ServerState};
use super::workers::{NewConnection, Workers};
use crate::chap::Challenge;

/// The login thread.
pub(super) struct Acceptor {
    state: Arc<ServerState>,
    /// Oldest first.
    logins: VecDeque<HalfOpen>,
    woken: UnixStream,
}

/// A connection that has not logged in yet.
struct HalfOpen {
    socket: TcpStream,
    login: TargetLogin,
    /// At most one login PDU and some data after it.
    received: Vec<u8>,
    to_send: Vec<u8>,
    deadline: Instant,
    /// Set if the connection will be logged in once `to_send` is sent.
    done: Option<Box<LoggedInConnection>>,
    /// Whether the login was refused: close once `to_send` is sent and the peer has closed, or after a timeout.
    refused: bool,
}

/// One login PDU and a bit more, because an initiator sends nothing longer in this phase.
const RECEIVED_BYTES_MAX: usize = BHS_BYTES + LOGIN_SEGMENT_BYTES_MAX + 4;

/// The state of a half-open connection after it was processed.
enum LoginProgress {
    /// The connection needs more data from the peer, or room to send.
    Pending,
    /// The connection was closed or is unusable.
    Closed,
    /// The connection has logged in.
    LoggedIn,
}

/// The result of reading from a half-open connection.
enum Receive {
    Nothing,
    Data,
    Closed,
}

impl Acceptor {
    /// `woken` becomes readable to wake the thread.
    pub(super) fn new(state: Arc<ServerState>, woken: UnixStream) -> Acceptor {
        Acceptor {
            state,
            logins: VecDeque::new(),
            woken,
        }
    }

    /// Runs until the server stops.
    pub(super) fn run(&mut self) {
        while !self.state.stop.load(Ordering::Acquire) {
            let listeners = self.state.shared.listeners.get();
            let (ready, accepting) = self.wait(&listeners);
            // Process the logins first, while the indexes in `ready` are valid: accepting connections changes them.
            self.process(&ready);
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
        let portals = listeners.open.as_slice();
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.logins.len() + portals.len() + 1);
        for login in &self.logins {
            let flags = if login.to_send.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::OUT
            };
            polled.push(PollFd::new(&login.socket, flags));
        }
        for portal in portals {
            polled.push(PollFd::new(&portal.listener, PollFlags::IN));
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
        let accepting = polled[count..count + portals.len()]
            .iter()
            .any(|fd| !fd.revents().is_empty());
        // Drain the socket: the bytes of a wake-up have no meaning.
        while matches!((&self.woken).read(&mut [0; 64]), Ok(count) if count > 0) {}
        (ready, accepting)
    }

    fn accept(&mut self, listeners: &Listeners) {
        for OpenPortal {
            listener, portal, ..
        } in listeners.open.as_slice()
        {
            // A limited number at a time, so that a flood doesn't starve the logins in progress.
            for _ in 0..64 {
                let socket = match listener.accept() {
                    Ok((socket, _)) => socket,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The connection was closed before it was accepted.
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

    /// Only ready logins take time, so a flood of silent logins doesn't slow them down.
    fn process(&mut self, ready: &[bool]) {
        // Oldest first, because a later login of the same initiator port ends the session of an earlier one.
        let mut removed = 0;
        for index in (0..ready.len()).filter(|index| ready[*index]) {
            let index = index - removed;
            let progress = self.logins[index].advance(&self.state);
            if matches!(progress, LoginProgress::Pending) {
                continue;
            }
            removed += 1;
            let login = self.logins.remove(index).expect("the entry exists");
            match progress {
                LoginProgress::LoggedIn => self.start_connection(login),
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

    /// Hands a connection to a worker.
    fn start_connection(&self, login: HalfOpen) {
        let Some(logged_in) = login.done else { return };
        let LoggedInConnection {
            session,
            connection_id,
            handle,
            ..
        } = &*logged_in;
        let seat = Seat::take(&self.state, session, *connection_id, handle);
        let new = NewConnection {
            logged_in,
            socket: login.socket,
            early: login.received,
            seat,
        };
        Workers::hand_over(&self.state, new);
    }
}

impl HalfOpen {
    /// Sends and receives as much as possible without blocking.
    fn advance(&mut self, state: &ServerState) -> LoginProgress {
        loop {
            while !self.to_send.is_empty() {
                match self.socket.write(&self.to_send) {
                    Ok(0) => return LoginProgress::Closed,
                    Ok(count) => drop(self.to_send.drain(..count)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return LoginProgress::Pending;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return LoginProgress::Closed,
                }
            }
            if self.done.is_some() {
                return LoginProgress::LoggedIn;
            }
            if self.refused {
                let _ = self.socket.shutdown(Shutdown::Write);
            }
            match self.step(state) {
                Some(()) => continue,
                None => match self.receive() {
                    Receive::Nothing => return LoginProgress::Pending,
                    Receive::Closed => return LoginProgress::Closed,
                    Receive::Data => {}
                },
            }
        }
    }

    /// Reads available data.
    fn receive(&mut self) -> Receive {
        let mut chunk = [0; 4096];
        let room = RECEIVED_BYTES_MAX
            .saturating_sub(self.received.len())
            .min(chunk.len());
        if room == 0 {
            return Receive::Closed;
        }
        match self.socket.read(&mut chunk[..room]) {
            Ok(0) => Receive::Closed,
            Ok(_) if self.refused => Receive::Data,
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                Receive::Data
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Receive::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Receive::Data,
            Err(_) => Receive::Closed,
        }
    }

    /// Processes one PDU if it is complete.
    fn step(&mut self, state: &ServerState) -> Option<()> {
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
                    .notify(&TargetEvent::LoginRefused { initiator, status });
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
    fn abandon(self, state: &ServerState) {
        if let Some(logged_in) = self.done {
            // The connection had already been admitted to a session, which it now leaves.
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
