//! Tests of opening files, and of files that change while they are open.

use super::*;
use crate::RingConfig;

fn create(path: &Path, size_bytes: u64) -> FileBackend {
    let options = FileOptions {
        size_bytes: Some(size_bytes),
        create: true,
        ..FileOptions::default()
    };
    FileBackend::open(path, &options).unwrap()
}

/// A note is added for a sparse file that its file system can't hold, before writes fail.
#[test]
fn a_sparse_file_without_room_is_noted() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let note = |size_bytes| {
        let backend = create(&path, size_bytes);
        backend
            .info()
            .notes
            .iter()
            .any(|note| note.contains("ENOSPC"))
    };
    assert!(!note(1 << 20));
    assert!(note(8 << 40));
}

#[test]
fn existing_files_keep_their_content_and_each_mistake_has_a_message() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let refused = |options: &FileOptions, words: &str| {
        let error = FileBackend::open(&path, options)
            .err()
            .expect(words)
            .to_string();
        assert!(error.contains(words), "'{error}' does not say '{words}'");
    };
    let default = FileOptions::default();
    refused(&default, "No such file");
    refused(
        &FileOptions {
            create: true,
            ..default.clone()
        },
        "needs a size",
    );
    refused(
        &FileOptions {
            size_bytes: Some(1 << 20),
            create: true,
            read_only: true,
            ..default.clone()
        },
        "exclude",
    );
    let temporary = FileOptions {
        temporary: true,
        ..default.clone()
    };
    refused(&temporary, "needs a size");
    refused(
        &FileOptions {
            size_bytes: Some(4096),
            read_only: true,
            ..temporary.clone()
        },
        "temporary=yes and read_only=yes exclude each other: omit read_only=yes",
    );
    refused(
        &FileOptions {
            create: true,
            size_bytes: Some(4096),
            ..temporary.clone()
        },
        "exclude",
    );
    let own = FileBackend::open(
        &path,
        &FileOptions {
            size_bytes: Some(1 << 20),
            ..temporary.clone()
        },
    )
    .unwrap();
    assert_eq!((own.info().size_bytes, path.exists()), (1 << 20, false));
    let small = FileOptions {
        size_bytes: Some(100),
        ..temporary.clone()
    };
    refused(&small, "less than one block");
    assert!(
        !path.exists(),
        "a file that could not be opened stayed behind"
    );
    create(&path, (1 << 20) + 100);
    refused(
        &FileOptions {
            size_bytes: Some(1 << 20),
            ..temporary
        },
        "File exists",
    );
    assert!(path.exists(), "somebody else's file is gone");
    let info = FileBackend::open(&path, &default).unwrap().info().clone();
    assert_eq!(info.size_bytes, 1 << 20);
    assert!(
        info.notes
            .iter()
            .any(|note| note.contains("last 100 bytes")),
        "{:?}",
        info.notes
    );
    let part = FileOptions {
        size_bytes: Some(4096),
        create: true,
        ..default.clone()
    };
    let info = FileBackend::open(&path, &part).unwrap().info().clone();
    assert_eq!(info.size_bytes, 4096);
    assert!(
        info.notes.iter().any(|note| note.contains("first 4KiB")),
        "{:?}",
        info.notes
    );
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (1 << 20) + 100);
    refused(
        &FileOptions {
            size_bytes: Some(1 << 20),
            ..default.clone()
        },
        "create=yes",
    );
    std::fs::write(&path, b"short").unwrap();
    refused(&default, "less than one block");
    std::fs::write(&path, [1; 8192]).unwrap();
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    let info = FileBackend::open(&path, &default).unwrap().info().clone();
    assert!(info.read_only && !info.notes.is_empty());
    let folder = FileBackend::open(scratch.path(), &default).err().unwrap();
    assert!(folder.to_string().contains("neither a file"), "{folder}");
}

/// Laid-out data is on disk before the first request, and only added data is written; without laying out, holes are
/// noted.
#[test]
fn laid_out_files_have_no_holes() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let says_hole = |backend: &FileBackend| {
        backend
            .info()
            .notes
            .iter()
            .any(|note| note.contains("has holes") && note.contains("lay_out=yes"))
    };
    let with = |lay_out, size_bytes| FileOptions {
        size_bytes: Some(size_bytes),
        create: true,
        lay_out,
        ..FileOptions::default()
    };
    let sparse = FileBackend::open(&path, &with(false, 1 << 20)).unwrap();
    assert!(says_hole(&sparse), "{:?}", sparse.info().notes);
    drop(sparse);
    std::fs::write(&path, [7; 65536]).unwrap();
    let whole = FileBackend::open(&path, &with(true, (3 << 20) + 4096)).unwrap();
    assert!(!says_hole(&whole), "{:?}", whole.info().notes);
    assert_eq!(
        whole.allocation(0),
        Some((Allocation::Mapped, (3 << 20) + 4096))
    );
    let bytes = std::fs::read(&path).unwrap();
    assert!(
        bytes[..65536].iter().all(|byte| *byte == 7),
        "what was there is gone"
    );
    let blocks: std::collections::HashSet<_> = bytes[65536..].chunks(4096).collect();
    assert_eq!(
        blocks.len(),
        (bytes.len() - 65536) / 4096,
        "blocks that are alike take no room on some disks"
    );
    let temporary = FileOptions {
        create: false,
        temporary: true,
        ..with(true, 1 << 20)
    };
    let own = FileBackend::open(&scratch.path().join("own.img"), &temporary).unwrap();
    assert!(!says_hole(&own), "{:?}", own.info().notes);
    let error = FileBackend::open(
        &path,
        &FileOptions {
            lay_out: true,
            ..FileOptions::default()
        },
    );
    assert!(error.err().unwrap().to_string().contains("already exists"));
}

/// A file truncated while it is open causes errors, not stale data or a hang.
#[test]
fn a_file_truncated_while_open_causes_errors() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let backend = create(&path, 1 << 20);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let ring = Ring::new(RingConfig::default()).unwrap();
    let mut device = backend.open(&ring, 4).unwrap();
    let request = |tag, offset| Request {
        tag,
        op: Op::Read,
        offset,
        len: 8192,
        buf: ring.pool().take(8192),
        force_unit_access: false,
    };
    let mut batch = VecDeque::from([request(1, 0), request(2, 65536)]);
    let mut done = Vec::new();
    device.submit(&mut batch);
    while device.outstanding() > 0 {
        ring.enter(device.deadline()).unwrap();
        device.poll(&mut done);
    }
    assert_eq!(done.len(), 2);
    assert!(
        done.iter()
            .all(|one| one.result == Err(DeviceError::Os(libc::EIO))),
        "{done:?}"
    );
}

#[test]
fn a_look_sees_a_file_grow_shrink_and_go() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let backend = create(&path, 1 << 20);
    let resize = |bytes| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let look = backend.medium_state();
        (look.size_bytes, look.deleted)
    };
    let ring = Ring::new(RingConfig::default()).unwrap();
    let mut device = backend.open(&ring, 4).unwrap();
    let mut read = |offset| {
        let buf = ring.pool().take(4096);
        let request = Request {
            tag: 1,
            op: Op::Read,
            offset,
            len: 4096,
            buf,
            force_unit_access: false,
        };
        crate::turn::one(&ring, &mut *device, request)
            .unwrap()
            .result
    };
    assert_eq!(read(1 << 20), Err(DeviceError::OutOfRange));
    assert_eq!(resize((2 << 20) + 100), (2 << 20, false));
    assert_eq!(read(1 << 20), Ok(()));
    assert_eq!(resize(65536), (65536, false));
    assert_eq!(read(65536), Err(DeviceError::OutOfRange));
    std::fs::remove_file(&path).unwrap();
    assert!(backend.medium_state().deleted);
    let options = FileOptions {
        size_bytes: Some(4096),
        temporary: true,
        ..FileOptions::default()
    };
    let temporary = FileBackend::open(&path, &options).unwrap();
    assert!(
        !temporary.medium_state().deleted,
        "it never was to have a name"
    );
}

#[test]
fn lba_status_reports_holes_of_the_file_system() {
    use std::os::unix::fs::FileExt;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("disk.img");
    let backend = create(&path, 4 << 20);
    assert_eq!(
        backend.allocation(0),
        Some((Allocation::Deallocated, 4 << 20))
    );
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[1; 65536], 1 << 20).unwrap();
    assert_eq!(
        backend.allocation(512),
        Some((Allocation::Deallocated, (1 << 20) - 512))
    );
    assert_eq!(
        backend.allocation(1 << 20),
        Some((Allocation::Mapped, 65536))
    );
    assert_eq!(
        backend.allocation((1 << 20) + 65536),
        Some((Allocation::Deallocated, (3 << 20) - 65536))
    );
    assert_eq!(backend.allocation(4 << 20), None);
}

/// The kernel completes requests to an in-memory file within the call that submits them, many in one call, and the
/// device's note doesn't claim otherwise.
#[test]
fn requests_to_a_file_in_memory_complete_when_they_are_submitted() {
    const DEPTH: u32 = 8;
    if crate::ring::engine::io_uring().is_err() {
        return eprintln!("skipped: needs io_uring");
    }
    let Ok(scratch) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: needs /dev/shm");
    };
    let path = scratch.path().join("disk.img");
    let backend = create(&path, 1 << 20);
    if !backend.shared.medium.in_memory || !backend.shared.medium.direct {
        return eprintln!("skipped: needs tmpfs with O_DIRECT (Linux 6.6)");
    }
    let notes = &backend.info().notes;
    assert!(
        !notes.iter().any(|note| note.contains("worker thread")),
        "{notes:?}"
    );
    let ring = Ring::new(RingConfig {
        engine: Some(brunt_core::IoEngine::IoUring),
        ..RingConfig::default()
    })
    .unwrap();
    let mut device = backend.open(&ring, DEPTH).unwrap();
    for op in [Op::Write, Op::Read] {
        let request = |tag: u32| Request {
            tag: tag.into(),
            op,
            offset: u64::from(tag) * 4096,
            len: 4096,
            buf: ring.pool().take(4096),
            force_unit_access: false,
        };
        let mut batch: VecDeque<Request> = (0..DEPTH).map(request).collect();
        let calls = ring.stats().system_calls;
        device.submit(&mut batch);
        ring.start().unwrap();
        let mut done = Vec::new();
        device.poll(&mut done);
        assert_eq!(done.len(), DEPTH as usize, "{op:?}");
        assert!(done.iter().all(|completion| completion.result.is_ok()));
        assert_eq!(ring.stats().system_calls, calls + 1);
        assert!(!ring.starts_early(), "it would gain nothing");
    }
}

/// A device whose URL creates its file is writable even if no run writes to it; other files are opened read-only.
#[test]
fn files_for_reading_can_be_created() {
    let scratch = tempfile::tempdir().unwrap();
    let check = |name: &str, options: &str, read_only: bool| {
        let url = format!("file:{}?{options}", scratch.path().join(name).display());
        let backend = crate::table::open_url_with(&url, &[], true);
        let backend = backend.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(backend.info().read_only, read_only, "{url}");
    };
    check("made", "create=yes&size=1MiB", false);
    check("unnamed", "temporary=yes&size=1MiB", false);
    check("unnamed", "temporary=on&size=1MiB&lay_out=yes", false);
    check("made", "direct=yes", true);
    check("made", "create=no&temporary=no", true);
}
