//! Limits the length of files and functions, as formatted by rustfmt with its defaults.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

use crate::source::CrateSources;

/// Maximum number of lines in a file.
pub const FILE_LINES_MAX: usize = 800;
/// Maximum number of lines in a function, from `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Maximum number of lines in a function with a comment that says "Long because" and the reason.
pub const FUNCTION_LINES_MAX_WITH_REASON: usize = 100;

/// Files and functions that exceed the limits: the file's path below `crates` and, for functions, a space and the name.
pub fn violations(sources: &CrateSources) -> Vec<String> {
    let mut found = Vec::new();
    for file in &sources.files {
        let path = sources.path_of(file);
        if file.text.lines().count() > FILE_LINES_MAX {
            found.push(path.clone());
        }
        let mut functions = Vec::new();
        functions_of(file.code.to_token_stream(), &mut functions);
        let lines: Vec<&str> = file.text.lines().collect();
        for function in functions {
            let lines_max = match function.says_why(&lines) {
                true => FUNCTION_LINES_MAX_WITH_REASON,
                false => FUNCTION_LINES_MAX,
            };
            if function.last - function.first + 1 > lines_max {
                found.push(format!("{path} {}", function.name));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A function with a body: the lines, from 1, of its `fn` and of the braces around its body.
struct Function {
    name: String,
    first: usize,
    body: usize,
    last: usize,
}

impl Function {
    /// Whether a comment above the function, or at the start of its body, gives the reason for its length.
    fn says_why(&self, lines: &[&str]) -> bool {
        let is_comment = |line: &&&str| line.trim_start().starts_with("//");
        let is_above =
            |line: &&&str| is_comment(line) || line.trim_start().starts_with(['#', ')', ']']);
        let above = lines[..self.first - 1].iter().rev().take_while(is_above);
        let within = lines[self.body..].iter().take_while(is_comment);
        let mut comments = above.chain(within).filter(is_comment);
        comments.any(|line| line.contains("Long because"))
    }
}

/// The functions among these tokens, including those inside other functions and macros.
fn functions_of(tokens: TokenStream, found: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "fn" => {
                let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
                    continue;
                };
                let body = tokens[at + 2..].iter().find_map(|token| match token {
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                        Some(Some(group))
                    }
                    TokenTree::Punct(punct) if punct.as_char() == ';' => Some(None),
                    _ => None,
                });
                if let Some(Some(body)) = body {
                    found.push(Function {
                        name: name.to_string(),
                        first: word.span().start().line,
                        body: body.span_open().start().line,
                        last: body.span_close().end().line,
                    });
                }
            }
            TokenTree::Group(group) => functions_of(group.stream(), found),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found = violations(&CrateSources::parse("a", [("x.rs", text)]));
        assert_eq!(found, expected, "{text}");
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found_anywhere() {
        check(&function(70), &[]);
        check(&function(71), &["a/src/x.rs f"]);
        let after_tests = format!("#[cfg(test)]\nmod tests;\n\n{}", function(152));
        check(&after_tests, &["a/src/x.rs f"]);
        check(
            &format!("impl X {{\npub async {}}}\n", function(71)),
            &["a/src/x.rs f"],
        );
        check(&format!("m! {{\n{}}}\n", function(71)), &["a/src/x.rs f"]);
        check(
            &function(71).replace("fn f()", "fn f<const N: usize>(\n) -> [u8; N]\nwhere\n"),
            &["a/src/x.rs f"],
        );
        check(
            &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(200)),
            &[],
        );
    }

    #[test]
    fn a_reason_allows_a_hundred_lines() {
        let reason = "// Long because it is a table.\n";
        for (reasoned, lines_max) in [(true, 100), (false, 70)] {
            for lines in [lines_max, lines_max + 1] {
                let head = if reasoned { reason } else { "// A table.\n" };
                let text = format!("{head}#[inline]\n{}", function(lines));
                let expected: &[&str] = if lines > lines_max {
                    &["a/src/x.rs f"]
                } else {
                    &[]
                };
                check(&text, expected);
            }
        }
        let within = function(99).replacen("{\n", &format!("{{\n    {reason}"), 1);
        check(&within, &[]);
        check(
            &format!("fn g() {{}} {reason}\n{}", function(71)),
            &["a/src/x.rs f"],
        );
    }

    #[test]
    fn a_long_file_is_found() {
        check(&"const X: u8 = 1;\n".repeat(800), &[]);
        check(&"const X: u8 = 1;\n".repeat(801), &["a/src/x.rs"]);
    }
}
