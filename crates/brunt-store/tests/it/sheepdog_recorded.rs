//! Tests the Sheepdog client against the recorded responses of a real sheep (testdata/sheepdog/exchange.bin): it sends
//! the same bytes as before, with the same results; truncated responses cause errors, but never a hang.
//!
//! The recording was made by this test, acting as a proxy between the client and a sheep. To repeat it, format a
//! cluster of sheep with `dog cluster format -c 1 -l`, run `dog vdi create recorded 16M`, and run the test with
//! `SHEEPDOG_RECORD=FOLDER:PORT`, where the folder contains the program `dog` and the port is the sheep's.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use brunt_block::device::Allocation;
use brunt_block::{
    Backend, Buf, Completion, Device, DeviceError, Op, OpenError, Request, Ring, RingConfig,
    open_url_with, turn,
};
use brunt_wire::sheepdog::header::{HEADER_BYTES, flag};
use brunt_wire::sheepdog::{SheepdogRequest, SheepdogResponse};

const OBJECT: u64 = 4 << 20;
/// Number of recorded connections: two for the disk, and one each for its release, the snapshot and the nonexistent
/// VDI.
const CONNECTIONS: usize = 5;

/// Position of the id in requests and responses.
const ID: Range<usize> = 8..12;

/// A complete request and its response.
type Exchange = (Vec<u8>, Vec<u8>);

/// The exchanges of each connection, in order.
type Recording = Vec<Vec<Exchange>>;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/sheepdog/exchange.bin")
}

/// Loads the file. Each message consists of the connection's number, whether it is a response, its length (4 bytes,
/// little-endian), and its bytes.
fn load() -> Recording {
    let bytes = std::fs::read(file()).unwrap();
    let (mut rest, mut recording, mut request) = (&bytes[..], Recording::new(), Vec::new());
    while let [connection, is_response, a, b, c, d, tail @ ..] = rest {
        let (message, tail) = tail.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        rest = tail;
        recording.resize(
            recording.len().max(usize::from(*connection) + 1),
            Vec::new(),
        );
        match is_response {
            0 => request = message.to_vec(),
            _ => recording[usize::from(*connection)]
                .push((std::mem::take(&mut request), message.to_vec())),
        }
    }
    recording
}

fn save(recording: &Recording) {
    let mut bytes = Vec::new();
    for (connection, exchanges) in recording.iter().enumerate() {
        for (request, response) in exchanges {
            for (is_response, message) in [(0, request), (1, response)] {
                bytes.extend([connection as u8, is_response]);
                bytes.extend((message.len() as u32).to_le_bytes());
                bytes.extend(message);
            }
        }
    }
    std::fs::create_dir_all(file().parent().unwrap()).unwrap();
    std::fs::write(file(), bytes).unwrap();
}

/// Reads the next message; `None` if there are no more.
fn message(socket: &mut TcpStream, data_len: impl Fn(&[u8]) -> usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES];
    match socket.read_exact(&mut bytes) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            ) =>
        {
            return None;
        }
        read => read.unwrap(),
    }
    bytes.resize(HEADER_BYTES + data_len(&bytes), 0);
    socket.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
    Some(bytes)
}

fn request_len(header: &[u8]) -> usize {
    let request = SheepdogRequest::parse(header).unwrap();
    if request.flags & flag::WRITE != 0 {
        request.data_len as usize
    } else {
        0
    }
}

fn response_len(header: &[u8]) -> usize {
    SheepdogResponse::parse(header).unwrap().data_len as usize
}

/// Records the traffic between the client and a sheep.
fn record(listener: &TcpListener, sheep: SocketAddr) -> Recording {
    let mut recording = Recording::new();
    for _ in 0..CONNECTIONS {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(sheep).unwrap();
        let mut exchanges = Vec::new();
        while let Some(request) = message(&mut client, request_len) {
            server.write_all(&request).unwrap();
            let response = message(&mut server, response_len).unwrap();
            client.write_all(&response).unwrap();
            exchanges.push((request, response));
        }
        recording.push(exchanges);
    }
    recording
}

/// Answers as recorded and checks that the requests are the same. Closes the connection after `limit` bytes in total.
fn replay(listener: &TcpListener, recording: &Recording, mut limit: usize) {
    for exchanges in recording {
        let (mut client, _) = listener.accept().unwrap();
        for (at, (expected, response)) in exchanges.iter().enumerate() {
            let Some(request) = message(&mut client, request_len) else {
                return;
            };
            // The client chooses ids, which the sheep echoes.
            let with_its_id = |message: &[u8]| {
                let mut message = message.to_vec();
                message[ID].copy_from_slice(&request[ID]);
                message
            };
            assert!(
                request == with_its_id(expected),
                "request {at} is another: {:?}",
                SheepdogRequest::parse(&request)
            );
            let response = with_its_id(response);
            let part = response.len().min(limit);
            limit -= part;
            client.write_all(&response[..part]).unwrap();
            if part < response.len() {
                client.shutdown(Shutdown::Both).unwrap();
                return;
            }
        }
        assert!(
            message(&mut client, request_len).is_none(),
            "the client hangs up, and asks nothing else"
        );
    }
}

struct Hand {
    ring: Ring,
    device: Box<dyn Device>,
}

impl Hand {
    fn on(backend: &dyn Backend) -> Hand {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let device = backend.open(&ring, 1).unwrap();
        Hand { ring, device }
    }

    fn one(&mut self, op: Op, offset: u64, len: u64, byte: u8) -> Completion {
        let moves_data = matches!(op, Op::Read | Op::Write);
        let mut buf = if moves_data {
            self.ring.pool().take(len as usize)
        } else {
            Buf::empty()
        };
        buf.fill(byte);
        let request = Request {
            tag: 1,
            op,
            offset,
            len,
            buf,
            force_unit_access: false,
        };
        let (mut batch, mut done) = (VecDeque::from([request]), Vec::new());
        while done.is_empty() {
            turn::turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
        }
        done.pop().unwrap()
    }

    fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        let done = self.one(Op::Read, offset, len, 0xaa);
        assert_eq!(done.result, Ok(()));
        done.buf[..len as usize].to_vec()
    }
}

fn open(port: u16, rest: &str) -> Result<Arc<dyn Backend>, OpenError> {
    open_url_with(
        &format!("sheepdog://127.0.0.1:{port}/{rest}"),
        brunt_store::BACKENDS,
        false,
    )
}

/// Sends the recorded requests; `snapshot` takes a snapshot if there is a cluster.
fn session(port: u16, snapshot: impl Fn()) {
    let backend = open(port, "recorded").unwrap();
    assert_eq!(backend.info().size_bytes, 4 * OBJECT);
    assert_eq!(
        backend.allocation(0),
        Some((Allocation::Deallocated, 4 * OBJECT))
    );
    let mut hand = Hand::on(&*backend);
    // Creates two objects, across their boundary.
    assert_eq!(hand.one(Op::Write, OBJECT - 512, 1024, 1).result, Ok(()));
    assert_eq!(hand.one(Op::Write, OBJECT + 512, 512, 2).result, Ok(()));
    let read = hand.read(OBJECT - 1024, 3072);
    assert!(read == [vec![0; 512], vec![1; 1024], vec![2; 512], vec![0; 1024]].concat());
    assert_eq!(
        hand.read(2 * OBJECT, 4096),
        [0; 4096],
        "a hole is not asked for"
    );
    snapshot();
    // Refused because the VDI is a snapshot now; then the object is copied.
    assert_eq!(hand.one(Op::Write, OBJECT, 512, 3).result, Ok(()));
    assert_eq!(hand.device.health().reconnects, 1);
    assert!(hand.read(OBJECT, 1024) == [vec![3; 512], vec![2; 512]].concat());
    assert_eq!(hand.one(Op::Unmap, OBJECT, OBJECT, 0).result, Ok(()));
    assert_eq!(
        backend.allocation(OBJECT),
        Some((Allocation::Deallocated, 3 * OBJECT))
    );
    drop((hand, backend));
    let before = open(port, "recorded?snapshot=before").unwrap();
    assert!(before.info().read_only);
    assert!(Hand::on(&*before).read(OBJECT, 1024) == [vec![1; 512], vec![2; 512]].concat());
    drop(before);
    let error = open(port, "nothing").err().unwrap().to_string();
    assert!(error.contains("SD_RES_NO_VDI (0x08)"), "{error}");
}

fn serve(work: impl FnOnce(TcpListener) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, thread::spawn(move || work(listener)))
}

#[test]
fn the_client_sends_the_recorded_bytes_and_gets_the_same_results() {
    if let Ok(place) = std::env::var("SHEEPDOG_RECORD") {
        let (folder, sheep) = place.rsplit_once(':').expect("FOLDER:PORT");
        let address = (Ipv4Addr::LOCALHOST, sheep.parse().unwrap()).into();
        let (port, thread) = serve(move |listener| save(&record(&listener, address)));
        session(port, || {
            let mut dog = Command::new(Path::new(folder).join("dog"));
            dog.args(["vdi", "snapshot", "-p", sheep, "-s", "before", "recorded"]);
            assert!(dog.status().unwrap().success());
        });
        thread.join().unwrap();
        return;
    }
    let recording = load();
    assert_eq!(recording.len(), CONNECTIONS);
    let (port, thread) = serve(move |listener| replay(&listener, &recording, usize::MAX));
    session(port, || {});
    thread.join().unwrap();
}

/// Responses may end after any byte of the handshake, and after every seventh byte of the rest.
#[test]
fn truncated_responses_are_errors_and_never_hang() {
    let first = vec![load().swap_remove(0)];
    let len = |exchanges: &[Exchange]| {
        exchanges
            .iter()
            .map(|(_, response)| response.len())
            .sum::<usize>()
    };
    // LOCK_VDI, the inode's fields, its map.
    let handshake = len(&first[0][..3]);
    for limit in (0..handshake).chain((handshake..len(&first[0])).step_by(7)) {
        let first = first.clone();
        let (port, thread) = serve(move |listener| replay(&listener, &first, limit));
        match open(port, "recorded?reconnect=0") {
            Err(error) => {
                assert!(limit < handshake, "{limit} bytes: {error}");
                assert!(
                    error.to_string().contains("connection failed"),
                    "{limit} bytes: {error}"
                );
            }
            Ok(backend) => {
                assert!(limit >= handshake, "{limit} bytes are no handshake");
                let mut hand = Hand::on(&*backend);
                let mut results = vec![hand.one(Op::Write, OBJECT - 512, 1024, 1).result];
                results.push(hand.one(Op::Write, OBJECT + 512, 512, 2).result);
                results.push(hand.one(Op::Read, OBJECT - 1024, 3072, 0xaa).result);
                // All requests after the first unanswered one fail.
                let gone = results
                    .iter()
                    .position(Result::is_err)
                    .unwrap_or(results.len());
                assert!(
                    results[gone..]
                        .iter()
                        .all(|one| *one == Err(DeviceError::Gone)),
                    "{results:?}"
                );
            }
        }
        thread.join().unwrap();
    }
}
