//! `brunt trace info` as a user has it: figures, damaged rows, and files that are no traces.

use std::process::{Command, Output};

fn info(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt"));
    command.args(["--json", "trace", "info"]).args(arguments).output().expect("the program runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Thirty reads that follow each other, a write, and a row that is damaged.
#[test]
fn figures_of_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.spc");
    let mut text = String::new();
    for row in 0..30 {
        text += &format!("0,{},4096,R,{row}.25\n", row * 8);
    }
    text += "1,0,8192,w,40.25\n";
    let damaged = text + "0,0,512,X,41\n";
    std::fs::write(&path, damaged).expect("a file");
    let name = path.to_str().expect("a plain path");
    let answer = info(&[name]);
    assert!(answer.status.success(), "{answer:?}");
    let found = json(&answer);
    assert_eq!(
        (&found["format"], &found["requests"], &found["damaged"]),
        (&"spc".into(), &31.into(), &1.into())
    );
    assert_eq!((&found["damaged_first"], &found["devices"]), (&32.into(), &2.into()));
    assert_eq!(
        (&found["ops"]["read"]["bytes"], &found["ops"]["write"]["requests"]),
        (&122_880.into(), &1.into())
    );
    assert_eq!((found["span_s"].as_f64(), &found["rate"]["peak_per_s"]), (Some(40.0), &1.into()));
    assert!(found["sequential_share"].as_f64().is_some_and(|share| (share - 29.0 / 31.0).abs() < 1e-9));
    let strict = info(&[name, "--strict"]);
    assert_eq!(strict.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&strict.stderr).contains("row 32 cannot be read as spc"), "{strict:?}");
    let stated = info(&[name, "--format", "msr"]);
    assert_eq!(json(&stated)["requests"], 0);
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    std::fs::write(&path, "this is no trace\n").expect("a file");
    let answer = info(&[path.to_str().expect("a plain path")]);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no block trace") && said.contains("--format; there are blkreplay, vscsi1"),
        "{said}"
    );
    assert_eq!(info(&["/nowhere/at/all"]).status.code(), Some(2));
}
