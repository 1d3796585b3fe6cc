//! Moderated variances: few runs estimate their variance badly, which costs a comparison most of its power. The same
//! metric at other points of the experiment was measured on the same machine, so the variance there is informative.
//!
//! The rule is that of moderated t statistics (Smyth, 2004, Linear models and empirical Bayes methods): the variances
//! are treated as draws around a common value; their spread is estimated from the variances themselves, and each is
//! shrunk towards the common value accordingly. If they differ too much, or are too few, they stay unchanged.

use statrs::function::gamma::digamma;

/// Minimum number of variances to learn from.
const CELLS_MIN: usize = 4;

/// The value towards which variances are moderated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prior {
    variance: f64,
    /// Weight of the prior, in degrees of freedom; 0 if nothing is known.
    freedom: f64,
}

impl Prior {
    /// No prior: variances stay unchanged.
    pub const NONE: Prior = Prior {
        variance: 0.0,
        freedom: 0.0,
    };

    /// Estimates the prior from variances and their degrees of freedom.
    pub fn of(cells: &[(f64, f64)]) -> Prior {
        let known: Vec<(f64, f64)> = cells
            .iter()
            .copied()
            .filter(|(variance, freedom)| *variance > 0.0 && *freedom > 0.0)
            .collect();
        if known.len() < CELLS_MIN {
            return Prior::NONE;
        }
        let count = known.len() as f64;
        let logs: Vec<f64> = known
            .iter()
            .map(|(v, freedom)| v.ln() - digamma(freedom / 2.0) + (freedom / 2.0).ln())
            .collect();
        let middle = logs.iter().sum::<f64>() / count;
        let spread = logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>() / (count - 1.0);
        // The spread that remains after subtracting the variances' own uncertainty.
        let own = known
            .iter()
            .map(|(_, freedom)| trigamma(freedom / 2.0))
            .sum::<f64>()
            / count;
        // The degrees of freedom of the prior are limited to half of those of all variances together, because a few
        // variances may agree by chance.
        let most = known.iter().map(|(_, freedom)| freedom).sum::<f64>() / 2.0;
        let freedom = if spread > own {
            (2.0 * trigamma_inverse(spread - own)).min(most)
        } else {
            most
        };
        let variance = (middle + digamma(freedom / 2.0) - (freedom / 2.0).ln()).exp();
        Prior { variance, freedom }
    }

    /// Degrees of freedom that the prior lends.
    pub fn freedom(&self) -> f64 {
        self.freedom
    }

    /// A variance moderated towards the prior, and its resulting degrees of freedom.
    pub fn moderate(&self, variance: f64, freedom: f64) -> (f64, f64) {
        let together = self.freedom + freedom;
        (
            (self.freedom * self.variance + freedom * variance) / together,
            together,
        )
    }
}

/// The derivative of the digamma function: by its recurrence up to 10, then the asymptotic series (Abramowitz and
/// Stegun, 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    sum + 1.0 / x + y / 2.0 + y / x * (1.0 / 6.0 - y * (1.0 / 30.0 - y / 42.0))
}

/// The inverse of the (decreasing) trigamma function, by bisection.
fn trigamma_inverse(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6f64, 1e6f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::random::Random;

    #[test]
    fn trigamma_is_that_of_the_tables() {
        // pi^2 / 6, pi^2 / 2, and SciPy's polygamma(1, 3.5).
        for (x, expected) in [
            (1.0, 1.644934066848),
            (0.5, 4.934802200545),
            (3.5, 0.330357756),
        ] {
            assert!(
                (trigamma(x) - expected).abs() < 1e-8,
                "{x}: {}",
                trigamma(x)
            );
            assert!((trigamma_inverse(expected) - x).abs() < 1e-6 * x);
        }
    }

    /// Similar variances lend each other degrees of freedom; variances far apart stay unchanged, as do too few of
    /// them.
    #[test]
    fn likes_lend_freedom() {
        let mut random = Random::new(3);
        let mut cell = |deviation: f64| {
            let runs: Vec<f64> = (0..4).map(|_| deviation * random.normal()).collect();
            (super::super::variance(&runs), 3.0)
        };
        let alike: Vec<(f64, f64)> = (0..12).map(|_| cell(2.0)).collect();
        let prior = Prior::of(&alike);
        assert!(
            prior.freedom > 6.0 && (2.0..8.0).contains(&prior.variance),
            "{prior:?}"
        );
        let apart: Vec<(f64, f64)> = (0..12).map(|index| cell(10f64.powi(index % 4))).collect();
        assert!(Prior::of(&apart).freedom < 1.0, "{:?}", Prior::of(&apart));
        assert_eq!(Prior::of(&alike[..3]), Prior::NONE);
        assert_eq!(Prior::NONE.moderate(5.0, 3.0), (5.0, 3.0));
    }
}
