//! The NBD client against independent servers: nbdkit, qemu-nbd, qemu-storage-daemon. Each test starts its own servers
//! on Unix sockets or free ports; data is checked in the server's file, not through NBD.

mod servers;

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;

use crate::suite::{Subject, conforms_by_each_engine};
use crate::support::need;
use crate::support::pki::certificates;
use brunt_block::device::Allocation;
use brunt_block::{DeviceError, Op, RefusalKind, Request, Ring, RingConfig, open_url_with, turn};
use brunt_store::nbd::device_errors;
use serde_json::Value;
use servers::{Hand, MIB, Server, disk, folder, io, nbdkit, qemu_nbd, sha256sum, storage_daemon};

/// Written data is in the server's file, and data there is read correctly, according to another tool's checksums,
/// with every server and every header style that it supports.
#[test]
fn data_is_right_on_both_sides() {
    let check = |server: Server| {
        for (options, bs, depth, seed) in [
            ("headers=extended", "4k", "32", "1"),
            ("headers=structured", "1M", "8", "2"),
            ("", "36k", "64", "3"),
        ] {
            let url = server.url("", options);
            let written = io(&["write", &url, "--bs", bs, "--depth", depth, "--seed", seed]);
            assert_eq!(
                written["sha256"],
                Value::from(sha256sum(&server.disk())),
                "{url} {bs}"
            );
            let verified = io(&[
                "verify", &url, "--bs", "60k", "--depth", "16", "--seed", seed,
            ]);
            assert_eq!(verified["wrong_blocks"], 0, "{url}");
        }
        // Holes among the data, and requests across their edges.
        let file = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(server.disk())
            .unwrap();
        file.set_len(32 * MIB).unwrap();
        for part in 0..16 {
            file.write_all_at(&[0x5a; 70_000], part * 2 * MIB + 12_345)
                .unwrap();
        }
        for options in ["", "headers=extended"] {
            let url = server.url("", options);
            let read = io(&["read", &url, "--bs", "3M", "--depth", "4"]);
            assert_eq!(
                read["sha256"],
                Value::from(sha256sum(&server.disk())),
                "{url}"
            );
            let trouble = (&read["errors"], &read["retries"], &read["complete"]);
            assert_eq!(trouble, (&0.into(), &0.into(), &true.into()), "{read}");
        }
    };
    let with_disk = || {
        let folder = folder();
        disk(&folder, 32 * MIB);
        folder
    };
    if let Some(server) = nbdkit(with_disk(), &["file", "DISK"]) {
        check(server);
    }
    if let Some(server) = qemu_nbd(with_disk(), &[]) {
        check(server);
    }
    if let Some(server) = storage_daemon(with_disk()) {
        check(server);
    }
}

/// The device's properties match what the server reports for the export.
#[test]
fn info_matches_what_the_server_reports() {
    let policy = [
        "--filter=blocksize-policy",
        "memory",
        "1000000",
        "blocksize-minimum=4096",
        "blocksize-preferred=64k",
        "blocksize-maximum=128k",
        "blocksize-error-policy=error",
    ];
    let Some(server) = nbdkit(folder(), &policy) else {
        return;
    };
    let backend = server.open("");
    let info = backend.info();
    assert_eq!(
        (
            info.block_bytes,
            info.physical_block_bytes,
            info.transfer_bytes_max
        ),
        (4096, 65536, 131_072)
    );
    assert_eq!(info.size_bytes, 1_000_000 / 4096 * 4096);
    assert!(
        info.remarks().any(|note| note.contains("not used")),
        "{info:?}"
    );
    let mut hand = Hand::on(&*backend, 4);
    assert_eq!(hand.write(0, 131_072, 7, false), Ok(()));
    assert_eq!(
        hand.one(Op::Read, 512, 512).result,
        Err(DeviceError::OutOfRange)
    );
    assert_eq!(
        hand.one(Op::Read, 0, 135_168).result,
        Err(DeviceError::OutOfRange)
    );
    let error = open_url_with(&server.url("", "block=512"), brunt_store::BACKENDS, false);
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("less than the server's minimum of 4096 bytes")
    );

    let server = nbdkit(folder(), &["-r", "-e", "e", "memory", "1M"]).unwrap();
    let backend = open_url_with(&server.url("e", ""), brunt_store::BACKENDS, false).unwrap();
    assert!(backend.info().read_only);
    let mut hand = Hand::on(&*backend, 1);
    assert_eq!(
        hand.write(0, 512, 1, false),
        Err(DeviceError::Os(rustix::io::Errno::ROFS.raw_os_error()))
    );
    assert_eq!(hand.one(Op::Read, 0, 4096).result, Ok(()));
}

/// Old servers work: without each of the handshake flags, without structured replies, and oldstyle.
#[test]
fn old_handshakes_work() {
    let options: [(&[&str], &str); 5] = [
        (&["--mask-handshake=0"], "NBD: simple replies"),
        (&["--mask-handshake=1"], "NBD: structured replies"),
        (&["--mask-handshake=2"], "NBD: simple replies"),
        (&["--no-sr"], "NBD: simple replies"),
        (&["-o"], "NBD: oldstyle handshake"),
    ];
    for (words, fact) in options {
        let Some(server) = nbdkit(folder(), &[words, &["memory", "4M"]].concat()) else {
            return;
        };
        // With the best headers that the server supports, and with the default.
        for (options, fact) in [
            ("headers=extended", fact),
            ("", &fact.replace("structured", "simple")),
        ] {
            let backend = server.open(options);
            assert_eq!(backend.info().size_bytes, 4 * MIB, "{words:?}");
            assert!(
                backend.info().facts[0].starts_with(fact),
                "{words:?}: {:?}",
                backend.info().facts
            );
            let mut hand = Hand::on(&*backend, 8);
            assert_eq!(hand.write(MIB, 100 * 1024, 9, false), Ok(()));
            let read = hand.one(Op::Read, MIB - 512, 101 * 1024);
            assert_eq!(read.result, Ok(()));
            let expected = [vec![0; 512], vec![9; 100 * 1024], vec![0; 512]].concat();
            assert!(read.buf[..] == expected[..], "{words:?}");
        }
    }
}

/// Flush, FUA, trim and write-zeroes requests arrive as intended, according to nbdkit's log.
#[test]
fn commands_arrive_as_intended() {
    let folder = folder();
    let log = folder.path().join("log");
    let logfile = format!("logfile={}", log.display());
    let Some(server) = nbdkit(folder, &["--filter=log", "memory", "1G", &logfile]) else {
        return;
    };
    let mut hand = Hand::on(&*server.open(""), 4);
    assert_eq!(hand.write(4096, 4096, 1, true), Ok(()));
    for (op, offset, len) in [
        (Op::Flush, 0, 0),
        (Op::Unmap, 8192, 900 * MIB),
        (Op::WriteZeroes, 4096, 512),
    ] {
        assert_eq!(hand.one(op, offset, len).result, Ok(()), "{op:?}");
    }
    let read = hand.one(Op::Read, 4096, 4096);
    assert!(read.buf[..512] == [0; 512] && read.buf[512..] == [1; 3584]);
    drop(hand);
    let said = fs::read_to_string(log).unwrap();
    for words in [
        "Write id=1 offset=0x1000 count=0x1000 fua=1",
        "Flush",
        "Trim id=3 offset=0x2000 count=0x38400000 fua=0",
        "Zero id=4 offset=0x1000 count=0x200 trim=0 fua=0",
    ] {
        assert!(said.contains(words), "no '{words}' in:\n{said}");
    }
}

/// A server's errors are passed on with their numbers, and don't affect the next request.
#[test]
fn a_servers_errors_are_passed_on() {
    for headers in ["structured", "simple"] {
        let words = [
            "--filter=error",
            "memory",
            "1M",
            "error-pread=EIO",
            "error-pread-rate=100%",
            "error-pwrite=ENOSPC",
            "error-pwrite-rate=100%",
            "error-zero=EPERM",
            "error-zero-rate=100%",
        ];
        let Some(server) = nbdkit(folder(), &words) else {
            return;
        };
        let mut hand = Hand::on(&*server.open(&format!("headers={headers}")), 32);
        let reads = (0..32)
            .map(|tag| hand.request(tag, Op::Read, tag * 4096, 4096))
            .collect();
        for one in hand.run(reads) {
            let error = one.result.unwrap_err();
            assert!(
                matches!(
                    error,
                    DeviceError::Refused {
                        kind: RefusalKind::MediumError,
                        ..
                    }
                ),
                "{error:?}"
            );
            assert_eq!(
                (device_errors::number_of(&error), one.buf.len()),
                (Some(5), 4096)
            );
        }
        let error = hand.write(0, 4096, 1, false).unwrap_err();
        assert_eq!(error.to_string(), "the server returned NBD_ENOSPC (28)");
        let error = hand.one(Op::WriteZeroes, 0, 4096).result.unwrap_err();
        assert!(
            matches!(
                error,
                DeviceError::Refused {
                    kind: RefusalKind::Protected,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(hand.one(Op::Flush, 0, 0).result, Ok(()));
        assert_eq!(
            hand.device.health().reconnects,
            0,
            "an error costs no connection"
        );
    }
    // Failing and successful requests share a queue.
    let words = ["--filter=error", "memory", "1M", "error-rate=30%"];
    let server = nbdkit(folder(), &words).unwrap();
    let mut hand = Hand::on(&*server.open(""), 32);
    let reads = (0..200)
        .map(|tag| hand.request(tag, Op::Read, tag * 4096, 4096))
        .collect();
    let done = hand.run(reads);
    let failed = done.iter().filter(|one| one.result.is_err()).count();
    assert!(
        done.len() == 200 && (1..200).contains(&failed),
        "{failed} of 200 at 30 %"
    );
}

/// A server is killed under load and restarted: every request completes, and all data is correct in the end.
#[test]
fn requests_complete_when_a_killed_server_comes_back() {
    let folder = folder();
    disk(&folder, 64 * MIB);
    let Some(mut server) = nbdkit(folder, &["file", "DISK"]) else {
        return;
    };
    let backend = server.open("reconnect=120s");
    let mut hand = Hand::on(&*backend, 16);
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    for tag in 0..256 {
        let mut request = hand.request(tag, Op::Write, tag * 256 * 1024, 256 * 1024);
        request.buf.fill(tag as u8);
        batch.push_back(request);
    }
    let mut killed = false;
    while !batch.is_empty() || hand.device.outstanding() > 0 {
        turn::turn(&hand.ring, &mut *hand.device, &mut batch, &mut done).unwrap();
        if !killed && done.len() >= 64 {
            killed = true;
            server.kill();
            server.restart();
        }
    }
    assert_eq!(done.len(), 256);
    assert!(
        done.iter()
            .all(|one| one.result == Ok(()) && one.buf.len() == 256 * 1024)
    );
    let health = hand.device.health();
    assert_eq!(health.reconnects, 1, "{health:?}");
    assert!(health.trouble.unwrap().starts_with("nbd+unix:///"));
    let bytes = fs::read(server.disk()).unwrap();
    for (tag, part) in bytes.chunks(256 * 1024).enumerate() {
        assert!(part.iter().all(|&byte| byte == tag as u8), "part {tag}");
    }

    // A server that comes back with a smaller export counts as a different export, so nothing is written to it.
    server.kill();
    fs::OpenOptions::new()
        .write(true)
        .open(server.disk())
        .unwrap()
        .set_len(MIB)
        .unwrap();
    server.restart();
    assert_eq!(hand.one(Op::Read, 0, 512).result, Err(DeviceError::Gone));
    let trouble = hand.device.health().trouble.unwrap();
    assert!(
        trouble.contains("1048576 bytes instead of 67108864"),
        "{trouble}"
    );
    // A server that doesn't come back counts as permanently gone.
    let mut hand = Hand::on(&*server.open("reconnect=0"), 4);
    server.kill();
    assert_eq!(hand.one(Op::Read, 0, 512).result, Err(DeviceError::Gone));
    assert_eq!(hand.one(Op::Flush, 0, 0).result, Err(DeviceError::Gone));
}

/// A server that doesn't answer costs no more than the timeout; the attempts are counted.
#[test]
fn a_silent_server_costs_only_the_timeout() {
    let Some(server) = nbdkit(folder(), &["--filter=delay", "memory", "1M", "rdelay=3600"]) else {
        return;
    };
    // The timeout also applies to the handshakes, which may take long on a busy machine.
    let mut hand = Hand::on(&*server.open("timeout=5s&tries=2"), 4);
    let read = hand.one(Op::Read, 0, 4096);
    assert_eq!(
        (read.result, read.buf.len()),
        (Err(DeviceError::TimedOut), 4096)
    );
    let health = hand.device.health();
    assert_eq!((health.timeouts, health.retries), (2, 1), "{health:?}");
    assert!(
        health
            .trouble
            .unwrap()
            .contains("did not reply to a request in time")
    );
}

/// The conformance suite for all devices. With several threads, nbdkit 1.32 aborts when a client leaves before its
/// replies were sent (connections.c: "sock >= 0"), which happens in a part of the suite.
#[test]
fn the_device_conforms() {
    let Some(server) = nbdkit(folder(), &["--threads=1", "memory", "8M"]) else {
        return;
    };
    for options in ["", "connections=3&block=4096"] {
        conforms_by_each_engine(Subject {
            url: &server.url("", options),
            more: brunt_store::BACKENDS,
            zeros: false,
            unmaps: true,
            remote: true,
        });
    }
}

/// Several connections are used only if the server says that they see the same data.
#[test]
fn several_connections_are_used_only_with_consistent_data() {
    let Some(server) = nbdkit(folder(), &["memory", "16M"]) else {
        return;
    };
    let backend = server.open("connections=4");
    let (mut first, mut second) = (Hand::on(&*backend, 32), Hand::on(&*backend, 32));
    let writes = (0..64)
        .map(|tag| {
            let mut request = first.request(tag, Op::Write, tag * 65536, 65536);
            request.buf.fill(tag as u8 + 1);
            request
        })
        .collect();
    assert!(first.run(writes).iter().all(|one| one.result == Ok(())));
    for tag in 0..64 {
        let read = second.one(Op::Read, tag * 65536, 65536);
        assert!(
            read.result == Ok(()) && read.buf.iter().all(|&byte| byte == tag as u8 + 1),
            "{tag}"
        );
    }
    let words = [
        "--filter=multi-conn",
        "memory",
        "1M",
        "multi-conn-mode=disable",
    ];
    let server = nbdkit(folder(), &words).unwrap();
    let backend = server.open("");
    let ring = Ring::new(RingConfig::default()).unwrap();
    let first = backend.open(&ring, 1).unwrap();
    let error = backend.open(&ring, 1).err().unwrap().to_string();
    assert!(
        error.contains("does not set CAN_MULTI_CONN") && error.contains("multi_conn=yes"),
        "{error}"
    );
    drop(first);
    assert!(
        backend.open(&ring, 1).is_ok(),
        "one after the other is one at a time"
    );
    let forced = server.open("multi_conn=yes&connections=2");
    assert!(forced.open(&ring, 4).is_ok());
}

/// Block status distinguishes holes from data; exports are listed; the error for a missing export names the export.
#[test]
fn exports_are_listed_and_holes_reported() {
    let folder = folder();
    let path = disk(&folder, 16 * MIB);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[1; 65536], 4 * MIB).unwrap();
    file.sync_all().unwrap();
    let Some(server) = storage_daemon(folder) else {
        return;
    };
    let backend = server.open("");
    let fact = &backend.info().facts[0];
    assert!(
        fact.starts_with("NBD: simple replies; flags"),
        "data has simple replies, block status better ones: {fact}"
    );
    assert_eq!(
        backend.allocation(0),
        Some((Allocation::Deallocated, 4 * MIB))
    );
    assert_eq!(
        backend.allocation(4 * MIB),
        Some((Allocation::Mapped, 65536))
    );
    assert!(server.open("headers=simple").allocation(0).is_none());
    let listed = io(&["targets", &server.url("", "")]);
    assert_eq!(
        listed["exports"][0],
        serde_json::json!({ "name": "", "description": "a file" })
    );
    assert_eq!(listed["exports"][1]["name"], "other");
    let missing = open_url_with(&server.url("nothing", ""), brunt_store::BACKENDS, false)
        .err()
        .unwrap();
    let text = missing.to_string();
    assert!(
        text.contains("NBD_REP_ERR_UNKNOWN") && text.contains("nothing"),
        "{text}"
    );
}

/// Whatever a server sends, every request completes exactly once, and nothing panics or waits forever.
#[test]
fn every_request_completes_once_with_a_hostile_server() {
    const GO: &[u8] = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07";
    let export = [
        GO,
        b"\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\x01\x01",
        GO,
        b"\0\0\0\x01\0\0\0\0",
    ]
    .concat();
    let check = |script: &[u8], words: &str| {
        let folder = folder();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let url = format!(
            "nbd+unix:///?socket={}&headers=simple&reconnect=0",
            folder.path().join("socket").display()
        );
        let (script, export) = (script.to_vec(), export.clone());
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
            let mut asked = [0; 4 + 16 + 4 + 2 + 6];
            socket.read_exact(&mut asked).unwrap();
            socket.write_all(&export).unwrap();
            socket.read_exact(&mut [0; 28]).unwrap();
            let _ = socket.write_all(&script);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let backend = open_url_with(&url, brunt_store::BACKENDS, false).unwrap();
        let mut hand = Hand::on(&*backend, 4);
        let requests = (0..4)
            .map(|tag| hand.request(tag, Op::Read, tag * 65536, 65536))
            .collect();
        let done = hand.run(requests);
        assert_eq!(
            done.iter().map(|one| one.tag).collect::<Vec<_>>(),
            [0, 1, 2, 3],
            "{words}"
        );
        assert!(done.iter().all(|one| one.buf.len() == 65536), "{words}");
        assert!(
            done[3].result == Err(DeviceError::Gone),
            "{words}: {:?}",
            done[3].result
        );
        let trouble = hand.device.health().trouble.unwrap();
        assert!(
            trouble.contains(words),
            "'{trouble}' does not say '{words}'"
        );
        drop((hand, backend));
        thread.join().unwrap();
    };
    check(b"", "closed the connection");
    check(&[0xff; 64], "invalid reply");
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", "invalid reply");
    let reply = |cookie: u64| [b"\x67\x44\x66\x98\0\0\0\0", &cookie.to_be_bytes()[..]].concat();
    check(&reply(0xdead), "unknown request, or twice");
    // Replies cut off within a header, and within data that is read in place.
    check(&reply(1 << 16)[..9], "closed the connection");
    check(
        &[reply(1 << 16), vec![7; 40_000]].concat(),
        "closed the connection",
    );
    let twice = [reply(1 << 16), vec![7; 65536], reply(1 << 16)].concat();
    check(&twice, "unknown request, or twice");
    // Structured replies that weren't negotiated.
    check(
        b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0",
        "invalid reply",
    );

    // A peer that isn't an NBD server is distinguished from a slow one.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nbd://{}/?timeout=60s", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut mail, _) = listener.accept().unwrap();
        mail.write_all(b"220 mail.example.org ESMTP Postfix\r\n")
            .unwrap();
        mail
    });
    let error = |url: &str| {
        open_url_with(url, brunt_store::BACKENDS, false)
            .err()
            .unwrap()
            .to_string()
    };
    assert!(error(&url).contains("NBDMAGIC"));
    drop(thread.join().unwrap());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nbd://{}/?timeout=300ms", silent.local_addr().unwrap());
    assert!(
        error(&url).contains("timed out waiting for a reply"),
        "{}",
        error(&url)
    );
}

/// TLS: encrypted data is correct; a peer that fails verification, on either side, gets no further.
#[test]
fn over_tls_data_is_right_and_unverified_peers_get_no_further() {
    if need("openssl", "openssl").is_none() {
        return;
    }
    let folder = folder();
    disk(&folder, 16 * MIB);
    certificates(folder.path());
    let pki = folder.path().display().to_string();
    let words = [
        "--tls=require",
        &format!("--tls-certificates={pki}"),
        "--tls-verify-peer",
        "--filter=cow",
        "file",
        "DISK",
    ];
    let Some(server) = nbdkit(folder, &words) else {
        return;
    };
    let url = |scheme: &str, options: &str| server.url("", options).replacen("nbd+unix", scheme, 1);
    let good = url("nbds+unix", &format!("tls-certificates={pki}"));
    let backend = open_url_with(&good, brunt_store::BACKENDS, false).unwrap();
    assert!(
        backend.info().facts.contains(&"TLS 1.3".to_string()),
        "{:?}",
        backend.info().facts
    );
    let mut hand = Hand::on(&*backend, 32);
    let writes: Vec<Request> = (0..64)
        .map(|tag| {
            // Sizes below and above a TLS record.
            let mut request = hand.request(
                tag,
                Op::Write,
                tag * 200_704,
                if tag % 2 == 0 { 4096 } else { 200_704 },
            );
            request.buf.fill(tag as u8 + 1);
            request
        })
        .collect();
    assert!(
        hand.run(writes)
            .iter()
            .all(|one| one.result == Ok(()) && !one.buf.is_empty())
    );
    let reads = (0..64)
        .map(|tag| hand.request(tag, Op::Read, tag * 200_704, 200_704))
        .collect();
    for one in hand.run(reads) {
        let (written, rest) = one
            .buf
            .split_at(if one.tag % 2 == 0 { 4096 } else { 200_704 });
        assert_eq!(one.result, Ok(()));
        assert!(
            written.iter().all(|&byte| byte == one.tag as u8 + 1)
                && rest.iter().all(|&byte| byte == 0)
        );
    }
    drop(hand);

    let check = |url: String, words: &str| {
        let error = open_url_with(&url, brunt_store::BACKENDS, false)
            .err()
            .expect(words)
            .to_string();
        assert!(error.contains(words), "'{error}' does not say '{words}'");
    };
    check(url("nbd+unix", ""), "requires TLS; write nbds://");
    check(
        url(
            "nbds+unix",
            &format!("tls-certificates={pki}&tls-hostname=example.org"),
        ),
        "TLS: invalid peer certificate",
    );
    let stranger = tempfile::tempdir().unwrap();
    certificates(stranger.path());
    check(
        url(
            "nbds+unix",
            &format!("tls-certificates={}", stranger.path().display()),
        ),
        "TLS: invalid peer certificate",
    );
    // The client doesn't verify the server's certificate, but the server verifies the client's.
    let unverified = url(
        "nbds+unix",
        &format!(
            "tls-verify-peer=0&tls-certificates={}",
            stranger.path().display()
        ),
    );
    assert!(open_url_with(&unverified, brunt_store::BACKENDS, false).is_err());
    let anyone = url(
        "nbds+unix",
        &format!("tls-verify-peer=0&tls-certificates={pki}"),
    );
    assert!(open_url_with(&anyone, brunt_store::BACKENDS, false).is_ok());
    let plain = nbdkit(self::folder(), &["--tls=off", "memory", "1M"]).unwrap();
    let wanted =
        plain
            .url("", &format!("tls-certificates={pki}"))
            .replacen("nbd+unix", "nbds+unix", 1);
    check(wanted, "does not offer TLS");
}
