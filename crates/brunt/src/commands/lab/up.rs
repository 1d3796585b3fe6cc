//! `brunt lab up`: builds a lab and leaves it running in the background.
//!
//! The rule: mistakes are reported in the terminal. The calling process waits until the lab is up or has failed, and
//! reports the outcome.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use brunt_core::units::parse_duration;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::super::detach::leave_terminal;
use super::super::registry::{Registry, State, default_name};
use super::build::Plan;
use super::server::{self, Answer, Description, Request};
use crate::cli::{Done, Failure, Output};

/// How often to check whether the lab's process has ended while it is being built.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Start a lab in the background: hosts, links and targets
///
/// Returns when everything is up. 'brunt lab exec' runs commands on the lab's hosts, 'brunt lab list' shows it, and
/// 'brunt lab down' removes it. The lab ends completely when its process, whose PID is printed, ends.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # hosts, links and targets as in the file\n  brunt lab up \
     lab-wan.toml\n\n  # a second lab at the same time, with longer delays\n  brunt lab up lab-wan.toml --name \
     far --delay 50ms"
)]
pub struct UpArgs {
    /// Experiment file (TOML) with a `[lab]` section
    experiment: PathBuf,
    /// Name of the lab [default: the file's name without its extension]
    #[arg(long)]
    name: Option<String>,
    /// One-way delay of every link, instead of the delays in the file
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Set in the process that holds the lab; requests arrive on the socket that is its standard input.
    #[arg(long, hide = true)]
    held: bool,
}

/// Starts the process that holds the lab, or acts as that process.
pub fn run(args: &UpArgs, output: &Output) -> Done {
    let plan = Plan::read(&args.experiment)?;
    if args.held {
        return hold(args, &plan, output);
    }
    plan.experiment
        .link_warnings()
        .into_iter()
        .for_each(|warning| output.note(warning));
    let registry = Registry::labs()?;
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| default_name(&args.experiment));
    let listener = registry.reserve(&name)?;
    let stands = start(args, &name, listener, &registry).and_then(|(mut child, state)| {
        let description = wait_for_lab(&mut child, &name, &registry, output)?;
        Ok((state, description))
    });
    match stands {
        Ok((state, description)) => {
            print(&state, &description, output);
            Ok(())
        }
        Err(failure) => {
            registry.remove(&name);
            Err(failure)
        }
    }
}

/// Runs in the background process that holds the lab.
fn hold(args: &UpArgs, plan: &Plan, output: &Output) -> Done {
    leave_terminal();
    let listener = server::inherited_listener()
        .map_err(|error| Failure::failed(format!("no socket on standard input: {error}")))?;
    let built = plan.build(args.delay, output)?;
    server::serve(&listener, plan, &built, output)
}

/// Starts the background process, which inherits the listener.
fn start(
    args: &UpArgs,
    name: &str,
    listener: UnixListener,
    registry: &Registry,
) -> Result<(Child, State), Failure> {
    let failed = |what: &str, error: io::Error| Failure::failed(format!("{what}: {error}"));
    let path = registry.path(name, "log");
    let log = File::create(&path).map_err(|error| failed(&path.display().to_string(), error))?;
    let program =
        std::env::current_exe().map_err(|error| failed("cannot find this program", error))?;
    let mut command = Command::new(program);
    command.args(["lab", "up", "--held"]).arg(&args.experiment);
    if let Some(delay) = args.delay {
        command.args(["--delay", &format!("{}ns", delay.as_nanos())]);
    }
    let child = command
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| failed("cannot start a second process of this program", error))?;
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let file = std::path::absolute(&args.experiment).unwrap_or_else(|_| args.experiment.clone());
    let state = State {
        name: name.to_string(),
        file: Some(file),
        pid: child.id() as i32,
        since_s: since.as_secs(),
    };
    registry.write(&state)?;
    Ok((child, state))
}

/// Waits until the lab answers, which it does as soon as it is up.
fn wait_for_lab(
    child: &mut Child,
    name: &str,
    registry: &Registry,
    output: &Output,
) -> Result<Description, Failure> {
    loop {
        match registry.ask(name, &Request::Describe, POLL_INTERVAL) {
            Ok((Answer::Description(description), _)) => return Ok(description),
            Ok(_) => {
                return Err(Failure::failed("unexpected reply from the lab"));
            }
            // The lab is not up yet, or has already ended.
            Err(_) => {}
        }
        if let Some(status) = child.try_wait().map_err(Failure::failed)? {
            return Err(explain(status.code() == Some(2), name, registry));
        }
        if output.is_interrupted() {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, Signal::TERM);
            }
            let _ = child.wait();
            return Err(Failure::failed(
                "interrupted before the lab was ready; the lab was removed",
            ));
        }
    }
}

/// The failure that the background process logged before it ended.
fn explain(is_usage: bool, name: &str, registry: &Registry) -> Failure {
    let said = std::fs::read_to_string(registry.path(name, "log")).unwrap_or_default();
    let said = said.trim().replace("brunt lab: ", "");
    let (what, advice) = match said.split_once("\n  help: ") {
        Some((what, advice)) => (what.to_string(), Some(advice.to_string())),
        None => (said, None),
    };
    let failure = if is_usage {
        Failure::usage(what)
    } else {
        Failure::failed(what)
    };
    match advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

fn print(state: &State, description: &Description, output: &Output) {
    let State { name, pid, .. } = state;
    output.line(format_args!("lab {name} is running (process {pid})"));
    for host in &description.hosts {
        output.line(format_args!("  host {:<12} {}", host.name, host.address));
    }
    for link in &description.links {
        output.line(format_args!(
            "  link {:<12} {} - {}",
            link.name, link.between[0], link.between[1]
        ));
    }
    for (variable, url) in &description.targets {
        output.line(format_args!("  {variable}={url}"));
    }
    let first = description
        .hosts
        .first()
        .map_or("HOST", |host| host.name.as_str());
    output.line(format_args!(
        "'brunt lab exec {name} {first} -- COMMAND' runs a command on a host"
    ));
    output.line(format_args!("'brunt lab down {name}' removes it"));
    output.object(&json!({ "lab": state, "description": description }));
}
