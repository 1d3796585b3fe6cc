//! The replay of NFS calls as a load, so that an experiment can repeat it, inject faults and compare targets. Before
//! each run, the files that the trace needs are created in a separate directory, which is removed afterwards.
//!
//! The rule: a run never sees the files of another run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use brunt_block::{Backend, Health};
use brunt_core::Nanos;
use brunt_core::units::counted;
use brunt_nfs::connect::random_xid;
use brunt_result::choice::{EngineChoice, RingChoice, RingMode};
use brunt_result::replay::ReplayFidelity;
use brunt_result::{OpKind, Outcome};

use super::settings::NfsReplaySettings;
use super::{NfsPreparedTree, NfsReplay, NfsReplayError, NfsReplayOptions, folder_of};
use crate::block::engine;
use crate::block::workers::{WorkerJob, Workers};
use crate::block::workload::Workload;
use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands, LoadCommand, LoadCommandError};
use crate::kind::{LoadForm, LoadKind, SharedInputs};
use crate::load::{
    EngineNeed, Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, Pace, PreparedLoad,
    RunOrder, RunningLoad, WorkloadError,
};
use crate::replay::settings::{ReplaySettings, ReplayTiming};

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "nfs-replay";

/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "the NFS calls of a captured trace with their original timing",
    example: "trace = \"captured\"\nnfs_replay = { sparse = true }\nqueue_depth = 64",
    permit: None,
    form: LoadForm::Workload,
    read: |text, context| {
        let workload: Workload = toml::from_str(text).map_err(Box::new)?;
        workload.check()?;
        if workload.nfs_replay.is_none() {
            let what = "this load replays NFS calls; write {}, for example".into();
            return Err(WorkloadError {
                key: "nfs_replay",
                what,
            }
            .into());
        }
        let load = NfsReplayLoad::new(workload).sharing(&context.inputs);
        Ok(vec![(String::new(), Arc::new(load))])
    },
};

/// A trace that is read once.
type TraceCell = Arc<OnceLock<Result<Arc<NfsReplay>, WorkloadError>>>;

/// The replay of a trace's NFS calls as a load.
#[derive(Debug)]
pub struct NfsReplayLoad {
    workload: Workload,
    settings: NfsReplaySettings,
    timed: ReplaySettings,
    trace: TraceCell,
}

impl From<NfsReplayError> for LoadError {
    fn from(error: NfsReplayError) -> LoadError {
        match error {
            NfsReplayError::Stopped => LoadError::Interrupted,
            error => LoadError::Own {
                kind: KIND,
                source: Box::new(error),
            },
        }
    }
}

fn device(on: &LoadTarget) -> Result<&Arc<dyn Backend>, LoadError> {
    on.device.as_ref().ok_or(LoadError::NoDevice { kind: KIND })
}

impl NfsReplayLoad {
    /// Creates the load of a workload that replays NFS calls.
    ///
    /// # Panics
    /// Panics if the workload doesn't replay NFS calls.
    pub fn new(workload: Workload) -> NfsReplayLoad {
        let settings = workload.nfs_replay.clone();
        NfsReplayLoad {
            settings: settings.expect("a workload that replays NFS calls"),
            timed: workload.replay().expect("a workload with a trace"),
            workload,
            trace: TraceCell::default(),
        }
    }

    /// Returns the same load, reading the trace only once for all loads that replay it.
    #[must_use]
    pub fn sharing(mut self, inputs: &SharedInputs) -> NfsReplayLoad {
        let key = (KIND, self.timed.trace.clone());
        self.trace = inputs.share(key, || Arc::clone(&self.trace));
        self
    }

    fn replay(&self) -> Result<Arc<NfsReplay>, WorkloadError> {
        let read = || {
            let read = NfsReplay::read(&self.timed.trace);
            read.map(Arc::new).map_err(|error| WorkloadError {
                key: "trace",
                what: error.to_string(),
            })
        };
        self.trace.get_or_init(read).clone()
    }

    /// Returns the trace, if it has been read.
    fn known(&self) -> Option<&Arc<NfsReplay>> {
        self.trace.get()?.as_ref().ok()
    }

    fn rings(&self, order: &RunOrder) -> Result<(EngineChoice, RingMode), WorkloadError> {
        let ring = match order.ring.unwrap_or(self.workload.ring) {
            RingMode::Auto => RingMode::Interrupt,
            stated => stated,
        };
        let setting = order.engine.or(self.workload.engine);
        Ok((engine::settle(setting, ring)?, ring))
    }

    /// Returns the options of one run. Each run replays into its own tree.
    fn options(&self, seed: u64, depth: u32) -> NfsReplayOptions {
        NfsReplayOptions {
            timing: self.timed.timing,
            speed: self.timed.speed,
            spin: self.timed.spin,
            depth,
            callers: self.settings.callers,
            sparse: self.settings.sparse,
            into: Some(format!(
                "brunt-replay-{:08x}{:08x}",
                random_xid().0,
                random_xid().0
            )),
            seed,
        }
    }

    fn trace_name(&self) -> String {
        let path: &Path = &self.timed.trace;
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into()
    }
}

impl Load for NfsReplayLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        let Workload {
            queue_depth,
            ramp_up,
            interval,
            stop,
            engine,
            record_requests,
            ..
        } = &self.workload;
        let known = self.known();
        let kinds = || vec![OpKind::Read, OpKind::Write];
        LoadInfo {
            kinds: known.map_or_else(kinds, |replay| replay.kinds()),
            queue_depth: *queue_depth,
            pace: match self.timed.timing {
                ReplayTiming::Trace => Pace::Open {
                    rate: known.map_or(0.0, |replay| replay.rate() * self.timed.speed),
                },
                ReplayTiming::Depth | ReplayTiming::Dependency => Pace::Closed,
            },
            ramp_up: ramp_up.map_or(Duration::ZERO, |ramp_up| ramp_up.time.0),
            interval: interval.0,
            steady: stop.steady.map(|steady| steady.goal()),
            // The replay only writes to files that it created itself.
            writes: false,
            records_requests: *record_requests,
            engine: EngineNeed::of(*engine),
            ..LoadInfo::default()
        }
    }

    fn describe(&self) -> String {
        let when = match (self.timed.timing, self.timed.speed) {
            (ReplayTiming::Trace, 1.0) => "with their original timing".to_string(),
            (ReplayTiming::Trace, speed) => format!("at {speed} times their speed"),
            (ReplayTiming::Depth, _) => format!(
                "as fast as possible, {} outstanding",
                self.workload.queue_depth
            ),
            (ReplayTiming::Dependency, speed) => format!("by dependency, speed {speed}"),
        };
        format!("NFS calls of {} {when}", self.trace_name())
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("workload", self.workload.as_json())]
    }

    fn input(&self) -> Option<&'static str> {
        Some("traces")
    }

    fn check_target(
        &self,
        _info: &brunt_block::DeviceInfo,
        _target: &str,
    ) -> Result<(), WorkloadError> {
        self.replay().map(drop)
    }

    fn open(&self, on: &LoadTarget, _stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        self.rings(&RunOrder::alone(0))?;
        let replay = self.replay()?;
        let folder = folder_of(device(on)?.as_ref())?;
        if folder.info().read_only {
            return Err(WorkloadError {
                key: "nfs_replay",
                what: format!(
                    "{} is opened read-only, but a replay creates files there",
                    folder.name()
                ),
            }
            .into());
        }
        let mut notes = vec![format!(
            "trace: {} of NFS in {:.3} s",
            counted(replay.calls() as usize, "call"),
            replay.span_ns() as f64 / 1e9
        )];
        let left_out = replay.left_out();
        notes.extend(left_out.map(|(why, count)| format!("left out: {count} {why}")));
        Ok(notes)
    }

    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let replay = self.replay()?;
        let (engine, ring) = self.rings(order)?;
        let workload = Workload {
            engine: Some(engine.engine.into()),
            ring,
            queue_depth: order.depth.unwrap_or(self.workload.queue_depth),
            ..self.workload.clone()
        };
        let backend = Arc::clone(device(on)?);
        let shared = Arc::new(RunShared {
            replay,
            options: self.options(order.seed, workload.queue_depth),
            backend,
            tree: Mutex::default(),
            fidelity: Mutex::default(),
        });
        let folder = folder_of(shared.backend.as_ref())?;
        let is_stopped = || stop.load(Ordering::Relaxed);
        // If this run can't be prepared, dropping it removes what has been created.
        let mut running = RunningCalls {
            workers: None,
            removes: true,
            shared: Arc::clone(&shared),
        };
        let tree = shared
            .replay
            .prepare(folder, &shared.options, &is_stopped)?;
        shared.replay.begin(folder, &tree)?;
        *lock(&shared.tree) = Some(tree);
        let prepared = PreparedLoad {
            engine: Some(engine),
            ring: Some(RingChoice::stated(ring)),
            ..PreparedLoad::alone(1, workload.queue_depth)
        };
        let job = CallJob {
            workload,
            shared: Arc::clone(&shared),
            commands: Commands::new(),
        };
        running.workers = Some(Workers::spawn(job, &inbox)?);
        running.removes = !self.settings.keep;
        Ok((prepared, Box::new(running)))
    }
}

/// State shared by the worker of a run and the code that waits for the run.
struct RunShared {
    replay: Arc<NfsReplay>,
    backend: Arc<dyn Backend>,
    options: NfsReplayOptions,
    tree: Mutex<Option<NfsPreparedTree>>,
    fidelity: Mutex<Option<ReplayFidelity>>,
}

struct CallJob {
    workload: Workload,
    shared: Arc<RunShared>,
    commands: Commands,
}

impl WorkerJob for CallJob {
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
        let shared = &self.shared;
        let folder = folder_of(shared.backend.as_ref())?;
        let tree = lock(&shared.tree).take().expect("a run has a tree");
        let mut post = Post::new(worker, inbox);
        let start = || {
            inbox.send(WorkerMessage::Ready);
            // There is no start time: the run was abandoned.
            started.recv().ok()
        };
        let run = (&self.workload, &self.commands);
        let (options, recorder) = (&shared.options, &mut post);
        let replayed = shared
            .replay
            .replay(folder, tree, options, run, start, recorder)?;
        *lock(&shared.fidelity) = Some(replayed.fidelity.in_short(replayed.unsent));
        let outcome = Outcome {
            recording_wait: post.waited(),
            ..replayed.outcome
        };
        Ok((outcome, replayed.health))
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A replay in progress.
struct RunningCalls {
    /// `None` once the workers have ended.
    workers: Option<Workers<CallJob>>,
    /// Whether the replay's files should be removed.
    removes: bool,
    shared: Arc<RunShared>,
}

impl RunningCalls {
    /// Removes the files, after the last call.
    fn remove(&mut self) -> Option<String> {
        self.workers = None;
        if !std::mem::take(&mut self.removes) {
            return None;
        }
        let shared = &self.shared;
        let folder = folder_of(shared.backend.as_ref()).ok()?;
        let removed = shared.replay.remove(folder, &shared.options);
        removed.err().map(|error| error.to_string())
    }
}

impl RunningLoad for RunningCalls {
    fn start(&mut self, at: Nanos) {
        if let Some(workers) = &mut self.workers {
            workers.start(at);
        }
    }

    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        match &mut self.workers {
            Some(workers) => workers.command(command),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Finished {
        let workers = self.workers.as_mut();
        let mut troubles = workers.map_or(Vec::new(), Workers::troubles);
        troubles.extend(self.remove());
        Finished {
            replay: lock(&self.shared.fidelity).take().map(Box::new),
            troubles,
            ..Finished::default()
        }
    }
}

impl Drop for RunningCalls {
    fn drop(&mut self) {
        // Abandoned: no caller is waiting for the result.
        let _ = self.remove();
    }
}
