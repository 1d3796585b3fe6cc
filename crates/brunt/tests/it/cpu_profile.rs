//! `--profile` as a user runs it: phases and roles in the summary, on the terminal and on the page; and without
//! permission for perf events.

use std::process::Command;

use serde_json::Value;

use crate::support::{TempDir, brunt, need, run_within, was_in_time};

/// An experiment whose times are longer by this factor.
fn experiment(factor: u32) -> String {
    let [all, part] = [1500, 500].map(|ms| ms * factor);
    format!(
        r#"
name = "profile"
repetitions = 1
[targets.t]
serve = "memory:8MiB"
[workloads.w]
read = 0.5
queue_depth = 8
interval = "100ms"
stop = {{ time = "{all}ms" }}
[[fault]]
name = "slow disk"
target = "t"
storage = "slow:1ms"
at = "{part}ms"
for = "{part}ms"
"#
    )
}

/// Runs the experiment with this command; returns the profile of its run, the output, and the page. If the fault comes
/// too late on a busy machine, the experiment is repeated with longer times.
fn profiled(command: impl Fn() -> Command) -> (Value, String, String) {
    for factor in [1, 4, 16] {
        let folder = TempDir::new("cpu-profile");
        let file = folder.join("x.toml");
        std::fs::write(&file, experiment(factor)).unwrap();
        let results = folder.join("results");
        let mut command = command();
        command.args(["run", "--profile"]).arg(&file);
        command.arg("--out").arg(&results);
        let output = run_within(&mut command, 60);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr);
        if !was_in_time(output.status.success(), &trouble) {
            continue;
        }
        let summary = std::fs::read_to_string(results.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        let page = std::fs::read_to_string(results.join("report.html")).unwrap();
        let profile = summary["points"][0]["runs"][0]["profile"].clone();
        return (profile, said, page);
    }
    panic!("never as it was meant to be");
}

/// The roles of all phases.
fn roles(profile: &Value) -> Vec<&Value> {
    let phases = profile["phases"].as_array().expect("phases");
    let roles = phases.iter().filter_map(|phase| phase["roles"].as_array());
    roles.flatten().collect()
}

/// Every phase has CPU times of the machine, the worker and the target.
fn check_times(profile: &Value) {
    let phases = profile["phases"].as_array().expect("phases");
    let kinds: Vec<&str> = phases
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["before", "during", "after"], "{profile}");
    for phase in phases {
        let machine = &phase["machine"];
        let idle = machine["idle_s"].as_f64().expect("a number");
        assert!(idle >= 0.0 && machine["interrupt_s"].is_f64(), "{machine}");
        for name in ["worker", "t"] {
            let roles = phase["roles"].as_array().unwrap();
            let role = roles.iter().find(|role| role["role"] == name);
            let role = role.unwrap_or_else(|| panic!("no {name}: {phase}"));
            assert!(
                role["user_s"].is_f64() && role["system_s"].is_f64(),
                "{role}"
            );
        }
    }
    let used = |role: &Value| Some(role["user_s"].as_f64()? + role["system_s"].as_f64()?);
    let used: f64 = roles(profile).into_iter().filter_map(used).sum();
    assert!(used > 0.0, "{profile}");
}

#[test]
fn a_profile_has_phases_and_roles() {
    let (profile, said, page) = profiled(brunt);
    check_times(&profile);
    assert!(page.contains("Where the CPU goes"));
    assert!(said.contains("CPU, during slow disk"), "{said}");
    let sampled: u64 = roles(&profile)
        .into_iter()
        .filter_map(|role| role["samples"].as_u64())
        .sum();
    let is_permitted = profile["unavailable"].is_null();
    assert_eq!(sampled > 0, is_permitted, "{profile}");
    assert_eq!(page.contains("class=\"flame\""), is_permitted);
    if is_permitted {
        assert!(said.contains("TCP and network"), "{said}");
    }
}

/// Without the capabilities, a run has CPU times and reports what is missing.
#[test]
fn without_permission_cpu_times_remain() {
    let Some(setpriv) = need("setpriv", "util-linux") else {
        return;
    };
    let is_root = rustix::process::geteuid().is_root();
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let is_open =
        paranoid.is_ok_and(|level| level.trim().parse().is_ok_and(|level: i32| level < 1));
    if !is_root || is_open {
        crate::support::skip("root, and kernel.perf_event_paranoid of at least 1");
        return;
    }
    let (profile, said, page) = profiled(|| {
        let mut command = Command::new(&setpriv);
        command.args(["--bounding-set", "-sys_admin,-perfmon"]);
        command.arg(brunt().get_program());
        command
    });
    check_times(&profile);
    for text in [&said, &page, &profile["unavailable"].to_string()] {
        assert!(text.contains("CAP_PERFMON"), "{text}");
    }
}
