//! An acknowledged write survives, whatever happens to the target afterwards.
//!
//! Each round writes known content at depth 32 through Brunt's initiator to a `file:` LUN, with reads in between that
//! must see acknowledged data, kills the target with SIGKILL at a random moment, restarts it, and reads everything
//! back.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Target, TempDir, busy, rounds, seed};
use brunt_block::{Buf, Completion, Op, Request, Ring, RingConfig, open_url_with};
use brunt_core::Clock;
use brunt_core::random::Random;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 8192;
const DEPTH: u32 = 32;
/// Maximum wait for a completion in one turn of the ring.
const TURN: Duration = Duration::from_millis(1);

/// Fills a buffer with content that identifies the block and its version.
fn fill(block: u64, version: u64, buf: &mut [u8]) {
    Random::for_part(block, version).fill(buf);
    buf[..8].copy_from_slice(&block.to_be_bytes());
    buf[8..16].copy_from_slice(&version.to_be_bytes());
}

/// The versions that a block may contain: at least the last one acknowledged, at most the last one sent.
#[derive(Clone, Copy, Default)]
struct Versions {
    acknowledged: u64,
    sent: u64,
}

/// Fraction of requests that are reads.
const READS: f64 = 0.25;
/// Bit in the tag that marks a read; the other bits are the block number.
const READ_TAG: u64 = 1 << 63;

/// Asserts that a block consists of this version's data, or of zeros before the first version.
fn check_content(block: u64, version: u64, content: &[u8], expected: &mut [u8]) {
    expected.fill(0);
    if version > 0 {
        fill(block, version, expected);
    }
    assert!(
        content == expected,
        "block {block} does not hold all of version {version}"
    );
}

/// Writes and reads until the target is gone; afterwards, `blocks` contains the possible versions of each block.
fn write_until_killed(target: Target, random: &mut Random, blocks: &mut HashMap<u64, Versions>) {
    // No reconnects, so acknowledged means acknowledged before the kill.
    let url = format!("{}?reconnect=0", target.url(0));
    let backend =
        open_url_with(&url, brunt_iscsi::BACKENDS, false).expect("the target serves LUN 0");
    let ring = Ring::new(RingConfig::default()).expect("a ring");
    let mut device = backend.open(&ring, DEPTH).expect("a device");
    let clock = Clock::Monotonic;
    let kill_at = Instant::now() + Duration::from_micros(2_000 + random.below(300_000));
    let mut target = Some(target);
    let mut pool: Vec<Buf> = (0..DEPTH).map(|_| ring.pool().take(BLOCK)).collect();
    let mut busy: HashMap<u64, u64> = HashMap::new();
    let mut batch = VecDeque::new();
    let mut done: Vec<Completion> = Vec::new();
    let (mut acknowledged, mut seen) = (0_u64, 0_u64);
    let mut expected = vec![0; BLOCK];
    let mut over = false;
    while !over {
        while let Some(mut buf) = pool.pop() {
            // Only one write to a block at a time, because two concurrent writes may land in either order.
            let block = random.below(BLOCKS);
            if busy.contains_key(&block) {
                pool.push(buf);
                break;
            }
            let reads = random.chance(READS);
            let versions = blocks.entry(block).or_default();
            if !reads {
                versions.sent += 1;
                fill(block, versions.sent, &mut buf);
            }
            busy.insert(block, versions.sent);
            batch.push_back(Request {
                tag: if reads { block | READ_TAG } else { block },
                op: if reads { Op::Read } else { Op::Write },
                offset: block * BLOCK as u64,
                len: BLOCK as u64,
                buf,
                force_unit_access: false,
            });
        }
        device.submit(&mut batch);

        ring.enter(clock.now().after(TURN)).expect("the ring turns");
        device.poll(&mut done);
        for completion in done.drain(..) {
            let block = completion.tag & !READ_TAG;
            let version = busy.remove(&block).expect("completed once");
            if completion.result.is_err() {
                over = true;
                continue;
            }
            if completion.tag == block {
                blocks.get_mut(&block).expect("known").acknowledged = version;
                acknowledged += 1;
            } else {
                // Nothing else was outstanding for the block, so it contains the last acknowledged data, or the data
                // found after a restart.
                check_content(block, version, &completion.buf[..BLOCK], &mut expected);
                seen += 1;
            }
            pool.push(completion.buf);
        }
        if Instant::now() >= kill_at
            && acknowledged > 0
            && let Some(target) = target.take()
        {
            target.kill();
        }
    }
    assert!(
        target.is_none(),
        "a write failed before the target was killed"
    );
    println!("{acknowledged} writes were acknowledged, {seen} reads saw them");
}

/// Asserts that every block contains an allowed version, which also determines the outcome of requests that were in
/// flight.
fn read_back(file: &Path, options: &str, blocks: &mut HashMap<u64, Versions>) {
    let target = Target::start(&["--lun", &format!("{}{options}", file.display())]);
    let backend = open_url_with(&target.url(0), brunt_iscsi::BACKENDS, false).expect("restarted");
    let ring = Ring::new(RingConfig::default()).expect("a ring");
    let mut device = backend.open(&ring, DEPTH).expect("a device");
    let mut wanted: Vec<u64> = blocks.keys().copied().collect();
    let mut batch = VecDeque::new();
    let mut done: Vec<Completion> = Vec::new();
    let mut expected = vec![0; BLOCK];
    while !wanted.is_empty() || device.outstanding() > 0 || !batch.is_empty() {
        while device.outstanding() + (batch.len() as u32) < DEPTH
            && let Some(block) = wanted.pop()
        {
            batch.push_back(Request {
                tag: block,
                op: Op::Read,
                offset: block * BLOCK as u64,
                len: BLOCK as u64,
                buf: ring.pool().take(BLOCK),
                force_unit_access: false,
            });
        }
        device.submit(&mut batch);
        ring.enter(Clock::Monotonic.now().after(TURN))
            .expect("the ring turns");
        device.poll(&mut done);
        for completion in done.drain(..) {
            completion.result.expect("a read after the restart");
            let block = completion.tag;
            let versions = blocks.get_mut(&block).expect("known");
            let version = u64::from_be_bytes(completion.buf[8..16].try_into().expect("8 bytes"));
            assert!(
                (versions.acknowledged..=versions.sent).contains(&version),
                "block {block} holds version {version}; {} was acknowledged and {} sent",
                versions.acknowledged,
                versions.sent
            );
            check_content(block, version, &completion.buf[..BLOCK], &mut expected);
            *versions = Versions {
                acknowledged: version,
                sent: version,
            };
        }
    }
}

fn survive(options: &str) {
    survive_with(rounds(3, 20), &[], |_| options.to_string());
}

/// `options` follow the file's path and may name files in the test's folder.
fn survive_with(rounds: usize, flags: &[&str], options: impl Fn(&Path) -> String) {
    let folder = TempDir::new("sigkill");
    let file = folder.join("lun");
    let options = &options(&folder.join(""));
    std::fs::File::create(&file)
        .expect("a file")
        .set_len(BLOCKS * BLOCK as u64)
        .expect("its size");
    let mut random = Random::new(seed());
    let mut blocks = HashMap::new();
    for round in 0..rounds {
        println!("round {round}");
        let lun = format!("{}{options}", file.display());
        let target = Target::start(&[&["--lun", &lun], flags].concat());
        write_until_killed(target, &mut random, &mut blocks);
        read_back(&file, options, &mut blocks);
    }
}

/// With write-through, the default, no acknowledged write is lost.
#[test]
fn write_through_loses_nothing() {
    let _busy = busy(); // Writes as fast as it can.
    survive("");
}

#[test]
fn a_target_by_threads_loses_nothing() {
    survive_with(rounds(2, 15), &["--engine", "threads"], |_| {
        ",wb".to_string()
    });
    survive_with(rounds(1, 15), &["--engine", "threads"], |_| String::new());
}

/// Write-back may lose data in a power cut, but not after a SIGKILL: data that the target has written to the file is
/// in the kernel's page cache.
#[test]
fn write_back_loses_nothing_to_a_kill() {
    let _busy = busy(); // Writes as fast as it can.
    survive(",wb");
}

/// A cache in front of the disk is killed before, during and after destaging: everything in its log is there when it
/// restarts. The log is smaller than the data written, so it wraps around.
#[test]
fn a_cache_with_a_log_loses_nothing() {
    let _busy = busy(); // Writes as fast as it can.
    for (rounds, destage) in [
        (rounds(2, 15), "destage=always,batch=256KiB"),
        (rounds(2, 15), "idle=1h,high=60,low=20"),
    ] {
        survive_with(rounds, &[], |folder| {
            format!(
                "?stics={},size=6MiB,memory=1MiB,{destage},wb",
                folder.join("log").display()
            )
        });
    }
}
