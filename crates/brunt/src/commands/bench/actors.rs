//! `brunt bench actors`: its arguments. What is measured is in `brunt_bench::Actors`.

use crate::cli::{Done, Output};
use crate::commands::Subcommand;

/// Messages a second between processes, beside Go and Erlang
#[derive(clap::Args)]
pub struct Actors {
    /// How often each is run; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Messages of one run.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100_000..=10_000_000_000))]
    messages: u64,
    /// Scheduler threads, one figure for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
}

impl Subcommand for Actors {
    const NAME: &'static str = "actors";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt bench actors", "The ring and all-to-all on one and two threads"),
        ("brunt bench actors --runs 1 --messages 1000000", "The same in a minute, less exact"),
    ];

    fn run(self, output: &Output) -> Done {
        let settings =
            brunt_bench::ActorsBench { runs: self.runs, messages: self.messages, threads: self.threads };
        Ok(settings.run(output)?)
    }
}
