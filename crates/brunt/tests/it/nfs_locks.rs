//! NFSv4.1 locks in captures and replays, against nfs-ganesha and tshark.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use brunt_block::{Backend, open_url_with};
use brunt_load::nfs_replay::folder_of;
use brunt_trace::nfs::{NfsTrace, NfsTraceCall, NfsTraceLock};
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{Args, DirOp, ResultBody};
use serde_json::{Value, json};

use crate::nfs_load::Capture;
use crate::nfs_locker::{LOCK, Locker, TEST, UNLOCK};
use crate::nfs_replay::{attempt, folder_url, replay, traced, writable};
use crate::nfs_server::{NFS_PORT, Server, run};
use crate::support::{TempDir, experiment, need, run_within, succeed};

fn handle_of(backend: &dyn Backend, name: &[u8]) -> Vec<u8> {
    let folder = folder_of(backend).expect("a folder");
    let mut nfs = folder.converse(Duration::from_secs(30)).expect("a session");
    let dir = FileHandle(&folder.place().handle);
    let what = DirOp { dir, name };
    match nfs.nfs(&Args::Lookup { what }).expect("an answer").body {
        ResultBody::Lookup { object, .. } => object.0.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// A client with three owners, one of which still has a lock at the end.
fn capture_locks(server: &Server, file: &Path) {
    writable(&server.export().join("work"));
    fs::write(server.export().join("work/file"), [7; 5000]).expect("a file");
    let url = server.url41("work/", "uid=0&gid=0");
    let backend = open_url_with(&url, brunt_nfs::BACKENDS, false).expect("the export");
    let capture = Capture::start(file);
    let handle = handle_of(backend.as_ref(), b"file");
    let mut locker = Locker::new(backend.as_ref(), &handle);
    for (op, kind, owner) in [
        (LOCK, 2, 0),
        (LOCK, 2, 1),
        (TEST, 1, 1),
        (UNLOCK, 2, 0),
        (LOCK, 3, 0),
        (LOCK, 1, 1),
        (LOCK, 2, 2),
        (UNLOCK, 1, 0),
        (UNLOCK, 1, 0),
    ] {
        locker.ask(op, kind, owner);
    }
    drop(locker);
    capture.stop();
}

fn locks(trace: &Path) -> Vec<(NfsTraceCall, NfsTraceLock)> {
    let trace = NfsTrace::read(trace).expect("a trace");
    let of = |call: &NfsTraceCall| Some((*call, *trace.locks.first(call.record)?));
    trace.calls.iter().filter_map(of).collect()
}

/// Operation, type, offset, length and status of each lock call, as in the trace.
fn facts(locks: &[(NfsTraceCall, NfsTraceLock)]) -> Vec<[u64; 5]> {
    let of = |(call, lock): &(NfsTraceCall, NfsTraceLock)| {
        let NfsTraceLock {
            operation,
            kind,
            length_bytes,
            ..
        } = *lock;
        let status = call.status.expect("an answer");
        let numbers = [operation, kind, status].map(u64::from);
        let [operation, kind, status] = numbers;
        [operation, kind, call.offset_bytes, length_bytes, status]
    };
    locks.iter().map(of).collect()
}

/// The lock calls as tshark reads them, from calls and replies; also the owner in each call that has one.
fn as_tshark_reads(file: &Path) -> (Vec<[u64; 5]>, Vec<String>) {
    let nfs = format!("tcp.port=={NFS_PORT},rpc");
    let ask = |direction: u32, fields: &[&str]| -> Vec<Vec<String>> {
        let filter = format!("nfs.opcode in {{12..14}} && rpc.msgtyp == {direction}");
        let file = file.to_str().expect("UTF-8");
        let mut arguments = vec!["-r", file, "-d", &nfs, "-Y", &filter, "-T", "fields"];
        for field in fields {
            arguments.extend(["-e", field]);
        }
        let text = run("tshark", &arguments);
        let cells = |line: &str| line.split('\t').map(str::to_string).collect();
        text.lines().map(cells).collect()
    };
    let fields = ["rpc.xid", "nfs.opcode", "nfs.locktype4", "nfs.offset4"];
    let more = ["nfs.length4", "nfs.lock_owner4"];
    let statuses: BTreeMap<String, String> = ask(1, &["rpc.xid", "nfs.nfsstat4"])
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    // The last operation of a compound.
    let last = |list: &str| {
        let number = list.rsplit(',').next().unwrap_or_default();
        number.parse::<u64>().expect("a number")
    };
    let calls = ask(0, &[&fields[..], &more].concat());
    let facts = calls.iter().map(|row| {
        let [_, op, kind, offset, length, _] = &row[..] else {
            panic!("{row:?}")
        };
        let status = &statuses[&row[0]];
        [op, kind, offset, length, status].map(|text| last(text))
    });
    let owners = calls.iter().map(|row| row[5].clone());
    (facts.collect(), owners.collect())
}

/// The trace has the same locks that tshark reads. With NFSv4.1 they are replayed with the same outcome; with NFSv3,
/// or with several connections per client, they are left out.
#[test]
fn captured_locks_are_replayed() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let Some(server) = Server::within("nfs_locks::captured_locks_are_replayed") else {
        return;
    };
    let folder = TempDir::new("nfs-locks");
    let [file, load] = ["load.pcapng", "load"].map(|name| folder.join(name));
    capture_locks(&server, &file);
    traced(&file, &load);
    let wanted = locks(&load);
    let (shown, names) = as_tshark_reads(&file);
    assert_eq!(facts(&wanted), shown);
    let denied = wanted.iter().filter(|(call, _)| call.status == Some(10010));
    assert_eq!(denied.count(), 3, "{shown:?}");
    // Each name belongs to one owner, and each owner has one name.
    let owners = wanted.iter().map(|(_, lock)| lock.owner);
    let mut pairs: Vec<(&String, u32)> = names.iter().zip(owners).collect();
    pairs.retain(|(name, _)| !name.is_empty());
    pairs.sort();
    pairs.dedup();
    assert_eq!(pairs.len(), 3, "{pairs:?}");

    writable(&server.export().join("fresh"));
    let url = server.url41("fresh/", "uid=0&gid=0");
    let again = folder.join("replay.pcapng");
    let capture = Capture::start(&again);
    let result = replay(&load, &url, &[]);
    capture.stop();
    traced(&again, &folder.join("replay"));
    println!("{result}");
    let fidelity = &result["fidelity"];
    assert_eq!(fidelity["statuses_differ"], 0);
    assert_eq!(fidelity["answered"], fidelity["planned"]);
    let same = ["LOCK", "LOCKT", "LOCKU"].map(|name| fidelity["procedures"][name]["same"].as_u64());
    // The captured client released all locks of the owner that had a lock at the end.
    assert_eq!(same, [Some(5), Some(1), Some(4)]);
    assert_eq!(facts(&locks(&folder.join("replay"))), facts(&wanted));

    let without = |result: &Value, why: &str| {
        let left_out = &result["fidelity"]["left_out"];
        let why = format!("NFSv4 LOCK, LOCKT and LOCKU: {why}");
        assert_eq!(left_out[why.as_str()], 10, "{result}");
        assert_eq!(result["fidelity"]["procedures"]["LOCK"], json!(null));
        assert_eq!(
            result["fidelity"]["answered"],
            result["fidelity"]["planned"]
        );
    };
    let with_v3 = folder_url(&server, "fresh", 0);
    without(
        &attempt(&load, &with_v3, &[]).1,
        "they have no counterpart in NFSv3",
    );
    let url = format!("{url}&connections=2");
    without(
        &attempt(&load, &url, &[]).1,
        "the target's URL sets more than one connection",
    );
}

/// A load locks and unlocks files with NFSv4.1, and is rejected with NFSv3.
#[test]
fn a_load_locks_files() {
    let Some(server) = Server::within("nfs_locks::a_load_locks_files") else {
        return;
    };
    let folder = TempDir::new("nfs-locks");
    writable(&server.export().join("work"));
    let text = |url: &str| {
        format!(
            "name = \"x\"\nrepetitions = 1\nseed = 5\n[targets.export]\nurl = \"{url}\"\n[workloads.w]\n\
             nfs = {{ directories = 1, files = 8, names = 4, mix = {{ lock = 1, locku = 1, getattr = 1 }} }}\n\
             queue_depth = 4\nworkers = 2\nstop = {{ requests = 600 }}\n"
        )
    };
    let url = server.url41("work/", "uid=0&gid=0");
    let out = succeed(&mut experiment(&folder, &text(&url)), 60);
    let summary: Value = serde_json::from_str(&out).expect("JSON");
    let ops = &summary["points"][0]["runs"][0]["ops"];
    println!("{ops}");
    let ops = ops.as_array().expect("operations");
    for kind in ["lock", "unlock"] {
        let op = ops.iter().find(|op| op["op"] == kind);
        let op = op.unwrap_or_else(|| panic!("no {kind}"));
        assert!(op["completed"].as_u64() > Some(150), "{op}");
        let losses = op["losses"].as_object();
        assert!(losses.is_none_or(serde_json::Map::is_empty), "{op}");
    }
    fs::remove_dir_all(folder.join("results")).expect("results");
    let url = folder_url(&server, "work", 0);
    let output = run_within(&mut experiment(&folder, &text(&url)), 60);
    let said = String::from_utf8_lossy(&output.stderr);
    let words = "lock and locku need a target with version=4.1";
    assert!(!output.status.success() && said.contains(words), "{said}");
}
