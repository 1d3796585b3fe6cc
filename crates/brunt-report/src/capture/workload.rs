//! The workload profile: transfers, their sizes and order, and working sets.

use brunt_result::capture::{ProfileRow, TransferRow};

use crate::format::{Unit, count};
use crate::page::{Block, Cell, PageTable, Section};

pub(super) fn workload(p: &ProfileRow) -> Section {
    let mut section = Section::new("Workload");
    let transfer = |name: &str, t: &TransferRow| {
        let cell = |unit: Unit, figure: Option<f64>| match figure {
            Some(figure) => Cell::number(unit.show(figure)),
            None => Cell::Empty,
        };
        let size = |bytes: Option<u64>| cell(Unit::Bytes, bytes.map(|bytes| bytes as f64));
        vec![
            Cell::text(name),
            Cell::number(count(t.operations as f64)),
            size(Some(t.bytes)),
            cell(Unit::Share, t.sequential_share),
            size(t.size_p50_bytes),
            size(t.size_p95_bytes),
        ]
    };
    let columns = [
        "transfers",
        "count",
        "data",
        "sequential",
        "half are at most",
        "95 % are at most",
    ];
    let rows = vec![transfer("read", &p.read), transfer("write", &p.write)];
    section.table(PageTable::new("Reads and writes", &columns, rows));
    let mut facts = Vec::new();
    if p.left_out.total() > 0 {
        facts.push((
            "Not counted as reads or writes".into(),
            p.left_out.to_string(),
        ));
    }
    facts.extend([
        (
            "Other operations".into(),
            count(p.metadata_operations as f64),
        ),
        (
            "Working set".into(),
            Unit::Bytes.show(p.working_set_bytes as f64),
        ),
        (
            "Of random reads".into(),
            Unit::Bytes.show(p.random_read_working_set_bytes as f64),
        ),
    ]);
    section.blocks.push(Block::Facts(facts));
    section
}
