//! Arguments of `brunt-bench replay`. The measurement is in `brunt_bench::ReplayBench`.

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Timing and rate of a replay, compared with fio, a bare loop on the clock and the load engine
#[derive(clap::Args)]
pub struct ReplayArgs {
    /// Number of requests in the timed replay
    #[arg(long, default_value_t = 40_000)]
    requests: u32,
    /// Time between two requests in microseconds
    #[arg(long, default_value_t = 100, value_name = "MICROSECONDS")]
    gap_us: u32,
    /// Number of requests to replay as fast as possible
    #[arg(long, default_value_t = 2_000_000)]
    fast_requests: u32,
    /// Runs per side; with fewer than 4, the ratio's confidence interval is wide
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Compare with blkreplay: the program and its options ("blkreplay --threads=64")
    #[arg(long, value_name = "COMMAND")]
    blkreplay: Option<String>,
    /// Compare with hfplayer: the program and its options ("hfplayer -c 2.6", the clock in GHz); issue errors need a
    /// build with DEBUG_TIMING
    #[arg(long, value_name = "COMMAND")]
    hfplayer: Option<String>,
}

impl SubjectArgs for ReplayArgs {
    const NAME: &'static str = "replay";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench replay",
            "40,000 requests 100 µs apart, compared with fio and a bare loop",
        ),
        (
            "brunt-bench replay --blkreplay ./blkreplay",
            "against blkreplay, too",
        ),
        (
            "brunt-bench replay --gap-us 20 --rounds 4",
            "50,000 requests per second",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::ReplayBench {
            requests: self.requests,
            gap_us: self.gap_us,
            fast_requests: self.fast_requests,
            rounds: self.rounds,
            blkreplay: self.blkreplay,
            hfplayer: self.hfplayer,
        };
        settings.run(output)
    }
}
