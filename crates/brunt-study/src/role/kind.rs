//! The interface of a kind of role: how it is started, and how its target is opened. Implemented by one file
//! per kind; called by the check of an experiment file and by the code that starts roles.
//!
//! The rule: no other code knows a kind's name, command line or URL.

use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;

use brunt_probe::Probes;

use super::Serve;
use crate::host::HostName;

/// What a kind of role is, for its table.
#[derive(Clone, Copy, Debug)]
pub struct RoleInfo {
    /// What it is called: `target`, for example.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Lines of an experiment file that ask for one.
    pub example: &'static str,
}

/// How a role comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// As a process of this program, on its host: it can be frozen, killed and started again.
    Process {
        /// What follows the program's name. Where to listen and whose child it is are added.
        arguments: Vec<String>,
        /// Whether it reads commands on its standard input.
        takes_commands: bool,
    },
    /// As a program that Brunt did not write, kept by a process of this program: a fault stops or kills it with all that
    /// it started.
    Kept,
    /// As threads of the process that runs the experiment, which no fault may stop.
    Within,
}

/// A role of one kind, with what was asked of it.
pub trait RoleKind: Any + Debug + Send + Sync {
    /// Its line of the table.
    fn info(&self) -> &'static RoleInfo;

    /// How it comes about.
    fn launch(&self) -> Launch;

    /// The LUNs that it serves; `None` of a role that has none.
    fn luns(&self) -> Option<&[String]> {
        None
    }

    /// The URL by which what it serves (of a LUN: this one) is opened while it listens at `at`.
    fn url(&self, at: SocketAddr, lun: u16) -> Option<String> {
        let _ = (at, lun);
        None
    }

    /// The option of its command that takes who may log in; `None` of what everybody may open.
    fn login_option(&self) -> Option<&'static str> {
        None
    }

    /// Whether what is measured is the network alone.
    fn is_network(&self) -> bool {
        false
    }
}

/// What an experiment's file says that makes roles.
pub trait Cast {
    /// What is served: a name, what, and on which host.
    fn served(&self) -> Vec<(String, &Serve, HostName)>;

    /// Programs that it starts: what each is called and on which host it runs.
    fn services(&self) -> Vec<(String, HostName)>;

    /// Where requests are made.
    fn worker(&self) -> HostName;

    /// What is recorded of hosts.
    fn probes(&self) -> &Probes;
}

/// A role that an experiment will have.
#[derive(Debug)]
pub struct PlannedRole {
    /// What messages call it.
    pub name: String,
    /// Where it plays.
    pub host: HostName,
    /// What it is.
    pub role: Box<dyn RoleKind>,
}
