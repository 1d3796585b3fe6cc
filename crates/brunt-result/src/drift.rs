//! Detects drift: whether consecutive runs are correlated. If they are, confidence intervals, which assume independent
//! runs, are too narrow. Used by the terminal's table and the report page.
//!
//! The rule: it reports only what exceeds chance, by a distribution-free test. A drift slower than the experiment
//! cannot be detected from within it.

use brunt_core::random::Random;

use crate::summary::Summary;

/// Minimum number of complete runs.
const RUNS_MIN: usize = 12;
/// Permutations drawn for the test.
const PERMUTATIONS: usize = 999;
/// Probability of reporting drift for independent runs.
pub const DRIFT_ALPHA: f64 = 0.05;

/// Correlation of the rates of consecutive runs, each relative to the mean of its own point; `None` if within chance.
pub fn drift(summary: &Summary) -> Option<f64> {
    // Concurrent jobs are correlated because they run together, so only the point that combines them is used.
    let points: Vec<Vec<(u32, f64)>> = summary
        .points
        .iter()
        .filter(|point| point.part_of.is_none())
        .map(|point| {
            let complete = point
                .runs
                .iter()
                .filter(|run| run.is_complete() && run.requests_per_second > 0.0);
            complete
                .map(|run| (run.order, run.requests_per_second.ln()))
                .collect()
        })
        .collect();
    correlation(&points)
}

/// Correlation of consecutive runs, from (order, figure) of the runs of each point.
fn correlation(points: &[Vec<(u32, f64)>]) -> Option<f64> {
    // (order, point, figure minus the point's mean)
    let mut runs: Vec<(u32, usize, f64)> = Vec::new();
    for (index, point) in points
        .iter()
        .enumerate()
        .filter(|(_, point)| point.len() > 1)
    {
        let mean = point.iter().map(|(_, figure)| figure).sum::<f64>() / point.len() as f64;
        runs.extend(
            point
                .iter()
                .map(|(order, figure)| (*order, index, figure - mean)),
        );
    }
    if runs.len() < RUNS_MIN {
        return None;
    }
    runs.sort_unstable_by_key(|(order, ..)| *order);
    let mut left: Vec<f64> = runs.iter().map(|(_, _, left)| *left).collect();
    let places: Vec<Vec<usize>> = (0..points.len())
        .map(|point| {
            (0..runs.len())
                .filter(|place| runs[*place].1 == point)
                .collect()
        })
        .collect();
    let alike = |left: &[f64]| left.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
    let (seen, all) = (
        alike(&left),
        left.iter().map(|left| left * left).sum::<f64>(),
    );
    if all <= 0.0 {
        return None;
    }
    let mut random = Random::new(PERMUTATIONS as u64);
    let mut as_far = 1usize;
    for _ in 0..PERMUTATIONS {
        // Permute the runs within each point, because points may differ in noise.
        for places in &places {
            for index in (1..places.len()).rev() {
                left.swap(
                    places[index],
                    places[random.below(index as u64 + 1) as usize],
                );
            }
        }
        as_far += usize::from(alike(&left) >= seen);
    }
    let beyond_chance = (as_far as f64) < DRIFT_ALPHA * (PERMUTATIONS + 1) as f64;
    beyond_chance.then_some(seen / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of simulated experiments in which drift is reported, with this many rounds of three points and this
    /// correlation of the noise of consecutive runs.
    fn said(rounds: u32, alike: f64) -> f64 {
        const EXPERIMENTS: u64 = 200;
        let found = (0..EXPERIMENTS).filter(|seed| {
            let mut random = Random::for_part(5, *seed);
            let (mut points, mut last) = (vec![Vec::new(); 3], random.normal());
            for order in 0..rounds * 3 {
                last = alike * last + (1.0 - alike * alike).sqrt() * random.normal();
                let point = (order % 3) as usize;
                points[point].push((order, 5.0 * f64::from(order % 3) + 0.1 * last));
            }
            correlation(&points).is_some()
        });
        found.count() as f64 / EXPERIMENTS as f64
    }

    #[test]
    fn drift_is_seen_and_chance_is_not() {
        for (rounds, alike, range) in [
            (4, 0.0, 0.0..0.09),
            (10, 0.0, 0.0..0.09),
            (10, 0.7, 0.9..1.01),
            (5, 0.8, 0.5..1.01),
        ] {
            let said = said(rounds, alike);
            println!(
                "{rounds} rounds of 3 points, correlation of consecutive runs {alike}: {:.1} %",
                said * 100.0
            );
            assert!(range.contains(&said), "{rounds} rounds, {alike}: {said}");
        }
    }

    #[test]
    fn few_runs_show_no_drift() {
        assert_eq!(
            correlation(&[(0..8).map(|order| (order, f64::from(order))).collect()]),
            None
        );
        assert!(
            correlation(&[(0..16).map(|order| (order, f64::from(order))).collect()]) > Some(0.5)
        );
        assert_eq!(
            correlation(&[(0..16).map(|order| (order, 1.0)).collect()]),
            None
        );
    }
}
