//! Makes times readable as plain integers as well: in the footer, each time column has a twin, `NAME_ns`, that refers
//! to the same bytes in the file. [`crate::part_writer`] adds twins to lake parts.
//!
//! ```text
//!   columns  | request_first: INT64 …             the bytes, once
//!   footer   | request_first     TIMESTAMP(NANOS, UTC)  at 4711, 1802 bytes
//!            | request_first_ns  INT64                  at 4711, 1802 bytes
//! ```
//!
//! No table format has a nanosecond type that DuckDB, Spark and Sail all read (docs/table-formats.md), but all of them
//! read an integer. A twin costs some 100 bytes of footer per column and row group.
//!
//! The rule: twins come after a table's own columns, so that a column has the same index with and without them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parquet::basic::{LogicalType, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};

use crate::sums::{TAIL_BYTES, footer_start};
use crate::table::{Column, ColumnKind};

/// The name of a time column's twin.
pub fn twin_name(column: &str) -> String {
    format!("{column}_ns")
}

/// The name of the column that every engine can read: the twin for times, the column itself otherwise.
pub(crate) fn plain_name(column: &Column) -> String {
    if column.kind == ColumnKind::Time {
        twin_name(column.name)
    } else {
        column.name.to_string()
    }
}

/// The footer with twins of the time columns; `None` if there are no time columns. Page indexes and Bloom filters keep
/// their positions in the file.
fn with_twins(metadata: &ParquetMetaData) -> Result<Option<ParquetMetaData>, ParquetError> {
    let about = metadata.file_metadata();
    let mut fields = about.schema().get_fields().to_vec();
    let times: Vec<usize> = (0..fields.len())
        .filter(|index| is_time(&fields[*index]))
        .collect();
    if times.is_empty() {
        return Ok(None);
    }
    for index in &times {
        let name = twin_name(fields[*index].name());
        let repetition = fields[*index].get_basic_info().repetition();
        let twin = Type::primitive_type_builder(&name, Physical::INT64)
            .with_repetition(repetition)
            .build()?;
        fields.push(Arc::new(twin));
    }
    let columns = fields.len();
    let schema = Type::group_type_builder(about.schema().name())
        .with_fields(fields)
        .build()?;
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    for group in metadata.row_groups() {
        let mut chunks = group.columns().to_vec();
        for (index, place) in times.iter().zip(columns - times.len()..) {
            chunks.push(twin(group.column(*index), schema.column(place))?);
        }
        let mut with_twins = RowGroupMetaData::builder(Arc::clone(&schema))
            .set_num_rows(group.num_rows())
            .set_total_byte_size(group.total_byte_size())
            .set_sorting_columns(group.sorting_columns().cloned())
            .set_column_metadata(chunks);
        if let Some(ordinal) = group.ordinal() {
            with_twins = with_twins.set_ordinal(ordinal);
        }
        if let Some(offset) = group.file_offset() {
            with_twins = with_twins.set_file_offset(offset);
        }
        groups.push(with_twins.build()?);
    }
    let about = FileMetaData::new(
        about.version(),
        about.num_rows(),
        about.created_by().map(str::to_string),
        about.key_value_metadata().cloned(),
        schema,
        None,
    );
    Ok(Some(ParquetMetaData::new(about, groups)))
}

/// Adds twins to a complete file: takes the metadata from closing the file and returns the final metadata.
pub(crate) fn add_to(
    file: &File,
    metadata: ParquetMetaData,
) -> Result<ParquetMetaData, ParquetError> {
    let Some(metadata) = with_twins(&metadata)? else {
        return Ok(metadata);
    };
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
    let len = file.metadata()?.len();
    let mut tail = [0; TAIL_BYTES];
    file.read_exact_at(&mut tail, len.saturating_sub(TAIL_BYTES as u64))?;
    let start = footer_start(tail, len).ok_or_else(|| ParquetError::EOF("no footer".into()))?;
    file.set_len(start)?;
    file.write_all_at(&footer, start)?;
    Ok(metadata)
}

fn is_time(field: &Type) -> bool {
    let logical = field.get_basic_info().logical_type_ref();
    logical == Some(&LogicalType::timestamp(true, TimeUnit::NANOS))
}

/// The same column chunk under another name.
fn twin(
    chunk: &ColumnChunkMetaData,
    descriptor: ColumnDescPtr,
) -> Result<ColumnChunkMetaData, ParquetError> {
    let mut twin = ColumnChunkMetaData::builder(descriptor)
        .set_compression(chunk.compression())
        .set_encodings(chunk.encodings().collect())
        .set_num_values(chunk.num_values())
        .set_total_compressed_size(chunk.compressed_size())
        .set_total_uncompressed_size(chunk.uncompressed_size())
        .set_dictionary_page_offset(chunk.dictionary_page_offset())
        .set_data_page_offset(chunk.data_page_offset())
        .set_offset_index_offset(chunk.offset_index_offset())
        .set_offset_index_length(chunk.offset_index_length())
        .set_column_index_offset(chunk.column_index_offset())
        .set_column_index_length(chunk.column_index_length());
    if let Some(statistics) = chunk.statistics() {
        twin = twin.set_statistics(statistics.clone());
    }
    twin.build()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::column::reader::ColumnReader;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::batch::Batch;
    use crate::encode::{Buffers, Encoder};
    use crate::table::Table;

    const TABLE: Table = Table {
        name: "t",
        doc: "Rows.",
        columns: &[
            Column::time("at", "When."),
            Column::text("what", "What."),
            Column::time("until", "Until when.").nullable(),
        ],
    };

    fn ints(
        group: &dyn parquet::file::reader::RowGroupReader,
        column: usize,
    ) -> (Vec<i64>, Vec<i16>) {
        let ColumnReader::Int64ColumnReader(mut reader) = group.get_column_reader(column).unwrap()
        else {
            panic!("no integers")
        };
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        reader
            .read_records(1000, Some(&mut levels), None, &mut values)
            .unwrap();
        (values, levels)
    }

    /// A twin has the same values, nulls and extremes as its column and takes space only in the footer.
    #[test]
    fn twins_are_the_same_bytes() {
        let mut batch = Batch::new(&TABLE);
        for at in 0..1000 {
            let row = batch.row().int(at * at).text("something");
            row.int_or_null((at % 3 == 0).then_some(at)).end();
        }
        let mut buffers = Buffers::default();
        Encoder::new(&TABLE)
            .encode(&batch, None, &mut buffers)
            .unwrap();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&buffers.file, 0).unwrap();
        let before = SerializedFileReader::new(file.try_clone().unwrap()).unwrap();
        let told = add_to(&file, before.metadata().clone()).unwrap();
        let more = file.metadata().unwrap().len() as usize - buffers.file.len();
        assert!(more < 600, "{more} bytes more");
        let after = SerializedFileReader::new(file).unwrap();
        assert_eq!(
            told.row_groups()[0].num_columns(),
            after.metadata().row_groups()[0].num_columns()
        );
        let schema = after.metadata().file_metadata().schema_descr();
        let names: Vec<_> = schema
            .columns()
            .iter()
            .map(|column| column.name())
            .collect();
        assert_eq!(names, ["at", "what", "until", "at_ns", "until_ns"]);
        assert_eq!(schema.column(3).logical_type_ref(), None);
        let group = after.get_row_group(0).unwrap();
        for (column, twin) in [(0, 3), (2, 4)] {
            assert_eq!(ints(&*group, column), ints(&*group, twin));
            let [column, twin] = [column, twin].map(|index| group.metadata().column(index));
            assert_eq!(column.byte_range(), twin.byte_range());
            assert_eq!(column.statistics(), twin.statistics());
        }
    }

    /// A table without times gets no twins.
    #[test]
    fn a_table_without_times_gets_no_twins() {
        const PLAIN: Table = Table {
            name: "t",
            doc: "Rows.",
            columns: &[Column::int("a_ns", "A duration.")],
        };
        let mut buffers = Buffers::default();
        Encoder::new(&PLAIN)
            .encode(&Batch::new(&PLAIN), None, &mut buffers)
            .unwrap();
        let reader = SerializedFileReader::new(Bytes::from(buffers.file)).unwrap();
        assert!(with_twins(reader.metadata()).unwrap().is_none());
    }
}
