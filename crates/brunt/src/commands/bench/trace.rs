//! `brunt bench trace`: its arguments. What is measured is in `brunt_bench::TraceBench`.

use std::path::PathBuf;

use crate::cli::{Done, Output};
use crate::commands::Subcommand;

/// Reading of block traces against cat, awk and DuckDB
#[derive(clap::Args)]
pub struct Trace {
    /// Rows of each trace
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    rows: u64,
    /// Runs per program; with fewer than 4 the ratios' confidence intervals are wide
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Folder for the traces, about 90 bytes a row, created and removed
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Python interpreter to run DuckDB with, if it has the module
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: String,
}

impl Subcommand for Trace {
    const NAME: &'static str = "trace";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt bench trace --rounds 5", "rows per second of a binary and a text trace, against cat and awk"),
        ("brunt bench trace --rows 100000000 --rounds 2 --dir /var/tmp", "long traces, to watch the memory"),
    ];

    fn run(self, output: &Output) -> Done {
        let settings = brunt_bench::TraceBench {
            rows: self.rows,
            rounds: self.rounds,
            dir: self.dir,
            python: self.python,
        };
        Ok(settings.run(output)?)
    }
}
