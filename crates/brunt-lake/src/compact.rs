//! Merges captured parts into a lake, and small parts of a lake into larger ones. Used by `brunt lake`, with the table
//! layouts from `brunt-capture`.
//!
//! ```text
//!   Compaction::begin ──► take_in, merge_small (any number of times) ──► commit ──► …
//!        lock, sweep        new parts, under temporary names              rename, version, sweep
//! ```
//!
//! A version is committed in three steps, and nothing is lost if the process is killed between any two of them:
//!
//! 1. the new parts, complete and durable under temporary names (`*.open`), are renamed to their final names;
//! 2. the version gets its name, which makes it visible to readers all at once;
//! 3. parts that no version in use refers to are deleted ([`Compaction::sweep`]). The next compaction finishes this
//!    step if it was interrupted.
//!
//! The rule: a captured part is deleted only after a durable version contains its rows. A damaged part is never
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brunt_core::FileLock;
use parquet::file::reader::FileReader;

use crate::batch::Batch;
use crate::catalog::{
    CATALOG_FOLDER, CATALOG_FORMAT, Catalog, LakePart, LakeTap, prune_copies, version_path,
    versions,
};
use crate::delta;
use crate::error::LakeError;
use crate::guard::{self, is_complete, lake_files, open_name};
use crate::lock;
use crate::origin::PartOrigin;
use crate::part_writer::int_extremes;
use crate::place::{Grain, Hour, NUMBER_BITS, Placing, pipeline_of};
use crate::reader::{PartFile, PartReader, captured_parts, folders_in};
use crate::snapshot::LakeSnapshot;
use crate::spread::{Spread, SpreadTo};
use crate::table::Table;

/// This many small parts of a place are merged even if more rows are expected there.
const SMALL_PARTS_MAX: usize = 8;

/// How a lake stores the rows of a table.
#[derive(Clone, Debug)]
pub struct LakeLayout {
    /// The table.
    pub table: &'static Table,
    /// How rows are placed.
    pub placing: Placing,
    /// The sort column of row groups.
    pub order: Option<&'static str>,
    /// Columns that are queried by value, which get Bloom filters.
    pub blooms: Vec<&'static str>,
    /// Columns of ids, whose bits above the lower 48 are the pipeline number.
    pub ids: Vec<&'static str>,
    /// A column that holds only the pipeline number.
    pub pipeline: Option<&'static str>,
    /// A nullable column that gets the number of the tap's first pipeline.
    pub tap: Option<&'static str>,
    /// The id column by which other tables' rows are placed; this table provides the times of those ids.
    pub clock: Option<&'static str>,
}

impl LakeLayout {
    /// Columns whose extremes the catalog records.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let placing = match self.placing {
            Placing::Time(column)
            | Placing::Second(column)
            | Placing::Minute(column)
            | Placing::Id(column) => Some(column),
            Placing::Nowhere => None,
        };
        placing
            .into_iter()
            .chain(self.order)
            .chain(self.blooms.iter().copied())
            .chain(self.ids.iter().copied())
    }
}

/// Compaction settings.
#[derive(Clone, Copy, Debug)]
pub struct CompactOptions {
    /// A part is closed at this size; below half of it, it counts as small.
    pub part_bytes: u64,
    /// Replaced parts and versions stay on disk for this long, for readers that hold no lock.
    pub keep_old: Duration,
}

/// Counters of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CompactCounts {
    /// Captured parts absorbed, excluding damaged ones.
    pub parts_taken_in: u64,
    /// Rows in those parts.
    pub rows_taken_in: u64,
    /// Size of those parts.
    pub bytes_taken_in: u64,
    /// Small lake parts that were merged into larger ones.
    pub parts_merged: u64,
    /// New parts written.
    pub parts_written: u64,
    /// Size of the new parts.
    pub bytes_written: u64,
    /// Versions committed.
    pub versions: u64,
    /// Old parts deleted.
    pub parts_deleted: u64,
    /// Old parts kept for readers, or because `keep_old` hasn't passed yet.
    pub parts_kept: u64,
}

/// Exclusive write access to a lake.
pub struct Compaction {
    root: PathBuf,
    options: CompactOptions,
    /// The next version, as prepared so far.
    draft: Catalog,
    /// New parts of the draft, still under temporary names.
    fresh: Vec<String>,
    /// Number of the next new part.
    number: u64,
    counts: CompactCounts,
    damaged: Vec<LakeError>,
    _lock: FileLock,
}

/// A trace to absorb.
#[derive(Clone, Copy, Debug)]
pub struct TraceToAbsorb<'a> {
    /// The trace's folder.
    pub source: &'a Path,
    /// Index in [`Catalog::taps`].
    pub tap: usize,
    /// Whether the trace is still being captured. If so, the last part of each pipeline may still change and is
    /// skipped.
    pub is_running: bool,
    /// Absorbs at most this much per call, but at least one part.
    pub bytes_max: u64,
}

impl Compaction {
    /// Opens the lake in `root` for writing, creating it if necessary; `grain` is the time granularity of a new lake.
    ///
    /// # Errors
    /// Another process is writing to the lake ([`LakeError::Busy`]), or it cannot be read or written.
    pub fn begin(
        root: &Path,
        options: CompactOptions,
        grain: impl FnOnce() -> Result<Grain, LakeError>,
    ) -> Result<Compaction, LakeError> {
        // Don't create a new catalog in place of a lost one.
        if versions(root)?.is_empty() {
            guard::refuse_lost_version(root, 0)?;
        }
        let lock = lock_lake(root)?;
        let draft = match versions(root)?.last() {
            Some(newest) => Catalog::read(&version_path(root, *newest))?,
            None => Catalog::empty(grain()?),
        };
        let mut compaction = Compaction {
            root: root.to_path_buf(),
            options,
            draft,
            fresh: Vec::new(),
            number: 0,
            counts: CompactCounts::default(),
            damaged: Vec::new(),
            _lock: lock,
        };
        compaction.sweep()?;
        Ok(compaction)
    }

    /// The next version, as prepared so far.
    pub fn draft(&self) -> &Catalog {
        &self.draft
    }

    /// The next version's taps, to add or change.
    pub fn taps_mut(&mut self) -> &mut Vec<LakeTap> {
        &mut self.draft.taps
    }

    /// Drops the times of a tap's ids, once no more rows of the tap will arrive.
    pub fn forget_times(&mut self, tap: usize) {
        self.draft.timeline.forget(self.draft.taps[tap].numbers());
    }

    /// Counters so far.
    pub fn counts(&self) -> CompactCounts {
        self.counts
    }

    /// Damaged parts that were left out.
    pub fn damaged(&self) -> &[LakeError] {
        &self.damaged
    }

    /// Like [`Compaction::damaged`], but consumes the compaction.
    pub fn into_damaged(self) -> Vec<LakeError> {
        self.damaged
    }

    /// Absorbs captured parts of a table, continuing after the previous call. Returns whether there were any.
    ///
    /// # Errors
    /// The disk failed. Discard the draft in this case.
    pub fn take_in(
        &mut self,
        layout: &LakeLayout,
        from: TraceToAbsorb<'_>,
    ) -> Result<bool, LakeError> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        let name = layout.table.name;
        let parts = captured_parts(from.source, name)?;
        for (index, part) in parts.iter().enumerate() {
            let Some((series, number)) = part.captured else {
                continue;
            };
            let tap = &self.draft.taps[from.tap];
            let is_known = tap
                .absorbed(name, series)
                .is_some_and(|absorbed| number < absorbed.next);
            let next = parts.get(index + 1).and_then(|next| next.captured);
            let is_last = next.is_none_or(|(next, _)| next != series);
            if is_known || is_last && from.is_running {
                continue;
            }
            if !taken.is_empty() && bytes >= from.bytes_max {
                break;
            }
            bytes += part.path.metadata().map_or(0, |about| about.len());
            taken.push((part.clone(), series, number));
        }
        let rows_before = self.counts.rows_taken_in;
        let mut draft = std::mem::replace(&mut self.draft, Catalog::empty(Grain::Day));
        let done = self.spread_captured(layout, from, &mut draft, &taken);
        self.draft = draft;
        let new = done?;
        self.add_verified(layout, new, self.counts.rows_taken_in - rows_before)?;
        Ok(!taken.is_empty())
    }

    fn spread_captured(
        &mut self,
        layout: &LakeLayout,
        from: TraceToAbsorb<'_>,
        draft: &mut Catalog,
        parts: &[(PartFile, u16, u64)],
    ) -> Result<Vec<LakePart>, LakeError> {
        let name = layout.table.name;
        let mut after = draft.taps[from.tap].clone();
        for (_, series, number) in parts {
            after.absorb(name, *series, *number);
        }
        let mut to = self.spread_to(draft);
        to.origin = Some(PartOrigin::new(draft.grain));
        to.origin.iter_mut().for_each(|of| of.add_tap(&after, name));
        let mut spread = Spread::new(to, layout, &mut self.number);
        let (mut rows, mut texts) = (Batch::new(layout.table), Vec::new());
        for (part, series, number) in parts {
            let tap = &mut draft.taps[from.tap];
            tap.absorb(layout.table.name, *series, *number);
            let read = read_all(&part.path, &mut rows, &mut texts);
            match read {
                Ok(()) => {}
                // The capture deleted the part to stay within its size limit.
                Err(error) if error.is_gone() => continue,
                Err(error) if error.is_of_one_part() => {
                    let path = part.path.strip_prefix(from.source).unwrap_or(&part.path);
                    tap.left_out.push(path.to_string_lossy().into_owned());
                    self.damaged.push(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let pipeline = tap.first_pipeline + series;
            number_rows(layout, &mut rows, tap.first_pipeline);
            if let (Some(ids), Placing::Time(times)) = (layout.clock, layout.placing) {
                for (id, time) in rows.ints(ids).iter().zip(rows.ints(times)) {
                    draft.timeline.note(*id, *time);
                }
            }
            spread.push(&rows, pipeline, &draft.timeline)?;
            self.counts.parts_taken_in += 1;
            self.counts.rows_taken_in += rows.rows() as u64;
            self.counts.bytes_taken_in += part.path.metadata().map_or(0, |about| about.len());
        }
        spread.finish()
    }

    /// Absorbs all parts of a table in another lake, whatever their numbers. The other lake must be complete.
    ///
    /// # Errors
    /// As for [`Compaction::take_in`]; also if a part is damaged, which remains in the other lake.
    pub fn take_in_lake(
        &mut self,
        layout: &LakeLayout,
        source: &LakeSnapshot,
        tap: usize,
    ) -> Result<(), LakeError> {
        let rows_before = self.counts.rows_taken_in;
        let first_pipeline = self.draft.taps[tap].first_pipeline;
        let mut whole = self.draft.taps[tap].clone();
        whole.is_complete = true;
        let mut origin = PartOrigin::new(self.draft.grain);
        origin.add_tap(&whole, layout.table.name);
        let mut to = self.spread_to(&self.draft);
        to.origin = Some(origin);
        let mut spread = Spread::new(to, layout, &mut self.number);
        let (mut rows, mut texts) = (Batch::new(layout.table), Vec::new());
        let parts = source
            .parts(layout.table)?
            .into_iter()
            .filter(|part| part.captured.is_none());
        for part in parts {
            let mut open = PartReader::open(part.path.clone(), layout.table)?;
            for group in 0..open.file.num_row_groups() {
                open.read_group(group, &mut rows, &mut texts)?;
                number_rows(layout, &mut rows, first_pipeline);
                if let (Some(ids), Placing::Time(times)) = (layout.clock, layout.placing) {
                    for (id, time) in rows.ints(ids).iter().zip(rows.ints(times)) {
                        self.draft.timeline.note(*id, *time);
                    }
                }
                let pipeline = layout.pipeline_of(&rows).unwrap_or(first_pipeline);
                spread.push(&rows, pipeline, &self.draft.timeline)?;
                self.counts.rows_taken_in += rows.rows() as u64;
            }
            self.counts.parts_taken_in += 1;
            self.counts.bytes_taken_in += part.path.metadata().map_or(0, |about| about.len());
        }
        let new = spread.finish()?;
        self.add_verified(layout, new, self.counts.rows_taken_in - rows_before)
    }

    /// Merges small parts of each place: as soon as there are two if no more rows are expected there, otherwise when
    /// there are many. `is_finished` means that no more rows are expected anywhere. Returns whether any were merged.
    ///
    /// # Errors
    /// As for [`Compaction::take_in`].
    pub fn merge_small(
        &mut self,
        layout: &LakeLayout,
        is_finished: bool,
    ) -> Result<bool, LakeError> {
        let name = layout.table.name;
        let small_bytes = self.options.part_bytes / 2;
        let parts = self.draft.parts(name);
        let newest = parts.iter().map(|part| part.hour).max().flatten();
        let mut small: BTreeMap<Hour, Vec<LakePart>> = BTreeMap::new();
        for part in parts
            .iter()
            .filter(|part| part.bytes < small_bytes && !self.fresh.contains(&part.path))
        {
            small.entry(part.hour).or_default().push(part.clone());
        }
        small.retain(|hour, parts| {
            let is_over = is_finished || hour.is_some() && *hour != newest;
            parts.len() >= if is_over { 2 } else { SMALL_PARTS_MAX }
        });
        let (mut new, mut old, mut rows) = (Vec::new(), BTreeSet::new(), 0);
        for (hour, parts) in &small {
            match self.merge(layout, *hour, parts) {
                Ok(merged) => {
                    new.extend(merged);
                    old.extend(parts.iter().map(|part| part.path.clone()));
                    rows += parts.iter().map(|part| part.rows).sum::<u64>();
                    self.counts.parts_merged += parts.len() as u64;
                }
                // The damaged part stays, and readers report it.
                Err(error) if error.is_of_one_part() => self.damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(parts) = self.draft.parts.get_mut(name) {
            parts.retain(|part| !old.contains(&part.path));
        }
        self.add_verified(layout, new, rows)?;
        Ok(!old.is_empty())
    }

    fn merge(
        &mut self,
        layout: &LakeLayout,
        hour: Hour,
        parts: &[LakePart],
    ) -> Result<Vec<LakePart>, LakeError> {
        let mut groups = Vec::new();
        let mut origin = Some(PartOrigin::new(self.draft.grain));
        for (index, part) in parts.iter().enumerate() {
            let open = PartReader::open(self.root.join(&part.path), layout.table)?;
            guard::check_rows(&self.root.join(&part.path), open.rows()?, part.rows)?;
            origin = origin.zip(PartOrigin::of(&open)).map(|(mut all, of)| {
                all.add_merged(&part.path, of);
                all
            });
            let by = layout.order.map(|order| layout.table.index_of(order));
            for (group, about) in open.file.metadata().row_groups().iter().enumerate() {
                let extremes = by.and_then(|by| int_extremes(about.column(by).statistics()?));
                groups.push((extremes, index, group));
            }
        }
        // Sort by id, so that each pipeline's rows stay together; for equal ids, older parts come first.
        groups.sort();
        let mut to = self.spread_to(&self.draft);
        to.origin = origin;
        let mut spread = Spread::new(to, layout, &mut self.number);
        let (mut rows, mut texts) = (Batch::new(layout.table), Vec::new());
        for (_, index, group) in groups {
            let mut open = PartReader::open(self.root.join(&parts[index].path), layout.table)?;
            open.read_group(group, &mut rows, &mut texts)?;
            spread.push_to(hour, &rows, layout.pipeline_of(&rows).unwrap_or(0))?;
        }
        spread.finish()
    }

    /// Adds rows to a table that isn't divided by time.
    ///
    /// # Errors
    /// The disk failed.
    pub fn put(&mut self, layout: &LakeLayout, rows: &Batch) -> Result<(), LakeError> {
        let to = self.spread_to(&self.draft);
        let mut spread = Spread::new(to, layout, &mut self.number);
        spread.push_to(None, rows, 0)?;
        let new = spread.finish()?;
        self.add_verified(layout, new, rows.rows() as u64)
    }

    pub(crate) fn spread_to(&self, draft: &Catalog) -> SpreadTo {
        let mut origin = PartOrigin::new(draft.grain);
        for tap in &draft.taps {
            origin.add_tap(tap, "");
        }
        SpreadTo {
            origin: Some(origin),
            root: self.root.clone(),
            grain: draft.grain,
            version: draft.version + 1,
            part_bytes: self.options.part_bytes,
        }
    }

    /// Adds an empty part to a table without parts, so that its columns are visible. Returns whether one was added.
    ///
    /// # Errors
    /// The disk failed.
    pub fn put_columns(&mut self, layout: &LakeLayout) -> Result<bool, LakeError> {
        let is_missing = self.draft.parts(layout.table.name).is_empty();
        if is_missing {
            self.put(layout, &Batch::new(layout.table))?;
        }
        Ok(is_missing)
    }

    /// Reads new parts back to verify them, and adds them; the parts that they replace will be deleted. `rows` is the
    /// number of rows that went into them.
    pub(crate) fn add_verified(
        &mut self,
        layout: &LakeLayout,
        mut new: Vec<LakePart>,
        rows: u64,
    ) -> Result<(), LakeError> {
        for part in &mut new {
            let path = open_name(&self.root.join(&part.path));
            guard::verify_part(&path, layout.table, part.rows)?;
            part.sum = Some(guard::sum_part(&path)?);
        }
        let written: u64 = new.iter().map(|part| part.rows).sum();
        assert_eq!(written, rows, "every row was placed in a new part");
        self.add(layout.table.name, new);
        Ok(())
    }

    pub(crate) fn add(&mut self, table: &str, new: Vec<LakePart>) {
        self.counts.parts_written += new.len() as u64;
        self.counts.bytes_written += new.iter().map(|part| part.bytes).sum::<u64>();
        self.fresh.extend(new.iter().map(|part| part.path.clone()));
        let parts = self.draft.parts.entry(table.to_string()).or_default();
        parts.extend(new);
        // An empty part is needed only while the table has no rows.
        if parts.iter().any(|part| part.rows > 0) {
            parts.retain(|part| part.rows > 0);
        }
    }

    /// Makes the draft the newest version and deletes files that are no longer needed.
    ///
    /// # Errors
    /// The disk failed. Earlier commits are unaffected.
    pub fn commit(&mut self, program: &str) -> Result<(), LakeError> {
        let mut folders = BTreeSet::new();
        guard::mark_pending(&self.root, self.draft.version + 1)?;
        for path in self.fresh.drain(..) {
            let path = self.root.join(path);
            std::fs::rename(open_name(&path), &path).map_err(LakeError::io(&path))?;
            // Sync the parent folders too: folders created for a part are entries in them.
            folders.extend(path.ancestors().skip(1).take(3).map(Path::to_path_buf));
        }
        for folder in folders
            .iter()
            .filter(|folder| folder.starts_with(&self.root))
        {
            File::open(folder)
                .and_then(|open| open.sync_all())
                .map_err(LakeError::io(folder))?;
        }
        self.draft.format = CATALOG_FORMAT;
        self.draft.version += 1;
        self.draft.program = program.to_string();
        self.draft.committed_ns = now_ns();
        self.draft.commit(&self.root)?;
        self.number = 0;
        self.counts.versions += 1;
        self.sweep()
    }

    /// Deletes versions that are old enough and not held by a reader, parts that are neither in a remaining version nor
    /// in the newest version of a table's log, and leftovers of killed processes. Call it after a failure, too.
    ///
    /// # Errors
    /// The folder cannot be read, or the lake is incomplete: its newest version or one of its parts is missing or
    /// damaged. In that case nothing is deleted.
    pub fn sweep(&mut self) -> Result<(), LakeError> {
        let number = versions(&self.root)?.last().copied().unwrap_or(0);
        guard::unmark_pending(&self.root, number)?;
        guard::refuse_lost_version(&self.root, number)?;
        if number > 0 {
            let newest = Catalog::read(&version_path(&self.root, number))?;
            guard::check_parts(&self.root, &newest)?;
        }
        let kept = self.kept_versions()?;
        let live: BTreeSet<&str> = kept
            .iter()
            .flatten()
            .flat_map(|version| version.parts.values().flatten())
            .map(|part| part.path.as_str())
            .collect();
        let newest = kept.iter().flatten().max_by_key(|version| version.version);
        let newest_paths: BTreeSet<&str> = newest
            .into_iter()
            .flat_map(|version| version.parts.values().flatten())
            .map(|part| part.path.as_str())
            .collect();
        self.counts.parts_kept = 0;
        for table in folders_in(&self.root)? {
            let in_log = self.in_log(&table);
            for path in lake_files(&table)? {
                let below = path
                    .strip_prefix(&self.root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                if newest_paths.contains(below.as_str()) {
                    continue;
                }
                let is_named = |log: &BTreeSet<PathBuf>| log.contains(&path);
                let is_in_log = is_complete(&path) && in_log.as_ref().is_none_or(is_named);
                if live.contains(below.as_str()) || is_in_log {
                    self.counts.parts_kept += 1;
                    continue;
                }
                std::fs::remove_file(&path).map_err(LakeError::io(&path))?;
                self.counts.parts_deleted += u64::from(is_complete(&path));
                // Removing a folder fails unless it is empty; folders with files must stay.
                for folder in path
                    .ancestors()
                    .skip(1)
                    .take_while(|folder| **folder != *table)
                {
                    let _ = std::fs::remove_dir(folder);
                }
            }
            self.sweep_captured(&table, &kept)?;
        }
        // All leftovers of killed processes are gone at this point.
        prune_copies(&self.root, number)?;
        guard::unmark_pending(&self.root, u64::MAX)
    }

    /// The parts in the newest version of a table's log; readers of the log hold no lock and see only this version.
    /// `None` if another program has changed the log, so that any part may be in use.
    fn in_log(&self, table: &Path) -> Option<BTreeSet<PathBuf>> {
        let name = table
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let log = delta::log_files(&self.root, &name).ok()?;
        let parts = log.into_iter().flat_map(|log| log.parts);
        Some(parts.map(|part| table.join(part)).collect())
    }

    /// Deletes parts captured into the lake's own folder once all of these versions have absorbed them.
    fn sweep_captured(&mut self, table: &Path, kept: &[Option<Catalog>]) -> Result<(), LakeError> {
        let Some(name) = table.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        let newest = kept.iter().flatten().max_by_key(|version| version.version);
        let Some(newest) = newest else { return Ok(()) };
        let left_out = newest.own().map_or(&[][..], |tap| &tap.left_out);
        for part in captured_parts(&self.root, name)? {
            let Some((series, number)) = part.captured else {
                continue;
            };
            let below = part
                .path
                .strip_prefix(&self.root)
                .unwrap_or(&part.path)
                .to_string_lossy()
                .into_owned();
            if !newest.has_absorbed(name, series, number) || left_out.contains(&below) {
                continue;
            }
            let has = |version: &Option<Catalog>| {
                version
                    .as_ref()
                    .is_some_and(|version| version.has_absorbed(name, series, number))
            };
            if kept.iter().all(has) {
                match std::fs::remove_file(&part.path) {
                    Ok(()) => self.counts.parts_deleted += 1,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(LakeError::io(&part.path)(error)),
                }
            } else {
                self.counts.parts_kept += 1;
            }
        }
        Ok(())
    }

    /// The versions that may still be in use, after deleting all others. `None` is the state before the first version.
    fn kept_versions(&self) -> Result<Vec<Option<Catalog>>, LakeError> {
        let all = versions(&self.root)?;
        let mut kept = Vec::new();
        let is_young = |successor: &Catalog| {
            now_ns().saturating_sub(successor.committed_ns)
                < self.options.keep_old.as_nanos() as u64
        };
        let mut successor: Option<Catalog> = None;
        for version in all.iter().rev() {
            let path = version_path(&self.root, *version);
            let catalog = Catalog::read(&path)?;
            let is_old = successor
                .as_ref()
                .is_some_and(|successor| !is_young(successor));
            // A reader that gets the shared lock after this notices that the file is gone and uses the newest version.
            let unheld = if is_old {
                lock::try_exclusive(&path)?
            } else {
                None
            };
            match unheld {
                Some(_lock) => std::fs::remove_file(&path).map_err(LakeError::io(&path))?,
                None => kept.push(Some(catalog.clone())),
            }
            successor = Some(catalog);
        }
        let is_first_young = successor.is_some_and(|first| first.version == 1 && is_young(&first));
        if is_first_young || lock::try_exclusive(&self.root)?.is_none() {
            kept.push(None);
        }
        Ok(kept)
    }
}

impl LakeLayout {
    /// The pipeline of these rows, if the first row has one.
    fn pipeline_of(&self, rows: &Batch) -> Option<u16> {
        if rows.is_empty() {
            return None;
        }
        if let Some(column) = self.pipeline {
            return u16::try_from(rows.ints(column)[0]).ok();
        }
        let column = self.ids.first()?;
        (!rows.is_null(column, 0)).then(|| pipeline_of(rows.ints(column)[0]))
    }
}

/// Replaces the trace's pipeline numbers with the lake's.
fn number_rows(layout: &LakeLayout, rows: &mut Batch, first_pipeline: u16) {
    if let Some(tap) = layout.tap {
        rows.fill_nulls(tap, 0);
        rows.add_to(tap, first_pipeline.into());
    }
    if first_pipeline == 0 {
        return;
    }
    layout
        .ids
        .iter()
        .for_each(|ids| rows.add_to(ids, i64::from(first_pipeline) << NUMBER_BITS));
    if let Some(pipeline) = layout.pipeline {
        rows.add_to(pipeline, first_pipeline.into());
    }
}

/// Reads a whole part into memory (captured parts are small). After an error, `rows` must not be used.
pub(crate) fn read_all(
    path: &Path,
    rows: &mut Batch,
    texts: &mut Vec<parquet::data_type::ByteArray>,
) -> Result<(), LakeError> {
    rows.clear();
    let mut part = PartReader::open(path.to_path_buf(), rows.table())?;
    let mut group_rows = Batch::new(rows.table());
    for group in 0..part.file.num_row_groups() {
        part.read_group(group, &mut group_rows, texts)?;
        rows.append(&group_rows);
    }
    Ok(())
}

/// Locks out other writers of the lake in `root`.
pub(crate) fn lock_lake(root: &Path) -> Result<FileLock, LakeError> {
    let folder = root.join(CATALOG_FOLDER);
    std::fs::create_dir_all(&folder).map_err(|error| LakeError::writing(&folder, 0, error))?;
    let path = folder.join("lock");
    File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| LakeError::writing(&path, 0, error))?;
    lock::try_exclusive(&path)?.ok_or(LakeError::Busy {
        path: root.to_path_buf(),
    })
}

pub(crate) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
