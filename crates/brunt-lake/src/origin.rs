//! The origin of a lake part, recorded in its footer so that a lost catalog can be rebuilt from the parts. Written by
//! [`crate::spread`], read by [`crate::check`].
//!
//! The rule: every part of a batch names all captured parts and lake parts whose rows went into the batch, so any one
//! of them is enough to show that those rows must not be counted again.

use std::collections::BTreeSet;

use parquet::file::metadata::KeyValue;
use parquet::file::reader::FileReader;
use serde::{Deserialize, Serialize};

use crate::catalog::{Absorbed, LakeTap};
use crate::place::Grain;
use crate::reader::PartReader;

/// The key in a part's metadata; its value is a [`PartOrigin`] as JSON.
const ORIGIN_KEY: &str = "brunt.origin";

/// The origin of a part's rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartOrigin {
    /// The lake's time granularity.
    pub grain: Grain,
    /// The traces, each with the captured parts of this table that were absorbed so far.
    pub taps: Vec<LakeTap>,
    /// Lake parts that this part replaces, and those that they had replaced; paths relative to the lake's folder.
    pub replaces: BTreeSet<String>,
}

impl PartOrigin {
    /// An origin without traces or replaced parts.
    pub fn new(grain: Grain) -> PartOrigin {
        PartOrigin {
            grain,
            taps: Vec::new(),
            replaces: BTreeSet::new(),
        }
    }

    /// Adds a trace, keeping only the information about `table`.
    pub fn add_tap(&mut self, tap: &LakeTap, table: &str) {
        let mut tap = tap.clone();
        tap.absorbed.retain(|name, _| name == table);
        tap.left_out.clear();
        add_tap(&mut self.taps, &tap);
    }

    /// Adds the origin of a part that is merged into this one.
    pub fn add_merged(&mut self, path: &str, merged: PartOrigin) {
        for tap in &merged.taps {
            add_tap(&mut self.taps, tap);
        }
        self.replaces.extend(merged.replaces);
        self.replaces.insert(path.to_string());
    }

    /// The origin as footer metadata.
    pub fn to_metadata(&self) -> KeyValue {
        let json = serde_json::to_string(self).expect("an origin is plain data");
        KeyValue::new(ORIGIN_KEY.to_string(), json)
    }

    /// The recorded origin of a part; `None` if an earlier program wrote the part.
    pub fn of(part: &PartReader) -> Option<PartOrigin> {
        let about = part.file.metadata().file_metadata();
        let pairs = about.key_value_metadata()?;
        let pair = pairs.iter().find(|pair| pair.key == ORIGIN_KEY)?;
        serde_json::from_str(pair.value.as_deref()?).ok()
    }
}

/// Merges a part's record of a trace into the records of other parts.
pub(crate) fn add_tap(taps: &mut Vec<LakeTap>, more: &LakeTap) {
    let Some(tap) = taps.iter_mut().find(|tap| tap.name == more.name) else {
        taps.push(more.clone());
        return;
    };
    tap.is_complete |= more.is_complete;
    tap.pipelines = tap.pipelines.max(more.pipelines);
    if tap.trace_name.is_none() {
        tap.trace_name.clone_from(&more.trace_name);
    }
    for (table, of_series) in &more.absorbed {
        let known = tap.absorbed.entry(table.clone()).or_default();
        for (series, more) in of_series {
            let absorbed = known.entry(*series).or_insert(*more);
            *absorbed = Absorbed {
                first: absorbed.first.min(more.first),
                next: absorbed.next.max(more.next),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tap(table: &str, first: u64, next: u64) -> LakeTap {
        let absorbed = [(table.to_string(), [(0, Absorbed { first, next })].into())].into();
        LakeTap {
            absorbed,
            ..LakeTap::default()
        }
    }

    #[test]
    fn merged_parts_name_everything_that_went_into_them() {
        let mut old = PartOrigin::new(Grain::Day);
        old.add_tap(&tap("operations", 0, 4), "operations");
        old.add_tap(&tap("names", 0, 9), "operations");
        old.replaces.insert("operations/a".into());
        let mut newer = PartOrigin::new(Grain::Day);
        newer.add_tap(&tap("operations", 4, 7), "operations");
        let mut merged = PartOrigin::new(Grain::Day);
        merged.add_merged("operations/b", old);
        merged.add_merged("operations/c", newer);
        assert_eq!(merged.taps, [tap("operations", 0, 7)]);
        let replaced: Vec<_> = merged.replaces.iter().collect();
        assert_eq!(replaced, ["operations/a", "operations/b", "operations/c"]);
    }
}
