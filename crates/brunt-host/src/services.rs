//! Services that an agent runs for its controller. Services are admitted before any part of the experiment is
//! started, and started by a keeper on this machine ([`brunt_lab::service`]) when the controller orders it; their
//! output is sent back in parts.
//!
//! The rule: a service has its folder from its admission until all of its processes have ended. When the connection
//! ends, for whatever reason, the service is killed immediately; if this program dies, its keeper sees the end of its
//! standard input, and so does the guard of the folders.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use brunt_lab::service::{KEEPER_VARIABLE, KeeperOrder};
use brunt_lab::{ServiceFolder, stage};
use brunt_protocol::{HostService, LOG_BYTES_MAX};

use crate::allow::{AllowList, FaultNotAllowed};
use crate::role_process::{RoleFailure, RoleManner, RoleProcess};
use crate::roles::own_program;

/// Interval between checks of a log for more output after everything in it was sent.
const LOG_POLL: Duration = Duration::from_millis(100);
/// The folder of the services' logs. No service's folder has this name, because service names don't begin with a dot.
const LOGS: &str = ".logs";
/// Maximum length of the name of a service's folder.
const NAME_BYTES_MAX: usize = 100;

/// Why a service was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentServiceError {
    #[error(transparent)]
    NotAllowed(#[from] FaultNotAllowed),
    #[error(
        "it needs root privileges on that machine (needs_root); connect as root, or start the machine's agent as root"
    )]
    NeedsRoot,
    #[error("'{0}' is not a valid folder name")]
    Name(String),
    #[error("cannot create its folder: {0}; set the agent's TMPDIR to a writable folder")]
    Folder(io::Error),
    #[error(
        "cannot start a thread for its log: {0}; end other processes there, or raise the limit (ulimit -u)"
    )]
    Log(io::Error),
    #[error("{0}")]
    Failure(#[from] RoleFailure),
}

/// The folder of all services of a connection, which is created for the first service and removed with the last.
#[derive(Debug, Default)]
pub(crate) struct ServiceFolders(Mutex<Weak<ServiceFolder>>);

impl ServiceFolders {
    fn hold(&self) -> io::Result<Arc<ServiceFolder>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = held.upgrade() {
            return Ok(there);
        }
        let made = Arc::new(ServiceFolder::new()?);
        *held = Arc::downgrade(&made);
        Ok(made)
    }
}

/// An admitted service.
#[derive(Debug)]
pub(crate) struct AgentService {
    service: HostService,
    folders: Arc<ServiceFolder>,
    log: SentLog,
}

impl AgentService {
    /// Creates the folder of a service, if the service is allowed here; its output goes to `log`.
    ///
    /// # Errors
    /// The service is not allowed, needs privileges that this program lacks, or its folder cannot be created.
    pub fn new(
        service: HostService,
        allow: &AllowList,
        folders: &ServiceFolders,
        log: SyncSender<Vec<u8>>,
    ) -> Result<AgentService, AgentServiceError> {
        allow.check_services()?;
        if service.needs_root && !stage::is_root_of_machine() {
            return Err(AgentServiceError::NeedsRoot);
        }
        let parts: Vec<Component<'_>> = Path::new(&service.folder).components().collect();
        let is_plain =
            matches!(parts[..], [Component::Normal(name)] if name == service.folder.as_str());
        let is_odd = service.folder.starts_with('.') || service.folder.contains(char::is_control);
        if !is_plain || is_odd || service.folder.len() > NAME_BYTES_MAX {
            return Err(AgentServiceError::Name(service.folder));
        }
        let folders = folders.hold().map_err(AgentServiceError::Folder)?;
        let logs = folders.path().join(LOGS);
        for folder in [&folders.path().join(&service.folder), &logs] {
            std::fs::create_dir_all(folder).map_err(AgentServiceError::Folder)?;
        }
        let path = logs.join(&service.folder);
        let log = SentLog::start(path, log).map_err(AgentServiceError::Log)?;
        Ok(AgentService {
            service,
            folders,
            log,
        })
    }

    /// The service's folder.
    pub fn folder(&self) -> PathBuf {
        self.folders.path().join(&self.service.folder)
    }

    /// Starts the service, and waits until it is ready or canceled.
    ///
    /// # Errors
    /// The service doesn't start; the error includes its output.
    pub fn start(
        &self,
        more: BTreeMap<String, String>,
        unwanted: Arc<AtomicBool>,
    ) -> Result<RoleProcess, AgentServiceError> {
        let HostService {
            folder,
            address,
            program,
            ..
        } = &self.service;
        let mut program = program.clone();
        program.environment.extend(more);
        let manner = RoleManner::of_service(&program);
        let log = self.log.path.clone();
        let order = KeeperOrder::of(program, self.folders.path(), folder, log).to_text();
        let address = *address;
        let make = move |port| {
            let mut command = Command::new(own_program());
            command.args(["--portal", &SocketAddr::new(address, port).to_string()]);
            command.env(KEEPER_VARIABLE, &order);
            Ok(command)
        };
        Ok(RoleProcess::start_in(Box::new(make), manner, unwanted)?)
    }

    /// Ends the service. After all of its processes have ended, forwards the rest of its output and removes its folder.
    pub fn end(self) {
        self.log.finish();
    }
}

/// Forwards the contents of a growing file, on a separate thread that blocks while the receiver is busy.
#[derive(Debug)]
struct SentLog {
    path: PathBuf,
    /// Set when the file is complete.
    is_whole: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SentLog {
    fn start(path: PathBuf, to: SyncSender<Vec<u8>>) -> io::Result<SentLog> {
        let is_whole = Arc::<AtomicBool>::default();
        let (file, whole) = (path.clone(), Arc::clone(&is_whole));
        let work = move || drop(pass_on(&file, &whole, &to));
        let thread = Some(Builder::new().name("log".into()).spawn(work)?);
        Ok(SentLog {
            path,
            is_whole,
            thread,
        })
    }

    /// Waits until everything has been taken, or the receiver is gone.
    fn finish(mut self) {
        self.is_whole.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .into_iter()
            .for_each(|thread| drop(thread.join()));
    }
}

impl Drop for SentLog {
    fn drop(&mut self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }
}

/// Sends the parts of a file, which may not exist yet, until it is complete.
fn pass_on(path: &Path, is_whole: &AtomicBool, to: &SyncSender<Vec<u8>>) -> io::Result<()> {
    let mut file = None;
    loop {
        // Checked before reading, so that everything added earlier is read below.
        let ends = is_whole.load(Ordering::Relaxed);
        if file.is_none() {
            file = File::open(path).ok();
        }
        let mut part = Vec::new();
        if let Some(file) = &mut file {
            file.take(LOG_BYTES_MAX as u64).read_to_end(&mut part)?;
        }
        match part.is_empty() {
            true if ends => return Ok(()),
            true => std::thread::sleep(LOG_POLL),
            false if to.send(part).is_err() => return Ok(()),
            false => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::sync_channel;

    use brunt_lab::service::{KeeperLimits, ReadyPurpose, ReadyWhen, ServiceProgram};

    use super::*;

    fn service(folder: &str, needs_root: bool) -> HostService {
        let ready = ReadyWhen {
            port: None,
            line: None,
            command: None,
            purpose: ReadyPurpose::Start,
            within: Duration::from_secs(1),
        };
        let program = ServiceProgram {
            command: vec!["true".into()],
            prepare: None,
            environment: BTreeMap::new(),
            daemon: false,
            ready,
            limits: KeeperLimits {
                memory_bytes: None,
                files: None,
                log_bytes: 4096,
            },
            stop_within: Duration::from_secs(1),
        };
        let address = "127.0.0.1".parse().unwrap();
        HostService {
            name: "service x".into(),
            folder: folder.into(),
            address,
            program,
            needs_root,
        }
    }

    /// A service that is not allowed, or whose folder would be outside the folder of all services, gets no folder.
    #[test]
    fn a_disallowed_service_gets_no_folder() {
        let check = |allow: &AllowList, folder: &str, words: &str| {
            let (folders, (sender, _log)) = (ServiceFolders::default(), sync_channel(1));
            let refused =
                AgentService::new(service(folder, false), allow, &folders, sender).unwrap_err();
            assert!(refused.to_string().contains(words), "{refused}");
            assert!(folders.0.lock().unwrap().upgrade().is_none());
        };
        check(
            &AllowList::only(["serve:", "memory:"], &[]).unwrap(),
            "store",
            "--allow service:",
        );
        for odd in ["", ".", "..", ".logs", "a/b", "/tmp/a", "a/", "a\n"] {
            check(&AllowList::everything(), odd, "is not a valid folder name");
        }
        check(
            &AllowList::everything(),
            &"a".repeat(NAME_BYTES_MAX + 1),
            "is not a valid folder name",
        );
    }

    /// All output arrives, in parts that fit into messages, including output written just before the end.
    #[test]
    fn all_output_of_a_service_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (sender, parts) = sync_channel(1);
        let log = SentLog::start(path.clone(), sender).unwrap();
        let mut file = File::create(&path).unwrap();
        let written: Vec<u8> = (0..3 * LOG_BYTES_MAX + 7)
            .map(|index| index as u8)
            .collect();
        let taking = std::thread::spawn(move || parts.iter().collect::<Vec<_>>());
        for part in written.chunks(10_000) {
            file.write_all(part).unwrap();
        }
        log.finish();
        let parts = taking.join().unwrap();
        assert!(
            parts
                .iter()
                .all(|part| (1..=LOG_BYTES_MAX).contains(&part.len()))
        );
        assert_eq!(parts.concat(), written);
    }
}
