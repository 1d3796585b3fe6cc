use super::*;
use crate::chap::Credentials;
use crate::params::DigestPolicy;
use crate::scsi::LunMap;
use crate::target_node::directory::Directory;
use crate::target_node::session::SessionTable;

const NAMES: &[(&str, &str)] = &[
    ("InitiatorName", "iqn.2026-11.io.brunt:i"),
    ("TargetName", "iqn.2026-11.io.brunt:t0"),
];

const OTHER: &str = "iqn.2026-11.io.brunt:other";

/// Two targets: t0, which requires CHAP if `chap` is set, and another that doesn't.
fn directory(chap: bool, mutual: bool) -> Directory {
    let mut target = ServedTarget::new(NAMES[1].1, LunMap::new(Vec::new()));
    if chap {
        let own = mutual.then(|| Credentials::new("target", *b"target's secret"));
        target = target
            .with_chap(Credentials::new("alice", *b"alice's secret"), own)
            .unwrap();
    }
    Directory::new(
        vec![target, ServedTarget::new(OTHER, LunMap::new(Vec::new()))],
        None,
    )
}

struct Bench {
    login: TargetLogin,
    table: SessionTable,
    request: LoginRequest,
}

impl Bench {
    fn new(chap: bool, mutual: bool) -> Bench {
        let request = LoginRequest {
            opcode: 0x43,
            isid: [0x80, 1, 2, 3, 4, 5],
            initiator_task_tag: 7.into(),
            cmd_sn: 100.into(),
            ..LoginRequest::default()
        };
        Bench {
            login: TargetLogin::new(Arc::default(), 1, Challenge::random()),
            table: SessionTable::new(directory(chap, mutual), 4),
            request,
        }
    }

    /// Starts another connection through a portal of this group.
    fn again(&mut self, portal_group_tag: u16) {
        self.login = TargetLogin::new(Arc::default(), portal_group_tag, Challenge::random());
    }

    fn send(&mut self, flags: u8, pairs: &[(&str, &str)]) -> TargetLoginStep {
        let mut data = Vec::new();
        for (key, value) in pairs {
            push_pair(&mut data, key, value);
        }
        self.request.flags = flags;
        self.request.data_segment_length = U24::new(data.len() as u32);
        self.login
            .on_pdu(self.request.bhs(), &data, &mut &self.table)
    }

    fn status(&mut self, flags: u8, pairs: &[(&str, &str)]) -> u16 {
        match self.send(flags, pairs) {
            TargetLoginStep::Reply(_) | TargetLoginStep::Done(..) => 0,
            TargetLoginStep::Refuse(_, status) => status,
            TargetLoginStep::Close => u16::MAX,
        }
    }
}

fn answer_of(bytes: &[u8]) -> (LoginResponse, Vec<(String, String)>) {
    let bhs = Bhs::peek(bytes).unwrap();
    let pairs = parse_pairs(&bytes[BHS_BYTES..BHS_BYTES + bhs.data_len()]).unwrap();
    let own = pairs
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    (*LoginResponse::view(bhs), own)
}

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    NAMES.iter().copied().chain(more.iter().copied()).collect()
}

/// The shortest possible login, and the sequence numbers with which full-feature phase continues.
#[test]
fn the_shortest_login_takes_one_request() {
    let mut bench = Bench::new(false, false);
    let TargetLoginStep::Done(bytes, done) =
        bench.send(0x87, &with(&[("MaxBurstLength", "65536")]))
    else {
        panic!("not in")
    };
    let (response, pairs) = answer_of(&bytes);
    assert_eq!((response.flags, response.status_class), (0x87, 0));
    assert_eq!(response.exp_cmd_sn.get(), 100);
    assert_eq!(response.tsih.get(), done.session.tsih());
    assert_ne!(response.tsih.get(), 0);
    let value = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|pair| pair.1.as_str())
    };
    assert_eq!(value("TargetPortalGroupTag"), Some("1"));
    assert_eq!(value("MaxBurstLength"), Some("65536"));
    assert_eq!(value("MaxRecvDataSegmentLength"), Some("1048576"));
    assert_eq!(done.stat_sn, 1);
    assert_eq!(done.params.max_burst_length, 65536);
    assert_eq!(
        done.session.nexus().initiator_port,
        "iqn.2026-11.io.brunt:i,i,0x800102030405"
    );
}

/// If a digest is required, logins without it are refused, whether they offer None or don't offer the key.
#[test]
fn logins_without_a_required_digest_are_refused() {
    let strict = || {
        let mut bench = Bench::new(false, false);
        let wishes = Preferences {
            data_digest: DigestPolicy::Require,
            ..Preferences::default()
        };
        bench.login = TargetLogin::new(Arc::new(wishes), 1, Challenge::random());
        bench
    };
    assert_eq!(strict().status(0x87, &with(&[])), code::MISSING_PARAMETER);
    assert_ne!(strict().status(0x87, &with(&[("DataDigest", "None")])), 0);
    assert_eq!(
        strict().status(0x87, &with(&[("HeaderDigest", "CRC32C")])),
        code::MISSING_PARAMETER
    );
    assert_eq!(
        strict().status(0x87, &with(&[("DataDigest", "None,CRC32C")])),
        0
    );
    let mut in_two_steps = strict();
    assert_eq!(
        in_two_steps.status(0x04, &with(&[("DataDigest", "CRC32C")])),
        0
    );
    assert_eq!(in_two_steps.status(0x87, &[]), 0);
}

/// Invalid logins get the status of RFC 7143, 11.13.5.
#[test]
fn invalid_logins_get_the_status_of_the_rfc() {
    let check = |chap: bool, flags: u8, pairs: &[(&str, &str)], status: u16| {
        assert_eq!(
            Bench::new(chap, false).status(flags, pairs),
            status,
            "{flags:#x} {pairs:?}"
        );
    };
    check(
        false,
        0x87,
        &[("TargetName", "iqn.2026-11.io.brunt:t0")],
        code::MISSING_PARAMETER,
    );
    check(false, 0x87, &NAMES[..1], code::MISSING_PARAMETER);
    check(
        false,
        0x87,
        &[NAMES[0], ("TargetName", "iqn.other")],
        code::NOT_FOUND,
    );
    check(
        false,
        0x87,
        &with(&[("SessionType", "Odd")]),
        code::SESSION_TYPE_NOT_SUPPORTED,
    );
    check(false, 0x87, &with(&[NAMES[0]]), code::INITIATOR_ERROR);
    check(
        false,
        0x87,
        &with(&[("MaxRecvDataSegmentLength", "1")]),
        code::INITIATOR_ERROR,
    );
    check(
        false,
        0x87,
        &with(&[("AuthMethod", "None")]),
        code::INITIATOR_ERROR,
    );
    check(
        false,
        0x81,
        &with(&[("AuthMethod", "KRB5")]),
        code::AUTHENTICATION_FAILURE,
    );
    check(
        false,
        0x81,
        &with(&[("AuthMethod", "CHAP")]),
        code::AUTHENTICATION_FAILURE,
    );
    check(true, 0x87, NAMES, code::AUTHENTICATION_FAILURE);
    check(true, 0x81, NAMES, code::AUTHENTICATION_FAILURE);
    check(
        true,
        0x81,
        &with(&[("AuthMethod", "None")]),
        code::AUTHENTICATION_FAILURE,
    );
    // Transit to the same or a reserved stage, transit with continue, and an invalid stage.
    check(false, 0x80, NAMES, code::INITIATOR_ERROR);
    check(false, 0x86, NAMES, code::INITIATOR_ERROR);
    check(false, 0xc7, NAMES, code::INITIATOR_ERROR);
    check(false, 0x0c, NAMES, code::INITIATOR_ERROR);
}

/// Violations of the rules for the header are refused.
#[test]
fn headers_that_break_the_rules_are_refused() {
    let check = |change: fn(&mut LoginRequest), status: u16| {
        let mut bench = Bench::new(false, false);
        change(&mut bench.request);
        assert_eq!(bench.status(0x87, NAMES), status);
    };
    check(|r| r.version_min = 1, code::UNSUPPORTED_VERSION);
    check(|r| r.opcode = 0x03, code::INITIATOR_ERROR);
    check(|r| r.tsih = 9.into(), code::SESSION_DOES_NOT_EXIST);
    check(|r| r.opcode = 0x41, u16::MAX);
    let second = |change: fn(&mut LoginRequest), status: u16| {
        let mut bench = Bench::new(false, false);
        assert_eq!(bench.status(0x04, NAMES), 0);
        change(&mut bench.request);
        assert_eq!(bench.status(0x87, &[]), status);
    };
    second(|_| (), 0);
    second(|r| r.cid = 3.into(), code::INITIATOR_ERROR);
    second(|r| r.isid[5] = 9, code::INITIATOR_ERROR);
    second(|r| r.initiator_task_tag = 8.into(), code::INITIATOR_ERROR);
    second(|r| r.opcode = 0x40, code::INVALID_DURING_LOGIN);
    // A request in a stage without a transit to that stage.
    let mut bench = Bench::new(false, false);
    assert_eq!(bench.status(0x04, NAMES), 0);
    assert_eq!(bench.status(0x81, &[]), code::INITIATOR_ERROR);
}

/// Text may be split over several requests, up to a limit.
#[test]
fn text_may_be_split_over_requests_up_to_a_limit() {
    let mut data = Vec::new();
    NAMES
        .iter()
        .for_each(|(key, value)| push_pair(&mut data, key, value));
    let mut bench = Bench::new(false, false);
    let (first, rest) = data.split_at(20);
    bench.request.flags = 0x44;
    bench.request.data_segment_length = U24::new(20);
    let TargetLoginStep::Reply(bytes) =
        bench
            .login
            .on_pdu(bench.request.bhs(), first, &mut &bench.table)
    else {
        panic!("no reply")
    };
    let (response, pairs) = answer_of(&bytes);
    assert_eq!((response.flags, pairs.len()), (0x04, 0));
    bench.request.flags = 0x87;
    bench.request.data_segment_length = U24::new(rest.len() as u32);
    assert!(matches!(
        bench
            .login
            .on_pdu(bench.request.bhs(), rest, &mut &bench.table),
        TargetLoginStep::Done(..)
    ));
    let mut bench = Bench::new(false, false);
    bench.request.flags = 0x44;
    let piece = vec![b'x'; 8192];
    bench.request.data_segment_length = U24::new(8192);
    let refused = (0..20).any(|_| {
        matches!(
            bench
                .login
                .on_pdu(bench.request.bhs(), &piece, &mut &bench.table),
            TargetLoginStep::Refuse(..)
        )
    });
    assert!(refused, "text without end was taken");
}

/// CHAP, one-way and mutual, with this crate's initiator; a wrong secret is refused.
#[test]
fn chap_works_one_way_and_mutual_and_refuses_a_wrong_secret() {
    let check = |secret: &'static [u8], mutual: bool, status: u16| {
        let mut bench = Bench::new(true, true);
        assert_eq!(bench.status(0x81, &with(&[("AuthMethod", "CHAP,None")])), 0);
        let proof = mutual.then(|| {
            (
                Credentials::new("target", *b"target's secret"),
                Challenge::random(),
            )
        });
        let mut initiator =
            chap::ChapInitiator::new(Credentials::new("alice", secret), proof).unwrap();
        let own = |keys: &chap::Keys| -> Vec<(String, String)> {
            keys.iter()
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect()
        };
        let keys = own(&initiator.offer());
        let pairs: Vec<(&str, &str)> = keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let TargetLoginStep::Reply(bytes) = bench.send(0x00, &pairs) else {
            panic!("no challenge")
        };
        let (_, pairs) = answer_of(&bytes);
        let pairs: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        let keys = own(&initiator.on_challenge(&pairs).unwrap());
        let pairs: Vec<(&str, &str)> = keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        match bench.send(0x81, &pairs) {
            TargetLoginStep::Reply(bytes) => {
                assert_eq!(status, 0);
                let (response, pairs) = answer_of(&bytes);
                assert_eq!(response.flags, 0x81);
                let pairs: Vec<(&str, &str)> = pairs
                    .iter()
                    .map(|(k, v)| (k.as_str(), v.as_str()))
                    .collect();
                initiator.on_response(&pairs).unwrap();
                assert!(matches!(bench.send(0x87, &[]), TargetLoginStep::Done(..)));
            }
            TargetLoginStep::Refuse(_, refused) => assert_eq!(refused, status),
            other => panic!("{other:?}"),
        }
    };
    check(b"alice's secret", false, 0);
    check(b"alice's secret", true, 0);
    check(b"bob's secret", false, code::AUTHENTICATION_FAILURE);
}

/// A name selects its target, with that target's users; a session belongs to one target and one portal group.
#[test]
fn a_name_selects_its_target_and_that_targets_users() {
    let mut bench = Bench::new(true, false);
    let other = [NAMES[0], ("TargetName", "IQN.2026-11.io.brunt:OTHER")];
    assert_eq!(bench.status(0x87, NAMES), code::AUTHENTICATION_FAILURE);
    bench.again(2);
    let TargetLoginStep::Done(bytes, done) = bench.send(0x87, &other) else {
        panic!("not in")
    };
    let (_, pairs) = answer_of(&bytes);
    assert!(
        pairs.contains(&("TargetPortalGroupTag".into(), "2".into())),
        "{pairs:?}"
    );
    assert_eq!(done.session.target().unwrap().name, OTHER);
    assert_eq!(done.session.nexus().target_port, 2);
    bench.request.tsih = done.session.tsih().into();
    bench.request.cid = 1.into();
    bench.again(1);
    assert_eq!(bench.status(0x87, &other), code::CANNOT_INCLUDE_IN_SESSION);
    // The same initiator port at a different target port is a different nexus, not a reinstated session.
    bench.request.tsih = 0.into();
    bench.again(1);
    assert!(matches!(
        bench.send(0x87, &other),
        TargetLoginStep::Done(..)
    ));
    assert_eq!(bench.table.len(), 2);
}

/// If a target requires CHAP, discovery does too.
#[test]
fn discovery_requires_chap_if_a_target_does() {
    let pairs = [NAMES[0], ("SessionType", "Discovery")];
    assert_eq!(
        Bench::new(true, false).status(0x87, &pairs),
        code::AUTHENTICATION_FAILURE
    );
    let asks = [
        NAMES[0],
        ("SessionType", "Discovery"),
        ("AuthMethod", "CHAP,None"),
    ];
    let mut bench = Bench::new(true, false);
    let TargetLoginStep::Reply(bytes) = bench.send(0x81, &asks) else {
        panic!("no reply")
    };
    assert_eq!(
        answer_of(&bytes).1,
        [("AuthMethod".to_string(), "CHAP".to_string())]
    );
}

/// Discovery needs no target name and refuses keys for normal sessions.
#[test]
fn discovery_needs_no_target_name() {
    let mut bench = Bench::new(false, false);
    let pairs = [
        NAMES[0],
        ("SessionType", "Discovery"),
        ("MaxBurstLength", "65536"),
    ];
    let TargetLoginStep::Done(bytes, done) = bench.send(0x87, &pairs) else {
        panic!("not in")
    };
    assert!(done.session.target().is_none());
    let (_, pairs) = answer_of(&bytes);
    assert!(pairs.contains(&("MaxBurstLength".into(), "Irrelevant".into())));
}

/// For any header and any length, the target responds or closes the connection.
#[test]
fn any_header_gets_a_response_or_a_close() {
    let mut random = brunt_core::random::Random::new(1);
    for _ in 0..20_000 {
        let mut bench = Bench::new(random.chance(0.5), false);
        let mut data = Vec::new();
        with(&[("AuthMethod", "CHAP,None")])
            .iter()
            .for_each(|(k, v)| push_pair(&mut data, k, v));
        for _ in 0..3 {
            let mut bytes = bench.request.as_bytes().to_vec();
            let at = random.below(48) as usize;
            bytes[at] = random.next_u64() as u8;
            if random.chance(0.7) {
                bytes[0] = 0x43;
            }
            let at = random.below(data.len() as u64) as usize;
            data[at] = random.next_u64() as u8;
            let bhs = Bhs::peek(&bytes).unwrap();
            if matches!(
                bench.login.on_pdu(bhs, &data, &mut &bench.table),
                TargetLoginStep::Refuse(..) | TargetLoginStep::Close
            ) {
                break;
            }
        }
    }
}
