//! `[together.NAME]`: several workloads at once, like the jobs of a fio file. The group is a point, and so is each of
//! its jobs: the figures for all of them come from the same runs.
//!
//! ```toml
//! [together.mixed]
//! jobs = [
//!     { workload = "reader", target = "disk" },
//!     { workload = "writer", target = "log", start_delay = "5s" },
//! ]
//! ```
//!
//! The rule: a workload in a group runs alone only on targets that list it in their `workloads`.

use std::sync::Arc;

use brunt_core::Span;
use brunt_host::{Fleet, Lane, RunMembers};
use brunt_load::together::{TogetherJob, TogetherLoad, load_of};
use brunt_load::{LoadContext, SharedInputs, Workload, WorkloadError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Experiment;
use super::mistake::{FileError, Source};
use super::remote_workloads::RemoteSetup;

/// Workloads that run at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TogetherEntry {
    /// What runs at once.
    pub jobs: Vec<JobEntry>,
    /// Ends a run when the first job has ended; otherwise the last job ends it.
    #[serde(default)]
    pub exit_all: bool,
}

/// One of the workloads in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobEntry {
    /// Name of the workload.
    pub workload: String,
    /// Name of the target that it runs against.
    pub target: String,
    /// Name of the job in the results; default: the workload's name. Jobs with the same workload need different
    /// names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Delay from the start of the run to the start of the job. The measurements of jobs start a whole number of
    /// intervals apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_delay: Option<Span>,
    /// Ends a run when this job has ended.
    #[serde(default, skip_serializing_if = "is_off")]
    pub ends_run: bool,
}

fn is_off(switch: &bool) -> bool {
    !switch
}

impl TogetherEntry {
    /// The names of the jobs' targets, without duplicates.
    pub(super) fn targets(&self) -> Vec<String> {
        let mut targets: Vec<String> = Vec::new();
        for job in &self.jobs {
            if !targets.contains(&job.target) {
                targets.push(job.target.clone());
            }
        }
        targets
    }
}

impl JobEntry {
    /// The job's name in results.
    pub fn name(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.workload)
    }
}

/// A job of a draft point, with swept values.
#[derive(Clone)]
pub(super) struct JobDraft {
    pub(super) name: String,
    pub(super) target: String,
    pub(super) url: String,
    pub(super) workload: Box<Workload>,
    /// What the workload needs on other hosts, if it runs there.
    pub(super) remote: Option<RemoteSetup>,
    pub(super) start_delay: Span,
    pub(super) ends_run: bool,
}

/// The jobs of a draft point.
#[derive(Clone)]
pub(super) struct TogetherDraft {
    pub(super) jobs: Vec<JobDraft>,
    pub(super) exit_all: bool,
    /// The names of the jobs' targets, without duplicates.
    pub(super) targets: Vec<String>,
}

impl TogetherDraft {
    /// The combined load. A trace is read once for all jobs that replay it.
    pub(super) fn load(&self, inputs: &SharedInputs) -> Result<TogetherLoad, WorkloadError> {
        // If a host is lost, the run may continue with the others.
        let members = self.jobs.iter().map(|job| job.workload.hosts.len().max(1));
        let members = Arc::new(RunMembers::new(members.sum()));
        let load = |index: usize, job: &JobDraft| {
            let workload = *job.workload.clone();
            let context = LoadContext {
                targets: vec![job.target.clone()],
                inputs: inputs.clone(),
            };
            match job.remote.clone() {
                // Simultaneous jobs need separate conversations with a host.
                Some(remote) => {
                    let members = Some((Lane(index as u32), Arc::clone(&members)));
                    remote.load(workload, &context, members)
                }
                None => load_of(workload, &context),
            }
        };
        let job = |(index, job): (usize, &JobDraft)| TogetherJob {
            name: job.name.clone(),
            load: load(index, job),
            start_delay: job.start_delay.0,
            ends_run: job.ends_run,
        };
        TogetherLoad::new(
            self.jobs.iter().enumerate().map(job).collect(),
            self.exit_all,
        )
    }
}

impl Experiment {
    /// Whether a workload runs alone against a target.
    pub(super) fn runs_alone(&self, target: &str, workload: &str) -> bool {
        match self.targets.get(target).map(|target| &target.workloads) {
            Some(Some(names)) => names.iter().any(|name| name == workload),
            Some(None) => !self.jobs().any(|job| job.workload == workload),
            None => false,
        }
    }

    /// Whether a workload runs against a target, alone or simultaneously with others.
    pub(super) fn runs_on(&self, target: &str, workload: &str) -> bool {
        self.runs_alone(target, workload)
            || self
                .jobs()
                .any(|job| job.workload == workload && job.target == target)
    }

    /// Whether a group has a job on this target.
    pub(super) fn is_of_a_group(&self, target: &str) -> bool {
        self.jobs().any(|job| job.target == target)
    }

    fn jobs(&self) -> impl Iterator<Item = &JobEntry> {
        self.workloads.groups().flat_map(|(_, group)| &group.jobs)
    }

    /// The draft of a group, before the sweep.
    pub(super) fn together_draft(
        &self,
        group: &TogetherEntry,
        fleet: &Arc<Fleet>,
    ) -> TogetherDraft {
        let remote = |job: &JobEntry| {
            let is_remote = !self.workloads[&job.workload].hosts.is_empty();
            is_remote.then(|| self.remote_setup(std::slice::from_ref(&job.target), fleet))
        };
        let jobs = group.jobs.iter().map(|job| JobDraft {
            remote: remote(job),
            name: job.name().to_string(),
            target: job.target.clone(),
            url: self.targets[&job.target].place().to_string(),
            workload: Box::new(self.workloads[&job.workload].clone()),
            start_delay: job.start_delay.unwrap_or_default(),
            ends_run: job.ends_run,
        });
        TogetherDraft {
            jobs: jobs.collect(),
            exit_all: group.exit_all,
            targets: group.targets(),
        }
    }

    /// Checks that the jobs of each group exist and can run simultaneously.
    pub(super) fn check_together(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, group) in self.workloads.groups() {
            let path = ["workloads", name.as_str(), "jobs"];
            let known = |names: Vec<&String>| {
                let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
                Some(format!("available: {}", names.join(", ")))
            };
            for job in &group.jobs {
                if self.workloads.on_target(&job.workload).is_none() {
                    let what = format!("together {name}: no workload named {}", job.workload);
                    return Err(source.mistake(
                        &path,
                        what,
                        known(self.workloads.on_targets().map(|(name, _)| name).collect()),
                    ));
                }
                if !self.targets.contains_key(&job.target) {
                    let what = format!("together {name}: no target named {}", job.target);
                    return Err(source.mistake(&path, what, known(self.targets.keys().collect())));
                }
            }
            if let Some((what, help)) = self.unfit(group) {
                return Err(source.mistake(&path, format!("together {name}: {what}"), Some(help)));
            }
            if let Err(error) = self
                .together_draft(group, &self.fleet())
                .load(&SharedInputs::new())
            {
                return Err(source.mistake(
                    &path,
                    format!("together {name}: {}", error.what),
                    None,
                ));
            }
        }
        Ok(())
    }

    /// Why the workloads of a group cannot run together, and what to do.
    fn unfit(&self, group: &TogetherEntry) -> Option<(String, String)> {
        let jobs = || {
            group
                .jobs
                .iter()
                .map(|job| (job, &self.workloads[&job.workload]))
        };
        for (index, (job, workload)) in jobs().enumerate() {
            if workload.ramp_up.is_some_and(|ramp_up| ramp_up.requests > 0) {
                let what = format!(
                    "job {} starts measuring after a number of requests, so its start time is not known",
                    job.name()
                );
                return Some((what, "write ramp_up = { time = \"1s\" }".into()));
            }
            let clash = jobs().enumerate().find(|(other, (there, theirs))| {
                *other != index
                    && there.target == job.target
                    && theirs.changes_data()
                    && overlap(workload, theirs)
            });
            if let (Some((_, (other, _))), true) = (clash, workload.verify.is_some()) {
                let what = format!(
                    "job {} verifies blocks that job {} changes",
                    job.name(),
                    other.name()
                );
                return Some((
                    what,
                    "give each job its own region: region = { start = \"0\", length = \"1GiB\" }"
                        .into(),
                ));
            }
        }
        None
    }
}

/// Whether the regions of two workloads overlap.
fn overlap(one: &Workload, other: &Workload) -> bool {
    let range = |workload: &Workload| {
        let start = workload.region.start.0;
        (
            start,
            workload
                .region
                .length
                .map_or(u64::MAX, |length| start.saturating_add(length.0)),
        )
    };
    let ((start, end), (from, to)) = (range(one), range(other));
    start < to && from < end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake, changed};

    const TEXT: &str = r#"
name = "at once"
repetitions = 4
[targets.disk]
url = "memory:16MiB"
[targets.log]
url = "memory:1MiB"
[workloads.reader]
stop = { time = "2s" }
[workloads.writer]
read = 0
stop = { time = "4s" }
[workloads.other]
stop = { time = "1s" }
[together.mixed]
jobs = [
    { workload = "reader", target = "disk" },
    { workload = "writer", target = "log", start_delay = "1s" },
    { workload = "writer", target = "disk", name = "second" },
]
[sweep]
queue_depth = [1, 8]
"#;

    /// A group is a point, and so is each of its jobs; the time of a run counts once, and the group's workloads do
    /// not run alone unless a target lists them.
    #[test]
    fn jobs_are_points_of_a_point() {
        let experiment = Experiment::parse("x.toml", TEXT).unwrap();
        let plan = experiment.plan();
        let labels: Vec<&str> = plan
            .points
            .iter()
            .map(|point| point.label.as_str())
            .collect();
        let (alone, at_once) = labels.split_at(4);
        assert_eq!(alone[0], "disk other queue_depth=1");
        assert_eq!(alone[3], "log other queue_depth=8");
        let expected = [
            "disk+log mixed queue_depth=1",
            "disk mixed/reader queue_depth=1",
            "log mixed/writer queue_depth=1",
            "disk mixed/second queue_depth=1",
        ];
        assert_eq!((&at_once[..4], at_once.len()), (&expected[..], 8));
        assert_eq!(plan.points[6].part_of, Some(4));
        assert_eq!(
            (plan.jobs_of(4), plan.jobs_of(8), plan.jobs_of(0)),
            (5..8, 9..12, 1..1)
        );
        assert!(
            plan.points[4].is_on("log")
                && plan.points[5].is_on("disk")
                && !plan.points[5].is_on("log")
        );
        // There are four single points of one second, and two groups of five seconds.
        assert_eq!(
            (plan.runs.len(), plan.time_min.as_secs()),
            (6 * 4, 4 * (4 + 2 * 5))
        );
        assert!(
            plan.runs
                .iter()
                .all(|(point, _)| plan.points[*point].part_of.is_none())
        );
        let written: Vec<&str> = plan
            .written
            .iter()
            .map(|(name, ..)| name.as_str())
            .collect();
        assert_eq!(written, ["disk", "log"]);
        let text = TEXT.replace(
            "url = \"memory:1MiB\"",
            "url = \"memory:1MiB\"\nworkloads = [\"writer\"]",
        );
        let plan = Experiment::parse("x.toml", &text).unwrap().plan();
        assert_eq!(plan.points[2].label, "log writer queue_depth=1");
        let again = Experiment::parse("x.toml", &experiment.written_out()).unwrap();
        assert_eq!(again.workloads, experiment.workloads);
    }

    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, line, said: &str| {
            drop(assert_mistake(&changed(TEXT, from, to), line, said))
        };
        check(
            "workload = \"reader\", target",
            "workload = \"raeder\", target",
            16,
            "no workload named raeder available: other",
        );
        check(
            "target = \"log\"",
            "target = \"lag\"",
            16,
            "no target named lag available: disk, log",
        );
        check(
            "name = \"second\"",
            "name = \"reader\"",
            16,
            "two jobs are called reader",
        );
        check(
            "start_delay = \"1s\"",
            "start_delay = \"1501300us\"",
            16,
            "not a multiple",
        );
        check(
            "start_delay = \"1s\"",
            "startdelay = \"1s\"",
            18,
            "did you mean start_delay?",
        );
        check(
            "[together.mixed]",
            "[together.reader]",
            15,
            "reader is in both [workloads] and [together]",
        );
        check(
            "stop = { time = \"4s\" }",
            "stop = { time = \"4s\" }\nramp_up = { requests = 9 }",
            17,
            "start time is not known",
        );
        let verified = "[workloads.reader]\nread = 0.5\nverify = {}\n";
        check(
            "[workloads.reader]\n",
            verified,
            18,
            "verifies blocks that job second changes",
        );
        check("queue_depth = [1, 8]", "workers = [100]", 21, "300 workers");
    }
}
