//! Runs several parsers at once, each an actor of `brunt-actors` with its own pipeline. A reader (a thread) fills
//! parcels and passes each to the parsers whose connections are in it. The one rule: parsers share nothing; their
//! results are merged at the end.
//!
//! ```text
//!   file or ring ──reader──► parcel ──┬─► parser 0: pipeline, sink ──┐
//!        ▲                            └─► parser 1: pipeline, sink ──┴─► merged by the caller
//!        └────────── memory comes back when the last one is done ◄───
//! ```
//!
//! If the parsers fall behind, a file's reader waits for a free parcel; a live ring fills up, and the kernel counts
//! the drops.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use brunt_actors::{
    Actor, ActorOptions, Address, Builder, Context, Placement, Shutdown, Snapshot, System,
};

use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::operation::Sink;
use crate::parcel::{Parcel, Pool, Router};
use crate::pipeline::Pipeline;
use crate::source::{CHUNK_BYTES, FileSource, SourceError};
use crate::trace::pcap::PacketTap;

/// A file's parcels in flight for each parser, and for the reader. At half a megabyte each, they stay in the cache
/// that the cores share.
pub const PARCELS_EACH: usize = 4;
/// Maximum time for the parsers to process the packets in flight when a capture ends.
const DRAIN_TIME: Duration = Duration::from_secs(120);

/// The result of a capture shared by several parsers.
#[derive(Debug)]
pub struct Shares<S> {
    /// Each parser's sink.
    pub sinks: Vec<S>,
    /// The counters of all parsers, merged.
    pub ledger: Ledger,
}

/// Why a capture with several parsers failed.
#[derive(Debug, thiserror::Error)]
pub enum ParallelError {
    /// The packets could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A parser ended early, which is a bug in brunt.
    #[error("a parser failed: {0}")]
    Parser(String),
}

/// Where parsers run.
#[derive(Clone, Debug, Default)]
pub struct ParserPlaces {
    /// Used if `cpus` is empty.
    pub placement: Placement,
    /// Sets of CPUs, assigned to the parsers in turn.
    pub cpus: Vec<Vec<usize>>,
}

impl From<Placement> for ParserPlaces {
    fn from(placement: Placement) -> ParserPlaces {
        ParserPlaces {
            placement,
            cpus: Vec::new(),
        }
    }
}

type Question<S> = Box<dyn FnOnce(usize, &Pipeline<S>) + Send>;

/// Messages to a parser.
pub enum PipelineMessage<S> {
    /// Packets, possibly including those for other parsers.
    Parcel(Arc<Parcel>),
    /// A query, called with the parser's index.
    Query(Question<S>),
    /// A time of the capture, in nanoseconds since 1970: no earlier packet will follow.
    Time(u64),
}

struct Parser<S> {
    index: usize,
    pipeline: Option<Pipeline<S>>,
    results: SyncSender<(usize, S, Ledger)>,
}

impl<S: Sink + Send + 'static> Actor for Parser<S> {
    type Message = PipelineMessage<S>;

    fn handle(&mut self, work: PipelineMessage<S>, _: &mut Context<'_, PipelineMessage<S>>) {
        let pipeline = self.pipeline.as_mut().expect("taken only at the end");
        match work {
            PipelineMessage::Parcel(parcel) => pipeline
                .on_some_packets(parcel.out_of_order(self.index), parcel.packets(self.index)),
            PipelineMessage::Query(question) => question(self.index, pipeline),
            PipelineMessage::Time(now_ns) => pipeline.on_time(now_ns),
        }
    }

    fn finish(&mut self, _: &mut Context<'_, PipelineMessage<S>>) {
        let (sink, ledger) = self.pipeline.take().expect("taken once").finish();
        // The receiver is gone if the capture was abandoned.
        let _ = self.results.send((self.index, sink, ledger));
    }
}

/// The parsers of a capture.
pub struct Parsers<S> {
    system: System,
    addresses: Vec<Address<PipelineMessage<S>>>,
    results: Receiver<(usize, S, Ledger)>,
    router: Router,
    tap: Option<PacketTap>,
    /// The second of the capture's time that was last announced to the parsers.
    told_s: u64,
}

impl<S: Sink + Send + 'static> Parsers<S> {
    /// Starts one parser per sink, each on its own scheduler and with its share of `limits`. At most `parcels`
    /// are in flight.
    pub fn start(
        sinks: Vec<S>,
        limits: Limits,
        parcels: usize,
        places: impl Into<ParserPlaces>,
    ) -> Parsers<S> {
        let (count, places) = (sinks.len(), places.into());
        let system = Builder::default()
            .schedulers(count)
            .placement(places.placement)
            .cpus(places.cpus)
            .start();
        let (sender, results) = sync_channel(count);
        let addresses = (0..)
            .zip(sinks)
            .map(|(index, sink)| {
                let pipeline = Pipeline::one_of_several(sink, limits.share(index, count));
                let parser = Parser {
                    index,
                    pipeline: Some(pipeline),
                    results: sender.clone(),
                };
                // An inbox rejects messages once it is half full. It has room for four times the parcels, so that
                // only the pool limits the parcels in flight.
                let options = ActorOptions::named(format!("parser {index}")).on_scheduler(index);
                system.spawn(parser, options.capacity(4 * parcels as u32))
            })
            .collect();
        Parsers {
            system,
            addresses,
            results,
            router: Router::default(),
            tap: None,
            told_s: 0,
        }
    }

    /// Also passes every parcel to a tap that stores packets.
    pub fn with_tap(self, tap: Option<PacketTap>) -> Parsers<S> {
        Parsers { tap, ..self }
    }

    /// Number of parsers.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The router that assigns packets to parsers.
    pub fn router(&mut self) -> &mut Router {
        &mut self.router
    }

    /// Passes a parcel to the parsers that have packets in it. Waits while their inboxes are full.
    ///
    /// # Errors
    /// A parser has ended.
    pub fn deliver(&self, parcel: Parcel) -> Result<(), ParallelError> {
        let parcel = Arc::new(parcel);
        if let Some(tap) = &self.tap {
            tap.offer(&parcel);
        }
        for (index, address) in self.addresses.iter().enumerate() {
            if parcel.count(index) > 0
                && address
                    .send(PipelineMessage::Parcel(parcel.clone()))
                    .is_err()
            {
                return Err(self.failure());
            }
        }
        Ok(())
    }

    /// Announces the capture's time to every parser, once per second of that time, so that windows also end for
    /// parsers without packets. No packet from before `now_ns` may follow.
    pub fn tell_time(&mut self, now_ns: u64) {
        let now_s = now_ns / 1_000_000_000;
        if now_s == self.told_s || now_ns == u64::MAX {
            return;
        }
        self.told_s = now_s;
        for address in &self.addresses {
            // A parser that is behind has packets waiting and gets the time from them.
            let _ = address.try_send(PipelineMessage::Time(now_ns));
        }
    }

    /// Queues a query for every parser; the query itself has to deliver the answer.
    pub fn query(&self, question: impl Fn(usize, &Pipeline<S>) + Clone + Send + 'static) {
        for address in &self.addresses {
            // A parser that is behind is skipped: a view of the capture is not worth waiting for.
            let _ = address.try_send(PipelineMessage::Query(Box::new(question.clone())));
        }
    }

    /// The queue lengths and rates of the parsers.
    pub fn snapshot(&self) -> Snapshot {
        self.system.snapshot()
    }

    fn failure(&self) -> ParallelError {
        let failures = self.system.failures();
        ParallelError::Parser(
            failures
                .first()
                .map_or("the thread has ended".into(), ToString::to_string),
        )
    }

    /// Processes everything in flight, then ends the parsers.
    ///
    /// # Errors
    /// A parser failed.
    pub fn finish(self) -> Result<Shares<S>, ParallelError> {
        let report = self.system.shutdown(Shutdown::Drain(DRAIN_TIME));
        if let Some(failure) = report.failures.first() {
            return Err(ParallelError::Parser(failure.to_string()));
        }
        let mut shares: Vec<(usize, S, Ledger)> = self.results.try_iter().collect();
        if shares.len() != self.addresses.len() {
            return Err(ParallelError::Parser("the thread ends in time".into()));
        }
        shares.sort_by_key(|(index, ..)| *index);
        let mut ledger = Ledger::default();
        shares.iter().for_each(|(.., share)| ledger.merge(share));
        Ok(Shares {
            sinks: shares.into_iter().map(|(_, sink, _)| sink).collect(),
            ledger,
        })
    }
}

/// The result of a capture file shared by several parsers.
#[derive(Debug)]
pub struct FileShares<S> {
    /// The parsers' sinks, and the merged counters.
    pub shares: Shares<S>,
    /// Set if the file is damaged, in which case the rest was not read.
    pub damage: Option<SourceError>,
    /// Bytes after the last complete packet: the file ends in the middle of a packet.
    pub cut_bytes: usize,
}

/// Runs a capture file through one parser per sink until the file ends or `stop` returns true. The calling
/// thread reads; `tap` also stores the packets.
///
/// # Errors
/// The file cannot be opened, an error occurs before the first packet was read, or a parser failed.
pub fn run_file_parallel<S: Sink + Send + 'static>(
    path: &Path,
    sinks: Vec<S>,
    limits: Limits,
    tap: Option<PacketTap>,
    mut stop: impl FnMut() -> bool,
) -> Result<FileShares<S>, ParallelError> {
    let mut source = FileSource::open(path)?;
    let parcels = PARCELS_EACH * (sinks.len() + 1 + usize::from(tap.is_some()));
    let pool = Pool::new(parcels, sinks.len(), CHUNK_BYTES);
    let mut parsers = Parsers::start(sinks, limits, parcels, Placement::Anywhere).with_tap(tap);
    let (mut packets, mut damage, mut seen) = (Vec::new(), None, false);
    let mut parcel = pool.take();
    while !stop() {
        let chunk = parcel.chunk().expect("a file's parcels have a chunk");
        let more = match source.fill_chunk(chunk, &mut packets) {
            Ok(more) => more,
            Err(error) => {
                damage = Some(error);
                false
            }
        };
        seen |= !packets.is_empty();
        let last_ns = packets.last().map(|packet| packet.time_ns);
        for packet in packets.drain(..) {
            parcel.route(parsers.router(), packet, 0);
        }
        if !more {
            parsers.deliver(parcel)?;
            break;
        }
        // The beginning of the next packet moves to the next chunk.
        let mut next = pool.take();
        source.carry(
            parcel.chunk().expect("as above"),
            next.chunk().expect("as above"),
        );
        parsers.deliver(parcel)?;
        last_ns.into_iter().for_each(|now| parsers.tell_time(now));
        parcel = next;
    }
    let shares = parsers.finish()?;
    match damage {
        Some(error) if !seen => Err(error.into()),
        damage => Ok(FileShares {
            shares,
            damage,
            cut_bytes: source.cut_bytes(),
        }),
    }
}
