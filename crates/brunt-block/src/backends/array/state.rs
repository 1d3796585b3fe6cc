//! State of an array's members, shared by its devices (one per thread), the rebuild and the controller. Members can
//! change slots; stripe locks prevent such a change between the steps of a write.
//!
//! The rule: the decision where to read or write a stripe is made under the stripe's lock, based on state fetched under
//! that lock. A rebuilt stripe is marked as rebuilt before its lock is released.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use brunt_core::{Clock, Nanos};
use serde::{Deserialize, Serialize};

use super::layout::{Layout, Level};
use crate::DeviceError;

/// Maximum number of members and spares together.
pub const DEVICES_MAX: usize = 32;
/// Read errors tolerated per member; one more fails it.
pub const READ_ERRORS_MAX: u32 = 16;
/// Default number of stripes that a rebuild works on at a time.
pub const REBUILD_DEPTH: u32 = 8;
/// Maximum number of stripes that a rebuild works on at a time; far fewer than there are locks.
pub const REBUILD_DEPTH_MAX: u32 = 256;
/// Number of stripe locks; stripes that share a lock exclude each other unnecessarily.
const LOCKS: u64 = 4096;
const EXCLUSIVE: u32 = 1 << 31;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArraySlot {
    /// Filled by the device with this index, which is consistent.
    Good(usize),
    /// No device.
    Failed,
    /// Filled by the device with this index, whose stripes below the watermark are consistent.
    Rebuilding(usize),
}

/// A rebuild: its slot, its target device, and its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub slot: usize,
    pub device: usize,
    epoch: u64,
}

/// A copy of the state, valid until the generation changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayView {
    /// The content of each slot.
    pub slots: Vec<ArraySlot>,
}

/// The health of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrayState {
    /// Every slot has a good member.
    Optimal,
    /// Members are missing; the remaining ones compensate for them.
    Degraded,
    /// Like [`ArrayState::Degraded`], but a spare is being filled.
    Rebuilding,
    /// More members are missing than the level tolerates.
    Failed,
}

impl fmt::Display for ArrayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArrayState::Optimal => "optimal",
            ArrayState::Degraded => "degraded",
            ArrayState::Rebuilding => "rebuilding",
            ArrayState::Failed => "failed",
        })
    }
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// Consistent.
    Good,
    /// Removed from the array.
    Failed,
    /// A spare being filled.
    Rebuilding,
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemberState::Good => "good",
            MemberState::Failed => "failed",
            MemberState::Rebuilding => "rebuilding",
        })
    }
}

/// An array's status, for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayStatus {
    /// The level, such as `raid5`.
    pub level: &'static str,
    /// The health of the array.
    pub state: ArrayState,
    /// For each slot, the device's name (empty if there is no device) and state.
    pub slots: Vec<(String, MemberState)>,
    /// Names of the remaining spares.
    pub spares: Vec<String>,
    /// Bytes rebuilt so far on the member being filled, and in total; only during a rebuild.
    pub rebuilt_bytes: Option<(u64, u64)>,
    /// Rebuilds completed.
    pub rebuilds: u64,
    /// Bytes that the last completed rebuild wrote to the member, and its duration.
    pub last_rebuild: Option<(u64, Duration)>,
    /// Requests (or parts of them) served without the member that holds their data.
    pub degraded_requests: u64,
    /// Read errors of members that other members compensated for.
    pub read_errors: u64,
    /// The last error, as text.
    pub trouble: Option<String>,
}

/// Why an array rejects a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// The array has no such member.
    #[error("unknown member {member}; the members are 0 to {last}")]
    NoMember {
        /// The requested index.
        member: usize,
        /// The last valid index.
        last: usize,
    },
    /// The member has already failed.
    #[error("member {member} has already failed")]
    FailedAlready {
        /// Its index.
        member: usize,
    },
    /// A rebuild is already running; only one runs at a time.
    #[error("a rebuild is already running")]
    Rebuilding,
    /// There is nothing to rebuild.
    #[error("no member has failed")]
    NothingFailed,
    /// More members are missing than the level tolerates.
    #[error("{missing} members have failed; the array cannot be rebuilt")]
    NothingLeft {
        /// Number of missing members.
        missing: usize,
    },
    /// Every spare is in use or has failed.
    #[error("no spare left")]
    NoSpare,
}

/// Controls an array and holds its shared state.
#[derive(Debug)]
pub struct ArrayControl {
    layout: Layout,
    names: Vec<String>,
    generation: AtomicU64,
    state: Mutex<State>,
    /// Notifies the rebuilder.
    news: Condvar,
    /// The watermark: stripes below it are consistent on the device being rebuilt.
    watermark: AtomicU64,
    /// Rebuild rate in bytes per second; 0 is unlimited.
    rate: AtomicU64,
    /// Number of stripes that a rebuild works on at a time.
    depth: AtomicU32,
    locks: Box<[AtomicU32]>,
    pub(super) degraded_requests: AtomicU64,
    pub(super) read_errors: AtomicU64,
}

#[derive(Debug)]
struct State {
    slots: Vec<ArraySlot>,
    spares: Vec<usize>,
    /// Error counts by device index.
    errors: Vec<u32>,
    /// Whether a rebuild starts as soon as a member fails.
    automatic: bool,
    rebuilds: u64,
    last_rebuild: Option<(u64, Duration)>,
    /// When the current rebuild started.
    began: Nanos,
    /// Number of rebuilds started, so that a superseded one cannot change the state of the next.
    epoch: u64,
    /// Whether a rebuild was requested that the rebuilder has not picked up yet.
    wanted: bool,
    /// Whether the array is being dropped.
    closing: bool,
    trouble: Option<String>,
}

impl ArrayControl {
    pub(super) fn new(
        layout: Layout,
        names: Vec<String>,
        rate: u64,
        automatic: bool,
    ) -> Arc<ArrayControl> {
        let (slots, devices) = (layout.slots, names.len());
        let state = State {
            slots: (0..slots).map(ArraySlot::Good).collect(),
            spares: (slots..devices).collect(),
            errors: vec![0; devices],
            automatic,
            rebuilds: 0,
            last_rebuild: None,
            began: Nanos(0),
            epoch: 0,
            wanted: false,
            closing: false,
            trouble: None,
        };
        Arc::new(ArrayControl {
            layout,
            names,
            generation: AtomicU64::new(0),
            state: Mutex::new(state),
            news: Condvar::new(),
            watermark: AtomicU64::new(0),
            rate: AtomicU64::new(rate),
            depth: AtomicU32::new(REBUILD_DEPTH),
            locks: (0..LOCKS).map(|_| AtomicU32::new(0)).collect(),
            degraded_requests: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
        })
    }

    /// Fails a member: from now on it is neither read nor written. If a spare is available and the array rebuilds
    /// automatically, the rebuild starts.
    ///
    /// # Errors
    /// There is no such slot, or its member has already failed.
    pub fn fail(&self, slot: usize) -> Result<(), ArrayError> {
        let mut state = self.lock();
        match state.slots.get(slot) {
            None => Err(ArrayError::NoMember {
                member: slot,
                last: self.layout.slots - 1,
            }),
            Some(ArraySlot::Failed) => Err(ArrayError::FailedAlready { member: slot }),
            Some(_) => {
                self.drop_out(&mut state, slot, "failed on request");
                Ok(())
            }
        }
    }

    /// Starts a rebuild of a failed slot onto a spare.
    ///
    /// # Errors
    /// Nothing has failed, no spare is available, a rebuild is already running, or no source for a rebuild is left.
    pub fn rebuild(&self) -> Result<(), ArrayError> {
        let mut state = self.lock();
        self.begin_rebuild(&mut state)
    }

    /// Adds devices that fill no slot to the spares, as if each failed disk had been replaced. Returns the number of
    /// devices added.
    pub fn replace(&self) -> usize {
        let mut state = self.lock();
        let used = |state: &State, device: usize| {
            state.spares.contains(&device)
                || state
                    .slots
                    .iter()
                    .any(|slot| matches!(slot, ArraySlot::Good(d) | ArraySlot::Rebuilding(d) if *d == device))
        };
        let free: Vec<usize> = (0..self.names.len())
            .filter(|device| !used(&state, *device))
            .collect();
        for device in &free {
            state.errors[*device] = 0;
            state.spares.push(*device);
        }
        free.len()
    }

    /// Sets the rebuild rate, in bytes per second written to the member; 0 is unlimited.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    /// The rate set with [`ArrayControl::set_rate`].
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Sets how many stripes the next rebuild works on at a time, 1 to [`REBUILD_DEPTH_MAX`].
    pub fn set_rebuild_depth(&self, stripes: u32) {
        self.depth
            .store(stripes.clamp(1, REBUILD_DEPTH_MAX), Ordering::Relaxed);
    }

    /// The depth set with [`ArrayControl::set_rebuild_depth`].
    pub fn rebuild_depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// The current status.
    pub fn status(&self) -> ArrayStatus {
        let state = self.lock();
        let name = |device: usize| self.names[device].clone();
        let word = |slot: &ArraySlot| match slot {
            ArraySlot::Good(device) => (name(*device), MemberState::Good),
            ArraySlot::Failed => (String::new(), MemberState::Failed),
            ArraySlot::Rebuilding(device) => (name(*device), MemberState::Rebuilding),
        };
        let missing = state
            .slots
            .iter()
            .filter(|slot| !matches!(slot, ArraySlot::Good(_)))
            .count();
        let rebuilding = state
            .slots
            .iter()
            .any(|slot| matches!(slot, ArraySlot::Rebuilding(_)));
        let done = self.watermark.load(Ordering::Relaxed) * self.layout.chunk_bytes;
        ArrayStatus {
            level: self.layout.level.name(),
            state: match () {
                () if missing == 0 => ArrayState::Optimal,
                () if missing > self.tolerated() => ArrayState::Failed,
                () if rebuilding => ArrayState::Rebuilding,
                () => ArrayState::Degraded,
            },
            slots: state.slots.iter().map(word).collect(),
            spares: state.spares.iter().map(|device| name(*device)).collect(),
            rebuilt_bytes: rebuilding
                .then_some((done, self.layout.stripes * self.layout.chunk_bytes)),
            rebuilds: state.rebuilds,
            last_rebuild: state.last_rebuild,
            degraded_requests: self.degraded_requests.load(Ordering::Relaxed),
            read_errors: self.read_errors.load(Ordering::Relaxed),
            trouble: state.trouble.clone(),
        }
    }

    /// Number of members that may be missing.
    pub(super) fn tolerated(&self) -> usize {
        match self.layout.level {
            Level::Raid0 => 0,
            Level::Raid1 => self.layout.slots - 1,
            Level::Raid5 => 1,
        }
    }

    /// Tries to lock a stripe, shared or exclusive; returns whether it succeeded. Never waits.
    pub(super) fn try_lock(&self, stripe: u64, exclusive: bool) -> bool {
        let lock = &self.locks[(stripe % LOCKS) as usize];
        if exclusive {
            return lock
                .compare_exchange(0, EXCLUSIVE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        }
        if lock.fetch_add(1, Ordering::AcqRel) & EXCLUSIVE != 0 {
            lock.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        true
    }

    pub(super) fn unlock(&self, stripe: u64, exclusive: bool) {
        let lock = &self.locks[(stripe % LOCKS) as usize];
        if exclusive {
            // A plain store would be wrong: another thread may be undoing its own attempt at a shared lock.
            lock.fetch_sub(EXCLUSIVE, Ordering::AcqRel);
        } else {
            lock.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A number that changes whenever the view does.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn view(&self) -> ArrayView {
        ArrayView {
            slots: self.lock().slots.clone(),
        }
    }

    /// The device that holds a slot's chunk of a stripe consistently, if any.
    #[inline]
    pub(super) fn holder(&self, view: &ArrayView, slot: usize, stripe: u64) -> Option<usize> {
        match view.slots[slot] {
            ArraySlot::Good(device) => Some(device),
            ArraySlot::Rebuilding(device) => {
                (stripe < self.watermark.load(Ordering::Acquire)).then_some(device)
            }
            ArraySlot::Failed => None,
        }
    }

    /// Records that a device failed a write, or a read that other members will serve.
    pub(super) fn blame(&self, device: usize, error: DeviceError, writing: bool) {
        let mut state = self.lock();
        state.errors[device] += 1;
        if !writing {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
        }
        let grave =
            writing || matches!(error, DeviceError::Gone) || state.errors[device] > READ_ERRORS_MAX;
        let slot = state.slots.iter().position(
            |slot| matches!(slot, ArraySlot::Good(d) | ArraySlot::Rebuilding(d) if *d == device),
        );
        if let (true, Some(slot)) = (grave, slot) {
            self.drop_out(&mut state, slot, &error.to_string());
        }
    }

    fn drop_out(&self, state: &mut State, slot: usize, why: &str) {
        let device = match state.slots[slot] {
            ArraySlot::Good(device) | ArraySlot::Rebuilding(device) => device,
            ArraySlot::Failed => return,
        };
        state.slots[slot] = ArraySlot::Failed;
        state.trouble = Some(format!(
            "member {slot} ({}) failed: {why}",
            self.names[device]
        ));
        self.generation.fetch_add(1, Ordering::Release);
        if state.automatic {
            let _ = self.begin_rebuild(state);
        }
    }

    fn begin_rebuild(&self, state: &mut State) -> Result<(), ArrayError> {
        let missing = state
            .slots
            .iter()
            .filter(|slot| !matches!(slot, ArraySlot::Good(_)))
            .count();
        if state
            .slots
            .iter()
            .any(|slot| matches!(slot, ArraySlot::Rebuilding(_)))
        {
            return Err(ArrayError::Rebuilding);
        }
        let Some(slot) = state
            .slots
            .iter()
            .position(|slot| *slot == ArraySlot::Failed)
        else {
            return Err(ArrayError::NothingFailed);
        };
        if missing > self.tolerated() {
            return Err(ArrayError::NothingLeft { missing });
        }
        if state.spares.is_empty() {
            return Err(ArrayError::NoSpare);
        }
        let spare = state.spares.remove(0);
        // Must precede the change that lets other threads see the slot as rebuilding.
        self.watermark.store(0, Ordering::Release);
        state.slots[slot] = ArraySlot::Rebuilding(spare);
        state.wanted = true;
        state.began = Clock::Monotonic.now();
        state.epoch += 1;
        self.generation.fetch_add(1, Ordering::Release);
        self.news.notify_all();
        Ok(())
    }

    /// Waits for a rebuild; `None` when the array is dropped.
    pub(super) fn wait_for_work(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if std::mem::replace(&mut state.wanted, false) {
                let epoch = state.epoch;
                let found =
                    state
                        .slots
                        .iter()
                        .enumerate()
                        .find_map(|(slot, filled)| match filled {
                            ArraySlot::Rebuilding(device) => Some(Work {
                                slot,
                                device: *device,
                                epoch,
                            }),
                            _ => None,
                        });
                if found.is_some() {
                    return found;
                }
            }
            state = self
                .news
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Signals that the array is being dropped: a rebuild stops where it is.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.news.notify_all();
    }

    /// Whether this rebuild is still the current one.
    pub(super) fn is_current(&self, work: Work) -> bool {
        let state = self.lock();
        !state.closing
            && state.epoch == work.epoch
            && state.slots[work.slot] == ArraySlot::Rebuilding(work.device)
    }

    /// Marks a stripe as consistent on the device being rebuilt. Must be called while the stripe is locked.
    pub(super) fn rebuilt(&self, work: Work, stripe: u64) {
        let state = self.lock();
        if state.epoch == work.epoch && state.slots[work.slot] == ArraySlot::Rebuilding(work.device)
        {
            self.watermark.store(stripe + 1, Ordering::Release);
        }
    }

    /// Marks the rebuild as complete.
    pub(super) fn rebuild_done(&self, work: Work) {
        let mut state = self.lock();
        if state.epoch == work.epoch && state.slots[work.slot] == ArraySlot::Rebuilding(work.device)
        {
            state.slots[work.slot] = ArraySlot::Good(work.device);
            state.rebuilds += 1;
            let took = Clock::Monotonic.now().since(state.began);
            state.last_rebuild = Some((self.layout.stripes * self.layout.chunk_bytes, took));
            self.generation.fetch_add(1, Ordering::Release);
            if state.automatic && state.slots.contains(&ArraySlot::Failed) {
                let _ = self.begin_rebuild(&mut state);
            }
        }
    }

    /// Marks the rebuild as stopped because it cannot continue.
    pub(super) fn rebuild_stopped(&self, work: Work, why: &str) {
        let mut state = self.lock();
        if state.epoch == work.epoch && state.slots[work.slot] == ArraySlot::Rebuilding(work.device)
        {
            state.slots[work.slot] = ArraySlot::Failed;
            state.spares.push(work.device);
            state.trouble = Some(format!(
                "the rebuild of member {} stopped: {why}",
                work.slot
            ));
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
