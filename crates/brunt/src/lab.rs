//! Runs a command inside a lab: the program starts itself again in new namespaces, and the command continues
//! there. Called before any thread is started.

use brunt_lab::{Entered, stage};
use brunt_study::experiment::{Experiment, LabEntry};
use brunt_study::host::Hosts;
use brunt_study::lab::BuiltLab;

use crate::cli::Failure;

/// Namespaces of our own for this process and all that it starts. Returns in the inner process only; the
/// outer one ends here, as the inner one did.
pub fn on_stage() -> Result<(), Failure> {
    match stage::enter() {
        Ok(Entered::Inside) => Ok(()),
        Ok(Entered::Done(status)) => std::process::exit(i32::from(status)),
        Ok(Entered::Killed(signal)) => {
            Err(Failure::failed(format!("the process in the lab's namespaces was killed by signal {signal}")))
        }
        Err(error) => Err(Failure::failed(&error).advise(error.advice())),
    }
}

/// Builds the lab of an experiment that has one, and puts this thread on the workers' host.
pub fn enter(experiment: &Experiment, entry: &LabEntry, hosts: &Hosts) -> Result<BuiltLab, Failure> {
    on_stage()?;
    let lab =
        BuiltLab::build(entry, hosts, experiment.seed, experiment.congestion).map_err(Failure::failed)?;
    lab.enter().map_err(|error| Failure::failed(format!("cannot enter host {}: {error}", hosts.worker())))?;
    Ok(lab)
}
