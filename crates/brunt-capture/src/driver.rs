//! The plainest driver: one thread reads a file and feeds one pipeline. The one rule: whatever
//! ends it, what was seen until then is handed back.

use std::path::Path;

use crate::ledger::Ledger;
use crate::operation::Sink;
use crate::pipeline::{Limits, Pipeline};
use crate::source::{Batch, FileSource, SourceError};

/// What came of a file.
#[derive(Debug)]
pub struct Outcome<S> {
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
    stop: impl FnMut() -> bool,
) -> Result<Outcome<S>, SourceError> {
    run_file_with(path, sink, limits, |_| true, stop)
}

/// The same, and shows each batch to `tap` first; the run is over when that says `false`.
///
/// # Errors
/// As [`run_file`].
pub fn run_file_with<S: Sink>(
    path: &Path,
    sink: S,
    limits: Limits,
    mut tap: impl FnMut(&Batch) -> bool,
    mut stop: impl FnMut() -> bool,
) -> Result<Outcome<S>, SourceError> {
    let mut source = FileSource::open(path)?;
    let mut pipeline = Pipeline::new(sink, limits);
    let mut batch = Batch::default();
    let mut damage = None;
    while !stop() {
        let more = match source.fill(&mut batch) {
            Ok(more) => more,
            Err(error) => {
                damage = Some(error);
                false
            }
        };
        let go_on = tap(&batch);
        pipeline.on_batch(&batch);
        if !more || !go_on {
            break;
        }
    }
    if pipeline.ledger().packets == 0
        && let Some(error) = damage
    {
        return Err(error);
    }
    let (sink, ledger) = pipeline.finish();
    Ok(Outcome { sink, ledger, damage, cut_bytes: source.cut_bytes() })
}
