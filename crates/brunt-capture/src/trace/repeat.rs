//! Builds a lake of any size from a small trace, to measure how query costs grow: [`brunt_lake::repeat`] with
//! knowledge of a trace's tables.
//!
//! The rule: servers, clients, files and names exist once, as in the trace; each copy has its own requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use brunt_lake::catalog::Absorbed;
use brunt_lake::compact::CompactOptions;
use brunt_lake::place::{Grain, NUMBER_BITS, Placing};
use brunt_lake::{
    Compaction, LakeError, LakeLayout, LakeSnapshot, LakeTap, Repeat, RepeatEnd, read_table, runs,
    table_sizes,
};

use super::lake::{GatherOptions, PROGRAM, layouts, pipelines_of, tell_tap};
use super::replay::{ReplayError, is_trace, notes};
use super::tables;

/// Id columns that are renumbered in each copy; flows and callers are shared.
const REPEATED_IDS: [&str; 3] = ["completion_id", "record_id", "aborted_by"];
const SECONDS_OF_HOUR: i64 = 3600;
const SECOND_NS: i64 = 1_000_000_000;

/// Why a trace cannot be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RepeatError {
    /// The source is not a trace, or has an unsupported version.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// The trace cannot be read, or the lake cannot be written.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The trace is empty.
    #[error("{} has no operations", .0.display())]
    Empty(PathBuf),
    /// Copies would not align with hours.
    #[error("{} lasts {seconds} s, and only traces of up to an hour can be repeated", path.display())]
    TooLong {
        /// The trace.
        path: PathBuf,
        /// Its duration.
        seconds: i64,
    },
    /// The run was interrupted.
    #[error("interrupted: nothing was written")]
    Stopped,
    /// There are not enough ids for the requests of all copies.
    #[error("{copies} copies have more operations than there are ids")]
    TooMany {
        /// Copies requested.
        copies: u64,
    },
}

/// Totals of the written lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RepeatCounts {
    /// Number of copies of the trace in the lake.
    pub copies: u64,
    /// Time from one copy to the next.
    pub period_seconds: i64,
    /// Rows of all tables.
    pub rows: u64,
    /// Parts.
    pub parts: u64,
    /// Bytes of the parts.
    pub bytes: u64,
}

/// Creates a lake in `root` with as many copies of a trace as are needed for at least `rows` rows in all tables,
/// unless `stop` is set before that.
///
/// # Errors
/// See [`RepeatError`]; if there is an error, nothing is committed.
pub fn repeat(
    root: &Path,
    trace: &Path,
    rows: u64,
    options: &GatherOptions,
    stop: &AtomicBool,
) -> Result<RepeatCounts, RepeatError> {
    notes(trace)?;
    if is_trace(root) {
        return Err(LakeError::Taken {
            path: root.to_path_buf(),
        }
        .into());
    }
    let source = LakeSnapshot::open_whole(trace)?;
    let layouts = layouts();
    let (rows_once, rows_each) = rows_of(trace, &layouts)?;
    let copies = rows
        .saturating_sub(rows_once)
        .div_ceil(rows_each.max(1))
        .max(1);
    let repeat = plan(trace, &source, &layouts, copies)?;
    let period_seconds = repeat.period_seconds;
    std::fs::create_dir_all(root).map_err(|source| LakeError::Io {
        path: root.to_path_buf(),
        source,
    })?;
    let compact = CompactOptions {
        part_bytes: options.part_bytes,
        keep_old: options.keep_old,
    };
    let grain = options.grain.unwrap_or(Grain::Hour);
    let mut compaction = Compaction::begin(root, compact, || Ok(grain))?;
    compaction.taps_mut().push(whole_tap(trace)?);
    let done = fill(&mut compaction, &layouts, &source, &repeat, stop);
    if let Err(error) = done {
        // Half-written files take up space.
        let _ = compaction.sweep();
        return Err(error);
    }
    let counts = compaction.counts();
    let rows = compaction
        .draft()
        .parts
        .values()
        .flatten()
        .map(|part| part.rows)
        .sum();
    Ok(RepeatCounts {
        copies,
        period_seconds,
        rows,
        parts: counts.parts_written,
        bytes: counts.bytes_written,
    })
}

/// Writes all copies into a draft and commits it as the lake.
fn fill(
    compaction: &mut Compaction,
    layouts: &[LakeLayout],
    source: &LakeSnapshot,
    repeat: &Repeat,
    stop: &AtomicBool,
) -> Result<(), RepeatError> {
    tell_tap(compaction)?;
    if compaction.repeat(layouts, source, repeat, stop)? == RepeatEnd::Stopped {
        return Err(RepeatError::Stopped);
    }
    for layout in layouts {
        compaction.put_columns(layout)?;
    }
    Ok(compaction.commit(PROGRAM)?)
}

/// Total rows of the tables stored only once, and of the tables stored in each copy.
fn rows_of(trace: &Path, layouts: &[LakeLayout]) -> Result<(u64, u64), LakeError> {
    let (mut once, mut each) = (0, 0);
    for layout in layouts {
        let rows = table_sizes(trace, layout.table)?.rows;
        match layout.placing {
            Placing::Nowhere => once += rows,
            _ => each += rows,
        }
    }
    Ok((once, each))
}

/// The first and last second of a trace; `None` if it has no times.
fn seconds_of(
    source: &LakeSnapshot,
    layouts: &[LakeLayout],
) -> Result<Option<(i64, i64)>, LakeError> {
    let mut seconds: Option<(i64, i64)> = None;
    for layout in layouts {
        let (column, unit) = match layout.placing {
            Placing::Time(column) => (column, SECOND_NS),
            Placing::Second(column) => (column, 1),
            // Too coarse to determine a second, or without times.
            Placing::Minute(_) | Placing::Id(_) | Placing::Nowhere => continue,
        };
        if let Some((min, max)) = runs::extremes(source, layout.table, column)? {
            let (first, last) = (min.div_euclid(unit), max.div_euclid(unit));
            seconds =
                Some(seconds.map_or((first, last), |(min, max)| (min.min(first), max.max(last))));
        }
    }
    Ok(seconds)
}

fn plan(
    trace: &Path,
    source: &LakeSnapshot,
    layouts: &[LakeLayout],
    copies: u64,
) -> Result<Repeat, RepeatError> {
    let mut operations = 0;
    read_table(trace, &tables::OPERATIONS, |rows| {
        let numbers = rows
            .ints("record_id")
            .iter()
            .map(|id| id & ((1 << NUMBER_BITS) - 1));
        operations = numbers.fold(operations, |most, number| most.max(number + 1));
    })?;
    let seconds = seconds_of(source, layouts)?.filter(|_| operations > 0);
    let (first, last) = seconds.ok_or_else(|| RepeatError::Empty(trace.to_path_buf()))?;
    let seconds = last - first + 1;
    let period_seconds = (seconds..=SECONDS_OF_HOUR).find(|period| SECONDS_OF_HOUR % period == 0);
    let period_seconds = period_seconds.ok_or_else(|| RepeatError::TooLong {
        path: trace.to_path_buf(),
        seconds,
    })?;
    let ids = i64::try_from(copies)
        .ok()
        .and_then(|copies| copies.checked_mul(operations));
    if ids.is_none_or(|ids| ids >= 1 << NUMBER_BITS) {
        return Err(RepeatError::TooMany { copies });
    }
    Ok(Repeat {
        copies,
        from_second: first,
        to_second: (first.div_euclid(SECONDS_OF_HOUR) + 1) * SECONDS_OF_HOUR,
        period_seconds,
        ids: &REPEATED_IDS,
        ids_step: operations,
    })
}

/// A tap that is complete: no more rows will be added to it.
fn whole_tap(trace: &Path) -> Result<LakeTap, LakeError> {
    let pipelines = pipelines_of(trace)?;
    let of_all = || (0..pipelines as u16).map(|series| (series, Absorbed::default()));
    let absorbed: BTreeMap<_, BTreeMap<_, _>> = tables::all()
        .into_iter()
        .map(|table| (table.name.to_string(), of_all().collect()))
        .collect();
    Ok(LakeTap {
        pipelines: pipelines as u16,
        is_complete: true,
        absorbed,
        ..LakeTap::default()
    })
}
