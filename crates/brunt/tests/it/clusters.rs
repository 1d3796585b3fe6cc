//! The files of docs/clusters.md for starting agents: manifests that the Kubernetes API accepts, and scripts that
//! start, reach and stop agents.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::agents::{init, ssh_to_here};
use crate::support::{brunt, need, root, skip};
use serde_json::Value;
use tempfile::TempDir;

/// The oldest and the newest API version against which the manifests are validated.
const VERSIONS: [&str; 2] = ["1.25", "1.37"];

fn file(name: &str) -> PathBuf {
    root().join("examples/clusters").join(name)
}

/// A short version of the example's experiment, with a target in memory.
fn shortened(folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(file("experiment.toml")).unwrap();
    let url = text
        .lines()
        .find(|line| line.starts_with("url = "))
        .expect("a target");
    let text = text
        .replace(url, "url = \"memory:16MiB\"")
        .replace("\"5s\"", "\"100ms\"");
    let text = text
        .replace("\"30s\"", "\"300ms\"")
        // A busy machine may stop an agent for seconds.
        .replace("repetitions = 4", "repetitions = 1\nhost_silence = \"60s\"");
    let short = folder.join("short.toml");
    std::fs::write(&short, text).unwrap();
    short
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn validate(version: &str, manifest: &Path) -> Output {
    Command::new(root().join("tools/kubernetes.sh"))
        .arg(version)
        .arg(manifest)
        .output()
        .unwrap()
}

#[test]
fn the_kubernetes_api_accepts_the_agent_manifests() {
    let ready = Command::new(root().join("tools/kubernetes.sh"))
        .arg("--ready")
        .status();
    if !ready.is_ok_and(|status| status.success()) {
        skip("kubernetes-validate (tools/kubernetes.sh --prepare)");
        return;
    }
    let manifest = file("kubernetes.yaml");
    for version in VERSIONS {
        let said = validate(version, &manifest);
        assert!(said.status.success(), "{version}: {}", text(&said));
    }
    let objects: Value = serde_json::from_slice(&validate(VERSIONS[1], &manifest).stdout).unwrap();
    let found = |kind: &str, name: &str| {
        let is = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        objects
            .as_array()
            .unwrap()
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("no {kind} {name}"))
            .clone()
    };
    // If the worker were restarted, it would start another measurement.
    for name in ["brunt-agents", "brunt-controller"] {
        let job = found("Job", name);
        let spec = &job["spec"];
        assert_eq!(
            (
                &spec["backoffLimit"],
                &spec["template"]["spec"]["restartPolicy"]
            ),
            (&0.into(), &"Never".into())
        );
    }
    let agents = found("Job", "brunt-agents")["spec"].clone();
    assert_eq!(agents["completionMode"], "Indexed");
    let pod = &agents["template"]["spec"];
    assert_eq!(
        found("Service", "brunt-agents")["spec"]["clusterIP"],
        "None"
    );
    assert_eq!(
        pod["subdomain"], "brunt-agents",
        "pods have names by the Service"
    );
    // The agent refuses keys that others can read.
    assert_eq!(pod["volumes"][0]["secret"]["defaultMode"], 0o400);

    // The experiment in the manifest is valid, and its hosts are the agents of the Job.
    let experiment = found("ConfigMap", "brunt-experiment")["data"]["experiment.toml"].clone();
    let experiment = experiment.as_str().unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("experiment.toml");
    std::fs::write(&path, experiment).unwrap();
    let checked = brunt()
        .args(["run", "--check"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
    let count = agents["completions"].as_u64().unwrap();
    assert_eq!(agents["parallelism"].as_u64(), Some(count));
    let waits =
        found("Job", "brunt-controller")["spec"]["template"]["spec"]["initContainers"][0]["args"]
            .to_string();
    for index in 0..count {
        let host = format!("brunt-agents-{index}.brunt-agents");
        assert!(
            experiment.contains(&format!("agent = \"{host}:7420\"")),
            "{experiment}"
        );
        assert!(waits.contains(&format!("\"agent:{host}:7420\"")), "{waits}");
        // The pod mounts the certificate file that is created for its name.
        let made = init(folder.path(), &[&host]);
        assert!(made.status.success(), "{}", text(&made));
        let mount = pod["containers"][0]["volumeMounts"][0]["subPathExpr"]
            .as_str()
            .unwrap();
        assert!(
            folder
                .path()
                .join(mount.replace("$(INDEX)", &index.to_string()))
                .exists(),
            "{mount}"
        );
    }

    // The validator rejects what the API would reject.
    let text = std::fs::read_to_string(&manifest).unwrap();
    for (right, wrong) in [
        ("backoffLimit: 0", "backoffLimit: none"),
        ("completionMode:", "completionmode:"),
    ] {
        assert!(text.contains(right));
        let broken = folder.path().join("broken.yaml");
        std::fs::write(&broken, text.replacen(right, wrong, 1)).unwrap();
        assert!(!validate(VERSIONS[1], &broken).status.success(), "{wrong}");
    }
}

/// Captures on nodes: the API accepts the manifests, which request no more privileges than capturing packets needs,
/// and the options exist.
#[test]
fn the_kubernetes_api_accepts_the_capture_manifests() {
    let manifests = ["capture.yaml", "capture-s3.yaml"].map(file);
    let takes = |command: &[&str], line: &str| {
        let help = brunt().args(command).arg("--help").output().unwrap();
        let options: Vec<&str> = line
            .split_whitespace()
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(!options.is_empty(), "{line}");
        options
            .iter()
            .for_each(|option| assert!(text(&help).contains(&format!("{option} <")), "{option}"));
    };
    for manifest in &manifests {
        let text_of = std::fs::read_to_string(manifest).unwrap();
        let of = |command: &str| text_of.lines().find(|line| line.contains(command));
        takes(&["capture"], of("exec brunt capture ").expect("a capture"));
        of(" brunt lake push ")
            .into_iter()
            .for_each(|line| takes(&["lake", "push"], line));
    }
    let ready = Command::new(root().join("tools/kubernetes.sh"))
        .arg("--ready")
        .status();
    if !ready.is_ok_and(|status| status.success()) {
        skip("kubernetes-validate (tools/kubernetes.sh --prepare)");
        return;
    }
    for (version, manifest) in VERSIONS
        .into_iter()
        .flat_map(|version| manifests.each_ref().map(|one| (version, one)))
    {
        let said = validate(version, manifest);
        assert!(said.status.success(), "{version}: {}", text(&said));
    }
    let objects = |manifest: &Path| -> Vec<Value> {
        serde_json::from_slice(&validate(VERSIONS[1], manifest).stdout).unwrap()
    };
    let [objects, moving] = manifests.each_ref().map(|manifest| objects(manifest));
    let pod = &moving
        .iter()
        .find(|one| one["kind"] == "DaemonSet")
        .expect("captures")["spec"]["template"]["spec"];
    for container in [&pod["initContainers"][0], &pod["containers"][0]] {
        assert_eq!(
            container["envFrom"][0]["secretRef"]["name"], "brunt-s3",
            "no credentials in the manifest"
        );
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"],
            serde_json::json!(["ALL"])
        );
    }
    let of_kind = |kind: &str| {
        objects
            .iter()
            .find(|one| one["kind"] == kind)
            .expect("an object")
    };
    let pods = [
        &of_kind("DaemonSet")["spec"]["template"]["spec"],
        &of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"],
    ];
    let claim = &of_kind("PersistentVolumeClaim")["metadata"]["name"];
    let added = [serde_json::json!(["NET_RAW"]), Value::Null];
    for (pod, added) in pods.into_iter().zip(added) {
        assert_eq!(
            &pod["volumes"][0]["persistentVolumeClaim"]["claimName"],
            claim
        );
        let capabilities = &pod["containers"][0]["securityContext"]["capabilities"];
        assert_eq!(
            (&capabilities["drop"], &capabilities["add"]),
            (&serde_json::json!(["ALL"]), &added)
        );
    }
    assert_eq!(pods[0]["hostNetwork"], true);
}

/// The program accepts the commands in the manifests.
#[test]
fn the_program_accepts_the_commands_of_the_manifests() {
    let text = std::fs::read_to_string(file("kubernetes.yaml")).unwrap();
    assert!(
        text.contains("args: [agent, --listen, ")
            && text.contains("args: [agent, clock, --wait, 5m, ")
    );
    // Nothing listens: the controller retries for exactly as long as requested.
    let folder = TempDir::new().unwrap();
    // No other test uses this address, so its ports stay free.
    let local = "127.0.66.1";
    assert!(init(folder.path(), &[local]).status.success());
    let free = std::net::TcpListener::bind((local, 0)).unwrap();
    let host = format!("agent:{}", free.local_addr().unwrap());
    drop(free);
    let clock = |wait: &str| {
        let begin = Instant::now();
        let mut command = brunt();
        command.args([
            "agent",
            "clock",
            "--wait",
            wait,
            "--for",
            "10ms",
            &host,
            "--identity",
        ]);
        let answer = command
            .arg(folder.path().join("controller.pem"))
            .output()
            .unwrap();
        (answer.status.code(), begin.elapsed())
    };
    let (status, took) = clock("700ms");
    assert!(
        status == Some(1) && took >= Duration::from_millis(700),
        "{status:?} {took:?}"
    );
    // An agent that starts late is found.
    let address = host.strip_prefix("agent:").unwrap().to_string();
    let identity = folder.path().join(format!("agent-{local}.pem"));
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        let mut agent = brunt();
        agent
            .args(["agent", "--listen", &address, "--identity"])
            .arg(identity);
        agent
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    let (status, _) = clock("120s");
    let mut agent = late.join().unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(status, Some(0));
}

#[test]
fn shellcheck_accepts_the_scripts() {
    for name in ["agents.sh", "slurm-agents.sh", "slurm-run.sh"] {
        let said = Command::new("bash")
            .arg("-n")
            .arg(file(name))
            .output()
            .unwrap();
        assert!(said.status.success(), "{}", text(&said));
    }
    let Some(shellcheck) = need("shellcheck", "shellcheck") else {
        return;
    };
    let names = ["agents.sh", "slurm-agents.sh", "slurm-run.sh"].map(file);
    let said = Command::new(shellcheck).args(names).output().unwrap();
    assert!(said.status.success(), "{}", text(&said));
}

/// agents.sh on two hosts with a stand-in for ssh: its agents do the work of the example and leave nothing behind.
#[test]
fn agents_sh_starts_agents_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let (work, far) = (folder.path().join("agents"), folder.path().join("far"));
    std::fs::create_dir(&far).unwrap();
    let ssh = ssh_to_here(folder.path(), ":");
    let script = |arguments: &[&str]| {
        let mut command = Command::new(file("agents.sh"));
        command
            .arg(&work)
            .args(arguments)
            .stdin(Stdio::null())
            .env("TMPDIR", &far);
        command
            .env("SSH", &ssh)
            .env("BRUNT", env!("CARGO_BIN_EXE_brunt"))
            .env("ALLOW", "memory:");
        command.output().unwrap()
    };
    let started = script(&["start", "127.0.0.1", "root@localhost"]);
    assert!(started.status.success(), "{}", text(&started));
    // A second start is refused while agents run.
    assert!(!script(&["start", "127.0.0.1"]).status.success());
    let hosts = script(&["hosts"]);
    let short = shortened(folder.path());
    let experiment = std::fs::read_to_string(&short).unwrap() + &text(&hosts);
    std::fs::write(&short, experiment).unwrap();
    let ran = brunt()
        .arg("run")
        .arg(&short)
        .arg("--out")
        .arg(folder.path().join("results"))
        .output()
        .unwrap();
    let pids: Vec<String> = std::fs::read_dir(&far)
        .unwrap()
        .map(|one| {
            std::fs::read_to_string(one.unwrap().path().join("pid"))
                .unwrap()
                .trim()
                .to_string()
        })
        .collect();
    let stopped = script(&["stop"]);
    assert!(ran.status.success(), "{}\n{}", text(&ran), text(&hosts));
    assert!(
        text(&ran).contains("hosts started within"),
        "{}",
        text(&ran)
    );
    assert!(stopped.status.success(), "{}", text(&stopped));
    assert_eq!(
        std::fs::read_dir(&far).unwrap().count(),
        0,
        "nothing is left there"
    );
    assert_eq!(pids.len(), 2);
    for pid in pids {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!words.contains("--listen"), "{pid} still runs: {words}");
    }
}

/// The task of a Slurm array, and the job that runs the experiment, with stand-ins for Slurm's programs.
#[test]
fn a_slurm_array_runs_agents_until_the_job_ends() {
    let folder = TempDir::new().unwrap();
    let (work, bin) = (folder.path().join("work"), folder.path().join("bin"));
    assert!(
        init(&work.join("certificates"), &["127.0.0.1", "localhost"])
            .status
            .success()
    );
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_brunt"), bin.join("brunt")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // squeue lists running tasks; scancel ends the array.
    let [squeue, scancel] = [
        ("squeue", "cat $SLURM_LIST"),
        ("scancel", "echo $1 > $SLURM_LIST.cancelled"),
    ]
    .map(|(name, words)| (bin.join(name), format!("#!/bin/sh\n{words}\n")));
    for (program, words) in [squeue, scancel] {
        std::fs::write(&program, words).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
    }
    let list = folder.path().join("list");
    std::fs::write(&list, "7_0\n7_1\n").unwrap();
    let mut tasks: Vec<_> = ["127.0.0.1", "localhost"]
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let mut task = Command::new(file("slurm-agents.sh"));
            task.arg(&work)
                .arg("memory:")
                .env("PATH", &path)
                .env("SLURMD_NODENAME", node);
            task.env("SLURM_ARRAY_JOB_ID", "7")
                .env("SLURM_ARRAY_TASK_ID", index.to_string());
            task.stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let run = |count: &str| {
        let mut command = Command::new(file("slurm-run.sh"));
        command
            .arg(&work)
            .args(["7", count])
            .arg(shortened(folder.path()));
        command
            .env("PATH", &path)
            .env("SLURM_LIST", &list)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let ran = run("2");
    let cancelled = std::fs::read_to_string(folder.path().join("list.cancelled"));
    // A third task has left the queue and isn't waited for.
    std::fs::write(&list, "").unwrap();
    let missing = run("3");
    for task in &mut tasks {
        let pid = rustix::process::Pid::from_raw(task.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(task.wait().unwrap().success());
    }
    assert!(
        ran.status.success() && text(&ran).contains("hosts started within"),
        "{}",
        text(&ran)
    );
    assert_eq!(cancelled.unwrap().trim(), "7");
    assert!(
        !missing.status.success() && text(&missing).contains("agent 2 does not run"),
        "{}",
        text(&missing)
    );
}
