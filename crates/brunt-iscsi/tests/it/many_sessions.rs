//! Many sessions of a target share few threads: idle sessions cost little, and a failure affects only one session.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use brunt_block::backends::memory::MemoryBackend;
use brunt_block::{Backend, Completion, Device, DeviceInfo, OpenError, Request, Ring};
use brunt_core::Nanos;
use brunt_iscsi::scsi::{LogicalUnit, LunMap, LunOptions};
use brunt_iscsi::target_node::{ServedTarget, TargetConfig, TargetServer};
use zerocopy::IntoBytes;

use super::target::{NAME, assert_alive, command, log_in, loopback, next_status, receive, target};

/// A read of this block panics in the device.
const PANIC_BLOCK: u8 = 1;
/// A read of this block never completes.
const HANG_BLOCK: u8 = 2;
/// More than any machine's cores, so that some threads serve several connections.
const SESSIONS: u16 = 96;

struct Trouble(MemoryBackend);

struct TroubleDevice {
    inner: Box<dyn Device>,
    hanging: Vec<Request>,
}

impl Backend for Trouble {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let inner = self.0.open(ring, depth)?;
        Ok(Box::new(TroubleDevice {
            inner,
            hanging: Vec::new(),
        }))
    }

    fn may_wait(&self) -> bool {
        false
    }
}

impl Device for TroubleDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>) {
        let block = |request: &Request| (request.offset / 512) as u8;
        assert!(
            !batch.iter().any(|request| block(request) == PANIC_BLOCK),
            "this test's device panics at this block"
        );
        for request in std::mem::take(batch) {
            match block(&request) {
                HANG_BLOCK => self.hanging.push(request),
                _ => batch.push_back(request),
            }
        }
        self.inner.submit(batch);
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.inner.poll(done);
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding() + self.hanging.len() as u32
    }

    fn deadline(&self) -> Nanos {
        self.inner.deadline()
    }
}

fn read(cmd_sn: u32, block: u8) -> Vec<u8> {
    let mut read = command(0x28, 0xc0, cmd_sn, 512);
    read.cdb[5] = block;
    read.as_bytes().to_vec()
}

/// Reads a block `count` times, in batches of eight. The first command of a session reports its unit attention.
fn read_often(socket: &mut TcpStream, count: u32) {
    for first in (1..=count).step_by(8) {
        let batch = first..(first + 8).min(count + 1);
        let reads: Vec<u8> = batch.clone().flat_map(|cmd_sn| read(cmd_sn, 0)).collect();
        socket.write_all(&reads).unwrap();
        for cmd_sn in batch {
            let status = if cmd_sn == 1 { 2 } else { 0 };
            assert_eq!(next_status(socket).0, status, "command {cmd_sn}");
        }
    }
}

pub(super) fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not true within 300 s: {what}");
}

/// All commands of busy sessions are answered while hundreds of other sessions are idle, and the idle sessions stay
/// alive.
#[test]
fn a_few_busy_sessions_work_among_hundreds_of_idle_ones() {
    const IDLE: u16 = 256;
    const BUSY: u16 = 4;
    const READS: u32 = 2000;
    let server = target(&["memory:1MiB"], |config| config.sessions_max = 300);
    let mut idle: Vec<TcpStream> = (0..IDLE).map(|isid| log_in(&server, isid)).collect();
    std::thread::scope(|scope| {
        for isid in IDLE..IDLE + BUSY {
            let server = &server;
            scope.spawn(move || read_often(&mut log_in(server, isid), READS));
        }
    });
    // The counters of a connection follow its last response.
    eventually("all commands are counted", || {
        server.stats().counters.commands == u64::from(BUSY) * u64::from(READS)
    });
    assert_eq!(server.stats().connections_broken, 0);
    idle.iter_mut().for_each(assert_alive);
    for mut socket in idle {
        read_often(&mut socket, 9);
    }
    let stats = server.shutdown(Duration::ZERO);
    let commands = u64::from(BUSY) * u64::from(READS) + u64::from(IDLE) * 9;
    assert_eq!(
        (stats.counters.commands, stats.sessions, stats.sessions_open),
        (commands, u64::from(IDLE + BUSY), 0)
    );
}

/// A panic in a device ends the connection whose request caused it; a device that never completes a request holds up
/// only the connection that waits for it, even when that connection closes.
#[test]
fn a_panic_or_a_hanging_device_affects_one_connection() {
    let options = LunOptions {
        serial: "trouble".into(),
        ..LunOptions::default()
    };
    let backend = Arc::new(Trouble(MemoryBackend::new(1 << 20, 512).unwrap()));
    let luns = LunMap::new(vec![(0, LogicalUnit::new(backend, options).unwrap())]);
    let config = TargetConfig {
        portals: vec![loopback()],
        ..TargetConfig::default()
    };
    let server = TargetServer::start(config, vec![ServedTarget::new(NAME, luns)]).unwrap();
    let mut sockets: Vec<TcpStream> = (0..SESSIONS).map(|isid| log_in(&server, isid)).collect();
    for socket in &mut sockets {
        read_often(socket, 2);
    }
    let (mut panicking, mut hanging) = (sockets.remove(0), sockets.remove(0));
    let open = || server.stats().sessions_open;

    hanging.write_all(&read(3, HANG_BLOCK)).unwrap();
    assert_alive(&mut hanging);
    panicking.write_all(&read(3, PANIC_BLOCK)).unwrap();
    assert!(receive(&mut panicking).is_none(), "closed");
    eventually("the panicking session is gone", || {
        open() == u64::from(SESSIONS) - 1
    });
    assert_eq!(server.stats().connections_broken, 1);
    sockets.iter_mut().for_each(assert_alive);

    drop(hanging);
    for socket in &mut sockets {
        socket.write_all(&read(3, 0)).unwrap();
        assert_eq!(next_status(socket), (0, None));
    }
    eventually("the hanging session is abandoned", || {
        open() == u64::from(SESSIONS) - 2
    });
    sockets.iter_mut().for_each(assert_alive);
}
