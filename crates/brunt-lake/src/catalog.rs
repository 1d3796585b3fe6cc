//! The catalog of a lake: its live parts, and which parts of captured traces it contains. Stored as numbered versions,
//! one JSON file each; the newest one is current:
//!
//! ```text
//! DIR/
//!   _catalog/
//!     v00000007.json             the newest version: live parts with rows, bytes, place and extremes
//!     v00000006.json             an older one, kept while a reader uses it
//!     v00000008.pending          parts of the next version are being renamed
//!     lock                       held by the process that writes the next version
//!   _catalog_copies/
//!     v00000007.json             copies of the last eight versions, byte for byte
//!   operations/
//!     date=2026-11-25/hour=16/part-c00000007-0000.parquet    written with version 7
//!     part-000113.parquet        a captured part that no version has absorbed yet
//! ```
//!
//! A folder without versions contains a trace as captured. Otherwise, the live parts are those of the newest version
//! plus the parts captured since then, from [`Absorbed::next`] on.
//!
//! The rule: a version is complete once it has its name, and never changes. Comparing two versions shows which parts
//! the newer one added and removed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::LakeError;
use crate::place::{Grain, IdTimeline};

/// Format number of the catalog files; newer formats are rejected.
pub const CATALOG_FORMAT: u32 = 1;
/// The catalog's folder; engines skip names that start with an underscore.
pub const CATALOG_FOLDER: &str = "_catalog";
/// Copies of the newest versions, in a separate folder so that a version and its copy aren't lost together.
pub const COPIES_FOLDER: &str = "_catalog_copies";
/// Number of copies kept.
const COPIES_KEPT: usize = 8;

/// A version of a lake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// [`CATALOG_FORMAT`].
    pub format: u32,
    /// Version number, from 1.
    pub version: u64,
    /// The program that wrote it.
    pub program: String,
    /// Commit time, in nanoseconds since 1970.
    pub committed_ns: u64,
    /// Granularity of the division by time; the same in all versions.
    pub grain: Grain,
    /// The traces in the lake.
    pub taps: Vec<LakeTap>,
    /// Parts of each table, by table name.
    pub parts: BTreeMap<String, Vec<LakePart>>,
    /// Times of ids, by which rows that arrive later are placed.
    pub timeline: IdTimeline,
}

/// A trace in a lake, possibly only in part so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeTap {
    /// The name that the user gave the trace; empty for the trace captured into the lake's own folder.
    pub name: String,
    /// The unique name that the capture gave the trace.
    pub trace_name: Option<String>,
    /// Offset added to the trace's pipeline numbers.
    pub first_pipeline: u16,
    /// Number of the trace's pipelines.
    pub pipelines: u16,
    /// Whether no more parts will arrive.
    pub is_complete: bool,
    /// Parts absorbed, for each table and pipeline (as numbered in the trace).
    pub absorbed: BTreeMap<String, BTreeMap<u16, Absorbed>>,
    /// Damaged parts among the absorbed ones, which were skipped, as paths relative to the trace's folder.
    pub left_out: Vec<String>,
}

/// A run of consecutively numbered parts of one pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absorbed {
    /// Number of the first part.
    pub first: u64,
    /// Number after the last part.
    pub next: u64,
}

/// A part of a lake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LakePart {
    /// Path relative to the lake's folder, with `/`.
    pub path: String,
    /// Number of rows.
    pub rows: u64,
    /// File size.
    pub bytes: u64,
    /// XXH3 hash of the whole file; `None` if written by an earlier program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Its place: the first hour it covers, counted from 1970; `None` if unknown, and for tables that aren't divided by
    /// time.
    pub hour: Option<i64>,
    /// Minimum and maximum of the columns that engines use to skip parts (times in nanoseconds). Columns without values
    /// are absent.
    pub extremes: BTreeMap<String, (i64, i64)>,
}

impl LakeTap {
    /// Records that a captured part was absorbed.
    pub(crate) fn absorb(&mut self, table: &str, series: u16, number: u64) {
        let of_table = self.absorbed.entry(table.to_string()).or_default();
        let absorbed = of_table.entry(series).or_insert(Absorbed {
            first: number,
            next: 0,
        });
        absorbed.next = number + 1;
    }

    /// The parts of a table and pipeline that were absorbed.
    pub fn absorbed(&self, table: &str, series: u16) -> Option<Absorbed> {
        self.absorbed
            .get(table)
            .and_then(|of_series| of_series.get(&series))
            .copied()
    }

    /// Whether this is the same tap as `older` and has absorbed everything that `older` had.
    fn continues(&self, older: &LakeTap) -> bool {
        let is_same = self.name == older.name
            && (older.trace_name.is_none() || self.trace_name == older.trace_name)
            && (self.first_pipeline, self.pipelines) == (older.first_pipeline, older.pipelines);
        let has = |table: &String, series: &u16, had: &Absorbed| {
            self.absorbed(table, *series)
                .is_some_and(|has| has.first <= had.first && has.next >= had.next)
        };
        let mut absorbed = older.absorbed.iter().flat_map(|(table, all)| {
            all.iter()
                .map(move |(series, absorbed)| (table, series, absorbed))
        });
        is_same && absorbed.all(|(table, series, absorbed)| has(table, series, absorbed))
    }

    /// The range of pipeline numbers that the lake assigned to this tap.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        let first = u32::from(self.first_pipeline);
        first..first + u32::from(self.pipelines)
    }
}

impl Catalog {
    /// The catalog of an empty lake.
    pub fn empty(grain: Grain) -> Catalog {
        Catalog {
            format: CATALOG_FORMAT,
            version: 0,
            program: String::new(),
            committed_ns: 0,
            grain,
            taps: Vec::new(),
            parts: BTreeMap::new(),
            timeline: IdTimeline::default(),
        }
    }

    /// The tap of the trace captured into the lake's own folder.
    pub fn own(&self) -> Option<&LakeTap> {
        self.taps.iter().find(|tap| tap.name.is_empty())
    }

    /// The parts of a table.
    pub fn parts(&self, table: &str) -> &[LakePart] {
        self.parts.get(table).map_or(&[], Vec::as_slice)
    }

    /// Whether this version has absorbed the given part captured into the lake's own folder.
    pub fn has_absorbed(&self, table: &str, series: u16, number: u64) -> bool {
        let absorbed = self.own().and_then(|tap| tap.absorbed(table, series));
        absorbed.is_some_and(|absorbed| number < absorbed.next)
    }

    /// Whether a part captured into the lake's own folder has rows that this version lacks because it was not absorbed
    /// yet or was skipped as damaged. `path` is relative to the lake's folder.
    pub fn lacks_part(&self, table: &str, captured: (u16, u64), path: &str) -> bool {
        let (series, number) = captured;
        let is_left_out = self
            .own()
            .is_some_and(|tap| tap.left_out.iter().any(|out| out == path));
        is_left_out || !self.has_absorbed(table, series, number)
    }

    /// Whether this version is `older`, or a later version of the same lake that has all rows of `older`. If two
    /// copies of a lake were compacted independently, the one with the higher version number may continue the other
    /// although it has different parts for the same rows.
    pub fn continues(&self, older: &Catalog) -> bool {
        if self.version == older.version {
            return self == older;
        }
        let has = |older: &LakeTap| self.taps.iter().any(|tap| tap.continues(older));
        self.version > older.version && self.grain == older.grain && older.taps.iter().all(has)
    }

    /// Reads a version from a file.
    ///
    /// # Errors
    /// The file cannot be read or was written by a newer program.
    pub fn read(path: &Path) -> Result<Catalog, LakeError> {
        let bytes = std::fs::read(path).map_err(LakeError::io(path))?;
        Catalog::parse(&bytes, path)
    }

    /// Parses a version; `path` identifies it in errors.
    ///
    /// # Errors
    /// The bytes are not a catalog or were written by a newer program.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Catalog, LakeError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            checksum: Option<IgnoredAny>,
        }
        let broken = |error: serde_json::Error| LakeError::Catalog {
            path: path.to_path_buf(),
            what: error.to_string(),
        };
        // Check the format first: a newer program may use a different checksum.
        let head = serde_json::from_slice::<Head>(bytes).ok();
        if let Some(format) = head.as_ref().map(|head| head.format)
            && format > CATALOG_FORMAT
        {
            return Err(LakeError::CatalogFormat {
                path: path.to_path_buf(),
                found: format,
                known: CATALOG_FORMAT,
            });
        }
        let has_sum = head.is_some_and(|head| head.checksum.is_some());
        check_sum(bytes, has_sum).map_err(|what| LakeError::Catalog {
            path: path.to_path_buf(),
            what: what.to_string(),
        })?;
        serde_json::from_slice(bytes).map_err(broken)
    }

    /// Makes this version the newest, durably and atomically. Never replaces an existing version.
    pub(crate) fn commit(&self, root: &Path) -> Result<(), LakeError> {
        let mut bytes = serde_json::to_vec(self).expect("a catalog is plain data");
        append_sum(&mut bytes);
        self.commit_bytes(root, &bytes)
    }

    /// Like `Catalog::commit`, but takes the bytes of the same version from another copy of the lake. Its parts must be
    /// in place and durable.
    ///
    /// # Errors
    /// The disk failed, or the version exists already.
    pub fn commit_bytes(&self, root: &Path, bytes: &[u8]) -> Result<(), LakeError> {
        self.write_copy(root, bytes)?;
        let folder = root.join(CATALOG_FOLDER);
        let path = version_path(root, self.version);
        let open = path.with_extension("json.open");
        let write = || {
            let mut file = File::create(&open)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            // Unlike a rename, a link fails if the file exists.
            std::fs::hard_link(&open, &path)?;
            std::fs::remove_file(&open)?;
            File::open(&folder)?.sync_all()
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&open);
            LakeError::writing(&path, bytes.len() as u64, error)
        })
    }
}

impl Catalog {
    /// Writes a backup copy for restoring a lost version. Call it before writing the version itself.
    pub(crate) fn write_copy(&self, root: &Path, bytes: &[u8]) -> Result<(), LakeError> {
        let folder = root.join(COPIES_FOLDER);
        let path = folder.join(version_name(self.version, VERSION_SUFFIX));
        let open = path.with_extension("json.open");
        let write = || {
            std::fs::create_dir_all(&folder)?;
            let mut file = File::create(&open)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&open, &path)?;
            File::open(&folder)?.sync_all()?;
            File::open(root)?.sync_all()
        };
        write().map_err(|error| LakeError::writing(&path, bytes.len() as u64, error))
    }
}

/// Copies of versions, oldest first.
pub(crate) fn copies(root: &Path) -> Result<Vec<(u64, PathBuf)>, LakeError> {
    let folder = root.join(COPIES_FOLDER);
    let versions = numbered_in(&folder, VERSION_SUFFIX)?.into_iter();
    Ok(versions
        .map(|version| (version, folder.join(version_name(version, VERSION_SUFFIX))))
        .collect())
}

/// Copies that can't be read, with the reason, oldest first.
pub(crate) fn damaged_copies(root: &Path) -> Result<Vec<(u64, PathBuf, LakeError)>, LakeError> {
    let mut damaged = Vec::new();
    for (version, path) in copies(root)? {
        match Catalog::read(&path) {
            Err(error @ LakeError::Catalog { .. }) => damaged.push((version, path, error)),
            // Not damaged: a concurrent compaction may have removed the copy, or a newer program may have written it.
            // Other errors end the check.
            Err(error) if !error.is_gone() && !matches!(error, LakeError::CatalogFormat { .. }) => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(damaged)
}

/// Recreates the copy of a version if it is missing.
pub(crate) fn renew_copy(root: &Path, version: u64) -> Result<(), LakeError> {
    let path = version_path(root, version);
    let copy = root
        .join(COPIES_FOLDER)
        .join(version_name(version, VERSION_SUFFIX));
    if version == 0 || copy.exists() {
        return Ok(());
    }
    let bytes = std::fs::read(&path).map_err(LakeError::io(&path))?;
    Catalog::parse(&bytes, &path)?.write_copy(root, &bytes)
}

/// Removes copies of versions that were never committed, and all but the newest copies of the others.
pub(crate) fn prune_copies(root: &Path, newest: u64) -> Result<(), LakeError> {
    let mut copies = copies(root)?;
    let uncommitted = copies.split_off(copies.partition_point(|(version, _)| *version <= newest));
    let excess = copies.len().saturating_sub(COPIES_KEPT);
    for (_, path) in copies.drain(..excess).chain(uncommitted) {
        std::fs::remove_file(&path).map_err(LakeError::io(&path))?;
    }
    Ok(())
}

/// The last key in a version's JSON object: the XXH3 hash of all bytes before it, which detects lost or changed
/// entries.
const SUM_KEY: &[u8] = b",\"checksum\":\"";

/// A version's bytes differ from those that were written.
#[derive(Debug, thiserror::Error)]
#[error("wrong checksum: the file was changed or damaged after it was written")]
pub(crate) struct WrongSum;

pub(crate) fn append_sum(object: &mut Vec<u8>) {
    assert_eq!(object.pop(), Some(b'}'), "a catalog is a JSON object");
    let sum = XxHash3_64::oneshot(object);
    object.extend_from_slice(SUM_KEY);
    object.extend_from_slice(format!("{sum:016x}\"}}").as_bytes());
}

/// Versions written by earlier programs have no checksum. If a checksum exists but isn't the last key, another program
/// has rewritten the file.
pub(crate) fn check_sum(object: &[u8], has_sum: bool) -> Result<(), WrongSum> {
    let at = object
        .windows(SUM_KEY.len())
        .rposition(|part| part == SUM_KEY);
    let Some(at) = at else {
        return if has_sum { Err(WrongSum) } else { Ok(()) };
    };
    let mut expected = object[..at].to_vec();
    expected.push(b'}');
    append_sum(&mut expected);
    match expected == object {
        true => Ok(()),
        false => Err(WrongSum),
    }
}

/// Suffix of versions and of their copies.
const VERSION_SUFFIX: &str = ".json";

/// File name of a version with this suffix.
pub(crate) fn version_name(version: u64, suffix: &str) -> String {
    format!("v{version:08}{suffix}")
}

/// Version number from a file name with this suffix.
fn number_of(name: &str, suffix: &str) -> Option<u64> {
    name.strip_prefix('v')?.strip_suffix(suffix)?.parse().ok()
}

/// Versions that have a file with this suffix in a folder, oldest first; empty if the folder doesn't exist.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn numbered_in(folder: &Path, suffix: &str) -> Result<Vec<u64>, LakeError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LakeError::io(folder)(error)),
    };
    let mut versions = Vec::new();
    for entry in entries {
        let name = entry.map_err(LakeError::io(folder))?.file_name();
        versions.extend(name.to_str().and_then(|name| number_of(name, suffix)));
    }
    versions.sort_unstable();
    Ok(versions)
}

/// Path of a version's file.
pub fn version_path(root: &Path, version: u64) -> PathBuf {
    root.join(CATALOG_FOLDER)
        .join(version_name(version, VERSION_SUFFIX))
}

/// Version number of a file in [`CATALOG_FOLDER`], from its name.
pub fn version_of(name: &str) -> Option<u64> {
    number_of(name, VERSION_SUFFIX)
}

/// The versions of a lake, oldest first; empty if the folder is not a lake.
///
/// # Errors
/// The folder cannot be read.
pub fn versions(root: &Path) -> Result<Vec<u64>, LakeError> {
    numbered_in(&root.join(CATALOG_FOLDER), VERSION_SUFFIX)
}

/// Whether the newest version of the lake in `root` has absorbed the given captured part; `false` if the catalog cannot
/// be read.
pub fn is_absorbed(root: &Path, table: &str, part: &Path) -> bool {
    let Some((series, number)) = crate::reader::PartFile::parse(part) else {
        return false;
    };
    let newest = versions(root)
        .ok()
        .and_then(|versions| versions.last().copied());
    let catalog = newest.and_then(|newest| Catalog::read(&version_path(root, newest)).ok());
    catalog.is_some_and(|catalog| catalog.has_absorbed(table, series, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checksum is verified wherever it is in the file; values that contain the word "checksum" aren't mistaken for
    /// one.
    #[test]
    fn catalogs_without_a_checksum_are_read_and_moved_checksums_are_refused() {
        let mut old = Catalog::empty(Grain::Day);
        old.taps.push(LakeTap {
            name: "checksum".into(),
            ..LakeTap::default()
        });
        let parse = |bytes: &[u8]| Catalog::parse(bytes, Path::new("v00000001.json"));
        let mut bytes = serde_json::to_vec(&old).unwrap();
        assert_eq!(parse(&bytes).unwrap(), old);
        append_sum(&mut bytes);
        assert_eq!(parse(&bytes).unwrap(), old);
        let moved: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let moved = serde_json::to_vec_pretty(&moved).unwrap();
        let error = parse(&moved).unwrap_err().to_string();
        assert!(error.contains("wrong checksum"), "{error}");
    }
}
