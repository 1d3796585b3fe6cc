//! The due times of an open loop's requests. Pure: times are relative to the start and depend only on the seed. A
//! closed loop doesn't use this.

use std::time::Duration;

use brunt_core::random::Random;
use brunt_core::{Histogram, Nanos};

use super::processes::{ArrivalProcess, Position};
use super::workload::Burst;

/// The due times of one worker, in order.
#[derive(Clone, Debug)]
pub struct ArrivalSchedule {
    process: ArrivalProcess,
    /// The next request; times are relative to the start.
    position: Position,
    random: Random,
    burst: Option<Burst>,
    burst_left: u64,
}

impl ArrivalSchedule {
    /// Creates the schedule of worker `worker` of `workers`, which together issue `rate` requests per second.
    pub fn new(
        rate: f64,
        process: ArrivalProcess,
        burst: Option<Burst>,
        seed: u64,
        worker: u32,
        workers: u32,
    ) -> ArrivalSchedule {
        let mut random = Random::for_part(seed, u64::from(worker) * 4 + 1);
        let mut position = Position {
            gap: 1e9 * f64::from(workers) / rate,
            first: 0.0,
            index: 0,
            at: 0.0,
            worker,
            workers,
        };
        position.first = process.first(&position, &mut random);
        position.at = position.first;
        let burst = burst.filter(|burst| !burst.interval.0.is_zero());
        let burst_left = burst.map_or(u64::MAX, |burst| burst.requests);
        ArrivalSchedule {
            process,
            position,
            random,
            burst,
            burst_left,
        }
    }

    /// Returns the due time of the next request, relative to the start.
    #[inline]
    pub fn due(&self) -> Nanos {
        Nanos(self.position.at as u64)
    }

    /// Changes the combined rate of all workers as of `now`, which is relative to the start.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) {
        let position = &mut self.position;
        position.gap = 1e9 * f64::from(position.workers) / rate;
        let next = self.process.first(position, &mut self.random);
        (position.first, position.index) = (now.0 as f64 + next, 0);
        position.at = position.first;
    }

    /// Advances to the next request.
    #[inline]
    pub fn advance(&mut self) {
        let position = &mut self.position;
        position.index += 1;
        position.at = self.process.next(position, &mut self.random);
        self.burst_left -= 1;
        if self.burst_left == 0
            && let Some(burst) = self.burst
        {
            self.burst_left = burst.requests;
            let pause = nanos(burst.interval.0);
            self.position.first += pause;
            self.position.at += pause;
        }
    }
}

/// Number of backlogged requests with exact due times; later ones are estimated from the rate.
const BACKLOG_EXACT: u32 = 1 << 14;
/// Number of distinct ages for the estimated requests.
const BACKLOG_AGES: u64 = 1 << 10;

impl ArrivalSchedule {
    /// Records the age of each request that is due at `now` but not yet taken; `now` is relative to the start.
    pub fn overdue(&self, now: Nanos, ages: &mut Histogram) {
        let mut ahead = self.clone();
        for _ in 0..BACKLOG_EXACT {
            if ahead.due() > now {
                return;
            }
            ages.record(Nanos(now.0 - ahead.due().0));
            ahead.advance();
        }
        let Some(span) = now.0.checked_sub(ahead.due().0) else {
            return;
        };
        let pause = self.burst.map_or(0.0, |burst| {
            nanos(burst.interval.0) / burst.requests.max(1) as f64
        });
        let left = (span as f64 / (self.position.gap + pause)) as u64 + 1;
        for part in 0..BACKLOG_AGES {
            let count = left * (part + 1) / BACKLOG_AGES - left * part / BACKLOG_AGES;
            let age = span as f64 * (part as f64 + 0.5) / BACKLOG_AGES as f64;
            if ages.record_bucket(Nanos(age as u64), count).is_err() {
                // The count exceeds what a histogram can hold, which takes nine years of load.
                return;
            }
        }
    }
}

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Span;

    fn times(schedule: &mut ArrivalSchedule, count: usize) -> Vec<u64> {
        let next = |schedule: &mut ArrivalSchedule| {
            let due = schedule.due().0;
            schedule.advance();
            due
        };
        (0..count).map(|_| next(schedule)).collect()
    }

    /// Requests at a constant rate are evenly spaced, also across workers, and don't drift.
    #[test]
    fn a_constant_rate_does_not_drift() {
        let schedule =
            |worker| ArrivalSchedule::new(1000.0, ArrivalProcess::Constant, None, 1, worker, 2);
        assert_eq!(times(&mut schedule(0), 3), [0, 2_000_000, 4_000_000]);
        assert_eq!(
            times(&mut schedule(1), 3),
            [1_000_000, 3_000_000, 5_000_000]
        );
        let mut third = ArrivalSchedule::new(3.0, ArrivalProcess::Constant, None, 1, 0, 1);
        assert_eq!(
            times(&mut third, 3_000_001)[3_000_000],
            1_000_000_000_000_000
        );
    }

    /// A Poisson process has the right mean and variance, and depends on its seed.
    #[test]
    fn a_poisson_process_has_its_mean_and_variance() {
        let schedule =
            |seed| ArrivalSchedule::new(10_000.0, ArrivalProcess::Poisson, None, seed, 0, 1);
        let all = times(&mut schedule(3), 200_001);
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 100_000.0).abs() < 1000.0, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02);
        assert_eq!(times(&mut schedule(3), 100), all[..100]);
        assert_ne!(times(&mut schedule(4), 100), all[..100]);
    }

    #[test]
    fn a_new_rate_applies_from_now_on() {
        let mut schedule = ArrivalSchedule::new(1000.0, ArrivalProcess::Constant, None, 1, 1, 2);
        assert_eq!(times(&mut schedule, 2), [1_000_000, 3_000_000]);
        schedule.set_rate(100.0, Nanos(4_000_000));
        assert_eq!(
            times(&mut schedule, 3),
            [14_000_000, 34_000_000, 54_000_000]
        );
        let mut slow = ArrivalSchedule::new(0.001, ArrivalProcess::Poisson, None, 1, 0, 1);
        slow.set_rate(1e6, Nanos(5));
        assert!(
            times(&mut slow, 1000)[999] < 2_000_000,
            "the old rate's schedule is discarded"
        );
    }

    /// The recorded backlog matches the requests that are due, including those whose ages are estimated.
    #[test]
    fn a_backlog_matches_the_requests_that_are_due() {
        let check = |rate: f64, process, burst, seconds: u64| {
            let mut schedule = ArrivalSchedule::new(rate, process, burst, 7, 0, 1);
            times(&mut schedule, 5);
            let now = Nanos(seconds * 1_000_000_000);
            let mut ages = Histogram::new();
            schedule.overdue(now, &mut ages);
            let mut expected = Histogram::new();
            while schedule.due() <= now {
                expected.record(Nanos(now.0 - schedule.due().0));
                schedule.advance();
            }
            let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} is not {b}");
            near(ages.count() as f64, expected.count() as f64);
            near(ages.mean().unwrap(), expected.mean().unwrap());
            assert_eq!(ages.max(), expected.max());
            if expected.count() <= u64::from(BACKLOG_EXACT) {
                assert_eq!(ages, expected);
            }
        };
        let burst = Burst {
            requests: 50,
            interval: Span(Duration::from_millis(20)),
        };
        for process in [ArrivalProcess::Constant, ArrivalProcess::Poisson] {
            check(1000.0, process, None, 2);
            check(100_000.0, process, None, 3);
            check(100_000.0, process, Some(burst), 20);
        }
    }

    /// Bursts of an open loop have the configured length and pause.
    #[test]
    fn bursts_have_their_length_and_pause() {
        let burst = Burst {
            requests: 2,
            interval: Span(Duration::from_millis(10)),
        };
        let mut schedule =
            ArrivalSchedule::new(1000.0, ArrivalProcess::Constant, Some(burst), 1, 0, 1);
        assert_eq!(
            times(&mut schedule, 5),
            [0, 1, 12, 13, 24].map(|ms| ms * 1_000_000)
        );
    }
}
