//! `brunt bench link`: its arguments. What is measured is in `brunt_bench::Link`.

use crate::cli::{Done, Output};
use crate::commands::Subcommand;

/// How exact and how fast the lab's links are, beside a bare veth pair
///
/// Needs no root: hosts are network namespaces of its own.
#[derive(clap::Args)]
pub struct Link {
    /// How often each speed is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Seconds of each.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Packets in which losses and the like are counted.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..=100_000_000))]
    packets: u64,
    /// Chance follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the speed of these carriers, and of the bare pair.
    #[arg(long, value_delimiter = ',', value_name = "CARRIER")]
    only: Vec<String>,
    /// Leave the speed out.
    #[arg(long)]
    no_speed: bool,
    /// Leave the accuracy out.
    #[arg(long)]
    no_accuracy: bool,
}

impl Subcommand for Link {
    const NAME: &'static str = "link";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt bench link", "Everything: two minutes"),
        ("brunt bench link --packets 100000 --runs 1", "The same in less time, less exact"),
        ("brunt bench link --no-accuracy --only prototype,brunt", "How fast, beside the prototype alone"),
    ];

    fn run(self, output: &Output) -> Done {
        crate::lab::on_stage()?;
        let settings = brunt_bench::LinkBench {
            runs: self.runs,
            seconds: self.seconds,
            packets: self.packets,
            seed: self.seed,
            only: self.only,
            no_speed: self.no_speed,
            no_accuracy: self.no_accuracy,
        };
        Ok(settings.run(output)?)
    }
}
