//! Faults on other hosts in an experiment: agents on this machine inject, prove and remove them, even if the
//! controller is gone.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::agents::{Listening, certificates, host_by_agent, host_by_ssh, is_alive, pids};
use crate::support::{brunt, run_within, was_in_time};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that only sleeps, under a unique process name.
struct Sleeper {
    child: Child,
    name: String,
}

impl Sleeper {
    fn start(folder: &Path, what: &str) -> Sleeper {
        // Two processes with the same name would make a fault ambiguous, and tests run concurrently.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("{what}{number}-{}", std::process::id());
        // Use a link, not a copy: executing a copy would fail (ETXTBSY) if another test forked while it was written.
        std::os::unix::fs::symlink("/bin/sleep", folder.join(&name)).unwrap();
        Sleeper::again(folder, &name)
    }

    /// Starts another process with this program name.
    fn again(folder: &Path, name: &str) -> Sleeper {
        let child = Command::new(folder.join(name)).arg("600").spawn().unwrap();
        eventually("it has its name", || comm(child.id()) == name);
        let name = name.to_string();
        Sleeper { child, name }
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_string()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes an experiment with one run of this duration.
fn write(folder: &Path, time: &str, hosts: &str, faults: &str) -> (PathBuf, PathBuf) {
    let file = folder.join("x.toml");
    let text = format!(
        "name = \"x\"\nrepetitions = 1\nhost_silence = \"60s\"\n{hosts}\n[targets.disk]\nurl = \"memory:1MiB\"\n\
         [workloads.w]\ninterval = \"50ms\"\narrival = {{ kind = \"open\", rate = 50 }}\nstop = {{ time = \"{time}\" }}\n\
         [probes]\ninterval = \"0s\"\n{faults}"
    );
    std::fs::write(&file, text).unwrap();
    (file, folder.join("x.results"))
}

fn run(folder: &Path, time: &str, hosts: &str, faults: &str) -> (Output, Value, String) {
    let (file, out) = write(folder, time, hosts, faults);
    let output = brunt()
        .arg("run")
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    let summary = std::fs::read(out.join("summary.json")).unwrap_or_default();
    let summary: Value = serde_json::from_slice(&summary).unwrap_or_default();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, summary, said)
}

/// Each kind of fault is visible on the host while active, and gone afterwards. Its times are on the controller's
/// clock although the host's clock is hours ahead. On a busy machine, the test is repeated with longer times.
#[test]
fn faults_are_injected_proven_and_removed() {
    let is_done = [1, 4, 16].into_iter().any(faults_are_removed_after_times);
    assert!(is_done, "never as it was meant to be");
}

/// Injects faults at times that are longer by this factor; returns whether the run lasted long enough for them.
fn faults_are_removed_after_times(factor: u32) -> bool {
    let folder = TempDir::new().unwrap();
    let (frozen, killed) = (
        Sleeper::start(folder.path(), "hfz"),
        Sleeper::start(folder.path(), "hkl"),
    );
    let host = host_by_ssh(folder.path(), "array", 9_000_000_000_000);
    let [second, half, fifth] = [1000, 500, 200].map(|ms| ms * factor);
    let faults = format!(
        "[[fault]]\nhost = \"array\"\nfreeze = true\nprocess = \"{}\"\nat = \"{half}ms\"\nfor = \"{second}ms\"\n\
         [[fault]]\nhost = \"array\"\nkill = true\nprocess = {}\nat = \"{second}ms\"\n\
         [[fault]]\nhost = \"array\"\nmemory = \"8MiB\"\nat = \"{fifth}ms\"\nfor = \"{half}ms\"\n",
        frozen.name,
        killed.child.id()
    );
    let time = format!("{}s", 4 * factor);
    let (output, summary, said) = run(folder.path(), &time, &host, &faults);
    if !was_in_time(output.status.success(), &said) {
        return false;
    }
    let run = &summary["points"][0]["runs"][0];
    let list = run["faults"].as_array().unwrap();
    assert_eq!(list.len(), 3, "{run:#}");
    let shown = |index: usize, words: &str| {
        let fault = &list[index];
        let text = fault.to_string();
        assert!(text.contains(words), "{words}: {fault:#}");
        assert!(text.contains("host array"), "{fault:#}");
        fault["start_s"]
            .as_f64()
            .unwrap_or_else(|| panic!("{fault:#}"))
    };
    // A fault is never early; how late it is depends on the machine.
    let times = [
        shown(0, "are in states T"),
        shown(1, "is dead"),
        shown(2, "more locked"),
    ];
    for (time, at) in times.into_iter().zip([half, second, fifth]) {
        let at = f64::from(at) / 1e3;
        assert!(
            (at..at + 60.0).contains(&time),
            "on our clock: {time} s, not {at} s"
        );
    }
    assert_ne!(frozen.state(), 'T');
    assert_eq!(killed.state(), 'Z', "it is dead");
    true
}

/// A fault that isn't allowed on an agent's command line, or that is impossible, makes the run invalid, with a
/// message that says what to do.
#[test]
fn forbidden_and_impossible_faults_invalidate_the_run() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let agent = Listening::start(
        &identity,
        &["--allow", "fault:memory", "--allow", "fault:freeze=tgtd"],
    );
    let host = host_by_agent(certificates.path(), "array", &agent);
    let check = |fault: &str, expected: &str| {
        let faults = format!("[[fault]]\nhost = \"array\"\n{fault}\n");
        let (output, _, said) = run(folder.path(), "500ms", &host, &faults);
        assert!(
            !output.status.success() && said.contains(expected),
            "{fault}: {said}"
        );
        let _ = std::fs::remove_dir_all(folder.path().join("x.results"));
    };
    check("cpu = 0.5", "--allow fault:cpu");
    let sleeper = Sleeper::start(folder.path(), "hrf");
    check(
        &format!("freeze = true\nprocess = {}", sleeper.child.id()),
        "--allow fault:freeze=hrf",
    );
    assert_ne!(sleeper.state(), 'T');
    check(
        "freeze = true\nprocess = \"tgtd-that-is-not-there\"",
        "no process is called",
    );
    check("memory = \"900TiB\"", "must stay available");
    check(
        "netem = { delay = \"1ms\" }\ninterface = \"eth0\"",
        "--allow fault:netem=eth0",
    );
    // Mistakes in the file are reported before any host is reached.
    check(
        "storage = \"busy\"\ntarget = \"disk\"",
        "cannot be injected on other hosts",
    );
    check("freeze = true", "does not name the process");
    check(
        "kill = true\nprocess = \"/usr/sbin/tgtd\"",
        "without a folder",
    );
    check(
        "netem = { delay = \"1ms\", ecn = 0.5 }\ninterface = \"eth0\"",
        "ecn",
    );
    check("netem = {}\ninterface = \"eth0\"", "it changes nothing");
}

/// A fault that can't be injected ends its run, whether the fault is due at the start or later: if several processes
/// have the given name, the message lists their process ids.
#[test]
fn an_ambiguous_name_ends_the_run() {
    let folder = TempDir::new().unwrap();
    let one = Sleeper::start(folder.path(), "two");
    let other = Sleeper::again(folder.path(), &one.name);
    let host = host_by_ssh(folder.path(), "array", 0);
    for at in ["", "at = \"100ms\"\nfor = \"1s\"\n"] {
        let faults = format!(
            "[[fault]]\nhost = \"array\"\nfreeze = true\nprocess = \"{}\"\n{at}",
            one.name
        );
        let (file, out) = write(folder.path(), "1h", &host, &faults);
        let mut command = brunt();
        command.arg("run").arg(&file).arg("--out").arg(&out);
        let output = run_within(&mut command, 60);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{at}: {said}");
        let both = "2 processes are called";
        let numbers = [one.child.id(), other.child.id()].map(|pid| pid.to_string());
        for words in [both, &numbers[0], &numbers[1], "give the PID of one"] {
            assert!(said.contains(words), "{at}: {words}: {said}");
        }
        let _ = std::fs::remove_dir_all(out);
    }
    assert!([one, other].iter().all(|sleeper| sleeper.state() != 'T'));
}

/// Starts a run that freezes a process, and waits until the process is frozen.
fn frozen_run(folder: &Path) -> (Sleeper, Child) {
    let sleeper = Sleeper::start(folder, "hdd");
    let host = host_by_ssh(folder, "array", 0);
    let faults = format!(
        "[[fault]]\nhost = \"array\"\nfreeze = true\nprocess = \"{}\"\n",
        sleeper.name
    );
    let (file, out) = write(folder, "1h", &host, &faults);
    let mut command = brunt();
    let child = command
        .arg("run")
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .spawn()
        .unwrap();
    eventually("it stands still", || sleeper.state() == 'T');
    (sleeper, child)
}

/// A controller that is killed leaves no fault and no agent behind.
#[test]
fn faults_end_when_the_controller_is_killed() {
    let folder = TempDir::new().unwrap();
    let (sleeper, mut controller) = frozen_run(folder.path());
    controller.kill().unwrap();
    controller.wait().unwrap();
    eventually("it goes on", || sleeper.state() != 'T');
    eventually("no agent is left", || {
        pids(folder.path(), "array")
            .iter()
            .all(|pid| !is_alive(*pid))
    });
}

/// Faults also end if the agent is killed: a guard ends those that outlive it.
#[test]
fn faults_end_when_the_agent_is_killed() {
    let folder = TempDir::new().unwrap();
    let (sleeper, mut controller) = frozen_run(folder.path());
    for pid in pids(folder.path(), "array") {
        let _ = Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status();
    }
    eventually("it goes on", || sleeper.state() != 'T');
    // The loss is reported: a lost fault leaves its run incomplete, and the results record it.
    let _ = Command::new("kill")
        .args(["-INT", &controller.id().to_string()])
        .status();
    assert!(!controller.wait().unwrap().success());
    let summary = std::fs::read(folder.path().join("x.results/summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    let runs = summary["points"][0]["runs"].as_array().unwrap();
    assert_eq!(
        (runs.len(), &summary["complete"]),
        (1, &false.into()),
        "{summary:#}"
    );
    let doubts = runs[0]["doubts"].as_array().unwrap();
    let says = |doubt: &Value| {
        doubt
            .as_str()
            .is_some_and(|doubt| doubt.contains("host array"))
    };
    assert!(doubts.iter().any(says), "{summary:#}");
}
