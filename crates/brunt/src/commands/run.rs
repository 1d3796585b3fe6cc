//! `brunt run`: runs an experiment file and keeps the results. Opens targets, protects data that must not be
//! overwritten and shows progress; `brunt-study` executes the runs.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_block::Backend;
use brunt_core::Span;
use brunt_fio::FioJson;
use brunt_host::{Fleet, Lane};
use brunt_lab::ServiceFolder;
use brunt_load::LoadError;
use brunt_result::experiment::InterleavedWith;
use brunt_result::failures;
use brunt_result::summary::Summary;
use brunt_study::experiment::{Experiment, Plan};
use brunt_study::hooks::bridges::HostBridges;
use brunt_study::hooks::{self, HooksError, RunHooks, Started};
use brunt_study::host::{HostName, Hosts};
use brunt_study::lab::BuiltLab;
use brunt_study::observe::Observer;
use brunt_study::results::{ClaimError, ClaimedFolder, Results};
use brunt_study::role::{self, Role, ServingHost};
use brunt_study::service::{ServiceEnvironment, Services};
use brunt_study::study::{Study, StudyError, StudyTurns, table};
use brunt_web::live::{LiveEnding, LivePlan};

use super::engine::EngineFlag;
use super::experiment_file::{import_job, read_as};
use super::interleave::{self, Entrant};
use super::overrides::{Override, Overrides};
use super::require::RequireFlags;
use super::run_check::{self, Check};
use super::{Subcommand, detach, memory_need, report, shared_storage};
use crate::cli::{Done, Failure, Output};
use crate::lab::{WatchSockets, WatchedAt};
use crate::metrics::run::RunMetrics;
use crate::{dashboard, devices, lab, live, metrics};

/// Run an experiment and save its results
///
/// Measures every point of the sweep, with as many runs as the file says. Results go to a folder; each finished run is on
/// stable storage at once, so a crash loses at most the last second of the current run. Ctrl-C, SIGTERM and closing the
/// terminal end the experiment early, with its report; a second Ctrl-C ends it at once. '--detach' runs it without a
/// terminal.
#[derive(clap::Args)]
pub struct Run {
    /// Experiment file (TOML; docs/experiments.md lists all keys), or a fio job file (*.fio), which is imported first;
    /// several with --interleave
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<PathBuf>,
    /// Let the runs of several experiments take turns on this machine, in random order within each turn, and compare
    /// the results in pairs of runs: drift of the machine cancels. They need the same points. Results go to separate
    /// folders, in that of --out if it is given
    #[arg(long, conflicts_with_all = ["detach", "metrics", "serve", "dashboard", "output_format"])]
    interleave: bool,
    /// Replace a key of the file, such as '--set workloads.w.queue_depth=32'; VALUE as in the file, quotes optional
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Runs of each point, instead of the file's 'repetitions'
    #[arg(long, value_name = "N")]
    reps: Option<u32>,
    /// Length of each run, instead of 'stop.time' of every workload
    #[arg(long, value_name = "DURATION")]
    time: Option<Span>,
    #[command(flatten)]
    how: HowToRun,
    /// 'brunt serve' started this process: its socket is the standard input, and the experiment's text counts as that of
    /// this file, whose folder its paths are relative to.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["check", "detach", "serve"])]
    served_as: Option<PathBuf>,
    /// '--interleave' started this process: its standard input is the socket on which it asks for its turns, and this
    /// is its place, as JSON.
    #[arg(long, hide = true, value_name = "PLACE", value_parser = interleave::parse_place,
        conflicts_with_all = ["check", "detach", "serve", "served_as", "interleave"])]
    takes_turns: Option<InterleavedWith>,
}

/// Where results go, and who watches: the options that all commands share which run an experiment.
#[derive(clap::Args)]
pub(super) struct HowToRun {
    /// Folder for the results [default: the experiment's name plus ".results" next to the file, numbered if that exists]
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Check the experiment without running it: print the plan, its duration and what would be overwritten, and whether
    /// the workloads fit the targets. '--check=open' also opens the targets
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "closed",
        value_name = "HOW")]
    check: Option<Check>,
    /// Label to record with the results, such as a commit: 'brunt history' names results after it
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    #[command(flatten)]
    pub required: RequireFlags,
    /// What to print at the end: a table, or JSON in fio's format with one job per point; fio-json+ includes all
    /// histogram buckets
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    output_format: OutputFormat,
    /// Run in the background: print the process id and the folder, and continue after the terminal closes. Output goes
    /// to output.txt in the folder, progress and notes to progress.txt; 'kill PID' ends it like Ctrl-C
    #[arg(long, conflicts_with = "check")]
    detach: bool,
    /// Serve Prometheus metrics of the current run at this address (port 0 picks a free port), also from inside a lab
    #[arg(long, value_name = "ADDRESS", conflicts_with = "check")]
    metrics: Option<SocketAddr>,
    /// Serve the live page of the experiment at this address, to watch it in a browser, also from inside a lab. Only
    /// this machine can open it unless the address says otherwise
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = live::DEFAULT,
        value_parser = live::parse_address, conflicts_with = "check")]
    serve: Option<SocketAddr>,
    /// Show the contents of the live page on this terminal, using its full height: percentiles, a heat map of response
    /// times with faults below it, hosts, runs and the log. A terminal that cannot display this shows plain progress
    #[arg(long, conflicts_with_all = ["check", "detach"])]
    dashboard: bool,
    #[command(flatten)]
    engine: EngineFlag,
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
        (
            "brunt run block-sizes.toml --check=open",
            "the same, and open the targets",
        ),
        ("brunt run block-sizes.toml --out results/monday", "run it"),
        (
            "brunt run block-sizes.toml --out results/night --detach",
            "run it without this terminal",
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
        let notes = match is_fio_job {
            true => Vec::new(),
            false => experiment.changed_defaults(),
        };
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
            .advise("check them together with --check, and each alone with --check=open"));
        }
        match self.how.check {
            Some(how) => interleave::describe(entrants, how, output),
            None => interleave::run(&entrants, output),
        }
    }
}

/// An experiment to run.
pub(super) struct ToRun<'a> {
    pub experiment: Experiment,
    /// Saved with the results.
    pub text: String,
    /// Path of its file, or a stand-in for one: without `--out`, the results folder is named after it.
    pub name: &'a Path,
    /// `brunt serve` started this process.
    pub for_server: bool,
    /// Printed once.
    pub notes: Vec<String>,
    /// `--interleave` started this process.
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
    // Long because each preparation in this list needs those before it.
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
        // Not earlier: in a lab, this program starts itself again in new namespaces. The page shows notes, too.
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

/// An experiment after entering its lab, if it has one, and opening its page.
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
    /// Opens the targets, runs the experiment, and writes the results and their report. `ending` receives the page's
    /// closing information.
    ///
    /// # Errors
    /// It could not begin, or its results are incomplete for a reason that they don't record.
    // Long because each preparation in this list needs those before it.
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
        // Open targets for writing only if they are written.
        plan.find_written().map_err(Failure::usage)?;
        memory_need::note_run(&experiment, &plan, output);
        // Start the bridges first: targets are opened through them.
        reach(&plan, &experiment.reached_hosts(), lab, output)?;
        let bridges = bridges(&experiment, &plan, output)?;
        let opened = open(&experiment, &plan, ground, output)?;
        let Opened {
            mut targets,
            roles,
            roles_by_target,
            services,
        } = opened;
        let services_by_name = services.as_ref().map(Services::by_name).unwrap_or_default();
        // Refuse a mismatch before the folder holds any results.
        run_check::fit_opened(&plan, &targets)?;
        let started = Started {
            targets: &mut targets,
            roles: &roles,
            roles_by_target: &roles_by_target,
            services: &services_by_name,
            lab,
            bridges,
            interrupted: output.interrupt_flag(),
        };
        let hooks = hooks::hooks(&experiment, &plan, started).map_err(no_hooks)?;
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
        let result = study.run(output.interrupt_flag());
        metrics::finish(server, output);
        // From the files on disk, however the experiment ended.
        ending.report = write_page(folder, output);
        let summary = result.map_err(unfinished)?;
        ending.trouble.clone_from(&summary.trouble);
        for role in &roles {
            role.stop().map_err(Failure::failed)?;
        }
        drop(services);
        Ok((summary, fio))
    }
}

/// Enters the lab of an experiment that has one, with the metrics and page sockets listening outside it. If the
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

/// Starts bridges on the other hosts in the path, which forward until the result is dropped.
pub(super) fn bridges(
    experiment: &Experiment,
    plan: &Plan,
    output: &Output,
) -> Result<Option<HostBridges>, Failure> {
    let wanted = experiment.bridges();
    let Some(fleet) = plan.fleet.as_ref().filter(|_| !wanted.is_empty()) else {
        return Ok(None);
    };
    let bridges = HostBridges::start(fleet, wanted, experiment.seed).map_err(Failure::failed)?;
    bridges.notes().iter().for_each(|note| output.note(note));
    Ok(Some(bridges))
}

/// Connects to hosts that do more than run workloads; the others are connected when their target is opened. From now on
/// the lab's hosts can be reached.
pub(super) fn reach(
    plan: &Plan,
    hosts: &[String],
    lab: Option<&BuiltLab>,
    output: &Output,
) -> Done {
    if let (Some(fleet), Some(lab)) = (&plan.fleet, lab) {
        fleet.lab_started(lab.hosts().to_vec());
    }
    if let Some(fleet) = plan.fleet.as_ref().filter(|_| !hosts.is_empty()) {
        let reached = fleet.connect(hosts, Lane::default(), output.interrupt_flag());
        if !reached.map_err(Failure::failed)? {
            return Err(Failure::failed("interrupted while connecting to hosts"));
        }
    }
    Ok(())
}

/// Maps an error of the hooks to an exit status.
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

/// Where the roles of an experiment run.
pub(super) struct Ground<'a> {
    pub hosts: &'a Hosts,
    pub lab: Option<&'a BuiltLab>,
    /// Folder for the files of services, if there are any.
    pub scratch: Option<ServiceFolder>,
    /// Folder for the output of services.
    pub logs: PathBuf,
}

impl<'a> Ground<'a> {
    /// For commands without results: keeps the output of services with their files.
    pub fn without_results(
        hosts: &'a Hosts,
        lab: Option<&'a BuiltLab>,
        scratch: Option<ServiceFolder>,
    ) -> Ground<'a> {
        // No service's folder has this name: none begins with a dot.
        let logs = scratch
            .as_ref()
            .map_or_else(PathBuf::new, |scratch| scratch.path().join(".logs"));
        Ground {
            hosts,
            lab,
            scratch,
            logs,
        }
    }
}

/// The targets of an experiment, and the processes that serve some of them.
pub(super) struct Opened {
    /// By the names of their devices ([`Plan::devices_of`]).
    pub targets: BTreeMap<String, Arc<dyn Backend>>,
    /// Roles of targets and services, in the order in which they are stopped.
    pub roles: Vec<Arc<dyn Role>>,
    pub roles_by_target: BTreeMap<String, Arc<dyn Role>>,
    pub services: Option<Services>,
}

/// Starts the services of an experiment that has some.
pub(super) fn start_services(
    experiment: &Experiment,
    ground: Ground<'_>,
    fleet: Option<&Arc<Fleet>>,
    output: &Output,
) -> Result<Option<Services>, Failure> {
    let Ground {
        hosts,
        lab,
        scratch,
        logs,
    } = ground;
    let Some(scratch) = scratch else {
        return Ok(None);
    };
    let ground = ServiceEnvironment {
        hosts,
        lab,
        fleet,
        scratch,
        logs: &logs,
    };
    let started = Services::start(experiment, ground, output.interrupt_flag());
    started.map(Some).map_err(|error| {
        let failure = Failure::failed(&error);
        error.advice().into_iter().fold(failure, Failure::advise)
    })
}

/// Starts services and served targets, and opens all targets on this machine; refuses those whose existing data would
/// be overwritten. Other hosts open theirs themselves, and receive the addresses of served targets.
pub(super) fn open(
    experiment: &Experiment,
    plan: &Plan,
    ground: Ground<'_>,
    output: &Output,
) -> Result<Opened, Failure> {
    let (hosts, lab) = (ground.hosts, ground.lab);
    for fault in &experiment.fault {
        let possible = fault.kind.as_kind().check_machine();
        possible.map_err(|error| Failure::failed(format!("fault '{}': {error}", fault.label())))?;
    }
    let services = start_services(experiment, ground, plan.fleet.as_ref(), output)?;
    if let (Some(fleet), Some(services)) = (&plan.fleet, &services) {
        fleet.services_run(services.folders().to_path_buf());
    }
    let (targets, roles_by_target) = Default::default();
    let mut opened = Opened {
        targets,
        roles: Vec::new(),
        roles_by_target,
        services,
    };
    for (name, target) in &experiment.targets {
        let is_remote = plan.is_remote(name);
        // The URLs of these targets are only known now; send them to the other hosts.
        let is_known_now = target.is_known_late();
        if is_remote && !is_known_now {
            continue;
        }
        if target.is_each_clients_own() {
            tell_clients(experiment, name, plan, opened.services.as_ref());
            continue;
        }
        let written = plan.written.iter().find(|(written, _, _)| written == name);
        let (mut url, role) = serve(experiment, name, hosts, lab, plan.fleet.as_ref())?;
        if let Some(services) = &opened.services {
            url = services.filled(&url);
        }
        if let Some(fleet) = plan.fleet.as_ref().filter(|_| is_known_now) {
            fleet.served(name, None).listens(url.clone());
        }
        if let Some(role) = role {
            opened
                .roles_by_target
                .insert(name.clone(), Arc::clone(&role));
            opened.roles.push(role);
        }
        if is_remote {
            continue;
        }
        for (device, options) in plan.devices_of(name) {
            let backend = devices::open(&options.applied_to(&url), written.is_none())?;
            if let Some((_, url, allowed)) = written {
                let allow = format!("allow it in the experiment: allow_overwrite = [\"{url}\"]");
                devices::guard(backend.as_ref(), *allowed, &allow, output)?;
            }
            for note in backend.info().remarks() {
                output.note(format_args!("{device}: {note}"));
            }
            opened.targets.insert(device, backend);
        }
    }
    shared_storage::check(&opened.targets, plan, output)?;
    opened
        .roles
        .extend(opened.services.iter().flat_map(Services::roles));
    Ok(opened)
}

/// Sends each client the URL of its own target, completed with what the services provide.
fn tell_clients(experiment: &Experiment, name: &str, plan: &Plan, services: Option<&Services>) {
    let (Some(fleet), Some(services)) = (&plan.fleet, services) else {
        return;
    };
    for (host, target) in experiment.as_opened(name) {
        let url = services.filled(&experiment.url_of(&target, None));
        fleet
            .served(name, host.as_ref().map(HostName::as_str))
            .listens(url);
    }
}

/// Writes the report from the files on disk, however the experiment ended. Returns its path.
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

/// A target's URL, and the process that serves it on the target's host if the experiment starts one.
pub(super) fn serve(
    experiment: &Experiment,
    name: &str,
    hosts: &Hosts,
    lab: Option<&BuiltLab>,
    fleet: Option<&Arc<Fleet>>,
) -> Result<(String, Option<Arc<dyn Role>>), Failure> {
    let target = &experiment.targets[name];
    let Some(serve) = experiment.served(name) else {
        return Ok((experiment.url_of(target, None), None));
    };
    let host = target.host.clone().unwrap_or_else(HostName::local);
    let known = hosts.find(&host).map_err(Failure::usage)?;
    let is_far = experiment
        .served_remotely()
        .iter()
        .any(|(served, _)| served == name);
    let role = match fleet.filter(|_| is_far) {
        Some(fleet) => {
            let address = known.serving_address().map_err(Failure::usage)?;
            let at = ServingHost {
                name: host,
                address,
                fleet: Arc::clone(fleet),
            };
            role::start_remote(name, &serve, experiment.serving_congestion(), &at)
        }
        None => {
            let launcher = known.launcher(lab).map_err(Failure::failed)?;
            role::start(
                name,
                role::serving(&serve).as_ref(),
                experiment.serving_arguments(),
                launcher,
            )
        }
    };
    let role = role.map_err(|error| {
        Failure::failed(format!("target {error}"))
            .advise(format!("see what [targets.{name}] serves"))
    })?;
    let url = experiment.url_of(target, Some(role.address()));
    let url = role
        .login()
        .map_or_else(|| url.clone(), |login| login.add_to_url(&url));
    Ok((url, Some(role)))
}
