//! `[[fault]]`: what goes wrong during each run, and when.
//!
//! ```toml
//! [[fault]]                             # transient: from 5 s to 10 s of the measured time
//! target = "disk"
//! storage = "aborted-command,p=0.5"     # the words of a device's fault= option
//! at = "5s"
//! for = "5s"
//!
//! [[fault]]                             # sticky: without a time, for the whole run
//! target = "disk"
//! storage = "slow:1ms"
//! ```

use std::time::Duration;

use brunt_block::layers::fault::Fault as StorageFault;
use brunt_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Experiment;
use super::mistake::{FileError, Source};

/// Most faults of an experiment.
pub const FAULTS_MAX: usize = 64;

/// One fault. Exactly one key says what it is: `storage`, `member` (…).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultEntry {
    /// What it is called in reports; what it does, by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it begins, from the start of measuring. Without it the fault is sticky: there before the
    /// first request and until after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Span>,
    /// How long it lasts; until the end of the run by default.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// Which of the experiment's targets it is about. Runs against others go on without it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The layer of the target's device, by its name, when there is more than one of that kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Trouble of the storage, in the words of a device's `fault=` option: `medium-error,p=0.1,op=read`,
    /// `slow:10ms`, `hang`. Without such a layer in the target's URL one is put on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

impl FaultEntry {
    /// What it does, in a word or two.
    pub fn what(&self) -> String {
        match &self.storage {
            Some(storage) => storage.clone(),
            None => "nothing".to_string(),
        }
    }

    /// Its kind, one word: the key that says what it is.
    pub fn kind(&self) -> &'static str {
        "storage"
    }

    /// Where it is: a target's name.
    pub fn place(&self) -> String {
        self.target.clone()
    }

    /// What reports call it.
    pub fn label(&self) -> String {
        if self.name.is_empty() { self.what() } else { self.name.clone() }
    }

    /// When it begins and ends, from the start of measuring; `None` for "before" and "after".
    pub fn times(&self) -> (Option<Duration>, Option<Duration>) {
        let at = self.at.map(|at| at.0);
        (at, self.lasts.map(|lasts| at.unwrap_or_default().saturating_add(lasts.0)))
    }
}

impl Experiment {
    pub(super) fn check_faults(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let wrong = |index: usize, what: String, help: &str| {
            let what = format!("fault {}: {what}", index + 1);
            Err(source.mistake(&["fault"], what, Some(help.to_string())))
        };
        if self.fault.len() > FAULTS_MAX {
            return wrong(FAULTS_MAX, format!("more than {FAULTS_MAX} faults"), "leave some out");
        }
        for (index, fault) in self.fault.iter().enumerate() {
            if !self.targets.contains_key(&fault.target) {
                let names: Vec<&str> = self.targets.keys().map(String::as_str).collect();
                let what = format!("there is no target '{}'", fault.target);
                return wrong(index, what, &format!("write target = one of {}", names.join(", ")));
            }
            let Some(storage) = &fault.storage else {
                return wrong(
                    index,
                    "it does nothing".into(),
                    "write what, such as storage = \"medium-error,p=0.1\"",
                );
            };
            if let Err(error) = StorageFault::parse(storage) {
                return wrong(index, error.to_string(), "the same words as in a device's fault= option");
            }
            if fault.lasts.is_some_and(|lasts| lasts.0.is_zero()) {
                return wrong(index, "it lasts no time".into(), "write for = \"5s\", or leave it out");
            }
            if fault.lasts.is_some() && fault.at.is_none() {
                return wrong(index, "it ends, but does not begin".into(), "write at = \"0s\" as well");
            }
            let ends = |time: Duration| {
                let (begin, end) = fault.times();
                begin.is_some_and(|begin| begin >= time) || end.is_some_and(|end| end > time)
            };
            let late = self.workloads.iter().find_map(|(name, workload)| {
                workload.stop.time.filter(|time| ends(time.0)).map(|time| (name, time))
            });
            if let Some((name, time)) = late {
                let what = format!("workload {name} is over after {time}, before the fault is");
                return wrong(
                    index,
                    what,
                    "begin and end it within the workload's stop.time, or let it last until the end",
                );
            }
        }
        Ok(())
    }
}
