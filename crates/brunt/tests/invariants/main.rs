//! The rules of ARCHITECTURE.md that a source can be held to: who depends on whom, where `unsafe` stands, how errors
//! are typed, how long files and functions are.
//!
//! The rules hold everywhere. One of them has an exception, with its reason beside it; a test fails when that no longer
//! applies.

mod circles;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
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
    text.split(|one: char| !one.is_alphanumeric() && one != '_')
        .any(|one| one == word)
}

#[test]
fn brunt_block_knows_no_protocol() {
    let manifest = std::fs::read_to_string(crates().join("brunt-block/Cargo.toml")).unwrap();
    for name in ["brunt-wire", "brunt-iscsi"] {
        assert!(!manifest.contains(name), "brunt-block depends on {name}");
    }
    for (path, text) in sources(&crates().join("brunt-block/src")) {
        let names_one = ["brunt_wire", "brunt_iscsi", "scsi", "iscsi"]
            .iter()
            .any(|word| has_word(&text, word));
        assert!(!names_one, "{} names a protocol", path.display());
    }
}

/// `unsafe` is denied in crates that need some; the modules that own it say so, with their reason, and no others
/// have any.
#[test]
fn unsafe_stands_in_the_modules_that_own_it() {
    check_unsafe("brunt-block", &["", "backends"], 4);
    check_unsafe("brunt-lab", &[""], 1);
    check_unsafe("brunt-store", &["", "library", "rbd", "gluster"], 4);
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
    assert!(
        text(&src.join("lib.rs")).contains("#![deny(unsafe_code)]"),
        "{name}"
    );
    let mut allowed = Vec::new();
    for path in &declaring {
        let lines: Vec<&str> = text(path).lines().collect();
        for pair in lines.windows(2) {
            if pair[0].contains("allow(unsafe_code") {
                assert!(
                    pair[0].contains("reason = \""),
                    "{}: {}",
                    path.display(),
                    pair[0]
                );
                let module = pair[1].trim_end_matches(';').rsplit(' ').next().unwrap();
                allowed.push(path.with_file_name(format!("{module}.rs")));
            }
        }
    }
    assert!(allowed.len() >= modules_min, "{allowed:?}");
    for (path, text) in &files {
        assert!(
            !has_word(text, "unsafe_code") || declaring.contains(path),
            "{}",
            path.display()
        );
        let owns = allowed
            .iter()
            .any(|module| path == module || path.starts_with(module.with_extension("")));
        assert!(
            owns || !has_word(text, "unsafe"),
            "unsafe code in {}",
            path.display()
        );
    }
    for module in allowed {
        let owner = |(path, text): &(PathBuf, String)| {
            (*path == module || path.starts_with(module.with_extension("")))
                && has_word(text, "unsafe")
        };
        assert!(
            files.iter().any(owner),
            "{} is allowed unsafe code and has none",
            module.display()
        );
    }
}

/// Crates that need no `unsafe` forbid it.
#[test]
fn other_crates_forbid_unsafe() {
    for name in [
        "actors", "bench", "fio", "host", "iscsi", "lake", "load", "report", "result", "study",
        "web", "wire",
    ] {
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
        .args([
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
            "--manifest-path",
        ])
        .arg(crates().join("../Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let packages = list(&metadata["packages"]);
    let id_of =
        |name: &str| text(&packages.iter().find(|one| one["name"] == name).expect(name)["id"]);
    let nodes = list(&metadata["resolve"]["nodes"]);
    let (mut open, mut seen) = (vec![id_of(name)], Vec::new());
    while let Some(id) = open.pop() {
        if seen.contains(&id) {
            continue;
        }
        let node = nodes
            .iter()
            .find(|node| node["id"] == id.as_str())
            .expect("a node");
        for needed in list(&node["deps"]) {
            // Without a kind it is an ordinary dependency; the others are for tests and build scripts.
            if list(&needed["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
            {
                open.push(text(&needed["pkg"]));
            }
        }
        seen.push(id);
    }
    let name_of = |id: &String| {
        text(
            &packages
                .iter()
                .find(|one| one["id"] == id.as_str())
                .expect("a package")["name"],
        )
    };
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
        assert!(
            needed.iter().any(|one| one == "brunt-lake"),
            "{name}: {needed:?}"
        );
        let found: Vec<&String> = needed
            .iter()
            .filter(|one| engines.contains(&one.as_str()))
            .collect();
        assert!(found.is_empty(), "{name} needs {found:?}");
    }
}

/// Code that ships: the sources of all crates without comments and tests, by their path below `crates/`.
fn shipped() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates()).unwrap() {
        let src = entry.unwrap().path().join("src");
        if src.is_dir() {
            found.extend(sources(&src));
        }
    }
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let mut found: Vec<(String, String)> = found
        .into_iter()
        .map(|(path, text)| {
            let path = path.strip_prefix(crates()).unwrap().display().to_string();
            let tests = ["", "pub ", "pub(crate) "]
                .map(|seen| text.find(&format!("#[cfg(test)]\n{seen}mod tests")));
            let end = tests.into_iter().flatten().min().unwrap_or(text.len());
            (path, text[..end].to_string())
        })
        .filter(|(path, _)| !is_test(path))
        .collect();
    found.sort();
    found
}

/// The crates in the order of the table in ARCHITECTURE.md, from the command line down.
fn order() -> Vec<String> {
    let page = std::fs::read_to_string(crates().join("../ARCHITECTURE.md")).unwrap();
    let names = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `brunt")?.split_once('`'));
    names.map(|(name, _)| format!("brunt{name}")).collect()
}

/// The dependencies of each crate of the workspace, tests' left out.
fn dependencies() -> Vec<(String, Vec<String>)> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(crates())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_string();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap().iter();
            (
                name(package),
                all.filter(|one| one["kind"] != "dev").map(name).collect(),
            )
        })
        .collect()
}

#[test]
fn a_crate_knows_only_those_below_it() {
    let order = order();
    let place = |name: &str| order.iter().position(|known| known == name);
    for (name, dependencies) in dependencies() {
        let own = place(&name)
            .unwrap_or_else(|| panic!("the table of ARCHITECTURE.md has no line for {name}"));
        for other in dependencies
            .iter()
            .filter(|other| other.starts_with("brunt"))
        {
            assert!(
                place(other) > Some(own),
                "{name} depends on {other}, which does not stand below it"
            );
        }
    }
}

#[test]
fn a_library_has_one_crate_that_knows_it() {
    for (library, owners) in [
        ("parquet", &["brunt-lake"][..]),
        ("maud", &["brunt-report"]),
        ("axum", &["brunt-web"]),
        ("hyper", &["brunt-web"]),
        // The second one behind its feature `s3`, for a library that is asynchronous.
        ("tokio", &["brunt-web", "brunt-remote"]),
        ("object_store", &["brunt-remote"]),
        ("reqwest", &["brunt-remote"]),
    ] {
        for (name, dependencies) in dependencies() {
            let knows = dependencies.iter().any(|other| other == library);
            assert!(
                !knows || owners.contains(&name.as_str()),
                "{name} depends on {library}"
            );
        }
    }
}

#[test]
fn plain_data_and_parsers_do_no_io() {
    let wire = [
        "std::net::T",
        "std::net::U",
        "std::fs",
        "std::thread",
        "std::process",
        "Instant",
        "SystemTime",
    ];
    let result = [
        "std::net",
        "std::thread",
        "std::process",
        "io_uring",
        "rustix",
        "libc",
    ];
    for (path, text) in shipped() {
        let banned = match path.split('/').next().unwrap() {
            "brunt-wire" => &wire[..],
            "brunt-result" => &result[..],
            _ => continue,
        };
        for word in banned {
            assert!(!text.contains(word), "{path} uses {word}");
        }
    }
}

/// The last argument of each `Result<…>` in a text.
fn errors_of(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices("Result<") {
        let inside = &text[start + "Result<".len()..];
        let (mut depth, mut last) = (1, 0);
        for (at, c) in inside.char_indices() {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if inside[..at].ends_with('-') => {}
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 1 => last = at + 1,
                _ => {}
            }
            if depth == 0 {
                if last > 0 {
                    found.push(inside[last..at].trim());
                }
                break;
            }
        }
    }
    found
}

#[test]
fn errors_have_types() {
    for (path, text) in shipped() {
        assert!(
            !errors_of(&text).contains(&"String"),
            "{path}: no function returns Result<_, String>"
        );
    }
}

#[test]
fn nothing_is_decided_by_the_text_of_a_message() {
    let messages = [
        "why",
        "note",
        "message",
        "error",
        "error.to_string()",
        "note.as_str()",
        "reason",
    ];
    let tests = [
        "starts_with(\"",
        "contains(\"",
        "ends_with(\"",
        "strip_prefix(\"",
    ];
    let mut broken = BTreeSet::new();
    for (path, text) in shipped() {
        for pattern in messages
            .iter()
            .flat_map(|message| tests.map(|test| format!("{message}.{test}")))
        {
            let stands_alone =
                |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if text.match_indices(&pattern).any(|(at, _)| stands_alone(at)) {
                broken.insert(path.clone());
            }
        }
    }
    // serde gives unknown and missing fields as text only; what follows from it is a hint for people and nothing else.
    let exempt = BTreeSet::from(["brunt-study/src/experiment/mistake.rs".to_string()]);
    assert_eq!(broken, exempt, "no code decides by the text of a message");
}

/// The most lines of a file, of a function, and of one that says why it is long.
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const FUNCTION_LINES_MAX_WITH_REASON: usize = 100;

/// Whether a comment above a function, or within its head, says why it is long: "Long because".
fn says_why_it_is_long(lines: &[&str], first: usize) -> bool {
    let is_above =
        |line: &&&str| line.trim_start().starts_with("//") || line.trim_start().starts_with("#[");
    let above = lines[..first].iter().rev().take_while(is_above).count();
    let head = lines[first..]
        .iter()
        .position(|line| line.ends_with('{'))
        .unwrap_or(0);
    let within = lines[first + head + 1..]
        .iter()
        .take_while(|line| line.trim_start().starts_with("//"))
        .count();
    let said = &lines[first - above..=first + head + within];
    said.iter().any(|line| line.contains("Long because"))
}

#[test]
fn files_and_functions_are_short() {
    let (mut files, mut functions) = (BTreeSet::new(), BTreeSet::new());
    for (path, code) in shipped() {
        let text = std::fs::read_to_string(crates().join(&path)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX {
            files.insert(path.clone());
        }
        // Tests may be as long as what they list.
        for (first, line) in lines.iter().enumerate().take(code.lines().count()) {
            let code = line.trim_start();
            let Some((before, name)) = code.split_once("fn ") else {
                continue;
            };
            let is_item = before.split_whitespace().all(|word| {
                ["pub", "const", "async", "unsafe", "extern", "\"C\""].contains(&word)
                    || word.starts_with("pub(")
            });
            let head = lines[first..]
                .iter()
                .find(|line| line.ends_with(['{', '}', ';']));
            if !is_item || head.is_some_and(|head| head.ends_with(';')) {
                continue;
            }
            // As rustfmt leaves it, a function ends at the first brace that stands where it began.
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[first..]
                .iter()
                .position(|line| *line == end)
                .map_or(1, |last| last + 1);
            let most = match says_why_it_is_long(&lines, first) {
                true => FUNCTION_LINES_MAX_WITH_REASON,
                false => FUNCTION_LINES_MAX,
            };
            if length > most && !lines[first].ends_with('}') {
                let name = name.split(['(', '<']).next().unwrap();
                functions.insert(format!("{path} {name}"));
            }
        }
    }
    let found: BTreeSet<String> = files.into_iter().chain(functions).collect();
    let exempt = include_str!("long.txt").lines().map(str::to_string);
    let exempt: BTreeSet<String> = exempt.filter(|line| !line.starts_with('#')).collect();
    let new: Vec<_> = found.difference(&exempt).collect();
    assert!(
        new.is_empty(),
        "no file has more than 800 lines, and no function more than 70, or 100 where a comment says \"Long because\" \
         and why: {new:#?}"
    );
    let gone: Vec<_> = exempt.difference(&found).collect();
    assert!(
        gone.is_empty(),
        "short enough now, to be taken off long.txt: {gone:#?}"
    );
}

/// The most files that may import each other in a circle.
const CIRCLE_FILES_MAX: usize = 5;

#[test]
fn import_circles_are_small() {
    let mut by_crate: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in shipped() {
        let (name, below) = path.split_once("/src/").unwrap();
        by_crate
            .entry(name.to_string())
            .or_default()
            .push((below.to_string(), text));
    }
    assert!(by_crate.len() > 10, "all crates");
    let found = |name: &str| circles::circles(&by_crate[name]);
    assert!(
        by_crate.keys().any(|name| !found(name).is_empty()),
        "some files do import each other"
    );
    for name in by_crate.keys() {
        let wide: Vec<_> = found(name)
            .into_iter()
            .filter(|circle| circle.len() > CIRCLE_FILES_MAX)
            .collect();
        assert!(
            wide.is_empty(),
            "{name}: more than {CIRCLE_FILES_MAX} files import each other: {wide:#?}"
        );
    }
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let shared = names::shared(&shipped());
    assert!(
        shared.is_empty(),
        "public types of two meanings share a name, or a private type hides a public one of its crate \
         (docs/style.md, Names): {shared:#?}"
    );
}
