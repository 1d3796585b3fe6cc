//! The process that holds a lab: it answers whoever connects to the lab's socket, until it is asked to end.
//!
//! The rule: nobody who connects can hold it up: requests are short, come at once or not at all, and are answered one
//! after the other.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use brunt_lab::door::{self, Door};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};

use super::{Built, Plan, Variables};
use crate::cli::{Failure, Output};

/// How long a client may take for its request.
const REQUEST_TIME: Duration = Duration::from_millis(500);
/// How often to check for a signal while nobody asks.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What a lab can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What it consists of.
    Describe,
    /// The way to a host.
    Enter {
        /// Its name.
        host: String,
    },
    /// To end.
    End,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Describe`].
    Description(Description),
    /// To [`Request::Enter`], with a door.
    Entrance {
        /// Where the host's processes run, unless anywhere.
        cores: Option<Vec<usize>>,
        /// For their environment.
        variables: Variables,
    },
    /// To [`Request::End`]: it ends now.
    Ending {
        /// What was not meant to happen.
        trouble: Vec<String>,
        /// What each link did.
        links: serde_json::Map<String, serde_json::Value>,
    },
    /// It cannot be done.
    Refused {
        /// Why.
        what: String,
    },
}

/// What a lab consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// In the order of the file.
    pub hosts: Vec<HostDescription>,
    /// Names of its links and their ends.
    pub links: Vec<LinkDescription>,
    /// `BRUNT_TARGET_…` and the URL of each target.
    pub targets: Variables,
    /// Targets that died, and why.
    pub trouble: Vec<String>,
}

/// A host of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostDescription {
    pub name: String,
    pub address: Ipv4Addr,
}

/// A link of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkDescription {
    pub name: String,
    pub between: [String; 2],
}

/// Answers until it is asked to end, or a signal says so.
pub fn serve(
    listener: &UnixListener,
    plan: &Plan,
    built: &Built,
    output: &Output,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format!("the lab's socket: {error}"));
    listener.set_nonblocking(true).map_err(failed)?;
    while !output.is_interrupted() {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut polled, Some(&LOOK)) {
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
        // A client that is gone, or says nothing, is nobody's trouble but its own.
        let Ok(request) = hear(&socket) else { continue };
        let (answer, door) = answer(&request, plan, built)?;
        let line = serde_json::to_string(&answer).map_err(Failure::failed)?;
        let _ = door::send(&socket, &line, door.as_ref());
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

/// Waits for what has ended and has no other parent any more. This is the first process of its namespace, which the
/// others are left to: what a command leaves running, or a command whose caller was killed.
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
        // How a target ended is for its role to find out.
        let Some(pid) = number
            .filter(|pid| *pid > 1 && !is_target(*pid))
            .and_then(Pid::from_raw)
        else {
            continue;
        };
        // Refused for those that are somebody else's.
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
    let (line, _) = door::receive(socket)?;
    Ok(serde_json::from_str(&line)?)
}

fn answer(
    request: &Request,
    plan: &Plan,
    built: &Built,
) -> Result<(Answer, Option<Door>), Failure> {
    Ok(match request {
        Request::Describe => (Answer::Description(describe(plan, built)?), None),
        Request::End => {
            let ending = built.end()?;
            (
                Answer::Ending {
                    trouble: ending.all_trouble(),
                    links: ending.links,
                },
                None,
            )
        }
        Request::Enter { host } => match enter(host, plan, built) {
            Ok((cores, door)) => {
                let variables = built.variables.clone();
                (Answer::Entrance { cores, variables }, Some(door))
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

/// Why a host cannot be entered.
#[derive(Debug, thiserror::Error)]
enum NoEntrance {
    #[error("unknown host '{host}'; the lab's hosts are {known}")]
    Unknown { host: String, known: String },
    #[error("no door to host {host}: {source}")]
    NoDoor { host: String, source: io::Error },
}

fn enter(host: &str, plan: &Plan, built: &Built) -> Result<(Option<Vec<usize>>, Door), NoEntrance> {
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
    let standing = built.lab.lab().host(host).cloned().map_err(|_| unknown())?;
    let door = Door::to(&standing).map_err(|source| NoEntrance::NoDoor {
        host: host.to_string(),
        source,
    })?;
    Ok((settings.cores.clone(), door))
}

fn describe(plan: &Plan, built: &Built) -> Result<Description, Failure> {
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
    })
}

/// The listener that whoever started this process left on its standard input.
pub fn inherited_listener() -> io::Result<UnixListener> {
    Ok(UnixListener::from(
        io::stdin().as_fd().try_clone_to_owned()?,
    ))
}
