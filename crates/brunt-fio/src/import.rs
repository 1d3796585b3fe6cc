//! Converts a job file to an experiment: each job becomes a workload, each file or device a target. Called by
//! `brunt import-fio`. The rule: the returned text has been parsed as an experiment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use brunt_core::Span;
use brunt_load::Workload;
use brunt_load::load::INTERVAL_MIN;
use brunt_study::experiment::{Experiment, JobEntry, Target, TogetherEntry};

use crate::error::{Cause, FioError, Location};
use crate::job::{self, Job};
use crate::order::{self, JobStretch};
use crate::translate;

/// Something that a job file says and an experiment does not, or not in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where it says so.
    pub location: Location,
    /// The key, or a section's name in brackets.
    pub key: String,
    /// Why, and what comes near.
    pub why: String,
    /// What is measured is another thing than what fio measures. Else it is the same, said or done in another way.
    pub loss: bool,
}

/// What became of a job file.
#[derive(Clone, Debug)]
pub struct Import {
    /// It parses.
    pub experiment: Experiment,
    /// As a file, with the remarks as comments.
    pub text: String,
    /// In the order of their lines.
    pub remarks: Vec<Remark>,
}

/// Translates a job file. With `lossy`, what an experiment cannot do is left out and remarked upon.
///
/// # Errors
/// An option has a value that cannot be translated, or a job cannot be an experiment at all; without `lossy`, something
/// would be lost.
pub fn import(path: &Path, lossy: bool) -> Result<Import, FioError> {
    let all = job::read(path)?;
    let mut remarks = Vec::new();
    // First, because it decides what all the others mean.
    let mut jobs: Vec<&Job> = Vec::new();
    for job in &all {
        if translate::engine_is_here(job, &mut remarks)? {
            jobs.push(job);
        }
    }
    refuse_losses(&remarks, lossy)?;
    if jobs.is_empty() {
        return Err(Cause::NothingLeft.at(Location::file(path)));
    }
    let name = path.file_stem().map_or_else(|| "fio".to_string(), |stem| stem.to_string_lossy().into_owned());
    let mut experiment = Experiment::parse(
        "new",
        "name = \"new\"\nrepetitions = 4\n[targets.t]\nurl = \"null:1GiB\"\n[workloads.w]\nstop = { requests = 1 }\n",
    )
    .expect("this text is an experiment");
    experiment.name = name;
    (experiment.targets, experiment.workloads) = (BTreeMap::new(), BTreeMap::new());
    let stretches = order::stretches(&jobs, &mut remarks)?;
    // Jobs of one file or device are workloads of one target.
    let mut places: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let mut made = Vec::new();
    for job in &jobs {
        let (place, workload) = translate::job(job, &mut remarks)?;
        let mut name = plain(&job.name);
        while experiment.workloads.contains_key(&name) {
            name.push('_');
        }
        experiment.workloads.insert(name.clone(), workload);
        places.entry(place.clone()).or_insert_with(|| (name.clone(), Vec::new()));
        made.push((name, place));
    }
    for stretch in &stretches {
        match stretch.jobs[..] {
            [(alone, _)] => {
                let (name, place) = &made[alone];
                places.entry(place.clone()).and_modify(|(_, workloads)| workloads.push(name.clone()));
            }
            _ => {
                let (first, _) = stretch.jobs[0];
                let name = together(&mut experiment, stretch, &made, &places);
                let why = format!(
                    "runs at once with the jobs after it, as [together.{name}]: a point for each and one for all of them"
                );
                remarks.push(of_job(jobs[first], false, why));
            }
        }
    }
    let alone = stretches.iter().filter(|stretch| stretch.jobs.len() == 1).count();
    for (url, (name, mut workloads)) in places {
        workloads.sort_unstable();
        let workloads = (workloads.len() < alone).then_some(workloads);
        experiment.targets.insert(name, Target { url, workloads, ..Target::default() });
    }
    if let Some(second) = stretches.get(1) {
        let why =
            "jobs become points, repeated and interleaved in random order; fio runs them in the file's order";
        remarks.push(of_job(jobs[second.jobs[0].0], false, why.to_string()));
    }
    refuse_losses(&remarks, lossy)?;
    let whole = |cause: Cause| cause.at(Location::file(path));
    let text = write(&experiment, path, &remarks).map_err(|error| whole(error.into()))?;
    Experiment::parse(&path.display().to_string(), &text).map_err(|error| whole(Cause::Experiment(error)))?;
    Ok(Import { experiment, text, remarks })
}

/// Adds a group of jobs that run at once; its name. Their intervals become such that each begins with one.
fn together(
    experiment: &mut Experiment,
    stretch: &JobStretch,
    made: &[(String, String)],
    places: &BTreeMap<String, (String, Vec<String>)>,
) -> String {
    let name = match experiment.together.len() + 1 {
        1 => "at-once".to_string(),
        number => format!("at-once-{number}"),
    };
    let begins: Vec<Duration> = stretch
        .jobs
        .iter()
        .map(|(job, delay)| {
            let ramp_up = experiment.workloads[&made[*job].0].ramp_up;
            *delay + ramp_up.map_or(Duration::ZERO, |ramp_up| ramp_up.time.0)
        })
        .collect();
    let interval = interval(&begins);
    let job = |(job, delay): &(usize, Duration)| {
        let (workload, place) = &made[*job];
        if let Some(workload) = experiment.workloads.get_mut(workload) {
            workload.interval = Span(interval);
        }
        JobEntry {
            workload: workload.clone(),
            target: places[place].0.clone(),
            name: None,
            start_delay: (!delay.is_zero()).then_some(Span(*delay)),
            ends_run: false,
        }
    };
    let jobs = stretch.jobs.iter().map(job).collect();
    experiment.together.insert(name.clone(), TogetherEntry { jobs, exit_all: stretch.exit_all });
    name
}

/// The longest interval up to the usual one of which all times are whole numbers apart; none if there is no such one.
fn interval(begins: &[Duration]) -> Duration {
    let first = begins.iter().min().copied().unwrap_or_default();
    let mut nanos = Workload::default().interval.0.as_nanos() as u64;
    for apart in begins.iter().map(|begin| (*begin - first).as_nanos() as u64) {
        let (mut rest, mut divisor) = (apart, nanos);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        nanos = divisor;
    }
    let interval = Duration::from_nanos(nanos);
    if interval < INTERVAL_MIN { Duration::ZERO } else { interval }
}

/// A remark on a job as a whole.
fn of_job(job: &Job, loss: bool, why: String) -> Remark {
    Remark { location: job.location.clone(), key: format!("[{}]", job.name), why, loss }
}

/// Blames the first loss, unless losses are fine.
fn refuse_losses(remarks: &[Remark], lossy: bool) -> Result<(), FioError> {
    let mut losses = remarks.iter().filter(|remark| remark.loss && !lossy);
    let Some(Remark { location, key, why, .. }) = losses.next() else { return Ok(()) };
    let (option, why, more) = (key.clone(), why.clone(), losses.count());
    Err(Cause::Loss { option, why, more }.at(location.clone()))
}

/// A name without what TOML or a shell would trip over.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect()
}

/// The experiment as a file, without what is the default anyway.
fn write(experiment: &Experiment, path: &Path, remarks: &[Remark]) -> Result<String, toml::ser::Error> {
    let mut root = toml::Table::try_from(experiment)?;
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
    if let Some(workloads) = root.get_mut("workloads").and_then(toml::Value::as_table_mut) {
        for workload in workloads.iter_mut().filter_map(|(_, workload)| workload.as_table_mut()) {
            workload.retain(|key, value| usual.get(key) != Some(value));
        }
    }
    let mut text = format!("# From {} by brunt import-fio.\n", path.display());
    for Remark { location, key, why, loss } in remarks {
        let lost = if *loss { "LOST: " } else { "" };
        text += &format!("# {lost}{location}: {key}: {why}\n");
    }
    Ok(text + "\n" + &toml::to_string_pretty(&root)?)
}
