//! One end of a link, as its thread sees it: the place that frames are taken from and delivered to. In a lab it is a
//! host's TAP device, in a bridge an interface of this machine (a packet socket with its ring).
//!
//! The rule: at both kinds of end, a frame starts with a virtio-net header of
//! [`VNET_HEADER_BYTES`](super::VNET_HEADER_BYTES), and its VLAN tags are in place.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::ring_end::RingEnd;
use crate::sys;

/// Keeps an end open.
#[derive(Debug)]
pub(super) enum EndPort {
    /// A TAP device.
    Tap(Arc<OwnedFd>),
    /// A packet socket, and the ring that receives its frames until its lane takes the ring.
    Interface(Arc<OwnedFd>, Option<RingEnd>),
}

/// An end; valid as long as its port is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkEnd {
    Tap(RawFd),
    Interface(RawFd),
}

impl EndPort {
    pub(super) fn end(&self) -> LinkEnd {
        match self {
            EndPort::Tap(tap) => LinkEnd::Tap(tap.as_raw_fd()),
            EndPort::Interface(socket, _) => LinkEnd::Interface(socket.as_raw_fd()),
        }
    }

    /// Takes the receive ring of an interface, once.
    pub(super) fn take_ring(&mut self) -> Option<RingEnd> {
        match self {
            EndPort::Tap(_) => None,
            EndPort::Interface(_, ring) => ring.take(),
        }
    }
}

impl LinkEnd {
    pub(super) fn fd(self) -> RawFd {
        match self {
            LinkEnd::Tap(fd) | LinkEnd::Interface(fd) => fd,
        }
    }

    /// Whether the end is an interface of this machine, whose frames have timestamps.
    pub(super) fn is_interface(self) -> bool {
        matches!(self, LinkEnd::Interface(_))
    }

    /// Writes one frame.
    pub(super) fn write(self, frame: &[u8]) -> io::Result<()> {
        match self {
            LinkEnd::Tap(tap) => sys::write_frame(tap, frame),
            LinkEnd::Interface(socket) => sys::write_packet(socket, frame),
        }
    }
}
