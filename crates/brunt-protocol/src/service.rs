//! Describes a service to its keeper: a program that isn't part of Brunt, when it counts as ready, and its limits. The
//! process that runs an experiment passes the description to a keeper on its own machine, or sends it to the agent of
//! another host, which starts a keeper there.
//!
//! The rule: nothing in the description depends on the machine that the service runs on; the process that starts the
//! keeper adds folders and the address.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The program that a keeper runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// A command to run once before the program; it must succeed.
    pub prepare: Option<Vec<String>>,
    /// Added to the keeper's own environment.
    pub environment: BTreeMap<String, String>,
    /// Whether the program is a command that exits with status 0 and leaves the processes that it started running.
    pub daemon: bool,
    /// When the service counts as ready.
    pub ready: ReadyWhen,
    /// Its limits.
    pub limits: KeeperLimits,
    /// How long the program may take to end after SIGTERM before it is killed.
    pub stop_within: Duration,
}

/// When a service counts as ready: once all of these conditions hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyWhen {
    /// Something listens on this TCP port; with 0, the keeper chooses a free port.
    pub port: Option<u16>,
    /// It has printed a line that contains this text.
    pub line: Option<String>,
    /// This command exits with status 0; it is repeated until it does.
    pub command: Option<Vec<String>>,
    /// What the command is for, so that messages name it as the experiment does.
    pub purpose: ReadyPurpose,
    /// Deadline, counted from the start and including the preparation.
    pub within: Duration,
}

/// The purpose of the command in [`ReadyWhen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyPurpose {
    /// To wait until a service that has just been started is ready.
    Start,
    /// To wait until a running service is healthy.
    Health,
}

/// A service's limits. Exceeding one ends the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeeperLimits {
    /// Resident memory of all its processes, in bytes.
    pub memory_bytes: Option<u64>,
    /// Maximum number of open files per process; enforced by the kernel.
    pub files: Option<u64>,
    /// Size of its log in bytes.
    pub log_bytes: u64,
}
