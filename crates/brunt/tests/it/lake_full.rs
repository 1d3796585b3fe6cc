//! `brunt lake` on a full disk: it reports that the disk is full, loses nothing, removes half-written files, and
//! continues once there is space.

use std::path::Path;
use std::process::Command;

use crate::support::{TempDir, brunt, root, run_within, skip, succeed};

/// Runs the command on a tmpfs of 4 MiB with only a few KiB free, more each time, and finally with enough space. Each
/// line of output has the free space, the command's status, and the trace's answers afterwards.
const SCRIPT: &str = r#"
    disk=$1 brunt=$2 trace=$3 before=$4 makes=$5 said=$6; shift 6
    mount -t tmpfs -o size=4m none "$disk" || exit 77
    cp -r "$trace" "$disk/trace" && cd "$disk" || exit 78
    answers() { "$brunt" analyze --json trace | cmp -s - "$before" && echo same || echo other; }
    for free in 0 8 24 64 128; do
        cat /dev/zero >ballast 2>/dev/null
        truncate -s "-${free}K" ballast
        [ "$makes" = nothing ] || rm -rf "$makes"
        "$brunt" --json lake "$@" >/dev/null 2>>"$said"; status=$?
        open=$(find . -name '*.open' | wc -l)
        echo "$free $status $(answers) $open"
        [ $status = 1 ] || break
    done
    rm ballast
    [ "$makes" = nothing ] || rm -rf "$makes"
    "$brunt" --json lake "$@" >/dev/null 2>>"$said"
    echo "room $? $(answers) $(find . -name '*.open' | wc -l)"
"#;

/// Runs a `brunt lake` command on the disk; `makes` is the folder that it creates, if any.
fn check(folder: &TempDir, trace: &Path, name: &str, makes: &str, words: &[&str]) -> bool {
    let (disk, before) = (folder.join("disk"), folder.join("before"));
    std::fs::create_dir_all(&disk).expect("a folder");
    std::fs::write(
        &before,
        succeed(brunt().args(["analyze", "--json"]).arg(trace), 60),
    )
    .expect("written");
    let said = folder.join(name);
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        SCRIPT,
        "sh",
    ]);
    unshare
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_brunt"))
        .arg(trace)
        .arg(&before)
        .arg(makes)
        .arg(&said);
    let run = run_within(unshare.args(words), 120);
    let errors = String::from_utf8_lossy(&run.stderr);
    if run.status.code() == Some(77) || errors.contains("unshare failed") {
        skip("user and mount namespaces with a tmpfs");
        return false;
    }
    let lines = String::from_utf8_lossy(&run.stdout).into_owned();
    let told = std::fs::read_to_string(&said).expect("read").to_lowercase();
    let lines: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    assert!(lines.len() >= 2, "{name}: {lines:?}, {errors}");
    assert_eq!(lines[0], ["0", "1", "same", "0"], "{name}: {told}");
    assert!(told.contains("no space"), "{name}: {told}");
    for line in &lines {
        assert!(
            line[1] != "2" && line[2..] == ["same", "0"],
            "{name}: {lines:?}, {told}"
        );
    }
    assert_eq!(
        lines.last().map(|line| &line[..2]),
        Some(&["room", "0"][..]),
        "{name}: {told}"
    );
    true
}

#[test]
fn a_full_disk_costs_nothing() {
    let folder = TempDir::new("lake-full");
    let trace = folder.join("trace");
    let mut record = brunt();
    record
        .args(["capture", "--json", "-r"])
        .arg(root().join("testdata/nfs3-small.pcap.zst"));
    succeed(
        record
            .arg("--out")
            .arg(&trace)
            .args(["--part-size", "64KiB"]),
        60,
    );
    if !check(&folder, &trace, "compact", "nothing", &["compact", "trace"]) {
        return;
    }
    check(
        &folder,
        &trace,
        "add",
        "lake",
        &["add", "lake", "trace", "--tap", "one"],
    );
    check(
        &folder,
        &trace,
        "repeat",
        "lake",
        &["repeat", "trace", "--rows", "20000", "--out", "lake"],
    );
    let mut compact = brunt();
    succeed(compact.args(["--json", "lake", "compact"]).arg(&trace), 60);
    check(
        &folder,
        &trace,
        "manifest",
        "nothing",
        &["manifest", "trace"],
    );
}
