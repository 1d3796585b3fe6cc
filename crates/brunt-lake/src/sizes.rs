//! Measures the disk space of a table, and the size of its values before encoding, as printed by `brunt-bench capture`
//! for a trace. Reads only the parts' footers.
//!
//! The rule: values that aren't in a footer aren't estimated. Unencoded texts are counted as stored in the pages,
//! including the dictionary.

use std::fs::File;
use std::ops::AddAssign;
use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::error::LakeError;
use crate::reader::parts;
use crate::table::Table;

/// The sizes of one or more tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// Number of complete parts.
    pub parts: u64,
    /// Number of rows in those parts.
    pub rows: u64,
    /// Size of the unencoded values: eight bytes per number or time, one per boolean, texts as in the pages.
    pub value_bytes: u64,
    /// Size of the pages before compression: bit-packed deltas and dictionary indexes.
    pub packed_bytes: u64,
    /// Size of the files, including footers.
    pub file_bytes: u64,
}

impl AddAssign for TableSizes {
    fn add_assign(&mut self, other: TableSizes) {
        self.parts += other.parts;
        self.rows += other.rows;
        self.value_bytes += other.value_bytes;
        self.packed_bytes += other.packed_bytes;
        self.file_bytes += other.file_bytes;
    }
}

/// Sizes of the complete parts of a table in `root`; all zero if there is no such table.
///
/// # Errors
/// The folder or a part cannot be read, or a part isn't a Parquet file.
pub fn table_sizes(root: &Path, table: &Table) -> Result<TableSizes, LakeError> {
    let mut sum = TableSizes::default();
    for part in parts(root, table)? {
        let file = File::open(&part.path).map_err(LakeError::io(&part.path))?;
        let file_bytes = file.metadata().map_err(LakeError::io(&part.path))?.len();
        let damaged = |error: parquet::errors::ParquetError| LakeError::Damaged {
            path: part.path.clone(),
            what: error.to_string(),
        };
        let reader = SerializedFileReader::new(file).map_err(damaged)?;
        let groups = reader.metadata().row_groups();
        // Skip twins: they refer to the same bytes as their time columns.
        let is_own = |name: &str| table.columns.iter().any(|column| column.name == name);
        let columns = || {
            let all = groups.iter().flat_map(|group| group.columns());
            all.filter(|column| is_own(column.column_descr().name()))
        };
        sum += TableSizes {
            parts: 1,
            rows: groups.iter().map(|group| count(group.num_rows())).sum(),
            value_bytes: columns().map(value_bytes).sum(),
            packed_bytes: columns()
                .map(|column| count(column.uncompressed_size()))
                .sum(),
            file_bytes,
        };
    }
    Ok(sum)
}

fn value_bytes(column: &ColumnChunkMetaData) -> u64 {
    let nulls = column
        .statistics()
        .and_then(|statistics| statistics.null_count_opt())
        .unwrap_or(0);
    let values = count(column.num_values()).saturating_sub(nulls);
    match column.column_type() {
        Physical::BOOLEAN => values,
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => count(column.uncompressed_size()),
        _ => values.saturating_mul(8),
    }
}

/// A count from a footer, which may contain any value.
fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, TableWriter, WriterOptions};

    static TABLE: Table = Table {
        name: "numbers",
        doc: "Numbers.",
        columns: &[
            Column::int("ascending", "One more each time."),
            Column::int("seldom", "Null but for every tenth row.").nullable(),
            Column::bool("odd", "Whether the first is odd."),
        ],
    };

    /// Unencoded numbers count eight bytes and booleans one; packed sizes are smaller; file sizes are those on disk.
    #[test]
    fn sizes_of_values_pages_and_files_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            table_sizes(folder.path(), &TABLE).unwrap(),
            TableSizes::default()
        );
        let mut writer =
            TableWriter::create(folder.path(), &TABLE, WriterOptions::default()).unwrap();
        for number in 0..10_000 {
            let row = writer.rows().row().int(number);
            let row = if number % 10 == 0 {
                row.int(number)
            } else {
                row.null()
            };
            row.bool(number % 2 == 1).end();
        }
        writer.finish().unwrap();
        let sizes = table_sizes(folder.path(), &TABLE).unwrap();
        let on_disk: u64 = std::fs::read_dir(folder.path().join("numbers"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert_eq!((sizes.parts, sizes.rows), (1, 10_000));
        assert_eq!(sizes.value_bytes, 8 * 10_000 + 8 * 1_000 + 10_000);
        assert_eq!(sizes.file_bytes, on_disk);
        assert!(sizes.packed_bytes * 4 < sizes.value_bytes, "{sizes:?}");
    }

    /// A file that isn't a part causes an error that names it.
    #[test]
    fn a_file_that_is_not_a_part_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("numbers")).unwrap();
        std::fs::write(
            folder.path().join("numbers/part-000000.parquet"),
            "PAR1 and no more",
        )
        .unwrap();
        let error = table_sizes(folder.path(), &TABLE).unwrap_err();
        assert!(error.to_string().contains("part-000000.parquet"), "{error}");
    }
}
