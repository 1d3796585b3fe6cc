//! An experiment's plan for the page's sketch and timeline: hosts, links, targets, workloads, faults and duration. It
//! is derived from the experiment alone; nothing is opened.
//!
//! The rule: a plan contains no secrets; URLs are shown as in results.

use brunt_core::device_url::without_secrets;
use brunt_study::experiment::{Experiment, Plan};
use brunt_study::host::HostName;
use serde::Serialize;
use serde_json::Value;

/// An experiment's plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanSketch {
    /// The experiment's name.
    pub name: String,
    /// Number of runs; with a `precision`, the minimum.
    pub runs: u32,
    /// Number of combinations of target, workload and swept values.
    pub points: u32,
    /// Expected duration of the experiment.
    pub seconds: TimeEstimate,
    /// Duration of the longest run, if the loads specify it.
    pub run_seconds: Option<f64>,
    /// Targets that are written to.
    pub writes: Vec<String>,
    /// The hosts and their roles.
    pub hosts: Vec<SketchedHost>,
    /// Links of the lab.
    pub links: Vec<SketchedLink>,
    /// The targets under test.
    pub targets: Vec<SketchedTarget>,
    /// The workloads that drive the targets.
    pub workloads: Vec<SketchedWorkload>,
    /// The faults that are injected.
    pub faults: Vec<SketchedFault>,
}

/// How long an experiment takes, not counting the time to start and connect to targets, services and hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeEstimate {
    /// Minimum.
    pub least: f64,
}

/// A host of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SketchedHost {
    /// Name of the host.
    pub name: String,
    /// Kind of host: this machine, a lab host, a host reached by ssh, or a host with an agent.
    pub kind: String,
    /// Roles of the host: `worker`, `target`.
    pub roles: Vec<&'static str>,
}

/// A link of the lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SketchedLink {
    /// Name of the link.
    pub name: String,
    /// One end.
    pub a: String,
    /// The host at the other end.
    pub b: String,
    /// The link's effect on packets, as text.
    pub impairments: String,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SketchedTarget {
    /// Name of the target.
    pub name: String,
    /// The target's URL, or the device served for it.
    pub url: String,
    /// The host that serves the target.
    pub host: Option<String>,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SketchedWorkload {
    /// Name of the workload.
    pub name: String,
    /// Hosts on which the workload runs.
    pub hosts: Vec<String>,
    /// The target that the workload drives.
    pub target: String,
    /// The kind of load.
    pub kind: String,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SketchedFault {
    /// The fault's name in reports.
    pub name: String,
    /// Kind of the fault.
    pub kind: String,
    /// Effect of the fault.
    pub what: String,
    /// Where the fault is injected.
    pub on: String,
    /// When the fault begins, in seconds of measured time; 0 if it lasts for the whole run.
    pub from_s: f64,
    /// When the fault ends; `None` if it lasts until the end of the run.
    pub to_s: Option<f64>,
    /// Whether the fault applies to the runs against every target.
    pub every_run: bool,
}

impl PlanSketch {
    /// The sketch of an experiment and its plan.
    pub fn of(experiment: &Experiment, plan: &Plan) -> PlanSketch {
        let heads = plan.heads();
        let mut times = heads.iter().map(|point| plan.points[*point].time());
        let run_seconds = times.try_fold(0.0_f64, |longest, time| {
            Some(longest.max(time?.as_secs_f64()))
        });
        let least = plan.time_min.as_secs_f64();
        PlanSketch {
            name: experiment.name.clone(),
            runs: plan.runs.len() as u32,
            points: heads.len() as u32,
            seconds: TimeEstimate { least },
            run_seconds: run_seconds.filter(|_| !heads.is_empty()),
            writes: plan
                .written
                .iter()
                .map(|(_, url, _)| without_secrets(url))
                .collect(),
            hosts: hosts(experiment, plan),
            links: links(experiment),
            targets: targets(experiment),
            workloads: workloads(experiment, plan),
            faults: faults(experiment),
        }
    }
}

/// Where a point's workers run: on the given hosts, or by default on the lab's worker or this machine.
fn places(experiment: &Experiment, hosts: &[String]) -> Vec<String> {
    match hosts {
        [] => experiment
            .hosts()
            .map(|hosts| vec![hosts.worker().to_string()])
            .unwrap_or_default(),
        hosts => hosts.to_vec(),
    }
}

fn hosts(experiment: &Experiment, plan: &Plan) -> Vec<SketchedHost> {
    let Ok(hosts) = experiment.hosts() else {
        return Vec::new();
    };
    let mut workers: Vec<String> = plan
        .points
        .iter()
        .flat_map(|point| places(experiment, point.hosts()))
        .collect();
    workers.dedup();
    let local = HostName::local();
    let serves = |name: &HostName| {
        experiment
            .targets
            .values()
            .any(|target| target.serve.is_some() && target.host.as_ref().unwrap_or(&local) == name)
    };
    let sketched = hosts.iter().map(|host| {
        let worker = workers
            .iter()
            .any(|worker| *worker == host.name.to_string());
        let roles = [("worker", worker), ("target", serves(&host.name))];
        SketchedHost {
            name: host.name.to_string(),
            kind: host.settings.info().name.to_string(),
            roles: roles
                .into_iter()
                .filter(|(_, is)| *is)
                .map(|(role, _)| role)
                .collect(),
        }
    });
    // This machine is listed only if it has a role.
    sketched
        .filter(|host| host.name != local.to_string() || !host.roles.is_empty())
        .collect()
}

fn links(experiment: &Experiment) -> Vec<SketchedLink> {
    let links = experiment.lab.iter().flat_map(|lab| &lab.links);
    let sketched = links.map(|(name, link)| {
        let [a, b] = link.between.clone().map(|end| end.to_string());
        // The link as written in the file: a preset is shown by its name.
        let impairments = serde_json::to_value(link)
            .map(|keys| impairments(&keys))
            .unwrap_or_default();
        SketchedLink {
            name: name.clone(),
            a,
            b,
            impairments,
        }
    });
    sketched.collect()
}

/// Keys of a link that don't affect packets.
const NO_IMPAIRMENTS: [&str; 2] = ["between", "carrier"];

/// A link's keys as text: `delay 5ms, loss 0.01`.
fn impairments(keys: &Value) -> String {
    let keys = keys
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !NO_IMPAIRMENTS.contains(&key.as_str()) && !value.is_null());
    let words = keys.map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        Value::Object(_) => format!("{key} ({})", impairments(value)),
        value => format!("{key} {value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn targets(experiment: &Experiment) -> Vec<SketchedTarget> {
    let devices = experiment
        .targets
        .iter()
        .map(|(name, target)| SketchedTarget {
            name: name.clone(),
            url: without_secrets(target.place()),
            host: target.serve.is_some().then(|| {
                target
                    .host
                    .clone()
                    .unwrap_or_else(HostName::local)
                    .to_string()
            }),
        });
    let own_places = experiment
        .workloads
        .own()
        .map(|(name, entry)| SketchedTarget {
            name: name.clone(),
            url: entry.place(),
            host: None,
        });
    devices.chain(own_places).collect()
}

fn workloads(experiment: &Experiment, plan: &Plan) -> Vec<SketchedWorkload> {
    let mut found: Vec<SketchedWorkload> = Vec::new();
    for point in plan.heads().into_iter().map(|point| &plan.points[point]) {
        let workload = SketchedWorkload {
            name: point.workload_name.clone(),
            hosts: places(experiment, point.hosts()),
            target: point.target.clone(),
            kind: point.load.kind().to_string(),
        };
        if !found.contains(&workload) {
            found.push(workload);
        }
    }
    found
}

fn faults(experiment: &Experiment) -> Vec<SketchedFault> {
    let sketched = experiment.fault.iter().map(|fault| {
        let from_s = fault.common.at.map_or(0.0, |at| at.0.as_secs_f64());
        SketchedFault {
            name: fault.label(),
            kind: fault.kind_name().to_string(),
            what: fault.what(),
            on: fault.place(),
            from_s,
            to_s: fault
                .common
                .lasts
                .map(|lasts| from_s + lasts.0.as_secs_f64()),
            every_run: fault.common.target.is_empty(),
        }
    });
    sketched.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(text: &str) -> PlanSketch {
        let experiment = Experiment::parse("x.toml", text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        PlanSketch::of(&experiment, &experiment.plan())
    }

    #[test]
    fn a_sketch_has_the_hosts_links_and_faults_of_a_lab() {
        let found = sketch(
            "name = \"far\"\nrepetitions = 2\n[lab]\nhosts = [\"client\", \"server\"]\n[lab.links.wire]\n\
             between = [\"client\", \"server\"]\ndelay = \"5ms\"\nloss = 0.01\n[targets.disk]\nserve = \"memory:1MiB\"\n\
             host = \"server\"\n[workloads.w]\nread = 0.0\nstop = { time = \"10s\" }\n[[fault]]\nname = \"later\"\n\
             link = \"wire\"\nset = { delay = \"9ms\" }\nat = \"2s\"\nfor = \"3s\"\n[[fault]]\ntarget = \"disk\"\n\
             freeze = true\nat = \"7s\"\n",
        );
        assert_eq!(
            (found.runs, found.points, found.run_seconds),
            (2, 1, Some(10.0))
        );
        assert_eq!(found.seconds, TimeEstimate { least: 20.0 });
        let host = |name: &str, roles: Vec<&'static str>| {
            found
                .hosts
                .iter()
                .any(|host| host.name == name && host.roles == roles)
        };
        assert!(
            host("client", vec!["worker"]) && host("server", vec!["target"]),
            "{:?}",
            found.hosts
        );
        assert_eq!(found.hosts.len(), 2);
        assert_eq!(
            (found.links[0].a.as_str(), found.links[0].b.as_str()),
            ("client", "server")
        );
        assert_eq!(found.links[0].impairments, "delay 5ms, loss 0.01");
        assert_eq!(found.targets[0].host.as_deref(), Some("server"));
        assert_eq!(found.workloads[0].hosts, ["client"]);
        let [later, frozen] = &found.faults[..] else {
            panic!("{:?}", found.faults)
        };
        assert_eq!(
            (later.from_s, later.to_s, later.every_run),
            (2.0, Some(5.0), true)
        );
        assert_eq!(
            (frozen.from_s, frozen.to_s, frozen.every_run),
            (7.0, None, false)
        );
    }

    #[test]
    fn a_run_without_a_stated_time_has_none_and_urls_show_no_secrets() {
        let found = sketch(
            "name = \"x\"\n[targets.a]\nurl = \"iscsi://me%geheim@127.0.0.1/iqn.x/0\"\n\
             [workloads.w]\nread = 0.0\nstop = { requests = 5 }\n",
        );
        assert_eq!(found.run_seconds, None);
        let text = serde_json::to_string(&found).expect("JSON");
        assert!(
            !text.contains("geheim") && text.contains("me%***@"),
            "{text}"
        );
        assert_eq!(found.writes.len(), 1);
        assert_eq!(
            (found.hosts.len(), found.hosts[0].roles.as_slice()),
            (1, &["worker"][..])
        );
    }
}
