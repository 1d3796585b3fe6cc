//! Metadata operations on a mounted folder and on nfs-ganesha: the counts match what find(1) shows, the tree has
//! mdtest's shape and names, and nothing is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::nfs_server::{MOUNT_PORT, NFS_PORT, Server, run};
use crate::support::agents::host_by_ssh;
use crate::support::{TempDir, experiment, run_within, succeed};

/// Two workers with three directories of five items each.
const SMALL: &str = "workers = 2\ndepth = 1\nbranch = 2\nitems = 5\nfile_size = \"3000\"";

fn text(directory: &str, more: &str) -> String {
    format!(
        "name = \"x\"\nrepetitions = 2\nseed = 5\n[metadata.m]\ndirectory = \"{directory}\"\n{more}\n"
    )
}

/// Completed requests by phase and kind, which are the same in each run; none failed.
fn completed(summary: &Value) -> BTreeMap<String, Vec<(String, u64)>> {
    let of_run = |run: &Value| -> Vec<(String, u64)> {
        let lost = run["losses"].as_object();
        assert!(lost.is_none_or(serde_json::Map::is_empty), "{run:#}");
        let ops = run["ops"].as_array().expect("operations").iter();
        ops.map(|op| {
            let name = op["op"].as_str().expect("a name").to_string();
            (name, op["completed"].as_u64().expect("a count"))
        })
        .collect()
    };
    let of_point = |point: &Value| {
        let runs = point["runs"].as_array().expect("runs");
        let counts: Vec<_> = runs.iter().map(of_run).collect();
        assert!(counts.len() == 2 && counts[0] == counts[1], "{counts:?}");
        let phase = point["workload"].as_str().expect("a phase");
        (phase.to_string(), counts[0].clone())
    };
    let points = summary["points"].as_array().expect("points");
    points.iter().map(of_point).collect()
}

fn measured(text: &str) -> Value {
    let folder = TempDir::new("metadata");
    let out = succeed(&mut experiment(&folder, text), 60);
    serde_json::from_str(&out).expect("JSON")
}

/// The expected counts for [`SMALL`] with this many workers.
fn expected(workers: u64) -> BTreeMap<String, Vec<(String, u64)>> {
    let items = workers * 3 * 5;
    let phases: [(&str, &[(&str, u64)]); 10] = [
        ("tree-creation", &[("make-directory", 3)]),
        ("directory-creation", &[("make-directory", items)]),
        ("directory-stat", &[("get-attributes", items)]),
        ("directory-removal", &[("remove-directory", items)]),
        ("file-creation", &[("create", items), ("write", items)]),
        ("file-stat", &[("get-attributes", items)]),
        ("file-read", &[("read", items)]),
        ("readdir", &[("read-directory", workers * 3)]),
        ("file-removal", &[("remove", items)]),
        ("tree-removal", &[("remove-directory", 3)]),
    ];
    let named = |(name, count): &(&str, u64)| (name.to_string(), *count);
    let phases = phases.into_iter();
    phases
        .map(|(phase, ops)| (phase.to_string(), ops.iter().map(named).collect()))
        .collect()
}

/// What find(1) prints, sorted.
fn find(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let folder = folder.display().to_string();
    let arguments = [&[&folder[..]], arguments].concat();
    let mut lines: Vec<String> = run("find", &arguments)
        .lines()
        .map(str::to_string)
        .collect();
    lines.sort_unstable();
    lines
}

/// Checks the directories of a kept tree, the files of [`SMALL`] in them, and their sizes, as find(1) shows them.
fn check_files(tree: &Path, ranks: u64) {
    let directories = find(tree, &["-mindepth", "1", "-type", "d", "-printf", "%P\n"]);
    let expected = [
        "mdtest_tree.0",
        "mdtest_tree.0/mdtest_tree.1",
        "mdtest_tree.0/mdtest_tree.2",
    ];
    assert_eq!(directories, expected);
    let files = find(tree, &["-type", "f", "-printf", "%P %s\n"]);
    let mut expected = Vec::new();
    for (number, directory) in directories.iter().enumerate() {
        for rank in 0..ranks {
            let items = number * 5..number * 5 + 5;
            expected
                .extend(items.map(|item| format!("{directory}/file.mdtest.{rank}.{item} 3000")));
        }
    }
    expected.sort_unstable();
    assert_eq!(files, expected);
}

/// Every phase works on a mounted folder, in every mode.
#[test]
fn phases_on_a_mounted_folder_count_what_mdtest_would() {
    let place = TempDir::new("metadata-place");
    fs::write(place.join("theirs"), "untouched").expect("a file");
    let directory = place.join("").display().to_string();
    let summary = measured(&text(&directory, SMALL));
    assert_eq!(completed(&summary), expected(2));
    // The tree of each worker is created by that worker.
    let more = format!("{SMALL}\ntrees = \"unique\"\norder = \"random\"\nfsync = true");
    let mut unique = expected(2);
    for phase in ["tree-creation", "tree-removal"] {
        unique.get_mut(phase).expect("a phase")[0].1 = 6;
    }
    assert_eq!(completed(&measured(&text(&directory, &more))), unique);
    // Only the leaves have items.
    let more = "depth = 2\nbranch = 3\nitems = 2\nleaf_only = true\nphases = [\"file-creation\", \"readdir\"]";
    let leaves = completed(&measured(&text(&directory, more)));
    assert_eq!(leaves["file-creation"], [("create".to_string(), 18)]);
    assert_eq!(leaves["readdir"], [("read-directory".to_string(), 13)]);
    assert_eq!(
        find(
            place.join("").as_path(),
            &["-mindepth", "1", "-printf", "%P\n"]
        ),
        ["theirs"]
    );
}

#[test]
fn find_shows_the_files_that_a_phase_created() {
    let place = TempDir::new("metadata-place");
    let directory = place.join("").display().to_string();
    let more = format!("{SMALL}\nkeep = true\nfolder = \"kept\"\nphases = [\"file-creation\"]");
    let summary = measured(&text(&directory, &more));
    check_files(&place.join("kept"), 2);
    let notes = summary["points"][0]["notes"].to_string();
    assert!(notes.contains("the directory stays"), "{notes}");

    // With file sizes from a distribution, the same files are created each time.
    let more = "items = 200\nkeep = true\nphases = [\"file-creation\", \"file-read\"]\n\
                file_size = { kind = \"log-normal\", median = \"4k\", sigma = 1, min = \"512\", max = \"64k\" }";
    let sizes = |name: &str| {
        measured(&text(&directory, &format!("{more}\nfolder = \"{name}\"")));
        let tree = place.join(name);
        find(&tree, &["-type", "f", "-printf", "%P %s\n"])
    };
    let once = sizes("once");
    assert_eq!(sizes("again"), once);
    let all: Vec<u64> = once
        .iter()
        .map(|line| {
            line.rsplit(' ')
                .next()
                .expect("a size")
                .parse()
                .expect("a number")
        })
        .collect();
    assert!(all.len() == 200 && all.iter().all(|size| (512..=64 << 10).contains(size)));
    let small = all.iter().filter(|size| **size <= 4 << 10).count();
    assert!(
        (60..140).contains(&small),
        "half of them up to the median, not {small}"
    );
}

/// Failed operations are counted by cause, and don't end the run.
#[test]
fn failures_are_counted_by_their_cause() {
    let (folder, place) = (TempDir::new("metadata"), TempDir::new("metadata-place"));
    // A file of another program has the name of an item.
    let tree = place.join("t/mdtest_tree.0");
    fs::create_dir_all(&tree).expect("a folder");
    fs::write(tree.join("file.mdtest.0.7"), "theirs").expect("a file");
    let directory = place.join("").display().to_string();
    let text = text(
        &directory,
        "items = 10\nfolder = \"t\"\nphases = [\"file-creation\"]",
    );
    let text = text.replace("repetitions = 2", "repetitions = 1");
    let output = run_within(&mut experiment(&folder, &text), 60);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let run = &summary["points"][0]["runs"][0];
    let cause = &run["causes"][0];
    assert_eq!(cause["op"], "create", "{run:#}");
    assert_eq!(cause["count"], 1, "{run:#}");
    let said = cause["cause"].as_str().expect("a cause");
    assert!(said.ends_with("File exists"), "{said}");
    assert_eq!(run["ops"][0]["completed"], 9, "{run:#}");
}

/// The folder of the server, as a URL.
fn folder_url(server: &Server) -> String {
    let export = server.export();
    format!(
        "nfs://127.0.0.1:{NFS_PORT}{}/?mountport={MOUNT_PORT}",
        export.display()
    )
}

#[test]
fn phases_on_ganesha_count_the_same() {
    let Some(server) = Server::within("metadata::phases_on_ganesha_count_the_same") else {
        return;
    };
    let url = folder_url(&server);
    assert_eq!(completed(&measured(&text(&url, SMALL))), expected(2));
    let left = find(&server.export(), &["-mindepth", "1"]);
    assert!(left.is_empty(), "{left:?}");
    let more = format!(
        "{SMALL}\nkeep = true\nfolder = \"kept\"\nphases = [\"file-creation\"]\nfsync = true"
    );
    measured(&text(&url, &more));
    check_files(&server.export().join("kept"), 2);
    let data = fs::read(server.export().join("kept/mdtest_tree.0/file.mdtest.1.4")).expect("data");
    assert!(data.iter().any(|byte| *byte != 0));
    // A directory whose listing takes several replies.
    let more = "items = 3000\nphases = [\"readdir\"]";
    let listed = completed(&measured(&text(&url, more)));
    assert_eq!(listed["readdir"], [("read-directory".to_string(), 1)]);
}

/// Hosts share the directories; each worker on each host has its own number.
#[test]
fn hosts_create_files_in_the_same_directories_of_ganesha() {
    let Some(server) =
        Server::within("metadata::hosts_create_files_in_the_same_directories_of_ganesha")
    else {
        return;
    };
    let folder = TempDir::new("metadata");
    let hosts = host_by_ssh(&folder.join(""), "a", 0) + &host_by_ssh(&folder.join(""), "b", 0);
    let hosted = |more: &str| {
        let more = format!("{SMALL}\nhosts = [\"a\", \"b\"]\n{more}\n{hosts}");
        let text = text(&folder_url(&server), &more);
        let text = text.replacen("[metadata", "host_silence = \"60s\"\n[metadata", 1);
        let out = succeed(&mut experiment(&folder, &text), 60);
        fs::remove_dir_all(folder.join("results")).expect("results");
        completed(&serde_json::from_str(&out).expect("JSON"))
    };
    assert_eq!(hosted(""), expected(4));
    let left = find(&server.export(), &["-mindepth", "1"]);
    assert!(left.is_empty(), "{left:?}");
    hosted("keep = true\nfolder = \"kept\"\nphases = [\"file-creation\"]");
    check_files(&server.export().join("kept"), 4);
}
