//! Text that only shows characters: what a server, a file or a host calls itself may hold codes that a terminal obeys.
//!
//! The one rule: everything but line ends and tabs that is a control character, or changes the direction or the line of what
//! follows, becomes the sign for a character that cannot be shown.

use std::fmt::{self, Display, Write};
use std::path::Path;

use brunt_study::plain::moves_text;

/// Shows what it holds without control characters.
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

/// The name of a file that was read, for people.
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
    fn a_terminal_is_told_nothing() {
        let shown = Plain("disk\x1b[2J\r\x07 ü\u{9b}0m\tof 3\n").to_string();
        assert_eq!(shown, "disk\u{fffd}[2J\u{fffd}\u{fffd} ü\u{fffd}0m\tof 3\n");
        assert_eq!(
            Plain("a\u{202e}gpj.exe\u{2066}\u{2028}b\u{200f}").to_string(),
            "a\u{fffd}gpj.exe\u{fffd}\u{fffd}b\u{fffd}"
        );
        assert_eq!(Plain(format_args!("{}{}", 'a', 1)).to_string(), "a1");
    }
}
