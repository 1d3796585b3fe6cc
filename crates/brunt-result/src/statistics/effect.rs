//! The difference of a metric between two sets of runs, its confidence interval, and the difference that
//! would have been detected.
//!
//! The rule: metrics above zero are compared by their ratio (the test is on logarithms, so that "half" and
//! "twice" are equally far apart and slow outliers have limited weight), others by their difference. Sets
//! whose runs alternate, one of each in every round, are compared round by round, which removes drift common
//! to both.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::variance::Prior;
use super::{Metric, mean, variance};

/// The power that [`Effect::detectable`] is stated for.
pub const POWER: f64 = 0.8;

/// What an effect counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EffectScale {
    /// Geometric mean of the second over that of the first; 1 is no change.
    Ratio,
    /// Mean of the second less that of the first, in the metric's unit; 0 is no change.
    Difference,
}

/// How much the second set differs from the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// What `value` and the intervals count.
    pub scale: EffectScale,
    /// The ratio or the difference.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Lower end of the 90 % interval, which two one-sided tests at 5 % look at.
    pub low_90: f64,
    /// Upper end of the interval.
    pub high_90: f64,
    /// Two-sided, of one figure alone.
    pub p: f64,
    /// Degrees of freedom, those lent by other points among them.
    pub freedom: f64,
    /// Whether runs were compared round by round.
    pub paired: bool,
    /// The smallest change that would have been shown with a chance of 80 %, after the correction for the number of
    /// figures: as a share of the first, or in the metric's unit where that is a share itself. `null` where the first
    /// is zero.
    pub detectable: Option<f64>,
}

/// The logarithms or figures that are compared, and their variances.
pub(super) struct Samples {
    scale: EffectScale,
    paired: bool,
    difference: f64,
    /// (variance, degrees of freedom, runs) of each set, or of the pairs.
    cells: Vec<(f64, f64, f64)>,
    /// The first set's mean, for shares of it.
    first: f64,
}

impl Samples {
    /// Of a metric with two runs or more a side.
    pub fn of(metric: &Metric) -> Samples {
        let (a, b) = (&metric.a, &metric.b);
        let positive = a.iter().chain(b).all(|run| *run > 0.0 && run.is_finite());
        let scale = if positive && !metric.is_share {
            EffectScale::Ratio
        } else {
            EffectScale::Difference
        };
        let scaled = |runs: &[f64]| match scale {
            EffectScale::Ratio => runs.iter().map(|run| run.ln()).collect::<Vec<f64>>(),
            EffectScale::Difference => runs.to_vec(),
        };
        let cell = |runs: &[f64]| {
            let count = runs.len() as f64;
            // Figures that agree to the last digits have no spread: what is left is rounding.
            let spread = variance(runs);
            let rounding = (1e-12 * mean(runs).abs().max(1e-300)).powi(2);
            (
                if spread > rounding { spread } else { 0.0 },
                count - 1.0,
                count,
            )
        };
        let (scaled_a, scaled_b) = (scaled(a), scaled(b));
        let cells = if metric.paired {
            assert_eq!(a.len(), b.len(), "{}: pairs", metric.name);
            vec![cell(
                &scaled_a
                    .iter()
                    .zip(&scaled_b)
                    .map(|(a, b)| b - a)
                    .collect::<Vec<f64>>(),
            )]
        } else {
            vec![cell(&scaled_a), cell(&scaled_b)]
        };
        let difference = mean(&scaled_b) - mean(&scaled_a);
        Samples {
            scale,
            paired: metric.paired,
            difference,
            cells,
            first: mean(a),
        }
    }

    /// Of figures alike, what their variances are drawn from: those of one scale and one kind of comparison.
    pub fn likeness(&self) -> (bool, bool) {
        (self.scale == EffectScale::Ratio, self.paired)
    }

    /// Variances and degrees of freedom.
    pub fn cells(&self) -> impl Iterator<Item = (f64, f64)> {
        self.cells
            .iter()
            .map(|(variance, freedom, _)| (*variance, *freedom))
    }

    /// The effect, with variances drawn towards those of its likes; `alpha` is what the test of it has to keep.
    pub fn effect(&self, prior: &Prior, alpha: f64, is_share: bool) -> Effect {
        let Samples {
            scale,
            paired,
            difference,
            ..
        } = *self;
        let errors: Vec<(f64, f64)> = self
            .cells
            .iter()
            .map(|(variance, freedom, runs)| {
                let (variance, freedom) = prior.moderate(*variance, *freedom);
                (variance / runs, freedom)
            })
            .collect();
        let squared: f64 = errors.iter().map(|(error, _)| error).sum();
        let error = squared.sqrt();
        let shown = |value: f64| match scale {
            EffectScale::Ratio => value.exp(),
            EffectScale::Difference => value,
        };
        if error == 0.0 {
            // No spread at all: the same figures, or certainly different ones.
            let value = shown(difference);
            let p = if difference.abs() <= 1e-12 * self.first.abs() {
                1.0
            } else {
                0.0
            };
            let freedom = errors.iter().map(|(_, freedom)| freedom).sum();
            let (low, high, low_90, high_90) = (value, value, value, value);
            return Effect {
                scale,
                value,
                low,
                high,
                low_90,
                high_90,
                p,
                freedom,
                paired,
                detectable: Some(0.0),
            };
        }
        // Welch and Satterthwaite; what was lent to both sets is the same and counts once.
        let freedom = squared.powi(2)
            / errors
                .iter()
                .map(|(error, freedom)| error.powi(2) / freedom)
                .sum::<f64>();
        let all: f64 = errors.iter().map(|(_, freedom)| freedom).sum();
        let lent = prior.freedom() * (errors.len() - 1) as f64;
        let freedom = freedom * (all - lent) / all;
        let law = StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above zero");
        let half = |tail: f64| law.inverse_cdf(1.0 - tail) * error;
        let (wide, narrow) = (half(0.025), half(0.05));
        let seen = half(alpha / 2.0) + half(1.0 - POWER);
        let detectable = match scale {
            EffectScale::Ratio => Some(seen.exp() - 1.0),
            EffectScale::Difference if is_share => Some(seen),
            EffectScale::Difference => (self.first != 0.0).then(|| seen / self.first.abs()),
        };
        Effect {
            scale,
            value: shown(difference),
            low: shown(difference - wide),
            high: shown(difference + wide),
            low_90: shown(difference - narrow),
            high_90: shown(difference + narrow),
            p: (2.0 * law.cdf(-(difference / error).abs())).min(1.0),
            freedom,
            paired,
            detectable,
        }
    }

    /// Whether an effect of these is shown to be smaller than `margin`: a share, of the first where it is no share
    /// itself.
    pub fn is_within(&self, effect: &Effect, margin: f64, is_share: bool) -> bool {
        let (low, high) = match self.scale {
            EffectScale::Ratio => (1.0 / (1.0 + margin), 1.0 + margin),
            EffectScale::Difference if is_share => (-margin, margin),
            EffectScale::Difference => (-margin * self.first.abs(), margin * self.first.abs()),
        };
        low <= effect.low_90 && effect.high_90 <= high
    }
}
