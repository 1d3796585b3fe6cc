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

/// `unsafe` is denied in `brunt-block`; the modules that own some say so, with their reason, and no others
/// have any.
#[test]
fn unsafe_stands_in_the_modules_that_own_it() {
    let src = crates().join("brunt-block/src");
    let files = sources(&src);
    let text = |name: &str| &files.iter().find(|(path, _)| *path == src.join(name)).unwrap().1;
    assert!(text("lib.rs").contains("#![deny(unsafe_code)]"));
    let mut allowed = Vec::new();
    for (folder, declares) in [("", "lib.rs"), ("backends", "backends/mod.rs")] {
        let lines: Vec<&str> = text(declares).lines().collect();
        for pair in lines.windows(2) {
            if pair[0].contains("allow(unsafe_code") {
                assert!(pair[0].contains("reason = \""), "{declares}: {}", pair[0]);
                let name = pair[1].trim_end_matches(';').rsplit(' ').next().unwrap();
                allowed.push(src.join(folder).join(format!("{name}.rs")));
            }
        }
    }
    assert!(allowed.len() >= 4, "{allowed:?}");
    for (path, text) in &files {
        let allows = has_word(text, "unsafe_code");
        assert!(
            !allows || path.ends_with("lib.rs") || path.ends_with("backends/mod.rs"),
            "{}",
            path.display()
        );
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
