//! The difference of a metric between two sets of runs, its confidence interval, and the difference that would have
//! been detected.
//!
//! The rule: positive metrics are compared by their ratio (the test uses logarithms, so that "half" and "twice" are
//! equally far apart and slow outliers have limited weight), others by their difference. Sets with alternating runs,
//! one of each in every round, are compared round by round, which removes drift common to both.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::variance::Prior;
use super::verdict::MachineAllowance;
use super::{Metric, RunLikeness, mean, variance};

/// The power for which [`Effect::detectable`] is stated.
pub const POWER: f64 = 0.8;

/// Degrees of freedom above this number make no difference.
const FREEDOM_MAX: f64 = 1e6;

/// How an effect is expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EffectScale {
    /// Geometric mean of the second set over that of the first; 1 is no change.
    Ratio,
    /// Mean of the second set minus that of the first, in the metric's unit; 0 is no change.
    Difference,
}

/// Changes are shown in percent up to this ratio and as factors above it, because large percentages are hard to read.
pub const PERCENT_RATIO_MAX: f64 = 3.0;

/// How much the second set differs from the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// How `value` and the intervals are expressed.
    pub scale: EffectScale,
    /// The ratio, or the difference.
    pub value: f64,
    /// The first set's figure: the geometric mean for a ratio, otherwise the mean. Applied to this figure, `value`
    /// gives `second`.
    pub first: f64,
    /// The second set's figure.
    pub second: f64,
    /// Lower end of the 95 % interval of `value`.
    pub low: f64,
    /// Upper end of the 95 % interval of `value`.
    pub high: f64,
    /// Lower end of the 90 % interval of `value`, which two one-sided tests at 5 % use.
    pub low_90: f64,
    /// Upper end of the 90 % interval of `value`.
    pub high_90: f64,
    /// Two-sided p-value of this figure alone.
    pub p: f64,
    /// Two-sided p-value of the rest of the effect, after subtracting everything that the machine's difference could
    /// explain.
    pub p_beyond_machine: f64,
    /// Degrees of freedom, including those borrowed from other points.
    pub freedom: f64,
    /// Whether runs were compared round by round.
    pub paired: bool,
    /// The smallest change that would have been shown with a probability of 80 %, after the correction for the number
    /// of figures: as a share of the first set's figure, or in the metric's unit if that is a share itself. `null` if
    /// the first set's figure is zero.
    pub detectable: Option<f64>,
    /// Number of runs per side with which a change of 10 % would be shown with a probability of 80 %, if runs
    /// continue to differ as these do. `null` if no number of runs would suffice, because sessions differ by as much.
    pub runs_wanted: Option<u32>,
}

/// The change for which [`Effect::runs_wanted`] is stated.
pub const WANTED: f64 = 0.10;
/// Maximum number of runs that is advised.
const RUNS_WANTED_MAX: u32 = 10_000;

/// The compared logarithms or figures, and their variances.
pub(super) struct Samples {
    scale: EffectScale,
    paired: bool,
    difference: f64,
    /// Variance, degrees of freedom and number of runs of each set, or of the pairs.
    cells: Vec<(f64, f64, f64)>,
    /// The first set's mean, as the basis of shares.
    first: f64,
    /// The figures of both sets, chosen such that the effect converts the first into the second.
    sides: [f64; 2],
    /// The change that the machine could have caused; not used for differences.
    machine: MachineAllowance,
}

impl Samples {
    /// Prepares a metric with at least two runs per side.
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
        let cell = |runs: &[f64], likeness: Option<RunLikeness>| {
            let count = runs.len() as f64;
            let likeness = likeness.unwrap_or(RunLikeness::independent(runs.len()));
            // Figures that agree up to the last digits have no spread: the differences come from rounding.
            let spread = variance(runs);
            let rounding = (1e-12 * mean(runs).abs().max(1e-300)).powi(2);
            (
                if spread > rounding {
                    spread * likeness.inflation
                } else {
                    0.0
                },
                likeness.freedom,
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
                None,
            )]
        } else {
            let [a, b] = metric.likeness;
            vec![cell(&scaled_a, a), cell(&scaled_b, b)]
        };
        // Alternating runs share the machine's state, so only `disturbed` is kept.
        let machine = match scale {
            EffectScale::Ratio if !metric.paired => metric.machine,
            _ => MachineAllowance {
                disturbed: metric.machine.disturbed,
                ..MachineAllowance::default()
            },
        };
        let sides = [&scaled_a, &scaled_b].map(|scaled| match scale {
            EffectScale::Ratio => mean(scaled).exp(),
            EffectScale::Difference => mean(scaled),
        });
        let difference = mean(&scaled_b) - mean(&scaled_a);
        Samples {
            scale,
            paired: metric.paired,
            difference,
            cells,
            first: mean(a),
            sides,
            machine,
        }
    }

    /// Metrics with the same key (scale and kind of comparison) share the prior of their variances.
    pub fn likeness(&self) -> (bool, bool) {
        (self.scale == EffectScale::Ratio, self.paired)
    }

    /// The variances and their degrees of freedom.
    pub fn cells(&self) -> impl Iterator<Item = (f64, f64)> {
        self.cells
            .iter()
            .map(|(variance, freedom, _)| (*variance, *freedom))
    }

    /// The effect, with variances moderated towards those of similar metrics. `alpha` is the significance
    /// level of its test.
    // Long because every figure of an effect comes from the same error and distribution.
    pub fn effect(&self, prior: &Prior, alpha: f64, is_share: bool) -> Effect {
        let Samples {
            scale,
            paired,
            difference,
            machine,
            ..
        } = *self;
        let session = machine.session.powi(2);
        let errors: Vec<(f64, f64)> = self
            .cells
            .iter()
            .map(|(variance, freedom, runs)| {
                let (variance, freedom) = prior.moderate(*variance, *freedom);
                (variance / runs, freedom)
            })
            .collect();
        let of_runs: f64 = errors.iter().map(|(error, _)| error).sum();
        let squared = of_runs + session;
        let error = squared.sqrt();
        let [first, second] = self.sides;
        let freedom_of_all: f64 = errors.iter().map(|(_, freedom)| freedom).sum();
        let exact = Effect {
            scale,
            value: self.shown(difference),
            first,
            second,
            low: self.shown(difference),
            high: self.shown(difference),
            low_90: self.shown(difference),
            high_90: self.shown(difference),
            p: f64::from(u8::from(difference.abs() <= 1e-12 * self.first.abs())),
            p_beyond_machine: f64::from(u8::from(self.beyond_machine() <= 0.0)),
            freedom: freedom_of_all,
            paired,
            detectable: Some(0.0),
            runs_wanted: Some(super::RUNS_MIN as u32),
        };
        if error == 0.0 {
            // There is no spread at all: the figures are either identical or certainly different.
            return exact;
        }
        // Welch and Satterthwaite. The prior lends the same degrees of freedom to both sets, so they count once. The
        // variation between sessions is known from other experiments, so it has no part in the sum below.
        let spread: f64 = errors
            .iter()
            .map(|(error, freedom)| error.powi(2) / freedom)
            .sum();
        let lent = prior.freedom() * (errors.len() - 1) as f64;
        let freedom = match spread > 0.0 {
            true => squared.powi(2) / spread * (freedom_of_all - lent) / freedom_of_all,
            false => FREEDOM_MAX,
        };
        let freedom = freedom.min(FREEDOM_MAX);
        let law = StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above zero");
        let half = |tail: f64| law.inverse_cdf(1.0 - tail) * error;
        let (wide, narrow) = (half(0.025), half(0.05));
        let seen = half(alpha / 2.0) + half(1.0 - POWER);
        let detectable = match scale {
            EffectScale::Ratio => Some(seen.exp() - 1.0),
            EffectScale::Difference if is_share => Some(seen),
            EffectScale::Difference => (self.first != 0.0).then(|| seen / self.first.abs()),
        };
        let p = |off: f64| (2.0 * law.cdf(-(off / error).max(0.0))).min(1.0);
        Effect {
            low: self.shown(difference - wide),
            high: self.shown(difference + wide),
            low_90: self.shown(difference - narrow),
            high_90: self.shown(difference + narrow),
            p: p(difference.abs()),
            p_beyond_machine: p(self.beyond_machine()),
            freedom,
            detectable,
            runs_wanted: self.runs_wanted(of_runs, session, alpha, is_share),
            ..exact
        }
    }

    fn shown(&self, value: f64) -> f64 {
        match self.scale {
            EffectScale::Ratio => value.exp(),
            EffectScale::Difference => value,
        }
    }

    /// How far the effect exceeds what the machine's difference could explain; zero if it doesn't.
    fn beyond_machine(&self) -> f64 {
        let off = match self.difference > 0.0 {
            true => self.difference - self.machine.up,
            false => -self.difference - self.machine.down,
        };
        off.max(0.0)
    }

    /// Computes [`Effect::runs_wanted`]; `of_runs` is the squared error due to these runs.
    fn runs_wanted(&self, of_runs: f64, session: f64, alpha: f64, is_share: bool) -> Option<u32> {
        let wanted = match self.scale {
            EffectScale::Ratio => (1.0 + WANTED).ln(),
            EffectScale::Difference if is_share => WANTED,
            EffectScale::Difference => WANTED * self.first.abs(),
        };
        let count = self
            .cells
            .iter()
            .map(|(_, _, runs)| *runs)
            .fold(f64::INFINITY, f64::min);
        let enough = |runs: u32| {
            let runs = f64::from(runs);
            let error = (of_runs * count / runs + session).sqrt();
            let freedom = self.cells.len() as f64 * (runs - 1.0);
            let law = StudentsT::new(0.0, 1.0, freedom).expect("there are two runs or more");
            (law.inverse_cdf(1.0 - alpha / 2.0) + law.inverse_cdf(POWER)) * error <= wanted
        };
        let (mut low, mut high) = (super::RUNS_MIN as u32, RUNS_WANTED_MAX);
        if !enough(high) {
            return None;
        }
        while low < high {
            let middle = (low + high) / 2;
            match enough(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Some(low)
    }

    /// Whether the effect is shown to be smaller than `margin`: a share of the first set's figure, or an absolute
    /// difference if the figure itself is a share.
    pub fn is_within(&self, effect: &Effect, margin: f64, is_share: bool) -> bool {
        let (low, high) = match self.scale {
            EffectScale::Ratio => (1.0 / (1.0 + margin), 1.0 + margin),
            EffectScale::Difference if is_share => (-margin, margin),
            EffectScale::Difference => (-margin * self.first.abs(), margin * self.first.abs()),
        };
        // The machine's difference may hide a change as well as cause one.
        let (up, down) = (self.machine.up.exp(), self.machine.down.exp());
        low <= effect.low_90 / up && effect.high_90 * down <= high
    }
}
