//! What is in a lake: the live parts, and which parts of traces are in them. Kept as numbered versions, one file of JSON
//! each, the newest of which counts:
//!
//! ```text
//! DIR/
//!   _catalog/
//!     v00000007.json             the newest version: live parts with rows, bytes, place and extremes
//!     v00000006.json             an older one, as long as somebody reads it
//!     v00000008.pending          parts of the next version are getting their names
//!     lock                       held by whoever makes the next one
//!   _catalog_copies/
//!     v00000007.json             the same bytes, of the last eight versions
//!   operations/
//!     date=2026-11-25/hour=16/part-c00000007-0000.parquet    written with version 7
//!     part-000113.parquet        a part that the capture wrote and no version has taken in
//! ```
//!
//! A folder without versions is a trace as it was captured. With them, its live parts are those of the newest version, and
//! the parts that the capture wrote since: those from [`Absorbed::next`] on.
//!
//! The rule: a version is complete when it has its name, and never changes. What the next one has and has not is known by
//! comparing the two.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::LakeError;
use crate::place::{Grain, IdTimeline};

/// Of the files; a newer one is refused.
pub const CATALOG_FORMAT: u32 = 1;
/// The folder; engines pass over names that begin like this.
pub const CATALOG_FOLDER: &str = "_catalog";
/// Copies of the newest versions, apart from them so that they aren't lost together.
pub const COPIES_FOLDER: &str = "_catalog_copies";
/// How many copies are kept.
const COPIES_KEPT: usize = 8;

/// A version of a lake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// [`CATALOG_FORMAT`].
    pub format: u32,
    /// Which one it is, from 1.
    pub version: u64,
    /// What wrote it.
    pub program: String,
    /// When, in nanoseconds since 1970.
    pub committed_ns: u64,
    /// How finely tables are divided by time; the same for all versions.
    pub grain: Grain,
    /// The traces that are in it.
    pub taps: Vec<LakeTap>,
    /// Parts of tables, by the tables' names.
    pub parts: BTreeMap<String, Vec<LakePart>>,
    /// Times of ids, for the parts that are still to come.
    pub timeline: IdTimeline,
}

/// A trace that is in a lake, whole or up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeTap {
    /// What the user calls it. Empty: the trace that is captured into the lake's own folder.
    pub name: String,
    /// The trace's own name.
    pub trace_name: Option<String>,
    /// What is added to the numbers of its pipelines.
    pub first_pipeline: u16,
    /// How many those are.
    pub pipelines: u16,
    /// Whether nothing more can come.
    pub is_complete: bool,
    /// For each table and pipeline (as the trace numbers them) the parts that were taken in.
    pub absorbed: BTreeMap<String, BTreeMap<u16, Absorbed>>,
    /// Damaged parts among those, as paths below the trace's folder: they were left out.
    pub left_out: Vec<String>,
}

/// A run of parts of one pipeline, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absorbed {
    /// The first one.
    pub first: u64,
    /// That after the last one.
    pub next: u64,
}

/// A part of a lake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LakePart {
    /// Below the lake's folder, with `/`.
    pub path: String,
    /// Its rows.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// XXH3 of the whole file; none if an earlier program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Where it is placed: the first hour since 1970; none in tables that are not divided.
    pub hour: Option<i64>,
    /// The least and the greatest value of columns by which engines leave parts out (times as nanoseconds), where any row
    /// has one.
    pub extremes: BTreeMap<String, (i64, i64)>,
}

impl LakeTap {
    /// Notes that a captured part was taken in.
    pub(crate) fn absorb(&mut self, table: &str, series: u16, number: u64) {
        let of_table = self.absorbed.entry(table.to_string()).or_default();
        let absorbed = of_table.entry(series).or_insert(Absorbed {
            first: number,
            next: 0,
        });
        absorbed.next = number + 1;
    }

    /// What was taken in of a table's parts of a pipeline.
    pub fn absorbed(&self, table: &str, series: u16) -> Option<Absorbed> {
        self.absorbed
            .get(table)
            .and_then(|of_series| of_series.get(&series))
            .copied()
    }

    /// Whether it is the same tap as one of an older version, with all that was taken in there.
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

    /// The lake's numbers of its pipelines.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        let first = u32::from(self.first_pipeline);
        first..first + u32::from(self.pipelines)
    }
}

impl Catalog {
    /// A lake without anything.
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

    /// The tap that is the lake's own folder.
    pub fn own(&self) -> Option<&LakeTap> {
        self.taps.iter().find(|tap| tap.name.is_empty())
    }

    /// Parts of a table.
    pub fn parts(&self, table: &str) -> &[LakePart] {
        self.parts.get(table).map_or(&[], Vec::as_slice)
    }

    /// Whether a part of the capture in the lake's own folder is in this version.
    pub fn has_absorbed(&self, table: &str, series: u16, number: u64) -> bool {
        let absorbed = self.own().and_then(|tap| tap.absorbed(table, series));
        absorbed.is_some_and(|absorbed| number < absorbed.next)
    }

    /// Whether a part of the capture in the lake's own folder has rows that this version has not: it was not taken in, or
    /// could not be. `path`: below the lake's folder.
    pub fn is_besides(&self, table: &str, captured: (u16, u64), path: &str) -> bool {
        let (series, number) = captured;
        let is_left_out = self
            .own()
            .is_some_and(|tap| tap.left_out.iter().any(|out| out == path));
        is_left_out || !self.has_absorbed(table, series, number)
    }

    /// Whether this version is `older`, or a later one of the same lake with all rows that `older` has. Two copies of a lake
    /// that were compacted each by itself may continue one another, with other parts for the same rows.
    pub fn continues(&self, older: &Catalog) -> bool {
        if self.version == older.version {
            return self == older;
        }
        let has = |older: &LakeTap| self.taps.iter().any(|tap| tap.continues(older));
        self.version > older.version && self.grain == older.grain && older.taps.iter().all(has)
    }

    /// The version in this file.
    ///
    /// # Errors
    /// It cannot be read, or a newer program wrote it.
    pub fn read(path: &Path) -> Result<Catalog, LakeError> {
        let bytes = std::fs::read(path).map_err(LakeError::io(path))?;
        Catalog::parse(&bytes, path)
    }

    /// The version in these bytes, which errors name by `path`.
    ///
    /// # Errors
    /// They are none, or a newer program wrote them.
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
        // A newer program may seal its catalogs in another way.
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

    /// Makes this version the newest one, durably: its file is there as a whole or not at all, and never in place of
    /// another.
    pub(crate) fn commit(&self, root: &Path) -> Result<(), LakeError> {
        let mut bytes = serde_json::to_vec(self).expect("a catalog is plain data");
        append_sum(&mut bytes);
        self.commit_bytes(root, &bytes)
    }

    /// The same with the bytes that another copy of the lake has for this version. Its parts must be there and durable.
    ///
    /// # Errors
    /// The disk, or there is such a version.
    pub fn commit_bytes(&self, root: &Path, bytes: &[u8]) -> Result<(), LakeError> {
        self.write_copy(root, bytes)?;
        let folder = root.join(CATALOG_FOLDER);
        let path = version_path(root, self.version);
        let open = path.with_extension("json.open");
        let write = || {
            let mut file = File::create(&open)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            // A link, other than a rename, fails where there is such a file.
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
    /// A second copy, from which a lost version is restored. It is there before the version is.
    fn write_copy(&self, root: &Path, bytes: &[u8]) -> Result<(), LakeError> {
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

/// Removes copies of versions that were not committed, and all but the newest others.
pub(crate) fn prune_copies(root: &Path, newest: u64) -> Result<(), LakeError> {
    let mut copies = copies(root)?;
    let uncommitted = copies.split_off(copies.partition_point(|(version, _)| *version <= newest));
    let excess = copies.len().saturating_sub(COPIES_KEPT);
    for (_, path) in copies.drain(..excess).chain(uncommitted) {
        std::fs::remove_file(&path).map_err(LakeError::io(&path))?;
    }
    Ok(())
}

/// The last key of a version's object: the XXH3 of all bytes before it, so that an entry that is lost or changed is noticed.
const SUM_KEY: &[u8] = b",\"checksum\":\"";

/// A version's bytes are not those that were written.
#[derive(Debug, thiserror::Error)]
#[error("its checksum is wrong, so it was changed or damaged after it was written")]
struct WrongSum;

fn append_sum(object: &mut Vec<u8>) {
    assert_eq!(object.pop(), Some(b'}'), "a catalog is an object");
    let sum = XxHash3_64::oneshot(object);
    object.extend_from_slice(SUM_KEY);
    object.extend_from_slice(format!("{sum:016x}\"}}").as_bytes());
}

/// Versions of earlier programs have no checksum. Where a version has one, but not as its last key, another program wrote it
/// anew.
fn check_sum(object: &[u8], has_sum: bool) -> Result<(), WrongSum> {
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

/// End of the names of versions and of their copies.
const VERSION_SUFFIX: &str = ".json";

/// The name of a file that belongs to a version.
pub(crate) fn version_name(version: u64, suffix: &str) -> String {
    format!("v{version:08}{suffix}")
}

/// Which version a file of this name belongs to.
fn number_of(name: &str, suffix: &str) -> Option<u64> {
    name.strip_prefix('v')?.strip_suffix(suffix)?.parse().ok()
}

/// The versions that have files with this suffix in a folder, oldest first; none if there is no folder.
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

/// The file of a version.
pub fn version_path(root: &Path, version: u64) -> PathBuf {
    root.join(CATALOG_FOLDER)
        .join(version_name(version, VERSION_SUFFIX))
}

/// Which version a file of this name in [`CATALOG_FOLDER`] is.
pub fn version_of(name: &str) -> Option<u64> {
    number_of(name, VERSION_SUFFIX)
}

/// The versions of a lake, oldest first; none if it is no lake.
///
/// # Errors
/// The folder cannot be read.
pub fn versions(root: &Path) -> Result<Vec<u64>, LakeError> {
    numbered_in(&root.join(CATALOG_FOLDER), VERSION_SUFFIX)
}

/// Whether a part of the capture in `root` is in the newest version of a lake there; `false` too where that cannot be
/// found out.
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

    /// A checksum counts wherever it is, and what is only called so is none.
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
        assert!(error.contains("checksum is wrong"), "{error}");
    }
}
