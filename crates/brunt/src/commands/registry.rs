//! Finds running labs and bridges: for each kind, a per-user folder contains a socket (`NAME.sock`), a state file
//! (`NAME.json`) and, for a lab, a log (`NAME.log`). Called by `brunt lab` and `brunt bridge`.
//!
//! The rule: a lab or bridge is running as long as a process listens on its socket. If that process was killed, the
//! next command that uses the registry removes the files; the kernel has removed everything else.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_lab::enter::{self, HostNamespaces};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cli::Failure;

/// Maximum length of a name, because a socket path has at most 108 bytes.
const NAME_BYTES_MAX: usize = 32;

/// What a registry lists: labs or bridges.
struct RegisteredKind {
    folder: &'static str,
    one: &'static str,
    many: &'static str,
    /// Advice on how to start a lab or a bridge.
    start: &'static str,
    /// Advice if a name is in use.
    rename: &'static str,
}

const LABS: RegisteredKind = RegisteredKind {
    folder: "brunt-labs",
    one: "lab",
    many: "labs",
    start: "set one up with 'brunt lab up FILE'",
    rename: "remove it with 'brunt lab down NAME', or choose another name with --name",
};

const BRIDGES: RegisteredKind = RegisteredKind {
    folder: "brunt-bridges",
    one: "bridge",
    many: "bridges",
    start: "start one with 'brunt bridge IN OUT', as the same user",
    rename: "choose another name with --name",
};

/// Contents of the state file, written as soon as the process exists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub name: String,
    /// The experiment file; only for a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The process that holds the lab or bridge; killing it removes the whole lab, or ends the bridge.
    pub pid: i32,
    /// Start time in seconds since 1970.
    pub since_s: u64,
}

/// This user's registry folder for one kind.
pub struct Registry {
    folder: PathBuf,
    kind: &'static RegisteredKind,
}

impl Registry {
    /// Opens the registry of labs.
    pub fn labs() -> Result<Registry, Failure> {
        Registry::open(&LABS)
    }

    /// Opens the registry of bridges.
    pub fn bridges() -> Result<Registry, Failure> {
        Registry::open(&BRIDGES)
    }

    /// Opens the folder under $XDG_RUNTIME_DIR or /run/user, otherwise under /tmp, creating it if needed.
    fn open(kind: &'static RegisteredKind) -> Result<Registry, Failure> {
        let user = geteuid().as_raw();
        let given = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        let usual = PathBuf::from(format!("/run/user/{user}"));
        let folder = match given.or_else(|| usual.is_dir().then_some(usual)) {
            Some(runtime) => runtime.join(kind.folder),
            None => PathBuf::from(format!("/tmp/{}-{user}", kind.folder)),
        };
        let failed = |error: io::Error| Failure::failed(format!("{}: {error}", folder.display()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        // In /tmp, any user could have created the folder, and anyone who can write to it can control the labs and
        // bridges listed there.
        let about = fs::symlink_metadata(&folder).map_err(failed)?;
        if !about.is_dir() || about.uid() != user || about.mode() & 0o077 != 0 {
            let what = format!(
                "{} is not a folder that you own and only you can enter",
                folder.display()
            );
            return Err(Failure::failed(what).advise(
                "remove it, or set XDG_RUNTIME_DIR to a folder that you own, with mode 0700",
            ));
        }
        Ok(Registry { folder, kind })
    }

    /// The path of one of a lab's or bridge's files.
    pub fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    /// Reserves a name. Clients can connect at once; they get an answer as soon as the listener is served.
    pub fn reserve(&self, name: &str) -> Result<UnixListener, Failure> {
        self.check_name(name)?;
        let _alone = self.lock()?;
        self.sweep()?;
        self.bind(name)
    }

    /// Like [`Registry::reserve`], but appends a number to the name if it is in use. Returns the reserved name.
    pub fn reserve_any(&self, name: &str) -> Result<(String, UnixListener), Failure> {
        self.check_name(name)?;
        let _alone = self.lock()?;
        self.sweep()?;
        let taken = self.names()?;
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.to_string()).chain(numbered);
        let free = names.find(|name| !taken.contains(name));
        let free = free.expect("an unused number");
        let listener = self.bind(&free)?;
        Ok((free, listener))
    }

    fn bind(&self, name: &str) -> Result<UnixListener, Failure> {
        let path = self.path(name, "sock");
        UnixListener::bind(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                let what = format!("a {} named '{name}' is already running", self.kind.one);
                Failure::usage(what).advise(self.kind.rename.replace("NAME", name))
            }
            _ => Failure::failed(format!("{}: {error}", path.display())),
        })
    }

    /// Writes the state file of a lab or bridge.
    pub fn write(&self, state: &State) -> Result<(), Failure> {
        let path = self.path(&state.name, "json");
        let text = serde_json::to_string_pretty(state).map_err(Failure::failed)?;
        fs::write(&path, text)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
    }

    /// Removes the files of a lab or bridge that has ended.
    pub fn remove(&self, name: &str) {
        // Remove the socket last: without it, others can take the name.
        for kind in ["json", "log", "sock"] {
            let _ = fs::remove_file(self.path(name, kind));
        }
    }

    /// All labs or bridges that are running or being built, by name.
    pub fn all(&self) -> Result<Vec<State>, Failure> {
        let _alone = self.lock()?;
        self.sweep()?;
        let read = |name: &String| {
            let text = fs::read(self.path(name, "json")).ok()?;
            serde_json::from_slice(&text).ok()
        };
        Ok(self.names()?.iter().filter_map(read).collect())
    }

    /// Finds the lab or bridge with this name, or, if no name is given, the only one.
    pub fn find(&self, name: Option<&str>) -> Result<State, Failure> {
        let all = self.all()?;
        let names = || {
            all.iter()
                .map(|state| state.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        match (name, all.as_slice()) {
            (_, []) => {
                Err(Failure::usage(format!("no running {}", self.kind.one)).advise(self.kind.start))
            }
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err(Failure::usage(format!(
                "several {} are running: {}",
                self.kind.many,
                names()
            ))
            .advise("name one of them as the first argument")),
            (Some(name), _) => all
                .iter()
                .find(|state| state.name == name)
                .cloned()
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "no running {} named '{name}'; running: {}",
                        self.kind.one,
                        names()
                    ))
                }),
        }
    }

    /// Sends a request to a lab or bridge. `patience` is the longest time to wait for the answer.
    pub fn ask<A: DeserializeOwned>(
        &self,
        name: &str,
        request: &impl Serialize,
        patience: Duration,
    ) -> io::Result<(A, Option<HostNamespaces>)> {
        let socket = UnixStream::connect(self.path(name, "sock"))?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        enter::send(&socket, &serde_json::to_string(request)?, None)?;
        let (line, namespaces) = enter::receive(&socket)?;
        Ok((serde_json::from_str(&line)?, namespaces))
    }

    /// Ensures that only one command at a time cleans up and reserves names; released when dropped.
    fn lock(&self) -> Result<File, Failure> {
        let failed =
            |error: io::Error| Failure::failed(format!("{}: {error}", self.folder.display()));
        let folder = File::open(&self.folder).map_err(failed)?;
        folder.lock().map_err(failed)?;
        Ok(folder)
    }

    /// Removes the files of labs and bridges that were killed.
    fn sweep(&self) -> Result<(), Failure> {
        for name in self.names()? {
            let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if UnixStream::connect(self.path(&name, "sock")).is_err_and(refused) {
                self.remove(&name);
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, Failure> {
        let failed =
            |error: io::Error| Failure::failed(format!("{}: {error}", self.folder.display()));
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|kind| kind == "sock") {
                names.extend(
                    path.file_stem()
                        .and_then(|name| name.to_str())
                        .map(str::to_string),
                );
            }
        }
        names.sort();
        Ok(names)
    }

    fn check_name(&self, name: &str) -> Result<(), Failure> {
        if is_name(name) {
            return Ok(());
        }
        let what = format!("'{name}' is not a valid name for a {}", self.kind.one);
        let advice = format!("use at most {NAME_BYTES_MAX} letters, digits, '-' and '_'");
        Err(Failure::usage(what).advise(advice))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_usual)
}

/// A lab's default name, derived from its file name.
pub fn default_name(file: &Path) -> String {
    usual_name(&file.file_stem().unwrap_or_default().to_string_lossy())
}

/// A valid name that resembles `text`.
pub fn usual_name(text: &str) -> String {
    let usual = |letter: char| if is_usual(letter) { letter } else { '_' };
    text.chars().map(usual).take(NAME_BYTES_MAX).collect()
}

fn is_usual(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_become_valid_lab_names() {
        for (file, name) in [
            ("a/lab-wan.toml", "lab-wan"),
            ("my lab.v2.toml", "my_lab_v2"),
            ("x", "x"),
        ] {
            assert_eq!(default_name(Path::new(file)), name);
            assert!(is_name(name));
        }
        let long = default_name(Path::new(&"y".repeat(200)));
        assert!(is_name(&long));
        for bad in ["", "../x", "a/b", "a b", &"z".repeat(33)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
