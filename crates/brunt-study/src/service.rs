//! The services of an experiment while it runs: started in their order before targets are opened, and ended in the
//! opposite order after the last run. Each is a role like those that serve targets.
//!
//! The rule: whatever fails, those that were started are ended, and their folder is removed after them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brunt_lab::service::{KeeperLimits, KeeperOrder, ReadyWhen};
use brunt_lab::{FOLDERS_VARIABLE, ServiceFolder, stage};

use crate::experiment::{Experiment, ServiceCommand, ServiceEntry, ServicePlace};
use crate::host::{Hosts, LaunchError, Launcher, NoHost};
use crate::lab::BuiltLab;
use crate::role::{self, Role, RoleError};

/// The services that run. Dropping them ends them.
pub struct Services {
    /// In the order in which they were started.
    started: Vec<(String, Arc<dyn Role>)>,
    scratch: ServiceFolder,
}

/// Why services do not run.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// One of them does not start.
    #[error("{source}")]
    Role {
        /// Where its log is.
        log: PathBuf,
        /// Why not.
        source: RoleError,
    },
    /// A folder cannot be made.
    #[error("cannot make the folder {}: {source}", .path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing can be started on a host.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A host is not there.
    #[error(transparent)]
    Host(#[from] NoHost),
    /// One of them needs rights that nobody has here.
    #[error("service {service} needs root's rights over this machine (needs_root)")]
    NeedsRoot {
        /// Which.
        service: String,
    },
    /// The user asked for the end meanwhile.
    #[error("interrupted while services were being started")]
    Interrupted,
}

impl ServicesError {
    /// What to look at.
    pub fn advice(&self) -> Option<String> {
        match self {
            ServicesError::Role { log, .. } => Some(format!("see all that it said in {}", log.display())),
            ServicesError::Folder { .. } => Some("set TMPDIR to a folder that can be written to".into()),
            ServicesError::NeedsRoot { .. } => {
                Some("run it as root, in a container with all of root's capabilities".into())
            }
            ServicesError::Launch(_) | ServicesError::Host(_) | ServicesError::Interrupted => None,
        }
    }
}

impl Services {
    /// Starts those of the experiment, each when those are ready that it waits for; their files go to `scratch`, what
    /// they say to files in `logs`.
    ///
    /// # Errors
    /// One does not start; the others are ended. None is started where one needs rights that this process has not.
    pub fn start(
        experiment: &Experiment,
        hosts: &Hosts,
        lab: Option<&BuiltLab>,
        scratch: ServiceFolder,
        logs: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Services, ServicesError> {
        let mut entries = experiment.services.iter();
        if let Some((service, _)) =
            entries.find(|(_, entry)| entry.needs_root && !stage::is_root_of_machine())
        {
            return Err(ServicesError::NeedsRoot { service: service.clone() });
        }
        make(logs)?;
        let mut services = Services { started: Vec::new(), scratch };
        let order = experiment.services_in_order();
        for name in order.expect("a file whose services wait for themselves was refused") {
            if interrupted.load(Ordering::Relaxed) {
                return Err(ServicesError::Interrupted);
            }
            let entry = &experiment.services[name];
            let host = experiment.host_of_service(entry);
            let launcher = hosts.find(&host)?.launcher(lab)?;
            let environment = services.environment(name, hosts, lab, launcher.as_ref())?;
            let log = logs.join(format!("{name}.log"));
            // Of an earlier attempt with this folder of results.
            let _ = std::fs::remove_file(&log);
            let order = services.order(name, entry, environment, &log);
            make(&order.folder)?;
            let started = role::keep(&format!("service {name}"), &order, launcher);
            let role = started.map_err(|source| ServicesError::Role { log, source })?;
            services.started.push((name.to_string(), role));
        }
        Ok(services)
    }

    /// What is said to the keeper of a service.
    fn order(
        &self,
        name: &str,
        entry: &ServiceEntry,
        environment: BTreeMap<String, String>,
        log: &Path,
    ) -> KeeperOrder {
        let ready = &entry.ready;
        KeeperOrder {
            command: entry.command.words(),
            prepare: entry.prepare.as_ref().map(ServiceCommand::words),
            prepared: self.scratch.path().join(format!(".{name}.prepared")),
            environment: entry.environment.clone().into_iter().chain(environment).collect(),
            folder: self.folder(name),
            private: entry.private.clone(),
            // The service has another working folder.
            log: std::path::absolute(log).unwrap_or_else(|_| log.to_path_buf()),
            daemon: entry.daemon,
            ready: ReadyWhen {
                port: ready.port,
                line: ready.line.clone(),
                command: ready.command.as_ref().map(ServiceCommand::words),
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

    /// What a service finds out from its environment: folders, hosts, and services that are ready.
    fn environment(
        &self,
        name: &str,
        hosts: &Hosts,
        lab: Option<&BuiltLab>,
        here: &dyn Launcher,
    ) -> Result<BTreeMap<String, String>, ServicesError> {
        let text = |path: &Path| path.display().to_string();
        let mut variables = BTreeMap::from([
            ("BRUNT_FOLDER".to_string(), text(&self.folder(name))),
            (FOLDERS_VARIABLE.to_string(), text(self.scratch.path())),
            ("BRUNT_HOST".to_string(), here.host().to_string()),
        ]);
        for (host, _) in hosts.of_lab() {
            let address = hosts.find(host)?.launcher(lab)?.address();
            variables.insert(variable("HOST", host.as_str()), address.to_string());
        }
        for (name, role) in &self.started {
            variables.insert(variable("SERVICE", name), role.address().to_string());
        }
        Ok(variables)
    }

    /// The folder of a service.
    fn folder(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Their roles by name, for faults.
    pub fn by_name(&self) -> BTreeMap<String, Arc<dyn Role>> {
        self.started.iter().cloned().collect()
    }

    /// Their roles, the last one that was started first.
    pub fn roles(&self) -> impl Iterator<Item = Arc<dyn Role>> {
        self.started.iter().rev().map(|(_, role)| Arc::clone(role))
    }

    /// A target's URL with the places of services in it.
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
        // Whether they had died was asked by whoever went along with the runs.
        self.roles().for_each(|role| drop(role.stop()));
    }
}

fn make(path: &Path) -> Result<(), ServicesError> {
    let made = std::fs::create_dir_all(path);
    made.map_err(|source| ServicesError::Folder { path: path.to_path_buf(), source })
}

/// `BRUNT_HOST_…` of a host, `BRUNT_SERVICE_…` of a service.
fn variable(kind: &str, name: &str) -> String {
    let word = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    format!("BRUNT_{kind}_{}", name.chars().map(word).collect::<String>())
}
