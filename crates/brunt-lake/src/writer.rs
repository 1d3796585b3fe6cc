//! Writes a table's parts. Called by the one thread that owns the table, with the time of its clock.
//!
//! A part is closed when it has enough rows or bytes, or is old enough. Before that, its rows so far are written as a
//! complete part of the same name whenever they have waited for `age_max`, so that a slow table has
//! few files and yet loses little to a crash. Every part appears under its name by a rename.
//!
//! The rule: rows stay in memory until the file that has them is complete. When the disk is full they
//! are still there; the caller makes room and commits again, or gives them up and says so
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

/// When parts are closed, and how much of them is kept.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Rows of a part; also what a crash loses at most.
    pub rows_max: usize,
    /// Closes a part early when its values take this much memory.
    pub bytes_max: usize,
    /// Rows wait no longer than this for a file.
    pub age_max: Duration,
    /// In a small part they wait only this long. The wait grows with the rows and bytes of the part up to `age_max`
    /// for a full one, because each save writes all of them again.
    pub age_min: Duration,
    /// Closes a part when its first row has been there for so long, however few there are. `None`: parts
    /// of slow tables grow.
    pub part_age_max: Option<Duration>,
    /// Whose parts these are, where several write a table side by side.
    pub series: u16,
    /// Bytes of all parts of the table on disk; beyond it the oldest are deleted and counted.
    /// `None`: keep all.
    pub keep_bytes: Option<u64>,
    /// Rows of a part are put in the order of this integer column, and as they came where it is
    /// equal: what belongs together then takes less room. Nulls come first.
    pub order: Option<&'static str>,
    /// Shared by the writers of one thread.
    pub workspace: Workspace,
}

/// Memory in which parts are made, some megabytes: one after the other, so that writers that never write
/// at the same time need one only.
#[derive(Clone, Default)]
pub struct Workspace(Arc<Mutex<Buffers>>);

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

impl Default for WriterOptions {
    /// 122880 rows (as DuckDB's row groups), 32 MiB in memory, 10 s however small the part, keep all. With that many, the
    /// columns have grown to 131072 values, which leaves room for the batch that closes the part.
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

/// The writer's ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows in complete parts, deleted ones included.
    pub rows: u64,
    /// Parts on disk.
    pub parts: u64,
    /// Their size.
    pub bytes: u64,
    /// Parts deleted to stay within `keep_bytes`.
    pub parts_deleted: u64,
    /// Rows given up for lack of room.
    pub rows_lost: u64,
}

/// A part that is complete and will not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPart {
    /// Its file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
}

/// One table on its way to disk.
pub struct TableWriter {
    folder: PathBuf,
    options: WriterOptions,
    encoder: Encoder,
    rows: Batch,
    number: u64,
    /// Rows of `rows` that are in a complete file of the open part, and its size.
    saved: (usize, u64),
    /// When the rows that are not were first seen.
    waiting_since: Option<Nanos>,
    /// When the first row of the open part was first seen.
    part_since: Option<Nanos>,
    /// Number and size of closed parts, oldest first.
    closed: VecDeque<(u64, u64)>,
    /// The part that was closed last.
    last_closed: Option<ClosedPart>,
    written: Written,
}

impl TableWriter {
    /// A new table in `root`, made if it is missing. Leaves an empty part at once, so that readers
    /// find the table however early the end comes, and a disk without room shows now.
    ///
    /// # Errors
    /// `root` has such a table already, or cannot be written to.
    pub fn create(
        root: &Path,
        table: &'static Table,
        options: WriterOptions,
    ) -> Result<TableWriter, LakeError> {
        // A lake is filled by whoever gives out its numbers.
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

    /// Goes on after the parts that are there, of which there may be none. What a killed writer was
    /// about to write is removed.
    ///
    /// # Errors
    /// The folder cannot be made or read.
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
        // Parts that a lake has taken in may be gone; a new one of the same number would not count.
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

    /// Where to append. Call [`TableWriter::commit`] after a bounded number of rows.
    #[inline]
    pub fn rows(&mut self) -> &mut Batch {
        &mut self.rows
    }

    /// Writes what is due at `now`: cheap when nothing is.
    ///
    /// # Errors
    /// The disk. The rows are still here, and the next call tries again.
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

    /// How long rows of the open part wait for a file.
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

    /// Writes whatever is not on disk yet, now.
    ///
    /// # Errors
    /// As [`TableWriter::commit`].
    pub fn flush(&mut self) -> Result<(), LakeError> {
        if self.rows.rows() > self.saved.0 {
            self.save()
        } else {
            Ok(())
        }
    }

    /// Closes the part under way, if there are rows in it: the next row begins another one.
    ///
    /// # Errors
    /// As [`TableWriter::commit`].
    pub fn rotate(&mut self) -> Result<(), LakeError> {
        if self.rows.is_empty() {
            Ok(())
        } else {
            self.end_part()
        }
    }

    /// Writes the last part, durably, and tells what was written.
    ///
    /// # Errors
    /// As [`TableWriter::commit`]; the writer is still there to try again.
    pub fn finish(&mut self) -> Result<Written, LakeError> {
        self.rotate()?;
        Ok(self.written())
    }

    /// Forgets the rows that are in no file, for lack of room, and counts them as lost.
    pub fn give_up_rows(&mut self) {
        self.written.rows_lost += (self.rows.rows() - self.saved.0) as u64;
        self.next_part();
    }

    /// What there is on disk up to now.
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

    /// The part that this writer closed last.
    pub fn last_closed(&self) -> Option<&ClosedPart> {
        self.last_closed.as_ref()
    }

    /// Bytes of the open part on disk.
    pub fn open_bytes(&self) -> u64 {
        self.saved.1
    }

    /// The table's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The rows so far as a complete file. It is the next call's, or the end's, to make them durable.
    fn save(&mut self) -> Result<(), LakeError> {
        self.put(false)?;
        self.keep_within_budget();
        Ok(())
    }

    /// The same for the last time, and on the medium when this returns.
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
            // What is left of it takes room that others need.
            let _ = std::fs::remove_file(&open);
            return Err(io(error));
        }
        self.saved = (self.rows.rows(), bytes);
        self.waiting_since = None;
        Ok(())
    }

    /// Begins another part after the one that is complete on disk, if one is.
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

    /// Deletes the oldest closed parts beyond the budget. The newest part stays in any case.
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
            // Somebody else may have deleted it: the budget is kept all the same.
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
        /// The first column of every row there is, after checking the others against it.
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

    /// Rows come back as they were, over parts closed by rows, with nulls of every type.
    #[test]
    fn rows_come_back() {
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

    /// Whoever looks at the folder at any moment, as after a SIGKILL, can read it, and no
    /// row that has waited for `age_max` is missing.
    #[test]
    fn every_moment_is_readable() {
        let folder = Folder::new();
        let mut writer = TableWriter::create(folder.path(), &TABLE, small(25)).unwrap();
        assert_eq!(folder.files(), ["part-000000.parquet"]);
        for at in 0..100 {
            push(&mut writer, at);
            // A row each four seconds: three wait, at most.
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

    /// Rows of a small part are in a file a second after they came, those of a larger one after a time in proportion,
    /// and no row waits longer than `age_max`.
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

    /// A killed writer's half file is no part, and a resumed one goes on behind the parts.
    #[test]
    fn resumed_after_a_kill() {
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

    /// A part is closed when its first row is old enough, however few there are and whether or
    /// not the rows are on disk already; without new rows there are no new parts.
    #[test]
    fn parts_end_by_time() {
        let folder = Folder::new();
        let options = WriterOptions {
            part_age_max: Some(Duration::from_secs(60)),
            ..small(1000)
        };
        let mut writer = TableWriter::create(folder.path(), &TABLE, options).unwrap();
        for second in 0..300u64 {
            // A row each ten seconds in the first two minutes, then none.
            if second % 10 == 0 && second < 120 {
                push(&mut writer, second as i64 / 10);
            }
            writer.commit(Nanos(second * 1_000_000_000)).unwrap();
        }
        // Rows of 0 to 60 s, then of 70 s on: the row that comes with the end belongs to the old part.
        let written = writer.written();
        assert_eq!(
            (written.rows, written.parts, folder.files().len()),
            (12, 2, 2)
        );
        assert!(folder.read().into_iter().eq(0..12));
        assert_eq!(writer.finish().unwrap(), written);
    }

    /// Several write a table side by side; each goes on behind its own parts, and a reader finds
    /// all of them, or those of one.
    #[test]
    fn series_side_by_side() {
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
            // One is killed while it writes; another must not take that for its own.
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

    /// A budget keeps the newest rows, and counts what it deleted.
    #[test]
    fn the_oldest_parts_go() {
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

    /// Trouble with the disk names the file, loses nothing in memory, and passes when the
    /// cause has passed. (A folder that is gone stands for the disk here.)
    #[test]
    fn trouble_passes() {
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
