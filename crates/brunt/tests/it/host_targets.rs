//! Targets and sinks that other hosts serve: agents on this machine, reached through a stand-in for ssh and over TLS,
//! start, supervise and end them, whatever happens to the controller.

use crate::support;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use crate::support::agents::{
    Listening, certificates, host_by_agent, host_by_ssh, is_alive, pids, ssh_to_here,
};
use crate::support::{brunt, eventually, processes, words_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// In seconds; longer than anything here takes on an idle machine.
const PATIENCE: u64 = 12;
/// The start of every experiment here, with a long silence limit: a machine that runs many tests concurrently may not
/// answer for seconds.
const HEAD: &str = "name = \"x\"\nrepetitions = 1\nhost_silence = \"60s\"\n";

fn command(folder: &Path, text: &str) -> (Command, PathBuf) {
    let (file, out) = (folder.join("x.toml"), folder.join("x.results"));
    let _ = std::fs::remove_dir_all(&out);
    std::fs::write(&file, format!("{HEAD}{text}")).unwrap();
    let mut command = brunt();
    command.arg("run").arg(&file).arg("--out").arg(&out);
    (command, out)
}

fn run(folder: &Path, text: &str) -> (Output, Value, String) {
    let (mut command, out) = command(folder, text);
    let output = command.output().unwrap();
    let summary = std::fs::read(out.join("summary.json")).unwrap_or_default();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (
        output,
        serde_json::from_slice(&summary).unwrap_or_default(),
        said,
    )
}

/// A host reached by ssh that serves on loopback, because the host's name isn't an address.
fn serving_by_ssh(folder: &Path, name: &str, shift_ns: i64) -> String {
    host_by_ssh(folder, name, shift_ns) + "address = \"127.0.0.1\"\n"
}

/// The serving processes started by the agent with this process id, or by one of its children.
fn roles_of(agent: u32) -> Vec<u32> {
    let parent = ["--parent".to_string(), agent.to_string()];
    processes()
        .filter(|pid| words_of(*pid).windows(2).any(|two| *two == parent))
        .collect()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Whether any file in the folder contains this text.
fn has(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .any(|entry| match entry.path() {
            path if path.is_dir() => has(&path, text),
            path => {
                let bytes = std::fs::read(&path).unwrap();
                bytes
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            }
        })
}

/// A host serves a target and a sink, which workers on this machine and on another host open. Probes sample the
/// serving processes, no result contains the login, and nothing is left behind.
#[test]
fn hosts_serve_targets_to_each_other() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let client = Listening::start(&identity, &["--allow", "iscsi:", "--allow", "tcp:"]);
    let array = Listening::start(
        &identity,
        // An address on a network to which the agent isn't connected.
        &[
            "--allow",
            "serve:127.0.0.2",
            "--allow",
            "memory:",
            "--clock-shift-ns=9000000000000",
        ],
    );
    let text = format!(
        "{}{}address = \"127.0.0.2\"\n{}\
         [targets.disk]\nserve = [\"memory:8MiB\", \"memory:4MiB\"]\nlun = 1\nhost = \"array\"\n\
         [targets.net]\nserve = \"tcp\"\nhost = \"array\"\n\
         [targets.second]\nserve = \"memory:8MiB\"\nhost = \"other\"\nworkloads = [\"there\"]\n\
         [workloads.here]\nread = 0.5\nstop = {{ time = \"2s\" }}\n\
         [workloads.there]\nread = 0.5\nhosts = [\"client\"]\nstop = {{ time = \"2s\" }}\n\
         [probes]\ninterval = \"50ms\"\n",
        host_by_agent(certificates.path(), "client", &client),
        host_by_agent(certificates.path(), "array", &array),
        serving_by_ssh(folder.path(), "other", -3_000_000_000),
    );
    let (output, summary, said) = run(folder.path(), &text);
    assert!(output.status.success(), "{said}");
    assert_eq!(summary["complete"], true, "{summary:#}");
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 5, "{summary:#}");
    for point in points {
        let run = &point["runs"][0];
        assert!(run["requests_per_second"].as_f64() > Some(0.0), "{point:#}");
        let means = &run["probes"]["hosts"]["array"];
        for role in ["disk", "net"] {
            let bytes = means[&format!("process.{role}.resident_bytes")].as_f64();
            assert!(bytes > Some(0.0), "{role}: {means:#}");
        }
    }
    assert_eq!(
        summary["experiment"]["targets"]["disk"]["host"], "array",
        "{summary:#}"
    );
    assert!(
        !has(&folder.path().join("x.results"), "brunt%"),
        "a login is in the results"
    );
    for agent in [array.child.id()]
        .into_iter()
        .chain(pids(folder.path(), "other").iter().map(|pid| *pid as u32))
    {
        assert!(
            roles_of(agent).is_empty(),
            "targets end with the experiment"
        );
    }
    // A check also starts targets that only other hosts use.
    let (mut check, _) = command(folder.path(), &text);
    let output = check.arg("--check=open").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        roles_of(array.child.id()).is_empty(),
        "targets end with the check"
    );
}

/// A copy of the program that came by ssh and removed itself can still serve.
#[test]
fn a_program_whose_file_was_removed_still_serves() {
    let folder = TempDir::new().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let ssh = ssh_to_here(
        folder.path(),
        &format!("export TMPDIR={}", temporary.display()),
    );
    let text = format!(
        "[hosts.array]\nssh = \"array\"\ncommand = \"{ssh}\"\naddress = \"127.0.0.1\"\n\
         [targets.disk]\nserve = \"memory:8MiB\"\nhost = \"array\"\n[workloads.w]\nstop = {{ requests = 10 }}\n"
    );
    let (output, summary, said) = run(folder.path(), &text);
    assert!(
        output.status.success() && summary["complete"] == true,
        "{said}"
    );
    assert!(
        std::fs::read_dir(&temporary).unwrap().next().is_none(),
        "nothing is left"
    );
}

/// A target that a host serves for an experiment can't be opened without the experiment's login.
#[test]
fn a_target_cannot_be_opened_without_its_login() {
    let folder = TempDir::new().unwrap();
    let text = format!(
        "{}[targets.disk]\nserve = \"memory:8MiB\"\nhost = \"array\"\n[workloads.w]\nstop = {{ time = \"1h\" }}\n",
        serving_by_ssh(folder.path(), "array", 0)
    );
    let (mut child, role) = started(folder.path(), &text);
    let words = words_of(role);
    assert!(
        words.iter().any(|word| word == "env:BRUNT_ROLE_LOGIN"),
        "no secret is in a command line: {words:?}"
    );
    let port = listening_port(role);
    let url = format!("iscsi://127.0.0.1:{port}/{}/0", support::TARGET_NAME);
    let output = brunt().args(["io", "capacity", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("refused the login"),
        "{said}"
    );
    signal(child.id(), Signal::INT);
    child.wait().unwrap();
}

/// The port on which a process listens.
fn listening_port(pid: u32) -> u16 {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_string(),
            )
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // proc(5): 0A is TCP_LISTEN; the tenth word is the inode.
        let is_it = words.get(3) == Some(&"0A")
            && sockets
                .iter()
                .any(|inode| words.get(9) == Some(&inode.as_str()));
        is_it.then(|| u16::from_str_radix(words[1].split_once(':').unwrap().1, 16).unwrap())
    };
    table.lines().find_map(port).expect("it listens")
}

/// A target that isn't allowed on the agent's command line, or that can't be served, ends the experiment before its
/// first run.
#[test]
fn a_target_that_may_not_be_served_is_refused() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let check = |allow: &[&str], serve: &str, more: &str, expected: &str| {
        let words: Vec<&str> = allow.iter().flat_map(|word| ["--allow", *word]).collect();
        let agent = Listening::start(&identity, &words);
        let text = format!(
            "{}{more}\n[targets.disk]\nserve = \"{serve}\"\nhost = \"array\"\n[workloads.w]\nstop = {{ requests = 10 }}\n",
            host_by_agent(certificates.path(), "array", &agent)
        );
        let (output, _, said) = run(folder.path(), &text);
        assert!(said.contains(expected), "{serve}: {said}");
        assert_eq!(
            output.status.success(),
            expected.is_empty(),
            "{serve}: {said}"
        );
        assert!(
            roles_of(agent.child.id()).is_empty(),
            "{serve}: nothing is left"
        );
    };
    let file = folder.path().join("disk");
    std::fs::File::create(&file)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let file = file.display().to_string();
    check(&["memory:"], "memory:1MiB", "", "--allow serve:127.0.0.1");
    check(
        &["memory:", "serve:10.0.0.9"],
        "memory:1MiB",
        "",
        "--allow serve:127.0.0.1",
    );
    check(
        &["serve:"],
        "memory:1MiB",
        "",
        "'memory:' may not be opened here",
    );
    check(&["serve:", "memory:"], &file, "", "may not be opened here");
    let nested = format!("array:raid0,[memory:1MiB],[{file}]");
    check(
        &["serve:", "memory:", "array:"],
        &nested,
        "",
        "may not be opened here",
    );
    let beside = format!("memory:1MiB,aptpl={file}");
    check(
        &["serve:", "memory:"],
        &beside,
        "",
        "may not be opened here",
    );
    check(
        &["serve:", "memory:"],
        "memory:1MiB",
        "address = \"192.0.2.1\"",
        "192.0.2.1",
    );
    check(
        &["serve:", "memory:"],
        "memory:1MiB",
        "address = \"no-such-host.invalid\"",
        "write address =",
    );
    check(&["serve:127.0.0.1", "memory:"], "memory:1MiB", "", "");
    check(&["serve:", &file], &file, "", "");
}

/// Paths of a served target belong to the serving host: a check doesn't complain about paths that this machine lacks or
/// can't access.
#[test]
fn a_check_leaves_paths_to_the_host_that_serves_them() {
    let folder = TempDir::new().unwrap();
    for path in ["/nowhere/disk", "/proc/version/disk"] {
        let text = format!(
            "[hosts.array]\nssh = \"array\"\naddress = \"127.0.0.1\"\n\
             [targets.disk]\nserve = \"{path}\"\nhost = \"array\"\n[workloads.w]\nstop = {{ requests = 10 }}\n"
        );
        let (mut check, _) = command(folder.path(), &text);
        let output = check.arg("--check").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains(path), "{said}");
    }
}

/// Starts an experiment and waits until its host `array` serves; returns the controller and the target's process.
fn started(folder: &Path, text: &str) -> (Child, u32) {
    let (mut command, out) = command(folder, text);
    let child = command.spawn().unwrap();
    let mut role = None;
    eventually("the target is there", PATIENCE, || {
        role = pids(folder, "array")
            .iter()
            .find_map(|agent| roles_of(*agent as u32).first().copied());
        role.is_some()
    });
    eventually("it is measured", PATIENCE, || {
        out.join("summary.json").exists()
    });
    (child, role.unwrap())
}

fn endless(folder: &Path) -> String {
    endless_on(&serving_by_ssh(folder, "array", 0))
}

fn endless_on(host: &str) -> String {
    format!(
        "{host}[targets.disk]\nserve = \"memory:8MiB\"\nhost = \"array\"\noptions = \"reconnect=0\"\n[probes]\ninterval = \"0s\"\n\
         [workloads.w]\ndrain = \"100ms\"\nstop = {{ time = \"1h\" }}\n"
    )
}

/// A killed controller leaves no target behind, not even a frozen one, and no agent.
#[test]
fn targets_end_when_the_controller_is_killed() {
    for frozen in [false, true] {
        let folder = TempDir::new().unwrap();
        let (mut controller, role) = started(folder.path(), &endless(folder.path()));
        if frozen {
            signal(role, Signal::STOP);
        }
        controller.kill().unwrap();
        controller.wait().unwrap();
        eventually("the target ends", PATIENCE, || !is_alive(role as i32));
        eventually("no agent is left", PATIENCE, || {
            pids(folder.path(), "array")
                .iter()
                .all(|pid| !is_alive(*pid))
        });
    }
}

/// A listening agent keeps running without its controller's targets: it ends them when the controller is killed, or,
/// if the controller is frozen, when its lease expires.
#[test]
fn a_listening_agent_ends_the_targets_of_a_lost_controller() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let mut agent = Listening::start(
        &identity,
        &["--allow", "serve:", "--allow", "memory:", "--lease", "5s"],
    );
    for lost_by in [Signal::KILL, Signal::STOP] {
        let host = host_by_agent(certificates.path(), "array", &agent);
        let (mut command, out) = command(folder.path(), &endless_on(&host));
        let mut controller = command.spawn().unwrap();
        let mut role = None;
        eventually("the target is there", PATIENCE, || {
            role = roles_of(agent.child.id()).first().copied();
            role.is_some()
        });
        eventually("it is measured", PATIENCE, || {
            out.join("summary.json").exists()
        });
        signal(controller.id(), lost_by);
        eventually("the target ends", PATIENCE, || {
            !is_alive(role.unwrap() as i32)
        });
        assert!(
            agent.child.try_wait().unwrap().is_none(),
            "the agent goes on"
        );
        controller.kill().unwrap();
        controller.wait().unwrap();
    }
}

/// A killed agent leaves no target behind, and the results name the agent's host.
#[test]
fn targets_end_when_the_agent_is_killed() {
    let folder = TempDir::new().unwrap();
    let (mut controller, role) = started(folder.path(), &endless(folder.path()));
    for pid in pids(folder.path(), "array") {
        signal(pid as u32, Signal::KILL);
    }
    eventually("the target ends", PATIENCE, || !is_alive(role as i32));
    assert!(!controller.wait().unwrap().success());
    let summary = std::fs::read_to_string(folder.path().join("x.results/summary.json")).unwrap();
    assert!(summary.contains("host array"), "{summary}");
}

/// A target that dies unexpectedly ends its run; the message says how it died and where.
#[test]
fn an_unexpected_death_of_a_target_ends_the_run() {
    let folder = TempDir::new().unwrap();
    let (mut controller, role) = started(folder.path(), &endless(folder.path()));
    signal(role, Signal::KILL);
    assert!(!controller.wait().unwrap().success());
    let summary = std::fs::read_to_string(folder.path().join("x.results/summary.json")).unwrap();
    assert!(
        summary.contains("disk ended unexpectedly (signal: 9"),
        "{summary}"
    );
}

/// Faults of a target on another host are injected, proven and removed like local ones, with times on the
/// controller's clock although the host's clock is hours ahead. On a busy machine, the test is repeated with times
/// doubled.
#[test]
fn faults_of_a_remote_target_are_proven_and_removed() {
    let mut said = String::new();
    for factor in [1, 2, 4, 8, 16] {
        let folder = TempDir::new().unwrap();
        let fault = |what: &str, at: u32, lasts: u32| {
            let (at, lasts) = (at * factor, lasts * factor);
            format!("[[fault]]\ntarget = \"disk\"\n{what}\nat = \"{at}ms\"\nfor = \"{lasts}ms\"\n")
        };
        let text = format!(
            "{}[targets.disk]\nserve = \"memory:8MiB?fault=off\"\nhost = \"array\"\n[probes]\ninterval = \"0s\"\n\
             [workloads.w]\nretry = {{ count = 100, on = \"any\" }}\ninterval = \"50ms\"\nstop = {{ time = \"{}ms\" }}\n{}{}{}",
            serving_by_ssh(folder.path(), "array", 9_000_000_000_000),
            3000 * factor,
            fault("storage = \"aborted-command,p=0.5\"", 300, 500),
            fault("freeze = true", 1000, 400),
            fault("kill = true", 1600, 600),
        );
        let (output, summary, words) = run(folder.path(), &text);
        said = words;
        if !support::was_in_time(output.status.success(), &said) {
            continue;
        }
        let faults = summary["points"][0]["runs"][0]["faults"]
            .as_array()
            .unwrap()
            .clone();
        let kinds: Vec<&str> = faults
            .iter()
            .filter_map(|fault| fault["kind"].as_str())
            .collect();
        assert_eq!(kinds, ["storage", "freeze", "kill"]);
        for (fault, (at, shown, gone)) in faults.iter().zip([
            (0.3, "affected", "disarmed"),
            (1.0, "are in states T", "are in states"),
            (1.6, "is dead", "has replaced it"),
        ]) {
            let start = fault["start_s"]
                .as_f64()
                .unwrap_or_else(|| panic!("{fault:#}"));
            let begin = at * f64::from(factor);
            // A fault is never early, apart from the uncertainty of the host's clock; how late it is depends on the
            // machine.
            assert!(
                (begin - 0.1..begin + 100.0).contains(&start),
                "on our clock: {fault:#}"
            );
            assert!(
                fault["shown_by"].as_str().unwrap().contains(shown),
                "{fault:#}"
            );
            assert!(
                fault["gone_by"].as_str().unwrap().contains(gone),
                "{fault:#}"
            );
        }
        return;
    }
    panic!("never as it was meant to be: {said}");
}
