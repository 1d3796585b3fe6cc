//! Measures the cost of reassembly, checksums, analyses and the trace relative to reading the file: four passes
//! over one capture in the page cache (the trace goes to a folder next to it and is removed). Run it with
//! `cargo run --release -p brunt-capture --example speed FILE [REPEATS [PASS]]`.

use std::path::Path;
use std::time::Instant;

use brunt_capture::trace::{TraceOptions, TraceRecorder};
use brunt_capture::{
    Analysis, ChecksumRun, FileSource, Limits, Operation, PacketBatch, Sink, run_file,
};

/// Discards all operations.
struct Nothing;

impl Sink for Nothing {
    fn on_operation(&mut self, _: &Operation<'_>) {}
    fn on_checksums(&mut self, _: &ChecksumRun<'_>) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: speed FILE [REPEATS [PASS]]")?;
    let repeats: u32 = arguments.next().map_or(Ok(3), |n| n.parse())?;
    let path = Path::new(&path);
    let read = |path: &Path| -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let (mut source, mut batch) = (FileSource::open(path)?, PacketBatch::default());
        let mut bytes = 0;
        while source.fill(&mut batch)? {
            bytes += batch
                .packets()
                .map(|packet| u64::from(packet.wire_len))
                .sum::<u64>();
        }
        Ok((bytes, 0))
    };
    let operations = |path: &Path| -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let outcome = run_file(path, Nothing, Limits::default(), || false)?;
        Ok((outcome.ledger.wire_bytes, outcome.ledger.calls))
    };
    let analyses = |path: &Path| -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let outcome = run_file(path, Analysis::new(), Limits::default(), || false)?;
        let report = outcome.sink.report(&outcome.ledger);
        Ok((report.ledger.of("wire_bytes"), report.operations))
    };
    let trace = |path: &Path| -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let folder = path.with_extension("trace");
        let _ = std::fs::remove_dir_all(&folder);
        let recorder = TraceRecorder::create(&folder, &TraceOptions::default())?;
        let mut outcome = run_file(path, (Analysis::new(), recorder), Limits::default(), || {
            false
        })?;
        let (analysis, recorder) = outcome.sink;
        let (summary, error) = recorder.finish(&mut outcome.ledger);
        if let Some(error) = error {
            return Err(error.into());
        }
        let report = analysis.report(&outcome.ledger);
        let smaller = outcome.ledger.wire_bytes as f64 / summary.bytes as f64;
        println!(
            "{} rows, {} bytes: {smaller:.1} times smaller",
            summary.rows, summary.bytes
        );
        Ok((report.ledger.of("wire_bytes"), report.operations))
    };
    type Pass<'a> = &'a dyn Fn(&Path) -> Result<(u64, u64), Box<dyn std::error::Error>>;
    let passes: [(&str, Pass<'_>); 4] = [
        ("packets only", &read),
        ("operations and sums", &operations),
        ("and all analyses", &analyses),
        ("and the trace", &trace),
    ];
    let mut base = 0.0;
    let only: Option<usize> = arguments.next().map(|n| n.parse()).transpose()?;
    for (_, (name, pass)) in (1..)
        .zip(passes)
        .filter(|(number, _)| only.is_none_or(|only| only == *number))
    {
        let mut best = f64::INFINITY;
        let mut seen = (0, 0);
        for _ in 0..repeats.max(1) {
            let start = Instant::now();
            seen = pass(path)?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        base = if base == 0.0 { best } else { base };
        println!(
            "{name:<20} {best:>7.3} s {:>7.2} Gb/s {:>6.2} M calls/s {:>5.2} x reading",
            seen.0 as f64 * 8e-9 / best,
            seen.1 as f64 * 1e-6 / best,
            best / base
        );
    }
    Ok(())
}
