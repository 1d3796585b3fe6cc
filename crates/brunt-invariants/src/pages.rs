//! Documentation: each relative link leads to an existing file, and to an existing heading if it names one; an index
//! lists all its files.

use std::collections::{BTreeMap, BTreeSet};

/// Markdown files by their path in the repository, with `/` between folders.
pub type Pages = BTreeMap<String, String>;

/// A link in a page.
#[derive(Debug, PartialEq, Eq)]
pub struct PageLink<'a> {
    /// Its line, from 1.
    pub line: usize,
    /// As written: a path from the page's folder, a heading (`#...`), or a URL.
    pub target: &'a str,
}

/// The links of a page, including images but not links in code.
pub fn links(text: &str) -> Vec<PageLink<'_>> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        for (start, _) in line.match_indices("](") {
            if line[..start].matches('`').count() % 2 == 1 {
                continue;
            }
            let rest = &line[start + 2..];
            let Some(end) = rest.find(')') else {
                continue;
            };
            found.push(PageLink {
                line: index + 1,
                target: &rest[..end],
            });
        }
    }
    found
}

/// The lines outside code blocks, fenced or indented after a blank line, with their numbers from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut fenced, mut blank, mut indented) = (false, true, false);
    text.lines().enumerate().filter(move |(_, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return false;
        }
        if line.trim().is_empty() {
            blank = true;
            return false;
        }
        indented = line.starts_with("    ") && (blank || indented);
        blank = false;
        !fenced && !indented
    })
}

/// The anchors of a page's headings, as on GitHub and in mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor: String = heading
            .trim()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        let again = seen.entry(anchor.clone()).or_default();
        found.insert(match *again {
            0 => anchor,
            n => format!("{anchor}-{n}"),
        });
        *again += 1;
    }
    found
}

/// Broken links. `exists` checks whether a path exists in the repository.
pub fn broken_links(pages: &Pages, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (page, text) in pages {
        for PageLink { line, target } in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() {
                Some(page.clone())
            } else {
                resolve(page, path)
            };
            let problem = match path {
                Some(path) if exists(&path) => {
                    let known = |page: &String| anchor.is_empty() || anchors(page).contains(anchor);
                    if pages.get(&path).is_none_or(known) {
                        continue;
                    }
                    "no such heading"
                }
                _ => "no such file",
            };
            found.push(format!("{page}:{line}: {target}: {problem}"));
        }
    }
    found
}

/// The repository path of a page's link; `None` if it leaves the repository.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop()?;
            }
            part => path.push(part),
        }
    }
    Some(path.join("/"))
}

/// Files that an index doesn't link to exactly once.
pub fn unlisted(index: &str, text: &str, files: &BTreeSet<String>) -> Vec<String> {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for link in links(text) {
        if let Some(path) = resolve(index, link.target) {
            *listed.entry(path).or_default() += 1;
        }
    }
    files
        .iter()
        .filter_map(|file| match listed.get(file) {
            Some(1) => None,
            Some(n) => Some(format!("{index} lists {file} {n} times")),
            None => Some(format!("{index} doesn't list {file}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(list: &[(&str, &str)]) -> Pages {
        list.iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect()
    }

    fn broken(list: &[(&str, &str)]) -> Vec<String> {
        let pages = pages(list);
        broken_links(&pages, |path| pages.contains_key(path) || path == "LICENSE")
    }

    #[test]
    fn links_to_files_and_headings_that_exist_pass() {
        let target = "# Title\n\n## Two words, `code`\n## Two words, `code`\n";
        let page = "[a](b.md) [b](b.md#two-words-code) [c](b.md#two-words-code-1) [d](../LICENSE) \
                    [e](https://example.org/x) [f](#here)\n\n## Here\n";
        assert!(broken(&[("docs/a.md", page), ("docs/b.md", target)]).is_empty());
    }

    #[test]
    fn links_to_nothing_are_found_with_their_line() {
        let page = "text\n[a](gone.md)\n[b](../../etc/passwd) ![c](#gone)\n";
        assert_eq!(
            broken(&[("docs/a.md", page)]),
            [
                "docs/a.md:2: gone.md: no such file",
                "docs/a.md:3: ../../etc/passwd: no such file",
                "docs/a.md:3: #gone: no such heading"
            ]
        );
    }

    #[test]
    fn what_looks_like_a_link_in_code_is_none() {
        let page = "`a[0](x)`\n\n    b](y)\n    c](z)\n\n```\nd](w)\n```\n";
        assert!(links(page).is_empty());
    }

    #[test]
    fn an_indented_line_within_a_paragraph_can_have_links() {
        assert_eq!(
            links("- a\n    [b](c)\n"),
            [PageLink {
                line: 2,
                target: "c"
            }]
        );
    }

    #[test]
    fn files_missing_from_an_index_or_listed_twice_are_found() {
        let files = ["t/a.sh", "t/b.sh", "t/c.sh"].map(String::from).into();
        assert_eq!(
            unlisted("t/README.md", "[a](a.sh) [b](b.sh) [b](b.sh)", &files),
            [
                "t/README.md lists t/b.sh 2 times",
                "t/README.md doesn't list t/c.sh"
            ]
        );
    }
}
