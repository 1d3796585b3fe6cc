//! A report on captured traffic as plain data: everything that `brunt analyze --json` prints and a report page shows.
//! `brunt-capture` fills it; programs, pages and the terminal read it.
//!
//! The rule: a report contains only numbers and names, no packets, protocols or analyses, so it can be sent and
//! stored.

mod section;

pub use section::{AnalysisSection, SectionColumn, SectionLayout, SectionUnit};

use std::borrow::Cow;
use std::collections::BTreeMap;

use brunt_core::LeftOutTransfers;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Time of the first packet, in nanoseconds since 1970.
    pub start_ns: u64,
    /// From the first packet to the last, in seconds.
    pub duration_s: f64,
    /// Whether the packet counts add up; if they don't, nothing in the report can be trusted.
    pub valid: bool,
    /// Findings for the administrator.
    pub findings: Vec<Finding>,
    /// Calls seen.
    pub operations: u64,
    /// Calls per second; `None` if all packets have the same time.
    pub operations_per_s: Option<f64>,
    /// Gigabits per second on the wire; `None` if all packets have the same time.
    pub wire_gbit_per_s: Option<f64>,
    /// Figures by operation.
    pub by_operation: Vec<OperationRow>,
    /// Analyses that were left out with `--analyses`, so their findings are absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Cow<'static, str>>,
    /// The workload profile, as needed for sizing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRow>,
    /// The hottest files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Ranking>,
    /// The hottest directories, counting only the files directly in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories: Option<Ranking>,
    /// The hottest clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Ranking>,
    /// The hottest pairs of client and file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Ranking>,
    /// Figures over time.
    pub intervals: Vec<IntervalRow>,
    /// Packets seen and packets lost.
    pub ledger: Counters,
    /// How to show the rows of the remaining analyses, in the order of the analyses.
    #[serde(default)]
    pub sections: Vec<SectionLayout>,
    /// The rows of the remaining analyses, by the names of their sections.
    #[serde(flatten)]
    pub rows: BTreeMap<String, Value>,
}

impl Report {
    /// Whether any call has a reply. Without replies, latencies, errors and outstanding calls are unknown.
    pub fn is_answered(&self) -> bool {
        self.by_operation.iter().any(|row| row.replies > 0)
    }

    /// The rows of a section; a single row if the section has figures instead of a table.
    pub fn rows_of(&self, section: &SectionLayout) -> &[Value] {
        match self.rows.get(&*section.name) {
            Some(Value::Array(rows)) => rows,
            Some(figures) => std::slice::from_ref(figures),
            None => &[],
        }
    }

    /// Whether a section has a few figures instead of a table.
    pub fn is_figures(&self, section: &SectionLayout) -> bool {
        self.rows
            .get(&*section.name)
            .is_some_and(|rows| !rows.is_array())
    }
}

/// Figures of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // named by their units
pub struct OperationRow {
    pub name: Cow<'static, str>,
    pub calls: u64,
    pub replies: u64,
    pub errors: u64,
    pub bytes: u64,
    /// `null` without a reply, and in a capture without timestamps.
    pub latency: Option<LatencyRow>,
}

/// A distribution in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LatencyRow {
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// Maximum error of `p50_ns` to `p999_ns`, in percent: 0.1 for operations, more for files and clients. Mean and
    /// maximum are exact.
    #[serde(default)]
    pub error_percent: f64,
}

/// Reads or writes. The share and the sizes are `null` if there were no transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TransferRow {
    pub operations: u64,
    pub bytes: u64,
    pub sequential_share: Option<f64>,
    pub size_p50_bytes: Option<u64>,
    pub size_p95_bytes: Option<u64>,
}

/// The workload profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ProfileRow {
    pub read: TransferRow,
    pub write: TransferRow,
    pub metadata_operations: u64,
    /// READs and WRITEs that don't count as transfers.
    #[serde(default)]
    pub left_out: LeftOutTransfers,
    pub random_read_working_set_bytes: u64,
    pub working_set_bytes: u64,
    /// Standard error of the two working-set estimates, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set_error_percent: Option<f64>,
    /// Mean number of outstanding calls over time; `None` if all packets have the same time.
    pub outstanding_mean: Option<f64>,
    /// Highest number of calls that were outstanding when a new call was sent.
    pub outstanding_max: u32,
}

/// How accurately a count is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountKind {
    /// Counted exactly.
    #[default]
    Exact,
    /// Estimated by a sketch with a standard error of 0.8 %, because there were too many entries to keep.
    Estimated,
    /// A lower bound: only entries that could be kept were counted.
    AtLeast,
}

impl CountKind {
    /// Formats a number with its accuracy.
    pub fn show(self, number: String) -> String {
        match self {
            CountKind::Exact => number,
            CountKind::Estimated => format!("about {number}"),
            CountKind::AtLeast => format!("at least {number}"),
        }
    }
}

/// Because entries were dropped, an entry listed here may lack up to this much weight, and one not listed here may
/// have had up to this much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Number of entries.
    pub count: u64,
    /// Whether `count` is exact.
    #[serde(default)]
    pub count_kind: CountKind,
    /// Entries dropped because the limit was reached; all of them had little weight.
    pub forgotten: u64,
    /// Maximum weight missing from any listed entry, and maximum weight of any entry that is not listed, because
    /// entries were dropped. One operation, 16 KiB of data, or 65.5 us of waiting have a weight of 1.
    #[serde(default)]
    pub undercount_max: u64,
    /// Share of all operations that the 25 entries with the most operations account for; `None` without operations.
    pub top25_operations_share: Option<f64>,
    /// Share of all bytes that the 25 entries with the most bytes account for; `None` without bytes.
    pub top25_bytes_share: Option<f64>,
    /// Entries that are among the top 25 by operations, by bytes or by time.
    pub top: Vec<HotRow>,
}

/// A hot file, directory, client or pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HotRow {
    pub name: String,
    pub operations: u64,
    pub bytes: u64,
    pub time_ns: u64,
    pub latency: Option<LatencyRow>,
}

/// Figures of one interval. All intervals have the same length, except the first and the last, which begin and end
/// with the capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct IntervalRow {
    pub from_s: f64,
    pub width_s: f64,
    pub operations: u64,
    pub wire_bytes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub errors: u64,
}

/// Something an administrator should know, in words, with the figures behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind of finding, for programs; its name never changes.
    pub kind: Cow<'static, str>,
    /// What was found, with its figures.
    pub text: String,
    /// What to do about it, or what it means.
    pub advice: Cow<'static, str>,
}

/// Counters by name, in the order in which packets pass them. In JSON they are one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<(Cow<'static, str>, u64)>);

impl Counters {
    /// Returns the counter of that name.
    ///
    /// # Panics
    /// No counter has that name.
    pub fn of(&self, name: &str) -> u64 {
        let found = self.0.iter().find(|(counter, _)| counter == name);
        found
            .unwrap_or_else(|| panic!("the ledger counts no {name}"))
            .1
    }

    /// Iterates over all counters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_ref(), *count))
    }
}

impl<N: Into<Cow<'static, str>>> FromIterator<(N, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(counters: I) -> Counters {
        Counters(
            counters
                .into_iter()
                .map(|(name, count)| (name.into(), count))
                .collect(),
        )
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0
            .iter()
            .try_for_each(|(name, count)| map.serialize_entry(name, count))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Counters, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Counters;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of counters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Counters, A::Error> {
                let mut counters = Vec::new();
                while let Some((name, count)) = map.next_entry::<String, u64>()? {
                    counters.push((Cow::Owned(name), count));
                }
                Ok(Counters(counters))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_their_order() {
        let counters: Counters = [("packets", 3), ("calls", u64::MAX), ("a", 0)]
            .into_iter()
            .collect();
        let text = serde_json::to_string(&counters).unwrap();
        assert_eq!(text, r#"{"packets":3,"calls":18446744073709551615,"a":0}"#);
        assert_eq!(serde_json::from_str::<Counters>(&text).unwrap(), counters);
        assert_eq!(
            (counters.of("packets"), counters.of("calls")),
            (3, u64::MAX)
        );
    }
}
