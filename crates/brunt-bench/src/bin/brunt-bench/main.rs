//! Benchmarks Brunt against comparable tools: this program parses each subject's arguments, and the library measures
//! the subject. Each subject is one file and one line of the table.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `Terminal` survives a closed pipe; `println!` panics.

mod actors;
mod calls;
mod capture;
mod fio_jobs;
mod hosts;
mod iscsi;
mod link;
mod load;
mod nbd;
mod nfs;
mod output;
mod page;
mod replay;
mod stage;
mod store;
mod subject;
mod trace;
mod verdicts;
mod weeks;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brunt_bench::{BenchError, BenchErrorKind};
use clap::{Arg, ArgAction};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::output::{Terminal, interruption};
use self::subject::{SubjectEntry, entry};

/// All subjects, in the order of `brunt-bench --help`.
const SUBJECTS: &[SubjectEntry] = &[
    entry::<iscsi::IscsiArgs>(),
    entry::<nbd::NbdArgs>(),
    entry::<nfs::NfsBenchArgs>(),
    entry::<store::StoreArgs>(),
    entry::<load::LoadArgs>(),
    entry::<calls::CallsArgs>(),
    entry::<fio_jobs::FioJobsArgs>(),
    entry::<link::LinkArgs>(),
    entry::<hosts::HostsArgs>(),
    entry::<actors::ActorsArgs>(),
    entry::<capture::CaptureArgs>(),
    entry::<replay::ReplayArgs>(),
    entry::<trace::TraceArgs>(),
    entry::<page::PageArgs>(),
    entry::<verdicts::VerdictsArgs>(),
    entry::<weeks::WeeksArgs>(),
];

const HELP: &str = "Examples:
  # cost per request of the load engine alone
  brunt-bench load --only null
  # target and initiator on loopback, in a few seconds
  brunt-bench iscsi --quick
  # analysis and tracing of captures, against tshark and nfstrace
  brunt-bench capture --quick

Subjects that need the program `brunt` take the one next to this program; started by `cargo run`, they build it first.";

fn definition() -> clap::Command {
    clap::Command::new("brunt-bench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Benchmarks Brunt against comparable tools")
        .after_help(HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("json")
                .long("json")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Print only one JSON object on standard output"),
        )
        .subcommands(SUBJECTS.iter().map(SubjectEntry::defined))
}

fn main() -> ExitCode {
    if let Some(status) = brunt_lab::helper::serve_if_asked() {
        return ExitCode::from(status);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    if let Err(error) = listen_for_signals(&interrupted) {
        let _ = writeln!(
            io::stderr(),
            "brunt-bench: cannot install the Ctrl-C handler: {error}"
        );
    }
    let matches = definition().get_matches();
    let output = Terminal::new(matches.get_flag("json"), interrupted.clone());
    let (name, arguments) = matches.subcommand().expect("clap requires a subject");
    // In the inner process of a stage, no thread may start yet: `stage::enter` starts this one later.
    if !brunt_lab::stage::is_inside() {
        output.end_if_interrupted();
    }
    let subject = SUBJECTS.iter().find(|subject| subject.name == name);
    let run = subject
        .expect("clap knows only the subjects of the table")
        .run;
    let Err(error) = run(arguments, &output) else {
        return ExitCode::SUCCESS;
    };
    let error = cause(error, interrupted.load(Ordering::Relaxed));
    ExitCode::from(output.report(name, &error))
}

/// The cause to report for an error after an interruption: Ctrl-C also ends the programs under test, and the resulting
/// errors are not the cause.
fn cause(error: BenchError, is_interrupted: bool) -> BenchError {
    if is_interrupted && error.kind != BenchErrorKind::Interrupted {
        return interruption();
    }
    error
}

/// Sets the flag on Ctrl-C, SIGTERM and hang-up; a second Ctrl-C or SIGTERM ends the program.
fn listen_for_signals(interrupted: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the second signal finds the flag set and ends the program.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    signal_hook::flag::register(SIGHUP, interrupted.clone()).map(drop)
}

#[cfg(test)]
#[path = "../../../../brunt/src/cli/documented/lines.rs"]
mod lines;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn documented_command_lines_are_understood() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let lines = super::lines::documented(root, "brunt-bench");
        let whole = lines.iter().filter(|line| !line.is_mention);
        assert!(whole.clone().count() > 10, "too few command lines found");
        for line in whole {
            let parsed = definition().try_get_matches_from(&line.words);
            assert!(
                parsed.is_ok(),
                "{}: {}",
                line.file.display(),
                parsed.unwrap_err()
            );
        }
    }

    #[test]
    fn errors_after_an_interruption_count_as_interrupted() {
        let kind = |error: BenchError, is_interrupted| cause(error, is_interrupted).kind;
        let failed = || BenchError::failed("fio completed nothing");
        assert_eq!(kind(failed(), false), BenchErrorKind::Failed);
        assert_eq!(kind(failed(), true), BenchErrorKind::Interrupted);
        let rows = BenchError::interrupted("interrupted: the rows printed so far are complete");
        assert_eq!(cause(rows.clone(), true).what, rows.what);
    }

    #[test]
    fn each_subject_has_help_and_examples_that_parse() {
        definition().debug_assert();
        for (index, subject) in SUBJECTS.iter().enumerate() {
            let name = subject.name;
            assert!(
                SUBJECTS[..index].iter().all(|other| other.name != name),
                "{name} twice"
            );
            assert!(
                subject.defined().get_about().is_some(),
                "{name} has no help"
            );
            assert!(!subject.examples.is_empty(), "{name} has no example");
            let parse = |line: &str| definition().try_get_matches_from(words(line)).map(drop);
            for (line, purpose) in subject.examples {
                assert!(line.starts_with(&format!("brunt-bench {name}")), "{line}");
                assert!(!purpose.ends_with('.'), "{purpose}");
                parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        for line in HELP
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("brunt-bench "))
        {
            let parsed = definition().try_get_matches_from(words(line));
            assert!(parsed.is_ok(), "{line}");
        }
    }

    /// Just enough shell parsing for the examples: text in single quotes is a single word.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(str::to_string).collect(),
                _ => vec![part.to_string()],
            })
            .collect()
    }
}
