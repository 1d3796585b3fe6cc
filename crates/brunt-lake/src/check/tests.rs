//! Tests of checks and repairs: each file of a lake is damaged in turn.

use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::*;
use crate::compact::{CompactOptions, Compaction, TraceToAbsorb};
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

/// Absorbs the trace in `root` over several versions, then merges small parts.
fn compact(root: &Path, keep_old: Duration) -> Result<(), LakeError> {
    let mut compaction = begin(root, keep_old)?;
    if compaction.draft().taps.is_empty() {
        compaction.taps_mut().push(LakeTap {
            trace_name: Some("a trace".into()),
            pipelines: 1,
            ..LakeTap::default()
        });
    }
    let from = TraceToAbsorb {
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
            // Changed bytes in a part of unchanged size are found only when the part is read.
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

/// A lost catalog is restored byte for byte from its copy. Without copies it is rebuilt from the parts, even if the
/// parts that they replace still exist.
#[test]
fn a_lost_catalog_is_restored_or_rebuilt() {
    for keep_old in [Duration::ZERO, Duration::from_secs(3600)] {
        let folder = trace();
        let root = folder.path();
        compact(root, keep_old).unwrap();
        let before = newest(root);
        let path = version_path(root, before.version);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(root.join(CATALOG_FOLDER)).unwrap();
        // The newest version is reported, even if older parts exist.
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

/// If the newest version is lost but an older one exists, the newest version's parts are not treated as leftovers.
#[test]
fn an_older_version_does_not_replace_a_lost_one() {
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

/// A damaged copy is reported even if nothing needs it yet, and the copy of the newest version is rewritten.
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

/// A permanently lost part is dropped on request, even if the catalog is lost too.
#[test]
fn lost_parts_are_reported_until_they_are_dropped() {
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

/// Parts of an uncommitted version are leftovers; their rows are still in the source parts.
#[test]
fn leftovers_of_a_killed_process_are_removed() {
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

/// Publishes these parts of a table as of catalog version `catalog`.
fn publish(root: &Path, table: &'static Table, catalog: u64, parts: &[LakePart]) {
    let parts: Vec<PathBuf> = parts.iter().map(|part| root.join(&part.path)).collect();
    delta::publish(root, table, catalog, &parts).unwrap();
}

/// A lake whose event log has twelve versions and a checkpoint; the last version matches the newest catalog.
fn lake_with_log() -> (TempDir, PathBuf) {
    let folder = trace();
    let root = folder.path();
    compact(root, Duration::ZERO).unwrap();
    let newest = newest(root);
    let parts = newest.parts("events");
    assert!(parts.len() > 1);
    for version in 0..11 {
        publish(root, &EVENTS, 1000, &parts[..1 + version % 2]);
    }
    publish(root, &EVENTS, newest.version, parts);
    publish(root, &KINDS, newest.version, newest.parts("kinds"));
    assert_eq!(problems(root), "");
    assert_eq!(repair_logs(root, &layouts()).unwrap(), []);
    let log = root.join("events/_delta_log");
    (folder, log)
}

/// Checks that the log lists the parts of the catalog, and that these contain all rows.
fn look_at_log(root: &Path) {
    let log = delta::log_files(root, "events").unwrap().unwrap();
    let newest = newest(root);
    let parts = newest.parts("events").iter();
    let parts: BTreeSet<String> = parts
        .map(|part| part.path.strip_prefix("events/").unwrap().to_string())
        .collect();
    assert_eq!(log.parts, parts);
    look(root);
}

fn is_part(path: &Path) -> bool {
    guard::part_version(path).is_some()
}

#[test]
fn every_damaged_file_of_a_log_is_named_and_repaired() {
    let (folder, log) = lake_with_log();
    let root = folder.path();
    let table = log.parent().unwrap();
    let (whole, lake) = (files(&log), files(root));
    assert_eq!(whole.len(), 15, "{:?}", whole.keys());
    for (path, bytes) in &whole {
        let name = path.file_name().unwrap().to_str().unwrap();
        let flipped = |at: usize| {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            Some(changed)
        };
        let damages = [
            None,
            Some(bytes[..bytes.len() / 2].to_vec()),
            Some(Vec::new()),
            flipped(0),
            flipped(bytes.len() / 2),
            flipped(bytes.len() - 1),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            match damage {
                None => std::fs::remove_file(path).unwrap(),
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
            }
            let told = problems(root);
            assert!(told.contains(name), "{name}, damage {number}: {told}");
            let is_version =
                path.extension().is_some_and(|e| e == "json") && name != "_brunt_sums.json";
            let refused = delta::log_files(root, "events").is_err();
            assert!(refused || !is_version, "{name}, damage {number}");
            let done = repair_logs(root, &layouts()).unwrap();
            let is_rewritten = matches!(done[..], [LogRepair::Rewritten { .. }]);
            let is_mended = done == [LogRepair::Mended { table: "events" }];
            assert!(
                if is_version { is_rewritten } else { is_mended },
                "{name}: {done:?}"
            );
            assert_eq!(problems(root), "", "{name}, damage {number}");
            look_at_log(root);
            let kept = files(root);
            assert!(
                lake.iter()
                    .filter(|(path, _)| is_part(path))
                    .all(|(path, bytes)| kept[path] == *bytes)
            );
            for entry in std::fs::read_dir(table).unwrap() {
                let path = entry.unwrap().path();
                if path
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("_delta_log")
                {
                    std::fs::remove_dir_all(path).unwrap();
                }
            }
            std::fs::create_dir(&log).unwrap();
            whole
                .iter()
                .for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        }
    }
    assert_eq!(problems(root), "");
}

/// Flipping a bit in any byte of a version never makes it look like another program's version, which repairs don't
/// touch.
#[test]
fn changed_versions_are_damaged_and_not_foreign() {
    let (folder, log) = lake_with_log();
    let path = log.join(format!("{:020}.json", 11));
    let bytes = std::fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        std::fs::write(&path, changed).unwrap();
        let error = delta::log_files(folder.path(), "events").unwrap_err();
        assert!(
            matches!(error, DeltaError::Damaged { .. }),
            "byte {at}: {error}"
        );
    }
}

/// Without checksums, a log is still compared with the catalog.
#[test]
fn a_log_that_names_other_parts_than_the_catalog_is_rewritten() {
    let (folder, log) = lake_with_log();
    let root = folder.path();
    let (sums, last) = (
        log.join("_brunt_sums.json"),
        log.join(format!("{:020}.json", 11)),
    );
    std::fs::remove_file(sums).unwrap();
    let lines = std::fs::read_to_string(&last).unwrap();
    let kept: Vec<&str> = lines
        .lines()
        .filter(|line| !line.contains("\"add\""))
        .collect();
    assert!(kept.len() < lines.lines().count());
    std::fs::write(&last, kept.join("\n")).unwrap();
    let told = problems(root);
    assert!(
        told.contains(&*last.to_string_lossy()) && told.contains("lacks date="),
        "{told}"
    );
    assert!(told.contains("_brunt_sums.json"), "{told}");
    let done = repair_logs(root, &layouts()).unwrap();
    assert!(
        matches!(done[..], [LogRepair::Rewritten { .. }]),
        "{done:?}"
    );
    assert_eq!(problems(root), "");
    look_at_log(root);
}

/// Commits by other programs are reported and never undone, even if other files of the log are damaged.
#[test]
fn a_log_that_another_program_continued_is_not_repaired() {
    let (folder, log) = lake_with_log();
    let root = folder.path();
    let theirs = "{\"commitInfo\":{\"engineInfo\":\"delta-rs:1.1\"}}\n";
    std::fs::write(log.join(format!("{:020}.json", 12)), theirs).unwrap();
    std::fs::remove_file(log.join("_last_checkpoint")).unwrap();
    let before = files(root);
    let told = problems(root);
    assert!(told.contains("delta-rs:1.1"), "{told}");
    assert_eq!(repair_logs(root, &layouts()).unwrap(), []);
    assert_eq!((files(root), problems(root)), (before, told));
}

/// Parts named by the newest version of a log are kept, so a log may be older than the catalog. If such parts are lost,
/// the log is rewritten.
#[test]
fn an_older_log_is_intact_as_long_as_its_parts_exist() {
    let (folder, _) = lake_with_log();
    let root = folder.path();
    let named = newest(root).parts("kinds")[0].path.clone();
    let mut kinds = TableWriter::resume(root, &KINDS, WriterOptions::default()).unwrap();
    kinds.rows().row().int(8).end();
    kinds.finish().unwrap();
    compact(root, Duration::ZERO).unwrap();
    assert!(
        newest(root)
            .parts("kinds")
            .iter()
            .all(|part| part.path != named)
    );
    assert_eq!(problems(root), "");
    std::fs::remove_file(root.join(&named)).unwrap();
    assert!(
        problems(root).contains(&named["kinds/".len()..]),
        "{}",
        problems(root)
    );
    assert_eq!(repair_logs(root, &layouts()).unwrap().len(), 1);
    assert_eq!(problems(root), "");
}
