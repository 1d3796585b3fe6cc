//! Returns every position of a region once, in a pseudorandom order, without a table: a pass is a permutation defined
//! by a few keys. Called by the offset sampler.
//!
//! The rule: no position repeats before all have been drawn, and each pass has a different order.

use brunt_core::random::Random;

/// An even number of rounds, so that both halves end up in their original places.
const ROUNDS: usize = 6;

/// Positions in `0..count`, each once per pass.
#[derive(Clone, Debug)]
pub struct Shuffle {
    count: u64,
    /// Bits of the larger and of the smaller half of a position.
    bits: (u32, u32),
    keys: [u64; ROUNDS],
    /// Number of positions drawn in this pass.
    drawn: u64,
    /// The next value to permute; results of `count` or more are discarded.
    next: u64,
}

impl Shuffle {
    /// Creates a shuffle of this many positions.
    pub fn new(count: u64) -> Shuffle {
        let bits = count
            .saturating_sub(1)
            .checked_ilog2()
            .map_or(0, |highest| highest + 1);
        Shuffle {
            count,
            bits: (bits.div_ceil(2), bits / 2),
            keys: [0; ROUNDS],
            drawn: 0,
            next: 0,
        }
    }

    /// Draws the next position.
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        if self.drawn.is_multiple_of(self.count) {
            (self.drawn, self.next) = (0, 0);
            self.keys.fill_with(|| random.next_u64());
        }
        self.drawn += 1;
        loop {
            let position = self.permuted(self.next);
            self.next += 1;
            if position < self.count {
                return position;
            }
        }
    }

    /// Permutes a value with a Feistel network over the positions' bits; halves of unequal length swap sizes in each
    /// round.
    fn permuted(&self, value: u64) -> u64 {
        let (mut wide, mut narrow) = self.bits;
        let (mut left, mut right) = (value >> narrow, value & mask(narrow));
        for key in self.keys {
            (left, right) = (right, left ^ (mixed(right, key) & mask(wide)));
            (wide, narrow) = (narrow, wide);
        }
        left << narrow | right
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Mixes both inputs so that each bit of the result depends on all of their bits (the finalizer of splitmix64).
fn mixed(value: u64, key: u64) -> u64 {
    let mut mixed = value.wrapping_add(key);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_is_drawn_once_per_pass() {
        for count in [1, 2, 3, 4, 5, 100, 1000, 1024, 1025] {
            let (mut shuffle, mut random) = (Shuffle::new(count), Random::new(7));
            let mut pass = || {
                (0..count)
                    .map(|_| shuffle.draw(&mut random))
                    .collect::<Vec<u64>>()
            };
            let (first, second) = (pass(), pass());
            for mut positions in [first.clone(), second.clone()] {
                positions.sort_unstable();
                assert!(positions.into_iter().eq(0..count), "{count}");
            }
            assert!(count < 5 || first != second, "{count}");
        }
    }

    /// Consecutive draws are as far apart as random ones: a third of the region on average.
    #[test]
    fn the_order_looks_random() {
        let (count, mut random) = (100_000u64, Random::new(1));
        let mut shuffle = Shuffle::new(count);
        let all: Vec<u64> = (0..count).map(|_| shuffle.draw(&mut random)).collect();
        let apart: u64 = all.windows(2).map(|two| two[0].abs_diff(two[1])).sum();
        let mean = apart as f64 / (count * count) as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.01, "{mean}");
        let rising = all.windows(2).filter(|two| two[0] < two[1]).count() as f64 / count as f64;
        assert!((rising - 0.5).abs() < 0.01, "{rising}");
        // The first tenth of a pass is spread evenly over the region.
        let low = all[..10_000]
            .iter()
            .filter(|position| **position < count / 2)
            .count();
        assert!((4800..5200).contains(&low), "{low}");
    }
}
