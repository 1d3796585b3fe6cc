//! Moves and fetches with an in-memory store that loses requests and answers; checks the state of both sides
//! afterwards, and the counters.

use crate::support;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Link, MemoryStore, Objects};
use brunt_remote::folder::{self, MARK_NAME};
use brunt_remote::mover::MoveTurn;
use brunt_remote::pull::PullCounts;
use brunt_remote::{
    FolderSource, LakeMark, MoveOptions, Mover, PartSource, RemoteAddress, RemoteError,
};
use tempfile::TempDir;

const PARTS: [&str; 3] = [
    "operations/part-000000.parquet",
    "operations/part-000001.parquet",
    "packets/part-000000.parquet",
];

fn address() -> RemoteAddress {
    "s3://lake/tap".parse().unwrap()
}

fn folder_with_parts() -> TempDir {
    let folder = TempDir::new().unwrap();
    for part in PARTS {
        let path = folder.path().join(part);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("rows of {part}")).unwrap();
    }
    folder
}

fn mover(folder: &Path, objects: &Objects, link: &Link, keeps_local: bool) -> Mover {
    let store = MemoryStore::of(objects, link);
    let mark = LakeMark::read_or_make(folder).unwrap();
    Mover::new(
        address(),
        Box::new(store),
        mark,
        MoveOptions { keeps_local },
    )
}

/// Calls `turn` until nothing is left or the store is silent.
fn turn_to_the_end(mover: &mut Mover, source: &mut FolderSource) -> Result<MoveTurn, RemoteError> {
    loop {
        match mover.turn(source)? {
            MoveTurn::Went => {}
            end => return Ok(end),
        }
    }
}

fn source(folder: &Path) -> FolderSource {
    FolderSource::new(folder::parts(folder).unwrap().0)
}

/// Checks that every part exists here or in the store, and that those in the store are complete.
fn check_nothing_is_lost(folder: &Path, objects: &Objects, label: &str) {
    for part in PARTS {
        let object = objects.lock().unwrap().get(&address().key(part)).cloned();
        let content = object.or_else(|| std::fs::read(folder.join(part)).ok());
        assert_eq!(
            content,
            Some(format!("rows of {part}").into_bytes()),
            "{label}: {part}"
        );
    }
}

/// The link is cut after any number of requests, with the last answer lost, and the mover is killed. Another mover then
/// settles the part.
#[test]
fn a_link_that_is_cut_at_any_request_loses_nothing() {
    for (keeps_local, hides_tags) in [(false, false), (true, false), (false, true)] {
        for requests in 0..30 {
            let label = format!("cut after {requests}, {keeps_local}, {hides_tags}");
            let (folder, objects) = (folder_with_parts(), Objects::default());
            let link = Link {
                requests_left: Arc::new(AtomicU64::new(requests)),
                hides_tags,
                ..Link::default()
            };
            let mut first = mover(folder.path(), &objects, &link, keeps_local);
            let _ = turn_to_the_end(&mut first, &mut source(folder.path())).unwrap();
            check_nothing_is_lost(folder.path(), &objects, &label);

            let whole = Link {
                hides_tags,
                ..Link::whole()
            };
            let mut second = mover(folder.path(), &objects, &whole, keeps_local);
            let mut left = source(folder.path());
            assert_eq!(
                turn_to_the_end(&mut second, &mut left).unwrap(),
                MoveTurn::Idle,
                "{label}"
            );
            assert_eq!(objects.lock().unwrap().len(), PARTS.len() + 1, "{label}");
            check_nothing_is_lost(folder.path(), &objects, &label);
            let there = folder::parts(folder.path()).unwrap().0.len();
            assert_eq!(there, if keeps_local { PARTS.len() } else { 0 }, "{label}");
            let (before, after) = (first.counts(&left), second.counts(&left));
            assert_eq!(after.parts_waiting, 0, "{label}");
            let settled = [before, after].map(|counts| counts.parts_moved + counts.parts_found);
            assert!(
                settled.iter().sum::<u64>() >= PARTS.len() as u64,
                "{label}: {before:?} {after:?}"
            );
            assert_eq!(
                after.bytes_read_back > 0,
                hides_tags && settled[1] > 0,
                "{label}"
            );
        }
    }
}

/// The same mover continues once the link is back.
#[test]
fn a_silent_store_is_counted_and_asked_again() {
    let (folder, objects) = (folder_with_parts(), Objects::default());
    let link = Link {
        requests_left: Arc::new(AtomicU64::new(6)),
        ..Link::default()
    };
    let mut mover = mover(folder.path(), &objects, &link, false);
    let mut parts = source(folder.path());
    let end = turn_to_the_end(&mut mover, &mut parts).unwrap();
    assert!(
        matches!(end, MoveTurn::Waits(wait) if wait <= Duration::from_secs(1)),
        "{end:?}"
    );
    assert!(mover.trouble().is_some());
    let counts = mover.counts(&parts);
    assert!(
        counts.retries == 1 && counts.parts_waiting > 0,
        "{counts:?}"
    );
    link.requests_left.store(u64::MAX, Ordering::Relaxed);
    mover.begin_again();
    assert_eq!(
        turn_to_the_end(&mut mover, &mut parts).unwrap(),
        MoveTurn::Idle
    );
    assert!(mover.trouble().is_none());
    check_nothing_is_lost(folder.path(), &objects, "at the end");
}

#[test]
fn an_object_with_other_bytes_is_named_and_not_touched() {
    let (folder, objects) = (folder_with_parts(), Objects::default());
    let mut first = mover(folder.path(), &objects, &Link::whole(), true);
    turn_to_the_end(&mut first, &mut source(folder.path())).unwrap();
    let key = address().key(PARTS[1]);
    for other in [
        b"short".to_vec(),
        b"ROWS OF operations/part-000001.parquet".to_vec(),
    ] {
        objects.lock().unwrap().insert(key.clone(), other.clone());
        for hides_tags in [false, true] {
            let link = Link {
                hides_tags,
                ..Link::whole()
            };
            let mut again = mover(folder.path(), &objects, &link, true);
            let mut parts = source(folder.path());
            turn_to_the_end(&mut again, &mut parts).unwrap();
            let counts = again.counts(&parts);
            assert_eq!(
                (counts.parts_refused, counts.parts_found, counts.parts_moved),
                (1, 2, 0)
            );
            let told = again.take_conflicts().remove(0).to_string();
            assert!(told.contains(PARTS[1]) && told.contains(&key), "{told}");
            assert_eq!(objects.lock().unwrap()[&key], other);
            assert!(folder.path().join(PARTS[1]).exists());
        }
    }
}

/// If the store holds different bytes than were sent, the local file isn't deleted.
#[test]
fn bytes_that_change_on_the_way_are_noticed() {
    for hides_tags in [false, true] {
        let (folder, objects) = (folder_with_parts(), Objects::default());
        let link = Link {
            garbles: true,
            hides_tags,
            ..Link::whole()
        };
        let mut mover = mover(folder.path(), &objects, &link, false);
        let mut parts = source(folder.path());
        turn_to_the_end(&mut mover, &mut parts).unwrap();
        assert_eq!(mover.counts(&parts).parts_refused, PARTS.len() as u64);
        assert_eq!(source(folder.path()).waiting().parts, PARTS.len() as u64);
    }
}

#[test]
fn parts_of_two_folders_do_not_mix_under_one_prefix() {
    let (folder, other, objects) = (folder_with_parts(), folder_with_parts(), Objects::default());
    let mut first = mover(folder.path(), &objects, &Link::whole(), false);
    turn_to_the_end(&mut first, &mut source(folder.path())).unwrap();
    let mut second = mover(other.path(), &objects, &Link::whole(), false);
    let refused = turn_to_the_end(&mut second, &mut source(other.path()));
    assert!(
        matches!(refused, Err(RemoteError::Taken { .. })),
        "{refused:?}"
    );
    assert_eq!(source(other.path()).waiting().parts, PARTS.len() as u64);
    // A place with objects but no mark is refused as well.
    objects.lock().unwrap().remove(&address().key(MARK_NAME));
    let refused = turn_to_the_end(
        &mut first_again(&folder, &objects),
        &mut source(folder.path()),
    );
    assert!(
        matches!(refused, Err(RemoteError::Taken { .. })),
        "{refused:?}"
    );
}

fn first_again(folder: &TempDir, objects: &Objects) -> Mover {
    mover(folder.path(), objects, &Link::whole(), false)
}

/// A file that is replaced while it is being moved isn't deleted.
#[test]
fn a_part_that_changes_meanwhile_stays() {
    let (folder, objects) = (folder_with_parts(), Objects::default());
    let mut mover = mover(folder.path(), &objects, &Link::whole(), false);
    let mut parts = source(folder.path());
    let path = folder.path().join(PARTS[0]);
    // Claiming the place, then Look and Send for the part.
    for _ in 0..3 {
        assert_eq!(mover.turn(&mut parts).unwrap(), MoveTurn::Went);
    }
    std::fs::write(&path, "more rows").unwrap();
    turn_to_the_end(&mut mover, &mut parts).unwrap();
    let counts = mover.counts(&parts);
    assert_eq!(
        (counts.parts_withdrawn, counts.parts_moved),
        (1, 2),
        "{counts:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"more rows");
}

/// Parts that were replaced or deleted during a move are counted once, by their outcome when the rest is moved.
#[test]
fn parts_that_are_moved_later_are_not_counted_as_withdrawn() {
    for is_deleted in [false, true] {
        let (folder, objects) = (folder_with_parts(), Objects::default());
        let mut mover = mover(folder.path(), &objects, &Link::whole(), false);
        let mut parts = source(folder.path());
        let path = folder.path().join(PARTS[0]);
        for _ in 0..3 {
            assert_eq!(mover.turn(&mut parts).unwrap(), MoveTurn::Went);
        }
        std::fs::write(&path, "more rows").unwrap();
        turn_to_the_end(&mut mover, &mut parts).unwrap();
        objects.lock().unwrap().remove(&address().key(PARTS[0]));
        if is_deleted {
            std::fs::remove_file(&path).unwrap();
        }
        mover.begin_again();
        let mut rest = source(folder.path());
        turn_to_the_end(&mut mover, &mut rest).unwrap();
        let counts = mover.counts(&rest);
        let expected = if is_deleted { (1, 2) } else { (0, 3) };
        assert_eq!(
            (counts.parts_withdrawn, counts.parts_moved),
            expected,
            "{counts:?}"
        );
    }
}

/// Wherever a mover is when its folder ends, each part is counted once.
#[test]
fn a_part_is_counted_if_the_source_changes_during_its_move() {
    for turns in 0..30 {
        let (folder, objects) = (folder_with_parts(), Objects::default());
        let mut mover = mover(folder.path(), &objects, &Link::whole(), false);
        let mut parts = source(folder.path());
        for _ in 0..turns {
            mover.turn(&mut parts).unwrap();
        }
        mover.begin_again();
        let mut rest = source(folder.path());
        turn_to_the_end(&mut mover, &mut rest).unwrap();
        let counts = mover.counts(&rest);
        let counted = counts.parts_moved + counts.parts_found;
        assert_eq!(counted, PARTS.len() as u64, "{turns}: {counts:?}");
    }
}

/// Fetches from a store over the given link.
fn pull(folder: &Path, objects: &Objects, link: &Link) -> (PullCounts, Result<(), RemoteError>) {
    support::pull(folder, &address(), objects, link)
}

#[test]
fn a_fetch_that_is_cut_at_any_request_is_continued_by_the_next() {
    let (folder, objects) = (folder_with_parts(), Objects::default());
    let mut first = mover(folder.path(), &objects, &Link::whole(), true);
    turn_to_the_end(&mut first, &mut source(folder.path())).unwrap();
    for hides_tags in [false, true] {
        for requests in 0..6 {
            let back = TempDir::new().unwrap();
            let link = Link {
                requests_left: Arc::new(AtomicU64::new(requests)),
                hides_tags,
                ..Link::default()
            };
            let (_, cut) = pull(back.path(), &objects, &link);
            assert!(cut.is_err(), "{requests}");
            let (counts, result) = pull(
                back.path(),
                &objects,
                &Link {
                    hides_tags,
                    ..Link::whole()
                },
            );
            result.unwrap();
            assert_eq!(
                counts.parts_fetched + counts.parts_found,
                PARTS.len() as u64
            );
            for part in PARTS {
                assert_eq!(
                    std::fs::read(back.path().join(part)).unwrap(),
                    format!("rows of {part}").into_bytes()
                );
            }
        }
    }
}

#[test]
fn a_fetch_replaces_nothing_and_stays_within_its_folder() {
    let (folder, objects) = (folder_with_parts(), Objects::default());
    let mut first = mover(folder.path(), &objects, &Link::whole(), true);
    turn_to_the_end(&mut first, &mut source(folder.path())).unwrap();
    objects
        .lock()
        .unwrap()
        .insert("tap/../../escaped.parquet".into(), b"x".to_vec());
    objects
        .lock()
        .unwrap()
        .insert("tap/operations//part-000009.parquet".into(), b"x".to_vec());
    objects
        .lock()
        .unwrap()
        .insert("tap/notes.txt".into(), b"x".to_vec());
    let back = TempDir::new().unwrap();
    std::fs::create_dir(back.path().join("operations")).unwrap();
    std::fs::write(back.path().join(PARTS[1]), "mine").unwrap();
    let (counts, result) = pull(back.path(), &objects, &Link::whole());
    assert!(
        matches!(result, Err(RemoteError::Conflict { .. })),
        "{result:?}"
    );
    assert_eq!(
        (
            counts.parts_fetched,
            counts.parts_refused,
            counts.objects_left_out
        ),
        (2, 1, 3)
    );
    assert_eq!(std::fs::read(back.path().join(PARTS[1])).unwrap(), b"mine");
    assert!(
        !back
            .path()
            .parent()
            .unwrap()
            .join("escaped.parquet")
            .exists()
    );
    // A folder of another lake accepts nothing from this one.
    let other = folder_with_parts();
    LakeMark::read_or_make(other.path()).unwrap();
    let (_, result) = pull(other.path(), &objects, &Link::whole());
    assert!(
        matches!(result, Err(RemoteError::Taken { .. })),
        "{result:?}"
    );
}
