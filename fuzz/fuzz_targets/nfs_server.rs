//! The null NFS server with arbitrary client data: every complete record that is a call gets one reply with its xid;
//! the reply parses and is as long as its mark says; lengths are bounded.
#![no_main]

use brunt_nfs::record::NfsRecord;
use brunt_nfs::server::TRANSFER_BYTES_MAX;
use brunt_nfs::server::service::{CALL_BYTES_MAX, NfsArrived, NfsService};
use brunt_wire::nfs::v3::NfsTime;
use brunt_wire::rpc::{MARK_BYTES, RecordMark, RpcMessage, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let service = NfsService::new(0);
    let (mut at, mut reply) = (0, Vec::new());
    while let Ok(arrived) = NfsService::examine(&bytes[at..]) {
        let after_mark = |len: usize| &bytes[at + MARK_BYTES..][..len];
        let whole;
        let (record, len, used) = match arrived {
            NfsArrived::Call { len } => (after_mark(len), len, MARK_BYTES + len),
            NfsArrived::Write { head_len, data_len } => {
                let len = head_len + data_len;
                (after_mark(head_len), len, MARK_BYTES + len)
            }
            NfsArrived::Fragments => {
                let mut fragments = NfsRecord::default();
                let Ok(used) = fragments.feed(&bytes[at..], CALL_BYTES_MAX) else {
                    return;
                };
                if !fragments.is_complete() {
                    return;
                }
                whole = fragments.take();
                (&whole[..], whole.len(), used)
            }
            NfsArrived::More => return,
        };
        assert!(len <= CALL_BYTES_MAX as usize);
        let with = (2049, NfsTime::default());
        let Ok(served) = service.answer(record, len, with, &mut reply) else {
            return;
        };
        assert!(reply.len() <= TRANSFER_BYTES_MAX as usize + 1024);
        let mark = RecordMark::from_bytes(*reply.first_chunk().expect("a reply has a mark"));
        let sent = reply.len() - MARK_BYTES + served.read_bytes.next_multiple_of(4);
        assert!(mark.last && mark.len as usize == sent);
        let Ok(RpcMessage::Reply(header)) = parse(&reply[MARK_BYTES..]) else {
            panic!("a server sends replies")
        };
        assert_eq!(header.xid.0.to_be_bytes(), record[..4]);
        at = (at + used).min(bytes.len());
    }
});
