//! Starts everything that an experiment needs before its first run: hosts, bridges, services, served targets,
//! devices, and the hooks of its runs. Called by the program, which has already entered the lab; each step needs the
//! previous ones.
//!
//! The rule: nothing here implements a protocol or prints. The program opens devices and shows notes
//! ([`DeviceOpener`]).

mod error;
mod targets;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_block::Backend;
use brunt_host::Lane;
use brunt_lab::ServiceFolder;

use crate::experiment::{Experiment, Plan};
use crate::hooks::bridges::HostBridges;
use crate::hooks::{HooksError, RunHook, Started, hooks};
use crate::host::Hosts;
use crate::lab::BuiltLab;
use crate::role::RoleError;
use crate::service::Services;

pub use error::StartupError;
pub use targets::{OpenedTargets, serve, start_services};

/// Opens the devices of targets, using the program's table of backends.
pub trait DeviceOpener {
    /// Why a device can't be used, or why something else can't be started.
    type Error: From<StartupError>;

    /// Opens a device, read-only if no run writes to it.
    ///
    /// # Errors
    /// The device can't be opened.
    fn open(&self, url: &str, read_only: bool) -> Result<Arc<dyn Backend>, Self::Error>;

    /// Checks a device to which runs will write; `url` is that of its target.
    ///
    /// # Errors
    /// The device contains data, and `allowed` is false.
    fn guard(&self, device: &dyn Backend, url: &str, allowed: bool) -> Result<(), Self::Error>;

    /// Checks the devices of all targets together, by their names.
    ///
    /// # Errors
    /// The devices can't be used at the same time.
    fn check(&self, targets: &BTreeMap<String, Arc<dyn Backend>>) -> Result<(), Self::Error>;

    /// Shows the user a note.
    fn note(&self, note: &dyn Display);
}

/// Where the roles of an experiment run.
pub struct Ground<'a> {
    /// Its hosts.
    pub hosts: &'a Hosts,
    /// The experiment's lab, which this process has already entered.
    pub lab: Option<&'a BuiltLab>,
    /// Folder for the files of services, if there are any.
    pub scratch: Option<ServiceFolder>,
    /// Folder for the output of services.
    pub logs: PathBuf,
}

impl<'a> Ground<'a> {
    /// For commands without results: keeps the output of services in the folder of their files.
    pub fn without_results(
        hosts: &'a Hosts,
        lab: Option<&'a BuiltLab>,
        scratch: Option<ServiceFolder>,
    ) -> Ground<'a> {
        // No service's folder can have this name, because none begins with a dot.
        let logs = scratch
            .as_ref()
            .map_or_else(PathBuf::new, |scratch| scratch.path().join(".logs"));
        Ground {
            hosts,
            lab,
            scratch,
            logs,
        }
    }
}

/// Everything that was started for an experiment. Dropping it ends its services, and its bridges unless the hooks have
/// taken them.
pub struct StartedExperiment {
    /// The experiment's targets, and the roles of targets and services.
    pub opened: OpenedTargets,
    bridges: Option<HostBridges>,
}

/// Connects to hosts, then starts bridges, services and served targets, and opens the targets that this machine uses.
///
/// # Errors
/// A part of the experiment cannot be started. Whatever is already running is stopped.
pub fn start<O: DeviceOpener>(
    experiment: &Experiment,
    plan: &Plan,
    ground: Ground<'_>,
    opener: &O,
    interrupted: &Arc<AtomicBool>,
) -> Result<StartedExperiment, O::Error> {
    reach(plan, &experiment.reached_hosts(), ground.lab, interrupted)?;
    // Bridges come before targets, which are opened through them.
    let bridges = start_bridges(experiment, plan)?;
    let notes = bridges.iter().flat_map(HostBridges::notes);
    notes.for_each(|note| opener.note(note));
    let opened = targets::open(experiment, plan, ground, opener, interrupted)?;
    Ok(StartedExperiment { opened, bridges })
}

impl StartedExperiment {
    /// Prepares the hooks for the experiment's runs, which may wrap targets in fault layers. The first call takes the
    /// bridges.
    ///
    /// # Errors
    /// See [`HooksError`].
    pub fn hooks(
        &mut self,
        experiment: &Experiment,
        plan: &Plan,
        lab: Option<&BuiltLab>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Vec<Box<dyn RunHook>>, HooksError> {
        let OpenedTargets {
            targets,
            roles,
            roles_by_target,
            services,
        } = &mut self.opened;
        let gates = services
            .as_mut()
            .map(Services::take_gates)
            .unwrap_or_default();
        let services = services.as_ref().map(Services::by_name).unwrap_or_default();
        let started = Started {
            targets,
            roles,
            roles_by_target,
            services: &services,
            gates,
            lab,
            bridges: self.bridges.take(),
            interrupted,
        };
        hooks(experiment, plan, started)
    }

    /// Ends targets and services.
    ///
    /// # Errors
    /// A target or service had already ended, or doesn't end.
    pub fn stop(&self) -> Result<(), RoleError> {
        self.opened.roles.iter().try_for_each(|role| role.stop())
    }
}

/// Connects to hosts that do more than run workloads; all others are connected when their target is opened. From then
/// on, the lab's hosts can be reached too.
fn reach(
    plan: &Plan,
    hosts: &[String],
    lab: Option<&BuiltLab>,
    interrupted: &AtomicBool,
) -> Result<(), StartupError> {
    if let (Some(fleet), Some(lab)) = (&plan.fleet, lab) {
        fleet.lab_started(lab.hosts().to_vec());
    }
    if let Some(fleet) = plan.fleet.as_ref().filter(|_| !hosts.is_empty())
        && !fleet.connect(hosts, Lane::default(), interrupted)?
    {
        return Err(StartupError::Interrupted);
    }
    Ok(())
}

/// Starts bridges on the other hosts in the path; they forward packets until the result is dropped.
fn start_bridges(
    experiment: &Experiment,
    plan: &Plan,
) -> Result<Option<HostBridges>, StartupError> {
    let wanted = experiment.bridges();
    let Some(fleet) = plan.fleet.as_ref().filter(|_| !wanted.is_empty()) else {
        return Ok(None);
    };
    Ok(Some(HostBridges::start(fleet, wanted, experiment.seed)?))
}
