//! Tests degradation on handmade series.

use brunt_core::random::Random;

use super::*;

/// Intervals of a tenth of a second each, with these rates.
fn series(rates: &[(usize, f64)]) -> Vec<IntervalFigures> {
    let rates = rates
        .iter()
        .flat_map(|(count, rate)| std::iter::repeat_n(*rate, *count));
    rates
        .enumerate()
        .map(|(index, rate)| IntervalFigures {
            start_s: index as f64 / 10.0,
            end_s: (index + 1) as f64 / 10.0,
            requests: (rate / 10.0).round() as u64,
            bytes: (rate / 10.0).round() as u64 * 4096,
            ..IntervalFigures::default()
        })
        .collect()
}

fn span(start_s: f64, end_s: f64) -> FaultSpan {
    FaultSpan {
        start_s,
        end_s: Some(end_s),
    }
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} is not {b}");
}

/// A rate that halves for two seconds and takes another half second to recover is reported as exactly that.
#[test]
fn a_dip_has_its_depth_duration_and_recovery() {
    let series = series(&[(20, 1000.0), (20, 500.0), (5, 800.0), (20, 1000.0)]);
    let found = of_run(&series, &[span(2.0, 4.0)], 0).unwrap();
    near(found.baseline.requests_per_second, 1000.0);
    assert_eq!(found.baseline.intervals, 20);
    near(found.drop, 0.5);
    near(found.drop_max, 0.5);
    near(found.lost_requests.unwrap(), 1000.0 + 100.0);
    near(found.lost_bytes.unwrap(), 1100.0 * 4096.0);
    near(found.detected.seconds().unwrap(), 0.1);
    near(found.recovered.seconds().unwrap(), 0.5);
}

/// A fault may start and end anywhere within an interval: the rate before the fault does not affect the figures of
/// the fault's time, and no loss is left out.
#[test]
fn a_fault_may_begin_and_end_within_intervals() {
    for hundredths in 0..30 {
        let fault = span(6.0 + f64::from(hundredths) / 100.0, 8.5);
        let lasts_s = 8.5 - fault.start_s;
        let interval = |index: u32| {
            let (start_s, end_s) = (0.3 * f64::from(index), 0.3 * f64::from(index + 1));
            let broken = (end_s.min(8.5) - start_s.max(fault.start_s)).max(0.0);
            let requests = (1e6 * (end_s - start_s - broken) + 1e4 * broken).round() as u64;
            IntervalFigures {
                start_s,
                end_s,
                requests,
                bytes: requests * 4096,
                failed: (1e4 * broken).round() as u64,
                response_mean_us: Some(100.0),
                ..IntervalFigures::default()
            }
        };
        let series: Vec<IntervalFigures> = (0..50).map(interval).collect();
        let found = of_run(&series, &[fault], 0).unwrap();
        near(found.drop, 0.99);
        near(found.drop_max, 0.99);
        near(found.failed_share, 0.5);
        let lost = found.lost_requests.unwrap() / (0.99e6 * lasts_s);
        assert!((lost - 1.0).abs() < 1e-3, "{hundredths}: {lost}");
        let phases = phases(&series, &[("f", fault)]);
        let rates = phases.iter().map(|phase| phase.requests_per_second);
        for (rate, expected) in rates.zip([1e6, 1e4, 1e6]) {
            near(rate, expected);
        }
        near(phases[1].failed_share, 0.5);
        near(phases[2].failed_share, 0.0);
    }
}

/// A missing effect, recovery or baseline is reported as such, not as zero.
#[test]
fn a_missing_answer_is_not_zero() {
    let flat = series(&[(60, 1000.0)]);
    let found = of_run(&flat, &[span(2.0, 4.0)], 0).unwrap();
    assert_eq!(
        (found.detected, found.recovered),
        (Answer::Never, Answer::AfterS(0.0))
    );
    near(found.drop, 0.0);
    let dead = series(&[(20, 1000.0), (40, 0.0)]);
    let found = of_run(&dead, &[span(2.0, 4.0)], 0).unwrap();
    assert_eq!(found.recovered, Answer::Never);
    near(found.drop, 1.0);
    near(found.lost_requests.unwrap(), 4000.0);
    let sticky = [FaultSpan {
        start_s: -1.0,
        end_s: None,
    }];
    assert_eq!(of_run(&flat, &sticky, 0), None);
    let late = [FaultSpan {
        start_s: 2.0,
        end_s: None,
    }];
    let found = of_run(&dead, &late, 0).unwrap();
    assert_eq!(
        (found.recovered, found.detected.seconds().is_some()),
        (Answer::Never, true)
    );
    assert_eq!(of_run(&[], &late, 0), None);
}

/// A single low interval is noise; an outlier does not widen the band, but noise does.
#[test]
fn a_single_low_interval_is_noise() {
    let blip = series(&[(20, 1000.0), (5, 1000.0), (1, 0.0), (30, 1000.0)]);
    assert_eq!(
        of_run(&blip, &[span(2.0, 4.0)], 0).unwrap().detected,
        Answer::Never
    );
    let outlier = series(&[(19, 1000.0), (1, 9000.0), (20, 900.0), (20, 1000.0)]);
    let found = of_run(&outlier, &[span(2.0, 4.0)], 0).unwrap();
    near(found.baseline.low, 950.0);
    assert!(found.detected.seconds().is_some());
    let rates: Vec<(usize, f64)> = (0..40)
        .map(|i| (1, if i % 2 == 0 { 900.0 } else { 1100.0 }))
        .collect();
    let found = of_run(&series(&rates), &[span(2.0, 3.0)], 0).unwrap();
    assert!(found.baseline.low < 700.0);
}

/// Each of two faults has its own drop, relative to the time before the first; the second limits the conclusions
/// about the first.
#[test]
fn overlapping_faults_have_separate_figures() {
    let series = series(&[
        (20, 1000.0),
        (10, 500.0),
        (10, 100.0),
        (20, 500.0),
        (20, 1000.0),
    ]);
    // A long fault from 2 to 6 s, and a short one from 3 to 4 s within it.
    let faults = [span(2.0, 6.0), span(3.0, 4.0)];
    let long = of_run(&series, &faults, 0).unwrap();
    near(long.drop, 1.0 - (500.0 + 100.0 + 1000.0) / 4000.0);
    assert_eq!(long.recovered, Answer::AfterS(0.0));
    let short = of_run(&series, &faults, 1).unwrap();
    near(short.drop, 0.9);
    near(short.recovered.seconds().unwrap(), 2.0);
    let apart = [span(2.0, 3.0), span(3.0, 6.0)];
    let first = of_run(&series, &apart, 0).unwrap();
    assert_eq!(first.recovered, Answer::Inconclusive);
    let short = first.too_short.unwrap();
    assert_eq!(
        (short.next_fault, short.advice().contains("at = \"5s\"")),
        (true, true),
        "{short:?}"
    );
}

/// If the run ends or the next fault starts too soon after a fault, recovery is undetermined, whatever the data so far
/// shows, and the answer says until when the run would have had to continue.
#[test]
fn a_run_that_ends_too_soon_after_its_fault_cannot_tell_recovery() {
    let check = |after: &[(usize, f64)], until_s: Option<f64>, recovered: Answer| {
        let rates = [&[(20, 1000.0), (20, 0.0)], after].concat();
        let found = of_run(&series(&rates), &[span(2.0, 4.0)], 0).unwrap();
        assert_eq!(found.recovered, recovered, "{after:?}");
        assert_eq!(
            found.too_short.map(|short| short.next_fault),
            until_s.map(|_| false),
            "{after:?}"
        );
        if let (Some(short), Some(until_s)) = (found.too_short, until_s) {
            near(short.until_s, until_s);
            assert!(
                short
                    .advice()
                    .contains(&format!("stop = {{ time = \"{}s\" }}", until_s.ceil()))
            );
        }
        found
    };
    check(&[], Some(5.1), Answer::Inconclusive);
    check(&[(9, 1000.0)], Some(5.1), Answer::Inconclusive);
    check(&[(9, 0.0)], Some(5.1), Answer::Inconclusive);
    // The rate recovered, but stayed so for 0.9 s only.
    let open = check(&[(20, 0.0), (9, 1000.0)], Some(7.1), Answer::Inconclusive);
    check(&[(20, 0.0)], None, Answer::Never);
    let back = check(&[(20, 1000.0)], None, Answer::AfterS(0.0));
    let all = over_runs("x", &[open.clone(), back.clone(), back]);
    assert_eq!(
        (
            all.not_recovered,
            all.recovery_inconclusive,
            all.recovery_too_short
        ),
        (0, 1, 1)
    );
    assert_eq!(
        (all.recovered_s.unwrap().runs, all.too_short),
        (2, open.too_short)
    );
    assert_eq!(
        all.intervals_wanted(),
        None,
        "more intervals of this length would not help"
    );
}

/// Runs without an answer are counted separately from the estimate.
#[test]
fn runs_that_have_no_answer_are_counted() {
    assert_eq!(runs_without(0, 0), "");
    assert_eq!(runs_without(1, 0), "not in 1 run");
    assert_eq!(runs_without(2, 1), "not in 2 runs, inconclusive in 1");
    assert_eq!(runs_without(0, 3), "inconclusive in 3");
}

#[test]
fn over_several_runs() {
    let run = |low: f64, back: usize| {
        let series = series(&[(20, 1000.0), (20, low), (back, 1000.0)]);
        of_run(&series, &[span(2.0, 4.0)], 0).unwrap()
    };
    let all = over_runs(
        "x",
        &[
            run(500.0, 20),
            run(400.0, 20),
            run(600.0, 20),
            run(1000.0, 5),
        ],
    );
    assert_eq!(
        (all.runs, all.not_detected, all.recovery_too_short),
        (4, 1, 1)
    );
    near(all.drop.unwrap().mean, (0.5 + 0.6 + 0.4) / 4.0);
    assert_eq!(all.recovered_s.unwrap().runs, 3);
}

/// Number of tenths of a second, their mean and p99, and their failures.
type Part = (usize, Option<(f64, f64)>, u64);

/// A fault from 2 s to 4 s in a series of tenths with these response times (mean and p99 in us) and failures, 10
/// requests each; no requests where the mean is `None`.
fn answers(parts: &[Part]) -> Degradation {
    let tenths = parts
        .iter()
        .flat_map(|(count, us, failed)| std::iter::repeat_n((us, failed), *count));
    let series: Vec<IntervalFigures> = tenths
        .enumerate()
        .map(|(index, (us, failed))| IntervalFigures {
            start_s: index as f64 / 10.0,
            end_s: (index + 1) as f64 / 10.0,
            requests: if us.is_some() { 10 } else { 0 },
            failed: *failed,
            response_mean_us: us.map(|(mean, _)| mean),
            response_p99_us: us.map(|(_, p99)| p99),
            ..IntervalFigures::default()
        })
        .collect();
    of_run(&series, &[span(2.0, 4.0)], 0).unwrap()
}

const USUAL: Option<(f64, f64)> = Some((100.0, 200.0));

/// Response times that triple and recover in two steps are reported as exactly that: the factor, the excess wait, when
/// the effect became visible and when it ended. The p99 has its own answers.
#[test]
fn longer_response_times_have_their_factor_and_recovery() {
    let found = answers(&[
        (20, USUAL, 0),
        (20, Some((300.0, 1000.0)), 0),
        (5, Some((200.0, 200.0)), 0),
        (20, USUAL, 0),
    ]);
    let (mean, p99) = (found.response_mean.unwrap(), found.response_p99.unwrap());
    near(mean.baseline_us, 100.0);
    near(mean.high_us, 105.0);
    near(mean.factor.unwrap(), 3.0);
    near(mean.factor_max.unwrap(), 3.0);
    near(mean.detected.seconds().unwrap(), 0.1);
    near(mean.recovered.seconds().unwrap(), 0.5);
    // 200 requests take 200 us too long, and 50 requests 100 us.
    near(found.excess_wait_s.unwrap(), 0.040 + 0.005);
    near(p99.factor.unwrap(), 5.0);
    near(p99.recovered.seconds().unwrap(), 0.0);
    // The rate did not change.
    near(found.drop, 0.0);
    assert_eq!(found.detected, Answer::Never);
}

/// All requests that a stall held up count, wherever in an interval the stall ends.
#[test]
fn a_stall_that_ends_within_an_interval_costs_all_that_it_held_up() {
    for end_s in [3.0, 3.001, 3.02, 3.05, 3.099] {
        let stalled = |at: usize| (20..30).contains(&at);
        let interval = |at: usize| {
            // Ten requests wait for a second; 50 more follow in the interval in which they are answered.
            let (requests, mean_us) = match at {
                30 => (60, Some((10.0 * 1e6 + 50.0 * 100.0) / 60.0)),
                at if stalled(at) => (0, None),
                _ => (100, Some(100.0 + (at % 3) as f64)),
            };
            IntervalFigures {
                start_s: at as f64 / 10.0,
                end_s: (at + 1) as f64 / 10.0,
                requests,
                response_mean_us: mean_us,
                response_p99_us: mean_us,
                ..IntervalFigures::default()
            }
        };
        let series: Vec<_> = (0..60).map(interval).collect();
        let found = of_run(&series, &[span(2.0, end_s)], 0).unwrap();
        let excess = found.excess_wait_s.expect("a known wait");
        assert!((excess - 10.0).abs() < 0.05, "{end_s}: {excess}");
    }
}

/// A stall costs its share of the fault's time, wherever in an interval the fault begins.
#[test]
fn a_stall_counts_from_its_beginning() {
    for late_s in [0.0, 0.001, 0.02, 0.04] {
        let fault = span(2.0 + late_s, 4.0);
        let mut series = series(&[(20, 10_000.0), (10, 0.0), (30, 10_000.0)]);
        series[20].requests = (10_000.0 * late_s) as u64;
        let found = of_run(&series, &[fault], 0).unwrap();
        near(found.drop, (3.0 - fault.start_s) / (4.0 - fault.start_s));
    }
}

/// A lower rate in two runs counts as noise, not as an effect, if the rate rises as much in two others. If the other
/// two runs are nearly usual, it counts as an effect.
#[test]
fn runs_that_contradict_each_other_show_nothing() {
    let mut random = Random::for_part(9, 0);
    let mut judged = |rates: [f64; 4]| {
        let runs = rates.map(|under| {
            let mut series = series(&[(20, 10_000.0), (10, under), (30, 10_000.0)]);
            for one in &mut series {
                one.requests = (one.requests as f64 * (1.0 + 0.01 * random.normal())) as u64;
            }
            of_run(&series, &[span(2.0, 3.0)], 0).unwrap()
        });
        over_runs("fault", &runs)
            .detected_s
            .map_or(0, |seen| seen.runs)
    };
    assert_eq!(judged([7_000.0, 7_000.0, 13_000.0, 13_000.0]), 0);
    assert_eq!(judged([7_000.0, 7_000.0, 9_950.0, 9_950.0]), 2);
}

/// Requests in each tenth of a second of four runs on a busy machine. From 1 to 5 s, the server had 2 % of a
/// processor. Every run lost 99 %, although the rate before and after was at times a tenth of the usual rate.
#[rustfmt::skip]
const STARVED: [[u64; 70]; 4] = [
    [9848, 9446, 3949, 6120, 914, 1128, 1388, 1016, 837, 880, 54, 65, 73, 120, 48, 0, 2, 0, 1, 0, 0, 2, 0, 1, 0, 0, 1, 25, 0, 2, 1, 0, 211, 178, 131, 124, 131, 142, 114, 189, 163, 1, 1, 1, 1, 95, 103, 1, 192, 199, 169, 4834, 4115, 6365, 11814, 11764, 11271, 11758, 5640, 3491, 9014, 11914, 11714, 12024, 6989, 536, 529, 487, 714, 586],
    [522, 1092, 730, 718, 632, 2209, 9927, 11451, 11777, 11698, 223, 94, 152, 1, 0, 1, 1, 1, 1, 2, 0, 2, 1, 0, 3, 1, 3, 1, 0, 0, 2, 0, 18, 210, 167, 143, 267, 192, 146, 262, 94, 296, 117, 112, 284, 117, 123, 125, 2, 2, 600, 638, 1950, 3592, 7827, 11668, 5228, 671, 513, 485, 2731, 7604, 11623, 11597, 11580, 11121, 11694, 11636, 11569, 11692],
    [11671, 10765, 11211, 11733, 11830, 7220, 892, 775, 772, 5906, 244, 1, 1, 1, 1, 1, 0, 2, 1, 143, 1, 139, 2, 1, 2, 108, 110, 83, 214, 167, 147, 113, 0, 1, 1, 52, 88, 243, 199, 111, 0, 0, 1, 2, 0, 1, 2, 1, 2, 1, 460, 3305, 11691, 11156, 11919, 11905, 622, 619, 1011, 716, 1045, 612, 799, 11387, 11896, 12065, 12010, 12069, 4202, 10124],
    [11657, 4779, 2062, 11874, 11885, 11691, 11870, 11411, 1617, 12030, 277, 1, 0, 2, 80, 203, 187, 156, 152, 1, 2, 0, 1, 1, 1, 1, 2, 2, 2, 44, 1, 260, 52, 146, 131, 63, 332, 105, 140, 168, 160, 136, 101, 294, 156, 98, 72, 142, 264, 217, 3113, 11694, 11807, 11755, 11945, 11673, 11979, 11876, 4956, 12006, 11326, 11634, 7883, 3360, 2238, 956, 864, 592, 607, 590],
];

/// A run that plainly lost as much as the others shows the effect, too.
#[test]
fn a_noisy_baseline_hides_no_loss_that_every_run_shows() {
    let run = |requests: &[u64; 70]| {
        let interval = |(at, requests): (usize, &u64)| IntervalFigures {
            start_s: at as f64 / 10.0,
            end_s: (at + 1) as f64 / 10.0,
            requests: *requests,
            ..IntervalFigures::default()
        };
        let series: Vec<_> = requests.iter().enumerate().map(interval).collect();
        of_run(&series, &[span(1.0001, 5.05)], 0).unwrap()
    };
    let runs: Vec<Degradation> = STARVED.iter().map(run).collect();
    let all = over_runs("starved", &runs);
    let seen = all.detected_s.map_or(0, |seen| seen.runs);
    assert_eq!((seen, all.not_detected), (4, 0));
}

/// A baseline that oscillates in the same phase in each run makes the fault's time better or worse than the time before
/// it; only what the fault adds counts.
#[test]
fn an_oscillation_is_no_excess_wait() {
    let run = |seed| {
        let mut random = Random::new(seed);
        let interval = |at: usize| {
            let slow = if (20..40).contains(&at) {
                1.0 / 0.9
            } else {
                1.0
            };
            let wave = 1.0 + 0.1 * (std::f64::consts::TAU * (at as f64 + 0.5) / 13.0).sin();
            let mean_us = 5000.0 * slow * wave * (1.0 + 0.005 * random.normal());
            IntervalFigures {
                start_s: at as f64 / 10.0,
                end_s: (at + 1) as f64 / 10.0,
                requests: (16.0 * 1e5 / mean_us) as u64,
                response_mean_us: Some(mean_us),
                ..IntervalFigures::default()
            }
        };
        let series: Vec<_> = (0..60).map(interval).collect();
        of_run(&series, &[span(2.0, 4.0)], 0).unwrap()
    };
    let runs: Vec<Degradation> = (1..=4).map(run).collect();
    // A closed loop of 16 requests for two seconds, which loses a tenth of its rate during the fault.
    let wait_s = over_runs("slow", &runs).excess_wait_s.unwrap().mean;
    assert!((wait_s - 3.2).abs() < 0.32, "{wait_s}");
}

/// A server that is restarted after a second answers again half a second later. However noisy its rate is, it counts
/// as not recovered until then, and requests that waited for it count even if they are answered in a usual interval.
#[test]
fn nothing_has_recovered_before_an_answer() {
    const LENGTH_S: f64 = 0.25;
    let run = |seed| {
        let mut random = Random::new(seed);
        let interval = |at: usize| {
            let silent = (8..14).contains(&at);
            let usual = 30_000.0 * (0.5 * random.normal() - 0.125).exp();
            let requests = if silent { 0 } else { usual as u64 };
            let mean_us = 0.25e6 * 8.0 / usual;
            let held_up_us = if at == 14 { 8.0 * 1.5e6 / usual } else { 0.0 };
            let oldest_us = match silent {
                true => (at - 7) as f64 * LENGTH_S * 1e6,
                false => mean_us,
            };
            IntervalFigures {
                start_s: at as f64 * LENGTH_S,
                end_s: (at + 1) as f64 * LENGTH_S,
                requests,
                response_mean_us: (!silent).then_some(mean_us + held_up_us),
                waiting: Some(WaitingFigures {
                    requests: 8,
                    mean_us: Some(oldest_us),
                    oldest_us: Some(oldest_us),
                }),
                ..IntervalFigures::default()
            }
        };
        let series: Vec<_> = (0..32).map(interval).collect();
        of_run(&series, &[span(2.0, 3.0003)], 0).unwrap()
    };
    let runs: Vec<Degradation> = (1..=4).map(run).collect();
    let all = over_runs("crash", &runs);
    let back_s = all.recovered_s.unwrap();
    assert_eq!((back_s.runs, all.not_recovered), (4, 0));
    near(back_s.mean, 0.4997);
    let wait_s = all.excess_wait_s.unwrap().mean;
    assert!((wait_s - 12.0).abs() < 1.2, "{wait_s}");
}

/// A fault during which no request is answered has no factor, but is detected; the requests it delayed count in the
/// interval in which they are answered. An outlier does not change the usual p99.
#[test]
fn no_answers_at_all() {
    let found = answers(&[
        (20, USUAL, 0),
        (20, None, 0),
        (1, Some((1.5e6, 2e6)), 0),
        (20, USUAL, 0),
    ]);
    let mean = found.response_mean.unwrap();
    assert_eq!((mean.factor, mean.factor_max), (None, None));
    near(mean.detected.seconds().unwrap(), 0.1);
    near(mean.recovered.seconds().unwrap(), 0.1);
    near(found.excess_wait_s.unwrap(), 10.0 * (1.5e6 - 100.0) / 1e6);
    let outlier = [
        (20, USUAL, 0),
        (19, Some((100.0, 400.0)), 0),
        (1, Some((5000.0, 9e9)), 0),
        (20, USUAL, 0),
    ];
    let found = answers(&outlier);
    near(found.response_p99.unwrap().factor.unwrap(), 2.0);
    near(
        found.response_mean.unwrap().factor.unwrap(),
        (19.0 + 50.0) / 20.0,
    );
    near(found.response_mean.unwrap().factor_max.unwrap(), 50.0);
    assert_eq!(
        found.response_mean.unwrap().detected,
        Answer::Never,
        "one interval is noise"
    );
}

/// Errors are a share of all requests, before and during the fault; an interval that the fault covers by half
/// counts by half.
#[test]
fn failures_are_a_share_of_all_requests() {
    let found = answers(&[(20, USUAL, 0), (20, USUAL, 30), (20, USUAL, 0)]);
    near(found.failed_share_before, 0.0);
    near(found.failed_share, 0.75);
    let series = [
        IntervalFigures {
            end_s: 1.0,
            requests: 99,
            failed: 1,
            ..IntervalFigures::default()
        },
        IntervalFigures {
            start_s: 1.0,
            end_s: 2.0,
            requests: 99,
            failed: 1,
            ..IntervalFigures::default()
        },
        IntervalFigures {
            start_s: 2.0,
            end_s: 3.0,
            requests: 99,
            failed: 1,
            ..IntervalFigures::default()
        },
        IntervalFigures {
            start_s: 3.0,
            end_s: 4.0,
            requests: 80,
            failed: 20,
            ..IntervalFigures::default()
        },
        IntervalFigures {
            start_s: 4.0,
            end_s: 5.0,
            requests: 40,
            failed: 60,
            ..IntervalFigures::default()
        },
    ];
    let found = of_run(&series, &[span(3.5, 5.0)], 0).unwrap();
    near(found.failed_share_before, 0.01);
    near(found.failed_share, 0.6);
    assert_eq!(
        found.response_mean, None,
        "nothing is known of response times"
    );
}

/// Response times over runs have estimates, and counts of runs without an answer.
#[test]
fn responses_over_runs() {
    let run = |us: f64, back: usize| {
        answers(&[(20, USUAL, 0), (20, Some((us, us)), 1), (back, USUAL, 0)])
    };
    let all = over_runs(
        "x",
        &[
            run(200.0, 20),
            run(300.0, 20),
            run(400.0, 20),
            run(100.0, 5),
        ],
    );
    let mean = &all.response_mean;
    near(mean.factor.unwrap().mean, (2.0 + 3.0 + 4.0 + 1.0) / 4.0);
    let open = mean.recovery_inconclusive;
    assert_eq!(
        (mean.not_detected, open, mean.recovered_s.unwrap().runs),
        (1, 1, 3)
    );
    near(
        all.excess_wait_s.unwrap().mean,
        200.0 * (100.0 + 200.0 + 300.0) / 1e6 / 4.0,
    );
    near(all.failed_share.unwrap().mean, 1.0 / 11.0);
    assert!(all.excess_wait_s.unwrap().low.is_some());
}

/// A stalled open loop answers its backlog at once or over some time: the rate is back when the stall ends, even if
/// that leaves only part of an interval.
#[test]
fn answering_a_backlog_leaves_no_doubt_about_the_recovery() {
    for (served, late_s) in [
        (1_000_000u64, 0.0002),
        (1_000_000, 0.03),
        (300, 0.0002),
        (300, 0.07),
    ] {
        let fault = span(1.0 + late_s, 2.0 + late_s);
        let mut backlog = 0;
        let run: Vec<IntervalFigures> = (0..60)
            .map(|at| {
                let [start_s, end_s] = [at, at + 1].map(|at| f64::from(at) / 10.0);
                let stalled_s = (end_s.min(2.0 + late_s) - start_s.max(1.0 + late_s)).max(0.0);
                let due = 200 + backlog;
                let could = (served as f64 * (1.0 - 10.0 * stalled_s)) as u64;
                // Requests due in the stalled part of an interval wait for its end.
                let waits = if end_s < 2.0 + late_s {
                    (2000.0 * stalled_s) as u64
                } else {
                    0
                };
                let requests = could.min(due - waits.min(due));
                backlog = due - requests;
                IntervalFigures {
                    start_s,
                    end_s,
                    requests,
                    response_mean_us: (requests > 0).then_some(300.0),
                    waiting: Some(WaitingFigures {
                        requests: backlog,
                        mean_us: Some(100.0),
                        oldest_us: Some(100.0),
                    }),
                    ..IntervalFigures::default()
                }
            })
            .collect();
        let runs: Vec<Degradation> = (0..4).filter_map(|_| of_run(&run, &[fault], 0)).collect();
        for judged in together(&runs) {
            let back = judged.recovered.seconds();
            assert!(
                back.is_some_and(|back| back <= 0.1),
                "{:?}",
                judged.recovered
            );
        }
    }
}
