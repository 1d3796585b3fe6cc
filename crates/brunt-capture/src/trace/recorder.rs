//! Turns what the pipeline finds into rows. A sink of the pipeline, beside the analyses; works on
//! the parser's thread, so it only appends to columns. The one rule: everything that could tell who
//! or what it was goes through [`Pseudonyms`], so that nothing is forgotten there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brunt_lake::{Batch, LakeError, Row, TableWriter, Words, WriterOptions};
use brunt_wire::net::{Address, Endpoint};
use brunt_wire::nfs::v3::{self, CreateHow, NodeKind, ResultBody, SetAttributes, SetTime, Wcc};
use brunt_wire::nfs::{FileHandle, mount, v4};
use brunt_wire::rpc;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::store::{Chunk, LANES, Lane, Shared, TraceOptions};
use super::{Anonymizer, tables, text};
use crate::checksum::{BLOCK_BYTES, sum};
use crate::dissect::Detail;
use crate::dissect::rpc::{Body, Exchange};
use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, Direction, FileKey, Operation, Packet, Sink, Transport, leads_on};

/// Rows are sent after so much time, however few they are.
const CHUNK_AGE: Duration = Duration::from_millis(500);
/// Time between rows of `statistics`.
const STATISTICS_NS: u64 = 1_000_000_000;
/// The last row of `statistics`, in a part of its own, takes less than this.
const LAST_ROW_BYTES: u64 = 16 << 10;
/// Flows and handles that are known to be in the trace: beyond it all are told again.
const FLOWS_MAX: usize = 64 << 10;
const HANDLES_MAX: usize = 1 << 20;
/// The same of credentials.
const CALLERS_MAX: usize = 64 << 10;
/// Flows that are found without their table.
const LAST_FLOWS: usize = 64;
/// Pipelines number their calls from zero: the number of the pipeline goes above.
const RING_SHIFT: u32 = 48;

/// Places of tables: lane, and index within it.
type At = (usize, usize);
const PACKETS: At = (0, 0);
const CHECKSUMS: At = (0, 1);
const ATTRIBUTES: At = (0, 2);
const BEFORE: At = (0, 3);
const COMPOUND_ATTRIBUTES: At = (0, 4);
const OPERATIONS: At = (1, 0);
const FLOWS: At = (1, 1);
const HANDLES: At = (1, 2);
const NAMES: At = (1, 3);
const CHANGES: At = (1, 4);
const TRANSFERS: At = (1, 5);
const ACCESSES: At = (1, 6);
const LISTINGS: At = (1, 7);
const ENTRIES: At = (1, 8);
const FILESYSTEMS: At = (1, 9);
const COMPOUNDS: At = (1, 10);
const STATISTICS: At = (1, 11);
const CALLERS: At = (1, 12);
const CALLER_GROUPS: At = (1, 13);

/// The values of `packets.ring` and of `role`.
const OBJECT: i64 = 0;
const DIRECTORY: i64 = 1;
const SECOND_DIRECTORY: i64 = 2;
const ENTRY: i64 = 3;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TraceSummary {
    /// Rows on disk, in all tables.
    pub rows: u64,
    /// Bytes of all parts on disk.
    pub bytes: u64,
    /// Parts on disk.
    pub parts: u64,
    /// Rows that found no room, on the disk or on the way to it.
    pub rows_lost: u64,
    /// Parts deleted to keep within the size that was asked for.
    pub parts_deleted: u64,
    /// Rows that were in them.
    pub rows_deleted: u64,
    /// Their bytes.
    pub bytes_deleted: u64,
}

/// Tells from elsewhere how a trace is doing.
#[derive(Clone)]
pub struct TraceStatus(Arc<Shared>);

impl TraceStatus {
    /// Whether writing has ended with an error; [`Recorder::finish`] says with which.
    pub fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    /// Rows lost and parts deleted up to now, into a ledger.
    pub fn count_into(&self, ledger: &mut Ledger) {
        self.0.count_into(ledger);
    }

    /// Takes in how many packets the rings had no room for, so that `statistics` has it while the capture
    /// goes on.
    pub fn set_packets_dropped(&self, dropped: u64) {
        self.0.packets_dropped.store(dropped, Ordering::Relaxed);
    }
}

/// What stands in the tables for names, addresses and ids: themselves, or pseudonyms.
#[derive(Debug)]
struct Pseudonyms {
    key: Option<Anonymizer>,
    zeros: u64,
}

impl Pseudonyms {
    #[inline]
    fn file(&self, file: FileKey) -> i64 {
        self.key.as_ref().map_or(file.0, |key| key.file(file.0)) as i64
    }

    #[inline]
    fn number(&self, number: u64) -> i64 {
        self.key.as_ref().map_or(number, |key| key.number(number)) as i64
    }

    #[inline]
    fn sum(&self, sum: u64) -> i64 {
        match &self.key {
            Some(key) if sum != self.zeros => key.sum(sum) as i64,
            _ => sum as i64,
        }
    }

    fn mac(&self, mac: u64) -> i64 {
        self.key.as_ref().map_or(mac, |key| key.mac(mac)) as i64
    }

    fn address(&self, address: Address) -> String {
        self.key.as_ref().map_or(address, |key| key.address(address)).to_string()
    }

    #[inline]
    fn put<'r>(&self, row: Row<'r>, name: Option<&[u8]>) -> Row<'r> {
        match name {
            Some(name) => self.name(name, |name| row.text(name)),
            None => row.null(),
        }
    }

    /// The word for a name in a row of words.
    #[inline]
    fn word(&self, name: &[u8], words: &mut Words) -> i64 {
        if self.key.is_none() && text::is_plain(name) {
            return words.ascii(name);
        }
        self.name(name, |name| words.text(name))
    }

    #[inline]
    fn name<R>(&self, name: &[u8], with: impl FnOnce(&str) -> R) -> R {
        match &self.key {
            // `.` and `..` are no names of anybody's.
            Some(key) if leads_on(name) && !name.is_empty() => with(&key.name(name)),
            _ => with(&text::from_bytes(name)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FlowEnds {
    source: Endpoint,
    destination: Endpoint,
    protocol: u8,
}

/// A caller, as its columns say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Caller {
    number: i64,
    uid: i64,
    gid: i64,
}

/// Whose a list of attributes is, in which operation of which compound.
#[derive(Clone, Copy)]
struct ListOf<'a> {
    id: i64,
    position: i64,
    /// READDIR's entry: its place and its name.
    entry: Option<(i64, &'a [u8])>,
    /// What CREATE makes.
    made: Option<v4::CreateKind<'a>>,
    /// Whether the client sets them.
    set: bool,
    file: Option<i64>,
}

/// Callers that are known to be in the trace, by a hash of their credentials.
struct Callers {
    known: HashMap<u64, Option<Caller>, FixedState>,
    next: i64,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers { known: HashMap::with_hasher(FixedState::default()), next: 0 }
    }
}

/// Fills the tables.
pub struct Recorder {
    lanes: Vec<Lane>,
    chunks: Vec<Vec<Chunk>>,
    shared: Arc<Shared>,
    pseudonyms: Pseudonyms,
    flows: HashMap<FlowEnds, i64, FixedState>,
    /// Flows seen a moment ago, by a little of what they are.
    last_flows: Box<[Option<(FlowEnds, i64)>; LAST_FLOWS]>,
    next_flow: i64,
    handles: HashSet<u64, FixedState>,
    callers: Callers,
    /// The server of the handle that was told last, and its address as it stands in the table.
    server: Option<(Address, String)>,
    ring: u64,
    generation: u64,
    chunk_bytes: usize,
    sent: Instant,
    /// When this pipeline tells its counters again; it has not before its first packet.
    statistics_ns: Option<u64>,
    now_ns: u64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("ring", &self.ring).finish_non_exhaustive()
    }
}

fn nanos(time: &v3::NfsTime) -> i64 {
    i64::from(time.seconds.get()) * 1_000_000_000 + i64::from(time.nseconds.get())
}

fn nanos4(time: &v4::NfsTime) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nseconds.into())
}

fn mac(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Recorder {
    /// A new trace in `folder`, made if it is missing, for `count` pipelines that work side by side: each
    /// has a series of parts of its own.
    ///
    /// # Errors
    /// There is a trace in it, or it cannot be written to.
    pub fn create_shared(
        folder: &Path,
        options: &TraceOptions,
        count: usize,
    ) -> Result<Vec<Recorder>, LakeError> {
        let mut note = TableWriter::create(folder, &tables::NOTES, WriterOptions::default())?;
        let anonymous = options.anonymizer.is_some();
        let program = concat!("brunt ", env!("CARGO_PKG_VERSION"));
        note.rows().row().int(tables::VERSION).text(program).bool(anonymous).end();
        note.finish()?;
        let shared = Arc::new(Shared::new(count, options.keep_bytes));
        let options = options.share(count);
        (0..count).map(|ring| Recorder::start(folder, &options, ring as u16, &shared)).collect()
    }

    /// A new trace in `folder` for one pipeline.
    ///
    /// # Errors
    /// As [`Recorder::create_shared`].
    pub fn create(folder: &Path, options: &TraceOptions) -> Result<Recorder, LakeError> {
        let recorders = Recorder::create_shared(folder, options, 1)?;
        Ok(recorders.into_iter().next().expect("one was asked for"))
    }

    fn start(
        folder: &Path,
        options: &TraceOptions,
        ring: u16,
        shared: &Arc<Shared>,
    ) -> Result<Recorder, LakeError> {
        let lanes: Vec<Lane> = (0..LANES.len())
            .map(|number| Lane::start(number, ring, folder, options, shared))
            .collect::<Result<_, _>>()?;
        Ok(Recorder {
            chunks: lanes.iter().map(Lane::empty).collect(),
            lanes,
            shared: Arc::clone(shared),
            pseudonyms: Pseudonyms { key: options.anonymizer.clone(), zeros: sum(&[0; BLOCK_BYTES]) },
            flows: HashMap::with_hasher(FixedState::default()),
            last_flows: Box::new([None; LAST_FLOWS]),
            next_flow: 0,
            handles: HashSet::with_hasher(FixedState::default()),
            callers: Callers::default(),
            server: None,
            ring: ring.into(),
            generation: 0,
            chunk_bytes: options.chunk_bytes,
            sent: Instant::now(),
            statistics_ns: None,
            now_ns: 0,
        })
    }

    /// How the trace is doing, for another thread.
    pub fn status(&self) -> TraceStatus {
        TraceStatus(Arc::clone(&self.shared))
    }

    /// The capture is over: writes what is left, and `ledger` as the last row of `statistics`. Counts
    /// what was lost into the ledger.
    ///
    /// # Errors
    /// What went wrong first, with what there is all the same.
    pub fn finish(self, ledger: &mut Ledger) -> (TraceSummary, Option<LakeError>) {
        Recorder::finish_shared(vec![self], ledger)
    }

    /// The same of all pipelines that write one trace; `ledger` is of all of them together.
    ///
    /// # Errors
    /// As [`Recorder::finish`].
    ///
    /// # Panics
    /// There is none.
    pub fn finish_shared(
        mut recorders: Vec<Recorder>,
        ledger: &mut Ledger,
    ) -> (TraceSummary, Option<LakeError>) {
        recorders.iter_mut().for_each(Recorder::send_all);
        let mut writers: Vec<Vec<TableWriter>> =
            recorders.iter_mut().flat_map(|recorder| recorder.lanes.iter_mut().map(Lane::finish)).collect();
        let shared = Arc::clone(&recorders[0].shared);
        // Room for the last row first: it tells what was deleted.
        shared.budget.iter().for_each(|budget| budget.on_grown(0, LAST_ROW_BYTES));
        TraceStatus(Arc::clone(&shared)).count_into(ledger);
        let now_ns = recorders.iter().map(|recorder| recorder.now_ns).max().unwrap_or(0);
        let statistics = &mut writers[STATISTICS.0][STATISTICS.1];
        statistics_row(statistics.rows(), now_ns, ledger);
        let mut error = shared.take_error();
        if let Err(last) = statistics.finish() {
            error.get_or_insert(last);
        }
        let mut summary = TraceSummary {
            rows_lost: ledger.trace_rows_lost,
            parts_deleted: ledger.trace_parts_deleted,
            rows_deleted: ledger.trace_rows_deleted,
            bytes_deleted: ledger.trace_bytes_deleted,
            ..TraceSummary::default()
        };
        for writer in writers.iter().flatten() {
            let written = writer.written();
            summary.rows += written.rows;
            summary.parts += written.parts;
            summary.bytes += written.bytes;
        }
        // Writers do not know what was deleted behind them.
        summary.rows -= summary.rows_deleted;
        summary.parts -= summary.parts_deleted;
        summary.bytes -= summary.bytes_deleted;
        (summary, error)
    }

    #[inline]
    fn row(&mut self, (lane, table): At) -> Row<'_> {
        self.chunks[lane][table].rows.row()
    }

    #[inline]
    fn words(&mut self, (lane, table): At) -> &mut Words {
        &mut self.chunks[lane][table].words
    }

    fn send(&mut self, lane: usize) {
        if self.chunks[lane].iter().all(Chunk::is_empty) {
            return;
        }
        let empty = self.lanes[lane].empty();
        let full = std::mem::replace(&mut self.chunks[lane], empty);
        self.lanes[lane].send(self.generation, full);
    }

    /// What was told before may be deleted: whatever the rows from now on refer to is told again.
    #[cold]
    fn begin_generation(&mut self) {
        self.send_all();
        self.generation = self.shared.generation();
        self.flows.clear();
        *self.last_flows = [None; LAST_FLOWS];
        self.handles.clear();
        self.callers.known.clear();
    }

    fn send_all(&mut self) {
        (0..self.lanes.len()).for_each(|lane| self.send(lane));
    }

    #[inline]
    fn id(&self, record_id: u64) -> i64 {
        (record_id | self.ring << RING_SHIFT) as i64
    }

    #[inline]
    fn flow(&mut self, source: Endpoint, destination: Endpoint, protocol: u8) -> i64 {
        let ends = FlowEnds { source, destination, protocol };
        let low = source.address.0 as usize ^ (destination.address.0 as usize) << 3;
        let place = (low ^ usize::from(source.port) ^ usize::from(destination.port) << 1) % LAST_FLOWS;
        if let Some((last, flow)) = self.last_flows[place]
            && last == ends
        {
            return flow;
        }
        let flow = match self.flows.get(&ends) {
            Some(flow) => *flow,
            None => self.new_flow(ends),
        };
        self.last_flows[place] = Some((ends, flow));
        flow
    }

    #[cold]
    fn new_flow(&mut self, ends: FlowEnds) -> i64 {
        if self.flows.len() >= FLOWS_MAX {
            self.flows.clear();
        }
        let flow = self.next_flow | (self.ring << RING_SHIFT) as i64;
        self.next_flow += 1;
        self.flows.insert(ends, flow);
        let source = self.pseudonyms.address(ends.source.address);
        let destination = self.pseudonyms.address(ends.destination.address);
        let has_ports = matches!(ends.protocol, 6 | 17 | 132);
        let port = |end: Endpoint| has_ports.then_some(i64::from(end.port));
        self.row(FLOWS)
            .int(flow)
            .int(ends.protocol.into())
            .text(&source)
            .int_or_null(port(ends.source))
            .text(&destination)
            .int_or_null(port(ends.destination))
            .end();
        flow
    }

    /// Tells this pipeline's counters, and writes those of all if it is the one whose turn it is.
    #[cold]
    fn statistics(&mut self, now_ns: u64, ledger: &Ledger) {
        if let Some(all) = self.shared.add_up(self.ring as usize, ledger, now_ns, STATISTICS_NS) {
            statistics_row(&mut self.chunks[STATISTICS.0][STATISTICS.1].rows, now_ns, &all);
        }
    }

    /// What stands for a handle; tells the handle when it is new.
    #[inline]
    fn handle(&mut self, server: Address, handle: FileHandle<'_>) -> i64 {
        self.handle_of(FileKey::new(server, handle), server, handle)
    }

    /// The same when its key is known.
    #[inline]
    fn handle_of(&mut self, file: FileKey, server: Address, handle: FileHandle<'_>) -> i64 {
        let known = self.pseudonyms.file(file);
        if !self.handles.contains(&file.0) {
            self.new_handle(server, handle, file, known);
        }
        known
    }

    #[cold]
    fn new_handle(&mut self, server: Address, handle: FileHandle<'_>, file: FileKey, known: i64) {
        if self.handles.len() >= HANDLES_MAX {
            self.handles.clear();
        }
        self.handles.insert(file.0);
        // A capture has few servers.
        if self.server.as_ref().is_none_or(|(known, _)| *known != server) {
            self.server = Some((server, self.pseudonyms.address(server)));
        }
        let hex = match &self.pseudonyms.key {
            Some(_) => format!("{known:016x}"),
            None => {
                let mut hex = String::with_capacity(2 * handle.0.len());
                text::hexadecimal(handle.0, &mut hex);
                hex
            }
        };
        let Recorder { server: Some((_, server)), chunks, .. } = self else { return };
        chunks[HANDLES.0][HANDLES.1].rows.row().int(known).text(server).text(&hex).end();
    }

    /// Who called, if AUTH_SYS says so; tells of who is new.
    #[inline]
    fn caller(&mut self, credentials: &rpc::OpaqueAuth<'_>) -> Option<Caller> {
        if credentials.flavor != rpc::AuthFlavor::Sys {
            return None;
        }
        // Without the stamp before it, which may be another one for each call. To look the rest up costs
        // less than to read it.
        let key = twox_hash::XxHash3_64::oneshot(credentials.body.get(4..).unwrap_or_default());
        match self.callers.known.get(&key) {
            Some(known) => *known,
            None => self.new_caller(key, credentials),
        }
    }

    #[cold]
    fn new_caller(&mut self, key: u64, credentials: &rpc::OpaqueAuth<'_>) -> Option<Caller> {
        if self.callers.known.len() >= CALLERS_MAX {
            self.callers.known.clear();
        }
        let caller = credentials.sys().map(|sys| {
            let number = self.callers.next | (self.ring << RING_SHIFT) as i64;
            self.callers.next += 1;
            let Recorder { pseudonyms, chunks, .. } = self;
            let hide = |number: u32| pseudonyms.number(number.into());
            let (uid, gid) = (hide(sys.uid), hide(sys.gid));
            let groups = sys.groups.as_chunks::<4>().0;
            let row = chunks[CALLERS.0][CALLERS.1].rows.row().int(number);
            let row = pseudonyms.name(sys.machine_name, |name| row.text(name));
            row.int(uid).int(gid).int(groups.len() as i64).end();
            for (position, group) in (0..).zip(groups) {
                let rows = &mut chunks[CALLER_GROUPS.0][CALLER_GROUPS.1].rows;
                rows.row().int(number).int(position).int(hide(u32::from_be_bytes(*group))).end();
            }
            Caller { number, uid, gid }
        });
        self.callers.known.insert(key, caller);
        caller
    }

    fn record_operation(&mut self, operation: &Operation<'_>, exchange: &Exchange<'_>) {
        let peers = &operation.peers;
        let protocol = if peers.transport == Transport::Tcp { 6 } else { 17 };
        let flow = self.flow(peers.client, peers.server, protocol);
        let id = self.id(operation.record_id);
        let file = operation.file.map(|file| self.pseudonyms.file(file));
        let direction = operation.direction.map(|direction| match direction {
            Direction::Read => 0,
            Direction::Write => 1,
        });
        let call = exchange.call;
        let caller = self.caller(&call.credentials);
        let (request, reply) = (&operation.request, operation.reply.as_ref());
        self.words(OPERATIONS)
            .line(&tables::OPERATIONS)
            .int(id)
            .int(request.first_ns as i64)
            .int_or_null(operation.latency_ns().map(|ns| ns as i64))
            .int(flow)
            .int(operation.tag.into())
            .int(call.program.into())
            .int(call.version.into())
            .int(call.procedure.into())
            .int(operation.kind.index() as i64)
            .int_or_null(exchange.reply.map(|reply| rpc_status(reply.status)))
            .int_or_null(operation.status.map(i64::from))
            .int(call.credentials.flavor.number().into())
            .int_or_null(caller.map(|caller| caller.uid))
            .int_or_null(caller.map(|caller| caller.gid))
            .int_or_null(caller.map(|caller| caller.number))
            .int_or_null(file)
            .int_or_null(direction)
            .int_or_null(operation.offset.map(|offset| offset as i64))
            .int_or_null(operation.asked_bytes.map(i64::from))
            .int(operation.moved_bytes.into())
            .int(operation.outstanding.into())
            .int(operation.data_missing.into())
            .bool(request.whole)
            .bool(reply.is_some_and(|reply| reply.whole))
            .int(request.place.at.into())
            .int(call.body_at as i64)
            .int(request.place.len.into())
            .int_or_null(reply.map(|reply| reply.place.at.into()))
            .int_or_null(exchange.reply.map(|reply| reply.body_at as i64))
            .int_or_null(reply.map(|reply| reply.place.len.into()))
            .end();
    }

    fn attributes(&mut self, id: i64, role: i64, entry: Option<i64>, attributes: Option<&v3::Attributes>) {
        let Some(a) = attributes else { return };
        let hide = &self.pseudonyms;
        let owner = [hide.number(a.uid.get().into()), hide.number(a.gid.get().into())];
        let places = [hide.number(a.fsid.get()), hide.number(a.fileid.get())];
        self.words(ATTRIBUTES)
            .line(&tables::ATTRIBUTES)
            .int(id)
            .int(role)
            .int_or_null(entry)
            .int(a.file_type.get().into())
            .int(a.mode.get().into())
            .int(a.nlink.get().into())
            .int(owner[0])
            .int(owner[1])
            .int(a.size.get() as i64)
            .int(a.used.get() as i64)
            .int(a.rdev[0].get().into())
            .int(a.rdev[1].get().into())
            .int(places[0])
            .int(places[1])
            .int(nanos(&a.atime))
            .int(nanos(&a.mtime))
            .int(nanos(&a.ctime))
            .end();
    }

    fn wcc(&mut self, id: i64, role: i64, wcc: &Wcc<'_>) {
        if let Some(before) = wcc.before {
            self.words(BEFORE)
                .line(&tables::BEFORE)
                .int(id)
                .int(role)
                .int(before.size.get() as i64)
                .int(nanos(&before.mtime))
                .int(nanos(&before.ctime))
                .end();
        }
        self.attributes(id, role, None, wcc.after);
    }

    fn name(
        &mut self,
        id: i64,
        position: i64,
        directory: Option<i64>,
        name: Option<&[u8]>,
        leads_to: Option<i64>,
        target: Option<&[u8]>,
    ) {
        let Recorder { pseudonyms, chunks, .. } = self;
        let words = &mut chunks[NAMES.0][NAMES.1].words;
        let name = name.map(|name| pseudonyms.word(name, words));
        let target = target.map(|target| pseudonyms.word(target, words));
        words
            .line(&tables::NAMES)
            .int(id)
            .int(position)
            .int_or_null(directory)
            .int_or_null(name)
            .int_or_null(leads_to)
            .int_or_null(target)
            .end();
    }

    #[allow(clippy::too_many_arguments)] // the parts of a row, each with its own default
    fn change(
        &mut self,
        id: i64,
        how: Option<i64>,
        kind: Option<i64>,
        set: &SetAttributes<'_>,
        guard: Option<&v3::NfsTime>,
        verifier: Option<u64>,
        device: Option<[u32; 2]>,
    ) {
        let time = |time: &SetTime<'_>| match time {
            SetTime::DontChange => (0, None),
            SetTime::ServerTime => (1, None),
            SetTime::ClientTime(time) => (2, Some(nanos(time))),
        };
        let (atime, mtime) = (time(&set.atime), time(&set.mtime));
        let uid = set.uid.map(|uid| self.pseudonyms.number(uid.into()));
        let gid = set.gid.map(|gid| self.pseudonyms.number(gid.into()));
        let verifier = verifier.map(|verifier| self.pseudonyms.number(verifier));
        self.words(CHANGES)
            .line(&tables::CHANGES)
            .int(id)
            .int_or_null(how)
            .int_or_null(kind)
            .int_or_null(set.mode.map(i64::from))
            .int_or_null(uid)
            .int_or_null(gid)
            .int_or_null(set.size.map(|size| size as i64))
            .int(atime.0)
            .int_or_null(atime.1)
            .int(mtime.0)
            .int_or_null(mtime.1)
            .int_or_null(guard.map(nanos))
            .int_or_null(verifier)
            .int_or_null(device.map(|device| device[0].into()))
            .int_or_null(device.map(|device| device[1].into()))
            .end();
    }

    fn record_nfs3(
        &mut self,
        id: i64,
        server: Address,
        file: Option<FileKey>,
        args: Option<&v3::Args<'_>>,
        results: Option<&ResultBody<'_>>,
    ) {
        if let Some(args) = args {
            self.record_args(id, server, file, args, results);
        }
        match results {
            None | Some(ResultBody::Empty) => {}
            Some(ResultBody::Failed { attributes, wcc }) => {
                // LINK's object and directory, RENAME's two, or what one there is.
                let rename = matches!(args, Some(v3::Args::Rename { .. }));
                let object = matches!(
                    args,
                    Some(v3::Args::Setattr { .. } | v3::Args::Write { .. } | v3::Args::Commit { .. })
                );
                self.attributes(id, OBJECT, None, *attributes);
                self.wcc(id, if object { OBJECT } else { DIRECTORY }, &wcc[0]);
                self.wcc(id, if rename { SECOND_DIRECTORY } else { DIRECTORY }, &wcc[1]);
            }
            Some(ResultBody::Getattr { attributes }) => self.attributes(id, OBJECT, None, Some(attributes)),
            Some(ResultBody::Changed { wcc }) => {
                let object = matches!(args, None | Some(v3::Args::Setattr { .. }));
                self.wcc(id, if object { OBJECT } else { DIRECTORY }, wcc);
            }
            Some(ResultBody::Write { wcc, .. } | ResultBody::Commit { wcc, .. }) => {
                self.wcc(id, OBJECT, wcc);
            }
            Some(ResultBody::Lookup { attributes, dir, .. }) => {
                self.attributes(id, OBJECT, None, *attributes);
                self.attributes(id, DIRECTORY, None, *dir);
            }
            Some(
                ResultBody::Access { attributes, .. }
                | ResultBody::Readlink { attributes, .. }
                | ResultBody::Read { attributes, .. }
                | ResultBody::Fsstat { attributes, .. }
                | ResultBody::Fsinfo { attributes, .. }
                | ResultBody::Pathconf { attributes, .. },
            ) => self.attributes(id, OBJECT, None, *attributes),
            Some(ResultBody::Created { attributes, dir, .. } | ResultBody::Link { attributes, dir }) => {
                self.attributes(id, OBJECT, None, *attributes);
                self.wcc(id, DIRECTORY, dir);
            }
            Some(ResultBody::Rename { from, to }) => {
                self.wcc(id, DIRECTORY, from);
                self.wcc(id, SECOND_DIRECTORY, to);
            }
            Some(ResultBody::Readdir { dir, entries, .. }) => {
                self.attributes(id, OBJECT, None, *dir);
                for (index, entry) in (0..).zip(entries.iter()) {
                    let file = entry.handle.map(|handle| self.handle(server, handle));
                    self.entry(id, index, entry.fileid, entry.name, entry.cookie, file);
                    self.attributes(id, ENTRY, Some(index), entry.attributes);
                }
            }
        }
        if let Some(results) = results {
            self.record_filesystem(id, results);
        }
    }

    fn entry(&mut self, id: i64, index: i64, fileid: u64, name: &[u8], cookie: u64, file: Option<i64>) {
        let Recorder { pseudonyms, chunks, .. } = self;
        let (fileid, cookie) = (pseudonyms.number(fileid), pseudonyms.number(cookie));
        let words = &mut chunks[ENTRIES.0][ENTRIES.1].words;
        let name = pseudonyms.word(name, words);
        let line = words.line(&tables::ENTRIES).int(id).int(index).int(fileid).int(name);
        line.int(cookie).int_or_null(file).end();
    }

    fn record_args(
        &mut self,
        id: i64,
        server: Address,
        file: Option<FileKey>,
        args: &v3::Args<'_>,
        results: Option<&ResultBody<'_>>,
    ) {
        let created = match results {
            Some(ResultBody::Created { object: Some(object), .. } | ResultBody::Lookup { object, .. }) => {
                Some(self.handle(server, *object))
            }
            _ => None,
        };
        let directory = args.handle().zip(file).map(|(handle, file)| self.handle_of(file, server, handle));
        match *args {
            v3::Args::Null | v3::Args::Getattr { .. } => {}
            v3::Args::Fsstat { .. } | v3::Args::Fsinfo { .. } | v3::Args::Pathconf { .. } => {}
            v3::Args::Setattr { ref attributes, guard, .. } => {
                self.change(id, None, None, attributes, guard, None, None);
            }
            v3::Args::Lookup { what } => self.name(id, 0, directory, Some(what.name), created, None),
            v3::Args::Access { access, .. } => {
                let granted = match results {
                    Some(ResultBody::Access { access, .. }) => Some(i64::from(*access)),
                    _ => None,
                };
                self.words(ACCESSES)
                    .line(&tables::ACCESSES)
                    .int(id)
                    .int(access.into())
                    .int_or_null(granted)
                    .end();
            }
            v3::Args::Readlink { .. } => {
                let target = match results {
                    Some(ResultBody::Readlink { target, .. }) => Some(*target),
                    _ => None,
                };
                self.name(id, 0, None, None, None, target);
            }
            v3::Args::Read { .. } => {
                let eof = match results {
                    Some(ResultBody::Read { eof, .. }) => Some(*eof),
                    _ => None,
                };
                self.words(TRANSFERS)
                    .line(&tables::TRANSFERS)
                    .int(id)
                    .null()
                    .null()
                    .null()
                    .bool_or_null(eof)
                    .end();
            }
            v3::Args::Write { stable, .. } => {
                let (mut committed, mut seen) = (None, None);
                if let Some(ResultBody::Write { committed: how, verifier, .. }) = results {
                    (committed, seen) = (Some(*how as i64), Some(self.pseudonyms.number(*verifier)));
                }
                let row = self.words(TRANSFERS).line(&tables::TRANSFERS).int(id).int(stable as i64);
                row.int_or_null(committed).int_or_null(seen).null().end();
            }
            v3::Args::Commit { .. } => {
                let seen = match results {
                    Some(ResultBody::Commit { verifier, .. }) => Some(self.pseudonyms.number(*verifier)),
                    _ => None,
                };
                self.words(TRANSFERS)
                    .line(&tables::TRANSFERS)
                    .int(id)
                    .null()
                    .null()
                    .int_or_null(seen)
                    .null()
                    .end();
            }
            v3::Args::Create { place, ref how } => {
                self.name(id, 0, directory, Some(place.name), created, None);
                match how {
                    CreateHow::Unchecked(set) => self.change(id, Some(0), None, set, None, None, None),
                    CreateHow::Guarded(set) => self.change(id, Some(1), None, set, None, None, None),
                    CreateHow::Exclusive(verifier) => {
                        self.change(
                            id,
                            Some(2),
                            None,
                            &SetAttributes::default(),
                            None,
                            Some(*verifier),
                            None,
                        );
                    }
                }
            }
            v3::Args::Mkdir { place, ref attributes } => {
                self.name(id, 0, directory, Some(place.name), created, None);
                self.change(id, None, None, attributes, None, None, None);
            }
            v3::Args::Symlink { place, ref attributes, target } => {
                self.name(id, 0, directory, Some(place.name), created, Some(target));
                self.change(id, None, None, attributes, None, None, None);
            }
            v3::Args::Mknod { place, ref what } => {
                self.name(id, 0, directory, Some(place.name), created, None);
                let none = SetAttributes::default();
                let (kind, set, device) = match what {
                    NodeKind::Device(kind, set, device) => (kind, set, Some(*device)),
                    NodeKind::Pipe(kind, set) => (kind, set, None),
                    NodeKind::Other(kind) => (kind, &none, None),
                };
                self.change(id, None, Some(file_type(*kind)), set, None, None, device);
            }
            v3::Args::Remove { object } | v3::Args::Rmdir { object } => {
                self.name(id, 0, directory, Some(object.name), None, None);
            }
            v3::Args::Rename { from, to } => {
                self.name(id, 0, directory, Some(from.name), None, None);
                let second = self.handle(server, to.dir);
                self.name(id, 1, Some(second), Some(to.name), None, None);
            }
            v3::Args::Link { link, .. } => {
                let place = self.handle(server, link.dir);
                self.name(id, 0, Some(place), Some(link.name), None, None);
            }
            v3::Args::Readdir { cookie, cookie_verifier, count, .. } => {
                self.listing(id, cookie, cookie_verifier, None, count, results);
            }
            v3::Args::Readdirplus { cookie, cookie_verifier, dir_count, max_count, .. } => {
                self.listing(id, cookie, cookie_verifier, Some(dir_count), max_count, results);
            }
        }
    }

    fn listing(
        &mut self,
        id: i64,
        cookie: u64,
        asked: u64,
        names_max: Option<u32>,
        max: u32,
        results: Option<&ResultBody<'_>>,
    ) {
        let answer = match results {
            Some(ResultBody::Readdir { cookie_verifier, eof, .. }) => Some((*cookie_verifier, *eof)),
            _ => None,
        };
        let hide = &self.pseudonyms;
        let (cookie, asked) = (hide.number(cookie), hide.number(asked));
        let verifier = answer.map(|(verifier, _)| hide.number(verifier));
        self.words(LISTINGS)
            .line(&tables::LISTINGS)
            .int(id)
            .int(cookie)
            .int(asked)
            .int_or_null(names_max.map(i64::from))
            .int(max.into())
            .int_or_null(verifier)
            .bool_or_null(answer.map(|(_, eof)| eof))
            .end();
    }

    fn record_filesystem(&mut self, id: i64, results: &ResultBody<'_>) {
        let (mut ints, mut flags) = ([None; 19], [None; 4]);
        match *results {
            ResultBody::Fsstat {
                total_bytes,
                free_bytes,
                available_bytes,
                total_files,
                free_files,
                available_files,
                invariant_sec,
                ..
            } => {
                let all = [
                    total_bytes,
                    free_bytes,
                    available_bytes,
                    total_files,
                    free_files,
                    available_files,
                    invariant_sec.into(),
                ];
                ints[..7].copy_from_slice(&all.map(Some));
            }
            ResultBody::Fsinfo {
                read_max,
                read_preferred,
                read_multiple,
                write_max,
                write_preferred,
                write_multiple,
                dir_preferred,
                file_size_max,
                ref time_delta,
                properties,
                ..
            } => {
                let sizes = [
                    read_max,
                    read_preferred,
                    read_multiple,
                    write_max,
                    write_preferred,
                    write_multiple,
                    dir_preferred,
                ];
                ints[7..14].copy_from_slice(&sizes.map(|size| Some(size.into())));
                let rest = [file_size_max, nanos(time_delta) as u64, properties.into()];
                ints[14..17].copy_from_slice(&rest.map(Some));
            }
            ResultBody::Pathconf {
                link_max,
                name_max,
                no_trunc,
                chown_restricted,
                case_insensitive,
                case_preserving,
                ..
            } => {
                ints[17..].copy_from_slice(&[Some(link_max.into()), Some(name_max.into())]);
                flags = [no_trunc, chown_restricted, case_insensitive, case_preserving].map(Some);
            }
            _ => return,
        }
        let row = ints.into_iter().fold(self.row(FILESYSTEMS).int(id), Row::count_or_null);
        flags.into_iter().fold(row, Row::bool_or_null).end();
    }

    fn compound_attributes(&mut self, of: &ListOf<'_>, list: &v4::FileAttributes<'_>) {
        let found = list.parse();
        let (kind, device) = match of.made {
            None => (found.kind, found.rawdev),
            Some(v4::CreateKind::Block(device)) => (Some(3), Some(device)),
            Some(v4::CreateKind::Character(device)) => (Some(4), Some(device)),
            Some(v4::CreateKind::Link(_)) => (Some(5), None),
            Some(v4::CreateKind::Plain(kind)) => (Some(kind), None),
        };
        let Recorder { pseudonyms, chunks, .. } = self;
        let hide = |number: Option<u64>| number.map(|number| pseudonyms.number(number));
        let number = |value: Option<u32>| value.map(i64::from);
        let (atime_how, atime_set) = set_time(found.time_access_set);
        let (mtime_how, mtime_set) = set_time(found.time_modify_set);
        let row = chunks[COMPOUND_ATTRIBUTES.0][COMPOUND_ATTRIBUTES.1].rows.row();
        let row = row.int(of.id).int(of.position).int_or_null(of.entry.map(|(index, _)| index));
        let row = pseudonyms.put(row, of.entry.map(|(_, name)| name)).bool(of.set).int_or_null(of.file);
        let row = row.int_or_null(number(kind)).int_or_null(number(found.mode));
        let row = row.int_or_null(number(found.numlinks));
        let row = pseudonyms.put(row, found.owner);
        pseudonyms
            .put(row, found.owner_group)
            .count_or_null(found.size)
            .count_or_null(found.space_used)
            .int_or_null(device.map(|device| device[0].into()))
            .int_or_null(device.map(|device| device[1].into()))
            .int_or_null(hide(found.fsid.map(|fsid| fsid[0])))
            .int_or_null(hide(found.fsid.map(|fsid| fsid[1])))
            .int_or_null(hide(found.fileid))
            .int_or_null(hide(found.mounted_on_fileid))
            .int_or_null(found.change.map(|change| change as i64))
            .int_or_null(atime_how)
            .int_or_null(found.time_access.as_ref().map(nanos4).or(atime_set))
            .int_or_null(mtime_how)
            .int_or_null(found.time_modify.as_ref().map(nanos4).or(mtime_set))
            .int_or_null(found.time_metadata.as_ref().map(nanos4))
            .int_or_null(number(found.rdattr_error))
            .int_or_null(number(found.unparsed))
            .end();
    }

    fn record_compound(
        &mut self,
        id: i64,
        operation: &Operation<'_>,
        call: &v4::Call<'_>,
        reply: Option<&v4::Reply<'_>>,
    ) {
        let server = operation.peers.server.address;
        for (position, step) in (0..).zip(v4::Walk::new(call, reply)) {
            let Some(op) = step.args.op() else { break };
            let (offset, asked) = match step.args {
                v4::Args::Read { offset, count, .. } | v4::Args::Commit { offset, count } => {
                    (Some(offset), Some(u64::from(count)))
                }
                v4::Args::Write { offset, data, .. } => (Some(offset), Some(u64::from(data.len))),
                _ => (None, None),
            };
            let moved = match step.result.map(|result| result.body) {
                Some(v4::ResultBody::Read { data, .. }) => Some(u64::from(data.len)),
                Some(v4::ResultBody::Write { count, .. }) => Some(u64::from(count)),
                _ => None,
            };
            let place = match step.args {
                v4::Args::Putfh { object } => Some(object),
                _ => step.current.handle(),
            };
            let file = place.map(|handle| self.handle(server, handle));
            self.row(COMPOUNDS)
                .int(id)
                .int(position)
                .text(op.name())
                .int_or_null(file)
                .count_or_null(offset)
                .count_or_null(asked)
                .count_or_null(moved)
                .int_or_null(step.result.map(|result| result.status.0.into()))
                .end();
            let of = ListOf { id, position, entry: None, made: None, set: true, file };
            match step.args {
                v4::Args::Create { kind, ref attributes, .. } => {
                    self.compound_attributes(&ListOf { made: Some(kind), ..of }, attributes);
                }
                v4::Args::Setattr { ref attributes, .. }
                | v4::Args::Open {
                    create:
                        v4::OpenCreate::Unchecked(ref attributes)
                        | v4::OpenCreate::Guarded(ref attributes)
                        | v4::OpenCreate::Exclusive(_, Some(ref attributes)),
                    ..
                } => self.compound_attributes(&of, attributes),
                _ => {}
            }
            let of = ListOf { set: false, ..of };
            match step.result.map(|result| result.body) {
                Some(v4::ResultBody::Getattr { attributes }) => self.compound_attributes(&of, &attributes),
                Some(v4::ResultBody::Readdir { entries, .. }) => {
                    for (index, entry) in (0..).zip(entries.iter()) {
                        let handle = entry.attributes.parse().handle;
                        let file = handle.map(|handle| self.handle(server, handle));
                        let of = ListOf { entry: Some((index, entry.name)), file, ..of };
                        self.compound_attributes(&of, &entry.attributes);
                    }
                }
                _ => {}
            }
        }
        // What it says of names.
        let mut position = 0;
        operation.each_name(&mut |file, parent, name| {
            let leads_to = self.pseudonyms.file(file);
            let directory = parent.map(|parent| self.pseudonyms.file(parent));
            self.name(id, position, directory, Some(name), Some(leads_to), None);
            position += 1;
        });
    }
}

/// The parts of a `settime4`'s columns: how, and the time.
fn set_time(set: Option<v4::SetTime>) -> (Option<i64>, Option<i64>) {
    match set {
        None => (None, None),
        Some(v4::SetTime::ServerTime) => (Some(1), None),
        Some(v4::SetTime::ClientTime(time)) => (Some(2), Some(nanos4(&time))),
    }
}

fn rpc_status(status: rpc::ReplyStatus) -> i64 {
    match status {
        rpc::ReplyStatus::Success => 0,
        rpc::ReplyStatus::ProgUnavail => 1,
        rpc::ReplyStatus::ProgMismatch => 2,
        rpc::ReplyStatus::ProcUnavail => 3,
        rpc::ReplyStatus::GarbageArgs => 4,
        rpc::ReplyStatus::SystemErr => 5,
        rpc::ReplyStatus::RpcMismatch => 6,
        rpc::ReplyStatus::AuthError(_) => 7,
    }
}

fn file_type(kind: v3::FileType) -> i64 {
    match kind {
        v3::FileType::Regular => 1,
        v3::FileType::Directory => 2,
        v3::FileType::BlockDevice => 3,
        v3::FileType::CharacterDevice => 4,
        v3::FileType::Symlink => 5,
        v3::FileType::Socket => 6,
        v3::FileType::Fifo => 7,
        v3::FileType::Other(other) => other.into(),
    }
}

fn statistics_row(batch: &mut Batch, now_ns: u64, ledger: &Ledger) {
    ledger.counters().into_iter().fold(batch.row().int(now_ns as i64), Row::count).end();
}

impl Sink for Recorder {
    fn on_operation(&mut self, operation: &Operation<'_>) {
        #[allow(irrefutable_let_patterns)] // as long as there is one protocol
        let Detail::Rpc(exchange) = operation.detail else {
            return;
        };
        self.record_operation(operation, exchange);
        let id = self.id(operation.record_id);
        let server = operation.peers.server.address;
        match exchange.body {
            Body::Nfs3 { args, results, .. } => {
                let results = results.map(|results| &results.body);
                self.record_nfs3(id, server, operation.file, *args, results);
            }
            Body::Nfs4 { call: Some(call), reply } => {
                self.record_compound(id, operation, call, reply.as_ref())
            }
            Body::Mount {
                args: Some(mount::Args::Mount(path) | mount::Args::Unmount(path)),
                results,
                ..
            } => {
                let root = match results {
                    Some(mount::Results::Mounted(root)) => Some(self.handle(server, *root)),
                    _ => None,
                };
                self.name(id, 0, None, Some(path), root, None);
            }
            Body::Mount { .. } | Body::Nfs4 { .. } | Body::Nfs4Callback { .. } | Body::Opaque => {}
        }
    }

    fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
        let id = (run.record_id != u64::MAX).then(|| self.id(run.record_id));
        let file = self.pseudonyms.file(run.file);
        let Recorder { pseudonyms, chunks, .. } = self;
        let words = &mut chunks[CHECKSUMS.0][CHECKSUMS.1].words;
        for (offset, sum) in (run.offset..).step_by(BLOCK_BYTES).zip(run.sums) {
            let line = words.line(&tables::CHECKSUMS).int_or_null(id).int(file).bool(run.write);
            line.int(offset as i64).int(pseudonyms.sum(*sum)).end();
        }
    }

    const PACKETS: bool = true;

    fn on_packet_parsed(&mut self, packet: &Packet) {
        if self.statistics_ns.is_none() {
            // The first packet's time is when the capture began.
            self.statistics_ns = Some(packet.time_ns + STATISTICS_NS);
            self.statistics(packet.time_ns, &Ledger::default());
        }
        let flow =
            packet.ends.map(|(source, destination, protocol)| self.flow(source, destination, protocol));
        let macs = packet.macs.map(|macs| {
            let (destination, source) = macs.split_at(6);
            [self.pseudonyms.mac(mac(source)), self.pseudonyms.mac(mac(destination))]
        });
        let ring = self.ring as i64;
        self.words(PACKETS)
            .line(&tables::PACKETS)
            .int(packet.time_ns as i64)
            .int_or_null(flow)
            .int(packet.interface.into())
            .int(ring)
            .int_or_null(macs.map(|macs| macs[0]))
            .int_or_null(macs.map(|macs| macs[1]))
            .int_or_null(packet.vlan.map(i64::from))
            .int(packet.wire_len.into())
            .int(packet.missing.into())
            .bool(packet.is_fragment)
            .int_or_null(packet.tcp.map(|(seq, _)| seq.into()))
            .int_or_null(packet.tcp.map(|(_, flags)| flags.into()))
            .int_or_null(packet.payload_len.map(i64::from))
            .bool(packet.in_message)
            .end();
    }

    fn on_batch_end(&mut self, now_ns: u64, ledger: &Ledger) {
        self.now_ns = now_ns;
        if self.statistics_ns.is_some_and(|due| now_ns >= due) {
            self.statistics_ns = Some(now_ns + STATISTICS_NS);
            self.statistics(now_ns, ledger);
        }
        if self.generation != self.shared.generation() {
            self.begin_generation();
        }
        if self.sent.elapsed() >= CHUNK_AGE {
            self.sent = Instant::now();
            return self.send_all();
        }
        for lane in 0..self.lanes.len() {
            if self.chunks[lane].iter().map(Chunk::bytes).sum::<usize>() >= self.chunk_bytes {
                self.send(lane);
            }
        }
    }
}
