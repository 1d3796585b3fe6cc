//! Arguments of `brunt-bench nbd`. The measurement is in `brunt_bench::NbdBench`.

use std::time::Duration;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// NBD client compared with QEMU's and fio's on nbdkit, and Brunt's server compared with nbdkit
#[derive(clap::Args)]
pub struct NbdArgs {
    /// Rounds; each measures every program in turn. With fewer than 4, the ratio's confidence interval is wide
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Duration of each measurement
    #[arg(long, default_value = "1s", value_parser = brunt_core::units::parse_duration)]
    time: Duration,
    /// Only rows whose name contains this, such as "4k read"
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
}

impl SubjectArgs for NbdArgs {
    const NAME: &'static str = "nbd";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench nbd --row '4k read' --rounds 2 --time 300ms",
            "a quick look",
        ),
        (
            "brunt-bench nbd",
            "all rows, compared with all installed peers; needs nbdkit",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::NbdBench {
            rounds: self.rounds,
            time: self.time,
            row: self.row,
        };
        settings.run(output)
    }
}
