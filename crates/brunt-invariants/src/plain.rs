//! Crates that compute without I/O, and the modules of the standard library that they must not use.

use std::collections::BTreeMap;

use crate::imports::NamedPaths;
use crate::source::CrateSources;

/// The paths that a crate must not use.
pub struct Banned {
    /// The crate.
    pub name: &'static str,
    /// Paths that the crate must not name, including everything below them.
    pub paths: &'static [&'static str],
    /// Exceptions below those paths: types that do no I/O.
    pub except: &'static [&'static str],
}

/// Names that `pub use` gives to paths outside of the workspace, such as `brunt_core::Stream` for
/// `std::net::TcpStream`.
pub fn re_exports(crates: &[CrateSources]) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut found = BTreeMap::new();
    for one in crates {
        for file in &one.files {
            for import in NamedPaths::of(file).imports {
                if import.public && !["crate", "super", "self"].contains(&import.path[0].as_str()) {
                    let name = [
                        &[one.path_name()],
                        &import.module[..],
                        std::slice::from_ref(&import.name),
                    ]
                    .concat();
                    found.insert(name, import.path);
                }
            }
        }
    }
    found
}

/// Each use of a banned path, as `file: path`.
pub fn violations(
    sources: &CrateSources,
    banned: &Banned,
    re_exports: &BTreeMap<Vec<String>, Vec<String>>,
) -> Vec<String> {
    let mut found = Vec::new();
    for file in &sources.files {
        for path in NamedPaths::of(file).resolved() {
            let home = (1..=path.len()).rev().find_map(|depth| {
                let home = re_exports.get(&path[..depth])?;
                Some([&home[..], &path[depth..]].concat())
            });
            let path = home.unwrap_or(path).join("::");
            if is_banned(&path, banned) {
                found.push(format!("{}: {path}", sources.path_of(file)));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn is_banned(path: &str, banned: &Banned) -> bool {
    let path = match path.strip_prefix("core::").or(path.strip_prefix("alloc::")) {
        Some(rest) => format!("std::{rest}"),
        None => path.to_string(),
    };
    let is_below = |head: &&str| {
        path.strip_prefix(*head)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    // `use std::net;` by itself does no I/O; the paths that the code builds on it are resolved and checked.
    let is_module = banned.except.iter().any(|except| {
        except
            .strip_prefix(&path)
            .is_some_and(|rest| rest.starts_with("::"))
    });
    banned.paths.iter().any(is_below) && !banned.except.iter().any(is_below) && !is_module
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let banned = Banned {
            name: "a",
            paths: &["std::net", "std::fs", "std::time", "libc"],
            except: &["std::net::IpAddr", "std::time::Duration"],
        };
        let core = CrateSources::parse(
            "brunt-core",
            [("lib.rs", "pub use std::net::TcpStream as Stream;")],
        );
        let all = [core, CrateSources::parse("a", files.iter().copied())];
        let found = violations(&all[1], &banned, &re_exports(&all));
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn input_and_output_are_found_however_they_are_imported() {
        check(
            &[("x.rs", "use std::net::{IpAddr, TcpStream};")],
            &["a/src/x.rs: std::net::TcpStream"],
        );
        check(
            &[("x.rs", "use std::net; fn f() { net::UdpSocket::bind(1) }")],
            &["a/src/x.rs: std::net::UdpSocket::bind"],
        );
        check(
            &[("x.rs", "use std::net::*;")],
            &["a/src/x.rs: std::net::*"],
        );
        check(
            &[(
                "x.rs",
                "use std::{time as t}; fn f() -> t::Instant { t::Instant::now() }",
            )],
            &[
                "a/src/x.rs: std::time::Instant",
                "a/src/x.rs: std::time::Instant::now",
            ],
        );
        check(
            &[(
                "x.rs",
                "fn f() { assert!(std::fs::read(\"x\").is_ok()); unsafe { libc::getpid() } }",
            )],
            &["a/src/x.rs: libc::getpid", "a/src/x.rs: std::fs::read"],
        );
        check(
            &[("x.rs", "use brunt_core::Stream;")],
            &["a/src/x.rs: std::net::TcpStream"],
        );
    }

    #[test]
    fn addresses_durations_and_tests_are_no_input_or_output() {
        check(
            &[(
                "x.rs",
                "use std::net::IpAddr; use core::time::Duration; fn f(d: Duration, a: IpAddr) {}
                 #[cfg(test)] mod tests { use std::fs; }",
            )],
            &[],
        );
    }
}
