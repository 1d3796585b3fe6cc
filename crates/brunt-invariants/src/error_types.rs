//! Errors have types: no function returns a plain string as its error, however the type is written.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

use crate::source::CrateSources;

/// Each `Result` whose error is a string, and each associated type `Err` or `Error` that is a string, as `file:line`.
pub fn violations(sources: &CrateSources) -> Vec<String> {
    let mut aliases = Aliases::default();
    for file in &sources.files {
        aliases.visit_file(&file.code);
    }
    let mut found = Vec::new();
    for file in &sources.files {
        let mut finder = Finder {
            strings: &aliases.strings,
            results: &aliases.results,
            lines: BTreeSet::new(),
        };
        finder.visit_file(&file.code);
        let path = sources.path_of(file);
        let lines = finder.lines.into_iter();
        found.extend(lines.map(|line| format!("{path}:{line}: an error is a bare string")));
    }
    found
}

/// Whether a type is a string: `String`, `&str`, or either behind `Box`, `Rc`, `Arc`, `Cow` or `Option`.
fn is_string(kind: &syn::Type, aliases: &BTreeSet<String>) -> bool {
    match kind {
        syn::Type::Reference(reference) => is_string(&reference.elem, aliases),
        syn::Type::Paren(inner) => is_string(&inner.elem, aliases),
        syn::Type::Group(inner) => is_string(&inner.elem, aliases),
        syn::Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return false;
            };
            let name = last.ident.to_string();
            let wraps = ["Box", "Rc", "Arc", "Cow", "Option", "Vec"].contains(&name.as_str());
            ["String", "str"].contains(&name.as_str())
                || aliases.contains(&name)
                || wraps && types_of(last).any(|inner| is_string(inner, aliases))
        }
        _ => false,
    }
}

fn types_of(segment: &syn::PathSegment) -> impl Iterator<Item = &syn::Type> {
    let arguments = match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => Some(arguments.args.iter()),
        _ => None,
    };
    arguments
        .into_iter()
        .flatten()
        .filter_map(|argument| match argument {
            syn::GenericArgument::Type(kind) => Some(kind),
            _ => None,
        })
}

/// A crate's type aliases for strings, and for `Result`.
#[derive(Default)]
struct Aliases {
    strings: BTreeSet<String>,
    results: BTreeSet<String>,
}

impl<'a> Visit<'a> for Aliases {
    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        if is_string(&item.ty, &self.strings) {
            self.strings.insert(item.ident.to_string());
        }
    }

    fn visit_use_rename(&mut self, rename: &'a syn::UseRename) {
        if rename.ident == "Result" {
            self.results.insert(rename.rename.to_string());
        } else if rename.ident == "String" {
            self.strings.insert(rename.rename.to_string());
        }
    }
}

struct Finder<'a> {
    strings: &'a BTreeSet<String>,
    results: &'a BTreeSet<String>,
    lines: BTreeSet<usize>,
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_path_segment(&mut self, segment: &'a syn::PathSegment) {
        let name = segment.ident.to_string();
        let mut types = types_of(segment).skip(1);
        if (name == "Result" || self.results.contains(&name))
            && types.any(|error| is_string(error, self.strings))
        {
            self.lines.insert(segment.ident.span().start().line);
        }
        visit::visit_path_segment(self, segment);
    }

    fn visit_impl_item_type(&mut self, item: &'a syn::ImplItemType) {
        if ["Err", "Error"].contains(&item.ident.to_string().as_str())
            && is_string(&item.ty, self.strings)
        {
            self.lines.insert(item.ident.span().start().line);
        }
        visit::visit_impl_item_type(self, item);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.visit_tokens(&call.tokens);
    }
}

impl Finder<'_> {
    /// Checks the types in a macro: each `Result<…>` among its tokens.
    fn visit_tokens(&mut self, tokens: &TokenStream) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.visit_tokens(&group.stream()),
                TokenTree::Ident(name) if name == "Result" => {
                    let ends = (at + 1..tokens.len()).filter(|end| is_close(&tokens[*end]));
                    let kinds = ends.filter_map(|end| {
                        let text: TokenStream = tokens[at..=end]
                            .iter()
                            .map(ToTokens::to_token_stream)
                            .collect();
                        syn::parse2::<syn::TypePath>(text).ok()
                    });
                    if let Some(kind) = kinds.into_iter().next() {
                        self.visit_type_path(&kind);
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_close(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, lines: &[usize]) {
        let found = violations(&CrateSources::parse("a", [("x.rs", text)]));
        let expected: Vec<String> = lines
            .iter()
            .map(|line| format!("a/src/x.rs:{line}: an error is a bare string"))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn bare_strings_are_found_however_they_are_spelled() {
        for error in [
            "String",
            "std::string::String",
            "&'static str",
            "&str",
            "Box<str>",
            "Cow<'static, str>",
            "std::borrow::Cow<'_, str>",
            "Arc<str>",
            "Option<String>",
            "Vec<String>",
        ] {
            check(&format!("fn f() -> Result<(), {error}> {{ g() }}"), &[1]);
            check(
                &format!("impl FromStr for X {{ type Err = {error}; }}"),
                &[1],
            );
        }
        check(
            "#[cfg(test)]\nmod tests;\nfn f() -> Result<(), String> { g() }",
            &[3],
        );
        check(
            "type Trouble = String;\nfn f() -> Result<u8, Trouble> { g() }",
            &[2],
        );
        check(
            "use std::result::Result as R;\nfn f() -> R<u8, String> { g() }",
            &[2],
        );
        check("fn f(g: impl Fn() -> io::Result<(), String>) {}", &[1]);
        check(
            "fn f() -> Result<Vec<Result<u8, u8>>, String> { g() }",
            &[1],
        );
        check(
            "fn f() { let x = g().collect::<Result<Vec<_>, String>>(); }",
            &[1],
        );
        check("m! { fn f() -> Result<Vec<u8>, String> {} }", &[1]);
    }

    #[test]
    fn types_and_tests_are_no_violations() {
        check("fn f() -> Result<String, io::Error> { g() }", &[]);
        check(
            "fn f() -> Result<(&str, Vec<String>), MyError> { g() }",
            &[],
        );
        check("fn f() -> io::Result<String> { g() }", &[]);
        check(
            "#[cfg(test)] mod tests { fn f() -> Result<(), String> { g() } }",
            &[],
        );
    }
}
