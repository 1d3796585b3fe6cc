//! Golden texts, malformed texts, and the whole crate against a real kernel.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::Clock;

use super::sampler::Misreadings;
use super::*;
use brunt_result::event::{Sample, SampleValue};

mod figures;
mod kernel;

/// Captured texts, by the file names that probes use.
fn golden(file: &str) -> &'static str {
    match file {
        "/proc/stat" => include_str!("../../testdata/proc/stat"),
        "/proc/meminfo" => include_str!("../../testdata/proc/meminfo"),
        "/proc/vmstat" => include_str!("../../testdata/proc/vmstat"),
        "/proc/diskstats" => include_str!("../../testdata/proc/diskstats"),
        "/proc/pressure/cpu" => include_str!("../../testdata/proc/pressure-cpu"),
        "/proc/pressure/memory" => include_str!("../../testdata/proc/pressure-memory"),
        "/proc/pressure/io" => include_str!("../../testdata/proc/pressure-io"),
        "/sys/fs/cgroup" => include_str!("../../testdata/proc/control-group"),
        "/sys/class/hwmon" => include_str!("../../testdata/proc/hwmon"),
        "{net}/dev" => include_str!("../../testdata/proc/net-dev"),
        "{net}/snmp" => include_str!("../../testdata/proc/net-snmp"),
        "{net}/netstat" => include_str!("../../testdata/proc/net-netstat"),
        "{process}/stat" => include_str!("../../testdata/proc/process-stat"),
        "{process}/task/*/status" => include_str!("../../testdata/proc/process-status"),
        "{process}/task/*/schedstat" => include_str!("../../testdata/proc/process-schedstat"),
        "{process}/cgroup" => include_str!("../../testdata/proc/process-cgroup-cpu-stat"),
        other => panic!("{other} has no captured text in testdata/proc"),
    }
}

/// Returns the figures between two sets of texts, read two seconds apart.
fn between(entry: &Entry, before: &[String], now: &[String]) -> (Vec<SampleValue>, u64) {
    let (values, resets) = steps(entry, &[(before, 2_000_000), (now, 2_000_000)]);
    (values.into_iter().next_back().unwrap(), resets)
}

/// Returns the figures of several sets of texts, each read this many microseconds after the previous one.
fn steps(entry: &Entry, texts: &[(&[String], u64)]) -> (Vec<Vec<SampleValue>>, u64) {
    let (mut reported, mut resets) = (Vec::new(), 0);
    let mut probe = (entry.make)();
    for (texts, micros) in texts {
        let texts: Vec<_> = texts
            .iter()
            .map(|text| Some(Cow::from(text.as_str())))
            .collect();
        let mut values = Vec::new();
        let mut sink = Sink::new(entry.name, "".into(), &mut values, &mut resets);
        probe
            .step(&Texts(&texts), Duration::from_micros(*micros), &mut sink)
            .unwrap();
        reported.push(values);
    }
    (reported, resets)
}

fn texts(entry: &Entry) -> Vec<String> {
    entry
        .files
        .iter()
        .map(|file| golden(file).to_string())
        .collect()
}

/// Returns a golden text with replacements, each of which must match.
fn changed(file: &str, changes: &[(&str, &str)]) -> String {
    changes
        .iter()
        .fold(golden(file).to_string(), |text, (from, to)| {
            assert!(text.contains(from), "{file} lacks {from}");
            text.replacen(from, to, 1)
        })
}

fn find<'a>(values: &'a [SampleValue], instance: &str, metric: &str) -> Option<&'a SampleValue> {
    values
        .iter()
        .find(|value| &*value.instance == instance && value.metric == metric)
}

#[track_caller]
fn check(values: &[SampleValue], instance: &str, metric: &str, expected: f64) {
    let found = find(values, instance, metric).unwrap_or_else(|| panic!("no {instance} {metric}"));
    let error = (found.value - expected).abs();
    assert!(
        error <= 1e-9 * expected.abs().max(1.0),
        "{instance} {metric}: {} not {expected}",
        found.value
    );
}

fn entry_of(name: &str) -> &'static Entry {
    PROBES.iter().find(|entry| entry.name == name).unwrap()
}

/// Every entry in the table is usable: names are unique, help exists, each file has a captured text, and that text
/// yields only declared figures, with zero rates if nothing changed.
#[test]
fn the_table_is_whole() {
    let mut names = std::collections::HashSet::new();
    for entry in PROBES {
        assert!(names.insert(entry.name), "{} appears twice", entry.name);
        assert!(!entry.help.is_empty() && !entry.help.contains('\n') && !entry.files.is_empty());
        let mut metrics = std::collections::HashSet::new();
        for metric in entry.metrics {
            assert!(
                metrics.insert(metric.name) && !metric.help.is_empty(),
                "{}",
                metric.name
            );
            let units = [
                "_per_s",
                "_share",
                "_bytes",
                "_us",
                "_cpus",
                "_tasks",
                "queue_mean",
                "in_flight",
                "threads",
                "celsius",
            ];
            assert!(
                units.iter().any(|unit| metric.name.ends_with(unit)),
                "{} has no unit",
                metric.name
            );
        }
        let (values, resets) = between(entry, &texts(entry), &texts(entry));
        assert_eq!(resets, 0);
        // No CPU time has passed, so there are no shares.
        assert_eq!(values.is_empty(), entry.name == "cpu", "{}", entry.name);
        for value in &values {
            assert!(
                metrics.contains(&*value.metric),
                "{} {} is not declared",
                entry.name,
                value.metric
            );
            assert!(
                !value.metric.ends_with("_per_s") || value.value == 0.0,
                "{value:?}"
            );
            assert!(super::metric(entry.name, &value.metric).is_some());
        }
    }
}

/// Texts that are truncated at any byte, lack any line, or have garbage in place of numbers are either parsed or
/// rejected, without panics, and figures stay finite.
#[test]
fn damaged_kernel_files_never_panic_or_yield_infinite_figures() {
    let nonsense = [
        "",
        "-1",
        "x",
        "18446744073709551616",
        "1e9",
        ":",
        "(",
        "total=",
        "\u{fffd}",
    ];
    for entry in PROBES {
        let whole = texts(entry);
        let try_it = |broken: Vec<String>| {
            let (mut values, mut resets) = (Vec::new(), 0);
            let mut probe = (entry.make)();
            for texts in [&whole, &broken, &whole] {
                let texts: Vec<_> = texts
                    .iter()
                    .map(|text| Some(Cow::from(text.as_str())))
                    .collect();
                let mut sink = Sink::new(entry.name, "".into(), &mut values, &mut resets);
                let _ = probe.step(&Texts(&texts), Duration::from_secs(1), &mut sink);
            }
            assert!(values.iter().all(|value| value.value.is_finite()));
        };
        for (index, text) in whole.iter().enumerate() {
            let with = |new: String| {
                let mut broken = whole.clone();
                broken[index] = new;
                try_it(broken);
            };
            for end in 0..text.len().min(2000) {
                with(text[..end].to_string());
            }
            for gone in 0..text.lines().count() {
                let keep = text.lines().enumerate().filter(|(line, _)| *line != gone);
                with(keep.map(|(_, line)| format!("{line}\n")).collect());
            }
            for (place, word) in text
                .split_ascii_whitespace()
                .enumerate()
                .step_by(3)
                .take(200)
            {
                for other in nonsense {
                    let words = text.split(' ').enumerate();
                    with(
                        words
                            .map(|(at, w)| format!("{} ", if at == place { other } else { w }))
                            .collect(),
                    );
                }
                assert!(!word.is_empty());
            }
            // A file that has disappeared.
            let missing: Vec<_> = whole
                .iter()
                .enumerate()
                .map(|(at, t)| (at != index).then(|| Cow::from(t.as_str())))
                .collect();
            let (mut values, mut resets) = (Vec::new(), 0);
            let mut sink = Sink::new(entry.name, "".into(), &mut values, &mut resets);
            let _ = (entry.make)().step(&Texts(&missing), Duration::from_secs(1), &mut sink);
        }
    }
}

/// Samples stay on schedule, late ones are counted, and missed ones are not made up for.
#[test]
fn schedules_do_not_drift() {
    let millis = |millis: u64| brunt_core::Nanos(millis * 1_000_000);
    let mut schedule = Schedule::new(millis(100), Duration::from_millis(100));
    let mut check = |now: u64, late: u64, missed: u64, due: u64| {
        schedule.taken(millis(now));
        assert_eq!(
            (schedule.late, schedule.missed, schedule.due()),
            (late, missed, millis(due)),
            "{now}"
        );
    };
    check(100, 0, 0, 200);
    check(205, 0, 0, 300);
    check(315, 1, 0, 400);
    check(750, 2, 3, 800);
    check(800, 2, 3, 900);
}

/// The documentation lists exactly the figures in the table. `BRUNT_BLESS=1` rewrites it.
#[test]
fn documentation_is_complete() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/probes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (head, _) = text
        .split_once("## Figures\n")
        .expect("docs/probes.md has a part 'Figures'");
    let mut expected = format!("{head}## Figures\n");
    for entry in PROBES {
        let files = entry
            .files
            .join("`, `")
            .replace("{net}", "/proc/net")
            .replace("{process}", "/proc/PID");
        let instance = match entry.name {
            "cpu" => "empty for all CPUs together, `cpu0`, `cpu1`, …",
            "network" => "the interface",
            "disk" => "the block device or partition",
            "pressure" => "`cpu`, `memory`, `io`",
            "process" => {
                "`runner`, the target's name, `agent` of a lab's host with workers, or a name of `processes`"
            }
            "temperature" => "the device and its sensor",
            _ => "always empty",
        };
        expected += &format!(
            "\n### {}\n\n{}. From `{files}`. Instance: {instance}.\n\n| metric | what | mean in summary.json |\n\
             |---|---|---|\n",
            entry.name,
            entry.help[..1].to_uppercase() + &entry.help[1..]
        );
        for metric in entry.metrics {
            let summary = if metric.summary { "yes" } else { "" };
            expected += &format!("| `{}` | {} | {summary} |\n", metric.name, metric.help);
        }
    }
    expected += &format!(
        "\n### {}\n\nFigures that parts of a device report themselves. Instance: the target and the part, `disk/stics`; \
         of a LUN that the experiment serves, `disk:0/array`.\n\n| metric | part and what | mean in summary.json |\n|---|---|---|\n",
        DEVICE.name
    );
    for metric in DEVICE.metrics {
        let summary = if metric.summary { "yes" } else { "" };
        expected += &format!("| `{}` | {} | {summary} |\n", metric.name, metric.help);
    }
    if std::env::var_os("BRUNT_BLESS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    assert!(
        text == expected,
        "docs/probes.md is out of date; BRUNT_BLESS=1 cargo test -p brunt-probe updates it"
    );
}
