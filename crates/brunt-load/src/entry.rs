//! The interface for loads that experiment files describe by their own keys and that need no target, such as
//! `[filesystems.NAME]`. Called when a file is checked, planned, described and swept.
//!
//! The rule: answers depend on the settings alone; nothing is opened.

use std::path::Path;
use std::sync::Arc;

use brunt_core::Size;
use serde::Serialize;

use crate::load::{Load, WorkloadError};

/// An entry of an experiment file that describes loads with their own location. In results, the entry's name takes
/// the place of a target's name, and the names of its loads take the place of workload names.
pub trait LoadEntry: std::fmt::Debug + Send + Sync {
    /// Returns the name of the entry's line in [`crate::LOADS`].
    fn kind(&self) -> &'static str;

    /// Returns the entry's keys as in a file, without `kind` ([`written`]).
    fn settings(&self) -> toml::Table;

    /// Returns the kind of the entry for messages, such as `file system`.
    fn noun(&self) -> &'static str;

    /// Checks the entry without regard to the rest of the file.
    ///
    /// # Errors
    /// The error names the offending key, and what would be correct.
    fn check(&self) -> Result<(), WorkloadError>;

    /// Returns the other hosts that the entry names; empty if it runs on this machine. If an entry can name hosts,
    /// its loads implement [`crate::HostedLoad`].
    fn hosts(&self) -> &[String];

    /// Returns a copy of the entry that runs on these hosts.
    fn on_hosts(&self, hosts: Vec<String>) -> Arc<dyn LoadEntry>;

    /// Returns where the entry's requests go, for results and sketches.
    fn place(&self) -> String;

    /// Describes the entry in a few words, for plans: `files in /mnt`.
    fn describe(&self) -> String;

    /// Returns the entry's loads, by name, in the order in which they run. The loads that one call returns may share
    /// state.
    fn loads(&self) -> Vec<(String, Arc<dyn Load>)>;

    /// Returns a copy with data files of this size, which the axis `file_size` varies; `None` if the entry has no
    /// data files.
    fn with_file_size(&self, _size: Size) -> Option<Arc<dyn LoadEntry>> {
        None
    }

    /// Returns the directory that the entry fills, if any: two experiments must not use it at the same time.
    fn directory(&self) -> Option<&Path> {
        None
    }
}

/// Returns an entry's keys as in a file.
///
/// # Panics
/// Panics if its values cannot be written as TOML; values read from a file always can.
pub fn written(entry: &impl Serialize) -> toml::Table {
    toml::Table::try_from(entry).expect("settings that were read can be written")
}
