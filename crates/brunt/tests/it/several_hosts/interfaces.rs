//! Data-transfer efficiency computed from the interface counters of other machines. The machines are namespaces with
//! sshd and an agent (see [`crate::support::hosts`]) in a lab whose links also count bytes. Control traffic has
//! separate links.

use brunt_lake::read_table;
use brunt_result::tables::transfer;

use super::*;
use crate::support::hosts::{Hosts, Plan, until};
use crate::support::need;

/// The link that carries nothing but the measured traffic. The link's thread counts all headers, and its name sorts
/// last.
const WIRE: &str = "[lab.links.wire]\nbetween = [\"h1\", \"h2\"]\ncarrier = \"wire-size\"\n";
/// Name of the link's device on both hosts.
const INTERFACE: &str = "link2";
/// Tolerated difference between interface counters and link counters.
const DIFFERENCE_MAX: f64 = 0.01;

/// Reads on h2 from a target on h1, at a steady rate of 16 MiB a second. (Before writes, a target is searched for
/// signatures, which isn't measured but would count on the link.)
fn experiment(hosts: &Hosts, repetitions: u32) -> String {
    let mut sections = hosts.toml();
    for host in ["[hosts.h1]\n", "[hosts.h2]\n"] {
        let counted = format!("{host}interfaces = [\"{INTERFACE}\"]\n");
        sections = sections.replace(host, &counted);
    }
    format!(
        "name = \"interfaces\"\nrepetitions = {repetitions}\nhost_silence = \"60s\"\nhost_idle = \"300ms\"\n{sections}\
         [targets.disk]\nserve = \"memory:16MiB\"\nhost = \"h1\"\n\
         [workloads.read]\nread = 1\nblocks = [{{ size = \"64k\" }}]\nqueue_depth = 4\nhosts = [\"h2\"]\n\
         arrival = {{ kind = \"open\", rate = 256 }}\nstop = {{ requests = 256 }}\n[probes]\ninterval = \"0s\"\n"
    )
}

/// Runs the experiment on the controller; returns the output and the results folder.
fn run_there(hosts: &Hosts, text: &str) -> (Output, PathBuf) {
    std::fs::write(hosts.folder().join("x.toml"), text).unwrap();
    let [file, results] = ["x.toml", "results"].map(|name| hosts.folder().join(name));
    let words = [
        "run",
        file.to_str().unwrap(),
        "--out",
        results.to_str().unwrap(),
    ];
    let output = hosts.controller(&words).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    (output, results)
}

fn sent(run: &Value) -> u64 {
    let interfaces = run["transfer"]["interfaces"].as_object().unwrap();
    let sent = interfaces
        .values()
        .map(|one| one["sent_bytes"].as_u64().unwrap());
    assert_eq!(interfaces.len(), 2, "{run:#}");
    sent.sum()
}

/// The interfaces of two hosts count the same bytes as the link between them, and the figure has the same name
/// everywhere as for a lab. The load is quiet before and after it is measured, so the bytes don't depend on when
/// counters are read.
#[test]
fn interfaces_count_the_same_bytes_as_links() {
    let plans = [0, 7_000_000_000].map(|shift_ns| Plan { link: "", shift_ns });
    let Some(hosts) = Hosts::start_linked(&plans, WIRE) else {
        return;
    };
    let (output, results) = run_there(&hosts, &experiment(&hosts, 2));
    let said = output_text(&output);
    for expected in ["bytes on links, both ways", "each run, by its counters"] {
        assert!(said.contains(expected), "{said}");
    }
    let report = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(report.contains(&format!("h1:{INTERFACE}")));
    let mut rows = 0;
    read_table(&results, &transfer::TABLE, |batch| rows += batch.rows()).unwrap();
    // Two runs, two interfaces, two directions.
    assert_eq!(rows, 8);
    let metrics = brunt()
        .args(["--json", "compare"])
        .args([&results, &results])
        .output()
        .unwrap();
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    for metric in ["\"link-bytes\"", "\"link-bytes-without-idle\""] {
        assert!(metrics.contains(metric), "{metrics}");
    }
    let summary = summary(&results);
    let point = &summary["points"][0];
    let runs = point["runs"].as_array().unwrap();
    let counted: u64 = runs.iter().map(sent).sum();
    // The link also carries logins, which are not measured.
    let links = hosts.end();
    let wire = &links["wire"];
    let carried: u64 = ["there", "back"]
        .map(|way| wire[way]["bytes"].as_u64().unwrap())
        .iter()
        .sum();
    let off = counted as f64 / carried as f64 - 1.0;
    println!("{counted} bytes at interfaces, {carried} on the link: {off:+.5}");
    assert!(
        off.abs() < DIFFERENCE_MAX,
        "{counted} of {carried}: {point:#}"
    );
    for run in runs {
        let transfer = &run["transfer"];
        assert_eq!(transfer["useful_bytes"], 256 << 16, "{run:#}");
        assert!(transfer["unknown"].is_null(), "{run:#}");
    }
    let all = &point["transfer"]["all"];
    let mean = |figure: &str| all[figure]["mean"].as_f64().unwrap();
    // Data, headers and acknowledgements.
    assert!((1.0..1.2).contains(&mean("per_useful_byte")), "{all:#}");
    assert!(mean("without_idle") <= mean("per_useful_byte"), "{all:#}");
    for error in ["per_useful_byte_error", "without_idle_error"] {
        assert!(all[error].as_f64().is_some(), "{all:#}");
    }
}

/// Traffic from other programs is measured before the run and subtracted: the remainder is closer to the load's own
/// bytes, whose minimum is known.
#[test]
fn background_traffic_is_subtracted() {
    if need("ping", "iputils-ping").is_none() {
        return;
    }
    let plans = [0, 0].map(|shift_ns| Plan { link: "", shift_ns });
    let Some(hosts) = Hosts::start_linked(&plans, WIRE) else {
        return;
    };
    // 1,442 bytes in each direction, 200 times a second if the machine is idle: 3.4 % of the load.
    let words = [
        "ping",
        "-q",
        "-i",
        "0.005",
        "-s",
        "1400",
        hosts.hosts[0].address(),
    ];
    let mut ping = hosts.on("h2", &words).spawn().unwrap();
    until("ping runs", || {
        hosts
            .processes(1)
            .iter()
            .any(|process| process.words.starts_with("ping "))
    });
    // Long enough that ping gets a processor in that time.
    let text = experiment(&hosts, 1).replace("host_idle = \"300ms\"", "host_idle = \"4s\"");
    let (_, results) = run_there(&hosts, &text);
    hosts.end();
    let _ = (ping.kill(), ping.wait());
    let summary = summary(&results);
    let all = &summary["points"][0]["transfer"]["all"];
    let [with, without] =
        ["per_useful_byte", "without_idle"].map(|figure| all[figure]["mean"].as_f64().unwrap());
    let run = &summary["points"][0]["runs"][0]["transfer"]["interfaces"]["h1:link2"];
    assert!(
        run["idle_sent_bytes_per_second"].as_f64() > Some(5_000.0),
        "{run:#}"
    );
    assert!(
        run["idle_sent_error_bytes_per_second"].as_f64() > Some(0.0),
        "{run:#}"
    );
    assert!(with > without, "{all:#}");
}

/// An interface that a host doesn't have is reported before the first run.
#[test]
fn an_unknown_interface_is_refused() {
    let folder = TempDir::new().unwrap();
    let host = host_by_ssh(folder.path(), "a", 0);
    let text = format!(
        "name = \"x\"\nrepetitions = 1\n{host}interfaces = [\"lo\", \"nosuch0\"]\n[targets.t]\nurl = \"null:1MiB\"\n\
         [workloads.w]\nhosts = [\"a\"]\nstop = {{ requests = 1 }}\n"
    );
    let (output, _) = run(folder.path(), "unknown", &text);
    let said = output_text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("host a has no interface 'nosuch0'"), "{said}");
}
