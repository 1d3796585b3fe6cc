//! A toy analysis that exercises the interface of analyses: the largest transfer of each kind of operation.
//! Only in tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::analyse::Analyse;
use super::event::OperationEvent;

/// The largest transfers, in bytes, by the operation's name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Largest(BTreeMap<String, u32>);

impl Analyse for Largest {
    const HELP: &'static str = "the largest transfer of each operation";

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

    fn rows(&self) -> Option<serde_json::Value> {
        serde_json::to_value(&self.0).ok()
    }
}
