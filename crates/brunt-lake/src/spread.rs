//! Distributes rows over the parts of a lake: each row goes to the part of its hour or day, and a part is closed once
//! it is large enough. Used by [`crate::compact`] for captured parts and for small lake parts.
//!
//! The rule: memory is bounded by the number of open parts; opening another one closes the least recently used one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::batch::Batch;
use crate::catalog::LakePart;
use crate::compact::LakeLayout;
use crate::error::LakeError;
use crate::origin::PartOrigin;
use crate::part_writer::PartWriter;
use crate::place::{Grain, Hour, IdTimeline, Placing, hour_of, hour_of_minute, hour_of_second};
use crate::reader::OPEN_SUFFIX;

/// Rows per group: the unit in which engines read or skip data and in which rows are sorted in memory.
const GROUP_ROWS: usize = 1 << 17;
/// Minimum number of rows for a group to end where the next pipeline's rows begin: ids within a group are then close
/// together, so that engines looking for other ids can skip it.
const GROUP_ROWS_MIN: usize = GROUP_ROWS / 8;
/// Maximum number of open parts, each with a group in memory.
const OPEN_MAX: usize = 6;

/// Where parts go, and what they record.
#[derive(Clone, Debug)]
pub(crate) struct SpreadTo {
    pub root: PathBuf,
    pub grain: Grain,
    /// The version that the parts belong to.
    pub version: u64,
    pub part_bytes: u64,
    /// The origin of the rows, to be recorded in the parts; `None` if an earlier program wrote some of the source
    /// parts.
    pub origin: Option<PartOrigin>,
}

/// The open parts of a table.
pub(crate) struct Spread<'a> {
    to: SpreadTo,
    layout: &'a LakeLayout,
    /// Open parts by place.
    open: BTreeMap<Hour, OpenPart>,
    /// Number of the version's next part.
    number: &'a mut u64,
    turn: u64,
    done: Vec<LakePart>,
}

pub(crate) struct OpenPart {
    /// Relative to the lake's folder.
    path: String,
    pub writer: PartWriter,
    rows: Batch,
    /// The pipeline of the last rows added.
    pipeline: u16,
    turn: u64,
}

impl<'a> Spread<'a> {
    pub fn new(to: SpreadTo, layout: &'a LakeLayout, number: &'a mut u64) -> Spread<'a> {
        Spread {
            to,
            layout,
            open: BTreeMap::new(),
            number,
            turn: 0,
            done: Vec::new(),
        }
    }

    /// Adds rows of a pipeline. `timeline` provides the times of their ids.
    pub fn push(
        &mut self,
        rows: &Batch,
        pipeline: u16,
        timeline: &IdTimeline,
    ) -> Result<(), LakeError> {
        let hours = self.hours(rows, timeline);
        let same = hours.windows(2).all(|pair| pair[0] == pair[1]);
        if same {
            return match hours.first() {
                Some(hour) => self.push_to(*hour, rows, pipeline),
                None => Ok(()),
            };
        }
        let mut by_hour: BTreeMap<Hour, Vec<u32>> = BTreeMap::new();
        for (row, hour) in (0..).zip(&hours) {
            by_hour.entry(*hour).or_default().push(row);
        }
        let mut some = Batch::new(self.layout.table);
        for (hour, of_hour) in by_hour {
            some.select(rows, &of_hour);
            self.push_to(hour, &some, pipeline)?;
        }
        Ok(())
    }

    /// Adds rows whose place is known.
    pub fn push_to(&mut self, hour: Hour, rows: &Batch, pipeline: u16) -> Result<(), LakeError> {
        self.turn += 1;
        if !self.open.contains_key(&hour) {
            self.make_room()?;
            let part = self.begin(hour)?;
            self.open.insert(hour, part);
        }
        let part = self
            .open
            .get_mut(&hour)
            .expect("the writer was created above");
        part.turn = self.turn;
        if part.pipeline != pipeline && part.rows.rows() >= GROUP_ROWS_MIN {
            part.write(self.layout.order)?;
        }
        part.pipeline = pipeline;
        part.rows.append(rows);
        if part.rows.rows() >= GROUP_ROWS {
            part.write(self.layout.order)?;
            if part.writer.bytes() >= self.to.part_bytes {
                self.close(hour)?;
            }
        }
        Ok(())
    }

    /// Closes all parts and returns them, complete and durable, under temporary names.
    pub fn finish(mut self) -> Result<Vec<LakePart>, LakeError> {
        while let Some(hour) = self.open.keys().next().copied() {
            self.close(hour)?;
        }
        Ok(self.done)
    }

    /// The place of each row. A row without a time goes where the previous one went, or the next one if none before it
    /// has a time.
    fn hours(&self, rows: &Batch, timeline: &IdTimeline) -> Vec<Hour> {
        let grain = self.to.grain;
        let of = |column: &str, hour: &dyn Fn(i64) -> Hour| {
            let values = rows.ints(column).iter().enumerate();
            let known = values.map(|(row, value)| match rows.is_null(column, row) {
                true => None,
                false => hour(*value),
            });
            let known: Vec<Hour> = known.collect();
            let mut last = known.iter().copied().flatten().next();
            let hours = known.into_iter().map(|hour| {
                last = hour.or(last);
                last.map(|hour| grain.first(hour))
            });
            hours.collect()
        };
        match self.layout.placing {
            Placing::Time(column) => of(column, &|time| Some(hour_of(time))),
            Placing::Second(column) => of(column, &|second| Some(hour_of_second(second))),
            Placing::Minute(column) => of(column, &|minute| Some(hour_of_minute(minute))),
            Placing::Id(column) => of(column, &|id| timeline.hour_of(id)),
            Placing::Nowhere => vec![None; rows.rows()],
        }
    }

    fn make_room(&mut self) -> Result<(), LakeError> {
        while self.open.len() >= OPEN_MAX {
            let oldest = self
                .open
                .iter()
                .min_by_key(|(_, part)| part.turn)
                .map(|(hour, _)| *hour);
            let Some(oldest) = oldest else { return Ok(()) };
            self.close(oldest)?;
        }
        Ok(())
    }

    fn begin(&mut self, hour: Hour) -> Result<OpenPart, LakeError> {
        let part = begin_part(&self.to, self.layout, hour, *self.number)?;
        *self.number += 1;
        Ok(OpenPart {
            turn: self.turn,
            ..part
        })
    }

    fn close(&mut self, hour: Hour) -> Result<(), LakeError> {
        let Some(mut part) = self.open.remove(&hour) else {
            return Ok(());
        };
        part.write(self.layout.order)?;
        self.done.push(finish_part(self.layout, hour, part)?);
        Ok(())
    }
}

/// Starts part `number` of a table, counted within its version.
pub(crate) fn begin_part(
    to: &SpreadTo,
    layout: &LakeLayout,
    hour: Hour,
    number: u64,
) -> Result<OpenPart, LakeError> {
    let SpreadTo {
        root,
        grain,
        version,
        origin,
        ..
    } = to;
    let table = layout.table;
    let place = match layout.placing {
        Placing::Nowhere => String::new(),
        _ => format!("{}/", grain.folder(hour)),
    };
    let path = format!(
        "{}/{place}part-c{version:08}-{number:04}.parquet",
        table.name
    );
    let file = root.join(format!("{path}.{OPEN_SUFFIX}"));
    let folder = file.parent().expect("parts are in a folder");
    std::fs::create_dir_all(folder).map_err(|error| LakeError::writing(folder, 0, error))?;
    let writer = PartWriter::create(file, layout, origin.as_ref())?;
    Ok(OpenPart {
        path,
        writer,
        rows: Batch::new(table),
        pipeline: 0,
        turn: 0,
    })
}

/// Finishes a part to which all rows have been written.
pub(crate) fn finish_part(
    layout: &LakeLayout,
    hour: Hour,
    part: OpenPart,
) -> Result<LakePart, LakeError> {
    let OpenPart { path, writer, .. } = part;
    let finished = writer.finish()?;
    let columns = layout.table.columns;
    let is_key = |name: &str| layout.keys().any(|key| key == name);
    let extremes = finished
        .extremes
        .into_iter()
        .map(|(index, extremes)| (columns[index].name, extremes))
        .filter(|(name, _)| is_key(name))
        .map(|(name, extremes)| (name.to_string(), extremes));
    Ok(LakePart {
        path,
        rows: finished.rows,
        bytes: finished.bytes,
        sum: None,
        hour,
        extremes: extremes.collect(),
    })
}

impl OpenPart {
    /// Writes the collected rows as a group.
    fn write(&mut self, order: Option<&str>) -> Result<(), LakeError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        if let Some(order) = order {
            self.rows.sort_by(order);
        }
        self.writer.write(&self.rows)?;
        self.rows.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Placing;
    use crate::table::{Column, Table};

    static EVENTS: Table = Table {
        name: "events",
        doc: "Events.",
        columns: &[
            Column::int("event_id", "A number."),
            Column::time("at", "When.").nullable(),
        ],
    };

    /// The folders to which rows with these times are written, with their number of rows.
    fn written(grain: Grain, placing: Placing, times: &[Option<i64>]) -> Vec<(String, u64, Hour)> {
        let root = tempfile::tempdir().unwrap();
        let to = SpreadTo {
            root: root.path().to_path_buf(),
            grain,
            version: 1,
            part_bytes: 1 << 20,
            origin: None,
        };
        let layout = LakeLayout {
            table: &EVENTS,
            placing,
            order: None,
            blooms: Vec::new(),
            ids: Vec::new(),
            pipeline: None,
            tap: None,
            clock: None,
        };
        let mut rows = Batch::new(&EVENTS);
        for time in times {
            let row = rows.row().int(1);
            match time {
                Some(hour) => row.int(hour * 3_600_000_000_000),
                None => row.null(),
            }
            .end();
        }
        let mut number = 0;
        let mut spread = Spread::new(to, &layout, &mut number);
        spread.push(&rows, 0, &IdTimeline::default()).unwrap();
        let parts = spread.finish().unwrap().into_iter();
        let folder = |path: &str| path.rsplit_once('/').unwrap().0.to_string();
        parts
            .map(|part| (folder(&part.path), part.rows, part.hour))
            .collect()
    }

    /// A row without a time is placed with its neighbours, never in 1970.
    #[test]
    fn rows_without_a_time_are_not_given_one() {
        let (one, two) = (
            "events/date=1970-01-02/hour=00",
            "events/date=1970-01-02/hour=05",
        );
        assert_eq!(
            written(
                Grain::Hour,
                Placing::Time("at"),
                &[None, Some(24), None, Some(29), None]
            ),
            [
                (one.to_string(), 3, Some(24)),
                (two.to_string(), 2, Some(29))
            ]
        );
        let null = "__HIVE_DEFAULT_PARTITION__";
        assert_eq!(
            written(Grain::Hour, Placing::Time("at"), &[None, None]),
            [(format!("events/date={null}/hour={null}"), 2, None)]
        );
        // No id of a pipeline has a known time.
        assert_eq!(
            written(Grain::Day, Placing::Id("event_id"), &[Some(24)]),
            [(format!("events/date={null}"), 1, None)]
        );
        let nowhere = written(Grain::Day, Placing::Nowhere, &[Some(24)]);
        assert_eq!(nowhere, [("events".to_string(), 1, None)]);
    }
}
