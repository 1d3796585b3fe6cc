//! After a command that maintains a lake: reports parts that changed since they were written.
//!
//! The rule: a note only. It is `brunt lake check` that fails for them.

use std::path::Path;

use brunt_capture::trace::lake::changed_parts;

use crate::cli::Output;

/// Reports the parts that changed since they were written. Commands don't read parts that they don't change.
pub(super) fn note_changed_parts(folder: &Path, output: &Output) {
    for damaged in changed_parts(folder).unwrap_or_default() {
        output.note(damaged);
    }
}
