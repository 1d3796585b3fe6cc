//! `brunt lab`: runs an external command on a host of an experiment's lab, with the experiment's targets
//! running. For measurements that Brunt does not make itself, such as of a kernel's own initiator.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brunt_core::Span;
use brunt_core::units::parse_duration;
use brunt_study::experiment::Experiment;
use brunt_study::host::{HostName, Hosts};
use brunt_study::lab::BuiltLab;
use brunt_study::role::Role;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::run::{read, serve};
use crate::cli::{Done, Failure, Output};
use crate::lab;

/// How often to check whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Grace period after SIGTERM; then the command is killed.
const END_TIME: Duration = Duration::from_secs(5);

/// Names and values for the command's environment.
type Variables = BTreeMap<String, String>;

/// Run a command on a host of an experiment's lab, with the experiment's targets running
///
/// Builds the hosts, links and targets of the file, but does not run its workloads. The command finds each target's
/// URL in the environment variable BRUNT_TARGET_NAME (characters other than letters and digits become "_"). Exits
/// with the command's status and removes the lab.
#[derive(clap::Args)]
pub struct Lab {
    /// Experiment file (TOML) with a [lab] section
    experiment: PathBuf,
    /// Host to run the command on [default: the workers' host]
    #[arg(long, value_name = "HOST")]
    on: Option<String>,
    /// One-way delay of every link, in place of the file's
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl super::Subcommand for Lab {
    const NAME: &'static str = "lab";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt lab lab-wan.toml -- sh -c 'ping -c 3 ${BRUNT_TARGET_ISCSI#*//}'", "what the link adds"),
        ("brunt lab lab-wan.toml --on server --delay 20ms -- ip address", "another host, and farther away"),
    ];

    fn run(self, output: &Output) -> Done {
        let (experiment, _) = read(&self.experiment)?;
        let Some(entry) = &experiment.lab else {
            let what = format!("{}: there is no [lab]", self.experiment.display());
            return Err(Failure::usage(what)
                .advise("add a [lab] section, such as [lab] with hosts = [\"client\", \"server\"]"));
        };
        let hosts = experiment.hosts().map_err(Failure::usage)?;
        let on = self.on.as_deref().map_or_else(|| hosts.worker().clone(), HostName::from);
        let host = hosts.find(&on).map_err(Failure::usage)?;
        let lab = lab::enter(&experiment, entry, &hosts)?;
        if let Some(delay) = self.delay {
            move_apart(&lab, &experiment, delay)?;
        }
        let launcher = host.launcher(Some(&lab)).map_err(Failure::failed)?;
        let (roles, urls) = start(&experiment, &hosts, &lab)?;
        let name = self.command[0].display().to_string();
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).envs(urls);
        launcher.place(&mut command).map_err(|error| Failure::failed(format!("host {on}: {error}")))?;
        let child = command.spawn().map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let status = wait(child, output).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
        for role in &roles {
            role.stop().map_err(Failure::failed)?;
        }
        let links = lab.lab().reports().map_err(Failure::failed)?;
        let unmeant: Vec<String> = links
            .iter()
            .flat_map(|(link, report)| {
                report.trouble().into_iter().map(move |what| format!("link {link}: {what}"))
            })
            .collect();
        unmeant.iter().for_each(|what| output.note(what));
        let links: serde_json::Map<_, _> =
            links.into_iter().map(|(link, report)| (link, json!(report))).collect();
        output.object(&json!({ "command": name, "status": status.code(), "links": links }));
        match status.code() {
            Some(0) => Ok(()),
            // As a shell would: the command's own status is what its caller wants to know.
            Some(code) => std::process::exit(code),
            None => Err(Failure::failed(format!("{name}: {status}"))),
        }
    }
}

/// Sets every link's delay, each way.
fn move_apart(lab: &BuiltLab, experiment: &Experiment, delay: Duration) -> Result<(), Failure> {
    let points = experiment.points();
    let links = points.first().map(|point| point.links.clone()).unwrap_or_default();
    for (name, mut settings) in links {
        settings.iter_mut().for_each(|way| way.delay = Span(delay));
        lab.lab().restart(&name, settings, experiment.seed).map_err(Failure::usage)?;
    }
    Ok(())
}

/// Starts what the experiment serves; variables with their URLs.
fn start(
    experiment: &Experiment,
    hosts: &Hosts,
    lab: &BuiltLab,
) -> Result<(Vec<Arc<dyn Role>>, Variables), Failure> {
    let (mut roles, mut urls) = (Vec::new(), Variables::new());
    for name in experiment.targets.keys() {
        let (url, role) = serve(experiment, name, hosts, Some(lab))?;
        roles.extend(role);
        urls.insert(variable(name), url);
    }
    Ok((roles, urls))
}

/// `BRUNT_TARGET_…` of a target.
fn variable(target: &str) -> String {
    let word = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    format!("BRUNT_TARGET_{}", target.chars().map(word).collect::<String>())
}

/// Until it ends, or is told to because we were.
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
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    /// Names that a shell can read.
    #[test]
    fn variables() {
        assert_eq!(super::variable("tried-again 2"), "BRUNT_TARGET_TRIED_AGAIN_2");
    }
}
