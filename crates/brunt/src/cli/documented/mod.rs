//! Tests that the command lines in the documentation, examples, help and messages are valid for this program.

mod lines;

use std::path::Path;

use clap::error::ErrorKind;

use self::lines::{DocumentedLine, commands, documented};
use super::definition;

pub use self::lines::commands as commands_in;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Why a command line is invalid; `None` if it is valid.
fn mistake(line: &DocumentedLine, definition: &mut clap::Command) -> Option<String> {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    use ErrorKind::{InvalidValue, MissingRequiredArgument, MissingSubcommand};
    let error = definition.try_get_matches_from_mut(&line.words).err()?;
    let ends_with_flag = line.words.last().is_some_and(|word| word.starts_with('-'));
    let is_fine = match error.kind() {
        DisplayHelp | DisplayVersion => true,
        // A mention of a command may omit its subject or the value of its last flag.
        InvalidValue => line.is_mention && ends_with_flag,
        DisplayHelpOnMissingArgumentOrSubcommand | MissingRequiredArgument | MissingSubcommand => {
            line.is_mention
        }
        _ => false,
    };
    (!is_fine).then(|| format!("{}: {}: {error}", line.file.display(), line.words.join(" ")))
}

/// The example or test data file that a command line names, if it doesn't exist.
fn missing_file(line: &DocumentedLine) -> Option<String> {
    let is_ours = |word: &&String| {
        (word.starts_with("examples/") && word.ends_with(".toml")) || word.starts_with("testdata/")
    };
    let word = line
        .words
        .iter()
        .find(|word| is_ours(word) && !word.contains("NAME"))?;
    (!root().join(word).exists()).then(|| format!("{}: there is no {word}", line.file.display()))
}

#[test]
fn documented_command_lines_are_valid() {
    let lines = documented(root(), "brunt");
    let whole = lines.iter().filter(|line| !line.is_mention).count();
    assert!(whole > 150, "only {whole} command lines found");
    let mut definition = definition();
    let wrong: Vec<String> = lines
        .iter()
        .flat_map(|line| [mistake(line, &mut definition), missing_file(line)])
        .flatten()
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Messages, advice and comments quote the commands they mention.
#[test]
fn commands_named_in_messages_are_valid() {
    let (mut count, mut definition) = (0, definition());
    for krate in std::fs::read_dir(root().join("crates"))
        .expect("crates")
        .flatten()
    {
        for_each_source(&krate.path().join("src"), &mut |file, text| {
            for quote in ['\'', '`'] {
                for part in text.split(&format!("{quote}brunt ")).skip(1) {
                    let Some((line, _)) = part.split_once(quote) else {
                        continue;
                    };
                    let line = line
                        .replace("\n///", " ")
                        .replace("\n//!", " ")
                        .replace("\\\n", " ");
                    // Skip version numbers and the headings of help texts.
                    let is_name = line.starts_with(|one: char| one.is_ascii_digit())
                        || line.starts_with("help ");
                    if is_name || line.contains(['{', '\n', '…']) {
                        continue;
                    }
                    for words in commands(&format!("brunt {line}"), "brunt") {
                        let line = DocumentedLine {
                            file: file.to_path_buf(),
                            words,
                            is_mention: true,
                        };
                        assert_eq!(mistake(&line, &mut definition), None);
                        count += 1;
                    }
                }
            }
        });
    }
    assert!(count > 50, "only {count} commands found");
}

fn for_each_source(folder: &Path, look: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).expect("sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            for_each_source(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path, &std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// Tests the extraction: which commands it must find, and that a wrong flag, command or file is reported.
#[test]
fn command_lines_are_found_as_a_shell_reads_them() {
    let check = |text: &str, expected: &[&str]| {
        let found: Vec<String> = commands(text, "brunt")
            .iter()
            .map(|words| words.join("|"))
            .collect();
        assert_eq!(found, expected, "{text}");
    };
    check(
        "    $ brunt run a.toml      what it does",
        &["brunt|run|a.toml"],
    );
    check(
        "node7# brunt agent --stdio   # until Ctrl-C",
        &["brunt|agent|--stdio"],
    );
    check("brunt: live page at http://x", &[]);
    check(
        "sudo env A=b ./brunt sql DIR 'select 1' > x 2>&1",
        &["./brunt|sql|DIR|select 1"],
    );
    check("cargo run --release -- run a.toml", &["brunt|run|a.toml"]);
    check("cargo run --release -p brunt-bench -- nbd", &[]);
    check(
        "mkdir x && brunt man x; brunt --json schema | jq . &",
        &["brunt|man|x", "brunt|--json|schema"],
    );
    check(
        "brunt lab exec a -- sh -c 'brunt io info \"$X\"'",
        &[
            "brunt|lab|exec|a|--|sh|-c|brunt io info \"$X\"",
            "brunt|io|info|$X",
        ],
    );
    check(
        "brunt io write x \\\n  --bs 1M",
        &["brunt|io|write|x|--bs|1M"],
    );
    let mut definition = definition();
    let mut wrong = |words: &str| {
        let words = words.split(' ').map(str::to_string).collect();
        let line = DocumentedLine {
            file: "x.md".into(),
            words,
            is_mention: false,
        };
        let found = mistake(&line, &mut definition).or_else(|| missing_file(&line));
        assert!(found.is_some(), "{:?}", line.words);
    };
    wrong("brunt run a.toml --nothing");
    wrong("brunt bench iscsi");
    wrong("brunt run");
    wrong("brunt run examples/none.toml");
}
