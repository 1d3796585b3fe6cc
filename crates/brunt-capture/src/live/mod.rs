//! Live interfaces: rings of packets that the kernel fills (`AF_PACKET`, `TPACKET_V3`; or `AF_XDP`), read by one
//! thread, handed to the parsers as they lie. Needs the capability `CAP_NET_RAW`. The one rule:
//! packets seen and packets dropped are all the packets that passed the filter.

mod capture;
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

pub use capture::{LiveCapture, LiveReport};
pub use filter::PORTS_MAX;
pub use ring::{LiveBlock, RingCounters};
pub use send::Transmitter;
pub use sys::RingBlock;
pub use xdp::FrameBatch;

/// How packets come from an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// `AF_PACKET`: copies of what the host receives and sends.
    #[default]
    Packet,
    /// `AF_XDP`: what the interface receives, in place of the host.
    Xdp,
}

/// How to capture.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// How packets come; `rings`, `ports` and `hardware_times` are for `AF_PACKET` only.
    pub origin: Origin,
    /// Bytes of each ring; rounded down to whole blocks, at least 2 MiB. Of several rings, each holds its packets for up to
    /// 40 ms, until none of the others can have an older one.
    pub ring_bytes: usize,
    /// Rings that share each interface.
    pub rings: usize,
    /// Bytes of each packet that are captured.
    pub snap_bytes: u32,
    /// Whether packets to other hosts are wanted: a mirror port shows nothing else.
    pub promiscuous: bool,
    /// Whether times are the network card's, where its clock is turned on; the kernel's otherwise. Its
    /// clock need not agree with the host's, so this is for one interface at a time.
    pub hardware_times: bool,
    /// Only packets from or to these ports; all, when there are none. At most [`PORTS_MAX`].
    pub ports: Vec<u16>,
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
        }
    }
}

/// Why a live capture stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The right to see packets is missing.
    #[error(
        "capturing on {interface} needs the capability CAP_NET_RAW: run as root, or give it to the program once \
         with `sudo setcap cap_net_raw,cap_net_admin+ep $(command -v brunt)`"
    )]
    NotAllowed {
        /// The interface.
        interface: String,
    },
    /// The right to divert packets is missing.
    #[error(
        "cannot {what} on {interface}: that needs the capabilities CAP_BPF and CAP_NET_ADMIN of the machine itself, which \
         a container or user namespace does not give; capture without --source xdp, or as root"
    )]
    NoXdp {
        /// The interface.
        interface: String,
        /// What was tried.
        what: &'static str,
    },
    /// There is no such interface.
    #[error("unknown interface {0}; `ip link` lists all")]
    NoInterface(String),
    /// An interface whose packets nobody here can read.
    #[error(
        "{interface} is neither Ethernet nor a tunnel of IP packets (hardware type {kind}): its packets cannot be read"
    )]
    Link {
        /// The interface.
        interface: String,
        /// What the kernel says that it is (`ARPHRD_*`).
        kind: u16,
    },
    /// The operating system said no.
    #[error("cannot {what} on {interface}: {source}")]
    Io {
        /// The interface.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// What it said.
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
