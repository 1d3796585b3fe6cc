//! Tests commands on an in-memory logical unit, using the calls that a transport makes: once with the inline fast path,
//! once with all data passing through device requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brunt_block::backends::memory::MemoryBackend;
use brunt_block::device::Allocation;
use brunt_block::{Backend, Buf, Device, DeviceInfo, Inline, OpenError, Ring, RingConfig};
use brunt_core::{Clock, Nanos};
use brunt_wire::scsi::cdb::{be16, be32, be64, op};
use brunt_wire::scsi::opcodes::OPCODES;
use brunt_wire::scsi::sense::{ScsiStatus, key};

mod access;
mod management;
mod transfers;
mod unit;

use super::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 8192;

/// Memory that can be accessed only through requests.
struct Requests(MemoryBackend);

impl Backend for Requests {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        self.0.open(ring, depth)
    }
    fn inline(&self) -> Inline {
        Inline::No
    }
    fn allocation(&self, offset: u64) -> Option<(Allocation, u64)> {
        self.0.allocation(offset)
    }
}

fn memory() -> MemoryBackend {
    MemoryBackend::new(BLOCKS * BLOCK as u64, BLOCK as u32).expect("4 MiB")
}

fn thin() -> LunOptions {
    LunOptions {
        thin: true,
        ..LunOptions::default()
    }
}

fn unit(inline: bool, options: LunOptions) -> Arc<LogicalUnit> {
    let backend: Arc<dyn Backend> = if inline {
        Arc::new(memory())
    } else {
        Arc::new(Requests(memory()))
    };
    LogicalUnit::new(backend, options).expect("a good unit")
}

/// One connection.
struct Client {
    ring: Ring,
    set: TaskSet,
    tag: u64,
}

static NEXUS: AtomicU32 = AtomicU32::new(1);

impl Client {
    fn new(unit: &Arc<LogicalUnit>, name: &str) -> Client {
        Client::through(unit, name, 1)
    }

    /// Creates a connection through this port of the target.
    fn through(unit: &Arc<LogicalUnit>, name: &str, target_port: u16) -> Client {
        let mut client = Client::attached(unit, name, target_port);
        // The unit attention that every nexus starts with.
        assert_eq!(client.code(&[0; 6]), (key::UNIT_ATTENTION, 0x29, 0x00));
        client
    }

    fn fresh(unit: &Arc<LogicalUnit>, name: &str) -> Client {
        Client::attached(unit, name, 1)
    }

    fn attached(unit: &Arc<LogicalUnit>, name: &str, target_port: u16) -> Client {
        let ring = Ring::new(RingConfig {
            arena_bytes: 0,
            ..RingConfig::default()
        })
        .expect("a ring");
        let nexus = Nexus {
            id: u64::from(NEXUS.fetch_add(1, Ordering::Relaxed)),
            initiator_port: format!("iqn.2026-11.io.brunt:{name},i,0x00023d000001"),
            target_port,
        };
        let set = TaskSet::open(unit, &ring, &nexus, 64).expect("memory opens");
        Client { ring, set, tag: 0 }
    }

    fn begin(&mut self, cdb: &[u8], data_out_len: usize, attribute: TaskAttribute) -> (u64, Begin) {
        self.tag += 1;
        let command = TransportCommand {
            tag: self.tag,
            cdb,
            attribute,
            data_out_len: data_out_len as u32,
            data_in_len: 1 << 20,
        };
        (self.tag, self.set.begin(&command))
    }

    /// Polls until a command is finished, for at most two minutes.
    fn wait(&mut self) -> Vec<CommandOutcome> {
        let mut done = Vec::new();
        let end = Clock::Monotonic.now().after(Duration::from_secs(120));
        while done.is_empty() {
            self.set.poll(&mut done);
            assert!(Clock::Monotonic.now() < end, "no outcome in two minutes");
            if done.is_empty() {
                let until = self.set.deadline().min(end);
                self.ring.enter(until).expect("the ring works");
            }
        }
        done
    }

    fn send(&mut self, cdb: &[u8], data: &[u8]) -> CommandOutcome {
        let (tag, begun) = self.begin(cdb, data.len(), TaskAttribute::Simple);
        let now = match begun {
            Begin::Done(outcome) => Some(outcome),
            Begin::Pending => None,
            Begin::Wants { len, .. } => {
                let got = data.len().min(len as usize);
                let mut buf = Buf::zeroed(got);
                buf.copy_from_slice(&data[..got]);
                self.set.start(tag, buf, got as u32)
            }
        };
        let outcome = now.unwrap_or_else(|| self.wait().pop().expect("one outcome"));
        assert_eq!(outcome.tag, tag);
        outcome
    }

    /// Returns sense key, code and qualifier; for a status other than CHECK CONDITION, (0xff, status, 0).
    fn code_with(&mut self, cdb: &[u8], data: &[u8]) -> (u8, u8, u8) {
        let outcome = self.send(cdb, data);
        match (outcome.status, outcome.sense) {
            (ScsiStatus::CheckCondition, Some(sense)) => (sense.key, sense.asc, sense.ascq),
            (status, _) => (0xff, status.to_byte(), 0),
        }
    }

    fn code(&mut self, cdb: &[u8]) -> (u8, u8, u8) {
        self.code_with(cdb, &[])
    }

    #[track_caller]
    fn good(&mut self, cdb: &[u8], data: &[u8]) -> Vec<u8> {
        let outcome = self.send(cdb, data);
        assert_eq!(
            (outcome.status, outcome.sense),
            (ScsiStatus::Good, None),
            "{cdb:02x?}"
        );
        match outcome.data_in {
            DataIn::None => Vec::new(),
            DataIn::Bytes(bytes) => bytes,
            DataIn::Buf(buf, len) => buf[..len as usize].to_vec(),
            DataIn::Inline { offset, len } => {
                let mut out = vec![0; len as usize];
                match self.set.unit().inline() {
                    Inline::Memory(memory) => memory.read(offset, &mut out),
                    other => assert!(matches!(other, Inline::Zeros)),
                }
                out
            }
        }
    }

    #[track_caller]
    fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        self.good(&cdb16(op::READ_16, 0, lba, blocks), &[])
    }

    #[track_caller]
    fn write(&mut self, lba: u64, data: &[u8]) {
        self.good(
            &cdb16(op::WRITE_16, 0, lba, (data.len() / BLOCK) as u32),
            data,
        );
    }
}

fn cdb16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn cdb10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn cdb12(opcode: u8, flags: u8, lba: u32, blocks: u32) -> [u8; 12] {
    let mut cdb = [0; 12];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[6..10].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn bytes(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK)
        .map(|i| (i % 251) as u8 ^ seed)
        .collect()
}

const GOOD: (u8, u8, u8) = (0xff, 0, 0);
const CONFLICT: (u8, u8, u8) = (0xff, 0x18, 0);
const FIELD: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x24, 0x00);
const PARAMETER: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x26, 0x00);
const RANGE: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x21, 0x00);
const OPCODE: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x20, 0x00);
const LENGTH: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x0e, 0x03);
const NO_MEDIUM: (u8, u8, u8) = (key::NOT_READY, 0x3a, 0x00);

/// Runs a test with both ways of accessing the medium.
fn both(options: &LunOptions, test: impl Fn(&mut Client)) {
    for inline in [true, false] {
        test(&mut Client::new(&unit(inline, options.clone()), "a"));
    }
}
