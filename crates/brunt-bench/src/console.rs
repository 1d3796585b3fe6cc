//! The output of a benchmark. The command line implements it for its standard output; a test may collect lines instead.

use std::fmt::Display;

use serde_json::Value;

/// Receives a benchmark's output, and reports whether the user wants it to stop.
pub trait Console {
    /// Prints a line for people.
    fn print_line(&self, text: &dyn Display);
    /// Prints a line for the user that is not a result.
    fn print_note(&self, text: &dyn Display);
    /// Prints the figures as a single JSON object.
    fn print_object(&self, value: &Value);
    /// Whether the user wants the benchmark to stop.
    fn is_interrupted(&self) -> bool;
}

impl dyn Console + '_ {
    pub(crate) fn line(&self, text: impl Display) {
        self.print_line(&text);
    }

    pub(crate) fn note(&self, text: impl Display) {
        self.print_note(&text);
    }

    pub(crate) fn object(&self, value: &Value) {
        self.print_object(value);
    }
}

/// A console that discards its output.
#[cfg(test)]
pub(crate) struct Unread;

#[cfg(test)]
impl Console for Unread {
    fn print_line(&self, _: &dyn Display) {}
    fn print_note(&self, _: &dyn Display) {}
    fn print_object(&self, _: &Value) {}
    fn is_interrupted(&self) -> bool {
        false
    }
}
