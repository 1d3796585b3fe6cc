//! A service as its keeper has it: a program that Brunt did not write, when it counts as ready, and what it may use. The
//! process that runs an experiment gives it to a keeper on its own machine, or sends it to the agent of another host, which
//! has a keeper there.
//!
//! The rule: nothing in it depends on the machine that it runs on; whoever starts the keeper adds folders and the address.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What has to be done once before, and has to succeed.
    pub prepare: Option<Vec<String>>,
    /// Added to the environment of whoever starts it.
    pub environment: BTreeMap<String, String>,
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
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub struct KeeperLimits {
    /// Resident memory of all its processes.
    pub memory_bytes: Option<u64>,
    /// Open files of each process, which the kernel refuses to exceed.
    pub files: Option<u64>,
    /// Length of its log.
    pub log_bytes: u64,
}
