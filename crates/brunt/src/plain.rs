//! Displays text without control characters: names from a server, file or host may contain terminal escape sequences.
//!
//! The rule: every control character except line ends and tabs, and every character that changes the direction of the
//! following text or moves it to another line, becomes the replacement character.

use std::fmt::{self, Display, Write};
use std::path::Path;

use brunt_study::plain::moves_text;

/// Displays the inner value without control characters.
pub struct Plain<T>(pub T);

impl<T: Display> Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(PlainWriter(f), "{}", self.0)
    }
}

struct PlainWriter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for PlainWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_code = |one: char| moves_text(one) && !matches!(one, '\n' | '\t');
        let mut rest = text;
        while let Some(at) = rest.find(is_code) {
            self.0.write_str(&rest[..at])?;
            self.0.write_char(char::REPLACEMENT_CHARACTER)?;
            let mut after = rest[at..].chars();
            after.next();
            rest = after.as_str();
        }
        self.0.write_str(rest)
    }
}

/// The name of an input file, for display.
pub fn file_label(file: &Path) -> String {
    match file.file_name() {
        Some(name) if name != "-" => name.to_string_lossy().into_owned(),
        _ => "standard input".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_replaced() {
        let shown = Plain("disk\x1b[2J\r\x07 ü\u{9b}0m\tof 3\n").to_string();
        assert_eq!(shown, "disk\u{fffd}[2J\u{fffd}\u{fffd} ü\u{fffd}0m\tof 3\n");
        assert_eq!(
            Plain("a\u{202e}gpj.exe\u{2066}\u{2028}b\u{200f}").to_string(),
            "a\u{fffd}gpj.exe\u{fffd}\u{fffd}b\u{fffd}"
        );
        assert_eq!(Plain(format_args!("{}{}", 'a', 1)).to_string(), "a1");
    }
}
