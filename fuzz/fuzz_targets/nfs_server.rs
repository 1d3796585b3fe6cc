//! The null NFS server with arbitrary client data: every complete record that is a call gets one reply with its xid,
//! which is as long as its mark says and parses, and memory is bounded.
#![no_main]

use brunt_nfs::server::service::{CALL_BYTES_MAX, NfsArrived, NfsService};
use brunt_wire::nfs::v3::NfsTime;
use brunt_wire::rpc::{MARK_BYTES, RecordMark, RpcMessage, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let service = NfsService::new(0);
    let (mut at, mut reply) = (0, Vec::new());
    while let Ok(arrived) = NfsService::examine(&bytes[at..]) {
        let (head_len, len) = match arrived {
            NfsArrived::Call { len } => (len, len),
            NfsArrived::Write { head_len, data_len } => (head_len, head_len + data_len),
            NfsArrived::More | NfsArrived::Fragments => return,
        };
        assert!(len <= CALL_BYTES_MAX as usize);
        let record = &bytes[at + MARK_BYTES..at + MARK_BYTES + head_len];
        let with = (2049, NfsTime::default());
        let Ok(served) = service.answer(record, len, with, &mut reply) else {
            return;
        };
        let mark = RecordMark::from_bytes(*reply.first_chunk().expect("a reply has a mark"));
        let sent = reply.len() - MARK_BYTES + served.read_bytes.next_multiple_of(4);
        assert!(mark.last && mark.len as usize == sent);
        let Ok(RpcMessage::Reply(header)) = parse(&reply[MARK_BYTES..]) else {
            panic!("a server sends replies")
        };
        assert_eq!(header.xid.0.to_be_bytes(), record[..4]);
        at = (at + MARK_BYTES + len).min(bytes.len());
    }
});
