//! Rows of an answer: JSON objects whose columns stay in their order, and a table of them for people.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Columns with their values.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerRow(pub Vec<(String, Value)>);

impl<'de> Deserialize<'de> for AnswerRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnswerRow, D::Error> {
        struct Columns;
        impl<'de> Visitor<'de> for Columns {
            type Value = AnswerRow;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnswerRow, A::Error> {
                let mut columns = Vec::new();
                while let Some(column) = map.next_entry()? {
                    columns.push(column);
                }
                Ok(AnswerRow(columns))
            }
        }
        deserializer.deserialize_map(Columns)
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        // A name from a packet may hold anything; lines stay lines.
        Value::String(text) => text.chars().flat_map(char::escape_debug).collect(),
        value => value.to_string(),
    }
}

/// A line for the names and one for each row; numbers to the right.
pub fn lines(rows: &[AnswerRow]) -> Vec<String> {
    let Some(first) = rows.first() else {
        return vec!["no rows".into()];
    };
    let names: Vec<String> = first.0.iter().map(|(name, _)| name.clone()).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.0.iter().map(|(_, value)| text(value)).collect())
        .collect();
    let is_number = |column: usize| {
        rows.iter().all(|row| {
            row.0
                .get(column)
                .is_none_or(|(_, value)| value.is_number() || value.is_null())
        })
    };
    let all = std::iter::once(&names).chain(&cells);
    let width = |column: usize| {
        all.clone()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let columns: Vec<_> = (0..names.len())
        .map(|column| (width(column), is_number(column)))
        .collect();
    let line = |cells: &Vec<String>| {
        let mut line = String::new();
        for (cell, (width, is_number)) in cells.iter().zip(&columns) {
            let width = *width;
            line += &if *is_number {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            };
        }
        line.trim_end().to_string()
    };
    all.clone().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned() {
        let rows: Vec<AnswerRow> = [
            "{\"what\":\"a\\nb\",\"n\":5}",
            "{\"what\":null,\"n\":12345}",
        ]
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
        assert_eq!(lines(&rows), ["what      n", "a\\nb      5", "-     12345"]);
        assert_eq!(lines(&[]), ["no rows"]);
    }
}
