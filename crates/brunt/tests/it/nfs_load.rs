//! The NFS load against nfs-ganesha: the counts match the server's folder and tshark, the same seed gives the same
//! calls, and the load's tree is removed or kept.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::nfs_server::{MOUNT_PORT, NFS_PORT, Server, run};
use crate::support::agents::host_by_ssh;
use crate::support::{TempDir, eventually, experiment, need, run_within, succeed};

/// A load with all operations on few files.
const SMALL: &str = "directories = 2, files = 20, file_size = \"16k\", names = 10";

/// The URL of the exported folder.
fn folder_url(server: &Server) -> String {
    let export = server.export();
    format!(
        "nfs://127.0.0.1:{NFS_PORT}{}/?mountport={MOUNT_PORT}",
        export.display()
    )
}

fn text(server: &Server, nfs: &str, workload: &str) -> String {
    format!(
        "name = \"x\"\nrepetitions = 2\nseed = 5\n[targets.export]\nurl = \"{}\"\n[workloads.w]\nnfs = {{ {nfs} }}\n{workload}\n",
        folder_url(server)
    )
}

/// The names in the exported folder.
fn left(server: &Server) -> Vec<PathBuf> {
    let entries = fs::read_dir(server.export()).expect("the export").flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Completed requests in each run, by kind.
pub fn completed(summary: &Value) -> Vec<BTreeMap<String, u64>> {
    let runs = summary["points"][0]["runs"].as_array().expect("runs");
    let of_run = |run: &Value| {
        let ops = run["ops"].as_array().expect("operations").iter();
        ops.map(|op| {
            let name = op["op"].as_str().expect("a name").to_string();
            (name, op["completed"].as_u64().expect("a count"))
        })
        .collect()
    };
    runs.iter().map(of_run).collect()
}

fn measured(server: &Server, nfs: &str, workload: &str) -> Value {
    let folder = TempDir::new("nfs-load");
    let out = succeed(&mut experiment(&folder, &text(server, nfs, workload)), 60);
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn a_mix_of_calls_runs_on_ganesha() {
    let Some(server) = Server::within("nfs_load::a_mix_of_calls_runs_on_ganesha") else {
        return;
    };
    let workload = "queue_depth = 8\nworkers = 2\nstop = { requests = 3000 }";
    let summary = measured(&server, SMALL, workload);
    println!("{}", summary["points"][0]["runs"][0]);
    let counts = completed(&summary);
    assert_eq!(counts.len(), 2);
    for (run, counts) in counts.iter().enumerate() {
        assert_eq!(counts.values().sum::<u64>(), 3000, "{counts:?}");
        assert!(
            counts.len() == 14 && counts.values().all(|count| *count > 0),
            "{counts:?}"
        );
        let run = &summary["points"][0]["runs"][run];
        assert!(
            run["losses"]
                .as_object()
                .is_none_or(serde_json::Map::is_empty),
            "{run}"
        );
    }
    assert_eq!(
        left(&server),
        [""; 0].map(PathBuf::from),
        "the tree is removed"
    );

    // The same seed makes the same calls; this time, the tree is kept.
    let kept = format!("{SMALL}, keep = true");
    let again = measured(&server, &kept, workload);
    assert_eq!(completed(&again), counts);
    let [tree] = &left(&server)[..] else {
        panic!("{:?}", left(&server));
    };
    let file = tree.join("w1/d1/f19");
    assert_eq!(fs::metadata(&file).expect("a file").len(), 16 << 10);
    assert!(
        fs::read(&file)
            .expect("its data")
            .iter()
            .any(|byte| *byte != 0)
    );
    assert!(tree.join("w0/c0f").is_dir() && tree.join("w0/c1d").is_dir());
    let note = summary["points"][0]["notes"].to_string() + &again["points"][0]["notes"].to_string();
    assert!(note.contains("stays on the server"), "{note}");
}

/// With NFSv4.1, the same seed makes the same calls.
#[test]
fn a_mix_of_calls_runs_with_nfs41() {
    let Some(server) = Server::within("nfs_load::a_mix_of_calls_runs_with_nfs41") else {
        return;
    };
    let workload = "queue_depth = 8\nworkers = 2\nstop = { requests = 3000 }";
    let nfs3 = measured(&server, SMALL, workload);
    let text = text(&server, SMALL, workload).replace(&folder_url(&server), &server.url41("", ""));
    let folder = TempDir::new("nfs-load");
    let out = succeed(&mut experiment(&folder, &text), 60);
    let nfs41: Value = serde_json::from_str(&out).expect("JSON");
    println!("{}", nfs41["points"][0]["runs"][0]);
    let counts = completed(&nfs41);
    assert_eq!(counts, completed(&nfs3));
    assert!(counts[0].len() == 14, "{counts:?}");
    for run in nfs41["points"][0]["runs"].as_array().expect("runs") {
        let losses = run["losses"].as_object();
        assert!(losses.is_none_or(serde_json::Map::is_empty), "{run}");
    }
    assert!(left(&server).is_empty(), "the tree is removed");
}

/// An open loop issues its calls at its rate: never faster, and on a machine that isn't too busy, not more slowly.
#[test]
fn an_open_loop_keeps_its_rate() {
    let Some(server) = Server::within("nfs_load::an_open_loop_keeps_its_rate") else {
        return;
    };
    let nfs = "files = 10, mix = { getattr = 3, create = 1, remove = 1 }";
    let workload =
        "queue_depth = 16\narrival = { kind = \"open\", rate = 200 }\nstop = { time = \"3s\" }";
    let mut most = 0;
    for _ in 0..5 {
        let summary = measured(&server, nfs, workload);
        for counts in completed(&summary) {
            let all: u64 = counts.values().sum();
            assert!(all < 750, "{counts:?}");
            most = most.max(all);
        }
        assert!(left(&server).is_empty());
        if most >= 450 {
            return;
        }
    }
    panic!("at most {most} calls in 3 s");
}

/// Errors are counted by the server's status, and don't end the run.
#[test]
fn errors_are_counted_by_their_status() {
    let Some(server) = Server::within("nfs_load::errors_are_counted_by_their_status") else {
        return;
    };
    let folder = TempDir::new("nfs-load");
    let nfs = "directories = 1, files = 1, names = 200, mix = { create = 1, remove = 1 }";
    // Long enough for the names to be removed seconds late, and then for calls on each of them.
    let workload =
        "queue_depth = 1\narrival = { kind = \"open\", rate = 400 }\nstop = { time = \"8s\" }";
    let text = text(&server, nfs, workload).replace("repetitions = 2", "repetitions = 1");
    let saboteur = std::thread::spawn({
        let export = server.export();
        move || {
            let names = || {
                Some(
                    fs::read_dir(&export)
                        .ok()?
                        .flatten()
                        .next()?
                        .path()
                        .join("w0/c0f"),
                )
            };
            let has = |name: &str| names().is_some_and(|names| names.join(name).exists());
            // The run begins between these two events: all names are created before it, and its first REMOVE is of
            // the oldest one.
            eventually("names are made", 30, || has("f199"));
            eventually("a name is removed", 30, || !has("f0"));
            let names = fs::read_dir(names().expect("a tree"))
                .expect("names")
                .flatten();
            // The load may have removed the file as well.
            names.for_each(|name| drop(fs::remove_file(name.path())));
        }
    });
    let output = run_within(&mut experiment(&folder, &text), 60);
    saboteur.join().expect("the names were removed");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let run = &summary["points"][0]["runs"][0];
    println!("{} {} {}", run["causes"], run["losses"], run["first_error"]);
    let causes = run["causes"].as_array().expect("causes");
    // ganesha also fails a CREATE if the new file disappears before ganesha has read its attributes.
    let [removals, creations] =
        ["REMOVE", "CREATE"].map(|call| format!("{call}: the server returned NFS3ERR_NOENT (2)"));
    let count = |words: &String| {
        let cause = causes.iter().find(|cause| cause["cause"] == **words);
        cause.map_or(0, |cause| cause["count"].as_u64().expect("a count"))
    };
    let (failed, raced) = (count(&removals), count(&creations));
    assert!(failed > 100 && raced < 10, "{run}");
    assert_eq!(run["losses"]["scsi"], failed + raced, "{run}");
    let first = run["first_error"].as_str().expect("an error");
    let is_known = |(op, words): &(&str, &String)| first == format!("{op}: {words}");
    let known = [("remove", &removals), ("create", &creations)];
    assert!(known.iter().any(is_known), "{first}");
    let counts = &completed(&summary)[0];
    assert!(counts["create"] > 200 && counts["remove"] > 0, "{counts:?}");
    assert!(left(&server).is_empty());
}

/// Ctrl-C removes the tree, both while it is being created and during a run.
#[test]
fn an_interrupt_removes_the_tree() {
    let Some(server) = Server::within("nfs_load::an_interrupt_removes_the_tree") else {
        return;
    };
    let trees = [
        ("directories = 1000, files = 100", "w0/d1"),
        ("directories = 2, files = 20", "w0/c0d/d99"),
    ];
    for (nfs, made) in trees {
        let folder = TempDir::new("nfs-load");
        let text = text(&server, nfs, "stop = { time = \"60s\" }");
        let mut command = experiment(&folder, &text);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        eventually("files are made", 30, || {
            left(&server).iter().any(|tree| tree.join(made).exists())
        });
        kill_process(Pid::from_child(&child), Signal::INT).expect("it is ours");
        assert!(!child.wait().expect("it ends").success());
        assert!(left(&server).is_empty(), "{nfs}");
    }
}

/// The sizes of the server's files follow the distribution, in every run, and calls stay within the files.
#[test]
fn files_have_sizes_of_a_distribution() {
    let Some(server) = Server::within("nfs_load::files_have_sizes_of_a_distribution") else {
        return;
    };
    let nfs = "directories = 2, files = 100, keep = true, mix = { read = 1, write = 1 }, \
               file_size = { kind = \"log-normal\", median = \"8k\", sigma = 1, min = \"512\", max = \"128k\" }";
    let workload = "blocks = [{ size = \"4k\" }, { size = \"16k\" }]\nqueue_depth = 8\nstop = { requests = 3000 }";
    let sizes = |tree: &Path| {
        let folder = |number: u32| tree.join(format!("w0/d{number}"));
        let size = |(directory, file): (u32, u32)| {
            let path = folder(directory).join(format!("f{file}"));
            fs::metadata(path).expect("a file").len()
        };
        let files = (0..2).flat_map(|directory| (0..100).map(move |file| (directory, file)));
        files.map(size).collect::<Vec<u64>>()
    };
    let summary = measured(&server, nfs, workload);
    for (run, counts) in completed(&summary).iter().enumerate() {
        assert_eq!(counts.values().sum::<u64>(), 3000, "{counts:?}");
        let lost = summary["points"][0]["runs"][run]["losses"].as_object();
        assert!(lost.is_none_or(serde_json::Map::is_empty), "{lost:?}");
    }
    let first = sizes(&left(&server)[0]);
    assert!(first.iter().all(|size| (512..=128 << 10).contains(size)));
    let below = first.iter().filter(|size| **size <= 8 << 10).count();
    assert!(
        (65..135).contains(&below),
        "half of them up to the median, not {below}"
    );
    // Another seed makes different calls on the same files.
    let folder = TempDir::new("nfs-load");
    let other = text(&server, nfs, workload).replace("seed = 5", "seed = 6");
    fs::remove_dir_all(&left(&server)[0]).expect("the first tree");
    succeed(&mut experiment(&folder, &other), 60);
    assert_eq!(sizes(&left(&server)[0]), first);
}

/// Each host makes its share of the calls, on its own tree.
#[test]
fn hosts_share_the_calls() {
    let Some(server) = Server::within("nfs_load::hosts_share_the_calls") else {
        return;
    };
    let folder = TempDir::new("nfs-load");
    let hosts = host_by_ssh(&folder.join(""), "a", 0) + &host_by_ssh(&folder.join(""), "b", 0);
    let workload = format!(
        "hosts = [\"a\", \"b\"]\nworkers = 2\nqueue_depth = 4\nstop = {{ requests = 2000 }}\n{hosts}"
    );
    let text = text(&server, SMALL, &workload);
    let text = text.replacen("[targets", "host_silence = \"60s\"\n[targets", 1);
    let out = succeed(&mut experiment(&folder, &text), 60);
    let summary: Value = serde_json::from_str(&out).expect("JSON");
    for (run, counts) in completed(&summary).iter().enumerate() {
        assert_eq!(counts.values().sum::<u64>(), 2000, "{counts:?}");
        assert_eq!(counts.len(), 14, "{counts:?}");
        let run = &summary["points"][0]["runs"][run];
        assert!(
            run["losses"]
                .as_object()
                .is_none_or(serde_json::Map::is_empty),
            "{run}"
        );
        let each = run["hosts"].as_array().expect("hosts");
        assert_eq!(each.len(), 2, "{run}");
    }
    assert!(left(&server).is_empty(), "both trees are removed");
}

/// A capture of all traffic on the loopback interface.
pub struct Capture {
    tshark: Child,
    file: PathBuf,
}

impl Capture {
    pub fn start(file: &Path) -> Capture {
        let mut tshark = Command::new("tshark");
        tshark.args(["-q", "-i", "lo", "-B", "64", "-w"]).arg(file);
        tshark.stdout(Stdio::null()).stderr(Stdio::null());
        let capture = Capture {
            tshark: tshark.spawn().expect("tshark"),
            file: file.to_path_buf(),
        };
        capture.wait_for(b"the capture has begun");
        capture
    }

    /// Sends a mark until it is in the file; then everything before it is, too.
    fn wait_for(&self, mark: &[u8]) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        eventually("tshark captures", 60, || {
            socket.send_to(mark, "127.0.0.1:9").expect("it is sent");
            let bytes = fs::read(&self.file).unwrap_or_default();
            bytes.windows(mark.len()).any(|window| window == mark)
        });
    }

    pub fn stop(mut self) {
        self.wait_for(b"the capture may end");
        kill_process(Pid::from_child(&self.tshark), Signal::INT).expect("it is ours");
        self.tshark.wait().expect("it ends");
    }
}

/// The results match what tshark decodes from the wire.
#[test]
fn tshark_counts_the_same_calls() {
    if need("tshark", "tshark").is_none() {
        return;
    }
    let Some(server) = Server::within("nfs_load::tshark_counts_the_same_calls") else {
        return;
    };
    let folder = TempDir::new("nfs-load");
    let file = folder.join("capture.pcapng");
    let capture = Capture::start(&file);
    let nfs = format!("{SMALL}, stable = \"data-sync\"");
    let summary = measured(&server, &nfs, "queue_depth = 4\nstop = { requests = 1000 }");
    capture.stop();
    let nfs = format!("tcp.port=={NFS_PORT},rpc");
    let file = file.to_str().expect("UTF-8");
    let ask = |filter: &str, fields: &[&str]| {
        let mut arguments = vec!["-r", file, "-d", &nfs, "-Y", filter, "-T", "fields"];
        fields
            .iter()
            .for_each(|field| arguments.extend(["-e", field]));
        let text = run("tshark", &arguments);
        text.lines().map(str::to_string).collect::<Vec<_>>()
    };
    let broken = ask("_ws.malformed || rpc.fragment.error", &["frame.number"]);
    assert!(broken.is_empty(), "{broken:?}");
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for line in ask("nfs && rpc.msgtyp == 0", &["nfs.procedure_v3"]) {
        for procedure in line.split(',') {
            *seen.entry(procedure.to_string()).or_default() += 1;
        }
    }
    let counts = completed(&summary);
    println!("calls by procedure: {seen:?}; counted: {counts:?}");
    // These calls are not needed to create and remove the tree.
    let only_load = [
        ("read", "6"),
        ("access", "4"),
        ("read-link", "5"),
        ("rename", "14"),
        ("read-directory", "17"),
        ("set-attributes", "2"),
    ];
    for (name, procedure) in only_load {
        let counted: u64 = counts.iter().map(|run| run[name]).sum();
        assert_eq!(seen.get(procedure).copied(), Some(counted), "{name}");
    }
    // The calls that fill the files are UNSTABLE (0).
    let stable = ask(
        "nfs.procedure_v3 == 7 && rpc.msgtyp == 0",
        &["nfs.write.stable"],
    );
    let stable = stable
        .iter()
        .flat_map(|line| line.split(','))
        .filter(|word| *word == "1");
    let written: u64 = counts.iter().map(|run| run["write"]).sum();
    assert_eq!(stable.count() as u64, written);
}
