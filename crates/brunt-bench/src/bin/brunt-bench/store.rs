//! Arguments of `brunt-bench store`. The measurement is in `brunt_bench::StoreBench`.

use std::time::Duration;

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// RBD images and GlusterFS files through their libraries, compared with fio's engines
#[derive(clap::Args)]
pub struct StoreArgs {
    /// The image: `rbd:pool/image?conf=PATH` or `gluster://host/volume/path`
    #[arg(value_name = "URL")]
    url: String,
    /// Rounds; each measures both programs in turn. With fewer than 4, the ratio's confidence interval is wide
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// Duration of each measurement
    #[arg(long, default_value = "2s", value_parser = brunt_core::units::parse_duration)]
    time: Duration,
    /// Only rows whose name contains this, such as "4k read"
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// Also measure writes, which destroy the image's contents
    #[arg(long)]
    overwrite: bool,
}

impl SubjectArgs for StoreArgs {
    const NAME: &'static str = "store";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench store rbd:rbd/disk",
            "reads from an image in the cluster of /etc/ceph/ceph.conf",
        ),
        (
            "brunt-bench store gluster://server/volume/scratch.img --overwrite",
            "reads and writes of a file",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let StoreArgs {
            url,
            rounds,
            time,
            row,
            overwrite,
        } = self;
        brunt_bench::StoreBench {
            url,
            rounds,
            time,
            row,
            overwrite,
        }
        .run(output)
    }
}
