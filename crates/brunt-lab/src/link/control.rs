//! What a link's thread has in common with its handle: what each direction is to do, what it counted, and when it is to end.
//!
//! The rule: the thread looks at a number to see whether something changed, and takes a lock only then.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use brunt_core::Histogram;
use brunt_result::link::LinkReport;

use super::counters::Counters;
use super::parted::HostPair;
use super::settings::Settings;
use super::tcp::reset::ResetRule;

/// One direction as its thread and its handle share it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) counters: Counters,
    /// What is to hold, and how many times that changed.
    wanted: Mutex<Wanted>,
    pub(super) asked: AtomicU64,
    /// How many of the changes hold, and since when.
    pub(super) applied: AtomicU64,
    pub(super) applied_at: AtomicU64,
    /// What passing the thread added to a frame's way beyond what was set, of an interface's; there when it has ended.
    pub(super) added: Mutex<Histogram>,
    /// Packets that were under way when it ended.
    pub(super) left: AtomicU64,
    /// Ends of connections that were still held then.
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

/// What one direction is to do, all of it. Several faults may have a part in it at a time, each its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) settings: Settings,
    /// A seed from which chance begins again, once.
    pub(super) restart: Option<u64>,
    /// Hosts that are kept apart.
    pub(super) parted: Vec<HostPair>,
    /// Connections that are reset; the same for both directions.
    pub(super) reset: Option<ResetRule>,
}

impl Wanted {
    /// Whether packets need not pass the thread.
    pub(super) fn is_clear(&self) -> bool {
        self.settings.is_clear() && self.parted.is_empty() && self.reset.is_none()
    }
}

/// What a link's thread has in common with its handle.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) lanes: [Shared; 2],
    pub(super) stop: AtomicBool,
    /// Its thread was refused a priority above that of others.
    pub(super) usual_priority: AtomicBool,
    /// Nanoseconds in which it had work, of those in which it lived.
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

    /// What the thread did so far.
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

    /// Lets the thread look at what changed.
    pub(super) fn wake(&self) {
        // It cannot be full: the counter holds 64 bits.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
