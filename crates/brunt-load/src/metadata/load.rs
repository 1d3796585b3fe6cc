//! Turns each phase of a metadata load into a load. The phases share what their workers have created, so that one phase
//! can use the files of another.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brunt_block::table::{Permit, preview_url_with};
use brunt_block::{Backend, Health, OpenError, open_url_with};
use brunt_core::{Clock, Nanos, Size};
use brunt_nfs::connect::random_xid;
use brunt_result::Outcome;

use super::export::Export;
use super::mounted::Mounted;
use super::place::{MetadataPlace, PlaceError};
use super::settings::{MetadataPhase, MetadataSettings, MetadataTrees};
use super::walker::{Walker, WalkerJob, WorkerNames};
use crate::block::workers::{WorkerJob, Workers};
use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands};
use crate::entry::{LoadEntry, written};
use crate::file::cache::kind_of;
use crate::file::meter::PhaseMeter;
use crate::file_sizes::FileSizes;
use crate::hosted::{FILE, HostedLoad, OrderedLoad};
use crate::kind::{LoadForm, LoadKind, NamedLoad, OwnTable};
use crate::load::{
    Load, LoadError, LoadInfo, LoadTarget, MessageSender, PreparedLoad, RunOrder, RunPart,
    RunningLoad, WorkloadError,
};
use crate::nfs::load::folder;

/// The load's name in [`crate::LOADS`].
pub const KIND: &str = "metadata";

/// The load's entry in [`crate::LOADS`].
pub(crate) const LINE: LoadKind = LoadKind {
    name: KIND,
    help: "metadata operations like mdtest's, on a mounted file system or NFS: create, stat, list, read, remove, and PostMark's transactions",
    example: "directory = \"/tmp\"\nphases = [\"file-creation\", \"file-stat\"]\nitems = 10",
    permit: None,
    read: |text, _| {
        let settings: MetadataSettings = toml::from_str(text).map_err(Box::new)?;
        LoadEntry::check(&settings)?;
        Ok(settings.loads())
    },
    form: LoadForm::Own(OwnTable::of::<MetadataSettings>(
        "metadata",
        "Metadata operations like mdtest's and PostMark's, on mounted file systems or folders of NFS servers, by a name of your choice. \
         Each phase is a point; of a `sweep`, only `clients`, `file_size` and links apply.",
    )),
};

impl LoadEntry for MetadataSettings {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn settings(&self) -> toml::Table {
        written(self)
    }

    fn noun(&self) -> &'static str {
        "metadata load"
    }

    fn check(&self) -> Result<(), WorkloadError> {
        MetadataSettings::check(self)?;
        if self.is_nfs()
            && let Err(error) = preview_url_with(&self.directory, brunt_nfs::BACKENDS)
        {
            return Err(WorkloadError {
                key: "directory",
                what: error.to_string(),
            });
        }
        Ok(())
    }

    fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn on_hosts(&self, hosts: Vec<String>) -> Arc<dyn LoadEntry> {
        Arc::new(MetadataSettings {
            hosts,
            ..self.clone()
        })
    }

    fn place(&self) -> String {
        self.directory.clone()
    }

    fn describe(&self) -> String {
        format!("files and directories in {}", self.directory)
    }

    fn loads(&self) -> Vec<NamedLoad> {
        let shared = Arc::new(Shared::new(self));
        let named = |phase: MetadataPhase| {
            let load = MetadataLoad {
                phase,
                shared: Arc::clone(&shared),
            };
            (phase.name().to_string(), Arc::new(load) as Arc<dyn Load>)
        };
        self.runs().into_iter().map(named).collect()
    }

    fn with_file_size(&self, size: Size) -> Option<Arc<dyn LoadEntry>> {
        self.file_size.as_ref()?;
        Some(Arc::new(MetadataSettings {
            file_size: Some(FileSizes::One(size)),
            ..self.clone()
        }))
    }

    fn directory(&self) -> Option<&Path> {
        self.mounted()
    }
}

/// Where the load's operations go.
#[derive(Clone)]
enum OpenPlace {
    Mounted(PathBuf),
    Export(Arc<dyn Backend>),
}

/// State shared by the phases of one load.
struct Shared {
    settings: MetadataSettings,
    /// Name of the load's directory.
    tree: String,
    open: Mutex<Option<OpenPlace>>,
    workers: Vec<Mutex<WorkerNames>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared").field(&self.settings).finish()
    }
}

/// A phase of a metadata load.
#[derive(Clone, Debug)]
pub struct MetadataLoad {
    phase: MetadataPhase,
    shared: Arc<Shared>,
}

/// The operation that a metadata load could not perform.
#[derive(Debug, thiserror::Error)]
enum MetadataError {
    #[error("{0} is not a directory")]
    NotADirectory(String),
    #[error("{place}: cannot {what}: {why}")]
    Operation {
        place: String,
        what: &'static str,
        why: String,
    },
}

fn own(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LoadError {
    LoadError::Own {
        kind: KIND,
        source: error.into(),
    }
}

fn unlocked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(settings: &MetadataSettings) -> Shared {
        let random = || format!("brunt-{:08x}{:08x}", random_xid().0, random_xid().0);
        let worker = |_| Mutex::new(WorkerNames::default());
        Shared {
            settings: settings.clone(),
            tree: settings.folder.clone().unwrap_or_else(random),
            open: Mutex::new(None),
            workers: (0..settings.workers).map(worker).collect(),
        }
    }

    fn failed(&self, what: &'static str) -> impl Fn(PlaceError) -> LoadError {
        let place = self.settings.directory.clone();
        move |error| match error {
            PlaceError::Failed { error, .. } => own(MetadataError::Operation {
                place: place.clone(),
                what,
                why: error.cause_text(),
            }),
            PlaceError::Lost(source) => LoadError::Own { kind: KIND, source },
            PlaceError::Stopped => LoadError::Interrupted,
        }
    }

    fn open(&self) -> Result<OpenPlace, LoadError> {
        let settings = &self.settings;
        let Some(directory) = settings.mounted() else {
            let backend = open_url_with(&settings.directory, brunt_nfs::BACKENDS, false);
            let backend = backend.map_err(own)?;
            if folder(backend.as_ref())?.info().read_only {
                let what =
                    "the target is opened read-only, but files are created there".to_string();
                return Err(WorkloadError {
                    key: "directory",
                    what,
                }
                .into());
            }
            return Ok(OpenPlace::Export(backend));
        };
        let found = std::fs::metadata(directory).map_err(|error| {
            own(MetadataError::Operation {
                place: settings.directory.clone(),
                what: "be used",
                why: error.to_string(),
            })
        })?;
        match found.is_dir() {
            true => Ok(OpenPlace::Mounted(directory.to_path_buf())),
            false => Err(own(MetadataError::NotADirectory(
                settings.directory.clone(),
            ))),
        }
    }

    fn notes(&self, place: &OpenPlace) -> Vec<String> {
        let settings = &self.settings;
        let mut notes = match place {
            OpenPlace::Mounted(directory) => {
                vec![format!("{}: {}", directory.display(), kind_of(directory))]
            }
            OpenPlace::Export(backend) => backend.info().remarks().cloned().collect(),
        };
        if settings.keep {
            let join = if settings.directory.ends_with('/') {
                ""
            } else {
                "/"
            };
            let (directory, tree) = (&settings.directory, &self.tree);
            notes.push(format!("the directory stays: {directory}{join}{tree}"));
        }
        notes
    }

    /// Runs `work` with a worker's access to the place of its operations.
    fn with_place<T>(
        &self,
        place: &OpenPlace,
        is_stopped: &(dyn Fn() -> bool + Sync),
        work: impl WithPlace<T>,
    ) -> Result<T, LoadError> {
        match place {
            OpenPlace::Mounted(directory) => work.on(Mounted::new(directory)),
            OpenPlace::Export(backend) => {
                work.on(Export::new(folder(backend.as_ref())?, is_stopped))
            }
        }
    }

    /// Removes what all workers created.
    fn remove(&self, place: &OpenPlace) -> Result<(), LoadError> {
        let never = || false;
        let clean = |names: &Mutex<WorkerNames>| {
            let cleaning = Cleaning {
                shared: self,
                names: &mut unlocked(names),
            };
            self.with_place(place, &never, cleaning)
        };
        let clean = &clean;
        let cleaned: Result<Vec<()>, LoadError> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .workers
                .iter()
                .map(|names| scope.spawn(move || clean(names)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect()
        });
        cleaned?;
        let leaving = Leaving {
            shared: self,
            names: &mut unlocked(&self.workers[0]),
        };
        self.with_place(place, &never, leaving)
    }
}

/// Work that is the same for mounted file systems and NFS.
trait WithPlace<T> {
    fn on<P: MetadataPlace>(self, place: P) -> Result<T, LoadError>;
}

struct Cleaning<'a> {
    shared: &'a Shared,
    names: &'a mut WorkerNames,
}

impl WithPlace<()> for Cleaning<'_> {
    fn on<P: MetadataPlace>(self, place: P) -> Result<(), LoadError> {
        let job = WalkerJob {
            settings: &self.shared.settings,
            tree: &self.shared.tree,
            workers_of_all: 1,
            is_stopped: &|| false,
        };
        let cleaned = Walker::new(job, place, self.names).clean();
        cleaned.map_err(self.shared.failed("remove what it created"))
    }
}

/// Removes the load's directory.
struct Leaving<'a> {
    shared: &'a Shared,
    names: &'a mut WorkerNames,
}

impl WithPlace<()> for Leaving<'_> {
    fn on<P: MetadataPlace>(self, place: P) -> Result<(), LoadError> {
        let settings = &self.shared.settings;
        let job = WalkerJob {
            settings,
            tree: &self.shared.tree,
            workers_of_all: 1,
            is_stopped: &|| false,
        };
        // If the settings name the directory, other hosts may still use it.
        let is_shared = settings.folder.is_some();
        let removed = Walker::new(job, place, self.names).remove_base(is_shared);
        removed.map_err(self.shared.failed("remove its directory"))
    }
}

/// A worker of a run.
struct Working<'a> {
    run: &'a Run,
    worker: u32,
    names: &'a mut WorkerNames,
    inbox: &'a MessageSender,
    started: &'a Receiver<Nanos>,
}

impl WithPlace<Outcome> for Working<'_> {
    fn on<P: MetadataPlace>(self, place: P) -> Result<Outcome, LoadError> {
        let Working {
            run,
            worker,
            names,
            inbox,
            started,
        } = self;
        let (shared, phase) = (&run.shared, run.phase);
        let is_stopped = || run.commands.is_stopped();
        let job = WalkerJob {
            settings: &shared.settings,
            tree: &shared.tree,
            workers_of_all: run.part.workers_of_all,
            is_stopped: &is_stopped,
        };
        names.rank = run.part.first_worker + worker;
        let mut walker = Walker::new(job, place, names);
        let prepared = walker.prepare(phase);
        prepared.map_err(shared.failed("prepare a phase"))?;
        inbox.send(WorkerMessage::Ready);
        // No start time: the run was abandoned.
        let Ok(start) = started.recv() else {
            return Ok(Outcome::interrupted());
        };
        let early = start.0.saturating_sub(Clock::Monotonic.now().0);
        std::thread::sleep(Duration::from_nanos(early));
        let mut post = Post::new(worker, inbox);
        let kinds = shared.settings.kinds(phase);
        let interval = shared.settings.interval.0;
        let mut meter = PhaseMeter::new(kinds, start, interval, &run.commands, &mut post);
        match walker.run(phase, run.seed, &mut meter) {
            Ok(()) | Err(PlaceError::Stopped) => {}
            Err(error) => return Err(shared.failed("run a phase")(error)),
        }
        let outcome = meter.finish(Clock::Monotonic.now());
        Ok(Outcome {
            recording_wait: post.waited(),
            ..outcome
        })
    }
}

/// What the workers of a run share.
struct Run {
    shared: Arc<Shared>,
    place: OpenPlace,
    phase: MetadataPhase,
    seed: u64,
    part: RunPart,
    commands: Commands,
}

impl Load for MetadataLoad {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn info(&self) -> LoadInfo {
        let settings = &self.shared.settings;
        LoadInfo {
            kinds: settings.kinds(self.phase).to_vec(),
            workers: settings.workers,
            interval: settings.interval.0,
            // The load only writes to files that it created itself.
            ..LoadInfo::default()
        }
    }

    fn describe(&self) -> String {
        let settings = &self.shared.settings;
        let shape = settings.shape();
        let directories = shape.directories().unwrap_or(u32::MAX);
        let whose = match settings.trees {
            MetadataTrees::Shared => "shared",
            MetadataTrees::Unique => "of each worker",
        };
        let files = match &settings.file_size {
            Some(sizes) => format!(", files of {}", sizes.describe()),
            None => String::new(),
        };
        format!(
            "{}, {directories} directories {whose}, {} items per worker in each{}{files}",
            self.phase.name().replace('-', " "),
            settings.items,
            if settings.leaf_only {
                " of the deepest"
            } else {
                ""
            },
        )
    }

    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("phase", self.phase.name().into())]
    }

    fn open(&self, _on: &LoadTarget, _stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        let mut open = unlocked(&self.shared.open);
        if open.is_none() {
            *open = Some(self.shared.open()?);
        }
        let place = open.as_ref().expect("just opened");
        Ok(self.shared.notes(place))
    }

    fn prepare(
        &self,
        _on: &LoadTarget,
        order: &RunOrder,
        inbox: MessageSender,
        _stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let workers = self.shared.settings.workers;
        let run = Run {
            shared: Arc::clone(&self.shared),
            place: unlocked(&self.shared.open)
                .clone()
                .expect("opened before its first run"),
            phase: self.phase,
            seed: order.seed,
            part: order.part.unwrap_or_else(|| RunPart::whole(workers)),
            commands: Commands::new(),
        };
        let running = Workers::spawn(run, &inbox)?;
        Ok((PreparedLoad::alone(workers, 1), Box::new(running)))
    }

    fn close(&self) -> Result<(), LoadError> {
        // The first phase to be closed removes everything.
        match unlocked(&self.shared.open).take() {
            Some(place) if !self.shared.settings.keep => self.shared.remove(&place),
            _ => Ok(()),
        }
    }

    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        Some(self)
    }
}

impl WorkerJob for Run {
    fn workers(&self) -> u32 {
        self.shared.settings.workers
    }

    fn command_limits(&self) -> CommandLimits {
        CommandLimits::default()
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
        let is_stopped = || self.commands.is_stopped();
        let working = Working {
            run: self,
            worker,
            names: &mut unlocked(&self.shared.workers[worker as usize]),
            inbox,
            started,
        };
        let outcome = self.shared.with_place(&self.place, &is_stopped, working)?;
        Ok((outcome, Health::default()))
    }
}

impl HostedLoad for MetadataLoad {
    fn named_hosts(&self) -> &[String] {
        &self.shared.settings.hosts
    }

    /// # Panics
    /// Panics if its values cannot be serialized; values read from a file always can.
    fn for_host(&self, _order: &RunOrder) -> OrderedLoad {
        let here = MetadataSettings {
            hosts: Vec::new(),
            // All hosts use the same directory.
            folder: Some(self.shared.tree.clone()),
            ..self.shared.settings.clone()
        };
        OrderedLoad {
            text: toml::to_string(&here).expect("a metadata load can be written as TOML"),
            member: self.phase.name().to_string(),
            kinds: here.kinds(self.phase).to_vec(),
            queue_depth: 1,
            ..OrderedLoad::default()
        }
    }

    fn keeps_between_runs(&self) -> bool {
        true
    }

    fn drives_device(&self) -> bool {
        false
    }

    fn check_allowed(&self, permit: &dyn Permit) -> Result<(), OpenError> {
        let settings = &self.shared.settings;
        match settings.directory.split_once(':') {
            Some((backend, argument)) if settings.is_nfs() => permit.check(backend, argument),
            _ => permit.check(FILE, &settings.directory),
        }
    }
}
