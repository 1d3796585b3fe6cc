//! What happens in an experiment: runs begin and end, intervals pass, hosts are looked at, faults come and go.
//! Told by a study to its observers (tables, terminal, pages), and sent as an [`Envelope`] to other processes
//! and hosts. Values are owned and cheap to clone: what is large is shared.
//!
//! The rule: every time in an event is on one clock, and an envelope names it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

/// A run that is about to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Its place among all runs of the experiment, from 0. Names the run everywhere.
    pub order: u32,
    /// How many runs there are.
    pub runs: u32,
    /// The point's index in the experiment's list of points.
    pub point: u32,
    /// The point's label.
    pub label: String,
    /// From 0.
    pub repetition: u32,
    /// Of its requests.
    pub seed: u64,
    /// Wall-clock time at which it was made ready.
    pub wall: SystemTime,
    /// The same moment on the clock of all other times.
    pub ready: Nanos,
}

/// A host's state over a span of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Whose: `local`, or a lab host's name.
    pub host: Arc<str>,
    /// When the span began.
    pub start: Nanos,
    /// When it ended: when the counters were read.
    pub end: Nanos,
    /// What was read.
    pub values: Vec<SampleValue>,
}

/// One figure of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleValue {
    /// The probe's name: `cpu`, `network`.
    pub probe: Cow<'static, str>,
    /// Which one of several (`cpu0`, `eth0`, `nvme0n1`); empty for all together.
    pub instance: Arc<str>,
    /// What, with its unit: `user_share`, `received_bytes_per_s`.
    pub metric: Cow<'static, str>,
    /// How much; a finite number.
    pub value: f64,
}

/// A fault of the time line, as far as it has come. All times are on the run's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Its place in the experiment's `fault` list, from 0.
    pub index: u32,
    /// What it is called.
    pub name: String,
    /// Its kind: `storage`, `link`, `cpu`.
    pub kind: Cow<'static, str>,
    /// Where: a target's name, a link's, a host's.
    pub place: String,
    /// What it does.
    pub what: String,
    /// When it was put in place.
    pub start: Nanos,
    /// When it was seen to be there.
    pub shown: Nanos,
    /// What was seen.
    pub shown_by: String,
    /// When it was taken away; `None` while it is there.
    pub end: Option<Nanos>,
    /// When it was seen to be gone.
    pub gone: Option<Nanos>,
    /// What was seen.
    pub gone_by: String,
    /// When it was not there in between.
    pub gaps: Vec<FaultGap>,
}

/// A time in which a fault was not there, because what it was in (a target's process) was started again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultGap {
    /// When it was lost.
    pub from: Nanos,
    /// When it was put in place again.
    pub until: Nanos,
    /// When it was seen to be there again.
    pub shown: Nanos,
    /// What was seen then.
    pub shown_by: String,
}
