//! Continues the trace of a capture that has ended or was killed: `brunt capture --out DIR --continue`. The new
//! pipelines are numbered after the earlier ones, so ids stay unique, and the ledger continues from the last row of
//! the earlier capture. The one rule: nothing that was written is changed, and the time between the captures is
//! counted.

use std::path::Path;

use brunt_lake::{ClosedPart, LakeError, WriterLock, reader};

use super::lake::pipelines_of;
use super::recorder::{TraceRecorder, registry};
use super::replay::{ReplayError, last_counters, notes};
use super::rows::LANES;
use super::store::{Earlier, EarlierParts, Shared, TraceOptions};

/// Why a trace cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum ContinueError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// The trace cannot be written to.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// Only part of the trace would be anonymous.
    #[error("the trace {}: continue it in the same way", match is_anonymous {
        true => "has pseudonyms",
        false => "has no pseudonyms",
    })]
    Anonymous {
        /// Whether the trace has pseudonyms.
        is_anonymous: bool,
    },
}

impl TraceRecorder {
    /// Continues the trace in `folder` with `count` more pipelines.
    ///
    /// # Errors
    /// The trace cannot be read or written, was compacted, or has pseudonyms where this capture has none, or vice
    /// versa.
    pub fn continue_shared(
        folder: &Path,
        options: &TraceOptions,
        count: usize,
    ) -> Result<Vec<TraceRecorder>, ContinueError> {
        let lock = WriterLock::take(folder)?;
        let is_anonymous = notes(folder)?.is_anonymous;
        if is_anonymous != options.anonymizer.is_some() {
            return Err(ContinueError::Anonymous { is_anonymous });
        }
        let before = pipelines_of(folder)? as usize;
        let mut found = Vec::new();
        let mut parts = EarlierParts::default();
        for entry in registry().entries() {
            for (series, part) in reader::closed_parts(folder, entry.table)? {
                parts.parts += 1;
                parts.rows += part.rows;
                parts.bytes += part.bytes;
                found.push((usize::from(series) * LANES, entry.is_referred_to, part));
            }
        }
        let earlier = Earlier {
            pipelines: before,
            counters: Some(last_counters(folder)?),
            parts,
        };
        let shared = Shared::new(count, earlier, options, lock);
        if let Some(budget) = &shared.budget {
            // The oldest parts are deleted first, whatever their table.
            let modified = |part: &ClosedPart| part.path.metadata().and_then(|m| m.modified()).ok();
            found.sort_by_cached_key(|(.., part)| modified(part));
            for (lane, is_referred_to, part) in found {
                budget.on_found(lane, is_referred_to, part);
            }
        }
        Ok(TraceRecorder::start_all(
            folder,
            options,
            before..before + count,
            shared,
        )?)
    }
}
