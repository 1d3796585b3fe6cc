//! Writes a table's parts. Called by the only thread that owns the table, using that thread's clock.
//!
//! A part is closed when it has enough rows or bytes or is old enough. Until then, its rows are saved as a complete
//! part under the same name whenever they have waited for `age_max`, so that a slow table has few files but loses
//! little in a crash. Every part gets its name by a rename.
//!
//! The rule: rows stay in memory until a file that contains them is complete. If the disk is full, the rows are kept;
//! the caller frees space and commits again, or drops the rows, which are then counted as lost
//! ([`TableWriter::give_up_rows`]).

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brunt_core::Nanos;

use crate::batch::Batch;
use crate::catalog::Catalog;
use crate::encode::{Buffers, Encoder};
use crate::error::LakeError;
use crate::reader::{OPEN_SUFFIX, PartFile, captured_parts};
use crate::snapshot::LakeSnapshot;
use crate::table::Table;

/// Limits for closing and keeping parts.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Maximum rows per part, and thus the most rows that a crash can lose.
    pub rows_max: usize,
    /// Closes a part early once its values take this much memory.
    pub bytes_max: usize,
    /// Maximum time until rows are saved.
    pub age_max: Duration,
    /// Minimum time until rows are saved, for a small part. The wait grows with the part's rows and bytes, up to
    /// `age_max` for a full part, because each save rewrites all of them.
    pub age_min: Duration,
    /// Closes a part this long after its first row, regardless of its number of rows. `None`: parts of slow tables keep
    /// growing.
    pub part_age_max: Option<Duration>,
    /// Series number, for writers that share a table.
    pub series: u16,
    /// Maximum size of all parts of the table on disk; the oldest parts in excess are deleted and counted. `None`: keep
    /// all.
    pub keep_bytes: Option<u64>,
    /// Sorts a part's rows by this integer column (stable, nulls first): similar rows next to each other compress
    /// better.
    pub order: Option<&'static str>,
    /// Encoding buffers, shared by the writers of one thread.
    pub workspace: Workspace,
}

/// Encoding buffers, a few megabytes. Writers that never write concurrently share them.
#[derive(Clone, Default)]
pub struct Workspace(Arc<Mutex<Buffers>>);

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

impl Default for WriterOptions {
    /// Parts of at most 122880 rows (like DuckDB's row groups) and 32 MiB in memory, saved after 10 s regardless of
    /// size; all are kept. Columns that hold this many rows have a capacity of 131072 values, which leaves room for the
    /// batch that closes the part.
    fn default() -> WriterOptions {
        WriterOptions {
            rows_max: 122_880,
            bytes_max: 32 << 20,
            age_max: Duration::from_secs(10),
            age_min: Duration::from_secs(10),
            part_age_max: None,
            series: 0,
            keep_bytes: None,
            order: None,
            workspace: Workspace::default(),
        }
    }
}

/// Counters of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows in complete parts, including deleted parts.
    pub rows: u64,
    /// Parts on disk.
    pub parts: u64,
    /// Size of those parts.
    pub bytes: u64,
    /// Parts deleted to stay within `keep_bytes`.
    pub parts_deleted: u64,
    /// Rows dropped because the disk was full.
    pub rows_lost: u64,
}

/// A complete part, which won't change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPart {
    /// Path of the file.
    pub path: PathBuf,
    /// File size.
    pub bytes: u64,
    /// Number of rows.
    pub rows: u64,
}

/// Writes one table.
pub struct TableWriter {
    folder: PathBuf,
    options: WriterOptions,
    encoder: Encoder,
    rows: Batch,
    number: u64,
    /// How many of `rows` are saved in a complete file of the open part, and the file's size.
    saved: (usize, u64),
    /// When the first unsaved row was seen.
    waiting_since: Option<Nanos>,
    /// When the first row of the open part was seen.
    part_since: Option<Nanos>,
    /// Number and size of each closed part, oldest first.
    closed: VecDeque<(u64, u64)>,
    /// The part closed most recently.
    last_closed: Option<ClosedPart>,
    written: Written,
}

impl TableWriter {
    /// Creates a table in `root`, creating `root` if necessary. Writes an empty part at once, so that readers find the
    /// table even if the run ends early, and a full disk is noticed immediately.
    ///
    /// # Errors
    /// `root` already contains such a table or cannot be written to.
    pub fn create(
        root: &Path,
        table: &'static Table,
        options: WriterOptions,
    ) -> Result<TableWriter, LakeError> {
        // Only the compaction writes rows of a lake; it assigns the part numbers.
        if LakeSnapshot::open_whole(root)?.catalog().is_some() {
            return Err(LakeError::Taken {
                path: root.join(table.name),
            });
        }
        let mut writer = TableWriter::resume(root, table, options)?;
        if writer.number > 0 {
            return Err(LakeError::Taken {
                path: writer.folder,
            });
        }
        writer.save()?;
        Ok(writer)
    }

    /// Continues after existing parts, if any. Unfinished files of a killed writer are removed.
    ///
    /// # Errors
    /// The folder cannot be created or read.
    pub fn resume(
        root: &Path,
        table: &'static Table,
        options: WriterOptions,
    ) -> Result<TableWriter, LakeError> {
        let folder = root.join(table.name);
        std::fs::create_dir_all(&folder).map_err(LakeError::io(&folder))?;
        for entry in std::fs::read_dir(&folder).map_err(LakeError::io(&folder))? {
            let path = entry.map_err(LakeError::io(&folder))?.path();
            let is_open = path
                .extension()
                .is_some_and(|extension| extension == OPEN_SUFFIX);
            let series = PartFile::parse(&path.with_extension("")).map(|(series, _)| series);
            if is_open && series == Some(options.series) {
                std::fs::remove_file(&path).map_err(LakeError::io(&path))?;
            }
        }
        let mut closed = VecDeque::new();
        for PartFile { captured, path } in captured_parts(root, table.name)? {
            if let Some((series, number)) = captured
                && series == options.series
            {
                let bytes = std::fs::metadata(&path)
                    .map_err(LakeError::io(&path))?
                    .len();
                closed.push_back((number, bytes));
            }
        }
        // Absorbed parts may have been deleted; a new part that reused such a number would be ignored.
        let snapshot = LakeSnapshot::open_whole(root)?;
        let own = snapshot.catalog().and_then(Catalog::own);
        let absorbed = own.and_then(|tap| tap.absorbed(table.name, options.series));
        let behind = closed.back().map_or(0, |(number, _)| number + 1);
        let parts = closed.len() as u64;
        let bytes = closed.iter().map(|(_, bytes)| bytes).sum();
        Ok(TableWriter {
            folder,
            options,
            encoder: Encoder::new(table),
            rows: Batch::new(table),
            number: behind.max(absorbed.map_or(0, |absorbed| absorbed.next)),
            saved: (0, 0),
            waiting_since: None,
            part_since: None,
            closed,
            last_closed: None,
            written: Written {
                parts,
                bytes,
                ..Written::default()
            },
        })
    }

    /// The batch to append to. Call [`TableWriter::commit`] after a bounded number of rows.
    #[inline]
    pub fn rows(&mut self) -> &mut Batch {
        &mut self.rows
    }

    /// Writes what is due at `now`; cheap if nothing is due.
    ///
    /// # Errors
    /// The disk failed. The rows are kept, and the next call retries.
    #[inline]
    pub fn commit(&mut self, now: Nanos) -> Result<(), LakeError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let part_since = *self.part_since.get_or_insert(now);
        let is_old = self
            .options
            .part_age_max
            .is_some_and(|age_max| now.since(part_since) >= age_max);
        if self.rows.rows() == self.saved.0 && !is_old {
            return Ok(());
        }
        let is_full = self.rows.rows() >= self.options.rows_max
            || self.rows.bytes() >= self.options.bytes_max;
        if is_full || is_old {
            return self.end_part();
        }
        let since = *self.waiting_since.get_or_insert(now);
        if now.since(since) >= self.wait_max() {
            self.save()
        } else {
            Ok(())
        }
    }

    /// Maximum time that rows of the open part wait to be saved.
    fn wait_max(&self) -> Duration {
        let WriterOptions {
            rows_max,
            bytes_max,
            age_max,
            age_min,
            ..
        } = self.options;
        let rows = self.rows.rows() as f64 / rows_max.max(1) as f64;
        let bytes = self.rows.bytes() as f64 / bytes_max.max(1) as f64;
        age_max
            .mul_f64(rows.max(bytes).min(1.0))
            .max(age_min)
            .min(age_max)
    }

    /// Writes all unsaved rows now.
    ///
    /// # Errors
    /// As for [`TableWriter::commit`].
    pub fn flush(&mut self) -> Result<(), LakeError> {
        if self.rows.rows() > self.saved.0 {
            self.save()
        } else {
            Ok(())
        }
    }

    /// Closes the open part if it has rows: the next row starts a new one.
    ///
    /// # Errors
    /// As for [`TableWriter::commit`].
    pub fn rotate(&mut self) -> Result<(), LakeError> {
        if self.rows.is_empty() {
            Ok(())
        } else {
            self.end_part()
        }
    }

    /// Durably writes the last part and returns the totals.
    ///
    /// # Errors
    /// As for [`TableWriter::commit`]; call it again to retry.
    pub fn finish(&mut self) -> Result<Written, LakeError> {
        self.rotate()?;
        Ok(self.written())
    }

    /// Drops the unsaved rows for lack of disk space, and counts them as lost.
    pub fn give_up_rows(&mut self) {
        self.written.rows_lost += (self.rows.rows() - self.saved.0) as u64;
        self.next_part();
    }

    /// Totals on disk so far.
    pub fn written(&self) -> Written {
        let (rows, bytes) = self.saved;
        let open = u64::from(bytes > 0);
        let Written {
            rows: all,
            parts,
            bytes: closed,
            ..
        } = self.written;
        Written {
            rows: all + rows as u64,
            parts: parts + open,
            bytes: closed + bytes,
            ..self.written
        }
    }

    /// The table's name.
    pub fn name(&self) -> &'static str {
        self.rows.table().name
    }

    /// The part closed most recently.
    pub fn last_closed(&self) -> Option<&ClosedPart> {
        self.last_closed.as_ref()
    }

    /// Size of the open part on disk.
    pub fn open_bytes(&self) -> u64 {
        self.saved.1
    }

    /// The table's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves the rows so far as a complete file. It is synced only at the end of the part.
    fn save(&mut self) -> Result<(), LakeError> {
        self.put(false)?;
        self.keep_within_budget();
        Ok(())
    }

    /// Saves the part for the last time, synced, and starts the next one.
    fn end_part(&mut self) -> Result<(), LakeError> {
        self.put(true)?;
        self.next_part();
        self.keep_within_budget();
        Ok(())
    }

    fn put(&mut self, durable: bool) -> Result<(), LakeError> {
        let path = self.path(self.number);
        let open = path.with_extension(format!("parquet.{OPEN_SUFFIX}"));
        let mut buffers = self
            .options
            .workspace
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.encoder
            .encode(&self.rows, self.options.order, &mut buffers)
            .map_err(|error| LakeError::writing(&path, 0, std::io::Error::other(error)))?;
        let bytes = buffers.file.len() as u64;
        let io = |error| LakeError::writing(&path, bytes, error);
        let write = || {
            let mut file = File::create(&open)?;
            file.write_all(&buffers.file)?;
            if durable {
                file.sync_data()?;
            }
            std::fs::rename(&open, &path)
        };
        if let Err(error) = write() {
            // Free the space that the unfinished file takes.
            let _ = std::fs::remove_file(&open);
            return Err(io(error));
        }
        self.saved = (self.rows.rows(), bytes);
        self.waiting_since = None;
        Ok(())
    }

    /// Starts the next part, after the saved part if any.
    fn next_part(&mut self) {
        let (rows, bytes) = std::mem::take(&mut self.saved);
        if bytes > 0 {
            self.last_closed = Some(ClosedPart {
                path: self.path(self.number),
                bytes,
                rows: rows as u64,
            });
            self.closed.push_back((self.number, bytes));
            self.number += 1;
            self.written.rows += rows as u64;
            self.written.parts += 1;
            self.written.bytes += bytes;
        }
        self.rows.clear();
        self.waiting_since = None;
        self.part_since = None;
    }

    /// Deletes the oldest closed parts until the table is within its limit. The newest part always stays.
    fn keep_within_budget(&mut self) {
        let Some(keep) = self.options.keep_bytes else {
            return;
        };
        while self.written.bytes + self.saved.1 > keep
            && self.closed.len() + usize::from(self.saved.1 > 0) > 1
        {
            let Some((number, bytes)) = self.closed.pop_front() else {
                return;
            };
            // If something else has already deleted the part, it no longer counts either.
            let _ = std::fs::remove_file(self.path(number));
            self.written.parts -= 1;
            self.written.bytes -= bytes;
            self.written.parts_deleted += 1;
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder
            .join(PartFile::name(self.options.series, number))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::reader::read_table;
    use crate::table::{Coding, Column};

    const TABLE: Table = Table {
        name: "t",
        doc: "Rows.",
        columns: &[
            Column::int("at_ns", "A time."),
            Column::int("code", "A code.")
                .coded(Coding::Dictionary)
                .nullable(),
            Column::float("share", "A share.").nullable(),
            Column::bool("good", "Whether.").nullable(),
            Column::text("name", "A name.").nullable(),
            Column::text("path", "A path.").coded(Coding::Delta),
        ],
    };

    struct Folder(TempDir);
    impl Folder {
        fn new() -> Folder {
            Folder(TempDir::new().unwrap())
        }
        fn path(&self) -> &Path {
            self.0.path()
        }
        fn files(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.path().join("t")).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
        /// The first column of all rows, after checking the other columns against it.
        fn read(&self) -> Vec<i64> {
            let mut times = Vec::new();
            read_table(self.path(), &TABLE, |batch| {
                let (mut names, mut paths) = (batch.texts("name"), batch.texts("path"));
                for (row, at) in batch.ints("at_ns").iter().copied().enumerate() {
                    let null = at % 3 == 0;
                    for column in ["code", "share", "good", "name"] {
                        assert_eq!(batch.is_null(column, row), null, "{column} of {at}");
                    }
                    let name = names.next().unwrap();
                    assert_eq!(paths.next().unwrap(), format!("/{at}"));
                    if !null {
                        assert_eq!(
                            (batch.ints("code")[row], batch.floats("share")[row]),
                            (at % 7, at as f64 / 2.0)
                        );
                        assert_eq!(
                            (batch.bools("good")[row], name),
                            (at % 2 == 0, ["x", "longer"][at as usize % 2])
                        );
                    }
                    times.push(at);
                }
            })
            .unwrap();
            times
        }
    }

    fn push(writer: &mut TableWriter, at: i64) {
        let some = at % 3 != 0;
        let name = ["x", "longer"][at as usize % 2];
        let row = writer
            .rows()
            .row()
            .int(at)
            .int_or_null(some.then_some(at % 7));
        let row = row
            .float_or_null(some.then_some(at as f64 / 2.0))
            .bool_or_null(some.then_some(at % 2 == 0));
        row.text_or_null(some.then_some(name))
            .text(&format!("/{at}"))
            .end();
    }

    fn small(rows_max: usize) -> WriterOptions {
        WriterOptions {
            rows_max,
            ..WriterOptions::default()
        }
    }

    /// Rows read back equal across parts closed by row count, with nulls of every type.
    #[test]
    fn rows_read_back_equal_across_parts() {
        let folder = Folder::new();
        let mut writer = TableWriter::create(folder.path(), &TABLE, small(50_000)).unwrap();
        for at in 0..170_000 {
            push(&mut writer, at);
            writer.commit(Nanos(0)).unwrap();
        }
        let written = writer.finish().unwrap();
        assert_eq!(
            (written.rows, written.parts, written.rows_lost),
            (170_000, 4, 0)
        );
        assert!(folder.read().into_iter().eq(0..170_000));
        let on_disk: u64 = folder
            .files()
            .iter()
            .map(|name| {
                std::fs::metadata(folder.path().join("t").join(name))
                    .unwrap()
                    .len()
            })
            .sum();
        assert_eq!(written.bytes, on_disk);
    }

    /// The folder is readable at any moment, as after a SIGKILL, and contains every row that has waited for `age_max`.
    #[test]
    fn the_folder_is_readable_at_any_moment() {
        let folder = Folder::new();
        let mut writer = TableWriter::create(folder.path(), &TABLE, small(25)).unwrap();
        assert_eq!(folder.files(), ["part-000000.parquet"]);
        for at in 0..100 {
            push(&mut writer, at);
            // One row every four seconds: at most three rows are unsaved.
            writer.commit(Nanos(at as u64 * 4_000_000_000)).unwrap();
            let there = folder.read().len() as i64;
            assert!((at - 2..=at + 1).contains(&there), "{there} of {at}");
            assert_eq!(writer.written().rows, there as u64);
        }
        assert_eq!(writer.finish().unwrap().parts, 4);
        assert!(folder.read().into_iter().eq(0..100));
        assert!(matches!(
            TableWriter::create(folder.path(), &TABLE, small(25)),
            Err(LakeError::Taken { .. })
        ));
    }

    /// Rows of a small part are saved after a second, those of a larger part after a proportionally longer time, but no
    /// row waits longer than `age_max`.
    #[test]
    fn small_parts_are_saved_sooner() {
        let folder = Folder::new();
        let options = WriterOptions {
            age_min: Duration::from_secs(1),
            ..small(1000)
        };
        let mut writer = TableWriter::create(folder.path(), &TABLE, options).unwrap();
        let mut saved_at = Vec::new();
        // Five minutes in steps of 10 ms; ten rows a second until the part is half full.
        for step in 0..30_000u64 {
            if step % 10 == 0 && writer.rows().rows() < 500 {
                push(&mut writer, (step / 10) as i64);
            }
            let before = writer.written().rows;
            writer.commit(Nanos(step * 10_000_000)).unwrap();
            if writer.written().rows > before {
                saved_at.push((step * 10, writer.written().rows));
            }
        }
        let waits: Vec<u64> = saved_at
            .windows(2)
            .map(|pair| pair[1].0 - pair[0].0)
            .collect();
        assert_eq!(saved_at[0].0, 1000, "{saved_at:?}");
        assert!(waits.iter().all(|wait| *wait <= 11_000), "{waits:?}");
        assert!(
            waits[0] <= 2000 && *waits.last().unwrap() > waits[0],
            "{waits:?}"
        );
        assert_eq!((writer.written().rows, folder.read().len()), (500, 500));
    }

    /// An unfinished file of a killed writer isn't a part, and a resumed writer continues after the existing parts.
    #[test]
    fn a_resumed_writer_continues_after_the_existing_parts() {
        let folder = Folder::new();
        let mut writer = TableWriter::create(folder.path(), &TABLE, small(2)).unwrap();
        push(&mut writer, 0);
        writer.finish().unwrap();
        std::fs::write(folder.path().join("t/part-000001.parquet.open"), "half").unwrap();
        assert_eq!(folder.read(), [0]);
        let mut writer = TableWriter::resume(folder.path(), &TABLE, small(2)).unwrap();
        push(&mut writer, 1);
        let written = writer.finish().unwrap();
        assert_eq!((written.rows, written.parts), (1, 2));
        assert_eq!((folder.files().len(), folder.read()), (2, vec![0, 1]));
    }

    /// A part is closed once its first row is old enough, however few rows it has and whether or not they are saved; no
    /// new parts are created without new rows.
    #[test]
    fn a_part_is_closed_once_its_first_row_is_old_enough() {
        let folder = Folder::new();
        let options = WriterOptions {
            part_age_max: Some(Duration::from_secs(60)),
            ..small(1000)
        };
        let mut writer = TableWriter::create(folder.path(), &TABLE, options).unwrap();
        for second in 0..300u64 {
            // A row every ten seconds for the first two minutes, then none.
            if second % 10 == 0 && second < 120 {
                push(&mut writer, second as i64 / 10);
            }
            writer.commit(Nanos(second * 1_000_000_000)).unwrap();
        }
        // The first part has the rows of 0 to 60 s, the second those from 70 s on: the row that arrives at the limit
        // belongs to the first part.
        let written = writer.written();
        assert_eq!(
            (written.rows, written.parts, folder.files().len()),
            (12, 2, 2)
        );
        assert!(folder.read().into_iter().eq(0..12));
        assert_eq!(writer.finish().unwrap(), written);
    }

    /// Several writers share a table; each continues after its own parts, and a reader finds the parts of all writers
    /// or of one.
    #[test]
    fn writers_that_share_a_table_continue_after_their_own_parts() {
        let folder = Folder::new();
        for round in 0..2 {
            let options = |series| WriterOptions {
                series,
                ..small(10)
            };
            let mut writers: Vec<TableWriter> = [0, 1, 12]
                .map(|series| TableWriter::resume(folder.path(), &TABLE, options(series)).unwrap())
                .into();
            for (index, writer) in writers.iter_mut().enumerate() {
                push(writer, index as i64 * 100 + round);
            }
            // One writer is killed while writing; the other must not remove its file.
            std::fs::write(folder.path().join("t/part-1-000007.parquet.open"), "half").unwrap();
            TableWriter::resume(folder.path(), &TABLE, options(0)).unwrap();
            assert!(folder.path().join("t/part-1-000007.parquet.open").exists());
            for writer in &mut writers {
                writer.finish().unwrap();
            }
        }
        assert_eq!(folder.read(), [0, 1, 100, 101, 200, 201]);
        let parts = captured_parts(folder.path(), "t").unwrap();
        let numbers: Vec<_> = parts.into_iter().filter_map(|part| part.captured).collect();
        assert_eq!(numbers, [(0, 0), (0, 1), (1, 0), (1, 1), (12, 0), (12, 1)]);
    }

    /// A size limit keeps the newest rows and counts the deleted parts.
    #[test]
    fn a_size_limit_deletes_the_oldest_parts_and_counts_them() {
        let folder = Folder::new();
        let one = {
            let mut writer = TableWriter::create(folder.path(), &TABLE, small(10)).unwrap();
            (0..10).for_each(|at| push(&mut writer, at));
            writer.finish().unwrap().bytes
        };
        std::fs::remove_dir_all(folder.path()).unwrap();
        let options = WriterOptions {
            keep_bytes: Some(one * 4),
            ..small(10)
        };
        let mut writer = TableWriter::create(folder.path(), &TABLE, options).unwrap();
        for at in 0..100 {
            push(&mut writer, at);
            writer.commit(Nanos(0)).unwrap();
        }
        let written = writer.finish().unwrap();
        assert_eq!(
            (written.rows, written.parts + written.parts_deleted),
            (100, 10)
        );
        assert!(
            written.bytes <= one * 4 && written.parts >= 2,
            "{written:?}"
        );
        assert!(
            folder
                .read()
                .into_iter()
                .eq(100 - written.parts as i64 * 10..100)
        );
    }

    /// A disk error names the file, loses nothing in memory, and goes away with its cause. (A missing folder simulates
    /// a failing disk.)
    #[test]
    fn a_disk_error_loses_nothing_and_goes_away_with_its_cause() {
        let folder = Folder::new();
        let mut writer = TableWriter::create(folder.path(), &TABLE, small(2)).unwrap();
        let away = folder.path().join("away");
        std::fs::rename(folder.path().join("t"), &away).unwrap();
        push(&mut writer, 0);
        push(&mut writer, 1);
        for _ in 0..2 {
            let error = writer.commit(Nanos(0)).unwrap_err();
            assert!(
                error.to_string().contains("part-000000.parquet: ") && !error.is_full(),
                "{error}"
            );
        }
        std::fs::rename(&away, folder.path().join("t")).unwrap();
        writer.commit(Nanos(0)).unwrap();
        push(&mut writer, 2);
        writer.give_up_rows();
        let written = writer.finish().unwrap();
        assert_eq!(
            (written.rows, written.rows_lost, folder.read()),
            (2, 1, vec![0, 1])
        );
        let full = LakeError::writing(Path::new("x"), 7, std::io::Error::from_raw_os_error(28));
        assert!(
            full.is_full() && full.to_string().contains("no space for 7 more bytes"),
            "{full}"
        );
    }
}
