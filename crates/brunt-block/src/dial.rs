//! Connects to a server over TCP or a Unix socket, with a single deadline for everything: name resolution, trying each
//! address, and waiting while a listener's queue is full. Used by initiators, clients and controllers.
//!
//! The rule: nothing here waits past the deadline, regardless of the peer or name server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

/// Retry interval while a listener's queue is full.
const TRY_EVERY: Duration = Duration::from_millis(2);

/// Local ports for [`tcp_from_reserved_port`]: the range that rpcbind and the kernel's clients use.
const RESERVED_PORTS: Range<u16> = 512..1024;

/// Why the connection failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address, or can't be resolved.
    #[error("{0}")]
    Resolve(#[source] io::Error),
    /// Every address refused the connection or didn't answer in time.
    #[error("{0}")]
    Connect(#[source] io::Error),
}

/// Time left until the deadline; at least 1 ms, because zero means "no timeout" for sockets.
pub fn left(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}

/// Resolves a host's addresses.
///
/// # Errors
/// The host has no address, or can't be resolved in time.
pub fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The system resolver has its own timeouts of up to several minutes, so it runs on a thread that is abandoned at
    // the deadline.
    let (found, told) = channel();
    let name = host.to_string();
    let look_up = move || {
        let addresses = (name.as_str(), port)
            .to_socket_addrs()
            .map(Iterator::collect::<Vec<SocketAddr>>);
        let _ = found.send(addresses);
    };
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(look_up)?;
    let slow = || io::Error::new(io::ErrorKind::TimedOut, "name resolution timed out");
    let addresses = told.recv_timeout(left(deadline)).map_err(|_| slow())??;
    match addresses.is_empty() {
        true => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        )),
        false => Ok(addresses),
    }
}

/// Connects to one of a host's addresses.
///
/// # Errors
/// No address accepts the connection in time.
pub fn tcp(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, DialError> {
    let addresses = resolve(host, port, deadline).map_err(DialError::Resolve)?;
    tcp_to(&addresses, deadline).map_err(DialError::Connect)
}

/// Connects to one of these addresses. The remaining time is divided among the addresses not tried yet.
///
/// # Errors
/// No address accepts the connection in time; returns the error of the last one.
pub fn tcp_to(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let share = left(deadline) / (addresses.len() - index) as u32;
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Like [`tcp`], but from a port below 1024, which some servers take as proof that the caller is root. Only root may
/// bind such a port (CAP_NET_BIND_SERVICE), and a port stays busy for a minute after use.
///
/// # Errors
/// No address accepts the connection in time, or no port can be bound.
pub fn tcp_from_reserved_port(
    host: &str,
    port: u16,
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let addresses = resolve(host, port, deadline).map_err(DialError::Resolve)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let share = left(deadline) / (addresses.len() - index) as u32;
        match from_reserved_port(*address, Instant::now() + share) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(DialError::Connect(last))
}

fn from_reserved_port(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let (family, any) = match address {
        SocketAddr::V4(_) => (AddressFamily::INET, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (AddressFamily::INET6, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for local in RESERVED_PORTS.rev() {
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match bind(&socket, &SocketAddr::new(any, local)) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => continue,
            Err(error) => return Err(error.into()),
        }
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                let left = Timespec::try_from(left(deadline)).ok();
                let mut waiting = [PollFd::new(&socket, PollFlags::OUT)];
                if poll(&mut waiting, left.as_ref())? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                socket_error(&socket)??;
            }
            Err(Errno::ADDRNOTAVAIL) => continue,
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(false)?;
        return Ok(socket);
    }
    let all = "all ports below 1024 are in use";
    Err(io::Error::new(io::ErrorKind::AddrInUse, all))
}

/// Connects to a Unix socket, retrying until the deadline while its queue is full.
///
/// # Errors
/// The path has no listener, or the listener doesn't accept the connection in time.
pub fn unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => {
                let socket = UnixStream::from(socket);
                socket.set_nonblocking(false)?;
                return Ok(socket);
            }
            // The queue is full (unix(7)).
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(TRY_EVERY),
            Err(Errno::AGAIN) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "its connection queue is full",
                ));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(100)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Waits until a listener that this test has closed is gone: processes that other tests start have a copy of it
    /// until they execute their program.
    fn eventually(is_gone: impl Fn() -> bool) {
        let end = late();
        while !is_gone() {
            assert!(Instant::now() < end, "the listener is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_listener_is_reached_and_a_closed_port_is_an_error() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(
            tcp("127.0.0.1", port, late())
                .unwrap()
                .peer_addr()
                .unwrap()
                .port(),
            port
        );
        // Works although some of the host's addresses may belong to another address family.
        tcp("localhost", port, late()).unwrap();
        drop(listener);
        eventually(|| matches!(tcp("127.0.0.1", port, late()), Err(DialError::Connect(_))));
        assert!(matches!(
            tcp("no such name", 1, late()),
            Err(DialError::Resolve(_))
        ));
    }

    /// A listener with a full queue delays the caller no longer than the deadline, and can be reached once it accepts
    /// again.
    #[test]
    fn a_full_queue_is_waited_for_until_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        let listener = UnixListener::bind(&path).unwrap();
        // A queue of length 1.
        rustix::net::listen(&listener, 1).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match unix(&path, soon()) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100, "a queue has an end");
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut, "{full}");
        let taker = std::thread::spawn(move || listener.accept().map(|_| listener));
        unix(&path, late()).unwrap();
        drop(taker.join().unwrap());
        let refused = io::ErrorKind::ConnectionRefused;
        eventually(|| unix(&path, soon()).is_err_and(|error| error.kind() == refused));
    }

    /// Two concurrent connections use different ports, all below 1024; a closed port is an immediate error.
    #[test]
    fn reserved_ports_are_distinct_and_below_1024() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dial = || tcp_from_reserved_port("::1", port, late());
        let first = match dial() {
            Err(DialError::Connect(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                return println!("skipped: needs root");
            }
            other => other.unwrap(),
        };
        let sockets = [first, dial().unwrap()];
        let mut ports: Vec<u16> = (0..2)
            .map(|_| listener.accept().unwrap().1.port())
            .collect();
        ports.dedup();
        assert!(ports.len() == 2 && ports.iter().all(|port| RESERVED_PORTS.contains(port)));
        drop((sockets, listener));
        let refused = io::ErrorKind::ConnectionRefused;
        eventually(|| {
            let closed = tcp_from_reserved_port("::1", port, late());
            matches!(closed, Err(DialError::Connect(error)) if error.kind() == refused)
        });
    }
}
