//! Determines when an effect began and when it ended: change points with a prior (Barry and Hartigan, A Bayesian
//! analysis for change point problems, 1993), under the noise that [`super::evidence`] found.
//!
//! The effect begins in some interval of the fault's window, most likely the first. After the fault it ends at once,
//! stays at some level for some intervals, or shrinks in a straight line, and then disappears permanently. Each of
//! these paths explains the series more or less well; the posterior gives the most likely one and its certainty.
//!
//! - *Blips*: no interval counts as worse than the effect itself, so that a few bad ones long after the fault never
//!   outweigh the good ones between.
//! - *Equivalence*: a shortfall below [`BACK`] of the usual level counts as recovered (Schuirmann, two one-sided tests,
//!   1987), however certain the shortfall is.
//!
//! The rule: an answer is given only if it is much more likely than all others together.

use std::ops::Range;

use super::evidence::{After, Evidence, Form, Noise, PROPORTIONED, RunSeries, design, noises};
use super::interval::median;
use super::limits::HOLD;
use super::noise_model::{
    COLUMNS, DEVIATION_MIN, Design, EFFECT, FIGURE, Fit, INTERVALS_PER_FORM, USUAL, Whitener,
};

/// Largest share of the usual level that may be missing after recovery.
pub const BACK: f64 = 0.05;
/// A level after the fault is noise around the usual level, not a remaining part of the effect, if it is a smaller
/// share of the effect than this and fewer than `CLEAR` standard errors above zero.
const SMALL: f64 = 0.25;
/// See `SMALL`.
const CLEAR: f64 = 3.0;
/// Minimum probability to report a recovery.
const SURE: f64 = 0.75;
/// Minimum probability to report that there was none.
const SURE_NEVER: f64 = 0.8;
/// Prior probability that the effect ends with the fault.
const AT_ONCE: f64 = 0.4;
/// Prior probability that the effect lasts until the end.
const FOREVER: f64 = 0.1;
/// Prior probability that the effect begins with the fault.
const WITH_FAULT: f64 = 0.5;
/// Number of path lengths tried first for a long series; those around the best are tried afterwards.
const TRIED: usize = 60;

/// Log-likelihoods of a run for each number of bad intervals after the fault, from none to all.
#[derive(Clone, Debug)]
pub(super) struct Returns {
    likelihoods: Vec<f64>,
}

/// When a run recovered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Return {
    /// The run recovered after this many intervals.
    After(usize),
    /// The run did not recover before the end of the series.
    Never,
    /// The series ended less than [`HOLD`] after this time, which may have been the recovery.
    TooShort { begin_s: f64 },
    /// Several answers are about equally likely.
    Unclear,
}

/// A copy of the run whose figure is limited to the range that the paths cover.
fn clamped(run: &RunSeries, evidence: &Evidence) -> RunSeries {
    // What is usual depends on whether the run recovered.
    let mut courses = vec![course(run, evidence)];
    if evidence.usual_forms.len() > 1 {
        courses.push(usual_after(run, evidence, After::Lasting));
    }
    let mut clamped = run.clone();
    let (mut least, mut most) = (
        vec![f64::INFINITY; run.len()],
        vec![f64::NEG_INFINITY; run.len()],
    );
    for course in courses {
        let window = run.begin..run.after;
        let mean = window
            .clone()
            .map(|at| (run.worse[at] - course[at]) / run.scale(course[at]))
            .sum::<f64>();
        let mean = mean / window.len().max(1) as f64;
        let effect = evidence.size.max(evidence.whole.0).max(mean);
        for (at, usual) in course.iter().enumerate() {
            // Anything worse than the effect has another cause.
            let effect = (effect * run.scale(*usual)).max(2.0 * evidence.deviation);
            most[at] = most[at].max(usual + effect + evidence.deviation);
            least[at] = least[at].min(usual - 3.0 * evidence.deviation.max(0.01));
        }
    }
    for (at, worse) in clamped.worse.iter_mut().enumerate() {
        *worse = worse.clamp(least[at], most[at]);
    }
    clamped
}

/// The noise model's usual level in each interval, under this assumption about the intervals after the fault.
fn usual_after(run: &RunSeries, evidence: &Evidence, after: After) -> Vec<f64> {
    let mut design = design(run, Form::Whole, Some(run.after));
    design.set(evidence.searched);
    design.assume(run, after);
    run.proportioned(&mut design, evidence.noise())
}

/// The noise model's usual level in each interval of a run that recovered; zero if it is constant.
pub(super) fn course(run: &RunSeries, evidence: &Evidence) -> Vec<f64> {
    match evidence.usual_forms.len() {
        0..2 => vec![0.0; run.len()],
        _ => usual_after(run, evidence, After::Usual),
    }
}

/// The interval of the fault's window, from 0, in which the effect of a run began.
pub(super) fn onset(run: &RunSeries, evidence: &Evidence) -> usize {
    let run = clamped(run, evidence);
    let from = (evidence.with_after && evidence.form != Form::AndNext).then_some(run.after);
    let mut design = design(&run, evidence.form, from);
    design.set(evidence.searched);
    // An interval that the fault hardly covers shows nothing.
    let first = (run.begin..run.after)
        .find(|at| run.cover[*at] >= 0.25)
        .unwrap_or(run.begin);
    let end = design
        .rows
        .iter()
        .rposition(|row| row[EFFECT] > 0.0)
        .map_or(first, |at| at + 1);
    let choices = end.saturating_sub(first).max(1);
    let late = ((1.0 - WITH_FAULT) / (choices - 1).max(1) as f64).ln();
    let mut best = (f64::NEG_INFINITY, first);
    let stride = (choices / TRIED).max(1);
    let noise = Noise {
        covariance: evidence.covariance,
        forms: evidence.usual_forms,
    };
    let paths = Paths::of(&run, &design, noise);
    let mut effect: Vec<f64> = design.rows.iter().map(|row| row[EFFECT]).collect();
    for at in first..end {
        if (at - first).is_multiple_of(stride) || at - first < 8 {
            let found = paths.explain(&[&effect]);
            let prior = if at == first { WITH_FAULT.ln() } else { late };
            if found.sizes[0] > 0.0 && prior + found.likelihood > best.0 {
                best = (prior + found.likelihood, at);
            }
        }
        effect[at] = 0.0;
    }
    best.1.saturating_sub(run.begin)
}

/// Explains a run's figure by usual behaviour and by paths of an effect.
struct Paths<'a> {
    run: &'a RunSeries,
    whitener: Whitener,
    usual: Vec<Unit>,
    /// The whitened figure, without usual behaviour.
    figure: Vec<f64>,
    /// How much of each unit of usual behaviour the figure contains.
    parts: Vec<f64>,
    /// Sum of squares of `figure`.
    rest: f64,
    /// Number of intervals that count.
    count: f64,
    /// Cost of the noise model in the log-likelihood.
    cost: f64,
}

/// A column of usual behaviour.
struct Unit {
    /// Whitened, and orthonormal to the other units.
    white: Vec<f64>,
    /// Not whitened.
    plain: Vec<f64>,
}

/// A fit of one or two columns of effects.
struct PathFit {
    /// The size of each effect.
    sizes: [f64; 2],
    /// The size of the last effect, in standard errors.
    errors: f64,
    likelihood: f64,
    /// The usual level of each interval; empty if it is constant.
    usual: Vec<f64>,
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn without(column: &mut [f64], unit: &[f64], size: f64) {
    column
        .iter_mut()
        .zip(unit)
        .for_each(|(value, unit)| *value -= size * unit);
}

impl Paths<'_> {
    fn of<'a>(run: &'a RunSeries, design: &Design, noise: Noise) -> Paths<'a> {
        let whitener = noise.covariance.whitener(&design.weights);
        let count = design
            .weights
            .iter()
            .filter(|weight| **weight > 0.0)
            .count() as f64;
        let mut paths = Paths {
            run,
            usual: Vec::new(),
            figure: Vec::new(),
            parts: Vec::new(),
            rest: 0.0,
            count,
            cost: 0.5 * (whitener.log_det + noise.forms.len() as f64 * count.ln()),
            whitener,
        };
        for form in noise.forms {
            let mut plain: Vec<f64> = design.rows.iter().map(|row| row[*form]).collect();
            let (mut white, whole, parts) = paths.unusual(&plain);
            let left = dot(&white, &white);
            if left > 1e-9 * whole {
                for (unit, part) in paths.usual.iter().zip(parts) {
                    without(&mut plain, &unit.plain, part);
                }
                white.iter_mut().for_each(|value| *value /= left.sqrt());
                plain.iter_mut().for_each(|value| *value /= left.sqrt());
                paths.usual.push(Unit { white, plain });
            }
        }
        let figure: Vec<f64> = design.rows.iter().map(|row| row[FIGURE]).collect();
        (paths.figure, _, paths.parts) = paths.unusual(&figure);
        paths.rest = dot(&paths.figure, &paths.figure);
        paths
    }

    /// The log-likelihood of a path that explains this much of the sum of squares, with fitted error variance.
    fn fits(&self, explained: f64) -> f64 {
        -0.5 * self.count * self.variance(explained).ln() - self.cost
    }

    /// The error variance of a path that explains this much.
    fn variance(&self, explained: f64) -> f64 {
        (self.rest - explained).max(0.0) / self.count + DEVIATION_MIN.powi(2)
    }

    /// A whitened column with usual behaviour removed, the sum of squares of the whole whitened column, and how much
    /// of each unit of usual behaviour it contained.
    fn unusual(&self, column: &[f64]) -> (Vec<f64>, f64, Vec<f64>) {
        let mut column = self.whitener.column(column.iter().copied());
        let whole = dot(&column, &column);
        let mut parts = Vec::with_capacity(self.usual.len());
        for unit in &self.usual {
            let size = dot(&column, &unit.white);
            without(&mut column, &unit.white, size);
            parts.push(size);
        }
        (column, whole, parts)
    }

    /// Fits one or two columns of effects, in proportion to what is usual.
    fn explain(&self, columns: &[&[f64]]) -> PathFit {
        let mut found = self.explain_once(columns);
        if self.run.proportional && !found.usual.is_empty() {
            for _ in 1..PROPORTIONED {
                let scale: Vec<f64> = found
                    .usual
                    .iter()
                    .map(|usual| self.run.scale(*usual))
                    .collect();
                let of = |column: &&[f64]| -> Vec<f64> {
                    column
                        .iter()
                        .zip(&scale)
                        .map(|(one, scale)| one * scale)
                        .collect()
                };
                let scaled: Vec<Vec<f64>> = columns.iter().map(of).collect();
                found =
                    self.explain_once(&scaled.iter().map(|column| &column[..]).collect::<Vec<_>>());
            }
        }
        found
    }

    fn explain_once(&self, columns: &[&[f64]]) -> PathFit {
        // Each column with the previous ones removed: its sum of squares, and how much of it the figure contains.
        let mut kept: Vec<(Vec<f64>, f64, f64)> = Vec::with_capacity(2);
        let mut parts: Vec<Vec<f64>> = Vec::with_capacity(2);
        let (mut shared, mut explained, mut last) = (0.0, 0.0, 0.0);
        for column in columns {
            let (mut column, whole, of) = self.unusual(column);
            let mut with = dot(&column, &self.figure);
            if let Some((first, square, first_with)) = kept.first().filter(|first| first.1 > 0.0) {
                shared = dot(first, &column) / square;
                without(&mut column, first, shared);
                with -= shared * first_with;
            }
            let mut square = dot(&column, &column);
            last = 0.0;
            match square > 1e-9 * whole {
                true => last = with * with / square,
                false => square = 0.0,
            }
            explained += last;
            kept.push((column, square, with));
            parts.push(of);
        }
        let mut sizes = [0.0; 2];
        for ((_, square, with), size) in kept.iter().zip(&mut sizes) {
            if *square > 0.0 {
                *size = with / square;
            }
        }
        if kept[0].1 > 0.0 {
            sizes[0] -= shared * sizes[1];
        }
        let mut usual = Vec::new();
        if self.usual.len() > 1 {
            usual = vec![0.0; self.figure.len()];
            for (index, unit) in self.usual.iter().enumerate() {
                let effects = parts
                    .iter()
                    .zip(sizes)
                    .map(|(parts, size)| parts[index] * size);
                let size = self.parts[index] - effects.sum::<f64>();
                without(&mut usual, &unit.plain, -size);
            }
        }
        PathFit {
            sizes,
            errors: (last / self.variance(explained)).sqrt(),
            likelihood: self.fits(explained),
            usual,
        }
    }
}

/// Log-likelihoods of recovery times for a run under some noise. The run has to be [`clamped`].
fn returns(run: &RunSeries, evidence: &Evidence, noise: Noise) -> Returns {
    let after = run.len() - run.after;
    let form = match evidence.form {
        Form::AndNext => Form::Whole,
        other => other,
    };
    let mut base = design(run, form, Some(run.after));
    base.set(evidence.searched);
    let mut likelihoods = vec![f64::NEG_INFINITY; after + 1];
    let stride = (after / TRIED).max(1);
    let coarse: Vec<usize> = (0..=after)
        .filter(|bad| bad.is_multiple_of(stride) || *bad < 8 || *bad == after)
        .collect();
    let paths = Paths::of(run, &base, noise);
    let effect: Vec<f64> = base.rows.iter().map(|row| row[EFFECT]).collect();
    let path = |bad: usize| likelihood(&paths, &effect, bad);
    // A path whose remaining shortfall is below the margin counts as an earlier recovery, but not as a recovery
    // before anything was answered.
    let mut add = |(fits, counted): (f64, usize)| {
        let counted = counted.max(run.unanswered.min(after));
        likelihoods[counted] = likelihoods[counted].max(fits);
        fits
    };
    let mut best = (f64::NEG_INFINITY, 0);
    for bad in coarse {
        let fits = add(path(bad));
        if fits > best.0 {
            best = (fits, bad);
        }
    }
    if stride > 1 {
        for bad in best.1.saturating_sub(stride)..(best.1 + stride).min(after) {
            add(path(bad));
        }
        // Lengths between those tried are taken to be less likely than the previous tried one, by a factor of e.
        let mut last = f64::NEG_INFINITY;
        for known in &mut likelihoods[..after] {
            match known.is_finite() {
                true => last = *known - 1.0,
                false => *known = last,
            }
        }
    }
    Returns { likelihoods }
}

/// The log-likelihood of a path with this many bad intervals, and the number after which the run counts as recovered.
fn likelihood(paths: &Paths<'_>, effect: &[f64], bad: usize) -> (f64, usize) {
    if bad == 0 {
        return (paths.explain(&[effect]).likelihood, 0);
    }
    let run = paths.run;
    let long = run.after..run.after + bad;
    let mut left = vec![0.0; effect.len()];
    left[long.clone()].fill(1.0);
    // Most of the intervals have to be as bad as the path claims: a few that are worse are a blip.
    let usual_of_long = |fit: &PathFit| {
        let worse = long.clone().map(|at| match fit.usual.get(at) {
            Some(usual) => (run.worse[at] - usual) / run.scale(*usual),
            None => run.worse[at],
        });
        median(worse.collect())
    };
    let fit = paths.explain(&[effect, &left]);
    let is_noise = |level: f64, fit: &PathFit| level < SMALL * fit.sizes[0] && fit.errors < CLEAR;
    // The level is one more fitted parameter.
    let explained = fit.likelihood - 0.5 * (effect.len() as f64).ln();
    let mut found = match fit.sizes[1] {
        level if level > BACK && usual_of_long(&fit) < 0.5 * level => (f64::NEG_INFINITY, bad),
        level if level > BACK && is_noise(level, &fit) => (explained, 0),
        level if level > BACK => (explained, bad),
        level if level > 0.0 => (explained, 0),
        _ => (f64::NEG_INFINITY, bad),
    };
    if long.end == effect.len() || bad < 2 {
        return found;
    }
    let mut line = effect.to_vec();
    let share = |at: usize| 1.0 - (at + 1) as f64 / (bad + 1) as f64;
    line[long.clone()]
        .iter_mut()
        .enumerate()
        .for_each(|(at, value)| *value = share(at));
    let fit = paths.explain(&[&line]);
    let size = fit.sizes[0];
    if size > BACK && fit.likelihood > found.0 && usual_of_long(&fit) > 0.25 * size {
        let back = (0..bad)
            .position(|at| size * share(at) < BACK)
            .unwrap_or(bad);
        found = (fit.likelihood, back);
    }
    found
}

impl Returns {
    /// The posterior probability of each number of bad intervals under `prior`, and the log-likelihood of the series.
    fn posterior(&self, prior: &[f64]) -> (Vec<f64>, f64) {
        let joint: Vec<f64> = self
            .likelihoods
            .iter()
            .zip(prior)
            .map(|(likelihood, prior)| likelihood + prior.max(1e-300).ln())
            .collect();
        let most = joint.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let each: Vec<f64> = joint.iter().map(|one| (one - most).exp()).collect();
        let all: f64 = each.iter().sum();
        (each.iter().map(|one| one / all).collect(), most + all.ln())
    }

    /// The prior of each number of bad intervals; between none and all, each order of magnitude is equally likely.
    fn prior(&self) -> Vec<f64> {
        let last = self.likelihoods.len() - 1;
        let all: f64 = (1..last).map(|bad| (bad as f64).recip()).sum();
        let between = (1.0 - AT_ONCE - FOREVER) / all.max(1.0);
        (0..=last)
            .map(|bad| match bad {
                0 => AT_ONCE,
                bad if bad == last => FOREVER,
                bad => between / bad as f64,
            })
            .collect()
    }
}

/// When each run recovered. Each plausible noise model is weighted by how well it explains all runs. Runs of a
/// point tend to recover alike, so a run's prior is half the general one and half what the other runs show (an
/// empirical prior).
pub(super) fn together(runs: &[&RunSeries], evidence: &Evidence) -> Vec<Return> {
    let clamped: Vec<RunSeries> = runs.iter().map(|run| clamped(run, evidence)).collect();
    let series: Vec<&RunSeries> = clamped.iter().collect();
    let noises = noises(&series, evidence);
    let each: Vec<Vec<Returns>> = noises
        .iter()
        .map(|noise| {
            series
                .iter()
                .map(|run| returns(run, evidence, *noise))
                .collect()
        })
        .collect();
    let supports: Vec<f64> = each
        .iter()
        .map(|runs| runs.iter().map(|run| run.posterior(&run.prior()).1).sum())
        .collect();
    let most = supports.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mixed = |priors: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let mut all: Vec<Vec<f64>> = priors.iter().map(|prior| vec![0.0; prior.len()]).collect();
        for (runs, support) in each.iter().zip(&supports) {
            let weight = (support - most).exp();
            for ((sum, run), prior) in all.iter_mut().zip(runs).zip(priors) {
                let likely = run.posterior(prior).0;
                sum.iter_mut()
                    .zip(likely)
                    .for_each(|(sum, likely)| *sum += weight * likely);
            }
        }
        let weights: f64 = supports.iter().map(|support| (support - most).exp()).sum();
        all.iter_mut()
            .flatten()
            .for_each(|likely| *likely /= weights);
        all
    };
    let Some(first) = each.first() else {
        return vec![Return::Unclear; runs.len()];
    };
    let mut priors: Vec<Vec<f64>> = first.iter().map(Returns::prior).collect();
    let alone = mixed(&priors);
    for (index, prior) in priors.iter_mut().enumerate() {
        let others: Vec<&Vec<f64>> = alone
            .iter()
            .enumerate()
            .filter(|(other, of)| *other != index && of.len() == prior.len())
            .map(|(_, of)| of)
            .collect();
        if !others.is_empty() {
            for (bad, prior) in prior.iter_mut().enumerate() {
                let theirs = others.iter().map(|of| of[bad]).sum::<f64>() / others.len() as f64;
                *prior = 0.5 * (*prior + theirs);
            }
        }
    }
    let judged = mixed(&priors);
    runs.iter()
        .zip(judged)
        .map(|(run, likely)| match decide(run, &likely) {
            Return::After(bad) if !resembles_usual(run, evidence, run.after + bad) => {
                Return::Unclear
            }
            Return::Never if resembles_usual(run, evidence, run.after) => Return::Unclear,
            said => said,
        })
        .collect()
}

/// Whether plain means confirm that the figure left the effect's level at interval `from`: the mean of all later
/// intervals is nearer to the usual level, or the means just before and after differ by most of the effect. A model can
/// explain away too much, for example by a slope; a recovery that contradicts the means is not reported.
fn resembles_usual(run: &RunSeries, evidence: &Evidence, from: usize) -> bool {
    let end = match evidence.form {
        Form::First(intervals) => (run.begin + intervals).min(run.after),
        Form::Whole | Form::AndNext => run.after,
    };
    let is_nearer = |usual: &[f64]| {
        let mean = |of: Range<usize>| {
            let known: Vec<f64> = of
                .filter(|at| run.known[*at])
                .map(|at| (run.worse[at] - usual[at]) / run.scale(usual[at]))
                .collect();
            known.iter().sum::<f64>() / known.len().max(1) as f64
        };
        let effect = mean(run.begin..end).max(BACK);
        let near = (end - run.begin).div_ceil(4).max(3);
        let before = mean(end.saturating_sub(near).max(run.begin)..end);
        let later = mean(from..(from + near).min(run.len()));
        mean(from..run.len()) < 0.5 * effect || before - later > 0.65 * effect
    };
    match foretold(run, evidence) {
        Some(usual) => is_nearer(&usual),
        None => is_nearer(&vec![0.0; run.len()]),
    }
}

/// What the intervals before the fault predict for those after it, if the usual level changes and the prediction is
/// good enough to judge a recovery: to within a quarter of the effect.
fn foretold(run: &RunSeries, evidence: &Evidence) -> Option<Vec<f64>> {
    let forms = evidence.usual_forms;
    let is_short = run.begin < forms.len() * INTERVALS_PER_FORM;
    if forms.len() < 2 || is_short || run.after == run.len() {
        return None;
    }
    let mut design = design(run, Form::Whole, None);
    design.set(evidence.searched);
    design.weights[run.begin..].fill(0.0);
    let moments = evidence.covariance.moments(&design.rows, &design.weights).0;
    let mut later = [0.0; COLUMNS];
    for row in &design.rows[run.after..] {
        for (sum, value) in later.iter_mut().zip(row) {
            *sum += value / (run.len() - run.after) as f64;
        }
    }
    let error = evidence.deviation * Fit::variance_of(&moments, forms, &later).sqrt();
    if 2.0 * error > 0.25 * evidence.size.max(evidence.whole.0) {
        return None;
    }
    let fit = Fit::of(&moments, forms);
    let rows = design.rows.iter();
    Some(rows.map(|row| fit.explains(row, forms)).collect())
}

fn decide(run: &RunSeries, posterior: &[f64]) -> Return {
    let last = posterior.len() - 1;
    let end_s = run.end_s.last().copied().unwrap_or(0.0);
    let begin_s = |bad: usize| {
        let start = run.start_s.get(run.after + bad).copied().unwrap_or(end_s);
        start.max(run.fault_end_s.unwrap_or(start))
    };
    let holds = |bad: usize| end_s - begin_s(bad) >= HOLD.as_secs_f64() * 0.999;
    if !holds(0) {
        return Return::TooShort {
            begin_s: begin_s(0),
        };
    }
    let back: f64 = (0..last)
        .filter(|bad| holds(*bad))
        .map(|bad| posterior[bad])
        .sum();
    let likeliest = |of: &mut dyn Iterator<Item = usize>| {
        of.max_by(|one, other| posterior[*one].total_cmp(&posterior[*other]))
    };
    if back >= SURE {
        let best = likeliest(&mut (0..last).filter(|bad| holds(*bad)));
        return Return::After(best.expect("some hold"));
    }
    // A recovery in the last moments can't have held for long enough to count. If it is less likely than no recovery
    // at all, the answer is that there was none.
    if posterior[last] >= 0.5 && 1.0 - back >= SURE_NEVER {
        return Return::Never;
    }
    match likeliest(&mut (0..=last)) {
        Some(best) if best < last && !holds(best) => Return::TooShort {
            begin_s: begin_s(best),
        },
        _ => Return::Unclear,
    }
}

/// Length of the first part of the window that the intervals support most as the effect: it may end before the fault
/// does. `None` if the effect lasts as long as the fault.
pub(super) fn extent(runs: &[&RunSeries], evidence: &Evidence) -> Option<usize> {
    let longest = runs.iter().map(|run| run.after - run.begin).min()?;
    if longest < 3 {
        return None;
    }
    let clamped: Vec<RunSeries> = runs.iter().map(|run| clamped(run, evidence)).collect();
    let mut sums = vec![0.0; longest + 1];
    let stride = (longest / TRIED).max(1);
    for run in &clamped {
        let mut design = design(run, Form::Whole, None);
        design.set(evidence.searched);
        let noise = Noise {
            covariance: evidence.covariance,
            forms: &evidence.usual_forms[..1],
        };
        let paths = Paths::of(run, &design, noise);
        let mut effect: Vec<f64> = design.rows.iter().map(|row| row[EFFECT]).collect();
        for long in (1..=run.after - run.begin).rev() {
            if long == longest || long < longest && long.is_multiple_of(stride) {
                sums[long] += paths.explain(&[&effect]).likelihood;
            }
            effect[run.begin + long - 1] = 0.0;
        }
    }
    let tried = (1..longest).filter(|long| long.is_multiple_of(stride));
    let best = tried.max_by(|one, other| sums[*one].total_cmp(&sums[*other]))?;
    // As for recoveries, the prior favours the whole window.
    let enough = 3.0 + (longest as f64).ln() + 0.5 * runs.len() as f64;
    (sums[best] - sums[longest] > enough).then_some(best)
}

/// The values expected in each interval without the fault, derived from the intervals before the fault and those from
/// `from` on, including their correlated errors.
pub(super) fn usual(run: &RunSeries, evidence: &Evidence, from: Option<usize>) -> Vec<f64> {
    let mut design = design(run, Form::Whole, from);
    design.set(evidence.searched);
    design.weights[run.begin..run.after].fill(0.0);
    // Without intervals after the fault, a slope or a wave is a guess.
    let forms: &[usize] = match from {
        Some(_) => evidence.usual_forms,
        None => &[USUAL],
    };
    let fit = Fit::of(
        &evidence.covariance.moments(&design.rows, &design.weights).0,
        forms,
    );
    let rows = design.rows.iter();
    let fitted: Vec<f64> = rows.map(|row| fit.explains(row, forms)).collect();
    with_errors(run, evidence, &design, &fitted)
}

/// The values expected without the fault, if its effect lasts until the end: the intervals during the effect show the
/// course of the usual level, too.
pub(super) fn usual_if_lasting(run: &RunSeries, evidence: &Evidence) -> Vec<f64> {
    if evidence.usual_forms.len() < 2 {
        return usual(run, evidence, None);
    }
    let fitted = usual_after(run, evidence, After::Lasting);
    with_errors(run, evidence, &design(run, Form::Whole, None), &fitted)
}

/// Adds the correlated errors of the intervals outside the fault.
fn with_errors(run: &RunSeries, evidence: &Evidence, design: &Design, fitted: &[f64]) -> Vec<f64> {
    let mut weights = design.weights.clone();
    weights[run.begin..run.after].fill(0.0);
    let errors = run.worse.iter().zip(fitted);
    let errors: Vec<f64> = errors.map(|(worse, fitted)| worse - fitted).collect();
    let smoothed = evidence.covariance.smoothed(&errors, &weights);
    fitted
        .iter()
        .zip(smoothed)
        .map(|(fitted, more)| fitted + more)
        .collect()
}
