//! Converts a job file to an experiment: each job becomes a workload, each file or device a target. Called by `brunt
//! import-fio`. The rule: the returned text has already been parsed as an experiment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use brunt_core::Span;
use brunt_load::Workload;
use brunt_load::load::INTERVAL_MIN;
use brunt_study::experiment::{
    DefaultsVersion, Experiment, JobEntry, PhaseEntry, Target, TogetherEntry,
};

use crate::error::{Cause, FioError, Location};
use crate::job::{self, Job};
use crate::order::{self, JobStretch, StretchJob};
use crate::remark::Remark;
use crate::translate::{self, LAY_OUT};

/// The result of importing a job file.
#[derive(Clone, Debug)]
pub struct Import {
    /// The experiment, which is valid.
    pub experiment: Experiment,
    /// The text of the experiment's file, with the remarks as comments.
    pub text: String,
    /// The remarks, in line order.
    pub remarks: Vec<Remark>,
}

/// Converts a job file. With `lossy`, options that an experiment cannot express are omitted with a remark.
///
/// # Errors
/// An option has a value that cannot be translated, or a job cannot be converted at all. Without `lossy`: an option
/// cannot be expressed in an experiment.
pub fn import(path: &Path, lossy: bool) -> Result<Import, FioError> {
    let all = job::read(path)?;
    let mut remarks = Vec::new();
    // The engine comes first, because it determines the meaning of all other options.
    let mut jobs: Vec<&Job> = Vec::new();
    for job in &all {
        if translate::engine_is_here(job, &mut remarks)? {
            jobs.push(job);
        }
    }
    jobs.iter()
        .for_each(|job| translate::zoned_device(job, &mut remarks));
    refuse_losses(&remarks, lossy)?;
    if jobs.is_empty() {
        return Err(Cause::NothingLeft.at(Location::file(path)));
    }
    let mut experiment = empty_experiment(path);
    let stretches = order::stretches(&jobs, &mut remarks)?;
    let mut made = Vec::new();
    for job in &jobs {
        let copies = match translate::job(job, &mut remarks) {
            // The size may be missing only because an option was lost, so report the loss first.
            Err(error) if matches!(error.cause, Cause::NoSize { .. }) => {
                return Err(refuse_losses(&remarks, lossy).err().unwrap_or(error));
            }
            copies => copies?,
        };
        made.push(add(&mut experiment, job, copies));
    }
    place_jobs(&mut experiment, &stretches, &jobs, &made, &mut remarks);
    refuse_losses(&remarks, lossy)?;
    let whole = |cause: Cause| cause.at(Location::file(path));
    let text = write(&experiment, path, &remarks).map_err(|error| whole(error.into()))?;
    Experiment::parse(&path.display().to_string(), &text)
        .map_err(|error| whole(Cause::Experiment(error)))?;
    Ok(Import {
        experiment,
        text,
        remarks,
    })
}

/// An experiment named after the job file, without targets and workloads.
fn empty_experiment(path: &Path) -> Experiment {
    let name = path.file_stem().map_or_else(
        || "fio".to_string(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    let mut experiment = Experiment::parse(
        "new",
        "name = \"new\"\nrepetitions = 4\n[targets.t]\nurl = \"null:1GiB\"\n[workloads.w]\nstop = { requests = 1 }\n",
    )
    .expect("this text is an experiment");
    experiment.name = name;
    experiment.written_for = Some(DefaultsVersion::NOW);
    (experiment.targets, experiment.workloads) = Default::default();
    experiment
}

/// Schedules the jobs in fio's order: those that run alone, and groups that run together; `made` contains the names of
/// each job's copies.
fn place_jobs(
    experiment: &mut Experiment,
    stretches: &[JobStretch],
    jobs: &[&Job],
    made: &[Vec<PlacedJob>],
    remarks: &mut Vec<Remark>,
) {
    let mut alone = BTreeMap::<String, Vec<String>>::new();
    let mut phases = Vec::new();
    for stretch in stretches {
        let first = stretch.jobs[0].index;
        let parts: &Vec<PlacedJob> = &made[first];
        match (&stretch.jobs[..], &parts[..]) {
            ([_], [only]) => {
                let workloads = alone.entry(only.target.clone()).or_default();
                workloads.push(only.workload.clone());
                phases.push(only.workload.clone());
            }
            _ => {
                let name = together(experiment, stretch, jobs, made, remarks);
                let why = if stretch.jobs.len() == 1 {
                    format!(
                        "its copies run concurrently, as [together.{name}]: one point per copy and one for all of them"
                    )
                } else {
                    format!(
                        "runs concurrently with the jobs after it, as [together.{name}]: one point \
                         per job and one for all of them"
                    )
                };
                remarks.push(of_job(jobs[first], false, why));
                phases.push(name);
            }
        }
    }
    run_alone(experiment, alone);
    if phases.len() > 1 {
        // In fio's order, because a job may need data written by an earlier one.
        let phase = |workload| PhaseEntry {
            workloads: vec![workload],
            ..PhaseEntry::default()
        };
        experiment.phase = phases.into_iter().map(phase).collect();
    }
}

/// Records which workloads run alone, by target.
fn run_alone(experiment: &mut Experiment, mut alone: BTreeMap<String, Vec<String>>) {
    let all: usize = alone.values().map(Vec::len).sum();
    for (name, target) in &mut experiment.targets {
        let mut workloads = alone.remove(name).unwrap_or_default();
        workloads.sort_unstable();
        target.workloads = (workloads.len() < all).then_some(workloads);
    }
}

/// The names used in the experiment for a job or for one of its copies.
struct PlacedJob {
    workload: String,
    target: String,
}

/// Adds the targets of a job's copies, unless they already exist, and their workloads. Copies share a workload unless
/// they start at different offsets.
fn add(experiment: &mut Experiment, job: &Job, copies: Vec<(String, Workload)>) -> Vec<PlacedJob> {
    let name = plain(&job.name);
    let mut own: Vec<(String, Workload)> = Vec::new();
    let place = |(url, workload): (String, Workload)| {
        let known = experiment
            .targets
            .iter()
            .find(|(_, target)| is_same_file(&target.url, &url));
        let target = known.map_or_else(
            || unused(&name, |name| experiment.targets.contains_key(name)),
            |(known, _)| known.clone(),
        );
        experiment
            .targets
            .entry(target.clone())
            .or_insert_with(|| Target {
                url,
                ..Target::default()
            });
        let known = own
            .iter()
            .find(|(_, same)| *same == workload)
            .map(|(known, _)| known.clone());
        let name = known.unwrap_or_else(|| {
            let name = unused(&name, |name| {
                experiment.workloads.names().any(|taken| taken == name)
            });
            experiment.workloads.insert(name.clone(), workload.clone());
            own.push((name.clone(), workload));
            name
        });
        PlacedJob {
            workload: name,
            target,
        }
    };
    copies.into_iter().map(place).collect()
}

/// Whether two URLs name the same file with the same settings. As with fio, the first job that names a file decides whether it is
/// filled.
fn is_same_file(one: &str, other: &str) -> bool {
    let stem = |url: &str| url.trim_end_matches(LAY_OUT).trim_end_matches('&').len();
    one[..stem(one)] == other[..stem(other)]
}

/// `name`, with a number appended if it is taken.
fn unused(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names
        .find(|name| !is_taken(name))
        .expect("there are more names than jobs")
}

/// Adds a group of jobs that run together, and returns its name. Adjusts the jobs' intervals so that the start of
/// each job coincides with the start of an interval.
fn together(
    experiment: &mut Experiment,
    stretch: &JobStretch,
    jobs: &[&Job],
    made: &[Vec<PlacedJob>],
    remarks: &mut Vec<Remark>,
) -> String {
    let is_taken = |name: &str| experiment.workloads.names().any(|taken| taken == name);
    let name = unused("at-once", is_taken);
    let interval = interval(&begins(experiment, stretch, made));
    let exit_all = stretch.jobs.iter().all(|job| job.ends_run);
    let mut entries: BTreeMap<String, JobEntry> = BTreeMap::new();
    let mut order = Vec::new();
    for StretchJob {
        index,
        delay,
        ends_run,
        ends_group,
    } in &stretch.jobs
    {
        let (parts, name) = (&made[*index], plain(&jobs[*index].name));
        if parts.len() > 1 && *ends_group {
            let why =
                "when one copy of this job ends, the others end too, while other jobs continue"
                    .to_string();
            remarks.push(Remark {
                key: "exitall".into(),
                ..of_job(jobs[*index], true, why)
            });
        }
        for (copy, part) in parts.iter().enumerate() {
            if let Some(workload) = experiment.workloads.on_target_mut(&part.workload) {
                workload.interval = Span(interval);
                remarks.extend(drop_ends_of_one(workload, jobs[*index]));
            }
            let own = if parts.len() > 1 {
                format!("{name}-{}", copy + 1)
            } else {
                part.workload.clone()
            };
            let own = unused(&own, |name| entries.contains_key(name));
            let entry = JobEntry {
                workload: part.workload.clone(),
                target: part.target.clone(),
                name: (own != part.workload).then(|| own.clone()),
                start_delay: (!delay.is_zero()).then_some(Span(*delay)),
                ends_run: *ends_run && !exit_all,
            };
            entries.insert(own.clone(), entry);
            order.push(own);
        }
    }
    let jobs = order
        .iter()
        .filter_map(|name| entries.remove(name))
        .collect();
    let group = TogetherEntry { jobs, exit_all };
    experiment.workloads.insert(name.clone(), group);
    name
}

/// When measurement begins for each job's copies, relative to the start of the group.
fn begins(experiment: &Experiment, stretch: &JobStretch, made: &[Vec<PlacedJob>]) -> Vec<Duration> {
    stretch
        .jobs
        .iter()
        .flat_map(|job| made[job.index].iter().map(|part| (job.delay, part)))
        .map(|(delay, part)| {
            let ramp_up = experiment.workloads[&part.workload].ramp_up;
            delay + ramp_up.map_or(Duration::ZERO, |ramp_up| ramp_up.time.0)
        })
        .collect()
}

/// Drops end conditions that can only be evaluated for a job that runs alone.
fn drop_ends_of_one(workload: &mut Workload, job: &Job) -> Vec<Remark> {
    let steady = workload.stop.steady.take().map(|_| "steadystate");
    let search = workload.depth_search.take().map(|_| "latency_target");
    let dropped = steady.into_iter().chain(search);
    dropped
        .map(|key| Remark {
            key: key.into(),
            ..of_job(
                job,
                true,
                "cannot be evaluated for one of several concurrent jobs".into(),
            )
        })
        .collect()
}

/// The longest interval, up to the default, that divides all differences between start times; zero if it would be too
/// short.
fn interval(begins: &[Duration]) -> Duration {
    let first = begins.iter().min().copied().unwrap_or_default();
    let mut nanos = Workload::default().interval.0.as_nanos() as u64;
    for apart in begins
        .iter()
        .map(|begin| (*begin - first).as_nanos() as u64)
    {
        let (mut rest, mut divisor) = (apart, nanos);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        nanos = divisor;
    }
    let interval = Duration::from_nanos(nanos);
    if interval < INTERVAL_MIN {
        Duration::ZERO
    } else {
        interval
    }
}

/// Creates a remark on a whole job.
fn of_job(job: &Job, loss: bool, why: String) -> Remark {
    Remark {
        location: job.location.clone(),
        key: format!("[{}]", job.name),
        why,
        loss,
    }
}

/// Returns an error for the first loss, unless losses are accepted.
fn refuse_losses(remarks: &[Remark], lossy: bool) -> Result<(), FioError> {
    let mut losses = remarks.iter().filter(|remark| remark.loss && !lossy);
    let Some(first) = losses.next().cloned() else {
        return Ok(());
    };
    let (option, why, more) = (first.key, first.why, losses.cloned().collect());
    Err(Cause::Loss { option, why, more }.at(first.location))
}

/// The name, with characters replaced that would need quoting in TOML or a shell.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect()
}

/// The text of the experiment's file, without default values.
fn write(
    experiment: &Experiment,
    path: &Path,
    remarks: &[Remark],
) -> Result<String, toml::ser::Error> {
    let mut root = experiment.table()?;
    for key in ["allow_overwrite", "sweep", "probes", "seed"] {
        let empty = match root.get(key) {
            Some(toml::Value::Array(values)) => values.is_empty(),
            Some(toml::Value::Table(_)) => true,
            Some(toml::Value::Integer(seed)) => *seed == 1,
            _ => false,
        };
        if empty {
            root.remove(key);
        }
    }
    let usual = toml::Table::try_from(Workload::default())?;
    if let Some(workloads) = root
        .get_mut("workloads")
        .and_then(toml::Value::as_table_mut)
    {
        for workload in workloads
            .iter_mut()
            .filter_map(|(_, workload)| workload.as_table_mut())
        {
            workload.retain(|key, value| usual.get(key) != Some(value));
        }
    }
    let mut text = format!("# From {} by brunt import-fio.\n", path.display());
    for Remark {
        location,
        key,
        why,
        loss,
    } in remarks
    {
        let lost = if *loss { "LOST: " } else { "" };
        text += &format!("# {lost}{location}: {key}: {why}\n");
    }
    Ok(text + "\n" + &toml::to_string_pretty(&root)?)
}
