//! Reads a file that may be packed (gzip, zstd, xz, bzip2, lz4) or an archive (tar, zip) as a stream of what is in it. Traces
//! of packets and of block requests are opened with it.
//!
//! The rule: which of them it is, its first bytes say, never its name; several packed files one after another are read
//! as one. Of a file that is cut, all that can be unpacked is read before the error. What cannot be unpacked is refused by
//! name, never read as if it were text.
#![forbid(unsafe_code)]

mod archive;
mod gzip;
mod xz;

use std::io::{self, BufRead, BufReader, Cursor, Read};

pub use archive::{Archive, ArchiveMember};

/// How a file can be packed, for help texts.
pub const PACKINGS: &str =
    "plain, packed with gzip, zstd, xz, bzip2 or lz4, or in a tar or zip archive";

/// What is looked at of a file: a tar archive shows by the sum of its first header.
const BEGINNING_BYTES: u64 = archive::TAR_BLOCK_BYTES as u64;
/// Packed bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// `zstd --long=31` and `--ultra` need a window of up to 2 GiB; memory is used only as far as a file fills it.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// Why a file cannot be unpacked; inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// A packing that is not read here.
    #[error("it is packed with {packing}, which is not supported: unpack it first")]
    Packing {
        /// Its name, perhaps with the tool.
        packing: &'static str,
    },
    /// An archive where one file is wanted.
    #[error("it is a {archive} archive: extract the file that is meant")]
    Archive {
        /// Its kind.
        archive: &'static str,
    },
    /// A member of an archive that is not read here.
    #[error("{member} in the archive is {what}, which is not supported: extract it first")]
    Member {
        /// Its name.
        member: String,
        /// What is special about it.
        what: &'static str,
    },
    /// Something else follows a packed file.
    #[error("after {packing} data, other bytes follow")]
    Trailing {
        /// What came before.
        packing: &'static str,
    },
    /// The contents are not those that were packed.
    #[error("the checksum of {member} in the archive is wrong")]
    Checksum {
        /// Its name.
        member: String,
    },
}

impl UnpackError {
    /// What is wrong with a file, if an error says so.
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

/// What a file contains.
pub enum Contents {
    /// The bytes of one file.
    File(Box<dyn Read + Send>),
    /// Several files.
    Archive(Archive),
}

/// What a file contains: unpacked, where it is packed.
///
/// # Errors
/// Its first bytes cannot be read, it is packed in a way that is not supported ([`UnpackError`]), or there is no memory to
/// unpack with.
pub fn contents(input: Box<dyn Read + Send>) -> io::Result<Contents> {
    let (magic, input) = beginning(input)?;
    let is_packed = packing(&magic)?;
    let Some(unpack) = is_packed else {
        return Ok(archive::of(&magic, input));
    };
    let (magic, input) = beginning(unpack(input)?)?;
    Ok(archive::of(&magic, input))
}

/// The same of what has to be one file.
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

/// The first bytes of a file, and all of it.
fn beginning(mut input: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut magic = Vec::with_capacity(BEGINNING_BYTES as usize);
    let read = (&mut input).take(BEGINNING_BYTES).read_to_end(&mut magic);
    match read {
        Ok(_) => Ok((magic.clone(), Box::new(Cursor::new(magic).chain(input)))),
        // A packed file that is cut so early still has its first bytes.
        Err(error) if !magic.is_empty() && error.kind() != io::ErrorKind::Interrupted => {
            let failed = Failing(Some(error));
            Ok((magic.clone(), Box::new(Cursor::new(magic).chain(failed))))
        }
        Err(error) => Err(error),
    }
}

/// An error that comes after what could be read.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// What unpacks a file with this beginning; `None` if it is not packed.
fn packing(magic: &[u8]) -> io::Result<Option<Unpack>> {
    let unpack: Unpack = match magic {
        // RFC 1952, 2.3.1.
        [0x1f, 0x8b, 8, ..] => |input| Ok(Box::new(gzip::Gzip::new(buffered(input)))),
        // RFC 8878, 3.1.1 and 3.1.2: a skippable frame may come first.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => zstd,
        // The .xz file format, 2.1.1.1.
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => xz::open,
        // A block's magic number, the digits of pi, or of an empty file the square root's.
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

/// Refuses packings by name.
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

/// Frames of lz4, one after another.
struct Lz4<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(into)?;
            // A frame ends, and the next one begins.
            if read > 0 || into.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
        }
    }
}

#[cfg(test)]
mod tests;
