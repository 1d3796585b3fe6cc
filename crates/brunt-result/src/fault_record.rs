//! A fault of an experiment's timeline: what it did, when, and the evidence for it.

use std::borrow::Cow;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

/// A fault of the timeline in its current state. All times are on the run's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Index in the experiment's `fault` list, from 0.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Kind, such as `storage`, `link` or `cpu`.
    pub kind: Cow<'static, str>,
    /// Name of the target, link or host that the fault affects.
    pub place: String,
    /// Effect of the fault, in words.
    pub what: String,
    /// When the fault was injected.
    pub start: Nanos,
    /// When the fault was observed to be in effect.
    pub shown: Nanos,
    /// Evidence that the fault was in effect.
    pub shown_by: String,
    /// When the fault was removed; `None` while it is present.
    pub end: Option<Nanos>,
    /// When the fault was observed to be gone.
    pub gone: Option<Nanos>,
    /// Evidence that the fault was gone.
    pub gone_by: String,
    /// Times in between during which the fault was absent.
    pub gaps: Vec<FaultGap>,
}

/// A time during which a fault was absent, because the process that it affects was restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultGap {
    /// When the fault was lost.
    pub from: Nanos,
    /// When the fault was injected again.
    pub until: Nanos,
    /// When the fault was observed to be in effect again.
    pub shown: Nanos,
    /// Evidence that the fault was in effect again.
    pub shown_by: String,
}
