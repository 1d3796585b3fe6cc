//! The packets themselves as a file that every packet tool reads: classic pcap with nanoseconds.
//! Called by `brunt capture --pcap` with each batch. The one rule: a file has one kind of link; a
//! packet of another kind ends it with an error instead of being written wrong.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use brunt_wire::pcap::{CapturedPacket, LinkType, PACKET_BYTES_MAX};

/// Times in nanoseconds, in this machine's byte order.
const MAGIC: u32 = 0xa1b2_3c4d;

/// Writes a packet file.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    to: W,
    link: Option<LinkType>,
}

impl PcapWriter<BufWriter<File>> {
    /// A new file.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create_new(path)?;
        Ok(PcapWriter::new(BufWriter::with_capacity(1 << 20, file)))
    }
}

impl<W: Write> PcapWriter<W> {
    /// To anything.
    pub fn new(to: W) -> Self {
        PcapWriter { to, link: None }
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// The file cannot be written, or holds packets of another kind of link.
    pub fn write(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        match self.link {
            Some(link) if link == packet.link => {}
            Some(link) => {
                let what = format!("packets of {link:?} and {:?} do not go into one pcap file", packet.link);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            None => {
                let version = 2u32 | 4 << 16;
                for word in [MAGIC, version, 0, 0, PACKET_BYTES_MAX, packet.link.number()] {
                    self.to.write_all(&word.to_ne_bytes())?;
                }
                self.link = Some(packet.link);
            }
        }
        let (seconds, nanoseconds) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
        for word in [seconds as u32, nanoseconds as u32, packet.bytes.len() as u32, packet.wire_len] {
            self.to.write_all(&word.to_ne_bytes())?;
        }
        self.to.write_all(packet.bytes)
    }

    /// Everything is in the file when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_wire::pcap::{PacketFile, Step};

    /// The goal: what is written is what our reader reads, and links do not mix.
    #[test]
    fn written_and_read() {
        let packet = |link, wire_len, bytes| CapturedPacket {
            time_ns: 5_000_000_007,
            wire_len,
            interface: 0,
            link,
            bytes,
        };
        let mut writer = PcapWriter::new(Vec::new());
        for (wire_len, bytes) in [(60, &b"abc"[..]), (1, b"x")] {
            writer.write(&packet(LinkType::Ethernet, wire_len, bytes)).unwrap();
        }
        assert!(writer.write(&packet(LinkType::Raw, 1, b"x")).is_err());
        let file = writer.finish().unwrap();
        let (mut state, mut at, mut seen) = (PacketFile::new(), 0, Vec::new());
        while at < file.len() {
            match state.next(&file[at..]).unwrap() {
                Step::Packet(used, p) => {
                    seen.push((p.time_ns, p.wire_len, p.link, p.bytes.to_vec()));
                    at += used;
                }
                Step::Skip(used) => at += used,
                Step::Incomplete(_) => panic!("cut at {at}"),
            }
        }
        let expected = |wire_len, bytes: &[u8]| (5_000_000_007, wire_len, LinkType::Ethernet, bytes.to_vec());
        assert_eq!(seen, [expected(60, b"abc"), expected(1, b"x")]);
    }
}
