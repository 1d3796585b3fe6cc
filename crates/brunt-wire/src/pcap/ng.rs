//! pcapng: blocks with a type, and a length at both ends (draft-ietf-opsawg-pcapng). Section
//! headers, interface descriptions, and enhanced, simple and obsolete packet blocks are parsed;
//! others are skipped. Used by [`super::PacketFile`] only.

use super::{
    BLOCK_BYTES_MAX, CapturedPacket, INTERFACES_MAX, LinkType, PACKET_BYTES_MAX, PacketStep,
    u16_at, u32_at,
};
use crate::Malformed;

pub(super) const SECTION_HEADER_BLOCK: u32 = 0x0a0d_0d0a;
const VERSION_MAJOR: u16 = 1;
const INTERFACE_DESCRIPTION_BLOCK: u32 = 1;
const PACKET_BLOCK: u32 = 2;
const SIMPLE_PACKET_BLOCK: u32 = 3;
const ENHANCED_PACKET_BLOCK: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snap_len: u32,
    /// The unit of time is `10^-resolution` s or, if the top bit is set, `2^-(resolution & 0x7f)` s.
    resolution: u8,
    offset_s: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ng {
    big_endian: bool,
    interfaces: Vec<Interface>,
    at: usize,
}

impl Ng {
    #[inline]
    pub(super) fn next<'a>(&mut self, buffer: &'a [u8]) -> Result<PacketStep<'a>, Malformed> {
        if buffer.len() < 12 {
            return Ok(PacketStep::Incomplete(12));
        }
        let mut kind = u32_at(buffer, 0, self.big_endian);
        // The type number of a section header is the same in both byte orders; the magic number in it determines the
        // order.
        if u32_at(buffer, 0, true) == SECTION_HEADER_BLOCK {
            kind = SECTION_HEADER_BLOCK;
            self.big_endian = match u32_at(buffer, 8, false) {
                0x1a2b_3c4d => false,
                0x4d3c_2b1a => true,
                _ => {
                    return Err(Malformed::new(
                        self.at + 8,
                        "section header without byte-order magic",
                    ));
                }
            };
        }
        let length = u32_at(buffer, 4, self.big_endian);
        if length < 12 || !length.is_multiple_of(4) || length > BLOCK_BYTES_MAX {
            return Err(Malformed::new(
                self.at + 4,
                "block length is not a multiple of 4 from 12 bytes to 16 MiB",
            ));
        }
        let length = length as usize;
        let Some(block) = buffer.get(..length) else {
            return Ok(PacketStep::Incomplete(length));
        };
        let start = self.at;
        self.at += length;
        let body = &block[8..length - 4];
        let packet = match kind {
            ENHANCED_PACKET_BLOCK => self.packet(body, false, start)?,
            PACKET_BLOCK => self.packet(body, true, start)?,
            SIMPLE_PACKET_BLOCK => self.simple_packet(body, start)?,
            SECTION_HEADER_BLOCK => {
                // In another version, blocks may have other meanings.
                if body.len() < 16 || u16_at(body, 4, self.big_endian) != VERSION_MAJOR {
                    return Err(Malformed::new(start + 12, "pcapng version is not 1"));
                }
                self.interfaces.clear();
                None
            }
            INTERFACE_DESCRIPTION_BLOCK => {
                self.interface(body, start)?;
                None
            }
            _ => None,
        };
        Ok(match packet {
            Some(packet) => PacketStep::Packet(length, packet),
            None => PacketStep::Skip(length),
        })
    }

    fn interface(&mut self, body: &[u8], start: usize) -> Result<(), Malformed> {
        if body.len() < 8 {
            return Err(Malformed::new(start, "interface description truncated"));
        }
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(Malformed::new(
                start,
                "more than 4096 interfaces in a section",
            ));
        }
        let mut interface = Interface {
            link: LinkType::from_number(u32::from(u16_at(body, 0, self.big_endian))),
            snap_len: u32_at(body, 4, self.big_endian),
            resolution: 6,
            offset_s: 0,
        };
        let mut options = &body[8..];
        while options.len() >= 4 {
            let (code, len) = (
                u16_at(options, 0, self.big_endian),
                u16_at(options, 2, self.big_endian) as usize,
            );
            let Some(value) = options.get(4..4 + len) else {
                break;
            };
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_TSRESOL, [resolution]) => interface.resolution = *resolution,
                (OPTION_TSOFFSET, value) if len == 8 => {
                    let high = u32_at(value, 0, self.big_endian);
                    let low = u32_at(value, 4, self.big_endian);
                    let (high, low) = if self.big_endian {
                        (high, low)
                    } else {
                        (low, high)
                    };
                    interface.offset_s = ((u64::from(high) << 32) | u64::from(low)) as i64;
                }
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    #[inline]
    fn packet<'a>(
        &self,
        body: &'a [u8],
        obsolete: bool,
        start: usize,
    ) -> Result<Option<CapturedPacket<'a>>, Malformed> {
        if body.len() < 20 {
            return Err(Malformed::new(start, "packet block truncated"));
        }
        let field = |at| u32_at(body, at, self.big_endian);
        // The obsolete block has a 16-bit interface and a 16-bit drop count where this one has a 32-bit interface.
        let index = if obsolete {
            u32::from(u16_at(body, 0, self.big_endian))
        } else {
            field(0)
        };
        let Some(interface) = self.interfaces.get(index as usize) else {
            return Err(Malformed::new(
                start + 8,
                "packet of an interface without description",
            ));
        };
        let captured = field(12);
        if captured > PACKET_BYTES_MAX || captured as usize > body.len() - 20 {
            return Err(Malformed::new(
                start + 20,
                "packet longer than its block or than 1 MiB",
            ));
        }
        let units = (u64::from(field(4)) << 32) | u64::from(field(8));
        Ok(Some(CapturedPacket {
            time_ns: interface.time_ns(units),
            wire_len: field(16).max(captured),
            interface: index,
            link: interface.link,
            bytes: &body[20..20 + captured as usize],
        }))
    }

    fn simple_packet<'a>(
        &self,
        body: &'a [u8],
        start: usize,
    ) -> Result<Option<CapturedPacket<'a>>, Malformed> {
        let (Some(interface), true) = (self.interfaces.first(), body.len() >= 4) else {
            return Err(Malformed::new(
                start,
                "simple packet without an interface or a length",
            ));
        };
        let wire_len = u32_at(body, 0, self.big_endian);
        let snap_len = if interface.snap_len == 0 {
            u32::MAX
        } else {
            interface.snap_len
        };
        let captured = wire_len.min(snap_len).min(PACKET_BYTES_MAX);
        let Some(bytes) = body[4..].get(..captured as usize) else {
            return Err(Malformed::new(
                start + 8,
                "simple packet longer than its block",
            ));
        };
        Ok(Some(CapturedPacket {
            time_ns: 0,
            wire_len,
            interface: 0,
            link: interface.link,
            bytes,
        }))
    }
}

impl Interface {
    /// Times before 1970 or after 2262 are clamped to that range, so that sums of times don't overflow.
    #[inline]
    fn time_ns(&self, units: u64) -> u64 {
        let ns = match self.resolution {
            9 => units,
            6 => units.saturating_mul(1000),
            resolution => Interface::scaled_ns(resolution, units),
        };
        let offset_ns = self.offset_s.saturating_mul(1_000_000_000);
        ns.saturating_add_signed(offset_ns).min(i64::MAX as u64)
    }

    #[cold]
    fn scaled_ns(resolution: u8, units: u64) -> u64 {
        let ns = u128::from(units) * 1_000_000_000;
        let ns = match resolution {
            r if r & 0x80 != 0 => ns >> (r & 0x7f).min(127),
            r => ns / 10u128.pow(u32::from(r.min(30))),
        };
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}
