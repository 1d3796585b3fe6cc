//! Probe results of a run as plain data: filled by the prober, stored in `summary.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Probe results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeRecord {
    /// Sampling interval.
    pub interval_s: f64,
    /// Samples taken per host.
    pub samples: u64,
    /// Samples that were late by more than a tenth of the interval.
    pub late: u64,
    /// Samples skipped because the previous sample took too long.
    pub missed: u64,
    /// Counters that went backwards; each invalidates one value.
    pub resets: u64,
    /// Kernel files that could not be parsed.
    pub unreadable: u64,
    /// The probes' own cost: CPU time per sample.
    pub cpu_us_per_sample: f64,
    /// The probes' own cost as a share of one CPU.
    pub cpu_share: f64,
    /// Metrics that are missing, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// Means over the measured time, by host, then by `probe.metric` or `probe.instance.metric`. Idle disks and
    /// interfaces are omitted.
    pub hosts: BTreeMap<String, BTreeMap<String, f64>>,
    /// Samples from other hosts, by host name. All other counts in this record are those of the machine that ran the
    /// experiment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub elsewhere: BTreeMap<String, HostProbes>,
}

/// Samples of another host in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostProbes {
    /// Samples received.
    pub samples: u64,
    /// Samples that were late by more than a tenth of the interval.
    pub late: u64,
    /// Samples that were skipped because the previous one took too long.
    pub missed: u64,
    /// Samples that the host took and dropped, because too many others were waiting to be read.
    pub dropped: u64,
    /// Counters that went backwards; each invalidates one value.
    pub resets: u64,
    /// Kernel files that could not be parsed.
    pub unreadable: u64,
    /// The probes' own cost on that host: CPU time per sample.
    pub cpu_us_per_sample: f64,
    /// The probes' own cost on that host as a share of one CPU.
    pub cpu_share: f64,
    /// Uncertainty of the samples' times, in either direction.
    pub clock_error_us: Option<f64>,
    /// Bytes sent to the host's agent during the run, for any purpose.
    pub sent_bytes: u64,
    /// Bytes received from the host's agent during the run.
    pub received_bytes: u64,
    /// How the host was lost, so that its samples end before the run does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<String>,
}

impl HostProbes {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &HostProbes) {
        self.samples += other.samples;
        self.late += other.late;
        self.missed += other.missed;
        self.dropped += other.dropped;
        self.resets += other.resets;
        self.unreadable += other.unreadable;
    }
}
