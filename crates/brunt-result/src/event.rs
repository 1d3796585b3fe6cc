//! Events of an experiment: runs start and end, intervals pass, hosts are sampled, faults come and go. A study sends
//! them to its observers (tables, terminal, pages), and as an [`Envelope`] to other processes and hosts. Values are
//! owned and cheap to clone: large ones are shared.
//!
//! The rule: all times in an event are on one clock, which the envelope names.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

pub use crate::fault_record::{FaultGap, FaultRecord};
use crate::summary::{RunSummary, Summary};
use crate::{Figures, Interval, RequestRecord};

/// A run that is about to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Position among all runs of the experiment, from 0. Identifies the run everywhere.
    pub order: u32,
    /// Total number of runs in the experiment.
    pub runs: u32,
    /// The point's index in the experiment's list of points.
    pub point: u32,
    /// The point's label.
    pub label: String,
    /// Repetition of the point, from 0.
    pub repetition: u32,
    /// Seed of its requests.
    pub seed: u64,
    /// Wall-clock time at which the run was prepared.
    pub wall: SystemTime,
    /// The time at which the run was prepared, on the clock of all other times.
    pub ready: Nanos,
}

/// A host's state over a span of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The host: `local`, or a lab host's name.
    pub host: Arc<str>,
    /// When the span began.
    pub start: Nanos,
    /// When the counters were read, at the end of the span.
    pub end: Nanos,
    /// The figures of the sample.
    pub values: Vec<SampleValue>,
}

/// One figure of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleValue {
    /// The probe's name: `cpu`, `network`.
    pub probe: Cow<'static, str>,
    /// The instance (`cpu0`, `eth0`, `nvme0n1`); empty for the sum over all instances.
    pub instance: Arc<str>,
    /// The metric with its unit: `user_share`, `received_bytes_per_s`.
    pub metric: Cow<'static, str>,
    /// The value; a finite number.
    pub value: f64,
}

/// An event of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Targets are open and no run has been made yet. The summary has all points and no runs.
    Begins(Arc<Summary>),
    /// A run is being prepared.
    RunBegins(Arc<RunInfo>),
    /// All workers of the run start at this time; with a ramp-up, measuring begins later. In a rate search, workers
    /// start several times.
    RunStarts(Nanos),
    /// An interval of the run has ended; the figures are merged over all workers.
    Interval(Arc<Interval>),
    /// Completed and failed requests, if the workload records each request.
    Requests(Arc<[RequestRecord]>),
    /// A probe has read a host's state.
    Sample(Arc<Sample>),
    /// A fault was injected and verified. Sent again, with the fault's end, once the fault has been removed.
    Fault(Arc<FaultRecord>),
    /// The run has ended; the summary says whether it is complete. The figures cover the whole run.
    RunEnds(Arc<RunInfo>, Arc<RunSummary>, Arc<Figures>),
    /// An event of one of several jobs of the current run. The number is the job's run number; times count from the
    /// start of the current run, which has the combined figures of all jobs.
    Job(u32, JobEvent),
    /// The experiment has ended: always the last event, even if it failed or was interrupted.
    Ends(Arc<Summary>),
}

/// An event of one of several concurrent jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobEvent {
    /// An interval of the job's run has ended; the figures are merged over all its workers.
    Interval(Arc<Interval>),
    /// Completed and failed requests, if the job's workload records each request.
    Requests(Arc<[RequestRecord]>),
    /// The job's run has ended; sent after the end of the run of all jobs.
    RunEnds(Arc<RunInfo>, Arc<RunSummary>, Arc<Figures>),
}

/// Identifies the clock of an event's times. Times of two envelopes can be compared only if both are on the same
/// clock. A monotonic clock restarts with its machine, so the name of the clock has to distinguish boots.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClockName(pub Arc<str>);

/// An event for another process or host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`Envelope::VERSION`].
    pub version: u32,
    /// Clock of the event's times.
    pub clock: ClockName,
    /// The event.
    pub event: Event,
}

/// Why bytes are not a valid envelope.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Longer than [`Envelope::BYTES_MAX`].
    #[error("an event of {0} bytes exceeds the maximum of {max}", max = Envelope::BYTES_MAX)]
    TooLong(usize),
    /// An unknown version.
    #[error("an event of version {0}, but this program uses version {ours}: run the same Brunt on both hosts", ours = Envelope::VERSION)]
    Version(u32),
    /// The contents are not valid for the version.
    #[error("not an event: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl Envelope {
    /// Increased when the meaning of the contents changes.
    pub const VERSION: u32 = 2;
    /// Maximum length: several times that of a summary of the largest experiment.
    pub const BYTES_MAX: usize = 256 << 20;

    /// Wraps an event whose times are on `clock`.
    pub fn new(clock: ClockName, event: Event) -> Envelope {
        Envelope {
            version: Envelope::VERSION,
            clock,
            event,
        }
    }

    /// Encodes the envelope as JSON without line breaks.
    ///
    /// # Panics
    /// Never: every event can be written as JSON.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an event is plain data")
    }

    /// Decodes the output of [`Envelope::encode`], exactly.
    ///
    /// # Errors
    /// The bytes are too long, malformed, or of an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        /// The fields common to all versions.
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
