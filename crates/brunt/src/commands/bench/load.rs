//! `brunt bench load`: its arguments. What is measured is in `brunt_bench::Load`.

use std::path::PathBuf;

use crate::cli::{Done, Output};
use crate::commands::Subcommand;

/// The load engine against fio: rate, CPU, system calls and context switches for each request
#[derive(clap::Args)]
pub struct Load {
    /// Length of each run in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Runs of each side; under 4 the ratio's interval is wide
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Folder for a 1 GiB file to read (may be given more than once); made and removed
    #[arg(long, default_value = "/dev/shm")]
    dir: Vec<PathBuf>,
    /// Only jobs whose name contains this
    #[arg(long)]
    only: Option<String>,
}

impl Subcommand for Load {
    const NAME: &'static str = "load";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt bench load --only null --rounds 5", "What a request costs the generator alone"),
        ("brunt bench load --dir /dev/shm --dir /var/tmp", "Files on tmpfs and on the disk too"),
    ];

    fn run(self, output: &Output) -> Done {
        let settings = brunt_bench::LoadBench {
            seconds: self.seconds,
            rounds: self.rounds,
            dir: self.dir,
            only: self.only,
        };
        Ok(settings.run(output)?)
    }
}
