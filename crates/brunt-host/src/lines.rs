//! Keeps the last lines of a process's standard error, for error messages.
//!
//! The rule: all output is read, so that the process never blocks on us; only the last lines are kept, without
//! control characters that would affect a terminal.

use std::collections::VecDeque;
use std::io::{BufRead, Read};
use std::sync::{Mutex, PoisonError};

/// Maximum lines kept.
const LINES_MAX: usize = 20;
/// Longer lines are truncated.
const LINE_BYTES_MAX: usize = 2000;

/// Keeps the last lines until the other end is closed.
pub fn keep_lines(mut from: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    let mut line = Vec::new();
    while let Ok(count) = from
        .by_ref()
        .take(LINE_BYTES_MAX as u64)
        .read_until(b'\n', &mut line)
    {
        if count == 0 {
            return;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES_MAX {
            kept.pop_front();
        }
        let text = String::from_utf8_lossy(&line).replace('\t', " ");
        kept.push_back(
            text.trim()
                .chars()
                .filter(|one| !one.is_control())
                .collect(),
        );
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process's output is kept within limits, regardless of what it writes.
    #[test]
    fn lines_are_bounded() {
        let kept = Mutex::new(VecDeque::new());
        let mut text = vec![b'x'; 10 * LINE_BYTES_MAX];
        text.extend(b"\n\x1b[2Jthe\tlast\r\n");
        (0..100).for_each(|line| {
            text.splice(0..0, format!("{line}\n").into_bytes())
                .for_each(drop)
        });
        keep_lines(&text[..], &kept);
        let kept = kept.into_inner().unwrap();
        assert_eq!(
            (kept.len(), kept.back().map(String::as_str)),
            (LINES_MAX, Some("[2Jthe last"))
        );
        assert!(kept.iter().all(|line| line.len() <= LINE_BYTES_MAX));
    }
}
