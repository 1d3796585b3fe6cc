//! The name of a public type is unique, so that the name alone identifies it.

use std::collections::BTreeMap;

use crate::source::CrateSources;

/// A type definition in a file.
struct Definition {
    /// The file's path below `crates`.
    path: String,
    home: String,
    /// Whether the type is visible to other files of the crate, or to other crates.
    public: bool,
}

/// Names that several types share intentionally.
pub struct Shared {
    /// The start of the types' paths below `crates`.
    pub folder: &'static str,
    /// The names.
    pub names: &'static [&'static str],
    /// How the types can be distinguished.
    pub reason: &'static str,
}

/// Public names with two meanings, and private names that are public elsewhere in their crate, each with the files
/// that define the name. Definitions listed in `shared` are exempt. Also reports names in `shared` that don't need an
/// exemption.
pub fn violations(crates: &[CrateSources], shared: &[Shared]) -> Vec<String> {
    let mut all: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
    for sources in crates {
        for file in &sources.files {
            definitions(
                &file.code.items,
                &sources.path_of(file),
                &sources.name,
                &mut all,
            );
        }
    }
    let mut found: Vec<String> = shared
        .iter()
        .flat_map(|exempt| exempt.names.iter().map(move |name| (exempt.folder, *name)))
        .filter(|(folder, name)| !is_needed(all.get(*name), name, folder, shared))
        .map(|(folder, name)| format!("{name} in {folder} needs no exemption"))
        .collect();
    for (name, definitions) in all {
        let left = definitions
            .iter()
            .filter(|one| !is_exempt(one, &name, shared));
        let definitions: Vec<&Definition> = left.collect();
        if is_shared(&definitions) {
            let paths: Vec<&str> = definitions.iter().map(|one| one.path.as_str()).collect();
            found.push(format!("{name}: {}", paths.join(", ")));
        }
    }
    found
}

/// Whether a definition is exempt.
fn is_exempt(definition: &Definition, name: &str, shared: &[Shared]) -> bool {
    shared
        .iter()
        .any(|exempt| definition.path.starts_with(exempt.folder) && exempt.names.contains(&name))
}

/// Whether a name would violate the rule without its exemption in this folder, given all other exemptions.
fn is_needed(
    definitions: Option<&Vec<Definition>>,
    name: &str,
    folder: &str,
    shared: &[Shared],
) -> bool {
    let left = definitions.into_iter().flatten();
    let left = left.filter(|one| one.path.starts_with(folder) || !is_exempt(one, name, shared));
    is_shared(&left.collect::<Vec<_>>())
}

fn is_shared(definitions: &[&Definition]) -> bool {
    let public = || definitions.iter().filter(|one| one.public);
    let hides = |one: &&Definition| !one.public && public().any(|other| other.home == one.home);
    public().count() > 1 || definitions.iter().any(hides)
}

fn definitions(
    items: &[syn::Item],
    path: &str,
    home: &str,
    all: &mut BTreeMap<String, Vec<Definition>>,
) {
    let mut add = |name: &syn::Ident, visibility: &syn::Visibility| {
        all.entry(name.to_string()).or_default().push(Definition {
            path: path.to_string(),
            home: home.to_string(),
            public: is_public(visibility),
        });
    };
    let mut inner = Vec::new();
    for item in items {
        match item {
            syn::Item::Struct(item) => add(&item.ident, &item.vis),
            syn::Item::Enum(item) => add(&item.ident, &item.vis),
            syn::Item::Trait(item) => add(&item.ident, &item.vis),
            syn::Item::Union(item) => add(&item.ident, &item.vis),
            syn::Item::Type(item) => add(&item.ident, &item.vis),
            syn::Item::Use(item) if is_public(&item.vis) => {
                let mut renamed = Vec::new();
                renames(&item.tree, &mut renamed);
                let types = renamed.iter().filter(|name| is_type_name(name));
                types.for_each(|name| add(name, &item.vis));
            }
            syn::Item::Mod(syn::ItemMod {
                content: Some((_, items)),
                ..
            }) => inner.push(items),
            _ => {}
        }
    }
    for items in inner {
        definitions(items, path, home, all);
    }
}

/// `pub` and `pub(crate)`; `pub(super)` and `pub(in …)` count as private, because they only reach a part of the crate.
fn is_public(visibility: &syn::Visibility) -> bool {
    match visibility {
        syn::Visibility::Public(_) => true,
        syn::Visibility::Restricted(to) => to.path.is_ident("crate"),
        syn::Visibility::Inherited => false,
    }
}

/// The new names in `use a::{B as C}`.
fn renames<'a>(tree: &'a syn::UseTree, found: &mut Vec<&'a syn::Ident>) {
    match tree {
        syn::UseTree::Path(path) => renames(&path.tree, found),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| renames(tree, found)),
        syn::UseTree::Rename(rename) => found.push(&rename.rename),
        _ => {}
    }
}

fn is_type_name(name: &syn::Ident) -> bool {
    let name = name.to_string();
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], shared: &[Shared]) -> Vec<String> {
        let crates: Vec<CrateSources> = files
            .iter()
            .map(|(path, text)| {
                let (name, path) = path.split_once('/').unwrap();
                (name, path, text)
            })
            .fold(BTreeMap::new(), |mut all, (name, path, text)| {
                let files: &mut Vec<(String, String)> = all.entry(name).or_default();
                files.push((path.to_string(), text.to_string()));
                all
            })
            .into_iter()
            .map(|(name, files)| CrateSources::parse(name, files))
            .collect();
        violations(&crates, shared)
    }

    #[test]
    fn two_public_types_of_one_name_are_found() {
        let check = |a: &str, b: &str| {
            let found = found(&[("a/x.rs", a), ("brunt-probe/y.rs", b)], &[]);
            assert_eq!(
                found,
                ["Place: a/src/x.rs, brunt-probe/src/y.rs"],
                "{a} {b}"
            );
        };
        check("pub struct Place;", "pub(crate) enum Place {}");
        check("pub struct Place<T>(T);", "pub trait Place {}");
        check(
            "pub type Place = u8;",
            "pub mod inner { pub union Place { x: u8 } }",
        );
        check("pub struct Place;", "pub use x::{Other as Place};");
        check(
            "#[cfg(test)] mod tests;\npub struct Place;",
            "pub struct Place;",
        );
    }

    #[test]
    fn a_private_type_may_not_hide_a_public_one_of_its_crate() {
        let hidden = [
            ("a/x.rs", "pub struct Place;"),
            ("a/y.rs", "pub(super) type Place = u8;"),
        ];
        assert_eq!(found(&hidden, &[]), ["Place: a/src/x.rs, a/src/y.rs"]);
        let apart = [("a/x.rs", "pub struct Place;"), ("b/y.rs", "struct Place;")];
        assert!(found(&apart, &[]).is_empty());
        let private = [("a/x.rs", "struct Place;"), ("a/y.rs", "struct Place;")];
        assert!(found(&private, &[]).is_empty());
    }

    #[test]
    fn an_exemption_covers_its_names_in_its_folder_and_must_be_needed() {
        let files = [
            ("a/commands/x.rs", "pub struct Args; pub struct Place;"),
            ("a/commands/y.rs", "pub struct Args; pub struct Place;"),
            ("a/z.rs", "pub struct Other;"),
        ];
        let exempt = |names| {
            [Shared {
                folder: "a/src/commands/",
                names,
                reason: "named with their module",
            }]
        };
        assert_eq!(
            found(&files, &exempt(&["Args"])),
            ["Place: a/src/commands/x.rs, a/src/commands/y.rs"]
        );
        assert_eq!(
            found(&files, &exempt(&["Args", "Place", "Other"])),
            ["Other in a/src/commands/ needs no exemption"]
        );
    }
}
