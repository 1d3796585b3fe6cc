//! Targets: serves those that the experiment serves, and opens those that this machine uses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_block::Backend;
use brunt_host::Fleet;

use super::{DeviceOpener, Ground, StartupError};
use crate::experiment::{Experiment, Plan};
use crate::host::{HostName, Hosts};
use crate::lab::BuiltLab;
use crate::role::{self, Role, ServingHost};
use crate::service::{ServiceEnvironment, Services};

/// The targets of an experiment, and the processes that serve some of them.
pub struct OpenedTargets {
    /// The open targets, by the names of their devices ([`Plan::devices_of`]).
    pub targets: BTreeMap<String, Arc<dyn Backend>>,
    /// Roles of targets and services, in the order in which they are stopped.
    pub roles: Vec<Arc<dyn Role>>,
    /// The role that serves each served target.
    pub roles_by_target: BTreeMap<String, Arc<dyn Role>>,
    /// The experiment's services, if it has any; dropping this ends them.
    pub services: Option<Services>,
}

/// Starts an experiment's services, if it has any.
///
/// # Errors
/// A service doesn't start.
pub fn start_services(
    experiment: &Experiment,
    ground: Ground<'_>,
    fleet: Option<&Arc<Fleet>>,
    interrupted: &Arc<AtomicBool>,
) -> Result<Option<Services>, StartupError> {
    let Ground {
        hosts,
        lab,
        scratch,
        logs,
    } = ground;
    let Some(scratch) = scratch else {
        return Ok(None);
    };
    let ground = ServiceEnvironment {
        hosts,
        lab,
        fleet,
        scratch,
        logs: &logs,
    };
    Ok(Some(Services::start(experiment, ground, interrupted)?))
}

/// Returns a target's URL, and the process that serves it on the target's host if the experiment starts one.
///
/// # Errors
/// The target can't be served.
pub fn serve(
    experiment: &Experiment,
    name: &str,
    hosts: &Hosts,
    lab: Option<&BuiltLab>,
    fleet: Option<&Arc<Fleet>>,
) -> Result<(String, Option<Arc<dyn Role>>), StartupError> {
    let target = &experiment.targets[name];
    let Some(serve) = experiment.served(name) else {
        return Ok((experiment.url_of(target, None), None));
    };
    let host = target.host.clone().unwrap_or_else(HostName::local);
    let known = hosts.find(&host)?;
    let is_far = experiment
        .served_remotely()
        .iter()
        .any(|(served, _)| served == name);
    let role = match fleet.filter(|_| is_far) {
        Some(fleet) => {
            let address = known.serving_address().map_err(StartupError::Address)?;
            let at = ServingHost {
                name: host,
                address,
                fleet: Arc::clone(fleet),
            };
            role::start_remote(name, &serve, experiment.serving_congestion(), &at)
        }
        None => {
            let launcher = known.launcher(lab).map_err(StartupError::Launch)?;
            role::start(
                name,
                role::serving(&serve).as_ref(),
                experiment.serving_arguments(),
                launcher,
            )
        }
    };
    let role = role.map_err(|source| StartupError::Target {
        target: name.to_string(),
        source,
    })?;
    let url = experiment.url_of(target, Some(role.address()));
    let url = role
        .login()
        .map_or_else(|| url.clone(), |login| login.add_to_url(&url));
    Ok((url, Some(role)))
}

/// Starts services and served targets, and opens all targets on this machine; refuses targets whose existing data
/// would be overwritten. Other hosts open their targets themselves, and receive the addresses of served targets.
pub(super) fn open<O: DeviceOpener>(
    experiment: &Experiment,
    plan: &Plan,
    ground: Ground<'_>,
    opener: &O,
    interrupted: &Arc<AtomicBool>,
) -> Result<OpenedTargets, O::Error> {
    let (hosts, lab) = (ground.hosts, ground.lab);
    for fault in &experiment.fault {
        let possible = fault.kind.as_kind().check_machine();
        possible.map_err(|source| StartupError::Fault {
            fault: fault.label(),
            source,
        })?;
    }
    let services = start_services(experiment, ground, plan.fleet.as_ref(), interrupted)?;
    if let (Some(fleet), Some(services)) = (&plan.fleet, &services) {
        fleet.services_run(services.folders().to_path_buf());
    }
    let (targets, roles_by_target) = Default::default();
    let mut opened = OpenedTargets {
        targets,
        roles: Vec::new(),
        roles_by_target,
        services,
    };
    for (name, target) in &experiment.targets {
        let is_remote = plan.is_remote(name);
        // The URLs of these targets weren't known before; send them to the other hosts.
        let is_known_now = target.is_known_late();
        if is_remote && !is_known_now {
            continue;
        }
        if target.is_each_clients_own() {
            tell_clients(experiment, name, plan, opened.services.as_ref());
            continue;
        }
        let (mut url, role) = serve(experiment, name, hosts, lab, plan.fleet.as_ref())?;
        if let Some(services) = &opened.services {
            url = services.filled(&url);
        }
        if let Some(fleet) = plan.fleet.as_ref().filter(|_| is_known_now) {
            fleet.served(name, None).listens(url.clone());
        }
        if let Some(role) = role {
            opened
                .roles_by_target
                .insert(name.clone(), Arc::clone(&role));
            opened.roles.push(role);
        }
        if !is_remote {
            open_devices(plan, name, &url, opener, &mut opened.targets)?;
        }
    }
    opener.check(&opened.targets)?;
    opened
        .roles
        .extend(opened.services.iter().flat_map(Services::roles));
    Ok(opened)
}

/// Opens a target once for each of its devices ([`Plan::devices_of`]).
fn open_devices<O: DeviceOpener>(
    plan: &Plan,
    name: &str,
    url: &str,
    opener: &O,
    targets: &mut BTreeMap<String, Arc<dyn Backend>>,
) -> Result<(), O::Error> {
    let written = plan.written.iter().find(|(written, _, _)| written == name);
    for (device, options) in plan.devices_of(name) {
        let backend = opener.open(&options.applied_to(url), written.is_none())?;
        if let Some((_, url, allowed)) = written {
            opener.guard(backend.as_ref(), url, *allowed)?;
        }
        for note in backend.info().remarks() {
            opener.note(&format_args!("{device}: {note}"));
        }
        targets.insert(device, backend);
    }
    Ok(())
}

/// Sends each client the URL of its own target, completed with values provided by services.
fn tell_clients(experiment: &Experiment, name: &str, plan: &Plan, services: Option<&Services>) {
    let (Some(fleet), Some(services)) = (&plan.fleet, services) else {
        return;
    };
    for (host, target) in experiment.as_opened(name) {
        let url = services.filled(&experiment.url_of(&target, None));
        fleet
            .served(name, host.as_ref().map(HostName::as_str))
            .listens(url);
    }
}
