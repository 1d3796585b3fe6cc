//! The interface of a kind of host, and how processes are started on one. Implemented by one file per kind;
//! called by the check of an experiment file and by the code that starts roles.
//!
//! The rule: code that starts a role knows its host only through [`Launcher`].

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use brunt_host::HostPlace;
use brunt_lab::LabError;

use super::HostName;
use crate::lab::BuiltLab;

/// What a kind of host is, for its table.
#[derive(Clone, Copy, Debug)]
pub struct HostInfo {
    /// What it is called in messages.
    pub name: &'static str,
    /// Its keys under `[hosts.NAME]`. Where `marked`, the first one says that a host is of this kind.
    pub keys: &'static [&'static str],
    /// Whether a host is of this kind only if the first of `keys` is there.
    pub marked: bool,
    /// What it is, in a line.
    pub help: &'static str,
    /// What stands under `[hosts.NAME]`; `None` for a kind that is never written.
    pub example: Option<&'static str>,
}

/// A host of one kind, as it is written.
pub trait HostKind: Debug + Send + Sync {
    /// Whether links of the lab end there.
    fn has_links(&self) -> bool;

    /// How something is started there, once the lab stands.
    ///
    /// # Errors
    /// The host does not stand.
    fn launcher(
        &self,
        name: &HostName,
        lab: Option<&BuiltLab>,
    ) -> Result<Arc<dyn Launcher>, LaunchError>;

    /// The interfaces that it bridges, if it is a machine in the wire.
    fn bridge(&self) -> Option<&[String; 2]> {
        None
    }

    /// A file there, to which its bridge saves the packets that come.
    fn capture(&self) -> Option<&str> {
        None
    }

    /// The name or address at which what it serves listens, if one is written.
    fn address(&self) -> Option<&str> {
        None
    }

    /// The service that keeps it, if it is a virtual machine.
    fn service(&self) -> Option<&str> {
        None
    }

    /// Where its agent is reached, if it is another machine.
    ///
    /// # Errors
    /// What is written leads nowhere.
    fn place(&self) -> Result<Option<HostPlace>, KeyMistake> {
        Ok(None)
    }

    /// Where the agent is that runs loads which name this host; `None` of a host that loads do not name.
    fn runs_loads_at(&self, name: &HostName) -> Option<HostPlace> {
        let _ = name;
        self.place().ok().flatten()
    }
}

/// What is wrong with a key of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMistake {
    /// Which.
    pub key: &'static str,
    /// What.
    pub what: String,
    /// What would be right.
    pub help: String,
}

/// Whether others could reach what listens at this name or address, as far as its text says.
pub(super) fn check_address(address: Option<&str>) -> Result<(), KeyMistake> {
    let Some(text) = address else { return Ok(()) };
    let is_odd =
        |one: char| one.is_whitespace() || one.is_control() || matches!(one, '/' | '@' | '[' | ']');
    let is_none = text
        .parse::<IpAddr>()
        .is_ok_and(|one| one.is_unspecified() || one.is_multicast());
    match text.is_empty() || text.contains(is_odd) || is_none {
        true => Err(KeyMistake {
            key: "address",
            what: format!("'{text}' is not a host's address"),
            help: "write a name or an IP address by which others reach that host, without a port"
                .to_string(),
        }),
        false => Ok(()),
    }
}

/// Why nothing can be started on a host.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The lab does not have it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// It is one of the lab's, and no lab stands.
    #[error("host '{0}' belongs to the lab, and no lab is running")]
    NoLab(HostName),
    /// It is another machine, whose agent starts what runs there.
    #[error("host '{0}' is another machine, whose agent starts what runs there")]
    Elsewhere(HostName),
    /// Nobody knows the address at which it is to serve.
    #[error(
        "host {host}: '{text}' has no address here ({source}); write address = \"10.0.0.9\", or another \
             address of that host, under [hosts.{host}]"
    )]
    Address {
        /// Its name in the experiment.
        host: HostName,
        /// What was looked up.
        text: String,
        /// What came of it.
        source: io::Error,
    },
}

/// How programs are started on a host.
pub trait Launcher: Send + Sync {
    /// The host's name in messages and samples.
    fn host(&self) -> &HostName;

    /// Where roles on this host listen so that the experiment reaches them.
    fn address(&self) -> IpAddr;

    /// This program, on that host.
    ///
    /// # Errors
    /// It is not to be found.
    fn program(&self) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    /// Makes `command` run there.
    ///
    /// # Errors
    /// The host is not there any more.
    fn place(&self, command: &mut Command) -> io::Result<()>;
}
