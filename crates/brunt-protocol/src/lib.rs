//! The messages between the controller of an experiment and its agents before, during and after a run, and their
//! framing.
//!
//! A frame is a length (four bytes, big-endian), followed by that many bytes of JSON. Each side starts with a greeting
//! that states [`VERSION`]; on a mismatch, the error names both versions. A length is checked against
//! [`FRAME_BYTES_MAX`] before anything is buffered, so an announced length alone allocates no memory.
//!
//! The rule: times are on the clock that the message names, and a message only carries secrets as [`Secret`], which is
//! never printed.
#![forbid(unsafe_code)]

mod fault;
mod hex;
mod requests;
mod role;
pub mod service;
mod watch;

use std::fmt;

use brunt_core::Nanos;
use brunt_result::choice::{EngineChoice, PageCache, RingChoice};
use brunt_result::event::{ClockName, Envelope};
use brunt_result::link::LinkReport;
use brunt_result::record::{Interval, Outcome, RequestRecord};
use serde::{Deserialize, Serialize};

pub use fault::{HostFault, HostFaultFailure, HostProcess, PathFigure, Proof};
pub use requests::RecordEnd;
pub use role::{HostRole, HostService, RoleEnd, RoleNews, RoleOrder, RoleOutage};
pub use watch::{INTERFACES_MAX, InterfaceReading, SAMPLES_DROPPED, SAMPLES_MISSED, WatchReport};

/// The protocol version, raised when the meaning of a message changes or a message is added.
pub const VERSION: u32 = 19;
/// Maximum size of a frame. An interval with eight kinds of operations and full histograms takes a third of it; longer
/// data (requests, a trace) is sent in several frames.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Maximum number of requests in a message: about 64 KiB, so that a reply to [`ToHost::AskClock`] never waits long
/// behind them.
pub const REQUESTS_MAX: usize = 1024;
/// Maximum bytes of a trace in a message, before text encoding.
pub const PART_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a journal in a message: about the size of [`REQUESTS_MAX`] requests, for the same reason.
pub const JOURNAL_BYTES_MAX: usize = 32 << 10;
/// Maximum bytes of a service's output in a message.
pub const LOG_BYTES_MAX: usize = 32 << 10;

/// A time on a named clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The clock.
    pub clock: ClockName,
    /// Time since that clock's epoch.
    pub at: Nanos,
}

/// A value that must not be displayed, such as a URL with its password. It is sent in clear, but printed as `***`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// SHA-256 of a trace file, as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceDigest(pub String);

/// The step of a load that a host performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadStep {
    /// Create what all runs share, before the first run.
    Open,
    /// Prepare a run, to be started later.
    Run,
    /// Remove what all runs shared, after the last run.
    Close,
}

/// A host's share of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Distinguishes this run's blocks from those of other runs during verification.
    pub run: u64,
    /// The seed that determines every request.
    pub seed: u64,
    /// Number of this host's first worker, counted across all hosts; the load determines how many workers the host has.
    pub first_worker: u32,
    /// Number of the run's workers on all hosts.
    pub workers_of_all: u32,
    /// Number of workers that share this host's device: all of the run's workers, or only this host's if each host
    /// has its own device.
    pub workers_on_device: u32,
    /// The load's kind: an entry in the table of loads, such as `block`.
    pub kind: String,
    /// The load for this run, in the format of its kind (TOML).
    pub load: String,
    /// The name of the load to run, if `load` describes several; empty if it describes one.
    pub member: String,
    /// The step to perform.
    pub step: LoadStep,
    /// The device's URL as this host opens it, with its password; empty for a load that names its own resources.
    pub target: Secret,
    /// Whether the device may be written to although it holds a file system or partition table.
    pub overwrite: bool,
    /// Whether the workers keep journals of acknowledged writes, for the controller.
    pub journals: bool,
    /// For a replay on several targets: the targets, in order, driven as a single device in place of `target`; empty
    /// for other loads.
    pub joined: Vec<JoinedTarget>,
}

/// One of several targets that a replay drives as a single device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedTarget {
    /// The target's name in the workload's `devices`.
    pub name: String,
    /// The target's URL as this host opens it.
    pub url: Secret,
    /// See [`Assignment::overwrite`].
    pub overwrite: bool,
}

/// A message from the controller of the experiment to a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ToHost {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program's version, for the error message on a mismatch.
        program: String,
    },
    /// Prepare this load; only valid while no run is in progress. Answered by [`FromHost::Ready`] or
    /// [`FromHost::Failed`].
    Prepare(Box<Assignment>),
    /// A part of a trace that the host lacks, in order; an empty part ends the trace.
    TracePart {
        /// The trace.
        trace: TraceDigest,
        /// At most [`PART_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Start at this time on the host's own clock.
    Start(Moment),
    /// Send no further requests; the result is what has been measured so far.
    Stop,
    /// From now on, the rate of an open loop, in requests per second over all hosts' workers.
    Rate(f64),
    /// From now on, the queue depth of each worker.
    Depth(u32),
    /// Renew the lease.
    Renew,
    /// Read the clock; answered immediately by [`FromHost::Clock`].
    AskClock {
        /// Matches the reply to the request.
        round: u32,
    },
    /// Sample the host's counters from now on, at the given interval; samples arrive as [`FromHost::Event`].
    Watch {
        /// The controller's name for the host, used in notes.
        name: String,
        /// Milliseconds between two samples.
        interval_ms: u64,
        /// The probes to use; empty for all.
        only: Vec<String>,
        /// Programs whose processes are sampled too.
        processes: Vec<String>,
    },
    /// Schedule samples: the first at this time on the host's own clock, then one per interval.
    WatchFrom(Moment),
    /// Take a last sample, and stop; answered by [`FromHost::Watched`].
    Unwatch,
    /// Read the byte counters of these interfaces from now on; replaces an earlier request.
    Count {
        /// Their names.
        interfaces: Vec<String>,
    },
    /// Discard all readings but the last; take the next one at this time on the host's own clock, and further ones at
    /// regular intervals.
    CountFrom(Moment),
    /// Take two more readings, and stop; answered by [`FromHost::Counted`].
    Uncount,
    /// Inject a fault; answered by [`FromHost::FaultPut`] or [`FromHost::FaultFailed`].
    PutFault {
        /// Identifies the fault.
        fault: u32,
        /// The fault to inject.
        what: HostFault,
    },
    /// Report the bridge's traffic so far; answered by [`FromHost::Bridge`].
    AskBridge,
    /// Remove a fault; answered by [`FromHost::FaultRemoved`] or [`FromHost::FaultFailed`].
    RemoveFault {
        /// The fault's number.
        fault: u32,
    },
    /// Start, drive or end a role; answered by [`FromHost::Role`].
    Role {
        /// Identifies the role.
        role: u32,
        /// What the role should do.
        order: RoleOrder,
    },
    /// Send the next requests of the run's record; answered by a single [`FromHost::Requests`].
    MoreRequests,
    /// Send the next part of the run's journals; answered by a single [`FromHost::Journal`].
    MoreJournal,
    /// Discard the run, stopping it if it is still in progress; answered by [`FromHost::Released`].
    Release,
}

/// What the controller needs to know about a prepared run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReady {
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The engine that sends its requests; `None` if the load needs no engine, or was only opened.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<EngineChoice>,
    /// The mode of the load's rings, if it had to be measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ring: Option<RingChoice>,
    /// A digest of the requests in the trace that the host replays.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<String>,
}

/// Why a host cannot do what was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The host's program speaks another protocol version.
    Version,
    /// The host is not allowed to open the requested target.
    NotAllowed,
    /// A load or target is invalid or cannot be opened.
    Refused,
    /// A device, a disk or the ring failed during the run.
    Broken,
    /// Nothing arrived from the controller for the duration of the lease.
    LeaseOver,
}

/// A message from a host to its controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FromHost {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program's version.
        program: String,
        /// The clock of all later times, and its current time.
        now: Moment,
    },
    /// The host lacks the trace, which must follow as [`ToHost::TracePart`].
    NeedsTrace(TraceDigest),
    /// All workers are ready and waiting for the start.
    Ready(HostReady),
    /// An interval of a worker has ended.
    Interval {
        /// The worker's number, counting from this host's first worker.
        worker: u32,
        /// The worker's measurements in this interval.
        interval: Box<Interval>,
    },
    /// Another event on the host, such as a sample of its state or a fault.
    Event(Box<Envelope>),
    /// The time on the host's clock.
    Clock {
        /// Copied from the request.
        round: u32,
        /// When the request was received.
        heard: Nanos,
        /// The wall clock at a moment between receiving the request and replying, in nanoseconds since 1970.
        wall_ns: u64,
        /// The time just before the reply was sent.
        answered: Nanos,
    },
    /// A note for the user, such as counters that this host's kernel lacks.
    Note(String),
    /// A note for the user about the host's samples.
    WatchNote(String),
    /// Sampling has ended, with this outcome; answers [`ToHost::Unwatch`].
    Watched(WatchReport),
    /// The readings of interfaces, in order; answers [`ToHost::Uncount`].
    Counted(Vec<InterfaceReading>),
    /// The bridge's traffic since it started; `None` if there is no bridge.
    Bridge(Option<Box<LinkReport>>),
    /// A fault is in effect.
    FaultPut {
        /// The fault's number.
        fault: u32,
        /// The evidence.
        proof: Proof,
    },
    /// A fault has been removed.
    FaultRemoved {
        /// The fault's number.
        fault: u32,
        /// The evidence.
        proof: Proof,
    },
    /// A fault is not in effect, or has not been removed; no further message about it follows.
    FaultFailed {
        /// The fault's number.
        fault: u32,
        /// The kind of failure, for decisions in code.
        kind: HostFaultFailure,
        /// For users: what failed, where, and what to do.
        what: String,
    },
    /// News about a role.
    Role {
        /// The role's number.
        role: u32,
        /// The news.
        news: RoleNews,
    },
    /// A counter that only increases, such as the bytes of this connection.
    Counter {
        /// Its name.
        name: String,
        /// Its current value.
        value: u64,
    },
    /// An error that ends this host's run.
    Failed {
        /// The kind of failure, for decisions in code.
        kind: FailureKind,
        /// For users: what failed, where, and what to do.
        what: String,
    },
    /// Sent for a load that records requests, when all workers have ended: the number of recorded requests.
    Recorded(RecordEnd),
    /// The next requests of the record, at most [`REQUESTS_MAX`]; answers [`ToHost::MoreRequests`].
    Requests(#[serde(with = "requests")] Vec<RequestRecord>),
    /// Sent for a load that keeps journals of acknowledged writes, when all workers have ended, or one has failed
    /// after the start: the length in bytes of each worker's journal.
    Journals(Vec<u64>),
    /// The next part of the journals, in the order of workers; answers [`ToHost::MoreJournal`].
    Journal {
        /// The worker's number, counting from this host's first worker.
        worker: u32,
        /// [`JOURNAL_BYTES_MAX`] bytes, or the rest of this worker's journal.
        #[serde(with = "hex")]
        bytes: Vec<u8>,
    },
    /// A worker has ended and reports no further intervals.
    Ended {
        /// The worker's number, counting from this host's first worker.
        worker: u32,
        /// The worker's measurements over the whole run.
        outcome: Box<Outcome>,
    },
    /// Sent after the run, when all workers have ended.
    Done {
        /// Errors of the workers' devices, sorted by worker.
        troubles: Vec<String>,
        /// For a load on a file system: the page cache's share.
        page_cache: Option<PageCache>,
        /// This host's part of a replay, for the load, which judges all parts together.
        replay: Option<String>,
    },
    /// The run has been discarded completely; answers [`ToHost::Release`].
    Released,
}

/// Why bytes from a peer are not a valid frame or message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The announced length exceeds [`FRAME_BYTES_MAX`].
    #[error("a message of {bytes} bytes exceeds the maximum of {FRAME_BYTES_MAX}")]
    TooLong {
        /// The announced length.
        bytes: usize,
    },
    /// The bytes are not a message of this version.
    #[error("malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The first message is not a greeting.
    #[error("the first message is not a greeting; is the peer another program?")]
    NoGreeting,
    /// The peer's protocol version differs.
    #[error(
        "the other side ({program}) speaks protocol version {theirs}, this side version {VERSION}; \
         use the same program on both"
    )]
    Version {
        /// The peer's version.
        theirs: u32,
        /// The peer's program.
        program: String,
    },
}

impl ToHost {
    /// Checks that this message may be the first one.
    ///
    /// # Errors
    /// It is not a greeting, or its version differs.
    pub fn check_greeting(&self) -> Result<(), FrameError> {
        match self {
            ToHost::Hello { version, program } => check_version(*version, program),
            _ => Err(FrameError::NoGreeting),
        }
    }
}

impl FromHost {
    /// Checks that this message may be the first one.
    ///
    /// # Errors
    /// It is not a greeting, or its version differs.
    pub fn check_greeting(&self) -> Result<(), FrameError> {
        match self {
            FromHost::Hello {
                version, program, ..
            } => check_version(*version, program),
            _ => Err(FrameError::NoGreeting),
        }
    }
}

fn check_version(theirs: u32, program: &str) -> Result<(), FrameError> {
    if theirs == VERSION {
        return Ok(());
    }
    Err(FrameError::Version {
        theirs,
        program: program.to_string(),
    })
}

/// Appends a message as a frame.
///
/// # Errors
/// The message is too long for a frame; the caller must split it.
pub fn encode(message: &impl Serialize, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *out, message)?;
    let bytes = out.len() - begin - 4;
    if bytes > FRAME_BYTES_MAX {
        out.truncate(begin);
        return Err(FrameError::TooLong { bytes });
    }
    out[begin..begin + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
    Ok(())
}

/// Turns received bytes into messages. Buffers at most one frame and the bytes of one call.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Bytes at the front that have already been decoded.
    given: usize,
}

impl Decoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.given));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// The stream is unusable from then on, because the start of the next frame is unknown.
    pub fn take<M: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<M>, FrameError> {
        let rest = &self.bytes[self.given..];
        let Some((head, body)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*head) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: len });
        }
        let Some(frame) = body.get(..len) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(frame)?;
        self.given += 4 + len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests;
