//! The paths that a file names: each leaf of its `use` items, and the paths in its code, with imports resolved.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::source::{Module, SourceFile};

/// One leaf of a `use` item: a single imported name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseLeaf {
    /// The path as written, but without groups: `std::net::TcpStream`, or `std::net::*`.
    pub path: Vec<String>,
    /// Name that the item has in the file; `*` for all names, `_` for none.
    pub name: String,
    /// Whether the item is a re-export: `pub use`, with any visibility.
    pub public: bool,
    /// The module that contains the item; inside `mod x { … }` this is not the file's module.
    pub module: Module,
}

/// All paths and items that a file names.
#[derive(Debug, Default)]
pub struct NamedPaths {
    /// `use` items of the file.
    pub imports: Vec<UseLeaf>,
    /// Paths of at least two names in its code and its macros, each with the module that contains the path.
    pub paths: Vec<(Module, Vec<String>)>,
    /// The types, functions, constants and inline modules that the file defines, as paths from the crate's root.
    pub items: Vec<Module>,
}

impl NamedPaths {
    /// Collects a file's names, excluding its tests.
    pub fn of(file: &SourceFile) -> NamedPaths {
        let mut collector = Collector {
            module: file.module.clone(),
            named: NamedPaths::default(),
        };
        collector.visit_file(&file.code);
        collector.named
    }

    /// The paths that the file names, with imported names replaced by the paths that they stand for.
    pub fn resolved(&self) -> Vec<Vec<String>> {
        let by_name: BTreeMap<&str, &[String]> = self
            .imports
            .iter()
            .map(|import| (import.name.as_str(), &import.path[..]))
            .collect();
        let resolve = |path: &[String]| {
            let mut path = path.to_vec();
            // An import may refer to another import: `use std::net; use net::TcpStream;`.
            for _ in 0..4 {
                match by_name.get(path[0].as_str()) {
                    Some(home) if home[0] != path[0] => path = [home, &path[1..]].concat(),
                    _ => break,
                }
            }
            path
        };
        let imported = self.imports.iter().map(|import| &import.path);
        let named = self.paths.iter().map(|(_, path)| path);
        imported.chain(named).map(|path| resolve(path)).collect()
    }
}

/// The leaves of a `use` item: the path, and its name in the file.
fn leaves(tree: &syn::UseTree, head: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let with = |name: String| [head, &[name]].concat();
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree, &with(path.ident.to_string()), found),
        syn::UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| leaves(tree, head, found)),
        syn::UseTree::Glob(_) => found.push((with("*".into()), "*".into())),
        syn::UseTree::Name(name) if name.ident == "self" => {
            found.push((head.to_vec(), head.last().cloned().unwrap_or_default()));
        }
        syn::UseTree::Name(name) => {
            found.push((with(name.ident.to_string()), name.ident.to_string()));
        }
        syn::UseTree::Rename(rename) if rename.ident == "self" => {
            found.push((head.to_vec(), rename.rename.to_string()));
        }
        syn::UseTree::Rename(rename) => {
            found.push((with(rename.ident.to_string()), rename.rename.to_string()));
        }
    }
}

struct Collector {
    module: Module,
    named: NamedPaths,
}

impl Collector {
    fn item(&mut self, name: &syn::Ident) {
        let item = [&self.module[..], &[name.to_string()]].concat();
        self.named.items.push(item);
    }
}

impl<'a> Visit<'a> for Collector {
    fn visit_item(&mut self, item: &'a syn::Item) {
        match item {
            syn::Item::Const(item) => self.item(&item.ident),
            syn::Item::Enum(item) => self.item(&item.ident),
            syn::Item::Fn(item) => self.item(&item.sig.ident),
            syn::Item::Static(item) => self.item(&item.ident),
            syn::Item::Struct(item) => self.item(&item.ident),
            syn::Item::Trait(item) => self.item(&item.ident),
            syn::Item::Type(item) => self.item(&item.ident),
            syn::Item::Union(item) => self.item(&item.ident),
            syn::Item::Mod(item) if item.content.is_some() => self.item(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let mut found = Vec::new();
        leaves(&item.tree, &[], &mut found);
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        let module = &self.module;
        self.named
            .imports
            .extend(found.into_iter().map(|(path, name)| UseLeaf {
                path,
                name,
                public,
                module: module.clone(),
            }));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.named
                .paths
                .push((self.module.clone(), names.collect()));
        }
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        visit::visit_macro(self, call);
        let mut found = Vec::new();
        paths_of(call.tokens.clone(), &mut found);
        let module = &self.module;
        self.named
            .paths
            .extend(found.into_iter().map(|path| (module.clone(), path)));
    }
}

/// Paths of at least two names among the tokens of a macro.
fn paths_of(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let (mut path, mut colons) = (Vec::new(), 0);
    let mut end = |path: &mut Vec<String>| {
        let path = std::mem::take(path);
        if path.len() > 1 {
            found.push(path);
        }
    };
    let mut inner = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Ident(name) => {
                if colons != 2 {
                    end(&mut path);
                }
                path.push(name.to_string());
                colons = 0;
            }
            other => {
                end(&mut path);
                colons = 0;
                if let TokenTree::Group(group) = other {
                    inner.push(group.stream());
                }
            }
        }
    }
    end(&mut path);
    inner.into_iter().for_each(|tokens| paths_of(tokens, found));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::CrateSources;

    #[test]
    fn paths_are_resolved_however_they_are_written() {
        let text = "use std::{net::{self as n, *}, time}; use n::TcpStream as T;
            fn f(x: &T) { time::Instant::now(); vec![std::fs::read(\"x\")]; n::UdpSocket::bind(x) }";
        let files = CrateSources::parse("a", [("x.rs", text)]);
        let found = NamedPaths::of(&files.files[0]).resolved();
        let mut found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        found.sort();
        assert_eq!(
            found,
            [
                "std::fs::read",
                "std::net",
                "std::net::*",
                "std::net::TcpStream",
                "std::net::UdpSocket::bind",
                "std::time",
                "std::time::Instant::now",
            ]
        );
    }
}
