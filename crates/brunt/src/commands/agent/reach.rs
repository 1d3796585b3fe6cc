//! How to reach other hosts: flags shared by the commands that query agents.

use std::path::PathBuf;
use std::time::Duration;

use brunt_core::Span;
use brunt_host::{ConnectOptions, ControllerTls, HostAddress, Identity};

use crate::cli::Failure;

/// Maximum number of hosts per command: each needs a thread on this machine.
const HOSTS_MAX: usize = 1000;

/// Hosts, and how to reach them.
#[derive(clap::Args)]
pub struct ReachArgs {
    /// Host: ssh:user@host, as for ssh itself; agent:host:port for a listening agent; or local for this machine
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,

    /// The ssh command, with options separated by spaces
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,

    /// Program to run on hosts reached by ssh [default: brunt in their PATH if it has the same version as this one,
    /// otherwise a copy of this one]
    #[arg(long, value_name = "PATH")]
    far_program: Option<String>,

    /// The controller's identity, for listening agents: a file created by 'brunt agent init'
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,

    /// Give up on a host that cannot be reached within this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    connect_timeout: Span,

    /// Give up on a host that sends nothing for this long
    #[arg(long, value_name = "TIME", default_value = "5s")]
    silence: Span,

    /// Shifts the clocks of all agents, for tests.
    #[arg(long, hide = true, value_name = "NS", allow_hyphen_values = true)]
    clock_shift_ns: Option<i64>,
}

impl ReachArgs {
    /// The hosts, without duplicates.
    pub fn addresses(&self) -> Result<Vec<HostAddress>, Failure> {
        let mut found: Vec<HostAddress> = Vec::new();
        for text in &self.hosts {
            let address: HostAddress = text.parse().map_err(Failure::usage)?;
            if found.contains(&address) {
                return Err(Failure::usage(format!("{address} is named twice")));
            }
            found.push(address);
        }
        if found.len() > HOSTS_MAX {
            return Err(Failure::usage(format!(
                "{} hosts: at most {HOSTS_MAX} at once",
                found.len()
            )));
        }
        Ok(found)
    }

    /// The options for connecting to the hosts.
    pub fn options(&self) -> Result<ConnectOptions, Failure> {
        let ssh: Vec<String> = self.ssh.split_whitespace().map(String::from).collect();
        if ssh.is_empty() {
            return Err(Failure::usage(
                "--ssh is empty: write, for example, --ssh 'ssh -F FILE'",
            ));
        }
        for (flag, time) in [
            ("--connect-timeout", self.connect_timeout),
            ("--silence", self.silence),
        ] {
            if time.0 < Duration::from_millis(100) {
                return Err(Failure::usage(format!(
                    "{flag} {time}: write 100ms or more"
                )));
            }
        }
        let shift = self
            .clock_shift_ns
            .map(|shift| format!("--clock-shift-ns={shift}"));
        let wrong = |error| Failure::usage(format!("--identity {error}"));
        let identity = self
            .identity
            .as_ref()
            .map(|file| Identity::read(file))
            .transpose()
            .map_err(wrong)?;
        let tls = identity
            .as_ref()
            .map(ControllerTls::new)
            .transpose()
            .map_err(wrong)?;
        Ok(ConnectOptions {
            program: super::program(),
            ssh,
            far_program: self.far_program.clone(),
            arguments: shift.into_iter().collect(),
            tls,
            lab_host: None,
            services: None,
            connect_max: self.connect_timeout.0,
            answer_max: self.connect_timeout.0,
            silence_max: self.silence.0,
        })
    }
}
