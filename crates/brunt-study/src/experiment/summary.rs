//! An experiment in the plain words of its results: what `summary.json` and pages say of targets and workloads.
//! Called once, when a study begins.
//!
//! The rule: no secrets leave through here.

use std::collections::BTreeMap;

use brunt_core::units::{format_grouped, format_size};
use brunt_load::Workload;
use brunt_load::block::workload::{Arrival, Process};
use brunt_load::file::{FileSystemLoad, Fsync};
use brunt_result::experiment::{ArrivalKind, ExperimentSummary, TargetKind, TargetSummary, WorkloadSummary};

use super::{Experiment, Serve, Sweep, Target, without_secrets};

impl Experiment {
    /// What results say of it.
    pub fn summary(&self) -> ExperimentSummary {
        let devices = self.targets.iter().map(|(name, target)| (name.clone(), device(target)));
        let directories = self.filesystems.iter().map(|(name, load)| (name.clone(), directory(load)));
        let blocks =
            self.workloads.iter().map(|(name, workload)| (name.clone(), block(workload, &self.sweep)));
        let mut workloads: BTreeMap<String, WorkloadSummary> = blocks.collect();
        for load in self.filesystems.values() {
            for phase in &load.phases {
                let phase = phase.name().to_string();
                let description = format!("{}, {}", phase.replace('-', " "), files(load));
                workloads.entry(phase).or_insert_with(|| WorkloadSummary {
                    kind: "file".into(),
                    description,
                    queue_depth: None,
                    arrival: ArrivalKind::Closed,
                });
            }
        }
        ExperimentSummary {
            name: self.name.clone(),
            description: self.description.clone(),
            seed: self.seed,
            repetitions: self.repetitions,
            targets: devices.chain(directories).collect(),
            workloads,
            toml: without_secrets(&self.clone().without_secrets().written_out()),
        }
    }
}

fn device(target: &Target) -> TargetSummary {
    let is_network = target.serve.as_ref().is_some_and(Serve::is_sink) || target.url.starts_with("tcp://");
    TargetSummary {
        kind: if is_network { TargetKind::Network } else { TargetKind::Device },
        place: without_secrets(target.place()),
        served: target.serve.is_some(),
        host: target.host.clone(),
    }
}

fn directory(load: &FileSystemLoad) -> TargetSummary {
    TargetSummary {
        kind: TargetKind::Directory,
        place: load.directory.display().to_string(),
        ..TargetSummary::default()
    }
}

fn files(load: &FileSystemLoad) -> &'static str {
    match load.fsync {
        Fsync::None => "without fsync",
        Fsync::End => "fsync at the end",
        Fsync::Each => "fsync after every write",
    }
}

fn block(workload: &Workload, sweep: &Sweep) -> WorkloadSummary {
    WorkloadSummary {
        kind: "block".into(),
        description: sentence(workload, sweep),
        queue_depth: sweep.queue_depth.is_empty().then_some(workload.queue_depth),
        arrival: match workload.arrival {
            Arrival::Closed {} => ArrivalKind::Closed,
            Arrival::Open { .. } => ArrivalKind::Open,
            Arrival::Search { .. } => ArrivalKind::Search,
        },
    }
}

/// A workload in a line; what is swept over is left out.
fn sentence(workload: &Workload, sweep: &Sweep) -> String {
    let mut words = Vec::new();
    if sweep.block_size.is_empty() {
        let weights: f64 = workload.blocks.iter().map(|block| block.weight).sum();
        let blocks = workload.blocks.iter().map(|block| match workload.blocks.len() {
            1 => format_size(block.size.0),
            _ => format!("{} ({})", format_size(block.size.0), percent(block.weight / weights)),
        });
        words.push(blocks.collect::<Vec<String>>().join(" + "));
    }
    if sweep.read.is_empty() {
        words.push(match workload.read {
            1.0 => "reads".into(),
            0.0 => "writes".into(),
            share => format!("{} reads", percent(share)),
        });
    }
    for (share, what) in [(workload.trim, "trims"), (workload.write_zeroes, "zeroes")] {
        if share > 0.0 {
            words.push(format!("{} {what}", percent(share)));
        }
    }
    if workload.flush_every > 0 {
        words.push(format!("a flush after {} changes", workload.flush_every));
    }
    if sweep.sequential.is_empty() {
        words.push(match workload.sequential {
            0.0 => "random".into(),
            1.0 => "sequential".into(),
            share => format!("{} sequential", percent(share)),
        });
    }
    if sweep.queue_depth.is_empty() {
        words.push(format!("{} outstanding", workload.queue_depth));
    }
    if sweep.workers.is_empty() && workload.workers > 1 {
        words.push(format!("{} workers", workload.workers));
    }
    let law = |process: Process| match process {
        Process::Constant => "evenly",
        Process::Poisson => "Poisson",
    };
    words.push(match workload.arrival {
        Arrival::Closed {} => "closed loop".into(),
        Arrival::Open { process, .. } if !sweep.rate.is_empty() => format!("open loop, {}", law(process)),
        Arrival::Open { rate, process, .. } => {
            format!("open loop, {} requests/s, {}", format_grouped(rate), law(process))
        }
        Arrival::Search { percentile, limit, .. } => {
            format!("highest rate with p{percentile} under {limit}")
        }
    });
    words.join(", ")
}

/// With one decimal where that says something.
fn percent(share: f64) -> String {
    let percent = (share * 1000.0).round() / 10.0;
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_and_targets_describe_themselves_without_secrets() {
        let text = r#"
name = "all kinds"
[targets.disk]
url = "iscsi://me%hush@host/iqn/0"
[targets.line]
serve = "tcp"
[workloads.mixed]
read = 0.75
blocks = [{ size = "4k", weight = 3.0 }, { size = "64k" }]
queue_depth = 8
[workloads.paced]
arrival = { kind = "open", rate = 1500 }
[filesystems.home]
directory = "/home"
phases = ["seeks"]
"#;
        let text = text.replace(
            "[workloads.paced]",
            "stop = { requests = 1 }\n[workloads.paced]\nstop = { requests = 1 }",
        );
        let summary = Experiment::parse("x.toml", &text).unwrap().summary();
        let kinds: Vec<TargetKind> = summary.targets.values().map(|target| target.kind).collect();
        assert_eq!(kinds, [TargetKind::Device, TargetKind::Directory, TargetKind::Network]);
        assert_eq!(summary.targets["disk"].place, "iscsi://me%***@host/iqn/0");
        assert!(!summary.toml.contains("hush") && summary.toml.contains("queue_depth = 8"));
        let mixed = &summary.workloads["mixed"];
        assert_eq!(
            mixed.description,
            "4KiB (75 %) + 64KiB (25 %), 75 % reads, random, 8 outstanding, closed loop"
        );
        assert_eq!((mixed.queue_depth, mixed.arrival), (Some(8), ArrivalKind::Closed));
        let paced = &summary.workloads["paced"];
        assert!(paced.description.ends_with("open loop, 1,500 requests/s, Poisson"), "{}", paced.description);
        assert_eq!((summary.workloads["seeks"].kind.as_str(), paced.arrival), ("file", ArrivalKind::Open));
    }
}
