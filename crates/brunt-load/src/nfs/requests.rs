//! The requests of one worker: draws operations by their weights, and files and names for them.
//!
//! The rule: requests depend only on the seed, never on answers. A request that uses a name or lock created by an
//! earlier request waits until that request has been answered.

use std::collections::VecDeque;

use brunt_core::random::Random;
use brunt_core::{Histogram, Nanos};
use brunt_result::RequestStatus;

use super::call::{NUMBER_MAX, NfsCode, address};
use super::op::{NfsOp, OPS};
use super::settings::NfsSettings;
use crate::block::generator::Planned;
use crate::block::patterns::OffsetSampler;
use crate::block::seeded::Pattern;
use crate::block::sizes::SizeSampler;
use crate::block::synthetic::{RequestPace, WorkerId};
use crate::block::workload::{Arrival, Workload};
use crate::content::{Carried, Content};
use crate::file_sizes::FileSizeSampler;
use crate::sequence::{Next, Sequence};

/// Number of the random sequence for a worker's NFS calls; 0 and 1 are those of the generator of block requests and
/// of the schedule.
const PART: u64 = 2;

/// Names that exist if all requests so far succeed, the oldest first, each with the index of the request that creates
/// it.
#[derive(Debug)]
struct Names {
    live: VecDeque<(u64, Option<u64>)>,
    next: u64,
    live_max: usize,
}

impl Names {
    fn new(count: u32) -> Names {
        let live_max = 2 * count as usize;
        let mut live = VecDeque::with_capacity(live_max + 1);
        live.extend((0..u64::from(count)).map(|number| (number, None)));
        Names {
            live,
            next: count.into(),
            live_max,
        }
    }

    /// Returns a new name, which the request with this index creates.
    fn make(&mut self, index: u64) -> u64 {
        let number = self.next;
        self.next = (self.next + 1) & NUMBER_MAX;
        self.live.push_back((number, Some(index)));
        number
    }
}

/// Locks that are held if all requests so far succeed, the oldest first, each with the index of the request that
/// takes it.
#[derive(Debug)]
struct Locks {
    held: VecDeque<(u64, u64)>,
    next: u64,
    /// At most the number of files, so that no file is locked twice.
    held_max: u64,
    files: u64,
}

impl Locks {
    /// Locks the next file, for the request with this index.
    fn lock(&mut self, index: u64) -> u64 {
        let file = self.next;
        self.next = (file + 1) % self.files;
        self.held.push_back((file, index));
        file
    }
}

/// A worker's requests; see the module's docs.
#[derive(Debug)]
struct NfsRequests {
    random: Random,
    /// Operations with their cumulative shares.
    choices: Vec<(f64, NfsOp)>,
    /// Sizes of READ and WRITE.
    sizes: SizeSampler,
    pattern: OffsetSampler,
    directories: u64,
    file_sizes: FileSizeSampler,
    files: Names,
    folders: Names,
    locks: Locks,
    index: u64,
}

/// A request that may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Drawn {
    planned: Planned,
    /// This request takes the name or lock that the drawn one needs.
    after: Option<u64>,
    /// Whether the drawn request creates a name or takes a lock.
    makes: bool,
}

/// Returns the items that have a weight, with their cumulative shares.
fn cumulative<T>(weighted: impl Iterator<Item = (f64, T)> + Clone) -> Vec<(f64, T)> {
    let all: f64 = weighted.clone().map(|(weight, _)| weight).sum();
    let mut sum = 0.0;
    let share = |(weight, thing)| {
        sum += weight;
        (sum / all, thing)
    };
    weighted
        .filter(|(weight, _)| *weight > 0.0)
        .map(share)
        .collect()
}

fn choose<T: Copy>(shares: &[(f64, T)], random: &mut Random) -> T {
    if let [(_, only)] = shares {
        return *only;
    }
    let draw = random.unit();
    let found = shares.iter().find(|(below, _)| draw < *below);
    found.unwrap_or(&shares[shares.len() - 1]).1
}

impl NfsRequests {
    /// `tree` is the number of the worker's part of its host's tree.
    fn new(workload: &Workload, settings: &NfsSettings, id: WorkerId, tree: u32) -> NfsRequests {
        let weighted = OPS.into_iter().map(|op| (settings.mix.weight(op), op));
        NfsRequests {
            random: Random::for_part(id.seed, u64::from(id.worker) * 4 + PART),
            choices: cumulative(weighted),
            sizes: SizeSampler::new(&workload.blocks),
            pattern: OffsetSampler::new(&workload.distribution, settings.files_of_worker()),
            directories: settings.directories.into(),
            file_sizes: FileSizeSampler::new(&settings.file_size, tree),
            files: Names::new(settings.names),
            folders: Names::new(settings.names),
            locks: Locks {
                held: VecDeque::new(),
                next: 0,
                held_max: settings.locks_max(),
                files: settings.files_of_worker(),
            },
            index: 0,
        }
    }

    fn next_request(&mut self) -> Drawn {
        let index = self.index;
        self.index += 1;
        let drawn = choose(&self.choices, &mut self.random);
        let op = self.possible(drawn);
        let names = match op {
            NfsOp::Mkdir | NfsOp::Rmdir => &mut self.folders,
            _ => &mut self.files,
        };
        let (mut after, mut other) = (None, 0);
        let number = match op {
            NfsOp::Read | NfsOp::Write => return self.transfer(op, index),
            NfsOp::Create | NfsOp::Mkdir => names.make(index),
            NfsOp::Remove | NfsOp::Rmdir | NfsOp::Rename => {
                let (number, made_by) = names.live.pop_front().expect("a name is left");
                after = made_by;
                if op == NfsOp::Rename {
                    other = names.make(index);
                }
                number
            }
            NfsOp::Lock => self.locks.lock(index),
            NfsOp::Locku => {
                let (file, locked_by) = self.locks.held.pop_front().expect("a lock is left");
                after = Some(locked_by);
                file
            }
            NfsOp::Readdirplus | NfsOp::Readlink => self.random.below(self.directories),
            NfsOp::Getattr | NfsOp::Lookup | NfsOp::Access | NfsOp::Commit | NfsOp::Setattr => {
                self.pattern.draw(&mut self.random)
            }
        };
        let code = NfsCode { op, number, other };
        Drawn {
            planned: Planned {
                kind: op.kind(),
                ..Planned::new(index, op.carrier(), code.offset(), 0)
            },
            after,
            makes: matches!(
                op,
                NfsOp::Create | NfsOp::Mkdir | NfsOp::Rename | NfsOp::Lock
            ),
        }
    }

    /// Returns the operation, or the one that replaces it if the names require that.
    fn possible(&self, op: NfsOp) -> NfsOp {
        let is_full = |names: &Names| names.live.len() >= names.live_max;
        match op {
            NfsOp::Create if is_full(&self.files) => NfsOp::Remove,
            NfsOp::Remove | NfsOp::Rename if self.files.live.is_empty() => NfsOp::Create,
            NfsOp::Mkdir if is_full(&self.folders) => NfsOp::Rmdir,
            NfsOp::Rmdir if self.folders.live.is_empty() => NfsOp::Mkdir,
            NfsOp::Lock if self.locks.held.len() as u64 >= self.locks.held_max => NfsOp::Locku,
            NfsOp::Locku if self.locks.held.is_empty() => NfsOp::Lock,
            op => op,
        }
    }

    fn transfer(&mut self, op: NfsOp, index: u64) -> Drawn {
        let len = self.sizes.draw(&mut self.random);
        let file = self.pattern.draw(&mut self.random);
        let file_bytes = self.file_sizes.size_of(file);
        let len = len.min(file_bytes);
        let block = self.random.below(file_bytes / len);
        let address = address(file, block * len);
        Drawn {
            planned: Planned::new(index, op.carrier(), address, len),
            after: None,
            makes: false,
        }
    }
}

/// A worker's requests with their due times.
pub(super) struct NfsSequence {
    requests: NfsRequests,
    pace: RequestPace,
    is_open: bool,
    start: Nanos,
    /// A drawn request that waits for a name or lock, and its original due time.
    held: Option<(Drawn, Nanos)>,
    /// Requests in flight that create names or take locks.
    making: Vec<u64>,
}

impl NfsSequence {
    pub(super) fn new(
        workload: &Workload,
        settings: &NfsSettings,
        id: WorkerId,
        tree: u32,
    ) -> NfsSequence {
        NfsSequence {
            requests: NfsRequests::new(workload, settings, id, tree),
            pace: RequestPace::of(workload, id),
            is_open: matches!(workload.arrival, Arrival::Open { .. }),
            start: Nanos(0),
            held: None,
            making: Vec::with_capacity(workload.queue_depth as usize),
        }
    }
}

impl Sequence for NfsSequence {
    type Request = Planned;

    fn starts(&mut self, start: Nanos) {
        self.start = start;
    }

    fn next(&mut self, now: Nanos, place: &mut Planned) -> Next {
        let (drawn, due) = match self.held.take() {
            Some(held) => held,
            None => match self.pace.take(now, self.start, self.requests.index) {
                Ok(due) => (self.requests.next_request(), due),
                Err(wait) => return wait,
            },
        };
        if let Some(maker) = drawn.after
            && self.making.contains(&maker)
        {
            self.held = Some((drawn, due));
            return Next::WaitFor(maker);
        }
        if drawn.makes {
            self.making.push(drawn.planned.index);
        }
        *place = drawn.planned;
        // In a closed loop, a request is due when it can be sent.
        Next::Due(if self.is_open { due } else { now })
    }

    fn overdue(&self, now: Nanos, ages: &mut Histogram) {
        if let Some((_, due)) = self.held.filter(|(_, due)| self.is_open && *due <= now) {
            ages.record(Nanos(now.0 - due.0));
        }
        self.pace.overdue(now, self.start, ages);
    }

    #[inline]
    fn completed(&mut self, index: u64, _status: RequestStatus, _at: Nanos) {
        self.pace.completed(index);
        self.making.retain(|making| *making != index);
    }

    fn set_rate(&mut self, rate: f64, now: Nanos) -> bool {
        self.pace.set_rate(rate, now, self.start)
    }
}

/// The data of WRITE calls, which depends on the seed and the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NfsData {
    seed: u64,
}

impl NfsData {
    /// Data that follows from this seed and the index of the request.
    pub(crate) fn seeded(seed: u64) -> NfsData {
        NfsData { seed }
    }

    pub(super) fn new(id: WorkerId) -> NfsData {
        let mut random = Random::for_part(id.seed, u64::from(id.worker) * 4 + PART);
        NfsData::seeded(random.next_u64())
    }
}

impl Content for NfsData {
    type Request = Planned;

    const TAKES_TIME: bool = true;

    fn fill(&mut self, request: &Planned, carried: &mut Carried) {
        let seed = self.seed.wrapping_add(request.index);
        Pattern::Seeded(seed).fill(0, &mut carried.buf[..request.len as usize]);
    }

    fn completed(
        &mut self,
        _request: &Planned,
        _carried: &mut Carried,
        status: RequestStatus,
    ) -> RequestStatus {
        status
    }
}

#[cfg(test)]
mod tests;
