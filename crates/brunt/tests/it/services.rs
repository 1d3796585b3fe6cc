//! Services: programs that an experiment starts, waits for, breaks and ends. Whatever a service does, and whatever ends
//! the experiment, the error is clear and nothing is left: no process, no folder.
//!
//! The rule: a test finds its processes by a mark in their environment, which all of them inherit.

use crate::support;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::marked::{
    LOAD, Marked, STUBBORN, TARGET, assert_says, files_in, never_ready, slow, store,
};
use crate::support::{Running, eventually, need, processes_with, run_within, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A run that makes requests even if its workers begin late.
const SHORT: &str = "stop = { requests = 1000 }\n";

/// A service waits for another, with its preparation, its environment, and its log in the results; the measurement
/// goes through it.
#[test]
fn services_run_in_their_order() {
    let marked = Marked::new("order");
    let second = "[services.after]\nafter = [\"store\"]\nready = { line = \"is up\" }\nenvironment = { LEVEL = \"three\" }\n\
         command = \"echo $LEVEL of $BRUNT_SERVICE_STORE in $BRUNT_FOLDER; echo it is up; exec sleep 1000\"\n";
    let (went_well, summary, said) =
        marked.run(&format!("{LOAD}{SHORT}{}{second}", store("disk.img")));
    assert!(went_well, "{said}");
    assert!(
        summary["points"][0]["runs"][0]["requests_per_second"]
            .as_f64()
            .unwrap()
            > 0.0,
        "{summary}"
    );
    let log = marked.log("after");
    assert!(
        log.starts_with("three of 127.0.0.1:") && log.contains("/after\nit is up"),
        "{log}"
    );
    assert!(
        marked.log("store").contains("127.0.0.1:"),
        "{}",
        marked.log("store")
    );
}

/// Each run waits until a service is healthy, and records how long it waited.
#[test]
fn runs_wait_until_services_are_healthy() {
    let marked = Marked::new("healthy");
    // Every second attempt succeeds.
    let attempts = marked.folder.join("attempts");
    let healthy = format!(
        "[services.repairs]\ncommand = \"exec sleep 1000\"\nenvironment = {{ FOUND = \"damage\" }}\n\
         healthy = {{ command = \"echo $FOUND $BRUNT_SERVICE_STORE >>{}; rm done && exit; touch done; exit 1\" }}\n",
        attempts.display()
    );
    let text = format!("{LOAD}{SHORT}{}{healthy}", store("disk.img"));
    let text = text.replace("repetitions = 1", "repetitions = 2");
    let (went_well, summary, said) = marked.run(&text);
    assert!(went_well, "{said}");
    for run in 0..2 {
        let waits = &summary["points"][0]["runs"][run]["health_waits_s"];
        // An attempt that fails is followed by a pause.
        assert!(waits["repairs"].as_f64().unwrap() > 0.05, "{waits}");
        assert_eq!(waits.as_object().unwrap().len(), 1, "{waits}");
    }
    let attempts = fs::read_to_string(attempts).unwrap();
    let lines = attempts.lines();
    let known = lines.filter(|line| line.starts_with("damage 127.0.0.1:"));
    assert_eq!(known.count(), 4, "{attempts}");
}

/// No run begins before a service is healthy.
#[test]
fn a_service_that_never_becomes_healthy_ends_the_experiment() {
    let marked = Marked::new("ill");
    marked.refused(
        "[services.ill]\ncommand = \"exec sleep 1000\"\n\
         healthy = { command = \"exit 4\", within = \"5s\" }\n",
        &[
            "service ill is not healthy: its health command: it did not start: it was not ready within 5s: the health \
             command ended with exit status 4",
            "healthy.within",
        ],
    );
}

/// Services that don't become ready, in each possible way.
#[test]
fn a_service_that_never_becomes_ready_is_refused() {
    let marked = Marked::new("never");
    never_ready("", &|services, words| marked.refused(services, words));
    let not = "service slow: it did not start: it was not ready within 5s: ";
    let refused = |lines: &str, words: &[&str]| marked.refused(&slow(lines), words);
    refused(
        "ready = { command = \"exit 3\" }",
        &[not, "its ready command ended with exit status 3"],
    );
    refused(
        "ready = { command = \"sleep 1000\" }",
        &[not, "its ready command does not exit"],
    );
    refused(
        "prepare = \"sleep 1000\"",
        &[not, "prepare command does not exit"],
    );
    refused("daemon = true", &[not, "has not moved to the background"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!(
        "ready = {{ port = {} }}",
        listener.local_addr().unwrap().port()
    );
    refused(&taken, &["is in use by another program"]);
}

/// A service that exits makes the run invalid; the message contains its last output.
#[test]
fn a_service_that_exits_invalidates_the_run() {
    let marked = Marked::new("dies");
    // The summary exists as soon as the first run begins.
    let began = marked.folder.join("results/summary.json");
    let services = format!(
        "[services.weak]\ncommand = \"until [ -e {} ]; do sleep 0.1; done; echo out of luck; exit 7\"\n",
        began.display()
    );
    // Services are checked before and after each run.
    let text = format!("{LOAD}stop = {{ time = \"2s\" }}\n{TARGET}{services}")
        .replace("repetitions = 1", "repetitions = 9");
    let (went_well, _, said) = marked.run(&text);
    assert!(!went_well, "{said}");
    assert_says(
        &said,
        &[
            "service weak ended unexpectedly",
            "its command ended with exit status 7",
            "log: out of luck",
        ],
    );
    marked.refused(
        "[services.weak]\ncommand = \"echo too soon; exit 1\"\nready = { port = 0 }\n",
        &[
            "service weak: it did not start: its command ended with exit status 1",
            "log: too soon",
        ],
    );
}

/// A service that exceeds its log limit is ended, and the log doesn't exceed the limit.
#[test]
fn a_service_that_floods_its_log_is_ended() {
    let marked = Marked::new("floods");
    marked.refused(
        "[services.loud]\ncommand = [\"yes\", \"well\"]\nlimits = { log = \"64KiB\" }\nready = { port = 0 }\n",
        &["service loud: it did not start: its log exceeds 65536 bytes", "limits.log"],
    );
    assert_eq!(marked.log("loud").len(), 65536);
}

/// A service that exceeds its memory limit is ended.
#[test]
fn a_service_that_exceeds_its_memory_is_ended() {
    let marked = Marked::new("memory");
    marked.refused(
        // tail buffers all of its input, and its output is never read.
        "[services.large]\nready = { port = 0 }\nlimits = { memory = \"16MiB\" }\n\
         command = \"head -c 40000000 /dev/zero | tail -c 40000000 | sleep 1000\"\n",
        &[
            "service large: it did not start: it uses ",
            "limits.memory is 16777216",
        ],
    );
}

/// A service's limit on open files is enforced by the kernel.
#[test]
fn the_open_file_limit_of_a_service_is_enforced() {
    let marked = Marked::new("files");
    let services = "[services.few]\nready = { line = \"files\" }\nlimits = { files = 100 }\n\
         command = \"echo $(ulimit -n) files; exec sleep 1000\"\n";
    let (went_well, _, said) = marked.run(&format!("{LOAD}{SHORT}{TARGET}{services}"));
    assert!(went_well, "{said}");
    assert_eq!(marked.log("few"), "100 files\n");
}

/// A service that daemonizes must declare it; the background process then counts as the service, and ends with it.
#[test]
fn a_service_that_daemonizes_must_declare_it() {
    let marked = Marked::new("forks");
    let away = "command = \"setsid sleep 1000 & setsid setsid sleep 1001 &\"\n";
    marked.refused(
        &format!("[services.away]\nready = {{ port = 0 }}\n{away}"),
        &["its command exited and left ", "write daemon = true"],
    );
    let daemon = format!("[services.away]\ndaemon = true\n{away}");
    let (went_well, _, said) = marked.run(&format!("{LOAD}{SHORT}{TARGET}{daemon}"));
    assert!(went_well, "{said}");
    let short =
        "[services.away]\ndaemon = true\nready = { port = 0 }\ncommand = \"setsid sleep 0.1 &\"\n";
    marked.refused(
        short,
        &["service away: it did not start: all its processes have ended"],
    );
}

/// A service that doesn't end on request is killed.
#[test]
fn a_service_that_does_not_end_is_killed() {
    let marked = Marked::new("stays");
    let services = "[services.stays]\nstop_within = \"200ms\"\nready = { line = \"ready\" }\n\
         command = \"trap '' TERM; echo ready; while :; do sleep 1; done\"\n";
    let (went_well, _, said) = marked.run(&format!("{LOAD}{SHORT}{TARGET}{services}"));
    assert!(went_well, "{said}");
}

/// One fault kills and restarts a service, another fault freezes it, under a load that verifies its data.
#[test]
fn faults_kill_and_freeze_a_service_under_load() {
    let marked = Marked::new("breaks");
    let faults = "[[fault]]\nservice = \"store\"\nkill = true\nat = \"500ms\"\nfor = \"300ms\"\n\
         [[fault]]\nservice = \"store\"\nfreeze = true\nat = \"2500ms\"\nfor = \"3s\"\n";
    // The second fault still works if restarting the service takes five seconds.
    let load = "read = 0.5\nverify = {}\nstop = { time = \"8s\" }\n";
    let text = format!(
        "{}{load}{}{faults}",
        LOAD.replace("read = 1.0\n", ""),
        store("disk.img")
    );
    let (went_well, summary, said) = marked.run(&text);
    assert!(went_well, "{said}");
    let faults = &summary["points"][0]["runs"][0]["faults"];
    let by = |fault: usize, key: &str| faults[fault][key].as_str().unwrap_or_default().to_string();
    assert!(
        by(0, "shown_by").contains("its 1 descendants are dead"),
        "{faults}"
    );
    assert!(by(0, "gone_by").contains("has replaced it"), "{faults}");
    assert!(
        by(1, "shown_by").contains("threads of processes are in states"),
        "{faults}"
    );
    assert_eq!(faults[0]["place"], "service store", "{faults}");
    // The disk was prepared once: preparing it again would have lost its data.
    assert_eq!(
        summary["points"][0]["runs"][0]["first_error"],
        Value::Null,
        "{summary}"
    );
}

/// SIGKILL of the experiment's process also ends its services, even those that moved to the background, and removes
/// their folder.
#[test]
fn a_killed_experiment_leaves_nothing() {
    let marked = Marked::new("killed");
    let mut run = Running::start(&marked, &format!("{LOAD}{}{TARGET}", STUBBORN));
    eventually("all services run", 30, || marked.processes().len() >= 6);
    assert_eq!(files_in(&marked.temporary()).len(), 1);
    run.send(Signal::KILL);
    marked.ends();
}

/// SIGKILL or Ctrl-C while a fault has frozen a service leaves nothing behind, either.
#[test]
fn an_interrupted_experiment_leaves_nothing() {
    let fault = "[[fault]]\nservice = \"front\"\nfreeze = true\n";
    for signal in [Signal::KILL, Signal::INT] {
        let marked = Marked::new("interrupted");
        let mut run = Running::start(&marked, &format!("{LOAD}{}{TARGET}{fault}", STUBBORN));
        run.send(signal);
        marked.ends();
    }
}

/// After Ctrl-C, the experiment doesn't wait for a service.
#[test]
fn an_interrupt_does_not_wait_for_a_starting_service() {
    let marked = Marked::new("starting");
    let hour = slow("ready = { line = \"never\" }").replace("5s", "1h");
    marked.interrupted_at_start(&format!("{LOAD}{SHORT}{TARGET}{hour}"));
}

/// SIGKILL of a service's keeper makes the run invalid, and ends processes that had moved to the background.
#[test]
fn a_killed_keeper_leaves_nothing() {
    let marked = Marked::new("keeper");
    let lines = "stop = { time = \"2s\" }\n[services.away]\ndaemon = true\ncommand = \"setsid sleep 1000 &\"\n";
    // Services are checked before and after each run.
    let text = format!("{LOAD}{lines}{TARGET}").replace("repetitions = 1", "repetitions = 9");
    let mut run = Running::start(&marked, &text);
    // The keeper is the child process that has an order in its environment.
    let keepers = processes_with(|variable| variable.starts_with(b"BRUNT_KEEPER="));
    let keeper = marked
        .pids()
        .into_iter()
        .find(|pid| keepers.contains(pid))
        .expect("a keeper");
    kill_process(Pid::from_raw(keeper as i32).unwrap(), Signal::KILL).unwrap();
    assert!(!run.0.wait().unwrap().success());
    let said = fs::read_to_string(marked.folder.join("said")).unwrap();
    assert!(
        said.contains("service away ended unexpectedly (signal: 9"),
        "{said}"
    );
    eventually("all processes end", 30, || marked.processes().is_empty());
    assert_eq!(files_in(&marked.temporary()), [""; 0]);
}

/// Services on lab hosts are reached over the lab's links, and end with the lab.
#[test]
fn services_run_on_hosts_of_a_lab_and_end_with_it() {
    let lab = "[lab]\nhosts = [\"client\", \"server\"]\n[lab.links.wire]\nbetween = [\"client\", \"server\"]\ndelay = \"1ms\"\n";
    let on_server = |services: &str| services.replace("command =", "host = \"server\"\ncommand =");
    let marked = Marked::new("lab");
    let text = format!("{LOAD}{SHORT}{lab}{}", on_server(&store("disk.img")));
    let (went_well, summary, said) = marked.run(&text);
    if said.contains("cannot create the namespaces") {
        return skip("user namespaces");
    }
    assert!(went_well, "{said}");
    let run = &summary["points"][0]["runs"][0];
    assert!(
        run["requests_per_second"].as_f64().unwrap() > 0.0,
        "{summary}"
    );
    let packets = &run["links"]["wire"]["there"]["packets"];
    assert!(packets.as_u64().unwrap() > 0, "{summary}");
    let marked = Marked::new("lab-killed");
    let text = format!("{LOAD}{}{TARGET}{lab}", on_server(STUBBORN));
    let mut run = Running::start(&marked, &text);
    run.send(Signal::KILL);
    marked.ends();
}

/// A service's mounts are visible to the workers on its host, whichever process their threads belong to, and nowhere
/// else. The mounts are gone when the lab ends, and so is the folder that contains them.
#[test]
fn mounts_of_services_belong_to_their_host() {
    let lab = "[lab]\nhosts = [\"client\", \"near\", \"far\"]\n[lab.links.wire]\nbetween = [\"client\", \"near\"]\n\
         [lab.links.other]\nbetween = [\"client\", \"far\"]\n";
    let mounted = |host: &str| {
        format!(
            "[services.mount]\nhost = \"{host}\"\nready = {{ line = \"mounted\" }}\ncommand = \"mkdir m; mount -t tmpfs none m; \
             truncate --size 4M m/disk.img; echo mounted; exec sleep 1000\"\n"
        )
    };
    // Where nothing is mounted on it, the folder is empty.
    let elsewhere = "[services.look]\nhost = \"far\"\nafter = [\"mount\"]\nready = { line = \"seen\" }\n\
         command = \"echo $(ls -A $BRUNT_FOLDERS/mount/m | wc -l) seen; exec sleep 1000\"\n";
    let target = "[targets.disk]\nurl = \"file:{folder:mount}/m/disk.img?direct=no\"\n";
    for (host, patience, workers) in [
        ("client", "", ""),
        ("near", "host_silence = \"60s\"\n", "hosts = [\"near\"]\n"),
    ] {
        let marked = Marked::new("mounts");
        let text = format!(
            "{patience}{LOAD}{workers}{SHORT}{target}{lab}{}{elsewhere}",
            mounted(host)
        );
        let (went_well, summary, said) = marked.run(&text);
        if said.contains("cannot create the namespaces") {
            return skip("user namespaces");
        }
        assert!(went_well, "{said}");
        let run = &summary["points"][0]["runs"][0];
        assert!(
            run["requests_per_second"].as_f64().unwrap() > 0.0,
            "{summary}"
        );
        assert_eq!(marked.log("look"), "0 seen\n");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            !mounts.contains(marked.temporary().to_str().unwrap()),
            "{mounts}"
        );
    }
}

/// A service has private folders at the fixed paths that its programs use: empty at first, kept when a fault restarts
/// the service, visible to other processes on its host, but not on other hosts or outside the lab.
#[test]
fn services_have_private_folders() {
    let marked = Marked::new("private");
    let place = marked.folder.join("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("of-the-machine"), "").unwrap();
    let place = place.to_str().unwrap();
    let one = |name: &str, host: &str| {
        format!(
            "[services.{name}]\nhost = \"{host}\"\nprivate = [\"{place}\"]\nready = {{ line = \"up\" }}\n\
             command = \"echo has $(ls {place}); echo {name} >>{place}/{name}; echo up; exec sleep 1000\"\n"
        )
    };
    let look = |name: &str, host: &str, after: &str| {
        format!(
            "[services.{name}]\nhost = \"{host}\"\nafter = [\"{after}\"]\nready = {{ line = \"up\" }}\n\
             command = \"echo has $(ls {place}) and $(ls $BRUNT_FOLDERS/{after}/private{place}); echo up; exec sleep 1000\"\n"
        )
    };
    let lab = "[lab]\nhosts = [\"client\", \"near\", \"far\"]\n[lab.links.wire]\nbetween = [\"client\", \"near\"]\n\
         [lab.links.other]\nbetween = [\"client\", \"far\"]\n";
    let fault = "[[fault]]\nservice = \"first\"\nkill = true\nat = \"200ms\"\nfor = \"100ms\"\n";
    let load = "stop = { time = \"5s\" }\n";
    let services = [
        one("first", "near"),
        one("second", "far"),
        look("beside", "near", "first"),
        look("apart", "client", "first"),
    ]
    .concat();
    let (went_well, _, said) = marked.run(&format!("{LOAD}{load}{TARGET}{lab}{services}{fault}"));
    if said.contains("cannot create the namespaces") {
        return skip("user namespaces");
    }
    assert!(went_well, "{said}");
    assert_eq!(marked.log("first"), "has\nup\nhas first\nup\n");
    assert_eq!(marked.log("second"), "has\nup\n");
    assert_eq!(marked.log("beside"), "has first and first\nup\n");
    assert_eq!(marked.log("apart"), "has of-the-machine and first\nup\n");
    assert_eq!(files_in(Path::new(place)), ["of-the-machine"]);
    let service = |path: &str| {
        format!(
            "{lab}[services.bad]\nhost = \"near\"\nprivate = [\"{path}\"]\ncommand = [\"sleep\", \"1000\"]\n"
        )
    };
    let absent = format!("{place}/absent");
    marked.refused(
        &service(&absent),
        &["cannot mount a private folder over", "absent: No such file"],
    );
    let hides = marked.temporary();
    marked.refused(
        &service(hides.to_str().unwrap()),
        &["would hide", "set TMPDIR to another place"],
    );
}

/// A service that needs root is rejected before any service is started if there is no root, or only a lab's.
#[test]
fn a_service_that_needs_root_is_refused_without_it() {
    let marked = Marked::new("root");
    let services = "[services.first]\ncommand = [\"sleep\", \"1000\"]\n\
         [services.second]\nafter = [\"first\"]\nneeds_root = true\ncommand = [\"sleep\", \"1000\"]\n";
    let text = format!("{LOAD}{SHORT}{TARGET}{services}");
    let mut direct = marked.command(&text);
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--user", "--map-root-user"])
        .arg(direct.get_program())
        .args(direct.get_args());
    command.envs(
        direct
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if need("unshare", "util-linux").is_none() {
        return;
    }
    let output = run_within(&mut command, 60);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") {
        return skip("user namespaces");
    }
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("service second needs root privileges on this machine"),
        "{said}"
    );
    assert!(!marked.folder.join("results/services/first.log").exists());
    // With root, it is a service like any other.
    let users = fs::read_to_string("/proc/self/uid_map").unwrap();
    if rustix::process::geteuid().is_root() && users.split_whitespace().eq(["0", "0", "4294967295"])
    {
        let output = run_within(&mut direct, 60);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The recipe for nbdkit, in an experiment that includes it: the server crashes and hangs, and no acknowledged write
/// is lost.
#[test]
fn nbdkit_by_its_recipe_loses_no_acknowledged_write() {
    if need("nbdkit", "nbdkit").is_none() {
        return;
    }
    let marked = Marked::new("nbdkit");
    let recipe = support::root().join("examples/stores/nbdkit.toml");
    let text = fs::read_to_string(support::root().join("examples/nbdkit-crash.toml")).unwrap();
    let text = text.replace("stores/nbdkit.toml", recipe.to_str().unwrap());
    let text = text.replace("repetitions = 4", "repetitions = 1");
    let (went_well, summary, said) = marked.run(&text);
    assert!(went_well, "{said}");
    let run = &summary["points"][0]["runs"][0];
    assert_eq!(
        (&run["first_error"], run["faults"].as_array().map(Vec::len)),
        (&Value::Null, Some(2)),
        "{run}"
    );
}
