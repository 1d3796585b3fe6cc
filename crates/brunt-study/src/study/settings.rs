//! The settings of a workload for `--check`: all that differ from the defaults, as keys of the experiment file.

use brunt_load::Workload;
use toml::{Table, Value};

/// The keys and values in which a workload differs from the default one, except those that `swept` axes vary.
pub(super) fn changed_settings(workload: &Workload, swept: &[&str]) -> Vec<String> {
    let keys = |workload: &Workload| {
        let table = Table::try_from(workload).expect("a parsed workload can be serialized");
        let mut keys = Vec::new();
        flatten("", &table, &mut keys);
        keys
    };
    let defaults = keys(&Workload::default());
    let is_swept = |key: &str| swept.iter().any(|axis| setting_of(axis) == key);
    let changed = keys(workload).into_iter();
    changed
        .filter(|(key, value)| !is_swept(key) && !defaults.contains(&(key.clone(), value.clone())))
        .map(|(key, value)| format!("{key} = {value}"))
        .collect()
}

/// The setting that an axis of a sweep varies.
fn setting_of(axis: &str) -> &str {
    match axis {
        "block_size" => "blocks",
        "rate" => "arrival.rate",
        axis => axis,
    }
}

/// Uses dotted keys: `stop.time` rather than a table `stop`.
fn flatten(above: &str, table: &Table, keys: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let key = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match value {
            Value::Table(table) => flatten(&key, table, keys),
            value => keys.push((key, value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;
    use crate::study::describe;

    #[test]
    fn a_plan_has_all_settings_that_differ_from_the_defaults() {
        let text = r#"
name = "complete"
[targets.disk]
url = "null:1GiB"
[workloads.plain]
stop = { requests = 5 }
[workloads.special]
blocks = [{ size = "4KiB", weight = 3.0 }, { size = "64KiB" }]
read = 0.5
distribution = { kind = "zipf", theta = 0.9 }
align = "8KiB"
region = { start = "1MiB" }
queue_depth = 8
burst = { requests = 32, interval = "5ms" }
ramp_up = { time = "2s" }
stop = { time = "10s" }
sync = "dsync"
arrival = { kind = "open", rate = 100.0 }
retry = { count = 2 }
timeout = "30s"
[sweep]
queue_depth = [1, 4]
"#;
        let experiment = Experiment::parse("x.toml", text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let lines = describe(&experiment, &experiment.plan());
        let settings = |name: &str| {
            let head = format!("settings of workload {name}: ");
            let mut lines = lines.iter().filter_map(|line| line.strip_prefix(&head));
            lines.next().expect("the workload's settings").to_string()
        };
        assert!(settings("plain").contains("stop.requests = 5"));
        let special = settings("special");
        for setting in [
            r#"blocks = [{ size = "4KiB", weight = 3.0 }, { size = "64KiB", weight = 1.0 }]"#,
            "read = 0.5",
            r#"distribution.kind = "zipf", distribution.theta = 0.9"#,
            r#"align = "8KiB""#,
            r#"region.start = "1MiB""#,
            "burst.requests = 32",
            r#"burst.interval = "5ms""#,
            r#"ramp_up.time = "2s""#,
            r#"stop.time = "10s""#,
            r#"sync = "dsync""#,
            r#"arrival.kind = "open""#,
            "arrival.rate = 100.0",
            "retry.count = 2",
        ] {
            assert!(special.contains(setting), "{setting}: {special}");
        }
        // Defaults are absent, and so is what the sweep varies.
        for absent in ["timeout", "retry.delay", "trim", "queue_depth"] {
            assert!(!special.contains(absent), "{absent}: {special}");
        }
    }
}
