//! Roles: the components of an experiment. Each kind has a file here and a line in [`ROLES`]: targets and
//! sinks are processes on hosts, started by `brunt run` for `serve = …`; workers and the prober are threads
//! of the process that runs the experiment. Faults freeze, kill and restart started processes through
//! [`Role`].
//!
//! The rule: a role ends with the experiment, however that ends, and an early end is noticed. A run in which
//! a role died unexpectedly is invalid, and its message includes the role's last output.

mod by_process;
mod death;
mod hook;
mod kind;
mod kinds;
mod prober;
mod process;
mod running;
mod serve;
mod sink;
mod target;
#[cfg(test)]
mod test_only;
mod worker;

use std::io;
use std::sync::Arc;

use by_process::ProcessRole;
pub use death::Death;
pub use hook::Roles;
pub use kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};
pub use kinds::{ROLES, RoleEntry, planned, serving};
pub use running::Role;
pub use serve::Serve;
pub use target::TARGET_NAME;

use crate::host::Launcher;
use brunt_result::void::VoidReason;

/// Why a role does not play.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// It could not be started, signalled or waited for.
    #[error("{name}: cannot {what}: {source}")]
    Os {
        /// The role.
        name: String,
        /// "be started", for example.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended before it listened, or did not listen in time.
    #[error("{name}: {what}{}", said(.lines))]
    Start {
        /// The role.
        name: String,
        /// What it did instead.
        what: String,
        /// What it said last on its standard error.
        lines: Vec<String>,
    },
    /// It has no process of its own.
    #[error("{name} is part of the process that runs the experiment and cannot be started separately")]
    Within {
        /// The role.
        name: String,
    },
    /// It ended, and nobody had asked it to.
    #[error("{name} ended unexpectedly ({}){}", .death.status, said(.lines))]
    Died {
        /// The role.
        name: String,
        /// How and when.
        death: Death,
        /// What it said last on its standard error.
        lines: Vec<String>,
    },
}

impl RoleError {
    /// Why a run is void for it.
    pub fn reason(&self) -> VoidReason {
        match self {
            RoleError::Died { .. } => VoidReason::RoleDied,
            RoleError::Os { .. } | RoleError::Start { .. } | RoleError::Within { .. } => VoidReason::NotReady,
        }
    }
}

fn said(lines: &[String]) -> String {
    if lines.is_empty() { ", without output".to_string() } else { format!(": {}", lines.join("; ")) }
}

/// Starts a role on a host, with further arguments of its command, and waits until it listens.
///
/// # Errors
/// It does not start, or is none that is started; the text has what it said.
pub fn start(
    name: &str,
    role: &dyn RoleKind,
    further: Vec<String>,
    launcher: Arc<dyn Launcher>,
) -> Result<Arc<dyn Role>, RoleError> {
    match role.launch() {
        Launch::Process { mut arguments, takes_commands } => {
            arguments.extend(further);
            Ok(Arc::new(ProcessRole::start(name, arguments, takes_commands, launcher)?))
        }
        Launch::Within => Err(RoleError::Within { name: name.to_string() }),
    }
}

#[cfg(test)]
mod tests;
