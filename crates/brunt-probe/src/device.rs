//! Figures that parts of devices report about themselves: caches, arrays, faults, retries. The kernel doesn't know
//! them: the code that owns the devices reads them, at the same interval as all other probes, and names the figures as
//! in this table.
//!
//! The rule: a figure's name ends with its unit, and a figure used by two kinds of parts means the same in both.

use super::{DeviceEntry, Metric, headline, metric_of};

/// The entry for [`super::DEVICE`].
pub const ENTRY: DeviceEntry = DeviceEntry {
    name: "device",
    help: "what parts of devices report about themselves: caches (stics), arrays, faults, retries",
    metrics: METRICS,
};

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    headline("dirty_bytes", "stics: data written but not yet on the device"),
    metric_of("log_bytes", "stics: part of the log, including headers, that has not reached the device"),
    headline("log_room_bytes", "stics: free part of the log"),
    headline("destage_lag_ms", "stics: age of the oldest record of the log that has not reached the device"),
    headline("hit_share", "stics: share of the bytes read that came from memory or the log; none if nothing was read"),
    headline("logged_bytes_per_s", "stics: data written to the log, without headers"),
    headline("destaged_bytes_per_s", "stics: data written to the device"),
    metric_of("destage_retries_per_s", "stics: batches that the device did not accept and that are retried"),
    headline("waits_per_s", "stics: writes that had to wait for space in the log"),
    metric_of("waiting_requests", "stics: writes waiting for space in the log"),
    headline("missing_members", "array: members that have failed or are being rebuilt"),
    metric_of("rebuilt_share", "array: rebuilt share of the member that is being rebuilt; none otherwise"),
    headline("degraded_requests_per_s", "array: requests served without the member responsible for them"),
    metric_of("read_errors_per_s", "array: read errors of members, corrected from the others"),
    metric_of("armed_faults", "fault: faults in place"),
    headline("injected_per_s", "fault: requests affected by a fault"),
    headline("retries_per_s", "retry: requests sent again"),
    metric_of("failures_per_s", "retry: failures reported to the caller"),
];
