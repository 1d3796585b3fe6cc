use super::*;
use crate::ParseError;

/// The payload of a MOUNT NULL call from a real capture.
fn call_bytes() -> &'static [u8] {
    &include_bytes!("../../testdata/mount-null-call.frame")[66..]
}

#[test]
fn a_real_calls_header_is_parsed_field_by_field() {
    let mark = RecordMark::from_bytes(*call_bytes().first_chunk().unwrap());
    assert_eq!(
        mark,
        RecordMark {
            len: 68,
            last: true
        }
    );
    let Ok(RpcMessage::Call(call)) = parse(&call_bytes()[MARK_BYTES..]) else {
        panic!()
    };
    assert_eq!(
        (call.program, call.version, call.procedure),
        (PROGRAM_MOUNT, 3, 0)
    );
    let sys = call.credentials.sys().unwrap();
    assert_eq!(
        (sys.machine_name, sys.uid, sys.gid, sys.groups),
        (&b"libnfs"[..], 0, 0, &[][..])
    );
    assert_eq!(call.verifier.flavor, AuthFlavor::None);
    assert_eq!(call.body_at, 68);
    let mut encoded = mark.to_bytes().to_vec();
    call.encode(&mut encoded);
    assert_eq!(encoded, &call_bytes()[..encoded.len()]);
    let mut credentials = Vec::new();
    let stamp = u32::from_be_bytes(*call.credentials.body.first_chunk().unwrap());
    sys.encode(stamp, &mut credentials);
    assert_eq!(credentials, call.credentials.body);
}

/// Packets of other protocols that parse as calls are distinguished from calls.
#[test]
fn packets_of_other_protocols_are_not_taken_for_calls() {
    let check = |words: &[u32], expected| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let Ok(RpcMessage::Call(call)) = parse(&bytes) else {
            panic!("{words:?}: {:?}", parse(&bytes))
        };
        assert_eq!(call.is_credible(bytes.len()), expected, "{words:x?}");
    };
    let null = [1, 0, 2, PROGRAM_NFS, 3, 0, 0, 0, 0, 0];
    check(&null, true);
    let getattr = [1, 0, 2, PROGRAM_NFS, 3, 1, 0, 0, 0, 0, 4, 7];
    check(&getattr, true);
    // The first message of an RPCSEC_GSS session: a token as NULL's argument.
    let init = [1, 0, 2, PROGRAM_NFS, 4, 0, 6, 4, 1, 0, 0, 4, 7];
    check(&init, true);
    // A client's first NTP packet: stratum 0, a dispersion of 2, the reference "INIT", and its clock.
    let ntp = [
        0xe300_06e8,
        0,
        2,
        0x494e_4954,
        0,
        0,
        0,
        0,
        0,
        0,
        0xe158_296b,
        0x5ce9_9661,
    ];
    check(&ntp, false);
    // A CAPWAP discovery response.
    let capwap = [
        0x0010_8200,
        0,
        2,
        0x9200,
        0x0025_0038,
        0x07db,
        0x007b_0008,
        2,
        7,
        0xd400_0400,
        7,
        0xd900_0400,
        0x0207_da00,
    ];
    check(&capwap, false);
}

#[test]
fn every_kind_of_reply_has_the_offset_of_its_results() {
    let check = |words: &[u32], status, body_at| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let Ok(RpcMessage::Reply(reply)) = parse(&bytes) else {
            panic!("{words:?}: {:?}", parse(&bytes))
        };
        assert_eq!(
            (reply.xid, reply.status, reply.body_at),
            (Xid(9), status, body_at)
        );
        let mut encoded = Vec::new();
        reply.encode(&mut encoded);
        assert_eq!(encoded, &bytes[..encoded.len()], "{words:?}");
        assert_eq!(parse(&bytes[..body_at]), Ok(RpcMessage::Reply(reply)));
        for end in 0..body_at {
            assert!(matches!(parse(&bytes[..end]), Err(ParseError::Incomplete(n)) if n > end));
        }
    };
    check(&[9, 1, 0, 0, 0, 0, 77], ReplyStatus::Success, 24);
    check(
        &[9, 1, 0, 6, 4, 0xabcd, 2, 3, 3],
        ReplyStatus::ProgMismatch,
        28,
    );
    check(&[9, 1, 0, 0, 0, 4], ReplyStatus::GarbageArgs, 24);
    check(&[9, 1, 1, 0, 2, 2], ReplyStatus::RpcMismatch, 16);
    check(&[9, 1, 1, 1, 5], ReplyStatus::AuthError(5), 20);
}

/// Data that isn't RPC is malformed at the right offset; a call truncated at any byte is incomplete.
#[test]
fn other_data_is_malformed_and_a_cut_call_is_incomplete() {
    let whole = &call_bytes()[MARK_BYTES..];
    for end in 0..whole.len() {
        assert!(
            matches!(parse(&whole[..end]), Err(ParseError::Incomplete(n)) if n > end),
            "{end}"
        );
    }
    let check = |at: usize, value: u32| {
        let mut bytes = whole.to_vec();
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        assert!(
            matches!(parse(&bytes), Err(ParseError::Malformed(m)) if m.offset == at),
            "{at}"
        );
    };
    check(4, 2);
    check(8, 3);
    check(28, 401);
}

/// A header restored from its layout equals the parsed header, with or without a verifier.
#[test]
fn a_header_restored_from_its_layout_equals_the_parsed_one() {
    let check = |bytes: &[u8]| {
        let Ok(RpcMessage::Call(call)) = parse(bytes) else {
            panic!("{:?}", parse(bytes))
        };
        let layout = call.layout();
        assert_eq!(layout.of(bytes), Some(call));
        assert_eq!(layout.of(&bytes[..call.body_at - 1]), None);
    };
    check(&call_bytes()[MARK_BYTES..]);
    let words = [
        9u32,
        0,
        2,
        100_003,
        3,
        6,
        6,
        5,
        0x0101_0101,
        0x0200_0000,
        6,
        3,
        0x0707_0700,
        0xffff_ffff,
    ];
    check(
        &words
            .iter()
            .flat_map(|w| w.to_be_bytes())
            .collect::<Vec<_>>(),
    );
}
