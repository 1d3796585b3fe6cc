//! Activity of each block device: requests, bytes, latencies and busy time. From `/proc/diskstats`
//! (Documentation/admin-guide/iostats.rst). Devices that never had a request are omitted.
//!
//! The rule: busy means that a request was outstanding, not that the device was saturated. A device that serves many
//! requests concurrently is 100 % busy long before its limit.

use std::time::Duration;

use super::figures::{INSTANCES_MAX, Malformed, Rows, Sink, Texts, advance, numbers, pairs};
use super::{Metric, Probe, headline, metric_of};

pub struct Disk;

/// Kernels since 2.6 report reads, merged, sectors, ms; the same for writes; in flight, busy ms, weighted ms. Later
/// kernels add discards (4.18) and flushes (5.5); on earlier ones these are zero.
const FIELDS: usize = 17;
const FIELDS_MIN: usize = 11;
/// Always 512, whatever the device's block size.
const SECTOR_BYTES: f64 = 512.0;

impl Probe for Disk {
    const NAME: &'static str = "disk";
    const HELP: &'static str = "requests, bytes, times and queue of each block device";
    const FILES: &'static [&'static str] = &["/proc/diskstats"];
    const METRICS: &'static [Metric] = &[
        headline("reads_per_s", "completed reads"),
        headline("writes_per_s", "completed writes"),
        headline("read_bytes_per_s", "bytes read"),
        headline("written_bytes_per_s", "bytes written"),
        headline("busy_share", "share of time with outstanding requests"),
        headline("queue_mean", "requests outstanding, mean over time"),
        metric_of(
            "in_flight",
            "requests outstanding when the counters were read",
        ),
        metric_of(
            "read_time_mean_us",
            "from queueing to completion, in the kernel",
        ),
        metric_of(
            "write_time_mean_us",
            "from queueing to completion, in the kernel",
        ),
        metric_of("merged_per_s", "requests merged into another"),
        metric_of("discards_per_s", "completed discards"),
        metric_of("flushes_per_s", "completed cache flushes"),
    ];
    type Reading = Rows<FIELDS>;

    fn parse(texts: &Texts<'_>) -> Result<Rows<FIELDS>, Malformed> {
        let mut rows = Rows::new();
        for line in texts
            .need(0)?
            .lines()
            .filter(|line| !line.trim().is_empty())
        {
            let mut fields = line.split_ascii_whitespace();
            let name = fields
                .nth(2)
                .ok_or_else(|| Malformed::new("no name", line))?;
            let counters: [u64; FIELDS_MIN] = numbers(fields.clone(), line)?;
            let mut row = [0; FIELDS];
            row[..FIELDS_MIN].copy_from_slice(&counters);
            for (value, field) in row[FIELDS_MIN..].iter_mut().zip(fields.skip(FIELDS_MIN)) {
                *value = field
                    .parse()
                    .map_err(|_| Malformed::new("not a number", line))?;
            }
            if row.iter().any(|counter| *counter > 0) && rows.len() < INSTANCES_MAX {
                rows.push((name.into(), row));
            }
        }
        Ok(rows)
    }

    fn figures(before: &Rows<FIELDS>, now: &Rows<FIELDS>, elapsed: Duration, sink: &mut Sink<'_>) {
        for (name, before, now) in pairs(before, now) {
            let mut rate = |metric, field: usize, unit| {
                sink.rate_of(name, metric, (before[field], now[field]), unit, elapsed);
            };
            rate("reads_per_s", 0, 1.0);
            rate("writes_per_s", 4, 1.0);
            rate("read_bytes_per_s", 2, SECTOR_BYTES);
            rate("written_bytes_per_s", 6, SECTOR_BYTES);
            // Milliseconds per second, as a share and as a mean.
            rate("busy_share", 9, 1e-3);
            rate("queue_mean", 10, 1e-3);
            rate("discards_per_s", 11, 1.0);
            rate("flushes_per_s", 15, 1.0);
            let merged = advance(before[1], now[1]).zip(advance(before[5], now[5]));
            if let Some((reads, writes)) = merged {
                sink.put_of(
                    name,
                    "merged_per_s",
                    (reads + writes) as f64 / elapsed.as_secs_f64(),
                );
            }
            sink.put_of(name, "in_flight", now[8] as f64);
            for (metric, count, millis) in
                [("read_time_mean_us", 0, 3), ("write_time_mean_us", 4, 7)]
            {
                let count = advance(before[count], now[count]).filter(|count| *count > 0);
                if let Some((count, millis)) = count.zip(advance(before[millis], now[millis])) {
                    sink.put_of(name, metric, millis as f64 * 1e3 / count as f64);
                }
            }
        }
    }
}
