//! Models of noise: linear models of a figure's series with autocorrelated errors.
//!
//! The figure of interval t is a usual level, an optional slope, bend, warm-up and wave, an effect of a known form, and an
//! error. The error is a first-order autoregression plus independent noise, which covers white noise, slow wandering and nearly
//! everything between. The same family includes ARMA(1, 1) and, with highly correlated neighbours, the local level
//! model of structural time series (Harvey, Forecasting, structural time series models and the Kalman filter, 1989;
//! Brodersen et al., Inferring causal impact using Bayesian structural time-series models, 2015).
//!
//! Which of these models is right is unknown, and a few intervals can't show it. So none is selected: each is
//! weighted by how well the intervals support it (Schwarz, Estimating the dimension of a model, 1978; Hoeting et al.,
//! Bayesian model averaging, 1999). Uncertainty about the noise thus widens the uncertainty about the effect.
//!
//! The rule: a model covers all runs of a point; the runs share the noise and nothing else.

/// Number of columns: the figure, and the forms that may explain it.
pub(super) const COLUMNS: usize = 10;
/// Column of the figure.
pub(super) const FIGURE: usize = 0;
/// Column of the usual level: always 1.
pub(super) const USUAL: usize = 1;
/// Column of a straight line over the run.
pub(super) const SLOPE: usize = 2;
/// Column of a parabola over the run.
pub(super) const BEND: usize = 8;
/// Column of a level that approaches the usual one exponentially, as caches and pools fill.
pub(super) const WARM_UP: usize = 3;
/// Column of a wave, together with [`COSINE`].
pub(super) const SINE: usize = 4;
/// See [`SINE`].
pub(super) const COSINE: usize = 5;
/// Column of the wave's second harmonic, together with [`COSINE_TWICE`]: waves that rise slowly and fall fast.
pub(super) const SINE_TWICE: usize = 6;
/// See [`SINE_TWICE`].
pub(super) const COSINE_TWICE: usize = 7;
/// Column of the fault's effect while it lasts.
pub(super) const EFFECT: usize = 9;

/// The columns of an interval.
pub(super) type Row = [f64; COLUMNS];
/// Sums of products of whitened columns.
pub(super) type Moments = [Row; COLUMNS];

/// Minimum standard deviation of an interval's error, as a share of the usual level.
pub(super) const DEVIATION_MIN: f64 = 0.004;

/// Sets of forms that explain a series without a fault.
pub(super) const USUAL_FORMS: [&[usize]; 9] = [
    &[USUAL],
    &[USUAL, SLOPE],
    &[USUAL, SLOPE, BEND],
    &[USUAL, WARM_UP],
    &[USUAL, SLOPE, WARM_UP],
    &[USUAL, SINE, COSINE],
    &[USUAL, SLOPE, SINE, COSINE],
    &[USUAL, SINE, COSINE, SINE_TWICE, COSINE_TWICE],
    &[USUAL, SLOPE, SINE, COSINE, SINE_TWICE, COSINE_TWICE],
];

/// Intervals per form that are needed for forms that explain more than a line and a sine, and for a forecast.
pub(super) const INTERVALS_PER_FORM: usize = 6;

/// The sets of forms that are weighted for runs of at least this many known intervals.
fn usual_forms(shortest: usize) -> impl Iterator<Item = &'static [usize]> {
    let few = move |forms: &&[usize]| {
        let is_plain = |form: &usize| [USUAL, SLOPE, SINE, COSINE].contains(form);
        forms.iter().all(is_plain) || forms.len() * INTERVALS_PER_FORM <= shortest
    };
    USUAL_FORMS.into_iter().filter(few)
}

/// Parameters of forms that are found by search: the same for all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Searched {
    /// Frequency of the wave, in radians per interval.
    pub turns: f64,
    /// Logarithm of the factor by which the distance from the warmed-up level shrinks per interval.
    pub decay: f64,
}

/// Covariance of the errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Covariance {
    /// Autocorrelation, from one interval to the next, of the autocorrelated part of the error.
    pub alike: f64,
    /// Share of the error variance that is independent between intervals.
    pub apart: f64,
}

impl Covariance {
    /// The candidates to be weighted.
    pub fn all() -> impl Iterator<Item = Covariance> {
        let white = Covariance {
            alike: 0.0,
            apart: 1.0,
        };
        let alike = [0.3, 0.55, 0.75, 0.88, 0.95, 0.98, 0.995];
        let apart = [0.0, 0.25, 0.7];
        let others = alike
            .into_iter()
            .flat_map(move |alike| apart.map(|apart| Covariance { alike, apart }));
        std::iter::once(white).chain(others)
    }

    /// Transforms rows into independent ones of variance 1, with a Kalman filter over the correlated state. Rows of
    /// weight 0 are skipped; a small weight represents a large independent error. Returns the logarithm of the
    /// determinant.
    pub fn whiten(self, rows: &[Row], weights: &[f64], mut each: impl FnMut(usize, &Row)) -> f64 {
        let whitener = self.whitener(weights);
        let mut state = [0.0; COLUMNS];
        for (at, (row, (scale, gain))) in rows.iter().zip(&whitener.steps).enumerate() {
            if *scale > 0.0 {
                let mut white = [0.0; COLUMNS];
                for column in 0..COLUMNS {
                    let news = row[column] - state[column];
                    white[column] = news * scale;
                    state[column] += gain * news;
                }
                each(at, &white);
            }
            state.iter_mut().for_each(|state| *state *= self.alike);
        }
        whitener.log_det
    }

    /// Prepares the whitening of a run's columns one at a time.
    pub fn whitener(self, weights: &[f64]) -> Whitener {
        let Covariance { alike, apart } = self;
        let (mut variance, mut log_det) = (1.0 - apart, 0.0);
        let mut steps = Vec::with_capacity(weights.len());
        for weight in weights {
            let mut step = (0.0, 0.0);
            if *weight > 0.0 {
                let all = variance + apart / weight;
                step = (all.sqrt().recip(), variance / all);
                log_det += all.ln();
                variance -= variance * step.1;
            }
            steps.push(step);
            variance = alike * alike * variance + (1.0 - alike * alike) * (1.0 - apart);
        }
        Whitener {
            alike,
            steps,
            log_det,
        }
    }

    /// Sums of products of whitened rows, and the logarithm of the determinant.
    pub fn moments(self, rows: &[Row], weights: &[f64]) -> (Moments, f64) {
        let mut sums = [[0.0; COLUMNS]; COLUMNS];
        let log_det = self.whiten(rows, weights, |_, row| {
            for (at, (sums, one)) in sums.iter_mut().zip(row).enumerate() {
                for (sum, other) in sums[at..].iter_mut().zip(&row[at..]) {
                    *sum += one * other;
                }
            }
        });
        let upper = sums;
        for (at, sums) in sums.iter_mut().enumerate() {
            for (sum, other) in sums.iter_mut().zip(&upper).take(at) {
                *sum = other[at];
            }
        }
        (sums, log_det)
    }
}

/// Scale and gain of the filter for each interval; both are 0 for skipped intervals.
pub(super) struct Whitener {
    alike: f64,
    steps: Vec<(f64, f64)>,
    /// Logarithm of the determinant.
    pub log_det: f64,
}

impl Whitener {
    /// Returns the whitened column.
    pub fn column(&self, column: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut state = 0.0;
        column
            .zip(&self.steps)
            .map(|(value, (scale, gain))| {
                let news = value - state;
                state = (state + gain * news) * self.alike;
                news * scale
            })
            .collect()
    }
}

impl Covariance {
    /// Estimates the correlated part of the error in each interval from the known errors (Rauch, Tung and Striebel,
    /// Maximum likelihood estimates of linear dynamic systems, 1965).
    pub fn smoothed(self, errors: &[f64], weights: &[f64]) -> Vec<f64> {
        let Covariance { alike, apart } = self;
        let (mut state, mut variance) = (0.0, 1.0 - apart);
        let mut filtered = Vec::with_capacity(errors.len());
        for (error, weight) in errors.iter().zip(weights) {
            let foretold = variance;
            if *weight > 0.0 && variance > 0.0 {
                let gain = variance / (variance + apart / weight);
                state += gain * (error - state);
                variance -= variance * gain;
            }
            filtered.push((state, variance, foretold));
            state *= alike;
            variance = alike * alike * variance + (1.0 - alike * alike) * (1.0 - apart);
        }
        let mut smoothed: Vec<f64> = filtered.iter().map(|(state, ..)| *state).collect();
        for at in (0..errors.len().saturating_sub(1)).rev() {
            let (state, variance, _) = filtered[at];
            let foretold = filtered[at + 1].2;
            if foretold > 0.0 {
                smoothed[at] += variance * alike / foretold * (smoothed[at + 1] - alike * state);
            }
        }
        smoothed
    }
}

/// A least squares fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// Coefficient of each form; 0 for forms not in the fit.
    pub coefficients: Row,
    /// Variances of the coefficients, as multiples of the error variance; 0 for forms not in the fit.
    pub variances: Row,
    /// Residual sum of squares.
    pub rest: f64,
    /// Number of forms in the fit.
    pub forms: usize,
}

impl Fit {
    /// Explains the figure by these forms. A form that depends linearly on the forms before it is left out.
    pub fn of(moments: &Moments, forms: &[usize]) -> Fit {
        // Only the columns of these forms, then the figure.
        let figure = forms.len();
        let column = |index: usize| forms.get(index).copied().unwrap_or(FIGURE);
        let mut swept = [[0.0; COLUMNS]; COLUMNS];
        for (at, row) in swept.iter_mut().enumerate().take(figure + 1) {
            for (other, value) in row.iter_mut().enumerate().take(figure + 1) {
                *value = moments[column(at)][column(other)];
            }
        }
        let mut fit = Fit {
            coefficients: [0.0; COLUMNS],
            variances: [0.0; COLUMNS],
            rest: 0.0,
            forms: 0,
        };
        let mut used = [false; COLUMNS];
        for (at, form) in forms.iter().enumerate() {
            let pivot = swept[at][at];
            if pivot <= 1e-9 * moments[*form][*form] || pivot <= 1e-12 {
                continue;
            }
            sweep(&mut swept, figure + 1, at);
            used[at] = true;
            fit.forms += 1;
        }
        for (at, form) in forms.iter().enumerate() {
            if used[at] {
                fit.coefficients[*form] = swept[at][figure];
                fit.variances[*form] = swept[at][at];
            }
        }
        fit.rest = swept[figure][figure].max(0.0);
        fit
    }

    /// The variance of the prediction of a fit of these forms for a row, as a multiple of the error variance.
    pub fn variance_of(moments: &Moments, forms: &[usize], row: &Row) -> f64 {
        let mut swept = *moments;
        let mut used: Vec<usize> = Vec::with_capacity(forms.len());
        for &form in forms {
            if swept[form][form] > 1e-9 * moments[form][form] {
                sweep(&mut swept, COLUMNS, form);
                used.push(form);
            } else if row[form] != 0.0 {
                return f64::INFINITY;
            }
        }
        let pairs = used
            .iter()
            .flat_map(|one| used.iter().map(move |other| (*one, *other)));
        pairs
            .map(|(one, other)| row[one] * swept[one][other] * row[other])
            .sum()
    }

    /// The part of an interval's figure explained by these forms.
    pub fn explains(&self, row: &Row, forms: &[usize]) -> f64 {
        forms
            .iter()
            .map(|form| row[*form] * self.coefficients[*form])
            .sum()
    }
}

/// The sweep operator on the first `size` rows and columns (Goodnight, A tutorial on the sweep operator, 1979).
fn sweep(matrix: &mut Moments, size: usize, at: usize) {
    let pivot = matrix[at][at].recip();
    let mut row = matrix[at];
    row[..size].iter_mut().for_each(|value| *value *= pivot);
    for (index, other) in matrix.iter_mut().enumerate().take(size) {
        if index != at {
            let factor = other[at];
            for (value, part) in other.iter_mut().zip(row).take(size) {
                *value -= factor * part;
            }
            other[at] = -factor * pivot;
        }
    }
    matrix[at] = row;
    matrix[at][at] = pivot;
}

/// Rows of a run with their weights.
#[derive(Clone, Debug)]
pub(super) struct Design {
    pub rows: Vec<Row>,
    pub weights: Vec<f64>,
}

/// One model, fitted to all runs.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub covariance: Covariance,
    pub forms: &'static [usize],
    /// Support from the intervals; the weights of all models add up to 1.
    pub weight: f64,
    pub fits: Vec<Fit>,
    /// Variance of the errors.
    pub variance: f64,
    /// Degrees of freedom: intervals minus those used up by the fits.
    pub freedom: f64,
}

/// All models of these runs, each including the effect.
pub(super) fn models(runs: &[Design], covariances: impl Iterator<Item = Covariance>) -> Vec<Model> {
    let known = runs
        .iter()
        .map(|run| run.weights.iter().filter(|weight| **weight > 0.0).count());
    let shortest = known.clone().min().unwrap_or(0);
    let count = known.sum::<usize>() as f64;
    // Each run has its own coefficients, so only its own intervals provide information about them (Pauler, The
    // Schwarz criterion and related methods for normal linear models, 1998).
    let per_run = count / runs.len() as f64;
    let mut all = Vec::new();
    for covariance in covariances {
        let moments: Vec<(Moments, f64)> = runs
            .iter()
            .map(|run| covariance.moments(&run.rows, &run.weights))
            .collect();
        let log_det: f64 = moments.iter().map(|(_, log_det)| log_det).sum();
        for forms in usual_forms(shortest) {
            let mut with_effect = forms.to_vec();
            with_effect.push(EFFECT);
            let fits: Vec<Fit> = moments
                .iter()
                .map(|(moments, _)| Fit::of(moments, &with_effect))
                .collect();
            let rest: f64 = fits.iter().map(|fit| fit.rest).sum();
            let used: f64 = fits.iter().map(|fit| fit.forms as f64).sum();
            let freedom = count - used;
            if freedom < 1.0 {
                continue;
            }
            let least = DEVIATION_MIN.powi(2);
            // The wave's period and the warm-up's decay were searched for in all runs, which counts as more parameters.
            let searched = match forms.contains(&SINE) || forms.contains(&WARM_UP) {
                true => 2.0,
                false => 0.0,
            };
            let log_likelihood = -0.5 * count * (rest / count + least).ln()
                - 0.5 * log_det
                - 0.5 * (used * per_run.ln() + searched * count.ln());
            all.push(Model {
                covariance,
                forms,
                weight: log_likelihood,
                fits,
                variance: rest / freedom + least,
                freedom,
            });
        }
    }
    let most = all
        .iter()
        .map(|model| model.weight)
        .fold(f64::NEG_INFINITY, f64::max);
    all.iter_mut()
        .for_each(|model| model.weight = (model.weight - most).exp());
    let sum: f64 = all.iter().map(|model| model.weight).sum();
    all.iter_mut().for_each(|model| model.weight /= sum);
    all
}

/// Adds the wave and the warm-up that fit all runs best, and returns their parameters.
pub(super) fn search(runs: &mut [Design], longest: usize) -> Searched {
    let found = Searched {
        turns: best_wave(runs, longest),
        decay: best_decay(runs, longest),
    };
    runs.iter_mut().for_each(|run| run.set(found));
    found
}

/// The decay of the warm-up that fits all runs best: a time constant between half an interval and a quarter of the
/// run. The first twentieth of a run doesn't count, because a ramp-up from nothing is often not exponential at first.
fn best_decay(runs: &[Design], longest: usize) -> f64 {
    let first = longest.div_ceil(20);
    let rest = |decay: f64| -> f64 { runs.iter().map(|run| warm_up_rest(run, first, decay)).sum() };
    let slowest = 4.0 / longest as f64;
    let (mut least, mut best) = (f64::INFINITY, slowest);
    let mut take = |decay: f64, best: &mut f64| {
        let rest = rest(decay);
        if rest < least {
            (least, *best) = (rest, decay);
        }
    };
    let mut decay = slowest;
    while decay < 2.0 {
        take(decay, &mut best);
        decay *= std::f64::consts::SQRT_2;
    }
    // Refine between the steps.
    for halvings in 2..8 {
        let step = 2f64.powf(0.5f64.powi(halvings));
        for decay in [best * step, best / step] {
            take(decay, &mut best);
        }
    }
    best
}

/// The sum of squares that a level, a warm-up of this decay and an effect leave unexplained from interval `first` on.
fn warm_up_rest(run: &Design, first: usize, decay: f64) -> f64 {
    let forms = [USUAL, WARM_UP, EFFECT];
    let mut sums = [[0.0; COLUMNS]; COLUMNS];
    let (factor, mut warm) = ((-decay).exp(), 1.0);
    for (row, weight) in run.rows.iter().zip(&run.weights).skip(first) {
        let columns = [
            (FIGURE, row[FIGURE]),
            (USUAL, 1.0),
            (WARM_UP, warm),
            (EFFECT, row[EFFECT]),
        ];
        for (one, value) in columns {
            for (other, of) in columns {
                sums[one][other] += weight * value * of;
            }
        }
        warm *= factor;
    }
    Fit::of(&sums, &forms).rest
}

/// The frequency in radians per interval of the wave that fits all runs best, with a phase and an amplitude for each.
fn best_wave(runs: &[Design], longest: usize) -> f64 {
    // The wave is fitted to what the usual level and the effect leave unexplained.
    let rests: Vec<Vec<f64>> = runs.iter().map(|run| rest(run, &[USUAL, EFFECT])).collect();
    let power = |turns: f64| -> f64 {
        runs.iter()
            .zip(&rests)
            .map(|(run, rest)| wave_power(rest, &run.weights, turns))
            .sum()
    };
    // The periodogram at four times its natural resolution, for periods of at least two and a half intervals that fit
    // into the series at least one and a half times.
    let size = (4 * longest).next_power_of_two();
    let mut powers = vec![0.0; size / 2];
    for (run, rest) in runs.iter().zip(&rests) {
        let known: Vec<f64> = rest
            .iter()
            .zip(&run.weights)
            .map(|(rest, weight)| rest * weight)
            .collect();
        for (sum, power) in powers.iter_mut().zip(periodogram(&known, size)) {
            *sum += power;
        }
    }
    let step = std::f64::consts::TAU / size as f64;
    let (first, last) = (
        (1.5 * size as f64 / longest as f64) as usize,
        (0.4 * size as f64) as usize,
    );
    let peak = (first..last.max(first + 1)).max_by(|one, other| {
        let at = |index: &usize| powers.get(*index).copied().unwrap_or(0.0);
        at(one).total_cmp(&at(other))
    });
    let mut best = step * peak.unwrap_or(first) as f64;
    let mut most = power(best);
    // Refine between the steps.
    let mut width = step / 2.0;
    for _ in 0..4 {
        for at in [best - width, best + width] {
            let power = power(at);
            if power > most {
                (best, most) = (at, power);
            }
        }
        width /= 2.0;
    }
    best
}

impl Design {
    /// Sets the columns of the forms that were searched for.
    pub fn set(&mut self, searched: Searched) {
        let factor = (-searched.decay).exp();
        let mut warm = 1.0;
        for (at, row) in self.rows.iter_mut().enumerate() {
            let (sine, cosine) = (searched.turns * at as f64).sin_cos();
            (row[SINE], row[COSINE]) = (sine, cosine);
            (row[SINE_TWICE], row[COSINE_TWICE]) = (2.0 * sine * cosine, 1.0 - 2.0 * sine * sine);
            row[WARM_UP] = warm;
            warm *= factor;
        }
    }
}

/// The residuals of the figure after these forms.
fn rest(run: &Design, forms: &[usize]) -> Vec<f64> {
    let white = Covariance {
        alike: 0.0,
        apart: 1.0,
    };
    let fit = Fit::of(&white.moments(&run.rows, &run.weights).0, forms);
    run.rows
        .iter()
        .map(|row| row[FIGURE] - fit.explains(row, forms))
        .collect()
}

/// The sum of squares that a wave of this frequency explains (Scargle, 1982: the sine and cosine parts are made
/// orthogonal, which matters if the series isn't a whole number of periods).
fn wave_power(rest: &[f64], weights: &[f64], turns: f64) -> f64 {
    let (step_sine, step_cosine) = turns.sin_cos();
    let (mut sine, mut cosine) = (0.0, 1.0);
    let [mut ss, mut cc, mut sc, mut sy, mut cy] = [0.0; 5];
    for (value, weight) in rest.iter().zip(weights) {
        ss += weight * sine * sine;
        cc += weight * cosine * cosine;
        sc += weight * sine * cosine;
        sy += weight * sine * value;
        cy += weight * cosine * value;
        (sine, cosine) = (
            sine * step_cosine + cosine * step_sine,
            cosine * step_cosine - sine * step_sine,
        );
    }
    let det = ss * cc - sc * sc;
    if det < 1e-6 * (ss + cc).powi(2) {
        return 0.0;
    }
    (sy * sy * cc - 2.0 * sy * cy * sc + cy * cy * ss) / det
}

/// First half of the power spectrum of the values, padded with zeros (Cooley and Tukey, 1965).
fn periodogram(values: &[f64], size: usize) -> Vec<f64> {
    assert!(size.is_power_of_two() && values.len() <= size);
    let bits = size.trailing_zeros();
    let mut parts = vec![(0.0, 0.0); size];
    for (at, value) in values.iter().enumerate() {
        parts[at.reverse_bits() >> (usize::BITS - bits)] = (*value, 0.0);
    }
    let turns: Vec<(f64, f64)> = (0..size / 2)
        .map(|at| (-std::f64::consts::TAU * at as f64 / size as f64).sin_cos())
        .collect();
    let mut half = 1;
    while half < size {
        for begin in (0..size).step_by(2 * half) {
            for at in 0..half {
                let (sine, cosine) = turns[at * (size / 2 / half)];
                let (even, odd) = (parts[begin + at], parts[begin + at + half]);
                let turned = (odd.0 * cosine - odd.1 * sine, odd.0 * sine + odd.1 * cosine);
                parts[begin + at] = (even.0 + turned.0, even.1 + turned.1);
                parts[begin + at + half] = (even.0 - turned.0, even.1 - turned.1);
            }
        }
        half *= 2;
    }
    parts[..size / 2]
        .iter()
        .map(|(real, imaginary)| real * real + imaginary * imaginary)
        .collect()
}
