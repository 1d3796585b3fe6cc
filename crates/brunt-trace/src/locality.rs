//! Measures how requests reuse blocks: reuse distances, and the hit ratios of caches of
//! different sizes. Used by [`crate::info`].
//!
//! Blocks are sampled by a hash of their number (SHARDS: Waldspurger and others, FAST '15). A block
//! is tracked always or never, so distances in the sample, divided by the sampling rate, are those
//! of the trace. When more blocks appear than can be tracked, the rate falls, and blocks whose hash
//! exceeds the new threshold are dropped.
//!
//! The rule: at most [`BLOCKS_MAX`] blocks are tracked, and each figure comes with its error.

use std::collections::{BTreeSet, HashMap};

use brunt_core::sketch::spread;
use serde::Serialize;

/// Maximum number of tracked blocks.
pub const BLOCKS_MAX: usize = 8192;
/// The granularity of tracking.
pub const BLOCK_BYTES: u64 = 4096;
/// Number of classes in which distances are counted: powers of two, in blocks.
const CLASSES: usize = 52;

/// How blocks are reused.
#[derive(Clone, Debug, Serialize)]
pub struct Reuse {
    /// Share of block accesses that are the block's first.
    pub first_use_share: f64,
    /// Median reuse distance over accesses that aren't the first: the bytes of other blocks
    /// accessed in between, as a power of two. None if no block is reused.
    pub median_bytes: Option<u64>,
    /// Hit ratios of LRU caches of different sizes.
    pub caches: Vec<CacheShare>,
    /// Share of blocks that were tracked.
    pub sampled_share: f64,
    /// Number of blocks tracked at the end.
    pub sampled_blocks: u64,
    /// Upper bound of the shares' standard error: 0.5 / √ `sampled_blocks`; 0 if all blocks were tracked.
    pub standard_error: f64,
}

/// The hit ratio of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheShare {
    /// The size of the cache.
    pub bytes: u64,
    /// Share of block accesses that hit.
    pub share: f64,
}

/// Hashes a number.
#[inline]
pub(crate) fn mixed(number: u64) -> u64 {
    spread(number.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Tracks block reuse.
pub struct ReuseSampler {
    /// Blocks with a hash up to this value are tracked; initially all.
    threshold: u64,
    /// The time of each block's last access.
    last: HashMap<u64, u32>,
    by_hash: BTreeSet<(u64, u64)>,
    /// A 1 at each block's last access, in a Fenwick tree (Fenwick, 1994).
    ones: Vec<u32>,
    now: u32,
    first_uses: f64,
    /// Accesses by the power of two of their distance, in blocks of the trace.
    classes: [f64; CLASSES],
}

impl Default for ReuseSampler {
    fn default() -> ReuseSampler {
        ReuseSampler {
            threshold: u64::MAX,
            last: HashMap::new(),
            by_hash: BTreeSet::new(),
            ones: vec![0; TIMES + 1],
            now: 0,
            first_uses: 0.0,
            classes: [0.0; CLASSES],
        }
    }
}

/// Accesses until times are renumbered.
const TIMES: usize = BLOCKS_MAX * 8;

impl ReuseSampler {
    /// Records an access to a block with this hash.
    #[inline]
    pub(crate) fn add(&mut self, block: u64, hash: u64) {
        if hash <= self.threshold {
            self.follow(block, hash);
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    fn follow(&mut self, block: u64, hash: u64) {
        if self.now as usize == TIMES {
            self.renumber();
        }
        self.now += 1;
        match self.last.insert(block, self.now) {
            Some(before) => {
                let between = self.last.len() as u32 - self.sum(before);
                self.change(before, -1);
                let distance = f64::from(between) / self.rate();
                let class = (distance.max(1.0).log2() as usize + usize::from(distance >= 1.0))
                    .min(CLASSES - 1);
                self.classes[class] += 1.0;
            }
            None => {
                self.first_uses += 1.0;
                self.by_hash.insert((hash, block));
            }
        }
        self.change(self.now, 1);
        if self.last.len() > BLOCKS_MAX {
            self.lower();
        }
        assert_eq!(
            self.last.len(),
            self.by_hash.len(),
            "each followed block has a hash"
        );
    }

    /// Drops the block with the largest hash, and scales down earlier counts to the lower sampling rate.
    fn lower(&mut self) {
        let Some((hash, block)) = self.by_hash.pop_last() else {
            return;
        };
        if let Some(time) = self.last.remove(&block) {
            self.change(time, -1);
        }
        let before = self.rate();
        self.threshold = hash - 1;
        let less = self.rate() / before;
        self.first_uses *= less;
        self.classes.iter_mut().for_each(|uses| *uses *= less);
    }

    fn change(&mut self, time: u32, by: i32) {
        let mut at = time as usize;
        while at <= TIMES {
            self.ones[at] = self.ones[at].wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Number of blocks last accessed at or before this time.
    fn sum(&self, time: u32) -> u32 {
        let (mut at, mut sum) = (time as usize, 0u32);
        while at > 0 {
            sum += self.ones[at];
            at &= at - 1;
        }
        sum
    }

    /// Renumbers times consecutively, in the order of last accesses.
    fn renumber(&mut self) {
        let mut order: Vec<(u32, u64)> = self
            .last
            .iter()
            .map(|(block, time)| (*time, *block))
            .collect();
        order.sort_unstable();
        self.ones.fill(0);
        self.now = 0;
        for (_, block) in order {
            self.now += 1;
            self.last.insert(block, self.now);
            self.change(self.now, 1);
        }
    }

    /// The result; none without accesses.
    pub fn finish(&self) -> Option<Reuse> {
        let again: f64 = self.classes.iter().sum();
        let uses = again + self.first_uses;
        if uses == 0.0 {
            return None;
        }
        let mut below = 0.0;
        let (mut median, mut caches) = (None, Vec::new());
        let last = self
            .classes
            .iter()
            .rposition(|uses| *uses > 0.0)
            .map_or(0, |class| class + 1);
        for (class, count) in self.classes.iter().enumerate().take(last) {
            below += count;
            // Class n holds distances below 2^n blocks, which hit in a cache of that many blocks.
            let bytes = BLOCK_BYTES << class;
            if median.is_none() && below * 2.0 >= again {
                median = Some(bytes);
            }
            caches.push(CacheShare {
                bytes,
                share: below / uses,
            });
        }
        let blocks = self.last.len() as u64;
        let sampled = self.threshold < u64::MAX;
        Some(Reuse {
            first_use_share: self.first_uses / uses,
            median_bytes: median,
            caches,
            sampled_share: self.rate(),
            sampled_blocks: blocks,
            standard_error: if sampled {
                0.5 / (blocks as f64).sqrt()
            } else {
                0.0
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_distances_of_a_loop_equal_its_length() {
        let mut sampler = ReuseSampler::default();
        for _ in 0..10 {
            (0..1000).for_each(|block| sampler.add(block, mixed(block)));
        }
        let reuse = sampler.finish().unwrap();
        assert!((reuse.first_use_share - 0.1).abs() < 1e-9 && reuse.standard_error == 0.0);
        assert_eq!(reuse.median_bytes, Some(1024 * BLOCK_BYTES));
        let share = |bytes| {
            reuse
                .caches
                .iter()
                .find(|cache| cache.bytes == bytes)
                .map(|cache| cache.share)
        };
        assert_eq!(
            (share(512 * BLOCK_BYTES), share(1024 * BLOCK_BYTES)),
            (Some(0.0), Some(0.9))
        );
        assert!(ReuseSampler::default().finish().is_none());
    }

    #[test]
    fn a_sample_agrees_with_all_blocks_within_its_error() {
        let mut sampler = ReuseSampler::default();
        let mut random = brunt_core::random::Random::new(3);
        // A tenth of the blocks gets nine tenths of the accesses.
        for _ in 0..600_000 {
            let block = if random.chance(0.9) {
                random.below(10_000)
            } else {
                random.below(100_000)
            };
            sampler.add(block, mixed(block));
        }
        let reuse = sampler.finish().unwrap();
        assert!(reuse.sampled_blocks <= BLOCKS_MAX as u64 && reuse.sampled_share < 0.2);
        // Nearly all hot blocks fit in 2^14 blocks; cold blocks have longer reuse distances.
        let hot = reuse
            .caches
            .iter()
            .find(|cache| cache.bytes == BLOCK_BYTES << 14)
            .unwrap()
            .share;
        assert!((0.75..0.97).contains(&hot), "{hot}");
        assert!(reuse.first_use_share < 0.25, "{}", reuse.first_use_share);
    }
}
