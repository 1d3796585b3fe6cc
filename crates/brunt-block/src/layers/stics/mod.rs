//! `stics=LOG`: a cache in front of a device across a network (the second system of SPEK, 2005, Figures 14 and
//! 15). Writes are collected in memory, written sequentially to a log file, acknowledged, and later destaged to the
//! device; reads of cached data are served from the cache.
//!
//! ```text
//! iscsi://far/iqn.2026-11.io.example:t0/0?stics=/var/tmp/stics.log,size=1GiB,memory=64MiB,high=75,low=50
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `format` | the log's on-disk format |
//! | `log` | the log file: creating, opening, reading, writing |
//! | `index`, `cache` | which blocks are where; free space; when to destage what. No I/O |
//! | `writer`, `destage` | the two threads |
//! | `shared` | state shared by these threads and the devices; metrics and commands |
//! | `device` | a per-thread handle |
//!
//! The rule: an acknowledged write is in the log's file or on the device. It survives a crash of the process
//! immediately, and a crash of the machine once it has been flushed.

mod cache;
mod destage;
mod device;
mod format;
mod index;
mod log;
mod shared;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::Clock;
use brunt_core::units::{format_size, parse_duration, parse_size};

use crate::backends::file::{FileBackend, FileOptions};
use crate::control::{Controllable, Handles};
use crate::open::{LayerEntry, OpenError, bad_value};
use crate::{Backend, Bell, Device, DeviceInfo, MediumState, Ring};
use cache::{Cache, Policy};
use destage::{BatchOptions, Destager};
use device::{Below, CachedDevice};
pub use format::{SuperblockFault, fuzz as fuzz_format};
pub use log::LogError;
use log::{Log, LogOptions, Replay};
use shared::Shared;

const FORMS: &str = "write the log's file, then ,size=1GiB ,memory=64MiB ,destage=idle|always ,idle=100ms ,high=75 ,low=50 (percent of \
     the log) ,order=offset|log ,batch=4MiB ,merge=1MiB ,depth=16 ,flush=log|far ,sync=flush|always ,identity=NAME \
     ,damaged=drop ,temporary=yes ,name=NAME";
const CAPACITY_BYTES: u64 = 1 << 30;
const CAPACITY_BYTES_MIN: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 64 << 20;
const MEMORY_BYTES_MIN: u64 = 1 << 20;
const MEMORY_BYTES_MAX: u64 = 16 << 30;
const BATCH_BYTES: u64 = 4 << 20;
const MERGE_BYTES: u64 = 1 << 20;
const MERGE_BYTES_MAX: u64 = 16 << 20;
const IDLE: Duration = Duration::from_millis(100);
const DEPTH: u32 = 16;
const DEPTH_MAX: u32 = 1024;

/// The table entry.
pub const ENTRY: LayerEntry = LayerEntry {
    name: "stics",
    help: "a write-back cache with a log, for a distant device (STICS): the log's file, \
        optionally followed by ,size=1GiB of it ,memory=64MiB ,destage=idle or always ,idle=100ms \
        ,high=75 ,low=50 percent of the log ,order=offset or log ,batch=4MiB ,merge=1MiB \
        ,depth=16 ,flush=log or far ,sync=flush or always ,identity=NAME of the device \
        ,damaged=drop ,temporary=yes (remove the log when the process ends) ,name=NAME",
    example: "/tmp/stics.log,size=256MiB,memory=16MiB",
    wrap: |inner, value| {
        Ok(Arc::new(SticsBackend::open(
            inner,
            &SticsOptions::parse(value)?,
        )?))
    },
    // Checks only the options: the log is neither created nor opened.
    preview: Some(|inner, value| SticsOptions::parse(value).map(|_| inner)),
    file: Some(|value| value.split(',').next().unwrap_or_default()),
};

/// Cache options; [`ENTRY`] explains each.
#[derive(Clone, Debug)]
struct SticsOptions {
    path: PathBuf,
    capacity: Option<u64>,
    memory_bytes: u64,
    always: bool,
    idle: Duration,
    high_percent: u64,
    low_percent: u64,
    batch: BatchOptions,
    sync_always: bool,
    identity: Option<String>,
    drop_damaged: bool,
    temporary: bool,
    name: String,
}

impl SticsOptions {
    fn parse(text: &str) -> Result<SticsOptions, OpenError> {
        let wrong = || bad_value("stics", text, FORMS);
        let mut words = text.split(',');
        let path = words
            .next()
            .filter(|path| !path.is_empty() && !path.contains('='))
            .ok_or_else(wrong)?;
        let batch = BatchOptions {
            bytes: BATCH_BYTES,
            depth: DEPTH,
            merge_bytes: MERGE_BYTES,
            by_offset: true,
            flush: false,
        };
        let mut options = SticsOptions {
            path: PathBuf::from(path),
            capacity: None,
            memory_bytes: MEMORY_BYTES,
            always: false,
            idle: IDLE,
            high_percent: 75,
            low_percent: 50,
            batch,
            sync_always: false,
            identity: None,
            drop_damaged: false,
            temporary: false,
            name: "stics".to_string(),
        };
        for word in words {
            let (key, value) = word
                .split_once('=')
                .filter(|(_, value)| !value.is_empty())
                .ok_or_else(wrong)?;
            if !options.set(key, value)? {
                return Err(wrong());
            }
        }
        let capacity = options.capacity.unwrap_or(CAPACITY_BYTES_MIN);
        let right = capacity >= CAPACITY_BYTES_MIN
            && (MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&options.memory_bytes)
            && options.low_percent < options.high_percent
            && options.high_percent <= 100
            && (1..=DEPTH_MAX).contains(&options.batch.depth)
            && (4096..=MERGE_BYTES_MAX).contains(&options.batch.merge_bytes)
            && options.batch.bytes > 0;
        if right { Ok(options) } else { Err(wrong()) }
    }

    /// Sets an option; `false` if the key is unknown or the value invalid.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, OpenError> {
        let number = value.parse::<u64>().ok();
        match (key, value) {
            ("size", _) => self.capacity = Some(parse_size(value)?),
            ("memory", _) => self.memory_bytes = parse_size(value)?.next_multiple_of(format::BLOCK),
            ("destage", "idle" | "always") => self.always = value == "always",
            ("idle", _) => self.idle = parse_duration(value)?,
            ("high", _) if number.is_some() => self.high_percent = number.unwrap_or_default(),
            ("low", _) if number.is_some() => self.low_percent = number.unwrap_or_default(),
            ("order", "offset" | "log") => self.batch.by_offset = value == "offset",
            ("batch", _) => self.batch.bytes = parse_size(value)?,
            ("merge", _) => self.batch.merge_bytes = parse_size(value)?,
            ("depth", _) => match value.parse() {
                Ok(depth) => self.batch.depth = depth,
                Err(_) => return Ok(false),
            },
            ("flush", "log" | "far") => self.batch.flush = value == "far",
            ("sync", "flush" | "always") => self.sync_always = value == "always",
            ("identity", _) => self.identity = Some(value.to_string()),
            ("damaged", "refuse" | "drop") => self.drop_damaged = value == "drop",
            ("temporary", "yes" | "no") => self.temporary = value == "yes",
            ("name", _) if !value.contains('/') => self.name = value.to_string(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl SticsOptions {
    /// The options of the log of this device.
    fn log(&self, device: &DeviceInfo) -> LogOptions {
        LogOptions {
            path: self.path.clone(),
            capacity: self.capacity,
            identity: self.identity.clone().unwrap_or_else(|| device.name.clone()),
            drop_damaged: self.drop_damaged,
            temporary: self.temporary,
        }
    }

    /// When to destage from a log with this capacity.
    fn policy(&self, capacity: u64) -> Policy {
        Policy {
            always: self.always,
            idle: self.idle,
            high_bytes: capacity / 100 * self.high_percent,
            low_bytes: capacity / 100 * self.low_percent,
        }
    }
}

/// A device behind a cache.
pub struct SticsBackend {
    inner: Arc<dyn Backend>,
    info: DeviceInfo,
    /// Used by devices to read the log.
    log_file: FileBackend,
    shared: Arc<Shared>,
    flush_far: bool,
    threads: Vec<JoinHandle<()>>,
}

impl SticsBackend {
    /// Opens the log, replays its content, and starts the threads.
    fn open(inner: Arc<dyn Backend>, options: &SticsOptions) -> Result<SticsBackend, OpenError> {
        let log_failed = |error: LogError| OpenError::Failed(Box::new(error));
        let mut info = inner.info().clone();
        let (log, replay) =
            Log::open(&options.log(&info), CAPACITY_BYTES, &info).map_err(log_failed)?;
        let superblock = log.superblock();
        let capacity = superblock.capacity;
        let clock = Clock::Monotonic;
        let now = clock.now();
        let memory = options.memory_bytes.min(capacity);
        let mut cache = Cache::new(
            memory,
            capacity,
            superblock.tail,
            superblock.epoch,
            options.policy(capacity),
            now,
        );
        for record in &replay.records {
            cache.replay(record, now);
        }
        // A request and its record header fit in half of the memory, so that one can be written while the next one
        // arrives.
        info.transfer_bytes_max = info.transfer_bytes_max.min((memory / 4) as u32);
        info.volatile_cache = !options.sync_always;
        info.physical_block_bytes = info.block_bytes.max(info.physical_block_bytes);
        info.notes
            .extend(notes(&options.path, &replay, &cache, capacity));
        let file_options = FileOptions {
            block_bytes: Some(512),
            direct: false,
            read_only: true,
            ..FileOptions::default()
        };
        let log_file = FileBackend::open(log.path(), &file_options);
        if options.temporary {
            log.remove().map_err(log_failed)?;
        }
        let log_file = log_file?;
        let shared = Shared::new(
            &options.name,
            cache,
            log,
            replay.records.len() as u64,
            clock,
        );
        let shared = Arc::new(shared);
        let mut backend = SticsBackend {
            inner,
            info,
            log_file,
            shared,
            flush_far: options.batch.flush,
            threads: Vec::new(),
        };
        backend.start_threads(options)?;
        Ok(backend)
    }

    /// Starts the thread that writes the log and the one that destages.
    fn start_threads(&mut self, options: &SticsOptions) -> Result<(), OpenError> {
        let always = options.sync_always;
        let shared = Arc::clone(&self.shared);
        self.spawn("stics log", move || writer::run(&shared, always))?;
        let device = self.inner.info();
        if device.read_only {
            return Ok(());
        }
        let merge = u64::from(device.transfer_bytes_max).min(options.batch.merge_bytes);
        let block = u64::from(device.block_bytes);
        let batch = BatchOptions {
            merge_bytes: (merge / block * block).max(block),
            ..options.batch
        };
        let (shared, inner) = (Arc::clone(&self.shared), Arc::clone(&self.inner));
        self.spawn("stics destage", move || {
            Destager::new(shared, inner, batch).run()
        })
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(run);
        let failed =
            |error| OpenError::Failed(format!("stics: cannot start a thread: {error}").into());
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }
}

/// User-visible notes about the log.
fn notes(path: &Path, replay: &Replay, cache: &Cache, capacity: u64) -> Vec<String> {
    let size = format_size(capacity);
    let mut notes = vec![format!(
        "writes are acknowledged from the log {} ({size})",
        path.display()
    )];
    if !replay.records.is_empty() {
        let (count, bytes) = (replay.records.len(), format_size(cache.dirty_bytes()));
        notes.push(format!(
            "the log had {count} records not yet on the device, {bytes} of data"
        ));
    }
    if let Some(torn) = replay.torn {
        notes.push(format!(
            "the log's last record, number {torn}, is torn and was dropped; it had not been \
             acknowledged, unless the file was changed or the machine crashed before a flush"
        ));
    }
    notes
}

impl Backend for SticsBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        if ring.config().iopoll {
            return Err(OpenError::Refused(
                "stics= needs a ring that can be woken; a ring with iopoll cannot".into(),
            ));
        }
        let bell = Bell::new(ring).map_err(|error| OpenError::Failed(Box::new(error)))?;
        let (inner, log) = (
            self.inner.open(ring, depth)?,
            self.log_file.open(ring, depth)?,
        );
        let below = Below { inner, log, bell };
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(CachedDevice::new(
            below,
            ring,
            self.info.clone(),
            shared,
            depth,
            self.flush_far,
        )))
    }

    fn medium_state(&self) -> MediumState {
        MediumState {
            size_bytes: self.info.size_bytes,
            ..self.inner.medium_state()
        }
    }

    fn storage(&self) -> Vec<crate::StorageId> {
        self.inner.storage()
    }

    fn handles(&self) -> Handles {
        let own: Arc<dyn Controllable> = Arc::<Shared>::clone(&self.shared);
        let own = (self.shared.name().to_string(), own);
        std::iter::once(own).chain(self.inner.handles()).collect()
    }
}

impl Drop for SticsBackend {
    /// Stops the threads; data that has not been destaged stays in the log.
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A panicked thread has already reported its panic.
            let _ = thread.join();
        }
    }
}
