//! The rtnetlink requests (rtnetlink(7)) that a lab needs: bring up a link with its address, MTU and queue; add a
//! neighbour, a route, a veth pair or netem; and read drop counters.
//!
//! The rule: a [`Netlink`] always refers to the namespace that its thread was in when it was opened. Every request
//! waits for the kernel's reply.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Maximum size of a reply: a link with all its statistics takes about 2 KiB.
const ANSWER_BYTES_MAX: usize = 32 << 10;
const HEADER_BYTES: usize = 16;

// Constants of linux/rtnetlink.h, linux/if_link.h and linux/pkt_sched.h that libc lacks.
const IFLA_STATS64: u16 = 23;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
/// The handle of the queueing disciplines that faults add to interfaces, which distinguishes ours from others: `b7e7:`.
const OWN_HANDLE: u32 = 0xb7e7_0000;
const VETH_INFO_PEER: u16 = 1;
const RTAX_CC_ALGO: u16 = 16;

/// A device's counters (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceStats {
    /// Packets that the host's stack received from the device and dropped.
    pub rx_dropped: u64,
    /// Packets that the host sent but the device had no room for.
    pub tx_dropped: u64,
    /// Frames that the host sent, and their bytes.
    pub tx_frames: u64,
    pub tx_bytes: u64,
}

/// A queueing discipline's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QdiscStats {
    /// Packets that left through the discipline.
    pub packets: u64,
    /// Packets that the discipline dropped.
    pub drops: u64,
}

/// A netlink socket in one network namespace.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Netlink> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None, // protocol 0: NETLINK_ROUTE
        )?;
        Ok(Netlink {
            socket,
            sequence: 0,
        })
    }

    /// The index of a device.
    pub(crate) fn index_of(&mut self, name: &str) -> io::Result<u32> {
        let mut request = Request::new(libc::RTM_GETLINK, 0, &link_header(0, 0, 0));
        request.text(libc::IFLA_IFNAME, name);
        let answer = self.ask(request)?;
        let index = answer.get(HEADER_BYTES + 4..HEADER_BYTES + 8);
        index
            .map(word)
            .ok_or_else(|| io::Error::other("rtnetlink replied without a link"))
    }

    /// The index of a device's peer or lower device, if that is in the device's own namespace.
    pub(crate) fn peer_of(&mut self, name: &str) -> io::Result<Option<u32>> {
        let mut request = Request::new(libc::RTM_GETLINK, 0, &link_header(0, 0, 0));
        request.text(libc::IFLA_IFNAME, name);
        let answer = self.ask(request)?;
        let all: Vec<_> = attributes(&answer[(HEADER_BYTES + 16).min(answer.len())..]).collect();
        // In another namespace, the index refers to something else.
        let elsewhere = all.iter().any(|(kind, _)| *kind == libc::IFLA_LINK_NETNSID);
        let peer = all
            .iter()
            .find(|(kind, bytes)| *kind == libc::IFLA_LINK && bytes.len() >= 4);
        Ok(peer
            .filter(|_| !elsewhere)
            .map(|(_, bytes)| word(&bytes[..4])))
    }

    /// Brings a device up with this configuration.
    pub(crate) fn set_up(&mut self, index: u32, device: &DeviceConfig) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, up, up));
        if let Some(mtu) = device.mtu {
            request.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        }
        if let Some(packets) = device.queue_packets {
            request.attribute(libc::IFLA_TXQLEN, &packets.to_ne_bytes());
        }
        if let Some(address) = device.address {
            request.attribute(libc::IFLA_ADDRESS, &address);
        }
        self.ask(request).map(drop)
    }

    /// Adds an address to a device, alone in its subnet.
    pub(crate) fn add_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let [a, b, c, d] = index.to_ne_bytes();
        let header = [
            libc::AF_INET as u8,
            32,
            0,
            libc::RT_SCOPE_UNIVERSE,
            a,
            b,
            c,
            d,
        ];
        let mut request = Request::new(libc::RTM_NEWADDR, CREATE, &header);
        request.attribute(libc::IFA_LOCAL, &address.octets());
        request.attribute(libc::IFA_ADDRESS, &address.octets());
        self.ask(request).map(drop)
    }

    /// Adds or replaces the route to a host.
    pub(crate) fn set_route(&mut self, route: &Route<'_>) -> io::Result<()> {
        self.ask(route.request()).map(drop)
    }

    /// Sets a neighbour's permanent Ethernet address, so that no ARP packet is lost on a bad link.
    pub(crate) fn add_neighbour(
        &mut self,
        index: u32,
        to: Ipv4Addr,
        address: [u8; 6],
    ) -> io::Result<()> {
        let mut header = vec![libc::AF_INET as u8, 0, 0, 0];
        header.extend(index.to_ne_bytes());
        header.extend(libc::NUD_PERMANENT.to_ne_bytes());
        header.extend([0, libc::RTN_UNICAST]);
        let mut request = Request::new(libc::RTM_NEWNEIGH, CREATE, &header);
        request.attribute(libc::NDA_DST, &to.octets());
        request.attribute(libc::NDA_LLADDR, &address);
        self.ask(request).map(drop)
    }

    /// Adds a veth pair: one end here, the other in another namespace.
    pub(crate) fn add_veth(
        &mut self,
        name: &str,
        there: BorrowedFd<'_>,
        peer: &str,
    ) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, CREATE, &link_header(0, 0, 0));
        request.text(libc::IFLA_IFNAME, name);
        request.nest(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth");
            info.nest(libc::IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |other| {
                    other.bytes.extend(link_header(0, 0, 0));
                    other.text(libc::IFLA_IFNAME, peer);
                    other.attribute(libc::IFLA_NET_NS_FD, &there.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.ask(request).map(drop)
    }

    /// Adds a queueing discipline at a device's root, replacing any of the same kind.
    pub(crate) fn set_qdisc(&mut self, index: u32, kind: &str, options: &[u8]) -> io::Result<()> {
        self.ask(qdisc_request(index, kind, options)).map(drop)
    }

    /// Adds a queueing discipline of ours at a device's root, unless there is another one.
    pub(crate) fn add_own_qdisc(
        &mut self,
        index: u32,
        kind: &str,
        options: &[u8],
    ) -> io::Result<()> {
        let mut request =
            Request::new(libc::RTM_NEWQDISC, CREATE, &qdisc_header(index, OWN_HANDLE));
        request.text(TCA_KIND, kind);
        request.attribute(TCA_OPTIONS, options);
        self.ask(request).map(drop)
    }

    /// The counters of our queueing discipline at a device's root; `None` if ours isn't there.
    pub(crate) fn own_qdisc(&mut self, index: u32) -> io::Result<Option<QdiscStats>> {
        // With echo, because kernels before 6.8 otherwise send the reply only to listeners.
        let request = Request::new(
            libc::RTM_GETQDISC,
            libc::NLM_F_ECHO,
            &qdisc_header(index, 0),
        );
        let answer = match self.ask(request) {
            Ok(answer) => answer,
            // The device has no queue, or the kernel hides its discipline.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // struct tcmsg: family, index, handle.
        let handle = answer.get(HEADER_BYTES + 8..HEADER_BYTES + 12).map(word);
        Ok((handle == Some(OWN_HANDLE)).then(|| QdiscStats::read(&answer[HEADER_BYTES + 20..])))
    }

    /// Removes our queueing discipline from a device's root; the kernel restores its default. It is not an error if
    /// ours isn't there.
    pub(crate) fn remove_own_qdisc(&mut self, index: u32) -> io::Result<()> {
        let request = Request::new(libc::RTM_DELQDISC, 0, &qdisc_header(index, OWN_HANDLE));
        match self.ask(request) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)
                ) =>
            {
                Ok(())
            }
            asked => asked.map(drop),
        }
    }

    /// A device's counters so far.
    pub(crate) fn stats(&mut self, index: u32) -> io::Result<DeviceStats> {
        let answer = self.ask(Request::new(
            libc::RTM_GETLINK,
            0,
            &link_header(index, 0, 0),
        ))?;
        let found = attributes(&answer[(HEADER_BYTES + 16).min(answer.len())..])
            .find(|(kind, _)| *kind == IFLA_STATS64)
            .ok_or_else(|| io::Error::other("rtnetlink replied without statistics"))?;
        // rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped.
        let field = |index: usize| {
            let bytes = found.1.get(index * 8..index * 8 + 8);
            bytes.map_or(0, |bytes| {
                u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
            })
        };
        Ok(DeviceStats {
            rx_dropped: field(6),
            tx_dropped: field(7),
            tx_frames: field(1),
            tx_bytes: field(3),
        })
    }

    /// Sends a request and returns its reply; empty for an acknowledgement.
    fn ask(&mut self, mut request: Request) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let length = request.bytes.len() as u32;
        request.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        send(&self.socket, &request.bytes, SendFlags::empty())?;
        let mut data = Vec::new();
        loop {
            let mut buffer = vec![0; ANSWER_BYTES_MAX];
            let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..count];
            while rest.len() >= HEADER_BYTES {
                let length = (word(&rest[0..4]) as usize).clamp(HEADER_BYTES, rest.len());
                let (message, after) = rest.split_at(length);
                rest = &after[(length.next_multiple_of(4) - length).min(after.len())..];
                if word(&message[8..12]) != self.sequence {
                    continue;
                }
                let kind = u16::from_ne_bytes([message[4], message[5]]);
                if kind != libc::NLMSG_ERROR as u16 {
                    data = message.to_vec();
                    continue;
                }
                // An error of zero is the acknowledgement, and comes last.
                let code = message
                    .get(HEADER_BYTES..HEADER_BYTES + 4)
                    .map_or(0, |code| word(code) as i32);
                return if code == 0 {
                    Ok(data)
                } else {
                    Err(io::Error::from_raw_os_error(-code))
                };
            }
        }
    }
}

/// The configuration of a device when it is brought up.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceConfig {
    pub mtu: Option<u32>,
    pub queue_packets: Option<u32>,
    pub address: Option<[u8; 6]>,
}

/// How to reach a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<'a> {
    pub device: u32,
    pub to: Ipv4Addr,
    /// The source address of packets.
    pub source: Ipv4Addr,
    /// The forwarding host, if the destination isn't a neighbour.
    pub gateway: Option<Ipv4Addr>,
    /// TCP congestion control for connections over this route, if not the kernel's default.
    pub congestion: Option<&'a str>,
}

impl Route<'_> {
    fn request(&self) -> Request {
        // struct rtmsg: family, destination and source prefix lengths, tos, table, protocol, scope, type, flags.
        let [table, protocol] = [libc::RT_TABLE_MAIN, libc::RTPROT_STATIC];
        let scope = if self.gateway.is_some() {
            libc::RT_SCOPE_UNIVERSE
        } else {
            libc::RT_SCOPE_LINK
        };
        let mut header = vec![libc::AF_INET as u8, 32, 0, 0, table, protocol];
        header.extend([scope, libc::RTN_UNICAST, 0, 0, 0, 0]);
        let mut request = Request::new(libc::RTM_NEWROUTE, CREATE | libc::NLM_F_REPLACE, &header);
        request.attribute(libc::RTA_DST, &self.to.octets());
        request.attribute(libc::RTA_PREFSRC, &self.source.octets());
        request.attribute(libc::RTA_OIF, &self.device.to_ne_bytes());
        if let Some(gateway) = self.gateway {
            request.attribute(libc::RTA_GATEWAY, &gateway.octets());
        }
        if let Some(algorithm) = self.congestion {
            request.nest(libc::RTA_METRICS, |metrics| {
                metrics.text(RTAX_CC_ALGO, algorithm)
            });
        }
        request
    }
}

const CREATE: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: libc::c_int, header: &[u8]) -> Request {
        // REPLACE and EXCL contradict each other.
        let exclusive = if flags & libc::NLM_F_REPLACE != 0 {
            libc::NLM_F_EXCL
        } else {
            0
        };
        let flags = (flags & !exclusive | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(header);
        Request { bytes }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |request| request.bytes.extend(value));
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.nest(kind, |request| {
            request.bytes.extend(value.as_bytes());
            request.bytes.push(0);
        });
    }

    /// Adds an attribute whose value `fill` writes.
    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn qdisc_request(index: u32, kind: &str, options: &[u8]) -> Request {
    let header = qdisc_header(index, 0x0001_0000); // handle 1:
    let mut request = Request::new(libc::RTM_NEWQDISC, CREATE | libc::NLM_F_REPLACE, &header);
    request.text(TCA_KIND, kind);
    request.attribute(TCA_OPTIONS, options);
    request
}

/// `struct tcmsg` of a device's root: family, index, handle, parent, info.
fn qdisc_header(index: u32, handle: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(handle.to_ne_bytes());
    header.extend(u32::MAX.to_ne_bytes()); // TC_H_ROOT
    header.extend([0; 4]);
    header
}

impl QdiscStats {
    /// Parses the attributes after a `struct tcmsg`.
    fn read(bytes: &[u8]) -> QdiscStats {
        let mut stats = QdiscStats::default();
        let of_all = attributes(bytes)
            .find(|(kind, _)| *kind == TCA_STATS2)
            .map_or(&[][..], |(_, bytes)| bytes);
        for (kind, value) in attributes(of_all) {
            // struct gnet_stats_basic: u64 bytes, u32 packets; struct gnet_stats_queue: qlen, backlog, drops.
            match (kind, value.get(8..12).map(word)) {
                (TCA_STATS_BASIC, Some(packets)) => {
                    stats.packets = stats.packets.max(packets.into())
                }
                (TCA_STATS_QUEUE, Some(drops)) => stats.drops = drops.into(),
                (TCA_STATS_PKT64, _) if value.len() == 8 => {
                    stats.packets = u64::from_ne_bytes(value.try_into().expect("eight bytes"));
                }
                _ => {}
            }
        }
        stats
    }
}

/// `struct ifinfomsg`.
fn link_header(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend(change.to_ne_bytes());
    header
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
}

/// The kinds and values of consecutive attributes; stops at an invalid length.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes round-trip, including padding and nesting, and an invalid length ends parsing, not the program.
    #[test]
    fn attributes_round_trip() {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &[]);
        request.text(3, "eth0");
        request.nest(18, |inner| inner.attribute(1, &[9]));
        let written = &request.bytes[HEADER_BYTES..];
        let read: Vec<_> = attributes(written).collect();
        assert_eq!(
            read,
            [(3, &b"eth0\0"[..]), (18, &[5, 0, 1, 0, 9, 0, 0, 0][..])]
        );
        for cut in 0..written.len() {
            assert!(attributes(&written[..cut]).count() <= 2);
        }
        assert_eq!(attributes(&[2, 0, 1, 0, 7]).count(), 0);
    }

    /// The request for a discipline equals that of `tc qdisc replace dev lo root netem …` (iproute2 6.1), byte for
    /// byte, except for our handle and the sequence number.
    #[test]
    fn a_qdisc_request_equals_that_of_tc() {
        let options = [0x5a; 24];
        let request = qdisc_request(1, "netem", &options);
        let mut expected = Vec::new();
        // struct nlmsghdr; length and sequence number are set when sending.
        expected.extend([0, 0, 0, 0]);
        expected.extend(36u16.to_ne_bytes()); // RTM_NEWQDISC
        expected.extend((0x1u16 | 0x4 | 0x100 | 0x400).to_ne_bytes()); // request, ack, replace, create
        expected.extend([0; 8]);
        expected.extend([0, 0, 0, 0]); // AF_UNSPEC
        expected.extend(1u32.to_ne_bytes());
        expected.extend(0x0001_0000u32.to_ne_bytes());
        expected.extend([0xff; 4]);
        expected.extend([0; 4]);
        expected.extend([10u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
        expected.extend(b"netem\0\0\0");
        expected.extend([28u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
        expected.extend(options);
        assert_eq!(request.bytes, expected);
    }

    /// Counters are found in a kernel's reply, and nothing is read beyond its end.
    #[test]
    fn qdisc_counters_are_parsed_within_bounds() {
        let mut request = Request::new(libc::RTM_GETQDISC, 0, &[]);
        request.text(TCA_KIND, "netem");
        request.nest(TCA_STATS2, |stats| {
            stats.attribute(
                TCA_STATS_BASIC,
                &[&900u64.to_ne_bytes()[..], &7u32.to_ne_bytes()].concat(),
            );
            let queue = [1u32, 2, 3, 4, 5].map(u32::to_ne_bytes).concat();
            stats.attribute(TCA_STATS_QUEUE, &queue);
        });
        let bytes = &request.bytes[HEADER_BYTES..];
        assert_eq!(
            QdiscStats::read(bytes),
            QdiscStats {
                packets: 7,
                drops: 3
            }
        );
        for cut in 0..bytes.len() {
            let QdiscStats { packets, drops } = QdiscStats::read(&bytes[..cut]);
            assert!(packets <= 7 && drops <= 3);
        }
    }

    /// The kernel accepts a request as encoded here: the loopback device of the test's namespace is found by name.
    #[test]
    fn the_kernel_finds_the_loopback_device_by_name() {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index_of("lo").unwrap();
        assert_eq!(index, 1);
        netlink.stats(index).unwrap();
        assert_eq!(
            netlink.index_of("nosuchdevice").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }
}
