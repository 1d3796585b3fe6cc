//! How many different blocks there were, in 16 KiB whatever their number: HyperLogLog (Flajolet and others, 2007).
//! Used by [`crate::info`].
//!
//! The rule: a count comes with its standard error, 1.04 / √m.

/// 2^14 registers.
const REGISTER_BITS: u32 = 14;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// The rank of a hash whose other bits are all zero.
const RANK_MAX: usize = (64 - REGISTER_BITS + 1) as usize;

/// Standard error of a count, as a share of it.
pub const ERROR: f64 = 1.04 / 128.0;

/// Counts different numbers.
pub struct Distinct {
    registers: Box<[u8]>,
}

impl Distinct {
    /// None yet.
    pub fn new() -> Distinct {
        Distinct { registers: vec![0; REGISTERS].into() }
    }

    /// One more, or one again.
    #[inline]
    pub fn add(&mut self, number: u64) {
        let hash = mixed(number);
        let register = &mut self.registers[(hash >> (64 - REGISTER_BITS)) as usize];
        let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() as u8 + 1;
        *register = rank.max(*register);
    }

    /// About how many there were (Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017,
    /// algorithm 6): without a bias where the original changes from one formula to another.
    pub fn count(&self) -> f64 {
        let m = REGISTERS as f64;
        let mut counts = [0u32; RANK_MAX + 1];
        self.registers.iter().for_each(|rank| counts[usize::from(*rank)] += 1);
        let mut z = m * tau(1.0 - f64::from(counts[RANK_MAX]) / m);
        for rank in (1..RANK_MAX).rev() {
            z = 0.5 * (z + f64::from(counts[rank]));
        }
        z += m * sigma(f64::from(counts[0]) / m);
        m * m / (2.0 * std::f64::consts::LN_2 * z)
    }
}

/// x + Σ x^(2^k) 2^(k-1): what registers that are empty stand for.
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

/// (1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3: what registers that are full stand for.
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

/// The finaliser of splitmix64: every bit of the number moves half of the hash's.
fn mixed(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_within_four_standard_errors() {
        for wanted in [0u64, 1, 100, 10_000, 40_000, 60_000, 1_000_000] {
            let mut distinct = Distinct::new();
            (0..wanted).chain(0..wanted / 2).for_each(|number| distinct.add(number));
            let off = (distinct.count() - wanted as f64).abs();
            assert!(off <= (wanted as f64 * ERROR * 4.0).max(0.5), "{wanted}: {}", distinct.count());
        }
    }
}
