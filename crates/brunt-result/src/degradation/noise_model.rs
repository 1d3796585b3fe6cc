//! What noise can do: linear models of a figure's series whose errors resemble their neighbours.
//!
//! The figure of interval t is a usual level, perhaps a slope and a wave, an effect of a known form, and an error. The
//! error is a first-order autoregression plus independent noise, which covers white noise, slow wandering and nearly
//! everything between; the same family is an ARMA(1, 1) and, with neighbours that are nearly alike, the local level
//! model of structural time series (Harvey, Forecasting, structural time series models and the Kalman filter, 1989;
//! Brodersen et al., Inferring causal impact using Bayesian structural time-series models, 2015).
//!
//! Which of these models is right isn't known, and few intervals can't tell. So none is chosen: each weighs as much as
//! the intervals support it (Schwarz, Estimating the dimension of a model, 1978; Hoeting et al., Bayesian model
//! averaging, 1999). Uncertainty about the noise thereby widens what can be said about the effect.
//!
//! The rule: a model sees every run of a point; runs share the noise, and nothing else.

/// The figure, and the forms that may explain it.
pub(super) const COLUMNS: usize = 6;
/// The figure.
pub(super) const FIGURE: usize = 0;
/// 1.
pub(super) const USUAL: usize = 1;
/// A straight line over the run.
pub(super) const SLOPE: usize = 2;
/// A wave, with [`COSINE`].
pub(super) const SINE: usize = 3;
/// See [`SINE`].
pub(super) const COSINE: usize = 4;
/// What the fault does while it is there.
pub(super) const EFFECT: usize = 5;

/// The columns of an interval.
pub(super) type Row = [f64; COLUMNS];
/// Sums of products of columns, whitened.
pub(super) type Moments = [Row; COLUMNS];

/// Deviation of an interval's error that is always possible, as a share of the usual level.
pub(super) const DEVIATION_MIN: f64 = 0.004;

/// Forms that explain a series without a fault.
pub(super) const USUAL_FORMS: [&[usize]; 4] = [
    &[USUAL],
    &[USUAL, SLOPE],
    &[USUAL, SINE, COSINE],
    &[USUAL, SLOPE, SINE, COSINE],
];

/// How errors resemble each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Covariance {
    /// Correlation of neighbours, of the part that is correlated.
    pub alike: f64,
    /// Share of the variance that is independent.
    pub apart: f64,
}

impl Covariance {
    /// Those that are weighed.
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

    /// Turns rows into independent ones of variance 1, by the Kalman filter of the state that is correlated; those
    /// of weight 0 are passed over, and a small weight stands for a large independent error. Gives the logarithm of the
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

    /// How columns of a run are whitened one by one.
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
            for (sums, one) in sums.iter_mut().zip(row) {
                for (sum, other) in sums.iter_mut().zip(row) {
                    *sum += one * other;
                }
            }
        });
        (sums, log_det)
    }
}

/// Scale and gain of the filter in each interval; both are 0 of one that is passed over.
pub(super) struct Whitener {
    alike: f64,
    steps: Vec<(f64, f64)>,
    /// Logarithm of the determinant.
    pub log_det: f64,
}

impl Whitener {
    /// A column as its independent news.
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
    /// What the correlated part of errors was in each interval, from those that are known (Rauch, Tung and Striebel,
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
    /// Of each form; 0 of those that are not in it.
    pub coefficients: Row,
    /// The coefficients' variances, as a multiple of the errors' variance; 0 of those that are not in it.
    pub variances: Row,
    /// Sum of squares that is not explained.
    pub rest: f64,
    /// Forms in it.
    pub forms: usize,
}

impl Fit {
    /// Explains the figure by these forms; what the others before it explain already is left out.
    pub fn of(moments: &Moments, forms: &[usize]) -> Fit {
        let mut swept = *moments;
        let mut fit = Fit {
            coefficients: [0.0; COLUMNS],
            variances: [0.0; COLUMNS],
            rest: 0.0,
            forms: 0,
        };
        let mut used = [false; COLUMNS];
        for &form in forms {
            let pivot = swept[form][form];
            if pivot <= 1e-9 * moments[form][form] || pivot <= 1e-12 {
                continue;
            }
            sweep(&mut swept, form);
            used[form] = true;
            fit.forms += 1;
        }
        for (form, used) in used.iter().enumerate() {
            if *used {
                fit.coefficients[form] = swept[form][FIGURE];
                fit.variances[form] = swept[form][form];
            }
        }
        fit.rest = swept[FIGURE][FIGURE].max(0.0);
        fit
    }

    /// What it says of an interval's figure by these of its forms.
    pub fn explains(&self, row: &Row, forms: &[usize]) -> f64 {
        forms
            .iter()
            .map(|form| row[*form] * self.coefficients[*form])
            .sum()
    }
}

/// The sweep operator (Goodnight, A tutorial on the sweep operator, 1979).
fn sweep(matrix: &mut Moments, at: usize) {
    let pivot = matrix[at][at].recip();
    let row = matrix[at].map(|value| value * pivot);
    for (index, other) in matrix.iter_mut().enumerate() {
        if index != at {
            let factor = other[at];
            for (value, part) in other.iter_mut().zip(row) {
                *value -= factor * part;
            }
            other[at] = -factor * pivot;
        }
    }
    matrix[at] = row;
    matrix[at][at] = pivot;
}

/// Rows of a run and their weights.
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
    /// How much the intervals support it; over all models 1.
    pub weight: f64,
    pub fits: Vec<Fit>,
    /// Variance of errors.
    pub variance: f64,
    /// Intervals beyond those that the fits used up.
    pub freedom: f64,
}

/// All models of these runs, with the effect in each.
pub(super) fn models(runs: &[Design], covariances: impl Iterator<Item = Covariance>) -> Vec<Model> {
    let count: f64 = runs
        .iter()
        .map(|run| run.weights.iter().filter(|weight| **weight > 0.0).count() as f64)
        .sum();
    let mut all = Vec::new();
    for covariance in covariances {
        let moments: Vec<(Moments, f64)> = runs
            .iter()
            .map(|run| covariance.moments(&run.rows, &run.weights))
            .collect();
        let log_det: f64 = moments.iter().map(|(_, log_det)| log_det).sum();
        for forms in USUAL_FORMS {
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
            // The wave's period was searched for: one more that was fitted.
            let searched = if forms.contains(&SINE) { 2.0 } else { 0.0 };
            let log_likelihood = -0.5 * count * (rest / count + least).ln()
                - 0.5 * log_det
                - 0.5 * (used + searched) * count.ln();
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

/// Adds the wave that the runs share best, and gives its radians an interval: one period, a phase and a height for each
/// run.
pub(super) fn add_wave(runs: &mut [Design], longest: usize) -> f64 {
    // The usual level, the slope and the effect are no part of a wave.
    let rests: Vec<Vec<f64>> = runs.iter().map(|run| rest(run, &[USUAL, EFFECT])).collect();
    let power = |turns: f64| -> f64 {
        runs.iter()
            .zip(&rests)
            .map(|(run, rest)| wave_power(rest, &run.weights, turns))
            .sum()
    };
    // The periodogram at four times its own resolution, of periods of at least two and a half intervals that fit at
    // least one and a half times.
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
    // Between the steps.
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
    runs.iter_mut().for_each(|run| run.set_wave(best));
    best
}

impl Design {
    /// Makes the wave one of so many radians an interval.
    pub fn set_wave(&mut self, turns: f64) {
        for (at, row) in self.rows.iter_mut().enumerate() {
            (row[SINE], row[COSINE]) = (turns * at as f64).sin_cos();
        }
    }
}

/// What these forms leave of the figure.
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

/// The sum of squares that a wave of this frequency explains (Scargle, 1982: with the two parts made orthogonal, which
/// counts where whole periods do not fit).
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

/// The squares of the Fourier transform's first half, of values and zeros after them: Cooley and Tukey's (1965).
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
