//! Arguments of `brunt-bench fio-jobs`. The measurement is in `brunt_bench::FioJobsBench`.

use std::path::PathBuf;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Typical fio jobs, run by fio and by Brunt: ratios of rate, mean and p99
#[derive(clap::Args)]
pub struct FioJobsArgs {
    /// Time of each job in whole seconds
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Rounds, in each of which both programs run once
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Folder for a test file of 256 MiB, created and removed (can be repeated)
    #[arg(long)]
    dir: Vec<PathBuf>,
    /// Block device of at least 256 MiB, WHICH IS OVERWRITTEN (can be repeated)
    #[arg(long)]
    device: Vec<PathBuf>,
    /// Queue depths
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    depth: Vec<u32>,
    /// Run only job files whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Path of fio
    #[arg(long, default_value = "fio")]
    fio: PathBuf,
}

impl SubjectArgs for FioJobsArgs {
    const NAME: &'static str = "fio-jobs";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt-bench fio-jobs --dir /var/tmp --only oltp",
        "one job file, on a file at three depths",
    )];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::FioJobsBench {
            seconds: self.seconds,
            rounds: self.rounds,
            dir: self.dir,
            device: self.device,
            depth: self.depth,
            only: self.only,
            fio: self.fio,
        };
        settings.run(output)
    }
}
