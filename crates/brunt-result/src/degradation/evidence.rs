//! Determines whether a fault had an effect, from one run or from all runs of a point together.
//!
//! This is an interrupted time series with a known window (Box and Tiao, Intervention analysis, 1975):
//! [`noise_model`] explains each run's figure, and the effect's size is one of its coefficients. Several forms of the
//! effect are tested, because a fault may have an effect for only part of its time: over the whole window, and over
//! its first two, four, eight … intervals. The tests are made with and without the intervals after the fault, and
//! with errors that are normal or Student's t, which gives outliers full or little weight (Lange, Little and Taylor,
//! Robust statistical modeling using the t distribution, 1989). Most of these tests agree, so dividing [`ALPHA`]
//! among them (Bonferroni) would waste most of it. Their chances are combined by the weighted harmonic mean, which
//! holds for dependent tests (Wilson, The harmonic mean p-value for combining dependent tests, 2019).
//!
//! Over runs, sizes are combined with a random effect (DerSimonian and Laird, Meta-analysis in clinical trials,
//! 1986): if runs agree, only their noise counts; if they differ, the effect has to exceed those differences too.
//! Degrees of freedom follow Satterthwaite (1946).
//!
//! The rule: the same intervals always give the same evidence, whatever question is asked.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::limits::NOTICEABLE;
use super::noise_model::{
    BEND, COLUMNS, Covariance, DEVIATION_MIN, Design, EFFECT, FIGURE, Fit, Model, SINE, SLOPE,
    Searched, USUAL, WARM_UP, models, search,
};

/// Probability of reporting an effect for a point that has none.
pub const ALPHA: f64 = 0.01;
/// Probability of reporting an effect for a single run that has none.
pub(super) const ALPHA_RUN: f64 = 0.005;
/// Smaller effects, as a share of the usual level, count as none.
pub const MARGIN: f64 = 0.005;
/// Probability of missing an effect of the size [`Evidence::noticeable`].
const MISS: f64 = 0.05;
/// Models with less weight than this are ignored.
const WEIGHT_MIN: f64 = 1e-3;
/// An effect this many standard errors above the estimate is ruled out.
const EXCLUDED: f64 = 3.0;
/// Number of times that an effect is refitted in proportion to the usual level while it lasts.
pub(super) const PROPORTIONED: usize = 3;
/// Degrees of freedom of the t distribution that models outliers.
const TAILS: f64 = 4.0;

/// How much worse than usual one figure of one run was, as a share of the usual level.
#[derive(Clone, Debug)]
pub(super) struct RunSeries {
    /// Value of each interval; positive is worse.
    pub worse: Vec<f64>,
    /// Whether an effect takes a share of what would be usual, as with rates, and isn't added to it, as with logarithms.
    pub proportional: bool,
    /// Whether the interval is informative about this fault; other faults may mask it.
    pub known: Vec<bool>,
    /// The share of each interval that the fault covers.
    pub cover: Vec<f64>,
    pub start_s: Vec<f64>,
    pub end_s: Vec<f64>,
    /// First interval that the fault covers; all earlier intervals are usual.
    pub begin: usize,
    /// First interval after the fault; the number of intervals if there is none.
    pub after: usize,
    /// Number of consecutive intervals, from the end of the fault on, in which nothing was answered.
    pub unanswered: usize,
    /// End of the fault, if it ended.
    pub fault_end_s: Option<f64>,
    pub fault_start_s: f64,
    /// Evidence of this run alone, computed on first use.
    pub alone: Arc<Alone>,
}

/// Evidence of one run alone; `None` if it has too few intervals.
pub(super) type Alone = OnceLock<Option<Evidence>>;

impl RunSeries {
    /// Evidence of this run alone.
    pub fn evidence_alone(&self) -> Option<Evidence> {
        self.alone.get_or_init(|| evidence(&[self])).clone()
    }

    pub fn len(&self) -> usize {
        self.worse.len()
    }

    /// By how much the figure was worse than `usual` during the fault, as a plain mean over the fault's intervals.
    pub fn mean_during(&self, usual: &[f64]) -> f64 {
        let window = self.begin..self.after;
        let known = window.filter(|at| self.known[*at]);
        let known = known.map(|at| (self.worse[at] - usual[at]) / self.scale(usual[at]));
        let (count, sum) = known.fold((0, 0.0), |(count, sum), worse| (count + 1, sum + worse));
        sum / f64::from(count.max(1))
    }

    /// The size, in an interval with this usual level, of an effect of 1.
    pub fn scale(&self, usual: f64) -> f64 {
        match self.proportional {
            true => (1.0 - usual).clamp(0.05, 20.0),
            false => 1.0,
        }
    }

    /// What the noise model takes as usual in each interval, with an effect of this form. Adjusts the design: where the
    /// usual level changes, so does the effect, which is a share of it.
    pub fn proportioned(&self, design: &mut Design, noise: Noise) -> Vec<f64> {
        let effect: Vec<f64> = design.rows.iter().map(|row| row[EFFECT]).collect();
        let mut with_effect = noise.forms.to_vec();
        with_effect.push(EFFECT);
        let is_constant = noise.forms.len() < 2 || !self.proportional;
        for _ in 0..if is_constant { 0 } else { PROPORTIONED } {
            let usual = fitted(design, noise, &with_effect);
            for ((row, effect), usual) in design.rows.iter_mut().zip(&effect).zip(usual) {
                row[EFFECT] = effect * self.scale(usual);
            }
        }
        fitted(design, noise, &with_effect)
    }
}

/// The usual part of a fit of these forms.
fn fitted(design: &Design, noise: Noise, forms: &[usize]) -> Vec<f64> {
    let moments = noise.covariance.moments(&design.rows, &design.weights).0;
    let fit = Fit::of(&moments, forms);
    let rows = design.rows.iter();
    rows.map(|row| fit.explains(row, noise.forms)).collect()
}

/// Basis of a verdict: how likely series like these are without an effect, and the effect that was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerdictBasis {
    /// Probability of series like these without an effect; below `limit`, an effect is reported.
    pub chance: f64,
    /// Accepted probability of a false alarm.
    pub limit: f64,
    /// Size of the effect over the whole fault, as a share of the usual level (of response times, as a logarithm):
    /// positive is worse.
    pub size: f64,
    /// Standard error of the size.
    pub error: f64,
    /// Number of intervals that the size covers, from the start of the fault, if the effect ended before the fault
    /// did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_intervals: Option<usize>,
    /// Standard deviation of an interval's noise, as a share of the usual level.
    pub noise: f64,
    /// Correlation of the noise of neighbouring intervals.
    pub neighbours: f64,
    /// Whether the level drifts or warms up during a run.
    pub drifts: bool,
    /// Period of an oscillation, in intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_intervals: Option<f64>,
    /// Runs that were judged together.
    pub runs: usize,
}

impl VerdictBasis {
    /// The basis that covers the most runs.
    pub(super) fn clearest(of: impl Iterator<Item = VerdictBasis>) -> Option<VerdictBasis> {
        of.max_by_key(|basis| basis.runs)
    }
}

impl Evidence {
    /// The noise model.
    pub fn noise(&self) -> Noise {
        Noise {
            covariance: self.covariance,
            forms: self.usual_forms,
        }
    }

    /// Whether the figure was better than usual during the whole window, by more than the standard error.
    pub fn is_opposite(&self) -> bool {
        let (whole, error) = self.whole;
        whole < -error
    }

    /// Whether the evidence rules out half of an effect of this size over the whole window.
    pub fn excludes(&self, size: f64) -> bool {
        let (whole, error) = self.whole;
        self.noticeable <= NOTICEABLE && whole + EXCLUDED * error < 0.5 * size
    }

    /// The strongest evidence of several tests, each with its share of the false-alarm probability. The p-values of
    /// all tests are combined by their weighted harmonic mean. Keeps the smallest effect that any test over the whole
    /// window would have detected. `None` without tests.
    fn combine(tests: &[(f64, Evidence)]) -> Option<Evidence> {
        let corrected = |(share, test): &&(f64, Evidence)| test.chance / share;
        let (_, strongest) = tests
            .iter()
            .min_by(|one, other| corrected(one).total_cmp(&corrected(other)))?;
        let whole = tests.iter().map(|(_, test)| test);
        let narrowest = whole
            .filter(|test| test.form == Form::Whole)
            .min_by(|one, other| one.noticeable.total_cmp(&other.noticeable))
            .unwrap_or(strongest);
        let shares: f64 = tests.iter().map(|(share, _)| share).sum();
        let parts: f64 = tests.iter().map(|(share, test)| share / test.chance).sum();
        Some(Evidence {
            chance: shares / parts,
            noticeable: narrowest.noticeable,
            whole: narrowest.whole,
            ..strongest.clone()
        })
    }

    /// The verdict as stored in results. `runs` is the number of runs judged together; `limit` is the accepted
    /// probability of a false alarm.
    pub fn basis(&self, runs: usize, limit: f64) -> VerdictBasis {
        let Covariance { alike, apart } = self.covariance;
        let first = match self.form {
            Form::First(intervals) => Some(intervals),
            Form::Whole | Form::AndNext => None,
        };
        let (size, error) = match first {
            Some(_) => (self.size, self.error),
            None => self.whole,
        };
        VerdictBasis {
            chance: self.chance,
            limit,
            size,
            error,
            first_intervals: first,
            noise: self.deviation,
            neighbours: alike * (1.0 - apart),
            drifts: self.usual_forms.contains(&SLOPE) || self.usual_forms.contains(&WARM_UP),
            period_intervals: self
                .usual_forms
                .contains(&SINE)
                .then(|| std::f64::consts::TAU / self.searched.turns),
            runs,
        }
    }
}

/// The intervals in which an effect is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// While the fault is present.
    Whole,
    /// This many intervals from the fault's start.
    First(usize),
    /// While the fault is present, and one more interval.
    AndNext,
}

/// The combined evidence of a set of runs.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// Probability of evidence at least this strong without an effect.
    pub chance: f64,
    /// Size of the effect as a share of the usual level, for the form that shows it best; positive is worse.
    pub size: f64,
    /// Standard error of `size`.
    pub error: f64,
    /// Size of an effect over the whole window that would have been reported in 95 of 100 cases.
    pub noticeable: f64,
    /// Size of the effect over the whole window, and its standard error.
    pub whole: (f64, f64),
    pub form: Form,
    /// The model that is best supported by the intervals.
    pub covariance: Covariance,
    pub usual_forms: &'static [usize],
    /// Parameters of the model's forms.
    pub searched: Searched,
    /// Whether the effect was also measured against the intervals after the fault.
    pub with_after: bool,
    /// Standard deviation of an interval's error.
    pub deviation: f64,
}

/// Plausible noise models of runs that have an effect: those best supported by the intervals under each of three
/// assumptions about everything after the fault: it is usual, unknown, or permanently affected.
pub(super) fn noises(runs: &[&RunSeries], evidence: &Evidence) -> Vec<Noise> {
    let mut found: Vec<Noise> = Vec::new();
    for after in [After::Usual, After::Unknown, After::Lasting] {
        let designs: Vec<Design> = runs
            .iter()
            .map(|run| {
                let mut design = design(run, evidence.form, Some(run.after));
                design.set(evidence.searched);
                design.assume(run, after);
                run.proportioned(&mut design, evidence.noise());
                design
            })
            .collect();
        let mut all = models(&designs, Covariance::all());
        all.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        for model in all.iter().take(2).filter(|model| model.weight > 0.1) {
            let noise = Noise {
                covariance: model.covariance,
                forms: model.forms,
            };
            if !found.contains(&noise) {
                found.push(noise);
            }
        }
    }
    found
}

/// How the intervals after the fault are classified.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    Usual,
    Unknown,
    Lasting,
}

impl Design {
    /// Classifies the intervals after the fault as `after`.
    pub fn assume(&mut self, run: &RunSeries, after: After) {
        for at in run.after..run.len() {
            match after {
                After::Usual => {}
                After::Unknown => self.weights[at] = 0.0,
                After::Lasting => self.rows[at][EFFECT] = 1.0,
            }
        }
    }
}

/// A model of usual behaviour, without its coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    pub covariance: Covariance,
    pub forms: &'static [usize],
}

/// The model's rows for a run: usual behaviour, and an effect of this form. Intervals after the effect count as usual
/// from interval `from` on; `None` leaves them out.
pub(super) fn design(run: &RunSeries, form: Form, from: Option<usize>) -> Design {
    let count = run.len();
    let end = match form {
        Form::Whole => run.after,
        Form::First(intervals) => (run.begin + intervals).min(run.after),
        Form::AndNext => (run.after + 1).min(count),
    };
    let mut rows = Vec::with_capacity(count);
    let mut weights = Vec::with_capacity(count);
    for at in 0..count {
        let mut row = [0.0; COLUMNS];
        row[FIGURE] = run.worse[at];
        row[USUAL] = 1.0;
        row[SLOPE] = at as f64 / count as f64 - 0.5;
        row[BEND] = row[SLOPE].powi(2);
        let hit = (run.begin..end).contains(&at);
        if hit {
            row[EFFECT] = if at < run.after { run.cover[at] } else { 1.0 };
        }
        let usual = at < run.begin || from.is_some_and(|from| at >= from.max(end));
        rows.push(row);
        weights.push(f64::from(u8::from(run.known[at] && (hit || usual))));
    }
    Design { rows, weights }
}

/// The forms of effect to test, each with its share of the false-alarm probability.
fn forms(runs: &[&RunSeries]) -> Vec<(Form, f64)> {
    let shortest = runs
        .iter()
        .map(|run| run.after - run.begin)
        .min()
        .unwrap_or(0);
    let mut parts: Vec<Form> = Vec::new();
    let mut intervals = 2;
    while intervals * 3 <= shortest * 2 {
        parts.push(Form::First(intervals));
        intervals *= 2;
    }
    if shortest <= 2 && runs.iter().all(|run| run.after < run.len()) {
        parts.push(Form::AndNext);
    }
    let share = 0.25 / parts.len().max(1) as f64;
    let whole = if parts.is_empty() { 1.0 } else { 0.75 };
    std::iter::once((Form::Whole, whole))
        .chain(parts.into_iter().map(|form| (form, share)))
        .collect()
}

/// Combined evidence of these runs; `None` if they have too few intervals.
pub(super) fn evidence(runs: &[&RunSeries]) -> Option<Evidence> {
    let longest = runs.iter().map(|run| run.len()).max()?;
    let mut tests: Vec<(f64, Evidence)> = Vec::new();
    let mut searched = None;
    let mut supported: Vec<Covariance> = Covariance::all().collect();
    let has_after = runs.iter().all(|run| run.after < run.len());
    for (form, share) in forms(runs) {
        let sides: &[bool] = match (form, has_after) {
            (_, false) => &[false],
            (Form::Whole, true) => &[true, false],
            (_, true) => &[true],
        };
        for with_after in sides {
            let mut designs: Vec<Design> = runs
                .iter()
                .map(|run| design(run, form, with_after.then_some(run.after)))
                .collect();
            let searched = *searched.get_or_insert_with(|| search(&mut designs, longest));
            designs.iter_mut().for_each(|run| run.set(searched));
            let normal = models(&designs, supported.iter().copied());
            if normal.is_empty() {
                continue;
            }
            if form == Form::Whole && *with_after == sides[0] {
                let keep = |covariance: &Covariance| {
                    let of = normal
                        .iter()
                        .filter(|model| model.covariance == *covariance);
                    of.map(|model| model.weight).sum::<f64>() > WEIGHT_MIN
                };
                supported.retain(keep);
            }
            let share = share / sides.len() as f64 / 2.0;
            let (usual_model, deviation) = (heaviest(&normal), heaviest(&normal).variance.sqrt());
            let mut ask = |models: &[Model], widen: f64| {
                let found = Evidence {
                    searched,
                    covariance: usual_model.covariance,
                    usual_forms: usual_model.forms,
                    deviation,
                    ..combined(models, widen, share, form, *with_after)
                };
                tests.push((share, found));
            };
            ask(&normal, 1.0);
            if let Some((robust, widen)) = with_outliers(&designs, &normal, &supported) {
                ask(&robust, widen);
            }
        }
    }
    Evidence::combine(&tests)
}

/// Models of the same runs that give outliers a small weight, and the factor by which the variance of the effect
/// exceeds theirs; `None` if such a model does not apply.
fn with_outliers(
    designs: &[Design],
    normal: &[Model],
    supported: &[Covariance],
) -> Option<(Vec<Model>, f64)> {
    let best = heaviest(normal);
    let covariance = Covariance {
        apart: best.covariance.apart.max(0.1),
        ..best.covariance
    };
    let mut designs = designs.to_vec();
    let mut scale = f64::INFINITY;
    for _ in 0..4 {
        let rests: Vec<Vec<(usize, f64)>> = designs
            .iter()
            .map(|run| rests(run, covariance, best.forms))
            .collect();
        let mut sizes: Vec<f64> = rests.iter().flatten().map(|(_, rest)| rest.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let usual = sizes.get(sizes.len() / 2)?;
        // The median of |t| with four degrees of freedom is 0.741.
        scale = (usual / 0.741).max(DEVIATION_MIN);
        for (run, rests) in designs.iter_mut().zip(&rests) {
            for (at, rest) in rests {
                run.weights[*at] = (TAILS + 1.0) / (TAILS + (rest / scale).powi(2));
            }
        }
    }
    let mut count = 0.0;
    let [mut weight, mut square, mut slope] = [0.0; 3];
    for run in &designs {
        for (_, rest) in rests(run, covariance, best.forms) {
            let from = (rest / scale).powi(2);
            count += 1.0;
            weight += (TAILS + 1.0) / (TAILS + from);
            square += from * ((TAILS + 1.0) / (TAILS + from)).powi(2);
            slope += (TAILS + 1.0) * (TAILS - from) / (TAILS + from).powi(2);
        }
    }
    let (weight, square, slope) = (weight / count, square / count, slope / count);
    // If the errors form two clusters of equal size, their centre is undefined.
    if slope < 0.25 {
        return None;
    }
    let covariances = supported.iter().map(|covariance| Covariance {
        apart: covariance.apart.max(0.1),
        ..*covariance
    });
    let mut robust = models(&designs, covariances);
    for model in &mut robust {
        model.variance = scale.powi(2);
    }
    (!robust.is_empty()).then_some((robust, weight * square / slope.powi(2)))
}

/// The residuals of a run by interval, in units of the original errors: weights affect the fit, but not the
/// residuals' size.
fn rests(run: &Design, covariance: Covariance, forms: &[usize]) -> Vec<(usize, f64)> {
    let mut with_effect = forms.to_vec();
    with_effect.push(EFFECT);
    let fit = Fit::of(&covariance.moments(&run.rows, &run.weights).0, &with_effect);
    let mut rests = Vec::with_capacity(run.rows.len());
    covariance.whiten(&run.rows, &run.weights, |at, row| {
        let rest = row[FIGURE] - fit.explains(row, &with_effect);
        rests.push((at, rest / run.weights[at].sqrt().max(0.1)));
    });
    rests
}

pub(super) fn heaviest(models: &[Model]) -> &Model {
    models
        .iter()
        .max_by(|one, other| one.weight.total_cmp(&other.weight))
        .expect("there is at least one model")
}

/// The size of the effect over runs according to a model: size, variance and degrees of freedom.
fn over_runs(model: &Model, widen: f64) -> Option<(f64, f64, f64)> {
    let known: Vec<(f64, f64)> = model
        .fits
        .iter()
        .filter(|fit| fit.variances[EFFECT] > 0.0)
        .map(|fit| (fit.coefficients[EFFECT], fit.variances[EFFECT].recip()))
        .collect();
    let all: f64 = known.iter().map(|(_, weight)| weight).sum();
    if all <= 0.0 {
        return None;
    }
    let size = known
        .iter()
        .map(|(size, weight)| size * weight)
        .sum::<f64>()
        / all;
    let within = model.variance * widen / all;
    let runs = known.len() as f64;
    if known.len() < 2 {
        return Some((size, within, model.freedom));
    }
    let differ: f64 = known
        .iter()
        .map(|(one, weight)| weight * (one - size).powi(2))
        .sum();
    let between = differ / (runs - 1.0) / all;
    let more = (between - within).max(0.0);
    let freedom =
        (within + more).powi(2) / (within.powi(2) / model.freedom + more.powi(2) / (runs - 1.0));
    Some((size, within + more, freedom))
}

/// Combines the models' conclusions about an effect, at this share of the false-alarm probability.
fn combined(models: &[Model], widen: f64, share: f64, form: Form, with_after: bool) -> Evidence {
    let best = heaviest(models);
    let (mut chance, mut size, mut variance, mut freedom, mut weights) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for model in models.iter().filter(|model| model.weight > WEIGHT_MIN) {
        let Some((of_model, error, free)) = over_runs(model, widen) else {
            continue;
        };
        let law =
            StudentsT::new(0.0, 1.0, free.max(1.0)).expect("degrees of freedom are above zero");
        chance += model.weight * law.cdf((MARGIN - of_model) / error.sqrt());
        size += model.weight * of_model;
        variance += model.weight * (error + of_model.powi(2));
        freedom += model.weight * free.max(1.0);
        weights += model.weight;
    }
    if weights <= 0.0 {
        (chance, weights) = (1.0, 1.0);
    }
    let size = size / weights;
    let error = (variance / weights - size * size)
        .max(DEVIATION_MIN.powi(2) / 1e3)
        .sqrt();
    let law = StudentsT::new(0.0, 1.0, (freedom / weights).max(1.0)).expect("above zero");
    let quantile = |chance: f64| law.inverse_cdf(1.0 - chance);
    Evidence {
        chance: chance / weights,
        size,
        error,
        noticeable: MARGIN + (quantile(ALPHA * share) + quantile(MISS)) * error,
        whole: (size, error),
        form,
        covariance: best.covariance,
        usual_forms: best.forms,
        searched: Searched::default(),
        with_after,
        deviation: best.variance.sqrt(),
    }
}
