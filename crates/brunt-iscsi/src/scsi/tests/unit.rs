//! What a unit reports about itself, and its possible states.

use super::*;

/// INQUIRY, REPORT LUNS and similar commands, and the answers for a LUN that doesn't exist.
#[test]
fn inquiries_are_answered_for_existing_and_missing_luns() {
    let units = vec![
        (1, unit(true, thin())),
        (0, unit(true, LunOptions::default())),
    ];
    let map = LunMap::new(units);
    let mut c = Client::fresh(&map.get(1).unwrap(), "a");
    let report = [op::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    // None of these clears the unit attention.
    let luns = c.good(&report, &[]);
    assert_eq!((luns.len(), be32(&luns, 0), luns[17]), (24, 16, 1));
    let pages = c.good(&[op::INQUIRY, 1, 0, 0, 255, 0], &[]);
    assert_eq!(pages[4..], [0x00, 0x80, 0x83, 0x8f, 0xb0, 0xb1, 0xb2]);
    for page in &pages[4..] {
        let body = c.good(&[op::INQUIRY, 1, *page, 4, 0, 0], &[]);
        assert_eq!(
            (body[1], usize::from(be16(&body, 2)) + 4),
            (*page, body.len())
        );
    }
    assert_eq!(c.good(&[op::INQUIRY, 0, 0, 0, 5, 0], &[]).len(), 5);
    assert_eq!(c.code(&[op::INQUIRY, 0, 0x83, 0, 255, 0]), FIELD);
    assert_eq!(c.code(&[op::INQUIRY, 1, 0xc0, 0, 255, 0]), FIELD);
    let sense = c.good(&[op::REQUEST_SENSE, 0, 0, 0, 252, 0], &[]);
    assert_eq!(
        (sense.len(), sense[2], sense[12]),
        (18, key::UNIT_ATTENTION, 0x29)
    );
    assert_eq!(
        c.good(&[op::REQUEST_SENSE, 1, 0, 0, 252, 0], &[])[..4],
        [0x72, 0, 0, 0]
    );
    assert_eq!(c.code(&[0; 6]), GOOD);

    let mut cdb = cdb16(op::SERVICE_ACTION_IN_16, op::SA_READ_CAPACITY_16, 0, 32);
    let capacity = c.good(&cdb, &[]);
    assert_eq!(
        (
            be64(&capacity, 0),
            be32(&capacity, 8),
            capacity[13],
            capacity[14]
        ),
        (BLOCKS - 1, 512, 3, 0xc0)
    );
    cdb[13] = 9;
    assert_eq!(c.good(&cdb, &[]).len(), 9);
    let capacity = c.good(&[op::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    assert_eq!(
        (be32(&capacity, 0), be32(&capacity, 4)),
        (BLOCKS as u32 - 1, 512)
    );

    let unknown = |cdb: &[u8]| {
        let attribute = TaskAttribute::Simple;
        map.answer_unknown(
            9,
            &TransportCommand {
                tag: 7,
                cdb,
                attribute,
                data_out_len: 0,
                data_in_len: 255,
            },
        )
    };
    assert!(
        matches!(unknown(&[op::INQUIRY, 0, 0, 0, 36, 0]).data_in, DataIn::Bytes(b) if b[0] == 0x7f && b.len() == 36)
    );
    assert!(matches!(unknown(&report).data_in, DataIn::Bytes(b) if b.len() == 24));
    assert!(
        matches!(unknown(&[op::REQUEST_SENSE, 0, 0, 0, 18, 0]).data_in, DataIn::Bytes(b) if b[12] == 0x25)
    );
    assert_eq!(unknown(&[0; 6]).sense.unwrap().asc, 0x25);
}

/// Open nexuses are notified once of added or removed LUNs, unless they request the list first.
#[test]
fn nexuses_are_notified_once_of_changed_luns() {
    let map = LunMap::new(vec![(0, unit(true, thin())), (1, unit(true, thin()))]);
    let mut first = Client::new(&map.get(0).unwrap(), "a");
    let mut other = Client::new(&map.get(0).unwrap(), "b");
    let changed = (key::UNIT_ATTENTION, 0x3f, 0x0e);
    map.change(&[1], vec![(1, unit(true, thin())), (5, unit(true, thin()))]);
    assert_eq!((first.code(&[0; 6]), first.code(&[0; 6])), (changed, GOOD));
    let report = [op::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let luns = other.good(&report, &[]);
    assert_eq!((luns.len(), luns[9], luns[17], luns[25]), (32, 0, 1, 5));
    assert_eq!(other.code(&[0; 6]), GOOD);
    let gone = map.change(&[0], Vec::new());
    assert_eq!(gone.len(), 1);
    assert!(gone[0].1.is_open() && map.get(0).is_none());
    drop((first, other));
    assert!(!gone[0].1.is_open());
}

/// The report of supported commands is right: listed commands never return "invalid operation code", and all other
/// commands do.
#[test]
fn the_report_of_supported_commands_is_right() {
    for options in [
        thin(),
        LunOptions {
            removable: true,
            ..LunOptions::default()
        },
    ] {
        let mut c = Client::new(&unit(true, options), "a");
        let all = c.good(
            &cdb12(
                op::MAINTENANCE_IN,
                op::SA_REPORT_SUPPORTED_OPERATION_CODES,
                0,
                65535,
            ),
            &[],
        );
        assert_eq!(be32(&all, 0) as usize, all.len() - 4);
        let listed: Vec<(u8, u8, bool)> = all[4..]
            .chunks(8)
            .map(|d| (d[0], d[3], d[5] & 1 != 0))
            .collect();
        for code in 0..=0xffu8 {
            let known = listed.iter().any(|(listed, ..)| *listed == code);
            if matches!(code, op::SANITIZE | op::START_STOP_UNIT) {
                continue;
            }
            let outcome = c.code(&[code, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(outcome != OPCODE, known, "{code:#x}: {outcome:?}");
        }
        for (code, action, has_actions) in listed {
            let ask = |how: u8, action: u8| {
                let mut cdb = cdb12(
                    op::MAINTENANCE_IN,
                    op::SA_REPORT_SUPPORTED_OPERATION_CODES,
                    0,
                    255,
                );
                cdb[2..6].copy_from_slice(&[how, code, 0, action]);
                cdb
            };
            let (right, wrong) = if has_actions { (2, 1) } else { (1, 2) };
            let one = c.good(&ask(0x80 | right, action), &[]);
            assert_eq!(
                (one[1], one[4], one.len()),
                (0x83, code, 4 + usize::from(be16(&one, 2)) + 12)
            );
            assert_eq!(c.code(&ask(wrong, action)), FIELD, "{code:#x}");
        }
        let mut tmf = cdb12(op::MAINTENANCE_IN, 0x0d, 0, 4);
        assert_eq!(c.good(&tmf, &[]), [0xda, 0, 0, 0]);
        tmf[9] = 3;
        assert_eq!(c.code(&tmf), FIELD);
    }
}

/// Mode pages are sensed and selected; other nexuses are notified; write protection takes effect.
#[test]
fn mode_pages_are_sensed_and_selected() {
    let unit = unit(true, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let all = a.good(&[op::MODE_SENSE_6, 0x08, 0x3f, 0, 255, 0], &[]);
    assert_eq!(
        (all.len(), usize::from(all[0]) + 1, all[2]),
        (4 + 44, 4 + 44, 0x10)
    );
    let ten = a.good(&[op::MODE_SENSE_10, 0x10, 0x08, 0, 0, 0, 0, 1, 0, 0], &[]);
    assert_eq!(
        (ten.len(), ten[7], be64(&ten, 8)),
        (8 + 16 + 20, 16, BLOCKS)
    );
    assert_eq!(
        a.code(&[op::MODE_SENSE_6, 0, 0xc8, 0, 255, 0]),
        (key::ILLEGAL_REQUEST, 0x39, 0)
    );
    assert_eq!(a.code(&[op::MODE_SENSE_6, 0, 0x02, 0, 255, 0]), FIELD);

    let mut list = a.good(&[op::MODE_SENSE_6, 0x08, 0x0a, 0, 255, 0], &[]);
    list[0] = 0;
    list[4 + 4] |= 0x08;
    let select = [op::MODE_SELECT_6, 0x10, 0, 0, list.len() as u8, 0];
    assert_eq!(
        a.code_with(&[op::MODE_SELECT_6, 0x11, 0, 0, 16, 0], &list),
        FIELD
    );
    assert_eq!(a.code_with(&select, &list), GOOD);
    assert_eq!(b.code(&[0; 6]), (key::UNIT_ATTENTION, 0x2a, 0x01));
    assert_eq!(
        b.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]),
        (key::DATA_PROTECT, 0x27, 0x02)
    );
    assert_eq!(
        b.good(&[op::MODE_SENSE_6, 0x08, 0x0a, 0, 255, 0], &[])[2],
        0x90
    );
    list[4 + 4] &= !0x08;
    list[4 + 2] |= 0x04;
    assert!(!unit.wants_descriptor_sense());
    assert_eq!(a.code_with(&select, &list), GOOD);
    assert!(unit.wants_descriptor_sense());
    assert_eq!(b.code(&[0; 6]), (key::UNIT_ATTENTION, 0x2a, 0x01));
    b.write(0, &[1; BLOCK]);
    list[4 + 2] ^= 0x02;
    assert_eq!(a.code_with(&select, &list), PARAMETER);
    assert_eq!(b.code(&[0; 6]), GOOD);
}

/// A read-only unit allows reads and refuses every command that writes.
#[test]
fn a_read_only_unit_refuses_every_command_that_writes() {
    both(
        &LunOptions {
            read_only: true,
            thin: true,
            ..LunOptions::default()
        },
        |c| {
            assert_eq!(c.read(0, 1), [0; BLOCK]);
            assert_eq!(
                c.good(&[op::MODE_SENSE_6, 0, 0x3f, 0, 255, 0], &[])[2] & 0x80,
                0x80
            );
            let protected = (key::DATA_PROTECT, 0x27, 0x00);
            for code in [
                op::WRITE_10,
                op::WRITE_AND_VERIFY_10,
                op::WRITE_SAME_10,
                op::UNMAP,
            ] {
                assert_eq!(c.code(&cdb10(code, 0, 0, 1)), protected, "{code:#x}");
            }
            for code in [
                op::WRITE_16,
                op::COMPARE_AND_WRITE,
                op::ORWRITE_16,
                op::WRITE_SAME_16,
                op::WRITE_ATOMIC_16,
            ] {
                assert_eq!(c.code(&cdb16(code, 0, 0, 1)), protected, "{code:#x}");
            }
            assert_eq!(c.code(&[op::WRITE_6, 0, 0, 0, 1, 0]), protected);
            assert_eq!(c.code(&[op::SANITIZE, 2]), protected);
        },
    );
}

/// Media are ejected, loaded and locked; commands that need a medium report its absence.
#[test]
fn media_are_ejected_loaded_and_locked() {
    let unit = unit(
        true,
        LunOptions {
            removable: true,
            thin: true,
            ..LunOptions::default()
        },
    );
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let eject = [op::START_STOP_UNIT, 0, 0, 0, 0x02, 0];
    let load = [op::START_STOP_UNIT, 0, 0, 0, 0x03, 0];
    assert_eq!(
        a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1, 0]),
        GOOD
    );
    for c in [&mut a, &mut b] {
        assert_eq!(c.code(&eject), (key::ILLEGAL_REQUEST, 0x53, 0x02));
    }
    assert_eq!(
        a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 0, 0]),
        GOOD
    );
    // Power conditions and stopping don't eject the medium.
    for byte in [0x00, 0x12, 0x32, 0xf2] {
        assert_eq!(a.code(&[op::START_STOP_UNIT, 0, 0, 0, byte, 0]), GOOD);
        assert_eq!(a.code(&[0; 6]), GOOD);
    }
    assert_eq!(a.code(&eject), GOOD);
    for row in OPCODES {
        let mut cdb = [0; 16];
        cdb[0] = row.opcode;
        cdb[1] = row.service_action.unwrap_or(0);
        let expected = super::lun::needs_medium(row.opcode)
            && !matches!(
                row.opcode,
                op::INQUIRY | op::REPORT_LUNS | op::REQUEST_SENSE
            );
        if expected {
            assert_eq!(a.code(&cdb), NO_MEDIUM, "{}", row.name);
        }
    }
    assert_eq!(a.good(&[op::REQUEST_SENSE, 0, 0, 0, 18, 0], &[])[12], 0x3a);
    assert_eq!(
        a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1, 0]),
        GOOD
    );
    assert_eq!(a.code(&load), (key::ILLEGAL_REQUEST, 0x53, 0x02));
    assert_eq!(
        a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 0, 0]),
        GOOD
    );
    assert_eq!(a.code(&load), GOOD);
    assert_eq!(a.code(&[0; 6]), GOOD);
    assert_eq!(b.code(&[0; 6]), (key::UNIT_ATTENTION, 0x28, 0x00));
    // A lost nexus no longer prevents removal.
    assert_eq!(
        b.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1, 0]),
        GOOD
    );
    drop(b);
    assert_eq!(a.code(&eject), GOOD);
    let mut fixed = Client::new(&super::tests::unit(true, LunOptions::default()), "a");
    assert_eq!(fixed.code(&eject), FIELD);
}

/// RESERVE excludes other nexuses until it is released or reset, or its nexus is lost.
#[test]
fn reserve_excludes_others_until_it_ends() {
    let unit = unit(true, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let (reserve, release) = (
        [op::RESERVE_6, 0, 0, 0, 0, 0],
        [op::RELEASE_6, 0, 0, 0, 0, 0],
    );
    assert_eq!(a.code(&reserve), GOOD);
    assert_eq!(a.code(&reserve), GOOD);
    for cdb in [
        &[0; 6],
        &reserve,
        &[op::READ_6, 0, 0, 0, 1, 0],
        &[op::MODE_SENSE_6, 0, 0x3f, 0, 255, 0],
    ] {
        assert_eq!(b.code(cdb), CONFLICT, "{cdb:x?}");
    }
    assert_eq!(
        b.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]),
        CONFLICT
    );
    assert_eq!(b.code(&[op::INQUIRY, 0, 0, 0, 36, 0]), GOOD);
    assert_eq!(b.code(&release), GOOD);
    assert_eq!(b.code(&[0; 6]), CONFLICT);
    a.write(0, &[1; BLOCK]);
    assert_eq!(a.code(&release), GOOD);
    assert_eq!(b.code(&reserve), GOOD);
    drop(b);
    assert_eq!(a.code(&reserve), GOOD);
    let mut b = Client::new(&unit, "b");
    for reset in [Reset::LogicalUnit, Reset::Target] {
        assert_eq!(b.code(&[0; 6]), CONFLICT);
        let ticket = b.set.reset(reset);
        // The reset also waits until the other connection has aborted its tasks.
        assert!(!ticket.is_done());
        a.set.poll(&mut Vec::new());
        assert!(ticket.is_done());
        let ascq = if reset == Reset::Target { 2 } else { 3 };
        for c in [&mut a, &mut b] {
            assert_eq!(c.code(&[0; 6]), (key::UNIT_ATTENTION, 0x29, ascq));
            assert_eq!(c.code(&[0; 6]), GOOD);
        }
        assert_eq!(a.code(&reserve), GOOD);
    }
}

fn pr_out(action: u8, kind: u8, own: u64, new: u64, flags: u8) -> ([u8; 10], Vec<u8>) {
    let mut list = own.to_be_bytes().to_vec();
    list.extend_from_slice(&new.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
    (
        [
            op::PERSISTENT_RESERVE_OUT,
            action,
            kind,
            0,
            0,
            0,
            0,
            0,
            24,
            0,
        ],
        list,
    )
}

/// Persistent reservations through commands: which access each nexus has, which ones are notified, and what persists.
#[test]
fn persistent_reservations_are_enforced_reported_and_persist() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("lun");
    let options = || LunOptions {
        store: Some(Arc::new(FileStore::new(store.clone()))),
        ..LunOptions::default()
    };
    let first = unit(true, options());
    let (mut a, mut b) = (Client::new(&first, "a"), Client::new(&first, "b"));
    let do_out = |c: &mut Client, action, kind, own, new, flags| {
        let (cdb, list) = pr_out(action, kind, own, new, flags);
        c.code_with(&cdb, &list)
    };
    assert_eq!(do_out(&mut a, 1, 1, 0, 0, 0), CONFLICT);
    assert_eq!(do_out(&mut a, 0, 0, 0, 0xa, 1), GOOD);
    assert_eq!(do_out(&mut b, 0, 0, 0, 0xb, 1), GOOD);
    assert_eq!(do_out(&mut a, 1, 3, 0xa, 0, 0), GOOD);
    let read_in = |c: &mut Client, action| {
        c.good(
            &[op::PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, 1, 0, 0],
            &[],
        )
    };
    assert_eq!(
        read_in(&mut b, 0)[8..],
        [[0, 0, 0, 0, 0, 0, 0, 0xa], [0, 0, 0, 0, 0, 0, 0, 0xb]].concat()
    );
    assert_eq!(read_in(&mut b, 1)[21], 3);
    assert_eq!(read_in(&mut b, 2)[2..4], [0x0d, 0x91]);
    assert_eq!(
        be32(&read_in(&mut b, 3), 4) as usize,
        read_in(&mut b, 3).len() - 8
    );
    assert_eq!(b.code(&cdb10(op::READ_10, 0, 0, 1)), CONFLICT);
    assert_eq!(
        b.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]),
        CONFLICT
    );
    assert_eq!(b.code(&[0; 6]), GOOD);
    a.write(0, &[1; BLOCK]);

    // After a power loss, a new unit reads the saved reservations.
    let second = unit(true, options());
    let (mut a, mut b) = (Client::new(&second, "a"), Client::new(&second, "b"));
    assert_eq!(b.code(&cdb10(op::READ_10, 0, 0, 1)), CONFLICT);
    assert_eq!(a.code(&cdb10(op::READ_10, 0, 0, 1)), GOOD);
    assert_eq!(do_out(&mut b, 4, 1, 0xb, 0xa, 0), GOOD);
    assert_eq!(a.code(&[0; 6]), (key::UNIT_ATTENTION, 0x2a, 0x05));
    assert_eq!(
        a.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]),
        CONFLICT
    );
    assert_eq!(a.code(&cdb10(op::READ_10, 0, 0, 1)), GOOD);
    assert_eq!(do_out(&mut b, 3, 0, 0xb, 0, 0), GOOD);
    assert_eq!(
        a.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]),
        GOOD
    );
    drop((a, b, first, second));
    assert!(
        !Client::new(&unit(true, options()), "c")
            .set
            .unit()
            .options()
            .thin
    );
    // Without a store, APTPL is refused.
    let mut c = Client::new(&unit(true, LunOptions::default()), "c");
    assert_eq!(do_out(&mut c, 0, 0, 0, 1, 1), PARAMETER);
}

/// SANITIZE keeps the unit busy, outlives resets and connections, and leaves the requested contents.
#[test]
fn sanitize_outlives_resets_and_connections() {
    let slow = LunOptions {
        sanitize_bytes_per_second: Some(2 << 20),
        ..thin()
    };
    let unit = unit(false, slow);
    let mut c = Client::new(&unit, "a");
    c.write(0, &bytes(8, 1));
    // 4 MiB at 2 MiB/s: two seconds, during which the connection closes and reopens.
    let list = [1, 0, 0, 4, 0xaa, 0xbb, 0xcc, 0xdd];
    assert_eq!(
        c.code_with(&[op::SANITIZE, 0x81, 0, 0, 0, 0, 0, 0, 8, 0], &list),
        GOOD
    );
    let busy = (key::NOT_READY, 0x04, 0x1b);
    assert_eq!(c.code(&[0; 6]), busy);
    assert_eq!(c.code(&cdb10(op::READ_10, 0, 0, 1)), busy);
    assert_eq!(c.code(&[op::SANITIZE, 0x83]), busy);
    assert_eq!(c.code(&[op::INQUIRY, 0, 0, 0, 36, 0]), GOOD);
    assert!(c.set.reset(Reset::LogicalUnit).is_done());
    drop(c);
    let mut c = Client::new(&unit, "a");
    assert_eq!(c.code(&[0; 6]), busy);
    let end = Clock::Monotonic.now().after(Duration::from_secs(120));
    while c.code(&[0; 6]) == busy {
        assert!(Clock::Monotonic.now() < end, "sanitize does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        c.read(BLOCKS - 1, 1),
        [0xaa, 0xbb, 0xcc, 0xdd].repeat(BLOCK / 4)
    );
    // Without IMMED, the answer comes at the end.
    assert_eq!(c.code(&[op::SANITIZE, 0x02, 0, 0, 0, 0, 0, 0, 0, 0]), GOOD);
    assert_eq!(c.read(0, 8), [0; 8 * BLOCK]);
    let mut status = cdb16(op::SERVICE_ACTION_IN_16, op::SA_GET_LBA_STATUS, 0, 256);
    status[1] = op::SA_GET_LBA_STATUS;
    let list = c.good(&status, &[]);
    assert_eq!(
        (list.len(), be32(&list, 16), list[20]),
        (24, BLOCKS as u32, 1)
    );
    for (action, length, expected) in [
        (1u8, 4, FIELD),
        (1, 517, FIELD),
        (2, 8, FIELD),
        (0x1f, 0, GOOD),
        (0x1f, 8, FIELD),
        (4, 0, FIELD),
    ] {
        let cdb = [
            op::SANITIZE,
            action,
            0,
            0,
            0,
            0,
            0,
            (length >> 8) as u8,
            length as u8,
            0,
        ];
        assert_eq!(
            c.code_with(&cdb, &vec![0; length]),
            expected,
            "{action} {length}"
        );
    }
    assert_eq!(c.code(&[op::SANITIZE, 0x42]), FIELD);
    assert_eq!(c.code(&[op::SANITIZE, 0x02, 0, 1]), FIELD);
}

/// Truncating, extending or deleting a backing file changes the LUN, and every initiator is notified before it sees
/// the change.
#[test]
fn a_medium_that_is_resized_or_deleted_changes_the_lun() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("disk.img");
    let file = std::fs::File::create(&path).expect("a file");
    let blocks = |blocks: u64| file.set_len(blocks * BLOCK as u64).expect("its size");
    blocks(8192);
    let backend = brunt_block::open_url(&format!("file:{}?block=512&direct=no", path.display()));
    let unit =
        LogicalUnit::new(backend.expect("it opens"), LunOptions::default()).expect("a good unit");
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let changed = (key::UNIT_ATTENTION, 0x2a, 0x09);
    let last_lba = |c: &mut Client| {
        be32(
            &c.good(&[op::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            0,
        )
    };
    // A read beyond the new end detects the change; the read was within the capacity that the initiator knew.
    blocks(1024);
    assert_eq!(
        a.code(&cdb16(op::READ_16, 0, 4096, 8)),
        (key::MEDIUM_ERROR, 0x11, 0x00)
    );
    for c in [&mut a, &mut b] {
        assert_eq!(c.code(&cdb16(op::READ_16, 0, 0, 8)), changed);
        assert_eq!(last_lba(c), 1023);
        assert_eq!(c.code(&cdb16(op::READ_16, 0, 4096, 8)), RANGE);
    }
    let said: Vec<String> = unit.poll_medium().iter().map(ToString::to_string).collect();
    let path_text = path.display();
    assert_eq!(said[0], format!("{path_text} shrank from 4MiB to 512KiB"));
    assert!(
        said[1].starts_with(&format!(
            "{path_text}: 1 read failed, the first at 2097152: "
        )),
        "{said:?}"
    );
    // Without any commands, polling detects the change.
    blocks(16384);
    let said: Vec<String> = unit.poll_medium().iter().map(ToString::to_string).collect();
    assert_eq!(said, [format!("{path_text} grew from 512KiB to 8MiB")]);
    assert_eq!((a.code(&[0; 6]), last_lba(&mut a)), (changed, 16383));
    a.write(16376, &bytes(8, 1));
    assert_eq!(a.read(16376, 8), bytes(8, 1));
    assert_eq!(b.code(&[0; 6]), changed);
    std::fs::remove_file(&path).expect("it was there");
    assert_eq!(
        unit.poll_medium(),
        [DiskEvent::Lost {
            medium: path_text.to_string()
        }]
    );
    let not_ready = (key::NOT_READY, 0x04, 0x03);
    for cdb in [
        cdb16(op::READ_16, 0, 0, 8),
        cdb16(op::SERVICE_ACTION_IN_16, 0x10, 0, 0),
        [0; 16],
    ] {
        assert_eq!(b.code(&cdb), not_ready, "{cdb:02x?}");
    }
    assert_eq!(
        b.code_with(&cdb16(op::WRITE_16, 0, 0, 1), &bytes(1, 1)),
        not_ready
    );
    assert!(unit.poll_medium().is_empty());
}

/// A stopped unit without a tray is not ready for any nexus until it is started; powering on starts it.
#[test]
fn a_stopped_unit_is_not_ready() {
    let stopped = (key::NOT_READY, 0x04, 0x02);
    let disk = unit(true, thin());
    let (mut a, mut b) = (Client::new(&disk, "a"), Client::new(&disk, "b"));
    let (stop, start) = (
        [op::START_STOP_UNIT, 0, 0, 0, 0, 0],
        [op::START_STOP_UNIT, 0, 0, 0, 1, 0],
    );
    let _ = (a.code(&[0; 6]), b.code(&[0; 6]));
    assert_eq!(a.code(&stop), GOOD);
    assert_eq!((a.code(&[0; 6]), b.code(&[0; 6])), (stopped, stopped));
    let read = [op::READ_10, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(a.code(&read), stopped);
    assert_eq!(a.code(&[op::INQUIRY, 0, 0, 0, 36, 0]), GOOD);
    assert_eq!((b.code(&start), a.code(&[0; 6])), (GOOD, GOOD));
}

/// An initiator that requests only a short list gets its beginning (SPC-4, 6.33).
#[test]
fn a_list_of_units_is_truncated_to_the_allocation_length() {
    let mut a = Client::new(&unit(true, thin()), "a");
    let report = |room: u8| [op::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 0, room, 0, 0];
    let whole = a.good(&report(255), &[]);
    for room in [4, 7, 8] {
        assert_eq!(a.good(&report(room), &[]), whole[..usize::from(room)]);
    }
    assert_eq!(a.code(&report(0)), GOOD);
}

/// A nexus's reservation is released as soon as it logs out, before its connection is closed.
#[test]
fn a_logout_releases_reservations() {
    let disk = unit(true, thin());
    let (mut a, mut b) = (Client::new(&disk, "a"), Client::new(&disk, "b"));
    let _ = (a.code(&[0; 6]), b.code(&[0; 6]));
    assert_eq!(a.code(&[op::RESERVE_6, 0, 0, 0, 0, 0]), GOOD);
    assert_ne!(b.code(&[0; 6]), GOOD);
    a.set.log_out(false);
    assert_eq!(b.code(&[0; 6]), GOOD);
}
