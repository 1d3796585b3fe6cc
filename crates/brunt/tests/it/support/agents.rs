//! Agents for tests: certificates, a listening agent, and a stand-in for ssh.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use tempfile::TempDir;

use super::brunt;

/// Runs `brunt agent init` for these hosts.
pub fn init(folder: &Path, hosts: &[&str]) -> Output {
    brunt()
        .args(["agent", "init"])
        .arg(folder)
        .args(hosts)
        .output()
        .unwrap()
}

/// A folder of certificates for agents on this machine.
pub fn certificates() -> TempDir {
    let folder = TempDir::new().unwrap();
    let made = init(folder.path(), &["127.0.0.1", "localhost"]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    folder
}

/// A listening agent.
pub struct Listening {
    pub child: Child,
    pub address: SocketAddr,
}

impl Listening {
    /// Starts the agent with additional arguments.
    pub fn start(identity: &Path, more: &[&str]) -> Listening {
        let mut child = brunt()
            .args(["agent", "--listen", "127.0.0.1:0", "--identity"])
            .arg(identity)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        child.stdout = Some(lines.into_inner());
        Listening {
            address: line.trim().parse().expect("an address"),
            child,
        }
    }

    /// Ends the agent with SIGTERM; returns its last line and its notes.
    pub fn end(mut self) -> (String, String) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (mut out, mut notes) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut notes)
            .unwrap();
        assert!(self.child.wait().unwrap().success(), "{notes}");
        (out.trim().to_string(), notes)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stand-in for ssh that runs the command on this machine, in a shell that first executes `before`.
pub fn ssh_to_here(folder: &Path, before: &str) -> String {
    let file = folder.join("ssh-to-here");
    let script = format!("#!/bin/sh\n{before}\nfor last; do :; done\nexec sh -c \"$last\"\n");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}

/// A host of a test: an agent behind a stand-in for ssh, whose clock is ahead by `shift_ns`.
pub fn host_by_ssh(folder: &Path, name: &str, shift_ns: i64) -> String {
    let own = folder.join(name);
    std::fs::create_dir(&own).unwrap();
    let shifted = format!(
        "for last; do :; done\n\
         set -- \"$(echo \"$last\" | sed 's/agent --stdio/agent --stdio --clock-shift-ns={shift_ns}/')\"\n\
         echo $$ >>{}/pids",
        own.display()
    );
    let ssh = ssh_to_here(&own, &shifted);
    let program = env!("CARGO_BIN_EXE_brunt");
    format!("[hosts.{name}]\nssh = \"{name}\"\ncommand = \"{ssh}\"\nprogram = \"{program}\"\n")
}

/// The process ids of a host's agents.
pub fn pids(folder: &Path, name: &str) -> Vec<i32> {
    let text = std::fs::read_to_string(folder.join(name).join("pids")).unwrap_or_default();
    text.lines()
        .map(|line| line.trim().parse().unwrap())
        .collect()
}

pub fn is_alive(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// A host of a test: a listening agent.
pub fn host_by_agent(certificates: &Path, name: &str, agent: &Listening) -> String {
    let identity = certificates.join("controller.pem").display().to_string();
    format!(
        "[hosts.{name}]\nagent = \"{}\"\nidentity = \"{identity}\"\n",
        agent.address
    )
}
