//! Tests verdicts on runs whose usual level changes: it warms up, or it drifts. Their truth is known.

use brunt_core::random::Random;

use super::*;

/// Number of intervals of a tenth of a second each, and those in which the fault is present.
const COUNT: usize = 60;
const FAULT: std::ops::Range<usize> = 20..32;

/// A run in which the usual rate follows `course`, from 0 to 1 over the run, and the fault leaves a share of it; the
/// noise has a deviation of 3 %. Response times are the reciprocal of the rate.
fn run(
    random: &mut Random,
    course: impl Fn(f64) -> f64,
    left: impl Fn(usize) -> f64,
) -> Degradation {
    let interval = |at: usize| {
        let usual = course(at as f64 / COUNT as f64);
        let rate = 10_000.0 * usual * left(at) * (1.0 + 0.03 * random.normal());
        IntervalFigures {
            start_s: at as f64 / 10.0,
            end_s: (at + 1) as f64 / 10.0,
            requests: (rate / 10.0).round() as u64,
            bytes: rate as u64,
            response_mean_us: Some(1e6 / rate),
            ..IntervalFigures::default()
        }
    };
    let series: Vec<IntervalFigures> = (0..COUNT).map(interval).collect();
    let fault = FaultSpan {
        start_s: FAULT.start as f64 / 10.0,
        end_s: Some(FAULT.end as f64 / 10.0),
    };
    of_run(&series, &[fault], 0).expect("a baseline")
}

/// Four runs with this course, judged together, and their combined figures.
fn runs(course: fn(f64) -> f64, left: fn(usize) -> f64) -> (Vec<Degradation>, OverRuns) {
    let each = (0..4).map(|seed| run(&mut Random::new(seed), course, left));
    let each: Vec<Degradation> = each.collect();
    let all = over_runs("fault", &each);
    (together(&each), all)
}

fn warming_up(time: f64) -> f64 {
    1.0 - 0.8 * (-9.0 * time).exp()
}

fn rising(time: f64) -> f64 {
    0.5 + time
}

fn falling(time: f64) -> f64 {
    1.5 - time
}

/// Half of the rate is lost, although the mean before the fault is a quarter below the usual level during the fault.
#[test]
fn a_baseline_that_warms_up_does_not_bias_the_drop() {
    let left = |at| if FAULT.contains(&at) { 0.5 } else { 1.0 };
    let (each, all) = runs(warming_up, left);
    let drop = all.drop.expect("a drop").mean;
    assert!((drop - 0.5).abs() < 0.02, "{drop}");
    let lost: f64 = FAULT
        .map(|at| 500.0 * warming_up(at as f64 / COUNT as f64))
        .sum();
    let found = all.lost_requests.expect("known").mean;
    assert!((found / lost - 1.0).abs() < 0.05, "{found} is not {lost}");
    // The fault halves the rate and doubles response times: each request waits 100 µs longer, at 10,000 per second.
    let waited: f64 = FAULT.map(|_| 500.0 * 1e6 / 10_000.0 / 1e6).sum();
    let found = all.excess_wait_s.expect("known").mean;
    assert!(
        (found / waited - 1.0).abs() < 0.1,
        "{found} is not {waited}"
    );
    for run in each {
        assert_eq!(run.recovered, Answer::AfterS(0.0));
    }
}

/// A rate that only warms up, without an effect of the fault, is not reported as an effect.
#[test]
fn a_baseline_that_warms_up_is_no_effect() {
    let (_, all) = runs(warming_up, |_| 1.0);
    assert_eq!(all.detected_s, None, "{:?}", all.verdict);
}

/// A rising rate exceeds the baseline again, and a falling rate stays below it, whether or not the rate recovered
/// from the fault.
#[test]
fn a_drift_is_not_mistaken_for_a_recovery() {
    let lasting = |at| if at >= FAULT.start { 0.5 } else { 1.0 };
    let passing = |at| if FAULT.contains(&at) { 0.5 } else { 1.0 };
    for course in [rising, falling] {
        for run in runs(course, lasting).0 {
            assert_eq!(run.recovered.seconds(), None, "{:?}", run.verdict);
        }
        let (each, all) = runs(course, passing);
        for run in each {
            assert_eq!(run.recovered, Answer::AfterS(0.0), "{:?}", run.verdict);
        }
        let drop = all.drop.expect("a drop").mean;
        assert!((drop - 0.5).abs() < 0.02, "{drop}");
    }
}
