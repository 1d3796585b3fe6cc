//! A service whose disk becomes slow: the fault is proven and removed, affects only the service's processes, and
//! leaves nothing behind, however the experiment ends. The limits are so low that a busy machine can't make a probe
//! equally slow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Running, TempDir, alone, eventually, experiment, run_within, skip};
use serde_json::Value;

/// A service that constantly writes past the page cache, a load on a memory device, and a fault that slows the
/// service's disk.
const TEXT: &str = "name = \"slow disk\"\nrepetitions = 1\n[targets.here]\nurl = \"memory:1MiB\"\n\
     [workloads.read]\nread = 1.0\nstop = { time = \"12s\" }\n\
     [services.store]\nready = { line = \"1\" }\n\
     command = \"for i in $(seq 1 1000000); do dd if=/dev/zero of=data bs=4k count=1 oflag=direct conv=notrunc 2>/dev/null; echo $i; done\"\n\
     [[fault]]\nservice = \"store\"\ndisk = { requests = 2 }\nat = \"500ms\"\nfor = \"2s\"\n";

/// A command that runs this experiment with the folders of its services below `place`.
fn command(folder: &TempDir, text: &str, place: &Path) -> Command {
    let mut command = experiment(folder, text);
    command.env("TMPDIR", place);
    command
}

/// Control groups of experiments whose services have their folders in `place`.
fn groups(place: &Path) -> Vec<PathBuf> {
    let names: Vec<String> = fs::read_dir(place)
        .unwrap()
        .flatten()
        .map(|entry| format!("{}.", entry.file_name().to_string_lossy()))
        .collect();
    let all = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"]
        .map(fs::read_dir)
        .into_iter()
        .flatten()
        .flatten();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        names.iter().any(|ours| name.starts_with(ours.as_str()))
    };
    all.flatten()
        .map(|entry| entry.path())
        .filter(is_ours)
        .collect()
}

/// A folder on a disk; the usual folder for tests may not be on one.
fn on_disk() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("slow-disk")
        .tempdir()
        .unwrap()
}

#[test]
fn a_slow_disk_is_proven_and_removed() {
    let _alone = alone(); // A fault is proven by times.
    let (folder, place) = (TempDir::new("slow-disk"), on_disk());
    let output = run_within(&mut command(&folder, TEXT, place.path()), 120);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("fault 'disk limited to 2 requests/s': a slow disk below") {
        assert!(
            !folder.join("results").exists(),
            "it was refused after the start: {said}"
        );
        return skip(
            "root, control groups that limit block devices, and a folder for temporary files on one",
        );
    }
    assert!(output.status.success(), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fault = &summary["points"][0]["runs"][0]["faults"][0];
    let by = |key: &str| fault[key].as_str().unwrap_or_default().to_string();
    assert!(
        by("shown_by").contains("processes of the service"),
        "{fault}"
    );
    assert!(
        by("gone_by").contains("the service made ") && by("gone_by").ends_with(" again"),
        "{fault}"
    );
    assert_eq!(fault["place"], "service store", "{fault}");
    assert!(
        !fs::read_dir(place.path()).unwrap().any(|_| true),
        "folders are left"
    );
}

/// SIGKILL of the experiment while the disk is slow also removes the control group.
#[test]
fn a_killed_experiment_leaves_no_control_group() {
    let (folder, place) = (TempDir::new("slow-disk-killed"), on_disk());
    let text = TEXT
        .replace("12s", "1000s")
        .replace("at = \"500ms\"\nfor = \"2s\"\n", "");
    let mut command = command(&folder, &text, place.path());
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut run = Running(child);
    let mut ended = false;
    eventually("a group is made, or refused", 60, || {
        ended = run.0.try_wait().unwrap().is_some();
        ended
            || groups(place.path()).iter().any(|group| {
                fs::read_to_string(group.join("cgroup.procs"))
                    .is_ok_and(|inside| inside.lines().count() > 1)
            })
    });
    if ended {
        return skip(
            "root, control groups that limit block devices, and a folder for temporary files on one",
        );
    }
    let left = groups(place.path());
    run.0.kill().unwrap();
    run.0.wait().unwrap();
    eventually("the group is removed", 60, || {
        left.iter().all(|group| !group.exists())
    });
    eventually("the folder is removed", 60, || {
        !fs::read_dir(place.path()).unwrap().any(|_| true)
    });
}

/// An impossible fault is rejected before anything is started.
#[test]
fn a_disk_in_memory_is_refused() {
    let folder = TempDir::new("slow-disk-memory");
    let output = run_within(&mut command(&folder, TEXT, Path::new("/dev/shm")), 60);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("disk limited to 2 requests/s"),
        "{said}"
    );
    assert!(!folder.join("results").exists(), "{said}");
}
