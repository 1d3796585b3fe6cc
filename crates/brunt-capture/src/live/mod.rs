//! Live interfaces: packet rings filled by the kernel (`AF_PACKET` with `TPACKET_V3`, or `AF_XDP`), which one thread
//! reads and passes to the parsers without copying. Needs the capability `CAP_NET_RAW`. The one rule: packets seen
//! and packets dropped add up to all packets that passed the filter.

mod capture;
mod count;
mod filter;
mod merge;
mod ring;
mod send;
#[allow(unsafe_code, reason = "the packet ring shared with the kernel")]
mod sys;
mod xdp;
#[allow(unsafe_code, reason = "the rings of AF_XDP shared with the kernel")]
mod xsk;

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

pub use capture::{LiveCapture, LiveReport};
pub use count::PacketCounter;
pub use filter::PORTS_MAX;
pub use ring::{LiveBlock, RingCounters};
pub use send::Transmitter;
pub use sys::RingBlock;
pub use xdp::FrameBatch;

/// How packets are taken from an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// `AF_PACKET`: copies of the packets that the host receives and sends.
    #[default]
    Packet,
    /// `AF_XDP`: the packets that the interface receives, which the host then doesn't get.
    Xdp,
}

/// Options of a live capture.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// How packets are taken; `rings`, `ports` and `hardware_times` apply only to `AF_PACKET`.
    pub origin: Origin,
    /// Bytes per ring; rounded down to whole blocks, at least 2 MiB. With several rings, each keeps its packets for
    /// up to 40 ms, until no other ring can have an older packet.
    pub ring_bytes: usize,
    /// Number of rings that share each interface.
    pub rings: usize,
    /// Maximum bytes captured of each packet.
    pub snap_bytes: u32,
    /// Whether to capture packets addressed to other hosts, as all packets on a mirror port are.
    pub promiscuous: bool,
    /// Use the network card's timestamps if its clock is enabled, otherwise the kernel's. The card's clock may differ
    /// from the host's, so use this only when capturing on a single interface.
    pub hardware_times: bool,
    /// Capture only packets from or to these ports; if empty, capture all packets. At most [`PORTS_MAX`].
    pub ports: Vec<u16>,
    /// Whether each ring of an interface has its own parser, instead of connections being divided among parsers;
    /// applies only to `AF_PACKET`. Needs as many parsers as `rings`.
    pub parser_per_ring: bool,
    /// Makes the capture's time pass faster; applies only to `AF_PACKET`.
    pub pace: CapturePace,
}

/// Makes a capture's time pass faster than the clock, so that a test captures weeks in minutes.
#[derive(Clone, Copy, Debug)]
pub struct CapturePace {
    begin_ns: u64,
    factor: u64,
}

impl Default for CapturePace {
    fn default() -> CapturePace {
        CapturePace {
            begin_ns: 0,
            factor: 1,
        }
    }
}

impl CapturePace {
    /// From now on, one second of the clock counts as `factor` seconds.
    pub fn faster(factor: u32) -> CapturePace {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        CapturePace {
            begin_ns: now.unwrap_or_default().as_nanos() as u64,
            factor: factor.into(),
        }
    }

    /// Converts a clock time to the capture's time, both in nanoseconds since 1970.
    #[inline]
    pub(crate) fn time(self, clock_ns: u64) -> u64 {
        let since = clock_ns.wrapping_sub(self.begin_ns);
        self.begin_ns.wrapping_add(since.wrapping_mul(self.factor))
    }
}

impl Default for LiveOptions {
    fn default() -> LiveOptions {
        LiveOptions {
            origin: Origin::default(),
            ring_bytes: 128 << 20,
            rings: 1,
            snap_bytes: 262_144,
            promiscuous: true,
            hardware_times: false,
            ports: Vec::new(),
            parser_per_ring: false,
            pace: CapturePace::default(),
        }
    }
}

/// Why a live capture stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The process lacks the capability to capture packets.
    #[error(
        "capturing on {interface} needs the capability CAP_NET_RAW: run as root, or grant it to \
         the program once with `sudo setcap cap_net_raw,cap_net_admin+ep $(command -v brunt)`"
    )]
    NotAllowed {
        /// The interface.
        interface: String,
    },
    /// The process lacks the capabilities to redirect packets.
    #[error(
        "cannot {what} on {interface}: this needs the capabilities CAP_BPF and CAP_NET_ADMIN on \
         the host itself, not only in a container or user namespace; capture without --source \
         xdp, or as root"
    )]
    NoXdp {
        /// The interface.
        interface: String,
        /// The operation attempted.
        what: &'static str,
    },
    /// There is no such interface.
    #[error("unknown interface {0}; list all interfaces with `ip link`")]
    NoInterface(String),
    /// The interface has an unsupported link type.
    #[error(
        "cannot read packets from {interface}: it is neither Ethernet nor a tunnel for IP packets \
         (hardware type {kind})"
    )]
    Link {
        /// The interface.
        interface: String,
        /// The kernel's type number for the interface (`ARPHRD_*`).
        kind: u16,
    },
    /// A system call failed.
    #[error("cannot {what} on {interface}: {source}")]
    Io {
        /// The interface.
        interface: String,
        /// The operation attempted.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl LiveError {
    fn of_socket(interface: &str, source: io::Error) -> LiveError {
        let interface = interface.to_string();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LiveError::NotAllowed { interface },
            _ => LiveError::Io {
                interface,
                what: "open a packet socket",
                source,
            },
        }
    }
}
