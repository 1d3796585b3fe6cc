//! Reads a pipeline's rows in the order of their ids, from captured or compacted parts that are nearly in that order.
//! Used by `brunt analyze` to read traces.
//!
//! Each row group is a *run*. Runs are merged; a run is loaded only once all rows with ids below its first id have been
//! returned, so only overlapping runs are in memory.
//!
//! The rule: rows with equal ids keep their stored order.

use std::collections::VecDeque;
use std::path::PathBuf;

use parquet::data_type::ByteArray;
use parquet::file::reader::FileReader;

use crate::batch::Batch;
use crate::error::LakeError;
use crate::part_writer::int_extremes;
use crate::place::NUMBER_BITS;
use crate::reader::{BATCH_ROWS_MAX, PartReader};
use crate::snapshot::LakeSnapshot;
use crate::table::Table;

/// A row group, with its minimum and maximum id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    min: i64,
    max: i64,
    path: PathBuf,
    group: usize,
}

/// The row groups of all live parts of a table.
pub struct OrderedRuns {
    snapshot: LakeSnapshot,
    table: &'static Table,
    id: &'static str,
    runs: Vec<Run>,
    damaged: Vec<LakeError>,
}

impl OrderedRuns {
    /// Lists the row groups of a table, ordered by an id column without nulls. Reads only footers.
    ///
    /// # Errors
    /// The folder or a part cannot be read, or a part belongs to a different table.
    pub fn list(
        snapshot: &LakeSnapshot,
        table: &'static Table,
        id: &'static str,
    ) -> Result<OrderedRuns, LakeError> {
        let (mut runs, mut damaged) = (Vec::new(), Vec::new());
        for part in snapshot.parts(table)? {
            match runs_of(part.path, table, id) {
                Ok(of_part) => runs.extend(of_part),
                Err(error) if error.is_of_one_part() => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        runs.sort_by_key(|run| run.min);
        Ok(OrderedRuns {
            snapshot: snapshot.clone(),
            table,
            id,
            runs,
            damaged,
        })
    }

    /// Damaged parts, which were left out.
    pub fn damaged(&self) -> &[LakeError] {
        &self.damaged
    }

    /// The rows of one pipeline.
    pub fn of_pipeline(&self, pipeline: u16) -> OrderedReader {
        let first = i64::from(pipeline) << NUMBER_BITS;
        let last = first | ((1 << NUMBER_BITS) - 1);
        let overlapping = self
            .runs
            .iter()
            .filter(|run| run.min <= last && run.max >= first);
        OrderedReader {
            _snapshot: self.snapshot.clone(),
            id: self.id,
            ids: (first, last),
            pending: overlapping.cloned().collect(),
            open: Vec::new(),
            batch: Batch::new(self.table),
            texts: Vec::new(),
            damaged: Vec::new(),
        }
    }
}

fn runs_of(path: PathBuf, table: &'static Table, id: &str) -> Result<Vec<Run>, LakeError> {
    let part = PartReader::open(path.clone(), table)?;
    let metadata = part.file.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let index = schema.columns().iter().position(|found| found.name() == id);
    let index = index.expect("required columns were checked on opening");
    let runs = metadata
        .row_groups()
        .iter()
        .enumerate()
        .filter_map(|(group, about)| {
            // A group without statistics may contain any id.
            let extremes = about.column(index).statistics().and_then(int_extremes);
            let (min, max) = extremes.unwrap_or((i64::MIN, i64::MAX));
            (about.num_rows() > 0).then(|| Run {
                min,
                max,
                path: path.clone(),
                group,
            })
        });
    Ok(runs.collect())
}

/// Minimum and maximum of an integer column over a table, according to the footers; `None` if the table has no rows.
///
/// # Errors
/// As for [`OrderedRuns::list`]; damaged parts are skipped.
pub fn extremes(
    snapshot: &LakeSnapshot,
    table: &'static Table,
    column: &'static str,
) -> Result<Option<(i64, i64)>, LakeError> {
    let runs = OrderedRuns::list(snapshot, table, column)?.runs.into_iter();
    let said = runs
        .map(|run| (run.min, run.max))
        .filter(|range| *range != (i64::MIN, i64::MAX));
    Ok(said.reduce(|(min, max), (least, most)| (min.min(least), max.max(most))))
}

/// Reads the rows of one pipeline in the order of their ids.
pub struct OrderedReader {
    _snapshot: LakeSnapshot,
    id: &'static str,
    /// The pipeline's lowest and highest possible id.
    ids: (i64, i64),
    /// Ordered by minimum id.
    pending: VecDeque<Run>,
    open: Vec<OpenRun>,
    batch: Batch,
    texts: Vec<ByteArray>,
    damaged: Vec<LakeError>,
}

/// A run in memory, sorted. Rows before `at` have been returned; rows from `end` on belong to another pipeline.
struct OpenRun {
    rows: Batch,
    at: usize,
    end: usize,
}

impl OrderedReader {
    /// Damaged groups that were left out so far.
    pub fn damaged(&self) -> &[LakeError] {
        &self.damaged
    }

    /// The batch that [`OrderedReader::next_batch`] returned last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Reads the next rows, at most [`BATCH_ROWS_MAX`]; `None` at the end.
    ///
    /// # Errors
    /// A part cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<&Batch>, LakeError> {
        self.batch.clear();
        let mut more = Batch::new(self.batch.table());
        while self.batch.rows() < BATCH_ROWS_MAX {
            self.open_due()?;
            // Take rows from the run with the lowest id, up to the point where another run has a lower one.
            let id_at = |run: &OpenRun| run.rows.ints(self.id)[run.at];
            let Some(first) = (0..self.open.len()).min_by_key(|index| id_at(&self.open[*index]))
            else {
                break;
            };
            let others = self
                .open
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != first);
            let bound = others
                .map(|(index, run)| (id_at(run), index > first))
                .chain(self.pending.front().map(|run| (run.min, true)))
                .min();
            let run = &mut self.open[first];
            let ids = &run.rows.ints(self.id)[run.at..run.end];
            let up_to = match bound {
                // For equal ids, the run that was opened first comes first.
                Some((id, true)) => ids.partition_point(|own| *own <= id),
                Some((id, false)) => ids.partition_point(|own| *own < id),
                None => ids.len(),
            };
            let count = up_to.clamp(1, BATCH_ROWS_MAX - self.batch.rows());
            let rows: Vec<u32> = (run.at as u32..(run.at + count) as u32).collect();
            more.select(&run.rows, &rows);
            self.batch.append(&more);
            run.at += count;
            if run.at >= run.end {
                self.open.remove(first);
            }
        }
        Ok((!self.batch.is_empty()).then_some(&self.batch))
    }

    /// Opens the runs that may contain the next id.
    fn open_due(&mut self) -> Result<(), LakeError> {
        loop {
            let lowest = self
                .open
                .iter()
                .map(|run| run.rows.ints(self.id)[run.at])
                .min();
            let is_due = |run: &Run| lowest.is_none_or(|lowest| run.min <= lowest);
            if !self.pending.front().is_some_and(is_due) {
                return Ok(());
            }
            let Some(run) = self.pending.pop_front() else {
                return Ok(());
            };
            let mut rows = Batch::new(self.batch.table());
            let read = PartReader::open(run.path, rows.table())
                .and_then(|mut part| part.read_group(run.group, &mut rows, &mut self.texts));
            match read {
                Ok(()) => {}
                Err(error) if error.is_of_one_part() => {
                    self.damaged.push(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            rows.sort_by(self.id);
            let ids = rows.ints(self.id);
            let at = ids.partition_point(|id| *id < self.ids.0);
            let end = ids.partition_point(|id| *id <= self.ids.1);
            if at < end {
                self.open.push(OpenRun { rows, at, end });
            }
        }
    }
}
