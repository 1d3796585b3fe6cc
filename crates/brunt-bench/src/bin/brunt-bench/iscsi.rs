//! Arguments of `brunt-bench iscsi`. The measurement is in `brunt_bench::IscsiBench`.

use std::path::PathBuf;
use std::time::Duration;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// iSCSI target and initiator on loopback, compared with tgt, SPDK, iperf3 and a bare TCP pair
#[derive(clap::Args)]
pub struct IscsiArgs {
    /// Rounds; each measures every program in turn, and medians over rounds are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Duration of each measurement
    #[arg(long, default_value = "1s", value_parser = brunt_core::units::parse_duration)]
    time: Duration,
    /// One short round of Brunt's target only: a quick look, not a measurement
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this, such as "4k read"
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// Path of SPDK's iscsi_tgt, to include it; it polls on the last core, and is stopped while other programs are
    /// measured
    #[arg(long, value_name = "PATH")]
    spdk: Option<PathBuf>,
}

impl SubjectArgs for IscsiArgs {
    const NAME: &'static str = "iscsi";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench iscsi --quick",
            "a quick look, in a few seconds",
        ),
        (
            "brunt-bench iscsi --rounds 5 --time 2s",
            "all rows, compared with all installed peers",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::IscsiBench {
            rounds: self.rounds,
            time: self.time,
            quick: self.quick,
            row: self.row,
            spdk: self.spdk,
        };
        settings.run(output)
    }
}
