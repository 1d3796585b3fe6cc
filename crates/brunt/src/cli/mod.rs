//! What all commands share: the program's definition, `--json`, errors, exit status, Ctrl-C and terminal hangup.
//!
//! Scripts rely on these conventions: exit status 0 means success, 1 that the command failed or a verdict was
//! "worse", and 2 that the command line or a file is wrong. With `--json`, standard output carries one JSON object
//! and nothing else (`{"error": …}` if the command failed). Progress, notes and errors go to standard error.
//!
//! The rule: a command prints only through [`Output`], so a closed pipe ends the program quietly, without a panic.

mod bind;
#[cfg(test)]
mod documented;
mod failure;
mod output;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brunt_core::device_url;
use clap::{Arg, ArgAction, ArgMatches};
use serde_json::json;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ};

pub use self::bind::bind_for;
pub use self::failure::{Done, Failure};
pub use self::output::Output;
use crate::commands::{COMMANDS, Entry};
use crate::plain::Plain;

/// The definition of the whole command line, from which help, completions and man pages are generated.
pub fn definition() -> clap::Command {
    define(|command| command.defined())
}

/// The definition needed to parse these arguments. If they name a command, all other commands are defined only if
/// clap needs them: defining all of them would cost a tenth of a millisecond and 70 page faults at each start.
fn definition_for(words: impl IntoIterator<Item = OsString>) -> clap::Command {
    let first = words.into_iter().skip(1).find(|word| word != "--json");
    let is_named = |command: &Entry| first.as_ref().is_some_and(|word| word == command.name);
    // The list of all commands shows each command's description.
    if !COMMANDS.iter().any(is_named) {
        return definition();
    }
    define(|command| {
        if is_named(command) {
            command.defined()
        } else {
            command.deferred()
        }
    })
}

fn define(subcommand: impl Fn(&Entry) -> clap::Command) -> clap::Command {
    let root = clap::Command::new("brunt")
        // Usage texts show this name, regardless of the executable's file name.
        .bin_name("brunt")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Measures how storage performs under real workloads and real faults")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("json")
                .long("json")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Print only one JSON object on standard output"),
        );
    root.subcommands(COMMANDS.iter().map(subcommand))
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let interrupted = Arc::new(AtomicBool::new(false));
    brunt_core::input::stop_on(Arc::clone(&interrupted));
    let hangup = listen_for_signals(&interrupted).unwrap_or_else(|error| {
        let _ = writeln!(
            io::stderr(),
            "brunt: cannot install the Ctrl-C handler: {error}"
        );
        None
    });
    // Clap exits with status 0 for --help and --version, and with 2 for mistakes.
    let matches = definition_for(std::env::args_os())
        .try_get_matches()
        .unwrap_or_else(|error| {
            // Parsing failed, so look for --json in the raw arguments: this error must be JSON too.
            let json = error.use_stderr() && std::env::args_os().any(|word| word == "--json");
            let output = Output::new(json, interrupted.clone(), hangup);
            if !error.use_stderr() && !io::stdout().is_terminal() {
                // Help or version text; the pipe may be full, so wait for its reader.
                output.bytes(error.to_string().as_bytes());
                std::process::exit(error.exit_code());
            }
            // The message may quote a URL that contains a password.
            let hidden = words_with_secrets();
            let shown = hidden
                .iter()
                .fold(error.to_string(), |text, (word, shown)| {
                    text.replace(word, shown)
                });
            let what = shown
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            output.object(&json!({ "error": what, "advice": "try --help" }));
            if error.use_stderr() && !hidden.is_empty() {
                let _ = write!(io::stderr(), "{shown}");
                std::process::exit(error.exit_code());
            }
            error.exit()
        });
    let json = matches.get_flag("json");
    let output = Output::new(json, interrupted, hangup);
    let (name, arguments) = matches.subcommand().expect("clap requires a subcommand");
    match run(name, arguments, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.object(&json!({ "error": failure.what, "advice": failure.advice }));
            let _ = writeln!(io::stderr(), "brunt {name}: {}", Plain(&failure.what));
            if let Some(excerpt) = &failure.excerpt {
                let _ = writeln!(io::stderr(), "{}", Plain(excerpt));
            }
            if let Some(advice) = &failure.advice {
                let _ = writeln!(io::stderr(), "  help: {}", Plain(advice));
            }
            ExitCode::from(failure.status)
        }
    }
}

/// Command-line words that contain passwords, each with the form in which it may be shown.
fn words_with_secrets() -> Vec<(String, String)> {
    let words = std::env::args_os().filter_map(|word| word.into_string().ok());
    words
        .filter(|word| !device_url::secrets(word).is_empty())
        .map(|word| (word.clone(), device_url::without_secrets(&word)))
        .collect()
}

/// Sets the flag on Ctrl-C, SIGTERM, terminal hangup, and when the CPU time limit (`ulimit -t`) is reached. Returns
/// the id of the SIGHUP handler.
fn listen_for_signals(interrupted: &Arc<AtomicBool>) -> io::Result<Option<SigId>> {
    for signal in [SIGINT, SIGTERM] {
        // The order matters: at the first signal, the shutdown handler finds the flag unset; at the second, it finds
        // the flag set and ends the program.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    signal_hook::flag::register(SIGXCPU, interrupted.clone())?;
    // With a handler, a write beyond `ulimit -f` fails with EFBIG, which is reported; without a handler, SIGXFSZ ends
    // the program.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    // A closing terminal may cause several SIGHUPs, from the kernel, the shell and the outer process of a lab, so a
    // second one doesn't end the program. If SIGHUP was ignored at the start (`nohup`), it stays ignored.
    let hangup = !is_ignored(SIGHUP);
    hangup
        .then(|| signal_hook::flag::register(SIGHUP, interrupted.clone()))
        .transpose()
}

/// Whether a signal was ignored when this program started (proc_pid_status(5), SigIgn).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

fn run(name: &str, arguments: &ArgMatches, output: &Output) -> Done {
    let command = COMMANDS.iter().find(|command| command.name == name);
    (command
        .expect("clap knows only the commands of the table")
        .run)(arguments, output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that clap finds no contradiction in the definition; otherwise it would check only on use.
    #[test]
    fn clap_accepts_the_definition() {
        definition().debug_assert();
    }

    /// Checks that the partial definition for a command line behaves like the full one, regardless of the words
    /// before the command.
    #[test]
    fn a_partial_definition_behaves_like_the_full_one() {
        let answer = |definition: clap::Command, words: &[String]| match definition
            .try_get_matches_from(words)
        {
            Ok(matches) => format!("{matches:?}"),
            Err(error) => error.to_string(),
        };
        let first = COMMANDS[0].name;
        let lines = [
            "brunt",
            "brunt --help",
            "brunt help",
            "brunt nothing",
            "brunt --json",
            "brunt help lab",
            "brunt -x lab",
            "brunt -h lab",
        ];
        let named = COMMANDS.iter().flat_map(|command| {
            let name = command.name;
            [
                format!("brunt {name}"),
                format!("brunt --json {name} --help"),
                format!("brunt {name} --nothing"),
                format!("brunt {name} {first} -h"),
            ]
        });
        let examples = COMMANDS
            .iter()
            .flat_map(|command| command.examples.iter().map(|(line, _)| line.to_string()));
        for line in lines
            .map(str::to_string)
            .into_iter()
            .chain(named)
            .chain(examples)
        {
            let words = shell_words(&line);
            let quick = definition_for(words.iter().map(OsString::from));
            assert_eq!(
                answer(quick, &words),
                answer(definition(), &words),
                "{line}"
            );
        }
    }

    /// Checks that each command is listed once and has a description, and that its help ends with an example that
    /// parses.
    #[test]
    fn every_command_has_help_and_a_working_example() {
        for (index, command) in COMMANDS.iter().enumerate() {
            assert!(
                COMMANDS[..index]
                    .iter()
                    .all(|other| other.name != command.name),
                "{} twice",
                command.name
            );
            let defined = command.defined();
            assert!(
                defined.get_about().is_some(),
                "{} has no help",
                command.name
            );
            assert!(
                !command.examples.is_empty(),
                "{} has no example",
                command.name
            );
            let last = command.examples.last().expect("not empty").0;
            let help = command.defined().render_long_help().to_string();
            assert!(
                help.contains(last),
                "the help of {} lacks its example:\n{help}",
                command.name
            );
            for (example, _) in command.examples {
                let words = shell_words(example);
                let parsed = definition().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    /// Checks that all help texts have the same form: in lists, a sentence without its full stop; in long help, a
    /// separate paragraph below it; and examples with lower-case descriptions.
    #[test]
    fn help_has_one_form() {
        let subcommands =
            |command: &clap::Command| command.get_subcommands().cloned().collect::<Vec<_>>();
        for top in COMMANDS {
            let defined = top.defined();
            for command in subcommands(&defined).into_iter().chain([defined]) {
                let name = command.get_name();
                let about = command
                    .get_about()
                    .unwrap_or_else(|| panic!("{name} has no help"))
                    .to_string();
                assert!(
                    about.len() <= 100 && !about.ends_with('.') && !about.contains(". "),
                    "{name}: {about}"
                );
                let long = command.get_long_about().map(ToString::to_string);
                if let Some(long) = long.filter(|long| *long != about) {
                    assert!(long.starts_with(&format!("{about}\n\n")), "{name}: {long}");
                    assert!(long.ends_with('.'), "{name}: {long}");
                }
            }
            for (_, purpose) in top.examples {
                assert!(!purpose.ends_with('.'), "{}: {purpose}", top.name);
                let shouts = |word: &str| word.chars().all(|one| !one.is_lowercase());
                let first = purpose.split(' ').next().unwrap_or_default();
                assert!(
                    !first.starts_with(char::is_uppercase) || shouts(first),
                    "{}: {purpose}",
                    top.name
                );
            }
        }
    }

    /// Checks that devices are listed in one place, and that commands that take device URLs point there.
    #[test]
    fn devices_are_listed_once() {
        let help = |words: &[&str]| {
            definition()
                .try_get_matches_from(words)
                .unwrap_err()
                .to_string()
        };
        let list = brunt_block::table::help(&crate::devices::BACKENDS);
        let of_devices = help(&["brunt", "help", "devices"]);
        for line in list.lines().map(str::trim).filter(|line| line.len() < 80) {
            assert!(of_devices.contains(line), "{line} is not in {of_devices}");
        }
        for command in ["run", "io", "target"] {
            let text = help(&["brunt", command, "--help"]);
            assert!(
                text.contains("'brunt help devices'") && !text.contains("null:1GiB\n"),
                "{text}"
            );
        }
    }

    /// Checks that the usage shows the program's name, not its file's.
    #[test]
    fn usage_shows_the_programs_name() {
        for words in [
            &["/opt/brunt-1.0.bin", "--help"][..],
            &["x", "io", "read"],
            &["x", "capture"],
        ] {
            let text = definition()
                .try_get_matches_from(words)
                .unwrap_err()
                .to_string();
            assert!(text.contains("Usage: brunt"), "{text}");
        }
        let text = definition()
            .try_get_matches_from(["brunt", "capture"])
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("--read <FILE>") && text.contains("--interface <INTERFACE>"),
            "{text}"
        );
    }

    /// Checks that the help of each subcommand has an example that parses.
    #[test]
    fn every_subcommand_has_a_working_example() {
        for command in COMMANDS {
            for mut sub in command.defined().get_subcommands().cloned() {
                let help = sub.render_long_help().to_string();
                let start = format!("brunt {} {} ", command.name, sub.get_name());
                let mut examples = help
                    .lines()
                    .map(str::trim)
                    .filter(|line| line.starts_with(&start))
                    .peekable();
                assert!(examples.peek().is_some(), "{start}has no example:\n{help}");
                for example in examples {
                    let parsed = definition().try_get_matches_from(shell_words(example));
                    assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
                }
            }
        }
    }

    /// The `brunt` command in an example.
    fn shell_words(line: &str) -> Vec<String> {
        let found = super::documented::commands_in(line, "brunt");
        found.into_iter().next().unwrap_or_default()
    }
}
