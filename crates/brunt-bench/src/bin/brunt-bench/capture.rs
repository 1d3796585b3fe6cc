//! Arguments of `brunt-bench capture`. The measurement is in `brunt_bench::CaptureBench`.

use std::path::PathBuf;

use brunt_core::quantity::{Size, Span};

use brunt_bench::{BenchError, BenchResult};

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Analysis and tracing of captures, compared with tshark and nfstrace; or send a capture out of an interface
#[derive(clap::Args)]
pub struct CaptureArgs {
    /// Capture files (pcap or pcapng; plain, gzip or zstd). Without any, four captures are generated and removed
    /// afterwards (4.8 GB in total, a tenth of that with --quick): 64 KiB READ and WRITE with MTUs of 1500 and 9000,
    /// small operations, and 64 KiB READ and WRITE over iSCSI.
    files: Vec<PathBuf>,

    /// Rounds; each measures every program in turn, and medians over rounds are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// One round on smaller captures: a quick look, not a measurement
    #[arg(long)]
    quick: bool,

    /// How much of a capture tshark reads, as it takes minutes for large ones; its rate is reported
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    part: Size,

    /// Folder for generated captures and the programs' output [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Remove this percentage of packets at random, and measure the share of recoverable operations that are
    /// recovered
    #[arg(long, value_name = "PERCENT,...", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_values = ["0.5", "1", "2", "5"])]
    loss: Option<Vec<f64>>,

    /// Instead, measure the cost of the tables latency_histograms and sketches: traces with both, with one and with
    /// neither, interleaved
    #[arg(long, conflicts_with_all = ["loss", "make", "replay", "part"])]
    tables: bool,

    /// Seed for choosing the packets to remove
    #[arg(long, default_value_t = 1, requires = "loss")]
    seed: u64,

    /// Only write the generated captures, and with --loss copies with missing packets, to this folder and keep them,
    /// for use with a profiler
    #[arg(long, value_name = "DIR", conflicts_with_all = ["folder", "replay", "part", "rounds"])]
    make: Option<PathBuf>,

    /// Send the file out of this interface instead, preferably one in a network namespace created for this.
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["loss", "quick", "folder"])]
    replay: Option<String>,

    /// Send the captures out of the first of these two connected interfaces, preferably in a network namespace
    /// created for this (tools/capture-rates.sh), and measure the highest rate at which the second receives them
    /// without loss: with bare packet rings and AF_XDP, which only count, and with `brunt capture`, with and without
    /// a trace
    #[arg(long, value_name = "SEND,CAPTURE", value_delimiter = ',', num_args = 1,
          conflicts_with_all = ["loss", "tables", "make", "replay", "part"])]
    wire: Vec<String>,

    /// Number of times to send the file.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "replay")]
    times: u32,

    /// How long to send, instead of a number of times; with --wire, the length of each attempt.
    #[arg(long = "for", value_name = "TIME", conflicts_with = "times")]
    duration: Option<Span>,

    /// Maximum rate in gigabits per second [default: as fast as the interface accepts packets].
    #[arg(long, value_name = "GBIT", requires = "replay")]
    rate: Option<f64>,
}

impl SubjectArgs for CaptureArgs {
    const NAME: &'static str = "capture";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt-bench capture --quick",
            "a quick look, on generated captures",
        ),
        (
            "brunt-bench capture nfs.pcap",
            "all installed programs on your own capture",
        ),
        (
            "brunt-bench capture --loss",
            "share of operations recovered when packets are missing",
        ),
        (
            "brunt-bench capture --tables",
            "the cost of histograms and sketches in a capture",
        ),
        (
            "brunt-bench capture nfs.pcap --replay veth0",
            "send a capture as fast as the interface accepts it",
        ),
        (
            "brunt-bench capture nfs.pcap --replay veth0 --for 10m --rate 2",
            "send it at 2 Gb/s for ten minutes",
        ),
        (
            "brunt-bench capture --wire v0,v1",
            "loss-free rates of bare rings and captures over a pair of virtual interfaces",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        if self.duration.is_some() && self.replay.is_none() && self.wire.is_empty() {
            return Err(BenchError::usage("--for needs --replay or --wire"));
        }
        let wire = match <[String; 2]>::try_from(self.wire) {
            Ok(wire) => Some(wire),
            Err(none) if none.is_empty() => None,
            Err(_) => {
                return Err(BenchError::usage(
                    "--wire needs two interfaces, such as --wire v0,v1",
                ));
            }
        };
        let settings = brunt_bench::CaptureBench {
            files: self.files,
            rounds: self.rounds,
            quick: self.quick,
            part: self.part,
            folder: self.folder,
            loss: self.loss,
            tables: self.tables,
            seed: self.seed,
            make: self.make,
            replay: self.replay,
            wire,
            times: self.times,
            duration: self.duration,
            rate: self.rate,
        };
        settings.run(output)
    }
}
