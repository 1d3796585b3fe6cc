//! Why a lab or one of its links cannot be built as described.
//!
//! The rule: each kind of mistake is a variant with its context; texts are for people only.

use std::io;

use rustix::process::Resource;

use crate::link::LinkError;

/// Why a lab does not stand.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine refused.
    #[error("cannot {what} ({source}){}", advice(.source))]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A link cannot be started or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is no host of this name.
    #[error("unknown host {name}; the hosts are {}", .known.join(", "))]
    UnknownHost {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// There is no link of this name.
    #[error("unknown link {name}; the links are {}", .known.join(", "))]
    UnknownLink {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// More hosts or links than a lab has.
    #[error("more than {max} {what}")]
    TooMany {
        /// `hosts` or `links`.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// Two hosts of the same name.
    #[error("host {name} is defined twice; use different names")]
    HostTwice {
        /// The name.
        name: String,
    },
    /// A link from a host to itself.
    #[error("link {link} connects {host} to itself")]
    ToItself {
        /// The link.
        link: String,
        /// The host.
        host: String,
    },
    /// A second link between the same hosts.
    #[error(
        "link {link} connects {} and {}, as {other} already does; a link carries both directions, so remove one",
        .between[0],
        .between[1]
    )]
    JoinedTwice {
        /// The second one.
        link: String,
        /// The hosts.
        between: Box<[String; 2]>,
        /// The first one.
        other: String,
    },
    /// A host that is not at an end of the link.
    #[error("link {link} connects {} and {}, not {host}", .between[0], .between[1])]
    NotAnEnd {
        /// The link.
        link: String,
        /// The two hosts that it connects.
        between: Box<[String; 2]>,
        /// Who was meant to be at one.
        host: String,
    },
    /// No way over links between two hosts.
    #[error("there is no route from {from} to {to}; add a link that connects them")]
    NoPath {
        /// The one.
        from: String,
        /// The other.
        to: String,
    },
    /// A link of the kernel's is to do what only Brunt's own can.
    #[error("link {link} is carried by the kernel, which cannot separate hosts by address; omit carrier")]
    NotOurs {
        /// The link.
        link: String,
    },
}

impl LabError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::System { what, source }
    }
}

/// What helps against what the kernel said: for a limit of this process, one that is twice as high.
pub fn remedy(error: &io::Error) -> String {
    let twice = |resource| {
        let limit = rustix::process::getrlimit(resource).current.unwrap_or(u64::MAX / 2);
        limit.saturating_mul(2)
    };
    match error.raw_os_error() {
        Some(libc::EMFILE) => format!("raise the limit of open files: ulimit -n {}", twice(Resource::Nofile)),
        Some(libc::EAGAIN) => {
            format!("raise the limit of processes and threads: ulimit -u {}", twice(Resource::Nproc))
        }
        Some(libc::ENFILE) => "raise the system's limit of open files: sysctl -w fs.file-max".to_string(),
        Some(libc::ENOMEM) => "leave more memory free; see dmesg".to_string(),
        Some(libc::EPERM | libc::EACCES) => {
            "run as root, or see what brunt doctor says is missing".to_string()
        }
        Some(libc::ESRCH) => "the process had ended by itself: see what it said before".to_string(),
        _ => {
            "run it again; brunt doctor shows what this machine lacks, dmesg what the kernel says".to_string()
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "; check that /dev/net/tun exists: 'modprobe tun' creates it, and a container needs --device /dev/net/tun"
        }
        Some(libc::EPERM | libc::EACCES) => "; you need read and write permission on /dev/net/tun",
        _ => "",
    }
}
