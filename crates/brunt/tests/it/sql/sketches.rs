//! The table `sketches`: its counts match the operations, and engines can merge it.

use std::collections::{BTreeMap, BTreeSet};

use brunt_capture::trace::tables;
use brunt_lake::{TableWriter, WriterOptions};
use datasketches::common::NumStdDev;
use datasketches::hll::{HllSketch, HllType, HllUnion};
use datasketches::theta::ThetaSketchBuilder;
use serde_json::Value;

use super::troubled::note;
use super::{array_of, each, engine, rows, servers, sql, sql_at, trace};
use crate::support::TempDir;

const LOG_REGISTERS: u8 = 12;

/// The exact number of distinct values, by kind.
fn counted(operations: &[Value]) -> BTreeMap<String, BTreeSet<i64>> {
    let mut counted: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for row in operations {
        let number = |name: &str| row[name].as_i64();
        let Some(file) = number("file") else { continue };
        counted.entry("files".to_string()).or_default().insert(file);
        let (offset, bytes) = (
            number("offset_bytes").unwrap_or(0),
            number("moved_bytes").unwrap_or(0),
        );
        let Some(direction) = number("direction").filter(|_| bytes > 0) else {
            continue;
        };
        let what = if direction == 0 {
            "blocks_read"
        } else {
            "blocks_written"
        };
        let blocks =
            (offset / 4096..=(offset + bytes - 1) / 4096).map(|block| file.wrapping_add(block));
        counted.entry(what.to_string()).or_default().extend(blocks);
    }
    counted
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    digits
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"))
        .collect()
}

/// Sketches of captures give the right counts, alone and merged in engines with each other and with the engine's own
/// sketches of the operations.
#[test]
fn sketches_count_what_operations_say() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-sketches");
    for (capture, workers) in [
        ("nfs3-small.pcap.zst", "1"),
        ("nfs4-small.pcap.zst", "2"),
        ("iscsi/tgt-kernel.pcapng.zst", "1"),
    ] {
        let (trace, _) = trace(&folder, capture, &["--workers", workers]);
        let ask = |statement: &str| rows(sql(&engine, &trace, &[statement]));
        let exact = counted(&ask(
            "select file, direction, offset_bytes, moved_bytes from operations",
        ));
        let mut merged: BTreeMap<String, HllUnion> = BTreeMap::new();
        for row in ask("select what, hex(sketch) as sketch from sketches") {
            let bytes = unhex(row["sketch"].as_str().expect("a sketch"));
            let union = merged.entry(row["what"].as_str().expect("a name").to_string());
            let union = union.or_insert_with(|| HllUnion::new(LOG_REGISTERS).expect("registers"));
            union.update(&HllSketch::deserialize(&bytes).expect("a sketch"));
        }
        assert!(merged.keys().eq(exact.keys()), "{:?}", exact.keys());
        for (what, union) in &merged {
            let bounds = union.lower_bound(NumStdDev::Three)..=union.upper_bound(NumStdDev::Three);
            assert!(
                bounds.contains(&(exact[what].len() as f64)),
                "{what} of {capture}: {bounds:?}"
            );
        }
        // Numbers this small are exact in every engine, and no value is counted twice.
        let few: Vec<(String, u64)> = exact
            .iter()
            .map(|(what, all)| (what.clone(), all.len() as u64))
            .collect();
        each(&servers(), |server| {
            let found = rows(sql_at(
                server,
                &trace,
                &[
                    "select what, hll_sketch_estimate(hll_union_agg(sketch)) as n from sketches group by what \
                   order by what",
                ],
            ));
            assert_eq!(array_of(&found, "what", "n"), few, "{capture} {server:?}");
            let with_own = "select hll_sketch_estimate(hll_union_agg(s)) as n from (
                            select sketch as s from sketches where what = 'files' union all
                            select hll_sketch_agg(file) as s from operations where file is not null) as together";
            let found = rows(sql_at(server, &trace, &[with_own]));
            assert_eq!(
                found[0]["n"],
                exact["files"].len() as u64,
                "{capture} {server:?}"
            );
            // The intersection with an engine's own sketch contains everything.
            let common = "select theta_sketch_estimate(theta_intersection(theirs, own)) as n from
                          (select theta_union_agg(theta) as theirs from sketches where what = 'files') as a cross join
                          (select theta_sketch_agg(file) as own from operations where file is not null) as b";
            let found = rows(sql_at(server, &trace, &[common]));
            assert_eq!(
                found[0]["n"],
                exact["files"].len() as u64,
                "{capture} {server:?}"
            );
        });
    }
}

/// Sketches of many values, some of them in several sketches: merging them stays within the error bounds in every
/// engine.
#[test]
fn large_sketches_merge() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new("sql-large-sketches");
    let path = folder.join("trace");
    note(&path);
    let mut writer =
        TableWriter::create(&path, &tables::SKETCHES, WriterOptions::default()).expect("a table");
    let mut union = HllUnion::new(LOG_REGISTERS).expect("registers");
    // The numbers 0 to 100,000, many of them in two sketches; the last sketch has few enough for a list.
    for (minute, numbers) in [0..60_000i64, 30_000..99_990, 99_980..100_000]
        .into_iter()
        .enumerate()
    {
        let mut sketch = HllSketch::new(LOG_REGISTERS, HllType::Hll8).expect("registers");
        let mut theta = ThetaSketchBuilder::default()
            .lg_k(10)
            .build()
            .expect("hashes");
        numbers.for_each(|number| {
            sketch.update(number);
            theta.update(number);
        });
        union.update(&sketch);
        let row = writer
            .rows()
            .row()
            .int(minute as i64)
            .text("s")
            .text("c")
            .text("files");
        row.bytes(&sketch.serialize())
            .bytes(&theta.compact(true).serialize())
            .end();
    }
    writer.finish().expect("a part");
    let bounds = union.lower_bound(NumStdDev::Three)..=union.upper_bound(NumStdDev::Three);
    assert!(
        bounds.contains(&100_000.0) && union.upper_bound(NumStdDev::Three) < 108_000.0,
        "{bounds:?}"
    );
    let read = rows(sql(
        &engine,
        &path,
        &["select sum(octet_length(sketch)) as n from sketches"],
    ));
    assert!(
        (8192..9000).contains(&read[0]["n"].as_u64().expect("bytes")),
        "{read:?}"
    );
    each(&servers(), |server| {
        let merge = "select hll_sketch_estimate(hll_union_agg(sketch)) as n from sketches";
        let found = rows(sql_at(server, &path, &[merge]))[0]["n"]
            .as_f64()
            .expect("a number");
        assert!(
            (found - union.estimate()).abs() <= 1.0,
            "{server:?}: {found}, {}",
            union.estimate()
        );
        // 29,990 numbers are in the first two sketches; the intersection is allowed twice the error of one sketch.
        let common = "select theta_sketch_estimate(theta_intersection(a.theta, b.theta)) as n
                      from sketches as a cross join sketches as b where a.minute = 0 and b.minute = 1";
        let found = rows(sql_at(server, &path, &[common]))[0]["n"]
            .as_f64()
            .expect("a number");
        assert!((25_000.0..35_000.0).contains(&found), "{server:?}: {found}");
    });
}
