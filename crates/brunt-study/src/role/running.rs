//! A running role: the interface for the experiment, its hooks and its faults, independent of its kind and host.
//!
//! The rule: faults access roles only through this interface; the role itself defines how each fault is applied.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use brunt_lab::Fault;

use super::{RoleError, RoleLogin};
use crate::control::{Absence, Controls};
use crate::host::HostName;

/// A started role. Dropping the last handle to it ends the role.
pub trait Role: Controls {
    /// The role's name in messages.
    fn name(&self) -> &str;

    /// Its host.
    fn host(&self) -> &HostName;

    /// The address where the role listens; a restart doesn't change it.
    fn address(&self) -> SocketAddr;

    /// The login that the role requires; `None` if it accepts every client.
    fn login(&self) -> Option<&RoleLogin> {
        None
    }

    /// Whether the role's process runs on this machine and can be sampled here.
    fn is_here(&self) -> bool {
        true
    }

    /// The reason why the role's host was lost, if it was and runs may continue without it (`on_host_failure`).
    fn loss(&self) -> Option<String> {
        None
    }

    /// The PID of the role's process, which a restart changes.
    fn pid(&self) -> u32;

    /// The processes that do the role's work: the role's process or, if it is only a keeper, the processes that it
    /// runs.
    fn processes(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    /// The role's folder, if it is a service.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// The last lines of the role's standard error, oldest first.
    fn log(&self) -> Vec<String>;

    /// Checks that the role is working.
    ///
    /// # Errors
    /// The role died unexpectedly.
    fn check(&self) -> Result<(), RoleError>;

    /// The fault that freezes the role, or kills and restarts it; not injected yet.
    fn outage(self: Arc<Self>, by: Absence) -> Box<dyn Fault>;

    /// Marks the role as away; must be called before it is frozen or killed. Changes nothing and returns false if it
    /// is already away.
    fn mark_away(&self, away: Absence) -> bool;

    /// Marks the role as running again; must be called after it resumes.
    fn comes_back(&self);

    /// Freezes the role: it stops answering, and its connections stay open.
    ///
    /// # Errors
    /// The role is gone.
    fn freeze(&self) -> Result<(), RoleError>;

    /// Resumes it.
    ///
    /// # Errors
    /// The role is gone.
    fn thaw(&self) -> Result<(), RoleError>;

    /// Whether the role is frozen.
    fn is_frozen(&self) -> bool;

    /// Kills the role, like a power failure; its connections break. It is no error if the role is already gone.
    fn kill(&self);

    /// Restarts the role at its previous address, after a [`Role::kill`] or an unexpected death.
    ///
    /// # Errors
    /// The role does not start; the text includes its output.
    fn restart(&self) -> Result<(), RoleError>;

    /// Pins all threads of the role, and those that they start, to these cores, even after a restart.
    ///
    /// # Errors
    /// The role is gone, or there are no such cores.
    fn pin(&self, cores: &[usize]) -> io::Result<()>;

    /// The cores that the role may use.
    ///
    /// # Errors
    /// The role is gone.
    fn cores(&self) -> io::Result<Vec<usize>>;

    /// Asks the role to end, and waits; kills it if that takes too long.
    ///
    /// # Errors
    /// The role had already died.
    fn stop(&self) -> Result<(), RoleError>;
}
