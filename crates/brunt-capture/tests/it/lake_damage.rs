//! Lakes with lost and damaged files: each such file is rejected or named, nothing is deleted, and a lost catalog is
//! restored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_capture::trace::lake::{
    GatherError, GatherOptions, Gathered, add, check, compact, repair,
};
use brunt_capture::trace::manifest::write_manifest;
use brunt_capture::trace::{TraceOptions, TraceRecorder, notes, tables};
use brunt_capture::{Limits, run_file};
use brunt_lake::catalog::{Catalog, LakePart, version_path, versions};
use brunt_lake::check::Repaired;
use brunt_lake::{LakeError, LakeSnapshot, table_sizes};
use tempfile::{TempDir, tempdir};

use crate::common;

const OPTIONS: GatherOptions = GatherOptions {
    part_bytes: 64 << 10,
    grain: None,
    keep_old: Duration::ZERO,
};

/// Every file below a folder, with its contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "parquet")
}

fn capture(folder: &TempDir) -> PathBuf {
    let trace = folder.path().join("trace");
    let options = TraceOptions {
        bytes_max: 64 << 10,
        ..TraceOptions::default()
    };
    let recorder = TraceRecorder::create(&trace, &options).unwrap();
    let mut outcome = run_file(&common::small_piece(), recorder, Limits::default(), || {
        false
    })
    .unwrap();
    let (_, error) = outcome.sink.finish(&mut outcome.ledger);
    assert!(error.is_none(), "{error:?}");
    trace
}

/// Number of rows in each table.
fn rows(folder: &Path) -> Vec<(&'static str, u64)> {
    let all = tables::all().into_iter();
    all.map(|table| (table.name, table_sizes(folder, table).unwrap().rows))
        .collect()
}

fn newest(lake: &Path) -> Catalog {
    let version = *versions(lake).unwrap().last().expect("a version");
    Catalog::read(&version_path(lake, version)).unwrap()
}

fn problems(lake: &Path) -> String {
    let checked = check(lake).unwrap();
    let problems = checked.problems.iter().map(|problem| problem.to_string());
    problems.collect::<Vec<_>>().join("\n")
}

/// The errors from adding to, compacting and publishing an incomplete lake; all three must fail.
fn refusals(lake: &Path, trace: &Path) -> Vec<String> {
    let refused = |what: &str, done: Result<Gathered, GatherError>| match done {
        Ok(_) => panic!("{what} takes a lake that is not whole"),
        Err(error) => error.to_string(),
    };
    vec![
        refused("add", add(lake, trace, "other", true, &OPTIONS)),
        refused("compact", compact(lake, &OPTIONS)),
        write_manifest(lake).expect_err("no manifest").to_string(),
        notes(lake).expect_err("no analysis").to_string(),
    ]
}

/// Each file of a lake in turn is removed, truncated or changed: the check names it, and no part is deleted.
#[test]
fn every_lost_or_damaged_file_is_named_and_nothing_is_deleted() {
    let folder = tempdir().unwrap();
    let (trace, lake) = (capture(&folder), folder.path().join("lake"));
    add(&lake, &trace, "one", false, &OPTIONS).unwrap();
    assert_eq!(problems(&lake), "");
    let whole = files(&lake);
    let is_of_lake = |path: &&PathBuf| is_parquet(path) || path.starts_with(lake.join("_catalog"));
    for path in whole.keys().filter(is_of_lake) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "lock" {
            continue;
        }
        let bytes = &whole[path];
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        let damages = [None, Some(&bytes[..bytes.len() / 2]), Some(&changed[..])];
        for (number, damage) in damages.into_iter().enumerate() {
            match damage {
                None => std::fs::remove_file(path).unwrap(),
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
            }
            let before = files(&lake);
            let named = problems(&lake);
            let is_named = named.contains(name) || named.contains("catalog is missing");
            assert!(is_named, "{name}, damage {number}: {named}");
            // A part with the right size but changed bytes is named when it is read.
            if !is_parquet(path) || number < 2 {
                for refusal in refusals(&lake, &trace) {
                    let is_named = refusal.contains(name) || refusal.contains("is missing");
                    assert!(is_named, "{name}, damage {number}: {refusal}");
                }
            } else {
                compact(&lake, &OPTIONS).unwrap();
            }
            for (path, bytes) in before.iter().filter(|(path, _)| is_parquet(path)) {
                assert_eq!(std::fs::read(path).ok().as_ref(), Some(bytes), "{path:?}");
            }
            std::fs::write(path, bytes).unwrap();
        }
    }
    assert_eq!(problems(&lake), "");
    let newest_before = newest(&lake).version;
    // The trace was already added, so there is nothing to do.
    add(&lake, &trace, "one", false, &OPTIONS).unwrap();
    assert_eq!(newest(&lake).version, newest_before);
}

/// The parts of a version, by table and in order.
fn parts(catalog: &Catalog) -> BTreeMap<String, Vec<LakePart>> {
    let mut parts = catalog.parts.clone();
    parts
        .values_mut()
        .for_each(|parts| parts.sort_by(|one, other| one.path.cmp(&other.path)));
    parts.retain(|_, parts| !parts.is_empty());
    parts
}

/// A lost catalog is restored from its copy, byte for byte, or without a copy from the parts, with the same parts.
#[test]
fn a_lost_catalog_is_restored_from_its_copy_or_the_parts() {
    let folder = tempdir().unwrap();
    let (trace, lake) = (capture(&folder), folder.path().join("lake"));
    add(&lake, &trace, "one", false, &OPTIONS).unwrap();
    add(&lake, &trace, "two", true, &OPTIONS).unwrap();
    compact(&lake, &OPTIONS).unwrap();
    let (before, before_rows) = (newest(&lake), rows(&lake));
    let path = version_path(&lake, before.version);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(lake.join("_catalog")).unwrap();
    assert!(problems(&lake).contains("catalog is missing"));
    assert_eq!(
        repair(&lake, false).unwrap(),
        Repaired::Restored(before.version)
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);

    // A damaged catalog is renamed and replaced.
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(
        repair(&lake, false).unwrap(),
        Repaired::Restored(before.version)
    );
    assert!(path.with_extension("json.damaged").exists());

    for folder in ["_catalog", "_catalog_copies"] {
        std::fs::remove_dir_all(lake.join(folder)).unwrap();
    }
    let done = repair(&lake, false).unwrap();
    assert!(matches!(done, Repaired::Rebuilt { .. }), "{done:?}");
    let after = newest(&lake);
    assert!(after.version >= before.version);
    assert_eq!(parts(&after), parts(&before));
    assert_eq!(after.grain, before.grain);
    let taps = |catalog: &Catalog| -> Vec<_> {
        let taps = catalog.taps.iter();
        taps.map(|tap| (tap.name.clone(), tap.trace_name.clone(), tap.numbers()))
            .collect()
    };
    assert_eq!(taps(&after), taps(&before));
    assert_eq!(problems(&lake), "");
    assert_eq!(rows(&lake), before_rows);
    // The rebuilt catalog still knows which traces' rows are in the lake.
    add(&lake, &trace, "one", false, &OPTIONS).unwrap();
    compact(&lake, &OPTIONS).unwrap();
    assert_eq!(rows(&lake), before_rows);
}

/// A damaged copy of a catalog is named even if nothing needs it yet, and is written again.
#[test]
fn damaged_copies_of_a_catalog_are_named_and_rewritten() {
    let folder = tempdir().unwrap();
    let trace = capture(&folder);
    compact(&trace, &OPTIONS).unwrap();
    let version = newest(&trace).version;
    let copy = trace.join(format!("_catalog_copies/v{version:08}.json"));
    let bytes = std::fs::read(&copy).unwrap();
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    for damaged in [&changed[..], &bytes[..bytes.len() / 2], &[]] {
        std::fs::write(&copy, damaged).unwrap();
        let told = problems(&trace);
        assert!(told.contains("_catalog_copies"), "{told}");
        assert_eq!(repair(&trace, false).unwrap(), Repaired::SetAside);
        assert_eq!(std::fs::read(&copy).unwrap(), bytes);
        assert_eq!(problems(&trace), "");
    }
}

/// Each row counts once, even if replaced parts, or captured parts that were already taken in, still exist.
#[test]
fn a_rebuilt_catalog_counts_each_row_once() {
    let folder = tempdir().unwrap();
    let trace = capture(&folder);
    let before = rows(&trace);
    let keep = GatherOptions {
        keep_old: Duration::from_secs(3600),
        ..OPTIONS
    };
    compact(
        &trace,
        &GatherOptions {
            part_bytes: 4096,
            ..keep
        },
    )
    .unwrap();
    compact(
        &trace,
        &GatherOptions {
            part_bytes: 1 << 20,
            ..keep
        },
    )
    .unwrap();
    assert_eq!(rows(&trace), before);
    let kept = parts(&newest(&trace));
    for folder in ["_catalog", "_catalog_copies"] {
        std::fs::remove_dir_all(trace.join(folder)).unwrap();
    }
    repair(&trace, false).unwrap();
    assert_eq!(parts(&newest(&trace)), kept);
    assert_eq!(rows(&trace), before);
    compact(&trace, &OPTIONS).unwrap();
    assert_eq!(rows(&trace), before);
}

/// A part that is lost for good can be abandoned, but only on request.
#[test]
fn lost_parts_are_given_up_on_request() {
    let folder = tempdir().unwrap();
    let trace = capture(&folder);
    compact(&trace, &OPTIONS).unwrap();
    let lost = newest(&trace).parts("operations")[0].path.clone();
    std::fs::remove_file(trace.join(&lost)).unwrap();
    let error = repair(&trace, false).unwrap_err();
    let is_lost = matches!(error, GatherError::Lake(LakeError::PartLost { .. }));
    assert!(is_lost, "{error}");
    let done = repair(&trace, true).unwrap();
    let expected = [lost];
    assert!(matches!(done, Repaired::WithoutLost { lost, .. } if lost == expected));
    LakeSnapshot::open_whole(&trace).unwrap();
    assert_eq!(problems(&trace), "");
}

/// A rebuilt catalog doesn't silently omit parts that a copy of the lost catalog lists.
#[test]
fn a_part_that_was_lost_with_the_catalog_is_named() {
    let folder = tempdir().unwrap();
    let trace = capture(&folder);
    compact(&trace, &OPTIONS).unwrap();
    let lost = newest(&trace).parts("operations")[0].path.clone();
    std::fs::remove_file(trace.join(&lost)).unwrap();
    std::fs::remove_dir_all(trace.join("_catalog")).unwrap();
    let error = repair(&trace, false).unwrap_err().to_string();
    assert!(error.contains(&lost), "{error}");
    let done = repair(&trace, true).unwrap();
    assert!(matches!(done, Repaired::Rebuilt { .. }), "{done:?}");
    LakeSnapshot::open_whole(&trace).unwrap();
}
