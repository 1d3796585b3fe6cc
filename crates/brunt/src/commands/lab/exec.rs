//! `brunt lab exec`: runs a command on a host of a running lab, attached to this terminal.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use serde_json::json;

use super::super::registry::Registry;
use super::build::end_as;
use super::server::{Answer, Request};
use crate::cli::{Done, Failure, Output};

/// A lab that is still being built answers only once it is up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Run a command or a shell on a host of a running lab
///
/// The command gets this terminal, working folder and environment, plus the variables BRUNT_TARGET_NAME; its exit
/// status is passed on. It runs as root inside the lab, so ping, iperf3, tshark and tc need no further privileges. It
/// is killed when the lab ends.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # on a host of the only running lab\n  brunt lab exec client -- ping -c 3 server\n\n  \
                  # with several labs running\n  brunt lab exec far server -- tcpdump -ni any\n\n  # a shell\n  brunt \
                  lab exec client"
)]
pub struct ExecArgs {
    /// Name of the host, preceded by the lab's name if several labs are running
    #[arg(required = true, num_args = 1..=2, value_names = ["LAB", "HOST"])]
    place: Vec<String>,
    /// Command and its arguments [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Asks the lab for access to the host, and runs the command there.
pub fn run(args: ExecArgs, output: &Output) -> Done {
    let (lab, host) = match args.place.as_slice() {
        [lab, host] => (Some(lab.as_str()), host),
        [host] => (None, host),
        _ => unreachable!("clap accepts one or two"),
    };
    let registry = Registry::labs()?;
    let state = registry.find(lab)?;
    let request = Request::Enter { host: host.clone() };
    let (answer, namespaces) = registry
        .ask(&state.name, &request, PATIENCE)
        .map_err(|error| Failure::failed(format!("lab {} does not answer: {error}", state.name)))?;
    let (cores, variables, namespaces) = match (answer, namespaces) {
        (Answer::Entrance { cores, variables }, Some(namespaces)) => (cores, variables, namespaces),
        (Answer::Refused { what }, _) => {
            return Err(Failure::usage(format!("lab {}: {what}", state.name)));
        }
        _ => {
            return Err(Failure::failed(format!(
                "unexpected reply from lab {}",
                state.name
            )));
        }
    };
    let shell = || {
        std::env::var_os("SHELL")
            .filter(|shell| !shell.is_empty())
            .unwrap_or("/bin/sh".into())
    };
    let words = if args.command.is_empty() {
        vec![shell()]
    } else {
        args.command
    };
    let name = words[0].display().to_string();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(variables);
    let terminal = Terminal::query();
    let ended = namespaces.run(cores.as_deref(), command);
    terminal.take_back();
    let status = ended.map_err(|error| match error.is_command {
        true => Failure::usage(format!("{name}: {}", error.source)),
        false => Failure::failed(format!("lab {}, host {host}: {error}", state.name)),
    })?;
    output.object(
        &json!({ "lab": state.name, "host": host, "command": name, "status": status.code() }),
    );
    end_as(&name, status)
}

/// Whether this process was in the terminal's foreground, to restore that after the command. A shell inside the
/// host's namespaces takes the foreground and can't give it back, because the previous owner is not visible from
/// there.
struct Terminal {
    is_ours: bool,
}

impl Terminal {
    fn query() -> Terminal {
        Terminal {
            is_ours: tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp()),
        }
    }

    fn take_back(self) {
        if self.is_ours {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}
