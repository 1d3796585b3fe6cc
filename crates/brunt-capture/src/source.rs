//! Sources of packets. A source fills batches, each one buffer with descriptors of the packets in it, so that the
//! pipeline touches each byte once while it is in the cache. The one rule: a damaged file ends the capture with the
//! place of and reason for the damage, after all packets before it have been delivered.

use std::io::{self, Read};
use std::path::Path;

use brunt_core::input::{InputFile, is_stopped};
use brunt_wire::Malformed;
use brunt_wire::pcap::{CapturedPacket, LinkType, PacketFile, PacketStep};

/// Bytes per read. Half of a core's L2 cache: reading from the page cache then copies into the L2 cache, and the
/// parsers never wait for memory.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;

/// Why a source stopped.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is not a capture.
    #[error(
        "{path} is not a readable capture: {reason}; supported formats are pcap, pcapng and snoop, \
         also compressed with gzip, zstd, xz, bzip2 or lz4"
    )]
    NoCapture {
        /// The file.
        path: String,
        /// What is wrong, and where.
        reason: Damage,
    },
    /// The capture is damaged; the packets before the damage were read.
    #[error("cannot read {path} beyond packet {packets}: {reason}")]
    Damaged {
        /// The file.
        path: String,
        /// Number of packets read before the damage.
        packets: u64,
        /// What is wrong, and where.
        reason: Damage,
    },
}

/// What is wrong with a capture file.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// The file ends before it can be recognised as a capture.
    #[error("it ends after {bytes} bytes, within the file header")]
    CutInHeader {
        /// The file's length.
        bytes: usize,
    },
    /// The content is not a capture.
    #[error(transparent)]
    Malformed(Malformed),
    /// The file cannot be decompressed completely: it is truncated or corrupted.
    #[error("its compressed data is truncated or damaged ({0})")]
    Packed(io::Error),
}

/// The location of a packet in a batch.
#[derive(Clone, Copy, Debug)]
pub struct PacketRef {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Offset of the packet's first byte in the batch's buffer.
    pub at: u32,
    /// Bytes captured.
    pub len: u32,
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// Index of the capture interface.
    pub interface: u32,
    /// Index of the parcel region that contains the packet; zero if there is only one.
    pub region: u16,
    /// Link type, which determines how the packet is parsed.
    pub link: LinkType,
}

/// Packets in one buffer.
#[derive(Debug, Default)]
pub struct PacketBatch {
    bytes: Vec<u8>,
    packets: Vec<PacketRef>,
}

impl PacketBatch {
    /// The packets, in capture order.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = CapturedPacket<'_>> {
        self.packets.iter().map(|p| CapturedPacket {
            time_ns: p.time_ns,
            wire_len: p.wire_len,
            interface: p.interface,
            link: p.link,
            bytes: &self.bytes[p.at as usize..][..p.len as usize],
        })
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// A capture file or standard input, plain or compressed; the format is detected from the first bytes.
pub struct FileSource {
    path: String,
    input: Box<dyn Read + Send>,
    format: PacketFile,
    /// Number of filled bytes in the batch's buffer, and number of bytes already parsed.
    filled: usize,
    used: usize,
    done: bool,
    cut_bytes: usize,
    /// Packets in all batches before this one.
    packets: u64,
}

impl FileSource {
    /// Opens a file; `-` means standard input.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(path: &Path) -> Result<FileSource, SourceError> {
        let name = path.display().to_string();
        let io = |source| SourceError::Io {
            path: name.clone(),
            source,
        };
        let input: Box<dyn Read + Send> = if name == "-" {
            Box::new(InputFile::stdin().map_err(io)?)
        } else {
            Box::new(InputFile::open(path).map_err(io)?)
        };
        FileSource::from_reader(name.clone(), input)
    }

    /// Reads from any reader.
    ///
    /// # Errors
    /// The first bytes cannot be read, or a decompressor cannot be created.
    pub fn from_reader(
        path: String,
        input: Box<dyn Read + Send>,
    ) -> Result<FileSource, SourceError> {
        let unpacked = brunt_unpack::unpacked(input);
        let input = unpacked.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => SourceError::NoCapture {
                path: path.clone(),
                reason: Damage::Packed(source),
            },
            _ => SourceError::Io {
                path: path.clone(),
                source,
            },
        })?;
        let format = PacketFile::new();
        Ok(FileSource {
            path,
            input,
            format,
            filled: 0,
            used: 0,
            done: false,
            cut_bytes: 0,
            packets: 0,
        })
    }

    /// Bytes after the last complete packet: the file ends in the middle of a packet.
    pub fn cut_bytes(&self) -> usize {
        self.cut_bytes
    }

    /// Fills `batch` with the next packets; returns `false` at the end. Pass the same batch each time: its buffer
    /// contains the beginning of the next packet.
    ///
    /// # Errors
    /// The file cannot be read or is damaged; the batch then holds the packets before the damage.
    pub fn fill(&mut self, batch: &mut PacketBatch) -> Result<bool, SourceError> {
        self.fill_chunk(&mut batch.bytes, &mut batch.packets)
    }

    /// Moves the beginning of the next packet from the chunk that was filled last to the one to be filled next.
    pub fn carry(&mut self, from: &[u8], to: &mut Vec<u8>) {
        let tail = &from[self.used..self.filled];
        if to.len() < tail.len() {
            to.resize(tail.len(), 0);
        }
        to[..tail.len()].copy_from_slice(tail);
        self.filled = tail.len();
        self.used = 0;
    }

    /// Like [`FileSource::fill`], but takes the parts of a batch separately; [`FileSource::carry`] switches to
    /// another chunk.
    ///
    /// # Errors
    /// The file cannot be read or is damaged; the list then holds the packets before the damage.
    pub fn fill_chunk(
        &mut self,
        bytes: &mut Vec<u8>,
        packets: &mut Vec<PacketRef>,
    ) -> Result<bool, SourceError> {
        packets.clear();
        bytes.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        let mut need = self.filled + 1;
        while packets.is_empty() && !self.done {
            let room = need.max(CHUNK_BYTES);
            if bytes.len() < room {
                bytes.resize(room, 0);
            }
            self.read_until(bytes, need)?;
            need = self.walk(bytes, packets)?;
            if self.done {
                self.cut_bytes = self.filled - self.used;
                // An empty file has its own error, because it can mean, for example, that the program at the other
                // end of a pipe failed before it wrote anything.
                if !self.format.is_known() {
                    let reason = match self.cut_bytes {
                        0 => Damage::Empty,
                        bytes => Damage::CutInHeader { bytes },
                    };
                    return Err(self.damage(reason));
                }
            }
        }
        self.packets += packets.len() as u64;
        Ok(!packets.is_empty())
    }

    /// The error that ends reading: the file is not a capture, or is damaged here.
    fn damage(&self, reason: Damage) -> SourceError {
        let path = self.path.clone();
        match self.packets {
            0 => SourceError::NoCapture { path, reason },
            packets => SourceError::Damaged {
                path,
                packets,
                reason,
            },
        }
    }

    /// Reads until `need` bytes are available or the input ends. It doesn't wait until the buffer is full: a pipe may
    /// be slow, which would delay the packets already read.
    fn read_until(&mut self, bytes: &mut [u8], need: usize) -> Result<(), SourceError> {
        while self.filled < need {
            match self.input.read(&mut bytes[self.filled..]) {
                Ok(0) => {
                    self.done = true;
                    break;
                }
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The user stopped waiting for more input: the packets read so far count as the whole capture.
                Err(error) if is_stopped(&error) && self.format.is_known() => {
                    self.done = true;
                    break;
                }
                Err(source) => {
                    self.done = true;
                    return Err(match source.kind() {
                        // Decompressors report damage as one of these kinds.
                        io::ErrorKind::InvalidData
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::Other
                            if !is_stopped(&source) =>
                        {
                            self.damage(Damage::Packed(source))
                        }
                        _ => SourceError::Io {
                            path: self.path.clone(),
                            source,
                        },
                    });
                }
            }
        }
        Ok(())
    }

    /// Lists the complete packets; returns how many bytes the next packet needs.
    fn walk(
        &mut self,
        bytes: &mut [u8],
        packets: &mut Vec<PacketRef>,
    ) -> Result<usize, SourceError> {
        loop {
            match self.format.next(&bytes[self.used..self.filled]) {
                Ok(PacketStep::Packet(used, packet)) => {
                    // The packet's position in the buffer can't be computed from its end, because in some formats,
                    // padding or a trailer follows the bytes.
                    let start = packet.bytes.as_ptr() as usize - bytes.as_ptr() as usize;
                    packets.push(PacketRef {
                        time_ns: packet.time_ns,
                        at: start as u32,
                        len: packet.bytes.len() as u32,
                        wire_len: packet.wire_len,
                        interface: packet.interface,
                        region: 0,
                        link: packet.link,
                    });
                    self.used += used;
                }
                Ok(PacketStep::Skip(used)) => self.used += used,
                Ok(PacketStep::Incomplete(more)) => {
                    if packets.is_empty() && self.used > 0 {
                        bytes.copy_within(self.used..self.filled, 0);
                        self.filled -= self.used;
                        self.used = 0;
                    }
                    return Ok(self.used + more);
                }
                Err(malformed) => {
                    self.done = true;
                    self.packets += packets.len() as u64;
                    return Err(self.damage(Damage::Malformed(malformed)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(bytes: &'static [u8]) -> Result<bool, SourceError> {
        let mut source = FileSource::from_reader("file".into(), Box::new(bytes)).expect("opens");
        source.fill(&mut PacketBatch::default())
    }

    /// Input that ends within the file header is not a capture, but a header without packets is one.
    #[test]
    fn input_that_ends_within_its_header_is_not_a_capture() {
        let header: &[u8; 24] =
            b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\0\0\x04\x00\x01\0\0\0";
        assert!(matches!(fill(header), Ok(false)));
        assert!(matches!(
            fill(b""),
            Err(SourceError::NoCapture {
                reason: Damage::Empty,
                ..
            })
        ));
        for end in 1..header.len() {
            let error = fill(&header[..end]).expect_err("cut");
            let SourceError::NoCapture {
                reason: Damage::CutInHeader { bytes },
                ..
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!(*bytes, end);
            assert!(
                error
                    .to_string()
                    .contains(&format!("ends after {end} bytes")),
                "{error}"
            );
        }
    }
}
