//! What does one request cost the generator? Null device, depth 32, interval histograms enabled.
//!
//!     cargo run --release -p brunt-load --example null_rate [SECONDS]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_block::open_url;
use brunt_core::Span;
use brunt_load::block::workload::{StopCondition, Workload};
use brunt_load::{NoRecorder, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(Ok(2.0), |text| text.parse())?;
    let devices = ["null:1GiB", "null:1GiB?fill=no"];
    for (url, depth) in devices
        .into_iter()
        .flat_map(|url| [1, 32, 256].map(|depth| (url, depth)))
    {
        let workload = Workload {
            queue_depth: depth,
            stop: StopCondition {
                time: Some(Span(Duration::from_secs_f64(seconds))),
                ..StopCondition::default()
            },
            ..Workload::default()
        };
        let outcome = Session::new(workload, open_url(url)?, 1)
            .run(&AtomicBool::new(false), &mut NoRecorder)?;
        let cpu = outcome.figures.cost.cpu_nanos() as f64 / outcome.figures.completed() as f64;
        let calls = outcome.figures.cost.system_calls as f64 / outcome.figures.completed() as f64;
        println!(
            "{url:<18} depth {depth:>3}: {:.2} M requests/s, {cpu:.0} ns CPU and {calls:.6} system calls each",
            outcome.requests_per_second / 1e6
        );
    }
    Ok(())
}
