//! Compares arrays with a simple model of the medium while members fail, are replaced and are rebuilt.

use super::*;
use crate::control::find;
use crate::layers::fault::{DeviceFault, FaultSwitch};
use crate::{Buf, Completion, Op, Request, RingConfig, open_url};
use brunt_core::random::Random;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const CHUNK: u64 = 4096;
/// Time limit of a rebuild; generous because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(300);

struct Bench {
    backend: Arc<dyn Backend>,
    device: Box<dyn Device>,
    ring: Ring,
    control: Arc<ArrayControl>,
    random: Random,
    medium: Vec<u8>,
    name: String,
    /// Sends only reads, because failed writes would leave undefined data.
    reads_only: bool,
}

impl Bench {
    fn new(url: &str, seed: u64) -> Bench {
        let backend = open_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let control = find(&backend.handles(), "array")
            .cloned()
            .unwrap()
            .downcast::<ArrayControl>()
            .unwrap();
        let ring = Ring::new(RingConfig::default()).unwrap();
        let device = backend.open(&ring, 8).unwrap();
        let medium = vec![0; backend.info().size_bytes as usize];
        Bench {
            backend,
            device,
            ring,
            control,
            random: Random::new(seed),
            medium,
            name: format!("{url}, seed {seed}"),
            reads_only: false,
        }
    }

    fn faults(&self, name: &str) -> Arc<FaultSwitch> {
        find(&self.backend.handles(), name)
            .cloned()
            .unwrap()
            .downcast()
            .expect("a fault layer")
    }

    fn run(&mut self, requests: Vec<Request>) -> Vec<Completion> {
        let (mut batch, mut done) = (VecDeque::from(requests), Vec::new());
        let begin = Instant::now();
        while !batch.is_empty() || self.device.outstanding() > 0 {
            self.device.submit(&mut batch);
            self.ring.enter(self.device.deadline()).unwrap();
            self.device.poll(&mut done);
            assert!(begin.elapsed() < PATIENCE, "{}: requests hang", self.name);
        }
        done.sort_by_key(|one| one.tag);
        done
    }

    fn request(&self, tag: u64, op: Op, offset: u64, len: u64) -> Request {
        let moves = matches!(op, Op::Read | Op::Write);
        let buf = if moves {
            self.ring.pool().take(len as usize)
        } else {
            Buf::empty()
        };
        Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access: false,
        }
    }

    /// Runs random requests that do not overlap, and checks them against the model of the medium. Returns the number
    /// of failures.
    fn work(&mut self, rounds: usize) -> usize {
        let mut failed = 0;
        for _ in 0..rounds {
            let size = self.medium.len() as u64;
            let (mut requests, mut ranges) = (Vec::new(), Vec::<(u64, u64)>::new());
            for tag in 0..8 {
                let longest = if self.random.chance(0.2) { 80 } else { 12 };
                let blocks = 1 + self.random.below(longest);
                let offset = self.random.below(size / 512) * 512;
                let len = (blocks * 512).min(size - offset);
                if ranges
                    .iter()
                    .any(|(from, to)| offset < *to && *from < offset + len)
                {
                    continue;
                }
                ranges.push((offset, offset + len));
                let op = match self.random.below(10) {
                    _ if self.reads_only => Op::Read,
                    0..4 => Op::Read,
                    4..9 => Op::Write,
                    _ => Op::WriteZeroes,
                };
                let mut request = self.request(tag, op, offset, len);
                if op == Op::Write {
                    self.random.fill(&mut request.buf);
                }
                requests.push(request);
            }
            let wanted: Vec<_> = requests
                .iter()
                .map(|one| {
                    (
                        one.tag,
                        one.op,
                        one.offset as usize,
                        one.len as usize,
                        one.buf.to_vec(),
                    )
                })
                .collect();
            for one in self.run(requests) {
                let (_, op, offset, len, data) =
                    wanted.iter().find(|(tag, ..)| *tag == one.tag).unwrap();
                let there = &mut self.medium[*offset..offset + len];
                if one.result.is_err() {
                    failed += 1;
                    continue;
                }
                match op {
                    Op::Read => assert!(
                        one.buf[..] == *there,
                        "{}: {len} bytes at {offset}",
                        self.name
                    ),
                    Op::Write => there.copy_from_slice(data),
                    _ => there.fill(0),
                }
            }
        }
        failed
    }

    /// Checks all data.
    fn check_all(&mut self) {
        let request = self.request(1, Op::Read, 0, self.medium.len() as u64);
        let one = self.run(vec![request]).pop().unwrap();
        assert_eq!(one.result, Ok(()), "{}", self.name);
        let wrong = one
            .buf
            .chunks(512)
            .zip(self.medium.chunks(512))
            .position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{}: block", self.name);
    }

    /// Runs requests until the array is optimal again.
    fn work_until_whole(&mut self) -> usize {
        let (begin, mut failed) = (Instant::now(), 0);
        while self.control.status().state != ArrayState::Optimal {
            failed += self.work(1);
            assert!(
                begin.elapsed() < PATIENCE,
                "{}: {:?}",
                self.name,
                self.control.status()
            );
        }
        failed
    }
}

fn url(level: &str, members: usize, spares: usize, options: &str) -> String {
    let mut url = format!("array:{level},chunk={CHUNK}{options}");
    for index in 0..members {
        url += &format!(",[memory:256KiB?fault=off;name=d{index}]");
    }
    for index in 0..spares {
        url += &format!(",spare=[memory:256KiB?fault=off;name=s{index}]");
    }
    url
}

/// Members fail one after another during writes and are rebuilt onto the spare, until none of the original members is
/// left; every byte is right at every stage.
#[test]
fn every_byte_survives_failures_and_rebuilds() {
    for (level, members) in [("raid1", 2), ("raid5", 3), ("raid5", 5)] {
        let mut bench = Bench::new(&url(level, members, 1, ""), 7);
        assert_eq!(bench.work(50), 0);
        for slot in 0..members {
            // Slow at first, so that the rebuild isn't over before it is seen.
            bench.control.set_rate(50_000);
            bench.control.fail(slot).unwrap();
            assert_eq!(bench.control.status().state, ArrayState::Rebuilding);
            bench.control.set_rate(20_000_000);
            assert_eq!(bench.work(5), 0, "{level}");
            bench.check_all();
            assert_eq!(bench.work_until_whole(), 0, "{level}");
            bench.check_all();
            assert_eq!(
                bench.control.replace(),
                1,
                "the failed one is the next spare"
            );
        }
        let status = bench.control.status();
        assert_eq!(
            (status.rebuilds, status.spares.len()),
            (members as u64, 1),
            "{status:?}"
        );
        assert!(status.degraded_requests > 0);
    }
}

/// Without a spare, the array stays degraded and serves all requests until a second failure; RAID 0 fails with the
/// first one.
#[test]
fn a_degraded_array_serves_requests_until_one_failure_too_many() {
    for (level, members) in [("raid1", 2), ("raid5", 4)] {
        let mut bench = Bench::new(&url(level, members, 0, ""), 3);
        assert_eq!(bench.work(30), 0);
        bench.control.fail(1).unwrap();
        assert_eq!(bench.control.status().state, ArrayState::Degraded);
        assert_eq!(bench.work(30), 0, "{level}");
        bench.check_all();
        assert_eq!(bench.control.rebuild(), Err(ArrayError::NoSpare));
        bench.control.fail(0).unwrap();
        assert_eq!(bench.control.status().state, ArrayState::Failed);
        let request = bench.request(1, Op::Read, 0, bench.medium.len() as u64);
        assert!(bench.run(vec![request])[0].result.is_err());
        assert_eq!(
            bench.control.fail(0),
            Err(ArrayError::FailedAlready { member: 0 })
        );
        assert!(matches!(
            bench.control.fail(9),
            Err(ArrayError::NoMember { member: 9, .. })
        ));
    }
    let mut striped = Bench::new(&url("raid0", 3, 0, ""), 3);
    assert_eq!(striped.work(30), 0);
    striped.check_all();
    striped.control.fail(2).unwrap();
    assert_eq!(striped.control.status().state, ArrayState::Failed);
    let request = striped.request(1, Op::Read, 0, striped.medium.len() as u64);
    assert!(striped.run(vec![request])[0].result.is_err());
}

/// Failed reads are served from the other members until a member has had too many; a failed write fails its member at
/// once. Either way, no request fails and no byte is wrong.
#[test]
fn member_errors_fail_no_request() {
    for level in ["raid1", "raid5"] {
        let mut bench = Bench::new(&url(level, 3, 0, ""), 11);
        assert_eq!(bench.work(20), 0);
        bench
            .faults("d1")
            .arm(DeviceFault::parse("medium-error,op=read,times=5").unwrap());
        assert_eq!(bench.work(50), 0);
        let status = bench.control.status();
        assert_eq!(
            (status.state, status.read_errors),
            (ArrayState::Optimal, 5),
            "{level}"
        );
        bench.check_all();
        bench
            .faults("d2")
            .arm(DeviceFault::parse("hardware-error,op=write,times=1").unwrap());
        assert_eq!(bench.work(50), 0);
        let status = bench.control.status();
        assert_eq!(
            (status.state, status.slots[2].1),
            (ArrayState::Degraded, MemberState::Failed),
            "{level}"
        );
        assert!(status.trouble.unwrap().contains("hardware error"));
        bench.check_all();
    }
}

/// Whatever fails in one member at a time, in any order, reads return the data written.
#[test]
fn reads_return_written_data_despite_random_failures() {
    for seed in 0..12 {
        let (level, members) =
            [("raid1", 2), ("raid1", 3), ("raid5", 3), ("raid5", 4)][seed as usize % 4];
        let mut bench = Bench::new(&url(level, members, 1, ",rebuild=0"), seed);
        for _ in 0..6 {
            let victim = bench.random.below(members as u64) as usize;
            let trouble = [
                "medium-error,p=0.3",
                "busy,op=read,p=0.2",
                "hardware-error,op=write,p=0.1",
                "slow:200us,p=0.2",
            ];
            let trouble = trouble[bench.random.below(4) as usize];
            let switch = bench.faults(&format!("d{victim}"));
            let fault = DeviceFault {
                seed,
                ..DeviceFault::parse(trouble).unwrap()
            };
            let armed = switch.arm(fault).unwrap();
            assert_eq!(bench.work(8), 0, "{} {trouble}", bench.name);
            switch.disarm(armed.id);
            if bench.control.status().state == ArrayState::Optimal && bench.random.chance(0.5) {
                bench.control.fail(victim).unwrap();
            }
            assert_eq!(bench.work(8), 0, "{}", bench.name);
            // If the victim was itself a spare, it has failed as well.
            bench.control.replace();
            if bench.control.status().state == ArrayState::Degraded {
                bench.control.rebuild().unwrap();
            }
            assert_eq!(bench.work_until_whole(), 0, "{}", bench.name);
            bench.check_all();
            bench.control.replace();
        }
    }
}

/// Rebuilds many stripes at a time, on members slow enough for requests to arrive during the rebuild, with requests
/// before, in and after the stripes being rebuilt, and with further failures. Returns the number of requests that
/// coincided with a rebuild.
fn rebuild_under_load(level: &str, members: usize, depth: u32, seed: u64) -> u32 {
    let mut url = format!("array:{level},chunk={CHUNK},rebuild_rate=0,rebuild_depth={depth}");
    for index in 0..members + 2 {
        let member = format!(
            "[memory:256KiB?delay=uniform:50us-250us,seed={index}&fault=off;name=d{index}]"
        );
        url += &if index < members {
            format!(",{member}")
        } else {
            format!(",spare={member}")
        };
    }
    let mut bench = Bench::new(&url, seed);
    assert_eq!(bench.work(10), 0);
    let mut seen = 0;
    for round in 0..3 {
        // A write to the spare being rebuilt fails, so the rebuild restarts on the next spare; the first spare is
        // already a member.
        if round == 1 {
            let switch = bench.faults(&format!("d{}", members + 1));
            switch
                .arm(DeviceFault::parse("hardware-error,op=write,every=7,times=1").unwrap())
                .unwrap();
        }
        let victim = bench.random.below(members as u64) as usize;
        // Reads from a source fail for a while; the rebuild and the requests use another source.
        if level == "raid1" && members > 2 {
            let other = (victim + 1) % members;
            let switch = bench.faults(&format!("d{other}"));
            switch
                .arm(DeviceFault::parse("busy,op=read,times=5").unwrap())
                .unwrap();
        }
        bench.control.fail(victim).unwrap();
        while bench.control.status().state != ArrayState::Optimal {
            seen += u32::from(
                bench
                    .control
                    .status()
                    .rebuilt_bytes
                    .is_some_and(|(done, _)| done > 0),
            );
            assert_eq!(bench.work(1), 0, "{}", bench.name);
            if bench.control.status().state == ArrayState::Degraded {
                bench.control.replace();
                let _ = bench.control.rebuild();
            }
        }
        bench.check_all();
        let (bytes, took) = bench.control.status().last_rebuild.unwrap();
        assert!(bytes == 256 << 10 && !took.is_zero());
        bench.control.replace();
    }
    // The rebuilt members are also consistent with the parity.
    if level == "raid5" {
        for slot in 0..members {
            bench.control.fail(slot).unwrap();
            bench.check_all();
            bench.control.replace();
            let _ = bench.control.rebuild();
            assert_eq!(bench.work_until_whole(), 0, "{}", bench.name);
        }
    }
    seen
}

/// While many stripes are rebuilt at once, reads always return the latest write, whatever fails, and at the end
/// the members are consistent.
#[test]
fn parallel_rebuilds_never_return_stale_data() {
    let mut seen = 0;
    for (seed, depth) in [1, 2, 5, 16, 256].into_iter().enumerate() {
        for (level, members) in [("raid1", 2), ("raid1", 3), ("raid5", 3), ("raid5", 5)] {
            seen += rebuild_under_load(level, members, depth, seed as u64);
        }
    }
    assert!(seen > 0, "no request met a rebuild");
}

/// A greater rebuild depth shortens the rebuild if member latency dominates.
#[test]
fn a_greater_depth_shortens_the_rebuild() {
    let took = |depth: u32| {
        let member = "[memory:256KiB?delay=const:2ms]";
        let url = format!(
            "array:raid1,chunk={CHUNK},rebuild_depth={depth},{member},{member},spare={member}"
        );
        let bench = Bench::new(&url, 1);
        bench.control.fail(0).unwrap();
        let begin = Instant::now();
        while bench.control.status().state != ArrayState::Optimal {
            assert!(begin.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        bench.control.status().last_rebuild.unwrap().1
    };
    // 64 stripes of at least 4 ms each take 256 ms one at a time, and 16 ms sixteen at a time. On a busy machine a
    // rebuild may be slow, but not fifty in a row.
    let one = took(1);
    assert!(one >= Duration::from_millis(256), "{one:?}");
    let quick = (0..50)
        .map(|_| took(16))
        .find(|many| *many < Duration::from_millis(128));
    assert!(
        quick.is_some(),
        "{one:?} one after the other, and never half of that"
    );
}

/// The effect of another failure during a rebuild depends on the level: a three-way mirror continues with its last
/// member; a two-way mirror and RAID 5 fail, still serve what they can, and never return wrong data. The rebuild ends,
/// and its spare becomes available again.
#[test]
fn a_failure_during_a_rebuild_has_the_effect_of_the_level() {
    let slow = |level: &str, members: usize| {
        let mut bench = Bench::new(
            &url(level, members, 1, ",rebuild_rate=10kB,rebuild_depth=8"),
            5,
        );
        assert_eq!(bench.work(40), 0);
        bench.control.fail(0).unwrap();
        assert_eq!(bench.control.status().state, ArrayState::Rebuilding);
        bench
    };
    let mut bench = slow("raid1", 3);
    bench.control.fail(1).unwrap();
    assert_eq!(bench.control.status().state, ArrayState::Rebuilding);
    bench.control.set_rate(0);
    let begin = Instant::now();
    while bench.control.status().rebuilds == 0 {
        assert_eq!(bench.work(1), 0);
        assert!(begin.elapsed() < PATIENCE, "{:?}", bench.control.status());
    }
    bench.check_all();
    for (level, members) in [("raid1", 2), ("raid5", 4)] {
        let mut bench = slow(level, members);
        bench.reads_only = true;
        bench.control.fail(1).unwrap();
        bench.control.set_rate(0);
        let begin = Instant::now();
        while bench.control.status().spares.is_empty() {
            assert!(
                begin.elapsed() < PATIENCE,
                "{level}: {:?}",
                bench.control.status()
            );
            // Successful reads are checked against the written data; other requests fail.
            bench.work(1);
        }
        let status = bench.control.status();
        assert_eq!(
            (status.state, status.rebuilds),
            (ArrayState::Failed, 0),
            "{level}"
        );
        assert!(
            status.trouble.unwrap().contains("too many members"),
            "{level}"
        );
        assert!(
            matches!(bench.control.rebuild(), Err(ArrayError::NothingLeft { .. })),
            "{level}"
        );
    }
}

/// With two threads, a failing member and a rebuild at the same time, every byte is right, and so is the parity, which
/// a second failure verifies.
#[test]
fn two_threads_keep_data_and_parity_right_during_a_rebuild() {
    for level in ["raid1", "raid5"] {
        let backend = open_url(&url(level, 3, 1, ",rebuild=5MB")).unwrap();
        let control = find(&backend.handles(), "array")
            .cloned()
            .unwrap()
            .downcast::<ArrayControl>()
            .unwrap();
        let half = backend.info().size_bytes / 2;
        let write = |backend: Arc<dyn Backend>, part: u64, rounds: u8| {
            std::thread::spawn(move || {
                let ring = Ring::new(RingConfig::default()).unwrap();
                let mut device = backend.open(&ring, 8).unwrap();
                for round in 0..rounds {
                    let requests = (0..half / 2048).map(|index| {
                        let mut buf = ring.pool().take(2048);
                        buf.fill(round ^ index as u8);
                        // The two threads alternate within every stripe.
                        let offset = index * 4096 + part * 2048;
                        Request {
                            tag: index,
                            op: Op::Write,
                            offset,
                            len: 2048,
                            buf,
                            force_unit_access: false,
                        }
                    });
                    let (mut batch, mut done) = (requests.collect::<VecDeque<_>>(), Vec::new());
                    while !batch.is_empty() || device.outstanding() > 0 {
                        device.submit(&mut batch);
                        ring.enter(device.deadline()).unwrap();
                        device.poll(&mut done);
                    }
                    assert!(done.iter().all(|one| one.result.is_ok()));
                }
            })
        };
        let rounds = 12;
        let threads = [
            write(Arc::clone(&backend), 0, rounds),
            write(Arc::clone(&backend), 1, rounds),
        ];
        std::thread::sleep(Duration::from_millis(5));
        control.fail(0).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        let begin = Instant::now();
        while control.status().state != ArrayState::Optimal {
            assert!(
                begin.elapsed() < PATIENCE,
                "{level}: {:?}",
                control.status()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        for failed in [None, Some(1)] {
            if let Some(slot) = failed {
                control.fail(slot).unwrap();
            }
            let mut bench = Bench::new("array:raid1,[memory:64KiB],[memory:64KiB]", 0);
            bench.device = backend.open(&bench.ring, 8).unwrap();
            let request = bench.request(1, Op::Read, 0, half * 2);
            let read = bench.run(vec![request]).pop().unwrap();
            for (index, piece) in read.buf.chunks(2048).enumerate() {
                let expected = (rounds - 1) ^ (index / 2) as u8;
                assert!(
                    piece.iter().all(|byte| *byte == expected),
                    "{level}, {failed:?} failed: piece {index}"
                );
            }
        }
    }
}

#[test]
fn an_invalid_array_is_rejected_with_what_would_be_right() {
    let check = |text: &str, said: &str| {
        let error = open_url(text)
            .err()
            .unwrap_or_else(|| panic!("{text} opened"))
            .to_string();
        assert!(error.contains(said), "{text}: {error}");
    };
    check("array:", "names no device");
    check("array:raid6,[null:1MiB]", "raid0, raid1 or raid5");
    check("array:raid1,[null:1MiB]", "at least 2");
    check("array:raid5,[null:1MiB],[null:1MiB]", "at least 3");
    check("array:raid1,[null:1MiB],[null:1MiB", "missing ']'");
    check("array:raid1,[null:1MiB],[null:1MiB?block=4096]", "block=");
    check(
        "array:raid1,chunk=5k,[null:1MiB],[null:1MiB]",
        "power of two",
    );
    check(
        "array:raid1,chunk=64k,[null:32k],[null:1MiB]",
        "smaller than a chunk",
    );
    check(
        "array:raid1,fast=yes,[null:1MiB],[null:1MiB]",
        "rebuild_rate=",
    );
    check(
        "array:raid1,rebuild_depth=0,[null:1MiB],[null:1MiB]",
        "1 to 256",
    );
    check(
        "array:raid1,rebuild_depth=257,[null:1MiB],[null:1MiB]",
        "1 to 256",
    );
    check(
        "array:raid1,[nul:1MiB],[null:1MiB]",
        "unknown backend 'nul'",
    );
    check(
        "array:raid1,[null:1MiB],[null:1MiB]?speed=9",
        "no option 'speed'",
    );
    let nested = "array:raid0,[array:raid1,[memory:1MiB?fault=off],[memory:1MiB]],[memory:1MiB?delay=const:1us]?retry=3";
    let names: Vec<String> = open_url(nested)
        .unwrap()
        .handles()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["retry", "array", "0/array", "0/0/fault"]);
    let within = |depth: usize| {
        (1..depth).fold("memory:1MiB".to_string(), |url, _| {
            format!("array:raid0,[{url}],[memory:1MiB]")
        })
    };
    assert!(open_url(&within(8)).is_ok());
    check(&within(9), "nested more than 8 deep");
    check(&"array:raid0,[".repeat(10_000), "missing ']'");
    check(
        &format!("{}{}", "array:raid0,[".repeat(10_000), "]".repeat(10_000)),
        "more than 8",
    );
}

/// The arrays found in a URL match those of the opened device, with the same names.
#[test]
fn arrays_in_a_url_match_the_opened_device() {
    let of_array = |(name, part): (String, Arc<dyn Controllable>)| {
        let status = part.downcast_ref::<ArrayControl>()?.status();
        Some((name, status.level, status.slots.len()))
    };
    let check = |url: &str, expected: &[(&str, Level, usize)]| {
        let found = named_in(url);
        let found: Vec<_> = found
            .iter()
            .map(|(name, array)| (name.as_str(), array.level, array.members))
            .collect();
        assert_eq!(found, expected, "{url}");
        let Ok(backend) = open_url(url) else { return };
        let opened: Vec<_> = backend.handles().into_iter().filter_map(of_array).collect();
        let named: Vec<_> = found
            .iter()
            .map(|(name, level, members)| (name.to_string(), level.name(), *members))
            .collect();
        assert_eq!(named, opened, "{url}");
    };
    let m = "[memory:1MiB?fault=off]";
    check(
        &format!("array:raid0,{m},{m}"),
        &[("array", Level::Raid0, 2)],
    );
    check(
        &format!(" array:raid5,spare={m},name=a,{m},{m},{m}?retry=3"),
        &[("a", Level::Raid5, 3)],
    );
    let stripe = format!("array:raid0,{m},{m}?delay=exp:1ms,servers=1");
    check(
        &format!("array:raid1,spare=[{stripe}],{m},[{stripe}]"),
        &[
            ("array", Level::Raid1, 2),
            ("1/array", Level::Raid0, 2),
            ("2/array", Level::Raid0, 2),
        ],
    );
    // LUN options may follow the members and belong to no device.
    check(
        &format!("array:raid1,{m},{m},thin,block=512"),
        &[("array", Level::Raid1, 2)],
    );
    for url in [
        "memory:1MiB",
        "",
        "array:",
        "array:raid6,[a],[b]",
        "array:raid0,[a]],[b]",
        "ftp://a/b/0",
    ] {
        check(url, &[]);
    }
    assert_eq!(
        named_in(&format!(
            "{}{}",
            "array:raid0,[".repeat(10_000),
            "]".repeat(10_000)
        ))
        .len(),
        8
    );
}
