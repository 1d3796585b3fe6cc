//! Draws the sections of analyses. The rule: it doesn't depend on individual analyses, so a new analysis needs no
//! code here.

use brunt_result::capture::{Report, SectionColumn, SectionUnit};
use serde_json::Value;

use crate::format::{Unit, count, sentence_case};
use crate::page::{Block, Cell, PageTable, Section};

/// Tables with more rows are collapsed.
const ROWS_UNFOLDED: usize = 30;

/// The sections that have rows.
pub(super) fn sections(report: &Report) -> impl Iterator<Item = Section> {
    report.sections.iter().filter_map(|layout| {
        let rows = report.rows_of(layout);
        if layout.columns.is_empty() || rows.is_empty() {
            return None;
        }
        let mut section = Section::new(&*layout.title);
        if !layout.note.is_empty() {
            section.prose(&*layout.note);
        }
        if report.is_figures(layout) {
            let figures = layout.columns.iter().map(|column| {
                let shown = shown(column, &rows[0]).unwrap_or_else(|| "–".into());
                (sentence_case(&column.heading), shown)
            });
            section.blocks.push(Block::Facts(figures.collect()));
            return Some(section);
        }
        let headings: Vec<&str> = layout.columns.iter().map(|c| &*c.heading).collect();
        let cells = rows.iter().map(|row| {
            layout
                .columns
                .iter()
                .map(|column| cell(column, row))
                .collect()
        });
        let table = PageTable::new(&*layout.title, &headings, cells);
        section.table(match rows.len() > ROWS_UNFOLDED {
            true => table.folded(),
            false => table,
        });
        Some(section)
    })
}

/// A value with its unit; `None` if it is unknown.
fn shown(column: &SectionColumn, row: &Value) -> Option<String> {
    let value = &row[&*column.key];
    Some(match column.unit {
        SectionUnit::Text => value.as_str()?.to_string(),
        SectionUnit::Count | SectionUnit::Number => count(value.as_f64()?),
        SectionUnit::Bytes => Unit::Bytes.show(value.as_f64()?),
        SectionUnit::Share => Unit::Share.show(value.as_f64()?),
        SectionUnit::Nanoseconds => Unit::Micros.show(value.as_f64()? / 1e3),
    })
}

fn cell(column: &SectionColumn, row: &Value) -> Cell {
    match (column.unit, shown(column, row)) {
        (_, None) => Cell::Empty,
        (SectionUnit::Text, Some(text)) => Cell::text(text),
        (_, Some(number)) => Cell::number(number),
    }
}

#[cfg(test)]
mod tests {
    use brunt_result::capture::AnalysisSection;
    use serde_json::json;

    use super::*;
    use crate::page::Page;

    const COLUMNS: &[SectionColumn] = &[
        SectionColumn::new("client", "client", SectionUnit::Text),
        SectionColumn::new("wait_ns", "waited", SectionUnit::Nanoseconds),
        SectionColumn::new("share", "share", SectionUnit::Share),
    ];

    /// The page of a report with these sections, whose names this code doesn't know.
    fn drawn(all: Vec<AnalysisSection>) -> String {
        let mut report: Report = serde_json::from_str(EMPTY).unwrap();
        for section in all {
            let name = section.layout.name.to_string();
            report.rows.insert(name, section.rows);
            report.sections.push(section.layout);
        }
        let page = Page {
            sections: sections(&report).collect(),
            ..Page::default()
        };
        crate::html::render(&page)
    }

    /// A report as stored before sections existed.
    const EMPTY: &str = r#"{"start_ns": 0, "duration_s": 0.0, "valid": true, "findings": [], "operations": 0,
        "operations_per_s": null, "wire_gbit_per_s": null, "by_operation": [], "profile": {
        "read": {"operations": 0, "bytes": 0}, "write": {"operations": 0, "bytes": 0},
        "metadata_operations": 0, "random_read_working_set_bytes": 0, "working_set_bytes": 0,
        "outstanding_mean": null, "outstanding_max": 0}, "duplicates": {"blocks_read": 0,
        "blocks_written": 0, "duplicate_share": null, "zero_share": null},
        "files": {"count": 0, "forgotten": 0, "top": []},
        "directories": {"count": 0, "forgotten": 0, "top": []},
        "clients": {"count": 0, "forgotten": 0, "top": []},
        "pairs": {"count": 0, "forgotten": 0, "top": []},
        "misaligned": [{"client": "10.0.0.1", "transfers": 4, "misaligned": 1}],
        "intervals": [], "not_understood": [], "ledger": {}}"#;

    #[test]
    fn any_section_is_drawn() {
        let rows = [
            json!({ "client": "<b>", "wait_ns": 1_500_000, "share": 0.25 }),
            json!({ "client": "b" }),
        ];
        let figures = json!({ "client": "c", "share": 0.5 });
        let page = drawn(vec![
            AnalysisSection::table("waits", "Waits", COLUMNS, rows).note("Of clients."),
            AnalysisSection::figures("slowest", "Slowest", COLUMNS, figures),
        ]);
        for text in [
            "Waits",
            "Of clients.",
            "&lt;b&gt;",
            "1.50 ms",
            "25 %",
            "Slowest",
            "Client",
            "50 %",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    /// Empty tables, and rows without a layout as in reports of earlier versions, are left out.
    #[test]
    fn nothing_to_show_is_not_shown() {
        let none: [Value; 0] = [];
        let page = drawn(vec![AnalysisSection::table(
            "waits", "Waits", COLUMNS, none,
        )]);
        assert!(!page.contains("Waits") && !page.contains("10.0.0.1"));
    }
}
