//! Writes a lake part: a large file of many row groups, with everything that lets an engine skip data. Called by
//! `spread`.
//!
//! - Each group is sorted by a column, named in the metadata (`sorting_columns`).
//! - Columns have pages of 16,384 rows, with minimum and maximum for each (column and offset index).
//! - Columns that are queried by value have a Bloom filter for each group.
//! - Checksums precede the footer (`sums`), as in captured parts.
//!
//! Unlike in `encode`, the library writes the pages: it supports indexes and filters, and speed matters less here.
//!
//! The rule: the file gets its name only once it is complete and durable.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use crate::batch::Batch;
use crate::cells::{Cells, Values};
use crate::compact::LakeLayout;
use crate::encode::{EncodedColumn, TABLE_KEY, schema};
use crate::error::LakeError;
use crate::integer_times;
use crate::origin::PartOrigin;
use crate::sums;
use crate::table::{Coding, ColumnKind};

/// Rows per page: the minimum that an engine reads from a column to get a single value.
const PAGE_ROWS: usize = 1 << 14;
/// Files are a tenth smaller than with level 1 and as fast to read; lake parts are written once and read for years.
const ZSTD_LEVEL: i32 = 3;
/// False positive rate of a Bloom filter.
const BLOOM_FALSE_SHARE: f64 = 0.01;

/// A part being written.
pub(crate) struct PartWriter {
    open: PathBuf,
    file: File,
    /// Writes to `file`.
    writer: SerializedFileWriter<BufWriter<File>>,
    rows: u64,
}

/// A finished part.
pub(crate) struct FinishedPart {
    pub rows: u64,
    pub bytes: u64,
    /// Index in the table, minimum and maximum of each integer column.
    pub extremes: Vec<(usize, (i64, i64))>,
}

impl PartWriter {
    /// Creates a part in the file `open`. `origin` is the origin of its rows, if known.
    pub fn create(
        open: PathBuf,
        layout: &LakeLayout,
        origin: Option<&PartOrigin>,
    ) -> Result<PartWriter, LakeError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&open);
        let file = file.map_err(|error| LakeError::writing(&open, 0, error))?;
        let same = file.try_clone().map_err(LakeError::io(&open))?;
        let writer = SerializedFileWriter::new(
            BufWriter::new(same),
            schema(layout.table),
            Arc::new(properties(layout, origin)),
        );
        let writer = writer.map_err(|error| unwritten(&open, 0, error))?;
        Ok(PartWriter {
            open,
            file,
            writer,
            rows: 0,
        })
    }

    /// Writes rows as a group, in their current order.
    pub fn write(&mut self, rows: &Batch) -> Result<(), LakeError> {
        let bytes = rows.bytes() as u64;
        let mut write = || {
            let mut group = self.writer.next_row_group()?;
            for cells in rows.cells() {
                let mut column = group.next_column()?.expect("one writer per column");
                write_column(column.untyped(), cells)?;
                column.close()?;
            }
            group.close().map(drop)
        };
        write().map_err(|error| unwritten(&self.open, bytes, error))?;
        self.rows += rows.rows() as u64;
        Ok(())
    }

    /// Writes encoded columns as a group.
    pub fn write_encoded(
        &mut self,
        columns: Vec<EncodedColumn>,
        rows: u64,
    ) -> Result<(), LakeError> {
        let write = || {
            let mut group = self.writer.next_row_group()?;
            columns
                .into_iter()
                .try_for_each(|(bytes, closed)| group.append_column(&bytes, closed))?;
            group.close().map(drop)
        };
        write().map_err(|error| unwritten(&self.open, 0, error))?;
        self.rows += rows;
        Ok(())
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Completes the file under the name it was created with, and syncs it.
    pub fn finish(self) -> Result<FinishedPart, LakeError> {
        let PartWriter {
            open: path,
            file,
            writer,
            rows,
        } = self;
        let metadata = writer.close().map_err(|error| unwritten(&path, 0, error))?;
        let extremes = extremes(&metadata);
        let metadata =
            integer_times::add_to(&file, metadata).map_err(|error| unwritten(&path, 0, error))?;
        let places: Vec<Range<u64>> = metadata
            .row_groups()
            .iter()
            .flat_map(|group| group.columns())
            .map(|column| column.byte_range())
            .map(|(start, len)| start..start + len)
            .collect();
        let seal = || {
            sums::insert_into(&file, &places)?;
            file.sync_all()?;
            Ok(file.metadata()?.len())
        };
        let bytes = seal().map_err(|error| LakeError::writing(&path, 0, error))?;
        Ok(FinishedPart {
            rows,
            bytes,
            extremes,
        })
    }
}

/// Converts an error of the library, which wraps I/O errors in its own.
fn unwritten(path: &Path, bytes: u64, error: ParquetError) -> LakeError {
    let source = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => *source,
            Err(source) => std::io::Error::other(source),
        },
        error => std::io::Error::other(error),
    };
    LakeError::writing(path, bytes, source)
}

fn write_column(writer: &mut ColumnWriter<'_>, cells: &Cells) -> Result<(), ParquetError> {
    let levels = (!cells.levels.is_empty()).then_some(cells.levels.as_slice());
    let has_value = |row: usize| cells.nulls == 0 || cells.levels[row] == 1;
    match (&cells.values, writer) {
        (Values::Ints(values), ColumnWriter::Int64ColumnWriter(writer)) => {
            writer.write_batch(&present(values, cells), levels, None)
        }
        (Values::Floats(values), ColumnWriter::DoubleColumnWriter(writer)) => {
            writer.write_batch(&present(values, cells), levels, None)
        }
        (Values::Bools(values), ColumnWriter::BoolColumnWriter(writer)) => {
            writer.write_batch(&present(values, cells), levels, None)
        }
        (Values::Texts(texts), ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let all = Bytes::copy_from_slice(texts.bytes.as_bytes());
            let rows = (0..texts.ends.len()).filter(|row| has_value(*row));
            let values: Vec<_> = rows
                .map(|row| ByteArray::from(all.slice(texts.range(row))))
                .collect();
            writer.write_batch(&values, levels, None)
        }
        (Values::Bytes(strings), ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let rows = (0..strings.ends.len()).filter(|row| has_value(*row));
            let values: Vec<_> = rows
                .map(|row| ByteArray::from(strings.string(row).to_vec()))
                .collect();
            writer.write_batch(&values, levels, None)
        }
        _ => Err(ParquetError::General("column of the wrong type".into())),
    }
    .map(drop)
}

/// The non-null values.
fn present<'v, T: Copy>(values: &'v [T], cells: &Cells) -> std::borrow::Cow<'v, [T]> {
    if cells.nulls == 0 {
        return values.into();
    }
    let present = values
        .iter()
        .zip(&cells.levels)
        .filter(|(_, level)| **level == 1);
    present.map(|(value, _)| *value).collect::<Vec<_>>().into()
}

/// Minimum and maximum of each integer column over all groups, for columns where every group has them.
pub(crate) fn extremes(metadata: &ParquetMetaData) -> Vec<(usize, (i64, i64))> {
    let columns = metadata.file_metadata().schema_descr().num_columns();
    let of = |index: usize| {
        let mut all: Option<(i64, i64)> = None;
        for group in metadata.row_groups() {
            let (min, max) = int_extremes(group.column(index).statistics()?)?;
            all = Some(all.map_or((min, max), |(least, most)| (least.min(min), most.max(max))));
        }
        all
    };
    (0..columns)
        .filter_map(|index| of(index).map(|extremes| (index, extremes)))
        .collect()
}

/// Minimum and maximum of an integer column; `None` if it has no values.
pub(crate) fn int_extremes(statistics: &Statistics) -> Option<(i64, i64)> {
    match statistics {
        Statistics::Int64(values) => values.min_opt().copied().zip(values.max_opt().copied()),
        _ => None,
    }
}

fn properties(layout: &LakeLayout, origin: Option<&PartOrigin>) -> WriterProperties {
    let table = layout.table;
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("a valid zstd level");
    let sorting = layout.order.map(|order| {
        vec![SortingColumn {
            column_idx: table.index_of(order) as i32,
            descending: false,
            nulls_first: true,
        }]
    });
    let mut about = vec![KeyValue::new(TABLE_KEY.to_string(), table.name.to_string())];
    about.extend(origin.map(PartOrigin::to_metadata));
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("brunt version ", env!("CARGO_PKG_VERSION")).to_string())
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_max_row_group_row_count(None)
        .set_sorting_columns(sorting)
        .set_key_value_metadata(Some(about));
    for column in table.columns {
        let path = ColumnPath::from(column.name);
        let plainly = |properties: WriterPropertiesBuilder, encoding| {
            let properties = properties.set_column_dictionary_enabled(path.clone(), false);
            properties.set_column_encoding(path.clone(), encoding)
        };
        properties = match (column.coding, column.kind) {
            (Coding::Dictionary, _) => properties.set_column_dictionary_enabled(path.clone(), true),
            (Coding::Delta, ColumnKind::Text | ColumnKind::Bytes) => {
                plainly(properties, Encoding::DELTA_LENGTH_BYTE_ARRAY)
            }
            (Coding::Delta, _) => plainly(properties, Encoding::DELTA_BINARY_PACKED),
            (Coding::Plain, _) => plainly(properties, Encoding::PLAIN),
        };
        if layout.blooms.contains(&column.name) {
            properties = properties
                .set_column_bloom_filter_enabled(path.clone(), true)
                .set_column_bloom_filter_fpp(path, BLOOM_FALSE_SHARE);
        }
    }
    properties.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Placing;
    use crate::reader::PartReader;
    use crate::table::{Column, Table};

    static TABLE: Table = Table {
        name: "kinds",
        doc: "Rows.",
        columns: &[
            Column::int("number", "An integer."),
            Column::int("code", "An integer of few.")
                .coded(Coding::Dictionary)
                .nullable(),
            Column::time("at", "A time.").nullable(),
            Column::float("share", "A double.").nullable(),
            Column::bool("good", "A truth value.").nullable(),
            Column::text("name", "A text of few.").nullable(),
            Column::text("path", "A text.")
                .coded(Coding::Delta)
                .nullable(),
            Column::bytes("bits", "Bytes.").nullable(),
        ],
    };

    /// Columns of every kind read back equal, with and without nulls, over several groups; a changed byte is detected.
    #[test]
    fn columns_of_every_kind_read_back_equal() {
        let layout = LakeLayout {
            table: &TABLE,
            placing: Placing::Nowhere,
            order: Some("number"),
            blooms: vec!["code"],
            ids: Vec::new(),
            pipeline: None,
            tap: None,
            clock: None,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part.parquet");
        let mut writer = PartWriter::create(path.clone(), &layout, None).unwrap();
        let groups = [0..50_000, 50_000..50_010].map(|numbers: Range<i64>| {
            let mut rows = Batch::new(&TABLE);
            for number in numbers {
                let row = rows.row().int(number);
                if number % 3 == 0 {
                    row.null().null().null().null().null().null().null().end();
                    continue;
                }
                let row = row
                    .int(number % 5)
                    .int(number << 30)
                    .float(number as f64 / 2.0)
                    .bool(number % 2 == 0);
                let text = number.to_string();
                row.text(["x", "longer"][number as usize % 2])
                    .text(&text)
                    .bytes(text.as_bytes())
                    .end();
            }
            writer.write(&rows).unwrap();
            rows
        });
        let finished = writer.finish().unwrap();
        assert_eq!(
            (finished.rows, finished.extremes[0]),
            (50_010, (0, (0, 50_009)))
        );
        let (mut read, mut texts) = (Batch::new(&TABLE), Vec::new());
        let mut part = PartReader::open(path.clone(), &TABLE).unwrap();
        for (group, written) in groups.iter().enumerate() {
            part.read_group(group, &mut read, &mut texts).unwrap();
            assert_eq!(read.ints("number"), written.ints("number"));
            assert!(
                read.texts("path").eq(written.texts("path"))
                    && read.texts("name").eq(written.texts("name"))
            );
            assert!(read.byte_strings("bits").eq(written.byte_strings("bits")));
            for column in &TABLE.columns[1..] {
                for row in 0..read.rows() {
                    assert_eq!(
                        read.is_null(column.name, row),
                        written.is_null(column.name, row)
                    );
                }
            }
            for row in (0..read.rows()).filter(|row| !read.is_null("code", *row)) {
                let of = |rows: &Batch| {
                    (
                        rows.ints("code")[row],
                        rows.ints("at")[row],
                        rows.floats("share")[row],
                        rows.bools("good")[row],
                    )
                };
                assert_eq!(of(&read), of(written));
            }
        }
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1000] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let mut part = PartReader::open(path, &TABLE).unwrap();
        let error = part.read_group(0, &mut read, &mut texts).unwrap_err();
        assert!(error.is_of_one_part(), "{error}");
    }
}
