//! Reads a table's parts back, in order, a bounded number of rows at a time. Called by `brunt report` and
//! `brunt analyze`.
//!
//! The rule: if a part lacks a column because an older writer didn't have it, the column is null if the table allows
//! that and an error otherwise; unknown columns are ignored. So a reader that needs only a few columns can describe a
//! table of the same name with just those.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::batch::Batch;
use crate::cells::{Cells, Values};
use crate::encode::{TABLE_KEY, physical};
use crate::error::LakeError;
use crate::guard;
use crate::integer_times::twin_name;
use crate::snapshot::LakeSnapshot;
use crate::sums::Sums;
use crate::table::{ColumnKind, Table};
use crate::writer::ClosedPart;

/// Maximum rows per batch.
pub const BATCH_ROWS_MAX: usize = 1 << 16;
/// Suffix of a part's file name until it is complete.
pub(crate) const OPEN_SUFFIX: &str = "open";

/// The captured parts of a table in `root` as closed, for a writer that continues a trace; a damaged one has 0 rows.
///
/// # Errors
/// The folder or a part cannot be read, or a part belongs to a different table.
pub fn closed_parts(
    root: &Path,
    table: &'static Table,
) -> Result<Vec<(u16, ClosedPart)>, LakeError> {
    let mut closed = Vec::new();
    let of = |file: PartFile| Some((file.captured?.0, file.path));
    let parts = captured_parts(root, table.name)?.into_iter();
    for (series, path) in parts.filter_map(of) {
        let about = std::fs::metadata(&path).map_err(LakeError::io(&path))?;
        let bytes = about.len();
        let rows = match PartReader::open(path.clone(), table).and_then(|part| part.rows()) {
            Err(error) if error.is_of_one_part() => 0,
            rows => rows?,
        };
        closed.push((series, ClosedPart { path, bytes, rows }));
    }
    Ok(closed)
}

/// A complete part of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartFile {
    /// Series and number of a captured part: each of the writers that share a table has its own series of parts.
    /// `None` for parts of a lake.
    pub captured: Option<(u16, u64)>,
    /// The file.
    pub path: PathBuf,
}

impl PartFile {
    /// The name of a captured part: `part-000007.parquet` in the first series, `part-2-000007.parquet` in the third.
    pub fn name(series: u16, number: u64) -> String {
        match series {
            0 => format!("part-{number:06}.parquet"),
            series => format!("part-{series}-{number:06}.parquet"),
        }
    }

    /// Series and number of a captured part, from its file name; `None` for other names.
    pub fn parse(path: &Path) -> Option<(u16, u64)> {
        let name = path
            .file_name()?
            .to_str()?
            .strip_prefix("part-")?
            .strip_suffix(".parquet")?;
        match name.split_once('-') {
            None => Some((0, name.parse().ok()?)),
            Some((series, number)) => Some((series.parse().ok()?, number.parse().ok()?)),
        }
    }
}

/// Subfolders, excluding the catalog's and hidden ones.
pub(crate) fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, LakeError> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(LakeError::io(folder))? {
        let entry = entry.map_err(LakeError::io(folder))?;
        let is_plain = !entry.file_name().to_string_lossy().starts_with(['_', '.']);
        if is_plain && entry.file_type().map_err(LakeError::io(folder))?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

/// The captured parts of a table in `root`, including those already absorbed by a lake, by series, oldest first.
///
/// # Errors
/// The folder cannot be read.
pub fn captured_parts(root: &Path, table: &str) -> Result<Vec<PartFile>, LakeError> {
    let folder = root.join(table);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LakeError::io(&folder)(error)),
    };
    let mut parts = Vec::new();
    for entry in entries {
        let path = entry.map_err(LakeError::io(&folder))?.path();
        parts.extend(PartFile::parse(&path).map(|captured| PartFile {
            captured: Some(captured),
            path,
        }));
    }
    parts.sort_unstable();
    Ok(parts)
}

/// The complete parts of a table in `root` ([`LakeSnapshot::parts`]); empty if the table doesn't exist.
///
/// # Errors
/// The folder cannot be read.
pub fn parts(root: &Path, table: &Table) -> Result<Vec<PartFile>, LakeError> {
    LakeSnapshot::open(root)?.parts(table)
}

/// Undamaged parts that other programs can read in the same way.
#[derive(Debug, Default)]
pub struct IntactParts {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Whether times have twins ([`crate::integer_times`]).
    pub has_twins: bool,
    /// Columns that some of the parts lack because an older writer didn't have them.
    pub not_in_all: Vec<&'static str>,
    /// Columns that all of the parts lack.
    pub in_none: Vec<&'static str>,
}

/// The undamaged parts of a table.
#[derive(Debug, Default)]
pub struct IntactTable {
    /// Lake parts and captured parts in separate groups, because times in captured parts have no twins. No group is
    /// empty.
    pub groups: Vec<IntactParts>,
    /// Errors of damaged parts, which are not in `groups`.
    pub damaged: Vec<LakeError>,
}

/// The parts of a table that have valid footers and all required columns. With `verify`, everything that engines read
/// must also match the checksums; otherwise only footers are read.
///
/// # Errors
/// The folder or a part cannot be read, or a part belongs to a different table.
pub fn intact_parts(
    snapshot: &LakeSnapshot,
    table: &'static Table,
    verify: bool,
) -> Result<IntactTable, LakeError> {
    let mut sound = IntactTable::default();
    let listed = snapshot
        .catalog()
        .map_or(&[][..], |all| all.parts(table.name));
    let sums: HashMap<PathBuf, u64> = listed
        .iter()
        .filter_map(|part| Some((snapshot.root().join(&part.path), part.sum?)))
        .collect();
    // For each group, the number of files that lack each column.
    let mut missing: Vec<Vec<usize>> = Vec::new();
    for file in snapshot.parts(table)? {
        let opened = PartReader::open(file.path.clone(), table).and_then(|part| {
            match sums.get(&file.path) {
                _ if !verify => {}
                // The catalog's checksum also covers indexes.
                Some(sum) => guard::check_sum(&file.path, *sum)?,
                None => part.verify()?,
            }
            Ok(part)
        });
        let part = match opened {
            Ok(part) => part,
            Err(error) if error.is_of_one_part() => {
                sound.damaged.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let there = part.file.metadata().file_metadata().schema_descr();
        let has = |name: &str| there.columns().iter().any(|found| found.name() == name);
        let mut times = table
            .columns
            .iter()
            .filter(|column| column.kind == ColumnKind::Time);
        let has_twins =
            times.clone().next().is_some() && times.all(|column| has(&twin_name(column.name)));
        let known = sound
            .groups
            .iter()
            .position(|group| group.has_twins == has_twins);
        let group = known.unwrap_or_else(|| {
            sound.groups.push(IntactParts {
                has_twins,
                ..IntactParts::default()
            });
            missing.push(vec![0; table.columns.len()]);
            missing.len() - 1
        });
        sound.groups[group].files.push(file.path);
        for (missing, column) in missing[group].iter_mut().zip(table.columns) {
            *missing += usize::from(!has(column.name));
        }
    }
    for (group, missing) in sound.groups.iter_mut().zip(missing) {
        for (missing, column) in missing.into_iter().zip(table.columns) {
            if missing == group.files.len() {
                group.in_none.push(column.name);
            } else if missing > 0 {
                group.not_in_all.push(column.name);
            }
        }
    }
    Ok(sound)
}

/// Calls `each` with every row of a table, in batches. Returns the errors of damaged parts, which were skipped or read
/// up to the damage.
///
/// # Errors
/// As for [`TableReader::next_batch`].
pub fn read_table(
    root: &Path,
    table: &'static Table,
    mut each: impl FnMut(&Batch),
) -> Result<Vec<LakeError>, LakeError> {
    let mut reader = TableReader::open(root, table)?;
    while let Some(batch) = reader.next_batch()? {
        each(batch);
    }
    Ok(reader.damaged)
}

/// Reads a table from disk.
pub struct TableReader {
    /// Prevents the parts from being deleted.
    _snapshot: Option<LakeSnapshot>,
    table: &'static Table,
    parts: VecDeque<PathBuf>,
    part: Option<PartReader>,
    batch: Batch,
    texts: Vec<ByteArray>,
    damaged: Vec<LakeError>,
}

/// A part being read.
pub(crate) struct PartReader {
    path: PathBuf,
    pub file: SerializedFileReader<File>,
    /// The same file, with its checksums if it has any.
    bytes: File,
    sums: Option<Sums>,
    group: usize,
    /// The reader of each column, and the number of rows left in the group.
    columns: Vec<Option<ColumnReader>>,
    left: u64,
}

impl TableReader {
    /// Opens a table in `root`; a table that doesn't exist has no rows.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(root: &Path, table: &'static Table) -> Result<TableReader, LakeError> {
        TableReader::of(&LakeSnapshot::open(root)?, table)
    }

    /// Opens a table in a snapshot, which is held as long as the reader.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn of(snapshot: &LakeSnapshot, table: &'static Table) -> Result<TableReader, LakeError> {
        let parts = snapshot
            .parts(table)?
            .into_iter()
            .map(|part| part.path)
            .collect();
        let batch = Batch::new(table);
        let _snapshot = Some(snapshot.clone());
        Ok(TableReader {
            _snapshot,
            table,
            parts,
            part: None,
            batch,
            texts: Vec::new(),
            damaged: Vec::new(),
        })
    }

    /// Errors of parts that were skipped or only read up to the damage so far.
    pub fn damaged(&self) -> &[LakeError] {
        &self.damaged
    }

    /// The batch that [`TableReader::next_batch`] returned last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Reads the next rows, at most [`BATCH_ROWS_MAX`]; `None` at the end. A damaged part ends where the damage is
    /// found, and the error is recorded.
    ///
    /// # Errors
    /// A part cannot be opened or belongs to a different table.
    pub fn next_batch(&mut self) -> Result<Option<&Batch>, LakeError> {
        loop {
            if self.part.is_none() && self.parts.is_empty() {
                return Ok(None);
            }
            match self.step() {
                Ok(true) => return Ok(Some(&self.batch)),
                Ok(false) => {}
                Err(error) if error.is_of_one_part() => {
                    self.part = None;
                    self.damaged.push(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Advances to the next batch, group or part; returns whether there is a batch now.
    fn step(&mut self) -> Result<bool, LakeError> {
        let Some(part) = &mut self.part else {
            let Some(path) = self.parts.pop_front() else {
                return Ok(false);
            };
            self.part = Some(PartReader::open(path, self.table)?);
            return Ok(false);
        };
        if part.left == 0 {
            if !part.next_group(self.table)? {
                self.part = None;
            }
            return Ok(false);
        }
        part.fill(&mut self.batch, BATCH_ROWS_MAX, &mut self.texts)?;
        Ok(true)
    }
}

impl PartReader {
    pub fn open(path: PathBuf, table: &'static Table) -> Result<PartReader, LakeError> {
        let bytes = File::open(&path).map_err(LakeError::io(&path))?;
        let sums = Sums::read(&bytes).map_err(LakeError::io(&path))?;
        let sums = sums
            .transpose()
            .map_err(|changed| damaged(&path, changed))?;
        let file = bytes.try_clone().map_err(LakeError::io(&path))?;
        let file = SerializedFileReader::new(file).map_err(|error| damaged(&path, error))?;
        let metadata = file.metadata().file_metadata();
        let named = metadata
            .key_value_metadata()
            .into_iter()
            .flatten()
            .find(|pair| pair.key == TABLE_KEY);
        if named.is_none_or(|pair| pair.value.as_deref() != Some(table.name)) {
            return Err(malformed(
                &path,
                table,
                "it belongs to another table, or was written by another program",
            ));
        }
        let schema = metadata.schema_descr();
        for column in table.columns {
            let found = schema
                .columns()
                .iter()
                .find(|found| found.name() == column.name);
            let fits = match found {
                None => column.nullable,
                Some(found) => {
                    found.physical_type() == physical(column.kind)
                        && found.max_rep_level() == 0
                        && found.max_def_level() <= i16::from(column.nullable)
                }
            };
            if !fits {
                let what = format!("column {} is missing or has the wrong type", column.name);
                return Err(malformed(&path, table, what));
            }
        }
        Ok(PartReader {
            path,
            file,
            bytes,
            sums,
            group: 0,
            columns: Vec::new(),
            left: 0,
        })
    }

    /// Advances to the next row group; `false` after the last one.
    pub fn next_group(&mut self, table: &'static Table) -> Result<bool, LakeError> {
        if self.group == self.file.num_row_groups() {
            return Ok(false);
        }
        self.begin_group(self.group, table)?;
        self.group += 1;
        Ok(true)
    }

    fn begin_group(&mut self, number: usize, table: &'static Table) -> Result<(), LakeError> {
        let wrong = |error: ParquetError| damaged(&self.path, error);
        let wrong_read = |error: std::io::Error| damaged(&self.path, error);
        let group = self.file.get_row_group(number).map_err(wrong)?;
        // The Parquet library panics on negative values.
        let columns = group.metadata().columns();
        let places = columns.iter().flat_map(|column| {
            [
                column.compressed_size(),
                column.data_page_offset(),
                column.dictionary_page_offset().unwrap_or(0),
            ]
        });
        if places.into_iter().any(i64::is_negative) {
            return Err(damaged(
                &self.path,
                "column offset before the start of the file",
            ));
        }
        let schema = self.file.metadata().file_metadata().schema_descr();
        self.columns.clear();
        for column in table.columns {
            let index = schema
                .columns()
                .iter()
                .position(|found| found.name() == column.name);
            if let (Some(sums), Some(index)) = (&self.sums, index) {
                let (start, len) = columns[index].byte_range();
                let of_all = number * schema.num_columns() + index;
                let same = sums.check(of_all, &self.bytes, start..start.saturating_add(len));
                same.map_err(wrong_read)?
                    .map_err(|changed| damaged(&self.path, changed))?;
            }
            self.columns.push(
                index
                    .map(|index| group.get_column_reader(index))
                    .transpose()
                    .map_err(wrong)?,
            );
        }
        self.left = u64::try_from(group.metadata().num_rows())
            .map_err(|_| damaged(&self.path, "number of rows is negative"))?;
        Ok(())
    }

    /// Verifies the checksums of all columns, if the part has checksums.
    pub fn verify(&self) -> Result<(), LakeError> {
        let groups = self.file.metadata().row_groups();
        let columns = groups.iter().flat_map(|group| group.columns());
        for (index, column) in columns.enumerate() {
            let places = [column.compressed_size(), column.data_page_offset()];
            if places.into_iter().any(i64::is_negative) {
                return Err(damaged(
                    &self.path,
                    "column offset before the start of the file",
                ));
            }
            if let Some(sums) = &self.sums {
                let (start, len) = column.byte_range();
                sums.check(index, &self.bytes, start..start.saturating_add(len))
                    .map_err(|error| damaged(&self.path, error))?
                    .map_err(|changed| damaged(&self.path, changed))?;
            }
        }
        Ok(())
    }

    /// Number of rows in all row groups.
    pub fn rows(&self) -> Result<u64, LakeError> {
        let groups = self.file.metadata().row_groups().iter();
        let rows = groups.map(|group| u64::try_from(group.num_rows()).ok());
        rows.sum::<Option<u64>>()
            .ok_or_else(|| damaged(&self.path, "number of rows is negative"))
    }

    /// Reads all rows of one group into a batch, replacing its contents.
    pub fn read_group(
        &mut self,
        number: usize,
        batch: &mut Batch,
        texts: &mut Vec<ByteArray>,
    ) -> Result<(), LakeError> {
        self.begin_group(number, batch.table())?;
        // A hostile footer makes this allocate at most one batch; beyond that, memory grows only with rows that exist.
        let mut more = Batch::new(batch.table());
        batch.clear();
        while self.left > 0 {
            self.fill(&mut more, BATCH_ROWS_MAX, texts)?;
            batch.append(&more);
        }
        Ok(())
    }

    /// Reads up to `rows_max` rows of the group.
    fn fill(
        &mut self,
        batch: &mut Batch,
        rows_max: usize,
        texts: &mut Vec<ByteArray>,
    ) -> Result<(), LakeError> {
        let rows = self.left.min(rows_max as u64) as usize;
        batch.clear();
        let columns = batch.table().columns.iter().zip(&mut self.columns);
        for (cells, (column, reader)) in batch.cells_mut().iter_mut().zip(columns) {
            fill(cells, reader.as_mut(), rows, texts)
                .map_err(|error| damaged(&self.path, error))?;
            cells.complete(rows, column.nullable);
        }
        batch.end_rows();
        self.left -= rows as u64;
        Ok(())
    }
}

fn damaged(path: &Path, what: impl ToString) -> LakeError {
    LakeError::Damaged {
        path: path.to_path_buf(),
        what: what.to_string(),
    }
}

fn malformed(path: &Path, table: &'static Table, what: impl ToString) -> LakeError {
    LakeError::Malformed {
        path: path.to_path_buf(),
        table: table.name,
        what: what.to_string(),
    }
}

/// Reads `rows` values into empty cells; nulls get an arbitrary value.
fn fill(
    cells: &mut Cells,
    reader: Option<&mut ColumnReader>,
    rows: usize,
    scratch: &mut Vec<ByteArray>,
) -> Result<(), ParquetError> {
    let Some(reader) = reader else {
        cells.fill_nulls(rows);
        return Ok(());
    };
    let levels = &mut cells.levels;
    let read = match (&mut cells.values, reader) {
        (Values::Ints(values), ColumnReader::Int64ColumnReader(reader)) => {
            let read = reader.read_records(rows, Some(levels), None, values)?;
            spread(values, levels, rows);
            read
        }
        (Values::Floats(values), ColumnReader::DoubleColumnReader(reader)) => {
            let read = reader.read_records(rows, Some(levels), None, values)?;
            spread(values, levels, rows);
            read
        }
        (Values::Bools(values), ColumnReader::BoolColumnReader(reader)) => {
            let read = reader.read_records(rows, Some(levels), None, values)?;
            spread(values, levels, rows);
            read
        }
        (Values::Texts(texts), ColumnReader::ByteArrayColumnReader(reader)) => {
            scratch.clear();
            let read = reader.read_records(rows, Some(levels), None, scratch)?;
            let mut present = scratch.drain(..);
            for row in 0..read.0 {
                let null = levels.get(row) == Some(&0);
                let text = if null { None } else { present.next() };
                texts.push(text.as_ref().map_or(Ok(""), ByteArray::as_utf8)?);
            }
            read
        }
        (Values::Bytes(strings), ColumnReader::ByteArrayColumnReader(reader)) => {
            scratch.clear();
            let read = reader.read_records(rows, Some(levels), None, scratch)?;
            let mut present = scratch.drain(..);
            for row in 0..read.0 {
                let null = levels.get(row) == Some(&0);
                let string = if null { None } else { present.next() };
                strings.push(string.as_ref().map_or(&[], ByteArray::data));
            }
            read
        }
        _ => return Err(ParquetError::General("column of the wrong type".into())),
    };
    if read.0 != rows {
        return Err(ParquetError::EOF(format!(
            "column ends after {} of {rows} rows",
            read.0
        )));
    }
    Ok(())
}

/// Moves values to their rows: `values` holds the non-null values, packed at the front.
fn spread<T: Clone + Default>(values: &mut Vec<T>, levels: &[i16], rows: usize) {
    if values.len() == rows || levels.len() != rows {
        return;
    }
    let mut packed = values.len();
    values.resize(rows, T::default());
    for row in (0..rows).rev() {
        if levels[row] == 1 && packed > 0 {
            packed -= 1;
            values.swap(row, packed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::table::Column;
    use crate::writer::{TableWriter, WriterOptions};

    const OLD: Table = Table {
        name: "t",
        doc: "Rows.",
        columns: &[
            Column::int("a", "One."),
            Column::text("gone", "Two.").nullable(),
        ],
    };
    const NEW: Table = Table {
        name: "t",
        doc: "Rows.",
        columns: &[
            Column::text("b", "Three.").nullable(),
            Column::int("a", "One.").nullable(),
        ],
    };
    const OTHER: Table = Table {
        name: "t",
        doc: "Rows.",
        columns: &[Column::float("a", "One.")],
    };

    fn table() -> TempDir {
        let folder = TempDir::new().unwrap();
        let mut writer =
            TableWriter::create(folder.path(), &OLD, WriterOptions::default()).unwrap();
        for a in 0..1000 {
            writer.rows().row().int(a).text("some text").end();
        }
        writer.finish().unwrap();
        folder
    }

    /// Columns may be added or removed between versions; types may not change.
    #[test]
    fn columns_may_be_added_or_removed_but_types_may_not_change() {
        let folder = table();
        let mut rows = 0;
        read_table(folder.path(), &NEW, |batch| {
            assert!(
                (0..batch.rows()).all(|row| batch.is_null("b", row) && !batch.is_null("a", row))
            );
            assert!(batch.ints("a").iter().copied().eq(0..1000));
            rows += batch.rows();
        })
        .unwrap();
        assert_eq!(rows, 1000);
        let error = read_table(folder.path(), &OTHER, |_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("part-000000.parquet: ") && error.contains("column a"),
            "{error}"
        );
        let missing = Table {
            name: "missing",
            ..OTHER
        };
        assert_eq!(
            parts(folder.path(), &missing).unwrap(),
            Vec::<PartFile>::new()
        );
    }

    /// A damaged file is reported, rejected as another table's, or yields the values that were written; reading it
    /// never panics.
    #[test]
    fn a_damaged_file_is_reported_and_yields_no_wrong_values() {
        let folder = table();
        let part = folder.path().join("t/part-000000.parquet");
        let whole = std::fs::read(&part).unwrap();
        let mut unnoticed = 0;
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            for damaged in [&whole[..at], &flipped[..]] {
                std::fs::write(&part, damaged).unwrap();
                let mut rows = 0..1000;
                let mut same = true;
                let read = read_table(folder.path(), &OLD, |batch| {
                    same &= batch.ints("a").iter().all(|a| rows.next() == Some(*a));
                    same &= batch.texts("gone").all(|text| text == "some text");
                });
                if read.is_ok_and(|bad| bad.is_empty()) {
                    assert!(
                        same && rows.is_empty(),
                        "byte {at} of {}: the values differ",
                        whole.len()
                    );
                    unnoticed += 1;
                }
            }
        }
        // Undetected flips are in words that don't affect values: the file's magic number and the checksum marker.
        assert!(
            unnoticed <= 16,
            "{unnoticed} of {} flips went undetected",
            2 * whole.len()
        );
    }

    /// A part without checksums, from an older version, is readable.
    #[test]
    fn a_part_without_sums_is_read() {
        let folder = table();
        let part = folder.path().join("t/part-000000.parquet");
        let whole = std::fs::read(&part).unwrap();
        let end = whole
            .windows(8)
            .position(|eight| eight == b"BrntSum1")
            .expect("there are sums")
            + 8;
        // Remove the checksums of two columns and the footer, their count, and the marker.
        let without = [&whole[..end - 8 - 4 - 3 * 8], &whole[end..]].concat();
        std::fs::write(&part, without).unwrap();
        let mut rows = 0;
        assert!(
            read_table(folder.path(), &OLD, |batch| rows += batch.rows())
                .unwrap()
                .is_empty()
        );
        assert_eq!(rows, 1000);
    }

    /// One bad part of three loses only its own rows and is named in the error.
    #[test]
    fn one_bad_part_of_three_loses_only_its_own_rows() {
        let folder = TempDir::new().unwrap();
        let mut writer =
            TableWriter::create(folder.path(), &OLD, WriterOptions::default()).unwrap();
        for part in 0..3 {
            (0..100).for_each(|a| {
                writer
                    .rows()
                    .row()
                    .int(100 * part + a)
                    .text("some text")
                    .end()
            });
            writer.rotate().unwrap();
        }
        let parts = parts(folder.path(), &OLD).unwrap();
        assert_eq!(parts.len(), 3);
        let bytes = std::fs::read(&parts[1].path).unwrap();
        for bad in [
            &bytes[..bytes.len() / 2],
            &bytes[..3],
            b"",
            b"nonsense of some length",
        ] {
            std::fs::write(&parts[1].path, bad).unwrap();
            let mut rows = Vec::new();
            let damaged = read_table(folder.path(), &OLD, |batch| {
                rows.extend_from_slice(batch.ints("a"))
            })
            .unwrap();
            assert!(rows.into_iter().eq((0..100).chain(200..300)));
            assert_eq!(damaged.len(), 1);
            assert!(
                damaged[0]
                    .to_string()
                    .contains("t/part-000001.parquet: damaged"),
                "{}",
                damaged[0]
            );
        }
    }
}
