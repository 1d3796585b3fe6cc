//! Per-client targets, such as the disk images of virtual machines on one store: `{client}` in a target's `url` is
//! the name of the host that opens it. In the results, a per-client target is one target; the figures of its clients
//! are kept apart, as for any hosts.
//!
//! ```toml
//! [targets.images]
//! url = "nbd://server/{client}"
//! [workloads.write]
//! hosts = ["client-1", "client-2"]     # nbd://server/client-1 and nbd://server/client-2
//! ```
//!
//! The rule: only hosts that a workload names open such a target, and workers on other hosts don't use it.

use brunt_load::Workload;
use brunt_load::block::workload::VerifySettings;

use super::mistake::{FileError, Source};
use super::target::CLIENT_PLACE;
use super::{Experiment, Target};
use crate::host::HostName;

impl Experiment {
    /// A target as each of its clients opens it, with the client's name; for a shared target, a single entry without
    /// a name.
    pub fn as_opened(&self, name: &str) -> Vec<(Option<HostName>, Target)> {
        let target = &self.targets[name];
        if !target.is_each_clients_own() {
            return vec![(None, target.clone())];
        }
        let own = |host: HostName| {
            let target = target.of_client(host.as_str());
            (Some(host), target)
        };
        self.requesters(name).into_iter().map(own).collect()
    }

    /// Checks that the loads of per-client targets can use them.
    pub(super) fn check_own_targets(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, _) in self
            .targets
            .iter()
            .filter(|(_, target)| target.is_each_clients_own())
        {
            for (workload_name, workload) in self.loads_on(name) {
                if let Some((what, help)) = unfit(workload_name, workload) {
                    let what = format!(
                        "target {name}: its url contains {CLIENT_PLACE}, but workload {what}"
                    );
                    return Err(source.mistake(&["targets", name, "url"], what, Some(help)));
                }
            }
        }
        Ok(())
    }
}

/// Why a workload cannot use per-client targets, and what would be correct.
fn unfit(name: &str, workload: &Workload) -> Option<(String, String)> {
    if workload.hosts.is_empty() {
        let help = format!("write hosts = [\"client-1\", \"client-2\"] under [workloads.{name}]");
        return Some((format!("{name} names no hosts to act as clients"), help));
    }
    if workload.trace.is_some() {
        let help = "omit trace, or write the url of one target".to_string();
        return Some((
            format!("{name} replays a trace, whose requests all go to one target"),
            help,
        ));
    }
    let journal = workload
        .verify
        .as_ref()
        .is_some_and(|VerifySettings { journal }| journal.is_some());
    journal.then(|| {
        let help = "write verify = {}, which checks every read during the run".to_string();
        (
            format!("{name} keeps journals, which brunt verify reads for one target"),
            help,
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, assert_mistake_at, changed};

    const TEXT: &str = r#"
name = "own"
[lab]
hosts = ["observer", "a", "b", "store"]
worker = "observer"
[lab.links.a]
between = ["a", "store"]
[lab.links.b]
between = ["b", "store"]
[lab.links.observer]
between = ["observer", "store"]
[services.server-a]
host = "a"
command = ["true"]
ready = { port = 0 }
[services.server-b]
host = "b"
command = ["true"]
ready = { port = 0 }
[targets.image]
url = "nbd://{address:server-{client}}/{client}"
[workloads.write]
read = 0
sequential = 1
hosts = ["a", "b"]
stop = { time = "1s" }
[sweep]
clients = [1, 2]
"#;

    /// Results show a per-client target as one target, so that a client running alone can be compared with the same
    /// client among others.
    #[test]
    fn each_client_opens_its_own() {
        let experiment = Experiment::parse("x.toml", TEXT)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let opened: Vec<(String, String)> = experiment
            .as_opened("image")
            .into_iter()
            .map(|(host, target)| (host.unwrap().to_string(), target.url))
            .collect();
        let url = |client: &str| format!("nbd://{{address:server-{client}}}/{client}");
        assert_eq!(
            opened,
            [("a".to_string(), url("a")), ("b".to_string(), url("b"))]
        );
        let points = experiment.points();
        let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "image write clients=1 on=a",
                "image write clients=1 on=b",
                "image write clients=2 on=a+b"
            ]
        );
        assert!(points.iter().all(|point| point.target == "image"));
        assert!(experiment.plan().is_remote("image"));
        assert_eq!(
            Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
            experiment
        );
        let one = changed(
            TEXT,
            "nbd://{address:server-{client}}/{client}",
            "nbd://{address:server-a}/disk",
        );
        let one = Experiment::parse("x.toml", &one).unwrap();
        assert!(matches!(&one.as_opened("image")[..], [(None, _)]));
    }

    #[test]
    fn targets_that_cannot_be_private_are_refused() {
        let check = |from: &str, to: &str, said: &str| {
            assert_mistake_at(&changed(TEXT, from, to), "url = \"nbd:", said);
        };
        let alone = changed(TEXT, "[sweep]\nclients = [1, 2]\n", "");
        let alone = changed(&alone, "hosts = [\"a\", \"b\"]\nstop", "stop");
        assert_mistake_at(&alone, "url = \"nbd:", "workload write names no hosts");
        check(
            "read = 0\nsequential = 1\n",
            "trace = \"x.csv\"\n",
            "workload write replays a trace",
        );
        check(
            "sequential = 1",
            "verify = { journal = \"/tmp/x\" }",
            "workload write keeps journals",
        );
        check(
            "[services.server-b]",
            "[services.other]",
            "unknown service 'server-b'",
        );
    }
}
