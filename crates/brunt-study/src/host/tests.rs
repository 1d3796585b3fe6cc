use std::collections::BTreeMap;

use super::*;
use crate::experiment::{Experiment, assert_mistake_at, changed};

const LAB: &str = "[lab]\nhosts = [\"client\", \"server\"]\n[lab.links.wan]\nbetween = [\"client\", \"server\"]\n";
/// The service that runs the guest.
const SERVICE: &str = "[services.vm]\nhost = \"server\"\ncommand = [\"sleep\", \"1000\"]\n";
const REST: &str = "name = \"x\"\n[targets.t]\nserve = \"memory:1MiB\"\nhost = \"server\"\n[workloads.w]\nstop = { time = \"1s\" }\n";

/// Names are unique, and so are the keys that select a kind; every kind has help, exactly one kind needs no such key,
/// and examples parse as their kind.
#[test]
fn each_line_is_whole() {
    for (index, kind) in HOST_KINDS.iter().enumerate() {
        let info = kind.info;
        for other in &HOST_KINDS[index + 1..] {
            assert_ne!(info.name, other.info.name);
            let marks = |one: &HostInfo, key: &str| one.marked && one.keys[0] == key;
            let shared = info.keys.iter().filter(|key| other.info.keys.contains(key));
            assert!(
                shared
                    .clone()
                    .all(|key| !marks(info, key) && !marks(other.info, key)),
                "{}",
                info.name
            );
        }
        assert!(!info.help.is_empty(), "{}", info.name);
        let Some(example) = info.example else {
            continue;
        };
        let text =
            format!("{REST}{LAB}[hosts.another]\n{example}\n[probes]\nhosts = []\n{SERVICE}");
        let experiment = Experiment::parse("x.toml", &text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let hosts = experiment.hosts().unwrap();
        let host = hosts.find(&HostName::from("another")).unwrap();
        assert_eq!(host.settings.info().name, info.name);
        let again = Experiment::parse("x.toml", &experiment.written_out()).unwrap();
        assert_eq!(again, experiment);
    }
    assert_eq!(
        HOST_KINDS.iter().filter(|kind| !kind.info.marked).count(),
        1
    );
}

/// Lab hosts may be listed, have their own tables, or both; the machine itself is always present.
#[test]
fn one_name_space() {
    let names = |text: &str| {
        let experiment = Experiment::parse("x.toml", text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let hosts = experiment.hosts().unwrap();
        let names: Vec<String> = hosts.iter().map(|host| host.name.to_string()).collect();
        (names.join(" "), hosts.worker().to_string())
    };
    let check = |text: String, all: &str, worker: &str| {
        assert_eq!(names(&text), (all.into(), worker.into()))
    };
    check(format!("{REST}{LAB}"), "local client server", "client");
    check(
        format!("{REST}{LAB}[hosts.server]\ncores = [0]\n"),
        "local client server",
        "client",
    );
    check(
        format!("{REST}{LAB}[hosts.far]\ntest_only = \"a\"\n"),
        "local client server far",
        "client",
    );
    let tables =
        LAB.replace("hosts = [\"client\", \"server\"]", "") + "[hosts.client]\n[hosts.server]\n";
    check(format!("{REST}{tables}"), "local client server", "client");
    check(REST.replace("server", "local"), "local", "local");
    check(
        REST.replace("server", "far") + "[hosts.far]\ntest_only = \"a\"\n",
        "local far",
        "local",
    );
    let hosts = Hosts::of(&BTreeMap::new(), None).unwrap();
    assert_eq!(
        hosts
            .find(hosts.worker())
            .unwrap()
            .launcher(None)
            .unwrap()
            .host(),
        &HostName::local()
    );
}

/// Wherever a host is named, a wrong name is reported in the same way, at its key.
#[test]
fn unknown_hosts_are_reported_at_their_key() {
    let check = |from: &str, to: &str, at: &str, said: &str| {
        assert_mistake_at(&changed(&format!("{REST}{LAB}"), from, to), at, said);
    };
    let none = "unknown host 'x'; the hosts of this experiment are: local, client, server";
    check("host = \"server\"", "host = \"x\"", "host =", none);
    check("[lab]\n", "[lab]\nworker = \"x\"\n", "worker =", none);
    check("[lab]\n", "[lab]\ncores = { x = [0] }\n", "cores =", none);
    check(
        "between = [\"client\", \"server\"]",
        "between = [\"client\", \"x\"]",
        "between =",
        none,
    );
    let fault = "[[fault]]\nlink = \"wan\"\nset = { loss = 0.1 }\nfrom = \"x\"\n[lab]";
    check("[lab]", fault, "from =", none);
    check(
        "[lab]",
        "[hosts.local]\n[lab]",
        "[hosts.local]",
        "the machine that runs the experiment",
    );
    check(
        "[\"client\", \"server\"]",
        "[\"client\", \"server\", \"local\"]",
        "hosts =",
        "the machine that runs",
    );
    check(
        "[lab]\n",
        "[lab]\nworker = \"local\"\n",
        "worker =",
        "on a host of the lab",
    );
    check(
        "host = \"server\"",
        "host = \"local\"",
        "host =",
        "no route from client to local",
    );
    check(
        "[lab]",
        "[hosts.server]\ntest_only = \"a\"\n[lab]",
        "[hosts.server]",
        "here but a host of the lab",
    );
    check(
        "[lab]",
        "[hosts.server]\ncroes = [0]\n[lab]",
        "croes",
        "did you mean cores?",
    );
    check(
        "[lab]",
        "[hosts.server]\ncores = []\n[lab]",
        "cores",
        "an empty list of cores",
    );
    let twice = "[hosts.server]\ncores = [0]\n[lab]\ncores = { server = [1] }";
    check("[lab]", twice, "cores", "also set in [lab]");
}
