//! Measures how many instructions and how much time reading one row of a trace takes. Reads a file the given number
//! of times and sums its fields. Two runs with different TIMES under a counting tool give the slope, without startup
//! and shutdown.
//!
//!     valgrind --tool=callgrind target/release/examples/count_rows FILE FORMAT TIMES

use std::path::Path;
use std::time::Instant;

use brunt_trace::{ColumnMap, FormatOptions, ReadOptions, TraceOp, TraceReader, format_named};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("{what} is missing"));
    let (path, format, times) = (
        next("FILE")?,
        next("FORMAT")?,
        next("TIMES")?.parse::<u32>()?,
    );
    let options = FormatOptions {
        op: Some(TraceOp::Read),
        columns: Some(ColumnMap::SAMPLE),
        ..FormatOptions::default()
    };
    let options = ReadOptions {
        format: format_named(&format),
        strict: true,
        options,
        ..ReadOptions::default()
    };
    let (began, mut rows, mut sum) = (Instant::now(), 0u64, 0u64);
    for _ in 0..times {
        let mut reader = TraceReader::open_with(Path::new(&path), &options)?;
        while let Some(requests) = reader.next_requests()? {
            rows += requests.len() as u64;
            let of = |sum: u64, one: &brunt_trace::BlockRequest| {
                sum.wrapping_add(one.offset_bytes ^ one.time_ns ^ u64::from(one.len_bytes))
            };
            sum = requests.iter().fold(sum, of);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{rows} rows, {:.1} ns each, sum {sum:x}",
        seconds * 1e9 / rows.max(1) as f64
    );
    Ok(())
}
