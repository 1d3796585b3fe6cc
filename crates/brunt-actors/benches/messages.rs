//! How many messages per second do actors exchange? Run with `cargo bench -p brunt-actors`, or compare with Go and
//! Erlang: `brunt-bench actors`.

use brunt_actors::Placement;
use brunt_actors::bench::{BenchConfig, BenchPattern, run};

fn main() {
    let messages = std::env::var("MESSAGES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000_000);
    let only = std::env::var("ONLY").unwrap_or_default();
    for pattern in [
        BenchPattern::Ring,
        BenchPattern::RingAcross,
        BenchPattern::AllToAll,
    ] {
        for (schedulers, placement) in [
            (1, Placement::Anywhere),
            (2, Placement::Anywhere),
            (2, Placement::Core),
        ] {
            let name = format!("{pattern:?} {schedulers} {placement:?}");
            if !name.contains(&only) {
                continue;
            }
            let outcome = run(BenchConfig {
                pattern,
                schedulers,
                placement,
                messages,
            });
            let all = outcome.snapshot.schedulers;
            let sum = |field: fn(&brunt_actors::SchedulerStats) -> u64| {
                all.iter().map(field).sum::<u64>()
            };
            println!(
                "{name:24} {:6.1} M/s   {:5.1} messages/activation {:5.1} activations/round, {} steals {} sleeps {} yields",
                outcome.messages as f64 / outcome.elapsed.as_secs_f64() / 1e6,
                sum(|s| s.messages) as f64 / sum(|s| s.activations) as f64,
                sum(|s| s.activations) as f64 / sum(|s| s.rounds) as f64,
                sum(|s| s.steals),
                sum(|s| s.sleeps),
                sum(|s| s.yields),
            );
        }
    }
}
