//! Executes the runs of an experiment: all repetitions of every point, interleaved, each recorded as soon as it ends.
//! `brunt run` opens the targets and shows progress.
//!
//! The rule: whatever stops a study, finished runs are kept, and the results are marked incomplete.

mod describe;
mod engine;
mod error;
mod hosts;
mod indexes;
mod jobs;
mod made;
mod notes;
mod recording;
mod settings;
mod table;
mod transfer;
mod turns;
mod wait;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use brunt_block::Backend;
use brunt_block::backends::join::JoinedBackend;
use brunt_core::{Clock, Histogram, Nanos};
use brunt_lab::link::Settings as LinkSettings;
use brunt_load::decisions::{self, RingChoices};
use brunt_load::load::{Finished, LoadTarget, RunOrder};
use brunt_load::{LoadError, Recorder};
use brunt_result::choice::RingChoice;
use brunt_result::{Interval, Outcome, RequestRecord, Stopped};

use crate::experiment::{Experiment, Plan, Point, PrecisionGoal};
use crate::hooks::{HookError, RunHook, RunHooks};
use crate::observe::{Event, Hub, JobEvent, RunInfo};
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
use made::{Made, heavier};
use recording::slow_record;

pub use describe::describe;
pub use error::StudyError;
#[cfg(test)]
pub(crate) use notes::target_gone;
#[cfg(test)]
pub(crate) use table::few_runs;
pub use table::table;
pub use turns::{ASK, GO, StudyTurns};
pub use wait::WaitError;

/// A study in progress.
pub struct Study<'a> {
    plan: Plan,
    seed: u64,
    precision: Option<PrecisionGoal>,
    required: Vec<Requirement>,
    /// For each point, the components whose failures its runs show; `None` if there are none.
    systems: Vec<Option<FailingSystem>>,
    /// Percentiles to keep for each run and point.
    percentiles: Vec<Percentile>,
    targets: BTreeMap<String, Arc<dyn Backend>>,
    /// For each point, what its load reports in addition to figures.
    notes: Vec<Vec<String>>,
    folder: &'a Path,
    summary: Summary,
    /// Histograms over complete runs, by point: response and service times.
    merged: Vec<(Histogram, Histogram)>,
    hub: Arc<Hub>,
    hooks: Vec<Box<dyn RunHook>>,
    /// Whether the experiment continues without lost hosts.
    goes_on: bool,
    /// Repetition and phase of the current run, if there are phases.
    entered: Option<(usize, usize)>,
    /// Hosts or recorded requests that are missing, as text for the first run that lacks any.
    lacking: Option<String>,
    /// Set if the runs take turns with those of other experiments.
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

/// The number of the next run, and the total number of runs.
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
        self.hub.failure().is_some() || self.hooks.iter().any(|hook| hook.has_failed())
    }
}

impl<'a> Study<'a> {
    /// Creates a study of an experiment with these open targets, by the names of their devices
    /// ([`Point::device_of`]), and with its hooks and observers. The summary goes to `folder`, which must exist.
    pub fn new(
        experiment: Experiment,
        targets: BTreeMap<String, Arc<dyn Backend>>,
        version: &str,
        folder: &'a Path,
        company: RunHooks,
    ) -> Study<'a> {
        let plan = experiment.plan();
        Study::of_plan(plan, experiment, targets, version, folder, company)
    }

    /// Creates a study with an existing plan, whose loads keep what they have read of traces, and whose points may
    /// differ from the experiment's own.
    pub fn of_plan(
        plan: Plan,
        experiment: Experiment,
        targets: BTreeMap<String, Arc<dyn Backend>>,
        version: &str,
        folder: &'a Path,
        company: RunHooks,
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
            waits: Vec::new(),
            label: None,
        };
        let (hub, hooks) = (Hub::new(company.observers), company.hooks);
        let (seed, precision) = (experiment.seed, experiment.precision_goal());
        let goes_on = experiment.continues_without_hosts();
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

    /// Records this label in the results.
    pub fn labelled(mut self, label: Option<String>) -> Study<'a> {
        self.summary.label = label;
        self
    }

    /// Makes the study wait for this experiment's turn before each run.
    pub fn taking_turns(mut self, turns: Option<StudyTurns>) -> Study<'a> {
        self.summary.interleaved = turns.as_ref().map(|turns| turns.with.clone());
        self.turns = turns;
        self
    }

    /// Executes all runs, until `stop` is set.
    ///
    /// # Errors
    /// Returns why the study ended early; the summary on disk says so too.
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
        // The last event may make observers fail, when they write the remaining data, or may update an earlier
        // failure with its consequences.
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

    /// Opens the resources shared by each point's runs.
    fn open_loads(&mut self, stop: &AtomicBool) -> Result<(), StudyError> {
        for (index, point) in self.plan.points.iter().enumerate() {
            if point.part_of.is_some() {
                // The group itself opens the loads of its jobs.
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

    /// Facts about the devices of a point whose options are swept, which differ from point to point.
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
    /// The targets of the load cannot be driven as one device.
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

    /// Executes the runs in order, and then rounds of the points that are not precise enough yet. If it ends early
    /// without an error, the reason is in the summary's `trouble`.
    fn runs(&mut self, log: &mut RunLog, stop: &AtomicBool) -> Result<(), StudyError> {
        let planned = std::mem::take(&mut self.plan.runs);
        // Each of several jobs has a run number, and so has their group.
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
            // Shuffled like the earlier rounds, so that drift affects all points equally.
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

    /// If the run is the first of its phase in its repetition, waits for the phase's condition. Returns `false` if
    /// `stop` was set first.
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
        let Some((wait, met)) = wait::before_phase(entry, repetition, stop) else {
            return Ok(true);
        };
        let phase = wait.phase.clone();
        self.summary.waits.push(wait);
        let met = met.map_err(|source| StudyError::Phase { phase, source })?;
        if !met {
            self.summary.trouble = Some("interrupted".into());
        }
        Ok(met)
    }

    /// Executes the next run: a repetition of a point. Returns `false` if a problem ends the experiment.
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
        let info = Arc::new(self.run_info(numbers, (index, repetition)));
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
            self.note_early_end(&info.label, &run, &outcome);
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
        self.record_jobs(index, &info, jobs);
        log.add(ended, &mut self.summary.points)?;
        Ok(self.summary.trouble.is_none())
    }

    /// Records why a run ended before it was complete, which ends the experiment unless it continues without lost
    /// hosts.
    fn note_early_end(&mut self, label: &str, run: &RunSummary, outcome: &Outcome) {
        // Only if the target is gone did the first error end the run; other errors may be due to a fault.
        let gone = run.stopped == Stopped::DeviceGone;
        let lost = hosts::lost(run).map(|lost| format!("{label}: {lost}"));
        let trouble = self.hub.failure().or_else(|| lost.clone());
        let trouble = trouble.unwrap_or_else(|| match &run.first_error {
            Some(error) if gone => {
                notes::target_gone(label, error, outcome.end.since(outcome.start))
            }
            _ => "interrupted".into(),
        });
        // Runs that lost a host are reported at the end in the summary's `trouble`, but don't end the experiment.
        match self.goes_on && run.stopped == Stopped::HostLost && self.hub.failure().is_none() {
            true => self.lacking = self.lacking.take().or(lost),
            false => self.summary.trouble = Some(trouble),
        }
    }

    /// Records the runs of simultaneous jobs as runs of their points, which follow the group's point.
    fn record_jobs(&mut self, index: usize, all: &RunInfo, jobs: Vec<(Outcome, RunSummary)>) {
        for (job, (outcome, run)) in jobs.into_iter().enumerate() {
            let point = index + 1 + job;
            let info = jobs::job_info(all, job, &self.plan.points[point].label);
            let (order, figures) = (info.order, Arc::new(outcome.figures.clone()));
            let ends = JobEvent::RunEnds(Arc::new(info), Arc::new(run.clone()), figures);
            self.hub.tell(&Event::Job(order, ends));
            self.add_up(point, &outcome);
            self.summary.points[point].runs.push(run);
            self.conclude(point);
        }
    }

    /// What observers learn when a run begins.
    fn run_info(&self, numbers: &Numbers, (index, repetition): (usize, usize)) -> RunInfo {
        RunInfo {
            order: numbers.next as u32,
            runs: numbers.all as u32,
            point: index as u32,
            label: self.plan.points[index].label.clone(),
            repetition: repetition as u32,
            // Every point gets the same requests in a repetition, so only the compared settings differ.
            seed: self.seed.wrapping_add(repetition as u64),
            wall: SystemTime::now(),
            ready: Clock::Monotonic.now(),
        }
    }

    /// Adds a complete run to the histograms of its point.
    fn add_up(&mut self, point: usize, outcome: &Outcome) {
        if outcome.is_complete() {
            self.merged[point].0.merge(&outcome.figures.response());
            self.merged[point].1.merge(&outcome.figures.service());
        }
    }

    /// Measures which engine a point should use and how its rings should work, if its load leaves that open and it
    /// has not been measured yet. Returns `false` if `stop` was set in the meantime.
    fn is_settled(&mut self, index: usize, stop: &AtomicBool) -> Result<bool, LoadError> {
        let point = &self.plan.points[index];
        let is_first = self.summary.points[index].runs.is_empty();
        if !is_first || !decisions::is_measured(&point.load.info()) {
            return Ok(true);
        }
        let on = self.place(index)?;
        let Some(RingChoices { engine, ring }) =
            decisions::settle(&*point.load, &on, self.seed, stop)?
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
        // A hook whose `end` failed may still have observations of the previous run, so it adds nothing to this run's
        // summary.
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
            (None, None) => unreachable!("a run without an error has a record"),
        }
    }

    /// Executes the run itself. The depth is searched here, because hooks have already set the links as its point
    /// defines them.
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
        let Finished {
            page_cache,
            replay,
            troubles,
            mut hosts,
            jobs: finished,
            ..
        } = measured.finished;
        let mut run = RunSummary {
            steady: measured.steady,
            trial: measured.trial,
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
            run.doubts.extend(notes::doubts(run));
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
        point.notes.extend(notes::page_cache_note(&complete));
        point.notes.extend(notes::trouble_note(&complete));
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

/// The summary of a point without runs.
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

/// The line rate of each rate-limited link, in bits per second and in the slower direction, because the direction of
/// reads depends on where the worker is.
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
mod tests;
