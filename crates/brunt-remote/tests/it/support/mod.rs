//! An in-memory store that loses requests and answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brunt_remote::pull::{PullCounts, Puller};
use brunt_remote::store::{Fingerprint, ObjectFacts, Sent};
use brunt_remote::{RemoteAddress, RemoteError, RemoteStore, StopWaiting};

pub type Objects = Arc<std::sync::Mutex<BTreeMap<String, Vec<u8>>>>;

/// Faults of a link and its store.
#[derive(Clone, Default)]
pub struct Link {
    /// Requests until the link is cut permanently; the last one still arrives, but its answer doesn't.
    pub requests_left: Arc<AtomicU64>,
    /// Whether tags are something other than MD5 hashes.
    pub hides_tags: bool,
    /// Whether the store corrupts the bytes that it receives.
    pub garbles: bool,
}

impl Link {
    pub fn whole() -> Link {
        Link {
            requests_left: Arc::new(AtomicU64::new(u64::MAX)),
            ..Link::default()
        }
    }
}

pub struct MemoryStore {
    pub objects: Objects,
    pub link: Link,
    pub reads: RefCell<u64>,
}

/// Fetches these objects over this link; returns the counts and the result.
pub fn pull(
    folder: &Path,
    address: &RemoteAddress,
    objects: &Objects,
    link: &Link,
) -> (PullCounts, Result<(), RemoteError>) {
    let (store, mut counts) = (MemoryStore::of(objects, link), PullCounts::default());
    let stop: StopWaiting = Arc::new(|| false);
    let puller = Puller {
        address,
        store: &store,
        folder,
        silence_max: Duration::ZERO,
        stop: &stop,
        progress: &|_, _| {},
        tell: &|_| {},
    };
    let result = puller.run(&mut counts);
    (counts, result)
}

impl MemoryStore {
    pub fn of(objects: &Objects, link: &Link) -> MemoryStore {
        MemoryStore {
            objects: objects.clone(),
            link: link.clone(),
            reads: RefCell::default(),
        }
    }

    /// Whether a request arrives, and whether its answer does.
    fn request(&self) -> (bool, bool) {
        match self
            .link
            .requests_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(1))
            }) {
            Ok(0) => (false, false),
            Ok(1) => (true, false),
            _ => (true, true),
        }
    }

    fn answer<T>(&self, key: &str, act: impl FnOnce() -> T) -> Result<T, RemoteError> {
        let silent = || RemoteError::Unreachable {
            bucket: "lake".into(),
            key: key.into(),
            source: "the link is down".into(),
        };
        let (arrives, is_answered) = self.request();
        let done = if arrives { Some(act()) } else { None };
        done.filter(|_| is_answered).ok_or_else(silent)
    }

    fn facts(&self, key: &str, bytes: &[u8]) -> ObjectFacts {
        let print = Fingerprint::read(bytes, bytes.len() as u64).unwrap();
        let etag = if self.link.hides_tags {
            "0".repeat(32)
        } else {
            print.md5
        };
        ObjectFacts {
            key: key.to_string(),
            bytes: print.bytes,
            etag: Some(etag),
            modified_ms: 1000,
        }
    }
}

impl RemoteStore for MemoryStore {
    fn stat(&self, key: &str) -> Result<Option<ObjectFacts>, RemoteError> {
        self.answer(key, || {
            self.objects
                .lock()
                .unwrap()
                .get(key)
                .map(|bytes| self.facts(key, bytes))
        })
    }

    fn send_file(&self, key: &str, path: &Path, _bytes: u64) -> Result<Sent, RemoteError> {
        let mut bytes = std::fs::read(path).unwrap();
        if self.link.garbles {
            bytes[0] ^= 1;
        }
        self.send_bytes(key, &bytes)
    }

    fn send_bytes(&self, key: &str, bytes: &[u8]) -> Result<Sent, RemoteError> {
        self.answer(key, || {
            let mut objects = self.objects.lock().unwrap();
            if objects.contains_key(key) {
                return Sent::Exists;
            }
            objects.insert(key.to_string(), bytes.to_vec());
            Sent::Stored
        })
    }

    fn replace_bytes(&self, key: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        self.answer(key, || {
            self.objects
                .lock()
                .unwrap()
                .insert(key.to_string(), bytes.to_vec())
        })
        .map(|_| ())
    }

    fn delete(&self, key: &str) -> Result<(), RemoteError> {
        self.answer(key, || self.objects.lock().unwrap().remove(key))
            .map(|_| ())
    }

    fn read(
        &self,
        key: &str,
        each: &mut dyn FnMut(&[u8]) -> Result<bool, RemoteError>,
    ) -> Result<(), RemoteError> {
        let bytes = self.answer(key, || self.objects.lock().unwrap().get(key).cloned())?;
        let bytes = bytes.ok_or(RemoteError::Gone {
            bucket: "lake".into(),
            key: key.into(),
        })?;
        *self.reads.borrow_mut() += 1;
        for piece in bytes.chunks(7) {
            if !each(piece)? {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, folder: &str, count_max: usize) -> Result<Vec<ObjectFacts>, RemoteError> {
        self.answer(folder, || {
            let objects = self.objects.lock().unwrap();
            let inside = objects
                .iter()
                .filter(|(key, _)| key.starts_with(&format!("{folder}/")));
            inside
                .take(count_max)
                .map(|(key, bytes)| self.facts(key, bytes))
                .collect()
        })
    }

    fn retries(&self) -> u64 {
        0
    }
}
