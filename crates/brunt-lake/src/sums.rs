//! Checksums of a part, so that changed bytes are reported as damage instead of being read as different values.
//! Parquet has optional page checksums, which the library doesn't write, but no checksums for page headers and the
//! footer.
//!
//! The checksums are stored between the last column with its indexes and the footer, where readers ignore them:
//!
//! ```text
//! PAR1 | columns, group by group | sum of each column, sum of the footer, number of columns, MAGIC | footer, its length, PAR1
//! ```
//!
//! The rule: a part without checksums, from an older version, is readable.

use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use twox_hash::XxHash3_64;

/// Marks the presence of checksums.
const MAGIC: &[u8; 8] = b"BrntSum1";
/// Size of the footer's length and the closing magic.
pub(crate) const TAIL_BYTES: usize = 8;
/// Maximum number of column chunks in all row groups; a file that claims more is treated as having no checksums.
const COLUMNS_MAX: usize = 1 << 20;
/// Bytes read at a time to compute a checksum.
const PIECE_BYTES: usize = 256 << 10;

/// The checksum of a column's bytes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Offset of the footer in a file that ends with these bytes.
pub(crate) fn footer_start(tail: [u8; TAIL_BYTES], file_bytes: u64) -> Option<u64> {
    let [a, b, c, d, ..] = tail;
    file_bytes.checked_sub(TAIL_BYTES as u64 + u64::from(u32::from_le_bytes([a, b, c, d])))
}

/// Inserts checksums into a complete file; `columns` contains the checksums of its column chunks.
pub(crate) fn insert(file: &mut Vec<u8>, columns: &[u64]) {
    let tail = file
        .last_chunk()
        .expect("a Parquet file ends with the length of its footer");
    let footer =
        footer_start(*tail, file.len() as u64).expect("the file contains its footer") as usize;
    let gap = gap(columns, &file[footer..]);
    file.splice(footer..footer, gap);
}

/// Like [`insert`], but for a file on disk, and computes the checksums; `columns` contains the columns' byte ranges.
pub(crate) fn insert_into(file: &File, columns: &[Range<u64>]) -> io::Result<()> {
    let sums: Vec<u64> = columns
        .iter()
        .map(|bytes| sum_of(file, bytes.clone()))
        .collect::<io::Result<_>>()?;
    let len = file.metadata()?.len();
    let mut tail = [0; TAIL_BYTES];
    file.read_exact_at(&mut tail, len.saturating_sub(TAIL_BYTES as u64))?;
    let start = footer_start(tail, len).expect("the file contains its footer");
    let mut footer = vec![0; (len - start) as usize];
    file.read_exact_at(&mut footer, start)?;
    let mut end = gap(&sums, &footer);
    end.extend_from_slice(&footer);
    file.write_all_at(&end, start)
}

/// The bytes to insert before a footer.
fn gap(columns: &[u64], footer: &[u8]) -> Vec<u8> {
    let mut gap = Vec::with_capacity(columns.len() * 8 + 20);
    for sum in columns.iter().chain([&sum(footer)]) {
        gap.extend_from_slice(&sum.to_le_bytes());
    }
    gap.extend_from_slice(&(columns.len() as u32).to_le_bytes());
    gap.extend_from_slice(MAGIC);
    gap
}

/// The checksums of a file's columns.
#[derive(Debug)]
pub(crate) struct Sums(Vec<u64>);

/// A file's bytes have changed since they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its {0} was changed or damaged after it was written (checksum)")]
pub(crate) struct Changed(&'static str);

impl Sums {
    /// Reads a file's checksums and verifies its footer; `None` if it has no checksums.
    pub fn read(file: &File) -> io::Result<Option<Result<Sums, Changed>>> {
        let len = file.metadata()?.len();
        let read = |at: u64, bytes: usize| -> io::Result<Option<Vec<u8>>> {
            if at.checked_add(bytes as u64).is_none_or(|end| end > len) {
                return Ok(None);
            }
            let mut read = vec![0; bytes];
            file.read_exact_at(&mut read, at)?;
            Ok(Some(read))
        };
        let head = MAGIC.len() + 4;
        let Some(tail) = len.checked_sub(TAIL_BYTES as u64) else {
            return Ok(None);
        };
        let Some(tail) = read(tail, TAIL_BYTES)? else {
            return Ok(None);
        };
        let tail: [u8; TAIL_BYTES] = tail.try_into().expect("this length was read");
        let Some(footer) = footer_start(tail, len) else {
            return Ok(None);
        };
        let Some(at) = footer.checked_sub(head as u64) else {
            return Ok(None);
        };
        let Some(head) = read(at, head)? else {
            return Ok(None);
        };
        let (count, magic) = head.split_first_chunk::<4>().expect("this length was read");
        if magic != MAGIC {
            return Ok(None);
        }
        let count = u32::from_le_bytes(*count) as usize;
        let sums = (count + 1) * 8;
        let Some(at) = at.checked_sub(sums as u64).filter(|_| count <= COLUMNS_MAX) else {
            return Ok(None);
        };
        let Some(bytes) = read(at, sums)? else {
            return Ok(None);
        };
        let mut sums: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|sum| u64::from_le_bytes(sum.try_into().expect("8 bytes")))
            .collect();
        let of_footer = sums.pop();
        let same = of_footer == Some(sum_of(file, footer..len)?);
        Ok(Some(if same {
            Ok(Sums(sums))
        } else {
            Err(Changed("footer"))
        }))
    }

    /// Verifies a column's bytes against its checksum.
    pub fn check(
        &self,
        column: usize,
        file: &File,
        bytes: Range<u64>,
    ) -> io::Result<Result<(), Changed>> {
        let same = self.0.get(column) == Some(&sum_of(file, bytes)?);
        Ok(if same { Ok(()) } else { Err(Changed("data")) })
    }
}

/// The checksum of a whole file.
pub(crate) fn sum_file(file: &File) -> io::Result<u64> {
    sum_of(file, 0..file.metadata()?.len())
}

fn sum_of(file: &File, bytes: Range<u64>) -> io::Result<u64> {
    let mut hasher = XxHash3_64::with_seed(0);
    let mut piece = Vec::new();
    let mut at = bytes.start;
    while at < bytes.end {
        piece.resize(
            usize::try_from(bytes.end - at)
                .unwrap_or(usize::MAX)
                .min(PIECE_BYTES),
            0,
        );
        file.read_exact_at(&mut piece, at)?;
        hasher.write(&piece);
        at += piece.len() as u64;
    }
    Ok(hasher.finish())
}
