//! What the probes saw of a run, as plain data: filled by the prober, kept in `summary.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the probes saw of one run, for `summary.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeRecord {
    /// Samples that were meant to be taken this often.
    pub interval_s: f64,
    /// Samples that were taken of each host.
    pub samples: u64,
    /// Of those, how many came late by more than a tenth of the interval.
    pub late: u64,
    /// Samples that were not taken, because the one before took so long to come.
    pub missed: u64,
    /// Counters that went back; each cost one figure.
    pub resets: u64,
    /// Texts of the kernel that could not be understood.
    pub unreadable: u64,
    /// The probes' own cost: processor time of the prober for each sample.
    pub cpu_us_per_sample: f64,
    /// The same as a share of one CPU.
    pub cpu_share: f64,
    /// What is not among the figures, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// By host, then by `probe.metric` or `probe.instance.metric`: means over the time that was
    /// measured. Disks and interfaces where nothing happened are left out.
    pub hosts: BTreeMap<String, BTreeMap<String, f64>>,
}
