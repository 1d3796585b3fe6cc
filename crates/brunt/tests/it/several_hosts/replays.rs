//! Traces replayed by several hosts together.

use super::*;

/// A real trace: 4,031 requests from a MySQL server.
fn trace(folder: &Path) -> String {
    let trace = folder.join("mysql.load.gz");
    std::fs::copy(
        support::root().join("testdata/mysql-minutes.load.gz"),
        &trace,
    )
    .unwrap();
    trace.display().to_string()
}

fn replay(folder: &Path, name: &str, hosts: &str, keys: &str) -> (Output, PathBuf) {
    let trace = trace(folder);
    let text = format!(
        "name = \"{name}\"\nrepetitions = 1\n{hosts}\n[targets.t]\nurl = \"null:64GiB\"\n\
         [workloads.w]\ntrace = \"{trace}\"\nspeed = 100\nrecord_requests = true\n{keys}\n"
    );
    run(folder, name, &text)
}

/// The hosts send each request of a trace once, the same requests as a single machine, and their parts are judged as
/// one replay.
#[test]
fn hosts_share_a_trace() {
    let folder = TempDir::new().unwrap();
    let (output, here) = replay(folder.path(), "here", "", "workers = 4");
    let fidelity = |output: &Output, results: &Path| {
        let run = summary(results)["points"][0]["runs"][0].clone();
        assert!(run["replay"].is_object(), "{run:#} {}", output_text(output));
        run["replay"].clone()
    };
    let alone = fidelity(&output, &here);
    let hosts = host_by_ssh(folder.path(), "a", 600_000_000_000)
        + &host_by_ssh(folder.path(), "b", -5_000_000_000);
    let (output, there) = replay(
        folder.path(),
        "there",
        &hosts,
        "workers = 2\nhosts = [\"a\", \"b\"]",
    );
    let shared = fidelity(&output, &there);
    for key in [
        "planned",
        "sent",
        "pieces",
        "completed",
        "digests",
        "forced",
        "speed",
        "timing",
    ] {
        assert_eq!(alone[key], shared[key], "{key}: {shared:#}");
    }
    assert_eq!(
        (&shared["sent"], &shared["digests"]["sent"]),
        (&4031.into(), &shared["digests"]["trace"])
    );
    assert_eq!(shared["unsent"], alone["unsent"]);
    // Clocks are ten minutes apart, and nothing is late by that much; a busy machine may well be late.
    assert!(
        shared["issue_error"]["p50_us"].as_f64().unwrap() < 60e6,
        "{shared:#}"
    );
    let asked = |results: &Path| {
        let recorded = records::recorded(results).into_iter();
        let mut asked: Vec<_> = recorded
            .map(|((_, index, op, offset, len), _)| (index, op, offset, len))
            .collect();
        asked.sort_unstable();
        asked
    };
    assert_eq!(
        asked(&here),
        asked(&there),
        "each once, with its place in the trace"
    );
    let workers: std::collections::BTreeSet<i64> = records::recorded(&there)
        .into_iter()
        .map(|((worker, ..), _)| worker)
        .collect();
    assert!(
        workers.iter().any(|worker| *worker < 2) && workers.iter().any(|worker| *worker >= 2),
        "{workers:?}"
    );
}

/// A trace's devices go to separate targets on hosts as they do on this machine, each request once.
#[test]
fn hosts_replay_on_several_targets() {
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("two.spc");
    // ASU, block, bytes, operation, seconds; addresses up to 300 MiB on each device.
    let rows = (0..600u64).map(|row| {
        let (device, op) = (row % 2, if row % 3 == 0 { 'W' } else { 'R' });
        format!(
            "{device},{},4096,{op},{:.6}\n",
            row * 1024,
            row as f64 / 1e4
        )
    });
    std::fs::write(&trace, rows.collect::<String>()).unwrap();
    let replay = |name: &str, hosts: &str, keys: &str| {
        let text = format!(
            "name = \"{name}\"\nrepetitions = 1\n{hosts}\n[targets.data]\nurl = \"memory:400MiB\"\n\
             [targets.log]\nurl = \"null:64GiB\"\n[workloads.w]\ntrace = \"{}\"\nformat = \"spc\"\n\
             devices = {{ \"0\" = \"data\", \"1\" = \"log\" }}\nrecord_requests = true\n{keys}\n",
            trace.display()
        );
        let (output, results) = run(folder.path(), name, &text);
        let run = summary(&results)["points"][0]["runs"][0].clone();
        assert!(
            run["replay"].is_object(),
            "{run:#} {}",
            output_text(&output)
        );
        let recorded = records::recorded(&results).into_iter();
        let mut asked: Vec<_> = recorded
            .map(|((_, index, op, offset, len), _)| (index, op, offset, len))
            .collect();
        asked.sort_unstable();
        (run["replay"].clone(), asked)
    };
    let (alone, here) = replay("here", "", "workers = 2");
    let hosts =
        host_by_ssh(folder.path(), "a", 60_000_000_000) + &host_by_ssh(folder.path(), "b", 0);
    let (shared, there) = replay("there", &hosts, "hosts = [\"a\", \"b\"]");
    assert_eq!(here, there);
    assert_eq!(
        (&shared["sent"], &shared["digests"]),
        (&600.into(), &alone["digests"])
    );
    for (own, device) in shared["devices"].as_array().unwrap().iter().zip(["0", "1"]) {
        assert_eq!(
            (&own["device"], &own["sent"]),
            (&device.into(), &300.into()),
            "{shared:#}"
        );
    }
    let targets: Vec<&Value> = shared["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| &own["target"])
        .collect();
    assert_eq!(targets, ["data", "log"]);
}

/// A single host replays like this machine, in every timing mode.
#[test]
fn one_host_replays_as_this_machine_does() {
    let folder = TempDir::new().unwrap();
    let host = host_by_ssh(folder.path(), "a", 9_000_000_000);
    let (output, results) = replay(
        folder.path(),
        "depth",
        &host,
        "hosts = [\"a\"]\ntiming = \"dependency\"",
    );
    let run = &summary(&results)["points"][0]["runs"][0];
    let replay = &run["replay"];
    assert_eq!(
        replay["digests"]["sent"],
        replay["digests"]["trace"],
        "{run:#} {}",
        output_text(&output)
    );
    assert_eq!(
        (&replay["sent"], &replay["timing"]),
        (&4031.into(), &"dependency".into())
    );
}

/// A host with a different trace at the same path is rejected before the first run, as is a host that may not open
/// it.
#[test]
fn another_trace_is_refused() {
    let (folder, certificates) = (TempDir::new().unwrap(), certificates());
    let identity = certificates.path().join("agent-127.0.0.1.pem");
    let agent = Listening::start(&identity, &["--allow", "null:"]);
    let host = host_by_agent(certificates.path(), "far", &agent);
    let (output, _) = replay(folder.path(), "refused", &host, "hosts = [\"far\"]");
    let not_allowed = output_text(&output);
    assert!(
        !output.status.success() && not_allowed.contains("may not be opened"),
        "{not_allowed}"
    );
    let trace = trace(folder.path());
    // The same trace except for its last requests.
    let shorter = folder.path().join("shorter.load");
    let unpacked = Command::new("gzip")
        .args(["-dc", &trace])
        .output()
        .unwrap()
        .stdout;
    std::fs::write(&shorter, &unpacked[..unpacked.len() / 2]).unwrap();
    let mount = format!("mount --bind {} {trace}", shorter.display());
    let Some(host) = host_with_mounts(folder.path(), &mount) else {
        return;
    };
    let (output, _) = replay(folder.path(), "other", &host, "hosts = [\"a\"]");
    let other = output_text(&output);
    assert!(
        !output.status.success()
            && other.contains("host a: the trace at this path differs from the one"),
        "{other}"
    );
}
