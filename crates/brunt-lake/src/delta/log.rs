//! Reads the state of a log from its versions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use super::{
    DeltaError, ENGINE_PREFIX, LOG_FOLDER, READER_VERSION, WRITER_VERSION, checkpoint, io_error,
    version_path,
};

/// One line of a log; fields that are not used here are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Action {
    add: Option<AddAction>,
    remove: Option<RemoveAction>,
    protocol: Option<Protocol>,
    meta_data: Option<MetaData>,
    commit_info: Option<CommitInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitInfo {
    engine_info: Option<String>,
}

#[derive(Deserialize)]
struct AddAction {
    path: String,
    #[serde(flatten)]
    add: Add,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    pub size: u64,
    #[serde(default)]
    pub modification_time: u64,
    pub stats: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemoveAction {
    path: String,
    deletion_timestamp: Option<u64>,
    size: Option<u64>,
}

/// A part that was removed.
pub(super) struct Removed {
    pub size: u64,
    pub at_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub min_reader_version: u32,
    pub min_writer_version: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetaData {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub schema_string: String,
    pub created_time: Option<i64>,
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
}

/// The state of a log at its newest version.
#[derive(Default)]
pub(super) struct Log {
    /// Number of the next version.
    pub next: u64,
    /// Parts by their paths in the log.
    pub parts: BTreeMap<String, Add>,
    pub removed: BTreeMap<String, Removed>,
    pub protocol: Option<Protocol>,
    pub meta_data: Option<MetaData>,
    /// The newest checkpoint.
    pub checkpoint: Option<u64>,
}

impl Add {
    /// Number of rows, if known.
    pub fn rows(&self) -> Option<u64> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Rows {
            num_records: u64,
        }
        serde_json::from_str(self.stats.as_deref()?)
            .ok()
            .map(|Rows { num_records }| num_records)
    }
}

impl Log {
    pub fn read(folder: &Path) -> Result<Log, DeltaError> {
        let folder = folder.join(LOG_FOLDER);
        let mut log = Log::default();
        let names = names_in(&folder)?;
        log.checkpoint = names
            .iter()
            .filter_map(|name| checkpoint::version_of(name))
            .max();
        let number = |name: &String| {
            name.strip_suffix(".json")
                .filter(|number| number.len() == 20)?
                .parse()
                .ok()
        };
        let versions: BTreeSet<u64> = names.iter().filter_map(number).collect();
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
        let mut engine = None;
        for (index, line) in lines.enumerate() {
            let line = line.map_err(io_error(path))?;
            if line.trim().is_empty() {
                continue;
            }
            let action: Action =
                serde_json::from_str(&line).map_err(|source| DeltaError::Line {
                    path: path.to_path_buf(),
                    line: index + 1,
                    source,
                })?;
            if let Some(Protocol {
                min_reader_version,
                min_writer_version,
            }) = action.protocol
                && (min_reader_version > READER_VERSION || min_writer_version > WRITER_VERSION)
            {
                let what = format!(
                    "it asks for reader version {min_reader_version} and writer version {min_writer_version}"
                );
                return Err(DeltaError::Foreign {
                    path: path.to_path_buf(),
                    what,
                });
            }
            if let Some(info) = &action.commit_info {
                engine = info.engine_info.clone();
            }
            self.take(action);
        }
        // No catalog has the parts that another program added or removed; continuing the log would
        // undo its changes.
        if engine.as_deref().is_some_and(is_ours) {
            return Ok(());
        }
        let by = engine.unwrap_or_else(|| "a program that does not say its name".into());
        Err(DeltaError::Foreign {
            path: path.to_path_buf(),
            what: format!("it was written by {by}"),
        })
    }

    fn take(&mut self, action: Action) {
        if let Some(protocol) = action.protocol {
            self.protocol = Some(protocol);
        }
        if let Some(meta_data) = action.meta_data {
            self.meta_data = Some(meta_data);
        }
        if let Some(AddAction { path, add }) = action.add {
            self.removed.remove(&path);
            self.parts.insert(path, add);
        }
        if let Some(RemoveAction {
            path,
            deletion_timestamp,
            size,
        }) = action.remove
        {
            self.parts.remove(&path);
            let removed = Removed {
                size: size.unwrap_or(0),
                at_ms: deletion_timestamp.unwrap_or(0),
            };
            self.removed.insert(path, removed);
        }
    }
}

fn is_ours(engine: &str) -> bool {
    engine.starts_with(ENGINE_PREFIX)
}

/// File names in a folder; empty if the folder doesn't exist.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>, DeltaError> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io_error(folder))?,
    };
    let name = |entry: io::Result<std::fs::DirEntry>| {
        Ok(entry
            .map_err(io_error(folder))?
            .file_name()
            .to_string_lossy()
            .into_owned())
    };
    entries.map(name).collect()
}
