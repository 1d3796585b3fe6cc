//! Traces in a lake: the layout of their tables, and the implementation of `brunt lake compact` and
//! `brunt lake add`. `brunt-lake` provides the mechanisms; `docs/lake.md` is the user documentation.
//!
//! A lake of many taps looks like a trace of many pipelines: each added trace gets a range of pipeline numbers, which
//! replace the trace's own numbers in [`IDS`] and `packets.pipeline`. Ids are therefore unique in the lake, and every
//! analysis treats the lake as one trace. The table of whole-capture counters (`statistics`) has a column `tap`,
//! which says to which capture a row belongs.
//!
//! The rule: only those numbers change, and the meaning of a row never depends on its location.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_lake::catalog::Absorbed;
use brunt_lake::check::{self, Checked, Problem, Repaired};
use brunt_lake::compact::{CompactCounts, CompactOptions, TraceToAbsorb};
use brunt_lake::delta::LogRepair;
use brunt_lake::place::{Grain, PIPELINES_MAX, Placing};
use brunt_lake::reader::intact_parts;
use brunt_lake::{
    Batch, Compaction, LakeError, LakeLayout, LakeSnapshot, LakeTap, Table, WriterState, reader,
    runs,
};

use super::replay::{ReplayError, is_trace, notes};
use super::{recorder, tables};

/// Columns of ids that pipelines assign: the bits above the lower 48 are the pipeline number.
pub const IDS: [&str; 5] = ["completion_id", "record_id", "flow", "caller", "aborted_by"];
/// Columns that refer to files: queries look them up by value.
const FILES: [&str; 2] = ["file", "leads_to"];
/// A version of the lake is committed after at most this many times the part size has been taken in.
const TURN_PARTS: u64 = 4;
const NANOS_OF_HOUR: i64 = 3_600_000_000_000;

/// Why traces cannot be added to a lake or compacted.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// The source is not a trace, or has an unsupported version.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// An I/O error, or another process is using the lake.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The lake already has another partitioning.
    #[error("{} is already partitioned by {is:?}, which cannot be changed", path.display())]
    Grain {
        /// The lake.
        path: PathBuf,
        /// Its partitioning.
        is: Grain,
    },
    /// The lake would be added to itself.
    #[error("{}: a trace cannot be added to itself", .0.display())]
    Itself(PathBuf),
    /// The source is a lake with several taps.
    #[error("{} is a lake with several taps; add their traces instead", .0.display())]
    Nested(PathBuf),
    /// The source is a lake that a capture is still writing to.
    #[error("{} was compacted, and its capture is still running; add it when the capture has ended", .0.display())]
    Running(PathBuf),
    /// The number of the trace's pipelines is not known yet.
    #[error("{}: the capture is just starting; try again in a second", .0.display())]
    Starting(PathBuf),
    /// The trace is already in the lake under another name.
    #[error("this trace is already in the lake, as tap {0}; its rows would be duplicated")]
    Known(String),
    /// The tap name belongs to another trace.
    #[error("the tap name {0} belongs to another trace; use a different name")]
    OtherTrace(String),
    /// There are not enough free pipeline numbers.
    #[error(
        "the lake has {taken} of at most {PIPELINES_MAX} pipelines: there is no room for {more} \
         more"
    )]
    TooMany {
        /// Pipeline numbers in use.
        taken: u32,
        /// Numbers needed.
        more: u32,
    },
}

/// Options for compacting and adding traces.
#[derive(Clone, Copy, Debug)]
pub struct GatherOptions {
    /// Target size of a part, in bytes.
    pub part_bytes: u64,
    /// Time partitioning of a new lake; if `None`, chosen by the amount of data per hour.
    pub grain: Option<Grain>,
    /// How long old parts are kept, even if no reader uses them.
    pub keep_old: Duration,
}

/// The result of compacting or adding a trace.
#[derive(Debug)]
pub struct Gathered {
    /// Totals of the work done.
    pub counts: CompactCounts,
    /// Damaged parts, which were left out and not deleted.
    pub damaged: Vec<LakeError>,
    /// Whether a capture is still writing, so that more parts will follow.
    pub is_running: bool,
}

/// The layout of a table in a lake.
fn layout(table: &'static Table, order: Option<&'static str>) -> LakeLayout {
    let has = |name: &&'static str| table.columns.iter().any(|column| column.name == *name);
    let is = |other: &Table| table.name == other.name;
    let ids: Vec<_> = IDS.into_iter().filter(has).collect();
    let placing = if is(&tables::OPERATIONS) {
        Placing::Time("request_first")
    } else if is(&tables::PACKETS) || is(&tables::STATISTICS) || is(&tables::HEALTH) {
        Placing::Time("time")
    } else if is(&tables::LATENCY_HISTOGRAMS) {
        Placing::Second("second")
    } else if has(&"minute") {
        Placing::Minute("minute")
    } else if has(&"record_id") {
        Placing::Id("record_id")
    } else {
        Placing::Nowhere
    };
    let blooms = match placing {
        // Tables with times in seconds or minutes have columns for server and client instead of flows.
        Placing::Second(_) | Placing::Minute(_) => vec!["server", "client"],
        _ => FILES.into_iter().filter(has).collect(),
    };
    // In capture order, or by the id to which others refer.
    let others = [
        "completion_id",
        "record_id",
        "flow",
        "caller",
        "file",
        "time",
        "second",
        "minute",
        "tap",
    ];
    LakeLayout {
        table,
        placing,
        order: order.or_else(|| others.into_iter().find(has)),
        blooms,
        ids,
        pipeline: (is(&tables::PACKETS) || is(&tables::HEALTH)).then_some("pipeline"),
        tap: is(&tables::STATISTICS).then_some("tap"),
        clock: is(&tables::OPERATIONS).then_some("record_id"),
    }
}

/// The layouts of all tables of a trace. Operations come first, since their times determine where related rows go.
pub fn layouts() -> Vec<LakeLayout> {
    let registry = recorder::registry();
    let entries = registry
        .entries()
        .map(|entry| layout(entry.table, entry.order));
    let mut layouts: Vec<_> = entries.chain([layout(&tables::NOTES, None)]).collect();
    layouts.sort_by_key(|layout| layout.clock.is_none());
    layouts
}

/// Compacts the trace or lake in `root`, even while a capture writes to it.
///
/// # Errors
/// There is no trace in `root`, or reading or writing fails. Versions that are already committed remain, and the next
/// call continues from them.
pub fn compact(root: &Path, options: &GatherOptions) -> Result<Gathered, GatherError> {
    notes(root)?;
    let mut compaction = begin(root, root, options)?;
    let done = compact_all(&mut compaction, root, options);
    finish(compaction, done)
}

fn compact_all(
    compaction: &mut Compaction,
    root: &Path,
    options: &GatherOptions,
) -> Result<bool, GatherError> {
    let layouts = layouts();
    let writer = WriterState::of(root)?;
    if writer.is_starting() {
        // The number of pipelines is not known yet.
        return Ok(true);
    }
    let own = own_tap(compaction, root)?;
    let mut turn = Turn {
        written: 0,
        is_open: false,
        bytes_max: TURN_PARTS * options.part_bytes,
    };
    if let Some(tap) = own {
        compaction.taps_mut()[tap]
            .trace_name
            .clone_from(&writer.trace_name);
        let is_running = writer.is_running;
        let from = TraceToAbsorb {
            source: root,
            tap,
            is_running,
            bytes_max: turn.bytes_max,
        };
        for layout in &layouts {
            while compaction.take_in(layout, from)? {
                turn.step(compaction)?;
            }
        }
        if !is_running && !compaction.draft().taps[tap].is_complete {
            compaction.taps_mut()[tap].is_complete = true;
            compaction.forget_times(tap);
            turn.is_open = true;
        }
    }
    for layout in &layouts {
        turn.is_open |= compaction.put_columns(layout)?;
    }
    turn.end(compaction)?;
    for layout in layouts.iter().chain([&layout(&tables::TAPS, None)]) {
        if compaction.merge_small(layout, !writer.is_running)? {
            turn.is_open = true;
            turn.end(compaction)?;
        }
    }
    Ok(writer.is_running)
}

/// Output that is not committed yet.
struct Turn {
    written: u64,
    is_open: bool,
    bytes_max: u64,
}

impl Turn {
    fn step(&mut self, compaction: &mut Compaction) -> Result<(), LakeError> {
        self.is_open = true;
        match compaction.counts().bytes_written - self.written >= self.bytes_max {
            true => self.end(compaction),
            false => Ok(()),
        }
    }

    fn end(&mut self, compaction: &mut Compaction) -> Result<(), LakeError> {
        if std::mem::take(&mut self.is_open) {
            compaction.commit(PROGRAM)?;
            self.written = compaction.counts().bytes_written;
        }
        Ok(())
    }
}

pub(super) const PROGRAM: &str = concat!("brunt ", env!("CARGO_PKG_VERSION"));

/// Checks the trace or lake in `root` for missing or damaged files.
///
/// # Errors
/// There is no trace in `root`, or the folder cannot be read.
pub fn check(root: &Path) -> Result<Checked, GatherError> {
    is_any(root)?;
    Ok(check::check(root, &all_layouts())?)
}

/// Restores the catalog of the lake in `root`; see [`check::repair`].
///
/// # Errors
/// There is no lake in `root`, or it cannot be repaired.
pub fn repair(root: &Path, without_lost: bool) -> Result<Repaired, GatherError> {
    is_any(root)?;
    Ok(check::repair(root, &all_layouts(), PROGRAM, without_lost)?)
}

/// Repairs the Delta Lake logs of the lake in `root`; see [`check::repair_logs`].
///
/// # Errors
/// The lake is damaged, or its logs cannot be written.
pub fn repair_logs(root: &Path) -> Result<Vec<LogRepair>, Problem> {
    check::repair_logs(root, &all_layouts())
}

fn is_any(root: &Path) -> Result<(), ReplayError> {
    match is_trace(root) || check::is_lake(root) {
        true => Ok(()),
        false => Err(ReplayError::NoTrace(root.display().to_string())),
    }
}

/// Checksums are verified by default only if the tables have at most this many bytes in total.
pub const VERIFIED_MAX: u64 = 1 << 30;

/// Errors for the parts that have changed since they were written. Reads no part if the tables together exceed
/// [`VERIFIED_MAX`]; such parts are then found only by [`check()`].
///
/// # Errors
/// The folder cannot be read, or its catalog is missing or damaged.
pub fn changed_parts(root: &Path) -> Result<Vec<LakeError>, LakeError> {
    let snapshot = LakeSnapshot::open_whole(root)?;
    let layouts = all_layouts();
    let bytes = snapshot.bytes(layouts.iter().map(|layout| layout.table))?;
    let mut damaged = Vec::new();
    for layout in layouts.iter().filter(|_| bytes <= VERIFIED_MAX) {
        damaged.extend(intact_parts(&snapshot, layout.table, true)?.damaged);
    }
    Ok(damaged)
}

/// The layouts of a trace's tables and of `taps`.
fn all_layouts() -> Vec<LakeLayout> {
    let mut layouts = layouts();
    layouts.push(layout(&tables::TAPS, None));
    layouts
}

/// Adds a trace to the lake in `root` (created if missing) or, if it was added before, the parts written since then.
/// Atomic: a reader sees either all of the added rows or none. A trace that is already in the lake as another tap is
/// added only if `is_duplicate_meant`.
///
/// # Errors
/// `trace` is not a trace, the name belongs to another trace, no numbers are left, or reading or writing fails. The
/// lake is then unchanged.
pub fn add(
    root: &Path,
    trace: &Path,
    name: &str,
    is_duplicate_meant: bool,
    options: &GatherOptions,
) -> Result<Gathered, GatherError> {
    notes(trace)?;
    std::fs::create_dir_all(root).map_err(|source| LakeError::Io {
        path: root.to_path_buf(),
        source,
    })?;
    if is_trace(root) {
        notes(root)?;
    }
    let same = |path: &Path| path.canonicalize().ok();
    if same(root) == same(trace) {
        return Err(GatherError::Itself(root.to_path_buf()));
    }
    let mut compaction = begin(root, trace, options)?;
    let done = add_all(&mut compaction, root, trace, name, is_duplicate_meant);
    finish(compaction, done)
}

fn add_all(
    compaction: &mut Compaction,
    root: &Path,
    trace: &Path,
    name: &str,
    is_duplicate_meant: bool,
) -> Result<bool, GatherError> {
    for folder in [root, trace] {
        if WriterState::of(folder)?.is_starting() {
            return Err(GatherError::Starting(folder.to_path_buf()));
        }
    }
    own_tap(compaction, root)?;
    let writer = WriterState::of(trace)?;
    let source = LakeSnapshot::open_whole(trace)?;
    let layouts = layouts();
    let known = compaction
        .draft()
        .taps
        .iter()
        .position(|tap| tap.name == name);
    let tap = match known {
        Some(tap) => {
            let about = &compaction.draft().taps[tap];
            if about.trace_name.is_none() || about.trace_name != writer.trace_name {
                return Err(GatherError::OtherTrace(name.into()));
            }
            // A complete tap gets no more parts.
            if about.is_complete {
                return Ok(false);
            }
            if source.catalog().is_some() {
                // The trace's own catalog may have newer parts, whose numbering is unknown here.
                return Err(GatherError::OtherTrace(name.into()));
            }
            tap
        }
        None => {
            let same =
                |tap: &&LakeTap| tap.trace_name.is_some() && tap.trace_name == writer.trace_name;
            let known = compaction.draft().taps.iter().find(same);
            if let Some(known) = known.filter(|_| !is_duplicate_meant) {
                return Err(GatherError::Known(known.name.clone()));
            }
            let tap = new_tap(compaction, trace, &source, &writer, name)?;
            if source.catalog().is_some() {
                for layout in &layouts {
                    compaction.take_in_lake(layout, &source, tap)?;
                }
            }
            tap
        }
    };
    let from = TraceToAbsorb {
        source: trace,
        tap,
        is_running: writer.is_running,
        bytes_max: u64::MAX,
    };
    for layout in &layouts {
        compaction.take_in(layout, from)?;
        compaction.put_columns(layout)?;
    }
    if !writer.is_running {
        compaction.taps_mut()[tap].is_complete = true;
        compaction.forget_times(tap);
    }
    compaction.commit(PROGRAM)?;
    Ok(writer.is_running)
}

/// Appends a new tap.
fn new_tap(
    compaction: &mut Compaction,
    trace: &Path,
    source: &LakeSnapshot,
    writer: &WriterState,
    name: &str,
) -> Result<usize, GatherError> {
    let of_source = source.catalog().map_or(&[][..], |catalog| &catalog.taps);
    if of_source.iter().any(|tap| !tap.name.is_empty()) {
        return Err(GatherError::Nested(trace.to_path_buf()));
    }
    if source.catalog().is_some() && writer.is_running {
        return Err(GatherError::Running(trace.to_path_buf()));
    }
    let own = of_source.first().cloned().unwrap_or_default();
    let pipelines = u32::from(own.pipelines).max(pipelines_of(trace)?);
    let taken = compaction
        .draft()
        .taps
        .iter()
        .map(|tap| tap.numbers().end)
        .max()
        .unwrap_or(0);
    if taken + pipelines > PIPELINES_MAX {
        return Err(GatherError::TooMany {
            taken,
            more: pipelines,
        });
    }
    compaction.taps_mut().push(LakeTap {
        name: name.to_string(),
        trace_name: writer.trace_name.clone(),
        first_pipeline: taken as u16,
        pipelines: pipelines as u16,
        is_complete: false,
        ..own
    });
    tell_tap(compaction)?;
    Ok(compaction.draft().taps.len() - 1)
}

/// Writes a row for the last tap to the table `taps`.
pub(super) fn tell_tap(compaction: &mut Compaction) -> Result<(), LakeError> {
    let mut rows = Batch::new(&tables::TAPS);
    if let Some(tap) = compaction.draft().taps.last() {
        let row = rows.row().int(tap.first_pipeline.into());
        row.text(&tap.name).int(tap.pipelines.into()).end();
    }
    compaction.put(&layout(&tables::TAPS, None), &rows)
}

/// The tap for captures into the lake's own folder, if there are such captures.
fn own_tap(compaction: &mut Compaction, root: &Path) -> Result<Option<usize>, LakeError> {
    let pipelines = pipelines_of(root)?;
    if let Some(place) = compaction
        .draft()
        .taps
        .iter()
        .position(|tap| tap.name.is_empty())
    {
        return Ok(Some(place));
    }
    // Only the first tap can keep its numbers, which start at zero.
    if pipelines == 0 || !compaction.draft().taps.is_empty() {
        return Ok(None);
    }
    compaction.taps_mut().push(LakeTap {
        pipelines: pipelines as u16,
        ..LakeTap::default()
    });
    tell_tap(compaction)?;
    Ok(Some(0))
}

/// The number of pipelines that wrote the parts in a folder.
pub(super) fn pipelines_of(folder: &Path) -> Result<u32, LakeError> {
    let mut pipelines = 0;
    for table in tables::all() {
        let parts = reader::captured_parts(folder, table.name)?;
        let series = parts
            .into_iter()
            .filter_map(|part| part.captured)
            .map(|(series, _)| u32::from(series) + 1);
        pipelines = series.fold(pipelines, u32::max);
    }
    Ok(pipelines)
}

fn begin(root: &Path, trace: &Path, options: &GatherOptions) -> Result<Compaction, GatherError> {
    let GatherOptions {
        part_bytes,
        keep_old,
        grain,
    } = *options;
    let choose = || grain.map_or_else(|| choose_grain(trace, part_bytes), Ok);
    let compaction = Compaction::begin(
        root,
        CompactOptions {
            part_bytes,
            keep_old,
        },
        choose,
    )?;
    let is = compaction.draft().grain;
    match grain {
        Some(grain) if grain != is => Err(GatherError::Grain {
            path: root.to_path_buf(),
            is,
        }),
        _ => Ok(compaction),
    }
}

/// Hourly if an hour of the trace would fill at least half a part, otherwise daily.
fn choose_grain(trace: &Path, part_bytes: u64) -> Result<Grain, LakeError> {
    let snapshot = LakeSnapshot::open_whole(trace)?;
    let mut bytes = 0;
    for table in tables::all() {
        let parts = snapshot.parts(table)?.into_iter();
        bytes += parts
            .filter_map(|part| part.path.metadata().ok())
            .map(|about| about.len())
            .sum::<u64>();
    }
    let span =
        runs::extremes(&snapshot, &tables::STATISTICS, "time")?.map_or(0, |(min, max)| max - min);
    let hours = (span / NANOS_OF_HOUR).max(1) as u64;
    Ok(if bytes / hours >= part_bytes / 2 {
        Grain::Hour
    } else {
        Grain::Day
    })
}

fn finish(
    mut compaction: Compaction,
    done: Result<bool, GatherError>,
) -> Result<Gathered, GatherError> {
    match done {
        Ok(is_running) => Ok(Gathered {
            counts: compaction.counts(),
            is_running,
            damaged: compaction.into_damaged(),
        }),
        Err(error) => {
            // Half-written files take up space. The original error is more informative than an error in removing
            // them.
            let _ = compaction.sweep();
            Err(error)
        }
    }
}

/// Whether the parts of a table and pipeline that the lake has taken in begin with the first one; `None` if it has
/// taken in none.
pub(super) fn begins(tap: &LakeTap, table: &Table, series: u16) -> Option<bool> {
    tap.absorbed(table.name, series)
        .map(|Absorbed { first, .. }| first == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each table has a layout that contains all its id columns, and the columns used in queries are in the places
    /// where engines look for them.
    #[test]
    fn every_table_has_a_layout_with_all_its_id_columns() {
        let layouts = layouts();
        assert_eq!(layouts[0].table.name, "operations");
        assert_eq!(layouts.len(), tables::all().len());
        for layout in &layouts {
            let table = layout.table;
            for column in layout
                .ids
                .iter()
                .chain(&layout.blooms)
                .chain(&layout.order)
                .chain(&layout.pipeline)
            {
                table.index_of(column);
            }
            // Every column that is named like an id, or refers to an id in its documentation, is renumbered.
            for column in table.columns {
                let refers = [
                    "`flows.flow`",
                    "`operations.record_id`",
                    "`callers.caller`",
                    "`record_id`",
                ];
                let is_id =
                    column.name.ends_with("_id") || refers.iter().any(|id| column.doc.contains(id));
                let is_known = layout.ids.contains(&column.name);
                assert!(is_known || !is_id, "{}.{}", table.name, column.name);
            }
        }
        let check = |name: &str, placing, order| {
            let layout = layouts
                .iter()
                .find(|layout| layout.table.name == name)
                .expect("a table");
            assert_eq!(
                (layout.placing, layout.order),
                (placing, Some(order)),
                "{name}"
            );
        };
        check(
            "operations",
            Placing::Time("request_first"),
            "completion_id",
        );
        check("names", Placing::Id("record_id"), "record_id");
        check("packets", Placing::Time("time"), "flow");
        check("latency_histograms", Placing::Second("second"), "second");
        check("sketches", Placing::Minute("minute"), "minute");
        check("handles", Placing::Nowhere, "file");
        check("caller_groups", Placing::Nowhere, "caller");
    }
}
