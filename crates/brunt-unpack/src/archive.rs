//! Reads archives as a stream: tar (POSIX.1-1988 ustar, pax and GNU's long names) and zip (APPNOTE 6.3, stored and
//! deflated members). The one rule: members come in archive order, and a member's type is checked before its bytes
//! are returned.

use std::io::{self, BufRead, ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::{Contents, UnpackError};

/// Tar headers and data are padded to blocks of this size.
pub(crate) const TAR_BLOCK_BYTES: usize = 512;
/// Maximum length of a name stored in a separate header.
const NAME_BYTES_MAX: u64 = 64 << 10;

type Input = Box<dyn BufRead + Send>;

/// An archive that is being read.
pub struct Archive {
    format: ArchiveFormat,
    shared: Arc<Mutex<Body>>,
}

/// A file in an archive. Its bytes are readable until the next member is requested.
pub struct ArchiveMember {
    /// Its path in the archive.
    pub name: String,
    /// Its contents, which may themselves be compressed.
    pub bytes: Box<dyn Read + Send>,
}

#[derive(Clone, Copy, PartialEq)]
enum ArchiveFormat {
    Tar,
    Zip,
}

/// The reading position in the archive.
struct Body {
    input: Input,
    name: String,
    /// Remaining bytes of the member, if known.
    left: u64,
    /// Bytes that pad the member to a whole tar block.
    padding: u64,
    deflated: Option<Deflated>,
    crc: Crc,
    /// The expected value of [`Body::crc`], if it is known before the member ends.
    expected_crc: Option<u32>,
}

/// A deflated zip member; only its contents show where it ends.
struct Deflated {
    decoder: Decompress,
    ended: bool,
    /// Whether a data descriptor (checksum and sizes) follows the member.
    has_descriptor: bool,
}

/// The archive if `magic` identifies one, otherwise the plain file.
pub(crate) fn of(magic: &[u8], input: Box<dyn Read + Send>) -> Contents {
    let format = match magic {
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => ArchiveFormat::Zip,
        _ if tar_checksum_fits(magic) => ArchiveFormat::Tar,
        _ => return Contents::File(input),
    };
    let body = Body {
        input: Box::new(crate::buffered(input)),
        name: String::new(),
        left: 0,
        padding: 0,
        deflated: None,
        crc: Crc::new(),
        expected_crc: None,
    };
    Contents::Archive(Archive {
        format,
        shared: Arc::new(Mutex::new(body)),
    })
}

impl Archive {
    /// The archive's format.
    pub fn kind(&self) -> &'static str {
        match self.format {
            ArchiveFormat::Tar => "tar",
            ArchiveFormat::Zip => "zip",
        }
    }

    /// The next file in the archive. Skips the rest of the previous one; ignores directories and links.
    ///
    /// # Errors
    /// The archive cannot be read or is damaged, or a member is of an unsupported kind ([`UnpackError`]).
    pub fn next_member(&mut self) -> io::Result<Option<ArchiveMember>> {
        let mut body = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        body.skip_rest()?;
        let found = match self.format {
            ArchiveFormat::Tar => body.next_of_tar()?,
            ArchiveFormat::Zip => body.next_of_zip()?,
        };
        Ok(found.then(|| ArchiveMember {
            name: body.name.clone(),
            bytes: Box::new(MemberBytes(Arc::clone(&self.shared))),
        }))
    }
}

struct MemberBytes(Arc<Mutex<Body>>);

impl Read for MemberBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.read(into)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.deflated {
            Some(deflated) => deflated.read(&mut self.input, into)?,
            None => {
                let room = into
                    .len()
                    .min(usize::try_from(self.left).unwrap_or(into.len()));
                let read = self.input.read(&mut into[..room])?;
                if read == 0 && room > 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.left -= read as u64;
                read
            }
        };
        self.crc.update(&into[..read]);
        let is_over = read == 0 && !into.is_empty();
        match self.expected_crc {
            Some(expected) if is_over && expected != self.crc.sum() => Err(self.wrong_sum()),
            _ => Ok(read),
        }
    }

    fn wrong_sum(&self) -> io::Error {
        UnpackError::Checksum {
            member: self.name.clone(),
        }
        .into()
    }

    fn unsupported(&self, what: &'static str) -> io::Error {
        UnpackError::Member {
            member: self.name.clone(),
            what,
        }
        .into()
    }

    /// Skips the rest of the member.
    fn skip_rest(&mut self) -> io::Result<()> {
        let mut waste = [0; 4096];
        while self.read(&mut waste)? > 0 {}
        let padding = std::mem::take(&mut self.padding);
        // A tar file may end within its last block's padding.
        io::copy(&mut (&mut self.input).take(padding), &mut io::sink())?;
        if self
            .deflated
            .take()
            .is_some_and(|deflated| deflated.has_descriptor)
        {
            self.descriptor()?;
        }
        self.expected_crc = None;
        self.crc.reset();
        Ok(())
    }

    /// Reads a tar block; `None` at the end of the archive.
    fn block(&mut self) -> io::Result<Option<[u8; TAR_BLOCK_BYTES]>> {
        let mut block = [0; TAR_BLOCK_BYTES];
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        self.input.read_exact(&mut block)?;
        Ok(block.iter().any(|byte| *byte != 0).then_some(block))
    }

    fn next_of_tar(&mut self) -> io::Result<bool> {
        let mut long_name = None;
        let mut long_size = None;
        while let Some(header) = self.block()? {
            if !tar_checksum_fits(&header) {
                return Err(ErrorKind::InvalidData.into());
            }
            let size = tar_number(&header[124..136]).ok_or(ErrorKind::InvalidData)?;
            let kind = header[156];
            let size = match kind {
                b'0' | 0 | b'7' | b'S' => long_size.take().unwrap_or(size),
                _ => size,
            };
            (self.left, self.padding) = (size, size.wrapping_neg() % TAR_BLOCK_BYTES as u64);
            match kind {
                b'0' | 0 | b'7' => {
                    self.name = long_name.take().unwrap_or_else(|| tar_name(&header));
                    return Ok(true);
                }
                b'S' => {
                    self.name = long_name.take().unwrap_or_else(|| tar_name(&header));
                    return Err(self.unsupported("a sparse file"));
                }
                b'L' | b'x' if size <= NAME_BYTES_MAX => {
                    let mut told = vec![0; size as usize];
                    self.input.read_exact(&mut told)?;
                    self.left = 0;
                    if kind == b'L' {
                        long_name = Some(text_of(&told));
                    } else {
                        long_name = pax(&told, b"path").map(text_of).or(long_name);
                        long_size = pax(&told, b"size")
                            .and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
                    }
                    self.skip_rest()?;
                }
                _ => {
                    long_name = None;
                    self.skip_rest()?;
                }
            }
        }
        Ok(false)
    }

    fn next_of_zip(&mut self) -> io::Result<bool> {
        loop {
            let mut header = [0; 30];
            self.input.read_exact(&mut header[..4])?;
            match &header[..4] {
                [b'P', b'K', 3, 4] => {}
                // The central directory, or the end of an archive without one.
                [b'P', b'K', 1, 2] | [b'P', b'K', 5 | 6, 6] => return Ok(false),
                _ => return Err(ErrorKind::InvalidData.into()),
            }
            self.input.read_exact(&mut header[4..])?;
            let mut name = vec![0; u16_at(&header, 26).into()];
            self.input.read_exact(&mut name)?;
            let mut extra = vec![0; u16_at(&header, 28).into()];
            self.input.read_exact(&mut extra)?;
            self.name = text_of(&name);
            let (flags, method) = (u16_at(&header, 6), u16_at(&header, 8));
            let has_descriptor = flags & 8 != 0;
            if flags & 1 != 0 {
                return Err(self.unsupported("encrypted"));
            }
            let packed = match u32_at(&header, 18) {
                u32::MAX => zip64_packed(&extra).ok_or(ErrorKind::InvalidData)?,
                packed => packed.into(),
            };
            match method {
                0 if has_descriptor => {
                    // Without a size, only an empty stored member can be delimited.
                    if !self
                        .input
                        .fill_buf()?
                        .starts_with(b"PK\x07\x08\0\0\0\0\0\0\0\0")
                    {
                        return Err(self.unsupported("stored without its size"));
                    }
                    self.descriptor()?;
                    self.left = 0;
                }
                0 => self.left = packed,
                8 => {
                    self.deflated = Some(Deflated {
                        decoder: Decompress::new(false),
                        ended: false,
                        has_descriptor,
                    });
                }
                12 => return Err(self.unsupported("packed with bzip2")),
                14 => return Err(self.unsupported("packed with lzma")),
                93 => return Err(self.unsupported("packed with zstd")),
                95 => return Err(self.unsupported("packed with xz")),
                _ => return Err(self.unsupported("packed in an unknown way")),
            }
            self.expected_crc = (!has_descriptor).then(|| u32_at(&header, 14));
            if !name.ends_with(b"/") {
                return Ok(true);
            }
            self.skip_rest()?;
        }
    }

    /// Reads the descriptor after a member whose sizes were not known in advance:
    /// checksum and sizes, of 32 or 64 bits.
    fn descriptor(&mut self) -> io::Result<()> {
        let mut found = [0; 24];
        self.input.read_exact(&mut found[..12])?;
        let mut at = 12;
        let sum_at = if found.starts_with(b"PK\x07\x08") {
            4
        } else {
            0
        };
        if sum_at > 0 {
            self.input.read_exact(&mut found[12..16])?;
            at = 16;
        }
        if u32_at(&found, sum_at) != self.crc.sum() {
            return Err(self.wrong_sum());
        }
        if !self.input.fill_buf()?.starts_with(b"P") {
            self.input.read_exact(&mut found[at..at + 8])?;
        }
        Ok(())
    }
}

impl Deflated {
    fn read(&mut self, input: &mut Input, into: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !into.is_empty() {
            let packed = input.fill_buf()?;
            if packed.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let (before_in, before_out) = (self.decoder.total_in(), self.decoder.total_out());
            let status = self
                .decoder
                .decompress(packed, into, FlushDecompress::None)
                .map_err(io::Error::other)?;
            let consumed = (self.decoder.total_in() - before_in) as usize;
            let produced = (self.decoder.total_out() - before_out) as usize;
            input.consume(consumed);
            self.ended = status == Status::StreamEnd;
            if produced > 0 {
                return Ok(produced);
            }
            if consumed == 0 && !self.ended {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(0)
    }
}

/// Whether a block is a tar header: it contains its own checksum, computed with the checksum field blank.
fn tar_checksum_fits(block: &[u8]) -> bool {
    let Some(block) = block.get(..TAR_BLOCK_BYTES) else {
        return false;
    };
    let blank = |at: usize| (148..156).contains(&at);
    let sum: u64 = (0..)
        .zip(block)
        .map(|(at, byte)| if blank(at) { 32 } else { u64::from(*byte) })
        .sum();
    // A valid header has a name and the right checksum.
    block[0] != 0 && tar_number(&block[148..156]) == Some(sum)
}

/// A number in octal digits or, in GNU's extension, a large one in binary.
fn tar_number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let (high, low) = field[1..].split_at(field.len().checked_sub(9)?);
        let low: [u8; 8] = low.try_into().ok()?;
        return high
            .iter()
            .all(|byte| *byte == 0)
            .then(|| u64::from_be_bytes(low));
    }
    let text = field.split(|byte| *byte == 0).next()?.trim_ascii();
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, digit| {
        matches!(digit, b'0'..=b'7')
            .then(|| number.checked_mul(8)?.checked_add(u64::from(digit - b'0')))
            .flatten()
    })
}

/// The name in a tar header.
fn tar_name(header: &[u8]) -> String {
    let name = text_of(&header[..100]);
    match header[257..].starts_with(b"ustar\0") && header[345] != 0 {
        true => format!("{}/{name}", text_of(&header[345..500])),
        false => name,
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// A value in a pax header, which consists of lines `LENGTH KEY=VALUE`.
fn pax<'a>(header: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let lines = header.split(|byte| *byte == b'\n');
    let mut values = lines.filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        line[at + 1..].strip_prefix(key)?.strip_prefix(b"=")
    });
    values.next_back()
}

/// The packed size in a zip64 extra field: it follows the unpacked size.
fn zip64_packed(mut extra: &[u8]) -> Option<u64> {
    while extra.len() >= 4 {
        let (kind, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let field = extra.get(4..4 + len)?;
        if kind == 1 && len >= 16 {
            return Some(u64_at(field, 8));
        }
        extra = &extra[4 + len..];
    }
    None
}
