//! `brunt io` from the outside: the data that it writes depends only on the seed and matches `sha256sum`, data read
//! before an error or Ctrl-C is kept and reported, and the cost of processing data in the program is not attributed
//! to the device.

use crate::support;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Running, Target, TempDir, brunt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn io(arguments: &[&str]) -> Command {
    let mut command = brunt();
    command
        .args(["--json", "io"])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// The JSON object and the standard error of a command that ends with this status.
#[track_caller]
fn run(arguments: &[&str], status: i32) -> (Value, String) {
    object(io(arguments).output().expect("brunt starts"), status)
}

#[track_caller]
fn object(output: Output, status: i32) -> (Value, String) {
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{words}");
    (
        serde_json::from_slice(&output.stdout).expect("one object"),
        words,
    )
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum")
        .arg(path)
        .output()
        .expect("coreutils");
    String::from_utf8_lossy(&output.stdout)[..64].to_string()
}

/// A seed always produces the same data, regardless of the size and number of requests.
#[test]
fn contents_follow_from_the_seed() {
    for (seed, sum) in [
        (
            "1",
            "445693bf0005d4ae0cc7e2766c3f0c94664bc1b6c24c4a30cbacec9293b28413",
        ),
        (
            "7",
            "0c1dbd0acb716ad06d657c149aacc847de3dd37b6a1d92722c1d0e99c35dbec6",
        ),
    ] {
        for (bs, depth) in [("36k", "32"), ("512", "3"), ("1M", "1")] {
            let (said, _) = run(
                &[
                    "write",
                    "memory:1MiB",
                    "--seed",
                    seed,
                    "--bs",
                    bs,
                    "--depth",
                    depth,
                ],
                0,
            );
            assert_eq!(said["sha256"], sum, "{said}");
        }
    }
    let (said, _) = run(&["write", "memory:1MiB", "--pattern", "ones"], 0);
    assert_eq!(
        said["sha256"],
        "f5fb04aa5b882706b9309e885f19477261336ef76a150c3b4d3489dfac3953ec"
    );
}

#[test]
fn written_data_is_read_back_and_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, copy) = (folder.path().join("disk"), folder.path().join("copy"));
    let make = format!("{}?size=1028KiB&create=yes", text(&disk));
    let (wrote, _) = run(
        &["write", &make, "--seed", "3", "--bs", "12k", "--depth", "5"],
        0,
    );
    assert_eq!(
        (&wrote["requests"], &wrote["bytes"]),
        (&86.into(), &(1028 << 10).into()),
        "{wrote}"
    );
    assert_eq!(wrote["sha256"], sha256sum(&disk));
    let (read, _) = run(
        &["read", text(&disk), "--bs", "64k", "--output", text(&copy)],
        0,
    );
    assert_eq!(
        (&read["sha256"], sha256sum(&copy)),
        (&wrote["sha256"], sha256sum(&disk))
    );
    let (none, _) = run(&["read", text(&disk), "--checksum", "none"], 0);
    assert_eq!(
        (&none["sha256"], &none["requests"]),
        (&Value::Null, &257.into())
    );
    let (right, _) = run(&["verify", text(&disk), "--seed", "3", "--bs", "16k"], 0);
    assert_eq!(
        (&right["wrong_blocks"], &right["errors"]),
        (&0.into(), &0.into())
    );
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(&disk)
        .expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 8192).expect("written");
    file.flush().expect("flushed");
    let (wrong, words) = run(&["verify", text(&disk), "--seed", "3", "--bs", "16k"], 1);
    let first = &wrong["first_wrong"];
    assert_eq!(
        (&wrong["wrong_blocks"], &first["offset"], &first["zeros"]),
        (&8.into(), &8192.into(), &true.into())
    );
    assert_eq!(
        (&wrong["requests"], &wrong["errors"]),
        (&65.into(), &0.into()),
        "every request went well"
    );
    assert!(
        words.contains("8 blocks are wrong, the first at offset 8192"),
        "{words}"
    );
}

#[test]
fn input_is_padded_and_the_checksum_excludes_the_padding() {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, disk) = (folder.path().join("input"), folder.path().join("disk"));
    std::fs::write(&input, vec![b'a'; 10_000]).expect("a file");
    let make = format!("{}?size=64KiB&create=yes", text(&disk));
    let (said, _) = run(&["write", &make, "--input", text(&input)], 0);
    assert_eq!(
        (&said["requests"], &said["bytes"], &said["complete"]),
        (&3.into(), &10_240.into(), &true.into())
    );
    assert_eq!(said["sha256"], sha256sum(&input));
    let there = std::fs::read(&disk).expect("it is there");
    assert!(
        there[..10_000].iter().all(|byte| *byte == b'a')
            && there[10_000..].iter().all(|byte| *byte == 0)
    );
    let (_, words) = run(
        &[
            "write",
            text(&disk),
            "--input",
            text(folder.path()),
            "--overwrite",
        ],
        1,
    );
    assert!(words.contains("cannot read the input"), "{words}");
}

/// Data read before an error is in the file, and reported.
#[test]
fn a_failed_read_keeps_the_data_before_the_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    let url = "memory:1MiB?fault=medium-error,op=read,lba=64+8";
    let (said, words) = run(&["read", url, "--depth", "4", "--output", text(&copy)], 1);
    assert!(words.contains("at 4096: medium error"), "{words}");
    assert_eq!(std::fs::metadata(&copy).expect("a file").len(), 4096);
    assert_eq!(
        (&said["complete"], &said["sha256"], &said["errors"]),
        (&false.into(), &Value::Null, &1.into())
    );
    // Without an output file, in which an error would leave a hole, reading continues after an error.
    let (said, _) = run(&["read", url, "--depth", "4"], 1);
    assert_eq!(
        (&said["requests"], &said["complete"]),
        (&256.into(), &true.into())
    );
    assert_eq!(
        (&said["sha256"], &said["errors"], &said["first_error"]),
        (
            &Value::Null,
            &2.into(),
            &"at 4096: medium error at block 8".into()
        )
    );
    // If all requests fail, there is no rate.
    let (said, _) = run(&["read", "memory:1MiB?fault=errno:EIO", "--count", "5"], 1);
    assert_eq!(
        (&said["errors"], &said["iops"], &said["latency_us"]),
        (&5.into(), &0.0.into(), &Value::Null)
    );
}

#[test]
fn a_failing_output_file_is_reported() {
    let output = io(&["read", "memory:8MiB", "--output", "/dev/full"])
        .output()
        .expect("brunt starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && words.contains("cannot write the output"),
        "{words}"
    );
}

impl Running {
    /// Sends Ctrl-C and waits for the output.
    fn interrupted(mut self) -> (Value, String, Option<i32>) {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("it runs");
        let (mut said, mut words) = (String::new(), String::new());
        self.0
            .stdout
            .take()
            .expect("piped")
            .read_to_string(&mut said)
            .expect("text");
        self.0
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut words)
            .expect("text");
        let status = self.0.wait().expect("a child of ours").code();
        (
            serde_json::from_str(&said).expect("one object"),
            words,
            status,
        )
    }
}

fn start(arguments: &[&str], stdin: Stdio) -> Running {
    let mut command = io(arguments);
    Running(
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("brunt starts"),
    )
}

/// After an interrupt, the command ends with the results so far, even if its input never ends.
#[test]
fn an_interrupt_keeps_the_results_so_far() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    let read = start(
        &["read", "null:1TiB", "--output", text(&copy)],
        Stdio::null(),
    );
    let bytes_there = || std::fs::metadata(&copy).map_or(0, |file| file.len());
    support::eventually("something is read", 10, || bytes_there() > 0);
    let (said, words, status) = read.interrupted();
    assert_eq!(
        (status, &said["complete"], &said["sha256"]),
        (Some(1), &false.into(), &Value::Null),
        "{words}"
    );
    assert!(words.contains("interrupted"), "{words}");
    assert_eq!(said["bytes"], bytes_there(), "what was read is there");
    // Input that never arrives.
    let disk = folder.path().join("disk");
    let make = format!("{}?size=1MiB&create=yes", text(&disk));
    let mut write = start(&["write", &make, "--input", "-"], Stdio::piped());
    let mut input = write.0.stdin.take().expect("piped");
    input.write_all(&[b'x'; 8192]).expect("it reads");
    support::eventually("the input is written", 10, || {
        std::fs::read(&disk).is_ok_and(|bytes| bytes.starts_with(&[b'x'; 8192]))
    });
    let (said, words, status) = write.interrupted();
    assert_eq!(
        (status, &said["complete"], &said["requests"]),
        (Some(1), &false.into(), &2.into()),
        "{words}"
    );
    drop(input);
}

/// The program's own work on the data is reported, and not counted as latency of the device.
#[test]
fn the_cost_of_the_data_is_reported_separately() {
    let (sum, _) = run(&["read", "null:32MiB", "--bs", "64k"], 0);
    assert!(sum["data_us_per_request"].as_f64() > Some(0.0), "{sum}");
    let (none, _) = run(
        &["read", "null:32MiB", "--bs", "64k", "--checksum", "none"],
        0,
    );
    assert_eq!(
        (&none["limit"], &none["data_us_per_request"]),
        (&Value::Null, &0.0.into()),
        "{none}"
    );
    let mut command = brunt();
    let output = command
        .args(["io", "read", "null:32MiB", "--bs", "64k"])
        .output()
        .expect("brunt starts");
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(
        lines.contains("  data       ") && lines.contains(" µs per request, "),
        "{lines}"
    );
}

/// A target serves another target's LUN through a cache with a log: written data is still there after the cache is
/// killed and restarted.
#[test]
fn a_target_fronts_another_ones_lun_through_a_cache() {
    let folder = TempDir::new("io-near");
    let far = Target::start(&["--lun", "memory:16MiB"]);
    let log = folder.join("log");
    let near = || {
        Target::start(&[
            "--lun".to_string(),
            format!("{}?stics={},size=16MiB", far.url(0), log.display()),
        ])
    };
    let first = near();
    run(
        &[
            "write",
            &first.url(0),
            "--bs",
            "64k",
            "--length",
            "8MiB",
            "--seed",
            "7",
        ],
        0,
    );
    run(
        &[
            "verify",
            &first.url(0),
            "--bs",
            "64k",
            "--length",
            "8MiB",
            "--seed",
            "7",
        ],
        0,
    );
    first.kill();
    let again = near();
    run(
        &[
            "verify",
            &again.url(0),
            "--bs",
            "64k",
            "--length",
            "8MiB",
            "--seed",
            "7",
        ],
        0,
    );
}
