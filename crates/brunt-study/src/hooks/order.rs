//! All hooks of an experiment's runs. A new hook gets a file next to this one, and a place in the order here.
//!
//! The rule: hooks begin in this order and end in reverse, so each may rely on the hooks before it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_block::Backend;
use brunt_lab::LabError;
use brunt_lab::link::Settings;
use brunt_probe::{Prober, Watch};

use super::RunHook;
use super::agents::LabAgents;
use super::bridges::HostBridges;
use super::devices::DeviceProbing;
use super::faults::{FaultSchedule, ScheduleError};
use super::health::Health;
use super::host_links::host_links;
use super::hosts::HostProbing;
use super::interfaces::interfaces;
use super::links::links;
use super::noise::NoiseWatch;
use super::probing::Probing;
use super::profiling::Profiling;
use super::roles::Roles;
use super::traffic::traffic;
use crate::experiment::{Experiment, Plan, Point, ProbedAddressError, probed_address};
use crate::lab::BuiltLab;
use crate::role::Role;
use crate::service::HealthGate;

/// Everything that was opened and started for an experiment.
pub struct Started<'a> {
    /// Open targets by name. A target that storage faults affect gets a fault layer.
    pub targets: &'a mut BTreeMap<String, Arc<dyn Backend>>,
    /// All roles, of targets and of services.
    pub roles: &'a [Arc<dyn Role>],
    /// The roles that serve targets, by target.
    pub roles_by_target: &'a BTreeMap<String, Arc<dyn Role>>,
    /// The roles of services, by service.
    pub services: &'a BTreeMap<String, Arc<dyn Role>>,
    /// Health conditions of services to wait for before each run.
    pub gates: Vec<HealthGate>,
    /// The lab of the experiment.
    pub lab: Option<&'a BuiltLab>,
    /// Bridges on other hosts.
    pub bridges: Option<HostBridges>,
    /// Set when the experiment should end.
    pub interrupted: &'a Arc<AtomicBool>,
}

/// Why the hooks for an experiment's runs cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum HooksError {
    /// A fault is impossible in every run.
    #[error(transparent)]
    Fault(#[from] ScheduleError),
    /// The lab's hosts cannot be watched.
    #[error("cannot watch the network of the lab's hosts: {0}")]
    Watch(#[source] io::Error),
    /// The traffic of the lab's links cannot be counted.
    #[error(transparent)]
    Traffic(#[from] LabError),
    /// A link between other machines cannot be probed.
    #[error(transparent)]
    Links(#[from] ProbedAddressError),
}

/// The hooks of an experiment, in order.
///
/// # Errors
/// See [`HooksError`].
pub fn hooks(
    experiment: &Experiment,
    plan: &Plan,
    started: Started<'_>,
) -> Result<Vec<Box<dyn RunHook>>, HooksError> {
    let Started {
        targets,
        roles,
        roles_by_target,
        services,
        gates,
        lab,
        bridges,
        interrupted,
    } = started;
    let fleet = plan.fleet.as_ref();
    // The faults come first, because they change the targets.
    let faults = match experiment.fault.is_empty() {
        true => None,
        false => Some(FaultSchedule::new(
            experiment,
            targets,
            roles_by_target,
            services,
            lab,
            fleet,
        )?),
    };
    let watch = Watch::default();
    let mut hooks: Vec<Box<dyn RunHook>> = Vec::new();
    let of_links = lab.map_or_else(Vec::new, |lab| of_lab(experiment, lab));
    let (settings, mtus): (Vec<_>, Vec<_>) = of_links.into_iter().unzip();
    hooks.extend(lab.map(|lab| links(lab, settings.clone(), mtus)));
    if !roles.is_empty() {
        let goes_on = experiment.continues_without_hosts();
        hooks.push(Box::new(Roles::new(roles.to_vec(), &watch, goes_on)));
    }
    if !gates.is_empty() {
        hooks.push(Box::new(Health::new(gates, interrupted)));
    }
    // Links come before the bridges, whose counts must not include probe packets.
    hooks.extend(between_machines(experiment, plan)?);
    hooks.extend(bridges.map(boxed));
    hooks.push(Box::new(NoiseWatch::default()));
    hooks.extend(probing(experiment, plan, lab, &watch)?);
    if experiment.probes.has_devices() {
        let devices = DeviceProbing::new(experiment, targets, roles_by_target);
        hooks.push(Box::new(devices));
    }
    hooks.extend(faults.map(boxed));
    // The profile comes after the faults, which divide runs into phases.
    let profile = experiment.profile;
    hooks.extend(profile.map(|settings| boxed(Profiling::new(settings, roles.to_vec()))));
    // These start last and end first, because they count the traffic of all other hooks; they need the phases into
    // which faults divide a run.
    hooks.extend(counting(experiment, plan, interrupted));
    if let Some(lab) = lab {
        let idle = experiment.lab.as_ref().and_then(|lab| lab.idle);
        let idle = idle.map(|idle| idle.0);
        hooks.push(traffic(lab, &settings, idle, Arc::clone(interrupted))?);
    }
    Ok(hooks)
}

/// The links' settings and MTUs at a point, by link.
type PointLinks = (BTreeMap<String, [Settings; 2]>, BTreeMap<String, u32>);

/// The settings and MTUs of the lab's links at each point.
fn of_lab(experiment: &Experiment, lab: &BuiltLab) -> Vec<PointLinks> {
    let of_point = |mut point: Point| {
        point.links.retain(|name, _| lab.between(name).is_some());
        (point.links, point.mtus)
    };
    experiment.points().into_iter().map(of_point).collect()
}

/// The hook of links between other machines, if there are any.
fn between_machines(
    experiment: &Experiment,
    plan: &Plan,
) -> Result<Option<Box<dyn RunHook>>, HooksError> {
    let links = experiment.host_links();
    let Some(fleet) = plan.fleet.as_ref().filter(|_| !links.is_empty()) else {
        return Ok(None);
    };
    let hosts = experiment.hosts().unwrap_or_default();
    let addressed = links.into_iter().map(|link| {
        let to = probed_address(&hosts, &link.to);
        to.map(|to| (link, to))
    });
    let addressed = addressed.collect::<Result<Vec<_>, ProbedAddressError>>()?;
    let points = plan.points.iter().map(|point| point.links.clone());
    Ok(Some(host_links(fleet, addressed, points.collect())))
}

/// The hook that counts the bytes of other hosts' interfaces, if the experiment names any.
fn counting(
    experiment: &Experiment,
    plan: &Plan,
    interrupted: &Arc<AtomicBool>,
) -> Option<Box<dyn RunHook>> {
    let hosts = experiment.counted_interfaces();
    let fleet = plan.fleet.as_ref().filter(|_| !hosts.is_empty())?;
    let idle = experiment.host_idle_time();
    Some(interfaces(fleet, hosts, idle, Arc::clone(interrupted)))
}

fn boxed(hook: impl RunHook + 'static) -> Box<dyn RunHook> {
    Box::new(hook)
}

/// Hooks that sample this machine, the lab's hosts and other hosts.
fn probing(
    experiment: &Experiment,
    plan: &Plan,
    lab: Option<&BuiltLab>,
    watch: &Watch,
) -> Result<Vec<Box<dyn RunHook>>, HooksError> {
    let probes = &experiment.probes;
    let mut hooks: Vec<Box<dyn RunHook>> = Vec::new();
    if !probes.is_on() {
        return Ok(hooks);
    }
    let probing = match lab {
        None => Probing::new(Prober::new(probes, watch), Vec::new()),
        Some(lab) => {
            let watching = lab.watched(watch).map_err(HooksError::Watch)?;
            let agents = plan
                .fleet
                .iter()
                .map(|fleet| LabAgents::new(Arc::clone(fleet), watch));
            hooks.extend(agents.map(boxed));
            Probing::new(Prober::in_lab(probes, watch), watching)
        }
    };
    hooks.push(Box::new(probing));
    let others = experiment.probed_hosts();
    if let Some(fleet) = plan.fleet.clone().filter(|_| !others.is_empty()) {
        hooks.push(Box::new(HostProbing::new(fleet, probes, others)));
    }
    Ok(hooks)
}
