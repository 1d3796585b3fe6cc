//! Misbehaving peers: the target answers with the RFC's reject or closes only that connection. Its memory stays
//! bounded, and the I/O of other sessions continues undisturbed.
//!
//! Each test has a bystander: a well-behaved session that writes, reads back and compares throughout, on its own LUN.

use crate::support;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::raw::{Raw, assemble, data_out, encode, isid_of, login_request, rw10};
use crate::support::{TARGET_NAME, Target, eventually};
use brunt_core::random::Random;
use brunt_wire::iscsi::pdu::{
    BHS_BYTES, DataOut, LoginResponse, OPCODE_IMMEDIATE, R2t, RESERVED_TAG, Reject, U24, code,
};
use brunt_wire::iscsi::{Bhs, Opcode};
use brunt_wire::scsi::sense::ScsiStatus;
use zerocopy::IntoBytes;

const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;

/// Maximum growth of resident memory under attack, regardless of the attack's size. A half-open login costs a few KiB
/// (a PDU's header and the received part of its 8 KiB segment), so 10,000 of them stay below this limit even if the
/// target keeps them all.
const GROWTH_BYTES_MAX: u64 = 192 << 20;

fn target() -> Target {
    Target::start(&["--lun", "memory:16MiB", "--lun", "memory:16MiB"])
}

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

/// A session on LUN 1 that must never be disturbed.
struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Bystander {
    fn start(address: SocketAddr) -> Bystander {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let mut raw = Raw::login(address, "iqn.2026-11.io.brunt:bystander", TARGET_NAME, &[]);
        raw.settle(1);
        let thread = std::thread::spawn(move || {
            let mut random = Random::new(1);
            let mut rounds = 0;
            let mut data = vec![0; 16 * 512];
            while !seen.load(Ordering::Relaxed) || rounds == 0 {
                let lba = random.below(32768 - 16) as u32;
                random.fill(&mut data);
                let wrote = raw.write(1, &rw10(WRITE_10, lba, 16), &data);
                assert_eq!(
                    wrote.status,
                    ScsiStatus::Good,
                    "the bystander's write: {wrote:?}"
                );
                let read = raw.read(1, &rw10(READ_10, lba, 16), data.len() as u32);
                assert_eq!(
                    read.status,
                    ScsiStatus::Good,
                    "the bystander's read: {read:?}"
                );
                assert!(read.data == data, "the bystander read back something else");
                rounds += 1;
            }
            rounds
        });
        Bystander { stop, thread }
    }

    /// Ends the bystander, which must not have been disturbed.
    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let rounds = self.thread.join().expect("the bystander noticed");
        assert!(rounds > 0);
    }
}

/// Runs `attack` while a bystander works. Afterwards, the target is alive, has no more connections than before, and
/// its memory has not grown.
fn survives(attack: impl FnOnce(&Target)) {
    let mut target = target();
    let bystander = Bystander::start(target.address());
    let (bytes, descriptors) = (target.resident_bytes(), target.descriptors_count());
    attack(&target);
    assert!(target.is_alive(), "the target died");
    bystander.finish();
    // The bystander's own connection may be gone already.
    eventually("the target closes what its peers closed", 30, || {
        target.descriptors_count() <= descriptors
    });
    let grown = target.resident_bytes().saturating_sub(bytes);
    assert!(grown < GROWTH_BYTES_MAX, "grew by {grown} bytes");
    let mut after = login(&target, "after");
    assert_eq!(
        after.read(0, &rw10(READ_10, 0, 1), 512).status,
        ScsiStatus::Good
    );
}

/// Asserts that a connection that broke the rules gets an answer that says so, or is closed.
fn told_or_closed(raw: &mut Raw, what: &str) {
    match raw.recv() {
        Ok(pdu) => match pdu.kind() {
            Opcode::Reject => {
                let reason = Reject::view(&pdu.bhs).reason;
                assert!(
                    (0x02..=0x0c).contains(&reason),
                    "{what}: reason {reason:#x} is not the RFC's"
                );
                assert!(
                    pdu.data.len() >= BHS_BYTES,
                    "{what}: a reject carries the header it rejects"
                );
            }
            Opcode::LoginResponse => {
                let class = LoginResponse::view(&pdu.bhs).status_class;
                assert!(class != 0, "{what}: login went on");
            }
            Opcode::ScsiResponse => {
                let status = brunt_wire::iscsi::pdu::ScsiResponse::view(&pdu.bhs);
                assert!(
                    status.status != 0 || status.response != 0,
                    "{what}: ended GOOD"
                );
            }
            other => panic!("{what}: answered with {other:?}"),
        },
        Err(error) => assert!(
            !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
            "{what}: neither told nor closed"
        ),
    }
}

fn login_bytes(who: &str) -> Vec<u8> {
    let name = format!("iqn.2026-11.io.brunt:{who}");
    let pairs = [
        ("InitiatorName", name.as_str()),
        ("TargetName", TARGET_NAME),
        ("AuthMethod", "None"),
    ];
    assemble(&login_request(isid_of(&name)).into(), &encode(&pairs))
}

/// A login cut off at every byte leaves nothing behind.
#[test]
fn a_login_truncated_at_any_byte_leaves_nothing_behind() {
    survives(|target| {
        let bytes = login_bytes("cut");
        for end in 0..bytes.len() {
            let mut raw = Raw::connect(target.address());
            raw.send_bytes(&bytes[..end]);
        }
    });
}

/// A write with immediate data cut off at every byte (then at every 37th of its data) leaves nothing behind, and
/// changes only its own blocks. These hold either the old data or the new, because an unanswered write guarantees
/// neither (SBC-3, 4.18).
#[test]
fn a_write_truncated_at_any_byte_changes_only_its_own_blocks() {
    survives(|target| {
        let data = [0xee; 4096];
        for end in (0..100).chain((100..BHS_BYTES + data.len()).step_by(37)) {
            let mut raw = login(target, "cut");
            let command = raw.command(0, &rw10(WRITE_10, 0, 8), code::command::WRITE, 4096);
            let bytes = assemble(&command.into(), &data);
            raw.send_bytes(&bytes[..end]);
        }
        let read = login(target, "reader").read(0, &rw10(READ_10, 0, 16), 8192);
        let (its, other) = read.data.split_at(data.len());
        assert!(
            its.iter().all(|&byte| byte == 0 || byte == 0xee),
            "neither the old data nor the new"
        );
        assert!(
            other.iter().all(|&byte| byte == 0),
            "a truncated write reached another block"
        );
    });
}

/// Lengths beyond the declared limits are rejected based on the header alone; the target never allocates memory on a
/// peer's word.
#[test]
fn oversized_lengths_are_refused_from_the_header() {
    survives(|target| {
        // A data segment of 16 MiB minus one byte in a login: the login phase allows 8 KiB (RFC 7143, 13.12).
        let mut bhs = Bhs::from(login_request(isid_of("big")));
        bhs.data_segment_length = U24::new(0xff_ffff);
        for _ in 0..64 {
            let mut raw = Raw::connect(target.address());
            raw.send_bytes(bhs.as_bytes());
            raw.send_bytes(&[b'a'; 16384]);
            told_or_closed(&mut raw, "a login of 16 MiB");
        }
        // Excessive lengths in full feature phase, and invalid additional header segments.
        let mut raw = login(target, "big");
        let mut bhs = Bhs::from(raw.command(0, &rw10(WRITE_10, 0, 8), code::command::WRITE, 4096));
        bhs.data_segment_length = U24::new(0xff_ffff);
        raw.send_bytes(bhs.as_bytes());
        told_or_closed(&mut raw, "a segment of 16 MiB");

        let mut raw = login(target, "ahs");
        let mut bhs = Bhs::from(raw.command(0, &rw10(READ_10, 0, 8), code::command::READ, 4096));
        bhs.total_ahs_length = 255;
        raw.send_bytes(bhs.as_bytes());
        raw.send_bytes(&[0xff; 255 * 4]);
        told_or_closed(&mut raw, "additional headers of nonsense");

        // More immediate data than the command writes.
        let mut raw = login(target, "more");
        let command = raw.command(0, &rw10(WRITE_10, 0, 1), code::command::WRITE, 512);
        raw.send(&command.into(), &[0xee; 4096]);
        told_or_closed(&mut raw, "immediate data beyond the expected length");
    });
}

/// A length claimed only in the CDB or only in the transport header costs nothing: if 4 GiB are expected but not in
/// the CDB, or the reverse, the command ends with a residual or an error.
#[test]
fn disagreeing_lengths_end_with_a_residual_or_an_error() {
    survives(|target| {
        for (expected, blocks) in [(0xffff_fe00_u32, 1), (512, 0xffff), (0, 8)] {
            for direction in [code::command::READ, code::command::WRITE] {
                let mut raw = login(target, "disagree");
                let operation = if direction == code::command::READ {
                    READ_10
                } else {
                    WRITE_10
                };
                let command = raw.command(0, &rw10(operation, 0, blocks), direction, expected);
                raw.send(&command.into(), &[]);
                // At most 32 MiB is transferred, and the connection can be closed.
                let mut moved = 0;
                while let Ok(pdu) = raw.recv() {
                    match pdu.kind() {
                        Opcode::DataIn if pdu.bhs.flags & code::response::STATUS == 0 => {
                            moved += pdu.data.len()
                        }
                        Opcode::R2t => {
                            let r2t = R2t::view(&pdu.bhs);
                            let wanted = r2t.desired_data_transfer_length.get();
                            assert!(wanted <= expected, "an R2T for more than was announced");
                            break;
                        }
                        _ => break,
                    }
                    assert!(moved <= 32 << 20, "more data than the CDB asks for");
                }
            }
        }
    });
}

/// PDUs in the wrong phase, unknown PDUs, and PDUs that only a target may send.
#[test]
fn pdus_in_the_wrong_phase_are_rejected_or_the_connection_closed() {
    survives(|target| {
        // PDUs sent before any login.
        let mut raw = Raw::connect(target.address());
        let command = raw.command(0, &[0; 6], 0, 0);
        raw.send(&command.into(), &[]);
        told_or_closed(&mut raw, "a command before login");

        // Every opcode right after login, except requests, whose answers are tested elsewhere.
        for opcode in 0..64_u8 {
            let kind = Opcode::from_byte(opcode);
            if matches!(
                kind,
                Opcode::NopOut
                    | Opcode::ScsiCommand
                    | Opcode::TaskManagementRequest
                    | Opcode::TextRequest
                    | Opcode::LogoutRequest
            ) {
                continue;
            }
            let mut raw = login(target, "opcode");
            let mut bhs = Bhs::from(raw.command(0, &[0; 6], 0, 0));
            bhs.opcode = opcode | OPCODE_IMMEDIATE;
            if kind == Opcode::DataOut {
                bhs.opcode = opcode;
            }
            raw.send(&bhs, &[]);
            told_or_closed(&mut raw, &format!("opcode {opcode:#04x}"));
        }

        // A login in the middle of a session, and a login that skips stages.
        let mut raw = login(target, "again");
        raw.send_bytes(&login_bytes("again"));
        told_or_closed(&mut raw, "a login in full feature phase");
        let mut request = login_request(isid_of("skip"));
        request.flags = code::login::TRANSIT | code::login::STAGE_FULL_FEATURE << 2;
        let mut raw = Raw::connect(target.address());
        raw.send(
            &request.into(),
            &encode(&[("InitiatorName", "iqn.2026-11.io.brunt:skip")]),
        );
        told_or_closed(&mut raw, "a login from full feature phase");
    });
}

/// Login text that isn't text, and keys that never end.
#[test]
fn invalid_login_text_is_answered_or_the_connection_closed() {
    survives(|target| {
        let long = format!("InitiatorName={}", "x".repeat(8000));
        let many: String = (0..900).map(|i| format!("X-k{i}=v\0")).collect();
        let texts: [&[u8]; 7] = [
            b"\xff\xfe\0",
            b"no equals sign\0",
            b"=value\0",
            b"InitiatorName=\0",
            long.as_bytes(),
            many.as_bytes(),
            b"InitiatorName=iqn.2026-11.io.brunt:x\0TargetName=iqn.nobody:here\0",
        ];
        for text in texts {
            let mut raw = Raw::connect(target.address());
            raw.send(&login_request(isid_of("text")).into(), text);
            told_or_closed(
                &mut raw,
                &String::from_utf8_lossy(&text[..text.len().min(40)]),
            );
        }
        // A login that never leaves its stage is answered or closed after a limited number of rounds.
        let mut raw = Raw::connect(target.address());
        let mut request = login_request(isid_of("forever"));
        request.flags = code::login::STAGE_OPERATIONAL << 2;
        let first = encode(&[
            ("InitiatorName", "iqn.2026-11.io.brunt:forever"),
            ("TargetName", TARGET_NAME),
        ]);
        let mut rounds = 0;
        let mut text = first.as_slice();
        let ended = loop {
            raw.send(&request.into(), text);
            text = b"";
            match raw.recv() {
                Ok(pdu) if LoginResponse::view(&pdu.bhs).status_class == 0 => {}
                _ => break true,
            }
            request.exp_stat_sn = raw.exp_stat_sn.into();
            rounds += 1;
            if rounds > 10_000 {
                break false;
            }
        };
        assert!(ended, "a login may go on for ever");
    });
}

/// Data outside an R2T's range never reaches the medium and never ends with GOOD; unsolicited data is rejected.
#[test]
fn data_outside_an_r2t_never_reaches_the_medium() {
    survives(|target| {
        type Bend = fn(&R2t, &mut DataOut) -> usize;
        let bends: [(&str, Bend); 6] = [
            ("an offset beyond the end", |_, out| {
                out.buffer_offset = 0xffff_f000.into();
                4096
            }),
            ("an offset before the R2T's", |_, out| {
                out.buffer_offset = 512.into();
                4096
            }),
            ("DataSN 27", |_, out| {
                out.data_sn = 27.into();
                4096
            }),
            ("another transfer tag", |r2t, out| {
                out.target_transfer_tag = r2t.target_transfer_tag.get().wrapping_add(77).into();
                4096
            }),
            ("more than was asked for", |_, _| 8192),
            ("the final bit too early", |_, _| 1024),
        ];
        for (what, bend) in bends {
            let mut raw = login(target, "window");
            let command = raw.command(0, &rw10(WRITE_10, 64, 8), code::command::WRITE, 4096);
            raw.send(&command.into(), &[]);
            let pdu = raw.recv().expect("an R2T");
            assert_eq!(pdu.kind(), Opcode::R2t, "{what}: {pdu:?}");
            let r2t = R2t::view(&pdu.bhs);
            let mut out = data_out(r2t, 0, r2t.buffer_offset.get(), true);
            let bytes = bend(r2t, &mut out);
            raw.send(&out.into(), &vec![0xee; bytes]);
            told_or_closed(&mut raw, what);
        }
        // Data that doesn't belong to any command.
        let mut raw = login(target, "window");
        let out = DataOut {
            flags: 0x80,
            initiator_task_tag: 0x7777.into(),
            target_transfer_tag: RESERVED_TAG.into(),
            ..DataOut::default()
        };
        raw.send(&out.into(), &[0xee; 512]);
        told_or_closed(&mut raw, "data for no command");
    });
}

/// A CmdSN outside the window is silently ignored, and the session continues (RFC 7143, 4.2.2.1).
#[test]
fn a_cmd_sn_outside_the_window_is_ignored() {
    survives(|target| {
        let mut raw = login(target, "cmdsn");
        raw.ping(b"window");
        let (exp_cmd_sn, max_cmd_sn) = raw.window;
        for (what, cmd_sn) in [
            ("below", exp_cmd_sn.wrapping_sub(1)),
            ("above", max_cmd_sn.wrapping_add(1)),
        ] {
            let mut command = raw.command(0, &[0; 6], 0, 0);
            command.cmd_sn = cmd_sn.into();
            raw.send(&command.into(), &[]);
            raw.cmd_sn = exp_cmd_sn;
            // Responses are in order: a response to the command would arrive before the ping's.
            assert_eq!(
                raw.ping(b"still there").kind(),
                Opcode::NopIn,
                "{what}: answered"
            );
        }
        assert_eq!(raw.read(0, &[0; 6], 0).status, ScsiStatus::Good);
    });
}

/// A peer that sends commands and never reads can't make the target accumulate responses.
#[test]
fn responses_do_not_accumulate_for_a_peer_that_never_reads() {
    survives(|target| {
        let before = target.resident_bytes();
        let mut deaf: Vec<Raw> = (0..8).map(|i| login(target, &format!("deaf{i}"))).collect();
        for raw in &mut deaf {
            let window = raw.window.1.wrapping_sub(raw.cmd_sn).min(4096);
            for _ in 0..=window {
                // 1 MiB each, which is far more than any socket buffer holds.
                let command = raw.command(0, &rw10(READ_10, 0, 2048), code::command::READ, 1 << 20);
                if !raw.send(&command.into(), &[]) {
                    break;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        let grown = target.resident_bytes().saturating_sub(before);
        assert!(
            grown < GROWTH_BYTES_MAX,
            "grew by {grown} bytes for 8 deaf peers"
        );
    });
}

/// A thousand inputs of random bytes, and of real logins with a few bytes flipped, end in an answer or a closed
/// connection.
#[test]
fn random_bytes_do_not_disturb_other_sessions() {
    let seed = support::seed();
    survives(|target| {
        let mut random = Random::new(seed);
        let good = login_bytes("random");
        for round in 0..1000 {
            let mut bytes = good.clone();
            if round % 2 == 0 {
                random.fill(&mut bytes);
            } else {
                for _ in 0..3 {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.next_u64() as u8;
                }
            }
            let mut raw = Raw::connect(target.address());
            raw.send_bytes(&bytes);
        }
    });
}

/// 10,000 connections each send half a login and then wait. The target may keep the connections, time them out or
/// refuse them, but its memory is bounded, the bystander's session continues, and a new initiator gets in once they
/// are gone.
#[test]
fn memory_is_bounded_under_ten_thousand_half_open_logins() {
    let (soft, hard) = descriptor_limits();
    // Each connection needs a descriptor here, and another in the target's process.
    let held_max = 10_000.min((hard.saturating_sub(200)) as usize);
    raise_descriptors(held_max as u64 + 200);
    survives(|target| {
        let before = target.resident_bytes();
        let bytes = login_bytes("half");
        let mut held = Vec::with_capacity(held_max);
        let mut refused = 0;
        for round in 0..10_000 {
            if held.len() == held_max {
                held.remove(0);
            }
            // A full backlog counts as a refusal; the timeout prevents the test from waiting forever.
            match TcpStream::connect_timeout(&target.address(), Duration::from_secs(5)) {
                Ok(mut stream) => {
                    let half = &bytes[..bytes.len() / 2 + round % 16];
                    if std::io::Write::write_all(&mut stream, half).is_err() {
                        refused += 1;
                    }
                    held.push(stream);
                }
                Err(_) => refused += 1,
            }
        }
        let grown = target.resident_bytes().saturating_sub(before);
        println!(
            "10000 half-open logins: grew by {} KiB, {refused} refused",
            grown / 1024
        );
        assert!(grown < GROWTH_BYTES_MAX, "grew by {grown} bytes");
        for stream in &held {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(held);
        login(target, "newcomer");
    });
    raise_descriptors(soft);
}

fn descriptor_limits() -> (u64, u64) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(1 << 20),
    )
}

/// Raises this process's limit, which the target inherits.
fn raise_descriptors(count: u64) {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = Some(count.min(limit.maximum.unwrap_or(u64::MAX)));
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
        .expect("below the hard limit");
}
