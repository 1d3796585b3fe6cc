//! Import circles: files of one crate that reach each other through `crate::`, `super::` and `self::` paths.
//!
//! A path leads to the file of the deepest module that it names; a path to a name that a module hands on with `pub use`
//! leads to the file that it comes from. Read from text, not from types: an estimate, the same every time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names of modules and the item in them, from the root of the crate on.
type Names = Vec<String>;

/// The files of a crate by their modules, and where each leads to.
struct Files {
    text: BTreeMap<Names, String>,
    /// Names that a module hands on, and what they are called at home.
    handed_on: BTreeMap<Names, Names>,
}

/// The circles among these files (path below `src`, text without comments and tests), the files of each in order.
pub fn circles(sources: &[(String, String)]) -> Vec<Vec<String>> {
    let files = Files::new(sources);
    let edges: BTreeMap<&Names, BTreeSet<&Names>> = files
        .text
        .iter()
        .map(|(module, text)| (module, files.reached(module, text)))
        .collect();
    let mut open: BTreeSet<&Names> = edges.keys().copied().collect();
    let mut found = Vec::new();
    while let Some(module) = open.pop_first() {
        let ahead = reachable(&edges, module);
        let circle: Vec<&Names> = ahead
            .iter()
            .copied()
            .filter(|other| *other != module && reachable(&edges, other).contains(module))
            .collect();
        open.retain(|other| !circle.contains(other));
        if !circle.is_empty() {
            found.push(
                std::iter::once(module)
                    .chain(circle)
                    .map(|names| names.join("::"))
                    .collect(),
            );
        }
    }
    found
}

fn reachable<'a>(
    edges: &BTreeMap<&'a Names, BTreeSet<&'a Names>>,
    from: &'a Names,
) -> BTreeSet<&'a Names> {
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

impl Files {
    fn new(sources: &[(String, String)]) -> Files {
        let mut files = Files {
            text: BTreeMap::new(),
            handed_on: BTreeMap::new(),
        };
        for (path, text) in sources {
            let mut module: Names = Path::new(path)
                .with_extension("")
                .iter()
                .map(|part| part.to_string_lossy().into())
                .collect();
            match module.last().map(String::as_str) {
                Some("mod" | "lib") => drop(module.pop()),
                Some("main") => continue,
                _ => {}
            }
            for (leaf, handed_on) in uses(text).0 {
                if !handed_on {
                    continue;
                }
                let relative = !["crate", "super", "self"].contains(&leaf[0].as_str());
                let home = if relative {
                    Some([&module[..], &leaf].concat())
                } else {
                    absolute(&leaf, &module)
                };
                if let (Some(home), Some(name)) = (home, leaf.last()) {
                    files
                        .handed_on
                        .insert([&module[..], std::slice::from_ref(name)].concat(), home);
                }
            }
            files.text.insert(module, text.clone());
        }
        files
    }

    /// The files that a file leads to; itself and the crate's root are none.
    fn reached(&self, module: &Names, text: &str) -> BTreeSet<&Names> {
        let (leaves, body) = uses(text);
        let own = leaves
            .into_iter()
            .filter(|(_, handed_on)| !handed_on)
            .map(|(leaf, _)| leaf);
        let paths = own
            .chain(paths(&body))
            .filter_map(|path| absolute(&path, module));
        paths
            .filter_map(|path| self.file_of(path))
            .filter(|file| *file != module && !file.is_empty())
            .collect()
    }

    fn file_of(&self, path: Names) -> Option<&Names> {
        let path = self.handed_on.get(&path).unwrap_or(&path);
        let depth = (0..=path.len())
            .rev()
            .find(|depth| self.text.contains_key(&path[..*depth]))?;
        let home = path
            .get(..depth + 1)
            .and_then(|name| self.handed_on.get(name));
        let path = home.unwrap_or(path);
        let depth = (0..=path.len())
            .rev()
            .find(|depth| self.text.contains_key(&path[..*depth]))?;
        self.text
            .get_key_value(&path[..depth])
            .map(|(module, _)| module)
    }
}

/// A path from the root of the crate on; `None` when it leads out of it.
fn absolute(path: &[String], module: &[String]) -> Option<Names> {
    let up = path.iter().take_while(|name| *name == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([module.get(..module.len().checked_sub(up)?)?, &path[up..]].concat()),
        _ => None,
    }
}

/// The names that `use` brings into a text, each with whether it is handed on (`pub use`), and the text without them.
fn uses(text: &str) -> (Vec<(Names, bool)>, String) {
    let (mut leaves, mut body, mut statement) = (Vec::new(), String::new(), None);
    for line in text.lines() {
        let code = line.trim();
        let head = code
            .split_once("use ")
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        if statement.is_none() {
            match head {
                Some((before, rest)) => statement = Some((!before.is_empty(), rest.to_string())),
                None => body += &format!("{line}\n"),
            }
        } else if let Some((_, tree)) = &mut statement {
            tree.push_str(code);
        }
        if let Some((handed_on, tree)) = statement.take_if(|(_, tree)| tree.ends_with(';')) {
            let found = flatten(tree.trim_end_matches(';'), &[]);
            leaves.extend(found.into_iter().map(|leaf| (leaf, handed_on)));
        }
    }
    (leaves, body)
}

/// `a::{b, c::d}` as whole paths.
fn flatten(tree: &str, head: &[String]) -> Vec<Names> {
    let tree = tree.trim();
    let names = |text: &str| -> Names {
        let path = text.split(" as ").next().unwrap_or_default();
        path.split("::")
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(String::from)
            .collect()
    };
    let Some((before, inside)) = tree.split_once('{') else {
        let path = [head, &names(tree)].concat();
        return if path.is_empty() {
            Vec::new()
        } else {
            vec![path]
        };
    };
    let head = [head, &names(before)].concat();
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            ',' if depth == 0 => {
                found.extend(flatten(&inside[start..at], &head));
                start = at + 1;
            }
            '}' if depth == 0 => {
                if !inside[start..at].trim().is_empty() {
                    found.extend(flatten(&inside[start..at], &head));
                }
                break;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Paths that begin with `crate`, `super` or `self`, wherever they stand.
fn paths(text: &str) -> impl Iterator<Item = Names> {
    let words =
        text.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
    let paths = words.filter(|word| {
        ["crate::", "super::", "self::"]
            .iter()
            .any(|head| word.starts_with(head))
    });
    paths.map(|path| {
        path.split("::")
            .filter(|name| !name.is_empty())
            .map(String::from)
            .collect()
    })
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let check = |files: &[(&str, &str)], expected: &[&[&str]]| {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect();
        assert_eq!(circles(&files), expected, "{files:?}");
    };
    check(
        &[
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "fn f() { crate::a::g() }\n"),
        ],
        &[&["a", "b"]],
    );
    check(
        &[("a.rs", "use crate::b::B;\n"), ("b.rs", "use std::io;\n")],
        &[],
    );
    // Through a name that a module hands on, a list over several lines, and `super`.
    let list = "use crate::{\n    m::{B, C},\n};\n";
    check(
        &[
            ("a.rs", list),
            ("m/mod.rs", "pub use inner::B;\n"),
            ("m/inner.rs", "use super::super::a::A;\n"),
        ],
        &[&["a", "m::inner"]],
    );
}
