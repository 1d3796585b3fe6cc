//! Keeps a trace within its limits on size and age: decides which parts to delete, and when rows have to be rewritten
//! so that the remaining parts are self-contained. Shared by all lanes of all pipelines.
//!
//! The trace is divided into *generations*, each of which takes up to an eighth of the size or age limit. When a
//! generation begins, each writer forgets which flows and handles were written, so that each generation contains all
//! rows that its other rows refer to. The oldest parts are deleted first. Within a generation, parts that others
//! refer to are deleted last, and not before their pipeline has left the generation; if only the age limit requires
//! their deletion, they stay until no part refers to them any more.
//!
//! Closed parts can also be moved elsewhere ([`TraceParts`]): the mover claims one part at a time, which is not
//! deleted while it is claimed. The one rule: parts being written are never deleted or moved, and every deletion is
//! counted.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brunt_lake::{ClosedPart, catalog};

use super::rows::LANES;
use super::store::Shared;

/// Each generation takes this fraction of the limits.
const GENERATIONS: u32 = 8;

/// How much of a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepLimits {
    /// Maximum bytes of all parts.
    pub bytes: u64,
    /// Maximum time since a part was closed.
    pub age: Option<Duration>,
}

/// Totals of deleted data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    pub parts: u64,
    pub rows: u64,
    pub bytes: u64,
}

/// Deletion order of closed parts: by generation, then those that others refer to last, then by order of closing.
type Rank = (u64, bool, u64);

pub(super) struct Budget {
    keep: KeepLimits,
    generation: AtomicU64,
    state: Mutex<State>,
}

/// A closed part.
struct Kept {
    /// The lane that wrote the part.
    lane: usize,
    part: ClosedPart,
    /// When the part is deleted because of its age.
    expires: Option<Instant>,
}

struct State {
    closed: BTreeMap<Rank, Kept>,
    /// No closed part has to be deleted because of its age before this time; `None` if there is no age limit.
    first_expiry: Option<Instant>,
    closed_count: u64,
    /// Bytes of all parts, including open ones.
    total_bytes: u64,
    /// Total bytes written so far; then that total, and the time, at the start of the current generation.
    written_bytes: u64,
    generation_from: u64,
    generation_since: Instant,
    /// The generation that each lane is writing.
    lanes: Vec<u64>,
    deleted: Deleted,
    /// Closed parts that may be moved, oldest first: all except the newest of each lane and table.
    movable: BTreeMap<u64, Rank>,
    newest: HashMap<(usize, PathBuf), Rank>,
    /// The part being moved.
    claimed: Option<Rank>,
    /// Bytes of the parts in `movable`.
    movable_bytes: u64,
}

impl State {
    fn add(&mut self, rank: Rank, kept: Kept) {
        let expiries = [self.first_expiry, kept.expires];
        self.first_expiry = expiries.into_iter().flatten().min();
        self.closed.insert(rank, kept);
    }

    /// Whether a part that others refer to may be deleted: its pipeline must have left the generation, and unless the
    /// trace exceeds its size limit (`is_over`), no part that may refer to it may be left.
    fn is_released(&self, generation: u64, lane: usize, is_over: bool) -> bool {
        // A pipeline's rows refer to rows of the same pipeline and generation.
        let pipeline = lane / LANES;
        let lanes = &self.lanes[pipeline * LANES..(pipeline + 1) * LANES];
        let referring = (generation, false, 0)..(generation, true, 0);
        let mut referring = self.closed.range(referring);
        lanes.iter().all(|now| *now > generation)
            && (is_over || !referring.any(|(_, kept)| kept.lane / LANES == pipeline))
    }

    /// Removes a closed part whose file has been or will be deleted.
    fn forget(&mut self, rank: Rank) -> Option<ClosedPart> {
        let part = self.closed.remove(&rank)?.part;
        self.unlist(rank, part.bytes);
        self.total_bytes -= part.bytes;
        Some(part)
    }

    /// Removes the part from the movable parts.
    fn unlist(&mut self, rank: Rank, bytes: u64) {
        if self.movable.remove(&rank.2).is_some() {
            self.movable_bytes -= bytes;
        }
    }
}

/// The closed parts of a trace that is being written, for moving them elsewhere: one at a time, oldest first, and
/// never the newest part of a table.
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

    /// Claims the next part to move; returns the same part until it is deleted or passed over. A claimed part is kept
    /// even if the trace exceeds its size limit.
    pub fn claim(&self) -> Option<ClosedPart> {
        self.0.budget.as_ref()?.claim()
    }

    /// Deletes the file of the claimed part after it has been moved.
    ///
    /// # Errors
    /// The file cannot be deleted; the part stays claimed.
    pub fn delete_claimed(&self) -> std::io::Result<()> {
        self.0
            .budget
            .as_ref()
            .map_or(Ok(()), Budget::delete_claimed)
    }

    /// Releases the claimed part and does not offer it again.
    pub fn pass_over_claimed(&self) {
        self.0.budget.iter().for_each(Budget::pass_over_claimed);
    }

    /// Number of parts that may be moved now, and their total bytes.
    pub fn movable(&self) -> (u64, u64) {
        self.0.budget.as_ref().map_or((0, 0), Budget::movable)
    }
}

impl Budget {
    /// Limits shared by `lanes` lanes, the first `past` of which belong to earlier captures and write nothing more.
    pub fn new(keep: KeepLimits, lanes: usize, past: usize) -> Budget {
        let mut writing = vec![0; lanes];
        writing[..past].fill(u64::MAX);
        let state = State {
            closed: BTreeMap::new(),
            first_expiry: None,
            closed_count: 0,
            total_bytes: 0,
            written_bytes: 0,
            generation_from: 0,
            generation_since: Instant::now(),
            lanes: writing,
            deleted: Deleted::default(),
            movable: BTreeMap::new(),
            newest: HashMap::new(),
            claimed: None,
            movable_bytes: 0,
        };
        Budget {
            keep,
            // The data of earlier captures forms the oldest generation.
            generation: AtomicU64::new(u64::from(past > 0)),
            state: Mutex::new(state),
        }
    }

    /// Adds a part of an earlier capture.
    pub fn on_found(&self, lane: usize, is_referred_to: bool, part: ClosedPart) {
        let modified = part.path.metadata().and_then(|about| about.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        let mut state = self.state();
        state.total_bytes += part.bytes;
        let rank = (0, is_referred_to, state.closed_count);
        state.closed_count += 1;
        let left = self
            .keep
            .age
            .map(|keep| keep.saturating_sub(age.unwrap_or_default()));
        let expires = left.and_then(|left| Instant::now().checked_add(left));
        state.add(
            rank,
            Kept {
                lane,
                part,
                expires,
            },
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation for new rows.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub fn deleted(&self) -> Deleted {
        self.state().deleted
    }

    /// Records that lane `lane` has closed all its parts of older generations.
    pub fn begin(&self, lane: usize, generation: u64) {
        let mut state = self.state();
        state.lanes[lane] = generation;
        // Parts that others refer to may now be deletable.
        state.first_expiry = state.first_expiry.map(|_| Instant::now());
        self.make_room(&mut state);
    }

    /// Records that an open part was created or has grown.
    pub fn on_grown(&self, bytes_before: u64, bytes: u64) {
        if bytes_before == bytes && self.keep.age.is_none() {
            return;
        }
        let mut state = self.state();
        state.total_bytes = state.total_bytes + bytes - bytes_before;
        state.written_bytes += bytes.saturating_sub(bytes_before);
        self.make_room(&mut state);
    }

    /// Records that a part was closed, `open_bytes` of which have already been counted.
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
            && let Some(bytes) = state.closed.get(&before).map(|kept| kept.part.bytes)
        {
            state.movable_bytes += bytes;
            state.movable.insert(before.2, before);
        }
        let expires = self
            .keep
            .age
            .and_then(|age| Instant::now().checked_add(age));
        state.add(
            rank,
            Kept {
                lane,
                part,
                expires,
            },
        );
        self.make_room(&mut state);
    }

    fn claim(&self) -> Option<ClosedPart> {
        let mut state = self.state();
        if state.claimed.is_none() {
            state.claimed = state.movable.first_key_value().map(|(_, rank)| *rank);
        }
        let rank = state.claimed?;
        state.closed.get(&rank).map(|kept| kept.part.clone())
    }

    fn delete_claimed(&self) -> std::io::Result<()> {
        let mut state = self.state();
        let Some(rank) = state.claimed else {
            return Ok(());
        };
        if let Some(kept) = state.closed.get(&rank) {
            match std::fs::remove_file(&kept.part.path) {
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
        let bytes = state.closed.get(&rank).map_or(0, |kept| kept.part.bytes);
        state.unlist(rank, bytes);
        self.make_room(&mut state);
    }

    fn movable(&self) -> (u64, u64) {
        let state = self.state();
        (state.movable.len() as u64, state.movable_bytes)
    }

    fn make_room(&self, state: &mut State) {
        let now = Instant::now();
        let is_old = |since: Instant| {
            let age = self.keep.age.map(|age| age / GENERATIONS);
            age.is_some_and(|age| now.saturating_duration_since(since) >= age)
        };
        let written = state.written_bytes - state.generation_from;
        if written >= self.keep.bytes / u64::from(GENERATIONS)
            || written > 0 && is_old(state.generation_since)
        {
            state.generation_from = state.written_bytes;
            state.generation_since = now;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        let is_due = state.first_expiry.is_some_and(|first| first <= now);
        if !is_due && state.total_bytes <= self.keep.bytes {
            return;
        }
        self.delete_parts(state, now);
        // Parts that are due but may not be deleted yet are checked again after a second.
        let first = state.closed.values().filter_map(|kept| kept.expires).min();
        state.first_expiry = first.map(|first| first.max(now + Duration::from_secs(1)));
    }

    fn delete_parts(&self, state: &mut State, now: Instant) {
        loop {
            let is_over = state.total_bytes > self.keep.bytes;
            let oldest = state.closed.iter().find(|(rank, kept)| {
                let (generation, is_referred_to, _) = **rank;
                let is_due = is_over || kept.expires.is_some_and(|expires| expires <= now);
                is_due
                    && state.claimed != Some(**rank)
                    && (!is_referred_to || state.is_released(generation, kept.lane, is_over))
            });
            let Some(rank) = oldest.map(|(rank, _)| *rank) else {
                return;
            };
            let Some(part) = state.forget(rank) else {
                return;
            };
            // The lake contains the part's rows, and deletes its file itself.
            if is_in_lake(&part) {
                continue;
            }
            // If something else has already deleted the file, the budget is still correct.
            let _ = std::fs::remove_file(&part.path);
            state.deleted.parts += 1;
            state.deleted.rows += part.rows;
            state.deleted.bytes += part.bytes;
        }
    }
}

/// Whether a part was compacted into the lake.
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

    fn budget(bytes: u64, age: Option<Duration>) -> Budget {
        Budget::new(KeepLimits { bytes, age }, LANES, 0)
    }

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

    /// The oldest part comes first; the newest part of each table stays; moved parts don't count as deleted.
    #[test]
    fn closed_parts_are_claimed_oldest_first_except_the_newest_of_each_table() {
        let (budget, parts) = (budget(u64::MAX, None), Parts(TempDir::new().unwrap()));
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

    /// A part being moved is not deleted to free space; other parts are deleted and counted instead.
    #[test]
    fn a_part_being_moved_is_not_deleted_for_lack_of_space() {
        let (budget, parts) = (budget(25, None), Parts(TempDir::new().unwrap()));
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
        // A deleted part is not offered again.
        budget.delete_claimed().unwrap();
        assert_eq!((budget.claim(), budget.movable()), (None, (0, 0)));
        let fourth = parts.close(&budget, "a", 3);
        assert!(third.exists() && fourth.exists());
        assert_eq!(budget.claim().unwrap().path, third);
        // A part that was passed over may be deleted again.
        parts.close(&budget, "a", 4);
        assert!(third.exists() && !fourth.exists());
        budget.pass_over_claimed();
        parts.close(&budget, "a", 5);
        assert!(!third.exists());
    }

    /// Old parts are deleted and counted, including those of earlier captures; parts that others refer to stay until
    /// their pipeline has left the generation.
    #[test]
    fn old_parts_are_deleted_and_counted() {
        let parts = Parts(TempDir::new().unwrap());
        let keep = KeepLimits {
            bytes: u64::MAX,
            age: Some(Duration::ZERO),
        };
        let budget = Budget::new(keep, 2 * LANES, LANES);
        let path = parts.0.path().join("old.parquet");
        std::fs::write(&path, [0; 10]).unwrap();
        let part = |path: &Path| ClosedPart {
            path: path.to_path_buf(),
            bytes: 10,
            rows: 1,
        };
        budget.on_found(0, true, part(&path));
        let referred_to = parts.0.path().join("flows.parquet");
        std::fs::write(&referred_to, [0; 10]).unwrap();
        budget.on_closed(LANES, 1, true, part(&referred_to), 0);
        assert!(!path.exists() && referred_to.exists());
        (LANES..2 * LANES).for_each(|lane| budget.begin(lane, 2));
        assert!(!referred_to.exists());
        let deleted = Deleted {
            parts: 2,
            rows: 2,
            bytes: 20,
        };
        assert_eq!(budget.deleted(), deleted);
    }

    /// A part that others refer to stays as long as those other parts exist, even if it exceeds the age limit.
    #[test]
    fn an_old_part_stays_while_younger_ones_refer_to_it() {
        let hour = Duration::from_secs(3600);
        for (data_age, stays) in [(Duration::ZERO, true), (2 * hour, false)] {
            let parts = Parts(TempDir::new().unwrap());
            let keep = KeepLimits {
                bytes: u64::MAX,
                age: Some(hour),
            };
            let budget = Budget::new(keep, 2 * LANES, LANES);
            let found = |name: &str, is_referred_to, age: Duration| {
                let path = parts.0.path().join(name);
                std::fs::write(&path, [0; 10]).unwrap();
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(std::time::SystemTime::now() - age)
                    .unwrap();
                let part = ClosedPart {
                    path: path.clone(),
                    bytes: 10,
                    rows: 1,
                };
                budget.on_found(0, is_referred_to, part);
                path
            };
            let flows = found("flows.parquet", true, 2 * hour);
            let data = found("operations.parquet", false, data_age);
            budget.begin(LANES, 1);
            assert_eq!((flows.exists(), data.exists()), (stays, stays));
        }
    }
}
