//! Arguments of `brunt-bench load`. The measurement is in `brunt_bench::LoadBench`.

use std::path::PathBuf;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Load engine compared with fio and t/io_uring: rate, and CPU time, system calls and context switches per request
#[derive(clap::Args)]
pub struct LoadArgs {
    /// Duration of each run in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds, in each of which every program runs once
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Folder for a 1 GiB test file, created and removed (can be repeated)
    #[arg(long, default_value = "/dev/shm")]
    dir: Vec<PathBuf>,
    /// Block device to read, of at least 1 GiB (can be repeated)
    #[arg(long)]
    device: Vec<PathBuf>,
    /// Run only jobs whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Path of fio
    #[arg(long, default_value = "fio")]
    fio: PathBuf,
    /// Path of t/io_uring, which is built with fio but rarely packaged
    #[arg(long)]
    t_io_uring: Option<PathBuf>,
}

impl SubjectArgs for LoadArgs {
    const NAME: &'static str = "load";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench load --only null --rounds 5",
            "cost per request of the load engine alone",
        ),
        (
            "brunt-bench load --dir /dev/shm --dir /var/tmp",
            "files on tmpfs and on disk",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::LoadBench {
            seconds: self.seconds,
            rounds: self.rounds,
            dir: self.dir,
            device: self.device,
            only: self.only,
            fio: self.fio,
            t_io_uring: self.t_io_uring,
        };
        settings.run(output)
    }
}
