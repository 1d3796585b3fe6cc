//! Command order, invalid PDUs and task management.

use super::*;

/// Commands run in CmdSN order; numbers outside the window and duplicates have no effect.
#[test]
fn commands_run_in_cmd_sn_order() {
    let mut bench = Bench::new(|_| ());
    let first = bench.command(0x00, 0x80, 0, 0, 0);
    let write = bench.command(0x2a, WRITE, 512, 512, 0);
    let read = bench.command(0x28, READ, 512, 512, 0);
    assert!(bench.pdu(read, &[], true).is_empty());
    assert!(bench.pdu(write, &[7; 512], true).is_empty());
    assert!(bench.pdu(write, &[8; 512], true).is_empty(), "a duplicate");
    let sent = bench.pdu(first, &[], true);
    let kinds: Vec<Opcode> = sent.iter().map(|(bhs, _)| bhs.kind()).collect();
    assert_eq!(
        kinds,
        [Opcode::ScsiResponse, Opcode::ScsiResponse, Opcode::DataIn]
    );
    assert_eq!(sent[2].1, [7; 512]);
    for cmd_sn in [99, 103 + crate::target_node::session::WINDOW_COMMANDS_MAX] {
        let mut command = bench.command(0x00, 0x80, 0, 0, 0);
        command.cmd_sn = cmd_sn.into();
        assert!(bench.pdu(command, &[], true).is_empty());
    }
    assert_eq!(bench.connection.counters().ignored, 3);
}

/// Invalid PDUs get the Reject that RFC 7143, 11.17.1 requires.
#[test]
fn invalid_pdus_are_rejected_with_the_reason_of_the_rfc() {
    let check = |bhs: Bhs, reason: u8| {
        let mut bench = Bench::new(|_| ());
        let sent = bench.pdu(bhs, &[], true);
        assert_eq!(sent[0].0.kind(), Opcode::Reject, "{bhs:?}");
        assert_eq!(Reject::view(&sent[0].0).reason, reason);
        assert_eq!(sent[0].1, bhs.as_bytes());
    };
    check(SnackRequest::default().into(), code::reject::SNACK_REJECT);
    check(
        brunt_wire::iscsi::pdu::LoginRequest::default().into(),
        code::reject::PROTOCOL_ERROR,
    );
    check(NopIn::default().into(), code::reject::COMMAND_NOT_SUPPORTED);
    let mut bench = Bench::new(|_| ());
    let command = bench.command(0x2a, WRITE, 512, 512, 0);
    bench.pdu(command, &[], true);
    let mut again = bench.command(0x00, 0x80, 0, 0, 0);
    again.initiator_task_tag = command.initiator_task_tag;
    let sent = bench.pdu(again, &[], true);
    assert_eq!(
        Reject::view(&sent[0].0).reason,
        code::reject::TASK_IN_PROGRESS
    );
}

/// Task management responds as in 11.6.1, ends the right tasks, and waits for tasks that are still at the device.
#[test]
fn task_management_ends_the_right_tasks_and_waits_for_the_device() {
    use code::task_management as tm;
    let code_of = |sent: &[(Bhs, Vec<u8>)]| TaskManagementResponse::view(&sent[0].0).response;
    let mut bench = Bench::new(|_| ());
    assert_eq!(
        code_of(&bench.manage(tm::ABORT_TASK, 55, 0)),
        tm::TASK_DOES_NOT_EXIST
    );
    assert_eq!(
        code_of(&bench.manage(tm::LOGICAL_UNIT_RESET, 0, 9)),
        tm::LUN_DOES_NOT_EXIST
    );
    assert_eq!(
        code_of(&bench.manage(tm::TASK_REASSIGN, 0, 0)),
        tm::REASSIGNMENT_NOT_SUPPORTED
    );
    assert_eq!(
        code_of(&bench.manage(tm::CLEAR_ACA, 0, 0)),
        tm::NOT_SUPPORTED
    );
    assert_eq!(code_of(&bench.manage(99, 0, 0)), tm::NOT_SUPPORTED);
    // A write that waits for its data.
    let command = bench.command(0x2a, WRITE, 16_384, 16_384, 0);
    let itt = command.initiator_task_tag.get();
    let sent = bench.pdu(command, &[], true);
    let ttt = R2t::view(&sent[0].0).target_transfer_tag.get();
    assert_eq!(
        code_of(&bench.manage(tm::ABORT_TASK, itt, 0)),
        tm::FUNCTION_COMPLETE
    );
    assert!(
        bench.data_out(itt, ttt, 0, 0, &[1; 8192], false).is_empty(),
        "late data is dropped"
    );
    // A write that is at the device.
    let command = bench.command(0x2b, WRITE, 512, 512, 0);
    assert!(bench.pdu(command, &[1; 512], true).is_empty());
    let itt = command.initiator_task_tag.get();
    assert!(
        bench.manage(tm::ABORT_TASK, itt, 0).is_empty(),
        "the task is not gone"
    );
    let tag = bench.io.stuck[0];
    let Bench {
        connection: c,
        window,
        io,
        ..
    } = &mut bench;
    let cx = &mut ConnectionContext { window, io };
    c.on_outcome(Fake::done(tag, DataIn::None, 512), cx);
    c.check_task_management(cx);
    let sent = std::mem::take(&mut bench.io.sent);
    assert_eq!(sent.len(), 1, "an aborted task is not answered");
    assert_eq!(code_of(&sent), tm::FUNCTION_COMPLETE);
    assert_eq!(bench.connection.outstanding(), 0);
    // A reset: each task ends with its own outcome, and the function is answered when all connections are done.
    let command = bench.command(0x2a, WRITE, 512, 512, 0);
    bench.pdu(command, &[], true);
    bench.io.is_managed.set(false);
    assert!(bench.manage(tm::LOGICAL_UNIT_RESET, 0, 0).is_empty());
    let tag = *bench.io.wants.keys().next().unwrap();
    let Bench {
        connection: c,
        window,
        io,
        ..
    } = &mut bench;
    let cx = &mut ConnectionContext { window, io };
    let aborted = CommandOutcome {
        status: ScsiStatus::TaskAborted,
        ..Fake::done(tag, DataIn::None, 0)
    };
    c.on_outcome(aborted, cx);
    c.check_task_management(cx);
    assert!(cx.io.sent.is_empty());
    cx.io.is_managed.set(true);
    c.check_task_management(cx);
    assert_eq!(
        code_of(&std::mem::take(&mut bench.io.sent)),
        tm::FUNCTION_COMPLETE
    );
    assert_eq!(bench.io.managed, [tm::LOGICAL_UNIT_RESET]);
    assert_eq!(bench.connection.outstanding(), 0);
    let sent = bench.manage(tm::TARGET_COLD_RESET, 0, 0);
    assert_eq!(code_of(&sent), tm::FUNCTION_COMPLETE);
    assert!(bench.connection.is_closing() && bench.io.closed_elsewhere);
}

/// A task that hasn't arrived yet can be aborted; its number counts as used.
#[test]
fn a_task_can_be_aborted_before_it_arrives() {
    let mut bench = Bench::new(|_| ());
    let pdu = TaskManagementRequest {
        opcode: 0x02 | OPCODE_IMMEDIATE,
        function: 0x81,
        initiator_task_tag: 0x9000.into(),
        referenced_task_tag: 1.into(),
        ref_cmd_sn: 100.into(),
        cmd_sn: 101.into(),
        ..TaskManagementRequest::default()
    };
    let sent = bench.pdu(pdu, &[], true);
    assert_eq!(TaskManagementResponse::view(&sent[0].0).response, 0);
    let late = bench.command(0x00, 0x80, 0, 0, 0);
    assert!(bench.pdu(late, &[], true).is_empty());
    let next = bench.command(0x00, 0x80, 0, 0, 0);
    assert_eq!(bench.pdu(next, &[], true).len(), 1);
}

/// A function that references its own CmdSN or a later one aborts nothing and drops no command (RFC 7143, 11.6.1).
#[test]
fn an_abort_of_a_later_command_drops_no_command() {
    let mut bench = Bench::new(|_| ());
    for ref_cmd_sn in [100, 101, 103] {
        let pdu = TaskManagementRequest {
            opcode: 0x02 | OPCODE_IMMEDIATE,
            function: 0x81,
            initiator_task_tag: 0x9000.into(),
            referenced_task_tag: 0x4444.into(),
            ref_cmd_sn: ref_cmd_sn.into(),
            cmd_sn: 100.into(),
            ..TaskManagementRequest::default()
        };
        let sent = bench.pdu(pdu, &[], true);
        let answer = TaskManagementResponse::view(&sent[0].0).response;
        assert_eq!(
            answer,
            code::task_management::TASK_DOES_NOT_EXIST,
            "{ref_cmd_sn}"
        );
    }
    for _ in 0..5 {
        let command = bench.command(0x00, 0x80, 0, 0, 0);
        assert_eq!(bench.pdu(command, &[], true).len(), 1);
    }
}

/// For any header bytes, the connection responds, ignores them or ends; it never panics, and its task count stays
/// correct.
#[test]
fn no_header_makes_the_connection_panic() {
    let mut random = Random::new(3);
    for round in 0..500 {
        let mut bench = Bench::new(|_| ());
        bench.io.inline = round % 2 == 0;
        for _ in 0..60 {
            let op = [0x00, 0x28, 0x2a, 0x2b][random.below(4) as usize];
            let flags = [READ, WRITE, WRITE_MORE, 0x80][random.below(4) as usize];
            let mut bhs: Bhs = match random.below(4) {
                0 => {
                    let pdu = DataOutPdu {
                        flags: random.next_u64() as u8,
                        initiator_task_tag: (random.below(8) as u32).into(),
                        target_transfer_tag: if random.chance(0.5) {
                            RESERVED_TAG.into()
                        } else {
                            (random.below(8) as u32).into()
                        },
                        data_sn: (random.below(2) as u32).into(),
                        buffer_offset: (random.below(3) as u32 * 512).into(),
                        ..DataOutPdu::default()
                    };
                    pdu.into()
                }
                _ => {
                    let expected = random.below(3) as u32 * 4096;
                    let len = random.below(3) as u32 * 4096;
                    bench.command(op, flags, expected, len, 0).into()
                }
            };
            if random.chance(0.3) {
                let at = random.below(32) as usize;
                if !(5..8).contains(&at) && at != 4 {
                    bhs.as_mut_bytes()[at] = random.next_u64() as u8;
                }
            }
            let data = vec![0; random.below(3) as usize * 512];
            bench.pdu(bhs, &data, random.chance(0.95));
        }
        let Bench {
            connection,
            window,
            io,
            ..
        } = &mut bench;
        connection.on_end(&mut ConnectionContext { window, io });
        assert_eq!(
            (
                connection.outstanding(),
                connection.tasks.buffered_bytes(),
                connection.tasks.reading_bytes()
            ),
            (0, 0, 0)
        );
    }
}
