//! A packet ring (AF_PACKET, TPACKET_V3): the kernel writes packets into blocks and releases a block to us when it is
//! full or 10 ms old. Driven by the capture's reader thread. The one rule: packets that the kernel dropped for lack
//! of space are queried and counted.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use brunt_wire::pcap::LinkType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::sys::{self, RingBlock, RingMap, TakenBlock};
use super::xdp::FrameBatch;
use super::{CapturePace, LiveError, LiveOptions, filter};
use crate::source::PacketRef;

/// The kernel releases a block at this age, even if it is not full.
pub const BLOCK_AGE: Duration = Duration::from_millis(10);
/// Maximum bytes of a block: small enough to be processed in the cache.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Minimum bytes of a block: with headers, more than the 64 KiB packets into which offloads merge smaller ones.
/// Longer packets are truncated.
const BLOCK_BYTES_MIN: usize = 128 << 10;
/// Minimum blocks per ring. A block can be occupied for 10 ms by only a few packets, so 16 blocks last at least 160
/// ms. Packets of several rings wait for up to 40 ms to be put in order, which leaves 120 ms for the parsers.
const BLOCKS_MIN: usize = 16;
/// Room before each packet in which a VLAN tag can be restored.
const TAG_BYTES: usize = 4;
const ETH_P_ALL: u16 = 0x0003;
/// A filter that rejects everything.
const NOTHING: [libc::sock_filter; 1] = [libc::sock_filter {
    code: 0x06,
    jt: 0,
    jf: 0,
    k: 0,
}];

/// How a ring is divided into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingShape {
    /// Bytes of each block.
    pub block_bytes: usize,
    /// Number of blocks.
    pub block_count: usize,
}

impl RingShape {
    /// The shape of a ring of `ring_bytes`, rounded down to whole blocks, or of the smallest possible ring.
    pub fn of(ring_bytes: usize) -> RingShape {
        let wanted = (ring_bytes / BLOCKS_MIN).max(1);
        // The largest power of two that still gives enough blocks.
        let block_bytes = (1 << wanted.ilog2()).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        RingShape {
            block_bytes,
            block_count: (ring_bytes / block_bytes).max(BLOCKS_MIN),
        }
    }

    /// Total bytes of the ring.
    pub fn bytes(self) -> usize {
        self.block_bytes * self.block_count
    }

    /// The request to the kernel.
    fn request(self) -> libc::tpacket_req3 {
        libc::tpacket_req3 {
            tp_block_size: self.block_bytes as u32,
            tp_block_nr: self.block_count as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (self.bytes() / 2048) as u32,
            tp_retire_blk_tov: BLOCK_AGE.as_millis() as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        }
    }
}

/// The ring of a live interface.
#[derive(Debug)]
pub struct PacketRing {
    fd: OwnedFd,
    map: Arc<RingMap>,
    block_count: usize,
    shape_bytes: usize,
    next: usize,
    interface: u32,
    link: LinkType,
    pace: CapturePace,
    /// Counts since the ring was opened.
    pub counters: RingCounters,
}

/// Whether and how a ring shares its interface with other rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fanout {
    Alone,
    /// Starts a group. The kernel numbers groups from zero.
    Begin,
    Join(u16),
}

/// A ring's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Packets that passed the filter according to the kernel, including dropped ones.
    pub offered: u64,
    /// Packets dropped because the ring was full.
    pub dropped: u64,
    /// Packets that were read from the ring.
    pub seen: u64,
    /// Packets with a timestamp from the network card.
    pub hardware_times: u64,
    /// Packets whose VLAN tag was restored.
    pub tags_restored: u64,
}

/// The memory of live packets. It is returned to the kernel on drop.
#[derive(Debug)]
pub enum LiveBlock {
    /// A block of an `AF_PACKET` ring.
    Ring(RingBlock),
    /// Frames of `AF_XDP`.
    Frames(FrameBatch),
}

impl LiveBlock {
    /// The bytes of a packet.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        match self {
            LiveBlock::Ring(block) => &block.bytes()[at..][..len],
            LiveBlock::Frames(batch) => batch.bytes(at, len),
        }
    }
}

/// A block and its packets.
#[derive(Debug)]
pub struct ReadBlock {
    /// The memory.
    pub block: LiveBlock,
    /// Where the packets are in the memory; the caller assigns their regions.
    pub packets: Vec<PacketRef>,
}

impl PacketRing {
    /// Opens a ring on `name`, which has number `interface` in the capture.
    pub(super) fn open(
        name: &str,
        interface: u32,
        options: &LiveOptions,
        fanout: Fanout,
    ) -> Result<PacketRing, LiveError> {
        let fail = |what: &'static str| {
            move |source: io::Error| LiveError::Io {
                interface: name.to_string(),
                what,
                source,
            }
        };
        let fd = sys::socket().map_err(|error| LiveError::of_socket(name, error))?;
        let index =
            sys::interface_index(name).map_err(|_| LiveError::NoInterface(name.to_string()))?;
        let kind = sys::hardware_type(&fd, name).map_err(fail("determine the link type"))?;
        let link = link_type(name, kind)?;
        let set = |option: i32, value: i32| sys::set_option(&fd, libc::SOL_PACKET, option, &value);
        set(
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V3 as i32,
        )
        .map_err(fail("use TPACKET_V3"))?;
        set(libc::PACKET_RESERVE, TAG_BYTES as i32).map_err(fail("reserve space for VLAN tags"))?;
        if options.hardware_times {
            set(
                libc::PACKET_TIMESTAMP,
                libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32,
            )
            .map_err(fail("enable hardware timestamps"))?;
        }
        // On the loopback interface, every packet is both outgoing and incoming: capture it once.
        if kind == LOOPBACK {
            set(libc::PACKET_IGNORE_OUTGOING, 1).map_err(fail("exclude outgoing packets"))?;
        }
        let shape = RingShape::of(options.ring_bytes);
        sys::set_option(
            &fd,
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            &shape.request(),
        )
        .map_err(fail("allocate the ring (is there enough memory?)"))?;
        let map = RingMap::new(&fd, shape.block_bytes, shape.block_count)
            .map_err(fail("map the ring"))?;
        // Reject everything for now: until a ring joins its group, it would see packets that other rings see, too.
        sys::attach_filter(&fd, &NOTHING).map_err(fail("attach a filter"))?;
        if options.promiscuous {
            sys::make_promiscuous(&fd, index).map_err(fail("make the interface promiscuous"))?;
        }
        sys::bind(&fd, index, ETH_P_ALL).map_err(fail("bind to the interface"))?;
        let mut ring = PacketRing {
            fd,
            map: Arc::new(map),
            block_count: shape.block_count,
            shape_bytes: shape.bytes(),
            next: 0,
            interface,
            link,
            pace: options.pace,
            counters: RingCounters::default(),
        };
        if fanout != Fanout::Alone {
            ring.join(fanout)
                .map_err(fail("share the interface among rings"))?;
        }
        Ok(ring)
    }

    /// Shares the interface's packets among the rings of a group. The kernel's hash is the same for both directions
    /// of a connection; fragments are reassembled first.
    fn join(&mut self, fanout: Fanout) -> io::Result<()> {
        let mut flags = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_DEFRAG;
        let group = match fanout {
            Fanout::Join(group) => group,
            _ => {
                flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
                0
            }
        };
        let value = u32::from(group) | flags << 16;
        sys::set_option(&self.fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
    }

    /// The fan-out group of this ring.
    pub(super) fn group(&self) -> io::Result<u16> {
        sys::fanout_id(&self.fd)
    }

    /// Takes the next block, if the kernel has released it.
    pub fn read(&mut self) -> Option<ReadBlock> {
        let mut taken = self.map.take(self.next)?;
        self.next = (self.next + 1) % self.block_count;
        let packets = self.walk(&mut taken);
        self.counters.seen += packets.len() as u64;
        Some(ReadBlock {
            block: LiveBlock::Ring(taken.share()),
            packets,
        })
    }

    /// Counts the packets of the next block and gives the block back to the kernel. Returns the number of packets.
    pub(super) fn skip(&mut self) -> u64 {
        let Some(mut taken) = self.map.take(self.next) else {
            return 0;
        };
        self.next = (self.next + 1) % self.block_count;
        let count = u64::from(word(taken.bytes_mut(), 12));
        self.counters.seen += count;
        count
    }

    fn walk(&mut self, taken: &mut TakenBlock) -> Vec<PacketRef> {
        let bytes = taken.bytes_mut();
        // After version, private offset and status come the number of packets and the offset of the first.
        let (count, mut at) = (word(bytes, 12), word(bytes, 16) as usize);
        let mut packets = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let next = word(bytes, at);
            let (seconds, nanoseconds) = (word(bytes, at + 4), word(bytes, at + 8));
            let (mut len, mut wire_len) = (word(bytes, at + 12), word(bytes, at + 16));
            let status = word(bytes, at + 20);
            let mut frame = at + usize::from(half(bytes, at + 24));
            if status & libc::TP_STATUS_VLAN_VALID != 0
                && self.link == LinkType::Ethernet
                && len >= 12
            {
                let tag = word(bytes, at + 32) as u16;
                let protocol = match half(bytes, at + 36) {
                    protocol if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 => protocol,
                    _ => 0x8100,
                };
                frame = restore_tag(bytes, frame, protocol, tag);
                (len, wire_len) = (len + TAG_BYTES as u32, wire_len + TAG_BYTES as u32);
                self.counters.tags_restored += 1;
            }
            self.counters.hardware_times +=
                u64::from(status & libc::TP_STATUS_TS_RAW_HARDWARE != 0);
            packets.push(PacketRef {
                time_ns: (self.pace)
                    .time(u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)),
                at: frame as u32,
                len,
                wire_len,
                interface: self.interface,
                region: 0,
                link: self.link,
            });
            at += next as usize;
        }
        packets
    }

    /// Bytes of the blocks that hold packets, and of the whole ring.
    pub(super) fn occupancy(&self) -> (u64, u64) {
        let bytes = (self.shape_bytes / self.block_count) as u64;
        (
            self.map.blocks_used() as u64 * bytes,
            self.shape_bytes as u64,
        )
    }

    /// Queries the kernel for dropped packets.
    ///
    /// # Errors
    /// The socket's statistics can't be read.
    pub fn count_drops(&mut self) -> io::Result<()> {
        let (offered, dropped) = sys::statistics(&self.fd)?;
        self.counters.offered += offered;
        self.counters.dropped += dropped;
        Ok(())
    }

    /// Starts receiving packets.
    pub(super) fn start(&self, options: &LiveOptions) -> io::Result<()> {
        sys::attach_filter(
            &self.fd,
            &filter::program(&options.ports, options.snap_bytes),
        )
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Stops receiving; packets already in the ring can still be read.
    pub(super) fn stop(&self) -> io::Result<()> {
        sys::attach_filter(&self.fd, &NOTHING)
    }
}

/// Waits until one of the sockets has packets; `false` on timeout.
pub(super) fn wait<'a>(
    sockets: impl Iterator<Item = &'a OwnedFd>,
    time: Duration,
) -> io::Result<bool> {
    let mut fds: Vec<PollFd<'_>> = sockets.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let time = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    match poll(&mut fds, Some(&time)) {
        Ok(count) => {
            if fds
                .iter()
                .any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP))
            {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the interface went down or disappeared",
                ));
            }
            Ok(count > 0)
        }
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(
        *bytes[at..]
            .first_chunk()
            .expect("the kernel's offsets lie within the block"),
    )
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(
        *bytes[at..]
            .first_chunk()
            .expect("the kernel's offsets lie within the block"),
    )
}

/// Restores a VLAN tag that the card or the kernel stripped: moves the MAC addresses into the room before the frame.
/// Returns the frame's new start.
fn restore_tag(bytes: &mut [u8], frame: usize, protocol: u16, tag: u16) -> usize {
    let start = frame - TAG_BYTES;
    bytes.copy_within(frame..frame + 12, start);
    bytes[start + 12..start + 14].copy_from_slice(&protocol.to_be_bytes());
    bytes[start + 14..start + 16].copy_from_slice(&tag.to_be_bytes());
    start
}

const LOOPBACK: u16 = 772;

/// The link type of an interface.
pub(super) fn link_type(interface: &str, kind: u16) -> Result<LinkType, LiveError> {
    match kind {
        // Ethernet, and loopback, which has Ethernet headers with zero addresses.
        1 | LOOPBACK => Ok(LinkType::Ethernet),
        // tun and other tunnels without a link header.
        65534 | 768 | 776 | 778 => Ok(LinkType::Raw),
        kind => Err(LiveError::Link {
            interface: interface.to_string(),
            kind,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Even the smallest ring has room for packets that wait for those of other rings.
    #[test]
    fn every_ring_outlasts_the_wait_for_others() {
        for mib in [0, 1, 2, 3, 4, 8, 15, 16, 17, 128, 1 << 12] {
            let shape = RingShape::of(mib << 20);
            let lasts = BLOCK_AGE * shape.block_count as u32;
            assert!(
                lasts >= 3 * crate::live::capture::LATE,
                "{mib} MiB: {shape:?}"
            );
            assert!(
                shape.block_bytes.is_power_of_two() && shape.block_bytes > 65536 + 4096,
                "{shape:?}"
            );
            assert!(
                shape.bytes() <= (mib << 20).max(2 << 20),
                "{mib} MiB: {shape:?}"
            );
        }
        let large = RingShape::of(128 << 20);
        assert_eq!((large.block_bytes, large.block_count), (1 << 20, 128));
    }

    /// The tag follows the addresses, and the frame begins four bytes earlier.
    #[test]
    fn a_restored_tag_follows_the_addresses() {
        let mut bytes = vec![0xee; 4];
        bytes.extend(1..=12u8);
        bytes.extend([0x08, 0x00, 0x45]);
        assert_eq!(restore_tag(&mut bytes, 4, 0x8100, 0x2064), 0);
        assert_eq!(bytes[..12], (1..=12u8).collect::<Vec<_>>());
        assert_eq!(bytes[12..], [0x81, 0x00, 0x20, 0x64, 0x08, 0x00, 0x45]);
    }

    /// The offsets used for reading match the kernel's layout.
    #[test]
    fn offsets_match_the_layout_of_the_kernel() {
        assert_eq!(std::mem::offset_of!(libc::tpacket3_hdr, tp_status), 20);
        assert_eq!(std::mem::offset_of!(libc::tpacket3_hdr, tp_mac), 24);
        assert_eq!(std::mem::offset_of!(libc::tpacket3_hdr, hv1), 28);
        assert_eq!(
            std::mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt) + 8,
            16
        );
    }
}
