//! After a command that maintains a lake: parts that are not as they were written.
//!
//! The rule: a note only. `brunt lake check` is the command that fails for them.

use std::path::Path;

use brunt_capture::trace::lake::changed_parts;

use crate::cli::Output;

/// Names parts that are not as they were written. Commands don't read the parts that they leave as they are.
pub(super) fn note_changed_parts(folder: &Path, output: &Output) {
    for damaged in changed_parts(folder).unwrap_or_default() {
        output.note(damaged);
    }
}
