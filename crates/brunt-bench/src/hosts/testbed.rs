//! A controller and other hosts, each a network namespace behind its own link, with an sshd or a listening agent.
//!
//! The rule: everything that a testbed starts ends with it.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brunt_core::Clock;
use brunt_host::{Authority, ConnectOptions, ControllerTls, HostAddress, HostPlace, Identity};
use brunt_lab::{Carrier, Host, Lab, LinkConfig};

use super::LinkKind;
use crate::cleanup::Start;
use crate::peers::{Guarded, command, have};
use crate::program;
use crate::scratch::Scratch;
use crate::{BenchError, Console};

/// The port that agents listen on; each host has its own ports.
const PORT: u16 = 7420;
/// Timeout, longer than any step here takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The program and its version, as printed by `brunt --version`: all crates share one version.
pub(super) const PROGRAM: &str = concat!("brunt ", env!("CARGO_PKG_VERSION"));

/// A host of the testbed.
pub(super) struct TestbedHost {
    pub name: String,
    pub host: Host,
    /// How far the host's clocks are ahead.
    pub shift_ns: i64,
    /// How the controller reaches the host.
    pub place: HostPlace,
}

/// The controller's host and the other hosts.
pub(super) struct Testbed {
    // Declared before the lab, so that servers on it end first.
    _servers: Vec<Guarded>,
    pub hosts: Vec<TestbedHost>,
    pub controller: Host,
    _lab: Lab,
    _scratch: Scratch,
}

/// A lab in which each host has a link to the controller.
fn star(names: &[String], link: &LinkKind) -> Result<Lab, BenchError> {
    let all = std::iter::once("controller").chain(names.iter().map(String::as_str));
    let mut lab = Lab::new(all, Clock::Monotonic).map_err(BenchError::failed)?;
    for name in names {
        let config = LinkConfig {
            name: format!("to-{name}"),
            between: ["controller".into(), name.clone()],
            settings: link.settings(),
            mtu: 1500,
            seed: 1,
            carrier: Carrier::Brunt,
        };
        lab.add_link(&config).map_err(BenchError::failed)?;
    }
    Ok(lab)
}

impl Testbed {
    /// Builds hosts whose clocks are shifted by these offsets, behind links of this kind.
    ///
    /// # Errors
    /// A system call fails, or a server doesn't start.
    pub fn build(shifts_ns: &[i64], link: &LinkKind) -> Result<Testbed, BenchError> {
        let names: Vec<String> = (1..=shifts_ns.len())
            .map(|number| format!("h{number}"))
            .collect();
        let lab = star(&names, link)?;
        let scratch = Scratch::new(None, "hosts")?;
        let authority = Authority::in_folder(scratch.path()).map_err(BenchError::failed)?;
        let identity = authority.controller().map_err(BenchError::failed)?;
        let with_ssh = can_serve_ssh();
        if with_ssh {
            make_keys(&scratch)?;
        }
        let host = |name: &str| lab.host(name).cloned().map_err(BenchError::failed);
        let (mut hosts, mut servers) = (Vec::new(), Vec::new());
        for (index, (name, &shift_ns)) in names.iter().zip(shifts_ns).enumerate() {
            let host = host(name)?;
            let address = host.address();
            let by_ssh = with_ssh && index % 2 == 0;
            let (address, server) = match by_ssh {
                true => {
                    let server = serve_ssh(&scratch, name, &host, shift_ns)?;
                    (
                        HostAddress::Ssh {
                            destination: format!("root@{address}"),
                        },
                        server,
                    )
                }
                false => {
                    let file = authority
                        .agent(&address.to_string())
                        .map_err(BenchError::failed)?;
                    let listen = format!("{address}:{PORT}");
                    let (server, _) = serve_agent(&host, &listen, &file, shift_ns)?;
                    (
                        HostAddress::Agent {
                            host: address.to_string(),
                            port: PORT,
                        },
                        server,
                    )
                }
            };
            let ssh = ["ssh", "-F"].map(String::from).into_iter();
            let place = HostPlace {
                address,
                identity: Some(identity.clone()),
                ssh: ssh
                    .chain([scratch.join("ssh_config").display().to_string()])
                    .collect(),
                program: Some(program::brunt()?.display().to_string()),
            };
            servers.push(server);
            hosts.push(TestbedHost {
                name: name.clone(),
                host,
                shift_ns,
                place,
            });
        }
        let controller = host("controller")?;
        Ok(Testbed {
            _servers: servers,
            hosts,
            controller,
            _lab: lab,
            _scratch: scratch,
        })
    }

    /// Runs `work` on the controller's host.
    ///
    /// # Errors
    /// The controller's host can't be entered, or `work` fails.
    pub fn on_controller<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, BenchError> + Send,
    ) -> Result<T, BenchError> {
        self.controller
            .run(|| Ok(work()))
            .map_err(BenchError::failed)?
    }

    /// Connection options for a host, as a user would give them.
    ///
    /// # Errors
    /// The controller's certificate cannot be read.
    pub fn options(&self, host: &TestbedHost) -> Result<ConnectOptions, BenchError> {
        let place = &host.place;
        let tls = place
            .identity
            .as_ref()
            .map(|file| Identity::read(file))
            .transpose();
        let tls = tls
            .map_err(BenchError::failed)?
            .as_ref()
            .map(ControllerTls::new)
            .transpose();
        Ok(ConnectOptions {
            program: PROGRAM.into(),
            ssh: place.ssh.clone(),
            far_program: place.program.clone(),
            arguments: Vec::new(),
            tls: tls.map_err(BenchError::failed)?,
            lab_host: None,
            services: None,
            connect_max: PATIENCE,
            answer_max: PATIENCE,
            silence_max: PATIENCE,
        })
    }

    /// Prints a note if no host is reached through sshd.
    pub fn note_missing_sshd(&self, output: &dyn Console) {
        let by_ssh = |host: &&TestbedHost| matches!(host.place.address, HostAddress::Ssh { .. });
        if self.hosts.iter().filter(by_ssh).count() == 0 {
            output.note(
                "all hosts are reached over TLS: sshd needs root, openssh-server and openssh-client",
            );
        }
    }
}

fn can_serve_ssh() -> bool {
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    // Our user namespace may map only a single user, but sshd switches to another one.
    let all_users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let all_users = all_users
        .split_whitespace()
        .nth(2)
        .and_then(|count| count.parse::<u64>().ok());
    is_root
        && all_users.is_some_and(|count| count > 1)
        && ["sshd", "ssh", "ssh-keygen"].into_iter().all(have)
}

fn make_keys(scratch: &Scratch) -> Result<(), BenchError> {
    for key in ["host-key", "user-key"] {
        let mut made = command("ssh-keygen");
        made.args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(scratch.join(key));
        let made = made.status().map_err(BenchError::failed)?;
        if !made.success() {
            return Err(BenchError::failed(format!("ssh-keygen: {made}")));
        }
    }
    // The folder for privilege separation, which Debian's service creates when it starts.
    let _ = std::fs::create_dir_all("/run/sshd");
    let at = scratch.path().display();
    let config = format!(
        "Host *\n  IdentityFile {at}/user-key\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
         UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    );
    std::fs::write(scratch.join("ssh_config"), config).map_err(BenchError::failed)
}

/// Starts sshd on a host. The clock shift belongs to the host; the controller doesn't request it. The user's login
/// scripts don't run, because they would be measured, too.
fn serve_ssh(
    scratch: &Scratch,
    name: &str,
    host: &Host,
    shift_ns: i64,
) -> Result<Guarded, BenchError> {
    let (at, file) = (
        scratch.path().display(),
        scratch.join(&format!("sshd-{name}")),
    );
    let config = format!(
        "HostKey {at}/host-key\nAuthorizedKeysFile {at}/user-key.pub\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin yes\nPasswordAuthentication no\nPort 22\nSetEnv HOME={at}\nForceCommand sh -c \"$(printf %s \
         \"$SSH_ORIGINAL_COMMAND\" | sed 's/agent --stdio/agent --stdio --clock-shift-ns={shift_ns}/')\"\n"
    );
    std::fs::write(&file, config).map_err(BenchError::failed)?;
    // sshd re-executes itself by its path.
    let path = ["/usr/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd"]
        .into_iter()
        .find(|path| PathBuf::from(path).is_file());
    let mut sshd = Command::new(
        path.ok_or_else(|| BenchError::failed("sshd is not in any of the usual places"))?,
    );
    sshd.args(["-D", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    host.place(&mut sshd).map_err(BenchError::failed)?;
    let server = Guarded::of(sshd.start().map_err(BenchError::failed)?);
    let begin = Instant::now();
    while host
        .run(|| TcpStream::connect((host.address(), 22)))
        .is_err()
    {
        if begin.elapsed() > PATIENCE {
            return Err(BenchError::failed(format!(
                "sshd of {name} is not listening"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

/// Starts an agent that listens on a host; returns the agent and its port.
pub(super) fn serve_agent(
    host: &Host,
    listen: &str,
    identity: &std::path::Path,
    shift_ns: i64,
) -> Result<(Guarded, u16), BenchError> {
    let mut agent = Command::new(program::brunt()?);
    agent
        .args([
            "agent",
            "--listen",
            listen,
            "--allow",
            "memory:",
            "--allow",
            "null:",
            "--identity",
        ])
        .arg(identity);
    agent.arg(format!("--clock-shift-ns={shift_ns}"));
    agent
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    host.place(&mut agent).map_err(BenchError::failed)?;
    let mut child = agent.start().map_err(BenchError::failed)?;
    let stdout = child.stdout.take().expect("piped");
    let server = Guarded::of(child);
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(BenchError::failed)?;
    let port = line
        .trim()
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let port =
        port.ok_or_else(|| BenchError::failed(format!("an agent at {listen} is not listening")))?;
    Ok((server, port))
}
