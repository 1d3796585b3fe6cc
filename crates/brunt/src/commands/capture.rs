//! `brunt capture`: packets to storage operations.

use std::path::PathBuf;

use crate::cli::{Done, Output};

/// Rebuild NFS operations from captured packets and report on them.
#[derive(clap::Args)]
pub struct Capture {
    /// Read packets from this file (pcap or pcapng, plain, gzip or zstd); `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: PathBuf,
}

impl super::Subcommand for Capture {
    const NAME: &'static str = "capture";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt capture -r nfs.pcapng.gz", "read a capture file"),
        ("brunt capture -r -", "read what `tcpdump -w -` writes into the pipe"),
    ];

    fn run(self, output: &Output) -> Done {
        super::analyze::report(&self.read, output)
    }
}
