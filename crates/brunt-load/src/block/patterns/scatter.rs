//! Scatters ranks over the region, for distributions that draw a rank.

/// Spreads ranks over the region so that the hottest blocks are not adjacent. Multiplication by a factor coprime to the
/// count is a permutation; a factor near the golden ratio of the count spreads evenly.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    factor: u64,
    count: u64,
}

impl Scatter {
    pub(super) fn new(count: u64) -> Scatter {
        let mut factor = (count as f64 * 0.618_033_988_749_894_9) as u64 | 1;
        while gcd(factor, count) != 1 {
            factor += 1;
        }
        Scatter { factor, count }
    }

    pub(super) fn apply(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.factor)) % u128::from(self.count)) as u64
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scattered ranks are all different.
    #[test]
    fn scatter_is_a_permutation() {
        for count in [1, 2, 3, 10, 1000, 1024] {
            let scatter = Scatter::new(count);
            let mut seen: Vec<u64> = (0..count).map(|rank| scatter.apply(rank)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count));
        }
    }
}
