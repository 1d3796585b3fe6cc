//! What connections cost: little memory while they are idle, more with use, and returned afterwards; few threads; and
//! the cost of polling.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::raw::{Raw, rw10};
use crate::support::hosts::signal;
use crate::support::{TARGET_NAME, Target, TempDir, brunt, eventually, processor_ticks};
use brunt_wire::scsi::sense::ScsiStatus;

const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
/// Maximum resident memory per idle connection in bytes, including a margin for the C library's caches.
const IDLE_BYTES_MAX: u64 = 80 << 10;
const LARGE_BYTES: usize = 256 << 10;

fn log_in(target: &Target, who: &str, count: usize) -> Vec<Raw> {
    let one = |index| {
        let name = format!("iqn.2026-11.io.brunt:{who}{index}");
        let mut raw = Raw::login(target.address(), &name, TARGET_NAME, &[]);
        raw.settle(0);
        raw
    };
    (0..count).map(one).collect()
}

/// Writes and reads a large block on each connection.
fn transfer(sessions: &mut [Raw]) {
    let data = vec![7; LARGE_BYTES];
    let blocks = (LARGE_BYTES / 512) as u16;
    for raw in sessions {
        let wrote = raw.write(0, &rw10(WRITE_10, 0, blocks), &data);
        assert_eq!(wrote.status, ScsiStatus::Good, "{wrote:?}");
        let read = raw.read(0, &rw10(READ_10, 0, blocks), LARGE_BYTES as u32);
        assert_eq!(read.status, ScsiStatus::Good, "{read:?}");
        assert!(read.data == data);
    }
}

/// Checked with both kinds of LUN: buffers for a file are registered with the kernel, those for a memory LUN are not.
#[test]
fn idle_connections_take_little_memory_before_and_after_a_burst() {
    let folder = TempDir::new("target-memory");
    let file = folder.join("disk.img");
    std::fs::File::create(&file)
        .and_then(|file| file.set_len(16 << 20))
        .expect("a file");
    for lun in ["memory:16MiB".to_string(), file.display().to_string()] {
        let target = Target::start(&["--lun", &lun]);
        // The first session's cost includes one-time costs of the process, such as the medium of a memory LUN.
        let mut first = log_in(&target, "first", 1);
        transfer(&mut first);
        let before = target.resident_bytes();
        let mut sessions = log_in(&target, "many", 64);
        let grown = |target: &Target| target.resident_bytes().saturating_sub(before) / 64;
        let idle = grown(&target);
        transfer(&mut sessions);
        let used = grown(&target);
        let what = format!("{lun}: idle connections give back their memory");
        eventually(&what, 20, || grown(&target) <= IDLE_BYTES_MAX);
        println!(
            "{lun}: {idle} bytes per new connection, {used} after a burst, then {}",
            grown(&target)
        );
        assert!(idle <= IDLE_BYTES_MAX, "{lun}: {idle} bytes per connection");
        // Memory that was returned can be used again.
        transfer(&mut sessions);
    }
}

/// A thousand sessions need no more threads than a few sessions do, and little memory; the few busy ones among them
/// work.
#[test]
fn a_thousand_sessions_share_a_few_threads() {
    let target = Target::start(&[
        "--lun",
        "memory:16MiB",
        "--max-sessions",
        "1100",
        "--engine",
        "io_uring",
    ]);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // Other tests in this process also have files open.
    let count = limit
        .current
        .map_or(1024, |open| open.min(1324) as usize - 300);
    let mut few = log_in(&target, "busy", 4);
    transfer(&mut few);
    let (threads, before) = (target.threads(), target.resident_bytes());
    let idle = log_in(&target, "idle", count);
    for _ in 0..16 {
        transfer(&mut few);
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let now = target.threads();
    assert!(now <= threads + cores, "{now} threads, {threads} before");
    let each = target.resident_bytes().saturating_sub(before) / count as u64;
    println!("{each} bytes for each of {count} sessions");
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes for each session");
    drop(idle);
    transfer(&mut few);
}

/// --poll reports its cost at the start and at the end.
#[test]
fn polling_is_announced_and_counted() {
    let mut child = brunt()
        .args(["target", "--name", TARGET_NAME, "--portal", "127.0.0.1:0"])
        .args([
            "--lun",
            "memory:16MiB",
            "--poll",
            "--json",
            "--engine",
            "io_uring",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("brunt starts");
    let mut notes = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut note = || notes.next().expect("more notes").expect("text");
    let cost = note();
    assert!(cost.contains("fully busy"), "{cost}");
    let listening = note();
    let address = listening.rsplit(' ').next().and_then(|at| at.parse().ok());
    let mut raw = Raw::login(
        address.expect("an address"),
        "iqn.2026-11.io.brunt:poller",
        TARGET_NAME,
        &[],
    );
    raw.settle(0);
    // Without --poll, a target without requests uses no processor time.
    let before = processor_ticks(child.id());
    eventually("it polls", 20, || {
        processor_ticks(child.id()) >= before + 20
    });
    transfer(std::slice::from_mut(&mut raw));
    signal(child.id() as i32, rustix::process::Signal::TERM);
    let ended = child.wait_with_output().expect("it ends");
    let stats: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("counters");
    let polled = Duration::from_nanos(stats["polling_ns"].as_u64().expect("counted"));
    // Most of the 20 ticks of 10 ms; without --poll, a wait includes polling for only 50 µs.
    assert!(polled >= Duration::from_millis(100), "{polled:?}");
}
