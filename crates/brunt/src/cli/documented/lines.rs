//! Finds command lines in texts: in code blocks of Markdown, between backticks, and in the header comments of examples.
//! Used by the tests of `brunt` and of `brunt-bench`.
//!
//! The rule: it extracts what a reader would paste into a shell. It drops prompts, comments, output, and remarks that
//! follow three spaces; it splits pipes, lists and `sh -c` commands.

use std::path::{Path, PathBuf};

/// A command line and the file that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedLine {
    pub file: PathBuf,
    /// The command's words, starting with the program.
    pub words: Vec<String>,
    /// Whether this is a mention in prose, which may omit arguments.
    pub is_mention: bool,
}

/// All command lines of a program in the repository's Markdown files and examples.
pub fn documented(root: &Path, program: &str) -> Vec<DocumentedLine> {
    let mut lines = Vec::new();
    for file in texts(root) {
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let file = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
        let is_page = file.extension().is_some_and(|extension| extension == "md");
        let (blocks, prose) = match is_page {
            true => blocks_and_prose(&text),
            false => (head(&text), String::new()),
        };
        let found = |words, is_mention| DocumentedLine {
            file: file.clone(),
            words,
            is_mention,
        };
        lines.extend(
            commands(&blocks, program)
                .into_iter()
                .map(|words| found(words, false)),
        );
        let mentions = prose.split('`').skip(1).step_by(2);
        for mention in mentions.filter(|mention| mention.starts_with(&format!("{program} "))) {
            let mention = mention.split_whitespace().collect::<Vec<_>>().join(" ");
            lines.extend(
                commands(&mention, program)
                    .into_iter()
                    .map(|words| found(words, true)),
            );
        }
    }
    lines
}

/// The repository's Markdown files and examples, in a fixed order.
fn texts(root: &Path) -> Vec<PathBuf> {
    let mut files = vec![
        root.join("README.md"),
        root.join("CONTRIBUTING.md"),
        root.join("python/README.md"),
    ];
    for folder in ["docs", "examples", "examples/stores", "examples/parts"] {
        let entries = std::fs::read_dir(root.join(folder))
            .unwrap_or_else(|error| panic!("{folder}: {error}"));
        let named = |file: &PathBuf| {
            let extension = file.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("md" | "toml"))
        };
        files.extend(entries.flatten().map(|entry| entry.path()).filter(named));
    }
    files.sort();
    files
}

/// Splits a text into the lines in its code blocks and all other lines.
fn blocks_and_prose(text: &str) -> (String, String) {
    let (mut blocks, mut prose) = (String::new(), String::new());
    let mut is_fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let into = if is_fenced || line.starts_with("    ") {
            &mut blocks
        } else {
            &mut prose
        };
        into.push_str(line);
        into.push('\n');
    }
    (blocks, prose)
}

/// The indented commands in the header comments of a file.
fn head(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#  "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The commands that run a program in a text of command lines.
pub fn commands(text: &str, program: &str) -> Vec<Vec<String>> {
    // Joins lines continued with a backslash.
    let parts: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
    let text = parts.join(" ");
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        // Strips the prompt.
        let line = match line.split_once(' ') {
            Some((first, rest)) if first.ends_with(['$', '#']) && first != "#" => rest,
            _ => line,
        };
        for words in simple_commands(line) {
            add(&words, program, &mut found);
        }
    }
    found
}

/// Adds a command if it runs the program, and any commands that it starts itself.
fn add(words: &[String], program: &str, found: &mut Vec<Vec<String>>) {
    let is_before = |word: &&String| {
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|one| one.is_ascii_uppercase() || one == '_')
        });
        is_assignment || matches!(word.as_str(), "sudo" | "env")
    };
    let words = &words[words.iter().take_while(is_before).count()..];
    let Some(first) = words.first() else { return };
    let is_program = Path::new(first)
        .file_name()
        .is_some_and(|name| name == program);
    if is_program {
        found.push(words.to_vec());
    }
    if first == "cargo" && words.get(1).is_some_and(|word| word == "run") {
        let of_package = words.iter().skip_while(|word| *word != "-p").nth(1);
        let is_meant = of_package.map_or("brunt", String::as_str) == program;
        let arguments = words.iter().skip_while(|word| *word != "--").skip(1);
        if is_meant {
            found.push(
                [program.to_string()]
                    .into_iter()
                    .chain(arguments.cloned())
                    .collect(),
            );
        }
        return;
    }
    if let Some(at) = words.iter().position(|word| word == "--") {
        add(&words[at + 1..], program, found);
    }
    if let [shell, flag, script] = words
        && shell == "sh"
        && flag == "-c"
    {
        found.extend(commands(script, program));
    }
}

/// The commands in a shell line, each as a list of words, without redirections and comments.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut is_word, mut is_file) = (String::new(), false, false);
    let mut spaces = 0;
    let mut chars = line.chars().peekable();
    let end_word = |word: &mut String,
                    is_word: &mut bool,
                    is_file: &mut bool,
                    commands: &mut Vec<Vec<String>>| {
        if std::mem::take(is_word) && !std::mem::take(is_file) {
            let number = if word == "N" { "1" } else { word.as_str() };
            if word != "…" {
                commands
                    .last_mut()
                    .expect("never empty")
                    .push(number.to_string());
            }
        }
        word.clear();
    };
    while let Some(one) = chars.next() {
        if one != ' ' {
            // After three spaces, the rest is a remark.
            if spaces >= 3 && commands != [Vec::<String>::new()] {
                break;
            }
            spaces = 0;
        }
        match one {
            ' ' => {
                spaces += 1;
                end_word(&mut word, &mut is_word, &mut is_file, &mut commands);
            }
            '#' if !is_word => break,
            '\'' | '"' => {
                is_word = true;
                word.extend(chars.by_ref().take_while(|other| *other != one));
            }
            '\\' => {
                is_word = true;
                word.extend(chars.next());
            }
            '$' if chars.peek() == Some(&'(') => {
                is_word = true;
                let mut depth = 0;
                for inner in chars.by_ref() {
                    depth += i32::from(inner == '(') - i32::from(inner == ')');
                    if depth == 0 {
                        break;
                    }
                }
                word.push('x');
            }
            '>' | '<' => {
                // A number before a redirection is a file descriptor.
                if word.chars().all(|digit| digit.is_ascii_digit()) {
                    (word, is_word) = (String::new(), false);
                }
                end_word(&mut word, &mut is_word, &mut is_file, &mut commands);
                while chars
                    .next_if(|next| matches!(next, '>' | '&' | ' '))
                    .is_some()
                {}
                is_file = true;
            }
            ';' | '|' | '&' => {
                end_word(&mut word, &mut is_word, &mut is_file, &mut commands);
                commands.push(Vec::new());
            }
            _ => {
                is_word = true;
                word.push(one);
            }
        }
    }
    end_word(&mut word, &mut is_word, &mut is_file, &mut commands);
    commands.retain(|words| !words.is_empty());
    commands
}
