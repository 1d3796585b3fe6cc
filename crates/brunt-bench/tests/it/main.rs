//! The program `brunt-bench`, called as a user does. The measurements of its subjects are tested where `brunt` is.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brunt-bench"));
    command
        .args(arguments)
        .output()
        .expect("brunt-bench starts")
}

#[test]
fn a_mistake_exits_with_2_and_is_one_object_with_json() {
    let output = bench(&["--json", "capture", "--loss=101"]);
    assert_eq!(output.status.code(), Some(2));
    let found: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(
        found["error"]
            .as_str()
            .is_some_and(|what| what.contains("percent"))
    );
    assert_eq!(bench(&["nothing"]).status.code(), Some(2));
}

#[test]
fn a_subject_prints_its_figures_as_one_object() {
    let output = bench(&["--json", "load", "--only", "null", "--rounds", "2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice::<Value>(&output.stdout).expect("one object");
}
