//! Keeps a trace within the room it was given: which parts go, and when rows have to be told anew so that
//! what is left can be understood. Shared by all lanes of all pipelines.
//!
//! The trace is cut into *generations* of an eighth of its room. Whoever writes begins a new one when it is
//! told to and then forgets which flows and handles are known, so that each generation tells those that
//! its own rows refer to. The oldest parts go first; of a generation those that others refer to go last,
//! and not before their pipeline has left it. The one rule: what is being written is never deleted, and
//! what is deleted is counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use brunt_lake::{ClosedPart, catalog};

use super::rows::LANES;

/// A generation takes this share of the room.
const GENERATIONS: u64 = 8;

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    pub parts: u64,
    pub rows: u64,
    pub bytes: u64,
}

/// When a closed part goes: by generation, then whether others refer to it, then by age.
type Rank = (u64, bool, u64);

pub(super) struct Budget {
    keep_bytes: u64,
    generation: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Closed parts with the lane that wrote them.
    closed: BTreeMap<Rank, (usize, ClosedPart)>,
    closed_count: u64,
    /// Bytes of all parts, open ones too.
    total_bytes: u64,
    /// Bytes that were ever written, and how many there were when the generation began.
    written_bytes: u64,
    generation_from: u64,
    /// The generation that each lane writes.
    lanes: Vec<u64>,
    deleted: Deleted,
}

impl Budget {
    /// Room for `keep_bytes`, shared by so many lanes.
    pub fn new(keep_bytes: u64, lanes: usize) -> Budget {
        let state = State { lanes: vec![0; lanes], ..State::default() };
        Budget { keep_bytes, generation: AtomicU64::new(0), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which generation rows belong to from now on.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub fn deleted(&self) -> Deleted {
        self.state().deleted
    }

    /// Lane `lane` has closed all parts of older generations.
    pub fn begin(&self, lane: usize, generation: u64) {
        let mut state = self.state();
        state.lanes[lane] = generation;
        self.make_room(&mut state);
    }

    /// An open part has grown, or was begun.
    pub fn on_grown(&self, bytes_before: u64, bytes: u64) {
        if bytes_before == bytes {
            return;
        }
        let mut state = self.state();
        state.total_bytes = state.total_bytes + bytes - bytes_before;
        state.written_bytes += bytes.saturating_sub(bytes_before);
        self.make_room(&mut state);
    }

    /// A part of which `open_bytes` were known is closed.
    pub fn on_closed(
        &self,
        lane: usize,
        generation: u64,
        is_referred_to: bool,
        part: ClosedPart,
        open_bytes: u64,
    ) {
        let mut state = self.state();
        state.total_bytes = state.total_bytes + part.bytes - open_bytes;
        state.written_bytes += part.bytes.saturating_sub(open_bytes);
        let rank = (generation, is_referred_to, state.closed_count);
        state.closed_count += 1;
        state.closed.insert(rank, (lane, part));
        self.make_room(&mut state);
    }

    fn make_room(&self, state: &mut State) {
        if state.written_bytes - state.generation_from >= self.keep_bytes / GENERATIONS {
            state.generation_from = state.written_bytes;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        while state.total_bytes > self.keep_bytes {
            // A pipeline's rows refer to what the same pipeline told in the same generation.
            let has_left = |lane: usize, generation: u64| {
                let first = lane / LANES * LANES;
                state.lanes[first..first + LANES].iter().all(|now| *now > generation)
            };
            let oldest = state.closed.iter().find(|((generation, is_referred_to, _), (lane, _))| {
                !is_referred_to || has_left(*lane, *generation)
            });
            let Some(rank) = oldest.map(|(rank, _)| *rank) else { return };
            let Some((_, part)) = state.closed.remove(&rank) else { return };
            state.total_bytes -= part.bytes;
            // A lake has its rows, and will delete it.
            if is_in_lake(&part) {
                continue;
            }
            // Somebody else may have deleted it: the budget is kept all the same.
            let _ = std::fs::remove_file(&part.path);
            state.deleted.parts += 1;
            state.deleted.rows += part.rows;
            state.deleted.bytes += part.bytes;
        }
    }
}

/// Whether a part was compacted.
fn is_in_lake(part: &ClosedPart) -> bool {
    let table = part.path.parent();
    let root = table.and_then(|table| table.parent());
    let name = table.and_then(|table| table.file_name()).and_then(|name| name.to_str());
    root.zip(name).is_some_and(|(root, name)| catalog::is_absorbed(root, name, &part.path))
}
