//! Checkpoints of a log: its state at a version as a single Parquet file, so that a reader doesn't have to read all
//! earlier versions. Uses the format's classic form (V1): one row per action, one column group per kind of action.
//!
//! ```text
//! _delta_log/00000000000000000010.checkpoint.parquet
//! _delta_log/_last_checkpoint                            points to the newest one; a hint, replaced each time
//! ```
//!
//! The rule: a checkpoint gets its name once it is complete. It contains nothing that the versions don't, so a log
//! without checkpoints is merely slower to read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::{Field, Row, RowAccessor};
use parquet::schema::parser::parse_message_type;
use serde::Deserialize;
use serde_json::json;

use super::log::{Add, Log, MetaData, Protocol, Removed};
use super::{DeltaError, io_error};

/// Suffix of checkpoint file names, after the version.
const SUFFIX: &str = ".checkpoint.parquet";
/// File name of the hint.
pub(super) const HINT: &str = "_last_checkpoint";
/// How long removed parts stay listed, in milliseconds: a week, the format's default.
const REMOVED_MS: u64 = 7 * 24 * 3600 * 1000;

const SCHEMA: &str = "message checkpoint {
  optional group protocol { required int32 minReaderVersion; required int32 minWriterVersion; }
  optional group metaData {
    required binary id (UTF8);
    optional binary name (UTF8);
    optional binary description (UTF8);
    optional group format {
      required binary provider (UTF8);
      optional group options (MAP) {
        repeated group key_value { required binary key (UTF8); optional binary value (UTF8); }
      }
    }
    required binary schemaString (UTF8);
    optional group partitionColumns (LIST) { repeated group list { optional binary element (UTF8); } }
    optional int64 createdTime;
    optional group configuration (MAP) {
      repeated group key_value { required binary key (UTF8); optional binary value (UTF8); }
    }
  }
  optional group add {
    required binary path (UTF8);
    optional group partitionValues (MAP) {
      repeated group key_value { required binary key (UTF8); optional binary value (UTF8); }
    }
    required int64 size;
    required int64 modificationTime;
    required boolean dataChange;
    optional binary stats (UTF8);
  }
  optional group remove {
    required binary path (UTF8);
    optional int64 deletionTimestamp;
    required boolean dataChange;
    optional boolean extendedFileMetadata;
    optional group partitionValues (MAP) {
      repeated group key_value { required binary key (UTF8); optional binary value (UTF8); }
    }
    optional int64 size;
  }
}";

/// Version number in a checkpoint's file name.
pub(super) fn version_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)
        .filter(|number| number.len() == 20)?
        .parse()
        .ok()
}

/// An action to write as a row.
enum CheckpointRow<'a> {
    Protocol(&'a Protocol),
    MetaData(&'a MetaData),
    Add(&'a str, &'a Add),
    Remove(&'a str, &'a Removed),
}

enum Leaf {
    Text(String),
    Long(i64),
    Int(i32),
    Bool(bool),
}

/// A row's entry in a column: definition level, repetition level, value.
type Cell = (i16, i16, Option<Leaf>);

/// Writes the state of the log as a checkpoint in this folder.
pub(super) fn write(log: &Log, folder: &Path, now_ms: u64) -> Result<(), DeltaError> {
    let (Some(protocol), Some(meta_data)) = (&log.protocol, &log.meta_data) else {
        return Ok(());
    };
    let mut rows = vec![
        CheckpointRow::Protocol(protocol),
        CheckpointRow::MetaData(meta_data),
    ];
    rows.extend(
        log.parts
            .iter()
            .map(|(path, add)| CheckpointRow::Add(path, add)),
    );
    let is_young = |removed: &Removed| removed.at_ms + REMOVED_MS > now_ms;
    let removed = log.removed.iter().filter(|(_, removed)| is_young(removed));
    rows.extend(removed.map(|(path, removed)| CheckpointRow::Remove(path, removed)));
    let version = log.next - 1;
    let path = path_of(folder, version);
    let bytes = encode(&rows).map_err(|error| io_error(&path)(std::io::Error::other(error)))?;
    replace(&path, &bytes)?;
    let hint = hint(version, rows.len(), bytes.len(), log.parts.len());
    replace(&folder.join(HINT), hint.as_bytes())
}

/// The hint for a checkpoint with this many rows and bytes; `parts` is the number of rows that describe parts.
fn hint(version: u64, rows: usize, bytes: usize, parts: usize) -> String {
    json!({
        "version": version,
        "size": rows,
        "sizeInBytes": bytes,
        "numOfAddFiles": parts,
    })
    .to_string()
}

/// The version that a hint points to.
pub(super) fn hinted(hint: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Hinted {
        version: u64,
    }
    serde_json::from_slice(hint)
        .ok()
        .map(|Hinted { version }| version)
}

/// Path of a version's checkpoint.
pub(super) fn path_of(folder: &Path, version: u64) -> PathBuf {
    folder.join(format!("{version:020}{SUFFIX}"))
}

/// How a checkpoint differs from the log's state.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct CheckpointDiffers(pub(super) String);

/// Compares a checkpoint with the state of the log at its version and returns the hint for it.
pub(super) fn compare(bytes: Vec<u8>, log: &Log) -> Result<String, CheckpointDiffers> {
    let len = bytes.len();
    let unreadable = |error: ParquetError| {
        CheckpointDiffers(format!("cannot be parsed as a checkpoint: {error}"))
    };
    let reader = SerializedFileReader::new(Bytes::from(bytes)).map_err(unreadable)?;
    let (mut rows, mut parts) = (0, 0);
    for row in reader.get_row_iter(None).map_err(unreadable)? {
        let row = row.map_err(unreadable)?;
        rows += 1;
        for (kind, field) in row.get_column_iter() {
            let Field::Group(action) = field else {
                continue;
            };
            let is_part = kind == "add";
            if !is_same(kind, action, log).map_err(unreadable)? {
                let name = match is_part {
                    true => action.get_string(0).map_err(unreadable)?,
                    false => kind,
                };
                let what = format!("doesn't match the log in {name}");
                return Err(CheckpointDiffers(what));
            }
            parts += usize::from(is_part);
        }
    }
    if parts != log.parts.len() {
        return Err(CheckpointDiffers(format!(
            "lists {parts} parts, but the versions up to it {}",
            log.parts.len()
        )));
    }
    Ok(hint(log.next - 1, rows, len, parts))
}

/// Whether an action in a checkpoint is in the state of the log.
fn is_same(kind: &str, action: &Row, log: &Log) -> Result<bool, ParquetError> {
    let text = |at: usize| match action.is_null(at)? {
        true => Ok(None),
        false => action.get_string(at).map(|text| Some(text.as_str())),
    };
    Ok(match kind {
        "protocol" => log.protocol.as_ref().is_some_and(|protocol| {
            let versions = (protocol.min_reader_version, protocol.min_writer_version);
            let found = action.get_int(0).ok().zip(action.get_int(1).ok());
            found.is_some_and(|found| (found.0 as u32, found.1 as u32) == versions)
        }),
        "metaData" => log.meta_data.as_ref().is_some_and(|known| {
            let has = |at, text: &String| action.get_string(at).is_ok_and(|found| found == text);
            has(0, &known.id) && has(4, &known.schema_string)
        }),
        "add" => {
            let facts = (action.get_long(2)?, action.get_long(3)?, text(5)?);
            log.parts.get(action.get_string(0)?).is_some_and(|part| {
                let (size, changed) = (part.size as i64, part.modification_time as i64);
                facts == (size, changed, part.stats.as_deref())
            })
        }
        "remove" => log.removed.contains_key(action.get_string(0)?),
        _ => false,
    })
}

/// Replaces a file, atomically and durably.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), DeltaError> {
    let folder = path.parent().expect("a file of a log");
    let name = path.file_name().expect("a file of a log").to_string_lossy();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let open: PathBuf = folder.join(format!(".{name}.{}-{number}.open", std::process::id()));
    let write = || {
        let mut file = File::create(&open)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&open, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&open);
        io_error(path)(error)
    })
}

fn encode(rows: &[CheckpointRow<'_>]) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let compression = Compression::ZSTD(ZstdLevel::try_new(3)?);
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let columns = file.schema_descr().columns().to_vec();
    let mut group = file.next_row_group()?;
    for column in &columns {
        let path = column.path().string();
        let cells: Vec<Cell> = rows.iter().flat_map(|row| cells(row, &path)).collect();
        let mut writer = group
            .next_column()?
            .expect("one column per field of the schema");
        put(writer.untyped(), cells)?;
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn put(writer: &mut ColumnWriter<'_>, cells: Vec<Cell>) -> Result<usize, ParquetError> {
    let defined: Vec<i16> = cells.iter().map(|(defined, ..)| *defined).collect();
    let repeated: Vec<i16> = cells.iter().map(|(_, repeated, _)| *repeated).collect();
    let levels = (Some(&defined[..]), Some(&repeated[..]));
    let leaves = cells.into_iter().filter_map(|(.., leaf)| leaf);
    match writer {
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let text = |leaf| {
                if let Leaf::Text(text) = leaf {
                    Some(ByteArray::from(text.as_str()))
                } else {
                    None
                }
            };
            writer.write_batch(
                &leaves.filter_map(text).collect::<Vec<_>>(),
                levels.0,
                levels.1,
            )
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let long = |leaf| {
                if let Leaf::Long(value) = leaf {
                    Some(value)
                } else {
                    None
                }
            };
            writer.write_batch(
                &leaves.filter_map(long).collect::<Vec<_>>(),
                levels.0,
                levels.1,
            )
        }
        ColumnWriter::Int32ColumnWriter(writer) => {
            let int = |leaf| {
                if let Leaf::Int(value) = leaf {
                    Some(value)
                } else {
                    None
                }
            };
            writer.write_batch(
                &leaves.filter_map(int).collect::<Vec<_>>(),
                levels.0,
                levels.1,
            )
        }
        ColumnWriter::BoolColumnWriter(writer) => {
            let bool = |leaf| {
                if let Leaf::Bool(value) = leaf {
                    Some(value)
                } else {
                    None
                }
            };
            writer.write_batch(
                &leaves.filter_map(bool).collect::<Vec<_>>(),
                levels.0,
                levels.1,
            )
        }
        _ => unreachable!("the schema has no other columns"),
    }
}

/// A row's entries in the column at this path.
fn cells(row: &CheckpointRow<'_>, path: &str) -> Vec<Cell> {
    let (kind, below) = path.split_once('.').expect("the columns are in groups");
    let text = |text: &str| Some(Leaf::Text(text.to_string()));
    let long = |value: u64| Some(Leaf::Long(value as i64));
    // In a group, an optional value is defined one level deeper.
    let required = |leaf| vec![(1, 0, leaf)];
    let optional = |leaf: Option<Leaf>| vec![(1 + i16::from(leaf.is_some()), 0, leaf)];
    // A map or list that is present and empty.
    let empty = vec![(2, 0, None)];
    match (row, kind, below) {
        (CheckpointRow::Protocol(protocol), "protocol", "minReaderVersion") => {
            required(Some(Leaf::Int(protocol.min_reader_version as i32)))
        }
        (CheckpointRow::Protocol(protocol), "protocol", _) => {
            required(Some(Leaf::Int(protocol.min_writer_version as i32)))
        }
        (CheckpointRow::MetaData(table), "metaData", below) => match below {
            "id" => required(text(&table.id)),
            "schemaString" => required(text(&table.schema_string)),
            "name" => optional(table.name.as_deref().and_then(text)),
            "description" => optional(table.description.as_deref().and_then(text)),
            "createdTime" => optional(table.created_time.map(Leaf::Long)),
            "format.provider" => vec![(2, 0, text("parquet"))],
            "format.options.key_value.key" | "format.options.key_value.value" => vec![(3, 0, None)],
            "configuration.key_value.key" => entries(&table.configuration, |(key, _)| (3, key)),
            "configuration.key_value.value" => {
                entries(&table.configuration, |(_, value)| (4, value))
            }
            _ => empty,
        },
        (CheckpointRow::Add(path, add), "add", below) => match below {
            "path" => required(text(path)),
            "size" => required(long(add.size)),
            "modificationTime" => required(long(add.modification_time)),
            // A checkpoint contains no data changes.
            "dataChange" => required(Some(Leaf::Bool(false))),
            "stats" => optional(add.stats.as_deref().and_then(text)),
            _ => empty,
        },
        (CheckpointRow::Remove(path, removed), "remove", below) => match below {
            "path" => required(text(path)),
            "dataChange" => required(Some(Leaf::Bool(false))),
            "deletionTimestamp" => optional(long(removed.at_ms)),
            "extendedFileMetadata" => optional(Some(Leaf::Bool(true))),
            "size" => optional(long(removed.size)),
            _ => empty,
        },
        _ => vec![(0, 0, None)],
    }
}

/// The keys or the values of a map.
fn entries<'a>(
    map: &'a BTreeMap<String, String>,
    of: impl Fn((&'a String, &'a String)) -> (i16, &'a String),
) -> Vec<Cell> {
    let cell = |(index, entry)| {
        let (defined, text) = of(entry);
        (
            defined,
            i16::from(index > 0),
            Some(Leaf::Text(text.clone())),
        )
    };
    let cells: Vec<Cell> = map.iter().enumerate().map(cell).collect();
    if cells.is_empty() {
        vec![(2, 0, None)]
    } else {
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log state reads back equal: each action has its own row, with nulls in the columns of other kinds.
    #[test]
    fn states_are_read_back() {
        let add = Add {
            size: 7,
            modification_time: 5,
            stats: Some("{}".into()),
        };
        let removed = Removed { size: 9, at_ms: 4 };
        let configuration =
            [("a", "1"), ("b", "2")].map(|(key, value)| (key.to_string(), value.to_string()));
        let meta_data = MetaData {
            id: "x".into(),
            name: Some("numbers".into()),
            description: None,
            schema_string: "{}".into(),
            created_time: Some(3),
            configuration: configuration.into(),
        };
        let rows = [
            CheckpointRow::Protocol(&Protocol {
                min_reader_version: 1,
                min_writer_version: 2,
            }),
            CheckpointRow::MetaData(&meta_data),
            CheckpointRow::Add("part-000001.parquet", &add),
            CheckpointRow::Remove("part-000000.parquet", &removed),
        ];
        let bytes = Bytes::from(encode(&rows).unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let read: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect();
        let has =
            |row: usize, part: &str| assert!(read[row].contains(part), "{part} in {}", read[row]);
        has(
            0,
            "protocol: {minReaderVersion: 1, minWriterVersion: 2}, metaData: null, add: null, remove: null",
        );
        has(
            1,
            "id: \"x\", name: \"numbers\", description: null, format: {provider: \"parquet\", options: {}}",
        );
        has(
            1,
            "partitionColumns: [], createdTime: 3, configuration: {\"a\" -> \"1\", \"b\" -> \"2\"}",
        );
        has(
            2,
            "path: \"part-000001.parquet\", partitionValues: {}, size: 7, modificationTime: 5",
        );
        has(
            3,
            "path: \"part-000000.parquet\", deletionTimestamp: 4, dataChange: false",
        );
        assert_eq!(read.len(), 4);
    }
}
