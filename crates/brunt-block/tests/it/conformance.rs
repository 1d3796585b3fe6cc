//! Runs the suite on the backends and layers of this crate, and tests guarantees that only some of them give.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use brunt_block::backends::tcp::start_sink;
use brunt_block::sink::SinkConfig;
use brunt_block::{DeviceError, Inline, Op, OpenError, Ring, RingConfig, open_url};
use tempfile::{tempdir, tempdir_in};

use crate::suite::{self, Bench, DEPTH, SIZE_BYTES, Subject};

/// Describes a device of this crate to the suite.
fn subject(url: &str) -> Subject<'_> {
    let drops_writes = || {
        let backend = open_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        matches!(backend.inline(), Inline::Zeros)
    };
    let zeros = url.starts_with("null:") || url.starts_with("tcp:") || drops_writes();
    Subject {
        url,
        more: &[],
        zeros,
        unmaps: true,
        remote: false,
    }
}

fn conforms(url: &str) {
    suite::conforms(subject(url));
}

/// Runs the suite with each engine, for stacks with files or sockets.
fn conforms_by_each_engine(url: &str) {
    suite::conforms_by_each_engine(subject(url));
}

/// Reports that a test was skipped because it needs something that no package provides.
fn skip(needs: &str) {
    println!("skipped: needs {needs}");
}

#[test]
fn null_devices_conform() {
    conforms("null:8MiB");
    conforms("null:8MiB?block=4096");
    conforms("null:8MiB?delay=const:5us");
}

#[test]
fn memory_devices_conform() {
    conforms("memory:8MiB");
    conforms("memory:8MiB?block=4096");
}

#[test]
fn delayed_memory_conforms() {
    conforms("memory:8MiB?delay=uniform:1us-20us,seed=3");
    conforms("memory:8MiB?delay=exp:5us,servers=2");
}

/// A layer with nothing armed has no effect; faults corrected by upper layers are not visible.
#[test]
fn unarmed_and_corrected_faults_have_no_effect() {
    conforms("memory:8MiB?fault=off");
    conforms("memory:8MiB?fault=slow:20us,p=0.3,seed=5");
    conforms("memory:8MiB?fault=slow:x3,p=0.3&delay=const:5us&fault=slow:x2,p=0.1");
    conforms("memory:8MiB?retry=3,off");
    conforms("memory:8MiB?fault=aborted-command,p=0.5,seed=1;medium-error,every=7&retry=200");
    conforms("memory:8MiB?fault=recovered-error,p=0.5&delay=uniform:1us-20us&retry=3,delay=10us");
    conforms(
        "memory:8MiB?fault=not-ready,p=0.2,seed=2;task-set-full,p=0.2,seed=3;unit-attention&retry=200",
    );
    conforms("memory:8MiB?fault=sense:b/4b/04,p=0.3,seed=4;errno:EIO,p=0.1,seed=5&retry=200");
    conforms("memory:8MiB?fault=flaky:2ms/1ms&retry=1000,delay=1ms");
    conforms("memory:8MiB?fault=bad-blocks,lba=99999999;misdirect,p=0&retry=1");
}

/// Arrays conform like other devices: optimal, degraded from the first request on, and rebuilding.
#[test]
fn arrays_conform_in_every_state() {
    let members = |count: u64, size: &str, rest: &str| {
        let one = format!(",[memory:{size}{rest}]");
        one.repeat(count as usize)
    };
    conforms(&format!("array:raid0,chunk=64k{}", members(2, "4MiB", "")));
    conforms(&format!(
        "array:raid1,chunk=64k{}",
        members(2, "8MiB", "?delay=uniform:1us-20us")
    ));
    conforms(&format!("array:raid5,chunk=64k{}", members(5, "2MiB", "")));
    conforms(&format!(
        "array:raid5,chunk=4k{}",
        members(3, "4MiB", "?fault=busy,op=read,p=0.01&retry=20")
    ));
    let dead = "?fault=hardware-error";
    conforms(&format!(
        "array:raid1,chunk=64k{}{}",
        members(1, "8MiB", ""),
        members(1, "8MiB", dead)
    ));
    conforms(&format!(
        "array:raid5,chunk=64k{}{}",
        members(2, "4MiB", ""),
        members(1, "4MiB", dead)
    ));
    let spare = ",spare=[memory:4MiB],rebuild=10MB";
    conforms(&format!(
        "array:raid5,chunk=64k{}{}{spare}",
        members(1, "4MiB", dead),
        members(2, "4MiB", "")
    ));
}

fn file_in(parent: &Path) {
    let folder = tempdir_in(parent).unwrap();
    for (index, options) in [
        "",
        "&block=4096&write_back=no",
        "&direct=no",
        "&direct=no&write_back=no",
        "&write_back=no&delay=lognormal:10us,sigma=0.3",
    ]
    .iter()
    .enumerate()
    {
        conforms_by_each_engine(&format!(
            "file:{}/{index}.img?size=8MiB&create=yes{options}",
            folder.path().display()
        ));
    }
}

#[test]
fn a_file_on_disk_conforms() {
    // The build directory: on a disk, even if the temporary directory is in memory.
    file_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn a_file_in_memory_conforms() {
    let shm = Path::new("/dev/shm");
    if std::fs::metadata(shm).is_ok_and(|metadata| metadata.is_dir()) {
        file_in(shm);
    } else {
        skip("/dev/shm");
    }
}

/// The network device conforms like any other, on one connection or several.
#[test]
fn tcp_devices_conform() {
    let sink = start_sink(SinkConfig::default()).unwrap();
    let url = format!("tcp://{}?size=8MiB", sink.address());
    conforms_by_each_engine(&url);
    conforms_by_each_engine(&format!(
        "{url}&connections=3&block=4096&send_buffer=64k&receive_buffer=64k"
    ));
    let stats = sink.shutdown();
    assert_eq!(stats.broken, 0, "{stats:?}");
    assert!(
        stats.requests > 10_000 && stats.received_bytes > 1 << 20 && stats.sent_bytes > 1 << 20
    );
}

/// A read-only file rejects writes and serves all other requests as usual.
#[test]
fn a_read_only_file_rejects_only_writes() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![7; 65536]).unwrap();
    let backend = open_url(&format!("{}?read_only=yes", path.display())).unwrap();
    assert!(backend.info().read_only);
    let mut bench = Bench::new(&*backend, 4);
    for op in [Op::Write, Op::Unmap, Op::WriteZeroes] {
        assert_eq!(
            bench.one(op, 0, 4096, 1).result,
            Err(DeviceError::Os(libc::EROFS))
        );
    }
    assert!(
        bench
            .one(Op::Read, 0, 65536, 1)
            .buf
            .iter()
            .all(|&byte| byte == 7)
    );
    assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()));
}

/// Two threads on one backend don't affect each other.
#[test]
fn two_threads_do_not_affect_each_other() {
    let folder = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = format!(
        "file:{}/disk.img?size=8MiB&create=yes&write_back=yes",
        folder.path().display()
    );
    for url in ["memory:8MiB", &file] {
        let backend = open_url(url).unwrap();
        let threads: Vec<_> = (0..2u64)
            .map(|half| {
                let backend = Arc::clone(&backend);
                std::thread::spawn(move || {
                    let mut bench = Bench::new(&*backend, DEPTH);
                    for round in 0..50u8 {
                        let offset = half * (SIZE_BYTES / 2) + u64::from(round) * 16384;
                        assert_eq!(
                            bench.one(Op::Write, offset, 16384, round + 1).result,
                            Ok(())
                        );
                        let read = bench.one(Op::Read, offset, 16384, 0);
                        assert!(read.buf.iter().all(|&byte| byte == round + 1));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// A ring with a kernel thread, and one that polls the device, give the same results.
#[test]
fn polled_rings_give_the_same_results() {
    let folder = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!(
        "file:{}/disk.img?size=8MiB&create=yes&write_back=yes",
        folder.path().display()
    );
    let backend = open_url(&url).unwrap();
    let sqpoll = RingConfig {
        sqpoll_idle_ms: Some(2),
        ..RingConfig::default()
    };
    let iopoll = RingConfig {
        iopoll: true,
        ..RingConfig::default()
    };
    for config in [sqpoll, iopoll] {
        let mut bench = Bench::on(Ring::new(config.clone()).unwrap(), &*backend, DEPTH);
        let probe = bench.one(Op::Read, 0, 4096, 0);
        if config.iopoll && probe.result == Err(DeviceError::Os(libc::EOPNOTSUPP)) {
            return skip("a file system with polled I/O");
        }
        let mut writes: Vec<_> = (0..200)
            .map(|tag| bench.request(tag, Op::Write, tag * 8192, 8192))
            .collect();
        for write in &mut writes {
            write.buf.fill(write.tag as u8);
        }
        assert!(
            bench.run(writes).iter().all(|one| one.result.is_ok()),
            "{config:?}"
        );
        // Long enough for the kernel thread to fall asleep.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let reads = (0..200)
            .map(|tag| bench.request(tag, Op::Read, tag * 8192, 8192))
            .collect();
        for one in bench.run(reads) {
            assert!(
                one.result.is_ok() && one.buf.iter().all(|&byte| byte == one.tag as u8),
                "{config:?}"
            );
        }
        let flush = bench.one(Op::Flush, 0, 0, 0).result;
        let expected = if config.iopoll {
            Err(DeviceError::Unsupported)
        } else {
            Ok(())
        };
        assert_eq!(flush, expected, "{config:?}");
    }
}

/// Runs a program and returns its output if it succeeded.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A loop device, detached on drop.
struct Loop(String);

impl Loop {
    fn new(file: &Path, block_bytes: &str) -> Option<Loop> {
        run(
            "losetup",
            &[
                "--find",
                "--show",
                "--sector-size",
                block_bytes,
                file.to_str()?,
            ],
        )
        .map(Loop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

/// Block devices of either block size conform, and one in use is rejected.
#[test]
fn block_devices_conform_unless_in_use() {
    // In memory, because a busy disk behind the loop device would only slow it down.
    let folder = tempdir_in("/dev/shm")
        .or_else(|_| tempdir_in(env!("CARGO_TARGET_TMPDIR")))
        .unwrap();
    for block in ["512", "4096"] {
        let file = folder.path().join(format!("{block}.img"));
        std::fs::File::create(&file)
            .unwrap()
            .set_len(SIZE_BYTES)
            .unwrap();
        let Some(device) = Loop::new(&file, block) else {
            return skip("root and loop devices");
        };
        let backend = open_url(&device.0).unwrap();
        assert_eq!(backend.info().block_bytes.to_string(), block);
        assert!(backend.info().unmap);
        let error = open_url(&device.0)
            .err()
            .expect("the second writer is refused");
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        open_url(&format!("{}?read_only=yes", device.0)).unwrap();
        open_url(&format!("{}?force=yes", device.0)).unwrap();
        drop(backend);
        if block == "4096" {
            let error = open_url(&format!("{}?block=512", device.0))
                .err()
                .expect("blocks are too small");
            assert!(error.to_string().contains("use block=4096"), "{error}");
        }
        // `conforms` opens the device itself.
        conforms(&device.0);
    }
}

/// A mounted directory, unmounted on drop.
struct Mounted<'a>(&'a str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        run("umount", &[self.0]);
    }
}

/// On a full file system a request fails with its errno; requests that need no space still work.
#[test]
fn a_full_file_system_fails_only_requests_that_need_space() {
    let folder = tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    if run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", path]).is_none() {
        return skip("root, to mount a small file system");
    }
    // Dropped after the backend and before the directory.
    let _mounted = Mounted(path);
    let backend = open_url(&format!("file:{path}/disk.img?size=8MiB&create=yes")).unwrap();
    let mut bench = Bench::new(&*backend, 4);
    assert_eq!(bench.one(Op::Write, 0, 65536, 1).result, Ok(()));
    assert_eq!(
        bench.one(Op::Write, 1 << 20, 4 << 20, 1).result,
        Err(DeviceError::Os(libc::ENOSPC))
    );
    assert!(
        bench
            .one(Op::Read, 0, 65536, 0)
            .buf
            .iter()
            .all(|&byte| byte == 1)
    );
}
