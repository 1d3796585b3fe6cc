//! TCP congestion control by name: which algorithms the kernel has, and which one a socket uses. The algorithm
//! determines the cost of loss and delay, so results can't be compared without knowing it: at 1 % packet loss,
//! throughput with bbr and cubic differs tenfold.
//!
//! Called by [`crate::socket::SocketOptions`] and by the experiment file check. The rule: to find out whether an
//! algorithm can be used, ask the kernel to set it, which loads its module if that is allowed; the list in /proc names
//! only loaded algorithms.

use std::fmt;
use std::fs::read_to_string;
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use serde::{Deserialize, Serialize};

/// Maximum name length in bytes: the kernel's TCP_CA_NAME_MAX is 16, including the terminating NUL.
const NAME_BYTES_MAX: usize = 15;

/// The name of an algorithm, such as `cubic`. The kernel may not support it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Congestion {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

/// Why an algorithm cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// Not a valid algorithm name.
    #[error("'{0}' is not a congestion control algorithm; write one such as cubic or reno")]
    Name(String),
    /// The kernel has no algorithm with this name.
    #[error("this kernel has no congestion control algorithm '{name}'; available: {available}")]
    Unknown {
        /// The requested algorithm.
        name: Congestion,
        /// The algorithms that are loaded.
        available: String,
    },
    /// The kernel allows the algorithm only for root.
    #[error("congestion control algorithm '{name}' needs root here; without root: {allowed}")]
    Forbidden {
        /// The requested algorithm.
        name: Congestion,
        /// The algorithms that any user may select.
        allowed: String,
    },
    /// No socket could be opened for the check.
    #[error("cannot check congestion control algorithm '{name}': {source}")]
    Io {
        /// The requested algorithm.
        name: Congestion,
        /// The cause.
        source: io::Error,
    },
}

impl CongestionError {
    /// How to fix the error, unless the message already says so.
    pub fn advice(&self) -> Option<String> {
        match self {
            CongestionError::Forbidden { name, allowed } => Some(format!(
                "sudo sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{} {name}\"",
                allowed.replace(", ", " ")
            )),
            CongestionError::Unknown { name, .. } => {
                Some(format!("if it is a module: sudo modprobe tcp_{name}"))
            }
            _ => None,
        }
    }
}

impl Congestion {
    /// The algorithm's name.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("made of ASCII letters")
    }

    /// Parses a name and checks that the algorithm can be used.
    ///
    /// # Errors
    /// The name is invalid, or [`Congestion::check`] fails.
    pub fn usable(name: &str) -> Result<Congestion, CongestionError> {
        let congestion: Congestion = name.parse()?;
        congestion.check().map(|()| congestion)
    }

    /// Asks the kernel whether the algorithm can be used.
    ///
    /// # Errors
    /// The kernel doesn't have the algorithm, or doesn't allow it for this user.
    pub fn check(self) -> Result<(), CongestionError> {
        let failed = |source| CongestionError::Io { name: self, source };
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| failed(error.into()))?;
        self.set_on(&socket)
    }

    /// Sets the algorithm on a socket.
    ///
    /// # Errors
    /// The kernel doesn't have the algorithm, or doesn't allow it for this user.
    pub fn set_on(self, socket: impl AsFd) -> Result<(), CongestionError> {
        sockopt::set_tcp_congestion(socket, self.name()).map_err(|error| match error {
            rustix::io::Errno::NOENT => CongestionError::Unknown {
                name: self,
                available: known("available"),
            },
            rustix::io::Errno::PERM => CongestionError::Forbidden {
                name: self,
                allowed: known("allowed"),
            },
            error => CongestionError::Io {
                name: self,
                source: error.into(),
            },
        })
    }

    /// The algorithm that a socket uses.
    ///
    /// # Errors
    /// The socket is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Congestion> {
        let name = sockopt::tcp_congestion(socket)?;
        name.parse().map_err(io::Error::other)
    }

    /// The default algorithm for new sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// No socket can be opened.
    pub fn of_kernel() -> io::Result<Congestion> {
        Congestion::of(socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?)
    }
}

/// The names in one of the kernel's lists.
fn known(list: &str) -> String {
    let text = read_to_string(format!("/proc/sys/net/ipv4/tcp_{list}_congestion_control"));
    let names = text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(", "));
    names
        .ok()
        .filter(|names| !names.is_empty())
        .unwrap_or_else(|| "no algorithms listed".to_string())
}

impl FromStr for Congestion {
    type Err = CongestionError;

    fn from_str(name: &str) -> Result<Congestion, CongestionError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(letter) {
            return Err(CongestionError::Name(name.to_string()));
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Congestion {
            bytes,
            len: name.len() as u8,
        })
    }
}

impl TryFrom<String> for Congestion {
    type Error = CongestionError;

    fn try_from(name: String) -> Result<Congestion, CongestionError> {
        name.parse()
    }
}

impl From<Congestion> for String {
    fn from(congestion: Congestion) -> String {
        congestion.name().to_string()
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket uses the algorithm that was set on it; every kernel has reno.
    #[test]
    fn a_socket_uses_the_algorithm_that_was_set() {
        let reno: Congestion = "reno".parse().unwrap();
        reno.check().unwrap();
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        assert_eq!(
            Congestion::of(&socket).unwrap(),
            Congestion::of_kernel().unwrap()
        );
        reno.set_on(&socket).unwrap();
        assert_eq!(Congestion::of(&socket).unwrap(), reno);
    }

    #[test]
    fn an_unknown_algorithm_is_rejected_with_a_list() {
        let nonsense: Congestion = "no-such-thing".parse().unwrap();
        let error = nonsense.check().unwrap_err();
        assert!(matches!(error, CongestionError::Unknown { .. }), "{error}");
        assert!(
            error.to_string().contains("reno") && error.advice().is_some(),
            "{error}"
        );
    }

    #[test]
    fn invalid_names_are_rejected() {
        for wrong in ["", "two words", "longer-than-fifteen", "cubic\n"] {
            assert!(wrong.parse::<Congestion>().is_err(), "{wrong}");
        }
        assert_eq!("cubic".parse::<Congestion>().unwrap().to_string(), "cubic");
    }
}
