//! State shared by a link's thread and its handle: each direction's requested settings and counters, and when to stop.
//!
//! The rule: the thread detects changes by reading an atomic number, and takes a lock only after a change.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use brunt_core::Histogram;
use brunt_result::link::LinkReport;

use super::counters::Counters;
use super::partition::HostPair;
use super::settings::Settings;
use super::tcp::reset::ResetRule;

/// State of one direction, shared by its thread and its handle.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) counters: Counters,
    /// The requested state, and how many times it was changed.
    wanted: Mutex<Wanted>,
    pub(super) asked: AtomicU64,
    /// Number of changes in effect, and the time of the last one.
    pub(super) applied: AtomicU64,
    pub(super) applied_at: AtomicU64,
    /// Time that frames of an interface spent in the thread beyond the configured delay; set when the thread has ended.
    pub(super) added: Mutex<Histogram>,
    /// Packets in flight when the thread ended.
    pub(super) left: AtomicU64,
    /// FINs that were still held when the thread ended.
    pub(super) ends_left: AtomicU64,
}

impl Shared {
    pub(super) fn added(&self) -> MutexGuard<'_, Histogram> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The complete requested state of one direction. Several faults can contribute to it at once, each with its own part.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) settings: Settings,
    /// A seed from which to restart the random numbers, once.
    pub(super) restart: Option<u64>,
    /// Hosts that are separated.
    pub(super) parted: Vec<HostPair>,
    /// Connections to reset; the same for both directions.
    pub(super) reset: Option<ResetRule>,
}

impl Wanted {
    /// Whether packets can bypass the thread.
    pub(super) fn is_clear(&self) -> bool {
        self.settings.is_clear() && self.parted.is_empty() && self.reset.is_none()
    }
}

/// State shared by a link's thread and its handle.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) lanes: [Shared; 2],
    pub(super) stop: AtomicBool,
    /// Whether the thread was refused a raised priority.
    pub(super) usual_priority: AtomicBool,
    /// Nanoseconds during which the thread had work, and during which it existed.
    pub(super) busy_nanos: AtomicU64,
    pub(super) lived_nanos: AtomicU64,
    pub(super) wake: OwnedFd,
}

impl Control {
    pub(super) fn new(settings: [Settings; 2]) -> io::Result<Control> {
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        Ok(Control {
            lanes: settings.map(|settings| Shared {
                wanted: Mutex::new(Wanted {
                    settings,
                    ..Wanted::default()
                }),
                ..Shared::default()
            }),
            stop: AtomicBool::new(false),
            usual_priority: AtomicBool::new(false),
            busy_nanos: AtomicU64::new(0),
            lived_nanos: AtomicU64::new(0),
            wake: rustix::event::eventfd(0, flags)?,
        })
    }

    /// The thread's counters so far.
    pub(super) fn report(&self) -> LinkReport {
        let lived = self.lived_nanos.load(Ordering::Relaxed).max(1);
        LinkReport {
            there: self.lanes[0].counters.read(),
            back: self.lanes[1].counters.read(),
            busy: self.busy_nanos.load(Ordering::Relaxed) as f64 / lived as f64,
            lived_nanos: lived,
            usual_priority: self.usual_priority.load(Ordering::Relaxed),
            captured: None,
        }
    }

    /// Wakes the thread so that it checks for changes.
    pub(super) fn wake(&self) {
        // A 64-bit counter never fills up.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
