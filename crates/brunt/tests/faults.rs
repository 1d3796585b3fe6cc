//! Faults from outside: orders to a served target and what initiators see of them, experiments with faults
//! in served targets, and the canary: one whose fault does not happen fails.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use support::{TempDir, brunt, need, run_within};

/// A target that takes orders, killed at the end.
struct Controlled {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    url: String,
}

impl Controlled {
    fn start(lun: &str) -> Controlled {
        let arguments = ["target", "--control", "--portal", "127.0.0.1:0", "--lun", lun];
        let mut command = brunt();
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("brunt starts");
        let orders = child.stdin.take().expect("piped");
        let mut answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("the portal");
        let url = format!("iscsi://{}/iqn.2026-11.io.brunt:t0/0", line.trim());
        Controlled { child, orders, answers, url }
    }

    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("it takes orders");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().to_string()
    }

    /// What `brunt io read` says of ten blocks, and whether it went well.
    fn read(&self) -> (bool, String) {
        let mut command = brunt();
        command.args(["io", "read", &self.url, "--bs", "4k", "--count", "10"]);
        let output = run_within(&mut command, 30);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).to_string())
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The goal: what is ordered is what our initiator sees, as sense data; and it ends when it is told to.
#[test]
fn orders_become_sense_data() {
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
        assert_eq!(target.ask(r#"{"do":"clear","lun":0}"#), r#"{"answer":"done"}"#);
        assert!(target.read().0, "{fault} is gone");
    };
    check(&mut target, "medium-error,op=read", Some("medium error (key 0x3, asc/ascq 11/00"));
    check(&mut target, "hardware-error,op=read", Some("hardware error (key 0x4, asc/ascq 44/00"));
    check(&mut target, "aborted-command,op=read", Some("aborted command (key 0xb, asc/ascq 4b/00"));
    check(&mut target, "reservation-conflict,op=read", Some("ReservationConflict"));
    check(&mut target, "recovered-error,op=read", None);
    check(&mut target, "busy,op=read,times=3", None);
    assert_eq!(target.ask(r#"{"do":"retry","lun":0,"on":true}"#), r#"{"answer":"done"}"#);
    check(&mut target, "medium-error,op=read,p=0.5", None);
    let status = target.ask(r#"{"do":"status","lun":0}"#);
    assert!(status.contains(r#""kind":"retry","on":true"#), "{status}");
    assert!(target.ask("nonsense").contains("refused"));
}

/// The goal: somebody else's initiator sees the same.
#[test]
fn others_see_it_too() {
    let Some(qemu) = need("qemu-io", "qemu-utils") else { return };
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
    assert!(!words.contains("read 4096/4096") && words.to_lowercase().contains("error"), "{words}");
    target.ask(r#"{"do":"clear","lun":0}"#);
    assert!(read(&target).contains("read 4096/4096"));
}

/// The goal: an array behind a target loses a member by order and is whole again.
#[test]
fn members_by_order() {
    let member = "[memory:1MiB]";
    let mut target =
        Controlled::start(&format!("array:raid5,rebuild=0,{member},{member},{member},spare={member}"));
    assert_eq!(target.ask(r#"{"do":"fail","lun":0,"member":2}"#), r#"{"answer":"done"}"#);
    assert!(target.read().0);
    support::eventually("the array is whole", 10, || {
        let status = target.ask(r#"{"do":"status","lun":0}"#);
        status.contains(r#""state":"optimal""#) && status.contains(r#""rebuilds":1"#)
    });
}

fn experiment(folder: &TempDir, faults: &str) -> Command {
    let text = format!(
        "name = \"x\"\nrepetitions = 1\n[targets.san]\nserve = \"memory:8MiB?fault=off\"\n\
         [workloads.load]\nretry = {{ count = 100, on = \"any\" }}\ninterval = \"50ms\"\nstop = {{ time = \"1200ms\" }}\n{faults}"
    );
    support::experiment(folder, &text)
}

/// The goal: faults of every kind that needs no lab hit a served target in their time, are shown and gone.
#[test]
fn faults_of_a_served_target() {
    let folder = TempDir::new("faults");
    let faults = "[[fault]]\ntarget = \"san\"\nstorage = \"aborted-command,p=0.5\"\nat = \"300ms\"\nfor = \"200ms\"\n\
                  [[fault]]\ntarget = \"san\"\nfreeze = true\nat = \"600ms\"\nfor = \"100ms\"\n\
                  [[fault]]\ntarget = \"san\"\nkill = true\nat = \"800ms\"\nfor = \"100ms\"\n";
    let output = run_within(&mut experiment(&folder, faults), 60);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let seen = summary["points"][0]["runs"][0]["faults"].as_array().expect("faults").clone();
    let kinds: Vec<&str> = seen.iter().filter_map(|fault| fault["kind"].as_str()).collect();
    assert_eq!(kinds, ["storage", "freeze", "kill"]);
    assert!(seen.iter().all(|fault| fault["end_s"].is_f64() && fault["gone_s"].is_f64()), "{seen:?}");
}

/// What an experiment says of its only run's faults; its standard error if it fails.
fn faults_of(name: &str, faults: &str) -> Result<Vec<serde_json::Value>, String> {
    let folder = TempDir::new(name);
    let output = run_within(&mut experiment(&folder, faults), 60);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).to_string());
    }
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    Ok(summary["points"][0]["runs"][0]["faults"].as_array().expect("faults").clone())
}

fn timed(what: &str, at_ms: u32, for_ms: u32) -> String {
    format!("[[fault]]\ntarget = \"san\"\n{what}\nat = \"{at_ms}ms\"\nfor = \"{for_ms}ms\"\n")
}

/// The goal: a fault of the storage that was lost with its target's process is put in place again, twice if
/// need be, shows again, and the time between is on record; one whose end comes meanwhile ended with the
/// process.
#[test]
fn storage_faults_outlive_their_target() {
    let slow = "storage = \"slow:2ms,p=0.9\"";
    let faults = timed(slow, 200, 900) + &timed("kill = true", 350, 50) + &timed("kill = true", 700, 50);
    let seen = faults_of("gaps", &faults).unwrap();
    let gaps = seen[0]["gaps"].as_array().expect("gaps");
    assert_eq!(gaps.len(), 2, "{seen:?}");
    for (gap, kill) in gaps.iter().zip(&seen[1..]) {
        let time = |value: &serde_json::Value| value.as_f64().expect("a time");
        // The kernel's word for the death comes a little after the signal was decided on.
        assert!((time(&gap["from_s"]) - time(&kill["start_s"])).abs() < 0.1, "{seen:?}");
        assert!(time(&gap["until_s"]) >= time(&kill["end_s"]), "{seen:?}");
        assert!(gap["shown_by"].as_str().unwrap().starts_with("hit "), "{seen:?}");
    }
    assert!(seen[0]["gone_by"].as_str().unwrap().contains("armed again"), "{seen:?}");
    let faults = timed(slow, 200, 300) + &timed("kill = true", 400, 300);
    let seen = faults_of("ended with it", &faults).unwrap();
    assert!(seen[0]["gone_by"].as_str().unwrap().contains("which was killed"), "{seen:?}");
    let end = |fault: &serde_json::Value| fault["end_s"].as_f64().unwrap();
    assert!(end(&seen[0]) < 0.5 && end(&seen[1]) >= 0.7, "{seen:?}");
}

/// The goal: what is asked of a target that stands still is answered when it goes on, whether the other fault
/// begins or ends then.
#[test]
fn storage_faults_of_a_frozen_target() {
    let busy = "storage = \"busy,p=0.5\"";
    for (at, lasts) in [(200, 300), (400, 300), (200, 600)] {
        let faults = timed(busy, at, lasts) + &timed("freeze = true", 350, 250);
        let seen = faults_of("frozen", &faults).unwrap();
        assert!(seen[0]["gone_by"].as_str().unwrap().contains("nothing of it is armed"), "{seen:?}");
        assert!(seen[0].get("gaps").is_none(), "{seen:?}");
    }
}

/// The goal: faults that cannot be there together are refused before anything runs, and those that can are
/// told with what comes of them.
#[test]
fn overlaps_are_told() {
    let check = |faults: String, code: i32, said: &str| {
        let folder = TempDir::new("overlap");
        let output = run_within(experiment(&folder, &faults).arg("--check"), 60);
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        assert_eq!(output.status.code(), Some(code), "{words}");
        assert!(words.contains(said), "{words}");
    };
    let busy = "storage = \"busy\"";
    let kill = |at, lasts| timed("kill = true", at, lasts);
    check(timed(busy, 100, 500) + &kill(200, 100), 0, "put in place again");
    check(timed(busy, 200, 50) + &kill(100, 500), 2, "serves nobody");
    check(kill(100, 500) + &kill(300, 500), 2, "let one end before the other begins");
    check(timed(busy, 100, 500) + &timed("storage = \"slow:1ms\"", 200, 100), 2, "a layer of its own");
}

/// The goal: a member that nothing can make up for does not fail at the end of a run, but before anything is
/// opened; the way out that is named there works.
#[test]
fn members_without_redundancy() {
    let experiment = |folder: &TempDir, fault: &str| {
        let text = format!(
            "name = \"x\"\nrepetitions = 2\n[targets.array]\nurl = \"array:raid0,[memory:4MiB?fault=off],[memory:4MiB]\"\n\
             [workloads.load]\nretry = {{ count = 100, on = \"any\" }}\nstop = {{ time = \"600ms\" }}\n\
             [[fault]]\ntarget = \"array\"\n{fault}at = \"200ms\"\nfor = \"200ms\"\n"
        );
        support::experiment(folder, &text)
    };
    for check in [true, false] {
        let folder = TempDir::new("raid0");
        let output = run_within(experiment(&folder, "member = 0\n").args(check.then_some("--check")), 60);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("member 0 of a RAID 0 cannot fail"), "{words}");
        assert!(words.contains("layer = \"0/fault\""), "{words}");
        assert!(!folder.join("results").exists(), "nothing was begun");
    }
    let folder = TempDir::new("raid0");
    let instead = "layer = \"0/fault\"\nstorage = \"hardware-error\"\n";
    let output = run_within(&mut experiment(&folder, instead), 60);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The goal, the canary: a fault that is silently not there makes the experiment fail, with exit status 1.
#[test]
fn a_fault_that_does_not_happen() {
    for (name, fault, said) in [
        ("elsewhere", "storage = \"medium-error,lba=99999999-99999999\"", "did not show"),
        ("never", "storage = \"busy,p=0\"", "did not show"),
        ("wrong op", "storage = \"drop\"", "did not show"),
    ] {
        let folder = TempDir::new("canary");
        let fault = format!("[[fault]]\ntarget = \"san\"\n{fault}\nat = \"200ms\"\nfor = \"200ms\"\n");
        let output = run_within(&mut experiment(&folder, &fault), 60);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {words}");
        assert!(words.contains(said), "{name}: {words}");
    }
}
