//! Resets TCP connections between two hosts on behalf of one of them, like a firewall that has lost its state.
//!
//! The rule: the proof is in both hosts' TCP counters. The receiver counts a reset connection (EstabResets), and the
//! apparent sender has not sent any reset (OutRsts). If no matching connection sends data, nothing is reset, which is
//! an error.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::link::probe::read_again;
use crate::link::{Direction, ResetPorts, ResetRule};
use crate::{Fault, FaultError, Host, LinkHandle, Proof};

/// How long to wait for a connection to send something, so that it can be reset.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the hosts' counters are polled.
const NAP: Duration = Duration::from_millis(1);

/// Resets connections while the fault lasts.
#[derive(Debug)]
pub struct TcpReset {
    link: LinkHandle,
    /// The apparent sender of the resets, and their receiver.
    hosts: [Host; 2],
    rule: ResetRule,
    /// Maximum travel time of a packet over the whole path.
    longest: Duration,
    /// Present while the fault is armed.
    armed: Option<Armed>,
}

/// The state when the fault was armed.
#[derive(Debug)]
struct Armed {
    at: Nanos,
    /// The hosts' counters; an open file keeps reporting its host, whichever thread reads it.
    snmp: [File; 2],
    counts: [TcpCounts; 2],
    /// Resets that the link had already sent.
    sent: u64,
}

/// TCP counters of one host.
#[derive(Clone, Copy, Debug)]
struct TcpCounts {
    /// Connections that were reset.
    resets: u64,
    /// Resets that the host sent.
    sent: u64,
}

/// No connection has been reset so far.
pub struct NoResetYet {
    /// The counters of the link and the hosts.
    pub counted: String,
}

impl TcpReset {
    /// `direction`: the link direction taken by packets from the first host to the second.
    pub(crate) fn new(
        link: LinkHandle,
        direction: Direction,
        hosts: [Host; 2],
        ports: ResetPorts,
        longest: Duration,
    ) -> TcpReset {
        let rule = ResetRule {
            direction,
            from: hosts[0].address(),
            to: hosts[1].address(),
            ports,
        };
        TcpReset {
            link,
            hosts,
            rule,
            longest,
            armed: None,
        }
    }

    fn refused(&self, what: &str, source: io::Error) -> FaultError {
        FaultError::refused(self.describe(), what, source)
    }

    /// Opens and reads the hosts' counters.
    fn counters(&self) -> io::Result<([File; 2], [TcpCounts; 2])> {
        let open = |host: &Host| host.run(|| File::open("/proc/thread-self/net/snmp"));
        let snmp = [open(&self.hosts[0])?, open(&self.hosts[1])?];
        let counts = [counts(&snmp[0])?, counts(&snmp[1])?];
        Ok((snmp, counts))
    }

    fn unreadable(&self, error: io::Error) -> FaultError {
        self.refused("cannot read a host's TCP counters", error)
    }

    fn sent(&self) -> u64 {
        let report = self.link.report();
        [report.there, report.back][self.rule.direction as usize].tcp_resets
    }

    /// Makes the link reset connections from now on; returns the start time. [`TcpReset::check`] checks whether one was
    /// reset.
    ///
    /// # Errors
    /// The fault is already armed, or the link or a host's counters no longer exist.
    pub fn arm(&mut self) -> Result<Nanos, FaultError> {
        if self.armed.is_some() {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            });
        }
        let ((snmp, counts), sent) = (
            self.counters().map_err(|error| self.unreadable(error))?,
            self.sent(),
        );
        // From here on, dropping the fault stops the resets, even if only one direction has been armed.
        let armed = self.armed.insert(Armed {
            at: Nanos(0),
            snmp,
            counts,
            sent,
        });
        match self.link.reset(Some(self.rule)) {
            Ok(at) => {
                armed.at = at;
                Ok(at)
            }
            Err(error) => {
                Err(self.refused("cannot start resets on the link", io::Error::other(error)))
            }
        }
    }

    /// Checks whether a connection has been reset since arming; if not, returns the counters so far.
    ///
    /// # Errors
    /// The fault is not armed, or the hosts' counters cannot be read.
    pub fn check(&self, clock: &Clock) -> Result<Result<Proof, NoResetYet>, FaultError> {
        let Some(armed) = &self.armed else {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is not injected",
            });
        };
        let read = |host: usize| counts(&armed.snmp[host]).map_err(|error| self.unreadable(error));
        let now = [read(0)?, read(1)?];
        let [from, to] = [0, 1].map(|host: usize| TcpCounts {
            resets: now[host].resets - armed.counts[host].resets,
            sent: now[host].sent - armed.counts[host].sent,
        });
        let sent = self.sent() - armed.sent;
        let what = format!(
            "{sent} resets sent by the link; {}: {} connections reset, {} resets sent; {}: {} connections \
             reset, {} resets sent",
            self.hosts[1].name(),
            to.resets,
            to.sent,
            self.hosts[0].name(),
            from.resets,
            from.sent
        );
        // Discount resets from the sender itself, which the receiver counts as well.
        Ok(match sent > 0 && to.resets > from.sent {
            true => Ok(Proof {
                at: armed.at,
                seen: clock.now(),
                what,
                value: Some(to.resets as f64),
            }),
            false => Err(NoResetYet { counted: what }),
        })
    }

    /// Opens a connection that the rule would match, if possible, and transfers a byte both ways.
    fn connection_lasts(&self) -> io::Result<()> {
        let patience = PATIENCE + self.longest * 4;
        let [from, to] = &self.hosts;
        let listener = to.run(|| TcpListener::bind((to.address(), 0)))?;
        let address = address_of(&listener)?;
        let near = match self.rule.ports {
            ResetPorts::Either(port) => port,
            ResetPorts::All | ResetPorts::Both { .. } => 0,
        };
        let connected = from.run(|| {
            // The port may be in use on the host; then any other will do.
            connect_from(from.address(), near, address)
                .or_else(|_| TcpStream::connect_timeout(&address.into(), patience))
        });
        let mut near = connected?;
        let (mut far, _) = listener.accept()?;
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(patience))?;
            socket.set_write_timeout(Some(patience))?;
        }
        let mut byte = [0];
        near.write_all(b"?")?;
        far.read_exact(&mut byte)?;
        far.write_all(b"!")?;
        near.read_exact(&mut byte)
    }
}

fn address_of(listener: &TcpListener) -> io::Result<SocketAddrV4> {
    match listener.local_addr()? {
        std::net::SocketAddr::V4(address) => Ok(address),
        std::net::SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// A connection from a given local port.
fn connect_from(host: Ipv4Addr, port: u16, to: SocketAddrV4) -> io::Result<TcpStream> {
    use rustix::net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt,
    };
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(host, port))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

fn counts(snmp: &File) -> io::Result<TcpCounts> {
    tcp_counts(&read_again(snmp)?)
        .ok_or_else(|| io::Error::other("/proc/net/snmp has no Tcp counts"))
}

/// Parses `/proc/net/snmp`: pairs of lines, the names and then the values.
fn tcp_counts(text: &str) -> Option<TcpCounts> {
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let named = |name: &str| {
        let place = names.split_whitespace().position(|this| this == name)?;
        values.split_whitespace().nth(place)?.parse().ok()
    };
    Some(TcpCounts {
        resets: named("EstabResets")?,
        sent: named("OutRsts")?,
    })
}

impl Fault for TcpReset {
    fn describe(&self) -> String {
        let [from, to] = [self.hosts[0].name(), self.hosts[1].name()];
        let which = match self.rule.ports {
            ResetPorts::All => String::new(),
            ResetPorts::Either(port) => format!(" of port {port}"),
            ResetPorts::Both {
                from: near,
                to: far,
            } => format!(" of ports {near} and {far}"),
        };
        format!("TCP reset from {from} to {to}{which}")
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        self.arm()?;
        let deadline = clock.now().after(PATIENCE + self.longest * 2);
        loop {
            match self.check(clock)? {
                Ok(proof) => return Ok(proof),
                Err(NoResetYet { counted: seen }) if clock.now() >= deadline => {
                    return Err(FaultError::NotShown {
                        fault: self.describe(),
                        seen,
                    });
                }
                Err(_) => std::thread::sleep(NAP),
            }
        }
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let seen = self.check(clock)?;
        self.armed = None;
        let ended = self.link.reset(None);
        let at: Nanos = ended.map_err(|error| {
            self.refused("cannot stop resets on the link", io::Error::other(error))
        })?;
        let sent = self.sent();
        let not_gone = |seen: String| FaultError::NotGone {
            fault: self.describe(),
            seen,
        };
        self.connection_lasts()
            .map_err(|error| not_gone(format!("a new connection failed ({error})")))?;
        match self.sent() - sent {
            0 => {
                let seen = seen.map_or_else(|seen| seen.counted, |proof| proof.what);
                let what = format!(
                    "{seen}; then a new connection carried data both ways without further resets"
                );
                Ok(Proof {
                    at,
                    seen: clock.now(),
                    what,
                    value: None,
                })
            }
            more => Err(not_gone(format!("{more} more resets sent by the link"))),
        }
    }
}

impl Drop for TcpReset {
    fn drop(&mut self) {
        if self.armed.is_some() {
            let _ = self.link.reset(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's counters are found by name, at any position.
    #[test]
    fn tcp_counters_are_found_by_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens EstabResets OutRsts InErrs\nTcp: 9 4 7 0\n";
        let counts = tcp_counts(text).unwrap();
        assert_eq!((counts.resets, counts.sent), (4, 7));
        assert!(tcp_counts("").is_none() && tcp_counts("Tcp: EstabResets\nTcp:").is_none());
        let own = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
        assert!(tcp_counts(&own).is_some(), "{own}");
    }
}
