//! The plan of an experiment: its points, which the sweep varies, and its points as runs, in execution order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use brunt_host::{Fleet, HostLoad};
use brunt_lab::link::Settings as LinkSettings;
use brunt_load::block::workload::Workload;
use brunt_load::decisions;
use brunt_load::file::FileLoad;
use brunt_load::load::{LoadInfo, Pace};
use brunt_load::together::{TogetherLoad, load_of};
use brunt_load::{Load, LoadContext, SharedInputs, WorkloadError};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::remote_workloads::RemoteSetup;
use super::together::TogetherDraft;
use super::{Experiment, PhaseEntry};

/// One combination: a load as swept, and its targets.
#[derive(Clone, Debug)]
pub struct Point {
    /// Names of target and workload, and the value on each axis: `disk oltp queue_depth=8`.
    pub label: String,
    /// The target's name; for a replay that drives several, their names joined by `+`.
    pub target: String,
    /// Its URL, or what is served for it.
    pub url: String,
    /// The workload's name.
    pub workload_name: String,
    /// The value on each swept axis.
    pub axes: Vec<(&'static str, String)>,
    /// The load to run.
    pub load: Arc<dyn Load>,
    /// The lab's links as swept: there and back.
    pub links: BTreeMap<String, [LinkSettings; 2]>,
    /// For one of several simultaneous jobs: the index of the point that combines them, which precedes it. A job has no
    /// other runs than those of that point.
    pub part_of: Option<usize>,
    /// Names of all targets: several for simultaneous jobs, or a replay onto several targets.
    pub targets: Vec<String>,
    /// The index of its phase in [`Plan::phases`], if the experiment has phases.
    pub phase: Option<usize>,
    /// The workload's settings as swept; `None` for a load described otherwise and for several jobs.
    described: Option<Box<Workload>>,
}

/// A point before its label and load are final.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) targets: Vec<String>,
    url: String,
    workload_name: String,
    pub(super) axes: Vec<(&'static str, String)>,
    pub(super) what: What,
    /// What a workload on other hosts needs.
    remote: Option<RemoteSetup>,
    pub(super) links: BTreeMap<String, [LinkSettings; 2]>,
}

/// The load of a draft.
#[derive(Clone)]
pub(super) enum What {
    /// A workload, which axes change.
    Block(Box<Workload>),
    /// Simultaneous workloads, all of which axes change alike.
    Together(Box<TogetherDraft>),
    /// A phase on a file system. Only the axes of clients and links affect it.
    Files(FileLoad, Arc<Fleet>),
}

/// Several jobs and their combined load.
type DraftedJobs = (Box<TogetherDraft>, Arc<TogetherLoad>);

impl What {
    /// The load on these targets; for several jobs, also the jobs.
    fn into_load(
        self,
        targets: &[String],
        remote: Option<RemoteSetup>,
        inputs: &SharedInputs,
    ) -> (Arc<dyn Load>, Option<DraftedJobs>) {
        match self {
            What::Block(workload) => {
                let context = LoadContext {
                    targets: targets.to_vec(),
                    inputs: inputs.clone(),
                };
                let load = match remote {
                    Some(remote) => remote.load(*workload, &context, None),
                    None => load_of(*workload, &context),
                };
                (load, None)
            }
            What::Together(group) => {
                let load = Arc::new(group.load(inputs).expect("checked when the file was read"));
                (Arc::clone(&load) as Arc<dyn Load>, Some((group, load)))
            }
            What::Files(load, _) if load.settings().hosts.is_empty() => (Arc::new(load), None),
            What::Files(load, fleet) => {
                let load = HostLoad::new(Arc::new(load), "".into(), false, fleet);
                (Arc::new(load), None)
            }
        }
    }
}

impl Draft {
    fn target(&self) -> String {
        self.targets.join("+")
    }

    pub(super) fn label(&self) -> String {
        let mut label = format!("{} {}", self.target(), self.workload_name);
        for (axis, value) in &self.axes {
            label += &format!(" {axis}={value}");
        }
        label
    }

    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        match &self.what {
            What::Block(workload) => workload.check(),
            What::Together(group) => {
                group.jobs.iter().try_for_each(|job| job.workload.check())?;
                group.load(&SharedInputs::new()).map(|_| ())
            }
            What::Files(..) => Ok(()),
        }
    }

    /// Adds its point, and one for each of several jobs. A trace is read once for all of them.
    fn add(self, points: &mut Vec<Point>, inputs: &SharedInputs) {
        let (label, target) = (self.label(), self.target());
        let described = match &self.what {
            What::Block(workload) => Some(workload.clone()),
            What::Together(_) | What::Files(..) => None,
        };
        let (load, group) = self.what.into_load(&self.targets, self.remote, inputs);
        let all = points.len();
        points.push(Point {
            label,
            target,
            url: self.url,
            workload_name: self.workload_name,
            axes: self.axes,
            load,
            links: self.links,
            part_of: None,
            targets: self.targets,
            phase: None,
            described,
        });
        let Some((group, together)) = group else {
            return;
        };
        for (draft, job) in group.jobs.into_iter().zip(together.jobs()) {
            let mut point = points[all].clone();
            let axes = point
                .label
                .split_off(point.target.len() + 1 + point.workload_name.len());
            point.workload_name = format!("{}/{}", point.workload_name, job.name);
            point.label = format!("{} {}{axes}", draft.target, point.workload_name);
            (point.load, point.part_of) = (Arc::clone(&job.load), Some(all));
            point.described = Some(draft.workload);
            (point.targets, point.target, point.url) =
                (vec![draft.target.clone()], draft.target, draft.url);
            points.push(point);
        }
    }
}

/// The points and runs of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All combinations.
    pub points: Vec<Point>,
    /// Indexes of points with their repetition, in execution order.
    pub runs: Vec<(usize, usize)>,
    /// The phases of each repetition, in order; empty if its points run in random order.
    pub phases: Vec<PhaseEntry>,
    /// Minimum duration: of runs, trials of searches and idle time before runs; closed-loop runs that stop by requests
    /// or bytes count as zero. Starting targets, services and hosts comes on top.
    pub time_min: Duration,
    /// Whether some runs end only when their requests or bytes are done.
    pub open_ended: bool,
    /// Names and URLs of targets that are written to, and whether `allow_overwrite` names them.
    pub written: Vec<(String, String, bool)>,
    /// Other machines, and lab hosts that loads name, if any. Loads run on them; on other
    /// machines also probes and faults.
    pub fleet: Option<Arc<Fleet>>,
}

impl Serialize for Point {
    /// Every load writes its kind and description, then the keys specific to its kind.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("label", &self.label)?;
        map.serialize_entry("target", &self.target)?;
        map.serialize_entry("url", &self.url)?;
        map.serialize_entry("workload_name", &self.workload_name)?;
        if let Some(part_of) = self.part_of {
            map.serialize_entry("part_of", &part_of)?;
        }
        if let Some(phase) = self.phase {
            map.serialize_entry("phase", &phase)?;
        }
        map.serialize_entry("axes", &self.axes)?;
        map.serialize_entry("kind", self.load.kind())?;
        map.serialize_entry("description", &self.load.describe())?;
        if let Some(engine) = self.engine() {
            map.serialize_entry("engine", &engine)?;
        }
        if !self.hosts().is_empty() {
            map.serialize_entry("hosts", self.hosts())?;
        }
        for (key, value) in self.load.keys() {
            map.serialize_entry(key, &value)?;
        }
        if !self.links.is_empty() {
            map.serialize_entry("links", &self.links)?;
        }
        map.end()
    }
}

impl Point {
    /// How long a run takes, as far as the load knows; for a rate search, only the length of a trial.
    pub fn time(&self) -> Option<Duration> {
        let LoadInfo {
            time_min,
            open_ended,
            pace,
            ..
        } = self.load.info();
        (!open_ended && !matches!(pace, Pace::Search(_))).then_some(time_min)
    }

    /// Whether it drives this target, alone or with others.
    pub fn is_on(&self, target: &str) -> bool {
        self.targets.iter().any(|name| name == target)
    }

    /// The workload, if it describes requests to a block device.
    pub fn workload(&self) -> Option<&Workload> {
        self.described
            .as_deref()
            .filter(|workload| workload.describes_blocks())
    }

    /// The other hosts that it runs on; empty if the experiment's own process runs it.
    pub fn hosts(&self) -> &[String] {
        self.load.hosts()
    }
}

/// Why a point's effects could not be determined before it runs.
#[derive(Debug, thiserror::Error)]
#[error("{label}: {source}")]
pub struct PlanError {
    label: String,
    source: WorkloadError,
}

impl PlanError {
    pub(crate) fn new(label: &str, source: WorkloadError) -> PlanError {
        PlanError {
            label: label.to_string(),
            source,
        }
    }
}

impl Plan {
    /// Removes from [`Plan::written`] the targets that nothing is written to. This reads the replayed traces; before,
    /// the list includes all targets of a replay.
    ///
    /// # Errors
    /// A trace cannot be read; the list is unchanged then.
    pub fn find_written(&mut self) -> Result<(), PlanError> {
        let mut found = BTreeMap::new();
        for (name, ..) in &self.written {
            let mut changes = false;
            for point in self.alone().filter(|point| point.is_on(name)) {
                let failed = |source| PlanError::new(&point.label, source);
                changes |= point.load.changes_target(name).map_err(failed)?;
            }
            found.insert(name.clone(), changes);
        }
        self.written.retain(|(name, ..)| found[name]);
        Ok(())
    }

    /// The points with a single load: simultaneous jobs count individually.
    fn alone(&self) -> impl Iterator<Item = &Point> {
        (0..self.points.len())
            .filter(|point| self.jobs_of(*point).is_empty())
            .map(|point| &self.points[point])
    }

    /// The points of the simultaneous jobs in this one; empty for a point with a single load.
    pub fn jobs_of(&self, point: usize) -> Range<usize> {
        let jobs = self.points[point + 1..]
            .iter()
            .take_while(|job| job.part_of == Some(point))
            .count();
        point + 1..point + 1 + jobs
    }

    /// Whether a point drives several targets as one device, which this process assembles.
    pub fn joins_targets(&self, point: usize) -> bool {
        let Point { targets, .. } = &self.points[point];
        targets.len() > 1 && self.points[point].hosts().is_empty() && self.jobs_of(point).is_empty()
    }

    /// Whether only other hosts open a target.
    pub fn is_remote(&self, target: &str) -> bool {
        let mut on = self.alone().filter(|point| point.is_on(target)).peekable();
        on.peek().is_some() && on.all(|point| !point.hosts().is_empty())
    }

    /// The points that have their own runs.
    pub fn heads(&self) -> Vec<usize> {
        (0..self.points.len())
            .filter(|point| self.points[*point].part_of.is_none())
            .collect()
    }
}

impl Experiment {
    /// Every combination of target, workload and axes, ordered by name.
    pub fn points(&self) -> Vec<Point> {
        self.points_on(&self.fleet())
    }

    fn points_on(&self, fleet: &Arc<Fleet>) -> Vec<Point> {
        let (mut points, inputs) = (Vec::new(), SharedInputs::new());
        self.drafts(fleet)
            .into_iter()
            .for_each(|draft| draft.add(&mut points, &inputs));
        points
    }

    pub(super) fn drafts(&self, fleet: &Arc<Fleet>) -> Vec<Draft> {
        let links = self.lab.iter().flat_map(|lab| &lab.links);
        let links: BTreeMap<_, _> = links
            .map(|(name, link)| (name.clone(), link.settings()))
            .collect();
        let mut drafts = Vec::new();
        for name in self.targets.keys() {
            let wanted = |workload: &str| self.runs_alone(name, workload);
            for (workload_name, workload) in self.workloads.iter().filter(|(name, _)| wanted(name))
            {
                let targets = replayed_on(workload, name);
                // One replay drives all of its targets; the first of them creates it.
                if targets[0] != *name {
                    continue;
                }
                let places = targets
                    .iter()
                    .filter_map(|name| Some(self.targets.get(name)?.place().to_string()));
                let remote = || self.remote_setup(&targets, fleet);
                drafts.push(Draft {
                    remote: (!workload.hosts.is_empty()).then(remote),
                    url: places.collect::<Vec<String>>().join(" + "),
                    targets,
                    workload_name: workload_name.clone(),
                    axes: Vec::new(),
                    what: What::Block(Box::new(workload.clone())),
                    links: links.clone(),
                });
            }
        }
        for (name, group) in &self.together {
            let group = self.together_draft(group, fleet);
            drafts.push(Draft {
                targets: group.targets.clone(),
                url: group
                    .jobs
                    .iter()
                    .map(|job| job.url.as_str())
                    .collect::<Vec<&str>>()
                    .join(", "),
                workload_name: name.clone(),
                axes: Vec::new(),
                what: What::Together(Box::new(group)),
                remote: None,
                links: links.clone(),
            });
        }
        // Preparation is the same for all points.
        let is_fixed = |draft: &Draft| self.is_preparation(&draft.workload_name);
        let (mut fixed, mut drafts): (Vec<Draft>, Vec<Draft>) =
            drafts.into_iter().partition(is_fixed);
        self.sweep.vary(&mut drafts);
        for (name, settings) in &self.filesystems {
            drafts.extend(FileLoad::phases(settings).into_iter().map(|load| Draft {
                targets: vec![name.clone()],
                url: settings.directory.display().to_string(),
                workload_name: load.phase().name().to_string(),
                axes: Vec::new(),
                what: What::Files(load, Arc::clone(fleet)),
                remote: None,
                links: links.clone(),
            }));
        }
        self.sweep.vary_surroundings(&mut drafts);
        fixed.extend(drafts);
        fixed
    }

    /// The experiment's plan.
    pub fn plan(&self) -> Plan {
        let fleet = self.fleet();
        let points = self.points_on(&fleet);
        let fleet = Some(fleet).filter(|fleet| !fleet.is_empty());
        let mut plan = Plan {
            points,
            fleet,
            ..Plan::default()
        };
        self.set_phases(&mut plan);
        let heads = plan.heads();
        let (mut time_min, mut open_ended) = (Duration::ZERO, false);
        let lab = self.lab.as_ref();
        let idle = lab
            .and_then(|lab| lab.idle)
            .map_or(Duration::ZERO, |idle| idle.0);
        for index in heads {
            let info = plan.points[index].load.info();
            let rounds = plan.rounds_of(index, self.repetitions);
            time_min += (decisions::run_time_min(&info) + idle) * rounds;
            time_min += decisions::search_time_min(&info);
            open_ended |= info.open_ended;
        }
        let writes = |name: &String| {
            plan.alone()
                .any(|point| point.is_on(name) && point.load.info().writes)
        };
        let written = self
            .targets
            .iter()
            .filter(|(name, _)| writes(name))
            .map(|(name, target)| {
                let place = target.place().to_string();
                (
                    name.clone(),
                    place.clone(),
                    self.allow_overwrite.contains(&place),
                )
            });
        let written = written.collect();
        Plan {
            written,
            time_min,
            open_ended,
            ..plan
        }
    }
}

/// The targets that a workload run on `target` drives together.
fn replayed_on(workload: &Workload, target: &str) -> Vec<String> {
    let mut named: Vec<String> = workload.devices.values().cloned().collect();
    named.sort_unstable();
    named.dedup();
    if named.is_empty() {
        vec![target.to_string()]
    } else {
        named
    }
}
