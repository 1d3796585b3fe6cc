//! `brunt-bench capture`: how fast captures are analysed, compared with tshark and nfstrace, and how much is
//! recovered when the tap loses packets. All programs read the same files from the page cache, taking turns. Can also
//! send a capture out of an interface, to test live captures.

mod compose;
mod loss;
mod make;
mod messages;
mod over_time;
mod programs;
mod replay;
mod scsi;
mod speed;
mod subject;
mod tables;
mod wire;

pub use compose::{CaptureBursts, compose_bursts};

use std::path::PathBuf;

use brunt_core::quantity::{Size, Span};

use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};
use replay::Replay;
use subject::{Made, SubjectCapture};

/// Analysis and tracing of captures, compared with tshark and nfstrace; or send a capture out of an interface
#[derive(Clone, Debug)]
pub struct CaptureBench {
    /// Capture files: pcap or pcapng, plain, gzip or zstd. Without any, four captures are generated and removed
    /// afterwards (4.8 GB in total, a tenth of that with --quick): 64 KiB READ and WRITE over NFS with MTUs of 1500
    /// and 9000, small operations, and 64 KiB READ and WRITE over iSCSI.
    pub files: Vec<PathBuf>,

    /// Rounds; each measures every program in turn, and medians over rounds are reported
    pub rounds: u32,

    /// One round on smaller captures: a quick look, not a measurement
    pub quick: bool,

    /// How much of a capture tshark reads, as it takes minutes for large ones; its rate is reported
    pub part: Size,

    /// Folder for generated captures and the programs' output [default: the system's temporary folder]
    pub folder: Option<PathBuf>,

    /// Remove this percentage of packets at random and count how many of the still recoverable operations are recovered
    pub loss: Option<Vec<f64>>,

    /// Measure the cost of the mergeable tables instead: traces with and without them
    pub tables: bool,

    /// Seed for choosing the packets to remove
    pub seed: u64,

    /// Only write the captures, and copies without the packets of `loss`, to this folder and keep them
    pub make: Option<PathBuf>,

    /// Send the file out of this interface instead, preferably one in a network namespace created for this.
    pub replay: Option<String>,

    /// Send captures out of the first of these two connected interfaces, and measure the highest rates at which bare
    /// rings and captures receive them on the second without loss.
    pub wire: Option<[String; 2]>,

    /// Number of times to send the file.
    pub times: u32,

    /// How long to send, instead of `times`; with `wire`, the length of each attempt.
    pub duration: Option<Span>,

    /// Maximum rate in gigabits per second; if absent, as fast as the interface accepts packets.
    pub rate: Option<f64>,
}

impl CaptureBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, a prerequisite is missing, or the results miss a requirement.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if let Some(interface) = &self.replay {
            let [file] = &self.files[..] else {
                return Err(BenchError::usage("--replay sends a single capture file"));
            };
            let replay = Replay {
                interface,
                times: self.times,
                duration: self.duration,
                rate: self.rate,
            };
            return replay.run(file, output);
        }
        if let Some(wrong) = self
            .loss
            .iter()
            .flatten()
            .find(|share| !(0.0..100.0).contains(*share))
        {
            return Err(BenchError::usage(format!(
                "--loss is a percentage of packets, not {wrong}"
            )));
        }
        if let Some(folder) = &self.make {
            return make::run(&self, folder, output);
        }
        let scratch = Scratch::new(self.folder.as_deref(), "capture")?;
        let subjects = self.subjects(&scratch, output)?;
        let rounds = if self.quick { 1 } else { self.rounds };
        match &self.loss {
            None if self.wire.is_some() => {
                let [send, on] = self.wire.unwrap_or_default();
                let wire = wire::WireBench {
                    send,
                    on,
                    duration: self.duration,
                    rounds,
                    quick: self.quick,
                };
                wire.run(&subjects, &scratch, output)
            }
            None if self.tables => tables::run(&subjects, rounds, &scratch, output),
            None => speed::run(&subjects, rounds, self.part, &scratch, output),
            Some(shares) => {
                let shares: Vec<f64> = shares.iter().map(|percent| percent / 100.0).collect();
                loss::run(
                    &subjects, &shares, self.seed, rounds, self.part, &scratch, output,
                )
            }
        }
    }
}

impl CaptureBench {
    /// The captures to measure: the given files, or generated ones.
    fn subjects(
        &self,
        scratch: &Scratch,
        output: &dyn Console,
    ) -> Result<Vec<SubjectCapture>, BenchError> {
        if self.files.is_empty() {
            let made = Made::ALL.iter().map(|made| {
                output.note(format_args!("generating a capture: {}", made.name));
                made.subject(scratch.path(), self.quick)
            });
            return made.collect();
        }
        self.files
            .iter()
            .map(|file| SubjectCapture::of_file(file, scratch))
            .collect()
    }
}
