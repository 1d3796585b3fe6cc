//! Measures the path from this host to another host with ICMP echo requests (RFC 792): round trip, loss and rate. The
//! controller asks for this before a run, to prove the delay, loss or rate that it has set between two hosts; the
//! other host needs no agent, because its kernel replies.
//!
//! The rule: a figure comes only from replies to this probe's own requests. If there are too few replies, there is no
//! figure.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use brunt_lab::{Fault, FaultError, Proof};
use brunt_protocol::PathFigure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    socket_with,
};

/// Maximum requests of a probe.
pub(crate) const REQUESTS_MAX: u32 = 20_000;
/// Limits for the data in a request: room for the token, and a packet that fits Ethernet's MTU.
pub(crate) const PAYLOAD_BYTES: std::ops::RangeInclusive<u32> = 8..=1400;
/// Maximum time between two requests.
pub(crate) const INTERVAL_US_MAX: u64 = 1_000_000;

/// Type, code, checksum, identifier and sequence number (RFC 792).
const HEADER_BYTES: usize = 8;
/// The token that distinguishes this probe's replies from those to other programs.
const TOKEN_BYTES: usize = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// Largest IPv4 header.
const IP_HEADER_BYTES_MAX: usize = 60;
/// Bytes on the wire in addition to ICMP: IPv4 header 20, Ethernet header 14, checksum 4, preamble 8, gap 12.
const WIRE_OVERHEAD_BYTES: usize = 20 + 14 + 4 + 8 + 12;
/// Minimum time to wait for replies after the last request; it is extended to four times the longest round trip so
/// far.
const REST_MIN: Duration = Duration::from_secs(1);
/// How long to wait for the very first reply.
const FIRST_REPLY_MAX: Duration = Duration::from_secs(5);

/// What to measure, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathProbe {
    pub address: Ipv4Addr,
    pub figure: PathFigure,
    pub requests: u32,
    pub interval: Duration,
    pub payload_bytes: u32,
}

impl Fault for PathProbe {
    fn describe(&self) -> String {
        format!("probe of the path to {}", self.address)
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        let log = self.measure(clock).map_err(|source| self.refused(source))?;
        let seen = clock.now();
        let (requests, replies) = (log.sent.len(), log.replies());
        let Some(value) = log.figure(self.figure, self.payload_bytes as usize) else {
            return Err(FaultError::Refused {
                fault: self.describe(),
                what: format!("{replies} replies to {requests} echo requests (ICMP)"),
                source: io::ErrorKind::TimedOut.into(),
                advice: "let ICMP echo requests and replies pass between these hosts, and check address under \
                         [hosts.NAME]"
                    .to_string(),
            });
        };
        let figure = match self.figure {
            PathFigure::RoundTrip => format!("shortest round trip {:.3} ms", value * 1e3),
            PathFigure::Loss => format!("lost {:.3} %", value * 1e2),
            PathFigure::Rate => format!("{:.3} Mb/s", value / 1e6),
        };
        let what = format!("{replies} replies to {requests} echo requests: {figure}");
        Ok(Proof {
            at,
            seen,
            what,
            value: Some(value),
        })
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let at = clock.now();
        Ok(Proof {
            at,
            seen: at,
            what: "the probe leaves nothing behind".to_string(),
            value: None,
        })
    }
}

impl PathProbe {
    fn refused(&self, source: io::Error) -> FaultError {
        let advice = match source.kind() {
            io::ErrorKind::PermissionDenied => {
                "run the agent as root, or with CAP_NET_RAW, or permit echo requests to all users \
                 (sysctl net.ipv4.ping_group_range='0 2147483647')"
                    .to_string()
            }
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                "set address under [hosts.NAME] to an address that this host can reach".to_string()
            }
            _ => brunt_lab::remedy(&source),
        };
        FaultError::Refused {
            fault: self.describe(),
            what: "cannot send echo requests".to_string(),
            source,
            advice,
        }
    }

    /// Sends all requests and collects replies.
    fn measure(&self, clock: &Clock) -> io::Result<EchoLog> {
        let socket = open(self.address)?;
        // Replies to another probe, or to ping, have a different token.
        let token = clock.now().0.to_be_bytes();
        let mut log = EchoLog::default();
        let mut next = clock.now();
        for sequence in 0..self.requests {
            while let Some(wait) = until(clock, next) {
                collect(&socket, token, wait, clock, &mut log)?;
            }
            let request = request(sequence as u16, token, self.payload_bytes as usize);
            let sent = clock.now();
            send_all(&socket, &request)?;
            log.sent.push(sent);
            log.received.push(None);
            next = next.after(self.interval);
            if self.interval.is_zero() {
                collect(&socket, token, Duration::ZERO, clock, &mut log)?;
            }
        }
        let last = clock.now();
        while log.replies() < log.sent.len() {
            let rest = match log.longest() {
                None => FIRST_REPLY_MAX,
                Some(longest) => REST_MIN.max(longest * 4),
            };
            let Some(wait) = until(clock, last.after(rest)) else {
                break;
            };
            collect(&socket, token, wait, clock, &mut log)?;
        }
        Ok(log)
    }
}

/// The time until `then`; `None` if that has passed.
fn until(clock: &Clock, then: Nanos) -> Option<Duration> {
    let now = clock.now();
    (then > now).then(|| then.since(now))
}

/// A socket for echo requests to this host: unprivileged if the kernel permits it, otherwise raw.
fn open(address: Ipv4Addr) -> io::Result<OwnedFd> {
    let of_type = |kind| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::INET, kind, flags, Some(ipproto::ICMP))
    };
    let socket = match of_type(SocketType::DGRAM) {
        Err(Errno::ACCESS | Errno::PERM) => of_type(SocketType::RAW)?,
        other => other?,
    };
    connect(&socket, &SocketAddrV4::new(address, 0))?;
    Ok(socket)
}

/// Sends a request; waits while the interface's queue is full.
fn send_all(socket: &OwnedFd, request: &[u8]) -> io::Result<()> {
    loop {
        match send(socket, request, SendFlags::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits up to `at_most` for replies, and records those that have arrived.
fn collect(
    socket: &OwnedFd,
    token: [u8; TOKEN_BYTES],
    at_most: Duration,
    clock: &Clock,
    log: &mut EchoLog,
) -> io::Result<()> {
    let time = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&time)) {
        Ok(0) | Err(Errno::INTR) => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut packet = [0; IP_HEADER_BYTES_MAX + HEADER_BYTES + *PAYLOAD_BYTES.end() as usize];
    loop {
        match recv(socket, &mut packet[..], RecvFlags::empty()) {
            Ok((len, _)) => {
                if let Some(sequence) = reply(&packet[..len], token) {
                    log.on_reply(sequence, clock.now());
                }
            }
            Err(Errno::AGAIN) => return Ok(()),
            // A router replied, for example with "unreachable"; the request counts as lost.
            Err(Errno::INTR | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::CONNREFUSED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// An echo request with its checksum.
fn request(sequence: u16, token: [u8; TOKEN_BYTES], payload_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES + payload_bytes.max(TOKEN_BYTES)];
    packet[0] = ECHO_REQUEST;
    // The identifier, which the kernel replaces on an unprivileged socket.
    packet[4..6].copy_from_slice(&token[6..8]);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet[HEADER_BYTES..HEADER_BYTES + TOKEN_BYTES].copy_from_slice(&token);
    let checksum = checksum(&packet);
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The sequence number, if this is a reply to a request with this token. A raw socket delivers packets with their
/// IPv4 header, an unprivileged one without it.
fn reply(packet: &[u8], token: [u8; TOKEN_BYTES]) -> Option<u16> {
    let icmp = match packet.first()? >> 4 {
        // Version 4. An echo reply has type 0.
        4 => packet.get(usize::from(packet[0] & 0x0f) * 4..)?,
        _ => packet,
    };
    let found = icmp.get(HEADER_BYTES..HEADER_BYTES + TOKEN_BYTES)?;
    let is_ours = icmp[0] == ECHO_REPLY && found == token;
    is_ours.then(|| u16::from_be_bytes([icmp[6], icmp[7]]))
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    // At most 704 16-bit words, so their sum fits in 32 bits.
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// When requests were sent, and when their first replies arrived.
#[derive(Debug, Default)]
struct EchoLog {
    sent: Vec<Nanos>,
    received: Vec<Option<Nanos>>,
}

impl EchoLog {
    /// Duplicates, and replies to requests that were never sent, don't count.
    fn on_reply(&mut self, sequence: u16, at: Nanos) {
        if let Some(received) = self.received.get_mut(usize::from(sequence)) {
            received.get_or_insert(at);
        }
    }

    fn replies(&self) -> usize {
        self.received.iter().flatten().count()
    }

    fn round_trips(&self) -> impl Iterator<Item = Duration> + '_ {
        let pairs = self.sent.iter().zip(&self.received);
        pairs.filter_map(|(sent, received)| Some((*received)?.since(*sent)))
    }

    fn longest(&self) -> Option<Duration> {
        self.round_trips().max()
    }

    /// The figure; `None` if there are too few replies.
    fn figure(&self, figure: PathFigure, payload_bytes: usize) -> Option<f64> {
        match figure {
            PathFigure::RoundTrip => self.round_trips().min().map(|time| time.as_secs_f64()),
            // Without any reply, the host is unreachable or doesn't answer, which is not packet loss.
            PathFigure::Loss if self.replies() == 0 => None,
            PathFigure::Loss => Some(1.0 - self.replies() as f64 / self.sent.len() as f64),
            PathFigure::Rate => self.rate(payload_bytes),
        }
    }

    /// The first reply starts the clock; the rate counts the replies after it.
    fn rate(&self, payload_bytes: usize) -> Option<f64> {
        let arrived = || self.received.iter().flatten();
        let (first, last) = (arrived().min()?, arrived().max()?);
        let seconds = last.since(*first).as_secs_f64();
        let bits = (HEADER_BYTES + payload_bytes + WIRE_OVERHEAD_BYTES) * 8;
        (seconds > 0.0).then(|| (self.replies() - 1) as f64 * bits as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; TOKEN_BYTES] = [1, 2, 3, 4, 5, 6, 7, 8];

    /// A kernel's reply to a request: the same bytes with a different type.
    fn answered(sequence: u16) -> Vec<u8> {
        let mut packet = request(sequence, TOKEN, 32);
        packet[0] = ECHO_REPLY;
        packet
    }

    #[test]
    fn a_packet_with_its_checksum_sums_to_zero() {
        for payload in [8, 9, 32, 1399, 1400] {
            assert_eq!(checksum(&request(7, TOKEN, payload)), 0, "{payload}");
        }
        // Example from RFC 1071, section 3: 0001 f203 f4f5 f6f7 add up to ddf2.
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&example), !0xddf2);
    }

    #[test]
    fn only_replies_to_own_requests_count() {
        let plain = answered(513);
        assert_eq!(reply(&plain, TOKEN), Some(513));
        let mut with_header = vec![0; 24];
        with_header[0] = 0x46;
        with_header.extend(&plain);
        assert_eq!(reply(&with_header, TOKEN), Some(513));
        assert_eq!(reply(&plain, [0; 8]), None);
        assert_eq!(reply(&request(513, TOKEN, 32), TOKEN), None);
        for len in 0..HEADER_BYTES + TOKEN_BYTES {
            assert_eq!(reply(&plain[..len], TOKEN), None, "{len}");
        }
        assert_eq!(reply(&[0x4f], TOKEN), None);
    }

    #[test]
    fn figures_come_from_replies() {
        let mut log = EchoLog::default();
        assert_eq!(log.figure(PathFigure::RoundTrip, 1400), None);
        for number in 0..4 {
            log.sent.push(Nanos(number * 1_000));
            log.received.push(None);
        }
        let figure = |log: &EchoLog, figure| log.figure(figure, 1400);
        assert_eq!(figure(&log, PathFigure::Loss), None);
        log.on_reply(0, Nanos(10_000_000));
        assert_eq!(figure(&log, PathFigure::Rate), None);
        // Duplicates and unknown numbers have no effect.
        log.on_reply(0, Nanos(90_000_000));
        log.on_reply(4, Nanos(90_000_000));
        log.on_reply(3, Nanos(12_003_000));
        assert_eq!(figure(&log, PathFigure::Loss), Some(0.5));
        assert_eq!(figure(&log, PathFigure::RoundTrip), Some(0.01));
        // One reply of 1466 bytes arrives 2.003 ms after the first reply.
        let rate = figure(&log, PathFigure::Rate).unwrap();
        assert!((rate - 1466.0 * 8.0 / 0.002_003).abs() < 1.0, "{rate}");
    }
}
