//! The formats, one file each, and what rows of text and rows of fixed length have in common.
//! Their table is in [`crate::table`].
//!
//! The rule: a format defines the meaning of a row; splitting the input into rows is done here.

pub mod alibaba;
pub mod blkparse;
pub mod blkreplay;
pub mod blktrace;
pub mod cloudphysics;
pub mod csv;
pub mod dtb;
pub mod fiu;
pub mod hfplayer;
pub mod iolog;
pub mod k5cloud;
pub mod lcs;
pub mod msr;
pub mod oracle;
pub mod spc;
pub mod systor;
pub mod tencent;
pub mod vscsi;

use crate::field::trimmed;
use crate::format::{DamagedRow, Decode};
use crate::record::{BlockRequest, Devices};

/// Longest line; a longer one is damaged.
const LINE_BYTES_MAX: usize = 4096;

/// What became of a row.
pub enum RowOutcome {
    /// A request.
    Request(BlockRequest),
    /// Nothing to do: a header, an empty line.
    Nothing,
    /// It cannot be read.
    Damaged,
}

impl From<Option<BlockRequest>> for RowOutcome {
    fn from(request: Option<BlockRequest>) -> RowOutcome {
        request.map_or(RowOutcome::Damaged, RowOutcome::Request)
    }
}

/// The first word of a line, and what is behind it; words are separated by blanks.
#[inline]
pub fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    if line.is_empty() {
        return None;
    }
    // Words are shorter than what a call of memchr is worth.
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    Some((&line[..end], &line[end..]))
}

/// A format whose rows are lines of text.
pub trait TextRow: Send {
    /// What a line says, which is not empty.
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome;
}

/// Reads the lines of a file.
pub struct TextRows<R> {
    row: R,
    number: u64,
    /// The rest of a line that was too long is skipped.
    skipping: bool,
}

impl<R: TextRow> TextRows<R> {
    /// At the beginning of a file.
    pub fn new(row: R) -> TextRows<R> {
        TextRows { row, number: 0, skipping: false }
    }

    /// What reads the rows.
    pub fn row(&self) -> &R {
        &self.row
    }

    /// The same, to take from it what it kept.
    pub fn row_mut(&mut self) -> &mut R {
        &mut self.row
    }
}

impl<R: TextRow> Decode for TextRows<R> {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let (line, step) = match memchr::memchr(b'\n', rest) {
                Some(end) => (&rest[..end], end + 1),
                None if last => (rest, rest.len()),
                None if rest.len() <= LINE_BYTES_MAX => return used,
                None => {
                    if !std::mem::replace(&mut self.skipping, true) {
                        self.number += 1;
                        damaged.push(DamagedRow { row: self.number });
                    }
                    return bytes.len();
                }
            };
            used += step;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            self.number += 1;
            let row = match trimmed(line) {
                _ if line.len() > LINE_BYTES_MAX => RowOutcome::Damaged,
                [] => RowOutcome::Nothing,
                text => self.row.row(text, devices),
            };
            match row {
                RowOutcome::Request(request) => requests.push(request),
                RowOutcome::Nothing => {}
                RowOutcome::Damaged => damaged.push(DamagedRow { row: self.number }),
            }
        }
        used
    }
}

/// The device of a format that has no others, under the name `0`.
#[derive(Default)]
pub struct OneDevice(Option<u32>);

impl OneDevice {
    /// Its number, which is asked for once.
    #[inline]
    pub fn index(&mut self, devices: &mut Devices) -> Option<u32> {
        if self.0.is_none() {
            self.0 = devices.index_of(b"0");
        }
        self.0
    }
}

/// Devices that a format has as numbers: the name of each is made once.
pub struct NumberedDevices {
    /// By the lowest bits of the number.
    recent: [Option<(u64, u32)>; 64],
}

impl NumberedDevices {
    /// Of none yet.
    pub fn new() -> NumberedDevices {
        NumberedDevices { recent: [None; 64] }
    }

    /// The device of this number, which `name` names; `None` for one too many.
    #[inline]
    pub fn index_of(
        &mut self,
        number: u64,
        devices: &mut Devices,
        name: impl FnOnce() -> String,
    ) -> Option<u32> {
        let place = number as usize % self.recent.len();
        if let Some((known, index)) = self.recent[place]
            && known == number
        {
            return Some(index);
        }
        let index = devices.index_of(name().as_bytes())?;
        self.recent[place] = Some((number, index));
        Some(index)
    }
}

/// A format whose rows are records of one length.
pub trait BinaryRow: Send {
    /// Their length in bytes.
    const BYTES: usize;
    /// What a record of that length says.
    fn row(&mut self, record: &[u8], devices: &mut Devices) -> RowOutcome;
}

/// Reads the records of a file.
pub struct BinaryRows<R> {
    row: R,
    number: u64,
}

impl<R: BinaryRow> BinaryRows<R> {
    /// At the beginning of a file.
    pub fn new(row: R) -> BinaryRows<R> {
        BinaryRows { row, number: 0 }
    }
}

impl<R: BinaryRow> Decode for BinaryRows<R> {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        let records = bytes.chunks_exact(R::BYTES);
        let cut = records.remainder().len();
        requests.reserve(records.len());
        for record in records {
            self.number += 1;
            match self.row.row(record, devices) {
                RowOutcome::Request(request) => requests.push(request),
                RowOutcome::Nothing => {}
                RowOutcome::Damaged => damaged.push(DamagedRow { row: self.number }),
            }
        }
        if last && cut > 0 {
            damaged.push(DamagedRow { row: self.number + 1 });
            return bytes.len();
        }
        bytes.len() - cut
    }
}

/// Reads rows of text for tests: requests, names of devices, and rows that could not be read.
#[cfg(test)]
pub fn read(format: &crate::Format, bytes: &[u8]) -> (Vec<BlockRequest>, Vec<String>, Vec<u64>) {
    let (mut devices, mut requests, mut damaged) = (Devices::default(), Vec::new(), Vec::new());
    (format.decoder)(&crate::FormatOptions::default()).decode(
        bytes,
        true,
        &mut devices,
        &mut requests,
        &mut damaged,
    );
    (requests, devices.names().to_vec(), damaged.iter().map(|damaged| damaged.row).collect())
}
