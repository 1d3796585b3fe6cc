//! Concurrent jobs, on several hosts and on this machine.

use super::*;

/// Jobs of one group on overlapping hosts and on this machine: each makes its own requests, all start on one
/// timeline, and each host's share is recorded separately for each job.
#[test]
fn jobs_run_at_once_on_hosts_and_here() {
    let folder = TempDir::new().unwrap();
    let disk = disk(folder.path());
    let hosts = host_by_ssh(folder.path(), "a", 400_000_000_000)
        + &host_by_ssh(folder.path(), "b", -7_000_000_000);
    let text = format!(
        "name = \"at-once\"\nrepetitions = 1\n{hosts}\n[targets.disk]\nurl = \"{disk}\"\n\
         [workloads.reader]\nworkers = 2\nhosts = [\"a\", \"b\"]\nrecord_requests = true\nstop = {{ requests = 1501 }}\n\
         [workloads.writer]\nread = 0\nhosts = [\"b\"]\nstop = {{ requests = 700 }}\n\
         [workloads.here]\nread = 0.5\nstop = {{ requests = 300 }}\n\
         [together.mixed]\njobs = [\n\
         {{ workload = \"reader\", target = \"disk\" }},\n\
         {{ workload = \"writer\", target = \"disk\", start_delay = \"1s\" }},\n\
         {{ workload = \"here\", target = \"disk\" }}]\n"
    );
    let (output, results) = run(folder.path(), "at-once", &text);
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    let point = |label: &str| {
        let points = summary["points"].as_array().unwrap();
        points
            .iter()
            .find(|point| point["label"] == label)
            .unwrap_or_else(|| panic!("{label}: {points:#?}"))
    };
    let made = |run: &Value| {
        let ops = run["ops"].as_array().unwrap();
        ops.iter()
            .map(|op| op["completed"].as_u64().unwrap())
            .sum::<u64>()
    };
    for (label, expected, names) in [
        (
            "disk mixed",
            2501,
            &[
                "mixed/reader on a",
                "mixed/reader on b",
                "mixed/writer on b",
            ][..],
        ),
        ("disk mixed/reader", 1501, &["a", "b"]),
        ("disk mixed/writer", 700, &["b"]),
        ("disk mixed/here", 300, &[]),
    ] {
        let run = &point(label)["runs"][0];
        assert_eq!(made(run), expected, "{label}");
        let hosts = run["hosts"].as_array().cloned().unwrap_or_default();
        let found: Vec<&str> = hosts
            .iter()
            .map(|host| host["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, names, "{label}");
        for host in &hosts {
            // The hosts of each job begin at the job's own start, whatever their clocks show.
            let began = host["began_us"].as_f64().unwrap();
            assert!(
                (-3_000_000.0..5_000_000.0).contains(&began),
                "{label}: {host:#}"
            );
        }
        let measured = run["measured_s"].as_f64().unwrap();
        assert!(measured < 100.0, "{label}: {measured}");
    }
    assert!(
        point("disk mixed")["runs"][0]["measured_s"]
            .as_f64()
            .unwrap()
            >= 1.0,
        "the writer starts later"
    );
    assert_eq!(records::recorded(&results).len(), 1501);
    for name in ["a", "b"] {
        let pids = pids(folder.path(), name);
        assert!(
            !pids.is_empty() && !pids.iter().any(|pid| is_alive(*pid)),
            "agents end with the experiment"
        );
    }
}

/// A host that dies during one job ends all jobs, and each run that lacks the host says so.
#[test]
fn a_host_that_dies_in_a_job_is_marked() {
    let folder = TempDir::new().unwrap();
    let hosts = host_by_ssh(folder.path(), "a", 0) + &host_by_ssh(folder.path(), "b", 0);
    let text = format!(
        "name = \"lost-job\"\nrepetitions = 1\n{hosts}\n[targets.t]\nurl = \"memory:1MiB\"\n\
         [workloads.one]\nhosts = [\"a\"]\nstop = {{ time = \"1h\" }}\ninterval = \"10ms\"\n\
         [workloads.two]\nhosts = [\"b\"]\nstop = {{ time = \"1h\" }}\ninterval = \"10ms\"\n\
         [together.both]\njobs = [{{ workload = \"one\", target = \"t\" }}, {{ workload = \"two\", target = \"t\" }}]\n"
    );
    let killer = killer(folder.path(), "KILL");
    let (output, results) = run(folder.path(), "lost-job", &text);
    killer.join().unwrap();
    let said = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let summary = summary(&results);
    let stopped = |point: usize| {
        summary["points"][point]["runs"][0]["stopped"]
            .as_str()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        [stopped(0), stopped(2)],
        ["host-lost", "host-lost"],
        "all together, and job two: {said}"
    );
    assert_ne!(stopped(1), "host-lost", "job one lost nothing");
    let all = &summary["points"][0]["runs"][0];
    assert!(
        all["doubts"][0].as_str().unwrap().contains("host b"),
        "{all:#}"
    );
    let made = all["ops"][0]["completed"].as_u64().unwrap();
    assert!(made > 0, "what was measured is kept");
}

/// Ring modes are measured on all hosts, and the same mode is chosen for all of them.
#[test]
fn hosts_choose_a_ring_together() {
    let folder = TempDir::new().unwrap();
    let hosts =
        host_by_ssh(folder.path(), "a", 0) + &host_by_ssh(folder.path(), "b", 5_000_000_000);
    let text = format!(
        "name = \"ring\"\nrepetitions = 1\n{hosts}\n[targets.t]\nurl = \"memory:1MiB\"\n\
         [workloads.w]\nring = \"auto\"\nhosts = [\"a\", \"b\"]\nstop = {{ requests = 1000 }}\n"
    );
    let (output, results) = run(folder.path(), "ring", &text);
    assert!(output.status.success(), "{}", output_text(&output));
    let point = &summary(&results)["points"][0];
    let ring = &point["ring"];
    assert_ne!(ring["mode"], "auto");
    let interrupt = &ring["trials"][0];
    assert_eq!(
        (&interrupt["mode"], ring["trials"].as_array().unwrap().len()),
        (&"interrupt".into(), 3)
    );
    assert!(
        interrupt["requests_per_second"].as_f64().unwrap() > 0.0,
        "{ring:#}"
    );
    assert_eq!(point["runs"][0]["ops"][0]["completed"], 1000);
}
