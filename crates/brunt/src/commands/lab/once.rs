//! `brunt lab FILE -- COMMAND`: runs one external command on a host of an experiment's lab, and then removes the lab.
//! It is for measurements that Brunt doesn't make itself, such as those with the kernel's own initiator.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use brunt_core::units::parse_duration;
use brunt_study::host::HostName;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::build::{Plan, end_as};
use crate::cli::{Done, Failure, Output};

/// How often to check whether the command has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Grace period after SIGTERM, after which the command is killed.
const END_TIME: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct OnceArgs {
    /// Experiment file (TOML) with a `[lab]` section
    experiment: PathBuf,
    /// Host on which to run the command [default: the workers' host]
    #[arg(long, value_name = "HOST")]
    on: Option<String>,
    /// One-way delay of every link, instead of the delays in the file
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Builds the lab, runs the command in it, and removes it.
pub fn run(args: &OnceArgs, output: &Output) -> Done {
    let plan = Plan::read(&args.experiment)?;
    let on = args
        .on
        .as_deref()
        .map_or_else(|| plan.hosts.worker().clone(), HostName::from);
    let host = plan.hosts.find(&on).map_err(Failure::usage)?;
    let built = plan.build(args.delay, output)?;
    let launcher = host.launcher(Some(&built.lab)).map_err(Failure::failed)?;
    let name = args.command[0].display().to_string();
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).envs(&built.variables);
    launcher
        .place(&mut command)
        .map_err(|error| Failure::failed(format!("host {on}: {error}")))?;
    let child = command
        .spawn()
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let status =
        wait(child, output).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    let ending = built.end()?;
    ending.trouble.iter().for_each(|what| output.note(what));
    if let Some(died) = ending.died.into_iter().next() {
        return Err(Failure::failed(died));
    }
    output.object(&json!({ "command": name, "status": status.code(), "links": ending.links }));
    end_as(&name, status)
}

/// Waits until the command ends. If interrupted, sends it SIGTERM, and SIGKILL after [`END_TIME`].
fn wait(mut child: Child, output: &Output) -> std::io::Result<ExitStatus> {
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match asked {
            None if output.is_interrupted() => {
                asked = Some(Instant::now());
                kill_process(Pid::from_child(&child), Signal::TERM)?;
            }
            Some(since) if since.elapsed() > END_TIME => child.kill()?,
            _ => {}
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
