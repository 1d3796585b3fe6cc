//! An experiment as results know it: names, places and sentences, not the settings they were made from. A study
//! fills it from the experiment file, pages print it.
//!
//! The rule: no secrets. Whatever is here may be passed on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentSummary {
    /// What it is called.
    pub name: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The order of runs and every request follow from it.
    pub seed: u64,
    /// How often each point was meant to be run.
    pub repetitions: u32,
    /// What was measured, by name.
    pub targets: BTreeMap<String, TargetSummary>,
    /// What was done to it, by name.
    pub workloads: BTreeMap<String, WorkloadSummary>,
    /// Of experiments over a network: the TCP congestion control that connections use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionSummary>,
    /// The experiment file with every default written out, to run it again.
    pub toml: String,
}

/// What TCP did about losses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CongestionSummary {
    /// The algorithm, such as `cubic`.
    pub algorithm: String,
    /// Whether the experiment chose it; the kernel otherwise.
    pub chosen: bool,
}

impl CongestionSummary {
    /// In words.
    pub fn told(&self) -> String {
        let by = if self.chosen { "set by the experiment" } else { "the kernel's default" };
        format!("congestion control {}, {by}", self.algorithm)
    }
}

/// Something that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetSummary {
    /// What it is.
    pub kind: TargetKind,
    /// Its URL, what is served for it, or the directory.
    pub place: String,
    /// Whether the experiment started it.
    pub served: bool,
    /// The host of the lab that it was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// What a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A device or something that serves one.
    #[default]
    Device,
    /// The network without storage: what others are held against.
    Network,
    /// A directory of a mounted file system.
    Directory,
}

/// Something that was done to targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSummary {
    /// The kind of load, such as `block` or `file`.
    pub kind: String,
    /// What it does, in a sentence; what is swept over is left out.
    pub description: String,
    /// Requests outstanding for each worker, where the load has such a number and it is not swept over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// When requests are made.
    pub arrival: ArrivalKind,
}

/// When a load makes its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// Each as soon as another has completed.
    #[default]
    Closed,
    /// At times of their own, whether others have completed or not.
    Open,
    /// At a rate that is searched for.
    Search,
}
