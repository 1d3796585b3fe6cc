//! Reads traces from Parquet tables: `block_requests`, which `brunt trace convert` writes,
//! `requests` of a result, and `operations` of a captured trace. Used by [`crate::reader`].
//!
//! The rule: read a folder one batch of rows at a time, and ignore rows that aren't requests instead of guessing.

use std::num::NonZeroU64;
use std::path::Path;

use brunt_core::{LeftOutTransfers, TransferOutcome};
use brunt_lake::{Batch, Coding, Column, Table, TableReader};

use crate::captured::{self, CAPTURED, CommandDetails};
use crate::error::TraceError;
use crate::format::{DamagedRow, EventCounts, Format};
use crate::record::{BlockRequest, ContentHash, Devices, TraceOp};
use crate::stream::RequestSource;

/// Requests of a block trace: the form that all other formats can be converted to.
pub const BLOCK_REQUESTS: Table = Table {
    name: "block_requests",
    doc: "One row per request of a block trace, in the trace's order.",
    columns: &[
        Column::int(
            "time_ns",
            "Time of the request since the trace's first request; may be negative.",
        ),
        Column::text("device", "Name of the device."),
        Column::text("op", "`read`, `write`, `flush`, `unmap` or `other`."),
        Column::bool(
            "fua",
            "Whether the data had to be stable before completion (FUA).",
        ),
        Column::int("offset_bytes", "Offset of the first byte.").coded(Coding::Plain),
        Column::int("len_bytes", "Length.").coded(Coding::Dictionary),
        Column::int(
            "response_ns",
            "Response time; null if the trace doesn't record it.",
        )
        .nullable(),
        Column::int(
            "content",
            "Hash of the data: equal for equal data; null if the trace doesn't record it.",
        )
        .coded(Coding::Plain)
        .nullable(),
    ],
};

/// Columns read from the requests of a result.
const RESULT_REQUESTS: Table = Table {
    name: "requests",
    doc: "Requests of a result.",
    columns: &[
        Column::int("run", "The run."),
        Column::text("op", "Operation."),
        Column::int("offset_bytes", "Offset on the device.").coded(Coding::Plain),
        Column::int("len_bytes", "Length.").coded(Coding::Dictionary),
        Column::int("sent_ns", "Time of sending.").nullable(),
        Column::int("completed_ns", "Time of completion.").nullable(),
    ],
};

const fn folder(name: &'static str, help: &'static str, note: &'static str) -> Format {
    let decoder = |_: &crate::FormatOptions| -> Box<dyn crate::Decode + Send> { Box::new(NoFile) };
    Format {
        name,
        help,
        note,
        checked: true,
        needs_op: false,
        needs_columns: false,
        takes: &[],
        example: b"",
        decoder,
    }
}

/// The decoder for folders if they are decoded as files: everything counts as damaged.
struct NoFile;

impl crate::Decode for NoFile {
    fn decode(
        &mut self,
        bytes: &[u8],
        _last: bool,
        _devices: &mut Devices,
        _requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> usize {
        if !bytes.is_empty() {
            damaged.push(DamagedRow { row: 1 });
        }
        bytes.len()
    }
}

/// A table that can be read as a trace.
pub(crate) struct TableFormat {
    format: Format,
    table: &'static Table,
    rows: fn(&Batch, &mut Devices, &mut CommandDetails, &mut dyn FnMut(TableRow)),
    /// Whether its rows are in completion order.
    by_completion: bool,
}

pub(crate) enum TableRow {
    Request(BlockRequest),
    /// A write that represents a command that writes one block repeatedly.
    Repeated(BlockRequest),
    /// A row that moves no blocks.
    Other,
    /// A request to move blocks that moved none.
    LeftOut(TransferOutcome),
    /// Its device exceeds the limit, or it has an invalid number.
    Damaged,
}

/// Folders that can be read as traces; the first match is used.
pub(crate) const TABLES: &[TableFormat] = &[
    TableFormat {
        format: folder("block_requests", "the Parquet form of a block trace", ""),
        table: &BLOCK_REQUESTS,
        rows: block_requests,
        by_completion: false,
    },
    TableFormat {
        format: folder(
            "requests",
            "requests of a result of `brunt run`",
            "each run becomes a device; times are those of sending; unsent requests are skipped; \
             writing zeros counts as a write",
        ),
        table: &RESULT_REQUESTS,
        rows: result_requests,
        by_completion: true,
    },
    TableFormat {
        format: folder(
            "operations",
            "READ, WRITE and COMMIT of a captured trace, and SCSI commands",
            "each file or logical unit becomes a device; response times end with the last byte of the \
             reply; each UNMAP extent becomes a request; a WRITE SAME that writes counts as a write of all its \
             blocks; requests that failed or whose success was not captured are left out and counted; other \
             operations are skipped",
        ),
        table: &CAPTURED,
        rows: captured::requests,
        by_completion: true,
    },
];

/// The first table of a folder that can be read as a trace.
pub(crate) fn table_in(folder: &Path) -> Option<&'static TableFormat> {
    TABLES
        .iter()
        .find(|format| folder.join(format.table.name).is_dir())
}

/// Reads a table as a stream of requests.
pub(crate) struct TableSource {
    format: &'static TableFormat,
    reader: TableReader,
    details: CommandDetails,
    row: u64,
    repeated: u64,
    left_out: LeftOutTransfers,
    /// Damaged parts already reported.
    parts: usize,
}

impl TableSource {
    pub fn open(root: &Path, format: &'static TableFormat) -> Result<TableSource, TraceError> {
        let captured = format.table.name == CAPTURED.name;
        let details = if captured {
            CommandDetails::open(root)?
        } else {
            CommandDetails::default()
        };
        let reader = TableReader::open(root, format.table)?;
        Ok(TableSource {
            format,
            reader,
            details,
            row: 0,
            repeated: 0,
            left_out: LeftOutTransfers::default(),
            parts: 0,
        })
    }
}

impl RequestSource for TableSource {
    fn read(
        &mut self,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> Result<bool, TraceError> {
        let Some(batch) = self.reader.next_batch()? else {
            // A damaged part has an unknown number of rows; it counts as one damaged row.
            let known = self.reader.damaged().len() + self.details.damaged();
            let parts = known - std::mem::replace(&mut self.parts, known);
            damaged.extend((0..parts).map(|_| DamagedRow { row: self.row + 1 }));
            return Ok(false);
        };
        if self.format.table.name == CAPTURED.name {
            self.details.advance(captured::commands_in(batch))?;
        }
        let (number, repeated, left_out) = (&mut self.row, &mut self.repeated, &mut self.left_out);
        (self.format.rows)(batch, devices, &mut self.details, &mut |row| {
            *number += 1;
            match row {
                TableRow::Request(request) => requests.push(request),
                TableRow::Repeated(request) => {
                    requests.push(request);
                    *repeated += 1;
                }
                TableRow::Other => {}
                TableRow::LeftOut(outcome) => left_out.add(outcome),
                TableRow::Damaged => damaged.push(DamagedRow { row: *number }),
            }
        });
        Ok(true)
    }

    fn format(&self) -> &'static Format {
        &self.format.format
    }

    fn events(&self) -> Option<EventCounts> {
        None
    }

    fn repeated(&self) -> u64 {
        self.repeated
    }

    fn left_out(&self) -> LeftOutTransfers {
        self.left_out
    }

    fn details_dropped(&self) -> u64 {
        self.details.dropped()
    }

    fn by_completion(&self) -> bool {
        self.format.by_completion
    }
}

/// The name that results use for requests that write zeros without transferring them.
const ZEROES: &str = "write-zeroes";

fn op_named(name: &str) -> TraceOp {
    let all = [
        TraceOp::Read,
        TraceOp::Write,
        TraceOp::Flush,
        TraceOp::Unmap,
    ];
    all.into_iter()
        .find(|op| op.name() == name)
        .unwrap_or(TraceOp::Other)
}

pub(crate) fn int(batch: &Batch, column: &str, row: usize) -> Option<i64> {
    (!batch.is_null(column, row)).then(|| batch.ints(column)[row])
}

/// Tables may contain negative times, requests cannot: half of the range is added.
const ZERO_NS: i64 = i64::MAX / 2;

fn time(time_ns: i64) -> Option<u64> {
    u64::try_from(ZERO_NS.checked_add(time_ns)?).ok()
}

pub(crate) fn count(value: Option<i64>) -> Option<u64> {
    value.and_then(|value| u64::try_from(value).ok())
}

fn block_requests(
    batch: &Batch,
    devices: &mut Devices,
    _: &mut CommandDetails,
    each: &mut dyn FnMut(TableRow),
) {
    let (times, fua) = (batch.ints("time_ns"), batch.bools("fua"));
    let (offsets, lengths) = (batch.ints("offset_bytes"), batch.ints("len_bytes"));
    for (row, (device, op)) in batch.texts("device").zip(batch.texts("op")).enumerate() {
        let request = || {
            let device = devices.index_of(device.as_bytes())?;
            let len_bytes = u32::try_from(lengths[row]).ok()?;
            let content =
                int(batch, "content", row).and_then(|content| NonZeroU64::new(content as u64));
            Some(BlockRequest {
                fua: fua[row],
                response_ns: count(int(batch, "response_ns", row)),
                content: content.map(ContentHash),
                ..BlockRequest::new(
                    time(times[row])?,
                    device,
                    op_named(op),
                    offsets[row] as u64,
                    len_bytes,
                )
            })
        };
        each(parsed(request));
    }
}

fn result_requests(
    batch: &Batch,
    devices: &mut Devices,
    _: &mut CommandDetails,
    each: &mut dyn FnMut(TableRow),
) {
    let (runs, offsets, lengths) = (
        batch.ints("run"),
        batch.ints("offset_bytes"),
        batch.ints("len_bytes"),
    );
    for (row, op) in batch.texts("op").enumerate() {
        let Some(sent) = int(batch, "sent_ns", row) else {
            each(TableRow::Other);
            continue;
        };
        let zeroes = op == ZEROES;
        let request = || {
            let device = devices.index_of(format!("run {}", runs[row]).as_bytes())?;
            let (offset, len_bytes) = (
                u64::try_from(offsets[row]).ok()?,
                u32::try_from(lengths[row]).ok()?,
            );
            let took =
                int(batch, "completed_ns", row).and_then(|completed| completed.checked_sub(sent));
            let op = if zeroes { TraceOp::Write } else { op_named(op) };
            let request = BlockRequest::new(time(sent)?, device, op, offset, len_bytes);
            Some(BlockRequest {
                response_ns: count(took),
                ..request
            })
        };
        match parsed(request) {
            TableRow::Request(request) if zeroes => each(TableRow::Repeated(request)),
            row => each(row),
        }
    }
}

pub(crate) fn parsed(request: impl FnOnce() -> Option<BlockRequest>) -> TableRow {
    request().map_or(TableRow::Damaged, TableRow::Request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_descriptions_have_no_mistakes() {
        assert_eq!(crate::captured::COMMANDS.mistakes(), Vec::<String>::new());
        for table in TABLES {
            assert_eq!(table.table.mistakes(), Vec::<String>::new());
            assert_eq!(
                (table.format.name, table.format.help.is_empty()),
                (table.table.name, false)
            );
        }
    }
}
