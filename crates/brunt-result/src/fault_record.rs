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
    /// Name of the target, link or host that it affects.
    pub place: String,
    /// Its effect, in words.
    pub what: String,
    /// When it was injected.
    pub start: Nanos,
    /// When it was observed to be in effect.
    pub shown: Nanos,
    /// Evidence that it was in effect.
    pub shown_by: String,
    /// When it was removed; `None` while it is present.
    pub end: Option<Nanos>,
    /// When it was observed to be gone.
    pub gone: Option<Nanos>,
    /// Evidence that it was gone.
    pub gone_by: String,
    /// Times in between during which it was absent.
    pub gaps: Vec<FaultGap>,
}

/// A time during which a fault was absent, because its place (a target's process) was restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultGap {
    /// When the fault was lost.
    pub from: Nanos,
    /// When it was injected again.
    pub until: Nanos,
    /// When it was observed to be in effect again.
    pub shown: Nanos,
    /// Evidence that it was in effect again.
    pub shown_by: String,
}
