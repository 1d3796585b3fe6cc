//! Seeded random numbers: the same seed gives the same sequence on any machine and in any version of
//! Brunt. A library's "small" or "fast" generator makes no such promise. Logarithms and cosines come
//! from `libm` rather than the platform, because platforms differ in the last bits. Not for secrets.

/// xoshiro256** (Blackman, Vigna, 2018), seeded through SplitMix64 as its authors recommend.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose sequence is determined by `seed`.
    pub fn new(seed: u64) -> Random {
        let mut mix = seed;
        Random {
            state: std::array::from_fn(|_| split_mix(&mut mix)),
        }
    }

    /// A generator for part `index` of an object seeded with `seed` (a worker, a direction of a link). Each part has
    /// its own sequence, independent of the number of parts.
    pub fn for_part(seed: u64, index: u64) -> Random {
        let mut mix = seed ^ index.wrapping_mul(PART);
        Random::new(split_mix(&mut mix))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`, by Lemire's multiplication; the bias is below `bound / 2^64`.
    ///
    /// # Panics
    /// When `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no random number");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A sample from the exponential distribution with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - unit() is in (0, 1], so the logarithm is finite.
        -mean * libm::log(1.0 - self.unit())
    }

    /// A sample from the standard normal distribution (Box-Muller; the other value of the pair is discarded).
    #[inline]
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Fills `bytes` with random bits.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Number of parts in [`Parts`].
pub const LANES: usize = 8;

/// The generators of [`LANES`] consecutive parts, advanced together, for callers that need many numbers from each part.
/// They produce the same numbers as [`Random::for_part`], several at a time with SIMD instructions.
#[derive(Clone, Debug)]
pub struct Parts {
    state: [[u64; LANES]; 4],
}

impl Parts {
    /// Parts `first` to `first + LANES - 1` of an object seeded with `seed`.
    #[inline(always)] // inlined so that it is compiled with the caller's target features (SIMD)
    pub fn new(seed: u64, first: u64) -> Parts {
        let mut seeds = [0; LANES];
        for (lane, mix) in seeds.iter_mut().enumerate() {
            let index = first.wrapping_add(lane as u64);
            *mix = split_mix(&mut (seed ^ index.wrapping_mul(PART)));
        }
        let mut state = [[0; LANES]; 4];
        for words in &mut state {
            for (word, mix) in words.iter_mut().zip(&mut seeds) {
                *word = split_mix(mix);
            }
        }
        Parts { state }
    }

    /// Writes the next 64 bits of each part to `out`. Equivalent to [`Random::next_u64`], but uses only operations with
    /// SIMD instructions (there is no 64-bit SIMD multiplication).
    #[inline(always)] // as above
    pub fn next_u64(&mut self, out: &mut [u64; LANES]) {
        let [s0, s1, s2, s3] = &mut self.state;
        for lane in 0..LANES {
            let (a, b, c, d) = (s0[lane], s1[lane], s2[lane], s3[lane]);
            let five = b.wrapping_add(b << 2);
            let turned = five.rotate_left(7);
            out[lane] = turned.wrapping_add(turned << 3);
            let (c, d) = (c ^ a, d ^ b);
            s1[lane] = b ^ c;
            s0[lane] = a ^ d;
            s2[lane] = c ^ (b << 17);
            s3[lane] = d.rotate_left(45);
        }
    }
}

/// Makes the seeds of parts distinct.
const PART: u64 = 0xD1B5_4A32_D192_ED03;

#[inline(always)] // as Parts::new
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sequence is frozen: a change would change every experiment's requests.
    #[test]
    fn sequence_is_frozen() {
        let mut random = Random::new(42);
        let first: [u64; 3] = std::array::from_fn(|_| random.next_u64());
        // From the authors' xoshiro256starstar.c, seeded with splitmix64.c from 42.
        assert_eq!(
            first,
            [
                1546998764402558742,
                6990951692964543102,
                12544586762248559009
            ]
        );
    }

    /// The distributions are frozen too, bit for bit.
    #[test]
    fn distributions_are_frozen() {
        let mut random = Random::new(42);
        assert_eq!(random.exponential(1.0).to_bits(), 4590975897088398697);
        assert_eq!(random.normal().to_bits(), 13824526211183503328);
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(7);
        let n = 200_000;
        let mean = |f: &mut dyn FnMut() -> f64| (0..n).map(|_| f()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(&mut || random.normal()).abs() < 0.01);
        assert!((mean(&mut || random.below(10) as f64) - 4.5).abs() < 0.05);
    }

    #[test]
    fn parts_of_a_seed_have_different_sequences() {
        assert_ne!(
            Random::for_part(1, 0).next_u64(),
            Random::for_part(1, 1).next_u64()
        );
    }

    #[test]
    fn parts_advanced_together_match_single_generators() {
        for (seed, first) in [(1, 0), (u64::MAX, 12345), (7, u64::MAX - 3)] {
            let mut parts = Parts::new(seed, first);
            let mut each: [Random; LANES] =
                std::array::from_fn(|lane| Random::for_part(seed, first.wrapping_add(lane as u64)));
            for _ in 0..100 {
                let mut together = [0; LANES];
                parts.next_u64(&mut together);
                assert_eq!(together, each.each_mut().map(Random::next_u64));
            }
        }
    }
}
