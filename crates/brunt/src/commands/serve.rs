//! `brunt serve`: a web page to compose, run and watch experiments and compare results. `brunt_web::api` answers
//! requests; this module implements checking and running experiments for it.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use brunt_study::experiment::FileError;
use brunt_web::api::{CheckedExperiment, CheckedText, ExperimentActions, ServedSite, TextMistake};
use serde_json::json;

use super::run_check::{Inputs, check_closed};
use super::{Subcommand, experiment_file};
use crate::cli::{Done, Failure, Output, bind_for};
use crate::live;

/// Name under which an experiment's text is parsed; its paths are relative to the folder in which the server was
/// started.
const FILE: &str = "experiment.toml";
/// Default folder of results.
const RESULTS: &str = "results";
/// How often to check whether the server should end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Serve a page to compose, run, watch and compare experiments
///
/// Prints its address first. Anyone who can reach the page can watch; starting or stopping a run and reading results
/// require the token in the printed address. Experiments run one at a time, each in a separate process. Ctrl-C ends
/// the experiment with its report, then the server; a second Ctrl-C ends the server at once, and the run then ends by
/// itself.
#[derive(clap::Args)]
pub struct Serve {
    /// Address or port to listen on [default: a free port, for this machine only]
    #[arg(default_value = live::DEFAULT, hide_default_value = true, value_parser = live::parse_only_address)]
    address: SocketAddr,
    /// Folder of results: each experiment gets a folder in it, and all results in it are listed [default: "results";
    /// also lists the results that 'brunt run' wrote in the current folder and its subfolders]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// Only watch and compare: no experiment can be started
    #[arg(long)]
    no_start: bool,
}

impl Subcommand for Serve {
    const NAME: &'static str = "serve";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt serve",
            "serve the page for this machine; open the address that it prints",
        ),
        (
            "brunt serve 8080 --results /srv/results",
            "serve it at port 8080, with another folder of results",
        ),
        (
            "brunt serve --no-start",
            "browse results only, without starting experiments",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        let failed = |error: io::Error| Failure::failed(format!("cannot serve the page: {error}"));
        let listener = bind_for("the page", Some(self.address))?.expect("an address was given");
        let address = listener.local_addr().map_err(failed)?;
        let around = self.results.is_none().then(|| Path::new("."));
        let results = self.results.unwrap_or_else(|| RESULTS.into());
        let folder = results.display().to_string();
        let may_start = !self.no_start;
        let site =
            ServedSite::start(listener, &results, around, may_start, Program).map_err(|error| {
                Failure::failed(format!("cannot serve results in {folder}: {error}"))
            })?;
        let url = format!("http://{address}/#token={}", site.token().text());
        output.line(&url);
        output.object(&json!({ "url": url, "address": address, "results": results }));
        live::warn_if_reachable(address, output);
        output.note(format_args!("results in {folder}; Ctrl-C ends the server"));
        while !output.is_interrupted() {
            std::thread::sleep(POLL_INTERVAL);
        }
        if let Some(id) = site.running() {
            output.note(format_args!(
                "run '{id}' is stopping and writing its report; press Ctrl-C again to exit without waiting"
            ));
        }
        site.close();
        Ok(())
    }
}

/// Checks and runs experiments with this program.
struct Program;

impl ExperimentActions for Program {
    fn check(&self, text: &str) -> CheckedText {
        let (experiment, text) = match experiment_file::whole(FILE, text.to_string()) {
            Ok(found) => found,
            Err(error) => return refused(in_text(&error)),
        };
        let plan = experiment.plan();
        let mut notes = experiment.link_warnings();
        match check_closed(&experiment, &plan, Inputs::Leave) {
            Ok(more) => notes.extend(more),
            Err(failure) => {
                let advice = failure.advice().map(str::to_string);
                return refused(TextMistake {
                    message: failure.what().into(),
                    advice,
                    ..TextMistake::default()
                });
            }
        }
        let inputs = plan.points.iter().filter_map(|point| point.load.input());
        let inputs: BTreeSet<&str> = inputs.collect();
        let later = |input| format!("{input} are read when the experiment starts");
        notes.extend(inputs.into_iter().map(later));
        let found = CheckedExperiment {
            experiment,
            plan,
            text,
        };
        CheckedText {
            notes,
            found: Some(found),
            ..CheckedText::default()
        }
    }

    fn command(&self, experiment: &Path, folder: &Path) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("run")
            .arg(experiment)
            .arg("--out")
            .arg(folder)
            .args(["--served-as", FILE]);
        Ok(command)
    }
}

fn refused(error: TextMistake) -> CheckedText {
    CheckedText {
        errors: vec![error],
        ..CheckedText::default()
    }
}

/// Converts a mistake, with its position in the text or the name of the included file.
fn in_text(error: &FileError) -> TextMistake {
    let advice = error.help_text().map(str::to_string);
    if error.file() != FILE {
        return TextMistake {
            message: error.one_line(),
            advice,
            ..TextMistake::default()
        };
    }
    let places = error.places();
    TextMistake {
        line: places.map(|[(line, _), _]| line),
        column: places.map(|[(_, column), _]| column),
        end_line: places.map(|[_, (line, _)]| line),
        end_column: places.map(|[_, (_, column)]| column),
        message: error.to_string(),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of mistakes count characters as a browser's editor does.
    #[test]
    fn a_mistake_has_its_position_in_utf_16_units() {
        let check = |text: &str, place: Option<[usize; 4]>, message: &str| {
            let found = Program.check(text);
            assert!(found.found.is_none());
            let [error] = &found.errors[..] else {
                panic!("{:?}", found.errors)
            };
            let [a, b, c, d] = [error.line, error.column, error.end_line, error.end_column];
            assert_eq!(
                a.zip(b).zip(c.zip(d)).map(|((a, b), (c, d))| [a, b, c, d]),
                place,
                "{error:?}"
            );
            assert!(error.message.contains(message), "{error:?}");
        };
        let head = "name = \"😀\"\n";
        check(
            &format!("{head}repetitions = \"x\"\n"),
            Some([2, 15, 2, 18]),
            "",
        );
        // One character that is two UTF-16 code units.
        check("name = \"😀\" nothing", Some([1, 13, 1, 13]), "");
        let rest = "[targets.a]\nurl = \"null:1MiB\"\n[workloads.w]\nblocks = [{ size = \"2MiB\" }]\nstop = { time = \"1s\" }\n";
        check(&format!("{head}{rest}"), None, "a w");
        check(
            "include = \"/nothing/at/all.toml\"\nname = \"x\"\n",
            Some([1, 11, 1, 33]),
            "/nothing/at/all.toml",
        );
    }

    #[test]
    fn a_valid_experiment_has_a_plan_and_no_errors() {
        let text = "name = \"x\"\n[targets.a]\nurl = \"null:1MiB\"\n[workloads.w]\nstop = { time = \"1s\" }\n";
        let found = Program.check(text);
        assert!(
            found.errors.is_empty() && found.notes.is_empty(),
            "{found:?}"
        );
        assert_eq!(found.found.expect("it can be run").plan.runs.len(), 5);
    }
}
