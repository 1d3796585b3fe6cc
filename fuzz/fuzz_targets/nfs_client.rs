//! An NFS client with arbitrary server data: memory is bounded, no data is written outside a request's buffer, and
//! every request completes exactly once, even if the connection breaks. Results of every procedure are parsed, and
//! parsed results are encoded to the same bytes. One of the choices is NFSv4.1.
//!
//! So that replies reach a request at all, an xid whose first byte is 0xfe is replaced by an outstanding one.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use brunt_block::remote::RemoteSession;
use brunt_block::{Buf, DeviceError, Op, Request};
use brunt_core::Nanos;
use brunt_nfs::calls::{NfsIncoming, NfsPayload};
use brunt_nfs::disk::{NfsDisk, NfsDiskConfig, NfsFile};
use brunt_nfs::rpc::NfsViolation;
use brunt_nfs::v41::{NfsClient, NfsGrant};
use brunt_wire::Cursor;
use brunt_wire::nfs::v3::{Procedure, parse_results};
use libfuzzer_sys::fuzz_target;

const BLOCK: u64 = 512;
const RX_BYTES: usize = 4096;

// Eight bytes choose the requests; the rest is the server's data.
fuzz_target!(|input: &[u8]| {
    let Some((choices, bytes)) = input.split_first_chunk::<8>() else {
        return;
    };
    results_are_encoded_as_they_came(choices[0], bytes);
    let is_v41 = choices[1] & 2 != 0;
    let config = NfsDiskConfig {
        depth: 8,
        timeout: Duration::from_secs(30),
        tries: 2,
        write_back: choices[1] & 1 == 0,
        credentials: Vec::new(),
        first_xid: 1,
        client: is_v41.then(|| NfsClient::new(3, 1)),
    };
    let session = NfsGrant {
        client: 1,
        session: [7; 16],
        slots: 3,
        write_bytes_max: 2048,
        read_bytes_max: 16384,
        operations: 8,
        lease: Duration::from_secs(9),
    };
    let file = NfsFile {
        handle: vec![7; 28],
        read_bytes_max: 16384,
        write_bytes_max: 2048,
    };
    let mut disk = NfsDisk::new(config, file, Arc::default());
    disk.attach(is_v41.then_some(&session), Nanos(0));
    let mut outstanding: Vec<u64> = Vec::new();
    for (tag, &choice) in choices.iter().enumerate() {
        outstanding.push(tag as u64);
        let request = request(tag as u64, choice);
        assert!(disk.submit(request, Nanos(0)).is_ok(), "there is room");
    }
    converse(&mut disk, &mut outstanding, bytes.to_vec());
    disk.detach();
    disk.fail_all(DeviceError::Gone);
    retire(&mut disk, &mut outstanding);
    assert!(outstanding.is_empty(), "requests vanished: {outstanding:?}");
    assert_eq!(disk.outstanding(), 0);
});

/// Receives until the data ends or the server violates the protocol.
fn converse(disk: &mut NfsDisk, outstanding: &mut Vec<u64>, mut bytes: Vec<u8>) {
    let mut xids: Vec<[u8; 4]> = Vec::new();
    let (mut at, mut now) = (0, 0);
    loop {
        now += 100_000_000;
        while let Some(out) = disk.pull() {
            let head = disk.calls().head(out.call);
            xids.push(*head[4..].first_chunk().expect("a call has an xid"));
            if let NfsPayload::Buf { start, len } = out.payload {
                assert!(
                    start + len <= disk.data(out.call).len(),
                    "sends past the buffer"
                );
            }
        }
        if bytes.get(at + 4) == Some(&0xfe) && at + 8 <= bytes.len() && !xids.is_empty() {
            let xid = xids[usize::from(bytes[at + 5]) % xids.len()];
            bytes[at + 4..at + 8].copy_from_slice(&xid);
        }
        let rest = &bytes[at..bytes.len().min(at + RX_BYTES)];
        let Ok(incoming) = disk.calls().examine(rest) else {
            return;
        };
        match incoming {
            NfsIncoming::More => return,
            NfsIncoming::Reply { call, len } => {
                if replied(disk, call, &rest[4..4 + len], Nanos(now)).is_err() {
                    return;
                }
                at += 4 + len;
            }
            NfsIncoming::Data(read) => {
                let start = disk.place_of(&read);
                let from = at + read.head_len;
                let Some(data) = bytes.get(from..from + read.len as usize) else {
                    return;
                };
                disk.data(read.call)[start..start + data.len()].copy_from_slice(data);
                at = from + data.len() + read.padding;
                if at > bytes.len() {
                    return;
                }
                disk.calls().settle_data(read.call, read.opened, Nanos(now));
                if disk.on_read(&read, Nanos(now)).is_err() {
                    return;
                }
            }
            NfsIncoming::Fragments => {
                let Ok(collected) = disk.calls().collect(rest) else {
                    return;
                };
                at += collected.consumed;
                let outcome = match collected.reply {
                    Some((call, record)) => replied(disk, call, &record, Nanos(now)),
                    None if collected.consumed == 0 => return,
                    None => Ok(()),
                };
                if outcome.is_err() {
                    return;
                }
            }
        }
        disk.on_time(Nanos(now));
        retire(disk, outstanding);
        if disk.lost().is_some() {
            return;
        }
    }
}

/// Handles a reply, which with NFSv4.1 may not answer its request yet.
fn replied(
    disk: &mut NfsDisk,
    call: u16,
    record: &[u8],
    now: Nanos,
) -> Result<(), NfsViolation> {
    match disk.calls().settle(call, record, now)? {
        true => Ok(()),
        false => disk.on_reply(call, record, now),
    }
}

fn results_are_encoded_as_they_came(choice: u8, bytes: &[u8]) {
    let procedure = Procedure::ALL[usize::from(choice) % Procedure::ALL.len()];
    let mut cur = Cursor::new(bytes);
    let Ok(results) = parse_results(procedure, &mut cur) else {
        return;
    };
    // File data may be cut short.
    if procedure == Procedure::Read {
        return;
    }
    let mut encoded = Vec::new();
    results.encode(procedure, &mut encoded);
    let again =
        parse_results(procedure, &mut Cursor::new(&encoded)).expect("what is encoded is parsed");
    assert_eq!(again, results);
    assert_eq!(encoded.len(), cur.at());
}

fn retire(disk: &mut NfsDisk, outstanding: &mut Vec<u64>) {
    while let Some(index) = disk.next_answered() {
        let retired = disk.retire(index);
        let at = outstanding
            .iter()
            .position(|&tag| tag == retired.tag)
            .expect("completed twice");
        outstanding.swap_remove(at);
    }
}

fn request(tag: u64, choice: u8) -> Request {
    let (op, blocks) = match choice % 5 {
        0 => (Op::Read, 1 + u64::from(choice) % 64),
        1 => (Op::Write, 1 + u64::from(choice) % 16),
        2 => (Op::Flush, 0),
        3 => (Op::Unmap, 3 << 21),
        _ => (Op::WriteZeroes, 300),
    };
    let len = blocks * BLOCK;
    let buf = match op {
        Op::Read | Op::Write => Buf::zeroed(len as usize),
        _ => Buf::empty(),
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
