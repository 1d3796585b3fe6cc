//! Several commands and several connections at once.

use super::*;

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET and resets end each task once, including tasks of other connections,
/// and notify the right nexuses.
#[test]
fn task_management_ends_each_task_once_on_every_connection() {
    let unit = unit(false, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let write = cdb10(op::WRITE_10, 0, 0, 1);
    let (tag, begun) = a.begin(&write, BLOCK, TaskAttribute::Simple);
    assert!(matches!(
        begun,
        Begin::Wants {
            len: 512,
            direct: None
        }
    ));
    assert!(a.set.abort_task(tag) && !a.set.abort_task(tag + 1));
    let done = a.wait();
    assert_eq!(
        (done[0].tag, done[0].status, done.len()),
        (tag, ScsiStatus::TaskAborted, 1)
    );
    assert!(a.set.start(tag, Buf::zeroed(BLOCK), BLOCK as u32).is_none());

    for clear in [false, true] {
        let _ = a.begin(&write, BLOCK, TaskAttribute::Simple);
        let _ = a.begin(&cdb10(op::READ_10, 0, 0, 1), 0, TaskAttribute::Simple);
        let ticket = if clear {
            b.set.clear_task_set()
        } else {
            b.set.reset(Reset::LogicalUnit)
        };
        assert!(!ticket.is_done());
        let mut done = a.wait();
        while done.len() < 2 {
            done.extend(a.wait());
        }
        assert!(
            done.iter()
                .all(|outcome| outcome.status == ScsiStatus::TaskAborted)
        );
        assert!(ticket.is_done());
        let expected = if clear { (0x2f, 0x00) } else { (0x29, 0x03) };
        assert_eq!(
            a.code(&[0; 6]),
            (key::UNIT_ATTENTION, expected.0, expected.1)
        );
        assert_eq!(a.code(&[0; 6]), GOOD);
        if !clear {
            assert_eq!(b.code(&[0; 6]).1, 0x29);
        }
        assert_eq!(b.code(&[0; 6]), GOOD);
    }
    // Closing a connection completes its part of the function.
    let _ = a.begin(&write, BLOCK, TaskAttribute::Simple);
    let ticket = b.set.clear_task_set();
    drop(a);
    assert!(ticket.is_done());
}

/// An ORDERED command waits for older commands and delays younger ones.
#[test]
fn an_ordered_command_waits_for_older_ones_and_delays_younger_ones() {
    for inline in [true, false] {
        let mut c = Client::new(&unit(inline, LunOptions::default()), "a");
        let (w1, _) = c.begin(&cdb10(op::WRITE_10, 0, 0, 1), BLOCK, TaskAttribute::Simple);
        let (w2, _) = c.begin(&cdb10(op::WRITE_10, 0, 0, 1), BLOCK, TaskAttribute::Ordered);
        let (read, begun) = c.begin(&cdb10(op::READ_10, 0, 0, 1), 0, TaskAttribute::Simple);
        assert!(matches!(begun, Begin::Pending));
        let full = |byte: u8| {
            let mut buf = Buf::zeroed(BLOCK);
            buf.fill(byte);
            buf
        };
        assert!(c.set.start(w2, full(2), BLOCK as u32).is_none());
        let mut done = Vec::new();
        c.set.poll(&mut done);
        assert!(done.is_empty(), "nothing may pass the older write");
        done.extend(c.set.start(w1, full(1), BLOCK as u32));
        while done.len() < 3 {
            done.extend(c.wait());
        }
        assert_eq!(
            done.iter().map(|outcome| outcome.tag).collect::<Vec<_>>(),
            [w1, w2, read]
        );
        assert!(matches!(&done[2].data_in, DataIn::Buf(buf, 512) if buf[0] == 2));
        assert_eq!(c.set.outstanding(), 0);
    }
}

/// A COMPARE AND WRITE waits for a write that is being received into the medium.
#[test]
fn a_compare_and_write_waits_for_a_write_of_another_connection() {
    let unit = unit(true, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let (tag, begun) = a.begin(&cdb10(op::WRITE_10, 0, 0, 1), BLOCK, TaskAttribute::Simple);
    assert!(matches!(
        begun,
        Begin::Wants {
            len: 512,
            direct: Some(0)
        }
    ));
    let mut caw = cdb16(op::COMPARE_AND_WRITE, 0, 0, 0);
    caw[13] = 1;
    let (caw_tag, begun) = b.begin(&caw, 2 * BLOCK, TaskAttribute::Simple);
    assert!(matches!(begun, Begin::Wants { len: 1024, .. }));
    let mut both = Buf::zeroed(2 * BLOCK);
    both[..BLOCK].fill(7);
    both[BLOCK..].fill(8);
    assert!(b.set.start(caw_tag, both, 1024).is_none());
    let mut done = Vec::new();
    b.set.poll(&mut done);
    assert!(done.is_empty() && b.set.deadline() < Nanos::MAX);
    if let Inline::Memory(memory) = unit.inline() {
        memory.write(0, &[7; BLOCK]);
    }
    assert_eq!(
        a.set.start_direct(tag, BLOCK as u32).unwrap().status,
        ScsiStatus::Good
    );
    assert_eq!(b.wait()[0].status, ScsiStatus::Good);
    assert_eq!(a.read(0, 1), [8; BLOCK]);
}

/// A full task set is reported, and accepts commands again afterwards.
#[test]
fn a_full_task_set_is_reported_and_accepts_commands_later() {
    let mut c = Client::new(&unit(false, LunOptions::default()), "a");
    let write = cdb10(op::WRITE_10, 0, 0, 1);
    let tags: Vec<u64> = (0..64)
        .map(|_| c.begin(&write, BLOCK, TaskAttribute::Simple).0)
        .collect();
    assert_eq!(
        c.code(&cdb10(op::READ_10, 0, 0, 1)),
        (0xff, ScsiStatus::TaskSetFull.to_byte(), 0)
    );
    for tag in tags {
        assert!(c.set.start(tag, Buf::zeroed(BLOCK), BLOCK as u32).is_none());
    }
    let mut done = 0;
    while done < 64 {
        done += c.wait().len();
    }
    assert_eq!(c.read(0, 1), [0; BLOCK]);
}

/// No CDB and no parameter list makes a unit panic, whatever its bytes and lengths.
#[test]
fn no_cdb_or_parameter_list_makes_a_unit_panic() {
    let mut random = brunt_core::random::Random::new(20_261_121);
    let options = LunOptions {
        removable: true,
        ..thin()
    };
    let mut c = Client::new(&unit(true, options), "a");
    for round in 0..20_000u32 {
        let row = &OPCODES[random.below(OPCODES.len() as u64) as usize];
        // SANITIZE would block the medium for the other commands.
        if row.opcode == op::SANITIZE {
            continue;
        }
        let mut cdb = [0; 16];
        random.fill(&mut cdb);
        cdb[0] = if round % 8 == 0 { cdb[0] } else { row.opcode };
        if cdb[0] == op::SANITIZE {
            continue;
        }
        if round % 3 != 0 {
            // Mostly small numbers, to get past the first checks.
            cdb[1] &= 0x1f;
            cdb[2..].iter_mut().for_each(|byte| *byte &= 0x13);
            cdb[2..8].fill(0);
        }
        let mut data = vec![0; random.below(2048) as usize];
        random.fill(&mut data);
        let length = random.below(17) as usize;
        let outcome = c.send(&cdb[..if round % 5 == 0 { length } else { 16 }], &data);
        if outcome.status == ScsiStatus::CheckCondition {
            assert!(outcome.sense.is_some());
        }
    }
    assert_eq!(c.set.outstanding(), 0);
}
