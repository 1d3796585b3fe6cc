//! Error messages for users: exit status 2 for a mistake on the command line or in a file, 1 for a failed attempt,
//! and a message that locates the problem.

use std::process::{Command, Stdio};

fn brunt(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Scripts can distinguish a mistake from a failure, and users see what is wrong.
#[test]
fn mistakes_exit_with_2_and_failures_with_1() {
    let check = |arguments: &[&str], status: i32, says: &str| {
        let output = brunt(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?} says:\n{text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    };
    check(
        &["io", "read", "/nonexistent/disk"],
        2,
        "help: give the path of an existing file",
    );
    // No file is created if a device was intended.
    check(
        &["io", "read", "/dev/brunt-no-disk"],
        2,
        "help: no such device",
    );
    check(
        &["io", "write", "/dev/brunt-no-disk?size=1MiB&create=yes"],
        2,
        "create files elsewhere",
    );
    assert!(!std::path::Path::new("/dev/brunt-no-disk").exists());
    check(
        &["io", "read", "null:1M", "--bs", "4kb"],
        2,
        "reads as kbits",
    );
    check(&["io", "read", "/"], 2, "neither a file nor a block device");
    check(&["io", "read", ""], 2, "names no device");
    check(
        &["io", "read", "null:1M", "--pattern", "ones"],
        2,
        "--pattern",
    );
    check(
        &["io", "verify", "null:1M", "--checksum", "none"],
        2,
        "--checksum",
    );
    check(&["io", "read", "null:1M", "--offset", "1M"], 2, "--offset");
    check(&["io", "read", "memory:1M?fast=yes"], 2, "no option 'fast'");
    check(
        &["io", "capacity", "iscsi://127.0.0.1:1/"],
        2,
        "brunt io targets",
    );
    check(
        &[
            "io",
            "capacity",
            "iscsi://127.0.0.1:1/iqn.2026-11.io.brunt:t0/x",
        ],
        2,
        "LUN",
    );
    check(
        &[
            "io",
            "capacity",
            "iscsi://127.0.0.1:1/iqn.2026-11.io.brunt:t0/0?sessions=0",
        ],
        2,
        "sessions=0",
    );
    // Nothing listens on port 1, so the target doesn't answer, which isn't a mistake on the command line.
    check(
        &[
            "io",
            "capacity",
            "iscsi://127.0.0.1:1/iqn.2026-11.io.brunt:t0/0?tries=1",
        ],
        1,
        "127.0.0.1:1",
    );
    check(&["capture"], 2, "--interface <INTERFACE>");
    check(&["capture"], 2, "--read <FILE>");
    check(
        &["lake", "push", "/nonexistent", "lake/monday"],
        2,
        "write s3://BUCKET/PREFIX",
    );
    if cfg!(not(feature = "s3")) {
        let packets = [
            "capture",
            "-r",
            "/nonexistent/x.pcap",
            "--out",
            "/nonexistent/x",
            "--to",
            "s3://lake/x",
        ];
        check(&packets, 2, "--features s3");
        check(
            &["lake", "push", "/nonexistent", "s3://lake/x"],
            2,
            "--features s3",
        );
        check(
            &["lake", "pull", "s3://lake/x", "/nonexistent/x"],
            2,
            "--features s3",
        );
    }
    check(&["compare", "/nonexistent", "/nonexistent"], 2, "help: ");
    // A target that starts despite the mistake would serve forever, so the portal is an address that no host has.
    let target = |lun| ["target", "--portal", "192.0.2.1:1", "--lun", lun];
    check(
        &target("/nonexistent/disk"),
        2,
        "/nonexistent/disk?size=1GiB&create=yes",
    );
    check(&target("memory:1MiB,fast"), 2, "unknown option 'fast'");
    check(&target("memory:1MiB"), 1, "cannot listen on 192.0.2.1:1");
    check(
        &target("null:1000"),
        1,
        "LUN 0: the last 488 bytes are less than a block and are not used",
    );
}

/// With `--json`, a failure is also reported as one object on standard output, regardless of which part detects it.
#[test]
fn a_failure_with_json_is_one_object() {
    for (arguments, says) in [
        (&["io", "read", "null:1M", "--zork", "--json"][..], "--zork"),
        (
            &["--json", "io", "read", "/nonexistent/disk"][..],
            "/nonexistent/disk",
        ),
    ] {
        let output = brunt(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(object["error"].as_str().unwrap().contains(says), "{object}");
    }
}

/// A mistake in a fault is marked at its key, and reported only once.
#[test]
fn mistakes_in_faults_are_marked_at_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    // The mistake must be reported at `key`, in a fault whose text begins on line 7.
    let check = |fault: &str, key: &str, says: &str| {
        let head = "name = \"x\"\n[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.load]\nstop = { time = \"1s\" }\n";
        std::fs::write(&file, format!("{head}[[fault]]\n{fault}\n")).unwrap();
        let output = brunt(&["run", file.to_str().unwrap(), "--check"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{fault}: {text}");
        let line = 7 + fault
            .lines()
            .position(|line| line.starts_with(key))
            .unwrap();
        assert!(
            text.contains(&format!("x.toml:{line}: ")),
            "{fault}: {text}"
        );
        assert_eq!(text.matches(says).count(), 1, "{fault}: {text}");
    };
    let disk = "target = \"disk\"\n";
    check(
        &format!("{disk}storage = \"busyy\"\nat = \"1ms\""),
        "storage",
        "fault=busyy",
    );
    check(
        &format!("{disk}storage = \"busy\"\nat = \"5x\""),
        "at",
        "'5x'",
    );
    check(
        &format!("{disk}storage = \"busy\"\nat = \"5s\""),
        "at",
        "fault 1: ",
    );
    check(
        &format!("{disk}storage = \"busy\"\nfor = \"1ms\""),
        "for",
        "fault 1: ",
    );
    check(
        "target = \"dusk\"\nstorage = \"busy\"",
        "target",
        "fault 1: ",
    );
    check("at = \"1ms\"\ncpu = 2.0", "cpu", "fault 1: ");
    check(
        &format!("{disk}freeze = true\nat = \"1ms\""),
        "freeze",
        "fault 1: ",
    );
    check(
        &format!("{disk}member = 0\nat = \"1ms\""),
        "member",
        "fault 1: ",
    );
    check("at = \"1ms\"\nreset = \"x\"", "reset", "fault 1: ");
}

/// Input that doesn't fit is reported as truncated, unless truncation was requested.
#[test]
fn input_longer_than_the_device_is_reported_as_cut() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    let check = |bytes: usize, more: &[&str], status: i32| {
        std::fs::write(&input, vec![7; bytes]).unwrap();
        let path = input.to_str().expect("UTF-8");
        let output = brunt(&[&["io", "write", "memory:64KiB", "--input", path][..], more].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.status.code(),
            Some(status),
            "{bytes} {more:?}: {text}"
        );
        assert_eq!(
            text.contains("the rest is not written"),
            status == 1,
            "{text}"
        );
    };
    check(64 << 10, &[], 0);
    check((64 << 10) + 1, &[], 1);
    check((64 << 10) + 1, &["--length", "64k"], 0);
    check(100 << 10, &["--offset", "32k", "--bs", "12k"], 1);
    check(5000, &[], 0);
}

/// The advice about a missing device file isn't given for a missing certificate.
#[test]
fn a_missing_certificate_is_reported_with_its_folder() {
    let output = brunt(&[
        "io",
        "info",
        "nbds://127.0.0.1:1/x?tls-certificates=/nowhere",
    ]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("/nowhere/ca-cert.pem") && text.contains("name a folder with ca-cert.pem"),
        "{text}"
    );
    assert!(!text.contains("create=yes"), "{text}");
}

/// Exceeding the file size limit (`ulimit -f`) is an ordinary error, when writing and when creating a file.
#[test]
fn exceeding_the_file_size_limit_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).unwrap();
    for url in ["disk.img", "new.img?size=1MiB&create=yes"] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -f 2; exec \"$0\" io write \"$1\" --bs 64k"])
            .args([env!("CARGO_BIN_EXE_brunt"), url])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{url}: {text}");
        assert!(
            text.contains("File too large") || text.contains("EFBIG"),
            "{url}: {text}"
        );
    }
}
