//! The messages between the controller of an experiment and its agents, and their framing: before, during and after a
//! run.
//!
//! A frame is four bytes of length, big-endian, and so many bytes of JSON. Each side begins with a greeting that
//! says [`VERSION`]; another version is refused by both numbers. A length is held against [`FRAME_BYTES_MAX`] before anything is
//! kept, so that a peer's word costs no memory.
//!
//! The rule: times are on the clock that the message names, and a message carries a secret only as a [`Secret`],
//! which is never printed.
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

pub use fault::{HostFault, HostFaultFailure, HostProcess, Proof};
pub use requests::RecordEnd;
pub use role::{HostRole, HostService, RoleEnd, RoleNews, RoleOrder, RoleOutage};
pub use watch::{SAMPLES_DROPPED, SAMPLES_MISSED, WatchReport};

/// Of these messages. Raised when one changes its meaning or a new one has to be understood.
pub const VERSION: u32 = 16;
/// Longest frame. An interval of eight kinds of operation with full histograms is a third of it; what may be longer
/// (requests, a trace) goes in several.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Most requests in one message: about 64 KiB, so that an answer about the clock never waits long behind them.
pub const REQUESTS_MAX: usize = 1024;
/// Most bytes of a trace in one message, before they are written as text.
pub const PART_BYTES_MAX: usize = 1 << 20;
/// The same of a journal: as long as [`REQUESTS_MAX`] requests, for the same reason.
pub const JOURNAL_BYTES_MAX: usize = 32 << 10;
/// The same of what a service wrote.
pub const LOG_BYTES_MAX: usize = 32 << 10;

/// A moment on a named clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Which.
    pub clock: ClockName,
    /// Since that clock's beginning.
    pub at: Nanos,
}

/// Something that must not be shown: a URL with its password. It is sent, and printed as `***`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// SHA-256 of a trace's file, as sixty-four hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceDigest(pub String);

/// How far a host goes with a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadStep {
    /// It makes what all runs share, as before the first.
    Open,
    /// It makes a run ready, to be started.
    Run,
    /// It takes away what all runs shared, as after the last.
    Close,
}

/// What one host does in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Tells the blocks of this run from those of another when they are verified.
    pub run: u64,
    /// Every request follows from it.
    pub seed: u64,
    /// Number of the first of this host's workers among all; the load says how many there are.
    pub first_worker: u32,
    /// Workers of the run on all hosts.
    pub workers_of_all: u32,
    /// How many of them share this host's device: all, or this host's alone, if each host has a device of its own.
    pub workers_on_device: u32,
    /// A line of the table of loads, such as `block`.
    pub kind: String,
    /// The load, as its kind reads it (TOML), for this run.
    pub load: String,
    /// Which of the loads that this describes, by its name; empty for the only one.
    pub member: String,
    /// What of it is to be done.
    pub step: LoadStep,
    /// What it is done to: a device's URL as this host opens it, with its password; empty for a load that names what it uses.
    pub target: Secret,
    /// The device may be written although it holds a file system or partition table.
    pub overwrite: bool,
    /// Its workers keep journals of acknowledged writes, for the controller.
    pub journals: bool,
    /// The targets of a replay that names them, in their order, driven as one device in place of `target`; none for others.
    pub joined: Vec<JoinedTarget>,
}

/// One of the targets that a replay drives as one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedTarget {
    /// As the workload's `devices` name it.
    pub name: String,
    /// As this host opens it.
    pub url: Secret,
    /// As [`Assignment::overwrite`].
    pub overwrite: bool,
}

/// From the side that runs the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ToHost {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program's own, for the message when the two do not fit.
        program: String,
    },
    /// What is to be done, when nothing is; answered by [`FromHost::Ready`] or [`FromHost::Failed`].
    Prepare(Box<Assignment>),
    /// A part of a trace that the host lacks, in order; the last one is empty.
    TracePart {
        /// Which trace.
        trace: TraceDigest,
        /// At most [`PART_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Start then, on the host's own clock.
    Start(Moment),
    /// Make no more requests; what was measured is the result.
    Stop,
    /// An open loop's rate from now on, in requests a second of the workers of all hosts together.
    Rate(f64),
    /// Requests that each worker keeps outstanding from now on.
    Depth(u32),
    /// The lease starts again.
    Renew,
    /// What does your clock say? Answered at once by [`FromHost::Clock`].
    AskClock {
        /// Tells answers apart.
        round: u32,
    },
    /// Sample the host's counters from now on, each interval anew; comes as [`FromHost::Event`].
    Watch {
        /// What the controller calls the host, for notes.
        name: String,
        /// Milliseconds between two samples.
        interval_ms: u64,
        /// Which probes; none named: all.
        only: Vec<String>,
        /// Programs whose processes are sampled, too.
        processes: Vec<String>,
    },
    /// Samples are due then, on the host's own clock, and in intervals from there.
    WatchFrom(Moment),
    /// Take a last sample, and no more; answered by [`FromHost::Watched`].
    Unwatch,
    /// Break this; answered by [`FromHost::FaultPut`] or [`FromHost::FaultFailed`].
    PutFault {
        /// Tells faults apart.
        fault: u32,
        /// What.
        what: HostFault,
    },
    /// What went through the bridge so far? Answered by [`FromHost::Bridge`].
    AskBridge,
    /// Mend it; answered by [`FromHost::FaultRemoved`] or [`FromHost::FaultFailed`].
    RemoveFault {
        /// Which.
        fault: u32,
    },
    /// Start, drive or end a role; answered by [`FromHost::Role`].
    Role {
        /// Tells roles apart.
        role: u32,
        /// What is to be done.
        order: RoleOrder,
    },
    /// The next requests of the record that the run left; answered by one [`FromHost::Requests`].
    MoreRequests,
    /// The next part of the journals that the run left; answered by one [`FromHost::Journal`].
    MoreJournal,
    /// The host forgets the run, which is stopped if it still goes on; answered by [`FromHost::Released`].
    Release,
}

/// What a host made ready, and the run needs to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReady {
    /// What the user has to know beside the figures.
    pub notes: Vec<String>,
    /// The engine of its requests; `None` of a load that needs none, and of one that was only opened.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<EngineChoice>,
    /// How its rings work, if that was to be measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ring: Option<RingChoice>,
    /// A digest of the requests of the trace that it replays.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<String>,
}

/// Why a host cannot do what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It speaks another version.
    Version,
    /// It may not open what it was asked to.
    NotAllowed,
    /// A load or target is wrong or cannot be opened.
    Refused,
    /// A device, a disk or the ring failed while it ran.
    Broken,
    /// It heard nothing for the length of its lease.
    LeaseOver,
}

/// From a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FromHost {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program's own.
        program: String,
        /// The clock of all times that follow, and what it says now.
        now: Moment,
    },
    /// It lacks the trace: [`ToHost::TracePart`] is wanted.
    NeedsTrace(TraceDigest),
    /// All workers wait for the start.
    Ready(HostReady),
    /// An interval of one worker is over.
    Interval {
        /// Whose, counted from this host's first.
        worker: u32,
        /// What happened in it.
        interval: Box<Interval>,
    },
    /// What else happened on the host: a sample of its state, a fault there.
    Event(Box<Envelope>),
    /// What the clock says.
    Clock {
        /// Of the question.
        round: u32,
        /// When the question was heard.
        heard: Nanos,
        /// The wall clock between that and the answer, in nanoseconds since 1970.
        wall_ns: u64,
        /// Just before the answer was sent.
        answered: Nanos,
    },
    /// What the user has to know, such as counters that this host's kernel lacks.
    Note(String),
    /// The same of its samples.
    WatchNote(String),
    /// No sample follows: what they came to; the answer to [`ToHost::Unwatch`].
    Watched(WatchReport),
    /// What went through the bridge since it began; `None` where there is none.
    Bridge(Option<Box<LinkReport>>),
    /// A fault shows.
    FaultPut {
        /// Which.
        fault: u32,
        /// What was seen of it.
        proof: Proof,
    },
    /// It is gone.
    FaultRemoved {
        /// Which.
        fault: u32,
        /// What was seen of that.
        proof: Proof,
    },
    /// It is not there, or not gone; nothing more is said of it.
    FaultFailed {
        /// Which.
        fault: u32,
        /// For a decision.
        kind: HostFaultFailure,
        /// For people: what, where, and what to do.
        what: String,
    },
    /// What there is to know of a role.
    Role {
        /// Which.
        role: u32,
        /// What.
        news: RoleNews,
    },
    /// A counter that only grows, such as bytes of this very connection.
    Counter {
        /// Which.
        name: String,
        /// How much by now.
        value: u64,
    },
    /// What went wrong; the run of this host is over.
    Failed {
        /// For a decision.
        kind: FailureKind,
        /// For people: what, where, and what to do.
        what: String,
    },
    /// When all workers have ended, of a load that records requests: how many of them wait here.
    Recorded(RecordEnd),
    /// The next of them, at most [`REQUESTS_MAX`]; the answer to [`ToHost::MoreRequests`].
    Requests(#[serde(with = "requests")] Vec<RequestRecord>),
    /// When all workers have ended, or one has failed after the start, of a load that keeps journals of acknowledged writes: how
    /// many bytes each of this host's workers has of them.
    Journals(Vec<u64>),
    /// The next part of them, in the order of workers; the answer to [`ToHost::MoreJournal`].
    Journal {
        /// Whose, counted from this host's first.
        worker: u32,
        /// [`JOURNAL_BYTES_MAX`], or what is left of this worker's.
        #[serde(with = "hex")]
        bytes: Vec<u8>,
    },
    /// A worker has ended; no interval of it follows.
    Ended {
        /// Whose, counted from this host's first.
        worker: u32,
        /// All that it measured.
        outcome: Box<Outcome>,
    },
    /// After the run, when all workers have ended: what their devices went through.
    Done {
        /// By worker.
        troubles: Vec<String>,
        /// The page cache's part, of a load on a file system.
        page_cache: Option<PageCache>,
        /// This host's part of a replay, for the load that judges all of them.
        replay: Option<String>,
    },
    /// The run is forgotten, and nothing of it is left; the answer to [`ToHost::Release`].
    Released,
}

/// What is wrong with bytes that should have been a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A peer announces more than anybody sends.
    #[error("a message of {bytes} bytes exceeds the maximum of {FRAME_BYTES_MAX}")]
    TooLong {
        /// What it announced.
        bytes: usize,
    },
    /// No message of this version.
    #[error("malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The first message is no greeting.
    #[error("the first message is not a greeting; is the peer another program?")]
    NoGreeting,
    /// The peer speaks another version.
    #[error(
        "the other side ({program}) speaks version {theirs}, this one {VERSION}; use the same program on both"
    )]
    Version {
        /// The peer's.
        theirs: u32,
        /// The peer's program.
        program: String,
    },
}

impl ToHost {
    /// Whether this may be the first message.
    ///
    /// # Errors
    /// It is no greeting, or one of another version.
    pub fn check_greeting(&self) -> Result<(), FrameError> {
        match self {
            ToHost::Hello { version, program } => check_version(*version, program),
            _ => Err(FrameError::NoGreeting),
        }
    }
}

impl FromHost {
    /// Whether this may be the first message.
    ///
    /// # Errors
    /// It is no greeting, or one of another version.
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

/// Appends a message's frame.
///
/// # Errors
/// The message is longer than a frame: whoever made it has to send it in parts.
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

/// Takes bytes as they come and gives messages. Holds at most one frame and what one call brought.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// So much of the front was given already.
    given: usize,
}

impl Decoder {
    /// Takes some more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.given));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes come.
    ///
    /// # Errors
    /// The stream is of no use any more: what follows cannot be found.
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
