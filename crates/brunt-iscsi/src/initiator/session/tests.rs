//! Tests a session with one connection; the input consists of PDUs as a target would send them.

use brunt_block::{Buf, Op, RefusalKind, Request};
use brunt_wire::iscsi::pdu::{
    self, AsyncMessage, Bhs, DataIn, DataOut, LogoutResponse, NopIn, NopOut, Opcode, R2t,
    RESERVED_TAG, Reject, ScsiCommand, ScsiResponse, TaskManagementRequest, TaskManagementResponse,
    U24, code,
};
use brunt_wire::scsi::sense::key;

use super::requests::BUSY_WAIT;
use super::*;
use crate::device_errors;
use crate::initiator::command;

const NOW: Nanos = Nanos(1_000_000_000);

fn facts() -> Facts {
    Facts {
        block_bytes: 512,
        size_bytes: 1 << 30,
        transfer_bytes_max: 1 << 20,
        unmap_blocks_max: 8,
        write_same_blocks_max: 8,
        unmap_by: command::UnmapBy::Unmap,
        ..Facts::default()
    }
}

fn params() -> Params {
    Params {
        initial_r2t: false,
        immediate_data: true,
        max_recv_data_segment_length: 8192,
        peer_max_recv_data_segment_length: 4096,
        first_burst_length: 8192,
        max_burst_length: 16384,
        ..Params::default()
    }
}

/// A session with one connection and a window of 4 commands.
fn session() -> InitiatorSession {
    let config = SessionConfig {
        lun: [0, 1, 0, 0, 0, 0, 0, 0],
        depth: 8,
        timeout: Duration::from_secs(30),
        keepalive: Duration::from_secs(3600),
        tries: 3,
        attribute: TagKind::default(),
    };
    let mut session = InitiatorSession::new(config, facts(), BufPool::new(0));
    attach(&mut session);
    session
}

fn attach(session: &mut InitiatorSession) {
    let attachment = Attachment {
        cmd_sn: 10,
        max_cmd_sn: 13,
        connections: vec![(0, params(), 100)],
    };
    session.attach(attachment, facts(), NOW);
}

fn request(tag: u64, op: Op, len: u64) -> Request {
    let buf = if matches!(op, Op::Read | Op::Write) {
        Buf::zeroed(len as usize)
    } else {
        Buf::empty()
    };
    Request {
        tag,
        op,
        offset: 4096,
        len,
        buf,
        force_unit_access: false,
    }
}

/// Submits a request; returns the PDUs to send.
fn issue(session: &mut InitiatorSession, op: Op, len: u64) -> Vec<Outgoing> {
    session.submit(request(7, op, len), NOW).unwrap();
    outgoing(session)
}

fn outgoing(session: &mut InitiatorSession) -> Vec<Outgoing> {
    session.schedule(NOW);
    std::iter::from_fn(|| session.pull(0)).collect()
}

fn tag_of(outgoing: &Outgoing) -> u32 {
    outgoing.bhs.initiator_task_tag.get()
}

/// Passes a PDU to the session, as its driver would.
fn receive(
    session: &mut InitiatorSession,
    bhs: impl Into<Bhs>,
    data: &[u8],
) -> Result<(), Violation> {
    receive_at(session, bhs, data, NOW)
}

fn receive_at(
    session: &mut InitiatorSession,
    bhs: impl Into<Bhs>,
    data: &[u8],
    now: Nanos,
) -> Result<(), Violation> {
    let mut bhs: Bhs = bhs.into();
    bhs.data_segment_length = U24::new(data.len() as u32);
    match session.on_header(0, &bhs)? {
        DataDestination::Task(piece) => {
            session.data(piece.task)[piece.start..piece.start + piece.len].copy_from_slice(data);
            session.on_pdu(0, &bhs, &[], now)
        }
        DataDestination::Short => session.on_pdu(0, &bhs, data, now),
    }
}

fn data_in(itt: u32) -> DataIn {
    DataIn {
        initiator_task_tag: itt.into(),
        exp_cmd_sn: 11.into(),
        max_cmd_sn: 14.into(),
        ..DataIn::default()
    }
}

fn last_data_in(itt: u32) -> DataIn {
    let flags = pdu::FLAG_FINAL | code::response::STATUS;
    DataIn {
        flags,
        stat_sn: 100.into(),
        ..data_in(itt)
    }
}

fn response(itt: u32, status: ScsiStatus) -> ScsiResponse {
    ScsiResponse {
        flags: pdu::FLAG_FINAL,
        status: status.to_byte(),
        initiator_task_tag: itt.into(),
        stat_sn: 100.into(),
        exp_cmd_sn: 11.into(),
        max_cmd_sn: 14.into(),
        ..ScsiResponse::default()
    }
}

fn r2t(itt: u32) -> R2t {
    R2t {
        flags: pdu::FLAG_FINAL,
        initiator_task_tag: itt.into(),
        target_transfer_tag: 0x77.into(),
        exp_cmd_sn: 11.into(),
        max_cmd_sn: 14.into(),
        buffer_offset: 8192.into(),
        desired_data_transfer_length: 8192.into(),
        ..R2t::default()
    }
}

fn retire(session: &mut InitiatorSession, now: Nanos) -> Option<Retired> {
    let task = session.next_answered().expect("something was answered");
    session.retire(task, now)
}

fn sense(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    let sense = Sense::new(key, asc, ascq).to_fixed();
    let mut data = (sense.len() as u16).to_be_bytes().to_vec();
    data.extend_from_slice(&sense);
    data
}

/// A read's data goes to the right places, across several PDUs, and the status comes with the last PDU.
#[test]
fn a_reads_data_over_several_pdus_goes_to_the_right_places() {
    let mut session = session();
    let sent = issue(&mut session, Op::Read, 1536);
    assert_eq!(sent.len(), 1);
    let command = ScsiCommand::view(&sent[0].bhs);
    assert_eq!(
        command.flags,
        0x80 | code::command::READ | code::command::ATTR_SIMPLE
    );
    assert_eq!((command.cmd_sn.get(), command.exp_stat_sn.get()), (10, 100));
    assert_eq!(command.expected_data_transfer_length.get(), 1536);
    let itt = tag_of(&sent[0]);
    receive(&mut session, data_in(itt), &[1; 1024]).unwrap();
    let second = DataIn {
        data_sn: 1.into(),
        buffer_offset: 1024.into(),
        ..last_data_in(itt)
    };
    receive(&mut session, second, &[2; 512]).unwrap();
    let retired = retire(&mut session, NOW).unwrap();
    assert_eq!((retired.tag, retired.result), (7, Ok(())));
    assert!(retired.buf[..1024] == [1; 1024] && retired.buf[1024..] == [2; 512]);
    assert_eq!((session.outstanding(), session.exp_stat_sn(0)), (0, 101));
}

/// A write is sent as immediate, unsolicited and solicited data, each within its limit.
#[test]
fn a_write_is_sent_as_immediate_unsolicited_and_solicited_data() {
    let mut session = session();
    let sent = issue(&mut session, Op::Write, 20_480);
    let pieces = |sent: &[Outgoing]| -> Vec<(usize, usize, u8)> {
        sent.iter()
            .map(|o| {
                (
                    o.data.unwrap().start,
                    o.data.unwrap().len,
                    o.bhs.flags & 0x80,
                )
            })
            .collect()
    };
    // FirstBurstLength 8192 in segments of 4096: half with the command, half after it.
    assert_eq!(pieces(&sent), [(0, 4096, 0), (4096, 4096, 0x80)]);
    assert_eq!(
        DataOut::view(&sent[1].bhs).target_transfer_tag.get(),
        RESERVED_TAG
    );
    let itt = tag_of(&sent[0]);
    receive(&mut session, r2t(itt), &[]).unwrap();
    let rest = R2t {
        r2t_sn: 1.into(),
        buffer_offset: 16_384.into(),
        desired_data_transfer_length: 4096.into(),
        ..r2t(itt)
    };
    receive(&mut session, rest, &[]).unwrap();
    let sent = outgoing(&mut session);
    assert_eq!(
        pieces(&sent),
        [(8192, 4096, 0), (12_288, 4096, 0x80), (16_384, 4096, 0x80)]
    );
    let data_sns: Vec<u32> = sent
        .iter()
        .map(|o| DataOut::view(&o.bhs).data_sn.get())
        .collect();
    assert_eq!(data_sns, [0, 1, 0]);
    receive(&mut session, response(itt, ScsiStatus::Good), &[]).unwrap();
    assert_eq!(retire(&mut session, NOW).unwrap().result, Ok(()));
}

/// An early response stops the sending of the remaining data.
#[test]
fn an_early_response_stops_the_data() {
    let mut session = session();
    let itt = tag_of(&issue(&mut session, Op::Write, 20_480)[0]);
    receive(&mut session, r2t(itt), &[]).unwrap();
    let full = sense(key::DATA_PROTECT, 0x27, 0);
    receive(
        &mut session,
        response(itt, ScsiStatus::CheckCondition),
        &full,
    )
    .unwrap();
    assert!(outgoing(&mut session).is_empty());
    let expected = device_errors::from_status(
        ScsiStatus::CheckCondition,
        Some(Sense::new(key::DATA_PROTECT, 0x27, 0)),
    );
    assert_eq!(retire(&mut session, NOW).unwrap().result, Err(expected));
}

/// The window limits the number of commands; the target's responses open it, and invalid values don't change it.
#[test]
fn the_window_limits_the_number_of_commands() {
    let mut session = session();
    for tag in 0..8 {
        session.submit(request(tag, Op::Read, 512), NOW).unwrap();
    }
    assert!(session.submit(request(9, Op::Read, 512), NOW).is_err());
    let sent = outgoing(&mut session);
    assert_eq!(sent.len(), 4);
    let nonsense = DataIn {
        max_cmd_sn: 5.into(),
        exp_cmd_sn: 14.into(),
        ..data_in(tag_of(&sent[0]))
    };
    receive(&mut session, nonsense, &[]).unwrap();
    assert_eq!(outgoing(&mut session).len(), 0);
    let wider = DataIn {
        max_cmd_sn: 15.into(),
        data_sn: 1.into(),
        ..data_in(tag_of(&sent[0]))
    };
    receive(&mut session, wider, &[]).unwrap();
    assert_eq!(outgoing(&mut session).len(), 2);
}

/// Invalid PDUs from a hostile or broken target end the connection; nothing panics or writes outside the task's
/// buffer. (Long because it is a table with one line per reply.)
#[test]
fn invalid_replies_end_the_connection() {
    fn check(op: Op, what: &str, reply: impl Fn(u32) -> Bhs, data: &[u8]) {
        let mut session = session();
        let itt = tag_of(&issue(&mut session, op, 20_480)[0]);
        let violation = receive(&mut session, reply(itt), data).expect_err(what);
        assert!(
            violation.0.contains(what),
            "'{violation}' does not say '{what}'"
        );
        session.detach();
        assert_eq!(session.outstanding(), 1, "the request is not lost");
    }
    let block = [0; 512];
    let read = |what: &str, reply: &dyn Fn(u32) -> DataIn, data: &[u8]| {
        check(Op::Read, what, |itt| reply(itt).into(), data);
    };
    read("without a task", &|itt| data_in(itt ^ 1), &block);
    read("without a task", &|itt| data_in(itt ^ 0x10000), &block);
    read("without a task", &|_| data_in(RESERVED_TAG), &block);
    read("longer than our", &|itt| data_in(itt), &[0; 8196]);
    read(
        "past the end",
        &|itt| DataIn {
            buffer_offset: 20_000.into(),
            ..data_in(itt)
        },
        &block,
    );
    read(
        "past the end",
        &|itt| DataIn {
            buffer_offset: u32::MAX.into(),
            ..data_in(itt)
        },
        &block,
    );
    read(
        "out of order",
        &|itt| DataIn {
            buffer_offset: 512.into(),
            ..data_in(itt)
        },
        &block,
    );
    read(
        "DataSN",
        &|itt| DataIn {
            data_sn: 1.into(),
            ..data_in(itt)
        },
        &block,
    );
    read(
        "StatSN",
        &|itt| DataIn {
            stat_sn: 99.into(),
            ..last_data_in(itt)
        },
        &block,
    );
    read("before all data", &last_data_in, &block);
    read(
        "not the final",
        &|itt| DataIn {
            flags: code::response::STATUS,
            ..last_data_in(itt)
        },
        &block,
    );
    check(
        Op::Write,
        "does not read",
        |itt| data_in(itt).into(),
        &block,
    );
    let write = |what: &str, reply: &dyn Fn(u32) -> R2t| {
        check(Op::Write, what, |itt| reply(itt).into(), &[])
    };
    write("without a task", &|itt| r2t(itt + 1));
    write("R2TSN", &|itt| R2t {
        r2t_sn: 1.into(),
        ..r2t(itt)
    });
    write("for no data", &|itt| R2t {
        desired_data_transfer_length: 0.into(),
        ..r2t(itt)
    });
    write("MaxBurstLength", &|itt| R2t {
        desired_data_transfer_length: 16_385.into(),
        ..r2t(itt)
    });
    write("past the end", &|itt| R2t {
        buffer_offset: 16_384.into(),
        ..r2t(itt)
    });
    write("past the end", &|itt| R2t {
        buffer_offset: u32::MAX.into(),
        ..r2t(itt)
    });
    write("out of order", &|itt| R2t {
        buffer_offset: 0.into(),
        ..r2t(itt)
    });
    write("transfer tag", &|itt| R2t {
        target_transfer_tag: RESERVED_TAG.into(),
        ..r2t(itt)
    });
    check(Op::Read, "does not write", |itt| r2t(itt).into(), &[]);
    let good = |itt| response(itt, ScsiStatus::Good);
    check(Op::Read, "before all data", |itt| good(itt).into(), &[]);
    check(Op::Write, "too short", |itt| good(itt).into(), &[0]);
    check(
        Op::Write,
        "SenseLength",
        |itt| good(itt).into(),
        &[0, 9, 0x70],
    );
    check(
        Op::Write,
        "residual",
        |itt| {
            let flags = pdu::FLAG_FINAL | code::response::UNDERFLOW;
            ScsiResponse {
                flags,
                residual_count: 20_481.into(),
                ..good(itt)
            }
            .into()
        },
        &[],
    );
    check(
        Op::Read,
        "too long",
        |itt| good(itt).into(),
        &vec![0; SHORT_DATA_BYTES_MAX + 1],
    );
    check(
        Op::Read,
        "not requested",
        |_| {
            LogoutResponse {
                stat_sn: 100.into(),
                ..LogoutResponse::default()
            }
            .into()
        },
        &[],
    );
    check(
        Op::Read,
        "unexpected task management",
        |_| {
            TaskManagementResponse {
                stat_sn: 100.into(),
                ..TaskManagementResponse::default()
            }
            .into()
        },
        &[],
    );
    check(
        Op::Read,
        "not sent",
        |itt| {
            NopIn {
                initiator_task_tag: itt.into(),
                ..NopIn::default()
            }
            .into()
        },
        &[],
    );
    check(
        Op::Read,
        "without the header",
        |_| {
            Reject {
                stat_sn: 100.into(),
                ..Reject::default()
            }
            .into()
        },
        &[1],
    );
    for byte in [0x00, 0x01, 0x05, 0x23, 0x24, 0x1c, 0x33, 0x3e] {
        let mut bhs = Bhs::from(NopIn::default());
        bhs.opcode = byte;
        check(Op::Read, "unexpected type", move |_| bhs, &[]);
    }
}

/// After a unit attention, the request is sent again, a bounded number of times; after BUSY, it waits.
#[test]
fn requests_are_sent_again_after_a_unit_attention_or_busy() {
    let mut session = session();
    let attention = sense(key::UNIT_ATTENTION, 0x29, 0);
    let mut sent = issue(&mut session, Op::Write, 512);
    for number in 0..3u32 {
        let answer = ScsiResponse {
            stat_sn: (100 + number).into(),
            max_cmd_sn: 99.into(),
            ..response(tag_of(&sent[0]), ScsiStatus::CheckCondition)
        };
        receive(&mut session, answer, &attention).unwrap();
        match retire(&mut session, NOW) {
            None => sent = outgoing(&mut session),
            Some(retired) => assert!(number == 2 && retired.result.is_err()),
        }
    }
    assert_eq!(
        (session.outstanding(), session.counts().unit_attentions),
        (0, 2)
    );

    let sent = issue(&mut session, Op::Write, 512);
    let busy = ScsiResponse {
        stat_sn: 103.into(),
        ..response(tag_of(&sent[0]), ScsiStatus::TaskSetFull)
    };
    receive(&mut session, busy, &[]).unwrap();
    assert!(retire(&mut session, NOW).is_none());
    assert!(outgoing(&mut session).is_empty());
    assert_eq!(session.deadline(), NOW.after(BUSY_WAIT));
    session.schedule(NOW.after(BUSY_WAIT));
    assert!(session.pull(0).is_some());
}

/// A command that takes too long is aborted; an unanswered abort leads to a reset, an unanswered reset to the loss of
/// the session. Every request completes once.
#[test]
fn timeouts_escalate_from_abort_to_reset_to_loss() {
    let mut session = session();
    let sent = issue(&mut session, Op::Read, 512);
    session
        .submit(
            request(8, Op::Read, 512),
            NOW.after(Duration::from_secs(10)),
        )
        .unwrap();
    outgoing(&mut session);
    let late = NOW.after(Duration::from_secs(30));
    assert_eq!(session.deadline(), late);
    session.on_time(late);
    let abort = outgoing(&mut session);
    let pdu = TaskManagementRequest::view(&abort[0].bhs);
    assert_eq!(pdu.function, 0x80 | code::task_management::ABORT_TASK);
    assert_eq!(pdu.referenced_task_tag.get(), tag_of(&sent[0]));
    assert_eq!(
        (pdu.ref_cmd_sn.get(), abort[0].bhs.is_immediate()),
        (10, true)
    );
    let answer = |itt: u32, response, stat_sn: u32| TaskManagementResponse {
        response,
        initiator_task_tag: itt.into(),
        stat_sn: stat_sn.into(),
        ..TaskManagementResponse::default()
    };
    receive_at(&mut session, answer(tag_of(&abort[0]), 0, 100), &[], late).unwrap();
    assert_eq!(
        retire(&mut session, late).unwrap().result,
        Err(DeviceError::TimedOut)
    );

    // The second request: the abort is rejected, and the reset is not answered.
    let later = NOW.after(Duration::from_secs(40));
    session.on_time(later);
    let abort = outgoing(&mut session);
    receive_at(&mut session, answer(tag_of(&abort[0]), 5, 101), &[], later).unwrap();
    let reset = outgoing(&mut session);
    let function = TaskManagementRequest::view(&reset[0].bhs).function;
    assert_eq!(function, 0x80 | code::task_management::LOGICAL_UNIT_RESET);
    assert!(session.lost().is_none());
    session.on_time(NOW.after(Duration::from_secs(60)));
    assert!(session.lost().is_some());
    session.detach();
    assert_eq!(
        retire(&mut session, later).unwrap().result,
        Err(DeviceError::TimedOut)
    );
    assert_eq!(
        (
            session.outstanding(),
            session.counts().timeouts,
            session.counts().resets
        ),
        (0, 2, 1)
    );
}

/// After a loss, unanswered requests are sent again in order, a bounded number of times, with tags that don't match
/// responses to the old requests.
#[test]
fn unanswered_requests_are_sent_again_after_a_loss() {
    let mut session = session();
    for tag in 0..6 {
        session
            .submit(request(tag, Op::Write, 512 * (tag + 1)), NOW)
            .unwrap();
    }
    let before = outgoing(&mut session);
    assert_eq!(before.len(), 4);
    for round in 1..=3 {
        session.detach();
        while session.has_answered() {
            let retired = retire(&mut session, NOW);
            assert_eq!(retired.is_some(), round == 3, "round {round}");
            if let Some(retired) = retired {
                assert_eq!(retired.result, Err(DeviceError::Gone));
            }
        }
        attach(&mut session);
        let again = outgoing(&mut session);
        assert!(
            again
                .iter()
                .all(|o| before.iter().all(|old| tag_of(old) != tag_of(o)))
        );
        let old = tag_of(&before[0]);
        assert!(receive(&mut session, response(old, ScsiStatus::Good), &[]).is_err());
        assert!(ScsiCommand::view(&again[0].bhs).cmd_sn.get() == 10);
        if round == 3 {
            break;
        }
    }
    session.detach();
    session.fail_all(DeviceError::Gone);
    while session.has_answered() {
        assert_eq!(
            retire(&mut session, NOW).unwrap().result,
            Err(DeviceError::Gone)
        );
    }
    assert_eq!(session.outstanding(), 0);
}

/// Pings are answered, a silent connection is pinged, and continued silence loses the session.
#[test]
fn pings_are_answered_and_silent_connections_are_pinged() {
    let mut session = session();
    let ping = NopIn {
        initiator_task_tag: RESERVED_TAG.into(),
        target_transfer_tag: 0x55.into(),
        stat_sn: 100.into(),
        ..NopIn::default()
    };
    receive(&mut session, ping, &[]).unwrap();
    let pong = outgoing(&mut session);
    let pdu = NopOut::view(&pong[0].bhs);
    assert_eq!(
        (pdu.target_transfer_tag.get(), pdu.initiator_task_tag.get()),
        (0x55, RESERVED_TAG)
    );
    assert_eq!(session.exp_stat_sn(0), 100);

    let silent = NOW.after(Duration::from_secs(3600));
    session.on_time(silent);
    let ours = outgoing(&mut session);
    let itt = tag_of(&ours[0]);
    assert_ne!(itt, RESERVED_TAG);
    let answer = NopIn {
        initiator_task_tag: itt.into(),
        target_transfer_tag: RESERVED_TAG.into(),
        stat_sn: 100.into(),
        ..NopIn::default()
    };
    receive_at(&mut session, answer, &[], silent).unwrap();
    session.on_time(silent.after(Duration::from_secs(3600)));
    assert_eq!(outgoing(&mut session).len(), 1);
    assert!(session.lost().is_none());
    session.on_time(silent.after(Duration::from_secs(7200)));
    assert!(session.lost().is_some());
}

/// If the target requests a logout, the session sends no new commands and logs out once the outstanding commands are
/// done; a dropped session is lost at once.
#[test]
fn a_requested_logout_waits_for_outstanding_commands() {
    let mut session = session();
    let itt = tag_of(&issue(&mut session, Op::Write, 512)[0]);
    let message = |event, stat_sn: u32| AsyncMessage {
        async_event: event,
        stat_sn: stat_sn.into(),
        parameter2: 2.into(),
        parameter3: 10.into(),
        ..AsyncMessage::default()
    };
    receive(
        &mut session,
        message(code::async_event::LOGOUT_REQUEST, 100),
        &[],
    )
    .unwrap();
    assert!(issue(&mut session, Op::Write, 512).is_empty());
    session.on_time(NOW);
    let answer = ScsiResponse {
        stat_sn: 101.into(),
        ..response(itt, ScsiStatus::Good)
    };
    receive(&mut session, answer, &[]).unwrap();
    session.on_time(NOW.after(Duration::from_millis(10)));
    let logout = outgoing(&mut session);
    assert_eq!(logout[0].bhs.kind(), Opcode::LogoutRequest);
    let answer = LogoutResponse {
        stat_sn: 102.into(),
        time2wait: 3.into(),
        ..LogoutResponse::default()
    };
    receive(&mut session, answer, &[]).unwrap();
    assert_eq!(session.lost().unwrap().wait, Duration::from_secs(3));

    let mut dropped = self::session();
    receive(
        &mut dropped,
        message(code::async_event::SESSION_DROP, 100),
        &[],
    )
    .unwrap();
    assert_eq!(dropped.lost().unwrap().wait, Duration::from_secs(2));
}

/// Impossible requests are refused without asking the target; an unmap that is longer than the LUN's limit becomes
/// one request with several commands.
#[test]
fn impossible_requests_are_refused_and_long_unmaps_are_split() {
    let mut session = session();
    let mut check = |op, offset, len, error| {
        let request = Request {
            offset,
            ..request(1, op, len)
        };
        session.submit(request, NOW).unwrap();
        assert_eq!(retire(&mut session, NOW).unwrap().result, Err(error));
    };
    check(Op::Read, 100, 512, DeviceError::OutOfRange);
    check(Op::Read, 0, 100, DeviceError::OutOfRange);
    check(Op::Read, 1 << 30, 512, DeviceError::OutOfRange);
    check(Op::Read, u64::MAX - 511, 512, DeviceError::OutOfRange);
    check(Op::Read, 0, 2 << 20, DeviceError::OutOfRange);
    check(Op::Write, 0, 0, DeviceError::OutOfRange);

    let mut sent = issue(&mut session, Op::Unmap, 20 * 512);
    for number in 0..3u32 {
        assert_eq!(sent.len(), 1);
        let task = sent[0].data.unwrap().task;
        let count = u32::from_be_bytes(session.data(task)[16..20].try_into().unwrap());
        assert_eq!(count, if number < 2 { 8 } else { 4 });
        let answer = ScsiResponse {
            stat_sn: (100 + number).into(),
            max_cmd_sn: 99.into(),
            ..response(tag_of(&sent[0]), ScsiStatus::Good)
        };
        receive(&mut session, answer, &[]).unwrap();
        let retired = retire(&mut session, NOW);
        assert_eq!(retired.is_some(), number == 2);
        sent = outgoing(&mut session);
    }
    assert_eq!(session.outstanding(), 0);
}

/// A request can be cancelled both while it waits and after its command was sent.
#[test]
fn a_request_can_be_cancelled_before_and_after_it_is_sent() {
    let mut session = session();
    for tag in 0..5 {
        session.submit(request(tag, Op::Read, 512), NOW).unwrap();
    }
    let sent = outgoing(&mut session);
    session.cancel(4, NOW);
    let cancelled = Err(DeviceError::refused(RefusalKind::Cancelled));
    assert_eq!(retire(&mut session, NOW).unwrap().result, cancelled);
    session.cancel(0, NOW);
    session.on_time(NOW);
    let abort = outgoing(&mut session);
    assert_eq!(
        TaskManagementRequest::view(&abort[0].bhs)
            .referenced_task_tag
            .get(),
        tag_of(&sent[0])
    );
    // The response came before the abort took effect.
    receive(&mut session, last_data_in(tag_of(&sent[0])), &[0; 512]).unwrap();
    assert_eq!(retire(&mut session, NOW).unwrap().result, Ok(()));
    let too_late = TaskManagementResponse {
        response: code::task_management::TASK_DOES_NOT_EXIST,
        initiator_task_tag: tag_of(&abort[0]).into(),
        stat_sn: 101.into(),
        ..TaskManagementResponse::default()
    };
    receive(&mut session, too_late, &[]).unwrap();
    assert!(!session.has_answered());
}
