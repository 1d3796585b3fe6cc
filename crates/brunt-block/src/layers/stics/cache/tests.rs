//! Compares the cache with a plain copy, and tests when it destages.

use super::*;
use brunt_core::random::Random;

const POLICY: Policy = Policy {
    always: true,
    idle: Duration::ZERO,
    high_bytes: u64::MAX,
    low_bytes: 0,
};
const SECTOR: u64 = 512;

/// A log file and a device as plain byte arrays, driven step by step.
struct Model {
    cache: Cache,
    log: Vec<u8>,
    device: Vec<u8>,
    truth: Vec<u8>,
    random: Random,
}

impl Model {
    fn new(seed: u64) -> Model {
        let (memory, capacity, device) = (64 << 10, 160 << 10, 96 << 10);
        let head = LogPlace {
            at: 8 * BLOCK,
            sequence: 3,
        };
        Model {
            cache: Cache::new(memory, capacity, head, 1, POLICY, Nanos(0)),
            log: vec![0; capacity as usize],
            device: vec![0; device],
            truth: vec![0; device],
            random: Random::new(seed),
        }
    }

    fn write(&mut self) {
        let sectors = self.truth.len() as u64 / SECTOR;
        let offset = self.random.below(sectors);
        let len = 1 + self.random.below((sectors - offset).min(24));
        let kind = [
            EntryKind::Data,
            EntryKind::Data,
            EntryKind::Zeroes,
            EntryKind::Unmap,
        ][self.random.below(4) as usize];
        let entry = LogEntry {
            offset: offset * SECTOR,
            len: len * SECTOR,
            kind,
        };
        let mut data = vec![0; entry.len as usize];
        if kind == EntryKind::Data {
            self.random.fill(&mut data);
        }
        if self
            .cache
            .append(entry, &data[..entry.data_bytes() as usize], Nanos(0))
            .is_ok()
        {
            self.truth[entry.offset as usize..(entry.offset + entry.len) as usize]
                .copy_from_slice(&data);
        }
    }

    fn log_at(&self, at: u64, len: u64) -> Vec<u8> {
        (at..at + len)
            .map(|at| self.log[at as usize % self.log.len()])
            .collect()
    }

    fn write_log(&mut self) {
        let Some(job) = self.cache.next_job() else {
            return;
        };
        let mut data = vec![0; (job.end - job.header.place.at - BLOCK) as usize];
        self.cache.copy_data(&job, &mut data);
        for (index, byte) in data.iter().enumerate() {
            let at = (job.header.place.at + BLOCK) as usize + index;
            let capacity = self.log.len();
            self.log[at % capacity] = *byte;
        }
        self.cache.wrote(&job);
    }

    fn destage(&mut self) {
        let mut pieces = Vec::new();
        let Some(end) = self.cache.batch(20 << 10, false, &mut pieces) else {
            return;
        };
        for piece in pieces {
            let mut data = vec![0; piece.len as usize];
            match piece.kind {
                EntryKind::Data if self.cache.is_in_memory(piece.at) => {
                    self.cache.get(piece.at, &mut data)
                }
                EntryKind::Data => data = self.log_at(piece.at, piece.len),
                EntryKind::Zeroes | EntryKind::Unmap => {}
            }
            self.device[piece.offset as usize..(piece.offset + piece.len) as usize]
                .copy_from_slice(&data);
        }
        // Sometimes a write occurs in between.
        if self.random.chance(0.3) {
            self.write();
        }
        self.cache.destaged(end);
        self.cache.release(end);
    }

    fn check(&self) {
        let mut at = 0;
        let mut dirty = 0;
        self.cache
            .look_up(0, self.truth.len() as u64, |offset, len, source| {
                assert_eq!(offset, at);
                at += len;
                let mut data = vec![0; len as usize];
                match source {
                    Source::Far => data.copy_from_slice(&self.device[offset as usize..at as usize]),
                    Source::Zeroes => {}
                    Source::Memory(at) => self.cache.get(at, &mut data),
                    Source::Log(at) => {
                        assert!(self.cache.is_in_log(at));
                        data = self.log_at(at, len);
                    }
                }
                assert!(
                    data == self.truth[offset as usize..at as usize],
                    "{source:?} at {offset}"
                );
                dirty += u64::from(data != self.device[offset as usize..at as usize]);
            });
        assert_eq!(at, self.truth.len() as u64);
        assert!(
            dirty == 0 || self.cache.backlog_bytes() > 0,
            "what differs is in the log"
        );
    }
}

/// For any order of writes, log writes and destages, a read returns the latest write, and the device matches after
/// everything is destaged.
#[test]
fn the_cache_matches_a_plain_copy() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for _ in 0..150 {
            match model.random.below(8) {
                0..4 => model.write(),
                4..6 => model.write_log(),
                6 => model.destage(),
                _ => model.check(),
            }
        }
        while model.cache.backlog_bytes() > 0 {
            model.write_log();
            model.destage();
        }
        model.check();
        assert!(model.device == model.truth, "seed {seed}");
        assert_eq!(model.cache.dirty_bytes(), 0);
    }
}

/// A full log accepts nothing until its oldest record has reached the device and is released.
#[test]
fn a_full_log_waits_for_the_device() {
    let mut cache = Cache::new(1 << 20, 8 * BLOCK, LogPlace::default(), 1, POLICY, Nanos(0));
    let data = vec![1; 3 * BLOCK as usize];
    let entry = |block| LogEntry {
        offset: block * BLOCK,
        len: 3 * BLOCK,
        kind: EntryKind::Data,
    };
    let write = |cache: &mut Cache, block| {
        let outcome = cache.append(entry(block), &data, Nanos(0));
        while let Some(job) = cache.next_job() {
            cache.wrote(&job);
        }
        outcome
    };
    assert_eq!((write(&mut cache, 0), write(&mut cache, 9)), (Ok(0), Ok(1)));
    assert_eq!(write(&mut cache, 18), Err(NoRoom));
    let mut pieces = Vec::new();
    let end = cache.batch(1, false, &mut pieces).unwrap();
    assert_eq!(
        pieces,
        [Piece {
            offset: 0,
            len: 3 * BLOCK,
            kind: EntryKind::Data,
            at: BLOCK
        }]
    );
    cache.destaged(end);
    assert_eq!(
        write(&mut cache, 18),
        Err(NoRoom),
        "the superblock does not say so yet"
    );
    cache.release(end);
    assert_eq!(write(&mut cache, 18), Ok(2));
}

/// Destaging starts after a time without writes, or at the high threshold, and then continues to the low one.
#[test]
fn destaging_starts_when_idle_or_at_the_high_threshold() {
    let policy = Policy {
        always: false,
        idle: Duration::from_secs(1),
        high_bytes: 6 * BLOCK,
        low_bytes: 2 * BLOCK,
    };
    let mut cache = Cache::new(1 << 20, 1 << 20, LogPlace::default(), 1, policy, Nanos(0));
    let entry = LogEntry {
        offset: 0,
        len: BLOCK,
        kind: EntryKind::Data,
    };
    let data = vec![1; BLOCK as usize];
    assert_eq!(cache.due(true, Nanos(0)), Due::Never);
    let mut pieces = Vec::new();
    for count in 1..=3 {
        cache.append(entry, &data, Nanos(count)).unwrap();
        let job = cache.next_job().unwrap();
        cache.wrote(&job);
        let due = cache.due(false, Nanos(count));
        assert_eq!(
            due,
            if count < 3 {
                Due::At(Nanos(1_000_000_000 + count))
            } else {
                Due::Now
            }
        );
    }
    assert_eq!(cache.absorbed_bytes(), 2 * BLOCK);
    for due in [Due::Now, Due::At(Nanos(1_000_000_003)), Due::Never] {
        let end = cache.batch(1, false, &mut pieces).unwrap();
        cache.destaged(end);
        cache.release(end);
        assert_eq!(cache.due(false, Nanos(9)), due);
    }
    cache.append(entry, &data, Nanos(10)).unwrap();
    assert_eq!(
        cache.due(false, Nanos(1_000_000_010)),
        Due::Now,
        "idle for long enough"
    );
    assert_eq!(cache.due(true, Nanos(11)), Due::Now, "asked for");
}
