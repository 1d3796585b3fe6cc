//! The table format of a lake: a Delta Lake log for each table, through which Spark,
//! DuckDB, Sail and others find its parts with their statistics, and see each
//! version atomically. docs/table-formats.md explains the choice of this format.
//!
//! ```text
//! operations/
//!   _delta_log/00000000000000000000.json    schema, and the first parts
//!   _delta_log/00000000000000000001.json    parts added, parts removed
//!   _delta_log/….checkpoint.parquet         sometimes: the sum of all versions up to this one
//!   date=2026-11-25/…/part-….parquet        the parts
//! ```
//!
//! The format: <https://github.com/delta-io/delta/blob/master/PROTOCOL.md>, reader version 1 and writer version 2. Time
//! columns are declared by their twins ([`crate::integer_times`]), because the format has no nanoseconds.
//!
//! The rule: a version's file is linked under its name only when it is complete, and only if no other process has
//! written that version. A log with features that this module doesn't know is not continued.

mod checkpoint;
mod log;

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

/// The log's folder in a table's folder.
const LOG_FOLDER: &str = "_delta_log";
/// How the writer's name begins in versions that this program wrote.
const ENGINE_PREFIX: &str = "brunt/";
/// What readers and writers of a log must support.
const READER_VERSION: u32 = 1;
const WRITER_VERSION: u32 = 2;
/// Versions between checkpoints, as in Delta's own writers.
const CHECKPOINT_EVERY: u64 = 10;

/// Why a log was not continued.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// A part cannot be read.
    #[error(transparent)]
    Part(#[from] LakeError),
    /// A part without twins of its times, or of another table.
    #[error("{}: has no column {column}: only compacted parts of this program's build can be published", path.display())]
    Column {
        /// The part.
        path: PathBuf,
        /// The missing column.
        column: String,
    },
    /// A part outside the table's folder.
    #[error("{}: is not below the table's folder", path.display())]
    Elsewhere {
        /// The part.
        path: PathBuf,
    },
    /// The operating system refused.
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
    /// Another program continued the log in a way that this one doesn't support, or removed its beginning.
    #[error("{}: another program has changed this log: {what}; move the folder away to begin a new one", path.display())]
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
    /// Whether the rows are the same as before, only stored differently.
    pub is_rearranged: bool,
}

/// The files of a log on disk.
#[derive(Debug)]
pub struct DeltaLogFiles {
    /// Versions, one file each, oldest first.
    pub versions: Vec<PathBuf>,
    /// Checkpoints, oldest first, then the file that points to the newest one.
    pub checkpoints: Vec<PathBuf>,
    /// Parts in the newest version, relative to the table's folder.
    pub parts: BTreeSet<String>,
}

/// Publishes these as the parts of a table in `root`: adds new parts to its log and removes missing ones, in one
/// version. `None` if the log is up to date.
///
/// # Errors
/// A part or the log cannot be read, or the version cannot be written.
pub fn publish(
    root: &Path,
    table: &'static Table,
    parts: &[PathBuf],
) -> Result<Option<DeltaVersion>, DeltaError> {
    let folder = root.join(table.name);
    let mut wanted = BTreeMap::new();
    for part in parts {
        let below = part.strip_prefix(&folder).ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| DeltaError::Elsewhere { path: part.clone() })?;
        wanted.insert(encoded(below), part);
    }
    loop {
        let log = Log::read(&folder)?;
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
        let is_known = log
            .meta_data
            .as_ref()
            .is_some_and(|known| known.schema_string == schema);
        if gone.is_empty() && new.is_empty() && (is_known || log.next == 0) {
            return Ok(None);
        }
        let new: Vec<(&String, Add)> = new
            .into_iter()
            .map(|(path, part)| Ok((path, add(table, part)?)))
            .collect::<Result<_, DeltaError>>()?;
        // A compaction changes no rows: if as many are added as removed, they are the same rows.
        let rows = |adds: &mut dyn Iterator<Item = &Add>| adds.map(Add::rows).sum::<Option<u64>>();
        let rows_gone = rows(&mut gone.iter().map(|(_, add)| *add));
        let is_rearranged = !gone.is_empty()
            && rows_gone.is_some()
            && rows_gone == rows(&mut new.iter().map(|(_, add)| add));
        let now_ms = now_ms();
        let mut actions = vec![commit_info(is_rearranged, now_ms)];
        if log.next == 0 {
            let protocol =
                json!({ "minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION });
            actions.push(json!({ "protocol": protocol }));
        }
        if !is_known {
            let id = log
                .meta_data
                .as_ref()
                .map_or_else(|| new_id(&folder), |known| known.id.clone());
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
        let log_folder = folder.join(LOG_FOLDER);
        if commit(&log_folder, version.version, &actions)? {
            if version.version - log.checkpoint.unwrap_or(0) >= CHECKPOINT_EVERY {
                checkpoint::write(&Log::read(&folder)?, &log_folder, now_ms)?;
            }
            return Ok(Some(version));
        }
    }
}

/// The files of a table's log in `root`; `None` if it has none.
///
/// # Errors
/// The log cannot be read, or another program has changed it in a way that this one doesn't support.
pub fn log_files(root: &Path, table: &str) -> Result<Option<DeltaLogFiles>, DeltaError> {
    let folder = root.join(table);
    let log = Log::read(&folder)?;
    if log.next == 0 {
        return Ok(None);
    }
    let log_folder = folder.join(LOG_FOLDER);
    let versions = (0..log.next)
        .map(|version| version_path(&log_folder, version))
        .collect();
    let mut checkpoints = Vec::new();
    for name in names_in(&log_folder)? {
        checkpoints.extend(checkpoint::version_of(&name).map(|_| log_folder.join(name)));
    }
    checkpoints.sort();
    checkpoints.extend(Some(log_folder.join(checkpoint::HINT)).filter(|hint| hint.exists()));
    Ok(Some(DeltaLogFiles {
        versions,
        checkpoints,
        parts: log.parts.into_keys().collect(),
    }))
}

/// Whether any table in `root` has a log: then there may be readers that hold no lock.
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

fn commit_info(is_rearranged: bool, now_ms: u64) -> Value {
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
    }})
}

fn version_path(log: &Path, version: u64) -> PathBuf {
    log.join(format!("{version:020}.json"))
}

/// Commits a version, durably; `false` if that version exists already.
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

/// A table's schema as the log stores it: a JSON string.
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

/// An id in the form of a UUID; it only has to differ from other tables' ids.
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

/// A part with the statistics that let engines skip it.
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

/// Minimum and maximum over all groups; `None` if there are no values, or if they are unknown. Each group's statistics
/// come with its number of rows.
fn extremes(groups: &[(&Statistics, u64)]) -> Option<(Value, Value)> {
    // A group with only nulls has no bounds, and is ignored.
    let bounds = |group: &&(&Statistics, u64)| group.0.null_count_opt() != Some(group.1);
    let bounds = groups
        .iter()
        .filter(bounds)
        .map(|(statistics, _)| bounds_of(statistics));
    let bounds = bounds.collect::<Option<Vec<_>>>()?.into_iter();
    let (min, max) = bounds.reduce(|one, other| (one.0.least(other.0), one.1.greatest(other.1)))?;
    Some((min.json()?, max.json()?))
}

/// A bound of a column; all groups have the same type.
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

    /// The log has no bounds for booleans or for NaN.
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
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::table::Column;
    use crate::writer::{TableWriter, WriterOptions};

    static TABLE: Table = Table {
        name: "numbers",
        doc: "Numbers.",
        columns: &[
            Column::int("number", "A number."),
            Column::text("name", "Its name.").nullable(),
            Column::float("half", "Half of it.").nullable(),
            Column::bool("odd", "Whether it is odd."),
        ],
    };

    /// A lake whose parts have a hundred numbers each.
    struct Lake(TempDir);

    impl Lake {
        fn of_parts(count: i64) -> (Lake, Vec<PathBuf>) {
            let lake = Lake(TempDir::new().unwrap());
            let mut writer =
                TableWriter::create(lake.root(), &TABLE, WriterOptions::default()).unwrap();
            for part in 0..count {
                for number in part * 100..part * 100 + 100 {
                    let row = writer.rows().row().int(number);
                    let row = row.text_or_null((number % 2 == 0).then_some("even"));
                    row.float_or_null((part > 0).then_some(number as f64 / 2.0))
                        .bool(number % 2 == 1)
                        .end();
                }
                writer.rotate().unwrap();
            }
            let parts = crate::reader::parts(lake.root(), &TABLE).unwrap();
            (lake, parts.into_iter().map(|part| part.path).collect())
        }

        fn root(&self) -> &Path {
            self.0.path()
        }

        /// The actions of a version, with their names.
        fn actions(&self, version: u64) -> Vec<(String, Value)> {
            let path = version_path(&self.root().join("numbers").join(LOG_FOLDER), version);
            let lines = std::fs::read_to_string(path).unwrap();
            let action = |line: &str| {
                let Value::Object(action) = serde_json::from_str(line).unwrap() else {
                    panic!("{line}")
                };
                action.into_iter().next().unwrap()
            };
            lines.lines().map(action).collect()
        }

        fn paths(&self, version: u64, kind: &str) -> Vec<String> {
            let actions = self
                .actions(version)
                .into_iter()
                .filter(|(name, _)| name == kind);
            actions
                .map(|(_, action)| action["path"].as_str().unwrap().to_string())
                .collect()
        }
    }

    /// New parts are added, missing ones are removed, and without changes there is no new version.
    #[test]
    fn versions_follow_the_parts() {
        let (lake, parts) = Lake::of_parts(3);
        let version = |parts: &[PathBuf]| publish(lake.root(), &TABLE, parts).unwrap();
        let made = |version, added, removed, is_rearranged| {
            Some(DeltaVersion {
                version,
                added,
                removed,
                is_rearranged,
            })
        };
        assert_eq!(version(&parts[..2]), made(0, 2, 0, false));
        assert_eq!(version(&parts[..2]), None);
        // As many rows are added as removed: as far as the log can tell, they are the same.
        assert_eq!(version(&parts[1..]), made(1, 1, 1, true));
        assert_eq!(version(&[]), made(2, 0, 2, false));
        let changes = |version| {
            let actions = lake.actions(version).into_iter();
            actions
                .filter_map(|(_, action)| action["dataChange"].as_bool())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            [changes(0), changes(1), changes(2)],
            [vec![true; 2], vec![false; 2], vec![true; 2]]
        );
        let names: Vec<_> = lake.actions(0).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["commitInfo", "protocol", "metaData", "add", "add"]);
        assert_eq!(lake.paths(1, "add"), ["part-000002.parquet"]);
        assert_eq!(lake.paths(1, "remove"), ["part-000000.parquet"]);
        let left: Vec<_> = std::fs::read_dir(lake.root().join("numbers").join(LOG_FOLDER))
            .unwrap()
            .collect();
        assert_eq!(left.len(), 3, "nothing is left but the versions: {left:?}");
    }

    /// Every ten versions there is a checkpoint, and the pointer names the newest one.
    #[test]
    fn checkpoints() {
        let (lake, parts) = Lake::of_parts(2);
        for version in 0..25 {
            publish(lake.root(), &TABLE, &parts[..1 + version % 2]).unwrap();
        }
        let files = log_files(lake.root(), "numbers").unwrap().unwrap();
        let names: Vec<_> = files
            .checkpoints
            .iter()
            .map(|path| path.file_name().unwrap())
            .collect();
        let name = |version| format!("{version:020}.checkpoint.parquet");
        assert_eq!(names, [&*name(10), &*name(20), "_last_checkpoint"]);
        assert_eq!((files.versions.len(), files.parts.len()), (25, 1));
        let hint: Value =
            serde_json::from_slice(&std::fs::read(&files.checkpoints[2]).unwrap()).unwrap();
        assert_eq!(
            (&hint["version"], &hint["numOfAddFiles"]),
            (&json!(20), &json!(1))
        );
    }

    /// Bounds and counts match the rows; a column with only nulls has no bounds.
    #[test]
    fn statistics_of_parts() {
        let (lake, parts) = Lake::of_parts(2);
        publish(lake.root(), &TABLE, &parts).unwrap();
        let stats: Vec<Value> = lake
            .actions(0)
            .iter()
            .filter(|(name, _)| name == "add")
            .map(|(_, add)| serde_json::from_str(add["stats"].as_str().unwrap()).unwrap())
            .collect();
        let nulls = |half: u64| json!({ "number": 0, "name": 50, "half": half, "odd": 0 });
        assert_eq!(
            stats[0],
            json!({ "numRecords": 100, "nullCount": nulls(100),
                "minValues": { "number": 0, "name": "even" }, "maxValues": { "number": 99, "name": "even" } })
        );
        assert_eq!(
            stats[1],
            json!({ "numRecords": 100, "nullCount": nulls(0),
                "minValues": { "number": 100, "name": "even", "half": 50.0 },
                "maxValues": { "number": 199, "name": "even", "half": 99.5 } })
        );
    }

    /// Processes that publish at the same time get different versions, which together have every part once.
    #[test]
    fn versions_are_exclusive() {
        let (lake, parts) = Lake::of_parts(8);
        std::thread::scope(|scope| {
            for count in 1..=parts.len() {
                let (lake, parts) = (&lake, &parts[..count]);
                scope.spawn(move || publish(lake.root(), &TABLE, parts).unwrap());
            }
        });
        let log = Log::read(&lake.root().join("numbers")).unwrap();
        assert!(log.next > 0);
        publish(lake.root(), &TABLE, &parts).unwrap();
        assert_eq!(
            Log::read(&lake.root().join("numbers")).unwrap().parts.len(),
            8
        );
    }

    /// An existing version is not replaced.
    #[test]
    fn no_version_is_replaced() {
        let folder = TempDir::new().unwrap();
        assert!(
            commit(
                folder.path(),
                0,
                &[json!({ "commitInfo": { "operation": "first" } })]
            )
            .unwrap()
        );
        assert!(
            !commit(
                folder.path(),
                0,
                &[json!({ "commitInfo": { "operation": "second" } })]
            )
            .unwrap()
        );
        let kept = std::fs::read_to_string(version_path(folder.path(), 0)).unwrap();
        assert!(kept.contains("first"), "{kept}");
    }

    /// Changes by another program and parts without twins are refused, and nothing is written.
    #[test]
    fn foreign_changes_and_parts_without_twins_are_refused() {
        const TIMES: Table = Table {
            name: "numbers",
            doc: "Times.",
            columns: &[Column::time("at", "When.")],
        };
        let (lake, parts) = Lake::of_parts(2);
        let refused = |table, parts: &[PathBuf]| publish(lake.root(), table, parts).unwrap_err();
        let column = refused(&TIMES, &parts);
        assert!(
            matches!(&column, DeltaError::Column { column, .. } if column == "at_ns"),
            "{column}"
        );
        assert!(matches!(
            refused(&TABLE, &["/elsewhere".into()]),
            DeltaError::Elsewhere { .. }
        ));
        let log = lake.root().join("numbers").join(LOG_FOLDER);
        assert!(!log.exists());
        publish(lake.root(), &TABLE, &parts[..1]).unwrap();
        let newer = json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7 } });
        assert!(commit(&log, 1, &[newer]).unwrap());
        assert!(matches!(
            refused(&TABLE, &parts),
            DeltaError::Foreign { .. }
        ));
        // Another engine's changes are not undone.
        let theirs = [
            json!({ "commitInfo": { "operation": "WRITE", "engineInfo": "delta-rs:1.1" } }),
            json!({ "add": { "path": "x.parquet", "size": 1, "partitionValues": {}, "dataChange": true } }),
        ];
        for lines in [&theirs[..], &theirs[1..]] {
            std::fs::remove_file(version_path(&log, 1)).unwrap();
            assert!(commit(&log, 1, lines).unwrap());
            assert!(matches!(
                refused(&TABLE, &parts),
                DeltaError::Foreign { .. }
            ));
        }
        std::fs::write(version_path(&log, 1), "{\n").unwrap();
        assert!(matches!(
            refused(&TABLE, &parts),
            DeltaError::Line { line: 1, .. }
        ));
        std::fs::remove_file(version_path(&log, 0)).unwrap();
        assert!(matches!(
            refused(&TABLE, &parts),
            DeltaError::Foreign { .. }
        ));
        assert!(!version_path(&log, 2).exists());
    }

    #[test]
    fn paths_are_uris() {
        assert_eq!(
            encoded("date=2026-11-25/server=fe80::1 x/p%.parquet"),
            "date=2026-11-25/server=fe80%3A%3A1%20x/p%25.parquet"
        );
    }
}
