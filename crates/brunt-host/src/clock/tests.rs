use brunt_core::random::Random;

use super::*;

const MS: f64 = 1e6;

/// Two clocks and the link between them, in nanoseconds of true time, which our clock shows.
struct Pair {
    offset: f64,
    rate: f64,
    /// Amplitude of a slow oscillation of the rate, within the limits assumed for quartz clocks.
    swing: f64,
    /// The minimum delay in each direction, and the mean queueing delay.
    delay: [f64; 2],
    queues: f64,
}

/// Period of the oscillation.
const SWING_NS: f64 = 60e9;

impl Pair {
    fn ahead(&self, at: f64) -> f64 {
        // The integral of a rate that oscillates by `swing` around `rate`.
        let turns = std::f64::consts::TAU / SWING_NS;
        self.offset + self.rate * at + self.swing * (1.0 - (turns * at).cos()) / turns
    }

    fn theirs(&self, at: f64) -> Nanos {
        Nanos((at + self.ahead(at)).round() as u64)
    }

    fn round(&self, at: f64, random: &mut Random) -> ClockRound {
        let heard = at + self.delay[0] + random.exponential(self.queues);
        let answered = heard + random.exponential(20_000.0);
        let back = answered + self.delay[1] + random.exponential(self.queues);
        ClockRound {
            sent: Nanos(at as u64),
            heard: self.theirs(heard),
            answered: self.theirs(answered),
            back: Nanos(back as u64),
        }
    }

    /// Rounds as in a run: eight before it, one per second during it, eight after it.
    fn track(&self, begin: f64, seconds: u32, random: &mut Random) -> ClockTrack {
        let mut track = ClockTrack::default();
        let last = begin + f64::from(seconds) * 1e9;
        let bursts = (0..8).flat_map(|one| {
            [
                begin + f64::from(one) * 20.0 * MS,
                last + f64::from(one) * 20.0 * MS,
            ]
        });
        let during = (1..seconds).map(|second| begin + f64::from(second) * 1e9);
        let mut times: Vec<f64> = bursts.chain(during).collect();
        times.sort_by(f64::total_cmp);
        times
            .into_iter()
            .for_each(|at| track.add(self.round(at, random)).unwrap());
        track
    }
}

/// A thousand estimates of clocks that are up to 500 ms off and drift by up to 200 ppm, over links whose delays are
/// equal in both directions or differ by a factor of up to ten. Returns how many contain the true offset, and the
/// widths of all estimates relative to the shortest round trip.
fn thousand(seed: u64, asymmetric: bool) -> (usize, Vec<f64>) {
    let (mut held, mut widths) = (0, Vec::new());
    for index in 0..1000 {
        let mut random = Random::for_part(seed, index);
        let there = 20_000.0 * 1000f64.powf(random.unit());
        let back = if asymmetric {
            there * 10f64.powf(2.0 * random.unit() - 1.0)
        } else {
            there
        };
        let pair = Pair {
            offset: (2.0 * random.unit() - 1.0) * 500.0 * MS,
            rate: (2.0 * random.unit() - 1.0) * 200e-6,
            swing: random.unit() * 0.5e-6,
            delay: [there, back],
            queues: 0.3 * there * random.unit(),
        };
        let begin = 1e12 + random.unit() * 1e15;
        let pair = Pair {
            offset: pair.offset - pair.rate * begin,
            ..pair
        };
        let seconds = 5 + random.below(56) as u32;
        let track = pair.track(begin, seconds, &mut random);
        // A time shortly before, during or shortly after the rounds.
        let at = begin + (random.unit() * 1.2 - 0.1) * f64::from(seconds) * 1e9;
        let estimate = track.estimate(Nanos(at as u64)).expect("no clock was set");
        let truth = pair.ahead(at);
        held += usize::from(estimate.offset.contains(truth.round() as i64));
        assert!(estimate.rate[0] <= estimate.rate[1] && estimate.model == RateModel::Constant);
        let width = (estimate.offset.high - estimate.offset.low) as f64;
        widths.push(width / track.round_trip_min().unwrap().as_nanos() as f64);
    }
    widths.sort_by(f64::total_cmp);
    (held, widths)
}

#[test]
fn the_interval_contains_the_true_offset() {
    for asymmetric in [false, true] {
        let (held, widths) = thousand(13, asymmetric);
        let (median, p99) = (widths[500], widths[990]);
        println!(
            "asymmetric {asymmetric}: {held} of 1000 hold; width / round trip: p50 {median:.2}, p99 {p99:.2}"
        );
        assert!(held >= 990, "{held} of 1000 intervals hold the true offset");
        // Intervals must not be right just because they are wide: 1 is the width of the interval from the best single
        // round.
        assert!(median <= 1.1, "{median}");
    }
}

/// On an asymmetric link, the middle of a round is off by half the difference between the delays; the interval covers
/// that.
#[test]
fn the_interval_covers_the_error_of_an_asymmetric_link() {
    let pair = Pair {
        offset: 1e6,
        rate: 0.0,
        swing: 0.0,
        delay: [900_000.0, 100_000.0],
        queues: 1.0,
    };
    let track = pair.track(1e12, 10, &mut Random::new(1));
    let estimate = track.estimate(Nanos(1_005_000_000_000)).unwrap();
    assert!(estimate.offset.contains(1_000_000), "{estimate:?}");
    assert!(
        (estimate.offset.middle() - 1_400_000).abs() < 20_000,
        "{estimate:?}"
    );
    assert!(
        estimate.offset.error() <= track.round_trip_min().unwrap() / 2 + Duration::from_micros(20)
    );
}

/// Over a minute, the drift becomes known much more precisely than the offset.
#[test]
fn drift_is_known_more_precisely_than_the_offset() {
    let pair = Pair {
        offset: -3e8,
        rate: 87e-6,
        swing: 0.0,
        delay: [50_000.0; 2],
        queues: 5_000.0,
    };
    let track = pair.track(1e12, 60, &mut Random::new(2));
    let [low, high] = track.estimate(Nanos(1_030_000_000_000)).unwrap().rate;
    assert!(
        low <= 87e-6 && 87e-6 <= high && high - low < 10e-6,
        "{low} to {high}"
    );
}

/// If a clock's rate follows the temperature over the day, no line fits all rounds, but the rounds of the last few
/// minutes give as good an estimate as in a short run.
#[test]
fn a_long_experiment_knows_a_clock_as_well_as_a_short_one() {
    let mut random = Random::new(5);
    let mut pair = Pair {
        offset: 2e8,
        rate: 20e-6,
        swing: 0.0,
        delay: [50_000.0; 2],
        queues: 5_000.0,
    };
    let (begin, mut track) = (1e12, ClockTrack::default());
    // Six hours in which the rate goes from 20 to 38 ppm.
    for second in 0..21_600 {
        let at = begin + f64::from(second) * 1e9;
        let rate = 20e-6 + 3e-6 * (f64::from(second) / 3600.0);
        pair.offset += (pair.rate - rate) * at;
        pair.rate = rate;
        track.add(pair.round(at, &mut random)).unwrap();
    }
    let now = begin + 21_599.5e9;
    let estimate = track.estimate(Nanos(now as u64)).unwrap();
    assert_eq!(estimate.model, RateModel::Constant, "{estimate:?}");
    assert!(
        estimate.offset.contains(pair.ahead(now).round() as i64),
        "{estimate:?}"
    );
    let width = (estimate.offset.high - estimate.offset.low) as f64;
    assert!(
        width <= 1.5 * track.round_trip_min().unwrap().as_nanos() as f64,
        "{width}"
    );
}

/// If NTP changes a clock's rate halfway, the intervals are wider but remain valid; a clock that is set has no
/// interval.
#[test]
fn a_slewed_clock_is_noticed_and_one_that_is_set_is_refused() {
    let check = |jump: f64, slew: f64| {
        let mut random = Random::new(3);
        let mut track = ClockTrack::default();
        let ahead = |at: f64| {
            if at < 5e9 {
                7e6
            } else {
                7e6 + jump + slew * (at - 5e9)
            }
        };
        for tenth in 0..100 {
            let at = f64::from(tenth) * 1e8;
            let (there, back) = (30_000.0 + random.exponential(1000.0), 30_000.0);
            let heard = at + there;
            let theirs = Nanos((heard + ahead(heard)) as u64);
            let back = Nanos((heard + back) as u64);
            track
                .add(ClockRound {
                    sent: Nanos(at as u64),
                    heard: theirs,
                    answered: theirs,
                    back,
                })
                .unwrap();
        }
        (track.estimate(Nanos(7_000_000_000)), ahead(7e9) as i64)
    };
    let (slewed, truth) = check(0.0, 400e-6);
    let slewed = slewed.unwrap();
    assert!(
        slewed.model == RateModel::Changing && slewed.offset.contains(truth),
        "{slewed:?} {truth}"
    );
    assert_eq!(check(50e6, 0.0).0, None);
    let (steady, truth) = check(0.0, 0.0);
    assert!(steady.unwrap().model == RateModel::Constant && steady.unwrap().offset.contains(truth));
}

/// Impossible times of every kind are rejected and counted.
#[test]
fn impossible_times_are_counted() {
    let round = |times: [u64; 4]| {
        let [sent, heard, answered, back] = times.map(Nanos);
        ClockRound {
            sent,
            heard,
            answered,
            back,
        }
    };
    let mut track = ClockTrack::default();
    assert_eq!(track.estimate(Nanos(5)), None);
    let impossible = [
        [10, 50, 40, 20],
        [10, 40, 60, 20],
        [1, u64::MAX, u64::MAX, 2],
        [u64::MAX - 1, 0, 0, u64::MAX],
        [20, 5, 5, 10],
    ];
    for times in impossible {
        assert!(track.add(round(times)).is_err(), "{times:?}");
    }
    assert_eq!(
        (track.rounds(), track.impossible(), track.estimate(Nanos(5))),
        (0, 5, None)
    );
    track.add(round([10, 115, 116, 20])).unwrap();
    let offset = track.estimate(Nanos(15)).unwrap().offset;
    // 96 to 105, widened by the clocks' possible drift over 5 ns and rounded outwards.
    assert_eq!(offset, ClockOffset { low: 95, high: 106 });
    assert_eq!(
        (offset.to_ours(Nanos(200)), offset.to_theirs(Nanos(100))),
        (Nanos(100), Nanos(200))
    );
}

/// Memory stays bounded and the estimate valid, however many rounds there are.
#[test]
fn memory_is_bounded_for_any_number_of_rounds() {
    let pair = Pair {
        offset: 4e8,
        rate: -35e-6,
        swing: 0.0,
        delay: [80_000.0, 40_000.0],
        queues: 20_000.0,
    };
    let (mut track, mut random) = (ClockTrack::default(), Random::new(4));
    for second in 0..5000 {
        track
            .add(pair.round(1e12 + f64::from(second) * 1e9, &mut random))
            .unwrap();
        assert!(track.at_most.len() <= BOUNDS_MAX && track.at_least.len() <= BOUNDS_MAX);
    }
    let at = 1e12 + 4821.5e9;
    let estimate = track.estimate(Nanos(at as u64)).unwrap();
    assert!(
        estimate.offset.contains(pair.ahead(at) as i64),
        "{estimate:?}"
    );
    assert!(
        estimate.offset.error() < Duration::from_micros(100),
        "{estimate:?}"
    );
}
