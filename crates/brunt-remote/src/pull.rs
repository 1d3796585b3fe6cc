//! The way back: fetches the parts of a lake from an object store into a folder, so that everything that reads folders
//! reads them. Can be killed at any time and run again.
//!
//! The rule: a file gets a part's name when it is whole and on the disk; one that is there with other bytes is an error.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brunt_core::Nanos;

use crate::address::{RemoteAddress, is_safe_path};
use crate::error::RemoteError;
use crate::folder::{LakeMark, LocalPart, MARK_NAME, is_part};
use crate::mover::{is_object_same, read_mark};
use crate::plan::Patience;
use crate::store::{Fingerprint, Likeness, ObjectFacts, RemoteStore, StopWaiting};

/// Objects of a lake at most, as their names are kept in memory: 40 years of hourly parts of 25 tables.
const OBJECTS_MAX: usize = 10_000_000;

/// What was fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PullCounts {
    /// Parts that were fetched and compared with what the store says of them.
    pub parts_fetched: u64,
    /// Their bytes.
    pub bytes_fetched: u64,
    /// Parts that were here before, byte for byte.
    pub parts_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// Parts that differ from a file of their name here; neither was changed.
    pub parts_refused: u64,
    /// Objects that are no parts or whose keys cannot be names of files.
    pub objects_left_out: u64,
    /// Requests without a useful answer, each tried again.
    pub retries: u64,
}

/// Fetches a lake.
pub struct Puller<'a> {
    /// Where from.
    pub address: &'a RemoteAddress,
    /// The store.
    pub store: &'a dyn RemoteStore,
    /// Where to.
    pub folder: &'a Path,
    /// The store may be silent for so long.
    pub silence_max: Duration,
    /// Ends it early.
    pub stop: &'a StopWaiting,
    /// Is shown what was fetched of so many bytes.
    pub progress: &'a dyn Fn(&PullCounts, u64),
    /// Takes what the user should know.
    pub tell: &'a dyn Fn(&str),
}

impl Puller<'_> {
    /// Fetches all parts that are not here. What was done is in `counts`, also after an error.
    ///
    /// # Errors
    /// The store does not answer for too long, or refuses; the folder belongs to another lake, or cannot be written to;
    /// the first of the parts that are refused.
    pub fn run(&self, counts: &mut PullCounts) -> Result<(), RemoteError> {
        let (mut patience, begun) = (Patience::default(), Instant::now());
        let mut ask =
            Asking { patience: &mut patience, begun, silence_max: self.silence_max, stop: self.stop };
        let result = self.fetch_all(&mut ask, counts);
        counts.retries = patience.retries + self.store.retries();
        result
    }

    fn fetch_all(&self, ask: &mut Asking<'_>, counts: &mut PullCounts) -> Result<(), RemoteError> {
        let objects = ask.until_answered(|| self.store.list(&self.address.prefix, OBJECTS_MAX))?;
        if objects.len() == OBJECTS_MAX {
            return Err(RemoteError::TooMany { address: self.address.to_string(), count: OBJECTS_MAX });
        }
        let mark_key = self.address.key(MARK_NAME);
        if objects.iter().any(|object| object.key == mark_key) {
            let theirs = ask.until_answered(|| read_mark(self.store, self.address))?;
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
        let mut refused = None;
        let total = objects.iter().map(|object| object.bytes).sum();
        for object in objects.iter().filter(|object| object.key != mark_key) {
            let relative = self.address.relative(&object.key).filter(|relative| is_safe_path(relative));
            let Some(relative) = relative else {
                counts.objects_left_out += 1;
                let (address, key) = (self.address.to_string(), object.key.escape_debug().to_string());
                (self.tell)(&RemoteError::UnsafeKey { address, key }.to_string());
                continue;
            };
            if !is_part(relative) {
                counts.objects_left_out += 1;
                continue;
            }
            match ask.until_answered(|| self.fetch(object, relative)) {
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
            counts.retries = ask.patience.retries + self.store.retries();
            (self.progress)(counts, total);
        }
        refused.map_or(Ok(()), Err)
    }

    /// One part.
    fn fetch(&self, object: &ObjectFacts, relative: &str) -> Result<Fetched, RemoteError> {
        let path = self.folder.join(relative);
        let object_name = || format!("s3://{}/{}", self.address.bucket, object.key);
        if path.symlink_metadata().is_ok() {
            let part = LocalPart { path: path.clone(), relative: relative.to_string(), bytes: object.bytes };
            let file = File::open(&path).map_err(RemoteError::io(&path))?;
            let print = Fingerprint::read(file, object.bytes).map_err(RemoteError::io(&path))?;
            let is_same = match print.likeness(object) {
                Likeness::Same => true,
                Likeness::Different => false,
                Likeness::Unknown => is_object_same(self.store, &object.key, &part)?.0,
            };
            let conflict = || RemoteError::Conflict { path, object: object_name() };
            return if is_same { Ok(Fetched::Before) } else { Err(conflict()) };
        }
        let parent = path.parent().expect("a part is in its table's folder");
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
        // What arrived is held against the store's tag. Where that says nothing, the length and the transport's checks
        // have to do, and the checksums in the part when it is read.
        let print = Fingerprint::read(File::open(&open).map_err(io)?, object.bytes).map_err(io)?;
        if bytes != object.bytes || print.likeness(object) == Likeness::Different {
            return Err(RemoteError::Conflict { path: open, object: object_name() });
        }
        std::fs::rename(&open, &path).map_err(RemoteError::io(&path))?;
        Ok(Fetched::New)
    }
}

/// What a part is called until it is whole.
fn open_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".open");
    PathBuf::from(name)
}

enum Fetched {
    New,
    Before,
}

/// Asks again while the store does not answer.
struct Asking<'a> {
    patience: &'a mut Patience,
    begun: Instant,
    silence_max: Duration,
    stop: &'a StopWaiting,
}

impl Asking<'_> {
    fn until_answered<T>(
        &mut self,
        mut ask: impl FnMut() -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        loop {
            let error = match ask() {
                Err(error) if error.is_passing() => error,
                other => {
                    self.patience.on_answer();
                    return other;
                }
            };
            let now = Nanos(self.begun.elapsed().as_nanos() as u64);
            self.patience.on_no_answer(now);
            let since = self.patience.silent_since.unwrap_or(now);
            let until = self.patience.until(now).unwrap_or(now);
            if until.since(since) > self.silence_max {
                return Err(error);
            }
            let end = Instant::now() + until.since(now);
            while Instant::now() < end {
                if (self.stop)() {
                    return Err(RemoteError::Interrupted);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}
