//! Handshakes with servers of all generations, and with misbehaving ones.

use brunt_wire::nbd::NbdBlockSizes;
use brunt_wire::nbd::negotiation::{encode_server, parse_option};

use super::*;

fn wishes() -> NbdHandshakeOptions {
    NbdHandshakeOptions {
        export: "disk".to_string(),
        headers: NbdHeaders::Extended,
        tls: false,
        list: false,
    }
}

/// Feeds in a server's replies, one for each message sent; returns the last step and the requested options.
fn negotiate(
    wishes: NbdHandshakeOptions,
    script: &[Vec<u8>],
) -> (Result<NbdStep, NbdRefusal>, Vec<u32>) {
    let mut handshake = NbdHandshake::new(wishes);
    let mut asked = Vec::new();
    for part in script {
        let mut rest = &part[..];
        let step = loop {
            let wants = handshake.wants();
            if wants > rest.len() {
                panic!(
                    "the script is short: {wants} bytes are wanted, {} are there",
                    rest.len()
                );
            }
            let (now, later) = rest.split_at(wants);
            rest = later;
            match handshake.on_bytes(now) {
                Ok(NbdStep::More) => {}
                other => break other,
            }
        };
        assert!(
            rest.is_empty() || step.is_err(),
            "{} bytes are left",
            rest.len()
        );
        let sent = match step {
            Ok(NbdStep::Send(bytes)) => bytes,
            Ok(NbdStep::StartTls) => handshake.on_tls(),
            over => return (over, asked),
        };
        let at = sent
            .windows(8)
            .position(|eight| eight == b"IHAVEOPT")
            .expect("an option is sent");
        asked.push(parse_option(&sent[at..]).unwrap().0);
    }
    panic!("the script ended before the handshake");
}

fn greeting(flags: u16) -> Vec<u8> {
    NbdGreeting::Newstyle { flags }.encode()
}

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    NbdOptionReply::encode(option, kind, data)
}

fn go(more: &[NbdInfo]) -> Vec<u8> {
    let export = NbdInfo::Export(1 << 30, 0x1ff);
    let mut bytes = answer(option::GO, reply::INFO, &export.encode());
    for info in more {
        bytes.extend(answer(option::GO, reply::INFO, &info.encode()));
    }
    [bytes, answer(option::GO, reply::ACK, &[])].concat()
}

fn context(number: u32) -> Vec<u8> {
    let data = [&number.to_be_bytes()[..], b"base:allocation"].concat();
    let ack = answer(option::SET_META_CONTEXT, reply::ACK, &[]);
    [
        answer(option::SET_META_CONTEXT, reply::META_CONTEXT, &data),
        ack,
    ]
    .concat()
}

fn export(step: Result<NbdStep, NbdRefusal>) -> NbdExport {
    match step {
        Ok(NbdStep::Done(export)) => *export,
        other => panic!("no export: {other:?}"),
    }
}

/// A server that supports everything.
#[test]
fn a_server_that_supports_everything_is_used_fully() {
    let sizes = NbdBlockSizes {
        minimum: 4096,
        preferred: 65536,
        payload_max: 1 << 20,
    };
    let infos = [
        NbdInfo::BlockSizes(sizes),
        NbdInfo::Name("disk".into()),
        NbdInfo::Description("d".into()),
    ];
    let script = [
        greeting(3),
        answer(option::EXTENDED_HEADERS, reply::ACK, &[]),
        context(9),
        go(&infos),
    ];
    let (step, asked) = negotiate(wishes(), &script);
    let export = export(step);
    assert_eq!(
        (export.size_bytes, export.flags, export.headers),
        (1 << 30, 0x1ff, NbdHeaders::Extended)
    );
    assert_eq!(
        (export.sizes, export.allocation_context),
        (Some(sizes), Some(9))
    );
    assert_eq!(
        (export.name, export.description.as_deref()),
        (None, Some("d"))
    );
    assert_eq!(
        asked,
        [
            option::EXTENDED_HEADERS,
            option::SET_META_CONTEXT,
            option::GO
        ]
    );
}

/// A server with structured replies but without block status.
#[test]
fn structured_replies_work_without_block_status() {
    let script = [
        greeting(3),
        answer(option::EXTENDED_HEADERS, reply::ERR_UNSUP, b"what?"),
        answer(option::STRUCTURED_REPLY, reply::ACK, &[]),
        answer(option::SET_META_CONTEXT, reply::ERR_UNSUP, &[]),
        go(&[]),
    ];
    let export = export(negotiate(wishes(), &script).0);
    assert_eq!(
        (export.headers, export.allocation_context),
        (NbdHeaders::Structured, None)
    );
    assert_eq!(
        (export.block_bytes_min(), export.payload_max(512)),
        (1, 32 << 20)
    );
}

/// Servers with neither structured replies nor GO, fixed newstyle or not, with or without the zeros, and oldstyle
/// servers.
#[test]
fn servers_of_older_protocols_are_accepted() {
    let answer_of =
        |zeroes: usize| [&(1_u64 << 30).to_be_bytes()[..], &[1, 3], &vec![0; zeroes]].concat();
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let unsup = |option| answer(option, reply::ERR_UNSUP, &[]);
        let script = [
            greeting(flags),
            unsup(option::EXTENDED_HEADERS),
            unsup(option::STRUCTURED_REPLY),
            unsup(option::GO),
            answer_of(zeroes),
        ];
        let (step, asked) = negotiate(wishes(), &script);
        let export = export(step);
        assert_eq!(
            (export.size_bytes, export.flags, export.headers),
            (1 << 30, 0x103, NbdHeaders::Simple)
        );
        assert_eq!(asked.last(), Some(&option::EXPORT_NAME));
    }
    let (step, asked) = negotiate(wishes(), &[greeting(0), answer_of(124)]);
    assert_eq!(
        (export(step).size_bytes, asked),
        (1 << 30, vec![option::EXPORT_NAME])
    );
    let old = NbdGreeting::Oldstyle {
        size_bytes: 5 << 20,
        flags: 3,
    };
    let export = export(negotiate(wishes(), &[old.encode()]).0);
    assert_eq!(
        (export.size_bytes, export.flags, export.oldstyle),
        (5 << 20, 3, true)
    );
    // Without the first flag, no flags are valid.
    let none = NbdGreeting::Oldstyle {
        size_bytes: 5 << 20,
        flags: 6,
    };
    let (step, _) = negotiate(wishes(), &[none.encode()]);
    assert!(matches!(step, Ok(NbdStep::Done(export)) if export.flags == 0));
}

/// TLS comes first, and all options follow it.
#[test]
fn tls_comes_first_and_all_options_follow_it() {
    let script = [
        greeting(3),
        answer(option::STARTTLS, reply::ACK, &[]),
        answer(option::EXTENDED_HEADERS, reply::ACK, &[]),
        context(1),
        go(&[]),
    ];
    let (step, asked) = negotiate(
        NbdHandshakeOptions {
            tls: true,
            ..wishes()
        },
        &script,
    );
    assert!(matches!(step, Ok(NbdStep::Done(_))));
    assert_eq!(asked[..2], [option::STARTTLS, option::EXTENDED_HEADERS]);
    let check = |wishes: NbdHandshakeOptions, script: &[Vec<u8>], words: &str| {
        let error = negotiate(wishes, script).0.expect_err(words).to_string();
        assert!(error.contains(words), "'{error}' does not say '{words}'");
    };
    let tls = || NbdHandshakeOptions {
        tls: true,
        ..wishes()
    };
    check(
        tls(),
        &[
            greeting(3),
            answer(option::STARTTLS, reply::ERR_POLICY, b"no"),
        ],
        "does not offer TLS: 'no'",
    );
    check(tls(), &[greeting(0)], "does not support TLS");
    check(
        tls(),
        &[NbdGreeting::Oldstyle {
            size_bytes: 1,
            flags: 1,
        }
        .encode()],
        "does not support TLS",
    );
    check(
        wishes(),
        &[
            greeting(3),
            answer(option::EXTENDED_HEADERS, reply::ERR_TLS_REQD, &[]),
        ],
        "write nbds://",
    );
}

/// A complete list.
#[test]
fn a_list_of_exports_is_complete() {
    let list = |name: &str| answer(option::LIST, reply::SERVER, &encode_server(name, "words"));
    let all = [list(""), list("b"), answer(option::LIST, reply::ACK, &[])].concat();
    let (step, _) = negotiate(
        NbdHandshakeOptions {
            list: true,
            ..wishes()
        },
        &[greeting(3), all],
    );
    let Ok(NbdStep::Listed(names, goodbye)) = step else {
        panic!("{step:?}")
    };
    assert_eq!(
        names,
        [
            (String::new(), "words".to_string()),
            ("b".to_string(), "words".to_string())
        ]
    );
    assert_eq!(parse_option(&goodbye), Ok((option::ABORT, 0)));
}

/// Refusals include the server's text; protocol violations end the handshake.
#[test]
fn refusals_include_the_servers_text_and_violations_end_the_handshake() {
    let check = |last: Vec<u8>, words: &str, transient: bool| {
        let structured = NbdHandshakeOptions {
            headers: NbdHeaders::Simple,
            ..wishes()
        };
        let error = negotiate(structured, &[greeting(3), last])
            .0
            .expect_err(words);
        assert!(
            error.to_string().contains(words),
            "'{error}' does not say '{words}'"
        );
        assert_eq!(error.is_transient(), transient, "{error}");
    };
    let unknown = answer(option::GO, reply::ERR_UNKNOWN, b"no such\nexport");
    check(
        unknown,
        "the export with NBD_REP_ERR_UNKNOWN (0x80000006): 'no such export'",
        true,
    );
    check(
        answer(option::GO, reply::ERR_SHUTDOWN, &[]),
        "NBD_REP_ERR_SHUTDOWN",
        true,
    );
    check(answer(option::GO, reply::ACK, &[]), "no size", false);
    check(
        answer(option::LIST, reply::ACK, &[]),
        "another option",
        false,
    );
    check(
        answer(option::GO, reply::SERVER, &[]),
        "does not match",
        false,
    );
    check(
        answer(option::GO, reply::INFO, &[0, 0, 1]),
        "violated the protocol",
        false,
    );
    check(vec![0; 20], "begin with its magic", false);
    let mut long = answer(option::GO, reply::ERR_INVALID, &[]);
    long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    check(long, "longer than 8 KiB", false);
    let endless = answer(option::GO, reply::INFO, &NbdInfo::Name("n".into()).encode()).repeat(65);
    check(endless, "too many replies", false);
    let error = negotiate(wishes(), &[b"SSH-2.0-OpenSSH_9.2p1 Debian".to_vec()])
        .0
        .unwrap_err();
    assert!(error.to_string().contains("NBDMAGIC"), "{error}");
}
