//! Verdicts on many metrics at once: better, worse, the same within a margin, or inconclusive.
//!
//! The rules: with fewer than [`RUNS_MIN`] runs per side there is no verdict. *Same* means that the change is
//! significantly smaller than the margin, by two one-sided tests at 5 % each. *Better* and *worse* are significant at
//! [`ALPHA`] after Holm's correction over all independent metrics: the rate and the mean response time of a closed loop
//! express the same fact (Little's law) and count once. A significant change that the machine's difference could
//! explain is *machines differed*. Everything else is *inconclusive*, and [`Effect::detectable`] is the change that
//! would have been detected.
//!
//! Runs of one session are correlated: they share the layout of memory, the state of caches and clocks, and the load
//! from neighbouring guests. So for sets whose runs did not alternate, a variance between sessions is added to that
//! of the runs (levels of repetition: Kalibera and Jones, *Rigorous Benchmarking in Reasonable Time*, ISMM 2013;
//! alternating runs: Abedi and Brecht, *Conducting Repeatable Experiments in Highly Variable Cloud Computing
//! Environments*, ICPE 2017).

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effect::{Effect, EffectScale, Samples};
use super::variance::Prior;
use super::{ALPHA, Estimate, MannWhitney, RUNS_MIN, RunLikeness};

/// Changes smaller than this share don't count, unless the user chooses another margin.
pub const MARGIN: f64 = 0.05;

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// Latency, cost.
    Lower,
}

/// The verdict on a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// `b` is better than `a`.
    Better,
    /// `b` is worse than `a`.
    Worse,
    /// The sets are shown to differ by less than the margin.
    Same,
    /// Neither a difference nor equality is shown; the interval shows how large a difference may still be.
    Inconclusive,
    /// The sets differ, but the machine also differed by enough to explain it.
    MachinesDiffered,
    /// Inconclusive because a side has fewer than [`RUNS_MIN`] runs.
    TooFewRuns,
}

impl Verdict {
    /// The word for the verdict, used everywhere.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::MachinesDiffered => "machines differed",
            Verdict::Inconclusive | Verdict::TooFewRuns => "inconclusive",
        }
    }
}

/// How much the difference between the machines may have changed a figure between two sets of runs. All values are
/// logarithms of a ratio: the second set's figure over the first's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineAllowance {
    /// Unexplained standard deviation between two sessions of the same experiment.
    pub session: f64,
    /// How much the machine's difference may have raised the figure.
    pub up: f64,
    /// How much the machine's difference may have lowered the figure.
    pub down: f64,
    /// Whether runs of exactly one of the sets were stopped or throttled.
    pub disturbed: bool,
}

/// One metric in two sets of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name with unit.
    pub name: String,
    /// Kind of figure, such as `iops`: metrics of one kind share information about noise.
    pub kind: Cow<'static, str>,
    /// Which direction of the metric is better.
    pub better: Better,
    /// A figure for each run of the first set.
    pub a: Vec<f64>,
    /// A figure for each run of the second set.
    pub b: Vec<f64>,
    /// Whether each run of the first set was made in the same round as the run in the second set at the same index.
    pub paired: bool,
    /// Correlation of the runs in each set; `None` for independent ones.
    pub likeness: [Option<RunLikeness>; 2],
    /// Possible influence of the machine.
    pub machine: MachineAllowance,
    /// Whether the metric is a share, whose changes are expressed as differences.
    pub is_share: bool,
    /// Index of an earlier metric that expresses the same fact.
    pub one_with: Option<usize>,
}

impl Metric {
    /// Creates a metric whose runs are independent.
    pub fn new(
        name: impl Into<String>,
        kind: impl Into<Cow<'static, str>>,
        better: Better,
        a: Vec<f64>,
        b: Vec<f64>,
    ) -> Metric {
        Metric {
            name: name.into(),
            kind: kind.into(),
            better,
            a,
            b,
            paired: false,
            likeness: [None; 2],
            machine: MachineAllowance::default(),
            is_share: false,
            one_with: None,
        }
    }
}

/// A metric compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The metric's name.
    pub name: String,
    /// Mean and interval of the first set.
    pub a: Option<Estimate>,
    /// Mean and interval of the second set.
    pub b: Option<Estimate>,
    /// `b` relative to `a`: the basis of the verdict.
    pub effect: Option<Effect>,
    /// Rank test, for comparison: where the two disagree, look at the runs.
    pub mann_whitney: Option<MannWhitney>,
    /// The effect's p-value after Holm's correction over all figures that express different facts.
    pub p_holm: Option<f64>,
    /// The conclusion.
    pub verdict: Verdict,
    /// Whether `b` is shown to be better or worse than `a`, by however little.
    pub shown: Option<Verdict>,
}

/// Compares all metrics of two sets of runs at once: the more metrics there are, the stronger the evidence for each
/// has to be. A change smaller than the share `margin` doesn't count.
pub fn compare(metrics: &[Metric], margin: f64) -> Vec<Comparison> {
    let samples: Vec<Option<Samples>> = metrics
        .iter()
        .map(|metric| {
            let enough = metric.a.len() >= RUNS_MIN && metric.b.len() >= RUNS_MIN;
            enough.then(|| Samples::of(metric))
        })
        .collect();
    // A metric that expresses the same fact as a tested one is not counted again.
    let counted = |index: usize| {
        samples[index].is_some()
            && metrics[index]
                .one_with
                .is_none_or(|other| samples[other].is_none())
    };
    let count = (0..metrics.len()).filter(|index| counted(*index)).count();
    let alpha = ALPHA / count.max(1) as f64;
    let effects = effects(metrics, &samples, alpha);
    let corrected = corrected(metrics, &effects, counted);
    let tested = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| TestedMetric {
            metric,
            samples: samples[index].as_ref(),
            effect: effects[index],
            p_holm: corrected[index],
        });
    tested.map(|one| one.comparison(margin)).collect()
}

/// The effect on each metric with enough runs, tested at the significance level `alpha`. Metrics of one kind share
/// what is known about their variance.
fn effects(metrics: &[Metric], samples: &[Option<Samples>], alpha: f64) -> Vec<Option<Effect>> {
    let mut alike: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for (metric, samples) in metrics.iter().zip(samples) {
        let Some(samples) = samples else { continue };
        alike
            .entry((&*metric.kind, samples.likeness()))
            .or_default()
            .extend(samples.cells());
    }
    let priors: BTreeMap<_, Prior> = alike
        .into_iter()
        .map(|(kind, cells)| (kind, Prior::of(&cells)))
        .collect();
    let effect = |(metric, samples): (&Metric, &Option<Samples>)| {
        let samples = samples.as_ref()?;
        let prior = &priors[&(&*metric.kind, samples.likeness())];
        Some(samples.effect(prior, alpha, metric.is_share))
    };
    metrics.iter().zip(samples).map(effect).collect()
}

/// What is known about a metric before its verdict; without samples and effect if there are too few runs.
struct TestedMetric<'a> {
    metric: &'a Metric,
    samples: Option<&'a Samples>,
    effect: Option<Effect>,
    p_holm: Option<f64>,
}

impl TestedMetric<'_> {
    fn comparison(&self, margin: f64) -> Comparison {
        let TestedMetric { metric, effect, .. } = *self;
        let (same, shown) = (self.is_same(margin), self.shown());
        let machine = self.may_be_the_machine();
        let verdict = match (effect, same, shown) {
            (None, ..) => Verdict::TooFewRuns,
            (_, true, _) if !metric.machine.disturbed => Verdict::Same,
            (_, _, Some(_)) if machine => Verdict::MachinesDiffered,
            (_, _, Some(shown)) => shown,
            (_, _, None) => Verdict::Inconclusive,
        };
        Comparison {
            name: metric.name.clone(),
            a: Estimate::of(&metric.a),
            b: Estimate::of(&metric.b),
            mann_whitney: effect.and_then(|_| MannWhitney::of(&metric.a, &metric.b)),
            effect,
            p_holm: self.p_holm,
            verdict,
            shown: shown.filter(|_| !machine),
        }
    }

    /// Better or worse, if the change is significant.
    fn shown(&self) -> Option<Verdict> {
        let effect = self.effect?;
        self.p_holm.filter(|p| *p < ALPHA)?;
        let none = match effect.scale {
            EffectScale::Ratio => 1.0,
            EffectScale::Difference => 0.0,
        };
        let better = (effect.value > none) == (self.metric.better == Better::Higher);
        Some(if better {
            Verdict::Better
        } else {
            Verdict::Worse
        })
    }

    /// Whether a change as large as the margin is ruled out.
    fn is_same(&self, margin: f64) -> bool {
        let known = self.samples.zip(self.effect);
        known.is_some_and(|(samples, effect)| {
            samples.is_within(&effect, margin, self.metric.is_share)
        })
    }

    /// Whether the machine's difference may explain the change.
    fn may_be_the_machine(&self) -> bool {
        self.effect.zip(self.p_holm).is_some_and(|(effect, p)| {
            // The factor by which this effect's p-value was corrected.
            let factor = if effect.p > 0.0 { p / effect.p } else { 1.0 };
            self.metric.machine.disturbed || effect.p_beyond_machine * factor >= ALPHA
        })
    }
}

/// The corrected p-value of each effect. An effect that is not counted is corrected by the factor of the metric that
/// expresses the same fact.
fn corrected(
    metrics: &[Metric],
    effects: &[Option<Effect>],
    counted: impl Fn(usize) -> bool,
) -> Vec<Option<f64>> {
    let tested: Vec<(usize, f64)> = effects
        .iter()
        .enumerate()
        .filter(|(index, _)| counted(*index))
        .filter_map(|(index, effect)| Some((index, effect.as_ref()?.p)))
        .collect();
    let p: Vec<f64> = tested.iter().map(|(_, p)| *p).collect();
    let mut all = vec![None; metrics.len()];
    for ((index, _), p) in tested.iter().zip(holm(&p)) {
        all[*index] = Some(p);
    }
    for (index, effect) in effects.iter().enumerate() {
        let Some(effect) = effect.filter(|_| !counted(index)) else {
            continue;
        };
        let other = metrics[index]
            .one_with
            .expect("only metrics tied to another are not counted");
        let others = (
            effects[other].expect("it was tested").p,
            all[other].expect("it is counted"),
        );
        // The factor by which the other metric's p-value was corrected; the maximum if that p-value is zero.
        let factor = if others.0 > 0.0 {
            others.1 / others.0
        } else {
            p.len() as f64
        };
        all[index] = Some((effect.p * factor).min(1.0));
    }
    all
}

/// Holm's step-down correction: with these p-values, the probability of any false verdict among all of them stays at
/// that of a single test.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|x, y| p[*x].total_cmp(&p[*y]));
    let mut corrected = vec![0.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - rank) as f64).min(1.0);
        corrected[index] = largest;
    }
    corrected
}
