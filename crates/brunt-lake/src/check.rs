//! Finds missing or damaged files in a lake and rebuilds its catalog. Used by `brunt lake check`.
//!
//! ```text
//!   newest version readable, no newer parts ──► intact, or parts are lost: they can't be recovered
//!   else a copy of the catalog that fits the parts ──► restored
//!   else every part is undamaged and names its origin ──► rebuilt
//! ```
//!
//! Delta Lake logs are compared with the catalog, and rewritten from it ([`crate::delta`]).
//!
//! The rule: nothing is deleted here. Unreadable catalog files are renamed (`*.damaged`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use brunt_core::FileLock;
use parquet::data_type::ByteArray;
use parquet::file::reader::FileReader;

use crate::batch::Batch;
use crate::catalog::{
    CATALOG_FOLDER, Catalog, LakePart, LakeTap, copies, damaged_copies, renew_copy, version_path,
    versions,
};
use crate::compact::{LakeLayout, lock_lake, now_ns};
use crate::delta::{self, DeltaError, LogRepair};
use crate::error::LakeError;
use crate::guard;
use crate::origin::{PartOrigin, add_tap};
use crate::part_writer::extremes;
use crate::place::{Grain, Hour, Placing, pipeline_of};
use crate::reader::{PartReader, captured_parts};
use crate::snapshot::LakeSnapshot;

/// A problem with a lake.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A problem in the catalog or a part.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A problem in a Delta Lake log.
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

impl Problem {
    /// Whether a repair of the catalog may fix it.
    pub fn is_of_catalog(&self) -> bool {
        let Problem::Lake(error) = self else {
            return false;
        };
        matches!(
            error,
            LakeError::Catalog { .. } | LakeError::NoCatalog { .. }
        )
    }

    /// Whether repairing a Delta Lake log fixes this problem by rewriting the log.
    pub fn is_of_log(&self) -> bool {
        matches!(self, Problem::Delta(DeltaError::Damaged { .. }))
    }
}

/// Result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// The newest readable version of the catalog; `None` if no version is readable.
    pub version: Option<u64>,
    /// Undamaged parts, compacted and captured.
    pub parts: u64,
    /// Rows in those parts.
    pub rows: u64,
    /// Missing and damaged files.
    pub problems: Vec<Problem>,
}

/// Reads a whole lake, or a trace that was not compacted, and verifies it against its checksums and catalog.
///
/// # Errors
/// The folder cannot be read.
pub fn check(root: &Path, layouts: &[LakeLayout]) -> Result<Checked, LakeError> {
    let mut found = Checked::default();
    let snapshot = match LakeSnapshot::open(root) {
        Ok(snapshot) => Some(snapshot),
        Err(error @ (LakeError::Catalog { .. } | LakeError::CatalogFormat { .. })) => {
            found.problems.push(error.into());
            None
        }
        Err(error) => return Err(error),
    };
    let catalog = snapshot.as_ref().and_then(LakeSnapshot::catalog);
    found.version = catalog.map(|catalog| catalog.version);
    for version in versions(root)? {
        // Check only older versions here: the snapshot has already read the newest.
        if found.version.is_some_and(|newest| version < newest) {
            match Catalog::read(&version_path(root, version)) {
                Err(error) if !error.is_gone() => found.problems.push(error.into()),
                _ => {}
            }
        }
    }
    if let Err(error) = guard::refuse_lost_version(root, found.version.unwrap_or(0)) {
        found.problems.push(error.into());
    }
    for (_, _, error) in damaged_copies(root)? {
        found.problems.push(error.into());
    }
    let Some(snapshot) = &snapshot else {
        return Ok(found);
    };
    let catalogs = readable_versions(root)?;
    for layout in layouts {
        let name = layout.table.name;
        let listed = catalog.map_or(&[][..], |catalog| catalog.parts(name));
        let listed: BTreeMap<PathBuf, &LakePart> = listed
            .iter()
            .map(|part| (root.join(&part.path), part))
            .collect();
        for part in snapshot.parts(layout.table)? {
            match sound_rows(&part.path, layout, listed.get(&part.path).copied()) {
                Ok(rows) => {
                    found.parts += 1;
                    found.rows += rows;
                }
                // A missing captured part isn't a problem: a capture deletes parts to stay within its size limit.
                Err(error) if error.is_gone() && part.captured.is_some() => {}
                Err(error) => found.problems.push(error.into()),
            }
        }
        match delta::check_log(root, layout.table, &catalogs) {
            Ok(problems) => found
                .problems
                .extend(problems.into_iter().map(Problem::from)),
            Err(error) => found.problems.push(error.into()),
        }
    }
    Ok(found)
}

/// Readable catalog versions, from here or from the copies, oldest first.
fn readable_versions(root: &Path) -> Result<Vec<Catalog>, LakeError> {
    let here = versions(root)?.into_iter();
    let here = here.map(|version| version_path(root, version));
    let copies = copies(root)?.into_iter().map(|(_, path)| path);
    let read = copies
        .chain(here)
        .filter_map(|path| Catalog::read(&path).ok());
    let readable: BTreeMap<u64, Catalog> = read.map(|catalog| (catalog.version, catalog)).collect();
    Ok(readable.into_values().collect())
}

fn sound_rows(
    path: &Path,
    layout: &LakeLayout,
    listed: Option<&LakePart>,
) -> Result<u64, LakeError> {
    if let Some(listed) = listed {
        guard::check_part(path, listed.bytes)?;
        guard::verify_part(path, layout.table, listed.rows)?;
        if let Some(sum) = listed.sum {
            guard::check_sum(path, sum)?;
        }
        return Ok(listed.rows);
    }
    let part = PartReader::open(path.to_path_buf(), layout.table)?;
    part.verify()?;
    part.rows()
}

/// Result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// The catalog and its parts were intact; nothing was done.
    Whole,
    /// Renamed unreadable older versions, or copies of versions.
    SetAside,
    /// Restored this version from a copy.
    Restored(u64),
    /// Rebuilt this version from the parts.
    Rebuilt {
        /// Version number.
        version: u64,
        /// Lake parts in the batch.
        parts: usize,
        /// Rows in those parts.
        rows: u64,
    },
    /// Committed this version, which drops the parts that are missing or truncated.
    WithoutLost {
        /// Version number.
        version: u64,
        /// Paths of those parts, relative to the lake's folder.
        lost: Vec<String>,
    },
}

/// Restores the catalog of a lake from a copy or rebuilds it from the parts. With `without_lost`, missing or truncated
/// parts are removed from the catalog, and their rows are lost.
///
/// # Errors
/// Parts are lost, damaged, or don't name their origin; another process is writing to the lake; or the disk failed.
/// Nothing is changed in these cases, except that unreadable catalog files may have been renamed.
pub fn repair(
    root: &Path,
    layouts: &[LakeLayout],
    program: &str,
    without_lost: bool,
) -> Result<Repaired, LakeError> {
    let _lock: FileLock = lock_lake(root)?;
    let done = repair_catalog(root, layouts, program, without_lost)?;
    let is_mended = mend_copies(root)?;
    Ok(match done {
        Repaired::Whole if is_mended => Repaired::SetAside,
        done => done,
    })
}

/// Repairs the Delta Lake logs of a lake from its catalog, which must be intact. Logs that another program has
/// continued are left alone.
///
/// # Errors
/// The catalog or a part is missing or damaged, another process is writing to the lake, or the disk failed.
pub fn repair_logs(root: &Path, layouts: &[LakeLayout]) -> Result<Vec<LogRepair>, Problem> {
    let _lock: FileLock = lock_lake(root)?;
    if LakeSnapshot::open_whole(root)?.catalog().is_none() {
        return Ok(Vec::new());
    }
    let catalogs = readable_versions(root)?;
    let mut repaired = Vec::new();
    for layout in layouts {
        repaired.extend(delta::repair_log(root, layout.table, &catalogs)?);
    }
    Ok(repaired)
}

/// Renames unreadable copies, and recreates the newest version's copy if it is missing. `true` if any copy was
/// unreadable.
fn mend_copies(root: &Path) -> Result<bool, LakeError> {
    let damaged: Vec<(u64, PathBuf)> = damaged_copies(root)?
        .into_iter()
        .map(|(version, path, _)| (version, path))
        .collect();
    set_aside(&damaged)?;
    if let Some(newest) = versions(root)?.pop() {
        renew_copy(root, newest)?;
    }
    Ok(!damaged.is_empty())
}

fn repair_catalog(
    root: &Path,
    layouts: &[LakeLayout],
    program: &str,
    without_lost: bool,
) -> Result<Repaired, LakeError> {
    let mut readable = Vec::new();
    let mut damaged = Vec::new();
    for version in versions(root)? {
        match Catalog::read(&version_path(root, version)) {
            Ok(catalog) => readable.push(catalog),
            Err(LakeError::Catalog { path, .. }) => damaged.push((version, path)),
            Err(error) => return Err(error),
        }
    }
    let newest = readable.last().map_or(0, |catalog| catalog.version);
    let is_newest_damaged = damaged.iter().any(|(version, _)| *version > newest);
    let is_lost = match guard::refuse_lost_version(root, newest) {
        Err(LakeError::NoCatalog { .. }) => true,
        other => other.map(|()| is_newest_damaged)?,
    };
    if !is_lost {
        let done = repair_listed(root, readable.pop(), program, without_lost)?;
        set_aside(&damaged)?;
        return Ok(match done {
            Repaired::Whole if !damaged.is_empty() => Repaired::SetAside,
            done => done,
        });
    }
    if let Some((copy, bytes)) = fitting_copy(root, newest, &damaged)? {
        set_aside(&damaged)?;
        copy.commit_bytes(root, &bytes)?;
        return Ok(Repaired::Restored(copy.version));
    }
    let last = damaged.iter().map(|(version, _)| *version).max();
    let (mut rebuilt, replaced) = rebuild(root, layouts, program)?;
    let mut last = last.unwrap_or(0).max(newest).max(rebuilt.version);
    let mut known = readable.pop();
    for (version, path) in copies(root)? {
        last = last.max(version);
        if let Ok(copy) = Catalog::read(&path)
            && known.as_ref().is_none_or(|known| known.version < version)
        {
            known = Some(copy);
        }
    }
    if let Some(known) = known.filter(|_| !without_lost) {
        refuse_forgotten(root, &known, &replaced)?;
    }
    rebuilt.version = last + 1;
    set_aside(&damaged)?;
    rebuilt.commit(root)?;
    let parts = rebuilt.parts.values().flatten();
    Ok(Repaired::Rebuilt {
        version: rebuilt.version,
        parts: parts.clone().count(),
        rows: parts.map(|part| part.rows).sum(),
    })
}

/// Repairs a lake whose newest version is readable but may list lost parts.
fn repair_listed(
    root: &Path,
    newest: Option<Catalog>,
    program: &str,
    without_lost: bool,
) -> Result<Repaired, LakeError> {
    let Some(mut catalog) = newest else {
        return Ok(Repaired::Whole);
    };
    match guard::check_parts(root, &catalog) {
        Ok(()) => return Ok(Repaired::Whole),
        Err(LakeError::PartLost { .. }) if without_lost => {}
        Err(error) => return Err(error),
    }
    let mut lost = Vec::new();
    for parts in catalog.parts.values_mut() {
        parts.retain(|part| {
            let is_whole = guard::check_part(&root.join(&part.path), part.bytes).is_ok();
            if !is_whole {
                lost.push(part.path.clone());
            }
            is_whole
        });
    }
    catalog.version += 1;
    catalog.program = program.to_string();
    catalog.committed_ns = now_ns();
    catalog.commit(root)?;
    Ok(Repaired::WithoutLost {
        version: catalog.version,
        lost,
    })
}

/// The newest copy of the catalog, if no version or part is newer and it lists only parts that exist.
fn fitting_copy(
    root: &Path,
    newest: u64,
    damaged: &[(u64, PathBuf)],
) -> Result<Option<(Catalog, Vec<u8>)>, LakeError> {
    let last = damaged.iter().map(|(version, _)| *version).max();
    let last = last.unwrap_or(0).max(newest);
    for (version, path) in copies(root)?.into_iter().rev() {
        if version < last {
            break;
        }
        let bytes = std::fs::read(&path).map_err(LakeError::io(&path))?;
        let Ok(copy) = Catalog::parse(&bytes, &path) else {
            continue;
        };
        let is_last = guard::refuse_lost_version(root, version).is_ok();
        if version > newest && is_last && guard::check_parts(root, &copy).is_ok() {
            return Ok(Some((copy, bytes)));
        }
    }
    Ok(None)
}

fn set_aside(damaged: &[(u64, PathBuf)]) -> Result<(), LakeError> {
    for (_, path) in damaged {
        let aside = path.with_extension("json.damaged");
        std::fs::rename(path, &aside).map_err(LakeError::io(path))?;
    }
    Ok(())
}

/// A part and the origin that it records.
struct Found {
    part: LakePart,
    origin: PartOrigin,
}

/// Fails if parts listed by an older version are missing and no other part replaces them.
fn refuse_forgotten(
    root: &Path,
    known: &Catalog,
    replaced: &BTreeSet<String>,
) -> Result<(), LakeError> {
    let mut needed = known.clone();
    for parts in needed.parts.values_mut() {
        parts.retain(|part| part.rows > 0 && !replaced.contains(&part.path));
    }
    guard::check_parts(root, &needed)
}

/// The catalog described by the parts, numbered like the newest version among them, and the parts that other parts
/// replace.
fn rebuild(
    root: &Path,
    layouts: &[LakeLayout],
    program: &str,
) -> Result<(Catalog, BTreeSet<String>), LakeError> {
    let marked = guard::marked_versions(root)?;
    let mut version = marked.last().copied().unwrap_or(0);
    let mut all_replaced = BTreeSet::new();
    let mut catalog = Catalog::empty(Grain::Day);
    let mut taps: Vec<LakeTap> = Vec::new();
    for layout in layouts {
        let name = layout.table.name;
        let folder = root.join(name);
        let files = match folder.is_dir() {
            true => guard::lake_files(&folder)?,
            false => Vec::new(),
        };
        let mut found = Vec::new();
        for path in files.into_iter().filter(|path| guard::is_complete(path)) {
            let of = guard::part_version(&path).unwrap_or(0);
            version = version.max(of);
            // Skip parts that a killed process didn't commit: their source parts still exist.
            if !marked.contains(&of) {
                found.push(read_part(root, path, layout)?);
            }
        }
        let replaced: BTreeSet<String> = found
            .iter()
            .flat_map(|found| found.origin.replaces.iter().cloned())
            .collect();
        for Found { origin, .. } in &found {
            catalog.grain = origin.grain;
            origin.taps.iter().for_each(|tap| add_tap(&mut taps, tap));
        }
        let mut parts: Vec<LakePart> = found.into_iter().map(|found| found.part).collect();
        parts.retain(|part| !replaced.contains(&part.path));
        if parts.iter().any(|part| part.rows > 0) {
            parts.retain(|part| part.rows > 0);
        }
        parts.sort_by(|one, other| one.path.cmp(&other.path));
        if !parts.is_empty() {
            catalog.parts.insert(name.to_string(), parts);
        }
        all_replaced.extend(replaced);
    }
    taps.sort_by_key(|tap| (tap.first_pipeline, !tap.name.is_empty()));
    leave_out_damaged(root, layouts, &mut taps)?;
    catalog.taps = taps;
    note_times(root, layouts, &mut catalog)?;
    catalog.version = version;
    catalog.program = program.to_string();
    catalog.committed_ns = now_ns();
    Ok((catalog, all_replaced))
}

fn read_part(root: &Path, path: PathBuf, layout: &LakeLayout) -> Result<Found, LakeError> {
    let part = PartReader::open(path.clone(), layout.table)?;
    part.verify()?;
    let Some(origin) = PartOrigin::of(&part) else {
        return Err(LakeError::NoOrigin { path });
    };
    let below = path.strip_prefix(root).unwrap_or(&path);
    let columns = layout.table.columns;
    let extremes = extremes(part.file.metadata())
        .into_iter()
        .filter_map(|(index, extremes)| Some((columns.get(index)?.name, extremes)))
        .filter(|(name, _)| layout.keys().any(|key| key == *name))
        .map(|(name, extremes)| (name.to_string(), extremes));
    Ok(Found {
        part: LakePart {
            path: below.to_string_lossy().into_owned(),
            rows: part.rows()?,
            bytes: path.metadata().map_err(LakeError::io(&path))?.len(),
            sum: Some(guard::sum_part(&path)?),
            hour: hour_of_folder(below),
            extremes: extremes.collect(),
        },
        origin,
    })
}

/// The first hour of a part's folder, parsed from the path.
fn hour_of_folder(part: &Path) -> Hour {
    let value = |key: &str| {
        let mut names = part.iter().filter_map(|name| name.to_str());
        names.find_map(|name| name.strip_prefix(key))
    };
    Grain::hour_of_values(value("date=")?, value("hour="))
}

/// Records unreadable captured parts as left out: although they count as absorbed, their rows may exist nowhere else.
fn leave_out_damaged(
    root: &Path,
    layouts: &[LakeLayout],
    taps: &mut [LakeTap],
) -> Result<(), LakeError> {
    let Some(own) = taps.iter_mut().find(|tap| tap.name.is_empty()) else {
        return Ok(());
    };
    for layout in layouts {
        let name = layout.table.name;
        for part in captured_parts(root, name)? {
            let is_absorbed = part.captured.is_some_and(|(series, number)| {
                own.absorbed(name, series)
                    .is_some_and(|absorbed| number < absorbed.next)
            });
            let read = PartReader::open(part.path.clone(), layout.table);
            let is_damaged = read.and_then(|part| part.verify()).is_err();
            if is_absorbed && is_damaged {
                let below = part.path.strip_prefix(root).unwrap_or(&part.path);
                own.left_out.push(below.to_string_lossy().into_owned());
            }
        }
    }
    Ok(())
}

/// Records id times for traces that may still get parts.
fn note_times(root: &Path, layouts: &[LakeLayout], catalog: &mut Catalog) -> Result<(), LakeError> {
    let open: Vec<_> = catalog
        .taps
        .iter()
        .filter(|tap| !tap.is_complete)
        .map(LakeTap::numbers)
        .collect();
    for layout in layouts {
        let (Some(ids), Placing::Time(times)) = (layout.clock, layout.placing) else {
            continue;
        };
        let (mut rows, mut texts): (_, Vec<ByteArray>) = (Batch::new(layout.table), Vec::new());
        let parts = catalog.parts(layout.table.name).to_vec();
        for part in parts {
            let mut read = PartReader::open(root.join(&part.path), layout.table)?;
            for group in 0..read.file.num_row_groups() {
                read.read_group(group, &mut rows, &mut texts)?;
                for (id, time) in rows.ints(ids).iter().zip(rows.ints(times)) {
                    let pipeline = u32::from(pipeline_of(*id));
                    if open.iter().any(|numbers| numbers.contains(&pipeline)) {
                        catalog.timeline.note(*id, *time);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether this folder contains a lake, intact or not.
pub fn is_lake(root: &Path) -> bool {
    root.join(CATALOG_FOLDER).is_dir() || guard::refuse_lost_version(root, 0).is_err()
}

#[cfg(test)]
mod tests;
