//! The receive side of an interface in a bridge: takes frames out of the ring of slots that the kernel fills, and sends
//! those without impairments directly from the ring, many per call.
//!
//! Driven by [`super::lane`]. The rule: frames leave in the order in which they arrived, and a slot returns to the
//! kernel once its frame has been sent or copied.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Histogram, Nanos};
use rustix::time::{ClockId, clock_gettime};

use super::write_counts::WriteCounts;
use crate::netlink::Netlink;
use crate::sys::{self, PacketRead, SlotFrame, SlotRead, SlotRing};

/// How often to check whether an idle interface still exists.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// When a frame arrived at this machine, according to the kernel's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameArrival {
    pub(super) at: Nanos,
    /// The arrival time on the wall clock.
    pub(super) since_1970: Duration,
}

/// The result of reading an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingRead {
    Nothing,
    /// A frame in the ring.
    Frame(SlotFrame, FrameArrival),
    /// A frame that is too long for the ring and was read into the buffer; contains its length in bytes.
    Long(usize, FrameArrival),
    /// A frame that the kernel had no room for, or could not deliver.
    NoRoom,
    Unreadable,
}

/// The ring, and the frames in it that are about to be sent.
#[derive(Debug)]
pub(super) struct RingEnd {
    socket: Arc<OwnedFd>,
    index: u32,
    ring: SlotRing,
    passing: Vec<PassingFrame>,
    /// The monotonic clock and the wall clock at the start of the batch.
    clocks: Option<(Nanos, Duration)>,
    /// When the interface's existence was last checked; `None` if it must be checked now.
    looked: Option<Nanos>,
}

#[derive(Debug)]
struct PassingFrame {
    frame: SlotFrame,
    packets: u32,
    arrived_at: Nanos,
}

impl RingEnd {
    /// Receives from this socket, which is bound to the interface with this index.
    pub(super) fn new(socket: Arc<OwnedFd>, index: u32, ring: SlotRing) -> RingEnd {
        let passing = Vec::with_capacity(sys::SENT_AT_ONCE_MAX);
        RingEnd {
            socket,
            index,
            ring,
            passing,
            clocks: None,
            looked: None,
        }
    }

    /// The socket reported an error, so the interface must be checked.
    pub(super) fn doubt(&mut self) {
        self.looked = None;
    }

    /// Reads the next frame, if there is one.
    ///
    /// # Errors
    /// The interface is gone.
    pub(super) fn read(&mut self, buffer: &mut [u8], clock: &Clock) -> io::Result<RingRead> {
        match self.ring.take() {
            SlotRead::Nothing => self.check_end(clock).map(|()| RingRead::Nothing),
            SlotRead::Frame(frame) => {
                let arrival = self.arrival(Some(frame.stamp), clock);
                Ok(RingRead::Frame(frame, arrival))
            }
            SlotRead::Cut => Ok(RingRead::NoRoom),
            SlotRead::Long => self.read_long(buffer, clock),
        }
    }

    fn read_long(&mut self, buffer: &mut [u8], clock: &Clock) -> io::Result<RingRead> {
        // The first read may report that the interface was down.
        for _ in 0..2 {
            match sys::read_packet(self.socket.as_raw_fd(), buffer)? {
                PacketRead::Nothing => break,
                PacketRead::Unreadable => return Ok(RingRead::Unreadable),
                PacketRead::Down => self.exists()?,
                PacketRead::Frame { bytes, stamp } => {
                    return Ok(RingRead::Long(bytes, self.arrival(stamp, clock)));
                }
            }
        }
        Ok(RingRead::NoRoom)
    }

    /// Regularly checks whether the interface still exists, which the ring doesn't report.
    fn check_end(&mut self, clock: &Clock) -> io::Result<()> {
        let now = clock.now();
        if self
            .looked
            .is_some_and(|looked| now.since(looked) < POLL_INTERVAL)
        {
            return Ok(());
        }
        self.looked = Some(now);
        match sys::socket_error(self.socket.as_fd()) {
            Ok(()) => Ok(()),
            Err(_) => self.exists(),
        }
    }

    /// An interface that is down may come up again; one that is gone is an error.
    fn exists(&self) -> io::Result<()> {
        Netlink::open()?.stats(self.index).map(drop)
    }

    fn arrival(&mut self, stamp: Option<Duration>, clock: &Clock) -> FrameArrival {
        // The clocks are read once per batch, and again for frames that arrived in the meantime.
        let (now, wall) = self
            .clocks
            .filter(|(_, wall)| stamp.is_some_and(|stamp| stamp <= *wall))
            .unwrap_or_else(|| {
                let wall = clock_gettime(ClockId::Realtime);
                (
                    clock.now(),
                    Duration::new(wall.tv_sec as u64, wall.tv_nsec as u32),
                )
            });
        self.clocks = Some((now, wall));
        // A frame without a timestamp, or with one in the future (after the clock was set), counts as just arrived.
        let since_1970 = stamp.unwrap_or(wall).min(wall);
        let waited = (wall - since_1970).as_nanos() as u64;
        FrameArrival {
            at: Nanos(now.0.saturating_sub(waited)),
            since_1970,
        }
    }

    /// The bytes of a frame in this batch.
    pub(super) fn bytes_mut(&mut self, frame: SlotFrame) -> &mut [u8] {
        self.ring.bytes_mut(frame)
    }

    /// Queues a frame of `packets` packets to be sent unmodified.
    pub(super) fn pass(&mut self, frame: SlotFrame, packets: u32, arrived_at: Nanos) {
        self.passing.push(PassingFrame {
            frame,
            packets,
            arrived_at,
        });
    }

    /// Sends the queued frames, and records the time that the bridge added.
    pub(super) fn send(
        &mut self,
        to: RawFd,
        clock: &Clock,
        added: &mut Histogram,
        written: &mut WriteCounts,
    ) {
        if self.passing.is_empty() {
            return;
        }
        let frames = self
            .passing
            .iter()
            .map(|passing| self.ring.bytes(passing.frame));
        let refused = sys::write_packets(to, frames);
        let now = clock.now();
        for (
            place,
            PassingFrame {
                packets,
                arrived_at,
                ..
            },
        ) in self.passing.drain(..).enumerate()
        {
            let took = Nanos(now.0.saturating_sub(arrived_at.0));
            written.note_added(packets, refused >> place & 1 == 1, took, added);
        }
    }

    /// Ends the batch: its slots return to the kernel.
    pub(super) fn release(&mut self) {
        debug_assert!(self.passing.is_empty(), "all frames were sent");
        self.ring.release();
        self.clocks = None;
    }
}
