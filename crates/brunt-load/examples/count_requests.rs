//! How many instructions does one request cost the engine? Run it under a tool that counts them, with two numbers of
//! requests: the slope is a request's cost, without start and end.
//!
//!     valgrind --tool=callgrind target/release/examples/count_requests URL WORKLOAD REQUESTS
//!
//! WORKLOAD is TOML, for example 'queue_depth = 32'.

use std::sync::atomic::AtomicBool;

use brunt_block::open_url;
use brunt_load::{NoRecorder, Session, Workload};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("{what} is missing"));
    let (url, text, requests) = (next("URL")?, next("WORKLOAD")?, next("REQUESTS")?);
    let workload: Workload = toml::from_str(&format!("{text}\nstop = {{ requests = {requests} }}"))?;
    let outcome = Session::new(workload, open_url(&url)?, 1).run(&AtomicBool::new(false), &mut NoRecorder)?;
    println!("{}", outcome.figures.completed());
    Ok(())
}
