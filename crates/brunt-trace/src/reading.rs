//! How users specify how to read a trace: the options of `brunt trace` and `brunt replay`, and the keys of `reading`
//! in a workload. Both use the struct defined here, so they have the same names and help.
//!
//! The rule: an option that the trace's format does not accept is an error; [`TraceReading::open`] checks it.

use std::path::PathBuf;

use brunt_core::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::ColumnMap;
use crate::error::TraceError;
use crate::format::{Format, FormatOptions, ReadingKey, TracedEvent};
use crate::reader::{ReadOptions, TraceReader};
use crate::record::TraceOp;
use crate::table::{FORMATS, format_named};

/// The format of a trace whose columns are specified.
const TABLE: &str = "csv";

/// Options for reading a trace: values that its format doesn't record, and how its rows are read. Options that don't
/// apply to the trace's format are rejected.
// The comments on the fields are the help texts of the options and the documentation of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(default, deny_unknown_fields)]
pub struct TraceReading {
    /// Stop at the first malformed row instead of skipping and counting malformed rows.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Sort requests by time within a window of 65,536 requests; by default they stay in file order.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sort: bool,
    /// Operation of every request, for formats that record none (oracleGeneral, lcs, csv).
    #[arg(long, value_name = "OP", value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<StatedOp>,
    /// Block size, for formats that do not record it (spc, oracleGeneral, lcs, csv); default 512.
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Size>,
    /// What the columns of a csv mean, as in libCacheSim: "time-col=2, obj-id-col=5, obj-size-col=4, op-col=3";
    /// implies the format csv.
    #[arg(long, value_name = "COLUMNS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub columns: Option<ColumnMap>,
    /// Jiffies per second of the kernel that recorded the trace (dtb); default 100.
    #[arg(long, value_name = "HZ")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jiffies: Option<u32>,
    /// Event that counts as the request (blktrace, blkparse, ftrace); default dispatched.
    #[arg(long, value_name = "STEP", value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<TracedEvent>,
}

/// The operation of all requests, for traces that don't record operations.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum StatedOp {
    /// All read.
    Read,
    /// All write.
    Write,
}

/// An option has an invalid value, or the format doesn't accept it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ReadingError {
    /// The option.
    pub key: ReadingKey,
    /// The mistake, and its correction.
    pub what: String,
}

/// Why a trace cannot be opened with these options.
#[derive(Debug, thiserror::Error)]
pub enum TraceOpenError {
    /// The options are invalid, or don't apply to this trace.
    #[error(transparent)]
    Reading(#[from] ReadingError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl TraceReading {
    /// Opens traces as one, in the given format if any.
    ///
    /// # Errors
    /// The traces cannot be read, or an option doesn't apply to them.
    ///
    /// # Panics
    /// Panics if `paths` is empty.
    pub fn open(
        &self,
        paths: &[PathBuf],
        format: Option<&'static Format>,
    ) -> Result<TraceReader, TraceOpenError> {
        let reader = TraceReader::open_all(paths, &self.options(format)?)?;
        self.without_effect(&reader.formats())
            .map_or(Ok(reader), |error| Err(error.into()))
    }

    /// The [`crate::TraceReader`] options for a trace in the given format, if any.
    ///
    /// # Errors
    /// The first option with an invalid value.
    pub fn options(&self, format: Option<&'static Format>) -> Result<ReadOptions, ReadingError> {
        let wrong = |key, what: &str| {
            Err(ReadingError {
                key,
                what: what.into(),
            })
        };
        let format = match (format, &self.columns) {
            (None, Some(_)) => format_named(TABLE),
            (stated, _) => stated,
        };
        let plain = FormatOptions::default();
        let block_bytes = match self.block {
            None => plain.block_bytes,
            Some(Size(bytes)) => match u32::try_from(bytes) {
                Ok(bytes) if bytes > 0 => bytes,
                _ => {
                    return wrong(
                        ReadingKey::Block,
                        "write a size of at least 1 byte and less than 4GiB",
                    );
                }
            },
        };
        if self.jiffies == Some(0) {
            return wrong(ReadingKey::Jiffies, "write at least 1 jiffy per second");
        }
        if let Some(format) = format
            && let Some(error) = self.without_effect(&[format])
        {
            return Err(error);
        }
        let options = FormatOptions {
            block_bytes,
            jiffies_per_s: self.jiffies.unwrap_or(plain.jiffies_per_s),
            event: self.event.unwrap_or(plain.event),
            op: self.op.map(|op| match op {
                StatedOp::Read => TraceOp::Read,
                StatedOp::Write => TraceOp::Write,
            }),
            columns: self.columns,
        };
        Ok(ReadOptions {
            format,
            strict: self.strict,
            sorted: self.sort,
            options,
        })
    }

    /// The first specified option that traces of these formats don't accept.
    fn without_effect(&self, formats: &[&'static Format]) -> Option<ReadingError> {
        let stated = [
            (ReadingKey::Op, self.op.is_some()),
            (ReadingKey::Block, self.block.is_some()),
            (ReadingKey::Columns, self.columns.is_some()),
            (ReadingKey::Jiffies, self.jiffies.is_some()),
            (ReadingKey::Event, self.event.is_some()),
        ];
        let takes = |key: ReadingKey| formats.iter().any(|format| format.takes.contains(&key));
        let key = stated
            .into_iter()
            .find_map(|(key, stated)| (stated && !takes(key)).then_some(key));
        let names: Vec<&str> = formats.iter().map(|format| format.name).collect();
        let of = |key: ReadingKey| {
            let takers = FORMATS.iter().filter(|format| format.takes.contains(&key));
            takers
                .map(|format| format.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        if let Some(key) = key {
            let what = format!(
                "has no effect on {}; omit it (it applies to {})",
                names.join(", "),
                of(key)
            );
            return Some(ReadingError { key, what });
        }
        // If a column contains the operation, an operation for all requests has no effect.
        let column = self.columns.is_some_and(|columns| columns.op.is_some());
        (column && self.op.is_some()).then(|| ReadingError {
            key: ReadingKey::Op,
            what: "has no effect together with op-col; omit one of them".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_options_become_read_options() {
        let reading = TraceReading {
            strict: true,
            sort: true,
            op: Some(StatedOp::Write),
            block: Some(Size(4096)),
            ..TraceReading::default()
        };
        let options = reading.options(format_named("lcs")).unwrap();
        assert!(
            options.strict && options.sorted && options.format.is_some_and(|it| it.name == "lcs")
        );
        assert_eq!(
            (options.options.block_bytes, options.options.op),
            (4096, Some(TraceOp::Write))
        );
        let columns = TraceReading {
            columns: Some(ColumnMap::SAMPLE),
            ..TraceReading::default()
        };
        assert!(
            columns
                .options(None)
                .unwrap()
                .format
                .is_some_and(|it| it.name == "csv")
        );
        assert_eq!(
            TraceReading::default().options(None).unwrap().options,
            FormatOptions::default()
        );
    }

    #[test]
    fn invalid_values_are_refused_with_their_option() {
        let check = |change: &dyn Fn(&mut TraceReading),
                     format: Option<&str>,
                     key: ReadingKey,
                     said: &str| {
            let mut reading = TraceReading::default();
            change(&mut reading);
            let error = reading
                .options(format.and_then(format_named))
                .err()
                .expect("refused");
            assert!(error.key == key && error.what.contains(said), "{error:?}");
        };
        check(
            &|reading| reading.block = Some(Size(0)),
            None,
            ReadingKey::Block,
            "at least 1",
        );
        check(
            &|reading| reading.block = Some(Size(1 << 32)),
            None,
            ReadingKey::Block,
            "less than 4GiB",
        );
        check(
            &|reading| reading.jiffies = Some(0),
            None,
            ReadingKey::Jiffies,
            "at least 1 jiffy",
        );
        let columns = |reading: &mut TraceReading| reading.columns = Some(ColumnMap::SAMPLE);
        check(
            &columns,
            Some("msr"),
            ReadingKey::Columns,
            "no effect on msr; omit it (it applies to csv)",
        );
        let block = |reading: &mut TraceReading| reading.block = Some(Size(512));
        check(
            &block,
            Some("vscsi1"),
            ReadingKey::Block,
            "spc, oracleGeneral, lcs, csv",
        );
        let both = |reading: &mut TraceReading| {
            (reading.columns, reading.op) = (Some(ColumnMap::SAMPLE), Some(StatedOp::Read));
        };
        check(&both, None, ReadingKey::Op, "op-col");
    }

    /// A format that needs an option accepts it, and each option applies to some format.
    #[test]
    fn each_option_applies_to_some_format() {
        for format in FORMATS {
            assert!(
                !format.needs_op || format.takes.contains(&ReadingKey::Op),
                "{}",
                format.name
            );
            assert!(
                !format.needs_columns || format.takes.contains(&ReadingKey::Columns),
                "{}",
                format.name
            );
        }
        use ReadingKey::{Block, Columns, Event, Jiffies, Op};
        for key in [Op, Block, Columns, Jiffies, Event] {
            assert!(
                FORMATS.iter().any(|format| format.takes.contains(&key)),
                "{key}"
            );
        }
    }
}
