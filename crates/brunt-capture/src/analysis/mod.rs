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
mod mix;
mod names;
mod profile;
mod rates;
pub mod report;
pub(crate) mod sketch;

pub use glance::{Analysed, Glance, OperationGlance};
pub use hot::Load;
pub use latency::Latency;
pub use report::{Finding, Report};
pub use sketch::HyperLogLog;

use brunt_wire::net::Address;

use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, Direction, FileKey, Operation, OperationKind, Protocol, Sink};

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
    /// What was asked for.
    pub kind: OperationKind,
    /// In which protocol: says what `error` means.
    pub protocol: Protocol,
    /// Which way data went, if any did.
    pub direction: Option<Direction>,
    /// The file or directory.
    pub file: Option<FileKey>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Bytes of file data that moved.
    pub bytes: u32,
    /// What went wrong.
    pub error: Option<u32>,
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
    /// An operation reduced to it.
    #[inline]
    fn of(operation: &Operation<'_>) -> Event {
        Event {
            time_ns: operation.request.first_ns,
            latency_ns: operation.latency_ns(),
            client: operation.peers.client.address,
            kind: operation.kind,
            protocol: operation.protocol,
            direction: operation.direction,
            file: operation.file,
            offset: operation.offset.unwrap_or(0),
            bytes: operation.moved_bytes,
            error: operation.status.filter(|status| *status != 0),
            outstanding: operation.outstanding,
        }
    }
}

impl Sink for Analysis {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        self.pending.push(Event::of(operation));
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
