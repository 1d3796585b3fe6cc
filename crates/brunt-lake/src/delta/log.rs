//! Reads the state of a log from its versions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::sums::LogSums;
use super::{
    CHANGED, DeltaError, ENGINE_PREFIX, READER_VERSION, WRITER_VERSION, checkpoint, io_error,
    version_path,
};

/// One line of a log; unused fields are ignored.
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
    catalog_version: Option<u64>,
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
    /// Whether a version is missing or damaged; if so, the other fields describe the remaining versions.
    pub is_broken: bool,
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

/// A version that has just been read and applied to the log's state.
pub(super) struct ReadVersion {
    pub number: u64,
    /// The version of the catalog that it was written from; `None` if written by an earlier program.
    pub catalog: Option<u64>,
}

impl Log {
    /// Reads the log in this folder.
    pub fn read(folder: &Path) -> Result<Log, DeltaError> {
        let mut problems = Vec::new();
        let log = Log::read_all(folder, &mut problems, |_, _| ())?;
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(log),
        }
    }

    /// Like [`Log::read`], but collects the problems of the versions. `visit` gets the state after each version, up to
    /// the first missing or damaged one.
    pub fn read_all(
        folder: &Path,
        problems: &mut Vec<DeltaError>,
        mut visit: impl FnMut(&Log, ReadVersion),
    ) -> Result<Log, DeltaError> {
        let mut log = Log::default();
        // Read the checksums before the names: otherwise a version that another process publishes in between would
        // seem to be missing.
        let sums = LogSums::read(folder).unwrap_or_else(|error| {
            problems.push(error);
            None
        });
        let names = names_in(folder)?;
        log.checkpoint = names
            .iter()
            .filter_map(|name| checkpoint::version_of(name))
            .max();
        let written = sums.iter().flat_map(|sums| sums.files.keys());
        let written: BTreeSet<u64> = written.filter_map(|name| version_of(name)).collect();
        let found: BTreeSet<u64> = names.iter().filter_map(|name| version_of(name)).collect();
        let end = written
            .iter()
            .chain(&found)
            .max()
            .map_or(0, |last| last + 1);
        for number in 0..end {
            let path = version_path(folder, number);
            if found.contains(&number) {
                match log.apply(&path, sums.as_ref()) {
                    Ok(catalog) if !log.is_broken => {
                        log.next = number + 1;
                        visit(&log, ReadVersion { number, catalog });
                    }
                    Ok(_) => {}
                    Err(error @ DeltaError::Io { .. }) => return Err(error),
                    Err(error) => {
                        log.is_broken = true;
                        problems.push(error);
                    }
                }
                continue;
            }
            log.is_broken = true;
            if written.contains(&number) {
                let what = "is missing".to_string();
                problems.push(DeltaError::Damaged { path, what });
                continue;
            }
            let what = format!("version {number} is missing");
            let path = folder.to_path_buf();
            problems.push(DeltaError::Foreign { path, what });
            break;
        }
        log.next = end;
        Ok(log)
    }

    /// Applies a version to the state. Returns the catalog version that it was written from, if recorded.
    fn apply(&mut self, path: &Path, sums: Option<&LogSums>) -> Result<Option<u64>, DeltaError> {
        let bytes = std::fs::read(path).map_err(io_error(path))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let is_same = sums
            .zip(name)
            .and_then(|(sums, name)| sums.is_same(name, &bytes));
        let damaged = |what: &str| DeltaError::Damaged {
            path: path.to_path_buf(),
            what: what.to_string(),
        };
        let changed = || damaged(CHANGED);
        let actions = parse(&bytes, path).map_err(|error| match is_same {
            Some(false) => changed(),
            _ => error,
        })?;
        let info = actions
            .iter()
            .rev()
            .find_map(|action| action.commit_info.as_ref());
        let catalog = info.and_then(|info| info.catalog_version);
        let engine = info.and_then(|info| info.engine_info.clone());
        let newer = actions
            .iter()
            .filter_map(|action| action.protocol.as_ref())
            .find(|protocol| {
                protocol.min_reader_version > READER_VERSION
                    || protocol.min_writer_version > WRITER_VERSION
            });
        let foreign = |what: String| DeltaError::Foreign {
            path: path.to_path_buf(),
            what,
        };
        // Other programs don't replace versions, so a changed version without another program's name is ours.
        if is_same == Some(false) && engine.is_none() {
            return Err(changed());
        }
        // No catalog lists parts that another program added or removed, so continuing the log would undo that program's
        // changes.
        if catalog.is_none() && !engine.as_deref().is_some_and(is_ours) {
            let by = engine.unwrap_or_else(|| "an unknown program".into());
            let newer = newer.map(|newer| foreign(asks(newer)));
            return Err(newer.unwrap_or_else(|| foreign(format!("it was written by {by}"))));
        }
        if is_same == Some(false) {
            return Err(changed());
        }
        if let Some(newer) = newer {
            return Err(foreign(asks(newer)));
        }
        for action in actions {
            self.take(action);
        }
        Ok(catalog)
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

/// Parses the actions of a version.
fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Action>, DeltaError> {
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_slice(line).map_err(|source| DeltaError::Line {
                path: path.to_path_buf(),
                line: index + 1,
                source,
            })
        })
        .collect()
}

fn asks(protocol: &Protocol) -> String {
    let (reader, writer) = (protocol.min_reader_version, protocol.min_writer_version);
    format!("it requires reader version {reader} and writer version {writer}")
}

/// Version number from the name of a version's file.
pub(super) fn version_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".json")?;
    let is_number = number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok())?
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
