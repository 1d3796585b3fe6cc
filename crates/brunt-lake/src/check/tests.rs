//! Tests of checks and repairs: a lake is damaged file by file.

use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::*;
use crate::compact::{CompactOptions, Compaction, TakeIn};
use crate::reader::read_table;
use crate::table::{Column, Table};
use crate::writer::{TableWriter, WriterOptions};

static EVENTS: Table = Table {
    name: "events",
    doc: "Events.",
    columns: &[
        Column::int("event_id", "A number."),
        Column::time("at", "When."),
        Column::text("what", "What."),
    ],
};
static KINDS: Table = Table {
    name: "kinds",
    doc: "Kinds.",
    columns: &[Column::int("kind", "A kind.")],
};
const PARTS: i64 = 6;
const PART_ROWS: i64 = 50;

fn layouts() -> [LakeLayout; 2] {
    let layout = |table: &'static Table, placing, clock| LakeLayout {
        table,
        placing,
        order: Some(table.columns[0].name),
        blooms: vec![table.columns[0].name],
        ids: vec![table.columns[0].name],
        pipeline: None,
        tap: None,
        clock,
    };
    [
        layout(&EVENTS, Placing::Time("at"), Some("event_id")),
        layout(&KINDS, Placing::Nowhere, None),
    ]
}

/// A trace of several parts that spans two hours.
fn trace() -> TempDir {
    let folder = tempdir().unwrap();
    let mut kinds = TableWriter::create(folder.path(), &KINDS, WriterOptions::default()).unwrap();
    kinds.rows().row().int(7).end();
    kinds.finish().unwrap();
    for part in 0..PARTS {
        let mut events =
            TableWriter::resume(folder.path(), &EVENTS, WriterOptions::default()).unwrap();
        for event in part * PART_ROWS..(part + 1) * PART_ROWS {
            let at = event * 20_000_000_000;
            events
                .rows()
                .row()
                .int(event)
                .int(at)
                .text("something")
                .end();
        }
        events.finish().unwrap();
    }
    assert_eq!(captured_parts(folder.path(), "events").unwrap().len(), 6);
    folder
}

fn begin(root: &Path, keep_old: Duration) -> Result<Compaction, LakeError> {
    let part_bytes = 1 << 20;
    let options = CompactOptions {
        part_bytes,
        keep_old,
    };
    Compaction::begin(root, options, || Ok(Grain::Hour))
}

/// Takes in the trace in `root` over several versions, then merges small parts.
fn compact(root: &Path, keep_old: Duration) -> Result<(), LakeError> {
    let mut compaction = begin(root, keep_old)?;
    if compaction.draft().taps.is_empty() {
        compaction.taps_mut().push(LakeTap {
            trace_name: Some("a trace".into()),
            pipelines: 1,
            ..LakeTap::default()
        });
    }
    let from = TakeIn {
        source: root,
        tap: 0,
        is_running: false,
        bytes_max: 1,
    };
    for layout in &layouts() {
        while compaction.take_in(layout, from)? {
            compaction.commit("test")?;
        }
    }
    for layout in &layouts() {
        if compaction.merge_small(layout, true)? {
            compaction.commit("test")?;
        }
    }
    Ok(())
}

fn newest(root: &Path) -> Catalog {
    let version = *versions(root).unwrap().last().expect("a version");
    Catalog::read(&version_path(root, version)).unwrap()
}

/// Live parts, ordered by path.
fn parts(catalog: &Catalog) -> Vec<LakePart> {
    let mut parts: Vec<_> = catalog.parts.values().flatten().cloned().collect();
    parts.sort_by(|one, other| one.path.cmp(&other.path));
    parts
}

/// Checks that every event is read exactly once.
fn look(root: &Path) {
    let mut ids: Vec<i64> = Vec::new();
    let damaged = read_table(root, &EVENTS, |rows| ids.extend(rows.ints("event_id")));
    assert!(damaged.unwrap().is_empty());
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..PARTS * PART_ROWS));
}

fn problems(root: &Path) -> String {
    let found = check(root, &layouts()).unwrap().problems.into_iter();
    found.map(|problem| format!("{problem}\n")).collect()
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

fn fix(root: &Path) -> Result<Repaired, LakeError> {
    repair(root, &layouts(), "test", false)
}

#[test]
fn every_lost_or_damaged_file_is_named_and_nothing_is_deleted() {
    let folder = trace();
    let root = folder.path();
    compact(root, Duration::ZERO).unwrap();
    look(root);
    assert_eq!(problems(root), "");
    let whole = files(root);
    let is_of_lake = |path: &&PathBuf| {
        let is_version = path.starts_with(root.join(CATALOG_FOLDER));
        is_version && !path.ends_with("lock") || guard::part_version(path).is_some()
    };
    assert_eq!(whole.keys().filter(is_of_lake).count(), 4);
    for path in whole.keys().filter(is_of_lake) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = &whole[path];
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        let damages = [None, Some(&bytes[..bytes.len() / 2]), Some(&changed[..])];
        for damage in damages {
            match damage {
                None => std::fs::remove_file(path).unwrap(),
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
            }
            let before = files(root);
            let is_named = |told: &str| told.contains(name);
            assert!(is_named(&problems(root)), "{name}: {}", problems(root));
            // Changed bytes in a file of the same size are only found when they are read.
            let is_refused = guard::part_version(path).is_none()
                || damage.is_none_or(|damage| damage.len() < bytes.len());
            if is_refused {
                let told = compact(root, Duration::ZERO).unwrap_err().to_string();
                assert!(is_named(&told), "{name}: {told}");
                let told = LakeSnapshot::open_whole(root).unwrap_err().to_string();
                assert!(is_named(&told), "{name}: {told}");
            } else {
                compact(root, Duration::ZERO).unwrap();
            }
            assert_eq!(files(root), before, "{name}");
            std::fs::write(path, bytes).unwrap();
        }
    }
    assert_eq!(problems(root), "");
    assert_eq!(fix(root).unwrap(), Repaired::Whole);
}

/// Restored from an identical copy; without copies, rebuilt
/// from the parts, even if the parts they replace still exist.
#[test]
fn a_lost_catalog_comes_back() {
    for keep_old in [Duration::ZERO, Duration::from_secs(3600)] {
        let folder = trace();
        let root = folder.path();
        compact(root, keep_old).unwrap();
        let before = newest(root);
        let path = version_path(root, before.version);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(root.join(CATALOG_FOLDER)).unwrap();
        // The newest version is named, whatever older parts there are.
        let told = problems(root);
        assert!(told.contains(&*path.to_string_lossy()), "{told}");
        assert!(told.contains("catalog is missing"), "{told}");
        assert_eq!(fix(root).unwrap(), Repaired::Restored(before.version));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(fix(root).unwrap(), Repaired::Restored(before.version));
        assert!(path.with_extension("json.damaged").exists());

        for folder in [CATALOG_FOLDER, crate::catalog::COPIES_FOLDER] {
            std::fs::remove_dir_all(root.join(folder)).unwrap();
        }
        let done = fix(root).unwrap();
        assert!(matches!(done, Repaired::Rebuilt { .. }), "{done:?}");
        let after = newest(root);
        assert_eq!(parts(&after), parts(&before));
        assert_eq!(after.taps, before.taps);
        assert_eq!(after.timeline, before.timeline);
        assert_eq!(after.grain, before.grain);
        assert_eq!(problems(root), "");
        look(root);
        compact(root, Duration::ZERO).unwrap();
        look(root);
        assert_eq!(fix(root).unwrap(), Repaired::Whole);
    }
}

/// The newest version is lost, but an older one exists: parts of the newest must not be taken for leftovers.
#[test]
fn an_older_version_does_not_stand_in_for_a_lost_one() {
    let folder = trace();
    let root = folder.path();
    compact(root, Duration::from_secs(3600)).unwrap();
    let newest = newest(root);
    std::fs::remove_file(version_path(root, newest.version)).unwrap();
    let before = files(root);
    let error = compact(root, Duration::ZERO).unwrap_err();
    assert!(matches!(error, LakeError::NoCatalog { .. }), "{error}");
    assert_eq!(files(root), before);
    assert_eq!(fix(root).unwrap(), Repaired::Restored(newest.version));
    look(root);
}

/// A damaged copy is named although nothing needs it yet, and the newest version gets another one.
#[test]
fn damaged_copies_of_the_catalog_are_named() {
    let folder = trace();
    let root = folder.path();
    compact(root, Duration::ZERO).unwrap();
    let all = copies(root).unwrap();
    for (version, path) in [&all[0], &all[all.len() - 1]] {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[1..]).unwrap();
        let told = problems(root);
        assert!(told.contains(&*path.to_string_lossy()), "{told}");
        assert_eq!(fix(root).unwrap(), Repaired::SetAside);
        assert_eq!(problems(root), "");
        assert_eq!(path.exists(), *version == newest(root).version);
    }
}

/// A part that is lost for good is dropped on request, even if the catalog is lost too.
#[test]
fn lost_parts_are_named_until_they_are_given_up() {
    for with_catalog in [false, true] {
        let folder = trace();
        let root = folder.path();
        compact(root, Duration::ZERO).unwrap();
        let lost = newest(root).parts("events")[0].path.clone();
        std::fs::remove_file(root.join(&lost)).unwrap();
        if with_catalog {
            std::fs::remove_dir_all(root.join(CATALOG_FOLDER)).unwrap();
        }
        let error = fix(root).unwrap_err();
        assert!(matches!(error, LakeError::PartLost { .. }), "{error}");
        repair(root, &layouts(), "test", true).unwrap();
        assert_eq!(problems(root), "");
        LakeSnapshot::open_whole(root).unwrap();
    }
}

/// Parts of a version that was not committed are leftovers; their rows are still in the parts they came from.
#[test]
fn what_a_killed_process_left_is_removed() {
    let folder = trace();
    let root = folder.path();
    compact(root, Duration::from_secs(3600)).unwrap();
    let newest = newest(root);
    guard::mark_pending(root, newest.version + 1).unwrap();
    let part = root.join(&newest.parts("events")[0].path);
    let left = part.with_file_name(format!("part-c{:08}-0000.parquet", newest.version + 1));
    std::fs::copy(&part, &left).unwrap();
    look(root);
    LakeSnapshot::open_whole(root).unwrap();
    compact(root, Duration::ZERO).unwrap();
    assert!(!left.exists());
    assert!(guard::marked_versions(root).unwrap().is_empty());
    look(root);
}
