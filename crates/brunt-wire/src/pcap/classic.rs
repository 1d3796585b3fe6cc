//! The classic file: a 24-byte header, then 16 bytes before each packet
//! (draft-ietf-opsawg-pcap). Used by [`super::PacketFile`] only.

use super::{CapturedPacket, LinkType, PACKET_BYTES_MAX, PacketStep, u16_at, u32_at};
use crate::Malformed;

pub(super) const FILE_HEADER_BYTES: usize = 24;
const VERSION_MAJOR: u16 = 2;
const PACKET_HEADER_BYTES: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Classic {
    big_endian: bool,
    /// Nanoseconds in one unit of the second time field.
    fraction_ns: u64,
    link: LinkType,
    /// Bytes of file already walked over, so that a complaint has its place.
    at: usize,
}

impl Classic {
    pub(super) fn open(header: &[u8; FILE_HEADER_BYTES]) -> Result<Classic, Malformed> {
        let (big_endian, fraction_ns) = match u32_at(header, 0, false) {
            0xa1b2_c3d4 => (false, 1000),
            0xd4c3_b2a1 => (true, 1000),
            0xa1b2_3c4d => (false, 1),
            0x4d3c_b2a1 => (true, 1),
            _ => return Err(Malformed::new(0, "neither a pcap nor a pcapng file")),
        };
        if u16_at(header, 4, big_endian) != VERSION_MAJOR {
            return Err(Malformed::new(4, "a pcap file is not of version 2"));
        }
        // The upper bits may hold the length of a frame check sequence.
        let link = LinkType::from_number(u32_at(header, 20, big_endian) & 0x0fff_ffff);
        Ok(Classic { big_endian, fraction_ns, link, at: FILE_HEADER_BYTES })
    }

    #[inline]
    pub(super) fn next<'a>(&mut self, buffer: &'a [u8]) -> Result<PacketStep<'a>, Malformed> {
        let Some(header) = buffer.first_chunk::<PACKET_HEADER_BYTES>() else {
            return Ok(PacketStep::Incomplete(PACKET_HEADER_BYTES));
        };
        let field = |at| u32_at(header, at, self.big_endian);
        let captured = field(8);
        if captured > PACKET_BYTES_MAX {
            return Err(Malformed::new(self.at + 8, "a packet claims more than 1 MiB"));
        }
        let end = PACKET_HEADER_BYTES + captured as usize;
        let Some(bytes) = buffer.get(PACKET_HEADER_BYTES..end) else {
            return Ok(PacketStep::Incomplete(end));
        };
        self.at += end;
        let time_ns = u64::from(field(0)) * 1_000_000_000 + u64::from(field(4)) * self.fraction_ns;
        let wire_len = field(12).max(captured);
        Ok(PacketStep::Packet(
            end,
            CapturedPacket { time_ns, wire_len, interface: 0, link: self.link, bytes },
        ))
    }
}
