//! Generates traces for a measurement with Brunt's own writers.
//!
//! The rule: a request that the format cannot express is a bug in the benchmark.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use brunt_trace::{BlockRequest, Devices, TraceSink, writer_named};

use crate::{BenchError, BenchResult};

/// The binary format of the generated traces.
pub const VSCSI: &str = "vscsi1";
/// Requests per write.
const BATCH: usize = 4096;

/// Writes one device's requests to a file, in the format with this name.
///
/// # Errors
/// The file cannot be written.
///
/// # Panics
/// See [`write_to`].
pub fn write_trace(
    path: &Path,
    format: &str,
    requests: impl Iterator<Item = BlockRequest>,
) -> BenchResult {
    let failed = |error: std::io::Error| BenchError::failed(format!("{}: {error}", path.display()));
    let file = File::create(path).map_err(failed)?;
    write_to(
        &path.display().to_string(),
        Box::new(file),
        format,
        requests,
    )
}

/// Like [`write_trace`], but to any writer.
///
/// # Errors
/// The trace cannot be written.
///
/// # Panics
/// The format has no writer, or cannot express one of the requests: both are bugs in the benchmark.
pub fn write_to(
    name: &str,
    out: Box<dyn Write + Send>,
    format: &str,
    requests: impl Iterator<Item = BlockRequest>,
) -> BenchResult {
    let writer = writer_named(format).expect("a writable format");
    let mut sink = TraceSink::file(name.to_string(), out, writer);
    let mut devices = Devices::default();
    devices.index_of(b"hm-0").expect("the first device");
    let (mut batch, mut requests, mut made) = (Vec::with_capacity(BATCH), requests.peekable(), 0);
    while requests.peek().is_some() {
        batch.clear();
        batch.extend(requests.by_ref().take(BATCH));
        made += batch.len() as u64;
        sink.write(&batch, &devices).map_err(BenchError::failed)?;
    }
    let ledger = sink.finish(&devices).map_err(BenchError::failed)?;
    assert_eq!(ledger.written, made, "{format} can express all requests");
    Ok(())
}
