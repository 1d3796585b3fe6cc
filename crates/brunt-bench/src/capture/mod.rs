//! `brunt-bench capture`: how fast captures are analysed, compared with tshark and nfstrace, and how much is
//! recovered when the tap loses packets. All programs read the same files from the page cache, in turns. Also
//! sends a capture out of an interface, to test live captures.

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

use std::path::PathBuf;

use brunt_core::quantity::{Size, Span};

use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};
use replay::Replay;
use subject::{Made, SubjectCapture};

/// Measure analysis and trace beside tshark and nfstrace, or send a capture out of an interface
#[derive(Clone, Debug)]
pub struct CaptureBench {
    /// Capture files: pcap or pcapng, plain, gzip or zstd. Without one, captures of four kinds are made
    /// for the time of the run (4.8 GB in all, or a tenth of it with --quick): 64 KiB READ and WRITE of NFS with
    /// an MTU of 1500 and of 9000, small operations, and 64 KiB READ and WRITE of iSCSI.
    pub files: Vec<PathBuf>,

    /// Rounds; each measures everybody in turn, and medians are over rounds
    pub rounds: u32,

    /// One round on smaller captures: a look, not a measurement
    pub quick: bool,

    /// Give tshark the first part of a capture, as it takes minutes for large ones; what is printed of it
    /// is its rate
    pub part: Size,

    /// Folder for captures that are made and for what everybody writes [default: the system's for
    /// temporary files]
    pub folder: Option<PathBuf>,

    /// Remove so many percent of the packets at random and count which of the operations that are still
    /// possible are recovered
    pub loss: Option<Vec<f64>>,

    /// Measure instead what the tables cost that merge: traces with and without them
    pub tables: bool,

    /// Seed of what is removed
    pub seed: u64,

    /// Only write the captures into this folder, and those without the packets of `loss`, and keep them
    pub make: Option<PathBuf>,

    /// Send the file out of this interface instead. Best one of a network namespace made for this.
    pub replay: Option<String>,

    /// Send the file so often.
    pub times: u32,

    /// Send for this long instead.
    pub duration: Option<Span>,

    /// Send at most so many gigabits a second; without it, as fast as the interface takes them.
    pub rate: Option<f64>,
}

impl CaptureBench {
    /// Measures and prints.
    ///
    /// # Errors
    /// The settings are wrong, something that is needed is missing, or the figures are not what they have to be.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if let Some(interface) = &self.replay {
            let [file] = &self.files[..] else {
                return Err(BenchError::usage("--replay sends one capture file"));
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
                "--loss is in percent of the packets, not {wrong}"
            )));
        }
        if let Some(folder) = &self.make {
            return make::run(&self, folder, output);
        }
        let scratch = Scratch::new(self.folder.as_deref(), "capture")?;
        let subjects = self.subjects(&scratch, output)?;
        let rounds = if self.quick { 1 } else { self.rounds };
        match &self.loss {
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
    /// The captures: those that were named, or our own.
    fn subjects(
        &self,
        scratch: &Scratch,
        output: &dyn Console,
    ) -> Result<Vec<SubjectCapture>, BenchError> {
        if self.files.is_empty() {
            let made = Made::ALL.iter().map(|made| {
                output.note(format_args!("making a capture: {}", made.name));
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
