//! The table format of a lake: a Delta Lake log for each table, by which Spark, DuckDB, Sail and others find its parts with
//! their statistics, and see each version of them as a whole. docs/table-formats.md says why this format.
//!
//! ```text
//! operations/
//!   _delta_log/00000000000000000000.json    what the table is, and the first parts
//!   _delta_log/00000000000000000001.json    parts that came, parts that went
//!   date=2026-11-25/…/part-….parquet        the parts, as they are
//! ```
//!
//! The format: <https://github.com/delta-io/delta/blob/master/PROTOCOL.md>, reader version 1 and writer version 2. Columns
//! of times are declared as their twins ([`crate::twins`]): the format has no nanoseconds.
//!
//! The rule: a version is a file that is linked under its name only when it is complete, and only if no other process was
//! faster. A log with more than this module understands is not continued.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parquet::data_type::ByteArray;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use twox_hash::XxHash3_64;

use crate::error::LakeError;
use crate::table::{ColumnKind, Table};
use crate::twins::plain_name;

/// A table's folder with the log.
const LOG_FOLDER: &str = "_delta_log";
/// What readers and writers of a log have to understand.
const READER_VERSION: u32 = 1;
const WRITER_VERSION: u32 = 2;

/// Why a log is not continued.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// A part cannot be read.
    #[error(transparent)]
    Part(#[from] LakeError),
    /// A part whose times have no twins, or that is no part of the table.
    #[error("{}: has no column {column}: only compacted parts of this program's build can be published", path.display())]
    Column {
        /// The part.
        path: PathBuf,
        /// What it lacks.
        column: String,
    },
    /// A part that is not in the table's folder.
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
    /// A line of a log is no action.
    #[error("{}: line {line} is no action of Delta Lake: {source}", path.display())]
    Line {
        /// The version's file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// Another program continued the log in a way that this one does not know, or removed its beginning.
    #[error("{}: another program has changed this log: {what}; move the folder away to begin a new one", path.display())]
    Foreign {
        /// The log, or a file in it.
        path: PathBuf,
        /// What is there.
        what: String,
    },
}

/// A version that was added to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaVersion {
    /// Its number, from 0.
    pub version: u64,
    /// Parts that came.
    pub added: usize,
    /// Parts that went.
    pub removed: usize,
}

/// One line of a log; of what is not used here, nothing is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Action {
    add: Option<Add>,
    remove: Option<Remove>,
    protocol: Option<Protocol>,
    meta_data: Option<MetaData>,
}

#[derive(Deserialize)]
struct Add {
    path: String,
    size: u64,
}

#[derive(Deserialize)]
struct Remove {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Protocol {
    min_reader_version: u32,
    min_writer_version: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaData {
    id: String,
    schema_string: String,
}

/// What a log says up to its newest version.
#[derive(Default)]
struct Log {
    /// The version to come.
    next: u64,
    /// Parts and their sizes, by the log's own paths.
    parts: BTreeMap<String, u64>,
    meta_data: Option<MetaData>,
}

/// Makes these the parts of a table in `root` for all who read its log: what is new is added and what is no longer among
/// them is removed, in one version. `None` if the log says so already.
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
        let gone: Vec<_> = log.parts.iter().filter(|(path, _)| !wanted.contains_key(*path)).collect();
        let new: Vec<_> = wanted.iter().filter(|(path, _)| !log.parts.contains_key(*path)).collect();
        let schema = schema(table);
        let is_known = log.meta_data.as_ref().is_some_and(|known| known.schema_string == schema);
        if gone.is_empty() && new.is_empty() && (is_known || log.next == 0) {
            return Ok(None);
        }
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut actions = vec![json!({ "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": { "mode": "Append" },
            "engineInfo": concat!("brunt/", env!("CARGO_PKG_VERSION")),
        }})];
        if log.next == 0 {
            let protocol = json!({ "minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION });
            actions.push(json!({ "protocol": protocol }));
        }
        if !is_known {
            let id = log.meta_data.as_ref().map_or_else(|| new_id(&folder), |known| known.id.clone());
            actions.push(json!({ "metaData": meta_data(table, &id, &schema, now_ms) }));
        }
        actions.extend(gone.iter().map(|(path, size)| remove(path, **size, now_ms)));
        for (path, part) in &new {
            actions.push(add(table, path, part)?);
        }
        let version = DeltaVersion { version: log.next, added: new.len(), removed: gone.len() };
        if commit(&folder.join(LOG_FOLDER), version.version, &actions)? {
            return Ok(Some(version));
        }
    }
}

impl Log {
    fn read(folder: &Path) -> Result<Log, DeltaError> {
        let folder = folder.join(LOG_FOLDER);
        let mut log = Log::default();
        let mut versions = BTreeSet::new();
        match std::fs::read_dir(&folder) {
            Ok(entries) => {
                for entry in entries {
                    let name = entry.map_err(io_error(&folder))?.file_name();
                    let number = name.to_str().and_then(|name| name.strip_suffix(".json"));
                    let number = number.filter(|number| number.len() == 20);
                    versions.extend(number.and_then(|number| number.parse::<u64>().ok()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(&folder)(error)),
        }
        for version in versions {
            if version != log.next {
                let what = format!("version {} is missing", log.next);
                return Err(DeltaError::Foreign { path: folder, what });
            }
            log.apply(&version_path(&folder, version))?;
            log.next += 1;
        }
        Ok(log)
    }

    fn apply(&mut self, path: &Path) -> Result<(), DeltaError> {
        let lines = BufReader::new(File::open(path).map_err(io_error(path))?).lines();
        for (index, line) in lines.enumerate() {
            let line = line.map_err(io_error(path))?;
            if line.trim().is_empty() {
                continue;
            }
            let action: Action = serde_json::from_str(&line).map_err(|source| DeltaError::Line {
                path: path.to_path_buf(),
                line: index + 1,
                source,
            })?;
            if let Some(protocol) = action.protocol
                && (protocol.min_reader_version > READER_VERSION
                    || protocol.min_writer_version > WRITER_VERSION)
            {
                let what = format!(
                    "it asks for reader version {} and writer version {}",
                    protocol.min_reader_version, protocol.min_writer_version
                );
                return Err(DeltaError::Foreign { path: path.to_path_buf(), what });
            }
            if action.meta_data.is_some() {
                self.meta_data = action.meta_data;
            }
            if let Some(Add { path, size }) = action.add {
                self.parts.insert(path, size);
            }
            if let Some(Remove { path }) = action.remove {
                self.parts.remove(&path);
            }
        }
        Ok(())
    }
}

fn version_path(log: &Path, version: u64) -> PathBuf {
    log.join(format!("{version:020}.json"))
}

/// Makes a version, durably; `false` if there is one of this number.
fn commit(log: &Path, version: u64, actions: &[Value]) -> Result<bool, DeltaError> {
    std::fs::create_dir_all(log).map_err(io_error(log))?;
    let path = version_path(log, version);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let open = log.join(format!(".{version:020}.{}-{number}.open", std::process::id()));
    let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
    let write = || {
        let mut file = File::create(&open)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        // A link fails where there is such a file; a rename would replace it.
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

/// A table's columns as the log has them: a text of JSON.
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

/// In the form of a UUID; it only has to differ from that of other tables.
fn new_id(folder: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let half = |seed: u64| {
        let what = format!("{} {} {now}", folder.display(), std::process::id());
        XxHash3_64::oneshot_with_seed(seed, what.as_bytes())
    };
    let id = format!("{:016x}{:016x}", half(1), half(2));
    [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
}

fn remove(path: &str, size: u64, now_ms: u64) -> Value {
    json!({ "remove": {
        "path": path,
        "deletionTimestamp": now_ms,
        "dataChange": true,
        "extendedFileMetadata": true,
        "partitionValues": {},
        "size": size,
    }})
}

/// A part with its statistics, by which engines leave it out.
fn add(table: &'static Table, path: &str, part: &Path) -> Result<Value, DeltaError> {
    let file = File::open(part).map_err(io_error(part))?;
    let about = file.metadata().map_err(io_error(part))?;
    let changed = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(|error| {
        DeltaError::Part(LakeError::Damaged { path: part.to_path_buf(), what: error.to_string() })
    })?;
    Ok(json!({ "add": {
        "path": path,
        "partitionValues": {},
        "size": about.len(),
        "modificationTime": changed.map_or(0, |since| since.as_millis() as u64),
        "dataChange": true,
        "stats": statistics(table, part, &metadata)?.to_string(),
    }}))
}

fn statistics(table: &'static Table, part: &Path, metadata: &ParquetMetaData) -> Result<Value, DeltaError> {
    let columns = metadata.file_metadata().schema_descr();
    let (mut mins, mut maxes, mut nulls) = (Map::new(), Map::new(), Map::new());
    for column in table.columns {
        let name = plain_name(column);
        let place = columns.columns().iter().position(|found| found.name() == name);
        let Some(place) = place else {
            if column.nullable && column.kind != ColumnKind::Time {
                continue;
            }
            return Err(DeltaError::Column { path: part.to_path_buf(), column: name });
        };
        let groups = metadata.row_groups().iter().map(|group| {
            let rows = u64::try_from(group.num_rows()).ok()?;
            group.column(place).statistics().map(|statistics| (statistics, rows))
        });
        let Some(groups) = groups.collect::<Option<Vec<_>>>() else { continue };
        let counts = groups.iter().map(|(group, _)| group.null_count_opt()).sum::<Option<u64>>();
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

/// Bounds of what all groups have; `None` if there are none, or they are not known. With each group's statistics are its
/// rows.
fn extremes(groups: &[(&Statistics, u64)]) -> Option<(Value, Value)> {
    // One whose values are all null has none, and takes no part.
    let bounds = |group: &&(&Statistics, u64)| group.0.null_count_opt() != Some(group.1);
    let bounds = groups.iter().filter(bounds).map(|(statistics, _)| bounds_of(statistics));
    let bounds = bounds.collect::<Option<Vec<_>>>()?.into_iter();
    let (min, max) = bounds.reduce(|one, other| (one.0.least(other.0), one.1.greatest(other.1)))?;
    Some((min.json()?, max.json()?))
}

/// A bound of a column, of one type in all groups.
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

    /// The log has no bounds of truth values, and none that are no numbers.
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
    let text = |text: &ByteArray| text.as_utf8().ok().map(|text| Bound::Text(text.to_string()));
    match statistics {
        Statistics::Int64(values) => Some((Bound::Int(*values.min_opt()?), Bound::Int(*values.max_opt()?))),
        Statistics::Double(values) => {
            Some((Bound::Float(*values.min_opt()?), Bound::Float(*values.max_opt()?)))
        }
        Statistics::Boolean(values) => {
            Some((Bound::Bool(*values.min_opt()?), Bound::Bool(*values.max_opt()?)))
        }
        Statistics::ByteArray(values) => Some((text(values.min_opt()?)?, text(values.max_opt()?)?)),
        _ => None,
    }
}

/// A path as the log has it: a relative URI (RFC 3986).
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

    /// A folder with parts of a hundred numbers each.
    struct Lake(TempDir);

    impl Lake {
        fn of_parts(count: i64) -> (Lake, Vec<PathBuf>) {
            let lake = Lake(TempDir::new().unwrap());
            let mut writer = TableWriter::create(lake.root(), &TABLE, WriterOptions::default()).unwrap();
            for part in 0..count {
                for number in part * 100..part * 100 + 100 {
                    let row = writer.rows().row().int(number);
                    let row = row.text_or_null((number % 2 == 0).then_some("even"));
                    row.float_or_null((part > 0).then_some(number as f64 / 2.0)).bool(number % 2 == 1).end();
                }
                writer.rotate().unwrap();
            }
            let parts = crate::reader::parts(lake.root(), &TABLE).unwrap();
            (lake, parts.into_iter().map(|part| part.path).collect())
        }

        fn root(&self) -> &Path {
            self.0.path()
        }

        /// The actions of a version, by name.
        fn actions(&self, version: u64) -> Vec<(String, Value)> {
            let path = version_path(&self.root().join("numbers").join(LOG_FOLDER), version);
            let lines = std::fs::read_to_string(path).unwrap();
            let action = |line: &str| {
                let Value::Object(action) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
                action.into_iter().next().unwrap()
            };
            lines.lines().map(action).collect()
        }

        fn paths(&self, version: u64, kind: &str) -> Vec<String> {
            let actions = self.actions(version).into_iter().filter(|(name, _)| name == kind);
            actions.map(|(_, action)| action["path"].as_str().unwrap().to_string()).collect()
        }
    }

    /// Parts that are new are added, those that are gone are removed, and nothing new is no version.
    #[test]
    fn versions_follow_the_parts() {
        let (lake, parts) = Lake::of_parts(3);
        let version = |parts: &[PathBuf]| publish(lake.root(), &TABLE, parts).unwrap();
        assert_eq!(version(&parts[..2]), Some(DeltaVersion { version: 0, added: 2, removed: 0 }));
        assert_eq!(version(&parts[..2]), None);
        assert_eq!(version(&parts[1..]), Some(DeltaVersion { version: 1, added: 1, removed: 1 }));
        assert_eq!(version(&[]), Some(DeltaVersion { version: 2, added: 0, removed: 2 }));
        let names: Vec<_> = lake.actions(0).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["commitInfo", "protocol", "metaData", "add", "add"]);
        assert_eq!(lake.paths(1, "add"), ["part-000002.parquet"]);
        assert_eq!(lake.paths(1, "remove"), ["part-000000.parquet"]);
        let left: Vec<_> = std::fs::read_dir(lake.root().join("numbers").join(LOG_FOLDER)).unwrap().collect();
        assert_eq!(left.len(), 3, "nothing is left but the versions: {left:?}");
    }

    /// Bounds and counts are those of the rows; where no row has a value, there are no bounds.
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

    /// Of several processes that publish at once, each has a version of its own, and together they have every part once.
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
        assert_eq!(Log::read(&lake.root().join("numbers")).unwrap().parts.len(), 8);
    }

    /// A version that exists is not replaced.
    #[test]
    fn no_version_is_replaced() {
        let folder = TempDir::new().unwrap();
        assert!(commit(folder.path(), 0, &[json!({ "commitInfo": { "operation": "first" } })]).unwrap());
        assert!(!commit(folder.path(), 0, &[json!({ "commitInfo": { "operation": "second" } })]).unwrap());
        let kept = std::fs::read_to_string(version_path(folder.path(), 0)).unwrap();
        assert!(kept.contains("first"), "{kept}");
    }

    /// What another program did to a log, or what has no twins, is refused, and nothing is written.
    #[test]
    fn refused() {
        const TIMES: Table =
            Table { name: "numbers", doc: "Times.", columns: &[Column::time("at", "When.")] };
        let (lake, parts) = Lake::of_parts(2);
        let refused = |table, parts: &[PathBuf]| publish(lake.root(), table, parts).unwrap_err();
        let column = refused(&TIMES, &parts);
        assert!(matches!(&column, DeltaError::Column { column, .. } if column == "at_ns"), "{column}");
        assert!(matches!(refused(&TABLE, &["/elsewhere".into()]), DeltaError::Elsewhere { .. }));
        let log = lake.root().join("numbers").join(LOG_FOLDER);
        assert!(!log.exists());
        publish(lake.root(), &TABLE, &parts[..1]).unwrap();
        let newer = json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7 } });
        assert!(commit(&log, 1, &[newer]).unwrap());
        assert!(matches!(refused(&TABLE, &parts), DeltaError::Foreign { .. }));
        std::fs::write(version_path(&log, 1), "{\n").unwrap();
        assert!(matches!(refused(&TABLE, &parts), DeltaError::Line { line: 1, .. }));
        std::fs::remove_file(version_path(&log, 0)).unwrap();
        assert!(matches!(refused(&TABLE, &parts), DeltaError::Foreign { .. }));
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
