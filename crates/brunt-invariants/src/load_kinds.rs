//! Only a load's own module knows which kind of load it is: other code uses the traits `Load` and `HostedLoad`, so that
//! a new kind of load changes only its own folder and the table of loads.
//!
//! A load is a type that implements one of these traits; its module is the outermost one in its crate. The check
//! follows names, not types.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use crate::source::CrateSources;

/// The traits that other code uses.
const TRAITS: &[&str] = &["HostedLoad", "Load"];

/// Methods that reveal the type of a value.
const DOWNCASTS: &[&str] = &["downcast", "downcast_mut", "downcast_ref", "is"];

/// The constant in a load's module that names its kind.
const KIND: &str = "KIND";

/// A crate and its outermost module.
type Home = (String, String);

/// Each decision outside of a load's module that is based on the load's type or kind, and each way to find out its
/// type, as `file function`.
pub fn violations(crates: &[CrateSources]) -> Vec<String> {
    let mut loads: BTreeMap<String, BTreeSet<Home>> = BTreeMap::new();
    let mut modules: BTreeMap<String, BTreeSet<Home>> = BTreeMap::new();
    each_file(crates, |home, _, code| {
        let mut found = Loads::default();
        found.visit_file(code);
        if !found.found.is_empty() {
            modules
                .entry(home.1.clone())
                .or_default()
                .insert(home.clone());
        }
        for name in found.found {
            loads.entry(name).or_default().insert(home.clone());
        }
    });
    let mut found = BTreeSet::new();
    each_file(crates, |home, path, code| {
        let elsewhere = |all: &BTreeMap<String, BTreeSet<Home>>| -> BTreeSet<String> {
            all.iter()
                .filter(|(_, homes)| !homes.contains(home))
                .map(|(name, _)| name.clone())
                .collect()
        };
        let mut finder = Finder {
            loads: elsewhere(&loads),
            modules: elsewhere(&modules),
            function: String::new(),
            found: BTreeSet::new(),
        };
        finder.visit_file(code);
        found.extend(finder.found.iter().map(|place| format!("{path} {place}")));
    });
    found.into_iter().collect()
}

fn each_file(crates: &[CrateSources], mut visit: impl FnMut(&Home, &str, &syn::File)) {
    for one in crates {
        for file in &one.files {
            let outermost = file.module.first().cloned().unwrap_or_default();
            visit(
                &(one.name.clone(), outermost),
                &one.path_of(file),
                &file.code,
            );
        }
    }
}

/// The types that implement a load.
#[derive(Default)]
struct Loads {
    found: BTreeSet<String>,
}

impl<'a> Visit<'a> for Loads {
    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let is_load = item
            .trait_
            .as_ref()
            .is_some_and(|(_, path, _)| is_one_of(path, TRAITS));
        if let (true, syn::Type::Path(kind)) = (is_load, &*item.self_ty)
            && let Some(last) = kind.path.segments.last()
        {
            self.found.insert(last.ident.to_string());
        }
    }
}

fn is_one_of(path: &syn::Path, names: &[&str]) -> bool {
    let last = path.segments.last();
    last.is_some_and(|last| names.iter().any(|name| last.ident == name))
}

/// Whether a matching name occurs among these tokens.
fn mentions(tokens: TokenStream, is_name: &dyn Fn(&str) -> bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => is_name(&name.to_string()),
        TokenTree::Group(group) => mentions(group.stream(), is_name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

struct Finder {
    /// Loads of modules other than this one.
    loads: BTreeSet<String>,
    /// Other modules that contain loads.
    modules: BTreeSet<String>,
    function: String,
    found: BTreeSet<String>,
}

impl Finder {
    fn complain(&mut self) {
        self.found.insert(self.function.clone());
    }

    fn names_load(&self, code: &impl ToTokens) -> bool {
        mentions(code.to_token_stream(), &|name| self.loads.contains(name))
    }

    /// Whether this path is the kind of another module's load: `file::KIND`.
    fn is_kind(&self, path: &syn::Path) -> bool {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        matches!(&segments[..], [.., module, name] if name == KIND && self.modules.contains(module))
    }

    fn is_kind_expression(&self, expression: &syn::Expr) -> bool {
        match expression {
            syn::Expr::Path(path) => self.is_kind(&path.path),
            syn::Expr::Paren(inner) => self.is_kind_expression(&inner.expr),
            syn::Expr::Reference(inner) => self.is_kind_expression(&inner.expr),
            // The alternatives in `matches!`.
            syn::Expr::Binary(binary) => {
                matches!(binary.op, syn::BinOp::BitOr(_))
                    && [&binary.left, &binary.right]
                        .into_iter()
                        .any(|side| self.is_kind_expression(side))
            }
            _ => false,
        }
    }

    /// `let Some(FileLoad { .. }) = load.any().downcast_ref()`: the pattern contains the type.
    fn binds_load(&self, pattern: &syn::Pat, value: &syn::Expr) -> bool {
        let downcasts = |name: &str| name.starts_with("downcast") && DOWNCASTS.contains(&name);
        mentions(value.to_token_stream(), &downcasts) && self.names_load(pattern)
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        let outer = std::mem::replace(&mut self.function, item.sig.ident.to_string());
        visit::visit_item_fn(self, item);
        self.function = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function = item.sig.ident.to_string();
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        if TRAITS.iter().any(|name| item.ident == name) {
            let is_any = |name: &str| name == "Any";
            let gives_type =
                |method: &syn::TraitItemFn| mentions(method.sig.output.to_token_stream(), &is_any);
            let has_methods = item
                .items
                .iter()
                .any(|item| matches!(item, syn::TraitItem::Fn(method) if gives_type(method)));
            if has_methods || mentions(item.supertraits.to_token_stream(), &is_any) {
                self.found.insert(item.ident.to_string());
            }
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if DOWNCASTS.iter().any(|name| call.method == name)
            && call
                .turbofish
                .as_ref()
                .is_some_and(|types| self.names_load(types))
        {
            self.complain();
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_let(&mut self, condition: &'a syn::ExprLet) {
        if self.binds_load(&condition.pat, &condition.expr) {
            self.complain();
        }
        visit::visit_expr_let(self, condition);
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if let Some(init) = &local.init
            && self.binds_load(&local.pat, &init.expr)
        {
            self.complain();
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        let compares = matches!(binary.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_));
        let mut sides = [&binary.left, &binary.right].into_iter();
        if compares && sides.any(|side| self.is_kind_expression(side)) {
            self.complain();
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let mut paths = PatternPaths::default();
        paths.visit_pat(&arm.pat);
        if paths.found.iter().any(|path| self.is_kind(path)) {
            self.complain();
        }
        visit::visit_arm(self, arm);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let arguments = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = arguments.parse2(call.tokens.clone()) {
            if call.path.is_ident("matches")
                && arguments
                    .iter()
                    .any(|argument| self.is_kind_expression(argument))
            {
                self.complain();
            }
            arguments
                .iter()
                .for_each(|argument| self.visit_expr(argument));
        }
    }
}

/// The paths of constants in a pattern.
#[derive(Default)]
struct PatternPaths<'a> {
    found: Vec<&'a syn::Path>,
}

impl<'a> Visit<'a> for PatternPaths<'a> {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.found.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations, given a load in `file`, the trait in `load`, and a function with this body, which is in another
    /// crate or in the load's own module.
    fn found(body: &str, is_own: bool) -> bool {
        let function = format!("fn f() {{ {body} }}");
        let load = "pub const KIND: &str = \"file\";\nimpl Load for FileLoad {}";
        let table = "pub trait Load: Debug + Send { fn hosts(&self) -> &[String]; }";
        let own = if is_own { function.as_str() } else { "" };
        let loads = CrateSources::parse(
            "loads",
            [
                ("file/load.rs", load),
                ("file/mod.rs", own),
                ("load.rs", table),
            ],
        );
        let others = CrateSources::parse("others", [("x.rs", if is_own { "" } else { &function })]);
        !violations(&[loads, others]).is_empty()
    }

    #[test]
    fn decisions_by_the_load_are_found_outside_its_module() {
        for body in [
            "if load.any().is::<FileLoad>() {}",
            "load.any().downcast_ref::<FileLoad>().map(FileLoad::phase);",
            "let _ = load.any().downcast_ref::<loads::file::FileLoad>();",
            "let load: Box<FileLoad> = load.into_any().downcast().unwrap();",
            "if let Some(FileLoad { phase, .. }) = load.any().downcast_ref() {}",
            "let Some(FileLoad { phase, .. }) = load.any().downcast_mut() else { return };",
            "assert!(load.any().is::<FileLoad>());",
            "if load.kind() == file::KIND {}",
            "if loads::file::KIND != kind.name {}",
            "match load.kind() { file::KIND => 1, _ => 2 };",
            "let _ = matches!(load.kind(), \"nap\" | file::KIND);",
        ] {
            assert!(found(body, false), "{body}");
            assert!(!found(body, true), "{body}");
        }
        for body in [
            "let load: Arc<dyn Load> = Arc::new(FileLoad::new());",
            "error.downcast_ref::<io::Error>();",
            "let name = file::KIND.to_string();",
            "if load.hosts().is_empty() {}",
        ] {
            assert!(!found(body, false), "{body}");
        }
    }

    #[test]
    fn a_trait_of_loads_does_not_give_away_their_types() {
        let found = |text: &str| violations(&[CrateSources::parse("a", [("load.rs", text)])]);
        for text in [
            "pub trait Load { fn any(&self) -> &dyn Any; }",
            "pub trait Load { fn any(self: Box<Self>) -> Box<dyn std::any::Any + Send>; }",
            "pub trait Load: std::any::Any {}",
            "pub trait HostedLoad: Load + Any {}",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        assert!(found("pub trait Load: Debug { fn kind(&self) -> &'static str; }").is_empty());
        assert!(found("pub trait Other { fn any(&self) -> &dyn Any; }").is_empty());
    }
}
