//! Decides where in a lake a row belongs: its time determines an hour or day, stored as folders
//! `date=2026-11-25/hour=16`, which every engine treats as columns. Pure; called by [`crate::compact`].
//!
//! Rows without a time, but with the id of something that has a time, are placed by [`IdTimeline`]: ids increase with
//! time, so an hour corresponds to a range of ids. If no time is known, the columns are null.
//!
//! The rule: a row's place only says where to look first. Readers never skip a row because of its place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

const SECONDS_OF_HOUR: i64 = 3600;
const NANOS_OF_HOUR: i64 = SECONDS_OF_HOUR * 1_000_000_000;
const HOURS_OF_DAY: i64 = 24;
/// Low bits of an id, which count within a pipeline; the bits above these contain the pipeline's number.
pub const NUMBER_BITS: u32 = 48;
/// Maximum number of pipelines, because ids are not negative.
pub const PIPELINES_MAX: u32 = 1 << (63 - NUMBER_BITS);
/// The value in a folder's name that engines read as null (Hive's `hive.exec.default.partition.name`).
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";
/// Hours remembered per pipeline: six weeks. Older ids are placed in the oldest remembered hour.
const HOURS_MAX: usize = 1008;

/// Granularity of a lake's division by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grain {
    /// `date=…/hour=…`
    Hour,
    /// `date=…`
    Day,
}

/// What determines the place of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// A time column.
    Time(&'static str),
    /// A column with seconds since 1970.
    Second(&'static str),
    /// A column with minutes since 1970.
    Minute(&'static str),
    /// A column with ids of another table's rows, whose times are known.
    Id(&'static str),
    /// Nothing: all rows are in the table's own folder.
    Nowhere,
}

/// The hour since 1970 that a row belongs to; `None` if unknown, and for tables that aren't divided by time.
pub type Hour = Option<i64>;

/// The hour since 1970 that contains this time in nanoseconds since 1970.
pub fn hour_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(NANOS_OF_HOUR)
}

/// The hour since 1970 that contains this second since 1970.
pub fn hour_of_second(second: i64) -> i64 {
    second.div_euclid(SECONDS_OF_HOUR)
}

/// The hour since 1970 that contains this minute since 1970.
pub fn hour_of_minute(minute: i64) -> i64 {
    minute.div_euclid(60)
}

/// The pipeline that assigned an id.
pub fn pipeline_of(id: i64) -> u16 {
    (id >> NUMBER_BITS) as u16
}

impl Grain {
    /// The first hour of the hour or day that contains this one.
    pub fn first(self, hour: i64) -> i64 {
        match self {
            Grain::Hour => hour,
            Grain::Day => hour.div_euclid(HOURS_OF_DAY) * HOURS_OF_DAY,
        }
    }

    /// The columns encoded in a folder's name, with their values: a date and, with [`Grain::Hour`], a two-digit hour.
    pub fn values(self, hour: i64) -> Vec<(&'static str, String)> {
        let [year, month, day] = date(hour.div_euclid(HOURS_OF_DAY));
        let mut values = vec![("date", format!("{year:04}-{month:02}-{day:02}"))];
        if self == Grain::Hour {
            values.push(("hour", format!("{:02}", hour.rem_euclid(HOURS_OF_DAY))));
        }
        values
    }

    /// The hour since 1970 for the values in a folder's name; `None` if they are invalid.
    pub(crate) fn hour_of_values(day: &str, hour: Option<&str>) -> Hour {
        let mut numbers = day.splitn(3, '-').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        let day = day_of([next()?, next()?, next()?]);
        let hour: i64 = hour.map_or(Some(0), |hour| hour.parse().ok())?;
        Some(day * HOURS_OF_DAY + hour)
    }

    /// The folder's path, relative to the table's folder.
    pub fn folder(self, hour: Hour) -> String {
        let values = self.values(hour.unwrap_or(0)).into_iter();
        values
            .map(|(name, value)| match hour {
                Some(_) => format!("{name}={value}"),
                None => format!("{name}={NULL_FOLDER}"),
            })
            .collect::<Vec<_>>()
            .join("/")
    }
}

/// Year, month and day of a day since 1970 in the Gregorian calendar (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`: years start in March, so that the leap day is the last day).
pub(crate) fn date(day: i64) -> [i64; 3] {
    const DAYS_OF_ERA: i64 = 146_097; // 400 years
    let day = day + 719_468; // from 0000-03-01
    let (era, of_era) = (day.div_euclid(DAYS_OF_ERA), day.rem_euclid(DAYS_OF_ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    [year + era * 400 + i64::from(month <= 2), month, day]
}

/// The day since 1970 of a date, the inverse of [`date`] (Hinnant, `days_from_civil`).
fn day_of([year, month, day]: [i64; 3]) -> i64 {
    const DAYS_OF_ERA: i64 = 146_097; // 400 years
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Which ids each pipeline assigned in each hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdTimeline {
    /// For each pipeline, the lowest id of each hour.
    first_ids: BTreeMap<u16, BTreeMap<i64, i64>>,
}

impl IdTimeline {
    /// Records that an id was assigned at this time.
    pub fn note(&mut self, id: i64, time_ns: i64) {
        let hours = self.first_ids.entry(pipeline_of(id)).or_default();
        let first = hours.entry(hour_of(time_ns)).or_insert(id);
        *first = (*first).min(id);
        if hours.len() > HOURS_MAX {
            hours.pop_first();
        }
    }

    /// The hour of an id: the last hour that starts with this id or a lower one, otherwise the pipeline's first known
    /// hour; `None` if no hour is known.
    pub fn hour_of(&self, id: i64) -> Hour {
        let hours = self.first_ids.get(&pipeline_of(id))?;
        let begun = hours.iter().rev().find(|(_, first)| **first <= id);
        begun
            .or_else(|| hours.first_key_value())
            .map(|(hour, _)| *hour)
    }

    /// Forgets pipelines that won't assign more ids.
    pub fn forget(&mut self, pipelines: std::ops::Range<u32>) {
        self.first_ids
            .retain(|pipeline, _| !pipelines.contains(&u32::from(*pipeline)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dates match those of `date -u -d @SECONDS`.
    #[test]
    fn dates_match_those_of_the_date_command() {
        let check = |second: i64, expected: &str| {
            let hour = hour_of_second(second);
            assert_eq!(Grain::Hour.folder(Some(hour)), expected);
            let values = Grain::Hour.values(hour);
            let back = Grain::hour_of_values(&values[0].1, Some(&values[1].1));
            assert_eq!(back, Some(hour), "{expected}");
        };
        check(0, "date=1970-01-01/hour=00");
        check(-1, "date=1969-12-31/hour=23");
        check(951_782_399, "date=2000-02-28/hour=23");
        check(951_782_400, "date=2000-02-29/hour=00");
        check(951_868_800, "date=2000-03-01/hour=00");
        check(1_795_622_399, "date=2026-11-25/hour=15");
        check(4_107_542_400, "date=2100-03-01/hour=00");
        assert_eq!(
            Grain::Day.folder(Some(Grain::Day.first(hour_of(-1)))),
            "date=1969-12-31"
        );
        assert_eq!(Grain::Day.first(49), 48);
    }

    /// An id belongs to the hour that its pipeline had reached; other pipelines' ids don't matter.
    #[test]
    fn an_id_belongs_to_the_hour_that_its_pipeline_had_reached() {
        let mut line = IdTimeline::default();
        let other = 3 << NUMBER_BITS;
        for (id, hour) in [
            (10, 5),
            (12, 5),
            (19, 6),
            (20, 6),
            (18, 6),
            (40, 9),
            (other, 7),
        ] {
            line.note(id, hour * NANOS_OF_HOUR + 1);
        }
        let hours = [0, 10, 17, 18, 39, 40, 1 << 40, other + 5].map(|id| line.hour_of(id));
        assert_eq!(hours, [5, 5, 5, 6, 6, 9, 9, 7].map(Some));
        assert_eq!(line.hour_of(1 << NUMBER_BITS), None);
        line.forget(0..3);
        assert_eq!((line.hour_of(10), line.hour_of(other)), (None, Some(7)));
    }
}
