//! The examples as a new user meets them: each is accepted, says what it would do without a warning, and is
//! listed where people look for it.

use crate::support::{brunt, root, succeed};

/// An experiment that takes longer than this says so in its first lines, in seconds.
const SAYS_SO: f64 = 90.0;

/// `brunt run --check` takes every example; `examples/README.md` has a line for it, and its head the
/// command, with the time where that is long.
#[test]
fn every_example_is_ready_to_run() {
    let folder = root().join("examples");
    let list = std::fs::read_to_string(folder.join("README.md")).expect("the list of examples");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the examples").flatten() {
        let file = entry.path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8")
            .to_string();
        let mut check = brunt();
        check
            .args(["--json", "run", "--check"])
            .arg(&file)
            .args(["--out", "nowhere"]);
        let told = succeed(&mut check, 20);
        let plan: serde_json::Value = serde_json::from_str(&told).expect("one object");
        assert!(
            plan["runs"].as_u64().is_some_and(|runs| runs > 0),
            "{name}: {told}"
        );
        let written = plan["written"].as_array().expect("a list");
        assert!(
            written.is_empty()
                || !written
                    .iter()
                    .any(|target| target[1].as_str().unwrap().starts_with("/dev"))
        );

        assert!(
            list.contains(&format!("`{name}`")),
            "examples/README.md does not name {name}"
        );
        let text = std::fs::read_to_string(&file).expect("an example");
        let head: String = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .collect();
        assert!(
            head.contains(&format!("brunt run examples/{name}")),
            "{name} does not say how to run it"
        );
        let least = plan["time_min_s"].as_f64().expect("seconds");
        assert!(
            least < SAYS_SO || head.contains("minutes"),
            "{name} takes {least} s at least, and does not say so in its head"
        );
        count += 1;
    }
    assert!(count >= 20, "{count} examples only");
}
