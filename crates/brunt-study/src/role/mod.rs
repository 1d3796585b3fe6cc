//! Roles: the components of an experiment. Each kind has a file here and a line in [`ROLES`]: targets and sinks are
//! processes on hosts, which `brunt run` starts for `serve = …`; services are other programs, each supervised by such
//! a process; workers and the prober are threads of the experiment's own process. Faults freeze, kill and restart
//! started processes through [`Role`].
//!
//! The rule: a role ends with the experiment, however that ends, and an unexpected exit is detected. A run in which a
//! role died unexpectedly is invalid, and the message about it includes the role's last output.

mod answer;
mod by_process;
pub(crate) mod death;
mod kind;
mod kinds;
mod login;
mod prober;
mod remote;
mod running;
mod serve;
mod service;
mod sink;
mod target;
#[cfg(test)]
mod test_only;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_host::{FarRoleError, RoleDeath, RoleFailure, last_lines};
use brunt_lab::service::KeeperOrder;
use by_process::ProcessRole;
pub use kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};
pub use kinds::{ROLES, RoleEntry, planned, serving};
pub use login::RoleLogin;
pub use remote::{AdmittedService, ServingHost, admit_remote, start_remote};
pub use running::Role;
pub use serve::Serve;
pub use target::TARGET_NAME;

use crate::host::Launcher;
use brunt_result::void::VoidReason;

/// Why a role doesn't work.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The role could not be started, signalled or waited for.
    #[error("{name}: {failure}")]
    Failed {
        /// The role.
        name: String,
        /// The failure.
        failure: RoleFailure,
    },
    /// The role's host refused.
    #[error("{name}: {error}")]
    Far {
        /// The role.
        name: String,
        /// The host's error.
        error: FarRoleError,
    },
    /// The role's host was lost.
    #[error("{name}: {error}")]
    HostLost {
        /// The role.
        name: String,
        /// The host's error.
        error: FarRoleError,
    },
    /// The role has no separate process.
    #[error(
        "{name} is part of the process that runs the experiment and cannot be started separately"
    )]
    Within {
        /// The role.
        name: String,
    },
    /// The role ended unexpectedly.
    #[error("{name} ended unexpectedly ({}){}", .death.status, last_lines(.lines))]
    Died {
        /// The role.
        name: String,
        /// How and when it ended.
        death: RoleDeath,
        /// The last lines of the role's standard error.
        lines: Vec<String>,
    },
}

impl RoleError {
    /// The reason why the error invalidates a run.
    pub fn reason(&self) -> VoidReason {
        match self {
            RoleError::Died { .. } => VoidReason::RoleDied,
            RoleError::HostLost { .. } => VoidReason::FaultHostLost,
            RoleError::Failed { .. } | RoleError::Far { .. } | RoleError::Within { .. } => {
                VoidReason::NotReady
            }
        }
    }

    fn of(name: &str, failure: RoleFailure) -> RoleError {
        RoleError::Failed {
            name: name.to_string(),
            failure,
        }
    }
}

/// Additional arguments of the command that serves a target.
pub fn serving_arguments(congestion: Option<String>) -> Vec<String> {
    congestion.map_or(Vec::new(), |congestion| {
        vec!["--congestion".to_string(), congestion]
    })
}

/// Starts a role on a host, with additional arguments for its command, and waits until it listens.
///
/// # Errors
/// The role does not start, or is of a kind that isn't started separately; the text includes its output.
pub fn start(
    name: &str,
    role: &dyn RoleKind,
    further: Vec<String>,
    launcher: Arc<dyn Launcher>,
) -> Result<Arc<dyn Role>, RoleError> {
    match role.launch() {
        Launch::Process {
            mut arguments,
            takes_commands,
        } => {
            arguments.extend(further);
            Ok(Arc::new(ProcessRole::start(
                name,
                arguments,
                takes_commands,
                launcher,
            )?))
        }
        Launch::Kept => {
            unreachable!("{name} is started by the code that knows its folder and its log")
        }
        Launch::Within => Err(RoleError::Within {
            name: name.to_string(),
        }),
    }
}

/// Starts a service on a host, and waits until it is ready or `interrupted` is set.
///
/// # Errors
/// The service does not start, is not ready in time, or the start was interrupted; the text includes its output.
pub fn keep(
    name: &str,
    order: &KeeperOrder,
    launcher: Arc<dyn Launcher>,
    interrupted: &Arc<AtomicBool>,
) -> Result<Arc<dyn Role>, RoleError> {
    Ok(Arc::new(ProcessRole::keep(
        name,
        order,
        launcher,
        interrupted,
    )?))
}

#[cfg(test)]
mod tests;
