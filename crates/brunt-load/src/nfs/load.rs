//! Turns a workload of NFS calls into a load. Its workers share nothing but the folder: each has
//! its own part of the tree, its own connections and its own requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_block::{Backend, Health, RingConfig};
use brunt_core::{Nanos, Size};
use brunt_nfs::NfsFolder;
use brunt_nfs::url::NfsVersion;
use brunt_result::Outcome;
use brunt_result::choice::RingChoice;

use super::call::NfsTarget;
use super::op::NfsOp;
use super::requests::{NfsData, NfsSequence};
use super::settings::NfsSettings;
use super::tree::{DEPTH_MAX, NfsTree, NfsTreeError, TreeMaker, most};
use crate::block::BlockLoad;
use crate::block::engine::{self, EnginePreview};
use crate::block::synthetic::WorkerId;
use crate::block::worker::{RingTime, Worker};
use crate::block::workers::{WorkerJob, Workers, ring_of};
use crate::block::workload::Workload;
use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands};
use crate::hosted::HostedLoad;
use crate::kind::{LoadForm, LoadKind};
use crate::load::{
    Load, LoadError, LoadInfo, LoadTarget, MessageSender, PreparedLoad, RunOrder, RunPart,
    RunningLoad, WorkloadError,
};

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "nfs";

/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "calls to an NFS server by a weighted mix, on its own tree",
    example: "nfs = { mix = { getattr = 2, lookup = 1 } }\nstop = { time = \"30s\" }",
    permit: None,
    read: |text, _| {
        let workload: Workload = toml::from_str(text).map_err(Box::new)?;
        workload.check()?;
        if workload.nfs.is_none() {
            let what = "this load needs a mix of NFS calls, such as {}".into();
            return Err(WorkloadError { key: "nfs", what }.into());
        }
        Ok(vec![(String::new(), Arc::new(NfsLoad::new(workload)))])
    },
    form: LoadForm::Workload,
};

/// A workload of NFS calls as a load.
#[derive(Debug)]
pub struct NfsLoad {
    workload: Workload,
    settings: NfsSettings,
    made: Mutex<Option<Made>>,
    /// Number of runs so far; each run uses its own names.
    runs: AtomicU64,
}

/// The tree on the server.
struct Made {
    tree: NfsTree,
    backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Made").field(&self.tree.name).finish()
    }
}

impl From<NfsTreeError> for LoadError {
    fn from(error: NfsTreeError) -> LoadError {
        match error {
            NfsTreeError::Stopped => LoadError::Interrupted,
            error => LoadError::Own {
                kind: KIND,
                source: Box::new(error),
            },
        }
    }
}

/// A target is not a folder of an NFS server.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is not a folder of an NFS server; name one with a '/' at its end: nfs://server/export/folder/"
)]
struct NotAFolder(String);

pub(crate) fn folder(backend: &dyn Backend) -> Result<&NfsFolder, LoadError> {
    let folder = backend.concrete().and_then(|any| any.downcast_ref());
    folder.ok_or_else(|| LoadError::Own {
        kind: KIND,
        source: Box::new(NotAFolder(backend.info().name.clone())),
    })
}

fn device(on: &LoadTarget) -> Result<&Arc<dyn Backend>, LoadError> {
    on.device.as_ref().ok_or(LoadError::NoDevice { kind: KIND })
}

impl NfsLoad {
    /// Creates the load of a workload of NFS calls.
    ///
    /// # Panics
    /// Panics if the workload has no NFS calls.
    pub fn new(workload: Workload) -> NfsLoad {
        let settings = workload.nfs.clone().expect("a workload of NFS calls");
        NfsLoad {
            workload,
            settings,
            made: Mutex::new(None),
            runs: AtomicU64::new(0),
        }
    }

    pub(super) fn workload(&self) -> &Workload {
        &self.workload
    }

    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that READ and WRITE of these sizes are possible.
    fn check_sizes(&self, folder: &NfsFolder) -> Result<(), WorkloadError> {
        let (mix, place) = (&self.settings.mix, folder.place());
        let limits = [
            (mix.read > 0.0, place.read_bytes_max, "reads"),
            (mix.write > 0.0, place.write_bytes_max, "writes"),
        ];
        let longest = self.workload.block_bytes_max();
        for (_, limit, what) in limits.into_iter().filter(|(made, ..)| *made) {
            if longest > u64::from(limit) {
                return Err(WorkloadError {
                    key: "blocks",
                    what: format!(
                        "{} is over {}, the limit for {what} of {}",
                        Size(longest),
                        Size(limit.into()),
                        folder.name()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Checks that LOCK and LOCKU are possible.
    fn check_locks(&self, folder: &NfsFolder) -> Result<(), WorkloadError> {
        let locks = self.settings.makes(NfsOp::Lock);
        if locks && (folder.version() != NfsVersion::V41 || folder.connections() > 1) {
            let name = folder.name();
            return Err(WorkloadError {
                key: "nfs.mix",
                what: format!(
                    "lock and locku need a target with version=4.1 and one connection for each \
                     worker, unlike {name}"
                ),
            });
        }
        Ok(())
    }
}

impl Load for NfsLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        LoadInfo {
            // The load only writes to files that it created itself.
            writes: false,
            ..BlockLoad::new(self.workload.clone()).info()
        }
    }

    fn describe(&self) -> String {
        self.workload.describe(&[])
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("workload", self.workload.as_json())]
    }

    fn open(&self, on: &LoadTarget, stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        engine::preview(self.workload.engine, self.workload.ring)?;
        let backend = device(on)?;
        let folder = folder(backend.as_ref())?;
        if folder.info().read_only {
            let what = format!(
                "{} is opened read-only, but the load creates files there",
                folder.name()
            );
            return Err(WorkloadError { key: "nfs", what }.into());
        }
        self.check_sizes(folder)?;
        self.check_locks(folder)?;
        let mut made = self.made();
        if made.is_none() {
            let is_stopped = || stop.load(Ordering::Relaxed);
            let workers = self.workload.workers;
            *made = Some(Made {
                tree: NfsTree::make(folder, &self.settings, workers, &is_stopped)?,
                backend: Arc::clone(backend),
            });
        }
        let kept = match (self.settings.keep, made.as_ref()) {
            (true, Some(made)) => Some(format!(
                "the load's tree stays on the server: {}{}",
                folder.name(),
                made.tree.name
            )),
            _ => None,
        };
        Ok(kept.into_iter().collect())
    }

    fn prepare(
        &self,
        on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        _stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let mut workload = BlockLoad::new(self.workload.clone()).ordered(order);
        let engine = match engine::preview(workload.engine, workload.ring)? {
            EnginePreview::Settled(choice) => choice,
            EnginePreview::Measured => {
                let what = "with `nfs`, choose io_uring or threads".to_string();
                return Err(WorkloadError {
                    key: "engine",
                    what,
                }
                .into());
            }
        };
        workload.engine = Some(engine.engine.into());
        let prepared = PreparedLoad {
            ring: Some(RingChoice::stated(workload.ring)),
            engine: Some(engine),
            ..PreparedLoad::alone(workload.workers, workload.queue_depth)
        };
        let made = self.made();
        let made = made.as_ref().expect("opened before its first run");
        let job = Job {
            settings: self.settings.clone(),
            trees: made.tree.workers.clone(),
            backend: Arc::clone(device(on)?),
            seed: order.seed,
            part: order
                .part
                .unwrap_or_else(|| RunPart::whole(workload.workers)),
            run: self.runs.fetch_add(1, Ordering::Relaxed),
            commands: Commands::new(),
            workload,
        };
        Ok((prepared, Box::new(Workers::spawn(job, &inbox)?)))
    }

    fn close(&self) -> Result<(), LoadError> {
        let Some(Made { tree, backend }) = self.made().take() else {
            return Ok(());
        };
        if self.settings.keep {
            return Ok(());
        }
        let runs = self.runs.load(Ordering::Relaxed);
        let entries_max = most(&self.settings, self.workload.workers, runs);
        Ok(NfsTree::remove(
            folder(backend.as_ref())?,
            &tree.name,
            entries_max,
            DEPTH_MAX,
        )?)
    }

    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        Some(self)
    }
}

/// An agent drops loads that it keeps, such as those of trials, instead of closing them.
impl Drop for NfsLoad {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// State shared by all workers of a run.
struct Job {
    workload: Workload,
    settings: NfsSettings,
    trees: Vec<Arc<super::tree::WorkerTree>>,
    backend: Arc<dyn Backend>,
    seed: u64,
    part: RunPart,
    run: u64,
    commands: Commands,
}

impl WorkerJob for Job {
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
        let (workload, folder) = (&self.workload, folder(self.backend.as_ref())?);
        let tree = Arc::clone(&self.trees[worker as usize]);
        let is_stopped = || self.commands.is_stopped();
        let run =
            TreeMaker::new(folder, &is_stopped)?.run_folder(&tree, &self.settings, self.run)?;
        let target = NfsTarget {
            tree,
            run: Arc::new(run),
            stable: self.settings.stable,
        };
        let ring = ring_of(workload, &RingConfig::default()).map_err(io)?;
        let id = WorkerId::of(self.part, worker, self.seed);
        let sequence = NfsSequence::new(workload, &self.settings, id, worker);
        let ready = Worker::with(sequence, NfsData::new(id), workload, id, ring.pool());
        let device = folder.operations(target, &ring, workload.queue_depth);
        let mut device = device.map_err(|source| LoadError::Open {
            worker,
            device: folder.name().to_string(),
            source: Box::new(source),
        })?;
        inbox.send(WorkerMessage::Ready);
        // There is no start time: the run was abandoned.
        let Ok(start) = started.recv() else {
            return Ok((Outcome::interrupted(), device.health()));
        };
        let mut post = Post::new(worker, inbox);
        let outcome = ready.run(
            device.as_mut(),
            &mut RingTime(&ring),
            start,
            &self.commands,
            &mut post,
        );
        let outcome = Outcome {
            recording_wait: post.waited(),
            ..outcome.map_err(io)?
        };
        Ok((outcome, device.health()))
    }
}
