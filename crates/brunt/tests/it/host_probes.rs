//! Probes on other hosts in an experiment: agents on this machine, whose clocks are far apart, report the activity of
//! their hosts, with and without workers there.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::agents::{Listening, certificates, host_by_agent, host_by_ssh, pids};
use crate::support::brunt;
use brunt_lake::read_table;
use brunt_result::tables::probes;
use serde_json::Value;
use tempfile::TempDir;

const WORKLOAD: &str = "[targets.disk]\nurl = \"memory:1MiB\"\n[workloads.w]\ninterval = \"50ms\"\n\
     arrival = { kind = \"open\", rate = 50 }\nstop = { time = \"2s\" }\n";

/// Runs an experiment; returns its output, and the probes of its first run.
fn run(folder: &Path, text: &str) -> (Output, Value, String) {
    let file = folder.join("x.toml");
    std::fs::write(&file, format!("name = \"x\"\nrepetitions = 1\n{text}")).unwrap();
    let out = folder.join("x.results");
    let output = brunt()
        .arg("run")
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    let summary = std::fs::read(out.join("summary.json")).unwrap_or_default();
    let summary: Value = serde_json::from_slice(&summary).unwrap_or_default();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, summary["points"][0]["runs"][0].clone(), said)
}

/// The results contain the samples of each host under its name, on one timeline, whether workers run there or not.
#[test]
fn hosts_are_recorded_with_and_without_workers() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    // This agent may not open anything, because sampling needs no permission.
    let agent = Listening::start(&identity, &["--clock-shift-ns=-3000000000"]);
    let program = format!("hprobe-{}", std::process::id() % 100_000);
    let sleeper = folder.path().join(&program);
    // Use a link, not a copy: executing a copy would fail (ETXTBSY) if another test forked while it was written.
    std::os::unix::fs::symlink("/bin/sleep", &sleeper).unwrap();
    let mut sleeper = Command::new(sleeper).arg("600").spawn().unwrap();
    let hosts = host_by_ssh(folder.path(), "worker", 500_000_000_000)
        + &host_by_agent(certificates.path(), "array", &agent);
    let text = format!(
        "host_silence = \"60s\"\n{hosts}\n{}\n[probes]\ninterval = \"100ms\"\nprocesses = [\"{program}\", \"never-there\"]\n",
        WORKLOAD
            .replace("[workloads.w]", "[workloads.w]\nhosts = [\"worker\"]")
            .replace("\"2s\"", "\"5s\"")
    );
    let (output, run, said) = run(folder.path(), &text);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(output.status.success(), "{said}");
    let record = &run["probes"];
    for host in ["worker", "array"] {
        let counts = &record["elsewhere"][host];
        let of = |key: &str| counts[key].as_u64().unwrap();
        // A busy machine misses some samples, which are counted.
        assert!(
            of("samples") >= 1 && of("samples") + of("missed") >= 45,
            "{counts:#}"
        );
        assert!(
            of("sent_bytes") > 0 && of("received_bytes") > 1000,
            "{counts:#}"
        );
        assert!(
            counts["cpu_us_per_sample"].as_f64() > Some(0.0),
            "{counts:#}"
        );
        let means = &record["hosts"][host];
        assert!(
            means["memory.available_bytes"].as_f64() > Some(0.0),
            "{means:#}"
        );
        assert!(
            means["process.agent.resident_bytes"].as_f64() > Some(0.0),
            "{means:#}"
        );
        assert!(
            means[&format!("process.{program}.resident_bytes")].as_f64() > Some(0.0),
            "{means:#}"
        );
        let note = format!("{host}: no process is called 'never-there'");
        assert!(
            record["notes"]
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one == note.as_str()),
            "{record:#}"
        );
    }
    let measured_ns = (run["measured_s"].as_f64().unwrap() * 1e9) as i64;
    let (mut seen, mut times) = (Vec::new(), Vec::new());
    read_table(&folder.path().join("x.results"), &probes::TABLE, |batch| {
        let hosts = batch.texts("host").map(str::to_string).collect::<Vec<_>>();
        times.extend(
            hosts
                .iter()
                .cloned()
                .zip(batch.ints("end_ns").iter().copied()),
        );
        seen.extend(hosts);
    })
    .unwrap();
    for host in ["local", "worker", "array"] {
        assert!(seen.iter().any(|other| other == host), "{host}");
        // The last sample is taken after the end of the run, which a busy machine may notice late.
        let within = |ns: i64| (-60_000_000_000..measured_ns + 60_000_000_000).contains(&ns);
        let ends: Vec<i64> = times
            .iter()
            .filter(|(other, _)| other == host)
            .map(|(_, end)| *end)
            .collect();
        assert!(
            ends.iter().all(|end| within(*end)),
            "{host}: clocks are 500 s apart: {ends:?}"
        );
        assert!(
            ends.iter().any(|end| (0..=measured_ns).contains(end)),
            "{host}: {ends:?}"
        );
    }
    let page = std::fs::read_to_string(folder.path().join("x.results/report.html")).unwrap();
    assert!(page.contains("array") && page.contains("worker"));
}

/// Losing a host that is only sampled doesn't end the run; the results record when the host's data ends.
#[test]
fn losing_a_host_without_workers_does_not_end_the_run() {
    let folder = TempDir::new().unwrap();
    let text = format!(
        "host_silence = \"60s\"\n{}{}[probes]\ninterval = \"50ms\"\nonly = [\"memory\"]\n",
        host_by_ssh(folder.path(), "array", 0),
        WORKLOAD.replace("\"2s\"", "\"8s\"")
    );
    let at = folder.path().to_path_buf();
    let killer = std::thread::spawn(move || {
        let begin = std::time::Instant::now();
        // Once samples arrive, the run has begun.
        while !at.join("x.results/summary.json").exists() {
            assert!(begin.elapsed() < Duration::from_secs(120), "the run begins");
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = pids(&at, "array")[0].to_string();
        assert!(
            Command::new("kill")
                .args(["-KILL", &pid])
                .status()
                .unwrap()
                .success()
        );
    });
    let (output, run, said) = run(folder.path(), &text);
    killer.join().unwrap();
    assert!(output.status.success(), "{said}");
    let lost = run["probes"]["elsewhere"]["array"]["lost"]
        .as_str()
        .unwrap_or_else(|| panic!("{run:#}"));
    assert!(
        lost.contains("host array") && lost.contains("connection ended"),
        "{lost}"
    );
    let doubts = run["doubts"].as_array().unwrap();
    assert!(doubts.iter().any(|doubt| {
        doubt
            .as_str()
            .unwrap()
            .contains("no more samples: host array")
    }));
}

/// The hosts to sample can be chosen; an impossible choice is rejected before any host is reached.
#[test]
fn recorded_hosts_can_be_chosen() {
    let folder = TempDir::new().unwrap();
    let hosts = "[hosts.a]\nssh = \"a\"\ncommand = \"false\"\n[hosts.b]\nssh = \"b\"\ncommand = \"false\"\n";
    let check = |probes: &str, expected: &str| {
        let file = folder.path().join("x.toml");
        std::fs::write(
            &file,
            format!("name = \"x\"\n{hosts}{WORKLOAD}[probes]\n{probes}\n"),
        )
        .unwrap();
        let output = brunt()
            .args(["run", "--check"])
            .arg(&file)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(said.contains(expected), "{probes}: {said}");
    };
    check("interval = \"1s\"", "here, on a, b:");
    check("interval = \"1s\"\nhosts = [\"b\"]", "here, on b:");
    check("interval = \"1s\"\nhosts = []", "probes every 1s: cpu");
    check("hosts = [\"c\"]", "unknown host 'c'");
    check("hosts = [\"local\"]", "is not a remote host");
    check("hosts = [\"a\", \"a\"]", "is listed twice");
    let (output, _, said) = run(folder.path(), &format!("{hosts}{WORKLOAD}"));
    // Both hosts are contacted at the same time, so the error may name either of them.
    let named = said.contains("host a") || said.contains("host b");
    assert!(!output.status.success() && named, "{said}");
    assert!(
        !folder.path().join("x.results").exists(),
        "nothing was begun"
    );
}
