//! A Sheepdog client with arbitrary server data: an inode is accepted as a disk or rejected, no data is written
//! outside a request's buffer, and every request completes exactly once, even if the connection breaks.
//!
//! So that responses reach a request at all, an id whose first byte is 0xfe is replaced by an outstanding one.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use brunt_block::remote::RemoteSession;
use brunt_block::{Buf, DeviceError, Op, Request};
use brunt_core::Nanos;
use brunt_store::sheepdog::objects::SheepdogObjects;
use brunt_store::sheepdog::session::{SheepdogPayload, SheepdogSession, SheepdogSessionConfig};
use brunt_wire::sheepdog::header::HEADER_BYTES;
use brunt_wire::sheepdog::inode::{FIELDS_BYTES, parse_map};
use brunt_wire::sheepdog::{SheepdogInode, SheepdogRequest, SheepdogResponse};
use libfuzzer_sys::fuzz_target;

const BLOCK: u64 = 512;
/// Larger disks would make every input slow.
const OBJECTS_MAX: u32 = 64;

// Eight bytes choose the requests, and the next one whether there is a cache; an inode, its map, and responses follow.
fuzz_target!(|input: &[u8]| {
    let Some((choices, bytes)) = input.split_first_chunk::<9>() else {
        return;
    };
    let inode = match SheepdogInode::parse(bytes) {
        Ok(inode)
            if (1..=OBJECTS_MAX).contains(&inode.objects_count())
                && inode.size_bytes >= 1 << 20 =>
        {
            inode
        }
        Ok(_) | Err(_) => return,
    };
    let mut bytes = &bytes[FIELDS_BYTES..];
    let count = inode.objects_count();
    let Ok(map) = parse_map(bytes, count) else {
        return;
    };
    bytes = &bytes[4 * count as usize..];
    let objects = Arc::new(SheepdogObjects::new(inode, map));
    let config = SheepdogSessionConfig {
        depth: 8,
        timeout: Duration::from_secs(30),
        tries: 2,
        cache: choices[8] & 1 != 0,
    };
    let mut session = SheepdogSession::new(config, objects);
    session.attach(Nanos(0));
    let mut outstanding: Vec<u64> = Vec::new();
    for (tag, &choice) in choices[..8].iter().enumerate() {
        let request = request(tag as u64, choice);
        outstanding.push(request.tag);
        assert!(session.submit(request, Nanos(0)).is_ok(), "there is room");
    }
    let mut ids: Vec<u32> = vec![0];
    let mut now = 0;
    loop {
        now += 300_000_000;
        session.on_time(Nanos(now));
        while let Some(out) = session.pull() {
            let request = SheepdogRequest::parse(&out.header).expect("what is sent is a request");
            ids.push(request.id);
            if let Some(range) = out.data {
                assert!(
                    range.start + range.len <= session.data(range.task).len(),
                    "sends past the buffer"
                );
            }
        }
        retire(&mut session, &mut outstanding);
        let Some(mut head) = bytes.first_chunk::<HEADER_BYTES>().copied() else {
            break;
        };
        if head[8] == 0xfe {
            let id = ids[usize::from(head[9]) % ids.len()];
            head[8..12].copy_from_slice(&id.to_le_bytes());
        }
        let response = SheepdogResponse::parse(&head).expect("a whole header");
        let Ok(payload) = session.on_header(&response) else {
            break;
        };
        let len = match payload {
            SheepdogPayload::Discard(len) => len,
            SheepdogPayload::Task(range) => range.len,
        };
        let Some(data) = bytes.get(HEADER_BYTES..HEADER_BYTES + len) else {
            break;
        };
        if let SheepdogPayload::Task(range) = payload {
            session.data(range.task)[range.start..range.start + range.len].copy_from_slice(data);
        }
        if session.on_response(&response, Nanos(now)).is_err() {
            break;
        }
        bytes = &bytes[HEADER_BYTES + len..];
        if session.lost().is_some() {
            break;
        }
    }
    session.detach();
    session.fail_all(DeviceError::Gone);
    retire(&mut session, &mut outstanding);
    assert!(outstanding.is_empty(), "requests vanished: {outstanding:?}");
    assert_eq!(session.outstanding(), 0);
});

fn retire(session: &mut SheepdogSession, outstanding: &mut Vec<u64>) {
    while let Some(index) = session.next_answered() {
        let retired = session.retire(index);
        let at = outstanding
            .iter()
            .position(|&tag| tag == retired.tag)
            .expect("completed twice");
        outstanding.swap_remove(at);
    }
}

/// Requests within the first MiB, which every disk has.
fn request(tag: u64, choice: u8) -> Request {
    let (op, blocks) = match choice % 5 {
        0 => (Op::Read, 1 + u64::from(choice) % 16),
        1 => (Op::Write, 1 + u64::from(choice) % 16),
        2 => (Op::Flush, 0),
        3 => (Op::Unmap, 2048),
        _ => (Op::WriteZeroes, 300),
    };
    let offset = if op == Op::Unmap {
        0
    } else {
        u64::from(choice) * BLOCK
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
        offset,
        len,
        buf,
        force_unit_access: choice & 0x80 != 0,
    }
}
