//! The interface for loads that experiment files describe by their own keys and that need no target, such as
//! `[filesystems.NAME]`. Called when a file is checked, planned, described and swept.
//!
//! The rule: answers depend on the settings alone; nothing is opened.

use std::path::Path;
use std::sync::Arc;

use brunt_core::Size;
use serde::Serialize;

use crate::load::{Load, WorkloadError};

/// An entry of an experiment file that describes loads with their own location. In results, its
/// name takes the place of a target's name, and the names of its loads those of workloads.
pub trait LoadEntry: std::fmt::Debug + Send + Sync {
    /// Returns the name of its line in [`crate::LOADS`].
    fn kind(&self) -> &'static str;

    /// Returns its keys as in a file, without `kind` ([`written`]).
    fn settings(&self) -> toml::Table;

    /// Returns its kind for messages, such as `file system`.
    fn noun(&self) -> &'static str;

    /// Checks it on its own.
    ///
    /// # Errors
    /// The offending key, and what would be correct.
    fn check(&self) -> Result<(), WorkloadError>;

    /// Returns the other hosts that it names; empty if it runs on this machine. Its loads implement
    /// [`crate::HostedLoad`] if it may name any.
    fn hosts(&self) -> &[String];

    /// Returns the same on these hosts.
    fn on_hosts(&self, hosts: Vec<String>) -> Arc<dyn LoadEntry>;

    /// Returns where its requests go, for results and sketches.
    fn place(&self) -> String;

    /// Describes it in a few words, for plans: `files in /mnt`.
    fn describe(&self) -> String;

    /// Returns its loads, by name, in the order in which they run. Loads of one call may share state.
    fn loads(&self) -> Vec<(String, Arc<dyn Load>)>;

    /// Returns the same with data files of this size, which the axis `file_size` varies; `None` if it has none.
    fn with_file_size(&self, _size: Size) -> Option<Arc<dyn LoadEntry>> {
        None
    }

    /// Returns the directory that it fills, if it has one: two experiments at once must not share it.
    fn directory(&self) -> Option<&Path> {
        None
    }
}

/// Returns an entry's keys as in a file.
///
/// # Panics
/// If its values cannot be written as TOML; values read from a file always can.
pub fn written(entry: &impl Serialize) -> toml::Table {
    toml::Table::try_from(entry).expect("settings that were read can be written")
}
