//! The output of `--check`: what an experiment would run, how long it would take, and what it would write to.

use std::collections::BTreeSet;
use std::time::Duration;

use brunt_core::units::counted;

use super::settings::changed_settings;
use super::table::recurring;
use crate::experiment::{Experiment, Plan};
use crate::fault::{Overlap, Together, overlaps};
use crate::host::HostName;
use crate::role::{Launch, PlannedRole};

/// The output of `--check`: what would run, how long, and what would be written to.
pub fn describe(experiment: &Experiment, plan: &Plan) -> Vec<String> {
    let (points, runs) = (plan.heads().len(), plan.runs.len());
    let mut lines = vec![format!(
        "{}: {}, {}, {} (seed {})",
        experiment.name,
        counted(points, "point"),
        counted(experiment.repetitions as usize, "repetition"),
        counted(runs, "run"),
        experiment.seed
    )];
    lines.push(duration(plan.time_min, plan.open_ended));
    if let Some(goal) = experiment.precision_goal() {
        let most = goal
            .time_max
            .map_or(String::new(), |time| format!(", none started after {time}"));
        let (half, runs) = (goal.half_width * 100.0, goal.repetitions_max);
        lines.push(format!(
            "repeats each point until ± {half}%, with at most {runs} runs{most}"
        ));
    }
    lines.extend(experiment.roles().iter().filter_map(role));
    lines.extend(entries(experiment));
    lines.extend(settings(experiment));
    for (name, url, allowed) in &plan.written {
        let what = match allowed {
            true => "will be overwritten, regardless of its contents (allow_overwrite)",
            false => {
                "will be written; refused if it contains a file system, a partition table or other \
                known data"
            }
        };
        lines.push(format!("target {name} ({url}) {what}"));
    }
    lines.extend(probes(experiment));
    lines.extend(profile(experiment));
    for point in &plan.points {
        let indent = if point.part_of.is_some() {
            "    "
        } else {
            "  "
        };
        lines.push(format!(
            "{indent}{}: {}",
            point.label,
            point.load.describe()
        ));
    }
    lines.extend(phases(plan));
    lines.extend(super::engine::planned(plan));
    lines.extend(faults(experiment));
    lines.extend(overlapping(experiment));
    lines
}

/// Describes a target or service that the experiment starts itself.
fn role(planned: &PlannedRole) -> Option<String> {
    let (name, kind) = (&planned.name, planned.role.info());
    match planned.role.launch() {
        Launch::Process { .. } => {
            let of = planned
                .role
                .luns()
                .map_or(String::new(), |luns| format!(": {}", luns.join(" ")));
            let is_here = planned.host == HostName::local();
            let on = if is_here {
                String::new()
            } else {
                format!(" on host {}", planned.host)
            };
            Some(format!(
                "target {name} is served{on} by its own process (brunt {}){of}",
                kind.name
            ))
        }
        Launch::Kept => Some(format!("service {name} is started on {}", planned.host)),
        Launch::Within => None,
    }
}

/// The settings of each workload that differ from the defaults, except those that the sweep varies.
fn settings(experiment: &Experiment) -> impl Iterator<Item = String> {
    let axes = experiment.sweep.swept();
    let workloads = experiment.workloads.on_targets();
    workloads.filter_map(move |(name, workload)| {
        let swept = match experiment.is_preparation(name) {
            true => &[],
            false => &axes[..],
        };
        let settings = changed_settings(workload, swept);
        (!settings.is_empty())
            .then(|| format!("settings of workload {name}: {}", settings.join(", ")))
    })
}

/// What is sampled during runs, and where.
fn probes(experiment: &Experiment) -> Option<String> {
    if !experiment.probes.is_on() {
        return None;
    }
    let names: Vec<&str> = experiment
        .probes
        .chosen()
        .iter()
        .map(|probe| probe.name)
        .collect();
    let elsewhere = experiment.probed_hosts();
    let on = if elsewhere.is_empty() {
        String::new()
    } else {
        format!(" here, on {}", elsewhere.join(", "))
    };
    Some(format!(
        "probes every {}{on}: {}",
        experiment.probes.interval,
        names.join(", ")
    ))
}

/// Whether functions are sampled, and if not, why.
fn profile(experiment: &Experiment) -> Option<String> {
    let settings = experiment.profile?;
    Some(match brunt_profile::availability(settings) {
        Ok(None) => format!(
            "profile: {} samples of running functions per second of each processor, and CPU times",
            settings.hz
        ),
        Ok(Some(why)) => format!("profile: CPU times only; {why}"),
        Err(error) => format!("profile: {error}"),
    })
}

/// The faults of each run, and when they happen.
fn faults(experiment: &Experiment) -> impl Iterator<Item = String> {
    let written = experiment.fault.iter().enumerate();
    let written = written.filter(|(_, fault)| fault.is_written());
    written.map(|(index, fault)| {
        let time = |time: Option<brunt_core::Span>| time.map(|time| time.to_string());
        let when = match (time(fault.common.at), time(fault.common.lasts)) {
            (None, _) => " for the whole run".to_string(),
            _ if fault.common.occurrence.is_some() => {
                format!(", {}", recurring::planned(&experiment.fault[index..]))
            }
            (Some(at), None) => format!(" from {at}"),
            (Some(at), Some(lasts)) => format!(" at {at} for {lasts}"),
        };
        format!("fault on {}: {}{when}", fault.place(), fault.what())
    })
}

/// Faults that overlap; each pair is listed once.
fn overlapping(experiment: &Experiment) -> Vec<String> {
    let mut lines = Vec::new();
    let mut seen = BTreeSet::new();
    for Overlap {
        first,
        second,
        together,
    } in overlaps(&experiment.fault, experiment)
    {
        // Impossible combinations were refused when the file was read.
        if let Together::Both(how) = together {
            let (a, b) = (&experiment.fault[first], &experiment.fault[second]);
            let line = format!("faults '{}' and '{}' overlap: {how}", a.name(), b.name());
            // Occurrences of two faults may overlap several times.
            if seen.insert(line.clone()) {
                lines.push(line);
            }
        }
    }
    lines
}

/// The minimum duration of the runs; the time to start services and to prepare runs is not known in advance.
fn duration(least: Duration, open_ended: bool) -> String {
    let seconds = least.as_secs();
    let more = if open_ended {
        ", plus the time for its requests and bytes"
    } else {
        ""
    };
    match seconds {
        0 if open_ended && least.is_zero() => {
            "duration depends on its requests and bytes".to_string()
        }
        0 => format!("takes at least {:.1} s{more}", least.as_secs_f64().max(0.1)),
        _ => {
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            format!("takes at least {hours}:{minutes:02}:{seconds:02}{more}")
        }
    }
}

/// Describes loads with their own location, such as file systems, and the guests on which some of them may run.
fn entries(experiment: &Experiment) -> Vec<String> {
    let hosts = experiment.hosts().unwrap_or_default();
    let guest = |(host, service): (&HostName, &str)| {
        format!("host {host} is a guest: service {service} runs it")
    };
    let mut lines: Vec<String> = hosts.guests().map(guest).collect();
    for (name, entry) in experiment.workloads.own() {
        let hosts = match entry.hosts() {
            [] => String::new(),
            hosts => format!(" on {}", hosts.join(" + ")),
        };
        lines.push(format!(
            "{} {name}: {}{hosts}",
            entry.noun(),
            entry.describe()
        ));
    }
    lines
}

/// The phases of each repetition, in order.
fn phases(plan: &Plan) -> impl Iterator<Item = String> {
    let numbered = (1..).zip(&plan.phases);
    numbered.map(|(number, phase)| {
        let workloads = phase.workloads.join(", ");
        let mut line = format!("phase {number}: {workloads}");
        if !phase.name.is_empty() {
            line = format!("phase {number}, {}: {workloads}", phase.name);
        }
        if phase.once {
            line += ", before the first repetition only";
        }
        if let Some(wait) = &phase.wait_for {
            line += &format!("; waits for: {}", wait.command.join(" "));
        }
        line
    })
}
