//! Headings of documentation: rustdoc's own sections (`# Errors`) start a line and end it. Text that follows on the
//! same line becomes part of the heading, which happens when comments are reflowed.

use crate::source::CrateSources;

const SECTIONS: &[&str] = &["# Errors", "# Examples", "# Panics", "# Safety"];

/// Each section's heading that shares its line with other text, as `file:line: text`.
pub fn violations(sources: &CrateSources) -> Vec<String> {
    let mut found = Vec::new();
    for file in &sources.files {
        for (index, line) in file.text.lines().enumerate() {
            if joins_a_heading(line) {
                let (path, line) = (sources.path_of(file), line.trim());
                found.push(format!("{path}:{}: {line}", index + 1));
            }
        }
    }
    found
}

fn joins_a_heading(line: &str) -> bool {
    let line = line.trim();
    let Some(text) = line.strip_prefix("///").or(line.strip_prefix("//!")) else {
        return false;
    };
    // Headings in code blocks are exempt.
    let text = text.trim();
    let shares = |section| text.contains(section) && text != section;
    !text.contains('`') && SECTIONS.iter().any(|section| shares(*section))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let text = format!("{text}\nfn f() {{}}\n");
        assert_eq!(
            violations(&CrateSources::parse("a", [("x.rs", text)])),
            expected
        );
    }

    #[test]
    fn a_heading_that_shares_its_line_is_found() {
        check(
            "/// # Errors If the file can't be read.",
            &["a/src/x.rs:1: /// # Errors If the file can't be read."],
        );
        check(
            "/// Reads it.\n/// Whole. # Panics",
            &["a/src/x.rs:2: /// Whole. # Panics"],
        );
    }

    #[test]
    fn headings_on_lines_of_their_own_and_other_comments_are_fine() {
        check("/// Reads it.\n///\n/// # Errors\n/// If it can't.", &[]);
        check("// Adds `# Errors` sections. # Errors too.", &[]);
    }
}
