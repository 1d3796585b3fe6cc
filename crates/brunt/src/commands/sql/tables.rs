//! Lists the tables in a folder.

use brunt_core::units::{counted, format_size};
use serde_json::json;

use super::lake::Lake;
use crate::cli::Output;

/// Prints each table that has parts, with its size and description.
pub fn print(lake: &Lake, output: &Output) {
    let tables: Vec<_> = lake
        .tables
        .iter()
        .filter(|table| table.parts() > 0)
        .collect();
    let width = tables
        .iter()
        .map(|table| table.table.name.len())
        .max()
        .unwrap_or(0);
    for table in &tables {
        let doc = table
            .table
            .doc
            .split_once(". ")
            .map_or(table.table.doc, |(first, _)| first);
        output.line(format_args!(
            "{:<width$}  {:>9}  {:>10}  {}",
            table.table.name,
            counted(table.parts(), "part"),
            format_size(table.bytes),
            doc.trim_end_matches('.')
        ));
    }
    let tables = tables.iter().map(|table| {
        let columns = table.table.columns.iter().map(
            |column| json!({ "name": column.name, "type": column.kind.sql(), "doc": column.doc }),
        );
        json!({
            "name": table.table.name,
            "doc": table.table.doc,
            "parts": table.parts(),
            "bytes": table.bytes,
            "columns": columns.collect::<Vec<_>>(),
        })
    });
    output.object(&json!({ "tables": tables.collect::<Vec<_>>() }));
}
