//! A running role: the interface for the experiment, its hooks and its faults, independent of its kind and
//! host.
//!
//! The rule: faults know roles only through this interface; the role itself defines how each fault is
//! applied.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use brunt_lab::Fault;

use super::{RoleError, RoleLogin};
use crate::control::{Absence, Controls};
use crate::host::HostName;

/// A role that was started. Dropping the last handle on it ends it.
pub trait Role: Controls {
    /// What it is called in messages.
    fn name(&self) -> &str;

    /// Where it plays.
    fn host(&self) -> &HostName;

    /// Where it listens; the same after a restart.
    fn address(&self) -> SocketAddr;

    /// Who may log in to what it serves; `None` where everybody may.
    fn login(&self) -> Option<&RoleLogin> {
        None
    }

    /// Whether its process is one of this machine's, which may be sampled here.
    fn is_here(&self) -> bool {
        true
    }

    /// Why its host was lost, if it is one without which runs may go on (`on_host_failure`).
    fn loss(&self) -> Option<String> {
        None
    }

    /// Its process, which a restart changes.
    fn pid(&self) -> u32;

    /// The processes that play it: that one, or those that it keeps.
    fn processes(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    /// Its own folder, if it is a service.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// The last that it said on its standard error, oldest first.
    fn log(&self) -> Vec<String>;

    /// Whether it plays as it should.
    ///
    /// # Errors
    /// It died, and nobody had asked it to.
    fn check(&self) -> Result<(), RoleError>;

    /// The fault that freezes it, or kills it and starts it again; not injected yet.
    fn outage(self: Arc<Self>, by: Absence) -> Box<dyn Fault>;

    /// To be said before it is stopped or killed; false, and nothing said, when it is away already.
    fn goes_away(&self, away: Absence) -> bool;

    /// To be said when it goes on.
    fn comes_back(&self);

    /// Stops it where it is: it answers nobody, and its connections stay open.
    ///
    /// # Errors
    /// It is gone.
    fn freeze(&self) -> Result<(), RoleError>;

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    fn thaw(&self) -> Result<(), RoleError>;

    /// Whether it is frozen.
    fn is_frozen(&self) -> bool;

    /// Kills it, as a power failure would; its connections break. Nothing is wrong when it is gone already.
    fn kill(&self);

    /// Starts it again where it listened before, after a [`Role::kill`] or a death.
    ///
    /// # Errors
    /// It does not start; the text has what it said.
    fn restart(&self) -> Result<(), RoleError>;

    /// Keeps all its threads, and those that they start, on these cores, also after a restart.
    ///
    /// # Errors
    /// It is gone, or there are no such cores.
    fn pin(&self, cores: &[usize]) -> io::Result<()>;

    /// The cores that it may use.
    ///
    /// # Errors
    /// It is gone.
    fn cores(&self) -> io::Result<Vec<usize>>;

    /// Asks it to end, and waits; kills it when it takes too long.
    ///
    /// # Errors
    /// It had died before.
    fn stop(&self) -> Result<(), RoleError>;
}
