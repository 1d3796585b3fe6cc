//! A client that the thread of a connection shares with the thread that restores the connection.
//!
//! The one rule: a session that has ended is never returned again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::NfsSeat;
use super::opens::NfsOpenFile;
use super::session::NfsSlot;

/// The client of a device or load, whose session and open files outlive connections.
#[derive(Clone, Debug)]
pub struct NfsClient {
    seat: Arc<Mutex<NfsSeat>>,
    /// The session can no longer be used.
    over: Arc<AtomicBool>,
}

impl NfsClient {
    /// A client without a session, which will ask for this many slots for calls. `random` distinguishes it from other
    /// clients.
    pub fn new(slots: u32, random: u64) -> NfsClient {
        NfsClient {
            seat: Arc::new(Mutex::new(NfsSeat::new(slots, random))),
            over: Arc::default(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, NfsSeat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client, with its session if that can still be used.
    pub(crate) fn seat(&self) -> NfsSeat {
        let mut seat = self.locked();
        if self.over.swap(false, Ordering::Relaxed) {
            seat.forget();
        }
        seat.clone()
    }

    /// Sets the client, whose session is ready for calls.
    pub(crate) fn set_seat(&self, seat: NfsSeat) {
        *self.locked() = seat;
    }

    /// Marks the session as no longer usable.
    pub(crate) fn end_session(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the session can no longer be used, and there is no new one yet.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Leaves the open files to the thread that restores the connection.
    pub(crate) fn keep_opens(&self, files: Vec<NfsOpenFile>) {
        self.locked().put_opens(files);
    }

    /// Takes the files that a new session has open.
    pub(crate) fn take_opens(&self) -> Vec<NfsOpenFile> {
        self.locked().take_opens()
    }

    /// The slot of the client's own calls.
    pub(crate) fn slot(&self) -> Option<NfsSlot> {
        self.locked().slot()
    }
}
