//! The interface for loads that have their own table in experiment files and need no target, such
//! as `[filesystems.NAME]`. Called when a file is checked, planned, described and swept.
//!
//! The rule: answers depend on the settings alone; nothing is opened.

use std::path::Path;

use brunt_core::Size;

use crate::kind::NamedLoad;
use crate::load::WorkloadError;

/// An entry of an experiment file that describes loads with their own location. In results, its
/// name takes the place of a target's name, and the names of its loads those of workloads.
pub trait LoadEntry: std::fmt::Debug + Send + Sync {
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
    fn on_hosts(&self, hosts: Vec<String>) -> Box<dyn LoadEntry>;

    /// Returns where its requests go, for results and sketches.
    fn place(&self) -> String;

    /// Describes it in a few words, for plans: `files in /mnt`.
    fn describe(&self) -> String;

    /// Returns its loads, by name, in the order in which they run. Loads of one call may share state.
    fn loads(&self) -> Vec<NamedLoad>;

    /// Returns the same with data files of this size, which the axis `file_size` varies; `None` if it has none.
    fn with_file_size(&self, _size: Size) -> Option<Box<dyn LoadEntry>> {
        None
    }

    /// Returns the directory that it fills, if it has one: two experiments at once must not share it.
    fn directory(&self) -> Option<&Path> {
        None
    }
}
