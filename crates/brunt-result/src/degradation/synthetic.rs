//! Tests the degradation of single runs with known truth: how often the answers are right and how often wrong. For runs
//! judged together, under many shapes of noise, see `brunt-bench verdicts`.

use brunt_core::random::Random;

use super::interval::median;
use super::*;

/// A distribution of noise around 1.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Normal with this standard deviation, cut off at zero.
    Normal(f64),
    /// Normal with this standard deviation and this correlation between neighbours (first-order autoregression).
    Alike(f64, f64),
    /// Log-normal with this deviation and a mean of 1: long tails.
    Skewed(f64),
}

/// Number of intervals, each a tenth of a second, before a fault, during it and after it.
#[derive(Clone, Copy, Debug)]
struct Phases(usize, usize, usize);

/// A fault that removes the share `fall` of the rate. The effect ends with the fault if `returns` is set, and
/// otherwise never.
fn run(
    random: &mut Random,
    noise: Noise,
    phases: Phases,
    fall: f64,
    returns: bool,
) -> Option<Degradation> {
    let Phases(before, under, after) = phases;
    let mut last = random.normal();
    let mut draw = || match noise {
        Noise::Normal(deviation) => (1.0 + deviation * random.normal()).max(0.0),
        Noise::Alike(deviation, alike) => {
            last = alike * last + (1.0 - alike * alike).sqrt() * random.normal();
            (1.0 + deviation * last).max(0.0)
        }
        Noise::Skewed(deviation) => {
            let sigma = (1.0 + deviation * deviation).ln().sqrt();
            (sigma * random.normal() - sigma * sigma / 2.0).exp()
        }
    };
    let series: Vec<IntervalFigures> = (0..before + under + after)
        .map(|index| {
            let low = index >= before && (index < before + under || !returns);
            let level = if low {
                10_000.0 * (1.0 - fall)
            } else {
                10_000.0
            };
            IntervalFigures {
                start_s: index as f64 / 10.0,
                end_s: (index + 1) as f64 / 10.0,
                requests: (level * draw()).round() as u64,
                ..IntervalFigures::default()
            }
        })
        .collect();
    let end_s = Some((before + under) as f64 / 10.0);
    of_run(
        &series,
        &[FaultSpan {
            start_s: before as f64 / 10.0,
            end_s,
        }],
        0,
    )
}

/// Shares of the answers to one question.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    yes: f64,
    never: f64,
    inconclusive: f64,
    /// Median of the answers in seconds.
    seconds: f64,
}

fn shares(answers: &[Answer]) -> Shares {
    let of = |is: &dyn Fn(&Answer) -> bool| {
        answers.iter().filter(|answer| is(answer)).count() as f64 / answers.len() as f64
    };
    let seconds: Vec<f64> = answers
        .iter()
        .filter_map(|answer| answer.seconds())
        .collect();
    Shares {
        yes: of(&|answer| answer.seconds().is_some()),
        never: of(&|answer| *answer == Answer::Never),
        inconclusive: of(&|answer| *answer == Answer::Inconclusive),
        seconds: if seconds.is_empty() {
            f64::NAN
        } else {
            median(seconds)
        },
    }
}

/// Detection and recovery over many runs with a baseline above zero.
fn many(noise: Noise, phases: Phases, fall: f64, returns: bool) -> (Shares, Shares) {
    const RUNS: u64 = 20;
    let runs: Vec<Degradation> = (0..RUNS)
        .filter_map(|seed| run(&mut Random::new(seed), noise, phases, fall, returns))
        .collect();
    let of =
        |get: fn(&Degradation) -> Answer| shares(&runs.iter().map(get).collect::<Vec<Answer>>());
    let (detected, recovered) = (of(|run| run.detected), of(|run| run.recovered));
    let told = |shares: Shares| {
        let Shares {
            yes,
            never,
            inconclusive,
            seconds,
        } = shares;
        format!(
            "{:5.1} % never {:5.1} % inconclusive {:5.1} % median {seconds:.2} s",
            yes * 100.0,
            never * 100.0,
            inconclusive * 100.0
        )
    };
    println!(
        "{noise:?} {phases:?} fall {fall} returns {returns}\n  detected {}\n  back     {}",
        told(detected),
        told(recovered)
    );
    (detected, recovered)
}

const LONG: Phases = Phases(80, 80, 80);

#[test]
fn falls_of_half_and_more_are_seen_in_half_as_much_noise() {
    for noise in [Noise::Normal(0.5), Noise::Skewed(0.5)] {
        for fall in [0.5, 0.9] {
            let (detected, recovered) = many(noise, LONG, fall, true);
            assert!(
                detected.yes >= 0.95 && detected.never == 0.0,
                "{noise:?} {fall}: {detected:?}"
            );
            assert!(recovered.yes >= 0.9, "{noise:?} {fall}: {recovered:?}");
            assert!(
                detected.seconds <= 1.0 && recovered.seconds <= 1.0,
                "{noise:?} {fall}"
            );
        }
    }
}

#[test]
fn short_series_are_inconclusive_rather_than_wrong() {
    for phases in [Phases(5, 5, 15), Phases(10, 40, 20), Phases(30, 30, 30)] {
        for noise in [Noise::Normal(0.5), Noise::Skewed(0.5), Noise::Normal(0.8)] {
            let (detected, _) = many(noise, phases, 0.3, true);
            assert!(detected.never <= 0.05, "{noise:?} {phases:?}: {detected:?}");
            let (_, recovered) = many(noise, phases, 0.5, false);
            assert!(
                recovered.yes <= 0.05,
                "never came back, {noise:?} {phases:?}: {recovered:?}"
            );
        }
    }
}

/// A series that was once reported as "detected: never, recovered after 0.0 s": its band reached below zero, with one
/// second before the fault, four seconds in which nearly everything was lost, and two seconds after. A single run
/// this noisy sometimes leaves recovery open.
#[test]
fn a_fall_within_a_band_that_reaches_zero() {
    let (detected, recovered) = many(Noise::Normal(0.6), Phases(10, 40, 20), 0.977, true);
    assert!(
        detected.yes >= 0.95 && detected.never == 0.0,
        "{detected:?}"
    );
    assert!(
        recovered.yes >= 0.75 && recovered.never == 0.0 && recovered.seconds <= 0.2,
        "{recovered:?}"
    );
}

#[test]
fn false_alarms_are_rare() {
    // At most two of twenty runs may raise a false alarm; one in a hundred is expected to.
    let check = |noise, phases, most: f64| {
        let (detected, _) = many(noise, phases, 0.0, true);
        assert!(detected.yes <= most, "{noise:?} {phases:?}: {detected:?}");
    };
    for phases in [Phases(3, 20, 20), Phases(10, 40, 20), LONG] {
        check(Noise::Normal(0.05), phases, 0.0);
        check(Noise::Normal(0.5), phases, 0.1);
        check(Noise::Skewed(0.5), phases, 0.1);
    }
    check(Noise::Alike(0.3, 0.5), Phases(30, 30, 30), 0.10);
    check(Noise::Alike(0.3, 0.5), LONG, 0.1);
}

#[test]
fn a_lasting_drop_is_not_recovered() {
    for noise in [Noise::Normal(0.1), Noise::Normal(0.5), Noise::Skewed(0.5)] {
        let (_, recovered) = many(noise, LONG, 0.5, false);
        assert!(recovered.yes == 0.0, "{noise:?}: {recovered:?}");
        // With more noise a single run is inconclusive.
        if let Noise::Normal(0.1) = noise {
            assert!(recovered.never >= 0.95, "{recovered:?}");
        }
    }
}
