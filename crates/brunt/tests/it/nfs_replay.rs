//! Replays of captured NFS traffic against nfs-ganesha: a capture of the replay has the same calls, sizes and
//! statuses as the capture that was replayed, according to Brunt's own reader and to tshark.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use brunt_block::open_url_with;
use brunt_load::nfs_replay::folder_of;
use brunt_nfs::conversation::NfsConversation;
use brunt_trace::nfs::{NfsTrace, NfsTraceCall};
use brunt_wire::FileData;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{
    Args, CreateHow, DirOp, FileType, NodeKind, ResultBody, SetAttributes, SetTime, StableHow,
    Status,
};
use serde_json::Value;

use crate::nfs_load::Capture;
use crate::nfs_server::{MOUNT_PORT, NFS_PORT, Server, run};
use crate::support::{TempDir, brunt, experiment, need, root, run_within, succeed, was_in_time};

/// The user and group of the captured traffic, which no other traffic has.
const USER: u32 = 4711;

pub fn folder_url(server: &Server, folder: &str, user: u32) -> String {
    let export = server.export();
    format!(
        "nfs://127.0.0.1:{NFS_PORT}{}/?mountport={MOUNT_PORT}&uid={user}&gid={user}",
        export
            .join(folder)
            .display()
            .to_string()
            .trim_end_matches('/')
    )
}

/// A folder to which the user may write.
pub fn writable(path: &Path) {
    fs::create_dir(path).expect("a folder");
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("its mode");
}

/// Reads a packet capture into a trace.
pub fn traced(capture: &Path, trace: &Path) {
    let mut command = brunt();
    command
        .arg("capture")
        .arg("-r")
        .arg(capture)
        .arg("--out")
        .arg(trace);
    succeed(&mut command, 60);
}

/// Captures a load that reads and writes files, and creates, renames and removes names in the folder `work`, all as
/// [`USER`].
fn capture_load(server: &Server, url: &str, folder: &TempDir) {
    writable(&server.export().join("work"));
    let text = format!(
        "name = \"x\"\nrepetitions = 1\nseed = 5\n[targets.export]\nurl = \"{url}\"\n[workloads.w]\n\
         nfs = {{ directories = 2, files = 20, file_size = \"16k\", names = 10 }}\n\
         queue_depth = 4\nworkers = 2\nstop = {{ requests = 1500 }}\n"
    );
    let file = folder.join("load.pcapng");
    let capture = Capture::start(&file);
    succeed(&mut experiment(folder, &text), 60);
    capture.stop();
    traced(&file, &folder.join("load"));
}

fn replay_command(trace: &Path, url: &str, options: &[&str]) -> Command {
    let mut command = brunt();
    command
        .arg("replay")
        .arg(trace)
        .arg(url)
        .arg("--json")
        .args(options);
    command
}

/// The output and the result of a replay, regardless of its verdict.
pub fn attempt(trace: &Path, url: &str, options: &[&str]) -> (Output, Value) {
    let output = run_within(&mut replay_command(trace, url, options), 120);
    let result = serde_json::from_slice(&output.stdout).expect("JSON");
    (output, result)
}

/// The result of a replay, which must be faithful except that calls may be late.
pub fn replay(trace: &Path, url: &str, options: &[&str]) -> Value {
    let (output, result) = attempt(trace, url, options);
    let text = String::from_utf8_lossy(&output.stderr);
    // On a busy machine, calls are late.
    let mut reasons = result["fidelity"]["reasons"]
        .as_array()
        .into_iter()
        .flatten();
    let is_late = |reason: &Value| {
        let reason = reason.as_str().unwrap_or_default();
        reason.contains("late") || reason.contains("drifted")
    };
    let is_fine = output.status.success() || reasons.all(is_late);
    assert!(is_fine, "{text} {result}");
    result
}

/// The calls of [`USER`], by client and in order: procedure, offset, bytes requested and transferred, status.
fn calls(trace: &Path) -> Vec<(u32, u64, u32, u64, Option<u32>)> {
    let trace = NfsTrace::read(trace).expect("a trace");
    let is_users = |call: &&NfsTraceCall| {
        let caller = call.caller.map(|caller| &trace.callers[caller as usize]);
        caller.is_some_and(|caller| caller.uid == USER)
    };
    let calls = trace.calls.iter().filter(is_users);
    let of = |call: &NfsTraceCall| {
        let (asked, moved) = (call.asked_bytes, call.moved_bytes);
        (call.procedure, call.offset_bytes, asked, moved, call.status)
    };
    calls.map(of).collect()
}

/// Calls of [`USER`] by procedure, as tshark reads them.
fn tshark_counts(capture: &Path) -> BTreeMap<String, u64> {
    let nfs = format!("tcp.port=={NFS_PORT},rpc");
    let filter = format!("nfs && rpc.msgtyp == 0 && rpc.auth.uid == {USER}");
    let file = capture.to_str().expect("UTF-8");
    let arguments = [
        "-r",
        file,
        "-d",
        &nfs,
        "-Y",
        &filter,
        "-T",
        "fields",
        "-e",
        "nfs.procedure_v3",
    ];
    let mut counts = BTreeMap::new();
    for line in run("tshark", &arguments).lines() {
        for procedure in line.split(',') {
            *counts.entry(procedure.to_string()).or_default() += 1;
        }
    }
    counts
}

/// A captured load is replayed on an empty folder of a server: a capture of the replay shows the same calls.
#[test]
fn a_capture_of_a_replay_shows_the_same_calls() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let Some(server) = Server::within("nfs_replay::a_capture_of_a_replay_shows_the_same_calls")
    else {
        return;
    };
    let folder = TempDir::new("nfs-replay");
    capture_load(&server, &folder_url(&server, "work", USER), &folder);
    writable(&server.export().join("fresh"));
    let url = folder_url(&server, "fresh", 0);
    let file = folder.join("replay.pcapng");
    let capture = Capture::start(&file);
    let result = replay(&folder.join("load"), &url, &["--callers", "trace"]);
    capture.stop();
    traced(&file, &folder.join("replay"));
    println!("{result}");

    let (wanted, found) = (calls(&folder.join("load")), calls(&folder.join("replay")));
    assert!(wanted.len() > 1500, "{}", wanted.len());
    assert_eq!(wanted.len(), found.len());
    let pairs = wanted.iter().zip(&found);
    let other: Vec<_> = pairs.filter(|(wanted, found)| wanted != found).collect();
    println!(
        "{} of {} calls differ: {other:?}",
        other.len(),
        wanted.len()
    );
    assert!(1000 * other.len() <= wanted.len(), "{other:?}");
    let counts = [folder.join("load.pcapng"), file].map(|file| tshark_counts(&file));
    println!("tshark: {counts:?}");
    assert_eq!(counts[0], counts[1]);
    assert_eq!(counts[0].values().sum::<u64>(), wanted.len() as u64);

    // The replay's own report agrees.
    let fidelity = &result["fidelity"];
    assert_eq!(fidelity["sent"], wanted.len());
    assert_eq!(fidelity["answered"], wanted.len());
    assert!(fidelity["statuses_differ"].as_u64() <= Some(wanted.len() as u64 / 1000));
    assert_eq!(fidelity["tree"]["invented_names"], 0);
    let left = fs::read_dir(server.export().join("fresh")).expect("the folder");
    assert_eq!(left.count(), 0, "its files are removed");
    replays_with_nfs41(&server, &folder.join("load"), wanted.len() as u64);
}

/// With NFSv4.1, each call becomes a compound with the same outcome.
fn replays_with_nfs41(server: &Server, trace: &Path, calls: u64) {
    writable(&server.export().join("fresh41"));
    let url = server.url41("fresh41/", "uid=0&gid=0");
    let result = replay(trace, &url, &["--callers", "trace"]);
    println!("{result}");
    let fidelity = &result["fidelity"];
    assert_eq!([&fidelity["sent"], &fidelity["answered"]], [calls, calls]);
    assert!(
        fidelity["statuses_differ"].as_u64() <= Some(calls / 1000),
        "{result}"
    );
    let left = fs::read_dir(server.export().join("fresh41")).expect("the folder");
    assert_eq!(left.count(), 0, "its files are removed");
}

/// A captured NFSv4.1 load is replayed with NFSv4.1, where a capture shows the same operations, and with NFSv3.
#[test]
fn captured_nfs41_traffic_is_replayed() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let Some(server) = Server::within("nfs_replay::captured_nfs41_traffic_is_replayed") else {
        return;
    };
    let folder = TempDir::new("nfs-replay");
    let user = format!("uid={USER}&gid={USER}");
    capture_load(&server, &server.url41("work/", &user), &folder);
    let wanted = calls(&folder.join("load"));
    assert!(wanted.len() > 1500, "{}", wanted.len());

    writable(&server.export().join("fresh"));
    let url = server.url41("fresh/", "uid=0&gid=0");
    let file = folder.join("replay.pcapng");
    let capture = Capture::start(&file);
    let result = replay(&folder.join("load"), &url, &["--callers", "trace"]);
    capture.stop();
    traced(&file, &folder.join("replay"));
    println!("{result}");
    let found = calls(&folder.join("replay"));
    let procedures = |calls: &[(u32, u64, u32, u64, Option<u32>)]| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        calls
            .iter()
            .for_each(|call| *counts.entry(call.0).or_default() += 1);
        counts
    };
    assert_eq!(procedures(&wanted), procedures(&found));
    let pairs = wanted.iter().zip(&found);
    let other: Vec<_> = pairs.filter(|(wanted, found)| wanted != found).collect();
    println!(
        "{} of {} calls differ: {other:?}",
        other.len(),
        wanted.len()
    );
    assert!(1000 * other.len() <= wanted.len(), "{other:?}");
    let left_out = result["fidelity"]["left_out"].as_object().expect("reasons");
    for what in ["NFSv4 OPEN and CLOSE", "NFSv4 sessions"] {
        assert!(
            left_out.keys().any(|why| why.starts_with(what)),
            "{left_out:?}"
        );
    }

    writable(&server.export().join("fresh3"));
    let url = folder_url(&server, "fresh3", 0);
    let with_v3 = replay(&folder.join("load"), &url, &["--callers", "trace"]);
    println!("{with_v3}");
    for fidelity in [&result["fidelity"], &with_v3["fidelity"]] {
        assert_eq!(fidelity["answered"], fidelity["planned"]);
        assert!(fidelity["statuses_differ"].as_u64() <= Some(wanted.len() as u64 / 1000));
    }
}

/// Everything that a trace needs is created before the replay, with its length, mode and owner; by dependency and as
/// fast as possible, statuses are the same.
#[test]
fn files_of_a_trace_are_made_before_it_is_replayed() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let Some(server) =
        Server::within("nfs_replay::files_of_a_trace_are_made_before_it_is_replayed")
    else {
        return;
    };
    let folder = TempDir::new("nfs-replay");
    let trace = folder.join("trace");
    capture_walk(&server, &folder, &trace);
    writable(&server.export().join("fresh"));
    let (fresh, url) = (
        server.export().join("fresh"),
        folder_url(&server, "fresh", 0),
    );

    let options = ["--callers", "trace", "--into", "tree"];
    let prepared = replay(&trace, &url, &[&options[..], &["--prepare-only"]].concat());
    let root = fresh.join("tree/root");
    assert_eq!(
        fs::read_link(root.join("walk/link")).expect("a link"),
        Path::new("dir/file")
    );
    let file = fs::metadata(root.join("walk/dir/file")).expect("a file");
    assert_eq!(
        (file.len(), file.permissions().mode() & 0o777),
        (12_345, 0o640)
    );
    let data = fs::read(root.join("walk/dir/file")).expect("its data");
    assert!(data.iter().any(|byte| *byte != 0), "it is filled");
    assert!(root.join("walk/dir/gone").is_file() && !root.join("walk/dir/made").exists());
    assert_eq!(prepared["tree"]["found"], 0);

    // Preparing again finds everything in place, and so does the replay.
    let again = replay(&trace, &url, &[&options[..], &["--prepare-only"]].concat());
    let entries = ["directories", "files", "symlinks"].map(|kind| prepared["tree"][kind].as_u64());
    assert_eq!(again["tree"]["found"].as_u64(), entries.into_iter().sum());
    let result = replay(
        &trace,
        &url,
        &[&options[..], &["--keep", "--timing", "dependency"]].concat(),
    );
    println!("{result}");
    assert_eq!(result["fidelity"]["statuses_differ"], 0, "{result}");
    assert!(root.join("walk/dir/made").is_file() && !root.join("walk/dir/gone").exists());

    // Now the files are no longer those of the trace, so another tree is created next to them.
    let check = |options: &[&str], expected: &str| {
        let output = run_within(&mut replay_command(&trace, &url, options), 60);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(expected),
            "{said}"
        );
    };
    check(&options, "was already used by a replay");
    fs::create_dir(fresh.join("mine")).expect("a folder");
    check(&["--into", "mine"], "was not created for a replay");
    check(&["--map", "wrap"], "--map doesn't apply");
    let result = replay(
        &trace,
        &url,
        &["--as-fast-as-possible", "--sparse", "--into", "other"],
    );
    assert_eq!(result["fidelity"]["statuses_differ"], 0, "{result}");
    assert!(!fresh.join("other").exists(), "it is removed");
}

/// Captures calls of all procedures on files that existed before.
fn capture_walk(server: &Server, folder: &TempDir, trace: &Path) {
    let walk = server.export().join("walk");
    writable(&walk);
    fs::create_dir(walk.join("dir")).expect("a folder");
    fs::write(walk.join("dir/file"), vec![7; 12_345]).expect("a file");
    fs::set_permissions(walk.join("dir/file"), fs::Permissions::from_mode(0o640)).expect("mode");
    fs::write(walk.join("dir/gone"), b"gone").expect("a file");
    symlink("dir/file", walk.join("link")).expect("a link");
    let file = folder.join("walk.pcapng");
    let capture = Capture::start(&file);
    let url = folder_url(server, "", 0);
    let backend = open_url_with(&url, brunt_nfs::BACKENDS, false).expect("the export");
    let folder = folder_of(backend.as_ref()).expect("a folder");
    let nfs = folder
        .converse(Duration::from_secs(60))
        .expect("a connection");
    Walker(nfs).walk(&folder.place().handle);
    capture.stop();
    traced(&file, trace);
}

/// Makes one call after another.
pub struct Walker(pub NfsConversation);

impl Walker {
    /// Makes a call that must return this status; returns the handle in the reply.
    pub fn call(&mut self, args: Args<'_>, status: u32) -> Vec<u8> {
        let results = self.0.nfs(&args).expect("an answer");
        assert_eq!(results.status, Status(status), "{args:?}");
        match results.body {
            ResultBody::Lookup { object, .. } => object.0.to_vec(),
            ResultBody::Created { object, .. } => object.expect("a handle").0.to_vec(),
            _ => Vec::new(),
        }
    }

    /// All procedures except NULL.
    pub fn walk(&mut self, root: &[u8]) {
        let at = |dir, name| DirOp { dir, name };
        let root = FileHandle(root);
        let lookup = |what| Args::Lookup { what };
        let walk = self.call(lookup(at(root, b"walk")), 0);
        let walk = FileHandle(&walk);
        let dir = self.call(lookup(at(walk, b"dir")), 0);
        let dir = FileHandle(&dir);
        let file = self.call(lookup(at(dir, b"file")), 0);
        let link = self.call(lookup(at(walk, b"link")), 0);
        let (file, link) = (FileHandle(&file), FileHandle(&link));
        self.call(lookup(at(dir, b"none")), 2);
        for offset in [0, 8192, 20_000] {
            self.call(
                Args::Read {
                    file,
                    offset,
                    count: 8192,
                },
                0,
            );
        }
        self.call(Args::Readlink { symlink: link }, 0);
        self.call(
            Args::Access {
                object: file,
                access: 0x1f,
            },
            0,
        );
        self.call(Args::Fsstat { root }, 0);
        self.call(Args::Fsinfo { root }, 0);
        self.call(Args::Pathconf { object: root }, 0);
        self.create(dir);
        self.call(Args::Getattr { object: file }, 0);
        self.change([walk, dir, file]);
        self.list(dir);
    }

    fn change(&mut self, [walk, dir, file]: [FileHandle<'_>; 3]) {
        let at = |dir, name| DirOp { dir, name };
        let size = SetAttributes {
            size: Some(12_000),
            mtime: SetTime::ServerTime,
            ..SetAttributes::default()
        };
        self.call(
            Args::Setattr {
                object: file,
                attributes: size,
                guard: None,
            },
            0,
        );
        self.call(
            Args::Link {
                file,
                link: at(dir, b"hard"),
            },
            0,
        );
        self.call(
            Args::Rmdir {
                object: at(walk, b"dir"),
            },
            66,
        );
        self.call(
            Args::Rename {
                from: at(dir, b"hard"),
                to: at(walk, b"harder"),
            },
            0,
        );
        self.call(
            Args::Remove {
                object: at(dir, b"gone"),
            },
            0,
        );
        self.call(
            Args::Remove {
                object: at(dir, b"gone"),
            },
            2,
        );
    }

    fn create(&mut self, dir: FileHandle<'_>) {
        let set = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let place = |name| DirOp { dir, name };
        let how = CreateHow::Guarded(set);
        let made = self.call(
            Args::Create {
                place: place(b"made"),
                how,
            },
            0,
        );
        self.call(
            Args::Create {
                place: place(b"file"),
                how,
            },
            17,
        );
        let (made, data) = (FileHandle(&made), [5; 700]);
        let write = Args::Write {
            file: made,
            offset: 100,
            count: 700,
            stable: StableHow::Unstable,
            data: FileData {
                at: 0,
                len: 700,
                bytes: &data,
            },
        };
        self.call(write, 0);
        let (offset, count) = (0, 0);
        self.call(
            Args::Commit {
                file: made,
                offset,
                count,
            },
            0,
        );
        self.create_others(dir, set);
    }

    fn create_others(&mut self, dir: FileHandle<'_>, set: SetAttributes<'_>) {
        let place = |name| DirOp { dir, name };
        let sub = self.call(
            Args::Mkdir {
                place: place(b"sub"),
                attributes: set,
            },
            0,
        );
        self.call(
            Args::Getattr {
                object: FileHandle(&sub),
            },
            0,
        );
        self.call(
            Args::Rmdir {
                object: place(b"sub"),
            },
            0,
        );
        let soft = Args::Symlink {
            place: place(b"soft"),
            attributes: set,
            target: b"made",
        };
        self.call(soft, 0);
        let what = NodeKind::Pipe(FileType::Fifo, set);
        self.call(
            Args::Mknod {
                place: place(b"fifo"),
                what,
            },
            0,
        );
    }

    /// Lists a directory in parts; returns its names, each of which occurs once.
    pub fn list(&mut self, dir: FileHandle<'_>) -> BTreeSet<Vec<u8>> {
        let mut names = BTreeSet::new();
        let (mut cookie, mut cookie_verifier, mut parts) = (0, 0, 0);
        loop {
            let args = match parts % 2 {
                0 => Args::Readdirplus {
                    dir,
                    cookie,
                    cookie_verifier,
                    dir_count: 100,
                    max_count: 700,
                },
                _ => Args::Readdir {
                    dir,
                    cookie,
                    cookie_verifier,
                    count: 300,
                },
            };
            let results = self.0.nfs(&args).expect("an answer");
            let ResultBody::Readdir {
                cookie_verifier: verifier,
                entries,
                eof,
                ..
            } = results.body
            else {
                panic!("{results:?}");
            };
            for entry in entries.iter() {
                assert!(names.insert(entry.name.to_vec()), "{:?} twice", entry.name);
            }
            parts += 1;
            if eof {
                break;
            }
            cookie = entries.iter().last().expect("an entry").cookie;
            cookie_verifier = verifier;
        }
        assert!(parts > 1, "a part continues another one");
        names
    }
}

/// A capture from another client that begins in the middle: missing information is invented, and statuses are the
/// same.
#[test]
fn a_capture_that_begins_in_the_middle_is_replayed() {
    let Some(server) =
        Server::within("nfs_replay::a_capture_that_begins_in_the_middle_is_replayed")
    else {
        return;
    };
    let folder = TempDir::new("nfs-replay");
    let trace = folder.join("trace");
    traced(&root().join("testdata/nfs3-small.pcap.zst"), &trace);
    let result = replay(
        &trace,
        &folder_url(&server, "", 0),
        &["--timing", "dependency"],
    );
    let fidelity = &result["fidelity"];
    println!("{fidelity}");
    // Some calls lack their replies.
    assert_eq!(fidelity["planned"], 547);
    assert_eq!(fidelity["answered"], 547);
    assert_eq!(fidelity["statuses_differ"], 0);
    assert!(fidelity["tree"]["invented_names"].as_u64() > Some(0));
    assert_eq!(fidelity["contradictions"], 0);
}

/// An experiment repeats a replay while its server is frozen: each run has its own files, and figures by operation
/// show the effect of the fault.
#[test]
fn an_experiment_replays_calls_under_a_fault() {
    let folder = TempDir::new("nfs-replay");
    let trace = folder.join("trace");
    traced(&root().join("testdata/nfs3-small.pcap.zst"), &trace);
    // The calls take a second, or as many times as long.
    let text = |slower: u32| {
        format!(
            "name = \"x\"\nrepetitions = 2\nseed = 5\n[targets.null]\nserve = \"nfs\"\n\
             [workloads.w]\ntrace = \"trace\"\nnfs_replay = {{ sparse = true }}\nspeed = {}\ninterval = \"50ms\"\n\
             [[fault]]\ntarget = \"null\"\nfreeze = true\nat = \"{time}ms\"\nfor = \"{time}ms\"\n",
            0.02 / f64::from(slower),
            time = 300 * slower
        )
    };
    let mut slower = 1;
    let summary: Value = loop {
        let output = run_within(&mut experiment(&folder, &text(slower)), 120);
        let said = String::from_utf8_lossy(&output.stderr);
        if was_in_time(output.status.success(), &said) {
            break serde_json::from_slice(&output.stdout).expect("JSON");
        }
        assert!(slower < 16, "{said}");
        fs::remove_dir_all(folder.join("results")).expect("results");
        slower *= 2;
    };
    let runs = summary["points"][0]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        println!("{run}");
        let replay = &run["replay"];
        assert_eq!(
            (&replay["planned"], &replay["completed"]),
            (&547.into(), &547.into())
        );
        let ops = run["ops"].as_array().expect("operations");
        let completed = ops.iter().filter_map(|op| op["completed"].as_u64());
        assert_eq!(completed.sum::<u64>(), 547, "{ops:?}");
        assert!(ops.len() > 3, "{ops:?}");
        assert_eq!(run["faults"][0]["kind"], "freeze");
        let slowest = ops
            .iter()
            .filter_map(|op| op["response"]["max_us"].as_f64());
        assert!(slowest.fold(0.0, f64::max) > 100_000.0, "{ops:?}");
    }
}
