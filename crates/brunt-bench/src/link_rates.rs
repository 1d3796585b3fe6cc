//! The rates of `brunt-bench link`: TCP throughput over lines of 10 Mb/s to 10 Gb/s, compared with theory, on the idle
//! machine and with every core kept busy by the benchmark's own hogs.
//!
//! The rule: a line either carries its rate or reports a shortfall. A line that does neither fails the benchmark,
//! except at 10 Gb/s, where the sender may be too slow, so that rate is only shown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::Size;
use brunt_lab::Carrier;
use brunt_lab::link::{BitRate, Settings};
use serde_json::{Value, json};

use super::link::{LinkBench, Pair};
use super::sample::median;
use crate::{BenchError, Console};

/// Tested lines in bits per second, and whether an unreported shortfall fails the benchmark.
const RATES: [(u64, bool); 4] = [
    (10_000_000, true),
    (100_000_000, true),
    (1_000_000_000, true),
    (10_000_000_000, false),
];
/// TCP payload of a full packet with timestamps at an MTU of 1500, divided by the packet's size on the wire.
const PAYLOAD_SHARE: f64 = 1448.0 / 1538.0;
/// A line that carries less than this share of the theoretical rate falls short.
const KEPT: f64 = 0.95;
/// Hogs per core, so that a thread of normal priority waits for several others.
const HOGS_A_CORE: usize = 2;

/// Threads that keep every core busy until they are dropped.
struct Hogs {
    stop: std::sync::Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Hogs {
    fn start() -> Hogs {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box((0..1000u64).sum::<u64>());
                }
            })
        };
        let threads = (0..cores * HOGS_A_CORE).map(spin).collect();
        Hogs { stop, threads }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .drain(..)
            .for_each(|thread| drop(thread.join()));
    }
}

/// A queue of 100 ms at the line's rate, but at most the usual 1 MiB: at 10 Mb/s, TCP would take longer than a
/// measurement to recover from overfilling 1 MiB at the start.
fn queue(rate: u64) -> Size {
    Size((rate / 8 / 10).min(1 << 20))
}

impl LinkBench {
    /// Measures lines of each rate; those that fall short without reporting it are added to `wrong`.
    pub(super) fn rates(
        &self,
        output: &dyn Console,
        wrong: &mut Vec<String>,
    ) -> Result<Value, BenchError> {
        output.line(format_args!(
            "rate-limited lines, medians of {} runs of {} s: TCP payload, Mb/s     theory      seen",
            self.runs, self.seconds
        ));
        let mut rows = Vec::new();
        for busy in [false, true] {
            let hogs = busy.then(Hogs::start);
            for (rate, judged) in RATES {
                rows.push(self.rate(rate, judged, busy, output, wrong)?);
            }
            drop(hogs);
        }
        Ok(json!(rows))
    }

    fn rate(
        &self,
        rate: u64,
        judged: bool,
        busy: bool,
        output: &dyn Console,
        wrong: &mut Vec<String>,
    ) -> Result<Value, BenchError> {
        let settings = Settings {
            rate: Some(BitRate(rate)),
            queue: Some(queue(rate)),
            ..Settings::default()
        };
        let (mut seen, mut all_doubts, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.runs {
            if output.is_interrupted() {
                return Err(BenchError::interrupted(
                    "interrupted before all runs were done",
                ));
            }
            let pair =
                Pair::new(&settings, Carrier::Brunt, self.seed).map_err(BenchError::failed)?;
            let bytes = pair
                .tcp(1, Duration::from_secs(self.seconds))
                .map_err(BenchError::failed)?;
            let doubts: Vec<String> = pair
                .report()?
                .trouble()
                .into_iter()
                .map(|doubt| doubt.what)
                .collect();
            seen.push(bytes * 8.0 / 1e6);
            runs.push(json!({ "seen_megabits": bytes * 8.0 / 1e6, "said": doubts }));
            all_doubts.push(doubts);
        }
        let theory = rate as f64 / 1e6 * PAYLOAD_SHARE;
        let short = Shortfalls::of(&seen, &all_doubts, theory);
        let all_doubts = all_doubts.concat();
        let seen = median(&seen);
        let share = seen / theory;
        let machine = if busy { "busy" } else { "idle" };
        let first = all_doubts.first().map_or("", String::as_str);
        output.line(format_args!(
            "  {:<12} machine {machine:<32} {theory:>11.1} {seen:>9.1} ({:.1} %) {short}{first}",
            BitRate(rate).to_string(),
            share * 100.0
        ));
        if judged && share < KEPT && all_doubts.is_empty() {
            wrong.push(format!(
                "a line of {} carried {:.1} % of the expected rate (machine {machine}) without \
                 reporting it",
                BitRate(rate),
                share * 100.0
            ));
        }
        Ok(
            json!({ "rate_bits": rate, "busy": busy, "theory_megabits": theory, "seen_megabits": seen,
            "share": share, "said": all_doubts, "short": short.count, "short_and_said": short.reported, "runs": runs }),
        )
    }
}

/// Runs that carried less than [`KEPT`] of the theoretical rate, and how many of them reported that.
struct Shortfalls {
    count: usize,
    reported: usize,
}

impl Shortfalls {
    fn of(seen: &[f64], all_doubts: &[Vec<String>], theory: f64) -> Shortfalls {
        let short = || {
            seen.iter()
                .zip(all_doubts)
                .filter(|(seen, _)| **seen < theory * KEPT)
        };
        Shortfalls {
            count: short().count(),
            reported: short().filter(|(_, doubts)| !doubts.is_empty()).count(),
        }
    }
}

impl std::fmt::Display for Shortfalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            0 => Ok(()),
            count => write!(f, "{count} short, {} of them reported; ", self.reported),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run falls short below 95 % of theory; any message counts as a report.
    #[test]
    fn a_run_below_95_percent_of_theory_falls_short() {
        let line = |doubt: &str| {
            if doubt.is_empty() {
                Vec::new()
            } else {
                vec![doubt.to_string()]
            }
        };
        let check = |runs: &[(f64, &str)], expected: &str| {
            let seen: Vec<f64> = runs.iter().map(|run| run.0).collect();
            let all_doubts: Vec<_> = runs.iter().map(|run| line(run.1)).collect();
            assert_eq!(
                Shortfalls::of(&seen, &all_doubts, 100.0).to_string(),
                expected,
                "{runs:?}"
            );
        };
        check(&[(96.0, ""), (99.0, "late")], "");
        check(
            &[(94.0, ""), (90.0, "late"), (99.0, "late")],
            "2 short, 1 of them reported; ",
        );
    }
}
