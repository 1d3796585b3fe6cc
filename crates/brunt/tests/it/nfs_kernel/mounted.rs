//! The kernel's client on nfs-ganesha and on its own server: its traffic is captured, counted with tshark, and
//! replayed on ganesha.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use brunt_capture::dissect::rpc::tables::COMPOUNDS;
use brunt_lake::read_table;
use brunt_wire::nfs::v3::Procedure;
use brunt_wire::nfs::v4;
use serde_json::Value;

use super::served::{VERSIONS, url};
use super::{GUEST_NFS_PORT, KernelGuest};
use crate::nfs_load::Capture;
use crate::nfs_replay::{replay, traced, writable};
use crate::nfs_server::{MOUNT_PORT, NFS_PORT, Server, run};
use crate::support::{TempDir, brunt, succeed};

/// The guest works in a folder on ganesha, with NFSv3, and with NFSv4.1 over several connections.
pub fn work_on_ganesha(server: &Server, folder: &TempDir, guest: &mut KernelGuest) {
    for version in ["3", "4.1"] {
        let work = server.export().join(format!("work{version}"));
        writable(&work);
        let file = folder.join(&format!("{version}.pcapng"));
        let capture = Capture::start(&file);
        let (path, options) = match version {
            "3" => (
                work.display().to_string(),
                format!("vers=3,nolock,mountport={MOUNT_PORT},mountproto=tcp,mountaddr=10.0.2.2"),
            ),
            _ => (
                format!("/export/work{version}"),
                format!("vers={version},nconnect=4,clientaddr=10.0.2.15"),
            ),
        };
        let command = format!("work {path} {options},port={NFS_PORT}");
        let [written, read] = guest.run(&command, ["written ", "read "]);
        capture.stop();
        assert_eq!(written, read);
        let sum = run("md5sum", &[work.join("a/big").to_str().expect("UTF-8")]);
        assert_eq!(sum.split(' ').next(), written.split(' ').next());
        let text = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
        assert_eq!(text("a/f1"), "line 1\nappended\n");
        assert_eq!(text("a/b/g3"), "line 3\n");
        assert_eq!(text("a/f11"), "line 11\nlocked\n");

        let trace = folder.join(&format!("trace{version}"));
        traced(&file, &trace);
        match version {
            "3" => calls_are_those_of_tshark(&file, &trace),
            _ => compounds_are_those_of_tshark(&file, &trace),
        }
        let differ = replayed(version, server, &trace);
        assert!(differ.is_empty(), "{differ:?}");
    }
}

/// The guest works on its own server, with NFSv4.2. Other clients write to files that the guest has open: the server
/// recalls the guest's delegations, and asks the other clients to wait.
pub fn work_on_linux(server: &Server, folder: &TempDir, guest: &mut KernelGuest) {
    let file = folder.join("linux.pcapng");
    let capture = Capture::start(&file);
    let place = format!("/srv/open/linux vers=4.2,port={GUEST_NFS_PORT},clientaddr=10.0.2.15");
    let [written, read] = guest.run(&format!("work {place}"), ["written ", "read "]);
    assert_eq!(written, read);
    guest.run(&format!("hold {place}"), []);
    for (version, name) in VERSIONS.into_iter().zip(["big", "copy"]) {
        let mut write = brunt();
        write.args(["io", "write", "--overwrite", "--count", "1"]);
        write.arg(url(version, &format!("open/linux/a/{name}"), ""));
        succeed(&mut write, 60);
    }
    // Brunt's client mounts this folder itself, while the guest reaches it by name from its mount.
    let made = url("3", "open/linux/made", "&create=yes&size=64k");
    succeed(brunt().args(["io", "write", &made]), 60);
    guest.run("release", []);
    capture.stop();
    let trace = folder.join("linux");
    traced(&file, &trace);
    compounds_are_those_of_tshark(&file, &trace);
    // ganesha recalls no delegations, so calls that had to wait for a recall in the trace succeed at once.
    let differ = replayed("4.1", server, &trace);
    let is_busy = |differ: &&Value| differ["cause"] == "busy";
    let busy = differ.iter().filter(is_busy);
    let calls: u64 = busy.filter_map(|differ| differ["calls"].as_u64()).sum();
    assert!(differ.iter().all(|differ| is_busy(&differ)), "{differ:?}");
    // They are repeated until the guest has returned its delegation, which takes seconds on a busy machine, with pauses
    // in between.
    assert!((1..200).contains(&calls), "{differ:?}");
}

/// Fields of the messages that tshark finds; each message's values are a list.
fn ask(file: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<Vec<u32>>> {
    let ports = [NFS_PORT, MOUNT_PORT, GUEST_NFS_PORT].map(|port| format!("tcp.port=={port},rpc"));
    let file = file.to_str().expect("UTF-8");
    // Two processors send, so packets may be captured out of order.
    let mut arguments = vec!["-o", "tcp.reassemble_out_of_order:TRUE", "-r", file];
    ports
        .iter()
        .for_each(|port| arguments.extend(["-d", port.as_str()]));
    arguments.extend(["-Y", filter, "-T", "fields"]);
    fields
        .iter()
        .for_each(|field| arguments.extend(["-e", field]));
    let numbers = |list: &str| {
        list.split(',')
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    let text = run("tshark", &arguments);
    text.lines()
        .map(|line| line.split('\t').map(numbers).collect())
        .collect()
}

/// Calls, replies and errors of each NFSv3 procedure.
fn calls_are_those_of_tshark(file: &Path, trace: &Path) {
    let mut theirs: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    let name = |number: u32| {
        Procedure::from_number(number)
            .expect("a procedure")
            .name()
            .to_string()
    };
    let is_nfs = "nfs && rpc.programversion == 3";
    for call in ask(
        file,
        &format!("{is_nfs} && rpc.msgtyp == 0"),
        &["nfs.procedure_v3"],
    ) {
        call[0]
            .iter()
            .for_each(|number| theirs.entry(name(*number)).or_default()[0] += 1);
    }
    for reply in ask(
        file,
        &format!("{is_nfs} && rpc.msgtyp == 1"),
        &["nfs.procedure_v3", "nfs.status3"],
    ) {
        let (numbers, statuses) = (&reply[0], &reply[1]);
        for (at, number) in numbers.iter().enumerate() {
            let counts = theirs.entry(name(*number)).or_default();
            counts[1] += 1;
            counts[2] += u64::from(statuses.get(at).is_some_and(|status| *status != 0));
        }
    }
    let report = succeed(brunt().args(["--json", "analyze"]).arg(trace), 60);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let mut ours = BTreeMap::new();
    for row in report["by_operation"].as_array().expect("operations") {
        let counts = ["calls", "replies", "errors"].map(|key| row[key].as_u64().expect("a count"));
        ours.insert(row["name"].as_str().expect("a name").to_string(), counts);
    }
    println!("{ours:?}");
    // MOUNT, and the ACL protocol.
    let others = ["MOUNT", "other RPC"].map(|name| ours.remove(name));
    assert!(others.iter().all(Option::is_some), "{others:?}");
    assert_eq!(ours, theirs);
}

/// Operations in compounds, as called and as executed.
fn compounds_are_those_of_tshark(file: &Path, trace: &Path) {
    let mut theirs: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (index, kind) in ["rpc.msgtyp == 0", "rpc.msgtyp == 1"]
        .into_iter()
        .enumerate()
    {
        for message in ask(file, &format!("nfs && {kind}"), &["nfs.opcode"]) {
            for number in &message[0] {
                // tshark 4.0 doesn't read the stateid of an OPEN with CLAIM_DELEG_CUR_FH (RFC 8881, 18.16.1), and
                // mistakes its first word, 1, for the next operation, which is a GETATTR.
                let op = v4::Op::from_number(*number).unwrap_or(v4::Op::Getattr);
                theirs.entry(op.name().to_string()).or_default()[index] += 1;
            }
        }
    }
    let mut ours: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let damaged = read_table(trace, &COMPOUNDS, |batch| {
        for (row, name) in batch.texts("operation").enumerate() {
            let counts = ours.entry(name.to_string()).or_default();
            counts[0] += 1;
            counts[1] += u64::from(!batch.is_null("status", row));
        }
    });
    assert!(damaged.expect("a trace").is_empty());
    println!("{ours:?}");
    let counts = |of: &BTreeMap<String, [u64; 2]>, index: usize| -> BTreeMap<String, u64> {
        let counts = of.iter();
        counts
            .map(|(name, counts)| (name.clone(), counts[index]))
            .collect()
    };
    assert_eq!(counts(&ours, 0), counts(&theirs, 0));
    // tshark loses a few replies if segments were captured out of order: usually none, once 4 %.
    let [ours, theirs] = [counts(&ours, 1), counts(&theirs, 1)];
    let lost = ours.iter().map(|(name, count)| {
        let lost = count.checked_sub(theirs[name]);
        lost.unwrap_or_else(|| panic!("{name}: {count}, and for tshark {}", theirs[name]))
    });
    assert!(10 * lost.sum::<u64>() <= ours.values().sum(), "{theirs:?}");
}

/// Replays the calls on an empty folder on ganesha; returns the statuses that differ.
fn replayed(version: &str, server: &Server, trace: &Path) -> Vec<Value> {
    let name = trace.file_name().expect("a name").display();
    let folder = format!("fresh-{name}/");
    writable(&server.export().join(&folder));
    let url = match version {
        "3" => server.url(&folder, "uid=0&gid=0"),
        _ => server.url41(&folder, "uid=0&gid=0"),
    };
    // Ten times as fast, because the emulated guest was slow.
    let options = [
        "--callers",
        "trace",
        "--timing",
        "dependency",
        "--speed",
        "10",
    ];
    let fidelity = &replay(trace, &url, &options)["fidelity"];
    println!("{fidelity}");
    assert_eq!(fidelity["answered"], fidelity["planned"]);
    fidelity["statuses"].as_array().expect("statuses").clone()
}
