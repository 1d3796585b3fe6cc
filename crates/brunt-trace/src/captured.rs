//! Reads captured traces as block traces: NFS READ, WRITE and COMMIT by file, and SCSI commands
//! over iSCSI by logical unit. Used by [`crate::tables`].
//!
//! The rule: captured operations are in completion order, so the reader must sort them by time. Two other tables, read
//! in step with the operations, record which commands force data to stable storage and which extents UNMAP releases.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use brunt_core::TransferOutcome;
use brunt_lake::{Batch, Column, Table, TableReader};

use crate::error::TraceError;
use crate::record::{BlockRequest, Devices, TraceOp};
use crate::tables::{TableRow, count, int, parsed};

/// Columns read from the operations of a captured trace.
pub(crate) const CAPTURED: Table = Table {
    name: "operations",
    doc: "Operations of a captured trace.",
    columns: &[
        Column::int("record_id", "Number of the operation."),
        Column::text("operation", "Name of the operation."),
        Column::time("request_first", "Time of the request."),
        Column::int("latency_ns", "Time to the reply's first byte.").nullable(),
        Column::int("status", "Status, 0 is success.").nullable(),
        Column::int(
            "reply_span_ns",
            "Time from the reply's first byte to its last.",
        )
        .nullable(),
        Column::int("file", "The file.").nullable(),
        Column::int("direction", "0 for reads, 1 for writes.").nullable(),
        Column::int("offset_bytes", "File offset.").nullable(),
        Column::int("asked_bytes", "Requested bytes.").nullable(),
        Column::int("moved_bytes", "Transferred bytes."),
    ],
};

/// Columns read from the SCSI commands.
pub(crate) const COMMANDS: Table = Table {
    name: "scsi_commands",
    doc: "SCSI commands of a captured trace.",
    columns: &[
        Column::int("record_id", "Number of the command."),
        Column::text("cdb", "The CDB.").nullable(),
        Column::int("lba", "First logical block.").nullable(),
        Column::int("blocks", "Number of logical blocks.").nullable(),
        Column::int("block_bytes", "Logical block size in bytes.").nullable(),
        Column::int("extents", "Number of UNMAP extents.").nullable(),
    ],
};

/// Columns read from the UNMAP extents.
pub(crate) const EXTENTS: Table = Table {
    name: "scsi_extents",
    doc: "UNMAP extents in a captured trace.",
    columns: &[
        Column::int("record_id", "Number of the command."),
        Column::int("lba", "First logical block."),
        Column::int("blocks", "Number of logical blocks."),
    ],
};

/// Maximum number of commands that wait for their operations. Some operations never arrive if parts of a trace were
/// deleted.
const UNMATCHED_MAX: usize = 1 << 18;
/// A request's length has 32 bits, so a longer extent is split into several requests of whole MiB.
const EXTENT_BYTES_MAX: u64 = 1 << 31;

/// A command's effect on extents, which isn't in its operation's row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExtentsOf {
    /// Unmaps them, or writes one block repeatedly.
    op: TraceOp,
    block_bytes: u64,
    extents: Vec<CommandExtent>,
}

/// An extent of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommandExtent {
    offset_bytes: u64,
    len_bytes: u64,
}

/// Details of SCSI commands that aren't in their operations' rows: which commands force data to stable storage, and
/// which extents they unmap or fill with one block.
pub(crate) struct CommandDetails {
    commands: Option<TableReader>,
    extents: Option<TableReader>,
    /// Command rows read so far, and operations seen so far that have a command row.
    read: u64,
    wanted: u64,
    /// Extent rows read so far, and operations seen so far that have extent rows.
    extents_read: u64,
    extents_wanted: u64,
    forced: HashSet<i64>,
    /// What commands do to extents, by command id. The effect of an UNMAP or WRITE SAME without an entry is unknown.
    extents_of: HashMap<i64, ExtentsOf>,
    /// Limit for each of `forced` and `extents_of`, and the number of entries dropped because of it.
    unmatched_max: usize,
    dropped: u64,
}

impl Default for CommandDetails {
    fn default() -> CommandDetails {
        CommandDetails {
            commands: None,
            extents: None,
            read: 0,
            wanted: 0,
            extents_read: 0,
            extents_wanted: 0,
            forced: HashSet::new(),
            extents_of: HashMap::new(),
            unmatched_max: UNMATCHED_MAX,
            dropped: 0,
        }
    }
}

impl CommandDetails {
    /// Opens the tables of a folder; empty if the folder has no commands.
    pub fn open(root: &Path) -> Result<CommandDetails, TraceError> {
        let open = |table: &'static Table| match root.join(table.name).is_dir() {
            true => TableReader::open(root, table).map(Some),
            false => Ok(None),
        };
        let (commands, extents) = (open(&COMMANDS)?, open(&EXTENTS)?);
        Ok(CommandDetails {
            commands,
            extents,
            ..CommandDetails::default()
        })
    }

    /// Number of damaged parts of the tables; their details are missing.
    pub fn damaged(&self) -> usize {
        let tables = [&self.commands, &self.extents];
        tables
            .into_iter()
            .flatten()
            .map(|reader| reader.damaged().len())
            .sum()
    }

    /// Commands whose details were dropped because too many were waiting for their operations.
    /// Whether they force data, or what they unmap, is unknown.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reads tables until the details of another `rows` operations are known.
    pub fn advance(&mut self, rows: u64) -> Result<(), TraceError> {
        self.wanted += rows;
        while self.read < self.wanted {
            let Some(reader) = &mut self.commands else {
                break;
            };
            if reader.next_batch()?.is_none() {
                break;
            }
            self.take_commands();
        }
        while self.extents_read < self.extents_wanted {
            let Some(batch) = self
                .extents
                .as_mut()
                .map(TableReader::next_batch)
                .transpose()?
                .flatten()
            else {
                break;
            };
            let (ids, lbas, blocks) = (
                batch.ints("record_id"),
                batch.ints("lba"),
                batch.ints("blocks"),
            );
            self.extents_read += ids.len() as u64;
            for (row, id) in ids.iter().enumerate() {
                let Some(of) = self.extents_of.get_mut(id) else {
                    continue;
                };
                of.extents
                    .extend(CommandExtent::of(lbas[row], blocks[row], of.block_bytes));
            }
        }
        self.make_room();
        Ok(())
    }

    /// Drops waiting details that exceed the limit.
    fn make_room(&mut self) {
        if self.forced.len() > self.unmatched_max {
            self.dropped += self.forced.len() as u64;
            self.forced.clear();
        }
        if self.extents_of.len() > self.unmatched_max {
            self.dropped += self.extents_of.len() as u64;
            self.extents_of.clear();
        }
    }

    /// Adds the batch that was just read from the commands.
    fn take_commands(&mut self) {
        let Some(reader) = &self.commands else { return };
        let batch = reader.batch();
        let ids = batch.ints("record_id");
        self.read += ids.len() as u64;
        for (row, cdb) in batch.texts("cdb").enumerate() {
            if forces(cdb) {
                self.forced.insert(ids[row]);
            }
            let [lba, blocks, block_bytes, extents] =
                ["lba", "blocks", "block_bytes", "extents"].map(|column| int(batch, column, row));
            self.extents_wanted += count(extents).unwrap_or(0);
            let Some(block_bytes) = count(block_bytes) else {
                continue;
            };
            let of = |op, extents| ExtentsOf {
                op,
                block_bytes,
                extents,
            };
            if extents.is_some() {
                self.extents_of
                    .insert(ids[row], of(TraceOp::Unmap, Vec::new()));
            } else if let (Some(op), Some(lba), Some(blocks)) = (write_same(cdb), lba, blocks) {
                let extents = CommandExtent::of(lba, blocks, block_bytes)
                    .into_iter()
                    .collect();
                self.extents_of.insert(ids[row], of(op, extents));
            }
        }
    }

    fn take_forced(&mut self, id: i64) -> bool {
        !self.forced.is_empty() && self.forced.remove(&id)
    }

    fn take_extents(&mut self, id: i64) -> Option<ExtentsOf> {
        self.extents_of.remove(&id)
    }
}

impl CommandExtent {
    /// `None` if it exceeds 64-bit byte addresses.
    fn of(lba: i64, blocks: i64, block_bytes: u64) -> Option<CommandExtent> {
        let offset_bytes = u64::try_from(lba).ok()?.checked_mul(block_bytes)?;
        let len_bytes = u64::try_from(blocks).ok()?.checked_mul(block_bytes)?;
        offset_bytes.checked_add(len_bytes)?;
        Some(CommandExtent {
            offset_bytes,
            len_bytes,
        })
    }

    /// Splits the extent into pieces that fit a request's length.
    fn pieces(self) -> impl Iterator<Item = (u64, u32)> {
        (0..self.len_bytes.div_ceil(EXTENT_BYTES_MAX)).map(move |piece| {
            let at = piece * EXTENT_BYTES_MAX;
            (
                self.offset_bytes + at,
                (self.len_bytes - at).min(EXTENT_BYTES_MAX) as u32,
            )
        })
    }
}

/// Byte `at` of a hexadecimal CDB.
fn byte(cdb: &str, at: usize) -> Option<u8> {
    cdb.get(at * 2..at * 2 + 2)
        .and_then(|hex| u8::from_str_radix(hex, 16).ok())
}

/// The effect of WRITE SAME: its UNMAP bit is bit 3 of byte 1 (SBC-4, 5.51). `None` for any other command.
fn write_same(cdb: &str) -> Option<TraceOp> {
    let flags = byte(cdb, 1).filter(|_| matches!(byte(cdb, 0), Some(0x41 | 0x93)))?;
    Some(if flags & 8 != 0 {
        TraceOp::Unmap
    } else {
        TraceOp::Write
    })
}

/// Whether FUA is set: bit 3 of byte 1 of READ and WRITE, except for the 6-byte commands (SBC-4, 5.13).
fn forces(cdb: &str) -> bool {
    let (Some(code), Some(flags)) = (byte(cdb, 0), byte(cdb, 1)) else {
        return false;
    };
    matches!(code, 0x28 | 0x2a | 0xa8 | 0xaa | 0x88 | 0x8a) && flags & 8 != 0
}

/// Number of operations in a batch that have a row among the commands.
pub(crate) fn commands_in(batch: &Batch) -> u64 {
    batch
        .texts("operation")
        .filter(|name| name.starts_with("SCSI ") || name.starts_with("iSCSI "))
        .count() as u64
}

/// The file, operation, offset and length that an operation requests; `None` if it moves no blocks.
fn asked_for(batch: &Batch, row: usize, name: &str) -> Option<(i64, TraceOp, i64, i64)> {
    let [file, offset, direction, asked] =
        ["file", "offset_bytes", "direction", "asked_bytes"].map(|column| int(batch, column, row));
    let file = file?;
    let is_flush = matches!(name, "SCSI SYNCHRONIZE CACHE" | "COMMIT");
    let is_unmap = matches!(name, "SCSI UNMAP" | "SCSI WRITE SAME");
    let op = match direction {
        _ if is_flush => return Some((file, TraceOp::Flush, 0, 0)),
        None if is_unmap => return Some((file, TraceOp::Unmap, 0, 0)),
        None => return None,
        Some(0) => TraceOp::Read,
        Some(_) => TraceOp::Write,
    };
    // If the request doesn't contain its length, use the bytes that were moved. An operation
    // without an address (the SCSI block size may be unknown) becomes a damaged row.
    let asked = asked.unwrap_or_else(|| batch.ints("moved_bytes")[row]);
    Some((file, op, offset.unwrap_or(-1), asked))
}

/// Converts a batch to requests; the details of its commands must already be read.
pub(crate) fn requests(
    batch: &Batch,
    devices: &mut Devices,
    details: &mut CommandDetails,
    each: &mut dyn FnMut(TableRow),
) {
    let (ids, times) = (batch.ints("record_id"), batch.ints("request_first"));
    for ((row, time_ns), name) in times.iter().enumerate().zip(batch.texts("operation")) {
        let fua = details.take_forced(ids[row]);
        let found = asked_for(batch, row, name);
        let Some((file, op, offset, asked)) = found else {
            each(TableRow::Other);
            continue;
        };
        let extents_of = details.take_extents(ids[row]);
        let status = int(batch, "status", row).map(|status| status as u32);
        let outcome = TransferOutcome::of(status, int(batch, "latency_ns", row).is_some());
        if !outcome.is_transfer() {
            each(TableRow::LeftOut(outcome));
            continue;
        }
        let mut request = |op, offset: u64, len_bytes: u32| {
            let device = devices.index_of(format!("{:016x}", file as u64).as_bytes())?;
            let request =
                BlockRequest::new(u64::try_from(*time_ns).ok()?, device, op, offset, len_bytes);
            // The request ends with the last byte of its reply.
            let span = int(batch, "reply_span_ns", row).unwrap_or(0);
            let response =
                int(batch, "latency_ns", row).map(|latency| latency.saturating_add(span));
            Some(BlockRequest {
                fua,
                response_ns: count(response),
                ..request
            })
        };
        if op != TraceOp::Unmap {
            let place = u64::try_from(offset).ok().zip(u32::try_from(asked).ok());
            each(parsed(|| {
                place.and_then(|(offset, len)| request(op, offset, len))
            }));
            continue;
        }
        // The extent list or the block size is unknown.
        let Some(ExtentsOf { op, extents, .. }) = extents_of else {
            each(TableRow::Damaged);
            continue;
        };
        if op == TraceOp::Write && extents.iter().all(|extent| extent.len_bytes == 0) {
            // The command extends to the end of the medium, which is unknown, or exceeds 64-bit byte addresses.
            each(TableRow::Damaged);
        }
        // One request per extent: an UNMAP may have many.
        for (offset, len) in extents.into_iter().flat_map(CommandExtent::pieces) {
            match parsed(|| request(op, offset, len)) {
                TableRow::Request(request) if op == TraceOp::Write => {
                    each(TableRow::Repeated(request))
                }
                row => each(row),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use brunt_lake::{TableWriter, WriterOptions};

    use super::*;
    use crate::TraceReader;

    /// The number of waiting details is bounded, and dropped ones are counted.
    #[test]
    fn dropped_details_are_counted() {
        let mut details = CommandDetails {
            unmatched_max: 2,
            ..CommandDetails::default()
        };
        details.forced.extend([1, 2]);
        let unmap = ExtentsOf {
            op: TraceOp::Unmap,
            block_bytes: 512,
            extents: Vec::new(),
        };
        details.extents_of.insert(1, unmap.clone());
        details.make_room();
        assert_eq!((details.dropped(), details.take_forced(1)), (0, true));
        details.forced.extend([3, 4]);
        details
            .extents_of
            .extend([2, 3].map(|id| (id, unmap.clone())));
        details.make_room();
        assert_eq!(
            (
                details.dropped(),
                details.take_forced(3),
                details.take_extents(1)
            ),
            (6, false, None)
        );
    }

    #[test]
    fn long_extents_are_split_and_impossible_ones_rejected() {
        let check = |lba: i64, blocks: i64, expected: &[(u64, u32)]| {
            let extent = CommandExtent::of(lba, blocks, 512);
            assert_eq!(
                extent
                    .into_iter()
                    .flat_map(CommandExtent::pieces)
                    .collect::<Vec<_>>(),
                expected
            );
        };
        check(8, 16, &[(4096, 8192)]);
        check(8, 0, &[]);
        check(1, 1 << 23, &[(512, 1 << 31), (512 + (1 << 31), 1 << 31)]);
        check(-1, 1, &[]);
        check(i64::MAX, 1, &[]);
    }

    /// A WRITE SAME that writes becomes a write of all its blocks, and is counted. With its UNMAP bit set, it becomes
    /// an unmap. If it extends to the unknown end of the medium, its row is damaged.
    #[test]
    fn write_same_becomes_a_write_or_an_unmap() {
        let folder = tempfile::tempdir().unwrap();
        let table =
            |table| TableWriter::create(folder.path(), table, WriterOptions::default()).unwrap();
        let (mut operations, mut commands) = (table(&CAPTURED), table(&COMMANDS));
        for (id, cdb, blocks, status) in [
            (0, "9300", 16, Some(0)),
            (1, "4108", 8, Some(0)),
            (2, "9301", 0, Some(0)),
            (3, "9300", 16, Some(2)),
            (4, "9300", 16, None),
        ] {
            let row = operations
                .rows()
                .row()
                .int(id)
                .text("SCSI WRITE SAME")
                .int(1000 + id);
            let row = row
                .int_or_null(Some(50))
                .int_or_null(status)
                .int_or_null(Some(0))
                .int_or_null(Some(7));
            row.null().null().null().int(0).end();
            let row = commands
                .rows()
                .row()
                .int(id)
                .text_or_null(Some(cdb))
                .int_or_null(Some(8));
            row.int_or_null(Some(blocks))
                .int_or_null(Some(512))
                .null()
                .end();
        }
        operations.finish().unwrap();
        commands.finish().unwrap();
        let mut reader = TraceReader::open(folder.path(), None, false).unwrap();
        let mut requests = Vec::new();
        while let Some(more) = reader.next_requests().unwrap() {
            requests.extend(
                more.iter()
                    .map(|one| (one.op, one.offset_bytes, one.len_bytes)),
            );
        }
        assert_eq!(
            requests,
            [(TraceOp::Write, 4096, 8192), (TraceOp::Unmap, 4096, 4096)]
        );
        let ledger = reader.ledger();
        assert_eq!((ledger.repeated, ledger.damaged), (1, 1));
        let left_out = (ledger.left_out.failed, ledger.left_out.status_unseen);
        assert_eq!(left_out, (1, 1), "none of those that failed is sent again");
    }

    #[test]
    fn the_cdb_shows_which_commands_force_data() {
        let check = |cdb: &str, expected| assert_eq!(forces(cdb), expected, "{cdb}");
        check("2a080000000000000800", true);
        check("2a000000000000000800", false);
        check("8a08000000000000000000000008000000", true);
        check("0a080000080000", false);
        check("35080000000000000000", false);
        let same = ["4108000000000000", "9308", "9300", "9301", "2a08", ""].map(write_same);
        let (unmap, write) = (Some(TraceOp::Unmap), Some(TraceOp::Write));
        assert_eq!(same, [unmap, unmap, write, write, None, None]);
        for cdb in ["", "2", "2a", "2a0", "zz08", "2é08"] {
            check(cdb, false);
        }
    }
}
