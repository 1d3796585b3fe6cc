//! Offsets of random requests: draws a position in `0..count` from the workload's distribution. The generator calls
//! this for each random request. Only a shuffle remembers earlier draws.

use brunt_core::random::Random;

use crate::block::shuffle::Shuffle;
use crate::block::workload::OffsetDistribution;

/// A prepared distribution over `0..count`.
#[derive(Clone, Debug)]
pub struct OffsetSampler {
    count: u64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Shuffled(Shuffle),
    Zipf {
        zipf: Zipf,
        scatter: Scatter,
    },
    Pareto {
        exponent: f64,
        scatter: Scatter,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// For each zone: the cumulative probability up to its end, its first position, and its number of positions.
    Zones(Vec<(f64, u64, u64)>),
}

/// Maximum number of redraws for positions outside the region; after that, the nearest position is used.
const NORMAL_DRAWS_MAX: u32 = 64;

impl OffsetSampler {
    /// Prepares `distribution` over `count` positions.
    ///
    /// # Panics
    /// If `count` is zero. [`crate::Workload::check`] has validated the other parameters.
    pub fn new(distribution: &OffsetDistribution, count: u64) -> OffsetSampler {
        assert!(count > 0, "a pattern needs a position");
        let law = match distribution {
            OffsetDistribution::Uniform {} => Law::Uniform,
            OffsetDistribution::Shuffled {} => Law::Shuffled(Shuffle::new(count)),
            OffsetDistribution::Zipf { theta } => Law::Zipf {
                zipf: Zipf::new(count, *theta),
                scatter: Scatter::new(count),
            },
            // A share `skew` of the positions gets `1 - skew` of the draws: F(x) = x^(ln(1-s)/ln(s)).
            OffsetDistribution::Pareto { skew } => {
                let exponent = libm::log(*skew) / libm::log(1.0 - skew);
                Law::Pareto {
                    exponent,
                    scatter: Scatter::new(count),
                }
            }
            OffsetDistribution::Normal { mean, deviation } => Law::Normal {
                mean: mean * count as f64,
                deviation: deviation * count as f64,
            },
            OffsetDistribution::HotZones { zones } => {
                let (mut access, mut size, mut table) = (0.0, 0.0, Vec::with_capacity(zones.len()));
                for zone in zones {
                    let first = (size * count as f64) as u64;
                    access += zone.access;
                    size += zone.size;
                    let end = ((size * count as f64) as u64).min(count);
                    table.push((
                        access,
                        first.min(count - 1),
                        end.saturating_sub(first).max(1),
                    ));
                }
                if let Some((access, first, positions)) = table.last_mut() {
                    (*access, *positions) = (1.0, count - *first);
                }
                Law::Zones(table)
            }
        };
        OffsetSampler { count, law }
    }

    /// Draws the next position.
    #[inline(always)] // once per request
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        match &mut self.law {
            Law::Uniform => random.below(self.count),
            law => draw_by(law, self.count, random),
        }
    }
}

#[inline(never)] // logarithms and powers take longer than the call
fn draw_by(law: &mut Law, count: u64, random: &mut Random) -> u64 {
    match law {
        Law::Uniform => random.below(count),
        Law::Shuffled(shuffle) => shuffle.draw(random),
        Law::Zipf { zipf, scatter } => scatter.apply(zipf.draw(random) - 1),
        Law::Pareto { exponent, scatter } => {
            let rank = (count as f64 * libm::pow(random.unit(), *exponent)) as u64;
            scatter.apply(rank.min(count - 1))
        }
        Law::Normal { mean, deviation } => {
            let mut place = 0.0;
            for _ in 0..NORMAL_DRAWS_MAX {
                place = *mean + *deviation * random.normal();
                if place >= 0.0 && place < count as f64 {
                    break;
                }
            }
            (place.max(0.0) as u64).min(count - 1)
        }
        Law::Zones(zones) => {
            let draw = random.unit();
            let zone = zones
                .iter()
                .find(|zone| draw < zone.0)
                .unwrap_or(&zones[zones.len() - 1]);
            zone.1 + random.below(zone.2)
        }
    }
}

/// Spreads ranks over the region so that the hottest blocks are not adjacent. Multiplication by a factor coprime to the
/// count is a permutation; a factor near the golden ratio of the count spreads evenly.
#[derive(Clone, Debug)]
struct Scatter {
    factor: u64,
    count: u64,
}

impl Scatter {
    fn new(count: u64) -> Scatter {
        let mut factor = (count as f64 * 0.618_033_988_749_894_9) as u64 | 1;
        while gcd(factor, count) != 1 {
            factor += 1;
        }
        Scatter { factor, count }
    }

    fn apply(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.factor)) % u128::from(self.count)) as u64
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Zipf by rejection-inversion (Hörmann, Derflinger: Rejection-inversion to generate variates from monotone discrete
/// distributions, 1996). It needs no table, so a region may have any size.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    area_first: f64,
    area_last: f64,
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf {
            count: count as f64,
            theta,
            area_first: 0.0,
            area_last: 0.0,
            squeeze: 0.0,
        };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(zipf.count + 0.5);
        zipf.squeeze = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// Draws a rank in `1..=count`.
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = libm::round(x).clamp(1.0, self.count);
            if rank - x <= self.squeeze || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }

    /// x^-theta.
    fn height(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// The integral of the height from 1 to x.
    fn area(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        let log = libm::log(x);
        if power.abs() < 1e-12 {
            log
        } else {
            libm::expm1(power * log) / power
        }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-12 {
            libm::exp(area)
        } else {
            // Rounding may push the argument just below -1, where the logarithm is undefined.
            libm::exp(libm::log1p((area * power).max(-1.0 + f64::EPSILON)) / power)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::workload::Zone;

    fn counts(distribution: &OffsetDistribution, positions: u64, draws: u32) -> Vec<u32> {
        let (mut pattern, mut random) =
            (OffsetSampler::new(distribution, positions), Random::new(5));
        let mut counts = vec![0; positions as usize];
        (0..draws).for_each(|_| counts[pattern.draw(&mut random) as usize] += 1);
        counts
    }

    /// Rank k of Zipf is drawn in proportion to 1/k^theta, including theta = 1.
    #[test]
    fn zipf_ranks_have_their_probability() {
        for theta in [0.5, 1.0, 1.2] {
            let (count, draws) = (100, 400_000);
            let mut counts = counts(&OffsetDistribution::Zipf { theta }, count, draws);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let total: f64 = (1..=count).map(|k| (k as f64).powf(-theta)).sum();
            for rank in [1usize, 2, 5, 20] {
                let expected = f64::from(draws) * (rank as f64).powf(-theta) / total;
                let got = f64::from(counts[rank - 1]);
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 0.02 * expected,
                    "{theta} {rank}"
                );
            }
        }
    }

    /// An 80/20 distribution is again 80/20 within the 20 percent.
    #[test]
    fn pareto_is_self_similar() {
        let mut counts = counts(&OffsetDistribution::Pareto { skew: 0.2 }, 1000, 200_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |n| f64::from(counts[..n].iter().sum::<u32>()) / 200_000.0;
        assert!((share(200) - 0.8).abs() < 0.01, "{}", share(200));
        assert!((share(40) - 0.64).abs() < 0.01, "{}", share(40));
    }

    /// Zones and the normal distribution have their draws in the right place, and every draw is inside the region.
    #[test]
    fn zones_and_normal_draws_are_in_their_places() {
        let zones =
            [(0.7, 0.1), (0.0, 0.4), (0.3, 0.5)].map(|(access, size)| Zone { access, size });
        let zoned = counts(
            &OffsetDistribution::HotZones {
                zones: zones.to_vec(),
            },
            1000,
            100_000,
        );
        let share = |counts: &[u32], from: usize, to: usize| {
            f64::from(counts[from..to].iter().sum::<u32>()) / 100_000.0
        };
        assert!((share(&zoned, 0, 100) - 0.7).abs() < 0.01);
        assert_eq!(share(&zoned, 100, 500), 0.0);
        let bell = counts(
            &OffsetDistribution::Normal {
                mean: 0.5,
                deviation: 0.1,
            },
            1000,
            100_000,
        );
        assert!((share(&bell, 400, 600) - 0.6827).abs() < 0.01);
        let edge = counts(
            &OffsetDistribution::Normal {
                mean: 0.0,
                deviation: 0.1,
            },
            10,
            1000,
        );
        assert_eq!(edge.iter().sum::<u32>(), 1000);
    }

    /// Every distribution works with a single position, two positions, and huge regions.
    #[test]
    fn every_distribution_works_with_one_position_and_huge_regions() {
        let laws = [
            OffsetDistribution::Uniform {},
            OffsetDistribution::Shuffled {},
            OffsetDistribution::Zipf { theta: 1.1 },
            OffsetDistribution::Zipf { theta: 20.0 },
            OffsetDistribution::Pareto { skew: 0.1 },
            OffsetDistribution::Normal {
                mean: 1.0,
                deviation: 1e-9,
            },
            OffsetDistribution::HotZones {
                zones: vec![
                    Zone {
                        access: 0.5,
                        size: 0.001,
                    },
                    Zone {
                        access: 0.5,
                        size: 0.999,
                    },
                ],
            },
        ];
        for law in &laws {
            for count in [1, 2, 3, 1 << 40] {
                let (mut pattern, mut random) = (OffsetSampler::new(law, count), Random::new(9));
                assert!(
                    (0..1000).all(|_| pattern.draw(&mut random) < count),
                    "{law:?} over {count}"
                );
            }
        }
    }

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
