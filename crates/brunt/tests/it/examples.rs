//! The examples as a new user sees them: each is accepted, describes without a warning what it would do, and is
//! listed where users look for it.

use crate::support::{brunt, root, succeed};

/// `brunt run --check` accepts every example. `examples/README.md` has a line with the duration of each one; the
/// example's header contains the command but no duration.
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
        let head: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .collect();
        let command = format!("brunt run examples/{name}");
        assert!(
            head.iter().any(|line| line.trim_end().ends_with(&command)),
            "{name} does not say how to run it, or says how long it takes: that is for examples/README.md"
        );
        let line = list
            .lines()
            .find(|line| line.contains(&format!("`{name}`")));
        let takes = line.and_then(|line| line.split('|').nth(4));
        let takes = takes
            .and_then(seconds)
            .unwrap_or_else(|| panic!("{line:?} has no time"));
        let least = plan["time_min_s"].as_f64().expect("seconds");
        assert!(
            takes >= least,
            "{name} takes {least} s at least, not {takes} s"
        );
        count += 1;
    }
    assert!(count >= 20, "{count} examples only");
}

/// Parses a duration in the list, such as `14 s`, `2.5 min`, `2:45 min` or `15 s to a minute` (the longer value
/// counts).
fn seconds(text: &str) -> Option<f64> {
    if text.trim().ends_with("to a minute") {
        return Some(60.0);
    }
    let (number, rest) = text.trim().split_once(' ')?;
    let unit = if rest.starts_with("min") { 60.0 } else { 1.0 };
    match number.split_once(':') {
        Some((minutes, seconds)) => {
            Some(minutes.parse::<f64>().ok()? * unit + seconds.parse::<f64>().ok()?)
        }
        None => Some(number.parse::<f64>().ok()? * unit),
    }
}
