//! Tables as Markdown, so that pages under `docs/` follow the descriptions that files follow.

use std::fmt::Write;

use crate::table::{Column, Table};

/// A section for each table: its doc, and its columns with type and meaning.
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

/// What stands between `<!-- tables: begin -->` and `<!-- tables: end -->` of a page; the test of a
/// page compares it with [`sections`].
pub fn between_marks(page: &str) -> Option<&str> {
    let (_, after) = page.split_once("<!-- tables: begin -->\n\n")?;
    after
        .split_once("<!-- tables: end -->")
        .map(|(between, _)| between)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every column is there with its type, and a page's part is found again.
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
