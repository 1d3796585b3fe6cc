//! A server with little memory, and clients that hold on to it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use brunt_block::StorageId;
use brunt_block::backends::memory::MemoryBackend;

use super::*;
use crate::nbd::NbdBackend;
use crate::nbd::url::NbdConfig;

const PART: u32 = 256 << 10;
const READ: u8 = 0;
const WRITE: u8 = 1;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMITS: NbdMemoryLimits = NbdMemoryLimits {
    shared_bytes: 4 * PART as usize,
    arena_bytes: 0,
    own_bytes: 0,
    stuck_after: Duration::from_millis(100),
};
/// Clients that a busy machine pauses are not stuck.
const PATIENT: NbdMemoryLimits = NbdMemoryLimits {
    stuck_after: Duration::from_secs(3),
    ..LIMITS
};

fn request(kind: u8, len: u32) -> Vec<u8> {
    let head = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, kind];
    let rest = [&[0; 16][..], &len.to_be_bytes()].concat();
    [&head[..], &rest].concat()
}

/// A client in the transmission phase.
fn client(path: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let go = b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    socket.write_all(go).unwrap();
    socket.read_exact(&mut [0; 18]).unwrap();
    loop {
        let mut head = [0; 20];
        socket.read_exact(&mut head).unwrap();
        let len = u32::from_be_bytes(head[16..].try_into().unwrap());
        socket.read_exact(&mut vec![0; len as usize]).unwrap();
        let is_ack = head[12..16] == [0, 0, 0, 1];
        if is_ack {
            return socket;
        }
    }
}

/// Whether the server closes the connection, with or without having received everything.
fn is_closed(socket: &mut UnixStream) -> bool {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
    match socket.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
    }
}

/// Sends reads and takes all replies.
fn read_parts(socket: &mut UnixStream, count: usize) {
    socket
        .write_all(&request(READ, PART).repeat(count))
        .unwrap();
    for _ in 0..count {
        let mut reply = vec![0; 16 + PART as usize];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    }
}

fn start(path: &Path, limits: NbdMemoryLimits, heard: &Arc<Mutex<Vec<String>>>) -> NbdServer {
    start_at(ListeningSocket::unix(path.into()).unwrap(), limits, heard)
}

fn start_at(
    listening: ListeningSocket,
    limits: NbdMemoryLimits,
    heard: &Arc<Mutex<Vec<String>>>,
) -> NbdServer {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new(8 << 20, 512).unwrap());
    let catalog = move || {
        vec![NbdServed {
            name: "0".into(),
            description: String::new(),
            backend: Arc::clone(&backend),
            read_only: false,
        }]
    };
    let heard = Arc::clone(heard);
    NbdServer::start(
        listening,
        Arc::new(catalog),
        None,
        SocketOptions::default(),
        limits,
        ReceptionListener::new(move |line| heard.lock().unwrap().push(line.into())),
    )
    .unwrap()
}

/// Clients that never take their replies or never send all of their data lose their connections when others need the
/// memory; memory use never exceeds the limit, and a client that takes its replies is served.
#[test]
fn clients_that_hold_memory_do_not_starve_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let server = start(&path, PATIENT, &heard);
    let mut honest = client(&path);
    read_parts(&mut honest, 8);
    assert_eq!(server.stats().stuck, 0);
    let mut stuck: Vec<UnixStream> = (0..6).map(|_| client(&path)).collect();
    for (index, socket) in stuck.iter_mut().enumerate() {
        let bytes = match index % 2 {
            0 => request(READ, PART).repeat(16),
            _ => [request(WRITE, PART), vec![7; 20 << 10]].concat(),
        };
        socket.write_all(&bytes).unwrap();
    }
    // Until they hold all the memory that they can get, the client that reads doesn't need theirs.
    eventually("a stuck client is closed", || {
        read_parts(&mut honest, 8);
        server.stats().stuck >= 1
    });
    let stats = server.stats();
    assert!(
        stats.shared_bytes_peak <= PATIENT.shared_bytes as u64,
        "{stats:?}"
    );
    eventually("a client's connection ends", || {
        stuck.iter_mut().any(is_closed)
    });
    eventually("the reason is reported", || {
        let heard = heard.lock().unwrap().join("\n");
        heard.contains("neither received nor sent data for 3s")
    });
}

/// The line for memory: proven connections go before others, and returned memory goes to the first in line.
#[test]
fn proven_clients_go_first() {
    let ring = brunt_block::Ring::new(brunt_block::RingConfig::default()).unwrap();
    let memory = Memory::new(LIMITS);
    let [mut holder, mut new, mut proven] = [(); 3].map(|()| memory.join(ring.waker()));
    proven.prove();
    assert!(holder.reserve_up_to(LIMITS.shared_bytes) && !holder.is_short());
    assert!(!new.reserve_up_to(PART as usize) && !proven.reserve_up_to(PART as usize));
    assert!(holder.is_short() && new.waits() && proven.waits());
    holder.set(LIMITS.shared_bytes - PART as usize);
    assert!(!new.reserve_up_to(PART as usize), "not its turn");
    assert!(proven.reserve_up_to(PART as usize));
    assert!(!new.reserve_up_to(PART as usize), "no room");
    drop(holder);
    assert!(new.reserve_up_to(PART as usize) && !new.is_short());
    assert_eq!(memory.peak_and_stuck(), (LIMITS.shared_bytes, 0));
}

/// Clients that hold memory keep it as long as no other client waits for it, even if they want more themselves.
#[test]
fn slow_clients_are_not_closed_without_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = start(&path, LIMITS, &Arc::default());
    let mut slow = client(&path);
    slow.write_all(&request(READ, PART).repeat(8)).unwrap();
    std::thread::sleep(LIMITS.stuck_after * 3);
    for _ in 0..8 {
        slow.read_exact(&mut vec![0; 16 + PART as usize]).unwrap();
    }
    read_parts(&mut slow, 4);
    let stats = server.shutdown();
    assert_eq!((stats.stuck, stats.broken), (0, 0), "{stats:?}");
}

/// Clients that read are served after only a few of those that never read, even though all of the latter asked for
/// memory first, and whether or not the clients have proven that they read. The clients that read don't wait until
/// each stuck client has got memory and been closed.
#[test]
fn clients_that_read_do_not_wait_for_every_stuck_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = start(&path, PATIENT, &Arc::default());
    let mut proven = client(&path);
    read_parts(&mut proven, 20);
    let mut stuck: Vec<UnixStream> = (0..60).map(|_| client(&path)).collect();
    for socket in &mut stuck {
        socket.write_all(&request(READ, PART).repeat(4)).unwrap();
    }
    eventually("a stuck client is closed", || {
        read_parts(&mut proven, 1);
        server.stats().stuck >= 1
    });
    read_parts(&mut client(&path), 1);
    // At most 4 of the 60 hold memory at a time, so closing all others first would take 42 seconds.
    let stats = server.shutdown();
    assert!((1..56).contains(&stats.stuck), "{stats:?}");
}

/// As documented, stuck clients give way within a few seconds, long before a network timeout.
#[test]
fn stuck_clients_give_way_within_seconds() {
    let default = NbdMemoryLimits::default().stuck_after;
    assert!(default <= Duration::from_secs(2), "{default:?}");
}

/// A server that listens on all addresses of this machine is recognised at each of them. If only the names and sizes of
/// two exports are the same, they may be the same export.
#[test]
fn one_export_at_two_addresses_is_one_storage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let storage = |url: &str| {
        let config = NbdConfig::of_url(url).unwrap().unwrap();
        NbdBackend::open(config).unwrap().storage()
    };
    let server = start_at(
        ListeningSocket::tcp("0.0.0.0:0".parse().unwrap()).unwrap(),
        LIMITS,
        &Arc::default(),
    );
    let port = server.address().unwrap().port();
    let [first, second] =
        ["127.0.0.1", "127.0.0.2"].map(|host| storage(&format!("nbd://{host}:{port}/0")));
    let _another = start(&path, LIMITS, &Arc::default());
    let other = storage(&format!("nbd+unix:///0?socket={}", path.display()));
    let is_same = |one: &[StorageId], two: &[StorageId]| {
        one.iter()
            .any(|one| two.iter().any(|two| one.overlaps(two)))
    };
    assert!(is_same(&first, &second), "{first:?} {second:?}");
    assert!(!is_same(&first, &other), "{first:?} {other:?}");
    let alike = first
        .iter()
        .find_map(|one| other.iter().find_map(|two| one.likeness(two)));
    assert_eq!(alike, Some("NBD export '0', 8388608 bytes"));
}
