//! Captured traces as block traces: READ, WRITE and COMMIT of NFS by file, and SCSI commands over iSCSI by logical unit.
//! Used by [`crate::tables`].
//!
//! The rule: a captured trace is in the order of completion, so whoever reads it sorts it by time. What forces data to
//! stable storage is in a second table, which is read in step with the first.

use std::collections::HashSet;
use std::path::Path;

use brunt_lake::{Batch, Column, Table, TableReader};

use crate::error::TraceError;
use crate::record::{BlockRequest, Devices, TraceOp};
use crate::tables::{TableRow, count, int, made};

/// What is asked for of the operations of a captured trace.
pub(crate) const CAPTURED: Table = Table {
    name: "operations",
    doc: "Operations of a captured trace.",
    columns: &[
        Column::int("record_id", "Its number."),
        Column::text("operation", "Its name."),
        Column::time("request_first", "When it was seen."),
        Column::int("latency_ns", "Until the answer's first byte.").nullable(),
        Column::int("reply_span_ns", "From there to its last one.").nullable(),
        Column::int("file", "Its file.").nullable(),
        Column::int("direction", "0 reads, 1 writes.").nullable(),
        Column::int("offset_bytes", "Where in the file.").nullable(),
        Column::int("asked_bytes", "How much.").nullable(),
    ],
};

/// What is asked for of SCSI commands.
pub(crate) const COMMANDS: Table = Table {
    name: "scsi_commands",
    doc: "SCSI commands of a captured trace.",
    columns: &[Column::int("record_id", "Its number."), Column::text("cdb", "What it asked for.").nullable()],
};

/// Commands that were met in one table only, at the most: parts of a trace may have been deleted.
const UNMATCHED_MAX: usize = 1 << 16;

/// Which commands force their data to stable storage.
#[derive(Default)]
pub(crate) struct ForcedCommands {
    reader: Option<TableReader>,
    /// Rows that were read, and operations that have one.
    read: u64,
    wanted: u64,
    forced: HashSet<i64>,
}

impl ForcedCommands {
    /// Of a folder; none where it has no commands.
    pub fn open(root: &Path) -> Result<ForcedCommands, TraceError> {
        let has = root.join(COMMANDS.name).is_dir();
        let reader = if has { Some(TableReader::open(root, &COMMANDS)?) } else { None };
        Ok(ForcedCommands { reader, ..ForcedCommands::default() })
    }

    /// Reads on until so many more rows are known.
    pub fn advance(&mut self, rows: u64) -> Result<(), TraceError> {
        self.wanted += rows;
        let Some(reader) = &mut self.reader else { return Ok(()) };
        while self.read < self.wanted {
            let Some(batch) = reader.next_batch()? else { break };
            let ids = batch.ints("record_id");
            self.read += ids.len() as u64;
            let forces = ids.iter().zip(batch.texts("cdb")).filter(|(_, cdb)| forces(cdb));
            let room = UNMATCHED_MAX.saturating_sub(self.forced.len());
            self.forced.extend(forces.map(|(id, _)| *id).take(room + ids.len()));
        }
        if self.forced.len() > UNMATCHED_MAX * 4 {
            self.forced.clear();
        }
        Ok(())
    }

    fn take(&mut self, id: i64) -> bool {
        !self.forced.is_empty() && self.forced.remove(&id)
    }
}

/// FUA is bit 3 of byte 1 of READ and WRITE but those of six bytes (SBC-4, 5.13).
fn forces(cdb: &str) -> bool {
    let byte = |at: usize| cdb.get(at * 2..at * 2 + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
    let (Some(code), Some(flags)) = (byte(0), byte(1)) else { return false };
    matches!(code, 0x28 | 0x2a | 0xa8 | 0xaa | 0x88 | 0x8a) && flags & 8 != 0
}

/// Operations of a batch that have a row among the commands.
pub(crate) fn commands_in(batch: &Batch) -> u64 {
    batch.texts("operation").filter(|name| name.starts_with("SCSI ") || name.starts_with("iSCSI ")).count()
        as u64
}

/// The requests of a batch; the commands of it are known.
pub(crate) fn requests(
    batch: &Batch,
    devices: &mut Devices,
    forced: &mut ForcedCommands,
    each: &mut dyn FnMut(TableRow),
) {
    let (ids, times) = (batch.ints("record_id"), batch.ints("request_first"));
    for ((row, time_ns), name) in times.iter().enumerate().zip(batch.texts("operation")) {
        let fua = forced.take(ids[row]);
        let [file, offset, direction, asked] =
            ["file", "offset_bytes", "direction", "asked_bytes"].map(|column| int(batch, column, row));
        let is_flush = matches!(name, "SCSI SYNCHRONIZE CACHE" | "COMMIT");
        let found = match (file, offset, direction, asked) {
            (Some(file), _, _, _) if is_flush => Some((file, TraceOp::Flush, 0, 0)),
            (Some(file), Some(offset), Some(0), Some(asked)) => Some((file, TraceOp::Read, offset, asked)),
            (Some(file), Some(offset), Some(_), Some(asked)) => Some((file, TraceOp::Write, offset, asked)),
            _ => None,
        };
        let Some((file, op, offset, asked)) = found else {
            each(TableRow::Other);
            continue;
        };
        let request = || {
            let device = devices.index_of(format!("{:016x}", file as u64).as_bytes())?;
            let (offset, len_bytes) = (u64::try_from(offset).ok()?, u32::try_from(asked).ok()?);
            let request = BlockRequest::new(u64::try_from(*time_ns).ok()?, device, op, offset, len_bytes);
            // It is over with the last byte of its answer.
            let span = int(batch, "reply_span_ns", row).unwrap_or(0);
            let response = int(batch, "latency_ns", row).map(|latency| latency.saturating_add(span));
            Some(BlockRequest { fua, response_ns: count(response), ..request })
        };
        each(made(request));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forces_data_is_told_by_its_cdb() {
        let check = |cdb: &str, expected| assert_eq!(forces(cdb), expected, "{cdb}");
        check("2a080000000000000800", true);
        check("2a000000000000000800", false);
        check("8a08000000000000000000000008000000", true);
        check("0a080000080000", false);
        check("35080000000000000000", false);
        for cdb in ["", "2", "2a", "2a0", "zz08", "2é08"] {
            check(cdb, false);
        }
    }
}
