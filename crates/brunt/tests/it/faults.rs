//! Faults injected from outside: commands to a served target and how they appear to initiators, experiments with
//! faults in served targets, and the canary: an experiment whose fault doesn't happen fails.

use crate::support;
use std::process::{Command, Output};

use crate::support::controlled::ControlledTarget;
use crate::support::{TARGET_NAME, TempDir, brunt, need, run_within};
use serde_json::Value;

/// A target with one LUN, controlled by commands.
struct Controlled {
    target: ControlledTarget,
    url: String,
}

impl Controlled {
    fn start(lun: &str) -> Controlled {
        let target = ControlledTarget::start(&["--portal", "127.0.0.1:0", "--lun", lun], 1);
        let url = format!("iscsi://{}/{TARGET_NAME}/0", target.portals[0]);
        Controlled { target, url }
    }

    fn ask(&mut self, order: &str) -> String {
        self.target.ask(order)
    }

    /// The output of `brunt io read` for ten blocks, and whether it succeeded.
    fn read(&self) -> (bool, String) {
        let mut command = brunt();
        command.args(["io", "read", &self.url, "--bs", "4k", "--count", "10"]);
        let output = run_within(&mut command, 30);
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).to_string(),
        )
    }
}

/// Brunt's own initiator sees an injected fault as sense data; the fault ends on command.
#[test]
fn injected_faults_become_sense_data() {
    let mut target = Controlled::start("memory:8MiB?fault=off&retry=50,off");
    assert!(target.read().0);
    let check = |target: &mut Controlled, fault: &str, said: Option<&str>| {
        let answer = target.ask(&format!(r#"{{"do":"arm","lun":0,"fault":"{fault}"}}"#));
        assert!(answer.contains(r#""answer":"armed""#), "{answer}");
        let (went_well, words) = target.read();
        match said {
            Some(said) => assert!(!went_well && words.contains(said), "{fault}: {words}"),
            None => assert!(went_well, "{fault}: {words}"),
        }
        assert_eq!(
            target.ask(r#"{"do":"clear","lun":0}"#),
            r#"{"answer":"done"}"#
        );
        assert!(target.read().0, "{fault} is gone");
    };
    check(
        &mut target,
        "medium-error,op=read",
        Some("medium error (key 0x3, asc/ascq 11/00"),
    );
    check(
        &mut target,
        "hardware-error,op=read",
        Some("hardware error (key 0x4, asc/ascq 44/00"),
    );
    check(
        &mut target,
        "aborted-command,op=read",
        Some("aborted command (key 0xb, asc/ascq 4b/00"),
    );
    check(
        &mut target,
        "reservation-conflict,op=read",
        Some("ReservationConflict"),
    );
    check(
        &mut target,
        "not-ready,op=read",
        Some("not ready (key 0x2, asc/ascq 04/00"),
    );
    check(
        &mut target,
        "sense:3/14/01,op=read",
        Some("medium error (key 0x3, asc/ascq 14/01"),
    );
    check(
        &mut target,
        "sense:9/80/07,op=read",
        Some("(key 0x9, asc/ascq 80/07"),
    );
    check(&mut target, "bad-blocks,lba=3+40", Some("information 3)"));
    check(
        &mut target,
        "errno:ENOSPC,op=read",
        Some("data protect (key 0x7, asc/ascq 27/07"),
    );
    check(&mut target, "unit-attention,op=read", None);
    check(&mut target, "task-set-full,op=read,times=3", None);
    check(&mut target, "recovered-error,op=read", None);
    check(&mut target, "busy,op=read,times=3", None);
    assert_eq!(
        target.ask(r#"{"do":"retry","lun":0,"on":true}"#),
        r#"{"answer":"done"}"#
    );
    check(&mut target, "medium-error,op=read,p=0.5", None);
    let status = target.ask(r#"{"do":"status","lun":0}"#);
    assert!(status.contains(r#""kind":"retry","on":true"#), "{status}");
    assert!(target.ask("nonsense").contains("refused"));
}

/// An independent initiator sees the same fault.
#[test]
fn an_independent_initiator_sees_injected_faults() {
    let Some(qemu) = need("qemu-io", "qemu-utils") else {
        return;
    };
    if !std::path::Path::new("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so").exists() {
        return support::skip("the Debian package qemu-block-extra");
    }
    let mut target = Controlled::start("memory:8MiB?fault=off");
    let read = |target: &Controlled| {
        let mut command = Command::new(&qemu);
        command.args(["-r", "-f", "raw", "-c", "read 0 4k", &target.url]);
        let output = run_within(&mut command, 30);
        let words = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&words).to_string()
    };
    assert!(read(&target).contains("read 4096/4096"));
    target.ask(r#"{"do":"arm","lun":0,"fault":"medium-error,op=read"}"#);
    let words = read(&target);
    assert!(
        !words.contains("read 4096/4096") && words.to_lowercase().contains("error"),
        "{words}"
    );
    target.ask(r#"{"do":"clear","lun":0}"#);
    assert!(read(&target).contains("read 4096/4096"));
}

/// The memory is taken up by a process other than the one that makes requests, and for the requested time once all of
/// it is locked.
#[test]
fn a_separate_process_takes_the_memory() {
    let fault = "[[fault]]\nmemory = \"2MiB\"\nat = \"100ms\"\nfor = \"300ms\"\n";
    let output = in_time(
        [3_000, 12_000, 48_000],
        |folder, time_ms| experiment(folder, fault, time_ms),
        |said| !support::came_too_late(said) || said.contains("RLIMIT_MEMLOCK"),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("RLIMIT_MEMLOCK") {
        return;
    }
    assert!(output.status.success(), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let fault = &summary["points"][0]["runs"][0]["faults"][0];
    assert!(
        fault["shown_by"]
            .as_str()
            .is_some_and(|by| by.contains("2MiB more locked")),
        "{fault}"
    );
    assert!(
        fault["gone_by"]
            .as_str()
            .is_some_and(|by| by.contains("the helper process has ended")),
        "{fault}"
    );
    assert!(
        time(fault, "end_s") - time(fault, "shown_s") >= 0.3,
        "{fault}"
    );
}

/// An array behind a target loses a member on command and is rebuilt.
#[test]
fn a_member_is_failed_and_rebuilt_on_command() {
    let member = "[memory:1MiB]";
    let mut target = Controlled::start(&format!(
        "array:raid5,rebuild=0,{member},{member},{member},spare={member}"
    ));
    assert_eq!(
        target.ask(r#"{"do":"fail","lun":0,"member":2}"#),
        r#"{"answer":"done"}"#
    );
    assert!(target.read().0);
    support::eventually("the array is whole", 10, || {
        let status = target.ask(r#"{"do":"status","lun":0}"#);
        status.contains(r#""state":"optimal""#) && status.contains(r#""rebuilds":1"#)
    });
}

fn experiment(folder: &TempDir, faults: &str, time_ms: u32) -> Command {
    let text = format!(
        "name = \"x\"\nrepetitions = 1\n[targets.san]\nserve = \"memory:8MiB?fault=off\"\n\
         [workloads.load]\nretry = {{ count = 100, on = \"any\" }}\ninterval = \"50ms\"\n\
         stop = {{ time = \"{time_ms}ms\" }}\n{faults}"
    );
    support::experiment(folder, &text)
}

/// Runs an experiment until its messages are as they were `meant`: with the first of these times, in milliseconds, and,
/// if that is too short for a busy machine, with the others. Returns the last output.
fn in_time(
    times_ms: [u32; 3],
    command: impl Fn(&TempDir, u32) -> Command,
    meant: impl Fn(&str) -> bool,
) -> Output {
    let run = |time_ms: u32| {
        let folder = TempDir::new("in-time");
        run_within(&mut command(&folder, time_ms), 60)
    };
    let mut output = run(times_ms[0]);
    for time_ms in &times_ms[1..] {
        if meant(&String::from_utf8_lossy(&output.stderr)) {
            break;
        }
        output = run(*time_ms);
    }
    output
}

/// A fault, its start, and its duration in milliseconds.
type Timed<'a> = (&'a str, u32, u32);

fn timed((what, at_ms, for_ms): Timed<'_>) -> String {
    format!("[[fault]]\ntarget = \"san\"\n{what}\nat = \"{at_ms}ms\"\nfor = \"{for_ms}ms\"\n")
}

/// The faults in the results of an experiment's only run, and the factor by which all times were stretched. On a busy
/// machine, a fault may come too late to affect any request, or differ from the intended one (`meant`); then the
/// experiment is repeated with times doubled.
fn faults_of(
    name: &str,
    faults: &[Timed<'_>],
    meant: impl Fn(&[Value], f64) -> bool,
) -> (Vec<Value>, f64) {
    let mut said = String::new();
    for factor in [1, 2, 4, 8, 16] {
        let folder = TempDir::new(name);
        let slower = |(what, at, lasts): &Timed<'_>| timed((what, at * factor, lasts * factor));
        let text: String = faults.iter().map(slower).collect();
        let output = run_within(&mut experiment(&folder, &text, 1200 * factor), 60);
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !support::was_in_time(output.status.success(), &said) {
            continue;
        }
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let seen = summary["points"][0]["runs"][0]["faults"]
            .as_array()
            .expect("faults")
            .clone();
        if meant(&seen, f64::from(factor)) {
            return (seen, f64::from(factor));
        }
        said = format!("{seen:#?}");
    }
    panic!("{name}: never as it was meant to be: {said}");
}

/// A time of a fault, or of a gap in it.
fn time(of: &Value, key: &str) -> f64 {
    of[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {of}"))
}

/// Faults of every kind that doesn't need a lab hit a served target on time, are proven, and are removed.
#[test]
fn faults_hit_a_served_target_on_time_and_are_removed() {
    let faults = [
        ("storage = \"aborted-command,p=0.5\"", 300, 200),
        ("freeze = true", 600, 100),
        ("kill = true", 800, 100),
    ];
    let (seen, factor) = faults_of("faults", &faults, |_, _| true);
    let kinds: Vec<&str> = seen
        .iter()
        .filter_map(|fault| fault["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["storage", "freeze", "kill"]);
    for (fault, (_, at, lasts)) in seen.iter().zip(faults) {
        assert!(
            time(fault, "start_s") >= f64::from(at) / 1e3 * factor,
            "{seen:?}"
        );
        assert!(
            time(fault, "end_s") >= f64::from(at + lasts) / 1e3 * factor,
            "{seen:?}"
        );
        assert!(time(fault, "gone_s") >= time(fault, "end_s"), "{seen:?}");
    }
}

/// A served target whose LUN has no fault layer gets one for a storage fault, like a device that this process opens.
#[test]
fn a_served_target_gets_the_layer_for_its_storage_fault() {
    for serve in [
        "\"memory:8MiB\"",
        "[\"null:1MiB\", \"memory:8MiB,wb\"]\nlun = 1",
    ] {
        let folder = TempDir::new("faults");
        let text = format!(
            "name = \"x\"\nrepetitions = 1\n[targets.t]\nserve = {serve}\n[workloads.w]\nstop = {{ requests = 20 }}\n\
             [[fault]]\ntarget = \"t\"\nstorage = \"slow:5ms\"\n"
        );
        let output = run_within(&mut support::experiment(&folder, &text), 60);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{serve}: {said}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let run = &summary["points"][0]["runs"][0];
        assert!(
            run["response"]["mean_us"]
                .as_f64()
                .is_some_and(|mean| mean >= 5000.0),
            "{run}"
        );
    }
}

/// A path that isn't ready rejects its requests; for a path that is merely worse, the initiator is notified. Both
/// states end when the fault does.
#[test]
fn a_port_groups_state_changes_and_reverts() {
    let faults = [
        ("access = \"transitioning\"", 200, 200),
        ("access = \"non-optimized\"", 700, 200),
    ];
    let (seen, _) = faults_of("access", &faults, |_, _| true);
    for fault in &seen {
        assert_eq!(fault["kind"], "access", "{seen:?}");
        assert!(
            fault["gone_by"]
                .as_str()
                .unwrap()
                .ends_with("port group 1 is optimized again"),
            "{seen:?}"
        );
    }
    assert!(
        !seen[0]["gone_by"]
            .as_str()
            .unwrap()
            .starts_with("0 commands"),
        "{seen:?}"
    );
    assert!(
        seen[1]["gone_by"]
            .as_str()
            .unwrap()
            .starts_with("0 commands"),
        "{seen:?}"
    );
}

/// A storage fault that was lost with its target's process is injected again, twice if needed, and proven again; the
/// gap is recorded. A fault that was due to end during the gap ended with the process.
#[test]
fn storage_faults_outlive_their_target() {
    let slow = "storage = \"slow:2ms,p=0.9\"";
    let faults = [
        (slow, 200, 900),
        ("kill = true", 350, 50),
        ("kill = true", 700, 50),
    ];
    // The fault must be proven before it is lost, again between the two kills, and again before it ends.
    let shown = |seen: &[Value], _| {
        let until = |gap: &Value| gap["until_s"].as_f64() < seen[2]["start_s"].as_f64();
        let gaps = &seen[0]["gaps"];
        let proven = |index: usize| gaps[index]["shown_by"].is_string();
        time(&seen[0], "shown_s") < time(&seen[1], "start_s")
            && until(&gaps[0])
            && proven(0)
            && proven(1)
    };
    let (seen, _) = faults_of("gaps", &faults, shown);
    let gaps = seen[0]["gaps"].as_array().expect("gaps");
    assert_eq!(gaps.len(), 2, "{seen:?}");
    let mut there = time(&seen[0], "shown_s");
    for (gap, kill) in gaps.iter().zip(&seen[1..]) {
        // The fault was lost when the process died, slightly after the decision to kill it.
        assert!(
            (there..=time(kill, "shown_s")).contains(&time(gap, "from_s")),
            "{seen:?}"
        );
        assert!(time(gap, "until_s") >= time(kill, "end_s"), "{seen:?}");
        assert!(
            gap["shown_by"].as_str().unwrap().starts_with("affected "),
            "{seen:?}"
        );
        there = time(gap, "until_s");
    }
    assert!(
        seen[0]["gone_by"].as_str().unwrap().contains("armed again"),
        "{seen:?}"
    );
    let faults = [(slow, 200, 300), ("kill = true", 400, 300)];
    let (seen, factor) = faults_of("ended with it", &faults, |seen, factor| {
        time(&seen[1], "shown_s") < 0.5 * factor
    });
    assert!(
        seen[0]["gone_by"]
            .as_str()
            .unwrap()
            .contains("process was killed"),
        "{seen:?}"
    );
    assert!(
        time(&seen[0], "end_s") <= time(&seen[1], "shown_s"),
        "{seen:?}"
    );
    assert!(time(&seen[1], "end_s") >= 0.7 * factor, "{seen:?}");
}

/// A storage fault that should begin or end while its target is frozen does so when the target resumes.
#[test]
fn a_frozen_target_applies_storage_faults_when_it_resumes() {
    let busy = "storage = \"busy,p=0.5\"";
    for (at, lasts) in [(200, 300), (400, 300), (200, 600)] {
        let faults = [(busy, at, lasts), ("freeze = true", 350, 250)];
        let (seen, _) = faults_of("frozen", &faults, |_, _| true);
        assert!(
            seen[0]["gone_by"]
                .as_str()
                .unwrap()
                .contains("it is disarmed"),
            "{seen:?}"
        );
        assert!(seen[0].get("gaps").is_none(), "{seen:?}");
    }
}

/// Faults that can't overlap are rejected before anything runs; for those that can, the plan states the combined
/// effect.
#[test]
fn impossible_overlaps_are_refused_and_others_explained() {
    let check = |faults: String, code: i32, said: &str| {
        let folder = TempDir::new("overlap");
        let output = run_within(experiment(&folder, &faults, 1200).arg("--check"), 60);
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        assert_eq!(output.status.code(), Some(code), "{words}");
        assert!(words.contains(said), "{words}");
    };
    let busy = "storage = \"busy\"";
    let kill = |at, lasts| timed(("kill = true", at, lasts));
    check(
        timed((busy, 100, 500)) + &kill(200, 100),
        0,
        "injected again",
    );
    check(
        timed((busy, 200, 50)) + &kill(100, 500),
        2,
        "serves no requests",
    );
    check(
        kill(100, 500) + &kill(300, 500),
        2,
        "end one before the other starts",
    );
    check(
        timed((busy, 100, 500)) + &timed(("storage = \"slow:1ms\"", 200, 100)),
        2,
        "its own layer",
    );
}

/// Failing a member that no redundancy can replace is rejected before anything is opened, not at the end of a run;
/// the remedy in the message works.
#[test]
fn failing_a_member_without_redundancy_is_refused_at_the_start() {
    let experiment = |folder: &TempDir, fault: &str, time_ms: u32| {
        let part_ms = time_ms / 3;
        let text = format!(
            "name = \"x\"\nrepetitions = 2\n[targets.array]\nurl = \"array:raid0,[memory:4MiB?fault=off],[memory:4MiB]\"\n\
             [workloads.load]\nretry = {{ count = 100, on = \"any\" }}\nstop = {{ time = \"{time_ms}ms\" }}\n\
             [[fault]]\ntarget = \"array\"\n{fault}at = \"{part_ms}ms\"\nfor = \"{part_ms}ms\"\n"
        );
        support::experiment(folder, &text)
    };
    for check in [true, false] {
        let folder = TempDir::new("raid0");
        let output = run_within(
            experiment(&folder, "member = 0\n", 600).args(check.then_some("--check")),
            60,
        );
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(
            words.contains("member 0 of a RAID 0 cannot fail"),
            "{words}"
        );
        assert!(words.contains("layer = \"0/fault\""), "{words}");
        assert!(!folder.join("results").exists(), "nothing was begun");
    }
    let instead = "layer = \"0/fault\"\nstorage = \"hardware-error\"\n";
    let output = in_time(
        [600, 6_000, 24_000],
        |folder, time_ms| experiment(folder, instead, time_ms),
        |said| !support::came_too_late(said),
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The canary: a fault that silently doesn't happen makes the experiment fail, with exit status 1.
#[test]
fn a_fault_that_does_not_happen_fails_the_experiment() {
    for (name, fault, said) in [
        (
            "elsewhere",
            "storage = \"medium-error,lba=99999999-99999999\"",
            "had no visible effect",
        ),
        (
            "never",
            "storage = \"busy,p=0.000000001\"",
            "had no visible effect",
        ),
        ("wrong op", "storage = \"drop\"", "had no visible effect"),
    ] {
        let fault =
            format!("[[fault]]\ntarget = \"san\"\n{fault}\nat = \"200ms\"\nfor = \"200ms\"\n");
        // On a busy machine, the run may end before the fault begins, which is another error.
        let output = in_time(
            [1_200, 4_800, 19_200],
            |folder, time_ms| experiment(folder, &fault, time_ms),
            |words| words.contains(said),
        );
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {words}");
        assert!(words.contains(said), "{name}: {words}");
    }
}
