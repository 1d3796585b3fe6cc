//! Experiments with services, all of whose processes are found by a mark in their environment.
//!
//! The rule: a test finds its processes by that mark, which all of them inherit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    Running, TARGET_NAME, TempDir, eventually, experiment, processes_with, run_within, words_of,
};

/// The parts of an experiment other than its services.
pub const LOAD: &str = "name = \"services\"\nrepetitions = 1\n[workloads.read]\nread = 1.0\n";
pub const TARGET: &str = "[targets.here]\nurl = \"memory:1MiB\"\n";
pub const SHORT: &str = "stop = { time = \"300ms\" }\n";

/// A folder, and the mark of all processes that a test starts.
pub struct Marked {
    pub folder: TempDir,
    mark: String,
}

impl Marked {
    pub fn new(what: &str) -> Marked {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("BRUNT_SERVICES_TEST={}-{number}-{what}", std::process::id());
        Marked {
            folder: TempDir::new(what),
            mark,
        }
    }

    pub fn command(&self, text: &str) -> std::process::Command {
        let mut command = experiment(&self.folder, text);
        let (name, value) = self.mark.split_once('=').unwrap();
        // The folders of services are created here, so that the test notices leftovers.
        fs::create_dir_all(self.temporary()).unwrap();
        command.env(name, value).env("TMPDIR", self.temporary());
        command
    }

    pub fn temporary(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    pub fn log(&self, service: &str) -> String {
        fs::read_to_string(
            self.folder
                .join("results")
                .join(format!("services/{service}.log")),
        )
        .unwrap()
    }

    /// The processes that have the mark.
    pub fn processes(&self) -> Vec<String> {
        self.pids()
            .into_iter()
            .map(|pid| words_of(pid).join(" "))
            .collect()
    }

    pub fn pids(&self) -> Vec<u32> {
        processes_with(|variable| variable == self.mark.as_bytes())
    }

    /// Runs an experiment to completion; returns whether it succeeded, its summary and its messages. Asserts that
    /// nothing is left behind.
    pub fn run(&self, text: &str) -> (bool, Value, String) {
        let ran = self.run_on_hosts(text);
        let said = &ran.2;
        assert_eq!(self.processes(), [""; 0], "{said}");
        assert_eq!(files_in(&self.temporary()), [""; 0], "{said}");
        ran
    }

    /// Runs an experiment like [`Marked::run`], but doesn't check for leftovers: other hosts may take a moment to
    /// notice the end.
    pub fn run_on_hosts(&self, text: &str) -> (bool, Value, String) {
        let _ = fs::remove_dir_all(self.folder.join("results"));
        let output = run_within(&mut self.command(text), 60);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.success(),
            serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
            said,
        )
    }

    /// Interrupts an experiment while its service `slow` is starting; the service prints a line and takes much longer
    /// to become ready. The experiment ends, gives the reason, and leaves nothing behind.
    pub fn interrupted_at_start(&self, text: &str) {
        let mut run = Running::spawn(self, text);
        let log = self.folder.join("results/services/slow.log");
        eventually("the service has started", 30, || {
            fs::read_to_string(&log).is_ok_and(|said| said == "here I am\n")
        });
        kill_process(Pid::from_child(&run.0), Signal::INT).unwrap();
        eventually("it ends", 30, || run.0.try_wait().unwrap().is_some());
        assert!(!run.0.wait().unwrap().success());
        assert_says(
            &self.output_text(),
            &["interrupted while services were being started"],
        );
        self.ends();
    }

    /// Standard error of an experiment started in the background.
    fn output_text(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    /// Waits until none of the test's processes and folders are left.
    pub fn ends(&self) {
        eventually("all processes end", 30, || self.processes().is_empty());
        eventually("the folders are removed", 30, || {
            files_in(&self.temporary()).is_empty()
        });
    }

    /// Asserts that the experiment fails with these words.
    pub fn refused(&self, services: &str, words: &[&str]) {
        let (went_well, _, said) = self.run(&format!("{LOAD}{SHORT}{TARGET}{services}"));
        assert!(!went_well, "{said}");
        assert_says(&said, words);
    }
}

/// Asserts that `said` contains all of these words.
pub fn assert_says(said: &str, words: &[&str]) {
    words
        .iter()
        .for_each(|word| assert!(said.contains(word), "'{word}' is not in: {said}"));
}

/// Asserts that services that don't become ready are rejected, wherever they run: `whose` is the text before the
/// reason.
pub fn never_ready(whose: &str, refused: &dyn Fn(&str, &[&str])) {
    let not = format!("service slow: {whose}it did not start: it was not ready within 5s: ");
    let port_and_line = slow("ready = { port = 0, line = \"there\" }");
    let (nobody, silent) = (
        "no process listens on 127.0.0.1:",
        "it did not print 'there'",
    );
    refused(
        &port_and_line,
        &[&not, nobody, silent, "log: here I am", "services/slow.log"],
    );
    let fails = slow("prepare = \"echo no disk; exit 4\"");
    refused(
        &fails,
        &[
            "its prepare command ended with exit status 4",
            "log: no disk",
        ],
    );
    let missing = format!("{whose}it did not start: cannot start /no/such/program");
    let command = "[services.slow]\nwithin = \"5s\"\ncommand = [\"/no/such/program\"]\n";
    refused(command, &[&missing, "installed"]);
}

/// A service that prints one line and does nothing else; its table has these additional lines. Even on a busy machine,
/// its commands have run before its time is up.
pub fn slow(lines: &str) -> String {
    let command = "command = \"echo here I am; exec sleep 1000\"";
    format!("[services.slow]\nwithin = \"5s\"\n{command}\n{lines}\n")
}

/// The names of a folder's entries.
pub fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A service that runs a `brunt target` on a free port, and a target that opens it by its address.
pub fn store(lun: &str) -> String {
    let brunt = env!("CARGO_BIN_EXE_brunt");
    format!(
        "[services.store]\nprepare = \"truncate --size 8M disk.img\"\nready = {{ port = 0 }}\n\
         command = \"exec {brunt} target --name {TARGET_NAME} --lun {lun} --portal $BRUNT_ADDRESS:$BRUNT_PORT\"\n\
         [targets.disk]\nurl = \"iscsi://{{address:store}}/{TARGET_NAME}/0\"\n"
    )
}

impl Running {
    /// Starts the experiment.
    fn spawn(marked: &Marked, text: &str) -> Running {
        let mut command = marked.command(text);
        let said = fs::File::create(marked.folder.join("said")).unwrap();
        Running(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(said)
                .spawn()
                .unwrap(),
        )
    }

    /// Starts the experiment, and waits until it is measuring.
    pub fn start(marked: &Marked, text: &str) -> Running {
        let mut run = Running::spawn(marked, text);
        let summary = marked.folder.join("results/summary.json");
        eventually("the run begins", 60, || {
            assert!(
                run.0.try_wait().unwrap().is_none(),
                "it ended: {}",
                marked.output_text()
            );
            summary.exists()
        });
        run
    }

    pub fn send(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        self.0.wait().unwrap();
    }
}

/// Services that end with the experiment: one in the foreground, one that moved to the background, and one that
/// ignores SIGTERM.
pub const STUBBORN: &str = "stop = { time = \"1000s\" }\n[services.front]\ncommand = [\"sleep\", \"1000\"]\n\
     [services.away]\ndaemon = true\ncommand = \"setsid sleep 1000 &\"\n\
     [services.deaf]\ncommand = \"trap '' TERM; echo x > file; while :; do sleep 1; done\"\n";
