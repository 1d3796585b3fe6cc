//! The simplest driver: one thread reads a file and feeds one pipeline. The one rule: the results so far are
//! returned, however the run ends.

use std::path::Path;

use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::operation::Sink;
use crate::pipeline::Pipeline;
use crate::source::{FileSource, PacketBatch, SourceError};

/// The result of processing a capture file.
#[derive(Debug)]
pub struct FileOutcome<S> {
    /// The sink, which received all operations.
    pub sink: S,
    /// What was seen and what was lost.
    pub ledger: Ledger,
    /// Set if the file is damaged, in which case the rest was not read.
    pub damage: Option<SourceError>,
    /// Bytes after the last complete packet: the file ends in the middle of a packet.
    pub cut_bytes: usize,
}

/// Runs a capture file through a pipeline until the file ends or `stop` returns true.
///
/// # Errors
/// The file cannot be opened, or an error occurs before the first packet was read.
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
