//! Services: programs that Brunt did not write, kept by a process of Brunt for as long as an experiment needs them.
//!
//! The keeper (`keeper`) is this program started again. It starts the service's command, keeps what it says in a file
//! (`log`), finds out whether it is ready (`ready`), and adopts every process that the service leaves behind
//! (PR_SET_CHILD_SUBREAPER), so that programs which move to the background are found like any other. Who starts it
//! hears the service's address on standard output when it is ready, and why it came to nothing on standard error.
//!
//! The rule: no process of a service outlives its keeper, and the keeper ends when its standard input does, so also when
//! the program that started it is killed.

mod error;
mod keeper;
mod log;
mod private;
mod ready;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use keeper::serve_if_asked;

/// The variable that tells a process that it is a keeper, and with [`KeeperOrder::to_text`] of what.
pub const KEEPER_VARIABLE: &str = "BRUNT_KEEPER";
/// Variables of a service that its keeper sets: where it is reached, and the port of [`ReadyWhen::port`].
pub const ADDRESS_VARIABLE: &str = "BRUNT_ADDRESS";
/// See [`ADDRESS_VARIABLE`].
pub const PORT_VARIABLE: &str = "BRUNT_PORT";

/// What a keeper keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperOrder {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What has to be done once before, and has to succeed.
    pub prepare: Option<Vec<String>>,
    /// This file says that it was done.
    pub prepared: PathBuf,
    /// Added to the environment of this program.
    pub environment: BTreeMap<String, String>,
    /// Working folder.
    pub folder: PathBuf,
    /// Folders of its host in whose place it has its own; of hosts of a lab only.
    pub private: Vec<PathBuf>,
    /// What it says is added to this file.
    pub log: PathBuf,
    /// Whether the command ends with status 0 while the processes that it started go on.
    pub daemon: bool,
    /// When it is ready.
    pub ready: ReadyWhen,
    /// What it may use.
    pub limits: KeeperLimits,
    /// How long it gets to end by itself when it is asked to.
    pub stop_within: Duration,
}

/// When a service is ready: when all of these are so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyWhen {
    /// Something listens on this TCP port; 0: on a free one that the keeper chooses.
    pub port: Option<u16>,
    /// It said a line with this in it.
    pub line: Option<String>,
    /// This command ends with status 0; it is started until it does.
    pub command: Option<Vec<String>>,
    /// Within this time from the start, the preparation included.
    pub within: Duration,
}

/// What a service may use. It is ended when it uses more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperLimits {
    /// Resident memory of all its processes.
    pub memory_bytes: Option<u64>,
    /// Open files of each process, which the kernel refuses to exceed.
    pub files: Option<u64>,
    /// Length of its log.
    pub log_bytes: u64,
}

impl KeeperOrder {
    /// As a keeper reads it in [`KEEPER_VARIABLE`].
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and tables of them are JSON")
    }
}
