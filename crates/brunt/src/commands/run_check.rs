//! `brunt run --check`: prints what an experiment would do, and whether its workloads fit its targets, without
//! executing a run. Called by `super::run`.
//!
//! The rule: plain `--check` opens nothing and contacts no host, so an experiment can be checked on any machine;
//! whatever it rejects, a run would reject too.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use brunt_block::backends::join::JoinedBackend;
use brunt_block::{Backend, DeviceInfo, OpenError, preview_url_with};
use brunt_load::LoadError;
use brunt_load::load::LoadTarget;
use brunt_result::summary;
use brunt_study::experiment::{Experiment, Plan, Point, Target};
use brunt_study::fault::overlaps;
use brunt_study::startup::{self, Ground};
use brunt_study::study::describe;
use serde_json::{Value, json};

use super::opener::TargetOpener;
use super::{memory_need, run, target};
use crate::cli::{Done, Failure, Output};
use crate::devices;
use crate::lab::WatchedAt;

/// What `--check` may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Check {
    /// Open no targets
    Closed,
    /// Build the lab, start services and served targets, open every target (on other hosts too), then close
    /// everything again
    Open,
}

/// Prints what a run would do, and rejects what can't be run. Returns the object of `--json`.
pub(super) fn check(
    experiment: &Experiment,
    plan: &mut Plan,
    how: Check,
    folder: &Path,
    output: &Output,
) -> Result<Value, Failure> {
    experiment
        .link_warnings()
        .into_iter()
        .for_each(|warning| output.note(warning));
    match how {
        Check::Closed => {
            let notes = check_closed(experiment, plan, Inputs::Read)?;
            notes.into_iter().for_each(|note| output.note(note));
            // A trace may exist only on the machine that will run the experiment.
            if let Err(error) = plan.find_written() {
                output.note(error);
            }
            memory_need::note_run(experiment, plan, output);
        }
        Check::Open => {
            let hosts = experiment.hosts().map_err(Failure::usage)?;
            let (lab, _, scratch) = run::enter(experiment, &hosts, WatchedAt::default())?;
            plan.find_written().map_err(Failure::usage)?;
            memory_need::note_run(experiment, plan, output);
            plan.check_engines().map_err(Failure::usage)?;
            let ground = Ground::without_results(&hosts, lab.as_ref(), scratch);
            let (opener, interrupted) = (TargetOpener { plan, output }, output.interrupt_flag());
            let started = startup::start(experiment, plan, ground, &opener, interrupted)?;
            fit_opened(plan, &started.opened.targets)?;
            open_on_other_hosts(plan, output)?;
            started.stop().map_err(Failure::failed)?;
        }
    }
    describe(experiment, plan)
        .into_iter()
        .for_each(|line| output.line(line));
    let taken = folder.join(summary::FILE_NAME).exists();
    output.line(match taken {
        true => format!(
            "{} already contains results; choose another folder with --out",
            folder.display()
        ),
        false => format!("results would go to {}", folder.display()),
    });
    Ok(json!({
        "name": experiment.name,
        "points": plan.points,
        "runs": plan.runs.len(),
        "time_min_s": plan.time_min.as_secs_f64(),
        "open_ended": plan.open_ended,
        "written": plan.written,
        "overlapping_faults": overlaps(&experiment.fault, experiment),
        "results": folder,
        "results_exist": taken,
    }))
}

/// Whether to read the inputs of loads, such as traces, to check that they fit. Reading them may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inputs {
    /// Read them.
    Read,
    /// Leave reading them to the run.
    Leave,
}

/// Rejects what can't be run, as far as that can be determined without opening anything. Returns notes for the user.
pub(super) fn check_closed(
    experiment: &Experiment,
    plan: &Plan,
    inputs: Inputs,
) -> Result<Vec<String>, Failure> {
    check_options(experiment, plan)?;
    let (infos, notes) = foreseen(experiment, plan)?;
    fit(
        plan,
        &infos
            .iter()
            .map(|(name, info)| (name.as_str(), info))
            .collect(),
        inputs,
    )?;
    Ok(notes)
}

/// Checks the URL options of targets that the experiment serves, and options that its sweep varies.
fn check_options(experiment: &Experiment, plan: &Plan) -> Done {
    // The real port is chosen when the target is served.
    let somewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    for (name, target) in &experiment.targets {
        let address = target.serve.as_ref().map(|_| somewhere);
        if target.is_of_service() {
            continue;
        }
        for (_, opened) in experiment.as_opened(name) {
            let url = experiment.url_of(&opened, address);
            let points = plan.points.iter();
            let mut swept: Vec<_> = points.filter_map(|point| point.options.get(name)).collect();
            swept.dedup();
            let urls = swept.iter().map(|options| options.applied_to(&url));
            for url in urls.chain(address.map(|_| url.clone())) {
                match preview_url_with(&url, &devices::BACKENDS) {
                    // The path may exist on another host.
                    Ok(_) | Err(OpenError::Os { .. }) => {}
                    Err(error) => {
                        let what = format!("target {name}: {error}");
                        return Err(devices::open_failure(&error, what));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The expected properties of the targets' devices, as far as known, and notes on why others are unknown.
fn foreseen(
    experiment: &Experiment,
    plan: &Plan,
) -> Result<(BTreeMap<String, DeviceInfo>, Vec<String>), Failure> {
    let (mut infos, mut notes) = (BTreeMap::new(), Vec::new());
    let served_remotely = experiment.served_remotely();
    for (name, target) in experiment
        .targets
        .iter()
        .filter(|(_, target)| !target.is_of_service())
    {
        // Device names belong to the host that opens them: for a served target, the host that serves it.
        let elsewhere = match target.serve {
            Some(_) => served_remotely.iter().any(|(served, _)| served == name),
            None => plan.is_remote(name),
        };
        for url in urls(target)? {
            let found = match preview_url_with(&url, &crate::devices::BACKENDS) {
                Ok(found) => found,
                // Paths belong to the host that opens them.
                Err(OpenError::Os { .. }) if elsewhere => continue,
                // The path may exist on the machine that will run the experiment.
                Err(OpenError::Os { source, path, .. }) if source.kind() == ErrorKind::NotFound => {
                    notes.push(format!(
                        "{name}: {} does not exist on this machine",
                        path.display()
                    ));
                    continue;
                }
                Err(error) => {
                    return Err(devices::open_failure(
                        &error,
                        format!("target {name}: {error}"),
                    ));
                }
            };
            // If a target serves several LUNs, keep the one that is measured.
            if let Some(info) = found.filter(|_| !elsewhere)
                && target_url(target)?.as_deref() == Some(url.as_str())
            {
                infos.insert(name.clone(), info);
            }
        }
    }
    Ok((infos, notes))
}

/// Lets other hosts open what their workloads need, as before a run.
fn open_on_other_hosts(plan: &Plan, output: &Output) -> Done {
    for point in plan.points.iter().filter(|point| !point.hosts().is_empty()) {
        let notes = point
            .load
            .open(&LoadTarget::default(), output.interrupt_flag());
        let notes = notes.map_err(|error| Failure::failed(format!("{}: {error}", point.label)))?;
        notes.into_iter().for_each(|note| output.note(note));
    }
    Ok(())
}

/// Everything that a target opens: its URL, or the URLs of the LUNs that it serves.
fn urls(target: &Target) -> Result<Vec<String>, Failure> {
    match target.role() {
        None => Ok(vec![target.url.clone()]),
        Some(role) => role
            .luns()
            .unwrap_or_default()
            .iter()
            .map(|lun| target::lun_url(lun))
            .collect(),
    }
}

/// The URL of the device that is measured; a sink has none.
pub(super) fn target_url(target: &Target) -> Result<Option<String>, Failure> {
    match target.role() {
        None => Ok(Some(target.url.clone())),
        Some(role) if role.luns().is_none() => Ok(None),
        Some(_) => target::lun_url(target.place()).map(Some),
    }
}

/// Checks that the workloads of all points fit their opened targets.
pub(super) fn fit_opened(plan: &Plan, targets: &BTreeMap<String, Arc<dyn Backend>>) -> Done {
    let infos = targets
        .iter()
        .map(|(name, backend)| (name.as_str(), backend.info()))
        .collect();
    fit(plan, &infos, Inputs::Read)
}

/// Checks that the workloads of all points fit the devices with these names.
fn fit(plan: &Plan, infos: &BTreeMap<&str, &DeviceInfo>, inputs: Inputs) -> Done {
    // Before anything is opened, the devices of a target are only known by the target's name.
    let info_of = |point: &Point, name: &str| {
        let device = point.device_of(name);
        infos
            .get(device.as_str())
            .or_else(|| infos.get(name))
            .copied()
    };
    // Other hosts report mismatches on their side themselves.
    let points = plan.points.iter().enumerate();
    for (index, point) in points.filter(|(_, point)| point.hosts().is_empty()) {
        let wrong = |error: &dyn Display| Failure::usage(format!("{}: {error}", point.label));
        let joined: Option<Vec<&DeviceInfo>> = point
            .targets
            .iter()
            .map(|name| info_of(point, name))
            .collect();
        if let Some(joined) = joined.filter(|_| plan.joins_targets(index)) {
            JoinedBackend::check(&joined).map_err(|error| wrong(&LoadError::Join(error)))?;
        }
        if inputs == Inputs::Leave && point.load.input().is_some() {
            continue;
        }
        for name in &point.targets {
            if let Some(info) = info_of(point, name) {
                let fits = point.load.check_target(info, name);
                fits.map_err(|error| wrong(&error))?;
            }
        }
    }
    Ok(())
}
