//! A ratio of two means over clients and rounds: every client has a figure in every round, on both sides. Used for the
//! robustness indexes ([`crate::indexes`]).
//!
//! The rule: clients and rounds are resampled as a whole, and identically on both sides, because a client's place in
//! the network and a round's time of day affect both.

use brunt_core::random::Random;

use super::{Ratio, student_quantile};

/// Number of resamples per direction: only their variance is used, which needs fewer resamples than percentiles do.
const CROSSED_RESAMPLES: usize = 2_000;

/// The mean of all of `b` over the mean of all of `a`, with a 95 % interval on its logarithm. Rows are clients,
/// columns are rounds.
///
/// Clients and rounds are resampled with replacement, each separately. A bootstrap's variance is too small by a
/// factor of (n - 1) / n, which is corrected for each; their sum is the variance of the ratio's logarithm, with
/// degrees of freedom by Welch and Satterthwaite (Owen, The pigeonhole bootstrap, 2007; Hesterberg, What teachers
/// should know about the bootstrap, 2015). Noise that is due to neither clients nor rounds is contained in both
/// variances. With one client, the interval is over rounds alone.
///
/// `None` with fewer than two rounds, or if a resampled mean may be zero.
pub fn crossed_ratio(a: &[Vec<f64>], b: &[Vec<f64>], seed: u64) -> Option<Ratio> {
    let rounds = a.first()?.len();
    assert!(
        a.len() == b.len() && a.iter().chain(b).all(|row| row.len() == rounds),
        "clients and rounds are crossed"
    );
    if rounds < 2 {
        return None;
    }
    let by_client = |rows: &[Vec<f64>]| {
        rows.iter()
            .map(|row| row.iter().sum())
            .collect::<Vec<f64>>()
    };
    let by_round = |rows: &[Vec<f64>]| {
        (0..rounds)
            .map(|round| rows.iter().map(|row| row[round]).sum())
            .collect::<Vec<f64>>()
    };
    let (clients_a, clients_b) = (by_client(a), by_client(b));
    let log = (clients_b.iter().sum::<f64>() / clients_a.iter().sum::<f64>()).ln();
    let mut random = Random::new(seed);
    let of_rounds = resampled_variance(&by_round(a), &by_round(b), &mut random)?;
    let of_clients = match a.len() {
        1 => 0.0,
        _ => resampled_variance(&clients_a, &clients_b, &mut random)?,
    };
    let variance = of_rounds + of_clients;
    let ratio = log.exp();
    if variance <= 0.0 {
        return Some(Ratio {
            ratio,
            low: ratio,
            high: ratio,
        });
    }
    let part = |variance: f64, count: usize| variance.powi(2) / (count as f64 - 1.0).max(1.0);
    let freedom = variance.powi(2) / (part(of_rounds, rounds) + part(of_clients, a.len()));
    let half = student_quantile(0.975, freedom) * variance.sqrt();
    Some(Ratio {
        ratio,
        low: (log - half).exp(),
        high: (log + half).exp(),
    })
}

/// The variance of the logarithm of the ratio of sums, resampled in pairs; `None` if the logarithm of a resample is
/// undefined.
fn resampled_variance(a: &[f64], b: &[f64], random: &mut Random) -> Option<f64> {
    let count = a.len();
    let mut logs = Vec::with_capacity(CROSSED_RESAMPLES);
    for _ in 0..CROSSED_RESAMPLES {
        let (mut sum_a, mut sum_b) = (0.0, 0.0);
        for _ in 0..count {
            let drawn = random.below(count as u64) as usize;
            sum_a += a[drawn];
            sum_b += b[drawn];
        }
        logs.push((sum_b / sum_a).ln());
    }
    if logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / CROSSED_RESAMPLES as f64;
    let variance =
        logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / CROSSED_RESAMPLES as f64;
    Some(variance * count as f64 / (count as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_means() {
        let rows = |value: f64, clients: usize, rounds: usize| vec![vec![value; rounds]; clients];
        let exact = crossed_ratio(&rows(8.0, 3, 4), &rows(2.0, 3, 4), 1).unwrap();
        assert!(
            (exact.ratio - 0.25).abs() < 1e-12 && exact.high - exact.low < 1e-12,
            "{exact:?}"
        );
        // The ratio of means, (1 + 3) / (4 + 4), not the mean of ratios.
        let a = vec![vec![4.0, 4.0], vec![4.0, 4.0]];
        let b = vec![vec![1.0, 1.0], vec![3.0, 3.0]];
        let apart = crossed_ratio(&a, &b, 1).unwrap();
        assert!(
            (apart.ratio - 0.5).abs() < 1e-12 && apart.low < 0.5 && apart.high > 0.5,
            "{apart:?}"
        );
        // The same clients and rounds are on both sides: differences that the sides share are not noise.
        let b: Vec<Vec<f64>> = vec![vec![10.0, 20.0], vec![30.0, 60.0]];
        let a: Vec<Vec<f64>> = b
            .iter()
            .map(|row| row.iter().map(|value| value * 2.0).collect())
            .collect();
        let shared = crossed_ratio(&a, &b, 1).unwrap();
        assert!((shared.high - shared.low).abs() < 1e-9, "{shared:?}");
    }

    #[test]
    fn no_interval_without_rounds_or_figures() {
        assert_eq!(
            crossed_ratio(&[vec![1.0], vec![1.0]], &[vec![1.0], vec![2.0]], 1),
            None
        );
        assert_eq!(crossed_ratio(&[], &[], 1), None);
        assert_eq!(crossed_ratio(&[vec![0.0, 0.0]], &[vec![1.0, 1.0]], 1), None);
        assert_eq!(crossed_ratio(&[vec![1.0, 1.0]], &[vec![0.0, 0.0]], 1), None);
    }

    /// Intervals cover the truth about as often as stated: with clients that lose different shares, rounds that are
    /// slow on both sides, and noise in every run.
    #[test]
    fn intervals_hold_the_truth() {
        const EXPERIMENTS: u64 = 200;
        let held = |clients: usize, rounds: usize, by_client: f64, noise: f64| {
            let truth = 0.5 * (by_client * by_client / 2.0).exp();
            let held = (0..EXPERIMENTS).filter(|seed| {
                let mut random = Random::for_part(7, *seed);
                let slow: Vec<f64> = (0..rounds).map(|_| 0.1 * random.normal()).collect();
                let (mut a, mut b) = (Vec::new(), Vec::new());
                for _ in 0..clients {
                    let loss = by_client * random.normal();
                    let mut row = |level: f64| -> Vec<f64> {
                        slow.iter()
                            .map(|slow| (level + slow + noise * random.normal()).exp())
                            .collect()
                    };
                    a.push(row(0.0));
                    b.push(row(0.5f64.ln() + loss));
                }
                let found = crossed_ratio(&a, &b, *seed).unwrap();
                (found.low..=found.high).contains(&truth)
            });
            held.count() as f64 / EXPERIMENTS as f64
        };
        for (clients, rounds, by_client, noise) in [
            (1, 4, 0.0, 0.05),
            (4, 3, 0.2, 0.05),
            (4, 4, 0.0, 0.1),
            (8, 4, 0.1, 0.05),
            (10, 10, 0.2, 0.1),
        ] {
            let held = held(clients, rounds, by_client, noise);
            println!(
                "{clients} clients, {rounds} rounds, {by_client}, {noise}: {:.1} %",
                held * 100.0
            );
            assert!(
                (0.90..=1.0).contains(&held),
                "{clients} clients, {rounds} rounds: {held}"
            );
        }
    }
}
