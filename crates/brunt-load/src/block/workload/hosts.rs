//! A workload that runs on other hosts: what it cannot have yet, and how it is sent to them.
//!
//! The rule: what another host would not do is refused here by its key, before anything is opened.

use std::path::PathBuf;

use super::{VerifySettings, WORKERS_MAX, Workload};
use crate::load::{WorkloadError, wrong};
use crate::replay::settings::ReplayTiming;

/// Whether a load can have these hosts, with so many workers on each.
///
/// # Errors
/// One is named twice, or they are too many.
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
    /// Worker threads on all of its hosts together.
    pub fn workers_of_all(&self) -> u32 {
        self.workers
            .saturating_mul(u32::try_from(self.hosts.len()).unwrap_or(u32::MAX).max(1))
    }

    /// Keeps the journals of this run of an experiment apart from those of others.
    pub fn keep_journals_apart(&mut self, order: Option<u32>) {
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

    /// As text for [`crate::LOADS`] of the host that runs it.
    ///
    /// # Panics
    /// When its values cannot be written, which what was read from a file always can.
    pub fn written(&self) -> String {
        toml::to_string(self).expect("a workload can be written as TOML")
    }

    /// As JSON, for plans.
    ///
    /// # Panics
    /// As [`Workload::written`].
    pub(crate) fn as_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a workload can be written as JSON")
    }

    /// Takes away the folder of its journals, which is one of this machine: other hosts aren't told of it.
    pub(crate) fn take_journals(&mut self) -> Option<PathBuf> {
        self.verify
            .as_mut()
            .and_then(|verify| verify.journal.take())
    }

    /// Whether its hosts can run it.
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

    /// Whether several hosts can share its replay.
    ///
    /// # Errors
    /// Its order would depend on what other hosts have done.
    pub(crate) fn check_shared_replay(&self) -> Result<(), WorkloadError> {
        if self
            .timing
            .is_some_and(|timing| timing != ReplayTiming::Trace)
        {
            let what =
                "several hosts share a trace at its times only; omit this key, or name one host";
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

    /// Whether it has nothing that goes only where the experiment runs, as it is sent to another host.
    ///
    /// # Errors
    /// The first key that does not.
    pub(crate) fn check_elsewhere(&self) -> Result<(), WorkloadError> {
        match self
            .verify
            .as_ref()
            .and_then(|verify| verify.journal.as_ref())
        {
            Some(_) => {
                let what = "journals of acknowledged writes go to a folder of the controller, not of this host";
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
    fn what_other_hosts_do_not_do_is_refused_by_its_key() {
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
    fn a_workload_survives_being_sent() {
        let text = "read = 0.1\nblocks = [{ size = \"4k\", weight = 0.3 }, { size = \"64k\" }]\n\
                    arrival = { kind = \"open\", rate = 1234.5678901 }\nramp_up = { time = \"1234us\" }";
        let workload = read(text);
        assert_eq!(
            toml::from_str::<Workload>(&workload.written()).unwrap(),
            workload
        );
    }
}
