//! iSCSI commands in captures made by dumpcap (`tools/iscsi-captures.sh`), as stored by `brunt capture`, compared
//! with tshark's: the targets are tgt, the kernel's (LIO) and Brunt's; the initiators are libiscsi's, QEMU's, the
//! kernel's and Brunt's; with several connections per session. Small captures are in testdata/; larger ones are made
//! on demand.

mod commands;
mod cut;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::pdml::{CaptureFile, set_back_ns};
use crate::support::{TempDir, brunt, need, root, skip, succeed};
use brunt_capture::trace::tables::{OPERATIONS, SCSI_COMMANDS};
use brunt_lake::read_table;
use commands::{Commands, Known, TASK_MANAGEMENT, int, ours, tsharks};
use serde_json::{Value, json};

/// tshark 4.0 doesn't show all blocks of ORWRITE, WRITE AND VERIFY (16) and WRITE SAME. It shows all blocks of other
/// commands.
fn leave_out_unshown(ours: &mut Known, theirs: &Known) {
    if matches!(theirs.get("opcode"), Some(0x8b | 0x8e | 0x2e | 0x41 | 0x93)) {
        for name in ["lba", "blocks"] {
            if !theirs.contains_key(name) {
                ours.remove(name);
            }
        }
    }
}

/// Compares a capture with tshark; returns the number of commands by kind.
fn check(name: &str, path: &Path, folder: &TempDir) -> BTreeMap<u64, usize> {
    let trace = folder.join(&format!("trace-{name}"));
    succeed(
        brunt()
            .args(["capture", "-r"])
            .arg(path)
            .arg("--out")
            .arg(&trace),
        300,
    );
    let (theirs, ours) = (tsharks(path, CaptureFile::Whole), ours(&trace));
    let mut kinds: BTreeMap<u64, usize> = BTreeMap::new();
    for (key, theirs) in &theirs {
        let ours = ours.get(key).unwrap_or_else(|| {
            panic!("{name}: tshark has {key:?}, and here it is not: {theirs:?}")
        });
        assert_eq!(
            ours.len(),
            theirs.len(),
            "{name} {key:?}: commands with this tag; ours, then tshark's"
        );
        for (ours, theirs) in ours.iter().zip(theirs) {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            let of_data = (
                ours.remove("last_data"),
                theirs.remove("last_data_since"),
                theirs.remove("last_data"),
            );
            let (last, since, until) = of_data;
            assert!(
                last >= since && last <= until,
                "{name} {key:?}: the last byte of data, at {of_data:?}"
            );
            leave_out_unshown(&mut ours, &theirs);
            if theirs.remove("reply_begins_before").is_some() {
                let [first, until] =
                    [&mut ours, &mut theirs].map(|known| known.remove("reply_first"));
                assert!(first.is_some() && first < until, "{name} {key:?}: {ours:?}");
            }
            assert_eq!(ours, theirs, "{name} {key:?}: ours, then tshark's");
            *kinds
                .entry(
                    theirs
                        .get("opcode")
                        .copied()
                        .unwrap_or(TASK_MANAGEMENT << 8),
                )
                .or_default() += 1;
        }
    }
    let made_up: Vec<_> = ours
        .keys()
        .filter(|key| !theirs.contains_key(key))
        .collect();
    assert!(made_up.is_empty(), "{name}: not in tshark's: {made_up:?}");
    if name.ends_with("-connections") {
        check_connections(&trace);
    }
    match name.rsplit_once('-') {
        // Function codes of LOGICAL UNIT RESET and TARGET WARM RESET.
        Some((_, "tasks")) => check_ended(name, path, &theirs, &[5, 6]),
        Some((_, "aborts")) => check_ended(name, path, &theirs, &[1]),
        _ => {}
    }
    println!(
        "{name}: {} commands are tshark's, by operation code {kinds:x?}",
        kinds.values().sum::<usize>()
    );
    kinds
}

/// Task management functions of each of these kinds ended a command. The commands without a response are exactly
/// those that these functions ended, and are counted as such.
fn check_ended(name: &str, path: &Path, theirs: &Commands, functions: &[u64]) {
    let all = || theirs.values().flatten();
    let mut ended = BTreeSet::new();
    for ((port, _), same) in theirs {
        let tags = same.iter().filter_map(|known| known.get("aborted_by"));
        let by = tags.flat_map(|tag| &theirs[&(*port, *tag)]);
        ended.extend(by.filter_map(|known| known.get("function").copied()));
    }
    assert!(
        functions.iter().all(|function| ended.contains(function)),
        "{name}: {ended:?}"
    );
    let report = succeed(brunt().args(["analyze", "--json"]).arg(path), 120);
    let report: Value = serde_json::from_str(&report).unwrap();
    let unanswered = all()
        .filter(|known| !known.contains_key("reply_first"))
        .count();
    assert!(unanswered > 0, "{name}");
    assert_eq!(
        all()
            .filter(|known| known.contains_key("aborted_by"))
            .count(),
        unanswered,
        "{name}"
    );
    assert_eq!(report["ledger"]["calls_aborted"], unanswered, "{name}");
    assert_eq!(
        report["ledger"]["calls_answered"],
        all().count() - unanswered,
        "{name}"
    );
    let text = succeed(brunt().arg("analyze").arg(path), 120);
    assert!(
        text.contains(&format!("aborted {unanswered} calls")),
        "{text}"
    );
}

/// Each session has several connections, and each connection has commands with data.
fn check_connections(trace: &Path) {
    let mut moved: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    read_table(trace, &SCSI_COMMANDS, |batch| {
        for row in 0..batch.rows() {
            let of = |column| int(batch, column, row);
            let bytes = of("data_in_bytes").unwrap() + of("data_out_bytes").unwrap();
            moved.insert(
                of("record_id").unwrap(),
                (of("session").expect("its login was seen"), bytes),
            );
        }
    })
    .unwrap();
    let mut sessions: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    read_table(trace, &OPERATIONS, |batch| {
        for row in 0..batch.rows() {
            let of = |column| int(batch, column, row).unwrap();
            let (session, bytes) = moved[&of("record_id")];
            *sessions
                .entry(session)
                .or_default()
                .entry(of("flow"))
                .or_default() += bytes;
        }
    })
    .unwrap();
    let connections: BTreeSet<usize> = sessions.values().map(BTreeMap::len).collect();
    assert_eq!(connections, BTreeSet::from([2, 3]), "{sessions:?}");
    assert!(
        sessions
            .values()
            .flat_map(BTreeMap::values)
            .all(|bytes| *bytes >= 16 << 10),
        "{sessions:?}"
    );
}

/// Decompressed copies of the captures in testdata/iscsi, by name.
fn stored(folder: &TempDir) -> Vec<(String, PathBuf)> {
    let files = std::fs::read_dir(root().join("testdata/iscsi")).expect("captures");
    let mut stored: Vec<(String, PathBuf)> = files
        .map(|file| {
            let packed = file.expect("a file").path();
            let name = packed
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .replace(".pcapng.zst", "");
            let plain = folder.join(&format!("{name}.pcapng"));
            let (from, to) = (
                std::fs::File::open(&packed).unwrap(),
                std::fs::File::create(&plain).unwrap(),
            );
            zstd::stream::copy_decode(from, to).unwrap();
            (name, plain)
        })
        .collect();
    stored.sort();
    stored
}

/// For every command in the stored captures, all facts known to both tshark and the trace are equal.
#[test]
fn tshark_agrees_on_the_stored_captures() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let folder = TempDir::new("iscsi-tshark");
    let mut kinds: BTreeMap<u64, usize> = BTreeMap::new();
    let stored = stored(&folder);
    for (name, path) in &stored {
        check(name, path, &folder)
            .into_iter()
            .for_each(|(kind, count)| *kinds.entry(kind).or_default() += count);
    }
    // Reads, writes, UNMAP, COMPARE AND WRITE, and task management are among them.
    assert_eq!(stored.len(), 15);
    for kind in [0x28, 0x2a, 0x42, 0x89, TASK_MANAGEMENT << 8] {
        assert!(
            kinds.get(&kind).is_some_and(|count| *count >= 1),
            "{kind:#x}: {kinds:x?}"
        );
    }
}

/// A captured UNMAP of 64 KiB, with its list sent with the command or requested by the target, is an UNMAP of 64 KiB
/// in the block trace, and is replayed as such.
#[test]
fn unmaps_are_replayed() {
    let folder = TempDir::new("iscsi-unmap");
    let mut checked = 0;
    for (name, path) in stored(&folder) {
        if !matches!(
            name.as_str(),
            "brunt-qemu" | "tgt-qemu" | "brunt-kernel" | "tgt-kernel"
        ) {
            continue;
        }
        let trace = folder.join(&format!("trace-{name}"));
        succeed(
            brunt()
                .args(["capture", "-r"])
                .arg(&path)
                .arg("--out")
                .arg(&trace),
            60,
        );
        let json = |command: &mut Command| -> Value {
            serde_json::from_str(&succeed(command, 60)).unwrap()
        };
        let info = json(brunt().args(["trace", "info", "--json"]).arg(&trace));
        assert_eq!(
            info["ops"]["unmap"],
            json!({ "bytes": 65_536, "requests": 1 }),
            "{name}"
        );
        assert_eq!(info["damaged"], 0);
        let replay = ["memory:16MiB", "--as-fast-as-possible", "--json"];
        let replayed = json(brunt().arg("replay").arg(&trace).args(replay));
        assert_eq!(replayed["fidelity"]["verdict"], "true", "{name}");
        let ops = replayed["run"]["ops"].as_array().unwrap();
        let unmap = ops
            .iter()
            .find(|op| op["op"] == "unmap")
            .expect("it was sent");
        assert_eq!(
            (&unmap["completed"], &unmap["bytes"]),
            (&json!(1), &json!(65_536)),
            "{name}"
        );
        // The rows in an unreadable part of the commands table are missing, and counted.
        let part = std::fs::read_dir(trace.join("scsi_commands"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        std::fs::write(part, b"PAR1 but no more").unwrap();
        let info = json(brunt().args(["trace", "info", "--json"]).arg(&trace));
        assert_eq!(
            (info["damaged"].as_u64(), info["ops"].get("unmap")),
            (Some(2), None),
            "{name}"
        );
        checked += 1;
    }
    assert_eq!(checked, 4);
}

fn check_live(session: &str, at_least: usize) {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let tool = root().join("tools/iscsi-captures.sh");
    let missing = succeed(Command::new(&tool).args(["--missing", session]), 60);
    if let Some(first) = missing.lines().next() {
        return skip(first);
    }
    let folder = TempDir::new("iscsi-tshark");
    let path = folder.join("live.pcapng");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_brunt"));
    // If the clock is set back during a capture, a command can end before it began: tshark shows these times, while
    // the trace has a duration of 0.
    let times_hold = (0..3).any(|_| {
        succeed(
            Command::new(&tool)
                .env("BRUNT", &program)
                .arg(session)
                .arg(&path),
            600,
        );
        let back_ns = set_back_ns(&path);
        if back_ns > 0 {
            println!("{session}: the clock was set back by {back_ns} ns");
        }
        back_ns == 0
    });
    assert!(
        times_hold,
        "{session}: the clock was set back during each of three captures"
    );
    let commands = check(session, &path, &folder).values().sum::<usize>();
    assert!(commands >= at_least, "{session}: {commands} commands");
}

#[test]
fn tshark_agrees_on_tgt_with_libiscsi() {
    check_live("tgt-libiscsi", 300);
}

#[test]
fn tshark_agrees_on_tgt_with_qemu() {
    check_live("tgt-qemu", 300);
}

#[test]
fn tshark_agrees_on_tgt_with_brunt() {
    check_live("tgt-brunt", 200);
}

#[test]
fn tshark_agrees_on_tgt_with_the_kernel() {
    check_live("tgt-kernel", 100);
}

#[test]
fn tshark_agrees_on_lio_with_libiscsi() {
    check_live("lio-libiscsi", 300);
}

#[test]
fn tshark_agrees_on_lio_with_qemu() {
    check_live("lio-qemu", 300);
}

#[test]
fn tshark_agrees_on_lio_with_brunt() {
    check_live("lio-brunt", 200);
}

#[test]
fn tshark_agrees_on_lio_with_the_kernel() {
    check_live("lio-kernel", 100);
}

#[test]
fn tshark_agrees_on_brunt_with_libiscsi() {
    check_live("brunt-libiscsi", 300);
}

#[test]
fn tshark_agrees_on_brunt_with_qemu() {
    check_live("brunt-qemu", 300);
}

#[test]
fn tshark_agrees_on_brunt_with_brunt() {
    check_live("brunt-brunt", 200);
}

#[test]
fn tshark_agrees_on_brunt_with_the_kernel() {
    check_live("brunt-kernel", 100);
}

#[test]
fn tshark_agrees_on_several_connections() {
    check_live("brunt-connections", 200);
}

#[test]
fn tshark_agrees_on_resets() {
    check_live("brunt-tasks", 40);
}

/// libiscsi's test suite aborts a WRITE, and the kernel's initiator aborts a READ and a WRITE, while Brunt's target
/// holds them.
#[test]
fn tshark_agrees_on_aborts() {
    check_live("brunt-aborts", 40);
}
