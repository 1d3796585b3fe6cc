//! Runs `brunt io`: opens the device and files, checks the range, and transfers it through `brunt-load`.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use brunt_block::Backend;
use brunt_core::input::InputFile;
use brunt_core::output::OutputFile;
use brunt_load::transfer::{RangeTransfer, TransferError, Work};
use indicatif::{ProgressBar, ProgressStyle};

use super::super::memory_need;
use super::report::report;
use super::{Checksum, Pattern, Range};
use crate::cli::{Done, Failure, Output};
use crate::devices;

/// The operation.
pub enum Job {
    Read {
        file: Option<String>,
    },
    Write {
        file: Option<String>,
        pattern: Pattern,
        fua: bool,
        overwrite: bool,
    },
    Verify {
        pattern: Pattern,
    },
}

impl Job {
    /// The name of the subcommand.
    pub fn name(&self) -> &'static str {
        match self {
            Job::Read { .. } => "read",
            Job::Write { .. } => "write",
            Job::Verify { .. } => "verify",
        }
    }
}

/// A single transfer on one device.
pub struct Run<'a> {
    pub range: Range,
    pub job: Job,
    pub output: &'a Output,
    pub backend: Arc<dyn Backend>,
    /// Length in bytes; a multiple of the block size.
    pub length: u64,
}

impl<'a> Run<'a> {
    /// Opens the device and checks the range against it.
    pub fn new(range: Range, job: Job, output: &'a Output) -> Result<Run<'a>, Failure> {
        range.settle_engine()?;
        let backend = devices::open(&range.url, !matches!(job, Job::Write { .. }))?;
        let length = range.length_on(&*backend)?;
        if let Job::Write { overwrite, .. } = &job {
            let info = backend.info();
            if info.read_only {
                return Err(Failure::usage(format!("{} is read-only", info.name)));
            }
            devices::guard(&*backend, *overwrite, devices::OVERWRITE, output)?;
        }
        Ok(Run {
            range,
            job,
            output,
            backend,
            length,
        })
    }

    /// Transfers the range and prints the results.
    pub fn go(self, checksum: Checksum) -> Done {
        let Range {
            offset,
            bs,
            depth,
            count,
            random,
            seed,
            ..
        } = self.range;
        let once = if random {
            self.length / bs
        } else {
            self.length.div_ceil(bs)
        };
        let work = self.work()?;
        let has_file = matches!(work, Work::Read(Some(_)) | Work::Copy { .. });
        if let Some(count) = count.filter(|count| *count > once && has_file) {
            return Err(Failure::usage(format!(
                "--count {count}: the range holds only {once} requests"
            )));
        }
        let count = count.unwrap_or(once);
        let written = match &self.job {
            Job::Write { .. } => self.length.min(count.saturating_mul(bs)),
            Job::Read { .. } | Job::Verify { .. } => 0,
        };
        let buffers = bs.saturating_mul(depth.into());
        memory_need::note_device(&self.range.url, written, buffers, self.output);
        let transfer = RangeTransfer {
            work,
            start: offset,
            length: self.length,
            block: bs,
            count,
            random: random.then_some(seed),
            depth,
            force_unit_access: matches!(self.job, Job::Write { fua: true, .. }),
            // The checksum must not include data that is transferred a second time.
            sums: checksum == Checksum::Sha256 && !random && count <= once,
        };
        let bar = self.progress(count);
        let moved = transfer.run(&*self.backend, self.range.poll.ring(), &mut |done| {
            bar.set_position(done);
            !self.output.is_interrupted()
        });
        bar.finish_and_clear();
        report(&self, &moved?)
    }

    fn work(&self) -> Result<Work, Failure> {
        let seed = self.range.seed;
        Ok(match &self.job {
            Job::Read { file } => Work::Read(file.as_deref().map(open_output).transpose()?),
            // With a length or a count, the input may be longer than the range.
            Job::Write {
                file: Some(path), ..
            } => Work::Copy {
                input: open_input(path)?,
                whole: self.range.length.is_none() && self.range.count.is_none(),
            },
            Job::Write {
                file: None,
                pattern,
                ..
            } => Work::Write(pattern.with(seed)),
            Job::Verify { pattern } => Work::Compare(pattern.with(seed)),
        })
    }

    fn progress(&self, count: u64) -> ProgressBar {
        // The progress bar hides itself if standard error is not a terminal.
        let bar = if self.output.is_json() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(count)
        };
        bar.with_style(
            ProgressStyle::with_template(
                "{bar:40} {percent}% {human_pos}/{human_len} {per_sec} eta {eta}",
            )
            .expect("a valid template"),
        )
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Failure {
        Failure::failed(error)
    }
}

/// Opens the file whose content is written to the device; `-` is standard input.
fn open_input(path: &str) -> Result<Box<dyn Read + Send>, Failure> {
    let input = match path {
        "-" => InputFile::stdin(),
        path => InputFile::open(Path::new(path)),
    };
    let input = input.map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(input))
}

/// Opens the file that receives the data read from the device; `-` is standard output.
fn open_output(path: &str) -> Result<Box<dyn Write>, Failure> {
    let output = match path {
        "-" => OutputFile::stdout(),
        path => OutputFile::create(Path::new(path)),
    };
    let output = output.map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(output))
}

impl Range {
    /// Length in bytes of the range on this device, which starts at the offset.
    fn length_on(&self, backend: &dyn Backend) -> Result<u64, Failure> {
        let info = backend.info();
        let block = u64::from(info.block_bytes);
        let whole = |what: &str, bytes: u64| match bytes % block {
            0 => Ok(()),
            _ => Err(Failure::usage(format!(
                "--{what} {bytes} is not a multiple of the block size, {block} bytes"
            ))
            .advise(format!("write --{what} {}", bytes.next_multiple_of(block)))),
        };
        whole("offset", self.offset)?;
        whole("bs", self.bs)?;
        let room = info
            .size_bytes
            .checked_sub(self.offset)
            .filter(|room| *room > 0)
            .ok_or_else(|| {
                Failure::usage(format!(
                    "--offset {} is beyond the end of the device ({} bytes)",
                    self.offset, info.size_bytes
                ))
            })?;
        let length = self.length.unwrap_or(room);
        whole("length", length)?;
        if length == 0 || length > room {
            return Err(Failure::usage(format!(
                "--length {length}: only {room} bytes follow the offset"
            )));
        }
        if self.bs == 0 || self.bs > u64::from(info.transfer_bytes_max) {
            return Err(Failure::usage(format!(
                "--bs {}: requests on this device must have {} to {} bytes",
                self.bs, block, info.transfer_bytes_max
            )));
        }
        if self.random && self.bs > length {
            return Err(Failure::usage("--bs is longer than the range"));
        }
        Ok(length)
    }
}
