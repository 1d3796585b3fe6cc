//! Verdicts on many metrics at once: better, worse, the same within a margin, or inconclusive.
//!
//! The rules: with fewer than [`RUNS_MIN`] runs per side there is no verdict. *Same* means that the change is
//! significantly smaller than the margin, by two one-sided tests at 5 % each. *Better* and *worse* are
//! significant at [`ALPHA`] after Holm's correction over all independent metrics: the rate and the mean
//! response time of a closed loop express the same fact (Little's law) and count once. A change that is significant, but
//! no more than the machine's difference could explain, is *machines differed*. Everything else is *inconclusive*, and
//! [`Effect::detectable`] is the change that would have been detected.
//!
//! Runs of one session are alike: they share the layout of memory, the state of caches and clocks, and neighbours. So
//! between sets that were not made in turns a deviation of their sessions is added to what runs show (levels of
//! repetition: Kalibera and Jones, *Rigorous Benchmarking in Reasonable Time*, ISMM 2013; runs in turns: Abedi and Brecht,
//! *Conducting Repeatable Experiments in Highly Variable Cloud Computing Environments*, ICPE 2017).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effect::{Effect, Samples};
use super::variance::Prior;
use super::{ALPHA, Estimate, MannWhitney, RUNS_MIN, RunLikeness};

/// A change of less than this share is none, unless the user says otherwise.
pub const MARGIN: f64 = 0.05;

/// Which way is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// Latency, cost.
    Lower,
}

/// What a comparison says about a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// `b` is better than `a`.
    Better,
    /// `b` is worse than `a`.
    Worse,
    /// They differ by less than the margin, and that is shown.
    Same,
    /// Neither is shown; the interval says how large a difference may still be.
    Inconclusive,
    /// They differ, but the machine did as well, by enough to explain it.
    MachinesDiffered,
    /// Inconclusive for lack of runs: fewer than [`RUNS_MIN`] a side.
    TooFewRuns,
}

impl Verdict {
    /// The one word for it, in every place.
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

/// What is known of the machine that two sets of runs were made on, for figures that depend on it. All are logarithms of
/// the second set's figure over the first's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineAllowance {
    /// Deviation between two sessions of the same experiment that nothing explains.
    pub session: f64,
    /// By how much the machine's difference may have raised the figure.
    pub up: f64,
    /// By how much it may have lowered it.
    pub down: f64,
    /// Runs of one set alone were stopped or throttled.
    pub disturbed: bool,
}

/// One metric of two sets of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// What it is, with its unit.
    pub name: String,
    /// What it is a figure of, such as `iops`: those of one kind lend each other what they know of noise.
    pub kind: &'static str,
    /// Which way is up.
    pub better: Better,
    /// A figure for each run of the first set.
    pub a: Vec<f64>,
    /// Of the second.
    pub b: Vec<f64>,
    /// Whether each run of the first was made in one round with that of the second in the same place.
    pub paired: bool,
    /// How alike the runs of each set are; `None` of independent ones.
    pub likeness: [Option<RunLikeness>; 2],
    /// What the machine may have to do with it.
    pub machine: MachineAllowance,
    /// Whether it is a share, whose changes are differences.
    pub is_share: bool,
    /// The place of another metric, earlier in the list, of which this one is another side.
    pub one_with: Option<usize>,
}

impl Metric {
    /// Of runs that have nothing to do with each other.
    pub fn new(
        name: impl Into<String>,
        kind: &'static str,
        better: Better,
        a: Vec<f64>,
        b: Vec<f64>,
    ) -> Metric {
        Metric {
            name: name.into(),
            kind,
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
    /// Of the second.
    pub b: Option<Estimate>,
    /// `b` to `a`: by this the verdict is given.
    pub effect: Option<Effect>,
    /// Test of ranks, beside it: where the two disagree, look at the runs.
    pub mann_whitney: Option<MannWhitney>,
    /// The effect's p after Holm's correction over all figures that are not one.
    pub p_holm: Option<f64>,
    /// What may be said.
    pub verdict: Verdict,
    /// Whether `b` is shown to be better or worse, however little.
    pub shown: Option<Verdict>,
}

/// Compares all metrics of two sets of runs at once: the more are looked at, the more each has to show. A change smaller
/// than `margin`, a share, is none.
pub fn compare(metrics: &[Metric], margin: f64) -> Vec<Comparison> {
    let samples: Vec<Option<Samples>> = metrics
        .iter()
        .map(|metric| {
            let enough = metric.a.len() >= RUNS_MIN && metric.b.len() >= RUNS_MIN;
            enough.then(|| Samples::of(metric))
        })
        .collect();
    let mut alike: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for (metric, samples) in metrics.iter().zip(&samples) {
        let Some(samples) = samples else { continue };
        alike
            .entry((metric.kind, samples.likeness()))
            .or_default()
            .extend(samples.cells());
    }
    let priors: BTreeMap<_, Prior> = alike
        .into_iter()
        .map(|(kind, cells)| (kind, Prior::of(&cells)))
        .collect();
    // A metric that is one with a tested one is not counted again.
    let counted = |index: usize| {
        samples[index].is_some()
            && metrics[index]
                .one_with
                .is_none_or(|other| samples[other].is_none())
    };
    let count = (0..metrics.len()).filter(|index| counted(*index)).count();
    let alpha = ALPHA / count.max(1) as f64;
    let effects: Vec<Option<Effect>> = metrics
        .iter()
        .zip(&samples)
        .map(|(metric, samples)| {
            let samples = samples.as_ref()?;
            Some(samples.effect(
                &priors[&(metric.kind, samples.likeness())],
                alpha,
                metric.is_share,
            ))
        })
        .collect();
    let corrected = corrected(metrics, &effects, counted);
    let compared = metrics.iter().enumerate().map(|(index, metric)| {
        let (effect, p_holm) = (effects[index], corrected[index]);
        let shown = effect
            .zip(p_holm)
            .filter(|(_, p)| *p < ALPHA)
            .map(|(effect, _)| {
                let none = match effect.scale {
                    super::effect::EffectScale::Ratio => 1.0,
                    super::effect::EffectScale::Difference => 0.0,
                };
                if (effect.value > none) == (metric.better == Better::Higher) {
                    Verdict::Better
                } else {
                    Verdict::Worse
                }
            });
        let same = samples[index]
            .as_ref()
            .zip(effect)
            .is_some_and(|(samples, effect)| samples.is_within(&effect, margin, metric.is_share));
        let machine = effect.zip(p_holm).is_some_and(|(effect, p)| {
            // The factor that the effect's own p was corrected by.
            let factor = if effect.p > 0.0 { p / effect.p } else { 1.0 };
            metric.machine.disturbed || effect.p_beyond_machine * factor >= ALPHA
        });
        let verdict = match (effect, same, shown) {
            (None, ..) => Verdict::TooFewRuns,
            (_, true, _) if !metric.machine.disturbed => Verdict::Same,
            (_, _, Some(_)) if machine => Verdict::MachinesDiffered,
            (_, _, Some(shown)) => shown,
            (_, _, None) => Verdict::Inconclusive,
        };
        let shown = shown.filter(|_| !machine);
        Comparison {
            name: metric.name.clone(),
            a: Estimate::of(&metric.a),
            b: Estimate::of(&metric.b),
            mann_whitney: effect.and_then(|_| MannWhitney::of(&metric.a, &metric.b)),
            effect,
            p_holm,
            verdict,
            shown,
        }
    });
    compared.collect()
}

/// The p of each effect after the correction; of one that is not counted, by as much as that of the one it is a side of.
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
        let other = metrics[index].one_with.expect("only such are not counted");
        let others = (
            effects[other].expect("it was tested").p,
            all[other].expect("it is counted"),
        );
        // The factor that the other one was corrected by; where that has a p of zero, the largest.
        let factor = if others.0 > 0.0 {
            others.1 / others.0
        } else {
            p.len() as f64
        };
        all[index] = Some((effect.p * factor).min(1.0));
    }
    all
}

/// Holm's step-down correction: with these p-values, the chance of any false verdict among all of
/// them stays what it was for one.
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
