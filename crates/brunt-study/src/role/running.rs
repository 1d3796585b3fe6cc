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

/// A started role. Dropping the last handle to it ends it.
pub trait Role: Controls {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// Its host.
    fn host(&self) -> &HostName;

    /// Where it listens; unchanged by a restart.
    fn address(&self) -> SocketAddr;

    /// The login that it requires; `None` if it accepts every client.
    fn login(&self) -> Option<&RoleLogin> {
        None
    }

    /// Whether its process runs on this machine and can be sampled here.
    fn is_here(&self) -> bool {
        true
    }

    /// Why its host was lost, if runs may continue without it (`on_host_failure`).
    fn loss(&self) -> Option<String> {
        None
    }

    /// The id of its process, which a restart changes.
    fn pid(&self) -> u32;

    /// The processes that do its work: its own, or those that it keeps.
    fn processes(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    /// Its folder, if it is a service.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// The last lines of its standard error, oldest first.
    fn log(&self) -> Vec<String>;

    /// Checks that it is working.
    ///
    /// # Errors
    /// It died unexpectedly.
    fn check(&self) -> Result<(), RoleError>;

    /// The fault that freezes it, or kills and restarts it; not injected yet.
    fn outage(self: Arc<Self>, by: Absence) -> Box<dyn Fault>;

    /// Marks it as away; must be called before it is frozen or killed. Returns false, changing
    /// nothing, if it is away already.
    fn mark_away(&self, away: Absence) -> bool;

    /// Marks it as running again; must be called after it resumes.
    fn comes_back(&self);

    /// Freezes it: it stops answering, and its connections stay open.
    ///
    /// # Errors
    /// It is gone.
    fn freeze(&self) -> Result<(), RoleError>;

    /// Resumes it.
    ///
    /// # Errors
    /// It is gone.
    fn thaw(&self) -> Result<(), RoleError>;

    /// Whether it is frozen.
    fn is_frozen(&self) -> bool;

    /// Kills it, like a power failure; its connections break. No error if it is gone already.
    fn kill(&self);

    /// Restarts it at its previous address, after a [`Role::kill`] or a death.
    ///
    /// # Errors
    /// It does not start; the text includes its output.
    fn restart(&self) -> Result<(), RoleError>;

    /// Pins all its threads, and those that they start, to these cores, even after a restart.
    ///
    /// # Errors
    /// It is gone, or there are no such cores.
    fn pin(&self, cores: &[usize]) -> io::Result<()>;

    /// The cores that it may use.
    ///
    /// # Errors
    /// It is gone.
    fn cores(&self) -> io::Result<Vec<usize>>;

    /// Asks it to end, and waits; kills it if that takes too long.
    ///
    /// # Errors
    /// It had died before.
    fn stop(&self) -> Result<(), RoleError>;
}
