//! Runs a command inside a lab: the program re-executes itself in new namespaces and continues the command there.
//! Called before any thread is started.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use brunt_lab::{Entered, ServiceFolder, stage};
use brunt_study::experiment::{Experiment, LabEntry};
use brunt_study::host::Hosts;
use brunt_study::lab::BuiltLab;

use crate::cli::{Failure, bind_for};

/// Addresses outside a lab at which a command can be watched, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchedAt {
    /// Address for Prometheus metrics.
    pub metrics: Option<SocketAddr>,
    /// Address of the live page.
    pub live: Option<SocketAddr>,
}

/// Sockets that listen on these addresses.
#[derive(Debug, Default)]
pub struct WatchSockets {
    /// See [`WatchedAt::metrics`].
    pub metrics: Option<TcpListener>,
    /// See [`WatchedAt::live`].
    pub live: Option<TcpListener>,
}

impl WatchSockets {
    /// Starts to listen, without accepting connections yet.
    ///
    /// # Errors
    /// An address is in use or doesn't belong to this machine.
    pub fn listen(at: WatchedAt) -> Result<WatchSockets, Failure> {
        let metrics = bind_for("metrics", at.metrics)?;
        Ok(WatchSockets {
            metrics,
            live: bind_for("the live page", at.live)?,
        })
    }

    /// The descriptors in the order that [`WatchSockets::kept`] expects.
    fn into_descriptors(self) -> Vec<OwnedFd> {
        self.metrics
            .into_iter()
            .chain(self.live)
            .map(OwnedFd::from)
            .collect()
    }

    /// The sockets inherited from another process; `at` says which exist.
    fn kept(at: WatchedAt, descriptors: Vec<OwnedFd>) -> WatchSockets {
        let mut sockets = descriptors.into_iter().map(TcpListener::from);
        let metrics = at.metrics.and_then(|_| sockets.next());
        WatchSockets {
            metrics,
            live: at.live.and_then(|_| sockets.next()),
        }
    }
}

/// A folder for the files of services, which is removed however this process ends.
pub fn scratch() -> Result<ServiceFolder, Failure> {
    ServiceFolder::new().map_err(|error| {
        Failure::failed(format!(
            "cannot create a folder for the files of services: {error}"
        ))
        .advise("set TMPDIR to a writable folder")
    })
}

/// Creates namespaces for this process and everything it starts. Returns only in the inner process; the outer process
/// waits for the inner one and exits with its status.
pub fn on_stage() -> Result<(), Failure> {
    on_stage_with(WatchedAt::default(), false).map(drop)
}

/// Like [`on_stage`], with sockets that listen outside: the outer process binds their addresses. The outer process
/// also creates the folder for services, and removes it however the inner processes end.
fn on_stage_with(
    at: WatchedAt,
    with_services: bool,
) -> Result<(WatchSockets, Option<ServiceFolder>), Failure> {
    let is_inner = stage::is_inner();
    let outer = (with_services && !is_inner).then(scratch).transpose()?;
    let gone = |error| Failure::failed(format!("cannot use the services folder: {error}"));
    let mut handed = match is_inner {
        true => Vec::new(),
        false => WatchSockets::listen(at)?.into_descriptors(),
    };
    if let Some(scratch) = &outer {
        handed.insert(0, scratch.descriptor().map_err(gone)?);
    }
    match stage::enter_with(handed) {
        Ok((Entered::Inside, mut kept)) => {
            let folder = (with_services && !kept.is_empty()).then(|| kept.remove(0));
            let scratch = folder
                .map(|folder| ServiceFolder::of(&folder))
                .transpose()
                .map_err(gone)?;
            Ok((WatchSockets::kept(at, kept), scratch))
        }
        Ok((Entered::Done(status), _)) => {
            // Remove the folder and its guard before this process exits.
            drop(outer);
            std::process::exit(i32::from(status))
        }
        Ok((Entered::Killed(signal), _)) => Err(Failure::failed(format!(
            "the process in the lab's namespaces was killed by signal {signal}"
        ))),
        Err(error) => Err(Failure::failed(&error).advise(error.advice())),
    }
}

/// Builds an experiment's lab and moves this thread to the workers' host. Also creates a folder for the files of
/// services, if the experiment has any.
pub fn enter(
    experiment: &Experiment,
    entry: &LabEntry,
    hosts: &Hosts,
) -> Result<(BuiltLab, Option<ServiceFolder>), Failure> {
    enter_watched(experiment, entry, hosts, WatchedAt::default())
        .map(|(lab, _, scratch)| (lab, scratch))
}

/// Like [`enter`], with sockets outside the lab for metrics and the live page.
pub fn enter_watched(
    experiment: &Experiment,
    entry: &LabEntry,
    hosts: &Hosts,
    at: WatchedAt,
) -> Result<(BuiltLab, WatchSockets, Option<ServiceFolder>), Failure> {
    let (sockets, scratch) = on_stage_with(at, !experiment.services.is_empty())?;
    let lab = BuiltLab::build(entry, hosts, experiment.seed, experiment.congestion)
        .map_err(Failure::failed)?;
    // Ignore a failure: without names, hosts can still be reached by their addresses.
    let _ = lab.lab().publish_names();
    lab.enter().map_err(|error| {
        Failure::failed(format!("cannot enter host {}: {error}", hosts.worker()))
    })?;
    Ok((lab, sockets, scratch))
}
