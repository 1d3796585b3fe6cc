//! Arguments of `brunt-bench trace`. The measurement is in `brunt_bench::TraceBench`.

use std::path::PathBuf;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Reading block traces, compared with cat, awk and DuckDB
#[derive(clap::Args)]
pub struct TraceArgs {
    /// Rows of each trace
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    rows: u64,
    /// Runs per program; with fewer than 4, the ratios' confidence intervals are wide
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Folder for the traces: one at a time, up to 150 bytes per row, removed afterwards
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Python interpreter for DuckDB, used if it has the duckdb module
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: String,
    /// Measure this format only; may be repeated
    #[arg(long = "format", value_name = "NAME")]
    formats: Vec<String>,
    /// Rows in the traces that are read through a pipe to measure memory use; 0 to skip
    #[arg(long, default_value_t = 0, value_name = "ROWS")]
    long_rows: u64,
}

impl SubjectArgs for TraceArgs {
    const NAME: &'static str = "trace";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench trace --rounds 5",
            "rows per second of every format, compared with cat, awk and DuckDB",
        ),
        (
            "brunt-bench trace --format msr --long-rows 100000000",
            "one format, with a long trace to measure memory use",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::TraceBench {
            rows: self.rows,
            rounds: self.rounds,
            dir: self.dir,
            python: self.python,
            formats: self.formats,
            long_rows: self.long_rows,
        };
        settings.run(output)
    }
}
