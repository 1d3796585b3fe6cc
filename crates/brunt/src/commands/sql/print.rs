//! Prints an answer as a table for people, as JSON or as CSV. Reads the rows from the engine's file (for a table
//! twice, to find the column widths), so memory use doesn't grow with the number of rows.

use brunt_lake::LakeError;
use brunt_lake::foreign::{ForeignColumn, ForeignRows, ForeignValue, JsonObject};

use super::engine::{Answer, EngineError};
use super::scratch::SqlScratch;
use crate::cli::Output;

/// The output format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// Aligned columns; with `--json`, an object.
    Rows,
    /// Comma-separated values (RFC 4180), with a header line.
    Csv,
}

/// Prints the rows of an answer whose file is in `scratch`. Deletes `scratch` first, because printing ends the program
/// if the reader of standard output is gone.
///
/// # Errors
/// The file cannot be read, or the user interrupts.
pub fn print(
    answer: &Answer,
    form: AnswerForm,
    scratch: SqlScratch,
    output: &Output,
) -> Result<(), EngineError> {
    let printer = Printer { answer, output };
    let (rows, rows_again) = (printer.open()?, printer.open()?);
    drop(scratch);
    match form {
        AnswerForm::Csv => printer.csv(rows),
        AnswerForm::Rows if output.is_json() => printer.json(rows),
        AnswerForm::Rows => printer.table(rows, rows_again),
    }
}

struct Printer<'a> {
    answer: &'a Answer,
    output: &'a Output,
}

impl Printer<'_> {
    fn open(&self) -> Result<ForeignRows, EngineError> {
        ForeignRows::open(&self.answer.rows).map_err(|source| self.unreadable(source))
    }

    fn unreadable(&self, source: LakeError) -> EngineError {
        EngineError::Unreadable {
            engine: self.answer.engine,
            source,
        }
    }

    /// Calls `each` with every row, until the user interrupts.
    fn each(
        &self,
        rows: ForeignRows,
        mut each: impl FnMut(Vec<ForeignValue>),
    ) -> Result<(), EngineError> {
        for row in rows {
            if self.output.is_interrupted() {
                return Err(EngineError::Interrupted);
            }
            each(row.map_err(|source| self.unreadable(source))?);
        }
        Ok(())
    }

    fn csv(&self, rows: ForeignRows) -> Result<(), EngineError> {
        let names: Vec<_> = rows
            .columns()
            .iter()
            .map(|column| csv(&column.name))
            .collect();
        let mut to = self.output.answer();
        to.put(format_args!("{}\n", names.join(",")));
        self.each(rows, |row| {
            let cells: Vec<_> = row.iter().map(csv_cell).collect();
            to.put(format_args!("{}\n", cells.join(",")));
        })
    }

    fn json(&self, rows: ForeignRows) -> Result<(), EngineError> {
        let columns = rows.columns().to_vec();
        let engine = serde_json::Value::from(self.answer.engine_name());
        let mut to = self.output.answer();
        to.put(format_args!("{{\n  \"engine\": {engine},\n  \"rows\": ["));
        let mut between = "";
        self.each(rows, |row| {
            let names = columns.iter().map(|column| column.name.as_str());
            to.put(format_args!(
                "{between}\n    {}",
                JsonObject(names.zip(&row))
            ));
            between = ",";
        })?;
        let end = if between.is_empty() { "" } else { "\n  " };
        to.put(format_args!("{end}]\n}}\n"));
        Ok(())
    }

    fn table(&self, rows: ForeignRows, rows_again: ForeignRows) -> Result<(), EngineError> {
        if rows.rows_count() == 0 {
            self.output.line("no rows");
            return Ok(());
        }
        let columns = rows.columns().to_vec();
        let names: Vec<_> = columns.iter().map(|column| shown(&column.name)).collect();
        let mut widths: Vec<_> = names.iter().map(|name| name.chars().count()).collect();
        self.each(rows, |row| {
            for (width, value) in widths.iter_mut().zip(&row) {
                *width = (*width).max(cell(value).chars().count());
            }
        })?;
        let mut to = self.output.answer();
        to.put(format_args!("{}\n", line(&names, &widths, &columns)));
        self.each(rows_again, |row| {
            let cells: Vec<_> = row.iter().map(cell).collect();
            to.put(format_args!("{}\n", line(&cells, &widths, &columns)));
        })
    }
}

/// Replaces control characters: a name from a packet may contain any of them, but must stay on its line.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for one in text.chars() {
        match one {
            '"' | '\'' => shown.push(one),
            one => shown.extend(one.escape_debug()),
        }
    }
    shown
}

fn cell(value: &ForeignValue) -> String {
    match value {
        ForeignValue::Null => "-".into(),
        value => shown(&value.to_string()),
    }
}

/// Formats cells as a line, with numbers right-aligned.
fn line(cells: &[String], widths: &[usize], columns: &[ForeignColumn]) -> String {
    let mut line = String::new();
    for ((cell, &width), column) in cells.iter().zip(widths).zip(columns) {
        line += &if column.is_number {
            format!("{cell:>width$}  ")
        } else {
            format!("{cell:<width$}  ")
        };
    }
    line.trim_end().to_string()
}

/// Quotes a CSV field if needed.
fn csv(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// A CSV field: null is empty, an empty string is in quotes.
fn csv_cell(value: &ForeignValue) -> String {
    match value {
        ForeignValue::Text(text) if text.is_empty() => "\"\"".into(),
        value => csv(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned() {
        let column = |name: &str, is_number| ForeignColumn {
            name: name.into(),
            is_number,
        };
        let columns = [column("what", false), column("n", true)];
        let of = |what: ForeignValue, n| {
            let cells = [cell(&what), cell(&ForeignValue::Int(n))];
            line(&cells, &[5, 5], &columns)
        };
        assert_eq!(
            of(ForeignValue::Text("a\nb\u{1b}".into()), 5),
            "a\\nb\\u{1b}      5"
        );
        assert_eq!(of(ForeignValue::Null, 12345), "-      12345");
    }

    /// Null and an empty string are distinguishable, and quotes and line breaks are kept.
    #[test]
    fn values_for_other_programs_are_quoted() {
        let text = |text: &str| csv_cell(&ForeignValue::Text(text.into()));
        assert_eq!(csv_cell(&ForeignValue::Null), "");
        assert_eq!(text(""), "\"\"");
        assert_eq!(text("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(text("a b"), "a b");
        let list = ForeignValue::List(vec![ForeignValue::Int(1), ForeignValue::Int(2)]);
        assert_eq!(csv_cell(&list), "\"[1,2]\"");
    }
}
