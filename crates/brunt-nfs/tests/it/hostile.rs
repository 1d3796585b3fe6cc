//! Servers that answer honestly until a device is open, and then violate the protocol: every request ends once, with
//! an error, and the device's health names the server and the violation.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use brunt_block::{DeviceError, Op, Ring, RingConfig, open_url_with};
use brunt_nfs::BACKENDS;
use brunt_nfs::rpc::{begin_reply, finish_record};
use brunt_nfs::server::service::NfsService;
use brunt_wire::nfs::v3::{NfsTime, Procedure, ResultBody, Results, Status, Wcc};
use brunt_wire::rpc::{MARK_BYTES, ReplyStatus, RpcMessage, Xid, parse};

use crate::suite::Bench;

/// What a server sends instead of an honest reply.
type Spoil = dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync;

/// A server that spoils its replies to one NFS procedure.
struct Hostile {
    port: u16,
    stop: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

impl Hostile {
    fn start(spoiled: Procedure, spoil: Arc<Spoil>) -> Hostile {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let service = Arc::new(NfsService::new(1));
        let stop = Arc::clone(&listener);
        let accept = move || {
            let mut threads = Vec::new();
            // A connection without data stops the server.
            while let Ok((socket, _)) = listener.accept() {
                let mut first = [0];
                if socket.peek(&mut first).unwrap_or(0) == 0 {
                    break;
                }
                let (service, spoil) = (Arc::clone(&service), Arc::clone(&spoil));
                let serve = move || serve(socket, port, &service, (spoiled, &*spoil));
                threads.push(std::thread::spawn(serve));
            }
            threads.into_iter().for_each(|one| one.join().unwrap());
        };
        Hostile {
            port,
            stop,
            thread: Some(std::thread::spawn(accept)),
        }
    }

    fn url(&self, options: &str) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1:{port}/export/disk?mountport={port}&reconnect=0{options}")
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = TcpStream::connect(self.stop.local_addr().unwrap());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// Answers until the client closes the connection.
fn serve(
    mut socket: TcpStream,
    port: u16,
    service: &NfsService,
    (spoiled, spoil): (Procedure, &Spoil),
) {
    loop {
        let mut mark = [0; MARK_BYTES];
        if socket.read_exact(&mut mark).is_err() {
            return;
        }
        let len = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
        let mut record = vec![0; len];
        socket.read_exact(&mut record).unwrap();
        let Ok(RpcMessage::Call(call)) = parse(&record) else {
            panic!("a client sends calls")
        };
        let mut reply = Vec::new();
        let with = (port, NfsTime::default());
        let served = service.answer(&record, len, with, &mut reply).unwrap();
        reply.resize(reply.len() + served.read_bytes.next_multiple_of(4), 0);
        if call.program == 100_003 && call.procedure == spoiled as u32 {
            reply = spoil(reply);
        }
        if socket.write_all(&reply).is_err() {
            return;
        }
    }
}

/// Replaces an honest reply to a READ with one that has this status.
fn failing(status: u32) -> Arc<Spoil> {
    Arc::new(move |honest| {
        let xid = u32::from_be_bytes(*honest[MARK_BYTES..].first_chunk().unwrap());
        let mut reply = Vec::new();
        begin_reply(&mut reply, Xid(xid), ReplyStatus::Success);
        let body = ResultBody::Failed {
            attributes: None,
            wcc: [Wcc::default(); 2],
        };
        let status = Status(status);
        Results { status, body }.encode(Procedure::Read, &mut reply);
        finish_record(&mut reply, 0);
        reply
    })
}

#[test]
fn requests_end_once_whatever_a_server_sends() {
    let check = |spoil: Arc<Spoil>, options: &str, expected: Option<DeviceError>, words: &str| {
        let server = Hostile::start(Procedure::Read, spoil);
        let backend = open_url_with(&server.url(options), BACKENDS, false).unwrap();
        let mut bench = Bench::on(Ring::new(RingConfig::default()).unwrap(), &*backend, 8);
        let requests = (0..20).map(|tag| bench.request(tag, Op::Read, tag << 20, 64 << 10));
        let requests = requests.collect();
        let done = bench.run(requests);
        let mut tags: Vec<u64> = done.iter().map(|one| one.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..20).collect::<Vec<_>>(), "{words}");
        assert!(done.iter().all(|one| one.buf.len() == 64 << 10), "{words}");
        let errors: Vec<DeviceError> = done.iter().filter_map(|one| one.result.err()).collect();
        assert!(!errors.is_empty(), "{words}");
        let is_expected = |error: &DeviceError| expected.is_none_or(|expected| *error == expected);
        assert!(errors.iter().all(is_expected), "{words}: {errors:?}");
        let trouble = bench.device.health().trouble.unwrap_or_default();
        // A status is a valid answer, so the text doesn't name the server; the results name the target anyway.
        let server = match words.contains("NFS3ERR") {
            true => String::new(),
            false => format!("127.0.0.1:{}", server.port),
        };
        assert!(
            trouble.contains(words) && trouble.contains(&server),
            "'{trouble}' does not say '{words}'"
        );
    };
    let gone = Some(DeviceError::Gone);
    let change = |change: fn(&mut Vec<u8>)| -> Arc<Spoil> {
        Arc::new(move |mut reply| {
            change(&mut reply);
            reply
        })
    };
    let wrong_xid = change(|reply| reply[MARK_BYTES] ^= 0xff);
    check(wrong_xid, "", gone, "unknown call");
    let twice = change(|reply| {
        let again = reply.clone();
        reply.extend(again);
    });
    check(twice, "&tries=1", None, "unknown call, or twice");
    let two_gib = change(|reply| reply[..MARK_BYTES].fill(0xff));
    check(two_gib, "", gone, "record of 2147483647 bytes");
    let short = change(|reply| {
        reply.truncate(MARK_BYTES + 40);
        reply[..MARK_BYTES].copy_from_slice(&0x8000_0028_u32.to_be_bytes());
    });
    check(short, "", gone, "READ: the reply is truncated");
    let fragments = change(|reply| *reply = [0; MARK_BYTES].repeat(20_000));
    check(fragments, "", gone, "fragments");
    let silent: Arc<Spoil> = Arc::new(|_| Vec::new());
    // The timeouts also apply to opening the device, on a machine that may be busy.
    check(silent, "&timeout=2s&tries=1", None, "READ");
    check(
        failing(10006),
        "",
        None,
        "READ: the server returned NFS3ERR_SERVERFAULT",
    );
    let busy = "READ: the server returned NFS3ERR_JUKEBOX";
    check(failing(10008), "&timeout=2s", None, busy);
}

/// A handle of 128 bytes, when a file is opened: the error names server and operation.
#[test]
fn a_long_handle_is_an_error_of_its_operation() {
    let spoil: Arc<Spoil> = Arc::new(|honest| {
        // An RPC header of 24 bytes, the status, the handle.
        let at = MARK_BYTES + 28;
        let long = [&128_u32.to_be_bytes()[..], &[7; 128]].concat();
        let mut reply = [&honest[..at], &long, &honest[at + 20..]].concat();
        finish_record(&mut reply, 0);
        reply
    });
    let server = Hostile::start(Procedure::Lookup, spoil);
    let error = open_url_with(&server.url(""), BACKENDS, false)
        .err()
        .unwrap();
    let text = error.to_string();
    let place = format!("127.0.0.1:{}: ", server.port);
    assert!(
        text.contains(&place) && text.contains("LOOKUP: ") && text.contains("64 bytes"),
        "{text}"
    );
}
