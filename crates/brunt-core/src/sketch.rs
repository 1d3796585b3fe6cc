//! Estimates the number of distinct items in constant memory: HyperLogLog (Flajolet et al., 2007) with Ertl's estimator
//! ("New cardinality estimation algorithms for HyperLogLog sketches", 2017), which is unbiased where the original
//! switches between formulas, and needs no correction tables. Used by the traffic and block-trace analyses.
//!
//! The rule: report a count with its standard error, 1.04 / √registers.

use serde::{Deserialize, Serialize};

/// Default number of registers: 16 KiB, a standard error of 0.8 %.
const REGISTERS_DEFAULT: usize = 1 << 14;
/// The highest rank, that of an all-zero hash with a single register; sizes the histogram of ranks.
const RANK_MAX: usize = 65;

/// Counts distinct 64-bit hashes in `REGISTERS` one-byte registers (a power of two, at most 2^16). More registers give
/// a smaller error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u16, u8)>", into = "Vec<(u16, u8)>")]
pub struct HyperLogLog<const REGISTERS: usize = REGISTERS_DEFAULT> {
    registers: Box<[u8; REGISTERS]>,
}

impl<const REGISTERS: usize> Default for HyperLogLog<REGISTERS> {
    fn default() -> Self {
        const { assert!(REGISTERS.is_power_of_two() && REGISTERS > 1 && REGISTERS <= 1 << 16) };
        HyperLogLog {
            registers: Box::new([0; REGISTERS]),
        }
    }
}

/// Why a stored sketch is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SketchError {
    /// A rank that no hash can have.
    #[error("a rank that no hash has")]
    Rank,
    /// A register's index is out of range.
    #[error("no such register")]
    Register,
}

/// The serialized form: the non-zero registers.
impl<const REGISTERS: usize> From<HyperLogLog<REGISTERS>> for Vec<(u16, u8)> {
    fn from(sketch: HyperLogLog<REGISTERS>) -> Vec<(u16, u8)> {
        (0..=u16::MAX)
            .zip(sketch.registers.iter().copied())
            .filter(|(_, rank)| *rank > 0)
            .collect()
    }
}

impl<const REGISTERS: usize> TryFrom<Vec<(u16, u8)>> for HyperLogLog<REGISTERS> {
    type Error = SketchError;

    fn try_from(stored: Vec<(u16, u8)>) -> Result<Self, SketchError> {
        let mut sketch = Self::default();
        for (index, rank) in stored {
            if usize::from(rank) > Self::RANK_LAST {
                return Err(SketchError::Rank);
            }
            *sketch
                .registers
                .get_mut(usize::from(index))
                .ok_or(SketchError::Register)? = rank;
        }
        Ok(sketch)
    }
}

impl<const REGISTERS: usize> HyperLogLog<REGISTERS> {
    /// Number of hash bits that select a register.
    const BITS: u32 = REGISTERS.trailing_zeros();
    /// The rank of a hash whose remaining bits are all zero.
    const RANK_LAST: usize = (64 - Self::BITS + 1) as usize;

    /// Standard error of the count, as a fraction of it.
    pub fn standard_error(&self) -> f64 {
        1.04 / (REGISTERS as f64).sqrt()
    }

    /// Adds an item by its hash. All bits of the hash must be random; see [`spread`].
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let index = (hash >> (64 - Self::BITS)) as usize;
        // The stop bit bounds the rank.
        let rank = ((hash << Self::BITS) | (1 << (Self::BITS - 1))).leading_zeros() as u8 + 1;
        let register = &mut self.registers[index];
        if rank > *register {
            *register = rank;
        }
    }

    /// Adds all items of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers.iter()) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// The estimated number of distinct items, rounded to an integer.
    pub fn count(&self) -> u64 {
        self.estimate().round() as u64
    }

    /// The estimated number of distinct items (Ertl, algorithm 6).
    pub fn estimate(&self) -> f64 {
        let mut ranks = [0u32; RANK_MAX + 1];
        self.registers
            .iter()
            .for_each(|rank| ranks[usize::from(*rank)] += 1);
        let m = REGISTERS as f64;
        let mut z = m * tau(1.0 - f64::from(ranks[Self::RANK_LAST]) / m);
        for rank in (1..Self::RANK_LAST).rev() {
            z = 0.5 * (z + f64::from(ranks[rank]));
        }
        z += m * sigma(f64::from(ranks[0]) / m);
        m * m / (2.0 * std::f64::consts::LN_2 * z)
    }
}

/// x + Σ x^(2^k) 2^(k-1): the contribution of empty registers.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// (1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3: the contribution of saturated registers.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Spreads a number over all 64 bits so that it can be inserted: the finalizer of SplitMix64. Zero stays zero.
#[inline]
pub fn spread(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const REGISTERS: usize>(wanted: u64) {
        let mut sketch = HyperLogLog::<REGISTERS>::default();
        for number in (0..wanted).chain(0..wanted / 2) {
            sketch.insert(spread(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        let (found, wanted) = (sketch.estimate(), wanted as f64);
        let allowed = (wanted * sketch.standard_error() * 4.0).max(0.5);
        assert!(
            (found - wanted).abs() <= allowed,
            "{wanted} in {REGISTERS} registers: {found}"
        );
    }

    /// The estimate is close from zero to millions of items; an item added twice counts once.
    #[test]
    fn counts_are_within_four_standard_errors() {
        for wanted in [0, 1, 100, 10_000, 40_000, 60_000, 300_000, 2_000_000] {
            check::<{ 1 << 14 }>(wanted);
            check::<{ 1 << 10 }>(wanted);
        }
        check::<{ 1 << 16 }>(60_000);
    }

    #[test]
    fn merged_parts_count_the_same_as_the_whole() {
        let [mut whole, mut a, mut b] = [(); 3].map(|()| HyperLogLog::<64>::default());
        for number in 1..10_000 {
            whole.insert(spread(number));
            if number % 3 == 0 {
                a.insert(spread(number))
            } else {
                b.insert(spread(number))
            }
        }
        a.merge(&b);
        assert_eq!(
            (a.estimate(), a.count()),
            (whole.estimate(), whole.estimate().round() as u64)
        );
        let stored = serde_json::to_string(&whole).unwrap();
        let back: HyperLogLog<64> = serde_json::from_str(&stored).unwrap();
        assert_eq!(back.estimate(), whole.estimate());
        assert!(
            serde_json::from_str::<HyperLogLog<32>>(&stored).is_err(),
            "of another size"
        );
        assert!(
            serde_json::from_str::<HyperLogLog<64>>("[[0, 60]]").is_err(),
            "a rank that no hash has"
        );
    }
}
