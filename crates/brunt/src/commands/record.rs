//! What `brunt capture` writes beside its report: the trace as tables, and the packets themselves.
//! And `brunt analyze DIR`, which reads the tables back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_capture::trace::pcap::PcapWriter;
use brunt_capture::trace::{Anonymizer, OnFull, Recorder, TraceOptions, TraceStatus, replay};
use brunt_capture::{Analysis, Limits, Report, run_file_with};
use brunt_core::quantity::{Size, Span};
use serde_json::Value;

use crate::cli::{Done, Failure, Output};

/// What to keep of a capture.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "What to keep")]
pub struct KeepArgs {
    /// Write everything that was found as tables into this folder (docs/trace.md).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Delete the oldest parts of the trace when all take more than this.
    #[arg(long, value_name = "SIZE", requires = "out")]
    keep: Option<Size>,

    /// Close a part of a table when its rows take this much memory (or are 131072).
    #[arg(long, value_name = "SIZE", requires = "out", default_value = "16MiB")]
    part_size: Size,

    /// Rows wait no longer than this for a file: what a crash loses at the most.
    #[arg(long, value_name = "TIME", requires = "out", default_value = "10s")]
    part_age: Span,

    /// Put pseudonyms in place of names, addresses, handles and ids: a hash under the key in this file,
    /// of 16 bytes at least. The same key gives the same pseudonyms.
    #[arg(long, value_name = "KEYFILE", requires = "out", conflicts_with = "pcap")]
    anonymize: Option<PathBuf>,

    /// When the disk is full: stop with an error, or wait for room and go on.
    #[arg(long, value_name = "WHAT", requires = "out", default_value = "stop")]
    on_full: Full,

    /// Write the packets into this file, too (pcap with nanoseconds).
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

/// `--on-full`.
#[derive(clap::ValueEnum, Clone, Copy)]
enum Full {
    /// Stop with an error; what was written before is kept.
    Stop,
    /// Wait for room, then go on.
    Wait,
}

impl KeepArgs {
    /// Whether anything is to be kept.
    pub fn is_some(&self) -> bool {
        self.out.is_some() || self.pcap.is_some()
    }

    /// Begins the trace, if one is asked for.
    pub(super) fn recorder(&self, output: &Output) -> Result<Option<Recorder>, Failure> {
        let Some(folder) = &self.out else { return Ok(None) };
        let anonymizer = self.anonymize.as_deref().map(Anonymizer::from_file).transpose();
        let (tell, stop) = (output.clone(), output.clone());
        let options = TraceOptions {
            bytes_max: usize::try_from(self.part_size.0).unwrap_or(usize::MAX),
            age_max: self.part_age.0,
            keep_bytes: self.keep.map(|keep| keep.0),
            on_full: match self.on_full {
                Full::Stop => OnFull::Stop,
                Full::Wait => OnFull::Wait,
            },
            anonymizer: anonymizer.map_err(Failure::usage)?,
            tell: Arc::new(move |what| tell.note(what)),
            stop: Arc::new(move || stop.is_interrupted()),
            ..TraceOptions::default()
        };
        let recorder = Recorder::create(folder, &options);
        recorder.map(Some).map_err(|error| Failure::usage(error).advise("Choose another folder with --out"))
    }
}

/// Runs a file through the pipeline, keeps what is asked for, and prints the report.
pub fn capture(file: &Path, keep: &KeepArgs, output: &Output) -> Done {
    let recorder = keep.recorder(output)?;
    let status = recorder.as_ref().map(Recorder::status);
    let mut packets = match &keep.pcap {
        Some(path) => Some(PcapWriter::create(path).map_err(|error| failed_pcap(path, &error))?),
        None => None,
    };
    let mut trouble = None;
    let tap = |batch: &brunt_capture::Batch| {
        let Some(writer) = &mut packets else { return true };
        trouble = batch.packets().try_for_each(|packet| writer.write(&packet)).err();
        trouble.is_none()
    };
    let stop = || output.is_interrupted() || status.as_ref().is_some_and(TraceStatus::has_failed);
    let outcome = run_file_with(file, (Analysis::new(), recorder), Limits::default(), tap, stop);
    let mut outcome = outcome
        .map_err(|error| Failure::usage(error).advise("Check the file with `capinfos` or `tcpdump -r`"))?;
    let (analysis, recorder) = outcome.sink;
    let (extra, mut failure) = finish(recorder, keep, &mut outcome.ledger, output);
    if let (Some(writer), Some(path)) = (packets, &keep.pcap) {
        let written = match trouble {
            Some(error) => Err(error),
            None => writer.finish().map(drop),
        };
        if let Err(error) = written {
            failure.get_or_insert(failed_pcap(path, &error));
        }
    }
    if outcome.cut_bytes > 0 {
        output.note(format_args!("the file ends {} bytes into a packet: it was cut", outcome.cut_bytes));
    }
    if output.is_interrupted() {
        output.note("interrupted: the report covers what was read until then");
    }
    print(&analysis.report(&outcome.ledger), extra, output)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    match outcome.damage {
        Some(damage) => {
            Err(Failure::usage(damage).advise("The report above covers what came before the damage"))
        }
        None => Ok(()),
    }
}

/// What a report says beside its figures.
type Extra = Vec<(&'static str, Value)>;

/// Ends the trace, if there is one: what the report says of it, and what went wrong.
pub(super) fn finish(
    recorder: Option<Recorder>,
    keep: &KeepArgs,
    ledger: &mut brunt_capture::Ledger,
    output: &Output,
) -> (Extra, Option<Failure>) {
    let Some(recorder) = recorder else { return (Vec::new(), None) };
    let (summary, error) = recorder.finish(ledger);
    let folder = keep.out.as_deref().unwrap_or(Path::new("."));
    output.note(format_args!(
        "{}: {} rows in {} parts, {} bytes: {:.1} times smaller than the packets on the wire",
        folder.display(),
        summary.rows,
        summary.parts,
        summary.bytes,
        ledger.wire_bytes as f64 / summary.bytes.max(1) as f64
    ));
    if summary.rows_lost > 0 {
        output.note(format_args!("{} rows found no room and are not in the trace", summary.rows_lost));
    }
    let extra = vec![("trace", serde_json::to_value(summary).unwrap_or_default())];
    (extra, error.map(|error| Failure::failed(error).advise("The report covers what was read until then")))
}

fn failed_pcap(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display())).advise("Choose another file with --pcap")
}

/// What a stored trace means.
pub fn analyze(folder: &Path, html: Option<&Path>, output: &Output) -> Done {
    let replayed = replay(folder).map_err(Failure::usage)?;
    for note in &replayed.notes {
        output.note(format_args!("{}: {note}", folder.display()));
    }
    let report = replayed.analysis.report(&replayed.ledger);
    if let Some(html) = html {
        super::analyze::write_page(&report, folder, replayed.notes, html, output)?;
    }
    print(&report, Vec::new(), output)
}

pub(super) fn print(report: &Report, extra: Extra, output: &Output) -> Done {
    for line in report.text().lines() {
        output.line(line);
    }
    let mut value = serde_json::to_value(report).map_err(Failure::failed)?;
    if let Value::Object(fields) = &mut value {
        fields.extend(extra.into_iter().map(|(name, value)| (name.to_string(), value)));
    }
    output.object(&value);
    if report.valid {
        Ok(())
    } else {
        Err(Failure::failed("the ledger does not add up: the report is invalid"))
    }
}
