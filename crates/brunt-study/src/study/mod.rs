//! Executes the runs of an experiment: all repetitions of every point, interleaved, each recorded as soon as it ends.
//! `brunt run` opens the targets and shows progress.
//!
//! The rule: whatever stops it, finished runs stay on record, and the record is marked incomplete.

mod engine;
mod hosts;
mod indexes;
mod jobs;
mod recording;
mod table;
mod transfer;
mod turns;
mod wait;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use brunt_block::Backend;
use brunt_block::backends::join::JoinedBackend;
use brunt_core::{Clock, Histogram, Nanos};
use brunt_lab::link::Settings as LinkSettings;
use brunt_load::decisions::{self, Settled};
use brunt_load::load::{Finished, LoadTarget, RunOrder};
use brunt_load::{LoadError, Recorder};
use brunt_result::choice::RingChoice;
use brunt_result::{Interval, Outcome, RequestRecord, Stopped};

use crate::experiment::{Experiment, Plan, Point, PrecisionGoal};
use crate::hooks::{Company, HookError, RunHook};
use crate::observe::{Event, Hub, JobEvent, RunInfo};
use crate::rounded::rounded;
use brunt_result::degradation::{PhaseFigures, phases_over_runs};
use brunt_result::estimates::estimate;
use brunt_result::indexes::robustness;
use brunt_result::over_occurrences::recurring_over_runs;
use brunt_result::percentile::Percentile;
use brunt_result::performability::{FailingSystem, Performability};
use brunt_result::require::{Requirement, outcomes};
use brunt_result::run_log::RunLog;
use brunt_result::statistics::interleaved;
use brunt_result::summary::{
    FORMAT, Latencies, PointSummary, RunSummary, Summary, effects_over_runs,
};
use brunt_result::transfer::efficiency;
use brunt_result::void::VoidWeight;
use recording::slow_record;

#[cfg(test)]
pub(crate) use table::few_runs;
pub use table::{describe, table};
pub use turns::{ASK, GO, StudyTurns};
pub use wait::WaitError;

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A run failed.
    #[error("{label}, repetition {repetition}: {source}")]
    Run {
        /// The point.
        label: String,
        /// From 0.
        repetition: u32,
        /// The error.
        source: LoadError,
    },
    /// A hook failed before or after a run; the run is invalid.
    #[error("{label}, repetition {repetition}: {source}")]
    Hook {
        /// The point.
        label: String,
        /// From 0.
        repetition: u32,
        /// What failed, and what to do.
        source: HookError,
    },
    /// A load cannot be used; no run was started.
    #[error("{label}: {source}")]
    Load {
        /// The point.
        label: String,
        /// The error.
        source: LoadError,
    },
    /// The condition of a phase was not met.
    #[error("phase {phase}: {source}; what was measured before is kept")]
    Phase {
        /// Its name.
        phase: String,
        /// Why the wait ended.
        source: WaitError,
    },
    /// The results could not be written.
    #[error("cannot write the results: {0}; what was measured before is kept")]
    Write(#[from] io::Error),
}

/// A study in progress.
pub struct Study<'a> {
    plan: Plan,
    seed: u64,
    precision: Option<PrecisionGoal>,
    required: Vec<Requirement>,
    /// What each point's runs show failures of; `None` without any.
    systems: Vec<Option<FailingSystem>>,
    /// Percentiles kept of each run and point.
    percentiles: Vec<Percentile>,
    targets: BTreeMap<String, Arc<dyn Backend>>,
    /// What each point's load reports in addition to its figures.
    notes: Vec<Vec<String>>,
    folder: &'a Path,
    summary: Summary,
    /// Histograms of complete runs, by point: response and service.
    merged: Vec<(Histogram, Histogram)>,
    hub: Arc<Hub>,
    hooks: Vec<Box<dyn RunHook>>,
    /// The experiment continues without lost hosts.
    goes_on: bool,
    /// Repetition and phase of the current run, if there are phases.
    entered: Option<(usize, usize)>,
    /// The first run's hosts or recorded requests that are missing, as text.
    lacking: Option<String>,
    /// The runs take turns with those of other experiments.
    turns: Option<StudyTurns>,
}

/// Passes a session's figures to the hub and the hooks, and its start to the hooks.
struct Relay<'a> {
    hub: &'a Hub,
    hooks: &'a mut [Box<dyn RunHook>],
    /// The run's number.
    run: u32,
    ramp_up: Duration,
    started: bool,
}

/// An executed run: its outcome and summary, and those of each of several jobs.
struct Made {
    outcome: Outcome,
    run: RunSummary,
    jobs: Vec<(Outcome, RunSummary)>,
    /// A loss without which the experiment cannot continue.
    trouble: Option<String>,
}

impl Made {
    /// Copies to the jobs what hooks know of the run; `lost` is why it lacks a host that it needed.
    fn settle(&mut self, label: &str, lost: Option<HookError>) {
        let Made {
            outcome, run, jobs, ..
        } = self;
        jobs.iter_mut()
            .for_each(|(_, job)| job.noise.clone_from(&run.noise));
        let lacks = lost.is_some() || (run.stopped == Stopped::HostLost && outcome.is_complete());
        if let Some(lost) = lost {
            self.trouble = Some(format!("{label}: {lost}"));
            for run in jobs.iter_mut().map(|(_, job)| job).chain([&mut *run]) {
                run.doubts.push(lost.to_string());
            }
            if run.stopped != Stopped::Interrupted {
                run.stopped = Stopped::HostLost;
            }
        }
        if lacks {
            // The load doesn't know of the loss: make its outcome incomplete, so that none of its figures count.
            outcome.stopped = run.stopped;
            for (outcome, job) in jobs {
                (outcome.stopped, job.stopped) = (run.stopped, run.stopped);
            }
        }
    }
}

/// The more informative of two errors: a lost host explains other failures.
fn heavier(first: Option<HookError>, second: HookError) -> HookError {
    let explains = |error: &HookError| error.reason.weight() == VoidWeight::Incomplete;
    match first {
        Some(first) if explains(&first) || !explains(&second) => first,
        _ => second,
    }
}

/// The numbers of runs: the next one, and how many there will be.
struct Numbers {
    next: usize,
    all: usize,
}

impl Recorder for Relay<'_> {
    fn interval(&mut self, interval: &Interval) {
        self.hub.tell(&Event::Interval(Arc::new(interval.clone())));
        self.hooks
            .iter_mut()
            .for_each(|hook| hook.interval(interval));
    }
    fn requests(&mut self, batch: &[RequestRecord]) {
        self.hub.tell(&Event::Requests(batch.into()));
    }
    fn job_interval(&mut self, job: usize, interval: &Interval) {
        jobs::tell_interval(self.hub, self.run, job, interval);
    }
    fn job_requests(&mut self, job: usize, batch: &[RequestRecord]) {
        jobs::tell_requests(self.hub, self.run, job, batch);
    }
    fn starts(&mut self, start: Nanos) {
        self.hub.tell(&Event::RunStarts(start));
        if !std::mem::replace(&mut self.started, true) {
            self.hooks
                .iter_mut()
                .for_each(|hook| hook.starts(start, self.ramp_up));
        }
    }
    fn is_full(&self) -> bool {
        self.hub.failure().is_some()
    }
}

impl<'a> Study<'a> {
    /// A study of an experiment with these open targets, by the names of their devices ([`Point::device_of`]), and its hooks and observers. The summary goes to
    /// `folder`, which must exist.
    pub fn new(
        experiment: Experiment,
        targets: BTreeMap<String, Arc<dyn Backend>>,
        version: &str,
        folder: &'a Path,
        company: Company,
    ) -> Study<'a> {
        let plan = experiment.plan();
        Study::of_plan(plan, experiment, targets, version, folder, company)
    }

    /// The same with an existing plan: its loads keep what they read of traces, and its points may differ
    /// from the experiment's own.
    pub fn of_plan(
        plan: Plan,
        experiment: Experiment,
        targets: BTreeMap<String, Arc<dyn Backend>>,
        version: &str,
        folder: &'a Path,
        company: Company,
    ) -> Study<'a> {
        let point = |point: &Point| PointSummary {
            normal: experiment.normal_point(point, &plan),
            ..empty(point, &plan)
        };
        let points = plan.points.iter().map(point).collect();
        let merged = plan
            .points
            .iter()
            .map(|_| (Histogram::new(), Histogram::new()))
            .collect();
        let brunt = version.to_string();
        let mut experiment_summary = experiment.summary();
        for (name, backend) in &targets {
            if let Some(target) = experiment_summary.targets.get_mut(name) {
                target.facts.clone_from(&backend.info().facts);
            }
        }
        let summary = Summary {
            format: FORMAT,
            brunt,
            complete: false,
            trouble: None,
            experiment: experiment_summary,
            points,
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            label: None,
        };
        let (hub, hooks) = (Hub::new(company.observers), company.hooks);
        let (seed, precision) = (experiment.seed, experiment.precision_goal());
        let goes_on = experiment.goes_on_without_hosts();
        let (required, percentiles) = (experiment.require.clone(), experiment.kept_percentiles());
        let (notes, lacking) = (Vec::new(), None);
        let systems = plan.points.iter();
        let systems = systems.map(|point| experiment.failing_system(point));
        let systems = systems.collect();
        Study {
            plan,
            seed,
            precision,
            required,
            systems,
            percentiles,
            targets,
            notes,
            folder,
            summary,
            merged,
            hub,
            hooks,
            goes_on,
            entered: None,
            lacking,
            turns: None,
        }
    }

    /// Records this label with the results.
    pub fn labelled(mut self, label: Option<String>) -> Study<'a> {
        self.summary.label = label;
        self
    }

    /// Makes each run when it is this experiment's turn.
    pub fn taking_turns(mut self, turns: Option<StudyTurns>) -> Study<'a> {
        self.summary.interleaved = turns.as_ref().map(|turns| turns.with.clone());
        self.turns = turns;
        self
    }

    /// Executes all runs, until `stop` is set.
    ///
    /// # Errors
    /// What ended it early; the summary on disk includes it as well.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Summary, StudyError> {
        self.open_loads(stop)?;
        let precision = self.precision.map(|goal| goal.half_width);
        let mut log = RunLog::create(self.folder, precision)?;
        self.summary.write(self.folder)?;
        self.hub
            .tell(&Event::Begins(Arc::new(self.summary.clone())));
        let mut result = self.runs(&mut log, stop);
        self.estimate();
        for point in self
            .plan
            .points
            .iter()
            .filter(|point| point.part_of.is_none())
        {
            if let Err(error) = point.load.close() {
                self.summary.trouble.get_or_insert(error.to_string());
            }
        }
        if let Err(error) = &result {
            self.summary.trouble = Some(error.to_string());
        }
        if let Some(lacking) = self.lacking.take() {
            self.summary.trouble.get_or_insert(lacking);
        }
        self.summary.complete = self.summary.trouble.is_none();
        self.summary.indexes = robustness(&self.summary.points);
        self.summary.requirements = outcomes(&self.required, &self.summary.points);
        let before = self.hub.failure();
        self.hub.tell(&Event::Ends(Arc::new(self.summary.clone())));
        // Observers may fail as late as at the end, with data that they had not written yet, or report then what an
        // earlier failure led to.
        if let Some(failure) = self.hub.failure()
            && (self.summary.trouble.is_none() || self.summary.trouble == before)
        {
            (self.summary.complete, self.summary.trouble) = (false, Some(failure));
        }
        match self.summary.write(self.folder) {
            Ok(()) => log.remove(),
            Err(error) => result = result.and(Err(error.into())),
        }
        result.map(|()| self.summary)
    }

    /// Opens what the runs of each point share.
    fn open_loads(&mut self, stop: &AtomicBool) -> Result<(), StudyError> {
        for (index, point) in self.plan.points.iter().enumerate() {
            if point.part_of.is_some() {
                // The group opens the loads of its jobs.
                self.notes.push(Vec::new());
                continue;
            }
            let notes = self.place(index).and_then(|on| point.load.open(&on, stop));
            let notes = notes.map_err(|source| StudyError::Load {
                label: point.label.clone(),
                source,
            })?;
            let notes = [self.facts_of(index), notes].concat();
            self.summary.points[index].notes.clone_from(&notes);
            self.notes.push(notes);
        }
        Ok(())
    }

    /// What is known about the devices of a point whose options are swept: it differs from point to point.
    fn facts_of(&self, index: usize) -> Vec<String> {
        let point = &self.plan.points[index];
        let devices = point.options.keys().filter(|name| point.is_on(name));
        let facts = devices.filter_map(|name| {
            let info = self.targets.get(&point.device_of(name))?.info();
            let facts = info.facts.iter().chain(&info.notes);
            Some(
                facts
                    .map(move |fact| format!("{name}: {fact}"))
                    .collect::<Vec<_>>(),
            )
        });
        facts.flatten().collect()
    }

    /// The target or device that a point's load runs on.
    ///
    /// # Errors
    /// Several targets of one load cannot be driven as one device.
    fn place(&self, index: usize) -> Result<LoadTarget, LoadError> {
        let jobs: Result<Vec<LoadTarget>, LoadError> = self
            .plan
            .jobs_of(index)
            .map(|job| self.place(job))
            .collect();
        let jobs = jobs?;
        let point = &self.plan.points[index];
        // Other hosts open their own targets, and combine several into one device themselves.
        if !self.plan.joins_targets(index) {
            let device = self.targets.get(&point.device_of(&point.target)).cloned();
            return Ok(LoadTarget {
                device,
                parts: Vec::new(),
                jobs,
            });
        }
        let backends = point
            .targets
            .iter()
            .filter_map(|name| self.targets.get(&point.device_of(name)).cloned());
        let changes = point
            .targets
            .iter()
            .map(|name| point.load.changes_target(name));
        let changes: Vec<bool> = changes.collect::<Result<_, _>>()?;
        let joined = JoinedBackend::written_at(backends.collect(), |number| changes[number])?;
        Ok(LoadTarget {
            parts: joined.ranges(),
            ..LoadTarget::of(Arc::new(joined))
        })
    }

    /// Executes the runs in order, then rounds of those points that are not precise enough. An early end without an
    /// error becomes the summary's trouble.
    fn runs(&mut self, log: &mut RunLog, stop: &AtomicBool) -> Result<(), StudyError> {
        let planned = std::mem::take(&mut self.plan.runs);
        // Each of several jobs has a number, and so has their group.
        let numbered = |plan: &Plan, point: usize| 1 + plan.jobs_of(point).len();
        let all = planned
            .iter()
            .map(|(point, _)| numbered(&self.plan, *point))
            .sum();
        let (began, mut numbers) = (Clock::Monotonic.now(), Numbers { next: 0, all });
        for run in &planned {
            if !self.step(&mut numbers, *run, log, stop)? {
                return Ok(());
            }
        }
        let Some(goal) = self.precision else {
            return Ok(());
        };
        let (heads, first) = (
            self.plan.heads(),
            planned
                .iter()
                .map(|(_, repetition)| repetition + 1)
                .max()
                .unwrap_or(0),
        );
        for repetition in first..goal.repetitions_max as usize {
            let late = |time: brunt_core::Span| Clock::Monotonic.now().since(began) >= time.0;
            if goal.time_max.is_some_and(late) {
                break;
            }
            self.estimate();
            // Shuffled like the rounds before, so that drift affects all points alike.
            let round = interleaved(heads.len(), 1, self.seed.wrapping_add(repetition as u64));
            let reached = |point: usize| {
                self.summary.points[point]
                    .precision
                    .is_some_and(|one| one.reached)
            };
            let wanted = |head: &usize| !reached(*head) || !self.plan.jobs_of(*head).all(reached);
            let round = round.into_iter().map(|(place, _)| heads[place]);
            let round = self
                .plan
                .in_phases(round.filter(wanted).collect(), repetition);
            if round.is_empty() {
                break;
            }
            numbers.all += round
                .iter()
                .map(|point| numbered(&self.plan, *point))
                .sum::<usize>();
            for run in round.into_iter().map(|point| (point, repetition)) {
                if !self.step(&mut numbers, run, log, stop)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Makes a run in its turn, once the condition of its phase is met. Returns `false` if that ends the experiment.
    fn step(
        &mut self,
        numbers: &mut Numbers,
        run: (usize, usize),
        log: &mut RunLog,
        stop: &AtomicBool,
    ) -> Result<bool, StudyError> {
        if self.turns.as_mut().is_some_and(|turns| !turns.wait(stop)) {
            self.summary.trouble = Some("interrupted".into());
            return Ok(false);
        }
        Ok(self.enter_phase(run, stop)? && self.make(numbers, run, log, stop)?)
    }

    /// Waits for the condition of a run's phase, if it is the first run of that phase in its repetition. Returns
    /// `false` if `stop` was set first.
    fn enter_phase(
        &mut self,
        (point, repetition): (usize, usize),
        stop: &AtomicBool,
    ) -> Result<bool, StudyError> {
        let Some(phase) = self.plan.points[point].phase else {
            return Ok(true);
        };
        if self.entered.replace((repetition, phase)) == Some((repetition, phase)) {
            return Ok(true);
        }
        let entry = &self.plan.phases[phase];
        let Some(condition) = &entry.wait_for else {
            return Ok(true);
        };
        let waited = wait::wait(condition, stop).map_err(|source| StudyError::Phase {
            phase: entry.label(),
            source,
        })?;
        if waited.is_none() {
            self.summary.trouble = Some("interrupted".into());
        }
        Ok(waited.is_some())
    }

    /// Executes the next run: a repetition of a point. Returns `false` if there is trouble that ends the experiment.
    fn make(
        &mut self,
        numbers: &mut Numbers,
        (index, repetition): (usize, usize),
        log: &mut RunLog,
        stop: &AtomicBool,
    ) -> Result<bool, StudyError> {
        if let Some(failure) = self.hub.failure() {
            self.summary.trouble = Some(failure);
            return Ok(false);
        }
        let chosen = !stop.load(Ordering::Relaxed)
            && self.is_settled(index, stop).map_err(|source| {
                let label = self.plan.points[index].label.clone();
                StudyError::Run {
                    label,
                    repetition: repetition as u32,
                    source,
                }
            })?;
        if !chosen {
            self.summary.trouble = Some("interrupted".into());
            return Ok(false);
        }
        let info = Arc::new(RunInfo {
            order: numbers.next as u32,
            runs: numbers.all as u32,
            point: index as u32,
            label: self.plan.points[index].label.clone(),
            repetition: repetition as u32,
            // Every point of a repetition gets the same requests: only the compared settings differ.
            seed: self.seed.wrapping_add(repetition as u64),
            wall: SystemTime::now(),
            ready: Clock::Monotonic.now(),
        });
        numbers.next += 1 + self.plan.jobs_of(index).len();
        self.hub.tell(&Event::RunBegins(Arc::clone(&info)));
        let Made {
            outcome,
            run,
            jobs,
            trouble: needed,
        } = self.accompanied(&info, stop)?;
        let (run, figures) = (Arc::new(run), Arc::new(outcome.figures.clone()));
        self.hub.tell(&Event::RunEnds(
            Arc::clone(&info),
            Arc::clone(&run),
            figures,
        ));
        self.add_up(index, &outcome);
        if !outcome.is_complete() {
            // If the run was stopped, errors (perhaps due to a fault) are not why it ended.
            let gone = run.stopped == Stopped::DeviceGone;
            let lost = hosts::lost(&run).map(|lost| format!("{}: {lost}", info.label));
            let trouble = self.hub.failure().or_else(|| lost.clone());
            let trouble = trouble.unwrap_or_else(|| match &run.first_error {
                Some(error) if gone => {
                    target_gone(&info.label, error, outcome.end.since(outcome.start))
                }
                _ => "interrupted".into(),
            });
            // Runs that lost a host are reported at the end as the summary's trouble, but don't end the experiment.
            match self.goes_on && run.stopped == Stopped::HostLost && self.hub.failure().is_none() {
                true => self.lacking = self.lacking.take().or(lost),
                false => self.summary.trouble = Some(trouble),
            }
        }
        if needed.is_some() {
            self.summary.trouble = self.hub.failure().or(needed);
        }
        if let Some(missing) = hosts::unrecorded(&run) {
            self.lacking
                .get_or_insert_with(|| format!("{}: {missing}", info.label));
        }
        self.summary.points[index]
            .runs
            .push(Arc::unwrap_or_clone(run));
        self.conclude(index);
        let ended = index..index + 1 + jobs.len();
        for (job, (outcome, run)) in jobs.into_iter().enumerate() {
            let point = index + 1 + job;
            let info = jobs::job_info(&info, job, &self.plan.points[point].label);
            let (order, figures) = (info.order, Arc::new(outcome.figures.clone()));
            let ends = JobEvent::RunEnds(Arc::new(info), Arc::new(run.clone()), figures);
            self.hub.tell(&Event::Job(order, ends));
            self.add_up(point, &outcome);
            self.summary.points[point].runs.push(run);
            self.conclude(point);
        }
        log.add(ended, &mut self.summary.points)?;
        Ok(self.summary.trouble.is_none())
    }

    /// Adds a complete run to the histograms of its point.
    fn add_up(&mut self, point: usize, outcome: &Outcome) {
        if outcome.is_complete() {
            self.merged[point].0.merge(&outcome.figures.response());
            self.merged[point].1.merge(&outcome.figures.service());
        }
    }

    /// Measures which engine a point should use and how its rings should work, if its load leaves that open and it was
    /// not measured before. Returns `false` if `stop` was set meanwhile.
    fn is_settled(&mut self, index: usize, stop: &AtomicBool) -> Result<bool, LoadError> {
        let point = &self.plan.points[index];
        let is_first = self.summary.points[index].runs.is_empty();
        if !is_first || !decisions::is_measured(&point.load.info()) {
            return Ok(true);
        }
        let on = self.place(index)?;
        let Some(Settled { engine, ring }) = decisions::settle(&*point.load, &on, self.seed, stop)?
        else {
            return Ok(false);
        };
        let summary = &mut self.summary.points[index];
        summary.engine = engine;
        if let Some(ring) = ring {
            summary.ring = ring;
        }
        Ok(true)
    }

    /// Executes one run with its hooks, all of which have ended when this returns.
    fn accompanied(&mut self, info: &RunInfo, stop: &AtomicBool) -> Result<Made, StudyError> {
        let mut hooks = std::mem::take(&mut self.hooks);
        let mut begun = 0;
        let mut trouble = None;
        for hook in &mut hooks {
            begun += 1;
            if let Err(error) = hook.begin(info, &self.hub) {
                trouble = Some(error);
                break;
            }
        }
        let mut made = match trouble {
            None => Some(self.one(info, &mut hooks, stop)),
            Some(_) => None,
        };
        let complete = made
            .as_ref()
            .is_some_and(|made| made.as_ref().is_ok_and(|made| made.outcome.is_complete()));
        // A hook that failed may still have observations of the previous run.
        let mut ended = vec![true; hooks.len()];
        for (place, hook) in hooks[..begun].iter_mut().enumerate().rev() {
            if let Err(error) = hook.end(complete) {
                ended[place] = false;
                trouble = Some(heavier(trouble, error));
            }
        }
        let is_kept = |error: &mut HookError| error.reason.weight() == VoidWeight::Incomplete;
        let lost = match &made {
            Some(Ok(_)) => trouble.take_if(is_kept),
            Some(Err(_)) | None => None,
        };
        if let (Some(Ok(made)), None) = (&mut made, &trouble) {
            for (hook, _) in hooks.iter_mut().zip(ended).filter(|(_, ended)| *ended) {
                hook.sum_up(&mut made.run, &made.outcome);
            }
            made.settle(&info.label, lost);
        }
        self.hooks = hooks;
        let (label, repetition) = (info.label.clone(), info.repetition);
        match (made, trouble) {
            (Some(Err(source)), _) => Err(StudyError::Run {
                label,
                repetition,
                source,
            }),
            (_, Some(source)) => Err(StudyError::Hook {
                label,
                repetition,
                source,
            }),
            (Some(Ok(made)), None) => Ok(made),
            (None, None) => unreachable!("made unless there was trouble"),
        }
    }

    /// Executes the run itself. The depth is found here, because hooks have set the links as its point defines them.
    fn one(
        &mut self,
        info: &RunInfo,
        hooks: &mut [Box<dyn RunHook>],
        stop: &AtomicBool,
    ) -> Result<Made, LoadError> {
        let index = info.point as usize;
        let (load, on) = (&self.plan.points[index].load, self.place(index)?);
        let point = &mut self.summary.points[index];
        let order = RunOrder {
            engine: point.engine.as_ref().map(|choice| choice.engine.into()),
            ring: Some(point.ring.mode),
            ..jobs::order_of(info)
        };
        let mut relay = Relay {
            hub: &self.hub,
            hooks,
            run: info.order,
            ramp_up: load.info().ramp_up,
            started: false,
        };
        let measured =
            decisions::measure(&**load, &on, &order, point.depth.take(), stop, &mut relay)?;
        point.depth = measured.depth;
        let (mut outcome, rate_found) = (measured.outcome, measured.rate_found);
        let run = RunSummary::of(&outcome, info.repetition, info.order, info.seed, rate_found);
        let (
            trial,
            Finished {
                page_cache,
                replay,
                troubles,
                mut hosts,
                jobs: finished,
                ..
            },
        ) = (measured.trial, measured.finished);
        let mut run = RunSummary {
            trial,
            page_cache,
            replay,
            troubles,
            ..run
        };
        hosts.extend(jobs::hosts_of_all(
            &self.plan.points[self.plan.jobs_of(index)],
            &finished,
        ));
        hosts::add(&mut run, &mut outcome, hosts);
        let mut outcomes = measured.jobs;
        let mut of_jobs = jobs::summaries(info, &mut outcomes, finished);
        let points = index..self.plan.jobs_of(index).end;
        let points = &mut self.summary.points[points];
        engine::record(measured.prepared.as_ref(), &mut run, &mut of_jobs, points);
        let of_points = outcomes.iter().chain([&outcome]);
        let runs = of_jobs.iter_mut().chain([&mut run]).zip(of_points);
        let jobs = self.plan.jobs_of(index).take(outcomes.len());
        for ((run, outcome), point) in runs.zip(jobs.chain([index])) {
            run.keep_percentiles(&self.percentiles, &outcome.figures);
            let slow = slow_record(outcome, &self.plan.points[point]);
            run.doubts.extend(slow.map(|doubt| doubt.what));
            run.doubts.extend(untrue(run));
        }
        Ok(Made {
            outcome,
            run,
            jobs: outcomes.into_iter().zip(of_jobs).collect(),
            trouble: None,
        })
    }

    /// Combines the complete runs of a point.
    fn conclude(&mut self, index: usize) {
        let point = &mut self.summary.points[index];
        let complete: Vec<&RunSummary> =
            point.runs.iter().filter(|run| run.is_complete()).collect();
        point.notes.clone_from(&self.notes[index]);
        point.notes.extend(page_cache_note(&complete));
        point.notes.extend(trouble_note(&complete));
        point.notes.extend(hosts::failures(&complete));
        point.notes.extend(
            hosts::note(&complete)
                .into_iter()
                .chain(hosts::ends(&complete).into_iter().flatten()),
        );
        point.degradation = effects_over_runs(complete.iter().copied());
        point.recurring = recurring_over_runs(complete.iter().copied());
        point.phases = phases_over_runs(complete.iter().map(|run| &run.phases[..]));
        point.performability = self.systems[index].as_ref().map(|system| {
            let phases: Vec<&[PhaseFigures]> = complete.iter().map(|run| &run.phases[..]).collect();
            Performability::of(system, &phases)
        });
        point.transfer = efficiency(&point.runs);
        point.response = Latencies::of(&self.merged[index].0);
        point.response_percentiles_us =
            Percentile::of_each(&self.percentiles, &self.merged[index].0);
        point.service = Latencies::of(&self.merged[index].1);
    }

    /// Estimates the figures of all points.
    fn estimate(&mut self) {
        let Summary {
            experiment, points, ..
        } = &mut self.summary;
        let precision = self.precision.map(|goal| goal.half_width);
        estimate(points, experiment, precision);
    }
}

/// The message for a run that ended because its target was gone, after measuring for `lasted`.
pub(crate) fn target_gone(label: &str, error: &str, lasted: Duration) -> String {
    format!(
        "{label}: {error}; the target was available for {} of the run: a run with stop = {{ time = \"{}\" }} would \
         have ended before that",
        rounded(lasted),
        rounded(lasted / 2)
    )
}

/// A note for a replay that doesn't reproduce its trace.
fn untrue(run: &RunSummary) -> Option<String> {
    let replay = run
        .replay
        .as_ref()
        .filter(|replay| replay.verdict != brunt_result::replay::ReplayVerdict::True)?;
    Some(format!(
        "replay: {}; {}",
        replay.verdict.name(),
        replay.reasons.join("; ")
    ))
}

/// Problems of the devices in these runs: in how many runs, and the first.
pub(super) fn trouble_note(runs: &[&RunSummary]) -> Option<String> {
    let mut met = runs.iter().filter(|run| !run.troubles.is_empty());
    let first = met.next()?;
    let (some, all, repetition) = (1 + met.count(), runs.len(), first.repetition);
    let what = first.troubles.join("; ");
    Some(format!(
        "devices recovered from errors in {some} of {all} runs; repetition {repetition}, {what}"
    ))
}

/// The page cache's share in these runs, if it affects the figures.
fn page_cache_note(runs: &[&RunSummary]) -> Option<String> {
    let shares: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.page_cache?.read_share)
        .collect();
    let flushes: Vec<f64> = runs
        .iter()
        .filter_map(|run| Some(run.page_cache?.flush_s / run.measured_s))
        .collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64 * 100.0;
    let mut said = Vec::new();
    if !shares.is_empty() {
        said.push(format!(
            "{:.1} % of the data read came from it",
            mean(&shares)
        ));
    }
    if flushes.iter().any(|share| *share > 0.0) {
        said.push(format!(
            "fsync at the end took {:.1} % of the time",
            mean(&flushes)
        ));
    }
    (!said.is_empty()).then(|| format!("page cache: {}", said.join("; ")))
}

/// A point without runs.
fn empty(point: &Point, plan: &Plan) -> PointSummary {
    PointSummary {
        part_of: point.part_of.map(|all| plan.points[all].label.clone()),
        label: point.label.clone(),
        target: point.target.clone(),
        workload: point.workload_name.clone(),
        axes: point.axes.iter().cloned().collect(),
        ring: RingChoice::stated(point.load.info().ring),
        line_bits_per_second: lines(point),
        ..PointSummary::default()
    }
}

/// The line rate of each link that has one, in bits per second, in the slower direction: the direction of reads depends
/// on where the worker is.
fn lines(point: &Point) -> BTreeMap<String, f64> {
    let slower = |ways: &[LinkSettings; 2]| {
        ways.iter()
            .filter_map(|way| Some(way.rate?.0 as f64))
            .reduce(f64::min)
    };
    point
        .links
        .iter()
        .filter_map(|(name, ways)| Some((name.clone(), slower(ways)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observer;
    use brunt_block::backends::memory::MemoryBackend;
    use brunt_result::void::VoidReason;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    const TEXT: &str = r#"
        name = "small"
        repetitions = 4
        [targets.memory]
        url = "memory:16MiB"
        [workloads.mixed]
        read = 0.5
        stop = { requests = 2000 }
        [sweep]
        queue_depth = [1, 16]
    "#;

    /// The study runs a load of an unknown kind like any other.
    #[test]
    fn any_load_runs() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse("small.toml", TEXT).unwrap();
        let mut plan = experiment.plan();
        let kind = brunt_load::load_kind("nap").unwrap();
        plan.points[0].load = (kind.read)("naps = 5", &brunt_load::LoadContext::default())
            .unwrap()
            .remove(0)
            .1;
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        let targets = BTreeMap::from([("memory".into(), memory)]);
        let study = Study::of_plan(
            plan,
            experiment,
            targets,
            "test",
            folder.path(),
            Company::default(),
        );
        let summary = study.run(&AtomicBool::new(false)).unwrap();
        assert!(summary.complete, "{:?}", summary.trouble);
        assert_eq!(summary.points[0].notes, ["it only sleeps"]);
        assert_eq!(summary.points[0].response.unwrap().max_us, 10.0);
        assert!(summary.points.iter().all(|point| point.runs.len() == 4));
    }

    /// Counts runs, and stops the experiment after some.
    struct Count(Arc<AtomicUsize>, Arc<AtomicBool>, usize);
    impl Observer for Count {
        fn event(&mut self, event: &Event) -> io::Result<()> {
            if let Event::RunEnds(..) = event {
                let seen = self.0.fetch_add(1, Ordering::Relaxed) + 1;
                self.1.store(seen >= self.2, Ordering::Relaxed);
            }
            Ok(())
        }
    }

    fn study(folder: &Path, company: Company) -> Study<'_> {
        let experiment = Experiment::parse("small.toml", TEXT).unwrap();
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        Study::new(
            experiment,
            BTreeMap::from([("memory".into(), memory)]),
            "test",
            folder,
            company,
        )
    }

    /// Every run is executed once, and the file on disk is complete.
    #[test]
    fn an_experiment_from_end_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let count = Count(told.clone(), Arc::default(), usize::MAX);
        let company = Company {
            observers: vec![Box::new(count)],
            hooks: Vec::new(),
        };
        let summary = study(folder.path(), company)
            .run(&AtomicBool::new(false))
            .unwrap();
        assert!(summary.complete && summary.trouble.is_none());
        assert_eq!(told.load(Ordering::Relaxed), 8);
        let read = Summary::read(folder.path()).unwrap();
        assert_eq!(read.experiment, summary.experiment);
        assert_eq!((read.complete, read.points.len()), (true, 2));
        for point in &read.points {
            assert_eq!(point.runs.len(), 4);
            assert_eq!(point.requests_per_second.unwrap().runs, 4);
            let all: u64 = point.runs.iter().map(RunSummary::completed).sum();
            assert_eq!(all, 8000);
            let longest = point
                .runs
                .iter()
                .filter_map(|run| run.response)
                .map(|r| r.max_us)
                .fold(0.0, f64::max);
            assert_eq!(point.response.unwrap().max_us, longest);
        }
        assert!(table(&summary).len() > 2);
    }

    /// A point that is precise enough is not repeated; one that isn't is repeated up to the limit, and reports that.
    #[test]
    fn points_are_repeated_until_they_are_precise() {
        let made = |precision: &str, most: u32| {
            let folder = tempfile::tempdir().unwrap();
            let goal =
                format!("repetitions = 4\nprecision = \"{precision}\"\nrepetitions_max = {most}");
            let text = TEXT.replace("repetitions = 4", &goal);
            let experiment = Experiment::parse("small.toml", &text).unwrap();
            let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
            let targets = BTreeMap::from([("memory".into(), memory)]);
            let study = Study::new(
                experiment,
                targets,
                "test",
                folder.path(),
                Company::default(),
            );
            let summary = study.run(&AtomicBool::new(false)).unwrap();
            assert!(summary.complete, "{:?}", summary.trouble);
            summary
        };
        for point in &made("0.000001%", 9).points {
            let precision = point.precision.unwrap();
            assert!(point.runs.len() == 9 && !precision.reached, "{precision:?}");
            assert!(precision.runs_wanted > Some(9), "{precision:?}");
            let repetitions: Vec<u32> = point.runs.iter().map(|run| run.repetition).collect();
            assert_eq!(repetitions, (0..9).collect::<Vec<u32>>());
        }
        let summary = made("100%", 200);
        for point in &summary.points {
            let precision = point.precision.unwrap();
            assert!(
                precision.reached || point.runs.len() == 200,
                "{precision:?}"
            );
        }
        let mut orders: Vec<u32> = summary
            .points
            .iter()
            .flat_map(|point| &point.runs)
            .map(|run| run.order)
            .collect();
        orders.sort_unstable();
        assert_eq!(orders, (0..orders.len() as u32).collect::<Vec<u32>>());
    }

    /// Reads the result on disk when a run ends, before that run is recorded.
    struct Reads(std::path::PathBuf, Arc<Mutex<Vec<Summary>>>);
    impl Observer for Reads {
        fn event(&mut self, event: &Event) -> io::Result<()> {
            if let Event::RunEnds(..) = event {
                let read = Summary::read(&self.0).map_err(io::Error::other)?;
                self.1.lock().unwrap().push(read);
            }
            Ok(())
        }
    }

    /// What is on disk during an experiment has every finished run, with the same figures as at the end.
    #[test]
    fn finished_runs_are_readable_during_the_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let company = Company {
            observers: vec![Box::new(Reads(folder.path().into(), seen.clone()))],
            hooks: Vec::new(),
        };
        let summary = study(folder.path(), company)
            .run(&AtomicBool::new(false))
            .unwrap();
        let runs = |summary: &Summary| {
            let runs = summary.points.iter().flat_map(|point| point.runs.clone());
            let mut runs: Vec<RunSummary> = runs.collect();
            runs.sort_by_key(|run| run.order);
            runs
        };
        let all = runs(&summary);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), all.len());
        for (count, read) in seen.iter().enumerate() {
            assert!(!read.complete);
            assert_eq!(runs(read), all[..count]);
            for (point, last) in read.points.iter().zip(&summary.points) {
                let is_whole = point.runs.len() == last.runs.len();
                assert!(!is_whole || point.response == last.response);
                assert_eq!(point.requests_per_second.is_some(), !point.runs.is_empty());
            }
        }
        assert!(
            !folder
                .path()
                .join(brunt_result::run_log::FILE_NAME)
                .exists()
        );
    }

    /// An interrupted experiment is recorded and marked incomplete.
    #[test]
    fn an_interrupted_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let count = Count(Arc::default(), stop.clone(), 3);
        let company = Company {
            observers: vec![Box::new(count)],
            hooks: Vec::new(),
        };
        let summary = study(folder.path(), company).run(&stop).unwrap();
        assert!(!summary.complete && summary.trouble.is_some());
        let read = Summary::read(folder.path()).unwrap();
        assert_eq!(
            read.points
                .iter()
                .map(|point| point.runs.len())
                .sum::<usize>(),
            3
        );
        assert!(!read.complete);
    }

    /// Records its calls, and fails where it should.
    struct Along(&'static str, Arc<Mutex<Vec<String>>>, &'static str);

    /// A hook whose host is lost in the first run.
    struct Lost;
    impl RunHook for Lost {
        fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
            Ok(())
        }
        fn end(&mut self, _complete: bool) -> Result<(), HookError> {
            Err(HookError::new(VoidReason::FaultHostLost, "host b is gone"))
        }
        fn sum_up(&mut self, _run: &mut RunSummary, _outcome: &Outcome) {
            panic!("it did not see the end of the run");
        }
    }

    #[test]
    fn a_run_that_lost_the_host_of_its_target_is_kept_incomplete() {
        let folder = tempfile::tempdir().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        // The target that the lost host served fails, too.
        let along = |name, fails| Box::new(Along(name, said.clone(), fails)) as Box<dyn RunHook>;
        let company = Company {
            observers: Vec::new(),
            hooks: vec![along("a", "end"), Box::new(Lost), along("c", "end")],
        };
        let summary = study(folder.path(), company)
            .run(&AtomicBool::new(false))
            .unwrap();
        let trouble = summary.trouble.as_deref().unwrap();
        assert!(trouble.contains("host b is gone"), "{trouble}");
        let read = Summary::read(folder.path()).unwrap();
        assert!(!read.complete && read.trouble == summary.trouble);
        let runs: Vec<&RunSummary> = summary
            .points
            .iter()
            .flat_map(|point| &point.runs)
            .collect();
        let [run] = runs.as_slice() else {
            panic!("the experiment ends with it: {runs:?}");
        };
        assert_eq!((run.stopped, run.completed()), (Stopped::HostLost, 2000));
        assert!(
            run.doubts[0].starts_with("host b is gone"),
            "{:?}",
            run.doubts
        );
        assert!(
            summary
                .points
                .iter()
                .all(|point| point.requests_per_second.is_none())
        );
    }

    impl Along {
        fn say(&self, what: &str) -> Result<(), HookError> {
            self.1.lock().unwrap().push(format!("{} {what}", self.0));
            let failed =
                || HookError::new(VoidReason::RoleDied, format!("{} cannot {what}", self.0));
            if self.2 == what {
                Err(failed())
            } else {
                Ok(())
            }
        }
    }
    impl RunHook for Along {
        fn begin(&mut self, _run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
            self.say("begin")
        }
        fn starts(&mut self, _start: Nanos, _ramp_up: Duration) {
            let _ = self.say("start");
        }
        fn end(&mut self, _complete: bool) -> Result<(), HookError> {
            self.say("end")
        }
    }

    /// Hooks begin and end around each run in opposite orders. One that fails voids the run and ends the experiment,
    /// and those that had begun are still ended.
    #[test]
    fn hooks_are_always_ended() {
        let check = |fails: &'static str, expected: &[&str], trouble: &str| {
            let folder = tempfile::tempdir().unwrap();
            let said = Arc::new(Mutex::new(Vec::new()));
            let along =
                |name, fails| Box::new(Along(name, said.clone(), fails)) as Box<dyn RunHook>;
            let company = Company {
                observers: Vec::new(),
                hooks: vec![along("a", ""), along("b", fails), along("c", "")],
            };
            let error = study(folder.path(), company)
                .run(&AtomicBool::new(false))
                .unwrap_err();
            assert!(error.to_string().ends_with(trouble), "{error}");
            assert_eq!(*said.lock().unwrap(), expected);
            let read = Summary::read(folder.path()).unwrap();
            assert!(!read.complete && read.trouble.unwrap().ends_with(trouble));
            assert!(read.points.iter().all(|point| point.runs.is_empty()));
        };
        check(
            "begin",
            &["a begin", "b begin", "b end", "a end"],
            "b cannot begin",
        );
        let all = [
            "a begin", "b begin", "c begin", "a start", "b start", "c start", "c end", "b end",
            "a end",
        ];
        check("end", &all, "b cannot end");
    }

    /// An observer that can store nothing more ends the experiment at once, and the summary says why.
    #[test]
    fn a_full_disk_ends_the_experiment() {
        struct Full;
        impl Observer for Full {
            fn event(&mut self, event: &Event) -> io::Result<()> {
                match event {
                    Event::RunStarts(_) => Err(io::Error::other("intervals: no space left")),
                    _ => Ok(()),
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let text = TEXT.replace("stop = { requests = 2000 }", "stop = { time = \"1h\" }");
        let experiment = Experiment::parse("small.toml", &text).unwrap();
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(16 << 20, 512).unwrap());
        let targets = BTreeMap::from([("memory".into(), memory)]);
        let company = Company {
            observers: vec![Box::new(Full)],
            hooks: Vec::new(),
        };
        let study = Study::new(experiment, targets, "test", folder.path(), company);
        let summary = study.run(&AtomicBool::new(false)).unwrap();
        assert_eq!(summary.trouble.as_deref(), Some("intervals: no space left"));
        assert!(!Summary::read(folder.path()).unwrap().complete);
    }
}
