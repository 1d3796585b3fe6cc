//! Robustness indexes as plain data: how much of a client's throughput remains with many concurrent clients, or with
//! a longer network path to the storage. Computed by [`crate::indexes`], stored in the summary, shown in the
//! terminal and on pages.
//!
//! The formulas are those of "Indexes for Distributed File/Storage Systems as a Large Scale Virtual Machine Disk Image
//! Storage in a Wide Area Network" (equations 1 and 2).
//!
//! The rule: a ratio without an interval is not shown as a number; the reason is shown instead.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OpKind;
use crate::statistics::{Estimate, Ratio};

/// Axis: number of concurrent clients.
pub const CLIENTS_AXIS: &str = "clients";
/// Axis: names of concurrent clients, joined by [`CLIENTS_JOINT`].
pub const ON_AXIS: &str = "on";
/// Separator of client names in a value of [`ON_AXIS`].
pub const CLIENTS_JOINT: char = '+';
/// Axis: link delay.
pub const DELAY_AXIS: &str = "link_delay";

/// Indexes of robustness of an experiment that sweeps `clients`, or `link_delay` with 0 among its values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RobustnessIndexes {
    /// The ratios.
    pub impacts: Vec<ImpactIndex>,
    /// Throughput of each client, at each of the points.
    pub clients: Vec<ClientThroughput>,
    /// How evenly concurrent clients share the throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evenness: Vec<ClientEvenness>,
    /// Runs that are left out of the ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<RunLeftOut>,
    /// Why a kind of ratio is missing, and what to specify to get it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImpactKind {
    /// ParallelismImpactRatio: throughput with X clients at once, divided by that of the same clients one after another.
    Parallelism,
    /// LatencyImpactRatio: throughput with a link delay, divided by that without a delay.
    Latency,
}

impl ImpactKind {
    /// Name used in the paper.
    pub fn name(self) -> &'static str {
        match self {
            ImpactKind::Parallelism => "ParallelismImpactRatio",
            ImpactKind::Latency => "LatencyImpactRatio",
        }
    }
}

/// A ratio of throughputs of one workload on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactIndex {
    /// What the ratio compares.
    pub kind: ImpactKind,
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// Values of the other axes, which are the same on both sides.
    pub axes: BTreeMap<String, String>,
    /// Kind of operation; `null` for all kinds together.
    pub op: Option<OpKind>,
    /// Number of concurrent clients: the X of a parallelism index, or the same on both sides of a latency index.
    pub at_once: u32,
    /// For a latency index: the delay, which is compared with no delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_delay: Option<String>,
    /// Ratio of the mean throughput of a client.
    pub per_client: ImpactRatio,
    /// Ratio of the throughput of all concurrent clients together.
    pub aggregate: ImpactRatio,
    /// Rounds in which every client took part on both sides, so that the ratio includes them.
    pub rounds: u32,
    /// Rounds that the ratio does not include because one of their runs is listed in `left_out`.
    pub rounds_left_out: u32,
}

/// A ratio with its interval, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactRatio {
    /// The ratio and its 95 % interval; `null` without an interval.
    pub interval: Option<Ratio>,
    /// Number of clients resampled for the interval; with 1, it covers rounds only.
    pub clients: u32,
    /// The ratio in each included round, for comparisons with other results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_round: Vec<f64>,
    /// Why there is no interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<NoInterval>,
}

/// Why a ratio has no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoInterval {
    /// No round was complete on both sides.
    NoRound,
    /// Only one round was complete on both sides.
    OneRound,
    /// A client moved no data.
    NothingMoved,
}

impl ImpactIndex {
    /// Label in one line: `store write, 4 clients, link_delay=10ms`.
    pub fn label(&self) -> String {
        let mut label = label(&self.target, &self.workload, self.at_once, &self.axes);
        if let Some(delay) = &self.link_delay {
            label += &format!(", link_delay={delay}");
        }
        self.op.map_or(label.clone(), |op| format!("{label}, {op}"))
    }
}

fn label(target: &str, workload: &str, at_once: u32, axes: &BTreeMap<String, String>) -> String {
    let clients = if at_once == 1 {
        "1 client".into()
    } else {
        format!("{at_once} clients")
    };
    let mut label = format!("{target} {workload}, {clients}");
    for (axis, value) in axes.iter().filter(|(axis, _)| *axis != CLIENTS_AXIS) {
        label += &format!(", {axis}={value}");
    }
    label
}

/// How evenly clients that work at once share the throughput: Jain's index of fairness (R. Jain, D. Chiu, W. Hawe, "A
/// Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems",
/// DEC-TR-301, 1984), (sum of x)² / (n × sum of x²) of the throughputs x of n clients. It is 1 if all clients have
/// the same throughput, and 1/n if one client has all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientEvenness {
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// Values of the axes, apart from the clients' names.
    pub axes: BTreeMap<String, String>,
    /// Kind of operation; `null` for all kinds together.
    pub op: Option<OpKind>,
    /// Number of concurrent clients: the n.
    pub at_once: u32,
    /// Mean over rounds with its 95 % interval, which ends at 1; each round is the mean over its groups of clients.
    /// `null` if no round was complete or no data was moved.
    pub index: Option<Estimate>,
}

impl ClientEvenness {
    /// Label in one line, like that of an [`ImpactIndex`].
    pub fn label(&self) -> String {
        let label = label(&self.target, &self.workload, self.at_once, &self.axes);
        self.op.map_or(label.clone(), |op| format!("{label}, {op}"))
    }

    /// The index with its interval, or the reason why either is missing.
    pub fn describe(&self) -> String {
        let Some(found) = self.index else {
            return NoInterval::NoRound.describe().to_string();
        };
        match found.low.zip(found.high) {
            Some((low, high)) => format!("{:.3} [{low:.3}, {high:.3}]", found.mean),
            None => format!("{:.3}, {}", found.mean, NoInterval::OneRound.describe()),
        }
    }
}

impl ImpactRatio {
    /// The ratio with its interval, or why there is none.
    pub fn describe(&self) -> String {
        match (self.interval, self.missing) {
            (Some(found), _) => format!("{:.3} [{:.3}, {:.3}]", found.ratio, found.low, found.high),
            (None, missing) => missing.map_or("-", NoInterval::describe).to_string(),
        }
    }
}

impl NoInterval {
    /// The reason in words.
    pub fn describe(self) -> &'static str {
        match self {
            NoInterval::NoRound => "no complete round",
            NoInterval::OneRound => "no interval: one round",
            NoInterval::NothingMoved => "none: nothing was moved",
        }
    }
}

/// Throughput of one client at one point: a bar in a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientThroughput {
    /// The client: its host's name, or `local` for the process that ran the experiment.
    pub client: String,
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// Values of the point's axes.
    pub axes: BTreeMap<String, String>,
    /// Kind of operation; `null` for all kinds together.
    pub op: Option<OpKind>,
    /// Bytes per second, over the runs in which all clients took part; `null` if there were none.
    pub bytes_per_second: Option<Estimate>,
}

/// A run that is excluded from all ratios.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLeftOut {
    /// The point's label.
    pub point: String,
    /// The run's number, from 0.
    pub repetition: u32,
    /// Clients that did not take part, or dropped out before the end; empty if the run as a whole was incomplete.
    pub absent: Vec<String>,
}

impl RunLeftOut {
    /// Describes the run and the reason in words.
    pub fn describe(&self) -> String {
        let why = match self.absent.is_empty() {
            true => "incomplete".to_string(),
            false => format!("without {}", self.absent.join(", ")),
        };
        format!("{}, repetition {}: {why}", self.point, self.repetition)
    }
}
