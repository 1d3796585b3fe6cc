//! Runs a command inside a lab: the program starts itself again in new namespaces, and the command continues
//! there. Called before any thread is started.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use brunt_lab::{Entered, stage};
use brunt_study::experiment::{Experiment, LabEntry};
use brunt_study::host::Hosts;
use brunt_study::lab::BuiltLab;

use crate::cli::Failure;
use crate::metrics;

/// Namespaces of our own for this process and all that it starts. Returns in the inner process only; the
/// outer one ends here, as the inner one did.
pub fn on_stage() -> Result<(), Failure> {
    on_stage_with(None).map(drop)
}

/// The same, with a socket that listens outside: `metrics` is where, and the outer process takes it.
pub fn on_stage_with(metrics: Option<SocketAddr>) -> Result<Option<TcpListener>, Failure> {
    let listener = match stage::is_inner() {
        true => None,
        false => metrics::listen(metrics)?,
    };
    match stage::enter_with(listener.map(OwnedFd::from)) {
        Ok((Entered::Inside, kept)) => Ok(kept.map(TcpListener::from)),
        Ok((Entered::Done(status), _)) => std::process::exit(i32::from(status)),
        Ok((Entered::Killed(signal), _)) => {
            Err(Failure::failed(format!("the process in the lab's namespaces was killed by signal {signal}")))
        }
        Err(error) => Err(Failure::failed(&error).advise(error.advice())),
    }
}

/// Builds the lab of an experiment that has one, and puts this thread on the workers' host.
pub fn enter(experiment: &Experiment, entry: &LabEntry, hosts: &Hosts) -> Result<BuiltLab, Failure> {
    enter_watched(experiment, entry, hosts, None).map(|(lab, _)| lab)
}

/// The same, with a socket outside the lab on which metrics are asked for.
pub fn enter_watched(
    experiment: &Experiment,
    entry: &LabEntry,
    hosts: &Hosts,
    metrics: Option<SocketAddr>,
) -> Result<(BuiltLab, Option<TcpListener>), Failure> {
    let listener = on_stage_with(metrics)?;
    let lab =
        BuiltLab::build(entry, hosts, experiment.seed, experiment.congestion).map_err(Failure::failed)?;
    // A convenience: where it cannot be had, hosts still have addresses.
    let _ = lab.lab().publish_names();
    lab.enter().map_err(|error| Failure::failed(format!("cannot enter host {}: {error}", hosts.worker())))?;
    Ok((lab, listener))
}
