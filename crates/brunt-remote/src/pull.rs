//! Fetches the parts of a lake from an object store into a folder, for all tools that read folders. Can be killed at
//! any time and run again.
//!
//! The newest version of a compacted lake is fetched: first its parts, then the version.
//!
//! The rule: a file gets a part's name only once it is complete and durable; an existing file with different bytes is
//! an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_lake::catalog::CATALOG_FOLDER;
use brunt_lake::{Catalog, LakePart, LakeSnapshot, delta, guard};

use crate::address::{RemoteAddress, is_safe_path};
use crate::error::RemoteError;
use crate::folder::{LakeMark, LocalPart, MARK_NAME, forget_moved, is_part};
use crate::lake::{ATTEMPTS_MAX, StoredLake, is_captured, is_hint, is_of_log};
use crate::mover::{is_object_same, read_mark};
use crate::retry::StoreRetry;
use crate::store::{Fingerprint, ObjectFacts, ObjectMatch, RemoteStore, StopWaiting};

/// Counters of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PullCounts {
    /// Parts that were fetched and compared with the store's metadata.
    pub parts_fetched: u64,
    /// Their bytes.
    pub bytes_fetched: u64,
    /// Parts that were already here, byte for byte.
    pub parts_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// Parts that differ from the local file of the same name; neither was changed.
    pub parts_refused: u64,
    /// Objects that aren't parts, or whose keys aren't valid file names.
    pub objects_left_out: u64,
    /// Requests without a useful answer, each of which was retried.
    pub retries: u64,
}

/// Fetches a lake.
pub struct Puller<'a> {
    /// The source.
    pub address: &'a RemoteAddress,
    /// The store.
    pub store: &'a dyn RemoteStore,
    /// The destination.
    pub folder: &'a Path,
    /// Maximum time without an answer from the store.
    pub silence_max: Duration,
    /// Ends the fetch early.
    pub stop: &'a StopWaiting,
    /// Receives the counts so far and the total number of bytes.
    pub progress: &'a dyn Fn(&PullCounts, u64),
    /// Receives messages for the user.
    pub tell: &'a dyn Fn(&str),
}

impl Puller<'_> {
    /// Fetches all parts that are missing here. `counts` is valid even after an error.
    ///
    /// # Errors
    /// The store doesn't answer for too long or denies a request; the folder belongs to another lake or cannot be
    /// written to; or a part was refused (the first such error is returned).
    pub fn run(&self, counts: &mut PullCounts) -> Result<(), RemoteError> {
        let mut retry = StoreRetry::new(self.silence_max, self.stop.clone());
        let result = self.fetch_all(&mut retry, counts);
        counts.retries = retry.retries() + self.store.retries();
        result
    }

    fn fetch_all(
        &self,
        retry: &mut StoreRetry,
        counts: &mut PullCounts,
    ) -> Result<(), RemoteError> {
        let mut stored = retry.until_answered(|| StoredLake::read(self.store, self.address))?;
        if stored.objects().contains_key(MARK_NAME) {
            let theirs = retry.until_answered(|| read_mark(self.store, self.address))?;
            match LakeMark::read(self.folder)? {
                Some(ours) if ours != theirs => {
                    return Err(RemoteError::Taken {
                        address: self.folder.display().to_string(),
                        theirs: format!("mark {}, not {}", ours.lake, theirs.lake),
                    });
                }
                Some(_) => {}
                None => theirs.write(self.folder)?,
            }
        }
        for attempt in 1.. {
            let Some(catalog) = stored.newest() else {
                self.fetch_wanted(retry, &stored, &is_part, &|_| false, counts)?;
                break;
            };
            let error = match self.fetch_lake(retry, &stored, catalog, counts) {
                Err(error @ (RemoteError::Gone { .. } | RemoteError::Incomplete { .. })) => error,
                other => {
                    other?;
                    break;
                }
            };
            // The parts may have been deleted because there is a newer version.
            let before = catalog.version;
            stored = retry.until_answered(|| StoredLake::read(self.store, self.address))?;
            let is_newer = stored
                .newest()
                .is_some_and(|newest| newest.version > before);
            if attempt >= ATTEMPTS_MAX || !is_newer {
                return Err(error);
            }
        }
        forget_moved(self.folder)
    }

    /// Fetches a version of a lake and the parts captured since; the version comes last.
    fn fetch_lake(
        &self,
        retry: &mut StoreRetry,
        stored: &StoredLake,
        catalog: &Catalog,
        counts: &mut PullCounts,
    ) -> Result<(), RemoteError> {
        let held = LakeSnapshot::open(self.folder)?;
        let empty = Catalog::empty(catalog.grain);
        let ours = held.catalog().unwrap_or(&empty);
        if !self.continues(ours, catalog)? {
            return Ok(());
        }
        let live: BTreeMap<&str, &LakePart> = catalog
            .parts
            .values()
            .flatten()
            .map(|part| (&*part.path, part))
            .collect();
        if let Some(part) = live
            .keys()
            .find(|part| !stored.objects().contains_key(**part))
        {
            let (address, version) = (self.address.to_string(), catalog.version);
            return Err(RemoteError::Incomplete {
                address,
                version,
                part: part.to_string(),
            });
        }
        let known: BTreeMap<&str, &LakePart> = ours
            .parts
            .values()
            .flatten()
            .map(|part| (&*part.path, part))
            .collect();
        // Until the new version is committed, readers of the previous one must ignore the new parts.
        if ours.version > 0 && ours.version < catalog.version {
            guard::mark_pending(self.folder, catalog.version)?;
        }
        let is_known = |path: &str| known.contains_key(path) && known.get(path) == live.get(path);
        let lacks_part = |path: &str| {
            is_captured(path)
                .is_some_and(|(table, captured)| catalog.lacks_part(table, captured, path))
        };
        let is_wanted = |path: &str| live.contains_key(path) || is_of_log(path) || lacks_part(path);
        self.fetch_wanted(retry, stored, &is_wanted, &is_known, counts)?;
        // Parts named by a log aren't necessarily in the version.
        let named = self.parts_in_logs(catalog)?;
        let is_named = |path: &str| named.contains(path) && !live.contains_key(path);
        self.fetch_wanted(retry, stored, &is_named, &|_| false, counts)?;
        if ours.version < catalog.version {
            self.sync(live.keys())?;
            catalog.commit_bytes(self.folder, stored.newest_bytes())?;
        }
        Ok(())
    }

    /// Whether the store's version is the folder's or continues it. If the folder's version is newer, a message says
    /// so.
    fn continues(&self, ours: &Catalog, theirs: &Catalog) -> Result<bool, RemoteError> {
        if ours.version == 0 || theirs.continues(ours) {
            return Ok(true);
        }
        if !ours.continues(theirs) {
            return Err(RemoteError::Diverged {
                address: self.address.to_string(),
                folder: self.folder.to_path_buf(),
                theirs: theirs.version,
                ours: ours.version,
            });
        }
        let (path, ours, theirs) = (self.folder.display(), ours.version, theirs.version);
        (self.tell)(&format!(
            "{path} has version {ours} of the lake, which is newer than version {theirs} \
             in the store"
        ));
        Ok(false)
    }

    /// The paths of the parts that the folder's logs name.
    fn parts_in_logs(&self, catalog: &Catalog) -> Result<BTreeSet<String>, RemoteError> {
        let mut named = BTreeSet::new();
        for table in catalog.parts.keys() {
            let parts = delta::log_files(self.folder, table)?
                .map(|log| log.parts)
                .unwrap_or_default();
            named.extend(parts.into_iter().map(|part| format!("{table}/{part}")));
        }
        Ok(named)
    }

    /// Makes the names of the parts and the catalog's folder durable.
    fn sync<'b>(&self, parts: impl Iterator<Item = &'b &'b str>) -> Result<(), RemoteError> {
        let catalog = self.folder.join(CATALOG_FOLDER);
        std::fs::create_dir_all(&catalog).map_err(RemoteError::io(&catalog))?;
        let mut folders = BTreeSet::from([self.folder.to_path_buf()]);
        for part in parts {
            let path = self.folder.join(part);
            let above = path
                .ancestors()
                .skip(1)
                .take_while(|above| above.starts_with(self.folder));
            folders.extend(above.map(Path::to_path_buf));
        }
        for folder in folders {
            File::open(&folder)
                .and_then(|open| open.sync_all())
                .map_err(RemoteError::io(&folder))?;
        }
        Ok(())
    }

    /// Fetches all wanted objects that are missing here.
    fn fetch_wanted(
        &self,
        retry: &mut StoreRetry,
        stored: &StoredLake,
        is_wanted: &dyn Fn(&str) -> bool,
        is_known: &dyn Fn(&str) -> bool,
        counts: &mut PullCounts,
    ) -> Result<(), RemoteError> {
        let mut refused = None;
        let wanted = stored.objects().iter().filter(|(path, _)| is_wanted(path));
        let total = wanted.map(|(_, object)| object.bytes).sum();
        for (relative, object) in stored.objects() {
            if !is_wanted(relative) {
                let is_known = relative == MARK_NAME || stored.newest().is_some();
                counts.objects_left_out += u64::from(!is_known);
                continue;
            }
            if !is_safe_path(relative) {
                counts.objects_left_out += 1;
                let (address, key) = (
                    self.address.to_string(),
                    object.key.escape_debug().to_string(),
                );
                (self.tell)(&RemoteError::UnsafeKey { address, key }.to_string());
                continue;
            }
            let has_size = |bytes| {
                self.folder
                    .join(relative)
                    .metadata()
                    .is_ok_and(|about| about.len() == bytes)
            };
            let fetched = match is_known(relative) && has_size(object.bytes) {
                true => Ok(Fetched::Before),
                false => retry.until_answered(|| self.fetch(object, relative)),
            };
            match fetched {
                // Log files aren't parts.
                Ok(_) if is_of_log(relative) => {}
                Ok(Fetched::New) => {
                    counts.parts_fetched += 1;
                    counts.bytes_fetched += object.bytes;
                }
                Ok(Fetched::Before) => {
                    counts.parts_found += 1;
                    counts.bytes_found += object.bytes;
                }
                Err(error @ RemoteError::Conflict { .. }) => {
                    counts.parts_refused += 1;
                    (self.tell)(&error.to_string());
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            counts.retries = retry.retries() + self.store.retries();
            (self.progress)(counts, total);
        }
        refused.map_or(Ok(()), Err)
    }

    /// Fetches one part.
    fn fetch(&self, object: &ObjectFacts, relative: &str) -> Result<Fetched, RemoteError> {
        let path = self.folder.join(relative);
        let object_name = || format!("s3://{}/{}", self.address.bucket, object.key);
        if path.symlink_metadata().is_ok() && !is_hint(relative) {
            let part = LocalPart {
                path: path.clone(),
                relative: relative.to_string(),
                bytes: object.bytes,
            };
            let file = File::open(&path).map_err(RemoteError::io(&path))?;
            let print = Fingerprint::read(file, object.bytes).map_err(RemoteError::io(&path))?;
            let is_same = match print.likeness(object) {
                ObjectMatch::Same => true,
                ObjectMatch::Different => false,
                ObjectMatch::Unknown => is_object_same(self.store, &object.key, &part)?.0,
            };
            let conflict = || RemoteError::Conflict {
                path,
                object: object_name(),
            };
            return if is_same {
                Ok(Fetched::Before)
            } else {
                Err(conflict())
            };
        }
        let parent = path.parent().expect("parts are in their tables' folders");
        std::fs::create_dir_all(parent).map_err(RemoteError::io(parent))?;
        let open = open_name(&path);
        let io = |error| RemoteError::io(&open)(error);
        let mut file = File::create(&open).map_err(io)?;
        let mut bytes = 0;
        self.store.read(&object.key, &mut |piece| {
            bytes += piece.len() as u64;
            file.write_all(piece).map_err(io)?;
            Ok(true)
        })?;
        file.sync_all().map_err(io)?;
        // Compare the received bytes with the store's tag. If the tag proves nothing, the length and the transport's
        // checks have to suffice, plus the checksums in the part when it is read.
        let print = Fingerprint::read(File::open(&open).map_err(io)?, object.bytes).map_err(io)?;
        if bytes != object.bytes || print.likeness(object) == ObjectMatch::Different {
            return Err(RemoteError::Conflict {
                path: open,
                object: object_name(),
            });
        }
        std::fs::rename(&open, &path).map_err(RemoteError::io(&path))?;
        Ok(Fetched::New)
    }
}

/// The name of a part until it is complete.
fn open_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".open");
    PathBuf::from(name)
}

enum Fetched {
    New,
    Before,
}
