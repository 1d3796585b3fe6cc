//! Ready-made workloads (`include = "brunt:NAME"`) issue the requests that their descriptions promise.

use serde_json::Value;

use crate::support::{TempDir, experiment, succeed};

/// Runs an experiment, and returns its points.
fn points(folder: &TempDir, text: &str) -> Vec<Value> {
    let told = succeed(&mut experiment(folder, text), 60);
    let summary: Value = serde_json::from_str(&told).expect("one object");
    summary["points"].as_array().expect("points").clone()
}

/// Each job has the right request rate and kinds of requests; both follow from splitting a Poisson process.
#[test]
fn spc_1_sends_each_streams_share_of_the_requests() {
    let folder = TempDir::new("spc-1");
    let points = points(
        &folder,
        "name = \"x\"\nrepetitions = 1\ninclude = { file = \"brunt:spc-1\", with = { asu1 = \"a\", asu2 = \"b\", \
         asu3 = \"c\", iops = 4000, time = \"2s\", ramp_up = \"100ms\" } }\n[targets]\n\
         a = { url = \"null:1GiB\" }\nb = { url = \"null:1GiB\" }\nc = { url = \"null:1GiB\" }\n",
    );
    for (stream, share) in [
        ("asu1-1-random", 0.035),
        ("asu1-2-hot-spot", 0.281),
        ("asu1-3-sequential-read", 0.07),
        ("asu1-4-hot-spot", 0.21),
        ("asu2-1-random", 0.018),
        ("asu2-2-hot-spot", 0.07),
        ("asu2-3-sequential-read", 0.035),
        ("asu3-sequential-write", 0.281),
    ] {
        let point = points
            .iter()
            .find(|point| {
                point["label"]
                    .as_str()
                    .is_some_and(|label| label.contains(stream))
            })
            .unwrap_or_else(|| panic!("no point for {stream}"));
        // All requests that were due in the two seconds, even if a busy machine completed some of them later.
        let count = ["read", "write"]
            .into_iter()
            .flat_map(|kind| completed(point, kind))
            .sum::<u64>() as f64;
        let expected: f64 = 2.0 * 4000.0 * share;
        // Five standard deviations of a Poisson count.
        let error = 5.0 * expected.sqrt();
        assert!(
            (count - expected).abs() < error,
            "{stream}: {count}, {expected} expected"
        );
    }
}

/// Requests of each kind that the runs of a point completed; none failed.
fn completed<'a>(point: &'a Value, kind: &'a str) -> impl Iterator<Item = u64> + 'a {
    let runs = point["runs"].as_array().expect("runs").iter();
    runs.map(move |run| {
        assert!(
            run["causes"].as_array().is_none_or(Vec::is_empty),
            "{run:#}"
        );
        let ops = run["ops"].as_array().expect("operations").iter();
        ops.filter(|op| op["op"] == kind)
            .map(|op| op["completed"].as_u64().expect("a count"))
            .sum::<u64>()
    })
}

/// PostMark's counts: each transaction creates or removes a file, and reads a file or appends to it unless the file
/// has the maximum size; by default, half of each.
#[test]
fn postmark_makes_each_transactions_requests_and_leaves_nothing() {
    let (folder, place) = (TempDir::new("postmark"), TempDir::new("postmark-place"));
    let text = format!(
        "name = \"x\"\nrepetitions = 2\nseed = 3\ninclude = {{ file = \"brunt:postmark\", with = {{ directory = \"{}\", \
         files = 200, transactions = 1000, workers = 2 }} }}\n",
        place.join("").display()
    );
    let points = points(&folder, &text);
    let point = |phase: &str| {
        let found = points.iter().find(|point| point["workload"] == phase);
        found.unwrap_or_else(|| panic!("no phase {phase}"))
    };
    let counts = |phase, kind| completed(point(phase), kind).collect::<Vec<u64>>();
    assert_eq!(counts("file-creation", "create"), [400, 400]);
    assert_eq!(counts("file-removal", "remove"), [400, 400]);
    let [create, write, read, remove] =
        ["create", "write", "read", "remove"].map(|kind| counts("transactions", kind));
    for run in 0..2 {
        assert_eq!(create[run] + remove[run], 2000, "run {run}");
        let appended = write[run] - create[run];
        // Few files reach the maximum size within 1000 transactions on 200 files.
        assert!(
            (1800..=2000).contains(&(read[run] + appended)),
            "run {run}: {} read, {appended} appended",
            read[run]
        );
        // Five standard deviations of 2000 tosses of a fair coin are 112.
        for (what, count) in [("created", create[run]), ("read", read[run])] {
            assert!((888..=1112).contains(&count), "run {run}: {count} {what}");
        }
    }
    assert_ne!(read[0], read[1], "each run has its own choices");
    let left = std::fs::read_dir(place.join("")).expect("a folder").count();
    assert_eq!(left, 0);
}
