//! How accurate are measured latencies? Runs closed and open loops against delayed devices of known service time, and
//! prints mean and p99 next to the expected values.
//!
//!     cargo run --release -p brunt-load --example accuracy [SECONDS]
//!
//! A line is "ok" if it is within 2 % or 3 µs of the expected value. For exponential delays, p99 has a sampling error,
//! which is also printed.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_block::open_url;
use brunt_core::{Histogram, Span};
use brunt_load::block::processes::ArrivalProcess;
use brunt_load::block::workload::{Arrival, StopCondition, Workload};
use brunt_load::{NoRecorder, Session};

const SHARE_MAX: f64 = 0.02;
const NANOS_MAX: f64 = 3000.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(Ok(2.0), |text| text.parse())?;
    println!("service time      loop    depth  requests       mean  (truth)      p99  (truth)");
    let mut bad = 0;
    // Enough requests outstanding for a good sample, few enough that the worker keeps up.
    for (micros, depth) in [(10u64, 1u32), (100, 4), (1000, 16), (10_000, 256)] {
        for law in ["const", "exp"] {
            for open in [false, true] {
                let rate = 0.5 * f64::from(depth) * 1e6 / micros as f64;
                let skip_after = Span(Duration::from_secs(10));
                let arrival = match open {
                    true => Arrival::Open {
                        rate,
                        process: ArrivalProcess::Poisson,
                        skip_after,
                    },
                    false => Arrival::Closed {},
                };
                let workload = Workload {
                    // An open loop needs headroom for fluctuations: 16 times the mean number outstanding.
                    queue_depth: if open { (8 * depth).max(64) } else { depth },
                    arrival,
                    stop: StopCondition {
                        time: Some(Span(Duration::from_secs_f64(seconds))),
                        ..StopCondition::default()
                    },
                    ..Workload::default()
                };
                let backend = open_url(&format!("null:1GiB?delay={law}:{micros}us"))?;
                let outcome = Session::new(workload, backend, 1)
                    .run(&AtomicBool::new(false), &mut NoRecorder)?;
                let response = outcome.figures.response();
                bad += report(law, micros, open, depth, &response);
            }
        }
    }
    println!("{bad} of 16 outside 2 % and 3 µs");
    Ok(())
}

/// Prints one result; returns 1 if it is outside the tolerance.
fn report(law: &str, micros: u64, open: bool, depth: u32, response: &Histogram) -> u32 {
    let mean_true = micros as f64 * 1e3;
    let exponential = law == "exp";
    let p99_true = if exponential {
        mean_true * 100f64.ln()
    } else {
        mean_true
    };
    let mean = response.mean().unwrap_or(f64::NAN);
    let p99 = response
        .percentile(99.0)
        .map_or(f64::NAN, |nanos| nanos.0 as f64);
    let count = response.count() as f64;
    // Standard error of the p-quantile: sqrt(p (1-p) / n) / density; here density = 0.01 / mean.
    let sampling = if exponential {
        (0.99 * 0.01 / count).sqrt() / 0.01 * mean_true
    } else {
        0.0
    };
    let mean_sampling = if exponential {
        mean_true / count.sqrt()
    } else {
        0.0
    };
    let within = |got: f64, truth: f64, sampling: f64| {
        (got - truth).abs() <= (SHARE_MAX * truth).max(NANOS_MAX) + 2.0 * sampling
    };
    let ok = within(mean, mean_true, mean_sampling) && within(p99, p99_true, sampling);
    println!(
        "{law:>5}:{micros:>6}us  {:>8}  {depth:>6}  {count:>8}  {:>8.1}us {:>8.1}  {:>8.1}us {:>8.1} ±{:.1}  {}",
        if open { "open" } else { "closed" },
        mean / 1e3,
        mean_true / 1e3,
        p99 / 1e3,
        p99_true / 1e3,
        2.0 * sampling / 1e3,
        if ok { "ok" } else { "OFF" },
    );
    u32::from(!ok)
}
