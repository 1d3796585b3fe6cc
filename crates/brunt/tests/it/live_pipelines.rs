//! Pipelines of captures as users choose them: analyses, CPUs, one parser per ring; also what a bare ring receives
//! from the same wire.

use std::process::Command;

use crate::live::{CAPTURE, count, json, namespace};
use crate::support::{TempDir, brunt, root, run_within, succeed};
use serde_json::{Value, json};

fn analyze(arguments: &[&str]) -> Value {
    let file = root().join("testdata/nfs4-small.pcap.zst");
    let mut command = brunt();
    command.args(["--json", "analyze"]).arg(file);
    json(&succeed(command.args(arguments), 60))
}

/// An analysis that is left out is absent from the report, needs no checksums, and changes nothing else.
#[test]
fn analyses_that_are_left_out_are_absent() {
    let whole = analyze(&[]);
    assert!(whole.get("left_out").is_none() && count(&whole, "blocks_summed") > 0);
    let hot = analyze(&["--analyses", "hot,errors"]);
    assert_eq!(
        hot["left_out"],
        json!(["profile", "duplicates", "not_understood"])
    );
    assert_eq!(count(&hot, "blocks_summed"), 0);
    for name in ["profile", "sizer", "servers", "duplicates"] {
        assert!(
            whole.get(name).is_some() && hot.get(name).is_none(),
            "{name}"
        );
    }
    for name in [
        "by_operation",
        "intervals",
        "files",
        "clients",
        "pairs",
        "errors",
    ] {
        assert_eq!(hot[name], whole[name], "{name}");
    }
    let sizing = analyze(&["--analyses", "profile"]);
    assert!(sizing.get("files").is_none() && sizing.get("clients").is_none());
    for name in ["profile", "sizer", "servers"] {
        assert_eq!(sizing[name], whole[name], "{name}");
    }
    let mut wrong = brunt();
    wrong.args(["analyze", "x.pcap", "--analyses", "hot,cold"]);
    let wrong = run_within(&mut wrong, 60);
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "{told}");
    assert!(
        told.contains("\"cold\"") && told.contains("duplicates"),
        "{told}"
    );
}

/// Analyses can also be left out for a stored trace and for windows, whose tables contain nulls for what is unknown.
#[test]
fn traces_and_windows_are_analysed_in_part() {
    let folder = TempDir::new("pipelines-trace");
    let file = root().join("testdata/nfs4-small.pcap.zst");
    let (trace, reports) = (folder.join("trace"), folder.join("reports"));
    let mut capture = brunt();
    capture.args(["capture", "--analyses", "errors", "--window", "1h", "-r"]);
    capture.arg(file).arg("--out").arg(&trace);
    succeed(capture.arg("--reports").arg(&reports), 60);
    let part = |analyses: &str| {
        let mut command = brunt();
        command.args(["--json", "analyze"]).arg(&trace);
        json(&succeed(command.args(["--analyses", analyses]), 60))
    };
    // A trace contains checksums regardless of the selected analyses.
    assert_eq!(part("duplicates")["duplicates"], analyze(&[])["duplicates"]);
    assert!(part("errors").get("duplicates").is_none());
    let tables = brunt_capture::windows::tables::TABLES;
    let mut windows = 0;
    brunt_lake::read_table(&reports, tables[0], |rows| {
        for row in 0..rows.ints("operations").len() {
            windows += 1;
            assert!(rows.is_null("files", row) && rows.is_null("clients", row));
        }
    })
    .expect("the table of windows");
    assert_eq!(windows, 1);
    let is_empty = |rows: &brunt_lake::Batch| assert!(rows.ints("operations").is_empty());
    brunt_lake::read_table(&reports, tables[5], is_empty).expect("the table of servers");
}

/// Threads run on the configured CPUs, and the report and the trace record these. With a parser for each ring, the
/// results are the same as with one parser.
#[test]
fn threads_run_where_they_were_told_to() {
    let script = format!(
        r#"{CAPTURE}
        cpu=$(sed -n 's/^Cpus_allowed_list:\s*\([0-9]*\).*/\1/p' /proc/self/status)
        kept=$(mktemp -d); trap "rm -rf $kept" EXIT
        at="--ring-cpus $cpu --parser-cpus $cpu --writer-cpus $cpu"
        live v1 $DATA/nfs4-small.pcap.zst $at --rings 2 --parsers ring --out $kept/trace
        echo "$cpu" | sed 's/.*/"&"/'
        for wrong in "--ring-cpus 4000" "--parser-cpus node70" "--writer-cpus x --out $kept/other" \
            "--rings 2 --workers 3 --parsers ring" "--writer-cpus 0"; do
            code=0; timeout 200 "$BRUNT" capture -i v1 $wrong >/dev/null 2>&1 || code=$?; echo $code
        done"#
    );
    let Some(text) = namespace(&script) else {
        return;
    };
    let values: Vec<Value> = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .map(|value| value.expect("JSON"))
        .collect();
    let [live, cpu, refused @ ..] = &values[..] else {
        panic!("{text}")
    };
    assert_eq!(refused, [2, 2, 2, 2, 2], "{text}");
    let used = &live["pipelines"];
    assert_eq!(
        (&used["parsers"], &used["parser_per"], &used["rings"]),
        (&json!(2), &json!("ring"), &json!(2))
    );
    assert_eq!(used["cpus"]["reader"], json!([cpu]), "{used}");
    assert_eq!(used["cpus"]["parsers"], json!([cpu, cpu]), "{used}");
    let writers = used["cpus"]["trace writers"].as_array().expect("writers");
    assert!(
        !writers.is_empty() && writers.iter().all(|at| at == cpu),
        "{used}"
    );
    assert!(used["cpu_s"]["parsers"].as_f64() > Some(0.0), "{used}");
    let file = root().join("testdata/nfs4-small.pcap.zst");
    let whole = succeed(brunt().args(["--json", "analyze"]).arg(file), 60);
    let whole = json(&whole);
    assert_eq!(count(live, "packets_dropped"), 0);
    for name in ["packets", "calls", "calls_answered", "data_bytes", "holes"] {
        assert_eq!(count(live, name), count(&whole, name), "{name}");
    }
}

/// The wire benchmark accounts for every packet and labels what it has not measured; speed doesn't matter here.
#[test]
fn a_wire_is_measured_with_a_bare_ring_and_captures() {
    // A busy machine may send nothing in 50 ms; then repeat with more time.
    let mut measured = Value::Null;
    for time in ["50ms", "1s", "5s"] {
        let script = format!(
            r#""$BENCH" --json capture $DATA/nfs3-small.pcap.zst --wire v0,v1 --quick --for {time} --folder ${{TMPDIR:-/tmp}}"#
        );
        let Some(text) = namespace(&script) else {
            return;
        };
        measured = json(&text);
        let rows = measured["captures"][0]["readers"].as_array();
        let costs = |row: &Value| row["cpu_ns_per_packet"]["reader"].as_f64() > Some(0.0);
        if rows.is_some_and(|rows| rows.iter().all(costs)) {
            break;
        }
    }
    let table = &measured["captures"][0];
    let rows = table["readers"].as_array().expect("rows");
    let named = |name: &str| rows.iter().find(|row| row["reader"] == name);
    let ring = named("packet ring, only counting").expect("a bare ring");
    assert!(ring["cpu_ns_per_packet"]["reader"].as_f64() > Some(0.0));
    for name in ["brunt capture", "brunt capture --out"] {
        let row = named(name).expect(name);
        let costs = &row["cpu_ns_per_packet"];
        for stage in ["reader", "parsers"] {
            assert!(costs[stage].as_f64() > Some(0.0), "{row}");
        }
        assert_eq!(
            costs.get("trace writers").is_some(),
            name.ends_with("--out")
        );
        let arithmetic = row["arithmetic"].as_array().expect("networks");
        let cores = |place: usize| {
            arithmetic[place]["cores"]["parsers"]
                .as_f64()
                .expect("cores")
        };
        assert!((cores(1) / cores(0) - 4.0).abs() < 1e-9, "{row}");
        assert!(row["ratio_to_ring"].is_number() && row["goal_reached"].is_boolean());
    }
    let wrong = Command::new(crate::support::bench_program())
        .args(["capture", "x.pcap", "--wire", "v0"])
        .output();
    assert_eq!(wrong.expect("brunt-bench").status.code(), Some(2));
}
