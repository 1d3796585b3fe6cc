//! A `brunt target` that takes commands while it runs, and whose notes a test can read. Used by tests that change
//! what is served. The rule: it is killed on drop, even if the test fails.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::brunt;

/// A running target that takes commands.
pub struct ControlledTarget {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    notes: Receiver<String>,
    /// The addresses of the portals, in the order of the arguments.
    pub portals: Vec<SocketAddr>,
}

impl ControlledTarget {
    /// Starts `brunt target --control` with these arguments, and waits for this many portals.
    pub fn start(args: &[&str], portals: usize) -> ControlledTarget {
        let mut child = brunt()
            .args(["target", "--control"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("brunt starts");
        let notes = notes(child.stderr.take().expect("piped"));
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut target = ControlledTarget {
            child,
            stdin,
            stdout,
            notes,
            portals: Vec::new(),
        };
        for _ in 0..portals {
            let line = target.line();
            target
                .portals
                .push(line.parse().unwrap_or_else(|_| panic!("no portal: {line}")));
        }
        target
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).expect("a line") == 0 {
            let said: Vec<String> = self.notes.iter().collect();
            panic!(
                "the target ended: {:?}\n{}",
                self.child.wait(),
                said.join("\n")
            );
        }
        line.trim_end().to_string()
    }

    /// Sends a command; returns the reply.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").expect("it reads");
        self.line()
    }

    /// Waits for a note on standard error that contains `part`.
    pub fn wait_for_note(&self, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            // Only a failing test waits this long.
            match self.notes.recv_timeout(Duration::from_secs(120)) {
                Ok(note) if note.contains(part) => return note,
                Ok(note) => seen.push(note),
                Err(_) => panic!("no note with {part:?}, but {seen:#?}"),
            }
        }
    }

    /// The target's process id, for signals.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ControlledTarget {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn notes(stderr: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            eprintln!("target: {line}");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
