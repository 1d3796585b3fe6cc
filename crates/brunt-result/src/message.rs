//! The messages between the process that runs an experiment and a host that works for it, and their framing:
//! before, during and after a run.
//!
//! A frame is four bytes of length, big-endian, and so many bytes of JSON. Each side begins with a greeting that
//! says [`VERSION`]; another version is refused by both numbers. A length is held against [`FRAME_BYTES_MAX`] before anything is
//! kept, so that a peer's word costs no memory.
//!
//! The rule: times are on the clock that the message names, and a message carries a secret only as a [`Secret`],
//! which is never printed.

use std::collections::BTreeMap;
use std::fmt;

use brunt_core::Nanos;
use serde::{Deserialize, Serialize};

use crate::event::{ClockName, Envelope};
use crate::record::{Interval, Outcome, RequestRecord};

/// Of these messages. Raised when one changes its meaning or a new one has to be understood.
pub const VERSION: u32 = 2;
/// Longest frame. An interval of eight kinds of operation with full histograms is a third of it; what may be longer
/// (requests, a trace) goes in several.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Most requests in one message: 4096 are about a megabyte.
pub const REQUESTS_MAX: usize = 4096;
/// Most bytes of a journal or a trace in one message, before they are written as text.
pub const PART_BYTES_MAX: usize = 1 << 20;

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

/// What one host does in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Names the run in everything that is said of it.
    pub run: u64,
    /// Every request follows from it.
    pub seed: u64,
    /// The first of this host's workers, and how many there are of them.
    pub workers: [u32; 2],
    /// Workers of the run on all hosts.
    pub workers_of_all: u32,
    /// A line of the table of loads: `block`, `file`.
    pub kind: String,
    /// The load, as its kind writes it in an experiment file.
    pub load: serde_json::Value,
    /// What it is done to: names and URLs, with their passwords.
    pub targets: BTreeMap<String, Secret>,
    /// The trace that is replayed, if there is one.
    pub trace: Option<TraceDigest>,
    /// The host ends the run by itself when it has heard nothing for so long.
    pub lease_ms: u64,
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
    /// What is to be done; answered by [`FromHost::NeedsTrace`], [`FromHost::Ready`] or [`FromHost::Failed`].
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
    /// An open loop's rate from now on, in requests a second of this host's workers together.
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
        /// Milliseconds between two samples.
        interval_ms: u64,
        /// Which probes; none named: all.
        only: Vec<String>,
    },
    /// Take no more samples.
    Unwatch,
    /// Everything was received: the host forgets the run.
    Release,
}

/// What a host made ready, and the run needs to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReady {
    /// What the user has to know beside the figures.
    pub notes: Vec<String>,
    /// What was found out meanwhile, such as `ring` or `queue_depth`, as it stands in the summary.
    pub found: BTreeMap<String, serde_json::Value>,
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
    /// Workers wait for the start.
    Ready(HostReady),
    /// Workers began; the difference to the start that was asked for is told beside the figures.
    Started(Nanos),
    /// An interval of one worker is over.
    Interval {
        /// Whose.
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
    /// After the run: requests, at most [`REQUESTS_MAX`].
    Requests(Vec<RequestRecord>),
    /// After the run: a part of a worker's journal of acknowledged writes, in order; the last one is empty.
    Journal {
        /// Whose.
        worker: u32,
        /// At most [`PART_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// After the run, last of all.
    Done(Box<Outcome>),
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
            FromHost::Hello { version, program, .. } => check_version(*version, program),
            _ => Err(FrameError::NoGreeting),
        }
    }
}

fn check_version(theirs: u32, program: &str) -> Result<(), FrameError> {
    if theirs == VERSION {
        return Ok(());
    }
    Err(FrameError::Version { theirs, program: program.to_string() })
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
        let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*head) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: len });
        }
        let Some(frame) = body.get(..len) else { return Ok(None) };
        let message = serde_json::from_slice(frame)?;
        self.given += 4 + len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::op::OpKind;
    use crate::record::{RequestStatus, Stopped};

    fn clock() -> ClockName {
        ClockName("monotonic of local since 0b4c".into())
    }

    fn to_host() -> Vec<ToHost> {
        let assignment = Assignment {
            run: u64::MAX,
            seed: 1,
            workers: [2, 3],
            workers_of_all: 8,
            kind: "block".into(),
            load: serde_json::json!({ "read": 0.1, "stop": { "time": "1s" } }),
            targets: BTreeMap::from([("disk".into(), Secret("iscsi://me%hush@host/t/0".into()))]),
            trace: Some(TraceDigest("ab".repeat(32))),
            lease_ms: 5000,
        };
        vec![
            ToHost::Hello { version: VERSION, program: "brunt 0.1.0".into() },
            ToHost::Prepare(Box::new(assignment)),
            ToHost::TracePart { trace: TraceDigest("00".into()), bytes: vec![0, 255, 7] },
            ToHost::Start(Moment { clock: clock(), at: Nanos(u64::MAX - 1) }),
            ToHost::Rate(0.1 + 0.2),
            ToHost::Depth(7),
            ToHost::Stop,
            ToHost::Renew,
            ToHost::Release,
            ToHost::AskClock { round: u32::MAX },
            ToHost::Watch { interval_ms: 1000, only: vec!["cpu".into()] },
            ToHost::Unwatch,
        ]
    }

    fn from_host() -> Vec<FromHost> {
        let mut outcome = Outcome::interrupted();
        outcome.stopped = Stopped::Done;
        outcome.requests_per_second = 1.0 / 3.0;
        let figures = outcome.figures.clone();
        let interval = Interval { index: 3, start: Nanos(1), end: Nanos(2), figures };
        let request = RequestRecord {
            worker: 1,
            index: 2,
            op: OpKind::Read,
            offset: 4096,
            len: 512,
            intended: Nanos(5),
            sent: Some(Nanos(6)),
            completed: None,
            retries: 1,
            status: RequestStatus::Hanging,
        };
        vec![
            FromHost::Hello {
                version: VERSION,
                program: "brunt 0.1.0".into(),
                now: Moment { clock: clock(), at: Nanos(9) },
            },
            FromHost::NeedsTrace(TraceDigest("00".into())),
            FromHost::Ready(HostReady::default()),
            FromHost::Started(Nanos(12)),
            FromHost::Interval { worker: 4, interval: Box::new(interval) },
            FromHost::Event(Box::new(Envelope::new(clock(), Event::RunStarts(Nanos(7))))),
            FromHost::Counter { name: "sent_bytes".into(), value: 17 },
            FromHost::Failed { kind: FailureKind::LeaseOver, what: "heard nothing for 5 s".into() },
            FromHost::Requests(vec![request]),
            FromHost::Journal { worker: 1, bytes: vec![] },
            FromHost::Done(Box::new(outcome)),
            FromHost::Clock { round: 3, heard: Nanos(1), wall_ns: 1 << 60, answered: Nanos(2) },
            FromHost::Note("no pressure figures".into()),
        ]
    }

    fn encoded(messages: &[impl Serialize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| encode(message, &mut bytes).unwrap());
        bytes
    }

    /// Every message, however its bytes are cut.
    #[test]
    fn messages_survive_any_cut() {
        let (to, from) = (to_host(), from_host());
        for step in [1, 3, 4, 5, 64, 1 << 20] {
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for part in encoded(&to).chunks(step) {
                decoder.push(part);
                while let Some(message) = decoder.take::<ToHost>().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, to, "in steps of {step}");
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for part in encoded(&from).chunks(step) {
                decoder.push(part);
                while let Some(message) = decoder.take::<FromHost>().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, from, "in steps of {step}");
        }
    }

    #[test]
    fn a_stream_that_is_cut_gives_nothing_more() {
        let bytes = encoded(&to_host());
        for len in 0..bytes.len() {
            let mut decoder = Decoder::default();
            decoder.push(&bytes[..len]);
            let mut seen = 0;
            while decoder.take::<ToHost>().unwrap().is_some() {
                seen += 1;
            }
            assert!(seen < to_host().len(), "{len} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn nonsense_is_refused_before_it_is_kept() {
        let check = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            decoder.take::<ToHost>().unwrap_err()
        };
        assert!(matches!(check(&[0xff; 5]), FrameError::TooLong { bytes: 0xffff_ffff }));
        assert!(matches!(check(b"\0\0\0\x02{}"), FrameError::Malformed(_)));
        assert!(matches!(check(b"\0\0\0\0"), FrameError::Malformed(_)));
        let extra = br#"{"hello":{"version":2,"program":"x","more":1}}"#;
        let mut frame = (extra.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(extra);
        assert!(matches!(check(&frame), FrameError::Malformed(_)));
        let long =
            ToHost::TracePart { trace: TraceDigest(String::new()), bytes: vec![200; FRAME_BYTES_MAX / 2] };
        assert!(matches!(encode(&long, &mut Vec::new()), Err(FrameError::TooLong { .. })));
    }

    /// The longest parts that are allowed fit into a frame.
    #[test]
    fn parts_fit_into_a_frame() {
        let part = ToHost::TracePart { trace: TraceDigest("f".repeat(64)), bytes: vec![255; PART_BYTES_MAX] };
        let FromHost::Requests(one) = &from_host()[8] else { panic!("the ninth is requests") };
        let requests = FromHost::Requests(vec![one[0]; REQUESTS_MAX]);
        let mut bytes = Vec::new();
        encode(&part, &mut bytes).unwrap();
        encode(&requests, &mut bytes).unwrap();
    }

    #[test]
    fn versions_that_differ_are_both_named() {
        assert!(to_host()[0].check_greeting().is_ok() && from_host()[0].check_greeting().is_ok());
        assert!(matches!(ToHost::Stop.check_greeting(), Err(FrameError::NoGreeting)));
        let other = ToHost::Hello { version: 7, program: "brunt 9".into() };
        let said = other.check_greeting().unwrap_err().to_string();
        assert!(
            said.contains("brunt 9") && said.contains("version 7") && said.contains("this one 2"),
            "{said}"
        );
    }

    #[test]
    fn a_secret_is_sent_and_not_shown() {
        let prepare = &to_host()[1];
        assert!(!format!("{prepare:?}").contains("hush"));
        assert!(String::from_utf8(encoded(&[prepare])).unwrap().contains("hush"));
    }
}
