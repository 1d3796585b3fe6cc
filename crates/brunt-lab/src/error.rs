//! Reasons why a lab or one of its links cannot be built as described.
//!
//! The rule: each kind of mistake is a variant with its context; messages are for people only.

use std::io;

use rustix::process::Resource;

use crate::link::LinkError;

/// Why a lab could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A system call failed.
    #[error("cannot {what} ({source}){}", advice(.source))]
    System {
        /// The operation that failed.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A link cannot be started or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No host has this name.
    #[error("unknown host {name}; the hosts are {}", .known.join(", "))]
    UnknownHost {
        /// The requested name.
        name: String,
        /// The existing hosts.
        known: Vec<String>,
    },
    /// No link has this name.
    #[error("unknown link {name}; the links are {}", .known.join(", "))]
    UnknownLink {
        /// The requested name.
        name: String,
        /// The existing links.
        known: Vec<String>,
    },
    /// More hosts or links than a lab can have.
    #[error("more than {max} {what}")]
    TooMany {
        /// `hosts` or `links`.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// Two hosts with the same name.
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
        "link {link} connects {} and {}, as {other} already does; a link carries both directions, \
         so remove one of them",
        .between[0],
        .between[1]
    )]
    JoinedTwice {
        /// The second link.
        link: String,
        /// The hosts.
        between: Box<[String; 2]>,
        /// The first link.
        other: String,
    },
    /// The host is not at either end of the link.
    #[error("link {link} connects {} and {}, not {host}", .between[0], .between[1])]
    NotAnEnd {
        /// The link.
        link: String,
        /// The two hosts that the link connects.
        between: Box<[String; 2]>,
        /// The host that was expected at one end.
        host: String,
    },
    /// No path between two hosts.
    #[error("no route from {from} to {to}; add a link that connects them")]
    NoPath {
        /// The start of the missing path.
        from: String,
        /// The end of the missing path.
        to: String,
    },
    /// A link carried by the kernel was asked for something that only Brunt's own links support.
    #[error(
        "link {link} is carried by the kernel, which cannot separate hosts by address; omit carrier"
    )]
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

/// Suggests a remedy for a kernel error. For an exhausted limit, it suggests twice the current value.
pub fn remedy(error: &io::Error) -> String {
    let limit = |resource| rustix::process::getrlimit(resource).current;
    match error.raw_os_error() {
        Some(libc::EMFILE) => files_remedy(limit(Resource::Nofile)),
        Some(libc::EAGAIN) => processes_remedy(limit(Resource::Nproc)),
        Some(libc::ENFILE) => {
            let limit = std::fs::read_to_string("/proc/sys/fs/file-max").ok();
            system_files_remedy(limit.and_then(|text| text.trim().parse().ok()))
        }
        Some(libc::ENOMEM) => "free some memory; see dmesg".to_string(),
        Some(libc::EPERM | libc::EACCES) => {
            "run as root, or see 'brunt doctor' for what is missing".to_string()
        }
        Some(libc::ESRCH) => "the process had already exited: check its output".to_string(),
        _ => "try again; 'brunt doctor' shows what this machine lacks, and dmesg shows the kernel's messages"
            .to_string(),
    }
}

/// Twice the limit, if the kernel accepts that value.
fn twice(limit: Option<u64>) -> Option<u64> {
    limit
        .and_then(|limit| limit.checked_mul(2))
        .filter(|twice| *twice <= i64::MAX as u64)
}

fn files_remedy(limit: Option<u64>) -> String {
    match twice(limit) {
        Some(twice) => format!("raise the limit on open files: ulimit -n {twice}"),
        None => "raise the limit on open files per process: see sysctl fs.nr_open".to_string(),
    }
}

fn processes_remedy(limit: Option<u64>) -> String {
    match twice(limit) {
        Some(twice) => {
            format!(
                "raise the limit on processes and threads: ulimit -u {twice}, or pids.max of \
                the cgroup"
            )
        }
        None => "raise the limit on processes and threads: pids.max of the cgroup or sysctl \
             kernel.threads-max"
            .to_string(),
    }
}

fn system_files_remedy(limit: Option<u64>) -> String {
    match twice(limit) {
        Some(twice) => {
            format!("raise the system's limit on open files: sysctl -w fs.file-max={twice}")
        }
        None => "close files of other programs; see sysctl fs.file-nr for the number of open files"
            .to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every suggested remedy works, even if there is no limit.
    #[test]
    fn remedies_can_be_followed() {
        let check =
            |message: String, expected: &str| assert!(message.ends_with(expected), "{message}");
        check(files_remedy(Some(1024)), "ulimit -n 2048");
        check(
            processes_remedy(Some(500)),
            "ulimit -u 1000, or pids.max of the cgroup",
        );
        check(
            system_files_remedy(Some(100_000)),
            "sysctl -w fs.file-max=200000",
        );
        check(files_remedy(None), "see sysctl fs.nr_open");
        check(
            processes_remedy(None),
            "pids.max of the cgroup or sysctl kernel.threads-max",
        );
        // This limit is already the maximum, which is Linux's default for the number of open files.
        check(
            system_files_remedy(Some(i64::MAX as u64)),
            "see sysctl fs.file-nr for the number of open files",
        );
        check(files_remedy(Some(u64::MAX - 1)), "see sysctl fs.nr_open");
        let message = remedy(&io::Error::from_raw_os_error(libc::ENFILE));
        assert!(message.contains("open"), "{message}");
    }
}
