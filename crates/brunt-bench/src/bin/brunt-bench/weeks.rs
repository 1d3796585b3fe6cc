//! Arguments of `brunt-bench weeks`. The measurement is in `brunt_bench::WeeksBench`.

use std::path::PathBuf;

use brunt_bench::BenchResult;
use brunt_core::quantity::{Size, Span};

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Weeks-long captures in compressed time: memory use and figures per window
#[derive(clap::Args)]
pub struct WeeksArgs {
    /// Days of capture time
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: u32,
    /// Operations in total
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    operations: u64,
    /// Files per day
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Length of a window
    #[arg(long, value_name = "TIME", default_value = "1d")]
    window: Span,
    /// Number of parser threads in the capture
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Also store the trace, and keep at most this much of it
    #[arg(long, value_name = "SIZE")]
    keep: Option<Size>,
    /// Only write the capture to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["window", "workers", "keep"])]
    make: Option<PathBuf>,
    /// Folder for reports and traces [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl SubjectArgs for WeeksArgs {
    const NAME: &'static str = "weeks";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench weeks",
            "two weeks, a hundred million operations on a million files a day",
        ),
        (
            "brunt-bench weeks --days 2 --operations 100000 --window 1h",
            "a quick look",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::WeeksBench {
            days: self.days,
            operations: self.operations,
            files: self.files,
            window: self.window,
            workers: self.workers,
            keep: self.keep.map(|keep| keep.0),
            make: self.make,
            folder: self.folder,
        };
        settings.run(output)
    }
}
