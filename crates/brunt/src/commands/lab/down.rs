//! `brunt lab down`: removes one or all running labs.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use super::super::registry::{Registry, State};
use super::server::{Answer, Request};
use crate::cli::{Done, Failure, Output};

/// A lab that doesn't answer within this time is killed. Each of the lab's targets has five seconds to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the lab's process may take to exit after answering or being killed.
const END_TIME: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Remove a running lab and everything that runs in it
///
/// Reports unintended losses and delays on its links. A lab that does not answer is killed, which also removes it
/// completely.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # the only running lab\n  brunt lab down \n\n  # one of several\n  \
     brunt lab down far\n\n  # all labs\n  brunt lab down --all"
)]
pub struct DownArgs {
    /// Name of the lab [default: the only running lab]
    name: Option<String>,
    /// Remove all labs
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Asks the labs to end, and makes sure that they did.
pub fn run(args: &DownArgs, output: &Output) -> Done {
    let registry = Registry::labs()?;
    let labs = if args.all {
        registry.all()?
    } else {
        vec![registry.find(args.name.as_deref())?]
    };
    let mut ended = Vec::new();
    for state in &labs {
        ended.push(end(&registry, state, output)?);
    }
    output.object(&json!({ "labs": ended }));
    Ok(())
}

fn end(registry: &Registry, state: &State, output: &Output) -> Result<serde_json::Value, Failure> {
    let State { name, pid, .. } = state;
    let failed =
        |error: rustix::io::Errno| Failure::failed(format!("process {pid} of lab {name}: {error}"));
    let pid =
        Pid::from_raw(*pid).ok_or_else(|| Failure::failed(format!("lab {name} has no process")))?;
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Some(process),
        Err(rustix::io::Errno::SRCH) => None,
        Err(error) => return Err(failed(error)),
    };
    let (mut links, mut changed, mut is_killed) = (serde_json::Map::new(), Vec::new(), false);
    match registry.ask(name, &Request::End, PATIENCE) {
        Ok((
            Answer::Ending {
                changes,
                trouble,
                links: reports,
            },
            _,
        )) => {
            trouble
                .iter()
                .for_each(|what| output.note(format_args!("lab {name}: {what}")));
            (links, changed) = (reports, changes);
        }
        // Killing this process also ends the first process in its namespaces, and thus all other processes there. If
        // the lab no longer listens, it has ended and its process id may have been reused, so nothing is killed.
        answer => {
            let has_ended =
                answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if let (Some(process), false) = (&process, has_ended) {
                is_killed = pidfd_send_signal(process, Signal::KILL).is_ok();
            }
        }
    }
    if let Some(process) = &process {
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        if poll(&mut polled, Some(&END_TIME)).map_err(failed)? == 0 {
            return Err(
                Failure::failed(format!("lab {name} did not stop")).advise(format!(
                    "kill its process: kill -9 {}",
                    pid.as_raw_nonzero()
                )),
            );
        }
    }
    registry.remove(name);
    let how = if is_killed {
        "was killed because it did not respond"
    } else {
        "is removed"
    };
    for change in &changed {
        output.line(format_args!("  changed: {}", change.described()));
    }
    output.line(format_args!("lab {name} {how}"));
    Ok(json!({ "name": name, "killed": is_killed, "links": links, "changes": changed }))
}
