//! Checks whether a device holds data that someone may still need. All code that is about to write to a device checks
//! here first and refuses unless the user has named that very device. Uses libblkid where available, as `wipefs` does,
//! and always our own table as well; finding nothing is no guarantee.
//!
//! Works on all backends: the places that may hold signatures are read through the device, in requests no longer than
//! it accepts, and libblkid gets a sparse copy of them.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use crate::turn::turn;
use crate::{Backend, Op, Request, Ring, RingConfig};

#[allow(
    unsafe_code,
    reason = "libblkid calls, and an in-memory file for libblkid"
)]
mod blkid;
mod checks;
mod table;

/// Why a device could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// No ring is available for any device, so nothing could be written either.
    #[error(transparent)]
    Ring(io::Error),
    /// The device cannot be opened or read.
    #[error(transparent)]
    Device(#[from] io::Error),
}

/// The detector used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    /// libblkid and Brunt's own table.
    Blkid,
    /// Brunt's own table only: a statically linked program, or a machine without libblkid.
    Table,
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Detector::Blkid => "libblkid",
            Detector::Table => "Brunt's own table of signatures",
        })
    }
}

/// A signature that was found. Its text fits after "contains".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// A description, such as "an XFS file system".
    pub what: String,
    /// The signature's type, as named by `wipefs`.
    pub kind: String,
    /// Offset of the magic number in bytes from the start of the device, if known.
    pub offset_bytes: Option<u64>,
    /// The detector that found it.
    pub by: Detector,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.what)?;
        if let Some(offset) = self.offset_bytes {
            write!(f, "{} at {offset:#x}, ", self.kind)?;
        }
        write!(f, "found by {})", self.by)
    }
}

/// The result of checking a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureScan {
    /// The first signature, if any.
    pub found: Option<Signature>,
    /// The detector used.
    pub by: Detector,
}

/// Searches for signatures of data on the device.
///
/// # Errors
/// See [`SignatureError`].
pub fn scan(backend: &dyn Backend) -> Result<SignatureScan, SignatureError> {
    let image = read(backend)?;
    let by_table = || table::find(&image);
    let looked = match blkid::find(&image) {
        Some(found) => SignatureScan {
            // libblkid is stricter because it verifies checksums and distant structures, so the table's results count
            // too.
            found: found.or_else(by_table),
            by: Detector::Blkid,
        },
        None => SignatureScan {
            found: by_table(),
            by: Detector::Table,
        },
    };
    Ok(looked)
}

/// The parts of a device that may hold signatures.
struct Image {
    size: u64,
    block_bytes: u32,
    /// Offsets and bytes, in order and without overlap.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Image {
    /// Returns these bytes if they were read.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.pieces.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(len)?)
        })
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.get(offset, magic.len()) == Some(magic)
    }
}

/// The ranges to read, each from its first byte to the byte after its last: from the start, and backward from the end.
const FROM_START: &[(u64, u64)] = &[
    // ZFS's second label has uberblocks up to 512 KiB; LUKS2 has secondary headers at 256 KiB and beyond.
    (0, 516 << 10),
    (1 << 20, (1 << 20) + 4096),
    (2 << 20, (2 << 20) + 8192),
    (4 << 20, (4 << 20) + 4096),
];
const FROM_END: &[(u64, u64)] = &[
    // Promise: its most distant location, 3,087 sectors before the end.
    (3087 * 512, 3086 * 512),
    // bcachefs keeps a copy 1 MiB before the end, aligned to 4 KiB.
    (1 << 20, (1 << 20) - 4096),
    // ZFS has two labels in the last 512 KiB, rounded down to 256 KiB.
    (768 << 10, 0),
];

/// Maximum request size, even if the device accepts longer requests.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// Concurrent requests.
const DEPTH: u32 = 4;

/// The ranges to read from a device: whole blocks, in order, merged where adjacent.
fn ranges(size: u64, block: u64) -> Vec<(u64, u64)> {
    let end = size / block * block;
    let of_end = FROM_END
        .iter()
        .map(|(from, to)| (size.saturating_sub(*from), size.saturating_sub(*to)));
    let mut ranges: Vec<(u64, u64)> = FROM_START.iter().copied().chain(of_end).collect();
    ranges.sort_unstable();
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        let (from, to) = (from / block * block, to.next_multiple_of(block).min(end));
        match whole.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ if from < to => whole.push((from, to)),
            _ => {}
        }
    }
    whole
}

fn read(backend: &dyn Backend) -> Result<Image, SignatureError> {
    let info = backend.info();
    let block = u64::from(info.block_bytes);
    let longest = REQUEST_BYTES_MAX
        .min(u64::from(info.transfer_bytes_max))
        .max(block)
        / block
        * block;
    let config = RingConfig {
        entries: 8,
        arena_bytes: 0,
        ..RingConfig::default()
    };
    let ring = Ring::new(config).map_err(SignatureError::Ring)?;
    let mut device = backend.open(&ring, DEPTH).map_err(io::Error::other)?;
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut batch = VecDeque::new();
    for (piece, (from, to)) in ranges(info.size_bytes, block).into_iter().enumerate() {
        pieces.push((from, vec![0; (to - from) as usize]));
        for offset in (from..to).step_by(longest as usize) {
            let len = longest.min(to - offset);
            batch.push_back((piece, offset, len));
        }
    }
    let mut waiting = batch;
    let (mut batch, mut under_way) = (VecDeque::new(), Vec::new());
    let mut done = Vec::new();
    while !waiting.is_empty() || device.outstanding() > 0 {
        while (device.outstanding() as usize + batch.len()) < DEPTH as usize
            && let Some((piece, offset, len)) = waiting.pop_front()
        {
            batch.push_back(Request {
                tag: under_way.len() as u64,
                op: Op::Read,
                offset,
                len,
                buf: ring.pool().take(len as usize),
                force_unit_access: false,
            });
            under_way.push((piece, offset, len));
        }
        turn(&ring, &mut *device, &mut batch, &mut done)?;
        for one in done.drain(..) {
            one.result.map_err(io::Error::other)?;
            let (piece, offset, len) = under_way[one.tag as usize];
            let (start, bytes) = &mut pieces[piece];
            let at = (offset - *start) as usize;
            bytes[at..at + len as usize].copy_from_slice(&one.buf[..len as usize]);
        }
    }
    Ok(Image {
        size: info.size_bytes,
        block_bytes: info.block_bytes,
        pieces,
    })
}

#[cfg(test)]
mod tests;
