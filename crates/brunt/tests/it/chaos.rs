//! Faults in every part of an experiment on several hosts, at random moments: the controller, agents, ssh at both
//! ends, networks, the host that serves the target, and the target are killed, frozen or cut off. A long test is
//! `BRUNT_ROUNDS=100 cargo test -p brunt --test it chaos -- --nocapture`. With `BRUNT_HANG_MAX=10`, the test fails if
//! anything takes more than ten seconds longer than it should, on an otherwise idle machine.
//!
//! The rule: after each round the hosts are as they were before, and the results are correct for the surviving hosts.

use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::hosts::{Hosts, Plan, Process, Way, assert_total, output_text, signal, until};
use crate::support::{busy, rounds, seed};
use brunt_core::random::Random;
use rustix::process::Signal;
use serde_json::Value;

/// Number of hosts with workers: h1 to h4.
const HOSTS: usize = 4;
/// Index of h5, which serves the workers' target and is reached through sshd.
const SERVER: usize = HOSTS;
/// How long workers wait for a lost target; such a wait doesn't count as a hang. A busy machine may stop a target for
/// seconds, after which it isn't lost.
const PATIENCE: &str = "timeout=8s&reconnect=8s&keepalive=1s";
/// The same on an idle machine.
const PATIENCE_IDLE: &str = "timeout=2s&reconnect=1s&keepalive=1s";
/// Number of requests in a run, and the share of each host.
const REQUESTS: u64 = 400;
const OF_EACH: u64 = REQUESTS / HOSTS as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Controller,
    /// The agent of a host that is reached in this way: started by sshd, or listening.
    Agent(Way),
    /// The ssh client on the controller's side.
    SshClient,
    /// The sshd session on the host.
    SshSession,
    Network(Way),
    /// All networks at once.
    Networks,
    /// The agent of the host that serves the target.
    Server,
    /// The target's process on the host that serves it.
    Target,
    /// The network of the host that serves the target.
    ServerNetwork,
}

impl Part {
    fn is_of_server(self) -> bool {
        matches!(self, Part::Server | Part::Target | Part::ServerNetwork)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Kill,
    Freeze,
    Cut,
}

const CASES: [(Part, Trouble); 17] = [
    (Part::Agent(Way::Agent), Trouble::Kill),
    (Part::Server, Trouble::Kill),
    (Part::Network(Way::Ssh), Trouble::Cut),
    (Part::Controller, Trouble::Freeze),
    (Part::SshSession, Trouble::Freeze),
    (Part::ServerNetwork, Trouble::Cut),
    (Part::Controller, Trouble::Kill),
    (Part::Agent(Way::Ssh), Trouble::Freeze),
    (Part::SshClient, Trouble::Kill),
    (Part::Network(Way::Agent), Trouble::Cut),
    (Part::Target, Trouble::Kill),
    (Part::Agent(Way::Agent), Trouble::Freeze),
    (Part::Agent(Way::Ssh), Trouble::Kill),
    (Part::SshClient, Trouble::Freeze),
    (Part::Server, Trouble::Freeze),
    (Part::Networks, Trouble::Cut),
    (Part::SshSession, Trouble::Kill),
];

/// A running experiment.
struct Experiment {
    child: Child,
    begin: Instant,
}

impl Experiment {
    fn start(hosts: &Hosts, policy: &str) -> Experiment {
        let (silence, patience) = match hang_max() {
            Some(_) => ("1.5s", PATIENCE_IDLE),
            None => ("10s", PATIENCE),
        };
        let text = format!(
            "name = \"chaos\"\nrepetitions = 2\nhost_silence = \"{silence}\"\non_host_failure = \"{policy}\"\n{}\n\
             [targets.t]\nserve = \"memory:1MiB\"\nhost = \"{}\"\noptions = \"{patience}\"\n[workloads.w]\nhosts = {:?}\ninterval = \"20ms\"\n\
             arrival = {{ kind = \"open\", rate = {REQUESTS}, process = \"constant\" }}\nstop = {{ requests = {REQUESTS} }}\n",
            hosts.toml(),
            hosts.hosts[SERVER].name,
            worker_names(hosts)
        );
        std::fs::write(hosts.folder().join("chaos.toml"), text).unwrap();
        let _ = std::fs::remove_dir_all(hosts.folder().join("results"));
        let [file, results] =
            ["chaos.toml", "results"].map(|name| hosts.folder().join(name).display().to_string());
        let mut command = hosts.controller(&["run", &file, "--out", &results]);
        let begin = Instant::now();
        Experiment {
            child: command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
            begin,
        }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn end(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

fn worker_names(hosts: &Hosts) -> Vec<&str> {
    hosts.hosts[..HOSTS]
        .iter()
        .map(|host| host.name.as_str())
        .collect()
}

/// The longest acceptable hang, if `BRUNT_HANG_MAX` sets one.
fn hang_max() -> Option<Duration> {
    let text = std::env::var("BRUNT_HANG_MAX").ok()?;
    Some(Duration::from_secs(
        text.parse().expect("BRUNT_HANG_MAX is a number of seconds"),
    ))
}

/// The process that a case kills or freezes on this host, if it exists now.
fn victim(hosts: &Hosts, part: Part, index: usize) -> Option<Process> {
    let host = &hosts.hosts[index];
    let find =
        |all: Vec<Process>, has: &dyn Fn(&str) -> bool| all.into_iter().find(|one| has(&one.words));
    match part {
        Part::Controller => find(hosts.controller_processes(), &|words| {
            words.contains("brunt run ")
        }),
        Part::SshClient => {
            let to = format!(" root@{} ", host.address());
            find(hosts.controller_processes(), &|words| {
                words.starts_with("ssh ") && words.contains(&to)
            })
        }
        Part::SshSession => find(hosts.visitors(index), &|words| {
            words.starts_with("sshd: root")
        }),
        Part::Agent(Way::Ssh) | Part::Server => find(hosts.visitors(index), &|words| {
            words.starts_with(env!("CARGO_BIN_EXE_brunt")) && words.contains("agent --stdio")
        }),
        Part::Agent(Way::Agent) => hosts.servers(index).into_iter().next(),
        Part::Target => find(hosts.visitors(index), &|words| {
            words.starts_with(env!("CARGO_BIN_EXE_brunt")) && words.contains(" target ")
        }),
        Part::Network(_) | Part::Networks | Part::ServerNetwork => None,
    }
}

/// The outcome of a round.
struct Round {
    /// The longest delay beyond the expected time.
    hung: Duration,
    /// Whether the fault hit a victim.
    met: bool,
}

/// Injects the fault, waits until everything has ended, and restores the hosts.
fn round(
    hosts: &mut Hosts,
    case: (Part, Trouble),
    index: usize,
    moment: Duration,
    policy: &str,
    usual: Duration,
) -> Round {
    let (part, trouble) = case;
    let name = format!(
        "{part:?} {trouble:?} h{} {policy} at {} ms",
        index + 1,
        moment.as_millis()
    );
    let mut experiment = Experiment::start(hosts, policy);
    std::thread::sleep(moment);
    let is_cut = trouble == Trouble::Cut;
    let cut: Vec<usize> = match part {
        Part::Networks => (0..=SERVER).collect(),
        _ if is_cut => vec![index],
        _ => Vec::new(),
    };
    let mut met = None;
    if is_cut {
        cut.iter().for_each(|index| hosts.partition(*index, true));
    } else {
        // The victim may not exist yet, or may already be gone.
        while met.is_none() && !experiment.has_ended() {
            met = victim(hosts, part, index);
        }
        if let Some(victim) = &met {
            signal(
                victim.pid,
                if trouble == Trouble::Kill {
                    Signal::KILL
                } else {
                    Signal::STOP
                },
            );
        }
    }
    let made = Instant::now();
    let mut hung = Duration::ZERO;
    if let (Part::Controller, Trouble::Freeze, Some(frozen)) = (part, trouble, &met) {
        // While the controller is frozen, only the lease ends the work on the hosts. sshd's sessions may remain,
        // because the agent's last message may wait in ssh's pipe for the controller.
        is_idle(hosts, &name, |process| !process.words.starts_with("sshd: "));
        hung = made.elapsed();
        signal(frozen.pid, Signal::CONT);
    }
    let resumed = Instant::now();
    until(&name, || experiment.has_ended());
    // The rest of the planned run doesn't count as a hang; any time beyond it does.
    let planned = usual.saturating_sub(resumed - experiment.begin);
    hung = hung.max(resumed.elapsed().saturating_sub(planned));
    let output = experiment.end();
    cut.iter().for_each(|index| hosts.partition(*index, false));
    if let (Trouble::Freeze, Some(frozen)) = (trouble, &met) {
        signal(frozen.pid, Signal::CONT);
    }
    if (part, trouble) == (Part::Agent(Way::Agent), Trouble::Kill) && met.is_some() {
        until(&name, || hosts.servers(index).is_empty());
        hosts.serve(index);
    }
    let healed = Instant::now();
    is_idle(hosts, &name, |_| true);
    until(&name, || hosts.controller_processes().is_empty());
    hung = hung.max(healed.elapsed());
    let victims: Vec<&str> = match part {
        Part::Controller | Part::Networks => {
            hosts.hosts.iter().map(|host| host.name.as_str()).collect()
        }
        _ => vec![hosts.hosts[index].name.as_str()],
    };
    let was_killed = part == Part::Controller && trouble == Trouble::Kill && met.is_some();
    let named = Named {
        victims: &victims,
        is_target: part.is_of_server(),
    };
    check(
        &name,
        &hosts.folder().join("results"),
        &output,
        named,
        was_killed,
        policy,
    );
    println!(
        "{name}: ended {:.2} s after, {:.2} s too long",
        made.elapsed().as_secs_f64(),
        hung.as_secs_f64()
    );
    Round {
        hung,
        met: met.is_some() || is_cut,
    }
}

/// Waits until no host has a process of a controller's session that `counts` accepts.
fn is_idle(hosts: &Hosts, name: &str, counts: fn(&Process) -> bool) {
    for index in 0..=SERVER {
        let left = || (hosts.visitors(index), hosts.threads_at_work(index));
        let is_idle = || {
            let (visitors, threads) = left();
            !visitors.iter().any(counts) && threads.is_empty()
        };
        let begin = Instant::now();
        while !is_idle() {
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "{name}: on h{} is left {:?}",
                index + 1,
                left()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What the results may report as lost.
#[derive(Clone, Copy, Default)]
struct Named<'a> {
    /// Hosts.
    victims: &'a [&'a str],
    /// The target.
    is_target: bool,
}

/// Asserts that the results are correct: no total omits a host silently, and only the victims are reported as lost.
fn check(
    name: &str,
    results: &Path,
    output: &Output,
    named: Named<'_>,
    was_killed: bool,
    policy: &str,
) {
    let Named { victims, is_target } = named;
    let words = output_text(output);
    let status = output.status.code();
    assert!(
        was_killed || matches!(status, Some(0 | 1)),
        "{name}: {status:?} {words}"
    );
    assert!(!words.contains("panicked"), "{name}: {words}");
    let Ok(text) = std::fs::read(results.join("summary.json")) else {
        assert_ne!(status, Some(0), "{name}: no results and no error: {words}");
        return;
    };
    let summary: Value =
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let runs = summary["points"][0]["runs"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut whole = 0;
    for run in &runs {
        let what = || format!("{name}: {run:#}\n{words}");
        let of_hosts = run["hosts"].as_array().unwrap();
        let names: Vec<&str> = of_hosts
            .iter()
            .map(|host| host["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["h1", "h2", "h3", "h4"], "{}", what());
        let lost: Vec<&Value> = of_hosts
            .iter()
            .filter(|host| !host["lost"].is_null())
            .collect();
        let lost_names: Vec<&str> = lost
            .iter()
            .map(|host| host["name"].as_str().unwrap())
            .collect();
        assert!(
            lost_names.iter().all(|name| victims.contains(name)),
            "only the victim is lost: {}",
            what()
        );
        let [completed, late] =
            ["completed", "late"].map(|key| run["ops"][0][key].as_u64().unwrap_or(0));
        let rate = |value: &Value| value["requests_per_second"].as_f64().unwrap();
        let in_time = rate(run) * run["measured_s"].as_f64().unwrap();
        assert!(
            (in_time - (completed - late) as f64).abs() < 0.5 || lost.is_empty(),
            "{in_time}: {}",
            what()
        );
        let living = of_hosts.iter().filter(|host| host["lost"].is_null());
        if lost.is_empty() && run["stopped"] == "done" {
            whole += 1;
            assert_eq!(completed, REQUESTS, "{}", what());
            assert_total(run, completed - late);
        } else {
            assert!(!lost.is_empty() || run["stopped"] != "done", "{}", what());
            // The host that serves the target has no workers.
            assert_eq!(
                run["doubts"]
                    .as_array()
                    .is_some_and(|doubts| !doubts.is_empty()),
                !lost.is_empty() || run["stopped"] == "host-lost",
                "{}",
                what()
            );
            let kept = living.count() as u64 * OF_EACH;
            // Without the target, the surviving hosts can't continue.
            let goes_on = policy == "continue" && kept > 0 && !is_target;
            let is_over = run["stopped"] == "host-lost" && goes_on;
            assert!(
                !is_over || completed >= kept,
                "what the living measured is kept: {}",
                what()
            );
            assert!(completed <= REQUESTS, "{}", what());
        }
    }
    // The victim may have finished everything except exiting.
    let is_complete = summary["complete"] == true;
    assert!(!is_complete || whole == 2, "{name}: {summary:#}\n{words}");
    assert!(
        is_complete || status != Some(0),
        "{name}: {summary:#}\n{words}"
    );
    if !was_killed && status == Some(1) {
        // The loss of the target or its host is reported by whichever notices it first: the target's supervisor, or a
        // worker that opens the target.
        let target = "t ended unexpectedly";
        let says = victims
            .iter()
            .any(|victim| words.contains(&format!("host {victim}")))
            || is_target && (words.contains(target) || words.contains("cannot open iscsi://"));
        assert!(says, "{name}: it says which host: {words}");
    }
}

/// No matter what is killed, frozen or cut off, and when: nothing hangs, nothing is left behind, no measurement of a
/// surviving host is lost, and every total that lacks a host says so.
#[test]
fn nothing_hangs_or_is_left_whichever_part_fails() {
    let _busy = busy(); // Many hosts start and end all the time.
    let plans = [0, 250_000_000, -400_000_000, 1_000, 70_000_000].map(|shift_ns| Plan {
        link: "delay = \"200us\"",
        shift_ns,
    });
    let Some(mut hosts) = Hosts::start(&plans) else {
        return;
    };
    let count = rounds(5, 13);
    let mut random = Random::new(seed());
    // The duration of an undisturbed run.
    let calm = Experiment::start(&hosts, "abort");
    let begin = calm.begin;
    let output = calm.end();
    let usual = begin.elapsed();
    check(
        "calm",
        &hosts.folder().join("results"),
        &output,
        Named::default(),
        false,
        "abort",
    );
    assert!(output.status.success(), "{}", output_text(&output));
    let first = random.below(CASES.len() as u64) as usize;
    let (mut worst, mut met) = (Duration::ZERO, 0);
    for number in 0..count {
        let case = CASES[(first + number) % CASES.len()];
        let way = match case.0 {
            Part::Agent(way) | Part::Network(way) => way,
            _ => Way::Ssh,
        };
        let able: Vec<usize> = match case.0.is_of_server() {
            true => vec![SERVER],
            false => (0..HOSTS)
                .filter(|index| hosts.hosts[*index].way == way)
                .collect(),
        };
        let index = able[random.below(able.len() as u64) as usize];
        let moment = usual.mul_f64(random.unit() * 0.95);
        let policy = if random.chance(0.5) {
            "abort"
        } else {
            "continue"
        };
        print!("{number}: ");
        let round = round(&mut hosts, case, index, moment, policy, usual);
        worst = worst.max(round.hung);
        met += usize::from(round.met);
        if let Some(most) = hang_max() {
            assert!(round.hung <= most, "{:?} is over {most:?}", round.hung);
        }
    }
    println!(
        "{count} rounds, {met} of them met something; an undisturbed experiment takes {:.2} s; at most {:.2} s longer",
        usual.as_secs_f64(),
        worst.as_secs_f64()
    );
    assert!(met > 0, "trouble that meets nobody shows nothing");
    assert!(hosts.down().is_empty());
}
