//! `brunt bench capture`: its arguments. What is measured is in `brunt_bench::Capture`.

use std::path::PathBuf;

use brunt_core::quantity::{Size, Span};

use crate::cli::{Done, Output};
use crate::commands::Subcommand;

/// Measure analysis and trace beside tshark and nfstrace, or send a capture out of an interface
#[derive(clap::Args)]
pub struct Capture {
    /// Capture files: pcap or pcapng, plain, gzip or zstd. Without one, captures of three kinds are made
    /// for the time of the run (3.4 GB in all, or a tenth of it with --quick): 64 KiB READ and WRITE with
    /// an MTU of 1500 and of 9000, and small operations.
    files: Vec<PathBuf>,

    /// Rounds; each measures everybody in turn, and medians are over rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// One round on smaller captures: a look, not a measurement
    #[arg(long)]
    quick: bool,

    /// Give tshark the first part of a capture, as it takes minutes for large ones; what is printed of it
    /// is its rate
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    part: Size,

    /// Folder for captures that are made and for what everybody writes [default: the system's for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Remove so many percent of the packets at random and count which of the operations that are still
    /// possible are recovered
    #[arg(long, value_name = "PERCENT,...", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_values = ["0.5", "1", "2", "5"])]
    loss: Option<Vec<f64>>,

    /// Seed of what is removed
    #[arg(long, default_value_t = 1, requires = "loss")]
    seed: u64,

    /// Send the file out of this interface instead. Best one of a network namespace made for this.
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["loss", "quick", "folder"])]
    replay: Option<String>,

    /// Send the file so often.
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "replay")]
    times: u32,

    /// Send for this long instead.
    #[arg(long = "for", value_name = "TIME", conflicts_with = "times", requires = "replay")]
    duration: Option<Span>,

    /// Send at most so many gigabits a second; without it, as fast as the interface takes them.
    #[arg(long, value_name = "GBIT", requires = "replay")]
    rate: Option<f64>,
}

impl Subcommand for Capture {
    const NAME: &'static str = "capture";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt bench capture --quick", "a look, on captures made for it"),
        ("brunt bench capture nfs.pcap", "all that is installed, on a capture of yours"),
        ("brunt bench capture --loss", "what is recovered when packets are missing"),
        ("brunt bench capture nfs.pcap --replay veth0", "as fast as the interface takes it"),
        ("brunt bench capture nfs.pcap --replay veth0 --for 10m --rate 2", "2 Gb/s for ten minutes"),
    ];

    fn run(self, output: &Output) -> Done {
        let settings = brunt_bench::CaptureBench {
            files: self.files,
            rounds: self.rounds,
            quick: self.quick,
            part: self.part,
            folder: self.folder,
            loss: self.loss,
            seed: self.seed,
            replay: self.replay,
            times: self.times,
            duration: self.duration,
            rate: self.rate,
        };
        Ok(settings.run(output)?)
    }
}
