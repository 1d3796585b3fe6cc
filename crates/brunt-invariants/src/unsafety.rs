//! Where `unsafe` may appear: a crate without unsafe code forbids it; a crate with unsafe code denies it, and allows
//! it in the modules that own it, each with a reason.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::source::{CrateSources, Module, SourceFile};

/// The violations in one crate.
pub fn violations(sources: &CrateSources) -> Vec<String> {
    let with_unsafe: Vec<&SourceFile> = sources
        .files
        .iter()
        .filter(|file| has_unsafe(file.tokens.clone()))
        .collect();
    let mut found = Vec::new();
    let level = match with_unsafe.is_empty() {
        true => "forbid",
        false => "deny",
    };
    for root in sources.files.iter().filter(|file| file.is_root()) {
        if !root.code.attrs.iter().any(|one| is_level(one, level)) {
            found.push(format!(
                "{} lacks #![{level}(unsafe_code)]",
                sources.path_of(root)
            ));
        }
    }
    let mut allowed: Vec<(Module, bool)> = Vec::new();
    for file in &sources.files {
        allowances(sources, file, &mut allowed, &mut found);
    }
    for file in with_unsafe {
        let owners = allowed
            .iter_mut()
            .filter(|(module, _)| file.module.starts_with(module));
        let mut owned = false;
        for (_, used) in owners {
            (owned, *used) = (true, true);
        }
        if !owned {
            found.push(format!(
                "{} has unsafe code, but its module isn't declared to own any",
                sources.path_of(file)
            ));
        }
    }
    let idle = allowed.iter().filter(|(_, used)| !used);
    found.extend(idle.map(|(module, _)| {
        format!(
            "{}: module {} is allowed unsafe code but has none",
            sources.name,
            module.join("::")
        )
    }));
    found
}

/// The modules for which a file allows `unsafe`; allowing it anywhere but at a module's declaration is a violation.
fn allowances(
    sources: &CrateSources,
    file: &SourceFile,
    allowed: &mut Vec<(Module, bool)>,
    found: &mut Vec<String>,
) {
    let mut declared = 0;
    for item in &file.code.items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        for attribute in module.attrs.iter().filter(|one| is_level(one, "allow")) {
            declared += 1;
            let name = [&file.module[..], &[module.ident.to_string()]].concat();
            if !has_reason(attribute) {
                let path = sources.path_of(file);
                found.push(format!(
                    "{path} allows unsafe code in {} without a reason",
                    module.ident
                ));
            }
            allowed.push((name, false));
        }
    }
    let levels = file.code.attrs.iter();
    let levels = levels
        .filter(|one| is_level(one, "deny") || is_level(one, "forbid"))
        .count();
    if count_mentions(file.tokens.clone()) > declared + levels {
        found.push(format!(
            "{} sets the level of unsafe_code in a place other than a module's declaration",
            sources.path_of(file)
        ));
    }
}

/// Whether an attribute sets this level for `unsafe_code`: `#![forbid(unsafe_code)]`.
fn is_level(attribute: &syn::Attribute, level: &str) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    list.path.is_ident(level) && count_mentions(list.tokens.clone()) > 0
}

fn has_reason(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let mut tokens = list.tokens.clone().into_iter();
    tokens.any(|token| matches!(token, TokenTree::Ident(name) if name == "reason"))
}

/// Number of times that `unsafe_code` is mentioned.
fn count_mentions(tokens: TokenStream) -> usize {
    let mentions = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(name) => usize::from(name == "unsafe_code"),
        TokenTree::Group(group) => count_mentions(group.stream()),
        _ => 0,
    });
    mentions.sum()
}

/// Whether the tokens contain unsafe code, including in macros; the type of an unsafe function doesn't count.
fn has_unsafe(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Ident(name) => name == "unsafe" && !is_type(&tokens[at + 1..]),
        TokenTree::Group(group) => has_unsafe(group.stream()),
        _ => false,
    })
}

/// Whether the tokens after `unsafe` make it a type: `extern "C" fn(…)`.
fn is_type(after: &[TokenTree]) -> bool {
    let mut rest = after.iter().skip_while(|token| match token {
        TokenTree::Ident(name) => name == "extern",
        TokenTree::Literal(_) => true,
        _ => false,
    });
    let is_fn = matches!(rest.next(), Some(TokenTree::Ident(name)) if name == "fn");
    is_fn
        && matches!(rest.next(), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources = CrateSources::parse("a", files.iter().copied());
        assert_eq!(violations(&sources), expected, "{files:?}");
    }

    #[test]
    fn a_crate_without_unsafe_forbids_it() {
        let lacks = "a/src/lib.rs lacks #![forbid(unsafe_code)]";
        check(&[("lib.rs", "#![forbid(unsafe_code)]")], &[]);
        check(&[("lib.rs", "fn f() {}")], &[lacks]);
        check(&[("lib.rs", "#![deny(unsafe_code)]")], &[lacks]);
        check(&[("lib.rs", "// #![forbid(unsafe_code)]")], &[lacks]);
        check(
            &[("lib.rs", "type F = unsafe extern \"C\" fn(u8);")],
            &[lacks],
        );
    }

    #[test]
    fn unsafe_code_is_only_in_allowed_modules() {
        let ring = ("ring.rs", "fn f() { unsafe { g() } }");
        let owning =
            "#![deny(unsafe_code)]\n#[allow(\n unsafe_code,\n reason = \"mmap\"\n)]\npub mod ring;";
        check(&[("lib.rs", owning), ring], &[]);
        check(
            &[("lib.rs", owning), ("ring.rs", "fn f() {}")],
            &[
                "a/src/lib.rs lacks #![forbid(unsafe_code)]",
                "a: module ring is allowed unsafe code but has none",
            ],
        );
        check(
            &[("lib.rs", "#![deny(unsafe_code)] mod ring;"), ring],
            &["a/src/ring.rs has unsafe code, but its module isn't declared to own any"],
        );
        check(
            &[
                ("lib.rs", owning),
                ring,
                ("x.rs", "unsafe extern \"C\" fn f(x: u8) {}"),
            ],
            &["a/src/x.rs has unsafe code, but its module isn't declared to own any"],
        );
        check(
            &[
                ("lib.rs", owning),
                ring,
                ("x.rs", "m! { unsafe impl Send for X {} }"),
            ],
            &["a/src/x.rs has unsafe code, but its module isn't declared to own any"],
        );
    }

    #[test]
    fn an_allowance_is_on_a_module_and_has_a_reason() {
        let ring = ("ring.rs", "fn f() { unsafe { g() } }");
        check(
            &[
                (
                    "lib.rs",
                    "#![deny(unsafe_code)] #[allow(unsafe_code)] mod ring;",
                ),
                ring,
            ],
            &["a/src/lib.rs allows unsafe code in ring without a reason"],
        );
        let sneaky = "#[allow(unsafe_code, reason = \"x\")] fn f() { unsafe { g() } }";
        check(
            &[("lib.rs", "#![deny(unsafe_code)] mod x;"), ("x.rs", sneaky)],
            &[
                "a/src/x.rs sets the level of unsafe_code in a place other than a module's declaration",
                "a/src/x.rs has unsafe code, but its module isn't declared to own any",
            ],
        );
    }
}
