//! `brunt capture`: packets to storage operations.

use std::path::PathBuf;

use crate::cli::{Done, Output};

/// Rebuild NFS operations from captured packets and report on them.
#[derive(clap::Args)]
pub struct Capture {
    /// Read packets from this file (pcap or pcapng, plain, gzip or zstd); `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: PathBuf,

    #[command(flatten)]
    keep: super::record::KeepArgs,
}

impl super::Subcommand for Capture {
    const NAME: &'static str = "capture";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt capture -r nfs.pcapng.gz", "read a capture file"),
        ("brunt capture -r -", "read what `tcpdump -w -` writes into the pipe"),
        ("brunt capture -r nfs.pcap --out DIR --keep 500GB", "keep what is found as tables"),
    ];

    fn run(self, output: &Output) -> Done {
        if self.keep.is_some() {
            return super::record::capture(&self.read, &self.keep, output);
        }
        super::analyze::report(&self.read, None, output)
    }
}
