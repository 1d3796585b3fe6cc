//! Checks which workloads can run on other hosts, and serializes workloads for them.
//!
//! The rule: settings that another host can't follow are rejected here, before anything is opened, with an error that
//! names the key.

use std::path::PathBuf;

use super::{VerifySettings, WORKERS_MAX, Workload};
use crate::load::{WorkloadError, wrong};
use crate::replay::settings::ReplayTiming;

/// Checks the hosts of a load with this many workers on each.
///
/// # Errors
/// A host is named twice, or there are too many workers.
pub(crate) fn check_hosts(hosts: &[String], workers: u32) -> Result<(), WorkloadError> {
    let mut each = hosts.iter().enumerate();
    if let Some((_, twice)) = each.find(|(at, host)| hosts[..*at].contains(host)) {
        return wrong(
            "hosts",
            format!("{twice} is listed twice; name each host once"),
        );
    }
    let all = u64::from(workers) * hosts.len() as u64;
    match all > u64::from(WORKERS_MAX) {
        true => wrong(
            "hosts",
            format!("{all} workers on all hosts together; at most {WORKERS_MAX}"),
        ),
        false => Ok(()),
    }
}

impl Workload {
    /// Returns the number of worker threads on all hosts of the workload together.
    pub fn workers_of_all(&self) -> u32 {
        self.workers
            .saturating_mul(u32::try_from(self.hosts.len()).unwrap_or(u32::MAX).max(1))
    }

    /// Gives the journals of this run of an experiment their own folder.
    pub fn separate_journals(&mut self, order: Option<u32>) {
        if let (
            Some(VerifySettings {
                journal: Some(folder),
            }),
            Some(order),
        ) = (&mut self.verify, order)
        {
            *folder = folder.join(format!("run-{order}"));
        }
    }

    /// Serializes the workload as text, which the host that runs it parses with its [`crate::LOADS`].
    ///
    /// # Panics
    /// Panics if its values can't be serialized; values read from a file always can.
    pub fn written(&self) -> String {
        toml::to_string(self).expect("a workload can be written as TOML")
    }

    /// Serializes the workload as JSON, for plans.
    ///
    /// # Panics
    /// Panics if its values can't be serialized; values read from a file always can.
    pub(crate) fn as_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a workload can be written as JSON")
    }

    /// Removes and returns the folder for the workload's journals. The folder is on this machine, so it isn't sent to
    /// other hosts.
    pub(crate) fn take_journals(&mut self) -> Option<PathBuf> {
        self.verify
            .as_mut()
            .and_then(|verify| verify.journal.take())
    }

    /// Checks whether the workload's hosts can run it.
    pub(super) fn check_other_hosts(&self) -> Result<(), WorkloadError> {
        check_hosts(&self.hosts, self.workers)?;
        if self.hosts.is_empty() {
            return Ok(());
        }
        if self.trace.is_some() && self.hosts.len() > 1 {
            self.check_shared_replay()?;
        }
        Ok(())
    }

    /// Checks whether several hosts can share the workload's replay.
    ///
    /// # Errors
    /// The order of requests would depend on the progress of other hosts, or the workload verifies data.
    pub(crate) fn check_shared_replay(&self) -> Result<(), WorkloadError> {
        if self
            .timing
            .is_some_and(|timing| timing != ReplayTiming::Trace)
        {
            let what = "several hosts can share a trace only with its original timing; omit this key, or name one host";
            wrong("timing", what)?;
        }
        match self.verify.is_some() {
            true => wrong(
                "verify",
                "blocks of a replay are verified on one host only; omit this key",
            ),
            false => Ok(()),
        }
    }

    /// Checks a workload received from a controller for settings that only apply where the experiment runs.
    ///
    /// # Errors
    /// The error names the first of these settings.
    pub(crate) fn check_remote(&self) -> Result<(), WorkloadError> {
        match self
            .verify
            .as_ref()
            .and_then(|verify| verify.journal.as_ref())
        {
            Some(_) => {
                let what = "journals of acknowledged writes go to a folder on the controller, not on this host";
                wrong("verify.journal", what)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Workload {
        toml::from_str(&format!("stop = {{ time = \"1s\" }}\n{text}")).unwrap()
    }

    #[test]
    fn settings_that_other_hosts_cannot_follow_are_refused_by_key() {
        let check = |text: &str, key: Option<&str>| {
            let found = read(text).check();
            assert_eq!(
                found.as_ref().err().map(|error| error.key),
                key,
                "{text}: {found:?}"
            );
        };
        check("hosts = [\"a\", \"b\"]\nworkers = 128", None);
        check("hosts = [\"a\", \"b\"]\nworkers = 129", Some("hosts"));
        check("hosts = [\"a\", \"b\", \"a\"]", Some("hosts"));
        check(
            "hosts = [\"a\"]\nverify = {}\nrecord_requests = true\nring = \"auto\"",
            None,
        );
        check("hosts = [\"a\"]\nverify = { journal = \"/tmp/x\" }", None);
        check("ring = \"auto\"", None);
        let replay = |hosts: &str, more: &str, key: Option<&str>| {
            let text = format!("trace = \"x.vscsi\"\nhosts = [{hosts}]\n{more}");
            check(&text, key);
        };
        replay("\"a\"", "timing = \"depth\"\nverify = {}", None);
        replay("\"a\", \"b\"", "timing = \"trace\"", None);
        replay("\"a\", \"b\"", "timing = \"depth\"", Some("timing"));
        replay("\"a\", \"b\"", "verify = {}", Some("verify"));
        replay(
            "\"a\", \"b\"",
            "devices = { \"0\" = \"x\", \"1\" = \"y\" }",
            None,
        );
    }

    #[test]
    fn a_sent_workload_round_trips() {
        let text = "read = 0.1\nblocks = [{ size = \"4k\", weight = 0.3 }, { size = \"64k\" }]\n\
                    arrival = { kind = \"open\", rate = 1234.5678901 }\nramp_up = { time = \"1234us\" }";
        let workload = read(text);
        assert_eq!(
            toml::from_str::<Workload>(&workload.written()).unwrap(),
            workload
        );
    }
}
