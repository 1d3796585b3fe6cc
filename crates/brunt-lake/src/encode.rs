//! Encodes a batch as the bytes of a Parquet file with a single zstd-compressed row group, each column encoded as the
//! table describes. Does no I/O: the writer writes the bytes to disk.
//!
//! The rule: every Parquet reader must understand the file: version 1 data pages, no unsigned or nested types.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical,
    ZstdLevel,
};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type, TypePtr};
use std::hash::BuildHasher;

use crate::batch::{Batch, RowOrder};
use crate::cells::{Cells, Codes, Texts, Values};
use crate::packing;
use crate::sums;
use crate::table::{Coding, Column, ColumnKind, Table};

/// Achieves three quarters of the savings of higher levels, at several hundred megabytes per second.
const ZSTD_LEVEL: i32 = 1;
/// Time that all threads of this process have spent in zstd.
static COMPRESSION_NS: AtomicU64 = AtomicU64::new(0);

/// The time that this process has spent compressing columns, on all threads together.
pub fn compression_time() -> Duration {
    Duration::from_nanos(COMPRESSION_NS.load(Ordering::Relaxed))
}

/// Key of the table's name in the file's metadata.
pub(crate) const TABLE_KEY: &str = "brunt.table";
/// If the dictionary would exceed this size, the page stores the values themselves.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Longest text stored as a column's minimum or maximum.
const EXTREME_BYTES_MAX: usize = 64;

/// Encodes files of one table. Pages are encoded here, so that columns with little information take little time and all
/// columns share the buffers. The library writes the page headers and the file structure.
pub(crate) struct Encoder {
    columns: &'static [Column],
    schema: TypePtr,
    descriptor: SchemaDescriptor,
    properties: Arc<WriterProperties>,
}

/// An encoded column of a row group, and its entry in the footer.
pub(crate) type EncodedColumn = (Bytes, ColumnCloseResult);

/// Encoding buffers, shared by the writers of a thread so that they stay in that core's cache.
pub(crate) struct Buffers {
    zstd: zstd::bulk::Compressor<'static>,
    scratch: Scratch,
    order: RowOrder,
    /// A column in sorted row order.
    ordered: Cells,
    /// The most recently encoded file.
    pub file: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            zstd: zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("a valid zstd level"),
            scratch: Scratch::default(),
            order: RowOrder::default(),
            ordered: Cells::new(ColumnKind::Int),
            file: Vec::new(),
        }
    }
}

/// Reusable buffers for a page.
#[derive(Default)]
struct Scratch {
    /// Non-null values of a column.
    ints: Vec<i64>,
    /// Lengths of texts.
    lengths: Vec<i64>,
    /// A page's content.
    page: Vec<u8>,
    compressed: Vec<u8>,
    dictionary: Vec<u8>,
    indexes: Vec<u32>,
    /// The dictionary entry of each code.
    places: Vec<u32>,
    table: HashTable<u32>,
}

impl Encoder {
    pub fn new(table: &'static Table) -> Encoder {
        let schema = schema(table);
        Encoder {
            columns: table.columns,
            descriptor: SchemaDescriptor::new(Arc::clone(&schema)),
            schema,
            properties: Arc::new(properties(table)),
        }
    }

    /// Encodes the rows as a file, sorted by a column if one is given ([`RowOrder::of`]). An empty batch results in a
    /// file without row groups.
    pub fn encode(
        &self,
        batch: &Batch,
        by: Option<&str>,
        buffers: &mut Buffers,
    ) -> Result<(), ParquetError> {
        let Buffers {
            zstd,
            scratch,
            order,
            ordered,
            file,
        } = buffers;
        let order = by.and_then(|column| order.of(batch, column));
        file.clear();
        let mut sums = Vec::with_capacity(self.columns.len());
        let mut writer = SerializedFileWriter::new(
            &mut *file,
            Arc::clone(&self.schema),
            Arc::clone(&self.properties),
        )?;
        if !batch.is_empty() {
            let mut group = writer.next_row_group()?;
            for (index, (cells, column)) in batch.cells().iter().zip(self.columns).enumerate() {
                let descriptor = self.descriptor.column(index);
                let cells = match order {
                    Some(order) if !cells.are_all_same() => {
                        cells.in_order(order, ordered);
                        &*ordered
                    }
                    _ => cells,
                };
                let (bytes, closed) =
                    encode_column(scratch, zstd, cells, column, batch.rows(), descriptor)?;
                sums.push(sums::sum(&bytes));
                group.append_column(&bytes, closed)?;
            }
            group.close()?;
        }
        writer.close()?;
        sums::insert(file, &sums);
        Ok(())
    }

    /// Encodes one column of `rows` rows, for a row group that is assembled column by column.
    pub fn column(
        &self,
        index: usize,
        cells: &Cells,
        rows: usize,
        buffers: &mut Buffers,
    ) -> Result<EncodedColumn, ParquetError> {
        let Buffers { zstd, scratch, .. } = buffers;
        let descriptor = self.descriptor.column(index);
        encode_column(scratch, zstd, cells, &self.columns[index], rows, descriptor)
    }
}

/// Appends the definition levels, run-length encoded and preceded by their size.
fn put_levels(cells: &Cells, rows: usize, page: &mut Vec<u8>) {
    page.extend([0; 4]);
    match cells.nulls {
        nulls if nulls == 0 || nulls == rows => {
            packing::varint((rows as u64) << 1, page);
            page.push(u8::from(nulls == 0));
        }
        _ => packing::runs(&cells.levels, 1, |level| level as u64, page),
    }
    let len = page.len() as u32 - 4;
    page[..4].copy_from_slice(&len.to_le_bytes());
}

/// Replaces `compressed` with the content, compressed.
fn compress(
    zstd: &mut zstd::bulk::Compressor<'static>,
    content: &[u8],
    compressed: &mut Vec<u8>,
) -> Result<(), ParquetError> {
    compressed.clear();
    compressed.reserve(zstd::zstd_safe::compress_bound(content.len()));
    let begun = Instant::now();
    let compressed = zstd.compress_to_buffer(content, compressed);
    COMPRESSION_NS.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    compressed
        .map(drop)
        .map_err(|error| ParquetError::General(error.to_string()))
}

/// Encodes a column as one page, preceded by a dictionary page if it has a dictionary.
fn encode_column(
    scratch: &mut Scratch,
    zstd: &mut zstd::bulk::Compressor<'static>,
    cells: &Cells,
    column: &Column,
    rows: usize,
    descriptor: ColumnDescPtr,
) -> Result<EncodedColumn, ParquetError> {
    scratch.page.clear();
    if column.nullable {
        put_levels(cells, rows, &mut scratch.page);
    }
    let laid_out = lay_out(scratch, cells, column);
    let mut sink = TrackedWrite::new(Vec::with_capacity(scratch.page.len() / 4 + 256));
    let mut pages = SerializedPageWriter::new(&mut sink);
    let (mut bytes, mut uncompressed) = (0, 0);
    let mut put = |content: &[u8], compressed: &mut Vec<u8>, page: &dyn Fn(Bytes) -> Page| {
        compress(zstd, content, compressed)?;
        let page = CompressedPage::new(page(Bytes::copy_from_slice(compressed)), content.len());
        let spec = pages.write_page(page)?;
        bytes += spec.bytes_written;
        uncompressed += spec.uncompressed_size;
        Ok::<u64, ParquetError>(spec.offset)
    };
    let mut dictionary_at = None;
    if let Some(entries) = laid_out.dictionary {
        let page = |buf| Page::DictionaryPage {
            buf,
            num_values: entries,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        dictionary_at = Some(put(&scratch.dictionary, &mut scratch.compressed, &page)? as i64);
    }
    let page = |buf| Page::DataPage {
        buf,
        num_values: rows as u32,
        encoding: laid_out.encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let data_at = put(&scratch.page, &mut scratch.compressed, &page)? as i64;
    let mut encodings = vec![Encoding::RLE, laid_out.encoding];
    if dictionary_at.is_some() {
        encodings.push(Encoding::PLAIN);
    }
    let metadata = ColumnChunkMetaData::builder(descriptor)
        .set_compression(compression())
        .set_encodings(encodings)
        .set_num_values(rows as i64)
        .set_total_compressed_size(bytes as i64)
        .set_total_uncompressed_size(uncompressed as i64)
        .set_dictionary_page_offset(dictionary_at)
        .set_data_page_offset(data_at)
        .set_statistics(laid_out.statistics)
        .build()?;
    let closed = ColumnCloseResult {
        bytes_written: bytes,
        rows_written: rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((sink.into_inner()?.into(), closed))
}

/// The encoding of the values in a page.
struct LaidOut {
    encoding: Encoding,
    /// Number of dictionary entries, if there is a dictionary.
    dictionary: Option<u32>,
    statistics: Statistics,
}

impl LaidOut {
    fn plainly(encoding: Encoding, statistics: Statistics) -> LaidOut {
        LaidOut {
            encoding,
            dictionary: None,
            statistics,
        }
    }
}

/// Appends the non-null values to the page and fills the dictionary.
fn lay_out(scratch: &mut Scratch, cells: &Cells, column: &Column) -> LaidOut {
    let nulls = Some(cells.nulls as u64);
    match &cells.values {
        Values::Ints(values) => lay_out_ints(scratch, cells, values, column),
        Values::Floats(values) => lay_out_floats(scratch, cells, values),
        Values::Bools(values) => lay_out_bools(scratch, cells, values),
        Values::Texts(texts) => lay_out_texts(scratch, cells, texts, column),
        Values::Codes(codes) => lay_out_codes(scratch, cells, codes),
        Values::Bytes(strings) => {
            let rows = is_present(cells)
                .enumerate()
                .filter(|(_, present)| *present);
            for (row, _) in rows {
                let string = strings.string(row);
                scratch
                    .page
                    .extend_from_slice(&(string.len() as u32).to_le_bytes());
                scratch.page.extend_from_slice(string);
            }
            // No bounds: byte strings aren't queried by range.
            LaidOut::plainly(Encoding::PLAIN, text_statistics(None, nulls))
        }
    }
}

fn lay_out_ints(scratch: &mut Scratch, cells: &Cells, values: &[i64], column: &Column) -> LaidOut {
    let nulls = Some(cells.nulls as u64);
    let values = if cells.nulls == 0 {
        values
    } else {
        present(values, &cells.levels, &mut scratch.ints);
        &scratch.ints
    };
    let extremes = packing::extremes(values);
    let [min, max] = [extremes.map(|(min, _)| min), extremes.map(|(_, max)| max)];
    let statistics = Statistics::int64(min, max, None, nulls, false);
    if column.coding == Coding::Dictionary {
        scratch.dictionary.clear();
        let hash = |value: &i64| FixedState::with_seed(0).hash_one(value);
        let (table, dictionary) = (&mut scratch.table, &mut scratch.dictionary);
        let put = |value: i64, out: &mut Vec<u8>| out.extend_from_slice(&value.to_le_bytes());
        let ints = values.iter().copied();
        if let Some(entries) = number(ints, hash, put, table, dictionary, &mut scratch.indexes) {
            return indexed(scratch, entries, statistics);
        }
    } else if column.coding == Coding::Delta {
        packing::deltas(values, &mut scratch.page);
        return LaidOut::plainly(Encoding::DELTA_BINARY_PACKED, statistics);
    }
    values
        .iter()
        .for_each(|value| scratch.page.extend_from_slice(&value.to_le_bytes()));
    LaidOut::plainly(Encoding::PLAIN, statistics)
}

fn lay_out_floats(scratch: &mut Scratch, cells: &Cells, values: &[f64]) -> LaidOut {
    let nulls = Some(cells.nulls as u64);
    let present = is_present(cells)
        .zip(values)
        .filter(|(present, _)| *present);
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for (_, value) in present {
        scratch.page.extend_from_slice(&value.to_le_bytes());
        // `min` and `max` ignore NaN.
        (min, max) = (min.min(*value), max.max(*value));
    }
    // A zero bound covers both zeros (parquet.thrift, "ColumnOrder").
    let min = if min == 0.0 { -0.0 } else { min };
    let max = if max == 0.0 { 0.0 } else { max };
    let some = min <= max;
    let statistics =
        Statistics::double(some.then_some(min), some.then_some(max), None, nulls, false);
    LaidOut::plainly(Encoding::PLAIN, statistics)
}

fn lay_out_bools(scratch: &mut Scratch, cells: &Cells, values: &[bool]) -> LaidOut {
    let nulls = Some(cells.nulls as u64);
    let present = || {
        is_present(cells)
            .zip(values)
            .filter(|(present, _)| *present)
    };
    packing::bits(
        present().map(|(_, value)| u64::from(*value)),
        1,
        &mut scratch.page,
    );
    let min = present().map(|(_, value)| *value).min();
    let max = present().map(|(_, value)| *value).max();
    LaidOut::plainly(
        Encoding::PLAIN,
        Statistics::boolean(min, max, None, nulls, false),
    )
}

/// Builds a dictionary of the codes' texts, with a lookup table indexed by code.
fn lay_out_codes(scratch: &mut Scratch, cells: &Cells, codes: &Codes) -> LaidOut {
    const NONE: u32 = u32::MAX;
    let mut entries: Vec<&str> = Vec::new();
    let Scratch {
        places,
        indexes,
        dictionary,
        ..
    } = scratch;
    dictionary.clear();
    indexes.clear();
    places.clear();
    places.resize(
        codes
            .codes
            .iter()
            .max()
            .map_or(0, |max| usize::from(*max) + 1),
        NONE,
    );
    let mut index_of = |code: u16| {
        let place = &mut places[usize::from(code)];
        if *place == NONE {
            let name = codes.name_of(code);
            let known = entries.iter().position(|entry| *entry == name);
            *place = known.unwrap_or(entries.len()) as u32;
            if known.is_none() {
                entries.push(name);
                dictionary.extend_from_slice(&(name.len() as u32).to_le_bytes());
                dictionary.extend_from_slice(name.as_bytes());
            }
        }
        *place
    };
    if cells.nulls == 0 {
        indexes.extend(codes.codes.iter().map(|code| index_of(*code)));
    } else {
        let present = is_present(cells)
            .zip(&codes.codes)
            .filter(|(present, _)| *present);
        indexes.extend(present.map(|(_, code)| index_of(*code)));
    }
    let bytes = || entries.iter().map(|entry| entry.as_bytes());
    let statistics = text_statistics(bytes().min().zip(bytes().max()), Some(cells.nulls as u64));
    let count = entries.len() as u32;
    indexed(scratch, count, statistics)
}

fn lay_out_texts(scratch: &mut Scratch, cells: &Cells, texts: &Texts, column: &Column) -> LaidOut {
    let nulls = Some(cells.nulls as u64);
    let present = || {
        let rows = is_present(cells)
            .enumerate()
            .filter(|(_, present)| *present);
        rows.map(|(row, _)| &texts.bytes.as_bytes()[texts.range(row)])
    };
    let put = |text: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text);
    };
    if column.coding == Coding::Dictionary {
        scratch.dictionary.clear();
        let hash = |text: &&[u8]| FixedState::with_seed(0).hash_one(text);
        let (table, dictionary) = (&mut scratch.table, &mut scratch.dictionary);
        if let Some((entries, extremes)) = number_texts(
            present(),
            hash,
            put,
            table,
            dictionary,
            &mut scratch.indexes,
        ) {
            return indexed(scratch, entries, text_statistics(extremes, nulls));
        }
    }
    let mut extremes: Option<(&[u8], &[u8])> = None;
    scratch.lengths.clear();
    for text in present() {
        let (min, max) = extremes.get_or_insert((text, text));
        *min = (*min).min(text);
        *max = (*max).max(text);
        scratch.lengths.push(text.len() as i64);
    }
    let statistics = text_statistics(extremes, nulls);
    if column.coding == Coding::Delta {
        packing::deltas(&scratch.lengths, &mut scratch.page);
        // A null's text is empty, so the concatenation contains exactly the non-null texts.
        scratch.page.extend_from_slice(texts.bytes.as_bytes());
        return LaidOut::plainly(Encoding::DELTA_LENGTH_BYTE_ARRAY, statistics);
    }
    present().for_each(|text| put(text, &mut scratch.page));
    LaidOut::plainly(Encoding::PLAIN, statistics)
}

fn text_statistics(extremes: Option<(&[u8], &[u8])>, nulls: Option<u64>) -> Statistics {
    let short = extremes.filter(|(min, max)| min.len().max(max.len()) <= EXTREME_BYTES_MAX);
    let [min, max] = [short.map(|(min, _)| min), short.map(|(_, max)| max)]
        .map(|text| text.map(|text| ByteArray::from(text.to_vec())));
    Statistics::byte_array(min, max, None, nulls, false)
}

/// Numbers the distinct values in order of first appearance and appends them to the dictionary; `None` if the
/// dictionary grows too large.
fn number<T: Copy + PartialEq>(
    values: impl Iterator<Item = T>,
    hash: impl Fn(&T) -> u64,
    put: impl Fn(T, &mut Vec<u8>),
    table: &mut HashTable<u32>,
    dictionary: &mut Vec<u8>,
    indexes: &mut Vec<u32>,
) -> Option<u32> {
    let mut entries: Vec<T> = Vec::new();
    let mut last: Option<(T, u32)> = None;
    table.clear();
    indexes.clear();
    for value in values {
        // Equal values often occur in runs.
        if let Some((same, index)) = last
            && same == value
        {
            indexes.push(index);
            continue;
        }
        let hashed = hash(&value);
        let index = match table.find(hashed, |&index| entries[index as usize] == value) {
            Some(&index) => index,
            None => {
                let index = entries.len() as u32;
                entries.push(value);
                put(value, dictionary);
                if dictionary.len() > DICTIONARY_BYTES_MAX {
                    return None;
                }
                table.insert_unique(hashed, index, |&index| hash(&entries[index as usize]));
                index
            }
        };
        indexes.push(index);
        last = Some((value, index));
    }
    Some(entries.len() as u32)
}

type Extremes<'a> = Option<(&'a [u8], &'a [u8])>;

/// Like [`number`], but for texts, and with minimum and maximum; only distinct texts are compared.
fn number_texts<'a>(
    texts: impl Iterator<Item = &'a [u8]>,
    hash: impl Fn(&&'a [u8]) -> u64,
    put: impl Fn(&'a [u8], &mut Vec<u8>),
    table: &mut HashTable<u32>,
    dictionary: &mut Vec<u8>,
    indexes: &mut Vec<u32>,
) -> Option<(u32, Extremes<'a>)> {
    let extremes = std::cell::Cell::new(None);
    let put = |text: &'a [u8], out: &mut Vec<u8>| {
        let (min, max): (&[u8], &[u8]) = extremes.get().unwrap_or((text, text));
        extremes.set(Some((min.min(text), max.max(text))));
        put(text, out);
    };
    let entries = number(texts, hash, put, table, dictionary, indexes)?;
    Some((entries, extremes.get()))
}

/// Appends the values' dictionary indexes to the page.
fn indexed(scratch: &mut Scratch, entries: u32, statistics: Statistics) -> LaidOut {
    let width = packing::width(u64::from(entries.saturating_sub(1)));
    scratch.page.push(width as u8);
    packing::runs(&scratch.indexes, width, u64::from, &mut scratch.page);
    LaidOut {
        encoding: Encoding::RLE_DICTIONARY,
        dictionary: Some(entries),
        statistics,
    }
}

/// Whether each row has a value.
fn is_present(cells: &Cells) -> impl Iterator<Item = bool> {
    let whole = cells.nulls == 0;
    (0..cells.len()).map(move |row| whole || cells.levels[row] == 1)
}

/// Copies the non-null values.
fn present(values: &[i64], levels: &[i16], into: &mut Vec<i64>) {
    into.clear();
    into.resize(values.len(), 0);
    let mut count = 0;
    // Always store, but advance only for values: avoids data-dependent branches.
    for (value, level) in values.iter().zip(levels) {
        into[count] = *value;
        count += *level as usize;
    }
    into.truncate(count);
}

fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("a valid zstd level"))
}

/// Parquet's physical type for a column kind.
pub(crate) fn physical(kind: ColumnKind) -> Physical {
    match kind {
        ColumnKind::Int | ColumnKind::Time => Physical::INT64,
        ColumnKind::Float => Physical::DOUBLE,
        ColumnKind::Bool => Physical::BOOLEAN,
        ColumnKind::Text | ColumnKind::Bytes => Physical::BYTE_ARRAY,
    }
}

/// A table's Parquet schema.
pub(crate) fn schema(table: &Table) -> TypePtr {
    let fields = table
        .columns
        .iter()
        .map(|column| Arc::new(field(column)))
        .collect();
    let schema = Type::group_type_builder(table.name)
        .with_fields(fields)
        .build();
    Arc::new(schema.expect("flat columns form a valid schema"))
}

fn field(column: &Column) -> Type {
    let repetition = if column.nullable {
        Repetition::OPTIONAL
    } else {
        Repetition::REQUIRED
    };
    let mut field = Type::primitive_type_builder(column.name, physical(column.kind))
        .with_repetition(repetition);
    if column.kind == ColumnKind::Text {
        field = field
            .with_logical_type(Some(LogicalType::String))
            .with_converted_type(ConvertedType::UTF8);
    }
    if column.kind == ColumnKind::Time {
        // Readers without nanosecond support see an Int64, because converted types have no nanoseconds.
        field = field.with_logical_type(Some(LogicalType::timestamp(true, TimeUnit::NANOS)));
    }
    field.build().expect("each kind is a valid primitive type")
}

/// File properties. The minimum and maximum of each column let an engine skip parts; finer statistics would take a
/// tenth of a small part.
fn properties(table: &Table) -> WriterProperties {
    let named = KeyValue::new(TABLE_KEY.to_string(), table.name.to_string());
    WriterProperties::builder()
        .set_created_by(concat!("brunt version ", env!("CARGO_PKG_VERSION")).to_string())
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(vec![named]))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time column is a UTC timestamp in nanoseconds, and an Int64 to readers that don't support those.
    #[test]
    fn times_are_timestamps() {
        let field = field(&Column::time("at", "When."));
        let logical = field.get_basic_info().logical_type_ref();
        assert_eq!(
            logical,
            Some(&LogicalType::timestamp(true, TimeUnit::NANOS))
        );
        assert_eq!(field.get_physical_type(), Physical::INT64);
    }

    /// A batch without rows also makes a complete file, in which engines find the columns.
    #[test]
    fn a_batch_without_rows_is_a_complete_file() {
        const TABLE: Table = Table {
            name: "t",
            doc: "Rows.",
            columns: &[Column::int("a", "Integers.")],
        };
        let mut buffers = Buffers {
            file: vec![1, 2, 3],
            ..Buffers::default()
        };
        Encoder::new(&TABLE)
            .encode(&Batch::new(&TABLE), None, &mut buffers)
            .unwrap();
        let file = buffers.file;
        assert!(
            file.starts_with(b"PAR1") && file.ends_with(b"PAR1") && file.len() < 400,
            "{}",
            file.len()
        );
    }
}
