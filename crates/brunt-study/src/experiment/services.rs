//! `[services.NAME]`: programs other than Brunt, such as a storage server, which the experiment starts on a host, waits
//! for, and ends together with all processes that they started.
//!
//! ```toml
//! [services.store]
//! command = "exec nbdkit --foreground --port $BRUNT_PORT memory 1G"
//! ready = { port = 0 }                  # 0: any free port
//! [targets.disk]
//! url = "nbd://{address:store}/"
//! [[fault]]
//! service = "store"
//! kill = true
//! at = "5s"
//! for = "1s"
//! ```
//!
//! The rule: every mistake in the file is found before anything is started; [`crate::service`] starts the services.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use brunt_core::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mistake::{FileError, Source};
use super::{Experiment, Target};
use crate::host::{HostName, Hosts};

/// Maximum number of services in an experiment.
pub const SERVICES_MAX: usize = 64;
/// Maximum length of a name, which is also the name of a folder and a file.
const NAME_LETTERS_MAX: usize = 64;
/// Maximum time to wait until a service is ready.
const WITHIN_MAX: Duration = Duration::from_secs(3600);
/// Maximum time that a service can get to end before it is killed.
const STOP_WITHIN_MAX: Duration = Duration::from_secs(300);
/// Lowest limit for open files: the service's keeper needs some as well.
const FILES_MIN: u64 = 64;
/// Lowest limit for the log, in bytes.
const LOG_MIN: Size = Size(4096);
/// Lowest limit for memory, in bytes.
const MEMORY_MIN: Size = Size(1 << 20);
/// Prefix of the environment variables that Brunt sets.
const OWN_VARIABLES: &str = "BRUNT_";

/// A program that the experiment starts, monitors and ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceEntry {
    /// What to run: a program and its arguments as a list, or a line for `/bin/sh -c`. The command stays in the
    /// foreground, unless `daemon` is set.
    pub command: ServiceCommand,
    /// Host on which the service runs: a lab host or another machine under `[hosts]`; default without a lab: this
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Services that must be ready before this one is started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// What to run once before `command`, such as a program that formats a disk; it must succeed. It does not run
    /// again when a fault restarts the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<ServiceCommand>,
    /// Variables to add to the service's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Paths at which the service gets private folders, for programs whose paths are fixed. The folders are empty at
    /// first, are kept in the service's own folder, and are mounted at these paths for all processes on its host.
    /// Only in a lab.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private: Vec<PathBuf>,
    /// Whether the service needs root privileges on the machine itself, not only in the lab. If Brunt lacks them, no
    /// service is started.
    #[serde(default)]
    pub needs_root: bool,
    /// The command starts a service in the background: it ends with status 0, and the processes that it leaves are
    /// the service.
    #[serde(default)]
    pub daemon: bool,
    /// When the service is ready: once all of these conditions hold. Default: as soon as the service is started.
    #[serde(default)]
    pub ready: ServiceReady,
    /// Maximum time until the service is ready, including `prepare`.
    #[serde(default = "within")]
    pub within: Span,
    /// What must hold before each run begins, such as that a store has repaired the damage of the last fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<ServiceHealthy>,
    /// Time that its processes get to end after SIGTERM before they are killed.
    #[serde(default = "stop_within")]
    pub stop_within: Span,
    /// Resource limits. A service that exceeds a limit is ended, and the run is invalid.
    #[serde(default)]
    pub limits: ServiceLimits,
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a list of a program and its arguments, or a line for the shell"
)]
pub enum ServiceCommand {
    /// A line for `/bin/sh -c`.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

impl ServiceCommand {
    /// The program and its arguments, with the shell for a line.
    pub fn words(&self) -> Vec<String> {
        match self {
            ServiceCommand::Line(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            ServiceCommand::Words(words) => words.clone(),
        }
    }

    /// What is wrong with the command; `None` if it is valid.
    fn mistake(&self) -> Option<&'static str> {
        match self {
            ServiceCommand::Line(line) if line.trim().is_empty() => Some("it is empty"),
            ServiceCommand::Words(words) if words.first().is_none_or(String::is_empty) => {
                Some("it names no program")
            }
            _ if self.words().iter().any(|word| word.contains('\0')) => {
                Some("it contains a NUL byte")
            }
            _ => None,
        }
    }
}

/// When a service is ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceReady {
    /// Something listens on this TCP port of its host. 0 picks a free port, which the command finds in `$BRUNT_PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The service has written a line that contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// This command ends with status 0; it is repeated until it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<ServiceCommand>,
}

/// When a run may begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceHealthy {
    /// This command ends with status 0; it is repeated until it does. It runs on the service's host, with the
    /// service's variables, in the service's folder.
    pub command: ServiceCommand,
    /// Maximum time until it succeeds. If it takes longer, the experiment ends.
    #[serde(default = "healthy_within")]
    pub within: Span,
}

/// Resource limits of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceLimits {
    /// Resident memory of all its processes, added up every second; shared pages count for each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Open files per process (RLIMIT_NOFILE).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Maximum size of its log, which all restarts share.
    #[serde(default = "log")]
    pub log: Size,
}

impl Default for ServiceLimits {
    fn default() -> ServiceLimits {
        ServiceLimits {
            memory: None,
            files: None,
            log: log(),
        }
    }
}

fn within() -> Span {
    Span(Duration::from_secs(60))
}
fn healthy_within() -> Span {
    Span(Duration::from_secs(300))
}
fn stop_within() -> Span {
    Span(Duration::from_secs(3))
}
fn log() -> Size {
    Size(16 << 20)
}

/// A value in a target's URL that is known only once its service runs: `{address:NAME}` or `{folder:NAME}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServicePlace<'a> {
    /// The address where the service listens.
    Address(&'a str),
    /// Its folder.
    Folder(&'a str),
}

/// The start of a placeholder, and the constructor that takes its name.
type PlaceForm<'a> = (&'static str, fn(&'a str) -> ServicePlace<'a>);

impl<'a> ServicePlace<'a> {
    const FORMS: [PlaceForm<'a>; 2] = [
        ("{address:", ServicePlace::Address),
        ("{folder:", ServicePlace::Folder),
    ];

    /// The first placeholder in a URL, with the text before and after it.
    fn first(url: &'a str) -> Option<(&'a str, ServicePlace<'a>, &'a str)> {
        let found = ServicePlace::FORMS.iter().filter_map(|(form, make)| {
            let (before, rest) = url.split_once(form)?;
            let (name, after) = rest.split_once('}')?;
            Some((before, make(name), after))
        });
        found.min_by_key(|(before, ..)| before.len())
    }

    /// All placeholders in a URL.
    pub fn all(mut url: &'a str) -> Vec<ServicePlace<'a>> {
        let mut all = Vec::new();
        while let Some((_, place, after)) = ServicePlace::first(url) {
            all.push(place);
            url = after;
        }
        all
    }

    /// The URL with each placeholder replaced.
    pub fn replaced(mut url: &'a str, by: impl Fn(ServicePlace<'a>) -> String) -> String {
        let mut out = String::new();
        while let Some((before, place, after)) = ServicePlace::first(url) {
            out += before;
            out += &by(place);
            url = after;
        }
        out + url
    }

    pub(super) fn service(self) -> &'a str {
        match self {
            ServicePlace::Address(name) | ServicePlace::Folder(name) => name,
        }
    }
}

/// A service that waits for itself, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("service {0} waits for itself")]
pub struct ServiceCycle(pub String);

/// A mistake in a service: its keys, what is wrong, and what would be correct.
type Wrong = (Vec<&'static str>, String, Option<String>);

impl ServiceEntry {
    /// A mistake in the service itself, regardless of the rest of the file.
    fn mistake(&self) -> Option<Wrong> {
        let commands = [
            (vec!["command"], Some(&self.command)),
            (vec!["prepare"], self.prepare.as_ref()),
            (vec!["ready", "command"], self.ready.command.as_ref()),
            (
                vec!["healthy", "command"],
                self.healthy.as_ref().map(|healthy| &healthy.command),
            ),
        ];
        let help = || {
            Some("write command = [\"program\", \"argument\"], or a line for the shell".to_string())
        };
        for (key, command) in commands {
            if let Some(what) = command.and_then(ServiceCommand::mistake) {
                return Some((key, what.to_string(), help()));
            }
        }
        self.ready_or_limits_mistake()
            .or_else(|| self.environment_mistake())
    }

    /// A mistake in a service's ready conditions, time limits or resource limits.
    fn ready_or_limits_mistake(&self) -> Option<Wrong> {
        if self.ready.line.as_ref().is_some_and(String::is_empty) {
            return Some((
                vec!["ready", "line"],
                "it is empty, and every line contains an empty text".into(),
                None,
            ));
        }
        let healthy = self.healthy.as_ref().map(|healthy| healthy.within);
        let times = [
            (vec!["within"], Some(self.within), WITHIN_MAX),
            (vec!["stop_within"], Some(self.stop_within), STOP_WITHIN_MAX),
            (vec!["healthy", "within"], healthy, WITHIN_MAX),
        ];
        for (key, time, max) in times {
            if let Some(time) = time.filter(|time| time.0.is_zero() || time.0 > max) {
                return Some((key, format!("{time} is outside 1ns to {}", Span(max)), None));
            }
        }
        let ServiceLimits { memory, files, log } = &self.limits;
        let small = [
            ("memory", *memory, MEMORY_MIN),
            ("log", Some(*log), LOG_MIN),
        ];
        for (key, size, min) in small {
            if let Some(size) = size.filter(|size| size.0 < min.0) {
                return Some((
                    vec!["limits", key],
                    format!("{size} is less than {min}"),
                    None,
                ));
            }
        }
        if let Some(files) = files.filter(|files| *files < FILES_MIN) {
            return Some((
                vec!["limits", "files"],
                format!("{files} is less than {FILES_MIN}"),
                None,
            ));
        }
        if let Some((what, help)) = self.private.iter().find_map(|path| odd_path(path)) {
            return Some((vec!["private"], what, Some(help.into())));
        }
        None
    }

    /// A mistake in an environment variable's name or value.
    fn environment_mistake(&self) -> Option<Wrong> {
        let odd = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = self.environment.keys().find(odd) {
            return Some((
                vec!["environment"],
                format!("'{name}' is not a variable name"),
                None,
            ));
        }
        if let Some(name) = self
            .environment
            .keys()
            .find(|name| name.starts_with(OWN_VARIABLES))
        {
            let what =
                format!("{name}: variables that begin with {OWN_VARIABLES} are set by Brunt");
            return Some((
                vec!["environment"],
                what,
                Some("choose another name".into()),
            ));
        }
        let zero = |value: &&String| value.contains('\0');
        self.environment.values().find(zero).map(|_| {
            (
                vec!["environment"],
                "a value contains a NUL byte".to_string(),
                None,
            )
        })
    }
}

impl Experiment {
    /// Checks that the named services exist and can be started.
    pub(super) fn check_services(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        if self.services.len() > SERVICES_MAX {
            return Err(source.mistake(
                &["services"],
                format!("more than {SERVICES_MAX} services"),
                None,
            ));
        }
        for (name, service) in &self.services {
            if let Some((key, what, help)) = self.service_mistake(name, service, hosts) {
                let path = [&["services", name.as_str()], &key[..]].concat();
                return Err(source.mistake(&path, format!("service {name}: {what}"), help));
            }
        }
        if let Err(circle) = self.services_in_order() {
            let path = ["services", circle.0.as_str(), "after"];
            return Err(source.mistake(
                &path,
                circle.to_string(),
                Some("remove one of the services from after".into()),
            ));
        }
        self.check_service_places(source)
    }

    /// Checks that the services named in targets' URLs exist and have what the URLs ask for.
    fn check_service_places(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let all = self
            .targets
            .keys()
            .flat_map(|name| self.as_opened(name).into_iter().map(move |own| (name, own)));
        for (name, (_, target)) in all {
            for place in ServicePlace::all(&target.url) {
                let wrong = |what: String, help: Option<String>| {
                    let path = ["targets", name.as_str(), "url"];
                    Err(source.mistake(&path, format!("target {name}: {what}"), help))
                };
                let Some(service) = self.services.get(place.service()) else {
                    return wrong(self.no_service(place.service()), None);
                };
                if matches!(place, ServicePlace::Address(_)) && service.ready.port.is_none() {
                    let what = format!("service {} has no port", place.service());
                    return wrong(what, Some("write ready = { port = 0 } for it".into()));
                }
            }
        }
        Ok(())
    }

    /// The first mistake in a service.
    fn service_mistake(&self, name: &str, service: &ServiceEntry, hosts: &Hosts) -> Option<Wrong> {
        if !is_name(name) {
            let help = "use letters, digits, '-', '_' and '.'; begin with a letter or digit";
            let what = "the service's name cannot be used as a file name".to_string();
            return Some((Vec::new(), what, Some(help.into())));
        }
        if let Some(mistake) = service.mistake() {
            return Some(mistake);
        }
        if let Some((what, help)) = self.misplaced(service, hosts) {
            return Some((vec!["host"], what, Some(help)));
        }
        if let Some((what, help)) = self.not_private(name, service, hosts) {
            return Some((vec!["private"], what, Some(help)));
        }
        let unknown = |after: &&String| !self.services.contains_key(*after);
        let unknown = service.after.iter().find(unknown)?;
        Some((vec!["after"], self.no_service(unknown), None))
    }

    /// Why a service cannot run on its host.
    fn misplaced(&self, service: &ServiceEntry, hosts: &Hosts) -> Option<(String, String)> {
        let names: Vec<&str> = hosts.of_lab().map(|(name, _)| name.as_str()).collect();
        let one_of = || format!("write host = one of {}", names.join(", "));
        let Some(host) = &service.host else {
            let what = || "it does not name a host of the lab".to_string();
            return self.lab.is_some().then(|| (what(), one_of()));
        };
        match hosts.find(host) {
            Err(error) if self.lab.is_none() => {
                let help = format!(
                    "omit host, or add [hosts.{host}] with ssh = \"user@host\" or agent = \"host:port\""
                );
                Some((error.to_string(), help))
            }
            Err(error) => Some((error.to_string(), one_of())),
            Ok(_) if names.contains(&host.as_str()) => None,
            Ok(_) if self.lab.is_some() && !hosts.is_remote(host) => Some((
                format!("{host} is not a host of the lab, so nothing can reach it there"),
                one_of(),
            )),
            Ok(_) => None,
        }
    }

    /// Why a service cannot have the private folders that it names.
    fn not_private(
        &self,
        name: &str,
        service: &ServiceEntry,
        hosts: &Hosts,
    ) -> Option<(String, String)> {
        if self.lab.is_some() && hosts.is_remote(&self.host_of_service(service)) {
            let first = service.private.first()?;
            return Some((
                format!(
                    "{} cannot be private on a remote host: every program there would see it",
                    first.display()
                ),
                "omit private".into(),
            ));
        }
        if self.lab.is_none() {
            let first = service.private.first()?;
            return Some((
                format!(
                    "{} cannot be private without a lab: every program on its host would see it",
                    first.display()
                ),
                "add [lab] with hosts and links, or omit private".into(),
            ));
        }
        let here = self
            .services
            .iter()
            .filter(|(_, other)| other.host == service.host);
        let others = here.flat_map(|(other, entry)| {
            entry
                .private
                .iter()
                .enumerate()
                .map(move |(number, path)| (other.as_str(), number, path))
        });
        for (number, path) in service.private.iter().enumerate() {
            let meets = |(other, at, there): &(&str, usize, &PathBuf)| {
                (*other, *at) != (name, number)
                    && (there.starts_with(path) || path.starts_with(there))
            };
            if let Some((other, _, there)) = others.clone().find(meets) {
                let what = format!(
                    "{} and {} of service {other} are on the same host, and one contains the other",
                    path.display(),
                    there.display()
                );
                return Some((what, "name only the outer one, or use another host".into()));
            }
        }
        None
    }

    /// The message about an unknown service.
    pub(crate) fn no_service(&self, name: &str) -> String {
        let known: Vec<&str> = self.services.keys().map(String::as_str).collect();
        match known.is_empty() {
            true => format!("unknown service '{name}'; there are no services"),
            false => format!(
                "unknown service '{name}'; the services are {}",
                known.join(", ")
            ),
        }
    }

    /// The names of services, each after the services that it waits for.
    ///
    /// # Errors
    /// A service waits for itself, directly or through others.
    pub fn services_in_order(&self) -> Result<Vec<&str>, ServiceCycle> {
        let mut order: Vec<&str> = Vec::new();
        while order.len() < self.services.len() {
            let waits = |name: &&String| !order.contains(&name.as_str());
            let can_start = |name: &&String| {
                let mut after = self.services[*name].after.iter();
                after.all(|other| order.contains(&other.as_str()))
            };
            match self.services.keys().filter(waits).find(can_start) {
                Some(name) => order.push(name),
                None => {
                    return Err(ServiceCycle(
                        self.services
                            .keys()
                            .find(waits)
                            .cloned()
                            .unwrap_or_default(),
                    ));
                }
            }
        }
        Ok(order)
    }

    /// The host on which a service runs.
    pub fn host_of_service(&self, service: &ServiceEntry) -> HostName {
        service.host.clone().unwrap_or_else(HostName::local)
    }
}

impl Target {
    /// Whether the URL is known only once its services run.
    pub fn is_of_service(&self) -> bool {
        !ServicePlace::all(&self.url).is_empty()
    }

    /// Whether the URL is known only once the target is served, or its services run.
    pub fn is_known_late(&self) -> bool {
        self.serve.is_some() || self.is_of_service()
    }
}

/// The mistake in the path of a private folder, and what would be correct.
fn odd_path(path: &Path) -> Option<(String, &'static str)> {
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    let shown = path.display();
    if !path.is_absolute()
        || !path.components().all(plain)
        || path.as_os_str().to_string_lossy().contains('\0')
    {
        return Some((
            format!("'{shown}' is not an absolute path"),
            "write a path such as \"/var/lib/glusterd\"",
        ));
    }
    let own = path == Path::new("/") || path.starts_with("/proc");
    own.then(|| {
        (
            format!("{shown} cannot be private, because Brunt needs it"),
            "name another folder",
        )
    })
}

/// Whether a name is usable as a file name and within a URL.
fn is_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    name.len() <= NAME_LETTERS_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(plain)
        && Path::new(name).file_name().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake_at, changed};

    const GOOD: &str = r#"
name = "a store"
[targets.disk]
url = "nbd://{address:front}/x?socket={folder:back}"
[workloads.read]
stop = { time = "10s" }
[services.front]
command = ["nbdkit"]
after = ["back"]
ready = { port = 0, line = "up" }
limits = { files = 256, log = "1MiB" }
[services.back]
command = "exec sleep 1000"
environment = { LEVEL = "3" }
[[fault]]
service = "back"
kill = true
at = "1s"
for = "1s"
"#;

    /// Services start in dependency order, and placeholders for them in URLs are replaced.
    #[test]
    fn order_and_places() {
        let experiment = Experiment::parse("x.toml", GOOD).unwrap();
        assert_eq!(experiment.services_in_order().unwrap(), ["back", "front"]);
        let replaced =
            ServicePlace::replaced(&experiment.targets["disk"].url, |place| match place {
                ServicePlace::Address(name) => format!("at-{name}"),
                ServicePlace::Folder(name) => format!("in-{name}"),
            });
        assert_eq!(replaced, "nbd://at-front/x?socket=in-back");
        assert!(experiment.targets["disk"].is_of_service());
        assert!(ServicePlace::all("array:raid0,{a},{folder").is_empty());
        assert_eq!(
            experiment.services["back"].command.words()[..2],
            ["/bin/sh", "-c"]
        );
        let again = Experiment::parse("again.toml", &experiment.written_out()).unwrap();
        assert_eq!(again, experiment);
    }

    /// Private folders of services don't overlap on a host.
    #[test]
    fn private_folders_are_separate() {
        let with = |front: &str, back: &str| {
            let text = GOOD.replace(
                "[\"nbdkit\"]",
                &format!("[\"nbdkit\"]\nhost = \"a\"\n{front}"),
            );
            let text = text.replace("environment", &format!("{back}\nenvironment"));
            text + "[lab]\nhosts = [\"a\", \"b\"]\n[lab.links.wire]\nbetween = [\"a\", \"b\"]\n"
        };
        let good = with(
            "private = [\"/var/lib/x\", \"/run\"]",
            "host = \"b\"\nprivate = [\"/run/x\"]",
        );
        let experiment = Experiment::parse("x.toml", &good).unwrap();
        assert_eq!(
            experiment.services["back"].private,
            [PathBuf::from("/run/x")]
        );
        let bad = with(
            "private = [\"/run\"]",
            "host = \"a\"\nprivate = [\"/var\", \"/run/x\"]",
        );
        assert_mistake_at(
            &bad,
            "private = [\"/var\"",
            "/run/x and /run of service front are on the same host",
        );
        let twice = with("private = [\"/var/lib\", \"/var\"]", "host = \"b\"");
        assert_mistake_at(
            &twice,
            "private = [\"/var/lib\"",
            "/var/lib and /var of service front",
        );
    }

    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, line: &str, said: &str| {
            assert_mistake_at(&changed(GOOD, from, to), line, said);
        };
        check("[\"nbdkit\"]", "[]", "command = []", "names no program");
        check("\"exec sleep 1000\"", "\" \"", "command = \" \"", "empty");
        check(
            "\"exec sleep 1000\"",
            "7",
            "command = 7",
            "a line for the shell",
        );
        check(
            "after = [\"back\"]",
            "after = [\"bakc\"]",
            "after",
            "the services are back, front",
        );
        check(
            "[\"nbdkit\"]\nafter = [\"back\"]",
            "[\"nbdkit\"]\nafter = [\"front\"]",
            "after",
            "waits for itself",
        );
        check("line = \"up\"", "line = \"\"", "ready", "every line");
        check("files = 256", "files = 3", "limits", "less than 64");
        check("1MiB", "1KiB", "limits", "less than 4KiB");
        check("LEVEL", "BRUNT_LEVEL", "environment", "set by Brunt");
        check(
            "[services.back]",
            "[services.\"../back\"]",
            "[services.\"..",
            "letters, digits",
        );
        check(
            "{address:front}",
            "{address:side}",
            "url",
            "unknown service 'side'",
        );
        check(
            "{address:front}",
            "{address:back}",
            "url",
            "ready = { port = 0 }",
        );
        check("port = 0,", "prot = 0,", "ready", "did you mean port?");
        check(
            "after = [\"back\"]",
            "after = [\"back\"]\nhost = \"far\"",
            "host",
            "unknown host 'far'",
        );
        check(
            "after = [\"back\"]",
            "after = [\"back\"]\nwithin = \"2h\"",
            "within",
            "1ns to 3600s",
        );
        let lab = "[lab]\nhosts = [\"a\"]\n[services.back]";
        check("[services.back]", lab, "[services.back]", "host = one of a");
        let private = |paths: &str, said: &str| {
            let keys = "environment = { LEVEL = \"3\" }";
            check(keys, &format!("{keys}\nprivate = {paths}"), "private", said);
        };
        private(
            "[\"/var/lib/x\"]",
            "/var/lib/x cannot be private without a lab",
        );
        private("[\"var/lib/x\"]", "not an absolute path");
        private("[\"/var/../x\"]", "not an absolute path");
        private("[\"/\"]", "because Brunt needs it");
        private("[\"/proc/sys\"]", "because Brunt needs it");
        check(
            "service = \"back\"",
            "service = \"side\"",
            "service",
            "unknown service 'side'",
        );
        check(
            "service = \"back\"",
            "service = \"back\"\nprocess = \"x\"",
            "process",
            "omit process",
        );
    }
}
