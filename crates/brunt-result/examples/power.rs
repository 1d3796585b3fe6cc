//! Which differences does `brunt compare` detect, and how often does it report a difference that does not exist?
//!
//!     cargo run --release -p brunt-result --example power [pairs]
//!
//! Compares pairs of synthetic results with known truth: three points in a closed loop (rate, mean, p99 and p99.9 of
//! each), with four or eight runs per side. The machine's noise scales the service time of each run (log-normal). The
//! p99 gets additional noise of twice that spread, and the p99.9 a further three times that spread. On one of the
//! machines, one run in ten is slow by 30 %, as on a shared machine. "Before" is Welch's test of the figures
//! themselves with Holm's correction over all of them. The first table compares experiments whose runs took turns
//! (`brunt run --interleave`) with experiments run one after the other, on a machine that drifts.

use brunt_core::random::Random;
use brunt_result::noise::SESSION;
use brunt_result::statistics::{
    ALPHA, Better, Comparison, MARGIN, MachineAllowance, Metric, RunCorrelation, RunLikeness,
    Verdict, Welch, compare, holm,
};

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

/// For each metric, whether the previous method called it different.
fn before(metrics: &[Metric]) -> Vec<bool> {
    let p: Vec<f64> = metrics
        .iter()
        .map(|metric| Welch::of(&metric.a, &metric.b).unwrap().p)
        .collect();
    holm(&p).into_iter().map(|p| p < ALPHA).collect()
}

/// Runs of two experiments on a machine whose speed changes slowly, in turns or one experiment after the other.
///
/// The machine's speed is a random walk that returns to its mean, with this deviation and a correlation of 0.9
/// between consecutive runs. Each run also has its own noise, which is twice as large for its p99.
fn on_a_drifting_machine(
    random: &mut Random,
    (noise, drift): (f64, f64),
    runs: usize,
    change: f64,
    paired: bool,
) -> Vec<Metric> {
    const AGAIN: f64 = 0.9;
    let fresh = (1.0 - AGAIN * AGAIN).sqrt();
    let mut speed = random.normal();
    let mut sides = [(); 2].map(|()| vec![vec![Vec::new(); 3]]);
    for turn in 0..2 * runs {
        let side = match paired {
            true => turn % 2,
            false => turn / runs,
        };
        speed = AGAIN * speed + fresh * random.normal();
        let change = if side == 1 { change } else { 1.0 };
        let service = change * (drift * speed + noise * random.normal()).exp();
        let figures = &mut sides[side][0];
        figures[0].push(20_000.0 / service);
        figures[1].push(200.0 * service);
        figures[2].push(900.0 * service * (2.0 * noise * random.normal()).exp());
    }
    let [a, b] = sides;
    let each = FIGURES.iter().take(3).enumerate();
    each.map(|(index, (name, better))| Metric {
        paired,
        likeness: [&a, &b].map(|side| (!paired).then(|| likeness(&side[0][index]))),
        machine: MachineAllowance {
            session: if paired { 0.0 } else { SESSION },
            ..MachineAllowance::default()
        },
        one_with: (index == 1).then_some(0),
        ..Metric::new(
            *name,
            *name,
            *better,
            a[0][index].clone(),
            b[0][index].clone(),
        )
    })
    .collect()
}

/// The correlation between consecutive runs of one point, which `brunt compare` corrects for.
fn likeness(runs: &[f64]) -> RunLikeness {
    let places = (0u32..).zip(runs.iter().copied()).collect();
    RunLikeness::of(0..runs.len() as u32, RunCorrelation::of(&[places]))
}

/// The table of docs/results.md about interleaved experiments.
fn pairs() {
    const EXPERIMENTS: u64 = 400;
    println!("One point (rate, p99) on a drifting machine; {EXPERIMENTS} experiments each");
    println!(
        "| noise of a run, drift | runs per side | in turns: +10 % | no change | one after the other: +10 % | no change |"
    );
    println!("|---|---|---|---|---|---|");
    for (noise, drift) in [(0.02, 0.02), (0.02, 0.10), (0.05, 0.10), (0.10, 0.10)] {
        for runs in [4, 6, 8, 12, 16, 24, 32, 48] {
            let share = |change: f64, paired: bool| {
                let mut shown = [0u32; 2];
                let mut any = 0u32;
                for seed in 0..EXPERIMENTS {
                    let mut random = Random::for_part(seed, (change * 1000.0) as u64);
                    let metrics =
                        on_a_drifting_machine(&mut random, (noise, drift), runs, change, paired);
                    let found = compare(&metrics, MARGIN);
                    let verdicts = [&found[0], &found[2]].map(|one| one.verdict);
                    for (count, verdict) in shown.iter_mut().zip(verdicts) {
                        *count += u32::from(verdict == Verdict::Worse);
                    }
                    let different =
                        |one: &Comparison| matches!(one.verdict, Verdict::Worse | Verdict::Better);
                    any += u32::from(found.iter().any(different));
                }
                let percent = |count: u32| 100.0 * f64::from(count) / EXPERIMENTS as f64;
                (shown.map(percent), percent(any))
            };
            let cells = [true, false].map(|paired| {
                let ([rate, p99], _) = share(1.1, paired);
                let (_, wrong) = share(1.0, paired);
                format!("{rate:.0}, {p99:.0} % | {wrong:.1} %")
            });
            println!(
                "| {:.0} %, {:.0} % | {runs} | {} | {} |",
                noise * 100.0,
                drift * 100.0,
                cells[0],
                cells[1]
            );
        }
    }
    println!();
}

fn main() {
    pairs();
    if std::env::args().any(|word| word == "pairs") {
        return;
    }
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
                    "      stated as detectable with 80 %: {:?}",
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
                // A change of exactly the margin must not be called "same".
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
