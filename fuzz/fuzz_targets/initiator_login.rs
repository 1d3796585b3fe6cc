//! An initiator's login and discovery with arbitrary target responses: both end within a bounded number of rounds, and
//! send only well-formed requests.
#![no_main]

use brunt_iscsi::chap::{Challenge, Credentials};
use brunt_iscsi::initiator::discovery::{Discovery, DiscoveryStep};
use brunt_iscsi::initiator::login::{ConnectionPlace, Login, LoginConfig, LoginStep};
use brunt_iscsi::params::Preferences;
use brunt_wire::iscsi::Opcode;
use brunt_wire::iscsi::pdu::{BHS_BYTES, Bhs, padded};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the configuration; the rest is the target's responses.
fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let (with_chap, discover) = (choice & 1 != 0, choice & 2 != 0);
    let config = LoginConfig {
        initiator_name: "iqn.2026-11.io.brunt:i0".to_string(),
        target_name: (!discover).then(|| "iqn.2026-11.io.brunt:t0".to_string()),
        credentials: with_chap.then(|| Credentials::new("user", "a secret of 12+")),
        target_credentials: with_chap.then(|| Credentials::new("target", "another secret")),
        wishes: Preferences::default(),
        isid: [0x80, 0, 0, 0, 0, 1],
    };
    let Ok((mut login, first)) =
        Login::start(config, ConnectionPlace::default(), Challenge::random())
    else {
        return;
    };
    check(&first, Opcode::LoginRequest);
    let mut discovery: Option<Discovery> = None;
    let mut rest = bytes;
    while let Some((bhs, data, next)) = split(rest) {
        rest = next;
        match &mut discovery {
            None => match login.on_response(bhs, data) {
                Ok(LoginStep::Send(request)) => check(&request, Opcode::LoginRequest),
                Ok(LoginStep::Done(logged_in)) if discover => {
                    let (started, request) = Discovery::start(&logged_in, 1);
                    check(&request, Opcode::TextRequest);
                    discovery = Some(started);
                }
                Ok(_) | Err(_) => return,
            },
            Some(discovery) => match discovery.on_response(bhs, data) {
                Ok(DiscoveryStep::Send(request)) => check(&request, Opcode::TextRequest),
                Ok(DiscoveryStep::Done(_)) | Err(_) => return,
            },
        }
    }
});

fn split(bytes: &[u8]) -> Option<(&Bhs, &[u8], &[u8])> {
    let bhs = Bhs::peek(bytes)?;
    let data = bytes.get(BHS_BYTES..BHS_BYTES + bhs.data_len())?;
    let next = bytes
        .get(BHS_BYTES + padded(bhs.data_len())..)
        .unwrap_or(&[]);
    Some((bhs, data, next))
}

fn check(request: &[u8], kind: Opcode) {
    let bhs = Bhs::peek(request).expect("a header");
    assert_eq!(bhs.kind(), kind);
    assert_eq!(bhs.total_len(false, false), request.len());
}
