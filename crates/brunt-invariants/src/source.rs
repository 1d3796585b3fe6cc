//! A crate's sources: parsed, with each file's module, and without test-only code.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::visit_mut::{self, VisitMut};

/// A path of module names from the root of the crate.
pub type Module = Vec<String>;

/// A source file.
pub struct SourceFile {
    /// Path of the file below the crate's `src`, such as `net/ip.rs`.
    pub path: String,
    /// Module of the file; empty for `lib.rs` and `main.rs`.
    pub module: Module,
    /// The text of the file.
    pub text: String,
    /// The shipped code, excluding items under `#[cfg(test)]` and `#[test]`.
    pub code: syn::File,
    /// All tokens of the file, including tests.
    pub tokens: TokenStream,
}

/// The shipped files of one crate.
pub struct CrateSources {
    /// Name of the crate in `Cargo.toml`, such as `brunt-wire`.
    pub name: String,
    /// The files in path order, excluding those that are compiled only for tests.
    pub files: Vec<SourceFile>,
}

impl CrateSources {
    /// Parses a crate's files, each given as its path below `src` and its text.
    ///
    /// # Panics
    /// A file is not valid Rust.
    pub fn parse<P: Into<String>, T: Into<String>>(
        name: &str,
        files: impl IntoIterator<Item = (P, T)>,
    ) -> CrateSources {
        let mut files: Vec<(Module, String, String)> = files
            .into_iter()
            .map(|(path, text)| (path.into(), text.into()))
            .map(|(path, text): (String, String)| (module_of(&path), path, text))
            .collect();
        // Parents first, because they determine which of their children are test-only.
        files.sort_by_key(|(module, path, _)| (module.len(), path.clone()));
        let mut only_tests = OnlyTests::default();
        let mut parsed = Vec::new();
        for (module, path, text) in files {
            if !only_tests.has(&module, &path) {
                parsed.push(SourceFile::parse(name, path, module, text, &mut only_tests));
            }
        }
        parsed.sort_by(|a, b| a.path.cmp(&b.path));
        CrateSources {
            name: name.to_string(),
            files: parsed,
        }
    }

    /// A file's path below `crates`, as used in messages and lists of exemptions.
    pub fn path_of(&self, file: &SourceFile) -> String {
        format!("{}/src/{}", self.name, file.path)
    }

    /// The crate's name in Rust paths: `brunt_wire`.
    pub fn path_name(&self) -> String {
        self.name.replace('-', "_")
    }
}

impl SourceFile {
    fn parse(
        crate_name: &str,
        path: String,
        module: Module,
        text: String,
        only_tests: &mut OnlyTests,
    ) -> SourceFile {
        let wrong =
            |error: &dyn std::fmt::Display| -> ! { panic!("{crate_name}/src/{path}: {error}") };
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| wrong(&error));
        // Lexing is cheap but parsing is not, so most test-only code is removed between the two.
        let shipped = without_test_modules(tokens.clone(), &path, &module, only_tests);
        let mut code = syn::parse2(shipped).unwrap_or_else(|error| wrong(&error));
        WithoutTests.visit_file_mut(&mut code);
        SourceFile {
            path,
            module,
            text,
            code,
            tokens,
        }
    }

    /// Whether the file is `lib.rs`, `main.rs`, or a program in `bin`.
    pub fn is_root(&self) -> bool {
        let is_program = match self.path.strip_prefix("bin/") {
            Some(path) => !path.contains('/') || path.ends_with("/main.rs"),
            None => false,
        };
        self.module.is_empty() || is_program
    }
}

fn module_of(path: &str) -> Module {
    let stem = Path::new(path).with_extension("");
    let mut module: Module = stem
        .iter()
        .map(|part| part.to_string_lossy().into())
        .collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// Modules and files that are declared under `#[cfg(test)]`.
#[derive(Default)]
struct OnlyTests {
    modules: BTreeSet<Module>,
    paths: BTreeSet<String>,
}

impl OnlyTests {
    fn has(&self, module: &[String], path: &str) -> bool {
        self.paths.contains(path)
            || (1..=module.len()).any(|depth| self.modules.contains(&module[..depth]))
    }
}

/// A file's tokens without its test-only modules, `mod tests;` and `mod tests { … }`, which are recorded.
fn without_test_modules(
    tokens: TokenStream,
    path: &str,
    module: &[String],
    only_tests: &mut OnlyTests,
) -> TokenStream {
    let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut next = 0;
    while next < tokens.len() {
        let at = next;
        next += 1;
        let is_mod = matches!(&tokens[at], TokenTree::Ident(word) if word == "mod");
        let ends = tokens.get(at + 2).is_some_and(|end| match end {
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            _ => false,
        });
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1).filter(|_| is_mod && ends) else {
            continue;
        };
        let name = name.to_string();
        let first = head_of(&tokens[..at]);
        let head: TokenStream = tokens[first..at].iter().cloned().collect();
        let parser = |input: syn::parse::ParseStream<'_>| {
            let attributes = input.call(syn::Attribute::parse_outer)?;
            input.parse::<syn::Visibility>()?;
            Ok(attributes)
        };
        let Ok(attributes) = parser.parse2(head) else {
            continue;
        };
        if is_test(&attributes) {
            only_tests.modules.insert([module, &[name]].concat());
            if let Some(file) = path_attribute(&attributes) {
                let folder = Path::new(path).parent().unwrap_or(Path::new(""));
                let file = folder.join(file).to_string_lossy().into();
                only_tests.paths.insert(file);
            }
            tokens.drain(first..at + 3);
            next = first;
        }
    }
    tokens.into_iter().collect()
}

/// The index of the first attribute or visibility token before an item's keyword.
fn head_of(before: &[TokenTree]) -> usize {
    let mut at = before.len();
    let is_group = |token: &TokenTree, wanted: Delimiter| matches!(token, TokenTree::Group(group) if group.delimiter() == wanted);
    if at > 0 && is_group(&before[at - 1], Delimiter::Parenthesis) {
        at -= 1;
    }
    match before.get(at.wrapping_sub(1)) {
        Some(TokenTree::Ident(word)) if word == "pub" => at -= 1,
        _ => at = before.len(),
    }
    while at > 1
        && is_group(&before[at - 1], Delimiter::Bracket)
        && matches!(&before[at - 2], TokenTree::Punct(punct) if punct.as_char() == '#')
    {
        at -= 2;
    }
    at
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(path),
                ..
            }) if pair.path.is_ident("path") => Some(path.value()),
            _ => None,
        }
    })
}

/// Whether an item with these attributes is test-only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let needs_test = || {
            let meta = attribute.parse_args::<syn::Meta>();
            meta.is_ok_and(|meta| implies_test(&meta))
        };
        path.is_ident("test") || path.is_ident("cfg") && needs_test()
    })
}

/// Whether the condition is `test`, or `all(…)` with an argument that implies it; `any(test, …)` and `not(test)`
/// don't count.
fn implies_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let inner = list.parse_args_with(
                syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
            );
            inner.is_ok_and(|inner| inner.iter().any(implies_test))
        }
        _ => false,
    }
}

/// Removes all test-only code.
struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_test(attributes_of(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_test(attributes_of(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| match item {
            syn::ImplItem::Fn(item) => !is_test(&item.attrs),
            syn::ImplItem::Const(item) => !is_test(&item.attrs),
            _ => true,
        });
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| match statement {
            syn::Stmt::Item(item) => !is_test(attributes_of(item)),
            syn::Stmt::Local(local) => !is_test(&local.attrs),
            _ => true,
        });
        visit_mut::visit_block_mut(self, block);
    }
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::TraitAlias(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn shipped(files: &[(&str, &str)]) -> Vec<String> {
        let parsed = CrateSources::parse("a", files.iter().copied());
        let code = |file: &SourceFile| {
            format!(
                "{}: {}",
                file.path,
                file.code.to_token_stream().to_string().replace(' ', "")
            )
        };
        parsed.files.iter().map(code).collect()
    }

    #[test]
    fn code_that_only_tests_compile_is_left_out() {
        let root = "#[cfg(test)] mod tests; #[cfg(all(test, unix))] mod fake { fn f() {} }
            #[cfg(test)] #[path = \"tests/lines.rs\"] mod lines; #[test] fn t() {}
            #[cfg(any(test, feature = \"x\"))] mod both; struct S; impl S { #[cfg(test)] fn f() {} }
            mod inner { #[cfg(test)] mod tests { fn f() {} } }";
        assert_eq!(
            shipped(&[
                ("lib.rs", root),
                ("tests.rs", "fn f() {}"),
                ("tests/deep.rs", "fn f() {}"),
                ("tests/lines.rs", "fn f() {}"),
                ("both.rs", "#[cfg(not(test))] fn f() {}"),
            ]),
            [
                "both.rs: #[cfg(not(test))]fnf(){}",
                "lib.rs: #[cfg(any(test,feature=\"x\"))]modboth;structS;implS{}modinner{}"
            ]
        );
    }

    #[test]
    fn what_follows_a_declaration_of_tests_is_shipped() {
        assert_eq!(
            shipped(&[("x.rs", "#[cfg(test)]\nmod tests;\nfn shipped() {}\n")]),
            ["x.rs: fnshipped(){}"]
        );
    }
}
