//! Copies lakes to an in-memory store that loses requests and answers. At any time, readers of the store find a version
//! with all its parts, and a fetch returns what was sent.

use crate::support;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::support::{Link, MemoryStore, Objects};
use brunt_lake::catalog::{Absorbed, version_path};
use brunt_lake::place::Grain;
use brunt_lake::{Catalog, LakePart, LakeSnapshot, LakeTap};
use brunt_remote::mover::MoveTurn;
use brunt_remote::pull::PullCounts;
use brunt_remote::{
    FolderSource, LakeMark, LakePlan, MoveOptions, Mover, RemoteAddress, RemoteError, RemoteStore,
    StoredLake,
};
use tempfile::TempDir;

fn address() -> RemoteAddress {
    "s3://lake/all".parse().unwrap()
}

fn write(folder: &Path, name: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("rows of {name}")).unwrap();
}

/// Commits a version with these parts that has absorbed the first `absorbed` parts of the capture.
fn commit(folder: &Path, version: u64, parts: &[&str], absorbed: u64) {
    let part = |name: &&str| {
        write(folder, name);
        LakePart {
            path: name.to_string(),
            rows: 1,
            bytes: format!("rows of {name}").len() as u64,
            sum: None,
            hour: None,
            extremes: Default::default(),
        }
    };
    let of_table = [(
        0,
        Absorbed {
            first: 0,
            next: absorbed,
        },
    )]
    .into();
    let tap = LakeTap {
        pipelines: 1,
        absorbed: [("operations".to_string(), of_table)].into(),
        ..LakeTap::default()
    };
    let catalog = Catalog {
        version,
        taps: vec![tap],
        parts: [("operations".to_string(), parts.iter().map(part).collect())].into(),
        ..Catalog::empty(Grain::Day)
    };
    std::fs::create_dir_all(folder.join("_catalog")).unwrap();
    catalog
        .commit_bytes(folder, &serde_json::to_vec(&catalog).unwrap())
        .unwrap();
}

const FIRST: [&str; 2] = [
    "operations/date=2026-11-25/part-c00000001-0000.parquet",
    "operations/part-c00000001-0001.parquet",
];
const SECOND: [&str; 2] = [FIRST[0], "operations/part-c00000002-0000.parquet"];

/// A lake with one version, and a part captured since.
fn lake() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "operations/part-000007.parquet");
    commit(folder.path(), 1, &FIRST, 7);
    folder
}

/// Pushes like the program, but without waiting; returns the plan if all of it was sent.
fn push(folder: &Path, objects: &Objects, link: &Link) -> Result<Option<LakePlan>, RemoteError> {
    let mark = LakeMark::read_or_make(folder)?;
    let options = MoveOptions { keeps_local: true };
    let mut mover = Mover::new(
        address(),
        Box::new(MemoryStore::of(objects, link)),
        mark,
        options,
    );
    mover.claim_place()?;
    let stored = StoredLake::read(mover.store(), &address())?;
    let plan = stored.plan(&LakeSnapshot::open(folder)?)?;
    for files in [&plan.parts, &plan.logs, &plan.version] {
        let mut source = FolderSource::new(files.clone());
        loop {
            match mover.turn(&mut source)? {
                MoveTurn::Went => {}
                MoveTurn::Idle => break,
                MoveTurn::Waits(_) => return Ok(None),
            }
        }
        if mover.counts(&source).parts_refused + mover.counts(&source).parts_withdrawn > 0 {
            return Ok(None);
        }
    }
    Ok(Some(plan))
}

/// The newest version in a store, after checking that all its parts exist.
fn newest(objects: &Objects, label: &str) -> Option<u64> {
    let stored = StoredLake::read(&MemoryStore::of(objects, &Link::whole()), &address()).unwrap();
    let newest = stored.newest()?;
    for part in newest.parts.values().flatten() {
        let object = stored.objects().get(&part.path);
        assert_eq!(
            object.map(|object| object.bytes),
            Some(part.bytes),
            "{label}: {}",
            part.path
        );
    }
    Some(newest.version)
}

fn pull(folder: &Path, objects: &Objects, link: &Link) -> (PullCounts, Result<(), RemoteError>) {
    support::pull(folder, &address(), objects, link)
}

fn live(folder: &Path) -> Vec<String> {
    let held = LakeSnapshot::open(folder).unwrap();
    let parts = held
        .catalog()
        .unwrap()
        .parts("operations")
        .iter()
        .map(|part| part.path.clone());
    let since = held.parts_since().unwrap();
    let since = since
        .iter()
        .map(|path| path.strip_prefix(folder).unwrap().display().to_string());
    let parts: Vec<_> = parts.chain(since).collect();
    for part in &parts {
        assert_eq!(
            std::fs::read(folder.join(part)).unwrap(),
            format!("rows of {part}").into_bytes()
        );
    }
    parts
}

fn cut_after(requests: u64) -> Link {
    Link {
        requests_left: Arc::new(AtomicU64::new(requests)),
        ..Link::default()
    }
}

/// The link is cut after any number of requests during two pushes: the store always has a complete version, and the
/// next push continues. An interrupted fetch yields a lake only once it has been completed.
#[test]
fn a_store_always_has_a_complete_version() {
    for requests in 0..40 {
        let (folder, objects, label) =
            (lake(), Objects::default(), format!("cut after {requests}"));
        let first = push(folder.path(), &objects, &cut_after(requests))
            .ok()
            .flatten();
        assert!(
            first.is_none() || newest(&objects, &label) == Some(1),
            "{label}"
        );
        newest(&objects, &label);
        push(folder.path(), &objects, &Link::whole())
            .unwrap()
            .unwrap();
        assert_eq!(newest(&objects, &label), Some(1));

        commit(folder.path(), 2, &SECOND, 8);
        let _ = push(folder.path(), &objects, &cut_after(requests));
        let between = newest(&objects, &label);
        let again = push(folder.path(), &objects, &Link::whole())
            .unwrap()
            .unwrap();
        assert_eq!(newest(&objects, &label), Some(2));
        // Parts of the store's version aren't looked up again.
        assert_eq!(
            again.known,
            if between == Some(2) { 2 } else { 1 },
            "{label}"
        );

        let back = TempDir::new().unwrap();
        let (_, cut) = pull(back.path(), &objects, &cut_after(requests));
        assert_eq!(
            cut.is_ok(),
            version_path(back.path(), 2).exists(),
            "{label}: {cut:?}"
        );
        let (_, whole) = pull(back.path(), &objects, &Link::whole());
        whole.unwrap();
        assert_eq!(live(back.path()), live(folder.path()), "{label}");
    }
}

/// Replaced objects are deleted on request once they are old enough, in an order that never breaks a version for
/// readers.
#[test]
fn replaced_objects_are_deleted_on_request() {
    let (folder, objects) = (lake(), Objects::default());
    push(folder.path(), &objects, &Link::whole()).unwrap();
    commit(folder.path(), 2, &SECOND, 8);
    let plan = push(folder.path(), &objects, &Link::whole())
        .unwrap()
        .unwrap();
    // A part for a version that is still to come, and a part that never became part of a version.
    for name in [
        "operations/part-c00000003-0000.parquet",
        "operations/part-c00000002-0009.parquet",
    ] {
        objects
            .lock()
            .unwrap()
            .insert(address().key(name), b"rows".to_vec());
    }
    let store = MemoryStore::of(&objects, &Link::whole());
    let stored = StoredLake::read(&store, &address()).unwrap();
    // The store's clock reads 1 s.
    let outdated = |keep, now_ms| {
        stored
            .outdated(&store, &plan, Duration::from_millis(keep), now_ms)
            .unwrap()
    };
    assert_eq!(outdated(500, 1400), [""; 0]);
    let expected = [
        "_catalog/v00000001.json",
        "operations/part-000007.parquet",
        "operations/part-c00000001-0001.parquet",
        "operations/part-c00000002-0009.parquet",
    ];
    assert_eq!(
        outdated(500, 1500),
        expected.map(|name| address().key(name))
    );
    outdated(500, 1500)
        .iter()
        .for_each(|key| store.delete(key).unwrap());
    assert_eq!(newest(&objects, "after"), Some(2));
    let back = TempDir::new().unwrap();
    pull(back.path(), &objects, &Link::whole()).1.unwrap();
    assert_eq!(live(back.path()), live(folder.path()));
}

/// Two diverging copies of a lake don't replace each other; an older copy is brought up to date.
#[test]
fn copies_that_diverged_are_refused() {
    let (folder, objects) = (lake(), Objects::default());
    push(folder.path(), &objects, &Link::whole()).unwrap();
    let other = TempDir::new().unwrap();
    pull(other.path(), &objects, &Link::whole()).1.unwrap();
    commit(folder.path(), 2, &SECOND, 8);
    push(folder.path(), &objects, &Link::whole())
        .unwrap()
        .unwrap();
    commit(
        other.path(),
        2,
        &["operations/part-c00000002-0000.parquet"],
        7,
    );
    let refused = push(other.path(), &objects, &Link::whole());
    assert!(
        matches!(
            refused,
            Err(RemoteError::Diverged {
                theirs: 2,
                ours: 2,
                ..
            })
        ),
        "{refused:?}"
    );
    let (_, refused) = pull(other.path(), &objects, &Link::whole());
    assert!(
        matches!(refused, Err(RemoteError::Diverged { .. })),
        "{refused:?}"
    );
    // A later version with fewer parts.
    commit(
        other.path(),
        3,
        &["operations/part-c00000003-0000.parquet"],
        7,
    );
    let refused = push(other.path(), &objects, &Link::whole());
    assert!(
        matches!(
            refused,
            Err(RemoteError::Diverged {
                theirs: 2,
                ours: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(newest(&objects, "after"), Some(2));
}

/// A version with missing parts is reported and not partially fetched.
#[test]
fn a_version_with_missing_parts_is_reported() {
    let (folder, objects) = (lake(), Objects::default());
    push(folder.path(), &objects, &Link::whole()).unwrap();
    objects.lock().unwrap().remove(&address().key(FIRST[1]));
    let back = TempDir::new().unwrap();
    let (_, result) = pull(back.path(), &objects, &Link::whole());
    assert!(
        matches!(&result, Err(RemoteError::Incomplete { version: 1, part, .. }) if part == FIRST[1])
    );
    assert!(!version_path(back.path(), 1).exists());
    // The folder still has the part.
    push(folder.path(), &objects, &Link::whole())
        .unwrap()
        .unwrap();
    assert_eq!(newest(&objects, "again"), Some(1));
}
