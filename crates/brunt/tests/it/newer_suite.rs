//! Tests from upstream's newest conformance suite that the releases in Debian lack: CHAP's encodings (its tests
//! Base64, Base64Oversize, HexName, Base64Name, EncodedI), REPORT LUNS, and COMPARE AND WRITE from two sessions with
//! aborts in between. Also cases that the packaged suites test only in part: DataSN errors that the connection must
//! survive, sense formats, mismatched lengths.
//!
//! `libiscsi.rs` runs the packaged suites, which cover SANITIZE, WRITE ATOMIC and CmdSN; `hostile.rs` has more CmdSN
//! tests.

use crate::raw::{Ended, Pdu, Raw, data_out, encode, isid_of, login_request, rw10};
use crate::support;
use crate::support::{TARGET_NAME, Target};
use brunt_iscsi::chap::{Challenge, ChapInitiator, Credentials};
use brunt_wire::iscsi::Opcode;
use brunt_wire::iscsi::pdu::{
    DataIn, LoginResponse, R2t, ScsiResponse, TaskManagementResponse, TextResponse, code,
};
use brunt_wire::iscsi::text::{format_binary, parse_binary};
use brunt_wire::scsi::sense::{ScsiStatus, key};

const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
const COMPARE_AND_WRITE: u8 = 0x89;
const BLOCK: usize = 512;

/// Status class and detail of a login that failed authentication (RFC 7143, 11.13.5).
const AUTHENTICATION_FAILURE: u16 = 0x0201;

type Pairs = Vec<(String, String)>;

fn login(target: &Target, who: &str) -> Raw {
    let mut raw = Raw::login(
        target.address(),
        &format!("iqn.2026-11.io.brunt:{who}"),
        TARGET_NAME,
        &[],
    );
    raw.settle(0);
    raw
}

fn borrow(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// Sends one login request with `pairs`, either to stay in the security stage or to leave it; returns the response.
fn round(raw: &mut Raw, transit: bool, pairs: &[(&str, &str)]) -> Result<Pdu, u16> {
    let mut request = login_request(isid_of("chap"));
    if !transit {
        request.flags = code::login::STAGE_SECURITY << 2;
    }
    request.exp_stat_sn = raw.exp_stat_sn.into();
    raw.send(&request.into(), &encode(pairs));
    let answer = raw.recv().expect("a login response");
    assert_eq!(answer.kind(), Opcode::LoginResponse, "{answer:?}");
    let response = LoginResponse::view(&answer.bhs);
    match u16::from(response.status_class) << 8 | u16::from(response.status_detail) {
        code::login::SUCCESS => Ok(answer),
        status => Err(status),
    }
}

/// A login through the security stage. `offer` replaces `CHAP_A=5`, and `bend` changes the keys in the response
/// before they are sent. Returns the target's last keys, or its status.
fn chap(
    target: &Target,
    mut initiator: ChapInitiator,
    offer: &[(&str, &str)],
    bend: impl Fn(&mut Pairs),
) -> Result<Pairs, u16> {
    let mut raw = Raw::connect(target.address());
    let first = [
        ("InitiatorName", "iqn.2026-11.io.brunt:chap"),
        ("TargetName", TARGET_NAME),
        ("SessionType", "Normal"),
        ("AuthMethod", "CHAP"),
    ];
    round(&mut raw, false, &first)?;
    let challenge = round(&mut raw, false, offer)?;
    let keys = initiator
        .on_challenge(&challenge.pairs())
        .expect("a challenge");
    let mut keys: Pairs = keys
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect();
    bend(&mut keys);
    let answer = round(&mut raw, true, &borrow(&keys))?;
    initiator
        .on_response(&answer.pairs())
        .expect("the target proves itself");
    Ok(answer
        .pairs()
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect())
}

fn one_way(user: &str) -> ChapInitiator {
    ChapInitiator::new(Credentials::new(user, *b"brunt-secret1"), None).expect("one secret")
}

fn change(pairs: &mut Pairs, key: &str, change: impl Fn(&str) -> String) {
    let (_, value) = pairs
        .iter_mut()
        .find(|(name, _)| name == key)
        .expect("the key is there");
    *value = change(value);
}

/// `0b` and base64 (RFC 4648, 4).
fn base64(bytes: &[u8]) -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("0b");
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .fold(0u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let symbol = SYMBOLS[(word >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= chunk.len() { symbol } else { '=' });
        }
    }
    out
}

/// A response in base64 is accepted like one in hexadecimal; an oversized or invalid response fails only that login.
#[test]
fn chap_response_in_base64() {
    let target = Target::start(&[
        "--lun",
        "memory:16MiB",
        "--chap",
        "brunt-user:brunt-secret1",
    ]);
    let check = |bend: &dyn Fn(&str) -> String, expected: Option<u16>| {
        let result = chap(&target, one_way("brunt-user"), &[("CHAP_A", "5")], |keys| {
            change(keys, "CHAP_R", bend);
        });
        assert_eq!(result.err(), expected);
    };
    check(&str::to_string, None);
    check(&|r| base64(&parse_binary(r).expect("hexadecimal")), None);
    check(
        &|r| r.replace("0x", "0X").to_uppercase().replace("0X", "0x"),
        None,
    );
    let failed = Some(AUTHENTICATION_FAILURE);
    for bytes in [17, 64, 1024, 1025, 4000] {
        // The correct response followed by extra bytes.
        let long = |r: &str| {
            let mut response = parse_binary(r).expect("hexadecimal");
            response.resize(bytes, 0);
            response
        };
        check(&|r| base64(&long(r)), failed);
        check(
            &|r| {
                if bytes < 2000 {
                    format_binary(&long(r))
                } else {
                    base64(&long(r))
                }
            },
            failed,
        );
    }
    for nonsense in [
        "0b", "0b=", "0b====", "0bA", "0b*&^%", "0x", "0xg0", "", "5",
    ] {
        check(&|_| nonsense.to_string(), failed);
    }
    check(&str::to_string, None);
}

/// A name is text even if it looks like a number: it is compared as is, without stripping a prefix or decoding it.
#[test]
fn chap_names_are_text() {
    let check = |configured: &str, sent: &str, expected: Option<u16>| {
        let credentials = format!("{configured}:brunt-secret1");
        let target = Target::start(&["--lun", "memory:16MiB", "--chap", &credentials]);
        let result = chap(&target, one_way(sent), &[("CHAP_A", "5")], |_| ());
        assert_eq!(result.err(), expected, "{sent} for {configured}");
    };
    let failed = Some(AUTHENTICATION_FAILURE);
    check("brunt", "0xbrunt", failed);
    check("brunt", "0bbrunt", failed);
    check("brunt", "0x6272756e74", failed);
    check("brunt", "0bYnJ1bnQ=", failed);
    check("0x6272756e74", "0x6272756e74", None);
    check("0bYnJ1bnQ=", "0bYnJ1bnQ=", None);
    check("0x6272756e74", "brunt", failed);
}

/// The identifier of the initiator's own challenge may be hexadecimal; values that exceed a byte or are not numbers
/// are rejected.
#[test]
fn chap_identifier_in_hexadecimal() {
    let target = Target::start(&[
        "--lun",
        "memory:16MiB",
        "--chap",
        "brunt-user:brunt-secret1",
        "--mutual-chap",
        "brunt-target:brunt-secret2",
    ]);
    let mutual = || {
        let own = Credentials::new("brunt-user", *b"brunt-secret1");
        let theirs = Credentials::new("brunt-target", *b"brunt-secret2");
        ChapInitiator::new(own, Some((theirs, Challenge::new(0xa7, [0x5a; 32]))))
            .expect("two secrets")
    };
    let check = |identifier: &str, expected: Option<u16>| {
        let result = chap(&target, mutual(), &[("CHAP_A", "5")], |keys| {
            change(keys, "CHAP_I", |_| identifier.to_string());
            change(keys, "CHAP_C", |c| {
                base64(&parse_binary(c).expect("hexadecimal"))
            });
        });
        let refused = result.as_ref().err().copied();
        assert_eq!(refused, expected, "CHAP_I={identifier}");
        if let Ok(keys) = result {
            assert!(
                keys.iter()
                    .any(|(key, value)| key == "CHAP_N" && value == "brunt-target")
            );
        }
    };
    check("167", None);
    check("0xa7", None);
    check("0XA7", None);
    let failed = Some(AUTHENTICATION_FAILURE);
    for wrong in ["256", "0x1a7", "-1", "0x", "a7", "167 ", ""] {
        check(wrong, failed);
    }
}

/// The list of algorithms is parsed completely, as numbers, and only under its own key.
#[test]
fn the_list_of_chap_algorithms_is_parsed_completely() {
    let target = Target::start(&[
        "--lun",
        "memory:16MiB",
        "--chap",
        "brunt-user:brunt-secret1",
    ]);
    let check = |offer: &[(&str, &str)], expected: Option<u16>| {
        let result = chap(&target, one_way("brunt-user"), offer, |_| ());
        assert_eq!(result.err(), expected, "{offer:?}");
    };
    check(&[("CHAP_A", "5,6,7,8")], None);
    check(&[("CHAP_A", "99,5")], None);
    let failed = Some(AUTHENTICATION_FAILURE);
    for wrong in ["56", "", "5x", "x5", ",", "05x", "99"] {
        check(&[("CHAP_A", wrong)], failed);
    }
    for wrong in ["XCHAP_A", "CHAP_AX", "CHAP_", "chap_a"] {
        check(&[(wrong, "5")], failed);
    }
}

fn compare_and_write(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = COMPARE_AND_WRITE;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = blocks;
    cdb
}

fn code_of(ended: &Ended) -> (ScsiStatus, Option<(u8, u8, u8)>) {
    (
        ended.status,
        ended.sense.map(|sense| (sense.key, sense.asc, sense.ascq)),
    )
}

/// Two sessions pass a block back and forth with COMPARE AND WRITE, and one command in five is aborted right after it
/// is sent. Each command either ends once, or is aborted and gets no response; reported writes are on the medium, and
/// no write is there partially.
#[test]
fn compare_and_write_from_two_sessions_with_aborts() {
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let mut sessions = [login(&target, "left"), login(&target, "right")];
    // The block counts how often it was passed on, so lost or duplicated writes would be detected.
    let mut holds = 0u8;
    let (mut wrote, mut aborted) = (0, 0);
    for i in 0..200u32 {
        let raw = &mut sessions[i as usize % 2];
        let data = [[holds; BLOCK], [holds.wrapping_add(1); BLOCK]].concat();
        let command = raw.command(
            0,
            &compare_and_write(0, 1),
            code::command::WRITE,
            data.len() as u32,
        );
        let (tag, cmd_sn) = (command.initiator_task_tag.get(), command.cmd_sn.get());
        if i % 5 != 0 {
            raw.send(&command.into(), &[]);
            assert_eq!(
                code_of(&raw.finish(tag, &data)),
                (ScsiStatus::Good, None),
                "round {i}"
            );
            wrote += 1;
            holds = holds.wrapping_add(1);
            continue;
        }
        // Half of the time with immediate data, so that the target has all of it when the abort arrives; otherwise
        // without, so that the target can't have begun the write.
        let immediate: &[u8] = if i % 2 == 0 { &data } else { &[] };
        raw.send(&command.into(), immediate);
        let mut pdu = raw.manage(0, code::task_management::ABORT_TASK, tag, cmd_sn);
        let mut ended = false;
        while pdu.kind() != Opcode::TaskManagementResponse {
            match pdu.kind() {
                Opcode::ScsiResponse => {
                    assert_eq!(ScsiResponse::view(&pdu.bhs).status, 0, "round {i}: {pdu:?}");
                    assert!(!ended, "round {i}: ended twice");
                    ended = true;
                }
                Opcode::R2t => assert!(immediate.is_empty(), "round {i}"),
                other => panic!("round {i}: {other:?}"),
            }
            pdu = raw.recv().expect("an answer to the abort");
        }
        let expected = if ended {
            code::task_management::TASK_DOES_NOT_EXIST
        } else {
            code::task_management::FUNCTION_COMPLETE
        };
        assert_eq!(
            TaskManagementResponse::view(&pdu.bhs).response,
            expected,
            "round {i}: ended: {ended}"
        );
        // No further PDUs for the command arrive: the next response is the ping's.
        assert_eq!(raw.ping(b"quiet").kind(), Opcode::NopIn, "round {i}");
        if ended {
            wrote += 1;
            holds = holds.wrapping_add(1);
            continue;
        }
        aborted += 1;
        if !immediate.is_empty() {
            // If the abort arrives while the block is being written, the block is written completely but not reported
            // (SAM-5 leaves that open; the response to the abort waits for the write).
            let read = raw.read(0, &rw10(READ_10, 0, 1), BLOCK as u32);
            let now = read.data[0];
            assert!(
                read.data == [now; BLOCK] && [holds, holds.wrapping_add(1)].contains(&now),
                "round {i}"
            );
            holds = now;
        }
    }
    assert_eq!(wrote + aborted, 200);
    // Commands whose data was not sent can't have completed, so they must have been aborted.
    assert!(aborted >= 20, "{aborted} aborted");
    let read = sessions[0].read(0, &rw10(READ_10, 0, 1), BLOCK as u32);
    assert_eq!(
        read.data, [holds; BLOCK],
        "{wrote} written, {aborted} aborted"
    );
    // A comparison with outdated data fails, with the position of the mismatch.
    let stale = [[holds.wrapping_sub(1); BLOCK], [0xee; BLOCK]].concat();
    let ended = sessions[1].write(0, &compare_and_write(0, 1), &stale);
    assert_eq!(
        code_of(&ended),
        (ScsiStatus::CheckCondition, Some((key::MISCOMPARE, 0x1d, 0)))
    );
    assert_eq!(ended.sense.expect("sense").information, Some(0));
}

/// Data-Out whose length differs from that of COMPARE AND WRITE is rejected, with both ways of sending it, and
/// nothing is compared or written.
#[test]
fn compare_and_write_of_another_length() {
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let mut raw = login(&target, "length");
    let zeros_then_ones = [[0; 2 * BLOCK], [1; 2 * BLOCK]].concat();
    for blocks in [1, 3, 0, 255] {
        // The first blocks would compare equal.
        let refused = (
            ScsiStatus::CheckCondition,
            Some((key::ILLEGAL_REQUEST, 0x24, 0)),
        );
        let ended = raw.write(0, &compare_and_write(0, blocks), &zeros_then_ones);
        assert_eq!(code_of(&ended), refused, "{blocks} blocks");
        let cdb = compare_and_write(0, blocks);
        let command = raw.command(0, &cdb, code::command::WRITE, zeros_then_ones.len() as u32);
        raw.send(&command.into(), &zeros_then_ones);
        let ended = raw.finish(command.initiator_task_tag.get(), &[]);
        assert_eq!(code_of(&ended), refused, "{blocks} blocks, immediate");
    }
    assert_eq!(
        raw.read(0, &rw10(READ_10, 0, 4), 4 * BLOCK as u32).data,
        [0; 4 * BLOCK]
    );
    assert_eq!(
        raw.write(0, &compare_and_write(0, 2), &zeros_then_ones)
            .status,
        ScsiStatus::Good
    );
    assert_eq!(
        raw.read(0, &rw10(READ_10, 0, 2), 2 * BLOCK as u32).data,
        [1; 2 * BLOCK]
    );
}

/// Wrong DataSNs in the answer to an R2T make that write fail with CHECK CONDITION once its sequence is over; the
/// connection continues, and writes with correct DataSNs succeed.
#[test]
fn wrong_data_sns_fail_only_that_write() {
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let mut raw = login(&target, "datasn");
    let data = [[0xa1; BLOCK], [0xa2; BLOCK], [0xa3; BLOCK]].concat();
    let mut check = |data_sns: [u32; 3], expected: bool| {
        let command = raw.command(
            0,
            &rw10(WRITE_10, 100, 3),
            code::command::WRITE,
            data.len() as u32,
        );
        raw.send(&command.into(), &[]);
        let pdu = raw.recv().expect("an R2T");
        assert_eq!(pdu.kind(), Opcode::R2t, "{pdu:?}");
        let r2t = *R2t::view(&pdu.bhs);
        for (i, data_sn) in data_sns.into_iter().enumerate() {
            let out = data_out(&r2t, data_sn, (i * BLOCK) as u32, i == 2);
            raw.send(&out.into(), &data[i * BLOCK..(i + 1) * BLOCK]);
        }
        let ended = raw.finish(command.initiator_task_tag.get(), &data);
        assert_eq!(
            ended.status == ScsiStatus::Good,
            expected,
            "DataSN {data_sns:?}: {ended:?}"
        );
        if !expected {
            assert_eq!(
                ended.sense.map(|sense| sense.key),
                Some(key::ABORTED_COMMAND),
                "{data_sns:?}"
            );
        }
        assert_eq!(raw.ping(b"alive").kind(), Opcode::NopIn);
    };
    check([0, 0, 1], false);
    check([0, 1, 1], false);
    check([2, 1, 0], false);
    check([27, 28, 29], false);
    check([0, 1, 27], false);
    check([u32::MAX, 0, 1], false);
    check([0, 1, 2], true);
    assert_eq!(
        raw.read(0, &rw10(READ_10, 100, 3), 3 * BLOCK as u32).data,
        data
    );
}

/// D_SENSE determines the format of sense data on every nexus of the unit immediately, and a reset reverts it.
#[test]
fn d_sense_selects_the_format_of_sense_data() {
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let (mut a, mut b) = (login(&target, "a"), login(&target, "b"));
    // Sends READ (16) far beyond the end; returns the first byte of the sense data.
    let format = |raw: &mut Raw| {
        let mut cdb = [0; 16];
        cdb[0] = 0x88;
        cdb[2] = 0x7f;
        cdb[13] = 1;
        let command = raw.command(0, &cdb, code::command::READ, BLOCK as u32);
        raw.send(&command.into(), &[]);
        let pdu = raw.recv().expect("a response");
        assert_eq!(pdu.kind(), Opcode::ScsiResponse);
        assert_eq!(
            usize::from(u16::from_be_bytes([pdu.data[0], pdu.data[1]])),
            pdu.data.len() - 2
        );
        pdu.data[2]
    };
    let control = |raw: &mut Raw, page_control: u8| {
        let ended = raw.read(0, &[0x1a, 0x08, page_control << 6 | 0x0a, 0, 255, 0], 255);
        assert_eq!(ended.status, ScsiStatus::Good);
        ended.data
    };
    let select =
        |raw: &mut Raw, list: &[u8]| raw.write(0, &[0x15, 0x10, 0, 0, list.len() as u8, 0], list);
    assert_eq!((format(&mut a), format(&mut b)), (0x70, 0x70));
    assert_eq!(control(&mut a, 1)[4 + 2], 0x04, "D_SENSE is changeable");
    let mut list = control(&mut a, 0);
    list[0] = 0;
    list[4 + 2] |= 0x04;
    assert_eq!(select(&mut a, &list).status, ScsiStatus::Good);
    assert_eq!(format(&mut a), 0x72);
    // The unit attention that reports the change already has the new format.
    let told = b.read(0, &[0; 6], 0);
    assert_eq!(
        code_of(&told),
        (
            ScsiStatus::CheckCondition,
            Some((key::UNIT_ATTENTION, 0x2a, 0x01))
        )
    );
    assert_eq!(format(&mut b), 0x72);
    assert_eq!(control(&mut b, 0)[4 + 2] & 0x04, 0x04);
    assert_eq!(control(&mut b, 2)[4 + 2] & 0x04, 0, "the default");
    let reset = a.manage(0, code::task_management::LOGICAL_UNIT_RESET, u32::MAX, 0);
    assert_eq!(TaskManagementResponse::view(&reset.bhs).response, 0);
    a.settle(0);
    assert_eq!(format(&mut a), 0x70);
}

/// RESERVE (6) locks out the other initiator until the holder, and only the holder, releases the reservation: by
/// RELEASE, by logging out, or by losing its connection.
#[test]
fn only_its_holder_can_release_a_reservation() {
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
    let mut b = login(&target, "b");
    let write = |raw: &mut Raw| raw.write(0, &rw10(WRITE_10, 0, 1), &[7; BLOCK]).status;
    type LetGo = fn(Raw);
    let ways: [(&str, LetGo); 3] = [
        ("release", |mut a| {
            assert_eq!(
                a.read(0, &[0x17, 0, 0, 0, 0, 0], 0).status,
                ScsiStatus::Good
            );
            a.logout();
        }),
        ("logout", |mut a| {
            a.logout();
        }),
        ("loss", drop),
    ];
    for (what, let_go) in ways {
        let mut a = login(&target, "a");
        assert_eq!(a.read(0, &reserve, 0).status, ScsiStatus::Good, "{what}");
        assert_eq!(
            b.read(0, &reserve, 0).status,
            ScsiStatus::ReservationConflict,
            "{what}"
        );
        assert_eq!(write(&mut b), ScsiStatus::ReservationConflict, "{what}");
        // RELEASE by another initiator returns GOOD, but has no effect.
        assert_eq!(b.read(0, &release, 0).status, ScsiStatus::Good, "{what}");
        assert_eq!(write(&mut b), ScsiStatus::ReservationConflict, "{what}");
        assert_eq!(write(&mut a), ScsiStatus::Good, "{what}");
        let_go(a);
        support::eventually(what, 10, || write(&mut b) == ScsiStatus::Good);
    }
}

/// A normal session may use SendTargets; an invalid request gets a Reject, and the session continues.
#[test]
fn send_targets_works_in_a_normal_session() {
    let target = Target::start(&[
        "--lun",
        "memory:16MiB",
        "--portal",
        "127.0.0.1:0",
        "--portal",
        "127.0.0.1:0",
    ]);
    let mut raw = login(&target, "text");
    for value in ["All", "", TARGET_NAME] {
        let answer = raw.text(&[("SendTargets", value)]);
        assert_eq!(answer.kind(), Opcode::TextResponse, "{value}");
        assert_eq!(
            TextResponse::view(&answer.bhs).flags & 0x80,
            0x80,
            "{value}"
        );
        assert_eq!(answer.value("TargetName"), Some(TARGET_NAME), "{value}");
        let addresses = answer
            .pairs()
            .into_iter()
            .filter(|(key, _)| *key == "TargetAddress");
        let addresses: Vec<String> = addresses.map(|(_, value)| value.to_string()).collect();
        for portal in &target.portals {
            assert!(
                addresses.iter().any(|a| a.starts_with(&portal.to_string())),
                "{addresses:?}"
            );
        }
    }
    let wrong = [
        ("SendTargetsPlease", "All"),
        ("SendTargets", "Alle"),
        ("SendTargets", "A"),
        ("sENDtARGETS", "aLL"),
        ("SendTargets", "all"),
    ];
    for (name, value) in wrong {
        assert_eq!(
            raw.text(&[(name, value)]).kind(),
            Opcode::Reject,
            "{name}={value}"
        );
    }
    assert_eq!(
        raw.text(&[("SendTargets", "All")]).kind(),
        Opcode::TextResponse
    );
    assert_eq!(raw.read(0, &[0; 6], 0).status, ScsiStatus::Good);
}

/// REPORT LUNS lists each LUN once; a list that doesn't fit is truncated, however short the allocation length, and
/// its header gives the full length (SPC-4, 6.33).
#[test]
fn report_luns_lists_each_lun_once() {
    let target = Target::start(&[
        "--lun",
        "memory:16MiB",
        "--lun",
        "memory:16MiB",
        "--lun",
        "memory:16MiB",
    ]);
    let mut raw = login(&target, "luns");
    for allocation in 0..=64u8 {
        let cdb = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0, allocation, 0, 0];
        let ended = raw.read(0, &cdb, allocation.into());
        let whole: Vec<u8> = [
            [0, 0, 0, 24, 0, 0, 0, 0],
            [0; 8],
            [0, 1, 0, 0, 0, 0, 0, 0],
            [0, 2, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(ended.status, ScsiStatus::Good, "{allocation} bytes");
        assert_eq!(
            ended.data,
            whole[..whole.len().min(allocation.into())],
            "{allocation} bytes"
        );
    }
}

/// A CmdSN below or above the window is ignored even for a write with immediate data: nothing is written, and the
/// same number works when used correctly.
#[test]
fn a_write_with_a_cmd_sn_outside_the_window_writes_nothing() {
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let mut raw = login(&target, "cmdsn");
    raw.ping(b"window");
    let (exp_cmd_sn, max_cmd_sn) = raw.window;
    for (what, cmd_sn) in [
        ("below", exp_cmd_sn.wrapping_sub(1)),
        ("above", max_cmd_sn.wrapping_add(1)),
    ] {
        let mut command = raw.command(0, &rw10(WRITE_10, 5, 1), code::command::WRITE, BLOCK as u32);
        command.cmd_sn = cmd_sn.into();
        raw.send(&command.into(), &[0xbb; BLOCK]);
        raw.cmd_sn = exp_cmd_sn;
        assert_eq!(raw.ping(b"alive").kind(), Opcode::NopIn, "{what}: answered");
    }
    let command = raw.command(0, &rw10(READ_10, 5, 1), code::command::READ, BLOCK as u32);
    raw.send(&command.into(), &[]);
    let pdu = raw.recv().expect("the data");
    assert_eq!(pdu.kind(), Opcode::DataIn);
    assert_eq!(
        DataIn::view(&pdu.bhs).initiator_task_tag,
        command.initiator_task_tag
    );
    assert_eq!(pdu.data, [0; BLOCK]);
}
