//! The interface of a kind of host, and how processes are started on such a host. Implemented by one file per kind;
//! called by the checks of an experiment file and by the code that starts roles.
//!
//! The rule: code that starts a role accesses its host only through [`Launcher`].

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use brunt_host::HostPlace;
use brunt_lab::LabError;

use super::HostName;

/// Describes a kind of host, for the table of kinds.
#[derive(Clone, Copy, Debug)]
pub struct HostInfo {
    /// The kind's name in messages.
    pub name: &'static str,
    /// The kind's keys under `[hosts.NAME]`. If `marked`, the first key selects this kind.
    pub keys: &'static [&'static str],
    /// Whether a host is of this kind only if the first of `keys` is present.
    pub marked: bool,
    /// Its description, in one line.
    pub help: &'static str,
    /// An example of the content of `[hosts.NAME]`; `None` for a kind that never appears in a file.
    pub example: Option<&'static str>,
}

/// A host of one kind, as written in the file.
pub trait HostKind: Debug + Send + Sync {
    /// Whether links of the lab end at this host.
    fn has_links(&self) -> bool;

    /// The launcher for programs on this host, once the lab is running.
    ///
    /// # Errors
    /// The host isn't running.
    fn launcher(
        &self,
        name: &HostName,
        lab: Option<&dyn LabLaunchers>,
    ) -> Result<Arc<dyn Launcher>, LaunchError>;

    /// The interfaces that the host bridges, if it acts as a bridge.
    fn bridge(&self) -> Option<&[String; 2]> {
        None
    }

    /// The file on the host to which its bridge saves received packets.
    fn capture(&self) -> Option<&str> {
        None
    }

    /// The interfaces whose bytes are counted during runs.
    fn interfaces(&self) -> &[String] {
        &[]
    }

    /// The name or address at which servers on the host listen, if the file sets one.
    fn address(&self) -> Option<&str> {
        None
    }

    /// The service that runs the host, if it is a virtual machine.
    fn service(&self) -> Option<&str> {
        None
    }

    /// How to reach the host's agent, if this is a remote host.
    ///
    /// # Errors
    /// No address can be derived from the host's settings.
    fn place(&self) -> Result<Option<HostPlace>, KeyMistake> {
        Ok(None)
    }

    /// Where to reach the agent that runs loads for this host; `None` if loads cannot name the host.
    fn runs_loads_at(&self, name: &HostName) -> Option<HostPlace> {
        let _ = name;
        self.place().ok().flatten()
    }
}

/// A mistake in a key of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMistake {
    /// The key.
    pub key: &'static str,
    /// The mistake.
    pub what: String,
    /// What would be valid instead.
    pub help: String,
}

/// Checks, based on the text alone, that other hosts could reach a server at this name or address.
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
            help: "write a name or an IP address at which others reach that host, without a port"
                .to_string(),
        }),
        false => Ok(()),
    }
}

/// Why nothing can be started on a host.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The lab doesn't have this host.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The host belongs to a lab, and no lab is running.
    #[error("host '{0}' belongs to the lab, and no lab is running")]
    NoLab(HostName),
    /// This is a remote host, whose agent starts its programs.
    #[error("host '{0}' is a remote host, whose agent starts programs there")]
    OtherMachine(HostName),
    /// The address at which the host should serve is unknown.
    #[error(
        "host {host}: '{text}' has no address here ({source}); write address = \"10.0.0.9\", or another \
             address of that host, under [hosts.{host}]"
    )]
    Address {
        /// The host's name in the experiment.
        host: HostName,
        /// The name that was looked up.
        text: String,
        /// The lookup's error.
        source: io::Error,
    },
}

/// A running lab, which starts programs on its hosts.
pub trait LabLaunchers {
    /// Starts programs on this host.
    ///
    /// # Errors
    /// The lab has no such host.
    fn launcher(&self, host: &HostName) -> Result<Arc<dyn Launcher>, LabError>;
}

/// Starts programs on a host.
pub trait Launcher: Send + Sync {
    /// The host's name in messages and samples.
    fn host(&self) -> &HostName;

    /// The address where roles on this host must listen so that the experiment reaches them.
    fn address(&self) -> IpAddr;

    /// The path of this program on that host.
    ///
    /// # Errors
    /// This program's path cannot be determined.
    fn program(&self) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    /// Makes `command` run on this host.
    ///
    /// # Errors
    /// The host no longer exists.
    fn place(&self, command: &mut Command) -> io::Result<()>;
}
