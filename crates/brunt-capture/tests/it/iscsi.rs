//! iSCSI in captures: aborted tasks, sessions that began before the capture, floods.

use crate::common;
use std::collections::HashSet;
use std::path::PathBuf;

use brunt_capture::recovery::FoundOperations;
use brunt_capture::{Analysis, Ledger, Limits, Pipeline};
use brunt_core::random::Random;
use brunt_wire::iscsi::pdu::{self, Bhs, U24, code, padded};
use brunt_wire::pcap::{CapturedPacket, LinkType};
use zerocopy::IntoBytes;

const SIMPLE: u8 = 1;

/// A header followed by data.
fn pdu(header: impl Into<Bhs>, data: &[u8]) -> Vec<u8> {
    let mut bhs: Bhs = header.into();
    bhs.data_segment_length = U24::new(data.len() as u32);
    let mut bytes = bhs.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(48 + padded(data.len()), 0);
    bytes
}

fn read(tag: u32, lun: u8) -> Vec<u8> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x28, 8);
    let flags = code::command::FINAL | code::command::READ | SIMPLE;
    let command = pdu::ScsiCommand {
        flags,
        initiator_task_tag: tag.into(),
        cdb,
        ..Default::default()
    };
    let expected_data_transfer_length = 4096.into();
    pdu(
        pdu::ScsiCommand {
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            expected_data_transfer_length,
            ..command
        },
        &[],
    )
}

fn response(tag: u32) -> Vec<u8> {
    pdu(
        pdu::ScsiResponse {
            flags: 0x80,
            initiator_task_tag: tag.into(),
            ..Default::default()
        },
        &[],
    )
}

fn manage(tag: u32, function: u8, lun: u8, referenced: u32) -> Vec<u8> {
    let request = pdu::TaskManagementRequest {
        function: 0x80 | function,
        ..Default::default()
    };
    let (initiator_task_tag, referenced_task_tag) = (tag.into(), referenced.into());
    let lun = [0, lun, 0, 0, 0, 0, 0, 0];
    pdu(
        pdu::TaskManagementRequest {
            lun,
            initiator_task_tag,
            referenced_task_tag,
            ..request
        },
        &[],
    )
}

fn managed(tag: u32, response: u8) -> Vec<u8> {
    let answer = pdu::TaskManagementResponse {
        flags: 0x80,
        response,
        ..Default::default()
    };
    pdu(
        pdu::TaskManagementResponse {
            initiator_task_tag: tag.into(),
            ..answer
        },
        &[],
    )
}

fn login(tag: u32, cid: u16) -> [Vec<u8>; 2] {
    let flags = 0x87;
    let text = b"InitiatorName=iqn.a\0TargetName=iqn.b\0SessionType=Normal\0";
    let request = pdu::LoginRequest {
        flags,
        initiator_task_tag: tag.into(),
        cid: cid.into(),
        ..Default::default()
    };
    let response = pdu::LoginResponse {
        flags,
        initiator_task_tag: tag.into(),
        ..Default::default()
    };
    [pdu(request, text), pdu(response, b"HeaderDigest=None\0")]
}

/// A capture built from individual PDUs, one microsecond apart.
struct Tap {
    pipeline: Pipeline<FoundOperations>,
    sent: Vec<[u32; 2]>,
    packets: u64,
}

impl Tap {
    fn new(connections: usize) -> Tap {
        let pipeline = Pipeline::new(FoundOperations::default(), Limits::default());
        Tap {
            pipeline,
            sent: vec![[1; 2]; connections],
            packets: 0,
        }
    }

    fn see(&mut self, connection: usize, from_target: bool, bytes: &[u8]) {
        let packet = packet(
            connection as u16,
            from_target,
            &mut self.sent[connection],
            bytes,
        );
        self.pipeline.on_packet(&CapturedPacket {
            time_ns: self.packets * 1000,
            wire_len: packet.len() as u32,
            interface: 0,
            link: LinkType::Raw,
            bytes: &packet,
        });
        self.packets += 1;
    }

    fn asks(&mut self, connection: usize, bytes: &[u8]) {
        self.see(connection, false, bytes);
    }

    fn answers(&mut self, connection: usize, bytes: &[u8]) {
        self.see(connection, true, bytes);
    }

    fn end(self) -> (FoundOperations, Ledger) {
        let (found, ledger) = self.pipeline.finish();
        ledger.check().unwrap();
        (found, ledger)
    }
}

fn packet(connection: u16, from_target: bool, sent: &mut [u32; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(((40 + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    let ends = [
        ([10u8, 0, 0, 1], 40_000 + connection),
        ([10, 0, 0, 2], 3260),
    ];
    let [from, to] = if from_target {
        [ends[1], ends[0]]
    } else {
        ends
    };
    packet.extend(from.0);
    packet.extend(to.0);
    packet.extend(from.1.to_be_bytes());
    packet.extend(to.1.to_be_bytes());
    packet.extend(sent[usize::from(from_target)].to_be_bytes());
    packet.extend(sent[usize::from(!from_target)].to_be_bytes());
    packet.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(payload);
    sent[usize::from(from_target)] += payload.len() as u32;
    packet
}

/// Tasks aborted by a task management function no longer wait, and are counted separately from timeouts. Tasks of
/// other units, and tasks sent later, continue. A failed function aborts nothing.
#[test]
fn aborted_tasks_are_counted_and_have_no_latency() {
    use code::task_management as function;
    let check = |asked: u8, answer: u8, aborted: &[u32]| {
        let mut tap = Tap::new(1);
        let [request, reply] = login(1, 0);
        tap.asks(0, &request);
        tap.answers(0, &reply);
        for (tag, lun) in [(10, 0), (11, 0), (12, 1)] {
            tap.asks(0, &read(tag, lun));
        }
        tap.asks(0, &manage(20, asked, 0, 11));
        // This task was sent after the immediate function, which therefore must not abort it.
        tap.asks(0, &read(13, 0));
        tap.answers(0, &managed(20, answer));
        for tag in [10, 11, 12, 13]
            .into_iter()
            .filter(|tag| !aborted.contains(tag))
        {
            tap.answers(0, &response(tag));
        }
        let (found, ledger) = tap.end();
        let counts = (
            ledger.calls,
            ledger.calls_answered,
            ledger.calls_aborted,
            ledger.replies_unmatched,
        );
        assert_eq!(
            counts,
            (5, 5 - aborted.len() as u64, aborted.len() as u64, 0),
            "{asked} {answer}"
        );
        for ((_, _, tag), operation) in &found.operations {
            assert_eq!(
                operation.reply.is_none(),
                aborted.contains(tag),
                "{asked} {answer}: {tag}"
            );
        }
        assert_eq!(found.operations.len(), 5);
    };
    check(function::ABORT_TASK, function::FUNCTION_COMPLETE, &[11]);
    check(function::ABORT_TASK, function::TASK_DOES_NOT_EXIST, &[]);
    check(
        function::ABORT_TASK_SET,
        function::FUNCTION_COMPLETE,
        &[10, 11],
    );
    check(
        function::LOGICAL_UNIT_RESET,
        function::FUNCTION_COMPLETE,
        &[10, 11],
    );
    check(function::LOGICAL_UNIT_RESET, function::REJECTED, &[]);
    check(
        function::TARGET_WARM_RESET,
        function::FUNCTION_COMPLETE,
        &[10, 11, 12],
    );
    check(function::CLEAR_ACA, function::FUNCTION_COMPLETE, &[]);
}

/// A reset aborts tasks on all connections of its own session and none of other sessions; ABORT TASK refers to a tag
/// on its own connection.
#[test]
fn resets_abort_the_tasks_of_their_session_only() {
    use code::task_management as function;
    let mut tap = Tap::new(3);
    for connection in 0..2 {
        let [request, reply] = login(1, connection as u16);
        tap.asks(connection, &request);
        tap.answers(connection, &reply);
    }
    // The third connection belongs to a session whose login was not captured.
    for connection in 0..3 {
        tap.asks(connection, &read(10, 0));
    }
    tap.asks(1, &manage(20, function::ABORT_TASK, 0, 10));
    tap.answers(1, &managed(20, function::FUNCTION_COMPLETE));
    assert_eq!(tap.pipeline.ledger().calls_aborted, 1);
    tap.asks(1, &manage(21, function::LOGICAL_UNIT_RESET, 0, 0));
    tap.answers(1, &managed(21, function::FUNCTION_COMPLETE));
    assert_eq!(tap.pipeline.ledger().calls_aborted, 2);
    tap.answers(2, &response(10));
    let (_, ledger) = tap.end();
    assert_eq!(
        (ledger.calls, ledger.calls_answered, ledger.calls_aborted),
        (5, 3, 2)
    );
}

/// Captures of real sessions (`tools/iscsi-captures.sh`).
fn stored() -> Vec<PathBuf> {
    let folder = common::small_piece()
        .parent()
        .expect("testdata")
        .join("iscsi");
    let mut stored: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("captures")
        .map(|file| file.expect("a file").path())
        .collect();
    stored.sort();
    assert!(stored.len() >= 8);
    stored
}

fn run(packets: &[common::Packet], keeps: impl Fn(usize) -> bool) -> (FoundOperations, Ledger) {
    let mut pipeline = Pipeline::new(FoundOperations::default(), Limits::default());
    for (index, packet) in packets
        .iter()
        .enumerate()
        .filter(|(index, _)| keeps(*index))
    {
        pipeline.on_packet(&common::numbered(index, packet));
    }
    let (found, ledger) = pipeline.finish();
    ledger.check().unwrap();
    (found, ledger)
}

/// The Linux initiator resets a unit and a target while a READ is outstanding on each; these are the only commands
/// without a response.
#[test]
fn commands_reset_by_a_real_initiator_count_as_aborted() {
    let path = stored()
        .into_iter()
        .find(|path| path.ends_with("brunt-tasks.pcapng.zst"))
        .expect("it is stored");
    let (_, ledger) = run(&common::packets(&path), |_| true);
    let open = ledger.calls_open_at_end + ledger.calls_timed_out + ledger.calls_evicted;
    assert_eq!(
        (
            ledger.calls,
            ledger.calls_answered,
            ledger.calls_aborted,
            open
        ),
        (56, 54, 2, 0)
    );
}

/// A capture that began mid-session still yields the later commands, except at most one per connection until the PDU
/// boundaries are known. No command is made up, and earlier ones are counted as missing.
#[test]
fn captures_begun_mid_session_yield_the_later_commands() {
    for path in stored() {
        let name = path.file_name().expect("a file").display().to_string();
        let packets = common::packets(&path);
        let (truth, _) = run(&packets, |_| true);
        let connections: HashSet<_> = truth
            .operations
            .keys()
            .map(|(client, port, _)| (client, port))
            .collect();
        let (mut possible, mut lost) = (0, 0);
        for cut in (1..packets.len()).step_by(packets.len() / 64 + 1) {
            let kept: Vec<bool> = (0..packets.len()).map(|index| index >= cut).collect();
            let (found, ledger) = run(&packets, |index| kept[index]);
            let recovery = truth.compare(&found, &kept, true);
            assert_eq!(
                recovery.invented,
                Vec::<String>::new(),
                "{name} from packet {cut} on"
            );
            let missing = recovery.possible - recovery.recovered;
            assert!(
                missing <= connections.len() as u64,
                "{name} from packet {cut} on: {missing} of {} lost",
                recovery.possible
            );
            (possible, lost) = (possible + recovery.possible, lost + missing);
            let is_cut = |call: u64, reply: u64| call < cut as u64 && reply >= cut as u64;
            if truth
                .operations
                .values()
                .any(|seen| seen.reply.is_some_and(|reply| is_cut(seen.call, reply)))
            {
                assert!(
                    ledger.replies_unmatched + ledger.slow_mode_bytes > 0,
                    "{name} from packet {cut} on"
                );
            }
        }
        println!("{name}: {lost} of {possible} commands lost");
    }
}

/// With garbage on iSCSI's port, including headers and endless resets, memory stays bounded, and so does the time
/// that a reset takes.
#[test]
fn floods_of_garbage_and_resets_stay_bounded() {
    let mut random = Random::new(12);
    let mut pipeline = Pipeline::new(Analysis::new(), Limits::default());
    let mut sent = [[1u32; 2]; 8];
    let mut feed = |connection: usize, from_target: bool, bytes: &[u8]| {
        let packet = packet(connection as u16, from_target, &mut sent[connection], bytes);
        let len = packet.len() as u32;
        let link = LinkType::Raw;
        pipeline.on_packet(&CapturedPacket {
            time_ns: 1,
            wire_len: len,
            interface: 0,
            link,
            bytes: &packet,
        });
    };
    // More tasks than the limit, then resets of another unit, each of which would examine all tasks.
    for tag in 0..100_000 {
        feed(0, false, &read(tag, 0));
    }
    for tag in 200_000..300_000 {
        // The last reset is for the unit with the tasks, but aborts none, because resets have already examined too
        // many.
        let unit = u8::from(tag != 299_999);
        feed(
            0,
            false,
            &manage(tag, code::task_management::LOGICAL_UNIT_RESET, unit, 0),
        );
        feed(
            0,
            true,
            &managed(tag, code::task_management::FUNCTION_COMPLETE),
        );
    }
    let mut payload = [0; 1400];
    for round in 0..20_000usize {
        random.fill(&mut payload);
        // Header-like byte sequences throughout the payload.
        let [opcode, flags] = [[0x01, 0xc1], [0x25, 0x81], [0x05, 0x80]][round % 3];
        for at in (0..payload.len() - 8).step_by(1 + round % 9) {
            payload[at..at + 8].copy_from_slice(&[opcode, flags, 0, 0, 0, 0x40, 0, 0]);
        }
        feed(1 + round % 7, round % 2 == 0, &payload);
    }
    let ledger = pipeline.ledger().clone();
    ledger.check().unwrap();
    assert!(
        ledger.calls_evicted > 0 && ledger.calls_aborted == 0 && ledger.slow_mode_bytes > 10 << 20
    );
    assert!(pipeline.kept_bytes() <= Limits::default().kept_bytes);
    pipeline.finish().1.check().unwrap();
}
