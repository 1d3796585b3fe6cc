//! The process that holds a lab: it answers requests on the lab's socket until asked to end.
//!
//! The rule: no client can block this process. Requests are short, must arrive promptly, and are answered one at a
//! time.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use brunt_lab::enter::{self, HostNamespaces};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};

use super::super::link_changes::{LinkChangeRequest, LinkChanged};
use super::build::{Built, Plan, Variables};
use super::set::LinkChanges;
use crate::cli::{Failure, Output};

/// How long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_millis(500);
/// How often to check for a signal while there are no requests.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A request to a lab.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Describe the lab.
    Describe,
    /// Give access to a host.
    Enter {
        /// Name of the host.
        host: String,
    },
    /// Change a link.
    Set(LinkChangeRequest),
    /// End the lab.
    End,
}

/// A lab's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Describe`].
    Description(Description),
    /// Answer to [`Request::Enter`], sent with the namespaces.
    Entrance {
        /// The cores for the host's processes; `None` if they may run on any core.
        cores: Option<Vec<usize>>,
        /// Environment variables for the host's processes.
        variables: Variables,
    },
    /// To [`Request::Set`].
    Changed(LinkChanged),
    /// Answer to [`Request::End`]: the lab ends now.
    Ending {
        /// Changes to links, in chronological order.
        changes: Vec<LinkChanged>,
        /// All unintended events.
        trouble: Vec<String>,
        /// The report of each link.
        links: serde_json::Map<String, serde_json::Value>,
    },
    /// The request failed; the text says why.
    Refused {
        /// The reason.
        what: String,
    },
}

/// What a lab consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Hosts in the order of the file.
    pub hosts: Vec<HostDescription>,
    /// Names and ends of the links.
    pub links: Vec<LinkDescription>,
    /// `BRUNT_TARGET_…` and the URL of each target.
    pub targets: Variables,
    /// Targets that ended early, and why.
    pub trouble: Vec<String>,
    /// Changes to links since the start, in chronological order.
    pub changes: Vec<LinkChanged>,
    /// Number of older changes that are no longer kept.
    pub older_changes: usize,
}

/// A host of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostDescription {
    pub name: String,
    pub address: Ipv4Addr,
}

/// A link of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkDescription {
    pub name: String,
    pub between: [String; 2],
}

/// Answers requests until one asks the lab to end, or a signal arrives.
pub fn serve(
    listener: &UnixListener,
    plan: &Plan,
    built: &Built,
    output: &Output,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format!("the lab's socket: {error}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let mut changes = LinkChanges::new(&built.lab).map_err(Failure::failed)?;
    while !output.is_interrupted() {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut polled, Some(&POLL_INTERVAL)) {
            Ok(0) => {
                reap_orphans(built);
                continue;
            }
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let Ok((socket, _)) = listener.accept() else {
            continue;
        };
        // Ignore a client that disconnected or sends nothing.
        let Ok(request) = hear(&socket) else { continue };
        let (answer, namespaces) = answer(&request, plan, built, &mut changes)?;
        let line = serde_json::to_string(&answer).map_err(Failure::failed)?;
        let _ = enter::send(&socket, &line, namespaces.as_ref());
        if let Answer::Ending { trouble, .. } = answer {
            trouble.iter().for_each(|what| output.note(what));
            return Ok(());
        }
    }
    built
        .end()?
        .all_trouble()
        .iter()
        .for_each(|what| output.note(what));
    Ok(())
}

/// Reaps orphans. As the first process in its namespace, this process inherits orphans: processes left running by a
/// command, and commands whose caller was killed.
fn reap_orphans(built: &Built) {
    let is_target = |pid: i32| {
        built
            .roles
            .iter()
            .any(|role| i32::try_from(role.pid()).is_ok_and(|of| of == pid))
    };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // Leave targets to their roles, which need the exit status.
        let Some(pid) = number
            .filter(|pid| *pid > 1 && !is_target(*pid))
            .and_then(Pid::from_raw)
        else {
            continue;
        };
        // Fails for processes that aren't children of this one.
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}

fn hear(socket: &UnixStream) -> io::Result<Request> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(REQUEST_TIME))?;
    socket.set_write_timeout(Some(REQUEST_TIME))?;
    let (line, _) = enter::receive(socket)?;
    Ok(serde_json::from_str(&line)?)
}

fn answer(
    request: &Request,
    plan: &Plan,
    built: &Built,
    changes: &mut LinkChanges,
) -> Result<(Answer, Option<HostNamespaces>), Failure> {
    Ok(match request {
        Request::Describe => (Answer::Description(describe(plan, built, changes)?), None),
        Request::Set(request) => (changes.answer(request, &built.lab), None),
        Request::End => {
            let ending = built.end()?;
            (
                Answer::Ending {
                    changes: std::mem::take(&mut changes.log.made),
                    trouble: ending.all_trouble(),
                    links: ending.links,
                },
                None,
            )
        }
        Request::Enter { host } => match enter(host, plan, built) {
            Ok((cores, namespaces)) => {
                let variables = built.variables.clone();
                (Answer::Entrance { cores, variables }, Some(namespaces))
            }
            Err(what) => (
                Answer::Refused {
                    what: what.to_string(),
                },
                None,
            ),
        },
    })
}

/// Why a host can't be entered.
#[derive(Debug, thiserror::Error)]
enum NoEntrance {
    #[error("unknown host '{host}'; the lab's hosts are {known}")]
    Unknown { host: String, known: String },
    #[error("cannot enter host {host}: {source}")]
    NoNamespaces { host: String, source: io::Error },
}

fn enter(
    host: &str,
    plan: &Plan,
    built: &Built,
) -> Result<(Option<Vec<usize>>, HostNamespaces), NoEntrance> {
    let unknown = || {
        let known: Vec<&str> = plan.hosts.of_lab().map(|(name, _)| name.as_str()).collect();
        NoEntrance::Unknown {
            host: host.to_string(),
            known: known.join(", "),
        }
    };
    let (_, settings) = plan
        .hosts
        .of_lab()
        .find(|(name, _)| **name == *host)
        .ok_or_else(unknown)?;
    let running = built.lab.lab().host(host).cloned().map_err(|_| unknown())?;
    let namespaces = HostNamespaces::to(&running).map_err(|source| NoEntrance::NoNamespaces {
        host: host.to_string(),
        source,
    })?;
    Ok((settings.cores.clone(), namespaces))
}

fn describe(plan: &Plan, built: &Built, changes: &LinkChanges) -> Result<Description, Failure> {
    let lab = built.lab.lab();
    let host = |name: &str| {
        let address = lab.host(name).map_err(Failure::failed)?.address();
        Ok(HostDescription {
            name: name.to_string(),
            address,
        })
    };
    let hosts = plan
        .hosts
        .of_lab()
        .map(|(name, _)| host(name.as_str()))
        .collect::<Result<_, Failure>>()?;
    let link = |(name, link): (&String, &brunt_study::experiment::LinkEntry)| LinkDescription {
        name: name.clone(),
        between: link.between.each_ref().map(ToString::to_string),
    };
    Ok(Description {
        hosts,
        links: plan.entry().links.iter().map(link).collect(),
        targets: built.variables.clone(),
        trouble: built
            .roles
            .iter()
            .filter_map(|role| role.check().err())
            .map(|error| error.to_string())
            .collect(),
        changes: changes.log.made.clone(),
        older_changes: changes.log.older,
    })
}

/// The listener that the parent process passed as standard input.
pub fn inherited_listener() -> io::Result<UnixListener> {
    Ok(UnixListener::from(
        io::stdin().as_fd().try_clone_to_owned()?,
    ))
}
