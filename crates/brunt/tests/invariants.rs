//! The rules of ARCHITECTURE.md that a source can be held to: who depends on whom, and where `unsafe` stands.

use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The Rust files below a folder, with their text without comments.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
            found.push((path, text.lines().map(code).collect::<Vec<_>>().join("\n")));
        }
    }
    found
}

/// Whether a text has a word by itself.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|one: char| !one.is_alphanumeric() && one != '_').any(|one| one == word)
}

#[test]
fn brunt_block_knows_no_protocol() {
    let manifest = std::fs::read_to_string(crates().join("brunt-block/Cargo.toml")).unwrap();
    for name in ["brunt-wire", "brunt-iscsi"] {
        assert!(!manifest.contains(name), "brunt-block depends on {name}");
    }
    for (path, text) in sources(&crates().join("brunt-block/src")) {
        let names_one =
            ["brunt_wire", "brunt_iscsi", "scsi", "iscsi"].iter().any(|word| has_word(&text, word));
        assert!(!names_one, "{} names a protocol", path.display());
    }
}

/// `unsafe` is denied in crates that need some; the modules that own it say so, with their reason, and no others
/// have any.
#[test]
fn unsafe_stands_in_the_modules_that_own_it() {
    check_unsafe("brunt-block", &["", "backends"], 4);
    check_unsafe("brunt-lab", &[""], 1);
}

/// Whether `unsafe` of a crate stands only in modules that the `lib.rs` or `mod.rs` of one of these folders allows it,
/// which are at least so many.
fn check_unsafe(name: &str, folders: &[&str], modules_min: usize) {
    let src = crates().join(name).join("src");
    let files = sources(&src);
    let text = |path: &Path| &files.iter().find(|(other, _)| other == path).unwrap().1;
    let declares = |folder: &&str| match *folder {
        "" => src.join("lib.rs"),
        folder => src.join(folder).join("mod.rs"),
    };
    let declaring: Vec<PathBuf> = folders.iter().map(declares).collect();
    assert!(text(&src.join("lib.rs")).contains("#![deny(unsafe_code)]"), "{name}");
    let mut allowed = Vec::new();
    for path in &declaring {
        let lines: Vec<&str> = text(path).lines().collect();
        for pair in lines.windows(2) {
            if pair[0].contains("allow(unsafe_code") {
                assert!(pair[0].contains("reason = \""), "{}: {}", path.display(), pair[0]);
                let module = pair[1].trim_end_matches(';').rsplit(' ').next().unwrap();
                allowed.push(path.with_file_name(format!("{module}.rs")));
            }
        }
    }
    assert!(allowed.len() >= modules_min, "{allowed:?}");
    for (path, text) in &files {
        assert!(!has_word(text, "unsafe_code") || declaring.contains(path), "{}", path.display());
        let owns = allowed.iter().any(|module| path == module || path.starts_with(module.with_extension("")));
        assert!(owns || !has_word(text, "unsafe"), "unsafe code in {}", path.display());
    }
    for module in allowed {
        let owner = |(path, text): &(PathBuf, String)| {
            (*path == module || path.starts_with(module.with_extension(""))) && has_word(text, "unsafe")
        };
        assert!(files.iter().any(owner), "{} is allowed unsafe code and has none", module.display());
    }
}

/// Crates that need no `unsafe` forbid it.
#[test]
fn other_crates_forbid_unsafe() {
    for name in ["actors", "bench", "fio", "iscsi", "lake", "load", "report", "result", "study", "wire"] {
        let name = format!("brunt-{name}");
        let lib = std::fs::read_to_string(crates().join(&name).join("src/lib.rs")).unwrap();
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{name}");
    }
}

/// All crates that a crate of ours needs to be built, without those of its tests, by their names.
fn needed_by(name: &str) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(crates().join("../Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let packages = list(&metadata["packages"]);
    let id_of = |name: &str| text(&packages.iter().find(|one| one["name"] == name).expect(name)["id"]);
    let nodes = list(&metadata["resolve"]["nodes"]);
    let (mut open, mut seen) = (vec![id_of(name)], Vec::new());
    while let Some(id) = open.pop() {
        if seen.contains(&id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id.as_str()).expect("a node");
        for needed in list(&node["deps"]) {
            // Without a kind it is an ordinary dependency; the others are for tests and build scripts.
            if list(&needed["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&needed["pkg"]));
            }
        }
        seen.push(id);
    }
    let name_of =
        |id: &String| text(&packages.iter().find(|one| one["id"] == id.as_str()).expect("a package")["name"]);
    seen.iter().map(name_of).collect()
}

/// Who reads results needs no engine that makes them: no ring, no lab, no capture.
#[test]
fn results_and_reports_need_no_engine() {
    let engines = [
        "io-uring",
        "brunt-block",
        "brunt-capture",
        "brunt-iscsi",
        "brunt-lab",
        "brunt-load",
        "brunt-probe",
        "brunt-study",
    ];
    for name in ["brunt-result", "brunt-report"] {
        let needed = needed_by(name);
        assert!(needed.iter().any(|one| one == "brunt-lake"), "{name}: {needed:?}");
        let found: Vec<&String> = needed.iter().filter(|one| engines.contains(&one.as_str())).collect();
        assert!(found.is_empty(), "{name} needs {found:?}");
    }
}
