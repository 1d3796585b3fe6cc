//! `brunt agent clock`: measures the clock offset and drift of other hosts relative to this machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brunt_core::{Clock, Span};
use brunt_host::{
    ClockEstimate, ClockOffset, ConnectOptions, HostAddress, HostError, HostNews, RateModel,
    RemoteHost,
};
use serde_json::{Value, json};

use super::reach::ReachArgs;
use crate::cli::{Done, Failure, Output};

/// Measurement rounds without pauses, at the start and again at the end.
const BURST: u32 = 16;
/// Maximum pause between the other rounds.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Pause between attempts to connect to an agent that isn't listening yet.
const WAIT_PAUSE: Duration = Duration::from_millis(250);

/// Compare the clocks of other hosts with this machine's: offset, drift and their uncertainty
///
/// Reads the clocks of each host many times through an agent. The true offset always lies between the two bounds,
/// even if network delays differ between the two directions; it is known to within half the shortest round trip.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # two hosts for ten seconds\n  brunt agent clock ssh:node7 ssh:root@node8 --for \
                  10s\n\n  # this machine against itself: the smallest possible error\n  brunt agent clock local"
)]
pub struct ClockArgs {
    #[command(flatten)]
    reach: ReachArgs,

    /// How long to measure; a longer time gives a more precise drift
    #[arg(long = "for", value_name = "TIME", default_value = "3s")]
    time: Span,

    /// Keep trying this long to reach agents that do not listen yet and host names that do not resolve yet
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
}

/// The result for one host.
struct HostClock {
    program: String,
    name: String,
    /// Offset and drift of the host's monotonic clock.
    estimate: Option<ClockEstimate>,
    /// Offset of the host's wall clock from this machine's.
    wall: Option<ClockOffset>,
    rounds: u64,
    round_trip: Duration,
    bytes: [u64; 2],
    notes: Vec<String>,
}

/// Queries all hosts in parallel and prints the results.
pub fn run(args: &ClockArgs, output: &Output) -> Done {
    let (addresses, options) = (args.reach.addresses()?, args.reach.options()?);
    let stop = output.interrupt_flag();
    let options = &options;
    let results: Vec<Result<HostClock, HostError>> = std::thread::scope(|scope| {
        let ask = |address| scope.spawn(move || measure(address, options, args, stop));
        let threads: Vec<_> = addresses.iter().map(ask).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a query does not panic"))
            .collect()
    });
    let mut lost = 0;
    let mut list = Vec::new();
    for (address, result) in addresses.iter().zip(&results) {
        match result {
            Ok(found) => print(address, found, output),
            Err(error) => {
                lost += 1;
                output.note(format_args!("{address}: {error}"));
            }
        }
        list.push(as_json(address, result));
    }
    output.object(&json!({ "hosts": list }));
    match lost {
        0 => Ok(()),
        lost => Err(Failure::failed(format!(
            "{lost} of {} hosts could not be reached",
            addresses.len()
        ))),
    }
}

/// Connects to a host, retrying for this long while nothing listens on it.
fn connect(
    address: &HostAddress,
    options: &ConnectOptions,
    wait: Duration,
    stop: &AtomicBool,
) -> Result<RemoteHost, HostError> {
    let begin = Instant::now();
    loop {
        match RemoteHost::connect(address, options) {
            Err(HostError::Connect { .. })
                if begin.elapsed() < wait && !stop.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(WAIT_PAUSE);
            }
            answer => return answer,
        }
    }
}

fn measure(
    address: &HostAddress,
    options: &ConnectOptions,
    args: &ClockArgs,
    stop: &AtomicBool,
) -> Result<HostClock, HostError> {
    let time = args.time.0;
    let mut host = connect(address, options, args.wait.0, stop)?;
    let mut notes = Vec::new();
    let mut hear = |news| {
        if let HostNews::Note(note) = news {
            notes.push(note);
        }
    };
    let clock = Clock::Monotonic;
    for _ in 0..BURST {
        host.clock_round(&mut hear)?;
    }
    let begin = clock.now();
    while clock.now().since(begin) < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE_MAX.min(time.saturating_sub(clock.now().since(begin))));
        host.clock_round(&mut hear)?;
    }
    for _ in 0..BURST {
        host.clock_round(&mut hear)?;
    }
    // Reads this machine's wall clock between two readings of its monotonic clock.
    let before = clock.now();
    let our_wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos() as i64;
    let after = clock.now();
    let wall = host.wall().estimate(after).map(|wall| ClockOffset {
        low: wall.offset.low - (our_wall - before.0 as i64),
        high: wall.offset.high - (our_wall - after.0 as i64),
    });
    Ok(HostClock {
        program: host.program().to_string(),
        name: host.clock_name().to_string(),
        estimate: host.monotonic().estimate(after),
        wall,
        rounds: host.monotonic().rounds(),
        round_trip: host.monotonic().round_trip_min().unwrap_or_default(),
        bytes: host.bytes(),
        notes,
    })
}

fn print(address: &HostAddress, found: &HostClock, output: &Output) {
    let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
    output.line(format_args!("{address} ({})", found.program));
    match found.wall {
        Some(wall) => output.line(format_args!(
            "  wall clock  {:+.3} ms, ± {}",
            wall.middle() as f64 / 1e6,
            ms(wall.error().as_nanos() as f64)
        )),
        None => output.line("  wall clock  was set during the measurement: no offset"),
    }
    match &found.estimate {
        Some(estimate) => {
            let [low, high] = estimate.rate.map(|rate| rate * 1e6);
            output.line(format_args!(
                "  monotonic   {:+.6} s, ± {}",
                estimate.offset.middle() as f64 / 1e9,
                ms(estimate.offset.error().as_nanos() as f64)
            ));
            match estimate.model {
                RateModel::Constant => {
                    output.line(format_args!("  drift       {low:+.1} to {high:+.1} ppm"))
                }
                RateModel::Changing => output
                    .line("  drift       changed during the measurement: a clock is being slewed"),
            }
        }
        None => output.line(
            "  monotonic   jumped during the measurement (was the machine suspended?): no offset",
        ),
    }
    output.line(format_args!(
        "  round trip  {}, the shortest of {} rounds",
        ms(found.round_trip.as_nanos() as f64),
        found.rounds
    ));
    for note in &found.notes {
        output.note(format_args!("{address}: {note}"));
    }
}

fn as_json(address: &HostAddress, result: &Result<HostClock, HostError>) -> Value {
    let found = match result {
        Ok(found) => found,
        Err(error) => return json!({ "host": address.to_string(), "error": error.to_string() }),
    };
    let offset = |offset: ClockOffset| json!({ "low": offset.low, "high": offset.high });
    json!({
        "host": address.to_string(),
        "program": found.program,
        "clock": found.name,
        "offset_ns": found.estimate.map(|estimate| offset(estimate.offset)),
        "wall_offset_ns": found.wall.map(offset),
        "drift_ppm": found.estimate.map(|estimate| estimate.rate.map(|rate| rate * 1e6)),
        "drift_is_constant": found.estimate.map(|estimate| estimate.model == RateModel::Constant),
        "rounds": found.rounds,
        "round_trip_ns": u64::try_from(found.round_trip.as_nanos()).unwrap_or(u64::MAX),
        "sent_bytes": found.bytes[0],
        "received_bytes": found.bytes[1],
        "notes": found.notes,
    })
}
