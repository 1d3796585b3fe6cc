//! The cgroups of the process that runs the experiment: their limits, and how long they throttled it. Reads the files
//! of either version ([`Cgroups`](super::limits::Cgroups)).

use std::time::Duration;

use super::figures::{Malformed, Sink, Texts, named};
use super::{Metric, Probe, headline, metric_of};

pub struct ControlGroup;

/// The usual mount point of the hierarchies, which identifies the source of this probe; the source finds the actual
/// one.
pub const FOLDER: &str = "/sys/fs/cgroup";

/// A line of the text and its metric.
const GAUGES: [(&str, &str); 5] = [
    ("memory_max", "memory_max_bytes"),
    ("memory_left", "memory_left_bytes"),
    ("oom_kills", "killed_tasks"),
    ("pids_max", "allowed_tasks"),
    ("pids", "existing_tasks"),
];

pub struct Reading {
    throttled_nanos: Option<u64>,
    cpu_milli: Option<u64>,
    gauges: [Option<u64>; GAUGES.len()],
}

impl Probe for ControlGroup {
    const NAME: &'static str = "cgroup";
    const HELP: &'static str =
        "limits of this process's control groups, and how long they throttled it";
    const FILES: &'static [&'static str] = &[FOLDER];
    const METRICS: &'static [Metric] = &[
        headline(
            "throttled_share",
            "share of time in which the group was throttled because its CPU quota was used up",
        ),
        headline(
            "quota_cpus",
            "CPU time that the quota allows, as a number of CPUs",
        ),
        metric_of("memory_max_bytes", "memory limit"),
        metric_of(
            "memory_left_bytes",
            "memory left below the limit: free, or holding file pages that can be dropped",
        ),
        metric_of(
            "killed_tasks",
            "processes of the group killed because memory ran out, since the group was created",
        ),
        metric_of("allowed_tasks", "limit of processes and threads"),
        metric_of("existing_tasks", "processes and threads"),
    ];
    type Reading = Reading;

    fn parse(texts: &Texts<'_>) -> Result<Reading, Malformed> {
        let text = texts.get(0).unwrap_or_default();
        let mut gauges = [None; GAUGES.len()];
        for (gauge, (line, _)) in gauges.iter_mut().zip(GAUGES) {
            *gauge = named(text, line)?;
        }
        Ok(Reading {
            throttled_nanos: named(text, "throttled_nanos")?,
            cpu_milli: named(text, "cpu_milli")?,
            gauges,
        })
    }

    fn figures(before: &Reading, now: &Reading, elapsed: Duration, sink: &mut Sink<'_>) {
        if let Some(counters) = before.throttled_nanos.zip(now.throttled_nanos) {
            sink.rate("throttled_share", counters, 1e-9, elapsed);
        }
        if let Some(milli) = now.cpu_milli {
            sink.put("quota_cpus", milli as f64 / 1000.0);
        }
        for (gauge, (_, metric)) in now.gauges.iter().zip(GAUGES) {
            if let Some(value) = gauge {
                sink.put(metric, *value as f64);
            }
        }
    }
}
