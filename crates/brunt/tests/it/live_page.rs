//! The live page of `brunt run --serve`, as a browser requests it: during a run with a fault, including a run in a
//! lab, and at its end. `brunt-web` tests which requests are answered at all.

use crate::support;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::live_events::LiveEvents;
use crate::support::{TempDir, busy, experiment, skip};
use serde_json::Value;

/// A run that serves its page; killed on drop.
struct Served {
    child: Child,
    said: BufReader<ChildStderr>,
    address: String,
}

impl Served {
    /// Starts the run and reads the address from its first line; returns the output if the first line is something
    /// else.
    fn start(command: &mut Command) -> Result<Served, String> {
        command
            .args(["--serve", "127.0.0.1:0"])
            .stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("brunt");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut first = String::new();
        said.read_line(&mut first).expect("a line");
        let address = first
            .trim()
            .strip_prefix("brunt: live page at http://")
            .and_then(|rest| Some(rest.split_once("/#token=")?.0.to_string()));
        match address {
            Some(address) => Ok(Served {
                child,
                said,
                address,
            }),
            None => {
                // The run may take long, so interrupt it.
                let killed = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process(killed, rustix::process::Signal::INT);
                let _ = said.read_to_string(&mut first);
                let _ = child.wait();
                Err(first)
            }
        }
    }

    fn events(&self) -> LiveEvents {
        LiveEvents::of(&self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kind(frame: &Value) -> &str {
    frame["frame"].as_str().expect("its kind")
}

/// Two runs of `seconds` in a lab, with a fault for a third of that time.
fn with_fault(seconds: u32) -> String {
    let third = seconds / 3;
    format!(
        "name = \"watched\"\nrepetitions = 2\n[lab]\nhosts = [\"a\", \"b\"]\n[lab.links.wire]\n\
         between = [\"a\", \"b\"]\nrate = \"1Gb/s\"\n[targets.disk]\nserve = \"memory:4MiB\"\nhost = \"b\"\n\
         [workloads.mixed]\nread = 0.5\nqueue_depth = 2\ninterval = \"50ms\"\nstop = {{ time = \"{seconds}s\" }}\n\
         [[fault]]\nname = \"far\"\nlink = \"wire\"\nset = {{ delay = \"20ms\" }}\nat = \"{third}s\"\nfor = \"{third}s\"\n"
    )
}

/// Watches an experiment in a lab to its end: its frames, its messages, and whether it succeeded. `None`, with a
/// message, if a lab can't be created.
fn watch(folder: &TempDir, text: &str) -> Option<(Vec<Value>, String, bool)> {
    let mut served = match Served::start(&mut experiment(folder, text)) {
        Ok(served) => served,
        Err(said)
            if said.contains("cannot create the namespaces") || said.contains("/dev/net/tun") =>
        {
            skip("user namespaces and /dev/net/tun");
            return None;
        }
        Err(said) => panic!("{said}"),
    };
    let frames = served.events().collect();
    let mut said = String::new();
    served.said.read_to_string(&mut said).expect("text");
    let went_well = served.child.wait().expect("it ends").success();
    Some((frames, said, went_well))
}

/// Two runs in a lab with a fault: the page is served outside the lab, shows the start and the end of the fault, and
/// its figures for a run equal those in `summary.json`. The run ends even though a viewer is connected.
#[test]
fn a_run_in_a_lab_is_watched_to_its_end() {
    let mut seconds = 3;
    let (folder, frames, said) = loop {
        let folder = TempDir::new("live-page");
        let Some((frames, said, went_well)) = watch(&folder, &with_fault(seconds)) else {
            return;
        };
        if support::was_in_time(went_well, &said) {
            break (folder, frames, said);
        }
        assert!(seconds < 24, "{said}");
        seconds *= 2;
    };
    let of = |what: &str| {
        frames
            .iter()
            .filter(|frame| kind(frame) == what)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (kind(&frames[0]), kind(frames.last().expect("some"))),
        ("plan", "ends")
    );
    assert_eq!(frames[0]["experiment"], "watched");
    assert_eq!(
        frames[0]["faults"][0],
        serde_json::json!(["far", "link", "link wire"])
    );
    assert_eq!(
        (
            of("run-begins").len(),
            of("run-starts").len(),
            of("run-ends").len()
        ),
        (2, 2, 2)
    );
    // The fault is injected and removed in each run.
    let ends: Vec<bool> = of("fault")
        .iter()
        .map(|fault| fault["end_s"].is_number())
        .collect();
    assert_eq!(ends.iter().filter(|end| **end).count(), 2, "{ends:?}");
    assert!(ends.contains(&false), "{ends:?}");
    // Five intervals of 50 ms are shown as one, unless a busy machine made an interval longer.
    let stretches = of("stretch");
    let most = 2 * (4 * seconds as usize + 1);
    assert!(stretches.len() <= most, "{}", stretches.len());
    let is_of_five = |one: &&Value| {
        let [from, to] = ["start_s", "end_s"].map(|key| one[key].as_f64().expect("a time"));
        (0.249..0.299).contains(&(to - from))
    };
    assert!(stretches.iter().any(is_of_five), "{stretches:?}");
    // With so many requests, some are of each kind.
    let mut full = stretches
        .iter()
        .filter(|one| one["completed"].as_u64() >= Some(64))
        .peekable();
    assert!(full.peek().is_some(), "{stretches:?}");
    assert!(full.all(|one| {
        one["kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.len() == 2)
    }));
    let worst = stretches
        .iter()
        .filter_map(|one| one["response"]["max_us"].as_f64())
        .fold(0.0, f64::max);
    assert!(worst >= 40_000.0, "the fault's round trip is seen: {worst}");
    // There are samples from both hosts and from this machine.
    let hosts: std::collections::BTreeSet<&str> = of("sample")
        .iter()
        .filter_map(|sample| sample["host"].as_str())
        .collect();
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["a", "b", "local"]);
    // Each line of the terminal is also in the log.
    let notes: Vec<&str> = of("note")
        .iter()
        .filter_map(|note| note["text"].as_str())
        .collect();
    for line in said.lines().filter_map(|line| line.strip_prefix("brunt: ")) {
        assert!(notes.contains(&line), "{line} is not in {notes:?}");
    }
    let summary = std::fs::read_to_string(folder.join("results/summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    for (frame, run) in of("run-ends")
        .iter()
        .zip(summary["points"][0]["runs"].as_array().expect("runs"))
    {
        for key in [
            "requests_per_second",
            "bytes_per_second",
            "response",
            "measured_s",
            "losses",
        ] {
            assert_eq!(frame[key], run[key], "{key}");
        }
    }
    let end = frames.last().expect("some");
    assert_eq!(
        (&end["trouble"], &end["frames_lost"]),
        (&Value::Null, &Value::from(0))
    );
    assert!(
        end["report"]
            .as_str()
            .is_some_and(|page| std::path::Path::new(page).exists()),
        "{end}"
    );
}

/// A late viewer gets the history; Ctrl-C ends the run and sends viewers the reason.
#[test]
fn an_interrupted_run_gives_its_viewers_the_reason() {
    let folder = TempDir::new("live-page");
    let text = "name = \"x\"\n[targets.a]\nurl = \"null:1MiB\"\n[workloads.w]\narrival = { kind = \"open\", rate = 100 }\n\
                interval = \"250ms\"\nstop = { time = \"600s\" }\n";
    let mut served =
        Served::start(&mut experiment(&folder, text)).unwrap_or_else(|said| panic!("{said}"));
    served
        .events()
        .find(|frame| kind(frame) == "stretch")
        .expect("a stretch");
    let mut late = served.events();
    let past: Vec<Value> = late
        .by_ref()
        .take_while(|frame| kind(frame) != "now")
        .collect();
    assert!(
        past.iter().any(|frame| kind(frame) == "run-starts"),
        "{past:?}"
    );
    assert!(
        past.iter().any(|frame| kind(frame) == "stretch"),
        "{past:?}"
    );
    let pid = rustix::process::Pid::from_raw(served.child.id() as i32).expect("a process's number");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is ours");
    let end = late.find(|frame| kind(frame) == "ends").expect("the end");
    assert_eq!(end["trouble"], "interrupted");
    assert_eq!(served.child.wait().expect("it ends").code(), Some(1));
}

/// A replay has a page like an experiment's.
#[test]
fn a_replay_has_a_live_page() {
    let mut command = support::brunt();
    let trace = support::root().join("testdata/mysql-minutes.load.gz");
    command
        .arg("replay")
        .arg(trace)
        .args(["null:64GiB", "--for", "45s", "--speed", "15"]);
    let mut served = Served::start(&mut command).unwrap_or_else(|said| panic!("{said}"));
    let frames: Vec<Value> = served.events().collect();
    let of = |what: &str| {
        frames
            .iter()
            .filter(|frame| kind(frame) == what)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (kind(&frames[0]), kind(frames.last().expect("some"))),
        ("plan", "ends")
    );
    assert_eq!(frames[0]["experiment"], "replay");
    assert_eq!(
        (
            of("run-begins").len(),
            of("run-starts").len(),
            of("run-ends").len()
        ),
        (1, 1, 1)
    );
    let completed = |frames: &[&Value]| {
        frames
            .iter()
            .filter_map(|one| one["completed"].as_u64())
            .sum::<u64>()
    };
    assert!(!of("stretch").is_empty() && completed(&of("stretch")) > 0);
    assert!(
        of("run-ends")[0]["requests_per_second"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
    served.child.wait().expect("it ends");
}

/// The benchmark for viewers has figures for every run, with and without a page, and each viewer receives its run to
/// the end.
#[test]
fn the_cost_of_viewers_is_measured() {
    let _busy = busy(); // All viewers keep cores busy; the measured rates don't matter.
    let measure = |seconds: &str| {
        let mut command = support::bench();
        command.args(["--json", "page", "--seconds", seconds]);
        command.args(["--rounds", "2", "--viewers", "3"]);
        command.output().expect("brunt")
    };
    // On a busy machine, a run of a second may be over before its viewers have connected.
    let mut output = measure("1");
    for seconds in ["5", "15"] {
        if !output.status.success() {
            output = measure(seconds);
        }
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for side in ["no page", "idle page", "page with viewers"] {
        for figure in ["rates", "cpu_ns"] {
            let values = found[side][figure]
                .as_array()
                .unwrap_or_else(|| panic!("{side}: {found}"));
            assert!(
                values.len() == 2 && values.iter().all(|value| value.as_f64() > Some(0.0)),
                "{side} {values:?}"
            );
        }
    }
    assert!(
        found["ratio of viewers"]["rate"]["ratio"].is_number(),
        "{found}"
    );
}

/// An address that is in use and an invalid address are ordinary errors, reported before anything is opened.
#[test]
fn bad_addresses_are_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let text =
        "name = \"x\"\n[targets.a]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { requests = 1 }\n";
    let check = |address: &str, status: i32, reason: &str| {
        let folder = TempDir::new("live-page");
        let output = experiment(&folder, text)
            .args(["--serve", address])
            .output()
            .expect("brunt");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(reason), "{said}");
        assert!(!folder.join("results/summary.json").exists());
    };
    check(
        &address,
        1,
        &format!("cannot serve the live page at {address}"),
    );
    check("x.toml", 2, "the experiment before '--serve'");
}
