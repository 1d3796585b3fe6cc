//! A stored trace through the analyses: `brunt analyze DIR`. Rows become the events that the packets
//! were, in their order, so that the same findings come out. The one rule: what a trace does not
//! have any more (parts deleted to save room, rows lost, parts that are damaged) is reported, not made up.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;

use brunt_lake::{Batch, Column, LakeError, Table, TableReader, read_table, reader};
use brunt_wire::net::IpAddress;

use super::{tables, text};
use crate::analysis::{Analysis, OperationEvent};
use crate::dissect::rpc::{OTHER, RPC};
use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, FileKey, OperationKind, Protocol, TransferDirection, leads_on};

/// Rows that belong to a call stand at most so many calls from it: that many may wait for replies.
const CALLS_APART_MAX: i64 = 1 << 17;

/// Why a trace cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is none in the folder.
    #[error("{0} contains no trace; `brunt capture --out` writes one")]
    NoTrace(String),
    /// Another version wrote it.
    #[error(
        "the trace is of version {found}, this program reads version {}: capture again, or analyze it with the \
         program that wrote it, {program}; other tools read its tables as before",
        tables::VERSION
    )]
    Version {
        /// Its version.
        found: i64,
        /// What wrote it.
        program: String,
    },
    /// Several versions wrote it.
    #[error(
        "{folder} has parts of version {one} (by {one_program}) and of version {other} (by {other_program}): keep the \
         traces of different versions in folders of their own"
    )]
    Mixed {
        /// Where it is.
        folder: String,
        /// The one version.
        one: i64,
        /// What wrote that.
        one_program: String,
        /// The other version.
        other: i64,
        /// What wrote that.
        other_program: String,
    },
    /// A table cannot be read.
    #[error(transparent)]
    Lake(#[from] LakeError),
}

/// What came of a trace.
#[derive(Debug)]
pub struct Replayed {
    /// The analyses, with all operations.
    pub analysis: Analysis,
    /// The loss ledger as the capture wrote it.
    pub ledger: Ledger,
    /// What cannot be known from this trace, in sentences.
    pub notes: Vec<String>,
    /// Damaged parts, which were left out from the damage on, each named.
    pub damaged: Vec<String>,
}

/// The trace that is read, and what is found to be damaged on the way.
struct Source<'a> {
    folder: &'a Path,
    damaged: BTreeSet<String>,
}

impl Source<'_> {
    fn note(&mut self, damaged: &[LakeError]) {
        self.damaged.extend(damaged.iter().map(LakeError::to_string));
    }

    /// All rows of a table.
    fn read(&mut self, table: &'static Table, each: impl FnMut(&Batch)) -> Result<(), ReplayError> {
        let damaged = read_table(self.folder, table, each)?;
        self.note(&damaged);
        Ok(())
    }
}

/// Some columns of a table: what is not named is not read.
const fn column(table: &Table, name: &str) -> Column {
    let mut index = 0;
    loop {
        let (one, other) = (table.columns[index].name.as_bytes(), name.as_bytes());
        let mut at = 0;
        while at < one.len() && at < other.len() && one[at] == other[at] {
            at += 1;
        }
        if at == one.len() && at == other.len() {
            return table.columns[index];
        }
        index += 1;
    }
}

macro_rules! view {
    ($name:ident of $table:ident: $($column:literal)*) => {
        const $name: Table = Table {
            columns: &[$(column(&tables::$table, $column)),*],
            ..tables::$table
        };
    };
}

view!(OPERATIONS of OPERATIONS: "record_id" "protocol" "operation" "request_first" "latency_ns" "flow"
    "status" "file" "direction" "offset_bytes" "moved_bytes" "outstanding");
view!(PACKETS of PACKETS: "time" "wire_bytes" "not_understood");
view!(NAMES of NAMES: "record_id" "file" "name" "leads_to");
view!(ENTRIES of ENTRIES: "record_id" "name" "file");

/// Whether a folder holds a trace.
pub fn is_trace(folder: &Path) -> bool {
    reader::parts(folder, &tables::NOTES).is_ok_and(|parts| !parts.is_empty())
}

/// What a trace says of itself.
#[derive(Debug)]
pub struct TraceNotes {
    /// Whether names, addresses and ids are pseudonyms.
    pub is_anonymous: bool,
    /// Parts of the table that says so and cannot be read.
    pub damaged: Vec<LakeError>,
}

/// Reads what a trace says of itself.
///
/// # Errors
/// The folder holds none, or another version wrote it or a part of it.
pub fn notes(folder: &Path) -> Result<TraceNotes, ReplayError> {
    if !is_trace(folder) {
        return Err(ReplayError::NoTrace(folder.display().to_string()));
    }
    let (mut versions, mut is_anonymous) = (BTreeMap::new(), false);
    let damaged = read_table(folder, &tables::NOTES, |batch| {
        let rows = batch.ints("version").iter().zip(batch.texts("program"));
        versions.extend(rows.map(|(version, program)| (*version, program.to_string())));
        is_anonymous |= batch.bools("anonymous").contains(&true);
    })?;
    let mut versions = versions.into_iter();
    match (versions.next(), versions.next()) {
        (Some((one, one_program)), Some((other, other_program))) => {
            let folder = folder.display().to_string();
            Err(ReplayError::Mixed { folder, one, one_program, other, other_program })
        }
        (Some((found, program)), None) if found != tables::VERSION => {
            Err(ReplayError::Version { found, program })
        }
        _ => Ok(TraceNotes { is_anonymous, damaged }),
    }
}

/// Runs a trace through the analyses.
///
/// # Errors
/// The folder holds none, or one that cannot be read.
pub fn replay(folder: &Path) -> Result<Replayed, ReplayError> {
    let TraceNotes { is_anonymous, damaged } = notes(folder)?;
    let mut source = Source { folder, damaged: BTreeSet::new() };
    source.note(&damaged);
    let mut notes = missing_parts(folder)?;
    if is_anonymous {
        notes.push("names, addresses and ids are pseudonyms".into());
    }
    let ledger = statistics(&mut source)?;
    if ledger.trace_rows_lost > 0 {
        notes.push(format!("{} rows found no room when the trace was written", ledger.trace_rows_lost));
    }
    let flows = flows(&mut source)?;
    // As when they were captured: what a pipeline saw is looked at alone, then all is added.
    let mut all: Option<Analysis> = None;
    for pipeline in pipelines(folder)? {
        let mut analysis = Analysis::new();
        packets(&mut source, pipeline, &mut analysis)?;
        operations(&mut source, pipeline, &flows, &mut analysis)?;
        checksums(&mut source, pipeline, &mut analysis)?;
        analysis.settle();
        match &mut all {
            Some(all) => all.merge(analysis),
            None => all = Some(analysis),
        }
    }
    let damaged: Vec<String> = source.damaged.into_iter().collect();
    if !damaged.is_empty() {
        let count = match damaged.len() {
            1 => "one part of the trace is".to_string(),
            count => format!("{count} parts of the trace are"),
        };
        notes.push(format!("{count} damaged and left out; the ledger still counts what was in it"));
        notes.extend(damaged.iter().cloned());
    }
    Ok(Replayed { analysis: all.unwrap_or_default(), ledger, notes, damaged })
}

/// The pipelines that wrote the trace, by the series of their parts.
fn pipelines(folder: &Path) -> Result<BTreeSet<u16>, ReplayError> {
    let mut pipelines = BTreeSet::new();
    for table in tables::all() {
        pipelines.extend(reader::parts(folder, table)?.into_iter().map(|part| part.series));
    }
    Ok(pipelines)
}

/// Which tables do not begin with their first part any more.
fn missing_parts(folder: &Path) -> Result<Vec<String>, ReplayError> {
    let mut gone = Vec::new();
    let pipelines = pipelines(folder)?;
    for table in tables::all() {
        let parts = reader::parts(folder, table)?;
        let begins = |pipeline| parts.iter().any(|part| (part.series, part.number) == (pipeline, 0));
        let one_series = *table == tables::NOTES;
        if !pipelines.iter().all(|pipeline| begins(*pipeline) || one_series && *pipeline > 0) {
            gone.push(table.name);
        }
    }
    Ok(match gone.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "the oldest parts of {} were deleted: the ledger covers the whole capture, everything else only the remaining parts",
            gone.join(", ")
        )],
    })
}

/// The capture's last word on what was seen and lost: each row counts all pipelines, whoever wrote it.
fn statistics(source: &mut Source<'_>) -> Result<Ledger, ReplayError> {
    let (mut last, mut ledger) = ((i64::MIN, 0), Ledger::default());
    source.read(&tables::STATISTICS, |batch| {
        let (times, packets) = (batch.ints("time"), batch.ints("packets"));
        let columns = &tables::STATISTICS.columns[1..];
        for (row, key) in times.iter().copied().zip(packets.iter().copied()).enumerate() {
            if key >= last {
                last = key;
                let counter = |index: usize| batch.ints(columns[index].name)[row] as u64;
                ledger = Ledger::from_counters(std::array::from_fn(counter));
            }
        }
    })?;
    Ok(ledger)
}

fn packets(source: &mut Source<'_>, pipeline: u16, analysis: &mut Analysis) -> Result<(), ReplayError> {
    let mut reader = TableReader::open_series(source.folder, &PACKETS, pipeline)?;
    while let Some(batch) = reader.next_batch()? {
        for (time, bytes) in batch.ints("time").iter().zip(batch.ints("wire_bytes")) {
            analysis.feed_packet(*time as u64, *bytes as u32);
        }
        for (row, text) in batch.texts("not_understood").enumerate() {
            if let Ok(next) = text.parse() {
                analysis.feed_not_understood(next, batch.ints("wire_bytes")[row] as u32);
            }
        }
    }
    source.note(reader.damaged());
    Ok(())
}

fn checksums(source: &mut Source<'_>, pipeline: u16, analysis: &mut Analysis) -> Result<(), ReplayError> {
    let mut reader = TableReader::open_series(source.folder, &tables::CHECKSUMS, pipeline)?;
    while let Some(batch) = reader.next_batch()? {
        let (files, offsets, sums) = (batch.ints("file"), batch.ints("offset_bytes"), batch.ints("sum"));
        for (row, write) in batch.bools("write").iter().enumerate() {
            analysis.feed_checksums(&ChecksumRun {
                record_id: 0,
                file: FileKey(files[row] as u64),
                write: *write,
                offset: offsets[row] as u64,
                sums: &[sums[row] as u64],
            });
        }
    }
    source.note(reader.damaged());
    Ok(())
}

/// Client and server of each flow of calls.
fn flows(source: &mut Source<'_>) -> Result<HashMap<i64, [IpAddress; 2]>, ReplayError> {
    let mut flows = HashMap::new();
    source.read(&tables::FLOWS, |batch| {
        let ends = batch.texts("source").zip(batch.texts("destination"));
        for (flow, (source, destination)) in batch.ints("flow").iter().zip(ends) {
            flows.insert(*flow, [address(source), address(destination)]);
        }
    })?;
    Ok(flows)
}

fn address(text: &str) -> IpAddress {
    match text.parse() {
        Ok(IpAddr::V4(v4)) => IpAddress::v4(v4.octets()),
        Ok(IpAddr::V6(v6)) => IpAddress::v6(v6.octets()),
        Err(_) => IpAddress::default(),
    }
}

/// What a row says of a name.
struct NameRow {
    id: i64,
    parent: Option<FileKey>,
    name: String,
    file: Option<FileKey>,
}

/// The rows of a table beside those of `operations`: in the same order, none or some for each.
struct Beside {
    reader: TableReader,
    rows: VecDeque<NameRow>,
    take: fn(&Batch, &mut VecDeque<NameRow>),
}

impl Beside {
    fn open(
        folder: &Path,
        pipeline: u16,
        table: &'static Table,
        take: fn(&Batch, &mut VecDeque<NameRow>),
    ) -> Result<Beside, ReplayError> {
        Ok(Beside { reader: TableReader::open_series(folder, table, pipeline)?, rows: VecDeque::new(), take })
    }

    /// Passes over rows of calls before `id`, which are not there any more.
    fn skip_before(&mut self, id: i64) -> Result<(), ReplayError> {
        loop {
            while self.rows.front().is_some_and(|row| row.id < id) {
                self.rows.pop_front();
            }
            if !self.rows.is_empty() {
                return Ok(());
            }
            let Some(batch) = self.reader.next_batch()? else { return Ok(()) };
            (self.take)(batch, &mut self.rows);
        }
    }

    /// The next row of this call, if there is one.
    fn next_of(&mut self, id: i64) -> Result<Option<NameRow>, ReplayError> {
        loop {
            let Some(first) = self.rows.front() else {
                let Some(batch) = self.reader.next_batch()? else { return Ok(None) };
                (self.take)(batch, &mut self.rows);
                continue;
            };
            if first.id == id {
                return Ok(self.rows.pop_front());
            }
            if (0..CALLS_APART_MAX).contains(&id.saturating_sub(first.id)) || first.id > id {
                return Ok(None);
            }
            // Of a call that is not there any more.
            self.rows.pop_front();
        }
    }
}

fn take_names(batch: &Batch, rows: &mut VecDeque<NameRow>) {
    let (ids, parents, leads) = (batch.ints("record_id"), batch.ints("file"), batch.ints("leads_to"));
    for (row, name) in batch.texts("name").enumerate() {
        let key = |column, values: &[i64]| (!batch.is_null(column, row)).then(|| FileKey(values[row] as u64));
        let (parent, file) = (key("file", parents), key("leads_to", leads));
        rows.push_back(NameRow { id: ids[row], parent, name: name.into(), file });
    }
}

fn take_entries(batch: &Batch, rows: &mut VecDeque<NameRow>) {
    let (ids, files) = (batch.ints("record_id"), batch.ints("file"));
    for (row, name) in batch.texts("name").enumerate() {
        let file = (!batch.is_null("file", row)).then(|| FileKey(files[row] as u64));
        rows.push_back(NameRow { id: ids[row], parent: None, name: name.into(), file });
    }
}

/// Kinds and protocols by the names that stand in the table. What another program of this version wrote and
/// this one does not know is other RPC.
struct Known {
    kinds: HashMap<(&'static str, &'static str), OperationKind>,
    protocols: HashMap<&'static str, Protocol>,
}

impl Known {
    fn all() -> Known {
        Known {
            kinds: OperationKind::all().map(|kind| ((kind.dissector(), kind.name()), kind)).collect(),
            protocols: Protocol::all().map(|protocol| (protocol.name(), protocol)).collect(),
        }
    }

    fn of(&self, protocol: &str, operation: &str) -> (Protocol, OperationKind) {
        let protocol = self.protocols.get(protocol).copied().unwrap_or(RPC);
        let kind = self.kinds.get(&(protocol.dissector(), operation)).copied().unwrap_or(OTHER);
        (protocol, kind)
    }
}

/// The operations of a batch as events, each with its record and its server.
fn events<'b>(
    batch: &'b Batch,
    known: &'b Known,
    flows: &'b HashMap<i64, [IpAddress; 2]>,
) -> impl Iterator<Item = (i64, IpAddress, OperationEvent)> + 'b {
    let ints = |column| batch.ints(column);
    let (ids, times, latencies) = (ints("record_id"), ints("request_first"), ints("latency_ns"));
    let (statuses, files, directions) = (ints("status"), ints("file"), ints("direction"));
    let (offsets, moved, outstanding) = (ints("offset_bytes"), ints("moved_bytes"), ints("outstanding"));
    let request_flows = ints("flow");
    batch.texts("protocol").zip(batch.texts("operation")).enumerate().map(
        move |(row, (protocol, operation))| {
            let some = |column, values: &[i64]| (!batch.is_null(column, row)).then(|| values[row]);
            let (protocol, kind) = known.of(protocol, operation);
            let [client, server] = flows.get(&request_flows[row]).copied().unwrap_or_default();
            let event = OperationEvent {
                record_id: ids[row] as u64,
                time_ns: times[row] as u64,
                latency_ns: some("latency_ns", latencies).map(|ns| ns as u64),
                client,
                kind,
                protocol,
                direction: some("direction", directions).map(|direction| match direction {
                    0 => TransferDirection::Read,
                    _ => TransferDirection::Write,
                }),
                file: some("file", files).map(|file| FileKey(file as u64)),
                offset: some("offset_bytes", offsets).unwrap_or(0) as u64,
                bytes: moved[row] as u32,
                error: some("status", statuses).filter(|status| *status != 0).map(|status| status as u32),
                outstanding: outstanding[row] as u32,
            };
            (ids[row], server, event)
        },
    )
}

fn operations(
    source: &mut Source<'_>,
    pipeline: u16,
    flows: &HashMap<i64, [IpAddress; 2]>,
    analysis: &mut Analysis,
) -> Result<(), ReplayError> {
    let (known, folder) = (Known::all(), source.folder);
    let mut beside_names = Beside::open(folder, pipeline, &NAMES, take_names)?;
    let mut beside_entries = Beside::open(folder, pipeline, &ENTRIES, take_entries)?;
    let first = reader::parts(folder, &OPERATIONS)?.into_iter().find(|part| part.series == pipeline);
    let mut begins_late = first.is_some_and(|part| part.number > 0);
    let mut reader = TableReader::open_series(folder, &OPERATIONS, pipeline)?;
    let mut damaged = 0;
    loop {
        if reader.next_batch()?.is_none() {
            break;
        }
        // Rows of calls in a part that was left out come next otherwise.
        begins_late |= reader.damaged().len() > damaged;
        damaged = reader.damaged().len();
        let batch = reader.batch();
        if std::mem::take(&mut begins_late) {
            let oldest = batch.ints("record_id").iter().copied().min().unwrap_or(0);
            beside_names.skip_before(oldest)?;
            beside_entries.skip_before(oldest)?;
        }
        for (id, server, event) in events(batch, &known, flows) {
            let file = event.file;
            analysis.feed_event(event);
            while let Some(named) = beside_names.next_of(id)? {
                feed_name(server, named.parent, &named, analysis);
            }
            while let Some(named) = beside_entries.next_of(id)? {
                feed_name(server, file, &named, analysis);
            }
            analysis.settle_if_full();
        }
    }
    for reader in [&reader, &beside_names.reader, &beside_entries.reader] {
        source.note(reader.damaged());
    }
    Ok(())
}

fn feed_name(server: IpAddress, parent: Option<FileKey>, named: &NameRow, analysis: &mut Analysis) {
    let Some(leads_to) = named.file else { return };
    let name = text::to_bytes(&named.name);
    if leads_on(&name) {
        analysis.feed_name(server, leads_to, parent, &name);
    }
}
