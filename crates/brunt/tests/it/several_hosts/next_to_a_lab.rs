//! Other machines next to a lab: the experiment runs inside its lab, and reaches the machines from outside the lab,
//! by ssh and over TLS. The machines are namespaces with sshd and an agent (see [`crate::support::hosts`]).

use super::*;
use crate::support::hosts::{Hosts, Plan, until};

/// One-way delay of the lab's link.
const LAB_DELAY_NS: f64 = 5e6;

const NONE: &[&str] = &[];

/// Lab hosts and other machines take part in one run, each side with its own targets and services. The sweep varies
/// the lab's link; faults and probes reach the machines; and nothing is left on them.
#[test]
fn other_machines_and_hosts_of_a_lab_share_an_experiment() {
    let plans = [0, 0].map(|shift_ns| Plan { link: "", shift_ns });
    let Some(hosts) = Hosts::start(&plans) else {
        return;
    };
    let text = format!(
        "name = \"mixed\"\nrepetitions = 1\nhost_silence = \"60s\"\n{}\
         [lab]\nworker = \"client\"\n[hosts.client]\n[hosts.server]\n\
         [lab.links.lan]\nbetween = [\"client\", \"server\"]\n\
         [targets.near]\nserve = \"memory:4MiB\"\nhost = \"server\"\nworkloads = [\"near\"]\n\
         [targets.away]\nserve = \"memory:4MiB\"\nhost = \"h1\"\nworkloads = [\"away\"]\n\
         [services.near]\nhost = \"server\"\ncommand = [\"sleep\", \"600\"]\n\
         [services.store]\nhost = \"h1\"\nready = {{ port = 0 }}\n\
         command = \"exec {program} target --portal $BRUNT_ADDRESS:$BRUNT_PORT --lun memory:4MiB\"\n\
         [targets.served]\nurl = \"iscsi://{{address:store}}/iqn.2026-11.io.brunt:t0/0\"\nworkloads = [\"away\"]\n\
         [targets.own]\nurl = \"memory:4MiB\"\nworkloads = [\"all\"]\n\
         [workloads.near]\nhosts = [\"client\"]\n{paced}stop = {{ requests = 150 }}\n\
         [workloads.away]\nhosts = [\"h2\"]\n{paced}stop = {{ requests = 150 }}\n\
         [workloads.all]\nhosts = [\"client\", \"h1\", \"h2\"]\n{paced}stop = {{ requests = 60 }}\n\
         [probes]\ninterval = \"50ms\"\nonly = [\"network\"]\n\
         [[fault]]\nname = \"full\"\nhost = \"h1\"\nmemory = \"8MiB\"\n\
         [sweep]\nlink_delay = [\"0\", \"5ms\"]\nlinks = [\"lan\"]\n",
        hosts.toml(),
        program = env!("CARGO_BIN_EXE_brunt"),
        // Runs are long enough for samples, even if the sampler waits for a processor.
        paced = "arrival = { kind = \"open\", rate = 100 }\n",
    );
    std::fs::write(hosts.folder().join("mixed.toml"), text).unwrap();
    let [file, results] =
        ["mixed.toml", "results"].map(|name| hosts.folder().join(name).display().to_string());
    let output = hosts
        .controller(&["run", &file, "--out", &results])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(Path::new(&results));
    assert_eq!(summary["complete"], true);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        let run = &point["runs"][0];
        let completed = run["ops"][0]["completed"].as_u64().unwrap();
        let names: Vec<&str> = run["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|host| host["name"].as_str().unwrap())
            .collect();
        let is_delayed = point["axes"]["link_delay"] == "5ms";
        // Probes omit interfaces without traffic.
        let (expected, on, with_traffic) = match point["workload"].as_str() {
            Some("near") => (150, &["client"][..], &["client", "server"][..]),
            Some("away") => (150, &["h2"][..], &["h1", "h2"][..]),
            _ => (60, &["client", "h1", "h2"][..], NONE),
        };
        assert_eq!((completed, &names[..]), (expected, on), "{run:#}");
        if point["workload"] == "near" && is_delayed {
            let p50 = run["response"]["p50_us"].as_f64().unwrap();
            assert!(p50 * 1e3 >= 2.0 * LAB_DELAY_NS, "{p50}");
        }
        assert!(run["links"]["lan"].is_object(), "{run:#}");
        for host in with_traffic {
            let figures = run["probes"]["hosts"][*host].to_string();
            assert!(figures.contains("network."), "{host}: {run:#}");
        }
    }
    for index in 0..2 {
        until("the session's processes end", || {
            hosts.visitors(index).is_empty()
        });
    }
    let left = hosts.down();
    assert!(left.is_empty(), "{left:?}");
}
