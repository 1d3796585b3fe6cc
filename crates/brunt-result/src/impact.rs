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
/// Axis: names of these clients, joined by [`CLIENTS_JOINT`].
pub const ON_AXIS: &str = "on";
/// Separator of client names in a value of [`ON_AXIS`].
pub const CLIENTS_JOINT: char = '+';
/// Axis: delay of links.
pub const DELAY_AXIS: &str = "link_delay";

/// Indexes of robustness of an experiment that sweeps `clients`, or `link_delay` with 0 among its values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RobustnessIndexes {
    /// The ratios.
    pub impacts: Vec<ImpactIndex>,
    /// Throughput of each client, at each of the points.
    pub clients: Vec<ClientThroughput>,
    /// Runs that are left out of the ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<RunLeftOut>,
    /// Why a kind of ratio is missing, and what to write to get it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImpactKind {
    /// ParallelismImpactRatio: throughput with X clients at once, divided by that of the same clients one after another.
    Parallelism,
    /// LatencyImpactRatio: throughput with a link delay, divided by that without.
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

/// A ratio of throughputs, of one workload on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactIndex {
    /// What it compares.
    pub kind: ImpactKind,
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// Values of the axes that both sides have in common.
    pub axes: BTreeMap<String, String>,
    /// Kind of operation; `null` for all kinds together.
    pub op: Option<OpKind>,
    /// Number of concurrent clients: the X of a parallelism index, or the same on both sides of a latency index.
    pub at_once: u32,
    /// For a latency index: the delay that is compared with none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_delay: Option<String>,
    /// Ratio of the mean throughput of a client.
    pub per_client: ImpactRatio,
    /// Ratio of the throughput of all clients that work at once.
    pub aggregate: ImpactRatio,
    /// Rounds in which every client took part on both sides, so that they count.
    pub rounds: u32,
    /// Rounds that do not count because one of their runs is in `left_out`.
    pub rounds_left_out: u32,
}

/// A ratio with its interval, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactRatio {
    /// The ratio with its 95 % interval; `null` if there is no interval.
    pub interval: Option<Ratio>,
    /// Number of clients resampled for the interval; with 1, it covers rounds only.
    pub clients: u32,
    /// The ratio in each round that counts, for comparisons with other results.
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
    /// A client moved nothing.
    NothingMoved,
}

impl ImpactIndex {
    /// Label in one line: `store write, 4 clients, link_delay=10ms`.
    pub fn label(&self) -> String {
        let clients = if self.at_once == 1 {
            "1 client".into()
        } else {
            format!("{} clients", self.at_once)
        };
        let mut label = format!("{} {}, {clients}", self.target, self.workload);
        for (axis, value) in self.axes.iter().filter(|(axis, _)| *axis != CLIENTS_AXIS) {
            label += &format!(", {axis}={value}");
        }
        if let Some(delay) = &self.link_delay {
            label += &format!(", link_delay={delay}");
        }
        self.op.map_or(label.clone(), |op| format!("{label}, {op}"))
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
    /// Bytes per second, over the runs in which all clients took part; `null` without any.
    pub bytes_per_second: Option<Estimate>,
}

/// A run that is excluded from all ratios.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLeftOut {
    /// The point's label.
    pub point: String,
    /// The run's number, from 0.
    pub repetition: u32,
    /// Clients that did not take part, or not to the end; empty where the run as a whole was incomplete.
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
