//! Reads the NFS calls of a captured trace with their arguments and results, which are spread over several tables.
//! Called by NFS replays.
//!
//! Start reading at [`NfsTrace::read`]. `tables` lists the columns that are read. `compounds` translates the
//! operations of NFSv4 clients to NFSv3 calls.
//!
//! The rule: all rows of a call are found by its number, whatever the order of the tables, so a missing row affects
//! only its own call. A trace is held in memory: about 200 bytes per call.

mod compounds;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use brunt_core::byte_text;
use brunt_lake::{Batch, LakeSnapshot, Table, TableReader};

use self::compounds::{Compound, CompoundCalls};
use crate::error::TraceError;
use crate::tables::{count, int};

/// Maximum number of calls that are held in memory.
pub const NFS_CALLS_MAX: usize = 1 << 24;

/// The RPC program number of NFS.
const PROGRAM_NFS: i64 = 100_003;
/// Calls that servers make.
const CALLBACKS: &str = "NFSv4 callbacks: the server of the replay makes its own";
/// NFSv4's only procedure other than NULL.
const PROCEDURE_COMPOUND: u32 = 1;

/// An NFSv3 call, or an NFSv4 operation translated to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceCall {
    /// Its number, by which its rows in the tables of [`NfsTrace`] are found.
    pub record: i64,
    /// When its first byte was seen, in nanoseconds since 1970.
    pub start_ns: i64,
    /// When the last byte of its reply was seen; `None` if none was.
    pub end_ns: Option<i64>,
    /// Its client, an index into [`NfsTrace::clients`].
    pub client: u32,
    /// Its AUTH_SYS credential, an index into [`NfsTrace::callers`].
    pub caller: Option<u32>,
    /// Number of the procedure (RFC 1813); 0, with a row in [`NfsTrace::locks`], for a lock operation.
    pub procedure: u32,
    /// The status of the reply, if it was seen.
    pub status: Option<u32>,
    /// The handle that it applies to: for LINK the file, for calls with names the directory.
    pub file: Option<i64>,
    /// Offset of READ, WRITE and COMMIT, and of locks.
    pub offset_bytes: u64,
    /// Bytes that the call requests.
    pub asked_bytes: u32,
    /// Bytes that READ or WRITE moved.
    pub moved_bytes: u64,
}

/// A name in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceName {
    /// 0, or 1 for RENAME's new name.
    pub position: u32,
    /// The directory.
    pub directory: Option<i64>,
    /// The name, an index into [`NfsTrace::texts`].
    pub name: Option<u32>,
    /// The handle in the reply.
    pub leads_to: Option<i64>,
    /// Target of a symbolic link, an index into [`NfsTrace::texts`].
    pub target: Option<u32>,
}

/// Attributes of a file in a reply; NFSv4 may omit any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceAttributes {
    /// The file.
    pub file: i64,
    /// The number of its type in the RFC.
    pub file_type: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of the file.
    pub size_bytes: Option<u64>,
}

/// The length of a file before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceSizeBefore {
    /// The file.
    pub file: i64,
    /// Its length.
    pub size_bytes: u64,
}

/// A time to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsTraceTime {
    /// Unchanged.
    #[default]
    Unchanged,
    /// The server's.
    Server,
    /// This time, in nanoseconds since 1970.
    At(i64),
}

/// Attributes that a call sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfsTraceSet {
    /// CREATE: 0 unchecked, 1 guarded, 2 exclusive.
    pub how: Option<u32>,
    /// MKNOD: the number of the type in the RFC.
    pub kind: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size_bytes: Option<u64>,
    /// Time of the last access.
    pub atime: NfsTraceTime,
    /// Time of the last change.
    pub mtime: NfsTraceTime,
    /// SETATTR: the ctime that the file must have, in nanoseconds since 1970.
    pub guard_ctime: Option<i64>,
    /// Exclusive CREATE: the verifier.
    pub verifier: u64,
    /// MKNOD of a device: major and minor number.
    pub device: [u32; 2],
}

/// READDIR or READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceListing {
    /// The cookie at which it begins.
    pub cookie: u64,
    /// READDIRPLUS: maximum bytes of names and cookies.
    pub dir_bytes_max: u32,
    /// Maximum bytes of the reply.
    pub bytes_max: u32,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceEntry {
    /// Its position in the reply.
    pub entry: u32,
    /// Its name, an index into [`NfsTrace::texts`].
    pub name: u32,
    /// The cookie with which to continue after it.
    pub cookie: u64,
    /// Its handle, for READDIRPLUS.
    pub file: Option<i64>,
}

/// An NFSv4 lock operation. Its offset is that of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsTraceLock {
    /// Number of the operation (RFC 8881): 12 LOCK, 13 LOCKT, 14 LOCKU.
    pub operation: u32,
    /// The type (`nfs_lock_type4`).
    pub kind: u32,
    /// Length; `u64::MAX` up to the end of the file.
    pub length_bytes: u64,
    /// The lock owner's number; owners of different clients have different numbers.
    pub owner: u32,
}

/// AUTH_SYS credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfsTraceCaller {
    /// The client's name for itself.
    pub machine_name: Vec<u8>,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Rows of a table by the number of their call.
#[derive(Clone, Debug)]
pub struct RowsByCall<R>(Vec<(i64, R)>);

impl<R> Default for RowsByCall<R> {
    fn default() -> RowsByCall<R> {
        RowsByCall(Vec::new())
    }
}

impl<R> RowsByCall<R> {
    /// Rows with the numbers of their calls, in any order.
    pub fn new(mut rows: Vec<(i64, R)>) -> RowsByCall<R> {
        rows.sort_by_key(|(record, _)| *record);
        RowsByCall(rows)
    }

    /// The rows of a call.
    pub fn of(&self, record: i64) -> impl Iterator<Item = &R> + Clone {
        let start = self.0.partition_point(|(known, _)| *known < record);
        let rows = self.0[start..].iter();
        rows.take_while(move |(known, _)| *known == record)
            .map(|(_, row)| row)
    }

    /// The first row of a call.
    pub fn first(&self, record: i64) -> Option<&R> {
        self.of(record).next()
    }
}

/// The NFS calls of a captured trace.
#[derive(Debug, Default)]
pub struct NfsTrace {
    /// The calls, by the time of their first byte.
    pub calls: Vec<NfsTraceCall>,
    /// Addresses of the clients.
    pub clients: Vec<String>,
    /// Credentials.
    pub callers: Vec<NfsTraceCaller>,
    /// Names, and targets of symbolic links.
    pub texts: Vec<Box<[u8]>>,
    /// Handles that MOUNT returned, each once, in order.
    pub roots: Vec<i64>,
    /// Names in calls.
    pub names: RowsByCall<NfsTraceName>,
    /// Attributes in replies, if they differ from the file's previous ones.
    pub attributes: RowsByCall<NfsTraceAttributes>,
    /// Lengths before calls, if they differ from what was known.
    pub sizes_before: RowsByCall<NfsTraceSizeBefore>,
    /// Attributes that calls set.
    pub sets: RowsByCall<NfsTraceSet>,
    /// WRITE: the number of its `stable_how`.
    pub stable: RowsByCall<u32>,
    /// ACCESS: the rights that it asks about.
    pub accesses: RowsByCall<u32>,
    /// Listings of directories.
    pub listings: RowsByCall<NfsTraceListing>,
    /// Their entries.
    pub entries: RowsByCall<NfsTraceEntry>,
    /// Operations on locks.
    pub locks: RowsByCall<NfsTraceLock>,
    /// Operations of other protocols, by protocol, and NFSv4 operations that a client makes for itself, by reason.
    pub others: BTreeMap<String, u64>,
    /// NFSv4 operations without a counterpart in NFSv3, by reason.
    pub without_counterpart: BTreeMap<String, u64>,
    /// Number of damaged parts of the tables, whose rows are missing.
    pub damaged_parts: usize,
}

/// Texts and the numbers that stand for them.
#[derive(Debug, Default)]
struct Texts {
    numbers: HashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        let bytes = byte_text::to_bytes(text);
        if let Some(number) = self.numbers.get(bytes.as_ref()) {
            return *number;
        }
        let (number, bytes) = (self.texts.len() as u32, Box::from(bytes));
        self.texts.push(Box::clone(&bytes));
        self.numbers.insert(bytes, number);
        number
    }
}

/// Reads tables of one snapshot of the trace.
struct TraceTables {
    snapshot: LakeSnapshot,
    texts: Texts,
    damaged_parts: usize,
}

impl TraceTables {
    fn each(
        &mut self,
        table: &'static Table,
        mut each: impl FnMut(&Batch, &mut Texts),
    ) -> Result<(), TraceError> {
        let mut reader = TableReader::of(&self.snapshot, table)?;
        while let Some(batch) = reader.next_batch()? {
            each(batch, &mut self.texts);
        }
        self.damaged_parts += reader.damaged().len();
        Ok(())
    }

    /// The rows of a table by call; `row` reads one row.
    fn by_call<R>(
        &mut self,
        table: &'static Table,
        row: impl Fn(&Batch, usize) -> Option<R>,
    ) -> Result<RowsByCall<R>, TraceError> {
        let mut rows = Vec::new();
        self.each(table, |batch, _| {
            let ids = batch.ints("record_id").iter().enumerate();
            rows.extend(ids.filter_map(|(at, id)| Some((*id, row(batch, at)?))));
        })?;
        Ok(RowsByCall::new(rows))
    }

    fn names(&mut self) -> Result<RowsByCall<NfsTraceName>, TraceError> {
        let mut rows = Vec::new();
        self.each(&tables::NAMES, |batch, texts| {
            let (names, targets) = (batch.texts("name"), batch.texts("target"));
            for (row, (name, target)) in names.zip(targets).enumerate() {
                let mut text =
                    |column, text: &str| (!batch.is_null(column, row)).then(|| texts.number(text));
                let named = NfsTraceName {
                    position: number(batch, "position", row).unwrap_or(0),
                    directory: int(batch, "file", row),
                    name: text("name", name),
                    leads_to: int(batch, "leads_to", row),
                    target: text("target", target),
                };
                rows.push((batch.ints("record_id")[row], named));
            }
        })?;
        Ok(RowsByCall::new(rows))
    }

    /// The rows of a table with texts; `read` appends the rows of a batch.
    fn rows<R>(
        &mut self,
        table: &'static Table,
        read: impl Fn(&Batch, &mut Texts, &mut Vec<(i64, R)>),
    ) -> Result<RowsByCall<R>, TraceError> {
        let mut rows = Vec::new();
        self.each(table, |batch, texts| read(batch, texts, &mut rows))?;
        Ok(RowsByCall::new(rows))
    }

    fn entries(&mut self) -> Result<RowsByCall<NfsTraceEntry>, TraceError> {
        let mut rows = Vec::new();
        self.each(&tables::ENTRIES, |batch, texts| {
            for (row, name) in batch.texts("name").enumerate() {
                let entry = NfsTraceEntry {
                    entry: number(batch, "entry", row).unwrap_or(0),
                    name: texts.number(name),
                    cookie: batch.ints("cookie")[row] as u64,
                    file: int(batch, "file", row),
                };
                rows.push((batch.ints("record_id")[row], entry));
            }
        })?;
        let mut rows = RowsByCall::new(rows);
        rows.0.sort_by_key(|(record, row)| (*record, row.entry));
        Ok(rows)
    }

    /// The client's index of each flow.
    fn flows(&mut self, clients: &mut Vec<String>) -> Result<HashMap<i64, u32>, TraceError> {
        let (mut flows, mut known) = (HashMap::new(), HashMap::new());
        self.each(&tables::FLOWS, |batch, _| {
            for (flow, source) in batch.ints("flow").iter().zip(batch.texts("source")) {
                let client = *known.entry(source.to_string()).or_insert_with(|| {
                    clients.push(source.to_string());
                    clients.len() as u32 - 1
                });
                flows.insert(*flow, client);
            }
        })?;
        Ok(flows)
    }

    fn callers(&mut self) -> Result<(Vec<NfsTraceCaller>, HashMap<i64, u32>), TraceError> {
        let (mut callers, mut numbers) = (Vec::new(), HashMap::new());
        self.each(&tables::CALLERS, |batch, _| {
            for (row, name) in batch.texts("machine_name").enumerate() {
                numbers.entry(batch.ints("caller")[row]).or_insert_with(|| {
                    callers.push(NfsTraceCaller {
                        machine_name: byte_text::to_bytes(name).into_owned(),
                        uid: number(batch, "uid", row).unwrap_or(0),
                        gid: number(batch, "gid", row).unwrap_or(0),
                        groups: Vec::new(),
                    });
                    callers.len() as u32 - 1
                });
            }
        })?;
        let mut groups: BTreeMap<(u32, i64), u32> = BTreeMap::new();
        self.each(&tables::CALLER_GROUPS, |batch, _| {
            for (row, caller) in batch.ints("caller").iter().enumerate() {
                if let (Some(caller), Some(gid)) = (numbers.get(caller), number(batch, "gid", row))
                {
                    groups.insert((*caller, batch.ints("position")[row]), gid);
                }
            }
        })?;
        for ((caller, _), gid) in groups {
            callers[caller as usize].groups.push(gid);
        }
        Ok((callers, numbers))
    }
}

/// The contents of a call's RPC header.
#[derive(Clone, Copy, Debug)]
struct RpcHeader {
    /// Whether the program is NFS, rather than that of a client's callbacks.
    is_nfs: bool,
    version: u32,
    procedure: u32,
    caller: Option<u32>,
}

fn too_many(root: &Path) -> TraceError {
    TraceError::TooManyCalls {
        path: root.display().to_string(),
        limit: NFS_CALLS_MAX,
    }
}

impl NfsTrace {
    /// Reads a captured trace.
    ///
    /// # Errors
    /// A table can't be read, or the trace has too many calls.
    pub fn read(root: &Path) -> Result<NfsTrace, TraceError> {
        let mut tables = TraceTables {
            snapshot: LakeSnapshot::open(root)?,
            texts: Texts::default(),
            damaged_parts: 0,
        };
        let mut clients = Vec::new();
        let flows = tables.flows(&mut clients)?;
        let (callers, caller_numbers) = tables.callers()?;
        let names = tables.names()?;
        let rpc = tables.by_call(&tables::RPC_CALLS, |batch, row| {
            let version = number(batch, "version", row)?;
            let caller = int(batch, "caller", row).and_then(|id| caller_numbers.get(&id).copied());
            let procedure = number(batch, "procedure", row)?;
            Some(RpcHeader {
                is_nfs: batch.ints("program")[row] == PROGRAM_NFS && matches!(version, 3 | 4),
                version,
                procedure,
                caller,
            })
        })?;
        let mut trace = NfsTrace {
            calls: Vec::new(),
            clients,
            callers,
            texts: Vec::new(),
            roots: Vec::new(),
            names,
            attributes: tables.by_call(&tables::ATTRIBUTES, attributes)?,
            sizes_before: tables.by_call(&tables::PRE_OP_ATTRIBUTES, |batch, row| {
                let file = int(batch, "file", row)?;
                let size_bytes = count(int(batch, "size_bytes", row))?;
                Some(NfsTraceSizeBefore { file, size_bytes })
            })?,
            sets: tables.by_call(&tables::SETATTRS, |batch, row| Some(set(batch, row)))?,
            stable: tables.by_call(&tables::TRANSFERS, |batch, row| {
                number(batch, "stable", row)
            })?,
            accesses: tables
                .by_call(&tables::ACCESSES, |batch, row| number(batch, "asked", row))?,
            listings: tables.by_call(&tables::LISTINGS, |batch, row| {
                Some(NfsTraceListing {
                    cookie: batch.ints("cookie")[row] as u64,
                    dir_bytes_max: number(batch, "dir_bytes_max", row).unwrap_or(0),
                    bytes_max: number(batch, "bytes_max", row)?,
                })
            })?,
            entries: tables.entries()?,
            locks: RowsByCall::default(),
            others: BTreeMap::new(),
            without_counterpart: BTreeMap::new(),
            damaged_parts: 0,
        };
        let compounds = trace.read_calls(&mut tables, &rpc, &flows, root)?;
        if !compounds.is_empty() {
            trace.read_compounds(&mut tables, compounds)?;
        }
        if trace.calls.len() > NFS_CALLS_MAX {
            return Err(too_many(root));
        }
        trace
            .calls
            .sort_by_key(|call| (call.start_ns, call.record.unsigned_abs()));
        trace.number_clients();
        (trace.texts, trace.damaged_parts) = (tables.texts.texts, tables.damaged_parts);
        Ok(trace)
    }

    /// Keeps only clients that made calls, because flows exist for all protocols and both directions.
    fn number_clients(&mut self) {
        let all = std::mem::take(&mut self.clients);
        let mut numbers = HashMap::new();
        for call in &mut self.calls {
            let clients = &mut self.clients;
            let old = call.client;
            call.client = *numbers.entry(old).or_insert_with(|| {
                clients.push(all[old as usize].clone());
                clients.len() as u32 - 1
            });
        }
    }

    fn read_calls(
        &mut self,
        tables: &mut TraceTables,
        rpc: &RowsByCall<RpcHeader>,
        flows: &HashMap<i64, u32>,
        root: &Path,
    ) -> Result<Vec<Compound>, TraceError> {
        let (mut roots, mut compounds) = (Vec::new(), Vec::new());
        let mut is_too_long = false;
        self.each_operation(tables, |trace, batch, row, protocol| {
            let record = batch.ints("record_id")[row];
            if protocol == "MOUNT" {
                let found = trace.names.of(record).filter_map(|name| name.leads_to);
                roots.extend(found.map(|file| (batch.ints("request_first")[row], file)));
            }
            let client = flows.get(&batch.ints("flow")[row]);
            let header = rpc.first(record);
            let (Some(header), Some(client)) = (header.filter(|header| header.is_nfs), client)
            else {
                let what = match (protocol, header) {
                    ("NFSv4", Some(header)) if !header.is_nfs => CALLBACKS,
                    ("NFSv3", _) => "NFSv3, without its RPC header or its client",
                    ("NFSv4", _) => "NFSv4, without its RPC header or its client",
                    (other, _) => other,
                };
                *trace.others.entry(what.to_string()).or_default() += 1;
                return;
            };
            is_too_long |= trace.calls.len() + compounds.len() >= NFS_CALLS_MAX;
            if is_too_long {
                return;
            }
            let call = call(batch, row, (header.procedure, header.caller, *client));
            match (header.version, header.procedure) {
                (3, _) => trace.calls.push(call),
                (_, PROCEDURE_COMPOUND) => compounds.push(Compound {
                    record,
                    start_ns: call.start_ns,
                    end_ns: call.end_ns,
                    client: call.client,
                    caller: call.caller,
                    status: call.status,
                }),
                _ => *trace.others.entry("NFSv4 NULL".to_string()).or_default() += 1,
            }
        })?;
        if is_too_long {
            return Err(too_many(root));
        }
        roots.sort_unstable();
        for (_, file) in roots {
            if !self.roots.contains(&file) {
                self.roots.push(file);
            }
        }
        Ok(compounds)
    }

    /// Adds the operations of compounds.
    fn read_compounds(
        &mut self,
        tables: &mut TraceTables,
        mut compounds: Vec<Compound>,
    ) -> Result<(), TraceError> {
        let steps = tables.rows(&tables::COMPOUNDS, compounds::steps)?;
        let attributes = tables.rows(&tables::COMPOUND_ATTRIBUTES, compounds::attributes)?;
        compounds.sort_by_key(|compound| (compound.start_ns, compound.record));
        let mut calls = CompoundCalls::default();
        for compound in &compounds {
            let of_reply: Vec<_> = attributes.of(compound.record).collect();
            calls.add(compound, steps.of(compound.record).collect(), &of_reply);
        }
        calls.into_trace(self);
        Ok(())
    }

    fn each_operation(
        &mut self,
        tables: &mut TraceTables,
        mut each: impl FnMut(&mut NfsTrace, &Batch, usize, &str),
    ) -> Result<(), TraceError> {
        tables.each(&tables::OPERATIONS, |batch, _| {
            for (row, protocol) in batch.texts("protocol").enumerate() {
                each(self, batch, row, protocol);
            }
        })
    }
}

fn number(batch: &Batch, column: &str, row: usize) -> Option<u32> {
    int(batch, column, row).and_then(|value| u32::try_from(value).ok())
}

fn call(
    batch: &Batch,
    row: usize,
    (procedure, caller, client): (u32, Option<u32>, u32),
) -> NfsTraceCall {
    let start_ns = batch.ints("request_first")[row];
    let latency = int(batch, "latency_ns", row);
    let span = int(batch, "reply_span_ns", row).unwrap_or(0);
    let end_ns = latency.map(|latency| start_ns.saturating_add(latency).saturating_add(span));
    NfsTraceCall {
        record: batch.ints("record_id")[row],
        start_ns,
        end_ns,
        client,
        caller,
        procedure,
        status: number(batch, "status", row),
        file: int(batch, "file", row),
        // Offsets use all 64 bits, so a negative number is a large offset.
        offset_bytes: int(batch, "offset_bytes", row).unwrap_or(0) as u64,
        asked_bytes: number(batch, "asked_bytes", row).unwrap_or(0),
        moved_bytes: count(int(batch, "moved_bytes", row)).unwrap_or(0),
    }
}

fn attributes(batch: &Batch, row: usize) -> Option<NfsTraceAttributes> {
    Some(NfsTraceAttributes {
        file: int(batch, "file", row)?,
        file_type: number(batch, "file_type", row),
        mode: number(batch, "mode", row),
        uid: number(batch, "uid", row),
        gid: number(batch, "gid", row),
        size_bytes: count(int(batch, "size_bytes", row)),
    })
}

/// A time to set, from the columns with its kind and its value.
fn set_time(batch: &Batch, row: usize, how: &str, column: &str) -> NfsTraceTime {
    match (int(batch, how, row), int(batch, column, row)) {
        (Some(1), _) => NfsTraceTime::Server,
        (Some(2), Some(at)) => NfsTraceTime::At(at),
        _ => NfsTraceTime::Unchanged,
    }
}

fn set(batch: &Batch, row: usize) -> NfsTraceSet {
    let number = |column| number(batch, column, row);
    NfsTraceSet {
        how: number("how"),
        kind: number("kind"),
        mode: number("mode"),
        uid: number("uid"),
        gid: number("gid"),
        size_bytes: int(batch, "size_bytes", row).map(|size| size as u64),
        atime: set_time(batch, row, "atime_how", "atime"),
        mtime: set_time(batch, row, "mtime_how", "mtime"),
        guard_ctime: int(batch, "guard_ctime", row),
        verifier: int(batch, "verifier", row).unwrap_or(0) as u64,
        device: ["device_major", "device_minor"].map(|column| number(column).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_descriptions_have_no_mistakes() {
        for table in tables::ALL {
            assert_eq!(table.mistakes(), Vec::<String>::new());
        }
    }

    /// Rows are found by their call's number, in the order in which they were read.
    #[test]
    fn rows_are_found_by_call() {
        let rows = RowsByCall::new(vec![(7, 'b'), (3, 'a'), (7, 'c'), (9, 'd')]);
        let of = |record| rows.of(record).collect::<String>();
        assert_eq!(
            (of(7), of(3), of(8), of(9)),
            ("bc".into(), "a".into(), String::new(), "d".into())
        );
        assert_eq!(rows.first(7), Some(&'b'));
    }
}
