//! Commands against a logical unit over memory, through the same calls that a transport makes:
//! once with the inline short way, once with every byte through device requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brunt_block::backends::memory::MemoryBackend;
use brunt_block::device::Allocation;
use brunt_block::{Backend, Buf, Device, DeviceError, DeviceInfo, Inline, Ring, RingConfig};
use brunt_core::{Clock, Nanos};
use brunt_wire::scsi::cdb::{be16, be32, be64, op};
use brunt_wire::scsi::opcodes::OPCODES;
use brunt_wire::scsi::sense::{Status, key};

use super::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 8192;

/// Memory that can only be reached by requests.
struct Requests(MemoryBackend);

impl Backend for Requests {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, DeviceError> {
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
    LunOptions { thin: true, ..LunOptions::default() }
}

fn unit(inline: bool, options: LunOptions) -> Arc<LogicalUnit> {
    let backend: Arc<dyn Backend> = if inline { Arc::new(memory()) } else { Arc::new(Requests(memory())) };
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
        let mut client = Client::fresh(unit, name);
        // The attention that every nexus starts with.
        assert_eq!(client.code(&[0; 6]), (key::UNIT_ATTENTION, 0x29, 0x00));
        client
    }

    fn fresh(unit: &Arc<LogicalUnit>, name: &str) -> Client {
        let ring = Ring::new(RingConfig { arena_bytes: 0, ..RingConfig::default() }).expect("a ring");
        let nexus = Nexus {
            id: u64::from(NEXUS.fetch_add(1, Ordering::Relaxed)),
            initiator_port: format!("iqn.2026-11.io.brunt:{name},i,0x00023d000001"),
            target_port: 1,
        };
        let set = TaskSet::open(unit, &ring, &nexus, 64).expect("memory opens");
        Client { ring, set, tag: 0 }
    }

    fn begin(&mut self, cdb: &[u8], data_out_len: usize, attribute: TaskAttribute) -> (u64, Begin) {
        self.tag += 1;
        let command = Command {
            tag: self.tag,
            cdb,
            attribute,
            data_out_len: data_out_len as u32,
            data_in_len: 1 << 20,
        };
        (self.tag, self.set.begin(&command))
    }

    /// Polls until something is answered, for two minutes at the most.
    fn wait(&mut self) -> Vec<Outcome> {
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

    fn send(&mut self, cdb: &[u8], data: &[u8]) -> Outcome {
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

    /// Key, code, qualifier; a status other than CHECK CONDITION is (0xff, status, 0).
    fn code_with(&mut self, cdb: &[u8], data: &[u8]) -> (u8, u8, u8) {
        let outcome = self.send(cdb, data);
        match (outcome.status, outcome.sense) {
            (Status::CheckCondition, Some(sense)) => (sense.key, sense.asc, sense.ascq),
            (status, _) => (0xff, status.to_byte(), 0),
        }
    }

    fn code(&mut self, cdb: &[u8]) -> (u8, u8, u8) {
        self.code_with(cdb, &[])
    }

    #[track_caller]
    fn good(&mut self, cdb: &[u8], data: &[u8]) -> Vec<u8> {
        let outcome = self.send(cdb, data);
        assert_eq!((outcome.status, outcome.sense), (Status::Good, None), "{cdb:02x?}");
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
        self.good(&cdb16(op::WRITE_16, 0, lba, (data.len() / BLOCK) as u32), data);
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
    (0..blocks * BLOCK).map(|i| (i % 251) as u8 ^ seed).collect()
}

const GOOD: (u8, u8, u8) = (0xff, 0, 0);
const CONFLICT: (u8, u8, u8) = (0xff, 0x18, 0);
const FIELD: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x24, 0x00);
const PARAMETER: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x26, 0x00);
const RANGE: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x21, 0x00);
const OPCODE: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x20, 0x00);
const LENGTH: (u8, u8, u8) = (key::ILLEGAL_REQUEST, 0x0e, 0x03);
const NO_MEDIUM: (u8, u8, u8) = (key::NOT_READY, 0x3a, 0x00);

/// Runs a test over both ways to the medium.
fn both(options: &LunOptions, test: impl Fn(&mut Client)) {
    for inline in [true, false] {
        test(&mut Client::new(&unit(inline, options.clone()), "a"));
    }
}

/// What was written is read, in every length of command.
#[test]
fn read_and_write() {
    both(&LunOptions::default(), |c| {
        c.good(&[op::WRITE_6, 0, 0, 1, 2, 0], &bytes(2, 1));
        c.good(&cdb10(op::WRITE_10, 0x18, 3, 2), &bytes(2, 2));
        c.good(&cdb12(op::WRITE_12, 0x08, 5, 2), &bytes(2, 3));
        c.good(&cdb16(op::WRITE_16, 0x08, 7, 2), &bytes(2, 4));
        let expected = [bytes(2, 1), bytes(2, 2), bytes(2, 3), bytes(2, 4)].concat();
        assert_eq!(c.read(1, 8), expected);
        assert_eq!(c.good(&cdb12(op::READ_12, 0, 1, 8), &[]), expected);
        assert_eq!(c.good(&cdb10(op::READ_10, 0x18, 1, 8), &[]), expected);
        assert_eq!(c.good(&[op::READ_6, 0, 0, 1, 8, 0], &[]), expected);
        assert_eq!(c.good(&[op::READ_6, 0, 0, 0, 0, 0], &[]).len(), 256 * BLOCK);
    });
}

/// Where data is compared, combined, repeated or written as one, data-out of another length
/// than the CDB describes is refused, and the medium is as it was.
#[test]
fn lengths_that_disagree() {
    both(&thin(), |c| {
        c.write(0, &bytes(8, 1));
        let mut compare_and_write = cdb16(op::COMPARE_AND_WRITE, 0, 0, 0);
        compare_and_write[13] = 2;
        let mut atomic = cdb16(op::WRITE_ATOMIC_16, 0, 0, 0);
        atomic[13] = 2;
        let check = |c: &mut Client, cdb: &[u8], blocks: usize| {
            // The first of them would compare equal and be written.
            let data = [bytes(2, 1), bytes(6, 9)].concat();
            for len in [0, 200, BLOCK * (blocks - 1), BLOCK * blocks - 1, BLOCK * (blocks + 1)] {
                if len != blocks * BLOCK {
                    assert_eq!(c.code_with(cdb, &data[..len]), FIELD, "{:#x}, {len} bytes", cdb[0]);
                }
            }
            assert_eq!(c.read(0, 8), bytes(8, 1), "{:#x}", cdb[0]);
        };
        check(c, &compare_and_write, 4);
        check(c, &atomic, 2);
        check(c, &cdb16(op::ORWRITE_16, 0, 0, 2), 2);
        check(c, &cdb10(op::WRITE_SAME_10, 0, 0, 2), 1);
        check(c, &cdb16(op::WRITE_SAME_16, 0x08, 0, 2), 1);
        check(c, &cdb10(op::VERIFY_10, 0x02, 0, 2), 2);
        check(c, &cdb16(op::VERIFY_16, 0x06, 0, 2), 1);
    });
}

/// Bounds, protection fields and lengths are checked before anything happens.
#[test]
fn bounds() {
    both(&thin(), |c| {
        let last = BLOCKS as u32 - 1;
        for code in [op::READ_10, op::WRITE_10, op::VERIFY_10, op::WRITE_AND_VERIFY_10, op::PRE_FETCH_10] {
            assert_eq!(c.code(&cdb10(code, 0, last, 2)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb10(code, 0, last + 2, 0)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb10(code, 0, last + 1, 0)), GOOD, "{code:#x}");
            if code != op::PRE_FETCH_10 {
                assert_eq!(c.code(&cdb10(code, 0x20, 0, 1)), FIELD, "{code:#x}");
            }
        }
        for code in [op::READ_16, op::WRITE_16, op::VERIFY_16, op::ORWRITE_16, op::WRITE_SAME_16] {
            assert_eq!(c.code(&cdb16(code, 0, u64::MAX, 1)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb16(code, 0, BLOCKS, 1)), RANGE, "{code:#x}");
            assert_eq!(c.code(&cdb16(code, 0xe0, 0, 1)), FIELD, "{code:#x}");
        }
        // NACA; a transfer beyond the maximum length comes after the range.
        assert_eq!(c.code(&[op::READ_10, 0, 0, 0, 0, 0, 0, 0, 1, 4]), FIELD);
        assert_eq!(c.code(&[op::TEST_UNIT_READY, 0, 0, 0, 0, 4]), FIELD);
        assert_eq!(c.code(&cdb12(op::READ_12, 0, 0, u32::MAX)), RANGE);
        assert_eq!(c.code(&[0x7f; 32]), OPCODE);
        assert_eq!(c.code(&[op::SERVICE_ACTION_IN_16, 0x1f]), FIELD);
    });
}

/// A write with less data than its CDB wants writes whole blocks, or nothing.
#[test]
fn short_data() {
    both(&LunOptions::default(), |c| {
        c.write(0, &bytes(2, 9));
        c.good(&cdb10(op::WRITE_10, 0, 0, 2), &bytes(1, 7));
        assert_eq!(c.read(0, 2), [&bytes(1, 7)[..], &bytes(2, 9)[BLOCK..]].concat());
        assert_eq!(c.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[1; 200]), LENGTH);
        assert_eq!(c.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[]), GOOD);
        assert_eq!(c.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[8; 1024]), GOOD);
        assert_eq!(c.read(0, 2), [&[8; BLOCK][..], &bytes(2, 9)[BLOCK..]].concat());
        let outcome = c.send(&cdb10(op::WRITE_10, 0, 0, 2), &[8; BLOCK]);
        assert_eq!(outcome.data_out_len, 1024);
    });
}

/// VERIFY compares with nothing, data, or one block, and says where it differs.
#[test]
fn verify() {
    both(&LunOptions::default(), |c| {
        // Longer than one chunk of the job.
        let data = bytes(4000, 3);
        c.write(8, &data[..2000 * BLOCK]);
        c.write(2008, &data[2000 * BLOCK..]);
        assert_eq!(c.code(&cdb16(op::VERIFY_16, 0, 8, 4000)), GOOD);
        assert_eq!(c.code_with(&cdb16(op::VERIFY_16, 0x02, 8, 4000), &data), GOOD);
        let mut wrong = data.clone();
        wrong[1_500_000] ^= 1;
        let outcome = c.send(&cdb16(op::VERIFY_16, 0x02, 8, 4000), &wrong);
        let sense = outcome.sense.unwrap();
        assert_eq!((sense.key, sense.asc, sense.information), (key::MISCOMPARE, 0x1d, Some(1_500_000)));
        assert_eq!(c.code_with(&cdb16(op::VERIFY_16, 0x04, 8, 1), &data), FIELD);
        c.write(0, &[5; 4 * BLOCK]);
        assert_eq!(c.code_with(&cdb10(op::VERIFY_10, 0x06, 0, 4), &[5; BLOCK]), GOOD);
        c.write(3, &[6; BLOCK]);
        let outcome = c.send(&cdb10(op::VERIFY_10, 0x06, 0, 4), &[5; BLOCK]);
        assert_eq!(outcome.sense.unwrap().information, Some(3 * BLOCK as u64));
        assert_eq!(c.code_with(&cdb12(op::WRITE_AND_VERIFY_12, 0x02, 0, 2), &bytes(2, 1)), GOOD);
        assert_eq!(c.code_with(&cdb10(op::WRITE_AND_VERIFY_10, 0x04, 0, 2), &bytes(2, 1)), FIELD);
        assert_eq!(c.read(0, 2), bytes(2, 1));
    });
}

/// COMPARE AND WRITE writes only what compared; ORWRITE ors; WRITE ATOMIC keeps to its limits.
#[test]
fn read_modify_write() {
    both(&LunOptions::default(), |c| {
        let mut caw = cdb16(op::COMPARE_AND_WRITE, 0, 4, 0);
        caw[13] = 2;
        c.write(4, &bytes(2, 1));
        assert_eq!(c.code_with(&caw, &[bytes(2, 1), bytes(2, 2)].concat()), GOOD);
        assert_eq!(c.read(4, 2), bytes(2, 2));
        let mut compare = bytes(2, 2);
        compare[700] ^= 0xff;
        let outcome = c.send(&caw, &[compare, bytes(2, 3)].concat());
        let sense = outcome.sense.unwrap();
        assert_eq!((sense.key, sense.asc, sense.information), (key::MISCOMPARE, 0x1d, Some(700)));
        assert_eq!(c.read(4, 2), bytes(2, 2));
        assert_eq!(c.code_with(&caw, &bytes(3, 2)), FIELD);
        assert_eq!(c.code_with(&caw, &bytes(5, 2)), FIELD);

        c.write(0, &[0x0f; 3000 * BLOCK]);
        c.good(&cdb16(op::ORWRITE_16, 0, 0, 3000), &[0xa0; 3000 * BLOCK]);
        assert!(c.read(0, 3000).iter().all(|byte| *byte == 0xaf));

        let mut atomic = cdb16(op::WRITE_ATOMIC_16, 0, 8, 0);
        atomic[13] = 8;
        assert_eq!(c.code_with(&atomic, &bytes(8, 6)), GOOD);
        assert_eq!(c.read(8, 8), bytes(8, 6));
        assert_eq!(c.code_with(&atomic, &bytes(7, 6)), FIELD);
        atomic[13] = 4;
        assert_eq!(c.code_with(&atomic, &bytes(4, 6)), FIELD);
        atomic[13] = 8;
        atomic[9] = 4;
        assert_eq!(c.code_with(&atomic, &bytes(8, 6)), FIELD);
        atomic[2] = 1;
        assert_eq!(c.code_with(&atomic, &bytes(8, 6)), RANGE);
    });
}

/// WRITE SAME in its forms, thin and thick; UNMAP only thin; GET LBA STATUS tells.
#[test]
fn fill_and_unmap() {
    both(&thin(), |c| {
        c.write(0, &[1; 64 * BLOCK]);
        c.good(&cdb10(op::WRITE_SAME_10, 0, 8, 4), &bytes(1, 5));
        assert_eq!(c.read(7, 6), [vec![1; BLOCK], bytes(1, 5).repeat(4), vec![1; BLOCK]].concat());
        assert_eq!(c.code_with(&cdb10(op::WRITE_SAME_10, 0, 8, 4), &bytes(2, 5)), FIELD);
        assert_eq!(c.code_with(&cdb10(op::WRITE_SAME_10, 0x18, 8, 4), &bytes(1, 5)), FIELD);
        assert_eq!(c.code_with(&cdb10(op::WRITE_SAME_10, 0x01, 8, 4), &[]), FIELD);
        // Unaligned unmapping leaves the neighbours alone.
        c.good(&cdb16(op::WRITE_SAME_16, 0x08, 9, 2), &[0; BLOCK]);
        assert_eq!(c.read(8, 4), [bytes(1, 5), vec![0; 2 * BLOCK], bytes(1, 5)].concat());
        // What is not zeros cannot be unmapped, so it is written.
        c.good(&cdb16(op::WRITE_SAME_16, 0x08, 9, 2), &bytes(1, 6));
        assert_eq!(c.read(9, 2), bytes(1, 6).repeat(2));
        c.good(&cdb16(op::WRITE_SAME_16, 0x01, 9, 1), &[]);
        assert_eq!(c.read(9, 1), [0; BLOCK]);

        let unmap = |extents: &[(u64, u32)]| {
            let mut list = vec![0, 0, 0, (extents.len() * 16) as u8, 0, 0, 0, 0];
            for (lba, blocks) in extents {
                list.extend_from_slice(&lba.to_be_bytes());
                list.extend_from_slice(&blocks.to_be_bytes());
                list.extend_from_slice(&[0; 4]);
            }
            let mut cdb = [0; 10];
            cdb[0] = op::UNMAP;
            cdb[7..9].copy_from_slice(&(list.len() as u16).to_be_bytes());
            (cdb, list)
        };
        let check = |c: &mut Client, extents: &[(u64, u32)], expected| {
            let (cdb, list) = unmap(extents);
            assert_eq!(c.code_with(&cdb, &list), expected, "{extents:?}");
        };
        check(c, &[(0, 8), (16, 8)], GOOD);
        check(c, &[(BLOCKS, 0), (0, 0)], GOOD);
        check(c, &[(BLOCKS - 1, 2)], RANGE);
        check(c, &[(u64::MAX, 2)], RANGE);
        assert_eq!(c.read(0, 9), [vec![0; 8 * BLOCK], bytes(1, 5)].concat());
        assert_eq!(c.code(&[op::UNMAP, 1, 0, 0, 0, 0, 0, 0, 24, 0]), FIELD);
        assert_eq!(c.code_with(&unmap(&[]).0, &[0; 4]), (key::ILLEGAL_REQUEST, 0x1a, 0));

        let status = |lba: u64, length: u32| {
            let mut cdb = cdb16(op::SERVICE_ACTION_IN_16, op::SA_GET_LBA_STATUS, lba, length);
            cdb[0] = op::SERVICE_ACTION_IN_16;
            cdb
        };
        let list = c.good(&status(2, 8 + 3 * 16), &[]);
        let runs: Vec<(u64, u32, u8)> =
            list[8..].chunks(16).map(|d| (be64(d, 0), be32(d, 8), d[12])).collect();
        assert_eq!(runs, [(2, 6, 1), (8, 8, 0), (16, 8, 1)]);
        assert_eq!(c.good(&status(2, 24), &[]).len(), 24);
        assert_eq!(c.code(&status(BLOCKS, 24)), RANGE);
    });
    both(&LunOptions::default(), |c| {
        assert_eq!(c.code(&[op::UNMAP, 0, 0, 0, 0, 0, 0, 0, 24, 0]), OPCODE);
        assert_eq!(c.code_with(&cdb16(op::WRITE_SAME_16, 0x08, 0, 1), &[0; BLOCK]), FIELD);
        c.write(0, &[1; 2 * BLOCK]);
        c.good(&cdb16(op::WRITE_SAME_16, 0, 0, 0), &[0; BLOCK]);
        assert_eq!(c.read(0, 2), [0; 2 * BLOCK]);
    });
}

/// INQUIRY, REPORT LUNS and their like, and what a missing LUN answers.
#[test]
fn identity() {
    let units = vec![(1, unit(true, thin())), (0, unit(true, LunOptions::default()))];
    let map = LunMap::new(units);
    let mut c = Client::fresh(map.get(1).unwrap(), "a");
    let report = [op::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    // None of these takes the unit attention away.
    let luns = c.good(&report, &[]);
    assert_eq!((luns.len(), be32(&luns, 0), luns[17]), (24, 16, 1));
    let pages = c.good(&[op::INQUIRY, 1, 0, 0, 255, 0], &[]);
    assert_eq!(pages[4..], [0x00, 0x80, 0x83, 0x8f, 0xb0, 0xb1, 0xb2]);
    for page in &pages[4..] {
        let body = c.good(&[op::INQUIRY, 1, *page, 4, 0, 0], &[]);
        assert_eq!((body[1], usize::from(be16(&body, 2)) + 4), (*page, body.len()));
    }
    assert_eq!(c.good(&[op::INQUIRY, 0, 0, 0, 5, 0], &[]).len(), 5);
    assert_eq!(c.code(&[op::INQUIRY, 0, 0x83, 0, 255, 0]), FIELD);
    assert_eq!(c.code(&[op::INQUIRY, 1, 0xc0, 0, 255, 0]), FIELD);
    let sense = c.good(&[op::REQUEST_SENSE, 0, 0, 0, 252, 0], &[]);
    assert_eq!((sense.len(), sense[2], sense[12]), (18, key::UNIT_ATTENTION, 0x29));
    assert_eq!(c.good(&[op::REQUEST_SENSE, 1, 0, 0, 252, 0], &[])[..4], [0x72, 0, 0, 0]);
    assert_eq!(c.code(&[0; 6]), GOOD);

    let mut cdb = cdb16(op::SERVICE_ACTION_IN_16, op::SA_READ_CAPACITY_16, 0, 32);
    let capacity = c.good(&cdb, &[]);
    assert_eq!(
        (be64(&capacity, 0), be32(&capacity, 8), capacity[13], capacity[14]),
        (BLOCKS - 1, 512, 3, 0xc0)
    );
    cdb[13] = 9;
    assert_eq!(c.good(&cdb, &[]).len(), 9);
    let capacity = c.good(&[op::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    assert_eq!((be32(&capacity, 0), be32(&capacity, 4)), (BLOCKS as u32 - 1, 512));

    let unknown = |cdb: &[u8]| {
        let attribute = TaskAttribute::Simple;
        map.answer_unknown(&Command { tag: 7, cdb, attribute, data_out_len: 0, data_in_len: 255 })
    };
    assert!(
        matches!(unknown(&[op::INQUIRY, 0, 0, 0, 36, 0]).data_in, DataIn::Bytes(b) if b[0] == 0x7f && b.len() == 36)
    );
    assert!(matches!(unknown(&report).data_in, DataIn::Bytes(b) if b.len() == 24));
    assert!(
        matches!(unknown(&[op::REQUEST_SENSE, 0, 0, 0, 18, 0]).data_in, DataIn::Bytes(b) if b[12] == 0x25)
    );
    assert_eq!(unknown(&[0; 6]).sense.unwrap().asc, 0x25);
}

/// The report of commands is the truth: what it lists is not "invalid operation code",
/// what it does not list is.
#[test]
fn supported_opcodes() {
    for options in [thin(), LunOptions { removable: true, ..LunOptions::default() }] {
        let mut c = Client::new(&unit(true, options), "a");
        let all = c.good(&cdb12(op::MAINTENANCE_IN, op::SA_REPORT_SUPPORTED_OPERATION_CODES, 0, 65535), &[]);
        assert_eq!(be32(&all, 0) as usize, all.len() - 4);
        let listed: Vec<(u8, u8, bool)> = all[4..].chunks(8).map(|d| (d[0], d[3], d[5] & 1 != 0)).collect();
        for code in 0..=0xffu8 {
            let known = listed.iter().any(|(listed, ..)| *listed == code);
            if matches!(code, op::SANITIZE | op::START_STOP_UNIT) {
                continue;
            }
            let outcome = c.code(&[code, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(outcome != OPCODE, known, "{code:#x}: {outcome:?}");
        }
        for (code, action, has_actions) in listed {
            let ask = |how: u8, action: u8| {
                let mut cdb = cdb12(op::MAINTENANCE_IN, op::SA_REPORT_SUPPORTED_OPERATION_CODES, 0, 255);
                cdb[2..6].copy_from_slice(&[how, code, 0, action]);
                cdb
            };
            let (right, wrong) = if has_actions { (2, 1) } else { (1, 2) };
            let one = c.good(&ask(0x80 | right, action), &[]);
            assert_eq!((one[1], one[4], one.len()), (0x83, code, 4 + usize::from(be16(&one, 2)) + 12));
            assert_eq!(c.code(&ask(wrong, action)), FIELD, "{code:#x}");
        }
        let mut tmf = cdb12(op::MAINTENANCE_IN, 0x0d, 0, 4);
        assert_eq!(c.good(&tmf, &[]), [0xda, 0, 0, 0]);
        tmf[9] = 3;
        assert_eq!(c.code(&tmf), FIELD);
    }
}

/// Mode pages are sensed and selected; other nexuses are told; protection takes effect.
#[test]
fn mode_pages() {
    let unit = unit(true, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let all = a.good(&[op::MODE_SENSE_6, 0x08, 0x3f, 0, 255, 0], &[]);
    assert_eq!((all.len(), usize::from(all[0]) + 1, all[2]), (4 + 44, 4 + 44, 0x10));
    let ten = a.good(&[op::MODE_SENSE_10, 0x10, 0x08, 0, 0, 0, 0, 1, 0, 0], &[]);
    assert_eq!((ten.len(), ten[7], be64(&ten, 8)), (8 + 16 + 20, 16, BLOCKS));
    assert_eq!(a.code(&[op::MODE_SENSE_6, 0, 0xc8, 0, 255, 0]), (key::ILLEGAL_REQUEST, 0x39, 0));
    assert_eq!(a.code(&[op::MODE_SENSE_6, 0, 0x02, 0, 255, 0]), FIELD);

    let mut list = a.good(&[op::MODE_SENSE_6, 0x08, 0x0a, 0, 255, 0], &[]);
    list[0] = 0;
    list[4 + 4] |= 0x08;
    let select = [op::MODE_SELECT_6, 0x10, 0, 0, list.len() as u8, 0];
    assert_eq!(a.code_with(&[op::MODE_SELECT_6, 0x11, 0, 0, 16, 0], &list), FIELD);
    assert_eq!(a.code_with(&select, &list), GOOD);
    assert_eq!(b.code(&[0; 6]), (key::UNIT_ATTENTION, 0x2a, 0x01));
    assert_eq!(b.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]), (key::DATA_PROTECT, 0x27, 0x02));
    assert_eq!(b.good(&[op::MODE_SENSE_6, 0x08, 0x0a, 0, 255, 0], &[])[2], 0x90);
    list[4 + 4] &= !0x08;
    list[4 + 2] |= 0x04;
    assert!(!unit.wants_descriptor_sense());
    assert_eq!(a.code_with(&select, &list), GOOD);
    assert!(unit.wants_descriptor_sense());
    assert_eq!(b.code(&[0; 6]), (key::UNIT_ATTENTION, 0x2a, 0x01));
    b.write(0, &[1; BLOCK]);
    list[4 + 2] ^= 0x02;
    assert_eq!(a.code_with(&select, &list), PARAMETER);
    assert_eq!(b.code(&[0; 6]), GOOD);
}

/// A read-only unit reads and refuses every command that writes.
#[test]
fn read_only() {
    both(&LunOptions { read_only: true, thin: true, ..LunOptions::default() }, |c| {
        assert_eq!(c.read(0, 1), [0; BLOCK]);
        assert_eq!(c.good(&[op::MODE_SENSE_6, 0, 0x3f, 0, 255, 0], &[])[2] & 0x80, 0x80);
        let protected = (key::DATA_PROTECT, 0x27, 0x00);
        for code in [op::WRITE_10, op::WRITE_AND_VERIFY_10, op::WRITE_SAME_10, op::UNMAP] {
            assert_eq!(c.code(&cdb10(code, 0, 0, 1)), protected, "{code:#x}");
        }
        for code in
            [op::WRITE_16, op::COMPARE_AND_WRITE, op::ORWRITE_16, op::WRITE_SAME_16, op::WRITE_ATOMIC_16]
        {
            assert_eq!(c.code(&cdb16(code, 0, 0, 1)), protected, "{code:#x}");
        }
        assert_eq!(c.code(&[op::WRITE_6, 0, 0, 0, 1, 0]), protected);
        assert_eq!(c.code(&[op::SANITIZE, 2]), protected);
    });
}

/// Media are ejected, loaded and kept in; what needs them says so.
#[test]
fn removable() {
    let unit = unit(true, LunOptions { removable: true, thin: true, ..LunOptions::default() });
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let eject = [op::START_STOP_UNIT, 0, 0, 0, 0x02, 0];
    let load = [op::START_STOP_UNIT, 0, 0, 0, 0x03, 0];
    assert_eq!(a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1, 0]), GOOD);
    for c in [&mut a, &mut b] {
        assert_eq!(c.code(&eject), (key::ILLEGAL_REQUEST, 0x53, 0x02));
    }
    assert_eq!(a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 0, 0]), GOOD);
    // Power conditions and stopping eject nothing.
    for byte in [0x00, 0x12, 0x32, 0xf2] {
        assert_eq!(a.code(&[op::START_STOP_UNIT, 0, 0, 0, byte, 0]), GOOD);
        assert_eq!(a.code(&[0; 6]), GOOD);
    }
    assert_eq!(a.code(&eject), GOOD);
    for row in OPCODES {
        let mut cdb = [0; 16];
        cdb[0] = row.opcode;
        cdb[1] = row.service_action.unwrap_or(0);
        let expected = super::lun::needs_medium(row.opcode)
            && !matches!(row.opcode, op::INQUIRY | op::REPORT_LUNS | op::REQUEST_SENSE);
        if expected {
            assert_eq!(a.code(&cdb), NO_MEDIUM, "{}", row.name);
        }
    }
    assert_eq!(a.good(&[op::REQUEST_SENSE, 0, 0, 0, 18, 0], &[])[12], 0x3a);
    assert_eq!(a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1, 0]), GOOD);
    assert_eq!(a.code(&load), (key::ILLEGAL_REQUEST, 0x53, 0x02));
    assert_eq!(a.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 0, 0]), GOOD);
    assert_eq!(a.code(&load), GOOD);
    assert_eq!(a.code(&[0; 6]), GOOD);
    assert_eq!(b.code(&[0; 6]), (key::UNIT_ATTENTION, 0x28, 0x00));
    // A nexus that is lost no longer prevents anything.
    assert_eq!(b.code(&[op::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1, 0]), GOOD);
    drop(b);
    assert_eq!(a.code(&eject), GOOD);
    let mut fixed = Client::new(&super::tests::unit(true, LunOptions::default()), "a");
    assert_eq!(fixed.code(&eject), FIELD);
}

/// RESERVE keeps others out until it is released, reset or its nexus is lost.
#[test]
fn reserve_and_release() {
    let unit = unit(true, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let (reserve, release) = ([op::RESERVE_6, 0, 0, 0, 0, 0], [op::RELEASE_6, 0, 0, 0, 0, 0]);
    assert_eq!(a.code(&reserve), GOOD);
    assert_eq!(a.code(&reserve), GOOD);
    for cdb in [&[0; 6], &reserve, &[op::READ_6, 0, 0, 0, 1, 0], &[op::MODE_SENSE_6, 0, 0x3f, 0, 255, 0]] {
        assert_eq!(b.code(cdb), CONFLICT, "{cdb:x?}");
    }
    assert_eq!(b.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]), CONFLICT);
    assert_eq!(b.code(&[op::INQUIRY, 0, 0, 0, 36, 0]), GOOD);
    assert_eq!(b.code(&release), GOOD);
    assert_eq!(b.code(&[0; 6]), CONFLICT);
    a.write(0, &[1; BLOCK]);
    assert_eq!(a.code(&release), GOOD);
    assert_eq!(b.code(&reserve), GOOD);
    drop(b);
    assert_eq!(a.code(&reserve), GOOD);
    let mut b = Client::new(&unit, "b");
    for reset in [Reset::LogicalUnit, Reset::Target] {
        assert_eq!(b.code(&[0; 6]), CONFLICT);
        let ticket = b.set.reset(reset);
        // The other connection has to have looked, too.
        assert!(!ticket.is_done());
        a.set.poll(&mut Vec::new());
        assert!(ticket.is_done());
        let ascq = if reset == Reset::Target { 2 } else { 3 };
        for c in [&mut a, &mut b] {
            assert_eq!(c.code(&[0; 6]), (key::UNIT_ATTENTION, 0x29, ascq));
            assert_eq!(c.code(&[0; 6]), GOOD);
        }
        assert_eq!(a.code(&reserve), GOOD);
    }
}

fn pr_out(action: u8, kind: u8, own: u64, new: u64, flags: u8) -> ([u8; 10], Vec<u8>) {
    let mut list = own.to_be_bytes().to_vec();
    list.extend_from_slice(&new.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
    ([op::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// Persistent reservations through commands: who may do what, who is told, what survives.
#[test]
fn persistent_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("lun");
    let options =
        || LunOptions { store: Some(Arc::new(FileStore::new(store.clone()))), ..LunOptions::default() };
    let first = unit(true, options());
    let (mut a, mut b) = (Client::new(&first, "a"), Client::new(&first, "b"));
    let do_out = |c: &mut Client, action, kind, own, new, flags| {
        let (cdb, list) = pr_out(action, kind, own, new, flags);
        c.code_with(&cdb, &list)
    };
    assert_eq!(do_out(&mut a, 1, 1, 0, 0, 0), CONFLICT);
    assert_eq!(do_out(&mut a, 0, 0, 0, 0xa, 1), GOOD);
    assert_eq!(do_out(&mut b, 0, 0, 0, 0xb, 1), GOOD);
    assert_eq!(do_out(&mut a, 1, 3, 0xa, 0, 0), GOOD);
    let read_in =
        |c: &mut Client, action| c.good(&[op::PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, 1, 0, 0], &[]);
    assert_eq!(read_in(&mut b, 0)[8..], [[0, 0, 0, 0, 0, 0, 0, 0xa], [0, 0, 0, 0, 0, 0, 0, 0xb]].concat());
    assert_eq!(read_in(&mut b, 1)[21], 3);
    assert_eq!(read_in(&mut b, 2)[2..4], [0x0d, 0x91]);
    assert_eq!(be32(&read_in(&mut b, 3), 4) as usize, read_in(&mut b, 3).len() - 8);
    assert_eq!(b.code(&cdb10(op::READ_10, 0, 0, 1)), CONFLICT);
    assert_eq!(b.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]), CONFLICT);
    assert_eq!(b.code(&[0; 6]), GOOD);
    a.write(0, &[1; BLOCK]);

    // Power loss: a new unit reads what was saved.
    let second = unit(true, options());
    let (mut a, mut b) = (Client::new(&second, "a"), Client::new(&second, "b"));
    assert_eq!(b.code(&cdb10(op::READ_10, 0, 0, 1)), CONFLICT);
    assert_eq!(a.code(&cdb10(op::READ_10, 0, 0, 1)), GOOD);
    assert_eq!(do_out(&mut b, 4, 1, 0xb, 0xa, 0), GOOD);
    assert_eq!(a.code(&[0; 6]), (key::UNIT_ATTENTION, 0x2a, 0x05));
    assert_eq!(a.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]), CONFLICT);
    assert_eq!(a.code(&cdb10(op::READ_10, 0, 0, 1)), GOOD);
    assert_eq!(do_out(&mut b, 3, 0, 0xb, 0, 0), GOOD);
    assert_eq!(a.code_with(&cdb10(op::WRITE_10, 0, 0, 1), &[0; BLOCK]), GOOD);
    drop((a, b, first, second));
    assert!(!Client::new(&unit(true, options()), "c").set.unit().options().thin);
    // Without a store APTPL is refused.
    let mut c = Client::new(&unit(true, LunOptions::default()), "c");
    assert_eq!(do_out(&mut c, 0, 0, 0, 1, 1), PARAMETER);
}

/// SANITIZE keeps the unit busy, outlives resets and connections, and leaves what it said.
#[test]
fn sanitize() {
    let slow = LunOptions { sanitize_bytes_per_second: Some(2 << 20), ..thin() };
    let unit = unit(false, slow);
    let mut c = Client::new(&unit, "a");
    c.write(0, &bytes(8, 1));
    // 4 MiB at 2 MiB/s: two seconds, in which the connection comes and goes.
    let list = [1, 0, 0, 4, 0xaa, 0xbb, 0xcc, 0xdd];
    assert_eq!(c.code_with(&[op::SANITIZE, 0x81, 0, 0, 0, 0, 0, 0, 8, 0], &list), GOOD);
    let busy = (key::NOT_READY, 0x04, 0x1b);
    assert_eq!(c.code(&[0; 6]), busy);
    assert_eq!(c.code(&cdb10(op::READ_10, 0, 0, 1)), busy);
    assert_eq!(c.code(&[op::SANITIZE, 0x83]), busy);
    assert_eq!(c.code(&[op::INQUIRY, 0, 0, 0, 36, 0]), GOOD);
    assert!(c.set.reset(Reset::LogicalUnit).is_done());
    drop(c);
    let mut c = Client::new(&unit, "a");
    assert_eq!(c.code(&[0; 6]), busy);
    let end = Clock::Monotonic.now().after(Duration::from_secs(120));
    while c.code(&[0; 6]) == busy {
        assert!(Clock::Monotonic.now() < end, "sanitize does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(c.read(BLOCKS - 1, 1), [0xaa, 0xbb, 0xcc, 0xdd].repeat(BLOCK / 4));
    // Without IMMED the answer comes at the end.
    assert_eq!(c.code(&[op::SANITIZE, 0x02, 0, 0, 0, 0, 0, 0, 0, 0]), GOOD);
    assert_eq!(c.read(0, 8), [0; 8 * BLOCK]);
    let mut status = cdb16(op::SERVICE_ACTION_IN_16, op::SA_GET_LBA_STATUS, 0, 256);
    status[1] = op::SA_GET_LBA_STATUS;
    let list = c.good(&status, &[]);
    assert_eq!((list.len(), be32(&list, 16), list[20]), (24, BLOCKS as u32, 1));
    for (action, length, expected) in
        [(1u8, 4, FIELD), (1, 517, FIELD), (2, 8, FIELD), (0x1f, 0, GOOD), (0x1f, 8, FIELD), (4, 0, FIELD)]
    {
        let cdb = [op::SANITIZE, action, 0, 0, 0, 0, 0, (length >> 8) as u8, length as u8, 0];
        assert_eq!(c.code_with(&cdb, &vec![0; length]), expected, "{action} {length}");
    }
    assert_eq!(c.code(&[op::SANITIZE, 0x42]), FIELD);
    assert_eq!(c.code(&[op::SANITIZE, 0x02, 0, 1]), FIELD);
}

/// EXTENDED COPY within a unit and between two; its results; each of its complaints.
#[test]
fn extended_copy() {
    let named = |serial: &str| LunOptions { serial: serial.to_string(), ..LunOptions::default() };
    let map = LunMap::new(vec![(0, unit(true, named("one"))), (1, unit(false, named("two")))]);
    let mut c = Client::new(map.get(0).unwrap(), "a");
    let mut other = Client::new(map.get(1).unwrap(), "a");
    let target = |unit: u16| {
        let mut d = vec![0xe4, 0, 0, 0, 0x01, 0x03, 0, 8];
        d.extend_from_slice(&map.get(unit).unwrap().naa());
        d.resize(32, 0);
        d
    };
    let segment = |source: u8, destination: u8, blocks: u16, from: u64, to: u64| {
        let mut d = vec![0x02, 0, 0, 24, 0, source, 0, destination, 0, 0];
        d.extend_from_slice(&blocks.to_be_bytes());
        d.extend_from_slice(&from.to_be_bytes());
        d.extend_from_slice(&to.to_be_bytes());
        d
    };
    let list = |targets: &[Vec<u8>], segments: &[Vec<u8>]| {
        let (targets, segments) = (targets.concat(), segments.concat());
        let mut list = vec![5, 0];
        list.extend_from_slice(&(targets.len() as u16).to_be_bytes());
        list.extend_from_slice(&[0; 4]);
        list.extend_from_slice(&(segments.len() as u32).to_be_bytes());
        list.extend_from_slice(&[0; 4]);
        [list, targets, segments].concat()
    };
    let send = |c: &mut Client, list: &[u8]| {
        let mut cdb = cdb16(op::EXTENDED_COPY, 0, 0, list.len() as u32);
        cdb[1] = 0;
        c.code_with(&cdb, list)
    };
    c.write(0, &bytes(3000, 1));
    let copy = list(&[target(0), target(1)], &[segment(0, 0, 3000, 0, 4000), segment(0, 1, 10, 0, 7)]);
    assert_eq!(send(&mut c, &copy), GOOD);
    assert_eq!(c.read(4000, 3000), bytes(3000, 1));
    assert_eq!(other.read(7, 10), bytes(3000, 1)[..10 * BLOCK]);
    let results = |list: u8| {
        let mut cdb = cdb16(op::RECEIVE_COPY_RESULTS, 0, 0, 255);
        cdb[2] = list;
        cdb
    };
    let status = c.good(&results(5), &[]);
    assert_eq!((status[4], be16(&status, 5), be32(&status, 8)), (1, 2, 3010 * 512));
    assert_eq!(c.code(&results(6)), FIELD);
    // By bytes, with offsets.
    let mut by_bytes = vec![0x0a, 0, 0, 28, 0, 0, 0, 0, 0, 0, 4, 0];
    by_bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x1c, 0, 2, 0, 0, 0]);
    assert_eq!(send(&mut c, &list(&[target(0)], &[by_bytes])), GOOD);
    assert_eq!(c.read(0x1c00, 2), bytes(3000, 1)[2 * BLOCK..4 * BLOCK]);

    let aborted = (key::COPY_ABORTED, 0x0d, 0x02);
    assert_eq!(send(&mut c, &list(&[target(0)], &[segment(0, 1, 1, 0, 1)])), aborted);
    assert_eq!(send(&mut c, &list(&[target(0)], &[segment(0, 0, 2, 0, BLOCKS - 1)])), aborted);
    assert_eq!(send(&mut c, &list(&[target(0)], &[segment(0, 0, 2, u64::MAX, 1)])), aborted);
    let mut stranger = target(0);
    stranger[15] ^= 1;
    assert_eq!(send(&mut c, &list(&[stranger], &[segment(0, 0, 1, 0, 1)])), aborted);
    assert_eq!(send(&mut c, &[]), GOOD);
    for end in 1..copy.len() {
        assert_eq!(send(&mut c, &copy[..end]), (key::ILLEGAL_REQUEST, 0x1a, 0x00), "cut at {end}");
    }
}

/// ABORT TASK, ABORT and CLEAR TASK SET and resets end each task once, also on other
/// connections, and tell whom they have to tell.
#[test]
fn task_management() {
    let unit = unit(false, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let write = cdb10(op::WRITE_10, 0, 0, 1);
    let (tag, begun) = a.begin(&write, BLOCK, TaskAttribute::Simple);
    assert!(matches!(begun, Begin::Wants { len: 512, direct: None }));
    assert!(a.set.abort_task(tag) && !a.set.abort_task(tag + 1));
    let done = a.wait();
    assert_eq!((done[0].tag, done[0].status, done.len()), (tag, Status::TaskAborted, 1));
    assert!(a.set.start(tag, Buf::zeroed(BLOCK), BLOCK as u32).is_none());

    for clear in [false, true] {
        let _ = a.begin(&write, BLOCK, TaskAttribute::Simple);
        let _ = a.begin(&cdb10(op::READ_10, 0, 0, 1), 0, TaskAttribute::Simple);
        let ticket = if clear { b.set.clear_task_set() } else { b.set.reset(Reset::LogicalUnit) };
        assert!(!ticket.is_done());
        let mut done = a.wait();
        while done.len() < 2 {
            done.extend(a.wait());
        }
        assert!(done.iter().all(|outcome| outcome.status == Status::TaskAborted));
        assert!(ticket.is_done());
        let expected = if clear { (0x2f, 0x00) } else { (0x29, 0x03) };
        assert_eq!(a.code(&[0; 6]), (key::UNIT_ATTENTION, expected.0, expected.1));
        assert_eq!(a.code(&[0; 6]), GOOD);
        if !clear {
            assert_eq!(b.code(&[0; 6]).1, 0x29);
        }
        assert_eq!(b.code(&[0; 6]), GOOD);
    }
    // A connection that goes away answers for its tasks.
    let _ = a.begin(&write, BLOCK, TaskAttribute::Simple);
    let ticket = b.set.clear_task_set();
    drop(a);
    assert!(ticket.is_done());
}

/// An ORDERED command waits for the older ones and holds up the younger ones.
#[test]
fn ordered() {
    for inline in [true, false] {
        let mut c = Client::new(&unit(inline, LunOptions::default()), "a");
        let (w1, _) = c.begin(&cdb10(op::WRITE_10, 0, 0, 1), BLOCK, TaskAttribute::Simple);
        let (w2, _) = c.begin(&cdb10(op::WRITE_10, 0, 0, 1), BLOCK, TaskAttribute::Ordered);
        let (read, begun) = c.begin(&cdb10(op::READ_10, 0, 0, 1), 0, TaskAttribute::Simple);
        assert!(matches!(begun, Begin::Pending));
        let full = |byte: u8| {
            let mut buf = Buf::zeroed(BLOCK);
            buf.fill(byte);
            buf
        };
        assert!(c.set.start(w2, full(2), BLOCK as u32).is_none());
        let mut done = Vec::new();
        c.set.poll(&mut done);
        assert!(done.is_empty(), "nothing may pass the older write");
        done.extend(c.set.start(w1, full(1), BLOCK as u32));
        while done.len() < 3 {
            done.extend(c.wait());
        }
        assert_eq!(done.iter().map(|outcome| outcome.tag).collect::<Vec<_>>(), [w1, w2, read]);
        assert!(matches!(&done[2].data_in, DataIn::Buf(buf, 512) if buf[0] == 2));
        assert_eq!(c.set.outstanding(), 0);
    }
}

/// A COMPARE AND WRITE waits for a write that is being received into the medium.
#[test]
fn locks_between_connections() {
    let unit = unit(true, LunOptions::default());
    let (mut a, mut b) = (Client::new(&unit, "a"), Client::new(&unit, "b"));
    let (tag, begun) = a.begin(&cdb10(op::WRITE_10, 0, 0, 1), BLOCK, TaskAttribute::Simple);
    assert!(matches!(begun, Begin::Wants { len: 512, direct: Some(0) }));
    let mut caw = cdb16(op::COMPARE_AND_WRITE, 0, 0, 0);
    caw[13] = 1;
    let (caw_tag, begun) = b.begin(&caw, 2 * BLOCK, TaskAttribute::Simple);
    assert!(matches!(begun, Begin::Wants { len: 1024, .. }));
    let mut both = Buf::zeroed(2 * BLOCK);
    both[..BLOCK].fill(7);
    both[BLOCK..].fill(8);
    assert!(b.set.start(caw_tag, both, 1024).is_none());
    let mut done = Vec::new();
    b.set.poll(&mut done);
    assert!(done.is_empty() && b.set.deadline() < Nanos::MAX);
    if let Inline::Memory(memory) = unit.inline() {
        memory.write(0, &[7; BLOCK]);
    }
    assert_eq!(a.set.start_direct(tag, BLOCK as u32).unwrap().status, Status::Good);
    assert_eq!(b.wait()[0].status, Status::Good);
    assert_eq!(a.read(0, 1), [8; BLOCK]);
}

/// A task set that is full says so, and takes commands again afterwards.
#[test]
fn full() {
    let mut c = Client::new(&unit(false, LunOptions::default()), "a");
    let write = cdb10(op::WRITE_10, 0, 0, 1);
    let tags: Vec<u64> = (0..64).map(|_| c.begin(&write, BLOCK, TaskAttribute::Simple).0).collect();
    assert_eq!(c.code(&cdb10(op::READ_10, 0, 0, 1)), (0xff, Status::TaskSetFull.to_byte(), 0));
    for tag in tags {
        assert!(c.set.start(tag, Buf::zeroed(BLOCK), BLOCK as u32).is_none());
    }
    let mut done = 0;
    while done < 64 {
        done += c.wait().len();
    }
    assert_eq!(c.read(0, 1), [0; BLOCK]);
}

/// No CDB and no parameter list makes a unit panic, whatever its bytes and lengths.
#[test]
fn nonsense() {
    let mut random = brunt_core::random::Random::new(20_261_121);
    let options = LunOptions { removable: true, ..thin() };
    let mut c = Client::new(&unit(true, options), "a");
    for round in 0..20_000u32 {
        let row = &OPCODES[random.below(OPCODES.len() as u64) as usize];
        // SANITIZE would take the medium away for the rest.
        if row.opcode == op::SANITIZE {
            continue;
        }
        let mut cdb = [0; 16];
        random.fill(&mut cdb);
        cdb[0] = if round % 8 == 0 { cdb[0] } else { row.opcode };
        if cdb[0] == op::SANITIZE {
            continue;
        }
        if round % 3 != 0 {
            // Mostly small numbers, so that checks beyond the first are reached.
            cdb[1] &= 0x1f;
            cdb[2..].iter_mut().for_each(|byte| *byte &= 0x13);
            cdb[2..8].fill(0);
        }
        let mut data = vec![0; random.below(2048) as usize];
        random.fill(&mut data);
        let length = random.below(17) as usize;
        let outcome = c.send(&cdb[..if round % 5 == 0 { length } else { 16 }], &data);
        if outcome.status == Status::CheckCondition {
            assert!(outcome.sense.is_some());
        }
    }
    assert_eq!(c.set.outstanding(), 0);
}
