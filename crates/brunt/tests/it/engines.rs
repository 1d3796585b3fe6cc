//! Machines without io_uring: everything that makes or serves requests uses threads there, and anything that needs a
//! ring says so. The program runs under a seccomp filter that rejects io_uring the way sysctl, Docker and Podman do,
//! or kills the program.

use std::path::Path;
use std::process::Command;

use crate::support::{Target, TempDir, brunt, need, root, run_within, succeed};
use serde_json::Value;

/// How io_uring calls fail: with EPERM, with ENOSYS, or by killing the program.
const REFUSALS: [&str; 3] = ["1", "38", "kill"];

/// The program, with io_uring calls failing in this way.
fn without_io_uring(refusal: &str) -> Command {
    let mut command = Command::new(root().join("tools/without-io-uring.py"));
    command.arg(refusal).arg(brunt().get_program());
    command
}

#[test]
fn without_io_uring_devices_and_targets_work_by_threads() {
    if need("python3", "python3").is_none() {
        return;
    }
    for refusal in REFUSALS {
        let folder = TempDir::new("engines");
        let disk = folder.join("disk.img").display().to_string();
        let lun = format!("{disk}?size=8MiB&create=yes");
        let target = Target::start_by(
            without_io_uring(refusal),
            &["--lun", &lun, "--lun", "memory:8MiB"],
        );
        for (url, length) in [
            (
                format!(
                    "{}?size=4MiB&create=yes",
                    folder.join("other.img").display()
                ),
                "4MiB",
            ),
            (target.url(0), "8MiB"),
            (target.url(1), "8MiB"),
        ] {
            let io = |verb: &str| {
                let mut command = without_io_uring(refusal);
                command.args(["io", verb, &url, "--length", length, "--bs", "64k"]);
                command
            };
            succeed(&mut io("write"), 60);
            succeed(&mut io("verify"), 60);
        }
    }
}

#[test]
fn without_io_uring_experiments_run_by_threads() {
    if need("python3", "python3").is_none() {
        return;
    }
    let folder = TempDir::new("engines");
    let file = folder.join("x.toml");
    let disk = folder.join("disk.img").display().to_string();
    let text = format!(
        r#"
        name = "x"
        [targets.file]
        url = "{disk}?size=8MiB&create=yes"
        [targets.lun]
        serve = "memory:8MiB"
        [workloads.mixed]
        read = 0.5
        queue_depth = 4
        verify = {{}}
        stop = {{ requests = 400 }}
        "#
    );
    std::fs::write(&file, text).unwrap();
    let out = folder.join("results");
    let mut run = without_io_uring("1");
    run.arg("run").arg(&file).arg("--out").arg(&out);
    succeed(&mut run, 120);
    let summary = summary_of(&out);
    assert_eq!(summary["complete"], true);
    for point in summary["points"].as_array().unwrap() {
        let completed = |op: &Value| op["completed"].as_u64().unwrap();
        let ops = point["runs"][0]["ops"].as_array().unwrap();
        assert_eq!(ops.iter().map(completed).sum::<u64>(), 400);
        assert_eq!(point["runs"][0]["engine"], "threads");
        let why = point["engine"]["why"].as_str().unwrap();
        assert!(why.starts_with("io_uring is disabled here"), "{why}");
    }
}

#[test]
fn loads_that_need_io_uring_are_refused_by_name() {
    if need("python3", "python3").is_none() {
        return;
    }
    let check = |arguments: &[&str], said: &str| {
        let output = run_within(without_io_uring("1").args(arguments), 30);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(said),
            "{arguments:?}: {error}"
        );
    };
    let read = ["io", "read", "memory:1MiB"];
    check(
        &[&read[..], &["--engine", "io_uring"]].concat(),
        "kernel.io_uring_disabled",
    );
    check(
        &[&read[..], &["--poll", "thread"]].concat(),
        "--poll thread needs engine io_uring",
    );
    check(
        &[&read[..], &["--poll", "device"]].concat(),
        "--poll device needs engine io_uring",
    );
    check(
        &["target", "--lun", "memory:1MiB", "--engine", "io_uring"],
        "engine io_uring",
    );
    let output = run_within(brunt().args(read).env("BRUNT_ENGINE", "fast"), 30);
    assert_eq!(output.status.code(), Some(2));
    let output = run_within(
        brunt()
            .args(read)
            .args(["--poll", "thread", "--engine", "threads"]),
        30,
    );
    assert_eq!(output.status.code(), Some(2));
}

/// Creates an experiment with one workload per entry; returns its folder.
fn experiment(keys: &[(&str, &str)]) -> (TempDir, std::path::PathBuf) {
    let folder = TempDir::new("engines");
    let file = folder.join("x.toml");
    let mut text =
        "name = \"x\"\nrepetitions = 1\n[targets.mem]\nurl = \"memory:8MiB\"\n".to_string();
    for (name, keys) in keys {
        text += &format!("[workloads.{name}]\n{keys}\nstop = {{ requests = 100 }}\n");
    }
    std::fs::write(&file, text).unwrap();
    (folder, file)
}

fn summary_of(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap()
}

#[test]
fn the_engine_is_in_plan_table_results_report_and_comparison() {
    let (folder, file) = experiment(&[("plain", ""), ("own", "engine = \"threads\"")]);
    let plan = succeed(
        brunt()
            .arg("run")
            .arg(&file)
            .args(["--check", "--engine", "threads"]),
        60,
    );
    assert!(
        plan.contains("engine of mem plain: threads, as --engine says"),
        "{plan}"
    );
    assert!(
        plan.contains("engine of mem own: threads, as set in the workload"),
        "{plan}"
    );
    let run = |out: &str, set: &[&str]| {
        let out = folder.join(out);
        let mut run = brunt();
        run.arg("run").arg(&file).args(set).arg("--out").arg(&out);
        let table = succeed(&mut run, 120);
        (out, table)
    };
    let (first, table) = run("first", &["--engine", "threads"]);
    assert!(
        table.contains("engine: threads, as --engine says"),
        "{table}"
    );
    let summary = summary_of(&first);
    for (point, why) in [(0, "as set in the workload"), (1, "as --engine says")] {
        let point = &summary["points"][point];
        assert_eq!(point["engine"]["engine"], "threads");
        assert_eq!(point["engine"]["why"], why, "{}", point["label"]);
        assert_eq!(point["runs"][0]["engine"], "threads");
    }
    let page = std::fs::read_to_string(first.join("report.html")).unwrap();
    assert!(page.contains("threads (as --engine says)"));
    if run_within(
        brunt().args(["io", "read", "memory:1MiB", "--engine", "io_uring"]),
        60,
    )
    .status
    .success()
    {
        let set = ["--set", "workloads.own.engine=io_uring"];
        let (second, _) = run("second", &set);
        assert_eq!(
            summary_of(&second)["points"][0]["runs"][0]["engine"],
            "io_uring"
        );
        let output = run_within(brunt().arg("compare").arg(&first).arg(&second), 60);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected =
            "mem own: the first result was measured with engine threads, the second with io_uring";
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_flag_at_odds_with_a_workload_is_refused() {
    let (_folder, file) = experiment(&[("own", "engine = \"threads\"")]);
    let mut run = brunt();
    run.arg("run")
        .arg(&file)
        .args(["--check", "--engine", "io_uring"]);
    let output = run_within(&mut run, 60);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("workload own has engine = \"threads\""),
        "{error}"
    );
}

#[test]
fn without_io_uring_a_check_refuses_what_needs_it() {
    if need("python3", "python3").is_none() {
        return;
    }
    let check = |keys: &str, how: &str| {
        let (folder, file) = experiment(&[("w", keys)]);
        let mut run = without_io_uring("1");
        run.arg("run").arg(&file).arg(how);
        let output = run_within(&mut run, 60);
        drop(folder);
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    for (keys, said) in [
        (
            "engine = \"io_uring\"",
            "mem w: engine: io_uring is disabled here",
        ),
        (
            "ring = \"sqpoll\"",
            "mem w: ring: sqpoll needs engine io_uring: io_uring is disabled here",
        ),
        (
            "ring = \"poll\"\nengine = \"auto\"",
            "mem w: ring: poll needs engine io_uring",
        ),
    ] {
        let (code, error) = check(keys, "--check=open");
        assert!(code == Some(2) && error.contains(said), "{keys}: {error}");
        // A plain check passes, because the experiment may run on another machine.
        let (code, plan) = check(keys, "--check");
        assert!(
            code == Some(0) && plan.contains("engine: not on this machine: "),
            "{keys}: {plan}"
        );
    }
    for keys in ["", "engine = \"auto\""] {
        let (code, plan) = check(keys, "--check=open");
        let said = "engine: threads, io_uring is disabled here";
        assert!(code == Some(0) && plan.contains(said), "{keys}: {plan}");
    }
}

/// The CPU time of a run includes that of the kernel's threads: it is close to that of the whole process, which does
/// little else than start up and report.
#[test]
fn the_cost_of_requests_includes_the_kernels_threads() {
    let on_io_uring = ["io", "read", "memory:1MiB", "--engine", "io_uring"];
    if !run_within(brunt().args(on_io_uring), 60).status.success() {
        println!("skipped: needs io_uring");
        return;
    }
    // On tmpfs without O_DIRECT, writes are done by the kernel's worker threads.
    let memory = tempfile::TempDir::new_in("/dev/shm");
    let check = |keys: &str| {
        let (folder, file) = experiment(&[("w", keys)]);
        let disk = match &memory {
            Ok(memory) => memory.path().join("disk.img"),
            Err(_) => folder.join("disk.img"),
        };
        let text = std::fs::read_to_string(&file)
            .unwrap()
            .replace(
                "memory:8MiB",
                &format!("{}?size=8MiB&create=yes&direct=no", disk.display()),
            )
            .replace("requests = 100 ", "requests = 100_000 ");
        std::fs::write(&file, text).unwrap();
        let out = folder.join("out");
        let mut run = brunt();
        run.arg("run").arg(&file).arg("--out").arg(&out);
        run.stdout(std::process::Stdio::null());
        run.stderr(std::process::Stdio::null());
        let spent = brunt_core::cost::ChildUsage::wait(run.spawn().unwrap()).unwrap();
        assert!(spent.status.success(), "{}", spent.status);
        let cost = summary_of(&out)["points"][0]["runs"][0]["cost_per_request"].clone();
        let of = |key: &str| cost[key].as_f64().expect("a number") * 100_000.0 / 1e9;
        let process = spent.cost.cpu().as_secs_f64();
        let cpu = of("cpu_ns");
        println!("{keys}: {cpu} of {process} s, polling {}", of("polling_ns"));
        // A thread's clock may already include a last time slice that the process's total lacks.
        assert!(cpu <= process * 1.05, "{cpu} of {process} s");
        assert!(
            cpu >= process * 0.5,
            "{cpu} of {process} s: some is missing"
        );
        of("polling_ns")
    };
    let many = "engine = \"io_uring\"\nqueue_depth = 32\nread = 0.5\n";
    assert_eq!(check(&format!("{many}ring = \"interrupt\"")), 0.0);
    assert!(check(&format!("{many}ring = \"sqpoll\"")) > 0.0);
}
