//! Compacted lakes in a store: what to send in which order, and which objects are no longer needed.
//!
//! A lake is copied one version at a time. Compaction and readers can continue meanwhile, because a [`LakeSnapshot`]
//! holds the version. The store has the same layout as the folder:
//!
//! ```text
//!   parts ──► logs of table formats ──► version of the catalog ──► hints
//!              (all parts exist)        (visible from here on)
//! ```
//!
//! Everything in the store's newest version was complete when that version was sent, and parts never change. So the
//! next push sends only the difference between the two versions, and a killed push is simply run again.
//!
//! The rule: a version is sent only once everything that it names is in the store. Objects in the store are deleted
//! only by way of [`StoredLake::outdated`], on explicit request.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_lake::catalog::{CATALOG_FOLDER, version_of, version_path};
use brunt_lake::delta::REPLACED_FILES;
use brunt_lake::guard::part_version;
use brunt_lake::reader::PartFile;
use brunt_lake::{Catalog, DeltaError, LakeError, LakePart, LakeSnapshot, delta};

use crate::address::RemoteAddress;
use crate::error::RemoteError;
use crate::folder::LocalPart;
use crate::store::{Fingerprint, OBJECTS_MAX, ObjectFacts, ObjectMatch, RemoteStore};

/// How many times to look for the newest version if it keeps being replaced and deleted in the meantime.
pub(crate) const ATTEMPTS_MAX: usize = 8;
/// A log's folder, within that of its table.
const LOG_FOLDER: &str = "_delta_log";

/// A lake's objects in a store.
#[derive(Clone, Debug)]
pub struct StoredLake {
    address: RemoteAddress,
    /// Keyed by path below the address.
    objects: BTreeMap<String, ObjectFacts>,
    newest: Option<Catalog>,
    newest_bytes: Vec<u8>,
}

/// The files to send for a version; each list is sent in order, after the previous list.
#[derive(Clone, Debug, Default)]
pub struct LakePlan {
    /// Parts, including those captured since the version.
    pub parts: Vec<LocalPart>,
    /// New versions of tables' logs.
    pub logs: Vec<LocalPart>,
    /// The version of the catalog; empty if the store already has it.
    pub version: Vec<LocalPart>,
    /// Files that replace those in the store.
    pub hints: Vec<LocalPart>,
    /// Number of parts that the store already has according to its newest version.
    pub known: u64,
    /// Tables whose logs cannot be sent yet because they name parts that are neither in the version nor in the store,
    /// or because another program has changed them.
    pub stale_logs: Vec<String>,
    /// For the other tables with a log, the parts that the newest version of the log names.
    log_parts: BTreeMap<String, BTreeSet<String>>,
}

impl StoredLake {
    /// Reads the current state.
    ///
    /// # Errors
    /// The store does not answer or denies the request; a newer program wrote the catalog.
    pub fn read(
        store: &dyn RemoteStore,
        address: &RemoteAddress,
    ) -> Result<StoredLake, RemoteError> {
        for attempt in 1.. {
            let list = store.list(&address.prefix, OBJECTS_MAX)?;
            if list.len() == OBJECTS_MAX {
                return Err(RemoteError::TooMany {
                    address: address.to_string(),
                    count: OBJECTS_MAX,
                });
            }
            let relative =
                |object: ObjectFacts| Some((address.relative(&object.key)?.to_string(), object));
            let objects = list.into_iter().filter_map(relative).collect();
            let mut stored = StoredLake {
                address: address.clone(),
                objects,
                newest: None,
                newest_bytes: Vec::new(),
            };
            let Some(newest) = stored.versions().last() else {
                return Ok(stored);
            };
            match stored.read_version(store, newest) {
                // The next version was sent and this one deleted.
                Err(RemoteError::Gone { .. }) if attempt < ATTEMPTS_MAX => {}
                read => {
                    let (catalog, bytes) = read?;
                    (stored.newest, stored.newest_bytes) = (Some(catalog), bytes);
                    return Ok(stored);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Its newest version; `None` if there is no lake.
    pub fn newest(&self) -> Option<&Catalog> {
        self.newest.as_ref()
    }

    /// The bytes of the newest version, as sent.
    pub(crate) fn newest_bytes(&self) -> &[u8] {
        &self.newest_bytes
    }

    /// All objects, by path below the address.
    pub fn objects(&self) -> &BTreeMap<String, ObjectFacts> {
        &self.objects
    }

    /// The live parts of a table with their sizes, compacted parts first, as in [`LakeSnapshot::parts`].
    pub fn parts(&self, table: &str) -> Vec<(&str, u64)> {
        let compacted = self
            .newest
            .as_ref()
            .map_or(&[][..], |newest| newest.parts(table));
        let compacted = compacted
            .iter()
            .map(|part| (part.path.as_str(), part.bytes));
        let captured = self.objects.iter().filter(|(path, _)| {
            is_captured(path).is_some_and(|(of_table, captured)| {
                let lacks_part = |newest: &Catalog| newest.lacks_part(table, captured, path);
                of_table == table && self.newest.as_ref().is_none_or(lacks_part)
            })
        });
        compacted
            .chain(captured.map(|(path, object)| (path.as_str(), object.bytes)))
            .collect()
    }

    /// Numbers of the existing versions, oldest first.
    fn versions(&self) -> impl Iterator<Item = u64> {
        let folder = format!("{CATALOG_FOLDER}/");
        self.objects
            .keys()
            .filter_map(move |path| version_of(path.strip_prefix(&folder)?))
    }

    fn read_version(
        &self,
        store: &dyn RemoteStore,
        version: u64,
    ) -> Result<(Catalog, Vec<u8>), RemoteError> {
        let path = version_path(Path::new(""), version);
        let mut bytes = Vec::new();
        store.read(&self.address.key(&path.to_string_lossy()), &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(true)
        })?;
        let name = PathBuf::from(format!("{}/{}", self.address, path.display()));
        Ok((Catalog::parse(&bytes, &name)?, bytes))
    }

    /// Finds a captured part that is missing from the store although the lake there claims to contain its rows.
    pub fn hides<'a>(
        &self,
        mut parts: impl Iterator<Item = &'a LocalPart>,
    ) -> Option<&'a LocalPart> {
        let newest = self.newest.as_ref()?;
        parts.find(|part| {
            is_captured(&part.relative).is_some_and(|(table, captured)| {
                !newest.lacks_part(table, captured, &part.relative)
                    && !self.objects.contains_key(&part.relative)
            })
        })
    }

    /// Plans what to send so that the store has the held version and the parts captured since.
    ///
    /// # Errors
    /// The folder cannot be read, or its lake doesn't continue the store's.
    pub fn plan(&self, held: &LakeSnapshot) -> Result<LakePlan, RemoteError> {
        let catalog = held.catalog().expect("a lake");
        if let Some(theirs) = self
            .newest
            .as_ref()
            .filter(|theirs| !catalog.continues(theirs))
        {
            return Err(RemoteError::Diverged {
                address: self.address.to_string(),
                folder: held.root().to_path_buf(),
                theirs: theirs.version,
                ours: catalog.version,
            });
        }
        let mut plan = LakePlan::default();
        let mut live = BTreeSet::new();
        for (table, parts) in &catalog.parts {
            let theirs = self
                .newest
                .as_ref()
                .map_or(&[][..], |theirs| theirs.parts(table));
            let theirs: BTreeMap<&str, &LakePart> = theirs
                .iter()
                .map(|part| (part.path.as_str(), part))
                .collect();
            for part in parts {
                live.insert(part.path.as_str());
                let is_there = self
                    .objects
                    .get(&part.path)
                    .is_some_and(|object| object.bytes == part.bytes);
                if is_there && theirs.get(part.path.as_str()) == Some(&part) {
                    plan.known += 1;
                } else {
                    plan.parts
                        .push(local(held.root(), &held.root().join(&part.path))?);
                }
            }
        }
        for path in held.parts_since()? {
            let part = local(held.root(), &path)?;
            if !self.has(&part)? {
                plan.parts.push(part);
            }
        }
        for table in catalog.parts.keys() {
            self.plan_log(held.root(), table, &live, &mut plan)?;
        }
        let version = local(held.root(), &version_path(held.root(), catalog.version))?;
        if self
            .newest
            .as_ref()
            .is_none_or(|theirs| theirs.version < catalog.version)
        {
            plan.version.push(version);
        }
        Ok(plan)
    }

    fn plan_log(
        &self,
        root: &Path,
        table: &str,
        live: &BTreeSet<&str>,
        plan: &mut LakePlan,
    ) -> Result<(), RemoteError> {
        let log = match delta::log_files(root, table) {
            // Logs continued by other programs may name parts that no version of the catalog lists.
            Err(DeltaError::Foreign { .. }) => {
                plan.stale_logs.push(table.to_string());
                return Ok(());
            }
            log => log?,
        };
        let Some(log) = log else { return Ok(()) };
        let is_there = |part: &String| {
            let path = format!("{table}/{part}");
            live.contains(path.as_str()) || self.objects.contains_key(&path)
        };
        if !log.parts.iter().all(is_there) {
            plan.stale_logs.push(table.to_string());
            return Ok(());
        }
        for path in log.versions.iter().chain(&log.checkpoints) {
            let part = local(root, path)?;
            if self.has(&part)? {
                continue;
            }
            match is_hint(&part.relative) {
                true => plan.hints.push(part),
                false => plan.logs.push(part),
            }
        }
        plan.log_parts.insert(table.to_string(), log.parts);
        Ok(())
    }

    /// Whether an object's tag proves that it has the same bytes as a small file.
    fn has(&self, part: &LocalPart) -> Result<bool, RemoteError> {
        let Some(object) = self.objects.get(&part.relative) else {
            return Ok(false);
        };
        let file = File::open(&part.path).map_err(RemoteError::io(&part.path))?;
        let print = Fingerprint::read(file, part.bytes).map_err(RemoteError::io(&part.path))?;
        Ok(print.likeness(object) == ObjectMatch::Same)
    }

    /// Whether an object was last modified at least `keep` before `now_ms`; false if there is no such object.
    fn is_older(&self, path: &str, keep: Duration, now_ms: u64) -> bool {
        let modified_ms = self
            .objects
            .get(path)
            .map_or(u64::MAX, |object| object.modified_ms);
        modified_ms.saturating_add(keep.as_millis() as u64) <= now_ms
    }

    fn tables_with_logs(&self) -> BTreeSet<&str> {
        self.objects
            .keys()
            .filter(|path| is_of_log(path))
            .filter_map(|path| path.split('/').next())
            .collect()
    }

    /// Keys of objects that are no longer needed, in the order in which to delete them: versions of the catalog whose
    /// successor is at least `keep` old, and parts that are in none of the other versions and not in a log (as of the
    /// version in `plan`). Object times are from the store's clock, `now_ms` is from ours.
    ///
    /// # Errors
    /// The store does not answer or denies the request.
    pub fn outdated(
        &self,
        store: &dyn RemoteStore,
        plan: &LakePlan,
        keep: Duration,
        now_ms: u64,
    ) -> Result<Vec<String>, RemoteError> {
        let is_old = |path: &str| self.is_older(path, keep, now_ms);
        let versions: Vec<u64> = self.versions().collect();
        // If a version itself is old enough, all versions before it are no longer needed.
        let first = versions
            .iter()
            .rposition(|version| is_old(&path(*version)))
            .unwrap_or(0);
        let kept: Vec<Catalog> = versions[first.min(versions.len())..]
            .iter()
            .map(|version| {
                self.read_version(store, *version)
                    .map(|(catalog, _)| catalog)
            })
            .collect::<Result<_, _>>()?;
        let Some((oldest, newest)) = kept.first().zip(kept.last()) else {
            return Ok(Vec::new());
        };
        let live: BTreeSet<&str> = kept
            .iter()
            .flat_map(|kept| kept.parts.values().flatten())
            .map(|part| &*part.path)
            .collect();
        let with_logs = self.tables_with_logs();
        let is_in_log = |table: &str, below: &str| match plan.log_parts.get(table) {
            Some(parts) => parts.contains(below),
            // The parts that this table's log names are unknown, so none of the table's parts may be deleted.
            None => with_logs.contains(table),
        };
        let is_first_old = is_old(&path(oldest.version));
        let is_needed = |object: &str| {
            let Some((table, below)) = object.split_once('/') else {
                return true;
            };
            if is_of_log(object) || live.contains(object) || is_in_log(table, below) {
                return true;
            }
            match (is_captured(object), part_version(Path::new(object))) {
                (Some((table, captured)), _) => {
                    !is_first_old
                        || kept
                            .iter()
                            .any(|kept| kept.lacks_part(table, captured, object))
                }
                // The part may have been sent ahead of its version.
                (None, Some(version)) => version > newest.version || !is_old(object),
                (None, None) => true,
            }
        };
        let versions = versions[..first].iter().map(|version| path(*version));
        let parts = self.objects.keys().filter(|path| !is_needed(path)).cloned();
        Ok(versions
            .chain(parts)
            .map(|path| self.address.key(&path))
            .collect())
    }
}

/// Path of a version below the lake.
fn path(version: u64) -> String {
    version_path(Path::new(""), version)
        .to_string_lossy()
        .into_owned()
}

/// Table, series and number of a captured part, from its path; `None` for other paths.
pub(crate) fn is_captured(path: &str) -> Option<(&str, (u16, u64))> {
    let (table, name) = path.split_once('/')?;
    if name.contains('/') {
        None
    } else {
        Some((table, PartFile::parse(Path::new(name))?))
    }
}

/// Whether the path is that of a file in a table's log.
pub(crate) fn is_of_log(path: &str) -> bool {
    path.split('/').nth(1) == Some(LOG_FOLDER)
}

/// Whether the path is that of a log file that gets replaced.
pub(crate) fn is_hint(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    is_of_log(path) && REPLACED_FILES.contains(&name)
}

fn local(root: &Path, path: &Path) -> Result<LocalPart, RemoteError> {
    let bytes = path.metadata().map_err(RemoteError::io(path))?.len();
    let part = LocalPart::new(root, path.to_path_buf(), bytes);
    part.ok_or_else(|| {
        let what = "its name is not a valid key".to_string();
        RemoteError::Lake(LakeError::Catalog {
            path: path.to_path_buf(),
            what,
        })
    })
}
