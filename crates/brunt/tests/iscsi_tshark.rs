//! iSCSI commands of captures that dumpcap made (`tools/iscsi-captures.sh`), as `brunt capture` writes them, against
//! tshark's: tgt and our target, with libiscsi's, QEMU's, the kernel's and our initiator, and several connections in
//! a session. Small captures of each lie in testdata/; larger ones are made anew.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use brunt_capture::trace::tables::{FLOWS, OPERATIONS, SCSI_COMMANDS, SCSI_EXTENTS};
use brunt_lake::{Batch, read_table};
use serde_json::{Value, json};
use support::pdml::{SeenPdu, pdus};
use support::{TempDir, brunt, need, root, skip, succeed};

/// Opcodes of PDUs (RFC 7143, 11.2.1.2), as tshark shows them.
const COMMAND: u64 = 0x01;
const TASK_MANAGEMENT: u64 = 0x02;
const DATA_OUT: u64 = 0x05;
const RESPONSE: u64 = 0x21;
const TASK_MANAGEMENT_RESPONSE: u64 = 0x22;
const DATA_IN: u64 = 0x25;
const R2T: u64 = 0x31;

/// What is known of a command, each by its name; what is missing is not known.
type Known = BTreeMap<&'static str, u64>;
/// Commands by the initiator's port and tag, those with the same in their order.
type Commands = BTreeMap<(u64, u64), Vec<Known>>;

fn set(known: &mut Known, name: &'static str, value: Option<u64>) {
    if let Some(value) = value {
        known.insert(name, value);
    }
}

/// The commands that tshark sees in a capture.
fn tsharks(path: &Path) -> Commands {
    let mut commands = Commands::new();
    for pdu in pdus(path) {
        let Some(opcode) = pdu.number("iscsi.opcode") else { continue };
        let [source, destination] = pdu.ports;
        let client = if opcode & 0x20 == 0 { source } else { destination };
        let Some(tag) = pdu.number("iscsi.initiatortasktag") else { continue };
        let same = commands.entry((client, tag));
        match opcode {
            COMMAND | TASK_MANAGEMENT => same.or_default().push(of_request(&pdu)),
            DATA_OUT | DATA_IN | RESPONSE | TASK_MANAGEMENT_RESPONSE | R2T => {
                // Their tags: those of NOPs and text are others.
                let same = same.or_default();
                let known = same.last_mut().unwrap_or_else(|| panic!("an answer to nothing: {pdu:?}"));
                add(known, opcode, &pdu);
            }
            _ => {}
        }
    }
    commands.retain(|_, same| !same.is_empty());
    commands
}

fn of_request(pdu: &SeenPdu) -> Known {
    let mut known = Known::from([("request_first", pdu.first_ns), ("request_last", pdu.last_ns)]);
    let k = &mut known;
    set(k, "lun", pdu.number("scsi.lun"));
    set(k, "opcode", pdu.like("scsi", ".opcode"));
    set(k, "lba", pdu.like("scsi_sbc.rdwr", ".lba").or_else(|| pdu.like("scsi_sbc.verify", ".lba")));
    set(k, "blocks", pdu.like("scsi_sbc.", ".xferlen").or_else(|| pdu.like("scsi_sbc.", ".vlen")));
    set(k, "function", pdu.number("iscsi.taskmanfun.function"));
    set(k, "referenced_tag", pdu.number("iscsi.taskmanfun.referencedtasktag"));
    set(k, "expected_bytes", pdu.number("iscsi.scsicommand.expecteddatatransferlength"));
    known.extend([("data_out_bytes", 0), ("data_in_bytes", 0), ("r2ts", 0)]);
    let immediate = pdu.number("iscsi.datasegmentlength").unwrap_or(0);
    if immediate > 0 {
        add_data(&mut known, "data_out_bytes", immediate, pdu);
    }
    known
}

/// What UNMAP gives back, where its list is in this PDU: how many extents, and a number that stands for them all.
fn add_extents(known: &mut Known, extents: impl Iterator<Item = (u64, u64)>) {
    let numbers = extents.fold((0, 0u64), |(count, all), (lba, blocks)| {
        (count + 1, all.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(lba << 32 | blocks))
    });
    known.extend([("extents", numbers.0), ("extents_digest", numbers.1)]);
}

fn extents_of(pdu: &SeenPdu) -> impl Iterator<Item = (u64, u64)> + '_ {
    pdu.numbers("scsi_sbc.unmap.lba").zip(pdu.numbers("scsi_sbc.unmap.num_blocks"))
}

fn add_data(known: &mut Known, name: &'static str, bytes: u64, pdu: &SeenPdu) {
    *known.entry(name).or_default() += bytes;
    known.insert("last_data", pdu.last_ns);
    // A list that goes on in another PDU tshark shows up to the end of the first, and the trace does not have it.
    if pdu.number("scsi_sbc.unmap.block_descriptor_data_length").is_some_and(|len| 8 + len <= bytes) {
        add_extents(known, extents_of(pdu));
    }
    // Digest and padding come after the last byte of data, perhaps in a packet of their own.
    let has_tail = !bytes.is_multiple_of(4) || pdu.text("iscsi.datadigest32").is_some();
    known.insert("last_data_since", if has_tail { pdu.first_ns } else { pdu.last_ns });
}

/// What a PDU says of a command that was there before.
fn add(known: &mut Known, opcode: u64, pdu: &SeenPdu) {
    let bytes = pdu.number("iscsi.datasegmentlength").unwrap_or(0);
    match opcode {
        R2T => *known.entry("r2ts").or_default() += 1,
        DATA_OUT => add_data(known, "data_out_bytes", bytes, pdu),
        DATA_IN if bytes > 0 => add_data(known, "data_in_bytes", bytes, pdu),
        _ => {}
    }
    let with_status = opcode == DATA_IN && pdu.number("iscsi.scsidata.S") == Some(1);
    if !with_status && !matches!(opcode, RESPONSE | TASK_MANAGEMENT_RESPONSE) {
        return;
    }
    known.extend([("reply_first", pdu.first_ns), ("reply_last", pdu.last_ns)]);
    let response = match opcode {
        RESPONSE => pdu.number("iscsi.scsiresponse.response"),
        TASK_MANAGEMENT_RESPONSE => pdu.number("iscsi.taskmanfun.response"),
        _ => Some(0),
    };
    set(known, "response", response);
    if opcode != TASK_MANAGEMENT_RESPONSE && response == Some(0) {
        set(known, "status", pdu.number("iscsi.scsiresponse.status"));
    }
    for (name, field) in [("sense_key", "scsi.sns.key"), ("asc", "scsi.sns.asc"), ("ascq", "scsi.sns.ascq")] {
        set(known, name, pdu.number(field));
    }
}

/// A column's value in a row; `None` where it is null.
fn int(batch: &Batch, column: &'static str, row: usize) -> Option<u64> {
    (!batch.is_null(column, row)).then(|| batch.ints(column)[row] as u64)
}

/// The commands of a trace.
fn ours(trace: &Path) -> Commands {
    let mut ports = BTreeMap::new();
    let mut damaged = read_table(trace, &FLOWS, |batch| {
        for row in 0..batch.rows() {
            ports.insert(int(batch, "flow", row), int(batch, "source_port", row));
        }
    })
    .unwrap();
    let mut rows: BTreeMap<u64, (u64, u64, Known)> = BTreeMap::new();
    damaged.extend(
        read_table(trace, &OPERATIONS, |batch| {
            for row in 0..batch.rows() {
                let of = |column| int(batch, column, row);
                let first = of("request_first").unwrap();
                let mut known = Known::from([("request_first", first)]);
                set(&mut known, "request_last", of("request_span_ns").map(|span| first + span));
                let reply = of("latency_ns").map(|latency| first + latency);
                set(&mut known, "reply_first", reply);
                set(
                    &mut known,
                    "reply_last",
                    reply.zip(of("reply_span_ns")).map(|(reply, span)| reply + span),
                );
                set(&mut known, "status", of("status").filter(|status| *status < 0x100));
                let port = ports[&of("flow")].expect("TCP has ports");
                rows.insert(of("record_id").unwrap(), (port, of("tag").unwrap(), known));
            }
        })
        .unwrap(),
    );
    damaged.extend(
        read_table(trace, &SCSI_COMMANDS, |batch| {
            for (row, cdb) in batch.texts("cdb").enumerate() {
                let of = |column| int(batch, column, row);
                let (_, _, known) = rows.get_mut(&of("record_id").unwrap()).expect("its operation");
                for name in [
                    "lun",
                    "lba",
                    "blocks",
                    "extents",
                    "function",
                    "referenced_tag",
                    "expected_bytes",
                    "data_out_bytes",
                    "data_in_bytes",
                    "r2ts",
                    "response",
                    "sense_key",
                    "asc",
                    "ascq",
                ] {
                    set(known, name, of(name));
                }
                let is_command = !batch.is_null("cdb", row);
                set(known, "opcode", is_command.then(|| u64::from_str_radix(&cdb[..2], 16).unwrap()));
                if !is_command {
                    // "Function complete" is a status in the table of all protocols.
                    known.remove("status");
                }
                // tshark shows sense with CHECK CONDITION only; tgt also sends it, with what it was before, with GOOD.
                if known.get("status") == Some(&0) {
                    known.retain(|name, _| !matches!(*name, "sense_key" | "asc" | "ascq"));
                }
                set(known, "last_data", of("last_data_ns").map(|ns| known["request_first"] + ns));
            }
        })
        .unwrap(),
    );
    assert!(damaged.is_empty(), "{damaged:?}");
    let mut extents: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    damaged = read_table(trace, &SCSI_EXTENTS, |batch| {
        for row in 0..batch.rows() {
            let of = |column| int(batch, column, row).unwrap();
            extents.entry(of("record_id")).or_default().push((of("lba"), of("blocks")));
        }
    })
    .unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    for (id, (_, _, known)) in &mut rows {
        if let Some(count) = known.get("extents").copied() {
            add_extents(known, extents.remove(id).unwrap_or_default().into_iter());
            assert_eq!(known["extents"], count, "rows of extents");
        }
    }
    assert!(extents.is_empty(), "of no command: {extents:?}");
    let mut commands = Commands::new();
    for (port, tag, known) in rows.into_values() {
        commands.entry((port, tag)).or_default().push(known);
    }
    commands
}

/// Of ORWRITE, WRITE AND VERIFY (16) and WRITE SAME, tshark 4.0 does not show all blocks. It does of the others.
fn leave_out_unshown(ours: &mut Known, theirs: &Known) {
    if matches!(theirs.get("opcode"), Some(0x8b | 0x8e | 0x2e | 0x41 | 0x93)) {
        for name in ["lba", "blocks"] {
            if !theirs.contains_key(name) {
                ours.remove(name);
            }
        }
    }
}

/// Holds a capture against tshark; how many commands of which kinds there were.
fn check(name: &str, path: &Path, folder: &TempDir) -> BTreeMap<u64, usize> {
    let trace = folder.join(&format!("trace-{name}"));
    succeed(brunt().args(["capture", "-r"]).arg(path).arg("--out").arg(&trace), 300);
    let (theirs, ours) = (tsharks(path), ours(&trace));
    let mut kinds: BTreeMap<u64, usize> = BTreeMap::new();
    for (key, theirs) in &theirs {
        let ours = ours
            .get(key)
            .unwrap_or_else(|| panic!("{name}: tshark has {key:?}, and here it is not: {theirs:?}"));
        assert_eq!(ours.len(), theirs.len(), "{name} {key:?}: commands with this tag; ours, then tshark's");
        for (ours, theirs) in ours.iter().zip(theirs) {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            let of_data =
                (ours.remove("last_data"), theirs.remove("last_data_since"), theirs.remove("last_data"));
            let (last, since, until) = of_data;
            assert!(last >= since && last <= until, "{name} {key:?}: the last byte of data, at {of_data:?}");
            leave_out_unshown(&mut ours, &theirs);
            assert_eq!(ours, theirs, "{name} {key:?}: ours, then tshark's");
            *kinds.entry(theirs.get("opcode").copied().unwrap_or(TASK_MANAGEMENT << 8)).or_default() += 1;
        }
    }
    let made_up: Vec<_> = ours.keys().filter(|key| !theirs.contains_key(key)).collect();
    assert!(made_up.is_empty(), "{name}: not in tshark's: {made_up:?}");
    if name.ends_with("-connections") {
        check_connections(&trace);
    }
    if name.ends_with("-tasks") {
        check_ended(name, path, &theirs);
    }
    println!("{name}: {} commands are tshark's, by operation code {kinds:x?}", kinds.values().sum::<usize>());
    kinds
}

/// Resets of a unit and of a target are there. Commands without an answer are those that they ended, and are counted as
/// such.
fn check_ended(name: &str, path: &Path, theirs: &Commands) {
    let all = || theirs.values().flatten();
    let asked: BTreeSet<u64> = all().filter_map(|known| known.get("function").copied()).collect();
    assert_eq!(asked, BTreeSet::from([5, 6]), "{name}");
    let report = succeed(brunt().args(["analyze", "--json"]).arg(path), 120);
    let report: Value = serde_json::from_str(&report).unwrap();
    let unanswered = all().filter(|known| !known.contains_key("reply_first")).count();
    assert!(unanswered > 0, "{name}");
    assert_eq!(report["ledger"]["calls_aborted"], unanswered, "{name}");
    assert_eq!(report["ledger"]["calls_answered"], all().count() - unanswered, "{name}");
    let text = succeed(brunt().arg("analyze").arg(path), 120);
    assert!(text.contains(&format!("aborted {unanswered} calls")), "{text}");
}

/// Each session has several connections, and commands with data on each.
fn check_connections(trace: &Path) {
    let mut moved: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    read_table(trace, &SCSI_COMMANDS, |batch| {
        for row in 0..batch.rows() {
            let of = |column| int(batch, column, row);
            let bytes = of("data_in_bytes").unwrap() + of("data_out_bytes").unwrap();
            moved.insert(of("record_id").unwrap(), (of("session").expect("its login was seen"), bytes));
        }
    })
    .unwrap();
    let mut sessions: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    read_table(trace, &OPERATIONS, |batch| {
        for row in 0..batch.rows() {
            let of = |column| int(batch, column, row).unwrap();
            let (session, bytes) = moved[&of("record_id")];
            *sessions.entry(session).or_default().entry(of("flow")).or_default() += bytes;
        }
    })
    .unwrap();
    let connections: BTreeSet<usize> = sessions.values().map(BTreeMap::len).collect();
    assert_eq!(connections, BTreeSet::from([2, 3]), "{sessions:?}");
    assert!(sessions.values().flat_map(BTreeMap::values).all(|bytes| *bytes >= 16 << 10), "{sessions:?}");
}

/// Plain copies of the captures in testdata/iscsi, by their names.
fn stored(folder: &TempDir) -> Vec<(String, PathBuf)> {
    let files = std::fs::read_dir(root().join("testdata/iscsi")).expect("captures");
    let mut stored: Vec<(String, PathBuf)> = files
        .map(|file| {
            let packed = file.expect("a file").path();
            let name = packed.file_name().unwrap().to_str().unwrap().replace(".pcapng.zst", "");
            let plain = folder.join(&format!("{name}.pcapng"));
            let (from, to) = (std::fs::File::open(&packed).unwrap(), std::fs::File::create(&plain).unwrap());
            zstd::stream::copy_decode(from, to).unwrap();
            (name, plain)
        })
        .collect();
    stored.sort();
    stored
}

/// Every command of the stored captures is tshark's, in all that both say of it.
#[test]
fn stored_captures() {
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
    assert_eq!(stored.len(), 10);
    for kind in [0x28, 0x2a, 0x42, 0x89, TASK_MANAGEMENT << 8] {
        assert!(kinds.get(&kind).is_some_and(|count| *count >= 1), "{kind:#x}: {kinds:x?}");
    }
}

/// A captured UNMAP, its list in the command or asked for by the target, is one of 64 KiB in the block trace, and
/// replayed as such.
#[test]
fn unmaps_are_replayed() {
    let folder = TempDir::new("iscsi-unmap");
    let mut checked = 0;
    for (name, path) in stored(&folder) {
        if !matches!(name.as_str(), "brunt-qemu" | "tgt-qemu" | "brunt-kernel" | "tgt-kernel") {
            continue;
        }
        let trace = folder.join(&format!("trace-{name}"));
        succeed(brunt().args(["capture", "-r"]).arg(&path).arg("--out").arg(&trace), 60);
        let json = |command: &mut Command| -> Value { serde_json::from_str(&succeed(command, 60)).unwrap() };
        let info = json(brunt().args(["trace", "info", "--json"]).arg(&trace));
        assert_eq!(info["ops"]["unmap"], json!({ "bytes": 65_536, "requests": 1 }), "{name}");
        assert_eq!(info["damaged"], 0);
        let replay = ["memory:16MiB", "--as-fast-as-possible", "--json"];
        let replayed = json(brunt().arg("replay").arg(&trace).args(replay));
        assert_eq!(replayed["fidelity"]["verdict"], "true", "{name}");
        let ops = replayed["run"]["ops"].as_array().unwrap();
        let unmap = ops.iter().find(|op| op["op"] == "unmap").expect("it was sent");
        assert_eq!((&unmap["completed"], &unmap["bytes"]), (&json!(1), &json!(65_536)), "{name}");
        // What a part of commands says that cannot be read is missed, and that is counted.
        let part = std::fs::read_dir(trace.join("scsi_commands")).unwrap().next().unwrap().unwrap().path();
        std::fs::write(part, b"PAR1 but no more").unwrap();
        let info = json(brunt().args(["trace", "info", "--json"]).arg(&trace));
        assert_eq!((info["damaged"].as_u64(), info["ops"].get("unmap")), (Some(2), None), "{name}");
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
    succeed(Command::new(&tool).env("BRUNT", program).arg(session).arg(&path), 600);
    let commands = check(session, &path, &folder).values().sum::<usize>();
    assert!(commands >= at_least, "{session}: {commands} commands");
}

#[test]
fn tgt_with_libiscsi() {
    check_live("tgt-libiscsi", 300);
}

#[test]
fn tgt_with_qemu() {
    check_live("tgt-qemu", 300);
}

#[test]
fn tgt_with_brunt() {
    check_live("tgt-brunt", 200);
}

#[test]
fn tgt_with_kernel() {
    check_live("tgt-kernel", 100);
}

#[test]
fn brunt_with_libiscsi() {
    check_live("brunt-libiscsi", 300);
}

#[test]
fn brunt_with_qemu() {
    check_live("brunt-qemu", 300);
}

#[test]
fn brunt_with_brunt() {
    check_live("brunt-brunt", 200);
}

#[test]
fn brunt_with_kernel() {
    check_live("brunt-kernel", 100);
}

#[test]
fn brunt_with_connections() {
    check_live("brunt-connections", 200);
}

#[test]
fn brunt_with_tasks() {
    check_live("brunt-tasks", 40);
}
