//! Eight hosts, each behind its own network: four with Debian's sshd and four with agents that listen, their clocks
//! up to half a second off. A single controller runs an experiment on all of them.
//!
//! The rule: the true offset of each clock is known. All hosts are this machine, so the offset is the shift chosen by
//! the test.

use crate::support::alone;
use crate::support::hosts::{Hosts, Plan, Way, assert_total, output_text, until};
use serde_json::Value;

/// Links with the same delay both ways, and with a much longer delay in one direction: half of the difference is an
/// error that no measurement can detect.
const EVEN: &str = "delay = \"200us\"";
const UNEVEN: &str = "delay = \"300us\"\nback = { delay = \"4300us\" }";
const UNEVEN_ERROR_NS: i64 = 2_000_000;

fn plans() -> Vec<Plan> {
    let shifts_ms = [500, -500, -333, 250, 1, -40, 0, 499];
    let links = [EVEN, EVEN, EVEN, EVEN, UNEVEN, UNEVEN, EVEN, EVEN];
    shifts_ms
        .into_iter()
        .zip(links)
        .map(|(ms, link)| Plan {
            link,
            shift_ns: ms * 1_000_000 + 789,
        })
        .collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// Eight hosts make one run: its total is the sum of the hosts' totals, the clock estimates contain the true offsets,
/// all hosts begin when the run starts, and nothing of the run is left on any host.
#[test]
fn eight_hosts_run_as_one() {
    let _alone = alone(); // Eight hosts keep all cores busy, and clocks are compared.
    let Some(hosts) = Hosts::start(&plans()) else {
        return;
    };
    let text = format!(
        "name = \"eight\"\nrepetitions = 2\nhost_silence = \"60s\"\n{}\n[targets.t]\nurl = \"memory:1MiB\"\n\
         [workloads.closed]\nworkers = 2\n{all}\nstop = {{ requests = 8000 }}\n\
         [workloads.open]\n{all}\narrival = {{ kind = \"open\", rate = 80, process = \"constant\" }}\n\
         interval = \"100ms\"\nstop = {{ time = \"1s\" }}\n",
        hosts.toml(),
        all = hosts.all()
    );
    std::fs::write(hosts.folder().join("eight.toml"), text).unwrap();
    let [file, results] =
        ["eight.toml", "results"].map(|name| hosts.folder().join(name).display().to_string());
    let output = hosts
        .controller(&["run", &file, "--out", &results])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = std::fs::read(hosts.folder().join("results/summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["complete"], true);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for (point, run) in points.iter().flat_map(|point| {
        point["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(move |run| (point, run))
    }) {
        let of_hosts = run["hosts"].as_array().unwrap();
        let names: Vec<&str> = of_hosts
            .iter()
            .map(|host| host["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"]);
        let completed = number(&run["ops"][0]["completed"]);
        match point["workload"].as_str() {
            Some("closed") => assert_eq!(completed, 8000.0),
            _ => {
                // A busy host skips what it can't send in time.
                let due = completed + run["losses"]["skipped"].as_f64().unwrap_or(0.0);
                assert!((70.0..=80.0).contains(&due), "{run:#}");
                assert!(completed > 0.0, "{run:#}");
            }
        }
        // On two processors, the eight hosts may end far apart.
        assert_total(
            run,
            completed as u64 - run["ops"][0]["late"].as_u64().unwrap(),
        );
        for (host, made) in of_hosts.iter().zip(&hosts.hosts) {
            let [low, high] = [0, 1].map(|end| host["clock_ahead_ns"][end].as_i64().unwrap());
            assert!(
                low <= made.shift_ns && made.shift_ns <= high,
                "{} is not in {host:#}",
                made.shift_ns
            );
            let [began, error] = ["began_us", "clock_error_us"].map(|key| number(&host[key]));
            assert!((2e3 * error - (high - low) as f64).abs() <= 1e3, "{host:#}");
            // All hosts begin at the start time as estimated when it was sent to them, which is less accurate than
            // what is known now, but by less than the shifts of most clocks. How late they are depends on the machine.
            assert!((-2e5..6e7).contains(&began), "{host:#}");
            assert!(
                number(&host["sent_bytes"]) > 0.0 && number(&host["received_bytes"]) > 0.0,
                "{host:#}"
            );
        }
        // Over a link that is slower in one direction, the midpoint is off, but by no more than the reported error.
        for uneven in [&of_hosts[4], &of_hosts[5]] {
            let error = number(&uneven["clock_error_us"]) * 1e3;
            assert!(
                error >= UNEVEN_ERROR_NS as f64,
                "nobody can know it better: {uneven:#}"
            );
        }
    }
    for index in 0..8 {
        until("the agent's session ends", || {
            hosts.visitors(index).is_empty()
        });
        until("nothing works there any more", || {
            hosts.threads_at_work(index).is_empty()
        });
    }
    let processes = hosts.controller_processes();
    assert!(
        processes.is_empty(),
        "left with the controller: {processes:?}"
    );
    assert!(hosts.down().is_empty());
}

/// The clock estimates of all hosts contain the true offset, over even and uneven links, through ssh and TLS.
#[test]
fn clock_estimates_contain_the_true_offset() {
    let _alone = alone(); // Eight hosts keep all cores busy, and clocks are compared.
    let Some(hosts) = Hosts::start(&plans()) else {
        return;
    };
    let mut estimates = 0;
    for _ in 0..2 {
        let arguments = hosts.arguments();
        let mut words = vec![
            "agent",
            "clock",
            "--json",
            "--for",
            "200ms",
            "--silence",
            "60s",
        ];
        words.extend(arguments.iter().map(String::as_str));
        let output = hosts.controller(&words).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        for (host, made) in found["hosts"].as_array().unwrap().iter().zip(&hosts.hosts) {
            for offset in ["offset_ns", "wall_offset_ns"] {
                let [low, high] = ["low", "high"].map(|end| host[offset][end].as_i64().unwrap());
                // CLOCK_REALTIME may be slewed during the measurement.
                let slack = if offset == "offset_ns" { 0 } else { 1_000_000 };
                let held = low - slack <= made.shift_ns && made.shift_ns <= high + slack;
                assert!(held, "{} {}: {host:#}", made.name, made.shift_ns);
            }
            estimates += 1;
        }
    }
    assert_eq!(estimates, 16);
    assert_eq!(
        hosts
            .hosts
            .iter()
            .filter(|host| host.way == Way::Ssh)
            .count(),
        4
    );
}
