//! `brunt run --interleave`: runs several experiments in turns, each in a separate process, and compares their results.
//! Called by `super::run`.
//!
//! The rule: at most one experiment measures at any time, and if one ends early, all end, because the remaining runs
//! of the others would have no counterparts. Finished runs are kept.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brunt_core::units::counted;
use brunt_report::experiment;
use brunt_result::distinct::distinct_names;
use brunt_result::experiment::InterleavedWith;
use brunt_result::statistics::{MARGIN, interleaved};
use brunt_result::summary::{FILE_NAME, Summary};
use brunt_study::experiment::{Experiment, InterleavedExperiment, Plan, check_interleaved};
use brunt_study::study::{ASK, GO, StudyTurns, table};
use clap::Args;
use rustix::process::{
    Pid, Signal, kill_process, parent_process_death_signal, set_parent_process_death_signal,
};
use serde_json::{Value, json};

use super::compare::{CompareOptions, NamedResult, compare_all};
use super::run::{Run, folder_names};
use super::run_check::{self, Check};
use crate::cli::{Done, Failure, Output};

/// How often to check for an interruption and for a process that ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for the last messages of a process that has ended.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// An experiment that takes turns with others.
pub(super) struct Entrant {
    pub file: PathBuf,
    pub experiment: Experiment,
    pub plan: Plan,
    /// Notes on the experiment, printed by `--check`; in a run, the experiment's own process prints them.
    pub notes: Vec<String>,
    /// The folder for the experiment's results.
    pub folder: PathBuf,
}

impl Entrant {
    /// Creates an entrant from an experiment file, without a results folder yet.
    pub fn new(file: &Path, experiment: Experiment, notes: Vec<String>) -> Entrant {
        Entrant {
            file: file.to_path_buf(),
            plan: experiment.plan(),
            experiment,
            notes,
            folder: PathBuf::new(),
        }
    }

    /// The names that may identify the experiment in messages, taken from its results folder, because the same file
    /// may be given twice.
    fn names(&self) -> [String; 2] {
        let name = self.folder.file_name().unwrap_or(self.folder.as_os_str());
        [name, self.folder.as_os_str()].map(|name| name.to_string_lossy().into_owned())
    }
}

/// Chooses unused folders for the results, next to each file or in `folder`.
pub(super) fn place(entrants: &mut [Entrant], folder: Option<&Path>) {
    for index in 0..entrants.len() {
        let (chosen, rest) = entrants.split_at_mut(index);
        let file = &rest[0].file;
        let near = match folder {
            Some(folder) => folder.join(file.file_name().unwrap_or(file.as_os_str())),
            None => file.clone(),
        };
        let is_free =
            |name: &PathBuf| !name.exists() && chosen.iter().all(|other| other.folder != *name);
        let found = folder_names(&near).find(is_free);
        rest[0].folder = found.expect("an unused number");
    }
}

/// Parses the value of `--takes-turns`.
pub(super) fn parse_place(text: &str) -> Result<InterleavedWith, serde_json::Error> {
    serde_json::from_str(text)
}

/// Called in the process of one experiment: takes turns over the socket that is its standard input.
pub(super) fn join(place: InterleavedWith) -> Result<StudyTurns, Failure> {
    // If the process that gives turns is killed, interrupt this process. Inside a lab, the outer process is
    // interrupted instead, and passes it on.
    if parent_process_death_signal().ok().flatten().is_none() {
        set_parent_process_death_signal(Some(Signal::TERM)).map_err(Failure::failed)?;
    }
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let turns = socket.and_then(|socket| StudyTurns::new(UnixStream::from(socket), place));
    turns.map_err(|error| Failure::failed(format!("cannot take turns: {error}")))
}

/// Rejects experiments that can't take turns.
pub(super) fn check(entrants: &mut [Entrant]) -> Done {
    if entrants.len() < 2 {
        return Err(Failure::usage("--interleave needs two or more experiments")
            .advise("name another file; naming the same file twice shows the noise"));
    }
    for entrant in entrants.iter_mut() {
        // If a replay's trace can't be read, the replay counts as writing; the run reports why it can't be read.
        let _ = entrant.plan.find_written();
    }
    let all: Vec<InterleavedExperiment<'_>> = entrants
        .iter()
        .map(|entrant| InterleavedExperiment {
            file: &entrant.file,
            experiment: &entrant.experiment,
            plan: &entrant.plan,
        })
        .collect();
    check_interleaved(&all).map_err(Failure::usage)
}

/// Checks each experiment, and describes how they take turns.
pub(super) fn describe(entrants: Vec<Entrant>, how: Check, output: &Output) -> Done {
    let (mut checked, count) = (Vec::new(), entrants.len());
    let runs = entrants[0].plan.runs.len();
    for mut entrant in entrants {
        output.line(format_args!("{}:", entrant.file.display()));
        entrant.notes.iter().for_each(|note| output.note(note));
        let folder = &entrant.folder;
        checked.push(run_check::check(
            &entrant.experiment,
            &mut entrant.plan,
            how,
            folder,
            output,
        )?);
    }
    output.line(format_args!(
        "{count} experiments take turns: {} of {count} runs each, in random order",
        counted(runs, "turn")
    ));
    output.object(&json!({ "experiments": checked, "turns": runs }));
    Ok(())
}

/// Runs the experiments, prints their tables, and compares them with the first.
///
/// # Errors
/// An experiment could not begin, ended early, or failed in another way; it has already printed its own message.
pub(super) fn run(entrants: &[Entrant], output: &Output) -> Done {
    let seed = entrants[0].experiment.seed;
    let mut runners = start(entrants, output)?;
    // With a precision target, the number of runs isn't known.
    let planned = match entrants[0].experiment.precision {
        None => entrants[0].plan.runs.len(),
        Some(_) => usize::MAX,
    };
    take_turns(&mut runners, seed, planned, output);
    let ended: Vec<ExitStatus> = runners
        .iter_mut()
        .map(Runner::finish)
        .collect::<io::Result<_>>()
        .map_err(Failure::failed)?;
    // Experiments that could not begin have no results; their own messages explain why.
    let begun = |runner: &&Runner| runner.folder.join(FILE_NAME).exists();
    let begun: Vec<&Runner> = runners.iter().filter(begun).collect();
    let folders: Vec<&Path> = begun.iter().map(|runner| runner.folder.as_path()).collect();
    let summaries = experiment::read_to_compare(&folders, &[]).map_err(Failure::failed)?;
    let results: Vec<(&Runner, Summary)> = begun.into_iter().zip(summaries).collect();
    for (runner, summary) in &results {
        output.line(format_args!("{}:", runner.name));
        table(summary)
            .into_iter()
            .for_each(|line| output.wrapped(&line));
    }
    let compared = match results.len() {
        0 | 1 => Vec::new(),
        _ => compare(&results, output)?,
    };
    for (runner, _) in &results {
        output.line(format_args!("results in {}", runner.folder.display()));
    }
    output.object(&json!({
        "results": results.iter().map(|(runner, summary)| json!({ "folder": runner.folder, "summary": summary }))
            .collect::<Vec<Value>>(),
        "comparisons": compared,
    }));
    failed(&runners, &ended)
}

/// Prints how the results compare with the first.
fn compare(results: &[(&Runner, Summary)], output: &Output) -> Result<Vec<Value>, Failure> {
    let named: Vec<NamedResult<'_>> = results
        .iter()
        .map(|(runner, summary)| NamedResult {
            name: runner.name.clone(),
            summary,
        })
        .collect();
    let wanted = CompareOptions {
        margin: MARGIN,
        ..CompareOptions::default()
    };
    let compared = compare_all(&named, &wanted, output)?;
    Ok(compared.into_iter().map(|one| one.object).collect())
}

/// Fails if experiments failed, and names them.
fn failed(runners: &[Runner], ended: &[ExitStatus]) -> Done {
    let failed: Vec<String> = runners
        .iter()
        .zip(ended)
        .filter(|(_, status)| !status.success())
        .map(|(runner, status)| format!("{} ({status})", runner.name))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    let what = format!("failed: {}; see the messages above", failed.join(", "));
    // An experiment with a mistake in its file exits with status 2 before the first run.
    let is_usage = ended.iter().any(|status| status.code() == Some(2));
    Err(match is_usage {
        true => Failure::usage(what),
        false => Failure::failed(what),
    })
}

/// The process that runs one experiment.
struct Runner {
    name: String,
    folder: PathBuf,
    process: Child,
    socket: UnixStream,
    /// The thread that prints its messages.
    relay: JoinHandle<()>,
    /// Number of turns given to the experiment.
    turns: usize,
    /// Whether the experiment is waiting for a turn; otherwise it has ended.
    is_asking: bool,
    /// Whether the experiment was asked to end.
    is_stopped: bool,
}

/// Starts a process for each experiment. They open their targets one after another. If one of them can't begin, those
/// already running are ended.
fn start(entrants: &[Entrant], output: &Output) -> Result<Vec<Runner>, Failure> {
    let id = new_id();
    let results = distinct_names(entrants.iter().map(Entrant::names).collect());
    let mut runners = Vec::new();
    for (place, entrant) in entrants.iter().enumerate() {
        let with = InterleavedWith {
            id: id.clone(),
            place: place as u32,
            results: results.clone(),
        };
        let runner = Runner::start(entrant, &with, entrants, output).map_err(|error| {
            Failure::failed(format!(
                "cannot start a second process of this program: {error}"
            ))
        })?;
        runners.push(runner);
        wait(&mut runners, place, output);
        if !runners[place].is_asking {
            break;
        }
    }
    Ok(runners)
}

/// Gives turns until all experiments have ended. In each round, every experiment gets one turn, in random order.
fn take_turns(runners: &mut [Runner], seed: u64, planned: usize, output: &Output) {
    for round in 0u64.. {
        let mut asked = false;
        for (place, _) in interleaved(runners.len(), 1, seed.wrapping_add(round)) {
            if ended_early(runners, planned) || output.is_interrupted() {
                runners.iter_mut().for_each(Runner::stop);
                return;
            }
            if !runners[place].is_asking {
                continue;
            }
            asked = true;
            runners[place].turns += 1;
            runners[place].is_asking = runners[place].socket.write_all(&[GO]).is_ok();
            wait(runners, place, output);
        }
        if !asked {
            return;
        }
    }
}

/// Whether an experiment ended before all its runs were made, or without results. An experiment that made all
/// `planned` runs is finished, even if some are incomplete.
fn ended_early(runners: &[Runner], planned: usize) -> bool {
    let complete = |runner: &Runner| {
        runner.turns >= planned || Summary::read(&runner.folder).is_ok_and(|found| found.complete)
    };
    let mut ended = runners.iter().filter(|runner| !runner.is_asking);
    !ended.all(complete)
}

/// Waits until an experiment asks for its next turn or has ended. An interruption ends all experiments.
fn wait(runners: &mut [Runner], place: usize, output: &Output) {
    let mut byte = [0];
    loop {
        let runner = &mut runners[place];
        match runner.socket.read(&mut byte) {
            Ok(1) if byte == [ASK] => {
                runner.is_asking = true;
                return;
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                // Children of the process may still hold the socket, so also check the process.
                if matches!(runner.process.try_wait(), Ok(Some(_)) | Err(_)) {
                    runner.is_asking = false;
                    return;
                }
            }
            Ok(_) | Err(_) => {
                runner.is_asking = false;
                return;
            }
        }
        if output.is_interrupted() {
            runners.iter_mut().for_each(Runner::stop);
        }
    }
}

impl Runner {
    fn start(
        entrant: &Entrant,
        with: &InterleavedWith,
        all: &[Entrant],
        output: &Output,
    ) -> io::Result<Runner> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(POLL_INTERVAL))?;
        let files: Vec<&Path> = all.iter().map(|one| one.file.as_path()).collect();
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments(std::env::args_os().skip(1), &files))
            .arg("--out")
            .arg(&entrant.folder)
            .arg("--takes-turns")
            .arg(serde_json::to_string(with)?)
            .arg("--")
            .arg(&entrant.file)
            // Ctrl-C reaches only this process, which passes it on to the experiments.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let name = with.results[with.place as usize].clone();
        let relay = process.stderr.take().map(|stderr| {
            let (name, output) = (name.clone(), output.clone());
            std::thread::spawn(move || pass_on(stderr, &name, &output))
        });
        Ok(Runner {
            name,
            folder: entrant.folder.clone(),
            process,
            socket: ours,
            relay: relay.expect("it is piped"),
            turns: 0,
            is_asking: false,
            is_stopped: false,
        })
    }

    /// Asks the experiment to end, as Ctrl-C does.
    fn stop(&mut self) {
        let pid = i32::try_from(self.process.id()).ok();
        if let Some(pid) = pid.and_then(Pid::from_raw)
            && !std::mem::replace(&mut self.is_stopped, true)
            && matches!(self.process.try_wait(), Ok(None))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits until the experiment has ended and its messages are printed.
    fn finish(&mut self) -> io::Result<ExitStatus> {
        // No more turns follow: an experiment that missed the signal to end must not wait for its next turn.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let status = self.process.wait()?;
        // A process that the experiment left behind may hold the pipe open.
        let mut left = CLOSING_TIME;
        while !self.relay.is_finished() && !left.is_zero() {
            std::thread::sleep(POLL_INTERVAL.min(left));
            left = left.saturating_sub(POLL_INTERVAL);
        }
        Ok(status)
    }
}

/// Prints the messages of an experiment, prefixed with its name.
fn pass_on(stderr: ChildStderr, name: &str, output: &Output) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let text = text.strip_prefix("brunt: ").unwrap_or(text);
        let text = text.strip_prefix("brunt run: ").unwrap_or(text);
        output.note(format_args!("{name}: {text}"));
        line.clear();
    }
}

/// Options of `brunt run` that take the next word as their value, which may equal a file's name.
fn valued() -> Vec<String> {
    let command = Run::augment_args(clap::Command::new("run"));
    let options = command.get_arguments();
    let options =
        options.filter(|one| one.get_action().takes_values() && !one.is_require_equals_set());
    let names = options.filter_map(clap::Arg::get_long);
    names.map(|name| format!("--{name}")).collect()
}

/// This command's arguments without those that only concern the process that gives turns: the files, their folder,
/// and the kind of output.
fn arguments(given: impl Iterator<Item = OsString>, files: &[&Path]) -> Vec<OsString> {
    let (mut kept, valued) = (Vec::new(), valued());
    let mut given = given;
    while let Some(word) = given.next() {
        let bytes = word.as_encoded_bytes();
        if bytes == b"--out" || bytes == b"-o" {
            given.next();
        } else if valued.iter().any(|name| name.as_bytes() == bytes) {
            kept.push(word);
            kept.extend(given.next());
        } else if !(bytes.starts_with(b"--out=")
            || bytes.starts_with(b"-o")
            || [&b"--interleave"[..], b"--json", b"--"].contains(&bytes)
            || files.contains(&Path::new(&word)))
        {
            kept.push(word);
        }
    }
    kept
}

/// An identifier for this group of experiments, unique by time and process.
fn new_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    format!("{nanos:x}-{:x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_gets_the_options_that_concern_it() {
        let check = |given: &[&str], expected: &[&str]| {
            let files = ["a.toml", "b.toml"].map(Path::new);
            let found = arguments(given.iter().map(OsString::from), &files);
            let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
            assert_eq!(found, expected);
        };
        check(
            &["run", "--interleave", "a.toml", "b.toml", "--reps", "8"],
            &["run", "--reps", "8"],
        );
        check(
            &[
                "--json",
                "run",
                "a.toml",
                "--out",
                "x",
                "--set",
                "seed=2",
                "b.toml",
                "--interleave",
            ],
            &["run", "--set", "seed=2"],
        );
        check(
            &[
                "run",
                "-o",
                "x",
                "--interleave",
                "--label",
                "v1",
                "--",
                "a.toml",
                "b.toml",
            ],
            &["run", "--label", "v1"],
        );
        check(&["run", "-ox", "--out=y", "a.toml"], &["run"]);
        check(
            &["run", "--label", "b.toml", "a.toml", "b.toml"],
            &["run", "--label", "b.toml"],
        );
    }

    #[test]
    fn a_place_is_passed_on() {
        let place = InterleavedWith {
            id: new_id(),
            place: 1,
            results: vec!["a b.results".into(), "c.results".into()],
        };
        let text = serde_json::to_string(&place).unwrap();
        assert_eq!(parse_place(&text).unwrap(), place);
        assert!(parse_place("1").is_err());
    }
}
