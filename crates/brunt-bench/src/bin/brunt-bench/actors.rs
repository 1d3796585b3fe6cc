//! Arguments of `brunt-bench actors`. The measurement is in `brunt_bench::ActorsBench`.

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Messages per second between actors, compared with Go and Erlang
#[derive(clap::Args)]
pub struct ActorsArgs {
    /// Runs of each benchmark; the median is reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Messages per run.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100_000..=10_000_000_000))]
    messages: u64,
    /// Numbers of scheduler threads to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
}

impl SubjectArgs for ActorsArgs {
    const NAME: &'static str = "actors";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench actors",
            "ring and all-to-all on one and two threads",
        ),
        (
            "brunt-bench actors --runs 1 --messages 1000000",
            "ring and all-to-all in a minute, but less precise",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::ActorsBench {
            runs: self.runs,
            messages: self.messages,
            threads: self.threads,
        };
        settings.run(output)
    }
}
