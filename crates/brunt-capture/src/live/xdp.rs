//! A queue of an interface through `AF_XDP`: a program in the driver (or, if the driver can't run it, right after the
//! driver) redirects every packet into frames shared with the kernel, bypassing the kernel's network stack. Driven by
//! the capture's reader thread, like [`super::ring`]. The one rule: the host no longer receives these packets, so
//! this is for mirror ports. The program is detached when its descriptor is closed, however the process ends.
//!
//! Unlike with `AF_PACKET`, there are no kernel timestamps (packets get the time at which the reader takes them),
//! there is no filter, and VLAN tags that the card stripped are missing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use brunt_wire::pcap::LinkType;

use super::ring::{LiveBlock, ReadBlock, RingCounters, link_type};
use super::xsk::{self, CONTINUED, FRAME_BYTES, Frames, Socket};
use super::{LiveError, LiveOptions, sys};
use crate::source::PacketRef;

/// Maximum packets taken per read.
const BATCH: usize = 256;
/// Limit on a packet that spans several frames: more than any link carries.
const JOINED_BYTES_MAX: usize = 64 << 10;
// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// An interface whose packets are redirected to this process.
#[derive(Debug)]
pub struct Tap {
    program: OwnedFd,
    interface: i32,
    /// The attached program; closing this ends the redirection.
    link: Option<OwnedFd>,
    /// Keeps the interface in promiscuous mode.
    _watch: OwnedFd,
}

/// A queue of the interface.
#[derive(Debug)]
pub struct XdpQueue {
    socket: Socket,
    frames: Arc<Frames>,
    /// The channel through which batches return frames that are no longer in use.
    back: Sender<Vec<u32>>,
    returned: Receiver<Vec<u32>>,
    interface: u32,
    link: LinkType,
    snap_bytes: u32,
    /// The multi-frame packet being assembled.
    joining: Vec<u8>,
    /// Counts since the queue was opened.
    pub counters: RingCounters,
}

/// A batch of packets in frames. On drop, the frames are given back to the kernel.
#[derive(Debug)]
pub struct FrameBatch {
    frames: Arc<Frames>,
    taken: Vec<u32>,
    /// Assembled copies of multi-frame packets: their offsets follow those of all frames.
    joined: Vec<u8>,
    back: Sender<Vec<u32>>,
}

impl FrameBatch {
    /// The bytes of a packet.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        match at.checked_sub(self.frames.count() * FRAME_BYTES) {
            Some(at) => &self.joined[at..][..len],
            None => self.frames.bytes(at, len),
        }
    }
}

impl Drop for FrameBatch {
    fn drop(&mut self) {
        self.taken
            .iter()
            .for_each(|index| self.frames.give_back(*index));
        // Fails only after the capture has ended, when the frames are no longer needed.
        let _ = self.back.send(std::mem::take(&mut self.taken));
    }
}

/// Opens all queues of interface `name`, which has number `interface` in the capture. Packets arrive only after
/// [`Tap::start`].
pub(super) fn open(
    name: &str,
    interface: u32,
    options: &LiveOptions,
) -> Result<(Tap, Vec<XdpQueue>), LiveError> {
    let fail = |what: &'static str| {
        move |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LiveError::NoXdp {
                interface: name.to_string(),
                what,
            },
            _ => LiveError::Io {
                interface: name.to_string(),
                what,
                source,
            },
        }
    };
    let watch = sys::socket().map_err(|error| LiveError::of_socket(name, error))?;
    let index = sys::interface_index(name).map_err(|_| LiveError::NoInterface(name.to_string()))?;
    let kind = sys::hardware_type(&watch, name).map_err(fail("determine the link type"))?;
    let link = link_type(name, kind)?;
    if options.promiscuous {
        sys::make_promiscuous(&watch, index).map_err(fail("make the interface promiscuous"))?;
    }
    let count = xsk::queue_count(&watch, name);
    let map = xsk::socket_map(count).map_err(fail("create a map of AF_XDP sockets"))?;
    let each = options.ring_bytes / count as usize / FRAME_BYTES;
    let frame_count = 1 << each.max(64).ilog2();
    let mut queues = Vec::new();
    for queue in 0..count {
        let frames = Frames::new(frame_count).map_err(fail("allocate frames"))?;
        let mut socket = Socket::new(&frames).map_err(fail("open an AF_XDP socket"))?;
        socket.bind(index, queue, true).map_err(fail(
            "receive a queue's packets through AF_XDP (needs Linux 6.6 or newer and exclusive use of the queue)",
        ))?;
        socket.fill(0..frame_count as u32);
        xsk::set_socket(&map, queue, socket.fd()).map_err(fail("add a socket to the map"))?;
        let (back, returned) = channel();
        queues.push(XdpQueue {
            socket,
            frames: Arc::new(frames),
            back,
            returned,
            interface,
            link,
            snap_bytes: options.snap_bytes,
            joining: Vec::new(),
            counters: RingCounters::default(),
        });
    }
    // From here on, the program keeps the map alive.
    let program = xsk::load_program(&map, true).map_err(fail("load an XDP program"))?;
    Ok((
        Tap {
            program,
            interface: index,
            link: None,
            _watch: watch,
        },
        queues,
    ))
}

impl Tap {
    /// Redirects the interface's packets from now on: in the driver if possible, otherwise right after it.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let attach = |flags| xsk::attach(&self.program, self.interface, flags);
        let link = attach(XDP_FLAGS_DRV_MODE).or_else(|error| match error.raw_os_error() {
            // Another program is attached, or a capability is missing: don't work around that with the other mode.
            Some(libc::EBUSY | libc::EPERM | libc::EEXIST) => Err(error),
            _ => attach(XDP_FLAGS_SKB_MODE),
        });
        self.link = Some(link?);
        Ok(())
    }

    /// Lets the host receive the packets again; packets already in the rings can still be read.
    pub(super) fn stop(&mut self) {
        self.link = None;
    }
}

impl XdpQueue {
    /// Takes the available packets.
    pub(super) fn read(&mut self) -> Option<ReadBlock> {
        let XdpQueue {
            socket,
            frames,
            returned,
            ..
        } = self;
        returned
            .try_iter()
            .for_each(|indexes| socket.fill(indexes.into_iter()));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (mut packets, mut taken, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        while packets.len() < BATCH
            && let Some((at, len, options)) = socket.receive(frames)
        {
            taken.push((at / FRAME_BYTES) as u32);
            let is_continued = options & CONTINUED != 0;
            let (mut place, mut wire_len) = (at, len);
            if is_continued || !self.joining.is_empty() {
                // The only copy: parsers need each packet in one piece.
                if self.joining.len() < JOINED_BYTES_MAX {
                    self.joining
                        .extend_from_slice(frames.bytes(at, len as usize));
                }
                if is_continued {
                    continue;
                }
                (place, wire_len) = (
                    frames.count() * FRAME_BYTES + joined.len(),
                    self.joining.len() as u32,
                );
                joined.append(&mut self.joining);
            }
            packets.push(PacketRef {
                time_ns: now.as_nanos() as u64,
                at: place as u32,
                len: wire_len.min(self.snap_bytes),
                wire_len,
                interface: self.interface,
                region: 0,
                link: self.link,
            });
        }
        if taken.is_empty() {
            return None;
        }
        self.counters.seen += packets.len() as u64;
        let batch = FrameBatch {
            frames: frames.clone(),
            taken,
            joined,
            back: self.back.clone(),
        };
        Some(ReadBlock {
            block: LiveBlock::Frames(batch),
            packets,
        })
    }

    /// Counts the available packets, and gives their frames back to the kernel. Returns the number of frames.
    pub(super) fn skip(&mut self) -> u64 {
        let XdpQueue {
            socket,
            frames,
            counters,
            ..
        } = self;
        let (mut taken, mut count) = ([0; BATCH], 0);
        while count < BATCH
            && let Some((at, _, options)) = socket.receive(frames)
        {
            taken[count] = (at / FRAME_BYTES) as u32;
            frames.give_back(taken[count]);
            counters.seen += u64::from(options & CONTINUED == 0);
            count += 1;
        }
        socket.fill(taken[..count].iter().copied());
        count as u64
    }

    /// Queries the kernel for packets dropped because no frame was free.
    pub(super) fn count_drops(&mut self) -> io::Result<()> {
        self.counters.dropped = self.socket.dropped()?;
        self.counters.offered = self.counters.seen + self.counters.dropped;
        Ok(())
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.socket.fd()
    }

    /// Total bytes of the queue's frames.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frames.count() * FRAME_BYTES
    }
}
