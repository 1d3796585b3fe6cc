//! Which crates may depend on which.

use std::collections::{BTreeMap, BTreeSet};

/// The dependencies of each crate, by name, excluding those of tests.
pub type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// The crates in the order of the table in ARCHITECTURE.md, which starts with the command line.
pub fn order(architecture: &str) -> Vec<String> {
    let lines = architecture.lines();
    let names = lines.filter_map(|line| line.strip_prefix("| `brunt")?.split_once('`'));
    names.map(|(name, _)| format!("brunt{name}")).collect()
}

/// Crates that are missing from the order, and dependencies on crates that are not later in the order.
pub fn upward(dependencies: &Dependencies, order: &[String]) -> Vec<String> {
    let place = |name: &str| order.iter().position(|known| known == name);
    let mut found = Vec::new();
    for (name, needed) in dependencies {
        let Some(own) = place(name) else {
            found.push(format!("the table of ARCHITECTURE.md lacks {name}"));
            continue;
        };
        for other in needed
            .iter()
            .filter(|other| dependencies.contains_key(*other))
        {
            if place(other).is_some_and(|place| place <= own) {
                found.push(format!("{name} depends on {other}, which isn't below it"));
            }
        }
    }
    let gone = order
        .iter()
        .filter(|name| !dependencies.contains_key(*name));
    found.extend(
        gone.map(|name| format!("the table of ARCHITECTURE.md lists {name}, which doesn't exist")),
    );
    found
}

/// A library that only some crates may depend on.
pub struct Owned {
    /// The library.
    pub library: &'static str,
    /// The crates.
    pub owners: &'static [&'static str],
}

/// Crates that use a library without owning it, and owners that don't use it.
pub fn trespassing(dependencies: &Dependencies, owned: &[Owned]) -> Vec<String> {
    let mut found = Vec::new();
    for Owned { library, owners } in owned {
        for (name, needed) in dependencies {
            let is_owner = owners.contains(&name.as_str());
            match (needed.contains(*library), is_owner) {
                (true, false) => found.push(format!("{name} depends on {library}")),
                (false, true) => {
                    found.push(format!("{name} doesn't depend on {library}, which it owns"))
                }
                _ => {}
            }
        }
    }
    found
}

/// The `banned` crates that a crate depends on, directly or indirectly.
pub fn needless(dependencies: &Dependencies, name: &str, banned: &[&str]) -> Vec<String> {
    let (mut open, mut seen) = (vec![name], BTreeSet::new());
    while let Some(one) = open.pop() {
        if seen.insert(one) {
            open.extend(
                dependencies
                    .get(one)
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            );
        }
    }
    let found = banned.iter().filter(|one| seen.contains(**one));
    found.map(|one| format!("{name} needs {one}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(all: &[(&str, &[&str])]) -> Dependencies {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        all.iter()
            .map(|(name, needed)| (name.to_string(), set(needed)))
            .collect()
    }

    #[test]
    fn a_dependency_on_a_crate_above_is_found() {
        let order = order("text\n| `brunt` | a |\n| `brunt-web` | b |\n| `brunt-core` | c |\n");
        assert_eq!(order, ["brunt", "brunt-web", "brunt-core"]);
        let right: &[(&str, &[&str])] = &[
            ("brunt", &["brunt-core", "brunt-web", "serde"]),
            ("brunt-core", &[]),
            ("brunt-web", &["brunt-core"]),
        ];
        assert!(upward(&dependencies(right), &order).is_empty());
        let wrong: &[(&str, &[&str])] = &[
            ("brunt", &[]),
            ("brunt-core", &["brunt-web"]),
            ("brunt-new", &[]),
        ];
        assert_eq!(
            upward(&dependencies(wrong), &order),
            [
                "the table of ARCHITECTURE.md lacks brunt-new",
                "the table of ARCHITECTURE.md lists brunt-web, which doesn't exist",
            ]
        );
        let wrong: &[(&str, &[&str])] = &[
            ("brunt", &[]),
            ("brunt-core", &["brunt-web"]),
            ("brunt-web", &[]),
        ];
        assert_eq!(
            upward(&dependencies(wrong), &order),
            ["brunt-core depends on brunt-web, which isn't below it"]
        );
    }

    #[test]
    fn a_library_with_a_second_user_is_found() {
        let owned = [Owned {
            library: "maud",
            owners: &["brunt-report"],
        }];
        let check = |all: &[(&str, &[&str])], expected: &[&str]| {
            assert_eq!(trespassing(&dependencies(all), &owned), expected);
        };
        check(
            &[("brunt-report", &["maud"]), ("brunt-web", &["axum"])],
            &[],
        );
        check(
            &[("brunt-report", &[]), ("brunt-web", &["maud"])],
            &[
                "brunt-report doesn't depend on maud, which it owns",
                "brunt-web depends on maud",
            ],
        );
    }

    #[test]
    fn transitive_dependencies_are_found() {
        let all = dependencies(&[("a", &["b"]), ("b", &["io-uring"]), ("c", &["libc"])]);
        assert_eq!(
            needless(&all, "a", &["io-uring", "libc"]),
            ["a needs io-uring"]
        );
    }
}
