//! Arguments of `brunt-bench page`. The measurement is in `brunt_bench::PageBench`.

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// What the live page's viewers cost a run: its rate, and its CPU time per request
#[derive(clap::Args)]
pub struct PageArgs {
    /// Number of simultaneous viewers
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    viewers: u32,
    /// Duration of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Runs per side; with fewer than 4, the ratio's confidence interval is wide
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
}

impl SubjectArgs for PageArgs {
    const NAME: &'static str = "page";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench page",
            "ten viewers, no viewers and no page, interleaved; takes four minutes",
        ),
        ("brunt-bench page --viewers 50 --rounds 4", "fifty viewers"),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let PageArgs {
            viewers,
            seconds,
            rounds,
        } = self;
        brunt_bench::PageBench {
            viewers,
            seconds,
            rounds,
        }
        .run(output)
    }
}
