//! Arguments of `brunt-bench calls`. The measurement is in `brunt_bench::CallsBench`.

use std::path::PathBuf;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// System calls and context switches per request of Brunt, fio and dd
#[derive(clap::Args)]
pub struct CallsArgs {
    /// Folder for a 64 MiB test file, created and removed, on a file system with O_DIRECT [default: TMPDIR]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Pairs of runs of each program
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

impl SubjectArgs for CallsArgs {
    const NAME: &'static str = "calls";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[(
        "brunt-bench calls --dir /var/tmp",
        "on a file in this folder; needs root, perf (linux-perf) and fio",
    )];

    fn run(self, output: &Terminal) -> BenchResult {
        let settings = brunt_bench::CallsBench {
            dir: self.dir,
            rounds: self.rounds,
        };
        settings.run(output)
    }
}
