//! An interface's frames on their way through a lane of a bridge: taken out of the ring of slots into which the kernel puts
//! them, and sent from there, many by one call, where nothing is to be done with them.
//!
//! Driven by [`super::driver`]. The rule: frames leave in the order in which they came, and a slot goes back to the kernel
//! when its frame was sent or copied.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use brunt_core::{Clock, Histogram, Nanos};
use rustix::time::{ClockId, clock_gettime};

use super::merge::Written;
use crate::netlink::Netlink;
use crate::sys::{self, PacketRead, SlotFrame, SlotRead, SlotRing};

/// An interface from which nothing comes is asked so often whether it is still there.
const LOOK: Duration = Duration::from_millis(100);

/// When a frame came to this machine, by the kernel's time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameArrival {
    pub(super) at: Nanos,
    /// The same as the wall clock has it.
    pub(super) since_1970: Duration,
}

/// What an interface gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingRead {
    Nothing,
    /// A frame in the ring.
    Frame(SlotFrame, FrameArrival),
    /// One too long for the ring, of so many bytes, in the buffer.
    Long(usize, FrameArrival),
    /// There was one, and the kernel had no room for it, or could not hand it over.
    NoRoom,
    Unreadable,
}

/// The ring, and what of it is about to be sent.
#[derive(Debug)]
pub(super) struct RingEnd {
    socket: Arc<OwnedFd>,
    index: u32,
    ring: SlotRing,
    passing: Vec<PassingFrame>,
    /// This machine's clock and the wall clock, as they were when the batch began.
    clocks: Option<(Nanos, Duration)>,
    /// When it was asked last whether the interface is still there; `None`: it may not be.
    looked: Option<Nanos>,
}

#[derive(Debug)]
struct PassingFrame {
    frame: SlotFrame,
    packets: u32,
    came: Nanos,
}

impl RingEnd {
    /// The end of this socket, which is bound to the interface of this index.
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

    /// Something was said to be wrong with the socket.
    pub(super) fn doubt(&mut self) {
        self.looked = None;
    }

    /// Reads the next frame, if there is one.
    ///
    /// # Errors
    /// The interface is gone.
    pub(super) fn read(&mut self, buffer: &mut [u8], clock: &Clock) -> io::Result<RingRead> {
        match self.ring.take() {
            SlotRead::Nothing => self.look(clock).map(|()| RingRead::Nothing),
            SlotRead::Frame(frame) => {
                let arrival = self.arrival(Some(frame.stamp), clock);
                Ok(RingRead::Frame(frame, arrival))
            }
            SlotRead::Cut => Ok(RingRead::NoRoom),
            SlotRead::Long => self.read_long(buffer, clock),
        }
    }

    fn read_long(&mut self, buffer: &mut [u8], clock: &Clock) -> io::Result<RingRead> {
        // The first answer may be that the interface was down.
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

    /// Looks from time to time whether the interface is still there: the ring does not say.
    fn look(&mut self, clock: &Clock) -> io::Result<()> {
        let now = clock.now();
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK) {
            return Ok(());
        }
        self.looked = Some(now);
        match sys::socket_error(self.socket.as_fd()) {
            Ok(()) => Ok(()),
            Err(_) => self.exists(),
        }
    }

    /// An interface that is down may come up again, one that is gone does not.
    fn exists(&self) -> io::Result<()> {
        Netlink::open()?.stats(self.index).map(drop)
    }

    fn arrival(&mut self, stamp: Option<Duration>, clock: &Clock) -> FrameArrival {
        // One look at the clocks does for a batch, but for frames that came meanwhile.
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
        // What the kernel did not stamp, or in the future (the clock was set), came now.
        let since_1970 = stamp.unwrap_or(wall).min(wall);
        let waited = (wall - since_1970).as_nanos() as u64;
        FrameArrival {
            at: Nanos(now.0.saturating_sub(waited)),
            since_1970,
        }
    }

    /// The bytes of a frame of this batch.
    pub(super) fn bytes_mut(&mut self, frame: SlotFrame) -> &mut [u8] {
        self.ring.bytes_mut(frame)
    }

    /// A frame, which stands for so many packets, is sent as it is.
    pub(super) fn pass(&mut self, frame: SlotFrame, packets: u32, came: Nanos) {
        self.passing.push(PassingFrame {
            frame,
            packets,
            came,
        });
    }

    /// Sends what is to be sent as it is, and notes what that added.
    pub(super) fn send(
        &mut self,
        to: RawFd,
        clock: &Clock,
        added: &mut Histogram,
        written: &mut Written,
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
        for (place, PassingFrame { packets, came, .. }) in self.passing.drain(..).enumerate() {
            let took = Nanos(now.0.saturating_sub(came.0));
            written.note_added(packets, refused >> place & 1 == 1, took, added);
        }
    }

    /// The batch is over: its slots go back to the kernel.
    pub(super) fn release(&mut self) {
        debug_assert!(self.passing.is_empty(), "what is to be sent was sent");
        self.ring.release();
        self.clocks = None;
    }
}
