//! Commands that move, compare, fill and copy blocks.

use super::*;

/// Written data reads back, with CDBs of every length.
#[test]
fn written_data_reads_back_with_cdbs_of_every_length() {
    both(&LunOptions::default(), |c| {
        c.good(&[op::WRITE_6, 0, 0, 1, 2, 0], &bytes(2, 1));
        c.good(&cdb10(op::WRITE_10, 0x18, 3, 2), &bytes(2, 2));
        c.good(&cdb12(op::WRITE_12, 0x08, 5, 2), &bytes(2, 3));
        c.good(&cdb16(op::WRITE_16, 0x08, 7, 2), &bytes(2, 4));
        let expected = [bytes(2, 1), bytes(2, 2), bytes(2, 3), bytes(2, 4)].concat();
        assert_eq!(c.read(1, 8), expected);
        assert_eq!(c.good(&cdb12(op::READ_12, 0, 1, 8), &[]), expected);
        assert_eq!(c.good(&cdb10(op::READ_10, 0x18, 1, 8), &[]), expected);
        assert_eq!(c.good(&[op::READ_6, 0, 0, 1, 8, 0], &[]), expected);
        assert_eq!(c.good(&[op::READ_6, 0, 0, 0, 0, 0], &[]).len(), 256 * BLOCK);
    });
}

/// Where data is compared, combined, repeated or written atomically, Data-Out with a length other than the CDB
/// describes is refused, and the medium stays unchanged.
#[test]
fn data_out_of_an_unexpected_length_is_refused() {
    both(&thin(), |c| {
        c.write(0, &bytes(8, 1));
        let mut compare_and_write = cdb16(op::COMPARE_AND_WRITE, 0, 0, 0);
        compare_and_write[13] = 2;
        let mut atomic = cdb16(op::WRITE_ATOMIC_16, 0, 0, 0);
        atomic[13] = 2;
        let check = |c: &mut Client, cdb: &[u8], blocks: usize| {
            // The first two blocks compare equal, so the rest would be written if the length were not checked.
            let data = [bytes(2, 1), bytes(6, 9)].concat();
            for len in [
                0,
                200,
                BLOCK * (blocks - 1),
                BLOCK * blocks - 1,
                BLOCK * (blocks + 1),
            ] {
                if len != blocks * BLOCK {
                    assert_eq!(
                        c.code_with(cdb, &data[..len]),
                        FIELD,
                        "{:#x}, {len} bytes",
                        cdb[0]
                    );
                }
            }
            assert_eq!(c.read(0, 8), bytes(8, 1), "{:#x}", cdb[0]);
        };
        check(c, &compare_and_write, 4);
        check(c, &atomic, 2);
        check(c, &cdb16(op::ORWRITE_16, 0, 0, 2), 2);
        check(c, &cdb10(op::WRITE_SAME_10, 0, 0, 2), 1);
        check(c, &cdb16(op::WRITE_SAME_16, 0x08, 0, 2), 1);
        check(c, &cdb10(op::VERIFY_10, 0x02, 0, 2), 2);
        check(c, &cdb16(op::VERIFY_16, 0x06, 0, 2), 1);
    });
}

/// Bounds, protection fields and lengths are checked before anything happens.
#[test]
fn bounds_and_lengths_are_checked_before_anything_happens() {
    both(&thin(), |c| {
        let last = BLOCKS as u32 - 1;
        for code in [
            op::READ_10,
            op::WRITE_10,
            op::VERIFY_10,
            op::WRITE_AND_VERIFY_10,
            op::PRE_FETCH_10,
        ] {
            assert_eq!(c.code(&cdb10(code, 0, last, 2)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb10(code, 0, last + 2, 0)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb10(code, 0, last + 1, 0)), GOOD, "{code:#x}");
            if code != op::PRE_FETCH_10 {
                assert_eq!(c.code(&cdb10(code, 0x20, 0, 1)), FIELD, "{code:#x}");
            }
        }
        for code in [
            op::READ_16,
            op::WRITE_16,
            op::VERIFY_16,
            op::ORWRITE_16,
            op::WRITE_SAME_16,
        ] {
            assert_eq!(c.code(&cdb16(code, 0, u64::MAX, 1)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb16(code, 0, BLOCKS, 1)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb16(code, 0xe0, 0, 1)), FIELD, "{code:#x}");
        }
        // NACA; a transfer that exceeds the maximum length is refused only after the range check.
        assert_eq!(c.code(&[op::READ_10, 0, 0, 0, 0, 0, 0, 0, 1, 4]), FIELD);
        assert_eq!(c.code(&[op::TEST_UNIT_READY, 0, 0, 0, 0, 4]), FIELD);
        assert_eq!(c.code(&cdb12(op::READ_12, 0, 0, u32::MAX)), RANGE);
        assert_eq!(c.code(&[0x7f; 32]), OPCODE);
        assert_eq!(c.code(&[op::SERVICE_ACTION_IN_16, 0x1f]), FIELD);
    });
}

/// A write with less data than its CDB describes writes whole blocks or nothing.
#[test]
fn a_write_with_too_little_data_writes_whole_blocks_or_nothing() {
    both(&LunOptions::default(), |c| {
        c.write(0, &bytes(2, 9));
        c.good(&cdb10(op::WRITE_10, 0, 0, 2), &bytes(1, 7));
        assert_eq!(
            c.read(0, 2),
            [&bytes(1, 7)[..], &bytes(2, 9)[BLOCK..]].concat()
        );
        assert_eq!(
            c.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[1; 200]),
            LENGTH
        );
        assert_eq!(c.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[]), GOOD);
        assert_eq!(c.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[8; 1024]), GOOD);
        assert_eq!(
            c.read(0, 2),
            [&[8; BLOCK][..], &bytes(2, 9)[BLOCK..]].concat()
        );
        let outcome = c.send(&cdb10(op::WRITE_10, 0, 0, 2), &[8; BLOCK]);
        assert_eq!(outcome.data_out_len, 1024);
    });
}

/// VERIFY compares with nothing, with data, or with one block, and reports where the first difference is.
#[test]
fn verify_reports_where_data_differs() {
    both(&LunOptions::default(), |c| {
        // Longer than one chunk of the job.
        let data = bytes(4000, 3);
        c.write(8, &data[..2000 * BLOCK]);
        c.write(2008, &data[2000 * BLOCK..]);
        assert_eq!(c.code(&cdb16(op::VERIFY_16, 0, 8, 4000)), GOOD);
        assert_eq!(
            c.code_with(&cdb16(op::VERIFY_16, 0x02, 8, 4000), &data),
            GOOD
        );
        let mut wrong = data.clone();
        wrong[1_500_000] ^= 1;
        let outcome = c.send(&cdb16(op::VERIFY_16, 0x02, 8, 4000), &wrong);
        let sense = outcome.sense.unwrap();
        assert_eq!(
            (sense.key, sense.asc, sense.information),
            (key::MISCOMPARE, 0x1d, Some(1_500_000))
        );
        assert_eq!(c.code_with(&cdb16(op::VERIFY_16, 0x04, 8, 1), &data), FIELD);
        c.write(0, &[5; 4 * BLOCK]);
        assert_eq!(
            c.code_with(&cdb10(op::VERIFY_10, 0x06, 0, 4), &[5; BLOCK]),
            GOOD
        );
        c.write(3, &[6; BLOCK]);
        let outcome = c.send(&cdb10(op::VERIFY_10, 0x06, 0, 4), &[5; BLOCK]);
        assert_eq!(outcome.sense.unwrap().information, Some(3 * BLOCK as u64));
        assert_eq!(
            c.code_with(&cdb12(op::WRITE_AND_VERIFY_12, 0x02, 0, 2), &bytes(2, 1)),
            GOOD
        );
        assert_eq!(
            c.code_with(&cdb10(op::WRITE_AND_VERIFY_10, 0x04, 0, 2), &bytes(2, 1)),
            FIELD
        );
        assert_eq!(c.read(0, 2), bytes(2, 1));
    });
}

/// COMPARE AND WRITE writes only if the data compares equal; ORWRITE ORs; WRITE ATOMIC respects its limits.
#[test]
fn compare_and_write_writes_only_if_the_data_compares_equal() {
    both(&LunOptions::default(), |c| {
        let mut caw = cdb16(op::COMPARE_AND_WRITE, 0, 4, 0);
        caw[13] = 2;
        c.write(4, &bytes(2, 1));
        assert_eq!(
            c.code_with(&caw, &[bytes(2, 1), bytes(2, 2)].concat()),
            GOOD
        );
        assert_eq!(c.read(4, 2), bytes(2, 2));
        let mut compare = bytes(2, 2);
        compare[700] ^= 0xff;
        let outcome = c.send(&caw, &[compare, bytes(2, 3)].concat());
        let sense = outcome.sense.unwrap();
        assert_eq!(
            (sense.key, sense.asc, sense.information),
            (key::MISCOMPARE, 0x1d, Some(700))
        );
        assert_eq!(c.read(4, 2), bytes(2, 2));
        assert_eq!(c.code_with(&caw, &bytes(3, 2)), FIELD);
        assert_eq!(c.code_with(&caw, &bytes(5, 2)), FIELD);

        c.write(0, &[0x0f; 3000 * BLOCK]);
        c.good(&cdb16(op::ORWRITE_16, 0, 0, 3000), &[0xa0; 3000 * BLOCK]);
        assert!(c.read(0, 3000).iter().all(|byte| *byte == 0xaf));

        let mut atomic = cdb16(op::WRITE_ATOMIC_16, 0, 8, 0);
        atomic[13] = 8;
        assert_eq!(c.code_with(&atomic, &bytes(8, 6)), GOOD);
        assert_eq!(c.read(8, 8), bytes(8, 6));
        assert_eq!(c.code_with(&atomic, &bytes(7, 6)), FIELD);
        atomic[13] = 4;
        assert_eq!(c.code_with(&atomic, &bytes(4, 6)), FIELD);
        atomic[13] = 8;
        atomic[9] = 4;
        assert_eq!(c.code_with(&atomic, &bytes(8, 6)), FIELD);
        atomic[2] = 1;
        assert_eq!(c.code_with(&atomic, &bytes(8, 6)), RANGE);
    });
}

/// All forms of WRITE SAME, on thin and thick units; UNMAP only on thin units; GET LBA STATUS reports the result.
#[test]
fn write_same_and_unmap_fill_and_unmap_their_ranges() {
    both(&thin(), |c| {
        c.write(0, &[1; 64 * BLOCK]);
        c.good(&cdb10(op::WRITE_SAME_10, 0, 8, 4), &bytes(1, 5));
        assert_eq!(
            c.read(7, 6),
            [vec![1; BLOCK], bytes(1, 5).repeat(4), vec![1; BLOCK]].concat()
        );
        assert_eq!(
            c.code_with(&cdb10(op::WRITE_SAME_10, 0, 8, 4), &bytes(2, 5)),
            FIELD
        );
        assert_eq!(
            c.code_with(&cdb10(op::WRITE_SAME_10, 0x18, 8, 4), &bytes(1, 5)),
            FIELD
        );
        assert_eq!(
            c.code_with(&cdb10(op::WRITE_SAME_10, 0x01, 8, 4), &[]),
            FIELD
        );
        // Unaligned unmapping doesn't affect neighbouring blocks.
        c.good(&cdb16(op::WRITE_SAME_16, 0x08, 9, 2), &[0; BLOCK]);
        assert_eq!(
            c.read(8, 4),
            [bytes(1, 5), vec![0; 2 * BLOCK], bytes(1, 5)].concat()
        );
        // A block that isn't zero can't be unmapped, so it is written.
        c.good(&cdb16(op::WRITE_SAME_16, 0x08, 9, 2), &bytes(1, 6));
        assert_eq!(c.read(9, 2), bytes(1, 6).repeat(2));
        c.good(&cdb16(op::WRITE_SAME_16, 0x01, 9, 1), &[]);
        assert_eq!(c.read(9, 1), [0; BLOCK]);

        let unmap = |extents: &[(u64, u32)]| {
            let mut list = vec![0, 0, 0, (extents.len() * 16) as u8, 0, 0, 0, 0];
            for (lba, blocks) in extents {
                list.extend_from_slice(&lba.to_be_bytes());
                list.extend_from_slice(&blocks.to_be_bytes());
                list.extend_from_slice(&[0; 4]);
            }
            let mut cdb = [0; 10];
            cdb[0] = op::UNMAP;
            cdb[7..9].copy_from_slice(&(list.len() as u16).to_be_bytes());
            (cdb, list)
        };
        let check = |c: &mut Client, extents: &[(u64, u32)], expected| {
            let (cdb, list) = unmap(extents);
            assert_eq!(c.code_with(&cdb, &list), expected, "{extents:?}");
        };
        check(c, &[(0, 8), (16, 8)], GOOD);
        check(c, &[(BLOCKS, 0), (0, 0)], GOOD);
        check(c, &[(BLOCKS - 1, 2)], RANGE);
        check(c, &[(u64::MAX, 2)], RANGE);
        assert_eq!(c.read(0, 9), [vec![0; 8 * BLOCK], bytes(1, 5)].concat());
        assert_eq!(c.code(&[op::UNMAP, 1, 0, 0, 0, 0, 0, 0, 24, 0]), FIELD);
        assert_eq!(
            c.code_with(&unmap(&[]).0, &[0; 4]),
            (key::ILLEGAL_REQUEST, 0x1a, 0)
        );

        let status = |lba: u64, length: u32| {
            let mut cdb = cdb16(op::SERVICE_ACTION_IN_16, op::SA_GET_LBA_STATUS, lba, length);
            cdb[0] = op::SERVICE_ACTION_IN_16;
            cdb
        };
        let list = c.good(&status(2, 8 + 3 * 16), &[]);
        let runs: Vec<(u64, u32, u8)> = list[8..]
            .chunks(16)
            .map(|d| (be64(d, 0), be32(d, 8), d[12]))
            .collect();
        assert_eq!(runs, [(2, 6, 1), (8, 8, 0), (16, 8, 1)]);
        assert_eq!(c.good(&status(2, 24), &[]).len(), 24);
        assert_eq!(c.code(&status(BLOCKS, 24)), RANGE);
    });
    both(&LunOptions::default(), |c| {
        assert_eq!(c.code(&[op::UNMAP, 0, 0, 0, 0, 0, 0, 0, 24, 0]), OPCODE);
        assert_eq!(
            c.code_with(&cdb16(op::WRITE_SAME_16, 0x08, 0, 1), &[0; BLOCK]),
            FIELD
        );
        c.write(0, &[1; 2 * BLOCK]);
        c.good(&cdb16(op::WRITE_SAME_16, 0, 0, 0), &[0; BLOCK]);
        assert_eq!(c.read(0, 2), [0; 2 * BLOCK]);
    });
}

/// EXTENDED COPY within a unit and between two units, its results, and each of its errors.
#[test]
fn extended_copy_copies_within_and_between_units() {
    let named = |serial: &str| LunOptions {
        serial: serial.to_string(),
        uuid: Some([serial.as_bytes()[0]; 16]),
        ..LunOptions::default()
    };
    let map = LunMap::new(vec![
        (0, unit(true, named("one"))),
        (1, unit(false, named("two"))),
    ]);
    let mut c = Client::new(&map.get(0).unwrap(), "a");
    let mut other = Client::new(&map.get(1).unwrap(), "a");
    let target = |unit: u16| {
        let mut d = vec![0xe4, 0, 0, 0, 0x01, 0x03, 0, 8];
        d.extend_from_slice(&map.get(unit).unwrap().naa());
        d.resize(32, 0);
        d
    };
    let segment = |source: u8, destination: u8, blocks: u16, from: u64, to: u64| {
        let mut d = vec![0x02, 0, 0, 24, 0, source, 0, destination, 0, 0];
        d.extend_from_slice(&blocks.to_be_bytes());
        d.extend_from_slice(&from.to_be_bytes());
        d.extend_from_slice(&to.to_be_bytes());
        d
    };
    let list = |targets: &[Vec<u8>], segments: &[Vec<u8>]| {
        let (targets, segments) = (targets.concat(), segments.concat());
        let mut list = vec![5, 0];
        list.extend_from_slice(&(targets.len() as u16).to_be_bytes());
        list.extend_from_slice(&[0; 4]);
        list.extend_from_slice(&(segments.len() as u32).to_be_bytes());
        list.extend_from_slice(&[0; 4]);
        [list, targets, segments].concat()
    };
    let send = |c: &mut Client, list: &[u8]| {
        let mut cdb = cdb16(op::EXTENDED_COPY, 0, 0, list.len() as u32);
        cdb[1] = 0;
        c.code_with(&cdb, list)
    };
    c.write(0, &bytes(3000, 1));
    let copy = list(
        &[target(0), target(1)],
        &[segment(0, 0, 3000, 0, 4000), segment(0, 1, 10, 0, 7)],
    );
    assert_eq!(send(&mut c, &copy), GOOD);
    assert_eq!(c.read(4000, 3000), bytes(3000, 1));
    assert_eq!(other.read(7, 10), bytes(3000, 1)[..10 * BLOCK]);
    let results = |list: u8| {
        let mut cdb = cdb16(op::RECEIVE_COPY_RESULTS, 0, 0, 255);
        cdb[2] = list;
        cdb
    };
    let status = c.good(&results(5), &[]);
    assert_eq!(
        (status[4], be16(&status, 5), be32(&status, 8)),
        (1, 2, 3010 * 512)
    );
    assert_eq!(c.code(&results(6)), FIELD);
    // The destination is identified by its UUID.
    let mut by_uuid = vec![0xe4, 0, 0, 0, 0x01, 0x0a, 0, 18, 0x10, 0];
    by_uuid.extend_from_slice(b"tttttttttttttttt");
    by_uuid.resize(32, 0);
    let by_uuid = list(&[target(0), by_uuid], &[segment(0, 1, 10, 10, 20)]);
    assert_eq!(send(&mut c, &by_uuid), GOOD);
    assert_eq!(other.read(20, 10), bytes(3000, 1)[10 * BLOCK..20 * BLOCK]);
    // A segment whose length is in bytes, with byte offsets.
    let mut by_bytes = vec![0x0a, 0, 0, 28, 0, 0, 0, 0, 0, 0, 4, 0];
    by_bytes.extend_from_slice(&[
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x1c, 0, 2, 0, 0, 0,
    ]);
    assert_eq!(send(&mut c, &list(&[target(0)], &[by_bytes])), GOOD);
    assert_eq!(c.read(0x1c00, 2), bytes(3000, 1)[2 * BLOCK..4 * BLOCK]);

    let aborted = (key::COPY_ABORTED, 0x0d, 0x02);
    assert_eq!(
        send(&mut c, &list(&[target(0)], &[segment(0, 1, 1, 0, 1)])),
        aborted
    );
    assert_eq!(
        send(
            &mut c,
            &list(&[target(0)], &[segment(0, 0, 2, 0, BLOCKS - 1)])
        ),
        aborted
    );
    assert_eq!(
        send(
            &mut c,
            &list(&[target(0)], &[segment(0, 0, 2, u64::MAX, 1)])
        ),
        aborted
    );
    let mut stranger = target(0);
    stranger[15] ^= 1;
    assert_eq!(
        send(&mut c, &list(&[stranger], &[segment(0, 0, 1, 0, 1)])),
        aborted
    );
    assert_eq!(send(&mut c, &[]), GOOD);
    for end in 1..copy.len() {
        assert_eq!(
            send(&mut c, &copy[..end]),
            (key::ILLEGAL_REQUEST, 0x1a, 0x00),
            "cut at {end}"
        );
    }
}
