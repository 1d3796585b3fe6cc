//! A target's login phase with arbitrary peer data: it ends within a bounded number of rounds, and
//! its responses are well-formed.
#![no_main]

use std::sync::Arc;

use brunt_iscsi::chap::{Challenge, Credentials};
use brunt_iscsi::scsi::LunMap;
use brunt_iscsi::target_node::ServedTarget;
use brunt_iscsi::target_node::directory::Directory;
use brunt_iscsi::target_node::login::{TargetLogin, TargetLoginStep};
use brunt_iscsi::target_node::session::SessionTable;
use brunt_wire::iscsi::Opcode;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the configuration; the rest is the peer's data.
fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let with_chap = choice & 1 != 0;
    let mut target = ServedTarget::new("iqn.2026-11.io.brunt:t0", LunMap::new(Vec::new()));
    if with_chap {
        let own = Some(Credentials::new("target", "another secret"));
        target = target
            .with_chap(Credentials::new("user", "a secret of 12+"), own)
            .expect("two secrets");
    }
    let table = SessionTable::new(Directory::new(vec![target], None), 4);
    let mut login = TargetLogin::new(Arc::default(), 1, Challenge::random());
    let mut rest = bytes;
    while let Some(bhs) = Bhs::peek(rest) {
        let (len, data) = match TargetLogin::pdu_len(bhs) {
            None => (BHS_BYTES, &[][..]),
            Some(len) => match rest.get(BHS_BYTES..BHS_BYTES + bhs.data_len()) {
                Some(data) => (len, data),
                None => break,
            },
        };
        match login.on_pdu(bhs, data, &mut &table) {
            TargetLoginStep::Reply(answer) => check(&answer),
            TargetLoginStep::Done(answer, _) | TargetLoginStep::Refuse(answer, _) => {
                check(&answer);
                break;
            }
            TargetLoginStep::Close => break,
        }
        let Some(next) = rest.get(len..) else { break };
        rest = next;
    }
});

fn check(answer: &[u8]) {
    let bhs = Bhs::peek(answer).expect("a header");
    assert_eq!(bhs.kind(), Opcode::LoginResponse);
    assert_eq!(bhs.total_len(false, false), answer.len());
}
