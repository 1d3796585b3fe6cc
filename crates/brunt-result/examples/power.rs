//! Which differences does `brunt compare` detect, and how often does it report one that does not exist?
//!
//!     cargo run --release -p brunt-result --example power
//!
//! Compares pairs of synthetic results with known truth: three points in a closed loop (rate, mean, p99 and p99.9 of
//! each), four or eight runs per side. The machine's noise scales the service time of each run (log-normal). The p99
//! gets additional noise of twice that spread, and the p99.9 a further three times that spread. On one of the machines,
//! one run in ten is slow by 30 %, as on a shared machine. "Before" is Welch's test of the figures themselves with
//! Holm's correction over all of them.

use brunt_core::random::Random;
use brunt_result::statistics::{ALPHA, Better, MARGIN, Metric, Verdict, Welch, compare, holm};

const POINTS: usize = 3;
const FIGURES: [(&str, Better); 4] = [
    ("iops", Better::Higher),
    ("mean", Better::Lower),
    ("p99", Better::Lower),
    ("p99.9", Better::Lower),
];
const PAIRS: u64 = 40;
const PAIRS_SAME: u64 = 2000;

/// A machine's noise.
#[derive(Clone, Copy)]
struct Machine {
    /// Standard deviation of a run's service time, as a share.
    noise: f64,
    /// Probability that a run is slow by 30 %.
    slow: f64,
}

/// One side of a comparison: the runs of each point and figure.
fn side(random: &mut Random, machine: Machine, runs: usize, times: f64) -> Vec<Vec<Vec<f64>>> {
    let mut all = vec![vec![Vec::new(); FIGURES.len()]; POINTS];
    for _ in 0..runs {
        for point in &mut all {
            let slow = if random.chance(machine.slow) {
                1.3
            } else {
                1.0
            };
            let service = times * slow * (machine.noise * random.normal()).exp();
            point[0].push(20_000.0 / service);
            point[1].push(200.0 * service);
            let p99 = service * (2.0 * machine.noise * random.normal()).exp();
            point[2].push(900.0 * p99);
            point[3].push(1400.0 * p99 * (3.0 * machine.noise * random.normal()).exp());
        }
    }
    all
}

fn metrics(a: &[Vec<Vec<f64>>], b: &[Vec<Vec<f64>>]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (a, b) in a.iter().zip(b) {
        for (index, (name, better)) in FIGURES.into_iter().enumerate() {
            let one_with = (index == 1).then(|| metrics.len() - 1);
            metrics.push(Metric {
                one_with,
                ..Metric::new(name, name, better, a[index].clone(), b[index].clone())
            });
        }
    }
    metrics
}

/// Verdicts of the previous method: which metrics it called different.
fn before(metrics: &[Metric]) -> Vec<bool> {
    let p: Vec<f64> = metrics
        .iter()
        .map(|metric| Welch::of(&metric.a, &metric.b).unwrap().p)
        .collect();
    holm(&p).into_iter().map(|p| p < ALPHA).collect()
}

fn main() {
    println!(
        "{PAIRS} pairs each for power, {PAIRS_SAME} without a change; {POINTS} points, margin {MARGIN}\n"
    );
    for (title, machine) in [
        (
            "2 % noise",
            Machine {
                noise: 0.02,
                slow: 0.0,
            },
        ),
        (
            "4 % noise",
            Machine {
                noise: 0.04,
                slow: 0.0,
            },
        ),
        (
            "4 % noise, one run in ten 30 % slower",
            Machine {
                noise: 0.04,
                slow: 0.1,
            },
        ),
    ] {
        for runs in [4, 8] {
            println!("{title}, {runs} runs a side");
            for change in [1.10, 1.05] {
                let mut seen = [[0u32; 3]; 2];
                let mut detectable = [0.0; 3];
                for pair in 0..PAIRS {
                    let mut random = Random::for_part(pair, (change * 100.0) as u64);
                    let a = side(&mut random, machine, runs, 1.0);
                    let metrics = metrics(&a, &side(&mut random, machine, runs, change));
                    let (old, new) = (before(&metrics), compare(&metrics, MARGIN));
                    for figure in 0..3 {
                        let indices = (0..POINTS).map(|point| point * FIGURES.len() + figure);
                        for index in indices {
                            seen[0][figure] += u32::from(old[index]);
                            seen[1][figure] += u32::from(new[index].shown == Some(Verdict::Worse));
                            detectable[figure] += new[index].effect.unwrap().detectable.unwrap();
                        }
                    }
                }
                let all = PAIRS as f64 * POINTS as f64;
                let share = |seen: [u32; 3]| {
                    seen.map(|seen| format!("{:3.0} %", 100.0 * f64::from(seen) / all))
                };
                println!("  +{:.0} %: rate, mean, p99", (change - 1.0) * 100.0);
                println!(
                    "      before {:?}\n      now    {:?}",
                    share(seen[0]),
                    share(seen[1])
                );
                println!(
                    "      said to be seen with 80 %: {:?}",
                    detectable.map(|sum| format!("{:.1} %", 100.0 * sum / all))
                );
            }
            let (mut wrong, mut same, mut all) = ([0u32; 2], 0u32, 0u32);
            let mut falsely_same = 0u32;
            for pair in 0..PAIRS_SAME {
                let mut random = Random::for_part(pair, 7);
                let a = side(&mut random, machine, runs, 1.0);
                let unchanged = metrics(&a, &side(&mut random, machine, runs, 1.0));
                let new = compare(&unchanged, MARGIN);
                wrong[0] += u32::from(before(&unchanged).contains(&true));
                wrong[1] += u32::from(new.iter().any(|one| one.shown.is_some()));
                same += new
                    .iter()
                    .filter(|one| one.verdict == Verdict::Same)
                    .count() as u32;
                // A change of exactly the margin is not equivalence.
                let changed = metrics(&a, &side(&mut random, machine, runs, 1.0 + MARGIN));
                let new = compare(&changed, MARGIN);
                falsely_same += new
                    .iter()
                    .filter(|one| one.verdict == Verdict::Same)
                    .count() as u32;
                all += new.len() as u32;
            }
            let share = |count: u32, of: f64| format!("{:.1} %", 100.0 * f64::from(count) / of);
            println!(
                "  no change: pairs with a false verdict: before {}, now {}; figures called the same: {}",
                share(wrong[0], PAIRS_SAME as f64),
                share(wrong[1], PAIRS_SAME as f64),
                share(same, all as f64)
            );
            println!(
                "  a change of the margin: figures called the same: {}\n",
                share(falsely_same, all as f64)
            );
        }
    }
}
