//! Reports parts that changed since they were written, after a command that maintains a lake.
//!
//! The rule: this prints only a note. Only `brunt lake check` fails because of such parts.

use std::path::Path;

use brunt_capture::trace::lake::changed_parts;

use crate::cli::Output;

/// Reports the parts that changed since they were written. Commands don't read parts that they leave unchanged, so
/// they wouldn't notice.
pub(super) fn note_changed_parts(folder: &Path, output: &Output) {
    for damaged in changed_parts(folder).unwrap_or_default() {
        output.note(damaged);
    }
}
