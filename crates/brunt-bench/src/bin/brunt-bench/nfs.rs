//! Arguments of `brunt-bench nfs`. The measurement is in `brunt_bench::NfsBench`.

use std::time::Duration;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// NFS client compared with libnfs and a bare TCP pair, on a server without data
#[derive(clap::Args)]
pub struct NfsBenchArgs {
    /// Rounds; each measures every program in turn. With fewer than 4, the ratio's confidence interval is wide
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Duration of each measurement
    #[arg(long, default_value = "1s", value_parser = brunt_core::units::parse_duration)]
    time: Duration,
    /// Only rows whose name contains this, such as "getattr"
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
}

impl SubjectArgs for NfsBenchArgs {
    const NAME: &'static str = "nfs";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench nfs --row getattr --rounds 2 --time 300ms",
            "a quick look",
        ),
        (
            "brunt-bench nfs",
            "all rows; libnfs needs Debian's libnfs-dev and gcc",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::NfsBench {
            rounds: self.rounds,
            time: self.time,
            row: self.row,
        };
        settings.run(output)
    }
}
