//! Estimates clocks whose true offsets are known. Each estimate is made like a controller's first one: from sixteen
//! rounds over the connection to the agent, without earlier data.

use brunt_core::{Clock, Nanos};
use brunt_host::{ClockEstimate, ClockTrack, HostNews, RemoteHost};
use serde_json::{Value, json};

use super::LinkKind;
use super::testbed::{Testbed, TestbedHost};
use crate::{BenchError, Console};

/// Rounds per estimate: as many as `brunt run` makes before the first run.
const ROUNDS: u32 = 16;
/// Minimum share of estimates that must contain the true offset.
const HELD_MIN: f64 = 0.99;

/// Makes estimates for all hosts concurrently, over links of this kind.
pub(super) fn measure(
    testbed: &Testbed,
    link: &LinkKind,
    estimates: u32,
    output: &dyn Console,
    wrong: &mut Vec<String>,
) -> Result<Value, BenchError> {
    let of_each = estimates.div_ceil(testbed.hosts.len() as u32);
    let found: Vec<Result<Vec<ClockEstimate>, BenchError>> = testbed.on_controller(|| {
        Ok(std::thread::scope(|scope| {
            let threads: Vec<_> = testbed
                .hosts
                .iter()
                .map(|host| scope.spawn(|| estimates_of(testbed, host, of_each)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("estimation does not panic"))
                .collect()
        }))
    })?;
    let (mut held, mut errors, mut off) = (0usize, Vec::new(), Vec::new());
    for (host, found) in testbed.hosts.iter().zip(found) {
        for estimate in found? {
            held += usize::from(estimate.offset.contains(host.shift_ns));
            errors.push(estimate.offset.error().as_nanos() as f64 / 1e3);
            off.push((estimate.offset.middle() - host.shift_ns).unsigned_abs() as f64 / 1e3);
        }
    }
    errors.sort_by(f64::total_cmp);
    off.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let half_difference_us = link.there.abs_diff(link.back).as_nanos() as f64 / 2e3;
    output.line(format_args!(
        "  {:<26} {:>9} {held:>12} {:>14.1} {:>7.1} {:>19.1} {:>7.1}",
        link.name,
        errors.len(),
        at(&errors, 0.5),
        at(&errors, 0.99),
        at(&off, 0.5),
        at(&off, 0.99)
    ));
    if (held as f64) < HELD_MIN * errors.len() as f64 {
        wrong.push(format!(
            "{}: {held} of {} estimates contain the true offset",
            link.name,
            errors.len()
        ));
    }
    Ok(json!({
        "link": link.name,
        "estimates": errors.len(),
        "held": held,
        "error_us": { "p50": at(&errors, 0.5), "p99": at(&errors, 0.99) },
        "middle_off_us": { "p50": at(&off, 0.5), "p99": at(&off, 0.99) },
        "invisible_us": half_difference_us,
    }))
}

/// Makes `count` estimates for one host.
fn estimates_of(
    testbed: &Testbed,
    host: &TestbedHost,
    count: u32,
) -> Result<Vec<ClockEstimate>, BenchError> {
    let failed =
        |error: &dyn std::fmt::Display| BenchError::failed(format!("host {}: {error}", host.name));
    let mut remote = RemoteHost::connect(&host.place.address, &testbed.options(host)?)
        .map_err(|error| failed(&error))?;
    let mut estimates = Vec::new();
    for _ in 0..count {
        let mut track = ClockTrack::default();
        while track.rounds() < u64::from(ROUNDS) {
            remote.ask_clock().map_err(|error| failed(&error))?;
            loop {
                let news = remote.receive(Nanos::MAX).map_err(|error| failed(&error))?;
                if let Some(HostNews::Clock { monotonic, .. }) = news {
                    track.add(monotonic).map_err(|error| failed(&error))?;
                    break;
                }
            }
        }
        let estimate = track.estimate(Clock::Monotonic.now());
        estimates
            .push(estimate.ok_or_else(|| failed(&"its clock was set during the measurement"))?);
    }
    Ok(estimates)
}
