//! Checks of a workload: first of the description alone, then against its device.
//!
//! The rule: every mistake is reported with its key and with what would be correct.

use brunt_block::DeviceInfo;
use brunt_core::Size;

use super::{Arrival, QUEUE_DEPTH_MAX, StopCondition, WORKERS_MAX, Workload};
use crate::load::{INTERVAL_MAX, INTERVAL_MIN, WorkloadError, wrong};

/// Tolerance for the sum of shares: decimal fractions are inexact in binary.
const SHARES_SLACK: f64 = 1e-9;

impl Workload {
    /// Checks the workload without regard to a device.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub fn check(&self) -> Result<(), WorkloadError> {
        self.check_replay()?;
        self.check_nfs()?;
        let share = |key, value: f64| match value {
            0.0..=1.0 => Ok(()),
            _ => wrong(
                key,
                format!("{value} is not a share; write a number from 0 to 1"),
            ),
        };
        share("read", self.read)?;
        share("trim", self.trim)?;
        share("write_zeroes", self.write_zeroes)?;
        share("sequential", self.sequential)?;
        self.check_kinds()?;
        share("data.compressible", self.data.compressible)?;
        share("data.dedupable", self.data.dedupable)?;
        self.check_blocks()?;
        self.distribution.check()?;
        self.stride.map_or(Ok(()), |stride| stride.check(self))?;
        if !(1..=QUEUE_DEPTH_MAX).contains(&self.queue_depth) {
            wrong(
                "queue_depth",
                format!("{} is outside 1 to {QUEUE_DEPTH_MAX}", self.queue_depth),
            )?;
        }
        if !(1..=self.queue_depth).contains(&self.reap_batch) {
            let depth = self.queue_depth;
            wrong(
                "reap_batch",
                format!(
                    "{} is outside 1 to the queue depth, {depth}",
                    self.reap_batch
                ),
            )?;
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            wrong(
                "workers",
                format!("{} is outside 1 to {WORKERS_MAX}", self.workers),
            )?;
        }
        self.check_other_hosts()?;
        self.check_arrival()?;
        self.depth_search
            .map_or(Ok(()), |search| search.check(self))?;
        if self.burst.is_some_and(|burst| burst.requests == 0) {
            wrong("burst.requests", "a burst has at least one request")?;
        }
        let interval = self.interval.0;
        if !interval.is_zero() && !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            wrong(
                "interval",
                format!("{} is outside 10ms to 1h, and not 0", self.interval),
            )?;
        }
        self.check_stop()
    }

    fn check_kinds(&self) -> Result<(), WorkloadError> {
        let all = self.read + self.trim + self.write_zeroes;
        if all > 1.0 + SHARES_SLACK {
            let what = format!(
                "read, trim and write_zeroes sum to {all}; set read to at most {}",
                (1.0 - self.trim - self.write_zeroes).max(0.0)
            );
            wrong("read", what)?;
        }
        if self.read == 0.0 && !self.writes() && self.stop.bytes.is_some() {
            wrong(
                "stop.bytes",
                "no request transfers data, so this limit would never be reached; use requests or time",
            )?;
        }
        for (key, flushes) in [
            ("fsync", self.flush_every > 0),
            ("end_fsync", self.end_fsync),
        ] {
            if flushes && !self.changes_data() {
                wrong(key, "there are no writes to flush; set read below 1")?;
            }
        }
        let journals = self
            .verify
            .as_ref()
            .is_some_and(|verify| verify.journal.is_some());
        if journals && self.trim + self.write_zeroes > 0.0 {
            let key = if self.trim > 0.0 {
                "trim"
            } else {
                "write_zeroes"
            };
            wrong(
                key,
                "a journal contains only acknowledged writes and flushes, so brunt verify would mistake zeros for \
                 lost writes; omit verify.journal or this key",
            )?;
        }
        Ok(())
    }

    fn check_blocks(&self) -> Result<(), WorkloadError> {
        self.blocks.check()?;
        match self.align {
            Some(align) if align.0 < 512 || !align.0.is_multiple_of(512) => {
                wrong("align", format!("{align} is not a multiple of 512 bytes"))
            }
            _ => Ok(()),
        }
    }

    fn check_arrival(&self) -> Result<(), WorkloadError> {
        let rate_ok = |rate: f64| rate > 0.0 && rate <= 1e9;
        match self.arrival {
            Arrival::Closed {} => Ok(()),
            Arrival::Open { rate, .. } if rate_ok(rate) => Ok(()),
            Arrival::Open { rate, .. } => wrong(
                "arrival.rate",
                format!("{rate} is out of range (above 0, at most 1e9 per second)"),
            ),
            Arrival::Search {
                percentile,
                limit,
                rate,
                tolerance,
                ..
            } => {
                if !(percentile > 0.0 && percentile < 100.0) {
                    wrong(
                        "arrival.percentile",
                        format!("{percentile} is not between 0 and 100"),
                    )?;
                }
                if limit.0.is_zero() {
                    wrong(
                        "arrival.limit",
                        "a latency above 0 is needed, such as \"5ms\"",
                    )?;
                }
                if !rate_ok(rate) {
                    wrong(
                        "arrival.rate",
                        format!("{rate} is out of range (above 0, at most 1e9 per second)"),
                    )?;
                }
                if !(0.001..=0.5).contains(&tolerance) {
                    wrong(
                        "arrival.tolerance",
                        format!("{tolerance} is outside 0.001 to 0.5"),
                    )?;
                }
                if self.stop.time.is_none() {
                    wrong(
                        "stop.time",
                        "a rate search needs the length of one trial, such as \"5s\"",
                    )?;
                }
                Ok(())
            }
        }
    }

    fn check_stop(&self) -> Result<(), WorkloadError> {
        let StopCondition {
            requests,
            bytes,
            passes,
            time,
            steady,
        } = self.stop;
        if self.stop == StopCondition::default() && self.trace.is_none() {
            let ends = "requests, bytes, passes, time or steady";
            wrong(
                "stop",
                format!("set when to stop: {ends}, such as {{ time = \"30s\" }}"),
            )?;
        }
        if requests == Some(0)
            || bytes == Some(Size(0))
            || passes == Some(0)
            || time.is_some_and(|time| time.0.is_zero())
        {
            wrong("stop", "nothing would be measured; write more than 0")?;
        }
        steady.map_or(Ok(()), |steady| steady.check(self.interval.0))
    }

    /// Checks the workload against a device; returns the byte range that it uses there.
    ///
    /// # Errors
    /// The error names the first key that doesn't fit the device.
    pub fn check_device(&self, info: &DeviceInfo) -> Result<(u64, u64), WorkloadError> {
        self.check()?;
        let block = u64::from(info.block_bytes);
        let name = &info.name;
        for size in self.blocks.corners() {
            if !size.0.is_multiple_of(block) {
                wrong(
                    "blocks",
                    format!("{size} is not a multiple of the {block}-byte blocks of {name}"),
                )?;
            }
            if size.0 > u64::from(info.transfer_bytes_max) {
                let max = Size(u64::from(info.transfer_bytes_max));
                wrong(
                    "blocks",
                    format!("{size} is over {max}, the longest request that {name} accepts"),
                )?;
            }
        }
        let start = self.region.start.0;
        if !start.is_multiple_of(block) {
            wrong(
                "region.start",
                format!(
                    "{} is not a multiple of the {block}-byte blocks",
                    self.region.start
                ),
            )?;
        }
        self.stride
            .map_or(Ok(()), |stride| stride.check_blocks(block, name))?;
        let room = info.size_bytes.saturating_sub(start);
        let length = self.region.length.map_or(room, |length| length.0);
        if start >= info.size_bytes || length > room {
            let size = Size(info.size_bytes);
            wrong(
                "region",
                format!(
                    "{} from offset {} exceeds {name} of {size}",
                    Size(length),
                    Size(start)
                ),
            )?;
        }
        let parts = if self.workers > 1 && (self.sequential > 0.0 || self.verify.is_some()) {
            self.workers
        } else {
            1
        };
        let longest = self
            .block_bytes_max()
            .next_multiple_of(self.alignment(info));
        if length / u64::from(parts) < longest {
            let what = format!(
                "{} for each of {parts} worker(s) is less than one block",
                Size(length / u64::from(parts))
            );
            wrong("region", what)?;
        }
        if info.read_only && self.changes_data() {
            wrong("read", format!("{name} is read-only; write 1"))?;
        }
        if self.trim > 0.0 && !info.unmap {
            wrong("trim", format!("{name} cannot unmap blocks; omit this key"))?;
        }
        Ok((start, length))
    }
}
