//! The kernel's server under Brunt's client, over NFSv3 and NFSv4.1.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use brunt_block::{Op, open_url_with};
use brunt_load::nfs_replay::folder_of;
use brunt_nfs::BACKENDS;
use brunt_nfs::device_errors::{NfsRefusal, from_error};
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, DirOp};
use serde_json::Value;

use super::{GUEST_MOUNT_PORT, GUEST_NFS_PORT, KernelGuest};
use crate::nfs_load::completed;
use crate::nfs_replay::Walker;
use crate::suite::Bench;
use crate::support::{TempDir, brunt, experiment, run_within, succeed};

/// How to connect with each version; the version's name is also the name of a folder.
pub const VERSIONS: [&str; 2] = ["3", "4.1"];

/// The URL of a path on the guest.
pub fn url(version: &str, path: &str, options: &str) -> String {
    let connect = match version {
        "3" => format!("mountport={GUEST_MOUNT_PORT}"),
        _ => format!("version={version}"),
    };
    format!("nfs://127.0.0.1:{GUEST_NFS_PORT}/srv/{path}?{connect}{options}")
}

/// Calls every procedure and checks the status that a Linux server returns.
pub fn walk() {
    for version in VERSIONS {
        let url = url(version, &format!("open/{version}/"), "");
        let backend = open_url_with(&url, BACKENDS, false).expect("the export");
        let folder = folder_of(backend.as_ref()).expect("a folder");
        let nfs = folder
            .converse(Duration::from_secs(60))
            .expect("it answers");
        Walker(nfs).walk(&folder.place().handle);
    }
}

/// A directory whose entries are in hash order yields each name once, in many parts.
pub fn names_are_listed_once() {
    for version in VERSIONS {
        let backend = open_url_with(&url(version, "open/", ""), BACKENDS, false).expect("it");
        let folder = folder_of(backend.as_ref()).expect("a folder");
        let nfs = folder
            .converse(Duration::from_secs(60))
            .expect("it answers");
        let mut walker = Walker(nfs);
        let what = DirOp {
            dir: FileHandle(&folder.place().handle),
            name: b"names",
        };
        let names = walker.call(Args::Lookup { what }, 0);
        let names = walker.list(FileHandle(&names));
        let made = names.iter().filter(|name| name.starts_with(b"n"));
        assert_eq!(made.count(), 300, "{version}");
    }
}

/// All kinds of calls succeed, and the same seed makes the same calls with both versions.
pub fn mixes_of_calls_have_the_same_counts(folder: &TempDir) {
    let counts = VERSIONS.map(|version| {
        let url = url(version, &format!("open/{version}/"), "");
        let text = format!(
            "name = \"x\"\nrepetitions = 1\nseed = 5\n[targets.export]\nurl = \"{url}\"\n[workloads.w]\n\
             nfs = {{ directories = 2, files = 20, file_size = \"16k\", names = 10 }}\n\
             queue_depth = 8\nworkers = 2\nstop = {{ requests = 2000 }}\n"
        );
        let summary = measured(folder, &text);
        let run = &summary["points"][0]["runs"][0];
        let losses = run["losses"].as_object();
        assert!(losses.is_none_or(serde_json::Map::is_empty), "{run}");
        completed(&summary).remove(0)
    });
    let all = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    assert_eq!((all(&counts[0]), counts[0].len()), (2000, 14), "{counts:?}");
    assert_eq!(counts[0], counts[1]);
}

/// Runs an experiment and removes its results.
fn measured(folder: &TempDir, text: &str) -> Value {
    let out = succeed(&mut experiment(folder, text), 60);
    std::fs::remove_dir_all(folder.join("results")).expect("results");
    serde_json::from_str(&out).expect("JSON")
}

/// Reads return what was written, even though the server transfers at most 64 KiB per call and larger requests are
/// split. The guest's file contains the same data.
pub fn data_is_that_of_the_servers_file(folder: &TempDir, guest: &mut KernelGuest) {
    for version in VERSIONS {
        let path = format!("open/{version}/disk");
        let made = url(version, &path, "&create=yes&size=4MiB&connections=3");
        let text = format!(
            "name = \"x\"\nrepetitions = 1\n[targets.disk]\nurl = \"{made}\"\n[workloads.w]\nread = 0.5\n\
             blocks = [{{ size = \"4k\" }}, {{ size = \"256k\" }}]\nqueue_depth = 8\nverify = {{}}\n\
             stop = {{ requests = 1000 }}\n"
        );
        measured(folder, &text);
        let mut read = brunt();
        read.args(["--json", "io", "read", &url(version, &path, "")]);
        let read: Value = serde_json::from_str(&succeed(&mut read, 60)).expect("JSON");
        let [sum] = guest.run(&format!("echo sum $(sha256sum </srv/{path})"), ["sum "]);
        let sum = sum.split(' ').next().expect("a word");
        assert_eq!(read["sha256"], sum, "{read}");
    }
}

/// The error message of a command that fails.
fn refusal(command: &mut Command) -> String {
    let output = run_within(command, 60);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    said
}

/// Exports accept only ports below 1024 unless configured otherwise: the message names the URL option that helps, and
/// it does.
pub fn ports_below_1024_are_advised() {
    for version in VERSIONS {
        let io = |path: &str, options| {
            let mut command = brunt();
            command.args(["io", "write", &url(version, path, options)]);
            command
        };
        let path = format!("reserved/{version}");
        let text = refusal(&mut io(&path, "&create=yes&size=64k"));
        assert!(text.contains("add reserved_port=yes"), "{version}: {text}");
        succeed(&mut io(&path, "&create=yes&size=64k&reserved_port=yes"), 60);
    }
}

/// The server is stopped and started: the client reconnects with a new session, and reports that unstable writes may
/// have been lost.
pub fn a_restart_is_survived(guest: &mut KernelGuest) {
    for version in VERSIONS {
        let path = format!("open/{version}/restart");
        let url = url(version, &path, "&create=yes&size=1MiB&timeout=5s");
        let backend = open_url_with(&url, BACKENDS, false).expect("a file");
        let mut bench = Bench::new(&*backend, 4);
        let one = |bench: &mut Bench, op, offset| bench.one(op, offset, 65536, 1).result;
        assert_eq!(one(&mut bench, Op::Write, 0), Ok(()));
        guest.run("serve", []);
        assert_eq!(one(&mut bench, Op::Write, 65536), Ok(()));
        let lost = bench.one(Op::Flush, 0, 0, 0).result.expect_err("lost");
        assert_eq!(from_error(&lost), Some(NfsRefusal::LostWrites), "{version}");
        assert_eq!(bench.one(Op::Flush, 0, 0, 0).result, Ok(()));
        assert_eq!(one(&mut bench, Op::Read, 65536), Ok(()));
        assert!(bench.device.health().reconnects >= 1);
    }
}
