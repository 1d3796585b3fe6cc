//! How soon does `brunt history` detect a change, and how often does it report a change that does not exist?
//!
//!     cargo run --release -p brunt-result --example changes
//!
//! Synthetic series with known truth: normal noise, and in some of the unchanged series one outlier, or one result in
//! ten that is slower by 30 %, as on a shared machine. The last line evaluates a series after each of 100 results, as
//! a CI job does.

use brunt_core::random::Random;
use brunt_result::statistics::change_points;

/// Adds outliers or noise to a series without changing its level.
type Spoil = fn(&mut Random, &mut [f64]);

const SERIES: usize = 400;
const BEFORE: usize = 20;

/// A series of noise around 1, with a shift at [`BEFORE`].
fn series(random: &mut Random, noise: f64, length: usize, shift: f64) -> Vec<f64> {
    (0..length)
        .map(|at| {
            let level = if at < BEFORE { 1.0 } else { 1.0 + shift };
            level * (noise * random.normal()).exp()
        })
        .collect()
}

/// Shares of series in which the shift was detected, and in which it was located within one result.
fn seen(noise: f64, shift: f64, after: usize) -> (f64, f64) {
    let mut random = Random::new(1);
    let (mut seen, mut exact) = (0, 0);
    for _ in 0..SERIES {
        let series = series(&mut random, noise, BEFORE + after, shift);
        let nearest = change_points(&series)
            .iter()
            .map(|change| change.index.abs_diff(BEFORE))
            .min();
        seen += usize::from(nearest.is_some_and(|away| away <= 5));
        exact += usize::from(nearest.is_some_and(|away| away <= 1));
    }
    let share = |count: usize| count as f64 / SERIES as f64;
    (share(seen), share(exact))
}

fn main() {
    println!("shift of 5 % after {BEFORE} results: detected (within one result of its place), %");
    for noise in [0.01, 0.0134, 0.02, 0.03] {
        print!("noise {:.1} %:", noise * 100.0);
        for after in [3, 4, 5, 7, 10, 15, 20, 30] {
            let (seen, exact) = seen(noise, 0.05, after);
            print!("  {after}: {:.0} ({:.0})", seen * 100.0, exact * 100.0);
        }
        println!();
    }
    let kinds: [(&str, Spoil); 3] = [
        ("white", |_, _| {}),
        ("one outlier", |random, series| {
            series[random.below(series.len() as u64) as usize] *= 1.5;
        }),
        ("one in ten slow", |random, series| {
            for value in series {
                *value *= if random.chance(0.1) { 1.3 } else { 1.0 };
            }
        }),
    ];
    println!(
        "\nunchanged series of 5 to 100 results with a change, of {}",
        5 * SERIES
    );
    for (name, spoil) in kinds {
        let mut random = Random::new(2);
        let alarms = (0..5 * SERIES).filter(|one| {
            let noise = 0.01 * (1 + one % 10) as f64;
            let mut series = series(&mut random, noise, 5 + one * 37 % 96, 0.0);
            spoil(&mut random, &mut series);
            !change_points(&series).is_empty()
        });
        println!("{name}: {}", alarms.count());
    }
    let mut random = Random::new(3);
    let (mut ever, mut new) = (0, 0);
    for _ in 0..SERIES / 4 {
        let series = series(&mut random, 0.03, 100, 0.0);
        let looks = (10..=series.len()).map(|length| (length, change_points(&series[..length])));
        let alarms: Vec<bool> = looks
            .filter_map(|(length, changes)| Some(changes.last()?.index + 10 >= length))
            .collect();
        ever += usize::from(!alarms.is_empty());
        new += usize::from(alarms.contains(&true));
    }
    println!(
        "\nevaluated after each result, of {}: a change at some time {ever}, a new one {new}",
        SERIES / 4
    );
}
