//! Simultaneous clients (`clients` under `[sweep]`): which of a workload's hosts run at once, and which run one after
//! another.
//!
//! The rule: for each number of clients, the hosts are divided, in their order, into groups of that size, and each
//! group is a point; thus the same clients are measured alone and together. Leftover hosts stay idle.

use brunt_result::impact::CLIENTS_JOINT;

use super::Experiment;
use super::mistake::{FileError, Source};

impl Experiment {
    /// Checks that all workloads have hosts to divide, and that the listed links exist.
    pub(super) fn check_clients(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let axes = &self.sweep;
        if !axes.clients.is_empty() {
            self.check_clients_axis(source)?;
        }
        let Some(first) = axes.links.first() else {
            return Ok(());
        };
        if !axes.varies_links() {
            let what = format!("links are listed ({first}, …), but no axis varies them");
            let help = "write link_delay = [\"0\", \"10ms\"], or omit links".to_string();
            return Err(source.mistake(&["sweep", "links"], what, Some(help)));
        }
        let known = || self.link_names();
        for (index, link) in axes.links.iter().enumerate() {
            let place = index.to_string();
            let path = ["sweep", "links", place.as_str()];
            if !known().any(|name| name == link) {
                let names: Vec<&str> = known().map(String::as_str).collect();
                let help = match names.is_empty() {
                    true => "add [lab] or [links.NAME], or omit links".to_string(),
                    false => format!("the links are {}", names.join(", ")),
                };
                return Err(source.mistake(
                    &path,
                    format!("no link named {link} to sweep"),
                    Some(help),
                ));
            }
            if axes.links[..index].contains(link) {
                return Err(source.mistake(&path, format!("link {link} is listed twice"), None));
            }
        }
        Ok(())
    }

    fn check_clients_axis(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let path = ["sweep", "clients"];
        if let Some((name, _)) = self.workloads.groups().next() {
            let what = format!(
                "clients are swept, but the jobs of together.{name} cannot be divided among clients"
            );
            let help = "remove clients or the group, or make two experiments".to_string();
            return Err(source.mistake(&path, what, Some(help)));
        }
        for (load, name, named) in self.loads_with_clients() {
            let hosts = named.len();
            if hosts == 0 {
                let what = format!(
                    "clients are swept, but {load} {name} names no hosts to act as clients"
                );
                let help = format!("add hosts = [\"client-a\", \"client-b\"] to {load} {name}");
                return Err(source.mistake(&path, what, Some(help)));
            }
            let fits = |count: u32| (1..=hosts).contains(&(count as usize));
            if let Some((index, count)) = self
                .sweep
                .clients
                .iter()
                .enumerate()
                .find(|(_, count)| !fits(**count))
            {
                let place = index.to_string();
                let what = format!("{count} clients at once, but {load} {name} has {hosts}");
                let help = format!("write 1 to {hosts}, or add hosts to {load} {name}");
                return Err(source.mistake(&["sweep", "clients", &place], what, Some(help)));
            }
            let joined = named.iter().find(|host| host.contains(CLIENTS_JOINT));
            if let Some(host) = joined {
                let what = format!(
                    "the name of host {host} contains a {CLIENTS_JOINT}, which separates client names in labels"
                );
                return Err(source.mistake(&path, what, Some("rename the host".into())));
            }
        }
        Ok(())
    }

    /// Every load whose hosts may be clients: its kind, name and hosts.
    fn loads_with_clients(&self) -> impl Iterator<Item = (&'static str, &str, &[String])> {
        let workloads = self.workloads.on_targets();
        let workloads = workloads.map(|(name, load)| ("workload", name.as_str(), &load.hosts[..]));
        let own = self.workloads.own();
        let own = own.map(|(name, entry)| (entry.noun(), name.as_str(), entry.hosts()));
        workloads.chain(own)
    }

    /// Number of points that `clients` splits each point into; 1 without `clients`.
    pub(super) fn groups_of_clients(&self) -> usize {
        let hosts = self
            .loads_with_clients()
            .map(|(.., hosts)| hosts.len())
            .max()
            .unwrap_or(0);
        let groups = self
            .sweep
            .clients
            .iter()
            .map(|count| hosts / (*count).max(1) as usize);
        groups.sum::<usize>().max(1)
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, assert_mistake, changed};

    const TEXT: &str = r#"
name = "clients"
[lab]
hosts = ["observer", "a", "b", "c", "d", "e", "store"]
[lab.links.in-a]
between = ["a", "store"]
delay = "1ms"
[lab.links.to-b]
between = ["b", "store"]
[lab.links.to-c]
between = ["c", "store"]
[lab.links.to-d]
between = ["d", "store"]
[lab.links.to-e]
between = ["e", "store"]
[targets.disk]
serve = "memory:64MiB"
host = "store"
[workloads.write]
read = 0
hosts = ["a", "b", "c", "d", "e"]
stop = { time = "1s" }
[sweep]
clients = [1, 2, 5]
link_delay = ["0", "10ms"]
links = ["to-b", "to-c"]
"#;

    /// Every client is measured alone; with two of five at a time there are two groups, and one client is left over.
    #[test]
    fn hosts_are_divided_into_groups() {
        let experiment = Experiment::parse("x.toml", TEXT).unwrap();
        let points = experiment.points();
        let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
        let expected: Vec<String> = [
            "1 on=a",
            "1 on=b",
            "1 on=c",
            "1 on=d",
            "1 on=e",
            "2 on=a+b",
            "2 on=c+d",
            "5 on=a+b+c+d+e",
        ]
        .iter()
        .flat_map(|group| {
            ["0", "10ms"].map(|delay| format!("disk write clients={group} link_delay={delay}"))
        })
        .collect();
        let zero = |label: &str| {
            label
                .replace("link_delay=0ns", "link_delay=0")
                .replace("link_delay=0s", "link_delay=0")
        };
        assert_eq!(
            labels
                .iter()
                .map(|label| zero(label))
                .collect::<Vec<String>>(),
            expected
        );
        let hosts: Vec<&[String]> = points
            .iter()
            .step_by(2)
            .map(|point| point.hosts())
            .collect();
        assert_eq!(
            (hosts[0], hosts[6]),
            (&["a".to_string()][..], &["c".to_string(), "d".into()][..])
        );
        assert_eq!(
            Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
            experiment
        );
    }

    /// Only the listed links change; the others keep their settings.
    #[test]
    fn only_named_links_are_swept() {
        let points = Experiment::parse("x.toml", TEXT).unwrap().points();
        let delay = |point: usize, link: &str| points[point].links[link][0].delay.0.as_millis();
        for (point, swept) in [(0, 0), (1, 10)] {
            assert_eq!(
                ["in-a", "to-b", "to-c", "to-d"].map(|link| delay(point, link)),
                [1, swept, swept, 0]
            );
        }
        let all = changed(TEXT, "links = [\"to-b\", \"to-c\"]\n", "");
        let points = Experiment::parse("x.toml", &all).unwrap().points();
        assert!(
            points[1]
                .links
                .values()
                .flatten()
                .all(|link| link.delay.0.as_millis() == 10)
        );
    }

    /// The hosts of phases on file systems are divided too; axes for workloads leave these phases unchanged.
    #[test]
    fn file_systems_have_clients() {
        let files = "[filesystems.home]\ndirectory = \"/tmp\"\nhosts = [\"a\", \"b\"]\nphases = [\"rewrite\"]\n[sweep]\nqueue_depth = [1, 2]";
        let text = changed(
            &changed(TEXT, "[sweep]", files),
            "clients = [1, 2, 5]",
            "clients = [1, 2]",
        );
        let points = Experiment::parse("x.toml", &text).unwrap().points();
        let of_files: Vec<(String, &[String])> = points
            .iter()
            .filter(|point| point.target == "home")
            .map(|point| {
                (
                    point
                        .axes
                        .iter()
                        .map(|(axis, _)| axis.as_str())
                        .collect::<Vec<_>>()
                        .join(" "),
                    point.hosts(),
                )
            })
            .collect();
        let hosts: Vec<String> = of_files
            .iter()
            .step_by(2)
            .map(|(_, hosts)| hosts.join("+"))
            .collect();
        assert_eq!(hosts, ["a", "b", "a+b"]);
        assert!(
            of_files
                .iter()
                .all(|(axes, _)| axes == "clients on link_delay"),
            "{of_files:?}"
        );
        let alone = changed(&text, "hosts = [\"a\", \"b\"]\nphases", "phases");
        assert_mistake(&alone, 28, "file system home names no hosts");
    }

    #[test]
    fn what_cannot_be_divided_is_refused() {
        let check = |from: &str, to: &str, line: usize, said: &str| {
            assert_mistake(&changed(TEXT, from, to), line, said)
        };
        check(
            "clients = [1, 2, 5]",
            "clients = [1, 6]",
            24,
            "6 clients at once, but workload write has 5",
        );
        check(
            "clients = [1, 2, 5]",
            "clients = [0]",
            24,
            "0 clients at once",
        );
        check(
            "hosts = [\"a\", \"b\", \"c\", \"d\", \"e\"]\nstop",
            "stop",
            23,
            "workload write names no hosts",
        );
        check("\"to-b\", \"to-c\"", "\"to-x\"", 26, "no link named to-x");
        check(
            "\"to-b\", \"to-c\"",
            "\"to-b\", \"to-b\"",
            26,
            "link to-b is listed twice",
        );
        check(
            "link_delay = [\"0\", \"10ms\"]\n",
            "",
            25,
            "no axis varies them",
        );
        let group = "[together.both]\njobs = [{ workload = \"write\", target = \"disk\" }, \
                     { workload = \"write\", target = \"disk\", name = \"again\" }]\n[sweep]";
        check(
            "[sweep]",
            group,
            26,
            "jobs of together.both cannot be divided",
        );
    }
}
