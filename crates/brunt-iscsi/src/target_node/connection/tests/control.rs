//! NOP, logout and text requests.

use super::*;

/// Both sides can ping; a peer that doesn't respond is disconnected.
#[test]
fn a_peer_that_does_not_answer_pings_is_disconnected() {
    let mut bench = Bench::new(|_| ());
    let ping = NopOut {
        opcode: OPCODE_IMMEDIATE,
        initiator_task_tag: 3.into(),
        target_transfer_tag: RESERVED_TAG.into(),
        ..NopOut::default()
    };
    let sent = bench.pdu(ping, b"hello", true);
    assert_eq!(
        (sent[0].0.kind(), &sent[0].1[..]),
        (Opcode::NopIn, &b"hello"[..])
    );
    let keep_alive = KeepAlive {
        idle: Duration::from_secs(10),
        patience: Duration::from_secs(5),
    };
    let second = 1_000_000_000;
    let Bench {
        connection,
        window,
        io,
        ..
    } = &mut bench;
    let cx = &mut ConnectionContext { window, io };
    let mut look = |at: u64, heard| connection.on_time(Nanos(at * second), heard, keep_alive, cx);
    assert_eq!(look(1, true), Ok(Nanos(11 * second)));
    assert_eq!(look(5, false), Ok(Nanos(11 * second)));
    assert_eq!(look(12, false), Ok(Nanos(17 * second)));
    assert_eq!(look(13, true), Ok(Nanos(23 * second)));
    assert_eq!(look(24, false), Ok(Nanos(29 * second)));
    assert!(look(29, false).is_err());
    assert_eq!(bench.io.sent.len(), 2);
}

/// Logout, for each reason (11.14.1, 11.15.1).
#[test]
fn each_logout_reason_gets_its_response() {
    let check = |reason: u8, cid: u16, response: u8, closes: bool| {
        let mut bench = Bench::new(|_| ());
        let pdu = LogoutRequest {
            opcode: 0x06 | OPCODE_IMMEDIATE,
            reason: 0x80 | reason,
            cid: cid.into(),
            ..LogoutRequest::default()
        };
        let sent = bench.pdu(pdu, &[], true);
        assert_eq!(
            LogoutResponse::view(&sent[0].0).response,
            response,
            "reason {reason}"
        );
        assert_eq!(bench.connection.is_closing(), closes);
    };
    check(0, 0, 0, true);
    check(1, 0, 0, true);
    check(1, 1, 0, false);
    check(1, 9, 1, false);
    check(2, 0, 2, false);
}

/// SendTargets as in appendix C of RFC 7143, in pieces if the initiator accepts no more, and other keys of full-feature
/// phase.
#[test]
fn send_targets_is_answered_in_pieces_as_in_the_rfc() {
    let ask = |discovery: bool, room: u32, key: &str, value: &str| -> String {
        let params = Params {
            peer_max_recv_data_segment_length: room,
            ..Params::default()
        };
        let mut bench = Bench::new(|_| ());
        bench.connection = TargetConnection::new(1, 1, 0, discovery, params, 10);
        let mut data = Vec::new();
        push_pair(&mut data, key, value);
        let mut request = TextRequest {
            opcode: 0x04 | OPCODE_IMMEDIATE,
            flags: FLAG_FINAL,
            target_transfer_tag: RESERVED_TAG.into(),
            ..TextRequest::default()
        };
        let mut text = Vec::new();
        for _ in 0..10 {
            let sent = bench.pdu(request, &data, true);
            assert!(sent[0].1.len() <= room as usize);
            text.extend_from_slice(&sent[0].1);
            if sent[0].0.flags & FLAG_FINAL != 0 {
                return String::from_utf8(text).unwrap().replace('\0', ";");
            }
            data.clear();
            request.target_transfer_tag =
                brunt_wire::iscsi::pdu::TextResponse::view(&sent[0].0).target_transfer_tag;
        }
        panic!("no end");
    };
    let all = "TargetName=iqn.t;TargetAddress=127.0.0.1:3260,1;TargetAddress=[::1]:3260,1;";
    assert_eq!(ask(true, 8192, "SendTargets", "All"), all);
    assert_eq!(ask(true, 20, "SendTargets", "All"), all);
    assert_eq!(ask(true, 8192, "SendTargets", "iqn.t"), all);
    assert_eq!(ask(true, 8192, "SendTargets", "iqn.other"), "");
    assert_eq!(ask(false, 8192, "SendTargets", ""), all);
    assert_eq!(ask(false, 8192, "SendTargets", "All"), all);
    // With a second key=value pair, the request gets a response instead of a reject.
    assert_eq!(
        ask(false, 8192, "X-key", "1\0SendTargets="),
        format!("X-key=NotUnderstood;{all}")
    );
    assert_eq!(
        ask(false, 8192, "MaxBurstLength", "512"),
        "MaxBurstLength=Reject;"
    );
}
