//! `brunt run`: runs an experiment file and keeps the results. Shows progress and writes the report; `brunt-study`
//! starts what the experiment needs and executes its runs.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use brunt_core::Span;
use brunt_fio::FioJson;
use brunt_lab::ServiceFolder;
use brunt_load::LoadError;
use brunt_result::experiment::InterleavedWith;
use brunt_result::failures;
use brunt_result::summary::Summary;
use brunt_study::experiment::{Experiment, Plan};
use brunt_study::hooks::{HooksError, RunHooks};
use brunt_study::host::Hosts;
use brunt_study::lab::BuiltLab;
use brunt_study::observe::Observer;
use brunt_study::results::{ClaimError, ClaimedFolder, Results};
use brunt_study::startup::{self, Ground};
use brunt_study::study::{Study, StudyError, StudyTurns, table};
use brunt_web::live::{LiveEnding, LivePlan};

use super::engine::EngineFlag;
use super::experiment_file::{import_job, read_as};
use super::interleave::{self, Entrant};
use super::opener::TargetOpener;
use super::overrides::{Override, Overrides};
use super::profile::ProfileFlag;
use super::require::RequireFlags;
use super::run_check::{self, Check};
use super::{Subcommand, detach, memory_need, report};
use crate::cli::{Done, Failure, Output};
use crate::lab::{WatchSockets, WatchedAt};
use crate::metrics::run::RunMetrics;
use crate::{dashboard, lab, live, metrics};

/// Run an experiment and save its results
///
/// Measures every point of the sweep, with as many runs as the file specifies. Results go to a folder; each run is
/// written to stable storage as soon as it finishes, so a crash loses at most the last second of the current run.
/// Ctrl-C, SIGTERM and closing the terminal end the experiment early, but with its report; a second Ctrl-C ends it at
/// once. '--detach' runs it without a terminal.
#[derive(clap::Args)]
pub struct Run {
    /// Experiment file (TOML; docs/experiments.md lists all keys), or a fio job file (*.fio), which is imported first;
    /// several with --interleave
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<PathBuf>,
    /// Let the runs of several experiments take turns on this machine, in random order within each round, and compare
    /// the results pairwise, so that drift of the machine cancels out. They must have the same points. Results go to
    /// separate folders, within that of --out if given
    #[arg(long, conflicts_with_all = ["detach", "metrics", "serve", "dashboard", "output_format"])]
    interleave: bool,
    /// Replace a key of the file, such as '--set workloads.w.queue_depth=32'; VALUE is written as in the file, quotes
    /// are optional
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Number of runs of each point, instead of the file's 'repetitions'
    #[arg(long, value_name = "N")]
    reps: Option<u32>,
    /// Length of each run, instead of the 'stop.time' of every workload
    #[arg(long, value_name = "DURATION")]
    time: Option<Span>,
    #[command(flatten)]
    how: HowToRun,
    /// Set if 'brunt serve' started this process: standard input is its socket, and the experiment's text is treated
    /// as that of this file, so paths are relative to the file's folder.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["check", "detach", "serve"])]
    served_as: Option<PathBuf>,
    /// Set if '--interleave' started this process: standard input is the socket over which it asks for its turns, and
    /// this is its position, as JSON.
    #[arg(long, hide = true, value_name = "PLACE", value_parser = interleave::parse_place,
        conflicts_with_all = ["check", "detach", "serve", "served_as", "interleave"])]
    takes_turns: Option<InterleavedWith>,
}

/// Where results go, and how the run can be watched: the options shared by all commands that run an experiment.
#[derive(clap::Args)]
pub(super) struct HowToRun {
    /// Folder for the results [default: the experiment's name plus ".results" next to the file, numbered if that exists]
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Check the experiment without running it: print the plan, its duration, what would be overwritten, and whether
    /// the workloads fit the targets. '--check=open' also opens the targets
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "closed",
        value_name = "HOW")]
    check: Option<Check>,
    /// Label to record with the results, such as a commit: 'brunt history' names results after it
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    #[command(flatten)]
    pub required: RequireFlags,
    #[command(flatten)]
    pub profile: ProfileFlag,
    /// What to print at the end: a table, or JSON in fio's format with one job per point (fio-json+ includes all
    /// histogram buckets)
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    output_format: OutputFormat,
    /// Run in the background: print the process id and the folder, and continue after the terminal closes. Output
    /// goes to output.txt in the folder, progress and notes to progress.txt; 'kill PID' ends the run like Ctrl-C
    #[arg(long, conflicts_with = "check")]
    detach: bool,
    /// Serve Prometheus metrics of the current run at this address (port 0 picks a free port), even for an experiment
    /// in a lab
    #[arg(long, value_name = "ADDRESS", conflicts_with = "check")]
    metrics: Option<SocketAddr>,
    /// Serve the live page of the experiment at this address, to watch it in a browser, even for an experiment in a
    /// lab. Only this machine can open the page unless the address says otherwise
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = live::DEFAULT,
        value_parser = live::parse_address, conflicts_with = "check")]
    serve: Option<SocketAddr>,
    /// Show the contents of the live page on this terminal, using its full height: percentiles, a heat map of response
    /// times with faults below it, hosts, runs and the log. A terminal that cannot display this shows plain progress
    #[arg(long, conflicts_with_all = ["check", "detach"])]
    dashboard: bool,
    #[command(flatten)]
    engine: EngineFlag,
    /// Set in the process that '--detach' started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,
}

/// The formats of `--output-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    Table,
    FioJson,
    #[value(name = "fio-json+")]
    FioJsonPlus,
}

impl Subcommand for Run {
    const NAME: &'static str = "run";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt run block-sizes.toml --check",
            "check the file; show the plan, its duration and what would be overwritten",
        ),
        (
            "brunt run block-sizes.toml --check=open",
            "check the file, and also open the targets",
        ),
        ("brunt run block-sizes.toml --out results/monday", "run it"),
        (
            "brunt run block-sizes.toml --out results/night --detach",
            "run it in the background",
        ),
        (
            "brunt run block-sizes.toml --serve",
            "run it, and watch it in a browser (the address is printed first)",
        ),
        (
            "brunt run block-sizes.toml --dashboard",
            "run it, and watch it on this terminal",
        ),
        (
            "brunt run block-sizes.toml --metrics 127.0.0.1:9400",
            "run it, and serve metrics for Prometheus (docs/grafana.json is a dashboard)",
        ),
        (
            "brunt run block-sizes.toml --set workloads.w.queue_depth=32 --reps 8",
            "run it with one key changed and eight runs of each point",
        ),
        (
            "brunt run block-sizes.toml --profile",
            "run it, and show where the CPU goes (docs/profiles.md)",
        ),
        (
            "brunt run --interleave old.toml new.toml",
            "run two experiments in turns and compare their results",
        ),
        (
            "brunt run job.fio --check",
            "import a fio job and show what would run",
        ),
        (
            "brunt run block-sizes.toml --output-format fio-json",
            "print results for tools that read fio's output",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        if self.interleave {
            return self.interleave(output);
        }
        let [file] = &self.experiments[..] else {
            return Err(Failure::usage("there are several experiments")
                .advise("add --interleave to run them in turns, or run one after the other"));
        };
        let turns = self.takes_turns.clone().map(interleave::join).transpose()?;
        let (experiment, text, notes) = self.read(file, output)?;
        let to_run = ToRun {
            experiment,
            text,
            name: file,
            for_server: self.served_as.is_some(),
            notes,
            turns,
        };
        self.how.carry_out(to_run, output)
    }
}

impl Run {
    /// Reads an experiment with all changes that the options make; returns it with its text and notes for the user.
    fn read(
        &self,
        file: &Path,
        output: &Output,
    ) -> Result<(Experiment, String, Vec<String>), Failure> {
        let is_fio_job = file.extension().is_some_and(|end| end == "fio");
        let read = if is_fio_job {
            import_job(file, output)?
        } else {
            read_as(file, self.served_as.as_deref().unwrap_or(file))?
        };
        let overrides = Overrides {
            set: self.set.clone(),
            reps: self.reps,
            time: self.time,
        };
        let (mut experiment, mut text) = overrides.apply(file, read)?;
        self.how.required.add_to(&mut experiment, &mut text);
        self.how.profile.add_to(&mut experiment, &mut text);
        let notes = experiment.changed_defaults();
        Ok((experiment, text, notes))
    }

    /// Runs the experiments in turns, or checks whether that is possible.
    fn interleave(self, output: &Output) -> Done {
        let mut entrants = Vec::new();
        for file in &self.experiments {
            let (experiment, _, notes) = self.read(file, output)?;
            self.how.engine.state_for(&experiment.workloads)?;
            entrants.push(Entrant::new(file, experiment, notes));
        }
        interleave::place(&mut entrants, self.how.out.as_deref());
        interleave::check(&mut entrants)?;
        let has_lab = entrants.iter().any(|one| one.experiment.lab.is_some());
        if has_lab && self.how.check == Some(Check::Open) {
            return Err(Failure::usage(
                "--check=open cannot build the labs of several experiments",
            )
            .advise(
                "check them together with --check, and each one separately with --check=open",
            ));
        }
        match self.how.check {
            Some(how) => interleave::describe(entrants, how, output),
            None => interleave::run(&entrants, output),
        }
    }
}

/// An experiment that is about to run.
pub(super) struct ToRun<'a> {
    pub experiment: Experiment,
    /// The experiment's text, saved with the results.
    pub text: String,
    /// Path of its file, or of a stand-in for it: without `--out`, the results folder is named after it.
    pub name: &'a Path,
    /// Whether `brunt serve` started this process.
    pub for_server: bool,
    /// Printed once.
    pub notes: Vec<String>,
    /// Set if `--interleave` started this process.
    pub turns: Option<StudyTurns>,
}

impl HowToRun {
    /// The folder for the results, locked against other runs.
    fn claim(&self, name: &Path) -> Result<ClaimedFolder, Failure> {
        let claimed = match &self.out {
            Some(folder) if self.detached => Ok(ClaimedFolder::inherited(folder)),
            Some(folder) => ClaimedFolder::of(folder),
            None => ClaimedFolder::first_free(folder_names(name)),
        };
        claimed.map_err(not_claimed)
    }

    /// Runs or checks an experiment.
    ///
    /// # Errors
    /// The experiment could not begin, or its results are incomplete.
    // Long because each preparation step depends on those before it.
    pub fn carry_out(self, to_run: ToRun<'_>, output: &Output) -> Done {
        let ToRun {
            experiment,
            text,
            name,
            for_server,
            notes,
            turns,
        } = to_run;
        self.engine.state_for(&experiment.workloads)?;
        let mut plan = experiment.plan();
        if let Some(how) = self.check {
            let folder = self.out.clone();
            let folder = folder.unwrap_or_else(|| free_folder(name));
            notes.into_iter().for_each(|note| output.note(note));
            let checked = run_check::check(&experiment, &mut plan, how, &folder, output)?;
            output.object(&checked);
            return Ok(());
        }
        if self.detach {
            return detach::start(self.claim(name)?, output);
        }
        if self.detached {
            detach::leave_terminal();
        }
        let hosts = experiment.hosts().map_err(Failure::usage)?;
        let at = WatchedAt {
            metrics: self.metrics,
            live: self.serve,
        };
        let (lab, sockets, scratch) = enter(&experiment, &hosts, at)?;
        let claimed = self.claim(name)?;
        let folder = claimed.path();
        let version = env!("CARGO_PKG_VERSION");
        let sketch = || LivePlan::of(&experiment, &plan, version, folder);
        let on_terminal = self.dashboard && dashboard::can_draw();
        let shown = live::Shown {
            for_server,
            on_terminal,
        };
        let live = live::open(shown, sockets.live, folder, output, sketch)?;
        // Not created earlier, because for a lab this program re-executes itself in new namespaces. The page also
        // shows notes.
        notes.into_iter().for_each(|note| output.note(note));
        let format = self.output_format;
        let lab = lab.as_ref();
        let ground = Ground {
            hosts: &hosts,
            lab,
            scratch,
            logs: folder.join(SERVICE_LOGS),
        };
        let entered = Entered {
            experiment,
            text,
            plan,
            folder,
            ground,
            format,
            label: self.label.clone(),
            turns,
        };
        let carry_out = |live: Option<&live::Served>, ending: &mut LiveEnding| {
            entered.carry_out(sockets.metrics, live, ending, output)
        };
        let (summary, fio) = live::shown(live, carry_out)?;
        print(&summary, fio, folder, output)?;
        let mut failures = failures::failures(&summary);
        failures.extend(self.required.failed(&summary));
        match &summary.trouble {
            None if failures.is_empty() => Ok(()),
            None => Err(Failure::failed(failures.join("\n"))),
            Some(trouble) => Err(Failure::failed(format!("incomplete: {trouble}"))
                .advise(format!("the finished runs are in {}", folder.display()))),
        }
    }
}

/// An experiment after it has entered its lab, if it has one, and opened its page.
struct Entered<'a> {
    experiment: Experiment,
    text: String,
    plan: Plan,
    folder: &'a Path,
    ground: Ground<'a>,
    format: OutputFormat,
    label: Option<String>,
    turns: Option<StudyTurns>,
}

impl Entered<'_> {
    /// Opens the targets, runs the experiment, and writes the results and their report. `ending` receives the final
    /// information for the page.
    ///
    /// # Errors
    /// The experiment could not begin, or its results are incomplete for a reason that they don't record.
    // Long because each preparation step depends on those before it.
    fn carry_out(
        self,
        metrics: Option<TcpListener>,
        live: Option<&live::Served>,
        ending: &mut LiveEnding,
        output: &Output,
    ) -> Result<(Summary, Option<FioJson>), Failure> {
        let Entered {
            experiment,
            text,
            mut plan,
            folder,
            ground,
            format,
            label,
            turns,
        } = self;
        let lab = ground.lab;
        experiment
            .link_warnings()
            .into_iter()
            .for_each(|warning| output.note(warning));
        // Determine which targets are written, so that only these are opened for writing.
        plan.find_written().map_err(Failure::usage)?;
        memory_need::note_run(&experiment, &plan, output);
        let interrupted = output.interrupt_flag();
        let opener = TargetOpener {
            plan: &plan,
            output,
        };
        let mut started = startup::start(&experiment, &plan, ground, &opener, interrupted)?;
        // Reject a mismatch before the folder contains any results.
        run_check::fit_opened(&plan, &started.opened.targets)?;
        let hooks = started.hooks(&experiment, &plan, lab, interrupted);
        let hooks = hooks.map_err(no_hooks)?;
        let targets = std::mem::take(&mut started.opened.targets);
        let results = Results::create(folder, &text)
            .map_err(|error| Failure::failed(format!("cannot write the results: {error}")))?;
        let view = dashboard::of(&experiment.name, &plan, output, live);
        let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(results), view];
        let fio = match format {
            OutputFormat::Table => None,
            format => Some(FioJson::new(&plan, format == OutputFormat::FioJsonPlus)),
        };
        let figures = RunMetrics::of(&experiment, &plan);
        let page = figures.clone();
        let server = metrics::serve(metrics, output, move || page.page())?;
        observers.extend(
            server
                .is_some()
                .then(|| Box::new(figures) as Box<dyn Observer>),
        );
        observers.extend(live.map(|live| live.page().observer()));
        observers.extend(fio.clone().map(|fio| Box::new(fio) as Box<dyn Observer>));
        let company = RunHooks { observers, hooks };
        let version = env!("CARGO_PKG_VERSION");
        let study = Study::of_plan(plan, experiment, targets, version, folder, company)
            .labelled(label)
            .taking_turns(turns);
        let result = study.run(interrupted);
        metrics::finish(server, output);
        // Write the report from the files on disk, however the experiment ended.
        ending.report = write_page(folder, output);
        let summary = result.map_err(unfinished)?;
        ending.trouble.clone_from(&summary.trouble);
        started.stop().map_err(Failure::failed)?;
        Ok((summary, fio))
    }
}

/// Enters the lab of an experiment that has one; the sockets for metrics and the page listen outside of it. If the
/// experiment has services, returns a folder for their files.
pub(super) fn enter(
    experiment: &Experiment,
    hosts: &Hosts,
    at: WatchedAt,
) -> Result<(Option<BuiltLab>, WatchSockets, Option<ServiceFolder>), Failure> {
    let Some(entry) = &experiment.lab else {
        let scratch = (!experiment.services.is_empty())
            .then(lab::scratch)
            .transpose()?;
        return Ok((None, WatchSockets::listen(at)?, scratch));
    };
    let (lab, sockets, scratch) = lab::enter_watched(experiment, entry, hosts, at)?;
    Ok((Some(lab), sockets, scratch))
}

/// Maps a failure to create the hooks to an exit status.
fn no_hooks(error: HooksError) -> Failure {
    match error {
        HooksError::Fault(error) => Failure::usage(error),
        error => Failure::failed(error),
    }
}

/// Maps an error that ended a study to an exit status.
fn unfinished(error: StudyError) -> Failure {
    match &error {
        StudyError::Load {
            source: LoadError::Workload(_) | LoadError::Join(_),
            ..
        } => Failure::usage(&error),
        _ => Failure::failed(&error),
    }
}

/// Subfolder of the results for the logs of services.
const SERVICE_LOGS: &str = "services";

/// Writes the report from the files on disk, however the experiment ended. Returns the report's path.
fn write_page(folder: &Path, output: &Output) -> Option<String> {
    let page = folder.join(brunt_report::experiment::FILE_NAME);
    let made = Summary::read(folder)
        .map_err(std::io::Error::other)
        .and_then(|summary| report::write(&summary, folder, &page));
    match &made {
        Ok(_) => output.note(format_args!("report in {}", page.display())),
        Err(error) => output.note(format_args!("no report: {}: {error}", page.display())),
    }
    made.is_ok().then(|| page.display().to_string())
}

/// Prints the figures, as a table or in fio's format.
fn print(summary: &Summary, fio: Option<FioJson>, folder: &Path, output: &Output) -> Done {
    match fio {
        Some(fio) if !output.is_json() => {
            let document = fio.document(env!("CARGO_PKG_VERSION"));
            let text = serde_json::to_string_pretty(&document).map_err(Failure::failed)?;
            output.bytes(format!("{text}\n").as_bytes());
        }
        _ => {
            table(summary)
                .into_iter()
                .for_each(|line| output.wrapped(&line));
            output.line(format_args!("results in {}", folder.display()));
        }
    }
    output.object(&serde_json::to_value(summary).map_err(Failure::failed)?);
    Ok(())
}

/// An unused folder name next to the experiment, so that earlier results are kept.
fn free_folder(experiment: &Path) -> PathBuf {
    folder_names(experiment)
        .find(|folder| !folder.exists())
        .expect("numbers do not end")
}

/// The names of results folders for an experiment, in the order in which they are tried.
pub(super) fn folder_names(experiment: &Path) -> impl Iterator<Item = PathBuf> {
    let first = experiment.with_extension("results");
    let later = (2..).map(|number| experiment.with_extension(format!("{number}.results")));
    std::iter::once(first).chain(later)
}

fn not_claimed(error: ClaimError) -> Failure {
    match &error {
        ClaimError::HasResults(_) => {
            Failure::usage(&error).advise("choose another folder with --out, or move these results")
        }
        ClaimError::InUse(_) => Failure::usage(&error).advise("choose another folder with --out"),
        ClaimError::Io { .. } => Failure::failed(&error),
    }
}
