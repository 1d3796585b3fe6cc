//! Connected stream sockets (TCP or Unix), and their options in devices and servers: kernel buffer sizes for each
//! direction, TCP_NODELAY and the congestion control. Aiken and Grunwald, 2003, vary the buffer sizes (Figures 4 and
//! 5 versus 6 and 7).
//!
//! The rule: a requested setting takes effect, or a note with the difference is printed with the results.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

use crate::congestion::Congestion;
use crate::open::{OpenError, UrlOptions};

/// A connected stream socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix domain socket.
    Unix(UnixStream),
}

impl Socket {
    /// The TCP socket, if this is one.
    pub fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            Socket::Tcp(socket) => Some(socket),
            Socket::Unix(_) => None,
        }
    }

    /// Duplicates the handle.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(socket) => socket.try_clone()?.into(),
            Socket::Unix(socket) => socket.try_clone()?.into(),
        })
    }

    /// Sets TCP_NODELAY. Does nothing on a Unix socket, which never delays.
    ///
    /// # Errors
    /// A system call fails.
    pub fn set_nodelay(&self, no_delay: bool) -> io::Result<()> {
        self.as_tcp()
            .map_or(Ok(()), |socket| socket.set_nodelay(no_delay))
    }

    /// Sets non-blocking mode.
    ///
    /// # Errors
    /// A system call fails.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_nonblocking(nonblocking),
            Socket::Unix(socket) => socket.set_nonblocking(nonblocking),
        }
    }

    /// Sets the timeouts of blocking reads and writes; `None` means no timeout.
    ///
    /// # Errors
    /// A system call fails.
    pub fn set_timeouts(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket
                .set_read_timeout(limit)
                .and_then(|()| socket.set_write_timeout(limit)),
            Socket::Unix(socket) => socket
                .set_read_timeout(limit)
                .and_then(|()| socket.set_write_timeout(limit)),
        }
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    /// A system call fails.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Socket {
        Socket::Tcp(socket)
    }
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Socket {
        Socket::Unix(socket)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Read for &Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).read(bytes),
            Socket::Unix(socket) => (&mut &*socket).read(bytes),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).write(bytes),
            Socket::Unix(socket) => (&mut &*socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Socket options; the defaults keep the kernel's own buffers, which grow as needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_SNDBUF in bytes. The kernel doubles it for bookkeeping overhead.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF in bytes.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_NODELAY: small messages don't wait for the acknowledgement of the previous message (RFC 896).
    pub no_delay: bool,
    /// TCP_CONGESTION; `None` keeps the kernel's default.
    pub congestion: Option<Congestion>,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions {
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            no_delay: true,
            congestion: None,
        }
    }
}

/// Largest buffer size that can be requested.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

impl SocketOptions {
    /// Takes `send_buffer`, `receive_buffer`, `no_delay` and `congestion` from a URL's options.
    ///
    /// # Errors
    /// A value is invalid, or the kernel does not support that congestion control.
    pub fn take(options: &mut UrlOptions) -> Result<SocketOptions, OpenError> {
        let mut size = |key: &str| match options.size(key)? {
            None => Ok(None),
            Some(bytes @ 1..=BUFFER_BYTES_MAX) => Ok(Some(bytes as usize)),
            Some(bytes) => Err(crate::open::bad_value(
                key,
                &bytes.to_string(),
                "write a size from 1 byte to 1 GiB",
            )),
        };
        let (send_buffer_bytes, receive_buffer_bytes) =
            (size("send_buffer")?, size("receive_buffer")?);
        let no_delay = options.flag("no_delay")?.unwrap_or(true);
        let asked = |name: String| -> Result<Congestion, OpenError> {
            Congestion::usable(&name)
                .map_err(|error| crate::open::bad_value("congestion", &name, &error.to_string()))
        };
        let congestion = options.take("congestion").map(asked).transpose()?;
        Ok(SocketOptions {
            send_buffer_bytes,
            receive_buffer_bytes,
            no_delay,
            congestion,
        })
    }

    /// Applies the options to a TCP socket.
    ///
    /// # Errors
    /// A system call fails.
    pub fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        if let Some(bytes) = self.send_buffer_bytes {
            sockopt::set_socket_send_buffer_size(socket, bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            sockopt::set_socket_recv_buffer_size(socket, bytes)?;
        }
        if let Some(congestion) = self.congestion {
            congestion.set_on(socket).map_err(io::Error::other)?;
        }
        Ok(sockopt::set_tcp_nodelay(socket, self.no_delay)?)
    }

    /// The congestion control in use, and whether the URL requested it; for a device's facts.
    fn congestion_fact(&self, socket: &impl AsFd) -> Option<String> {
        let used = Congestion::of(socket).ok()?;
        Some(match self.congestion {
            Some(_) => format!("TCP congestion control {used}, set in the URL"),
            None => format!("TCP congestion control {used}"),
        })
    }

    /// What users must know to judge results: the congestion control in use, and the sizes of the buffers that the URL
    /// requested, as the kernel granted them.
    pub fn facts(&self, socket: &impl AsFd) -> Vec<String> {
        let [send, receive] = self.granted(socket);
        let said = |what: &str, found: Option<(usize, usize)>| {
            let (asked, got) = found?;
            Some(match asked == got {
                true => format!("socket {what} buffer of {got} bytes, set in the URL"),
                false => format!("socket {what} buffer of {got} bytes; the URL requests {asked}"),
            })
        };
        let buffers = [said("send", send), said("receive", receive)];
        let facts = self.congestion_fact(socket).into_iter();
        facts.chain(buffers.into_iter().flatten()).collect()
    }

    /// The sizes of the send and the receive buffer: requested and granted. `None` if the URL doesn't set one.
    fn granted(&self, socket: &impl AsFd) -> [Option<(usize, usize)>; 2] {
        // The kernel reports twice the size that was set (socket(7)).
        let granted = |asked: Option<usize>, got: Result<usize, rustix::io::Errno>| {
            Some((asked?, got.ok()? / 2))
        };
        [
            granted(
                self.send_buffer_bytes,
                sockopt::socket_send_buffer_size(socket),
            ),
            granted(
                self.receive_buffer_bytes,
                sockopt::socket_recv_buffer_size(socket),
            ),
        ]
    }

    /// Buffer sizes that the kernel granted below the requested ones; for a device's notes.
    pub fn complaint(&self, socket: &impl AsFd) -> Option<String> {
        let [send, receive] = self.granted(socket);
        let say = |what: &str, key: &str, found: Option<(usize, usize)>| {
            let (asked, got) = found.filter(|(asked, got)| got < asked)?;
            Some(format!(
                "the kernel grants a {what} buffer of {got} bytes instead of {asked}: see sysctl {key}"
            ))
        };
        say("send", "net.core.wmem_max", send)
            .or_else(|| say("receive", "net.core.rmem_max", receive))
    }
}
