//! Runs several loads concurrently as jobs, each with its own workload, workers, target, start and end, like the jobs
//! of a fio file. Created by a study from `[together.NAME]`, and run by [`crate::decisions`] like every other load.
//!
//! A job is any [`Load`] and is unaware of the others. Their workers report to a single collector
//! and are numbered consecutively across jobs ([`crate::collect::WorkerSender`]); the collector
//! merges each report twice, for its job and for all jobs combined. A job that starts later is just
//! given a later start: its first interval has the number of the run's interval in which it begins,
//! so that both series have the same boundaries. For that reason, all jobs use the same interval
//! length, and their measurements begin a whole number of intervals apart.
//!
//! The rule: decisions that involve all workers of a run (steady state, a rate, a depth) are not made for a single
//! job; workloads that need them are rejected.

mod check;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brunt_core::{Nanos, Span};
use brunt_result::OpKind;
use serde::Deserialize;

use crate::block::BlockLoad;
use crate::block::workload::Workload;
use crate::commands::{LoadCommand, LoadCommandError};
use crate::kind::{LoadContext, LoadForm, LoadKind};
use crate::load::{
    Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, Pace, PreparedJob,
    PreparedLoad, RunOrder, RunningLoad, WorkloadError,
};
use crate::nfs::NfsLoad;
use crate::nfs_replay::NfsReplayLoad;
use crate::replay::ReplayLoad;

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "together";
/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "several block loads or replays at once, each with its own figures",
    example: "[[jobs]]\nname = \"reader\"\nworkload = { stop = { time = \"9s\" } }\n\
              [[jobs]]\nname = \"writer\"\nstart_delay = \"3s\"\nworkload = { read = 0, stop = { time = \"6s\" } }",
    permit: None,
    read: |text, context| {
        let settings: TogetherSettings = toml::from_str(text).map_err(Box::new)?;
        Ok(vec![(String::new(), Arc::new(settings.load(context)?))])
    },
    form: LoadForm::Group("together"),
};
/// Maximum number of jobs in one load.
pub const JOBS_MAX: usize = 64;

/// Loads that run concurrently.
#[derive(Clone, Debug)]
pub struct TogetherLoad {
    jobs: Vec<TogetherJob>,
}

/// One of several loads that run concurrently.
#[derive(Clone, Debug)]
pub struct TogetherJob {
    /// The job's unique name.
    pub name: String,
    /// The job's load.
    pub load: Arc<dyn Load>,
    /// Delay of the job's start after the run's start.
    pub start_delay: Duration,
    /// Whether the run ends when this job ends.
    pub ends_run: bool,
}

/// Jobs with their workloads, as read from text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TogetherSettings {
    /// Ends the run when the first job has ended, instead of the last.
    #[serde(default)]
    pub exit_all: bool,
    /// The jobs to run at once.
    pub jobs: Vec<JobSettings>,
}

/// A job, as read from text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSettings {
    /// The job's unique name.
    pub name: String,
    /// Delay of the job's start after the run's start.
    #[serde(default)]
    pub start_delay: Span,
    /// Ends the run when this job ends.
    #[serde(default)]
    pub ends_run: bool,
    /// The job's workload.
    pub workload: Workload,
}

impl TogetherSettings {
    /// Creates the described load.
    ///
    /// # Errors
    /// A workload is invalid, or can't run together with others.
    pub fn load(self, context: &LoadContext) -> Result<TogetherLoad, WorkloadError> {
        let mut jobs = Vec::new();
        for JobSettings {
            name,
            start_delay,
            ends_run,
            workload,
        } in self.jobs
        {
            workload.check()?;
            let load = load_of(workload, context);
            jobs.push(TogetherJob {
                name,
                load,
                start_delay: start_delay.0,
                ends_run,
            });
        }
        TogetherLoad::new(jobs, self.exit_all)
    }
}

/// Returns the load of a workload: a replay if it has a trace, NFS calls if it describes some.
pub fn load_of(workload: Workload, context: &LoadContext) -> Arc<dyn Load> {
    if workload.nfs_replay.is_some() {
        Arc::new(NfsReplayLoad::new(workload).sharing(&context.inputs))
    } else if workload.trace.is_some() {
        Arc::new(ReplayLoad::new(workload, &context.targets).sharing(&context.inputs))
    } else if workload.nfs.is_some() {
        Arc::new(NfsLoad::new(workload))
    } else {
        Arc::new(BlockLoad::new(workload))
    }
}

/// Derives a job's order from that of the whole run. The job gets its own seed, so it issues different requests from
/// the others; in the numbering of runs it follows the run of all jobs combined.
pub fn job_order(order: &RunOrder, index: usize) -> RunOrder {
    let number = index as u64 + 1;
    RunOrder {
        // Requests depend only on the seed and on worker numbers, which start from 0 in each job, so jobs with the
        // same seed would issue the same requests.
        seed: order.seed.wrapping_add(number << 32),
        run: order.run.wrapping_add(number << 32),
        order: order.order.map(|order| order + number as u32),
        // Each job chooses its own ring mode.
        ring: None,
        ..order.clone()
    }
}

impl TogetherLoad {
    /// Creates a load from these jobs. With `exit_all` the run ends when the first job ends, rather than the last.
    ///
    /// # Errors
    /// A job can't run together with others.
    pub fn new(mut jobs: Vec<TogetherJob>, exit_all: bool) -> Result<TogetherLoad, WorkloadError> {
        check::check(&jobs)?;
        jobs.iter_mut().for_each(|job| job.ends_run |= exit_all);
        Ok(TogetherLoad { jobs })
    }

    /// Returns the load's jobs, in order.
    pub fn jobs(&self) -> &[TogetherJob] {
        &self.jobs
    }

    /// Returns the time from the start of the run until measuring begins for the first job.
    fn measured_from(&self) -> Duration {
        self.jobs
            .iter()
            .map(TogetherJob::measured_from)
            .min()
            .unwrap_or(Duration::ZERO)
    }

    fn prepare_each(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: &MessageSender,
        stop: &AtomicBool,
        running: &mut Vec<StartedJob>,
    ) -> Result<PreparedLoad, LoadError> {
        let mut all = PreparedLoad::alone(0, 1);
        for (index, job) in self.jobs.iter().enumerate() {
            let first_interval = job.intervals_after(self.measured_from());
            let inbox = inbox.of_job(all.workers, first_interval);
            let (prepared, load) =
                job.load
                    .prepare(on.job(index), &job_order(order, index), inbox, stop)?;
            running.push(StartedJob {
                load,
                start_delay: job.start_delay,
            });
            all.workers += prepared.workers;
            all.queue_depth = all.queue_depth.max(prepared.queue_depth);
            // Jobs on other hosts have to receive their start time earlier.
            all.notice = all.notice.max(prepared.notice);
            let (workers, ends_run) = (prepared.workers, job.ends_run);
            all.jobs.push(PreparedJob {
                workers,
                engine: prepared.engine,
                first_interval,
                ends_run,
            });
        }
        Ok(all)
    }
}

impl TogetherJob {
    /// Returns the time from the start of the run until the job's measuring begins.
    fn measured_from(&self) -> Duration {
        self.start_delay + self.load.info().ramp_up
    }

    /// Returns the number of intervals after `first` at which the job's measuring begins.
    fn intervals_after(&self, first: Duration) -> u64 {
        let interval = self.load.info().interval;
        if interval.is_zero() {
            return 0;
        }
        (self.measured_from().saturating_sub(first).as_nanos() / interval.as_nanos()) as u64
    }
}

impl Load for TogetherLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        let each: Vec<(&TogetherJob, LoadInfo)> =
            self.jobs.iter().map(|job| (job, job.load.info())).collect();
        let infos = || each.iter().map(|(_, info)| info);
        let mut kinds: Vec<OpKind> = Vec::new();
        for kind in infos().flat_map(|info| &info.kinds) {
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
        let end = |(job, info): &(&TogetherJob, LoadInfo)| job.start_delay + info.time_min;
        let enders = || each.iter().filter(|(job, _)| job.ends_run);
        let last = each.iter().map(end).max().unwrap_or(Duration::ZERO);
        let rate = infos().map(|info| match info.pace {
            Pace::Open { rate } => Some(rate),
            Pace::Closed | Pace::Search(_) => None,
        });
        LoadInfo {
            kinds,
            workers: infos().map(|info| info.workers).sum(),
            queue_depth: infos().map(|info| info.queue_depth).max().unwrap_or(1),
            // A closed loop has no fixed rate, so the jobs combined have none, either.
            pace: rate
                .sum::<Option<f64>>()
                .map_or(Pace::Closed, |rate| Pace::Open { rate }),
            ramp_up: self.measured_from(),
            interval: infos().next().map_or(Duration::ZERO, |info| info.interval),
            time_min: enders()
                .map(end)
                .min()
                .map_or(last, |first| first.min(last)),
            open_ended: infos().any(|info| info.open_ended)
                && enders().all(|(_, info)| info.open_ended),
            writes: infos().any(|info| info.writes),
            records_requests: infos().any(|info| info.records_requests),
            ..LoadInfo::default()
        }
    }

    fn describe(&self) -> String {
        let each = self.jobs.iter().map(|job| {
            let delay = match job.start_delay.is_zero() {
                true => String::new(),
                false => format!(", {} after the start", Span(job.start_delay)),
            };
            format!("{} ({}{delay})", job.name, job.load.describe())
        });
        let enders: Vec<&str> = self
            .jobs
            .iter()
            .filter(|job| job.ends_run)
            .map(|job| job.name.as_str())
            .collect();
        let ends = match enders.len() {
            0 => String::new(),
            count if count == self.jobs.len() => "; ends with the first".into(),
            _ => format!("; ends with {}", enders.join(" or ")),
        };
        format!(
            "at once: {}{ends}",
            each.collect::<Vec<String>>().join(" + ")
        )
    }

    fn open(&self, on: &LoadTarget, stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        let mut notes: Vec<String> = Vec::new();
        for (index, job) in self.jobs.iter().enumerate() {
            for note in job.load.open(on.job(index), stop)? {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        // Some properties of a load, such as a trace's duration, are only known once it is open.
        check::check(&self.jobs)?;
        Ok(notes)
    }

    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let mut running = Vec::with_capacity(self.jobs.len());
        match self.prepare_each(on, order, &inbox, stop, &mut running) {
            Ok(prepared) => Ok((prepared, Box::new(RunningJobs(running)))),
            Err(error) => {
                // Workers of earlier jobs may be waiting for space in the inbox, which the caller drops after this
                // call, so this code must not wait for them to end.
                std::thread::spawn(move || drop(running));
                Err(error)
            }
        }
    }

    fn close(&self) -> Result<(), LoadError> {
        // Close all of them even if one fails.
        let closed: Vec<Result<(), LoadError>> =
            self.jobs.iter().map(|job| job.load.close()).collect();
        closed.into_iter().collect()
    }
}

/// A prepared job of a run.
struct StartedJob {
    load: Box<dyn RunningLoad>,
    start_delay: Duration,
}

/// The jobs of a run.
struct RunningJobs(Vec<StartedJob>);

impl RunningLoad for RunningJobs {
    fn start(&mut self, at: Nanos) {
        for job in &mut self.0 {
            job.load.start(at.after(job.start_delay));
        }
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        match command {
            LoadCommand::Stop => self
                .0
                .iter_mut()
                .try_for_each(|job| job.load.command(command)),
            LoadCommand::Rate(_) | LoadCommand::Depth(_) => Err(LoadCommandError::Several),
        }
    }

    fn finish(self: Box<Self>) -> Finished {
        let jobs = self.0.into_iter().map(|job| job.load.finish()).collect();
        Finished {
            jobs,
            ..Finished::default()
        }
    }
}

#[cfg(test)]
mod tests;
