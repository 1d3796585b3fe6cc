//! Reads a file that may be compressed (gzip, zstd, xz, bzip2, lz4) or an archive (tar, zip) as a stream of its
//! contents. Opens packet captures and block traces.
//!
//! The rule: the format is detected from the first bytes, never from the name, and several compressed files in a row
//! are read as one. A truncated file yields everything that can be unpacked before the error. An unsupported format
//! is rejected by name, never read as if it were text.
#![forbid(unsafe_code)]

mod archive;
mod gzip;
mod xz;

use std::io::{self, BufRead, BufReader, Cursor, Read};

pub use archive::{Archive, ArchiveMember};

/// Supported compression and archive formats, for help texts.
pub const PACKINGS: &str =
    "plain, packed with gzip, zstd, xz, bzip2 or lz4, or in a tar or zip archive";

/// Bytes read to detect the format: a tar archive is detected by the checksum of its first header.
const BEGINNING_BYTES: u64 = archive::TAR_BLOCK_BYTES as u64;
/// Compressed bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// `zstd --long=31` and `--ultra` need a window of up to 2 GiB; it takes only as much memory as a file fills.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// Why a file cannot be unpacked; inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// An unsupported compression format.
    #[error("it is packed with {packing}, which is not supported: unpack it first")]
    Packing {
        /// Its name, possibly with the tool that unpacks it.
        packing: &'static str,
    },
    /// An archive where a single file is required.
    #[error("it is a {archive} archive: extract the file to be read")]
    Archive {
        /// Its kind.
        archive: &'static str,
    },
    /// An archive member of an unsupported kind.
    #[error("{member} in the archive is {what}, which is not supported: extract it first")]
    Member {
        /// Its name.
        member: String,
        /// Why it is unsupported.
        what: &'static str,
    },
    /// Other data follows a compressed file.
    #[error("after {packing} data, other bytes follow")]
    Trailing {
        /// The format of the preceding data.
        packing: &'static str,
    },
    /// A member's checksum doesn't match.
    #[error("the checksum of {member} in the archive is wrong")]
    Checksum {
        /// Its name.
        member: String,
    },
}

impl UnpackError {
    /// The cause of an I/O error, if it is an [`UnpackError`].
    pub fn of(error: &io::Error) -> Option<&UnpackError> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<UnpackError> for io::Error {
    fn from(error: UnpackError) -> io::Error {
        let kind = match error {
            UnpackError::Trailing { .. } | UnpackError::Checksum { .. } => {
                io::ErrorKind::InvalidData
            }
            _ => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, error)
    }
}

/// The contents of a file.
pub enum Contents {
    /// The bytes of one file.
    File(Box<dyn Read + Send>),
    /// Several files.
    Archive(Archive),
}

/// Opens a file's contents, decompressing them if needed.
///
/// # Errors
/// The first bytes cannot be read, the format is unsupported ([`UnpackError`]), or there
/// isn't enough memory to decompress.
pub fn contents(input: Box<dyn Read + Send>) -> io::Result<Contents> {
    let (magic, input) = beginning(input)?;
    let is_packed = packing(&magic)?;
    let Some(unpack) = is_packed else {
        return Ok(archive::of(&magic, input));
    };
    let (magic, input) = beginning(unpack(input)?)?;
    Ok(archive::of(&magic, input))
}

/// Like [`contents`], for input that must be a single file.
///
/// # Errors
/// See [`contents`]; or it is an archive.
pub fn unpacked(input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    match contents(input)? {
        Contents::File(file) => Ok(file),
        Contents::Archive(archive) => Err(UnpackError::Archive {
            archive: archive.kind(),
        }
        .into()),
    }
}

type Unpack = fn(Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>>;

/// The first bytes of a file, and a reader of the whole file.
fn beginning(mut input: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut magic = Vec::with_capacity(BEGINNING_BYTES as usize);
    let read = (&mut input).take(BEGINNING_BYTES).read_to_end(&mut magic);
    match read {
        Ok(_) => Ok((magic.clone(), Box::new(Cursor::new(magic).chain(input)))),
        // A compressed file that is truncated this early still has its first bytes.
        Err(error) if !magic.is_empty() && error.kind() != io::ErrorKind::Interrupted => {
            let failed = Failing(Some(error));
            Ok((magic.clone(), Box::new(Cursor::new(magic).chain(failed))))
        }
        Err(error) => Err(error),
    }
}

/// A reader that fails with an error, placed after the data that could be read.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The decompressor for a file with these first bytes; `None` if it is not compressed.
fn packing(magic: &[u8]) -> io::Result<Option<Unpack>> {
    let unpack: Unpack = match magic {
        // RFC 1952, 2.3.1.
        [0x1f, 0x8b, 8, ..] => |input| Ok(Box::new(gzip::Gzip::new(buffered(input)))),
        // RFC 8878, 3.1.1 and 3.1.2: a skippable frame may come first.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => zstd,
        // The .xz file format, 2.1.1.1.
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => xz::open,
        // The magic number of a block (the digits of pi), or of the end of an empty file (those of its square root).
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, ..] => |input| {
            Ok(Box::new(bzip2::bufread::MultiBzDecoder::new(buffered(
                input,
            ))))
        },
        // LZ4 frame format 1.6.1.
        [0x04, 0x22, 0x4d, 0x18, ..] => |input| {
            Ok(Box::new(Lz4(lz4_flex::frame::FrameDecoder::new(buffered(
                input,
            )))))
        },
        _ => return unsupported(magic).map(|()| None),
    };
    Ok(Some(unpack))
}

/// Returns an error that names the unsupported format.
fn unsupported(magic: &[u8]) -> io::Result<()> {
    let packing = match magic {
        [0x02, 0x21, 0x4c, 0x18, ..] => "lz4's legacy format (lz4 -dc)",
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => "7-Zip",
        [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => "RAR",
        [b'L', b'Z', b'I', b'P', 0 | 1, ..] => "lzip (lzip -dc)",
        [0x1f, 0x9d, ..] => "compress (gzip -dc)",
        [0x89, b'L', b'Z', b'O', 0, ..] => "lzop (lzop -dc)",
        [0xff, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => "Snappy",
        [0x5d, 0, 0, dictionary, _, size @ ..]
            if matches!(dictionary, 0 | 0x10 | 0x80)
                && size.len() > 8
                && (size[..8] == [0xff; 8] || size[5..8] == [0; 3]) =>
        {
            "lzma (xz --format=lzma -dc)"
        }
        _ => return Ok(()),
    };
    Err(UnpackError::Packing { packing }.into())
}

fn buffered(input: Box<dyn Read + Send>) -> BufReader<Box<dyn Read + Send>> {
    BufReader::with_capacity(BUFFER_BYTES, input)
}

fn zstd(input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut decoder = zstd::Decoder::with_buffer(buffered(input))?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(Box::new(decoder))
}

/// Consecutive lz4 frames.
struct Lz4<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(into)?;
            // Continue if one frame has ended and another follows.
            if read > 0 || into.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
        }
    }
}

#[cfg(test)]
mod tests;
