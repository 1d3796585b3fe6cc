//! The replay of a block trace as a load: resends recorded requests to another device, and reports how faithful the
//! replay was. An experiment replays a trace if its workload has a `trace`; `brunt replay` is the short form.
//!
//! Start reading at [`settings`], the user's description. `survey` reads the trace once before the start, so that a
//! trace that doesn't fit is rejected before anything is sent. For each run, `feeder` reads the trace again, ahead of
//! the workers, using `select` to choose rows and `place` to map them. `stream` gives due requests to the worker
//! whose `turn` it is, with the help of `window`, which tracks the requests in flight. `meter` measures, and
//! `fidelity` judges at the end.
//!
//! The rule: requests are sent in the order of the trace, once each, and memory doesn't grow with the trace.

mod digest;
mod feeder;
mod fidelity;
mod hosted;
mod keys;
mod meter;
mod part;
mod place;
mod routes;
mod select;
pub mod settings;
mod share;
pub(crate) mod spin;
mod stream;
mod survey;
mod turn;
mod window;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use brunt_block::{Backend, DeviceInfo, Health, RingConfig};
use brunt_core::units::{counted, format_grouped};
use brunt_core::{Nanos, Size};
use brunt_result::choice::{EngineChoice, RingChoice, RingMode};
use brunt_result::replay::ReplayFidelity;
use brunt_result::{OpKind, Outcome};

use crate::block::blocks::Blocks;
use crate::block::engine;
use crate::block::generator::Area;
use crate::block::journal_store::RunMark;
use crate::block::sizes::BlockSizes;
use crate::block::synthetic::WorkerId;
use crate::block::worker::Worker;
use crate::block::workers::{WorkerJob, Workers, open_device, ring_of};
use crate::block::workload::{StopCondition, Workload};
use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands, LoadCommand, LoadCommandError};
use crate::hosted::HostedLoad;
use crate::kind::{LoadForm, LoadKind, SharedInputs};
use crate::load::{
    EngineNeed, Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, Pace, PreparedLoad,
    RunOrder, RunPart, RunningLoad, WorkloadError,
};
use feeder::{Feed, FeederPlan};
use fidelity::ReplayPlan;
use meter::Meter;
use part::ReplayPart;
use routes::{Routes, rooms};
use settings::{Conflicts, ReplayContents, ReplaySettings, ReplayTiming};
use share::Share;
use spin::SpinTime;
use stream::Stream;
use survey::{Survey, SurveyCell};
use turn::Turns;

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "replay";

/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "the requests of a block trace with their original timing",
    example: "trace = \"requests.vscsi\"\nspeed = 2.0\nqueue_depth = 64",
    permit: None,
    read: |text, context| {
        let workload: Workload = toml::from_str(text).map_err(Box::new)?;
        workload.check()?;
        if workload.trace.is_none() {
            let what = "a replay needs the path of a trace".into();
            return Err(WorkloadError { key: "trace", what }.into());
        }
        if workload.nfs_replay.is_some() {
            let what = "to replay NFS calls, use a load of the kind `nfs-replay`".into();
            return Err(WorkloadError {
                key: "nfs_replay",
                what,
            }
            .into());
        }
        let load = ReplayLoad::new(workload, &context.targets).sharing(&context.inputs);
        Ok(vec![(String::new(), Arc::new(load))])
    },
    form: LoadForm::Workload,
};

/// Maximum buffer memory of all workers combined; if requests are long, the queue depth is reduced to fit.
const BUFFER_BYTES_MAX: u64 = 40 << 20;
/// Longer requests are sent in pieces.
const PIECE_BYTES_MAX: u64 = 4 << 20;

/// The replay of a trace as a load.
#[derive(Clone, Debug)]
pub struct ReplayLoad {
    workload: Workload,
    settings: ReplaySettings,
    /// The devices of the trace that are replayed here, and their targets.
    routes: Routes,
    survey: SurveyCell,
}

impl ReplayLoad {
    /// Creates the load of a workload with a trace. `targets` are the names of its targets, in the order of their
    /// parts ([`LoadTarget::parts`]); they determine which devices of the trace are replayed. If empty, all devices
    /// named in the settings are replayed.
    ///
    /// # Panics
    /// Panics if the workload has no trace.
    pub fn new(workload: Workload, targets: &[String]) -> ReplayLoad {
        let settings = workload.replay().expect("a workload with a trace");
        let routes = Routes::new(&settings, targets);
        ReplayLoad {
            workload,
            settings,
            routes,
            survey: SurveyCell::default(),
        }
    }

    /// Returns the same load, sharing the survey with other loads of the same part of the same trace, so that the trace
    /// is read only once for all points of a sweep.
    #[must_use]
    pub fn sharing(mut self, inputs: &SharedInputs) -> ReplayLoad {
        let ReplaySettings {
            trace,
            format,
            reading,
            map,
            from,
            length,
            ..
        } = self.settings.clone();
        let part = (
            trace,
            format,
            reading,
            map,
            from,
            length,
            self.routes.clone(),
        );
        self.survey = inputs.share(part, || Arc::clone(&self.survey));
        self
    }

    /// Returns the workload, which determines how requests are sent.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Reads the trace, unless that has been done already, and checks it against a device with these parts for the
    /// targets.
    ///
    /// # Errors
    /// The trace can't be read or doesn't fit; the error names the key that has to change.
    ///
    /// # Panics
    /// Panics if the numbers of parts and of targets differ, which is a bug.
    pub fn check_trace(
        &self,
        info: &DeviceInfo,
        parts: &[Range<u64>],
    ) -> Result<(), WorkloadError> {
        let survey = self.survey()?;
        let parts = rooms(parts, info.size_bytes);
        assert_eq!(parts.len(), self.routes.count(), "each target has its part");
        survey.fits(&self.settings, info, &self.routes, &parts)
    }

    fn survey(&self) -> Result<Arc<Survey>, WorkloadError> {
        let make = || Survey::make(&self.settings, &self.routes).map(Arc::new);
        self.survey.get_or_init(make).clone()
    }

    /// Returns the survey if it has been completed successfully.
    fn known(&self) -> Option<&Arc<Survey>> {
        self.survey.get()?.as_ref().ok()
    }

    /// Returns the engine and mode of the load's rings. These are not measured, because trials would use different
    /// requests.
    fn rings(&self, order: &RunOrder) -> Result<(EngineChoice, RingMode), WorkloadError> {
        let ring = match order.ring.unwrap_or(self.workload.ring) {
            RingMode::Auto => RingMode::Interrupt,
            stated => stated,
        };
        let setting = order.engine.or(self.workload.engine);
        Ok((engine::settle(setting, ring)?, ring))
    }

    /// Returns the settings, adjusted for verification.
    fn settings_for(&self, workload: &Workload) -> ReplaySettings {
        let mut settings = self.settings.clone();
        if workload.verify.is_some() {
            // A block's content is only known if requests on it don't overtake each other.
            settings.conflicts = Conflicts::HoldBack;
            // Blocks contain verification data in place of the trace's contents.
            settings.contents = ReplayContents::Data;
        }
        settings
    }

    /// Returns how to send the requests of this trace to this device, in the form of a workload.
    fn engine(&self, survey: &Survey, info: &DeviceInfo, order: &RunOrder) -> Workload {
        let mut workload = self.workload.clone();
        let block = u64::from(info.block_bytes).max(512);
        // A request may start and end within a block.
        let longest = (survey.len_max + block).next_multiple_of(block).max(block);
        let piece = longest
            .min(PIECE_BYTES_MAX)
            .min(u64::from(info.transfer_bytes_max) / block * block);
        workload.blocks = BlockSizes::only(Size(piece.max(block)));
        workload.align = Some(Size(block));
        // This workload only determines which kinds of requests there are.
        workload.read = if survey.changes_data() || survey.flushes > 0 {
            0.5
        } else {
            1.0
        };
        workload.trim = if survey.unmaps > 0 { 0.25 } else { 0.0 };
        workload.flush_every = u64::from(survey.flushes > 0);
        workload.queue_depth = order.depth.unwrap_or(workload.queue_depth);
        let all = BUFFER_BYTES_MAX / piece.max(block) / u64::from(workload.workers);
        workload.queue_depth = workload
            .queue_depth
            .min(u32::try_from(all).unwrap_or(u32::MAX).max(1));
        workload.reap_batch = workload.reap_batch.min(workload.queue_depth);
        workload.separate_journals(order.order);
        if let Some(trial) = order.trial {
            workload.stop = StopCondition {
                time: Some(brunt_core::Span(trial.time)),
                ..StopCondition::default()
            };
            (workload.verify, workload.record_requests) = (None, false);
        }
        workload
    }

    /// Returns the share of requests that is sent by this host, among the workers of all hosts.
    ///
    /// # Errors
    /// The replay can't be shared.
    fn share(&self, part: Option<RunPart>) -> Result<Share, WorkloadError> {
        let workers = self.workload.workers.max(1);
        let Some(RunPart {
            first_worker,
            workers_of_all,
            ..
        }) = part
        else {
            return Ok(Share::ALL);
        };
        let share = Share {
            index: first_worker / workers,
            of: (workers_of_all / workers).max(1),
        };
        if share.of > 1 {
            self.workload.check_shared_replay()?;
        }
        Ok(share)
    }

    fn notes(&self, survey: &Survey, engine: &Workload, info: &DeviceInfo) -> Vec<String> {
        let seconds = survey.span_ns as f64 / 1e9;
        let count = counted(survey.requests as usize, "request");
        let mut notes = info.notes.clone();
        notes.push(format!(
            "trace: {count} in {seconds:.3} s ({}); {}",
            survey.format,
            self.settings.map.effect()
        ));
        if engine.queue_depth < self.workload.queue_depth {
            notes.push(format!(
                "queue depth {} instead of {}: buffers for requests of {} take at most {}",
                engine.queue_depth,
                self.workload.queue_depth,
                Size(engine.block_bytes_max()),
                Size(BUFFER_BYTES_MAX)
            ));
        }
        if survey.contents > 0 && self.settings.contents == ReplayContents::Trace {
            notes.push(if engine.verify.is_some() {
                let count = format_grouped(survey.contents as f64);
                format!(
                    "verified writes carry their addresses, not the {count} contents that the trace identifies"
                )
            } else {
                let writes = counted(survey.contents as usize, "write");
                format!("contents of {writes} follow the trace's hashes")
            });
        }
        let row = |(why, rows): (&String, &u64)| {
            format!("trace: {} {why}", counted(*rows as usize, "row"))
        };
        notes.extend(survey.rows.iter().map(row));
        notes
    }
}

fn device(on: &LoadTarget) -> Result<&Arc<dyn Backend>, LoadError> {
    on.device.as_ref().ok_or(LoadError::NoDevice { kind: KIND })
}

impl Load for ReplayLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        let Workload {
            workers,
            queue_depth,
            ramp_up,
            interval,
            stop,
            engine,
            ring,
            record_requests,
            ..
        } = &self.workload;
        let known = self.known();
        let rate = |survey: &Survey| {
            survey.requests as f64 / (survey.span_ns.max(1) as f64 / 1e9) * self.settings.speed
        };
        LoadInfo {
            kinds: known.map_or_else(
                || vec![OpKind::Read, OpKind::Write],
                |survey| survey.kinds(),
            ),
            workers: *workers,
            queue_depth: *queue_depth,
            pace: match self.settings.timing {
                ReplayTiming::Trace => Pace::Open {
                    rate: known.map_or(0.0, |survey| rate(survey)),
                },
                ReplayTiming::Depth | ReplayTiming::Dependency => Pace::Closed,
            },
            ramp_up: ramp_up.map_or(Duration::ZERO, |ramp_up| ramp_up.time.0),
            interval: interval.0,
            steady: stop.steady.map(|steady| steady.goal()),
            // Until the trace has been read, assume that it writes.
            writes: known.is_none_or(|survey| survey.changes_data()),
            records_requests: *record_requests,
            engine: EngineNeed::of(*engine),
            ring: match ring {
                RingMode::Auto => RingMode::Interrupt,
                stated => *stated,
            },
            ..LoadInfo::default()
        }
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("workload", self.workload.as_json())]
    }

    fn input(&self) -> Option<&'static str> {
        Some("traces")
    }

    /// Checks the requests for one of its targets against that target's own device.
    fn check_target(&self, info: &DeviceInfo, target: &str) -> Result<(), WorkloadError> {
        let survey = self.survey()?;
        let number = self.routes.number(target).unwrap_or(0);
        survey.fits_target(
            self.settings.map,
            info,
            &self.routes,
            (number, target, info.size_bytes),
        )?;
        survey.can(info, survey.changes_target(number))
    }

    fn changes_target(&self, target: &str) -> Result<bool, WorkloadError> {
        let survey = self.survey()?;
        Ok(survey.changes_target(self.routes.number(target).unwrap_or(0)))
    }

    fn describe(&self) -> String {
        let ReplaySettings {
            trace,
            speed,
            timing,
            map,
            ..
        } = &self.settings;
        let name = trace.file_name().map_or_else(
            || trace.display().to_string(),
            |name| name.to_string_lossy().into(),
        );
        let when = match timing {
            ReplayTiming::Trace if *speed == 1.0 => "with its original timing".to_string(),
            ReplayTiming::Trace => format!("at {speed} times its speed"),
            ReplayTiming::Depth => format!(
                "as fast as possible, {} outstanding",
                self.workload.queue_depth
            ),
            ReplayTiming::Dependency if *speed == 1.0 => "by dependency".to_string(),
            ReplayTiming::Dependency => format!("by dependency, at {speed} times its speed"),
        };
        let workers = self.workload.workers;
        let workers = if workers > 1 {
            format!(", {workers} workers")
        } else {
            String::new()
        };
        format!("replay of {name} {when}, addresses {}{workers}", map.name())
    }

    fn open(&self, on: &LoadTarget, _stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        let info = device(on)?.info();
        self.check_trace(info, &on.parts)?;
        let survey = self.survey()?;
        self.rings(&RunOrder::alone(0))?;
        let engine = self.engine(&survey, info, &RunOrder::alone(0));
        Ok(self.notes(&survey, &engine, info))
    }

    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        _stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let backend = Arc::clone(device(on)?);
        let info = backend.info();
        self.check_trace(info, &on.parts)?;
        let survey = self.survey()?;
        let mut workload = self.engine(&survey, info, order);
        let (choice, ring) = self.rings(order)?;
        (workload.engine, workload.ring) = (Some(choice.engine.into()), ring);
        let settings = self.settings_for(&workload);
        let part = order
            .part
            .unwrap_or_else(|| RunPart::whole(workload.workers));
        let share = self.share(order.part)?;
        let parts = rooms(&on.parts, info.size_bytes);
        let begins = parts.iter().map(|part| part.start).collect();
        let in_flight = workload.queue_depth as usize * workload.workers as usize;
        let plan = FeederPlan {
            settings: settings.clone(),
            routes: self.routes.clone(),
            share,
            survey: Arc::clone(&survey),
            parts,
            block: u64::from(info.block_bytes),
            piece_max: workload.block_bytes_max(),
        };
        let feed = Feed::start(plan).map_err(|source| LoadError::Io { worker: 0, source })?;
        let has_responses = survey.responses > 0;
        let meter = Meter::new(settings.timing, has_responses, begins, survey.listed.len());
        let stream = Stream::new(feed, &settings, has_responses, in_flight, meter);
        let turns = Turns::new(stream, workload.workers, workload.queue_depth);
        let prepared = PreparedLoad {
            engine: Some(choice),
            ring: Some(RingChoice::stated(ring)),
            ..PreparedLoad::alone(workload.workers, workload.queue_depth)
        };
        let (seed, run, spin) = (order.seed, order.mark(), settings.spin.as_nanos() as u64);
        let commands = Commands::new();
        let job = ReplayJob {
            workload,
            backend,
            turns: turns.clone(),
            seed,
            part,
            run,
            spin,
            commands,
        };
        let workers = Workers::spawn(job, &inbox)?;
        let (routes, is_part) = (self.routes.clone(), order.part.is_some());
        Ok((
            prepared,
            Box::new(RunningReplay {
                workers,
                turns,
                settings,
                routes,
                survey,
                is_part,
            }),
        ))
    }

    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        Some(self)
    }
}

/// State shared by all workers of a run.
struct ReplayJob {
    workload: Workload,
    backend: Arc<dyn Backend>,
    turns: Turns,
    seed: u64,
    part: RunPart,
    run: RunMark,
    /// In nanoseconds.
    spin: u64,
    commands: Commands,
}

impl WorkerJob for ReplayJob {
    fn workers(&self) -> u32 {
        self.workload.workers
    }

    fn command_limits(&self) -> CommandLimits {
        self.workload.command_limits()
    }

    fn commands(&self) -> &Commands {
        &self.commands
    }

    fn work(
        &self,
        worker: u32,
        inbox: &MessageSender,
        started: &Receiver<Nanos>,
    ) -> Result<(Outcome, Health), LoadError> {
        let io = |source| LoadError::Io { worker, source };
        let (workload, info) = (&self.workload, self.backend.info());
        let ring = ring_of(workload, &RingConfig::default()).map_err(io)?;
        let id = WorkerId::of(self.part, worker, self.seed);
        let align = workload.align_bytes();
        let area = Area {
            start: 0,
            len: info.size_bytes / align * align,
            align,
            first: 0,
        };
        let content = Blocks::over(workload, info, area, id, &self.run)?;
        let sequence = self.turns.sequence(workload.queue_depth);
        let ready = Worker::with(sequence, content, workload, id, ring.pool());
        let mut device = open_device(self.backend.as_ref(), &ring, worker, workload.queue_depth)?;
        inbox.send(WorkerMessage::Ready);
        // There is no start time: the run was abandoned.
        let Ok(start) = started.recv() else {
            return Ok((Outcome::interrupted(), device.health()));
        };
        let mut post = Post::new(worker, inbox);
        let mut time = SpinTime {
            ring: &ring,
            spin: self.spin,
        };
        let outcome = ready.run(device.as_mut(), &mut time, start, &self.commands, &mut post);
        let outcome = Outcome {
            recording_wait: post.waited(),
            ..outcome.map_err(io)?
        };
        Ok((outcome, device.health()))
    }
}

/// A replay in progress.
struct RunningReplay {
    workers: Workers<ReplayJob>,
    turns: Turns,
    settings: ReplaySettings,
    routes: Routes,
    survey: Arc<Survey>,
    /// Whether other hosts replay the other parts of the trace.
    is_part: bool,
}

impl RunningLoad for RunningReplay {
    fn start(&mut self, at: Nanos) {
        self.workers.start(at);
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        self.workers.command(command)
    }

    fn finish(mut self: Box<Self>) -> Finished {
        let troubles = self.workers.troubles();
        if self.is_part {
            return Finished {
                replay_part: Some(self.part()),
                troubles,
                ..Finished::default()
            };
        }
        Finished {
            replay: Some(Box::new(self.fidelity())),
            troubles,
            ..Finished::default()
        }
    }
}

impl RunningReplay {
    /// Returns the measurements of this part, to be judged together with the others.
    fn part(&self) -> String {
        let mut stream = self.turns.clone().into_stream();
        let (counts, failure) = stream.finish_feed();
        ReplayPart::text(&stream.meter, &counts, failure.as_ref())
    }

    fn fidelity(&self) -> ReplayFidelity {
        let mut stream = self.turns.clone().into_stream();
        let (counts, failure) = stream.finish_feed();
        let plan = ReplayPlan {
            settings: &self.settings,
            survey: &self.survey,
            routes: &self.routes,
        };
        fidelity::judge(&stream.meter, &plan, &counts, failure.as_ref())
    }
}

#[cfg(test)]
mod tests;
