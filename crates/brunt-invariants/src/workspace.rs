//! Reads the workspace from disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::layers::Dependencies;
use crate::source::CrateSources;

/// The workspace's root folder.
pub fn root() -> PathBuf {
    // Read at run time, because worktrees that share a target folder may run a build made in another worktree.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..")
}

/// The sources of all crates of the workspace.
///
/// # Panics
/// A file can't be read or parsed.
pub fn crates() -> Vec<CrateSources> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root().join("crates"))
        .expect("the folder of crates")
        .map(|entry| entry.expect("an entry").path())
        .filter(|folder| folder.join("src").is_dir())
        .collect();
    folders.sort();
    let parse = |folder: PathBuf| {
        let mut files = Vec::new();
        read(&folder.join("src"), &folder.join("src"), &mut files);
        let name = folder.file_name().expect("a name").to_string_lossy();
        CrateSources::parse(&name, files)
    };
    folders.into_iter().map(parse).collect()
}

fn read(folder: &Path, src: &Path, files: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read(&path, src, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).expect("below src");
            let text = std::fs::read_to_string(&path).expect("a source");
            files.push((name.to_string_lossy().into(), text));
        }
    }
}

/// The dependencies declared by the workspace's crates, and those of all crates in a default build on Linux.
pub struct Metadata {
    /// The declared dependencies of the workspace's crates, including optional ones.
    pub declared: Dependencies,
    /// The dependencies of all crates, including third-party ones, with default features.
    pub resolved: Dependencies,
}

/// Runs `cargo metadata`.
///
/// # Panics
/// cargo fails.
pub fn metadata() -> Metadata {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: BTreeMap<&str, &str> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let members: BTreeSet<&str> = list(&metadata["workspace_members"])
        .iter()
        .map(text)
        .collect();
    let mut found = Metadata {
        declared: Dependencies::new(),
        resolved: Dependencies::new(),
    };
    for package in list(&metadata["packages"]) {
        if members.contains(text(&package["id"])) {
            let all = list(&package["dependencies"]).iter();
            let shipped = all.filter(|one| one["kind"] != "dev");
            let needed = shipped.map(|one| text(&one["name"]).to_string()).collect();
            found.declared.insert(text(&package["name"]).into(), needed);
        }
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        // Ordinary dependencies have no kind; those with a kind are for tests or build scripts.
        let is_shipped = |one: &&Value| {
            list(&one["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
        };
        let needed = list(&node["deps"]).iter().filter(is_shipped);
        let needed: Vec<String> = needed
            .map(|one| names[text(&one["pkg"])].to_string())
            .collect();
        let name = names[text(&node["id"])].to_string();
        found.resolved.entry(name).or_default().extend(needed);
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// All files in these folders of the repository, recursively, as paths from the root with `/` as the separator. ""
/// means the files directly in the root.
///
/// # Panics
/// A folder can't be read.
pub fn files(folders: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = folders.iter().map(ToString::to_string).collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().expect("its type").is_dir();
            match (folder.as_str(), is_folder) {
                ("", true) => {}
                ("", false) => drop(found.insert(name)),
                // Results of examples and Python's cache are never committed.
                (_, true) if name.ends_with(".results") || name == "__pycache__" => {}
                (folder, true) => open.push(format!("{folder}/{name}")),
                (folder, false) => drop(found.insert(format!("{folder}/{name}"))),
            }
        }
    }
    found
}
