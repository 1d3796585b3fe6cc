//! The formats, one file each, and the parts that all text formats and all fixed-length binary
//! formats share. Their table is in [`crate::table`].
//!
//! The rule: a format defines the meaning of a row; splitting the input into rows is done here.

pub mod alibaba;
pub mod biosnoop;
pub mod blkparse;
pub mod blkreplay;
pub mod blktrace;
pub mod cloudphysics;
pub mod csv;
pub mod described;
pub mod dtb;
pub mod fiu;
pub mod ftrace;
pub mod hfplayer;
pub mod iolog;
pub mod k5cloud;
pub mod lcs;
pub mod msr;
pub mod oracle;
pub mod simulators;
pub mod spc;
pub mod systor;
pub mod tencent;
pub mod vscsi;

use std::collections::VecDeque;

use crate::field::trimmed;
use crate::format::{DamagedRow, Decode};
use crate::record::{BlockRequest, Devices, TraceOp};

/// Maximum length of a line; a longer one is damaged.
const LINE_BYTES_MAX: usize = 4096;
/// Maximum lines of a repeated head within a file, as in a concatenated file.
const HEAD_LINES_MAX: usize = 64;

/// The result of parsing a row.
pub enum RowOutcome {
    /// A request.
    Request(BlockRequest),
    /// Nothing: a header, an empty line.
    Nothing,
    /// Part of another head if the line that ends a head comes before the next request; otherwise damaged.
    Unclear,
    /// The line that ends a head.
    HeadEnds,
    /// The row cannot be parsed.
    Damaged,
}

impl From<Option<BlockRequest>> for RowOutcome {
    fn from(request: Option<BlockRequest>) -> RowOutcome {
        request.map_or(RowOutcome::Damaged, RowOutcome::Request)
    }
}

/// Splits off the first word of a line; words are separated by blanks.
#[inline]
pub fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    if line.is_empty() {
        return None;
    }
    // Words are too short for a memchr call to pay off.
    let end = line
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(line.len());
    Some((&line[..end], &line[end..]))
}

/// A format whose rows are lines of text.
pub trait TextRow: Send {
    /// Parses a line, which is not empty.
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome;
}

/// Splits a file into lines.
pub struct TextRows<R> {
    row: R,
    number: u64,
    /// Whether the decoder is skipping the rest of a line that was too long.
    skipping: bool,
    /// The most recent unclear lines, at most [`HEAD_LINES_MAX`].
    unclear: VecDeque<DamagedRow>,
}

impl<R: TextRow> TextRows<R> {
    /// A decoder for the start of a file.
    pub fn new(row: R) -> TextRows<R> {
        TextRows {
            row,
            number: 0,
            skipping: false,
            unclear: VecDeque::new(),
        }
    }

    /// The row parser.
    pub fn row(&self) -> &R {
        &self.row
    }

    /// The row parser, to take what it has collected.
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
                        damaged.extend(self.unclear.drain(..));
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
                RowOutcome::Request(request) => {
                    if !self.unclear.is_empty() {
                        damaged.extend(self.unclear.drain(..));
                    }
                    requests.push(request);
                }
                RowOutcome::Nothing => {}
                RowOutcome::Unclear => {
                    if self.unclear.len() == HEAD_LINES_MAX {
                        damaged.extend(self.unclear.pop_front());
                    }
                    self.unclear.push_back(DamagedRow { row: self.number });
                }
                RowOutcome::HeadEnds => self.unclear.clear(),
                RowOutcome::Damaged => {
                    damaged.extend(self.unclear.drain(..));
                    damaged.push(DamagedRow { row: self.number });
                }
            }
        }
        if last {
            damaged.extend(self.unclear.drain(..));
        }
        used
    }
}

/// The only device of a format without devices, named `0`.
#[derive(Default)]
pub struct OneDevice(Option<u32>);

impl OneDevice {
    /// Its index, which is looked up only once.
    #[inline]
    pub fn index(&mut self, devices: &mut Devices) -> Option<u32> {
        self.0.or_else(|| self.look_up(devices))
    }

    #[cold]
    fn look_up(&mut self, devices: &mut Devices) -> Option<u32> {
        self.0 = devices.index_of(b"0");
        self.0
    }
}

/// Maps a format's numeric devices to indexes, building their names only rarely.
pub struct NumberedDevices {
    /// Recently used numbers and their indexes, by the lowest bits of the number.
    recent: [(u64, u32); NUMBERS_RECENT],
}

const NUMBERS_RECENT: usize = 64;

impl NumberedDevices {
    /// An empty cache.
    pub fn new() -> NumberedDevices {
        // Fill each slot with a number that belongs to another slot, so it never matches.
        NumberedDevices {
            recent: std::array::from_fn(|place| (place as u64 + 1, 0)),
        }
    }

    /// The index of a device by its number; `name` makes its name. `None` if there are too many devices.
    #[inline]
    pub fn index_of(
        &mut self,
        number: u64,
        devices: &mut Devices,
        name: fn(u64) -> String,
    ) -> Option<u32> {
        match self.recent[number as usize % NUMBERS_RECENT] {
            (known, index) if known == number => Some(index),
            _ => self.look_up(number, devices, name),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        number: u64,
        devices: &mut Devices,
        name: fn(u64) -> String,
    ) -> Option<u32> {
        let index = devices.index_of(name(number).as_bytes())?;
        self.recent[number as usize % NUMBERS_RECENT] = (number, index);
        Some(index)
    }
}

/// A format whose rows are records of a fixed length.
pub trait BinaryRow: Send {
    /// The length of a record in bytes.
    const BYTES: usize;
    /// Parses a record of that length; `None` if it cannot be read.
    fn row(&mut self, record: &[u8], devices: &mut Devices) -> Option<BlockRequest>;
}

/// Reads records, after `number` earlier ones. Every record gets a slot up front, so the loop never
/// checks capacity or updates the length; unreadable records are removed afterwards.
#[inline]
pub fn read_records<T>(
    records: impl ExactSizeIterator<Item = T>,
    number: &mut u64,
    requests: &mut Vec<BlockRequest>,
    damaged: &mut Vec<DamagedRow>,
    mut row: impl FnMut(T) -> Option<BlockRequest>,
) {
    let (before, damaged_before, first) = (requests.len(), damaged.len(), *number + 1);
    *number += records.len() as u64;
    let holes = &mut *damaged;
    requests.extend(
        records
            .enumerate()
            .map(move |(index, record)| match row(record) {
                Some(request) => request,
                None => {
                    holes.push(DamagedRow {
                        row: first + index as u64,
                    });
                    BlockRequest::new(0, 0, TraceOp::Other, 0, 0)
                }
            }),
    );
    let holes = &damaged[damaged_before..];
    if holes.is_empty() {
        return;
    }
    let mut holes = holes
        .iter()
        .map(|damaged| before + (damaged.row - first) as usize)
        .peekable();
    let mut place = 0;
    requests.retain(|_| {
        let is_hole = holes.next_if_eq(&place).is_some();
        place += 1;
        !is_hole
    });
}

/// Splits a file into records.
pub struct BinaryRows<R> {
    row: R,
    number: u64,
}

impl<R: BinaryRow> BinaryRows<R> {
    /// A decoder for the start of a file.
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
        let row = |record: &[u8]| self.row.row(record, devices);
        read_records(records, &mut self.number, requests, damaged, row);
        if last && cut > 0 {
            damaged.push(DamagedRow {
                row: self.number + 1,
            });
            return bytes.len();
        }
        bytes.len() - cut
    }
}

/// Decodes a file for tests; returns the requests, the device names, and the numbers of unreadable rows.
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
    (
        requests,
        devices.names().to_vec(),
        damaged.iter().map(|damaged| damaged.row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use brunt_core::random::Random;

    use super::*;
    use crate::format::EventCounts;
    use crate::{ColumnMap, FORMATS, Format, FormatOptions};

    /// Decodes a file in pieces whose sizes come from `piece`.
    fn in_pieces(
        format: &Format,
        bytes: &[u8],
        mut piece: impl FnMut() -> usize,
    ) -> (
        Vec<BlockRequest>,
        Vec<DamagedRow>,
        Vec<String>,
        Option<EventCounts>,
    ) {
        let columns = Some(ColumnMap::SAMPLE);
        let options = FormatOptions {
            op: Some(TraceOp::Read),
            columns,
            ..FormatOptions::default()
        };
        let (mut devices, mut requests, mut damaged) = (Devices::default(), Vec::new(), Vec::new());
        let mut decoder = (format.decoder)(&options);
        let (mut used, mut end) = (0, 0);
        while end < bytes.len() {
            end = bytes.len().min(end + piece());
            let last = end == bytes.len();
            used += decoder.decode(
                &bytes[used..end],
                last,
                &mut devices,
                &mut requests,
                &mut damaged,
            );
        }
        assert_eq!(used, bytes.len());
        (
            requests,
            damaged,
            devices.names().to_vec(),
            decoder.events(),
        )
    }

    /// Hundreds of rows decode the same in one piece as in many, even if some are damaged.
    #[test]
    fn rows_do_not_depend_on_how_a_file_is_split() {
        let mut random = Random::new(5);
        for format in FORMATS {
            let mut bytes = format.example.repeat(200);
            for _ in 0..100 {
                let at = random.below(bytes.len() as u64) as usize;
                // Leave the head intact, if the format has one.
                if at >= format.example.len() {
                    bytes[at] = random.below(256) as u8;
                }
            }
            let whole = in_pieces(format, &bytes, || bytes.len());
            assert!(
                whole.0.len() > 100 && !whole.1.is_empty(),
                "{}: {:?}",
                format.name,
                whole.1
            );
            assert_eq!(in_pieces(format, &bytes, || 1), whole, "{}", format.name);
            assert_eq!(
                in_pieces(format, &bytes, || random.below(5000) as usize),
                whole,
                "{}",
                format.name
            );
        }
    }

    /// An unreadable record's fields don't leak into its neighbours.
    #[test]
    fn unreadable_records_do_not_affect_their_neighbours() {
        let mut random = Random::new(6);
        let (mut requests, mut damaged, mut number) = (Vec::new(), Vec::new(), 10);
        let (mut expected, mut expected_damaged) = (Vec::new(), Vec::new());
        for share in [0.0, 0.1, 0.9, 1.0, 0.0] {
            let rows: Vec<Option<u64>> = (0..100)
                .map(|place| (!random.chance(share)).then_some(place))
                .collect();
            let request = |place| BlockRequest::new(place, 0, TraceOp::Read, 512, 512);
            for (row, place) in (number + 1..).zip(&rows) {
                match place {
                    Some(place) => expected.push(request(*place)),
                    None => expected_damaged.push(DamagedRow { row }),
                }
            }
            read_records(
                rows.iter(),
                &mut number,
                &mut requests,
                &mut damaged,
                |place| place.map(request),
            );
        }
        assert_eq!(
            (number, requests, damaged),
            (510, expected, expected_damaged)
        );
    }
}
