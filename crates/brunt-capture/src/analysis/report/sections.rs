//! Prints the sections of analyses as tables and lists of figures, at most 80 columns wide. The one rule: this code
//! treats all analyses alike, so a new analysis needs no code here.

use std::fmt::Write;

use brunt_core::units::format_size;
use brunt_result::capture::{Report, SectionColumn, SectionLayout, SectionUnit};
use serde_json::Value;

use super::line::{shorten, time, wrap};

/// Rows per table; the page and the JSON contain all rows.
const ROWS_MAX: usize = 5;
/// Table width without the indentation.
const WIDTH: usize = 78;
/// Texts are shortened to fit a line, but not below this width.
const TEXT_WIDTH_MIN: usize = 12;
/// Space between columns.
const GAP: usize = 2;

/// Prints the sections that have rows.
pub(super) fn write(report: &Report, o: &mut String) {
    for section in &report.sections {
        let rows = report.rows_of(section);
        if section.columns.is_empty() || rows.is_empty() {
            continue;
        }
        let _ = writeln!(o, "\n{}", section.title);
        if !section.note.is_empty() {
            wrap(o, " ", &section.note);
        }
        if report.is_figures(section) {
            write_figures(section, &rows[0], o);
        } else {
            write_table(section, rows, o);
        }
    }
}

fn shown_columns(section: &SectionLayout) -> Vec<&SectionColumn> {
    let columns = section.columns.iter();
    columns.filter(|column| !column.page_only).collect()
}

/// A value as text, or a dash if it is unknown.
fn shown(column: &SectionColumn, row: &Value) -> String {
    let value = &row[&*column.key];
    let known = match column.unit {
        SectionUnit::Text => value.as_str().map(str::to_string),
        SectionUnit::Count => value.as_u64().map(|count| count.to_string()),
        SectionUnit::Number => value.as_f64().map(|number| format!("{number:.1}")),
        SectionUnit::Bytes => value
            .as_f64()
            .map(|bytes| format_size(bytes.round() as u64)),
        SectionUnit::Share => value
            .as_f64()
            .map(|share| format!("{:.1} %", 100.0 * share)),
        SectionUnit::Nanoseconds => value.as_u64().map(time),
    };
    known.unwrap_or_else(|| "-".into())
}

fn write_figures(section: &SectionLayout, row: &Value, o: &mut String) {
    let figures = shown_columns(section).into_iter();
    let figures = figures.map(|column| format!("{} {}", column.heading, shown(column, row)));
    wrap(o, " ", &figures.collect::<Vec<_>>().join("; "));
}

fn write_table(section: &SectionLayout, rows: &[Value], o: &mut String) {
    let columns = shown_columns(section);
    let headings = columns.iter().map(|column| column.heading.to_string());
    let mut lines: Vec<Vec<String>> = vec![headings.collect()];
    let printed = rows.iter().take(ROWS_MAX);
    lines.extend(printed.map(|row| columns.iter().map(|column| shown(column, row)).collect()));
    let widths = widths(&columns, &lines);
    for line in &lines {
        let mut text = " ".repeat(GAP);
        for ((column, cell), &width) in columns.iter().zip(line).zip(&widths) {
            let cell = shorten(cell, width);
            let _ = match column.unit {
                SectionUnit::Text => write!(text, "{cell:<width$}"),
                _ => write!(text, "{cell:>width$}"),
            };
            text.push_str(&" ".repeat(GAP));
        }
        let _ = writeln!(o, "{}", text.trim_end());
    }
    match rows.len().saturating_sub(ROWS_MAX) {
        0 => {}
        further => {
            let _ = writeln!(o, "  and {further} more");
        }
    }
}

/// Column widths: as wide as the cells, except that the widest text columns shrink until a line fits.
fn widths(columns: &[&SectionColumn], lines: &[Vec<String>]) -> Vec<usize> {
    let width = |index: usize| lines.iter().map(move |line| line[index].chars().count());
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|index| width(index).max().unwrap_or(0))
        .collect();
    while widths.iter().map(|width| width + GAP).sum::<usize>() > WIDTH + GAP {
        let texts = (0..columns.len()).filter(|&index| columns[index].unit == SectionUnit::Text);
        match texts.max_by_key(|&index| widths[index]) {
            Some(widest) if widths[widest] > TEXT_WIDTH_MIN => widths[widest] -= 1,
            _ => break,
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use brunt_result::capture::AnalysisSection;
    use serde_json::json;

    use super::*;
    use crate::analysis::Analysis;
    use crate::ledger::Ledger;

    const COLUMNS: &[SectionColumn] = &[
        SectionColumn::new("client", "client", SectionUnit::Text),
        SectionColumn::new("number", "number", SectionUnit::Count).page_only(),
        SectionColumn::new("bytes", "data", SectionUnit::Bytes),
        SectionColumn::new("wait_ns", "waited", SectionUnit::Nanoseconds),
        SectionColumn::new("share", "share", SectionUnit::Share),
    ];

    fn check(section: AnalysisSection, expected: &str) {
        let mut report = Analysis::new().report(&Ledger::default());
        let name = section.layout.name.to_string();
        report.rows = [(name, section.rows)].into();
        report.sections = vec![section.layout];
        let mut text = String::new();
        write(&report, &mut text);
        assert_eq!(text, expected);
    }

    #[test]
    fn tables_are_aligned_and_unknown_values_are_dashes() {
        let rows = [
            json!({ "client": "10.0.0.1", "bytes": 4096, "wait_ns": 1500, "share": 0.25 }),
            json!({ "client": "fe80::1", "number": 7, "wait_ns": null }),
        ];
        let section = AnalysisSection::table("waits", "Waits", COLUMNS, rows).note("By client.");
        check(
            section,
            "\nWaits\n  By client.\n  client    data   waited   share\n  \
             10.0.0.1  4KiB  1.50 us  25.0 %\n  fe80::1      -        -       -\n",
        );
    }

    #[test]
    fn figures_are_one_list() {
        let figures = json!({ "client": "a", "bytes": 512, "share": 1.0 });
        check(
            AnalysisSection::figures("waits", "Waits", COLUMNS, figures),
            "\nWaits\n  client a; data 512B; waited -; share 100.0 %\n",
        );
    }

    /// The terminal shows the first rows, in lines of at most 80 columns.
    #[test]
    fn long_tables_are_cut_in_both_directions() {
        let row = json!({ "client": "c".repeat(200), "bytes": 1 });
        let section = AnalysisSection::table("waits", "Waits", COLUMNS, vec![row; 9]);
        let mut report = Analysis::new().report(&Ledger::default());
        report.rows = [("waits".to_string(), section.rows)].into();
        report.sections = vec![section.layout];
        let mut text = String::new();
        write(&report, &mut text);
        assert!(text.ends_with("\n  and 4 more\n"), "{text}");
        assert_eq!(text.lines().count(), 9);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains('…'));
    }

    /// Sections without rows, and sections only for programs, are left out.
    #[test]
    fn nothing_to_show_is_not_shown() {
        let none: [Value; 0] = [];
        check(AnalysisSection::table("waits", "Waits", COLUMNS, none), "");
        let figures = json!({ "bytes": 0 });
        check(AnalysisSection::figures("waits", "Waits", &[], figures), "");
    }
}
