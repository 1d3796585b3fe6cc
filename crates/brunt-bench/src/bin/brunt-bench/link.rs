//! Arguments of `brunt-bench link`. The measurement is in `brunt_bench::LinkBench`.

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Accuracy and speed of the lab's links, compared with a bare veth pair
///
/// Needs no root: the hosts are network namespaces.
#[derive(clap::Args)]
pub struct LinkArgs {
    /// Runs of each speed measurement; the median is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Duration of each speed measurement in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Number of packets sent to measure loss, delay and other impairments.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..=100_000_000))]
    packets: u64,
    /// Seed of the random impairments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure the speed of only these carriers and the bare pair.
    #[arg(long, value_delimiter = ',', value_name = "CARRIER")]
    only: Vec<String>,
    /// Skip the speed measurements.
    #[arg(long)]
    no_speed: bool,
    /// Skip the accuracy measurements.
    #[arg(long)]
    no_accuracy: bool,
    /// Skip the rate-limited lines (10 Mb/s to 10 Gb/s), which are measured both with the machine's current load and
    /// with all cores busy
    #[arg(long)]
    no_rates: bool,
}

impl SubjectArgs for LinkArgs {
    const NAME: &'static str = "link";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt-bench link", "everything, in two minutes"),
        (
            "brunt-bench link --packets 100000 --runs 1",
            "faster, but less precise",
        ),
        (
            "brunt-bench link --no-accuracy --only prototype,brunt",
            "speed only, compared with the prototype",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        super::stage::enter(output)?;
        let settings = brunt_bench::LinkBench {
            runs: self.runs,
            seconds: self.seconds,
            packets: self.packets,
            seed: self.seed,
            only: self.only,
            no_speed: self.no_speed,
            no_accuracy: self.no_accuracy,
            no_rates: self.no_rates,
        };
        settings.run(output)
    }
}
