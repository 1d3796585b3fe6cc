//! Builds a lake of any size from a small trace by repeating its rows with later times and different ids. `brunt lake
//! repeat` uses it to measure how the cost of queries grows with the size of a lake.
//!
//! ```text
//!   group of the trace ──► columns encoded and compressed, once ─────────────► group of each copy
//!                          times and ids: shifted, encoded, compressed ──┘
//! ```
//!
//! Only the columns that change are compressed again for each copy, so copies are written at nearly disk speed.
//!
//! The rule: copies don't overlap in time, and each copy lies within one hour, so that its groups are placed like those
//! of a capture.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::batch::Batch;
use crate::catalog::LakePart;
use crate::cells::{Cells, Values};
use crate::compact::{Compaction, LakeLayout, read_all};
use crate::encode::{Buffers, EncodedColumn, Encoder};
use crate::error::LakeError;
use crate::place::{Hour, Placing, hour_of};
use crate::snapshot::LakeSnapshot;
use crate::spread::{OpenPart, SpreadTo, begin_part, finish_part};
use crate::table::ColumnKind;

/// Rows per group, as in all lake parts.
const GROUP_ROWS: usize = 1 << 17;
const SECOND_NS: i64 = 1_000_000_000;

/// How a trace is repeated.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// Number of copies.
    pub copies: u64,
    /// Start of the trace, in seconds since 1970.
    pub from_second: i64,
    /// Start of the first copy, in seconds since 1970; a multiple of `period_seconds`.
    pub to_second: i64,
    /// Seconds between the starts of consecutive copies: a divisor of an hour, and at least the trace's length.
    pub period_seconds: i64,
    /// Id columns that differ between copies.
    pub ids: &'static [&'static str],
    /// Offset added to those ids for each copy.
    pub ids_step: i64,
}

/// How a repetition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatEnd {
    /// The draft contains all copies.
    Whole,
    /// Stopped early: discard the draft.
    Stopped,
}

impl Compaction {
    /// Adds `repeat.copies` copies of a trace's tables to the draft, with one thread per core. Tables without times and
    /// operation ids (dimensions) are added once. If `stop` is set, it ends before the next copy.
    ///
    /// # Errors
    /// The trace cannot be read, or the lake cannot be written. Discard the draft in this case.
    pub fn repeat(
        &mut self,
        layouts: &[LakeLayout],
        source: &LakeSnapshot,
        repeat: &Repeat,
        stop: &AtomicBool,
    ) -> Result<RepeatEnd, LakeError> {
        let to = self.spread_to(self.draft());
        let next = Mutex::new(layouts.iter());
        let done = Mutex::new(Vec::new());
        let work = || -> Result<(), LakeError> {
            loop {
                let layout = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(layout) = layout else { return Ok(()) };
                let parts = repeat_table(&to, layout, source, repeat, stop)?;
                done.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((layout.table.name, parts));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let ends = workers.into_iter().map(|worker| match worker.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.fold(Ok(()), Result::and)
        })?;
        for (table, parts) in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.add(table, parts);
        }
        Ok(match stop.load(Ordering::Relaxed) {
            true => RepeatEnd::Stopped,
            false => RepeatEnd::Whole,
        })
    }
}

fn repeat_table(
    to: &SpreadTo,
    layout: &LakeLayout,
    source: &LakeSnapshot,
    repeat: &Repeat,
    stop: &AtomicBool,
) -> Result<Vec<LakePart>, LakeError> {
    let encoder = Encoder::new(layout.table);
    let mut buffers = Buffers::default();
    let groups = groups(layout, source, &encoder, repeat, &mut buffers)?;
    let is_placed = layout.placing != Placing::Nowhere;
    let (mut done, mut open): (Vec<LakePart>, Option<(Hour, OpenPart)>) = (Vec::new(), None);
    for copy in 0..if is_placed { repeat.copies as i64 } else { 1 } {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let second = repeat.to_second + copy * repeat.period_seconds;
        let hour = is_placed.then(|| to.grain.first(hour_of(second * SECOND_NS)));
        for group in &groups {
            if let Some((of, part)) =
                open.take_if(|(of, part)| *of != hour || part.writer.bytes() >= to.part_bytes)
            {
                done.push(finish_part(layout, of, part)?);
            }
            let (_, part) = match &mut open {
                Some(open) => open,
                None => open.insert((hour, begin_part(to, layout, hour, done.len() as u64)?)),
            };
            let columns =
                group
                    .copy(copy, &encoder, &mut buffers)
                    .map_err(|error| LakeError::Damaged {
                        path: source.root().join(layout.table.name),
                        what: error.to_string(),
                    })?;
            part.writer.write_encoded(columns, group.rows as u64)?;
        }
    }
    if let Some((hour, part)) = open {
        done.push(finish_part(layout, hour, part)?);
    }
    Ok(done)
}

/// A row group to repeat.
struct Group {
    rows: usize,
    columns: Vec<Repeated>,
}

/// The offset of a column: `base` plus `step` for each copy, in whole multiples of `unit`, which is also the unit of
/// the result.
#[derive(Clone, Copy, Debug)]
struct Shift {
    base: i64,
    step: i64,
    unit: i64,
}

enum Repeated {
    /// Unchanged.
    Same(Box<EncodedColumn>),
    /// Integers with a different offset in each copy.
    Shifted { cells: Cells, by: Shift },
}

impl Group {
    fn copy(
        &self,
        copy: i64,
        encoder: &Encoder,
        buffers: &mut Buffers,
    ) -> Result<Vec<EncodedColumn>, parquet::errors::ParquetError> {
        let columns = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| match column {
                Repeated::Same(column) => Ok(EncodedColumn::clone(column)),
                Repeated::Shifted { cells, by } => {
                    let mut cells = cells.clone();
                    if let Values::Ints(values) = &mut cells.values {
                        let more = (by.base + copy * by.step).div_euclid(by.unit);
                        values
                            .iter_mut()
                            .for_each(|value| *value = value.wrapping_add(more));
                    }
                    encoder.column(index, &cells, self.rows, buffers)
                }
            });
        columns.collect()
    }
}

/// The groups of a table, sorted as in a lake.
fn groups(
    layout: &LakeLayout,
    source: &LakeSnapshot,
    encoder: &Encoder,
    repeat: &Repeat,
    buffers: &mut Buffers,
) -> Result<Vec<Group>, LakeError> {
    let (mut rows, mut gathered) = (Batch::new(layout.table), Batch::new(layout.table));
    let mut groups = Vec::new();
    let mut texts = Vec::new();
    let mut parts = source.parts(layout.table)?.into_iter().peekable();
    while let Some(part) = parts.next() {
        read_all(&part.path, &mut rows, &mut texts)?;
        gathered.append(&rows);
        if gathered.is_empty() || (gathered.rows() < GROUP_ROWS / 2 && parts.peek().is_some()) {
            continue;
        }
        if let Some(order) = layout.order {
            gathered.sort_by(order);
        }
        let columns = layout
            .table
            .columns
            .iter()
            .zip(gathered.cells())
            .enumerate();
        let columns = columns.map(|(index, (column, cells))| {
            let shift = repeat.shift(layout, column.name, column.kind);
            match shift {
                Some(by) => Ok(Repeated::Shifted {
                    cells: cells.clone(),
                    by,
                }),
                None => encoder
                    .column(index, cells, gathered.rows(), buffers)
                    .map(|column| Repeated::Same(Box::new(column))),
            }
        });
        let columns = columns
            .collect::<Result<_, _>>()
            .map_err(|error| LakeError::Damaged {
                path: part.path.clone(),
                what: error.to_string(),
            })?;
        groups.push(Group {
            rows: gathered.rows(),
            columns,
        });
        gathered.clear();
    }
    Ok(groups)
}

impl Repeat {
    /// The shift of a column; `None` if it isn't shifted. Minutes are shifted by whole minutes, so a row's minute may
    /// be one lower than that of its shifted time.
    fn shift(&self, layout: &LakeLayout, column: &str, kind: ColumnKind) -> Option<Shift> {
        let (base, step) = (self.to_second - self.from_second, self.period_seconds);
        match layout.placing {
            Placing::Time(time) if time == column => Some(Shift {
                base: base * SECOND_NS,
                step: step * SECOND_NS,
                unit: 1,
            }),
            Placing::Second(second) if second == column => Some(Shift {
                base,
                step,
                unit: 1,
            }),
            Placing::Minute(minute) if minute == column => Some(Shift {
                base,
                step,
                unit: 60,
            }),
            _ if kind == ColumnKind::Int && self.ids.contains(&column) => Some(Shift {
                base: 0,
                step: self.ids_step,
                unit: 1,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::compact::CompactOptions;
    use crate::place::Grain;
    use crate::reader::read_table;
    use crate::table::{Column, Table};
    use crate::writer::{TableWriter, WriterOptions};

    static EVENTS: Table = Table {
        name: "events",
        doc: "Events.",
        columns: &[
            Column::int("event_id", "A number."),
            Column::time("at", "When."),
            Column::int("caused_by", "Another event.").nullable(),
            Column::text("what", "What."),
        ],
    };
    static KINDS: Table = Table {
        name: "kinds",
        doc: "Kinds.",
        columns: &[Column::int("kind", "A kind.")],
    };

    fn layout(table: &'static Table, placing: Placing) -> LakeLayout {
        let order = Some(table.columns[0].name);
        LakeLayout {
            table,
            placing,
            order,
            blooms: vec![],
            ids: vec![],
            pipeline: None,
            tap: None,
            clock: None,
        }
    }

    /// Copies are the trace shifted in time, with their own ids, even across the end of an hour; tables without times
    /// are copied once.
    #[test]
    fn copies_are_the_trace_shifted_in_time_with_their_own_ids() {
        const FROM: i64 = 1_700_000_001;
        const TO: i64 = 472_222 * 3600 + 3580;
        let (trace, lake) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut writer =
            TableWriter::create(trace.path(), &EVENTS, WriterOptions::default()).unwrap();
        for event in 0..100 {
            let row = writer
                .rows()
                .row()
                .int(event)
                .int(FROM * SECOND_NS + event * 1_000_000);
            row.int_or_null((event % 10 == 9).then_some(event - 1))
                .text("something")
                .end();
        }
        writer.finish().unwrap();
        let mut writer =
            TableWriter::create(trace.path(), &KINDS, WriterOptions::default()).unwrap();
        writer.rows().row().int(7).end();
        writer.finish().unwrap();

        let options = CompactOptions {
            part_bytes: 1 << 20,
            keep_old: Duration::ZERO,
        };
        let mut compaction = Compaction::begin(lake.path(), options, || Ok(Grain::Hour)).unwrap();
        let layouts = [
            layout(&EVENTS, Placing::Time("at")),
            layout(&KINDS, Placing::Nowhere),
        ];
        let repeat = Repeat {
            copies: 10,
            from_second: FROM,
            to_second: TO,
            period_seconds: 5,
            ids: &["event_id", "caused_by"],
            ids_step: 100,
        };
        let source = LakeSnapshot::open(trace.path()).unwrap();
        let mut go =
            |stop: bool| compaction.repeat(&layouts, &source, &repeat, &AtomicBool::new(stop));
        assert_eq!(go(true).unwrap(), RepeatEnd::Stopped);
        assert_eq!(go(false).unwrap(), RepeatEnd::Whole);
        compaction.commit("test").unwrap();

        let mut ids = Vec::new();
        let damaged = read_table(lake.path(), &EVENTS, |rows| {
            for (row, id) in rows.ints("event_id").iter().enumerate() {
                let (copy, event) = (id / 100, id % 100);
                let at = (TO + copy * 5) * SECOND_NS + event * 1_000_000;
                assert_eq!(rows.ints("at")[row], at);
                assert_eq!(rows.is_null("caused_by", row), event % 10 != 9);
                assert!(event % 10 != 9 || rows.ints("caused_by")[row] == id - 1);
                ids.push(*id);
            }
        });
        assert!(damaged.unwrap().is_empty());
        assert!(ids.into_iter().eq(0..1000));
        let mut kinds = 0;
        read_table(lake.path(), &KINDS, |rows| kinds += rows.rows()).unwrap();
        assert_eq!(kinds, 1);
        let parts = LakeSnapshot::open(lake.path())
            .unwrap()
            .parts(&EVENTS)
            .unwrap();
        assert_eq!(
            parts.len(),
            2,
            "expected four copies in one hour and six in the next: {parts:?}"
        );
    }
}
