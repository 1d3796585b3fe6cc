//! Packet files: classic pcap and pcapng in either byte order, and snoop, parsed one packet at a time from a buffer
//! that the caller fills. Called by the capture pipeline's file source. The one rule: no reference to the buffer is
//! kept; a step that needs more bytes returns how many.

mod classic;
mod ng;
mod snoop;

use crate::Malformed;

/// Maximum length of a packet. The kernel's "big TCP" creates frames of up to 512 KiB.
pub const PACKET_BYTES_MAX: u32 = 1 << 20;
/// Maximum length of a pcapng block; longer blocks (embedded keys, statistics) do not occur in practice.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// Maximum number of interfaces in one pcapng section.
pub const INTERFACES_MAX: usize = 4096;

/// The link-layer type of the packets (the tcpdump group's `LINKTYPE_` registry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// BSD loopback: a 4-byte address family.
    Null,
    /// IEEE 802.3.
    Ethernet,
    /// Bare IPv4 or IPv6.
    Raw,
    /// PPP, with or without HDLC's address and control bytes.
    Ppp,
    /// Linux "cooked" capture.
    LinuxSll,
    /// Linux "cooked" capture, version 2.
    LinuxSll2,
    /// An unsupported type.
    Other(u32),
}

impl LinkType {
    fn from_number(number: u32) -> LinkType {
        match number {
            0 | 108 => LinkType::Null,
            1 => LinkType::Ethernet,
            // Some systems write 12 or 14 for DLT_RAW.
            12 | 14 | 101 | 228 | 229 => LinkType::Raw,
            9 | 50 => LinkType::Ppp,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            other => LinkType::Other(other),
        }
    }

    /// The number in the registry.
    pub fn number(self) -> u32 {
        match self {
            LinkType::Null => 0,
            LinkType::Ethernet => 1,
            LinkType::Raw => 101,
            LinkType::Ppp => 9,
            LinkType::LinuxSll => 113,
            LinkType::LinuxSll2 => 276,
            LinkType::Other(other) => other,
        }
    }
}

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// The capture time in nanoseconds since 1970; zero if the file does not contain it.
    pub time_ns: u64,
    /// Length on the wire; `bytes` is shorter if the snap length truncated the packet.
    pub wire_len: u32,
    /// The interface on which the packet was captured.
    pub interface: u32,
    /// The link-layer type.
    pub link: LinkType,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// The item that [`PacketFile::next`] found at the start of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStep<'a> {
    /// A packet; afterwards, this many bytes have to be dropped from the buffer.
    Packet(usize, CapturedPacket<'a>),
    /// Something other than a packet; this many bytes have to be dropped from the buffer.
    Skip(usize),
    /// The buffer must contain at least this many bytes.
    Incomplete(usize),
}

/// The state of reading a packet file.
#[derive(Clone, Debug, Default)]
pub struct PacketFile {
    format: Format,
}

#[derive(Clone, Debug, Default)]
enum Format {
    #[default]
    Unknown,
    Classic(classic::Classic),
    Ng(ng::Ng),
    Snoop(snoop::Snoop),
}

impl PacketFile {
    /// Starts at the beginning of a file.
    pub fn new() -> PacketFile {
        PacketFile::default()
    }

    /// Whether the file has been recognized as a packet file.
    pub fn is_known(&self) -> bool {
        !matches!(self.format, Format::Unknown)
    }

    /// Parses the next item at the start of `buffer`.
    ///
    /// # Errors
    /// The file is not a packet file, or it is damaged at this position and nothing after it can be trusted.
    #[inline]
    pub fn next<'a>(&mut self, buffer: &'a [u8]) -> Result<PacketStep<'a>, Malformed> {
        match &mut self.format {
            Format::Classic(classic) => classic.next(buffer),
            Format::Ng(ng) => ng.next(buffer),
            Format::Snoop(snoop) => snoop.next(buffer),
            Format::Unknown => self.open(buffer),
        }
    }

    #[cold]
    fn open<'a>(&mut self, buffer: &'a [u8]) -> Result<PacketStep<'a>, Malformed> {
        let Some(magic) = buffer.first_chunk::<4>() else {
            return Ok(PacketStep::Incomplete(4));
        };
        if *magic == ng::SECTION_HEADER_BLOCK.to_be_bytes() {
            let mut ng = ng::Ng::default();
            let step = ng.next(buffer)?;
            self.format = Format::Ng(ng);
            return Ok(step);
        }
        if *magic == snoop::MAGIC[..4] {
            let Some(header) = buffer.first_chunk::<{ snoop::FILE_HEADER_BYTES }>() else {
                return Ok(PacketStep::Incomplete(snoop::FILE_HEADER_BYTES));
            };
            if header[..8] != snoop::MAGIC {
                return Err(Malformed::new(0, "not a pcap, pcapng or snoop file"));
            }
            self.format = Format::Snoop(snoop::Snoop::open(header)?);
            return Ok(PacketStep::Skip(snoop::FILE_HEADER_BYTES));
        }
        let Some(header) = buffer.first_chunk::<{ classic::FILE_HEADER_BYTES }>() else {
            return Ok(PacketStep::Incomplete(classic::FILE_HEADER_BYTES));
        };
        self.format = Format::Classic(classic::Classic::open(header)?);
        Ok(PacketStep::Skip(classic::FILE_HEADER_BYTES))
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let b = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian {
        u32::from_be_bytes(b)
    } else {
        u32::from_le_bytes(b)
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize, big_endian: bool) -> u16 {
    let b = [bytes[at], bytes[at + 1]];
    if big_endian {
        u16::from_be_bytes(b)
    } else {
        u16::from_le_bytes(b)
    }
}

#[cfg(test)]
mod tests;
