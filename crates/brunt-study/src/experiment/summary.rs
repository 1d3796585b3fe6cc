//! Describes an experiment for its results: targets and workloads as shown in `summary.json` and on pages.
//! Called once, at the start of a study.
//!
//! The rule: secrets are never included.

use std::collections::BTreeMap;

use brunt_block::Congestion;
use brunt_core::device_url::without_secrets;
use brunt_load::load::Pace;
use brunt_load::together::{self, load_of};
use brunt_load::{LoadContext, LoadEntry, Workload};
use brunt_result::experiment::{
    ArrivalKind, CongestionSummary, ExperimentSummary, TargetKind, TargetSummary, WorkloadSummary,
};

use crate::host::HostName;

use super::{Experiment, Sweep, TCP_SCHEMES, Target, toml_without_secrets};

impl Experiment {
    /// Describes the experiment for its results.
    pub fn summary(&self) -> ExperimentSummary {
        let devices = self
            .targets
            .iter()
            .map(|(name, target)| (name.clone(), device(target)));
        let directories = self
            .workloads
            .own()
            .map(|(name, entry)| (name.clone(), own_target(entry.as_ref())));
        let blocks = self
            .workloads
            .on_targets()
            .map(|(name, workload)| (name.clone(), workload_summary(workload, &self.sweep)));
        let mut workloads: BTreeMap<String, WorkloadSummary> = blocks.collect();
        self.add_together(&mut workloads);
        for (_, entry) in self.workloads.own() {
            for (name, load) in entry.loads() {
                workloads.entry(name).or_insert_with(|| WorkloadSummary {
                    kind: load.kind().into(),
                    description: load.describe(),
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
            percentiles: self.chosen_percentiles().to_vec(),
            targets: devices
                .chain(directories)
                .chain(self.several_targets())
                .collect(),
            workloads,
            congestion: self.congestion_summary(),
            toml: toml_without_secrets(&self.written_out()),
        }
    }

    /// Adds groups of simultaneous jobs, and each of these jobs; removes workloads that run only in groups.
    fn add_together(&self, workloads: &mut BTreeMap<String, WorkloadSummary>) {
        for (name, group) in self.workloads.groups() {
            let mut each = Vec::new();
            for job in &group.jobs {
                let of = workload_summary(&self.workloads[&job.workload], &self.sweep);
                let delay = job
                    .start_delay
                    .map_or(String::new(), |delay| format!(", {delay} after the start"));
                each.push(format!(
                    "{} on {} ({}{delay})",
                    job.name(),
                    job.target,
                    of.description
                ));
                workloads.insert(format!("{name}/{}", job.name()), of);
            }
            let enders: Vec<&str> = group
                .jobs
                .iter()
                .filter(|job| job.ends_run)
                .map(|job| job.name())
                .collect();
            let ends = match enders.len() {
                _ if group.exit_all => "; ends with the first".to_string(),
                0 => String::new(),
                _ => format!("; ends with {}", enders.join(" or ")),
            };
            let group = WorkloadSummary {
                kind: together::KIND.into(),
                description: format!("at once: {}{ends}", each.join(" + ")),
                queue_depth: None,
                arrival: ArrivalKind::Several,
            };
            workloads.insert(name.clone(), group);
        }
        let alone = |name: &String| {
            self.targets
                .keys()
                .any(|target| self.runs_alone(target, name))
        };
        let names = self.workloads.on_targets().map(|(name, _)| name);
        for name in names.filter(|name| !alone(name)) {
            workloads.remove(name);
        }
    }

    /// The combined targets of groups whose jobs run on several targets.
    fn several_targets(&self) -> Vec<(String, TargetSummary)> {
        let targets = self.workloads.groups().map(|(_, group)| group.targets());
        let several = targets.filter(|targets| targets.len() > 1).map(|targets| {
            let places: Vec<String> = targets
                .iter()
                .map(|name| device(&self.targets[name]).place)
                .collect();
            (
                targets.join("+"),
                TargetSummary {
                    place: places.join(", "),
                    ..TargetSummary::default()
                },
            )
        });
        several.collect()
    }

    /// The congestion control of an experiment's network connections, if it has any. If none is set, it is the
    /// kernel's default, also in a lab.
    fn congestion_summary(&self) -> Option<CongestionSummary> {
        let by_network = |target: &Target| {
            let mut schemes = TCP_SCHEMES.iter();
            target.serve.is_some() || schemes.any(|scheme| target.url.contains(scheme))
        };
        if self.lab.is_none() && !self.targets.values().any(by_network) {
            return None;
        }
        let algorithm = self
            .congestion
            .or_else(|| Congestion::of_kernel().ok())?
            .to_string();
        Some(CongestionSummary {
            algorithm,
            chosen: self.congestion.is_some(),
        })
    }
}

fn device(target: &Target) -> TargetSummary {
    let is_network =
        target.role().is_some_and(|role| role.is_network()) || target.url.starts_with("tcp://");
    TargetSummary {
        kind: if is_network {
            TargetKind::Network
        } else {
            TargetKind::Device
        },
        place: without_secrets(target.place()),
        served: target.serve.is_some(),
        host: target.host.as_ref().map(HostName::to_string),
        facts: Vec::new(),
    }
}

/// What a load with its own location runs on, in place of a target.
fn own_target(entry: &dyn LoadEntry) -> TargetSummary {
    TargetSummary {
        kind: match entry.directory() {
            Some(_) => TargetKind::Directory,
            None => TargetKind::Device,
        },
        place: entry.place(),
        ..TargetSummary::default()
    }
}

fn workload_summary(workload: &Workload, sweep: &Sweep) -> WorkloadSummary {
    let load = load_of(workload.clone(), &LoadContext::default());
    WorkloadSummary {
        kind: load.kind().into(),
        description: match workload.trace {
            Some(_) => load.describe(),
            None => workload.describe(&sweep.swept()),
        },
        queue_depth: sweep.queue_depth.is_empty().then_some(workload.queue_depth),
        arrival: match load.info().pace {
            Pace::Closed => ArrivalKind::Closed,
            Pace::Open { .. } => ArrivalKind::Open,
            Pace::Search(_) => ArrivalKind::Search,
        },
    }
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
        assert_eq!(
            kinds,
            [
                TargetKind::Device,
                TargetKind::Directory,
                TargetKind::Network
            ]
        );
        assert_eq!(summary.targets["disk"].place, "iscsi://me%***@host/iqn/0");
        assert!(!summary.toml.contains("hush") && summary.toml.contains("queue_depth = 8"));
        let mixed = &summary.workloads["mixed"];
        assert_eq!(
            mixed.description,
            "4KiB (75 %) + 64KiB (25 %), 75 % reads, random, 8 outstanding, closed loop"
        );
        assert_eq!(
            (mixed.queue_depth, mixed.arrival),
            (Some(8), ArrivalKind::Closed)
        );
        let paced = &summary.workloads["paced"];
        assert!(
            paced
                .description
                .ends_with("open loop, 1,500 requests/s, Poisson"),
            "{}",
            paced.description
        );
        assert_eq!(
            (summary.workloads["seeks"].kind.as_str(), paced.arrival),
            ("file", ArrivalKind::Open)
        );
    }
}
