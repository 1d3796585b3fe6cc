//! Names of types: a struct, enum, trait, union or alias for each meaning. The rule is in `docs/style.md`.

use std::collections::BTreeMap;

/// A type, its crate, and whether other files of the crate, or other crates, can name it.
struct Definition<'a> {
    name: &'a str,
    home: &'a str,
    public: bool,
}

/// Folders whose types are called after the entry of a table or the version of a protocol that they belong to, and are
/// named with their module: a subcommand's arguments, a probe, a kind of fault, `v3::Args` and `v4::Args`.
const NAMED_AFTER_THEIR_ENTRY: &[&str] = &[
    "brunt/src/commands/",
    "brunt-probe/src/",
    "brunt-study/src/fault/kinds/",
    "brunt-wire/src/nfs/",
];

/// Public names with two meanings, and private names that are public ones elsewhere in their crate; with each
/// the crates that have it.
pub fn shared(sources: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let sources = sources.iter().filter(|(path, _)| {
        !NAMED_AFTER_THEIR_ENTRY
            .iter()
            .any(|head| path.starts_with(head))
    });
    let mut by_name: BTreeMap<&str, Vec<Definition<'_>>> = BTreeMap::new();
    for definition in sources.flat_map(|(path, text)| definitions(path, text)) {
        by_name.entry(definition.name).or_default().push(definition);
    }
    let is_shared = |all: &[Definition<'_>]| {
        let public = || all.iter().filter(|one| one.public);
        let hides =
            |one: &Definition<'_>| !one.public && public().any(|other| other.home == one.home);
        public().count() > 1 || all.iter().any(hides)
    };
    let shared = by_name.into_iter().filter(|(_, all)| is_shared(all));
    shared
        .map(|(name, all)| {
            (
                name.to_string(),
                all.iter().map(|one| one.home.to_string()).collect(),
            )
        })
        .collect()
}

/// The types that stand at the left edge of a file; those of functions and macros are left out.
fn definitions<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = Definition<'a>> {
    let home = path.split('/').next().unwrap_or_default();
    text.lines().filter_map(move |line| {
        let (public, item) = match line
            .strip_prefix("pub ")
            .or_else(|| line.strip_prefix("pub(crate) "))
        {
            Some(item) => (true, item),
            None => (
                false,
                line.strip_prefix("pub(")
                    .and_then(|rest| rest.split_once(") "))
                    .map_or(line, |one| one.1),
            ),
        };
        let (keyword, rest) = item.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "union", "type"].contains(&keyword);
        let name = rest
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .next()?;
        is_type.then_some(Definition { name, home, public })
    })
}

#[test]
fn names_are_found_whoever_may_see_them() {
    let of = |files: &[(&str, &str)]| {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect();
        shared(&files).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(
        of(&[
            ("a/src/x.rs", "pub struct Place {\n"),
            ("b/src/y.rs", "pub(crate) enum Place {\n")
        ]),
        ["Place"]
    );
    assert_eq!(
        of(&[
            ("a/src/x.rs", "pub struct Place;\n"),
            ("a/src/y.rs", "pub(super) type Place = u8;\n")
        ]),
        ["Place"]
    );
    assert!(
        of(&[
            ("a/src/x.rs", "struct Slot;\n"),
            ("a/src/y.rs", "struct Slot;\n")
        ])
        .is_empty()
    );
    assert!(
        of(&[
            ("a/src/x.rs", "pub struct Slot;\n"),
            ("b/src/y.rs", "struct Slot;\n")
        ])
        .is_empty()
    );
}
