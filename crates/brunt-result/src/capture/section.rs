//! A section of a report as plain data: what an analysis found, and how to show it. The terminal and the page draw any
//! section, so an analysis needs no code in either.
//!
//! The rule: rows are JSON by column key, readable without their layout; a missing or null value is unknown.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How to show a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SectionUnit {
    /// A text.
    Text,
    /// A whole number.
    Count,
    /// A number that may have a fraction, such as a rate.
    Number,
    /// Bytes.
    Bytes,
    /// A share from 0 to 1, shown in percent.
    Share,
    /// A time in nanoseconds.
    Nanoseconds,
}

/// A column of a table, or one of several figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionColumn {
    /// Key of the column's values in rows, for programs. A query of the analysis uses the same name.
    pub key: Cow<'static, str>,
    /// Heading of the column.
    pub heading: Cow<'static, str>,
    /// How to show its values.
    pub unit: SectionUnit,
    /// Whether the terminal omits the column to save width.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub page_only: bool,
}

impl SectionColumn {
    /// A column shown everywhere.
    pub const fn new(key: &'static str, heading: &'static str, unit: SectionUnit) -> SectionColumn {
        SectionColumn {
            key: Cow::Borrowed(key),
            heading: Cow::Borrowed(heading),
            unit,
            page_only: false,
        }
    }

    /// Omits the column in the terminal.
    pub const fn page_only(mut self) -> SectionColumn {
        self.page_only = true;
        self
    }
}

/// How to show the results of an analysis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionLayout {
    /// Key of the analysis's rows in the report.
    pub name: Cow<'static, str>,
    /// Heading of the section.
    pub title: Cow<'static, str>,
    /// What the section shows, in a sentence or two; may be empty.
    pub note: Cow<'static, str>,
    /// Columns of the section; none if the rows are only for programs.
    pub columns: Cow<'static, [SectionColumn]>,
}

/// What an analysis adds to a report.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalysisSection {
    /// How to show it.
    pub layout: SectionLayout,
    /// An array of objects for a table, or one object for a few figures. Programs find the value in the report under
    /// the layout's name.
    pub rows: Value,
}

impl AnalysisSection {
    /// A table with a row per object.
    ///
    /// # Panics
    /// A row is not an object.
    pub fn table<R: Serialize>(
        name: &'static str,
        title: &'static str,
        columns: &'static [SectionColumn],
        rows: impl IntoIterator<Item = R>,
    ) -> AnalysisSection {
        let rows = rows.into_iter().map(object).collect();
        AnalysisSection::new(name, title, columns, Value::Array(rows))
    }

    /// A few figures, shown by their headings.
    ///
    /// # Panics
    /// `figures` is not an object.
    pub fn figures(
        name: &'static str,
        title: &'static str,
        columns: &'static [SectionColumn],
        figures: impl Serialize,
    ) -> AnalysisSection {
        AnalysisSection::new(name, title, columns, object(figures))
    }

    fn new(
        name: &'static str,
        title: &'static str,
        columns: &'static [SectionColumn],
        rows: Value,
    ) -> AnalysisSection {
        let layout = SectionLayout {
            name: name.into(),
            title: title.into(),
            note: Cow::Borrowed(""),
            columns: columns.into(),
        };
        AnalysisSection { layout, rows }
    }

    /// Adds a sentence about the section.
    pub fn note(mut self, note: impl Into<Cow<'static, str>>) -> AnalysisSection {
        self.layout.note = note.into();
        self
    }
}

fn object(row: impl Serialize) -> Value {
    let row = serde_json::to_value(row).expect("rows are plain data");
    assert!(row.is_object(), "a row names its values: {row}");
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[SectionColumn] = &[
        SectionColumn::new("name", "name", SectionUnit::Text),
        SectionColumn::new("bytes", "largest", SectionUnit::Bytes).page_only(),
    ];

    #[test]
    fn layouts_survive_serialization() {
        let rows = [serde_json::json!({"name": "READ", "bytes": 7})];
        let section = AnalysisSection::table("largest", "Largest", COLUMNS, rows).note("A note.");
        let text = serde_json::to_string(&section.layout).unwrap();
        assert!(text.contains(r#"{"key":"name","heading":"name","unit":"text"}"#));
        assert!(text.contains(r#""unit":"bytes","page_only":true"#));
        let back: SectionLayout = serde_json::from_str(&text).unwrap();
        assert_eq!(back, section.layout);
    }

    #[test]
    #[should_panic(expected = "a row names its values")]
    fn rows_without_keys_are_a_bug() {
        AnalysisSection::table("largest", "Largest", COLUMNS, [7]);
    }
}
