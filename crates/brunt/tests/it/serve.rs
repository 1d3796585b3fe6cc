//! Targets that an experiment serves itself: network, diskless and full target in one experiment without any setup,
//! roles that always end with the experiment, and a role that dies.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::support::{TempDir, eventually, experiment, run_within};
use brunt_lake::read_table;
use brunt_result::tables::intervals;
use brunt_study::experiment::{Serve, Target};
use brunt_study::host::{HostName, Launcher, LocalLauncher};
use brunt_study::role::{self, serving};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let read = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // The process's name is in parentheses and may contain anything; state and parent follow.
    let parent_of = |pid: u32| {
        read(pid)?
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse::<u32>()
            .ok()
    };
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number as i32).expect("a process's number")
}

fn is_there(number: u32) -> bool {
    test_kill_process(pid(number)).is_ok()
}

/// A single file compares the network, a local device, a diskless target and a full target.
#[test]
fn one_experiment_compares_four_layers() {
    let folder = TempDir::new("serve");
    let disk = folder.join("disk.img");
    let disk = disk.to_str().expect("a plain path");
    let text = format!(
        "name = \"layers\"\nrepetitions = 1\n\
         [targets.network]\nserve = \"tcp\"\n\
         [targets.local]\nurl = \"file:{disk}.local?size=8MiB&create=yes\"\n\
         [targets.diskless]\nserve = \"null:8MiB\"\noptions = \"sessions=2&send_buffer=64k\"\n\
         [targets.full]\nserve = [\"memory:1MiB\", \"file:{disk}?size=8MiB&create=yes,wb\"]\nlun = 1\n\
         [workloads.mixed]\nread = 0.5\nqueue_depth = 8\nstop = {{ requests = 2000 }}\n"
    );
    let output = run_within(&mut experiment(&folder, &text), 60);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let points = summary["points"].as_array().expect("points");
    let labels: Vec<&str> = points
        .iter()
        .filter_map(|point| point["target"].as_str())
        .collect();
    assert_eq!(labels, ["diskless", "full", "local", "network"]);
    for point in points {
        let run = &point["runs"][0];
        let ops = run["ops"].as_array().expect("kinds of operations");
        let done: u64 = ops
            .iter()
            .map(|op| op["completed"].as_u64().expect("a count"))
            .sum();
        assert_eq!(done, 2000, "{point}");
    }
}

/// An error about a LUN that can't be served contains the target's own message.
#[test]
fn an_error_about_a_lun_has_the_targets_message() {
    let folder = TempDir::new("serve");
    let text = "name = \"x\"\n[targets.san]\nserve = \"memory:1GiB,fast\"\n[workloads.w]\nstop = { requests = 1 }\n";
    let output = run_within(&mut experiment(&folder, text), 30);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("target san: it ended before it was listening")
            && said.contains("unknown option 'fast'"),
        "{said}"
    );
}

/// A role that dies during a run invalidates the run, and the message says so.
#[test]
fn a_role_that_dies_invalidates_the_run() {
    let folder = TempDir::new("serve");
    let text = "name = \"x\"\n[targets.san]\nserve = \"memory:1MiB\"\noptions = \"reconnect=0\"\n\
                [workloads.w]\ninterval = \"50ms\"\nstop = { time = \"30s\" }\ndrain = \"100ms\"\n";
    let run = experiment(&folder, text)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    eventually("the role is there", 20, || !children(run.id()).is_empty());
    eventually("the run is on its way", 20, || {
        folder.join("results/summary.json").exists()
    });
    eventually("the load is measured", 20, || {
        let mut rows = 0;
        let read = read_table(&folder.join("results"), &intervals::TABLE, |batch| {
            rows += batch.rows();
        });
        read.is_ok() && rows > 0
    });
    kill_process(pid(children(run.id())[0]), Signal::KILL).expect("it is ours");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("san ended unexpectedly (signal: 9"), "{said}");
    // The message suggests settings with which the run would have been valid, computed from the time of the death.
    assert!(
        said.contains("of the run; a run with stop = { time = \""),
        "{said}"
    );
    assert!(said.contains("kill = true and at = \""), "{said}");
    let summary = std::fs::read_to_string(folder.join("results/summary.json")).expect("a summary");
    assert!(summary.contains("ended unexpectedly"), "{summary}");
}

/// A killed experiment leaves no role behind, not even a frozen one; Ctrl-C ends both experiment and roles.
#[test]
fn roles_end_with_the_experiment() {
    for signal in [Signal::KILL, Signal::INT] {
        let folder = TempDir::new("serve");
        let text = "name = \"x\"\n[targets.a]\nserve = \"memory:1MiB\"\n[targets.b]\nserve = \"tcp\"\n\
                    [workloads.w]\nstop = { time = \"30s\" }\ndrain = \"100ms\"\n";
        let mut run = experiment(&folder, text)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        eventually("the run is on its way", 20, || {
            folder.join("results/summary.json").exists()
        });
        let roles = children(run.id());
        assert_eq!(roles.len(), 2);
        if signal == Signal::KILL {
            kill_process(pid(roles[0]), Signal::STOP).expect("it is ours");
        }
        kill_process(pid(run.id()), signal).expect("it is ours");
        run.wait().expect("it ends");
        eventually("the roles are gone", 10, || {
            roles.iter().all(|role| !is_there(*role))
        });
    }
}

/// This host, with the program under test.
#[derive(Default)]
struct Tested(LocalLauncher);

impl Launcher for Tested {
    fn host(&self) -> &HostName {
        self.0.host()
    }
    fn address(&self) -> IpAddr {
        self.0.address()
    }
    fn program(&self) -> std::io::Result<PathBuf> {
        Ok(env!("CARGO_BIN_EXE_brunt").into())
    }
    fn place(&self, _command: &mut Command) -> std::io::Result<()> {
        Ok(())
    }
}

/// A role can be frozen, thawed, killed and restarted at its address, from any thread; only an unrequested death is
/// reported as one.
#[test]
fn only_an_unrequested_death_of_a_role_counts_as_one() {
    let serve = Serve::One("memory:1MiB".into());
    let target = Target {
        serve: Some(serve.clone()),
        ..Target::default()
    };
    let role = role::start(
        "san",
        serving(&serve).as_ref(),
        Vec::new(),
        Arc::new(Tested::default()),
    )
    .expect("it starts");
    let url = target.url_at(role.address());
    let open = |url: &str| brunt_block::open_url_with(url, brunt_iscsi::BACKENDS, false);
    open(&url).expect("it serves");
    role.freeze().expect("it freezes");
    assert!(role.is_frozen());
    let error = open(&format!("{url}?timeout=300ms"))
        .err()
        .expect("nobody answers")
        .to_string();
    assert!(error.contains("timed out waiting for a reply"), "{error}");
    role.thaw().expect("it thaws");
    open(&url).expect("it serves again");
    role.kill();
    role.check().expect("that was asked for");
    assert!(role.freeze().is_err());
    open(&format!("{url}?timeout=300ms"))
        .err()
        .expect("nobody is there");
    // Restart it on a thread that then ends: the role must not end with the thread.
    let again = Arc::clone(&role);
    std::thread::spawn(move || again.restart())
        .join()
        .expect("no panic")
        .expect("it starts again");
    std::thread::sleep(std::time::Duration::from_millis(100));
    role.check().expect("it is alive");
    open(&url).expect("it serves where it served");
    let before = role.pid();
    kill_process(pid(before), Signal::KILL).expect("it is ours");
    eventually("the death is noticed", 5, || role.check().is_err());
    assert!(
        role.check()
            .unwrap_err()
            .to_string()
            .contains("san ended unexpectedly")
    );
    role.restart().expect("it starts again");
    assert!(role.pid() != before && role.check().is_ok());
    role.freeze().expect("it freezes");
    role.stop().expect("a frozen role ends as well");
}
