//! Workloads on several hosts in a lab: one agent in each host's network, otherwise as on other machines.

use std::os::unix::process::ExitStatusExt;

use brunt_lake::read_table;
use brunt_result::tables::indexes;

use super::records::{Asked, recorded};
use super::*;

/// Environment variable that marks the processes of a run.
const MARK: &str = "BRUNT_LAB_HOSTS_TEST";

/// Two clients, one near the server and one far from it.
const LAB: &str = r#"
repetitions = 1
[lab]
worker = "near"
[hosts.far]
cores = [0]
[hosts.near]
[hosts.server]
[lab.links.lan]
between = ["near", "server"]
[lab.links.wan]
between = ["far", "server"]
delay = "15ms"
[targets.disk]
serve = "memory:4MiB?fault=off"
host = "server"
"#;
/// The shortest possible round trip of a request from the far host.
const FAR_NS: i64 = 30_000_000;

/// Runs an experiment in a lab; `None`, with a message, if a lab can't be created.
pub fn run_in_lab(folder: &Path, name: &str, text: &str) -> Option<(Output, PathBuf)> {
    let (output, results) = run(folder, name, &format!("name = \"{name}\"\n{text}"));
    let words = output_text(&output);
    if words.contains("namespaces of a lab") || words.contains("/dev/net/tun") {
        support::skip("user namespaces and /dev/net/tun");
        return None;
    }
    Some((output, results))
}

/// Each host in the lab makes its part of the run over its own links: together, these are the requests that workers
/// on one host would make, recorded and verified. Figures, starts and agents are kept apart for each host.
#[test]
fn hosts_of_a_lab_share_a_run() {
    let folder = TempDir::new().unwrap();
    let record = |name: &str, workload: &str| {
        let text = format!(
            "seed = 7\n{LAB}[probes]\ninterval = \"50ms\"\nonly = [\"network\", \"process\"]\n[workloads.w]\n\
             record_requests = true\nverify = {{}}\nread = 0.5\nsequential = 0.5\nqueue_depth = 4\n\
             stop = {{ requests = 601 }}\n{workload}\n"
        );
        let (output, results) = run_in_lab(folder.path(), name, &text)?;
        assert!(output.status.success(), "{}", output_text(&output));
        Some((recorded(&results), summary(&results), results))
    };
    let Some((here, ..)) = record("here", "workers = 4") else {
        return;
    };
    let Some((there, summary, results)) =
        record("there", "workers = 2\nhosts = [\"near\", \"far\"]")
    else {
        return;
    };
    let asked = |of: &[(Asked, [i64; 3])]| {
        of.iter()
            .map(|(asked, _)| asked.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(here.len(), 601);
    assert_eq!(
        asked(&here),
        asked(&there),
        "the same requests, wherever their workers are"
    );
    let took = |is_far: bool| {
        let of_host = there
            .iter()
            .filter(move |(asked, _)| (asked.0 >= 2) == is_far);
        of_host.map(|(_, [_, sent, completed])| completed - sent)
    };
    assert!(
        took(true).min().unwrap() >= FAR_NS,
        "workers 2 and 3 are on the far host"
    );
    assert!(
        took(false).min().unwrap() < FAR_NS,
        "workers 0 and 1 are on the near one"
    );
    let run = &summary["points"][0]["runs"][0];
    let hosts = run["hosts"].as_array().unwrap();
    let names: Vec<&str> = hosts
        .iter()
        .map(|host| host["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["near", "far"]);
    for host in hosts {
        assert!(
            host["began_us"].is_f64() && host["clock_error_us"].as_f64().unwrap() > 0.0,
            "{host:#}"
        );
        assert!(host["received_bytes"].as_u64().unwrap() > 0, "{host:#}");
    }
    for link in ["lan", "wan"] {
        let there = &run["links"][link]["there"];
        let carried: u64 = ["packets", "straight_frames"]
            .iter()
            .filter_map(|key| there[*key].as_u64())
            .sum();
        assert!(carried > 0, "{link}: {there:#}");
    }
    let probed = &run["probes"]["hosts"];
    for host in ["near", "far"] {
        let figures = probed[host].to_string();
        assert!(
            figures.contains("process.agent.") && figures.contains("network."),
            "{host}: {probed:#}"
        );
    }
    let page = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(page.contains("on near + far"), "the page says where it ran");
}

/// Faults of links, of two hosts, of connections and of the target work while workers are on several lab hosts, as do
/// concurrent jobs and phases on file systems.
#[test]
fn faults_jobs_and_files_work_on_several_hosts_of_a_lab() {
    let folder = TempDir::new().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let text = format!(
        "{LAB}[targets.other]\nserve = \"memory:1MiB\"\nhost = \"server\"\nworkloads = []\n\
         [workloads.w]\nread = 0.5\nhosts = [\"near\", \"far\"]\nretry = {{ count = 1000, delay = \"5ms\", on = \"any\" }}\n\
         stop = {{ time = \"13s\" }}\n\
         [workloads.short]\nhosts = [\"far\"]\nstop = {{ requests = 20 }}\n\
         [workloads.alone]\nstop = {{ requests = 30 }}\n\
         [together.both]\njobs = [{{ workload = \"short\", target = \"other\" }}, {{ workload = \"alone\", target = \"other\" }}]\n\
         [filesystems.files]\ndirectory = \"{}\"\nhosts = [\"near\", \"far\"]\nphases = [\"write-blocks\"]\nfile_size = \"1MiB\"\n\
         [[fault]]\nname = \"slower\"\ntarget = \"disk\"\nlink = \"lan\"\nset = {{ delay = \"10ms\" }}\nat = \"300ms\"\nfor = \"1s\"\n\
         [[fault]]\nname = \"apart\"\ntarget = \"disk\"\npartition = [\"far\", \"server\"]\nat = \"2500ms\"\nfor = \"1s\"\n\
         [[fault]]\nname = \"reset\"\ntarget = \"disk\"\nreset = \"server\"\nto = \"near\"\nat = \"6s\"\nfor = \"2s\"\n\
         [[fault]]\nname = \"busy\"\ntarget = \"disk\"\nstorage = \"busy,p=0.5\"\nat = \"10s\"\nfor = \"2s\"\n",
        files.display()
    );
    let Some((output, results)) = run_in_lab(folder.path(), "faults", &text) else {
        return;
    };
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    let points = summary["points"].as_array().unwrap();
    let run = |label: &str| {
        let point = points.iter().find(|point| point["label"] == label);
        &point.unwrap_or_else(|| panic!("{label}: {points:#?}"))["runs"][0]
    };
    let faults = run("disk w")["faults"].as_array().unwrap();
    let names: Vec<&str> = faults
        .iter()
        .map(|fault| fault["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["slower", "apart", "reset", "busy"]);
    let hosts = |label: &str| {
        let hosts = run(label)["hosts"].as_array().cloned().unwrap_or_default();
        hosts
            .iter()
            .map(|host| host["name"].as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(hosts("disk w"), ["near", "far"]);
    assert_eq!(hosts("other both"), ["both/short on far"]);
    assert_eq!(hosts("files write-blocks"), ["near", "far"]);
    assert_eq!(
        std::fs::read_dir(&files).unwrap().count(),
        0,
        "what the phases made is gone"
    );
}

/// A shortened version of the example with clients at four sites: the distance of each client from the store is that
/// of its site.
#[test]
fn the_example_of_four_sites_runs() {
    let folder = TempDir::new().unwrap();
    let file = support::root().join("examples/clients-at-four-sites.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.replace("repetitions = 4", "repetitions = 1\nhost_silence = \"60s\"");
    let text = text.replace("name = \"Clients at four sites\"\n", "");
    // Long enough that every client gets a processor in that time.
    let text = text.replace("stop = { time = \"1s\" }", "stop = { time = \"4s\" }");
    let Some((output, results)) = run_in_lab(folder.path(), "sites", &text) else {
        return;
    };
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 3);
    let least_us = |label: &str| {
        let point = points.iter().find(|point| point["label"] == label).unwrap();
        point["runs"][0]["response"]["min_us"].as_f64().unwrap()
    };
    assert!(least_us("store next-door") < 20_000.0);
    assert!(least_us("store far-away") >= 20_000.0);
    let all = points
        .iter()
        .find(|point| point["label"] == "store all-four")
        .unwrap();
    let hosts = all["runs"][0]["hosts"].as_array().unwrap();
    let rate = |at: usize| hosts[at]["requests_per_second"].as_f64().unwrap();
    assert_eq!(hosts.len(), 4, "{hosts:#?}");
    for host in 1..4 {
        // Eight outstanding requests, each in transit for at least 20 ms, are at most 400 a second.
        assert!(0.0 < rate(host) && rate(host) <= 420.0, "{hosts:#?}");
    }
}

/// The robustness indexes of three clients, one at a time and two concurrently, follow from the recorded runs, in the
/// terminal output, the summary, the tables and the page. The third client is only measured alone.
#[test]
fn robustness_indexes_follow_from_the_recorded_runs() {
    let folder = TempDir::new().unwrap();
    let text = r#"
repetitions = 2
host_silence = "60s"
[lab]
hosts = ["observer", "one", "two", "three", "gateway", "server"]
worker = "observer"
[lab.links.one]
between = ["one", "gateway"]
[lab.links.two]
between = ["two", "gateway"]
[lab.links.three]
between = ["three", "gateway"]
[lab.links.wan]
between = ["gateway", "server"]
[targets.disk]
serve = "memory:4MiB"
host = "server"
[workloads.w]
hosts = ["one", "two", "three"]
read = 0.5
queue_depth = 4
stop = { requests = 40 }
[sweep]
clients = [1, 2]
link_delay = ["0", "20ms"]
links = ["wan"]
"#;
    let Some((output, results)) = run_in_lab(folder.path(), "indexes", text) else {
        return;
    };
    let words = output_text(&output);
    assert!(output.status.success(), "{words}");
    assert!(
        words.contains("ParallelismImpactRatio") && words.contains("LatencyImpactRatio"),
        "{words}"
    );
    let page = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(page.contains("LatencyImpactRatio") && page.contains("Throughput of each client"));
    let summary = summary(&results);
    let points = summary["points"].as_array().unwrap();
    // Three clients alone and one pair, each without the delay and with it.
    assert_eq!(points.len(), 8);
    // A client's mean over rounds, at the point with this combination of clients and delay.
    let mean = |company: &str, delayed: bool, client: &str| {
        let is = |point: &&serde_json::Value| {
            (point["axes"]["link_delay"] == "20ms") == delayed && point["axes"]["on"] == company
        };
        let runs = points.iter().find(is).unwrap()["runs"].as_array().unwrap();
        let rates = runs.iter().map(|run| {
            let mut hosts = run["hosts"].as_array().unwrap().iter();
            hosts.find(|host| host["name"] == client).unwrap()["bytes_per_second"]
                .as_f64()
                .unwrap()
        });
        rates.sum::<f64>() / runs.len() as f64
    };
    let impacts = summary["indexes"]["impacts"].as_array().unwrap();
    let index = |kind: &str, at_once: u64, delayed: bool| {
        let is = |index: &&serde_json::Value| {
            let of = if kind == "latency" {
                &index["link_delay"]
            } else {
                &index["axes"]["link_delay"]
            };
            index["kind"] == kind
                && index["at_once"] == at_once
                && index["op"].is_null()
                && (of == "20ms") == delayed
        };
        let index = impacts
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("{kind} {at_once} in {impacts:#?}"));
        assert_eq!(
            (index["rounds"].as_u64(), index["rounds_left_out"].as_u64()),
            (Some(2), Some(0))
        );
        let interval = &index["per_client"]["interval"];
        let [low, ratio, high] =
            ["low", "ratio", "high"].map(|key| interval[key].as_f64().unwrap());
        assert!(low <= ratio && ratio <= high, "{interval}");
        ratio
    };
    let near = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}")
    };
    for delayed in [false, true] {
        let together = mean("one+two", delayed, "one") + mean("one+two", delayed, "two");
        let alone = mean("one", delayed, "one") + mean("two", delayed, "two");
        near(index("parallelism", 2, delayed), together / alone);
    }
    let alone = |delayed: bool| {
        ["one", "two", "three"]
            .map(|name| mean(name, delayed, name))
            .iter()
            .sum::<f64>()
    };
    near(index("latency", 1, true), alone(true) / alone(false));
    // Of two concurrent clients, each has four outstanding requests of 4 KiB, which are in transit for at least 40
    // ms.
    assert!(mean("one+two", true, "one") <= 4.0 * 4096.0 / 0.04 * 1.01);
    // Each kind of operation has a separate ratio.
    for op in ["read", "write"] {
        assert!(
            impacts.iter().any(|index| index["op"] == op),
            "{impacts:#?}"
        );
    }
    // Clients of the eight points, each for all kinds of operations together and for two single kinds.
    assert_eq!(
        summary["indexes"]["clients"].as_array().unwrap().len(),
        2 * (3 + 2) * 3
    );
    for (table, expected) in [
        (&indexes::TABLE, 2 * impacts.len()),
        (&indexes::CLIENTS, 30),
    ] {
        let mut rows = 0;
        read_table(&results, table, |batch| rows += batch.rows()).unwrap();
        assert_eq!(rows, expected, "{}", table.name);
    }
}

/// Processes with this mark that are agents.
fn agents(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let mut pids = support::processes_with(|variable| variable == wanted.as_bytes());
    pids.retain(|pid| support::words_of(*pid).iter().any(|word| word == "--stdio"));
    pids.into_iter().map(|pid| pid as i32).collect()
}

/// A lab host whose agent dies is treated like a lost machine: the loss is noticed and marked, and the other host
/// continues. The agents end with the experiment, however it ends.
#[test]
fn a_lost_agent_in_a_lab_is_marked_like_a_lost_machine() {
    let folder = TempDir::new().unwrap();
    let text = |time: &str| {
        format!(
            "name = \"lost\"\nhost_silence = \"60s\"\non_host_failure = \"continue\"\n{LAB}\
             [workloads.w]\nhosts = [\"near\", \"far\"]\ninterval = \"10ms\"\nstop = {{ time = \"{time}\" }}\n"
        )
    };
    for (ends, time) in [("agent", "10s"), ("experiment", "1h")] {
        let mark = format!("{ends}-{}", std::process::id());
        let (file, out) = (
            folder.path().join(format!("{ends}.toml")),
            folder.path().join(ends),
        );
        std::fs::write(&file, text(time)).unwrap();
        let mut command = brunt();
        command
            .arg("run")
            .arg(&file)
            .arg("--out")
            .arg(&out)
            .env(MARK, &mark);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begin = std::time::Instant::now();
        let victim = loop {
            assert!(begin.elapsed() < Duration::from_secs(120), "the run begins");
            if child.try_wait().unwrap().is_some() {
                let words = output_text(&child.wait_with_output().unwrap());
                assert!(
                    words.contains("namespaces of a lab") || words.contains("/dev/net/tun"),
                    "{words}"
                );
                return support::skip("user namespaces and /dev/net/tun");
            }
            // Either host's agent will do, as soon as it is working.
            match agents(&mark).into_iter().find(|pid| is_working(*pid)) {
                Some(pid) => break pid,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        assert_eq!(agents(&mark).len(), 2);
        let victim = if ends == "agent" {
            victim
        } else {
            child.id() as i32
        };
        let sent = Command::new("kill")
            .args(["-KILL", &victim.to_string()])
            .status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        if ends == "agent" {
            let said = output_text(&output);
            assert_eq!(
                output.status.code(),
                Some(1),
                "what lacks a host is not complete: {said}"
            );
            let summary = summary(&out);
            let run = &summary["points"][0]["runs"][0];
            assert_eq!(run["stopped"], "host-lost", "{said}");
            assert!(
                run["measured_s"].as_f64().unwrap() > 9.9,
                "the other went on"
            );
            let hosts = run["hosts"].as_array().unwrap();
            let lost: Vec<&Value> = hosts
                .iter()
                .filter(|host| host["lost"].is_object())
                .collect();
            let why = lost
                .first()
                .map(|host| host["lost"]["why"].to_string())
                .unwrap_or_default();
            assert!(
                lost.len() == 1 && why.contains("connection ended"),
                "{hosts:#?}"
            );
        } else {
            assert_eq!(output.status.signal(), Some(9));
        }
        let begin = std::time::Instant::now();
        while !agents(&mark).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "agents are left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
