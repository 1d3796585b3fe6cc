//! What an agent may do for a controller: open devices, folders and kinds of backends, and inject faults, as listed
//! on its command line. The opener consults this list for every device, including nested devices.
//!
//! The rule: a path is judged by where it leads, not by its text: links and `..` are resolved first.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use brunt_block::OpenError;
use brunt_block::table::{BACKENDS, BackendEntry, Permit};
use brunt_core::device_path;
use brunt_load::LOADS;

/// The list of permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    /// `None` allows everything that the agent's user may do.
    only: Option<Vec<Allowed>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// A device or file, or a folder with everything in it.
    Path(PathBuf),
    /// A backend, with any argument after its colon.
    Backend(String),
    /// A kind of fault, possibly only for this process or interface.
    Fault(&'static str, Option<String>),
    /// Targets and sinks that listen on any address of the host, or only on this one.
    Serve(Option<IpAddr>),
    /// Services: any command.
    Service,
}

/// Faults that can be allowed, and the kind of value that may follow `=`.
const FAULTS: [(&str, Option<&str>); 7] = [
    ("cpu", None),
    ("memory", None),
    ("freeze", Some("a process")),
    ("kill", Some("a process")),
    ("netem", Some("an interface")),
    ("bridge", Some("its first interface")),
    ("probe", None),
];
/// The prefix of a permission for a fault.
const FAULT: &str = "fault:";
/// The prefix of a permission to serve targets on an address.
const SERVE: &str = "serve:";
/// The text of the permission for services.
const SERVICE: &str = "service:";

/// The agent doesn't allow a fault, serving on an address, or services.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its agent does not allow {wanted} (allowed: {allowed}); start it with --allow {wanted}")]
pub struct FaultNotAllowed {
    /// The missing permission.
    pub wanted: String,
    /// The existing permissions.
    pub allowed: String,
}

/// Why a text is not a valid permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// Neither an absolute path nor a kind of device. A relative path would depend on the agent's working directory.
    #[error(
        "'{0}' is neither an absolute path nor a kind of device; write /dev/sdb, /srv/test or memory:"
    )]
    Relative(String),
    /// An unknown fault.
    #[error("'{text}': unknown fault; the faults are {known}")]
    NoFault {
        /// As given.
        text: String,
        /// All known faults.
        known: String,
    },
    /// The text after `serve:` is not an IP address.
    #[error(
        "'{0}': write serve: for all addresses of this host, or a single address, such as \
         serve:10.0.0.9"
    )]
    NoAddress(String),
    /// An unknown kind of device.
    #[error("'{text}': unknown kind of device; the kinds are {known}")]
    Unknown {
        /// As given.
        text: String,
        /// All known kinds.
        known: String,
    },
}

impl AllowList {
    /// Allows everything that the agent's user may open.
    pub fn everything() -> AllowList {
        AllowList { only: None }
    }

    /// Allows only these: absolute paths of devices, files and folders, and names of backends or load resources, each
    /// followed by a colon. `more` lists backends from other crates.
    ///
    /// # Errors
    /// One of the permissions is invalid.
    pub fn only<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        more: &[BackendEntry],
    ) -> Result<AllowList, AllowError> {
        let known = || {
            let backends = BACKENDS.iter().chain(more).map(|entry| entry.name);
            backends.chain(LOADS.iter().filter_map(|kind| kind.permit))
        };
        let read = |text: &str| {
            if text.starts_with('/') {
                return Ok(Allowed::Path(text.into()));
            }
            if let Some(fault) = text.strip_prefix(FAULT) {
                return read_fault(text, fault);
            }
            if let Some(address) = text.strip_prefix(SERVE) {
                return match address {
                    "" => Ok(Allowed::Serve(None)),
                    one => one
                        .parse()
                        .map(|address| Allowed::Serve(Some(address)))
                        .map_err(|_| AllowError::NoAddress(text.into())),
                };
            }
            if text == SERVICE {
                return Ok(Allowed::Service);
            }
            let Some(name) = text.strip_suffix(':') else {
                return Err(AllowError::Relative(text.into()));
            };
            match known().any(|entry| entry == name) {
                true => Ok(Allowed::Backend(name.into())),
                false => {
                    let known: Vec<String> = known().map(|name| format!("{name}:")).collect();
                    Err(AllowError::Unknown {
                        text: text.into(),
                        known: known.join(", "),
                    })
                }
            }
        };
        Ok(AllowList {
            only: Some(texts.into_iter().map(read).collect::<Result<_, _>>()?),
        })
    }

    /// Checks that a fault of this kind may be injected, for this process or interface if it has one.
    ///
    /// # Errors
    /// The agent doesn't allow this fault.
    pub(crate) fn check_fault(
        &self,
        kind: &str,
        about: Option<&str>,
    ) -> Result<(), FaultNotAllowed> {
        let is_it = |allowed: &Allowed| match allowed {
            Allowed::Fault(name, None) => *name == kind,
            Allowed::Fault(name, Some(only)) => *name == kind && about == Some(only),
            _ => false,
        };
        self.check_any(is_it, || {
            about.map_or(format!("{FAULT}{kind}"), |about| {
                format!("{FAULT}{kind}={about}")
            })
        })
    }

    /// Checks that a fault of this kind may be injected at all.
    ///
    /// # Errors
    /// The agent doesn't allow this kind of fault for any process or interface.
    pub(crate) fn check_kind(&self, kind: &str) -> Result<(), FaultNotAllowed> {
        let is_it = |allowed: &Allowed| matches!(allowed, Allowed::Fault(name, _) if *name == kind);
        self.check_any(is_it, || format!("{FAULT}{kind}"))
    }

    /// Checks that targets and sinks may listen on this address.
    ///
    /// # Errors
    /// The agent doesn't allow this address.
    pub(crate) fn check_serve(&self, address: IpAddr) -> Result<(), FaultNotAllowed> {
        let is_it = |allowed: &Allowed| match allowed {
            Allowed::Serve(only) => only.is_none_or(|only| only == address),
            _ => false,
        };
        self.check_any(is_it, || format!("{SERVE}{address}"))
    }

    /// Checks that services may be started: any command, with the privileges of the agent's user.
    ///
    /// # Errors
    /// The agent doesn't allow services.
    pub(crate) fn check_services(&self) -> Result<(), FaultNotAllowed> {
        self.check_any(
            |allowed| *allowed == Allowed::Service,
            || SERVICE.to_string(),
        )
    }

    /// Checks that this file may be used.
    ///
    /// # Errors
    /// The agent doesn't allow this file.
    pub fn check_path(&self, path: &Path) -> Result<(), OpenError> {
        self.check(FILE, &path.display().to_string())
    }

    /// The permissions in the syntax of [`AllowList::only`]; empty if everything is allowed.
    pub(crate) fn words(&self) -> Vec<String> {
        self.only.iter().flatten().map(Allowed::to_string).collect()
    }

    fn check_any(
        &self,
        is_it: impl Fn(&Allowed) -> bool,
        wanted: impl Fn() -> String,
    ) -> Result<(), FaultNotAllowed> {
        match &self.only {
            Some(only) if !only.iter().any(is_it) => Err(FaultNotAllowed {
                wanted: wanted(),
                allowed: self.to_string(),
            }),
            _ => Ok(()),
        }
    }

    fn allows(&self, backend: &str, argument: &str) -> bool {
        let Some(only) = &self.only else { return true };
        only.iter().any(|allowed| match allowed {
            Allowed::Backend(name) => name == backend,
            Allowed::Path(path) => {
                backend == FILE && leads_into(&device_path::decode(argument), path)
            }
            Allowed::Fault(..) | Allowed::Serve(_) | Allowed::Service => false,
        })
    }
}

/// Parses a fault permission; `fault` is the part of `text` after the prefix.
fn read_fault(text: &str, fault: &str) -> Result<Allowed, AllowError> {
    let (name, about) = fault
        .split_once('=')
        .map_or((fault, None), |(name, about)| (name, Some(about)));
    let known = FAULTS.iter().find(|(known, of)| {
        *known == name && about.is_none_or(|about| of.is_some() && !about.is_empty())
    });
    let Some((name, _)) = known else {
        let known = FAULTS.map(|(name, of)| match of {
            None => format!("{FAULT}{name}"),
            Some(of) => format!("{FAULT}{name}[={of}]"),
        });
        return Err(AllowError::NoFault {
            text: text.into(),
            known: known.join(", "),
        });
    };
    Ok(Allowed::Fault(name, about.map(str::to_string)))
}

/// The backend whose argument is a path.
const FILE: &str = "file";

/// Whether a path, possibly of a file that doesn't exist yet, leads to `allowed` or into it.
fn leads_into(path: &Path, allowed: &Path) -> bool {
    let whole = path.canonicalize().ok().or_else(|| {
        // Creating the file would follow a dangling link.
        if path.symlink_metadata().is_ok() {
            return None;
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    });
    let allowed = allowed
        .canonicalize()
        .unwrap_or_else(|_| allowed.to_path_buf());
    whole.is_some_and(|whole| whole.starts_with(allowed))
}

impl Permit for AllowList {
    fn check(&self, backend: &str, argument: &str) -> Result<(), OpenError> {
        if self.allows(backend, argument) {
            return Ok(());
        }
        // The argument of any other backend may contain a password, so it isn't shown.
        let device = if backend == FILE {
            argument.to_string()
        } else {
            format!("{backend}:")
        };
        Err(OpenError::NotAllowed {
            device,
            allowed: self.to_string(),
        })
    }
}

/// Formats permissions in the syntax of [`AllowList::only`].
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Path(path) => write!(f, "{}", path.display()),
            Allowed::Backend(name) => write!(f, "{name}:"),
            Allowed::Fault(name, None) => write!(f, "{FAULT}{name}"),
            Allowed::Fault(name, Some(only)) => write!(f, "{FAULT}{name}={only}"),
            Allowed::Serve(None) => f.write_str(SERVE),
            Allowed::Serve(Some(only)) => write!(f, "{SERVE}{only}"),
            Allowed::Service => f.write_str(SERVICE),
        }
    }
}

impl fmt::Display for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(only) = &self.only else {
            return f.write_str("everything");
        };
        if only.is_empty() {
            return f.write_str("nothing: the agent was started without --allow");
        }
        for (index, allowed) in only.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{allowed}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_judged_by_where_they_lead() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path).display().to_string();
        std::fs::create_dir(at("in")).unwrap();
        std::fs::create_dir(at("inside-not")).unwrap();
        for file in ["in/disk", "secret", "inside-not/disk"] {
            std::fs::write(at(file), b"x").unwrap();
        }
        symlink(at("secret"), at("in/link")).unwrap();
        symlink(at("in/disk"), at("way-in")).unwrap();
        symlink(at("nowhere"), at("in/dangling")).unwrap();
        symlink(at("inside-not"), at("in/folder")).unwrap();
        let list = AllowList::only([at("in").as_str(), "memory:"], &[]).unwrap();
        let check = |backend: &str, argument: &str, allowed: bool| {
            assert_eq!(
                list.check(backend, argument).is_ok(),
                allowed,
                "{backend}:{argument}"
            );
        };
        check("file", &at("in/disk"), true);
        check("file", &at("way-in"), true);
        check("file", &at("in/new"), true);
        check("file", &at("in/../in/new"), true);
        check("file", &at("secret"), false);
        check("file", &at("in/../secret"), false);
        check("file", &at("in/link"), false);
        check("file", &at("in/dangling"), false);
        check("file", &at("in/folder/disk"), false);
        check("file", &at("in/folder/new"), false);
        check("file", &at("inside-not/disk"), false);
        check("file", "disk", false);
        check("memory", "1GiB", true);
        check("null", "1GiB", false);
        check("iscsi", &format!("//me%hush@host{}", at("in/disk")), false);
        let message = list
            .check("iscsi", "//me%hush@host/t/0")
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("memory:") && !message.contains("hush"),
            "{message}"
        );
    }

    #[test]
    fn permissions_are_parsed_and_invalid_ones_refused() {
        assert!(AllowList::everything().check("null", "1GiB").is_ok());
        let nothing = AllowList::only([], &[]).unwrap();
        let message = nothing.check("null", "1GiB").unwrap_err().to_string();
        assert!(message.contains("without --allow"), "{message}");
        assert!(matches!(
            AllowList::only(["disk.img"], &[]),
            Err(AllowError::Relative(_))
        ));
        let nonsense = [
            "fault:",
            "fault:reboot",
            "fault:cpu=1",
            "fault:kill=",
            "fault:cpu:",
        ];
        for text in nonsense {
            let message = AllowList::only([text], &[]).unwrap_err().to_string();
            assert!(message.contains("fault:netem[=an interface]"), "{message}");
        }
        let list = AllowList::only(["fault:cpu", "fault:kill=tgtd"], &[]).unwrap();
        assert!(
            list.check_fault("cpu", None).is_ok() && list.check_fault("kill", Some("tgtd")).is_ok()
        );
        assert!(list.check_kind("kill").is_ok() && list.check_kind("freeze").is_err());
        let message = list
            .check_fault("kill", Some("sshd"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("--allow fault:kill=sshd")
                && message.contains("fault:cpu, fault:kill=tgtd"),
            "{message}"
        );
        assert!(list.check("null", "1GiB").is_err(), "a fault opens nothing");
        let words = [
            "/srv",
            "memory:",
            "fault:kill=tgtd",
            "serve:",
            "serve:fe80::1",
            "service:",
        ];
        assert_eq!(
            AllowList::only(words, &[]).unwrap().words(),
            words,
            "as they were written"
        );
        assert!(AllowList::everything().words().is_empty());
        assert!(AllowList::everything().check_services().is_ok());
        assert!(
            AllowList::only(["service:"], &[])
                .unwrap()
                .check_services()
                .is_ok()
        );
        let message = AllowList::only(["serve:", "memory:"], &[])
            .unwrap()
            .check_services()
            .unwrap_err();
        assert!(
            message
                .to_string()
                .ends_with("start it with --allow service:"),
            "{message}"
        );
        let message = AllowList::only(["serve:node7"], &[])
            .unwrap_err()
            .to_string();
        assert!(message.contains("serve:10.0.0.9"), "{message}");
        let message = AllowList::only(["memroy:"], &[]).unwrap_err().to_string();
        assert!(message.contains("memory:"), "{message}");
    }
}
