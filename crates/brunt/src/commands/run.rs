//! `brunt run`: runs an experiment file and keeps the results. Opens targets, protects data that must not be
//! overwritten and shows progress; `brunt-study` executes the runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_block::Backend;
use brunt_fio::FioJson;
use brunt_load::LoadError;
use brunt_probe::{Prober, Watch};
use brunt_result::summary::{self, Summary};
use brunt_study::experiment::{Experiment, Plan};
use brunt_study::fault::FaultSchedule;
use brunt_study::hook::{Company, RunHook};
use brunt_study::host::{HostName, Hosts};
use brunt_study::lab::BuiltLab;
use brunt_study::noise::NoiseWatch;
use brunt_study::observe::Observer;
use brunt_study::probing::Probing;
use brunt_study::results::Results;
use brunt_study::role::{self, Role, Roles};
use brunt_study::study::{Study, StudyError, table};

use super::run_check::{self, Check};
use super::{Subcommand, detach, report};
use crate::cli::{Done, Failure, Output};
use crate::metrics::run::RunMetrics;
use crate::{dashboard, devices, lab, metrics};

/// Run an experiment and save its results
///
/// Measures every point of the sweep for as many runs as the file asks for. Results go to a folder; summary.json is
/// rewritten after each run, so a crash loses at most the last second of the current run. Ctrl-C, SIGTERM and closing the
/// terminal end the experiment early, with its report; a second Ctrl-C ends it at once. '--detach' runs it without a
/// terminal.
#[derive(clap::Args)]
pub struct Run {
    /// Experiment file (TOML; docs/experiments.md lists all keys)
    experiment: PathBuf,
    /// Folder for the results [default: the experiment's name plus ".results", numbered if that exists]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Check the file without running it: print the plan, its duration and what would be overwritten, and whether the
    /// workloads fit the targets. '--check=open' also opens the targets
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "closed",
        value_name = "HOW")]
    check: Option<Check>,
    /// What to print at the end: a table, or JSON in fio's format with one job per point; fio-json+ includes all
    /// histogram buckets
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    output_format: OutputFormat,
    /// Run without this terminal: print the process id and the folder, and go on after the terminal closes. What would
    /// be printed goes to output.txt in the folder, progress and notes to progress.txt; 'kill PID' ends it like Ctrl-C
    #[arg(long, conflicts_with = "check")]
    detach: bool,
    /// Serve Prometheus metrics of the run under way at this address (port 0 picks a free port), also out of a lab
    #[arg(long, value_name = "ADDRESS", conflicts_with = "check")]
    metrics: Option<SocketAddr>,
    /// This is the process that '--detach' started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,
}

/// What `--output-format` names.
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
        ("brunt run block-sizes.toml --check=open", "the same, and open the targets"),
        ("brunt run block-sizes.toml --out results/monday", "run it"),
        ("brunt run block-sizes.toml --out results/night --detach", "run it without this terminal"),
        (
            "brunt run block-sizes.toml --metrics 127.0.0.1:9400",
            "run it, and serve metrics for Prometheus (docs/grafana.json is a dashboard)",
        ),
        (
            "brunt run block-sizes.toml --output-format fio-json",
            "print results for tools that read fio's output",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    // Long because it is one list of what is made ready, in the order in which each needs what came before.
    fn run(self, output: &Output) -> Done {
        let (experiment, text) = read(&self.experiment)?;
        let plan = experiment.plan();
        let folder = self.out.unwrap_or_else(|| free_folder(&self.experiment));
        let taken = folder.join(summary::FILE_NAME).exists();
        if let Some(how) = self.check {
            return run_check::check(&experiment, &plan, how, &folder, output);
        }
        if taken {
            let what = format!("{} holds results already", folder.display());
            return Err(Failure::usage(what).advise("choose another folder with --out, or move these away"));
        }
        if self.detach {
            return detach::start(&folder, output);
        }
        if self.detached {
            detach::leave_terminal();
        }
        experiment.link_warnings().into_iter().for_each(|warning| output.note(warning));
        let hosts = experiment.hosts().map_err(Failure::usage)?;
        let (lab, listener) = match &experiment.lab {
            None => (None, metrics::listen(self.metrics)?),
            Some(entry) => {
                let (lab, listener) = lab::enter_watched(&experiment, entry, &hosts, self.metrics)?;
                (Some(lab), listener)
            }
        };
        let Opened { mut targets, roles, roles_by_target } =
            open(&experiment, &plan, &hosts, lab.as_ref(), output)?;
        // What does not fit is refused before there is a folder for results.
        run_check::fit_opened(&plan, &targets)?;
        let faults = match experiment.fault.is_empty() {
            true => None,
            false => Some(
                FaultSchedule::new(&experiment, &mut targets, &roles_by_target, lab.as_ref())
                    .map_err(Failure::usage)?,
            ),
        };
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
        let stop = output.interrupt_flag();
        let watch = Watch::default();
        let mut hooks: Vec<Box<dyn RunHook>> = Vec::new();
        let links = || experiment.points().into_iter().map(|point| point.links).collect();
        hooks.extend(lab.as_ref().map(|lab| brunt_study::lab::hook(lab, links())));
        if !roles.is_empty() {
            hooks.push(Box::new(Roles::new(roles.clone(), &watch)));
        }
        hooks.push(Box::new(NoiseWatch::default()));
        let mut watching = Vec::new();
        if experiment.probes.is_on() {
            let prober = match &lab {
                None => Prober::new(&experiment.probes, &watch),
                Some(lab) => {
                    watching = lab.watched(&watch).map_err(Failure::failed)?;
                    Prober::in_lab(&experiment.probes, &watch)
                }
            };
            hooks.push(Box::new(Probing::new(prober)));
        }
        let results = Results::create(&folder, &text)
            .map_err(|error| Failure::failed(format!("cannot write the results: {error}")))?;
        let view = dashboard::of(&experiment.name, &plan, output);
        let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(results), view];
        let fio = match self.output_format {
            OutputFormat::Table => None,
            format => Some(FioJson::new(&plan, format == OutputFormat::FioJsonPlus)),
        };
        let figures = RunMetrics::of(&experiment, &plan);
        let page = figures.clone();
        let server = metrics::serve(listener, output, move || page.page())?;
        observers.extend(server.is_some().then(|| Box::new(figures) as Box<dyn Observer>));
        observers.extend(fio.clone().map(|fio| Box::new(fio) as Box<dyn Observer>));
        // Begun last and ended first.
        hooks.extend(faults.map(|faults| Box::new(faults) as Box<dyn RunHook>));
        let company = Company { observers, hooks };
        let study = Study::of_plan(plan, experiment, targets, env!("CARGO_PKG_VERSION"), &folder, company);
        let result = study.run(stop);
        drop((watching, server));
        write_page(&folder, output);
        let summary = result.map_err(unfinished)?;
        for role in &roles {
            role.stop().map_err(Failure::failed)?;
        }
        print(&summary, fio, &folder, output)?;
        match &summary.trouble {
            None => Ok(()),
            Some(trouble) => Err(Failure::failed(format!("incomplete: {trouble}"))
                .advise(format!("the finished runs are in {}", folder.display()))),
        }
    }
}

/// What an error that ended a study means for the exit status.
fn unfinished(error: StudyError) -> Failure {
    match &error {
        StudyError::Load { source: LoadError::Workload(_) | LoadError::Join(_), .. } => {
            Failure::usage(&error)
        }
        _ => Failure::failed(&error),
    }
}

/// The targets of an experiment, and the processes that serve some of them.
pub(super) struct Opened {
    pub targets: BTreeMap<String, Arc<dyn Backend>>,
    pub roles: Vec<Arc<dyn Role>>,
    pub roles_by_target: BTreeMap<String, Arc<dyn Role>>,
}

/// Starts what is served and opens all targets; refuses those that hold something that would be overwritten.
pub(super) fn open(
    experiment: &Experiment,
    plan: &Plan,
    hosts: &Hosts,
    lab: Option<&BuiltLab>,
    output: &Output,
) -> Result<Opened, Failure> {
    let mut opened = Opened { targets: BTreeMap::new(), roles: Vec::new(), roles_by_target: BTreeMap::new() };
    for name in experiment.targets.keys() {
        let written = plan.written.iter().find(|(written, _, _)| written == name);
        let (url, role) = serve(experiment, name, hosts, lab)?;
        if let Some(role) = role {
            opened.roles_by_target.insert(name.clone(), Arc::clone(&role));
            opened.roles.push(role);
        }
        let backend = devices::open(&url, written.is_none())?;
        if let Some((_, url, allowed)) = written {
            let allow = format!("allow it in the experiment: allow_overwrite = [\"{url}\"]");
            devices::guard(backend.as_ref(), *allowed, &allow)?;
        }
        for note in backend.info().remarks() {
            output.note(format_args!("{name}: {note}"));
        }
        opened.targets.insert(name.clone(), backend);
    }
    Ok(opened)
}

/// Writes the report of what is on disk, whatever ended the experiment.
fn write_page(folder: &Path, output: &Output) {
    let page = folder.join(report::FILE_NAME);
    let made = Summary::read(folder)
        .map_err(std::io::Error::other)
        .and_then(|summary| report::write(&summary, folder, &page));
    match &made {
        Ok(_) => output.note(format_args!("report in {}", page.display())),
        Err(error) => output.note(format_args!("no report: {}: {error}", page.display())),
    }
}

/// Prints the figures, as a table or as fio does.
fn print(summary: &Summary, fio: Option<FioJson>, folder: &Path, output: &Output) -> Done {
    match fio {
        Some(fio) if !output.is_json() => {
            let document = fio.document(env!("CARGO_PKG_VERSION"));
            let text = serde_json::to_string_pretty(&document).map_err(Failure::failed)?;
            output.bytes(format!("{text}\n").as_bytes());
        }
        _ => {
            table(summary).into_iter().for_each(|line| output.line(line));
            output.line(format_args!("results in {}", folder.display()));
        }
    }
    output.object(&serde_json::to_value(summary).map_err(Failure::failed)?);
    Ok(())
}

/// An experiment and its text: what is kept with the results, whole where it includes other files.
pub(super) fn read(file: &Path) -> Result<(Experiment, String), Failure> {
    let path = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    match Experiment::parse(&path, &text) {
        Ok(experiment) if experiment.include.is_some() => {
            let text = experiment.written_out();
            Ok((experiment, text))
        }
        Ok(experiment) => Ok((experiment, text)),
        Err(error) => Err(error.into()),
    }
}

/// Beside the experiment, without touching earlier results.
fn free_folder(experiment: &Path) -> PathBuf {
    let first = experiment.with_extension("results");
    let later = (2..).map(|number| experiment.with_extension(format!("{number}.results")));
    std::iter::once(first)
        .chain(later)
        .find(|folder| !folder.join(summary::FILE_NAME).exists())
        .expect("numbers do not end")
}

/// A target's URL, and the process that serves it where the experiment has one: on the target's host.
pub(super) fn serve(
    experiment: &Experiment,
    name: &str,
    hosts: &Hosts,
    lab: Option<&BuiltLab>,
) -> Result<(String, Option<Arc<dyn Role>>), Failure> {
    let target = &experiment.targets[name];
    let Some(kind) = target.role() else { return Ok((experiment.url_of(target, None), None)) };
    let host = target.host.clone().unwrap_or_else(HostName::local);
    let launcher = hosts.find(&host).map_err(Failure::usage)?.launcher(lab).map_err(Failure::failed)?;
    let further = experiment.serving_arguments();
    let role = role::start(name, kind.as_ref(), further, launcher).map_err(|error| {
        Failure::failed(format!("target {error}")).advise(format!("see what [targets.{name}] serves"))
    })?;
    Ok((experiment.url_of(target, Some(role.address())), Some(role)))
}
