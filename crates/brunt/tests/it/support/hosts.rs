//! Hosts for tests: a running lab in which a controller reaches hosts over separate networks. Hosts with odd numbers
//! have Debian's sshd, the others a listening agent. The clocks of the hosts are shifted.
//!
//! The rule: a process belongs to the host whose network namespace it is in, whichever process started it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::agents::init;
use super::{brunt, need, skip};

/// Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The agents' port, which is the same on all hosts: each has its own port space.
const PORT: u16 = 7420;
/// The controller's address in the lab; the hosts have the addresses that follow.
const CONTROLLER: &str = "10.77.0.1";
/// An Ethernet address that no interface has.
const NOBODY: &str = "02:00:00:00:de:ad";

/// How a host is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Ssh,
    Agent,
}

/// The configuration of a host to start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Keys of the host's link to the controller, as in an experiment file.
    pub link: &'static str,
    /// How far ahead the host's clocks are.
    pub shift_ns: i64,
}

/// A process on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub words: String,
}

/// A running host.
pub struct LabHost {
    pub name: String,
    pub way: Way,
    pub shift_ns: i64,
    address: String,
    device: String,
    namespace: PathBuf,
    /// The host's listening agent.
    agent: Option<Child>,
}

impl LabHost {
    /// The address at which the controller reaches it.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// The lab with its hosts. Dropping this value removes the lab.
pub struct Hosts {
    folder: TempDir,
    pub hosts: Vec<LabHost>,
    controller: PathBuf,
    pid: i32,
}

impl Hosts {
    /// Starts hosts h1, h2 and so on; `None`, with a message, if that isn't possible.
    pub fn start(plans: &[Plan]) -> Option<Hosts> {
        Hosts::start_linked(plans, "")
    }

    /// Like [`Hosts::start`], with additional links in the lab, as in an experiment file.
    pub fn start_linked(plans: &[Plan], more_links: &str) -> Option<Hosts> {
        let programs = [
            ("sshd", "openssh-server"),
            ("ssh", "openssh-client"),
            ("ssh-keygen", "openssh-client"),
        ];
        for (program, package) in programs.into_iter().chain([("ip", "iproute2")]) {
            need(program, package)?;
        }
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root (sshd switches users)");
            return None;
        }
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names: Vec<String> = (1..=plans.len())
            .map(|number| format!("h{number}"))
            .collect();
        let links = names.iter().zip(plans).map(|(name, plan)| {
            format!(
                "[lab.links.to-{name}]\nbetween = [\"controller\", \"{name}\"]\n{}\n",
                plan.link
            )
        });
        let text = format!(
            "name = \"hosts\"\n[lab]\nhosts = [\"controller\", \"{}\"]\nworker = \"controller\"\n{}{more_links}\
             [targets.none]\nurl = \"null:1MiB\"\n[workloads.none]\nstop = {{ requests = 1 }}\n",
            names.join("\", \""),
            links.collect::<String>()
        );
        std::fs::write(path("hosts.toml"), text).unwrap();
        let up = lab(folder.path(), &["up"])
            .arg(path("hosts.toml"))
            .arg("--json")
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&up.stderr).into_owned();
        if words.contains("namespaces of a lab") || words.contains("/dev/net/tun") {
            skip("user namespaces and /dev/net/tun");
            return None;
        }
        assert!(up.status.success(), "{words}");
        let state: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
        let pid = state["lab"]["pid"].as_i64().unwrap() as i32;
        let mut hosts = Hosts {
            folder,
            hosts: Vec::new(),
            controller: PathBuf::new(),
            pid,
        };
        hosts.controller = hosts.namespace_of("controller");
        hosts.make_keys();
        for (index, (name, plan)) in names.iter().zip(plans).enumerate() {
            hosts.hosts.push(LabHost {
                name: name.clone(),
                way: if index % 2 == 0 { Way::Ssh } else { Way::Agent },
                shift_ns: plan.shift_ns,
                address: format!("10.77.0.{}", index + 2),
                device: format!("link{index}"),
                namespace: hosts.namespace_of(name),
                agent: None,
            });
        }
        hosts.make_certificates();
        for index in 0..plans.len() {
            hosts.serve(index);
        }
        Some(hosts)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command on a host of the lab.
    pub fn on(&self, host: &str, words: &[&str]) -> Command {
        let mut command = lab(self.folder(), &["exec", host, "--"]);
        command.args(words);
        command
    }

    /// This program, as a command on the controller.
    pub fn controller(&self, words: &[&str]) -> Command {
        let mut all = vec![env!("CARGO_BIN_EXE_brunt")];
        all.extend(words);
        self.on("controller", &all)
    }

    fn namespace_of(&self, host: &str) -> PathBuf {
        let output = self
            .on(host, &["readlink", "/proc/self/ns/net"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().into()
    }

    fn make_keys(&self) {
        for key in ["host-key", "user-key"] {
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(self.folder().join(key));
            assert!(made.status().unwrap().success());
        }
        // The privilege separation folder, which Debian's service creates at startup.
        let _ = std::fs::create_dir_all("/run/sshd");
        let at = self.folder().display();
        let config = format!(
            "Host *\n  IdentityFile {at}/user-key\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
             UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        );
        std::fs::write(self.folder().join("ssh_config"), config).unwrap();
    }

    fn make_certificates(&self) {
        let agents = self.hosts.iter().filter(|host| host.way == Way::Agent);
        let addresses: Vec<&str> = agents.map(|host| host.address.as_str()).collect();
        let made = init(&self.folder().join("certificates"), &addresses);
        assert!(made.status.success(), "{made:?}");
    }

    /// Starts the server through which a host is reached.
    pub fn serve(&mut self, index: usize) {
        let host = &self.hosts[index];
        let (at, name, shift) = (
            self.folder().display().to_string(),
            &host.name,
            host.shift_ns,
        );
        match host.way {
            Way::Ssh => {
                // The host itself applies the shift, without a request from a controller. No login scripts run: the
                // user's scripts may wait for a lock that a killed login left behind.
                let shifted = format!("s/agent --stdio/agent --stdio --clock-shift-ns={shift}/");
                let config = format!(
                    "HostKey {at}/host-key\nAuthorizedKeysFile {at}/user-key.pub\nPidFile none\nUsePAM no\nStrictModes no\n\
                     PermitRootLogin yes\nPasswordAuthentication no\nPort 22\nSetEnv HOME={at}\n\
                     ForceCommand sh -c \"$(printf %%s \"$SSH_ORIGINAL_COMMAND\" | sed '{shifted}')\"\n"
                );
                let file = format!("{at}/sshd-{name}");
                std::fs::write(&file, config.replace("%%", "%")).unwrap();
                let log = format!("{file}.log");
                let sshd = need("sshd", "openssh-server")
                    .unwrap()
                    .display()
                    .to_string();
                let started = self
                    .on(name, &[&sshd, "-f", &file, "-E", &log])
                    .output()
                    .unwrap();
                assert!(started.status.success(), "{started:?}");
            }
            Way::Agent => {
                let address = &host.address;
                let (listen, shift) = (
                    format!("{address}:{PORT}"),
                    format!("--clock-shift-ns={shift}"),
                );
                let identity = format!("{at}/certificates/agent-{address}.pem");
                let words = ["agent", "--listen", &listen, "--identity", &identity];
                let mut command =
                    self.on(name, &[&[env!("CARGO_BIN_EXE_brunt")], &words[..]].concat());
                command.args([
                    "--allow", "memory:", "--allow", "iscsi:", "--allow", &at, &shift,
                ]);
                command.stdin(Stdio::null()).stdout(Stdio::null());
                let log = std::fs::File::create(format!("{at}/agent-{name}.log")).unwrap();
                self.hosts[index].agent = Some(command.stderr(log).spawn().unwrap());
            }
        }
        until(&format!("{} is served", self.hosts[index].name), || {
            !self.servers(index).is_empty()
        });
    }

    /// The hosts' section of an experiment file.
    pub fn toml(&self) -> String {
        let at = self.folder().display();
        let one = |host: &LabHost| match host.way {
            Way::Ssh => format!(
                "[hosts.{}]\nssh = \"root@{}\"\ncommand = \"ssh -F {at}/ssh_config\"\nprogram = \"{}\"\n",
                host.name,
                host.address,
                env!("CARGO_BIN_EXE_brunt")
            ),
            Way::Agent => format!(
                "[hosts.{}]\nagent = \"{}:{PORT}\"\nidentity = \"{at}/certificates/controller.pem\"\n",
                host.name, host.address
            ),
        };
        self.hosts.iter().map(one).collect()
    }

    /// A workload's line `hosts = […]` that names all hosts.
    pub fn all(&self) -> String {
        let names: Vec<String> = self
            .hosts
            .iter()
            .map(|host| format!("\"{}\"", host.name))
            .collect();
        format!("hosts = [{}]", names.join(", "))
    }

    /// The hosts as arguments of `brunt agent clock` and `probe`.
    pub fn arguments(&self) -> Vec<String> {
        let at = self.folder().display();
        let one = |host: &LabHost| match host.way {
            Way::Ssh => format!("ssh:root@{}", host.address),
            Way::Agent => format!("agent:{}:{PORT}", host.address),
        };
        let mut words: Vec<String> = self.hosts.iter().map(one).collect();
        words.extend(["--ssh".to_string(), format!("ssh -F {at}/ssh_config")]);
        words.extend([
            "--far-program".to_string(),
            env!("CARGO_BIN_EXE_brunt").to_string(),
        ]);
        words.extend([
            "--identity".to_string(),
            format!("{at}/certificates/controller.pem"),
        ]);
        words
    }

    /// The processes of a host.
    pub fn processes(&self, index: usize) -> Vec<Process> {
        processes_in(&self.hosts[index].namespace)
    }

    /// The processes of the controller's host.
    pub fn controller_processes(&self) -> Vec<Process> {
        processes_in(&self.controller)
    }

    /// The server processes through which a host is reached.
    pub fn servers(&self, index: usize) -> Vec<Process> {
        let is_server = |process: &Process| match self.hosts[index].way {
            Way::Ssh => process.words.contains("[listener]"),
            Way::Agent => {
                process.words.contains("brunt agent --listen") && is_listening(&self.hosts[index])
            }
        };
        self.processes(index)
            .into_iter()
            .filter(is_server)
            .collect()
    }

    /// All other processes on a host: those of a controller's session.
    pub fn visitors(&self, index: usize) -> Vec<Process> {
        let is_visitor = |process: &Process| match self.hosts[index].way {
            Way::Ssh => !process.words.contains("[listener]"),
            Way::Agent => !process.words.contains("agent --listen"),
        };
        self.processes(index)
            .into_iter()
            .filter(is_visitor)
            .collect()
    }

    /// Threads of a host's agent that work for a controller.
    pub fn threads_at_work(&self, index: usize) -> Vec<String> {
        let agents = self
            .servers(index)
            .into_iter()
            .filter(|_| self.hosts[index].way == Way::Agent);
        let names = agents.flat_map(|server| {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid))
                .into_iter()
                .flatten();
            tasks
                .flatten()
                .map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default())
        });
        let names = names.map(|name| name.trim().to_string());
        // The listener's thread has the program's name.
        names
            .filter(|name| !name.is_empty() && name != "brunt")
            .collect()
    }

    /// Cuts a host off, or reconnects it: packets from both sides go to a nonexistent address, as behind a switch
    /// with lost routes. Neither side is notified of this.
    pub fn partition(&self, index: usize, cut: bool) {
        let LabHost {
            name,
            address,
            device,
            ..
        } = &self.hosts[index];
        for (side, (host, other)) in [(name.as_str(), CONTROLLER), ("controller", address)]
            .iter()
            .enumerate()
        {
            let there = format!("02:42:52:{index:02x}:00:{side:02x}");
            let to = if cut { NOBODY } else { &there };
            let words = [
                "ip",
                "neigh",
                "replace",
                other,
                "lladdr",
                to,
                "dev",
                device,
                "nud",
                "permanent",
            ];
            let done = self.on(host, &words).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }
    }

    /// Removes the lab; returns the reports of its links.
    pub fn end(&self) -> Value {
        let down = lab(self.folder(), &["down", "--all", "--json"])
            .output()
            .unwrap();
        assert!(down.status.success(), "{down:?}");
        let ended: Value = serde_json::from_slice(&down.stdout).unwrap();
        ended["labs"][0]["links"].clone()
    }

    /// Removes the lab; returns any remaining processes, of which there should be none.
    pub fn down(mut self) -> Vec<Process> {
        let spaces: Vec<PathBuf> = self
            .hosts
            .iter()
            .map(|host| host.namespace.clone())
            .chain([self.controller.clone()])
            .collect();
        let down = lab(self.folder(), &["down", "--all"]).output().unwrap();
        assert!(down.status.success(), "{down:?}");
        self.hosts
            .iter_mut()
            .filter_map(|host| host.agent.as_mut())
            .for_each(|agent| {
                let _ = agent.wait();
            });
        let left = || {
            spaces
                .iter()
                .flat_map(|space| processes_in(space))
                .collect::<Vec<_>>()
        };
        until("the lab is gone", || {
            left().is_empty() && !Path::new(&format!("/proc/{}", self.pid)).exists()
        });
        left()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = lab(self.folder.path(), &["down", "--all"]).output();
        for agent in self.hosts.iter_mut().filter_map(|host| host.agent.as_mut()) {
            let _ = (agent.kill(), agent.wait());
        }
        // The process was not waited for, so its id can't have been reused. Kill the process if it didn't answer.
        if Path::new(&format!("/proc/{}", self.pid)).exists()
            && std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid))
                .unwrap_or_default()
                .contains("lab")
        {
            signal(self.pid, rustix::process::Signal::KILL);
        }
    }
}

/// Sends a signal if the process still exists.
pub fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Waits for something that happens soon on any machine; returns how long it took.
pub fn until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

/// A command's output.
pub fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn lab(folder: &Path, words: &[&str]) -> Command {
    let mut command = brunt();
    command
        .arg("lab")
        .args(words)
        .env("XDG_RUNTIME_DIR", folder)
        .stdin(Stdio::null());
    command
}

/// Whether the agents' port is in the listening state (/proc/PID/net/tcp: state 0A).
fn is_listening(host: &LabHost) -> bool {
    let port = format!(":{PORT:04X} ");
    let mut tables = processes_in(&host.namespace).into_iter().map(|process| {
        std::fs::read_to_string(format!("/proc/{}/net/tcp", process.pid)).unwrap_or_default()
    });
    tables.any(|table| {
        table
            .lines()
            .any(|line| line.contains(&port) && line.split_whitespace().nth(3) == Some("0A"))
    })
}

/// The processes in a network namespace that have not ended.
fn processes_in(namespace: &Path) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let in_it = pids.filter(|pid| {
        std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it == namespace)
    });
    in_it
        .map(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            Process {
                pid,
                words: String::from_utf8_lossy(&words)
                    .replace('\0', " ")
                    .trim()
                    .to_string(),
            }
        })
        // Leave out the processes that hold the lab, or run a command in it.
        .filter(|process| {
            ![" lab exec ", " lab up "]
                .iter()
                .any(|lab| process.words.contains(lab))
        })
        .filter(|process| !process.words.is_empty())
        .collect()
}

/// Asserts that the rate of a run on hosts, in which this many requests were completed in time, is the sum of the
/// hosts' rates. If the hosts ended far apart, it is the rate while all of them ran, or all requests divided by the
/// whole time.
pub fn assert_total(run: &Value, completed: u64) {
    let rate = |of: &Value| of["requests_per_second"].as_f64().expect("a rate");
    let common = &run["common"];
    let [requests, left_out] =
        ["requests", "requests_left_out"].map(|key| common[key].as_u64().unwrap_or(0));
    let expected = match common["seconds"].as_f64() {
        None => run["hosts"]
            .as_array()
            .expect("hosts")
            .iter()
            .map(rate)
            .sum(),
        Some(0.0) => completed as f64 / run["measured_s"].as_f64().expect("a time"),
        Some(seconds) => requests as f64 / seconds,
    };
    assert!(
        common.is_null() || requests + left_out == completed,
        "{completed} were completed: {run:#}"
    );
    assert!(
        (rate(run) / expected - 1.0).abs() < 1e-9,
        "{expected} are expected: {run:#}"
    );
}
