//! The simplest driver: one thread reads a file and feeds one pipeline. The one rule: whatever ends it, the
//! results so far are returned.

use std::path::Path;

use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::operation::Sink;
use crate::pipeline::Pipeline;
use crate::source::{FileSource, PacketBatch, SourceError};

/// What came of a file.
#[derive(Debug)]
pub struct FileOutcome<S> {
    /// The sink, with all operations.
    pub sink: S,
    /// What was seen and lost.
    pub ledger: Ledger,
    /// Set when the file ended in damage: the rest of it was not seen.
    pub damage: Option<SourceError>,
    /// Bytes after the last whole packet: the file was cut while it was written.
    pub cut_bytes: usize,
}

/// Runs a capture file through a pipeline, until its end or until `stop` says so.
///
/// # Errors
/// The file cannot be opened, or nothing in it can be read.
pub fn run_file<S: Sink>(
    path: &Path,
    sink: S,
    limits: Limits,
    mut stop: impl FnMut() -> bool,
) -> Result<FileOutcome<S>, SourceError> {
    let mut source = FileSource::open(path)?;
    let mut pipeline = Pipeline::new(sink, limits);
    let mut batch = PacketBatch::default();
    let mut damage = None;
    while !stop() {
        let more = match source.fill(&mut batch) {
            Ok(more) => more,
            Err(error) => {
                damage = Some(error);
                false
            }
        };
        pipeline.on_batch(&batch);
        if !more {
            break;
        }
    }
    if pipeline.ledger().packets == 0
        && let Some(error) = damage
    {
        return Err(error);
    }
    let (sink, ledger) = pipeline.finish();
    Ok(FileOutcome {
        sink,
        ledger,
        damage,
        cut_bytes: source.cut_bytes(),
    })
}
