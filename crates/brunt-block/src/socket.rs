//! Socket options of devices and servers: kernel buffer sizes for each direction, and TCP_NODELAY. The iSCSI
//! paper varies the buffer sizes (Figures 4 and 5 against 6 and 7).
//!
//! The rule: the requested settings are in effect, or the difference is reported: if the kernel grants less,
//! a note is printed with the results.

use std::io;
use std::net::TcpStream;

use rustix::net::sockopt;

use crate::congestion::Congestion;
use crate::open::{OpenError, UrlOptions};

/// Options of a socket; the default leaves the kernel's own buffers, which grow as needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Bytes of SO_SNDBUF. The kernel doubles it for its own bookkeeping.
    pub send_buffer_bytes: Option<usize>,
    /// Bytes of SO_RCVBUF.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_NODELAY: no message waits for the acknowledgement of the one before (RFC 896).
    pub no_delay: bool,
    /// TCP_CONGESTION; the kernel's default otherwise.
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

/// The longest buffer that may be asked for.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

impl SocketOptions {
    /// Takes `send_buffer`, `receive_buffer`, `no_delay` and `congestion` out of a URL's options.
    ///
    /// # Errors
    /// A value is none, or the kernel does not have that congestion control.
    pub fn take(options: &mut UrlOptions) -> Result<SocketOptions, OpenError> {
        let mut size = |key: &str| match options.size(key)? {
            None => Ok(None),
            Some(bytes @ 1..=BUFFER_BYTES_MAX) => Ok(Some(bytes as usize)),
            Some(bytes) => {
                Err(crate::open::bad_value(key, &bytes.to_string(), "write a size from 1 byte to 1 GiB"))
            }
        };
        let (send_buffer_bytes, receive_buffer_bytes) = (size("send_buffer")?, size("receive_buffer")?);
        let no_delay = options.flag("no_delay")?.unwrap_or(true);
        let asked = |name: String| -> Result<Congestion, OpenError> {
            Congestion::usable(&name)
                .map_err(|error| crate::open::bad_value("congestion", &name, &error.to_string()))
        };
        let congestion = options.take("congestion").map(asked).transpose()?;
        Ok(SocketOptions { send_buffer_bytes, receive_buffer_bytes, no_delay, congestion })
    }

    /// Sets them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn apply(&self, socket: &TcpStream) -> io::Result<()> {
        if let Some(bytes) = self.send_buffer_bytes {
            sockopt::set_socket_send_buffer_size(socket, bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            sockopt::set_socket_recv_buffer_size(socket, bytes)?;
        }
        if let Some(congestion) = self.congestion {
            congestion.set_on(socket).map_err(io::Error::other)?;
        }
        socket.set_nodelay(self.no_delay)
    }

    /// Which congestion control the socket uses, and whether that was asked for; for the facts of a device.
    pub fn congestion_fact(&self, socket: &TcpStream) -> Option<String> {
        let used = Congestion::of(socket).ok()?;
        Some(match self.congestion {
            Some(_) => format!("TCP congestion control {used}, as the URL says"),
            None => format!("TCP congestion control {used}"),
        })
    }

    /// What the kernel made of them, where that is not what was asked for; for the notes of a device.
    pub fn complaint(&self, socket: &TcpStream) -> Option<String> {
        // The kernel reports twice what it was given (socket(7)).
        let granted = |asked: Option<usize>, got: io::Result<usize>| {
            let (asked, got) = (asked?, got.ok()? / 2);
            (got < asked).then_some((asked, got))
        };
        let send =
            granted(self.send_buffer_bytes, sockopt::socket_send_buffer_size(socket).map_err(Into::into));
        let receive =
            granted(self.receive_buffer_bytes, sockopt::socket_recv_buffer_size(socket).map_err(Into::into));
        let say = |what: &str, key: &str, found: Option<(usize, usize)>| {
            found.map(|(asked, got)| {
                format!("the kernel grants a {what} buffer of {got} bytes, not {asked}: see sysctl {key}")
            })
        };
        say("send", "net.core.wmem_max", send).or_else(|| say("receive", "net.core.rmem_max", receive))
    }
}
