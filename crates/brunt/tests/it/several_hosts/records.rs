//! Records of single requests that hosts keep, and blocks that hosts verify.

use brunt_lake::read_table;
use brunt_result::tables::requests;

use super::*;

/// A request: worker, position in the worker's sequence, operation, offset and length. [`recorded`] adds the times at
/// which the request was due, sent and completed.
pub type Asked = (i64, i64, String, i64, i64);

pub fn recorded(results: &Path) -> Vec<(Asked, [i64; 3])> {
    let mut found = Vec::new();
    let damaged = read_table(results, &requests::TABLE, |batch| {
        let ints = |name| batch.ints(name);
        let ops: Vec<&str> = batch.texts("op").collect();
        for (row, op) in ops.iter().enumerate() {
            let asked = (
                ints("worker")[row],
                ints("sequence")[row],
                op.to_string(),
                ints("offset_bytes")[row],
                ints("len_bytes")[row],
            );
            found.push((
                asked,
                ["intended_ns", "sent_ns", "completed_ns"].map(|name| ints(name)[row]),
            ));
        }
    });
    assert_eq!(damaged.unwrap().len(), 0);
    found.sort_unstable();
    found
}

/// Hosts with different clocks leave the same record as one machine with all workers: the same requests, each once,
/// with times on the controller's clock.
#[test]
fn hosts_record_their_requests() {
    let folder = TempDir::new().unwrap();
    let disk = disk(folder.path());
    let record = |name: &str, hosts: &str, workload: &str| {
        let text = format!(
            "name = \"{name}\"\nrepetitions = 1\nseed = 7\n{hosts}\n[targets.disk]\nurl = \"{disk}\"\n\
             [workloads.w]\nrecord_requests = true\nverify = {{}}\nread = 0.5\nsequential = 0.5\nqueue_depth = 4\n\
             stop = {{ requests = 9001 }}\n{workload}\n"
        );
        let (output, results) = run(folder.path(), name, &text);
        assert!(output.status.success(), "{}", output_text(&output));
        let summary = summary(&results);
        let run = &summary["points"][0]["runs"][0];
        assert!(
            run["doubts"].as_array().is_none_or(Vec::is_empty),
            "{run:#}"
        );
        (recorded(&results), run["measured_s"].as_f64().unwrap())
    };
    let (here, _) = record("here", "", "workers = 4");
    let hosts = host_by_ssh(folder.path(), "a", 700_000_000_000)
        + &host_by_ssh(folder.path(), "b", -3_000_000_000);
    let (there, measured_s) = record("there", &hosts, "workers = 2\nhosts = [\"a\", \"b\"]");
    assert_eq!(here.len(), 9001);
    let asked = |of: &[(Asked, [i64; 3])]| {
        of.iter()
            .map(|(asked, _)| asked.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(&here), asked(&there));
    for (asked, [intended, sent, completed]) in there {
        // The clocks of the hosts are known to within a few round trips, which may be slow on a busy machine, and
        // differ from this machine's by at least 3 s.
        let last = ((measured_s + 2.0) * 1e9) as i64;
        assert!(intended <= sent && sent <= completed, "{asked:?}");
        assert!(
            (-2_000_000_000..last).contains(&intended) && completed < last,
            "{asked:?}: {intended} {completed}"
        );
    }
}

/// Hosts detect blocks that differ from what their workers wrote, and the totals include these blocks.
#[test]
fn hosts_verify_what_they_wrote() {
    let folder = TempDir::new().unwrap();
    let hosts = host_by_ssh(folder.path(), "a", 0) + &host_by_ssh(folder.path(), "b", 0);
    // This device discards what is written to it.
    let text = format!(
        "name = \"forgets\"\nrepetitions = 1\n{hosts}\n[targets.null]\nurl = \"null:1MiB\"\n\
         [workloads.w]\nverify = {{}}\nread = 0.5\nhosts = [\"a\", \"b\"]\nstop = {{ requests = 4000 }}\n"
    );
    let (output, results) = run(folder.path(), "forgets", &text);
    let summary = summary(&results);
    let run = &summary["points"][0]["runs"][0];
    assert!(
        run["losses"]["miscompare"].as_u64().unwrap_or(0) > 100,
        "{run:#} {}",
        output_text(&output)
    );
    let error = run["first_error"].as_str().unwrap();
    assert!(error.contains("differs from what was written"), "{error}");
}

/// If a host's disk has no space for the record, its figures are kept, the missing requests are counted, and the
/// experiment reports this.
#[test]
fn a_record_without_room_is_reported() {
    let folder = TempDir::new().unwrap();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = format!("mount -t tmpfs -o size=1m none {}", small.display());
    let setup = format!("{mount}; export TMPDIR={}", small.display());
    let Some(host) = host_with_mounts(folder.path(), &setup) else {
        return;
    };
    let text = format!(
        "name = \"full\"\nrepetitions = 1\n{host}\n[targets.t]\nurl = \"memory:1MiB\"\n\
         [workloads.w]\nrecord_requests = true\nhosts = [\"a\"]\nstop = {{ requests = 5000 }}\n"
    );
    let (output, results) = run(folder.path(), "full", &text);
    let said = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("host a: 5,000 requests missing from the record: less than 64 MiB are free"),
        "{said}"
    );
    let summary = summary(&results);
    let run = &summary["points"][0]["runs"][0];
    assert_eq!(
        (&run["stopped"], &run["ops"][0]["completed"]),
        (&"done".into(), &5000.into()),
        "{run:#}"
    );
    assert_eq!(run["hosts"][0]["requests_lost"]["count"], 5000);
    assert_eq!(recorded(&results).len(), 0);
}
