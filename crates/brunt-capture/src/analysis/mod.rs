//! What the traffic means, while it goes by: each analysis looks at every operation once and
//! keeps a sketch of bounded size. A sink of the pipeline; [`Analysis::report`] says what was
//! found. The one rule: an operation costs a few tens of nanoseconds, so it is reduced to an
//! [`Event`] once and each analysis gets that.

mod bounded;
mod duplicates;
mod errors;
mod findings;
mod glance;
mod hot;
mod latency;
pub(crate) mod mix;
pub(crate) mod names;
mod profile;
mod rates;
pub mod report;
mod sketch;

pub use glance::{Analysed, Glance, OperationGlance};
pub use hot::Load;
pub use latency::Latency;
pub use report::{Finding, Report};
pub use sketch::HyperLogLog;

use brunt_wire::net::Address;
use brunt_wire::nfs::v3;

use crate::compound;
use crate::ledger::Ledger;
use crate::operation::{Body, ChecksumRun, FileKey, Operation, Sink};

/// What an operation does with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// Everything else.
    Other,
}

/// Events that are put by and then worked on in a row, so that the processor waits for the memory
/// of many tables' entries at once instead of for one after the other.
const EVENTS_PENDING: usize = 64;

/// An operation reduced to what the analyses look at.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When the call was made: nanoseconds since 1970.
    pub time_ns: u64,
    /// From call to reply, in nanoseconds; `None` without a reply.
    pub latency_ns: Option<u64>,
    /// Who called.
    pub client: Address,
    /// What was called, as an index that `mix::name` knows.
    pub operation: usize,
    /// Whether data moved.
    pub kind: Kind,
    /// The file or directory.
    pub file: Option<FileKey>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Bytes of file data that moved.
    pub bytes: u32,
    /// What went wrong.
    pub error: Option<u32>,
    /// Whether it is NFSv4's: its statuses have other names.
    pub v4: bool,
    /// Calls waiting when this one was made, itself included.
    pub outstanding: u32,
}

/// All analyses.
#[derive(Debug)]
pub struct Analysis {
    rates: rates::Rates,
    mix: mix::Mix,
    hot: hot::Hot,
    profile: profile::Profile,
    errors: errors::Errors,
    duplicates: duplicates::Duplicates,
    pending: Vec<Event>,
    places: Vec<hot::Places>,
}

impl Default for Analysis {
    fn default() -> Analysis {
        Analysis::new()
    }
}

impl Analysis {
    /// Nothing seen yet. All together keep below 60 MB.
    pub fn new() -> Analysis {
        Analysis {
            rates: rates::Rates::default(),
            mix: mix::Mix::default(),
            hot: hot::Hot::new(),
            profile: profile::Profile::default(),
            errors: errors::Errors::default(),
            duplicates: duplicates::Duplicates::default(),
            pending: Vec::with_capacity(EVENTS_PENDING),
            places: Vec::with_capacity(EVENTS_PENDING),
        }
    }

    /// Adds what another pipeline saw of the same traffic; both are over.
    pub fn merge(&mut self, mut other: Analysis) {
        self.settle();
        other.settle();
        self.rates.merge(&other.rates);
        self.mix.merge(&other.mix);
        self.profile.merge(&other.profile);
        self.errors.merge(other.errors);
        self.duplicates.merge(&other.duplicates);
        self.hot.merge(other.hot);
    }

    // A stored trace comes in through these: what `Sink` makes of operations is in its tables.

    pub(crate) fn feed_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.rates.on_packet(time_ns, wire_len);
    }

    pub(crate) fn feed_event(&mut self, event: Event) {
        self.pending.push(event);
    }

    pub(crate) fn feed_name(&mut self, server: Address, file: FileKey, parent: Option<FileKey>, name: &[u8]) {
        self.hot.learn_of(server, file, parent, name);
    }

    pub(crate) fn feed_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.duplicates.on_run(run);
    }

    pub(crate) fn settle_if_full(&mut self) {
        if self.pending.len() >= EVENTS_PENDING {
            self.settle();
        }
    }

    /// Works off what was put by.
    pub(crate) fn settle(&mut self) {
        let Analysis { rates, mix, hot, profile, errors, pending, places, .. } = self;
        hot.learn_told();
        hot.look(pending, places);
        for (event, places) in pending.iter().zip(&*places) {
            rates.on_event(event);
            mix.on_event(event);
            let sequential = hot.on_event(event, places);
            profile.on_event(event, sequential);
            if let Some(status) = event.error {
                errors.on_error(event, status);
            }
        }
        pending.clear();
    }
}

impl Event {
    /// Nothing yet.
    pub(crate) const NONE: Event = Event {
        time_ns: 0,
        latency_ns: None,
        client: Address(0),
        operation: mix::OTHER,
        kind: Kind::Other,
        file: None,
        offset: 0,
        bytes: 0,
        error: None,
        v4: false,
        outstanding: 0,
    };
}

/// Reduces an operation, to where the event stays: a copy would wait for what was just stored.
#[inline]
pub(crate) fn reduce(operation: &Operation<'_>, event: &mut Event) {
    *event = Event {
        time_ns: operation.call_time_ns,
        latency_ns: operation.latency_ns(),
        client: operation.peers.client.address,
        error: operation.status.filter(|status| *status != 0),
        outstanding: operation.outstanding,
        ..Event::NONE
    };
    match &operation.body {
        Body::Nfs3 { procedure, args, results } => {
            event.operation = *procedure as usize;
            event.file = operation.file;
            match args {
                Some(v3::Args::Read { offset, .. }) => {
                    event.kind = Kind::Read;
                    event.offset = *offset;
                    if let Some(v3::Results { body: v3::ResultBody::Read { count, .. }, .. }) = results {
                        event.bytes = *count;
                    }
                }
                Some(v3::Args::Write { offset, count, .. }) => {
                    event.kind = Kind::Write;
                    event.offset = *offset;
                    event.bytes = match results {
                        Some(v3::Results { body: v3::ResultBody::Write { count, .. }, .. }) => *count,
                        Some(_) => 0,
                        None => *count,
                    };
                }
                _ => {}
            }
        }
        Body::Nfs4 { call, reply } => {
            event.v4 = true;
            event.operation = v3::Procedure::Null as usize;
            if let Some(call) = call {
                let gist = compound::gist(call, reply.as_ref());
                let server = operation.peers.server.address;
                event.operation = gist.op.map_or(mix::OTHER, mix::of_v4);
                event.file = gist.file.map(|handle| FileKey::new(server, handle));
                event.offset = gist.offset;
                event.bytes = gist.bytes;
                event.kind = match gist.direction {
                    Some(compound::Direction::Read) => Kind::Read,
                    Some(compound::Direction::Write) => Kind::Write,
                    None => Kind::Other,
                };
            } else if operation.call.procedure != 0 {
                event.operation = mix::OTHER;
            }
        }
        Body::Mount { .. } => event.operation = mix::MOUNT,
        Body::Nfs4Callback { .. } => {
            event.v4 = true;
            event.operation = mix::CALLBACK;
        }
        Body::Opaque => {}
    }
}

impl Sink for Analysis {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.pending.push(Event::NONE);
        if let Some(event) = self.pending.last_mut() {
            reduce(operation, event);
        }
        self.hot.learn_names(operation);
        self.settle_if_full();
    }

    #[inline]
    fn on_batch_end(&mut self, _: u64, _: &Ledger) {
        self.settle();
    }

    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        self.duplicates.on_run(run);
    }

    #[inline]
    fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
        self.rates.on_packet(time_ns, wire_len);
    }
}
