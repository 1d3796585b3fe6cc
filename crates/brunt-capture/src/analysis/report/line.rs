//! Formats times, names and sentences for the lines of a terminal.

use std::fmt::Write;

/// Formats a time with three digits and a unit.
pub(in crate::analysis) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.decimals$} {unit}")
}

/// Shortens a name in the middle to at most `width` characters.
pub(super) fn shorten(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_string();
    }
    let tail = (width - 1) * 2 / 3;
    let head = width - 1 - tail;
    let start: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// Wraps text into lines of at most 78 characters, indented by two.
pub(super) fn wrap(out: &mut String, bullet: &str, text: &str) {
    let mut line = bullet.to_string();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 78 && line.len() > 4 {
            let _ = writeln!(out, "{line}");
            line = "   ".into();
        }
        line.push(' ');
        line.push_str(&shorten(word, 74));
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end_and_fit() {
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("/export/a/very/long/path.c", 10), "/ex…path.c");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_234_567), "1.23 ms");
        assert_eq!(time(68_000_000_000), "68.0 s");
    }
}
