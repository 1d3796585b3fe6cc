//! Tests of Delta Lake logs.

use tempfile::TempDir;

use super::*;
use crate::table::Column;
use crate::writer::{TableWriter, WriterOptions};

static TABLE: Table = Table {
    name: "numbers",
    doc: "Numbers.",
    columns: &[
        Column::int("number", "A number."),
        Column::text("name", "Its name.").nullable(),
        Column::float("half", "Half of it.").nullable(),
        Column::bool("odd", "Whether it is odd."),
    ],
};

/// A lake whose parts have a hundred rows each.
struct Lake(TempDir);

impl Lake {
    fn of_parts(count: i64) -> (Lake, Vec<PathBuf>) {
        let lake = Lake(TempDir::new().unwrap());
        let mut writer =
            TableWriter::create(lake.root(), &TABLE, WriterOptions::default()).unwrap();
        for part in 0..count {
            for number in part * 100..part * 100 + 100 {
                let row = writer.rows().row().int(number);
                let row = row.text_or_null((number % 2 == 0).then_some("even"));
                row.float_or_null((part > 0).then_some(number as f64 / 2.0))
                    .bool(number % 2 == 1)
                    .end();
            }
            writer.rotate().unwrap();
        }
        let parts = crate::reader::parts(lake.root(), &TABLE).unwrap();
        (lake, parts.into_iter().map(|part| part.path).collect())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// The actions of a version, by name.
    fn actions(&self, version: u64) -> Vec<(String, Value)> {
        let path = version_path(&self.root().join("numbers").join(LOG_FOLDER), version);
        let lines = std::fs::read_to_string(path).unwrap();
        let action = |line: &str| {
            let Value::Object(action) = serde_json::from_str(line).unwrap() else {
                panic!("{line}")
            };
            action.into_iter().next().unwrap()
        };
        lines.lines().map(action).collect()
    }

    fn paths(&self, version: u64, kind: &str) -> Vec<String> {
        let actions = self
            .actions(version)
            .into_iter()
            .filter(|(name, _)| name == kind);
        actions
            .map(|(_, action)| action["path"].as_str().unwrap().to_string())
            .collect()
    }
}

/// New parts are added, missing parts are removed, and without changes there is no new version.
#[test]
fn versions_follow_the_parts() {
    let (lake, parts) = Lake::of_parts(3);
    let version = |parts: &[PathBuf]| publish(lake.root(), &TABLE, 1, parts).unwrap();
    let made = |version, added, removed, is_rearranged| {
        Some(DeltaVersion {
            version,
            added,
            removed,
            is_rearranged,
        })
    };
    assert_eq!(version(&parts[..2]), made(0, 2, 0, false));
    assert_eq!(version(&parts[..2]), None);
    // As many rows are added as removed, so the log records a rearrangement.
    assert_eq!(version(&parts[1..]), made(1, 1, 1, true));
    assert_eq!(version(&[]), made(2, 0, 2, false));
    let changes = |version| {
        let actions = lake.actions(version).into_iter();
        actions
            .filter_map(|(_, action)| action["dataChange"].as_bool())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [changes(0), changes(1), changes(2)],
        [vec![true; 2], vec![false; 2], vec![true; 2]]
    );
    let names: Vec<_> = lake.actions(0).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["commitInfo", "protocol", "metaData", "add", "add"]);
    assert_eq!(lake.paths(1, "add"), ["part-000002.parquet"]);
    assert_eq!(lake.paths(1, "remove"), ["part-000000.parquet"]);
    let left: Vec<_> = std::fs::read_dir(lake.root().join("numbers").join(LOG_FOLDER))
        .unwrap()
        .collect();
    assert_eq!(
        left.len(),
        4,
        "nothing is left but the versions and their sums: {left:?}"
    );
}

/// Every tenth version gets a checkpoint, and the hint names the newest one.
#[test]
fn every_tenth_version_gets_a_checkpoint() {
    let (lake, parts) = Lake::of_parts(2);
    for version in 0..25 {
        publish(lake.root(), &TABLE, 1, &parts[..1 + version % 2]).unwrap();
    }
    let files = log_files(lake.root(), "numbers").unwrap().unwrap();
    let names: Vec<_> = files
        .checkpoints
        .iter()
        .map(|path| path.file_name().unwrap())
        .collect();
    let name = |version| format!("{version:020}.checkpoint.parquet");
    assert_eq!(
        names,
        [&*name(10), &*name(20), "_last_checkpoint", sums::NAME]
    );
    assert_eq!((files.versions.len(), files.parts.len()), (25, 1));
    let hint: Value =
        serde_json::from_slice(&std::fs::read(&files.checkpoints[2]).unwrap()).unwrap();
    assert_eq!(
        (&hint["version"], &hint["numOfAddFiles"]),
        (&json!(20), &json!(1))
    );
}

/// Bounds and counts match the rows; a column with only nulls has no bounds.
#[test]
fn bounds_and_counts_match_the_rows() {
    let (lake, parts) = Lake::of_parts(2);
    publish(lake.root(), &TABLE, 1, &parts).unwrap();
    let stats: Vec<Value> = lake
        .actions(0)
        .iter()
        .filter(|(name, _)| name == "add")
        .map(|(_, add)| serde_json::from_str(add["stats"].as_str().unwrap()).unwrap())
        .collect();
    let nulls = |half: u64| json!({ "number": 0, "name": 50, "half": half, "odd": 0 });
    assert_eq!(
        stats[0],
        json!({ "numRecords": 100, "nullCount": nulls(100),
            "minValues": { "number": 0, "name": "even" }, "maxValues": { "number": 99, "name": "even" } })
    );
    assert_eq!(
        stats[1],
        json!({ "numRecords": 100, "nullCount": nulls(0),
            "minValues": { "number": 100, "name": "even", "half": 50.0 },
            "maxValues": { "number": 199, "name": "even", "half": 99.5 } })
    );
}

/// Processes that publish concurrently get different versions, which together contain every part exactly once.
#[test]
fn concurrent_publishers_get_different_versions() {
    let (lake, parts) = Lake::of_parts(8);
    std::thread::scope(|scope| {
        for count in 1..=parts.len() {
            let (lake, parts) = (&lake, &parts[..count]);
            scope.spawn(move || publish(lake.root(), &TABLE, 1, parts).unwrap());
        }
    });
    let log = Log::read(&lake.root().join("numbers").join(LOG_FOLDER)).unwrap();
    assert!(log.next > 0);
    publish(lake.root(), &TABLE, 1, &parts).unwrap();
    assert_eq!(
        Log::read(&lake.root().join("numbers").join(LOG_FOLDER))
            .unwrap()
            .parts
            .len(),
        8
    );
}

/// An existing version is not replaced.
#[test]
fn no_version_is_replaced() {
    let folder = TempDir::new().unwrap();
    assert!(
        commit(
            folder.path(),
            0,
            &[json!({ "commitInfo": { "operation": "first" } })]
        )
        .unwrap()
    );
    assert!(
        !commit(
            folder.path(),
            0,
            &[json!({ "commitInfo": { "operation": "second" } })]
        )
        .unwrap()
    );
    let kept = std::fs::read_to_string(version_path(folder.path(), 0)).unwrap();
    assert!(kept.contains("first"), "{kept}");
}

/// If another program changed the log or a part lacks twins, publishing fails and writes nothing.
#[test]
fn foreign_changes_and_parts_without_twins_are_refused() {
    const TIMES: Table = Table {
        name: "numbers",
        doc: "Times.",
        columns: &[Column::time("at", "When.")],
    };
    let (lake, parts) = Lake::of_parts(2);
    let refused = |table, parts: &[PathBuf]| publish(lake.root(), table, 1, parts).unwrap_err();
    let column = refused(&TIMES, &parts);
    assert!(
        matches!(&column, DeltaError::Column { column, .. } if column == "at_ns"),
        "{column}"
    );
    assert!(matches!(
        refused(&TABLE, &["/elsewhere".into()]),
        DeltaError::Elsewhere { .. }
    ));
    let log = lake.root().join("numbers").join(LOG_FOLDER);
    assert!(!log.exists());
    publish(lake.root(), &TABLE, 1, &parts[..1]).unwrap();
    let newer = json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7 } });
    assert!(commit(&log, 1, &[newer]).unwrap());
    assert!(matches!(
        refused(&TABLE, &parts),
        DeltaError::Foreign { .. }
    ));
    // Another engine's changes aren't undone.
    let theirs = [
        json!({ "commitInfo": { "operation": "WRITE", "engineInfo": "delta-rs:1.1" } }),
        json!({ "add": { "path": "x.parquet", "size": 1, "partitionValues": {}, "dataChange": true } }),
    ];
    for lines in [&theirs[..], &theirs[1..]] {
        std::fs::remove_file(version_path(&log, 1)).unwrap();
        assert!(commit(&log, 1, lines).unwrap());
        assert!(matches!(
            refused(&TABLE, &parts),
            DeltaError::Foreign { .. }
        ));
    }
    std::fs::write(version_path(&log, 1), "{\n").unwrap();
    assert!(matches!(
        refused(&TABLE, &parts),
        DeltaError::Line { line: 1, .. }
    ));
    std::fs::remove_file(version_path(&log, 0)).unwrap();
    assert!(matches!(
        refused(&TABLE, &parts),
        DeltaError::Damaged { .. }
    ));
    assert!(!version_path(&log, 2).exists());
}

#[test]
fn paths_are_uris() {
    assert_eq!(
        encoded("date=2026-11-25/server=fe80::1 x/p%.parquet"),
        "date=2026-11-25/server=fe80%3A%3A1%20x/p%25.parquet"
    );
}
