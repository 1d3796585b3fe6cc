//! A virtual machine with Debian's kernel (`tools/kernel-initiator.sh`). Used by tests in which Linux uses a target,
//! or is an NFS server or client. The rule: the machine ends when its value is dropped, even if the test fails.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::{TempDir, need, root, skip};

/// Whether the tool and everything it needs are available.
pub fn ready() -> bool {
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio")] {
        if need(program, package).is_none() {
            return false;
        }
    }
    let ready = Command::new(root().join("tools/kernel-initiator.sh"))
        .arg("--ready")
        .status();
    if !ready.expect("bash").success() {
        skip("a prepared guest (run tools/kernel-initiator.sh --prepare)");
        return false;
    }
    true
}

/// A guest that runs a script; ended on drop.
pub struct Guest {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    seen: String,
}

impl Guest {
    /// Starts a guest that runs a script, which is written to this folder. The guest is booted only once for all
    /// tests, because the tool saves its state.
    pub fn boot(folder: &TempDir, script: &str) -> Guest {
        Guest::boot_with_ports(folder, script, "")
    }

    /// Like [`Guest::boot`], with these ports of the host's loopback interface forwarded into the guest.
    pub fn boot_with_ports(folder: &TempDir, script: &str, ports: &str) -> Guest {
        let file = folder.join("script");
        std::fs::write(&file, script).expect("a script");
        let mut child = Command::new(root().join("tools/kernel-initiator.sh"))
            .arg(&file)
            // A guest without hardware virtualization may take ten times as long on a busy machine.
            .env("BRUNT_GUEST_SECONDS", "1500")
            .env("BRUNT_GUEST_PORTS", ports)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Guest {
            child,
            lines,
            seen: String::new(),
        }
    }

    /// Reads until a line that starts with `word`; returns the rest of that line.
    pub fn wait_for(&mut self, word: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.expect("text");
            self.seen += &line;
            self.seen.push('\n');
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return rest.trim().to_string();
            }
        }
        panic!(
            "the guest ended without '{word}': {:?}\n{}",
            self.child.wait(),
            self.seen
        );
    }

    /// The guest's output so far.
    pub fn seen(&self) -> &str {
        &self.seen
    }

    /// Reads to the end; the guest's script must succeed.
    pub fn finish(mut self) -> String {
        for line in self.lines.by_ref() {
            self.seen += &line.expect("text");
            self.seen.push('\n');
        }
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "{status}\n{}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // On SIGTERM, the script removes its files and ends its machine; SIGKILL would leave both behind.
        let id = rustix::process::Pid::from_child(&self.child);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
