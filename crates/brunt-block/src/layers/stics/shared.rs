//! State shared by the devices of all threads, the log writer and the destager: the cache under a single lock, taken
//! once per batch of requests.
//!
//! The rule: no thread waits for a disk or the network while holding the lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brunt_core::{Clock, Nanos};

use super::cache::Cache;
use super::log::Log;
use crate::Waker;
use crate::control::{
    Arguments, CommandEntry, CommandError, Controllable, Fields, PartFigure, PartFigures, Value,
};

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// To the log.
    Logging,
    /// The log has failed: writes wait until all of its content has reached the device.
    Failing,
    /// All requests go directly to the device.
    Bypass,
    /// The log has failed and its replay cannot be prevented: writes fail.
    Stuck,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Logging => "logging",
            Mode::Failing => "failing",
            Mode::Bypass => "bypass",
            Mode::Stuck => "stuck",
        }
    }
}

/// Counters since the device was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Bytes read from memory or the log.
    pub hit_bytes: u64,
    /// Bytes read from the device.
    pub miss_bytes: u64,
    /// Bytes written to the log, without headers.
    pub logged_bytes: u64,
    pub log_writes: u64,
    pub log_syncs: u64,
    /// Bytes written to the device.
    pub destaged_bytes: u64,
    pub destage_requests: u64,
    pub destage_retries: u64,
    /// Number of writes that had to wait for space.
    pub waits: u64,
    /// Total time that writes waited for room, excluding those still waiting.
    pub waited: Duration,
    /// Number of writes currently waiting for room.
    pub waiting: u64,
    /// Number of requests that bypassed the failed log.
    pub bypassed: u64,
    pub replayed_records: u64,
}

/// The state under the lock.
pub(super) struct State {
    pub cache: Cache,
    pub mode: Mode,
    pub counts: Counts,
    /// Records before this number are stable in the log.
    pub synced_before: u64,
    /// Records before this number should become stable in the log.
    pub sync_wanted: u64,
    /// Records before this number should reach the device.
    pub far_wanted: u64,
    /// The last error, as text.
    pub trouble: Option<String>,
    clients: Vec<Option<Client>>,
}

struct Client {
    waker: Waker,
    waiting: bool,
}

/// The shared state and its signals.
pub(super) struct Shared {
    name: String,
    state: Mutex<State>,
    /// Signals the writer that there is work.
    pub write_work: Condvar,
    /// Signals the destager that there is work.
    pub destage_work: Condvar,
    /// Incremented when writes make progress; devices check it before they take the lock.
    progress: AtomicU64,
    stopping: AtomicBool,
    pub log: Log,
    pub clock: Clock,
}

impl Shared {
    pub(super) fn new(
        name: &str,
        cache: Cache,
        log: Log,
        replayed_records: u64,
        clock: Clock,
    ) -> Shared {
        let before = cache.written_before();
        let state = State {
            cache,
            mode: Mode::Logging,
            counts: Counts {
                replayed_records,
                ..Counts::default()
            },
            // Records found after a restart may exist only in the page cache, so none counts as stable.
            synced_before: 0,
            sync_wanted: 0,
            far_wanted: 0,
            trouble: None,
            clients: Vec::new(),
        };
        assert!(before > 0, "records are numbered from 1");
        Shared {
            name: name.to_string(),
            state: Mutex::new(state),
            write_work: Condvar::new(),
            destage_work: Condvar::new(),
            progress: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            log,
            clock,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has ended; assertions in the other threads check the state that it left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops both threads; the writer first writes everything.
    pub(super) fn stop(&self) {
        let state = self.lock();
        // Under the lock, so that no thread is between checking this flag and sleeping.
        self.stopping.store(true, Ordering::Relaxed);
        drop(state);
        self.write_work.notify_all();
        self.destage_work.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// A progress counter; a device that last saw another value checks its writes again.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// Announces progress and wakes the waiting devices.
    pub(super) fn announce(&self, state: &mut State) {
        self.progress.fetch_add(1, Ordering::Release);
        for client in state.clients.iter_mut().flatten() {
            if std::mem::take(&mut client.waiting) {
                client.waker.wake();
            }
        }
    }

    /// The log cannot be written: its content is destaged, then writes go to the device directly.
    pub(super) fn log_failed(&self, what: &str, error: &std::io::Error) {
        let mut state = self.lock();
        if state.mode == Mode::Logging {
            state.mode = Mode::Failing;
            let path = self.log.path().display();
            state.trouble = Some(format!(
                "cannot {what} the log {path}: {error}; writes bypass it"
            ));
        }
        self.destage_work.notify_all();
    }

    /// Registers a client for wake-ups.
    pub(super) fn join(&self, waker: Waker) -> usize {
        let mut state = self.lock();
        let client = Some(Client {
            waker,
            waiting: false,
        });
        match state.clients.iter().position(Option::is_none) {
            Some(free) => {
                state.clients[free] = client;
                free
            }
            None => {
                state.clients.push(client);
                state.clients.len() - 1
            }
        }
    }

    pub(super) fn leave(&self, client: usize) {
        self.lock().clients[client] = None;
    }
}

impl State {
    /// Marks a client as waiting.
    pub(super) fn wait(&mut self, client: usize) {
        self.clients[client]
            .as_mut()
            .expect("a client that joined")
            .waiting = true;
    }

    /// Whether records before this number survive a crash of the process.
    pub(super) fn is_written(&self, before: u64) -> bool {
        self.cache.written_before() >= before || self.is_far(before)
    }

    /// Whether records before this number survive a crash of the machine.
    pub(super) fn is_synced(&self, before: u64) -> bool {
        self.synced_before >= before || self.is_far(before)
    }

    /// Whether records before this number have reached the device.
    pub(super) fn is_far(&self, before: u64) -> bool {
        self.cache.released_before() >= before
    }

    fn fields(&self, shared: &Shared, now: Nanos) -> Fields {
        let counts = &self.counts;
        let read = counts.hit_bytes + counts.miss_bytes;
        let mut fields = vec![
            ("mode", Value::Text(self.mode.name().to_string())),
            ("dirty_bytes", Value::Count(self.cache.dirty_bytes())),
            ("log_bytes", Value::Count(self.cache.backlog_bytes())),
            ("log_capacity_bytes", Value::Count(shared.log.capacity())),
            (
                "destage_lag_ms",
                Value::Count(self.cache.lag(now).as_millis() as u64),
            ),
            ("hit_bytes", Value::Count(counts.hit_bytes)),
            ("miss_bytes", Value::Count(counts.miss_bytes)),
            ("logged_bytes", Value::Count(counts.logged_bytes)),
            ("log_writes", Value::Count(counts.log_writes)),
            ("log_syncs", Value::Count(counts.log_syncs)),
            ("absorbed_bytes", Value::Count(self.cache.absorbed_bytes())),
            ("destaged_bytes", Value::Count(counts.destaged_bytes)),
            ("destage_requests", Value::Count(counts.destage_requests)),
            ("destage_retries", Value::Count(counts.destage_retries)),
            ("waits", Value::Count(counts.waits)),
            ("waiting", Value::Count(counts.waiting)),
            ("waited_ms", Value::Count(counts.waited.as_millis() as u64)),
            ("bypassed", Value::Count(counts.bypassed)),
            ("replayed_records", Value::Count(counts.replayed_records)),
            ("extents", Value::Count(self.cache.extents() as u64)),
        ];
        if read > 0 {
            fields.push((
                "hit_rate",
                Value::Number(counts.hit_bytes as f64 / read as f64),
            ));
        }
        fields.extend(
            self.trouble
                .iter()
                .map(|trouble| ("trouble", Value::Text(trouble.clone()))),
        );
        fields
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({}, {})", self.name, self.log.path().display())
    }
}

impl Controllable for Shared {
    fn kind(&self) -> &'static str {
        "stics"
    }

    fn commands(&self) -> &'static [CommandEntry] {
        &[
            CommandEntry {
                name: "destage",
                help: "destages everything in the log to the device, regardless of the policy",
                arguments: &[],
            },
            CommandEntry {
                name: "break-log",
                help: "fails all further writes to the log, as a broken disk would; cannot be \
                    undone",
                arguments: &[],
            },
        ]
    }

    fn command(&self, name: &str, _arguments: &Arguments) -> Result<Fields, CommandError> {
        if name == "break-log" {
            self.log.break_it();
            return Ok(Vec::new());
        }
        let mut state = self.lock();
        state.far_wanted = state.cache.head().sequence;
        self.destage_work.notify_all();
        Ok(vec![(
            "log_bytes",
            Value::Count(state.cache.backlog_bytes()),
        )])
    }

    fn status(&self) -> Fields {
        self.lock().fields(self, self.clock.now())
    }

    fn figures(&self) -> PartFigures {
        let state = self.lock();
        let counts = &state.counts;
        let taken = state.cache.backlog_bytes();
        let lag = state.cache.lag(self.clock.now());
        vec![
            (
                "dirty_bytes",
                PartFigure::Gauge(state.cache.dirty_bytes() as f64),
            ),
            ("log_bytes", PartFigure::Gauge(taken as f64)),
            (
                "log_room_bytes",
                PartFigure::Gauge(self.log.capacity().saturating_sub(taken) as f64),
            ),
            ("destage_lag_ms", PartFigure::Gauge(lag.as_secs_f64() * 1e3)),
            (
                "hit_share",
                PartFigure::Share(counts.hit_bytes, counts.hit_bytes + counts.miss_bytes),
            ),
            (
                "logged_bytes_per_s",
                PartFigure::Counter(counts.logged_bytes),
            ),
            (
                "destaged_bytes_per_s",
                PartFigure::Counter(counts.destaged_bytes),
            ),
            (
                "destage_retries_per_s",
                PartFigure::Counter(counts.destage_retries),
            ),
            ("waits_per_s", PartFigure::Counter(counts.waits)),
            ("waiting_requests", PartFigure::Gauge(counts.waiting as f64)),
        ]
    }
}
