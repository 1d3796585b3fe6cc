//! An initiator's session with arbitrary target responses: no data is written outside a task's buffer, and every
//! request completes exactly once, even if the connection breaks.
//!
//! So that responses reach a task at all, a tag or StatSN that starts with 0xfe is replaced by an outstanding or
//! expected one.
#![no_main]

use std::time::Duration;

use brunt_block::{Buf, BufPool, DeviceError, Op, Request};
use brunt_core::Nanos;
use brunt_iscsi::initiator::command::{Facts, UnmapBy};
use brunt_iscsi::initiator::session::{
    Attachment, DataDestination, InitiatorSession, SessionConfig, TagKind,
};
use brunt_iscsi::params::Preferences;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, padded};
use libfuzzer_sys::fuzz_target;
use zerocopy::IntoBytes;

const BLOCK: u64 = 4096;

// Eight bytes choose the requests; the rest is the target's responses.
fuzz_target!(|input: &[u8]| {
    let Some((choices, bytes)) = input.split_first_chunk::<8>() else {
        return;
    };
    let pool = BufPool::new(64 << 10);
    let config = SessionConfig {
        lun: [0; 8],
        depth: 8,
        timeout: Duration::from_secs(30),
        keepalive: Duration::from_secs(10),
        tries: 2,
        attribute: TagKind::default(),
    };
    let mut session = InitiatorSession::new(config, facts(), pool);
    let connections = vec![(0, Preferences::default().values, 1)];
    session.attach(
        Attachment {
            cmd_sn: 1,
            max_cmd_sn: 64,
            connections,
        },
        facts(),
        Nanos(0),
    );
    let mut outstanding: Vec<u64> = Vec::new();
    for (tag, &choice) in choices.iter().enumerate() {
        let request = request(tag as u64, choice);
        outstanding.push(request.tag);
        assert!(session.submit(request, Nanos(0)).is_ok(), "there is room");
    }
    let mut tags: Vec<[u8; 4]> = vec![[0xff; 4]];
    let mut now = 0;
    let mut rest = bytes;
    loop {
        now += 1_000_000;
        session.schedule(Nanos(now));
        while let Some(out) = session.pull(0) {
            tags.push(out.bhs.initiator_task_tag.get().to_be_bytes());
            if let Some(piece) = out.data {
                let data = session.data(piece.task);
                assert!(
                    piece.start + piece.len <= data.len(),
                    "sends past the buffer"
                );
            }
        }
        let Some((bhs, data, next)) = next_pdu(rest, &tags, session.exp_stat_sn(0)) else {
            break;
        };
        rest = next;
        let Ok(payload) = session.on_header(0, &bhs) else {
            break;
        };
        let short = match payload {
            DataDestination::Task(piece) => {
                session.data(piece.task)[piece.start..piece.start + piece.len]
                    .copy_from_slice(data);
                &[]
            }
            DataDestination::Short => data,
        };
        if session.on_pdu(0, &bhs, short, Nanos(now)).is_err() || session.lost().is_some() {
            break;
        }
        session.on_time(Nanos(now));
        retire(&mut session, &mut outstanding, now);
    }
    session.detach();
    session.fail_all(DeviceError::Gone);
    retire(&mut session, &mut outstanding, now);
    assert!(outstanding.is_empty(), "requests vanished: {outstanding:?}");
    assert_eq!(session.outstanding(), 0);
});

fn retire(session: &mut InitiatorSession, outstanding: &mut Vec<u64>, now: u64) {
    while let Some(index) = session.next_answered() {
        if let Some(retired) = session.retire(index, Nanos(now)) {
            let at = outstanding
                .iter()
                .position(|&tag| tag == retired.tag)
                .expect("completed twice");
            outstanding.swap_remove(at);
        }
    }
}

fn request(tag: u64, choice: u8) -> Request {
    let (op, blocks) = match choice % 5 {
        0 => (Op::Read, 1 + u64::from(choice) % 16),
        1 => (Op::Write, 1 + u64::from(choice) % 16),
        2 => (Op::Flush, 0),
        3 => (Op::Unmap, 300),
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

fn next_pdu<'a>(
    bytes: &'a [u8],
    tags: &[[u8; 4]],
    exp_stat_sn: u32,
) -> Option<(Bhs, &'a [u8], &'a [u8])> {
    let bhs = Bhs::peek(bytes)?;
    let mut head: [u8; BHS_BYTES] = bhs.as_bytes().try_into().expect("48 bytes");
    if head[16] == 0xfe {
        let tag = tags[usize::from(head[19]) % tags.len()];
        head[16..20].copy_from_slice(&tag);
    }
    if head[24] == 0xfe {
        head[24..28].copy_from_slice(&exp_stat_sn.to_be_bytes());
    }
    let at = BHS_BYTES + bhs.ahs_len();
    let data = bytes.get(at..at + bhs.data_len())?;
    let next = bytes.get(at + padded(bhs.data_len())..).unwrap_or(&[]);
    let bhs = *Bhs::peek(&head).expect("48 bytes");
    Some((bhs, data, next))
}

fn facts() -> Facts {
    Facts {
        block_bytes: 512,
        size_bytes: 1 << 30,
        physical_block_bytes: 4096,
        transfer_bytes_max: 64 << 10,
        unmap_blocks_max: 256,
        write_same_blocks_max: 256,
        unmap_by: UnmapBy::Unmap,
        unmapped_reads_zeros: true,
        fua: true,
        volatile_cache: false,
        read_only: false,
        vendor: "V".to_string(),
        product: "P".to_string(),
        revision: "1".to_string(),
        serial: None,
        names: Default::default(),
    }
}
