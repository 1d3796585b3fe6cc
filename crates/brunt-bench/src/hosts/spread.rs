//! Measures how far apart the workers of eight hosts start, alternating with bare processes that sleep until the same
//! time.
//!
//! The rule: the time of a host's start is computed with the true offset of its clock, which is known here, so the
//! error of the clock's estimate is part of the spread. Brunt's own estimate of the spread is printed next to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_core::Clock;
use brunt_host::{Fleet, HostLoad};
use brunt_load::block::BlockLoad;
use brunt_load::load::{LoadTarget, RunOrder};
use brunt_load::{Load, NoRecorder, Workload, decisions};
use brunt_result::hosts::{HostFigures, StartSpread};
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use serde_json::{Value, json};

use super::testbed::{PATIENCE, PROGRAM, Testbed};
use crate::cleanup::Start;
use crate::peers::Guarded;
use crate::sample::median;
use crate::{BenchError, Console};

/// How long before their start time bare processes are launched: the same lead time as hosts get, and longer than a
/// program takes to load.
const NOTICE: Duration = Duration::from_millis(600);

/// A bare process prints its wake-up time and exits only this much later, so that the first one to wake up takes no
/// CPU time from the rest.
const APART: Duration = Duration::from_millis(100);

/// Sleeps until this time on `CLOCK_MONOTONIC`, in nanoseconds, and returns when this thread woke up. Returns only
/// after the other processes that slept until the same time have woken up, too.
///
/// # Errors
/// The time is invalid.
pub fn sleep_until(at: u64) -> Result<u64, BenchError> {
    let time = Timespec {
        tv_sec: (at / 1_000_000_000) as i64,
        tv_nsec: (at % 1_000_000_000) as _,
    };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &time) {
            Ok(()) => {
                let woke = Clock::Monotonic.now().0;
                std::thread::sleep(APART);
                return Ok(woke);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(BenchError::failed(error)),
        }
    }
}

/// The result of one round with the hosts, in microseconds.
struct HostsStarted {
    /// The true time between the first and the last start.
    spread: f64,
    /// How late the last host started, relative to the agreed time.
    last: f64,
    /// Brunt's estimate of the spread.
    estimate: StartSpread,
}

/// Runs the rounds of both sides: the hosts, and bare processes.
pub(super) fn measure(
    testbed: &Testbed,
    rounds: u32,
    output: &dyn Console,
) -> Result<Value, BenchError> {
    let load = load_on(testbed);
    let (mut bare, mut bare_last, mut started) = (Vec::new(), Vec::new(), Vec::new());
    let open = || {
        load.open(&LoadTarget::default(), &AtomicBool::new(false))
            .map_err(BenchError::failed)
    };
    // Connections stay in the namespace where they were opened, so only opening them has to run there.
    testbed.on_controller(open)?;
    for round in 0..rounds {
        if output.is_interrupted() {
            return Err(BenchError::interrupted("interrupted"));
        }
        let (spread, last) = start_bare(testbed)?;
        bare.push(spread);
        bare_last.push(last);
        started.push(start_hosts(testbed, &load, u64::from(round))?);
    }
    Ok(report(testbed, [&bare, &bare_last], &started, output))
}

/// A load with a worker on each host.
fn load_on(testbed: &Testbed) -> HostLoad {
    let places = testbed
        .hosts
        .iter()
        .map(|host| (host.name.clone(), host.place.clone()));
    let places: BTreeMap<_, _> = places.collect();
    let hosts = testbed.hosts.iter().map(|host| host.name.clone()).collect();
    let mut workload = Workload {
        hosts,
        ..Workload::default()
    };
    // One request per worker, answered after all workers have woken up, so that the first to wake up takes no CPU
    // time from the rest.
    workload.stop.requests = Some(testbed.hosts.len() as u64);
    let fleet = Arc::new(Fleet::new(PROGRAM.into(), places, false, PATIENCE));
    HostLoad::new(
        Arc::new(BlockLoad::new(workload)),
        "memory:1MiB?delay=const:100ms".into(),
        false,
        fleet,
    )
}

/// Prints and returns the figures of both sides; for bare processes, the spread and the lateness of the last one.
fn report(
    testbed: &Testbed,
    [bare, bare_last]: [&[f64]; 2],
    started: &[HostsStarted],
    output: &dyn Console,
) -> Value {
    let rounds = started.len();
    let spreads: Vec<f64> = started.iter().map(|one| one.spread).collect();
    let lasts: Vec<f64> = started.iter().map(|one| one.last).collect();
    let held = started
        .iter()
        .filter(|one| (one.estimate.spread_us - one.spread).abs() <= one.estimate.error_us)
        .count();
    let error = median(
        &started
            .iter()
            .map(|one| one.estimate.error_us)
            .collect::<Vec<_>>(),
    );
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let beyond = median(&spreads) - median(bare);
    output.line(format_args!(
        "starts of {} in {rounds} rounds, interleaved  spread us p50      max   last after us p50",
        testbed.hosts.len()
    ));
    for (name, spread, last) in [
        ("bare processes", bare, bare_last),
        ("workers of hosts", &spreads, &lasts),
    ] {
        output.line(format_args!(
            "  {name:<40} {:>15.1} {:>8.1} {:>19.1}",
            median(spread),
            most(spread),
            median(last)
        ));
    }
    output.line(format_args!(
        "  more than bare processes: {beyond:.1} us; the spread reported by brunt is within its ± \
         {error:.1} us of the truth in {held} of {rounds} rounds"
    ));
    json!({
        "rounds": rounds,
        "bare_us": bare,
        "hosts_us": spreads,
        "beyond_us": beyond,
        "told_us": started.iter().map(|one| one.estimate.spread_us).collect::<Vec<_>>(),
        "told_error_us": error,
        "told_held": held,
    })
}

/// Starts a bare process on each host; returns the spread and the lateness of the last one.
fn start_bare(testbed: &Testbed) -> Result<(f64, f64), BenchError> {
    let at = Clock::Monotonic.now().after(NOTICE);
    let mut sleepers = Vec::new();
    for host in &testbed.hosts {
        let mut sleeper = Command::new(std::env::current_exe().map_err(BenchError::failed)?);
        sleeper.args(["hosts", &format!("--sleep-until={}", at.0)]);
        sleeper.stdin(Stdio::null()).stdout(Stdio::piped());
        host.host.place(&mut sleeper).map_err(BenchError::failed)?;
        let mut child = sleeper.start().map_err(BenchError::failed)?;
        let stdout = child.stdout.take().expect("piped");
        sleepers.push((Guarded::of(child), BufReader::new(stdout)));
    }
    if Clock::Monotonic.now() >= at {
        return Err(BenchError::failed(
            "bare processes take too long to start: this machine is too busy",
        ));
    }
    let mut late = Vec::new();
    for (_process, mut stdout) in sleepers {
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(BenchError::failed)?;
        let woke: u64 = line.trim().parse().map_err(BenchError::failed)?;
        late.push(woke.saturating_sub(at.0) as f64 / 1e3);
    }
    late.sort_by(f64::total_cmp);
    Ok((late[late.len() - 1] - late[0], late[late.len() - 1]))
}

/// Starts the hosts' workers as an experiment does.
fn start_hosts(testbed: &Testbed, load: &HostLoad, run: u64) -> Result<HostsStarted, BenchError> {
    let order = RunOrder {
        run,
        ..RunOrder::alone(run + 1)
    };
    let never = AtomicBool::new(false);
    let ran = decisions::run(
        load,
        &LoadTarget::default(),
        &order,
        &never,
        &mut NoRecorder,
    );
    let hosts = ran.map_err(BenchError::failed)?.finished.hosts;
    let missing = || BenchError::failed("a host sent no requests");
    let truly = |(figures, host): (&HostFigures, &super::testbed::TestbedHost)| {
        let ([low, high], began) = (figures.clock_ahead_ns?, figures.began_us?);
        let middle = low + (high - low) / 2;
        // Computed with the middle of the interval, whose error is known here.
        Some(began + (middle - host.shift_ns) as f64 / 1e3)
    };
    let began: Option<Vec<f64>> = hosts.iter().zip(&testbed.hosts).map(truly).collect();
    let mut began = began.ok_or_else(missing)?;
    began.sort_by(f64::total_cmp);
    let estimate = StartSpread::of(&hosts).ok_or_else(missing)?;
    let last = began[began.len() - 1];
    Ok(HostsStarted {
        spread: last - began[0],
        last,
        estimate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_wakes_after_its_time() {
        let at = Clock::Monotonic.now().after(Duration::from_millis(5));
        assert!(sleep_until(at.0).unwrap() >= at.0);
        assert!(sleep_until(1).unwrap() > at.0, "at once");
    }
}
