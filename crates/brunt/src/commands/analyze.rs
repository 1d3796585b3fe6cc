//! `brunt analyze`: what the storage traffic in a capture file means.

use std::path::{Path, PathBuf};

use brunt_capture::{Analysis, Limits, Report, run_file};
use brunt_report::capture::{self, Source};

use crate::cli::{Done, Failure, Output};

/// Say what the NFS traffic in a capture file means: rates, latencies, hot files, findings.
#[derive(clap::Args)]
pub struct Analyze {
    /// A capture file: pcap or pcapng, plain, gzip or zstd; `-` reads standard input. Or the folder of a
    /// trace that `brunt capture --out` wrote.
    file: PathBuf,
    /// Write the report as a page with charts as well: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl super::Subcommand for Analyze {
    const NAME: &'static str = "analyze";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt analyze nfs.pcap.zst", "print a report of a capture"),
        ("brunt analyze nfs.pcap --json", "the same for programs"),
        ("brunt analyze DIR", "the same of a trace that was kept"),
        ("brunt analyze nfs.pcap --html nfs.html", "the same as a page with charts"),
    ];

    fn run(self, output: &Output) -> Done {
        if self.file.is_dir() {
            return super::record::analyze(&self.file, self.html.as_deref(), output);
        }
        report(&self.file, self.html.as_deref(), output)
    }
}

/// Runs a file through the pipeline and prints what the analyses found.
pub(super) fn report(file: &Path, html: Option<&Path>, output: &Output) -> Done {
    let outcome = run_file(file, Analysis::new(), Limits::default(), || output.is_interrupted())
        .map_err(|error| Failure::usage(error).advise("Check the file with `capinfos` or `tcpdump -r`"))?;
    let report: Report = outcome.sink.report(&outcome.ledger);
    if outcome.cut_bytes > 0 {
        output.note(format_args!("the file ends {} bytes into a packet: it was cut", outcome.cut_bytes));
    }
    if output.is_interrupted() {
        output.note("interrupted: the report covers what was read until then");
    }
    for line in report.text().lines() {
        output.line(line);
    }
    if let Some(html) = html {
        let mut trouble = Vec::new();
        if output.is_interrupted() {
            trouble.push("Interrupted: this covers what was read until then.".to_string());
        }
        if outcome.cut_bytes > 0 {
            trouble.push(format!("The file ends {} bytes into a packet: it was cut.", outcome.cut_bytes));
        }
        trouble
            .extend(outcome.damage.iter().map(|damage| format!("{damage}; this covers what came before.")));
        write_page(&report, file, trouble, html, output)?;
    }
    let value = serde_json::to_value(&report).map_err(|error| Failure::failed(error.to_string()))?;
    output.object(&value);
    if !report.valid {
        return Err(Failure::failed("the ledger does not add up: the report is invalid"));
    }
    match outcome.damage {
        Some(damage) => {
            Err(Failure::usage(damage).advise("The report above covers what came before the damage"))
        }
        None => Ok(()),
    }
}

/// The report as a page; `trouble` is what went wrong while the capture was read.
pub(super) fn write_page(
    report: &Report,
    file: &Path,
    trouble: Vec<String>,
    html: &Path,
    output: &Output,
) -> Done {
    let name = match file.file_name() {
        Some(name) if name != "-" => name.to_string_lossy().into_owned(),
        _ => "standard input".to_string(),
    };
    let source = Source { name, version: env!("CARGO_PKG_VERSION").to_string(), trouble };
    std::fs::write(html, brunt_report::html::render(&capture::page(report, &source)))
        .map_err(|error| Failure::failed(format!("{}: {error}", html.display())))?;
    output.line(format_args!("\nreport in {}", html.display()));
    Ok(())
}
