//! Sums of data blocks: the table `checksums`.

use brunt_lake::{Coding, Column, Table};

use super::common::{Common, FILE};
use super::rows::{Handle, Registry, Tabled, WrittenBy};
use crate::checksum::BLOCK_BYTES;
use crate::operation::ChecksumRun;

/// Sums of blocks.
pub const CHECKSUMS: Table = Table {
    name: "checksums",
    doc: "One row for each block of 512 bytes at a multiple of 512 in its file that was read or written as a whole.",
    columns: &[
        Column::int("record_id", "The READ or WRITE; null if its call was retransmitted.").nullable(),
        FILE,
        Column::bool("write", "Whether it went to the server."),
        Column::int("offset_bytes", "Where in the file."),
        Column::int("sum", "XXH3 of the block, 64 bits.").coded(Coding::Plain),
    ],
};

struct ChecksumsTable;

impl Tabled for ChecksumsTable {
    const TABLE: &'static Table = &CHECKSUMS;
    const BY: WrittenBy = WrittenBy::Bulk;
}

/// The sums of a pipeline.
pub struct Checksums {
    table: Handle<ChecksumsTable>,
}

impl Checksums {
    pub fn register(registry: &mut Registry) -> Checksums {
        Checksums { table: registry.add() }
    }

    pub fn record(&mut self, run: &ChecksumRun<'_>, common: &mut Common) {
        let id = (run.record_id != u64::MAX).then(|| common.number(run.record_id));
        let file = common.hide.file(run.file);
        let Common { rows, hide, .. } = common;
        for (offset, sum) in (run.offset..).step_by(BLOCK_BYTES).zip(run.sums) {
            let line = rows.line(self.table).int_or_null(id).int(file).bool(run.write);
            line.int(offset as i64).int(hide.sum(*sum)).end();
        }
    }
}
