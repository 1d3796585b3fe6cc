//! An experiment as stored in results: names, places and descriptions, but not the settings from which they were
//! made. A study fills it from the experiment file; pages print it.
//!
//! The rule: it contains no secrets, so all of it may be passed on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::percentile::{Percentile, USUAL};

/// The experiment that was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentSummary {
    /// Name of the experiment.
    pub name: String,
    /// Purpose of the experiment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Seed from which the order of runs and every request are derived.
    pub seed: u64,
    /// Planned runs of each point.
    pub repetitions: u32,
    /// Percentiles to show, if the experiment chose them; otherwise p50, p99 and p99.9.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<Percentile>,
    /// Targets, by name.
    pub targets: BTreeMap<String, TargetSummary>,
    /// Workloads, by name.
    pub workloads: BTreeMap<String, WorkloadSummary>,
    /// In experiments over a network: the TCP congestion control that connections use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionSummary>,
    /// The experiment file with all defaults written out, for running it again.
    pub toml: String,
}

impl ExperimentSummary {
    /// The percentiles to show.
    pub fn shown_percentiles(&self) -> &[Percentile] {
        match &self.percentiles[..] {
            [] => &USUAL,
            chosen => chosen,
        }
    }
}

/// The place of a result among several whose runs took turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterleavedWith {
    /// Identifies a group of results whose runs took turns: the same in all results of the group, and in no other
    /// results.
    pub id: String,
    /// Index of this result in `results`, from 0.
    pub place: u32,
    /// Names of the results folders of all results whose runs took turns.
    pub results: Vec<String>,
}

/// The TCP congestion control of an experiment's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CongestionSummary {
    /// The algorithm, such as `cubic`.
    pub algorithm: String,
    /// Whether the experiment chose it; otherwise the kernel did.
    pub chosen: bool,
}

impl CongestionSummary {
    /// Describes the algorithm and who chose it.
    pub fn describe(&self) -> String {
        let by = if self.chosen {
            "set by the experiment"
        } else {
            "the kernel's default"
        };
        format!("congestion control {}, {by}", self.algorithm)
    }
}

/// A target that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetSummary {
    /// Kind of target.
    pub kind: TargetKind,
    /// The target's URL, the LUN served for it, or its directory.
    pub place: String,
    /// Whether the experiment served it.
    pub served: bool,
    /// Lab host that served the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What the device reported or negotiated when it was opened, such as its serial number and iSCSI parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
}

/// Kind of target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A block device, local or served over a network.
    #[default]
    Device,
    /// The network without storage, as a baseline for other targets.
    Network,
    /// A directory of a mounted file system.
    Directory,
}

/// A workload that was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSummary {
    /// Kind of load, such as `block` or `file`.
    pub kind: String,
    /// Summary of its settings, without those that are swept.
    pub description: String,
    /// Outstanding requests per worker, if the load has this setting and it is not swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// When requests are issued.
    pub arrival: ArrivalKind,
}

/// When a load issues its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// Each request is issued when another one completes.
    #[default]
    Closed,
    /// Requests are issued at set times, whether or not others have completed.
    Open,
    /// Requests are issued at a rate that is found by search.
    Search,
    /// Several workloads at once, each with its own settings.
    Several,
}
