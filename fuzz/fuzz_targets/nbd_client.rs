//! An NBD client with arbitrary server data: handshakes end, no data is written outside a request's buffer, and every
//! request completes exactly once, even if the connection breaks.
//!
//! So that replies reach a request at all, a cookie whose first byte is 0xfe is replaced by an outstanding one.
#![no_main]

use std::time::Duration;

use brunt_block::remote::RemoteSession;
use brunt_block::{Buf, DeviceError, Op, Request};
use brunt_core::Nanos;
use brunt_store::nbd::NbdExport;
use brunt_store::nbd::handshake::{NbdHandshake, NbdStep, NbdHandshakeOptions};
use brunt_store::nbd::session::{NbdPayload, NbdSession, NbdSessionConfig};
use brunt_wire::nbd::{NbdHeaders, NbdReply, NbdRequest};
use libfuzzer_sys::fuzz_target;

const BLOCK: u64 = 512;

// One byte chooses the options, eight choose the requests; the rest is the server's data.
fuzz_target!(|input: &[u8]| {
    let Some((choices, mut bytes)) = input.split_first_chunk::<9>() else {
        return;
    };
    let headers = [
        NbdHeaders::Simple,
        NbdHeaders::Structured,
        NbdHeaders::Extended,
    ][usize::from(choices[0] % 3)];
    let wishes = NbdHandshakeOptions {
        export: "disk".to_string(),
        headers,
        tls: choices[0] & 0x40 != 0,
        list: choices[0] & 0x80 != 0,
    };
    let mut handshake = NbdHandshake::new(wishes);
    let export: NbdExport = loop {
        let wants = handshake.wants();
        let Some((now, later)) = bytes.split_at_checked(wants) else {
            return;
        };
        bytes = later;
        match handshake.on_bytes(now) {
            Ok(NbdStep::More | NbdStep::Send(_)) => {}
            Ok(NbdStep::StartTls) => drop(handshake.on_tls()),
            Ok(NbdStep::Done(export)) => break *export,
            Ok(NbdStep::Listed(..)) | Err(_) => return,
        }
    };
    let config = NbdSessionConfig {
        depth: 8,
        block_bytes: 512,
        timeout: Duration::from_secs(30),
        tries: 2,
    };
    let mut session = NbdSession::new(config, export.clone());
    session.attach(export, Nanos(0));
    let mut outstanding: Vec<u64> = Vec::new();
    for (tag, &choice) in choices[1..].iter().enumerate() {
        let request = request(tag as u64, choice);
        outstanding.push(request.tag);
        assert!(session.submit(request, Nanos(0)).is_ok(), "there is room");
    }
    let mut cookies: Vec<u64> = vec![0];
    let mut now = 0;
    loop {
        now += 1_000_000;
        while let Some(out) = session.pull() {
            let headers = session.export().headers;
            let (request, ..) =
                NbdRequest::parse(&out.header, headers).expect("what is sent is a request");
            cookies.push(request.cookie);
            if let Some(range) = out.data {
                assert!(
                    range.start + range.len <= session.data(range.task).len(),
                    "sends past the buffer"
                );
            }
        }
        let mut head = [0; 40];
        let len = bytes.len().min(head.len());
        head[..len].copy_from_slice(&bytes[..len]);
        // Simple replies have the cookie after the error, chunks after flags and type: both at byte 8.
        if head[8] == 0xfe {
            let cookie = cookies[usize::from(head[9]) % cookies.len()];
            head[8..16].copy_from_slice(&cookie.to_be_bytes());
        }
        let Ok((reply, header_len)) = NbdReply::parse(&head[..len], session.export().headers)
        else {
            break;
        };
        let Ok(payload) = session.on_header(&reply) else {
            break;
        };
        let (payload_len, short) = match payload {
            NbdPayload::Short(len) => (len, true),
            NbdPayload::Task(range) => (range.len, false),
        };
        let Some(data) = bytes.get(header_len..header_len + payload_len) else {
            break;
        };
        if let NbdPayload::Task(range) = payload {
            session.data(range.task)[range.start..range.start + range.len].copy_from_slice(data);
        }
        if session
            .on_reply(&reply, if short { data } else { &[] }, Nanos(now))
            .is_err()
        {
            break;
        }
        bytes = &bytes[header_len + payload_len..];
        if session.lost().is_some() {
            break;
        }
        retire(&mut session, &mut outstanding);
    }
    session.detach();
    session.fail_all(DeviceError::Gone);
    retire(&mut session, &mut outstanding);
    assert!(outstanding.is_empty(), "requests vanished: {outstanding:?}");
    assert_eq!(session.outstanding(), 0);
});

fn retire(session: &mut NbdSession, outstanding: &mut Vec<u64>) {
    while let Some(index) = session.next_answered() {
        let retired = session.retire(index);
        let at = outstanding
            .iter()
            .position(|&tag| tag == retired.tag)
            .expect("completed twice");
        outstanding.swap_remove(at);
    }
}

fn request(tag: u64, choice: u8) -> Request {
    let (op, blocks) = match choice % 5 {
        0 => (Op::Read, 1 + u64::from(choice) % 16),
        1 => (Op::Write, 1 + u64::from(choice) % 16),
        2 => (Op::Flush, 0),
        3 => (Op::Unmap, 3 << 21),
        _ => (Op::WriteZeroes, 300),
    };
    let len = blocks * BLOCK;
    let buf = if matches!(op, Op::Read | Op::Write) {
        Buf::zeroed(len as usize)
    } else {
        Buf::empty()
    };
    Request {
        tag,
        op,
        offset: u64::from(choice) * BLOCK,
        len,
        buf,
        force_unit_access: choice & 0x80 != 0,
    }
}
