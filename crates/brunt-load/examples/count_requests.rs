//! How many instructions does one request cost the engine? Run it under an instruction-counting tool with two
//! different numbers of requests: the slope is the cost per request, excluding startup and shutdown.
//!
//!     valgrind --tool=callgrind target/release/examples/count_requests URL WORKLOAD REQUESTS
//!
//! WORKLOAD is TOML, for example 'queue_depth = 32', or for a replay 'trace = "x.vscsi"', 'timing = "depth"' and
//! other keys on separate lines. For a replay, the count includes reading the trace; the slope excludes the survey
//! before the start, whose cost doesn't depend on the number of requests.

use std::sync::atomic::AtomicBool;

use brunt_block::open_url;
use brunt_load::load::{LoadTarget, RunOrder};
use brunt_load::replay::ReplayLoad;
use brunt_load::{NoRecorder, Session, Workload, decisions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("{what} is missing"));
    let (url, text, requests) = (next("URL")?, next("WORKLOAD")?, next("REQUESTS")?);
    let workload: Workload =
        toml::from_str(&format!("{text}\nstop = {{ requests = {requests} }}"))?;
    workload.check()?;
    let (device, stop) = (open_url(&url)?, AtomicBool::new(false));
    let outcome = match workload.trace {
        None => Session::new(workload, device, 1).run(&stop, &mut NoRecorder)?,
        Some(_) => {
            let (load, on) = (ReplayLoad::new(workload, &[]), LoadTarget::of(device));
            decisions::run(&load, &on, &RunOrder::alone(1), &stop, &mut NoRecorder)?.outcome
        }
    };
    println!(
        "{} {:.0}",
        outcome.figures.completed(),
        outcome.requests_per_second
    );
    Ok(())
}
