//! Workloads on other hosts: agents on this machine, started through a stand-in for ssh and reached over TLS, with
//! different clocks, together run the load of one experiment.

mod files;
mod interfaces;
mod jobs;
mod journals;
mod lab;
mod next_to_a_lab;
mod own_targets;
mod records;
mod replays;
mod transfer;

use crate::support;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::agents::{
    Listening, certificates, host_by_agent, host_by_ssh, is_alive, pids, ssh_to_here,
};
use crate::support::{Target, brunt};
use serde_json::Value;
use tempfile::TempDir;

/// Writes an experiment and runs it; returns its output and its results folder.
fn run(folder: &Path, name: &str, text: &str) -> (Output, PathBuf) {
    let file = folder.join(format!("{name}.toml"));
    // A machine that runs many tests concurrently may not answer for seconds.
    let patience = if text.contains("hosts = [") && !text.contains("host_silence") {
        "host_silence = \"60s\"\n"
    } else {
        ""
    };
    std::fs::write(&file, format!("{patience}{text}")).unwrap();
    let out = folder.join(format!("{name}.results"));
    let output = brunt()
        .arg("run")
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    (output, out)
}

fn summary(results: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(results.join("summary.json")).unwrap()).unwrap()
}

fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The lines for a host `a` whose agent runs in its own mount namespace, after `setup`; `None`, with a message, if this
/// machine doesn't allow mounts.
fn host_with_mounts(folder: &Path, setup: &str) -> Option<String> {
    let tried = Command::new("unshare")
        .args(["-rm", "sh", "-c", setup])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        support::skip("mount in a user namespace");
        return None;
    }
    let host = host_by_ssh(folder, "a", 0);
    let ssh = folder.join("a/ssh-to-here");
    let script = std::fs::read_to_string(&ssh).unwrap();
    let inside = script.replace(
        "exec sh -c \"$last\"",
        &format!("exec unshare -rm sh -c \"{setup}; $last\""),
    );
    assert_ne!(script, inside);
    std::fs::write(&ssh, inside).unwrap();
    Some(host)
}

const DISK_BYTES: u64 = 4 << 20;

fn disk(folder: &Path) -> String {
    let disk = folder.join("disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(DISK_BYTES)
        .unwrap();
    disk.display().to_string()
}

/// Three hosts with clocks hundreds of seconds apart share a run: its requests are issued once, in the measured time.
#[test]
fn hosts_share_a_run() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let disk = disk(folder.path());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let shift = "--clock-shift-ns=-3000000000";
    let agent = Listening::start(
        &identity,
        &["--allow", folder.path().to_str().unwrap(), shift],
    );
    let hosts = host_by_ssh(folder.path(), "a", 500_000_000_000)
        + &host_by_ssh(folder.path(), "b", 0)
        + &host_by_agent(certificates.path(), "c", &agent);
    let text = format!(
        "name = \"shared\"\nrepetitions = 2\n{hosts}\n[targets.disk]\nurl = \"{disk}\"\n\
         [workloads.mixed]\nread = 0.5\nworkers = 2\nhosts = [\"a\", \"b\", \"c\"]\ninterval = \"20ms\"\n\
         stop = {{ requests = 3001 }}\n\
         [workloads.steady]\narrival = {{ kind = \"open\", rate = 900, process = \"constant\" }}\n\
         hosts = [\"c\", \"a\", \"b\"]\nstop = {{ time = \"1s\" }}\n\
         [sweep]\nqueue_depth = [1, 4]\n"
    );
    let (output, results) = run(folder.path(), "shared", &text);
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    assert_eq!(summary["complete"], true);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for point in points {
        let runs = point["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2, "{point:#}");
        for run in runs {
            let ops = run["ops"].as_array().unwrap();
            let completed: u64 = ops.iter().map(|op| op["completed"].as_u64().unwrap()).sum();
            let measured = run["measured_s"].as_f64().unwrap();
            assert!(
                0.0 < measured && measured < 100.0,
                "clocks are not hundreds of seconds off: {run:#}"
            );
            match point["workload"].as_str() {
                Some("mixed") => {
                    assert_eq!(completed, 3001, "as many as are wanted, all hosts together")
                }
                _ => {
                    // Each host contributes a third of the rate; requests that are late count, too.
                    assert!((890..=900).contains(&completed), "{completed}");
                    assert!(
                        (0.999..1.001).contains(&measured),
                        "hosts start and end together: {measured} s"
                    );
                }
            }
        }
    }
    let text = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(text.contains("on a + b + c"), "the page says where it ran");
    for name in ["a", "b"] {
        let pids = pids(folder.path(), name);
        assert!(
            !pids.is_empty() && !pids.iter().any(|pid| is_alive(*pid)),
            "agents end with the experiment"
        );
    }
    let (last, _) = agent.end();
    assert!(
        last.starts_with("1 controller sessions"),
        "one for all runs: {last}"
    );
}

/// The same requests are issued, whether the workers are here or on other hosts.
#[test]
fn requests_do_not_depend_on_where_workers_are() {
    let folder = TempDir::new().unwrap();
    let disk = disk(folder.path());
    let bytes = |name: &str, hosts: &str, workload: &str| {
        let text = format!(
            "name = \"{name}\"\nrepetitions = 1\nseed = 7\n{hosts}\n[targets.disk]\nurl = \"{disk}\"\n\
             [workloads.w]\nblocks = [{{ size = \"4k\" }}, {{ size = \"16k\" }}]\nread = 0.3\nsequential = 0.5\n\
             stop = {{ requests = 1000 }}\n{workload}\n"
        );
        let (output, results) = run(folder.path(), name, &text);
        assert!(output.status.success(), "{}", output_text(&output));
        let summary = summary(&results);
        let ops = summary["points"][0]["runs"][0]["ops"]
            .as_array()
            .unwrap()
            .clone();
        ops.iter()
            .map(|op| (op["completed"].clone(), op["bytes"].clone()))
            .collect::<Vec<_>>()
    };
    let here = bytes("here", "", "workers = 4");
    let hosts = host_by_ssh(folder.path(), "a", 0) + &host_by_ssh(folder.path(), "b", 0);
    let there = bytes("there", &hosts, "workers = 2\nhosts = [\"a\", \"b\"]");
    assert_eq!(here, there);
}

/// A target that a host may not open, or that contains data, is rejected before the first run, with a message that
/// says what to do.
#[test]
fn a_forbidden_target_is_refused_before_the_first_run() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let disk = disk(folder.path());
    let check = |name: &str, allow: &[&str], url: &str, more: &str, expected: &str| {
        let agent = Listening::start(&identity, allow);
        let host = host_by_agent(certificates.path(), "far", &agent);
        let text = format!(
            "name = \"{name}\"\nrepetitions = 1\n{more}\n{host}\n[targets.disk]\nurl = \"{url}\"\n\
             [workloads.w]\nread = 0.5\nhosts = [\"far\"]\nstop = {{ requests = 10 }}\n"
        );
        let (output, _) = run(folder.path(), name, &text);
        let said = output_text(&output);
        assert!(
            said.contains(expected) && !said.contains("hush"),
            "{name}: {said}"
        );
        assert_eq!(output.status.success(), expected.is_empty(), "{said}");
        if !expected.is_empty() {
            let checked = brunt()
                .args(["run", "--check=open"])
                .arg(folder.path().join(format!("{name}.toml")))
                .output()
                .unwrap();
            assert!(
                !checked.status.success() && output_text(&checked).contains(expected),
                "--check=open too"
            );
        }
    };
    check("nothing", &[], &disk, "", "started without --allow");
    check(
        "another",
        &["--allow", "/dev"],
        &disk,
        "",
        "may not be opened here (allowed: /dev)",
    );
    check("memory", &["--allow", "memory:"], "memory:1MiB", "", "");
    let secret = "iscsi://me%hush@127.0.0.1:1/t/0";
    check("secret", &["--allow", "memory:"], secret, "", "iscsi:");
    let held = folder.path().join("held");
    let mut bytes = vec![0; 1 << 20];
    bytes[510..512].copy_from_slice(b"\x55\xaa");
    std::fs::write(&held, bytes).unwrap();
    let (held, folder) = (held.display().to_string(), folder.path().to_str().unwrap());
    check(
        "held",
        &["--allow", folder],
        &held,
        "",
        "contains an MBR partition table",
    );
    check(
        "overwritten",
        &["--allow", folder],
        &held,
        &format!("allow_overwrite = [\"{held}\"]"),
        "",
    );
}

/// Whether a worker of this process has used 50 ms of processor time, which means that its run has begun.
/// (/proc/PID/task/TID/stat, fields 14 and 15, in hundredths of a second.)
fn is_working(pid: i32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks.flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.split_once("(worker-0) ") else {
            return false;
        };
        let fields: Vec<u64> = rest
            .split(' ')
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        fields.iter().sum::<u64>() >= 5
    })
}

/// Sends a signal to the agent of host b once its run has begun; returns the agent's process id.
fn killer(folder: &Path, signal: &'static str) -> std::thread::JoinHandle<i32> {
    let at = folder.to_path_buf();
    std::thread::spawn(move || {
        let working = || pids(&at, "b").into_iter().find(|pid| is_working(*pid));
        let begin = std::time::Instant::now();
        let pid = loop {
            assert!(begin.elapsed() < Duration::from_secs(120), "the run begins");
            match working() {
                Some(pid) => break pid,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let sent = Command::new("kill")
            .args([format!("-{signal}"), pid.to_string()])
            .status();
        assert!(sent.unwrap().success());
        pid
    })
}

/// If a host's agent dies or freezes during a run, the experiment notices within seconds, ends and names the host,
/// and no agent is left behind.
#[test]
fn a_lost_host_ends_the_experiment() {
    for (signal, silence, expected) in [
        ("KILL", "60s", "connection ended"),
        ("STOP", "5s", "no message from it within 5s"),
    ] {
        let folder = TempDir::new().unwrap();
        let hosts = host_by_ssh(folder.path(), "a", 0)
            + &host_by_ssh(folder.path(), "b", 0)
            + &host_by_ssh(folder.path(), "c", 0);
        let text = format!(
            "name = \"lost\"\nhost_silence = \"{silence}\"\nrepetitions = 1\n{hosts}\n[targets.t]\nurl = \"memory:1MiB\"\n\
             [workloads.w]\nhosts = [\"a\", \"b\", \"c\"]\nstop = {{ time = \"1h\" }}\ninterval = \"10ms\"\n"
        );
        let killer = killer(folder.path(), signal);
        let (output, _) = run(folder.path(), "lost", &text);
        let pid = killer.join().unwrap();
        let said = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("host b") && said.contains(expected),
            "{signal}: {said}"
        );
        let _ = Command::new("kill")
            .args(["-CONT", &pid.to_string()])
            .status();
        for name in ["a", "b", "c"] {
            for pid in pids(folder.path(), name) {
                let begin = std::time::Instant::now();
                while is_alive(pid) {
                    assert!(
                        begin.elapsed() < Duration::from_secs(60),
                        "agent of {name} is left"
                    );
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
}

/// The example works as described, with the addresses of the agents and the target started by this test.
#[test]
fn the_example_of_several_hosts_runs() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let agents = [(); 2].map(|()| Listening::start(&identity, &["--allow", "iscsi:"]));
    let target = Target::start(&["--lun", "memory:16MiB"]);
    let mut text =
        std::fs::read_to_string(support::root().join("examples/several-hosts.toml")).unwrap();
    let controller = certificates
        .path()
        .join("controller.pem")
        .display()
        .to_string();
    for (from, to) in [
        ("127.0.0.1:7420", agents[0].address.to_string()),
        ("127.0.0.1:7421", agents[1].address.to_string()),
        ("127.0.0.1:3260", target.address().to_string()),
        ("/tmp/brunt-certificates/controller.pem", controller),
        ("repetitions = 4", "repetitions = 1".to_string()),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    let (output, results) = run(folder.path(), "example", &text);
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    assert_eq!(summary["points"].as_array().unwrap().len(), 3);
    assert_eq!(summary["complete"], true);
}

/// A host dies during a run, with both policies: its measurements and those of the other hosts are kept and marked,
/// the others continue or not, and every total that lacks the host says so.
#[test]
fn a_lost_host_is_marked() {
    for (policy, runs_wanted) in [("abort", 1), ("continue", 2)] {
        let folder = TempDir::new().unwrap();
        let hosts = host_by_ssh(folder.path(), "a", 0)
            + &host_by_ssh(folder.path(), "b", 250_000_000_000)
            + &host_by_ssh(folder.path(), "c", 0);
        let text = format!(
            "name = \"lost\"\nrepetitions = 2\non_host_failure = \"{policy}\"\n{hosts}\n[targets.t]\nurl = \"memory:1MiB\"\n\
             [workloads.w]\narrival = {{ kind = \"open\", rate = 3000, process = \"constant\" }}\nhosts = [\"a\", \"b\", \"c\"]\n\
             stop = {{ time = \"10s\" }}\ninterval = \"10ms\"\n"
        );
        let killer = killer(folder.path(), "KILL");
        let (output, results) = run(folder.path(), "lost", &text);
        killer.join().unwrap();
        let said = output_text(&output);
        assert_eq!(
            output.status.code(),
            Some(1),
            "what lacks a host is not complete: {said}"
        );
        assert!(
            said.contains("host b") && said.contains("connection ended"),
            "{said}"
        );
        let summary = summary(&results);
        assert_eq!(summary["complete"], false);
        let runs = summary["points"][0]["runs"].as_array().unwrap();
        assert_eq!(runs.len(), runs_wanted, "{policy}: {said}");
        assert!(
            summary["points"][0]["requests_per_second"].is_null(),
            "no mean of runs that lack a host"
        );
        for run in runs {
            assert_eq!(run["stopped"], "host-lost");
            let doubt = run["doubts"][0].as_str().unwrap();
            assert!(doubt.contains("host b"), "{doubt}");
            let hosts = run["hosts"].as_array().unwrap();
            let names: Vec<&str> = hosts
                .iter()
                .map(|host| host["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, ["a", "b", "c"]);
            assert!(
                hosts[0]["lost"].is_null()
                    && hosts[2]["lost"].is_null()
                    && hosts[1]["lost"].is_object()
            );
            let rate = |host: &Value| host["requests_per_second"].as_f64().unwrap();
            assert!(
                rate(&hosts[0]) > 0.0 && rate(&hosts[2]) > 0.0,
                "what the others measured is kept"
            );
            let [completed, late] =
                ["completed", "late"].map(|key| run["ops"][0][key].as_u64().unwrap_or(0));
            let in_time = rate(run) * run["measured_s"].as_f64().unwrap();
            assert!(
                (in_time - (completed - late) as f64).abs() < 0.5,
                "a host that was lost early counts with what it did: {in_time}, not {completed} less {late}"
            );
        }
        let [first, last] = [&runs[0], &runs[runs.len() - 1]];
        assert!(first["hosts"][1]["lost"]["after_s"].as_f64().unwrap() > 0.0);
        assert!(
            first["hosts"][1]["requests_per_second"].as_f64().unwrap() > 0.0,
            "and what it did before, too"
        );
        if policy == "continue" {
            assert!(
                first["measured_s"].as_f64().unwrap() > 9.9,
                "the others went on"
            );
            assert_eq!(last["hosts"][1]["lost"]["after_s"], 0.0);
            let completed = |run: &Value| run["ops"][0]["completed"].as_u64().unwrap();
            assert!(
                (19_500..=20_000).contains(&completed(last)),
                "two thirds of the rate: {}",
                completed(last)
            );
        }
    }
}

/// The spread of the hosts' start times is measured on one timeline, whatever their clocks show, and reported with
/// its uncertainty.
#[test]
fn the_spread_of_start_times_is_reported() {
    let folder = TempDir::new().unwrap();
    let hosts = host_by_ssh(folder.path(), "a", 0)
        + &host_by_ssh(folder.path(), "b", -7_000_000_000)
        + &host_by_ssh(folder.path(), "c", 500_000_000_000);
    let text = format!(
        "name = \"spread\"\nrepetitions = 1\n{hosts}\n[targets.t]\nurl = \"memory:1MiB\"\n\
         [workloads.w]\nhosts = [\"a\", \"b\", \"c\"]\nstop = {{ time = \"300ms\" }}\n"
    );
    let (output, results) = run(folder.path(), "spread", &text);
    let said = output_text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("hosts started within "), "{said}");
    let summary = summary(&results);
    for host in summary["points"][0]["runs"][0]["hosts"].as_array().unwrap() {
        let [began, error] = ["began_us", "clock_error_us"].map(|key| host[key].as_f64().unwrap());
        // Clocks are at least 7 s apart; all hosts begin at the start time as estimated when it was sent to them, or
        // as soon as they get a processor.
        assert!((-3_000_000.0..5_000_000.0).contains(&began), "{host:#}");
        assert!(
            error < 3_000_000.0 && host["received_bytes"].as_u64().unwrap() > 0,
            "{host:#}"
        );
    }
    assert!(
        summary["points"][0]["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("hosts started within")
    );
}

/// The lines of a host started by a stand-in for ssh in its own mount namespace, with a folder whose file system is
/// full; `None`, with a message, if that isn't possible.
fn host_with_a_full_folder(folder: &Path, name: &str, program: &str) -> Option<String> {
    support::need("unshare", "util-linux")?;
    let trial = Command::new("unshare").args(["-rm", "true"]).status();
    if !trial.is_ok_and(|status| status.success()) {
        support::skip("user namespaces");
        return None;
    }
    let (own, small) = (folder.join(name), folder.join("storage"));
    std::fs::create_dir(&own).unwrap();
    std::fs::create_dir_all(&small).unwrap();
    let file = own.join("ssh");
    let small = small.display();
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\nexport last TMPDIR={small}\n\
         exec unshare -rm sh -c 'mount -t tmpfs -o size=256k none {small} && truncate -s 4M {small}/disk && exec sh -c \"$last\"'\n"
    );
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(format!(
        "[hosts.{name}]\nssh = \"{name}\"\ncommand = \"{}\"\n{program}\n",
        file.display()
    ))
}

/// If a host's storage fills up during a run, the host and the failure are reported, and the measurements of the others
/// are kept.
#[test]
fn a_host_whose_disk_is_full_is_named() {
    let folder = TempDir::new().unwrap();
    let program = format!("program = \"{}\"", env!("CARGO_BIN_EXE_brunt"));
    let Some(full) = host_with_a_full_folder(folder.path(), "b", &program) else {
        return;
    };
    let disk = folder.path().join("storage/disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(DISK_BYTES)
        .unwrap();
    let hosts = host_by_ssh(folder.path(), "a", 0) + &full;
    let text = format!(
        "name = \"full\"\nrepetitions = 1\n{hosts}\n[targets.disk]\nurl = \"{}\"\n\
         [workloads.w]\nread = 0.0\nhosts = [\"a\", \"b\"]\nstop = {{ requests = 2000 }}\n",
        disk.display()
    );
    let (output, results) = run(folder.path(), "full", &text);
    let summary = summary(&results);
    let made = &summary["points"][0]["runs"][0];
    let [a, b] = [0, 1].map(|index| &made["hosts"][index]);
    assert!(
        a["failed"].is_null() && b["failed"].as_u64().is_some_and(|failed| failed > 0),
        "{made:#}"
    );
    let completed: u64 = made["ops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|op| op["completed"].as_u64().unwrap())
        .sum();
    assert_eq!(
        completed + b["failed"].as_u64().unwrap(),
        2000,
        "nothing of either is lost: {}",
        output_text(&output)
    );
    assert!(
        b["first_error"]
            .as_str()
            .unwrap()
            .contains("No space left on device"),
        "{b:#}"
    );
    let words = output_text(&output);
    let named = words
        .lines()
        .any(|line| line.contains("requests failed: ") && line.contains(" on b (write of "));
    assert!(named && !words.contains(" on a ("), "{words}");
}

/// A host without space for a copy of the program, or without memory for a workload, is named before the first run.
#[test]
fn a_host_without_room_or_memory_is_named() {
    let folder = TempDir::new().unwrap();
    let check = |name: &str, host: &str, url: &str, expected: &str| {
        let hosts = host_by_ssh(folder.path(), &format!("{name}-other"), 0) + host;
        let text = format!(
            "name = \"{name}\"\nrepetitions = 1\non_host_failure = \"continue\"\n{hosts}\n[targets.t]\nurl = \"{url}\"\n\
             [workloads.w]\nhosts = [\"{name}-other\", \"{name}\"]\nstop = {{ requests = 10 }}\n"
        );
        let (output, _) = run(folder.path(), name, &text);
        let said = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&format!("host {name}: ")) && said.contains(expected),
            "{expected}: {said}"
        );
    };
    let own = folder.path().join("short");
    std::fs::create_dir(&own).unwrap();
    // A limit of 400 MB of address space.
    let ssh = ssh_to_here(&own, "ulimit -v 400000");
    let program = env!("CARGO_BIN_EXE_brunt");
    let short =
        format!("[hosts.short]\nssh = \"short\"\ncommand = \"{ssh}\"\nprogram = \"{program}\"\n");
    check("short", &short, "memory:1GiB", "Cannot allocate memory");
    if let Some(full) = host_with_a_full_folder(folder.path(), "full", "") {
        // A host that has the same version in its path gets no copy.
        let path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&path).any(|one| one.join("brunt").is_file()) {
            println!("skipped: a brunt is installed here, so that no copy is needed");
            return;
        }
        check("full", &full, "memory:1MiB", "No space left on device");
    }
}
