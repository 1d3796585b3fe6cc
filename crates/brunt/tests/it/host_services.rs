//! Services on other hosts: agents on this machine, reached through a stand-in for ssh and over TLS, run programs as
//! this machine does, return their output, and leave nothing behind, whichever process is killed.
//!
//! The rule: a test finds its processes by a mark in their environment, which agents reached by ssh also inherit.

use crate::support;
use std::path::Path;

use crate::support::agents::{
    Listening, certificates, host_by_agent, host_by_ssh, pids, ssh_to_here,
};
use crate::support::marked::{
    LOAD, Marked, STUBBORN, TARGET, assert_says, files_in, never_ready, slow, store,
};
use crate::support::{Running, eventually, need, processes, skip, words_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A long silence limit, because a machine that runs many tests at once may not answer for seconds.
const PATIENT: &str = "host_silence = \"60s\"\n";
/// A run that makes requests even if its workers begin late.
const SHORT: &str = "stop = { requests = 1000 }\n";

impl Marked {
    /// A host reached by ssh whose clock is ahead by `shift_ns`. The host's name is not an address.
    fn host(&self, name: &str, shift_ns: i64) -> String {
        host_by_ssh(&self.folder.join(""), name, shift_ns) + "address = \"127.0.0.1\"\n"
    }

    /// Asserts that services on host `far` fail with these words.
    fn refused_there(&self, services: &str, words: &[&str]) {
        let _ = std::fs::remove_dir_all(self.folder.join("far"));
        let text = format!(
            "{PATIENT}{LOAD}{SHORT}{TARGET}{}{}",
            self.host("far", 0),
            on("far", services)
        );
        let (went_well, _, said) = self.run_on_hosts(&text);
        assert!(!went_well, "{said}");
        assert_says(&said, words);
        self.ends();
    }

    /// Kills the agents of a host.
    fn kill_agents(&self, host: &str) {
        pids(&self.folder.join(""), host)
            .into_iter()
            .for_each(|pid| kill(pid as u32, Signal::KILL));
    }
}

/// Moves services to a host.
fn on(host: &str, services: &str) -> String {
    services.replace("command =", &format!("host = \"{host}\"\ncommand ="))
}

fn kill(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Processes with this word in their command line.
fn with_word(word: &str) -> Vec<u32> {
    processes()
        .filter(|pid| words_of(*pid).iter().any(|one| one == word))
        .collect()
}

/// A service on one host waits for a service on another and learns its address; it is opened by address from this
/// machine, and by folder from its own host. Each run waits on the service's host until the service is healthy. The
/// processes of services are sampled there, and their output is kept with the results. Clock offsets make no
/// difference.
#[test]
fn services_of_hosts_run_in_their_order() {
    let marked = Marked::new("order");
    let second = "[services.after]\nafter = [\"store\"]\nhost = \"b\"\nready = { line = \"is up\" }\n\
         environment = { LEVEL = \"three\" }\nhealthy = { command = \"test $LEVEL = three -a -s $BRUNT_FOLDER_AFTER/file.img\" }\n\
         prepare = \"truncate --size 1M file.img; echo prepared on $BRUNT_HOST\"\n\
         command = \"echo $LEVEL: $BRUNT_SERVICE_STORE by $BRUNT_HOST_A in $BRUNT_FOLDER; ls $BRUNT_FOLDERS; ls $BRUNT_FOLDER_STORE; echo it is up; \
         exec sleep 1000\"\n[services.last]\nafter = [\"after\"]\ncommand = \"echo $BRUNT_SERVICE_STORE; exec sleep 1000\"\n";
    let targets = "workloads = [\"read\", \"there\"]\n[targets.file]\nurl = \"file:{folder:after}/file.img?direct=no\"\n\
         workloads = [\"there\"]\n";
    let text = format!(
        "{PATIENT}{LOAD}{SHORT}[workloads.there]\nread = 1.0\nhosts = [\"b\"]\n{SHORT}{}{}{}{targets}{second}[probes]\n\
         interval = \"50ms\"\n",
        marked.host("a", 9_000_000_000_000),
        marked.host("b", -3_000_000_000),
        on("a", &store("disk.img")),
    );
    let (went_well, summary, said) = marked.run_on_hosts(&text);
    assert!(went_well, "{said}");
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 3, "{summary:#}");
    for point in points {
        let run = &point["runs"][0];
        assert!(
            run["requests_per_second"].as_f64().unwrap() > 0.0,
            "{point:#}"
        );
        assert!(run["health_waits_s"]["after"].is_number(), "{point:#}");
        let memory = &run["probes"]["hosts"]["a"]["process.service store.resident_bytes"];
        assert!(memory.as_f64() > Some(0.0), "{point:#}");
    }
    let log = marked.log("after");
    assert!(log.starts_with("prepared on b\nthree: 127.0.0.1:"), "{log}");
    assert!(
        log.contains(" by 127.0.0.1 in ") && log.ends_with("/after\nafter\ndisk.img\nit is up\n"),
        "{log}"
    );
    assert!(
        marked.log("last").starts_with("127.0.0.1:"),
        "what other hosts start is reached from here"
    );
    assert!(
        marked.log("store").contains("127.0.0.1:"),
        "{}",
        marked.log("store")
    );
    marked.ends();
}

/// One fault kills and restarts a service on another host, another fault freezes it, under a load that verifies its
/// data; both are proven on that host. On a busy machine, the test is repeated with times doubled.
#[test]
fn faults_break_a_remote_service_and_are_proven_there() {
    let mut said = String::new();
    for factor in [1, 2, 4, 8] {
        let marked = Marked::new("breaks");
        let fault = |what: &str, at: u32| {
            let (at, lasts) = (at * factor, 300 * factor);
            format!(
                "[[fault]]\nservice = \"store\"\n{what} = true\nat = \"{at}ms\"\nfor = \"{lasts}ms\"\n"
            )
        };
        let text = format!(
            "{PATIENT}{}read = 0.5\nverify = {{}}\nstop = {{ time = \"{}ms\" }}\n{}{}{}{}",
            LOAD.replace("read = 1.0\n", ""),
            3000 * factor,
            marked.host("far", 9_000_000_000_000),
            on("far", &store("disk.img")),
            fault("kill", 500),
            fault("freeze", 1500),
        );
        let (went_well, summary, words) = marked.run_on_hosts(&text);
        marked.ends();
        said = words;
        if !support::was_in_time(went_well, &said) {
            continue;
        }
        let faults = &summary["points"][0]["runs"][0]["faults"];
        let by =
            |fault: usize, key: &str| faults[fault][key].as_str().unwrap_or_default().to_string();
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
        assert!(
            faults[0]["start_s"].as_f64().unwrap() < 100.0,
            "on our clock: {faults}"
        );
        // The disk was prepared once: preparing it again would have lost its data.
        assert_eq!(
            summary["points"][0]["runs"][0]["first_error"],
            Value::Null,
            "{summary}"
        );
        let log = marked.log("store");
        assert_eq!(
            log.matches("127.0.0.1:").count(),
            2,
            "of both that were started: {log}"
        );
        return;
    }
    panic!("never as it was meant to be: {said}");
}

/// A remote service that doesn't become ready is rejected like a local one, with the host's name and all of the
/// service's output.
#[test]
fn a_remote_service_that_never_becomes_ready_is_refused() {
    let marked = Marked::new("never");
    never_ready("host far: ", &|services, words| {
        marked.refused_there(services, words)
    });
    marked.refused_there(&slow("ready = { port = 0 }"), &["log: here I am"]);
    assert_eq!(marked.log("slow"), "here I am\n");
}

/// After Ctrl-C, the experiment doesn't wait for a service that is still starting.
#[test]
fn an_interrupt_does_not_wait_for_a_starting_remote_service() {
    let marked = Marked::new("starting");
    let hour = on(
        "far",
        &slow("ready = { line = \"never\" }").replace("5s", "1h"),
    );
    marked.interrupted_at_start(&format!(
        "{PATIENT}{LOAD}{SHORT}{TARGET}{hour}{}",
        marked.host("far", 0)
    ));
}

/// A service that floods its log, one that daemonizes without declaring it, and one that exits at once.
#[test]
fn a_misbehaving_remote_service_is_refused() {
    let marked = Marked::new("misbehaves");
    marked.refused_there(
        "[services.loud]\ncommand = [\"yes\", \"well\"]\nlimits = { log = \"256KiB\" }\nready = { port = 0 }\n",
        &["service loud: host far: it did not start: its log exceeds 262144 bytes", "limits.log"],
    );
    let log = marked.log("loud");
    assert!(
        log.len() == 262144 && log.starts_with("well\nwell\n"),
        "all that it may have: {}",
        log.len()
    );
    marked.refused_there(
        "[services.away]\nready = { port = 0 }\ncommand = \"setsid sleep 1000 & setsid setsid sleep 1001 &\"\n",
        &["its command exited and left ", "write daemon = true"],
    );
    marked.refused_there(
        "[services.weak]\ncommand = \"echo too soon; exit 1\"\nready = { port = 0 }\n",
        &[
            "service weak: host far: it did not start: its command ended with exit status 1",
            "log: too soon",
        ],
    );
}

/// A service that exits during the experiment makes the run invalid. The message contains the service's last output;
/// all of its output is kept.
#[test]
fn a_remote_service_that_exits_invalidates_the_run() {
    let marked = Marked::new("dies");
    // The summary exists as soon as the first run begins.
    let began = marked.folder.join("results/summary.json");
    let services = format!(
        "[services.weak]\ncommand = \"echo well; until [ -e {} ]; do sleep 0.1; done; echo out of luck; exit 7\"\n",
        began.display()
    );
    // Services are checked before and after each run.
    let text = format!(
        "{PATIENT}{LOAD}stop = {{ time = \"2s\" }}\n{TARGET}{}{}",
        marked.host("far", 0),
        on("far", &services)
    );
    let (went_well, _, said) =
        marked.run_on_hosts(&text.replace("repetitions = 1", "repetitions = 9"));
    assert!(!went_well, "{said}");
    assert_says(
        &said,
        &[
            "service weak ended unexpectedly",
            "its command ended with exit status 7",
            "log: out of luck",
        ],
    );
    assert_eq!(marked.log("weak"), "well\nout of luck\n");
    marked.ends();
}

/// Whichever process is killed while a fault freezes a service, no service is left, even if it has moved to the
/// background, and no folder. The output that a service produced before its host was lost is kept.
#[test]
fn nothing_is_left_whichever_process_is_killed() {
    let fault = "[[fault]]\nservice = \"front\"\nfreeze = true\n";
    for (whose, more) in [
        ("controller", fault),
        ("agent", fault),
        ("agent", ""),
        ("keeper", ""),
    ] {
        let marked = Marked::new("killed");
        let said = STUBBORN.replace("echo x > file", "echo x > file; echo here");
        let text = format!(
            "{PATIENT}{LOAD}{}{TARGET}{}{more}",
            on("far", &said),
            marked.host("far", 0)
        );
        // Services are checked before and after each run.
        let text = match whose {
            "controller" => text,
            _ => text
                .replace("repetitions = 1", "repetitions = 9")
                .replace("1000s", "1s"),
        };
        let mut run = Running::start(&marked, &text);
        eventually("what a service said is here", 30, || {
            marked.log("deaf") == "here\n"
        });
        assert_eq!(
            files_in(&marked.temporary()).len(),
            2,
            "one folder here, one there"
        );
        match whose {
            "controller" => kill(run.0.id(), Signal::KILL),
            "agent" => marked.kill_agents("far"),
            _ => {
                let keepers =
                    support::processes_with(|variable| variable.starts_with(b"BRUNT_KEEPER="));
                let own = marked
                    .pids()
                    .into_iter()
                    .filter(|pid| keepers.contains(pid));
                own.for_each(|pid| kill(pid, Signal::KILL));
            }
        }
        assert!(!run.0.wait().unwrap().success());
        marked.ends();
        let told = std::fs::read_to_string(marked.folder.join("said")).unwrap();
        match whose {
            "controller" => continue,
            "agent" => assert!(told.contains("host far"), "{told}"),
            _ => assert!(told.contains("ended unexpectedly (signal: 9"), "{told}"),
        }
        let log = marked.log("deaf");
        assert!(log.starts_with("here\n"), "{log}");
        let is_cut = log.contains("brunt: host far") && log.contains("after this point is missing");
        assert_eq!(is_cut, whose == "agent", "{log}");
    }
}

/// If the controller exits while a listening agent is starting a service, the agent ends that service at once,
/// however long the start may take. If the controller is frozen, the service ends when the agent's lease expires. The
/// agent keeps running.
#[test]
fn a_listening_agent_ends_the_services_of_a_lost_controller() {
    let certificates = certificates();
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let mut agent = Listening::start(&identity, &["--allow", "service:", "--lease", "5s"]);
    let starting = "ready = { line = \"never\" }\nwithin = \"1h\"\n";
    for (number, (lost_by, ready)) in [
        (Signal::KILL, starting),
        (Signal::KILL, ""),
        (Signal::STOP, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let marked = Marked::new("lost");
        let word = format!("1000.{}{number}", std::process::id());
        let services = format!(
            "[services.stays]\nhost = \"far\"\nstop_within = \"300s\"\n{ready}command = \"trap '' TERM; sleep {word}; exit 1\"\n"
        );
        let host = host_by_agent(certificates.path(), "far", &agent);
        let text =
            format!("{PATIENT}{LOAD}stop = {{ time = \"1000s\" }}\n{TARGET}{host}{services}");
        let mut command = marked.command(&text);
        let mut controller = Running(command.spawn().unwrap());
        eventually("the service is there", 30, || !with_word(&word).is_empty());
        let folder = folder_of(with_word(&word)[0]);
        assert!(Path::new(&folder).exists());
        kill(controller.0.id(), lost_by);
        eventually("the service ends", 30, || with_word(&word).is_empty());
        eventually("its folder is removed", 30, || !Path::new(&folder).exists());
        assert!(
            agent.child.try_wait().unwrap().is_none(),
            "the agent goes on"
        );
        kill(controller.0.id(), Signal::KILL);
        controller.0.wait().unwrap();
    }
}

/// The folder of the services, from a process's environment.
fn folder_of(pid: u32) -> String {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&environment).into_owned();
    text.split('\0')
        .find_map(|one| one.strip_prefix("BRUNT_FOLDERS="))
        .unwrap()
        .to_string()
}

/// A listening agent starts services only if its command line allows them; otherwise nothing is started anywhere, not
/// even a service that comes earlier in the order.
#[test]
fn a_service_that_is_not_allowed_starts_nothing() {
    let certificates = certificates();
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let agent = Listening::start(&identity, &["--allow", "serve:", "--allow", "memory:"]);
    let marked = Marked::new("allowed");
    let services = "[services.first]\ncommand = \"echo started; exec sleep 1000\"\n\
         [services.second]\nhost = \"far\"\nafter = [\"first\"]\ncommand = [\"sleep\", \"1000\"]\n\
         [services.third]\nhost = \"other\"\ncommand = \"echo started; exec sleep 1000\"\n";
    let text = format!(
        "{PATIENT}{LOAD}{SHORT}{TARGET}{}{}{services}",
        host_by_agent(certificates.path(), "far", &agent),
        marked.host("other", 0),
    );
    let (went_well, _, said) = marked.run_on_hosts(&text);
    assert!(!went_well, "{said}");
    assert_says(
        &said,
        &[
            "service second: host far: its agent does not allow service:",
            "start it with --allow service:",
        ],
    );
    assert!(
        !said.contains("see its full output"),
        "it said nothing: {said}"
    );
    for service in ["first", "third"] {
        let log = marked
            .folder
            .join(&format!("results/services/{service}.log"));
        assert!(
            std::fs::read_to_string(log).unwrap_or_default().is_empty(),
            "{service} was started"
        );
    }
    marked.ends();
}

/// A service that needs root is rejected before any service is started if the agent of its host isn't root.
#[test]
fn a_remote_service_that_needs_root_is_refused_without_it() {
    if need("unshare", "util-linux").is_none() {
        return;
    }
    let marked = Marked::new("root");
    let become_root = "for last; do :; done; exec unshare --user --map-root-user sh -c \"$last\"";
    let ssh = ssh_to_here(&marked.folder.join(""), become_root);
    let services = "[services.first]\ncommand = \"echo started; exec sleep 1000\"\n\
         [services.second]\nhost = \"far\"\nafter = [\"first\"]\nneeds_root = true\ncommand = [\"sleep\", \"1000\"]\n";
    let program = env!("CARGO_BIN_EXE_brunt");
    let host = format!(
        "[hosts.far]\nssh = \"far\"\ncommand = \"{ssh}\"\nprogram = \"{program}\"\naddress = \"127.0.0.1\"\n"
    );
    let (went_well, _, said) =
        marked.run_on_hosts(&format!("{PATIENT}{LOAD}{SHORT}{TARGET}{host}{services}"));
    if said.contains("unshare failed") {
        return skip("user namespaces");
    }
    assert!(!went_well, "{said}");
    assert!(
        said.contains("service second: host far: it needs root privileges on that machine"),
        "{said}"
    );
    assert!(
        !marked.folder.join("results/services/first.log").exists(),
        "it was started"
    );
    marked.ends();
}

/// Losing a host with services ends the experiment, unless it is configured to continue without the host. Each run
/// without the host is marked and excluded from all means.
#[test]
fn a_lost_host_of_services_is_marked() {
    for goes_on in [false, true] {
        let marked = Marked::new("goes-on");
        let services = "[services.idle]\ncommand = [\"sleep\", \"1000\"]\n";
        let rule = if goes_on {
            "on_host_failure = \"continue\"\n"
        } else {
            ""
        };
        let text = format!(
            "{PATIENT}{rule}{LOAD}stop = {{ time = \"4s\" }}\n{TARGET}{}{}",
            marked.host("far", 0),
            on("far", services)
        );
        // The host is lost long before its first run would end.
        let mut run = Running::start(&marked, &text.replace("repetitions = 1", "repetitions = 3"));
        marked.kill_agents("far");
        assert!(!run.0.wait().unwrap().success());
        let said = std::fs::read_to_string(marked.folder.join("said")).unwrap();
        assert!(said.contains("host far: "), "{said}");
        let summary = std::fs::read(marked.folder.join("results/summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let runs = summary["points"][0]["runs"].as_array().unwrap();
        assert!(summary["complete"] == false, "{summary:#}");
        // The host may be lost before the first run has begun.
        assert!(
            if goes_on {
                runs.len() == 3
            } else {
                runs.len() <= 1
            },
            "{summary:#}"
        );
        for run in runs {
            assert_eq!(run["stopped"], "host-lost", "{run:#}");
            assert!(
                run["doubts"][0]
                    .as_str()
                    .unwrap()
                    .contains("a host with services was lost: host far"),
                "{run:#}"
            );
            assert!(
                run["hosts"][0]["name"] == "far" && run["hosts"][0]["lost"].is_object(),
                "{run:#}"
            );
            assert!(run["requests_per_second"].as_f64() > Some(0.0), "{run:#}");
        }
        assert_eq!(
            summary["points"][0]["requests_per_second"],
            Value::Null,
            "no mean has them"
        );
        marked.ends();
    }
}

/// The nbdkit example: a server on one host and a gateway on another; one crashes and the other hangs. No acknowledged
/// write is lost.
#[test]
fn nbdkit_on_two_hosts_loses_no_acknowledged_write() {
    if need("nbdkit", "nbdkit").is_none() {
        return;
    }
    let certificates = certificates();
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let text =
        std::fs::read_to_string(support::root().join("examples/services-hosts.toml")).unwrap();
    let text = text.replace(
        "/tmp/brunt-certificates",
        certificates.path().to_str().unwrap(),
    );
    let mut text = text.replace("repetitions = 4", &format!("repetitions = 1\n{PATIENT}"));
    let agents: Vec<Listening> = [("7420", "service:"), ("7421", "service:"), ("7422", "nbd:")]
        .into_iter()
        .map(|(port, allowed)| {
            let agent = Listening::start(&identity, &["--allow", allowed]);
            text = text.replace(
                &format!("127.0.0.1:{port}\"\n"),
                &format!("{}\"\n", agent.address),
            );
            agent
        })
        .collect();
    let marked = Marked::new("nbdkit");
    let mut ran = marked.run_on_hosts(&text);
    // On a busy machine, a fault may come too late.
    for _ in 0..3 {
        if support::was_in_time(ran.0, &ran.2) {
            break;
        }
        ran = marked.run_on_hosts(&text);
    }
    let (went_well, summary, said) = ran;
    assert!(went_well, "{said}");
    let run = &summary["points"][0]["runs"][0];
    assert_eq!(
        (&run["first_error"], run["faults"].as_array().map(Vec::len)),
        (&Value::Null, Some(2)),
        "{run}"
    );
    drop(agents);
    marked.ends();
}
