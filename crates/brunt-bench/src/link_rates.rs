//! `brunt bench link`, rates: what TCP gets through lines of 10 Mb/s to 10 Gb/s against theory, on the machine as it is
//! and with every core taken by hogs that the bench starts itself.
//!
//! The rule: a line carries what it promises or says that it does not. One that does neither fails the bench; at 10 Gb/s
//! the sender may be what is too slow, so that rate is only shown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brunt_core::Size;
use brunt_lab::Carrier;
use brunt_lab::link::{BitRate, Settings};
use serde_json::{Value, json};

use super::link::{LinkBench, Pair};
use super::sample::median;
use crate::{BenchError, Console};

/// Lines that are tried, in bits a second, and whether a shortfall that nobody mentions fails the bench.
const RATES: [(u64, bool); 4] =
    [(10_000_000, true), (100_000_000, true), (1_000_000_000, true), (10_000_000_000, false)];
/// TCP payload of a full packet at an MTU of 1500, with timestamps, of what the packet takes on the wire.
const PAYLOAD_SHARE: f64 = 1448.0 / 1538.0;
/// A line that carries less than this share of theory falls short.
const KEPT: f64 = 0.95;
/// Hogs for each core, so that a thread of usual priority waits for several others.
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
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// What 100 ms of a line hold, and no more than usual: at 10 Mb/s TCP takes longer than a measurement to get over the loss
/// of what it first sends too much into 1 MiB.
fn queue(rate: u64) -> Size {
    Size((rate / 8 / 10).min(1 << 20))
}

impl LinkBench {
    /// What lines of each rate carry; those that fall short in silence are added to `wrong`.
    pub(super) fn rates(&self, output: &dyn Console, wrong: &mut Vec<String>) -> Result<Value, BenchError> {
        output.line(format_args!(
            "lines with a rate, medians of {} runs of {} s: TCP payload, Mb/s      theory      seen",
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
        let settings =
            Settings { rate: Some(BitRate(rate)), queue: Some(queue(rate)), ..Settings::default() };
        let (mut seen, mut said) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            if output.is_interrupted() {
                return Err(BenchError::failed("interrupted before all runs were done"));
            }
            let pair = Pair::new(&settings, Carrier::Brunt, self.seed).map_err(BenchError::failed)?;
            let bytes = pair.tcp(1, Duration::from_secs(self.seconds)).map_err(BenchError::failed)?;
            seen.push(bytes * 8.0 / 1e6);
            said.extend(pair.report()?.trouble().into_iter().map(|doubt| doubt.what));
        }
        let (theory, seen) = (rate as f64 / 1e6 * PAYLOAD_SHARE, median(&seen));
        let share = seen / theory;
        let machine = if busy { "busy" } else { "as it is" };
        let first = said.first().map_or("", String::as_str);
        output.line(format_args!(
            "  {:<12} machine {machine:<32} {theory:>11.1} {seen:>9.1} ({:.1} %) {first}",
            BitRate(rate).to_string(),
            share * 100.0
        ));
        if judged && share < KEPT && said.is_empty() {
            wrong.push(format!(
                "a line of {} carried {:.1} % of what it should (machine {machine}), and did not say so",
                BitRate(rate),
                share * 100.0
            ));
        }
        Ok(json!({ "rate_bits": rate, "busy": busy, "theory_megabits": theory, "seen_megabits": seen,
            "share": share, "said": said }))
    }
}
