//! Why an experiment could not be started.

use brunt_host::{FaultEnd, FleetError};

use crate::fault::DriverError;
use crate::host::{LaunchError, NoHost};
use crate::role::RoleError;
use crate::service::ServicesError;

/// Why an experiment could not be started, except for problems with its devices.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// A target's host is unknown.
    #[error(transparent)]
    Host(#[from] NoHost),
    /// The address at which another machine serves a target is unknown.
    #[error(transparent)]
    Address(LaunchError),
    /// Nothing can be started on a target's host.
    #[error(transparent)]
    Launch(LaunchError),
    /// A host can't be reached.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The user interrupted the connecting to hosts.
    #[error("interrupted while connecting to hosts")]
    Interrupted,
    /// A bridge doesn't start.
    #[error(transparent)]
    Bridge(#[from] FaultEnd),
    /// This machine can't inject a fault.
    #[error("fault '{fault}': {source}")]
    Fault {
        /// The fault.
        fault: String,
        /// What is missing on this machine.
        source: DriverError,
    },
    /// A service doesn't start.
    #[error(transparent)]
    Services(#[from] ServicesError),
    /// A target isn't served.
    #[error("target {source}")]
    Target {
        /// The target's name in the experiment.
        target: String,
        /// The reason.
        source: RoleError,
    },
}

impl StartupError {
    /// Whether the experiment file is wrong, rather than a required resource unavailable.
    pub fn is_mistake(&self) -> bool {
        matches!(self, StartupError::Host(_) | StartupError::Address(_))
    }

    /// What to do about the error: a sentence that starts with a verb.
    pub fn advice(&self) -> Option<String> {
        match self {
            StartupError::Services(error) => error.advice(),
            StartupError::Target { target, .. } => {
                Some(format!("see what [targets.{target}] serves"))
            }
            _ => None,
        }
    }
}
