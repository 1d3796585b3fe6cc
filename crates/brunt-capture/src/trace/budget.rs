//! Keeps a trace within the room it was given: which parts go, and when rows have to be told anew so that
//! what is left can be understood. Shared by all lanes of all pipelines.
//!
//! The trace is cut into *generations* of an eighth of its room. Whoever writes begins a new one when it is
//! told to and then forgets which flows and handles are known, so that each generation tells those that
//! its own rows refer to. The oldest parts go first; of a generation those that others refer to go last,
//! and not before their pipeline has left it.
//!
//! Closed parts can also leave for another place ([`TraceParts`]): whoever moves them claims one at a time, which is
//! then not deleted under its hands. The one rule: what is being written is never deleted or moved, and what is
//! deleted is counted.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_lake::{ClosedPart, catalog};

use super::rows::LANES;
use super::store::Shared;

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
    /// Closed parts that may be moved, oldest first: all but the newest of each lane and table.
    movable: BTreeMap<u64, Rank>,
    newest: HashMap<(usize, PathBuf), Rank>,
    /// The part that is being moved.
    claimed: Option<Rank>,
    /// Bytes of the parts in `movable`.
    movable_bytes: u64,
}

impl State {
    /// Forgets a closed part whose file is gone or goes.
    fn forget(&mut self, rank: Rank) -> Option<ClosedPart> {
        let (_, part) = self.closed.remove(&rank)?;
        self.unlist(rank, part.bytes);
        self.total_bytes -= part.bytes;
        Some(part)
    }

    /// The part will not be given out to be moved.
    fn unlist(&mut self, rank: Rank, bytes: u64) {
        if self.movable.remove(&rank.2).is_some() {
            self.movable_bytes -= bytes;
        }
    }
}

/// The closed parts of a trace that is being written, for whoever moves them to another place: one at a time, oldest
/// first, and never the newest of a table.
#[derive(Clone)]
pub struct TraceParts(Arc<Shared>);

impl std::fmt::Debug for TraceParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceParts").finish_non_exhaustive()
    }
}

impl TraceParts {
    pub(super) fn new(shared: Arc<Shared>) -> TraceParts {
        TraceParts(shared)
    }

    /// The part to be moved next: the same one until it is deleted or passed over. It stays even when the trace's size
    /// is exceeded.
    pub fn claim(&self) -> Option<ClosedPart> {
        self.0.budget.as_ref()?.claim()
    }

    /// Deletes the file of the claimed part, which is elsewhere now.
    ///
    /// # Errors
    /// The operating system refuses; the part stays claimed.
    pub fn delete_claimed(&self) -> std::io::Result<()> {
        self.0
            .budget
            .as_ref()
            .map_or(Ok(()), Budget::delete_claimed)
    }

    /// The claimed part stays and is not given out again.
    pub fn pass_over_claimed(&self) {
        self.0.budget.iter().for_each(Budget::pass_over_claimed);
    }

    /// Parts that may be moved now, and their bytes.
    pub fn movable(&self) -> (u64, u64) {
        self.0.budget.as_ref().map_or((0, 0), Budget::movable)
    }
}

impl Budget {
    /// Room for `keep_bytes`, shared by so many lanes.
    pub fn new(keep_bytes: u64, lanes: usize) -> Budget {
        let state = State {
            lanes: vec![0; lanes],
            ..State::default()
        };
        Budget {
            keep_bytes,
            generation: AtomicU64::new(0),
            state: Mutex::new(state),
        }
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
        let table = part
            .path
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default();
        if let Some(before) = state.newest.insert((lane, table), rank)
            && let Some((_, part)) = state.closed.get(&before)
        {
            state.movable_bytes += part.bytes;
            state.movable.insert(before.2, before);
        }
        state.closed.insert(rank, (lane, part));
        self.make_room(&mut state);
    }

    fn claim(&self) -> Option<ClosedPart> {
        let mut state = self.state();
        if state.claimed.is_none() {
            state.claimed = state.movable.first_key_value().map(|(_, rank)| *rank);
        }
        let rank = state.claimed?;
        state.closed.get(&rank).map(|(_, part)| part.clone())
    }

    fn delete_claimed(&self) -> std::io::Result<()> {
        let mut state = self.state();
        let Some(rank) = state.claimed else {
            return Ok(());
        };
        if let Some((_, part)) = state.closed.get(&rank) {
            match std::fs::remove_file(&part.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        state.claimed = None;
        state.forget(rank);
        Ok(())
    }

    fn pass_over_claimed(&self) {
        let mut state = self.state();
        let Some(rank) = state.claimed.take() else {
            return;
        };
        let bytes = state.closed.get(&rank).map_or(0, |(_, part)| part.bytes);
        state.unlist(rank, bytes);
        self.make_room(&mut state);
    }

    fn movable(&self) -> (u64, u64) {
        let state = self.state();
        (state.movable.len() as u64, state.movable_bytes)
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
                state.lanes[first..first + LANES]
                    .iter()
                    .all(|now| *now > generation)
            };
            let oldest = state.closed.iter().find(|(rank, (lane, _))| {
                let (generation, is_referred_to, _) = **rank;
                state.claimed != Some(**rank) && (!is_referred_to || has_left(*lane, generation))
            });
            let Some(rank) = oldest.map(|(rank, _)| *rank) else {
                return;
            };
            let Some(part) = state.forget(rank) else {
                return;
            };
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
    let name = table
        .and_then(|table| table.file_name())
        .and_then(|name| name.to_str());
    root.zip(name)
        .is_some_and(|(root, name)| catalog::is_absorbed(root, name, &part.path))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    struct Parts(TempDir);

    impl Parts {
        fn close(&self, budget: &Budget, table: &str, number: u64) -> PathBuf {
            let path = self
                .0
                .path()
                .join(table)
                .join(format!("part-{number:06}.parquet"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, [0; 10]).unwrap();
            budget.on_closed(
                0,
                0,
                false,
                ClosedPart {
                    path: path.clone(),
                    bytes: 10,
                    rows: 1,
                },
                0,
            );
            path
        }
    }

    /// Oldest first; the newest of each table stays; what is moved is not counted as deleted.
    #[test]
    fn closed_parts_leave_one_at_a_time_but_for_the_newest_of_each_table() {
        let (budget, parts) = (Budget::new(u64::MAX, LANES), Parts(TempDir::new().unwrap()));
        assert_eq!(budget.claim(), None);
        let paths = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
            .map(|(table, number)| parts.close(&budget, table, number));
        assert_eq!(budget.movable(), (3, 30));
        for path in [&paths[0], &paths[1]] {
            assert_eq!(budget.claim().unwrap().path, *path);
            assert_eq!(budget.claim().unwrap().path, *path, "until it is done");
            budget.delete_claimed().unwrap();
            assert!(!path.exists());
        }
        assert_eq!(budget.claim().unwrap().path, paths[2]);
        budget.pass_over_claimed();
        assert_eq!((budget.claim(), budget.movable()), (None, (0, 0)));
        assert!(paths[2..].iter().all(|path| path.exists()));
        assert_eq!(budget.deleted(), Deleted::default());
    }

    /// A part on its way to another place is not deleted for lack of room; others are, and counted.
    #[test]
    fn what_is_being_moved_is_not_deleted_for_lack_of_room() {
        let (budget, parts) = (Budget::new(25, LANES), Parts(TempDir::new().unwrap()));
        let first = parts.close(&budget, "a", 0);
        let second = parts.close(&budget, "a", 1);
        assert_eq!(budget.claim().unwrap().path, first);
        let third = parts.close(&budget, "a", 2);
        assert!(first.exists() && !second.exists() && third.exists());
        assert_eq!(
            budget.deleted(),
            Deleted {
                parts: 1,
                rows: 1,
                bytes: 10
            }
        );
        // One that was deleted is not given out.
        budget.delete_claimed().unwrap();
        assert_eq!((budget.claim(), budget.movable()), (None, (0, 0)));
        let fourth = parts.close(&budget, "a", 3);
        assert!(third.exists() && fourth.exists());
        assert_eq!(budget.claim().unwrap().path, third);
        // One that stays may go again.
        parts.close(&budget, "a", 4);
        assert!(third.exists() && !fourth.exists());
        budget.pass_over_claimed();
        parts.close(&budget, "a", 5);
        assert!(!third.exists());
    }
}
