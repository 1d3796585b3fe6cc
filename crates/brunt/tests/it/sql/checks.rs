//! The expected answer of each analysis, from the report on the same trace, or from its operations if the report
//! doesn't contain it.

use std::collections::BTreeMap;

use serde_json::Value;

/// The query for the operations themselves: a statement too simple for an engine to get wrong.
pub const OPERATIONS: &str = "select operations.operation, operations.request_first_ns, operations.latency_ns, \
                              operations.direction, operations.status, \
                              flows.destination as server, flows.source as client, operations.file \
                              from operations join flows using (flow)";

/// The rows of [`OPERATIONS`].
pub struct Operations(Vec<Value>);

impl Operations {
    pub fn new(rows: Vec<Value>) -> Operations {
        Operations(rows)
    }

    /// The times of the requests, sorted.
    fn times(&self, server: Option<&Value>) -> Vec<u64> {
        let rows = self
            .0
            .iter()
            .filter(|row| server.is_none_or(|server| row["server"] == *server));
        let mut times: Vec<_> = rows.map(|row| number(row, "request_first_ns")).collect();
        times.sort_unstable();
        times
    }

    /// The times of the requests of successful reads and writes.
    fn transfers(&self) -> Vec<u64> {
        let rows = self.0.iter();
        rows.filter(|row| row["direction"].is_u64() && row["status"] == 0)
            .map(|row| number(row, "request_first_ns"))
            .collect()
    }

    /// The latencies of operations with this value in a column, sorted.
    fn latencies(&self, column: &str, value: &Value) -> Vec<u64> {
        let rows = self.0.iter().filter(|row| row[column] == *value);
        let mut latencies: Vec<_> = rows.filter_map(|row| row["latency_ns"].as_u64()).collect();
        latencies.sort_unstable();
        latencies
    }

    /// The number of operations per interval, for intervals that contain any.
    fn stretches(&self, width_ns: u64) -> BTreeMap<u64, u64> {
        let mut stretches = BTreeMap::new();
        self.times(None)
            .iter()
            .for_each(|time| *stretches.entry(time / width_ns).or_default() += 1);
        stretches
    }
}

fn number(row: &Value, name: &str) -> u64 {
    row[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {row}"))
}

fn sum(rows: &[Value], name: &str) -> u64 {
    rows.iter().map(|row| number(row, name)).sum()
}

pub fn array<'v>(value: &'v Value, what: &str) -> &'v [Value] {
    value[what]
        .as_array()
        .unwrap_or_else(|| panic!("{what}: {value}"))
}

/// Asserts that the columns listed in `names` are equal in both; a name may be a path, and may differ in the second.
fn assert_same(row: &Value, reported: &Value, names: &[(&str, &str)]) {
    for (column, path) in names {
        let expected = reported
            .pointer(path)
            .unwrap_or_else(|| panic!("{path}: {reported}"));
        assert_eq!(&row[*column], expected, "{column} of {row}, {reported}");
    }
}

const QUANTILES: [(&str, f64); 4] = [
    ("p50_ns", 50.0),
    ("p90_ns", 90.0),
    ("p99_ns", 99.0),
    ("p999_ns", 99.9),
];

/// Asserts that mean, quantiles and maximum of a row are exactly those of these latencies.
fn assert_exact(row: &Value, latencies: &[u64]) {
    let Some(max) = latencies.last() else {
        assert!(row["p99_ns"].is_null() && row["max_ns"].is_null(), "{row}");
        return;
    };
    let count = latencies.len() as u64;
    for (name, percent) in QUANTILES {
        let exact = latencies[brunt_core::rank(percent, count) as usize - 1];
        assert_eq!(number(row, name), exact, "{name}: {row}");
    }
    let mean = latencies.iter().sum::<u64>() / count;
    assert_eq!(
        (number(row, "mean_ns"), number(row, "max_ns")),
        (mean, *max),
        "{row}"
    );
}

/// Asserts that the report's quantiles differ from the exact ones by no more than its stated error.
fn assert_within_error(row: &Value, latency: &Value) {
    if latency.is_null() {
        return;
    }
    assert_same(
        row,
        latency,
        &[("mean_ns", "/mean_ns"), ("max_ns", "/max_ns")],
    );
    let error = latency["error_percent"].as_f64().expect("a share") / 100.0;
    for (name, _) in QUANTILES {
        let (exact, reported) = (number(row, name), number(latency, name));
        // Below 16 us a bucket may be 1,024 ns wide.
        let off_max = (error * exact as f64).max(512.0);
        assert!(
            exact.abs_diff(reported) as f64 <= off_max,
            "{name}: {row}, {latency}"
        );
    }
}

fn check_mix(rows: &[Value], report: &Value, operations: &Operations) {
    let reported = array(report, "by_operation");
    assert_eq!(rows.len(), reported.len());
    for expected in reported {
        let row = rows
            .iter()
            .find(|row| row["operation"] == expected["name"])
            .expect("the operation");
        let counts = ["calls", "replies", "errors", "bytes"].map(|name| (name, format!("/{name}")));
        let counts = counts.iter().map(|(name, path)| (*name, path.as_str()));
        assert_same(row, expected, &counts.collect::<Vec<_>>());
        assert_exact(row, &operations.latencies("operation", &expected["name"]));
        assert_within_error(row, &expected["latency"]);
    }
}

fn check_clients(rows: &[Value], report: &Value, operations: &Operations) {
    assert_eq!(report["clients"]["count"], rows.len());
    for expected in array(&report["clients"], "top") {
        let row = rows
            .iter()
            .find(|row| row["client"] == expected["name"])
            .expect("the client");
        let sums = [
            ("operations", "/operations"),
            ("bytes", "/bytes"),
            ("time_ns", "/time_ns"),
        ];
        assert_same(row, expected, &sums);
        assert_exact(row, &operations.latencies("client", &expected["name"]));
        assert_within_error(row, &expected["latency"]);
    }
    let mut misaligned: Vec<_> = rows.iter().filter(|row| row["misaligned"] != 0).collect();
    misaligned.sort_by_key(|row| std::cmp::Reverse(row["misaligned"].as_u64()));
    let reported = array(report, "misaligned");
    assert_eq!(reported.len(), misaligned.len().min(25));
    for (row, expected) in misaligned.iter().zip(reported) {
        assert_same(row, expected, &[("misaligned", "/misaligned")]);
    }
}

/// The loads in a ranking, without the names of its entries.
fn loads(rows: &[Value]) -> Vec<Vec<u64>> {
    let of = |row: &Value| {
        ["operations", "bytes", "time_ns"]
            .map(|name| number(row, name))
            .to_vec()
    };
    let mut loads: Vec<_> = rows.iter().map(of).collect();
    loads.sort_unstable();
    loads
}

fn check_ranking(which: &str, rows: &[Value], report: &Value, operations: &Operations) {
    let top = array(&report[which], "top");
    let (found, reported) = (loads(rows), loads(top));
    assert_eq!(found, reported, "{which}");
    if which != "files" {
        return;
    }
    for row in rows {
        assert_exact(row, &operations.latencies("file", &row["file"]));
    }
    // The top entries by operations are in the same order; a name is the last part of the path.
    for (row, expected) in rows.iter().zip(top).take(5) {
        assert_eq!(row["operations"], expected["operations"]);
        if let (Some(name), Some(path)) = (row["name"].as_str(), expected["name"].as_str()) {
            assert!(
                path.ends_with(name.trim_start_matches('/')),
                "{name}, {path}"
            );
        }
    }
}

fn check_concentration(rows: &[Value], report: &Value) {
    for what in ["clients", "files", "pairs"] {
        let Some(row) = rows.iter().find(|row| row["what"] == what) else {
            assert_eq!(report[what]["count"], 0, "{what}");
            continue;
        };
        let names =
            ["top25_operations_share", "top25_bytes_share"].map(|name| (name, format!("/{name}")));
        let mut names: Vec<_> = names
            .iter()
            .map(|(name, path)| (*name, path.as_str()))
            .collect();
        names.push(("entries", "/count"));
        assert_same(row, &report[what], &names);
    }
}

fn check_rates(rows: &[Value], report: &Value) {
    let reported = array(report, "intervals");
    assert_eq!(rows.len(), reported.len());
    let start = report["start_ns"].as_i64().expect("a time");
    for (row, expected) in rows.iter().zip(reported) {
        let names = [
            "operations",
            "wire_bytes",
            "read_bytes",
            "write_bytes",
            "errors",
        ];
        names.iter().for_each(|name| {
            assert_eq!(row[*name], expected[*name], "{name} of {row}, {expected}")
        });
        let (from, until) = (
            row["from_ns"].as_i64().expect("a time"),
            row["until_ns"].as_i64().expect("a time"),
        );
        assert_eq!((from - start) as f64 / 1e9, expected["from_s"], "{row}");
        assert_eq!((until - from) as f64 / 1e9, expected["width_s"], "{row}");
    }
}

fn check_profile(rows: &[Value], report: &Value) {
    let (row, profile) = (&rows[0], &report["profile"]);
    let mut names = vec![
        ("operations".to_string(), "/operations".to_string()),
        (
            "metadata_operations".into(),
            "/profile/metadata_operations".into(),
        ),
    ];
    for way in ["read", "write"] {
        for name in ["operations", "bytes", "size_p50_bytes", "size_p95_bytes"] {
            names.push((format!("{way}_{name}"), format!("/profile/{way}/{name}")));
        }
        let (sequential, all) = (
            row[format!("{way}_sequential")].as_f64(),
            row[format!("{way}_operations")].as_f64(),
        );
        let (sequential, all) = (sequential.expect("a count"), all.expect("a count"));
        // Without transfers, there is neither a share nor a size.
        let share = (all > 0.0).then(|| sequential / all);
        assert_eq!(share, profile[way]["sequential_share"].as_f64(), "{row}");
        assert_eq!(row[format!("{way}_size_p50_bytes")].is_null(), all == 0.0);
    }
    let names: Vec<_> = names
        .iter()
        .map(|(name, path)| (name.as_str(), path.as_str()))
        .collect();
    assert_same(row, report, &names);
    assert_eq!(row["outstanding_max"], profile["outstanding_max"]);
    match profile["outstanding_mean"].as_f64() {
        Some(mean) => assert_nearly(&row["outstanding_mean"], mean, "outstanding_mean"),
        None => assert!(row["outstanding_mean"].is_null(), "{row}"),
    }
}

/// Asserts that the report's estimate is off by at most a few times its stated standard error.
fn assert_close(exact: &Value, profile: &Value, name: &str) {
    let number = |of: &Value| of.as_f64().expect("a number");
    let (exact, estimated) = (number(exact), number(&profile[name]));
    let error = number(&profile["working_set_error_percent"]) / 100.0;
    assert!(
        (exact - estimated).abs() <= 4.0 * error * exact.max(estimated),
        "{name}: {exact}, {estimated}"
    );
}

fn check_working_set(rows: &[Value], report: &Value) {
    for name in ["working_set_bytes", "random_read_working_set_bytes"] {
        assert_close(&rows[0][name], &report["profile"], name);
    }
}

fn check_duplicates(rows: &[Value], report: &Value) {
    let duplicates = &report["duplicates"];
    for name in ["blocks_read", "blocks_written", "zero_share"] {
        assert_eq!(rows[0][name], duplicates[name], "{name}");
    }
    let share = |of: &Value| of["duplicate_share"].as_f64();
    match (share(&rows[0]), share(duplicates)) {
        (Some(exact), Some(estimated)) => {
            let error = float(duplicates, "/duplicate_share_error");
            let off = (exact - estimated).abs();
            assert!(off <= 4.0 * error, "{} {duplicates}", rows[0]);
        }
        // Without blocks there is nothing to estimate.
        (exact, estimated) => {
            assert_eq!((exact, estimated), (None, None), "{duplicates}");
            assert_eq!(rows[0]["different_blocks"], 0);
        }
    }
}

fn check_sizes(rows: &[Value], report: &Value) {
    for way in ["read", "write"] {
        let (mut transfers, mut bytes) = (0, 0);
        for row in rows.iter().filter(|row| row["direction"] == way) {
            transfers += row["transfers"].as_u64().expect("a count");
            bytes += row["bytes"].as_u64().expect("bytes");
        }
        assert_eq!(report["profile"][way]["operations"], transfers);
        assert_eq!(report["profile"][way]["bytes"], bytes);
    }
}

/// Each quantile equals that of the operations, within the allowed error.
fn check_latency_over_time(rows: &[Value], operations: &Operations) {
    let mut latencies: BTreeMap<(u64, String), Vec<u64>> = BTreeMap::new();
    for row in operations
        .0
        .iter()
        .filter(|row| !row["latency_ns"].is_null())
    {
        let procedure = row["operation"].as_str().expect("a name").to_string();
        let second = number(row, "request_first_ns") / 1_000_000_000;
        latencies
            .entry((second, procedure))
            .or_default()
            .push(number(row, "latency_ns"));
    }
    assert_eq!(rows.len(), latencies.len());
    for row in rows {
        let procedure = row["procedure"].as_str().expect("a name").to_string();
        let of = latencies
            .get_mut(&(number(row, "second"), procedure))
            .expect("operations");
        of.sort_unstable();
        assert_eq!(number(row, "replies"), of.len() as u64);
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
            let exact = of[brunt_core::rank(100.0 * share, of.len() as u64) as usize - 1];
            let off = exact.abs_diff(number(row, &format!("{name}_ns")));
            assert!(
                off <= number(row, &format!("{name}_error_ns")),
                "{name}: {exact}, {row}"
            );
        }
    }
}

/// Asserts that values are equal except for the last digits, because the report calculates in seconds.
fn assert_nearly(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: {found}"));
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
        "{what}: {found}, {expected}"
    );
}

fn float(row: &Value, path: &str) -> f64 {
    row.pointer(path)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("{path}: {row}"))
}

fn check_summary(rows: &[Value], report: &Value) {
    let same = ["start_ns", "operations", "valid"].map(|name| (name, format!("/{name}")));
    assert_same(
        &rows[0],
        report,
        &same.each_ref().map(|(name, path)| (*name, path.as_str())),
    );
    assert_eq!(
        number(&rows[0], "duration_ns") as f64 / 1e9,
        float(report, "/duration_s")
    );
    for name in ["operations_per_s", "wire_gbit_per_s"] {
        assert_nearly(&rows[0][name], float(report, &format!("/{name}")), name);
    }
}

/// The shares and mean sizes of the profile for sizing tools, derived from a report.
pub fn reported_sizer(report: &Value) -> [(&'static str, Option<f64>); 6] {
    let profile = &report["profile"];
    let count = |way: &str| float(profile, &format!("/{way}/operations"));
    let transfers = count("read") + count("write");
    let sequential = |way: &str| {
        let share = profile[way]["sequential_share"].as_f64().unwrap_or(0.0);
        (transfers > 0.0).then(|| share * count(way) / transfers)
    };
    let random = |way: &str| sequential(way).map(|share| count(way) / transfers - share);
    let bytes = |way: &str| {
        let bytes = float(profile, &format!("/{way}/bytes"));
        (count(way) > 0.0).then(|| bytes / count(way))
    };
    [
        ("sequential_read", sequential("read")),
        ("sequential_write", sequential("write")),
        ("random_read", random("read")),
        ("random_write", random("write")),
        ("read_bytes", bytes("read")),
        ("write_bytes", bytes("write")),
    ]
}

fn check_sizer(rows: &[Value], report: &Value, operations: &Operations) {
    let (row, profile) = (&rows[0], &report["profile"]);
    for (name, expected) in reported_sizer(report) {
        match expected {
            Some(expected) => assert_nearly(&row[name], expected, name),
            None => assert!(row[name].is_null(), "{name}: {row}"),
        }
    }
    let all = float(report, "/operations");
    assert_nearly(
        &row["metadata"],
        float(profile, "/metadata_operations") / all,
        "metadata",
    );
    let mut times = operations.transfers();
    times.sort_unstable();
    let span_s = times.last().map_or(0, |last| last - times[0]) as f64 / 1e9;
    assert_nearly(
        &row["mean_per_s"],
        times.len() as f64 / span_s,
        "mean_per_s",
    );
    let mut seconds = BTreeMap::new();
    for at in &times {
        *seconds.entry(at / 1_000_000_000).or_insert(0_u64) += 1;
    }
    let peak = seconds.into_values().max();
    assert_eq!(Some(number(row, "peak_per_s")), peak);
    assert_nearly(
        &row["operations_per_s"],
        float(report, "/operations_per_s"),
        "operations_per_s",
    );
    assert_eq!(
        number(row, "operations_peak_per_s"),
        *operations
            .stretches(1_000_000_000)
            .values()
            .max()
            .expect("a second")
    );
    let name = "random_read_working_set_bytes";
    assert_close(&row[name], profile, name);
}

/// Sizes and order of servers are as in the report, and their working sets agree within the report's error.
fn check_servers(rows: &[Value], report: &Value) {
    let reported = array(report, "servers");
    assert_eq!(rows.len(), reported.len(), "{rows:?} {reported:?}");
    for (row, expected) in rows.iter().zip(reported) {
        for (name, value) in expected.as_object().expect("an object") {
            match (name.as_str(), value.as_f64()) {
                ("random_read_working_set_bytes", _) => {
                    let exact = float(row, &format!("/{name}"));
                    let allowed = 4.0 * 0.008 * exact + 4096.0;
                    assert!(
                        (float(expected, &format!("/{name}")) - exact).abs() <= allowed,
                        "{row}"
                    );
                }
                // Some versions of DuckDB read times in microseconds.
                ("mean_per_s", Some(mean)) => {
                    let found = float(row, "/mean_per_s");
                    assert!((found / mean - 1.0).abs() < 2e-3, "{row} {expected}");
                }
                (_, Some(number)) => assert_nearly(&row[name], number, name),
                _ => assert_eq!(row[name], *value, "{name}: {row}"),
            }
        }
    }
}

fn check_alignment(rows: &[Value], report: &Value) {
    for way in ["read", "write"] {
        let of: Vec<Value> = rows
            .iter()
            .filter(|row| row["direction"] == way)
            .cloned()
            .collect();
        assert_eq!(report["profile"][way]["operations"], sum(&of, "transfers"));
        assert_eq!(report["profile"][way]["bytes"], sum(&of, "bytes"));
        assert!(
            of.iter()
                .all(|row| number(row, "whole") <= number(row, "transfers"))
        );
    }
    // The report contains the first 25 clients, and no trace here has more.
    let misaligned: Vec<Value> = rows
        .iter()
        .filter(|row| number(row, "aligned_bytes") < 4096)
        .cloned()
        .collect();
    assert_eq!(
        sum(&misaligned, "transfers"),
        sum(array(report, "misaligned"), "misaligned")
    );
}

fn check_arrivals(rows: &[Value], operations: &Operations) {
    assert_eq!(rows.len(), 5);
    for row in rows {
        let stretches = operations.stretches(number(row, "width_ns"));
        let (first, last) = (stretches.first_key_value(), stretches.last_key_value());
        let count = last.expect("a stretch").0 - first.expect("a stretch").0 + 1;
        assert_eq!(
            (number(row, "stretches"), number(row, "busiest")),
            (count, *stretches.values().max().unwrap())
        );
        let requests: u64 = stretches.values().sum();
        assert_eq!(number(row, "requests"), requests);
        let mean = requests as f64 / count as f64;
        let empty = (count - stretches.len() as u64) as f64 * mean * mean;
        let squares: f64 = stretches.values().map(|n| (*n as f64 - mean).powi(2)).sum();
        let dispersion = (squares + empty) / count as f64 / mean;
        assert!(
            (float(row, "/dispersion") - dispersion).abs() <= 1e-9 * mean.max(dispersion),
            "{row}"
        );
    }
}

fn check_gaps(rows: &[Value], operations: &Operations) {
    let mut expected: BTreeMap<(String, u64), (u64, u64)> = BTreeMap::new();
    let mut servers: Vec<&Value> = operations.0.iter().map(|row| &row["server"]).collect();
    servers.sort_by_key(|server| server.to_string());
    servers.dedup();
    for server in servers {
        for pair in operations.times(Some(server)).windows(2) {
            let gap = pair[1] - pair[0];
            let counted = expected
                .entry((server.to_string(), gap.max(1).next_power_of_two()))
                .or_default();
            *counted = (counted.0 + 1, counted.1 + gap);
        }
    }
    let found = rows.iter().map(|row| {
        let counted = (number(row, "gaps"), number(row, "sum_ns"));
        (
            (row["server"].to_string(), number(row, "up_to_ns")),
            counted,
        )
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
}

/// One capture here contains compounds; the number of their operations comes from tshark.
fn check_compound_operations(rows: &[Value], report: &Value) {
    let has_compounds = array(report, "by_operation")
        .iter()
        .any(|row| row["name"] == "EXCHANGE_ID");
    let truth = include_str!("../../../../../testdata/nfs4-small.truth.tsv")
        .lines()
        .skip(1);
    let truth = truth.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let counts = [fields[2], fields[3]].map(|count| count.parse::<u64>().expect("a count"));
        (fields[1].to_string(), counts)
    });
    let truth: BTreeMap<_, _> = truth.filter(|_| has_compounds).collect();
    let found = rows.iter().map(|row| {
        let name = row["operation"].as_str().expect("a name").to_string();
        (name, [number(row, "calls"), number(row, "replies")])
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), truth);
}

fn check_scsi(rows: &[Value], report: &Value) {
    let mut counted = 0;
    for expected in array(report, "by_operation") {
        let of: Vec<Value> = rows
            .iter()
            .filter(|row| row["operation"] == expected["name"])
            .cloned()
            .collect();
        let name = expected["name"].as_str().expect("a name");
        assert!(!of.is_empty() || !name.starts_with("SCSI"), "{name}");
        if of.is_empty() {
            continue;
        }
        for (ours, theirs) in [
            ("commands", "calls"),
            ("replies", "replies"),
            ("errors", "errors"),
        ] {
            assert_eq!(expected[theirs], sum(&of, ours), "{ours} of {name}");
        }
        counted += of.len();
        // If the initiator expects a different length, the report's bytes are those of the command, not those
        // transferred.
        let ours = match name {
            "SCSI READ" => "in_bytes",
            "SCSI WRITE" => "out_bytes",
            _ => continue,
        };
        if sum(&of, "residuals") + sum(&of, "errors") == 0 {
            assert_eq!(expected["bytes"], sum(&of, ours), "{name}");
        }
    }
    assert_eq!(counted, rows.len());
    assert!(sum(rows, "aborted") <= number(&report["ledger"], "calls_aborted"));
}

fn check_errors(rows: &[Value], report: &Value) {
    for expected in array(report, "by_operation") {
        let of = rows
            .iter()
            .filter(|row| row["operation"] == expected["name"]);
        assert_eq!(
            expected["errors"],
            of.filter_map(|row| row["errors"].as_u64()).sum::<u64>(),
            "{expected}"
        );
    }
    // Entries with the same number of errors may be in a different order, so compare sorted rows.
    let sorted = |rows: &[Value]| {
        let mut rows = rows.to_vec();
        let key =
            |row: &Value| ["operation", "protocol", "status"].map(|name| row[name].to_string());
        rows.sort_by_cached_key(key);
        rows
    };
    let reported = serde_json::json!({ "errors": sorted(array(report, "errors")) });
    check_section("errors", &sorted(rows), &reported);
    for storm in array(report, "findings")
        .iter()
        .filter(|finding| finding["kind"] == "error-storm")
    {
        let text = storm["text"].as_str().expect("a text");
        let repeats_last_written = |row: &Value| {
            let named = format!(
                "{} {}s that failed",
                row["errors"],
                row["operation"].as_str().unwrap_or_default()
            );
            let first = row["first_client"].as_str().unwrap_or_default();
            text.contains(&named)
                && text.contains(&format!("{first} alone had {}", row["first_client_errors"]))
        };
        assert!(rows.iter().any(repeats_last_written), "{text}");
    }
}

/// The answer has the same rows as the analysis's section in the report: equal in each column that both have, and
/// they have some in common.
fn check_section(name: &str, rows: &[Value], report: &Value) {
    let reported = array(report, name);
    assert_eq!(rows.len(), reported.len(), "{name}: {rows:?} {reported:?}");
    for (row, expected) in rows.iter().zip(reported) {
        let columns = row.as_object().expect("an object");
        let shared: Vec<_> = columns
            .iter()
            .filter(|(column, _)| expected.get(column).is_some())
            .collect();
        assert!(!shared.is_empty(), "{name}: {row}, {expected}");
        for (column, value) in shared {
            assert_eq!(*value, expected[column], "{column} of {name}: {row}");
        }
    }
}

fn check_findings(rows: &[Value], report: &Value) {
    let reported = array(report, "findings");
    let kinds = |of: &[Value]| {
        of.iter()
            .map(|finding| finding["kind"].to_string())
            .collect::<Vec<_>>()
    };
    let sorted = |mut kinds: Vec<String>| {
        kinds.sort();
        kinds
    };
    assert_eq!(
        sorted(kinds(rows)),
        sorted(kinds(reported)),
        "{rows:?} {reported:?}"
    );
    // Sentences with figures must contain these figures.
    for row in rows {
        let figures = match row["kind"].as_str().expect("a kind") {
            "capture-loss" | "capture-incomplete" | "not-understood" => {
                format!("{} of {}", row["part"], row["whole"])
            }
            "commits" => format!(
                "{} {}s follow {} ",
                row["part"],
                row["what"].as_str().unwrap_or_default(),
                row["whole"]
            ),
            "misaligned" => format!("% of {} READs and WRITEs", row["whole"]),
            "error-storm" => format!("issued {} ", row["part"]),
            _ => continue,
        };
        let told = |finding: &Value| {
            finding["text"]
                .as_str()
                .is_some_and(|text| text.contains(&figures))
        };
        assert!(reported.iter().any(told), "{figures}: {reported:?}");
    }
}

fn check_not_understood(rows: &[Value], report: &Value) {
    let reported = array(report, "not_understood");
    assert_eq!(rows.len(), reported.len());
    for expected in reported {
        let name = expected["name"].as_str().expect("a name");
        let is_it = |row: &&Value| name.starts_with(row["name"].as_str().expect("a name"));
        let row = rows.iter().find(is_it).expect("the protocol");
        assert_same(
            row,
            expected,
            &[("packets", "/packets"), ("bytes", "/bytes")],
        );
    }
}

fn check_ledger(rows: &[Value], report: &Value) {
    let ledger = report["ledger"].as_object().expect("counters");
    ledger
        .iter()
        .for_each(|(name, count)| assert_eq!(&rows[0][name], count, "{name}"));
    assert!(ledger.len() > 40);
}

/// Checks the answer of one analysis.
pub fn check(name: &str, rows: &[Value], report: &Value, operations: &Operations) {
    match name {
        "summary" => check_summary(rows, report),
        "mix" => check_mix(rows, report, operations),
        "rates" => check_rates(rows, report),
        "profile" => check_profile(rows, report),
        "sizes" => check_sizes(rows, report),
        "alignment" => check_alignment(rows, report),
        "sizer" => check_sizer(rows, report, operations),
        "servers" => check_servers(rows, report),
        "working_set" => check_working_set(rows, report),
        "duplicates" => check_duplicates(rows, report),
        "latency_over_time" => check_latency_over_time(rows, operations),
        "arrivals" => check_arrivals(rows, operations),
        "gaps" => check_gaps(rows, operations),
        "files" | "directories" | "pairs" => check_ranking(name, rows, report, operations),
        "clients" => check_clients(rows, report, operations),
        "concentration" => check_concentration(rows, report),
        "compound_operations" => check_compound_operations(rows, report),
        "scsi" => check_scsi(rows, report),
        "errors" => check_errors(rows, report),
        "findings" => check_findings(rows, report),
        "not_understood" => check_not_understood(rows, report),
        "ledger" => check_ledger(rows, report),
        name => check_section(name, rows, report),
    }
}
