//! The Sheepdog client against real sheep: `SHEEP=FOLDER` names a folder with the programs `sheep` and `dog`, which
//! no distribution packages (docs/stores.md says where they come from and what was tried). Each test has its own
//! cluster on free ports; data is checked by `dog`, through a different sheep.
//!
//! Without `SHEEP`, these tests are skipped, even where everything else is required, because there is no package to
//! install. Tests against a sheep's recorded replies are in crates/brunt-store/tests/it/sheepdog_recorded.rs.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::support::eventually;
use brunt_block::device::Allocation;
use brunt_block::{
    Backend, Completion, Device, Op, Request, Ring, RingConfig, open_url_with, turn,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const OBJECT: u64 = 4 * MIB;

/// Sheep on this machine, each in a separate zone, joined by the `local` cluster driver.
struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    ports: Vec<u16>,
    sheep: Vec<Option<Child>>,
}

impl Cluster {
    fn start(count: usize, format: &[&str]) -> Option<Cluster> {
        let Some(programs) = std::env::var_os("SHEEP") else {
            println!("skipped: needs SHEEP=FOLDER with the programs sheep and dog");
            return None;
        };
        let programs = PathBuf::from(programs);
        for program in ["sheep", "dog"] {
            assert!(
                programs.join(program).is_file(),
                "{} has no {program}",
                programs.display()
            );
        }
        let listeners: Vec<TcpListener> = (0..count)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().port())
            .collect();
        drop(listeners);
        let folder = tempfile::Builder::new().prefix("sheep").tempdir().unwrap();
        let mut cluster = Cluster {
            programs,
            folder,
            ports,
            sheep: Vec::new(),
        };
        for index in 0..count {
            cluster.sheep.push(None);
            cluster.start_sheep(index);
        }
        cluster.wait_for_nodes(0, count);
        cluster.dog(0, &[&["cluster", "format"], format].concat());
        Some(cluster)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start_sheep(&mut self, index: usize) {
        let mut command = Command::new(self.programs.join("sheep"));
        let port = self.ports[index].to_string();
        command.args([
            "-f",
            "-n",
            "-b",
            "127.0.0.1",
            "-y",
            "127.0.0.1",
            "-p",
            &port,
            "-z",
            &index.to_string(),
        ]);
        command.args([
            "-c",
            &format!("local:{}", self.path("shared")),
            &self.path(&format!("sheep{index}")),
        ]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A sheep forks helpers, so start it in a process group that can be killed as a whole.
        self.sheep[index] = Some(command.process_group(0).spawn().expect("sheep starts"));
    }

    fn kill_sheep(&mut self, index: usize) {
        let mut child = self.sheep[index].take().unwrap();
        let group = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        child.wait().unwrap();
    }

    /// Waits until the sheep at `at` sees this many nodes.
    fn wait_for_nodes(&self, at: usize, count: usize) {
        eventually("the cluster's nodes", 30, || {
            let listed = self.run(at, &["node", "list"]);
            String::from_utf8_lossy(&listed.stdout)
                .matches("127.0.0.1:")
                .count()
                == count
        });
    }

    fn wait_for_recovery(&self) {
        eventually("the recovery", 60, || {
            !String::from_utf8_lossy(&self.run(1, &["node", "recovery"]).stdout)
                .contains("127.0.0.1:")
        });
    }

    fn run(&self, at: usize, words: &[&str]) -> std::process::Output {
        let mut command = Command::new(self.programs.join("dog"));
        command
            .args(&words[..2])
            .args(["-p", &self.ports[at].to_string()])
            .args(&words[2..]);
        command.stdin(Stdio::null()).output().expect("dog starts")
    }

    /// Runs `dog` through the sheep at `at`.
    fn dog(&self, at: usize, words: &[&str]) -> Vec<u8> {
        let output = self.run(at, words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "dog {words:?}: {error}");
        output.stdout
    }

    fn url(&self, vdi: &str) -> String {
        format!("sheepdog://127.0.0.1:{}/{vdi}", self.ports[0])
    }

    fn open(&self, vdi: &str) -> Arc<dyn Backend> {
        let url = self.url(vdi);
        open_url_with(&url, brunt_store::BACKENDS, false)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.sheep.len() {
            if self.sheep[index].is_some() {
                self.kill_sheep(index);
            }
        }
    }
}

/// A per-thread handle to a backend.
struct Hand {
    ring: Ring,
    device: Box<dyn Device>,
}

impl Hand {
    fn on(backend: &dyn Backend, depth: u32) -> Hand {
        let ring = Ring::new(RingConfig::default()).unwrap();
        let device = backend.open(&ring, depth).unwrap();
        Hand { ring, device }
    }

    fn request(&self, tag: u64, op: Op, offset: u64, len: u64, byte: u8) -> Request {
        let moves_data = matches!(op, Op::Read | Op::Write);
        let mut buf = if moves_data {
            self.ring.pool().take(len as usize)
        } else {
            brunt_block::Buf::empty()
        };
        buf.fill(byte);
        Request {
            tag,
            op,
            offset,
            len,
            buf,
            force_unit_access: false,
        }
    }

    fn run(&mut self, requests: Vec<Request>) -> Vec<Completion> {
        let (mut batch, mut done) = (VecDeque::from(requests), Vec::new());
        while !batch.is_empty() || self.device.outstanding() > 0 {
            turn::turn(&self.ring, &mut *self.device, &mut batch, &mut done).unwrap();
        }
        for one in &done {
            assert_eq!(one.result, Ok(()), "{:?}", self.device.health());
        }
        done
    }

    /// Executes one request, and applies it to the test's model of the disk.
    fn one(&mut self, model: &mut [u8], op: Op, offset: u64, len: u64, byte: u8) {
        let request = self.request(0, op, offset, len, byte);
        let done = self.run(vec![request]).pop().unwrap();
        let range = offset as usize..(offset + len) as usize;
        match op {
            Op::Read => assert!(done.buf[..] == model[range], "a read at {offset}"),
            Op::Write => model[range].fill(byte),
            _ => model[range].fill(0),
        }
    }
}

/// `dog` reads what was written, across the boundaries of objects; a snapshot taken in between keeps the old data,
/// and a clone starts with it; holes, write-zeroes and dropped objects are as expected.
#[test]
fn snapshots_keep_old_data_and_clones_start_with_it() {
    let Some(cluster) = Cluster::start(3, &["-c", "2"]) else {
        return;
    };
    cluster.dog(0, &["vdi", "create", "disk", "24M"]);
    let backend = cluster.open("disk");
    assert_eq!(
        backend.allocation(0),
        Some((Allocation::Deallocated, 24 * MIB))
    );
    let mut model = vec![0_u8; 24 * MIB as usize];
    let mut hand = Hand::on(&*backend, 16);
    hand.one(&mut model, Op::Read, 0, 24 * MIB / 2, 1);
    hand.one(&mut model, Op::Write, OBJECT - 512, OBJECT + 1024, 2);
    hand.one(&mut model, Op::Write, 5 * OBJECT + 4096, 4096, 3);
    assert!(cluster.dog(1, &["vdi", "read", "disk"]) == model);
    assert_eq!(
        backend.allocation(3 * OBJECT),
        Some((Allocation::Deallocated, 2 * OBJECT))
    );

    let before = model.clone();
    cluster.dog(2, &["vdi", "snapshot", "-s", "before", "disk"]);
    hand.one(&mut model, Op::Write, OBJECT, 4096, 4);
    hand.one(&mut model, Op::WriteZeroes, 5 * OBJECT, MIB, 0);
    hand.one(&mut model, Op::Unmap, 0, OBJECT + 8192, 0);
    hand.one(&mut model, Op::Write, 4096, 512, 5);
    for _ in 0..5 {
        // Servers remove dropped objects some time later, which must not remove data that is written afterwards.
        hand.one(&mut model, Op::Unmap, OBJECT, OBJECT, 0);
        hand.one(&mut model, Op::Read, 0, 3 * OBJECT, 0);
        hand.one(&mut model, Op::Write, OBJECT + 512, 1024, 6);
    }
    hand.one(&mut model, Op::Read, 0, 3 * OBJECT, 0);
    assert!(
        cluster.dog(1, &["vdi", "read", "disk"]) == model,
        "the disk"
    );
    assert!(
        cluster.dog(1, &["vdi", "read", "-s", "before", "disk"]) == before,
        "the snapshot"
    );

    for snapshot in ["before", "1"] {
        let snapshot = cluster.open(&format!("disk?snapshot={snapshot}"));
        assert!(snapshot.info().read_only);
        Hand::on(&*snapshot, 4).one(&mut before.clone(), Op::Read, 0, 12 * MIB, 0);
    }
    cluster.dog(0, &["vdi", "clone", "-s", "before", "disk", "clone"]);
    let (clone, mut cloned) = (cluster.open("clone"), before.clone());
    Hand::on(&*clone, 4).one(&mut cloned, Op::Write, 2 * OBJECT - 4096, 8192, 7);
    assert!(cluster.dog(2, &["vdi", "read", "clone"]) == cloned);
    assert!(cluster.dog(2, &["vdi", "read", "-s", "before", "disk"]) == before);
    let error = open_url_with(&cluster.url("none"), brunt_store::BACKENDS, false)
        .err()
        .unwrap();
    assert!(error.to_string().contains("SD_RES_NO_VDI"), "{error}");
}

/// Threads and connections that create the same objects concurrently don't lose each other's blocks.
#[test]
fn threads_that_create_the_same_objects_lose_no_blocks() {
    let Some(cluster) = Cluster::start(2, &["-c", "2"]) else {
        return;
    };
    cluster.dog(0, &["vdi", "create", "disk", "16M"]);
    let backend = cluster.open("disk?connections=2");
    let blocks = 16 * MIB / 16384;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let backend = &*backend;
            scope.spawn(move || {
                let mut hand = Hand::on(backend, 32);
                let mine = (0..blocks).filter(|block| block % 4 == thread);
                let write = |block| {
                    hand.request(
                        block,
                        Op::Write,
                        block * 16384,
                        16384,
                        1 + (block % 251) as u8,
                    )
                };
                let requests = mine.map(write).collect();
                hand.run(requests);
            });
        }
    });
    let expected: Vec<u8> = (0..16 * MIB)
        .map(|at| 1 + (at / 16384 % 251) as u8)
        .collect();
    assert!(cluster.dog(1, &["vdi", "read", "disk"]) == expected);
}

/// A locked VDI can't be opened by a second client, and is available once the first client has left.
#[test]
fn a_locked_vdi_is_refused_to_a_second_client() {
    let Some(cluster) = Cluster::start(2, &["-c", "2", "-l"]) else {
        return;
    };
    cluster.dog(0, &["vdi", "create", "disk", "8M"]);
    let backend = cluster.open("disk");
    let mut hand = Hand::on(&*backend, 1);
    let second = || open_url_with(&cluster.url("disk"), brunt_store::BACKENDS, false);
    let error = second().err().unwrap().to_string();
    assert!(error.contains("SD_RES_VDI_LOCKED"), "{error}");
    assert!(
        open_url_with(&cluster.url("disk"), brunt_store::BACKENDS, true).is_ok(),
        "for reading"
    );
    drop(backend);
    assert!(second().is_err(), "a device has it still");
    hand.one(&mut vec![0; 8 * MIB as usize], Op::Write, 0, 4096, 1);
    drop(hand);
    assert!(second().is_ok());
}

/// Sheep are killed and restarted under load, first another one, then the one that Brunt uses: the remaining ones
/// have everything that was acknowledged.
#[test]
fn nothing_acknowledged_is_lost_when_sheep_die() {
    let Some(mut cluster) = Cluster::start(3, &["-c", "3"]) else {
        return;
    };
    cluster.dog(0, &["vdi", "create", "disk", "32M"]);
    let backend = cluster.open("disk?timeout=10s");
    let mut hand = Hand::on(&*backend, 16);
    let mut model = vec![0_u8; 32 * MIB as usize];
    for round in 0..12_u64 {
        match round {
            2 => cluster.kill_sheep(2),
            5 => {
                cluster.start_sheep(2);
                cluster.wait_for_nodes(0, 3);
                // All three copies exist again.
                eventually("the recovery", 60, || {
                    !String::from_utf8_lossy(&cluster.run(0, &["node", "recovery"]).stdout)
                        .contains("127.0.0.1:")
                });
            }
            8 => {
                cluster.kill_sheep(0);
                // A sheep that comes back before its absence was detected is rejected by the others.
                cluster.wait_for_nodes(1, 2);
                cluster.start_sheep(0);
            }
            _ => {}
        }
        let mut requests = Vec::new();
        for tag in 0..64 {
            let at = (tag * 37 + round * 11) % 512 * 65536 + round * 512;
            let byte = (1 + round * 16 + tag % 16) as u8;
            requests.push(hand.request(tag, Op::Write, at, 4096, byte));
            model[at as usize..at as usize + 4096].fill(byte);
        }
        hand.run(requests);
    }
    assert!(
        hand.device.health().reconnects >= 1,
        "{:?}",
        hand.device.health()
    );
    cluster.wait_for_nodes(1, 3);
    cluster.wait_for_recovery();
    for sheep in [1, 2] {
        same(
            &cluster.dog(sheep, &["vdi", "read", "disk"]),
            &model,
            &format!("by dog through sheep {sheep}"),
        );
    }
    // Copies that a returning sheep makes may lack data that was written meanwhile (docs/stores.md): Brunt reads what
    // is there.
    let through_ours = cluster.dog(0, &["vdi", "read", "disk"]);
    if through_ours != model {
        let lost = differences(&through_ours, &model);
        println!(
            "the copies of the sheep that came back lack acknowledged writes:\n{}",
            lost.join("\n")
        );
    }
    let requests = (0..8)
        .map(|part| hand.request(part, Op::Read, part * OBJECT, OBJECT, 0))
        .collect();
    let mut done = hand.run(requests);
    done.sort_by_key(|one| one.tag);
    let read: Vec<u8> = done
        .iter()
        .flat_map(|one| one.buf.iter().copied())
        .collect();
    same(
        &read,
        &through_ours,
        "by Brunt and by dog through one sheep",
    );
}

fn same(found: &[u8], expected: &[u8], what: &str) {
    assert!(
        found == expected,
        "{what}:\n{}",
        differences(found, expected).join("\n")
    );
}

/// Describes the sectors that differ from the expected data.
fn differences(found: &[u8], expected: &[u8]) -> Vec<String> {
    assert_eq!(found.len(), expected.len());
    let sectors = found.chunks(512).zip(expected.chunks(512)).enumerate();
    let wrong = sectors.filter(|(_, (found, expected))| found != expected);
    let tell = |(sector, (found, expected)): (usize, (&[u8], &[u8]))| {
        let at = sector * 512;
        format!(
            "at {} of object {}: {} in place of {}",
            at % OBJECT as usize,
            at / OBJECT as usize,
            found[0],
            expected[0]
        )
    };
    wrong.map(tell).collect()
}
