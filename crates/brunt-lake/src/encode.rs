//! A batch as the bytes of a Parquet file: one row group, zstd, each column laid out as its
//! description says. Pure: the writer puts the bytes on a disk.
//!
//! The rule: every reader understands it: data pages of version 1, no unsigned or nested types.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel,
};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::batch::{Batch, Cells, Values};
use crate::table::{Coding, Column, Kind, Table};

/// Enough for three quarters of what higher levels save, at several hundred megabytes a second.
const ZSTD_LEVEL: i32 = 1;
/// Key of the table's name in the file's metadata.
pub(crate) const TABLE_KEY: &str = "brunt.table";

/// Makes files of one table.
pub(crate) struct Encoder {
    schema: TypePtr,
    properties: Arc<WriterProperties>,
    /// Values of a column without its nulls, reused.
    ints: Vec<i64>,
    floats: Vec<f64>,
    bools: Vec<bool>,
    texts: Vec<ByteArray>,
}

impl Encoder {
    pub fn new(table: &'static Table) -> Encoder {
        let fields = table.columns.iter().map(|column| Arc::new(field(column))).collect();
        let schema = Type::group_type_builder(table.name).with_fields(fields).build();
        Encoder {
            schema: Arc::new(schema.expect("flat columns make a schema")),
            properties: Arc::new(properties(table)),
            ints: Vec::new(),
            floats: Vec::new(),
            bools: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Fills `file`, which is emptied first. A batch without rows is a file without row groups.
    pub fn encode(&mut self, batch: &Batch, file: &mut Vec<u8>) -> Result<(), ParquetError> {
        file.clear();
        let mut writer =
            SerializedFileWriter::new(file, Arc::clone(&self.schema), Arc::clone(&self.properties))?;
        if !batch.is_empty() {
            let mut group = writer.next_row_group()?;
            for cells in batch.cells() {
                let mut column = group.next_column()?.expect("as many as the schema has");
                self.column(cells, column.untyped())?;
                column.close()?;
            }
            group.close()?;
        }
        writer.close().map(drop)
    }

    fn column(&mut self, cells: &Cells, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = (!cells.levels.is_empty()).then_some(cells.levels.as_slice());
        let whole = cells.nulls == 0;
        match (&cells.values, writer) {
            (Values::Ints(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                let values = if whole { values } else { present(values, &cells.levels, &mut self.ints) };
                writer.write_batch(values, levels, None)?;
            }
            (Values::Floats(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                let values = if whole { values } else { present(values, &cells.levels, &mut self.floats) };
                writer.write_batch(values, levels, None)?;
            }
            (Values::Bools(values), ColumnWriter::BoolColumnWriter(writer)) => {
                let values = if whole { values } else { present(values, &cells.levels, &mut self.bools) };
                writer.write_batch(values, levels, None)?;
            }
            (Values::Texts(texts), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                // One copy of all texts; each value is a window on it.
                let bytes = Bytes::copy_from_slice(texts.bytes.as_bytes());
                let rows = 0..texts.ends.len();
                let present = rows.filter(|row| whole || cells.levels[*row] == 1);
                self.texts.clear();
                self.texts.extend(present.map(|row| ByteArray::from(bytes.slice(texts.range(row)))));
                writer.write_batch(&self.texts, levels, None)?;
                self.texts.clear();
            }
            _ => unreachable!("the schema follows from the table"),
        }
        Ok(())
    }
}

/// The values that are not null.
fn present<'a, T: Copy>(values: &[T], levels: &[i16], into: &'a mut Vec<T>) -> &'a Vec<T> {
    into.clear();
    into.extend(values.iter().zip(levels).filter(|(_, level)| **level == 1).map(|(value, _)| *value));
    into
}

/// How Parquet stores a kind.
pub(crate) fn physical(kind: Kind) -> Physical {
    match kind {
        Kind::Int => Physical::INT64,
        Kind::Float => Physical::DOUBLE,
        Kind::Bool => Physical::BOOLEAN,
        Kind::Text => Physical::BYTE_ARRAY,
    }
}

fn field(column: &Column) -> Type {
    let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let mut field =
        Type::primitive_type_builder(column.name, physical(column.kind)).with_repetition(repetition);
    if column.kind == Kind::Text {
        field = field.with_logical_type(Some(LogicalType::String)).with_converted_type(ConvertedType::UTF8);
    }
    field.build().expect("each kind is a valid primitive type")
}

fn properties(table: &Table) -> WriterProperties {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("a level of zstd"));
    let named = KeyValue::new(TABLE_KEY.to_string(), table.name.to_string());
    let mut properties = WriterProperties::builder()
        .set_compression(zstd)
        .set_created_by(concat!("brunt version ", env!("CARGO_PKG_VERSION")).to_string())
        // Minimum and maximum of each column let an engine pass over parts; finer ones would be
        // a tenth of a small part.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_key_value_metadata(Some(vec![named]));
    for column in table.columns {
        let path = ColumnPath::from(column.name);
        let encoding = match (column.coding, column.kind) {
            (Coding::Dictionary, _) => {
                properties = properties.set_column_dictionary_enabled(path, true);
                continue;
            }
            (Coding::Delta, Kind::Text) => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            (Coding::Delta, _) => Encoding::DELTA_BINARY_PACKED,
            (Coding::Plain, _) => Encoding::PLAIN,
        };
        properties = properties.set_column_encoding(path, encoding);
    }
    properties.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: a batch without rows is a complete file too: an engine finds the columns in it.
    #[test]
    fn no_rows_are_a_file() {
        const TABLE: Table = Table { name: "t", doc: "Rows.", columns: &[Column::int("a", "Integers.")] };
        let mut file = vec![1, 2, 3];
        Encoder::new(&TABLE).encode(&Batch::new(&TABLE), &mut file).unwrap();
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1") && file.len() < 400, "{}", file.len());
    }
}
