//! The initiator against an independent target: Debian's tgt. Every test has its own tgtd with a private control
//! port; data is checked in tgt's backing file, not through iSCSI.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::processor_ticks;
use brunt_block::{Backend, Buf, DeviceError, Op, Request, Ring, RingConfig, open_url_with};
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const TARGET: &str = "iqn.2026-11.io.brunt:tgt";
/// Longest wait for tgtd to start: if it hasn't by then, it never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// A tgtd in the foreground with one target and one LUN of 64 MiB.
struct Tgt {
    daemon: Child,
    control: u32,
    port: u16,
    folder: TempDir,
}

impl Tgt {
    /// Starts tgtd; returns `None`, with a message, if tgt is missing.
    fn start() -> Option<Tgt> {
        let missing = |what: &str| {
            assert!(
                std::env::var_os("BRUNT_REQUIRE_ALL").is_none(),
                "needs {what}"
            );
            println!("skipped: needs {what}");
        };
        let is_there = |path: &str| Path::new(path).exists();
        if !is_there("/usr/sbin/tgtd") || !is_there("/usr/sbin/tgtadm") {
            missing("the Debian package tgt");
            return None;
        }
        if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
            missing("root, as which alone tgtd runs");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join("disk"))
            .unwrap()
            .set_len(64 * MIB)
            .unwrap();
        // tgtd doesn't accept port 0, so use a port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // Control ports are machine-wide lock files, with numbers up to 32767.
        let control = 10_000 + (std::process::id() * 16 + number) % 20_000;
        let mut tgt = Tgt {
            daemon: daemon(control, port),
            control,
            port,
            folder,
        };
        tgt.configure();
        Some(tgt)
    }

    fn configure(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.try_admin(&["--op", "show", "--mode", "target"]) {
            assert!(self.daemon.try_wait().unwrap().is_none(), "tgtd ended");
            assert!(Instant::now() < deadline, "tgtd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.admin(&format!("--op new --mode target --tid 1 -T {TARGET}"));
        let disk = self.disk();
        self.admin(&format!(
            "--op new --mode logicalunit --tid 1 --lun 1 -b {}",
            disk.display()
        ));
        self.admin("--op bind --mode target --tid 1 -I ALL");
    }

    fn try_admin(&self, arguments: &[&str]) -> bool {
        let control = self.control.to_string();
        let mut command = Command::new("/usr/sbin/tgtadm");
        command
            .args(["-C", &control, "--lld", "iscsi"])
            .args(arguments);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }

    fn admin(&self, arguments: &str) {
        let words: Vec<&str> = arguments.split(' ').collect();
        assert!(self.try_admin(&words), "tgtadm {arguments}");
    }

    fn kill(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    fn restart(&mut self) {
        self.daemon = daemon(self.control, self.port);
        self.configure();
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn url(&self) -> String {
        self.url_of("", TARGET, 1)
    }

    /// `login` is empty or ends with `@`.
    fn url_of(&self, login: &str, target: &str, lun: u32) -> String {
        format!("iscsi://{login}127.0.0.1:{}/{target}/{lun}", self.port)
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn daemon(control: u32, port: u16) -> Child {
    Command::new("/usr/sbin/tgtd")
        .args([
            "-f",
            "-C",
            &control.to_string(),
            "--iscsi",
            &format!("portal=127.0.0.1:{port}"),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn brunt(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    command.args(["--json", "io"]).args(arguments);
    for key in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env_remove(format!("LIBISCSI_CHAP_{key}"));
    }
    command
}

/// The JSON object that a command printed; it must have printed nothing else.
fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stdout)))
}

fn succeed(arguments: &[&str]) -> Value {
    let output = brunt(arguments).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    object(&output)
}

/// Runs a command that must fail; returns its message.
fn fail(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = brunt(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let object = object(&output);
    object["error"]
        .as_str()
        .unwrap_or_else(|| panic!("no error in {object}"))
        .to_string()
}

fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_string()
}

/// Written data is in tgt's file, and data in the file is read correctly, both according to another tool's checksums;
/// requests have all sizes and alignments, with and without immediate data.
#[test]
fn data_is_right_on_both_sides() {
    let Some(tgt) = Tgt::start() else { return };
    let url = tgt.url();
    for (options, bs, depth, seed) in [
        ("", "1M", "8", "1"),
        ("?immediate_data=no", "4k", "32", "2"),
        ("?sessions=3&initial_r2t=yes", "36k", "64", "3"),
    ] {
        let url = format!("{url}{options}");
        let written = succeed(&["write", &url, "--bs", bs, "--depth", depth, "--seed", seed]);
        assert_eq!(
            written["sha256"],
            Value::from(sha256sum(&tgt.disk())),
            "{url} {bs}"
        );
        let verified = succeed(&[
            "verify", &url, "--bs", "60k", "--depth", "16", "--seed", seed,
        ]);
        assert_eq!(verified["wrong_blocks"], 0);
    }
    let file = fs::OpenOptions::new().write(true).open(tgt.disk()).unwrap();
    file.write_all_at(&[0x5a; 1000], 7 * MIB + 123).unwrap();
    let read = succeed(&["read", &url, "--bs", "256k", "--depth", "4"]);
    assert_eq!(read["sha256"], Value::from(sha256sum(&tgt.disk())));
    let trouble = (&read["errors"], &read["retries"], &read["complete"]);
    assert_eq!(trouble, (&0.into(), &0.into(), &true.into()), "{read}");
    let copy = tgt.folder.path().join("copy");
    succeed(&[
        "read",
        &url,
        "--output",
        copy.to_str().unwrap(),
        "--bs",
        "128k",
    ]);
    assert!(fs::read(copy).unwrap() == fs::read(tgt.disk()).unwrap());

    // verify finds the 1000 wrong bytes in the middle, and reports their position.
    let output = brunt(&["verify", &url, "--seed", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let verified = object(&output);
    assert_eq!(verified["wrong_blocks"], 3);
    assert_eq!(verified["first_wrong"]["offset"], 7 * MIB);
}

/// Discovery and capacity match tgt's configuration; if a target or LUN doesn't exist, a clear message names it.
#[test]
fn discovery_and_capacity_match_the_configuration() {
    let Some(tgt) = Tgt::start() else { return };
    let found = succeed(&["targets", &format!("iscsi://127.0.0.1:{}", tgt.port)]);
    assert_eq!(found["targets"][0]["name"], TARGET);
    let capacity = succeed(&["capacity", &tgt.url()]);
    assert_eq!(capacity["size_bytes"], 64 * MIB);
    assert_eq!(capacity["block_bytes"], 512);
    assert_eq!(capacity["volatile_cache"], true);
    assert!(
        capacity["notes"][0]
            .as_str()
            .unwrap()
            .contains("VIRTUAL-DISK")
    );
    let error = fail(&["capacity", &tgt.url_of("", TARGET, 7)], &[]);
    assert!(error.contains("LUN 7 does not exist"), "{error}");
    let error = fail(
        &["capacity", &tgt.url_of("", "iqn.2026-11.io.brunt:other", 1)],
        &[],
    );
    assert!(error.contains("no target with this name"), "{error}");
}

/// CHAP, one-way and mutual, admits only initiators with the secrets, and no message contains a secret.
#[test]
fn chap_admits_only_initiators_with_the_secrets() {
    let Some(tgt) = Tgt::start() else { return };
    tgt.admin("--op new --mode account --user alice --password alices-s3cret");
    tgt.admin("--op bind --mode account --tid 1 --user alice");
    let right = tgt.url_of("alice%alices-s3cret@", TARGET, 1);
    assert_eq!(succeed(&["read", &right, "--count", "10"])["errors"], 0);
    let object = succeed(&["capacity", &right]);
    assert!(!object.to_string().contains("s3cret"), "{object}");
    let check = |url: &str, environment: &[(&str, &str)], words: &str| {
        let error = fail(&["capacity", url], environment);
        assert!(error.contains(words), "'{error}' does not say '{words}'");
        assert!(!error.contains("s3cret"), "{error}");
    };
    check(
        &tgt.url_of("alice%wrong-s3cret@", TARGET, 1),
        &[],
        "authentication failed",
    );
    check(
        &tgt.url_of("bob%alices-s3cret@", TARGET, 1),
        &[],
        "authentication failed",
    );
    check(&tgt.url(), &[], "authentication failed");
    let mutual = [
        ("LIBISCSI_CHAP_TARGET_USERNAME", "target"),
        ("LIBISCSI_CHAP_TARGET_PASSWORD", "targets-s3cret"),
    ];
    check(&right, &mutual, "");

    tgt.admin("--op new --mode account --user target --password targets-s3cret");
    tgt.admin("--op bind --mode account --tid 1 --user target --outgoing");
    let output = brunt(&["read", &right, "--count", "10"])
        .envs(mutual)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let wrong = [
        mutual[0],
        ("LIBISCSI_CHAP_TARGET_PASSWORD", "another-s3cret"),
    ];
    check(&right, &wrong, "wrong user name or secret");
}

/// With CRC32C digests of the header, of the data and of both, data of every length arrives in both directions.
#[test]
fn data_of_every_length_arrives_with_digests() {
    let Some(tgt) = Tgt::start() else { return };
    for (header, data) in [("CRC32C", "None"), ("None", "CRC32C"), ("CRC32C", "CRC32C")] {
        tgt.admin(&format!(
            "--op update --mode target --tid 1 --name HeaderDigest --value {header}"
        ));
        tgt.admin(&format!(
            "--op update --mode target --tid 1 --name DataDigest --value {data}"
        ));
        let option = |value: &str| value.to_lowercase();
        let url = format!(
            "{}?header_digest={}&data_digest={}",
            tgt.url(),
            option(header),
            option(data)
        );
        for (bs, length) in [("512", "1M"), ("20k", "16M"), ("1M", "16M")] {
            succeed(&["write", &url, "--bs", bs, "--length", length, "--seed", "5"]);
            let verified = succeed(&[
                "verify", &url, "--bs", bs, "--length", length, "--seed", "5",
            ]);
            assert_eq!(verified["wrong_blocks"], 0);
            let note = verified["notes"][1].as_str().unwrap();
            let words = format!("header {header}, data {data}").replace("None", "none");
            assert!(note.contains(&words), "'{note}' does not say '{words}'");
        }
    }
}

/// Unmapped and zeroed blocks are zeros in tgt's file and their neighbours are unchanged; a request outside the LUN
/// fails with the right error.
#[test]
fn unmapped_and_zeroed_blocks_are_zeroes() {
    let Some(tgt) = Tgt::start() else { return };
    tgt.admin("--op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1");
    succeed(&["write", &tgt.url(), "--bs", "1M", "--pattern", "ones"]);
    let backend = open_url_with(&tgt.url(), brunt_iscsi::BACKENDS, false).unwrap();
    assert!(backend.info().unmap);
    let request = |op, offset, len| Request {
        tag: 1,
        op,
        offset,
        len,
        buf: Buf::empty(),
        force_unit_access: true,
    };
    assert_eq!(run(&*backend, request(Op::Unmap, MIB, 2 * MIB)), Ok(()));
    assert_eq!(
        run(&*backend, request(Op::WriteZeroes, 8 * MIB + 512, 1024)),
        Ok(())
    );
    assert_eq!(run(&*backend, request(Op::Flush, 0, 0)), Ok(()));
    assert_eq!(
        run(&*backend, request(Op::Unmap, 64 * MIB, 512)),
        Err(DeviceError::OutOfRange)
    );
    let disk = fs::read(tgt.disk()).unwrap();
    let all = |value: u8, from: u64, to: u64| {
        disk[from as usize..to as usize].iter().all(|b| *b == value)
    };
    assert!(all(0xff, 0, MIB) && all(0, MIB, 3 * MIB) && all(0xff, 3 * MIB, 8 * MIB + 512));
    assert!(all(0, 8 * MIB + 512, 8 * MIB + 1536) && all(0xff, 8 * MIB + 1536, 64 * MIB));
}

fn run(backend: &dyn Backend, request: Request) -> Result<(), DeviceError> {
    let ring = Ring::new(RingConfig::default()).unwrap();
    let mut device = backend.open(&ring, 4).unwrap();
    let mut batch = [request].into();
    let mut done = Vec::new();
    device.submit(&mut batch);
    while done.is_empty() {
        ring.enter(device.deadline()).unwrap();
        device.poll(&mut done);
    }
    done[0].result
}

/// tgtd dies in the middle of a write and is restarted: the session recovers, all unanswered requests are sent again,
/// and the data in tgt's file is correct.
#[test]
fn a_session_recovers_when_tgtd_restarts_in_a_write() {
    let Some(mut tgt) = Tgt::start() else { return };
    let url = tgt.url();
    // Writes wrap around the LUN, so that they don't finish before the kill.
    let arguments = [
        "write", &url, "--bs", "16k", "--depth", "32", "--count", "120000", "--seed", "9",
    ];
    let writer = brunt(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_data(&tgt.disk(), 4 * MIB);
    tgt.kill();
    std::thread::sleep(Duration::from_millis(300));
    tgt.restart();
    let output = writer.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let written = object(&output);
    assert!(written["reconnects"].as_u64().unwrap() >= 1, "{written}");
    assert_eq!(
        (&written["errors"], &written["requests"]),
        (&0.into(), &120_000.into())
    );
    assert_eq!(
        succeed(&["verify", &url, "--bs", "256k", "--seed", "9"])["wrong_blocks"],
        0
    );
    // Create the same content in another way: write a file with the same seed, without iSCSI.
    let twin = tgt.folder.path().join("twin");
    fs::File::create(&twin).unwrap().set_len(64 * MIB).unwrap();
    succeed(&["write", twin.to_str().unwrap(), "--bs", "1M", "--seed", "9"]);
    assert!(fs::read(twin).unwrap() == fs::read(tgt.disk()).unwrap());
}

/// If the target never comes back, every request ends with an error, and the command says why.
#[test]
fn every_request_fails_when_the_target_never_comes_back() {
    let Some(mut tgt) = Tgt::start() else { return };
    for policy in ["0", "1s"] {
        let url = format!("{}?reconnect={policy}", tgt.url());
        let arguments = [
            "read",
            &url,
            "--depth",
            "32",
            "--count",
            "100000000",
            "--random",
        ];
        let idle = processor_ticks(tgt.daemon.id());
        let reader = brunt(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // This is more processor time than a login takes, so it is reading.
        let deadline = Instant::now() + PATIENCE;
        while processor_ticks(tgt.daemon.id()) < idle + 10 {
            assert!(Instant::now() < deadline, "nothing is being read");
            std::thread::sleep(Duration::from_millis(5));
        }
        tgt.kill();
        let output = reader.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let read = object(&output);
        assert!(
            (1..=32).contains(&read["errors"].as_u64().unwrap()),
            "{read}"
        );
        assert!(
            read["first_error"]
                .as_str()
                .unwrap()
                .contains("the device is gone"),
            "{read}"
        );
        assert!(
            read["trouble"].is_string() && read["complete"] == false,
            "{read}"
        );
        tgt.restart();
    }
}

/// Waits until the file has non-zero bytes at an offset.
fn wait_for_data(path: &Path, offset: u64) {
    let file = fs::File::open(path).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut bytes = [0; 64];
        file.read_exact_at(&mut bytes, offset).unwrap();
        if bytes != [0; 64] {
            return;
        }
        assert!(Instant::now() < deadline, "nothing is being written");
        std::thread::sleep(Duration::from_millis(5));
    }
}
