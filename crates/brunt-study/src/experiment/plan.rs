//! What an experiment comes to: its sweep as points, its points as runs, in the order in which they
//! are made.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::{Size, Span};
use brunt_lab::link::{BitRate, Settings as LinkSettings};
use brunt_load::Workload;
use brunt_load::block::workload::{Arrival, BlockSize};
use brunt_load::file::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mistake::{FileError, Source};
use super::{Experiment, RUNS_MAX};
use crate::statistics::interleaved;

/// The axes. An empty one leaves the workload's own value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// One block size in place of the workload's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_size: Vec<Size>,
    /// Requests outstanding for each worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_depth: Vec<u32>,
    /// Threads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,
    /// Share of reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<f64>,
    /// Share of sequential requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sequential: Vec<f64>,
    /// Requests a second; the workloads have to be open loops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<f64>,
    /// Delay of every link of the lab, each way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_delay: Vec<Span>,
    /// Share of packets that every link of the lab loses, each way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_loss: Vec<f64>,
    /// Rate of every link of the lab, each way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_rate: Vec<BitRate>,
}

/// One combination: a workload as swept, against a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Names of target and workload, and the value on each axis: `disk oltp queue_depth=8`.
    pub label: String,
    /// The target's name.
    pub target: String,
    /// Its URL, or what is served for it.
    pub url: String,
    /// The workload's name.
    pub workload_name: String,
    /// Axis and value.
    pub axes: Vec<(&'static str, String)>,
    /// The workload, swept; means nothing where there is a phase.
    pub workload: Workload,
    /// The links of the lab, swept: there and back.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, [LinkSettings; 2]>,
    /// What is done to a file system, in place of a workload against a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// What an experiment comes to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All combinations.
    pub points: Vec<Point>,
    /// Indexes of points with their repetition, in the order in which they are run.
    pub runs: Vec<(usize, usize)>,
    /// How long it takes at least; runs that stop by requests or bytes in a closed loop count as
    /// nothing.
    pub time_min: Duration,
    /// Whether some runs end only when their requests or bytes are done.
    pub open_ended: bool,
    /// Names and URLs of targets that are written, and whether `allow_overwrite` names them.
    pub written: Vec<(String, String, bool)>,
}

impl Point {
    /// How long a run of it takes, as far as its workload says; of a rate search it only says how long
    /// a trial is.
    pub fn time(&self) -> Option<Duration> {
        let (time, bounded) = time_of(&self.workload);
        (bounded && !matches!(self.workload.arrival, Arrival::Search { .. })).then_some(time)
    }
}

impl Experiment {
    pub(super) fn check_sweep(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let axes = &self.sweep;
        let lengths = [
            axes.block_size.len(),
            axes.queue_depth.len(),
            axes.workers.len(),
            axes.read.len(),
            axes.sequential.len(),
            axes.rate.len(),
            axes.link_delay.len(),
            axes.link_loss.len(),
            axes.link_rate.len(),
        ];
        let points = lengths.iter().map(|length| (*length).max(1)).fold(1usize, usize::saturating_mul);
        let all = points
            .saturating_mul(self.targets.len() * self.workloads.len())
            .saturating_add(self.filesystems.values().map(|load| load.phases.len()).sum())
            .saturating_mul(self.repetitions as usize);
        if all > RUNS_MAX {
            let what = format!("these axes make {all} runs, more than {RUNS_MAX}");
            return Err(source.mistake(&["sweep"], what, Some("leave values out".into())));
        }
        let closed =
            self.workloads.iter().find(|(_, workload)| !matches!(workload.arrival, Arrival::Open { .. }));
        if !axes.rate.is_empty()
            && let Some((name, _)) = closed
        {
            let what = format!("rate is swept, but workload {name} is not an open loop");
            let help = format!("write arrival = {{ kind = \"open\", rate = 1000 }} under [workloads.{name}]");
            return Err(source.mistake(&["sweep", "rate"], what, Some(help)));
        }
        for point in self.points() {
            if point.phase.is_none()
                && let Err(error) = point.workload.check()
            {
                let axis = point.axes.iter().map(|(axis, _)| *axis).find(|axis| touches(axis, error.key));
                let path = ["sweep", axis.unwrap_or(error.key)];
                return Err(source.mistake(&path, format!("{}: {}", point.label, error), None));
            }
        }
        Ok(())
    }

    /// Every combination of target, workload and axes, in the order of the file's names.
    pub fn points(&self) -> Vec<Point> {
        let links = self.lab.iter().flat_map(|lab| &lab.links);
        let links: BTreeMap<_, _> = links.map(|(name, link)| (name.clone(), link.settings())).collect();
        let mut points = Vec::new();
        for (name, target) in &self.targets {
            let wanted = |name: &String| target.workloads.as_ref().is_none_or(|names| names.contains(name));
            for (workload_name, workload) in self.workloads.iter().filter(|(name, _)| wanted(name)) {
                points.push(Point {
                    label: String::new(),
                    target: name.clone(),
                    url: target.place().to_string(),
                    workload_name: workload_name.clone(),
                    axes: Vec::new(),
                    workload: workload.clone(),
                    links: links.clone(),
                    phase: None,
                });
            }
        }
        let axes = &self.sweep;
        vary(&mut points, "block_size", &axes.block_size, |workload, size| {
            workload.blocks = vec![BlockSize { size: *size, weight: 1.0 }];
        });
        vary(&mut points, "queue_depth", &axes.queue_depth, |workload, depth| workload.queue_depth = *depth);
        vary(&mut points, "workers", &axes.workers, |workload, workers| workload.workers = *workers);
        vary(&mut points, "read", &axes.read, |workload, read| workload.read = *read);
        vary(&mut points, "sequential", &axes.sequential, |workload, share| workload.sequential = *share);
        vary(&mut points, "rate", &axes.rate, |workload, new| {
            if let Arrival::Open { rate, .. } = &mut workload.arrival {
                *rate = *new;
            }
        });
        vary_links(&mut points, "link_delay", &axes.link_delay, |link, delay| link.delay = *delay);
        vary_links(&mut points, "link_loss", &axes.link_loss, |link, loss| {
            (link.loss, link.loss_bursts) = (*loss, None);
        });
        vary_links(&mut points, "link_rate", &axes.link_rate, |link, rate| link.rate = Some(*rate));
        for (name, load) in &self.filesystems {
            points.extend(load.phases.iter().map(|phase| Point {
                label: String::new(),
                target: name.clone(),
                url: load.directory.display().to_string(),
                workload_name: phase.name().to_string(),
                axes: Vec::new(),
                workload: Workload::default(),
                phase: Some(*phase),
                links: links.clone(),
            }));
        }
        for point in &mut points {
            point.label = format!("{} {}", point.target, point.workload_name);
            for (axis, value) in &point.axes {
                point.label += &format!(" {axis}={value}");
            }
        }
        points
    }

    /// What the experiment comes to.
    pub fn plan(&self) -> Plan {
        let points = self.points();
        let runs = interleaved(points.len(), self.repetitions as usize, self.seed);
        let (mut time_min, mut open_ended) = (Duration::ZERO, false);
        for point in &points {
            let (time, bounded) = match point.phase {
                None => time_of(&point.workload),
                Some(_) => (Duration::ZERO, false),
            };
            time_min += time * self.repetitions;
            open_ended |= !bounded;
        }
        let writes =
            |name: &String| points.iter().any(|point| point.target == *name && point.workload.read < 1.0);
        let written = self.targets.iter().filter(|(name, _)| writes(name)).map(|(name, target)| {
            let place = target.place().to_string();
            (name.clone(), place.clone(), self.allow_overwrite.contains(&place))
        });
        Plan { written: written.collect(), points, runs, time_min, open_ended }
    }
}

/// Whether a mistake about a workload's key comes from a sweep's axis.
fn touches(axis: &str, key: &str) -> bool {
    match axis {
        "block_size" => key == "blocks",
        "rate" => key.starts_with("arrival"),
        axis => key == axis,
    }
}

/// Replaces each point by one for each value of an axis of the workload.
fn vary<T: std::fmt::Display>(
    points: &mut Vec<Point>,
    axis: &'static str,
    values: &[T],
    set: impl Fn(&mut Workload, &T),
) {
    vary_points(points, axis, values, |point, value| set(&mut point.workload, value));
}

/// Replaces each point by one for each value of an axis of every link.
fn vary_links<T: std::fmt::Display>(
    points: &mut Vec<Point>,
    axis: &'static str,
    values: &[T],
    set: impl Fn(&mut LinkSettings, &T),
) {
    vary_points(points, axis, values, |point, value| {
        point.links.values_mut().flatten().for_each(|link| set(link, value));
    });
}

/// Replaces each point by one for each value of an axis.
fn vary_points<T: std::fmt::Display>(
    points: &mut Vec<Point>,
    axis: &'static str,
    values: &[T],
    set: impl Fn(&mut Point, &T),
) {
    if values.is_empty() {
        return;
    }
    let with = |point: &Point, value: &T| {
        let mut point = point.clone();
        set(&mut point, value);
        point.axes.push((axis, value.to_string()));
        point
    };
    *points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
}

/// How long a run takes as far as the workload says, and whether it says it all.
fn time_of(workload: &Workload) -> (Duration, bool) {
    let ramp = workload.ramp_up.map_or(Duration::ZERO, |ramp| ramp.time.0);
    let stop = &workload.stop;
    let mut ends: Vec<Duration> = stop.time.iter().map(|time| time.0).collect();
    ends.extend(stop.steady.map(|steady| steady.round.0 * steady.rounds_max));
    if let (Arrival::Open { rate, .. }, Some(requests)) = (workload.arrival, stop.requests) {
        ends.extend(Duration::try_from_secs_f64(requests as f64 / rate).ok());
    }
    match ends.into_iter().min() {
        Some(end) if stop.steady.is_some() => {
            (ramp + end.min(stop.steady.map_or(end, |s| s.round.0 * 5)), true)
        }
        Some(end) => (ramp + end, true),
        None => (ramp, false),
    }
}
