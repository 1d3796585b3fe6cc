//! The interfaces of other hosts whose bytes are counted during runs, and the time before each run in which their
//! traffic is measured without load.

use std::time::Duration;

use brunt_core::Span;
use brunt_protocol::INTERFACES_MAX;

use super::Experiment;
use super::lab_check::IDLE;
use super::mistake::{FileError, Source};
use crate::host::Hosts;

/// Default idle time; it is not zero, because background traffic on a real network is rarely zero.
const IDLE_DEFAULT: Duration = Duration::from_secs(1);

impl Experiment {
    /// Hosts that have interfaces to count.
    pub fn counted_interfaces(&self) -> Vec<(String, Vec<String>)> {
        self.hosts().unwrap_or_default().interfaces()
    }

    /// Idle time before each run, in which these hosts' background traffic is measured; `None` if there are no such
    /// hosts or it is switched off.
    pub fn host_idle_time(&self) -> Option<Duration> {
        if self.counted_interfaces().is_empty() {
            return None;
        }
        let idle = self.host_idle.map_or(IDLE_DEFAULT, |idle| idle.0);
        (!idle.is_zero()).then_some(idle)
    }

    /// Checks the interfaces and the idle time.
    pub(super) fn check_interfaces(
        &self,
        source: &Source<'_>,
        hosts: &Hosts,
    ) -> Result<(), Box<FileError>> {
        let counted = hosts.interfaces();
        for (host, interfaces) in &counted {
            let wrong = |what: String, help: &str| {
                let path = ["hosts", host.as_str(), "interfaces"];
                Err(source.mistake(
                    &path,
                    format!("host {host}: {what}"),
                    Some(help.to_string()),
                ))
            };
            let is_twice = |(index, name): (usize, &String)| interfaces[..index].contains(name);
            if let Some(index) = interfaces.iter().enumerate().position(is_twice) {
                let what = format!("interface '{}' is listed twice", interfaces[index]);
                return wrong(what, "list each interface once");
            }
            if interfaces.iter().any(|name| name.trim().is_empty()) {
                return wrong(
                    "an interface without a name".into(),
                    "write \"eth1\", for example",
                );
            }
            if interfaces.len() > INTERFACES_MAX {
                return wrong(
                    format!("{} interfaces", interfaces.len()),
                    "list those that carry the measured traffic, at most 64",
                );
            }
        }
        let Some(idle) = self.host_idle else {
            return Ok(());
        };
        let wrong = |what: String, help: &str| {
            Err(source.mistake(&["host_idle"], what, Some(help.to_string())))
        };
        if counted.is_empty() {
            return wrong(
                "host_idle is set, but no host has interfaces to count".into(),
                "omit host_idle, or write interfaces = [\"eth1\"] under [hosts.NAME]",
            );
        }
        match idle == Span(Duration::ZERO) || IDLE.contains(&idle.0) {
            true => Ok(()),
            false => wrong(
                format!("host_idle {idle}; write 100ms to 10min"),
                "write \"2s\"; \"0s\" switches it off",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_mistake_at, changed};

    const TEXT: &str = r#"
name = "interfaces"
host_idle = "2s"
[hosts.a]
ssh = "a"
interfaces = ["eth1", "eth2"]
[targets.t]
url = "null:1MiB"
[workloads.w]
hosts = ["a"]
stop = { time = "9s" }
"#;

    #[test]
    fn interfaces_are_counted_after_an_idle_time() {
        let read = |text: &str| Experiment::parse("x.toml", text).unwrap();
        let found = read(TEXT);
        let names = ["eth1", "eth2"].map(String::from).to_vec();
        assert_eq!(found.counted_interfaces(), [("a".to_string(), names)]);
        assert_eq!(found.host_idle_time(), Some(Duration::from_secs(2)));
        let without = changed(TEXT, "host_idle = \"2s\"\n", "");
        assert_eq!(read(&without).host_idle_time(), Some(IDLE_DEFAULT));
        assert_eq!(read(&changed(TEXT, "2s", "0s")).host_idle_time(), None);
        let none = changed(&without, "interfaces = [\"eth1\", \"eth2\"]\n", "");
        assert_eq!(read(&none).host_idle_time(), None);
    }

    #[test]
    fn wrong_interfaces_and_idle_times_are_refused() {
        let check = |from: &str, to: &str, line: &str, said: &str| {
            assert_mistake_at(&changed(TEXT, from, to), line, said);
        };
        check(
            "\"eth2\"",
            "\"eth1\"",
            "interfaces =",
            "'eth1' is listed twice",
        );
        check("\"eth2\"", "\" \"", "interfaces =", "without a name");
        check("2s", "1ms", "host_idle", "write 100ms to 10min");
        let none = "interfaces = [\"eth1\", \"eth2\"]\n";
        check(none, "", "host_idle", "no host has interfaces");
    }
}
