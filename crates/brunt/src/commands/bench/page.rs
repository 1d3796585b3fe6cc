//! `brunt bench page`: its arguments. What is measured is in `brunt_bench::PageBench`.

use crate::cli::{Done, Failure, Output};
use crate::commands::Subcommand;

/// Cost of the live page's viewers to a run: its rate, and its processor time for each request
#[derive(clap::Args)]
pub struct Page {
    /// Browsers that look at once
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    viewers: u32,
    /// Length of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Runs of each side; under 4 the ratio's interval is wide
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
}

impl Subcommand for Page {
    const NAME: &'static str = "page";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt bench page",
            "ten viewers, nobody, and no page, in turns: four minutes",
        ),
        (
            "brunt bench page --viewers 50 --rounds 4",
            "the same with fifty",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
        let Page {
            viewers,
            seconds,
            rounds,
        } = self;
        Ok(brunt_bench::PageBench {
            program,
            viewers,
            seconds,
            rounds,
        }
        .run(output)?)
    }
}
