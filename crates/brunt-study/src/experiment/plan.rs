//! The plan of an experiment: its points, as varied by the sweep, and the runs of these points in execution order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::device_url::UrlOptionChanges;
use brunt_host::Fleet;
use brunt_lab::link::Settings as LinkSettings;
use brunt_load::block::workload::Workload;
use brunt_load::decisions;
use brunt_load::load::{LoadInfo, Pace};
use brunt_load::together::{TogetherLoad, load_of};
use brunt_load::{Load, LoadContext, SharedInputs, WorkloadError};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::entries::EntryLoad;
use super::remote_workloads::RemoteSetup;
use super::together::TogetherDraft;
use super::{Experiment, PhaseEntry};

/// One combination of the sweep: a load with its swept values, and its targets.
#[derive(Clone, Debug)]
pub struct Point {
    /// Names of target and workload, and the value on each axis: `disk oltp queue_depth=8`.
    pub label: String,
    /// The target's name; for a replay that drives several, their names joined by `+`.
    pub target: String,
    /// The target's URL, or the device that is served for the target.
    pub url: String,
    /// The workload's name.
    pub workload_name: String,
    /// The value on each swept axis.
    pub axes: Vec<(String, String)>,
    /// The load to run.
    pub load: Arc<dyn Load>,
    /// The settings of all links, of the lab and between other machines, there and back, with swept values.
    pub links: BTreeMap<String, [LinkSettings; 2]>,
    /// The MTUs of the lab's links in bytes, with swept values.
    pub mtus: BTreeMap<String, u32>,
    /// The swept options of targets' URLs, by target.
    pub options: BTreeMap<String, UrlOptionChanges>,
    /// For one of several simultaneous jobs: the index of the point that combines them, which precedes this point. A
    /// job has no runs other than those of that point.
    pub part_of: Option<usize>,
    /// Names of all targets; there are several for simultaneous jobs, or for a replay onto several targets.
    pub targets: Vec<String>,
    /// The index of its phase in [`Plan::phases`]; `None` if the experiment has no phases.
    pub phase: Option<usize>,
    /// The workload's settings with swept values; `None` for other kinds of load and for several jobs.
    described: Option<Box<Workload>>,
}

/// A point before its label and load are final.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) targets: Vec<String>,
    url: String,
    workload_name: String,
    pub(super) axes: Vec<(String, String)>,
    pub(super) what: What,
    /// What a workload on other hosts needs; `None` if it runs on this machine.
    remote: Option<RemoteSetup>,
    pub(super) links: BTreeMap<String, [LinkSettings; 2]>,
    pub(super) mtus: BTreeMap<String, u32>,
    options: BTreeMap<String, UrlOptionChanges>,
}

/// A draft's load.
#[derive(Clone)]
pub(super) enum What {
    /// A workload, which all axes vary.
    Block(Box<Workload>),
    /// Simultaneous workloads, which axes vary in the same way.
    Together(Box<TogetherDraft>),
    /// A load with its own location, such as a directory. Only the axes for clients and links affect it.
    Entry(EntryLoad),
}

/// Several jobs and their combined load.
type DraftedJobs = (Box<TogetherDraft>, Arc<TogetherLoad>);

impl What {
    /// The load for these targets, and the jobs if there are several.
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
            What::Entry(load) => (load.into_load(), None),
        }
    }
}

impl Draft {
    /// Sets an option of a target's URL; without a value, removes the option.
    pub(super) fn set_option(&mut self, target: &str, option: &str, value: Option<String>) {
        let changes = self.options.entry(target.to_string()).or_default();
        changes.set(option, value);
        let jobs = match &mut self.what {
            What::Together(group) => &mut group.jobs[..],
            What::Block(_) | What::Entry(_) => &mut [],
        };
        let remotes = jobs.iter_mut().map(|job| &mut job.remote);
        for remote in remotes.chain([&mut self.remote]).flatten() {
            remote.set_options(target, changes);
        }
    }

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
            What::Entry(_) => Ok(()),
        }
    }

    /// Adds the draft's point and, for several jobs, a point for each. A trace is read once for all of them.
    fn add(self, points: &mut Vec<Point>, inputs: &SharedInputs) {
        let (label, target) = (self.label(), self.target());
        let described = match &self.what {
            What::Block(workload) => Some(workload.clone()),
            What::Together(_) | What::Entry(_) => None,
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
            mtus: self.mtus,
            options: self.options,
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
    /// Minimum duration: of runs, trials of searches and idle time before runs; closed-loop runs that stop by
    /// requests or bytes count as zero. The time to start targets, services and hosts is not included.
    pub time_min: Duration,
    /// Whether some runs end only after a number of requests or bytes, so their duration is unknown.
    pub open_ended: bool,
    /// Names and URLs of targets that are written to, and whether `allow_overwrite` names them.
    pub written: Vec<(String, String, bool)>,
    /// Remote hosts and, if loads name any, lab hosts. Loads run on both; probes and faults also run on remote hosts.
    pub fleet: Option<Arc<Fleet>>,
}

impl Serialize for Point {
    /// Every load serializes its kind and description, then the keys specific to its kind.
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
            map.serialize_entry("mtus", &self.mtus)?;
        }
        map.end()
    }
}

impl Point {
    /// The duration of a run, as far as the load knows it; for a rate search, only that of one trial.
    pub fn time(&self) -> Option<Duration> {
        let LoadInfo {
            time_min,
            open_ended,
            pace,
            ..
        } = self.load.info();
        (!open_ended && !matches!(pace, Pace::Search(_))).then_some(time_min)
    }

    /// Whether the point drives this target, alone or with others.
    pub fn is_on(&self, target: &str) -> bool {
        self.targets.iter().any(|name| name == target)
    }

    /// The name of the device that the point opens a target as: the target's name, followed by the options that are
    /// swept.
    pub fn device_of(&self, target: &str) -> String {
        match self.options.get(target) {
            Some(changes) => format!("{target}?{changes}"),
            None => target.to_string(),
        }
    }

    /// The workload, if it describes requests to a block device.
    pub fn workload(&self) -> Option<&Workload> {
        self.described
            .as_deref()
            .filter(|workload| workload.describes_blocks())
    }

    /// The other hosts that the point's load runs on; empty if the experiment's own process runs it.
    pub fn hosts(&self) -> &[String] {
        self.load.hosts()
    }
}

/// Why the effects of a point could not be determined in advance.
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
    /// Removes targets to which nothing is written from [`Plan::written`]. This reads the replayed traces; until
    /// then, the list includes all targets of a replay.
    ///
    /// # Errors
    /// A trace cannot be read; the list then stays unchanged.
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

    /// The points of the simultaneous jobs in this point; empty for a point with a single load.
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

    /// The devices that this process opens for a target, by name, each with the options in which it differs from the
    /// target's URL. There are several only if options of the target are swept.
    pub fn devices_of(&self, target: &str) -> BTreeMap<String, UrlOptionChanges> {
        let own = self
            .alone()
            .filter(|point| point.is_on(target) && point.hosts().is_empty());
        let devices = own.map(|point| {
            let changes = point.options.get(target).cloned();
            (point.device_of(target), changes.unwrap_or_default())
        });
        let devices: BTreeMap<String, UrlOptionChanges> = devices.collect();
        match devices.is_empty() {
            true => [(target.to_string(), UrlOptionChanges::default())].into(),
            false => devices,
        }
    }

    /// The points that have their own runs.
    pub fn heads(&self) -> Vec<usize> {
        (0..self.points.len())
            .filter(|point| self.points[*point].part_of.is_none())
            .collect()
    }
}

impl Experiment {
    /// Every combination of target, workload and axis values, ordered by name.
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
        let drafts = self.drafts_alone(fleet).chain(self.drafts_together(fleet));
        // Preparation is the same for all points, so no sweep varies it.
        let is_fixed = |draft: &Draft| self.is_preparation(&draft.workload_name);
        let (mut fixed, mut drafts): (Vec<Draft>, Vec<Draft>) = drafts.partition(is_fixed);
        self.sweep.vary(&mut drafts);
        drafts.extend(self.drafts_of_entries(fleet));
        self.sweep.vary_surroundings(&mut drafts, self.lab.as_ref());
        fixed.extend(drafts);
        fixed
    }

    /// A draft with the links as defined in the file, and no values on any axis yet.
    pub(super) fn draft(
        &self,
        targets: Vec<String>,
        url: String,
        workload_name: &str,
        what: What,
    ) -> Draft {
        let links = self.lab.iter().flat_map(|lab| &lab.links);
        let mtus = links.map(|(name, link)| (name.clone(), link.mtu()));
        Draft {
            targets,
            url,
            workload_name: workload_name.to_string(),
            axes: Vec::new(),
            what,
            remote: None,
            links: self.link_settings(),
            mtus: mtus.collect(),
            options: BTreeMap::new(),
        }
    }

    /// The workloads that run alone.
    fn drafts_alone(&self, fleet: &Arc<Fleet>) -> impl Iterator<Item = Draft> {
        let on_target = move |name: &String| {
            let wanted = |workload: &str| self.runs_alone(name, workload);
            let workloads = self.workloads.on_targets();
            let workloads = workloads.filter(|(name, _)| wanted(name));
            let drafts = workloads.filter_map(|(workload_name, workload)| {
                let targets = replayed_on(workload, name);
                // One replay drives all of its targets; its draft is made for the first target only.
                if targets[0] != *name {
                    return None;
                }
                let places = targets
                    .iter()
                    .filter_map(|name| Some(self.targets.get(name)?.place().to_string()));
                let places = places.collect::<Vec<String>>().join(" + ");
                let remote = || self.remote_setup(&targets, fleet);
                let remote = (!workload.hosts.is_empty()).then(remote);
                let what = What::Block(Box::new(workload.clone()));
                Some(Draft {
                    remote,
                    ..self.draft(targets, places, workload_name, what)
                })
            });
            drafts.collect::<Vec<Draft>>()
        };
        self.targets.keys().flat_map(on_target)
    }

    /// The groups of simultaneous jobs.
    fn drafts_together(&self, fleet: &Arc<Fleet>) -> impl Iterator<Item = Draft> {
        self.workloads.groups().map(move |(name, group)| {
            let group = self.together_draft(group, fleet);
            let urls = group.jobs.iter().map(|job| job.url.as_str());
            let urls = urls.collect::<Vec<&str>>().join(", ");
            let targets = group.targets.clone();
            self.draft(targets, urls, name, What::Together(Box::new(group)))
        })
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
            .map_or(Duration::ZERO, |idle| idle.0)
            + self.host_idle_time().unwrap_or_default();
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

/// The targets that a workload drives together when it runs on `target`.
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
