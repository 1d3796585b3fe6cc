//! Import cycles: files of a crate that reach each other through the paths that they name.
//!
//! A path leads to the file of the deepest module that it names, including that of a child named by its parent; a path
//! to a re-exported name leads to the file that defines it. The crate's root is excluded, because it names every
//! module. Only paths are followed, not types: method calls create no edges.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{NamedPaths, UseLeaf};
use crate::source::{CrateSources, Module};

/// Maximum number of re-export levels that are followed.
const RE_EXPORTS_MAX: usize = 8;

/// The cycles of a crate, each as its modules in order (`dissect::rpc`), longest first.
pub fn cycles(sources: &CrateSources) -> Vec<Vec<String>> {
    let files = Files::new(sources);
    let edges: BTreeMap<&Module, BTreeSet<&Module>> = files
        .named
        .iter()
        .filter(|(module, _)| !module.is_empty())
        .map(|(module, named)| (module, files.reached(module, named)))
        .collect();
    let ahead: BTreeMap<&Module, BTreeSet<&Module>> = edges
        .keys()
        .map(|module| (*module, reachable(&edges, module)))
        .collect();
    let mut open: BTreeSet<&Module> = edges.keys().copied().collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    while let Some(module) = open.pop_first() {
        let others = ahead[module].iter().copied();
        let cycle: Vec<&Module> = others
            .filter(|other| *other != module && ahead[other].contains(module))
            .collect();
        open.retain(|other| !cycle.contains(other));
        if !cycle.is_empty() {
            let all = std::iter::once(module).chain(cycle);
            let mut names: Vec<String> = all.map(|names| names.join("::")).collect();
            names.sort();
            found.push(names);
        }
    }
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    found
}

/// Lists the cycles of more than `files_max` files; `found` has all cycles with the names of their crates.
pub fn violations(found: &[(String, Vec<String>)], files_max: usize) -> Vec<String> {
    found
        .iter()
        .filter(|(_, cycle)| cycle.len() > files_max)
        .map(|(name, cycle)| {
            let files = cycle.join(" ");
            format!("{name}: {} files import each other: {files}", cycle.len())
        })
        .collect()
}

fn reachable<'a>(
    edges: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
    from: &'a Module,
) -> BTreeSet<&'a Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in &edges[module] {
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    seen
}

/// The files of a crate by module, and the origin of each re-exported name.
struct Files {
    named: BTreeMap<Module, NamedPaths>,
    re_exports: BTreeMap<Module, Module>,
    /// For `pub use inner::*`: the re-exporting module, and the module whose names it re-exports.
    globs: Vec<(Module, Module)>,
    items: BTreeSet<Module>,
}

impl Files {
    fn new(sources: &CrateSources) -> Files {
        // `main.rs` next to a library is a separate crate, which refers to the library by name.
        let library = sources
            .files
            .iter()
            .filter(|file| file.path != "main.rs" || sources_is_program(sources));
        let named: BTreeMap<Module, NamedPaths> = library
            .map(|file| (file.module.clone(), NamedPaths::of(file)))
            .collect();
        let items = named.values().flat_map(|one| one.items.clone()).collect();
        let mut files = Files {
            named,
            re_exports: BTreeMap::new(),
            globs: Vec::new(),
            items,
        };
        let public: Vec<UseLeaf> = files
            .named
            .values()
            .flat_map(|named| named.imports.iter().filter(|one| one.public).cloned())
            .collect();
        for import in public {
            let Some(home) = files.absolute(&import.path, &import.module) else {
                continue;
            };
            match home.split_last() {
                Some((last, module)) if last == "*" => {
                    files.globs.push((import.module, module.to_vec()));
                }
                _ => {
                    let name = [&import.module[..], &[import.name]].concat();
                    files.re_exports.insert(name, home);
                }
            }
        }
        files
    }

    /// The files that a file reaches, except for itself and the crate's root.
    fn reached(&self, module: &Module, named: &NamedPaths) -> BTreeSet<&Module> {
        let imported: BTreeMap<&str, &UseLeaf> = named
            .imports
            .iter()
            .map(|import| (import.name.as_str(), import))
            .collect();
        let imports = named
            .imports
            .iter()
            .filter(|import| !import.public)
            .filter_map(|import| self.absolute(&import.path, &import.module));
        let paths = named.paths.iter().filter_map(|(inside, path)| {
            let through = imported.get(path[0].as_str()).and_then(|import| {
                let home = self.absolute(&import.path, &import.module)?;
                Some([&home[..], &path[1..]].concat())
            });
            through.or_else(|| self.absolute(path, inside))
        });
        imports
            .chain(paths)
            .filter_map(|path| self.file_of(path, RE_EXPORTS_MAX))
            .filter(|file| *file != module && !file.is_empty())
            .collect()
    }

    /// A path relative to the root of the crate; `None` if the path leaves the crate.
    fn absolute(&self, path: &[String], module: &[String]) -> Option<Module> {
        let up = path.iter().take_while(|name| *name == "super").count();
        let relative = match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => [module, &path[1..]].concat(),
            "super" => [module.get(..module.len().checked_sub(up)?)?, &path[up..]].concat(),
            _ => [module, path].concat(),
        };
        let first = &relative[..(module.len() - up + 1).min(relative.len())];
        let is_known = self.named.contains_key(first) || self.items.contains(first);
        (up > 0 || path[0] == "self" || is_known).then_some(relative)
    }

    fn file_of(&self, path: Module, depth: usize) -> Option<&Module> {
        let (known, _) = (0..=path.len())
            .rev()
            .find_map(|end| self.named.get_key_value(&path[..end]))?;
        let Some(name) = path.get(..known.len() + 1).filter(|_| depth > 0) else {
            return Some(known);
        };
        if let Some(home) = self.re_exports.get(name).filter(|home| home[..] != *name) {
            return self.file_of([home, &path[name.len()..]].concat(), depth - 1);
        }
        if !self.items.contains(name) {
            let globs = self.globs.iter().filter(|(module, _)| module == known);
            let mut names = globs.map(|(_, home)| [home, &path[known.len()..]].concat());
            let defined = |path: &Module| {
                let (file, _) = (0..=path.len())
                    .rev()
                    .find_map(|end| self.named.get_key_value(&path[..end]))?;
                let name = path.get(..file.len() + 1)?;
                (self.items.contains(name) || self.re_exports.contains_key(name)).then_some(())
            };
            if let Some(home) = names.find(|home| defined(home).is_some()) {
                return self.file_of(home, depth - 1);
            }
        }
        Some(known)
    }
}

/// Whether a crate has only a program, no library.
fn sources_is_program(sources: &CrateSources) -> bool {
    !sources.files.iter().any(|file| file.path == "lib.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&[&str]]) {
        let sources = CrateSources::parse("a", files.iter().copied());
        assert_eq!(cycles(&sources), expected, "{files:?}");
    }

    #[test]
    fn a_cycle_is_found_however_it_is_written() {
        let back = "fn f() { crate::a::g() }";
        check(
            &[("a.rs", "use crate::b::B;"), ("b.rs", back)],
            &[&["a", "b"]],
        );
        check(
            &[("a.rs", "use super::{c::C, b::{B, D}};"), ("b.rs", back)],
            &[&["a", "b"]],
        );
        check(
            &[("a.rs", "fn f() { vec![crate::b::B] }"), ("b.rs", back)],
            &[&["a", "b"]],
        );
        check(
            &[("a.rs", "use crate::b; fn f(x: b::B) {}"), ("b.rs", back)],
            &[&["a", "b"]],
        );
        check(
            &[("a.rs", "use crate::b::B;"), ("b.rs", "use std::io;")],
            &[],
        );
        check(
            &[
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }"),
            ],
            &[],
        );
        check(
            &[
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "mod inner { use super::super::a::A; }"),
            ],
            &[&["a", "b"]],
        );
    }

    #[test]
    fn a_path_from_a_parent_to_its_child_counts() {
        check(
            &[
                (
                    "table/mod.rs",
                    "mod commits; static ALL: &[&Rule] = &[&commits::RULE];",
                ),
                ("table/commits.rs", "use super::Rule;"),
            ],
            &[&["table", "table::commits"]],
        );
        // With the trait in a separate file, the table imports its entries and nothing imports the table.
        check(
            &[
                (
                    "table/mod.rs",
                    "mod commits; pub use rule::Rule; static ALL: &[&Rule] = &[&commits::RULE];",
                ),
                ("table/commits.rs", "use super::Rule;"),
                ("table/rule.rs", "pub struct Rule;"),
            ],
            &[],
        );
    }

    #[test]
    fn re_exports_lead_to_where_a_name_is_defined() {
        for re_export in [
            "pub use inner::B;",
            "pub(crate) use self::inner::{B as B};",
            "pub use inner::*;",
        ] {
            check(
                &[
                    ("a.rs", "use crate::{\n    m::{B, C},\n};"),
                    ("m/mod.rs", re_export),
                    ("m/inner.rs", "use super::super::a::A; pub struct B;"),
                ],
                &[&["a", "m::inner"]],
            );
        }
        check(
            &[
                ("lib.rs", "pub use m::B;"),
                ("a.rs", "use crate::B;"),
                ("m/mod.rs", "pub use inner::B;"),
                ("m/inner.rs", "use crate::a::A; pub struct B;"),
            ],
            &[&["a", "m::inner"]],
        );
    }

    /// A crate with two cycles.
    #[test]
    fn each_cycle_over_the_limit_is_a_violation() {
        let ring = |names: &[&str]| -> Vec<(String, String)> {
            let next = names.iter().cycle().skip(1);
            names
                .iter()
                .zip(next)
                .map(|(file, next)| (format!("{file}.rs"), format!("use crate::{next}::X;")))
                .collect()
        };
        let texts = [ring(&["a", "b", "c", "d"]), ring(&["e", "f", "g"])].concat();
        let files = texts
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str()));
        let sources = CrateSources::parse("one", files);
        let found: Vec<(String, Vec<String>)> = cycles(&sources)
            .into_iter()
            .map(|cycle| ("one".to_owned(), cycle))
            .collect();
        let check = |files_max: usize, expected: &[&str]| {
            assert_eq!(violations(&found, files_max), expected, "{files_max}");
        };
        let large = "one: 4 files import each other: a b c d";
        check(4, &[]);
        check(3, &[large]);
        check(2, &[large, "one: 3 files import each other: e f g"]);
    }
}
