//! The bytes on each link per byte that a load transfers, counted by a run: one copy over one link, or two over two
//! links.

use brunt_lake::read_table;
use brunt_result::tables::transfer;

use super::lab::run_in_lab;
use super::*;

/// A client and two servers, each behind its own link; only the second link has a delay. Every packet on the first
/// link goes through the link's thread, which counts all headers. The links are quiet before and after a load, so a
/// late reading of their counters does little harm.
const TWO_SERVERS: &str = r#"
repetitions = 2
[lab]
worker = "client"
idle = "300ms"
[hosts.client]
[hosts.one]
[hosts.two]
[lab.links.near]
between = ["client", "one"]
carrier = "wire-size"
[lab.links.far]
between = ["two", "client"]
delay = "1ms"
[services.one]
host = "one"
command = ["BRUNT", "target", "--portal", "0.0.0.0:3260", "--lun", "memory:16MiB"]
ready = { port = 3260 }
[services.two]
host = "two"
command = ["BRUNT", "target", "--portal", "0.0.0.0:3260", "--lun", "memory:16MiB"]
ready = { port = 3260 }
[targets.single]
url = "iscsi://10.77.0.2:3260/iqn.2026-11.io.brunt:t0/0"
workloads = ["read"]
[targets.mirror]
url = "array:raid1,[iscsi://10.77.0.2:3260/iqn.2026-11.io.brunt:t0/0],[iscsi://10.77.0.3:3260/iqn.2026-11.io.brunt:t0/0]"
workloads = ["write"]
[workloads.read]
read = 1
blocks = [{ size = "64k" }]
queue_depth = 4
stop = { requests = 4000 }
[workloads.write]
read = 0
blocks = [{ size = "64k" }]
queue_depth = 4
stop = { requests = 4000 }
"#;

/// For a read, data and headers (at an MTU of 1500, 66 bytes for every 1448) come back once; for a write to a mirror,
/// they cross both links. Without load, links carry next to nothing.
#[test]
fn links_carry_what_the_load_moves() {
    let folder = TempDir::new().unwrap();
    let text = TWO_SERVERS.replace("BRUNT", env!("CARGO_BIN_EXE_brunt"));
    let Some((output, results)) = run_in_lab(folder.path(), "transfer", &text) else {
        return;
    };
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("bytes on links, both ways"),
        "{}",
        output_text(&output)
    );
    let summary = summary(&results);
    let point = |workload: &str| {
        let points = summary["points"].as_array().unwrap();
        points
            .iter()
            .find(|point| point["workload"] == workload)
            .unwrap()
    };
    let ratio = |carried: &Value| carried["per_useful_byte"]["mean"].as_f64().unwrap();
    let (reads, writes) = (&point("read")["transfer"], &point("write")["transfer"]);
    // The ratio is about 1.09; if the thread that reads counters has to wait for a processor, the ends of a run are
    // less exact.
    let once = 0.97..1.25;
    assert!(once.contains(&ratio(&reads["links"]["near"])), "{reads:#}");
    assert!(ratio(&reads["links"]["far"]) < 0.01, "{reads:#}");
    assert!(
        once.contains(&ratio(&writes["links"]["near"])),
        "{writes:#}"
    );
    // On this link, which has a delay, a train of segments that bypasses the link's thread counts its headers only
    // once.
    assert!(once.contains(&ratio(&writes["links"]["far"])), "{writes:#}");
    let both = ratio(&writes["links"]["near"]) + ratio(&writes["links"]["far"]);
    assert!((ratio(&writes["all"]) - both).abs() < 1e-9, "{writes:#}");
    assert!(
        (ratio(&writes["delayed"]) - ratio(&writes["links"]["far"])).abs() < 1e-9,
        "{writes:#}"
    );
    let without = writes["all"]["without_idle"]["mean"].as_f64().unwrap();
    assert!(
        without <= ratio(&writes["all"]) && without > 1.9,
        "{writes:#}"
    );
    for run in point("read")["runs"].as_array().unwrap() {
        let (run, near) = (&run["transfer"], &run["transfer"]["links"]["near"]);
        let useful = run["useful_bytes"].as_u64().unwrap();
        // Data comes back; the other direction carries requests and acknowledgements.
        assert!(
            near["back_bytes"].as_u64().unwrap() > useful / 20 * 19,
            "{run:#}"
        );
        assert!(
            near["there_bytes"].as_u64().unwrap() < useful / 4,
            "{run:#}"
        );
        let idle = near["idle_there_bytes_per_second"].as_f64().unwrap();
        assert!(
            idle < useful as f64 / run["seconds"].as_f64().unwrap() / 10.0,
            "{run:#}"
        );
    }
    let mut rows = 0;
    read_table(&results, &transfer::TABLE, |batch| rows += batch.rows()).unwrap();
    // Two points, two runs, two links, two directions.
    assert_eq!(rows, 16);
}

/// Without an idle phase, no idle traffic is subtracted; with a fault, bytes before, during and after it are counted
/// separately.
#[test]
fn phases_of_a_run_count_only_their_own_bytes() {
    let folder = TempDir::new().unwrap();
    let fault = "[[fault]]\nname = \"slow\"\nlink = \"far\"\nset = { delay = \"2ms\" }\nat = \"700ms\"\nfor = \"1s\"\n";
    let text = TWO_SERVERS
        .replace("BRUNT", env!("CARGO_BIN_EXE_brunt"))
        .replace("idle = \"300ms\"\n", "");
    let text = text
        .replace("repetitions = 2", "repetitions = 1")
        .replace("requests = 4000", "time = \"4s\"")
        .replace("queue_depth", "interval = \"100ms\"\nqueue_depth");
    let Some((output, results)) = run_in_lab(folder.path(), "parts", &format!("{text}{fault}"))
    else {
        return;
    };
    assert!(output.status.success(), "{}", output_text(&output));
    let summary = summary(&results);
    for point in summary["points"].as_array().unwrap() {
        let transfer = &point["transfer"];
        assert!(transfer["all"]["without_idle"].is_null(), "{transfer:#}");
        let kinds: Vec<&str> = transfer["phases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|phase| phase["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["before", "during", "after"], "{transfer:#}");
        let run = &point["runs"][0]["transfer"];
        let bytes = |links: &Value| -> u64 {
            let of = |link: &Value| {
                link.as_object()
                    .unwrap()
                    .iter()
                    .filter(|(key, _)| {
                        ["there", "back", "there_bytes", "back_bytes"].contains(&key.as_str())
                    })
                    .map(|(_, bytes)| bytes.as_u64().unwrap())
                    .sum::<u64>()
            };
            links.as_object().unwrap().values().map(of).sum()
        };
        // The phases add up to the whole run, except for bytes after the last interval, which may be long on a busy
        // machine.
        let phases = run["phases"].as_array().unwrap().iter();
        let parts: u64 = phases.clone().map(|phase| bytes(&phase["links"])).sum();
        let covered: f64 = phases
            .map(|phase| phase["end_s"].as_f64().unwrap() - phase["start_s"].as_f64().unwrap())
            .sum();
        let share = parts as f64 / bytes(&run["links"]) as f64;
        let least = covered / run["seconds"].as_f64().unwrap() - 0.2;
        assert!(
            share > least && share < 1.2,
            "{share}, at least {least}: {run:#}"
        );
    }
}
