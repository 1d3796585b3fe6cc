//! Accepts connections and runs each on its own thread: the front end of servers that use one thread and one ring per
//! connection. Independent of any protocol.
//!
//! The one rule: peers can never occupy more than a fixed number of threads. A connection above the limit is closed and
//! counted; if some connections have not settled yet, for example because the peer never finishes its handshake, the
//! oldest of these is closed instead. When the server stops, all sockets are shut down, and their threads have
//! `END_TIME` to notice.

use std::fmt;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::socket::Socket;

/// How long connections may take to end when their server stops.
const END_TIME: Duration = Duration::from_secs(5);
/// Maximum number of threads still running after their connections were closed to make room.
const CLOSED_MAX: usize = 128;

/// A listening socket.
#[derive(Debug)]
pub enum ListeningSocket {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket; its path is removed when this is dropped.
    Unix(UnixListener, PathBuf),
}

impl ListeningSocket {
    /// Listens on a port; port 0 picks a free one.
    ///
    /// # Errors
    /// The address is in use or not local.
    pub fn tcp(address: SocketAddr) -> io::Result<ListeningSocket> {
        TcpListener::bind(address).map(ListeningSocket::Tcp)
    }

    /// Listens on a path, which must not exist yet.
    ///
    /// # Errors
    /// The path exists, or its directory does not.
    pub fn unix(path: PathBuf) -> io::Result<ListeningSocket> {
        Ok(ListeningSocket::Unix(UnixListener::bind(&path)?, path))
    }

    /// The port's address; `None` for a path.
    ///
    /// # Errors
    /// A system call fails.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            ListeningSocket::Tcp(listener) => listener.local_addr().map(Some),
            ListeningSocket::Unix(..) => Ok(None),
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            ListeningSocket::Tcp(listener) => listener.accept().map(|(socket, _)| socket.into()),
            ListeningSocket::Unix(listener, _) => {
                listener.accept().map(|(socket, _)| socket.into())
            }
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            ListeningSocket::Tcp(listener) => listener.set_nonblocking(true),
            ListeningSocket::Unix(listener, _) => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if let ListeningSocket::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Called with a human-readable line for each connection that ended with an error, on that connection's thread. The
/// default ignores these lines.
#[derive(Clone, Default)]
pub struct ReceptionListener(Option<Arc<OnNotice>>);

type OnNotice = dyn Fn(&str) + Send + Sync;

impl ReceptionListener {
    /// Calls `hear` for each line.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> ReceptionListener {
        ReceptionListener(Some(Arc::new(hear)))
    }
}

impl fmt::Debug for ReceptionListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "ReceptionListener"
        } else {
            "the reception has no listener"
        })
    }
}

/// Counts of connections: accepted, refused and broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceptionCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections closed because of the limit: new ones, or the oldest unsettled one.
    pub refused: u64,
    /// Connections that ended with an error.
    pub broken: u64,
}

/// A listening socket and the threads that serve it. Dropping the server closes the socket and all connections.
pub struct Reception {
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
    wake: UnixStream,
}

struct State {
    name: &'static str,
    connections_max: usize,
    serve: Box<Serve>,
    stop: AtomicBool,
    /// The sockets of live connections, by number; shut down when the server stops.
    live: Mutex<Vec<LiveConnection>>,
    ended: Condvar,
    connections: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

type Serve = dyn Fn(&State, u64, Socket) + Send + Sync;

struct LiveConnection {
    number: u64,
    socket: Socket,
    state: ReceptionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceptionState {
    /// May be closed to make room for a newer connection.
    New,
    Settled,
    /// Closed to make room for a newer connection; its thread has not ended yet.
    Closed,
}

/// A connection's handle to its slot in the server.
pub struct Guest<'a> {
    state: &'a State,
    number: u64,
}

impl Guest<'_> {
    /// Marks the connection as settled, for example after its login: it is no longer closed to make room.
    pub fn settle(&self) {
        let mut live = self.state.live();
        let own = live.iter_mut().find(|one| one.number == self.number);
        if let Some(own) = own.filter(|own| own.state == ReceptionState::New) {
            own.state = ReceptionState::Settled;
        }
    }
}

impl Reception {
    /// Accepts up to `connections_max` concurrent connections and serves each with `serve` on a thread named `name`.
    /// Errors returned by `serve` are counted and passed to the listener.
    ///
    /// # Errors
    /// A system call fails.
    pub fn open<E: fmt::Display>(
        name: &'static str,
        listening: ListeningSocket,
        connections_max: usize,
        listener: ReceptionListener,
        serve: impl Fn(Socket, &Guest<'_>) -> Result<(), E> + Send + Sync + 'static,
    ) -> io::Result<Reception> {
        listening.set_nonblocking()?;
        let (wake, woken) = UnixStream::pair()?;
        let state = Arc::new(State {
            name,
            connections_max,
            serve: Box::new(move |state, number, socket| {
                let guest = Guest { state, number };
                let Err(error) = serve(socket, &guest) else {
                    return;
                };
                state.broken.fetch_add(1, Ordering::Relaxed);
                if let Some(hear) = &listener.0 {
                    hear(&format!("connection {number}: {error}"));
                }
            }),
            stop: AtomicBool::new(false),
            live: Mutex::default(),
            ended: Condvar::new(),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&state);
        let acceptor = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || accept(&accepting, &listening, &woken))?;
        Ok(Reception {
            state,
            acceptor: Some(acceptor),
            wake,
        })
    }

    /// The counts so far.
    pub fn counts(&self) -> ReceptionCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let State {
            connections,
            refused,
            broken,
            ..
        } = &*self.state;
        ReceptionCounts {
            connections: get(connections),
            refused: get(refused),
            broken: get(broken),
        }
    }

    /// Closes the listening socket and all connections.
    pub fn close(&mut self) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        self.state.stop.store(true, Ordering::Release);
        // If the pipe is full, the acceptor wakes up anyway.
        let _ = self.wake.write(&[1]);
        let _ = acceptor.join();
        let live = self.state.live();
        for one in live.iter() {
            let _ = one.socket.shutdown(Shutdown::Both);
        }
        let _ = self
            .state
            .ended
            .wait_timeout_while(live, END_TIME, |live| !live.is_empty());
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn live(&self) -> MutexGuard<'_, Vec<LiveConnection>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another connection fits; closes the oldest unsettled one if necessary.
    fn has_room(&self, live: &mut [LiveConnection]) -> bool {
        let closed = |one: &&LiveConnection| one.state == ReceptionState::Closed;
        let ending = live.iter().filter(closed).count();
        if live.len() - ending < self.connections_max {
            return true;
        }
        // Threads of closed connections end quickly; if many have not, reject new connections.
        if ending >= CLOSED_MAX {
            return false;
        }
        let Some(oldest) = live.iter_mut().find(|one| one.state == ReceptionState::New) else {
            return false;
        };
        oldest.state = ReceptionState::Closed;
        let _ = oldest.socket.shutdown(Shutdown::Both);
        self.refused.fetch_add(1, Ordering::Relaxed);
        true
    }
}

fn accept(state: &Arc<State>, listening: &ListeningSocket, woken: &UnixStream) {
    while !state.stop.load(Ordering::Acquire) {
        let mut polled = [
            PollFd::new(listening, PollFlags::IN),
            PollFd::new(woken, PollFlags::IN),
        ];
        if poll(&mut polled, None).is_err() {
            // EINTR, or a temporary ENOMEM: retry after a pause.
            std::thread::sleep(Duration::from_millis(10));
        }
        match listening.accept() {
            Ok(socket) => admit(state, socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The peer closed before accept, or no descriptor is available: retry after a pause.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Starts a connection's thread if it fits.
fn admit(state: &Arc<State>, socket: Socket) {
    let number = state.connections.load(Ordering::Relaxed);
    let mut live = state.live();
    let copy = match socket.try_clone() {
        Ok(copy) if state.has_room(&mut live) => copy,
        _ => {
            state.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    live.push(LiveConnection {
        number,
        socket: copy,
        state: ReceptionState::New,
    });
    drop(live);
    state.connections.fetch_add(1, Ordering::Relaxed);
    let of_thread = Arc::clone(state);
    let spawned = std::thread::Builder::new()
        .name(format!("{} {number}", state.name))
        .spawn(move || {
            // The slot is released even if this thread panics.
            let _leave = Leave {
                state: Arc::clone(&of_thread),
                number,
            };
            (of_thread.serve)(&of_thread, number, socket);
        });
    if spawned.is_err() {
        // The thread could not be started: the peer sees the connection close.
        drop(Leave {
            state: Arc::clone(state),
            number,
        });
    }
}

struct Leave {
    state: Arc<State>,
    number: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.state.live().retain(|one| one.number != self.number);
        self.state.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// A Unix socket is served, a connection above the limit is closed, and the path is removed at the end.
    #[test]
    fn a_unix_socket_is_served_and_its_path_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door");
        let echo = |socket: Socket, guest: &Guest<'_>| {
            let mut byte = [0];
            guest.settle();
            while (&mut &socket).read(&mut byte).is_ok_and(|count| count == 1) {
                let _ = (&mut &socket).write(&byte);
            }
            Ok::<(), io::Error>(())
        };
        let mut reception = Reception::open(
            "echo",
            ListeningSocket::unix(path.clone()).unwrap(),
            1,
            ReceptionListener::default(),
            echo,
        )
        .unwrap();
        let mut first = UnixStream::connect(&path).unwrap();
        first.write_all(b"x").unwrap();
        let mut byte = [0];
        first.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        let mut second = UnixStream::connect(&path).unwrap();
        assert_eq!(second.read(&mut byte).unwrap(), 0, "one too many");
        assert_eq!(
            reception.counts(),
            ReceptionCounts {
                connections: 1,
                refused: 1,
                broken: 0
            }
        );
        assert!(ListeningSocket::unix(path.clone()).is_err(), "it is taken");
        reception.close();
        assert_eq!(first.read(&mut byte).unwrap(), 0);
        assert!(!path.exists());
    }

    /// Silent peers don't lock out others, and settled connections aren't closed to make room.
    #[test]
    fn silent_peers_make_room_the_oldest_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door");
        let echo = |socket: Socket, guest: &Guest<'_>| {
            let mut byte = [0];
            while (&mut &socket).read(&mut byte).is_ok_and(|count| count == 1) {
                guest.settle();
                let _ = (&mut &socket).write(&byte);
            }
            Ok::<(), io::Error>(())
        };
        let listening = ListeningSocket::unix(path.clone()).unwrap();
        let mut reception =
            Reception::open("echo", listening, 2, ReceptionListener::default(), echo).unwrap();
        let mut byte = [0];
        let mut speak = |peer: &mut UnixStream| {
            let _ = peer.write_all(b"x");
            peer.read(&mut byte).unwrap_or(0)
        };
        let mut settled = UnixStream::connect(&path).unwrap();
        assert_eq!(speak(&mut settled), 1);
        let mut silent: Vec<UnixStream> = Vec::new();
        for _ in 0..20 {
            silent.push(UnixStream::connect(&path).unwrap());
        }
        let mut newest = UnixStream::connect(&path).unwrap();
        assert_eq!(speak(&mut newest), 1);
        assert_eq!(speak(&mut silent[0]), 0, "the oldest were closed");
        let mut late = UnixStream::connect(&path).unwrap();
        assert_eq!(speak(&mut late), 0, "all places are settled");
        assert_eq!((speak(&mut settled), speak(&mut newest)), (1, 1));
        reception.close();
    }
}
