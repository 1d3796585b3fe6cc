//! A lab as `brunt run` creates it: a run killed at any moment leaves nothing behind, and an undisturbed run completes.
//!
//! The rule: a run's processes are found by a mark in their environment, which all of them inherit, so concurrent
//! tests don't interfere.

use crate::support;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brunt_core::random::Random;

const MARK: &str = "BRUNT_LAB_TEST";
/// Longest wait for the kernel to remove everything, and for a run to start its target, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const KILLS: u64 = 20;
/// Number of concurrent runs.
const TOGETHER: u64 = 5;
const SEED: u64 = 2026;
/// Number of processes of a complete run: the outer process, the inner process and the target.
const WHOLE: usize = 3;
/// See [`start`].
const BY_AGENT: &str = "-by-agent";

const EXPERIMENT: &str = r#"
name = "lab"
repetitions = 1
[lab]
hosts = ["client", "server"]
[lab.links.wan]
between = ["client", "server"]
preset = "four-sites"
loss = 0.001
[targets.remote]
serve = "null:1GiB?fault=off"
host = "server"
[workloads.reads]
read = 1.0
queue_depth = 4
stop = { STOP }
"#;

/// One fault of each kind that could be left behind: a CPU hog, locked memory, a target that is frozen or was just
/// restarted, and a fault in the target that is injected again after the restart.
const FAULTS: &str = r#"
[[fault]]
target = "remote"
storage = "slow:1ms,p=0.5"
[[fault]]
target = "remote"
kill = true
at = "50ms"
for = "30ms"
[[fault]]
target = "remote"
freeze = true
at = "250ms"
for = "200ms"
[[fault]]
cpu = 0.05
cores = [0]
at = "100ms"
[[fault]]
memory = "1MiB"
at = "100ms"
"#;

/// If the mark ends with [`BY_AGENT`], an agent on the client host issues the requests.
fn start(folder: &Path, mark: &str, stop: &str, faults: &str) -> Child {
    let file = folder.join(format!("{mark}.toml"));
    let text = EXPERIMENT.replace("STOP", stop) + faults;
    let text = match mark.ends_with(BY_AGENT) {
        true => text.replace("queue_depth = 4", "queue_depth = 4\nhosts = [\"client\"]"),
        false => text,
    };
    fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_brunt"))
        .arg("run")
        .arg(&file)
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The process ids and network namespaces of everything that belongs to a run.
fn remains(mark: &str) -> Vec<(u32, String)> {
    let wanted = format!("{MARK}={mark}");
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net"));
    let pids = support::processes_with(|variable| variable == wanted.as_bytes());
    pids.into_iter()
        .map(|pid| {
            (
                pid,
                namespace(pid)
                    .map(|name| name.display().to_string())
                    .unwrap_or_default(),
            )
        })
        .collect()
}

/// The processes of a command with these words, including the one that runs it in the lab.
fn running(mark: &str, words: &str) -> Vec<String> {
    remains(mark)
        .into_iter()
        .map(|(pid, _)| support::words_of(pid).join(" "))
        .filter(|line| line.contains(words))
        .collect()
}

/// Whether a run is possible here; if not, prints why.
fn may_run(folder: &Path) -> bool {
    let child = start(
        folder,
        &format!("whole-{}", std::process::id()),
        "requests = 40",
        "",
    );
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.contains("remote reads"), "{answer}");
        return true;
    }
    let forbidden = said.contains("namespaces of a lab") || said.contains("/dev/net/tun");
    assert!(
        forbidden && std::env::var("BRUNT_REQUIRE_ALL").is_err(),
        "{said}"
    );
    println!(
        "skipped: needs user namespaces and /dev/net/tun ({})",
        said.trim()
    );
    false
}

/// A run in a lab completes. A run whose outer or inner process is killed at a random moment leaves no process
/// behind, and therefore no namespace, link or target.
#[test]
fn killed_runs_leave_nothing_behind() {
    let scratch = tempfile::tempdir().unwrap();
    if !may_run(scratch.path()) {
        return;
    }
    println!("seed {SEED}");
    let most = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for lane in 0..TOGETHER {
            let (folder, most) = (scratch.path(), &most);
            scope.spawn(move || {
                let mut random = Random::for_part(SEED, lane);
                for kill in 0..KILLS / TOGETHER {
                    let by = if kill % 4 >= 2 { BY_AGENT } else { "" };
                    let mark = format!("kill-{}-{lane}-{kill}{by}", std::process::id());
                    let moment = Duration::from_micros(random.below(900_000));
                    // Every second run is killed once all its processes exist, however long that takes here; in one
                    // lane, at once, because a fault that fails on a busy machine ends its run.
                    let whole = kill % 2 == 1;
                    let moment = match whole && lane == 0 {
                        true => Duration::ZERO,
                        false => moment,
                    };
                    let seen = kill_at(folder, &mark, moment, whole, random.chance(0.3));
                    most.fetch_max(seen, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert!(
        most.into_inner() >= WHOLE,
        "no run was killed while its target stood"
    );
}

/// An external command runs on a host of the lab, finds the served target, and sees the configured delay; its exit
/// status is passed on.
#[test]
fn an_external_command_runs_on_a_host_of_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    if !may_run(folder.path()) {
        return;
    }
    let file = folder.path().join("far.toml");
    fs::write(&file, EXPERIMENT.replace("STOP", "time = \"1s\"")).unwrap();
    let brunt = env!("CARGO_BIN_EXE_brunt");
    let script = format!(
        "{brunt} --json io read \"$BRUNT_TARGET_REMOTE\" --bs 4k --depth 1 --count 3; exit 7"
    );
    let done = Command::new(brunt)
        .args([
            "lab".as_ref(),
            file.as_os_str(),
            "--delay".as_ref(),
            "30ms".as_ref(),
            "--".as_ref(),
        ])
        .args(["sh", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(7), "{told}");
    let read: serde_json::Value = serde_json::from_slice(&done.stdout).expect("what brunt io says");
    let fastest = read["latency_us"]["min"]
        .as_f64()
        .unwrap_or_else(|| panic!("{read:#}"));
    assert!(
        fastest >= 60_000.0,
        "a round trip of 60 ms took {fastest} us"
    );
}

/// Starts a run, kills it after `moment` (if `whole`, counted from when all its processes exist), and waits until
/// nothing is left; returns the number of processes of the run.
fn kill_at(folder: &Path, mark: &str, moment: Duration, whole: bool, inner: bool) -> usize {
    let mut child = start(folder, mark, "time = \"10m\"", FAULTS);
    let (since, mut attempt) = (Instant::now(), 0);
    let mut seen = remains(mark).len();
    while whole && seen < WHOLE {
        assert!(
            since.elapsed() < PATIENCE,
            "{mark}: no target after {PATIENCE:?}"
        );
        // A fault that fails on a busy machine has ended the run before its processes were seen.
        if child.try_wait().unwrap().is_some() {
            attempt += 1;
            let another = folder.join(format!("{mark}-{attempt}"));
            fs::create_dir(&another).unwrap();
            child = start(&another, mark, "time = \"10m\"", FAULTS);
        }
        std::thread::sleep(Duration::from_millis(5));
        seen = remains(mark).len();
    }
    if !moment.is_zero() {
        std::thread::sleep(moment);
        seen = remains(mark).len();
    }
    let outer = child.id();
    let victim = match inner {
        // Any process but the outer one: the first process in the namespaces, or a target.
        true => remains(mark)
            .into_iter()
            .map(|(pid, _)| pid)
            .find(|pid| *pid != outer)
            .unwrap_or(outer),
        false => outer,
    };
    let pid = rustix::process::Pid::from_raw(victim as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    if victim != outer {
        // A run whose target died ends with the reason; a run whose first process died ends at once.
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > PATIENCE {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let _ = child.wait();
    let since = Instant::now();
    loop {
        let left = remains(mark);
        if left.is_empty() {
            return seen;
        }
        assert!(
            since.elapsed() < PATIENCE,
            "killed {victim} (outer {outer}) after {moment:?}, left {left:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Builds `brunt lab …` with a separate folder of labs.
fn lab_command(folder: &Path, mark: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    command
        .arg("lab")
        .args(words)
        .env(MARK, mark)
        .env("XDG_RUNTIME_DIR", folder)
        .stdin(Stdio::null());
    command
}

/// Removes the labs that a failed test leaves running.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = lab_command(self.0, "", &["down", "--all"]).output();
    }
}

fn is_gone(mark: &str) {
    let since = Instant::now();
    while !remains(mark).is_empty() {
        assert!(since.elapsed() < PATIENCE, "left {:?}", remains(mark));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A lab exists until it is removed. Any number of commands can run on its hosts, with input and status passed on;
/// the lab is found by name, and error messages list the running labs.
#[test]
fn a_lab_runs_commands_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    if !may_run(folder.path()) {
        return;
    }
    let mark = format!("stand-{}", std::process::id());
    let _removed = Removed(folder.path());
    let lab = |words: &[&str]| lab_command(folder.path(), &mark, words).output().unwrap();
    let file = folder.path().join("far.toml");
    fs::write(&file, EXPERIMENT.replace("STOP", "time = \"1s\"")).unwrap();
    let file = file.to_str().unwrap();
    let output_text =
        |done: &std::process::Output| String::from_utf8_lossy(&done.stderr).into_owned();
    let fails = |words: &[&str], status: i32, reason: &str| {
        let done = lab(words);
        assert!(
            done.status.code() == Some(status) && output_text(&done).contains(reason),
            "{words:?}: {done:?}"
        );
    };
    fails(&["exec", "client"], 2, "no running lab");
    let up = lab(&["up", file, "--delay", "30ms"]);
    assert!(up.status.success(), "{}", output_text(&up));

    // Through the lab's link, with the caller's input and status.
    let brunt = env!("CARGO_BIN_EXE_brunt");
    let script = format!(
        "{brunt} --json io read \"$BRUNT_TARGET_REMOTE\" --bs 4k --depth 1 --count 3; exit 7"
    );
    let done = lab(&["exec", "client", "--", "sh", "-c", &script]);
    assert_eq!(done.status.code(), Some(7), "{}", output_text(&done));
    let read: serde_json::Value = serde_json::from_slice(&done.stdout).expect("what brunt io says");
    let fastest = read["latency_us"]["min"]
        .as_f64()
        .unwrap_or_else(|| panic!("{read:#}"));
    assert!(
        fastest >= 60_000.0,
        "a round trip of 60 ms took {fastest} us"
    );
    // Change a link on the fly: the round trip becomes 80 ms, then 60 ms again.
    let fastest = || {
        let script =
            format!("{brunt} --json io read \"$BRUNT_TARGET_REMOTE\" --bs 4k --depth 1 --count 3");
        let done = lab(&["exec", "client", "--", "sh", "-c", &script]);
        let read: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        read["latency_us"]["min"].as_f64().unwrap()
    };
    let set = |words: &[&str]| {
        let done = lab(&[&["set"], words].concat());
        assert!(done.status.success(), "{words:?}: {}", output_text(&done));
    };
    set(&["wan", "delay=50ms", "--from", "server"]);
    let slower = fastest();
    assert!(slower >= 80_000.0, "{slower}");
    set(&["far", "wan", "--restore"]);
    // A busy machine can make all three round trips late, so this is repeated.
    let mut as_before = 0.0;
    support::eventually("the round trip is as before", 12, || {
        as_before = fastest();
        as_before < 80_000.0
    });
    assert!(as_before >= 60_000.0, "{as_before}");
    fails(
        &["set", "wan", "--restore"],
        2,
        "link wan already has these settings",
    );
    fails(
        &["set", "lan", "delay=1ms"],
        2,
        "unknown link 'lan'; the lab's links are wan",
    );
    fails(&["set", "wan", "dely=1ms"], 2, "did you mean delay?");
    fails(&["set", "wan", "loss=2"], 2, "loss=2: ");
    fails(
        &["set", "wan", "loss=1%", "--from", "here"],
        2,
        "link wan does not end at 'here'",
    );
    fails(&["set", "wan"], 2, "no settings");
    let list: serde_json::Value = serde_json::from_slice(&lab(&["list", "--json"]).stdout).unwrap();
    let changes = list["labs"][0]["description"]["changes"]
        .as_array()
        .unwrap();
    assert_eq!(changes.len(), 2, "{list:#}");
    assert_eq!(changes[0]["options"][0], "delay=50ms");
    assert_eq!(
        (&changes[0]["from"], &changes[1]["restored"]),
        (&"server".into(), &true.into())
    );

    let input = fs::File::open(file).unwrap();
    let mut copy = lab_command(
        folder.path(),
        &mark,
        &["exec", "far", "server", "--", "cat"],
    );
    assert_eq!(
        copy.stdin(input).output().unwrap().stdout,
        fs::read(file).unwrap()
    );
    let here = lab(&["exec", "server", "--", "pwd"]);
    assert_eq!(
        String::from_utf8_lossy(&here.stdout).trim(),
        std::env::current_dir().unwrap().to_str().unwrap()
    );

    let named = lab(&[
        "exec",
        "client",
        "--",
        "sh",
        "-c",
        "grep server /etc/hosts; tail -n1 /etc/hosts",
    ]);
    let system = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let expected = format!(
        "10.77.0.2\tserver\n{}\n",
        system.lines().last().unwrap_or_default()
    );
    assert!(
        system.is_empty() || String::from_utf8_lossy(&named.stdout) == expected,
        "{named:?}"
    );

    // A mount on a host is visible there, including to later commands.
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    let mounted = lab(&[
        "exec",
        "server",
        "--",
        "sh",
        "-c",
        "mount -t tmpfs none $0 && touch $0/file",
        place,
    ]);
    assert!(mounted.status.success(), "{}", output_text(&mounted));
    let seen =
        |host: &str| String::from_utf8(lab(&["exec", host, "--", "ls", place]).stdout).unwrap();
    assert_eq!(
        (seen("server").as_str(), seen("client").as_str()),
        ("file\n", "")
    );
    assert!(fs::read_dir(place).unwrap().next().is_none());

    fails(
        &["exec", "nowhere"],
        2,
        "the lab's hosts are client, server",
    );
    fails(&["exec", "near", "client"], 2, "running: far");
    fails(
        &["exec", "client", "--", "/no/such/program"],
        2,
        "/no/such/program: No such file",
    );
    fails(&["up", file], 2, "a lab named 'far' is already running");
    assert!(lab(&["up", file, "--name", "near"]).status.success());
    fails(
        &["exec", "client", "--", "true"],
        2,
        "several labs are running: far, near",
    );
    let list: serde_json::Value = serde_json::from_slice(&lab(&["list", "--json"]).stdout).unwrap();
    let names = |list: &serde_json::Value| {
        let labs = list["labs"].as_array().unwrap().iter();
        labs.map(|lab| lab["lab"]["name"].as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&list), ["far", "near"]);
    assert_eq!(
        list["labs"][0]["description"]["hosts"][1]["address"],
        "10.77.0.2"
    );
    assert!(lab(&["down", "--all"]).status.success());
    is_gone(&mark);
    assert_eq!(
        fs::read_dir(folder.path().join("brunt-labs"))
            .unwrap()
            .count(),
        0
    );
}

/// When the process that holds a lab is killed, everything in the lab ends, including commands; the files that remain
/// in the folder of labs are removed at the next listing. A command ends with the process that runs it.
#[test]
fn killed_labs_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    if !may_run(folder.path()) {
        return;
    }
    let mark = format!("killed-lab-{}", std::process::id());
    let _removed = Removed(folder.path());
    let lab = |words: &[&str]| lab_command(folder.path(), &mark, words);
    let file = folder.path().join("far.toml");
    fs::write(&file, EXPERIMENT.replace("STOP", "time = \"1s\"")).unwrap();
    let up = lab(&["up", file.to_str().unwrap(), "--json"])
        .output()
        .unwrap();
    let state: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    let pid = state["lab"]["pid"].as_i64().unwrap();
    let kill = |pid: i64| {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let start = || {
        let mut command = lab(&[
            "exec",
            "client",
            "--",
            "sh",
            "-c",
            "echo begun; exec sleep 1000",
        ]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut begun = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
        child
    };
    let mut alone = start();
    support::eventually("the command and its caller run", 12, || {
        running(&mark, "sleep 1000").len() == 2
    });
    kill(i64::from(alone.id()));
    alone.wait().unwrap();
    support::eventually("the command ends with its caller", 12, || {
        running(&mark, "sleep 1000").is_empty()
    });
    let inside = start();
    kill(pid);
    let ended = inside.wait_with_output().unwrap();
    assert_eq!(
        ended.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    is_gone(&mark);
    let left = fs::read_dir(folder.path().join("brunt-labs"))
        .unwrap()
        .count();
    assert_eq!(left, 3, "a killed lab cannot remove its files");
    // A killed process keeps its files until all of its memory and namespaces have been torn down.
    let since = Instant::now();
    loop {
        let list = lab(&["list"]).output().unwrap();
        let told = String::from_utf8_lossy(&list.stdout).into_owned();
        if told.trim() == "no running lab" {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{told}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        fs::read_dir(folder.path().join("brunt-labs"))
            .unwrap()
            .count(),
        0
    );
}
