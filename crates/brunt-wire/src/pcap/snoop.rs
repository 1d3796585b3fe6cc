//! Solaris' `snoop` files (RFC 1761): a 16-byte header, then 24 bytes before each packet, all in
//! network byte order. Used by [`super::PacketFile`] only.

use super::{CapturedPacket, LinkType, PACKET_BYTES_MAX, PacketStep, u32_at};
use crate::Malformed;

pub(super) const MAGIC: [u8; 8] = *b"snoop\0\0\0";
pub(super) const FILE_HEADER_BYTES: usize = 16;
const PACKET_HEADER_BYTES: usize = 24;
/// Maximum padding of a record; padding only aligns the next record.
const PAD_BYTES_MAX: u32 = 4096;

#[derive(Clone, Debug)]
pub(super) struct Snoop {
    link: LinkType,
    at: usize,
}

impl Snoop {
    pub(super) fn open(header: &[u8; FILE_HEADER_BYTES]) -> Result<Snoop, Malformed> {
        if u32_at(header, 8, true) != 2 {
            return Err(Malformed::new(8, "snoop version is not 2"));
        }
        let link = match u32_at(header, 12, true) {
            // Link types for IEEE 802.3 and for Ethernet.
            0 | 4 => LinkType::Ethernet,
            _ => {
                return Err(Malformed::new(
                    12,
                    "snoop file with a link type other than Ethernet",
                ));
            }
        };
        Ok(Snoop {
            link,
            at: FILE_HEADER_BYTES,
        })
    }

    pub(super) fn next<'a>(&mut self, buffer: &'a [u8]) -> Result<PacketStep<'a>, Malformed> {
        let Some(header) = buffer.first_chunk::<PACKET_HEADER_BYTES>() else {
            return Ok(PacketStep::Incomplete(PACKET_HEADER_BYTES));
        };
        let field = |at| u32_at(header, at, true);
        let (captured, record) = (field(4), field(8));
        if captured > PACKET_BYTES_MAX {
            return Err(Malformed::new(self.at + 4, "packet longer than 1 MiB"));
        }
        let least = PACKET_HEADER_BYTES as u32 + captured;
        if !(least..=least + PAD_BYTES_MAX).contains(&record) {
            return Err(Malformed::new(
                self.at + 8,
                "record shorter, or far longer, than its packet",
            ));
        }
        let end = record as usize;
        if buffer.len() < end {
            return Ok(PacketStep::Incomplete(end));
        }
        let bytes = &buffer[PACKET_HEADER_BYTES..least as usize];
        self.at += end;
        let time_ns = u64::from(field(16)) * 1_000_000_000 + u64::from(field(20)) * 1000;
        let wire_len = field(0).max(captured);
        Ok(PacketStep::Packet(
            end,
            CapturedPacket {
                time_ns,
                wire_len,
                interface: 0,
                link: self.link,
                bytes,
            },
        ))
    }
}
