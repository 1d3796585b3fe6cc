//! The table format of a lake: a Delta Lake log for each table, through which Spark, DuckDB, Sail and others find its
//! parts and their statistics and see each version atomically. docs/table-formats.md explains why this format was
//! chosen.
//!
//! ```text
//! operations/
//!   _delta_log/00000000000000000000.json    schema, and the first parts
//!   _delta_log/00000000000000000001.json    parts added, parts removed
//!   _delta_log/….checkpoint.parquet         occasionally: the combined state of all versions so far
//!   _delta_log/_brunt_sums.json             checksums of these files
//!   date=2026-11-25/…/part-….parquet        the parts
//! ```
//!
//! The format: <https://github.com/delta-io/delta/blob/master/PROTOCOL.md>, reader version 1 and writer version 2. Time
//! columns are declared by their twins ([`crate::integer_times`]), because the format has no nanoseconds.
//!
//! The rule: a version's file is linked to its name only once it is complete, and only if no other process has
//! written that version. A log that uses unknown features, or whose files were changed, is not continued.

mod check;
mod checkpoint;
mod log;
mod repair;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parquet::data_type::ByteArray;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;
use serde_json::{Map, Value, json};
use twox_hash::XxHash3_64;

use crate::error::LakeError;
use crate::integer_times::plain_name;
use crate::table::{ColumnKind, Table};
use log::{Add, Log, names_in};

pub use check::check_log;
pub use repair::{LogRepair, repair_log};

/// The log's folder within a table's folder.
const LOG_FOLDER: &str = "_delta_log";
/// Prefix of the writer's name in versions written by this program.
const ENGINE_PREFIX: &str = "brunt/";
/// Protocol versions that readers and writers of a log must support.
const READER_VERSION: u32 = 1;
const WRITER_VERSION: u32 = 2;
/// Versions between checkpoints, as in Delta's own writers.
const CHECKPOINT_EVERY: u64 = 10;

/// What is wrong with a file that differs from its checksum.
const CHANGED: &str = "was changed or damaged after it was written (checksum)";

/// Files of a log that are replaced with each checkpoint or version: the hint and the checksums.
pub const REPLACED_FILES: [&str; 2] = [checkpoint::HINT, sums::NAME];

/// Why a log was not continued.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// A part cannot be read.
    #[error(transparent)]
    Part(#[from] LakeError),
    /// A part lacks the twin of a time column, or belongs to another table.
    #[error("{}: has no column {column}; only parts compacted by this version of brunt can be \
        published", path.display())]
    Column {
        /// The part.
        path: PathBuf,
        /// The missing column.
        column: String,
    },
    /// A part is outside the table's folder.
    #[error("{}: is not in the table's folder", path.display())]
    Elsewhere {
        /// The part.
        path: PathBuf,
    },
    /// A system call on a file or folder failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of the log is not a Delta Lake action.
    #[error("{}: line {line} is not a Delta Lake action: {source}", path.display())]
    Line {
        /// The version's file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A file of the log is missing, was changed, or doesn't match the catalog.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another program continued the log in a way that this program doesn't support, or removed its beginning.
    #[error("{}: another program has changed this log: {what}; move the folder away to start a \
        new one", path.display())]
    Foreign {
        /// The log, or a file in it.
        path: PathBuf,
        /// What was found.
        what: String,
    },
}

/// A version added to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaVersion {
    /// Its number, from 0.
    pub version: u64,
    /// Number of parts added.
    pub added: usize,
    /// Number of parts removed.
    pub removed: usize,
    /// Whether the rows are unchanged and only stored differently.
    pub is_rearranged: bool,
}

/// The files of a log on disk.
#[derive(Debug)]
pub struct DeltaLogFiles {
    /// Versions, one file each, oldest first.
    pub versions: Vec<PathBuf>,
    /// Checkpoints, oldest first, then [`REPLACED_FILES`].
    pub checkpoints: Vec<PathBuf>,
    /// Parts in the newest version, relative to the table's folder.
    pub parts: BTreeSet<String>,
}

/// Publishes the given parts as the contents of a table in `root`, as of the given catalog version: adds new parts to
/// the table's log and removes missing ones, in a single version. `None` if the log is up to date.
///
/// # Errors
/// A part or the log cannot be read, the log was changed, or the version cannot be written.
pub fn publish(
    root: &Path,
    table: &'static Table,
    catalog: u64,
    parts: &[PathBuf],
) -> Result<Option<DeltaVersion>, DeltaError> {
    let folder = root.join(table.name);
    let log_folder = folder.join(LOG_FOLDER);
    let wanted = wanted(&folder, parts)?;
    loop {
        let log = Log::read(&log_folder)?;
        let Some((version, actions)) = next_version(table, &folder, &log, catalog, &wanted)? else {
            if log.next > 0 {
                sums::renew(&log_folder)?;
            }
            return Ok(None);
        };
        if commit(&log_folder, version.version, &actions)? {
            if version.version - log.checkpoint.unwrap_or(0) >= CHECKPOINT_EVERY {
                checkpoint::write(&Log::read(&log_folder)?, &log_folder, now_ms())?;
            }
            sums::renew(&log_folder)?;
            return Ok(Some(version));
        }
    }
}

/// The given parts, keyed by their paths in the log of the table in this folder.
fn wanted<'a>(
    folder: &Path,
    parts: &'a [PathBuf],
) -> Result<BTreeMap<String, &'a PathBuf>, DeltaError> {
    let mut wanted = BTreeMap::new();
    for part in parts {
        let below = part.strip_prefix(folder).ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| DeltaError::Elsewhere { path: part.clone() })?;
        wanted.insert(encoded(below), part);
    }
    Ok(wanted)
}

/// The version that changes a log's contents to these parts, with its actions; `None` if it has these parts already.
fn next_version(
    table: &'static Table,
    folder: &Path,
    log: &Log,
    catalog: u64,
    wanted: &BTreeMap<String, &PathBuf>,
) -> Result<Option<(DeltaVersion, Vec<Value>)>, DeltaError> {
    let gone: Vec<_> = log
        .parts
        .iter()
        .filter(|(path, _)| !wanted.contains_key(*path))
        .collect();
    let new: Vec<_> = wanted
        .iter()
        .filter(|(path, _)| !log.parts.contains_key(*path))
        .collect();
    let schema = schema(table);
    let known = log.meta_data.as_ref();
    let is_known = log.next > 0 && known.is_some_and(|known| known.schema_string == schema);
    if gone.is_empty() && new.is_empty() && (is_known || log.next == 0) {
        return Ok(None);
    }
    let new: Vec<(&String, Add)> = new
        .into_iter()
        .map(|(path, part)| Ok((path, add(table, part)?)))
        .collect::<Result<_, DeltaError>>()?;
    // A compaction changes no rows: if as many rows are added as removed, they are assumed to be the same.
    let rows = |adds: &mut dyn Iterator<Item = &Add>| adds.map(Add::rows).sum::<Option<u64>>();
    let rows_gone = rows(&mut gone.iter().map(|(_, add)| *add));
    let is_rearranged = !gone.is_empty()
        && rows_gone.is_some()
        && rows_gone == rows(&mut new.iter().map(|(_, add)| add));
    let now_ms = now_ms();
    let mut actions = vec![commit_info(is_rearranged, catalog, now_ms)];
    if log.next == 0 {
        actions.push(protocol_action());
    }
    if !is_known {
        let id = known.map_or_else(|| new_id(folder), |known| known.id.clone());
        actions.push(json!({ "metaData": meta_data(table, &id, &schema, now_ms) }));
    }
    let data_change = !is_rearranged;
    actions.extend(
        gone.iter()
            .map(|(path, add)| remove_action(path, add.size, data_change, now_ms)),
    );
    actions.extend(
        new.iter()
            .map(|(path, add)| add_action(path, add, data_change)),
    );
    let version = DeltaVersion {
        version: log.next,
        added: new.len(),
        removed: gone.len(),
        is_rearranged,
    };
    Ok(Some((version, actions)))
}

/// The files of a table's log in `root`; `None` if it has none.
///
/// # Errors
/// The log cannot be read, or another program has changed it in an unsupported way.
pub fn log_files(root: &Path, table: &str) -> Result<Option<DeltaLogFiles>, DeltaError> {
    let folder = root.join(table);
    let log_folder = folder.join(LOG_FOLDER);
    let log = Log::read(&log_folder)?;
    if log.next == 0 {
        return Ok(None);
    }
    let versions = (0..log.next)
        .map(|version| version_path(&log_folder, version))
        .collect();
    let mut checkpoints = Vec::new();
    for name in names_in(&log_folder)? {
        checkpoints.extend(checkpoint::version_of(&name).map(|_| log_folder.join(name)));
    }
    checkpoints.sort();
    let replaced = REPLACED_FILES.map(|name| log_folder.join(name));
    checkpoints.extend(replaced.into_iter().filter(|file| file.exists()));
    Ok(Some(DeltaLogFiles {
        versions,
        checkpoints,
        parts: log.parts.into_keys().collect(),
    }))
}

/// Whether any table in `root` has a log, and therefore possibly readers that hold no lock.
pub fn has_log(root: &Path) -> bool {
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    folders
        .into_iter()
        .any(|folder| folder.path().join(LOG_FOLDER).is_dir())
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

fn protocol_action() -> Value {
    json!({ "protocol": { "minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION } })
}

fn commit_info(is_rearranged: bool, catalog: u64, now_ms: u64) -> Value {
    let (operation, parameters) = if is_rearranged {
        ("OPTIMIZE", json!({}))
    } else {
        ("WRITE", json!({ "mode": "Append" }))
    };
    json!({ "commitInfo": {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": parameters,
        "engineInfo": concat!("brunt/", env!("CARGO_PKG_VERSION")),
        "catalogVersion": catalog,
    }})
}

fn version_path(log: &Path, version: u64) -> PathBuf {
    log.join(format!("{version:020}.json"))
}

/// Durably commits a version; `false` if that version exists already.
fn commit(log: &Path, version: u64, actions: &[Value]) -> Result<bool, DeltaError> {
    std::fs::create_dir_all(log).map_err(io_error(log))?;
    let path = version_path(log, version);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let open = log.join(format!(
        ".{version:020}.{}-{number}.open",
        std::process::id()
    ));
    let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
    let write = || {
        let mut file = File::create(&open)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        // A link fails if the file exists; a rename would replace it.
        let linked = match std::fs::hard_link(&open, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            linked => linked.map(|()| true)?,
        };
        std::fs::remove_file(&open)?;
        File::open(log)?.sync_all()?;
        Ok(linked)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&open);
        DeltaError::Io { path, source }
    })
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DeltaError {
    let path = path.to_path_buf();
    |source| DeltaError::Io { path, source }
}

/// A table's schema as stored in the log: a JSON string.
fn schema(table: &Table) -> String {
    let fields = table.columns.iter().map(|column| {
        let kind = match column.kind {
            ColumnKind::Int | ColumnKind::Time => "long",
            ColumnKind::Float => "double",
            ColumnKind::Bool => "boolean",
            ColumnKind::Text => "string",
            ColumnKind::Bytes => "binary",
        };
        json!({
            "name": plain_name(column),
            "type": kind,
            "nullable": column.nullable,
            "metadata": { "comment": column.doc },
        })
    });
    json!({ "type": "struct", "fields": fields.collect::<Vec<_>>() }).to_string()
}

fn meta_data(table: &Table, id: &str, schema: &str, now_ms: u64) -> Value {
    json!({
        "id": id,
        "name": table.name,
        "description": table.doc,
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": now_ms,
    })
}

/// A UUID-like table id, which only has to differ from those of other tables.
fn new_id(folder: &Path) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let half = |seed: u64| {
        let what = format!("{} {} {now}", folder.display(), std::process::id());
        XxHash3_64::oneshot_with_seed(seed, what.as_bytes())
    };
    let id = format!("{:016x}{:016x}", half(1), half(2));
    [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
}

fn remove_action(path: &str, size: u64, data_change: bool, now_ms: u64) -> Value {
    json!({ "remove": {
        "path": path,
        "deletionTimestamp": now_ms,
        "dataChange": data_change,
        "extendedFileMetadata": true,
        "partitionValues": {},
        "size": size,
    }})
}

fn add_action(path: &str, add: &Add, data_change: bool) -> Value {
    json!({ "add": {
        "path": path,
        "partitionValues": {},
        "size": add.size,
        "modificationTime": add.modification_time,
        "dataChange": data_change,
        "stats": add.stats,
    }})
}

/// The action that adds a part, with the statistics that let engines skip it.
fn add(table: &'static Table, part: &Path) -> Result<Add, DeltaError> {
    let file = File::open(part).map_err(io_error(part))?;
    let about = file.metadata().map_err(io_error(part))?;
    let changed = about
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .map_err(|error| {
            DeltaError::Part(LakeError::Damaged {
                path: part.to_path_buf(),
                what: error.to_string(),
            })
        })?;
    Ok(Add {
        size: about.len(),
        modification_time: changed.map_or(0, |since| since.as_millis() as u64),
        stats: Some(statistics(table, part, &metadata)?.to_string()),
    })
}

fn statistics(
    table: &'static Table,
    part: &Path,
    metadata: &ParquetMetaData,
) -> Result<Value, DeltaError> {
    let columns = metadata.file_metadata().schema_descr();
    let (mut mins, mut maxes, mut nulls) = (Map::new(), Map::new(), Map::new());
    for column in table.columns {
        let name = plain_name(column);
        let place = columns
            .columns()
            .iter()
            .position(|found| found.name() == name);
        let Some(place) = place else {
            if column.nullable && column.kind != ColumnKind::Time {
                continue;
            }
            return Err(DeltaError::Column {
                path: part.to_path_buf(),
                column: name,
            });
        };
        let groups = metadata.row_groups().iter().map(|group| {
            let rows = u64::try_from(group.num_rows()).ok()?;
            group
                .column(place)
                .statistics()
                .map(|statistics| (statistics, rows))
        });
        let Some(groups) = groups.collect::<Option<Vec<_>>>() else {
            continue;
        };
        let counts = groups
            .iter()
            .map(|(group, _)| group.null_count_opt())
            .sum::<Option<u64>>();
        if let Some(count) = counts {
            nulls.insert(name.clone(), count.into());
        }
        if let Some((min, max)) = extremes(&groups) {
            mins.insert(name.clone(), min);
            maxes.insert(name, max);
        }
    }
    let rows = metadata.file_metadata().num_rows();
    Ok(json!({ "numRecords": rows, "minValues": mins, "maxValues": maxes, "nullCount": nulls }))
}

/// Minimum and maximum over all groups; `None` if there are no values or a bound is unknown. Each group's statistics
/// come with its number of rows.
fn extremes(groups: &[(&Statistics, u64)]) -> Option<(Value, Value)> {
    // A group with only nulls has no bounds and is ignored.
    let bounds = |group: &&(&Statistics, u64)| group.0.null_count_opt() != Some(group.1);
    let bounds = groups
        .iter()
        .filter(bounds)
        .map(|(statistics, _)| bounds_of(statistics));
    let bounds = bounds.collect::<Option<Vec<_>>>()?.into_iter();
    let (min, max) = bounds.reduce(|one, other| (one.0.least(other.0), one.1.greatest(other.1)))?;
    Some((min.json()?, max.json()?))
}

/// A bound of a column, typed like the statistics of all groups.
#[derive(PartialEq, PartialOrd)]
enum Bound {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

impl Bound {
    fn least(self, other: Bound) -> Bound {
        if other < self { other } else { self }
    }

    fn greatest(self, other: Bound) -> Bound {
        if other > self { other } else { self }
    }

    /// The bound as JSON; the log has none for booleans and NaN.
    fn json(self) -> Option<Value> {
        match self {
            Bound::Int(value) => Some(value.into()),
            Bound::Float(value) => Some(Value::from(value)).filter(|value| !value.is_null()),
            Bound::Bool(_) => None,
            Bound::Text(text) => Some(text.into()),
        }
    }
}

fn bounds_of(statistics: &Statistics) -> Option<(Bound, Bound)> {
    let text = |text: &ByteArray| {
        text.as_utf8()
            .ok()
            .map(|text| Bound::Text(text.to_string()))
    };
    match statistics {
        Statistics::Int64(values) => Some((
            Bound::Int(*values.min_opt()?),
            Bound::Int(*values.max_opt()?),
        )),
        Statistics::Double(values) => Some((
            Bound::Float(*values.min_opt()?),
            Bound::Float(*values.max_opt()?),
        )),
        Statistics::Boolean(values) => Some((
            Bound::Bool(*values.min_opt()?),
            Bound::Bool(*values.max_opt()?),
        )),
        Statistics::ByteArray(values) => Some((text(values.min_opt()?)?, text(values.max_opt()?)?)),
        _ => None,
    }
}

/// A path as the log stores it: a relative URI (RFC 3986).
fn encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b'=' => {
                encoded.push(byte.into());
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
