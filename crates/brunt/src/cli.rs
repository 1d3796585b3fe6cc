//! What all commands share: the program's definition, `--json`, errors, exit status, Ctrl-C and the terminal's end.
//!
//! Conventions scripts rely on: exit status 0 done, 1 the work failed or a verdict was "worse",
//! 2 the command line or a file is wrong; with `--json` standard output carries one JSON object
//! and nothing else (`{"error": …}` when the command failed). Progress, notes and errors go to
//! standard error.
//! The one rule: a command prints through [`Output`] only, so that a closed pipe ends the
//! program quietly instead of with a panic.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brunt_core::device_url;
use brunt_study::experiment::FileError;
use clap::{Arg, ArgAction, ArgMatches};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::{COMMANDS, Entry};
use crate::plain::Plain;

/// Why a command failed: what happened, what to do about it, and the exit status.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    what: String,
    /// The offending lines of a file, with a marker.
    excerpt: Option<String>,
    advice: Option<String>,
}

impl Failure {
    /// The work failed, or the verdict was "worse": status 1.
    pub fn failed(what: impl Display) -> Failure {
        Failure {
            status: 1,
            what: what.to_string(),
            excerpt: None,
            advice: None,
        }
    }

    /// The command line or a file is wrong: status 2.
    pub fn usage(what: impl Display) -> Failure {
        Failure {
            status: 2,
            what: what.to_string(),
            excerpt: None,
            advice: None,
        }
    }

    /// What happened and what to do about it, without the lines of a file.
    pub fn in_a_line(&self) -> String {
        match &self.advice {
            Some(advice) => format!("{}; {advice}", self.what),
            None => self.what.clone(),
        }
    }

    /// What happened.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The same, said of this flag.
    pub fn prefixed(mut self, flag: &str) -> Failure {
        self.what.insert_str(0, flag);
        self
    }

    /// The same, at a place in a file: `at` says where, given what happened.
    pub fn located(mut self, at: impl FnOnce(String) -> Box<FileError>) -> Failure {
        let error = at(self.what);
        (self.what, self.excerpt) = (error.one_line(), error.excerpt());
        self
    }

    /// Adds the lines of the file with a marker at the mistake; printed below the message.
    pub fn at(mut self, excerpt: Option<String>) -> Failure {
        self.excerpt = excerpt;
        self
    }

    /// What the user can do about it: a sentence starting with a verb.
    pub fn advise(mut self, advice: impl Display) -> Failure {
        self.advice = Some(advice.to_string());
        self
    }
}

impl From<brunt_bench::BenchError> for Failure {
    fn from(error: brunt_bench::BenchError) -> Failure {
        let failure = match error.kind {
            brunt_bench::BenchErrorKind::Usage => Failure::usage(&error),
            brunt_bench::BenchErrorKind::Failed => Failure::failed(&error),
        };
        Failure {
            advice: error.advice,
            ..failure
        }
    }
}

impl From<Box<FileError>> for Failure {
    fn from(error: Box<FileError>) -> Failure {
        let advice = error.help_text().map(str::to_string);
        Failure {
            advice,
            ..Failure::usage(error.one_line()).at(error.excerpt())
        }
    }
}

impl From<brunt_fio::FioError> for Failure {
    fn from(error: brunt_fio::FioError) -> Failure {
        Failure {
            advice: error.advice().map(str::to_string),
            ..Failure::usage(&error)
        }
    }
}

/// Result of a command.
pub type Done = Result<(), Failure>;

/// Where a command prints, and whether the user has interrupted it.
#[derive(Clone)]
pub struct Output {
    json: bool,
    answered: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
    /// What has SIGHUP interrupt.
    hangup: Option<SigId>,
    /// Progress bar at the bottom of the terminal; notes are printed above it.
    above: Arc<Mutex<Option<ProgressBar>>>,
    /// Gets each note, too.
    listener: Arc<Mutex<Option<NoteListener>>>,
}

/// Whoever is told what is noted on the terminal.
pub type NoteListener = Box<dyn Fn(&str) + Send>;

impl Output {
    /// One line for people on standard output; dropped with `--json`.
    pub fn line(&self, text: impl Display) {
        if !self.json {
            self.write(format_args!("{}\n", Plain(text)));
        }
    }

    /// The one object of `--json`. Dropped without `--json`, or if an object was already printed: a failure after the
    /// results does not print a second one.
    pub fn object(&self, value: &Value) {
        if self.json && !self.answered.swap(true, Ordering::Relaxed) {
            self.write(format_args!("{value:#}\n"));
        }
    }

    /// Bytes as they are (a read's data, a completion script), with `--json` or without.
    pub fn bytes(&self, bytes: &[u8]) {
        end_if_closed(
            io::stdout()
                .write_all(bytes)
                .and_then(|()| io::stdout().flush()),
        );
    }

    /// One line on standard error, for what the user should know in addition to the answer.
    pub fn note(&self, text: impl Display) {
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            listener(&text.to_string());
        }
        let write = || {
            let _ = writeln!(io::stderr(), "brunt: {}", Plain(&text));
        };
        match &*self.above.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Sets the progress bar above which notes are printed; `None` removes it.
    pub fn set_above(&self, bar: Option<ProgressBar>) {
        *self.above.lock().unwrap_or_else(PoisonError::into_inner) = bar;
    }

    /// Has each note told to this listener from now on; `None` ends that.
    pub fn listen(&self, listener: Option<NoteListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    /// Whether `--json` was given.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the user pressed Ctrl-C, sent SIGTERM or closed the terminal (SIGHUP): stop, drain, print what was
    /// measured. A second Ctrl-C or SIGTERM ends the program at once.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Does what Ctrl-C does, for somebody who asks from elsewhere.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Has SIGHUP set a flag of its own from now on instead of interrupting: for a service that reads its file again.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn divert_hangup(&self) -> io::Result<Arc<AtomicBool>> {
        let hung_up = Arc::new(AtomicBool::new(false));
        // First the new one, so that there is no moment without any.
        signal_hook::flag::register(SIGHUP, hung_up.clone())?;
        if let Some(id) = self.hangup {
            signal_hook::low_level::unregister(id);
        }
        Ok(hung_up)
    }

    /// The flag behind [`Output::is_interrupted`], for loops that look at it themselves.
    pub fn interrupt_flag(&self) -> &Arc<AtomicBool> {
        &self.interrupted
    }

    fn write(&self, text: std::fmt::Arguments<'_>) {
        // In one piece: a line-buffered stream would cost a system call for each line.
        self.bytes(text.to_string().as_bytes());
    }
}

impl brunt_bench::Console for Output {
    fn print_line(&self, text: &dyn Display) {
        self.line(text);
    }

    fn print_note(&self, text: &dyn Display) {
        self.note(text);
    }

    fn print_object(&self, value: &Value) {
        self.object(value);
    }

    fn is_interrupted(&self) -> bool {
        Output::is_interrupted(self)
    }
}

/// Exits quietly when the reader of our output is gone (`brunt … | head`).
fn end_if_closed(result: io::Result<()>) {
    if let Err(error) = result {
        if error.kind() != io::ErrorKind::BrokenPipe {
            let _ = writeln!(
                io::stderr(),
                "brunt: cannot write to standard output: {error}"
            );
        }
        std::process::exit(1);
    }
}

/// The whole command line's definition: help, completions and man pages all come from here.
pub fn definition() -> clap::Command {
    define(|command| command.defined())
}

/// The same for these arguments. Where they name a command, the others are defined only if clap looks at them: that
/// would be a tenth of a millisecond and 70 page faults at each start.
fn definition_for(words: impl IntoIterator<Item = OsString>) -> clap::Command {
    let first = words.into_iter().skip(1).find(|word| word != "--json");
    let is_named = |command: &Entry| first.as_ref().is_some_and(|word| word == command.name);
    // The list of all commands shows what each is for.
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
        // What the usage says, whatever the program's file is called.
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
    let hangup = listen_for_signals(&interrupted).unwrap_or_else(|error| {
        let _ = writeln!(
            io::stderr(),
            "brunt: cannot install the Ctrl-C handler: {error}"
        );
        None
    });
    // Clap answers --help and --version with status 0 and mistakes with status 2.
    let matches = definition_for(std::env::args_os())
        .try_get_matches()
        .unwrap_or_else(|error| {
            // Parsing failed, so look for --json in the raw arguments: this error must be JSON too.
            let json = error.use_stderr() && std::env::args_os().any(|word| word == "--json");
            let output = Output {
                json,
                answered: Arc::default(),
                interrupted: interrupted.clone(),
                hangup,
                above: Arc::default(),
                listener: Arc::default(),
            };
            // The message may quote a word that is a URL with a password.
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
    let (above, listener) = (Arc::default(), Arc::default());
    let output = Output {
        json,
        answered: Arc::default(),
        interrupted,
        hangup,
        above,
        listener,
    };
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

/// Words of the command line that have passwords, and how they are shown.
fn words_with_secrets() -> Vec<(String, String)> {
    let words = std::env::args_os().filter_map(|word| word.into_string().ok());
    words
        .filter(|word| !device_url::secrets(word).is_empty())
        .map(|word| (word.clone(), device_url::without_secrets(&word)))
        .collect()
}

/// Listens where `what` is to be served; nobody is answered yet. `None` where nobody asked for it.
///
/// # Errors
/// The address is taken or not this machine's.
pub fn bind_for(what: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, Failure> {
    let refused = |error, address| {
        Failure::failed(format!("cannot serve {what} at {address}: {error}"))
            .advise("write another address, or port 0 for a free one")
    };
    address
        .map(|address| TcpListener::bind(address).map_err(|error| refused(error, address)))
        .transpose()
}

/// Has Ctrl-C, SIGTERM and the end of the terminal set the flag. What does so for the last.
fn listen_for_signals(interrupted: &Arc<AtomicBool>) -> io::Result<Option<SigId>> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds the flag set and ends the program.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    // A terminal that closes may send it more than once: by the kernel, by the shell, by the outer process of a lab.
    // `nohup` has it ignored, which stays so.
    let hangup = !is_ignored(SIGHUP);
    hangup
        .then(|| signal_hook::flag::register(SIGHUP, interrupted.clone()))
        .transpose()
}

/// Whether whoever started this program has it ignore a signal (proc_pid_status(5), SigIgn).
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

/// The name of a file that was read, for people.
pub fn file_label(file: &std::path::Path) -> String {
    match file.file_name() {
        Some(name) if name != "-" => name.to_string_lossy().into_owned(),
        _ => "standard input".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clap finds no contradiction in the definition (it checks on use otherwise).
    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    /// What is defined for a command line answers it as the whole definition does, whatever the words before the command.
    #[test]
    fn a_definition_for_a_command_line_answers_as_the_whole() {
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

    /// Each command is listed once, has a description, and its help ends with an example that parses.
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

    /// All help has one form: a sentence without its full stop in lists, a paragraph of its own below it in long help,
    /// and examples with what each does in lower case.
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

    /// Devices are listed once, and commands that take their URLs say where.
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

    /// The usage has the program's name, not its file's.
    #[test]
    fn usage_names_the_program() {
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

    /// Each subcommand has an example in its help, and it parses.
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

    /// Enough of a shell for the examples: words up to a redirection or pipe, and what stands in quotes is one.
    fn shell_words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut rest = line.trim();
        while let Some(first) = rest.chars().next() {
            let quoted = matches!(first, '\'' | '"')
                .then(|| rest[1..].split_once(first))
                .flatten();
            let (word, tail) = quoted
                .or_else(|| rest.split_once(' '))
                .unwrap_or((rest, ""));
            if matches!(word, ">" | "|" | "&") {
                break;
            }
            words.push(word.to_string());
            rest = tail.trim_start();
        }
        words
    }
}
