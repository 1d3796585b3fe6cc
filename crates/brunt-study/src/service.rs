//! The services of a running experiment: started in dependency order before targets are opened, and ended in reverse
//! order after the last run. Each service is a role like those that serve targets, on this machine, in its lab, or on
//! another host.
//!
//! The rule: whatever fails, all services that were started are ended, and then their folders are removed. No service
//! is started anywhere before all hosts have agreed to start theirs.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brunt_host::Fleet;
use brunt_lab::service::{KeeperLimits, KeeperOrder, ReadyPurpose, ReadyWhen, ServiceProgram};
use brunt_lab::{ServiceFolder, stage};

use crate::experiment::{Experiment, ServiceCommand, ServiceEntry, ServiceHealthy, ServicePlace};
use crate::host::{HostName, Hosts, LaunchError, Launcher, NoHost};
use crate::lab::BuiltLab;
use crate::role::{self, AdmittedService, Role, RoleError, ServingHost};

/// Health commands have no log: like the commands of `ready`, they are repeated too often to keep what they print.
const NO_LOG: &str = "/dev/null";

/// Where services may run.
pub struct ServiceEnvironment<'a> {
    /// All hosts of the experiment.
    pub hosts: &'a Hosts,
    /// The experiment's lab, if it has one.
    pub lab: Option<&'a BuiltLab>,
    /// Remote hosts, which must already be connected.
    pub fleet: Option<&'a Arc<Fleet>>,
    /// The folder for files of services on this machine and in its lab.
    pub scratch: ServiceFolder,
    /// The folder for the logs of all services.
    pub logs: &'a Path,
}

/// The running services. Dropping this ends them.
pub struct Services {
    /// The services' roles, in start order.
    started: Vec<(String, Arc<dyn Role>)>,
    /// The services' folders on remote hosts, by service.
    far_folders: BTreeMap<String, PathBuf>,
    /// The addresses of hosts, passed to services.
    addresses: BTreeMap<HostName, IpAddr>,
    scratch: ServiceFolder,
    /// Empty once the hook has taken them.
    gates: Vec<HealthGate>,
}

/// Waits until a service is healthy: on the service's host, a keeper runs the health command like a service that is
/// ready once the command succeeds.
pub struct HealthGate {
    /// The service's role.
    pub role: Arc<dyn Role>,
    service: String,
    place: GatePlace,
}

/// Where a gate's command runs.
enum GatePlace {
    /// On this machine, or on a host of its lab.
    Here {
        order: KeeperOrder,
        launcher: Arc<dyn Launcher>,
    },
    /// Another machine.
    Far {
        program: ServiceProgram,
        needs_root: bool,
        at: ServingHost,
    },
}

impl HealthGate {
    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Waits until the command succeeds or `interrupted` is set.
    ///
    /// # Errors
    /// The command did not succeed in time, or was interrupted.
    pub fn wait(&self, interrupted: &Arc<AtomicBool>) -> Result<(), RoleError> {
        let name = "its health command";
        let healthy = match &self.place {
            GatePlace::Here { order, launcher } => {
                role::keep(name, order, Arc::clone(launcher), interrupted)?
            }
            GatePlace::Far {
                program,
                needs_root,
                at,
            } => {
                let folder = folder_of_gate(&self.service);
                let log = Path::new(NO_LOG);
                let admitted = role::admit_remote(&folder, program.clone(), *needs_root, log, at)?;
                admitted.run(BTreeMap::new(), interrupted)?
            }
        };
        healthy.stop()
    }
}

/// The folder of a service's health command; no service can have this name.
fn folder_of_gate(service: &str) -> String {
    format!("{service}+healthy")
}

/// Why services could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// One of the services does not start.
    #[error("{source}")]
    Role {
        /// The path of the service's log.
        log: PathBuf,
        /// The error.
        source: RoleError,
    },
    /// A folder cannot be created.
    #[error("cannot create the folder {}: {source}", .path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Nothing can be started on a host.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Unknown host.
    #[error(transparent)]
    Host(#[from] NoHost),
    /// A service needs root, which isn't available on this machine.
    #[error("service {service} needs root privileges on this machine (needs_root)")]
    NeedsRoot {
        /// The service.
        service: String,
    },
    /// The user interrupted the start.
    #[error("interrupted while services were being started")]
    Interrupted,
}

impl ServicesError {
    /// What the user should look at or change.
    pub fn advice(&self) -> Option<String> {
        match self {
            // The log of a service that was refused is empty.
            ServicesError::Role { log, .. } => {
                let is_empty = std::fs::metadata(log).map_or(true, |log| log.len() == 0);
                (!is_empty).then(|| format!("see its full output in {}", log.display()))
            }
            ServicesError::Folder { .. } => Some("set TMPDIR to a writable folder".into()),
            ServicesError::NeedsRoot { .. } => {
                Some("run brunt as root, in a container with all capabilities".into())
            }
            ServicesError::Launch(_) | ServicesError::Host(_) | ServicesError::Interrupted => None,
        }
    }
}

impl Services {
    /// Starts the experiment's services, each once the services that it waits for are ready.
    ///
    /// # Errors
    /// A service doesn't start; the services already started are ended. None is started if one would lack privileges
    /// that it needs, or if a host allows no services.
    pub fn start(
        experiment: &Experiment,
        ground: ServiceEnvironment<'_>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Services, ServicesError> {
        let ServiceEnvironment {
            hosts,
            lab,
            fleet,
            scratch,
            logs,
        } = ground;
        check_privileges(experiment, hosts)?;
        make(logs)?;
        let log_of = |name: &str| logs.join(format!("{name}.log"));
        // Remove logs of an earlier attempt with this results folder.
        experiment
            .services
            .keys()
            .for_each(|name| drop(std::fs::remove_file(log_of(name))));
        let addresses = addresses(experiment, hosts, lab)?;
        let mut services = Services {
            started: Vec::new(),
            far_folders: BTreeMap::new(),
            addresses,
            scratch,
            gates: Vec::new(),
        };
        let mut admitted = services.admit(experiment, hosts, fleet, &log_of, interrupted)?;
        let order = experiment.services_in_order();
        for name in order.expect("a file whose services wait for themselves was refused") {
            if interrupted.load(Ordering::Relaxed) {
                return Err(ServicesError::Interrupted);
            }
            let entry = &experiment.services[name];
            let host = experiment.host_of_service(entry);
            let (log, mut environment) =
                (log_of(name), services.environment(&host, experiment, hosts));
            let started = match admitted.remove(name) {
                Some(admitted) => admitted.run(environment, interrupted),
                None => {
                    let launcher = hosts.find(&host)?.launcher(lab)?;
                    if let Ok(program) = launcher.program() {
                        environment
                            .insert("BRUNT_PROGRAM".to_string(), program.display().to_string());
                    }
                    let mut program = program(entry);
                    program.environment.extend(environment);
                    let order = KeeperOrder {
                        private: entry.private.clone(),
                        ..services.order(name, program, &log)
                    };
                    make(&order.folder)?;
                    role::keep(&format!("service {name}"), &order, launcher, interrupted)
                }
            };
            let role = started.map_err(|source| match interrupted.load(Ordering::Relaxed) {
                true => ServicesError::Interrupted,
                false => ServicesError::Role { log, source },
            })?;
            services.started.push((name.to_string(), role));
        }
        services.add_gates(experiment, hosts, lab, fleet)?;
        Ok(services)
    }

    /// Makes remote hosts prepare to start their services.
    fn admit(
        &mut self,
        experiment: &Experiment,
        hosts: &Hosts,
        fleet: Option<&Arc<Fleet>>,
        log_of: &dyn Fn(&str) -> PathBuf,
        interrupted: &AtomicBool,
    ) -> Result<BTreeMap<String, AdmittedService>, ServicesError> {
        let mut all = BTreeMap::new();
        for (name, entry) in &experiment.services {
            if interrupted.load(Ordering::Relaxed) {
                return Err(ServicesError::Interrupted);
            }
            let host = experiment.host_of_service(entry);
            let Some(fleet) = fleet.filter(|_| hosts.is_remote(&host)) else {
                continue;
            };
            let address = hosts.find(&host)?.serving_address()?;
            let at = ServingHost {
                name: host,
                address,
                fleet: Arc::clone(fleet),
            };
            let log = log_of(name);
            let admitted = role::admit_remote(name, program(entry), entry.needs_root, &log, &at);
            let admitted = admitted.map_err(|source| ServicesError::Role { log, source })?;
            self.far_folders
                .insert(name.clone(), admitted.folder().to_path_buf());
            all.insert(name.clone(), admitted);
        }
        Ok(all)
    }

    /// Adds a gate for each service that has a health command; the command gets the variables of all services.
    fn add_gates(
        &mut self,
        experiment: &Experiment,
        hosts: &Hosts,
        lab: Option<&BuiltLab>,
        fleet: Option<&Arc<Fleet>>,
    ) -> Result<(), ServicesError> {
        for (service, role) in self.started.clone() {
            let entry = &experiment.services[&service];
            let Some(healthy) = &entry.healthy else {
                continue;
            };
            let host = experiment.host_of_service(entry);
            let folder = folder_of_gate(&service);
            let mut program = health_program(entry, healthy);
            program
                .environment
                .extend(self.environment(&host, experiment, hosts));
            let place = match fleet.filter(|_| hosts.is_remote(&host)) {
                Some(fleet) => {
                    let address = hosts.find(&host)?.serving_address()?;
                    let fleet = Arc::clone(fleet);
                    GatePlace::Far {
                        program,
                        needs_root: entry.needs_root,
                        at: ServingHost {
                            name: host,
                            address,
                            fleet,
                        },
                    }
                }
                None => {
                    let order = self.order(&folder, program, Path::new(NO_LOG));
                    make(&order.folder)?;
                    GatePlace::Here {
                        order,
                        launcher: hosts.find(&host)?.launcher(lab)?,
                    }
                }
            };
            self.gates.push(HealthGate {
                role,
                service,
                place,
            });
        }
        Ok(())
    }

    /// Returns the gates of services with a health command, in start order; only the first call returns any.
    pub fn take_gates(&mut self) -> Vec<HealthGate> {
        std::mem::take(&mut self.gates)
    }

    /// The request to the keeper of a program on this machine, with a folder of this name.
    fn order(&self, folder: &str, program: ServiceProgram, log: &Path) -> KeeperOrder {
        // The path must be absolute because the service has another working directory.
        let log = std::path::absolute(log).unwrap_or_else(|_| log.to_path_buf());
        KeeperOrder::of(program, self.scratch.path(), folder, log)
    }

    /// Environment variables for a service on this host, besides the one for its own folder: hosts, the folders of
    /// all services (each on its own host), and the ready services that it can reach.
    fn environment(
        &self,
        host: &HostName,
        experiment: &Experiment,
        hosts: &Hosts,
    ) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::from([("BRUNT_HOST".to_string(), host.to_string())]);
        for (name, address) in &self.addresses {
            variables.insert(variable("HOST", name.as_str()), address.to_string());
        }
        for name in experiment.services.keys() {
            variables.insert(
                variable("FOLDER", name),
                self.folder(name).display().to_string(),
            );
        }
        let is_far = hosts.is_remote(host);
        // Other hosts can't reach services on this machine's loopback.
        let reached = self
            .started
            .iter()
            .filter(|(_, role)| !is_far || hosts.is_remote(role.host()));
        for (name, role) in reached {
            variables.insert(variable("SERVICE", name), role.address().to_string());
        }
        variables
    }

    /// The parent folder of all services' folders.
    pub fn folders(&self) -> &Path {
        self.scratch.path()
    }

    /// The folder of a service, on its host.
    fn folder(&self, name: &str) -> PathBuf {
        self.far_folders
            .get(name)
            .cloned()
            .unwrap_or_else(|| self.scratch.path().join(name))
    }

    /// The services' roles by name, for faults.
    pub fn by_name(&self) -> BTreeMap<String, Arc<dyn Role>> {
        self.started.iter().cloned().collect()
    }

    /// The services' roles, the last one started first.
    pub fn roles(&self) -> impl Iterator<Item = Arc<dyn Role>> {
        self.started.iter().rev().map(|(_, role)| Arc::clone(role))
    }

    /// A target's URL, with placeholders for services replaced.
    pub fn filled(&self, url: &str) -> String {
        ServicePlace::replaced(url, |place| match place {
            ServicePlace::Address(service) => {
                let started = self.started.iter().find(|(name, _)| name == service);
                started.map_or_else(String::new, |(_, role)| role.address().to_string())
            }
            ServicePlace::Folder(service) => self.folder(service).display().to_string(),
        })
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        // The hook has already reported services that died, so errors don't matter here.
        self.roles().for_each(|role| drop(role.stop()));
    }
}

/// Checks that this machine gives each of its services the privileges that it needs.
fn check_privileges(experiment: &Experiment, hosts: &Hosts) -> Result<(), ServicesError> {
    let is_here = |entry: &ServiceEntry| !hosts.is_remote(&experiment.host_of_service(entry));
    let refused = experiment
        .services
        .iter()
        .find(|(_, entry)| entry.needs_root && is_here(entry) && !stage::is_root_of_machine());
    match refused {
        Some((service, _)) => Err(ServicesError::NeedsRoot {
            service: service.clone(),
        }),
        None => Ok(()),
    }
}

/// The description of the service's program for its keeper, on any host.
fn program(entry: &ServiceEntry) -> ServiceProgram {
    let ready = &entry.ready;
    ServiceProgram {
        command: entry.command.words(),
        prepare: entry.prepare.as_ref().map(ServiceCommand::words),
        environment: entry.environment.clone(),
        daemon: entry.daemon,
        ready: ReadyWhen {
            port: ready.port,
            line: ready.line.clone(),
            command: ready.command.as_ref().map(ServiceCommand::words),
            purpose: ReadyPurpose::Start,
            within: entry.within.0,
        },
        limits: KeeperLimits {
            memory_bytes: entry.limits.memory.map(|memory| memory.0),
            files: entry.limits.files,
            log_bytes: entry.limits.log.0,
        },
        stop_within: entry.stop_within.0,
    }
}

/// A program that is ready once the service's health command succeeds, and then waits to be ended.
fn health_program(entry: &ServiceEntry, healthy: &ServiceHealthy) -> ServiceProgram {
    ServiceProgram {
        command: ["sleep", "infinity"].map(String::from).to_vec(),
        prepare: None,
        daemon: false,
        ready: ReadyWhen {
            port: None,
            line: None,
            command: Some(healthy.command.words()),
            purpose: ReadyPurpose::Health,
            within: healthy.within.0,
        },
        ..program(entry)
    }
}

/// The addresses of lab hosts, and of other machines whose addresses this machine knows.
///
/// # Errors
/// A machine that should start a service has no known address.
fn addresses(
    experiment: &Experiment,
    hosts: &Hosts,
    lab: Option<&BuiltLab>,
) -> Result<BTreeMap<HostName, IpAddr>, ServicesError> {
    let mut addresses = BTreeMap::new();
    for (host, _) in hosts.of_lab() {
        addresses.insert(host.clone(), hosts.find(host)?.launcher(lab)?.address());
    }
    for (host, _) in hosts.places() {
        let has_services = experiment
            .services
            .values()
            .any(|entry| experiment.host_of_service(entry) == host);
        match hosts.find(&host)?.serving_address() {
            Ok(address) => drop(addresses.insert(host, address)),
            Err(error) if has_services => return Err(error.into()),
            // The host's name may exist only in ssh's configuration.
            Err(_) => {}
        }
    }
    Ok(addresses)
}

fn make(path: &Path) -> Result<(), ServicesError> {
    let made = std::fs::create_dir_all(path);
    made.map_err(|source| ServicesError::Folder {
        path: path.to_path_buf(),
        source,
    })
}

/// The name of a variable: `BRUNT_HOST_…` for a host, `BRUNT_SERVICE_…` and `BRUNT_FOLDER_…` for a service.
fn variable(kind: &str, name: &str) -> String {
    let word = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    format!(
        "BRUNT_{kind}_{}",
        name.chars().map(word).collect::<String>()
    )
}
