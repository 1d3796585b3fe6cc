//! Ready-made workloads (`include = "brunt:NAME"`) issue the requests that their descriptions state.

use serde_json::Value;

use crate::support::{TempDir, experiment, succeed};

/// Runs an experiment on null devices, and returns its points.
fn points(folder: &TempDir, text: &str) -> Vec<Value> {
    let told = succeed(&mut experiment(folder, text), 60);
    let summary: Value = serde_json::from_str(&told).expect("one object");
    summary["points"].as_array().expect("points").clone()
}

/// Requests per second and kinds of requests of each job; both follow from shares of a Poisson process.
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
        let rate = point["requests_per_second"]["mean"]
            .as_f64()
            .expect("a rate");
        // Five standard deviations of a Poisson count over two seconds.
        let expected: f64 = 4000.0 * share;
        let error = 5.0 * (expected / 2.0).sqrt();
        assert!(
            (rate - expected).abs() < error,
            "{stream}: {rate}, {expected} expected"
        );
    }
}
