//! Tests initiator and target together: for all combinations of negotiated values, written bytes arrive on the medium,
//! and a read returns them. The medium is checked directly, without the target.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::backends::memory::MemoryBackend;
use brunt_block::sparse::SparseMemory;
use brunt_block::{Buf, Device, Op, Request, Ring, RingConfig, open_url_with};
use brunt_core::random::Random;
use brunt_iscsi::initiator::{connect, url::InitiatorConfig};
use brunt_iscsi::scsi::{LogicalUnit, LunMap, LunOptions};
use brunt_iscsi::target_node::{ServedTarget, TargetConfig, TargetServer};

const SIZE_BYTES: u64 = 64 << 20;

fn start() -> (TargetServer, Arc<SparseMemory>) {
    let backend = MemoryBackend::new(SIZE_BYTES, 512).unwrap();
    let memory = Arc::clone(backend.memory());
    let unit = LogicalUnit::new(Arc::new(backend), LunOptions::default()).unwrap();
    let portal: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = TargetConfig {
        portals: vec![portal.into()],
        ..TargetConfig::default()
    };
    let target = ServedTarget::new("iqn.2026-11.io.brunt:t0", LunMap::new(vec![(0, unit)]));
    (TargetServer::start(config, vec![target]).unwrap(), memory)
}

/// Writes and reads back `rounds` random ranges of up to `size` bytes, with eight requests at a time, each in its own
/// eighth of the medium.
fn check(server: &TargetServer, memory: &SparseMemory, options: &str, size: usize) {
    let question = if options.is_empty() { "" } else { "?" };
    let url = format!(
        "iscsi://{}/{}/0{question}{options}",
        server.portals()[0],
        server.targets()[0].name
    );
    let backend = open_url_with(&url, brunt_iscsi::BACKENDS, false)
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    // Negotiated values are reported as facts, and there are no notes.
    let info = backend.info();
    assert!(
        info.facts
            .iter()
            .any(|fact| fact.starts_with("iSCSI: digests header")),
        "{:?}",
        info.facts
    );
    assert_eq!(info.notes, Vec::<String>::new());
    let ring = Ring::new(RingConfig::default()).unwrap();
    let mut device = backend.open(&ring, 8).unwrap();
    let mut random = Random::new(size as u64);
    for round in 0..3 {
        let ranges: Vec<(u64, usize)> = (0..8)
            .map(|slot| {
                // The first round uses the full length, the others random lengths.
                let len = if round == 0 {
                    size
                } else {
                    (1 + random.below(size as u64 / 512)) as usize * 512
                };
                (slot * (SIZE_BYTES / 8) + random.below(1000) * 512, len)
            })
            .collect();
        let written: Vec<Vec<u8>> = ranges
            .iter()
            .map(|&(_, len)| {
                let mut data = vec![0; len];
                random.fill(&mut data);
                data
            })
            .collect();
        let bufs = written.iter().map(|data| {
            let mut buf = ring.pool().take(data.len());
            buf.copy_from_slice(data);
            buf
        });
        run(&ring, &mut *device, Op::Write, &ranges, bufs.collect());
        for (&(offset, len), data) in ranges.iter().zip(&written) {
            let mut on_medium = vec![0; len];
            memory.read(offset, &mut on_medium);
            assert!(
                on_medium == *data,
                "{options}: {len} bytes at {offset} were written wrongly"
            );
        }
        let bufs = ranges.iter().map(|&(_, len)| Buf::zeroed(len)).collect();
        let read = run(&ring, &mut *device, Op::Read, &ranges, bufs);
        for ((buf, data), (offset, len)) in read.iter().zip(&written).zip(&ranges) {
            assert!(
                **buf == **data,
                "{options}: {len} bytes at {offset} were read wrongly"
            );
        }
    }
}

fn run(
    ring: &Ring,
    device: &mut dyn Device,
    op: Op,
    ranges: &[(u64, usize)],
    bufs: Vec<Buf>,
) -> Vec<Buf> {
    let mut batch: VecDeque<Request> = ranges
        .iter()
        .zip(bufs)
        .enumerate()
        .map(|(tag, (&(offset, len), buf))| Request {
            tag: tag as u64,
            op,
            offset,
            len: len as u64,
            buf,
            force_unit_access: false,
        })
        .collect();
    let mut done = Vec::new();
    while done.len() < ranges.len() {
        device.submit(&mut batch);
        ring.enter(device.deadline()).unwrap();
        device.poll(&mut done);
    }
    done.sort_by_key(|completion| completion.tag);
    done.into_iter()
        .map(|completion| {
            completion
                .result
                .unwrap_or_else(|error| panic!("{op:?} {}: {error}", completion.tag));
            completion.buf
        })
        .collect()
}

/// Every size from a block to more than the largest segment, especially around the sizes of receive buffers and
/// segments, with default negotiation.
#[test]
fn transfers_of_every_size_arrive() {
    let (server, memory) = start();
    for size in [
        512,
        4096,
        8192,
        65536,
        (256 << 10) - 512,
        256 << 10,
        (256 << 10) + 512,
        1 << 20,
        3 << 20,
    ] {
        check(&server, &memory, "", size);
    }
    server.shutdown(Duration::from_secs(1));
}

/// Every combination of the keys that affect how data is transferred.
#[test]
fn transfers_arrive_with_every_combination_of_keys() {
    let (server, memory) = start();
    for digests in [
        "",
        "header_digest=crc32c&",
        "data_digest=crc32c&",
        "header_digest=crc32c&data_digest=crc32c&",
    ] {
        for unsolicited in [
            "",
            "immediate_data=no&",
            "initial_r2t=yes&",
            "immediate_data=no&initial_r2t=yes&",
        ] {
            for limits in [
                "",
                "max_recv=4096&",
                "max_burst=64k&first_burst=16k&outstanding_r2t=1&",
            ] {
                let options = format!("{digests}{unsolicited}{limits}timeout=120s");
                check(&server, &memory, &options, 4096);
                check(&server, &memory, &options, 300 << 10);
            }
        }
    }
    let stats = server.shutdown(Duration::from_secs(1));
    assert_eq!(stats.connections_broken, 0);
}

/// Several connections in a session, and several sessions, serve one LUN.
#[test]
fn several_connections_and_sessions_serve_one_lun() {
    let (server, memory) = start();
    for options in [
        "connections=3",
        "sessions=2",
        "connections=2&sessions=2&data_digest=crc32c",
    ] {
        check(&server, &memory, options, 4096);
        check(&server, &memory, options, 1 << 20);
    }
    server.shutdown(Duration::from_secs(1));
}

/// Copies bytes between two sockets until either closes.
fn join(near: TcpStream, far: TcpStream) {
    for (mut from, mut to) in [
        (near.try_clone().unwrap(), far.try_clone().unwrap()),
        (far, near),
    ] {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

/// A proxy that breaks the connections with these numbers (from 0) during login, as if packets were lost.
fn lossy(server: SocketAddr, broken: &'static [usize]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            let mut socket = socket.unwrap();
            if broken.contains(&number) {
                let _ = socket.read(&mut [0; 48]);
            } else {
                join(socket, TcpStream::connect(server).unwrap());
            }
        }
    });
    address
}

/// Discovery is retried when its connection breaks, and the retries are counted.
#[test]
fn discoveries_outlive_a_broken_connection() {
    let (server, _) = start();
    let discover = |broken: &'static [usize]| {
        let at = lossy(server.portals()[0], broken);
        let config =
            InitiatorConfig::parse(&format!("//{at}"), &mut Default::default(), &|_| None).unwrap();
        (at, connect::discover(&config))
    };
    for (broken, retries) in [(&[][..], 0), (&[0][..], 1), (&[0, 1][..], 2)] {
        let (at, found) = discover(broken);
        let found = found.unwrap();
        assert_eq!(found.value[0].name, "iqn.2026-11.io.brunt:t0");
        assert_eq!(found.retries, retries);
        let trouble = found.trouble.map(|trouble| trouble.to_string());
        assert_eq!(trouble.is_some(), retries > 0);
        assert!(
            trouble.is_none_or(|said| said.starts_with(&format!("{at}: the connection failed")))
        );
    }
    let error = discover(&[0, 1, 2, 3, 4, 5, 6, 7])
        .1
        .unwrap_err()
        .to_string();
    assert!(error.contains("8 attempts"), "{error}");
}

/// A login that breaks is retried and counted separately from the device's requests; the same holds for the login of
/// a session's second connection. A rejection by the target isn't retried.
#[test]
fn logins_outlive_a_broken_connection() {
    let (server, _) = start();
    let url =
        |at: SocketAddr, options: &str| format!("iscsi://{at}/iqn.2026-11.io.brunt:t0/0{options}");
    let open = |url: &str| open_url_with(url, brunt_iscsi::BACKENDS, false);
    let ring = Ring::new(RingConfig::default()).unwrap();
    let check = |broken: &'static [usize], options: &str, retries: u64| {
        let at = lossy(server.portals()[0], broken);
        let backend = open(&url(at, options)).unwrap();
        let device = backend.open(&ring, 1).unwrap();
        let health = device.health();
        assert_eq!(
            health.connect_retries, retries,
            "{broken:?}{options}: {health:?}"
        );
        if retries > 0 {
            let note = health.note().unwrap();
            assert!(
                note.starts_with(&format!("connection retries: {retries}, last error: {at}")),
                "{note}"
            );
            assert!(note.contains("failed during login"), "{note}");
        }
    };
    check(&[], "", 0);
    check(&[0], "", 1);
    check(&[0, 1, 2], "", 3);
    // The second connection breaks while the first is open, so both are established again.
    check(&[1], "?connections=2", 1);
    let refused = server.stats().logins_refused;
    let unknown = format!(
        "iscsi://{}/iqn.2026-11.io.brunt:no/0",
        lossy(server.portals()[0], &[0])
    );
    let error = open(&unknown)
        .err()
        .expect("there is no such target")
        .to_string();
    assert!(
        error.contains("no target with this name") && error.contains("2 attempts"),
        "{error}"
    );
    assert_eq!(server.stats().logins_refused, refused + 1);
    let nobody = open(&url(
        lossy(server.portals()[0], &[0, 1, 2, 3, 4, 5, 6, 7]),
        "",
    ));
    let error = nobody.err().expect("all attempts break").to_string();
    assert!(
        error.contains("failed during login") && error.contains("8 attempts"),
        "{error}"
    );
}
