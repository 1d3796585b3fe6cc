//! A toy analysis that exercises the analysis interface: the largest transfer of each kind of operation. Compiled
//! only for tests.

use std::collections::BTreeMap;

use brunt_result::capture::{AnalysisSection, SectionColumn, SectionUnit};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::analyse::Analyse;
use super::event::OperationEvent;

const COLUMNS: &[SectionColumn] = &[
    SectionColumn::new("operation", "operation", SectionUnit::Text),
    SectionColumn::new("bytes", "largest", SectionUnit::Bytes),
];

/// The largest transfers, in bytes, by the operation's name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Largest(BTreeMap<String, u32>);

impl Analyse for Largest {
    const HELP: &'static str = "the largest transfer of each operation";
    const SQL: Option<&'static str> = Some(
        "-- The largest transfer of each operation.
         SELECT operation, max(moved_bytes) AS bytes FROM operations
         WHERE moved_bytes > 0 GROUP BY operation ORDER BY operation",
    );

    fn on_event(&mut self, event: &OperationEvent, _: usize) {
        if event.bytes > 0 {
            let largest = self.0.entry(event.kind.name().to_string()).or_default();
            *largest = event.bytes.max(*largest);
        }
    }

    fn merge(&mut self, other: Largest) {
        for (name, bytes) in other.0 {
            let largest = self.0.entry(name).or_default();
            *largest = bytes.max(*largest);
        }
    }

    fn sections(&self) -> Vec<AnalysisSection> {
        let rows = self.0.iter();
        let rows = rows.map(|(operation, bytes)| json!({ "operation": operation, "bytes": bytes }));
        let section = AnalysisSection::table("largest", "Largest transfers", COLUMNS, rows);
        vec![section.note("Of all clients.")]
    }
}
