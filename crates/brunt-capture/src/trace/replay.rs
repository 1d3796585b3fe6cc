//! Runs a stored trace through the analyses, for `brunt analyze DIR`. Rows are turned back into the events that the
//! packets produced, in the same order, so the findings are the same. The one rule: missing data (parts deleted to
//! save space, lost rows, damaged parts) is reported, never made up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;

use brunt_core::{TransferOutcome, byte_text};
use brunt_lake::{
    Batch, Column, LakeError, LakeSnapshot, LakeTap, OrderedReader, OrderedRuns, Table,
    TableReader, read_table, reader,
};
use brunt_wire::net::IpAddress;

use super::{lake, tables};
use crate::analysis::{Analysis, AnalysisSet, OperationEvent};
use crate::dissect::rpc::{OTHER, RPC};
use crate::ledger::Ledger;
use crate::operation::{
    ChecksumRun, FileKey, OperationKind, Protocol, Sink, TransferDirection, leads_on,
};

/// Maximum distance, in calls, between a call and the rows that belong to it: the maximum number of outstanding
/// calls.
const CALLS_APART_MAX: i64 = 1 << 17;

/// Why a trace cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The folder contains no trace.
    #[error("{0} contains no trace; record one with `brunt capture --out`")]
    NoTrace(String),
    /// The trace was written by an incompatible version.
    #[error(
        "the trace has version {found}, and this program reads version {}: capture again, or \
         analyze it with the program that wrote it, {program}; other tools can still read its \
         tables",
        tables::VERSION
    )]
    Version {
        /// Its version.
        found: i64,
        /// The program that wrote it.
        program: String,
    },
    /// The parts were written by several versions.
    #[error(
        "{folder} has parts of version {one} (by {one_program}) and of version {other} (by \
         {other_program}): keep traces of different versions in separate folders"
    )]
    Mixed {
        /// The trace's folder.
        folder: String,
        /// One of the versions.
        one: i64,
        /// The program that wrote that version.
        one_program: String,
        /// The other version.
        other: i64,
        /// The program that wrote that version.
        other_program: String,
    },
    /// A table cannot be read.
    #[error(transparent)]
    Lake(#[from] LakeError),
}

/// The result of replaying a trace.
#[derive(Debug)]
pub struct Replayed {
    /// The analyses, fed with all operations.
    pub analysis: Analysis,
    /// The loss ledger as the capture wrote it.
    pub ledger: Ledger,
    /// What the trace cannot show, as complete statements.
    pub notes: Vec<String>,
    /// Damaged parts by name; rows after the damage are missing from the results.
    pub damaged: Vec<String>,
}

/// The trace that is being read, and the damage found so far.
pub(super) struct Source {
    snapshot: LakeSnapshot,
    damaged: BTreeSet<String>,
}

impl Source {
    pub(super) fn open(folder: &Path) -> Result<Source, ReplayError> {
        Ok(Source {
            snapshot: LakeSnapshot::open_whole(folder)?,
            damaged: BTreeSet::new(),
        })
    }

    /// The pipelines that wrote the trace.
    pub(super) fn pipelines(&self) -> Result<BTreeSet<u16>, ReplayError> {
        pipelines(&self.snapshot)
    }

    fn note(&mut self, damaged: &[LakeError]) {
        self.damaged
            .extend(damaged.iter().map(LakeError::to_string));
    }

    /// Reads all rows of a table.
    pub(super) fn read(
        &mut self,
        table: &'static Table,
        mut each: impl FnMut(&Batch),
    ) -> Result<(), ReplayError> {
        let mut reader = TableReader::of(&self.snapshot, table)?;
        while let Some(batch) = reader.next_batch()? {
            each(batch);
        }
        self.note(reader.damaged());
        Ok(())
    }

    /// The rows of a table by pipeline, ordered by an id column.
    pub(super) fn runs(
        &mut self,
        table: &'static Table,
        id: &'static str,
    ) -> Result<OrderedRuns, ReplayError> {
        let runs = OrderedRuns::list(&self.snapshot, table, id)?;
        self.note(runs.damaged());
        Ok(runs)
    }
}

/// The column with this name; the views below contain only columns that are read.
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
        pub(super) const $name: Table = Table {
            columns: &[$(column(&tables::$table, $column)),*],
            ..tables::$table
        };
    };
}

view!(OPERATIONS of OPERATIONS: "record_id" "completion_id" "protocol" "operation" "request_first" "latency_ns" "flow"
    "status" "file" "direction" "offset_bytes" "moved_bytes" "outstanding");
view!(PACKETS of PACKETS: "time" "wire_bytes" "not_understood");
view!(NAMES of NAMES: "record_id" "position" "file" "name" "leads_to");
view!(ENTRIES of ENTRIES: "record_id" "entry" "name" "file");

/// Whether a folder contains a trace.
pub fn is_trace(folder: &Path) -> bool {
    reader::parts(folder, &tables::NOTES).is_ok_and(|parts| !parts.is_empty())
}

/// A trace's own description.
#[derive(Debug)]
pub struct TraceNotes {
    /// Whether names, addresses and ids are pseudonyms.
    pub is_anonymous: bool,
    /// Damaged parts of the table that contains this description.
    pub damaged: Vec<LakeError>,
}

/// Reads a trace's own description.
///
/// # Errors
/// The folder contains no trace, or all or part of it was written by an incompatible version.
pub fn notes(folder: &Path) -> Result<TraceNotes, ReplayError> {
    // Reports an unsupported lake first; otherwise, it could look like a folder without a trace.
    LakeSnapshot::open_whole(folder)?;
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
            Err(ReplayError::Mixed {
                folder,
                one,
                one_program,
                other,
                other_program,
            })
        }
        (Some((found, program)), None) if found != tables::VERSION => {
            Err(ReplayError::Version { found, program })
        }
        _ => Ok(TraceNotes {
            is_anonymous,
            damaged,
        }),
    }
}

/// Runs a trace through the analyses.
///
/// # Errors
/// The folder contains no trace, or the trace cannot be read.
pub fn replay(folder: &Path) -> Result<Replayed, ReplayError> {
    replay_selected(folder, AnalysisSet::default())
}

/// Runs a trace through some of the analyses.
///
/// # Errors
/// The folder contains no trace, or the trace cannot be read.
pub fn replay_selected(folder: &Path, selected: AnalysisSet) -> Result<Replayed, ReplayError> {
    let TraceNotes {
        is_anonymous,
        damaged,
    } = notes(folder)?;
    let mut source = Source::open(folder)?;
    source.note(&damaged);
    let mut notes = missing_parts(&source.snapshot)?;
    if is_anonymous {
        notes.push("names, addresses and ids are pseudonyms".into());
    }
    let (ledger, _) = statistics(&mut source)?;
    if ledger.trace_rows_lost > 0 {
        notes.push(format!(
            "{} rows were dropped when the trace was written, due to lack of space",
            ledger.trace_rows_lost
        ));
    }
    let flows = flows(&mut source)?;
    let operations = source.runs(&OPERATIONS, "completion_id")?;
    let beside = [
        source.runs(&NAMES, "record_id")?,
        source.runs(&ENTRIES, "record_id")?,
    ];
    // Data that doesn't depend on order is processed once, for all pipelines.
    let mut all = Analysis::new().running(selected);
    packets(&mut source, &mut all)?;
    if all.wants_checksums() {
        checksums(&mut source, &mut all)?;
    }
    // As during the capture, each pipeline is analysed on its own, and then the results are merged.
    for pipeline in source.pipelines()? {
        let mut analysis = all.afresh();
        let beside = beside.each_ref().map(|runs| runs.of_pipeline(pipeline));
        feed(
            &mut source,
            operations.of_pipeline(pipeline),
            beside,
            &flows,
            &mut analysis,
        )?;
        analysis.settle();
        all.merge(analysis);
    }
    let damaged: Vec<String> = source.damaged.into_iter().collect();
    if !damaged.is_empty() {
        let count = match damaged.len() {
            1 => "one part of the trace is".to_string(),
            count => format!("{count} parts of the trace are"),
        };
        notes.push(format!(
            "{count} damaged and skipped; the ledger still includes their contents"
        ));
        notes.extend(damaged.iter().cloned());
    }
    Ok(Replayed {
        analysis: all,
        ledger,
        notes,
        damaged,
    })
}

/// The pipelines that wrote the trace.
fn pipelines(snapshot: &LakeSnapshot) -> Result<BTreeSet<u16>, ReplayError> {
    let taps = snapshot.catalog().map_or(&[][..], |catalog| &catalog.taps);
    let mut pipelines: BTreeSet<u16> = taps
        .iter()
        .flat_map(|tap| tap.numbers())
        .map(|number| number as u16)
        .collect();
    for table in tables::all() {
        let captured = snapshot
            .parts(table)?
            .into_iter()
            .filter_map(|part| part.captured);
        pipelines.extend(captured.map(|(series, _)| series));
    }
    Ok(pipelines)
}

/// Notes on the tables whose first parts are missing.
fn missing_parts(snapshot: &LakeSnapshot) -> Result<Vec<String>, ReplayError> {
    let mut gone = Vec::new();
    let taps = snapshot.catalog().map_or(&[][..], |catalog| &catalog.taps);
    let captured = pipelines(snapshot)?;
    for table in tables::all() {
        let parts = snapshot.parts(table)?;
        let first_captured = |series| parts.iter().any(|part| part.captured == Some((series, 0)));
        // Checked per tap or, without taps, for the whole trace.
        let of_taps = taps
            .iter()
            .flat_map(|tap| (0..tap.pipelines).map(move |series| (Some(tap), series)));
        let of_trace = captured
            .iter()
            .filter(|_| taps.is_empty())
            .map(|series| (None, *series));
        let begins = |tap: Option<&LakeTap>, series| {
            tap.and_then(|tap| lake::begins(tap, table, series))
                .unwrap_or_else(|| first_captured(series))
        };
        // Traces written by earlier builds don't have this table.
        if *table == tables::HEALTH {
            continue;
        }
        let one_series = *table == tables::NOTES;
        let mut all = of_taps
            .chain(of_trace)
            .filter(|(_, series)| !one_series || *series == 0);
        if !all.all(|(tap, series)| begins(tap, series)) {
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

/// The counters of the trace in a folder, and the time of its last packet in nanoseconds since 1970.
pub(super) fn last_counters(folder: &Path) -> Result<(Ledger, u64), ReplayError> {
    statistics(&mut Source::open(folder)?)
}

/// The capture's last counters and their time; a row counts all pipelines, whichever of them wrote it. For a lake,
/// the sum over its taps.
fn statistics(source: &mut Source) -> Result<(Ledger, u64), ReplayError> {
    let mut last: BTreeMap<i64, ((i64, i64), Ledger)> = BTreeMap::new();
    source.read(&tables::STATISTICS, |batch| {
        let (times, packets) = (batch.ints("time"), batch.ints("packets"));
        let (columns, taps) = (&tables::STATISTICS.columns[1..], batch.ints("tap"));
        for (row, key) in times
            .iter()
            .copied()
            .zip(packets.iter().copied())
            .enumerate()
        {
            let tap = if batch.is_null("tap", row) {
                0
            } else {
                taps[row]
            };
            let known = last
                .entry(tap)
                .or_insert(((i64::MIN, 0), Ledger::default()));
            if key >= known.0 {
                // A counter that an older program did not have is null.
                let counter = |index: usize| {
                    let name = columns[index].name;
                    match batch.is_null(name, row) {
                        true => 0,
                        false => batch.ints(name)[row] as u64,
                    }
                };
                *known = (key, Ledger::from_counters(std::array::from_fn(counter)));
            }
        }
    })?;
    let mut ledger = Ledger::default();
    last.values().for_each(|(_, of_tap)| ledger.merge(of_tap));
    let time = last.values().map(|((time, _), _)| *time).max();
    Ok((ledger, time.unwrap_or(0).max(0) as u64))
}

fn packets(source: &mut Source, analysis: &mut Analysis) -> Result<(), ReplayError> {
    source.read(&PACKETS, |batch| {
        for (time, bytes) in batch.ints("time").iter().zip(batch.ints("wire_bytes")) {
            analysis.feed_packet(*time as u64, *bytes as u32);
        }
        for (row, text) in batch.texts("not_understood").enumerate() {
            if let Ok(next) = text.parse() {
                analysis.feed_not_understood(next, batch.ints("wire_bytes")[row] as u32);
            }
        }
    })
}

fn checksums(source: &mut Source, analysis: &mut Analysis) -> Result<(), ReplayError> {
    source.read(&tables::CHECKSUMS, |batch| {
        let (files, offsets, sums) = (
            batch.ints("file"),
            batch.ints("offset_bytes"),
            batch.ints("sum"),
        );
        for (row, write) in batch.bools("write").iter().enumerate() {
            analysis.feed_checksums(&ChecksumRun {
                record_id: 0,
                file: FileKey(files[row] as u64),
                write: *write,
                offset: offsets[row] as u64,
                sums: &[sums[row] as u64],
            });
        }
    })
}

/// The two ends of each flow: for a flow of calls, client and server.
pub(super) fn flows(source: &mut Source) -> Result<HashMap<i64, [IpAddress; 2]>, ReplayError> {
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

/// A row that names a file.
struct NameRow {
    parent: Option<FileKey>,
    name: String,
    file: Option<FileKey>,
}

/// The operation, and the row's position within it.
type NamePlace = (i64, i64);

/// Rows of a table that belong to operations, with any number of rows per operation. The rows are ordered by id, in
/// the order of requests; operations come in the order of completion.
struct RowsOfOperations {
    reader: OrderedReader,
    /// Rows of operations that have not been reached yet; rows with equal positions keep their order.
    waiting: BTreeMap<(NamePlace, u64), NameRow>,
    count: u64,
    /// All rows up to this operation have been read.
    read_to: i64,
    take: fn(&Batch) -> Vec<(NamePlace, NameRow)>,
}

impl RowsOfOperations {
    fn new(
        reader: OrderedReader,
        take: fn(&Batch) -> Vec<(NamePlace, NameRow)>,
    ) -> RowsOfOperations {
        RowsOfOperations {
            reader,
            waiting: BTreeMap::new(),
            count: 0,
            read_to: i64::MIN,
            take,
        }
    }

    /// The rows that belong to an operation.
    fn of(&mut self, id: i64) -> Result<Vec<NameRow>, ReplayError> {
        while self.read_to < id {
            let Some(batch) = self.reader.next_batch()? else {
                self.read_to = i64::MAX;
                break;
            };
            let rows = (self.take)(batch);
            // The next batch may contain more rows of the last operation.
            self.read_to = rows
                .last()
                .map_or(i64::MIN, |((last, _), _)| last.saturating_sub(1));
            for (place, row) in rows {
                self.count += 1;
                self.waiting.insert((place, self.count), row);
            }
        }
        // Drops rows of operations that are no longer in the trace.
        let is_over =
            |((first, _), _): &(NamePlace, u64)| *first < id.saturating_sub(CALLS_APART_MAX);
        while self
            .waiting
            .first_key_value()
            .is_some_and(|(key, _)| is_over(key))
        {
            self.waiting.pop_first();
        }
        let all = ((id, i64::MIN), 0)..=((id, i64::MAX), u64::MAX);
        let keys: Vec<_> = self.waiting.range(all).map(|(key, _)| *key).collect();
        Ok(keys
            .iter()
            .filter_map(|key| self.waiting.remove(key))
            .collect())
    }
}

fn take_names(batch: &Batch) -> Vec<(NamePlace, NameRow)> {
    let (ids, places) = (batch.ints("record_id"), batch.ints("position"));
    let (parents, leads) = (batch.ints("file"), batch.ints("leads_to"));
    let rows = batch.texts("name").enumerate().map(|(row, name)| {
        let key = |column, values: &[i64]| {
            (!batch.is_null(column, row)).then(|| FileKey(values[row] as u64))
        };
        let (parent, file) = (key("file", parents), key("leads_to", leads));
        (
            (ids[row], places[row]),
            NameRow {
                parent,
                name: name.into(),
                file,
            },
        )
    });
    rows.collect()
}

fn take_entries(batch: &Batch) -> Vec<(NamePlace, NameRow)> {
    let (ids, places, files) = (
        batch.ints("record_id"),
        batch.ints("entry"),
        batch.ints("file"),
    );
    let rows = batch.texts("name").enumerate().map(|(row, name)| {
        let file = (!batch.is_null("file", row)).then(|| FileKey(files[row] as u64));
        (
            (ids[row], places[row]),
            NameRow {
                parent: None,
                name: name.into(),
                file,
            },
        )
    });
    rows.collect()
}

/// Kinds and protocols by their names in the table. Unknown names, written by another program that uses this version,
/// count as other RPC.
pub(super) struct Known {
    kinds: HashMap<(&'static str, &'static str), OperationKind>,
    protocols: HashMap<&'static str, Protocol>,
}

impl Known {
    pub(super) fn all() -> Known {
        Known {
            kinds: OperationKind::all()
                .map(|kind| ((kind.dissector(), kind.name()), kind))
                .collect(),
            protocols: Protocol::all()
                .map(|protocol| (protocol.name(), protocol))
                .collect(),
        }
    }

    fn of(&self, protocol: &str, operation: &str) -> (Protocol, OperationKind) {
        let protocol = self.protocols.get(protocol).copied().unwrap_or(RPC);
        let kind = self
            .kinds
            .get(&(protocol.dissector(), operation))
            .copied()
            .unwrap_or(OTHER);
        (protocol, kind)
    }
}

/// The operations of a batch as events, each with its record id.
pub(super) fn events<'b>(
    batch: &'b Batch,
    known: &'b Known,
    flows: &'b HashMap<i64, [IpAddress; 2]>,
) -> impl Iterator<Item = (i64, OperationEvent)> + 'b {
    let ints = |column| batch.ints(column);
    let (ids, times, latencies) = (ints("record_id"), ints("request_first"), ints("latency_ns"));
    let (statuses, files, directions) = (ints("status"), ints("file"), ints("direction"));
    let (offsets, moved, outstanding) = (
        ints("offset_bytes"),
        ints("moved_bytes"),
        ints("outstanding"),
    );
    let request_flows = ints("flow");
    batch
        .texts("protocol")
        .zip(batch.texts("operation"))
        .enumerate()
        .map(move |(row, (protocol, operation))| {
            let some = |column, values: &[i64]| (!batch.is_null(column, row)).then(|| values[row]);
            let (protocol, kind) = known.of(protocol, operation);
            let latency_ns = some("latency_ns", latencies).map(|ns| ns as u64);
            let status = some("status", statuses).map(|status| status as u32);
            let outcome = TransferOutcome::of(status, latency_ns.is_some());
            let [client, server] = flows.get(&request_flows[row]).copied().unwrap_or_default();
            let event = OperationEvent {
                record_id: ids[row] as u64,
                time_ns: times[row] as u64,
                latency_ns,
                client,
                server,
                kind,
                protocol,
                direction: some("direction", directions).map(|direction| match direction {
                    0 => TransferDirection::Read,
                    _ => TransferDirection::Write,
                }),
                outcome,
                file: some("file", files).map(|file| FileKey(file as u64)),
                offset: some("offset_bytes", offsets).unwrap_or(0) as u64,
                bytes: if outcome.is_transfer() {
                    moved[row] as u32
                } else {
                    0
                },
                error: status.filter(|status| *status != 0),
                outstanding: outstanding[row] as u32,
            };
            (ids[row], event)
        })
}

/// Feeds a pipeline's operations to the analyses, each with its names and entries.
fn feed(
    source: &mut Source,
    mut operations: OrderedReader,
    beside: [OrderedReader; 2],
    flows: &HashMap<i64, [IpAddress; 2]>,
    analysis: &mut Analysis,
) -> Result<(), ReplayError> {
    let known = Known::all();
    let [names, entries] = beside;
    let (mut names, mut entries) = (
        RowsOfOperations::new(names, take_names),
        RowsOfOperations::new(entries, take_entries),
    );
    while let Some(batch) = operations.next_batch()? {
        for (id, event) in events(batch, &known, flows) {
            let OperationEvent { server, file, .. } = event;
            analysis.feed_event(event);
            for named in names.of(id)? {
                feed_name(server, named.parent, &named, analysis);
            }
            for named in entries.of(id)? {
                feed_name(server, file, &named, analysis);
            }
            analysis.settle_if_full();
        }
    }
    for reader in [&operations, &names.reader, &entries.reader] {
        source.note(reader.damaged());
    }
    Ok(())
}

fn feed_name(server: IpAddress, parent: Option<FileKey>, named: &NameRow, analysis: &mut Analysis) {
    let Some(leads_to) = named.file else { return };
    let name = byte_text::to_bytes(&named.name);
    if leads_on(&name) {
        analysis.feed_name(server, leads_to, parent, &name);
    }
}
