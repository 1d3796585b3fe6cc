//! The interface of a kind of role: how it is started, and how its target is opened. Implemented by one file per
//! kind; called by the checks of an experiment file and by the code that starts roles.
//!
//! The rule: no other code contains the kind's name, command line or URL.

use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;

use brunt_probe::Probes;

use super::Serve;
use crate::host::HostName;

/// Describes a kind of role, for the table of roles.
#[derive(Clone, Copy, Debug)]
pub struct RoleInfo {
    /// Its name, for example `target`.
    pub name: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Lines of an experiment file that request such a role.
    pub example: &'static str,
}

/// How a role is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// As a process of this program on its host, which can be frozen, killed and restarted.
    Process {
        /// The arguments of the program. The address to listen on and the parent process are added.
        arguments: Vec<String>,
        /// Whether the process reads commands from its standard input.
        takes_commands: bool,
    },
    /// As a program other than Brunt, supervised by a process of this program; a fault freezes or kills it together
    /// with all processes that it started.
    Kept,
    /// As threads of the experiment's own process, which no fault may stop.
    Within,
}

/// A role of one kind, with its settings.
pub trait RoleKind: Any + Debug + Send + Sync {
    /// The description of its kind.
    fn info(&self) -> &'static RoleInfo;

    /// How the role is started.
    fn launch(&self) -> Launch;

    /// The LUNs that the role serves; `None` for a role without LUNs.
    fn luns(&self) -> Option<&[String]> {
        None
    }

    /// The URL that opens what the role serves (this LUN, if it has LUNs) while it listens on `at`.
    fn url(&self, at: SocketAddr, lun: u16) -> Option<String> {
        let _ = (at, lun);
        None
    }

    /// The login that the role accepts, as a command-line option; `None` if it accepts every client.
    fn login_option(&self) -> Option<&'static str> {
        None
    }

    /// Whether the target only measures the network.
    fn is_network(&self) -> bool {
        false
    }
}

/// The parts of an experiment file that create roles.
pub trait Cast {
    /// The served targets: name, what is served, host.
    fn served(&self) -> Vec<(String, &Serve, HostName)>;

    /// The services that the experiment starts, with their hosts.
    fn services(&self) -> Vec<(String, HostName)>;

    /// The host that sends the requests.
    fn worker(&self) -> HostName;

    /// The settings of the probes.
    fn probes(&self) -> &Probes;
}

/// A role that an experiment will have.
#[derive(Debug)]
pub struct PlannedRole {
    /// The role's name in messages.
    pub name: String,
    /// Its host.
    pub host: HostName,
    /// The role's kind and settings.
    pub role: Box<dyn RoleKind>,
}
