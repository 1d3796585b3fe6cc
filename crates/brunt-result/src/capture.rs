//! A report on captured traffic as plain data: everything that `brunt analyze --json` prints and a report
//! page shows. Filled by `brunt-capture`, read by programs, pages and the terminal. The one rule: it contains
//! only numbers and names, no packets, protocols or analyses, so that a report can be sent and stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brunt_core::LeftOutTransfers;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When the first packet was seen: nanoseconds since 1970.
    pub start_ns: u64,
    /// From the first packet to the last, in seconds.
    pub duration_s: f64,
    /// Whether the ledger adds up; if not, nothing here is to be trusted.
    pub valid: bool,
    /// What an administrator should know.
    pub findings: Vec<Finding>,
    /// Calls seen.
    pub operations: u64,
    /// Calls a second.
    pub operations_per_s: f64,
    /// Gigabits a second on the wire.
    pub wire_gbit_per_s: f64,
    /// By operation.
    pub by_operation: Vec<OperationRow>,
    /// The workload, as a sizing wants it.
    pub profile: ProfileRow,
    /// Data that is the same.
    pub duplicates: DuplicateRow,
    /// The hottest files.
    pub files: Ranking,
    /// The hottest directories, with what lies directly in them.
    pub directories: Ranking,
    /// The hottest clients.
    pub clients: Ranking,
    /// The hottest pairs of client and file.
    pub pairs: Ranking,
    /// Clients and their offsets.
    pub misaligned: Vec<MisalignedRow>,
    /// Over time.
    pub intervals: Vec<IntervalRow>,
    /// What packets carried that is not understood, most first.
    #[serde(default)]
    pub not_understood: Vec<NotUnderstoodRow>,
    /// What was seen and what was lost.
    pub ledger: Counters,
    /// What further analyses found, by their names.
    #[serde(flatten)]
    pub further: BTreeMap<String, serde_json::Value>,
}

impl Report {
    /// Whether any call has its reply: without one, nothing is known of latencies, errors and what is outstanding.
    pub fn is_answered(&self) -> bool {
        self.by_operation.iter().any(|row| row.replies > 0)
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // named by their units
pub struct OperationRow {
    pub name: Cow<'static, str>,
    pub calls: u64,
    pub replies: u64,
    pub errors: u64,
    pub bytes: u64,
    /// `null` without a reply, and in a capture without times.
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
    /// How far `p50_ns` to `p999_ns` are off at most: 0.1 for operations, more for files and clients. Mean and
    /// maximum are exact.
    #[serde(default)]
    pub error_percent: f64,
}

/// Reads and writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TransferRow {
    pub operations: u64,
    pub bytes: u64,
    pub sequential_share: f64,
    pub size_p50_bytes: u64,
    pub size_p95_bytes: u64,
}

/// The profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ProfileRow {
    pub read: TransferRow,
    pub write: TransferRow,
    pub metadata_operations: u64,
    /// READs and WRITEs that are not counted as transfers.
    #[serde(default)]
    pub left_out: LeftOutTransfers,
    pub random_read_working_set_bytes: u64,
    pub working_set_bytes: u64,
    /// Standard error of the two working sets in percent: they are estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set_error_percent: Option<f64>,
    /// Calls that waited at a time, over all of the time.
    pub outstanding_mean: f64,
    /// The most that a call found waiting.
    pub outstanding_max: u32,
}

/// Data that is the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DuplicateRow {
    pub blocks_read: u64,
    pub blocks_written: u64,
    pub duplicate_share: f64,
    /// Standard error of `duplicate_share`, which two estimates of different blocks give; none without blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_share_error: Option<f64>,
    pub zero_share: f64,
}

/// How well a number of things is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountKind {
    /// Counted.
    #[default]
    Exact,
    /// Estimated by a sketch with a standard error of 0.8 %: there were too many to keep all.
    Estimated,
    /// There may be more: it counts what could be kept.
    AtLeast,
}

impl CountKind {
    /// The number with what is known of it.
    pub fn show(self, number: String) -> String {
        match self {
            CountKind::Exact => number,
            CountKind::Estimated => format!("about {number}"),
            CountKind::AtLeast => format!("at least {number}"),
        }
    }
}

/// The heaviest of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// How many there are.
    pub count: u64,
    /// Whether that was counted.
    #[serde(default)]
    pub count_kind: CountKind,
    /// Entries forgotten for lack of room, all of them light.
    pub forgotten: u64,
    /// The share of the 25 with the most operations, and of the 25 with the most bytes.
    pub top25_operations_share: f64,
    /// The same of bytes.
    pub top25_bytes_share: f64,
    /// The 25 with the most operations, bytes or time: all that are in one of the three.
    pub top: Vec<HotRow>,
}

/// Something hot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HotRow {
    pub name: String,
    pub operations: u64,
    pub bytes: u64,
    pub time_ns: u64,
    pub latency: Option<LatencyRow>,
}

/// A client's offsets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MisalignedRow {
    pub client: String,
    pub transfers: u64,
    pub misaligned: u64,
}

/// A protocol below TCP and UDP that is not looked into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotUnderstoodRow {
    /// What it is, such as `EtherType 0x88b5`.
    pub name: String,
    /// Packets that carried it.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

/// What happened in an interval. All are equally long, but for the first and the last, which begin and end
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

/// Something worth telling an administrator, in words, with the figures that it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind it is, for programs: never changes.
    pub kind: Cow<'static, str>,
    /// What was found, with its figures.
    pub text: String,
    /// What to do about it, or what it means.
    pub advice: Cow<'static, str>,
}

/// Counters by name, in the order in which packets pass what they count. As JSON they are one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<(Cow<'static, str>, u64)>);

impl Counters {
    /// The counter of that name.
    ///
    /// # Panics
    /// There is none: whoever asks names one that the capture counts.
    pub fn of(&self, name: &str) -> u64 {
        let found = self.0.iter().find(|(counter, _)| counter == name);
        found
            .unwrap_or_else(|| panic!("the ledger counts no {name}"))
            .1
    }

    /// All of them.
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
    fn counters_come_back_in_their_order() {
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
