//! Checksums of data blocks: the table `checksums`.

use brunt_lake::{Coding, Column, Table};

use super::common::{Common, FILE};
use super::rows::{Handle, Registry, Tabled, WrittenBy};
use crate::checksum::BLOCK_BYTES;
use crate::operation::ChecksumRun;

/// Checksums of blocks.
pub const CHECKSUMS: Table = Table {
    name: "checksums",
    doc: "One row for each 512-byte block (aligned to 512 bytes in its file) that was completely read or written.",
    columns: &[
        Column::int(
            "record_id",
            "The READ or WRITE; null if its call was retransmitted.",
        )
        .nullable(),
        FILE,
        Column::bool("write", "Whether the block was written."),
        Column::int("offset_bytes", "Offset in the file."),
        Column::int("sum", "XXH3 of the block, 64 bits.").coded(Coding::Plain),
    ],
};

struct ChecksumsTable;

impl Tabled for ChecksumsTable {
    const TABLE: &'static Table = &CHECKSUMS;
    const BY: WrittenBy = WrittenBy::Bulk;
}

/// The checksum table of a pipeline.
pub struct Checksums {
    table: Handle<ChecksumsTable>,
}

impl Checksums {
    pub fn register(registry: &mut Registry) -> Checksums {
        Checksums {
            table: registry.add(),
        }
    }

    pub fn record(&mut self, run: &ChecksumRun<'_>, common: &mut Common) {
        let id = (run.record_id != u64::MAX).then(|| common.number(run.record_id));
        let file = common.hide.file(run.file);
        let Common { rows, hide, .. } = common;
        let (mut offset, mut sums) = (run.offset, run.sums);
        while !sums.is_empty() {
            let lines = rows
                .words(self.table)
                .lines(ChecksumsTable::TABLE, sums.len());
            let (now, rest) = sums.split_at(lines.count());
            let offsets = (0..).map(|block| offset.wrapping_add(block * BLOCK_BYTES as u64) as i64);
            let lines = lines
                .same_or_null(id)
                .same(file)
                .same(run.write.into())
                .ints(offsets);
            lines.ints(now.iter().map(|sum| hide.sum(*sum))).end();
            offset = offset.wrapping_add((now.len() * BLOCK_BYTES) as u64);
            sums = rest;
        }
    }
}
