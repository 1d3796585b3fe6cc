//! Sends TCP resets (RST) on behalf of one host to the other, for a single connection or all connections of a port,
//! like a firewall or load balancer that has lost its state.
//!
//! A receiver accepts a reset only with exactly the next sequence number that it expects (RFC 5961, 3.2). The link
//! derives that number from the packets it has seen: it is the one after everything the sender sent, if none of that
//! was lost or reordered. If the receiver keeps sending, it is the one that the receiver acknowledges.
//!
//! The rule: a connection is reset only once established, and the reset is repeated until the receiver is silent.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use brunt_core::Nanos;

use super::super::direction::Direction;
use super::{ACK, CONNECTIONS_MAX, Flow, RST, SYN, Segment, bare, is_before};

/// A receiver that is still sending this long after a reset didn't accept it.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Which connections between two hosts to reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetPorts {
    /// All connections between the hosts.
    All,
    /// All connections with this port at either end, including later ones.
    Either(u16),
    /// The connection between these ports.
    Both {
        /// The port of the apparent sender of the reset.
        from: u16,
        /// The port of the receiver of the reset.
        to: u16,
    },
}

/// A rule by which a link sends resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResetRule {
    /// The direction of the resets.
    pub(crate) direction: Direction,
    /// The apparent sender of the resets.
    pub(crate) from: Ipv4Addr,
    /// The receiver of the resets.
    pub(crate) to: Ipv4Addr,
    pub(crate) ports: ResetPorts,
}

impl ResetRule {
    /// Whether the rule applies to this flow, which is in the rule's direction.
    fn is_about(&self, flow: Flow) -> bool {
        let ports = match self.ports {
            ResetPorts::All => true,
            ResetPorts::Either(port) => flow.from.port() == port || flow.to.port() == port,
            ResetPorts::Both { from, to } => (flow.from.port(), flow.to.port()) == (from, to),
        };
        ports && *flow.from.ip() == self.from && *flow.to.ip() == self.to
    }
}

/// The reaction requested by [`Resets::on_frame`].
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    Nothing,
    /// Send this packet in the rule's direction, behind the packets that have arrived so far.
    Send(Vec<u8>),
    /// There are too many connections to track.
    Untracked,
}

/// The resets of a link, if there is a rule for them.
#[derive(Debug, Default)]
pub(crate) struct Resetter {
    resets: Option<Resets>,
    /// Resets that have been built but not sent yet.
    waiting: Vec<Vec<u8>>,
}

impl Resetter {
    /// Applies a rule; applying the same rule again changes nothing.
    pub(crate) fn change(&mut self, rule: Option<ResetRule>) {
        if self.resets.as_ref().map(|resets| resets.rule) != rule {
            self.resets = rule.map(Resets::new);
            self.waiting.clear();
        }
    }

    /// Whether this stage needs to see frames.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.resets.is_some()
    }

    /// Processes a frame. If the frame's connection cannot be tracked, returns how long the rule has been active.
    pub(crate) fn inspect(
        &mut self,
        direction: Direction,
        frame: &[u8],
        now: Nanos,
    ) -> Option<Duration> {
        let resets = self.resets.as_mut()?;
        let since = *resets.since.get_or_insert(now);
        match resets.on_frame(direction, frame, now) {
            Reaction::Nothing => None,
            Reaction::Send(reset) => {
                self.waiting.push(reset);
                None
            }
            Reaction::Untracked => Some(now.since(since)),
        }
    }

    /// Takes the resets to send in this direction.
    pub(crate) fn take(&mut self, direction: Direction) -> Vec<Vec<u8>> {
        match self
            .resets
            .as_ref()
            .is_some_and(|resets| resets.rule.direction == direction)
        {
            true => std::mem::take(&mut self.waiting),
            false => Vec::new(),
        }
    }
}

/// A rule and the connections it has seen.
#[derive(Debug)]
struct Resets {
    rule: ResetRule,
    /// When the rule saw its first frame.
    since: Option<Nanos>,
    /// Keyed by their flow in the rule's direction.
    connections: HashMap<Flow, Connection>,
}

#[derive(Debug)]
struct Connection {
    /// The sequence number after everything that passed in the rule's direction.
    next: u32,
    /// When the last reset was sent.
    sent: Option<Nanos>,
    /// Whether one side has reset the connection itself.
    over: bool,
}

impl Resets {
    fn new(rule: ResetRule) -> Resets {
        Resets {
            rule,
            since: None,
            connections: HashMap::new(),
        }
    }

    /// Processes a frame.
    fn on_frame(&mut self, direction: Direction, frame: &[u8], now: Nanos) -> Reaction {
        let Some(segment) = Segment::parse(frame) else {
            return Reaction::Nothing;
        };
        let along = direction == self.rule.direction;
        let flow = if along {
            segment.flow
        } else {
            segment.flow.reversed()
        };
        if !self.rule.is_about(flow) {
            return Reaction::Nothing;
        }
        if segment.is(SYN) {
            self.connections.remove(&flow);
            return Reaction::Nothing;
        }
        let full = self.connections.len() >= CONNECTIONS_MAX;
        let connection = match self.connections.get_mut(&flow) {
            Some(connection) => connection,
            None if segment.is(RST) || !along => return Reaction::Nothing,
            None if full => return Reaction::Untracked,
            None => {
                let fresh = Connection {
                    next: segment.end(),
                    sent: None,
                    over: false,
                };
                self.connections.entry(flow).or_insert(fresh)
            }
        };
        if segment.is(RST) {
            connection.over = true;
        }
        if along && is_before(connection.next, segment.end()) {
            connection.next = segment.end();
        }
        let wait = connection
            .sent
            .is_some_and(|sent| now.since(sent) < AGAIN_AFTER);
        if connection.over || wait || !segment.is(ACK) {
            return Reaction::Nothing;
        }
        let (sequence, acknowledgement) = match along {
            true => (connection.next, segment.acknowledgement),
            false => (segment.acknowledgement, segment.end()),
        };
        connection.sent = Some(now);
        Reaction::Send(bare(frame, flow, sequence, acknowledgement, RST | ACK))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packet::{TCP_PSH as PSH, VNET_HEADER_BYTES};
    use super::super::super::test_frames::{CLIENT, SERVER, segment, sums_are_right};
    use std::net::SocketAddrV4;

    use super::super::FIN;
    use super::*;

    const THERE: Direction = Direction::There;
    const BACK: Direction = Direction::Back;

    fn of(ports: ResetPorts) -> Resets {
        Resets::new(ResetRule {
            direction: THERE,
            from: *CLIENT.ip(),
            to: *SERVER.ip(),
            ports,
        })
    }

    fn of_port() -> Resets {
        of(ResetPorts::Either(3260))
    }

    /// The sequence number of a reset from the client to the server.
    fn sent(reaction: Reaction) -> Option<u32> {
        let Reaction::Send(frame) = reaction else {
            return None;
        };
        assert!(sums_are_right(&frame[VNET_HEADER_BYTES..]));
        let reset = Segment::parse(&frame).unwrap();
        assert_eq!(
            (reset.flow.from, reset.flow.to, reset.flags),
            (CLIENT, SERVER, RST | ACK)
        );
        Some(reset.sequence)
    }

    /// A connection is reset once established, after the sender's last data; a receiver that accepts the reset gets
    /// no further resets.
    #[test]
    fn established_connections_are_reset() {
        let mut resets = of_port();
        let mut on = |direction, from, to, numbers, flags, payload: &[u8], at| {
            sent(resets.on_frame(
                direction,
                &segment(from, to, numbers, flags, payload),
                Nanos(at),
            ))
        };
        assert_eq!(on(THERE, CLIENT, SERVER, [99, 0], SYN, b"", 0), None);
        assert_eq!(
            on(BACK, SERVER, CLIENT, [499, 100], SYN | ACK, b"", 1),
            None
        );
        assert_eq!(
            on(THERE, CLIENT, SERVER, [100, 500], ACK, b"", 2),
            Some(100)
        );
        // Packets that were already in flight, and the reply to the client's next packet.
        assert_eq!(
            on(THERE, CLIENT, SERVER, [100, 500], PSH | ACK, b"data", 3),
            None
        );
        assert_eq!(on(BACK, SERVER, CLIENT, [500, 104], RST, b"", 4), None);
        assert_eq!(
            on(THERE, CLIENT, SERVER, [104, 500], ACK, b"", 1_000_000_000),
            None
        );
        // A new connection between the same ports is tracked separately.
        assert_eq!(
            on(THERE, CLIENT, SERVER, [7000, 0], SYN, b"", 2_000_000_000),
            None
        );
        assert_eq!(
            on(
                THERE,
                CLIENT,
                SERVER,
                [7001, 1],
                PSH | ACK,
                b"data",
                2_000_000_001
            ),
            Some(7005)
        );
    }

    /// A receiver that keeps sending gets another reset, with the sequence number that it acknowledges.
    #[test]
    fn a_reset_is_repeated_until_the_receiver_is_silent() {
        let mut resets = of_port();
        let data = segment(CLIENT, SERVER, [100, 500], PSH | ACK, b"data");
        assert_eq!(sent(resets.on_frame(THERE, &data, Nanos(0))), Some(104));
        // The data was lost: the server still expects 100, and says so (a challenge ACK).
        let challenge = segment(SERVER, CLIENT, [500, 100], ACK, b"");
        let soon = Nanos(AGAIN_AFTER.as_nanos() as u64 - 1);
        assert_eq!(sent(resets.on_frame(BACK, &challenge, soon)), None);
        let later = Nanos(0).after(AGAIN_AFTER);
        assert_eq!(sent(resets.on_frame(BACK, &challenge, later)), Some(100));
        assert_eq!(
            sent(resets.on_frame(BACK, &challenge, later)),
            None,
            "not at once again"
        );
    }

    /// Retransmitted old data doesn't move the sequence number back, and a FIN takes one sequence number.
    #[test]
    fn the_sequence_number_follows_everything_that_passed() {
        let mut resets = of_port();
        let end = segment(CLIENT, SERVER, [u32::MAX - 1, 500], FIN | ACK, b"four");
        assert_eq!(sent(resets.on_frame(THERE, &end, Nanos(0))), Some(3));
        let old = segment(CLIENT, SERVER, [u32::MAX - 1, 500], ACK, b"four");
        resets.on_frame(THERE, &old, Nanos(1));
        assert_eq!(resets.connections.values().next().unwrap().next, 3);
    }

    /// Only the requested connections are reset.
    #[test]
    fn other_connections_are_left_alone() {
        let data = segment(CLIENT, SERVER, [1, 1], ACK, b"");
        let check = |ports, hit: bool| {
            for direction in [THERE, BACK] {
                let mut resets = of(ports);
                let frame = match direction {
                    THERE => data.clone(),
                    BACK => segment(SERVER, CLIENT, [1, 1], ACK, b""),
                };
                let reaction = resets.on_frame(direction, &frame, Nanos(0));
                assert_eq!(
                    sent(reaction).is_some(),
                    hit && direction == THERE,
                    "{ports:?}"
                );
            }
        };
        check(ResetPorts::All, true);
        check(ResetPorts::Either(SERVER.port()), true);
        check(ResetPorts::Either(CLIENT.port()), true);
        check(ResetPorts::Either(22), false);
        check(
            ResetPorts::Both {
                from: CLIENT.port(),
                to: SERVER.port(),
            },
            true,
        );
        check(
            ResetPorts::Both {
                from: SERVER.port(),
                to: CLIENT.port(),
            },
            false,
        );
        let other = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 3), SERVER.port());
        let elsewhere = segment(CLIENT, other, [1, 1], ACK, b"");
        assert_eq!(
            of(ResetPorts::All).on_frame(THERE, &elsewhere, Nanos(0)),
            Reaction::Nothing
        );
        let mut resets = of_port();
        let reset = segment(CLIENT, SERVER, [1, 1], RST | ACK, b"");
        assert_eq!(
            resets.on_frame(THERE, &reset, Nanos(0)),
            Reaction::Nothing,
            "it is over already"
        );
    }
}
