//! No code makes decisions based on the text of a message; it uses types instead.
//!
//! Text counts as a message if it is made from an error (`error.to_string()`, `format!("{error}")`), or if the name
//! of the variable, field or method that holds it is typical of messages. Errors are the values that `Err(…)` binds,
//! those that `map_err` and similar methods pass to a closure, and parameters whose type is named like an error. The
//! check follows names and data flow, not types, and would rather report too much than too little.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use crate::source::CrateSources;

/// Names of variables, fields and methods that hold the text of a message, including those of other programs.
const MESSAGES: &[&str] = &[
    "advice",
    "complaint",
    "err",
    "error",
    "hint",
    "message",
    "note",
    "problem",
    "reason",
    "said",
    "stderr",
    "trouble",
    "warning",
    "why",
];

/// Methods that examine text.
const TESTS: &[&str] = &[
    "contains",
    "ends_with",
    "eq",
    "eq_ignore_ascii_case",
    "find",
    "is_match",
    "matches",
    "rfind",
    "rsplit_once",
    "split_once",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
    "trim_end_matches",
    "trim_start_matches",
];

/// Methods that return text unchanged.
const PASSES: &[&str] = &[
    "as_bytes",
    "as_deref",
    "as_ref",
    "as_str",
    "clone",
    "deref",
    "into",
    "into_string",
    "iter",
    "lines",
    "to_lowercase",
    "to_owned",
    "to_string",
    "to_uppercase",
    "trim",
    "unwrap",
    "unwrap_or_default",
    "unwrap_or",
];

/// Methods whose closure receives an error.
const GIVE_ERRORS: &[&str] = &[
    "inspect_err",
    "is_err_and",
    "map_err",
    "map_or_else",
    "or_else",
    "unwrap_or_else",
];

/// Suffixes of the names of error types.
const ERROR_TYPES: &[&str] = &["Error", "Malformed", "Violation"];

/// Each decision based on the text of a message, as `file function`.
pub fn violations(sources: &CrateSources) -> Vec<String> {
    let mut found = BTreeSet::new();
    for file in &sources.files {
        let mut finder = Finder::default();
        finder.visit_file(&file.code);
        let path = sources.path_of(file);
        found.extend(
            finder
                .found
                .into_iter()
                .map(|function| format!("{path} {function}")),
        );
    }
    found.into_iter().collect()
}

#[derive(Default)]
struct Finder {
    function: String,
    /// The variables of the function that hold an error.
    errors: BTreeSet<String>,
    /// The variables of the function that hold a message.
    texts: BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Finder {
    fn complain(&mut self) {
        self.found.insert(self.function.clone());
    }

    fn is_error(&self, expression: &syn::Expr) -> bool {
        match expression {
            syn::Expr::Reference(inner) => self.is_error(&inner.expr),
            syn::Expr::Paren(inner) => self.is_error(&inner.expr),
            syn::Expr::Unary(inner) => self.is_error(&inner.expr),
            syn::Expr::Path(path) => path
                .path
                .get_ident()
                .is_some_and(|name| self.errors.contains(&name.to_string())),
            syn::Expr::MethodCall(call)
                if ["unwrap_err", "expect_err"]
                    .iter()
                    .any(|one| call.method == one) =>
            {
                true
            }
            syn::Expr::MethodCall(call) => {
                [
                    "as_ref",
                    "clone",
                    "source",
                    "root_cause",
                    "get_ref",
                    "into_inner",
                ]
                .iter()
                .any(|one| call.method == one)
                    && self.is_error(&call.receiver)
            }
            _ => false,
        }
    }

    fn is_message(&self, expression: &syn::Expr) -> bool {
        let is_named = |name: &syn::Ident| MESSAGES.contains(&name.to_string().as_str());
        match expression {
            syn::Expr::Reference(inner) => self.is_message(&inner.expr),
            syn::Expr::Paren(inner) => self.is_message(&inner.expr),
            syn::Expr::Unary(inner) => self.is_message(&inner.expr),
            syn::Expr::Index(inner) => self.is_message(&inner.expr),
            syn::Expr::Try(inner) => self.is_message(&inner.expr),
            syn::Expr::Path(path) => path.path.get_ident().is_some_and(|name| {
                is_named(name)
                    || self.texts.contains(&name.to_string())
                    || self.errors.contains(&name.to_string())
            }),
            syn::Expr::Field(field) => {
                matches!(&field.member, syn::Member::Named(name) if is_named(name))
            }
            syn::Expr::MethodCall(call) => {
                let passes = PASSES.iter().any(|one| call.method == one);
                passes && (self.is_message(&call.receiver) || self.is_error(&call.receiver))
                    || is_named(&call.method)
            }
            syn::Expr::Macro(call) if call.mac.path.is_ident("format") => {
                self.formats_an_error(&call.mac)
            }
            _ => false,
        }
    }

    /// Whether an argument of `format!("{e}")` or `format!("{}", e)`, or a name in the format string, is an error or a
    /// message.
    fn formats_an_error(&self, call: &syn::Macro) -> bool {
        let Some(arguments) = arguments(call) else {
            return false;
        };
        let inline = arguments.first().is_some_and(|first| {
            let text = first.to_token_stream().to_string();
            let names = text
                .split('{')
                .skip(1)
                .filter_map(|part| part.split([':', '}']).next());
            let mut named = names.map(str::trim);
            named.any(|name| {
                self.errors.contains(name) || self.texts.contains(name) || MESSAGES.contains(&name)
            })
        });
        inline
            || arguments
                .iter()
                .skip(1)
                .any(|one| self.is_error(one) || self.is_message(one))
    }

    /// Records the names that a pattern for an error binds.
    fn bind(&mut self, pattern: &syn::Pat) {
        let mut names = BoundNames::default();
        names.visit_pat(pattern);
        self.errors.extend(names.found);
    }

    /// Records the names that `Err(…)` binds, anywhere in a pattern.
    fn bind_errors(&mut self, pattern: &syn::Pat) {
        let mut errors = ErrPatterns::default();
        errors.visit_pat(pattern);
        errors.found.iter().for_each(|inner| self.bind(inner));
    }

    fn parameter(&mut self, input: &syn::FnArg) {
        if let syn::FnArg::Typed(typed) = input
            && is_error_type(&typed.ty)
        {
            self.bind(&typed.pat);
        }
    }
}

fn is_error_type(kind: &syn::Type) -> bool {
    match kind {
        syn::Type::Reference(reference) => is_error_type(&reference.elem),
        syn::Type::TraitObject(object) => object.bounds.iter().any(|bound| {
            matches!(bound, syn::TypeParamBound::Trait(one) if one.path.segments.last().is_some_and(|last| last.ident == "Error"))
        }),
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            ERROR_TYPES.iter().any(|end| name.ends_with(end))
        }),
        _ => false,
    }
}

fn arguments(call: &syn::Macro) -> Option<Punctuated<syn::Expr, syn::Token![,]>> {
    Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated
        .parse2(call.tokens.clone())
        .ok()
}

fn is_text(expression: &syn::Expr) -> bool {
    matches!(
        expression,
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(_),
            ..
        })
    )
}

fn has_text(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Lit(literal) => matches!(literal.lit, syn::Lit::Str(_)),
        syn::Pat::Or(or) => or.cases.iter().any(has_text),
        syn::Pat::Paren(inner) => has_text(&inner.pat),
        syn::Pat::TupleStruct(inner) => inner.elems.iter().any(has_text),
        syn::Pat::Reference(inner) => has_text(&inner.pat),
        _ => false,
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        let outer = std::mem::take(self);
        self.function = item.sig.ident.to_string();
        item.sig
            .inputs
            .iter()
            .for_each(|input| self.parameter(input));
        visit::visit_item_fn(self, item);
        self.found.extend(outer.found);
        (self.function, self.errors, self.texts) = (outer.function, outer.errors, outer.texts);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        (self.errors, self.texts) = Default::default();
        self.function = item.sig.ident.to_string();
        item.sig
            .inputs
            .iter()
            .for_each(|input| self.parameter(input));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let outer = self.errors.clone();
        self.bind_errors(&arm.pat);
        visit::visit_arm(self, arm);
        self.errors = outer;
    }

    fn visit_expr_let(&mut self, condition: &'a syn::ExprLet) {
        self.bind_errors(&condition.pat);
        visit::visit_expr_let(self, condition);
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        visit::visit_local(self, local);
        self.bind_errors(&local.pat);
        let Some(init) = &local.init else {
            return;
        };
        let (is_error, is_message) = (self.is_error(&init.expr), self.is_message(&init.expr));
        let mut names = BoundNames::default();
        names.visit_pat(&local.pat);
        for name in names.found {
            self.errors.remove(&name);
            self.texts.remove(&name);
            if is_error {
                self.errors.insert(name);
            } else if is_message {
                self.texts.insert(name);
            }
        }
        self.bind_errors(&local.pat);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let outer = self.errors.clone();
        if GIVE_ERRORS.iter().any(|one| call.method == one)
            && let Some(syn::Expr::Closure(closure)) = call.args.first()
        {
            closure.inputs.iter().for_each(|input| self.bind(input));
        }
        if TESTS.iter().any(|one| call.method == one)
            && !call.args.is_empty()
            && self.is_message(&call.receiver)
        {
            self.complain();
        }
        visit::visit_expr_method_call(self, call);
        self.errors = outer;
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        let compares = matches!(binary.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_));
        let sides = [(&binary.left, &binary.right), (&binary.right, &binary.left)];
        let is_made = |side: &syn::Expr| {
            matches!(side, syn::Expr::MethodCall(call) if call.method == "to_string" && self.is_error(&call.receiver))
                || matches!(side, syn::Expr::Macro(_)) && self.is_message(side)
        };
        if compares
            && sides
                .iter()
                .any(|(one, other)| is_made(one) || self.is_message(one) && is_text(other))
        {
            self.complain();
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_match(&mut self, choice: &'a syn::ExprMatch) {
        if self.is_message(&choice.expr) && choice.arms.iter().any(|arm| has_text(&arm.pat)) {
            self.complain();
        }
        visit::visit_expr_match(self, choice);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let mut inner = Finder {
            function: self.function.clone(),
            errors: self.errors.clone(),
            texts: self.texts.clone(),
            found: BTreeSet::new(),
        };
        if call.path.is_ident("matches") {
            if let Ok((expression, pattern)) = matches_arguments.parse2(call.tokens.clone()) {
                if self.is_message(&expression) && has_text(&pattern) {
                    self.complain();
                }
                inner.visit_expr(&expression);
            }
        } else if let Some(arguments) = arguments(call) {
            for argument in &arguments {
                inner.visit_expr(argument);
            }
        }
        self.found.extend(inner.found);
    }
}

/// The arguments of `matches!`: the expression and the pattern, without a guard.
fn matches_arguments(input: syn::parse::ParseStream<'_>) -> syn::Result<(syn::Expr, syn::Pat)> {
    let expression = input.parse()?;
    input.parse::<syn::Token![,]>()?;
    let pattern = syn::Pat::parse_multi_with_leading_vert(input)?;
    input.parse::<proc_macro2::TokenStream>()?;
    Ok((expression, pattern))
}

/// The variables that a pattern binds.
#[derive(Default)]
struct BoundNames {
    found: Vec<String>,
}

impl<'a> Visit<'a> for BoundNames {
    fn visit_pat_ident(&mut self, name: &'a syn::PatIdent) {
        self.found.push(name.ident.to_string());
        visit::visit_pat_ident(self, name);
    }
}

/// The patterns within `Err(…)`.
#[derive(Default)]
struct ErrPatterns<'a> {
    found: Vec<&'a syn::Pat>,
}

impl<'a> Visit<'a> for ErrPatterns<'a> {
    fn visit_pat_tuple_struct(&mut self, pattern: &'a syn::PatTupleStruct) {
        if pattern
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "Err")
        {
            // `Err(Kind { name, .. })` destructures an error: its bindings count as messages only if their names are
            // typical of messages.
            self.found.extend(
                pattern
                    .elems
                    .iter()
                    .filter(|inner| matches!(inner, syn::Pat::Ident(_))),
            );
        }
        visit::visit_pat_tuple_struct(self, pattern);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> bool {
        !violations(&CrateSources::parse("a", [("x.rs", text)])).is_empty()
    }

    #[test]
    fn decisions_by_text_are_found_however_they_are_written() {
        for body in [
            "if note.contains(\"x\") {}",
            "if trouble.contains(&word) {}",
            "if self.why.as_str().starts_with(\"x\") {}",
            "if x.message().ends_with(\"x\") {}",
            "let _ = reason.strip_prefix(\"x\");",
            "while !said.contains(\"ready\") {}",
            "if output.stderr.starts_with(b\"x\") {}",
            "if why == \"x\" {}",
            "if \"x\" != error.note {}",
            "match why.as_str() { \"x\" => 1, _ => 2 };",
            "let _ = matches!(why.as_str(), \"x\" | \"y\");",
            "match g() { Err(e) => e.to_string().contains(\"x\"), _ => false };",
            "match g() { Err(e) if format!(\"{e}\").contains(\"x\") => 1, _ => 2 };",
            "match g() { Err(e) if format!(\"{}\", e).contains(\"x\") => 1, _ => 2 };",
            "if let Err(e) = g() { let said = e.to_string(); said.find(\"x\"); }",
            "if let Err(e) = g() { if e.to_string() == expected {} }",
            "let Err(e) = g() else { return }; assert!(e.to_string().to_lowercase().contains(\"x\"));",
            "g().map_err(|e| e.to_string().contains(\"x\"));",
            "g().unwrap_err().to_string().contains(\"x\");",
            "let e = g().unwrap_err(); e.to_string().contains(\"x\");",
            "vec![notes.iter().any(|note| note.starts_with(\"x\"))];",
        ] {
            assert!(found(&format!("fn f() {{ {body} }}")), "{body}");
            assert!(
                found(&format!(
                    "#[cfg(test)]\nmod tests;\nimpl X {{ fn f() {{ {body} }} }}"
                )),
                "{body}"
            );
        }
        for parameter in ["e: &io::Error", "e: ReadError", "e: &dyn std::error::Error"] {
            assert!(
                found(&format!(
                    "fn f({parameter}) -> bool {{ e.to_string().contains(\"x\") }}"
                )),
                "{parameter}"
            );
        }
    }

    #[test]
    fn decisions_by_other_texts_and_error_kinds_pass() {
        for body in [
            "if name.contains(\"x\") {}",
            "if names.contains(&why) {}",
            "if reason == Reason::Full {}",
            "match g() { Err(e) => e.kind() == io::ErrorKind::NotFound, _ => false };",
            "match g() { Err(e) => log(e.to_string()), Ok(text) => text.contains(\"x\") };",
            "match g() { Err(Kind::NoFile { path }) => path.starts_with(\"/\"), _ => false };",
        ] {
            assert!(!found(&format!("fn f() {{ {body} }}")), "{body}");
        }
        assert!(!found(
            "#[cfg(test)] mod tests { fn f() { note.contains(\"x\"); } }"
        ));
    }
}
