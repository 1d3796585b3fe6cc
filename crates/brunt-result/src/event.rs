//! Events of an experiment: runs start and end, intervals pass, hosts are sampled, faults come and go. A
//! study sends them to its observers (tables, terminal, pages), and as an [`Envelope`] to other processes and
//! hosts. Values are owned and cheap to clone: large ones are shared.
//!
//! The rule: all times in an event are on one clock, which the envelope names.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

use crate::summary::{RunSummary, Summary};
use crate::{Figures, Interval, RequestRecord};

/// A run that is about to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Position among all runs of the experiment, from 0. Names the run everywhere.
    pub order: u32,
    /// How many runs there are.
    pub runs: u32,
    /// The point's index in the experiment's list of points.
    pub point: u32,
    /// The point's label.
    pub label: String,
    /// Repetition of the point, from 0.
    pub repetition: u32,
    /// Seed of its requests.
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
    /// When it was seen to be there.
    pub shown: Nanos,
    /// Evidence that it was in effect.
    pub shown_by: String,
    /// When it was taken away; `None` while it is there.
    pub end: Option<Nanos>,
    /// When it was seen to be gone.
    pub gone: Option<Nanos>,
    /// Evidence that it was gone.
    pub gone_by: String,
    /// When it was not there in between.
    pub gaps: Vec<FaultGap>,
}

/// A time in which a fault was not there, because what it was in (a target's process) was started again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultGap {
    /// When the fault was lost.
    pub from: Nanos,
    /// When it was injected again.
    pub until: Nanos,
    /// When it was seen to be there again.
    pub shown: Nanos,
    /// Evidence that it was in effect again.
    pub shown_by: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Targets are open; no run was made yet. The summary has all points and no run.
    Begins(Arc<Summary>),
    /// A run is being made ready.
    RunBegins(Arc<RunInfo>),
    /// All workers of the run start at this time; with a ramp-up, measuring begins later. A rate
    /// search starts several times.
    RunStarts(Nanos),
    /// A part of the run is over, all workers merged.
    Interval(Arc<Interval>),
    /// Requests that ended, when the workload asks for each.
    Requests(Arc<[RequestRecord]>),
    /// A prober has read a host's state.
    Sample(Arc<Sample>),
    /// A fault was put in place and shown; told again, with its end, when it is gone.
    Fault(Arc<FaultRecord>),
    /// The run is over; complete or not is for the summary to say. The figures are all of it.
    RunEnds(Arc<RunInfo>, Arc<RunSummary>, Arc<Figures>),
    /// Something happened in one of several jobs of the run under way. The number is that of the job's own run;
    /// its workers' zero of time is that of the run under way, which has the figures of all jobs together.
    Job(u32, JobEvent),
    /// The experiment is over: the last event, also of one that failed or was interrupted.
    Ends(Arc<Summary>),
}

/// Something that happened in one of several jobs that run at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobEvent {
    /// A part of the job's run is over, all its workers merged.
    Interval(Arc<Interval>),
    /// Requests that ended, when the job's workload asks for each.
    Requests(Arc<[RequestRecord]>),
    /// The job's run is over; told after the end of the run of all of them.
    RunEnds(Arc<RunInfo>, Arc<RunSummary>, Arc<Figures>),
}

/// Which clock times are on. Times of two envelopes can be subtracted only if these are the same; a monotonic
/// clock starts again with its machine, so its name has to tell one start from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClockName(pub Arc<str>);

/// An event on its way to another process or host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`Envelope::VERSION`].
    pub version: u32,
    /// What the event's times are on.
    pub clock: ClockName,
    /// What happened.
    pub event: Event,
}

/// Why bytes are no envelope.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// More than [`Envelope::BYTES_MAX`].
    #[error("an event of {0} bytes exceeds the maximum of {max}", max = Envelope::BYTES_MAX)]
    TooLong(usize),
    /// Of a version that is not known here.
    #[error("an event of version {0}, but this program uses version {ours}: run the same Brunt on both hosts", ours = Envelope::VERSION)]
    Version(u32),
    /// Not what the version says.
    #[error("not an event: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl Envelope {
    /// Raised when the meaning of what is sent changes.
    pub const VERSION: u32 = 2;
    /// Longest one: a summary of the largest experiment fits several times.
    pub const BYTES_MAX: usize = 256 << 20;

    /// Around an event whose times are on `clock`.
    pub fn new(clock: ClockName, event: Event) -> Envelope {
        Envelope {
            version: Envelope::VERSION,
            clock,
            event,
        }
    }

    /// As JSON without line breaks.
    ///
    /// # Panics
    /// Never: everything in an event can be written as JSON.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an event is plain data")
    }

    /// What [`Envelope::encode`] made, to the bit.
    ///
    /// # Errors
    /// It is longer than any, of another version, or malformed.
    pub fn decode(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        if bytes.len() > Envelope::BYTES_MAX {
            return Err(EnvelopeError::TooLong(bytes.len()));
        }
        let Head { version } = serde_json::from_slice(bytes)?;
        if version != Envelope::VERSION {
            return Err(EnvelopeError::Version(version));
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[cfg(test)]
mod tests;
