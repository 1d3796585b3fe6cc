//! Describes tables in Markdown, so that pages under `docs/` match the descriptions that the files are written from.

use std::fmt::Write;

use crate::table::{Column, Table};

/// A section per table: its doc, and its columns with type and meaning.
pub fn sections(tables: &[&Table]) -> String {
    let mut text = String::new();
    for table in tables {
        let _ = write!(
            text,
            "### `{}`\n\n{}\n\n| column | type | |\n|---|---|---|\n",
            table.name, table.doc
        );
        for Column {
            name,
            doc,
            kind,
            nullable,
            ..
        } in table.columns
        {
            let null = if *nullable { ", may be null" } else { "" };
            let _ = writeln!(text, "| `{name}` | {}{null} | {doc} |", kind.sql());
        }
        text.push('\n');
    }
    text
}

/// The text between `<!-- tables: begin -->` and `<!-- tables: end -->` of a page; a test of the page compares it with
/// [`sections`].
pub fn between_marks(page: &str) -> Option<&str> {
    let (_, after) = page.split_once("<!-- tables: begin -->\n\n")?;
    after
        .split_once("<!-- tables: end -->")
        .map(|(between, _)| between)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every column appears with its type, and the text between a page's marks is found.
    #[test]
    fn a_table_becomes_a_section() {
        const TABLE: Table = Table {
            name: "runs",
            doc: "One row for each run.",
            columns: &[
                Column::int("run", "Its number."),
                Column::float("mean_ns", "Null if none.").nullable(),
            ],
        };
        let text = sections(&[&TABLE]);
        assert!(
            text.contains("| `mean_ns` | DOUBLE, may be null | Null if none. |\n"),
            "{text}"
        );
        let page = format!("# Page\n<!-- tables: begin -->\n\n{text}<!-- tables: end -->\nmore");
        assert_eq!(between_marks(&page), Some(text.as_str()));
    }
}
