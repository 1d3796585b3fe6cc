//! Any text table, with columns mapped by the user as for libCacheSim's `csv` reader (`generalReader/csv.c`): time in
//! seconds, block number, size in bytes, operation. [`crate::columns`] defines the syntax.

use super::described::in_unit;
use super::{RowOutcome, TextRow, TextRows, word};
use crate::columns::{COLUMNS_MAX, ColumnMap};
use crate::field::{DelimitedFields, number};
use crate::format::{Format, FormatOptions, ReadingKey};
use crate::record::{BlockRequest, Devices, TraceOp};

/// The format's table entry.
pub const FORMAT: Format = Format {
    name: "csv",
    help: "libCacheSim's csv: any text table with the columns given by --columns",
    note: "columns are given by --columns; object ids are numbers of 512-byte blocks unless \
        --block says otherwise, and without a size column requests have the size of a block; \
        times are in seconds unless time-unit says otherwise",
    checked: true,
    needs_op: true,
    needs_columns: true,
    takes: &[ReadingKey::Op, ReadingKey::Block, ReadingKey::Columns],
    example: b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633898,28,6656,40409911\n",
    decoder: |options| Box::new(TextRows::new(Csv::new(options))),
};

struct Csv {
    map: ColumnMap,
    op: TraceOp,
    block_bytes: u32,
    /// The meaning of each column: its index in [`CsvFields`] plus one, or 0 if it has none.
    meaning: [u8; COLUMNS_MAX as usize],
    /// Whether no line has been read yet.
    first: bool,
}

/// The fields of a row that have a meaning.
#[derive(Clone, Copy, Default)]
struct CsvFields<'a> {
    /// Time, object, size, operation, tenant.
    found: [Option<&'a [u8]>; 5],
}

impl Csv {
    fn new(options: &FormatOptions) -> Csv {
        let map = options.columns.unwrap_or(ColumnMap::SAMPLE);
        let op = options.op.unwrap_or(TraceOp::Read);
        let mut meaning = [0; COLUMNS_MAX as usize];
        for (place, column) in [map.time, Some(map.object), map.size, map.op, map.tenant]
            .iter()
            .enumerate()
        {
            if let Some(column) = column {
                meaning[usize::from(*column)] = place as u8 + 1;
            }
        }
        Csv {
            map,
            op,
            block_bytes: options.block_bytes,
            meaning,
            first: true,
        }
    }

    /// Extracts the fields of a line that have a meaning.
    fn fields<'a>(&self, line: &'a [u8]) -> CsvFields<'a> {
        let mut fields = CsvFields::default();
        let meaning = &self.meaning[..self.map.columns()];
        let by_byte = DelimitedFields::new(line, self.map.delimiter);
        let by_blanks = Words(line);
        let mut columns: (Option<_>, Option<_>) = match self.map.delimiter {
            b' ' => (None, Some(by_blanks)),
            _ => (Some(by_byte), None),
        };
        let mut next = || match &mut columns {
            (Some(fields), _) => fields.next(),
            (_, words) => words.as_mut().and_then(Iterator::next),
        };
        for meaning in meaning {
            let Some(field) = next() else { break };
            if let Some(place) = meaning.checked_sub(1) {
                fields.found[usize::from(place)] = Some(field);
            }
        }
        fields
    }

    /// The operation for a word. If the user named a word for an operation, no other word means it.
    fn operation(&self, field: &[u8]) -> Option<TraceOp> {
        let named = self
            .map
            .op_words
            .iter()
            .zip([TraceOp::Read, TraceOp::Write]);
        for (word, op) in named.clone() {
            if word.is_some_and(|word| word.is(field)) {
                return Some(op);
            }
        }
        let is_named = |op| {
            named
                .clone()
                .any(|(word, known)| known == op && word.is_some())
        };
        operation(field).filter(|op| !is_named(*op))
    }

    fn request(&self, fields: &CsvFields<'_>, devices: &mut Devices) -> Option<BlockRequest> {
        let [time, object, size, op, tenant] = fields.found;
        let time_ns = match self.map.time {
            Some(_) => in_unit(time?, self.map.time_unit_ns)?,
            None => 0,
        };
        let unit = self.map.object_unit.unwrap_or(self.block_bytes);
        let offset_bytes = number(object?)?.checked_mul(unit.into())?;
        let len_bytes = match self.map.size {
            Some(_) => {
                let bytes = number(size?)?.checked_mul(self.map.size_unit.into())?;
                u32::try_from(bytes).ok()?
            }
            None => self.block_bytes,
        };
        let op = match self.map.op {
            Some(_) => self.operation(op?)?,
            None => self.op,
        };
        let name = self.map.tenant.map_or(Some(&b"0"[..]), |_| tenant)?;
        let device = devices.index_of(name)?;
        Some(BlockRequest::new(
            time_ns,
            device,
            op,
            offset_bytes,
            len_bytes,
        ))
    }
}

/// The blank-separated words of a line.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let (found, rest) = word(self.0)?;
        self.0 = rest;
        Some(found)
    }
}

/// Operation names in published tables, and SCSI operation codes. Codes are hexadecimal, as
/// CloudPhysics writes them, and 42 needs a 0x prefix: without one it may be UNMAP or, in decimal,
/// WRITE (10), and a write must not become an unmap.
fn operation(word: &[u8]) -> Option<TraceOp> {
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
    };
    if is(&[
        "r", "read", "get", "28", "08", "88", "a8", "0x28", "0x08", "0x88", "0xa8",
    ]) {
        return Some(TraceOp::Read);
    }
    if is(&[
        "w", "write", "set", "put", "2a", "0a", "8a", "aa", "0x2a", "0x0a", "0x8a", "0xaa",
    ]) {
        return Some(TraceOp::Write);
    }
    if is(&["f", "flush", "sync", "35", "91", "0x35", "0x91"]) {
        return Some(TraceOp::Flush);
    }
    is(&["d", "t", "trim", "discard", "unmap", "delete", "0x42"]).then_some(TraceOp::Unmap)
}

impl TextRow for Csv {
    fn row(&mut self, line: &[u8], devices: &mut Devices) -> RowOutcome {
        let fields = self.fields(line);
        if std::mem::take(&mut self.first) {
            let [_, object, ..] = fields.found;
            let is_head = || object.is_some_and(|object| number(object).is_none());
            if self.map.header.unwrap_or_else(is_head) {
                return RowOutcome::Nothing;
            }
        }
        self.request(&fields, devices).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{DamagedRow, Decode};

    fn read(columns: &str, text: &[u8]) -> (Vec<BlockRequest>, Vec<String>, Vec<u64>) {
        let (mut devices, mut requests, mut damaged) =
            (Devices::default(), Vec::new(), Vec::<DamagedRow>::new());
        let columns = Some(ColumnMap::parse(columns).unwrap());
        let options = FormatOptions {
            columns,
            op: Some(TraceOp::Write),
            ..FormatOptions::default()
        };
        let mut decoder: Box<dyn Decode + Send> = (FORMAT.decoder)(&options);
        decoder.decode(text, true, &mut devices, &mut requests, &mut damaged);
        (
            requests,
            devices.names().to_vec(),
            damaged.iter().map(|row| row.row).collect(),
        )
    }

    /// Rows of libCacheSim's `cloudPhysicsIO.csv`, with the column map from its guide.
    #[test]
    fn rows_of_the_publisher_are_parsed() {
        let columns = "time-col=2, obj-id-col=5, obj-size-col=4, op-col=3";
        let (requests, _, damaged) = read(columns, FORMAT.example);
        let first = BlockRequest::new(
            5_633_898_000_000_000,
            0,
            TraceOp::Write,
            42_932_745 * 512,
            512,
        );
        assert_eq!((requests.len(), requests[0], damaged.len()), (2, first, 0));
        assert_eq!(
            (requests[1].op, requests[1].len_bytes),
            (TraceOp::Read, 6656)
        );
    }

    #[test]
    fn unmapped_columns_have_defaults() {
        let (requests, devices, damaged) = read(
            "obj-id-col=2,tenant-col=1,delimiter=|",
            b"a|8\nb|9\nb\nb|x\n",
        );
        let expected = [
            BlockRequest::new(0, 0, TraceOp::Write, 8 * 512, 512),
            BlockRequest::new(0, 1, TraceOp::Write, 9 * 512, 512),
        ];
        assert_eq!(
            (requests, devices),
            (expected.to_vec(), vec!["a".to_string(), "b".into()])
        );
        assert_eq!(damaged, [3, 4]);
        let (requests, _, damaged) = read(
            "time-col=1,obj-id-col=2,time-unit=us",
            b"1.5,0\n18446744073709551615,0\n1577808000000046,0\n.5,0\n",
        );
        assert_eq!(
            (requests[0].time_ns, requests[1].time_ns, damaged),
            (1500, 1_577_808_000_000_046_000, vec![2, 4])
        );
    }

    #[test]
    fn a_header_is_skipped_and_an_unknown_operation_is_damage() {
        let text = b"op,lbn\nR,8\nw,8\nfly,8\n";
        assert_eq!(read("op-col=1,obj-id-col=2", text).2, [4]);
        assert_eq!(
            read("op-col=1,obj-id-col=2,has-header=false", text).2,
            [1, 4]
        );
        assert_eq!(
            read("op-col=1,obj-id-col=2,has-header=true", b"R,8\nR,8\n")
                .0
                .len(),
            1
        );
    }

    /// SSDSim's rows in microseconds, and a table with its own words for operations.
    #[test]
    fn delimiter_units_and_words_follow_the_column_map() {
        let columns = "time-col=1,obj-id-col=3,obj-size-col=4,op-col=5,tenant-col=2,delimiter=blanks,time-unit=us,\
                       obj-size-unit=sectors,op-read=1,op-write=0";
        let (requests, devices, damaged) =
            read(columns, b"7 3   8\t16 1\n8 3 8 16 0\n9 3 8 16 r\n");
        let first = BlockRequest::new(7000, 0, TraceOp::Read, 4096, 8192);
        assert_eq!((requests[0], requests[1].op), (first, TraceOp::Write));
        assert_eq!((devices, damaged), (vec!["3".to_string()], vec![3]));
    }

    /// In a table with decimal operation codes, ambiguous rows are damaged, and no write becomes an unmap.
    #[test]
    fn operation_codes_are_hexadecimal_and_none_is_guessed() {
        let (requests, _, damaged) = read(
            "op-col=1,obj-id-col=2",
            b"2a,8\n0x28,8\n0x42,8\n42,8\n40,8\n",
        );
        let ops: Vec<TraceOp> = requests.iter().map(|request| request.op).collect();
        assert_eq!(
            (ops, damaged),
            (
                vec![TraceOp::Write, TraceOp::Read, TraceOp::Unmap],
                vec![4, 5]
            )
        );
    }
}
