//! Describes a workload in one human-readable line; shown before a run and on the results pages.
//!
//! The rule: descriptions in words are composed only here, from those that the parts of a workload provide.

use brunt_core::units::format_grouped;

use super::patterns::percent;
use super::stride::Stride;
use super::workload::{Arrival, Workload};
use crate::nfs::settings::NfsSettings;

impl Workload {
    /// Returns a description such as `4KiB, 70 % reads, random, 8 outstanding, closed loop`. It omits the axes in
    /// `swept`, which differ from point to point.
    pub fn describe(&self, swept: &[&str]) -> String {
        let stays = |axis: &str| !swept.contains(&axis);
        let mut words = match &self.nfs {
            Some(nfs) => self.nfs_words(nfs, &stays),
            None => self.block_words(&stays),
        };
        if stays("queue_depth") {
            words.push(format!("{} outstanding", self.queue_depth));
        }
        if stays("workers") && self.workers > 1 {
            let each = if self.hosts.len() > 1 {
                " on each host"
            } else {
                ""
            };
            words.push(format!("{} workers{each}", self.workers));
        }
        words.push(self.arrival.describe(stays("rate")));
        if let Some(burst) = self.burst {
            words.push(format!(
                "bursts of {} with pauses of {}",
                burst.requests, burst.interval
            ));
        }
        if let Some(ramp) = self.ramp_up {
            let time = (!ramp.time.0.is_zero()).then(|| ramp.time.to_string());
            let requests = (ramp.requests > 0).then(|| format!("{} requests", ramp.requests));
            let both: Vec<String> = time.into_iter().chain(requests).collect();
            if !both.is_empty() {
                words.push(format!("after a ramp-up of {}", both.join(" and ")));
            }
        }
        if let Some(engine) = self.engine {
            words.push(format!("engine {}", engine.name()));
        }
        if !self.hosts.is_empty() {
            words.push(format!("on {}", self.hosts.join(" + ")));
        }
        words.join(", ")
    }

    /// Describes the block device requests.
    fn block_words(&self, stays: &dyn Fn(&str) -> bool) -> Vec<String> {
        let mut words = Vec::new();
        if stays("block_size") {
            words.push(self.blocks.describe());
        }
        if stays("read") {
            words.push(match self.read {
                1.0 => "reads".into(),
                0.0 => "writes".into(),
                share => format!("{} reads", percent(share)),
            });
        }
        for (share, what) in [(self.trim, "trims"), (self.write_zeroes, "zeroes")] {
            if share > 0.0 {
                words.push(format!("{} {what}", percent(share)));
            }
        }
        if self.flush_every > 0 {
            words.push(format!("a flush after {} changes", self.flush_every));
        }
        if self.end_fsync {
            words.push("a flush at the end".into());
        }
        if stays("sequential") {
            words.push(match self.sequential {
                0.0 => "random".into(),
                1.0 => self.sequential_words(),
                share => format!("{} sequential", percent(share)),
            });
        }
        if self.sequential < 1.0 {
            words.extend(self.distribution.describe());
            words.extend(self.align.map(|align| format!("aligned to {align}")));
        }
        if self.writes_are_stable() {
            words.push("each write stable (dsync)".into());
        }
        words
    }

    /// Describes the NFS calls.
    fn nfs_words(&self, nfs: &NfsSettings, stays: &dyn Fn(&str) -> bool) -> Vec<String> {
        let mut words = vec![nfs.describe()];
        if stays("block_size") && nfs.mix.read + nfs.mix.write > 0.0 {
            words.push(format!("transfers of {}", self.blocks.describe()));
        }
        words.extend(self.distribution.describe());
        words
    }

    fn sequential_words(&self) -> String {
        let streams = if self.sequential_per_kind {
            "each kind sequential"
        } else {
            "sequential"
        };
        match self.stride {
            Some(Stride {
                back: Some(back), ..
            }) => format!("{streams}, {back} back"),
            Some(Stride {
                run: Some(run),
                skip: Some(skip),
                ..
            }) => {
                format!("{streams}, {run} in a row, then {skip} skipped")
            }
            Some(Stride {
                skip: Some(skip), ..
            }) => format!("{streams}, {skip} skipped"),
            Some(Stride { .. }) | None => streams.into(),
        }
    }
}

impl Arrival {
    fn describe(&self, with_rate: bool) -> String {
        match *self {
            Arrival::Closed {} => "closed loop".into(),
            Arrival::Open { process, .. } if !with_rate => {
                format!("open loop, {}", process.info().manner)
            }
            Arrival::Open { rate, process, .. } => {
                format!(
                    "open loop, {} requests/s, {}",
                    format_grouped(rate),
                    process.info().manner
                )
            }
            Arrival::Search {
                percentile, limit, ..
            } => {
                format!("highest rate with p{percentile} under {limit}")
            }
        }
    }
}
