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
    fn launcher(&self, name: &HostName, lab: Option<&BuiltLab>) -> Result<Arc<dyn Launcher>, LaunchError>;
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
