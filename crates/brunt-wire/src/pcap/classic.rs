//! The classic pcap file: a 24-byte header, then 16 bytes before each packet (draft-ietf-opsawg-pcap). Used by
//! [`super::PacketFile`] only. Some programs wrote longer packet headers, partly with the same magic number;
//! Wireshark's `wiretap/libpcap.c` lists them. The one rule: if the second packet shows that a file's headers are
//! longer, the file is read correctly or rejected with the variant's name, but never misread.

use super::{CapturedPacket, LinkType, PACKET_BYTES_MAX, PacketStep, u16_at, u32_at};
use crate::Malformed;

pub(super) const FILE_HEADER_BYTES: usize = 24;
const VERSION_MAJOR: u16 = 2;
const PACKET_HEADER_BYTES: usize = 16;
/// The upper half of the field contains flags, such as the length of a frame check sequence after each packet
/// (draft-ietf-opsawg-pcap, 4), which is not included in IP's own length.
const LINK_TYPE_MASK: u32 = 0xffff;

/// Extra bytes in each packet header of the modified format (0xa1b2cd34): interface, protocol, kind. Its first
/// revision also contained the CPU number.
const MODIFIED_EXTRA: usize = 8;
const MODIFIED_FIRST_EXTRA: usize = 12;
/// Unsupported variants with the usual magic number: number of extra header bytes, and the error message.
const REFUSED: [(usize, &str); 2] = [
    (
        4,
        "this is a Nokia pcap file: convert it with `editcap -F pcap`",
    ),
    (
        MODIFIED_EXTRA,
        "this is a pcap file of Red Hat 6.1's libpcap: convert it with `editcap -F pcap`",
    ),
];
/// Maximum plausible time between two packets, forward or backward: a year.
const SECONDS_APART_MAX: u32 = 366 * 86_400;

#[derive(Clone, Debug)]
pub(super) struct Classic {
    big_endian: bool,
    /// Nanoseconds per unit of the second time field.
    fraction_ns: u64,
    link: LinkType,
    /// Extra bytes between a packet's header and its data.
    extra: usize,
    /// Whether the header length still has to be verified by means of the second packet, and the seconds field of the
    /// first packet.
    unsettled: bool,
    first_seconds: u32,
    /// Bytes of the file consumed so far, for the positions in errors.
    at: usize,
}

impl Classic {
    pub(super) fn open(header: &[u8; FILE_HEADER_BYTES]) -> Result<Classic, Malformed> {
        let (big_endian, fraction_ns, extra) = match u32_at(header, 0, false) {
            0xa1b2_c3d4 => (false, 1000, 0),
            0xd4c3_b2a1 => (true, 1000, 0),
            0xa1b2_3c4d => (false, 1, 0),
            0x4d3c_b2a1 => (true, 1, 0),
            0xa1b2_cd34 => (false, 1000, MODIFIED_EXTRA),
            0x34cd_b2a1 => (true, 1000, MODIFIED_EXTRA),
            _ => {
                return Err(Malformed::new(0, "not a pcap, pcapng or snoop file"));
            }
        };
        if u16_at(header, 4, big_endian) != VERSION_MAJOR {
            return Err(Malformed::new(4, "pcap version is not 2"));
        }
        // The upper bits may contain the length of a frame check sequence.
        let link = LinkType::from_number(u32_at(header, 20, big_endian) & LINK_TYPE_MASK);
        let (unsettled, first_seconds) = (true, 0);
        Ok(Classic {
            big_endian,
            fraction_ns,
            link,
            extra,
            unsettled,
            first_seconds,
            at: FILE_HEADER_BYTES,
        })
    }

    #[inline]
    pub(super) fn next<'a>(&mut self, buffer: &'a [u8]) -> Result<PacketStep<'a>, Malformed> {
        let Some(header) = buffer.first_chunk::<PACKET_HEADER_BYTES>() else {
            return Ok(PacketStep::Incomplete(PACKET_HEADER_BYTES));
        };
        if self.unsettled {
            self.inspect(buffer)?;
        }
        let field = |at| u32_at(header, at, self.big_endian);
        let captured = field(8);
        if captured > PACKET_BYTES_MAX {
            return Err(Malformed::new(self.at + 8, "packet longer than 1 MiB"));
        }
        let header_len = PACKET_HEADER_BYTES + self.extra;
        let end = header_len + captured as usize;
        let Some(bytes) = buffer.get(header_len..end) else {
            return Ok(PacketStep::Incomplete(end));
        };
        self.at += end;
        let time_ns = u64::from(field(0)) * 1_000_000_000 + u64::from(field(4)) * self.fraction_ns;
        let wire_len = field(12).max(captured);
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

    /// Verifies the header length at the first packet or, if the buffer ended too early, at the second one.
    #[cold]
    fn inspect(&mut self, buffer: &[u8]) -> Result<(), Malformed> {
        if self.at > FILE_HEADER_BYTES {
            // If the headers have extra bytes, the first packet's data was assumed to begin that many bytes too
            // early, and the second header comes that many bytes later than expected.
            self.unsettled = false;
            return self.judge(buffer);
        }
        self.first_seconds = u32_at(buffer, 0, self.big_endian);
        let next = PACKET_HEADER_BYTES + self.extra + u32_at(buffer, 8, self.big_endian) as usize;
        let Some(rest) = buffer.get(next..) else {
            return Ok(());
        };
        self.unsettled = rest.len() < PACKET_HEADER_BYTES + MODIFIED_EXTRA;
        if self.extra == MODIFIED_EXTRA
            && self.is_header(Some(rest)) == Some(false)
            && self.is_header(rest.get(MODIFIED_FIRST_EXTRA - MODIFIED_EXTRA..)) == Some(true)
        {
            self.extra = MODIFIED_FIRST_EXTRA;
            return Ok(());
        }
        self.judge(rest)
    }

    /// Verifies the bytes where the second packet's header is expected.
    fn judge(&self, rest: &[u8]) -> Result<(), Malformed> {
        if self.extra > 0 || self.is_header(Some(rest)) != Some(false) {
            return Ok(());
        }
        match REFUSED
            .iter()
            .find(|(more, _)| self.is_header(rest.get(*more..)) == Some(true))
        {
            Some((_, name)) => Err(Malformed::new(self.at, name)),
            None => Ok(()),
        }
    }

    /// Whether this is a plausible packet header; `None` if there are too few bytes to decide.
    fn is_header(&self, bytes: Option<&[u8]>) -> Option<bool> {
        let header = bytes?.first_chunk::<PACKET_HEADER_BYTES>()?;
        let field = |at| u32_at(header, at, self.big_endian);
        Some(
            field(0).abs_diff(self.first_seconds) <= SECONDS_APART_MAX
                && u64::from(field(4)) * self.fraction_ns < 1_000_000_000
                && field(8) <= PACKET_BYTES_MAX
                && field(8) <= field(12),
        )
    }
}
